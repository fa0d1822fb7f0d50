/* JSON text: validity, quoting, printing. */
#include <locale.h>

#include "util_fault.h"

/* In memory of exactly its size, so that the sanitizer sees reading beyond. */
static bool
json_check_copy(const char *text, size_t len, size_t *at)
{
    char      *copy = malloc(len ? len : 1);
    stet_bytes bytes = { copy, len };
    bool       ok;

    memcpy(copy, text, len);
    ok = stet__json_valid(bytes, at);
    free(copy);
    return ok;
}

static bool
json_is_valid(const char *text)
{
    return json_check_copy(text, strlen(text), NULL);
}

TEST(util_json_valid_values)
{
    static const char *const good[] = {
        "null",
        "true",
        "false",
        "0",
        "-0",
        "12",
        "-1.5",
        "1e5",
        "1E+5",
        "0.1e-10",
        "\"\"",
        "\"a\"",
        " [ ] ",
        "{}",
        "[1,2,[3],{}]",
        "{\"a\":1,\"b\":[true,null]}",
        "\t{ \"a\" : [ 1 , 2 ] }\r\n",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\ude00\"",
        "\"gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80\"",
        "[[],[],[[]]]",
        "{\"\":{\"\":{}}}",
        "\"a string that is longer than eight bytes, twice\"",
        "\"1234567\\n1234567\xC3\xBC_234567\"",
        "\"\x7F\"",
        "\"\\ud800\"",
    };
    size_t i;

    for (i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!json_is_valid(good[i]))
            test_fail(__FILE__, __LINE__, "refused: %s", good[i]);
}

TEST(util_json_errors_and_where_they_are)
{
    static const struct {
        const char *text;
        size_t      at;
    } cases[] = {
        { "", 0 },
        { "  ", 2 },
        { "nul", 3 },
        { "nulL", 3 },
        { "True", 0 },
        { "01", 1 },
        { "-", 1 },
        { "-a", 1 },
        { "+1", 0 },
        { ".5", 0 },
        { "1.", 2 },
        { "1.e5", 2 },
        { "1e", 2 },
        { "1e+", 3 },
        { "0x10", 1 },
        { "[", 1 },
        { "]", 0 },
        { "[1", 2 },
        { "[1,", 3 },
        { "[1,]", 3 },
        { "[,1]", 1 },
        { "[1 2]", 3 },
        { "[1}", 2 },
        { "{", 1 },
        { "{]", 1 },
        { "{1:2}", 1 },
        { "{\"a\"}", 4 },
        { "{\"a\":}", 5 },
        { "{\"a\":1,}", 7 },
        { "{\"a\" 1}", 5 },
        { "{\"a\":1", 6 },
        { "{,}", 1 },
        { "1 2", 2 },
        { "{}{}", 2 },
        { "\"", 1 },
        { "\"a", 2 },
        { "\"\\", 2 },
        { "\"\\x\"", 2 },
        { "\"\\u12\"", 5 },
        { "\"\\u12", 5 },
        { "{\"a", 3 },
        { "{\"a\"", 4 },
        { "\"\\u12g4\"", 5 },
        { "\"a\nb\"", 2 },
        { "\"\xFF\"", 1 },
        { "\"\xC0\x80\"", 1 },
        { "\"\xED\xA0\x80\"", 1 },
        { "\"\xC3", 1 },
        { "'a'", 0 },
        { "NaN", 0 },
        { "Infinity", 0 },
        { "\xEF\xBB\xBF{}", 0 },
        { "[1]x", 3 },
        { "// no\n1", 0 },
        { "\f1", 0 },
        { "\"0123456789abcde\x01\"", 16 },
    };
    size_t i, at;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        at = 999;
        if (json_check_copy(cases[i].text, strlen(cases[i].text), &at))
            test_fail(__FILE__, __LINE__, "accepted: %s", cases[i].text);
        if (at != cases[i].at)
            test_fail(__FILE__, __LINE__, "%s: wrong at %zu, expected %zu", cases[i].text, at,
                      cases[i].at);
    }
    CHECK(!json_check_copy("1\0", 2, &at));
    CHECK(!json_check_copy("\"\0\"", 3, &at));
    CHECK(!json_check_copy("\"\\\0\"", 4, &at));
}

