/* Fixtures: files as if the engine had worked for weeks, written through the store port.
 *
 * The facts are the engine's own, with the engine's batching (one journal row a unit), so reading
 * them costs what it costs in life. Run IDs ascend in time, as those of a real history do.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fact.h"
#include "platform/platform.h"
#include "store/store.h"

#define FIXTURE_UNITS   4000
#define FIXTURE_OPS_MAX 8
#define FIXTURE_HOUR_MS 3600000LL
#define FIXTURE_INPUT   "{\"order\":7,\"amount\":1999,\"card\":\"4242\"}"
#define FIXTURE_RESULT  "{\"charge\":\"ch_0123456789\"}"

typedef struct fixture_unit {
    stet_op      ops[FIXTURE_OPS_MAX];
    size_t       n_ops;
    size_t       at[FIXTURE_OPS_MAX], len[FIXTURE_OPS_MAX]; /* their facts in the batch's buffer */
    size_t       extra_at, extra_len;
    stet_run_row row, suspended;
    char         key[48], label[64];
} fixture_unit;

typedef struct fixture {
    stet_store   *store;
    fixture_unit *list;
    stet_unit    *units;
    stet_outcome *outcomes;
    size_t        n;
    uint64_t      seq;
    stet__buf     bytes;
} fixture;

static void
fixture_open(fixture *f, const char *path)
{
    stet__platform *p = stet__platform_real();

    memset(f, 0, sizeof *f);
    f->list = calloc(FIXTURE_UNITS, sizeof *f->list);
    f->units = calloc(FIXTURE_UNITS, sizeof *f->units);
    f->outcomes = calloc(FIXTURE_UNITS, sizeof *f->outcomes);
    if (f->list == NULL || f->units == NULL || f->outcomes == NULL)
        bench_fail("out of memory");
    stet__buf_init(&f->bytes, &p->alloc);
    bench_ok(stet__store_open(&f->store, p, path), path);
}

static void
fixture_flush(fixture *f)
{
    if (f->bytes.failed)
        bench_fail("out of memory");
    for (size_t i = 0; i < f->n; i++) {
        fixture_unit *u = &f->list[i];

        u->row.extra = (stet_bytes){ f->bytes.data + u->extra_at, u->extra_len };
        for (size_t k = 0; k < u->n_ops; k++)
            if (u->ops[k].kind == STET_OP_FACTS)
                u->ops[k].data = (stet_bytes){ f->bytes.data + u->at[k], u->len[k] };
        f->units[i] = (stet_unit){ .seq = ++f->seq, .ops = u->ops, .n_ops = u->n_ops };
    }
    if (f->n == 0)
        return;
    bench_ok(f->store->ops->commit(f->store, f->units, f->n, f->outcomes), "loading a fixture");
    for (size_t i = 0; i < f->n; i++) {
        bench_ok(f->outcomes[i].result, "loading a fixture");
        stet__free(f->store->alloc, f->outcomes[i].grants);
    }
    f->n = 0;
    f->bytes.len = 0;
}

/* The log goes into the file here, so that no measurement pays for it. */
static void
fixture_close(fixture *f)
{
    fixture_flush(f);
    bench_ok(f->store->ops->maintain(f->store), "loading a fixture");
    stet__store_close(f->store);
    stet__buf_free(&f->bytes);
    free(f->list);
    free(f->units);
    free(f->outcomes);
}

static fixture_unit *
fixture_next(fixture *f)
{
    if (f->n == FIXTURE_UNITS)
        fixture_flush(f);
    f->list[f->n].n_ops = 0;
    return &f->list[f->n++];
}

static stet_op *
fixture_op(fixture_unit *u, stet_op_kind kind)
{
    stet_op *op = &u->ops[u->n_ops++];

    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->run = u->row.id;
    return op;
}

static void
fixture_row(fixture *f, fixture_unit *u, int64_t i, int64_t created_ms, const char *handler)
{
    stet__fact extra = { .kind = STET__FACT_ROW, .attempts_max = 3 };
    uint8_t    random[10] = { 0 };

    memset(&u->row, 0, sizeof u->row);
    for (int k = 0; k < 8; k++)
        random[k] = (uint8_t)((uint64_t)i >> (56 - 8 * k));
    u->row.id = stet__id_make(created_ms, random);
    u->row.handler = handler;
    u->row.created_ms = created_ms;
    u->row.due_ms = u->row.ended_ms = STET_NEVER;
    u->row.attempt = 1;
    u->extra_at = f->bytes.len;
    stet__fact_encode(&f->bytes, &extra);
    u->extra_len = f->bytes.len - u->extra_at;
    fixture_op(u, STET_OP_RUN_PUT)->row = &u->row;
}

