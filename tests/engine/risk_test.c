/* Steps at risk: a worker died, or seemed to, while it executed them. Row I9. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

/* ---- I9: steps at risk ----------------------------------------------------------------------- */

typedef struct i9_seen {
    char     token[80];
    uint64_t fence;
    bool     is_at_risk;
} i9_seen;

static i9_seen     i9_bodies[16];
static _Atomic int i9_n;
static gate        i9_doors[8] = { GATE_INIT, GATE_INIT, GATE_INIT, GATE_INIT,
                                   GATE_INIT, GATE_INIT, GATE_INIT, GATE_INIT };
static _Atomic int i9_waiting; /* bodies before this one wait at their door */

static int
body_i9(stet_attempt *a, void *arg)
{
    int at = atomic_fetch_add(&i9_n, 1);

    (void)arg;
    (void)snprintf(i9_bodies[at].token, sizeof i9_bodies[0].token, "%s", stet_attempt_token(a));
    i9_bodies[at].fence = stet_attempt_fence(a);
    i9_bodies[at].is_at_risk = stet_attempt_is_at_risk(a);
    if (at < atomic_load(&i9_waiting))
        gate_pass(&i9_doors[at]);
    effect("charged");
    return STET_OK;
}

static int
h_i9(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_i9, NULL, NULL));
    return stet_return(ctx, input);
}

static const stet_handler i9_handlers[] = { { "h", h_i9, NULL }, { 0 } };

/* Of a worker that lives and cannot find the dead. */
static int
no_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    (void)s;
    (void)fn;
    (void)arg;
    return stet__fail(STET_EIO, "sessions cannot be read");
}

/* An engine that will be dead for the others and alive in truth. It finds nobody dead, itself
 * least: its first sweep may be late. */
static stet_engine *
i9_doomed(fixture *f, const stet_handler *handlers)
{
    stet_options before = f->options;
    stet_engine *e;

    f->options.sweep_ms = 3600000;
    e = fixture_open(f);
    f->options = before;
    damage_mortal(e);
    damage_ops(e)->sessions = no_sessions;
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    return e;
}

static int
count_risks(void *arg, const stet_fact_info *fact)
{
    *(int *)arg += fact->is_at_risk && strcmp(fact->kind, "at risk") == 0 &&
                   strcmp(fact->name, "charge") == 0 && fact->occurrence == 1;
    return 0;
}

TEST(I9_after_a_death_in_a_body_the_next_execution_knows_and_the_old_one_is_fenced)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed;
    stet_run_id  run;
    stet_result  r;
    int          risks = 0;

    atomic_store(&i9_waiting, 1);
    doomed = i9_doomed(f, i9_handlers);
    run = fixture_start(doomed, "t.h", "ok", NULL);
    gate_await(&i9_doors[0], 1);
    damage_die(f, doomed);
    f->options.sweep_ms = 20;
    fixture_up_with(f, i9_handlers);
    r = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(r.attempts, 1); /* losing a worker uses none */
    stet_result_free(&r);
    CHECK_INT(atomic_load(&i9_n), 2);
    CHECK(!i9_bodies[0].is_at_risk);
    CHECK(i9_bodies[1].is_at_risk);
    CHECK_STR(i9_bodies[1].token, i9_bodies[0].token);
    CHECK(i9_bodies[1].fence > i9_bodies[0].fence);
    CHECK_OK(stet_run_facts(f->engine, &run, false, count_risks, &risks));
    CHECK_INT(risks, 1);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", NULL), 1);
    gate_open(&i9_doors[0]); /* the old body ends now, and is refused */
    (void)stet_engine_stop(doomed, 0);
    CHECK(fixture_logged(f, "fenced") >= 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "charge"), 1);
    stet_close(doomed);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_end(f);
}

static atomic_int i9_asked[8]; /* 1: it was entered; 2: and told */

/* It asks the bank what came of the first one: not now; no answer; then it knows. */
static int
body_i9_asks(stet_attempt *a, void *arg)
{
    int at = atomic_fetch_add(&i9_n, 1);

    (void)arg;
    atomic_store(&i9_asked[at % 8], stet_attempt_is_at_risk(a) ? 2 : 1);
    if (at == 0)
        gate_pass(&i9_doors[0]);
    if (at == 1)
        return stet_attempt_not_before(a, 1, "the bank asks for patience");
    if (at == 2)
        return stet_attempt_fail(a, STET_EBUSY, "the bank does not answer");
    return STET_OK;
}

