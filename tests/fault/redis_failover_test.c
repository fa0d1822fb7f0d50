/* A Redis server that is no longer the one to write to, and another in its place: a connection that
 * was told so is left, whatever was asked there, and with it all others; hints come again. */
#include <stdatomic.h>

#include "fixture.h"
#include "proxy.h"
#include "redis_pair.h"
#include "store/redis.h"

__attribute__((constructor)) static void
failover_share(void)
{
    test_before(redis_server_share);
}

/* ---- servers --------------------------------------------------------------------------------- */

/* How often it refused something because of that. */
static long long
server_is_full(int port)
{
    const char *count = strstr(redis_field(port, "errorstats", "errorstat_OOM"), "=");

    return count != NULL ? strtoll(count + 1, NULL, 10) : 0;
}

/* A primary, its replica, and a handle that reaches the one the address leads to. */
typedef struct failover {
    redis_server *old, *next;
    proxy        *proxy;
    stet_store   *s;
    uint64_t      seq;
    atomic_int    heard;
} failover;

static void
failover_begin(failover *f)
{
    memset(f, 0, sizeof *f);
    (void)setenv("TMPDIR", test_dir(), 1); /* crumbs go with the test */
    redis_pair(&f->old, &f->next);
    f->proxy = proxy_new_redis(f->old->port);
    CHECK_OK(stet__store_open(&f->s, stet__platform_real(),
                              redis_server_url_at(proxy_port(f->proxy), "two")));
}

static void
failover_happens(failover *f)
{
    redis_pair_swap(f->old, f->next);
    proxy_lead(f->proxy, f->next->port);
}

static void
failover_end(failover *f)
{
    stet__store_close(f->s);
    proxy_free(f->proxy);
    redis_server_free(f->next);
    redis_server_free(f->old);
}

/* ---- what is asked --------------------------------------------------------------------------- */

static stet_id
run_id(uint64_t n)
{
    uint8_t random[10] = { 0 };

    random[8] = (uint8_t)(n >> 8);
    random[9] = (uint8_t)n;
    return stet__id_make(1700000000000 + (int64_t)n, random);
}

static int
put_at(stet_store *s, uint64_t seq, stet_outcome *out)
{
    stet_op op = {
        .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"), .data = stet_text("v")
    };
    stet_unit unit = { .seq = seq, .ops = &op, .n_ops = 1 };

    return s->ops->commit(s, &unit, 1, out);
}

/* One more value "k", of which everybody is told; no quick script takes that. */
static int
put(stet_store *s, uint64_t seq)
{
    stet_outcome out;
    int          err = put_at(s, seq, &out);

    if (err == STET_OK)
        CHECK_CODE(out.result, STET_OK);
    return err;
}

/* A run that is due, by a quick script. */
static int
start(stet_store *s, uint64_t seq)
{
    stet_run_row row = { .id = run_id(seq), .handler = "h.b", .status = 1, .ended_ms = STET_NEVER };
    stet_cond    cond = { .kind = STET_COND_JOURNAL, .run = row.id };
    stet_op      ops[] = { { .kind = STET_OP_RUN_PUT, .row = &row, .run = row.id },
                           { .kind = STET_OP_FACTS,
                             .run = row.id,
                             .number = 1,
                             .count = 1,
                             .data = stet_text("facts") } };
    stet_unit    unit = { .seq = seq, .conds = &cond, .n_conds = 1, .ops = ops, .n_ops = 2 };
    stet_outcome out;
    int          err = s->ops->commit(s, &unit, 1, &out);

    if (err == STET_OK)
        CHECK_CODE(out.result, STET_OK);
    return err;
}

static int
get(stet_store *s, uint64_t *version)
{
    stet_value value;
    int        err = s->ops->value(s, "s", stet_text("k"), &value);

    *version = err == STET_OK ? value.version : 0;
    if (err == STET_OK)
        stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    return err;
}

static uint64_t
version(stet_store *s)
{
    uint64_t is;

    CHECK_OK(get(s, &is));
    return is;
}

static int
on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    (void)arg, (void)first, (void)count, (void)facts;
    return STET_OK;
}

/* By a script that only reads. */
static int
look(stet_store *s)
{
    return s->ops->inbox(s, run_id(1), 1, 10, on_facts, NULL);
}

static int
session(stet_store *s)
{
    uint64_t number;

    return s->ops->session_open(s, &number, run_id(1), 600000, stet_text(""));
}

/* ---- a server that became a replica ---------------------------------------------------------- */

