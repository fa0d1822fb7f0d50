/* Redis when connections are cut, before and after each thing that is asked in turn: a store (what
 * is repeated until it is answered has happened once), and an engine (see cuts.h). */
#include <unistd.h>

#include "cuts.h"
#include "proxy.h"
#include "redis_server.h"
#include "store/redis.h"
#include "test.h"

enum { PIECES_MAX = 500, UNITS = 3 };

__attribute__((constructor)) static void
cut_share(void)
{
    test_before(redis_server_share);
}

typedef struct cut_world {
    proxy      *proxy;
    stet_store *store;
    char        url[128];
    int64_t     until_us;
} cut_world;

static const char *const handlers[] = { "h.b" };

static stet_id
run_id(uint32_t n)
{
    uint8_t random[10] = { 0 };

    random[9] = (uint8_t)n;
    return stet__id_make(1700000000000 + n, random);
}

/* Again until it is answered; a cut is no reason to give up. */
static bool
is_answered(cut_world *w, int err)
{
    if (err == STET_OK)
        return true;
    if (err != STET_EIO && err != STET_EUNCERTAIN)
        test_fail(__FILE__, __LINE__, "%s: %s", stet_code_name(err), stet_last_error());
    CHECK(stet__mono_us(stet__platform_real()) < w->until_us);
    return false;
}

#define UNTIL_ANSWERED(w, call)                                                                    \
    do {                                                                                           \
    } while (!is_answered(w, call))

static int
on_run(void *arg, const stet_run_row *row)
{
    CHECK_INT(row->epoch, 1); /* granted once */
    CHECK_INT(row->journal, 1);
    ++*(int *)arg;
    return 0;
}

static int
on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    CHECK(first == 1 && count == 1 && facts.len == 5);
    ++*(int *)arg;
    return 0;
}

/* Each makes a run and counts a value up; its run is granted. */
static void
commit_units(cut_world *w, uint64_t session)
{
    stet_claimer claimer = { session, 2, handlers, 1 };
    stet_run_row rows[UNITS];
    stet_op      ops[UNITS][3];
    stet_unit    units[UNITS];
    stet_outcome outs[UNITS];

    for (uint32_t i = 0; i < UNITS; i++) {
        rows[i] = (stet_run_row){ .id = run_id(i + 1), .handler = "h.b", .status = 1,
                                  .ended_ms = STET_NEVER };
        ops[i][0] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &rows[i], .run = rows[i].id,
                               .claimer = &claimer };
        ops[i][1] = (stet_op){ .kind = STET_OP_FACTS, .run = rows[i].id, .number = 1, .count = 1,
                               .data = stet_text("facts") };
        ops[i][2] = (stet_op){ .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"),
                               .data = stet_text("v") };
        units[i] = (stet_unit){ .seq = 1 + i, .ops = ops[i], .n_ops = 3 };
    }
    UNTIL_ANSWERED(w, w->store->ops->commit(w->store, units, UNITS, outs));
    for (uint32_t i = 0; i < UNITS; i++) {
        CHECK_CODE(outs[i].result, STET_OK);
        CHECK_INT(outs[i].n_grants, 1);
        stet__free(w->store->alloc, outs[i].grants);
    }
}

/* A life of a store, from its opening to its end. */
static void
live(cut_world *w)
{
    stet_run_query query = { .limit = 100 };
    uint64_t       session;
    stet_value     value;
    int            runs = 0, facts = 0;

    UNTIL_ANSWERED(w, stet__store_open(&w->store, stet__platform_real(), w->url));
    UNTIL_ANSWERED(w, w->store->ops->session_open(w->store, &session, run_id(9), 600000,
                                                  stet_text("")));
    commit_units(w, session);
    UNTIL_ANSWERED(w, w->store->ops->session_renew(w->store, session, 600000));
    UNTIL_ANSWERED(w, w->store->ops->value(w->store, "s", stet_text("k"), &value));
    CHECK_INT(value.version, UNITS);
    stet__free(w->store->alloc, (void *)(uintptr_t)value.data.data);
    UNTIL_ANSWERED(w, w->store->ops->runs(w->store, &query, on_run, &runs));
    CHECK_INT(runs, UNITS);
    for (uint32_t i = 1; i <= UNITS; i++)
        UNTIL_ANSWERED(w, w->store->ops->journal(w->store, run_id(i), 1, 9, on_facts, &facts));
    CHECK_INT(facts, UNITS);
    UNTIL_ANSWERED(w, w->store->ops->maintain(w->store));
    UNTIL_ANSWERED(w, w->store->ops->session_close(w->store, session));
    stet__store_close(w->store);
}

