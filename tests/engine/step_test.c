/* Steps: recorded results (B1), their policies and failures (B2). tsan: yes */
#include <limits.h>

#include "fixture.h"

/* The engine under test, for bodies that look at it from outside. Tests run in processes of their
 * own. */
static stet_engine *outside;

/* ---- B1 -------------------------------------------------------------------------------------- */

static int
two_steps(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes one, two;

    (void)input;
    effect("enter");
    STET_TRY(stet_step(ctx, &one, "one", body_effect, (void *)"one", NULL));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_step(ctx, &two, "two", body_effect, (void *)"two", NULL));
    return stet_return_json(ctx, "\"%.*s %.*s\"", (int)one.len, (const char *)one.data,
                            (int)two.len, (const char *)two.data);
}

TEST(B1_a_recorded_step_does_not_run_again_after_a_restart)
{
    static const stet_handler handlers[] = { { "two", two_steps, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.two", "", NULL);
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "\"one two\"");
    CHECK_INT(effects("enter"), 2);
    CHECK_INT(effects("one"), 1);
    CHECK_INT(effects("two"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "one"), 1);
    fixture_end(f);
}

static int
napping(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    effect("enter");
    for (int i = 0; i < 5; i++) {
        STET_TRY(stet_step(ctx, &out, "work", body_effect, (void *)"work", NULL));
        if (!fixture_is(out, "work"))
            return stet_fail(ctx, STET_EPERMANENT, "another result came back");
        STET_TRY(stet_sleep(ctx, "nap", "5ms"));
    }
    return stet_return(ctx, stet_text("done"));
}

TEST(B1_every_replay_gets_the_recorded_results)
{
    static const stet_handler handlers[] = { { "nap", napping, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE; /* every wake is a replay */
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.nap", "", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(effects("work"), 5);
    CHECK(effects("enter") >= 2);
    fixture_end(f);
}

static int
body_sees_one(stet_attempt *a, void *arg)
{
    stet_run_id run;

    (void)arg;
    CHECK_OK(stet_run_id_parse(&run, stet_attempt_run(a)));
    effect("recorded before: %d", fixture_facts(outside, &run, "step", "one"));
    return STET_OK;
}

static int
in_order(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, (void *)"one", NULL));
    return stet_step(ctx, NULL, "two", body_sees_one, NULL, NULL);
}

TEST(B1_no_side_effect_starts_before_the_record_of_the_one_before_is_durable)
{
    static const stet_handler handlers[] = { { "order", in_order, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[20];

    outside = fixture_open(f); /* another handle: it sees only what is committed */
    fixture_up_with(f, handlers);
    for (int i = 0; i < 20; i++)
        runs[i] = fixture_start(f->engine, "t.order", "", NULL);
    for (int i = 0; i < 20; i++)
        EXPECT_RESULT(f->engine, &runs[i], "");
    CHECK_INT(effects("recorded before: 1"), 20);
    stet_close(outside);
    fixture_end(f);
}

static int
body_nothing(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    return STET_OK;
}

static int
body_empty(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, stet_text(""));
}

static int
body_binary(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, (stet_bytes){ "a\0b\xff", 4 });
}

static int
body_large(stet_attempt *a, void *arg)
{
    size_t len = 1000000;
    char  *data = malloc(len);
    int    err;

    (void)arg;
    CHECK(data != NULL);
    memset(data, 'x', len);
    err = stet_attempt_return(a, (stet_bytes){ data, len });
    free(data);
    return err;
}

static int
body_twice(stet_attempt *a, void *arg)
{
    (void)arg;
    STET_TRY(stet_attempt_return(a, stet_text("first, and longer")));
    return stet_attempt_return(a, stet_text("second"));
}

static int
shapes(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes none, empty, binary, large, twice;

    (void)input;
    effect("enter");
    STET_TRY(stet_step(ctx, &none, "none", body_nothing, NULL, NULL));
    STET_TRY(stet_step(ctx, &empty, "empty", body_empty, NULL, NULL));
    STET_TRY(stet_step(ctx, &binary, "binary", body_binary, NULL, NULL));
    STET_TRY(stet_step(ctx, &large, "large", body_large, NULL, NULL));
    STET_TRY(stet_step(ctx, &twice, "twice", body_twice, NULL, NULL));
    effect("none %d empty %d,%zu binary %d large %zu%c twice %d", none.data == NULL,
           empty.data != NULL, empty.len,
           binary.len == 4 && memcmp(binary.data, "a\0b\xff", 4) == 0, large.len,
           large.len > 0 ? ((const char *)large.data)[large.len - 1] : '?',
           fixture_is(twice, "second"));
    return fixture_pause(ctx);
}

TEST(B1_results_of_every_shape_are_the_same_on_replay)
{
    static const stet_handler handlers[] = { { "shapes", shapes, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.shapes", "", NULL);
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("enter"), 2);
    CHECK_INT(effects("none 1 empty 1,0 binary 1 large 1000000x twice 1"), 2);
    fixture_end(f);
}

static int
body_identity(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("token %s", stet_attempt_token(a));
    effect("number %u", stet_attempt_number(a));
    effect("fence %llu", (unsigned long long)stet_attempt_fence(a));
    effect("risk %d", stet_attempt_is_at_risk(a));
    return stet_attempt_number(a) < 3 ? STET_ERETRY : STET_OK;
}

static int
identity(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "same", body_identity, NULL,
                       STET_STEP(.attempts = 3, .first_ms = 1, .max_ms = 1)));
    return stet_step(ctx, NULL, "same", body_identity, NULL,
                     STET_STEP(.attempts = 3, .first_ms = 1, .max_ms = 1));
}

