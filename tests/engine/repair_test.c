/* Repair: what disagrees with the facts is set right; that whole tables are is in lost_test.c. Rows
 * F2, I2. */
#include "damage.h"

#include "engine/engine.h"

/* ---- I2: one thing is wrong ------------------------------------------------------------------ */

typedef struct repairs {
    int  n, repaired;
    char rule[32], run[STET_ID_TEXT_MAX], text[512];
} repairs;

static int
on_repair(void *arg, const stet_finding *finding)
{
    repairs *to = arg;

    if (to->n++ == 0) {
        (void)snprintf(to->rule, sizeof to->rule, "%s", finding->rule);
        (void)snprintf(to->run, sizeof to->run, "%s", finding->run != NULL ? finding->run : "");
        (void)snprintf(to->text, sizeof to->text, "%s", finding->text);
    }
    to->repaired += finding->is_repaired;
    return STET_OK;
}

static repairs
verify_now(stet_engine *e)
{
    repairs found = { 0 };

    CHECK_OK(stet_verify(e, NULL, on_repair, &found));
    CHECK_INT(found.repaired, 0);
    return found;
}

static repairs
repair_now(stet_engine *e)
{
    repairs found = { 0 };

    CHECK_OK(stet_repair(e, NULL, on_repair, &found));
    return found;
}

static gate i2_door = GATE_INIT;

static int
i2_nap(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "nap", "1h"));
    return stet_return(ctx, input);
}

static int
i2_letter(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "no");
}

static int
i2_fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_ERETRY, "not now");
}

static int
i2_set(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "note", input));
    STET_TRY(stet_state_set(ctx, "other", input));
    STET_TRY(stet_state_clear(ctx, "other"));
    STET_TRY(stet_state_clear(ctx, "greeting"));
    return stet_return(ctx, input);
}

static int
i2_busy(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &i2_door, NULL));
    return stet_return(ctx, input);
}

static const stet_handler i2_handlers[] = {
    { "nap", i2_nap, NULL },          { "quick", h_echo, NULL },
    { "letter", i2_letter, NULL },    { "fails", i2_fails, NULL },
    { "approval", h_approval, NULL }, { "set", i2_set, NULL },
    { "busy", i2_busy, NULL },        { 0 },
};
/* Of the test whose store is not what it seems. */
static fixture *i2_fixture;
static int (*i2_values)(stet_store *s, const char *space, stet_bytes prefix,
                        const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg);

static const stet_entry i2_initial[] = { { "greeting", { "hello", 5 } }, { NULL, { NULL, 0 } } };
static const fixture_service i2_services[] = { { "t", i2_handlers, false, NULL },
                                               { "o", i2_handlers, true, i2_initial },
                                               { 0 } };

typedef struct i2_world {
    stet_run_id nap, waiting, ended, letter, discarded, again, retrying, approval, set, parent,
        child;
    char awakeable[STET_ID_TEXT_MAX];
} i2_world;

/* Nobody executes anything when the damage is done. */
static fixture *
i2_begin(i2_world *w)
{
    static const char *const labels[] = { "colour=red", NULL };
    fixture                 *f = fixture_begin();

    memset(w, 0, sizeof *w);
    fixture_up(f, i2_services);
    w->nap = fixture_start(
        f->engine, "o.nap", "",
        STET_START(.key = "k", .timeout = "3h", .idempotency_key = "once", .labels = labels));
    fixture_await_status(f->engine, &w->nap, STET_STATUS_SUSPENDED);
    w->waiting = fixture_start(f->engine, "o.quick", "w", STET_START(.key = "k"));
    w->ended = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &w->ended, "");
    w->letter = fixture_start(f->engine, "t.letter", "", NULL);
    EXPECT_ANSWER(f->engine, &w->letter, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &w->again, &w->letter));
    EXPECT_ANSWER(f->engine, &w->again, STET_ERUN);
    w->discarded = fixture_start(f->engine, "t.letter", "", NULL);
    EXPECT_ANSWER(f->engine, &w->discarded, STET_ERUN);
    CHECK_OK(stet_dlq_discard(f->engine, &w->discarded));
    w->retrying = fixture_start(f->engine, "t.fails", "",
                                STET_START(.retry = { .first_ms = 7200000, .max_ms = 7200000 }));
    fixture_await_status(f->engine, &w->retrying, STET_STATUS_RETRYING);
    w->approval = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &w->approval, STET_STATUS_SUSPENDED);
    (void)snprintf(w->awakeable, sizeof w->awakeable, "%s", handed_out);
    w->set = fixture_start(f->engine, "o.set", "value", STET_START(.key = "s"));
    EXPECT_RESULT(f->engine, &w->set, "value");
    w->parent = fixture_start(f->engine, "t.nap", "", NULL);
    fixture_await_status(f->engine, &w->parent, STET_STATUS_SUSPENDED);
    w->child =
        fixture_start(f->engine, "t.quick", "",
                      STET_START(.parent = &w->parent, .parent_step = "x", .child_key = "c"));
    EXPECT_RESULT(f->engine, &w->child, "");
    fixture_down(f);
    f->engine = fixture_open(f);
    CHECK_INT(verify_now(f->engine).n, 0);
    CHECK_INT(repair_now(f->engine).n, 0);
    return f;
}

