/* Sleeping (B3), calling (B4), sending (B5), lineage of children (B16). tsan: yes */
#include "fixture.h"

static stet_engine *outside;

static int
echo(stet_ctx *ctx, stet_bytes input)
{
    effect("echo");
    return stet_return(ctx, input);
}

/* ---- B3 -------------------------------------------------------------------------------------- */

static int
sleeps(stet_ctx *ctx, stet_bytes input)
{
    char   *duration = stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data);
    int64_t before, after, ms;

    CHECK_OK(stet_duration_parse(&ms, duration));
    STET_TRY(stet_now(ctx, &before));
    STET_TRY(stet_sleep(ctx, "nap", duration));
    STET_TRY(stet_now(ctx, &after));
    if (after - before < ms)
        return stet_fail(ctx, STET_EPERMANENT, "woke %lld ms early",
                         (long long)(ms - (after - before)));
    return stet_return(ctx, stet_text("awake"));
}

static const stet_handler sleepers[] = { { "sleep", sleeps, NULL }, { 0 } };

TEST(B3_sleeps_never_wake_early)
{
    static const char *const durations[] = { "0", "1ms", "20ms", "0.03s", "75 MS" };
    fixture                 *f = fixture_begin();
    stet_run_id              runs[5];

    fixture_up_with(f, sleepers);
    for (int i = 0; i < 5; i++)
        runs[i] = fixture_start(f->engine, "t.sleep", durations[i], NULL);
    for (int i = 0; i < 5; i++)
        EXPECT_RESULT(f->engine, &runs[i], "awake");
    fixture_end(f);
}

/* A run that slept when its worker went, for at least so long. One that a slow machine let
 * wake before proves nothing: then another one, for twice as long. */
static stet_run_id
asleep_alone(fixture *f, int64_t *sleep_ms)
{
    stet_run_id run;
    stet_status status;
    char        duration[32];

    for (;; *sleep_ms *= 2) {
        (void)snprintf(duration, sizeof duration, "%lldms", (long long)*sleep_ms);
        fixture_up_with(f, sleepers);
        run = fixture_start(f->engine, "t.sleep", duration, NULL);
        AWAIT(fixture_facts(f->engine, &run, "sleep", "nap") == 1);
        fixture_down(f);
        f->engine = fixture_open(f);
        status = fixture_look(f->engine, &run).status;
        fixture_close(f);
        if (status == STET_STATUS_SUSPENDED)
            return run;
    }
}

TEST(B3_a_sleep_survives_a_restart_and_does_not_begin_anew)
{
    fixture    *f = fixture_begin();
    int64_t     sleep_ms = 300;
    stet_run_id run = asleep_alone(f, &sleep_ms);

    fixture_up_with(f, sleepers);
    EXPECT_RESULT(f->engine, &run, "awake");
    CHECK_INT(fixture_facts(f->engine, &run, "sleep", "nap"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "timer fired", NULL), 1);
    fixture_end(f);
}

TEST(B3_a_sleep_that_ended_while_no_worker_lived_ends_at_the_next_start)
{
    fixture    *f = fixture_begin();
    int64_t     sleep_ms = 150, from;
    stet_run_id run = asleep_alone(f, &sleep_ms);

    from = fixture_mono_ms();
    AWAIT(fixture_mono_ms() > from + sleep_ms + 50);
    fixture_up_with(f, sleepers);
    EXPECT_RESULT(f->engine, &run, "awake");
    fixture_end(f);
}

TEST(B3_sleeping_runs_are_claimed_by_nobody_and_need_no_memory)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[60];
    stet_health health;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, sleepers);
    for (int i = 0; i < 60; i++)
        runs[i] = fixture_start(f->engine, "t.sleep", "1h", NULL);
    for (int i = 0; i < 60; i++)
        fixture_await_status(f->engine, &runs[i], STET_STATUS_SUSPENDED);
    AWAIT(stet_health_get(f->engine, &health) == STET_OK && health.in_flight == 0);
    CHECK_STR(fixture_look(f->engine, &runs[7]).worker, "");
    CHECK_HAS(fixture_look(f->engine, &runs[7]).reason, "nap");
    fixture_end(f);
}

