/* The context: names (B21), what it tells (B23), where it may be used (B24), what a handler may
 * return. tsan: yes */
#include "fixture.h"

/* ---- B21 ------------------------------------------------------------------------------------- */

static int
bad_names(stet_ctx *ctx, stet_bytes input)
{
    static const char *const bad[] = { "",     "__x",      "__",    "rollback:", "rollback:charge",
                                       " x",   "x ",       "a\nb",  "a\tb",      "a%sb",
                                       "a\"b", "\xc3\xa4", "a\x80", NULL };
    stet_awakeable_id        id;
    stet_future             *future;
    stet_bytes               value;
    char                     name[200];
    int                      version;

    (void)input;
    for (int i = 0; i < 14; i++) {
        CHECK_CODE(stet_step(ctx, NULL, bad[i], body_effect, (void *)"ran", NULL), STET_ENAME);
        CHECK_HAS(stet_last_error(), "step");
        CHECK_CODE(stet_step_start(ctx, &future, bad[i], body_effect, (void *)"ran", NULL),
                   STET_ENAME);
        CHECK_CODE(stet_sleep(ctx, bad[i], "1ms"), STET_ENAME);
        CHECK_CODE(stet_sleep_ms(ctx, bad[i], 1), STET_ENAME);
        if (bad[i] != NULL)
            CHECK_CODE(stet_sleep_start(ctx, &future, bad[i], "1ms"), STET_ENAME);
        CHECK_CODE(stet_awakeable(ctx, &id, &future, bad[i]), STET_ENAME);
        CHECK_CODE(stet_version(ctx, &version, bad[i], 0, 1), STET_ENAME);
        CHECK_CODE(stet_state_get(ctx, &value, bad[i]), STET_ENAME);
        CHECK_CODE(stet_state_set(ctx, bad[i], stet_text("1")), STET_ENAME);
        CHECK_CODE(stet_state_clear(ctx, bad[i]), STET_ENAME);
    }
    memset(name, 'n', sizeof name);
    name[129] = '\0';
    CHECK_CODE(stet_step(ctx, NULL, name, body_effect, (void *)"ran", NULL), STET_ENAME);
    name[128] = '\0';
    STET_TRY(stet_step(ctx, NULL, name, body_effect, (void *)"longest", NULL));
    STET_TRY(stet_step(ctx, NULL, "_x", body_effect, (void *)"fine", NULL));
    STET_TRY(stet_step(ctx, NULL, "rollback", body_effect, (void *)"fine", NULL));
    STET_TRY(stet_step(ctx, NULL, "Charge card: a/b-c_d.e", body_effect, (void *)"fine", NULL));
    return stet_return(ctx, stet_text("named"));
}

TEST(B21_reserved_empty_illegal_and_overlong_names_are_refused_and_record_nothing)
{
    static const stet_handler handlers[] = { { "bad", bad_names, NULL }, { 0 } };
    const fixture_service     services[] = { { "o", handlers, true, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "o.bad", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "named");
    CHECK_INT(effects("ran"), 0);
    CHECK_INT(effects("longest"), 1);
    CHECK_INT(effects("fine"), 3);
    CHECK_INT(fixture_facts(f->engine, &run, "step", NULL), 4);
    CHECK_INT(fixture_facts(f->engine, &run, "sleep", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "awakeable", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "state set", NULL), 0);
    fixture_end(f);
}

/* ---- B23 ------------------------------------------------------------------------------------- */

static int
tells(stet_ctx *ctx, stet_bytes input)
{
    const stet_ctx_info *i = stet_info(ctx);

    (void)input;
    effect("%s %s %s %s %s attempt %u of %u parent %s", i->run, i->service, i->handler,
           i->key != NULL ? i->key : "-", i->group != NULL ? i->group : "-", i->attempt,
           i->attempts_max, i->parent != NULL ? i->parent : "-");
    effect("deadline %d created %d", i->deadline_ms != 0, i->created_ms != 0);
    if (i->attempt < 2)
        return stet_fail(ctx, STET_ERETRY, "once more");
    return stet_return(ctx, stet_text(i->run));
}

static int
calls_teller(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_call(ctx, &out, "o.tell", stet_text(""),
                       STET_START(.key = "k", .group = "g", .retry.attempts = 4)));
    return stet_return(ctx, out);
}

