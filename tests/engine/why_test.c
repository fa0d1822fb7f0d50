/* Why a run does not go on. Row I1. tsan: yes */
#include "fixture.h"

static void
expect_why(stet_engine *e, const stet_run_id *run, const char *kind, const char *part,
           const char *help)
{
    fixture_verdict v = fixture_why(e, run);

    CHECK_STR(v.kind, kind);
    CHECK_HAS(v.text, part);
    CHECK_HAS(v.help, help);
}

TEST(I1_why_timer_awakeable_child)
{
    fixture        *f = fixture_begin();
    stet_run_id     nap, approval, caller;
    fixture_verdict v;

    fixture_up(f, common_services);
    nap = fixture_start(f->engine, "t.nap", "", NULL);
    approval = fixture_start(f->engine, "t.approval", "", NULL);
    caller = fixture_start(f->engine, "t.caller", "", NULL);
    fixture_await_status(f->engine, &nap, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &approval, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &caller, STET_STATUS_SUSPENDED);
    expect_why(f->engine, &nap, "timer", "cool down", nap.text);
    CHECK_HAS(fixture_why(f->engine, &nap).text, "fires in ");
    expect_why(f->engine, &approval, "awakeable", "approval", handed_out);
    v = fixture_why(f->engine, &caller);
    CHECK_STR(v.kind, "child");
    CHECK_HAS(v.text, "t.nap");
    CHECK_HAS(v.help, "stet why run_");
    fixture_end(f);
}

TEST(I1_why_running_ready_and_lane)
{
    fixture    *f = fixture_begin();
    stet_run_id holder, waits, ready;

    f->options.in_flight_max = 1;
    fixture_up(f, common_services);
    holder = fixture_start(f->engine, "o.door", "", STET_START(.key = "k"));
    gate_await(&common_door, 1);
    waits = fixture_start(f->engine, "o.quick", "", STET_START(.key = "k"));
    ready = fixture_start(f->engine, "t.quick", "", NULL);
    expect_why(f->engine, &holder, "running", "wrk_", "");
    expect_why(f->engine, &waits, "lane", holder.text, holder.text);
    expect_why(f->engine, &ready, "ready", "slot", "");
    gate_open(&common_door);
    EXPECT_RESULT(f->engine, &waits, "");
    EXPECT_RESULT(f->engine, &ready, "");
    fixture_end(f);
}

TEST(I1_why_no_worker_delay_and_backoff)
{
    fixture    *f = fixture_begin();
    stet_run_id nobody, delayed, keyed, backoff;

    fixture_up(f, common_services);
    nobody = fixture_start(f->engine, "elsewhere.thing", "", NULL);
    delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "2h"));
    keyed = fixture_start(f->engine, "o.quick", "", STET_START(.key = "k", .delay = "2h"));
    backoff = fixture_start(f->engine, "t.fails", "",
                            STET_START(.retry = { .first_ms = 7200000,
                                                  .max_ms = 7200000,
                                                  .jitter_percent = STET_NONE }));
    fixture_await_status(f->engine, &backoff, STET_STATUS_RETRYING);
    expect_why(f->engine, &nobody, "no-worker", "elsewhere.thing", "worker");
    expect_why(f->engine, &delayed, "delay", "in ", delayed.text);
    expect_why(f->engine, &keyed, "delay", "in ", keyed.text);
    expect_why(f->engine, &backoff, "backoff", "the bank is closed", backoff.text);
    CHECK_HAS(fixture_why(f->engine, &backoff).text, "attempt 1 of 3");
    fixture_down(f);
    f->engine = fixture_open(f);
    CHECK_STR(fixture_why(f->engine, &nobody).kind, "no-worker");
    fixture_end(f);
}

static int
h_short(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep_ms(ctx, "blink", 20));
    return stet_return(ctx, input);
}

