/* Cron expressions: the parser, and the search for the next time.
 *
 * Every refusal names the column, counted in bytes from 1. The search goes from day to day and
 * leaps over months that do not match; the clock of a zone is a row of spans with one offset each,
 * so a shift is looked at once and not minute by minute.
 */
#include <assert.h>

#include "core/cron.h"

#define CRON_DAY_S INT64_C(86400)

typedef enum cron_field_number {
    CRON_MINUTE,
    CRON_HOUR,
    CRON_DAY,
    CRON_MONTH,
    CRON_WEEKDAY,
    CRON_FIELDS
} cron_field_number;

static const char *const cron_months[] = { "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL",
                                           "AUG", "SEP", "OCT", "NOV", "DEC", NULL };
static const char *const cron_weekdays[] = {
    "SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", NULL
};

typedef struct cron_field {
    const char        *name;
    uint32_t           least, most;
    uint32_t           star_most; /* of `*`: Sunday is in it once */
    const char *const *names;     /* the first is `least` */
} cron_field;

static const cron_field cron_fields[CRON_FIELDS] = {
    { "minute", 0, 59, 59, NULL },
    { "hour", 0, 23, 23, NULL },
    { "day of month", 1, 31, 31, NULL },
    { "month", 1, 12, 12, cron_months },
    { "day of week", 0, 7, 6, cron_weekdays },
};

static const struct {
    const char *word, *means;
} cron_macros[] = {
    { "@hourly", "0 * * * *" },   { "@daily", "0 0 * * *" },   { "@midnight", "0 0 * * *" },
    { "@weekly", "0 0 * * 0" },   { "@monthly", "0 0 1 * *" }, { "@yearly", "0 0 1 1 *" },
    { "@annually", "0 0 1 1 *" },
};

/* ---- parsing --------------------------------------------------------------------------------- */

typedef struct cron_parser {
    const char *text, *p;
} cron_parser;

/* The expression goes before what is wrong with it, shortened so that both fit. */
#define CRON_SHOWN 200
#define CRON_FAIL(c, fmt, ...)                                                                     \
    stet__fail(STET_EINVAL, "cron \"%.*s%s\": " fmt, CRON_SHOWN, (c)->text, cron_cut(c),           \
               __VA_ARGS__)

static const char *
cron_cut(const cron_parser *c)
{
    return strlen(c->text) > CRON_SHOWN ? "…" : "";
}

/* How much of a word is shown. */
static int
cron_short(size_t len)
{
    return len < 20 ? (int)len : 20;
}

static size_t
cron_column(const cron_parser *c, const char *at)
{
    return (size_t)(at - c->text) + 1;
}

static char
cron_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static bool
cron_is_letter(char c)
{
    return cron_upper(c) >= 'A' && cron_upper(c) <= 'Z';
}

static bool
cron_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool
cron_is_end(char c)
{
    return c == ' ' || c == '\t' || c == '\0';
}

static void
cron_skip_space(cron_parser *c)
{
    while (*c->p == ' ' || *c->p == '\t')
        c->p++;
}

