/* Starting and waiting: options (A4), invoke and wait (A5), idempotency (A6), services elsewhere
 * (A7), IDs (A9), labels (A12), IDs made before (A13). tsan: yes */
#include "fixture.h"

static stet_engine *outside;

static int
echo(stet_ctx *ctx, stet_bytes input)
{
    effect("echo %.*s", (int)input.len, (const char *)input.data);
    return stet_return(ctx, input);
}

static int
fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "it cannot be done");
}

static int
fails_passing(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("try at %lld", (long long)fixture_mono_ms());
    effect("try");
    return stet_fail(ctx, STET_ERETRY, "not now");
}

static gate slot_gate = GATE_INIT;

static int
body_holds(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&slot_gate);
    return STET_OK;
}

static int
holds(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "hold", body_holds, NULL, NULL);
}

static int
tells_time(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_return_json(ctx, "%lld", (long long)stet_engine_now_ms(outside));
}

static const stet_handler handlers[] = { { "echo", echo, NULL },
                                         { "pause", h_pauses, NULL },
                                         { "fail", fails, NULL },
                                         { "passing", fails_passing, NULL },
                                         { "hold", holds, NULL },
                                         { "time", tells_time, NULL },
                                         { 0 } };

static fixture *
begin(void)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, handlers);
    outside = f->engine;
    return f;
}

static int64_t
result_number(stet_engine *e, const stet_run_id *run)
{
    stet_result result = EXPECT_END(e, run, STET_OK);
    int64_t     n = fixture_number(result.value);

    stet_result_free(&result);
    return n;
}

/* ---- A4 -------------------------------------------------------------------------------------- */

TEST(A4_a_start_returns_at_once_and_is_durable_without_any_worker)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open(f); /* never started */
    stet_run_id  run;

    CHECK_OK(stet_start(e, &run, "t.echo", stet_text("kept"), NULL));
    CHECK_INT(fixture_look(e, &run).status, STET_STATUS_PENDING);
    CHECK_STR(fixture_look(e, &run).input, "kept");
    stet_close(e);
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "kept");
    fixture_end(f);
}

TEST(A4_a_delay_is_kept_and_a_run_at_time_beats_it)
{
    fixture    *f = begin();
    int64_t     now_ms = stet_engine_now_ms(f->engine);
    stet_run_id text = fixture_start(f->engine, "t.time", "", STET_START(.delay = "60ms"));
    stet_run_id number = fixture_start(f->engine, "t.time", "", STET_START(.delay_ms = 60));
    stet_run_id at =
        fixture_start(f->engine, "t.time", "", STET_START(.delay = "1h", .run_at_ms = now_ms + 70));
    stet_run_id past =
        fixture_start(f->engine, "t.time", "", STET_START(.delay = "1h", .run_at_ms = 1));
    stet_run_id far = fixture_start(f->engine, "t.time", "", STET_START(.delay = "30m"));

    CHECK(result_number(f->engine, &text) >= now_ms + 60);
    CHECK(result_number(f->engine, &number) >= now_ms + 60);
    CHECK(result_number(f->engine, &at) >= now_ms + 70);
    CHECK(result_number(f->engine, &past) >= now_ms);
    CHECK_INT(fixture_look(f->engine, &far).status, STET_STATUS_PENDING);
    CHECK(fixture_look(f->engine, &far).due_ms >= now_ms + 30 * 60000);
    fixture_end(f);
}

TEST(A4_a_delayed_run_survives_a_restart)
{
    fixture    *f = begin();
    int64_t     now_ms = stet_engine_now_ms(f->engine);
    stet_run_id run = fixture_start(f->engine, "t.time", "", STET_START(.delay = "250ms"));

    fixture_down(f);
    fixture_up_with(f, handlers);
    outside = f->engine;
    CHECK(result_number(f->engine, &run) >= now_ms + 250);
    fixture_end(f);
}

TEST(A4_attempts_and_the_retry_policy_of_the_call_are_used)
{
    fixture    *f = begin();
    stet_run_id run = fixture_start(f->engine, "t.passing", "",
                                    STET_START(.retry = { .attempts = 3,
                                                          .first_ms = 40,
                                                          .max_ms = 40,
                                                          .factor_percent = 100,
                                                          .jitter_percent = STET_NONE }));
    stet_result result = EXPECT_END(f->engine, &run, STET_ERUN);
    char       *text = effects_text(), *at = text;
    long long   ms[3];

    CHECK_INT(result.attempts, 3);
    stet_result_free(&result);
    CHECK_INT(effects("try"), 3);
    for (int i = 0; i < 3; i++) {
        CHECK((at = strstr(at, "try at ")) != NULL);
        ms[i] = strtoll(at += 7, NULL, 10);
    }
    CHECK(ms[1] - ms[0] >= 39 && ms[2] - ms[1] >= 39);
    CHECK_INT(fixture_look(f->engine, &run).attempts_max, 3);
    free(text);
    fixture_end(f);
}

