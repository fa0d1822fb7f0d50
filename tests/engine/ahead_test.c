/* Working ahead of the flush, and runs resumed by their timers: exact whatever comes between the
 * belief and the commit. Each test stops one commit of the engine and lets somebody else act first.
 * tsan: yes */
#include "fixture.h"

#include "damage.h"
#include "engine/engine.h"

/* ---- somebody who is faster ------------------------------------------------------------------ */

typedef struct rival {
    const stet_store_ops *inner;
    stet_store_ops        ops;
    bool (*is_it)(const stet_unit *unit); /* the commit to get in front of */
    void (*act)(struct rival *r);
    atomic_int   left; /* how often */
    atomic_int   acted;
    fixture     *f;
    stet_engine *engine; /* another worker or client on the same store */
    stet_run_id  run;
} rival;

static rival the_rival;

static int
rival_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    rival *r = &the_rival;

    for (size_t i = 0; i < n && atomic_load(&r->left) > 0; i++)
        if (r->is_it(&units[i])) {
            atomic_fetch_sub(&r->left, 1);
            r->act(r);
            atomic_fetch_add(&r->acted, 1);
        }
    return r->inner->commit(s, units, n, outcomes);
}

/* Up with somebody in front of its commits. */
static void
rival_up(fixture *f, const fixture_service *services, bool (*is_it)(const stet_unit *unit),
         void (*act)(rival *r))
{
    rival *r = &the_rival;

    memset(r, 0, sizeof *r);
    f->engine = fixture_open(f);
    r->f = f;
    r->inner = f->engine->store->ops;
    r->is_it = is_it;
    r->act = act;
    r->ops = *r->inner;
    r->ops.commit = rival_commit;
    f->engine->store->ops = &r->ops;
    f->engine->store->can_grow = false; /* what joins a commit is never in front of one */
    fixture_register(f->engine, services);
    CHECK_OK(stet_engine_start(f->engine));
}

static bool
has_cond(const stet_unit *unit, stet_cond_kind kind)
{
    for (size_t i = 0; i < unit->n_conds; i++)
        if (unit->conds[i].kind == kind)
            return true;
    return false;
}

/* ---- resumed by a timer ---------------------------------------------------------------------- */

static bool
is_resumed(const stet_unit *unit)
{
    return has_cond(unit, STET_COND_PARKED);
}

static int
h_nap(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)"before", NULL));
    STET_TRY(stet_sleep_ms(ctx, "nap", 30));
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, input);
}

static int
h_nap_only(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep_ms(ctx, "nap", 30));
    return stet_return(ctx, input);
}

static const stet_handler    nap_handlers[] = { { "nap", h_nap, NULL },
                                                { "only", h_nap_only, NULL },
                                                { 0 } };
static const fixture_service nappers[] = { { "t", nap_handlers, false, NULL }, { 0 } };

static void
act_cancel(rival *r)
{
    CHECK_OK(stet_cancel(r->engine, &r->run, "somebody", "was faster"));
}

TEST(B5_a_cancel_in_front_of_a_run_that_its_timer_resumes_is_told)
{
    fixture *f = fixture_begin();

    rival_up(f, nappers, is_resumed, act_cancel);
    the_rival.engine = fixture_open(f);
    the_rival.run = fixture_start(f->engine, "t.nap", "ok", NULL);
    atomic_store(&the_rival.left, 1); /* it sleeps */
    fixture_await_status(f->engine, &the_rival.run, STET_STATUS_CANCELLED);
    CHECK_INT(atomic_load(&the_rival.acted), 1);
    CHECK_INT(effects("before"), 1);
    CHECK_INT(effects("after"), 0);
    CHECK_INT(fixture_logged(f, "fenced"), 0);
    stet_close(the_rival.engine);
    fixture_end(f);
}

static int
keep_timer(void *arg, const stet_timer *timer)
{
    *(stet_timer *)arg = *timer;
    return STET_OK;
}

