/* Compensation (B11). tsan: yes */
#include "engine/engine.h"
#include "damage.h"

/* ---- what the outside does ------------------------------------------------------------------- */

static atomic_int  refuse_undo; /* code the undo of "charge" gives, or 0 */
static atomic_int  refuse_times = 1000000;
static atomic_int  attempts = 3, executions;
static gate        undo_door = GATE_INIT;
static atomic_bool has_door, late_refusal, is_heir;
static atomic_int  early; /* code that h_auto returns behind its first step, or 0 */

static int
b_do(stet_attempt *a, void *what)
{
    effect("do %s", (const char *)what);
    return stet_attempt_return(a, stet_text(what));
}

static int
b_fail(stet_attempt *a, void *code)
{
    effect("fail");
    return stet_attempt_fail(a, *(int *)code, "out of stock");
}

static int
u_undo(stet_attempt *a, stet_bytes result)
{
    CHECK(stet_attempt_arg(a) != NULL);
    CHECK(fixture_is(result, stet_attempt_arg(a)));
    if (atomic_load(&refuse_undo) != 0 && fixture_is(result, "charge") &&
        atomic_fetch_sub(&refuse_times, 1) > 0) {
        effect("refuse %.*s", (int)result.len, (const char *)result.data);
        return stet_attempt_fail(a, atomic_load(&refuse_undo), "the bank is closed");
    }
    if (atomic_load(&has_door) && fixture_is(result, "charge"))
        gate_pass(&undo_door);
    if (atomic_load(&late_refusal)) {
        effect("late %.*s", (int)result.len, (const char *)result.data);
        return stet_attempt_fail(a, STET_EPERMANENT, "the bank is closed");
    }
    effect("undo %.*s", (int)result.len, (const char *)result.data);
    return STET_OK;
}

/* Of whatever result. */
static int
u_whatever(stet_attempt *a, stet_bytes result)
{
    (void)a;
    effect("undo %.*s", (int)result.len, (const char *)result.data);
    return STET_OK;
}

static int permanent = STET_EPERMANENT, passing = STET_EBUSY;

static int
done(stet_ctx *ctx, const char *what)
{
    return stet_step(
        ctx, NULL, what, b_do, (void *)(uintptr_t)what,
        STET_STEP(.attempts = atomic_load(&attempts), .first_ms = 1, .max_ms = 1, .undo = u_undo));
}

/* ---- handlers -------------------------------------------------------------------------------- */

/* Three steps (the second without an undo), then one that fails, and a rollback. */
static int
h_saga(stet_ctx *ctx, stet_bytes input)
{
    int rc;

    STET_TRY(done(ctx, "reserve"));
    STET_TRY(stet_step(ctx, NULL, "mail", b_do, (void *)(uintptr_t) "mail", NULL));
    STET_TRY(done(ctx, "charge"));
    STET_TRY(done(ctx, "pack"));
    if ((rc = stet_step(ctx, NULL, "ship", b_fail, &permanent, NULL)) != STET_ESTEP)
        return rc;
    STET_TRY(stet_rollback(ctx));
    if (fixture_is(input, "complete"))
        return stet_return(ctx, stet_text("rolled back"));
    return stet_fail(ctx, STET_EPERMANENT, "nothing was shipped");
}

/* The same, asked for once. */
static int
h_auto(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(done(ctx, "reserve"));
    if (atomic_load(&early) != 0) {
        effect("early");
        return atomic_load(&early) == STET_EBUSY ? atomic_exchange(&early, 0) : atomic_load(&early);
    }
    STET_TRY(done(ctx, "charge"));
    if (fixture_is(input, "wait"))
        STET_TRY(stet_sleep(ctx, "long", "30d"));
    if (fixture_is(input, "fine"))
        return stet_return(ctx, stet_text("shipped"));
    if (fixture_is(input, "own"))
        return stet_fail(ctx, STET_EBUSY, "not today");
    return stet_step(ctx, NULL, "ship", b_fail,
                     fixture_is(input, "passing") ? &passing : &permanent, NULL);
}

/* Fails without a record behind its steps. */
static int
h_heir(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(done(ctx, "reserve"));
    if (atomic_load(&early) != 0) {
        if (fixture_is(input, "skipped"))
            STET_TRY(done(ctx, "mail"));
        effect("early");
        return atomic_load(&early) == STET_EBUSY ? atomic_exchange(&early, 0) : atomic_load(&early);
    }
    STET_TRY(done(ctx, "charge"));
    if (!atomic_load(&is_heir))
        STET_TRY(stet_sleep(ctx, "long", "30d"));
    return stet_fail(ctx, STET_EPERMANENT, "no");
}

/* Fails passingly behind its steps, and in its second execution before it comes to them all. */
static int
h_hasty(stet_ctx *ctx, stet_bytes input)
{
    int at = atomic_fetch_add(&executions, 1);

    STET_TRY(stet_rollback_on_failure(ctx, true));
    if (at == 1 && (fixture_is(input, "first") || fixture_is(input, "own")))
        return STET_ENOMEM;
    STET_TRY(done(ctx, "reserve"));
    if (at == 1)
        return STET_ENOMEM;
    if (fixture_is(input, "own"))
        STET_TRY(stet_rollback(ctx));
    STET_TRY(done(ctx, "charge"));
    if (fixture_is(input, "heir") && !atomic_load(&is_heir))
        STET_TRY(stet_sleep(ctx, "long", "30d"));
    return stet_fail(ctx, STET_EBUSY, "not today");
}

/* Its second execution, while its rollback is under way, comes to nothing. */
static int
h_interrupted(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    if (atomic_fetch_add(&executions, 1) == 1)
        return STET_ENOMEM;
    STET_TRY(done(ctx, "reserve"));
    STET_TRY(done(ctx, "charge"));
    STET_TRY(stet_rollback(ctx));
    return stet_fail(ctx, STET_EPERMANENT, "nothing was shipped");
}

/* By its options; two undos behind futures. */
static int
h_futures(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];

    (void)input;
    STET_TRY(done(ctx, "reserve"));
    STET_TRY(stet_step_start(ctx, &both[0], "left", b_do, (void *)(uintptr_t) "left",
                             STET_STEP(.undo = u_undo)));
    STET_TRY(stet_await(ctx, NULL, both[0]));
    STET_TRY(stet_step_start(ctx, &both[1], "right", b_do, (void *)(uintptr_t) "right",
                             STET_STEP(.undo = u_undo)));
    STET_TRY(stet_await(ctx, NULL, both[1]));
    return stet_fail(ctx, STET_EPERMANENT, "no");
}