/* Priorities are kept with the run; policies that use them come later. */
TEST(A4_waiting_runs_go_in_the_order_they_became_due)
{
    fixture    *f = fixture_begin();
    stet_run_id hold, runs[4];
    const char *names[] = { "low", "middle", "high", "raised" };
    const int   priorities[] = { -5, 0, 9, 7 };
    char       *text;

    f->options.concurrency = 1;
    f->options.in_flight_max = 1;
    fixture_up_with(f, handlers);
    hold = fixture_start(f->engine, "t.hold", "", NULL);
    gate_await(&slot_gate, 1);
    for (int i = 0; i < 4; i++) {
        int64_t started_ms;

        runs[i] =
            fixture_start(f->engine, "t.echo", names[i], STET_START(.priority = priorities[i]));
        started_ms = stet_engine_now_ms(f->engine);
        /* The same millisecond has no order, and the store's may not be quite ours. */
        AWAIT(stet_engine_now_ms(f->engine) >= started_ms + 5);
    }
    gate_open(&slot_gate);
    EXPECT_RESULT(f->engine, &hold, "");
    for (int i = 0; i < 4; i++) {
        EXPECT_RESULT(f->engine, &runs[i], names[i]);
        CHECK_INT(fixture_look(f->engine, &runs[i]).priority, priorities[i]);
    }
    text = effects_text();
    CHECK_STR(text, "echo low\necho middle\necho high\necho raised\n");
    free(text);
    fixture_end(f);
}

TEST(A4_group_deadline_timeout_and_labels_are_kept_with_the_run)
{
    fixture          *f = begin();
    int64_t           now_ms = stet_engine_now_ms(f->engine);
    const char *const labels[] = { "customer=7", "kind=test", NULL };
    stet_run_id       run =
        fixture_start(f->engine, "t.pause", "in",
                      STET_START(.group = "tenant-1", .timeout = "1h", .labels = labels,
                                 .priority = 3, .retry.attempts = 9, .idempotency_key = "i-1"));
    stet_run_id beats = fixture_start(f->engine, "t.pause", "",
                                      STET_START(.timeout_ms = 5, .deadline_ms = now_ms + 7200000));
    fixture_run r = fixture_look(f->engine, &run);

    CHECK_STR(r.handler, "t.pause");
    CHECK_STR(r.group, "tenant-1");
    CHECK(r.deadline_ms >= now_ms + 3600000 && r.deadline_ms < now_ms + 3700000);
    CHECK_STR(r.labels, "customer=7 kind=test");
    CHECK_STR(r.idempotency_key, "i-1");
    CHECK_STR(r.input, "in");
    CHECK_INT(r.priority, 3);
    CHECK_INT(r.attempts_max, 9);
    CHECK(r.created_ms >= now_ms);
    CHECK_INT(fixture_look(f->engine, &beats).deadline_ms, now_ms + 7200000);
    fixture_end(f);
}

static bool
is_gone(stet_engine *e, const stet_run_id *run)
{
    return stet_result_get(e, NULL, run) == STET_ENOTFOUND;
}

TEST(A4_retention_of_the_call_is_used)
{
    fixture    *f = fixture_begin();
    stet_run_id brief, kept;

    f->options.sweep_ms = 20;
    fixture_up_with(f, handlers);
    kept = fixture_start(f->engine, "t.echo", "kept", NULL);
    brief = fixture_start(f->engine, "t.echo", "brief", STET_START(.retention = "1ms"));
    EXPECT_RESULT(f->engine, &kept, "kept");
    effects_await("echo brief", 1);
    AWAIT(is_gone(f->engine, &brief));
    CHECK_INT(fixture_look(f->engine, &kept).status, STET_STATUS_COMPLETED);
    fixture_end(f);
}