static proxy *
cut_proxy(void)
{
    return proxy_new_redis((int)strtol(getenv(REDIS_SERVER_ENV), NULL, 10));
}

static void
cut_everywhere(proxy_fault cut)
{
    cut_world w = { .proxy = cut_proxy() };
    int       n;

    for (n = 1; n < PIECES_MAX; n++) {
        (void)snprintf(w.url, sizeof w.url, "redis://127.0.0.1:%d/0?prefix=cut%d.%d",
                       proxy_port(w.proxy), (int)cut, n);
        w.until_us = stet__mono_us(stet__platform_real()) + 20000000;
        proxy_fault_at(w.proxy, cut, NULL, (size_t)n);
        live(&w);
        if (proxy_calm(w.proxy))
            break;
    }
    CHECK(n > 20 && n < PIECES_MAX);
    test_note("cut at %d places", n - 1);
    proxy_free(w.proxy);
}

TEST(G4_redis_connections_cut_before_each_request)
{
    cut_everywhere(PROXY_LOSE_REQUEST);
}

TEST(G4_redis_connections_cut_before_each_answer)
{
    cut_everywhere(PROXY_LOSE_ANSWER);
}

/* What may have been done is never told as not done. */
TEST(F6_redis_a_commit_whose_answer_is_lost_is_applied_once)
{
    stet_op op = { .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"),
                   .data = stet_text("lost on the way") };
    stet_unit    unit = { .ops = &op, .n_ops = 1 };
    stet_outcome out;
    cut_world    w = { .proxy = cut_proxy() };
    stet_value   value;

    (void)snprintf(w.url, sizeof w.url, "%s", redis_server_url_at(proxy_port(w.proxy), "lost"));
    w.until_us = stet__mono_us(stet__platform_real()) + 20000000;
    CHECK_OK(stet__store_open(&w.store, stet__platform_real(), w.url));
    for (unit.seq = 1; unit.seq <= 6; unit.seq++) {
        bool is_applied = unit.seq % 2 == 0;

        proxy_fault_next(w.proxy, is_applied ? PROXY_LOSE_ANSWER : PROXY_LOSE_REQUEST,
                         "lost on the way");
        CHECK_CODE(w.store->ops->commit(w.store, &unit, 1, &out), STET_EUNCERTAIN);
        UNTIL_ANSWERED(&w, w.store->ops->commit(w.store, &unit, 1, &out));
        CHECK_INT(out.result, STET_OK);
        CHECK_INT(out.is_repeat, is_applied);
        CHECK_OK(w.store->ops->value(w.store, "s", stet_text("k"), &value));
        CHECK_INT(value.version, unit.seq);
        stet__free(w.store->alloc, (void *)(uintptr_t)value.data.data);
    }
    stet__store_close(w.store);
    proxy_free(w.proxy);
}

/* ---- an engine ------------------------------------------------------------------------------- */

/* Opening is cut as well, so each life makes a store of its own. */
static const char *
engine_url(cuts *c, size_t n)
{
    char prefix[48];

    (void)snprintf(prefix, sizeof prefix, "life_%s_%zu", test_unique(), n);
    return redis_server_url_at(proxy_port(c->proxy), prefix);
}

static void
engine_everywhere(proxy_fault fault)
{
    cuts c = { .proxy = cut_proxy(), .url = engine_url, .stride = cuts_stride(3) };

    cuts_everywhere(&c, fault);
    proxy_free(c.proxy);
}

TEST_LIMIT(G4_redis_an_engine_whose_connection_is_cut_before_each_request, 900)
{
    engine_everywhere(PROXY_LOSE_REQUEST);
}

TEST_LIMIT(G4_redis_an_engine_whose_connection_is_cut_before_each_answer, 900)
{
    engine_everywhere(PROXY_LOSE_ANSWER);
}
