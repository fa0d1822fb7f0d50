/* The quick functions of the PostgreSQL store against the memory store: the same units, right and
 * wrong ones, alone and several at once, have the same outcomes and leave the same rows. */
#include <unistd.h>

#include "cluster.h"
#include "store/postgres.h"
#include "store_contract.h"

enum { PENDING = 1, RUNNING = 2, SLEEPING = 3, QUIET = 4, STICKY = 5, DONE = 9 };

#define QUICK_RUNS   8
#define QUICK_ROUNDS 1500
#define QUICK_UNITS  4
#define QUICK_FAR_MS 100000000

__attribute__((constructor)) static void
quick_server(void)
{
    test_before(cluster_share);
}

/* ---- two stores ------------------------------------------------------------------------------ */

typedef struct side {
    stet_store *store;
    uint64_t    session;
} side;

/* A row as it may be compared: sessions have other numbers there, and times another clock. */
typedef struct seen {
    uint32_t status, is_terminal, attempt;
    uint64_t epoch, journal, inbox;
    int      session, due; /* 0: none; 1: ours, now; 2: another's, later */
    bool     has_ended, is_there;
    char     reason[16], extra[16], lane[16];
    uint64_t timers, value;
} seen;

typedef struct quick {
    side     memory, postgres;
    seen     rows[QUICK_RUNS];
    uint64_t seq;
    uint32_t random;
    size_t   applied, refused, joined, granted;
} quick;

static uint32_t
quick_draw(quick *q, uint32_t below)
{
    q->random = q->random * 1664525u + 1013904223u;
    return (q->random >> 12) % below;
}

static stet_id
quick_id(uint32_t n)
{
    uint8_t random[10] = { 7, (uint8_t)(n * 37) };

    return stet__id_make(1700000000000 + n % 3, random);
}

static void
quick_side(side *s, const char *address)
{
    CHECK_OK(stet__store_open(&s->store, stet__platform_real(), address));
    s->store->sticky = 1u << STICKY;
    s->store->quiet = 1u << QUIET;
    CHECK_OK(s->store->ops->session_open(s->store, &s->session, (stet_id){ { 1 } }, 600000,
                                         stet_text("info")));
}

static void
quick_begin(quick *q)
{
    char schema[48];

    *q = (quick){ .random = 11 };
    (void)snprintf(schema, sizeof schema, "t_%s", test_unique());
    quick_side(&q->memory, "memory:");
    quick_side(&q->postgres, cluster_url(schema));
}

static void
quick_end(quick *q)
{
    stet__store_close(q->memory.store);
    stet__store_close(q->postgres.store);
}

/* ---- what is there --------------------------------------------------------------------------- */

static int
seen_row(void *arg, const stet_run_row *row)
{
    seen *s = arg;

    s->is_there = true;
    s->status = row->status;
    s->is_terminal = row->is_terminal;
    s->attempt = row->attempt;
    s->epoch = row->epoch;
    s->journal = row->journal;
    s->inbox = row->inbox;
    s->session = row->session != 0;
    s->due = row->due_ms == STET_NEVER ? 0 : row->due_ms > QUICK_FAR_MS * 1000000LL ? 2 : 1;
    s->has_ended = row->ended_ms != STET_NEVER;
    (void)snprintf(s->reason, sizeof s->reason, "%s", row->reason != NULL ? row->reason : "-");
    (void)snprintf(s->lane, sizeof s->lane, "%s", row->lane != NULL ? row->lane : "-");
    (void)snprintf(s->extra, sizeof s->extra, "%.*s", (int)row->extra.len,
                   (const char *)row->extra.data);
    if (row->session != 0)
        s->due = 0; /* it is ignored then */
    return 0;
}

static int
seen_timer(void *arg, const stet_timer *timer)
{
    ((seen *)arg)->timers += (uint64_t)timer->fire_ms * 31 + timer->completion;
    return 0;
}