TEST(A4_every_bad_option_has_its_own_code_and_starts_nothing)
{
    fixture           *f = begin();
    stet_engine       *e = f->engine;
    stet_start_options sizeless = { 0 };
    char               large[2000];
    const char *const no_equal[] = { "label", NULL }, *const no_name[] = { "=x", NULL };
    const char *const long_label[] = { large, NULL };
    stet_run_id       none = { "nonsense" }, awk = { "awk_00000000000000000000000000" };

    memset(large, 'x', sizeof large - 1);
    large[5] = '=';
    large[sizeof large - 1] = '\0';
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), &sizeless), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "STET_START");
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.delay = "tomorrow")),
               STET_EDURATION);
    CHECK_HAS(stet_last_error(), "delay");
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.delay = "-1s")),
               STET_EDURATION);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.delay_ms = -1)),
               STET_EDURATION);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.timeout = "")),
               STET_EDURATION);
    CHECK_HAS(stet_last_error(), "timeout");
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.timeout_ms = -7)),
               STET_EDURATION);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.retention = "long")),
               STET_EDURATION);
    CHECK_HAS(stet_last_error(), "retention");
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.run_at_ms = -1)),
               STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.run_at_ms = INT64_MAX)),
               STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.deadline_ms = -1)),
               STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.delay_ms = INT64_MAX)),
               STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.retry.attempts = -1)),
               STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.retry.first_ms = -1)),
               STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.retry.max_ms = -1)),
               STET_EINVAL);
    CHECK_CODE(
        stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.retry.jitter_percent = 101)),
        STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.retry.jitter_percent = -2)),
               STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.idempotency_key = "")),
               STET_ENAME);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.idempotency_key = large)),
               STET_ENAME);
    CHECK_HAS(stet_last_error(), "idempotency key");
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.group = "")), STET_ENAME);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.labels = no_equal)),
               STET_ENAME);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.labels = no_name)),
               STET_ENAME);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.labels = long_label)),
               STET_ENAME);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.run = &none)), STET_EINVAL);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.run = &awk)), STET_EKIND);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.parent = &awk)),
               STET_EKIND);
    CHECK_CODE(stet_start(e, NULL, "t.echo", stet_text(""), STET_START(.key = "k")), STET_EKEY);
    CHECK_CODE(stet_start(NULL, NULL, "t.echo", stet_text(""), NULL), STET_EINVAL);
    CHECK_INT(fixture_count(e, NULL), 0);
    fixture_end(f);
}

TEST(A4_an_input_over_the_limit_is_refused_and_one_at_the_limit_is_not)
{
    fixture    *f = fixture_begin();
    char       *data = calloc(1, 1001);
    stet_run_id run;

    memset(data, 'x', 1001);
    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, handlers);
    CHECK_CODE(stet_start(f->engine, NULL, "t.echo", (stet_bytes){ data, 1001 }, NULL),
               STET_ETOOBIG);
    CHECK_HAS(stet_last_error(), "payload_bytes_max, 1000");
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    CHECK_OK(stet_start(f->engine, &run, "t.time", (stet_bytes){ data, 1000 },
                        STET_START(.delay = "1h")));
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    free(data);
    fixture_end(f);
}

/* ---- A5 -------------------------------------------------------------------------------------- */

TEST(A5_invoke_starts_and_waits)
{
    fixture    *f = begin();
    stet_result result;
    stet_run_id run;

    CHECK_OK(stet_invoke(f->engine, &result, &run, "t.echo", stet_text("hello"), NULL, 0));
    CHECK(fixture_is(result.value, "hello"));
    CHECK_INT(result.status, STET_STATUS_COMPLETED);
    CHECK_INT(result.code, 0);
    CHECK_INT(result.attempts, 1);
    CHECK(result.error == NULL);
    stet_result_free(&result);
    CHECK_OK(stet_invoke(f->engine, NULL, NULL, "t.echo", stet_text(""), NULL, STET_NONE));
    CHECK_OK(stet_invoke(f->engine, &result, &run, "t.echo", (stet_bytes){ NULL, 0 },
                         STET_START(.delay = "20ms"), 0));
    CHECK_INT(result.value.len, 0);
    stet_result_free(&result);
    /* Without waiting, and again. */
    CHECK_OK(stet_result_get(f->engine, &result, &run));
    stet_result_free(&result);
    CHECK_OK(stet_wait(f->engine, NULL, &run, 1));
    fixture_end(f);
}

TEST(A5_a_timeout_names_the_run_which_goes_on)
{
    fixture    *f = begin();
    stet_result result;
    stet_run_id run;

    CHECK_CODE(stet_invoke(f->engine, &result, &run, "t.pause", stet_text("in the end"), NULL, 30),
               STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), run.text);
    stet_result_free(&result);
    CHECK_CODE(stet_result_get(f->engine, &result, &run), STET_EOPEN);
    fixture_paused(f->engine, &run);
    CHECK_CODE(stet_wait(f->engine, NULL, &run, 10), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "go on"); /* what it waits for */
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "in the end");
    fixture_end(f);
}

