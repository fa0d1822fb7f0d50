/* Hints as bytes, the box of those to be sent, addresses of queues. */
#include <string.h>

#include <stet.h>

#include "engine/engine.h"
#include "fault_platform.h"
#include "queue/queue.h"
#include "test.h"

static stet_hint
hint_of(stet_hint_kind kind, const char *handler)
{
    stet_hint hint;

    memset(&hint, 0, sizeof hint);
    hint.kind = kind;
    (void)snprintf(hint.handler, sizeof hint.handler, "%s", handler);
    return hint;
}

TEST(G9_a_hint_survives_its_bytes)
{
    uint8_t   bytes[STET__HINT_BYTES_MAX];
    stet_id   self = { { 1, 2, 3 } }, from;
    stet_hint sent = hint_of(STET_HINT_WORK, "shop.checkout"), got;
    size_t    len;

    sent.time_ms = 1700000000123;
    sent.run = (stet_id){ { 9, 8, 7 } };
    len = stet__hint_encode(bytes, self, &sent);
    stet__hint_decode(&got, &from, bytes, len);
    CHECK(stet__hint_equal(&sent, &got));
    CHECK(stet__id_equal(self, from));
}

TEST(G9_the_longest_name_fits)
{
    uint8_t   bytes[STET__HINT_BYTES_MAX];
    stet_id   from;
    stet_hint sent = hint_of(STET_HINT_WORK, ""), got;

    memset(sent.handler, 'x', sizeof sent.handler - 1);
    stet__hint_decode(&got, &from, bytes, stet__hint_encode(bytes, (stet_id){ { 0 } }, &sent));
    CHECK(stet__hint_equal(&sent, &got));
}

/* Every length, and every byte of a good one changed: always a hint that is whole. */
TEST(G9_whatever_the_bytes_are_they_are_a_hint)
{
    uint8_t   good[STET__HINT_BYTES_MAX + 64], bad[sizeof good];
    stet_hint sent = hint_of(STET_HINT_WORK, "shop.checkout"), got;
    stet_id   from;
    size_t    len;

    memset(good, 'x', sizeof good);
    len = stet__hint_encode(good, (stet_id){ { 5 } }, &sent);
    for (size_t n = 0; n <= sizeof good; n++) {
        stet__hint_decode(&got, &from, good, n);
        CHECK((int)got.kind <= STET_HINT_TIMER);
        CHECK(memchr(got.handler, '\0', sizeof got.handler) != NULL);
        if (n < 44 || n - 44 >= STET_HINT_HANDLER_MAX)
            CHECK_INT(got.kind, STET_HINT_ANY);
    }
    for (size_t at = 0; at < len; at++)
        for (int value = 0; value < 256; value++) {
            memcpy(bad, good, len);
            bad[at] = (uint8_t)value;
            stet__hint_decode(&got, &from, bad, len);
            CHECK((int)got.kind <= STET_HINT_TIMER && got.time_ms >= 0);
            CHECK(memchr(got.handler, '\0', sizeof got.handler) != NULL);
        }
}

TEST(G9_a_kind_or_version_of_the_future_is_any)
{
    uint8_t   bytes[STET__HINT_BYTES_MAX];
    stet_hint sent = hint_of(STET_HINT_WORK, "shop.checkout"), got;
    stet_id   from, self = { { 5 } };
    size_t    len = stet__hint_encode(bytes, self, &sent);

    bytes[3] = 77;
    stet__hint_decode(&got, &from, bytes, len);
    CHECK_INT(got.kind, STET_HINT_ANY);
    bytes[3] = STET_HINT_WORK;
    bytes[2] = 2;
    stet__hint_decode(&got, &from, bytes, len);
    CHECK_INT(got.kind, STET_HINT_ANY);
    CHECK(stet__id_equal(from, self)); /* nobody hears himself, in no version */
}

TEST(G9_a_full_box_drops_the_oldest_and_says_so)
{
    stet__outbox box = { 0 };
    stet_hint    hint;
    char         name[16];

    CHECK_OK(stet__outbox_open(&box, stet__platform_real()));
    for (int i = 0; i < (int)STET__OUTBOX_MAX + 3; i++) {
        (void)snprintf(name, sizeof name, "t.h%d", i);
        hint = hint_of(STET_HINT_WORK, name);
        stet__outbox_put(&box, &hint);
        stet__outbox_put(&box, &hint); /* an equal one that waits is enough */
    }
    CHECK_INT(stet__outbox_dropped(&box), 3);
    CHECK(stet__outbox_take(&box, &hint));
    CHECK_INT(hint.kind, STET_HINT_ANY); /* for all that went */
    for (int i = 3; i < (int)STET__OUTBOX_MAX + 3; i++) {
        (void)snprintf(name, sizeof name, "t.h%d", i);
        CHECK(stet__outbox_take(&box, &hint));
        CHECK_STR(hint.handler, name);
    }
    CHECK(!stet__outbox_take(&box, &hint));
    stet__outbox_close(&box);
    stet__outbox_close(&box);
}

