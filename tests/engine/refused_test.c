/* Calls that are made where they cannot work: without an engine, in a forked child, in a handler,
 * with IDs and options that mean nothing. Each is refused with a sentence, nothing is written, and
 * the engine goes on. Row H1.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "damage.h"
#include "engine/engine.h"
#include "fixture.h"

static const stet_run_id nobody = { "run_00000000000000000000000000" };
static const char        no_awakeable[] = "awk_00000000000000000000000000";

static int
on_run(void *arg, const stet_run_info *info)
{
    (void)arg;
    (void)info;
    return STET_OK;
}

static int
on_fact(void *arg, const stet_fact_info *fact)
{
    (void)arg;
    (void)fact;
    return STET_OK;
}

static void
on_verdict(void *arg, const stet_verdict *verdict)
{
    (void)arg;
    (void)verdict;
}

static int
on_worker(void *arg, const stet_worker_info *worker)
{
    (void)arg;
    (void)worker;
    return STET_OK;
}

static int
on_handler(void *arg, const stet_handler_info *handler)
{
    (void)arg;
    (void)handler;
    return STET_OK;
}

static int
on_entry(void *arg, const char *name, stet_bytes value)
{
    (void)arg;
    (void)name;
    (void)value;
    return STET_OK;
}

static int
on_audit(void *arg, const stet_audit_entry *entry)
{
    (void)arg;
    (void)entry;
    return STET_OK;
}

static int
on_boundary(void *arg, const stet_boundary *boundary)
{
    (void)arg;
    (void)boundary;
    return STET_OK;
}

static int
on_paused(void *arg, const stet_paused *paused)
{
    (void)arg;
    (void)paused;
    return STET_OK;
}

static int
on_schedule(void *arg, const stet_schedule_info *schedule)
{
    (void)arg;
    (void)schedule;
    return STET_OK;
}

static int
on_occurrence(void *arg, const stet_occurrence_info *occurrence)
{
    (void)arg;
    (void)occurrence;
    return STET_OK;
}

static int
on_report(void *arg, const stet_replay_report *report)
{
    (void)arg;
    (void)report;
    return STET_OK;
}

static int
on_operation(void *arg, const stet_operation *operation)
{
    (void)arg;
    (void)operation;
    return STET_OK;
}

static int
when_never(void *arg, int64_t *next_ms, const char *schedule, int64_t after_ms)
{
    (void)arg;
    (void)next_ms;
    (void)schedule;
    (void)after_ms;
    return STET_END;
}

static const stet_handler echo_only[] = { { "echo", h_echo, NULL }, { 0 } };

#define CALL(name, ...)                                                                            \
    static int call_##name(stet_engine *e, const stet_run_id *run)                                 \
    {                                                                                              \
        (void)run;                                                                                 \
        return stet_##name(e, __VA_ARGS__);                                                        \
    }

static stet_bytes         out_value;
static stet_health        out_health;
static stet_run_id        out_run;
static stet_start_request one_request;
static stet_check_summary out_summary;
static stet_subscription *out_subscription;

static int
call_engine_start(stet_engine *e, const stet_run_id *run)
{
    (void)run;
    return stet_engine_start(e);
}

static int
call_start_many(stet_engine *e, const stet_run_id *run)
{
    (void)run;
    one_request = (stet_start_request){ .handler = "t.echo", .input = stet_text("") };
    return stet_start_many(e, &one_request, 1);
}

static int
call_audit_off(stet_engine *e, const stet_run_id *run)
{
    (void)run;
    return stet_audit_off(e);
}

CALL(register, "x", echo_only)
CALL(register_object, "x", echo_only, NULL)
CALL(engine_stop, 0)
CALL(engine_poll, NULL, 0)
CALL(health_get, &out_health)
CALL(worker_list, on_worker, NULL)
CALL(handler_list, on_handler, NULL)
CALL(run_id_make, &out_run)
CALL(start, &out_run, "t.echo", stet_text(""), NULL)
CALL(wait, NULL, run, 1)
CALL(result_get, NULL, run)
CALL(invoke, NULL, NULL, "t.echo", stet_text(""), NULL, 1)
CALL(cancel, run, NULL, NULL)
CALL(resolve, no_awakeable, stet_text(""))
CALL(reject, no_awakeable, "no")
CALL(state_read, &out_value, "o", "k", "n")
CALL(state_list, "o", "k", on_entry, NULL)
CALL(run_get, run, on_run, NULL)
CALL(run_list, NULL, on_run, NULL)
CALL(run_facts, run, false, on_fact, NULL)
CALL(why, run, on_verdict, NULL)
CALL(verify, NULL, NULL, NULL)
CALL(repair, NULL, NULL, NULL)
CALL(dlq_list, NULL, on_run, NULL)
CALL(dlq_retry, NULL, run)
CALL(run_retry, NULL, run, "who", NULL)
CALL(dlq_discard, run)
CALL(unstick, run, NULL)
CALL(rollback_retry, run, NULL, NULL)
CALL(start_in, (stet_conn){ 0 }, &out_run, "t.echo", stet_text(""), NULL)
CALL(run_approve, run, "who", NULL)
CALL(run_reject, run, "who", NULL)
CALL(run_resume, run, "who", NULL)
CALL(boundary_list, on_boundary, NULL)
CALL(emit, NULL, "news", stet_text(""))
CALL(subscribe, &out_subscription, "news")
CALL(signal, run, "go", stet_text(""), NULL)
CALL(query, NULL, run, "get", stet_text(""), 1)
CALL(update, NULL, run, "set", stet_text(""), NULL)
CALL(run_pause, run, "who", "why")
CALL(run_skip, run, "step", stet_text(""), "who", "why")
CALL(run_edit, run, "step", stet_text(""), "who", "why")
CALL(run_rewind, run, NULL, "who", "why")
CALL(run_fail, run, "who", "why")
CALL(run_fork, NULL, run, NULL, "who", "why")
CALL(handler_pause, "t.echo", "who", "why")
CALL(handler_resume, "t.echo", "who", "why")
CALL(paused_list, on_paused, NULL)
CALL(audit_run, run, on_audit, NULL)
CALL(run_export, &out_value, run)
CALL(replay, stet_text("x"), on_operation, on_report, NULL)
CALL(describe, "t.echo", NULL, on_operation, on_report, NULL)
CALL(check, &out_summary, NULL, on_report, NULL)
CALL(register_schedule, "never", when_never, NULL)
CALL(schedule_ensure, NULL, "s", "t.echo", stet_text(""), STET_SCHEDULE(.every = "1h"))
CALL(schedule_update, NULL, "s", NULL, STET_SCHEDULE(.every = "1h"))
CALL(schedule_pause, "s", "who")
CALL(schedule_resume, "s")
CALL(schedule_remove, "s")
CALL(schedule_get, "s", on_schedule, NULL)
CALL(schedule_list, NULL, 0, on_schedule, NULL)
CALL(schedule_history, "s", 0, on_occurrence, NULL)

typedef struct call {
    const char *name;
    int (*fn)(stet_engine *e, const stet_run_id *run);
    bool has_run;    /* it takes a run's ID */
    bool is_outside; /* it waits for the store or for runs: refused in handlers */
} call;

