/* The Redis store when memory is short, at every allocation in turn: whatever it answers is true,
 * and afterwards the same handle works. */
#include "fault_platform.h"
#include "redis_server.h"
#include "store/redis.h"
#include "test.h"

enum { LIMIT = 2000 };

__attribute__((constructor)) static void
redis_share(void)
{
    test_before(redis_server_share);
}

static const char *const handlers[] = { "h.b" };

static stet_id
run_id(uint32_t n)
{
    uint8_t random[10] = { 0 };

    random[8] = (uint8_t)(n >> 8);
    random[9] = (uint8_t)n;
    return stet__id_make(1700000000000 + n, random);
}

static bool
is_honest(int err)
{
    return err == STET_OK || err == STET_ENOMEM || err == STET_EUNCERTAIN || err == STET_EIO;
}

/* The nth allocation from now on fails. */
static void
arm(fault_platform *f, long n)
{
    atomic_store(&f->failed, 0);
    fault_platform_arm(f, atomic_load(&f->n) + n, 1);
}

/* ---- opening --------------------------------------------------------------------------------- */

TEST(G4_redis_opening_without_memory_fails_and_leaves_nothing)
{
    fault_platform f;
    stet_store    *s;
    int            err = STET_ENOMEM;
    long           n;

    fault_platform_init(&f);
    for (n = 0; err != STET_OK && n < LIMIT; n++) {
        arm(&f, n);
        err = stet__store_open(&s, &f.base, redis_shared_url("open"));
        CHECK(err == STET_OK || err == STET_ENOMEM);
        stet__store_close(s);
        CHECK_INT(atomic_load(&f.live), 0);
    }
    CHECK_OK(err);
    CHECK(n > 3);
    test_note("%ld allocations", n - 1);
}

/* ---- commits --------------------------------------------------------------------------------- */

typedef struct batch {
    stet_claimer claimer;
    stet_run_row row;
    stet_op      ops[4];
    stet_unit    unit;
    stet_outcome out;
} batch;

/* Makes run n with a fact and a value; it is granted. */
static void
batch_make(batch *b, uint64_t session, uint32_t n, uint64_t seq)
{
    memset(b, 0, sizeof *b);
    b->claimer = (stet_claimer){ session, 2, handlers, 1 };
    b->row = (stet_run_row){ .id = run_id(n), .handler = "h.b", .key = "k", .status = 1,
                             .ended_ms = STET_NEVER, .extra = stet_text("extra") };
    b->ops[0] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &b->row, .run = b->row.id,
                           .claimer = &b->claimer };
    b->ops[1] = (stet_op){ .kind = STET_OP_FACTS, .run = b->row.id, .number = 1, .count = 1,
                           .data = stet_text("facts") };
    b->ops[2] = (stet_op){ .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"),
                           .data = stet_text("v") };
    b->unit = (stet_unit){ .seq = seq, .ops = b->ops, .n_ops = 3 };
}

TEST(G4_redis_a_commit_without_memory_is_not_applied_or_not_known)
{
    fault_platform f;
    stet_store    *s;
    uint64_t       session, seq = 0;
    stet_value     value;
    batch          b;
    long           n, failed;

    fault_platform_init(&f);
    CHECK_OK(stet__store_open(&s, &f.base, redis_shared_url("commit")));
    CHECK_OK(s->ops->session_open(s, &session, run_id(1), 600000, stet_text("")));
    for (n = 0, failed = 1; failed > 0 && n < LIMIT; n++) {
        int err;

        batch_make(&b, session, (uint32_t)n + 1, ++seq);
        arm(&f, n);
        err = s->ops->commit(s, &b.unit, 1, &b.out);
        failed = atomic_load(&f.failed);
        fault_platform_disarm(&f);
        CHECK(is_honest(err));
        CHECK(b.out.grants == NULL || err == STET_OK);
        if (err != STET_OK) { /* the same unit: once, with its grant */
            CHECK_OK(s->ops->commit(s, &b.unit, 1, &b.out));
            CHECK_INT(b.out.is_repeat, err == STET_EUNCERTAIN);
        }
        CHECK_CODE(b.out.result, STET_OK);
        CHECK_INT(b.out.n_grants, 1);
        CHECK_INT(b.out.grants[0].epoch, 1);
        stet__free(s->alloc, b.out.grants);
        CHECK_OK(s->ops->value(s, "s", stet_text("k"), &value));
        CHECK_INT(value.version, n + 1);
        stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    }
    CHECK(n > 2);
    stet__store_close(s);
    CHECK_INT(atomic_load(&f.live), 0);
    test_note("%ld allocations", n - 1);
}

/* ---- reads ----------------------------------------------------------------------------------- */

typedef struct seen {
    int n;
} seen;

static int
on_run(void *arg, const stet_run_row *row)
{
    CHECK_STR(row->handler, "h.b");
    CHECK_STR(row->key, "k");
    ((seen *)arg)->n++;
    return 0;
}

static int
on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    CHECK(first == 1 && count == 1 && facts.len == 5);
    ((seen *)arg)->n++;
    return 0;
}