TEST(B23_the_context_tells_run_service_handler_key_attempt_group_and_parent)
{
    static const stet_handler tellers[] = { { "tell", tells, NULL }, { 0 } };
    static const stet_handler callers[] = { { "tell", tells, NULL },
                                            { "call", calls_teller, NULL },
                                            { 0 } };
    const fixture_service     services[] = { { "o", tellers, true, NULL },
                                             { "s", callers, false, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, parent, child;
    stet_result               result;
    char                      line[256];

    fixture_up(f, services);
    run = fixture_start(f->engine, "s.tell", "", STET_START(.timeout = "1h"));
    EXPECT_RESULT(f->engine, &run, run.text);
    (void)snprintf(line, sizeof line, "%s s tell - - attempt 1 of 3 parent -", run.text);
    CHECK_INT(effects(line), 1);
    (void)snprintf(line, sizeof line, "%s s tell - - attempt 2 of 3 parent -", run.text);
    CHECK_INT(effects(line), 1);
    CHECK_INT(effects("deadline 1 created 1"), 2);
    parent = fixture_start(f->engine, "s.call", "", NULL);
    result = EXPECT_END(f->engine, &parent, STET_OK);
    (void)snprintf(child.text, sizeof child.text, "%.*s", (int)result.value.len,
                   (const char *)result.value.data);
    stet_result_free(&result);
    (void)snprintf(line, sizeof line, "%s o tell k g attempt 2 of 4 parent %s", child.text,
                   parent.text);
    CHECK_INT(effects(line), 1);
    CHECK_INT(effects("deadline 0 created 1"), 2);
    fixture_end(f);
}

static int
stays_open(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return fixture_pause(ctx);
}

static int
lineage(stet_ctx *ctx, stet_bytes input)
{
    const stet_ctx_info *i = stet_info(ctx);

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, (void *)"one", NULL));
    effect("%s depends on %zu: %s %s; step %s key %s", i->run, i->n_depended_on,
           i->n_depended_on > 0 ? i->depended_on[0].kind : "-",
           i->n_depended_on > 0 ? i->depended_on[0].run : "-",
           i->parent_step != NULL ? i->parent_step : "-",
           i->child_key != NULL ? i->child_key : "-");
    if (i->n_depended_on == 0)
        return stet_fail(ctx, STET_EPERMANENT, "not the first time");
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text(i->depended_on[0].run));
}

TEST(B23_the_context_tells_what_the_run_depended_on_and_its_lineage)
{
    static const stet_handler handlers[] = { { "lineage", lineage, NULL },
                                             { "paused", stays_open, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               parent, run, retried;
    char                      line[256];

    fixture_up_with(f, handlers);
    parent = fixture_start(f->engine, "t.paused", "", NULL);
    CHECK_OK(stet_start(f->engine, &run, "t.lineage", stet_text(""),
                        STET_START(.parent = &parent, .parent_step = "fan out", .child_key = "k")));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    (void)snprintf(line, sizeof line, "%s depends on 0: - -; step fan out key k", run.text);
    CHECK_INT(effects(line), 1);
    CHECK_OK(stet_dlq_retry(f->engine, &retried, &run));
    fixture_paused(f->engine, &retried);
    fixture_replay_with(f, &retried, handlers); /* the same in another process */
    EXPECT_RESULT(f->engine, &retried, run.text);
    (void)snprintf(line, sizeof line, "%s depends on 1: retry %s; step fan out key -", retried.text,
                   run.text);
    CHECK_INT(effects(line), 2);
    CHECK_INT(effects("one"), 1);
    fixture_go_on(f->engine, &parent);
    fixture_end(f);
}

static int
replaying(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("at the top %d", stet_info(ctx)->is_replaying);
    stet_log(ctx, STET_LOG_INFO, "said once, at the top");
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, (void *)"one", NULL));
    STET_TRY(fixture_pause(ctx));
    effect("at the end %d", stet_info(ctx)->is_replaying);
    stet_log(ctx, STET_LOG_INFO, "said once, at the end");
    return STET_OK;
}