static const call calls[] = {
    { "stet_register", call_register, false, false },
    { "stet_register_object", call_register_object, false, false },
    { "stet_engine_start", call_engine_start, false, false },
    { "stet_engine_stop", call_engine_stop, false, false },
    { "stet_engine_poll", call_engine_poll, false, false },
    { "stet_health_get", call_health_get, false, false },
    { "stet_worker_list", call_worker_list, false, false },
    { "stet_handler_list", call_handler_list, false, false },
    { "stet_run_id_make", call_run_id_make, false, false },
    { "stet_start", call_start, false, true },
    { "stet_start_many", call_start_many, false, true },
    { "stet_wait", call_wait, true, true },
    { "stet_result_get", call_result_get, true, false },
    { "stet_invoke", call_invoke, false, true },
    { "stet_cancel", call_cancel, true, false },
    { "stet_resolve", call_resolve, false, true },
    { "stet_reject", call_reject, false, true },
    { "stet_state_read", call_state_read, false, false },
    { "stet_state_list", call_state_list, false, false },
    { "stet_run_get", call_run_get, true, false },
    { "stet_run_list", call_run_list, false, false },
    { "stet_run_facts", call_run_facts, true, false },
    { "stet_why", call_why, true, false },
    { "stet_verify", call_verify, false, false },
    { "stet_repair", call_repair, false, true },
    { "stet_dlq_list", call_dlq_list, false, false },
    { "stet_dlq_retry", call_dlq_retry, true, true },
    { "stet_run_retry", call_run_retry, true, true },
    { "stet_dlq_discard", call_dlq_discard, true, false },
    { "stet_unstick", call_unstick, true, false },
    { "stet_rollback_retry", call_rollback_retry, true, false },
    { "stet_start_in", call_start_in, false, true },
    { "stet_run_approve", call_run_approve, true, true },
    { "stet_run_reject", call_run_reject, true, true },
    { "stet_run_resume", call_run_resume, true, true },
    { "stet_boundary_list", call_boundary_list, false, false },
    { "stet_emit", call_emit, false, true },
    { "stet_subscribe", call_subscribe, false, true },
    { "stet_signal", call_signal, true, true },
    { "stet_query", call_query, true, true },
    { "stet_update", call_update, true, true },
    { "stet_run_pause", call_run_pause, true, true },
    { "stet_run_skip", call_run_skip, true, true },
    { "stet_run_edit", call_run_edit, true, true },
    { "stet_run_rewind", call_run_rewind, true, true },
    { "stet_run_fail", call_run_fail, true, true },
    { "stet_run_fork", call_run_fork, true, true },
    { "stet_handler_pause", call_handler_pause, false, false },
    { "stet_handler_resume", call_handler_resume, false, false },
    { "stet_paused_list", call_paused_list, false, false },
    { "stet_audit_run", call_audit_run, true, false },
    { "stet_audit_off", call_audit_off, false, true },
    { "stet_run_export", call_run_export, true, false },
    { "stet_replay", call_replay, false, false },
    { "stet_describe", call_describe, false, false },
    { "stet_check", call_check, false, false },
    { "stet_register_schedule", call_register_schedule, false, false },
    { "stet_schedule_ensure", call_schedule_ensure, false, true },
    { "stet_schedule_update", call_schedule_update, false, true },
    { "stet_schedule_pause", call_schedule_pause, false, true },
    { "stet_schedule_resume", call_schedule_resume, false, true },
    { "stet_schedule_remove", call_schedule_remove, false, true },
    { "stet_schedule_get", call_schedule_get, false, false },
    { "stet_schedule_list", call_schedule_list, false, false },
    { "stet_schedule_history", call_schedule_history, false, false },
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static void
expect_all(stet_engine *e, int code, const char *said)
{
    for (size_t i = 0; i < CALLS; i++) {
        int got = calls[i].fn(e, &nobody);

        if (got != code)
            test_fail(__FILE__, __LINE__, "%s: %s: %s", calls[i].name, stet_code_name(got),
                      stet_last_error());
        CHECK_HAS(stet_last_error(), calls[i].name);
        CHECK_HAS(stet_last_error(), said);
    }
}

TEST(H1_no_engine_is_refused_by_every_call)
{
    expect_all(NULL, STET_EINVAL, "no engine");
    stet_engine_nudge(NULL);
    stet_close(NULL);
}

TEST(H1_a_forked_child_is_told_whose_engine_it_has)
{
    fixture           *f = fixture_begin();
    stet_subscription *s;
    stet_event         event;
    stet_run_id        run;
    pid_t              child;
    int                status = -1;

    fixture_up_with(f, echo_only);
    CHECK_OK(stet_subscribe(f->engine, &s, "news"));
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        expect_all(f->engine, STET_EFORKED, "after fork()");
        CHECK_CODE(stet_event_next(s, &event, 1), STET_EFORKED);
        stet_engine_nudge(f->engine); /* nobody is told, nothing is locked */
        stet_close(f->engine); /* leaves it to its owner */
        _exit(7);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 7);
    run = fixture_start(f->engine, "t.echo", "still", NULL);
    EXPECT_RESULT(f->engine, &run, "still");
    stet_unsubscribe(s);
    fixture_end(f);
}