/* It is found, with the run and the rule (NULL: one of several); repaired; and then nothing is
 * wrong. */
static void
i2_expect(fixture *f, const stet_run_id *run, const char *rule)
{
    repairs found = verify_now(f->engine);

    test_note("%s: %s", found.rule, found.text);
    CHECK(found.n >= 1);
    CHECK(rule == NULL || strcmp(found.rule, rule) == 0);
    CHECK_STR(found.run, run->text);
    CHECK(found.text[0] != '\0');
    found = repair_now(f->engine);
    CHECK(found.n >= 1);
    CHECK_INT(found.repaired, found.n);
    CHECK_INT(verify_now(f->engine).n, 0);
    CHECK_INT(repair_now(f->engine).n, 0);
}

static void
i2_set_row(fixture *f, const stet_run_id *run, uint32_t mask, stet_run_row row)
{
    stet_op op = { .kind = STET_OP_RUN_SET, .mask = mask };

    op.run = row.id = damage_id(run);
    op.row = &row;
    damage_do(f, &op, 1);
}

TEST(I2_a_row_that_lies_is_repaired)
{
    i2_world   w;
    fixture   *f = i2_begin(&w);
    stet__fact extra = { .kind = STET__FACT_ROW, .attempts_max = 99 };
    stet__buf  b;

    i2_set_row(f, &w.nap, STET_RUN_STATUS,
               (stet_run_row){ .status = STET_STATUS_COMPLETED, .is_terminal = 1, .ended_ms = 5 });
    i2_expect(f, &w.nap, "projection");
    i2_set_row(f, &w.nap, STET_RUN_STATUS,
               (stet_run_row){ .status = STET_STATUS_RETRYING, .ended_ms = STET_NEVER });
    i2_expect(f, &w.nap, "projection");
    i2_set_row(f, &w.ended, STET_RUN_STATUS,
               (stet_run_row){ .status = STET_STATUS_PENDING, .ended_ms = STET_NEVER });
    i2_expect(f, &w.ended, "projection");
    i2_set_row(f, &w.retrying, STET_RUN_DUE, (stet_run_row){ .due_ms = STET_NEVER });
    i2_expect(f, &w.retrying, "wake-up");
    i2_set_row(f, &w.retrying, STET_RUN_DUE, (stet_run_row){ .due_ms = STET_NEVER - 5 });
    i2_expect(f, &w.retrying, "projection");
    CHECK_INT(fixture_look(f->engine, &w.retrying).status, STET_STATUS_RETRYING);
    i2_set_row(f, &w.retrying, STET_RUN_ATTEMPT, (stet_run_row){ .attempt = 77 });
    i2_expect(f, &w.retrying, "projection");
    stet__buf_init(&b, &stet__platform_real()->alloc);
    stet__fact_encode(&b, &extra);
    i2_set_row(f, &w.parent, STET_RUN_EXTRA, (stet_run_row){ .extra = stet__buf_bytes(&b) });
    stet__buf_free(&b);
    i2_expect(f, &w.parent, "projection");
    CHECK(fixture_look(f->engine, &w.parent).attempts_max != 99);
    fixture_end(f);
}

/* What lists and `why` tell of a run that waits. */
TEST(I2_a_reason_that_lies_is_repaired)
{
    i2_world w;
    fixture *f = i2_begin(&w);

    i2_set_row(f, &w.nap, STET_RUN_REASON, (stet_run_row){ .reason = "for nothing" });
    i2_expect(f, &w.nap, "projection");
    i2_set_row(f, &w.retrying, STET_RUN_REASON, (stet_run_row){ .reason = NULL });
    i2_expect(f, &w.retrying, "projection");
    i2_set_row(f, &w.ended, STET_RUN_REASON, (stet_run_row){ .reason = "it is over" });
    i2_expect(f, &w.ended, "projection");
    fixture_end(f);
}

#ifdef STET_WITH_SQLITE
/* Columns that no unit writes twice. Those that lists go by are found there first (rule index),
 * unless a
 * run of the same time does not lie. */