/* `n` facts as one row of the journal, from revision *next on. */
static void
fixture_facts(fixture *f, fixture_unit *u, uint64_t *next, stet__fact *facts, uint32_t n)
{
    size_t   k = u->n_ops;
    stet_op *op = fixture_op(u, STET_OP_FACTS);

    op->number = *next;
    op->count = n;
    *next += n;
    u->at[k] = f->bytes.len;
    for (uint32_t i = 0; i < n; i++) {
        facts[i].time_ms = u->row.created_ms;
        stet__fact_encode(&f->bytes, &facts[i]);
    }
    u->len[k] = f->bytes.len - u->at[k];
}

static stet__fact
fixture_started(const char *handler)
{
    return (stet__fact){ .kind = STET__FACT_STARTED,
                         .name = stet_text(handler),
                         .value = stet_text(FIXTURE_INPUT),
                         .attempts_max = 3,
                         .retry_first_ms = 1000,
                         .retry_max_ms = 30000,
                         .retry_factor = 200,
                         .retry_jitter = 25 };
}

static stet__fact
fixture_claimed(void)
{
    return (stet__fact){
        .kind = STET__FACT_CLAIMED, .number = 1, .who = stet_text("bench 1"), .attempt = 1
    };
}

static stet__fact
fixture_step(const char *name)
{
    return (stet__fact){ .kind = STET__FACT_STEP,
                         .name = stet_text(name),
                         .occurrence = 1,
                         .value = stet_text(FIXTURE_RESULT) };
}

/* ---- sleeping runs --------------------------------------------------------------------------- */

/* Claimed by a session and suspended again, all in the unit that creates it. */
static void
fixture_suspend(fixture_unit *u, const stet_claimer *claimer, const char *reason)
{
    stet_op *op = fixture_op(u, STET_OP_RUN_SET);

    u->ops[0].claimer = claimer;
    u->row.status = STET_STATUS_PENDING;
    u->row.due_ms = u->row.created_ms;
    u->suspended = u->row;
    u->suspended.status = STET_STATUS_SUSPENDED;
    u->suspended.due_ms = STET_NEVER;
    u->suspended.reason = reason;
    op->mask = STET_RUN_STATUS | STET_RUN_OWNER | STET_RUN_REASON;
    op->row = &u->suspended;
}

static void
fixture_sleeper(fixture *f, int64_t i, int64_t created_ms, int64_t sleep_ms,
                const stet_claimer *claimer)
{
    fixture_unit *u = fixture_next(f);
    stet__fact    facts[3];
    uint64_t      next = 1;
    stet_op      *op;

    fixture_row(f, u, i, created_ms, claimer->handlers[0]);
    facts[0] = fixture_started(claimer->handlers[0]);
    fixture_facts(f, u, &next, facts, 1);
    facts[0] = fixture_claimed();
    facts[1] = (stet__fact){ .kind = STET__FACT_SLEEP,
                             .name = stet_text("month"),
                             .occurrence = 1,
                             .until_ms = created_ms + sleep_ms };
    facts[2] = (stet__fact){ .kind = STET__FACT_SUSPENDED,
                             .text = stet_text("sleep month"),
                             .until_ms = facts[1].until_ms };
    fixture_facts(f, u, &next, facts, 3);
    op = fixture_op(u, STET_OP_TIMER_PUT);
    op->fire_ms = facts[1].until_ms;
    op->number = 3; /* the revision of the sleep */
    fixture_suspend(u, claimer, "sleep month");
}

void
bench_fixture_sleeping(const char *path, int64_t n, int64_t sleep_ms)
{
    static const char *const handlers[] = { "bench.parked" };
    stet_claimer             claimer = { 0, STET_STATUS_RUNNING, handlers, 1 };
    fixture                  f;
    int64_t                  now_ms;

    fixture_open(&f, path);
    now_ms = f.store->ops->now_ms(f.store);
    bench_ok(f.store->ops->session_open(f.store, &claimer.session,
                                        stet__id_make(now_ms, (const uint8_t[10]){ 1 }),
                                        FIXTURE_HOUR_MS, stet_text("")),
             "loading a fixture");
    for (int64_t i = 0; i < n; i++)
        fixture_sleeper(&f, i, now_ms - FIXTURE_HOUR_MS + i * FIXTURE_HOUR_MS / n, sleep_ms,
                        &claimer);
    fixture_flush(&f);
    bench_ok(f.store->ops->session_close(f.store, claimer.session), "loading a fixture");
    fixture_close(&f);
}

/* ---- finished runs --------------------------------------------------------------------------- */