static void
seen_bytes(seen *s, stet_bytes bytes)
{
    const uint8_t *at = bytes.data;

    for (size_t i = 0; i < bytes.len; i++)
        s->value = s->value * 31 + at[i];
}

static int
seen_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    seen *s = arg;

    seen_bytes(s, facts);
    s->value = s->value * 31 + first * 7 + count;
    return 0;
}

static void
quick_see(side *at, uint32_t n, seen *out)
{
    stet_store *s = at->store;
    stet_value  v = { 0 };
    stet_id     id = quick_id(n);
    int         err;

    memset(out, 0, sizeof *out);
    err = s->ops->run(s, id, seen_row, out);
    CHECK(err == STET_OK || err == STET_ENOTFOUND);
    CHECK_OK(s->ops->timers_of(s, id, seen_timer, out));
    CHECK_OK(s->ops->journal(s, id, 1, 1000, seen_facts, out));
    CHECK_OK(s->ops->inbox(s, id, 1, 1000, seen_facts, out));
    err = s->ops->value(s, "space", (stet_bytes){ id.bytes, 16 }, &v);
    CHECK(err == STET_OK || err == STET_ENOTFOUND);
    out->value = out->value * 31 + v.version * 5 + v.revision;
    seen_bytes(out, v.data);
    stet__free(s->alloc, (void *)(uintptr_t)v.data.data);
}

