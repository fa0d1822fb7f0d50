/* Cron expressions: what is accepted and refused (E1), when they fire in a zone with daylight
 * saving (E4), and the public functions (E5). cron_compare_test.c walks ten years. */
#include <time.h>

#include <stet.h>

#include "core/cron.h"
#include "test.h"

/* ---- texts ----------------------------------------------------------------------------------- */

/* "2026-03-29T01:00:00Z" as milliseconds */
static int64_t
ms_of(const char *text)
{
    struct tm tm = { 0 };

    CHECK_INT(sscanf(text, "%d-%d-%dT%d:%d:%dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                     &tm.tm_min, &tm.tm_sec),
              6);
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (int64_t)timegm(&tm) * 1000;
}

static const char *
text_of(int64_t ms)
{
    static char text[4][40];
    static int  turn;
    char       *out = text[turn++ % 4];
    time_t      s = (time_t)(ms / 1000);
    struct tm   tm;

    CHECK(gmtime_r(&s, &tm) != NULL);
    CHECK(strftime(out, 40, "%Y-%m-%dT%H:%M:%SZ", &tm) > 0);
    return out;
}

static stet_cron *
parsed(const char *expression, const char *zone)
{
    stet_cron *cron = NULL;

    CHECK_OK(stet_cron_parse(&cron, expression, zone));
    CHECK(cron != NULL);
    return cron;
}

static const char *
next_of(const char *expression, const char *zone, const char *after)
{
    stet_cron *cron = parsed(expression, zone);
    int64_t    ms = -1;

    CHECK_OK(stet_cron_next(cron, &ms, ms_of(after)));
    stet_cron_free(cron);
    return text_of(ms);
}

/* The firings after a time, one behind another, are these; `want` is ended by NULL. */
static void
check_row(const char *file, int line, const char *expression, const char *zone, const char *after,
          const char *const *want)
{
    stet_cron *cron = parsed(expression, zone);
    int64_t    ms = ms_of(after), next = 0;

    for (; *want != NULL; want++, ms = next) {
        CHECK_OK(stet_cron_next(cron, &next, ms));
        if (next != ms_of(*want))
            test_fail(file, line, "\"%s\" in %s after %s fires at %s, expected %s", expression,
                      zone, text_of(ms), text_of(next), *want);
    }
    stet_cron_free(cron);
}
#define CHECK_ROW(expression, zone, after, ...)                                                    \
    check_row(__FILE__, __LINE__, expression, zone, after,                                         \
              (const char *const[]){ __VA_ARGS__, NULL })

static void
check_refused(const char *file, int line, const char *expression, const char *why)
{
    stet_cron *cron = (stet_cron *)&cron;
    int        err = stet_cron_parse(&cron, expression, NULL);

    if (err != STET_EINVAL || cron != NULL || strstr(stet_last_error(), why) == NULL)
        test_fail(file, line, "\"%s\": %d \"%s\", which lacks \"%s\"", expression, err,
                  stet_last_error(), why);
}
#define CHECK_REFUSED(expression, why) check_refused(__FILE__, __LINE__, expression, why)

/* Two expressions mean the same. */
static void
check_same(const char *file, int line, const char *a, const char *b)
{
    stet__cron x, y;

    memset(&x, 0, sizeof x);
    memset(&y, 0, sizeof y);
    CHECK_OK(stet__cron_parse(&x, a));
    CHECK_OK(stet__cron_parse(&y, b));
    if (x.minutes != y.minutes || x.hours != y.hours || x.days != y.days || x.months != y.months ||
        x.weekdays != y.weekdays || x.is_either_day != y.is_either_day)
        test_fail(file, line, "\"%s\" and \"%s\" differ", a, b);
}
#define CHECK_SAME(a, b) check_same(__FILE__, __LINE__, a, b)

/* ---- E1: what is accepted -------------------------------------------------------------------- */

TEST(E1_cron_fields_lists_ranges_and_steps)
{
    stet__cron c;

    CHECK_OK(stet__cron_parse(&c, "*/15 9-17/4 1,15,20-22 2,6-8 1-5"));
    CHECK(c.minutes == (UINT64_C(1) | UINT64_C(1) << 15 | UINT64_C(1) << 30 | UINT64_C(1) << 45));
    CHECK(c.hours == (1u << 9 | 1u << 13 | 1u << 17));
    CHECK(c.days == (1u << 1 | 1u << 15 | 1u << 20 | 1u << 21 | 1u << 22));
    CHECK(c.months == (1u << 2 | 1u << 6 | 1u << 7 | 1u << 8));
    CHECK(c.weekdays == 0x3e);
    CHECK(c.is_either_day);
    CHECK_OK(stet__cron_parse(&c, "* * * * *"));
    CHECK(c.minutes == (UINT64_C(1) << 60) - 1);
    CHECK(c.hours == 0xffffff);
    CHECK(c.days == 0xfffffffe);
    CHECK(c.months == 0x1ffe);
    CHECK(c.weekdays == 0x7f);
    CHECK(!c.is_either_day);
    CHECK_SAME("10-40/5 * * * *", "10,15,20,25,30,35,40 * * * *");
    CHECK_SAME("*,7 * * * *", "* * * * *");
    CHECK_SAME("05 007 1 1 *", "5 7 1 1 *");
    CHECK_SAME("0-59 0-23 * 1-12 *", "* * * * *");
    CHECK_SAME(" \t0   9\t* * 1-5 ", "0 9 * * 1-5");
    CHECK_SAME("59 23 31 12 *", "59-59 23-23 31-31/31 12-12/12 *");
}

TEST(E1_cron_names_in_any_case)
{
    CHECK_SAME("0 9 * * MON-FRI", "0 9 * * 1-5");
    CHECK_SAME("0 9 * * mon,Wed,fRI", "0 9 * * 1,3,5");
    CHECK_SAME("0 9 1 JAN-MAR,dec *", "0 9 1 1-3,12 *");
    CHECK_SAME("0 9 1 feb-OCT/4 *", "0 9 1 2,6,10 *");
    CHECK_SAME("0 9 * * SUN", "0 9 * * 0");
    CHECK_SAME("0 9 * * SAT", "0 9 * * 6");
    CHECK_SAME("0 9 * * mon-5", "0 9 * * 1-5");
}

TEST(E1_cron_sunday_is_0_and_7)
{
    CHECK_SAME("0 0 * * 7", "0 0 * * 0");
    CHECK_SAME("0 0 * * 5-7", "0 0 * * 0,5,6");
    CHECK_SAME("0 0 * * 0-7", "0 0 * * 0-6");
    CHECK_STR(next_of("0 0 * * 7", NULL, "2026-11-16T00:00:00Z"), "2026-11-22T00:00:00Z");
    CHECK_STR(next_of("0 0 * * */7", NULL, "2026-11-16T00:00:00Z"), "2026-11-22T00:00:00Z");
}

TEST(E1_cron_macros)
{
    CHECK_SAME("@hourly", "0 * * * *");
    CHECK_SAME("@daily", "0 0 * * *");
    CHECK_SAME("@Midnight", "0 0 * * *");
    CHECK_SAME("@WEEKLY", "0 0 * * 0");
    CHECK_SAME("@monthly", "0 0 1 * *");
    CHECK_SAME("@yearly", "0 0 1 1 *");
    CHECK_SAME("  @annually\t", "0 0 1 1 *");
    CHECK_REFUSED("@reboot", "cron \"@reboot\": \"@reboot\" at column 1 is none of @hourly");
    CHECK_REFUSED(" @", "\"@\" at column 2");
    CHECK_REFUSED("@daily 5", "nothing goes behind @daily, but column 8");
}

TEST(E1_cron_one_of_two_day_fields_is_enough_if_both_are_restricted)
{
    /* The 13th, and every Friday. */
    CHECK_ROW("0 0 13 * FRI", NULL, "2026-11-07T00:00:00Z", "2026-11-13T00:00:00Z",
              "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z", "2026-12-04T00:00:00Z",
              "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z");
    /* Begins with a star: both must match. Odd days that are Fridays. */
    CHECK_ROW("0 0 */2 * FRI", NULL, "2026-11-07T00:00:00Z", "2026-11-13T00:00:00Z",
              "2026-11-27T00:00:00Z", "2026-12-11T00:00:00Z", "2026-12-25T00:00:00Z");
    CHECK_ROW("0 0 13 * */5", NULL, "2026-11-01T00:00:00Z", "2026-11-13T00:00:00Z",
              "2026-12-13T00:00:00Z", "2027-06-13T00:00:00Z");
    CHECK_ROW("0 0 13 * *", NULL, "2026-11-07T00:00:00Z", "2026-11-13T00:00:00Z",
              "2026-12-13T00:00:00Z");
    CHECK_ROW("0 0 1-31 * FRI", NULL, "2026-11-07T00:00:00Z", "2026-11-08T00:00:00Z",
              "2026-11-09T00:00:00Z");
}

/* ---- E1: what is refused --------------------------------------------------------------------- */

TEST(E1_cron_bad_values_are_refused_with_their_column)
{
    CHECK_REFUSED("0 25 * * *", "cron \"0 25 * * *\": hour 25 at column 3 is not 0 to 23");
    CHECK_REFUSED("60 * * * *", "minute 60 at column 1 is not 0 to 59");
    CHECK_REFUSED("0 0 0 * *", "day of month 0 at column 5 is not 1 to 31");
    CHECK_REFUSED("0 0 1,32 * *", "day of month 32 at column 7 is not 1 to 31");
    CHECK_REFUSED("0 0 * 13 *", "month 13 at column 7 is not 1 to 12");
    CHECK_REFUSED("0 0 * 0 *", "month 0 at column 7 is not 1 to 12");
    CHECK_REFUSED("0 0 * * 8", "day of week 8 at column 9 is not 0 to 7");
    CHECK_REFUSED("0 0 * * 1-8", "day of week 8 at column 11 is not 0 to 7");
    CHECK_REFUSED("99999999999999999999999999 * * * *", "minute 99999999999999999999 at column 1");
    CHECK_REFUSED("4294967296 * * * *", "minute 4294967296 at column 1 is not 0 to 59");
    CHECK_REFUSED("0 0 * JANU *", "month \"JANU\" at column 7 is none of JAN to DEC");
    CHECK_REFUSED("0 0 * MON *", "month \"MON\" at column 7 is none of JAN to DEC");
    CHECK_REFUSED("0 0 * * MO", "day of week \"MO\" at column 9 is none of SUN to SAT");
    CHECK_REFUSED("0 0 * * thisisnoweekdayatallandlong", "\"thisisnoweekdayatall\" at column 9");
    CHECK_REFUSED("x 0 * * *", "minute \"x\" at column 1 is not a number");
    CHECK_REFUSED("0 0 L * *", "day of month \"L\" at column 5 is not a number");
}

TEST(E1_cron_bad_shapes_are_refused_with_their_column)
{
    CHECK_REFUSED("", "the minute is missing at column 1");
    CHECK_REFUSED(NULL, "the minute is missing at column 1");
    CHECK_REFUSED(" \t ", "the minute is missing at column 4");
    CHECK_REFUSED("0 9 * *", "the day of week is missing at column 8");
    CHECK_REFUSED("0 9 * * * *", "a sixth field at column 11");
    CHECK_REFUSED("0 9 ? * *", "day of month: '?' at column 5 is not understood");
    CHECK_REFUSED("0 9 * * 1#2", "day of week: '#' at column 10 is not understood");
    CHECK_REFUSED("{ * * * *", "minute: '{' at column 1 is not understood");
    CHECK_REFUSED("_ * * * *", "minute: '_' at column 1 is not understood");
    CHECK_REFUSED("0 0 * * M{N", "day of week \"M\" at column 9 is none of SUN to SAT");
    CHECK_REFUSED("5x * * * *", "minute: 'x' at column 2 is not understood");
    CHECK_REFUSED("-5 * * * *", "minute: '-' at column 1 is not understood");
    CHECK_REFUSED("0\n9 * * *", "minute: '\n' at column 2 is not understood");
    CHECK_REFUSED("\xc3\xa9 * * * *", "minute: '\xc3\xa9' at column 1 is not understood");
    CHECK_REFUSED("\xff * * * *", "minute: '?' at column 1 is not understood");
    CHECK_REFUSED("1, * * * *", "minute: a value is missing at column 3");
    CHECK_REFUSED(",1 * * * *", "minute: a value is missing at column 1");
    CHECK_REFUSED("1,,2 * * * *", "minute: a value is missing at column 3");
    CHECK_REFUSED("1- * * * *", "minute: a value is missing at column 3");
    CHECK_REFUSED("1-2-3 * * * *", "minute: '-' at column 4 is not understood");
    CHECK_REFUSED("** * * * *", "minute: '*' at column 2 is not understood");
    CHECK_REFUSED("*-5 * * * *", "minute: '-' at column 2 is not understood");
}

TEST(E1_cron_bad_steps_are_refused_with_their_column)
{
    CHECK_REFUSED("*/0 * * * *", "step 0 at column 3 is not 1 to 59");
    CHECK_REFUSED("*/60 * * * *", "step 60 at column 3 is not 1 to 59");
    CHECK_REFUSED("0 */24 * * *", "step 24 at column 5 is not 1 to 23");
    CHECK_REFUSED("*/ * * * *", "minute: a value is missing at column 3");
    CHECK_REFUSED("*/x * * * *", "minute: 'x' at column 3 is not understood");
    CHECK_REFUSED("0 0 * */JAN *", "month: 'J' at column 9 is not understood");
    CHECK_REFUSED("*/5/5 * * * *", "minute: '/' at column 4 is not understood");
    CHECK_REFUSED("5/15 * * * *", "the step at column 2 follows a single value; write 5-59/15");
    CHECK_REFUSED("0 0 * * MON/2,3", "column 12 follows a single value; write 1-6/2");
    CHECK_REFUSED("5/11111111111111111111111111111111 * * * *", "write 5-59/1111");
}

TEST(E1_cron_ranges_that_run_backwards_are_refused)
{
    CHECK_REFUSED("0 22-2 * * *", "hour: the range 22-2 at column 3 runs backwards; write its two");
    CHECK_REFUSED("0 0 * * FRI-SUN",
                  "the range FRI-SUN at column 9 runs backwards; Sunday at its end is 7");
    CHECK_REFUSED("0 0 1 DEC-JAN *", "the range DEC-JAN at column 7 runs backwards");
    CHECK_REFUSED("0 00000000000000000000000000009-5 * * *", "the range 00000000000000000000 at");
}

TEST(E1_cron_what_can_never_fire_is_refused)
{
    CHECK_REFUSED("0 0 30 2 *", "it never fires: the day of month at column 5 does not come in the "
                                "month at column 8");
    CHECK_REFUSED("0 0 31 2,4,6,9,11 *", "never fires");
    CHECK_REFUSED("0 0 30-31 FEB */2", "never fires");
    /* The weekday is enough. */
    CHECK_STR(next_of("0 0 30 2 1", NULL, "2026-01-01T00:00:00Z"), "2026-02-02T00:00:00Z");
    CHECK_STR(next_of("0 0 30,1 2 *", NULL, "2026-01-01T00:00:00Z"), "2026-02-01T00:00:00Z");
    CHECK_STR(next_of("0 0 31 2,3 *", NULL, "2026-01-01T00:00:00Z"), "2026-03-31T00:00:00Z");
}

TEST(E1_cron_input_is_bounded)
{
    char text[STET__CRON_TEXT_MAX + 2];

    memset(text, ' ', sizeof text);
    memcpy(text, "0 0 1 1 *", 9);
    text[STET__CRON_TEXT_MAX + 1] = '\0';
    CHECK_REFUSED(text, "is too long: at most 512 bytes");
    text[STET__CRON_TEXT_MAX] = '\0';
    CHECK_OK(stet_cron_parse(NULL, text, NULL));
    /* A long one is shortened in the sentence, the column is that of the whole. */
    memcpy(text + 400, "x", 1);
    CHECK_REFUSED(text, "…\": a sixth field at column 401");
    CHECK_CODE(stet_cron_parse(NULL, "x", NULL), STET_EINVAL);
}

/* ---- E5: the next time ----------------------------------------------------------------------- */

TEST(E5_cron_next_is_strictly_after)
{
    stet_cron *cron = parsed("30 9 * * *", NULL);
    int64_t    at = ms_of("2026-11-16T09:30:00Z"), day = 86400000, next = 0;

    CHECK_OK(stet_cron_next(cron, &next, at - 1));
    CHECK_INT(next, at);
    CHECK_OK(stet_cron_next(cron, &next, at - 1000));
    CHECK_INT(next, at);
    CHECK_OK(stet_cron_next(cron, &next, at));
    CHECK_INT(next, at + day);
    CHECK_OK(stet_cron_next(cron, &next, at + 1));
    CHECK_INT(next, at + day);
    stet_cron_free(cron);
}

TEST(E5_cron_next_over_months_years_and_leap_days)
{
    CHECK_STR(next_of("59 23 31 12 *", NULL, "2026-12-31T23:59:00Z"), "2027-12-31T23:59:00Z");
    CHECK_STR(next_of("0 0 29 2 *", NULL, "2026-01-01T00:00:00Z"), "2028-02-29T00:00:00Z");
    CHECK_STR(next_of("0 0 29 2 *", NULL, "2096-02-29T00:00:00Z"), "2104-02-29T00:00:00Z");
    CHECK_STR(next_of("0 0 29 2 *", NULL, "1996-02-29T00:00:00Z"), "2000-02-29T00:00:00Z");
    /* A leap day on a Sunday: the longest wait there is, over a century without one. */
    CHECK_STR(next_of("0 0 29 2 */7", NULL, "2088-02-29T00:00:00Z"), "2128-02-29T00:00:00Z");
    CHECK_STR(next_of("0 0 31 * *", NULL, "2026-04-01T00:00:00Z"), "2026-05-31T00:00:00Z");
    CHECK_STR(next_of("@weekly", NULL, "2026-11-16T00:00:00Z"), "2026-11-22T00:00:00Z");
    CHECK_STR(next_of("@yearly", "", "2026-11-16T00:00:00Z"), "2027-01-01T00:00:00Z");
}

TEST(E5_cron_times_outside_of_the_years_1_to_9999_are_refused)
{
    stet_cron *cron = parsed("0 0 1 1 *", "UTC"), *berlin = parsed("0 0 1 1 *", "Europe/Berlin");
    int64_t    first = INT64_C(-62135596800000), last = INT64_C(253402300799999), next = 7;

    CHECK_CODE(stet_cron_next(cron, &next, first - 1), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "years 1 to 9999");
    CHECK_CODE(stet_cron_next(cron, &next, last + 1), STET_EINVAL);
    CHECK_CODE(stet_cron_next(cron, &next, INT64_MIN), STET_EINVAL);
    CHECK_CODE(stet_cron_next(cron, &next, INT64_MAX), STET_EINVAL);
    CHECK_CODE(stet_cron_next(cron, &next, last), STET_END);
    CHECK_INT(next, 7);
    CHECK_OK(stet_cron_next(cron, &next, first));
    CHECK_INT(next, first + INT64_C(365) * 86400000);
    CHECK_OK(stet_cron_next(berlin, &next, first));
    CHECK_OK(stet_cron_next(cron, &next, INT64_C(-1)));
    CHECK_INT(next, 0);
    CHECK_OK(stet_cron_next(cron, &next, INT64_C(-1500)));
    CHECK_INT(next, 0);
    stet_cron_free(cron);
    stet_cron_free(berlin);
    stet_cron_free(NULL);
}

/* The zone of the process plays no part, nor is it touched. */
TEST(E5_cron_leaves_the_zone_of_the_process_alone)
{
    struct tm tm;
    time_t    zero = 0;

    CHECK_INT(setenv("TZ", "Asia/Tokyo", 1), 0);
    tzset();
    CHECK_STR(next_of("0 9 * * *", NULL, "2026-11-16T00:00:00Z"), "2026-11-16T09:00:00Z");
    CHECK_STR(next_of("0 9 * * *", "Europe/Berlin", "2026-11-16T00:00:00Z"),
              "2026-11-16T08:00:00Z");
    CHECK(localtime_r(&zero, &tm) != NULL);
    CHECK_INT(tm.tm_hour, 9);
}

/* ---- E4: daylight saving --------------------------------------------------------------------- */

/* Berlin: on 2026-03-29 at 01:00Z from 02:00 to 03:00, on 2026-10-25 at 01:00Z from 03:00 to
 * 02:00. */

TEST(E4_cron_local_times_follow_the_zone)
{
    CHECK_ROW("0 9 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", "2026-03-28T08:00:00Z",
              "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z");
    CHECK_ROW("0 9 * * *", "Europe/Berlin", "2026-10-23T12:00:00Z", "2026-10-24T07:00:00Z",
              "2026-10-25T08:00:00Z");
    CHECK_ROW("15 12 * * *", "Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-01T06:30:00Z");
    /* Mondays begin while it is Sunday in UTC. */
    CHECK_STR(next_of("0 0 * * MON", "Asia/Tokyo", "2026-11-14T00:00:00Z"), "2026-11-15T15:00:00Z");
}

TEST(E4_cron_a_time_that_does_not_exist_fires_once_at_the_shift)
{
    CHECK_ROW("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", "2026-03-28T01:30:00Z",
              "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z");
    /* Several of them, once; also together with one that does exist at that moment. */
    CHECK_ROW("0,15,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z",
              "2026-03-30T00:00:00Z");
    CHECK_ROW("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z",
              "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z");
    CHECK_ROW("*/15 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z",
              "2026-03-30T00:00:00Z");
    CHECK_ROW("0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", "2026-03-28T23:00:00Z",
              "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T04:00:00Z");
    /* From within, just before and at the shift. */
    CHECK_STR(next_of("30 2 * * *", "Europe/Berlin", "2026-03-29T00:59:59Z"),
              "2026-03-29T01:00:00Z");
    CHECK_STR(next_of("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z"),
              "2026-03-30T00:30:00Z");
    /* Midnight does not exist. */
    CHECK_ROW("0 0 * * *", "America/Sao_Paulo", "2017-10-13T12:00:00Z", "2017-10-14T03:00:00Z",
              "2017-10-15T03:00:00Z", "2017-10-16T02:00:00Z");
    /* Half an hour. */
    CHECK_ROW("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z", "2026-10-03T15:30:00Z",
              "2026-10-04T15:15:00Z");
    /* At one minute past midnight, from 00:01 to 01:01. */
    CHECK_ROW("30 0 * * *", "America/St_Johns", "2005-04-02T12:00:00Z", "2005-04-03T03:31:00Z",
              "2005-04-04T03:00:00Z");
    CHECK_ROW("0 0 * * *", "America/St_Johns", "2005-04-02T12:00:00Z", "2005-04-03T03:30:00Z",
              "2005-04-04T02:30:00Z");
    /* Samoa had no 30th of December 2011. */
    CHECK_ROW("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", "2011-12-30T10:00:00Z",
              "2012-12-29T19:00:00Z");
    CHECK_ROW("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-29T19:00:00Z",
              "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z");
}

TEST(E4_cron_a_time_that_exists_twice_fires_the_first_time)
{
    CHECK_ROW("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z",
              "2026-10-26T01:30:00Z");
    CHECK_ROW("0,30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:00:00Z",
              "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z");
    CHECK_ROW("*/20 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:00:00Z",
              "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z", "2026-10-26T01:00:00Z");
    CHECK_ROW("30 1-3 * * *", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-01T05:30:00Z",
              "2026-11-01T07:30:00Z", "2026-11-01T08:30:00Z");
    /* Asked within the second pass. */
    CHECK_STR(next_of("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z"),
              "2026-10-26T01:30:00Z");
    CHECK_STR(next_of("30 2,3 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z"),
              "2026-10-25T02:30:00Z");
    /* Midnight twice. */
    CHECK_ROW("30 23 * * *", "America/Sao_Paulo", "2018-02-16T12:00:00Z", "2018-02-17T01:30:00Z",
              "2018-02-18T01:30:00Z", "2018-02-19T02:30:00Z");
    CHECK_ROW("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z", "2026-04-04T14:45:00Z",
              "2026-04-05T15:15:00Z");
}

TEST(E4_cron_every_hour_goes_by_the_time_that_passes)
{
    CHECK_ROW("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T00:30:00Z",
              "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z");
    CHECK_ROW("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z",
              "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z");
    CHECK_ROW("*/30 0-23 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z",
              "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z");
    CHECK_ROW("*/15 * * * *", "Europe/Berlin", "2026-03-29T00:40:00Z", "2026-03-29T00:45:00Z",
              "2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z");
    /* The last Sunday of October, 2026: 25 hours. */
    CHECK_ROW("59 * 25 10 *", "Europe/Berlin", "2026-10-25T20:59:00Z", "2026-10-25T21:59:00Z",
              "2026-10-25T22:59:00Z", "2027-10-24T22:59:00Z");
}

TEST(E4_cron_beyond_the_file_the_rule_goes_on)
{
    CHECK_ROW("30 2 * * *", "Europe/Berlin", "2150-03-28T12:00:00Z", "2150-03-29T01:00:00Z",
              "2150-03-30T00:30:00Z");
    CHECK_ROW("0 9 * * *", "Africa/Casablanca", "2200-06-01T00:00:00Z", "2200-06-01T08:00:00Z");
}

/* ---- I10: what a preview shows --------------------------------------------------------------- */

static stet_cron_time
time_of(const char *expression, const char *zone, const char *after)
{
    stet_cron     *cron = parsed(expression, zone);
    stet_cron_time t;

    CHECK_OK(stet_cron_next_time(cron, &t, ms_of(after)));
    stet_cron_free(cron);
    return t;
}

#define CHECK_TIME(t, y, mo, d, h, mi, off)                                                        \
    do {                                                                                           \
        CHECK_INT((t).year, y);                                                                    \
        CHECK_INT((t).month, mo);                                                                  \
        CHECK_INT((t).day, d);                                                                     \
        CHECK_INT((t).hour, h);                                                                    \
        CHECK_INT((t).minute, mi);                                                                 \
        CHECK_INT((t).second, 0);                                                                  \
        CHECK_INT((t).offset_s, off);                                                              \
    } while (0)

TEST(I10_cron_times_tell_local_time_offset_and_shift)
{
    stet_cron_time t = time_of("15 9 * * *", "Europe/Berlin", "2026-11-16T00:00:00Z");

    CHECK_TIME(t, 2026, 11, 16, 9, 15, 3600);
    CHECK_INT(t.mark, STET_CRON_PLAIN);
    CHECK_INT(t.shift_s, 0);
    t = time_of("15 9 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z");
    CHECK_TIME(t, 2026, 3, 29, 9, 15, 7200);
    CHECK_INT(t.mark, STET_CRON_PLAIN);
    CHECK_INT(t.shift_s, 3600);
    CHECK_INT(t.asked_hour, 9);
    CHECK_INT(t.asked_minute, 15);
    t = time_of("15 9 * * *", "America/New_York", "2026-10-31T20:00:00Z");
    CHECK_TIME(t, 2026, 11, 1, 9, 15, -18000);
    CHECK_INT(t.shift_s, -3600);
    t = time_of("0 0 1 1 *", NULL, "1969-06-01T00:00:00Z");
    CHECK_TIME(t, 1970, 1, 1, 0, 0, 0);
}

TEST(I10_cron_times_tell_what_daylight_saving_does)
{
    stet_cron_time t = time_of("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z");

    CHECK_TIME(t, 2026, 3, 29, 3, 0, 7200);
    CHECK_INT(t.mark, STET_CRON_MOVED);
    CHECK_INT(t.asked_hour, 2);
    CHECK_INT(t.asked_minute, 30);
    t = time_of("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z");
    CHECK_TIME(t, 2026, 10, 25, 2, 30, 7200);
    CHECK_INT(t.mark, STET_CRON_FIRST);
    t = time_of("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z");
    CHECK_INT(t.mark, STET_CRON_FIRST);
    t = time_of("30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z");
    CHECK_TIME(t, 2026, 10, 25, 2, 30, 3600);
    CHECK_INT(t.mark, STET_CRON_SECOND);
    CHECK_INT(t.shift_s, -3600);
    t = time_of("30 * * * *", "Europe/Berlin", "2026-10-25T01:30:00Z");
    CHECK_TIME(t, 2026, 10, 25, 3, 30, 3600);
    CHECK_INT(t.mark, STET_CRON_PLAIN);
    t = time_of("59 1 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z");
    CHECK_INT(t.mark, STET_CRON_PLAIN);
}
