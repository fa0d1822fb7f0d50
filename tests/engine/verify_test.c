/* Verify: what is wrong is found, and nothing else. Row I2; what repair makes of it is in
 * repair_test.c. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

typedef struct findings {
    int      n;
    char     rule[32], run[STET_ID_TEXT_MAX], text[512];
    uint64_t revision;
} findings;

static int
keep_finding(void *arg, const stet_finding *finding)
{
    findings *to = arg;

    to->n++;
    (void)snprintf(to->rule, sizeof to->rule, "%s", finding->rule);
    (void)snprintf(to->run, sizeof to->run, "%s", finding->run != NULL ? finding->run : "");
    (void)snprintf(to->text, sizeof to->text, "%s", finding->text);
    to->revision = finding->revision;
    return 0;
}

static findings
verify_now(stet_engine *e, size_t runs)
{
    findings found;
    size_t   checked = 0;

    memset(&found, 0, sizeof found);
    CHECK_OK(stet_verify(e, &checked, keep_finding, &found));
    CHECK_INT(checked, runs);
    return found;
}

static void
expect_clean(stet_engine *e, size_t runs)
{
    findings found = verify_now(e, runs);

    if (found.n != 0)
        test_fail(__FILE__, __LINE__, "%d findings, last: %s of %s: %s", found.n, found.rule,
                  found.run, found.text);
}

static void
expect_finding(stet_engine *e, size_t runs, const stet_run_id *run, const char *rule)
{
    findings found = verify_now(e, runs);

    test_note("%s: %s", found.rule, found.text);
    CHECK_INT(found.n, 1);
    CHECK_STR(found.rule, rule);
    CHECK_STR(found.run, run->text);
    CHECK(found.text[0] != '\0');
}

/* One run in each state there is, on an engine that runs. */
static size_t
i2_everything(fixture *f)
{
    stet_run_id run;

    run = fixture_start(f->engine, "t.nap", "", STET_START(.timeout = "2h"));
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.caller", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.fails", "",
                        STET_START(.retry = { .first_ms = 7200000, .max_ms = 7200000 }));
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    (void)fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    (void)fixture_start(f->engine, "o.quick", "", STET_START(.key = "later", .delay = "1h"));
    (void)fixture_start(f->engine, "elsewhere.thing", "", NULL);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    run = fixture_start(f->engine, "t.permanent", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    run = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    run = fixture_start(f->engine, "t.nap", "", STET_START(.timeout_ms = 20));
    fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
    run = fixture_start(f->engine, "o.door", "", STET_START(.key = "k"));
    gate_await(&common_door, 1);
    (void)fixture_start(f->engine, "o.quick", "", STET_START(.key = "k"));
    return 14;
}

TEST(I2_a_clean_store_gives_no_finding)
{
    fixture *f = fixture_begin();
    size_t   n;

    fixture_up(f, common_services);
    expect_clean(f->engine, 0);
    n = i2_everything(f);
    expect_clean(f->engine, n);
    gate_open(&common_door);
    fixture_down(f);
    f->engine = fixture_open(f);
    expect_clean(f->engine, n); /* nobody serves it now: still nothing is broken */
    fixture_end(f);
}

TEST(I2_verify_of_a_busy_store_gives_no_false_alarm)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[60];

    fixture_up(f, common_services);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 60; i++)
            runs[i] = i % 3 ? fixture_start(f->engine, "o.quick", "",
                                            STET_START(.key = i % 2 ? "a" : "b"))
                            : fixture_start(f->engine, "t.quick", "", NULL);
        for (int i = 0; i < 3; i++) {
            findings found;

            memset(&found, 0, sizeof found);
            CHECK_OK(stet_verify(f->engine, NULL, keep_finding, &found));
            if (found.n > 0)
                test_fail(__FILE__, __LINE__, "%s of %s: %s", found.rule, found.run, found.text);
        }
        for (int i = 0; i < 60; i++)
            EXPECT_RESULT(f->engine, &runs[i], "");
    }
    fixture_end(f);
}

/* A suspended and an ended run that nobody serves any more, and a healthy neighbour. */
static void
i2_prepare(fixture *f, stet_run_id *suspended, stet_run_id *ended)
{
    stet_run_id neighbour;

    fixture_up(f, common_services);
    neighbour = fixture_start(f->engine, "t.nap", "", NULL);
    *suspended = fixture_start(f->engine, "o.nap", "", STET_START(.key = "k", .timeout = "3h"));
    *ended = fixture_start(f->engine, "t.quick", "", NULL);
    fixture_await_status(f->engine, &neighbour, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, suspended, STET_STATUS_SUSPENDED);
    EXPECT_RESULT(f->engine, ended, "");
    fixture_down(f);
    f->engine = fixture_open(f);
    expect_clean(f->engine, 3);
}

TEST(I2_facts_that_cannot_be_read_are_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;
    uint64_t    last;
    stet_op     op = { .kind = STET_OP_FACTS, .count = 1 };

    i2_prepare(f, &run, &ended);
    last = fixture_look(f->engine, &run).facts;
    op.run = damage_id(&run);
    op.number = last + 1;
    op.data = stet_text("this is no fact at all");
    damage_do(f, &op, 1);
    expect_finding(f->engine, 3, &run, "facts");
    CHECK_INT(verify_now(f->engine, 3).revision, last + 1);
    damage_end(f);
}