/* In any case. */
static bool
cron_is_word(const char *p, size_t len, const char *word)
{
    if (strlen(word) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (cron_upper(p[i]) != cron_upper(word[i]))
            return false;
    return true;
}

/* What cannot be there at all. */
static int
cron_unexpected(const cron_parser *c, const cron_field *f)
{
    size_t len;

    if (cron_is_end(*c->p) || *c->p == ',')
        return CRON_FAIL(c, "%s: a value is missing at column %zu", f->name, cron_column(c, c->p));
    len = stet__utf8_len((const uint8_t *)c->p, strlen(c->p));
    return CRON_FAIL(c, "%s: '%.*s' at column %zu is not understood", f->name,
                     (int)(len > 0 ? len : 1), c->p, cron_column(c, c->p));
}

static int
cron_name(cron_parser *c, const cron_field *f, uint32_t *value)
{
    size_t len = 0;

    while (cron_is_letter(c->p[len]))
        len++;
    if (f->names == NULL)
        return CRON_FAIL(c, "%s \"%.*s\" at column %zu is not a number", f->name, cron_short(len),
                         c->p, cron_column(c, c->p));
    for (uint32_t i = 0; f->names[i] != NULL; i++)
        if (cron_is_word(c->p, len, f->names[i])) {
            *value = f->least + i;
            c->p += len;
            return STET_OK;
        }
    return CRON_FAIL(c, "%s \"%.*s\" at column %zu is none of %s to %s", f->name, cron_short(len),
                     c->p, cron_column(c, c->p), f->names[0], f->names[f->star_most - f->least]);
}

/* A number; `what` is "hour" or "step". */
static int
cron_number(cron_parser *c, const char *what, uint32_t least, uint32_t most, uint32_t *value)
{
    const char *from = c->p;
    uint32_t    n = 0;

    for (; cron_is_digit(*c->p); c->p++)
        n = n > most ? n : n * 10 + (uint32_t)(*c->p - '0');
    if (n < least || n > most)
        return CRON_FAIL(c, "%s %.*s at column %zu is not %u to %u", what,
                         cron_short((size_t)(c->p - from)), from, cron_column(c, from), least,
                         most);
    *value = n;
    return STET_OK;
}

static int
cron_value(cron_parser *c, const cron_field *f, uint32_t *value)
{
    if (cron_is_digit(*c->p))
        return cron_number(c, f->name, f->least, f->most, value);
    if (cron_is_letter(*c->p))
        return cron_name(c, f, value);
    return cron_unexpected(c, f);
}

static int
cron_step(cron_parser *c, const cron_field *f, bool is_range, uint32_t low, uint32_t *step)
{
    const char *slash = c->p++;

    if (!is_range)
        return CRON_FAIL(c, "%s: the step at column %zu follows a single value; write %u-%u%.*s",
                         f->name, cron_column(c, slash), low, f->star_most,
                         cron_short(strcspn(slash, ", \t")), slash);
    if (!cron_is_digit(*c->p))
        return cron_unexpected(c, f);
    return cron_number(c, "step", 1, f->most, step);
}

/* One of a list: `*`, a value, a range, with or without a step. Adds its bits. */
static int
cron_range(cron_parser *c, const cron_field *f, uint64_t *bits)
{
    const char *from = c->p;
    uint32_t    low = f->least, high = f->star_most, step = 1;
    bool        is_range = true;
    int         err;

    if (*c->p == '*') {
        c->p++;
    } else {
        if ((err = cron_value(c, f, &low)) != STET_OK)
            return err;
        high = low;
        is_range = *c->p == '-';
        if (is_range && (c->p++, err = cron_value(c, f, &high)) != STET_OK)
            return err;
    }
    if (low > high)
        return CRON_FAIL(c, "%s: the range %.*s at column %zu runs backwards; %s", f->name,
                         cron_short((size_t)(c->p - from)), from, cron_column(c, from),
                         f->names == cron_weekdays ? "Sunday at its end is 7"
                                                   : "write its two parts as a list");
    if (*c->p == '/' && (err = cron_step(c, f, is_range, low, &step)) != STET_OK)
        return err;
    for (uint32_t v = low; v <= high; v += step)
        *bits |= UINT64_C(1) << (f->names == cron_weekdays ? v % 7 : v);
    return STET_OK;
}

static int
cron_list(cron_parser *c, const cron_field *f, uint64_t *bits)
{
    int err;

    for (;;) {
        if ((err = cron_range(c, f, bits)) != STET_OK)
            return err;
        if (cron_is_end(*c->p))
            return STET_OK;
        if (*c->p != ',')
            return cron_unexpected(c, f);
        c->p++;
    }
}

/* Is there a day that the day of month and the month both allow? Leap years count. */
static bool
cron_has_day(const stet__cron *cron)
{
    for (int month = 1; month <= 12; month++)
        if ((cron->months >> month & 1) != 0 &&
            (cron->days & ((UINT64_C(2) << stet__date_month_days(2000, month)) - 1)) != 0)
            return true;
    return false;
}

static int
cron_fields_parse(stet__cron *out, cron_parser *c)
{
    const char *at[CRON_FIELDS];
    uint64_t    bits[CRON_FIELDS] = { 0 };
    stet__cron  cron;
    int         err;

    for (size_t i = 0; i < CRON_FIELDS; i++) {
        cron_skip_space(c);
        at[i] = c->p;
        if (*c->p == '\0')
            return CRON_FAIL(c,
                             "the %s is missing at column %zu; there are five fields: minute, "
                             "hour, day of month, month, day of week",
                             cron_fields[i].name, cron_column(c, c->p));
        if ((err = cron_list(c, &cron_fields[i], &bits[i])) != STET_OK)
            return err;
    }
    cron_skip_space(c);
    if (*c->p != '\0')
        return CRON_FAIL(c,
                         "a sixth field at column %zu; there are five: minute, hour, day of "
                         "month, month, day of week",
                         cron_column(c, c->p));
    cron.minutes = bits[CRON_MINUTE];
    cron.hours = (uint32_t)bits[CRON_HOUR];
    cron.days = (uint32_t)bits[CRON_DAY];
    cron.months = (uint32_t)bits[CRON_MONTH];
    cron.weekdays = (uint32_t)bits[CRON_WEEKDAY];
    cron.is_either_day = *at[CRON_DAY] != '*' && *at[CRON_WEEKDAY] != '*';
    if (!cron.is_either_day && !cron_has_day(&cron))
        return CRON_FAIL(c,
                         "it never fires: the day of month at column %zu does not come in the "
                         "month at column %zu",
                         cron_column(c, at[CRON_DAY]), cron_column(c, at[CRON_MONTH]));
    *out = cron;
    return STET_OK;
}

static int
cron_macro(stet__cron *out, cron_parser *c)
{
    size_t len = 1, n = sizeof cron_macros / sizeof *cron_macros, i = 0;

    while (!cron_is_end(c->p[len]))
        len++;
    while (i < n && !cron_is_word(c->p, len, cron_macros[i].word))
        i++;
    if (i == n)
        return CRON_FAIL(c,
                         "\"%.*s\" at column %zu is none of @hourly, @daily, @midnight, @weekly, "
                         "@monthly, @yearly, @annually",
                         cron_short(len), c->p, cron_column(c, c->p));
    c->p += len;
    cron_skip_space(c);
    if (*c->p != '\0')
        return CRON_FAIL(c, "nothing goes behind %s, but column %zu has something",
                         cron_macros[i].word, cron_column(c, c->p));
    c->text = c->p = cron_macros[i].means;
    return cron_fields_parse(out, c);
}

int
stet__cron_parse(stet__cron *out, const char *text)
{
    cron_parser c = { text, text };

    if (text == NULL)
        c.text = c.p = "";
    if (strnlen(c.text, STET__CRON_TEXT_MAX + 1) > STET__CRON_TEXT_MAX)
        return stet__fail(STET_EINVAL, "cron \"%.40s…\" is too long: at most %d bytes", c.text,
                          STET__CRON_TEXT_MAX);
    cron_skip_space(&c);
    return *c.p == '@' ? cron_macro(out, &c) : cron_fields_parse(out, &c);
}

/* ---- matching -------------------------------------------------------------------------------- */

static bool
cron_has_date(const stet__cron *c, int64_t days, int day)
{
    bool is_day = (c->days >> day & 1) != 0;
    bool is_weekday = (c->weekdays >> stet__date_weekday(days) & 1) != 0;

    return c->is_either_day ? is_day || is_weekday : is_day && is_weekday;
}

/* The first minute of a day that matches, from this one on; 1440: none. */
static int
cron_minute(const stet__cron *c, int from)
{
    for (int hour = from / 60, minute = from % 60; hour < 24; hour++, minute = 0) {
        if ((c->hours >> hour & 1) == 0)
            continue;
        for (; minute < 60; minute++)
            if ((c->minutes >> minute & 1) != 0)
                return hour * 60 + minute;
    }
    return 1440;
}

/* The first local time that matches, at `local_s` or later. It ends: the rarest day there is, a
 * leap day on a given weekday, comes again after 40 years at most. */
static int64_t
cron_match(const stet__cron *c, int64_t local_s)
{
    int64_t from = stet__floor_div(local_s + 59, 60), days = stet__floor_div(from, 1440);
    int     minute = (int)(from - days * 1440);

    for (;;) {
        stet__date date = stet__date_of(days);

        if ((c->months >> date.month & 1) == 0) {
            days += stet__date_month_days(date.year, date.month) - date.day + 1;
        } else {
            if (cron_has_date(c, days, date.day) && (minute = cron_minute(c, minute)) < 1440)
                return (days * 1440 + minute) * 60;
            days++;
        }
        minute = 0;
    }
}

/* ---- the clock on the wall ------------------------------------------------------------------- */

/* The end of what the clock showed before this span. Less than where the span begins: it was set
 * forward; more: back, and what is below is shown once more. Spans that ended longer ago than two
 * offsets can differ do not count. */
static int64_t
cron_shown(const stet__zone *zone, const stet__zone_span *span)
{
    int64_t shown = STET__ZONE_FIRST_S - STET__ZONE_APART_MAX_S, until = span->from_s;

    if (until == STET__ZONE_FIRST_S)
        return until + span->offset_s;
    while (until > STET__ZONE_FIRST_S && span->from_s - until <= STET__ZONE_APART_MAX_S) {
        stet__zone_span before = stet__zone_span_at(zone, until - 1);

        if (until + before.offset_s > shown)
            shown = until + before.offset_s;
        until = before.from_s;
    }
    return shown;
}

/* Will the clock show this local time again behind the span? */
static bool
cron_is_repeated(const stet__zone *zone, stet__zone_span span, int64_t at_s, int64_t local_s)
{
    while (span.until_s < STET__ZONE_LAST_S && span.until_s - at_s <= STET__ZONE_APART_MAX_S) {
        span = stet__zone_span_at(zone, span.until_s);
        if (local_s >= span.from_s + span.offset_s && local_s < span.until_s + span.offset_s)
            return true;
    }
    return false;
}

/* Fires when the clock first reaches or passes a time that matches. Returns that time, and the span
 * in which it is reached, or at whose beginning it is passed. */
static int64_t
cron_next_reached(const stet__cron *c, const stet__zone *zone, int64_t from_s,
                  stet__zone_span *span)
{
    int64_t local_s = cron_shown(zone, span);

    if (from_s > span->from_s && from_s + span->offset_s > local_s)
        local_s = from_s + span->offset_s;
    local_s = cron_match(c, local_s);
    while (local_s >= span->until_s + span->offset_s)
        *span = stet__zone_span_at(zone, span->until_s);
    return local_s;
}

/* Fires whenever the clock shows a time that matches. A time found for one span stays the next one
 * until the clock is set back. */
static int64_t
cron_next_shown(const stet__cron *c, const stet__zone *zone, int64_t from_s, stet__zone_span *span)
{
    int64_t begin_s = from_s + span->offset_s, local_s = cron_match(c, begin_s), last_s = begin_s;

    while (local_s >= span->until_s + span->offset_s) {
        *span = stet__zone_span_at(zone, span->until_s);
        begin_s = span->from_s + span->offset_s;
        if (begin_s < last_s || begin_s > local_s)
            local_s = cron_match(c, begin_s);
        last_s = begin_s;
    }
    return local_s;
}

static void
cron_fill(stet_cron_time *out, const stet__zone_span *span, int64_t at_s, int64_t asked_s)
{
    int64_t    local_s = at_s + span->offset_s, days = stet__floor_div(local_s, CRON_DAY_S);
    int64_t    asked = stet__floor_div(asked_s, 60) - stet__floor_div(asked_s, CRON_DAY_S) * 1440;
    stet__date date = stet__date_of(days);
    int        second = (int)(local_s - days * CRON_DAY_S);

    out->at_ms = at_s * 1000;
    out->offset_s = span->offset_s;
    out->year = (int32_t)date.year;
    out->month = date.month;
    out->day = date.day;
    out->hour = second / 3600;
    out->minute = second / 60 % 60;
    out->second = second % 60;
    out->asked_hour = (int32_t)(asked / 60);
    out->asked_minute = (int32_t)(asked % 60);
}

void
stet__cron_next(const stet__cron *cron, const stet__zone *zone, int64_t after_s,
                stet_cron_time *out)
{
    bool            is_every_hour = cron->hours == (UINT32_C(1) << 24) - 1;
    int64_t         from_s = after_s + 1, local_s, at_s;
    stet__zone_span span = stet__zone_span_at(zone, from_s);

    local_s = is_every_hour ? cron_next_shown(cron, zone, from_s, &span)
                            : cron_next_reached(cron, zone, from_s, &span);
    at_s = local_s - span.offset_s;
    out->mark = STET_CRON_PLAIN;
    if (at_s < span.from_s) {
        at_s = span.from_s;
        out->mark = STET_CRON_MOVED;
    } else if (local_s < cron_shown(zone, &span)) {
        out->mark = STET_CRON_SECOND;
    } else if (cron_is_repeated(zone, span, at_s, local_s)) {
        out->mark = STET_CRON_FIRST;
    }
    out->shift_s = span.offset_s - stet__zone_span_at(zone, after_s).offset_s;
    cron_fill(out, &span, at_s, local_s);
    assert(at_s > after_s);
}
