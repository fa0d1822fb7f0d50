/* The next time, compared with a second implementation over ten years (E1, E4).
 *
 * The other one shares nothing with src/core: it looks a field's text up with sscanf, value by
 * value; local times come from the C library's localtime_r, in a child that has TZ set; and it
 * walks from minute to minute. Only a quarter of an hour in which neither the hour nor the day of
 * the clock can match is passed over at once, or a thousand expressions would take minutes.
 * Expressions are drawn from a fixed seed.
 */
#include <strings.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#include "platform/platform.h"
#include "test.h"
#include "util/util.h"

#define YEARS     10
#define QUARTER_S 900
#define QUARTERS  ((size_t)(YEARS * 366 * 96))

/* ---- the other matcher ----------------------------------------------------------------------- */

static const char *const months[] = { "jan", "feb", "mar", "apr", "may", "jun",
                                      "jul", "aug", "sep", "oct", "nov", "dec" };
static const char *const weekdays[] = { "sun", "mon", "tue", "wed", "thu", "fri", "sat" };

static int
number_of(const char *word)
{
    for (int i = 0; i < 12; i++)
        if (strcasecmp(word, months[i]) == 0)
            return i + 1;
    for (int i = 0; i < 7; i++)
        if (strcasecmp(word, weekdays[i]) == 0)
            return i;
    return (int)strtol(word, NULL, 10);
}

/* Is this value in the field? `least` is the first value of the star. */
static bool
field_has(const char *field, int value, int least)
{
    char copy[512], low[16], high[16], *part, *rest = NULL;
    int  step;

    snprintf(copy, sizeof copy, "%s", field);
    for (part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        step = 1;
        if (*part == '*') {
            if (sscanf(part, "*/%d", &step) < 1)
                return true;
            if ((value - least) % step == 0)
                return true;
        } else if (sscanf(part, "%15[A-Za-z0-9]-%15[A-Za-z0-9]/%d", low, high, &step) >= 2) {
            if (value >= number_of(low) && value <= number_of(high) &&
                (value - number_of(low)) % step == 0)
                return true;
        } else if (value == number_of(part)) {
            return true;
        }
    }
    return false;
}

typedef struct other {
    bool minute[60], hour[24], day[32], month[13], weekday[7];
    bool is_either, is_every_hour;
} other;

static void
other_parse(other *o, const char *text)
{
    char f[5][512];

    CHECK_INT(sscanf(text, "%511s %511s %511s %511s %511s", f[0], f[1], f[2], f[3], f[4]), 5);
    o->is_every_hour = true;
    for (int i = 0; i < 60; i++)
        o->minute[i] = field_has(f[0], i, 0);
    for (int i = 0; i < 24; i++) {
        o->hour[i] = field_has(f[1], i, 0);
        o->is_every_hour = o->is_every_hour && o->hour[i];
    }
    for (int i = 1; i <= 31; i++)
        o->day[i] = field_has(f[2], i, 1);
    for (int i = 1; i <= 12; i++)
        o->month[i] = field_has(f[3], i, 1);
    for (int i = 0; i < 7; i++)
        o->weekday[i] = field_has(f[4], i, 0) || (i == 0 && *f[4] != '*' && field_has(f[4], 7, 0));
    o->is_either = *f[2] != '*' && *f[4] != '*';
}

/* ---- the clock of a zone --------------------------------------------------------------------- */

/* What the clock shows at the beginning of a quarter of an hour of UTC. */
typedef struct shown {
    int32_t minute; /* local, since 1970 */
    uint8_t month, day, weekday, hour;
} shown;

typedef struct place {
    const char *zone;
    int         from_year;
    int         expressions;
} place;

static void
fill_clock(shown *clock, const char *zone, int64_t from_s)
{
    struct tm tm;

    setenv("TZ", zone, 1);
    tzset();
    for (size_t i = 0; i < QUARTERS; i++) {
        time_t at = (time_t)(from_s + (int64_t)i * QUARTER_S);

        if (localtime_r(&at, &tm) == NULL || tm.tm_sec != 0)
            _exit(1);
        clock[i].month = (uint8_t)(tm.tm_mon + 1);
        clock[i].day = (uint8_t)tm.tm_mday;
        clock[i].weekday = (uint8_t)tm.tm_wday;
        clock[i].hour = (uint8_t)tm.tm_hour;
        clock[i].minute = (int32_t)(timegm(&tm) / 60);
        /* Clocks are set between quarters only, and hours begin with one. */
        at += QUARTER_S - 60;
        if (tm.tm_min % 15 != 0 || localtime_r(&at, &tm) == NULL ||
            (int32_t)(timegm(&tm) / 60) != clock[i].minute + 14)
            _exit(2);
    }
    _exit(0);
}

