/* Durations as people write them (A11): "500ms", "5s", "1.5h", "2 d", "1h30m", or milliseconds.
 *
 * Grammar: terms "number unit" with the units getting smaller, or one number without a unit. Spaces
 * may stand anywhere between. Arithmetic is exact in whole numbers: a fraction is multiplied out
 * digit by digit, so rounding (half up, to the millisecond) never depends on floating point.
 */
#include <stdio.h>

#include "util/util.h"

#define DURATION_EXPECTED                                                                          \
    "expected a number and a unit (ms, s, m, h, d or w) like \"500ms\", \"1.5h\" or \"1h30m\", "   \
    "or plain milliseconds"

typedef struct duration_unit {
    int64_t     ms;
    const char *names; /* each between spaces */
} duration_unit;

/* Largest last: a term's place here must be below that of the term before. */
static const duration_unit duration_units[] = {
    { 1, " ms msec msecs milli millis millisecond milliseconds " },
    { 1000, " s sec secs second seconds " },
    { 60 * 1000, " m min mins minute minutes " },
    { 60 * 60 * 1000, " h hr hrs hour hours " },
    { 24 * 60 * 60 * 1000, " d day days " },
    { 7 * 24 * 60 * 60 * 1000, " w wk wks week weeks " },
};
#define DURATION_UNITS (sizeof duration_units / sizeof duration_units[0])

/* The digits of one number, where they lie in the text. */
typedef struct duration_number {
    const char *whole, *fraction;
    size_t      whole_len, fraction_len;
} duration_number;

static size_t
duration_digits(const char *p)
{
    size_t n = 0;

    while (p[n] >= '0' && p[n] <= '9')
        n++;
    return n;
}

static const char *
duration_skip_space(const char *p)
{
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
        p++;
    return p;
}

/* "12", "1.5", ".5"; NULL for anything else. Returns what follows. */
static const char *
duration_read_number(duration_number *n, const char *p)
{
    n->whole = p;
    n->whole_len = duration_digits(p);
    n->fraction = NULL;
    n->fraction_len = 0;
    p += n->whole_len;
    if (*p != '.')
        return n->whole_len != 0 ? p : NULL;
    n->fraction = p + 1;
    n->fraction_len = duration_digits(p + 1);
    return n->fraction_len != 0 ? p + 1 + n->fraction_len : NULL;
}

/* The fraction times `unit_ms`, rounded: multiplication as on paper, from the last digit to the
 * first. What is carried out at the front is whole milliseconds, and the last digit produced is
 * tenths of one. */
static int64_t
duration_fraction_ms(const duration_number *n, int64_t unit_ms)
{
    int64_t carry = 0, tenths = 0;
    size_t  i;

    for (i = n->fraction_len; i-- > 0;) {
        carry += (n->fraction[i] - '0') * unit_ms;
        tenths = carry % 10;
        carry /= 10;
    }
    return carry + (tenths >= 5);
}

/* *sum += n * unit_ms; false when that is more than a duration may be. */
static bool
duration_add(int64_t *sum, const duration_number *n, int64_t unit_ms)
{
    int64_t whole = 0, more;
    size_t  i;

    for (i = 0; i < n->whole_len; i++) {
        whole = whole * 10 + (n->whole[i] - '0');
        if (whole > STET__DURATION_MAX_MS / unit_ms)
            return false;
    }
    more = whole * unit_ms + duration_fraction_ms(n, unit_ms);
    if (more > STET__DURATION_MAX_MS - *sum)
        return false;
    *sum += more;
    return true;
}

/* Which unit the letters at *p name; DURATION_UNITS if none. Moves *p behind them. */
static size_t
duration_read_unit(const char **p)
{
    char   word[16] = " ";
    size_t len = 1, i;

    for (; (**p | 32) >= 'a' && (**p | 32) <= 'z'; (*p)++) {
        if (len > sizeof word - 3)
            return DURATION_UNITS;
        word[len++] = (char)(**p | 32);
    }
    word[len++] = ' ';
    word[len] = '\0';
    for (i = 0; len > 2 && i < DURATION_UNITS; i++)
        if (strstr(duration_units[i].names, word) != NULL)
            return i;
    return DURATION_UNITS;
}

static int
duration_fail(const char *text, const char *why)
{
    return stet__fail(STET_EDURATION, "duration \"%.64s\" %s: " DURATION_EXPECTED, text, why);
}

static int
duration_fail_long(const char *text)
{
    return stet__fail(STET_EDURATION, "duration \"%.64s\" is too long: at most 10000 years", text);
}

/* One or more terms with a unit each; `p` stands behind the first number. */
static int
duration_read_terms(int64_t *ms, duration_number *n, const char *p, const char *text)
{
    size_t  last = DURATION_UNITS, unit;
    int64_t sum = 0;

    for (;;) {
        p = duration_skip_space(p);
        unit = duration_read_unit(&p);
        if (unit == DURATION_UNITS)
            return duration_fail(text, "has an unknown or missing unit");
        if (unit >= last)
            return duration_fail(text, "has its units in the wrong order");
        if (!duration_add(&sum, n, duration_units[unit].ms))
            return duration_fail_long(text);
        last = unit;
        p = duration_skip_space(p);
        if (*p == '\0')
            break;
        if ((p = duration_read_number(n, p)) == NULL)
            return duration_fail(text, "cannot be read");
    }
    *ms = sum;
    return STET_OK;
}

