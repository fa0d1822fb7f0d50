/* Addresses: which store they mean, and how they are shown. */
#include "platform/platform.h"
#include "store/store.h"
#include "test.h"

static void
expect_shown(const char *address, const char *want)
{
    char shown[256];

    CHECK_STR(stet__store_shown(shown, sizeof shown, address), want);
}

TEST(G3_an_address_is_shown_without_its_password)
{
    expect_shown("shop.db?prefix=a", "shop.db?prefix=a");
    expect_shown("memory:", "memory:");
    expect_shown("postgres://h/db", "postgres://h/db");
    expect_shown("postgres://u@h:5432/db?schema=s", "postgres://u@h:5432/db?schema=s");
    expect_shown("postgres://u:hush@h:5432/db", "postgres://u:…@h:5432/db");
    expect_shown("postgres://u:hu@sh@h/db", "postgres://u:…@h/db");
    expect_shown("postgres://u:hu/sh@h/db?schema=s", "postgres://u:…@h/db?schema=s");
    expect_shown("postgres://u:hu?sh@h/db?schema=s", "postgres://u:…@h/db?schema=s");
    expect_shown("postgres://u:hu?sh@h?queue=amqp://x:hush@y", "postgres://u:…?…");
    expect_shown("postgres://h:1/db?queue=amqp://x:hush@y", "postgres://h:1/db?…");
    expect_shown("postgres://h/db?password=hush&schema=s", "postgres://h/db?password=…&schema=s");
    expect_shown("postgres://h/db?user=u&password=hush", "postgres://h/db?user=u&password=…");
    expect_shown("redis://:hush@h:6379/0", "redis://:…@h:6379/0");
    /* In a password "://" is no address. Found by the fuzzer. */
    expect_shown("postgre://u:hush?://x=y@h", "postgre://u:…@h");
    expect_shown("postgres://u:a@hush?x://b@h/db", "postgres://u:…@h/db");
    expect_shown("postgres://h/db?schema=s&queue=amqps://x:hush@y", "postgres://h/db?…");
}

TEST(G3_a_short_buffer_shows_no_password_either)
{
    char shown[24];

    CHECK(strstr(stet__store_shown(shown, sizeof shown, "postgres://user:hush@h/db"), "hush") ==
          NULL);
    CHECK(strstr(stet__store_shown(shown, sizeof shown, "postgres://h/d?password=hush"), "hush") ==
          NULL);
}

TEST(G3_an_address_without_a_store_is_refused_without_its_password)
{
    stet_store *store = NULL;

    CHECK_CODE(stet__store_open(&store, stet__platform_real(), "nosuch://u:hush@h/db"), STET_EURL);
    CHECK_HAS(stet_last_error(), "memory:");
    CHECK(strstr(stet_last_error(), "hush") == NULL);
#ifndef STET_WITH_POSTGRES
    CHECK_CODE(stet__store_open(&store, stet__platform_real(), "postgres://u:hush@h/db"),
               STET_EURL);
    CHECK_HAS(stet_last_error(), "this build has no PostgreSQL");
    CHECK(strstr(stet_last_error(), "hush") == NULL);
#endif
}
