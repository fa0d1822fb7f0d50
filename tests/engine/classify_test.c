/* Classifiers (C2): what a failure means, said per handler or for all. tsan: yes */
#include "engine/engine.h"
#include "fixture.h"

static atomic_int executions;
static int64_t    later_ms;

static int
h_busy(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("busy %u", stet_info(ctx)->attempt);
    atomic_fetch_add(&executions, 1);
    return stet_fail(ctx, STET_EBUSY, "the bank is closed");
}

static int
b_breaks(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_fail(a, STET_CODE_USER - 7, "error 7");
}

static int
h_breaks(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "call", b_breaks, NULL, NULL);
}

/* Says itself what it means. */
static int
h_says(stet_ctx *ctx, stet_bytes input)
{
    if (fixture_is(input, "permanent"))
        return stet_fail(ctx, STET_EPERMANENT, "no");
    if (atomic_fetch_add(&executions, 1) > 0)
        return stet_return(ctx, stet_text("came back"));
    return stet_defer_until(ctx, 1, "later");
}

/* Comes back once. */
static int
h_later(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    if (atomic_fetch_add(&executions, 1) > 0) {
        CHECK_INT(stet_info(ctx)->attempt, 1);
        return stet_return(ctx, stet_text("came back"));
    }
    return STET_EBUSY;
}

/* What it says, and that it saw what it should. */
static int
c_as_told(void *verdict, const stet_failed *f, int64_t *not_before_ms)
{
    CHECK(f->run != NULL && f->handler != NULL && f->text != NULL);
    CHECK(f->attempt >= 1 && f->attempt <= f->attempts_max);
    effect("asked about %s %d %u of %u %s", f->handler, f->code, f->attempt, f->attempts_max,
           f->origin != NULL ? f->origin : "-");
    *not_before_ms = later_ms;
    return *(int *)verdict;
}

static int never = STET_EPERMANENT, none = STET_OK, broken = STET_EINVAL, again = STET_ERETRY,
           later = STET_EDEFER;

static const stet_handler_options says_never = { .classify = c_as_told, .classify_arg = &never };
static const stet_handler_options says_none = { .classify = c_as_told, .classify_arg = &none };
static const stet_handler_options says_again = { .classify = c_as_told, .classify_arg = &again };
static const stet_handler_options says_later = { .classify = c_as_told, .classify_arg = &later };
static const stet_handler_options is_broken = { .classify = c_as_told, .classify_arg = &broken };

static const stet_handler handlers[] = { { "never", h_busy, &says_never },
                                         { "none", h_busy, &says_none },
                                         { "again", h_busy, &says_again },
                                         { "broken", h_busy, &is_broken },
                                         { "later", h_later, &says_later },
                                         { "untimed", h_busy, &says_later },
                                         { "step", h_breaks, &says_never },
                                         { "said", h_says, &says_never },
                                         { 0 } };

static void
up(fixture *f)
{
    f->options.run_attempts = 2;
    f->options.retry_first_ms = f->options.retry_max_ms = 1;
    fixture_up_with(f, handlers);
}

static void
expect_failed(fixture *f, const char *handler, int code, int times)
{
    stet_run_id run = fixture_start(f->engine, handler, "", NULL);
    stet_result result = EXPECT_END(f->engine, &run, STET_ERUN);

    CHECK_INT(result.code, code);
    CHECK_STR(result.error, "the bank is closed");
    CHECK_INT(atomic_exchange(&executions, 0), times);
    stet_result_free(&result);
}

TEST(C2_a_classifier_of_the_handler_sends_a_failure_to_the_dead_letters)
{
    fixture *f = fixture_begin();

    up(f);
    expect_failed(f, "t.never", STET_EBUSY, 1);
    CHECK_INT(effects("asked about t.never -3 1 of 2 -"), 1);
    fixture_end(f);
}

