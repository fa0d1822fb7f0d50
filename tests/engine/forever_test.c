/* INT64_MAX wherever a public function takes milliseconds (A11): it is refused with a sentence and
 * nothing has changed, or it means "for ever". Under UBSan nothing overflows on the way.
 * tsan: yes */
#include <stet/replay.h>

#include "engine/engine.h"
#include "fixture.h"

#define FOREVER     INT64_MAX
#define LONGEST     STET__DURATION_MAX_MS
#define WHOLE_STORE STET_FILTER(.limit = 1000)

enum { NAP_MS = 200 };

static gate         forever_door = GATE_INIT;
static stet_retry   retry_first = { .first_ms = FOREVER }, retry_max = { .max_ms = FOREVER };
static stet_run_id  a_run; /* of o, which waits for a signal */
static stet_engine *engine;

/* ---- handlers -------------------------------------------------------------------------------- */

static int
h_naps(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep_ms(ctx, "nap", NAP_MS));
    STET_TRY(stet_ctx_emit(ctx, NULL, "news", stet_text("morning")));
    return stet_return(ctx, input);
}

static int
h_listens(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_await_signal(ctx, NULL, "go", NULL);
}

static int
answer_it(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)arg;
    return stet_reply_set(reply, input);
}

static int
h_changes(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_on_update(ctx, "change", NULL, answer_it, NULL));
    return stet_sleep_ms(ctx, "nap", NAP_MS);
}

static int
h_blocks(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &forever_door, NULL));
    return stet_return(ctx, input);
}

static int
body_later(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_not_before(a, FOREVER, "not in this life");
}

static int
body_fails(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_fail(a, STET_EIO, "again");
}

static int
h_step_later(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "later", body_later, NULL, NULL);
}

static int
h_run_later(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_defer_until(ctx, FOREVER, "not in this life");
}

static int
h_step_longest(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "again", body_fails, NULL,
                     STET_STEP(.attempts = 3, .first_ms = LONGEST, .max_ms = LONGEST));
}

static int
h_sleep_longest(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_sleep_ms(ctx, "beauty", LONGEST);
}

static int
h_fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EIO, "again");
}

/* All that is refused in a handler; it records nothing. */
static int
h_refused(stet_ctx *ctx, stet_bytes input)
{
    stet_future *f;
    stet_run_id  run;
    stet_bytes   out;

    CHECK_CODE(stet_sleep_ms(ctx, "nap", FOREVER), STET_EDURATION);
    CHECK_CODE(stet_step(ctx, NULL, "s", body_fails, NULL, STET_STEP(.first_ms = FOREVER)),
               STET_EINVAL);
    CHECK_CODE(
        stet_step(ctx, NULL, "s", body_fails, NULL, STET_STEP(.attempts = 2, .max_ms = FOREVER)),
        STET_EINVAL);
    CHECK_HAS(stet_failure_get(ctx)->text, "step s: a retry policy that waits longer than");
    CHECK_CODE(stet_step_start(ctx, &f, "s", body_fails, NULL, STET_STEP(.max_ms = LONGEST + 1)),
               STET_EINVAL);
    CHECK_CODE(stet_call(ctx, &out, "t.naps", input, STET_START(.delay_ms = FOREVER)), STET_EINVAL);
    CHECK_CODE(stet_call(ctx, &out, "t.naps", input, STET_START(.retry = retry_max)), STET_EINVAL);
    CHECK_CODE(stet_send(ctx, &run, "t.naps", input, STET_START(.run_at_ms = FOREVER)),
               STET_EINVAL);
    CHECK_CODE(stet_send(ctx, &run, "t.naps", input, STET_START(.timeout_ms = FOREVER)),
               STET_EINVAL);
    CHECK_CODE(stet_send(ctx, &run, "t.naps", input, STET_START(.deadline_ms = FOREVER)),
               STET_EINVAL);
    return stet_return(ctx, stet_text("all refused"));
}

/* Where nothing is durable, only for `describe`. */
static int
h_sends(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id run;

    STET_TRY(stet_sleep_ms(ctx, "first", LONGEST));
    STET_TRY(stet_send(ctx, &run, "t.naps", input, STET_START(.delay_ms = FOREVER)));
    return STET_OK;
}

static const stet_handler_options thrice = {
    .retry = { .attempts = 3, .first_ms = LONGEST, .max_ms = LONGEST, .jitter_percent = STET_NONE }
};

static const stet_handler handlers[] = { { "naps", h_naps, NULL },
                                         { "listens", h_listens, NULL },
                                         { "changes", h_changes, NULL },
                                         { "blocks", h_blocks, NULL },
                                         { "steplater", h_step_later, NULL },
                                         { "runlater", h_run_later, NULL },
                                         { "steplongest", h_step_longest, NULL },
                                         { "sleeplongest", h_sleep_longest, NULL },
                                         { "fails", h_fails, &thrice },
                                         { "refused", h_refused, NULL },
                                         { "sends", h_sends, NULL },
                                         { 0 } };