/* Waits for what is there already, which leaves no record; then it fails. */
static int
h_waits(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];
    size_t       first;

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step_start(ctx, &both[0], "left", b_do, (void *)(uintptr_t) "left", NULL));
    STET_TRY(stet_step_start(ctx, &both[1], "right", b_do, (void *)(uintptr_t) "right", NULL));
    STET_TRY(stet_await_all(ctx, both, 2));
    STET_TRY(stet_await_any(ctx, &first, both, 2, NULL));
    STET_TRY(done(ctx, "charge"));
    STET_TRY(stet_await(ctx, NULL, both[first]));
    return stet_fail(ctx, STET_EPERMANENT, "no");
}

static atomic_int slow_tries;

static int
b_slow(stet_attempt *a, void *what)
{
    if (atomic_fetch_add(&slow_tries, 1) == 0)
        return stet_attempt_fail(a, STET_EBUSY, "not yet");
    return b_do(a, what);
}

/* A step beside its rollback fails once, and is done behind it. */
static int
h_beside(stet_ctx *ctx, stet_bytes input)
{
    stet_future *slow;

    STET_TRY(stet_step_start(ctx, &slow, "slow", b_slow, (void *)(uintptr_t) "slow",
                             STET_STEP(.attempts = 3, .first_ms = 1, .undo = u_undo)));
    STET_TRY(done(ctx, "reserve"));
    STET_TRY(stet_rollback(ctx));
    STET_TRY(stet_await(ctx, NULL, slow));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    if (fixture_is(input, "again"))
        STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, input);
}

/* Cleans up when it is cancelled. */
static int
h_careful(stet_ctx *ctx, stet_bytes input)
{
    int rc;

    (void)input;
    STET_TRY(done(ctx, "reserve"));
    STET_TRY(done(ctx, "charge"));
    if ((rc = stet_sleep(ctx, "long", "30d")) != STET_ECANCELLED)
        return rc;
    STET_TRY(stet_rollback(ctx));
    return STET_ECANCELLED;
}

static int
h_parent(stet_ctx *ctx, stet_bytes input)
{
    int rc = stet_call(ctx, NULL, "t.saga", input, NULL);

    if (rc != STET_ECHILD)
        return rc;
    return stet_return(ctx, stet_text(stet_failure_get(ctx)->text));
}

/* The same behind a step. */
static int
h_behind(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(done(ctx, "before"));
    return h_parent(ctx, input);
}

static int
c_never(void *arg, const stet_failed *failed, int64_t *not_before_ms)
{
    (void)arg;
    (void)failed;
    (void)not_before_ms;
    return STET_EPERMANENT;
}

static const stet_handler_options gives_up = { .rollback = true, .classify = c_never };
static const stet_handler_options rolls_back = { .rollback = true };
static const stet_handler         handlers[] = { { "saga", h_saga, NULL },
                                                 { "auto", h_auto, NULL },
                                                 { "heir", h_heir, NULL },
                                                 { "hasty", h_hasty, NULL },
                                                 { "interrupted", h_interrupted, NULL },
                                                 { "futures", h_futures, &rolls_back },
                                                 { "careful", h_careful, NULL },
                                                 { "gives up", h_auto, &gives_up },
                                                 { "waits", h_waits, NULL },
                                                 { "beside", h_beside, NULL },
                                                 { "parent", h_parent, NULL },
                                                 { "caller", h_behind, NULL },
                                                 { 0 } };

/* In which order they were told: "a b c" of all lines that begin with "undo ". */
static const char *
undone(void)
{
    static char out[256];
    char       *text = effects_text(), *save = NULL;

    out[0] = '\0';
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, "undo ", 5) == 0)
            (void)snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s",
                           out[0] != '\0' ? " " : "", line + 5);
    free(text);
    return out;
}

/* ---- asked for by the handler ---------------------------------------------------------------- */

TEST(B11_undos_run_in_reverse_each_once_with_the_recorded_result)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_STR(result.error, "nothing was shipped");
    stet_result_free(&result);
    CHECK_STR(undone(), "pack charge reserve");
    CHECK_INT(fixture_facts(f->engine, &run, "step", "rollback:charge#1"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "rollback", NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "rolled back", NULL), 1);
    fixture_end(f);
}

TEST(B11_a_run_may_complete_behind_its_rollback)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "complete", NULL);
    EXPECT_RESULT(f->engine, &run, "rolled back");
    CHECK_STR(undone(), "pack charge reserve");
    fixture_end(f);
}

TEST(B11_a_rollback_that_is_interrupted_goes_on_with_the_next_undo)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY); /* it waits between attempts */
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "complete", NULL);
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "rolled back");
    CHECK_STR(undone(), "pack charge reserve");
    fixture_end(f);
}

TEST(B11_an_undo_is_retried)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&refuse_times, 2);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "complete", NULL);
    EXPECT_RESULT(f->engine, &run, "rolled back");
    CHECK_INT(effects("refuse charge"), 2);
    CHECK_STR(undone(), "pack charge reserve");
    fixture_end(f);
}

TEST(B11_while_it_lasts_the_run_is_compensating)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&has_door, true);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "complete", NULL);
    gate_await(&undo_door, 1);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_COMPENSATING);
    CHECK_CODE(stet_result_get(f->engine, NULL, &run), STET_EOPEN);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_COMPENSATING);
    gate_open(&undo_door);
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_STR(undone(), "pack charge reserve");
    fixture_end(f);
}

/* What a run is told to wait for is what it waits for now. */
TEST(B11_C8_a_rollback_that_is_tried_again_does_not_show_why_it_failed_before)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    atomic_store(&refuse_times, 1);
    atomic_store(&has_door, true);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "complete", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    CHECK_HAS(fixture_look(f->engine, &run).reason, "undo");
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    gate_await(&undo_door, 1);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_COMPENSATING);
    CHECK_STR(fixture_look(f->engine, &run).reason, "");
    gate_open(&undo_door);
    AWAIT(stet_status_is_terminal(fixture_look(f->engine, &run).status));
    fixture_end(f);
}

TEST(B11_after_a_cancel_a_rollback_still_works)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.careful", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "test", "enough"));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_STR(undone(), "charge reserve");
    fixture_end(f);
}

/* A cancel lifts the pause; nobody is there to take it in. */
TEST(B11_C8_I2_a_rollback_that_is_paused_and_then_cancelled_is_sound)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&has_door, true);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", NULL);
    gate_await(&undo_door, 1);
    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    gate_open(&undo_door);
    fixture_await_status(f->engine, &run, STET_STATUS_PAUSED);
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    CHECK_OK(stet_cancel(f->engine, &run, "test", "enough"));
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_COMPENSATING);
    CHECK_INT(fixture_sound(f->engine), 1);
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_STR(undone(), "pack charge reserve");
    fixture_end(f);
}

/* ---- an undo that fails ---------------------------------------------------------------------- */