TEST(I2_a_row_with_another_start_or_end_is_repaired)
{
    static const struct {
        const char *sql, *rule;
        bool        is_open;
    } lies[] = {
        { "UPDATE runs SET created=created+1 WHERE id=?1", "projection", true },
        { "UPDATE runs SET priority=priority+1 WHERE id=?1", "projection", true },
        { "UPDATE runs SET grp='others' WHERE id=?1", "projection", true },
        { "UPDATE runs SET handler='t.lie' WHERE id=?1", NULL, true },
        { "UPDATE runs SET key='else' WHERE id=?1", NULL, true },
        { "UPDATE runs SET key=NULL WHERE id=?1", "projection", true },
        { "UPDATE runs SET epoch=0 WHERE id=?1", "projection", true },
        { "UPDATE runs SET inbox=inbox+1 WHERE id=?1", "projection", true },
        { "UPDATE runs SET lane='o/else' WHERE id=?1", "lane", true },
        { "UPDATE runs SET ended=ended+1 WHERE id=?1", "projection", false },
        { "UPDATE runs SET status=11 WHERE id=?1", NULL, false },
        { "UPDATE runs SET handler='t.lie' WHERE id=?1", NULL, false },
        { "UPDATE runs SET lane='t/k', lane_pos=1 WHERE id=?1", "lane", false },
    };
    stet_bytes none = { NULL, 0 };
    i2_world   w;
    fixture   *f = i2_begin(&w);

    if (!f->is_sqlite)
        test_skip("needs a file");
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        const stet_run_id *run = lies[i].is_open ? &w.nap : &w.ended;

        test_note("%s", lies[i].sql);
        damage_sql(f, lies[i].sql, run, none);
        i2_expect(f, run, lies[i].rule);
    }
    fixture_end(f);
}

/* A worker that is alive does not find it, and then it does. */
TEST(I2_a_run_that_the_queue_lost_goes_on_beside_its_worker)
{
    fixture    *f = fixture_begin();
    stet_run_id run, next;

    if (!f->is_sqlite)
        test_skip("needs a file");
    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    damage_sql(f, "UPDATE runs SET work=NULL WHERE id=?1", &run, (stet_bytes){ NULL, 0 });
    fixture_down(f);
    fixture_up(f, common_services);
    next = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &next, "");
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_PENDING);
    i2_expect(f, &run, "index");
    EXPECT_RESULT(f->engine, &run, "");
    fixture_end(f);
}
#endif

TEST(I2_a_run_that_left_its_lane_is_put_back)
{
    i2_world w;
    fixture *f = i2_begin(&w);
    stet_op  op = { .kind = STET_OP_LANE_LEAVE, .status = STET_STATUS_PENDING };

    op.run = damage_id(&w.waiting);
    damage_do(f, &op, 1);
    i2_expect(f, &w.waiting, "lane");
    CHECK_INT(fixture_look(f->engine, &w.waiting).due_ms, 0); /* behind the one that sleeps */
    fixture_down(f);
    fixture_up(f, i2_services);
    CHECK_OK(stet_cancel(f->engine, &w.nap, NULL, NULL));
    EXPECT_RESULT(f->engine, &w.waiting, "w");
    fixture_end(f);
}

typedef struct i2_lane {
    stet_id runs[8];
    size_t  n;
} i2_lane;

static int
i2_on_lane(void *arg, stet_id run)
{
    i2_lane *lane = arg;

    CHECK(lane->n < 8);
    lane->runs[lane->n++] = run;
    return STET_OK;
}

static void
i2_expect_lane(fixture *f, const char *key, const stet_run_id *const *want, size_t n)
{
    stet_store *s = damage_open(f);
    i2_lane     lane = { .n = 0 };
    stet__arena arena;

    stet__arena_init(&arena, &stet__platform_real()->alloc);
    CHECK_OK(s->ops->lane(s, stet__lane_name(&arena, "o.nap", key), 8, i2_on_lane, &lane));
    CHECK_INT(lane.n, n);
    for (size_t i = 0; i < n; i++)
        CHECK(stet__id_equal(lane.runs[i], damage_id(want[i])));
    stet__arena_free(&arena);
    stet__store_close(s);
}

/* To the end of its lane, as if it had come last. */
static void
i2_go_back(fixture *f, const char *key, const stet_run_id *run)
{
    stet_op     ops[2] = { { .kind = STET_OP_LANE_LEAVE, .status = STET_STATUS_PENDING },
                           { .kind = STET_OP_LANE_ENTER, .status = STET_STATUS_PENDING } };
    stet__arena arena;

    stet__arena_init(&arena, &stet__platform_real()->alloc);
    ops[0].run = ops[1].run = damage_id(run);
    ops[1].lane = stet__lane_name(&arena, "o.nap", key);
    damage_do(f, ops, 2);
    stet__arena_free(&arena);
}

