/* Futures (B18). tsan: yes */
#include "fixture.h"

static gate meeting = GATE_INIT;

static int
body_meets(stet_attempt *a, void *arg)
{
    effect("meets");
    gate_pass(&meeting);
    return stet_attempt_return_json(a, "%d", *(int *)arg);
}

static int
body_number(stet_attempt *a, void *arg)
{
    effect("number %d", *(int *)arg);
    return stet_attempt_return_json(a, "%d", *(int *)arg);
}

static int
parallel_steps(stet_ctx *ctx, stet_bytes input)
{
    static int   numbers[3] = { 1, 2, 3 };
    stet_future *futures[3];
    long         total = 0;

    (void)input;
    for (int i = 0; i < 3; i++)
        STET_TRY(stet_step_start(ctx, &futures[i], "meet", body_meets, &numbers[i], NULL));
    STET_TRY(stet_await_all(ctx, futures, 3));
    for (int i = 0; i < 3; i++) {
        stet_bytes out;

        STET_TRY(stet_await(ctx, &out, futures[i]));
        if (fixture_number(out) != i + 1)
            return stet_fail(ctx, STET_EPERMANENT, "result %d is %ld", i, fixture_number(out));
        total += fixture_number(out);
    }
    STET_TRY(fixture_pause(ctx));
    return stet_return_json(ctx, "%ld", total);
}