TEST(B1_attempts_of_a_step_share_a_token_and_other_steps_have_another)
{
    static const stet_handler handlers[] = { { "identity", identity, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    char                     *text, *save = NULL, tokens[2][128] = { "", "" };
    int                       counts[2] = { 0, 0 }, n = 0;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.identity", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    text = effects_text();
    for (char *at = strtok_r(text, "\n", &save); at != NULL; at = strtok_r(NULL, "\n", &save)) {
        if (strncmp(at, "token ", 6) != 0)
            continue;
        if (n == 0 || strcmp(tokens[n - 1], at) != 0) {
            CHECK(n < 2);
            (void)snprintf(tokens[n++], sizeof tokens[0], "%s", at);
        }
        counts[n - 1]++;
    }
    free(text);
    CHECK_INT(n, 2);
    CHECK_INT(counts[0], 3);
    CHECK_INT(counts[1], 3);
    CHECK_HAS(tokens[0], run.text);
    CHECK_INT(effects("number 1"), 2);
    CHECK_INT(effects("number 3"), 2);
    CHECK_INT(effects("risk 0"), 6);
    fixture_end(f);
}

enum { MANY_TOKENS = 300 };

static char     many_tokens[MANY_TOKENS][128];
static unsigned n_many;

static int
body_token(stet_attempt *a, void *arg)
{
    (void)arg;
    (void)snprintf(many_tokens[n_many++ % MANY_TOKENS], sizeof many_tokens[0], "%s",
                   stet_attempt_token(a));
    return STET_OK;
}

static int
many(stet_ctx *ctx, stet_bytes input)
{
    for (int i = 0; i < MANY_TOKENS; i++)
        STET_TRY(stet_step(ctx, NULL, "same", body_token, NULL, NULL));
    return stet_return(ctx, input);
}

TEST(B1_each_of_very_many_steps_of_one_name_has_a_token_of_its_own)
{
    static const stet_handler handlers[] = { { "many", many, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    n_many = 0;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.many", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(n_many, MANY_TOKENS);
    for (size_t i = 0; i < MANY_TOKENS; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(many_tokens[i], many_tokens[k]) != 0);
    fixture_end(f);
}

static int
body_from_arg(stet_attempt *a, void *arg)
{
    return stet_attempt_return_json(a, "%d", *(int *)arg);
}

static int
long_loop(stet_ctx *ctx, stet_bytes input)
{
    long total = 0;

    (void)input;
    for (int i = 0; i < 300; i++) {
        stet_bytes out;

        stet_scope_begin(ctx);
        STET_TRY(stet_step(ctx, &out, "add", body_from_arg, &i, NULL));
        total += fixture_number(out);
        stet_scope_end(ctx);
        if (i == 150)
            STET_TRY(stet_sleep(ctx, "half time", "1ms"));
    }
    return stet_return_json(ctx, "%ld", total);
}

TEST(B1_the_nth_step_of_a_name_gets_the_nth_result)
{
    static const stet_handler handlers[] = { { "loop", long_loop, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.loop", "", NULL);
    EXPECT_RESULT(f->engine, &run, "44850");
    CHECK_INT(fixture_facts(f->engine, &run, "step", "add"), 300);
    fixture_end(f);
}

/* ---- B2: without a policy -------------------------------------------------------------------- */

static int
body_passing(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("flaky");
    return stet_attempt_fail(a, STET_ERETRY, "the line is busy");
}

static int
flaky(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)"before", NULL));
    return stet_step(ctx, NULL, "flaky", body_passing, NULL, NULL);
}

TEST(B2_three_attempts_are_three_executions_and_a_passing_failure_is_no_result)
{
    static const stet_handler handlers[] = { { "flaky", flaky, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.flaky", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.status, STET_STATUS_FAILED);
    CHECK_INT(result.code, STET_EATTEMPTS);
    CHECK_INT(result.attempts, 3);
    CHECK_HAS(result.error, "the line is busy");
    CHECK_HAS(result.origin, "step flaky#1");
    stet_result_free(&result);
    CHECK_INT(effects("flaky"), 3);
    CHECK_INT(effects("before"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "flaky"), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "before"), 1);
    fixture_end(f);
}

TEST(B2_attempts_are_exact_for_other_numbers)
{
    static const stet_handler handlers[] = { { "flaky", flaky, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.flaky", "", STET_START(.retry.attempts = 1));
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.attempts, 1);
    stet_result_free(&result);
    CHECK_INT(effects("flaky"), 1);
    run = fixture_start(f->engine, "t.flaky", "", STET_START(.retry.attempts = 7));
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.attempts, 7);
    stet_result_free(&result);
    CHECK_INT(effects("flaky"), 8);
    fixture_end(f);
}

static atomic_int failures_left;

static int
body_mends(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("mends");
    if (atomic_fetch_sub(&failures_left, 1) > 0)
        return stet_attempt_fail(a, STET_CODE_USER - 7, "not yet");
    return stet_attempt_return(a, stet_text("mended"));
}

static int
mends(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)"before", NULL));
    STET_TRY(stet_step(ctx, &out, "mends", body_mends, NULL, NULL));
    return stet_return(ctx, out);
}

TEST(B2_a_passing_failure_with_a_code_of_the_application_is_tried_again)
{
    static const stet_handler handlers[] = { { "mends", mends, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    atomic_store(&failures_left, 2);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.mends", "", NULL);
    EXPECT_RESULT(f->engine, &run, "mended");
    CHECK_INT(effects("mends"), 3);
    CHECK_INT(effects("before"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "mends"), 1);
    CHECK_INT(fixture_look(f->engine, &run).attempt, 3);
    fixture_end(f);
}

static int
swallows(stet_ctx *ctx, stet_bytes input)
{
    int first = stet_step(ctx, NULL, "mends", body_mends, NULL, NULL);

    (void)input;
    /* The failure is swallowed: it still ends the attempt, and nothing later has an effect. */
    if (first != STET_OK) {
        int later = stet_step(ctx, NULL, "later", body_effect, (void *)"later", NULL);

        effect("later said %s", stet_code_name(later));
        return stet_return(ctx, stet_text("wrong"));
    }
    return stet_return(ctx, stet_text("right"));
}

TEST(B2_a_swallowed_passing_failure_still_ends_the_attempt)
{
    static const stet_handler handlers[] = { { "swallows", swallows, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    atomic_store(&failures_left, 1);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.swallows", "", NULL);
    EXPECT_RESULT(f->engine, &run, "right");
    CHECK_INT(effects("later"), 0);
    CHECK_INT(effects("later said STET_ERETRY"), 1);
    fixture_end(f);
}

/* ---- B2: with a policy ----------------------------------------------------------------------- */

static int
body_numbered(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("try %u", stet_attempt_number(a));
    return stet_attempt_fail(a, STET_EIO, "no route, try %u", stet_attempt_number(a));
}

static void
tell_failure(stet_ctx *ctx, int code)
{
    const stet_failure *failure = stet_failure_get(ctx);

    effect("%s %s %s [%s] %u", stet_code_name(code), stet_code_name(failure->cause), failure->text,
           failure->origin != NULL ? failure->origin : "", failure->attempts);
}

static int
exhausts(stet_ctx *ctx, stet_bytes input)
{
    int code = stet_step(ctx, NULL, "route", body_numbered, NULL,
                         STET_STEP(.attempts = 3, .first_ms = 2, .max_ms = 4));

    (void)input;
    if (code == STET_SUSPENDED)
        return code;
    tell_failure(ctx, code);
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("went on"));
}

TEST(B2_only_exhaustion_of_a_policy_is_recorded_and_comes_back_identically)
{
    static const stet_handler handlers[] = { { "exhausts", exhausts, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.exhausts", "", NULL);
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "went on");
    for (int i = 1; i <= 3; i++) {
        char line[16];

        (void)snprintf(line, sizeof line, "try %d", i);
        CHECK_INT(effects(line), 1);
    }
    CHECK_INT(effects("try 4"), 0);
    CHECK_INT(effects("STET_ESTEP STET_EIO no route, try 3 [step route#1] 3"), 2);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "route"), 1);
    CHECK_INT(fixture_look(f->engine, &run).attempt, 1); /* the run's own attempts are untouched */
    fixture_end(f);
}

static atomic_int_least64_t tried_ms[8];

static int
body_timed(stet_attempt *a, void *arg)
{
    (void)arg;
    atomic_store(&tried_ms[stet_attempt_number(a)], fixture_mono_ms());
    return stet_attempt_number(a) < 4 ? STET_ERETRY : STET_OK;
}

static int
backs_off(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "timed", body_timed, NULL,
                     STET_STEP(.attempts = 4, .first_ms = 30, .max_ms = 60, .factor_percent = 200,
                               .jitter_percent = STET_NONE));
}

TEST(B2_a_policy_backs_off_exponentially_to_its_maximum)
{
    static const stet_handler handlers[] = { { "backs", backs_off, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.backs", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    /* One millisecond for clocks that are cut to milliseconds. */
    CHECK(tried_ms[2] - tried_ms[1] >= 29);
    CHECK(tried_ms[3] - tried_ms[2] >= 59);
    CHECK(tried_ms[4] - tried_ms[3] >= 59);
    CHECK_INT(fixture_facts(f->engine, &run, "step retry", "timed"), 3);
    fixture_end(f);
}

static int
slow_policy(stet_ctx *ctx, stet_bytes input)
{
    int code = stet_step(ctx, NULL, "route", body_numbered, NULL,
                         STET_STEP(.attempts = 3, .first_ms = 300, .max_ms = 300));

    (void)input;
    if (code == STET_ESTEP)
        return stet_return(ctx, stet_text("used up"));
    return code;
}

TEST(B2_a_policy_goes_on_counting_after_a_restart)
{
    static const stet_handler handlers[] = { { "slow", slow_policy, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.slow", "", NULL);
    effects_await("try 1", 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "used up");
    CHECK_INT(effects("try 1"), 1);
    CHECK_INT(effects("try 2"), 1);
    CHECK_INT(effects("try 3"), 1);
    fixture_end(f);
}

static int
body_permanent(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("permanent");
    return stet_attempt_fail(a, STET_EPERMANENT, "no such account");
}

static int
permanent(stet_ctx *ctx, stet_bytes input)
{
    const stet_step_options *policy = STET_STEP(.attempts = 5, .first_ms = 1);
    int                      code = stet_step(ctx, NULL, "account", body_permanent, NULL,
                         fixture_is(input, "policy") ? policy : NULL);

    tell_failure(ctx, code);
    STET_TRY(fixture_pause(ctx));
    return code;
}

static void
permanent_is_recorded(const char *input)
{
    static const stet_handler handlers[] = { { "permanent", permanent, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.permanent", input, NULL);
    fixture_replay_with(f, &run, handlers);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ESTEP);
    CHECK_INT(result.attempts, 1);
    stet_result_free(&result);
    CHECK_INT(effects("permanent"), 1);
    CHECK_INT(effects("STET_ESTEP STET_EPERMANENT no such account [step account#1] 1"), 2);
    fixture_end(f);
}

TEST(B2_a_permanent_failure_is_recorded_at_once) { permanent_is_recorded(""); }
TEST(B2_a_permanent_failure_does_not_use_up_a_policy) { permanent_is_recorded("policy"); }

static int
permanent_passed_on(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "account", body_permanent, NULL, NULL);
}

TEST(B2_a_step_that_failed_for_good_fails_the_run_with_code_cause_and_origin)
{
    static const stet_handler handlers[] = { { "account", permanent_passed_on, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.account", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ESTEP);
    CHECK_INT(result.cause, STET_EPERMANENT);
    CHECK_STR(result.error, "no such account");
    CHECK_STR(result.origin, "step account#1");
    CHECK_INT(result.attempts, 1);
    stet_result_free(&result);
    fixture_end(f);
}

/* ---- B2: time -------------------------------------------------------------------------------- */

static int
body_overruns(stet_attempt *a, void *arg)
{
    int64_t deadline_ms = stet_attempt_deadline_ms(a);

    (void)arg;
    effect("overrun %d", deadline_ms < INT64_MAX);
    AWAIT(stet_engine_now_ms(outside) > deadline_ms + 1);
    return stet_attempt_return(a, stet_text("late"));
}

static int
overruns(stet_ctx *ctx, stet_bytes input)
{
    int code = stet_step(ctx, NULL, "slow", body_overruns, NULL,
                         STET_STEP(.attempts = 2, .first_ms = 1, .timeout = "15ms"));

    (void)input;
    if (code == STET_SUSPENDED)
        return code;
    tell_failure(ctx, code);
    return stet_return(ctx, stet_text("too slow"));
}

TEST(B2_a_late_result_counts_as_timed_out_and_is_tried_again)
{
    static const stet_handler handlers[] = { { "overruns", overruns, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    outside = f->engine;
    run = fixture_start(f->engine, "t.overruns", "", NULL);
    EXPECT_RESULT(f->engine, &run, "too slow");
    CHECK_INT(effects("overrun 1"), 2);
    CHECK_INT(
        effects("STET_ESTEP STET_ETIMEOUT step slow took longer than its timeout [step slow#1] 2"),
        1);
    fixture_end(f);
}

static int
overruns_bare(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "slow", body_overruns, NULL, STET_STEP(.timeout = "15ms"));
}

TEST(B2_a_timeout_without_a_policy_ends_the_attempt_of_the_run)
{
    static const stet_handler handlers[] = { { "overruns", overruns_bare, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    outside = f->engine;
    run = fixture_start(f->engine, "t.overruns", "", STET_START(.retry.attempts = 2));
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_EATTEMPTS);
    CHECK_INT(result.attempts, 2);
    CHECK_HAS(result.error, "took longer");
    stet_result_free(&result);
    CHECK_INT(effects("overrun 1"), 2);
    fixture_end(f);
}

static int
body_deadline(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("deadline never %d", stet_attempt_deadline_ms(a) == INT64_MAX);
    return STET_OK;
}

static int
no_deadline(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "free", body_deadline, NULL, NULL));
    return stet_step(ctx, NULL, "bound", body_deadline, NULL, STET_STEP(.timeout = "1h"));
}

TEST(B2_a_body_can_ask_its_deadline)
{
    static const stet_handler handlers[] = { { "deadline", no_deadline, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.deadline", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("deadline never 1"), 1);
    CHECK_INT(effects("deadline never 0"), 1);
    fixture_end(f);
}

static atomic_int_least64_t not_before_ms;

static int
body_not_before(stet_attempt *a, void *arg)
{
    int64_t now_ms = stet_engine_now_ms(outside);

    (void)arg;
    if (not_before_ms == 0) {
        atomic_store(&not_before_ms, now_ms + 60);
        effect("number %u", stet_attempt_number(a));
        return stet_attempt_not_before(a, not_before_ms, "the bank is closed");
    }
    effect("number %u early %d", stet_attempt_number(a), now_ms < not_before_ms);
    return stet_attempt_return(a, stet_text("open"));
}

static int
not_before(stet_ctx *ctx, stet_bytes input)
{
    const stet_step_options *policy = STET_STEP(.attempts = 1, .first_ms = 1);
    stet_bytes               out;

    STET_TRY(stet_step(ctx, &out, "bank", body_not_before, NULL,
                       fixture_is(input, "policy") ? policy : NULL));
    return stet_return(ctx, out);
}

static void
not_before_is_kept(const char *input)
{
    static const stet_handler handlers[] = { { "bank", not_before, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    outside = f->engine;
    run = fixture_start(f->engine, "t.bank", input, STET_START(.retry.attempts = 1));
    EXPECT_RESULT(f->engine, &run, "open");
    CHECK_INT(effects("number 1"), 1);
    CHECK_INT(effects("number 1 early 0"), 1);
    CHECK_INT(fixture_look(f->engine, &run).attempt, 1);
    fixture_end(f);
}

TEST(B2_not_before_waits_and_uses_no_attempt) { not_before_is_kept(""); }
TEST(B2_not_before_uses_no_attempt_of_a_policy) { not_before_is_kept("policy"); }

/* ---- bodies and options that make no sense --------------------------------------------------- */

static int
body_positive(stet_attempt *a, void *arg)
{
    (void)a;
    effect("nonsense");
    return *(int *)arg;
}

static int
nonsense(stet_ctx *ctx, stet_bytes input)
{
    int value = (int)fixture_number(input);
    int code = stet_step(ctx, NULL, "nonsense", body_positive, &value,
                         STET_STEP(.attempts = 3, .first_ms = 1));

    tell_failure(ctx, code);
    return stet_return(ctx, stet_text("done"));
}

TEST(B2_a_body_that_returns_no_code_has_failed_for_good)
{
    static const stet_handler handlers[] = { { "nonsense", nonsense, NULL }, { 0 } };
    static const char *const  values[] = { "7", "-100", "-101" };
    fixture                  *f = fixture_begin();

    fixture_up_with(f, handlers);
    for (int i = 0; i < 3; i++) {
        stet_run_id run = fixture_start(f->engine, "t.nonsense", values[i], NULL);
        char        line[160];

        EXPECT_RESULT(f->engine, &run, "done");
        (void)snprintf(
            line, sizeof line,
            "STET_ESTEP STET_EHANDLER the body of step nonsense returned %s, which is no stet code "
            "[step nonsense#1] 1",
            values[i]);
        CHECK_INT(effects(line), 1);
        CHECK_INT(effects("nonsense"), i + 1);
    }
    fixture_end(f);
}

static int
body_too_big(stet_attempt *a, void *arg)
{
    char data[2000] = { 0 };

    (void)arg;
    effect("too big");
    return stet_attempt_return(a, (stet_bytes){ data, sizeof data });
}

static int
too_big(stet_ctx *ctx, stet_bytes input)
{
    int code = stet_step(ctx, NULL, "big", body_too_big, NULL, NULL);

    (void)input;
    tell_failure(ctx, code);
    return code;
}

TEST(B2_a_result_over_the_limit_has_its_own_code)
{
    static const stet_handler handlers[] = { { "big", too_big, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.big", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ESTEP);
    CHECK_INT(result.cause, STET_ETOOBIG);
    CHECK_HAS(result.error, "payload_bytes_max, 1000");
    stet_result_free(&result);
    CHECK_INT(effects("too big"), 1);
    fixture_end(f);
}

static int
bad_options(stet_ctx *ctx, stet_bytes input)
{
    stet_step_options sizeless = { 0 };

    (void)input;
    CHECK_CODE(stet_step(ctx, NULL, "x", NULL, NULL, NULL), STET_EINVAL);
    CHECK_CODE(stet_step(ctx, NULL, "x", body_effect, (void *)"ran", &sizeless), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "STET_STEP");
    CHECK_CODE(stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.attempts = -1)),
               STET_EINVAL);
    CHECK_CODE(stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.first_ms = -1)),
               STET_EINVAL);
    CHECK_CODE(stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.max_ms = -5)),
               STET_EINVAL);
    CHECK_CODE(
        stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.factor_percent = -5)),
        STET_EINVAL);
    CHECK_CODE(
        stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.jitter_percent = 101)),
        STET_EINVAL);
    CHECK_CODE(
        stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.jitter_percent = -2)),
        STET_EINVAL);
    CHECK_CODE(stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.timeout = "soon")),
               STET_EDURATION);
    CHECK_CODE(stet_step(ctx, NULL, "x", body_effect, (void *)"ran", STET_STEP(.timeout = "-1s")),
               STET_EDURATION);
    return stet_return(ctx, stet_text("unharmed"));
}

TEST(B2_options_out_of_range_are_refused_and_record_nothing)
{
    static const stet_handler handlers[] = { { "bad", bad_options, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.bad", "", NULL);
    EXPECT_RESULT(f->engine, &run, "unharmed");
    CHECK_INT(effects("ran"), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step", NULL), 0);
    fixture_end(f);
}