/* It holds the key: whoever is in front of it would work on what it has half done. */
TEST(I2_a_run_that_has_begun_is_put_in_front_of_its_lane)
{
    i2_world           w;
    fixture           *f = i2_begin(&w);
    stet_run_id        last = fixture_start(f->engine, "o.quick", "z", STET_START(.key = "k"));
    const stet_run_id *order[] = { &w.nap, &w.waiting, &last };

    i2_go_back(f, "k", &w.nap);
    CHECK(fixture_look(f->engine, &w.waiting).due_ms != 0);
    i2_expect(f, &w.nap, "lane");
    i2_expect_lane(f, "k", order, 3);
    CHECK_INT(fixture_look(f->engine, &w.nap).status, STET_STATUS_SUSPENDED);
    CHECK_INT(fixture_look(f->engine, &w.nap).due_ms, 0);
    CHECK_INT(fixture_look(f->engine, &w.waiting).due_ms, 0);
    fixture_down(f);
    fixture_up(f, i2_services);
    CHECK_OK(stet_cancel(f->engine, &w.nap, NULL, NULL));
    EXPECT_RESULT(f->engine, &w.waiting, "w");
    EXPECT_RESULT(f->engine, &last, "z");
    fixture_end(f);
}

/* In one unit: no crash in the middle leaves it without the time it is due. */
TEST(I2_a_run_that_is_retried_is_put_in_front_with_its_time)
{
    i2_world           w;
    fixture           *f = i2_begin(&w);
    stet_run_id        retried, next;
    const stet_run_id *order[] = { &retried, &next };
    int64_t            due_ms;
    repairs            found;

    fixture_down(f);
    fixture_up(f, i2_services);
    retried =
        fixture_start(f->engine, "o.fails", "",
                      STET_START(.key = "r", .retry = { .first_ms = 7200000, .max_ms = 7200000 }));
    fixture_await_status(f->engine, &retried, STET_STATUS_RETRYING);
    due_ms = fixture_look(f->engine, &retried).due_ms;
    fixture_down(f);
    f->engine = fixture_open(f);
    next = fixture_start(f->engine, "o.quick", "n", STET_START(.key = "r"));
    i2_go_back(f, "r", &retried);
    found = repair_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_INT(found.repaired, 1);
    CHECK_STR(found.run, retried.text);
    i2_expect_lane(f, "r", order, 2);
    CHECK_INT(fixture_look(f->engine, &retried).status, STET_STATUS_RETRYING);
    CHECK_INT(fixture_look(f->engine, &retried).due_ms, due_ms);
    CHECK_INT(fixture_look(f->engine, &next).due_ms, 0);
    fixture_end(f);
}

/* Who has begun meanwhile finishes; then it is the turn of the one it passed. */
TEST(I2_a_lane_is_not_put_in_order_under_a_worker)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  nap, busy;
    repairs      found;

    fixture_up(f, i2_services);
    nap = fixture_start(f->engine, "o.nap", "n", STET_START(.key = "k"));
    fixture_await_status(f->engine, &nap, STET_STATUS_SUSPENDED);
    busy = fixture_start(f->engine, "o.busy", "b", STET_START(.key = "k"));
    i2_go_back(f, "k", &nap);
    gate_await(&i2_door, 1);
    other = fixture_open(f);
    found = repair_now(other);
    CHECK_INT(found.n, 1);
    CHECK_INT(found.repaired, 0);
    CHECK_STR(found.rule, "lane");
    CHECK_STR(found.run, nap.text);
    gate_open(&i2_door);
    EXPECT_RESULT(f->engine, &busy, "b");
    CHECK_INT(verify_now(other).n, 0);
    stet_close(other);
    fixture_end(f);
}

static stet_store *i2_rival; /* claims what is due just before the next commit */
static uint64_t    i2_session;
static int (*i2_commit)(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);

static int
i2_commit_late(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    static const char *const handlers[] = { "o.quick" };
    stet_claimer             claimer = { i2_session, STET_STATUS_RUNNING, handlers, 1 };
    stet_op                  op = { .kind = STET_OP_CLAIM_DUE, .count = 1, .claimer = &claimer };
    stet_store              *rival = i2_rival;

    i2_rival = NULL;
    if (rival != NULL)
        CHECK_INT(damage_try(rival, NULL, 0, &op, 1).n_grants, 1);
    return i2_commit(s, units, n, outcomes);
}