TEST(B18_steps_run_beside_each_other_and_are_not_run_again)
{
    static const stet_handler handlers[] = { { "steps", parallel_steps, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    gate_await(&meeting, 3); /* all three are in their bodies at one time */
    gate_open(&meeting);
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "6");
    CHECK_INT(effects("meets"), 3);
    fixture_end(f);
}

static int
single_slot(stet_ctx *ctx, stet_bytes input)
{
    static int   numbers[6] = { 0, 1, 2, 3, 4, 5 };
    stet_future *futures[6];
    long         total = 0;

    (void)input;
    for (int i = 0; i < 6; i++)
        STET_TRY(stet_step_start(ctx, &futures[i], "number", body_number, &numbers[i], NULL));
    for (int i = 5; i >= 0; i--) {
        stet_bytes out;

        STET_TRY(stet_await(ctx, &out, futures[i]));
        total = total * 10 + fixture_number(out);
    }
    return stet_return_json(ctx, "%ld", total);
}

TEST(B18_futures_of_steps_complete_with_one_slot)
{
    static const stet_handler handlers[] = { { "one", single_slot, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[3];

    f->options.concurrency = 1;
    fixture_up_with(f, handlers);
    for (int i = 0; i < 3; i++)
        runs[i] = fixture_start(f->engine, "t.one", "", NULL);
    for (int i = 0; i < 3; i++)
        EXPECT_RESULT(f->engine, &runs[i], "543210");
    CHECK_INT(effects("number 3"), 3);
    fixture_end(f);
}

/* ---- any ------------------------------------------------------------------------------------- */

static int
body_tell(stet_attempt *a, void *ids)
{
    stet_awakeable_id *id = ids;

    (void)a;
    effect("ids %s %s", id[0].text, id[1].text);
    return STET_OK;
}

static void
told(stet_awakeable_id ids[2])
{
    char *text, *at;

    AWAIT((text = effects_text(), at = strstr(text, "ids "), at != NULL || (free(text), false)));
    CHECK_INT(sscanf(at, "ids %39s %39s", ids[0].text, ids[1].text), 2);
    free(text);
}

static int
first_of_two(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id ids[2];
    stet_future      *futures[2];
    stet_bytes        value;
    size_t            chosen = 99;
    int               code;

    STET_TRY(stet_awakeable(ctx, &ids[0], &futures[0], "one"));
    STET_TRY(stet_awakeable(ctx, &ids[1], &futures[1], "two"));
    STET_TRY(stet_step(ctx, NULL, "tell", body_tell, ids, NULL));
    code = stet_await_any(ctx, &chosen, futures, 2, input.len > 0 ? "30ms" : NULL);
    if (code == STET_SUSPENDED)
        return code;
    effect("chosen %zu %s", chosen, code == STET_OK ? "ok" : stet_code_name(code));
    STET_TRY(fixture_pause(ctx));
    if (code == STET_ETIMEOUT)
        return stet_return(ctx, stet_text("nobody"));
    STET_TRY(stet_await(ctx, &value, futures[chosen]));
    return stet_return(ctx, value);
}

static const stet_handler choosers[] = { { "choose", first_of_two, NULL }, { 0 } };

TEST(B18_the_first_is_chosen_and_the_choice_is_replayed)
{
    fixture          *f = fixture_begin();
    stet_run_id       run;
    stet_awakeable_id ids[2];

    fixture_up_with(f, choosers);
    run = fixture_start(f->engine, "t.choose", "", NULL);
    told(ids);
    CHECK_OK(stet_resolve(f->engine, ids[1].text, stet_text("second")));
    fixture_paused(f->engine, &run);
    CHECK_OK(stet_resolve(f->engine, ids[0].text, stet_text("first")));
    fixture_replay_with(f, &run, choosers);
    EXPECT_RESULT(f->engine, &run, "second");
    CHECK(effects("chosen 1 ok") >= 2);
    CHECK_INT(effects("chosen 0 ok"), 0);
    fixture_end(f);
}

TEST(B18_a_timeout_of_any_is_replayed_although_all_have_settled_since)
{
    fixture          *f = fixture_begin();
    stet_run_id       run;
    stet_awakeable_id ids[2];

    fixture_up_with(f, choosers);
    run = fixture_start(f->engine, "t.choose", "limit", NULL);
    told(ids);
    fixture_paused(f->engine, &run);
    CHECK_OK(stet_resolve(f->engine, ids[0].text, stet_text("late")));
    CHECK_OK(stet_resolve(f->engine, ids[1].text, stet_text("late")));
    fixture_replay_with(f, &run, choosers);
    EXPECT_RESULT(f->engine, &run, "nobody");
    CHECK(effects("chosen 99 STET_ETIMEOUT") >= 2);
    fixture_end(f);
}

static int
mixed(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *futures[3];
    size_t            chosen;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &futures[0], "never"));
    STET_TRY(stet_sleep_start(ctx, &futures[1], "long", "1h"));
    STET_TRY(stet_sleep_start(ctx, &futures[2], "short", "20ms"));
    STET_TRY(stet_await_any(ctx, &chosen, futures, 3, "1h"));
    return stet_return_json(ctx, "%zu", chosen);
}

TEST(B18_sleeps_and_awakeables_can_be_awaited_together)
{
    static const stet_handler handlers[] = { { "mixed", mixed, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.mixed", "", NULL);
    EXPECT_RESULT(f->engine, &run, "2");
    fixture_end(f);
}

static int
twice(stet_ctx *ctx, stet_bytes input)
{
    if (fixture_is(input, "3"))
        return stet_fail(ctx, STET_EPERMANENT, "three is refused");
    return stet_return_json(ctx, "%ld", 2 * fixture_number(input));
}

static int
fan_out(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[8];
    long         total = 0, failed = 0;

    (void)input;
    effect("enter");
    for (int i = 0; i < 8; i++)
        STET_TRY(stet_call_start(ctx, &futures[i], "t.twice",
                                 stet_text(stet_ctx_printf(ctx, "%d", i)), NULL));
    STET_TRY(stet_await_all(ctx, futures, 8)); /* although one of them fails */
    for (int i = 0; i < 8; i++) {
        stet_bytes out;
        int        code = stet_await(ctx, &out, futures[i]);

        if (code == STET_ECHILD && i == 3)
            failed++;
        else {
            STET_TRY(code);
            total += fixture_number(out);
        }
    }
    return stet_return_json(ctx, "[%ld,%ld]", total, failed);
}

TEST(B18_calls_run_beside_each_other_and_one_failure_does_not_hide_the_others)
{
    static const stet_handler handlers[] = { { "fan", fan_out, NULL },
                                             { "twice", twice, NULL },
                                             { 0 } };

    for (int i = 0; i < 2; i++) {
        fixture    *f = fixture_begin();
        stet_run_id run;
        int         before;

        if (i == 1)
            f->options.parked_max = STET_NONE;
        fixture_up_with(f, handlers);
        before = fixture_count(f->engine, NULL);
        run = fixture_start(f->engine, "t.fan", "", NULL);
        EXPECT_RESULT(f->engine, &run, "[50,1]");
        CHECK_INT(fixture_count(f->engine, NULL) - before, 9);
        fixture_end(f);
    }
}

/* ---- failing steps --------------------------------------------------------------------------- */

static int
body_stubborn(stet_attempt *a, void *arg)
{
    effect("stubborn %u", stet_attempt_number(a));
    return stet_attempt_number(a) <= (uint32_t)*(int *)arg ? STET_ERETRY : STET_OK;
}

static int
retried_futures(stet_ctx *ctx, stet_bytes input)
{
    static int   two = 2, nine = 9, one = 1;
    stet_future *futures[3];
    int          code;

    (void)input;
    STET_TRY(stet_step_start(ctx, &futures[0], "mends", body_stubborn, &two,
                             STET_STEP(.attempts = 3, .first_ms = 3)));
    STET_TRY(stet_step_start(ctx, &futures[1], "never", body_stubborn, &nine,
                             STET_STEP(.attempts = 2, .first_ms = 3)));
    STET_TRY(stet_step_start(ctx, &futures[2], "number", body_number, &one, NULL));
    STET_TRY(stet_await_all(ctx, futures, 3));
    STET_TRY(stet_await(ctx, NULL, futures[0]));
    STET_TRY(stet_await(ctx, NULL, futures[2]));
    code = stet_await(ctx, NULL, futures[1]);
    if (code == STET_ESTEP && stet_failure_get(ctx)->attempts == 2)
        return stet_return(ctx, stet_text("as told"));
    return code;
}

TEST(B18_futures_of_steps_follow_their_policies)
{
    static const stet_handler handlers[] = { { "retried", retried_futures, NULL }, { 0 } };

    for (int i = 0; i < 2; i++) {
        fixture    *f = fixture_begin();
        stet_run_id run;

        if (i == 1)
            f->options.parked_max = STET_NONE;
        fixture_up_with(f, handlers);
        run = fixture_start(f->engine, "t.retried", "", NULL);
        EXPECT_RESULT(f->engine, &run, "as told");
        CHECK_INT(effects("stubborn 1"), 2 * (i + 1));
        CHECK_INT(effects("stubborn 2"), 2 * (i + 1));
        CHECK_INT(effects("stubborn 3"), 1 * (i + 1));
        CHECK_INT(effects("number 1"), 1 * (i + 1));
        fixture_end(f);
    }
}

static atomic_int failures_left;

static int
body_passing(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("passing");
    if (atomic_fetch_sub(&failures_left, 1) > 0)
        return stet_attempt_fail(a, STET_ERETRY, "not yet");
    return stet_attempt_return(a, stet_text("done"));
}

static int
passing_future(stet_ctx *ctx, stet_bytes input)
{
    static int   five = 5;
    stet_future *passing, *steady;
    stet_bytes   out;

    (void)input;
    STET_TRY(stet_step_start(ctx, &steady, "number", body_number, &five, NULL));
    STET_TRY(stet_await(ctx, NULL, steady));
    STET_TRY(stet_step_start(ctx, &passing, "passing", body_passing, NULL, NULL));
    STET_TRY(stet_await(ctx, &out, passing));
    return stet_return(ctx, out);
}

TEST(B18_a_passing_failure_of_a_future_ends_the_attempt_of_the_run)
{
    static const stet_handler handlers[] = { { "passing", passing_future, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    atomic_store(&failures_left, 2);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.passing", "", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(effects("passing"), 3);
    CHECK_INT(effects("number 5"), 1);
    CHECK_INT(fixture_look(f->engine, &run).attempt, 3);
    fixture_end(f);
}

static gate second = GATE_INIT;

static int
body_breaks_once(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("breaks");
    if (atomic_fetch_sub(&failures_left, 1) > 0)
        return stet_attempt_fail(a, STET_ERETRY, "not yet");
    gate_pass(&second);
    return stet_attempt_return(a, stet_text("late"));
}

static int
broken_race(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];
    stet_bytes   out;
    size_t       first;
    const char  *way;

    (void)input;
    STET_TRY(fixture_hand_out(ctx, &both[1]));
    STET_TRY(stet_step_start(ctx, &both[0], "breaks", body_breaks_once, NULL, NULL));
    STET_TRY(stet_await_any(ctx, &first, both, 2, NULL));
    way = first == 0 ? "left" : "right";
    STET_TRY(stet_step(ctx, NULL, way, body_effect, (void *)(uintptr_t)way, NULL));
    STET_TRY(stet_await(ctx, &out, both[0]));
    return stet_return(ctx, out);
}

/* It went on with the one that had failed, unrecorded; the next attempt went the other way and was
 * stuck. */
TEST(B18_nobody_goes_on_from_a_first_one_that_failed_passingly)
{
    static const stet_handler handlers[] = { { "race", broken_race, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    atomic_store(&failures_left, 1);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.race", "", NULL);
    effects_await("breaks", 2);
    CHECK_OK(stet_resolve(f->engine, handed_out, stet_text("")));
    effects_await("right", 1);
    gate_open(&second);
    EXPECT_RESULT(f->engine, &run, "late");
    CHECK_INT(effects("left"), 0);
    CHECK_INT(effects("right"), 1);
    CHECK_INT(fixture_look(f->engine, &run).attempt, 2);
    fixture_end(f);
}

static int
unawaited(stet_ctx *ctx, stet_bytes input)
{
    static int   one = 1;
    stet_future *future;

    (void)input;
    STET_TRY(stet_step_start(ctx, &future, "meet", body_meets, &one, NULL));
    return stet_return(ctx, stet_text("did not wait"));
}

TEST(B18_a_handler_that_returns_before_its_step_ends_neither_crashes_nor_loses_the_result)
{
    static const stet_handler handlers[] = { { "unawaited", unawaited, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.unawaited", "", NULL);
    gate_await(&meeting, 1);
    gate_open(&meeting);
    EXPECT_RESULT(f->engine, &run, "did not wait");
    CHECK_INT(effects("meets"), 1);
    fixture_end(f);
}

static int
again_and_again(stet_ctx *ctx, stet_bytes input)
{
    static int   four = 4;
    stet_future *future, *sleep;
    stet_bytes   a, b;

    (void)input;
    STET_TRY(stet_step_start(ctx, &future, "number", body_number, &four, NULL));
    STET_TRY(stet_await(ctx, &a, future));
    STET_TRY(stet_await(ctx, &b, future));
    STET_TRY(stet_sleep_start(ctx, &sleep, "nap", "5ms"));
    STET_TRY(stet_await(ctx, NULL, sleep));
    STET_TRY(stet_await(ctx, NULL, sleep));
    return stet_return_json(ctx, "%ld", fixture_number(a) * 10 + fixture_number(b));
}

TEST(B18_a_future_can_be_awaited_again)
{
    static const stet_handler handlers[] = { { "again", again_and_again, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.again", "", NULL);
    EXPECT_RESULT(f->engine, &run, "44");
    CHECK_INT(effects("number 4"), 1);
    fixture_end(f);
}

static int
bad_waits(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future = NULL, *none[2] = { NULL, NULL };
    size_t       chosen;

    (void)input;
    CHECK_CODE(stet_await_any(ctx, &chosen, none, 0, NULL), STET_EINVAL);
    CHECK_CODE(stet_await_any(ctx, &chosen, NULL, 1, NULL), STET_EINVAL);
    CHECK_CODE(stet_await_any(ctx, &chosen, none, 2, NULL), STET_EINVAL);
    CHECK_CODE(stet_await_all(ctx, none, 0), STET_EINVAL);
    CHECK_CODE(stet_await(ctx, NULL, NULL), STET_EINVAL);
    CHECK_CODE(stet_sleep_start(ctx, &future, "nap", "soon"), STET_EDURATION);
    CHECK_CODE(stet_sleep_start(ctx, &future, "", "1s"), STET_ENAME);
    CHECK(future == NULL);
    CHECK_CODE(stet_call_start(ctx, &future, "t.nobody", stet_text(""), NULL), STET_ENOHANDLER);
    CHECK(future == NULL);
    CHECK_CODE(stet_step_start(ctx, &future, "x", NULL, NULL, NULL), STET_EINVAL);
    CHECK(future == NULL);
    STET_TRY(stet_sleep_start(ctx, &future, "nap", "1ms"));
    CHECK_CODE(stet_await_any(ctx, &chosen, &future, 1, "soon"), STET_EDURATION);
    STET_TRY(stet_await(ctx, NULL, future));
    return stet_return(ctx, stet_text("unharmed"));
}

TEST(B18_bad_waits_are_refused_and_record_nothing)
{
    static const stet_handler handlers[] = { { "bad", bad_waits, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.bad", "", NULL);
    EXPECT_RESULT(f->engine, &run, "unharmed");
    CHECK_INT(fixture_facts(f->engine, &run, "await any", NULL), 0);
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    fixture_end(f);
}
