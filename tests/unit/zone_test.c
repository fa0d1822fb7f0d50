/* Time zones (E4): the calendar, the decoder of TZif files and what it refuses, the rule behind the
 * last change, names and near names. Offsets are compared with those of the C library, which
 * children ask, so that this process has no TZ. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#include "core/cron.h"
#include "platform/tzdata.h"
#include "util_fault.h"

/* ---- the calendar ---------------------------------------------------------------------------- */

TEST(zone_the_calendar_agrees_with_the_c_library)
{
    stet__date date;
    struct tm  tm;
    time_t     s;

    for (int64_t days = -800000; days < 3000000; days += 17) {
        s = (time_t)(days * 86400);
        CHECK(gmtime_r(&s, &tm) != NULL);
        date = stet__date_of(days);
        CHECK_INT(date.year, tm.tm_year + 1900);
        CHECK_INT(date.month, tm.tm_mon + 1);
        CHECK_INT(date.day, tm.tm_mday);
        CHECK_INT(stet__date_days(date), days);
        CHECK_INT(stet__date_weekday(days), tm.tm_wday);
    }
    CHECK_INT(stet__date_month_days(1900, 2), 28);
    CHECK_INT(stet__date_month_days(2000, 2), 29);
    CHECK_INT(stet__date_month_days(2023, 2), 28);
    CHECK_INT(stet__date_month_days(2024, 2), 29);
    CHECK_INT(stet__date_month_days(2024, 12), 31);
}

/* ---- files made by hand ---------------------------------------------------------------------- */

typedef struct tzif {
    uint8_t bytes[1024];
    size_t  len;
} tzif;

static void
tzif_add(tzif *t, const void *data, size_t len)
{
    CHECK(t->len + len <= sizeof t->bytes);
    memcpy(t->bytes + t->len, data, len);
    t->len += len;
}

static void
tzif_number(tzif *t, int64_t v, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        tzif_add(t, &(uint8_t){ (uint8_t)((uint64_t)v >> (8 * i)) }, 1);
}

static void
tzif_head(tzif *t, char version, int leap, int time, int type, int chars)
{
    tzif_add(t, "TZif", 4);
    tzif_add(t, &version, 1);
    tzif_add(t, (const uint8_t[15]){ 0 }, 15);
    tzif_number(t, 0, 4);
    tzif_number(t, 0, 4);
    tzif_number(t, leap, 4);
    tzif_number(t, time, 4);
    tzif_number(t, type, 4);
    tzif_number(t, chars, 4);
}

/* Two changes, at 1000 to an hour ahead and at 2000 back; before and behind them UTC. */
static tzif
tzif_make(const char *rule)
{
    tzif t = { .len = 0 };

    tzif_head(&t, '2', 0, 0, 0, 0);
    tzif_head(&t, '2', 0, 2, 2, 4);
    tzif_number(&t, 1000, 8);
    tzif_number(&t, 2000, 8);
    tzif_add(&t, "\1\0", 2);
    tzif_number(&t, 0, 4);
    tzif_add(&t, "\0\0", 2);
    tzif_number(&t, 3600, 4);
    tzif_add(&t, "\1\0", 2);
    tzif_add(&t, "AAA", 4);
    tzif_add(&t, "\n", 1);
    tzif_add(&t, rule, strlen(rule));
    tzif_add(&t, "\n", 1);
    return t;
}

#define TIMES (44 + 44)
#define TYPES (TIMES + 16 + 2)

/* A file without changes, which is all rule. */
static tzif
tzif_rule(const char *rule)
{
    tzif t = { .len = 0 };

    tzif_head(&t, '2', 0, 0, 0, 0);
    tzif_head(&t, '3', 0, 0, 1, 4);
    tzif_number(&t, 0, 4);
    tzif_add(&t, "\0\0", 2);
    tzif_add(&t, "AAA", 4);
    tzif_add(&t, "\n", 1);
    tzif_add(&t, rule, strlen(rule));
    tzif_add(&t, "\n", 1);
    return t;
}

static int
decode(stet__zone **zone, fault_alloc *alloc, const tzif *t)
{
    /* Exactly as long as it is, so that a sanitizer sees a read behind it. */
    uint8_t *exact = malloc(t->len > 0 ? t->len : 1);
    int      err;

    CHECK(exact != NULL);
    memcpy(exact, t->bytes, t->len);
    err = stet__zone_decode(zone, &alloc->base, "Test/Zone", (stet_bytes){ exact, t->len });
    free(exact);
    return err;
}

