/* Options of addresses: one that is given twice is refused by its name, in the address of every
 * store and queue, and its value, which may be a secret, is not told. */
#include "fixture.h"
#include "platform/platform.h"
#include "store/store.h"

TEST(A10_options_are_found_by_their_whole_name)
{
    CHECK(stet__option_is_set("create=0", "create"));
    CHECK(stet__option_is_set("a=1&create=", "create"));
    CHECK(!stet__option_is_set("", "create"));
    CHECK(!stet__option_is_set("create", "create"));
    CHECK(!stet__option_is_set("created=1&recreate=0&x=create", "create"));
}

TEST(A10_an_option_that_is_given_twice_is_refused)
{
    CHECK_OK(stet__options_check("", "store", "x"));
    CHECK_OK(stet__options_check("a=1&ab=1&b=a&c", "store", "x"));
    CHECK_OK(stet__options_check("c&c", "store", "x")); /* no options at all: refused elsewhere */
    CHECK_CODE(stet__options_check("a=1&b=2&a=hush", "store", "x"), STET_EURL);
    CHECK_STR(stet_last_error(),
              "store x: the option \"a\" is given twice in the address; keep the "
              "one that is meant");
    CHECK_CODE(stet__options_check("b=1&&a=1&a=1&b=2", "queue", "y"), STET_EURL);
    CHECK_HAS(stet_last_error(), "queue y: the option \"b\"");
}

static bool
is_number(const char *text, int most, int *n)
{
    return stet__option_number(text, strlen(text), most, n);
}

TEST(A10_a_number_of_an_address_is_digits_and_nothing_else)
{
    static const char *const wrong[] = { "", " 5", "+5", "-1", "5s", "61", "600", "99999999999" };
    int                      n = 0;

    CHECK(is_number("0", 60, &n) && n == 0);
    CHECK(is_number("060", 60, &n) && n == 60);
    CHECK(is_number("2147483647", INT32_MAX, &n) && n == INT32_MAX);
    CHECK(!is_number("2147483648", INT32_MAX, &n));
    CHECK(!is_number("2", 1, &n));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!is_number(wrong[i], 60, &n));
    CHECK(stet__option_number("65", 1, 60, &n) && n == 6); /* what is behind it is not read */
}

TEST(A10_seconds_of_an_address_have_a_least_and_a_most)
{
    int64_t ms = 0;

    CHECK_OK(stet__option_seconds("60", 2, 60, "wait", "store", "x", &ms));
    CHECK_INT(ms, 60000);
    CHECK_CODE(stet__option_seconds("0", 1, 60, "wait", "store", "x", &ms), STET_EURL);
    CHECK_CODE(stet__option_seconds("61", 2, 60, "wait", "queue", "y", &ms), STET_EURL);
    CHECK_STR(stet_last_error(), "queue y: wait is a number of seconds from 1 to 60");
    CHECK_INT(ms, 60000);
}

static void
expect_dropped(const char *address, const char *rest)
{
    char text[64];

    (void)snprintf(text, sizeof text, "%s", address);
    stet__option_drop(text, "create");
    CHECK_STR(text, rest);
}

TEST(A10_an_option_is_taken_out_of_an_address)
{
    expect_dropped("redis://h", "redis://h");
    expect_dropped("redis://h?create=0", "redis://h");
    expect_dropped("redis://h?create=0&prefix=a", "redis://h?prefix=a");
    expect_dropped("redis://h?prefix=a&create=0", "redis://h?prefix=a");
    expect_dropped("redis://h?a=1&create=&b=2", "redis://h?a=1&b=2");
    expect_dropped("redis://h?created=1&x=create", "redis://h?created=1&x=create");
}

static void
expect_twice(const char *address, const char *name)
{
    stet_engine *e = NULL;
    char         said[64];

    (void)snprintf(said, sizeof said, "the option \"%s\" is given twice", name);
    CHECK_CODE(stet_open(&e, address, NULL), STET_EURL);
    CHECK(e == NULL);
    CHECK_HAS(stet_last_error(), said);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
}

/* Nothing is connected to, and no file is made. */
TEST(A10_every_address_refuses_an_option_that_is_given_twice)
{
    stet_engine *e = NULL;

    expect_twice("memory:?queue=none&queue=local", "queue");
#ifdef STET_WITH_SQLITE
    expect_twice("no-such-dir/x.db?prefix=a&prefix=b", "prefix");
    expect_twice("sqlite:no-such-dir/x.db?repair=1&queue=none&repair=1", "repair");
#endif
#ifdef STET_WITH_POSTGRES
    expect_twice("postgres://u:hush@127.0.0.1:1/db?schema=a&schema=b", "schema");
    expect_twice("postgres://127.0.0.1:1/db?sslmode=disable&schema=b&sslmode=require", "sslmode");
    expect_twice("postgresql://127.0.0.1:1/db?password=hush&password=hush", "password");
#endif
#ifdef STET_WITH_REDIS
    expect_twice("redis://:hush@127.0.0.1:1/0?prefix=a&prefix=a", "prefix");
    expect_twice("redis://127.0.0.1:1?create=1&prefix=a&create=0", "create");
#endif
#if defined STET_WITH_RABBITMQ && defined STET_WITH_SQLITE
    CHECK_CODE(
        stet_open(&e, test_path("x.db"),
                  STET_OPTIONS(.queue = "amqp://u:hush@127.0.0.1:1/?prefix=a&ttl=3&prefix=b")),
        STET_EURL);
    CHECK_HAS(stet_last_error(), "the option \"prefix\" is given twice");
    CHECK(strstr(stet_last_error(), "hush") == NULL);
#endif
    CHECK(e == NULL);
}

#ifdef STET_WITH_REDIS
/* Asking whether there is a store adds an option that the address may have. */
TEST(I5_a_store_is_looked_for_also_if_its_address_says_what_is_added)
{
    CHECK_CODE(stet__store_exists(stet__platform_real(), "redis://127.0.0.1:1/0?create=0"),
               STET_EIO);
    CHECK_HAS(stet_last_error(), "refused");
}
#endif