/* Between the look and the commit a worker takes the run that is to go back. */
TEST(I2_a_lane_is_not_put_in_order_under_a_worker_that_was_quicker)
{
    i2_world           w;
    fixture           *f = i2_begin(&w);
    stet_store        *s = damage_open(f);
    stet_store_ops    *ops = damage_ops(f->engine);
    const stet_run_id *passed[] = { &w.waiting, &w.nap }, *order[] = { &w.nap, &w.waiting };
    repairs            found;

    i2_go_back(f, "k", &w.nap);
    CHECK_OK(s->ops->session_open(s, &i2_session, damage_id(&w.nap), 60000, stet_text("")));
    i2_commit = ops->commit;
    ops->commit = i2_commit_late;
    i2_rival = s;
    found = repair_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_INT(found.repaired, 0);
    CHECK_STR(found.run, w.nap.text);
    i2_expect_lane(f, "k", passed, 2);
    CHECK_INT(fixture_look(f->engine, &w.waiting).status, STET_STATUS_RUNNING);
    CHECK_OK(s->ops->session_close(s, i2_session));
    found = repair_now(f->engine);
    CHECK_INT(found.repaired, found.n);
    i2_expect_lane(f, "k", order, 2);
    stet__store_close(s);
    fixture_end(f);
}

/* Two have begun: that is told, nothing is made worse, and what else is wrong is repaired. */
TEST(I2_of_two_that_have_begun_the_first_stays)
{
    i2_world           w;
    fixture           *f = i2_begin(&w);
    stet_run_id        other = fixture_start(f->engine, "o.nap", "x", STET_START(.key = "k"));
    const stet_run_id *order[] = { &other, &w.nap, &w.waiting };
    stet_op            op = { .kind = STET_OP_VALUE_DEL, .space = STET__SPACE_IDEM };
    repairs            found;

    i2_go_back(f, "k", &w.nap);
    i2_go_back(f, "k", &w.waiting);
    i2_expect_lane(f, "k", order, 3);
    fixture_down(f);
    fixture_up(f, i2_services);
    fixture_await_status(f->engine, &other, STET_STATUS_SUSPENDED);
    fixture_down(f);
    op.key = (stet_bytes){ "o.nap\0k\0once", 12 };
    damage_do(f, &op, 1);
    f->engine = fixture_open(f);
    found = repair_now(f->engine);
    CHECK_INT(found.n, 2);
    CHECK_INT(found.repaired, 1);
    found = verify_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_STR(found.run, w.nap.text);
    CHECK_HAS(found.text, "another began");
    i2_expect_lane(f, "k", order, 3);
    fixture_down(f);
    fixture_up(f, i2_services);
    CHECK_OK(stet_cancel(f->engine, &other, NULL, NULL));
    fixture_await_status(f->engine, &other, STET_STATUS_CANCELLED);
    CHECK_INT(verify_now(f->engine).n, 0);
    fixture_end(f);
}

/* Due means that anybody may take it. */
TEST(I2_a_run_that_is_due_before_its_turn_waits_again)
{
    i2_world           w;
    fixture           *f = i2_begin(&w);
    const stet_run_id *order[] = { &w.nap, &w.waiting };

    i2_set_row(f, &w.waiting, STET_RUN_DUE, (stet_run_row){ .due_ms = 1 });
    i2_expect(f, &w.waiting, "lane");
    CHECK_INT(fixture_look(f->engine, &w.waiting).due_ms, 0);
    i2_expect_lane(f, "k", order, 2);
    fixture_end(f);
}

/* Facts are written before the commit that decides who came first (decision 14), so any order of
 * those who have not begun is right: they go one after the other in it. */
TEST(I2_the_order_of_those_who_wait_is_not_judged)
{
    i2_world           w;
    fixture           *f = i2_begin(&w);
    stet_run_id        last = fixture_start(f->engine, "o.quick", "z", STET_START(.key = "k"));
    const stet_run_id *order[] = { &w.nap, &last, &w.waiting };

    i2_go_back(f, "k", &w.waiting);
    i2_expect_lane(f, "k", order, 3);
    CHECK_INT(verify_now(f->engine).n, 0);
    CHECK_INT(repair_now(f->engine).n, 0);
    fixture_down(f);
    fixture_up(f, i2_services);
    CHECK_OK(stet_cancel(f->engine, &w.nap, NULL, NULL));
    EXPECT_RESULT(f->engine, &last, "z");
    EXPECT_RESULT(f->engine, &w.waiting, "w");
    CHECK(fixture_look(f->engine, &last).ended_ms <= fixture_look(f->engine, &w.waiting).ended_ms);
    fixture_end(f);
}

