/* Durations from and to text (A11). */
#include "util_fault.h"

static int64_t
duration_of(const char *text)
{
    int64_t ms = -1;

    CHECK_OK(stet_duration_parse(&ms, text));
    return ms;
}

#define CHECK_REFUSED(text, why)                                                                   \
    do {                                                                                           \
        int64_t ms_ = 4711;                                                                        \
        CHECK_CODE(stet_duration_parse(&ms_, (text)), STET_EDURATION);                             \
        CHECK_HAS(stet_last_error(), why);                                                         \
        CHECK_INT(ms_, 4711);                                                                      \
    } while (0)

TEST(A11_duration_text_with_every_unit)
{
    CHECK_INT(duration_of("500ms"), 500);
    CHECK_INT(duration_of("5s"), 5000);
    CHECK_INT(duration_of("3m"), 180000);
    CHECK_INT(duration_of("1.5h"), 5400000);
    CHECK_INT(duration_of("2 d"), 172800000);
    CHECK_INT(duration_of("1w"), 604800000);
    CHECK_INT(duration_of("0s"), 0);
}

TEST(A11_duration_text_with_long_names)
{
    static const struct {
        const char *text;
        int64_t     ms;
    } cases[] = {
        { "1 millisecond", 1 },    { "2 milliseconds", 2 }, { "3msec", 3 },
        { "4 millis", 4 },         { "1 sec", 1000 },       { "2 secs", 2000 },
        { "1 second", 1000 },      { "2seconds", 2000 },    { "1 min", 60000 },
        { "2 mins", 120000 },      { "1minute", 60000 },    { "9 minutes", 540000 },
        { "1 hr", 3600000 },       { "1 hour", 3600000 },   { "2 hours", 7200000 },
        { "1 day", 86400000 },     { "3 days", 259200000 }, { "1 week", 604800000 },
        { "2 weeks", 1209600000 },
    };
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_INT(duration_of(cases[i].text), cases[i].ms);
}

TEST(A11_duration_text_any_case)
{
    CHECK_INT(duration_of("500MS"), 500);
    CHECK_INT(duration_of("500Ms"), 500);
    CHECK_INT(duration_of("5S"), 5000);
    CHECK_INT(duration_of("5M"), 300000);
    CHECK_INT(duration_of("1.5H"), 5400000);
    CHECK_INT(duration_of("2 Days"), 172800000);
    CHECK_INT(duration_of("1W"), 604800000);
}

TEST(A11_duration_plain_number_is_milliseconds)
{
    CHECK_INT(duration_of("0"), 0);
    CHECK_INT(duration_of("1500"), 1500);
    CHECK_INT(duration_of("  1500\t"), 1500);
    CHECK_INT(duration_of("000000000000000000000000000007"), 7);
}

TEST(A11_duration_fractions_are_rounded_to_milliseconds)
{
    CHECK_INT(duration_of("0.0004s"), 0);
    CHECK_INT(duration_of("0.0005s"), 1);
    CHECK_INT(duration_of("0.00049999999999999999999999999s"), 0);
    CHECK_INT(duration_of("1.5ms"), 2);
    CHECK_INT(duration_of("1.4999999999999999999ms"), 1);
    CHECK_INT(duration_of("1.5"), 2);
    CHECK_INT(duration_of(".5s"), 500);
    CHECK_INT(duration_of("0.1d"), 8640000);
    CHECK_INT(duration_of("0.333333333333h"), 1200000);
    CHECK_INT(duration_of("0.9999999999999999999999999w"), 604800000);
}

TEST(A11_duration_units_may_be_combined)
{
    CHECK_INT(duration_of("1h30m"), 5400000);
    CHECK_INT(duration_of("1 h 30 m"), 5400000);
    CHECK_INT(duration_of("1w2d3h4m5s6ms"), 604800000 + 172800000 + 10800000 + 240000 + 5006);
    CHECK_INT(duration_of("1m1.001s"), 61001);
    CHECK_REFUSED("30m1h", "wrong order");
    CHECK_REFUSED("1h1h", "wrong order");
    CHECK_REFUSED("1h30", "missing unit");
}