static void
check_damaged(const char *file, int line, const tzif *t, const char *why)
{
    fault_alloc alloc = fault_new(0);
    stet__zone *zone = (stet__zone *)&alloc;
    int         err = decode(&zone, &alloc, t);

    if (err != STET_ECORRUPT || zone != NULL || alloc.held != 0 ||
        strstr(stet_last_error(), why) == NULL)
        test_fail(file, line, "%d, \"%s\", which lacks \"%s\"", err, stet_last_error(), why);
}
#define CHECK_DAMAGED(t, why) check_damaged(__FILE__, __LINE__, t, why)

static void
check_span(const char *file, int line, const stet__zone *zone, int64_t at_s, int64_t from_s,
           int64_t until_s, int32_t offset_s)
{
    stet__zone_span span = stet__zone_span_at(zone, at_s);

    if (span.from_s != from_s || span.until_s != until_s || span.offset_s != offset_s)
        test_fail(file, line, "at %lld: %lld to %lld, %d", (long long)at_s, (long long)span.from_s,
                  (long long)span.until_s, (int)span.offset_s);
}
#define CHECK_SPAN(zone, at, from, until, offset)                                                  \
    check_span(__FILE__, __LINE__, zone, at, from, until, offset)
#define FIRST STET__ZONE_FIRST_S
#define LAST  STET__ZONE_LAST_S

TEST(E4_zone_a_file_is_decoded)
{
    fault_alloc alloc = fault_new(0);
    tzif        t = tzif_make("AAA0");
    stet__zone *zone = NULL;

    CHECK_OK(decode(&zone, &alloc, &t));
    CHECK_SPAN(zone, FIRST, FIRST, 1000, 0);
    CHECK_SPAN(zone, 999, FIRST, 1000, 0);
    CHECK_SPAN(zone, 1000, 1000, 2000, 3600);
    CHECK_SPAN(zone, 1999, 1000, 2000, 3600);
    CHECK_SPAN(zone, 2000, 2000, LAST, 0);
    CHECK_SPAN(zone, LAST - 1, 2000, LAST, 0);
    stet__zone_free(zone, &alloc.base);
    t = tzif_make("");
    CHECK_OK(decode(&zone, &alloc, &t));
    CHECK_SPAN(zone, 3000, 2000, LAST, 0);
    stet__zone_free(zone, &alloc.base);
    /* The rule takes over with its first change behind those of the file: 1970-03-29T01:00Z. */
    t = tzif_make("CET-1CEST,M3.5.0,M10.5.0/3");
    CHECK_OK(decode(&zone, &alloc, &t));
    CHECK_SPAN(zone, 3000, 2000, 7520400, 0);
    CHECK_SPAN(zone, 7520400, 7520400, 25664400, 7200);
    stet__zone_free(zone, &alloc.base);
    stet__zone_free(NULL, &alloc.base);
    CHECK_INT(alloc.held, 0);
    CHECK_SPAN(NULL, 0, FIRST, LAST, 0);
}

TEST(E4_zone_without_memory_says_so)
{
    fault_alloc alloc = fault_new(1);
    tzif        t = tzif_make("AAA0");
    stet__zone *zone = NULL;

    CHECK_CODE(decode(&zone, &alloc, &t), STET_ENOMEM);
    CHECK(zone == NULL);
}

TEST(E4_zone_a_file_that_ends_anywhere_is_refused)
{
    tzif whole = tzif_make("CET-1CEST,M3.5.0,M10.5.0/3"), t = whole;

    for (t.len = 0; t.len < whole.len; t.len++)
        CHECK_DAMAGED(&t, "time zone Test/Zone: its file ");
}

/* Whatever a byte becomes: refused, or a zone that answers within its own spans. */
TEST(E4_zone_a_file_with_any_byte_changed_is_refused_or_answers)
{
    tzif whole = tzif_make("CET-1CEST,M3.5.0,M10.5.0/3");

    for (size_t i = 0; i < whole.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            fault_alloc     alloc = fault_new(0);
            tzif            t = whole;
            stet__zone     *zone = NULL;
            stet__zone_span span;
            int64_t         at = -100000;

            t.bytes[i] = (uint8_t)(t.bytes[i] ^ 1u << bit);
            if (decode(&zone, &alloc, &t) == STET_OK)
                for (int n = 0; n < 20 && at < LAST; n++, at = span.until_s) {
                    span = stet__zone_span_at(zone, at);
                    CHECK(span.from_s <= at && at < span.until_s);
                }
            stet__zone_free(zone, &alloc.base);
            CHECK_INT(alloc.held, 0);
        }
}