static const shown *
clock_of(const char *zone, int64_t from_s)
{
    shown *clock = mmap(NULL, QUARTERS * sizeof *clock, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int    status = 0;
    pid_t  pid;

    CHECK(clock != MAP_FAILED);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        fill_clock(clock, zone, from_s);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    return clock;
}

/* Does a local minute match that the clock does not show? */
static bool
other_has(const other *o, int64_t local_minute)
{
    time_t    s = (time_t)(local_minute * 60);
    struct tm tm;
    bool      is_day, is_weekday;

    CHECK(gmtime_r(&s, &tm) != NULL);
    is_day = o->day[tm.tm_mday];
    is_weekday = o->weekday[tm.tm_wday];
    return o->minute[tm.tm_min] && o->hour[tm.tm_hour] && o->month[tm.tm_mon + 1] &&
           (o->is_either ? is_day || is_weekday : is_day && is_weekday);
}

static bool
other_may(const other *o, const shown *q)
{
    return o->hour[q->hour] && o->month[q->month] &&
           (o->is_either ? o->day[q->day] || o->weekday[q->weekday]
                         : o->day[q->day] && o->weekday[q->weekday]);
}

/* ---- the walk -------------------------------------------------------------------------------- */

typedef struct walk {
    const char *text, *zone;
    stet_cron  *cron;
    stet__rng   rng;
    int64_t     last_ms; /* fired, or the beginning */
    uint64_t    fired, asked;
} walk;

/* All of the first thousands, then one in a hundred; the one behind a shift always. Asked for from
 * any time since the last firing. */
static void
walk_fire(walk *w, int64_t at_ms, bool is_behind_shift)
{
    int64_t from = w->last_ms, got = 0;

    w->fired++;
    if (w->fired < 3000 || w->fired % 101 == 0 || is_behind_shift) {
        w->asked++;
        if (w->fired % 2 == 0)
            from += (int64_t)(stet__rng_next(&w->rng) % (uint64_t)(at_ms - from));
        CHECK_OK(stet_cron_next(w->cron, &got, from));
        if (got != at_ms)
            test_fail(__FILE__, __LINE__, "\"%s\" in %s after %lld: %lld, expected %lld", w->text,
                      w->zone, (long long)from, (long long)got, (long long)at_ms);
    }
    w->last_ms = at_ms;
}

static void
walk_all(walk *w, const other *o, const shown *clock, int64_t from_s)
{
    int64_t top = clock[0].minute; /* the first local minute that was not reached yet */
    int     shift = 0;             /* quarters since then, up to two days */

    for (size_t i = 0; i < QUARTERS; i++) {
        const shown *q = &clock[i];
        bool         is_jump = i > 0 && q->minute != clock[i - 1].minute + 15, may;

        shift = is_jump ? 200 : shift > 0 ? shift - 1 : 0;
        if (!is_jump && !other_may(o, q) && q->minute >= top) {
            top = q->minute + 15;
            continue;
        }
        may = other_may(o, q);
        for (int m = 0; m < 15; m++) {
            int64_t local = q->minute + m;
            bool    fires = may && o->minute[local % 60];

            if (!o->is_every_hour) {
                fires = fires && top <= local;
                for (; top < local; top++)
                    fires = fires || other_has(o, top); /* jumped over */
                top = local + 1 > top ? local + 1 : top;
            }
            if (fires)
                walk_fire(w, (from_s + (int64_t)i * QUARTER_S + m * 60) * 1000, shift > 0);
        }
        if (o->is_every_hour && q->minute + 15 > top)
            top = q->minute + 15;
    }
}

/* ---- drawing expressions --------------------------------------------------------------------- */

static uint32_t
draw(stet__rng *rng, uint32_t below)
{
    return (uint32_t)(stet__rng_next(rng) % below);
}

static void
draw_value(stet__rng *rng, stet__buf *b, int field, uint32_t value)
{
    char name[8];

    snprintf(name, sizeof name, "%s", field == 3 ? months[value - 1] : weekdays[value % 7]);
    if (field < 3 || draw(rng, 2) == 0 || (field == 4 && value == 7)) {
        stet__buf_printf(b, "%u", value);
        return;
    }
    if (draw(rng, 2) == 0)
        for (char *p = name; *p != '\0'; p++)
            *p = (char)(*p - 'a' + 'A');
    stet__buf_str(b, name);
}

static void
draw_part(stet__rng *rng, stet__buf *b, int field)
{
    static const uint32_t least[] = { 0, 0, 1, 1, 0 }, most[] = { 59, 23, 31, 12, 7 };
    uint32_t              size = most[field] - least[field] + 1;
    uint32_t              low = least[field] + draw(rng, size), high, kind = draw(rng, 10);

    if (kind == 0 || (kind == 1 && field > 0)) {
        stet__buf_printf(b, "*/%u", 1 + draw(rng, most[field]));
    } else if (kind < 5) {
        high = low + draw(rng, most[field] - low + 1);
        draw_value(rng, b, field, low);
        stet__buf_str(b, "-");
        draw_value(rng, b, field, high);
        if (draw(rng, 2) == 0)
            stet__buf_printf(b, "/%u", 1 + draw(rng, most[field]));
    } else {
        draw_value(rng, b, field, low);
    }
}

/* Hours are near the night, where clocks are set, in half of those that name one. */
static void
draw_expression(stet__rng *rng, stet__buf *b)
{
    static const uint32_t star_percent[] = { 4, 25, 50, 60, 50 };

    for (int field = 0; field < 5; field++) {
        if (field > 0)
            stet__buf_str(b, " ");
        if (draw(rng, 100) < star_percent[field]) {
            stet__buf_str(b, "*");
        } else if (field == 1 && draw(rng, 2) == 0) {
            stet__buf_printf(b, "%u", draw(rng, 4));
        } else {
            draw_part(rng, b, field);
            while (draw(rng, 4) == 0) {
                stet__buf_str(b, ",");
                draw_part(rng, b, field);
            }
        }
    }
}

/* Those that never fire are drawn anew; that they are is counted by the caller. */
static stet_cron *
draw_cron(stet__rng *rng, stet__buf *text, const char *zone, int *refused)
{
    stet_cron *cron = NULL;

    for (;;) {
        stet__buf_cut(text, 0);
        draw_expression(rng, text);
        if (stet_cron_parse(&cron, stet__buf_cstr(text), zone) == STET_OK)
            return cron;
        if (strstr(stet_last_error(), "it never fires") == NULL)
            test_fail(__FILE__, __LINE__, "%s", stet_last_error());
        (*refused)++;
    }
}

static void
compare_one(const place *p, const shown *clock, int64_t from_s, stet__rng *rng, uint64_t *fired,
            uint64_t *asked)
{
    stet__buf text;
    walk      w = { .zone = p->zone, .last_ms = from_s * 1000 - 1 };
    other     o;
    int       refused = 0;
    int64_t   got = 0, end_ms = (from_s + (int64_t)QUARTERS * QUARTER_S) * 1000;

    stet__buf_init(&text, &stet__platform_real()->alloc);
    w.cron = draw_cron(rng, &text, p->zone, &refused);
    w.text = stet__buf_cstr(&text);
    stet__rng_seed(&w.rng, stet__rng_next(rng));
    other_parse(&o, w.text);
    walk_all(&w, &o, clock, from_s);
    CHECK_OK(stet_cron_next(w.cron, &got, w.last_ms));
    if (got < end_ms)
        test_fail(__FILE__, __LINE__, "\"%s\" in %s after %lld: %lld, expected none", w.text,
                  w.zone, (long long)w.last_ms, (long long)got);
    *fired += w.fired;
    *asked += w.asked;
    stet_cron_free(w.cron);
    stet__buf_free(&text);
}

static void
compare(const place *places, size_t n, uint64_t seed)
{
    uint64_t fired = 0, asked = 0;
    int      expressions = 0;

    for (size_t i = 0; i < n; i++) {
        struct tm    tm = { .tm_year = places[i].from_year - 1900, .tm_mday = 1 };
        int64_t      from_s = (int64_t)timegm(&tm);
        const shown *clock = clock_of(places[i].zone, from_s);
        stet__rng    rng;

        stet__rng_seed(&rng, seed + i);
        for (int k = 0; k < places[i].expressions; k++, expressions++)
            compare_one(&places[i], clock, from_s, &rng, &fired, &asked);
        CHECK_INT(munmap((void *)(uintptr_t)clock, QUARTERS * sizeof *clock), 0);
    }
    test_note("%d expressions, %llu firings, %llu of them asked for", expressions,
              (unsigned long long)fired, (unsigned long long)asked);
}

TEST(E1_cron_agrees_with_another_implementation_over_ten_years)
{
    static const place places[] = { { "UTC", 2020, 500 }, { "UTC", 2095, 100 } };

    compare(places, sizeof places / sizeof *places, 20261116);
}

TEST(E4_cron_agrees_with_another_implementation_over_ten_years_in_zones)
{
    static const place places[] = {
        { "Europe/Berlin", 2020, 80 },     { "Europe/Berlin", 2035, 40 },
        { "America/New_York", 2020, 80 },  { "Australia/Lord_Howe", 2020, 80 },
        { "Asia/Kathmandu", 2020, 40 },    { "Africa/Casablanca", 2018, 80 },
        { "America/Sao_Paulo", 2010, 80 }, { "Pacific/Apia", 2005, 80 },
        { "Antarctica/Troll", 2020, 40 },  { "America/St_Johns", 2012, 40 },
        { "Asia/Tehran", 2015, 40 },       { "Africa/Cairo", 2008, 40 },
    };

    compare(places, sizeof places / sizeof *places, 7);
}
