/* Texts of the command line: what is safe on a terminal and how wide it is, times as people say and
 * type them. Row H2. */
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "test.h"

static void *
text_get(stet__alloc *a, void *old, size_t size)
{
    (void)a;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, size);
}

static stet__alloc text_alloc = { .get = text_get };
static stet__arena text_arena;

static cli *
text_cli(void)
{
    static cli c;

    c.alloc = &text_alloc;
    c.arena = &text_arena;
    stet__arena_init(&text_arena, &text_alloc);
    return &c;
}

static void
text_end(void)
{
    stet__arena_free(&text_arena);
}

/* ---- safe on a terminal ---------------------------------------------------------------------- */

TEST(H2_texts_cannot_steer_a_terminal)
{
    static const struct {
        const char *from, *clean;
    } all[] = {
        { "plain", "plain" },
        { "a\nb\rc\td", "a b c d" },
        { "\x1b[31mred", "?[31mred" },
        { "\x7f", "?" },
        { "\xc2\x85next", "?next" },                  /* a C1 control */
        { "\xc2\xa0", "\xc2\xa0" },                   /* the first behind them */
        { "\xe2\x80\xaaover\xe2\x80\xae", "?over?" }, /* reorders the line */
        { "\xe2\x80\xaf", "\xe2\x80\xaf" },           /* the first behind them */
        { "\xe2\x81\xa6iso\xe2\x81\xa9", "?iso?" },   /* and so do these */
        { "\xe2\x81\xaa", "\xe2\x81\xaa" },           /* the first behind them */
        { "\xe2\x80\xa8\xe2\x80\xa9", "??" },         /* separates lines, paragraphs */
        { "a\xff\xfe"
          "b",
          "a\xef\xbf\xbd\xef\xbf\xbd"
          "b" }, /* broken */
        { "cut\xe2\x82", "cut\xef\xbf\xbd\xef\xbf\xbd" },
        { "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80" },
    };
    cli *c = text_cli();

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK_STR(stet__cli_clean(c, stet_text(all[i].from)), all[i].clean);
    CHECK_STR(stet__cli_clean(c, (stet_bytes){ "a\0b", 3 }), "a?b");
    text_end();
}

TEST(H2_payloads_are_text_or_counted)
{
    cli *c = text_cli();

    CHECK_STR(stet__cli_payload_text(c, (stet_bytes){ NULL, 0 }), "");
    CHECK_STR(stet__cli_payload_text(c, stet_text("{\"a\":1}")), "{\"a\":1}");
    CHECK_STR(stet__cli_payload_text(c, (stet_bytes){ "a\0b", 3 }), "<3 bytes>");
    CHECK_STR(stet__cli_payload_text(c, (stet_bytes){ "\xff\xfe", 2 }), "<2 bytes>");
    text_end();
}

/* First and last code point of each range, and their neighbours. */
TEST(H2_widths_are_those_of_a_terminal)
{
    static const struct {
        uint32_t first, last;
        size_t   columns;
    } ranges[] = {
        { 0x300, 0x36f, 0 },     { 0x200b, 0x200f, 0 }, { 0x20d0, 0x20ff, 0 },
        { 0xfe00, 0xfe0f, 0 },   { 0x1100, 0x115f, 2 }, { 0x2e80, 0xa4cf, 2 },
        { 0xac00, 0xd7a3, 2 },   { 0xf900, 0xfaff, 2 }, { 0xfe30, 0xfe6f, 2 },
        { 0xff00, 0xff60, 2 },   { 0xffe0, 0xffe6, 2 }, { 0x1f300, 0x1faff, 2 },
        { 0x20000, 0x3fffd, 2 },
    };

    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const uint32_t points[4] = { ranges[i].first - 1, ranges[i].first, ranges[i].last,
                                     ranges[i].last + 1 };

        for (size_t k = 0; k < 4; k++) {
            uint32_t p = points[k];
            char     text[5] = { 0 };
            size_t   n = 0;

            if (p < 0x800)
                text[n++] = (char)(0xc0 | p >> 6);
            else if (p < 0x10000)
                text[n++] = (char)(0xe0 | p >> 12);
            else {
                text[n++] = (char)(0xf0 | p >> 18);
                text[n++] = (char)(0x80 | (p >> 12 & 0x3f));
            }
            if (p >= 0x800)
                text[n++] = (char)(0x80 | (p >> 6 & 0x3f));
            text[n] = (char)(0x80 | (p & 0x3f));
            if (stet__cli_columns(text) != (k == 1 || k == 2 ? ranges[i].columns : 1))
                test_fail(__FILE__, __LINE__, "U+%04X is %zu wide", p, stet__cli_columns(text));
        }
    }
    CHECK_INT(stet__cli_columns("a\xff"
                                "b"),
              3);
}

