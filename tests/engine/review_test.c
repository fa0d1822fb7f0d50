/* What a hostile reader of the engine tried: runs that spin or wait for ever, steps that are asked
 * for twice or never, records of one decision that a replay reads as another. tsan: yes */
#include "fixture.h"

#include "engine/engine.h"

/* ---- a store of which single calls can be made to fail or wait ------------------------------- */

static stet_store_ops        hooked;
static const stet_store_ops *unhooked;
static atomic_bool           hook_fails;
static atomic_int            hook_failed; /* reads of a run */

static void
hook_begin(stet_engine *e)
{
    unhooked = e->store->ops;
    hooked = *unhooked;
    e->store->ops = &hooked;
    atomic_store(&hook_fails, false);
}

static int
hook_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    if (atomic_load(&hook_fails)) {
        atomic_fetch_add(&hook_failed, 1);
        return STET_EBUSY;
    }
    return unhooked->run(s, run, fn, arg);
}

static int
hook_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    if (atomic_load(&hook_fails))
        return STET_EBUSY;
    return unhooked->commit(s, units, n, outcomes);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static int
bad_code_when_stopped(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    if (stet_sleep(ctx, "long", "1h") == STET_ECANCELLED)
        return 1;
    return STET_SUSPENDED;
}

/* A cancelled run cannot fail; a handler that returns nonsense then must not keep its slot for
 * ever. */
TEST(B07_a_cancelled_handler_that_returns_no_code_ends_cancelled)
{
    static const stet_handler handlers[] = { { "bad", bad_code_when_stopped, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.bad", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "me", "enough"));
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(fixture_logged(f, "cannot be recorded"), 0);
    fixture_end(f);
}

/* ---- a unit refused for another reason than the inbox ---------------------------------------- */

static stet_engine *rival;
static stet_run_id  rival_run;
static atomic_bool  rival_is_due;

/* Somebody else uses the key between the look at it and the unit that does. */
static int
hook_value(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    int err = unhooked->value(s, space, key, value);

    if (strcmp(space, STET__SPACE_IDEM) == 0 && err == STET_ENOTFOUND &&
        atomic_exchange(&rival_is_due, false))
        rival_run =
            fixture_start(rival, "t.target", "", STET_START(.idempotency_key = "only-once"));
    return err;
}

static int
target(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_return(ctx, stet_text("done"));
}

static int
sends(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id run;
    bool        existed = false;

    STET_TRY(stet_send(ctx, &run, "t.target", stet_text(""),
                       STET_START(.idempotency_key = "only-once", .existed = &existed)));
    if (fixture_is(input, "sleep"))
        STET_TRY(stet_sleep(ctx, "nap", "1ms"));
    return stet_return_json(ctx, "%d", existed);
}

static void
sends_race(const char *how)
{
    static const stet_handler handlers[] = { { "sends", sends, NULL },
                                             { "target", target, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    rival = fixture_open(f);
    f->engine = fixture_open(f);
    hook_begin(f->engine); /* before it has threads that use the table */
    hooked.value = hook_value;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    atomic_store(&rival_is_due, true);
    run = fixture_start(f->engine, "t.sends", how, NULL);
    EXPECT_RESULT(f->engine, &run, "1");
    EXPECT_RESULT(f->engine, &rival_run, "done");
    CHECK_INT(fixture_count(f->engine, NULL), 2);
    stet_close(rival);
    fixture_end(f);
}

TEST(B21_a_send_that_loses_its_key_ends_on_replay)
{
    sends_race("");
}

TEST(B21_a_send_that_loses_its_key_suspends_on_replay)
{
    sends_race("sleep");
}

/* ---- children of a cancelled run ------------------------------------------------------------- */

static int
slow_child(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_sleep(ctx, "long", "1h");

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "clean", body_effect, "child cleaned", NULL));
    return err;
}

static int
waits_for_cleanup(stet_ctx *ctx, stet_bytes input)
{
    stet_future *child;
    int          err;

    (void)input;
    STET_TRY(stet_call_start(ctx, &child, "t.child", stet_text(""), NULL));
    if ((err = stet_await(ctx, NULL, child)) != STET_ECANCELLED)
        return err;
    err = stet_await(ctx, NULL, child); /* until the child has cleaned up */
    if (err != STET_ECHILD)
        return err == STET_OK ? STET_EPERMANENT : err;
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, "parent went on", NULL));
    return STET_ECANCELLED;
}