/* Spread over the last day: younger than what retention removes. */
void
bench_fixture_finished(const char *path, int64_t n)
{
    fixture f;
    int64_t now_ms;

    fixture_open(&f, path);
    now_ms = f.store->ops->now_ms(f.store);
    for (int64_t i = 0; i < n; i++) {
        fixture_unit *u = fixture_next(&f);
        stet__fact    facts[2];
        uint64_t      next = 1;

        fixture_row(&f, u, i, now_ms - 24 * FIXTURE_HOUR_MS + i * 23 * FIXTURE_HOUR_MS / n,
                    "bench.steps3");
        u->row.status = STET_STATUS_COMPLETED;
        facts[0] = fixture_started("bench.steps3");
        fixture_facts(&f, u, &next, facts, 1);
        facts[0] = fixture_claimed();
        facts[1] = fixture_step("reserve");
        fixture_facts(&f, u, &next, facts, 2);
        facts[0] = fixture_step("charge");
        fixture_facts(&f, u, &next, facts, 1);
        facts[0] = fixture_step("ship");
        facts[1] = (stet__fact){ .kind = STET__FACT_COMPLETED,
                                 .value = stet_text(FIXTURE_RESULT),
                                 .attempt = 1 };
        fixture_facts(&f, u, &next, facts, 2);
        u->row.is_terminal = 1;
        u->row.ended_ms = u->row.created_ms; /* as its facts say */
    }
    fixture_close(&f);
}

/* ---- runs of many kinds ---------------------------------------------------------------------- */

static bool
fixture_is_nth(int64_t i, int64_t every)
{
    return i % every == every / 2;
}

static stet_status
fixture_status(int64_t i)
{
    if (fixture_is_nth(i, BENCH_LISTED_RARE))
        return STET_STATUS_CANCELLED;
    if (fixture_is_nth(i, BENCH_LISTED_OPEN))
        return STET_STATUS_PENDING;
    if (i % 97 == 5)
        return STET_STATUS_SUSPENDED;
    return i % 101 == 7 ? STET_STATUS_FAILED : STET_STATUS_COMPLETED;
}

static void
fixture_label(fixture_unit *u, const char *label)
{
    size_t   len = strlen(label);
    stet_op *op = fixture_op(u, STET_OP_VALUE_PUT);

    memcpy(u->label, label, len + 1);
    memcpy(u->label + len + 1, u->row.id.bytes, sizeof u->row.id.bytes);
    op->space = "label";
    op->key = (stet_bytes){ u->label, len + 1 + sizeof u->row.id.bytes };
    op->data = stet_text("");
    op->number = 1;
}

static void
fixture_listed(fixture *f, int64_t i, int64_t created_ms)
{
    static const char *const handlers[] = { "bench.steps3", "bench.echo", "bench.adds" };
    bool                     is_rare = fixture_is_nth(i, BENCH_LISTED_FEW);
    fixture_unit            *u = fixture_next(f);
    stet__fact               facts[2];
    uint64_t                 next = 1;

    fixture_row(f, u, i, created_ms, is_rare ? "bench.rare" : handlers[i % 3]);
    u->row.status = fixture_status(i);
    facts[0] = fixture_started(u->row.handler);
    if (i % 2 == 0) {
        (void)snprintf(u->key, sizeof u->key, "customer-%lld",
                       (long long)(i * 7919 % BENCH_LISTED_KEYS));
        u->row.key = u->key;
        facts[0].key = stet_text(u->key);
    }
    if (fixture_is_nth(i, BENCH_LISTED_GOLD)) {
        facts[0].labels = (stet_bytes){ "tier=gold", sizeof "tier=gold" };
        fixture_label(u, "tier=gold");
    }
    fixture_facts(f, u, &next, facts, 1);
    if (u->row.status == STET_STATUS_PENDING) {
        u->row.due_ms = created_ms;
        return;
    }
    facts[0] = fixture_claimed();
    facts[1] = (stet__fact){ .kind = STET__FACT_COMPLETED,
                             .value = stet_text(FIXTURE_RESULT),
                             .attempt = 1 };
    if (u->row.status == STET_STATUS_SUSPENDED)
        facts[1] =
            (stet__fact){ .kind = STET__FACT_SUSPENDED, .text = stet_text("signal wait paid") };
    else {
        u->row.is_terminal = 1;
        u->row.ended_ms = created_ms;
    }
    fixture_facts(f, u, &next, facts, 2);
}

void
bench_fixture_listed(const char *path, int64_t n)
{
    fixture f;
    int64_t now_ms, i, half = n / 2;

    fixture_open(&f, path);
    f.store->quiet = 1u << STET_STATUS_SUSPENDED; /* as an engine does */
    now_ms = f.store->ops->now_ms(f.store);
    for (i = 0; i < half; i++)
        fixture_listed(&f, i, now_ms - 24 * FIXTURE_HOUR_MS + i * 23 * FIXTURE_HOUR_MS / half);
    for (; i < n; i++)
        fixture_listed(&f, i, now_ms - FIXTURE_HOUR_MS / 2 + (i - half) / 50);
    fixture_close(&f);
}