/* As the keeper of another process would fire it. */
static void
act_fire(rival *r)
{
    stet_id      run = damage_id(&r->run);
    stet__fact   fired = { .kind = STET__FACT_TIMER, .time_ms = 1 };
    stet__buf    data;
    stet_timer   timer = { 0 };
    stet_op      ops[3] = { { .kind = STET_OP_TIMER_DEL },
                            { .kind = STET_OP_INBOX },
                            { .kind = STET_OP_RUN_WAKE } };
    stet_store  *s = damage_open(r->f);
    stet_outcome o;

    CHECK_OK(s->ops->timers_of(s, run, keep_timer, &timer));
    fired.completion = (int64_t)timer.completion;
    stet__buf_init(&data, &stet__platform_real()->alloc);
    stet__fact_encode(&data, &fired);
    for (size_t i = 0; i < 3; i++)
        ops[i].run = run;
    ops[0].fire_ms = timer.fire_ms;
    ops[0].number = timer.completion;
    ops[1].data = stet__buf_bytes(&data);
    ops[2].status = STET_STATUS_PENDING;
    o = damage_try(s, NULL, 0, ops, 3);
    CHECK_INT(o.result, STET_OK);
    stet__buf_free(&data);
    stet__store_close(s);
}

static void
fired_elsewhere(const char *handler, int after)
{
    fixture *f = fixture_begin();

    rival_up(f, nappers, is_resumed, act_fire);
    the_rival.run = fixture_start(f->engine, handler, "ok", NULL);
    atomic_store(&the_rival.left, 1);
    EXPECT_RESULT(f->engine, &the_rival.run, "ok");
    CHECK_INT(atomic_load(&the_rival.acted), 1);
    CHECK_INT(effects("after"), after);
    CHECK_INT(fixture_facts(f->engine, &the_rival.run, "timer fired", NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &the_rival.run, "completed", NULL), 1);
    fixture_end(f);
}

TEST(B5_a_timer_that_another_process_fires_first_fires_once)
{
    fired_elsewhere("t.nap", 1);
}

TEST(B5_a_timer_that_another_process_fires_first_ends_its_run_once)
{
    fired_elsewhere("t.only", 0);
}

TEST(B5_a_run_parked_when_the_engine_stops_is_woken_by_the_next)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, nap_handlers);
    run = fixture_start(f->engine, "t.nap", "ok", NULL);
    effects_await("before", 1);
    fixture_down(f);
    fixture_up_with(f, nap_handlers);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("before"), 1);
    CHECK_INT(effects("after"), 1);
    fixture_end(f);
}

/* ---- ahead of the flush ---------------------------------------------------------------------- */

static int
h_add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes n;
    char      *sum;

    STET_TRY(stet_state_get(ctx, &n, "n"));
    effect("has read");
    sum = stet_ctx_printf(ctx, "%ld", fixture_number(n) + fixture_number(input));
    STET_TRY(stet_state_set(ctx, "n", stet_text(sum)));
    return stet_return(ctx, stet_text(sum));
}

static const stet_handler    counter_handlers[] = { { "add", h_add, NULL }, { 0 } };
static const fixture_service counters[] = { { "counter", counter_handlers, true, NULL }, { 0 } };

/* The commit that starts the run, which has been begun already. */
static bool
is_start(const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++)
        if (unit->ops[i].kind == STET_OP_LANE_ENTER)
            return true;
    return false;
}

static int rival_adds;

/* Another worker adds to the same key, and has ended, before the commit. */
static void
act_add(rival *r)
{
    effects_await("has read", 1);
    for (int i = 0; i < rival_adds; i++) {
        r->run = fixture_start(r->engine, "counter.add", "100", STET_START(.key = "k"));
        CHECK_OK(stet_wait(r->engine, NULL, &r->run, 0));
    }
}

static void
check_sum(stet_engine *e, long want)
{
    stet_bytes n;

    CHECK_OK(stet_state_read(e, &n, "counter", "k", "n"));
    CHECK_INT(fixture_number(n), want);
    stet_free((void *)(uintptr_t)n.data);
}

static void
outrun(int adds, int times)
{
    fixture           *f = fixture_begin();
    stet_start_options options = { 0 };
    stet_start_request requests[32];

    stet_start_options_init(&options);
    options.key = "k";
    rival_up(f, counters, is_start, act_add);
    the_rival.engine = fixture_open_with(f, counters);
    CHECK_OK(stet_engine_start(the_rival.engine));
    for (int i = 0; i < adds; i++)
        requests[i] = (stet_start_request){ .handler = "counter.add",
                                            .input = stet_text("1"),
                                            .options = &options };
    rival_adds = times;
    atomic_store(&the_rival.left, 1);
    CHECK_OK(stet_start_many(f->engine, requests, (size_t)adds));
    for (int i = 0; i < adds; i++)
        CHECK_OK(stet_wait(f->engine, NULL, &requests[i].run, 0));
    CHECK_INT(atomic_load(&the_rival.acted), 1);
    check_sum(f->engine, adds + 100 * times);
    stet_close(the_rival.engine);
    fixture_end(f);
}