/* What it refused was not done, and is not in doubt. */
TEST(G4_redis_a_commit_leaves_a_server_that_became_a_replica)
{
    failover     f;
    stet_outcome out;

    failover_begin(&f);
    CHECK_OK(put(f.s, 1));
    failover_happens(&f);
    CHECK_CODE(put(f.s, 2), STET_EIO);
    CHECK_HAS(stet_last_error(), "name the primary");
    CHECK_OK(put_at(f.s, 2, &out));
    CHECK_CODE(out.result, STET_OK);
    CHECK(!out.is_repeat);
    CHECK_INT(version(f.s), 2);
    failover_end(&f);
}

/* The script that is asked next is asked at the new one. */
TEST(G4_redis_a_quick_commit_leaves_a_server_that_became_a_replica)
{
    failover f;

    failover_begin(&f);
    CHECK_OK(start(f.s, 1));
    CHECK_INT(redis_of(f.s)->n_quick[REDIS_STARTS], 1);
    failover_happens(&f);
    CHECK_OK(start(f.s, 2));
    failover_end(&f);
}

/* Who only reads there is refused nothing: others find out. */
TEST(G4_redis_reads_leave_a_server_that_became_a_replica_with_the_writes)
{
    failover    f;
    stet_store *other;

    failover_begin(&f);
    CHECK_OK(put(f.s, 1));
    CHECK_INT(version(f.s), 1);
    failover_happens(&f);
    CHECK_OK(stet__store_open(&other, stet__platform_real(), redis_server_url(f.next, "two")));
    CHECK_OK(put(other, 1));
    CHECK_INT(version(f.s), 1); /* late, as a replica may be */
    CHECK_OK(session(f.s));
    CHECK_INT(version(f.s), 2);
    stet__store_close(other);
    failover_end(&f);
}

/* A replica that has lost its primary may refuse even that. */
TEST(G4_redis_reads_leave_a_replica_that_answers_nothing)
{
    failover f;

    failover_begin(&f);
    CHECK_OK(put(f.s, 1));
    CHECK_INT(version(f.s), 1);
    CHECK_OK(look(f.s));
    (void)redis_ask(f.old->port, "CONFIG SET replica-serve-stale-data no");
    failover_happens(&f);
    CHECK_INT(version(f.s), 1);
    CHECK_OK(look(f.s));
    failover_end(&f);
}

/* While the address still leads to the old one nothing is read there that may be late. */
TEST(G4_redis_no_connection_is_made_to_a_replica)
{
    failover f;
    uint64_t is;

    failover_begin(&f);
    CHECK_OK(put(f.s, 1));
    CHECK_INT(version(f.s), 1);
    redis_pair_swap(f.old, f.next);
    CHECK_CODE(session(f.s), STET_EREADONLY);
    CHECK_CODE(get(f.s, &is), STET_EREADONLY);
    CHECK_HAS(stet_last_error(), "replica");
    proxy_lead(f.proxy, f.next->port);
    AWAIT(get(f.s, &is) == STET_OK);
    CHECK_INT(is, 1);
    AWAIT(put(f.s, 2) == STET_OK);
    failover_end(&f);
}

/* ---- every answer, on every way -------------------------------------------------------------- */

typedef struct elsewhere_world {
    proxy      *proxy;
    stet_store *s;
    uint64_t    seq;
} elsewhere_world;

/* Connections made since the last census. */
static size_t
greetings(proxy *p)
{
    static proxy_kind kinds[PROXY_KINDS_MAX];
    size_t            n = proxy_census(p, kinds), made = 0;

    for (size_t i = 0; i < n; i++)
        if (strcmp(kinds[i].name, "HGET") == 0)
            made += kinds[i].requests;
    return made;
}

enum { WAYS = 5 };

static int
elsewhere_go(elsewhere_world *w, int way)
{
    switch (way) {
    case 0: return put(w->s, ++w->seq);
    case 1: return start(w->s, ++w->seq);
    case 2: return w->s->ops->ping(w->s);
    case 3: return look(w->s);
    default: return session(w->s);
    }
}

static const char *
elsewhere_request(elsewhere_world *w, int way)
{
    static const redis_script scripts[WAYS] = { REDIS_COMMIT, REDIS_STARTS, REDIS_SCRIPTS,
                                                REDIS_READ, REDIS_SESSION };
    static char               name[32];

    if (scripts[way] == REDIS_SCRIPTS)
        return "TIME";
    (void)snprintf(name, sizeof name, "EVALSHA %.8s", redis_of(w->s)->sha[scripts[way]]);
    return name;
}