TEST(B11_a_failing_undo_makes_the_run_compensation_failed_and_a_retry_goes_on_from_there)
{
    fixture    *f = fixture_begin();
    stet_run_id run, parent;
    stet_result result;

    atomic_store(&refuse_undo, STET_EBUSY);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "complete", NULL);
    parent = fixture_start(f->engine, "t.parent", "complete", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.status, STET_STATUS_COMPENSATION_FAILED);
    CHECK_INT(result.code, STET_ECOMPENSATION);
    CHECK_HAS(result.error, "step charge#1");
    CHECK_HAS(result.error, "the bank is closed");
    stet_result_free(&result);
    EXPECT_RESULT(f->engine, &parent, "the undo of step charge#1 failed: the bank is closed");
    CHECK_INT(effects("refuse charge"), 6); /* three attempts each */
    CHECK_HAS(fixture_why(f->engine, &run).text, "charge#1");
    CHECK_CODE(stet_cancel(f->engine, &run, NULL, NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), run.text);
    CHECK_CODE(stet_unstick(f->engine, &run, NULL), STET_ESTATE);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_rollback_retry(f->engine, &run, "test", "the bank is open on Mondays only"));
    AWAIT(effects("refuse charge") == 9);
    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    CHECK_CODE(stet_cancel(f->engine, &run, NULL, NULL), STET_ESTATE);
    atomic_store(&refuse_undo, 0);
    CHECK_OK(stet_rollback_retry(f->engine, &run, "test", NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_CODE(stet_result_get(f->engine, &result, &run), STET_ERUN);
    CHECK_INT(result.code, STET_ECOMPENSATION);
    CHECK_HAS(result.error, "step charge#1");
    stet_result_free(&result);
    CHECK_INT(effects("undo charge"), 1);
    CHECK_INT(effects("undo reserve"), 1);
    CHECK_CODE(stet_rollback_retry(f->engine, &run, NULL, NULL), STET_ESTATE);
    fixture_end(f);
}

TEST(B11_an_undo_that_says_never_is_not_tried_again)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_INT(effects("refuse charge"), 1);
    CHECK_STR(undone(), "pack");
    CHECK_INT(fixture_sound(f->engine), 1);
    fixture_end(f);
}

static const stet_store_ops *taking;
static atomic_int            refused_ends;

static bool
says_rollback_failed(const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        stet_bytes in = unit->ops[i].data;
        stet__fact fact;

        while (unit->ops[i].kind == STET_OP_FACTS && stet__fact_decode(&fact, &in) == STET_OK)
            if (fact.kind == STET__FACT_COMPENSATION_FAILED)
                return true;
    }
    return false;
}

/* The first record of a rollback that failed is not taken; those that came with it are. */
static int
refuses_failed(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    for (size_t i = 0; i < n; i++) {
        if (!says_rollback_failed(&units[i]) || atomic_fetch_add(&refused_ends, 1) != 0)
            continue;
        outcomes[i] = (stet_outcome){ .result = STET_EFULL, .next_due_ms = STET_NEVER };
        if (i > 0)
            STET_TRY(taking->commit(s, units, i, outcomes));
        return i + 1 < n ? taking->commit(s, units + i + 1, n - i - 1, outcomes + i + 1) : STET_OK;
    }
    return taking->commit(s, units, n, outcomes);
}

/* The run is given back, its rollback goes on and may come to another end: then that one is the
 * answer. */
TEST(B11_nobody_is_told_of_a_failed_rollback_that_could_not_be_recorded)
{
    static stet_store_ops refusing;
    fixture              *f = fixture_begin();
    stet_run_id           run;
    stet_result           result;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    atomic_store(&refuse_times, 1);
    f->engine = fixture_open(f);
    taking = f->engine->store->ops;
    refusing = *taking;
    refusing.commit = refuses_failed;
    f->engine->store->ops = &refusing;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.saga", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(atomic_load(&refused_ends), 1);
    CHECK_INT(result.status, STET_STATUS_FAILED);
    CHECK_INT(result.code, STET_EPERMANENT);
    stet_result_free(&result);
    CHECK_STR(undone(), "pack charge reserve");
    fixture_end(f);
}

static atomic_int stumbles;

/* Fails for now on its way to the rollback it asks for itself, so often. */
static int
h_stumbles(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(done(ctx, "charge"));
    if (atomic_load(&stumbles) > 0 && atomic_fetch_sub(&stumbles, 1) > 0)
        return stet_fail(ctx, STET_EBUSY, "not now");
    STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, stet_text("rolled back"));
}

/* What waiters were told of it, and a failure that comes later must not replace. */
TEST(B11_a_run_whose_rollback_failed_and_was_done_later_ends_as_it_was_told)
{
    static const stet_handler_options patient = { .retry = { 5, 1, 1, 100, 0 } };
    static const stet_handler         stumbling[] = { { "stumbles", h_stumbles, &patient }, { 0 } };
    fixture                          *f = fixture_begin();
    stet_run_id                       run;
    stet_result                       told, result;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    atomic_store(&refuse_times, 1);
    fixture_up_with(f, stumbling);
    run = fixture_start(f->engine, "t.stumbles", "", NULL);
    told = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(told.code, STET_ECOMPENSATION);
    atomic_store(&stumbles, 1);
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_FAILED);
    CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 1);
    fixture_down(f); /* which remembers what it told */
    fixture_up_with(f, stumbling);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, told.code);
    CHECK_STR(result.error, told.error);
    stet_result_free(&told);
    stet_result_free(&result);
    CHECK_STR(undone(), "charge");
    fixture_end(f);
}

static _Atomic(const char *) refused_by; /* the step whose undo fails */

static int
u_refused(stet_attempt *a, stet_bytes result)
{
    if (fixture_is(result, atomic_load(&refused_by)))
        return stet_attempt_fail(a, STET_EPERMANENT, "no %.*s", (int)result.len,
                                 (const char *)result.data);
    effect("undo %.*s", (int)result.len, (const char *)result.data);
    return STET_OK;
}

static int
h_refused(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step(ctx, NULL, "one", b_do, "one", STET_STEP(.undo = u_refused)));
    STET_TRY(stet_step(ctx, NULL, "two", b_do, "two", STET_STEP(.undo = u_refused)));
    return stet_fail(ctx, STET_EPERMANENT, "sold out");
}

/* By who has seen it, and by who begins with handlers like these and remembers nothing. */
static void
expect_first_refusal(fixture *f, const stet_run_id *run, const stet_handler *handlers_of)
{
    for (int i = 0; i < 2; i++) {
        stet_result result = EXPECT_END(f->engine, run, STET_ERUN);

        CHECK_INT(result.code, STET_ECOMPENSATION);
        CHECK_STR(result.error, "the undo of step two#1 failed: no two");
        stet_result_free(&result);
        if (i == 0) {
            fixture_down(f);
            fixture_up_with(f, handlers_of);
        }
    }
}