/* The caller stops its children without being told of it, so it must hear of their end. */
TEST(B10_a_cancelled_caller_can_wait_for_its_child)
{
    static const stet_handler handlers[] = { { "parent", waits_for_cleanup, NULL },
                                             { "child", slow_child, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.parent", "", NULL);
    AWAIT(fixture_count(f->engine, STET_FILTER(.statuses = 1u << STET_STATUS_SUSPENDED)) == 2);
    CHECK_OK(stet_cancel(f->engine, &run, "me", "enough"));
    effects_await("parent went on", 1);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(effects("child cleaned"), 1);
    fixture_end(f);
}

/* ---- told to stop while starting something --------------------------------------------------- */

static gate before_start = GATE_INIT;

/* The stop is known here and not told yet: the next operation tells it. */
static int
starts_when_stopped(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future = NULL;
    int          err;

    STET_TRY(stet_step(ctx, NULL, "first", body_effect, "first", NULL));
    gate_pass(&before_start);
    if (fixture_is(input, "call"))
        err = stet_call_start(ctx, &future, "t.child", stet_text(""), NULL);
    else if (fixture_is(input, "sleep"))
        err = stet_sleep_start(ctx, &future, "later", "1h");
    else
        err = stet_step_start(ctx, &future, "later", body_effect, "later", NULL);
    if (err == STET_ECANCELLED) {
        STET_TRY(stet_step(ctx, NULL, "undo", body_effect, "undo", NULL));
        STET_TRY(fixture_pause(ctx));
        return err;
    }
    if (err != STET_OK)
        return err;
    STET_TRY(stet_step(ctx, NULL, "onward", body_effect, "onward", NULL));
    return stet_await(ctx, NULL, future);
}

static void
told_when_starting(const char *what)
{
    static const stet_handler handlers[] = { { "starts", starts_when_stopped, NULL },
                                             { "child", slow_child, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.starts", what, NULL);
    gate_await(&before_start, 1);
    CHECK_OK(stet_cancel(f->engine, &run, "me", "enough"));
    gate_open(&before_start);
    effects_await("undo", 1);
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "awakeable") != NULL);
    fixture_down(f);
    fixture_up_with(f, handlers);
    fixture_go_on(f->engine, &run);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(effects("undo"), 1);
    CHECK_INT(effects("onward"), 0);
    CHECK_INT(effects("later"), 0);
    fixture_end(f);
}

TEST(B10_a_stop_told_by_call_start_is_told_there_again)
{
    told_when_starting("call");
}
TEST(B10_a_stop_told_by_sleep_start_is_told_there_again)
{
    told_when_starting("sleep");
}
TEST(B10_a_stop_told_by_step_start_is_told_there_again)
{
    told_when_starting("step");
}

static int
body_breaks(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("breaks");
    return stet_attempt_fail(a, STET_ERETRY, "not today");
}

static int
breaks_beside(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;

    (void)input;
    STET_TRY(stet_step_start(ctx, &future, "breaks", body_breaks, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "beside", body_effect, "beside", NULL));
    return stet_await(ctx, NULL, future);
}

/* The future's body left no record, the step after it did: the stop is told after what was
 * recorded. */
TEST(B10_a_stop_is_not_told_before_what_is_recorded)
{
    static const stet_handler handlers[] = { { "breaks", breaks_beside, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(
        f->engine, "t.breaks", "",
        STET_START(.retry = { .attempts = 9, .first_ms = 3600000, .max_ms = 3600000 }));
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    CHECK_OK(stet_cancel(f->engine, &run, "me", "enough"));
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(effects("beside"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "stuck", NULL), 0);
    fixture_end(f);
}

/* ---- bodies that run while their run is let go ----------------------------------------------- */

static gate  in_body = GATE_INIT;
static char *body_owns;

static int
body_reads(stet_attempt *a, void *arg)
{
    (void)a;
    gate_pass(&in_body);
    effect("read %s", *(char **)arg != NULL ? *(char **)arg : "freed");
    return STET_OK;
}

static int
frees_at_exit(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;
    int          err;

    (void)input;
    body_owns = strdup("alive");
    if ((err = stet_step_start(ctx, &future, "reads", body_reads, &body_owns, NULL)) == STET_OK)
        err = stet_await(ctx, NULL, future);
    free(body_owns);
    body_owns = NULL;
    return err;
}

static void *
stop_engine(void *arg)
{
    CHECK_OK(stet_engine_stop(arg, 0));
    return NULL;
}

/* An argument has to live until its future was awaited; being let go must not end the wait
 * before. */
TEST(B18_a_handler_is_not_unwound_while_its_body_runs)
{
    static const stet_handler handlers[] = { { "frees", frees_at_exit, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    pthread_t                 stopper;
    stet_run_id               run;
    int64_t                   until_ms;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.frees", "", NULL);
    gate_await(&in_body, 1);
    CHECK(pthread_create(&stopper, NULL, stop_engine, f->engine) == 0);
    for (until_ms = fixture_mono_ms() + 200; fixture_mono_ms() < until_ms;)
        fixture_breathe();
    gate_open(&in_body);
    CHECK(pthread_join(stopper, NULL) == 0);
    CHECK_INT(effects("read alive"), 1);
    fixture_down(f);
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("read alive"), 1); /* and what it did was recorded */
    fixture_end(f);
}

/* ---- news from elsewhere --------------------------------------------------------------------- */

static gate held = GATE_INIT;

static int
body_holds(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&held);
    return STET_OK;
}

static int
body_or_sleep(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[2];
    size_t       chosen = 9;

    (void)input;
    STET_TRY(stet_step_start(ctx, &futures[0], "holds", body_holds, NULL, NULL));
    STET_TRY(stet_sleep_start(ctx, &futures[1], "short", "20ms"));
    STET_TRY(stet_await_any(ctx, &chosen, futures, 2, NULL));
    effect("chosen %d", (int)chosen);
    return stet_return(ctx, stet_text("ok"));
}

/* The run is claimed here and waits beside a body; its timer fires in another process. */
TEST(B18_a_timer_fired_elsewhere_is_heard_of_beside_a_body)
{
    static const stet_handler handlers[] = { { "any", body_or_sleep, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *timers;
    stet_run_id               run;

    f->options.roles = STET_ROLE_TIMERS;
    timers = fixture_open(f);
    CHECK_OK(stet_engine_start(timers));
    f->options.roles = STET_ROLE_WORKER;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.any", "", NULL);
    gate_await(&held, 1);
    effects_await("chosen 1", 1);
    gate_open(&held);
    EXPECT_RESULT(f->engine, &run, "ok");
    stet_close(timers);
    fixture_end(f);
}

/* ---- engines without threads ----------------------------------------------------------------- */

static void
start_many(void *arg, int i)
{
    (void)i;
    for (int n = 0; n < 30; n++)
        (void)fixture_start(arg, "t.target", "", NULL);
}

/* Whoever commits sees to those who came meanwhile: there is no thread that would. */
TEST(B02_callers_of_an_engine_that_is_not_started_do_not_wait_for_each_other)
{
    static const stet_handler handlers[] = { { "target", target, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    int64_t                   began_ms;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", handlers));
    began_ms = fixture_mono_ms();
    fixture_race(6, start_many, f->engine);
    CHECK(fixture_mono_ms() - began_ms < fixture_patience_ms());
    CHECK_INT(fixture_count(f->engine, NULL), 180);
    fixture_end(f);
}

static int
fails_store(stet_ctx *ctx, stet_bytes input)
{
    static bool was_here;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, "one", NULL));
    if (!was_here)
        atomic_store(&hook_fails, true);
    was_here = true;
    STET_TRY(stet_step(ctx, NULL, "two", body_effect, "two", NULL));
    return stet_return(ctx, stet_text("ok"));
}

/* A store that takes nothing must not keep the caller of poll. */
TEST(B02_poll_returns_while_the_store_fails)
{
    static const stet_handler handlers[] = { { "fails", fails_store, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", handlers));
    hook_begin(f->engine);
    hooked.commit = hook_commit;
    run = fixture_start(f->engine, "t.fails", "", NULL);
    CHECK_OK(stet_engine_poll(f->engine, NULL, 10));
    for (int i = 0; i < 3; i++)
        CHECK_OK(stet_engine_poll(f->engine, NULL, 10));
    CHECK_INT(effects("two"), 0);
    atomic_store(&hook_fails, false);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("two"), 1);
    fixture_end(f);
}

/* It is a caller's own commit that shows that the store is well: those who could not end go on from
 * there as well. They were held for as long as the worker lived. Found by the simulator. */
TEST(B02_poll_goes_on_when_a_callers_commit_finds_the_store_well)
{
    static const stet_handler handlers[] = { { "fails", fails_store, NULL },
                                             { "target", target, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", handlers));
    hook_begin(f->engine);
    hooked.commit = hook_commit;
    run = fixture_start(f->engine, "t.fails", "", NULL);
    for (int i = 0; i < 3; i++)
        CHECK_OK(stet_engine_poll(f->engine, NULL, 10));
    atomic_store(&hook_fails, false);
    (void)fixture_start(f->engine, "t.target", "", NULL);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_end(f);
}

static int
ends_in_vain(stet_ctx *ctx, stet_bytes input)
{
    static bool was_here;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, "one", NULL));
    STET_TRY(stet_step(ctx, NULL, "two", body_effect, "two", NULL));
    if (!was_here)
        atomic_store(&hook_fails, true);
    was_here = true;
    return stet_return(ctx, stet_text("ok"));
}

static int
on_no_finding(void *arg, const stet_finding *finding)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "verify: %s: %s", finding->rule, finding->text);
    return 0;
}

/* An end that the store did not take is none: given back, the run's row must not tell a time of it.
 */
TEST(I2_a_run_whose_end_was_refused_is_given_back_without_a_time_of_its_end)
{
    static const stet_handler handlers[] = { { "ends", ends_in_vain, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", handlers));
    hook_begin(f->engine);
    hooked.commit = hook_commit;
    run = fixture_start(f->engine, "t.ends", "", NULL);
    while (!atomic_load(&hook_fails))
        CHECK_OK(stet_engine_poll(f->engine, NULL, 10));
    atomic_store(&hook_fails, false);
    while (stet_result_get(f->engine, NULL, &run) == STET_EOPEN) {
        CHECK_OK(stet_verify(f->engine, NULL, on_no_finding, NULL));
        CHECK_OK(stet_engine_poll(f->engine, NULL, 10));
    }
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("one"), 1);
    fixture_end(f);
}

/* ---- stops ----------------------------------------------------------------------------------- */

static int
calls_flaky(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "c.flaky", stet_text(""),
                     STET_START(.retry = { .attempts = 5, .first_ms = 1, .max_ms = 1 }));
}

static int
flaky(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("flaky");
    return stet_fail(ctx, STET_ERETRY, "not now");
}

static int
on_retrying(void *arg, const stet_run_info *info)
{
    bool *is_due = arg;

    *is_due = info->status == STET_STATUS_RETRYING && info->worker == NULL;
    return 0;
}

static int
on_child(void *arg, const stet_fact_info *fact)
{
    if (strcmp(fact->kind, "call") == 0)
        (void)snprintf(((stet_run_id *)arg)->text, sizeof(stet_run_id), "%s", fact->run);
    return 0;
}

/* Due already, it is not woken by the stop, and its row goes on saying what it said. */
TEST(I2_a_run_that_is_stopped_by_its_caller_when_its_backoff_is_over_is_no_finding)
{
    static const stet_handler parents[] = { { "parent", calls_flaky, NULL }, { 0 } };
    static const stet_handler children[] = { { "flaky", flaky, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *e;
    stet_run_id               run, child = { "" };
    int64_t                   until_ms;
    bool                      is_due = false;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "p", parents));
    CHECK_OK(stet_engine_start(f->engine));
    e = fixture_open(f);
    CHECK_OK(stet_register(e, "c", children));
    run = fixture_start(f->engine, "p.parent", "", NULL);
    while (effects("flaky") == 0)
        CHECK_OK(stet_engine_poll(e, NULL, 10));
    stet_close(e);
    CHECK_OK(stet_run_facts(f->engine, &run, false, on_child, &child));
    CHECK_OK(stet_run_get(f->engine, &child, on_retrying, &is_due));
    CHECK(is_due);
    until_ms = stet_engine_now_ms(f->engine) + 2;
    while (stet_engine_now_ms(f->engine) <= until_ms)
        continue;
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    while (stet_result_get(f->engine, NULL, &run) == STET_EOPEN ||
           fixture_facts(f->engine, &child, "cancel asked", NULL) == 0)
        (void)stet_wait(f->engine, NULL, &run, 10);
    CHECK_OK(stet_verify(f->engine, NULL, on_no_finding, NULL));
    fixture_end(f);
}

/* ---- timers ---------------------------------------------------------------------------------- */

/* A read that fails when a delayed run becomes visible must not cost the run. */
TEST(B08_a_delayed_run_of_a_key_survives_a_failed_read)
{
    static const stet_handler    handlers[] = { { "target", target, NULL }, { 0 } };
    static const fixture_service services[] = { { "obj", handlers, true, NULL }, { 0 } };
    fixture                     *f = fixture_begin();
    stet_run_id                  run;

    f->engine = fixture_open_with(f, services);
    run = fixture_start(f->engine, "obj.target", "", STET_START(.key = "k", .delay = "50ms"));
    hook_begin(f->engine);
    hooked.run = hook_run;
    atomic_store(&hook_fails, true);
    CHECK_OK(stet_engine_start(f->engine));
    AWAIT(atomic_load(&hook_failed) >= 3);
    atomic_store(&hook_fails, false);
    EXPECT_RESULT(f->engine, &run, "done");
    fixture_end(f);
}

static int
count_timer(void *arg, const stet_timer *timer)
{
    (void)timer;
    ++*(int *)arg;
    return STET_OK;
}

static int
cleans_for_long(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_sleep(ctx, "long", "1h");

    (void)input;
    STET_TRY(fixture_pause(ctx));
    return err;
}

/* A deadline that passes while the run is being cancelled has nothing to say; 512 of its kind would
 * be all that the keeper ever sees. */
TEST(B10_a_deadline_of_a_cancelled_run_goes)
{
    static const stet_handler handlers[] = { { "cleans", cleans_for_long, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_id                   id;
    int                       n = -1;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.cleans", "", STET_START(.timeout = "2s"));
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "me", "enough"));
    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run.text));
    AWAIT((n = 0, f->engine->store->ops->timers_of(f->engine->store, id, count_timer, &n)) ==
              STET_OK &&
          n <= 1 && stet_engine_now_ms(f->engine) > fixture_look(f->engine, &run).deadline_ms &&
          n == 1);
    fixture_go_on(f->engine, &run);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    fixture_end(f);
}

/* ---- room ------------------------------------------------------------------------------------ */

static int
calls_target(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, "one", NULL));
    STET_TRY(stet_call(ctx, &out, "t.target", stet_text(""), NULL));
    return stet_return(ctx, out);
}

/* A parent that is suspended makes room for its child at once, not at the next poll. */
TEST(B09_one_run_in_flight_is_enough_for_a_call)
{
    static const stet_handler handlers[] = { { "calls", calls_target, NULL },
                                             { "target", target, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    f->options.concurrency = 1;
    f->options.in_flight_max = 1;
    f->options.poll_ms = 600000;
    fixture_up_with(f, handlers);
    for (int i = 0; i < 5; i++) {
        run = fixture_start(f->engine, "t.calls", "", NULL);
        result = EXPECT_END(f->engine, &run, STET_OK);
        stet_result_free(&result);
    }
    fixture_end(f);
}

/* ---- crumbs ---------------------------------------------------------------------------------- */

static int
parks_after_future(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;

    (void)input;
    STET_TRY(stet_step_start(ctx, &future, "body", body_effect, "body", NULL));
    STET_TRY(stet_await(ctx, NULL, future));
    return stet_sleep(ctx, "long", "1h");
}

static size_t
crumbs_used(stet_engine *e)
{
    size_t n = 0;

    stet__lock(e->p, &e->lock);
    for (size_t i = 0; i < e->n_crumbs; i++)
        n += e->crumb_uses[i].is_used ? 1 : 0;
    stet__unlock(e->p, &e->lock);
    return n;
}

/* Parked runs must not use up what tells of bodies at risk. */
TEST(B06_parked_runs_keep_no_crumbs)
{
    static const stet_handler handlers[] = { { "parks", parks_after_future, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[5];

    fixture_up_with(f, handlers);
    for (int i = 0; i < 5; i++)
        runs[i] = fixture_start(f->engine, "t.parks", "", NULL);
    for (int i = 0; i < 5; i++)
        fixture_await_status(f->engine, &runs[i], STET_STATUS_SUSPENDED);
    AWAIT(atomic_load(&f->engine->in_flight) == 0);
    CHECK_INT((int)crumbs_used(f->engine), 0);
    for (int i = 0; i < 5; i++)
        CHECK_OK(stet_cancel(f->engine, &runs[i], "me", "enough"));
    for (int i = 0; i < 5; i++)
        fixture_await_status(f->engine, &runs[i], STET_STATUS_CANCELLED);
    fixture_end(f);
}