TEST(C2_one_for_all_decides_where_the_handlers_own_has_no_opinion)
{
    fixture *f = fixture_begin();

    f->options.classify = c_as_told;
    f->options.classify_arg = &never;
    up(f);
    expect_failed(f, "t.none", STET_EBUSY, 1);
    CHECK_INT(effects("asked about t.none -3 1 of 2 -"), 2);
    expect_failed(f, "t.again", STET_EATTEMPTS, 2);
    fixture_end(f);
}

TEST(C2_a_classifier_that_fails_is_reported_and_the_default_applies)
{
    fixture *f = fixture_begin();

    f->options.classify = c_as_told;
    f->options.classify_arg = &never;
    up(f);
    expect_failed(f, "t.broken", STET_EATTEMPTS, 2);
    CHECK(fixture_logged(f, "the classifier of the handler returned -60") > 0);
    fixture_end(f);
}

TEST(C2_a_failure_can_be_deferred_without_using_an_attempt)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    up(f);
    later_ms = stet_engine_now_ms(f->engine) + 50;
    run = fixture_start(f->engine, "t.later", "", NULL);
    EXPECT_RESULT(f->engine, &run, "came back");
    CHECK(stet_engine_now_ms(f->engine) >= later_ms);
    CHECK_INT(fixture_facts(f->engine, &run, "deferred", NULL), 1);
    fixture_end(f);
}

/* Without a time it would come back at once, for ever. */
TEST(C2_a_classifier_that_defers_without_a_time_is_reported_and_the_default_applies)
{
    static const int64_t none_ms[] = { 0, -5 };
    fixture             *f = fixture_begin();

    up(f);
    for (size_t i = 0; i < sizeof none_ms / sizeof *none_ms; i++) {
        later_ms = none_ms[i];
        expect_failed(f, "t.untimed", STET_EATTEMPTS, 2);
    }
    CHECK(fixture_logged(f, "of the handler returned STET_EDEFER without a time") > 0);
    fixture_end(f);
}

TEST(C2_I2_a_classifier_that_defers_to_the_end_of_time_leaves_a_run_that_wakes)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    up(f);
    later_ms = INT64_MAX;
    run = fixture_start(f->engine, "t.later", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    CHECK_HAS(fixture_why(f->engine, &run).text, "it is tried again in ");
    CHECK_INT(fixture_sound(f->engine), 1);
    fixture_end(f);
}

TEST(I1_C2_why_of_a_deferral_says_until_when_and_counts_no_attempt)
{
    fixture        *f = fixture_begin();
    stet_run_id     run;
    fixture_verdict why;

    up(f);
    later_ms = stet_engine_now_ms(f->engine) + 3600000;
    run = fixture_start(f->engine, "t.later", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    why = fixture_why(f->engine, &run);
    CHECK_HAS(why.text, "was deferred");
    CHECK_HAS(why.text, "it is tried again in ");
    CHECK(strstr(why.text, "attempt") == NULL);
    /* What failed is not what it waits for. */
    CHECK_CODE(stet_wait(f->engine, NULL, &run, 1), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "it is retrying: ");
    fixture_end(f);
}

TEST(C2_a_step_without_a_policy_is_judged_by_what_its_body_gave)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    up(f);
    run = fixture_start(f->engine, "t.step", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_CODE_USER - 7);
    CHECK_STR(result.error, "error 7");
    CHECK_STR(result.origin, "step call#1");
    stet_result_free(&result);
    CHECK_INT(effects("asked about t.step -1007 1 of 2 step call#1"), 1);
    fixture_end(f);
}

TEST(C2_what_the_handler_says_itself_nobody_else_is_asked_about)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    char       *asked;

    up(f);
    run = fixture_start(f->engine, "t.said", "permanent", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    run = fixture_start(f->engine, "t.said", "", NULL);
    EXPECT_RESULT(f->engine, &run, "came back");
    asked = effects_text();
    CHECK_STR(asked, "");
    free(asked);
    fixture_end(f);
}
