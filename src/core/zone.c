/* Time zones from TZif files, and the calendar.
 *
 * A file has the changes of the past one by one, and for the time behind the last one a rule in the
 * text of POSIX's TZ ("CET-1CEST,M3.5.0,M10.5.0/3"). Whatever is in a file, decoding it and looking
 * into it ends soon: counts are bounded, changes ascend, offsets are those RFC 9636 allows.
 */
#include <assert.h>

#include "core/zone.h"

#define ZONE_CHANGES_MAX 2000 /* zic writes no more */
#define ZONE_TYPES_MAX   256
#define ZONE_HEAD        44
#define ZONE_RULE_MAX    128 /* bytes of the text */
#define ZONE_DAY_S       INT64_C(86400)
#define ZONE_OFFSET_MIN  (-25 * 3600 + 1)
#define ZONE_OFFSET_MAX  (26 * 3600 - 1)
#define ZONE_AT_MAX      (INT64_C(1) << 59) /* some files begin at the big bang, -2^59 */

typedef struct zone_change {
    int64_t at_s;
    int32_t offset_s; /* from then on */
} zone_change;

/* When in a year clocks are set: a day of it, and how long after its midnight. */
typedef struct zone_day {
    enum { ZONE_DAY_JULIAN, ZONE_DAY_ZERO, ZONE_DAY_MONTH } kind;
    int     month, week, day; /* day: of the week, or of the year */
    int32_t after_s;
} zone_day;

typedef struct zone_rule {
    bool     is_there, has_dst;
    int32_t  std_s, dst_s; /* offsets */
    zone_day begin, end;   /* of daylight saving */
} zone_rule;

struct stet__zone {
    zone_rule   rule; /* behind the last change */
    int32_t     first_offset_s;
    size_t      n_changes;
    zone_change changes[];
};

/* ---- the calendar ---------------------------------------------------------------------------- */

/* Years are counted from March here, so that the leap day is the last of a year; 400 years have
 * 146097 days. */
int64_t
stet__date_days(stet__date date)
{
    int64_t year = date.month <= 2 ? date.year - 1 : date.year;
    int64_t era = stet__floor_div(year, 400), of_era = year - era * 400;
    int64_t of_year = (153 * (date.month > 2 ? date.month - 3 : date.month + 9) + 2) / 5 + date.day;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 1 - 719468;
}

stet__date
stet__date_of(int64_t days)
{
    int64_t    from_march = days + 719468;
    int64_t    era = stet__floor_div(from_march, 146097), day = from_march - era * 146097;
    int64_t    year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    int64_t    of_year = day - (365 * year + year / 4 - year / 100);
    int        month = (int)((5 * of_year + 2) / 153);
    stet__date date;

    date.day = (int)(of_year - (153 * month + 2) / 5) + 1;
    date.month = month < 10 ? month + 3 : month - 9;
    date.year = year + era * 400 + (date.month <= 2);
    return date;
}

int
stet__date_weekday(int64_t days)
{
    int64_t since_sunday = days + 4;

    return (int)(since_sunday - stet__floor_div(since_sunday, 7) * 7);
}

int
stet__date_month_days(int64_t year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool             is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return month == 2 && is_leap ? 29 : days[month - 1];
}

/* ---- the rule -------------------------------------------------------------------------------- */

/* Letters, or anything between '<' and '>'; three at least. The names themselves are not kept. */
static bool
rule_name(const char **p)
{
    const char *from = *p;
    bool        is_quoted = *from == '<';

    if (is_quoted)
        from++;
    *p = from;
    while ((**p >= 'a' && **p <= 'z') || (**p >= 'A' && **p <= 'Z') ||
           (is_quoted && ((**p >= '0' && **p <= '9') || **p == '+' || **p == '-')))
        (*p)++;
    if (*p - from < 3)
        return false;
    if (is_quoted && *(*p)++ != '>')
        return false;
    return true;
}

static bool
rule_number(const char **p, int least, int most, int *out)
{
    int n = 0;

    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if ((n = n * 10 + (**p - '0')) > most)
            return false;
    *out = n;
    return n >= least;
}