/* ---- what is refused ------------------------------------------------------------------------- */

static int
start_with(const stet_start_options *o)
{
    return stet_start(engine, NULL, "t.naps", stet_text("x"), o);
}

static int
schedule_with(const stet_schedule_options *o)
{
    return stet_schedule_ensure(engine, NULL, "often", "t.naps", stet_text("x"), o);
}

static int
start_delay(void)
{
    return start_with(STET_START(.delay_ms = FOREVER));
}
static int
start_at(void)
{
    return start_with(STET_START(.run_at_ms = FOREVER));
}
static int
start_timeout(void)
{
    return start_with(STET_START(.timeout_ms = FOREVER));
}
static int
start_deadline(void)
{
    return start_with(STET_START(.deadline_ms = FOREVER));
}
static int
start_first(void)
{
    return start_with(STET_START(.retry = retry_first));
}
static int
start_max(void)
{
    return start_with(STET_START(.retry = retry_max));
}
static int
every(void)
{
    return schedule_with(STET_SCHEDULE(.every_ms = FOREVER));
}
static int
at(void)
{
    return schedule_with(STET_SCHEDULE(.at_ms = FOREVER));
}
static int
after(void)
{
    return schedule_with(STET_SCHEDULE(.after_ms = FOREVER));
}

static int
schedule_timeout(void)
{
    return schedule_with(STET_SCHEDULE(.every_ms = 1000, .timeout_ms = FOREVER));
}

static int
query(void)
{
    return stet_query(engine, NULL, &a_run, "get", stet_text(""), FOREVER);
}

static int
cron_after(void)
{
    stet_cron *cron;
    int64_t    next_ms;
    int        err;

    CHECK_OK(stet_cron_parse(&cron, "* * * * *", NULL));
    err = stet_cron_next(cron, &next_ms, FOREVER);
    stet_cron_free(cron);
    return err;
}

static const struct {
    const char *what;
    int (*call)(void);
    int         code;
    const char *says;
} refusals[] = {
    { "start, delay", start_delay, STET_EINVAL, "outside the years 1970 to 9999" },
    { "start, run at", start_at, STET_EINVAL, "outside the years 1970 to 9999" },
    { "start, timeout", start_timeout, STET_EINVAL, "outside the years 1970 to 9999" },
    { "start, deadline", start_deadline, STET_EINVAL, "outside the years 1970 to 9999" },
    { "start, first wait", start_first, STET_EINVAL, "longer than 10,000 years" },
    { "start, longest wait", start_max, STET_EINVAL, "longer than 10,000 years" },
    { "schedule, every", every, STET_EINVAL, "100 ms to 3650 days" },
    { "schedule, at", at, STET_EINVAL, "outside the years 1970 to 9999" },
    { "schedule, after", after, STET_EINVAL, "outside the years 1970 to 9999" },
    { "schedule, timeout", schedule_timeout, STET_EINVAL, "outside the years 1970 to 9999" },
    { "query, timeout", query, STET_EINVAL, "between 1 ms and 1 h" },
    { "cron, after", cron_after, STET_EINVAL, "years 1 to 9999" },
};

static int
count_schedule(void *arg, const stet_schedule_info *info)
{
    (void)info;
    ++*(int *)arg;
    return STET_OK;
}

TEST(A11_milliseconds_that_cannot_be_kept_are_refused_and_change_nothing)
{
    fixture *f = fixture_begin();
    int      n_schedules = 0;

    fixture_up_with(f, handlers);
    engine = f->engine;
    a_run = fixture_start(engine, "t.listens", "", NULL);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        int code = refusals[i].call();

        if (code != refusals[i].code || strstr(stet_last_error(), refusals[i].says) == NULL)
            test_fail(__FILE__, __LINE__, "%s: %s: %s", refusals[i].what, stet_code_name(code),
                      stet_last_error());
    }
    CHECK_INT(fixture_count(engine, WHOLE_STORE), 1);
    CHECK_OK(stet_schedule_list(engine, NULL, 100, count_schedule, &n_schedules));
    CHECK_INT(n_schedules, 0);
    fixture_end(f);
}

TEST(A11_milliseconds_that_cannot_be_kept_are_refused_in_a_handler)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.refused", "x", NULL);
    EXPECT_RESULT(f->engine, &run, "all refused");
    CHECK_INT(fixture_count(f->engine, WHOLE_STORE), 1);
    fixture_end(f);
}