int
stet_duration_parse(int64_t *ms, const char *text)
{
    duration_number n;
    const char     *p;
    int64_t         sum = 0;

    if (text == NULL || *(p = duration_skip_space(text)) == '\0')
        return duration_fail("", "is empty");
    if (*p == '-')
        return duration_fail(text, "is negative");
    if ((p = duration_read_number(&n, p)) == NULL)
        return duration_fail(text, "cannot be read");
    if (*duration_skip_space(p) != '\0')
        return duration_read_terms(ms, &n, p, text);
    if (!duration_add(&sum, &n, 1))
        return duration_fail_long(text);
    *ms = sum;
    return STET_OK;
}

/* Seconds with as many decimals as there are: "30s", "1.5s", "0.001s". Returns its length. */
static int
duration_print_seconds(char *out, size_t size, uint64_t ms)
{
    uint64_t part = ms % 1000;
    int      width = 3;

    if (part == 0)
        return snprintf(out, size, "%llus", (unsigned long long)(ms / 1000));
    for (; part % 10 == 0; part /= 10)
        width--;
    return snprintf(out, size, "%llu.%0*llus", (unsigned long long)(ms / 1000), width,
                    (unsigned long long)part);
}

const char *
stet_duration_text(char *text, size_t size, int64_t ms)
{
    static const struct {
        uint64_t ms;
        char     unit;
    } parts[] = { { 86400000, 'd' }, { 3600000, 'h' }, { 60000, 'm' } };
    char     out[64];
    size_t   at = 0, i;
    uint64_t left = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;

    if (left != 0 && left < 1000) {
        (void)snprintf(text, size, "%lldms", (long long)ms);
        return text;
    }
    if (ms < 0)
        out[at++] = '-';
    for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (left >= parts[i].ms)
            at += (size_t)snprintf(out + at, sizeof out - at, "%llu%c",
                                   (unsigned long long)(left / parts[i].ms), parts[i].unit);
        left %= parts[i].ms;
    }
    if (left != 0 || ms == 0)
        at += (size_t)duration_print_seconds(out + at, sizeof out - at, left);
    out[at] = '\0';
    (void)snprintf(text, size, "%s", out);
    return text;
}

int
stet__span_parse(int64_t *ms, const char *of, const char *what, const char *text)
{
    int err = stet_duration_parse(ms, text);

    if (err != STET_OK)
        return stet__fail(err, "%s: %s: %s", of, what, stet_last_error());
    return *ms > 0 ? STET_OK
                   : stet__fail(STET_EDURATION,
                                "%s: %s: \"%.32s\" is no time; leave it away for the default", of,
                                what, text);
}

const char *
stet__time_relative(char *text, size_t size, int64_t then_ms, int64_t now_ms)
{
    static const struct {
        int64_t     from_ms, ms;
        const char *name;
    } units[] = {
        { 2 * INT64_C(86400000), 86400000, "d" },
        { 3600000, 3600000, "h" },
        { 60000, 60000, "min" },
        { 1000, 1000, "s" },
    };
    bool    is_ahead = then_ms > now_ms;
    int64_t ms = is_ahead ? then_ms - now_ms : now_ms - then_ms;

    (void)snprintf(text, size, "%s", is_ahead ? "in < 1 s" : "just now");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (ms >= units[i].from_ms) {
            (void)snprintf(text, size, is_ahead ? "in %lld %s" : "%lld %s ago",
                           (long long)(ms / units[i].ms), units[i].name);
            break;
        }
    return text;
}

/* Days since 1970 to a date, by 400-year cycles that begin on a first of March. */
const char *
stet__utc_text(char room[STET__UTC_MAX], int64_t ms)
{
    int64_t  days = ms / 86400000, left = ms % 86400000, cycle, year;
    unsigned day_of_cycle, year_of_cycle, day_of_year, month, second;

    if (left < 0) {
        left += 86400000;
        days--;
    }
    days += 719468;
    cycle = (days >= 0 ? days : days - 146096) / 146097;
    day_of_cycle = (unsigned)(days - cycle * 146097);
    year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36524 - day_of_cycle / 146096) / 365;
    day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    month = (5 * day_of_year + 2) / 153;
    year = (int64_t)year_of_cycle + cycle * 400 + (month >= 10 ? 1 : 0);
    second = (unsigned)(left / 1000);
    (void)snprintf(room, STET__UTC_MAX, "%04lld-%02u-%02uT%02u:%02u:%02uZ", (long long)year,
                   month < 10 ? month + 3 : month - 9, day_of_year - (153 * month + 2) / 5 + 1,
                   second / 3600, second / 60 % 60, second % 60);
    return room;
}