TEST(A5_the_configured_wait_is_used_if_none_is_given)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    int64_t     from;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.pause", "",
                        NULL); /* which a busy machine may take its time for */
    fixture_down(f);
    f->options.wait_ms = 60;
    fixture_up_with(f, handlers);
    from = fixture_mono_ms();
    CHECK_CODE(stet_wait(f->engine, NULL, &run, 0), STET_ETIMEOUT);
    CHECK(fixture_mono_ms() - from >= 59);
    fixture_end(f);
}

TEST(A5_each_way_a_run_can_end_has_its_own_error)
{
    fixture    *f = begin();
    stet_run_id failed = fixture_start(f->engine, "t.fail", "", NULL);
    stet_run_id used_up =
        fixture_start(f->engine, "t.passing", "", STET_START(.retry.attempts = 1));
    stet_run_id cancelled = fixture_start(f->engine, "t.pause", "", NULL);
    stet_run_id expired = fixture_start(f->engine, "t.pause", "", STET_START(.timeout = "40ms"));
    stet_run_id unknown, wrong = { "awk_00000000000000000000000000" }, nonsense = { "x" };
    stet_result result;

    result = EXPECT_END(f->engine, &failed, STET_ERUN);
    CHECK_INT(result.status, STET_STATUS_FAILED);
    CHECK_INT(result.code, STET_EPERMANENT);
    CHECK_STR(result.error, "it cannot be done");
    stet_result_free(&result);
    result = EXPECT_END(f->engine, &used_up, STET_ERUN);
    CHECK_INT(result.code, STET_EATTEMPTS);
    CHECK_INT(result.cause, STET_ERETRY);
    stet_result_free(&result);
    CHECK_OK(stet_cancel(f->engine, &cancelled, "me", "because"));
    EXPECT_ANSWER(f->engine, &cancelled, STET_ECANCELLED);
    CHECK_HAS(stet_last_error(), cancelled.text);
    EXPECT_ANSWER(f->engine, &expired, STET_EEXPIRED);
    AWAIT(fixture_look(f->engine, &expired).status == STET_STATUS_EXPIRED);
    CHECK_OK(stet_run_id_make(f->engine, &unknown));
    CHECK_CODE(stet_wait(f->engine, NULL, &unknown, 1000), STET_ENOTFOUND);
    CHECK_CODE(stet_result_get(f->engine, NULL, &unknown), STET_ENOTFOUND);
    CHECK_CODE(stet_wait(f->engine, NULL, &wrong, 0), STET_EKIND);
    CHECK_CODE(stet_wait(f->engine, NULL, &nonsense, 0), STET_EINVAL);
    /* The same without waiting. */
    CHECK_CODE(stet_result_get(f->engine, NULL, &failed), STET_ERUN);
    CHECK_CODE(stet_result_get(f->engine, NULL, &cancelled), STET_ECANCELLED);
    CHECK_CODE(stet_result_get(f->engine, NULL, &expired), STET_EEXPIRED);
    fixture_end(f);
}

static void
wait_elsewhere(void *arg, int i)
{
    const stet_run_id *run = arg;

    (void)i;
    EXPECT_RESULT(outside, run, "far away");
}

TEST(A5_waiting_works_from_many_threads_and_from_another_handle)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.roles = STET_ROLE_CLIENT;
    outside = fixture_open(f);
    CHECK_OK(stet_engine_start(outside));
    f->options.roles = 0;
    run = fixture_start(outside, "t.echo", "far away", NULL);
    fixture_up_with(f, handlers);
    fixture_race(8, wait_elsewhere, &run);
    stet_close(outside);
    fixture_end(f);
}

static int
waits_in_handler(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id run;

    (void)input;
    CHECK_OK(stet_run_id_parse(&run, stet_info(ctx)->run));
    CHECK_CODE(stet_wait(outside, NULL, &run, 10), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "stet_call");
    CHECK_CODE(stet_invoke(outside, NULL, NULL, "t.echo", stet_text(""), NULL, 10), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "stet_call");
    CHECK_CODE(stet_start(outside, NULL, "t.echo", stet_text(""), NULL), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "stet_send");
    return stet_return(ctx, stet_text("refused"));
}