TEST(I1_why_no_node_serves_timers)
{
    static const stet_handler handlers[] = { { "short", h_short, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *timers;
    stet_run_id               run;

    f->options.roles = STET_ROLE_WORKER;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.short", "ok", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    AWAIT(strcmp(fixture_why(f->engine, &run).kind, "no-timers") == 0);
    CHECK_HAS(fixture_why(f->engine, &run).text, "blink");
    f->options.roles = STET_ROLE_TIMERS;
    timers = fixture_open(f);
    CHECK_OK(stet_engine_start(timers));
    EXPECT_RESULT(f->engine, &run, "ok");
    stet_close(timers);
    fixture_end(f);
}

static _Atomic bool i1_is_new_code;

static int
h_contradicts(stet_ctx *ctx, stet_bytes input)
{
    if (atomic_load(&i1_is_new_code)) /* what was recorded as a step is asked for no more */
        return stet_return(ctx, input);
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charge", NULL));
    STET_TRY(stet_sleep_ms(ctx, "blink", 1));
    return stet_fail(ctx, STET_EBUSY, "not now");
}

static int
h_sleeps_after_step(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charge", NULL));
    if (!atomic_load(&i1_is_new_code))
        STET_TRY(stet_sleep(ctx, "long", "1h"));
    return stet_return(ctx, input);
}

TEST(I1_why_stuck_and_ended)
{
    static const stet_handler handlers[] = { { "h", h_sleeps_after_step, NULL },
                                             { "c", h_contradicts, NULL },
                                             { "quick", h_echo, NULL },
                                             { "permanent", h_no_account, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, quick, failed, cancelled;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.c", "", /* a slow test comes in time all the same */
                        STET_START(.retry = { .attempts = 1000, .first_ms = 500, .max_ms = 500 }));
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    fixture_down(f);
    atomic_store(&i1_is_new_code, true);
    fixture_up_with(f, handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    expect_why(f->engine, &run, "stuck", "charge#1", run.text);
    quick = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &quick, "");
    expect_why(f->engine, &quick, "ended", "completed", "");
    failed = fixture_start(f->engine, "t.permanent", "", NULL);
    EXPECT_ANSWER(f->engine, &failed, STET_ERUN);
    expect_why(f->engine, &failed, "ended", "no such account", failed.text);
    cancelled = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &cancelled, "ann", NULL));
    expect_why(f->engine, &cancelled, "ended", "cancelled", "");
    fixture_end(f);
}

static gate i1_both = GATE_INIT;

static int
body_both(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&i1_both);
    return STET_OK;
}

static int
h_cross(stet_ctx *ctx, stet_bytes input)
{
    char other[8];

    (void)snprintf(other, sizeof other, "%.*s", (int)input.len, (const char *)input.data);
    STET_TRY(stet_step(ctx, NULL, "both", body_both, NULL, NULL));
    return stet_call(ctx, NULL, "o.quick", stet_text(""), STET_START(.key = other));
}

TEST(I1_why_a_circle_of_runs_is_named)
{
    static const stet_handler handlers[] = { { "cross", h_cross, NULL },
                                             { "quick", h_echo, NULL },
                                             { 0 } };
    const fixture_service     services[] = { { "o", handlers, true, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               a, b;
    stet_result               r;
    fixture_verdict           v;

    fixture_up(f, services);
    a = fixture_start(f->engine, "o.cross", "B", STET_START(.key = "A"));
    b = fixture_start(f->engine, "o.cross", "A", STET_START(.key = "B"));
    gate_await(&i1_both, 2);
    gate_open(&i1_both);
    fixture_await_status(f->engine, &a, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &b, STET_STATUS_SUSPENDED);
    v = fixture_why(f->engine, &a);
    CHECK_STR(v.kind, "deadlock");
    CHECK_HAS(v.text, a.text);
    CHECK_HAS(v.text, b.text);
    CHECK_HAS(v.help, "stet cancel run_");
    CHECK_STR(fixture_why(f->engine, &b).kind, "deadlock");
    CHECK_OK(stet_cancel(f->engine, &a, "ann", "break the circle"));
    EXPECT_ANSWER(f->engine, &a, STET_ECANCELLED);
    r = EXPECT_END(f->engine, &b, STET_OK); /* its call got the key */
    stet_result_free(&r);
    fixture_end(f);
}

static void
no_verdict(void *arg, const stet_verdict *v)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "%s: %s", v->kind, v->text);
}

