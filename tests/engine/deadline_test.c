/* Deadlines and timeouts of runs. Row C5. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

static int
h_sleep_then_compensate(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_sleep(ctx, "long", "1h");

    (void)input;
    if (err == STET_SUSPENDED)
        return err;
    effect("told %s", stet_code_name(err));
    STET_TRY(stet_step(ctx, NULL, "undo", body_effect, (void *)"undo", NULL));
    return err;
}

static const stet_handler_options c5_options = { .timeout = "150ms" };
static const stet_handler         c5_handlers[] = {
            { "quick", h_quick, NULL },
            { "fails", h_unlucky, NULL },
            { "sleeps", h_sleep_then_compensate, NULL },
            { "hurried", h_hour, &c5_options },
            { 0 },
};

TEST(C5_a_deadline_beats_a_timeout_and_both_count_from_creation)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    fixture_run look;
    int64_t     now_ms;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", c5_handlers));
    now_ms = stet_engine_now_ms(f->engine);
    run = fixture_start(f->engine, "t.quick", "", STET_START(.timeout = "1m"));
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 60000);
    run = fixture_start(f->engine, "t.quick", "", STET_START(.timeout_ms = 5000));
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 5000);
    run = fixture_start(f->engine, "t.quick", "",
                        STET_START(.timeout = "1m", .deadline_ms = now_ms + 7000000));
    CHECK_INT(fixture_look(f->engine, &run).deadline_ms, now_ms + 7000000);
    run = fixture_start(f->engine, "t.hurried", "", NULL);
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 150);
    run = fixture_start(f->engine, "t.hurried", "", STET_START(.timeout = "9s"));
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 9000);
    fixture_end(f);
}

/* One whose time is over before a slow machine has begun it proves nothing: then another one,
 * with twice the time. */
TEST(C5_it_expires_while_suspended_and_may_compensate)
{
    fixture    *f = fixture_begin();
    int64_t     timeout_ms = 60;
    int         undone = 0;
    stet_run_id run, hurried;
    stet_result r;
    fixture_run look;

    fixture_up_with(f, c5_handlers);
    hurried = fixture_start(f->engine, "t.hurried", "", NULL);
    do {
        timeout_ms *= 2;
        run = fixture_start(f->engine, "t.sleeps", "", STET_START(.timeout_ms = timeout_ms));
        r = EXPECT_END(f->engine, &run, STET_EEXPIRED);
        CHECK_INT(r.code, STET_EEXPIRED);
        stet_result_free(&r);
        fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
        look = fixture_look(f->engine, &run);
        CHECK(look.ended_ms >= look.deadline_ms);
        undone += fixture_facts(f->engine, &run, "step", "undo");
    } while (fixture_facts(f->engine, &run, "sleep", "long") == 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "undo"), 1);
    CHECK(effects("told STET_EEXPIRED") >= 1);
    CHECK_INT(effects("undo"), undone);
    EXPECT_ANSWER(f->engine, &hurried, STET_EEXPIRED);
    fixture_await_status(f->engine, &hurried, STET_STATUS_EXPIRED);
    CHECK_CODE(stet_cancel(f->engine, &run, "ann", "late"), STET_EENDED);
    fixture_end(f);
}

TEST(C5_retries_do_not_reset_it)
{
    fixture    *f = fixture_begin();
    int64_t     timeout_ms = 100;
    stet_run_id run;
    fixture_run look;

    fixture_up_with(f, c5_handlers);
    do { /* until there was time for a second attempt */
        timeout_ms *= 2;
        run = fixture_start(
            f->engine, "t.fails", "",
            STET_START(.timeout_ms = timeout_ms,
                       .retry = { .attempts = 100000, .first_ms = 10, .max_ms = 20 }));
        EXPECT_ANSWER(f->engine, &run, STET_EEXPIRED);
        fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
        look = fixture_look(f->engine, &run);
        CHECK_INT(look.deadline_ms, look.created_ms + timeout_ms);
    } while (fixture_facts(f->engine, &run, "attempt failed", NULL) < 2);
    fixture_end(f);
}