TEST(A11_duration_bad_text_is_refused_with_what_was_expected)
{
    static const char *const bad[] = { "s",          "5x",
                                       "5 parsecs",  "1.s",
                                       ".",          "1..5s",
                                       "1,5s",       "+5s",
                                       "5s!",        "0x10",
                                       "1e3",        "five",
                                       "5 5",        "5ss",
                                       "5\xC2\xB5s", "nan",
                                       "inf",        "5s,3ms",
                                       "1.5.2h",     "5 s -",
                                       "\xFF",       "5 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
    size_t                   i;

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_REFUSED(bad[i], "expected a number and a unit (ms, s, m, h, d or w)");
}

TEST(A11_duration_empty_and_negative_are_refused)
{
    CHECK_REFUSED("", "is empty");
    CHECK_REFUSED("  ", "is empty");
    CHECK_REFUSED(NULL, "is empty");
    CHECK_REFUSED("-5s", "is negative");
    CHECK_REFUSED("-1", "is negative");
    CHECK_REFUSED("5m-3s", "expected");
}

TEST(A11_duration_overflow_is_refused)
{
    CHECK_INT(duration_of("315576000000000"), STET__DURATION_MAX_MS);
    CHECK_INT(duration_of("3652500d"), STET__DURATION_MAX_MS);
    CHECK_REFUSED("315576000000001", "at most 10000 years");
    CHECK_REFUSED("3652500d1ms", "at most 10000 years");
    CHECK_REFUSED("3652500.00001d", "at most 10000 years");
    CHECK_REFUSED("9223372036854775807w", "at most 10000 years");
    CHECK_REFUSED("99999999999999999999999999999999999999ms", "at most 10000 years");
}

TEST(A11_duration_is_written_as_people_read_it)
{
    static const struct {
        int64_t     ms;
        const char *text;
    } cases[] = {
        { 0, "0s" },
        { 1, "1ms" },
        { 999, "999ms" },
        { 1000, "1s" },
        { 1500, "1.5s" },
        { 61001, "1m1.001s" },
        { 5400000, "1h30m" },
        { 86400000, "1d" },
        { 604800000 + 3600000, "7d1h" },
        { 86400050, "1d0.05s" },
        { -500, "-500ms" },
        { -5400000, "-1h30m" },
        { INT64_MAX, "106751991167d7h12m55.807s" },
        { INT64_MIN, "-106751991167d7h12m55.808s" },
    };
    char   text[64];
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_STR(stet_duration_text(text, sizeof text, cases[i].ms), cases[i].text);
    CHECK_STR(stet_duration_text(text, 4, 5400000), "1h3");
    CHECK(stet_duration_text(NULL, 0, 5400000) == NULL);
}

TEST(A11_duration_text_comes_back)
{
    char    text[64];
    int64_t ms;

    for (ms = 0; ms <= STET__DURATION_MAX_MS; ms += 1 + ms / 7)
        CHECK_INT(duration_of(stet_duration_text(text, sizeof text, ms)), ms);
}

TEST(A11_a_time_beyond_all_times_stays_for_ever)
{
    static const struct {
        int64_t at, more, sum;
    } sums[] = {
        { 1, 2, 3 },
        { 5, -7, -2 },
        { INT64_MAX, 0, INT64_MAX },
        { INT64_MAX, 1, INT64_MAX },
        { 1, INT64_MAX, INT64_MAX },
        { INT64_MAX, INT64_MAX, INT64_MAX },
        { 1, INT64_MAX - 1, INT64_MAX },
        { 0, INT64_MIN, INT64_MIN },
        { -1, INT64_MIN, INT64_MIN },
        { INT64_MIN, -1, INT64_MIN },
        { INT64_MAX, INT64_MIN, -1 },
        { INT64_MIN, INT64_MAX, -1 },
    };

    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        CHECK_INT(stet__time_add(sums[i].at, sums[i].more), sums[i].sum);
    CHECK_INT(stet__ms_us(0), 0);
    CHECK_INT(stet__ms_us(-3), -3000);
    CHECK_INT(stet__ms_us(INT64_MAX / 1000), INT64_MAX / 1000 * 1000);
    CHECK_INT(stet__ms_us(INT64_MAX / 1000 + 1), INT64_MAX);
    CHECK_INT(stet__ms_us(INT64_MAX), INT64_MAX);
    CHECK_INT(stet__ms_us(INT64_MIN / 1000), INT64_MIN / 1000 * 1000);
    CHECK_INT(stet__ms_us(INT64_MIN), INT64_MIN);
}

TEST(C11_times_are_written_as_dates_of_utc)
{
    static const struct {
        int64_t     ms;
        const char *text;
    } cases[] = {
        { 0, "1970-01-01T00:00:00Z" },
        { -1, "1969-12-31T23:59:59Z" },
        { 951782400000, "2000-02-29T00:00:00Z" },
        { 1709251199999, "2024-02-29T23:59:59Z" },
        { 1709251200000, "2024-03-01T00:00:00Z" },
        { 4102444800000, "2100-01-01T00:00:00Z" },
        { 4107542400000, "2100-03-01T00:00:00Z" },
        { 253402300799999, "9999-12-31T23:59:59Z" },
        { -62135596800000, "0001-01-01T00:00:00Z" },
    };
    char room[STET__UTC_MAX];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(stet__utc_text(room, cases[i].ms), cases[i].text);
}