TEST(A10_a_configuration_of_milliseconds_without_end_is_refused)
{
    fixture     *f = fixture_begin();
    stet_options o;
    stet_engine *e;

#define REFUSED_ms(name) (stet_options_init(&o), o.name = FOREVER, stet_open(&e, f->url, &o))
#define REFUSED(name, otherwise, least, most, unit, text)                                          \
    if (strcmp(unit, "ms") == 0) {                                                                 \
        CHECK_CODE(REFUSED_ms(name), STET_ECONFIG);                                                \
        CHECK_HAS(stet_last_error(), #name);                                                       \
    }
    STET_CONFIG_LIST(REFUSED)
    fixture_end(f);
}

TEST(A10_a_handler_whose_retries_wait_without_end_is_refused)
{
    static const stet_handler_options first = { .retry = { .first_ms = FOREVER } };
    static const stet_handler_options max = { .retry = { .max_ms = LONGEST + 1 } };
    fixture                          *f = fixture_begin();
    stet_engine                      *e = fixture_open(f);
    stet_handler                      table[] = { { "naps", h_naps, &first }, { 0 } };

    CHECK_CODE(stet_register(e, "t", table), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "t.naps: a retry policy that waits longer than 10,000 years");
    table[0].options = &max;
    CHECK_CODE(stet_register(e, "t", table), STET_EINVAL);
    table[0].options = &thrice;
    CHECK_OK(stet_register(e, "t", table));
    stet_close(e);
    fixture_end(f);
}

/* ---- what is for ever ------------------------------------------------------------------------ */

TEST(A5_to_wait_for_a_run_so_many_milliseconds_is_to_wait_for_ever)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.naps", "one", NULL);
    CHECK_OK(stet_wait(f->engine, NULL, &run, FOREVER));
    CHECK_OK(stet_invoke(f->engine, NULL, &run, "t.naps", stet_text("two"), NULL, FOREVER));
    run = fixture_start(f->engine, "t.naps", "three", NULL);
    CHECK_OK(stet_wait(f->engine, NULL, &run, FOREVER / 1000)); /* with the clock's time too long */
    run = fixture_start(f->engine, "t.naps", "four", NULL);
    CHECK_OK(stet_wait(f->engine, NULL, &run, INT64_MIN));
    fixture_end(f);
}

TEST(B25_to_wait_for_an_event_so_many_milliseconds_is_to_wait_for_ever)
{
    fixture           *f = fixture_begin();
    stet_subscription *s;
    stet_event         event;

    fixture_up_with(f, handlers);
    CHECK_OK(stet_subscribe(f->engine, &s, "news"));
    (void)fixture_start(f->engine, "t.naps", "", NULL);
    CHECK_OK(stet_event_next(s, &event, FOREVER));
    CHECK(fixture_is(event.value, "morning"));
    CHECK_CODE(stet_event_next(s, &event, INT64_MIN), STET_ETIMEOUT);
    stet_unsubscribe(s);
    fixture_end(f);
}

TEST(I12_to_wait_for_an_update_so_many_milliseconds_is_to_wait_for_ever)
{
    fixture    *f = fixture_begin();
    stet_bytes  reply;
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.changes", "", NULL);
    CHECK_OK(stet_update(f->engine, &reply, &run, "change", stet_text("it"),
                         STET_UPDATE_OPTIONS(.timeout_ms = FOREVER)));
    CHECK(fixture_is(reply, "it"));
    stet_free((void *)(uintptr_t)reply.data);
    fixture_end(f);
}

TEST(G11_to_poll_so_many_milliseconds_is_to_poll_until_there_is_something)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    int         did = 0;

    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_poll(f->engine, NULL, INT64_MIN));
    CHECK_OK(
        stet_start(f->engine, &run, "t.listens", stet_text(""), STET_START(.delay_ms = NAP_MS)));
    CHECK_OK(stet_engine_poll(f->engine, &did, FOREVER));
    CHECK_INT(did, 1);
    CHECK_OK(stet_engine_stop(f->engine, FOREVER));
    fixture_end(f);
}

static void *
stop_it(void *e)
{
    static int code;

    code = stet_engine_stop(e, FOREVER);
    return &code;
}

static bool
is_stopping(stet_engine *e)
{
    stet_health health;

    CHECK_OK(stet_health_get(e, &health));
    return !health.is_ready;
}

TEST(C7_to_stop_with_so_many_milliseconds_is_to_wait_for_every_body)
{
    fixture  *f = fixture_begin();
    pthread_t thread;
    void     *code;

    fixture_up_with(f, handlers);
    (void)fixture_start(f->engine, "t.blocks", "", NULL);
    gate_await(&forever_door, 1);
    CHECK_INT(pthread_create(&thread, NULL, stop_it, f->engine), 0);
    AWAIT(is_stopping(f->engine));
    for (int i = 0; i < 25; i++) /* it waits, and does not say that a body does not end */
        fixture_breathe();
    gate_open(&forever_door);
    CHECK_INT(pthread_join(thread, &code), 0);
    CHECK_INT(*(int *)code, STET_OK);
    fixture_end(f);
}

