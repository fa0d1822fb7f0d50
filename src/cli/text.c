/* Text for people: lines that are safe on a terminal, cut at its edge; times as people say them.
 *
 * Whatever came from a store or a user goes through stet__cli_clean() before it is printed: a
 * payload with escape sequences must not steer the terminal of whoever looks at it. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- UTF-8 ---------------------------------------------------------------------------------- */

/* Decode one code point; 0 bytes read means it is broken here. */
static size_t
text_decode(const uint8_t *p, size_t len, uint32_t *point)
{
    size_t n = stet__utf8_len(p, len);

    if (n > 0)
        *point = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        *point = *point << 6 | (p[i] & 0x3fu);
    return n;
}

bool
stet__cli_is_utf8(stet_bytes text)
{
    const uint8_t *p = text.data;
    uint32_t       point;

    for (size_t i = 0, n; i < text.len; i += n)
        if ((n = text_decode(p + i, text.len - i, &point)) == 0)
            return false;
    return true;
}

/* Controls, and the invisible characters that reorder a line. */
static bool
text_is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) ||
           (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) ||
           point == 0x2028 || point == 0x2029;
}

static size_t
text_point_columns(uint32_t p)
{
    if ((p >= 0x300 && p <= 0x36f) || (p >= 0x200b && p <= 0x200f) ||
        (p >= 0x20d0 && p <= 0x20ff) || (p >= 0xfe00 && p <= 0xfe0f))
        return 0;
    if ((p >= 0x1100 && p <= 0x115f) || (p >= 0x2e80 && p <= 0xa4cf) ||
        (p >= 0xac00 && p <= 0xd7a3) || (p >= 0xf900 && p <= 0xfaff) ||
        (p >= 0xfe30 && p <= 0xfe6f) || (p >= 0xff00 && p <= 0xff60) ||
        (p >= 0xffe0 && p <= 0xffe6) || (p >= 0x1f300 && p <= 0x1faff) ||
        (p >= 0x20000 && p <= 0x3fffd))
        return 2;
    return 1;
}

const char *
stet__cli_clean(cli *c, stet_bytes text)
{
    const uint8_t *p = text.data;
    stet__buf      out;
    uint32_t       point = 0;
    const char    *clean;

    stet__buf_init(&out, c->alloc);
    for (size_t i = 0, n; i < text.len; i += n) {
        n = text_decode(p + i, text.len - i, &point);
        if (n == 0) {
            stet__buf_str(&out, "\xef\xbf\xbd");
            n = 1;
        } else if (point == '\n' || point == '\r' || point == '\t') {
            stet__buf_byte(&out, ' ');
        } else if (text_is_control(point)) {
            stet__buf_byte(&out, '?');
        } else {
            stet__buf_add(&out, p + i, n);
        }
    }
    clean = stet__arena_copy(c->arena, stet__buf_cstr(&out), out.len);
    stet__buf_free(&out);
    return clean;
}

size_t
stet__cli_columns(const char *clean)
{
    const uint8_t *p = (const uint8_t *)clean;
    size_t         len = strlen(clean), columns = 0;
    uint32_t       point = 0;

    for (size_t i = 0, n; i < len; i += n) {
        if ((n = text_decode(p + i, len - i, &point)) == 0)
            n = 1;
        columns += text_point_columns(point);
    }
    return columns;
}

const char *
stet__cli_cut(cli *c, const char *clean, size_t columns)
{
    const uint8_t *p = (const uint8_t *)clean;
    size_t         len = strlen(clean), used = 0, i = 0;
    uint32_t       point = 0;

    if (columns == SIZE_MAX || stet__cli_columns(clean) <= columns)
        return clean;
    /* One column stays for the ellipsis. */
    while (i < len) {
        size_t n = text_decode(p + i, len - i, &point);

        if (n == 0)
            n = 1;
        if (used + text_point_columns(point) + 1 > columns)
            break;
        used += text_point_columns(point);
        i += n;
    }
    return stet__cli_printf(c, "%.*s\xe2\x80\xa6", (int)i, clean);
}