static void
quick_compare(quick *q)
{
    for (uint32_t i = 0; i < QUICK_RUNS; i++) {
        seen other;

        quick_see(&q->memory, i, &q->rows[i]);
        quick_see(&q->postgres, i, &other);
        CHECK_INT(other.is_there, q->rows[i].is_there);
        CHECK_INT(other.status, q->rows[i].status);
        CHECK_INT(other.is_terminal, q->rows[i].is_terminal);
        CHECK_INT(other.attempt, q->rows[i].attempt);
        CHECK_INT(other.epoch, q->rows[i].epoch);
        CHECK_INT(other.journal, q->rows[i].journal);
        CHECK_INT(other.inbox, q->rows[i].inbox);
        CHECK_INT(other.session, q->rows[i].session);
        CHECK_INT(other.due, q->rows[i].due);
        CHECK_INT(other.has_ended, q->rows[i].has_ended);
        CHECK_STR(other.reason, q->rows[i].reason);
        CHECK_STR(other.extra, q->rows[i].extra);
        CHECK_STR(other.lane, q->rows[i].lane);
        CHECK_INT(other.timers, q->rows[i].timers);
        CHECK_INT(other.value, q->rows[i].value);
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

typedef struct quick_unit {
    stet_cond    conds[3];
    stet_op      ops[5];
    stet_run_row row;
    stet_id      run;
    stet_claimer claimer;
} quick_unit;

typedef struct quick_batch {
    quick_unit   parts[QUICK_UNITS];
    stet_unit    units[QUICK_UNITS];
    stet_outcome outs[2][QUICK_UNITS];
    size_t       n;
} quick_batch;

static const char *const quick_handlers[] = { "a.one", "b.two", "c.three" };

/* Now and then it is wrong. */
static uint64_t
quick_number(quick *q, uint64_t right)
{
    return quick_draw(q, 12) == 0 ? right + 1 : right;
}

static stet_cond *
quick_cond(quick_batch *b, stet_cond_kind kind)
{
    quick_unit *p = &b->parts[b->n];
    stet_cond  *c = &p->conds[b->units[b->n].n_conds++];

    *c = (stet_cond){ .kind = kind, .run = p->run };
    return c;
}

static stet_op *
quick_op(quick_batch *b, stet_op_kind kind)
{
    quick_unit *p = &b->parts[b->n];
    stet_op    *op = &p->ops[b->units[b->n].n_ops++];

    *op = (stet_op){ .kind = kind, .run = p->run };
    return op;
}

static void
quick_unit_begin(quick *q, quick_batch *b, uint32_t run)
{
    quick_unit *p = &b->parts[b->n];

    memset(p, 0, sizeof *p);
    p->run = quick_id(run);
    p->claimer = (stet_claimer){ .running_status = RUNNING, .handlers = quick_handlers,
                                 .n_handlers = 3 };
    b->units[b->n] = (stet_unit){ .conds = p->conds, .ops = p->ops };
    /* Numbers have gaps now and then. */
    q->seq += quick_draw(q, 8) == 0 ? 2 : 1;
    b->units[b->n].seq = q->seq;
}

static void
quick_put(quick *q, quick_batch *b, uint32_t run)
{
    quick_unit *p = &b->parts[b->n];

    p->row = (stet_run_row){ .id = p->run, .handler = quick_handlers[run % 3], .status = PENDING,
                             .due_ms = quick_draw(q, 3) == 0 ? STET_NEVER : 1000, .created_ms = 1,
                             .ended_ms = STET_NEVER, .extra = stet_text("new") };
    quick_op(b, STET_OP_RUN_PUT)->row = &p->row;
    if (run == 3 || run == 5)
        quick_op(b, STET_OP_LANE_ENTER)->lane = "lane";
}

static void
quick_set(quick *q, quick_batch *b)
{
    static const uint32_t statuses[] = { PENDING, SLEEPING, QUIET, STICKY, DONE };
    static const char    *reasons[] = { "one", "two", NULL };
    quick_unit           *p = &b->parts[b->n];
    stet_op              *op = quick_op(b, STET_OP_RUN_SET);
    uint32_t              due = quick_draw(q, 3);

    p->row = (stet_run_row){ .id = p->run, .status = statuses[quick_draw(q, 5)],
                             .due_ms = due == 0   ? STET_NEVER
                                       : due == 1 ? 2000
                                                  : QUICK_FAR_MS * 10000000LL,
                             .ended_ms = STET_NEVER, .attempt = quick_draw(q, 4),
                             .reason = reasons[quick_draw(q, 3)], .extra = stet_text("set") };
    if (p->row.status == DONE && quick_draw(q, 4) == 0) {
        p->row.is_terminal = 1;
        p->row.ended_ms = 5;
        p->row.due_ms = STET_NEVER;
    }
    op->row = &p->row;
    op->mask = quick_draw(q, 6) == 0 ? STET_RUN_STATUS
                                     : STET_RUN_STATUS | STET_RUN_OWNER | quick_draw(q, 8) << 2;
}

/* Facts under a claim. */
static void
quick_step(quick *q, quick_batch *b, uint32_t run)
{
    const seen *r = &q->rows[run];
    stet_cond  *c = quick_cond(b, STET_COND_CLAIM);
    stet_op    *op;

    c->session = quick_draw(q, 20) == 0 ? 2 : 1; /* of the store: see quick_commit() */
    c->epoch = quick_number(q, r->epoch);
    if (quick_draw(q, 2) == 0)
        quick_cond(b, STET_COND_INBOX)->number = quick_number(q, r->inbox);
    op = quick_op(b, STET_OP_FACTS);
    op->number = quick_number(q, r->journal + 1);
    op->count = 1 + quick_draw(q, 3);
    op->data = stet_text("facts");
    if (quick_draw(q, 3) == 0)
        quick_set(q, b);
    if (quick_draw(q, 3) == 0) {
        op = quick_op(b, STET_OP_VALUE_PUT);
        op->space = "space";
        op->key = (stet_bytes){ b->parts[b->n].run.bytes, 16 };
        op->data = stet_text("of a step");
        op->number = r->journal;
    }
    if (quick_draw(q, 4) == 0) {
        op = quick_op(b, STET_OP_TIMER_PUT);
        op->fire_ms = 5000 + quick_draw(q, 3);
        op->number = quick_draw(q, 3);
    }
}

static void
quick_wake(quick *q, quick_batch *b, uint32_t run)
{
    stet_bytes  key = { b->parts[b->n].run.bytes, 16 };
    stet_value  v = { 0 };
    stet_store *s = q->memory.store;
    stet_cond  *c;
    stet_op    *op;

    (void)run;
    (void)s->ops->value(s, "space", key, &v);
    stet__free(s->alloc, (void *)(uintptr_t)v.data.data);
    if (quick_draw(q, 2) == 0) {
        c = quick_cond(b, STET_COND_VALUE);
        c->space = "base.move";
        c->key = stet_text("");
    }
    if (quick_draw(q, 2) == 0) {
        c = quick_cond(b, STET_COND_VALUE);
        c->space = "space";
        c->key = key;
        c->number = quick_number(q, v.version);
        op = quick_op(b, STET_OP_VALUE_PUT);
        op->space = "space";
        op->key = key;
        op->data = stet_text("of a wake");
        op->run = (stet_id){ { 0 } };
    }
    op = quick_op(b, STET_OP_INBOX);
    op->data = stet_text("entry");
    op->flags = quick_draw(q, 2) == 0 ? STET_OP_IF_OPEN : 0;
    op = quick_op(b, STET_OP_RUN_WAKE);
    op->status = PENDING;
    op->flags = quick_draw(q, 2) == 0 ? STET_OP_HASTEN : 0;
}

/* The mark that keeps others out is set or removed. */
static void
quick_mark(quick *q, quick_batch *b)
{
    stet_op *op = quick_op(b, quick_draw(q, 3) == 0 ? STET_OP_VALUE_PUT : STET_OP_VALUE_DEL);

    op->run = (stet_id){ { 0 } };
    op->space = "base.move";
    op->data = stet_text("mark");
}

/* It finds what a set made idle. */
static void
quick_requeue(quick_batch *b)
{
    stet_op *op = quick_op(b, STET_OP_REQUEUE);

    op->claimer = &b->parts[b->n].claimer;
    op->status = SLEEPING;
    op->number = PENDING;
}

static void
quick_draw_batch(quick *q, quick_batch *b)
{
    uint32_t kind = quick_draw(q, 20), n = kind < 9 ? 1 + quick_draw(q, QUICK_UNITS) : 1;
    uint32_t look = n > 1 && quick_draw(q, 2) == 0 ? quick_draw(q, n) : QUICK_UNITS;

    if (look < n && quick_draw(q, 3) > 0) { /* among few steps, so that none is refused */
        n = 2;
        look %= 2;
    }
    for (b->n = 0; b->n < n; b->n++) {
        uint32_t run = quick_draw(q, QUICK_RUNS);

        quick_unit_begin(q, b, run);
        if (kind < 9 && b->n == look) {
            stet_op *op = quick_op(b, STET_OP_CLAIM_DUE);

            op->claimer = &b->parts[b->n].claimer;
            op->count = 2 * QUICK_RUNS;
        } else if (kind < 9)
            quick_step(q, b, run);
        else if (kind < 13)
            quick_wake(q, b, run);
        else if (kind < 17) {
            bool     is_one = quick_draw(q, 2) == 0;
            stet_op *op = quick_op(b, is_one ? STET_OP_RUN_WAKE : STET_OP_CLAIM_DUE);

            op->claimer = &b->parts[b->n].claimer;
            op->flags = is_one ? STET_OP_DUE : 0;
            op->status = SLEEPING; /* never written */
            op->count = 2 * QUICK_RUNS;
        } else if (kind < 18 && quick_draw(q, 3) == 0)
            quick_requeue(b);
        else if (kind < 18)
            quick_mark(q, b);
        else
            quick_put(q, b, run);
    }
}

/* ---- the same on both ------------------------------------------------------------------------ */

static void
quick_apply(side *at, quick_batch *b, stet_outcome *outs)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->parts[i].conds[0].kind == STET_COND_CLAIM && b->units[i].n_conds > 0)
            b->parts[i].conds[0].session = at->session + b->parts[i].conds[0].session - 1;
        b->parts[i].claimer.session = at->session;
    }
    CHECK_OK(at->store->ops->commit(at->store, b->units, b->n, outs));
    for (size_t i = 0; i < b->n; i++)
        if (b->parts[i].conds[0].kind == STET_COND_CLAIM && b->units[i].n_conds > 0)
            b->parts[i].conds[0].session -= at->session - 1;
}

