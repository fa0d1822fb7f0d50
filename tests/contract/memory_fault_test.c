/* What only the memory store can be asked: that an allocation which fails leaves nothing behind,
 * what is kept for a node that died, and which addresses mean which store. */
#include <stdlib.h>

#include "platform/platform.h"
#include "store/memory.h"
#include "test.h"

/* The real platform with memory of which the nth allocation fails. */
typedef struct faulty {
    stet__platform base;
    long           left; /* allocations until one fails; negative: none does */
    long           live;
} faulty;

static void *
faulty_get(stet__alloc *a, void *old, size_t size)
{
    faulty *f = (faulty *)(void *)a;
    void   *fresh;

    if (size == 0) {
        f->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (f->left == 0) {
        f->left = -1;
        return NULL;
    }
    f->left -= f->left > 0;
    fresh = realloc(old, size);
    f->live += old == NULL && fresh != NULL;
    return fresh;
}

static void
faulty_init(faulty *f)
{
    *f = (faulty){ .base = *stet__platform_real(), .left = -1 };
    f->base.alloc.get = faulty_get;
    f->base.alloc.is_tight = true;
}

static int
faulty_ignore(void *arg, const stet_run_row *row)
{
    *(stet_run_row *)arg = *row;
    return 0;
}

typedef struct fixture {
    stet_store  *store;
    stet_id      ids[3];
    stet_claimer claimer;
    stet_run_row rows[4];
    stet_op      ops[3][8];
    stet_unit    units[3];
    stet_outcome outcomes[3];
} fixture;

static const char *const fixture_handlers[] = { "a.one" };

static stet_run_row
fixture_row(stet_id id, int64_t due_ms)
{
    return (stet_run_row){ .id = id,
                           .handler = "a.one",
                           .due_ms = due_ms,
                           .ended_ms = STET_NEVER,
                           .key = "k",
                           .reason = "r",
                           .extra = stet_text("x") };
}

/* One ended run with facts, inbox, a timer; one value; a live session. */
static void
fixture_fill(fixture *x)
{
    stet_op      ops[6];
    stet_run_row row;
    stet_unit    unit = { .seq = 1, .ops = ops, .n_ops = 6 };
    stet_outcome out;

    for (int i = 0; i < 3; i++)
        x->ids[i] = (stet_id){ { (uint8_t)(i + 1) } };
    row = fixture_row(x->ids[0], STET_NEVER);
    row.status = 9;
    ops[0] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &row };
    ops[1] = (stet_op){
        .kind = STET_OP_FACTS, .run = row.id, .number = 1, .count = 1, .data = stet_text("fact")
    };
    ops[2] = (stet_op){ .kind = STET_OP_INBOX, .run = row.id, .data = stet_text("in") };
    ops[3] = (stet_op){ .kind = STET_OP_TIMER_PUT, .run = row.id, .fire_ms = 5, .number = 1 };
    ops[4] = (stet_op){
        .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"), .data = stet_text("v")
    };
    ops[5] = (stet_op){ .kind = STET_OP_LANE_ENTER, .run = row.id, .lane = "lane", .status = 9 };
    CHECK_OK(
        x->store->ops->session_open(x->store, &x->claimer.session, row.id, 60000, stet_text("i")));
    CHECK_OK(x->store->ops->commit(x->store, &unit, 1, &out));
    CHECK_OK(out.result);
}

/* A batch that uses every operation that can allocate. */
static void
fixture_batch(fixture *x)
{
    stet_op *a = x->ops[0], *b = x->ops[1], *c = x->ops[2];

    x->claimer.handlers = fixture_handlers;
    x->claimer.n_handlers = 1;
    x->rows[0] = fixture_row(x->ids[1], 0);
    x->rows[1] = fixture_row(x->ids[2], STET_NEVER);
    x->rows[2] = fixture_row(x->ids[0], STET_NEVER);
    x->rows[2].is_terminal = 1;
    x->rows[2].reason = "another";
    a[0] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &x->rows[0], .claimer = &x->claimer };
    a[1] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &x->rows[1] };
    a[2] = (stet_op){ .kind = STET_OP_LANE_ENTER, .run = x->ids[2], .lane = "lane" };
    a[3] = (stet_op){
        .kind = STET_OP_FACTS, .run = x->ids[2], .number = 1, .count = 1, .data = stet_text("f")
    };
    a[4] = (stet_op){ .kind = STET_OP_INBOX, .run = x->ids[2], .data = stet_text("i") };
    b[0] = (stet_op){
        .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"), .data = stet_text("w")
    };
    b[1] = (stet_op){ .kind = STET_OP_TIMER_PUT, .run = x->ids[2], .fire_ms = 1, .number = 1 };
    b[2] = (stet_op){ .kind = STET_OP_RUN_SET,
                      .row = &x->rows[2],
                      .mask = STET_RUN_STATUS | STET_RUN_REASON | STET_RUN_EXTRA };
    b[3] = (stet_op){ .kind = STET_OP_LANE_LEAVE, .run = x->ids[0], .claimer = &x->claimer };
    b[4] = (stet_op){ .kind = STET_OP_TIMER_DEL, .run = x->ids[0], .fire_ms = 5, .number = 1 };
    b[5] = (stet_op){ .kind = STET_OP_RUN_DEL, .run = x->ids[0] };
    c[0] = (stet_op){ .kind = STET_OP_REAP, .session = x->claimer.session };
    c[1] = (stet_op){ .kind = STET_OP_VALUE_DEL, .space = "s", .key = stet_text("k") };
    a[5] = (stet_op){ .kind = STET_OP_FACTS, .flags = STET_OP_ANEW, .run = x->ids[0], .number = 2,
                      .count = 1, .session = 1, .data = stet_text("anew") };
    x->units[0] = (stet_unit){ .seq = 2, .ops = a, .n_ops = 6 };
    x->units[1] = (stet_unit){ .seq = 3, .ops = b, .n_ops = 6 };
    x->units[2] = (stet_unit){ .seq = 4, .ops = c, .n_ops = 2 };
}

