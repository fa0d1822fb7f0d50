/* What the simulator found, as small stories. Each stands for a class of seeds in tests/sim. tsan:
 * yes */
#include "damage.h"
#include "engine/host.h"

/* ---- futures that fail for now --------------------------------------------------------------- */

static int
body_never(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("never");
    return stet_attempt_fail(a, STET_ERETRY, "never");
}

static int
forgetful(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;

    (void)input;
    STET_TRY(stet_step_start(ctx, &future, "never", body_never, NULL, NULL));
    STET_TRY(stet_sleep(ctx, "nap", "1ms"));
    STET_TRY(stet_sleep(ctx, "nap", "1ms"));
    return stet_await(ctx, NULL, future);
}

/* Suspended with the failure nowhere on record, it would be executed again by every resumption. */
TEST(C1_a_future_that_fails_for_now_uses_an_attempt_though_the_run_sleeps)
{
    static const stet_handler handlers[] = { { "forgetful", forgetful, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    f->options.run_attempts = 3;
    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.forgetful", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_EATTEMPTS);
    CHECK_INT(effects("never"), 3);
    stet_result_free(&result);
    fixture_end(f);
}

static gate found_door = GATE_INIT;

static int
body_door(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    effect("door");
    gate_pass(&found_door);
    return STET_OK;
}

static int
body_flaky(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("flaky");
    return stet_attempt_number(a) > 1 ? STET_OK : stet_attempt_fail(a, STET_ERETRY, "once");
}

static int
busy_and_flaky(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;

    (void)input;
    STET_TRY(stet_step_start(ctx, &future, "door", body_door, NULL, NULL));
    STET_TRY(
        stet_step(ctx, NULL, "flaky", body_flaky, NULL, STET_STEP(.attempts = 2, .first_ms = 1)));
    STET_TRY(stet_await(ctx, NULL, future));
    return stet_return(ctx, stet_text("both"));
}

/* A run that is suspended is anybody's, and the body would be entered by its next owner as well. */
TEST(B18_a_run_is_not_given_away_while_a_body_of_it_runs_and_a_step_waits_for_its_retry)
{
    static const stet_handler handlers[] = { { "busy", busy_and_flaky, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.busy", "", NULL);
    gate_await(&found_door, 1);
    effects_await("flaky", 2); /* its timer has fired since */
    CHECK_INT(fixture_facts(f->engine, &run, "step retry", "flaky"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "suspended", NULL), 0);
    gate_open(&found_door);
    EXPECT_RESULT(f->engine, &run, "both");
    CHECK_INT(effects("door"), 1);
    fixture_end(f);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static atomic_llong found_deadline_ms;

static int
body_quick(stet_attempt *a, void *arg)
{
    (void)arg;
    atomic_store(&found_deadline_ms, stet_attempt_deadline_ms(a));
    return stet_attempt_return(a, stet_text("quick"));
}

static int
behind_the_door(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;
    stet_bytes   out;

    STET_TRY(stet_step_start(ctx, &future, "quick", body_quick, NULL,
                             STET_STEP(.attempts = 1, .timeout = input.data)));
    STET_TRY(stet_step(ctx, NULL, "door", body_door, NULL, NULL));
    STET_TRY(stet_await(ctx, &out, future));
    return stet_return(ctx, out);
}

/* It has to wait for the only slot, and that is not its own time. If a slow machine stops it
 * on its way, once more with twice the time. */
TEST(B8_a_timeout_runs_from_the_entry_of_the_body)
{
    static const stet_handler handlers[] = { { "behind", behind_the_door, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    int64_t                   limit_ms = 10, then_ms, opened_ms;
    char                      limit[32];
    stet_run_id               run;

    f->options.concurrency = 1;
    fixture_up_with(f, handlers);
    do {
        limit_ms *= 2;
        CHECK(limit_ms <= 5120);
        (void)snprintf(limit, sizeof limit, "%lldms", (long long)limit_ms);
        gate_shut(&found_door);
        run = fixture_start(f->engine, "t.behind", limit, NULL);
        gate_await(&found_door, 1);
        then_ms = fixture_mono_ms() + 2 * limit_ms;
        AWAIT(fixture_mono_ms() > then_ms);
        opened_ms = stet_engine_now_ms(f->engine);
        gate_open(&found_door);
        (void)stet_wait(f->engine, NULL, &run, 0);
        CHECK(atomic_load(&found_deadline_ms) >= opened_ms + limit_ms);
    } while (fixture_look(f->engine, &run).status != STET_STATUS_COMPLETED);
    EXPECT_RESULT(f->engine, &run, "quick");
    fixture_end(f);
}

/* ---- retries of dead letters ----------------------------------------------------------------- */

static atomic_int found_mended; /* what needs less than this has been mended */

static int
body_broken(stet_attempt *a, void *arg)
{
    effect("broken");
    if (strtol(arg, NULL, 10) > atomic_load(&found_mended))
        return stet_attempt_fail(a, STET_EPERMANENT, "broken");
    return stet_attempt_return(a, stet_text("mended"));
}

/* A step that fails for good until the world has been mended so often. */
static int
broken(stet_ctx *ctx, const char *until)
{
    return stet_step(ctx, NULL, "broken", body_broken, (void *)(uintptr_t)until, NULL);
}

static int
chooser(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[2];
    stet_bytes   out;
    size_t       chosen;

    (void)input;
    STET_TRY(
        stet_step_start(ctx, &futures[0], "broken", body_broken, (void *)(uintptr_t) "1", NULL));
    STET_TRY(stet_sleep_start(ctx, &futures[1], "long", "1h"));
    STET_TRY(stet_await_any(ctx, &chosen, futures, 2, "1h"));
    STET_TRY(stet_await_for(ctx, &out, futures[chosen], "1h"));
    return stet_return(ctx, out);
}

/* The choices were inherited and what they chose was not. */
TEST(C3_a_retry_chooses_anew_what_had_failed)
{
    static const stet_handler handlers[] = { { "chooser", chooser, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, again;
    stet_result               result;
    int                       awaits;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.chooser", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ESTEP);
    stet_result_free(&result);
    CHECK_OK(
        stet_dlq_retry(f->engine, &again, &run)); /* fails once more, and leaves its own choices */
    EXPECT_ANSWER(f->engine, &again, STET_ERUN);
    atomic_store(&found_mended, 1);
    CHECK_OK(stet_dlq_retry(f->engine, &run, &again));
    EXPECT_RESULT(f->engine, &run, "mended");
    CHECK_INT(effects("broken"), 3);
    /* The last of the inherited ones, and its own unless the body was so quick that the inherited
     * choice holds: the one before was void already, and would wait for a timer that is not
     * there. */
    awaits = fixture_facts(f->engine, &run, "await any", NULL);
    CHECK(awaits == 1 || awaits == 2);
    fixture_end(f);
}

static atomic_int        found_life; /* 0: the first run; 1: its retry; 2: that, rewound */
static stet_awakeable_id found_hook;

static int
body_hook(stet_attempt *a, void *id)
{
    found_hook = *(const stet_awakeable_id *)id;
    effect("hooked");
    return stet_attempt_return(a, stet_text(""));
}

static int
body_again(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("again");
    return stet_attempt_return(a, stet_text(""));
}

static int
hooked(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *hook;
    int               life = atomic_load(&found_life), err;

    (void)input;
    if (life > 0)
        STET_TRY(stet_step(ctx, NULL, "again", body_again, NULL, NULL));
    STET_TRY(stet_awakeable(ctx, &id, &hook, "hook"));
    STET_TRY(stet_step(ctx, NULL, "tell", body_hook, &id, NULL));
    err = stet_await_for(ctx, NULL, hook, life < 2 ? "1h" : "1ms");
    if (err == STET_EREJECTED)
        return stet_fail(ctx, STET_EPERMANENT, "rejected");
    return err != STET_ETIMEOUT ? err : stet_return(ctx, stet_text("too late"));
}

/* The rewind took the limit's timer away and left the wait, which then waited for ever. */
TEST(C3_C8_a_wait_a_retry_made_anew_is_forgotten_by_a_rewind)
{
    static const stet_handler handlers[] = { { "hooked", hooked, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, again;

    atomic_store(&found_life, 0);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.hooked", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_reject(f->engine, found_hook.text, "no"));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    atomic_store(&found_life, 1);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    fixture_await_status(f->engine, &again, STET_STATUS_SUSPENDED);
    CHECK_INT(effects("again"), 1);
    atomic_store(&found_life, 2);
    CHECK_OK(stet_run_rewind(f->engine, &again, "again", NULL, NULL));
    EXPECT_RESULT(f->engine, &again, "too late");
    CHECK_INT(effects("again"), 2);
    CHECK_INT(effects("hooked"), 1);
    fixture_end(f);
}

static int
add_one(stet_ctx *ctx)
{
    stet_bytes value;
    char      *text;

    STET_TRY(stet_state_get(ctx, &value, "n"));
    text = stet_ctx_printf(ctx, "%ld", (value.data != NULL ? fixture_number(value) : 0) + 1);
    return stet_state_set(ctx, "n", stet_text(text));
}

static int
adder(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(add_one(ctx));
    if (input.len > 0)
        STET_TRY(broken(ctx, "1"));
    return add_one(ctx);
}

static int
ponderer(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(add_one(ctx));
    STET_TRY(broken(ctx, "1"));
    STET_TRY(stet_state_get(ctx, &value, "n"));
    STET_TRY(broken(ctx, "2"));
    return stet_state_set(ctx, "n",
                          stet_text(stet_ctx_printf(ctx, "%ld", fixture_number(value) + 1)));
}

static int
thrice(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(add_one(ctx));
    STET_TRY(broken(ctx, "1"));
    STET_TRY(add_one(ctx));
    STET_TRY(broken(ctx, "2"));
    return add_one(ctx);
}

static const stet_handler found_adders[] = {
    { "add", adder, NULL }, { "thrice", thrice, NULL }, { "ponder", ponderer, NULL }, { 0 }
};
static const fixture_service found_objects[] = { { "o", found_adders, true, NULL }, { 0 } };

/* Adds 2 and ends. */
static void
found_add(fixture *f)
{
    stet_run_id run = fixture_start(f->engine, "o.add", "", STET_START(.key = "k"));

    EXPECT_RESULT(f->engine, &run, "");
}

static void
found_fails(fixture *f, const stet_run_id *run)
{
    stet_result result = EXPECT_END(f->engine, run, STET_ERUN);

    CHECK_INT(result.code, STET_ESTEP);
    stet_result_free(&result);
}

static void
found_is(fixture *f, long n)
{
    stet_bytes value;

    CHECK_OK(stet_state_read(f->engine, &value, "o", "k", "n"));
    CHECK_INT(fixture_number(value), n);
    stet_free((void *)(uintptr_t)value.data);
}

/* What a retry inherits is what was read and written then; what it does now builds on what is there
 * now. */
TEST(C3_a_retry_writes_over_nothing_that_others_wrote_since)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again;

    fixture_up(f, found_objects);
    run = fixture_start(f->engine, "o.add", "fails", STET_START(.key = "k")); /* 1 */
    found_fails(f, &run);
    found_add(f); /* 3 */
    atomic_store(&found_mended, 1);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run)); /* 4 */
    EXPECT_RESULT(f->engine, &again, "");
    found_is(f, 4);
    fixture_end(f);
}

/* What a retry read anew, its own retry reads there, and what comes later anew. */
TEST(C3_the_retry_of_a_retry_writes_over_nothing_that_others_wrote_since)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again, last;

    fixture_up(f, found_objects);
    run = fixture_start(f->engine, "o.thrice", "", STET_START(.key = "k")); /* 1 */
    found_fails(f, &run);
    found_add(f); /* 3 */
    atomic_store(&found_mended, 1);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run)); /* 4 */
    found_fails(f, &again);
    found_add(f); /* 6 */
    atomic_store(&found_mended, 2);
    CHECK_OK(stet_dlq_retry(f->engine, &last, &again)); /* 7 */
    EXPECT_RESULT(f->engine, &last, "");
    found_is(f, 7);
    fixture_end(f);
}

/* A read that no write followed is read anew, also if there was a write in front of it. */
TEST(C3_a_retry_reads_anew_what_was_only_read)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again, last;

    fixture_up(f, found_objects);
    run = fixture_start(f->engine, "o.ponder", "", STET_START(.key = "k")); /* 1 */
    found_fails(f, &run);
    found_add(f); /* 3 */
    atomic_store(&found_mended, 1);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run)); /* reads 3 */
    found_fails(f, &again);
    found_add(f); /* 5 */
    atomic_store(&found_mended, 2);
    CHECK_OK(stet_dlq_retry(f->engine, &last, &again)); /* 6 */
    EXPECT_RESULT(f->engine, &last, "");
    found_is(f, 6);
    fixture_end(f);
}

/* ---- a rollback beside a step between two attempts ------------------------------------------- */

static int
undo_sure(stet_attempt *a, stet_bytes result)
{
    (void)result;
    if (atomic_load(&found_mended) == 0)
        return stet_attempt_fail(a, STET_ERETRY, "not now");
    effect("undone");
    return STET_OK;
}

static int
hasty(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step_start(ctx, &both[0], "shaky", body_never, NULL,
                             STET_STEP(.attempts = 9, .first_ms = 1, .max_ms = 1)));
    STET_TRY(stet_step_start(
        ctx, &both[1], "sure", body_effect, "sure",
        STET_STEP(.undo = undo_sure, .attempts = 1000, .first_ms = 5, .max_ms = 5)));
    STET_TRY(stet_await(ctx, NULL, both[1]));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    return stet_fail(ctx, STET_EPERMANENT, "given up");
}

/* Its next attempt is due, and does not come: what is recorded behind it is undone all the same. */
TEST(B11_a_step_between_two_attempts_does_not_keep_a_failed_run_from_its_rollback)
{
    static const stet_handler handlers[] = { { "hasty", hasty, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.hasty", "", NULL);
    effects_await("sure", 1);
    AWAIT(fixture_facts(f->engine, &run, "timer fired", NULL) == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    AWAIT(fixture_facts(f->engine, &run, "step retry", "rollback:sure#1") > 1);
    fixture_down(f);
    atomic_store(&found_mended, 1);
    fixture_up_with(f, handlers);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_EPERMANENT);
    stet_result_free(&result);
    CHECK_INT(effects("undone"), 1);
    fixture_end(f);
}

/* ---- an undo that fails without memory for what it says -------------------------------------- */

static void *
found_no_memory(stet__alloc *alloc, void *old, size_t size)
{
    (void)alloc;
    return size == 0 ? stet__grow(&stet__platform_real()->alloc, old, 0) : NULL;
}

static int
undo_mute(stet_attempt *a, stet_bytes result)
{
    static stet__alloc none = { .get = found_no_memory };

    (void)result;
    a->text.alloc = &none;
    return stet_attempt_fail(a, STET_EPERMANENT, "no refunds");
}

static int
mute(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "sold", body_effect, "sold",
                       STET_STEP(.undo = undo_mute, .attempts = 1)));
    return stet_rollback(ctx);
}

/* What it said is lost; that it is, is told. The text of its code would read as what it said. */
TEST(B11_an_undo_that_fails_without_memory_for_its_text_says_so)
{
    static const stet_handler handlers[] = { { "mute", mute, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.mute", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ECOMPENSATION);
    CHECK_STR(result.error, "the undo of step sold#1 failed: what it said is lost: out of memory");
    stet_result_free(&result);
    fixture_end(f);
}

/* ---- the first record of a claim finds no memory --------------------------------------------- */

static atomic_int found_denied;

/* What is there need not grow: the first time it has to, there is nothing. */
static void *
found_no_growth(stet__alloc *alloc, void *old, size_t size)
{
    (void)alloc;
    if (size == 0) {
        stet__free(&stet__platform_real()->alloc, old);
        return NULL;
    }
    if (old != NULL && atomic_fetch_add(&found_denied, 1) == 0)
        return NULL;
    return stet__grow(&stet__platform_real()->alloc, old, size);
}

static int
body_shy(stet_attempt *a, void *arg)
{
    static stet__alloc scarce = { .get = found_no_growth };
    stet__work        *w = stet__host_open(host_claim(a->ctx));

    (void)arg;
    effect(stet_attempt_is_at_risk(a) ? "told" : "not told");
    if (effects("told") + effects("not told") > 1)
        return STET_OK;
    CHECK(w != NULL && w->n_facts == 0);
    w->facts.alloc = &scarce;
    return stet_attempt_fail(a, STET_ERETRY, "%0300d", 7);
}

static int
shy(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "shy", body_shy, NULL,
                     STET_STEP(.attempts = 3, .first_ms = 1, .max_ms = 1));
}

/* The claim is on record, and the body is not: whoever executes it next is told. */
TEST(I9_a_body_whose_record_found_no_memory_is_at_risk_also_as_the_first_of_its_claim)
{
    static const stet_handler handlers[] = { { "shy", shy, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    atomic_store(&found_denied, 0);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.shy", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK(atomic_load(&found_denied) > 0);
    CHECK_INT(effects("not told"), 1);
    CHECK_INT(effects("told"), 1);
    fixture_end(f);
}

/* ---- a look at a run that is damaged --------------------------------------------------------- */

static int
curious(stet_ctx *ctx, stet_bytes input)
{
    stet_run_look look;
    stet_run_id   other;
    int           err;

    (void)snprintf(other.text, sizeof other.text, "%.*s", (int)input.len, (const char *)input.data);
    if ((err = stet_run_look_at(ctx, &look, &other)) != STET_ECORRUPT)
        return err;
    return stet_step(ctx, NULL, "after", body_effect, "after", NULL);
}

static int
found_on_look(void *arg, const stet_fact_info *fact)
{
    if (fact->code == STET_ECORRUPT && fact->text != NULL)
        (void)snprintf(arg, 512, "%s", fact->text);
    return STET_OK;
}

/* A damaged record stops its own run and no other: who looks at it is told, once and for all. It
 * was an attempt that failed, and again, until none was left. */
TEST(B17_a_run_whose_record_is_damaged_is_an_answer_to_who_looks_at_it)
{
    static const stet_handler handlers[] = { { "curious", curious, NULL },
                                             { "hermit", curious, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               bad, run;
    char                      text[256], said[512] = "";
    stet_result               result;

    if (!f->is_sqlite)
        test_skip("damage needs a file");
    fixture_up_with(f, handlers);
    bad = fixture_start(f->engine, "t.hermit", "", NULL);
    EXPECT_ANSWER(f->engine, &bad, STET_ERUN);
    fixture_down(f);
    damage_sql(f, "UPDATE facts SET data=x'00112233' WHERE run=?1", &bad, (stet_bytes){ NULL, 0 });
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.curious", bad.text, NULL);
    result = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(result.attempts, 1);
    stet_result_free(&result);
    (void)snprintf(text, sizeof text, "the record of %s is damaged: ", bad.text);
    CHECK_OK(stet_run_facts(f->engine, &run, false, found_on_look, said));
    CHECK_HAS(said, text);
    CHECK_INT(effects("after"), 1);
    damage_end(f);
}

/* ---- a rewind before the next attempt -------------------------------------------------------- */

static int
counted(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("attempt %u", stet_info(ctx)->attempt);
    STET_TRY(stet_step(ctx, NULL, "fine", body_effect, "fine", NULL));
    return atomic_load(&found_mended) != 0 ? STET_OK : stet_fail(ctx, STET_ERETRY, "not now");
}

/* Its attempts count anew, and the execution that takes the rewind in is the first of them. */
TEST(C8_a_run_that_was_rewound_is_told_that_it_is_its_first_attempt)
{
    static const stet_handler_options options = {
        .retry = { .attempts = 5, .first_ms = 3600000, .max_ms = 3600000 }
    };
    static const stet_handler handlers[] = { { "counted", counted, &options }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.counted", "", NULL);
    AWAIT(fixture_facts(f->engine, &run, "attempt failed", NULL) == 1);
    atomic_store(&found_mended, 1);
    CHECK_OK(stet_run_rewind(f->engine, &run, NULL, NULL, NULL));
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK_INT(effects("attempt 1"), 2);
    CHECK_INT(effects("attempt 2"), 0);
    fixture_end(f);
}

/* ---- a pause while a timer resumes a run ----------------------------------------------------- */

static int
napper(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "nap", input.data));
    return stet_step(ctx, NULL, "after", body_effect, "after", NULL);
}

static int
doorkeeper(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "door", body_door, NULL, NULL);
}

/* Its timer has fired here, and nothing of that is on record yet. */
static bool
found_is_resumed(stet_engine *e, const stet_run_id *run)
{
    stet_ctx *c;
    stet_id   id;
    bool      is_resumed;

    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run->text));
    stet__lock(e->p, &e->lock);
    c = stet__map_find(&e->claims, id.bytes, sizeof id.bytes);
    is_resumed = c != NULL && c->host != NULL && ((stet__claim *)c->host)->is_resumed;
    stet__unlock(e->p, &e->lock);
    return is_resumed;
}

/* The unit that resumes it must also take it: else a body is entered for a run that is nobody's,
 * and the run is stuck with whoever takes it later. */
TEST(C8_a_run_whose_timer_fired_before_its_handler_was_paused_is_taken_with_it)
{
    static const stet_handler handlers[] = { { "napper", napper, NULL },
                                             { "door", doorkeeper, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    int64_t                   nap_ms = 250;
    int                       n = 0;
    char                      nap[32];
    stet_run_id               run, busy;

    f->options.concurrency = 1;
    fixture_up_with(f, handlers);
    for (;;) { /* until the nap is longer than it takes to block the only slot */
        nap_ms *= 2;
        (void)snprintf(nap, sizeof nap, "%lldms", (long long)nap_ms);
        run = fixture_start(f->engine, "t.napper", nap, NULL);
        AWAIT(fixture_facts(f->engine, &run, "sleep", "nap") == 1);
        busy = fixture_start(f->engine, "t.door", "", NULL);
        gate_await(&found_door, 1);
        AWAIT(found_is_resumed(f->engine, &run) || effects("after") > n);
        if (effects("after") == n)
            break;
        n = effects("after");
        gate_open(&found_door);
        EXPECT_ANSWER(f->engine, &busy, STET_OK);
        EXPECT_ANSWER(f->engine, &run, STET_OK);
        gate_shut(&found_door);
    }
    CHECK_OK(stet_handler_pause(f->engine, "t.napper", NULL, NULL));
    gate_open(&found_door);
    EXPECT_ANSWER(f->engine, &busy, STET_OK);
    effects_await("after", n + 1);
    CHECK_OK(stet_handler_resume(f->engine, "t.napper", NULL, NULL));
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK_INT(effects("after"), n + 1);
    fixture_end(f);
}

/* ---- a start that is on its way when its handler is paused ----------------------------------- */

static gate                  hold_look = GATE_INIT, hold_start = GATE_INIT;
static const stet_store_ops *hold_store;
static stet_engine          *hold_engine;
static stet_run_id           hold_run;
static atomic_bool           is_pausing;
static _Thread_local bool    is_pauser; /* sweeps look, too */

static int
values_of_pauses(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
                 size_t limit, stet_value_fn fn, void *arg)
{
    int err = hold_store->values(s, space, prefix, after, limit, fn, arg);

    if (strcmp(space, STET__SPACE_BASE_PAUSED) == 0 && is_pauser)
        gate_pass(&hold_look);
    return err;
}

static int
commit_of_starts(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    bool is_start = false;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_ops; k++)
            is_start = is_start || units[i].ops[k].kind == STET_OP_RUN_PUT;
    if (is_start && atomic_load(&is_pausing))
        gate_pass(&hold_start);
    return hold_store->commit(s, units, n, outcomes);
}

static int
h_begun(stet_ctx *ctx, stet_bytes input)
{
    effect("begun");
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, "one", NULL));
    return stet_return(ctx, input);
}

static void *
hold_pause_it(void *arg)
{
    (void)arg;
    is_pauser = true;
    CHECK_OK(stet_handler_pause(hold_engine, "t.begun", NULL, NULL));
    return NULL;
}

static void *
hold_start_it(void *arg)
{
    (void)arg;
    CHECK_OK(stet_start(hold_engine, &hold_run, "t.begun", stet_text("ok"), NULL));
    return NULL;
}

/* It was to be executed ahead of its own commit, as soon as a slot was free, and the pause was
 * answered before. The simulator found it. */
TEST(C8_a_run_whose_start_is_on_its_way_is_not_begun_when_its_pause_was_answered)
{
    static const stet_handler handlers[] = { { "begun", h_begun, NULL },
                                             { "door", doorkeeper, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_store_ops           *ops;
    pthread_t                 pauser, starter;
    stet_run_id               busy;

    f->options.concurrency = 1;
    f->options.sweep_ms = 60000;
    hold_engine = f->engine = fixture_open(f);
    hold_store = f->engine->store->ops;
    ops = damage_ops(f->engine);
    ops->values = values_of_pauses;
    ops->commit = commit_of_starts;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    busy = fixture_start(f->engine, "t.door", "", NULL);
    gate_await(&found_door, 1);
    atomic_store(&is_pausing, true);
    CHECK_INT(pthread_create(&pauser, NULL, hold_pause_it, NULL), 0);
    gate_await(&hold_look, 1);
    CHECK_INT(pthread_create(&starter, NULL, hold_start_it, NULL), 0);
    gate_await(&hold_start, 1);
    gate_open(&hold_look);
    CHECK_INT(pthread_join(pauser, NULL), 0);
    gate_open(&found_door);
    for (int i = 0; i < 50 && effects("begun") == 0; i++)
        fixture_breathe();
    CHECK_INT(effects("begun"), 0);
    gate_open(&hold_start);
    CHECK_INT(pthread_join(starter, NULL), 0);
    EXPECT_ANSWER(f->engine, &busy, STET_OK);
    CHECK_INT(effects("begun"), 0);
    CHECK_OK(stet_handler_resume(f->engine, "t.begun", NULL, NULL));
    EXPECT_RESULT(f->engine, &hold_run, "ok");
    CHECK_INT(effects("begun"), 1);
    CHECK_INT(effects("one"), 1);
    fixture_end(f);
}
