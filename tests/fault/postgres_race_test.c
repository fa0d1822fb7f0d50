/* Several handles at once, each on a thread of its own, all after the same rows: what the contract
 * promises to one caller after the other holds for callers at the same time. tsan: yes */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "cluster.h"
#include "platform/platform.h"
#include "store/postgres.h"
#include "test.h"

#define RACERS  4
#define RUNS    8
#define PENDING 1
#define RUNNING 2
#define DONE    9

__attribute__((constructor)) static void
race_server(void)
{
    test_before(cluster_share);
}

typedef struct racer {
    int         i;
    uint32_t    random;
    stet_store *store;
    uint64_t    seq, session;
    pthread_t   thread;
} racer;

static uint32_t
draw(racer *r, uint32_t below)
{
    r->random = r->random * 1664525u + 1013904223u;
    return (r->random >> 16) % below;
}

static stet_id
run_id(uint32_t n)
{
    uint8_t random[10] = { 0 };

    random[8] = (uint8_t)(n >> 8);
    random[9] = (uint8_t)n;
    return stet__id_make(1700000000000 + n, random);
}

static stet_store *
race_open(void)
{
    stet_store *s;
    char        schema[32];

    (void)snprintf(schema, sizeof schema, "r_%s", test_unique());
    CHECK_OK(stet__store_open(&s, stet__platform_real(), cluster_url(schema)));
    return s;
}

static void
race(void *(*fn)(void *))
{
    racer racers[RACERS];

    for (int i = 0; i < RACERS; i++) {
        racers[i] = (racer){ .i = i, .random = (uint32_t)i * 7919u + 17u, .store = race_open() };
        CHECK_OK(racers[i].store->ops->session_open(racers[i].store, &racers[i].session,
                                                    (stet_id){ { 1 } }, 600000, stet_text("")));
    }
    for (int i = 0; i < RACERS; i++)
        CHECK_INT(pthread_create(&racers[i].thread, NULL, fn, &racers[i]), 0);
    for (int i = 0; i < RACERS; i++)
        CHECK_INT(pthread_join(racers[i].thread, NULL), 0);
    for (int i = 0; i < RACERS; i++)
        stet__store_close(racers[i].store);
}

static void
put_runs(uint32_t n, int64_t due_ms)
{
    stet_store *s = race_open();

    for (uint32_t i = 1; i <= n; i++) {
        stet_run_row row = { .id = run_id(i),
                             .handler = "a.one",
                             .status = PENDING,
                             .due_ms = due_ms,
                             .ended_ms = STET_NEVER };
        stet_op      op = { .kind = STET_OP_RUN_PUT, .row = &row, .run = row.id };
        stet_unit    unit = { .seq = i, .ops = &op, .n_ops = 1 };
        stet_outcome out;

        CHECK_OK(s->ops->commit(s, &unit, 1, &out));
        CHECK_INT(out.result, STET_OK);
    }
    stet__store_close(s);
}

/* ---- rows in any order ----------------------------------------------------------------------- */

static _Atomic int race_inbox[RUNS + 1], race_values[RUNS + 1];

/* Units name runs and values in an order of their own; what is refused has left nothing. */
static void *
race_rows(void *arg)
{
    racer *r = arg;

    for (int round = 0; round < 40; round++) {
        stet_unit    units[6];
        stet_op      ops[6][4];
        stet_cond    conds[6];
        stet_outcome out[6];
        uint32_t     picks[6][4];
        char         keys[6][8];

        for (int u = 0; u < 6; u++) {
            uint32_t key = picks[u][3] = 1 + draw(r, RUNS);

            (void)snprintf(keys[u], sizeof keys[u], "k%u", key);
            for (int o = 0; o < 3; o++) {
                picks[u][o] = 1 + draw(r, RUNS);
                ops[u][o] = (stet_op){ .kind = STET_OP_INBOX,
                                       .run = run_id(picks[u][o]),
                                       .data = stet_text("x") };
            }
            ops[u][3] = (stet_op){ .kind = STET_OP_VALUE_PUT,
                                   .space = "s",
                                   .key = stet_text(keys[u]),
                                   .data = stet_text("v") };
            /* Some rely on what may have changed; some on what is not there yet. */
            conds[u] =
                (stet_cond){ .kind = STET_COND_VALUE,
                             .space = "s",
                             .key = stet_text(keys[u]),
                             .number =
                                 draw(r, 3) == 0 ? 0 : (uint64_t)atomic_load(&race_values[key]) };
            units[u] = (stet_unit){ .seq = ++r->seq,
                                    .conds = &conds[u],
                                    .n_conds = u % 2 == 0 ? 1 : 0,
                                    .ops = ops[u],
                                    .n_ops = 4 };
        }
        CHECK_OK(r->store->ops->commit(r->store, units, 6, out));
        for (int u = 0; u < 6; u++) {
            if (out[u].result != STET_OK) {
                CHECK_INT(out[u].result, STET_ECONFLICT);
                continue;
            }
            for (int o = 0; o < 3; o++)
                atomic_fetch_add(&race_inbox[picks[u][o]], 1);
            atomic_fetch_add(&race_values[picks[u][3]], 1);
        }
    }
    return NULL;
}