TEST(I2_a_timer_that_is_gone_is_put_back)
{
    static const uint64_t completions[] = { 0, 3 };

    for (size_t i = 0; i < 2; i++) {
        i2_world     w;
        fixture     *f = i2_begin(&w);
        stet_store  *s = damage_open(f);
        stet__loaded l;
        stet_op      op = { .kind = STET_OP_TIMER_DEL, .number = completions[i] };

        CHECK_OK(stet__load(f->engine, &l, damage_id(&w.nap), true));
        op.run = l.run.id;
        op.fire_ms = i == 0 ? l.run.deadline_ms : l.journal.waiting->until_ms;
        stet__loaded_free(&l);
        stet__store_close(s);
        damage_do(f, &op, 1);
        i2_expect(f, &w.nap, "timer");
        fixture_end(f);
        fixture_wipe();
    }
}

/* Until it fires, which may be in years, it would be nobody's. */
TEST(I2_timers_of_runs_that_are_not_there_are_removed)
{
    static const uint64_t completions[] = { STET__TIMER_DEADLINE, STET__TIMER_VISIBLE, 3 };
    i2_world              w;
    fixture              *f = i2_begin(&w);
    stet_op               ops[3];
    repairs               found;

    memset(ops, 0, sizeof ops);
    for (size_t i = 0; i < 3; i++) {
        ops[i].kind = STET_OP_TIMER_PUT;
        ops[i].run.bytes[3] = 9;
        ops[i].fire_ms = stet__wall_ms(stet__platform_real()) + 3600000;
        ops[i].number = completions[i];
    }
    damage_do(f, ops, 3);
    found = verify_now(f->engine);
    CHECK_INT(found.n, 3);
    CHECK_STR(found.rule, "timer");
    CHECK_HAS(found.text, "not there");
    found = repair_now(f->engine);
    CHECK_INT(found.n, 3);
    CHECK_INT(found.repaired, 3);
    CHECK_INT(verify_now(f->engine).n, 0);
    CHECK_INT(repair_now(f->engine).n, 0);
    fixture_end(f);
}

/* Each space of values: the first (or only) one in it goes, then one is changed. */
typedef struct i2_value {
    stet_bytes key;
    bool       found;
    char       bytes[256];
} i2_value;

static int
i2_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    i2_value *v = arg;

    (void)value;
    CHECK(key.len <= sizeof v->bytes);
    memcpy(v->bytes, key.data, key.len);
    v->key = (stet_bytes){ v->bytes, key.len };
    v->found = true;
    return STET_END;
}

TEST(I2_values_that_are_gone_or_changed_are_repaired)
{
    i2_world w;
    fixture *f = i2_begin(&w);
    struct {
        const char        *space, *rule;
        const stet_run_id *run;
        bool               is_marker; /* its bytes mean nothing */
    } all[] = {
        { STET__SPACE_STATE, "value", &w.set, false },
        { STET__SPACE_CLEARED, "value", &w.set, true },
        { STET__SPACE_IDEM, "value", &w.nap, false },
        { STET__SPACE_CHILD, "value", &w.child, false },
        { STET__SPACE_LABEL, "value", &w.nap, false },
        { STET__SPACE_AWAKEABLE, "value", &w.approval, false },
        { STET__SPACE_RETRY, "value", &w.again, false },
        { STET__SPACE_DISCARD, "value", &w.discarded, false },
    };

    for (size_t i = 0; i < 2 * sizeof all / sizeof all[0]; i++) {
        stet_store *s;
        i2_value    v = { .found = false };
        bool        is_changed = i % 2 != 0;
        stet_op     op = { .kind = is_changed ? STET_OP_VALUE_PUT : STET_OP_VALUE_DEL,
                           .space = all[i / 2].space };

        if (is_changed && all[i / 2].is_marker)
            continue;
        s = damage_open(f);
        CHECK_CODE(s->ops->values(s, op.space, (stet_bytes){ NULL, 0 }, NULL, 1, i2_on_value, &v),
                   STET_END);
        stet__store_close(s);
        CHECK(v.found);
        op.key = v.key;
        op.data = stet_text("0123456789abcdef");
        damage_do(f, &op, 1);
        if (strcmp(op.space, STET__SPACE_RETRY) == 0) { /* seen from both ends */
            repairs found = repair_now(f->engine);

            CHECK(found.n >= 1 && found.n == found.repaired);
            CHECK_INT(verify_now(f->engine).n, 0);
        } else
            i2_expect(f, all[i / 2].run, all[i / 2].rule);
    }
    fixture_down(f);
    fixture_up(f, i2_services);
    CHECK_OK(stet_resolve(f->engine, w.awakeable, stet_text("\"yes\"")));
    EXPECT_RESULT(f->engine, &w.approval, "\"yes\"");
    fixture_end(f);
}