const char *
stet__cli_payload_text(cli *c, stet_bytes payload)
{
    if (payload.len == 0)
        return "";
    if (stet__cli_is_utf8(payload) && memchr(payload.data, 0, payload.len) == NULL)
        return stet__cli_clean(c, payload);
    return stet__cli_printf(c, "<%zu bytes>", payload.len);
}

const char *
stet__cli_printf(cli *c, const char *fmt, ...)
{
    stet__buf   out;
    va_list     args, again;
    int         len;
    const char *text;

    va_start(args, fmt);
    va_copy(again, args);
    len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    stet__buf_init(&out, c->alloc);
    stet__buf_reserve(&out, (size_t)len + 1);
    vsnprintf((char *)out.data, (size_t)len + 1, fmt, again);
    va_end(again);
    text = stet__arena_copy(c->arena, out.data, (size_t)len);
    stet__buf_free(&out);
    return text;
}

/* ---- times ---------------------------------------------------------------------------------- */

#define TEXT_SECOND INT64_C(1000)
#define TEXT_MINUTE (60 * TEXT_SECOND)
#define TEXT_HOUR   (60 * TEXT_MINUTE)
#define TEXT_DAY    (24 * TEXT_HOUR)

const char *
stet__cli_span(cli *c, int64_t ms)
{
    if (ms < 0)
        ms = 0;
    if (ms < TEXT_SECOND)
        return stet__cli_printf(c, "%lld ms", (long long)ms);
    if (ms < TEXT_MINUTE)
        return stet__cli_printf(c, "%lld.%lld s", (long long)(ms / 1000),
                                (long long)(ms % 1000 / 100));
    if (ms < TEXT_HOUR)
        return stet__cli_printf(c, "%lld min %lld s", (long long)(ms / TEXT_MINUTE),
                                (long long)(ms % TEXT_MINUTE / TEXT_SECOND));
    if (ms < TEXT_DAY)
        return stet__cli_printf(c, "%lld h %lld min", (long long)(ms / TEXT_HOUR),
                                (long long)(ms % TEXT_HOUR / TEXT_MINUTE));
    return stet__cli_printf(c, "%lld d %lld h", (long long)(ms / TEXT_DAY),
                            (long long)(ms % TEXT_DAY / TEXT_HOUR));
}

const char *
stet__cli_relative(cli *c, int64_t then_ms, int64_t now_ms)
{
    char text[48];

    return stet__arena_str(c->arena, stet__time_relative(text, sizeof text, then_ms, now_ms));
}

const char *
stet__cli_when(cli *c, int64_t ms, int64_t now_ms)
{
    struct tm tm;
    time_t    s = (time_t)(ms / 1000);
    char      text[32];

    /* Neither can fail: the year of 64 bits of milliseconds has nine digits. */
    (void)gmtime_r(&s, &tm);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    return stet__cli_printf(c, "%s.%03dZ (%s)", text, (int)(ms % 1000),
                            stet__cli_relative(c, ms, now_ms));
}

/* Exactly `n` digits at *p, moved past them; -1 if they are not there. */
static int
time_digits(const char **p, int n)
{
    int value = 0;

    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return -1;
        value = value * 10 + (**p - '0');
    }
    return value;
}

/* "", "Z", "+02", "+0200" or "+02:00" at the end. *has_zone is false for "". */
static bool
time_zone(const char *p, bool *has_zone, int64_t *offset_ms)
{
    int sign, hours, minutes = 0;

    *offset_ms = 0;
    *has_zone = *p != '\0';
    if (*p == '\0' || ((*p == 'Z' || *p == 'z') && p[1] == '\0'))
        return true;
    if (*p != '+' && *p != '-')
        return false;
    sign = *p++ == '-' ? -1 : 1;
    if ((hours = time_digits(&p, 2)) < 0 || hours > 23)
        return false;
    if (*p == ':' && *++p == '\0')
        return false;
    if (*p != '\0' && ((minutes = time_digits(&p, 2)) < 0 || minutes > 59 || *p != '\0'))
        return false;
    *offset_ms = sign * (hours * TEXT_HOUR + minutes * TEXT_MINUTE);
    return true;
}