static void
elsewhere_begin(elsewhere_world *w)
{
    memset(w, 0, sizeof *w);
    w->proxy = proxy_new_redis((int)strtol(getenv(REDIS_SERVER_ENV), NULL, 10));
    (void)setenv("TMPDIR", test_dir(), 1);
    CHECK_OK(stet__store_open(&w->s, stet__platform_real(),
                              redis_server_url_at(proxy_port(w->proxy), test_unique())));
    for (int way = 0; way < WAYS; way++)
        CHECK_OK(elsewhere_go(w, way));
    CHECK(greetings(w->proxy) > 0);
}

static void
elsewhere_end(elsewhere_world *w)
{
    stet__store_close(w->s);
    proxy_free(w->proxy);
}

/* How many connections are made because of this answer, until the same thing is done. */
static size_t
elsewhere_made(elsewhere_world *w, const char *answer, int way)
{
    int before = proxy_faults(w->proxy), err;

    proxy_answer(w->proxy, answer, strlen(answer));
    proxy_fault_at(w->proxy, PROXY_ANSWER, elsewhere_request(w, way), 1);
    err = elsewhere_go(w, way);
    CHECK_INT(proxy_faults(w->proxy), before + 1);
    if (err != STET_OK) {
        CHECK(err != STET_EUNCERTAIN);
        w->seq -= way <= 1;
        CHECK_OK(elsewhere_go(w, way));
    }
    return greetings(w->proxy);
}

TEST(G4_redis_whoever_is_sent_elsewhere_connects_anew)
{
    static const char *const answers[] = {
        "-READONLY You can't write against a read only replica.\r\n",
        /* Redis 6.2 */
        "-ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -READONLY \r\n",
        "-MOVED 1 127.0.0.1:1\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
    };
    elsewhere_world w;

    elsewhere_begin(&w);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        for (int way = 0; way < WAYS; way++)
            if (elsewhere_made(&w, answers[i], way) == 0)
                test_fail(__FILE__, __LINE__, "after %.60s to %s the connection is kept",
                          answers[i], elsewhere_request(&w, way));
    elsewhere_end(&w);
}

TEST(G4_redis_whoever_is_refused_otherwise_keeps_the_connection)
{
    static const char *const answers[] = { "-OOM command not allowed\r\n", "-ERR made up\r\n",
                                           "-NOSCRIPT No matching script\r\n" };
    elsewhere_world          w;

    elsewhere_begin(&w);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        for (int way = 0; way < WAYS; way++)
            CHECK_INT(elsewhere_made(&w, answers[i], way), 0);
    elsewhere_end(&w);
}

/* ---- hints ----------------------------------------------------------------------------------- */