static void
json_check_depth(char open, char close, const char *name)
{
    char   text[600];
    size_t depth, i, len, at;

    for (depth = 63; depth <= 65; depth++) {
        for (i = len = 0; i < depth; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "%c%s", open,
                                    i + 1 < depth ? name : "");
        for (i = 0; i < depth; i++)
            text[len++] = close;
        CHECK_INT(json_check_copy(text, len, &at), depth <= 64);
    }
    CHECK_INT(at, 64 * (1 + strlen(name)));
}

TEST(util_json_depth_ends_at_64)
{
    json_check_depth('[', ']', "");
    json_check_depth('{', '}', "\"a\":");
}

static void
json_check_quote(const char *text, size_t len, const char *want)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;

    stet__buf_init(&b, &f.base);
    stet__json_quote(&b, text, len);
    CHECK_STR(stet__buf_cstr(&b), want);
    CHECK(stet__json_valid(stet__buf_bytes(&b), NULL));
    stet__buf_free(&b);
    CHECK_INT(f.held, 0);
}

TEST(util_json_quote)
{
    json_check_quote(NULL, 0, "\"\"");
    json_check_quote("plain", 5, "\"plain\"");
    json_check_quote("a\"b\\c/", 6, "\"a\\\"b\\\\c/\"");
    json_check_quote("\b\f\n\r\t\x01\x1F\x7F", 8, "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7F\"");
    json_check_quote("\0", 1, "\"\\u0000\"");
    json_check_quote("gr\xC3\xBC\xF0\x9F\x98\x80", 8, "\"gr\xC3\xBC\xF0\x9F\x98\x80\"");
    json_check_quote("a\xFF"
                     "b\xC3",
                     4,
                     "\"a\xEF\xBF\xBD"
                     "b\xEF\xBF\xBD\"");
}

TEST(util_json_printf_conversions)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;

    stet__buf_init(&b, &f.base);
    stet__buf_str(&b, "before ");
    CHECK_OK(stet__json_printf(&b, "{\"q\":%Q,\"n\":%Q,\"j\":%J}", "a\"b", (const char *)NULL,
                               stet_text("[1,{}]")));
    CHECK_STR(stet__buf_cstr(&b), "before {\"q\":\"a\\\"b\",\"n\":null,\"j\":[1,{}]}");
    stet__buf_cut(&b, 0);
    CHECK_OK(stet__json_printf(&b, "[%d,%i,%u,%ld,%lld,%lu,%llu,%zu,%hhd,%hu]", -1, 2, 4000000000u,
                               -5L, INT64_MIN + 0LL, 6UL, UINT64_MAX + 0ULL, (size_t)7, 8, 9));
    CHECK_STR(stet__buf_cstr(&b),
              "[-1,2,4000000000,-5,-9223372036854775808,6,18446744073709551615,7,8,9]");
    stet__buf_cut(&b, 0);
    CHECK_OK(stet__json_printf(&b, "[%g,%f,%.2f,%5d,%-5d,%*d,%.*f]", 1.5, 0.25, 3.14159, 1, 2, 6, 3,
                               1, 2.55));
    CHECK_STR(stet__buf_cstr(&b), "[1.5,0.250000,3.14,    1,2    ,     3,2.5]");
    stet__buf_cut(&b, 0);
    CHECK_OK(stet__json_printf(&b, "\"%s %.2s %c %% %x %04x %#x %.*s\"", "ab", "cdef", 'g', 255u,
                               255u, 255u, 1, "xyz"));
    CHECK_STR(stet__buf_cstr(&b), "\"ab cd g % ff 00ff 0xff x\"");
    stet__buf_cut(&b, 0);
    CHECK_OK(stet__json_printf(&b, "[%hd,%jd,%zd,%td,%hhu,%ju,%tu,%e,%.*f,\"%X %s\"]", 70000,
                               (intmax_t)-2, (ptrdiff_t)-3, (ptrdiff_t)-4, 511u, (uintmax_t)5,
                               (size_t)6, 15000.0, -1, 2.5, 171u, (const char *)NULL));
    CHECK_STR(stet__buf_cstr(&b),
              "[4464,-2,-3,-4,255,5,6,1.500000e+04,2.500000,\"AB null\"]");
    stet__buf_free(&b);
    CHECK_INT(f.held, 0);
}