TEST(H1_ids_that_are_none_are_refused_and_runs_that_are_not_there_are_named)
{
    static const stet_run_id nonsense = { "nonsense" };
    fixture                 *f = fixture_begin();

    fixture_up_with(f, echo_only);
    for (size_t i = 0; i < CALLS; i++) {
        if (!calls[i].has_run)
            continue;
        CHECK_CODE(calls[i].fn(f->engine, &nonsense), STET_EINVAL);
        CHECK_HAS(stet_last_error(), "nonsense");
        CHECK_CODE(calls[i].fn(f->engine, &nobody), STET_ENOTFOUND);
        CHECK_HAS(stet_last_error(), nobody.text);
    }
    CHECK_CODE(stet_resolve(f->engine, "nonsense", stet_text("")), STET_EINVAL);
    CHECK_CODE(stet_reject(f->engine, no_awakeable, NULL), STET_ENOTFOUND);
    fixture_end(f);
}

/* ---- in a handler ---------------------------------------------------------------------------- */

static fixture           *inside;
static stet_subscription *subscribed;

static int
h_wrong(stet_ctx *ctx, stet_bytes input)
{
    stet_event event;

    (void)input;
    CHECK_CODE(stet_event_next(subscribed, &event, 1), STET_EUSAGE);
    for (size_t i = 0; i < CALLS; i++)
        if (calls[i].is_outside) {
            CHECK_CODE(calls[i].fn(inside->engine, &nobody), STET_EUSAGE);
            CHECK_HAS(stet_last_error(), calls[i].name);
        }
    return stet_return(ctx, stet_text("refused"));
}