TEST(H2_lines_are_cut_by_columns)
{
    cli *c = text_cli();

    CHECK_STR(stet__cli_cut(c, "short", SIZE_MAX), "short");
    CHECK_STR(stet__cli_cut(c, "short", 5), "short");
    CHECK_STR(stet__cli_cut(c, "longer", 5), "long\xe2\x80\xa6");
    CHECK_STR(stet__cli_cut(c, "\xe6\x97\xa5\xe6\x9c\xac", 3), "\xe6\x97\xa5\xe2\x80\xa6");
    CHECK_STR(stet__cli_cut(c,
                            "a\xff"
                            "bcd",
                            3),
              "a\xff\xe2\x80\xa6");
    text_end();
}

TEST(H2_colours_only_where_they_are_wanted)
{
    static const struct {
        stet_status status;
        cli_style   style;
    } all[] = {
        { STET_STATUS_PENDING, CLI_PLAIN },
        { STET_STATUS_RUNNING, CLI_PLAIN },
        { STET_STATUS_SUSPENDED, CLI_PLAIN },
        { STET_STATUS_RETRYING, CLI_CARE },
        { STET_STATUS_PAUSED, CLI_CARE },
        { STET_STATUS_STUCK, CLI_BAD },
        { STET_STATUS_CANCELLING, CLI_CARE },
        { STET_STATUS_COMPENSATING, CLI_CARE },
        { STET_STATUS_COMPENSATION_FAILED, CLI_BAD },
        { STET_STATUS_COMPLETED, CLI_GOOD },
        { STET_STATUS_FAILED, CLI_BAD },
        { STET_STATUS_CANCELLED, CLI_CARE },
        { STET_STATUS_EXPIRED, CLI_BAD },
        { (stet_status)77, CLI_PLAIN },
    };
    cli  *c = text_cli();
    char  text[200] = "";
    FILE *file;
    int   out = dup(STDOUT_FILENO);

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK_INT(stet__cli_status_style(all[i].status), all[i].style);
    CHECK(freopen(test_path("painted"), "w", stdout) != NULL);
    stet__cli_paint(c, CLI_BAD, "1");
    c->has_color = true;
    stet__cli_paint(c, CLI_PLAIN, "2");
    stet__cli_paint(c, CLI_BAD, "3");
    CHECK_INT(fflush(stdout), 0);
    CHECK(dup2(out, STDOUT_FILENO) >= 0);
    CHECK((file = fopen(test_path("painted"), "r")) != NULL);
    CHECK(fgets(text, sizeof text, file) != NULL);
    (void)fclose(file);
    CHECK_STR(text, "12\033[31m3\033[0m");
    text_end();
}

/* ---- times ----------------------------------------------------------------------------------- */

TEST(H2_spans_and_times_as_people_say_them)
{
    static const struct {
        int64_t     ms;
        const char *span, *ago, *in;
    } all[] = {
        { 0, "0 ms", "just now", "just now" },
        { 999, "999 ms", "just now", "in < 1 s" },
        { 1500, "1.5 s", "1 s ago", "in 1 s" },
        { 59999, "59.9 s", "59 s ago", "in 59 s" },
        { 60000, "1 min 0 s", "1 min ago", "in 1 min" },
        { 3599000, "59 min 59 s", "59 min ago", "in 59 min" },
        { 3600000, "1 h 0 min", "1 h ago", "in 1 h" },
        { 86399000, "23 h 59 min", "23 h ago", "in 23 h" },
        { 86400000, "1 d 0 h", "24 h ago", "in 24 h" },
        { 172800000, "2 d 0 h", "2 d ago", "in 2 d" },
    };
    cli *c = text_cli();

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        CHECK_STR(stet__cli_span(c, all[i].ms), all[i].span);
        CHECK_STR(stet__cli_relative(c, 1000000000000, 1000000000000 + all[i].ms), all[i].ago);
        CHECK_STR(stet__cli_relative(c, 1000000000000 + all[i].ms, 1000000000000), all[i].in);
    }
    CHECK_STR(stet__cli_span(c, -5), "0 ms");
    CHECK_STR(stet__cli_when(c, 1893456000250, 1893456060250),
              "2030-01-01T00:00:00.250Z (1 min ago)");
    CHECK_STR(stet__cli_when(c, INT64_MAX, INT64_MAX), "292278994-08-17T07:12:55.807Z (just now)");
    text_end();
}