static int
on_value(void *arg, stet_bytes key, const stet_value *value)
{
    CHECK(key.len == 1 && value->data.len == 1);
    ((seen *)arg)->n++;
    return 0;
}

static int
on_session(void *arg, const stet_session_row *row)
{
    CHECK(row->info.len == 4);
    ((seen *)arg)->n++;
    return 0;
}

static int
on_timer(void *arg, const stet_timer *timer)
{
    (void)timer;
    ((seen *)arg)->n++;
    return 0;
}

static int
on_lane(void *arg, stet_id run)
{
    (void)run;
    ((seen *)arg)->n++;
    return 0;
}

typedef int read_fn(stet_store *s, seen *v);

static int
read_run(stet_store *s, seen *v)
{
    return s->ops->run(s, run_id(1), on_run, v);
}

static int
read_runs(stet_store *s, seen *v)
{
    stet_run_query q = { .handler = "h.", .limit = 10 };

    return s->ops->runs(s, &q, on_run, v);
}

static int
read_lost(stet_store *s, seen *v)
{
    stet_run_query q = { .is_lost = true, .limit = 10 };

    v->n++;
    return s->ops->runs(s, &q, on_run, v);
}

static int
read_journal(stet_store *s, seen *v)
{
    return s->ops->journal(s, run_id(1), 1, 9, on_facts, v);
}

static int
read_inbox(stet_store *s, seen *v)
{
    return s->ops->inbox(s, run_id(1), 1, 9, on_facts, v);
}

static int
read_timers(stet_store *s, seen *v)
{
    int64_t next_ms;

    return s->ops->timers(s, 100, 9, on_timer, v, &next_ms);
}

static int
read_timers_of(stet_store *s, seen *v)
{
    return s->ops->timers_of(s, run_id(1), on_timer, v);
}

static int
read_value(stet_store *s, seen *v)
{
    stet_value value;
    int        err = s->ops->value(s, "s", stet_text("k"), &value);

    v->n += err == STET_OK;
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    return err;
}

static int
read_values(stet_store *s, seen *v)
{
    return s->ops->values(s, "s", stet_text(""), NULL, 9, on_value, v);
}

static int
read_lane(stet_store *s, seen *v)
{
    return s->ops->lane(s, "lane", 9, on_lane, v);
}

static int
read_sessions(stet_store *s, seen *v)
{
    return s->ops->sessions(s, on_session, v);
}

static int
read_due(stet_store *s, seen *v)
{
    int64_t due_ms;

    v->n++;
    return s->ops->due(s, handlers, 1, &due_ms);
}

static int
read_maintain(stet_store *s, seen *v)
{
    v->n++;
    return s->ops->maintain(s);
}

static void
fill(stet_store *s)
{
    stet_run_row row = { .id = run_id(1), .handler = "h.b", .key = "k", .status = 1,
                         .due_ms = STET_NEVER, .ended_ms = STET_NEVER };
    stet_op      ops[] = {
        { .kind = STET_OP_RUN_PUT, .row = &row, .run = row.id },
        { .kind = STET_OP_FACTS, .run = row.id, .number = 1, .count = 1,
          .data = stet_text("facts") },
        { .kind = STET_OP_INBOX, .run = row.id, .data = stet_text("inbox") },
        { .kind = STET_OP_TIMER_PUT, .run = row.id, .fire_ms = 5, .number = 1 },
        { .kind = STET_OP_LANE_ENTER, .run = row.id, .lane = "lane", .status = 1 },
        { .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"), .data = stet_text("v") },
    };
    stet_unit    unit = { .seq = 1, .ops = ops, .n_ops = sizeof ops / sizeof *ops };
    stet_outcome out;
    uint64_t     session;

    CHECK_OK(s->ops->commit(s, &unit, 1, &out));
    CHECK_CODE(out.result, STET_OK);
    CHECK_OK(s->ops->session_open(s, &session, run_id(1), 600000, stet_text("info")));
}

TEST(G4_redis_reads_without_memory_fail_and_work_again)
{
    static read_fn *const reads[] = { read_run,    read_runs,      read_lost,  read_journal,
                                      read_inbox,  read_timers,    read_timers_of, read_value,
                                      read_values, read_lane,      read_sessions, read_due,
                                      read_maintain };
    fault_platform f;
    stet_store    *s;
    long           all = 0;

    fault_platform_init(&f);
    CHECK_OK(stet__store_open(&s, &f.base, redis_shared_url("reads")));
    fill(s);
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        long failed = 1;

        for (long n = 0; failed > 0 && n < LIMIT; n++, all++) {
            seen v = { 0 };
            int  err;

            arm(&f, n);
            err = reads[i](s, &v);
            failed = atomic_load(&f.failed);
            fault_platform_disarm(&f);
            CHECK(err == STET_OK || err == STET_ENOMEM);
            v.n = 0;
            CHECK_OK(reads[i](s, &v));
            CHECK_INT(v.n, 1);
        }
    }
    stet__store_close(s);
    CHECK_INT(atomic_load(&f.live), 0);
    test_note("%ld allocations", all);
}