TEST(E4_zone_damage_is_named)
{
    fault_alloc alloc = fault_new(0);
    stet__zone *zone = NULL;
    tzif        good = tzif_make("AAA0"), t = good;

    memcpy(t.bytes, "TZip", 4);
    CHECK_DAMAGED(&t, "is no time zone file");
    t = good;
    t.bytes[4] = 0;
    CHECK_DAMAGED(&t, "is of version 1");
    t = good;
    memcpy(t.bytes + 44, "TZip", 4);
    CHECK_DAMAGED(&t, "ends too early");
    t = good;
    memset(t.bytes + 20, 0xff, 24); /* counts of the first part */
    CHECK_DAMAGED(&t, "ends too early");
    t = good;
    memset(t.bytes + 44 + 20, 0xff, 4); /* isut of the second */
    CHECK_DAMAGED(&t, "ends too early");
    t = good;
    t.bytes[44 + 34] = 8; /* 2050 changes */
    CHECK_DAMAGED(&t, "none or too many");
    t = good;
    t.bytes[44 + 39] = 0; /* no type */
    CHECK_DAMAGED(&t, "none or too many");
    t = good;
    t.bytes[44 + 38] = 1; /* 258 types */
    CHECK_DAMAGED(&t, "none or too many");
    t = good;
    t.bytes[TIMES + 16] = 2;
    CHECK_DAMAGED(&t, "a kind of time that it does not have");
    t = good;
    memcpy(t.bytes + TIMES + 8, t.bytes + TIMES, 8);
    CHECK_DAMAGED(&t, "in no order");
    t = good;
    t.bytes[TIMES] = 0x80;
    CHECK_DAMAGED(&t, "out of all time");
    t = good;
    t.bytes[TIMES + 8] = 0x70;
    CHECK_DAMAGED(&t, "out of all time");
    t = good;
    t.bytes[TYPES] = 0x7f;
    CHECK_DAMAGED(&t, "more than a day");
    t = good;
    t.bytes[TYPES + 6] = 0x80;
    CHECK_DAMAGED(&t, "more than a day");
    t = good;
    t.bytes[t.len - 6] = 'x'; /* where the rule begins */
    CHECK_DAMAGED(&t, "ends before its rule");
    t = good;
    t.bytes[44 + 31] = 1;
    CHECK_CODE(decode(&zone, &alloc, &t), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "counts leap seconds");
    CHECK(zone == NULL);
}

/* ---- the rule -------------------------------------------------------------------------------- */

TEST(E4_zone_rules_that_cannot_be_read_are_refused)
{
    static const char *const bad[] = {
        "A0",
        "AA{0",
        "AA1",
        "<AA",
        "<+05",
        "<+0>5",
        "<+05",
        "AAA",
        "AAAx",
        "AAA25",
        "AAA1:",
        "AAA1:60",
        "AAA1:00:",
        "AAA1:00:60",
        "AAA-",
        "AAA0BB",
        "AAA0BBB",
        "AAA0BBBx",
        "AAA0BBB25,J1,J2",
        "AAA0BBB,",
        "AAA0BBB,J0,J2",
        "AAA0BBB,J366,J2",
        "AAA0BBB,366,5",
        "AAA0BBB,J1",
        "AAA0BBB,J1,",
        "AAA0BBB,J1,J2x",
        "AAA0BBB,J1/,J2",
        "AAA0BBB,J1/168,J2",
        "AAA0BBB,M0.1.0,J2",
        "AAA0BBB,M13.1.0,J2",
        "AAA0BBB,M1,J2",
        "AAA0BBB,M1.0.0,J2",
        "AAA0BBB,M1.6.0,J2",
        "AAA0BBB,M1.1,J2",
        "AAA0BBB,M1.1.7,J2",
        "AAA0BBB,M1.1.0J2",
    };
    char long_name[200];
    tzif t;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t = tzif_rule(bad[i]);
        CHECK_DAMAGED(&t, "has a rule that cannot be read");
    }
    memset(long_name, 'A', sizeof long_name);
    memcpy(long_name + sizeof long_name - 2, "0", 2);
    t = tzif_rule(long_name);
    CHECK_DAMAGED(&t, "has a rule that cannot be read");
    t = tzif_rule("AAA0");
    t.bytes[t.len - 3] = '\0';
    CHECK_DAMAGED(&t, "has a rule that cannot be read");
    t = tzif_rule("AAA0");
    t.bytes[t.len - 1] = 'x';
    CHECK_DAMAGED(&t, "ends within its rule");
}