/* What waiters were told stands, also when another undo fails in its next try, and when it is stuck
 * on the way there. */
TEST(B11_a_run_whose_rollback_failed_anew_with_another_undo_is_answered_as_before)
{
    static const stet_handler refused[] = { { "refused", h_refused, NULL }, { 0 } };
    static const stet_handler other[] = { { "refused", h_stumbles, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    atomic_store(&refused_by, "two");
    fixture_up_with(f, refused);
    run = fixture_start(f->engine, "t.refused", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    expect_first_refusal(f, &run, refused);
    atomic_store(&refused_by, "one");
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    AWAIT(fixture_facts(f->engine, &run, "compensation failed", NULL) == 2);
    CHECK_HAS(fixture_why(f->engine, &run).text, "no one");
    expect_first_refusal(f, &run, other);
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    expect_first_refusal(f, &run, refused); /* who comes lets it try again */
    AWAIT(fixture_facts(f->engine, &run, "compensation failed", NULL) == 3);
    atomic_store(&refused_by, "none");
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_FAILED);
    expect_first_refusal(f, &run, refused);
    CHECK_STR(undone(), "two one");
    fixture_end(f);
}

/* The same, and behind its rollback it waits. */
static int
h_stumbles_and_waits(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes word;

    STET_TRY(h_stumbles(ctx, input));
    return stet_await_signal(ctx, &word, "go", NULL);
}

/* Told how its rollback failed, tried again, and undone: it waits behind that. */
static stet_run_id
told_waiting(fixture *f, const stet_handler *handlers_of, stet_result *told)
{
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    atomic_store(&refuse_times, 1);
    fixture_up_with(f, handlers_of);
    run = fixture_start(f->engine, "t.stumbles", "", STET_START(.timeout = "1h"));
    *told = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(told->code, STET_ECOMPENSATION);
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_STR(undone(), "charge");
    return run;
}

/* Read where nothing of it is remembered. */
static void
expect_as_told(fixture *f, const stet_run_id *run, stet_result *told)
{
    stet_result result;

    if (f->engine != NULL) {
        fixture_await_status(f->engine, run, STET_STATUS_FAILED);
        fixture_down(f);
    }
    fixture_up_with(f, handlers);
    fixture_await_status(f->engine, run, STET_STATUS_FAILED);
    result = EXPECT_END(f->engine, run, STET_ERUN);
    CHECK_INT(result.code, told->code);
    CHECK_STR(result.error, told->error);
    CHECK_INT((int)fixture_sound(f->engine), 1);
    stet_result_free(told);
    stet_result_free(&result);
    fixture_end(f);
}

/* Its next attempt would come behind its deadline, or there is none left. */
static void
told_stumbles(const stet_handler_options *options)
{
    stet_handler handlers_of[] = { { "stumbles", h_stumbles_and_waits, options }, { 0 } };
    fixture     *f = fixture_begin();
    stet_result  told;
    stet_run_id  run = told_waiting(f, handlers_of, &told);

    fixture_down(f); /* so that it is executed from its beginning */
    fixture_up_with(f, handlers_of);
    atomic_store(&stumbles, 1);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    if (options->retry.attempts > 1) { /* no deadline ends it: it waits for its time */
        fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
        CHECK_OK(stet_run_fail(f->engine, &run, "me", "that will do"));
    }
    expect_as_told(f, &run, &told);
}

TEST(B11_C5_a_run_that_told_that_its_rollback_failed_does_not_expire)
{
    static const stet_handler_options slow = { .retry = { 5, 7200000, 7200000, 100, 0 } };

    told_stumbles(&slow);
}

TEST(B11_a_run_that_told_that_its_rollback_failed_and_has_no_attempt_left_ends_as_it_was_told)
{
    static const stet_handler_options once = { .retry = { 1, 1, 1, 100, 0 } };

    told_stumbles(&once);
}

/* Who fails it by hand is on record, and is not how it failed. */
TEST(B11_C8_a_run_that_told_that_its_rollback_failed_and_is_failed_by_hand_ends_as_it_was_told)
{
    fixture    *f = fixture_begin();
    stet_result told;
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    atomic_store(&refuse_times, 1);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", NULL);
    told = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(told.code, STET_ECOMPENSATION);
    CHECK_OK(stet_run_fail(f->engine, &run, "me", "that will do"));
    expect_as_told(f, &run, &told);
}

/* What was told stands, so that stop means nothing, and lifts no pause. */
TEST(B11_C8_I2_a_run_that_told_how_its_rollback_failed_is_sound_paused_behind_a_stop)
{
    static const stet_handler_options once = { .retry = { 1, 1, 1, 100, 0 } };
    static const stet_handler waiting[] = { { "stumbles", h_stumbles_and_waits, &once }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_result               told;
    stet_run_id               run = told_waiting(f, waiting, &told);

    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    damage_stop_called(f->engine, &run);
    CHECK_INT((int)fixture_sound(f->engine), 1);
    CHECK_OK(stet_run_pause(f->engine, &run, "me", "wait"));
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_PAUSED);
    CHECK_INT((int)fixture_sound(f->engine), 1);
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    fixture_up_with(f, waiting);
    CHECK_OK(stet_run_resume(f->engine, &run, "me", NULL));
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    expect_as_told(f, &run, &told);
}

TEST(B11_A5_who_waits_is_told_of_the_rollback_that_failed_and_not_of_a_stop_behind_it)
{
    fixture    *f = fixture_begin();
    stet_result told, again;
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    atomic_store(&refuse_times, 1);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", NULL);
    told = EXPECT_END(f->engine, &run, STET_ERUN);
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    CHECK_OK(stet_rollback_retry(f->engine, &run, "me", NULL));
    damage_stop_called(f->engine, &run);
    again = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_STR(again.error, told.error);
    stet_result_free(&again);
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    expect_as_told(f, &run, &told);
}

TEST(B11_nothing_wakes_a_run_whose_rollback_failed)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", STET_START(.timeout = "1s"));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_signal(f->engine, &run, "hello", stet_text(""), NULL));
    AWAIT(stet_engine_now_ms(f->engine) > fixture_look(f->engine, &run).created_ms + 1100);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_COMPENSATION_FAILED);
    CHECK_INT(effects("refuse charge"), 1);
    fixture_end(f);
}

/* Whoever was woken would have been executed before a run that was started behind it. */
static void
expect_asleep(fixture *f, const stet_run_id *run, int tries)
{
    stet_run_id later = fixture_start(f->engine, "t.auto", "fine", NULL);

    EXPECT_RESULT(f->engine, &later, "shipped");
    CHECK_INT(fixture_look(f->engine, run).status, STET_STATUS_COMPENSATION_FAILED);
    CHECK_INT(effects("refuse charge"), tries);
    CHECK(fixture_sound(f->engine) > 0);
}