TEST(I2_state_that_nobody_wrote_is_removed)
{
    i2_world w;
    fixture *f = i2_begin(&w);
    stet_op  op = { .kind = STET_OP_VALUE_PUT, .space = STET__SPACE_STATE };
    repairs  found;

    op.key = (stet_bytes){ "o\0s\0thing", 9 };
    op.data = stet_text("?");
    damage_do(f, &op, 1);
    found = repair_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_INT(found.repaired, 1);
    CHECK_HAS(found.text, "nobody wrote it");
    op.key = (stet_bytes){ "o\0s\0other", 9 };
    damage_do(f, &op, 1);
    found = repair_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_HAS(found.text, "was cleared");
    CHECK_INT(verify_now(f->engine).n, 0);
    fixture_end(f);
}

/* A start with that key would be answered with a run that is not there. */
TEST(I2_values_of_runs_that_are_not_there_are_removed)
{
    static const char *const spaces[] = { STET__SPACE_IDEM, STET__SPACE_LABEL,
                                          STET__SPACE_AWAKEABLE };
    i2_world                 w;
    fixture                 *f = i2_begin(&w);
    stet_op                  op = { .kind = STET_OP_VALUE_PUT, .number = 1 };
    repairs                  found;

    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        op.space = spaces[i];
        op.run.bytes[3] = 9;
        op.key = stet_text("0123456789abcdef");
        op.data = op.key;
        damage_do(f, &op, 1);
        CHECK_INT(verify_now(f->engine).n, 1);
        found = repair_now(f->engine);
        CHECK_INT(found.n, 1);
        CHECK_INT(found.repaired, 1);
        CHECK_STR(found.rule, "value");
        CHECK_INT(verify_now(f->engine).n, 0);
    }
    fixture_end(f);
}

/* A start with that key would be answered with another run. */
TEST(I2_the_key_of_a_removed_child_that_was_changed_is_repaired)
{
    i2_world   w;
    fixture   *f = i2_begin(&w);
    stet_id    run;
    uint8_t    key[64];
    stet_op    ops[2] = { { .kind = STET_OP_VALUE_PUT }, { .kind = STET_OP_VALUE_PUT } };
    stet_value v = { 0 };
    repairs    found;

    memset(&run, 7, sizeof run);
    memcpy(key, run.bytes, sizeof run.bytes);
    memcpy(key + sizeof run.bytes, "x\0c", 3);
    for (int i = 0; i < 2; i++) {
        ops[i].space = i == 0 ? STET__SPACE_BASE_CHILD : STET__SPACE_CHILD;
        ops[i].key = (stet_bytes){ key, sizeof run.bytes + 3 };
        ops[i].data = stet_text(i == 0 ? "0123456789abcdeft.quick" : "somebody else's");
    }
    damage_do(f, ops, 2);
    found = verify_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_HAS(found.text, "not what it was");
    found = repair_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_INT(found.repaired, 1);
    CHECK_OK(f->engine->store->ops->value(f->engine->store, STET__SPACE_CHILD, ops[0].key, &v));
    CHECK(fixture_is(v.data, "0123456789abcdeft.quick"));
    stet__free(f->engine->store->alloc, (void *)(uintptr_t)v.data.data);
    CHECK_INT(verify_now(f->engine).n, 0);
    fixture_end(f);
}

/* The parent goes, and all that is kept of its children, while verify is about to look at them. */
static int
i2_values_vanish(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
                 size_t limit, stet_value_fn fn, void *arg)
{
    stet_op op = { .kind = STET_OP_VALUE_DEL, .space = space };
    int     err = i2_values(s, space, prefix, after, limit, fn, arg);

    if (strcmp(space, STET__SPACE_BASE_CHILD) == 0) {
        op.key = (stet_bytes){ "0123456789abcdefx\0c", 19 };
        damage_do(i2_fixture, &op, 1);
    }
    return err;
}

TEST(I2_the_key_of_a_child_that_goes_while_verify_looks_is_not_missed)
{
    i2_world w;
    fixture *f = i2_begin(&w);
    stet_op  op = { .kind = STET_OP_VALUE_PUT, .space = STET__SPACE_BASE_CHILD };

    op.key = (stet_bytes){ "0123456789abcdefx\0c", 19 };
    op.data = stet_text("0123456789abcdeft.quick");
    damage_do(f, &op, 1);
    CHECK_HAS(verify_now(f->engine).text, "is missing");
    i2_fixture = f;
    i2_values = f->engine->store->ops->values;
    damage_ops(f->engine)->values = i2_values_vanish;
    CHECK_INT(verify_now(f->engine).n, 0);
    fixture_end(f);
}

