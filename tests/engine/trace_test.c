/* Trace context is carried from run to run: calls, sends, starts from bodies, retries; and on log
 * lines. Row H7. */
#include "fixture.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define GIVEN "00-" TRACE "-00f067aa0ba902b7-01"
#define STATE "vendor=1,other=2"

static char           trace_lines[16][160];
static _Atomic size_t n_trace_lines, n_trace_begun;

/* "handler traceparent" of each line. */
static void
trace_log(void *arg, const stet_log_record *r)
{
    size_t i;

    (void)arg;
    if (strncmp(r->message, "trace", 5) != 0)
        return;
    i = atomic_fetch_add(&n_trace_begun, 1);
    CHECK(i < sizeof trace_lines / sizeof *trace_lines);
    (void)snprintf(trace_lines[i], sizeof trace_lines[i], "%s %s", r->handler,
                   r->traceparent != NULL ? r->traceparent : "none");
    atomic_fetch_add(&n_trace_lines, 1);
}

static const char *
trace_line(const char *handler)
{
    size_t len = strlen(handler);

    for (size_t i = 0; i < atomic_load(&n_trace_lines); i++)
        if (strncmp(trace_lines[i], handler, len) == 0 && trace_lines[i][len] == ' ')
            return trace_lines[i] + len + 1;
    test_fail(__FILE__, __LINE__, "%s said nothing", handler);
}

static int
body_trace(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, stet_text(stet_attempt_traceparent(a) != NULL
                                                ? stet_attempt_traceparent(a)
                                                : "none"));
}

/* Says what its body would put into a request. */
static int
h_leaf(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "request", body_trace, NULL, NULL));
    stet_log(ctx, STET_LOG_INFO, "trace of a leaf");
    if (stet_info(ctx)->traceparent != NULL &&
        strcmp(stet_info(ctx)->traceparent, out.data) != 0)
        return stet_fail(ctx, STET_ERUN, "the body has another context");
    if (stet_info(ctx)->tracestate != NULL && strcmp(stet_info(ctx)->tracestate, STATE) != 0)
        return stet_fail(ctx, STET_ERUN, "another state: %s", stet_info(ctx)->tracestate);
    return stet_return(ctx, out);
}

static stet_engine *trace_engine;

static int
body_starts(stet_attempt *a, void *arg)
{
    stet_run_id run, parent;

    (void)arg;
    (void)snprintf(parent.text, sizeof parent.text, "%s", stet_attempt_run(a));
    STET_TRY(stet_start(trace_engine, &run, "t.started", stet_text(""),
                        STET_START(.parent = &parent, .parent_step = "start", .child_key = "c")));
    return stet_attempt_return(a, stet_text(run.text));
}

/* Calls one, sends one, starts one in a body; over a sleep, so that it is replayed. */
static int
h_root(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes called;

    (void)input;
    STET_TRY(stet_call(ctx, &called, "t.called", stet_text(""), NULL));
    STET_TRY(stet_sleep_ms(ctx, "nap", 5));
    STET_TRY(stet_send(ctx, NULL, "t.sent", stet_text(""), NULL));
    STET_TRY(stet_step(ctx, NULL, "start", body_starts, NULL, NULL));
    stet_log(ctx, STET_LOG_INFO, "trace of the root");
    return stet_return(ctx, called);
}

static int
h_fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    stet_log(ctx, STET_LOG_INFO, "trace of one that fails");
    return stet_fail(ctx, STET_ERUN, "no");
}

static const stet_handler trace_handlers[] = {
    { "root", h_root, NULL },    { "called", h_leaf, NULL }, { "sent", h_leaf, NULL },
    { "started", h_leaf, NULL }, { "fails", h_fails, NULL }, { 0 },
};

static fixture *
trace_begin(void)
{
    fixture *f = fixture_begin();

    atomic_store(&n_trace_lines, 0);
    atomic_store(&n_trace_begun, 0);
    f->options.log = trace_log;
    f->options.parked_max = STET_NONE; /* every sleep is replayed over */
    fixture_up_with(f, trace_handlers);
    trace_engine = f->engine;
    return f;
}