static int
h_i9_asks(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(
        stet_step(ctx, NULL, "charge", body_i9_asks, NULL,
                  fixture_is(input, "policy") ? STET_STEP(.attempts = 5, .first_ms = 1) : NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    return stet_return(ctx, input);
}

static const stet_handler i9_askers[] = { { "h", h_i9_asks, NULL }, { 0 } };

static void
i9_asks(const char *input)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed;
    stet_run_id  run;

    f->options.retry_first_ms = f->options.retry_max_ms = 1;
    doomed = i9_doomed(f, i9_askers);
    run = fixture_start(doomed, "t.h", input, NULL);
    gate_await(&i9_doors[0], 1);
    damage_die(f, doomed);
    f->options.sweep_ms = 20;
    fixture_up_with(f, i9_askers);
    AWAIT(fixture_facts(f->engine, &run, "signal wait", NULL) == 1);
    CHECK_INT(atomic_load(&i9_n), 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(atomic_load(&i9_asked[i]), i > 0 ? 2 : 1);
    /* It has its result now; when somebody has it done again, that is no repeat. */
    CHECK_OK(stet_run_rewind(f->engine, &run, "charge", NULL, NULL));
    AWAIT(atomic_load(&i9_asked[4]) != 0);
    CHECK_INT(atomic_load(&i9_asked[4]), 1);
    gate_open(&i9_doors[0]);
    (void)stet_engine_stop(doomed, 0);
    stet_close(doomed);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &run, input);
    fixture_end(f);
}

TEST(I9_a_body_that_was_told_and_comes_to_no_result_is_told_again)
{
    i9_asks("policy");
}

TEST(I9_a_body_that_was_told_and_fails_its_runs_attempt_is_told_again)
{
    i9_asks("none");
}

typedef struct owner_found {
    const char *run;
    int         n;
} owner_found;

static int
on_owner(void *arg, const stet_finding *finding)
{
    owner_found *found = arg;

    CHECK_STR(finding->rule, "owner");
    CHECK_STR(finding->run, found->run);
    CHECK_HAS(finding->text, "no other has taken it over");
    found->n++;
    return 0;
}

static int
owners_missing(stet_engine *e, const stet_run_id *run)
{
    owner_found found = { run->text, 0 };

    CHECK_OK(stet_verify(e, NULL, on_owner, &found));
    return found.n;
}

TEST(I2_a_run_whose_owner_died_and_that_nobody_takes_over_is_found)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed, *blind, *patient, *eye;
    stet_run_id  run;

    atomic_store(&i9_waiting, 1);
    doomed = i9_doomed(f, i9_handlers);
    blind = fixture_open(f);
    damage_ops(blind)->sessions = no_sessions;
    CHECK_OK(stet_engine_start(blind));
    f->options.sweep_ms = 3600000; /* what a sweep may take, to this one */
    patient = fixture_open(f);
    f->options.sweep_ms = 10;
    eye = fixture_open(f);
    run = fixture_start(doomed, "t.h", "ok", NULL);
    gate_await(&i9_doors[0], 1);
    CHECK_INT(owners_missing(eye, &run), 0);
    damage_die(f, doomed);
    AWAIT(owners_missing(eye, &run) == 1);
    CHECK_INT(owners_missing(patient, &run), 0); /* the next sweep may still come */
    fixture_up_with(f, i9_handlers);             /* it does */
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(owners_missing(eye, &run), 0);
    gate_open(&i9_doors[0]);
    (void)stet_engine_stop(doomed, 0);
    stet_close(doomed);
    stet_close(eye);
    stet_close(patient);
    stet_close(blind);
    fixture_end(f);
}