static bool
quick_has_grant(const stet_outcome *out, const stet_grant *grant)
{
    for (size_t i = 0; i < out->n_grants; i++)
        if (stet__id_equal(out->grants[i].run, grant->run))
            return out->grants[i].epoch == grant->epoch && out->grants[i].inbox == grant->inbox;
    return false;
}

static int
quick_when(int64_t due_ms)
{
    return due_ms == STET_NEVER ? 0 : due_ms > QUICK_FAR_MS * 1000000LL ? 2 : 1;
}

static void
quick_commit(quick *q, quick_batch *b, bool is_repeat)
{
    bool is_joined = b->n > 1, is_granted = false, has_look = false;

    quick_apply(&q->memory, b, b->outs[0]);
    quick_apply(&q->postgres, b, b->outs[1]);
    for (size_t i = 0; i < b->n; i++) {
        stet_outcome *want = &b->outs[0][i], *got = &b->outs[1][i];

        CHECK_INT(got->result, want->result);
        CHECK_INT(got->is_repeat, is_repeat);
        if (want->result != STET_OK)
            CHECK_INT(got->cond, want->cond);
        else
            CHECK_INT(got->inbox, want->inbox);
        CHECK_INT(quick_when(got->next_due_ms), quick_when(want->next_due_ms));
        CHECK_INT(got->n_grants, want->n_grants);
        for (size_t k = 0; k < want->n_grants; k++)
            CHECK(quick_has_grant(got, &want->grants[k]));
        q->applied += want->result == STET_OK;
        q->refused += want->result != STET_OK;
        is_joined = is_joined && want->result == STET_OK;
        has_look = has_look || b->units[i].ops[0].kind == STET_OP_CLAIM_DUE;
        is_granted = is_granted || (want->n_grants > 0 && !is_repeat);
        stet__free(q->memory.store->alloc, want->grants);
        stet__free(q->postgres.store->alloc, got->grants);
    }
    q->joined += is_joined && has_look && !is_repeat;
    q->granted += is_joined && is_granted;
}