/* Behind the day: "T12:30[:15[.250]]", moved past it. */
static bool
time_of_day(const char **p, struct tm *tm, int *ms)
{
    *ms = 0;
    if (**p != 'T' && **p != 't' && **p != ' ')
        return true;
    (*p)++;
    if ((tm->tm_hour = time_digits(p, 2)) < 0 || tm->tm_hour > 23 || *(*p)++ != ':' ||
        (tm->tm_min = time_digits(p, 2)) < 0 || tm->tm_min > 59)
        return false;
    if (**p != ':')
        return true;
    (*p)++;
    if ((tm->tm_sec = time_digits(p, 2)) < 0 || tm->tm_sec > 59)
        return false;
    if (**p != '.' && **p != ',')
        return true;
    (*p)++;
    if (**p < '0' || **p > '9')
        return false;
    for (int scale = 100; **p >= '0' && **p <= '9'; (*p)++, scale /= 10)
        *ms += (**p - '0') * scale;
    return true;
}

static bool
time_iso(int64_t *out, const char *p)
{
    struct tm tm = { 0 };
    int       day, month, year, ms;
    int64_t   offset_ms;
    bool      has_zone;
    time_t    s;

    if ((year = time_digits(&p, 4)) < 1970 || *p++ != '-' || (month = time_digits(&p, 2)) < 1 ||
        month > 12 || *p++ != '-' || (day = time_digits(&p, 2)) < 1 || day > 31)
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    tm.tm_mday = day;
    tm.tm_isdst = -1;
    if (!time_of_day(&p, &tm, &ms) || !time_zone(p, &has_zone, &offset_ms))
        return false;
    s = has_zone ? timegm(&tm) : mktime(&tm);
    /* A day the month does not have was moved into the next one. */
    if (tm.tm_mday != day || tm.tm_mon != month - 1)
        return false;
    *out = (int64_t)s * 1000 + ms - offset_ms;
    return true;
}

bool
stet__cli_time_parse(int64_t *ms, const char *text)
{
    char     *end;
    long long value;

    if (time_iso(ms, text))
        return true;
    value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value == INT64_MAX)
        return false;
    *ms = value;
    return true;
}

/* ---- colour --------------------------------------------------------------------------------- */

void
stet__cli_paint(const cli *c, cli_style style, const char *text)
{
    static const char *const codes[] = {
        [CLI_PLAIN] = "",        [CLI_DIM] = "\033[2m",  [CLI_BOLD] = "\033[1m",
        [CLI_GOOD] = "\033[32m", [CLI_BAD] = "\033[31m", [CLI_CARE] = "\033[33m",
    };

    if (c->has_color && style != CLI_PLAIN)
        printf("%s%s\033[0m", codes[style], text);
    else
        fputs(text, stdout);
}

cli_style
stet__cli_status_style(stet_status status)
{
    switch (status) {
    case STET_STATUS_COMPLETED: return CLI_GOOD;
    case STET_STATUS_FAILED:
    case STET_STATUS_STUCK:
    case STET_STATUS_EXPIRED:
    case STET_STATUS_COMPENSATION_FAILED: return CLI_BAD;
    case STET_STATUS_RETRYING:
    case STET_STATUS_PAUSED:
    case STET_STATUS_CANCELLING:
    case STET_STATUS_COMPENSATING:
    case STET_STATUS_CANCELLED: return CLI_CARE;
    case STET_STATUS_PENDING:
    case STET_STATUS_RUNNING:
    case STET_STATUS_SUSPENDED: break;
    }
    return CLI_PLAIN;
}