/* Five workers die in its body; the next one finds it stuck. */
static stet_run_id
i9_five_deaths(fixture *f, stet_engine *doomed[5])
{
    stet_run_id run = { "" };

    atomic_store(&i9_waiting, 5);
    for (int i = 0; i < 5; i++) {
        stet_engine *reaper;

        doomed[i] = i9_doomed(f, i9_handlers);
        if (i == 0)
            run = fixture_start(doomed[0], "t.h", "ok", NULL);
        gate_await(&i9_doors[i], 1);
        damage_die(f, doomed[i]);
        f->options.roles = STET_ROLE_TIMERS; /* finds the dead, executes nothing */
        f->options.sweep_ms = 20;
        reaper = fixture_open(f);
        CHECK_OK(stet_engine_start(reaper));
        AWAIT(fixture_look(reaper, &run).status == STET_STATUS_PENDING);
        stet_close(reaper);
        f->options.roles = 0;
        f->options.sweep_ms = 0;
    }
    fixture_up_with(f, i9_handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    return run;
}

static gate twin_door = GATE_INIT;

static int
h_twins(stet_ctx *ctx, stet_bytes input)
{
    stet_future *twins[2];

    STET_TRY(stet_step_start(ctx, &twins[0], "one", body_gate, &twin_door, NULL));
    STET_TRY(stet_step_start(ctx, &twins[1], "two", body_gate, &twin_door, NULL));
    STET_TRY(stet_await_all(ctx, twins, 2));
    return stet_return(ctx, input);
}

/* It died once, whatever it was executing. */
TEST(I9_C1_a_worker_that_dies_in_two_bodies_of_a_run_is_one)
{
    static const stet_handler twins[] = { { "twins", h_twins, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *doomed;
    stet_run_id               run;

    doomed = i9_doomed(f, twins);
    run = fixture_start(doomed, "t.twins", "ok", NULL);
    gate_await(&twin_door, 2);
    damage_die(f, doomed);
    f->options.sweep_ms = 20;
    f->options.lost_max = 2;
    fixture_up_with(f, twins);
    gate_await(&twin_door, 4);
    gate_open(&twin_door);
    EXPECT_RESULT(f->engine, &run, "ok");
    stet_close(doomed);
    fixture_end(f);
}

static void
i9_bury(stet_engine *doomed[5])
{
    for (int i = 0; i < 5; i++)
        gate_open(&i9_doors[i]);
    for (int i = 0; i < 5; i++)
        stet_close(doomed[i]);
}

TEST(I9_C1_a_run_that_executed_in_five_dying_workers_is_stuck)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed[5];
    stet_run_id  run = i9_five_deaths(f, doomed);
    fixture_run  look = fixture_look(f->engine, &run);

    CHECK_INT(look.code, STET_ELOST);
    CHECK_HAS(look.error, "5 workers died");
    CHECK_HAS(look.error, "charge");
    CHECK_STR(fixture_why(f->engine, &run).kind, "stuck");
    CHECK_INT(atomic_load(&i9_n), 5);
    for (int i = 1; i < 5; i++) {
        CHECK_STR(i9_bodies[i].token, i9_bodies[0].token);
        CHECK(i9_bodies[i].fence > i9_bodies[i - 1].fence);
    }
    CHECK_OK(stet_unstick(f->engine, &run, "ann"));
    EXPECT_RESULT(f->engine, &run, "ok");
    i9_bury(doomed);
    fixture_end(f);
}

/* No other code can mend that workers died: each start claimed it and recorded once more that it is
 * stuck. */
TEST(I9_C1_a_worker_that_starts_leaves_a_run_alone_that_is_stuck_because_workers_died)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed[5];
    stet_run_id  run = i9_five_deaths(f, doomed), other;
    int          claimed = fixture_facts(f->engine, &run, "claimed", NULL);

    i9_bury(doomed);
    for (int i = 0; i < 3; i++) {
        fixture_down(f);
        fixture_up_with(f, i9_handlers);
        other = fixture_start(f->engine, "t.h", "other", NULL);
        EXPECT_RESULT(f->engine, &other, "other");
        CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_STUCK);
        CHECK_INT(fixture_facts(f->engine, &run, "claimed", NULL), claimed);
        CHECK_INT(fixture_facts(f->engine, &run, "stuck", NULL), 1);
    }
    CHECK_STR(fixture_why(f->engine, &run).kind, "stuck");
    CHECK_HAS(fixture_why(f->engine, &run).help, "unstick");
    (void)fixture_sound(f->engine);
    CHECK_INT(atomic_load(&i9_n), 8);
    CHECK_OK(stet_unstick(f->engine, &run, "ann"));
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(atomic_load(&i9_n), 9);
    fixture_end(f);
}

TEST(I9_C1_a_stop_leaves_a_run_alone_that_is_stuck_because_workers_died)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed[5];
    stet_run_id  run = i9_five_deaths(f, doomed), other;

    i9_bury(doomed);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", NULL));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    fixture_down(f);
    fixture_up_with(f, i9_handlers);
    other = fixture_start(f->engine, "t.h", "other", NULL);
    EXPECT_RESULT(f->engine, &other, "other");
    CHECK_INT(fixture_facts(f->engine, &run, "stuck", NULL), 1);
    (void)fixture_sound(f->engine);
    CHECK_OK(stet_unstick(f->engine, &run, "ann"));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_INT(atomic_load(&i9_n), 6);
    fixture_end(f);
}