static int
faulty_first(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    (void)count;
    (void)facts;
    *(uint64_t *)arg = first;
    return STET_OK;
}

static void
fixture_check_untouched(fixture *x)
{
    uint64_t     first = 0;
    stet_run_row row;
    stet_value   value;
    stet_store  *s = x->store;

    CHECK_OK(s->ops->run(s, x->ids[0], faulty_ignore, &row));
    CHECK_INT(row.status, 9);
    CHECK_INT(row.is_terminal, 0);
    CHECK_INT(row.journal, 1);
    CHECK_INT(row.inbox, 1);
    CHECK(row.lane != NULL);
    CHECK_OK(s->ops->journal(s, x->ids[0], 1, 9, faulty_first, &first));
    CHECK_INT(first, 1);
    CHECK_OK(s->ops->inbox(s, x->ids[0], 1, 9, faulty_first, &first));
    CHECK_INT(first, 1);
    CHECK_CODE(s->ops->run(s, x->ids[1], faulty_ignore, &row), STET_ENOTFOUND);
    CHECK_CODE(s->ops->run(s, x->ids[2], faulty_ignore, &row), STET_ENOTFOUND);
    CHECK_OK(s->ops->value(s, "s", stet_text("k"), &value));
    CHECK_INT(value.version, 1);
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    CHECK_OK(s->ops->session_renew(s, x->claimer.session, 60000));
}

TEST(G1_memory_every_allocation_of_a_commit_may_fail)
{
    faulty f;
    long   tried = 0;
    int    err = STET_ENOMEM;

    for (; err == STET_ENOMEM; tried++) {
        fixture          x = { 0 };
        stet__memory_db *db;

        faulty_init(&f);
        db = stet__memory_db_new(&f.base);
        CHECK(db != NULL);
        CHECK_OK(stet__memory_open(&x.store, &f.base, db));
        fixture_fill(&x);
        fixture_batch(&x);
        f.left = tried;
        err = x.store->ops->commit(x.store, x.units, 3, x.outcomes);
        f.left = -1;
        if (err != STET_OK) {
            CHECK_CODE(err, STET_ENOMEM);
            fixture_check_untouched(&x);
            CHECK_OK(x.store->ops->commit(x.store, x.units, 3, x.outcomes));
        }
        for (int i = 0; i < 3; i++) {
            CHECK_OK(x.outcomes[i].result);
            CHECK(!x.outcomes[i].is_repeat);
            stet__free(x.store->alloc, x.outcomes[i].grants);
        }
        stet__store_close(x.store);
        stet__memory_db_free(db);
        CHECK_INT(f.live, 0);
    }
    CHECK(tried > 20);
    test_note("tried %ld allocations", tried);
}