static int
race_see(void *arg, const stet_run_row *row)
{
    *(uint64_t *)arg = row->inbox;
    return 0;
}

TEST_LIMIT(F1_postgres_units_of_several_handles_are_applied_once_each, 120)
{
    stet_store *s;

    put_runs(RUNS, STET_NEVER);
    race(race_rows);
    s = race_open();
    for (uint32_t i = 1; i <= RUNS; i++) {
        uint64_t   inbox = 0;
        stet_value value = { 0 };
        char       key[8];

        CHECK_OK(s->ops->run(s, run_id(i), race_see, &inbox));
        CHECK_INT(inbox, atomic_load(&race_inbox[i]));
        (void)snprintf(key, sizeof key, "k%u", i);
        if (s->ops->value(s, "s", stet_text(key), &value) == STET_OK)
            stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
        CHECK_INT(value.version, atomic_load(&race_values[i]));
    }
    stet__store_close(s);
}

/* ---- one start each -------------------------------------------------------------------------- */

static _Atomic int race_started;

/* The same run, guarded by its absence and that of a key: one of all racers makes it. */
static void *
race_starts(void *arg)
{
    racer *r = arg;

    for (uint32_t n = 100; n < 140; n++) {
        stet_run_row row = { .id = run_id(n),
                             .handler = "a.one",
                             .status = PENDING,
                             .due_ms = STET_NEVER,
                             .ended_ms = STET_NEVER };
        char         key[8];
        stet_cond    cond = { .kind = STET_COND_VALUE, .space = "idem" };
        stet_op   ops[2] = { { .kind = STET_OP_VALUE_PUT, .space = "idem", .data = stet_text("v") },
                             { .kind = STET_OP_RUN_PUT, .row = &row } };
        stet_unit unit = {
            .seq = ++r->seq, .conds = &cond, .n_conds = n % 2, .ops = ops, .n_ops = 2
        };
        stet_outcome out;

        (void)snprintf(key, sizeof key, "k%u", n);
        cond.key = ops[0].key = stet_text(key);
        CHECK_OK(r->store->ops->commit(r->store, &unit, 1, &out));
        if (out.result == STET_OK)
            atomic_fetch_add(&race_started, 1);
        else
            CHECK_INT(out.result, STET_ECONFLICT);
    }
    return NULL;
}

TEST_LIMIT(A13_postgres_one_of_several_starts_of_a_run_wins, 120)
{
    race(race_starts);
    CHECK_INT(atomic_load(&race_started), 40);
}

/* ---- claims ---------------------------------------------------------------------------------- */

#define CLAIMS 400
static _Atomic int race_granted[CLAIMS + 1], race_grants;

static uint32_t
run_number(const stet_id *id)
{
    return (uint32_t)id->bytes[14] << 8 | id->bytes[15];
}

static const char *const race_handlers[] = { "a.one" };

static void *
race_claims(void *arg)
{
    racer       *r = arg;
    stet_claimer claimer = { r->session, RUNNING, race_handlers, 1 };

    while (atomic_load(&race_grants) < CLAIMS) {
        stet_op op = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 1 + draw(r, 20) };
        stet_unit    unit = { .seq = ++r->seq, .ops = &op, .n_ops = 1 };
        stet_outcome out;

        CHECK_OK(r->store->ops->commit(r->store, &unit, 1, &out));
        CHECK_INT(out.result, STET_OK);
        for (size_t i = 0; i < out.n_grants; i++) {
            CHECK_INT(out.grants[i].epoch, 1);
            CHECK_INT(atomic_fetch_add(&race_granted[run_number(&out.grants[i].run)], 1), 0);
            atomic_fetch_add(&race_grants, 1);
        }
        stet__free(r->store->alloc, out.grants);
    }
    return NULL;
}