/* ---- without memory -------------------------------------------------------------------------- */

static stet_hint_use
take_nothing(void *arg, const stet_hint *hint)
{
    (void)arg;
    (void)hint;
    return STET_HINT_TAKEN;
}

/* Each allocation fails in turn: it is said, or the port works; nothing is left behind. */
static long
without_memory(const char *address)
{
    stet__hint_setup setup = { 0 };
    stet_hint        hint = hint_of(STET_HINT_WORK, "t.h");
    fault_platform   p;
    long             nth = 0;

    do {
        stet_hint_port *port;

        fault_platform_init(&p);
        fault_platform_arm(&p, nth++, 1);
        if (stet__hint_open(&port, &p.base, address, &setup) == STET_OK) {
            (void)port->ops->watch(port, 0, take_nothing, NULL);
            port->ops->send(port, &hint);
            stet__hint_close(port);
        } else
            CHECK(port == NULL);
        CHECK_INT(p.live, 0);
    } while (p.failed > 0);
    return nth - 1;
}

TEST(G9_a_port_without_memory_says_so_and_leaves_nothing)
{
    test_note("failed each of %ld allocations", without_memory("none") + without_memory("local:m"));
#ifdef STET_WITH_RABBITMQ
    CHECK(without_memory("amqp://u:p@127.0.0.1:1/?connect_timeout=1") >= 3);
#endif
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void
expect_split(const char *url, const char *store, const char *queue)
{
    char *got_store, *got_queue;

    CHECK_OK(stet__hint_split(stet__platform_real(), url, &got_store, &got_queue));
    CHECK_STR(got_store, store);
    if (queue == NULL)
        CHECK(got_queue == NULL);
    else
        CHECK_STR(got_queue, queue);
    stet__free(&stet__platform_real()->alloc, got_store);
    stet__hint_wipe(stet__platform_real(), got_queue);
}

TEST(G9_the_queue_is_taken_out_of_the_stores_address)
{
    expect_split("shop.db", "shop.db", NULL);
    expect_split("shop.db?prefix=a", "shop.db?prefix=a", NULL);
    expect_split("shop.db?queue=none", "shop.db", "none");
    expect_split("shop.db?queue=", "shop.db", "");
    expect_split("shop.db?queue=none&prefix=a", "shop.db?prefix=a", "none");
    expect_split("shop.db?prefix=a&queue=local:b&vfs=c", "shop.db?prefix=a&vfs=c", "local:b");
    expect_split("postgres://u:p@h/d?schema=s&queue=amqp://u:p@h:1/v?prefix=x&ttl=3",
                 "postgres://u:p@h/d?schema=s", "amqp://u:p@h:1/v?prefix=x&ttl=3");
    expect_split("queue=none", "queue=none", NULL); /* a file */
    expect_split("a.db?xqueue=1", "a.db?xqueue=1", NULL);
}

static void
expect_refused(const char *queue, int code, const char *said)
{
    stet__hint_setup setup = { 0 };
    stet_hint_port  *port;
    stet_engine     *e;

    CHECK_CODE(stet__hint_open(&port, stet__platform_real(), queue, &setup), code);
    CHECK(port == NULL);
    CHECK_HAS(stet_last_error(), said);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    /* As a program does it. */
    CHECK_CODE(stet_open(&e, test_path("a.db"), STET_OPTIONS(.queue = queue)), code);
    CHECK_HAS(stet_last_error(), said);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
}

TEST(G9_an_unknown_queue_is_refused_and_the_nearest_named)
{
    expect_refused("loca", STET_EURL, "did you mean local?");
    expect_refused("nnoe", STET_EURL, "did you mean none?");
    expect_refused("carrier-pigeon://hush@loft", STET_EURL, "this build has: store, none, local");
    expect_refused("", STET_EURL, "this build has");
    expect_refused("none:hush", STET_EURL, "none");
    expect_refused("local:a b", STET_EURL, "letters, digits");
    expect_refused("local:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", STET_EURL, "at most 40");
}

#ifdef STET_WITH_RABBITMQ
static void
expect_opens(const char *queue)
{
    stet__hint_setup setup = { 0 };
    stet_hint_port  *port;

    CHECK_OK(stet__hint_open(&port, stet__platform_real(), queue, &setup));
    stet__hint_close(port);
}

TEST(G5_a_good_address_opens_without_asking_the_network)
{
    expect_opens("amqp://localhost");
    expect_opens("amqp://u:p@no-such-host.invalid:1/");
    expect_opens("amqp://u%40x:p%2Fq@h:5672/my%2Fvhost?prefix=shop&heartbeat=5&ttl=9");
    expect_opens("amqp://u:p@w@h/v"); /* the last '@' ends the password */
    expect_opens("amqp://[::1]:5672/v?connect_timeout=1");
    expect_opens("amqps://u:p@h?cacert=/no/where&verify=0");
    expect_opens("amqps://u:p@h?cacert=/else%2fwhere&verify=1");
    expect_opens("amqp://u@h"); /* a user without a password has an empty one */
    expect_opens("amqp://u:@h/?");
    expect_opens("amqp://%c3%A4:%7e@h");
}

/* 150 of them */
#define HINT_TEN  "aaaaaaaaaa"
#define HINT_LONG                                                                                  \
    HINT_TEN HINT_TEN HINT_TEN HINT_TEN HINT_TEN HINT_TEN HINT_TEN HINT_TEN HINT_TEN HINT_TEN      \
        HINT_TEN HINT_TEN HINT_TEN HINT_TEN HINT_TEN

TEST(G5_a_bad_address_says_what_is_wrong_and_no_password)
{
    expect_refused("amqp://u:hush@h?prefx=a", STET_EURL, "did you mean prefix?");
    expect_refused("amqps://u:p@h?cacert=/hush&cacert=/no", STET_EURL, "\"cacert\" is given twice");
    expect_refused("amqp://u:hush@h?hartbeat=5", STET_EURL, "did you mean heartbeat?");
    expect_refused("amqp://u:hush@h?conect_timeout=5", STET_EURL, "did you mean connect_timeout?");
    expect_refused("amqp://u:hush@h?zzz=hush", STET_EURL, "unknown option \"zzz\"");
    expect_refused("amqp://u:hush@h?prefix", STET_EURL, "NAME=VALUE");
    expect_refused("amqp://u:hush@h?prefix=a b", STET_EURL, "a prefix is");
    expect_refused("amqp://u:hush@h?prefix=amq.x", STET_EURL, "a prefix is");
    expect_refused("amqp://u:hush@h?ttl=0", STET_EURL, "from 1 to 86400");
    expect_refused("amqp://u:hush@h?heartbeat=hush", STET_EURL, "from 1 to 3600");
    expect_refused("amqp://u:hush@h?heartbeat=+5", STET_EURL, "from 1 to 3600");
    expect_refused("amqp://u:hush@h?connect_timeout=61", STET_EURL, "from 1 to 60");
    expect_refused("amqps://u:hush@h?verify=2", STET_EURL, "verify is 0 or 1");
    expect_refused("amqp://u:hush@h:0", STET_EURL, "a number from 1 to 65535");
    expect_refused("amqp://u:hush@h?ttl=86401", STET_EURL, "from 1 to 86400");
    expect_refused("amqp://u:hush@h?ttl=", STET_EURL, "from 1 to 86400");
    expect_refused("amqp://u:hush@h?ttl=100000000000000", STET_EURL, "from 1 to 86400");
    expect_refused("amqp://u:hush@h?connect_timeout=61", STET_EURL, "from 1 to 60");
    expect_refused("amqps://u:hush@h?verify=2", STET_EURL, "verify is 0 or 1");
    expect_refused("amqp://u:hush@h?=x", STET_EURL, "NAME=VALUE");
    expect_refused("amqp://u:hush@h?prefix=", STET_EURL, "a prefix is");
    expect_refused("amqp://u:hush@h?prefix=" HINT_LONG, STET_EURL, "a prefix is");
    expect_refused("amqp://u:hush@h?" HINT_LONG "=x", STET_EURL, "unknown option \"aaaaaaaaaa");
    expect_refused("amqp://u:hush@h?verify=0", STET_EURL, "amqps://");
    expect_refused("amqp://u:12?hush=1@h", STET_EURL, "'@' behind the '?'");
    expect_refused("amqp://u:12?prefix=a&hush@h=1", STET_EURL, "'@' behind the '?'");
    expect_refused("amqp://u%:hush@h", STET_EURL, "'%' in the user");
    expect_refused("amqp://u%4:hush@h", STET_EURL, "'%' in the user");
    expect_refused("amqp://u:hush%4g@h", STET_EURL, "'%' in the password");
    expect_refused("amqp://u:hush%g4@h", STET_EURL, "'%' in the password");
    expect_refused("amqp://u:hush%00@h", STET_EURL, "'%' in the password");
    expect_refused("amqps://u:hush@h?cacert=%", STET_EURL, "'%' in the cacert");
    expect_refused("amqp://u:hush@h/%2", STET_EURL, "'%' in the vhost");
    expect_refused("amqp://" HINT_LONG HINT_LONG ":hush@h", STET_EURL, "the user has more than");
    expect_refused("amqp://u:hush@h/" HINT_LONG HINT_LONG, STET_EURL, "the vhost has more than");
    expect_refused("amqp://u:hush@" HINT_LONG HINT_LONG, STET_EURL, "the host is no name");
    expect_refused("amqp://u:hush@a b", STET_EURL, "the host is no name");
    expect_refused("amqp://u:hush@[::1]5672", STET_EURL, "the host is no name");
    expect_refused("amqp://u:hush@h:/", STET_EURL, "the port is a number");
    expect_refused("amqp://u:hush@h?cacert=x", STET_EURL, "amqps://");
    expect_refused("amqp://u:hush@h:99999/", STET_EURL, "the port is a number");
    expect_refused("amqp://u:hush@h:hush/", STET_EURL, "the port is a number");
    expect_refused("amqp://u:hush@/v", STET_EURL, "the host is no name");
    expect_refused("amqp://:hush@h/v", STET_EURL, "no user");
    expect_refused("amqp://u:hush%zz@h/v", STET_EURL, "hexadecimal");
    expect_refused("amqp://u:hush%0", STET_EURL, "port");
    expect_refused("amqp://u:p@[::1/v", STET_EURL, "has no end");
    expect_refused("amqp", STET_EURL, "amqp://USER:PASSWORD@HOST");
    expect_refused("amqps", STET_EURL, "amqp://USER:PASSWORD@HOST");
    expect_refused("amqp:u:hush@h", STET_EURL, "amqp://USER:PASSWORD@HOST");
    expect_refused("amqpx://u:hush@h", STET_EURL, "did you mean amqp?");
}
#else
TEST(G5_a_build_without_rabbitmq_says_so)
{
    expect_refused("amqp://u:hush@h", STET_EURL, "this build has no RabbitMQ");
    expect_refused("amqps://u:hush@h", STET_EURL, "librabbitmq-dev");
}
#endif

TEST(G9_combinations_that_cannot_work_are_refused)
{
    stet_engine *e;

    CHECK_CODE(stet_open(&e, "memory:?queue=local", NULL), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "nobody to tell");
    CHECK_OK(stet_open(&e, "memory:?queue=none", NULL));
    stet_close(e);
    CHECK_CODE(stet_open(&e, "a.db?queue=none", STET_OPTIONS(.queue = "local")), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "twice");
    CHECK_OK(stet_open(&e, test_path("a.db"), STET_OPTIONS(.queue = "local:polled")));
    CHECK_CODE(stet_engine_poll(e, NULL, 0), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "queue=store");
    stet_close(e);
}

/* A typing error in the option's own name must not show what comes behind it. */
TEST(G9_a_mistyped_option_of_the_store_does_not_show_the_password)
{
    stet_engine *e;
    char         url[256];

    (void)snprintf(url, sizeof url, "%s?quue=amqp://u:hush@h", test_path("a.db"));
    CHECK_CODE(stet_open(&e, url, NULL), STET_EURL);
    CHECK_HAS(stet_last_error(), "quue");
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    CHECK_CODE(stet_open(&e, "postgres://u@h/d?quue=amqp://u:hush@h", NULL), STET_EURL);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    CHECK_CODE(stet_open(&e, "redis://h?quue=amqp://u:hush@h", NULL), STET_EURL);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    CHECK_CODE(stet_open(&e, "memory:?quue=amqp://u:hush@h", NULL), STET_EURL);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    CHECK_CODE(stet_open(&e, "pigeon://u:hush@x?quue=amqp://u:hush@h", NULL), STET_EURL);
    CHECK_HAS(stet_last_error(), "pigeon://u:…@");
    CHECK(strstr(stet_last_error(), "hush") == NULL);
}

static int
never(stet_ctx *ctx, stet_bytes input)
{
    (void)ctx;
    (void)input;
    return STET_OK;
}

TEST(G9_a_move_takes_addresses_that_name_a_queue)
{
    static const stet_handler handlers[] = { { "never", never, NULL }, { 0 } };
    stet_engine              *e;
    stet_run_id               run;
    char                      from[256], to[256];

    CHECK_OK(stet_open(&e, test_path("from.db"), NULL));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_start(e, &run, "t.never", stet_text("{}"), NULL));
    stet_close(e);
    (void)snprintf(from, sizeof from, "%s?queue=none", test_path("from.db"));
    (void)snprintf(to, sizeof to, "%s?queue=local", test_path("to.db"));
    CHECK_OK(stet_move(NULL, from, to, NULL));
}