TEST(B11_C8_a_rollback_that_failed_is_not_tried_again_by_what_an_operator_does_to_other_steps)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&refuse_undo, STET_EPERMANENT);
    f->options.concurrency = 1;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_run_edit(f->engine, &run, "reserve", stet_text("a table"), "me", NULL));
    expect_asleep(f, &run, 1);
    CHECK_CODE(stet_run_skip(f->engine, &run, "nosuch", stet_text(""), "me", NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "rollback:charge#1");
    expect_asleep(f, &run, 1);
    CHECK_OK(stet_run_skip(f->engine, &run, "rollback:reserve#1", stet_text(""), "me", NULL));
    expect_asleep(f, &run, 1);
    fixture_down(f);
    fixture_up_with(f, handlers);
    expect_asleep(f, &run, 1);
    CHECK_OK(stet_rollback_retry(f->engine, &run, "me", NULL));
    AWAIT(effects("refuse charge") == 2);
    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    CHECK_OK(stet_run_edit(f->engine, &run, "charge", stet_text("a card"), "me", NULL));
    expect_asleep(f, &run, 2);
    CHECK_OK(stet_run_skip(f->engine, &run, "rollback:charge#1", stet_text(""), "me", NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_INT(effects("refuse charge"), 2);
    CHECK_STR(undone(), "pack"); /* what was skipped was not undone */
    fixture_end(f);
}

static gate                  after_look = GATE_INIT;
static const stet_store_ops *looking;
static atomic_bool           is_slow;

/* The inbox was read, and the answer takes its time. */
static int
slow_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    int err = looking->inbox(s, run, from, limit, fn, arg);

    if (atomic_exchange(&is_slow, false))
        gate_pass(&after_look);
    return err;
}

typedef struct late_cancel {
    stet_engine *e;
    stet_run_id  run;
} late_cancel;

static void *
cancel_late(void *arg)
{
    late_cancel *c = arg;

    CHECK_CODE(stet_cancel(c->e, &c->run, NULL, NULL), STET_ESTATE);
    return NULL;
}

TEST(B11_a_cancel_that_comes_while_an_undo_fails_does_not_change_what_was_answered)
{
    fixture       *f = fixture_begin();
    stet_store_ops slow;
    late_cancel    c;
    pthread_t      thread;

    f->options.roles = STET_ROLE_CLIENT;
    c.e = fixture_open(f);
    looking = c.e->store->ops;
    slow = *looking;
    slow.inbox = slow_inbox;
    c.e->store->ops = &slow;
    f->options.roles = 0;
    atomic_store(&has_door, true);
    fixture_up_with(f, handlers);
    c.run = fixture_start(f->engine, "t.saga", "", NULL);
    gate_await(&undo_door, 1);
    atomic_store(&is_slow, true);
    CHECK_INT(pthread_create(&thread, NULL, cancel_late, &c), 0);
    gate_await(&after_look, 1);
    atomic_store(&late_refusal, true);
    gate_open(&undo_door);
    EXPECT_ANSWER(f->engine, &c.run, STET_ERUN);
    gate_open(&after_look);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_CODE(stet_result_get(f->engine, NULL, &c.run), STET_ERUN);
    CHECK_INT(fixture_look(f->engine, &c.run).status, STET_STATUS_COMPENSATION_FAILED);
    c.e->store->ops = looking;
    stet_close(c.e);
    fixture_end(f);
}

/* Nothing came of its second step, it says, and all before is undone. */
static int
h_mistaken(stet_ctx *ctx, stet_bytes input)
{
    int rc;

    (void)input;
    STET_TRY(done(ctx, "reserve"));
    rc = stet_step(ctx, NULL, "charge", b_fail, &permanent, STET_STEP(.undo = u_whatever));
    if (rc != STET_OK && rc != STET_ESTEP)
        return rc;
    STET_TRY(stet_rollback(ctx));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    return stet_return(ctx, stet_text("gone"));
}

/* Found by the simulator. An operator knows that it was done all the same. */
TEST(B11_C8_a_failure_that_is_replaced_behind_a_rollback_is_undone)
{
    static const stet_handler mistaken[] = { { "mistaken", h_mistaken, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, mistaken);
    run = fixture_start(f->engine, "t.mistaken", "", NULL);
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "go") == 1);
    CHECK_STR(undone(), "reserve");
    CHECK_OK(stet_run_edit(f->engine, &run, "charge", stet_text("paid"), "me", "it was"));
    AWAIT(effects("undo paid") == 1);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &run, "gone");
    CHECK_INT(effects("undo paid"), 1);
    CHECK_STR(undone(), "reserve paid");
    CHECK_INT(effects("fail"), 1);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

static stet_engine *overtaking;
static stet_run_id  overtaken;

/* The journal was read; before the inbox is, everybody is told, and a caller that does not know
 * stops it. */
static int
inbox_overtaken(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                void *arg)
{
    if (atomic_exchange(&is_slow, false)) {
        gate_open(&undo_door);
        EXPECT_ANSWER(overtaking, &overtaken, STET_ERUN);
        damage_stop_called(overtaking, &overtaken);
    }
    return looking->inbox(s, run, from, limit, fn, arg);
}

/* Found by the simulator. */
TEST(B11_C4_who_looks_while_a_rollback_fails_is_not_told_of_a_stop_behind_that)
{
    fixture     *f = fixture_begin();
    stet_engine *client;

    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    looking = client->store->ops;
    damage_ops(client)->inbox = inbox_overtaken;
    f->options.roles = 0;
    atomic_store(&has_door, true);
    fixture_up_with(f, handlers);
    overtaking = f->engine;
    overtaken = fixture_start(f->engine, "t.saga", "", NULL);
    gate_await(&undo_door, 1);
    atomic_store(&late_refusal, true);
    atomic_store(&is_slow, true);
    CHECK_CODE(stet_result_get(client, NULL, &overtaken), STET_EOPEN);
    CHECK(!atomic_load(&is_slow));
    /* Also while it is awake for nothing. */
    CHECK_CODE(stet_result_get(client, NULL, &overtaken), STET_ERUN);
    stet_close(client);
    fixture_end(f);
}

static int
on_saga(void *arg, const stet_run_info *info)
{
    (void)snprintf(((stet_run_id *)arg)->text, sizeof((stet_run_id *)arg)->text, "%s", info->id);
    return STET_OK;
}