/* Each is the fault of who made the unit: it is told so, and its neighbours are applied. */
TEST(G6_memory_units_that_make_no_sense_are_refused)
{
    fixture      x = { 0 };
    stet_id      id = { { 1 } };
    stet_run_row nameless = { .id = id }, owned = { .id = id, .session = 7 };
    stet_op      bad[] = {
        { .kind = STET_OP_RUN_PUT },
        { .kind = STET_OP_RUN_PUT, .row = &nameless },
        { .kind = STET_OP_RUN_SET, .run = id },
        { .kind = STET_OP_RUN_SET, .run = id, .row = &owned, .mask = STET_RUN_OWNER },
        { .kind = STET_OP_FACTS, .run = id, .number = 2 },
        { .kind = STET_OP_VALUE_PUT, .key = stet_text("k") },
        { .kind = STET_OP_VALUE_DEL, .key = stet_text("k") },
        { .kind = STET_OP_LANE_ENTER, .run = id },
        { .kind = STET_OP_LANE_ENTER, .run = id, .lane = "another" },
        { .kind = STET_OP_CLAIM_DUE, .count = 1 },
        { .kind = STET_OP_REAP },
        { .kind = STET_OP_REQUEUE },
        { .kind = (stet_op_kind)99 },
    };
    stet_cond conds[] = {
        { .kind = STET_COND_VALUE, .key = stet_text("k") },
        { .kind = STET_COND_WRITER, .key = stet_text("k") },
        { .kind = (stet_cond_kind)99 },
    };
    size_t    n_bad = sizeof bad / sizeof bad[0], n_conds = sizeof conds / sizeof conds[0];
    stet_op   good = { .kind = STET_OP_VALUE_PUT, .space = "n", .key = stet_text("k") };
    stet_unit units[2] = { { .seq = 10 }, { .ops = &good, .n_ops = 1 } };

    CHECK_OK(stet__store_open(&x.store, stet__platform_real(), "memory:"));
    fixture_fill(&x);
    for (size_t i = 0; i < n_bad + n_conds; i++) {
        stet_outcome out[2];

        units[0].seq = 10 + 2 * i;
        units[1].seq = 11 + 2 * i;
        units[0].ops = i < n_bad ? &bad[i] : &good;
        units[0].n_ops = 1;
        units[0].conds = i < n_bad ? NULL : &conds[i - n_bad];
        units[0].n_conds = i < n_bad ? 0 : 1;
        CHECK_OK(x.store->ops->commit(x.store, units, 2, out));
        if (out[0].result != STET_EINVAL)
            test_fail(__FILE__, __LINE__, "unit %zu: %s", i, stet_code_name(out[0].result));
        CHECK_OK(out[1].result);
    }
    fixture_check_untouched(&x);
    stet__store_close(x.store);
}

TEST(G1_memory_opening_survives_any_failed_allocation)
{
    faulty      f;
    stet_store *store = NULL;
    int         err = STET_ENOMEM;

    for (long tried = 0; err == STET_ENOMEM; tried++) {
        faulty_init(&f);
        f.left = tried;
        err = stet__store_open(&store, &f.base, "memory:");
        CHECK(err == STET_OK || store == NULL);
        stet__store_close(store);
        CHECK_INT(f.live, 0);
    }
    CHECK_OK(err);
}

TEST(G1_memory_crumbs_of_a_dead_node_are_let_go)
{
    faulty           node;
    stet__memory_db *db = stet__memory_db_new(stet__platform_real());
    stet_store      *lost, *store;
    stet_crumb      *crumbs;
    size_t           n;
    uint64_t         session;
    stet_id          id = { { 1 } };
    stet_op          op = { .kind = STET_OP_REAP };
    stet_unit        unit = { .seq = 1, .ops = &op, .n_ops = 1 };
    stet_outcome     out;

    faulty_init(&node);
    CHECK_OK(stet__memory_open(&lost, &node.base, db));
    CHECK_OK(stet__memory_open(&store, stet__platform_real(), db));
    CHECK_OK(lost->ops->session_open(lost, &session, id, 1000, (stet_bytes){ NULL, 0 }));
    CHECK(lost->ops->crumbs(lost, session, 2) != NULL);
    stet__memory_db_forget(db, &node.base); /* its handle is never touched again */
    stet__memory_db_advance(db, 2000);
    CHECK_OK(store->ops->crumbs_of(store, session, &crumbs, &n));
    CHECK_INT(n, 2);
    stet__free(store->alloc, crumbs);
    op.session = session;
    CHECK_OK(store->ops->commit(store, &unit, 1, &out));
    CHECK_CODE(store->ops->crumbs_of(store, session, &crumbs, &n), STET_ENOTFOUND);
    stet__store_close(store);
    stet__store_close(lost);
    stet__memory_db_free(db);
}

TEST(G6_addresses_that_no_store_opens)
{
    static const char *const bad[] = { "mysql://host/db", "file://host", "nosuch:thing",
                                       "memory:name",     "sqlite:",     "" };
    stet_store              *store;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_CODE(stet__store_open(&store, stet__platform_real(), bad[i]), STET_EURL);
        CHECK(store == NULL);
        CHECK_HAS(stet_last_error(), "memory:");
    }
    CHECK_OK(stet__store_open(&store, stet__platform_real(), "memory:"));
    CHECK_OK(store->ops->ping(store));
    stet__store_close(store);
    stet__store_close(NULL);
}