TEST(I2_a_row_that_disagrees_with_its_facts_is_found)
{
    static const struct {
        stet_status status;
        uint32_t    is_terminal;
    } lies[] = { { STET_STATUS_COMPLETED, 1 },
                 { STET_STATUS_RETRYING, 0 },
                 { STET_STATUS_STUCK, 0 } };

    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fixture     *f = fixture_begin();
        stet_run_id  run, ended;
        stet_run_row row = { 0 };
        stet_op      op = { .kind = STET_OP_RUN_SET, .mask = STET_RUN_STATUS };

        i2_prepare(f, &run, &ended);
        op.run = row.id = damage_id(&run);
        row.status = lies[i].status;
        row.is_terminal = lies[i].is_terminal;
        row.ended_ms = STET_NEVER;
        op.row = &row;
        damage_do(f, &op, 1);
        expect_finding(f->engine, 3, &run, "projection");
        damage_end(f);
        fixture_wipe();
    }
}

TEST(I2_an_ended_run_whose_row_is_open_is_found)
{
    fixture     *f = fixture_begin();
    stet_run_id  run, ended;
    stet_run_row row = { 0 };
    stet_op      op = { .kind = STET_OP_RUN_SET, .mask = STET_RUN_STATUS, .row = &row };

    i2_prepare(f, &run, &ended);
    op.run = row.id = damage_id(&ended);
    row.status = STET_STATUS_PENDING;
    row.ended_ms = STET_NEVER;
    damage_do(f, &op, 1);
    expect_finding(f->engine, 3, &ended, "projection");
    damage_end(f);
}

typedef struct i2_timers {
    stet_timer timers[4];
    int        n;
} i2_timers;

static int
i2_on_timer(void *arg, const stet_timer *timer)
{
    i2_timers *t = arg;

    if (t->n < 4)
        t->timers[t->n++] = *timer;
    return STET_OK;
}

TEST(I2_a_missing_timer_is_found)
{
    for (int i = 0; i < 2; i++) { /* of the sleep, of the deadline */
        fixture    *f = fixture_begin();
        stet_run_id run, ended;
        stet_store *s;
        i2_timers   t = { .n = 0 };
        stet_op     op = { .kind = STET_OP_TIMER_DEL };

        i2_prepare(f, &run, &ended);
        s = damage_open(f);
        CHECK_OK(s->ops->timers_of(s, damage_id(&run), i2_on_timer, &t));
        stet__store_close(s);
        CHECK_INT(t.n, 2);
        op.run = damage_id(&run);
        op.fire_ms = t.timers[i].fire_ms;
        op.number = t.timers[i].completion;
        damage_do(f, &op, 1);
        expect_finding(f->engine, 3, &run, "timer");
        damage_end(f);
        fixture_wipe();
    }
}

TEST(I2_a_run_that_nothing_can_wake_is_found)
{
    fixture     *f = fixture_begin();
    stet_run_id  run;
    stet_run_row row = { 0 };
    stet_op      op = { .kind = STET_OP_RUN_SET, .mask = STET_RUN_DUE, .row = &row };

    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    expect_clean(f->engine, 1);
    op.run = row.id = damage_id(&run);
    row.due_ms = STET_NEVER;
    damage_do(f, &op, 1);
    expect_finding(f->engine, 1, &run, "wake-up");
    damage_end(f);
}

TEST(I2_an_inbox_entry_without_a_wake_up_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;
    stet__buf   b;
    stet__fact  fact = { .kind = STET__FACT_TIMER, .time_ms = 1, .completion = 99 };
    stet_op     op = { .kind = STET_OP_INBOX };

    i2_prepare(f, &run, &ended);
    stet__buf_init(&b, &stet__platform_real()->alloc);
    stet__fact_encode(&b, &fact);
    op.run = damage_id(&run);
    op.data = stet__buf_bytes(&b);
    damage_do(f, &op, 1);
    stet__buf_free(&b);
    expect_finding(f->engine, 3, &run, "wake-up");
    damage_end(f);
}

TEST(I2_an_open_run_that_lost_its_lane_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;
    stet_op     op = { .kind = STET_OP_LANE_LEAVE, .status = STET_STATUS_PENDING };

    i2_prepare(f, &run, &ended);
    op.run = damage_id(&run);
    damage_do(f, &op, 1);
    expect_finding(f->engine, 3, &run, "lane");
    damage_end(f);
}

TEST(I2_a_lane_that_does_not_know_its_run_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;

    if (!f->is_sqlite)
        test_skip("the memory store has no way to damage a lane alone");
    i2_prepare(f, &run, &ended);
    damage_sql(f, "UPDATE runs SET lane = NULL WHERE id = ?1", &run, (stet_bytes){ NULL, 0 });
    expect_finding(f->engine, 3, &run, "lane");
    damage_end(f);
}

TEST(I2_an_ended_run_that_holds_a_lane_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;

    if (!f->is_sqlite)
        test_skip("the memory store refuses it");
    i2_prepare(f, &run, &ended);
    damage_sql(f, "UPDATE runs SET lane = 'o/x', lane_pos = 1 WHERE id = ?1", &ended,
               (stet_bytes){ NULL, 0 });
    expect_finding(f->engine, 3, &ended, "lane");
    damage_end(f);
}

TEST(I2_a_run_whose_owner_is_unknown_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    if (!f->is_sqlite)
        test_skip("the memory store cannot forget the session of a claimed run");
    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    damage_sql(f, "UPDATE runs SET work = 4711, epoch = 1, status = 2 WHERE id = ?1", &run,
               (stet_bytes){ NULL, 0 });
    expect_finding(f->engine, 1, &run, "owner");
    damage_end(f);
}

/* Whether it stands still cannot be told from its options. */
TEST(I2_a_row_whose_options_cannot_be_read_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;

    if (!f->is_sqlite)
        test_skip("the memory store has no way to damage a column");
    i2_prepare(f, &run, &ended);
    damage_sql(f, "UPDATE runs SET extra = x'0102' WHERE id = ?1", &run, (stet_bytes){ NULL, 0 });
    expect_finding(f->engine, 3, &run, "projection");
    damage_end(f);
}