/* ---- the C library's view -------------------------------------------------------------------- */

#define PROBES 40000

/* Offsets at `n` instants `step_s` apart, of the C library with that TZ, asked in a child. */
static const int32_t *
libc_offsets(const char *tz, int64_t from_s, int64_t step_s, size_t n)
{
    static int32_t *shared;
    pid_t           pid;
    int             status = 0;

    CHECK(n <= PROBES);
    if (shared == NULL)
        shared = mmap(NULL, PROBES * sizeof *shared, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setenv("TZ", tz, 1);
        tzset();
        for (size_t i = 0; i < n; i++) {
            time_t    at = (time_t)(from_s + (int64_t)i * step_s);
            struct tm tm;

            if (localtime_r(&at, &tm) == NULL)
                _exit(1);
            shared[i] = (int32_t)tm.tm_gmtoff;
        }
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    return shared;
}

static void
check_offsets(const stet__zone *zone, const char *tz, int64_t from_s, int64_t step_s, size_t n)
{
    const int32_t *want = libc_offsets(tz, from_s, step_s, n);

    for (size_t i = 0; i < n; i++) {
        int64_t         at = from_s + (int64_t)i * step_s;
        stet__zone_span span = stet__zone_span_at(zone, at);

        if (span.offset_s != want[i] || span.from_s > at || span.until_s <= at)
            test_fail(__FILE__, __LINE__, "%s at %lld: %d, expected %d", tz, (long long)at,
                      (int)span.offset_s, (int)want[i]);
    }
}

TEST(E4_zone_rules_agree_with_the_c_library)
{
    static const char *const rules[] = {
        "AAA0",
        "AAA-1",
        "<+0545>-5:45",
        "<-03>3",
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "EST5EDT,M3.2.0,M11.1.0",
        "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
        "IST-1GMT0,M10.5.0,M3.5.0/1",
        "AAA3BBB2,J60/0,J300/24:00:01",
        "AAA3BBB,59/1:30,364",
        "AAA3BBB,J59,J60",
        "AAA+2BBB+1:00:30,M2.4.6/-1,M9.5.4/-25",
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        fault_alloc alloc = fault_new(0);
        tzif        t = tzif_rule(rules[i]);
        stet__zone *zone = NULL;

        CHECK_OK(decode(&zone, &alloc, &t));
        check_offsets(zone, rules[i], INT64_C(4102444800), 26 * 3600 + 1801, PROBES);
        stet__zone_free(zone, &alloc.base);
    }
}

TEST(E4_zone_daylight_saving_all_the_year_round_never_ends)
{
    fault_alloc alloc = fault_new(0);
    tzif        t = tzif_rule("XXX3EDT4,0/0,J365/23");
    stet__zone *zone = NULL;

    CHECK_OK(decode(&zone, &alloc, &t));
    for (int64_t at = 0; at < INT64_C(400000000); at += 3599)
        CHECK_INT(stet__zone_span_at(zone, at).offset_s, -4 * 3600);
    stet__zone_free(zone, &alloc.base);
}

static stet__zone *
zone_of(stet__alloc *alloc, const char *name)
{
    stet__zone *zone = NULL;
    stet__buf   file;

    stet__buf_init(&file, alloc);
    CHECK_OK(stet__tzdata_read(&file, name));
    CHECK_OK(stet__zone_decode(&zone, alloc, name, stet__buf_bytes(&file)));
    stet__buf_free(&file);
    return zone;
}

TEST(E4_zone_files_agree_with_the_c_library)
{
    static const char *const names[] = {
        "Europe/Berlin",      "America/New_York",  "Australia/Lord_Howe",
        "Asia/Kathmandu",     "Africa/Casablanca", "Pacific/Apia",
        "America/Sao_Paulo",  "Europe/Dublin",     "Asia/Tehran",
        "Asia/Gaza",          "Antarctica/Troll",  "America/Nuuk",
        "Pacific/Kiritimati", "Etc/GMT+12",        "EST5EDT",
        "Asia/Manila",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fault_alloc alloc = fault_new(0);
        stet__zone *zone = zone_of(&alloc.base, names[i]);

        /* 1880 to 2150. */
        check_offsets(zone, names[i], INT64_C(-2840140800), 213000 + 601, PROBES);
        stet__zone_free(zone, &alloc.base);
        CHECK_INT(alloc.held, 0);
    }
}

/* ---- cron among shifts ----------------------------------------------------------------------- */

static void
check_fires(const char *file, int line, const stet__zone *zone, const char *text, int64_t after_s,
            int64_t want_s, stet_cron_mark mark)
{
    stet__cron     cron;
    stet_cron_time t;

    CHECK_OK(stet__cron_parse(&cron, text));
    stet__cron_next(&cron, zone, after_s, &t);
    if (t.at_ms != want_s * 1000 || t.mark != mark)
        test_fail(file, line, "\"%s\" after %lld: %lld, mark %d", text, (long long)after_s,
                  (long long)t.at_ms / 1000, (int)t.mark);
}
#define CHECK_FIRES(text, after, want, mark)                                                       \
    check_fires(__FILE__, __LINE__, zone, text, after, want, STET_CRON_##mark)

/* Clocks go back at 600 s, from 01:10 to 00:10, and forward at 1800 s, from 00:30 to 01:30. What
 * was shown before the first shift is not new after it, and not jumped over by the second. */
TEST(E4_zone_cron_among_shifts_that_are_close)
{
    fault_alloc alloc = fault_new(0);
    stet__zone *zone = NULL;
    tzif        t = { .len = 0 };

    tzif_head(&t, '2', 0, 0, 0, 0);
    tzif_head(&t, '2', 0, 2, 2, 4);
    tzif_number(&t, 600, 8);
    tzif_number(&t, 1800, 8);
    tzif_add(&t, "\1\0", 2);
    tzif_number(&t, 3600, 4);
    tzif_add(&t, "\0\0", 2);
    tzif_number(&t, 0, 4);
    tzif_add(&t, "\0\0AAA\0\n\n", 8);
    CHECK_OK(decode(&zone, &alloc, &t));
    CHECK_FIRES("15 0 * * *", -3600, -2700, FIRST);
    CHECK_FIRES("15 0 * * *", -2700, 86400 - 2700, PLAIN);
    CHECK_FIRES("20 0 * * *", 700, 86400 - 2400, PLAIN);
    CHECK_FIRES("5 1 * * *", 0, 300, PLAIN);
    CHECK_FIRES("5 1 * * *", 300, 86400 + 300, PLAIN);
    CHECK_FIRES("20 1 * * *", 300, 1800, MOVED);
    CHECK_FIRES("20 1 * * *", 1799, 1800, MOVED);
    CHECK_FIRES("20 1 * * *", 1800, 86400 + 1200, PLAIN);
    CHECK_FIRES("5,20,30 1 * * *", 300, 1800, MOVED);
    CHECK_FIRES("30 1 * * *", 300, 1800, PLAIN);
    CHECK_FIRES("15 * * * *", -3600, -2700, FIRST);
    CHECK_FIRES("15 * * * *", -2700, 900, SECOND);
    CHECK_FIRES("15 * * * *", 900, 4500, PLAIN);
    stet__zone_free(zone, &alloc.base);
    /* The other way round: forward at 1000 s from 00:16:40, back at 2000 s from 01:33:20. */
    t = tzif_make("AAA0");
    CHECK_OK(decode(&zone, &alloc, &t));
    CHECK_FIRES("20 0,1 * * *", 0, 1000, MOVED);
    CHECK_FIRES("20 0,1 * * *", 1000, 1200, FIRST);
    CHECK_FIRES("20 0,1 * * *", 1200, 86400 + 1200, PLAIN);
    CHECK_FIRES("20 0,1 * * *", 2500, 86400 + 1200, PLAIN);
    CHECK_FIRES("40 1 * * *", 2500, 6000, PLAIN);
    CHECK_FIRES("20 * * * *", 2500, 4800, SECOND);
    stet__zone_free(zone, &alloc.base);
    CHECK_INT(alloc.held, 0);
}

/* ---- names ----------------------------------------------------------------------------------- */

TEST(E4_zone_names_that_are_none_are_refused)
{
    static const char *const bad[] = {
        "/etc/passwd",    "../../etc/passwd",
        "Europe/../UTC",  "Europe//Berlin",
        "Europe/",        ".",
        "Europe/Ber lin", "Europe/Berlin\n",
        "tzdata.zi",      "Berl\xc3\xadn",
        "a/////b",        "Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    stet_cron *cron = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_CODE(stet_cron_parse(&cron, "@daily", bad[i]), STET_EINVAL);
        CHECK_HAS(stet_last_error(), "is no name of a time zone");
        CHECK(cron == NULL);
    }
}

TEST(E4_zone_unknown_names_are_refused_with_those_that_are_near)
{
    static const struct {
        const char *typed, *meant;
    } cases[] = {
        { "Europe/Berln", "did you mean Europe/Berlin?" },
        { "europe/berlin", "did you mean Europe/Berlin" },
        { "Berlin", "Europe/Berlin" },
        { "Amercia/New_York", "did you mean America/New_York" },
        { "new_york", "did you mean America/New_York" },
        { "Kathmandu", "did you mean Asia/Kathmandu" },
        { "Salta", "America/Argentina/Salta" },
        { "Europe", "Europe" },
        { "Europe/Berlin/Mitte", "there is no time zone" },
        { "Xyzzyqwv/Plugh", "names are like Europe/Berlin" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_CODE(stet_cron_parse(NULL, "@daily", cases[i].typed), STET_ENOTFOUND);
        CHECK_HAS(stet_last_error(), cases[i].meant);
    }
}

static void
file_write(const char *name, const void *bytes, size_t len)
{
    FILE *file = fopen(test_path(name), "wb");

    CHECK(file != NULL);
    CHECK_INT(fwrite(bytes, 1, len, file), len);
    CHECK_INT(fclose(file), 0);
}

TEST(E4_zone_the_database_is_where_tzdir_says)
{
    tzif       good = tzif_rule("AAA-2"), bad = good;
    char       big[70000] = "TZif2";
    stet_cron *cron = NULL;
    int64_t    next = 0;

    bad.len -= 3;
    CHECK_INT(setenv("TZDIR", test_dir(), 1), 0);
    file_write("Good", good.bytes, good.len);
    file_write("Good2", good.bytes, good.len);
    file_write("Bad", bad.bytes, bad.len);
    file_write("Big", big, sizeof big);
    CHECK_INT(mkdir(test_path("Folder"), 0700), 0);
    CHECK_OK(stet_cron_parse(&cron, "0 12 * * *", "Good"));
    CHECK_OK(stet_cron_next(cron, &next, 0));
    CHECK_INT(next, 10 * 3600 * 1000);
    stet_cron_free(cron);
    CHECK_CODE(stet_cron_parse(&cron, "@daily", "Bad"), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "time zone Bad: its file");
    CHECK_CODE(stet_cron_parse(&cron, "@daily", "Big"), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "too large");
    CHECK_CODE(stet_cron_parse(&cron, "@daily", "Goof"), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "did you mean Good or Good2?");
    file_write("Good1", good.bytes, good.len);
    file_write("Good3", good.bytes, good.len);
    CHECK_CODE(stet_cron_parse(&cron, "@daily", "Goof"), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "did you mean Good, Good1 or Good2?");
    CHECK_CODE(stet_cron_parse(&cron, "@daily", "Folder"), STET_ENOTFOUND);
    CHECK_INT(mkfifo(test_path("Pipe"), 0600), 0);
    CHECK_CODE(stet_cron_parse(&cron, "@daily", "Pipe"), STET_ENOTFOUND);
    CHECK_INT(symlink("Loop", test_path("Loop")), 0);
    CHECK_CODE(stet_cron_parse(&cron, "@daily", "Loop"), STET_EIO);
    CHECK_HAS(stet_last_error(), "cannot be opened");
    CHECK_INT(setenv("TZDIR", "", 1), 0);
    CHECK_OK(stet_cron_parse(NULL, "@daily", "Europe/Berlin"));
}

TEST(E4_zone_utc_needs_no_database)
{
    char long_dir[5000];

    CHECK_INT(setenv("TZDIR", test_path("nothing"), 1), 0);
    CHECK_OK(stet_cron_parse(NULL, "@daily", NULL));
    CHECK_OK(stet_cron_parse(NULL, "@daily", ""));
    CHECK_OK(stet_cron_parse(NULL, "@daily", "UTC"));
    CHECK_OK(stet_cron_parse(NULL, "@daily", "Etc/UTC"));
    CHECK_CODE(stet_cron_parse(NULL, "@daily", "Europe/Berlin"), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "there is no tz database in");
    memset(long_dir, 'x', sizeof long_dir);
    long_dir[sizeof long_dir - 1] = '\0';
    CHECK_INT(setenv("TZDIR", long_dir, 1), 0);
    CHECK_CODE(stet_cron_parse(NULL, "@daily", "Europe/Berlin"), STET_EIO);
    CHECK_HAS(stet_last_error(), "TZDIR is too long");
}