TEST_LIMIT(G3_postgres_the_quick_functions_do_what_the_memory_store_does, 240)
{
    quick       *q = calloc(1, sizeof *q);
    quick_batch *b = calloc(1, sizeof *b);

    CHECK(q != NULL && b != NULL);
    quick_begin(q);
    for (int i = 0; i < QUICK_ROUNDS; i++) {
        quick_draw_batch(q, b);
        quick_commit(q, b, false);
        /* What comes again gets its old answer; a look that found nothing is not remembered. */
        if (quick_draw(q, 6) == 0 && b->units[0].ops[0].kind != STET_OP_CLAIM_DUE &&
            ((b->units[0].ops[0].flags & STET_OP_DUE) == 0 || b->outs[0][0].n_grants > 0))
            quick_commit(q, b, true);
        quick_compare(q);
    }
    test_note("%zu units applied, %zu refused; %zu looks among steps, %zu found work", q->applied,
              q->refused, q->joined, q->granted);
    CHECK(q->applied > QUICK_ROUNDS / 2 && q->refused > QUICK_ROUNDS / 10);
    CHECK(q->joined > 20 && q->granted > 3);
    /* They were really used. */
    CHECK(pg_of(q->postgres.store)->writer.is_prepared[PG_SQL_STEPS]);
    CHECK(pg_of(q->postgres.store)->writer.is_prepared[PG_SQL_WAKE]);
    CHECK(pg_of(q->postgres.store)->writer.is_prepared[PG_SQL_CLAIM]);
    CHECK(pg_of(q->postgres.store)->writer.is_prepared[PG_SQL_ONE]);
    quick_end(q);
    free(q);
    free(b);
}