/* The rewind waits until the one that was called has told how it ended; then it is forgotten. */
TEST(B11_a_caller_that_is_rewound_changes_nothing_of_a_rollback_that_failed)
{
    fixture    *f = fixture_begin();
    stet_run_id caller, saga;

    atomic_store(&has_door, true);
    fixture_up_with(f, handlers);
    caller = fixture_start(f->engine, "t.caller", "", NULL);
    gate_await(&undo_door, 1);
    CHECK_OK(stet_run_list(f->engine, STET_FILTER(.handler = "t.saga"), on_saga, &saga));
    CHECK_OK(stet_handler_pause(f->engine, "t.caller", "test", NULL));
    CHECK_OK(stet_run_rewind(f->engine, &caller, "before", "test", "once more"));
    atomic_store(&late_refusal, true);
    gate_open(&undo_door);
    EXPECT_ANSWER(f->engine, &saga, STET_ERUN);
    CHECK_OK(stet_handler_resume(f->engine, "t.caller", "test", NULL));
    EXPECT_RESULT(f->engine, &caller, "the undo of step pack#1 failed: the bank is closed");
    CHECK_INT(effects("do before"), 2);
    CHECK_INT(effects("late pack"), 1);   /* of the second one it called */
    CHECK_INT(effects("late charge"), 1); /* of the first one, which nobody woke */
    CHECK_CODE(stet_result_get(f->engine, NULL, &saga), STET_ERUN);
    CHECK_INT(fixture_look(f->engine, &saga).status, STET_STATUS_COMPENSATION_FAILED);
    fixture_end(f);
}

/* ---- because it failed ----------------------------------------------------------------------- */

TEST(B11_a_run_can_ask_for_a_rollback_on_any_failure)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.auto", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ESTEP);
    CHECK_STR(result.error, "out of stock");
    CHECK_STR(result.origin, "step ship#1");
    stet_result_free(&result);
    CHECK_STR(undone(), "charge reserve");
    run = fixture_start(f->engine, "t.auto", "fine", NULL);
    EXPECT_RESULT(f->engine, &run, "shipped");
    CHECK_STR(undone(), "charge reserve");
    fixture_end(f);
}

TEST(B11_attempts_are_used_up_before_anything_is_undone)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.auto", "passing",
                        STET_START(.retry = { .attempts = 3, .first_ms = 1, .max_ms = 1 }));
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_EATTEMPTS);
    CHECK_INT(result.cause, STET_EBUSY);
    stet_result_free(&result);
    CHECK_INT(effects("fail"), 3);
    CHECK_STR(undone(), "charge reserve");
    fixture_end(f);
}

/* No call had returned it to the handler: the run fails, and was not undone. */
TEST(B11_a_run_whose_handler_returns_what_is_no_outcome_is_rolled_back_too)
{
    static const int codes[] = { 7, STET_SUSPENDED, STET_END };
    fixture         *f = fixture_begin();

    fixture_up_with(f, handlers);
    for (int i = 0; i < 3; i++) {
        stet_run_id run;
        stet_result result;

        atomic_store(&early, codes[i]);
        run = fixture_start(f->engine, "t.auto", "", NULL);
        result = EXPECT_END(f->engine, &run, STET_ERUN);
        CHECK_INT(result.code, STET_EHANDLER);
        stet_result_free(&result);
        CHECK_INT(effects("do reserve"), i + 1);
        CHECK_INT(effects("undo reserve"), i + 1);
    }
    fixture_end(f);
}

TEST(B11_a_cancelled_run_is_rolled_back_too)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.auto", "wait", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_STR(undone(), "charge reserve");
    fixture_end(f);
}

TEST(B11_a_rollback_because_of_a_failure_is_finished_by_the_next_worker_without_new_effects)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.auto", "passing", STET_START(.retry = { .attempts = 1 }));
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, STET_EPERMANENT);
    fixture_up_with(f, handlers);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ECOMPENSATION);
    stet_result_free(&result);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_INT(effects("fail"),
              1); /* the step that failed is not on record, and not executed again */
    CHECK_INT(effects("do charge"), 1);
    CHECK_STR(undone(), "charge reserve");
    fixture_end(f);
}

/* What it does not come to cannot be undone, and what was done before that must not be undone
 * first. Found by the simulator. */
static void
check_early(int code)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.auto", "", NULL);
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    atomic_store(&early, code);
    fixture_up_with(f, handlers);
    effects_await("early", 1);
    if (code != STET_EBUSY) {
        fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
        CHECK_HAS(fixture_look(f->engine, &run).error, "recorded step charge#1");
        CHECK_STR(undone(), "");
        fixture_down(f);
        atomic_store(&early, 0);
        fixture_up_with(f, handlers);
    }
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_STR(undone(), "charge reserve");
    CHECK_INT(effects("do charge"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 0);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

TEST(B11_a_rollback_that_is_taken_up_by_a_handler_that_fails_passingly_before_it_knows_all_waits)
{
    check_early(STET_EBUSY);
}

TEST(B11_a_rollback_that_is_taken_up_by_a_handler_that_does_not_come_to_all_is_stuck)
{
    check_early(STET_EPERMANENT);
}

TEST(B11_a_rollback_that_is_taken_up_by_a_handler_that_returns_no_code_before_that_is_stuck)
{
    check_early(7);
}

/* Not by a step: the handler itself says that it may pass. */
static void
check_own_code(const char *handler, int n)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, handler, "own",
                        STET_START(.retry = { .attempts = n, .first_ms = 1, .max_ms = 1 }));
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, n == 1 ? STET_EATTEMPTS : STET_EBUSY);
    stet_result_free(&result);
    CHECK_STR(undone(), "charge reserve");
    CHECK_INT(fixture_facts(f->engine, &run, "released", NULL), 0);
    fixture_end(f);
}

/* What it inherited its handler need not ask for, and is not on record as its own: yet it is
 * undone only if the handler comes to it. Found by the simulator. */
static void
check_early_heir(int code, const char *input)
{
    fixture    *f = fixture_begin();
    stet_run_id run, heir;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.heir", input, NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL)); /* nothing is undone */
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    atomic_store(&is_heir, true);
    CHECK_OK(stet_run_retry(f->engine, &heir, &run, NULL, NULL));
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    atomic_store(&early, code);
    if (strcmp(input, "skipped") == 0) {
        f->engine = fixture_open(f);
        CHECK_OK(stet_run_skip(f->engine, &heir, "mail", stet_text("mail"), NULL, NULL));
        fixture_close(f);
    }
    fixture_up_with(f, handlers);
    effects_await("early", 1);
    if (code != STET_EBUSY) {
        fixture_await_status(f->engine, &heir, STET_STATUS_STUCK);
        CHECK_HAS(fixture_look(f->engine, &heir).error, "2 steps that it inherited");
        CHECK_STR(undone(), "");
        fixture_down(f);
        atomic_store(&early, 0);
        fixture_up_with(f, handlers);
    }
    AWAIT(fixture_look(f->engine, &heir).status == STET_STATUS_FAILED);
    CHECK_STR(undone(), "charge reserve");
    CHECK_INT(effects("do charge"), 1);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

TEST(B11_C3_an_inherited_step_is_undone_though_the_handler_fails_passingly_on_its_way_there)
{
    check_early_heir(STET_EBUSY, "");
}

TEST(B11_C3_a_rollback_taken_up_by_who_does_not_come_to_what_he_inherited_is_stuck)
{
    check_early_heir(STET_EPERMANENT, "");
}

/* A step that was skipped is none that it inherited. Found by the simulator. */
TEST(B11_C8_an_inherited_step_is_undone_though_another_one_is_skipped_meanwhile)
{
    check_early_heir(STET_EBUSY, "skipped");
}

/* Found by the simulator: it failed, and nothing was undone. */
static void
check_hasty(const char *input)
{
    fixture    *f = fixture_begin();
    stet_run_id run, heir;
    stet_result result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.hasty", input,
                        STET_START(.retry = { .attempts = 2, .first_ms = 1, .max_ms = 1 }));
    if (strcmp(input, "heir") == 0) {
        fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
        CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL)); /* nothing is undone */
        AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
        atomic_store(&is_heir, true);
        atomic_store(&executions, 0);
        CHECK_OK(stet_run_retry(f->engine, &heir, &run, NULL, NULL));
        run = heir;
    }
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.cause, STET_ENOMEM);
    stet_result_free(&result);
    CHECK_STR(undone(), strcmp(input, "own") == 0 ? "reserve charge" : "charge reserve");
    CHECK_INT(effects("do charge"), 1);
    CHECK_INT(atomic_load(&executions), 3);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