TEST(A2_a_run_begun_ahead_counts_what_another_worker_wrote_meanwhile)
{
    outrun(1, 1);
}

TEST(A2_runs_begun_ahead_of_each_other_fall_together_and_count_once)
{
    outrun(24, 1);
}

TEST(A2_runs_begun_ahead_of_each_other_fall_again_and_again_and_count_once)
{
    outrun(24, 6);
}

static atomic_int units_that_rely;

static void
act_count(rival *r)
{
    (void)r;
    atomic_fetch_add(&units_that_rely, 1);
}

static bool
relies_on_state(const stet_unit *unit)
{
    return has_cond(unit, STET_COND_WRITER) || has_cond(unit, STET_COND_UNIT);
}

TEST(A2_working_ahead_can_be_switched_off)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.work_ahead = STET_NONE;
    rival_up(f, counters, relies_on_state, act_count);
    atomic_store(&the_rival.left, 1000);
    for (int i = 0; i < 10; i++) {
        run = fixture_start(f->engine, "counter.add", "1", STET_START(.key = "k"));
        CHECK_OK(stet_wait(f->engine, NULL, &run, 0));
    }
    check_sum(f->engine, 10);
    CHECK_INT(atomic_load(&units_that_rely), 0);
    fixture_end(f);
}

/* ---- what is said ahead ---------------------------------------------------------------------- */

static int
h_says(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes n;

    STET_TRY(stet_state_get(ctx, &n, "n"));
    effect("has read");
    stet_log(ctx, STET_LOG_INFO, "it says %ld", fixture_number(n));
    STET_TRY(stet_state_set(ctx, "n", input));
    return stet_return(ctx, input);
}

static const stet_handler    saying_handlers[] = { { "add", h_add, NULL },
                                                   { "says", h_says, NULL },
                                                   { 0 } };
static const fixture_service sayings[] = { { "counter", saying_handlers, true, NULL }, { 0 } };

/* The same, and it speaks when its start is durable and its belief in what it read is not. */
static gate says_gate = GATE_INIT;

static int
h_says_late(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes n;

    STET_TRY(stet_state_get(ctx, &n, "n"));
    effect("has read");
    gate_pass(&says_gate);
    stet_log(ctx, STET_LOG_INFO, "it says %ld", fixture_number(n));
    STET_TRY(stet_state_set(ctx, "n", input));
    return stet_return(ctx, input);
}

static const stet_handler    late_handlers[] = { { "add", h_add, NULL },
                                                 { "says", h_says_late, NULL },
                                                 { 0 } };
static const fixture_service lates[] = { { "counter", late_handlers, true, NULL }, { 0 } };

TEST(H7_what_was_read_ahead_is_said_when_it_holds)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    rival_up(f, lates, is_start, act_add);
    the_rival.engine = fixture_open_with(f, lates);
    CHECK_OK(stet_engine_start(the_rival.engine));
    rival_adds = 1;
    atomic_store(&the_rival.left, 1);
    run = fixture_start(f->engine, "counter.says", "7", STET_START(.key = "k"));
    gate_open(&says_gate);
    EXPECT_RESULT(f->engine, &run, "7");
    CHECK_INT(fixture_logged(f, "it says"), 1);
    CHECK_INT(fixture_logged(f, "it says 100"), 1);
    stet_close(the_rival.engine);
    fixture_end(f);
}

TEST(H7_an_execution_that_is_dropped_has_said_nothing)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    rival_up(f, sayings, is_start, act_add);
    the_rival.engine = fixture_open_with(f, sayings);
    CHECK_OK(stet_engine_start(the_rival.engine));
    rival_adds = 1;
    atomic_store(&the_rival.left, 1);
    run = fixture_start(f->engine, "counter.says", "7", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "7");
    CHECK_INT(atomic_load(&the_rival.acted), 1);
    CHECK_INT(fixture_logged(f, "it says"), 1);
    CHECK_INT(fixture_logged(f, "it says 100"), 1);
    stet_close(the_rival.engine);
    fixture_end(f);
}