TEST(C5_it_expires_instead_of_a_retry_that_would_be_too_late)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result r;
    fixture_run look;

    fixture_up_with(f, c5_handlers);
    run = fixture_start(
        f->engine, "t.fails", "",
        STET_START(.timeout = "30m",
                   .retry = { .attempts = 9, .first_ms = 3600000, .max_ms = 3600000 }));
    r = EXPECT_END(f->engine, &run, STET_EEXPIRED);
    CHECK_INT(r.status, STET_STATUS_EXPIRED);
    CHECK_HAS(r.error, "no luck");
    stet_result_free(&r);
    look = fixture_look(f->engine, &run);
    CHECK(look.ended_ms < look.deadline_ms);
    CHECK_INT(effects("entered"), 1);
    fixture_end(f);
}

TEST(C5_it_expires_before_a_dispatch_that_is_too_late)
{
    fixture    *f = fixture_begin();
    stet_run_id waited, delayed, past;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", c5_handlers));
    waited = fixture_start(f->engine, "t.quick", "", STET_START(.timeout_ms = 30));
    delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h", .timeout_ms = 100));
    AWAIT(stet_engine_now_ms(f->engine) > fixture_look(f->engine, &waited).deadline_ms);
    CHECK_OK(stet_engine_start(f->engine));
    EXPECT_ANSWER(f->engine, &waited, STET_EEXPIRED);
    EXPECT_ANSWER(f->engine, &delayed, STET_EEXPIRED);
    past = fixture_start(f->engine, "t.quick", "",
                         STET_START(.deadline_ms = stet_engine_now_ms(f->engine) - 5));
    EXPECT_ANSWER(f->engine, &past, STET_EEXPIRED);
    fixture_await_status(f->engine, &waited, STET_STATUS_EXPIRED);
    fixture_await_status(f->engine, &delayed, STET_STATUS_EXPIRED);
    fixture_await_status(f->engine, &past, STET_STATUS_EXPIRED);
    CHECK_INT(effects("quick"), 0);
    fixture_end(f);
}

static gate c5_door = GATE_INIT;

static int
h_running_late(stet_ctx *ctx, stet_bytes input)
{
    int err;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &c5_door, NULL));
    err = stet_step(ctx, NULL, "next", body_effect, (void *)"next", NULL);
    if (err != STET_SUSPENDED)
        effect("told %s", stet_code_name(err));
    return err;
}

TEST(C5_a_running_one_learns_at_its_next_operation)
{
    static const stet_handler handlers[] = { { "h", h_running_late, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    int64_t                   timeout_ms = 125;
    stet_run_id               run;
    stet_result               r;

    fixture_up_with(f, handlers);
    do { /* until there was time to begin it */
        timeout_ms *= 2;
        run = fixture_start(f->engine, "t.h", "", STET_START(.timeout_ms = timeout_ms));
        AWAIT(gate_arrived(&c5_door) > 0 ||
              fixture_look(f->engine, &run).status == STET_STATUS_EXPIRED);
    } while (gate_arrived(&c5_door) == 0);
    r = EXPECT_END(f->engine, &run, STET_EEXPIRED); /* while the body still runs */
    stet_result_free(&r);
    gate_open(&c5_door);
    fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
    CHECK(effects("told STET_EEXPIRED") >= 1);
    CHECK_INT(effects("next"), 0);
    fixture_end(f);
}

static int
h_c5_naps(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "nap", "20ms"));
    return stet_return(ctx, input);
}

static const stet_handler c5_naps[] = { { "naps", h_c5_naps, NULL }, { 0 } };

/* More than the keeper takes at once, all of them before the one that is sound. */
TEST(C5_C6_timers_of_runs_that_cannot_be_read_do_not_keep_others_from_being_fired)
{
    enum { DAMAGED = 600 };
    fixture    *f = fixture_begin();
    stet_op     ops[2] = { { .kind = STET_OP_FACTS, .count = 1, .number = 2 },
                           { .kind = STET_OP_TIMER_PUT, .number = STET__TIMER_DEADLINE } };
    stet_run_id run;

    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    ops[0].data = stet_text("this is no fact at all");
    for (int i = 0; i < DAMAGED; i++) {
        run = fixture_start(f->engine, "t.nobody", "", STET_START(.delay = "2h"));
        ops[0].run = ops[1].run = damage_id(&run);
        ops[1].fire_ms = 1000 + i;
        damage_do(f, ops, 2);
    }
    fixture_close(f);
    f->options.roles = 0;
    fixture_up_with(f, c5_naps);
    run = fixture_start(f->engine, "t.naps", "awake", NULL);
    EXPECT_RESULT(f->engine, &run, "awake");
    damage_end(f);
}