#define CHECK_UNCHANGED(b, call)                                                                   \
    do {                                                                                           \
        CHECK_CODE(call, STET_EJSON);                                                              \
        CHECK_STR(stet__buf_cstr(b), "kept");                                                      \
        CHECK(!(b)->failed);                                                                       \
    } while (0)

TEST(util_json_printf_refuses_what_is_not_json)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;

    stet__buf_init(&b, &f.base);
    stet__buf_str(&b, "kept");
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "[%J]", stet_text("1,2")));
    CHECK_HAS(stet_last_error(), "%J: not one JSON value, wrong at byte 1 of 3");
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "[%J]", stet_text("")));
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "{\"a\":%s}", "oops"));
    CHECK_HAS(stet_last_error(), "{\"a\":oops}");
    CHECK_UNCHANGED(&b, stet__json_printf(&b, ""));
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "%d %d", 1, 2));
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "[1,%"));
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "[%n]", (int *)NULL));
    CHECK_UNCHANGED(
        &b, stet__json_printf(&b, "[%0000000000000000000000000000000000000000000000001d]", 1));
    /* Flags, widths and precisions without end. */
    CHECK_UNCHANGED(
        &b, stet__json_printf(&b, "[%----------------------------------------------------d]", 1));
    CHECK_UNCHANGED(
        &b, stet__json_printf(&b, "[%.000000000000000000000000000000000000000000000000001f]", 1.0));
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "[%300d", 1));
    CHECK_HAS(stet_last_error(), "wrong at byte");
    CHECK_UNCHANGED(&b, stet__json_printf(&b, "%g", 1.0 / (double)(f.held - 1)));
    stet__buf_free(&b);
    CHECK_INT(f.held, 0);
}

TEST(util_json_printf_prints_a_point_in_every_locale)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;

    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL &&
        setlocale(LC_NUMERIC, "fr_FR.UTF-8") == NULL)
        test_skip("no locale with a decimal comma is installed");
    stet__buf_init(&b, &f.base);
    CHECK_OK(stet__json_printf(&b, "[%g,%.1e]", 1.5, 25000.0));
    CHECK_STR(stet__buf_cstr(&b), "[1.5,2.5e+04]");
    stet__buf_free(&b);
}

TEST(util_json_survives_every_failing_allocation)
{
    char      large[700];
    stet__buf b;
    long      n;
    int       err;

    memset(large, 'z', sizeof large);
    large[sizeof large - 1] = '\0';
    for (n = 1; n < 20; n++) {
        fault_alloc f = fault_new(n);

        stet__buf_init(&b, &f.base);
        err = stet__json_printf(
            &b, "{\"a\":%Q,\"b\":%J,\"c\":%d,\"d\":\"%s\"}", "\x01\x02\x03 and so on",
            stet_text("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]"), 5, large);
        CHECK_INT(err, fault_was_hit(&f) ? STET_ENOMEM : STET_OK);
        CHECK_INT(b.failed, fault_was_hit(&f));
        CHECK((b.len == 0) == b.failed);
        stet__buf_free(&b);
        CHECK_INT(f.held, 0);
    }
}