/* [+-]hh[:mm[:ss]] as seconds */
static bool
rule_time(const char **p, int hours_max, int32_t *out)
{
    int sign = 1, hours, minutes = 0, seconds = 0;

    if (**p == '-' || **p == '+')
        sign = *(*p)++ == '-' ? -1 : 1;
    if (!rule_number(p, 0, hours_max, &hours))
        return false;
    if (**p == ':' && ((*p)++, !rule_number(p, 0, 59, &minutes)))
        return false;
    if (**p == ':' && ((*p)++, !rule_number(p, 0, 59, &seconds)))
        return false;
    *out = (int32_t)(sign * (hours * 3600 + minutes * 60 + seconds));
    return true;
}

/* "M3.5.0/2", "J60", "59", each with or without a time, which is 02:00 by default */
static bool
rule_day(const char **p, zone_day *d)
{
    d->after_s = 2 * 3600;
    if (**p == 'M') {
        (*p)++;
        d->kind = ZONE_DAY_MONTH;
        if (!rule_number(p, 1, 12, &d->month) || *(*p)++ != '.' ||
            !rule_number(p, 1, 5, &d->week) || *(*p)++ != '.' || !rule_number(p, 0, 6, &d->day))
            return false;
    } else if (**p == 'J') {
        (*p)++;
        d->kind = ZONE_DAY_JULIAN;
        if (!rule_number(p, 1, 365, &d->day))
            return false;
    } else {
        d->kind = ZONE_DAY_ZERO;
        if (!rule_number(p, 0, 365, &d->day))
            return false;
    }
    if (**p != '/')
        return true;
    (*p)++;
    return rule_time(p, 167, &d->after_s);
}

/* POSIX counts offsets to the west. */
static bool
rule_parse(zone_rule *r, const char *p)
{
    if (*p == '\0')
        return true;
    r->is_there = true;
    if (!rule_name(&p) || !rule_time(&p, 24, &r->std_s))
        return false;
    r->std_s = -r->std_s;
    if (*p == '\0')
        return true;
    r->has_dst = true;
    r->dst_s = r->std_s + 3600;
    if (!rule_name(&p))
        return false;
    if (*p != ',') {
        if (!rule_time(&p, 24, &r->dst_s))
            return false;
        r->dst_s = -r->dst_s;
    }
    return *p++ == ',' && rule_day(&p, &r->begin) && *p++ == ',' && rule_day(&p, &r->end) &&
           *p == '\0';
}

/* The instant in that year, if the clocks are `offset_s` ahead until then. */
static int64_t
rule_at(const zone_day *d, int64_t year, int32_t offset_s)
{
    stet__date first = { year, d->kind == ZONE_DAY_MONTH ? d->month : 1, 1 };
    int64_t    days = stet__date_days(first);

    if (d->kind == ZONE_DAY_MONTH) {
        int to_day = (d->day - stet__date_weekday(days) + 7) % 7 + (d->week - 1) * 7;

        /* The fifth is the last. */
        if (to_day >= stet__date_month_days(year, d->month))
            to_day -= 7;
        days += to_day;
    } else if (d->kind == ZONE_DAY_JULIAN) {
        /* Without leap days: J60 is always the first of March. */
        days += d->day - 1 + (d->day >= 60 && stet__date_month_days(year, 2) == 29);
    } else {
        days += d->day;
    }
    return days * ZONE_DAY_S + d->after_s - offset_s;
}

/* Times of day reach a week into the years around, so two of them on each side are looked at. */
#define RULE_YEARS   5
#define RULE_CHANGES (RULE_YEARS * 2)

/* By time; those at one instant in the order of their years, since the last of them counts. So
 * daylight saving all the year round, which ends when it begins, never ends. */