static void
on_hint(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* The one that watches waits at the stream of this server, and listens at its channel. */
static bool
is_watching(int port, const char *prefix)
{
    return redis_number(port, "clients", "blocked_clients") == 1 &&
           strtol(redis_ask(port, "PUBSUB NUMSUB {%s}:n", prefix), NULL, 10) == 1;
}

static bool
is_heard(atomic_int *heard, stet_store *other, uint64_t *seq)
{
    int before = atomic_load(heard);

    CHECK_OK(put(other, ++*seq));
    fixture_breathe();
    return atomic_load(heard) > before;
}

TEST(G9_redis_hints_come_from_the_server_that_took_over)
{
    failover    f;
    stet_store *other;
    uint64_t    seq = 0;

    failover_begin(&f);
    CHECK_OK(f.s->ops->watch(f.s, on_hint, &f.heard));
    AWAIT(is_watching(f.old->port, "two"));
    failover_happens(&f);
    AWAIT(is_watching(f.next->port, "two"));
    CHECK_OK(stet__store_open(&other, stet__platform_real(), redis_server_url(f.next, "two")));
    AWAIT(is_heard(&f.heard, other, &seq));
    stet__store_close(other);
    failover_end(&f);
}

/* The other one is not silent. */
static bool
is_listening_at(int port, int other)
{
    (void)redis_ask(other, "PUBLISH {two}:n somebody");
    return strcmp(redis_ask(port, "PUBSUB NUMSUB {two}:n"), "1") == 0;
}

/* Nothing breaks there; a renewal of a lease finds out, for the hints as well. */
TEST(G9_redis_who_only_listens_leaves_with_the_others)
{
    failover f;

    failover_begin(&f);
    f.s->is_client = true;
    CHECK_OK(f.s->ops->watch(f.s, on_hint, &f.heard));
    AWAIT(strcmp(redis_ask(f.old->port, "PUBSUB NUMSUB {two}:n"), "1") == 0);
    failover_happens(&f);
    CHECK_OK(session(f.s));
    AWAIT(is_listening_at(f.next->port, f.old->port));
    failover_end(&f);
}

typedef struct watched {
    redis_server *server;
    proxy        *proxy;
    stet_store   *s, *other;
    uint64_t      seq; /* of the other */
    atomic_int    heard;
} watched;

static void
watched_begin(watched *w)
{
    memset(w, 0, sizeof *w);
    (void)setenv("TMPDIR", test_dir(), 1);
    w->server = redis_one();
    w->proxy = proxy_new_redis(w->server->port);
    CHECK_OK(stet__store_open(&w->s, stet__platform_real(),
                              redis_server_url_at(proxy_port(w->proxy), "one")));
    CHECK_OK(
        stet__store_open(&w->other, stet__platform_real(), redis_server_url(w->server, "one")));
    CHECK_OK(w->s->ops->watch(w->s, on_hint, &w->heard));
    AWAIT(is_watching(w->server->port, "one"));
}

static void
watched_end(watched *w)
{
    stet__store_close(w->other);
    stet__store_close(w->s);
    proxy_free(w->proxy);
    redis_server_free(w->server);
}

/* There is always something to hear of. */
static bool
is_watching_again(watched *w)
{
    CHECK_OK(put(w->other, ++w->seq));
    return is_watching(w->server->port, "one");
}

/* The group is left with an error, and at first cannot be joined again. */
TEST(G9_redis_the_group_is_joined_later_if_it_cannot_be_joined_now)
{
    watched w;

    watched_begin(&w);
    proxy_answer(w.proxy, "-OOM command not allowed\r\n", 26);
    proxy_fault_at(w.proxy, PROXY_ANSWER, "XGROUP CREATE", 1);
    (void)redis_ask(w.server->port, "XGROUP DESTROY {one}:h workers"); /* whoever waits is told */
    AWAIT(proxy_faults(w.proxy) == 1);
    AWAIT(is_watching_again(&w));
    AWAIT(is_heard(&w.heard, w.other, &w.seq));
    watched_end(&w);
}

/* One without our own name. */
static bool
is_told(watched *w)
{
    int before = atomic_load(&w->heard);

    (void)redis_ask(w->server->port, "PUBLISH {one}:n somebody");
    fixture_breathe();
    return atomic_load(&w->heard) > before;
}

/* Also if that takes long: what is published is heard meanwhile. */
TEST(G9_redis_who_cannot_join_the_group_listens_all_the_same)
{
    watched w;

    watched_begin(&w);
    (void)redis_ask(w.server->port, "CONFIG SET maxmemory 1");
    (void)redis_ask(w.server->port, "XGROUP DESTROY {one}:h workers");
    AWAIT(server_is_full(w.server->port) > 1);
    AWAIT(is_told(&w));
    CHECK(!is_watching(w.server->port, "one"));
    (void)redis_ask(w.server->port, "CONFIG SET maxmemory 0");
    AWAIT(is_watching_again(&w));
    watched_end(&w);
}

TEST(G9_redis_the_channel_is_listened_to_later_if_that_is_refused_now)
{
    watched w;

    watched_begin(&w);
    proxy_answer(w.proxy, "-NOPERM no permissions to access a channel\r\n", 44);
    proxy_fault_at(w.proxy, PROXY_ANSWER, "SUBSCRIBE", 1);
    (void)redis_ask(w.server->port, "CLIENT KILL TYPE pubsub");
    AWAIT(proxy_faults(w.proxy) == 1);
    AWAIT(is_watching_again(&w));
    AWAIT(is_heard(&w.heard, w.other, &w.seq));
    watched_end(&w);
}

/* Nobody waits for the answer to an acknowledgement, but it is read. */
TEST(G9_redis_an_acknowledgement_that_is_refused_by_a_replica_is_heeded)
{
    watched w;
    size_t  made = 0;

    watched_begin(&w);
    (void)greetings(w.proxy);
    proxy_answer(w.proxy, "-READONLY You can't write\r\n", 27);
    proxy_fault_at(w.proxy, PROXY_ANSWER, "XACK", 1);
    (void)redis_ask(w.server->port, "XADD {one}:h * c somebody");
    AWAIT(proxy_faults(w.proxy) == 1);
    AWAIT((made += greetings(w.proxy)) >= 2); /* one to hear, one for the stream */
    AWAIT(is_watching_again(&w));
    watched_end(&w);
}