TEST(A5_waiting_and_starting_inside_a_handler_name_the_right_call)
{
    static const stet_handler inside[] = { { "wait", waits_in_handler, NULL },
                                           { "echo", echo, NULL },
                                           { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, inside);
    outside = f->engine;
    run = fixture_start(f->engine, "t.wait", "", NULL);
    EXPECT_RESULT(f->engine, &run, "refused");
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    fixture_end(f);
}

/* ---- A6 -------------------------------------------------------------------------------------- */

typedef struct idem_race {
    stet_engine *engines[2];
    stet_run_id  runs[16];
    atomic_int   fresh;
    int          fresh_index;
} idem_race;

static void
race_start(void *arg, int i)
{
    idem_race *r = arg;
    char       input[8];
    bool       existed;

    (void)snprintf(input, sizeof input, "%d", i);
    CHECK_OK(stet_start(r->engines[i % 2], &r->runs[i], "t.echo", stet_text(input),
                        STET_START(.idempotency_key = "one", .existed = &existed)));
    if (!existed) {
        atomic_fetch_add(&r->fresh, 1);
        r->fresh_index = i;
    }
}

static void
check_idem_race(idem_race *r)
{
    char want[8];

    fixture_race(16, race_start, r);
    CHECK_INT(r->fresh, 1);
    for (int i = 1; i < 16; i++)
        CHECK_STR(r->runs[i].text, r->runs[0].text);
    (void)snprintf(want, sizeof want, "%d", r->fresh_index);
    EXPECT_RESULT(r->engines[0], &r->runs[0], want); /* the first input stays */
    CHECK_INT(fixture_count(r->engines[0], NULL), 1);
}

TEST(A6_sixteen_racing_starts_with_one_key_make_one_run)
{
    fixture  *f = begin();
    idem_race r = { 0 };

    r.engines[0] = r.engines[1] = f->engine;
    check_idem_race(&r);
    fixture_end(f);
}

TEST(A6_racing_starts_on_two_nodes_make_one_run)
{
    fixture  *f = begin();
    idem_race r = { 0 };

    r.engines[0] = f->engine;
    r.engines[1] = fixture_open(f);
    fixture_register(r.engines[1],
                     (const fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_start(r.engines[1]));
    check_idem_race(&r);
    stet_close(r.engines[1]);
    fixture_end(f);
}

TEST(A6_a_repeat_after_the_end_and_after_a_restart_gives_the_same_run)
{
    fixture    *f = begin();
    stet_run_id run =
                    fixture_start(f->engine, "t.echo", "first", STET_START(.idempotency_key = "k")),
                again;
    stet_result result;
    bool        existed = false;

    EXPECT_RESULT(f->engine, &run, "first");
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_invoke(f->engine, &result, &again, "t.echo", stet_text("second"),
                         STET_START(.idempotency_key = "k", .existed = &existed), 0));
    CHECK(existed);
    CHECK_STR(again.text, run.text);
    CHECK(fixture_is(result.value, "first"));
    stet_result_free(&result);
    CHECK_INT(effects("echo first"), 1);
    CHECK_INT(effects("echo second"), 0);
    fixture_end(f);
}

TEST(A6_other_handlers_and_object_keys_have_their_own_idempotency_keys)
{
    static const stet_handler object[] = { { "echo", h_echo, NULL }, { 0 } };
    const fixture_service     services[] = { { "t", handlers, false, NULL },
                                             { "o", object, true, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[5];

    fixture_up(f, services);
    runs[0] = fixture_start(f->engine, "t.echo", "", STET_START(.idempotency_key = "k"));
    runs[1] =
        fixture_start(f->engine, "t.hold", "", STET_START(.idempotency_key = "k", .delay = "1h"));
    runs[2] =
        fixture_start(f->engine, "o.echo", "", STET_START(.idempotency_key = "k", .key = "a"));
    runs[3] =
        fixture_start(f->engine, "o.echo", "", STET_START(.idempotency_key = "k", .key = "b"));
    runs[4] =
        fixture_start(f->engine, "o.echo", "", STET_START(.idempotency_key = "k", .key = "a"));
    for (int i = 0; i < 4; i++)
        for (int j = i + 1; j < 4; j++)
            CHECK(strcmp(runs[i].text, runs[j].text) != 0);
    CHECK_STR(runs[4].text, runs[2].text);
    CHECK_INT(fixture_count(f->engine, NULL), 4);
    fixture_end(f);
}

TEST(A6_a_key_goes_with_its_run)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again;
    bool        existed = true;

    f->options.sweep_ms = 20;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.echo", "a",
                        STET_START(.idempotency_key = "k", .retention = "1ms"));
    effects_await("echo a", 1);
    AWAIT(is_gone(f->engine, &run));
    CHECK_OK(stet_start(f->engine, &again, "t.echo", stet_text("b"),
                        STET_START(.idempotency_key = "k", .existed = &existed)));
    CHECK(!existed);
    CHECK(strcmp(again.text, run.text) != 0);
    EXPECT_RESULT(f->engine, &again, "b");
    fixture_end(f);
}

/* ---- A7 -------------------------------------------------------------------------------------- */

static void
take_verdict(void *arg, const stet_verdict *verdict)
{
    (void)snprintf(arg, 64, "%s", verdict->kind);
}

TEST(A7_a_run_for_a_service_elsewhere_waits_untouched_until_a_worker_comes)
{
    static const stet_handler elsewhere[] = { { "echo", echo, NULL }, { 0 } };
    fixture                  *f = begin();
    stet_run_id               run = fixture_start(f->engine, "far.echo", "hi", NULL), local;
    stet_engine              *other;
    fixture_run               r;
    char                      kind[64] = "";

    local = fixture_start(f->engine, "t.echo", "local", NULL);
    EXPECT_RESULT(f->engine, &local, "local"); /* this worker had its turn */
    r = fixture_look(f->engine, &run);
    CHECK_INT(r.status, STET_STATUS_PENDING);
    CHECK_INT(r.attempt, 1);
    CHECK(!r.is_served);
    CHECK_INT(fixture_facts(f->engine, &run, "claimed", NULL), 0);
    CHECK_OK(stet_why(f->engine, &run, take_verdict, kind));
    CHECK_STR(kind, "no-worker");
    (void)fixture_start(f->engine, "far.echo", "again", STET_START(.delay = "1h"));
    CHECK_INT(fixture_logged(f, "does not serve far.echo"), 1); /* said once */
    other = fixture_open(f);
    CHECK_OK(stet_register(other, "far", elsewhere));
    CHECK_OK(stet_engine_start(other));
    EXPECT_RESULT(f->engine, &run, "hi");
    CHECK_INT(fixture_look(f->engine, &run).attempt, 1);
    CHECK(fixture_look(f->engine, &run).is_served);
    stet_close(other);
    fixture_end(f);
}

TEST(A7_an_unknown_handler_of_a_service_served_here_is_refused_with_the_list)
{
    fixture *f = begin();

    CHECK_CODE(stet_start(f->engine, NULL, "t.ecko", stet_text(""), NULL), STET_ENOHANDLER);
    CHECK_HAS(stet_last_error(), "ecko");
    for (int i = 0; handlers[i].name != NULL; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "t.%s", handlers[i].name);
        CHECK_HAS(stet_last_error(), name);
    }
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    fixture_end(f);
}