TEST_LIMIT(F3_postgres_a_due_run_is_granted_to_one_of_several_workers, 120)
{
    put_runs(CLAIMS, 1);
    race(race_claims);
    CHECK_INT(atomic_load(&race_grants), CLAIMS);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

#define LANES    3
#define PER_LANE 80
static _Atomic int race_holders[LANES], race_ended;

/* Runs enter and leave the same lanes; whoever is granted one holds its lane alone. */
static void
lane_work(racer *r, const stet_claimer *claimer, const stet_grant *grant)
{
    uint32_t     lane = run_number(&grant->run) % LANES;
    stet_run_row row = {
        .id = grant->run, .status = DONE, .is_terminal = 1, .ended_ms = 1, .due_ms = STET_NEVER
    };
    stet_cond cond = {
        .kind = STET_COND_CLAIM, .run = grant->run, .session = r->session, .epoch = grant->epoch
    };
    stet_op ops[2] = {
        { .kind = STET_OP_RUN_SET, .row = &row, .mask = STET_RUN_STATUS | STET_RUN_OWNER },
        { .kind = STET_OP_LANE_LEAVE, .run = grant->run, .status = PENDING, .claimer = claimer }
    };
    stet_unit    unit = { .seq = ++r->seq, .conds = &cond, .n_conds = 1, .ops = ops, .n_ops = 2 };
    stet_outcome out;
    uint64_t     seen;

    CHECK_INT(atomic_fetch_add(&race_holders[lane], 1), 0);
    CHECK_OK(r->store->ops->run(r->store, grant->run, race_see, &seen)); /* takes a while */
    atomic_fetch_sub(&race_holders[lane], 1);
    CHECK_OK(r->store->ops->commit(r->store, &unit, 1, &out));
    CHECK_INT(out.result, STET_OK);
    atomic_fetch_add(&race_ended, 1);
    CHECK(out.n_grants <= 1);
    for (size_t i = 0; i < out.n_grants; i++)
        lane_work(r, claimer, &out.grants[i]);
    stet__free(r->store->alloc, out.grants);
}

static void
lane_enter(racer *r, const stet_claimer *claimer, uint32_t n)
{
    char         lane[16];
    stet_run_row row = { .id = run_id(n),
                         .handler = "a.one",
                         .status = PENDING,
                         .due_ms = STET_NEVER,
                         .ended_ms = STET_NEVER };
    stet_op      ops[2] = { { .kind = STET_OP_RUN_PUT, .row = &row },
                            { .kind = STET_OP_LANE_ENTER,
                              .run = row.id,
                              .lane = lane,
                              .status = PENDING,
                              .claimer = n % 3 == 0 ? NULL : claimer } };
    stet_unit    unit = { .seq = ++r->seq, .ops = ops, .n_ops = 2 };
    stet_outcome out;

    (void)snprintf(lane, sizeof lane, "lane%u", n % LANES);
    CHECK_OK(r->store->ops->commit(r->store, &unit, 1, &out));
    CHECK_INT(out.result, STET_OK);
    for (size_t i = 0; i < out.n_grants; i++)
        lane_work(r, claimer, &out.grants[i]);
    stet__free(r->store->alloc, out.grants);
}

static void *
race_lanes(void *arg)
{
    racer       *r = arg;
    stet_claimer claimer = { r->session, RUNNING, race_handlers, 1 };

    for (uint32_t i = 0; i < LANES * PER_LANE / RACERS; i++)
        lane_enter(r, &claimer, 1000 + i * RACERS + (uint32_t)r->i);
    while (atomic_load(&race_ended) < LANES * PER_LANE) {
        stet_op      op = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 2 };
        stet_unit    unit = { .seq = ++r->seq, .ops = &op, .n_ops = 1 };
        stet_outcome out;

        CHECK_OK(r->store->ops->commit(r->store, &unit, 1, &out));
        for (size_t i = 0; i < out.n_grants; i++)
            lane_work(r, &claimer, &out.grants[i]);
        stet__free(r->store->alloc, out.grants);
    }
    return NULL;
}

TEST_LIMIT(A2_postgres_a_lane_has_one_holder_among_several_workers, 120)
{
    race(race_lanes);
    CHECK_INT(atomic_load(&race_ended), LANES * PER_LANE);
}