TEST(H1_calls_that_wait_are_refused_in_handlers)
{
    static const stet_handler handlers[] = { { "wrong", h_wrong, NULL },
                                             { "echo", h_echo, NULL },
                                             { 0 } };
    stet_run_id               run;

    inside = fixture_begin();
    fixture_up_with(inside, handlers);
    CHECK_OK(stet_subscribe(inside->engine, &subscribed, "news"));
    run = fixture_start(inside->engine, "t.wrong", "", NULL);
    EXPECT_RESULT(inside->engine, &run, "refused");
    CHECK_INT(fixture_count(inside->engine, NULL), 1);
    stet_unsubscribe(subscribed);
    fixture_end(inside);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

TEST(H1_what_is_too_long_is_refused)
{
    static char         text[8192];
    fixture            *f = fixture_begin();
    stet_run_id         run;
    stet_start_request *requests = calloc(100001, sizeof *requests);

    CHECK(requests != NULL);
    fixture_up_with(f, echo_only);
    run = fixture_start(f->engine, "t.echo", "", STET_START(.delay = "1h"));
    memset(text, 'x', sizeof text - 1);
    CHECK_CODE(stet_cancel(f->engine, &run, text, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_cancel(f->engine, &run, NULL, text), STET_ETOOBIG);
    CHECK_CODE(stet_run_approve(f->engine, &run, text, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_run_resume(f->engine, &run, NULL, text), STET_ETOOBIG);
    CHECK_CODE(stet_run_pause(f->engine, &run, text, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_run_pause(f->engine, &run, NULL, text), STET_ETOOBIG);
    CHECK_CODE(stet_run_fork(f->engine, NULL, &run, NULL, text, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_run_fork(f->engine, NULL, &run, NULL, NULL, text), STET_ETOOBIG);
    CHECK_CODE(stet_run_retry(f->engine, NULL, &run, text, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_run_retry(f->engine, NULL, &run, NULL, text), STET_ETOOBIG);
    CHECK_CODE(stet_handler_pause(f->engine, "t.echo", text, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_handler_pause(f->engine, "t.echo", NULL, text), STET_ETOOBIG);
    text[256] = '\0';
    CHECK_CODE(stet_start_many(f->engine, requests, 100001), STET_ETOOBIG);
    CHECK_INT(requests[100000].code, STET_ETOOBIG);
    free(requests);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_PENDING);
    CHECK_OK(stet_cancel(f->engine, &run, text, text));
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_CANCELLED);
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    fixture_end(f);
}

/* ---- names and options ----------------------------------------------------------------------- */

TEST(H1_names_and_options_that_mean_nothing_are_refused)
{
    static const stet_run_id nonsense = { "nonsense" };
    fixture                 *f = fixture_begin();

    fixture_up_with(f, echo_only);
    CHECK_CODE(stet_handler_pause(f->engine, NULL, "who", NULL), STET_ENAME);
    CHECK_CODE(stet_handler_pause(f->engine, "", "who", NULL), STET_ENAME);
    CHECK_CODE(stet_handler_pause(f->engine, "no\tway", "who", NULL), STET_ENAME);
    CHECK_CODE(stet_handler_pause(f->engine, "no.w\tay", "who", NULL), STET_ENAME);
    CHECK_CODE(stet_schedule_get(f->engine, "no\tway", on_schedule, NULL), STET_ENAME);
    CHECK_CODE(stet_schedule_history(f->engine, "no\tway", 0, on_occurrence, NULL), STET_ENAME);
    CHECK_CODE(stet_schedule_ensure(f->engine, NULL, "s", "t.echo", stet_text(""),
                                    STET_SCHEDULE(.function = "no\tway")),
               STET_ENAME);
    CHECK_CODE(stet_state_read(f->engine, &out_value, "n\to", "k", "n"), STET_ENAME);
    CHECK_CODE(stet_state_read(f->engine, &out_value, "o", "k", "n\to"), STET_ENAME);
    CHECK_CODE(stet_run_list(f->engine, STET_FILTER(.before = &nonsense), on_run, NULL),
               STET_EINVAL);
    CHECK_CODE(stet_run_list(f->engine, &(stet_run_filter){ .size = 1 }, on_run, NULL),
               STET_EINVAL);
    CHECK_HAS(stet_last_error(), "STET_FILTER");
    CHECK_CODE(stet_query(f->engine, NULL, &nobody, "get", stet_text(""), 3600001), STET_EINVAL);
    CHECK_CODE(stet_query(f->engine, NULL, &nobody, "get", stet_text(""), -1), STET_EINVAL);
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    fixture_end(f);
}

/* ---- others are quicker ---------------------------------------------------------------------- */

/* Whatever is committed meets a change that came just before. */
static int
commit_conflicts(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    (void)s;
    (void)units;
    for (size_t i = 0; i < n; i++)
        outcomes[i].result = STET_ECONFLICT;
    return STET_OK;
}

static int
h_fail(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "no way");
}

TEST(C4_a_run_that_changes_all_the_time_cannot_be_cancelled_now)
{
    static const stet_handler handlers[] = { { "fail", h_fail, NULL },
                                             { "approval", h_approval, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *client;
    stet_run_id               waits, letter;
    stet_result               r;
    char                      awakeable[STET_ID_TEXT_MAX];

    fixture_up_with(f, handlers);
    waits = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &waits, STET_STATUS_SUSPENDED);
    memcpy(awakeable, handed_out, sizeof awakeable);
    letter = fixture_start(f->engine, "t.fail", "", NULL);
    r = EXPECT_END(f->engine, &letter, STET_ERUN);
    stet_result_free(&r);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    damage_ops(client)->commit = commit_conflicts;
    CHECK_CODE(stet_cancel(client, &waits, NULL, NULL), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "nothing was written");
    CHECK_CODE(stet_dlq_retry(client, NULL, &letter), STET_EEXISTS);
    CHECK_HAS(stet_last_error(), "just now");
    CHECK_CODE(stet_dlq_discard(client, &letter), STET_EENDED);
    CHECK_HAS(stet_last_error(), "just now");
    stet_close(client);
    /* Nothing of that was written. */
    CHECK_OK(stet_resolve(f->engine, awakeable, stet_text("1")));
    EXPECT_RESULT(f->engine, &waits, "1");
    CHECK_OK(stet_dlq_retry(f->engine, NULL, &letter));
    fixture_end(f);
}