TEST(A7_names_that_are_no_handler_are_refused)
{
    static const char *const bad[] = { "",         "echo",       ".echo",    "t.",
                                       "t.echo.x", "__t.echo",   "t.__echo", "t.rollback:x",
                                       "t.e\ncho", "t.\xc3\xa4", "t .echo",  "t. echo",
                                       NULL };
    fixture                 *f = begin();
    char                     large[400];

    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    for (int i = 0; bad[i] != NULL; i++)
        CHECK_CODE(stet_start(f->engine, NULL, bad[i], stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_start(f->engine, NULL, NULL, stet_text(""), NULL), STET_ENAME);
    large[1] = '.';
    CHECK_CODE(stet_start(f->engine, NULL, large, stet_text(""), NULL), STET_ENAME);
    large[1] = 'x';
    large[200] = '.';
    CHECK_CODE(stet_start(f->engine, NULL, large, stet_text(""), NULL), STET_ENAME);
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    fixture_end(f);
}

/* ---- A9, A12, A13 ---------------------------------------------------------------------------- */

TEST(A9_ids_are_url_safe_carry_their_kind_and_sort_by_time)
{
    fixture    *f = begin();
    stet_run_id ids[300], parsed;
    int64_t     until;

    for (int i = 0; i < 300; i++) {
        CHECK_OK(stet_run_id_make(f->engine, &ids[i]));
        CHECK_INT(strlen(ids[i].text), 30);
        CHECK(strncmp(ids[i].text, "run_", 4) == 0);
        CHECK_INT(strspn(ids[i].text, "abcdefghijklmnopqrstuvwxyz0123456789_"), 30);
        CHECK_OK(stet_run_id_parse(&parsed, ids[i].text));
        CHECK_STR(parsed.text, ids[i].text);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(ids[i].text, ids[j].text) != 0);
    }
    until = stet_engine_now_ms(f->engine) + 2;
    AWAIT(stet_engine_now_ms(f->engine) >= until);
    CHECK_OK(stet_run_id_make(f->engine, &parsed));
    for (int i = 0; i < 300; i++)
        CHECK(strcmp(ids[i].text, parsed.text) < 0);
    fixture_end(f);
}