TEST(B11_a_run_whose_last_attempt_fails_before_it_comes_to_all_it_did_is_rolled_back_all_the_same)
{
    check_hasty("");
}

TEST(B11_a_run_whose_last_attempt_fails_before_it_comes_to_anything_is_rolled_back_all_the_same)
{
    check_hasty("first");
}

/* The one it asked for is not the one that its failure asks for. */
TEST(B11_a_run_whose_last_attempt_fails_before_its_own_rollback_is_rolled_back_all_the_same)
{
    check_hasty("own");
}

/* No other rollback begins inside of it: it could not be finished, and that is what its waiters are
 * told. */
TEST(B11_a_run_whose_last_attempt_fails_while_its_own_rollback_is_under_way_waits_for_help)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.interrupted", "", STET_START(.retry = { .attempts = 1 }));
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    fixture_up_with(f, handlers);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ECOMPENSATION);
    CHECK_INT(result.cause, STET_ENOMEM);
    stet_result_free(&result);
    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    CHECK_HAS(fixture_look(f->engine, &run).reason, "memory");
    CHECK_STR(undone(), "");
    CHECK_OK(stet_rollback_retry(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_STR(undone(), "charge reserve");
    CHECK_INT(effects("do charge"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "rollback", NULL), 1);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

TEST(B11_C3_a_retry_whose_last_attempt_fails_before_it_comes_to_what_it_inherited_undoes_it)
{
    check_hasty("heir");
}

TEST(B11_a_run_that_fails_passingly_by_its_own_code_for_the_last_time_is_rolled_back_and_ends)
{
    check_own_code("t.auto", 1);
}

TEST(B11_a_run_whose_own_code_a_classifier_calls_permanent_is_rolled_back_and_ends)
{
    check_own_code("t.gives up", 5);
}

TEST(B11_a_rollback_that_is_taken_up_ends_the_run_as_its_classifier_said)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.gives up", "passing", STET_START(.retry = { .attempts = 5 }));
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    fixture_up_with(f, handlers);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_EBUSY);
    stet_result_free(&result);
    CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 0);
    CHECK_INT(effects("fail"), 1);
    CHECK_STR(undone(), "charge reserve");
    fixture_end(f);
}

static int
h_deals(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(done(ctx, "charge"));
    if (stet_step(ctx, NULL, "ship", b_fail, &permanent, NULL) != STET_ESTEP)
        return STET_EHANDLER;
    return fixture_is(input, "passing") ? STET_ENOMEM : STET_EPERMANENT;
}

/* What failed and was dealt with is not why the run fails. */
static void
check_dealt(const char *input, int code, int said)
{
    static const stet_handler table[] = { { "deals", h_deals, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, table);
    run = fixture_start(f->engine, "t.deals", input, STET_START(.retry = { .attempts = 1 }));
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    fixture_up_with(f, table);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, code);
    CHECK_INT(result.cause, code == said ? 0 : said);
    CHECK_STR(result.error, stet_code_text(said));
    CHECK(result.origin == NULL);
    stet_result_free(&result);
    CHECK_STR(undone(), "charge");
    fixture_end(f);
}

TEST(B11_H9_a_rollback_that_is_taken_up_does_not_end_with_what_was_dealt_with)
{
    check_dealt("", STET_EPERMANENT, STET_EPERMANENT);
}

TEST(B11_H9_one_that_failed_passingly_does_not_end_with_what_was_dealt_with)
{
    check_dealt("passing", STET_EATTEMPTS, STET_ENOMEM);
}

TEST(B11_waits_that_left_no_record_do_not_hinder_a_rollback_that_is_taken_up)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    f->options.parked_max = STET_NONE;
    atomic_store(&refuse_undo, STET_EBUSY);
    atomic_store(&attempts, 1000000);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.waits", "", NULL);
    effects_await("refuse charge", 1);
    fixture_down(f);
    atomic_store(&refuse_undo, 0);
    fixture_up_with(f, handlers);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_STR(result.error, "no");
    stet_result_free(&result);
    CHECK_INT(effects("do left"), 1);
    CHECK_STR(undone(), "charge");
    fixture_end(f);
}

TEST(B11_steps_behind_futures_are_undone_in_the_order_of_their_records)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.futures", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_STR(undone(), "right left reserve");
    fixture_end(f);
}

static void
beside(const char *input, const char *expected)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&slow_tries, 0);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.beside", input, NULL);
    AWAIT(fixture_facts(f->engine, &run, "signal wait", NULL) == 1);
    CHECK_INT(effects("do slow"), 1);
    CHECK_STR(undone(), "reserve");
    fixture_down(f); /* by replay, too */
    fixture_up_with(f, handlers);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &run, input);
    CHECK_INT(effects("do slow"), 1);
    CHECK_STR(undone(), expected);
    fixture_end(f);
}

TEST(B11_B18_a_step_that_was_done_behind_a_rollback_is_not_undone_by_its_replay)
{
    beside("", "reserve");
}

TEST(B11_B18_a_step_that_was_done_behind_a_rollback_is_undone_by_the_next)
{
    beside("again", "reserve slow");
}

TEST(B11_a_retry_of_a_dead_letter_does_again_what_was_undone_and_inherits_the_rest)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.saga", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    EXPECT_ANSWER(f->engine, &again, STET_ERUN);
    CHECK_INT(effects("do reserve"), 2);
    CHECK_INT(effects("do charge"), 2);
    CHECK_INT(effects("do mail"), 1);
    CHECK_STR(undone(), "pack charge reserve pack charge reserve");
    fixture_end(f);
}