TEST(H2_times_are_parsed)
{
    static const struct {
        const char *text;
        int64_t     ms;
    } all[] = {
        { "2030-01-31T12:00:00Z", 1896091200000 },
        { "2030-01-31t12:00:00z", 1896091200000 },
        { "2030-01-31 12:00Z", 1896091200000 },
        { "2030-01-31T12:00:00.250Z", 1896091200250 },
        { "2030-01-31T12:00:00,5Z", 1896091200500 },
        { "2030-01-31T12:00:00.123456Z", 1896091200123 },
        { "2030-01-31T14:00:00+02", 1896091200000 },
        { "2030-01-31T14:00:00+0200", 1896091200000 },
        { "2030-01-31T09:30:00-02:30", 1896091200000 },
        { "2030-01-31T12:00:00+00:00", 1896091200000 },
        { "2030-01-31", 1896048000000 },
        { "2030-01-31T12:00", 1896091200000 },
        { "2032-02-29T00:00:00Z", 1961625600000 },
        { "1896091200000", 1896091200000 },
        { "0", 0 },
    };
    int64_t ms;

    /* Without a zone it is local time. */
    CHECK_INT(setenv("TZ", "UTC", 1), 0);
    tzset();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ms = -1;
        if (!stet__cli_time_parse(&ms, all[i].text) || ms != all[i].ms)
            test_fail(__FILE__, __LINE__, "%s is %lld", all[i].text, (long long)ms);
    }
    CHECK_INT(setenv("TZ", "UTC-3", 1), 0);
    tzset();
    CHECK(stet__cli_time_parse(&ms, "2030-01-31T15:00:00"));
    CHECK_INT(ms, 1896091200000);
}

TEST(H2_what_is_no_time_is_refused)
{
    static const char *const all[] = {
        "",
        "x",
        "-5",
        "12x",
        "99999999999999999999",
        "1969-01-31T12:00:00Z",
        "2030/01-31",
        "2030-0x-31",
        "2030-00-31",
        "2030-13-31",
        "2030-01/31",
        "2030-01-0x",
        "2030-01-00",
        "2030-01-32",
        "2030-02-30",
        "2031-02-29T00:00:00Z",
        "2030-01-31x",
        "2030-01-31T",
        "2030-01-31T1x:00",
        "2030-01-31T24:00",
        "2030-01-31T12.00",
        "2030-01-31T12:0x",
        "2030-01-31T12:60",
        "2030-01-31T12:00:0x",
        "2030-01-31T12:00:60",
        "2030-01-31T12:00:00.Z",
        "2030-01-31T12:00:00./",
        "2030-01-31T12:00:00.5:",
        "2030-01-31T12:00:00Zz",
        "2030-01-31T12:00:00zZ",
        "2030-01-31T12:00:00*02",
        "2030-01-31T12:00:00+2",
        "2030-01-31T12:00:00+24",
        "2030-01-31T12:00:00+02:6",
        "2030-01-31T12:00:00+02:60",
        "2030-01-31T12:00:00+02:000",
        "2030-01-31T12:00:00+02:",
    };
    int64_t ms;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (stet__cli_time_parse(&ms, all[i]))
            test_fail(__FILE__, __LINE__, "%s is %lld", all[i], (long long)ms);
}

/* ---- addresses ------------------------------------------------------------------------------- */

TEST(H2_addresses_are_told_without_their_passwords)
{
    static const struct {
        const char *from, *shown;
    } all[] = {
        { "shop.db", "shop.db" },
        { "memory:", "memory:" },
        { "postgres://h:5432/db", "postgres://h:5432/db" },
        { "postgres://u@h:5432/db", "postgres://u@h:5432/db" },
        { "postgres://u:hush@h:5432/db?schema=s", "postgres://u:…@h:5432/db?schema=s" },
        { "postgres://u:hu@sh@h/db", "postgres://u:…@h/db" },
        { "postgres://h/db?password=hush&schema=s", "postgres://h/db?password=…&schema=s" },
        { "redis://:hush@h/0?queue=amqp://u:hush@h/v?ttl=3",
          "redis://:…@h/0?queue=amqp://u:…@h/v?ttl=3" },
        { "shop.db?queue=amqp://u:hush@h", "shop.db?queue=amqp://u:…@h" },
    };
    cli *c = text_cli();

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK_STR(stet__cli_shown(c, all[i].from), all[i].shown);
    text_end();
}

/* ---- help ------------------------------------------------------------------------------------ */

TEST(H10_the_help_of_every_verb_has_an_example)
{
    static const char *const begins[] = { "stet ", "./", "gdb ", "source ", NULL };
    const cli_verb          *verb;

    for (size_t i = 0; (verb = stet__cli_verb_at(i)) != NULL; i++) {
        bool        has_one = false;
        const char *line = verb->details;

        while (line != NULL && !has_one) {
            for (size_t k = 0; begins[k] != NULL && strncmp(line, "    ", 4) == 0; k++)
                has_one = has_one || strncmp(line + 4, begins[k], strlen(begins[k])) == 0;
            line = (line = strchr(line, '\n')) != NULL ? line + 1 : NULL;
        }
        if (!has_one)
            test_fail(__FILE__, __LINE__, "help %s has no example", verb->name);
    }
}