/* Of the given trace, and not with the span it was given. */
static void
check_trace(const char *traceparent)
{
    CHECK_INT(strlen(traceparent), strlen(GIVEN));
    CHECK(strncmp(traceparent, "00-" TRACE "-", 36) == 0);
    CHECK(strncmp(traceparent + 36, &GIVEN[36], 16) != 0);
    CHECK_STR(traceparent + 52, "-01");
}

typedef struct trace_seen {
    char parent[64], state[64];
} trace_seen;

static int
trace_see(void *arg, const stet_run_info *info)
{
    trace_seen *seen = arg;

    (void)snprintf(seen->parent, sizeof seen->parent, "%s",
                   info->traceparent != NULL ? info->traceparent : "none");
    (void)snprintf(seen->state, sizeof seen->state, "%s",
                   info->tracestate != NULL ? info->tracestate : "none");
    return STET_OK;
}

TEST(H7_a_trace_is_carried_from_run_to_run)
{
    static const char *const handlers[] = { "t.root", "t.called", "t.sent", "t.started" };
    fixture                 *f = trace_begin();
    stet_run_id              run;
    trace_seen               seen;

    run = fixture_start(f->engine, "t.root", "",
                        STET_START(.traceparent = GIVEN, .tracestate = STATE));
    CHECK_OK(stet_wait(f->engine, NULL, &run, 0));
    AWAIT(atomic_load(&n_trace_lines) == 4);
    for (int i = 0; i < 4; i++) {
        check_trace(trace_line(handlers[i]));
        for (int k = 0; k < i; k++)
            CHECK(strcmp(trace_line(handlers[i]), trace_line(handlers[k])) != 0);
    }
    EXPECT_RESULT(f->engine, &run, trace_line("t.called")); /* the body saw the same */
    CHECK_OK(stet_run_get(f->engine, &run, trace_see, &seen));
    CHECK_STR(seen.parent, GIVEN);
    CHECK_STR(seen.state, STATE);
    fixture_end(f);
}

TEST(H7_a_run_without_a_trace_has_none_nor_has_what_it_starts)
{
    fixture    *f = trace_begin();
    stet_run_id run;

    run = fixture_start(f->engine, "t.root", "", NULL);
    EXPECT_RESULT(f->engine, &run, "none");
    AWAIT(atomic_load(&n_trace_lines) == 4);
    CHECK_STR(trace_line("t.root"), "none");
    CHECK_STR(trace_line("t.sent"), "none");
    CHECK_STR(trace_line("t.started"), "none");
    fixture_end(f);
}

TEST(H7_a_retried_dead_letter_stays_in_its_trace)
{
    fixture    *f = trace_begin();
    stet_run_id run, again;
    trace_seen  seen;

    run = fixture_start(f->engine, "t.fails", "",
                        STET_START(.traceparent = GIVEN, .retry = { .attempts = 1 }));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    EXPECT_ANSWER(f->engine, &again, STET_ERUN);
    CHECK_OK(stet_run_get(f->engine, &again, trace_see, &seen));
    CHECK_STR(seen.parent, GIVEN);
    check_trace(trace_lines[0] + strlen("t.fails "));
    check_trace(trace_lines[1] + strlen("t.fails "));
    CHECK(strcmp(trace_lines[0], trace_lines[1]) != 0); /* another run, another span */
    fixture_end(f);
}

TEST(H7_a_trace_that_is_none_is_refused)
{
    fixture    *f = trace_begin();
    stet_run_id run;

    CHECK_CODE(stet_start(f->engine, &run, "t.sent", stet_text(""),
                          STET_START(.traceparent = "00-12-34-01")),
               STET_EINVAL);
    CHECK_HAS(stet_last_error(), "\"00-12-34-01\" is no traceparent");
    CHECK_CODE(stet_start(f->engine, &run, "t.sent", stet_text(""),
                          STET_START(.tracestate = "a=1")),
               STET_EINVAL);
    CHECK_CODE(stet_start(f->engine, &run, "t.sent", stet_text(""),
                          STET_START(.traceparent = GIVEN, .tracestate = "a=1\nb: 2")),
               STET_EINVAL);
    CHECK_HAS(stet_last_error(), "tracestate");
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    fixture_end(f);
}