/* ---- what was done behind the failure -------------------------------------------------------- */

/* A run of it that waits for help: the undo of "charge" failed. */
static stet_run_id
refused_once(fixture *f, const stet_handler *of, const char *name)
{
    stet_run_id run;

    f->options.concurrency = 4;
    atomic_store(&refuse_undo, STET_EPERMANENT);
    atomic_store(&refuse_times, 1);
    fixture_up_with(f, of);
    run = fixture_start(f->engine, name, "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    return run;
}

/* The handler knows that the other body failed, and waits only for this one to end. */
static bool
has_failed(stet_ctx *c)
{
    bool has;

    stet__lock(c->exec->p, c->exec->lock);
    has = c->jobs == 1 && !atomic_load(&c->has_finished) && c->state == STET__CTX_WAITING;
    stet__unlock(c->exec->p, c->exec->lock);
    return has;
}

static int
b_behind(stet_attempt *a, void *what)
{
    AWAIT(effects("fail") == 1 && has_failed(a->ctx));
    return b_do(a, what);
}

/* One of two fails it, and the other one is done when its rollback has begun: the handler never
 * knew. */
static int
h_unaware(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];
    size_t       chosen;

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(done(ctx, "reserve"));
    if (atomic_load(&early) != 0)
        return atomic_exchange(&early, 0);
    STET_TRY(stet_step_start(ctx, &both[0], "charge", b_behind, (void *)(uintptr_t) "charge",
                             STET_STEP(.undo = u_undo)));
    STET_TRY(stet_step_start(ctx, &both[1], "fails", b_fail, &passing, NULL));
    STET_TRY(stet_await_any(ctx, &chosen, both, 2, NULL));
    effect("went on");
    STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, stet_text("rolled back"));
}

static void
roll_back_unaware(int stumble)
{
    static const stet_handler_options once = { .retry = { 1, 1, 1, 100, 0 } };
    static const stet_handler         unaware[] = { { "unaware", h_unaware, &once }, { 0 } };
    fixture                          *f = fixture_begin();
    stet_run_id                       run;

    run = refused_once(f, unaware, "t.unaware");
    CHECK_STR(undone(), "");
    atomic_store(&early, stumble);
    CHECK_OK(stet_rollback_retry(f->engine, &run, "test", NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_FAILED);
    CHECK_STR(undone(), "charge reserve");
    CHECK_INT(effects("went on"), 0);
    CHECK_INT(atomic_load(&early), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "rollback", NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "await any", NULL), 0);
    CHECK_INT(fixture_sound(f->engine), 1);
    fixture_end(f);
}

TEST(B11_a_choice_the_handler_never_made_is_not_made_in_a_rollback_that_is_tried_again)
{
    roll_back_unaware(0);
}

TEST(B11_what_was_done_when_a_rollback_began_is_undone_though_the_handler_fails_on_its_way_there)
{
    roll_back_unaware(STET_EBUSY);
}

/* It waits for both, of which one failed passingly, does more, and learns of it only then. */
static int
h_learns_late(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step_start(ctx, &both[0], "reserve", b_do, (void *)(uintptr_t) "reserve",
                             STET_STEP(.undo = u_undo)));
    STET_TRY(stet_step_start(ctx, &both[1], "fails", b_fail, &passing, NULL));
    STET_TRY(stet_await_all(ctx, both, 2));
    STET_TRY(done(ctx, "charge"));
    return stet_await(ctx, NULL, both[1]);
}

TEST(B11_a_wait_for_all_that_was_left_with_a_failure_is_left_in_a_rollback_that_is_tried_again)
{
    static const stet_handler_options once = { .retry = { 1, 1, 1, 100, 0 } };
    static const stet_handler         late[] = { { "late", h_learns_late, &once }, { 0 } };
    fixture                          *f = fixture_begin();
    stet_run_id                       run;

    run = refused_once(f, late, "t.late");
    CHECK_OK(stet_rollback_retry(f->engine, &run, "test", NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_FAILED);
    CHECK_STR(undone(), "charge reserve");
    CHECK_INT(effects("fail"), 1);
    CHECK_INT(fixture_sound(f->engine), 1);
    fixture_end(f);
}

static atomic_bool asks_itself;

static int
h_asks(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(done(ctx, "reserve"));
    STET_TRY(done(ctx, "charge"));
    if (atomic_load(&asks_itself))
        STET_TRY(stet_rollback(ctx));
    return stet_fail(ctx, STET_EPERMANENT, "not today");
}

TEST(B11_code_that_asks_for_a_rollback_itself_goes_on_with_the_one_that_is_under_way)
{
    static const stet_handler asking[] = { { "asks", h_asks, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    run = refused_once(f, asking, "t.asks");
    atomic_store(&asks_itself, true); /* by its next build */
    CHECK_OK(stet_rollback_retry(f->engine, &run, "test", NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_FAILED);
    CHECK_STR(undone(), "charge reserve");
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ECOMPENSATION); /* as it was told */
    stet_result_free(&result);
    CHECK_INT(fixture_facts(f->engine, &run, "rollback", NULL), 1);
    CHECK_INT(fixture_sound(f->engine), 1);
    fixture_end(f);
}

/* ---- a rewind behind what was inherited ------------------------------------------------------ */

static gate rewound_door = GATE_INIT;

static int
body_rewound(stet_attempt *a, void *arg)
{
    (void)arg;
    gate_pass(&rewound_door);
    return stet_attempt_fail(a, STET_EBUSY, "not now");
}

static int
h_rewound(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(done(ctx, "reserve"));
    return stet_step(ctx, NULL, "two", body_rewound, NULL, NULL);
}

/* What an attempt had come to before it was taken back is nothing the next one has to come to: it
 * does it anew. The simulator found it. */
TEST(B11_C8_a_retry_that_is_rewound_while_its_attempt_fails_is_rolled_back)
{
    static const stet_handler_options brief = { .retry = { 2, 1, 1, 100, 0 } };
    static const stet_handler         rewound[] = { { "rewound", h_rewound, &brief }, { 0 } };
    fixture                          *f = fixture_begin();
    stet_run_id                       run, again;

    fixture_up_with(f, rewound);
    run = fixture_start(f->engine, "t.rewound", "", NULL);
    gate_await(&rewound_door, 1);
    CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL));
    gate_open(&rewound_door);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    gate_shut(&rewound_door);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    gate_await(&rewound_door, 1);
    CHECK_OK(stet_run_rewind(f->engine, &again, NULL, NULL, NULL));
    gate_open(&rewound_door);
    fixture_await_status(f->engine, &again, STET_STATUS_FAILED);
    CHECK_INT(effects("do reserve"), 2);
    CHECK_INT(effects("undo reserve"), 1);
    fixture_end(f);
}