static int
bad_sleeps(stet_ctx *ctx, stet_bytes input)
{
    static const char *const texts[] = { "",     "soon", "-5s", "5 parsecs", "99999999999999d",
                                         "1h30", "nan",  "0x10" };

    (void)input;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK_CODE(stet_sleep(ctx, "nap", texts[i]), STET_EDURATION);
        CHECK(stet_last_error()[0] != '\0');
    }
    CHECK_CODE(stet_sleep(ctx, "nap", NULL), STET_EDURATION);
    CHECK_CODE(stet_sleep_ms(ctx, "nap", -1), STET_EDURATION);
    CHECK_CODE(stet_sleep_ms(ctx, "nap", INT64_MIN), STET_EDURATION);
    CHECK_CODE(stet_sleep_ms(ctx, "nap", INT64_MAX), STET_EDURATION);
    STET_TRY(stet_sleep_ms(ctx, "nap", 1));
    return stet_return(ctx, stet_text("slept"));
}

TEST(B3_bad_durations_are_refused_with_what_was_expected_and_record_nothing)
{
    static const stet_handler handlers[] = { { "bad", bad_sleeps, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.bad", "", NULL);
    EXPECT_RESULT(f->engine, &run, "slept");
    CHECK_INT(fixture_facts(f->engine, &run, "sleep", NULL), 1);
    fixture_end(f);
}

/* ---- B4 -------------------------------------------------------------------------------------- */

static int
calls(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    STET_TRY(stet_call(ctx, &out, "t.echo", input, NULL));
    return stet_return(ctx, out);
}

TEST(B4_a_call_gives_the_result_of_the_child)
{
    static const stet_handler handlers[] = { { "calls", calls, NULL },
                                             { "echo", echo, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.calls", "hello", NULL);
    EXPECT_RESULT(f->engine, &run, "hello");
    run = fixture_start(f->engine, "t.calls", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("echo"), 2);
    CHECK_INT(fixture_count(f->engine, NULL), 4);
    fixture_end(f);
}

static int
deep(stet_ctx *ctx, stet_bytes input)
{
    long       n = fixture_number(input);
    stet_bytes out;

    if (n == 0)
        return stet_return(ctx, stet_text("0"));
    STET_TRY(stet_call(ctx, &out, "t.deep", stet_text(stet_ctx_printf(ctx, "%ld", n - 1)), NULL));
    return stet_return_json(ctx, "%ld", fixture_number(out) + 1);
}

TEST(B4_calls_nest_deeper_than_there_are_slots)
{
    static const stet_handler handlers[] = { { "deep", deep, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.concurrency = 1;
    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.deep", "12", NULL);
    EXPECT_RESULT(f->engine, &run, "12");
    CHECK_INT(fixture_count(f->engine, NULL), 13);
    fixture_end(f);
}

static int
body_fails(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_fail(a, STET_EPERMANENT, "out of stock");
}

static int
fails_in_step(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "take", body_fails, NULL, NULL);
}

static int
fails_itself(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "never heard of it");
}

static int
fails_passing(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("passing");
    return stet_fail(ctx, STET_EBUSY, "busy");
}

static void
tell_child_failure(stet_ctx *ctx, int code)
{
    const stet_failure *failure = stet_failure_get(ctx);

    effect("%s %s %s %d", stet_code_name(code), stet_code_name(failure->cause), failure->text,
           failure->origin != NULL && strncmp(failure->origin, "child run_", 10) == 0);
}

static int
calls_failing(stet_ctx *ctx, stet_bytes input)
{
    static const char *const children[] = { "t.step", "t.self", "t.passing" };

    (void)input;
    for (int i = 0; i < 3; i++) {
        stet_bytes out = { "x", 1 };
        int        code =
            stet_call(ctx, &out, children[i], stet_text(""), STET_START(.retry.attempts = 2));

        if (code == STET_SUSPENDED)
            return code;
        CHECK_CODE(code, STET_ECHILD);
        CHECK(out.data == NULL);
        tell_child_failure(ctx, code);
    }
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("told"));
}

TEST(B4_a_failed_child_gives_its_code_text_and_origin_identically_on_replay)
{
    static const stet_handler handlers[] = { { "parent", calls_failing, NULL },
                                             { "step", fails_in_step, NULL },
                                             { "self", fails_itself, NULL },
                                             { "passing", fails_passing, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.parent", "", NULL);
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "told");
    CHECK(effects("STET_ECHILD STET_ESTEP out of stock 1") >= 2);
    CHECK(effects("STET_ECHILD STET_EPERMANENT never heard of it 1") >= 2);
    CHECK(effects("STET_ECHILD STET_EATTEMPTS busy 1") >= 2);
    CHECK_INT(effects("passing"), 2);
    CHECK_INT(fixture_count(f->engine, NULL), 4);
    fixture_end(f);
}

static int
calls_waiting(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;
    int        code;

    effect("parent enters");
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)"before", NULL));
    code = stet_call(ctx, &out, "t.child", input,
                     STET_START(.labels = (const char *const[]){ "who=child", NULL }));
    if (code == STET_ECHILD)
        return stet_return_json(ctx, "%Q", stet_code_name(stet_failure_get(ctx)->cause));
    STET_TRY(code);
    return stet_return(ctx, out);
}

static const stet_handler waiting[] = { { "parent", calls_waiting, NULL },
                                        { "child", h_pauses, NULL },
                                        { 0 } };

static int
take_id(void *arg, const stet_run_info *info)
{
    CHECK_OK(stet_run_id_parse(arg, info->id));
    return 0;
}

static stet_run_id
only_child(stet_engine *e)
{
    stet_run_id child = { "" };

    AWAIT(fixture_count(e, STET_FILTER(.label = "who=child")) == 1);
    CHECK_OK(stet_run_list(e, STET_FILTER(.label = "who=child"), take_id, &child));
    return child;
}

TEST(B4_a_restart_while_the_child_runs_never_makes_two_children)
{
    fixture    *f = fixture_begin();
    stet_run_id run, child;

    fixture_up_with(f, waiting);
    run = fixture_start(f->engine, "t.parent", "one", NULL);
    child = only_child(f->engine);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    for (int i = 0; i < 2; i++) {
        fixture_paused(f->engine, &child);
        fixture_down(f);
        fixture_up_with(f, waiting);
    }
    CHECK_STR(fixture_look(f->engine, &child).parent, run.text);
    CHECK_HAS(fixture_look(f->engine, &run).reason, child.text);
    fixture_go_on(f->engine, &child);
    EXPECT_RESULT(f->engine, &run, "one");
    CHECK_INT(effects("before"), 1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t.child")), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "call", "t.child"), 1);
    fixture_end(f);
}

TEST(B4_the_result_of_a_child_that_ended_without_the_parents_worker_is_kept)
{
    static const stet_handler only_child_code[] = { { "child", h_pauses, NULL }, { 0 } };
    const fixture_service     both[] = { { "t", waiting, false, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, child;

    fixture_up(f, both);
    run = fixture_start(f->engine, "t.parent", "two", NULL);
    child = only_child(f->engine);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_paused(f->engine, &child);
    fixture_down(f);
    fixture_up_with(f, only_child_code);
    fixture_go_on(f->engine, &child);
    EXPECT_RESULT(f->engine, &child, "two");
    CHECK_CODE(stet_result_get(f->engine, NULL, &run), STET_EOPEN);
    fixture_down(f);
    fixture_up(f, both);
    EXPECT_RESULT(f->engine, &run, "two");
    fixture_end(f);
}

TEST(B4_a_cancelled_child_is_an_error_of_the_call)
{
    fixture    *f = fixture_begin();
    stet_run_id run, child;

    fixture_up_with(f, waiting);
    run = fixture_start(f->engine, "t.parent", "x", NULL);
    child = only_child(f->engine);
    fixture_paused(f->engine, &child);
    CHECK_OK(stet_cancel(f->engine, &child, "tester", "no longer wanted"));
    EXPECT_RESULT(f->engine, &run, "\"STET_ECANCELLED\"");
    fixture_end(f);
}

static atomic_int parent_failures;

static int
calls_then_fails(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    STET_TRY(stet_call(ctx, &out, "t.echo", input, NULL));
    if (atomic_fetch_sub(&parent_failures, 1) > 0)
        return stet_fail(ctx, STET_ERETRY, "try again");
    return stet_return(ctx, out);
}

TEST(B4_a_retried_parent_does_not_call_again)
{
    static const stet_handler handlers[] = { { "parent", calls_then_fails, NULL },
                                             { "echo", echo, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    atomic_store(&parent_failures, 2);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.parent", "x", NULL);
    EXPECT_RESULT(f->engine, &run, "x");
    CHECK_INT(effects("echo"), 1);
    CHECK_INT(fixture_look(f->engine, &run).attempt, 3);
    fixture_end(f);
}

static int
calls_many(stet_ctx *ctx, stet_bytes input)
{
    long total = 0;

    (void)input;
    for (int i = 0; i < 15; i++) {
        stet_bytes out;

        STET_TRY(stet_call(ctx, &out, "t.echo", stet_text(stet_ctx_printf(ctx, "%d", i)), NULL));
        total += fixture_number(out);
    }
    return stet_return_json(ctx, "%ld", total);
}

TEST(B4_the_nth_call_gets_the_nth_result_and_each_child_runs_once)
{
    static const stet_handler handlers[] = { { "many", calls_many, NULL },
                                             { "echo", echo, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.many", "", NULL);
    EXPECT_RESULT(f->engine, &run, "105");
    CHECK_INT(effects("echo"), 15);
    CHECK_INT(fixture_count(f->engine, NULL), 16);
    fixture_end(f);
}

static int
bad_calls(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id run;
    char        large[300] = "t.";

    (void)input;
    memset(large + 2, 'x', 290);
    CHECK_CODE(stet_call(ctx, NULL, "t.nobody", stet_text(""), NULL), STET_ENOHANDLER);
    CHECK_HAS(stet_last_error(), "t.bad");
    CHECK_HAS(stet_last_error(), "t.echo");
    CHECK_CODE(stet_send(ctx, &run, "t.nobody", stet_text(""), NULL), STET_ENOHANDLER);
    CHECK_CODE(stet_call(ctx, NULL, "echo", stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_call(ctx, NULL, "", stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_call(ctx, NULL, large, stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_call(ctx, NULL, NULL, stet_text(""), NULL), STET_EINVAL);
    CHECK_CODE(stet_send(ctx, &run, "__x.y", stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_call(ctx, NULL, "t.echo", stet_text(""), STET_START(.key = "k")), STET_EKEY);
    CHECK_CODE(stet_send(ctx, &run, "t.echo", stet_text(""), STET_START(.key = "k")), STET_EKEY);
    CHECK_CODE(stet_call(ctx, NULL, "t.echo", stet_text(""), STET_START(.delay = "soon")),
               STET_EDURATION);
    CHECK_CODE(stet_send(ctx, &run, "t.echo", stet_text(""), STET_START(.delay_ms = -1)),
               STET_EDURATION);
    CHECK_CODE(stet_call(ctx, NULL, "t.echo", stet_text(""), STET_START(.idempotency_key = "i")),
               STET_EINVAL);
    CHECK_CODE(stet_send(ctx, &run, "t.echo", (stet_bytes){ large, sizeof large }, NULL),
               STET_ETOOBIG);
    return stet_return(ctx, stet_text("unharmed"));
}

TEST(B4_B5_bad_calls_and_sends_are_refused_and_start_nothing)
{
    static const stet_handler handlers[] = { { "bad", bad_calls, NULL },
                                             { "echo", echo, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.payload_bytes_max = 250;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.bad", "", NULL);
    EXPECT_RESULT(f->engine, &run, "unharmed");
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "call", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "send", NULL), 0);
    fixture_end(f);
}

/* ---- B5 -------------------------------------------------------------------------------------- */

static int
sends(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id run;

    (void)input;
    for (int i = 0; i < 3; i++) {
        STET_TRY(stet_send(ctx, &run, "t.echo", stet_text(stet_ctx_printf(ctx, "%d", i)), NULL));
        effect("sent %s", run.text);
        STET_TRY(stet_sleep(ctx, "nap", "1ms"));
    }
    if (atomic_fetch_sub(&parent_failures, 1) > 0)
        return stet_fail(ctx, STET_ERETRY, "try again");
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("sent"));
}

TEST(B5_what_a_handler_sends_is_delivered_once_however_often_it_replays)
{
    static const stet_handler handlers[] = { { "sends", sends, NULL },
                                             { "echo", echo, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    char                     *text, *save = NULL, *first[3] = { NULL, NULL, NULL };
    int                       distinct = 0;

    atomic_store(&parent_failures, 1);
    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.sends", "", NULL);
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "sent");
    effects_await("echo", 3);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t.echo")), 3);
    CHECK_INT(effects("echo"), 3);
    /* And the handler was told the same IDs every time. */
    text = effects_text();
    for (char *at = strtok_r(text, "\n", &save); at != NULL; at = strtok_r(NULL, "\n", &save)) {
        int i = 0;

        if (strncmp(at, "sent run_", 9) != 0)
            continue;
        while (i < distinct && strcmp(first[i], at) != 0)
            i++;
        CHECK(i < 3);
        if (i == distinct)
            first[distinct++] = at;
    }
    CHECK_INT(distinct, 3);
    free(text);
    fixture_end(f);
}

static int
body_visible(stet_attempt *a, void *due_ms)
{
    (void)a;
    effect("early %d", stet_engine_now_ms(outside) < *(int64_t *)due_ms);
    return STET_OK;
}

static int
sent_later(stet_ctx *ctx, stet_bytes input)
{
    int64_t due_ms = fixture_number(input);

    return stet_step(ctx, NULL, "look", body_visible, &due_ms, NULL);
}

static int
sends_later(stet_ctx *ctx, stet_bytes input)
{
    int64_t now_ms;
    bool    existed;

    (void)input;
    STET_TRY(stet_now(ctx, &now_ms));
    STET_TRY(stet_send(ctx, NULL, "t.later",
                       stet_text(stet_ctx_printf(ctx, "%lld", (long long)now_ms + 80)),
                       STET_START(.delay = "80ms", .idempotency_key = "one")));
    STET_TRY(stet_send(ctx, NULL, "t.later", stet_text("0"),
                       STET_START(.delay = "80ms", .idempotency_key = "one", .existed = &existed)));
    CHECK(existed);
    return stet_return(ctx, stet_text("first"));
}

TEST(B5_a_delayed_send_is_not_early_and_the_sender_does_not_wait)
{
    static const stet_handler handlers[] = { { "sends", sends_later, NULL },
                                             { "later", sent_later, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    outside = f->engine;
    run = fixture_start(f->engine, "t.sends", "", NULL);
    EXPECT_RESULT(f->engine, &run, "first");
    effects_await("early 0", 1);
    CHECK_INT(effects("early 1"), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t.later")), 1);
    fixture_end(f);
}

static int
add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    STET_TRY(stet_state_get(ctx, &value, "sum"));
    return stet_state_set(
        ctx, "sum",
        stet_text(stet_ctx_printf(ctx, "%ld", fixture_number(value) + fixture_number(input))));
}

static int
sends_to_keys(stet_ctx *ctx, stet_bytes input)
{
    static const char *const keys[] = { "a", "b" };

    (void)input;
    for (int i = 1; i <= 6; i++) {
        STET_TRY(stet_send(ctx, NULL, "sum.add", stet_text(stet_ctx_printf(ctx, "%d", i)),
                           STET_START(.key = keys[i % 2])));
        STET_TRY(stet_sleep(ctx, "nap", "1ms"));
    }
    return STET_OK;
}

static bool
state_is(stet_engine *e, const char *key, const char *want)
{
    stet_bytes value;
    bool       is_same;

    if (stet_state_read(e, &value, "sum", key, "sum") != STET_OK)
        return false;
    is_same = fixture_is(value, want);
    stet_free((void *)(uintptr_t)value.data);
    return is_same;
}

TEST(B5_sends_with_a_key_reach_each_object_once)
{
    static const stet_handler senders[] = { { "sends", sends_to_keys, NULL }, { 0 } };
    static const stet_handler adders[] = { { "add", add, NULL }, { 0 } };
    const fixture_service     services[] = { { "t", senders, false, NULL },
                                             { "sum", adders, true, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up(f, services);
    run = fixture_start(f->engine, "t.sends", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    AWAIT(state_is(f->engine, "a", "12"));
    AWAIT(state_is(f->engine, "b", "9"));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "sum.add")), 6);
    fixture_end(f);
}

/* ---- B16 ------------------------------------------------------------------------------------- */

static int
tells_parent(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_return(ctx,
                       stet_text(stet_info(ctx)->parent != NULL ? stet_info(ctx)->parent : "none"));
}

static int
body_starts_child(stet_attempt *a, void *arg)
{
    stet_run_id parent, one, two, other_key, other_step;
    bool        existed = true;

    (void)arg;
    CHECK_OK(stet_run_id_parse(&parent, stet_attempt_run(a)));
    CHECK_OK(stet_start(outside, &one, "t.child", stet_text("1"),
                        STET_START(.parent = &parent, .parent_step = "fan out", .child_key = "k",
                                   .existed = &existed)));
    CHECK(!existed);
    CHECK_OK(stet_start(outside, &two, "t.child", stet_text("2"),
                        STET_START(.parent = &parent, .parent_step = "fan out", .child_key = "k",
                                   .existed = &existed)));
    CHECK(existed);
    CHECK_STR(two.text, one.text);
    CHECK_CODE(
        stet_start(outside, &two, "t.parent", stet_text(""),
                   STET_START(.parent = &parent, .parent_step = "fan out", .child_key = "k")),
        STET_EMISMATCH);
    CHECK_HAS(stet_last_error(), "t.child");
    CHECK_OK(stet_start(outside, &other_key, "t.child", stet_text("3"),
                        STET_START(.parent = &parent, .parent_step = "fan out", .child_key = "l")));
    CHECK(strcmp(other_key.text, one.text) != 0);
    CHECK_OK(stet_start(outside, &other_step, "t.child", stet_text("4"),
                        STET_START(.parent = &parent, .parent_step = "another", .child_key = "k")));
    CHECK(strcmp(other_step.text, one.text) != 0 && strcmp(other_step.text, other_key.text) != 0);
    return stet_attempt_return(a, stet_text(one.text));
}

static int
fans_out(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes child;

    (void)input;
    STET_TRY(stet_step(ctx, &child, "fan out", body_starts_child, NULL, NULL));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, child);
}

static const stet_handler family[] = { { "parent", fans_out, NULL },
                                       { "child", tells_parent, NULL },
                                       { 0 } };

TEST(B16_the_same_parent_step_handler_and_child_key_give_the_same_child)
{
    fixture    *f = fixture_begin();
    stet_run_id run, child, unknown;
    stet_result result;

    outside = fixture_open(f);
    CHECK_OK(stet_engine_start(outside));
    fixture_up_with(f, family);
    run = fixture_start(f->engine, "t.parent", "", NULL);
    fixture_paused(f->engine, &run);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t.child")), 3);
    fixture_go_on(f->engine, &run);
    result = EXPECT_END(f->engine, &run, STET_OK);
    (void)snprintf(child.text, sizeof child.text, "%.*s", (int)result.value.len,
                   (const char *)result.value.data);
    stet_result_free(&result);
    EXPECT_RESULT(f->engine, &child, run.text);
    CHECK_STR(fixture_look(f->engine, &child).parent, run.text);
    CHECK_STR(fixture_look(f->engine, &child).input, "1");
    /* A finished parent takes no more children; an unknown one neither. */
    CHECK_CODE(stet_start(f->engine, NULL, "t.child", stet_text(""),
                          STET_START(.parent = &run, .parent_step = "late", .child_key = "k")),
               STET_EENDED);
    CHECK_HAS(stet_last_error(), run.text);
    CHECK_OK(stet_run_id_make(f->engine, &unknown));
    CHECK_CODE(stet_start(f->engine, NULL, "t.child", stet_text(""),
                          STET_START(.parent = &unknown, .parent_step = "s", .child_key = "k")),
               STET_ENOTFOUND);
    CHECK_INT(fixture_count(f->engine, NULL), 4);
    stet_close(outside);
    fixture_end(f);
}

typedef struct child_race {
    stet_engine *engine;
    stet_run_id  parent, children[12];
    atomic_int   fresh;
} child_race;

static void
race_child(void *arg, int i)
{
    child_race *r = arg;
    bool        existed;

    CHECK_OK(stet_start(r->engine, &r->children[i], "t.child", stet_text(""),
                        STET_START(.parent = &r->parent, .parent_step = "race", .child_key = "one",
                                   .existed = &existed)));
    atomic_fetch_add(&r->fresh, !existed);
}

TEST(B16_racing_starts_of_one_child_key_make_one_child)
{
    fixture   *f = fixture_begin();
    child_race r = { 0 };

    outside = fixture_open(f);
    fixture_up_with(f, family);
    r.engine = f->engine;
    r.parent = fixture_start(f->engine, "t.parent", "", NULL);
    fixture_paused(f->engine, &r.parent);
    fixture_race(12, race_child, &r);
    CHECK_INT(r.fresh, 1);
    for (int i = 1; i < 12; i++)
        CHECK_STR(r.children[i].text, r.children[0].text);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t.child")), 4);
    stet_close(outside);
    fixture_end(f);
}

TEST(B16_a_called_child_knows_its_parent)
{
    static const stet_handler handlers[] = { { "calls", calls, NULL },
                                             { "echo", tells_parent, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.calls", "", NULL);
    EXPECT_RESULT(f->engine, &run, run.text);
    fixture_end(f);
}