TEST(I1_why_of_a_run_that_does_not_exist)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, common_services);
    CHECK_OK(stet_run_id_make(f->engine, &run));
    CHECK_CODE(stet_why(f->engine, &run, no_verdict, NULL), STET_ENOTFOUND);
    fixture_end(f);
}

/* ---- bodies beyond their time limit ---------------------------------------------------------- */

static gate overrun_door = GATE_INIT;

static int
body_overruns(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("entered");
    gate_pass(&overrun_door);
    return stet_attempt_return(a, stet_text("late"));
}

static int
h_overruns(stet_ctx *ctx, stet_bytes input)
{
    const char *timeout = input.len > 0 ? "1h" : "15ms";
    int         code = stet_step(ctx, NULL, "slow", body_overruns, NULL,
                                 STET_STEP(.timeout = timeout, .attempts = 1));

    if (code == STET_SUSPENDED)
        return code;
    return stet_return(ctx, stet_text(code == STET_OK ? "in time" : "too late"));
}

/* On a slot that is not the handler's. */
static int
h_overruns_beside(stet_ctx *ctx, stet_bytes input)
{
    stet_future *f;
    stet_bytes   out;
    int          code;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)(uintptr_t) "before", NULL));
    STET_TRY(stet_step_start(ctx, &f, "beside", body_overruns, NULL,
                             STET_STEP(.timeout = "15ms", .attempts = 1)));
    if ((code = stet_await(ctx, &out, f)) == STET_SUSPENDED)
        return code;
    return stet_return(ctx, stet_text(code == STET_OK ? "in time" : "too late"));
}

static const stet_handler overrun_handlers[] = { { "here", h_overruns, NULL },
                                                 { "beside", h_overruns_beside, NULL },
                                                 { 0 } };

/* It keeps its slot and its lease, so it looked like any run that is being executed. */
TEST(I1_why_names_the_step_that_has_overrun_its_time_limit)
{
    fixture     *f = fixture_begin();
    stet_engine *looker = fixture_open(f);
    stet_run_id  here, beside, patient;

    fixture_up_with(f, overrun_handlers);
    here = fixture_start(f->engine, "t.here", "", NULL);
    beside = fixture_start(f->engine, "t.beside", "", NULL);
    patient = fixture_start(f->engine, "t.here", "1h", NULL);
    gate_await(&overrun_door, 3);
    AWAIT(strstr(fixture_why(f->engine, &here).text, "overrun") != NULL);
    AWAIT(strstr(fixture_why(f->engine, &beside).text, "overrun") != NULL);
    expect_why(f->engine, &here, "running", ": step slow#1 has overrun its time limit of 15ms by ",
               "");
    expect_why(f->engine, &beside, "running",
               ": step beside#1 has overrun its time limit of 15ms by ", "");
    CHECK(strstr(fixture_why(f->engine, &patient).text, "overrun") == NULL);
    /* Another process cannot know: nothing of a body is stored before it returns. */
    expect_why(looker, &here, "running", "is being executed by worker wrk_", "");
    CHECK(strstr(fixture_why(looker, &here).text, "overrun") == NULL);
    gate_open(&overrun_door);
    EXPECT_RESULT(f->engine, &here, "too late");
    EXPECT_RESULT(f->engine, &beside, "too late");
    EXPECT_RESULT(f->engine, &patient, "in time");
    CHECK_INT(effects("entered"), 3);
    stet_close(looker);
    fixture_end(f);
}