TEST(I2_an_owner_that_does_not_exist_is_taken_away)
{
    i2_world w;
    fixture *f = i2_begin(&w);
    repairs  found;

    if (!f->is_sqlite)
        test_skip("needs a file");
#ifdef STET_WITH_SQLITE
    damage_sql(f, "UPDATE runs SET work=4711, status=2, epoch=9 WHERE id=?1", &w.parent,
               (stet_bytes){ NULL, 0 });
#endif
    found = verify_now(f->engine);
    CHECK_STR(found.rule, "owner");
    found = repair_now(f->engine);
    CHECK(found.n >= 1);
    CHECK_INT(found.repaired, found.n);
    CHECK_INT(verify_now(f->engine).n, 0);
    fixture_down(f);
    fixture_up(f, i2_services);
    fixture_await_status(f->engine, &w.parent, STET_STATUS_SUSPENDED);
    fixture_end(f);
}

TEST(I2_a_run_that_a_worker_has_is_left_alone)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  run;
    repairs      found;
    stet_op      op = { .kind = STET_OP_VALUE_DEL, .space = STET__SPACE_IDEM };

    op.key = (stet_bytes){ "t.busy\0\0once", 12 };
    fixture_up(f, i2_services);
    run = fixture_start(f->engine, "t.busy", "in", STET_START(.idempotency_key = "once"));
    gate_await(&i2_door, 1);
    damage_do(f, &op, 1);
    other = fixture_open(f);
    found = repair_now(other);
    CHECK_INT(found.n, 1);
    CHECK_INT(found.repaired, 0);
    CHECK_STR(found.run, run.text);
    gate_open(&i2_door);
    EXPECT_RESULT(f->engine, &run, "in");
    found = repair_now(other);
    CHECK_INT(found.repaired, 1);
    stet_close(other);
    fixture_end(f);
}

TEST(I2_facts_that_cannot_be_read_are_not_repaired)
{
    i2_world w;
    fixture *f = i2_begin(&w);
    stet_op  op = { .kind = STET_OP_FACTS, .count = 1 };
    repairs  found;

    op.run = damage_id(&w.nap);
    op.number = fixture_look(f->engine, &w.nap).facts + 1;
    op.data = stet_text("no fact");
    damage_do(f, &op, 1);
    found = repair_now(f->engine);
    CHECK_INT(found.n, 1);
    CHECK_INT(found.repaired, 0);
    CHECK_STR(found.rule, "facts");
    CHECK_STR(found.run, w.nap.text);
    damage_end(f);
}

static int
i2_count_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return STET_OK;
}

static int
i2_count_bases(stet_store *s)
{
    int n = 0;

    CHECK_OK(s->ops->values(s, STET__SPACE_BASE_STATE, (stet_bytes){ NULL, 0 }, NULL, 100,
                            i2_count_value, &n));
    return n;
}

/* That an entry was cleared is forgotten when nobody can say otherwise, and kept where its initial
 * value would come back. */
TEST(F2_baselines_of_cleared_entries_go)
{
    fixture    *f = fixture_begin();
    stet_store *s;
    stet_run_id run;

    f->options.sweep_ms = 10;
    fixture_up(f, i2_services);
    s = damage_open(f);
    run = fixture_start(f->engine, "t.nap", "", STET_START(.retention = "1ms")); /* the oldest */
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    (void)fixture_start(f->engine, "o.set", "v", STET_START(.key = "a", .retention = "1ms"));
    AWAIT(i2_count_bases(s) == 3);
    CHECK_INT(verify_now(f->engine).n, 0);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    AWAIT(i2_count_bases(s) == 2);
    stet__store_close(s);
    fixture_end(f);
}

/* A fleet at work is neither accused nor disturbed. */
TEST(I2_repair_of_a_busy_store_changes_nothing)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  runs[60];

    f->options.retention_ms = 40;
    f->options.sweep_ms = 10;
    fixture_up(f, i2_services);
    other = fixture_open(f);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 60; i++)
            runs[i] = i % 3
                          ? fixture_start(f->engine, "o.set", "v",
                                          STET_START(.key = i % 2 ? "a" : "b", .retention = "10h"))
                          : fixture_start(f->engine, "o.set", "brief",
                                          STET_START(.key = i % 2 ? "a" : "b"));
        for (int i = 0; i < 4; i++) {
            repairs found = repair_now(other);

            if (found.n > 0)
                test_fail(__FILE__, __LINE__, "%s of %s: %s", found.rule, found.run, found.text);
        }
        for (int i = 0; i < 60; i++)
            if (i % 3)
                EXPECT_RESULT(f->engine, &runs[i], "v");
    }
    stet_close(other);
    fixture_end(f);
}