/* ---- units that are almost quick ----------------------------------------------------------- */

static void
almost_begin(quick *q, quick_batch *b, uint32_t run)
{
    memset(b, 0, sizeof *b);
    quick_unit_begin(q, b, run);
}

static void
almost_end(quick *q, quick_batch *b)
{
    b->n++;
    quick_commit(q, b, false);
    quick_compare(q);
}

static stet_op *
almost_facts(quick *q, quick_batch *b, uint32_t run, uint64_t behind)
{
    stet_op *op = quick_op(b, STET_OP_FACTS);

    op->run = quick_id(run);
    op->number = q->rows[run].journal + 1 + behind;
    op->count = 1;
    op->data = stet_text("facts");
    return op;
}

static void
almost_claim(quick *q, quick_batch *b, uint32_t run)
{
    stet_cond *c = quick_cond(b, STET_COND_CLAIM);

    c->session = 1;
    c->epoch = q->rows[run].epoch;
}

static stet_op *
almost_set(quick_batch *b, uint32_t run)
{
    quick_unit *p = &b->parts[b->n];
    stet_op    *op = quick_op(b, STET_OP_RUN_SET);

    p->row = (stet_run_row){ .id = quick_id(run), .status = STICKY, .due_ms = 2000,
                             .ended_ms = STET_NEVER, .extra = stet_text("set") };
    op->row = &p->row;
    op->mask = STET_RUN_STATUS;
    return op;
}

static stet_op *
almost_put(quick_batch *b, const char *space, const char *key)
{
    stet_op *op = quick_op(b, STET_OP_VALUE_PUT);

    op->space = space;
    op->key = stet_text(key);
    op->data = stet_text("v");
    return op;
}

/* Steps. Runs 0 and 1 are claimed. */
static void
almost_steps(quick *q, quick_batch *b)
{
    for (int i = 0; i < 9; i++) {
        almost_begin(q, b, 0);
        almost_claim(q, b, 0);
        if (i == 4)
            quick_cond(b, STET_COND_INBOX)->run = quick_id(1);
        (void)almost_facts(q, b, 0, 0);
        switch (i) {
        case 0: (void)almost_facts(q, b, 0, 1); break; /* two of them */
        case 1: (void)almost_facts(q, b, 1, 0); break; /* of another run */
        case 2: (void)almost_set(b, 1); break;
        case 3: (void)almost_put(b, "base.x", "k"); break;
        case 5: almost_put(b, "space", "k")->flags = STET_OP_SETTLE; break;
        case 6: (void)almost_set(b, 0); break; /* it keeps the run */
        case 7:
            (void)almost_put(b, "space", "k");
            (void)almost_put(b, "space", "k"); /* the same value twice */
            break;
        case 8:
            (void)almost_put(b, "space", "");
            (void)almost_put(b, "space", "a");
            (void)almost_put(b, "space", "ab");
            break;
        default: break;
        }
        almost_end(q, b);
    }
    almost_begin(q, b, 0); /* another one's facts under its claim */
    almost_claim(q, b, 0);
    (void)almost_facts(q, b, 1, 0);
    almost_end(q, b);
    almost_begin(q, b, 0);
    almost_claim(q, b, 0);
    (void)almost_set(b, 0);
    (void)almost_facts(q, b, 0, 0); /* behind the set */
    almost_end(q, b);
    almost_begin(q, b, 0);
    almost_claim(q, b, 0);
    almost_facts(q, b, 0, 5)->flags = STET_OP_ANEW;
    almost_end(q, b);
}