static int
no_letter(void *arg, const stet_run_info *info)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "%s is no dead letter", info->id);
}

TEST(C8_a_list_of_runs_until_the_end_of_time_has_all_and_one_from_then_on_none)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, handlers);
    (void)fixture_start(f->engine, "t.listens", "", NULL);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.to_ms = FOREVER)), 1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.from_ms = FOREVER)), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t", .to_ms = FOREVER)), 1);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t", .from_ms = FOREVER)), 0);
    CHECK_OK(stet_dlq_list(f->engine, STET_FILTER(.to_ms = FOREVER), no_letter, NULL));
    CHECK_OK(stet_dlq_list(f->engine, STET_FILTER(.from_ms = FOREVER), no_letter, NULL));
    fixture_end(f);
}

static int
runs_so_far(void *arg, const stet_schedule_info *info)
{
    CHECK_INT(info->grace_ms, FOREVER);
    *(uint64_t *)arg = info->fired;
    return STET_OK;
}

static bool
has_fired(stet_engine *e)
{
    uint64_t fired = 0;

    CHECK_OK(stet_schedule_get(e, "often", runs_so_far, &fired));
    return fired >= 2;
}

TEST(E4_a_grace_of_so_many_milliseconds_lets_nothing_be_late)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, handlers);
    engine = f->engine;
    CHECK_OK(schedule_with(STET_SCHEDULE(.every_ms = STET_SCHEDULE_EVERY_MIN_MS,
                                         .missed = STET_MISSED_SKIP, .grace_ms = FOREVER)));
    AWAIT(has_fired(engine));
    CHECK_OK(stet_schedule_remove(engine, "often"));
    fixture_end(f);
}

static int
on_report(void *arg, const stet_replay_report *report)
{
    *(stet_replay_end *)arg = report->end;
    return STET_OK;
}

TEST(I3_a_check_has_so_many_milliseconds_as_it_takes)
{
    fixture           *f = fixture_begin();
    stet_replay_end    end = STET_REPLAY_RECORD;
    stet_check_summary summary;

    fixture_up_with(f, handlers);
    a_run = fixture_start(f->engine, "t.listens", "", NULL);
    fixture_await_status(f->engine, &a_run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_check(f->engine, &summary,
                        STET_CHECK(.time_ms = FOREVER, .operations_max = FOREVER), on_report,
                        &end));
    CHECK_STR(stet_replay_end_name(end), "record");
    CHECK_INT(summary.checked, 1);
    CHECK_INT(summary.stuck, 0);
    fixture_end(f);
}

static int
on_operation(void *arg, const stet_operation *operation)
{
    (void)arg;
    if (strcmp(operation->name, "first") == 0)
        effect("sleeps %lld", (long long)operation->duration_ms);
    else
        effect("sends, later %d", operation->duration_ms > LONGEST);
    return STET_OK;
}

TEST(B14_a_description_has_so_many_milliseconds_as_it_takes)
{
    fixture     *f = fixture_begin();
    stet_engine *e =
        fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    stet_replay_end end = STET_REPLAY_TIME;

    CHECK_OK(stet_describe(e, "t.sends",
                           STET_DESCRIBE(.time_ms = FOREVER, .operations_max = FOREVER),
                           on_operation, on_report, &end));
    CHECK_STR(stet_replay_end_name(end), "returned");
    CHECK_INT(effects("sleeps 315576000000000"), 1);
    CHECK_INT(effects("sends, later 1"), 1);
    stet_close(e);
    fixture_end(f);
}

/* ---- the longest that is kept ---------------------------------------------------------------- */

/* It stands where its last decision left it, far in the future, and can be cancelled there. */
static void
stands(fixture *f, const char *handler, stet_status status, const char *fact)
{
    stet_run_id run = fixture_start(f->engine, handler, "", NULL);
    fixture_run now;

    AWAIT(fixture_facts(f->engine, &run, fact, NULL) > 0);
    fixture_await_status(f->engine, &run, status);
    now = fixture_look(f->engine, &run);
    CHECK(now.due_ms == 0 || now.due_ms > now.created_ms + INT64_C(200000000000000));
    CHECK_OK(stet_cancel(f->engine, &run, "test", NULL));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
}

TEST(C2_what_is_put_off_to_the_end_of_time_stands_there)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, handlers);
    stands(f, "t.steplater", STET_STATUS_SUSPENDED, "step retry");
    stands(f, "t.steplongest", STET_STATUS_SUSPENDED, "step retry");
    stands(f, "t.sleeplongest", STET_STATUS_SUSPENDED, "sleep");
    stands(f, "t.runlater", STET_STATUS_RETRYING, "deferred");
    stands(f, "t.fails", STET_STATUS_RETRYING, "attempt failed");
    fixture_end(f);
}