TEST(A9_an_id_of_another_kind_is_refused_by_name)
{
    fixture    *f = begin();
    stet_run_id run;

    CHECK_CODE(stet_run_id_parse(&run, "awk_01arz3ndektsv4rrffq69g5fav"), STET_EKIND);
    CHECK_HAS(stet_last_error(), "awakeable");
    CHECK_CODE(stet_run_id_parse(&run, "wrk_01arz3ndektsv4rrffq69g5fav"), STET_EKIND);
    CHECK_CODE(stet_run_id_parse(&run, "run_01arz3ndektsv4rrffq69g5fa"), STET_EINVAL);
    CHECK_CODE(stet_run_id_parse(&run, "run_01arz3ndektsv4rrffq69g5fa!"), STET_EINVAL);
    CHECK_CODE(stet_run_id_parse(&run, "run_"), STET_EINVAL);
    CHECK_CODE(stet_run_id_parse(&run, ""), STET_EINVAL);
    CHECK_CODE(stet_run_id_parse(&run, NULL), STET_EINVAL);
    CHECK_CODE(
        stet_cancel(f->engine, &(stet_run_id){ "awk_01arz3ndektsv4rrffq69g5fav" }, NULL, NULL),
        STET_EKIND);
    CHECK_CODE(stet_resolve(f->engine, "run_01arz3ndektsv4rrffq69g5fav", stet_text("")),
               STET_EKIND);
    fixture_end(f);
}

static void
counting_id(void *arg, stet_id *out, int64_t now_ms)
{
    unsigned n = atomic_fetch_add((atomic_uint *)arg, 1u);

    (void)now_ms;
    memset(out, 0, sizeof *out);
    out->bytes[5] = 1;
    out->bytes[14] = (uint8_t)(n >> 8);
    out->bytes[15] = (uint8_t)n;
}

TEST(A9_the_generator_can_be_replaced)
{
    fixture    *f = fixture_begin();
    atomic_uint n;
    stet_run_id first[3];

    f->options.id = counting_id;
    f->options.id_arg = &n;
    for (int round = 0; round < 2; round++) {
        atomic_store(&n, 0);
        fixture_up_with(f, handlers);
        for (int i = 0; i < 3; i++) {
            stet_run_id id;

            CHECK_OK(stet_run_id_make(f->engine, &id));
            CHECK(strncmp(id.text, "run_00000000", 12) == 0);
            if (round == 0)
                first[i] = id;
            else
                CHECK_STR(id.text, first[i].text);
        }
        fixture_down(f);
    }
    fixture_end(f);
}

TEST(A12_runs_are_found_by_their_labels)
{
    fixture          *f = begin();
    const char *const a[] = { "customer=7", "kind=x", NULL }, *const b[] = { "customer=7", NULL };
    const char *const c[] = { "customer=77", "empty=", NULL };
    stet_run_id       run;

    run = fixture_start(f->engine, "t.echo", "1", STET_START(.labels = a));
    (void)fixture_start(f->engine, "t.hold", "2", STET_START(.labels = b, .delay = "1h"));
    (void)fixture_start(f->engine, "t.echo", "3", STET_START(.labels = c));
    (void)fixture_start(f->engine, "t.echo", "4", NULL);
    EXPECT_RESULT(f->engine, &run, "1");
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "customer=7")), 2);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "customer=77")), 1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "kind=x")), 1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "empty=")), 1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "customer=8")), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "customer=7", .handler = "t.echo")), 1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "customer=7",
                                                   .statuses = 1u << STET_STATUS_COMPLETED)),
              1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "customer=7", .limit = 1)), 1);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "customer=7")), 2);
    fixture_end(f);
}

TEST(A13_an_id_made_before_can_be_used_once)
{
    fixture    *f = begin();
    stet_run_id run, got;

    CHECK_OK(stet_run_id_make(f->engine, &run));
    CHECK_CODE(stet_result_get(f->engine, NULL, &run), STET_ENOTFOUND);
    CHECK_OK(stet_start(f->engine, &got, "t.echo", stet_text("mine"), STET_START(.run = &run)));
    CHECK_STR(got.text, run.text);
    EXPECT_RESULT(f->engine, &run, "mine");
    CHECK_CODE(stet_start(f->engine, &got, "t.echo", stet_text("again"), STET_START(.run = &run)),
               STET_EEXISTS);
    CHECK_HAS(stet_last_error(), run.text);
    CHECK_CODE(stet_start(f->engine, &got, "t.hold", stet_text("again"), STET_START(.run = &run)),
               STET_EEXISTS);
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    CHECK_INT(effects("echo again"), 0);
    fixture_end(f);
}