TEST(B23_the_context_tells_whether_it_replays_and_logs_are_silent_then)
{
    static const stet_handler handlers[] = { { "replay", replaying, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.replay", "", NULL);
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("at the top 0"), 1);
    CHECK_INT(effects("at the top 1"), 1);
    CHECK_INT(effects("at the end 0"), 1);
    CHECK_INT(fixture_logged(f, "said once, at the top"), 1);
    CHECK_INT(fixture_logged(f, "said once, at the end"), 1);
    fixture_end(f);
}

/* ---- B24 ------------------------------------------------------------------------------------- */

/* Every call that a context knows, from a place where none is allowed. */
static void
misuse(stet_ctx *ctx, stet_future *some)
{
    stet_awakeable_id id;
    stet_future      *future, *set[1] = { some };
    stet_bytes        value;
    stet_run_id       run;
    int64_t           now_ms;
    size_t            chosen;
    int               version;

    CHECK_CODE(stet_step(ctx, NULL, "x", body_effect, (void *)"ran", NULL), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "stet_step");
    CHECK_CODE(stet_step_start(ctx, &future, "x", body_effect, (void *)"ran", NULL), STET_EUSAGE);
    CHECK_CODE(stet_sleep(ctx, "x", "1ms"), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "stet_sleep");
    CHECK_CODE(stet_sleep_ms(ctx, "x", 1), STET_EUSAGE);
    CHECK_CODE(stet_sleep_start(ctx, &future, "x", "1ms"), STET_EUSAGE);
    CHECK_CODE(stet_call(ctx, NULL, "t.echo", stet_text(""), NULL), STET_EUSAGE);
    CHECK_CODE(stet_call_start(ctx, &future, "t.echo", stet_text(""), NULL), STET_EUSAGE);
    CHECK_CODE(stet_send(ctx, &run, "t.echo", stet_text(""), NULL), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "stet_send");
    CHECK_CODE(stet_awakeable(ctx, &id, &future, "x"), STET_EUSAGE);
    CHECK_CODE(stet_ctx_resolve(ctx, "awk_00000000000000000000000000", stet_text("")), STET_EUSAGE);
    CHECK_CODE(stet_ctx_reject(ctx, "awk_00000000000000000000000000", "x"), STET_EUSAGE);
    CHECK_CODE(stet_await(ctx, NULL, some), STET_EUSAGE);
    CHECK_CODE(stet_await_for(ctx, NULL, some, "1ms"), STET_EUSAGE);
    CHECK_CODE(stet_await_all(ctx, set, 1), STET_EUSAGE);
    CHECK_CODE(stet_await_any(ctx, &chosen, set, 1, NULL), STET_EUSAGE);
    CHECK_CODE(stet_state_get(ctx, &value, "x"), STET_EUSAGE);
    CHECK_CODE(stet_state_set(ctx, "x", stet_text("1")), STET_EUSAGE);
    CHECK_CODE(stet_state_clear(ctx, "x"), STET_EUSAGE);
    CHECK_CODE(stet_now(ctx, &now_ms), STET_EUSAGE);
    CHECK_CODE(stet_version(ctx, &version, "x", 0, 1), STET_EUSAGE);
    CHECK_CODE(stet_return(ctx, stet_text("wrong")), STET_EUSAGE);
    CHECK_CODE(stet_return_json(ctx, "1"), STET_EUSAGE);
    CHECK_CODE(stet_fail(ctx, STET_EPERMANENT, "wrong"), STET_EUSAGE);
    CHECK_CODE(stet_defer_until(ctx, 1, "wrong"), STET_EUSAGE);
    CHECK_CODE(stet_log_set(ctx, "x", "y"), STET_EUSAGE);
    stet_log(ctx, STET_LOG_ERROR, "said from elsewhere");
    stet_log_with(ctx, STET_LOG_ERROR, STET_FIELDS({ "x", "y" }), "said from elsewhere");
}

typedef struct misuse_arg {
    stet_ctx    *ctx;
    stet_future *future;
    const char  *names; /* what the error names instead */
} misuse_arg;

static int
body_misuses(stet_attempt *a, void *arg)
{
    misuse_arg *m = arg;

    (void)a;
    misuse(m->ctx, m->future);
    CHECK_CODE(stet_return(m->ctx, stet_text("wrong")), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), m->names);
    effect("misused");
    return STET_OK;
}

static int
echo(stet_ctx *ctx, stet_bytes input)
{
    effect("echo");
    return stet_return(ctx, input);
}

static int
misused_in_body(stet_ctx *ctx, stet_bytes input)
{
    misuse_arg m = { ctx, NULL, "stet_attempt_return" };

    (void)input;
    STET_TRY(stet_sleep_start(ctx, &m.future, "future", "1ms"));
    STET_TRY(stet_step(ctx, NULL, "misuse", body_misuses, &m, NULL));
    return stet_return(ctx, stet_text("unharmed"));
}

static int
misused_in_future(stet_ctx *ctx, stet_bytes input)
{
    misuse_arg   m = { ctx, NULL, "stet_attempt_return" };
    stet_future *step;

    (void)input;
    STET_TRY(stet_sleep_start(ctx, &m.future, "future", "1ms"));
    STET_TRY(stet_step_start(ctx, &step, "misuse", body_misuses, &m, NULL));
    STET_TRY(stet_await(ctx, NULL, step));
    return stet_return(ctx, stet_text("unharmed"));
}