static void
rule_changes(const zone_rule *r, int64_t year, zone_change changes[RULE_CHANGES])
{
    for (size_t i = 0; i < RULE_CHANGES; i++) {
        bool        is_begin = i % 2 == 0;
        int64_t     y = year - RULE_YEARS / 2 + (int64_t)(i / 2);
        zone_change c = { rule_at(is_begin ? &r->begin : &r->end, y,
                                  is_begin ? r->std_s : r->dst_s),
                          is_begin ? r->dst_s : r->std_s };
        size_t      to = i;

        for (; to > 0 && changes[to - 1].at_s > c.at_s; to--)
            changes[to] = changes[to - 1];
        changes[to] = c;
    }
}

/* ---- looking --------------------------------------------------------------------------------- */

/* How many changes have happened at that second. */
static size_t
zone_count(const stet__zone *z, int64_t at_s)
{
    size_t low = 0, high = z->n_changes;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (z->changes[middle].at_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* `span` begins with the last change of the file; the rule goes on from there. */
static void
zone_span_by_rule(const stet__zone *z, int64_t at_s, stet__zone_span *span)
{
    zone_change changes[RULE_CHANGES];
    stet__date  date = stet__date_of(stet__floor_div(at_s, ZONE_DAY_S));
    int64_t     file_s = span->from_s;
    size_t      i = 0;

    if (z->n_changes == 0)
        span->offset_s = z->rule.std_s;
    if (!z->rule.has_dst)
        return;
    rule_changes(&z->rule, date.year, changes);
    /* The last ones, of the year after the next, lie ahead. */
    for (; changes[i].at_s <= at_s; i++)
        if (changes[i].at_s > file_s) {
            span->from_s = changes[i].at_s;
            span->offset_s = changes[i].offset_s;
        }
    assert(i < RULE_CHANGES);
    span->until_s = changes[i].at_s;
}

stet__zone_span
stet__zone_span_at(const stet__zone *zone, int64_t at_s)
{
    stet__zone_span span = { STET__ZONE_FIRST_S, STET__ZONE_LAST_S, 0 };
    size_t          n;

    assert(at_s >= STET__ZONE_FIRST_S && at_s < STET__ZONE_LAST_S);
    if (zone == NULL)
        return span;
    n = zone_count(zone, at_s);
    span.offset_s = zone->first_offset_s;
    if (n > 0) {
        span.from_s = zone->changes[n - 1].at_s;
        span.offset_s = zone->changes[n - 1].offset_s;
    }
    if (n < zone->n_changes)
        span.until_s = zone->changes[n].at_s;
    else if (zone->rule.is_there)
        zone_span_by_rule(zone, at_s, &span);
    return span;
}

/* ---- decoding -------------------------------------------------------------------------------- */

typedef struct zone_counts {
    uint32_t isut, isstd, leap, time, type, chars;
} zone_counts;

static uint32_t
zone_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static int64_t
zone_i64(const uint8_t *p)
{
    uint64_t v = (uint64_t)zone_u32(p) << 32 | zone_u32(p + 4);
    int64_t  out;

    memcpy(&out, &v, sizeof out);
    return out;
}

static int32_t
zone_i32(const uint8_t *p)
{
    uint32_t v = zone_u32(p);
    int32_t  out;

    memcpy(&out, &v, sizeof out);
    return out;
}

static int
zone_damaged(const char *name, const char *why)
{
    return stet__fail(STET_ECORRUPT, "time zone %s: its file %s; install tzdata anew", name, why);
}

/* A header at the front of *in, moved past. */
static bool
zone_head(stet_bytes *in, zone_counts *c, uint8_t *version)
{
    stet_bytes     raw;
    const uint8_t *p;

    if (!stet__read_bytes(in, ZONE_HEAD, &raw) || memcmp(raw.data, "TZif", 4) != 0)
        return false;
    p = raw.data;
    *version = p[4];
    c->isut = zone_u32(p + 20);
    c->isstd = zone_u32(p + 24);
    c->leap = zone_u32(p + 28);
    c->time = zone_u32(p + 32);
    c->type = zone_u32(p + 36);
    c->chars = zone_u32(p + 40);
    return true;
}

/* What follows a header, with times of so many bytes. No overflow: all counts have 32 bits. */
static uint64_t
zone_body_bytes(const zone_counts *c, uint64_t time_bytes)
{
    return c->time * (time_bytes + 1) + c->type * UINT64_C(6) + c->chars +
           c->leap * (time_bytes + 4) + c->isstd + c->isut;
}

static bool
zone_skip(stet_bytes *in, uint64_t bytes)
{
    stet_bytes skipped;

    if (bytes > in->len)
        return false;
    (void)stet__read_bytes(in, (size_t)bytes, &skipped);
    return true;
}

/* The changes, from times, the numbers of their types, and the types. */
static const char *
zone_read(stet__zone *z, const zone_counts *c, const uint8_t *times)
{
    const uint8_t *numbers = times + (size_t)c->time * 8, *types = numbers + c->time;

    for (size_t i = 0; i < c->type; i++) {
        int32_t offset_s = zone_i32(types + i * 6);

        if (offset_s < ZONE_OFFSET_MIN || offset_s > ZONE_OFFSET_MAX)
            return "has an offset of more than a day";
    }
    z->first_offset_s = zone_i32(types);
    for (size_t i = 0; i < c->time; i++) {
        zone_change *change = &z->changes[i];

        if (numbers[i] >= c->type)
            return "names a kind of time that it does not have";
        change->at_s = zone_i64(times + i * 8);
        change->offset_s = zone_i32(types + (size_t)numbers[i] * 6);
        if (change->at_s < -ZONE_AT_MAX || change->at_s > ZONE_AT_MAX)
            return "has a change out of all time";
        if (i > 0 && change->at_s <= z->changes[i - 1].at_s)
            return "has its changes in no order";
    }
    z->n_changes = c->time;
    return NULL;
}

/* The rule, between two line ends at the end of the file. */
static const char *
zone_read_rule(stet__zone *z, stet_bytes rest)
{
    const char *p = rest.data, *end;
    char        text[ZONE_RULE_MAX];
    size_t      len;

    if (rest.len < 2 || *p != '\n')
        return "ends before its rule";
    end = memchr(p + 1, '\n', rest.len - 1);
    if (end == NULL)
        return "ends within its rule";
    len = (size_t)(end - p) - 1;
    if (len >= sizeof text || memchr(p + 1, '\0', len) != NULL)
        return "has a rule that cannot be read";
    memcpy(text, p + 1, len);
    text[len] = '\0';
    return rule_parse(&z->rule, text) ? NULL : "has a rule that cannot be read";
}

int
stet__zone_decode(stet__zone **out, stet__alloc *alloc, const char *name, stet_bytes file)
{
    zone_counts    c;
    stet__zone    *z;
    const char    *why;
    const uint8_t *body;
    uint8_t        version;

    *out = NULL;
    if (!zone_head(&file, &c, &version))
        return zone_damaged(name, "is no time zone file");
    if (version < '2')
        return zone_damaged(name, "is of version 1, which ends in 2037");
    if (!zone_skip(&file, zone_body_bytes(&c, 4)) || !zone_head(&file, &c, &version))
        return zone_damaged(name, "ends too early");
    if (c.leap != 0)
        return stet__fail(STET_EINVAL,
                          "time zone %s counts leap seconds, which Unix time does not: use the one "
                          "of the same name without \"right/\"",
                          name);
    if (c.time > ZONE_CHANGES_MAX || c.type == 0 || c.type > ZONE_TYPES_MAX)
        return zone_damaged(name, "has none or too many of something");
    body = file.data;
    if (!zone_skip(&file, zone_body_bytes(&c, 8)))
        return zone_damaged(name, "ends too early");
    if ((z = stet__get0(alloc, sizeof *z + c.time * sizeof z->changes[0])) == NULL)
        return stet__fail(STET_ENOMEM, "time zone %s: out of memory", name);
    if ((why = zone_read(z, &c, body)) == NULL)
        why = zone_read_rule(z, file);
    if (why != NULL) {
        stet__zone_free(z, alloc);
        return zone_damaged(name, why);
    }
    *out = z;
    return STET_OK;
}

void
stet__zone_free(stet__zone *zone, stet__alloc *alloc)
{
    stet__free(alloc, zone);
}