typedef struct made_race {
    stet_engine *engine;
    stet_run_id  run;
    atomic_int   won;
} made_race;

static void
race_made(void *arg, int i)
{
    made_race *r = arg;
    int code = stet_start(r->engine, NULL, "t.echo", stet_text("x"), STET_START(.run = &r->run));

    (void)i;
    if (code == STET_OK)
        atomic_fetch_add(&r->won, 1);
    else
        CHECK_CODE(code, STET_EEXISTS);
}

TEST(A13_one_of_many_racing_starts_with_one_id_wins)
{
    fixture  *f = begin();
    made_race r = { f->engine, { "" }, 0 };

    CHECK_OK(stet_run_id_make(f->engine, &r.run));
    fixture_race(8, race_made, &r);
    CHECK_INT(r.won, 1);
    EXPECT_RESULT(f->engine, &r.run, "x");
    CHECK_INT(effects("echo x"), 1);
    fixture_end(f);
}

/* ---- A5: waiting in a body ------------------------------------------------------------------- */

static stet_engine *nested_engine;
static gate         nested_door = GATE_INIT;

static int
body_invokes(stet_attempt *a, void *arg)
{
    stet_result result;
    int         err;

    (void)arg;
    gate_pass(&nested_door); /* all of them are in their bodies */
    err = stet_invoke(nested_engine, &result, NULL, "t.leaf", stet_text("leaf"), NULL, STET_NONE);
    if (err != STET_OK) {
        CHECK_CODE(err, STET_EBUSY);
        CHECK_HAS(stet_last_error(), "stet_call()");
        effect("refused");
        return stet_attempt_fail(a, STET_EPERMANENT, "%s", stet_last_error());
    }
    effect("waited");
    err = stet_attempt_return(a, result.value);
    stet_result_free(&result);
    return err;
}

static int
h_invokes(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "invoke", body_invokes, NULL, NULL));
    return stet_return(ctx, stet_text("done"));
}

static const stet_handler nested_handlers[] = { { "invokes", h_invokes, NULL },
                                                { "leaf", h_echo, NULL },
                                                { 0 } };

TEST(A5_a_body_that_would_wait_with_the_last_slot_is_told_and_the_others_go_on)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[3];

    f->options.concurrency = 3;
    fixture_up_with(f, nested_handlers);
    nested_engine = f->engine;
    for (int i = 0; i < 3; i++)
        runs[i] = fixture_start(f->engine, "t.invokes", "", NULL);
    gate_await(&nested_door, 3);
    gate_open(&nested_door);
    for (int i = 0; i < 3; i++)
        (void)stet_wait(f->engine, NULL, &runs[i], fixture_patience_ms());
    CHECK_INT(effects("refused"), 1);
    CHECK_INT(effects("waited"), 2);
    AWAIT(fixture_count(f->engine, STET_FILTER(.handler = "t.leaf",
                                               .statuses = 1u << STET_STATUS_COMPLETED)) == 3);
    fixture_end(f);
}

TEST(A5_a_body_of_the_only_slot_waits_for_other_workers_runs_and_not_for_its_own)
{
    static const stet_handler callers[] = { { "invokes", h_invokes, NULL }, { 0 } };
    static const stet_handler leaves[] = { { "leaf", h_echo, NULL }, { 0 } };
    const fixture_service     caller[] = { { "c", callers, false, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *other;
    stet_run_id               run;
    stet_result               result;

    f->options.concurrency = 1;
    gate_open(&nested_door);
    fixture_up_with(f, nested_handlers);
    nested_engine = f->engine;
    run = fixture_start(f->engine, "t.invokes", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_HAS(result.error, "raise concurrency");
    stet_result_free(&result);
    fixture_down(f);

    fixture_up(f, caller);
    nested_engine = f->engine;
    other = fixture_open(f);
    CHECK_OK(stet_register(other, "t", leaves));
    CHECK_OK(stet_engine_start(other));
    run = fixture_start(f->engine, "c.invokes", "", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(effects("waited"), 1);
    stet_close(other);
    fixture_end(f);
}