static void
almost_value_cond(quick *q, quick_batch *b, const char *key)
{
    stet_store *s = q->memory.store;
    stet_cond  *c = quick_cond(b, STET_COND_VALUE);
    stet_value  v = { 0 };

    (void)s->ops->value(s, "space", stet_text(key), &v);
    stet__free(s->alloc, (void *)(uintptr_t)v.data.data);
    c->space = "space";
    c->key = stet_text(key);
    c->number = v.version;
}

/* Wakes, of run 2. */
static void
almost_wakes(quick *q, quick_batch *b)
{
    for (int i = 0; i < 10; i++) {
        stet_op *op;

        almost_begin(q, b, 2);
        if (i == 4 || i == 5 || i == 6)
            almost_value_cond(q, b, "a");
        if (i == 7) {
            almost_value_cond(q, b, "a");
            almost_value_cond(q, b, "ab");
        }
        if (i == 8) /* two marks */
            for (int k = 0; k < 2; k++)
                quick_cond(b, STET_COND_VALUE)->space = k == 0 ? "base.one" : "base.two";
        if (i == 9)
            quick_cond(b, STET_COND_INBOX)->number = q->rows[2].inbox;
        if (i == 5)
            (void)almost_put(b, "other", "a");
        if (i == 6)
            (void)almost_put(b, "space", "ab");
        if (i == 3)
            (void)almost_put(b, "space", "a"); /* whatever it was */
        if (i == 0) {
            op = quick_op(b, STET_OP_RUN_WAKE);
            op->status = PENDING;
        }
        op = quick_op(b, STET_OP_INBOX);
        op->data = stet_text("entry");
        if (i == 1)
            op->run = quick_id(4);
        op = quick_op(b, STET_OP_RUN_WAKE);
        op->status = PENDING;
        if (i == 2)
            op->claimer = &b->parts[b->n].claimer;
        almost_end(q, b);
    }
}

static void
almost_claims(quick *q, quick_batch *b)
{
    for (int i = 0; i < 4; i++) {
        stet_op *op;

        almost_begin(q, b, 0);
        op = quick_op(b, STET_OP_CLAIM_DUE);
        op->claimer = &b->parts[b->n].claimer;
        op->count = 2 * QUICK_RUNS;
        if (i == 0)
            b->parts[b->n].claimer.n_handlers = 0;
        if (i == 1)
            op->count = 0;
        if (i == 2)
            quick_cond(b, STET_COND_INBOX)->number = q->rows[0].inbox;
        if (i == 3)
            (void)almost_put(b, "space", "k");
        almost_end(q, b);
    }
}

TEST_LIMIT(G3_postgres_units_that_are_almost_quick_do_what_the_memory_store_does, 120)
{
    quick       *q = calloc(1, sizeof *q);
    quick_batch *b = calloc(1, sizeof *b);

    CHECK(q != NULL && b != NULL);
    quick_begin(q);
    for (uint32_t run = 0; run < 6; run++) {
        quick_unit *p;

        almost_begin(q, b, run);
        p = &b->parts[0];
        p->row = (stet_run_row){ .id = p->run, .handler = quick_handlers[run % 3],
                                 .status = PENDING, .due_ms = run < 2 ? 1000 : STET_NEVER,
                                 .created_ms = 1, .ended_ms = STET_NEVER,
                                 .extra = stet_text("new") };
        quick_op(b, STET_OP_RUN_PUT)->row = &p->row;
        almost_end(q, b);
    }
    almost_begin(q, b, 0);
    quick_op(b, STET_OP_CLAIM_DUE)->claimer = &b->parts[0].claimer;
    b->parts[0].ops[0].count = 2;
    almost_end(q, b);
    CHECK(q->rows[0].session != 0 && q->rows[1].session != 0);
    almost_steps(q, b);
    almost_wakes(q, b);
    almost_claims(q, b);
    CHECK(q->applied > 25);
    quick_end(q);
    free(q);
    free(b);
}