static int
body_tokens(stet_attempt *a, void *arg)
{
    int at = atomic_fetch_add(&i9_n, 1);

    (void)snprintf(i9_bodies[at].token, sizeof i9_bodies[0].token, "%s", stet_attempt_token(a));
    i9_bodies[at].fence = stet_attempt_fence(a);
    i9_bodies[at].is_at_risk = stet_attempt_is_at_risk(a);
    return at < *(const int *)arg ? stet_attempt_fail(a, STET_ERETRY, "again") : STET_OK;
}

static int
h_tokens(stet_ctx *ctx, stet_bytes input)
{
    static const int none = 0, three = 3;

    if (fixture_is(input, "policy"))
        STET_TRY(stet_step(ctx, NULL, "charge", body_tokens, (void *)(uintptr_t)&three,
                           STET_STEP(.attempts = 9, .first_ms = 1, .max_ms = 2)));
    else
        STET_TRY(stet_step(ctx, NULL, "charge", body_tokens, (void *)(uintptr_t)&three, NULL));
    STET_TRY(stet_step(ctx, NULL, "charge", body_tokens, (void *)(uintptr_t)&none, NULL));
    return stet_return(ctx, input);
}

static void
i9_tokens(const char *input)
{
    static const stet_handler handlers[] = { { "h", h_tokens, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", input, STET_START(.retry = { .attempts = 9 }));
    EXPECT_RESULT(f->engine, &run, input);
    CHECK_INT(atomic_load(&i9_n), 5);
    for (int i = 0; i < 4; i++) {
        CHECK_STR(i9_bodies[i].token, i9_bodies[0].token);
        CHECK(!i9_bodies[i].is_at_risk);
        /* Each failed attempt gives the run back, and the next owner has a higher fence. */
        if (i > 0)
            CHECK(i9_bodies[i].fence > i9_bodies[i - 1].fence);
    }
    CHECK(strcmp(i9_bodies[4].token, i9_bodies[0].token) !=
          0);                                          /* the second occurrence is another step */
    CHECK_INT(i9_bodies[4].fence, i9_bodies[3].fence); /* the same owner */
    fixture_end(f);
}

TEST(I9_the_token_is_the_same_over_the_runs_attempts_and_the_fence_grows)
{
    i9_tokens("run");
}

TEST(I9_the_token_is_the_same_over_the_steps_attempts_and_the_fence_grows)
{
    i9_tokens("policy");
}

/* ---- I9: a body is noted before it begins ---------------------------------------------------- */

static gate crumb_door = GATE_INIT;

static int
body_crumb(stet_attempt *a, void *arg)
{
    (void)a;
    gate_pass(&crumb_door);
    effect("%s", (const char *)arg);
    return STET_OK;
}

static int
h_crumbs(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[3];

    STET_TRY(stet_step_start(ctx, &futures[0], "a", body_crumb, (void *)"a", NULL));
    STET_TRY(stet_step_start(ctx, &futures[1], "b", body_crumb, (void *)"b", NULL));
    STET_TRY(stet_step_start(ctx, &futures[2], "c", body_crumb, (void *)"c", NULL));
    STET_TRY(stet_await_all(ctx, futures, 3));
    return stet_return(ctx, input);
}

TEST(I9_a_body_that_cannot_be_noted_is_not_begun_and_comes_later)
{
    static const stet_handler handlers[] = { { "h", h_crumbs, NULL }, { 0 } };
    const fixture_service     services[] = { { "t", handlers, false, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.concurrency = 4;
    f->engine = fixture_open(f);
    f->engine->n_crumbs = 2; /* one for the claim, one for a body */
    fixture_register(f->engine, services);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    gate_await(&crumb_door, 1);
    AWAIT(fixture_logged(f, "not begun") >= 1);
    CHECK_INT(crumb_door.arrived, 1);
    gate_open(&crumb_door);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("a"), 1);
    CHECK_INT(effects("b"), 1);
    CHECK_INT(effects("c"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "at risk", NULL), 0);
    fixture_end(f);
}

/* ---- I9: nothing is at risk that is on record ------------------------------------------------ */

static _Atomic int  risk_flaky;   /* bodies of that name */
static _Atomic int  risk_told;    /* … that were told */
static _Atomic bool risk_is_new;  /* the code that contradicts the record */
static _Atomic bool risk_is_well; /* no body fails any more */
static gate         risk_door = GATE_INIT;

static int
body_named(stet_attempt *a, void *arg)
{
    (void)a;
    effect("%s", (const char *)arg);
    return STET_OK;
}

static int
h_renamed(stet_ctx *ctx, stet_bytes input)
{
    const char *name = atomic_load(&risk_is_new) ? "pay card" : "pay";

    STET_TRY(stet_step(ctx, NULL, name, body_named, (void *)(uintptr_t)name, NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    STET_TRY(stet_step(ctx, NULL, "end", body_named, (void *)"end", NULL));
    return stet_return(ctx, input);
}

/* Its handler has returned when it is seen that "pay" was not asked for: one unit has the record of
 * the last step, and that the run is stuck. */
TEST(I9_a_step_that_is_recorded_by_the_unit_in_which_its_run_gets_stuck_is_not_at_risk)
{
    static const stet_handler handlers[] = { { "h", h_renamed, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    atomic_store(&risk_is_new, true);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    CHECK_INT(effects("end"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "end"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", NULL), 0);
    fixture_down(f);
    atomic_store(&risk_is_new, false);
    fixture_end(f);
}

static int
body_flaky(stet_attempt *a, void *arg)
{
    (void)arg;
    atomic_fetch_add(&risk_told, stet_attempt_is_at_risk(a));
    atomic_fetch_add(&risk_flaky, 1);
    return atomic_load(&risk_is_well) ? STET_OK : stet_attempt_fail(a, STET_ERETRY, "not yet");
}

static bool
is_flaky_over(const stet_attempt *a)
{
    const stet__exec *x = a->ctx->exec;
    bool              is;

    stet__lock(x->p, x->lock);
    is = a->ctx->jobs == 0;
    stet__unlock(x->p, x->lock);
    return is;
}

static int
body_after_flaky(stet_attempt *a, void *arg)
{
    (void)arg;
    AWAIT(is_flaky_over(a));
    return STET_OK;
}

static int
h_broken(stet_ctx *ctx, stet_bytes input)
{
    stet_future *flaky;

    if (!atomic_load(&risk_is_new)) {
        STET_TRY(stet_step(ctx, NULL, "pay", body_named, (void *)"pay", NULL));
        STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
        if (!atomic_load(&risk_is_well))
            return stet_return(ctx, input);
        STET_TRY(stet_step_start(ctx, &flaky, "flaky", body_flaky, NULL, NULL));
        STET_TRY(stet_step(ctx, NULL, "after", body_named, (void *)"after", NULL));
        STET_TRY(stet_await(ctx, NULL, flaky));
        return stet_return(ctx, input);
    }
    STET_TRY(stet_step_start(ctx, &flaky, "flaky", body_flaky, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "after", body_after_flaky, NULL, NULL));
    return stet_sleep(ctx, "pay", "1h");
}

/* The other way round: its failure was to be recorded by the end of the attempt, and that does not
 * come. */
TEST(I9_a_failure_that_is_on_no_record_when_the_run_gets_stuck_is_at_risk)
{
    static const stet_handler handlers[] = { { "h", h_broken, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.concurrency = 4;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    atomic_store(&risk_is_new, true);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    CHECK_INT(atomic_load(&risk_flaky), 1);
    CHECK_INT(atomic_load(&risk_told), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "after"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", "after"), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", "flaky"), 1);
    fixture_down(f);
    atomic_store(&risk_is_new, false);
    atomic_store(&risk_is_well, true);
    fixture_up_with(f, handlers); /* a new worker looks at stuck runs once */
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(atomic_load(&risk_flaky), 2);
    CHECK_INT(atomic_load(&risk_told), 1);
    fixture_end(f);
}

static int
body_slow(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&risk_door);
    effect("slow");
    return STET_OK;
}

static int
h_slow(stet_ctx *ctx, stet_bytes input)
{
    stet_future *slow;

    STET_TRY(stet_step_start(ctx, &slow, "slow", body_slow, NULL, NULL));
    STET_TRY(stet_await(ctx, NULL, slow));
    return stet_return(ctx, input);
}

static bool
is_stopping(stet_engine *e)
{
    bool is;

    stet__lock(e->p, &e->lock);
    is = e->life != STET__LIFE_STARTED;
    stet__unlock(e->p, &e->lock);
    return is;
}

static void *
open_late(void *arg)
{
    fixture *f = arg;

    AWAIT(is_stopping(f->engine));
    gate_open(&risk_door);
    return NULL;
}

TEST(I9_a_body_that_ends_while_its_worker_stops_in_order_is_recorded_and_not_at_risk)
{
    static const stet_handler handlers[] = { { "h", h_slow, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    pthread_t                 opener;

    f->options.concurrency = 4;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    gate_await(&risk_door, 1);
    CHECK_INT(pthread_create(&opener, NULL, open_late, f), 0);
    CHECK_OK(stet_engine_stop(f->engine, 60000));
    CHECK_INT(pthread_join(opener, NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "slow"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", NULL), 0);
    fixture_down(f);
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("slow"), 1);
    fixture_end(f);
}

static int
body_stopped(stet_attempt *a, void *arg)
{
    (void)arg;
    gate_pass(&risk_door);
    atomic_fetch_add(&risk_told, stet_attempt_is_at_risk(a));
    return stet_attempt_fail(a, STET_ERETRY, "not yet");
}

static int
h_stopped(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "flaky", body_stopped, NULL, NULL));
    return stet_return(ctx, input);
}

/* It is shown as cancelling and not as retrying; the attempt has ended all the same. */
TEST(I9_a_failure_that_ends_an_attempt_of_a_run_that_is_cancelled_is_on_record)
{
    static const stet_handler handlers[] = { { "h", h_stopped, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               r;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    gate_await(&risk_door, 1);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "enough"));
    gate_open(&risk_door);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    r = EXPECT_END(f->engine, &run, STET_ECANCELLED);
    stet_result_free(&r);
    CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", NULL), 0);
    CHECK_INT(atomic_load(&risk_told), 0);
    fixture_end(f);
}

static int
h_beside(stet_ctx *ctx, stet_bytes input)
{
    stet_future *beside;

    STET_TRY(stet_step_start(ctx, &beside, "beside", body_effect, "beside", NULL));
    STET_TRY(stet_step(ctx, NULL, "flaky", body_stopped, NULL, NULL));
    STET_TRY(stet_await(ctx, NULL, beside));
    return stet_return(ctx, input);
}

typedef struct risk_stop {
    fixture    *f;
    stet_run_id run;
} risk_stop;

static bool
is_let_go(stet_engine *e, const stet_run_id *run)
{
    stet_ctx *c;
    stet_id   id;
    bool      is;

    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run->text));
    stet__lock(e->p, &e->lock);
    c = stet__map_find(&e->claims, id.bytes, sizeof id.bytes);
    is = c != NULL && c->is_let_go;
    stet__unlock(e->p, &e->lock);
    return is;
}

static void *
open_let_go(void *arg)
{
    const risk_stop *stop = arg;

    AWAIT(is_let_go(stop->f->engine, &stop->run));
    gate_open(&risk_door);
    return NULL;
}

/* The body of the future waits for the only slot, and is given up with the run. */
TEST(I9_a_failure_that_a_stop_keeps_from_its_record_is_told_though_a_body_was_not_begun_beside_it)
{
    static const stet_handler handlers[] = { { "h", h_beside, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    risk_stop                 stop = { .f = f };
    pthread_t                 opener;

    f->options.concurrency = 1;
    fixture_up_with(f, handlers);
    stop.run = fixture_start(f->engine, "t.h", "ok", NULL);
    gate_await(&risk_door, 1);
    CHECK_INT(pthread_create(&opener, NULL, open_let_go, &stop), 0);
    CHECK_OK(stet_engine_stop(f->engine, 60000));
    CHECK_INT(pthread_join(opener, NULL), 0);
    CHECK_INT(effects("beside"), 0);
    CHECK_INT(fixture_facts(f->engine, &stop.run, "released", NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &stop.run, "worker lost", "flaky"), 1);
    fixture_end(f);
}

/* ---- a lease that ends between a body and its record ----------------------------------------- */

static const stet_store_ops *lent;
static stet_engine          *lent_to, *lent_client;
static stet_id               lent_run;
static atomic_bool           is_lease_over, is_let_go_first;

static int
renew_at_the_end(stet_store *s, uint64_t session, int64_t lease_ms)
{
    return atomic_load(&is_lease_over) ? lent->session_renew(s, session, lease_ms)
                                       : stet__fail(STET_EIO, "not now");
}

/* It records a step and suspends its run. A body that took its time is recorded apart. */
static bool
is_record_and_suspension(const stet_unit *unit, stet_id *run)
{
    bool has_step = false, is_suspended = false;

    for (size_t i = 0; i < unit->n_ops; i++) {
        stet_bytes in = unit->ops[i].data;
        stet__fact fact;

        while (unit->ops[i].kind == STET_OP_FACTS && stet__fact_decode(&fact, &in) == STET_OK) {
            has_step = has_step || fact.kind == STET__FACT_STEP;
            is_suspended = is_suspended || fact.kind == STET__FACT_SUSPENDED;
            *run = unit->ops[i].run;
        }
    }
    return has_step && is_suspended;
}

/* What it waits for arrives before it is suspended, so that is refused; and before it hears of
 * that the lease has ended, and the worker knows. */
static int
commit_beyond_the_lease(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    bool        is_it = false;
    stet_run_id run;
    int         err;

    for (size_t i = 0; !is_it && i < n && !atomic_load(&is_lease_over); i++)
        is_it = is_record_and_suspension(&units[i], &lent_run);
    stet__id_text(run.text, STET__ID_RUN, lent_run);
    if (is_it)
        CHECK_OK(stet_signal(lent_client, &run, "go", stet_text(""), NULL));
    err = lent->commit(s, units, n, outcomes);
    if (is_it) {
        AWAIT(lent->session_renew(s, lent_to->session, 1) == STET_EFENCED);
        atomic_store(&is_let_go_first, true);
        atomic_store(&is_lease_over, true);
        stet__renew(lent_to);
    }
    return err;
}

static bool
has_claim(stet_engine *e, stet_id run)
{
    bool has;

    stet__lock(e->p, &e->lock);
    has = stet__map_find(&e->claims, run.bytes, sizeof run.bytes) != NULL;
    stet__unlock(e->p, &e->lock);
    return has;
}

/* Who looks for what the dead did comes when the worker has let go of the run. */
static int
crumbs_of_who_let_go(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    if (atomic_exchange(&is_let_go_first, false))
        AWAIT(!has_claim(lent_to, lent_run));
    return lent->crumbs_of(s, session, crumbs, n);
}

static int
body_told(stet_attempt *a, void *arg)
{
    (void)arg;
    effect(stet_attempt_is_at_risk(a) ? "charged at risk" : "charged");
    return STET_OK;
}

static int
h_told(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_told, NULL, NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    return stet_return(ctx, input);
}

TEST(I9_a_body_whose_record_was_refused_when_the_lease_ended_is_at_risk)
{
    static const stet_handler handlers[] = { { "h", h_told, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_store_ops           *ops;
    stet_run_id               run;
    int                       tries = 0;

    lent_client = fixture_open(f);
    f->options.sweep_ms = 20;
    lent_to = f->engine = fixture_open(f);
    lent = f->engine->store->ops;
    ops = damage_ops(f->engine);
    ops->session_renew = renew_at_the_end;
    ops->commit = commit_beyond_the_lease;
    ops->crumbs_of = crumbs_of_who_let_go;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    do {
        CHECK(tries++ < 100);
        run = fixture_start(lent_client, "t.h", "ok", NULL);
        AWAIT(atomic_load(&is_lease_over) ||
              fixture_look(lent_client, &run).status == STET_STATUS_SUSPENDED);
    } while (!atomic_load(&is_lease_over));
    EXPECT_RESULT(lent_client, &run, "ok");
    CHECK_INT(effects("charged"), tries);
    CHECK_INT(effects("charged at risk"), 1);
    stet_close(lent_client);
    fixture_end(f);
}

/* ---- a session that is lost here, and not in the store --------------------------------------- */

static atomic_int  inbox_reads;
static atomic_bool is_taken_for_dead;

/* Its lease had ended by a clock that was ahead and was set right since: it goes on in the
 * store. */
static int
renew_never(stet_store *s, uint64_t session, int64_t lease_ms)
{
    (void)lease_ms;
    return atomic_exchange(&is_taken_for_dead, false)
               ? stet__fail(STET_EFENCED, "session %llu has expired", (unsigned long long)session)
               : lent->session_renew(s, session, lease_ms);
}

/* What the attempt came to is refused because of this, and it is looked what it is. */
static int
commit_behind_news(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_ops && atomic_load(&inbox_reads) == 0; k++) {
            stet_bytes  in = units[i].ops[k].data;
            stet__fact  fact;
            stet_run_id run;

            while (units[i].ops[k].kind == STET_OP_FACTS &&
                   stet__fact_decode(&fact, &in) == STET_OK)
                if (fact.kind == STET__FACT_ATTEMPT_FAILED) {
                    stet__id_text(run.text, STET__ID_RUN, units[i].ops[k].run);
                    CHECK_OK(stet_signal(lent_client, &run, "go", stet_text(""), NULL));
                    atomic_store(&inbox_reads, 1);
                }
        }
    return lent->commit(s, units, n, outcomes);
}

static int
inbox_for_long(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    int err = lent->inbox(s, run, from, limit, fn, arg), one = 1;

    if (atomic_compare_exchange_strong(&inbox_reads, &one, 2)) {
        atomic_store(&is_taken_for_dead, true);
        stet__renew(lent_to);
    }
    return err;
}

static int
body_fails_once(stet_attempt *a, void *arg)
{
    (void)arg;
    effect(stet_attempt_is_at_risk(a) ? "charged at risk" : "charged");
    return effects("charged") + effects("charged at risk") > 1
               ? STET_OK
               : stet_attempt_fail(a, STET_EBUSY, "not now");
}

static int
h_fails_once(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_fails_once, NULL, NULL));
    return stet_return(ctx, input);
}

/* What it gives back then would be taken, and it does not know its crumbs any more. The simulator
 * found it. */
TEST(I9_a_worker_that_gave_its_session_up_gives_no_run_back_without_telling_its_risks)
{
    static const stet_handler handlers[] = { { "h", h_fails_once, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_store_ops           *ops;
    stet_run_id               run;

    lent_client = fixture_open(f);
    f->options.sweep_ms = 20;
    f->options.lease_ms = 1500; /* it is over before the run goes on */
    f->options.renew_ms = 500;
    lent_to = f->engine = fixture_open(f);
    lent = f->engine->store->ops;
    ops = damage_ops(f->engine);
    ops->session_renew = renew_never;
    ops->commit = commit_behind_news;
    ops->inbox = inbox_for_long;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(lent_client, "t.h", "ok", NULL);
    EXPECT_RESULT(lent_client, &run, "ok");
    CHECK_INT(atomic_load(&inbox_reads), 2);
    CHECK_INT(effects("charged"), 1);
    CHECK_INT(effects("charged at risk"), 1);
    stet_close(lent_client);
    fixture_end(f);
}

/* ---- a rollback that is refused when what failed is on record -------------------------------- */

static atomic_bool is_refused_once;

static bool
begins_rollback(const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        stet_bytes in = unit->ops[i].data;
        stet__fact fact;

        while (unit->ops[i].kind == STET_OP_FACTS && stet__fact_decode(&fact, &in) == STET_OK)
            if (fact.kind == STET__FACT_ROLLBACK)
                return true;
    }
    return false;
}

static int
commit_but_a_rollback(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    int err = STET_OK;

    for (size_t i = 0; i < n && err == STET_OK; i++)
        if (begins_rollback(&units[i]) && !atomic_exchange(&is_refused_once, true))
            outcomes[i] = (stet_outcome){ .result = STET_ECONFLICT };
        else
            err = lent->commit(s, &units[i], 1, &outcomes[i]);
    return err;
}

/* So long that it is recorded by itself. */
static int
body_slow_failure(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("slow");
    for (int i = 0; i < 25; i++)
        fixture_breathe();
    return stet_attempt_fail(a, STET_EPERMANENT, "never");
}

static int
undo_quick(stet_attempt *a, stet_bytes result)
{
    (void)a;
    (void)result;
    effect("undone");
    return STET_OK;
}

static int
h_regrets(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step(ctx, NULL, "done", body_effect, "done", STET_STEP(.undo = undo_quick)));
    return stet_step(ctx, NULL, "slow", body_slow_failure, NULL, NULL);
}

TEST(I9_B11_a_step_whose_failure_is_recorded_is_not_at_risk_because_its_rollback_is_refused)
{
    static const stet_handler handlers[] = { { "h", h_regrets, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->engine = fixture_open(f);
    lent = f->engine->store->ops;
    damage_ops(f->engine)->commit = commit_but_a_rollback;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.h", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK(atomic_load(&is_refused_once));
    CHECK_INT(effects("slow"), 1);
    CHECK_INT(effects("undone"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", NULL), 0);
    fixture_end(f);
}