static void *
thread_misuses(void *arg)
{
    misuse_arg *m = arg;

    misuse(m->ctx, m->future);
    effect("misused");
    return NULL;
}

static int
misused_in_thread(stet_ctx *ctx, stet_bytes input)
{
    misuse_arg m = { ctx, NULL, NULL };
    pthread_t  thread;

    (void)input;
    STET_TRY(stet_sleep_start(ctx, &m.future, "future", "1ms"));
    CHECK(pthread_create(&thread, NULL, thread_misuses, &m) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return stet_return(ctx, stet_text("unharmed"));
}

static void
check_misuse(const char *handler)
{
    static const stet_handler handlers[] = { { "body", misused_in_body, NULL },
                                             { "future", misused_in_future, NULL },
                                             { "thread", misused_in_thread, NULL },
                                             { "echo", echo, NULL },
                                             { 0 } };
    const fixture_service     services[] = { { "o", handlers, true, NULL },
                                             { "t", handlers, false, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up(f, services);
    run = fixture_start(f->engine, handler, "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "unharmed");
    CHECK_INT(effects("misused"), 1);
    CHECK_INT(effects("ran"), 0);
    CHECK_INT(effects("echo"), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "x"), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "sleep", NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "send", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "call", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "state set", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "now", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "awakeable", NULL), 0);
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    CHECK_INT(fixture_logged(f, "said from elsewhere"), 0);
    fixture_end(f);
}

TEST(B24_a_context_used_in_a_step_body_is_refused_and_records_nothing)
{
    check_misuse("o.body");
}
TEST(B24_a_context_used_in_the_body_of_a_future_is_refused)
{
    check_misuse("o.future");
}
TEST(B24_a_context_used_in_another_thread_is_refused)
{
    check_misuse("o.thread");
}

static _Atomic(stet_ctx *) leaked;

static int
leaks(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    atomic_store(&leaked, ctx);
    return stet_return(ctx, stet_text("returned"));
}

TEST(B24_a_context_used_after_return_is_refused)
{
    static const stet_handler handlers[] = { { "leak", leaks, NULL },
                                             { "echo", echo, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_health               health;
    int64_t                   now_ms;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.leak", "", NULL);
    EXPECT_RESULT(f->engine, &run, "returned");
    AWAIT(stet_health_get(f->engine, &health) == STET_OK && health.in_flight == 0);
    CHECK_CODE(stet_now(atomic_load(&leaked), &now_ms), STET_EUSAGE);
    CHECK_CODE(stet_sleep(atomic_load(&leaked), "x", "1ms"), STET_EUSAGE);
    CHECK_CODE(stet_step(atomic_load(&leaked), NULL, "x", body_effect, (void *)"ran", NULL),
               STET_EUSAGE);
    CHECK_CODE(stet_send(atomic_load(&leaked), NULL, "t.echo", stet_text(""), NULL), STET_EUSAGE);
    CHECK_CODE(stet_return(atomic_load(&leaked), stet_text("again")), STET_EUSAGE);
    CHECK_CODE(stet_step(NULL, NULL, "x", body_effect, (void *)"ran", NULL), STET_EUSAGE);
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    CHECK_INT(effects("ran"), 0);
    fixture_end(f);
}

/* ---- what a handler returns ------------------------------------------------------------------ */

static int
returns(stet_ctx *ctx, stet_bytes input)
{
    (void)ctx;
    effect("returned");
    return (int)fixture_number(input);
}

static void
check_return(fixture *f, const char *input, int code, int executions)
{
    int         before = effects("returned");
    stet_run_id run = fixture_start(f->engine, "t.return", input, NULL);
    stet_result result = EXPECT_END(f->engine, &run, STET_ERUN);

    CHECK_INT(result.code, code);
    CHECK_INT(result.attempts, executions);
    CHECK(result.error != NULL && result.error[0] != '\0');
    if (code == STET_EHANDLER)
        CHECK_HAS(result.error, input);
    stet_result_free(&result);
    CHECK_INT(effects("returned") - before, executions);
}

TEST(B24_a_handler_that_returns_nonsense_fails_for_good_and_says_what_it_returned)
{
    static const stet_handler handlers[] = { { "return", returns, NULL }, { 0 } };
    fixture                  *f = fixture_begin();

    fixture_up_with(f, handlers);
    check_return(f, "1", STET_EHANDLER, 1);
    check_return(f, "2147483647", STET_EHANDLER, 1);
    check_return(f, "-100", STET_EHANDLER, 1); /* STET_SUSPENDED, by itself */
    check_return(f, "-101", STET_EHANDLER, 1); /* STET_END */
    check_return(f, "-20", STET_EPERMANENT, 1);
    check_return(f, "-60", STET_EINVAL, 1);
    check_return(f, "-1", STET_EATTEMPTS, 3);
    check_return(f, "-1007", STET_EATTEMPTS, 3); /* the application's own: passing */
    check_return(f, "-500", STET_EATTEMPTS, 3);  /* nobody's: passing */
    CHECK(fixture_logged(f, "returned -500") > 0);
    fixture_end(f);
}

static int
large_result(stet_ctx *ctx, stet_bytes input)
{
    char *data = stet_ctx_alloc(ctx, 1001);

    memset(data, 'x', 1001);
    return stet_return(ctx, (stet_bytes){ data, (size_t)fixture_number(input) });
}

TEST(B24_a_result_over_the_limit_fails_the_run_with_its_own_code)
{
    static const stet_handler handlers[] = { { "large", large_result, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.large", "1000", NULL);
    result = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(result.value.len, 1000);
    stet_result_free(&result);
    run = fixture_start(f->engine, "t.large", "1001", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ETOOBIG);
    CHECK_HAS(result.error, "payload_bytes_max, 1000");
    stet_result_free(&result);
    fixture_end(f);
}

static int
bad_json(stet_ctx *ctx, stet_bytes input)
{
    return stet_return_json(ctx, "{\"value\":%J}", input);
}

TEST(B24_a_result_that_is_no_json_fails_the_run_with_its_own_code)
{
    static const stet_handler handlers[] = { { "json", bad_json, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               result;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.json", "[1,2]", NULL);
    EXPECT_RESULT(f->engine, &run, "{\"value\":[1,2]}");
    run = fixture_start(f->engine, "t.json", "[1,2", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_EJSON);
    stet_result_free(&result);
    fixture_end(f);
}

static void
on_exit_tells(void *arg)
{
    effect("exit %s", (const char *)arg);
}

static int
exits(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    CHECK_OK(stet_on_exit(ctx, on_exit_tells, (void *)"first"));
    CHECK_OK(stet_on_exit(ctx, on_exit_tells, (void *)"second"));
    STET_TRY(fixture_pause(ctx));
    return STET_OK;
}

/* What the hook frees is in the hands of the body. */
static char exit_word[16];

static void
on_exit_frees(void *arg)
{
    (void)snprintf(exit_word, sizeof exit_word, "freed");
    effect("%s", (const char *)arg);
}

static int
body_word(stet_attempt *a, void *door)
{
    if (door != NULL)
        gate_pass(door);
    effect("body sees %s", exit_word);
    return stet_attempt_return(a, stet_text(""));
}

static int
gives_up(stet_ctx *ctx, void *door)
{
    stet_future *f;

    (void)snprintf(exit_word, sizeof exit_word, "it");
    CHECK_OK(stet_on_exit(ctx, on_exit_frees, (void *)"exit"));
    STET_TRY(stet_step_start(ctx, &f, "word", body_word, door, NULL));
    if (door != NULL)
        gate_await(door, 1);
    effect("returns");
    return stet_fail(ctx, STET_EPERMANENT, "that will do");
}

static int
gives_up_before(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return gives_up(ctx, NULL);
}

static gate word_door = GATE_INIT;

static int
gives_up_during(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return gives_up(ctx, &word_door);
}

TEST(B24_exit_hooks_wait_for_bodies_the_handler_did_not_wait_for)
{
    static const stet_handler handlers[] = { { "before", gives_up_before, NULL },
                                             { "during", gives_up_during, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    char                     *text;

    f->options.concurrency = 1; /* the body begins behind the handler */
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.before", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    fixture_down(f);
    f->options.concurrency = 2; /* beside it */
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.during", "", NULL);
    AWAIT(effects("returns") == 2);
    gate_open(&word_door);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    text = effects_text();
    CHECK_STR(text, "returns\nbody sees it\nexit\nreturns\nbody sees it\nexit\n");
    free(text);
    fixture_end(f);
}

TEST(B24_exit_hooks_run_when_a_handler_is_let_go_and_when_it_returns_last_first)
{
    static const stet_handler handlers[] = { { "exits", exits, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    char                     *text;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.exits", "", NULL);
    fixture_paused(f->engine, &run);
    AWAIT(effects("exit first") ==
          1); /* one that comes while another unwinds would mix its lines with it */
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "");
    AWAIT(effects("exit first") == 2);
    text = effects_text();
    CHECK(strncmp(text, "paused", 6) == 0);
    CHECK_STR(strchr(text, '\n') + 1, "exit second\nexit first\nexit second\nexit first\n");
    free(text);
    fixture_end(f);
}
