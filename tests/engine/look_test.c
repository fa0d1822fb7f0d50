/* Looking: errors as they are stored, why, verify, steps at risk. Rows H9, I1, I2, I9.
 * tsan: yes */
#include "damage.h"

#include "engine/engine.h"

/* ---- bodies and handlers many tests use ------------------------------------------------------ */

static gate look_door = GATE_INIT;

static int
h_door(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &look_door, NULL));
    return stet_return(ctx, input);
}

static int
h_quick(stet_ctx *ctx, stet_bytes input)
{
    return stet_return(ctx, input);
}

static int
h_nap(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "cool down", "1h"));
    return stet_return(ctx, input);
}

static int
h_caller(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_call(ctx, &out, "t.nap", stet_text("child"), NULL));
    return stet_return(ctx, out);
}

static int
h_fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_ERETRY, "the bank is closed");
}

static int
h_permanent(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "no such account");
}

static const stet_handler look_handlers[] = {
    { "door", h_door, NULL },         { "quick", h_quick, NULL },   { "nap", h_nap, NULL },
    { "approval", h_approval, NULL }, { "caller", h_caller, NULL }, { "fails", h_fails, NULL },
    { "permanent", h_permanent, NULL }, { 0 },
};

/* ---- H9: errors ------------------------------------------------------------------------------ */

TEST(H9_every_code_has_its_own_number_name_text_and_class)
{
    static const int codes[] = {
#define LOOK_CODE(name, number, class_, text) STET_##name,
        STET_ERROR_LIST(LOOK_CODE)
#undef LOOK_CODE
    };
    const size_t n = sizeof codes / sizeof codes[0];

    for (size_t i = 0; i < n; i++) {
        CHECK(codes[i] < 0 && codes[i] > STET_CODE_USER);
        CHECK(stet_code_name(codes[i]) != NULL &&
              strncmp(stet_code_name(codes[i]), "STET_", 5) == 0);
        CHECK(stet_code_text(codes[i])[0] != '\0');
        CHECK(stet_code_class(codes[i]) != STET_CLASS_OK);
        for (size_t k = 0; k < i; k++) {
            CHECK(codes[i] != codes[k]);
            CHECK(strcmp(stet_code_name(codes[i]), stet_code_name(codes[k])) != 0);
            CHECK(strcmp(stet_code_text(codes[i]), stet_code_text(codes[k])) != 0);
        }
    }
    CHECK_INT(stet_code_class(STET_OK), STET_CLASS_OK);
    CHECK_INT(stet_code_class(STET_CODE_USER - 5), STET_CLASS_RETRY);
}

#define H9_MINE (STET_CODE_USER - 42)

static int
body_says(stet_attempt *a, void *arg)
{
    return stet_attempt_fail(a, *(const int *)arg, "the body says %d", *(const int *)arg);
}

static int
body_slow(stet_attempt *a, void *arg)
{
    (void)arg;
    while (stet_attempt_deadline_ms(a) >= stet_engine_now_ms(arg))
        fixture_breathe();
    return STET_OK;
}

static stet_engine *h9_engine;

static int
h_h9(stet_ctx *ctx, stet_bytes input)
{
    static const int  permanent = STET_ENOTFOUND, mine = H9_MINE;
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        out;
    char              what[32];

    (void)snprintf(what, sizeof what, "%.*s", (int)input.len, (const char *)input.data);
    if (strcmp(what, "step") == 0)
        return stet_step(ctx, NULL, "charge", body_says, (void *)(uintptr_t)&permanent, NULL);
    if (strcmp(what, "exhausted step") == 0)
        return stet_step(ctx, NULL, "charge", body_says, (void *)(uintptr_t)&mine,
                         STET_STEP(.attempts = 2, .first_ms = 1, .max_ms = 2));
    if (strcmp(what, "timeout of step") == 0)
        return stet_step(ctx, NULL, "charge", body_slow, h9_engine,
                         STET_STEP(.attempts = 1, .timeout = "5ms"));
    if (strcmp(what, "broken step") == 0)
        return stet_step(ctx, NULL, "charge", body_says, (void *)(uintptr_t)&mine, NULL);
    if (strcmp(what, "child") == 0)
        return stet_call(ctx, NULL, "t.permanent", stet_text(""), NULL);
    if (strcmp(what, "grandchild") == 0)
        return stet_call(ctx, NULL, "t.h9", stet_text("step"), NULL);
    if (strcmp(what, "attempts") == 0)
        return stet_fail(ctx, H9_MINE, "my own trouble");
    if (strcmp(what, "positive") == 0)
        return 7;
    if (strcmp(what, "name") == 0)
        return stet_step(ctx, NULL, "__mine", body_effect, NULL, NULL);
    STET_TRY(stet_awakeable(ctx, &id, &future, "approval"));
    STET_TRY(stet_step(ctx, NULL, "hand out", body_hand_out, id.text, NULL));
    if (strcmp(what, "rejected") == 0)
        return stet_await(ctx, &out, future);
    return stet_await_for(ctx, &out, future, "5ms");
}

static const stet_handler h9_handlers[] = {
    { "h9", h_h9, NULL }, { "permanent", h_permanent, NULL }, { "nap", h_nap, NULL }, { 0 }
};

typedef struct h9_case {
    const char *input;
    int         code, cause;
    const char *text, *origin; /* parts; NULL: any */
} h9_case;

static const h9_case h9_cases[] = {
    { "step", STET_ESTEP, STET_ENOTFOUND, "the body says -40", "step charge#1" },
    { "exhausted step", STET_ESTEP, H9_MINE, "the body says", "step charge#1" },
    { "timeout of step", STET_ESTEP, STET_ETIMEOUT, "timeout", "step charge#1" },
    { "broken step", STET_EATTEMPTS, H9_MINE, "the body says", "step charge#1" },
    { "child", STET_ECHILD, STET_EPERMANENT, "no such account", "child run_" },
    { "grandchild", STET_ECHILD, STET_ESTEP, "the body says -40", "child run_" },
    { "attempts", STET_EATTEMPTS, H9_MINE, "my own trouble", NULL },
    { "positive", STET_EHANDLER, 0, "returned 7", NULL },
    { "name", STET_ENAME, 0, "__", NULL },
    { "rejected", STET_EREJECTED, 0, "no way", "awakeable" },
    { "timeout", STET_ETIMEOUT, 0, "time", NULL },
};
#define H9_N (sizeof h9_cases / sizeof h9_cases[0])

static void
h9_compare(const h9_case *c, int code, int cause, const char *error, const char *origin)
{
    CHECK_INT(code, c->code);
    CHECK_INT(cause, c->cause);
    CHECK_HAS(error, c->text);
    if (c->origin != NULL)
        CHECK_HAS(origin, c->origin);
}

TEST(H9_each_failure_has_its_code_and_what_is_stored_keeps_text_origin_and_cause)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[H9_N];

    f->engine = fixture_open(f);
    h9_engine = f->engine;
    CHECK_OK(stet_register(f->engine, "t", h9_handlers));
    CHECK_OK(stet_engine_start(f->engine));
    for (size_t i = 0; i < H9_N; i++) {
        stet_result r;

        runs[i] = fixture_start(f->engine, "t.h9", h9_cases[i].input,
                                STET_START(.retry = { .attempts = 2 }));
        if (strcmp(h9_cases[i].input, "rejected") == 0) {
            effects_await("handed out", 1);
            CHECK_OK(stet_reject(f->engine, handed_out, "no way"));
        }
        r = EXPECT_END(f->engine, &runs[i], STET_ERUN);
        h9_compare(&h9_cases[i], r.code, r.cause, r.error, r.origin);
        stet_result_free(&r);
    }
    fixture_down(f);
    f->engine = fixture_open(f); /* only what was stored */
    for (size_t i = 0; i < H9_N; i++) {
        fixture_run look = fixture_look(f->engine, &runs[i]);
        stet_result r;

        h9_compare(&h9_cases[i], look.code, look.cause, look.error, look.origin);
        CHECK_CODE(stet_result_get(f->engine, &r, &runs[i]), STET_ERUN);
        h9_compare(&h9_cases[i], r.code, r.cause, r.error, r.origin);
        stet_result_free(&r);
    }
    fixture_end(f);
}

TEST(H9_the_kinds_a_caller_sees_differ)
{
    const fixture_service services[] = { { "t", look_handlers, false, NULL },
                                         { "o", look_handlers, true, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    stet_run_id           run, other, parent;
    stet_awakeable_id     nobody;

    fixture_up(f, services);
    CHECK_CODE(stet_start(f->engine, NULL, "t.quick", stet_text(""), STET_START(.key = "k")),
               STET_EKEY);
    CHECK_CODE(stet_start(f->engine, NULL, "o.quick", stet_text(""), NULL), STET_EKEY);
    CHECK_CODE(stet_start(f->engine, NULL, "t.none", stet_text(""), NULL), STET_ENOHANDLER);
    CHECK_HAS(stet_last_error(), "quick");
    CHECK_CODE(stet_start(f->engine, NULL, "", stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_start(f->engine, NULL, "t.quick", stet_text(""), STET_START(.delay = "soon")),
               STET_EDURATION);
    parent = fixture_start(f->engine, "t.nap", "", NULL);
    fixture_await_status(f->engine, &parent, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.quick", "",
                        STET_START(.parent = &parent, .parent_step = "s", .child_key = "c"));
    CHECK_CODE(stet_start(f->engine, &other, "t.nap", stet_text(""),
                          STET_START(.parent = &parent, .parent_step = "s", .child_key = "c")),
               STET_EMISMATCH);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_CODE(stet_start(f->engine, &other, "t.quick", stet_text(""), STET_START(.run = &run)),
               STET_EEXISTS);
    CHECK_CODE(stet_wait(f->engine, NULL, &parent, 20), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), parent.text);
    CHECK_HAS(stet_last_error(), "cool down");
    CHECK_CODE(stet_result_get(f->engine, NULL, &parent), STET_EOPEN);
    CHECK_CODE(stet_unstick(f->engine, &parent, "ann"), STET_ESTATE);
    CHECK_CODE(stet_run_id_parse(&other, "nonsense"), STET_EINVAL);
    CHECK_OK(stet_run_id_make(f->engine, &other));
    CHECK_CODE(stet_wait(f->engine, NULL, &other, 20), STET_ENOTFOUND);
    CHECK_CODE(stet_resolve(f->engine, run.text, stet_text("")), STET_EKIND);
    (void)snprintf(nobody.text, sizeof nobody.text, "%s", other.text);
    memcpy(nobody.text, "awk", 3);
    CHECK_CODE(stet_resolve(f->engine, nobody.text, stet_text("")), STET_ENOTFOUND);
    CHECK_CODE(stet_cancel(f->engine, &run, NULL, NULL), STET_EENDED);
    fixture_end(f);
}

/* ---- I1: why --------------------------------------------------------------------------------- */

typedef struct verdict {
    char kind[32], text[512], help[256];
} verdict;

static void
keep_verdict(void *arg, const stet_verdict *v)
{
    verdict *to = arg;

    (void)snprintf(to->kind, sizeof to->kind, "%s", v->kind);
    (void)snprintf(to->text, sizeof to->text, "%s", v->text);
    (void)snprintf(to->help, sizeof to->help, "%s", v->help != NULL ? v->help : "");
}

static verdict
why_now(stet_engine *e, const stet_run_id *run)
{
    verdict v = { "", "", "" };

    CHECK_OK(stet_why(e, run, keep_verdict, &v));
    CHECK(v.text[0] != '\0');
    CHECK(strchr(v.text, '\n') == NULL);
    return v;
}

static void
expect_why(stet_engine *e, const stet_run_id *run, const char *kind, const char *part,
           const char *help)
{
    verdict v = why_now(e, run);

    CHECK_STR(v.kind, kind);
    CHECK_HAS(v.text, part);
    CHECK_HAS(v.help, help);
}

TEST(I1_why_timer_awakeable_child)
{
    fixture    *f = fixture_begin();
    stet_run_id nap, approval, caller;
    verdict     v;

    fixture_up_with(f, look_handlers);
    nap = fixture_start(f->engine, "t.nap", "", NULL);
    approval = fixture_start(f->engine, "t.approval", "", NULL);
    caller = fixture_start(f->engine, "t.caller", "", NULL);
    fixture_await_status(f->engine, &nap, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &approval, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &caller, STET_STATUS_SUSPENDED);
    expect_why(f->engine, &nap, "timer", "cool down", nap.text);
    CHECK_HAS(why_now(f->engine, &nap).text, "fires in ");
    expect_why(f->engine, &approval, "awakeable", "approval", handed_out);
    v = why_now(f->engine, &caller);
    CHECK_STR(v.kind, "child");
    CHECK_HAS(v.text, "t.nap");
    CHECK_HAS(v.help, "stet why run_");
    fixture_end(f);
}

TEST(I1_why_running_ready_and_lane)
{
    const fixture_service services[] = { { "t", look_handlers, false, NULL },
                                         { "o", look_handlers, true, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    stet_run_id           holder, waits, ready;

    f->options.in_flight_max = 1;
    fixture_up(f, services);
    holder = fixture_start(f->engine, "o.door", "", STET_START(.key = "k"));
    gate_await(&look_door, 1);
    waits = fixture_start(f->engine, "o.quick", "", STET_START(.key = "k"));
    ready = fixture_start(f->engine, "t.quick", "", NULL);
    expect_why(f->engine, &holder, "running", "wrk_", "");
    expect_why(f->engine, &waits, "lane", holder.text, holder.text);
    expect_why(f->engine, &ready, "ready", "slot", "");
    gate_open(&look_door);
    EXPECT_RESULT(f->engine, &waits, "");
    EXPECT_RESULT(f->engine, &ready, "");
    fixture_end(f);
}

TEST(I1_why_no_worker_delay_and_backoff)
{
    const fixture_service services[] = { { "t", look_handlers, false, NULL },
                                         { "o", look_handlers, true, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    stet_run_id           nobody, delayed, keyed, backoff;

    fixture_up(f, services);
    nobody = fixture_start(f->engine, "elsewhere.thing", "", NULL);
    delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "2h"));
    keyed = fixture_start(f->engine, "o.quick", "", STET_START(.key = "k", .delay = "2h"));
    backoff = fixture_start(f->engine, "t.fails", "",
                            STET_START(.retry = { .first_ms = 7200000,
                                                  .max_ms = 7200000,
                                                  .jitter_percent = STET_NONE }));
    fixture_await_status(f->engine, &backoff, STET_STATUS_RETRYING);
    expect_why(f->engine, &nobody, "no-worker", "elsewhere.thing", "worker");
    expect_why(f->engine, &delayed, "delay", "in ", delayed.text);
    expect_why(f->engine, &keyed, "delay", "in ", keyed.text);
    expect_why(f->engine, &backoff, "backoff", "the bank is closed", backoff.text);
    CHECK_HAS(why_now(f->engine, &backoff).text, "attempt 1 of 3");
    fixture_down(f);
    f->engine = fixture_open(f);
    CHECK_STR(why_now(f->engine, &nobody).kind, "no-worker");
    fixture_end(f);
}

static int
h_short(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep_ms(ctx, "blink", 20));
    return stet_return(ctx, input);
}

TEST(I1_why_no_node_serves_timers)
{
    static const stet_handler handlers[] = { { "short", h_short, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *timers;
    stet_run_id               run;

    f->options.roles = STET_ROLE_WORKER;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.short", "ok", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    AWAIT(strcmp(why_now(f->engine, &run).kind, "no-timers") == 0);
    CHECK_HAS(why_now(f->engine, &run).text, "blink");
    f->options.roles = STET_ROLE_TIMERS;
    timers = fixture_open(f);
    CHECK_OK(stet_engine_start(timers));
    EXPECT_RESULT(f->engine, &run, "ok");
    stet_close(timers);
    fixture_end(f);
}

static _Atomic bool i1_is_new_code;

static int
h_contradicts(stet_ctx *ctx, stet_bytes input)
{
    if (atomic_load(&i1_is_new_code)) /* what was recorded as a step is asked for no more */
        return stet_return(ctx, input);
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charge", NULL));
    STET_TRY(stet_sleep_ms(ctx, "blink", 1));
    return stet_fail(ctx, STET_EDEFER, "never");
}

static int
h_sleeps_after_step(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charge", NULL));
    if (!atomic_load(&i1_is_new_code))
        STET_TRY(stet_sleep(ctx, "long", "1h"));
    return stet_return(ctx, input);
}

TEST(I1_why_stuck_and_ended)
{
    static const stet_handler handlers[] = { { "h", h_sleeps_after_step, NULL },
                                             { "c", h_contradicts, NULL },
                                             { "quick", h_quick, NULL },
                                             { "permanent", h_permanent, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, quick, failed, cancelled;
    stet_result               r;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.c", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    fixture_down(f);
    atomic_store(&i1_is_new_code, true);
    fixture_up_with(f, handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    expect_why(f->engine, &run, "stuck", "charge#1", run.text);
    quick = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &quick, "");
    expect_why(f->engine, &quick, "ended", "completed", "");
    failed = fixture_start(f->engine, "t.permanent", "", NULL);
    r = EXPECT_END(f->engine, &failed, STET_ERUN);
    stet_result_free(&r);
    expect_why(f->engine, &failed, "ended", "no such account", failed.text);
    cancelled = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &cancelled, "ann", NULL));
    expect_why(f->engine, &cancelled, "ended", "cancelled", "");
    fixture_end(f);
}

static gate i1_both = GATE_INIT;

static int
body_both(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&i1_both);
    return STET_OK;
}

static int
h_cross(stet_ctx *ctx, stet_bytes input)
{
    char other[8];

    (void)snprintf(other, sizeof other, "%.*s", (int)input.len, (const char *)input.data);
    STET_TRY(stet_step(ctx, NULL, "both", body_both, NULL, NULL));
    return stet_call(ctx, NULL, "o.quick", stet_text(""), STET_START(.key = other));
}

TEST(I1_why_a_circle_of_runs_is_named)
{
    static const stet_handler handlers[] = { { "cross", h_cross, NULL },
                                             { "quick", h_quick, NULL },
                                             { 0 } };
    const fixture_service     services[] = { { "o", handlers, true, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               a, b;
    stet_result               r;
    verdict                   v;

    fixture_up(f, services);
    a = fixture_start(f->engine, "o.cross", "B", STET_START(.key = "A"));
    b = fixture_start(f->engine, "o.cross", "A", STET_START(.key = "B"));
    gate_await(&i1_both, 2);
    gate_open(&i1_both);
    fixture_await_status(f->engine, &a, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &b, STET_STATUS_SUSPENDED);
    v = why_now(f->engine, &a);
    CHECK_STR(v.kind, "deadlock");
    CHECK_HAS(v.text, a.text);
    CHECK_HAS(v.text, b.text);
    CHECK_HAS(v.help, "stet cancel run_");
    CHECK_STR(why_now(f->engine, &b).kind, "deadlock");
    CHECK_OK(stet_cancel(f->engine, &a, "ann", "break the circle"));
    r = EXPECT_END(f->engine, &a, STET_ECANCELLED);
    stet_result_free(&r);
    r = EXPECT_END(f->engine, &b, STET_OK); /* its call got the key */
    stet_result_free(&r);
    fixture_end(f);
}

TEST(I1_why_of_a_run_that_does_not_exist)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    verdict     v;

    fixture_up_with(f, look_handlers);
    CHECK_OK(stet_run_id_make(f->engine, &run));
    CHECK_CODE(stet_why(f->engine, &run, keep_verdict, &v), STET_ENOTFOUND);
    fixture_end(f);
}

/* ---- I2: verify ------------------------------------------------------------------------------ */

typedef struct findings {
    int      n;
    char     rule[32], run[STET_ID_TEXT_MAX], text[512];
    uint64_t revision;
} findings;

static int
keep_finding(void *arg, const stet_finding *finding)
{
    findings *to = arg;

    to->n++;
    (void)snprintf(to->rule, sizeof to->rule, "%s", finding->rule);
    (void)snprintf(to->run, sizeof to->run, "%s", finding->run != NULL ? finding->run : "");
    (void)snprintf(to->text, sizeof to->text, "%s", finding->text);
    to->revision = finding->revision;
    return 0;
}

static findings
verify_now(stet_engine *e, size_t runs)
{
    findings found;
    size_t   checked = 0;

    memset(&found, 0, sizeof found);
    CHECK_OK(stet_verify(e, &checked, keep_finding, &found));
    CHECK_INT(checked, runs);
    return found;
}

static void
expect_clean(stet_engine *e, size_t runs)
{
    findings found = verify_now(e, runs);

    if (found.n != 0)
        test_fail(__FILE__, __LINE__, "%d findings, last: %s of %s: %s", found.n, found.rule,
                  found.run, found.text);
}

static void
expect_finding(stet_engine *e, size_t runs, const stet_run_id *run, const char *rule)
{
    findings found = verify_now(e, runs);

    test_note("%s: %s", found.rule, found.text);
    CHECK_INT(found.n, 1);
    CHECK_STR(found.rule, rule);
    CHECK_STR(found.run, run->text);
    CHECK(found.text[0] != '\0');
}

/* One run in each state there is, on an engine that runs. */
static size_t
i2_everything(fixture *f)
{
    stet_run_id run;
    stet_result r;

    run = fixture_start(f->engine, "t.nap", "", STET_START(.timeout = "2h"));
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.caller", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.fails", "",
                        STET_START(.retry = { .first_ms = 7200000, .max_ms = 7200000 }));
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    (void)fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    (void)fixture_start(f->engine, "o.quick", "", STET_START(.key = "later", .delay = "1h"));
    (void)fixture_start(f->engine, "elsewhere.thing", "", NULL);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    run = fixture_start(f->engine, "t.permanent", "", NULL);
    r = EXPECT_END(f->engine, &run, STET_ERUN);
    stet_result_free(&r);
    run = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    run = fixture_start(f->engine, "t.nap", "", STET_START(.timeout_ms = 20));
    fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
    run = fixture_start(f->engine, "o.door", "", STET_START(.key = "k"));
    gate_await(&look_door, 1);
    (void)fixture_start(f->engine, "o.quick", "", STET_START(.key = "k"));
    return 14;
}

TEST(I2_a_clean_store_gives_no_finding)
{
    const fixture_service services[] = { { "t", look_handlers, false, NULL },
                                         { "o", look_handlers, true, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    size_t                n;

    fixture_up(f, services);
    expect_clean(f->engine, 0);
    n = i2_everything(f);
    expect_clean(f->engine, n);
    gate_open(&look_door);
    fixture_down(f);
    f->engine = fixture_open(f);
    expect_clean(f->engine, n); /* nobody serves it now: still nothing is broken */
    fixture_end(f);
}

TEST(I2_verify_of_a_busy_store_gives_no_false_alarm)
{
    const fixture_service services[] = { { "t", look_handlers, false, NULL },
                                         { "o", look_handlers, true, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    stet_run_id           runs[60];

    fixture_up(f, services);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 60; i++)
            runs[i] = i % 3 ? fixture_start(f->engine, "o.quick", "",
                                            STET_START(.key = i % 2 ? "a" : "b"))
                            : fixture_start(f->engine, "t.quick", "", NULL);
        for (int i = 0; i < 3; i++) {
            findings found;

            memset(&found, 0, sizeof found);
            CHECK_OK(stet_verify(f->engine, NULL, keep_finding, &found));
            if (found.n > 0)
                test_fail(__FILE__, __LINE__, "%s of %s: %s", found.rule, found.run, found.text);
        }
        for (int i = 0; i < 60; i++)
            EXPECT_RESULT(f->engine, &runs[i], "");
    }
    fixture_end(f);
}

/* A suspended and an ended run that nobody serves any more, and a healthy neighbour. */
static void
i2_prepare(fixture *f, stet_run_id *suspended, stet_run_id *ended)
{
    const fixture_service services[] = { { "t", look_handlers, false, NULL },
                                         { "o", look_handlers, true, NULL },
                                         { 0 } };
    stet_run_id           neighbour;

    fixture_up(f, services);
    neighbour = fixture_start(f->engine, "t.nap", "", NULL);
    *suspended = fixture_start(f->engine, "o.nap", "", STET_START(.key = "k", .timeout = "3h"));
    *ended = fixture_start(f->engine, "t.quick", "", NULL);
    fixture_await_status(f->engine, &neighbour, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, suspended, STET_STATUS_SUSPENDED);
    EXPECT_RESULT(f->engine, ended, "");
    fixture_down(f);
    f->engine = fixture_open(f);
    expect_clean(f->engine, 3);
}

TEST(I2_facts_that_cannot_be_read_are_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;
    uint64_t    last;
    stet_op     op = { .kind = STET_OP_FACTS, .count = 1 };

    i2_prepare(f, &run, &ended);
    last = fixture_look(f->engine, &run).facts;
    op.run = damage_id(&run);
    op.number = last + 1;
    op.data = stet_text("this is no fact at all");
    damage_do(f, &op, 1);
    expect_finding(f->engine, 3, &run, "facts");
    CHECK_INT(verify_now(f->engine, 3).revision, last + 1);
    damage_end(f);
}

TEST(I2_a_row_that_disagrees_with_its_facts_is_found)
{
    static const struct {
        stet_status status;
        uint32_t    is_terminal;
    } lies[] = { { STET_STATUS_COMPLETED, 1 },
                 { STET_STATUS_RETRYING, 0 },
                 { STET_STATUS_STUCK, 0 } };

    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fixture     *f = fixture_begin();
        stet_run_id  run, ended;
        stet_run_row row = { 0 };
        stet_op      op = { .kind = STET_OP_RUN_SET, .mask = STET_RUN_STATUS };

        i2_prepare(f, &run, &ended);
        op.run = row.id = damage_id(&run);
        row.status = lies[i].status;
        row.is_terminal = lies[i].is_terminal;
        row.ended_ms = STET_NEVER;
        op.row = &row;
        damage_do(f, &op, 1);
        expect_finding(f->engine, 3, &run, "projection");
        damage_end(f);
        (void)remove(test_path("engine.db"));
        (void)remove(test_path("engine.db-wal"));
        (void)remove(test_path("engine.db-shm"));
    }
}

TEST(I2_an_ended_run_whose_row_is_open_is_found)
{
    fixture     *f = fixture_begin();
    stet_run_id  run, ended;
    stet_run_row row = { 0 };
    stet_op      op = { .kind = STET_OP_RUN_SET, .mask = STET_RUN_STATUS, .row = &row };

    i2_prepare(f, &run, &ended);
    op.run = row.id = damage_id(&ended);
    row.status = STET_STATUS_PENDING;
    row.ended_ms = STET_NEVER;
    damage_do(f, &op, 1);
    expect_finding(f->engine, 3, &ended, "projection");
    damage_end(f);
}

typedef struct i2_timers {
    stet_timer timers[4];
    int        n;
} i2_timers;

static int
i2_on_timer(void *arg, const stet_timer *timer)
{
    i2_timers *t = arg;

    if (t->n < 4)
        t->timers[t->n++] = *timer;
    return STET_OK;
}

TEST(I2_a_missing_timer_is_found)
{
    for (int i = 0; i < 2; i++) { /* of the sleep, of the deadline */
        fixture    *f = fixture_begin();
        stet_run_id run, ended;
        stet_store *s;
        i2_timers   t = { .n = 0 };
        stet_op     op = { .kind = STET_OP_TIMER_DEL };

        i2_prepare(f, &run, &ended);
        s = damage_open(f);
        CHECK_OK(s->ops->timers_of(s, damage_id(&run), i2_on_timer, &t));
        stet__store_close(s);
        CHECK_INT(t.n, 2);
        op.run = damage_id(&run);
        op.fire_ms = t.timers[i].fire_ms;
        op.number = t.timers[i].completion;
        damage_do(f, &op, 1);
        expect_finding(f->engine, 3, &run, "timer");
        damage_end(f);
        (void)remove(test_path("engine.db"));
        (void)remove(test_path("engine.db-wal"));
        (void)remove(test_path("engine.db-shm"));
    }
}

TEST(I2_a_run_that_nothing_can_wake_is_found)
{
    fixture     *f = fixture_begin();
    stet_run_id  run;
    stet_run_row row = { 0 };
    stet_op      op = { .kind = STET_OP_RUN_SET, .mask = STET_RUN_DUE, .row = &row };

    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    expect_clean(f->engine, 1);
    op.run = row.id = damage_id(&run);
    row.due_ms = STET_NEVER;
    damage_do(f, &op, 1);
    expect_finding(f->engine, 1, &run, "wake-up");
    damage_end(f);
}

TEST(I2_an_inbox_entry_without_a_wake_up_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;
    stet__buf   b;
    stet__fact  fact = { .kind = STET__FACT_TIMER, .time_ms = 1, .completion = 99 };
    stet_op     op = { .kind = STET_OP_INBOX };

    i2_prepare(f, &run, &ended);
    stet__buf_init(&b, &stet__platform_real()->alloc);
    stet__fact_encode(&b, &fact);
    op.run = damage_id(&run);
    op.data = stet__buf_bytes(&b);
    damage_do(f, &op, 1);
    stet__buf_free(&b);
    expect_finding(f->engine, 3, &run, "wake-up");
    damage_end(f);
}

TEST(I2_an_open_run_that_lost_its_lane_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;
    stet_op     op = { .kind = STET_OP_LANE_LEAVE, .status = STET_STATUS_PENDING };

    i2_prepare(f, &run, &ended);
    op.run = damage_id(&run);
    damage_do(f, &op, 1);
    expect_finding(f->engine, 3, &run, "lane");
    damage_end(f);
}

TEST(I2_a_lane_that_does_not_know_its_run_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;

    if (!f->is_sqlite)
        test_skip("the memory store has no way to damage a lane alone");
    i2_prepare(f, &run, &ended);
    damage_sql(f, "UPDATE runs SET lane = NULL WHERE id = ?1", &run, (stet_bytes){ NULL, 0 });
    expect_finding(f->engine, 3, &run, "lane");
    damage_end(f);
}

TEST(I2_an_ended_run_that_holds_a_lane_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run, ended;

    if (!f->is_sqlite)
        test_skip("the memory store refuses it");
    i2_prepare(f, &run, &ended);
    damage_sql(f, "UPDATE runs SET lane = 'o/x', lane_pos = 1 WHERE id = ?1", &ended,
               (stet_bytes){ NULL, 0 });
    expect_finding(f->engine, 3, &ended, "lane");
    damage_end(f);
}

TEST(I2_a_run_whose_owner_is_unknown_is_found)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    if (!f->is_sqlite)
        test_skip("the memory store cannot forget the session of a claimed run");
    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    damage_sql(f, "UPDATE runs SET work = 4711, epoch = 1, status = 2 WHERE id = ?1", &run,
               (stet_bytes){ NULL, 0 });
    expect_finding(f->engine, 1, &run, "owner");
    damage_end(f);
}

/* ---- I9: steps at risk ----------------------------------------------------------------------- */

typedef struct i9_seen {
    char     token[80];
    uint64_t fence;
    bool     is_at_risk;
} i9_seen;

static i9_seen         i9_bodies[16];
static _Atomic int     i9_n;
static gate            i9_doors[8] = { GATE_INIT, GATE_INIT, GATE_INIT, GATE_INIT,
                                       GATE_INIT, GATE_INIT, GATE_INIT, GATE_INIT };
static _Atomic int     i9_waiting; /* bodies before this one wait at their door */

static int
body_i9(stet_attempt *a, void *arg)
{
    int at = atomic_fetch_add(&i9_n, 1);

    (void)arg;
    (void)snprintf(i9_bodies[at].token, sizeof i9_bodies[0].token, "%s", stet_attempt_token(a));
    i9_bodies[at].fence = stet_attempt_fence(a);
    i9_bodies[at].is_at_risk = stet_attempt_is_at_risk(a);
    if (at < atomic_load(&i9_waiting))
        gate_pass(&i9_doors[at]);
    effect("charged");
    return STET_OK;
}

static int
h_i9(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_i9, NULL, NULL));
    return stet_return(ctx, input);
}

static const stet_handler i9_handlers[] = { { "h", h_i9, NULL }, { 0 } };

/* Of a worker that lives and cannot find the dead. */
static int
no_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    (void)s;
    (void)fn;
    (void)arg;
    return stet__fail(STET_EIO, "sessions cannot be read");
}

/* An engine that will be dead for the others and alive in truth. It finds nobody dead, itself
 * least: its first sweep may be late. */
static stet_engine *
i9_doomed(fixture *f)
{
    stet_options before = f->options;
    stet_engine *e;

    f->options.sweep_ms = 3600000;
    e = fixture_open(f);
    f->options = before;
    damage_mortal(e);
    damage_ops(e)->sessions = no_sessions;
    CHECK_OK(stet_register(e, "t", i9_handlers));
    CHECK_OK(stet_engine_start(e));
    return e;
}

static int
count_risks(void *arg, const stet_fact_info *fact)
{
    *(int *)arg += fact->is_at_risk && strcmp(fact->kind, "at risk") == 0 &&
                   strcmp(fact->name, "charge") == 0 && fact->occurrence == 1;
    return 0;
}

TEST(I9_after_a_death_in_a_body_the_next_execution_knows_and_the_old_one_is_fenced)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed;
    stet_run_id  run;
    stet_result  r;
    int          risks = 0;

    atomic_store(&i9_waiting, 1);
    doomed = i9_doomed(f);
    run = fixture_start(doomed, "t.h", "ok", NULL);
    gate_await(&i9_doors[0], 1);
    damage_die(f, doomed);
    f->options.sweep_ms = 20;
    fixture_up_with(f, i9_handlers);
    r = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(r.attempts, 1); /* losing a worker uses none */
    stet_result_free(&r);
    CHECK_INT(atomic_load(&i9_n), 2);
    CHECK(!i9_bodies[0].is_at_risk);
    CHECK(i9_bodies[1].is_at_risk);
    CHECK_STR(i9_bodies[1].token, i9_bodies[0].token);
    CHECK(i9_bodies[1].fence > i9_bodies[0].fence);
    CHECK_OK(stet_run_facts(f->engine, &run, false, count_risks, &risks));
    CHECK_INT(risks, 1);
    CHECK_INT(fixture_facts(f->engine, &run, "worker lost", NULL), 1);
    gate_open(&i9_doors[0]); /* the old body ends now, and is refused */
    (void)stet_engine_stop(doomed, 0);
    CHECK(fixture_logged(f, "fenced") >= 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "charge"), 1);
    stet_close(doomed);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_end(f);
}

typedef struct owner_found {
    const char *run;
    int         n;
} owner_found;

static int
on_owner(void *arg, const stet_finding *finding)
{
    owner_found *found = arg;

    CHECK_STR(finding->rule, "owner");
    CHECK_STR(finding->run, found->run);
    CHECK_HAS(finding->text, "no other has taken it over");
    found->n++;
    return 0;
}

static int
owners_missing(stet_engine *e, const stet_run_id *run)
{
    owner_found found = { run->text, 0 };

    CHECK_OK(stet_verify(e, NULL, on_owner, &found));
    return found.n;
}

TEST(I2_a_run_whose_owner_died_and_that_nobody_takes_over_is_found)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed, *blind, *patient, *eye;
    stet_run_id  run;

    atomic_store(&i9_waiting, 1);
    doomed = i9_doomed(f);
    blind = fixture_open(f);
    damage_ops(blind)->sessions = no_sessions;
    CHECK_OK(stet_engine_start(blind));
    f->options.sweep_ms = 3600000; /* what a sweep may take, to this one */
    patient = fixture_open(f);
    f->options.sweep_ms = 10;
    eye = fixture_open(f);
    run = fixture_start(doomed, "t.h", "ok", NULL);
    gate_await(&i9_doors[0], 1);
    CHECK_INT(owners_missing(eye, &run), 0);
    damage_die(f, doomed);
    AWAIT(owners_missing(eye, &run) == 1);
    CHECK_INT(owners_missing(patient, &run), 0); /* the next sweep may still come */
    fixture_up_with(f, i9_handlers); /* it does */
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(owners_missing(eye, &run), 0);
    gate_open(&i9_doors[0]);
    (void)stet_engine_stop(doomed, 0);
    stet_close(doomed);
    stet_close(eye);
    stet_close(patient);
    stet_close(blind);
    fixture_end(f);
}

TEST(I9_C1_a_run_that_executed_in_five_dying_workers_is_stuck)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed[5];
    stet_run_id  run;
    fixture_run  look;

    atomic_store(&i9_waiting, 5);
    for (int i = 0; i < 5; i++) {
        stet_engine *reaper;

        doomed[i] = i9_doomed(f);
        if (i == 0)
            run = fixture_start(doomed[0], "t.h", "ok", NULL);
        gate_await(&i9_doors[i], 1);
        damage_die(f, doomed[i]);
        f->options.roles = STET_ROLE_TIMERS; /* finds the dead, executes nothing */
        f->options.sweep_ms = 20;
        reaper = fixture_open(f);
        CHECK_OK(stet_engine_start(reaper));
        AWAIT(fixture_look(reaper, &run).status == STET_STATUS_PENDING);
        stet_close(reaper);
        f->options.roles = 0;
        f->options.sweep_ms = 0;
    }
    fixture_up_with(f, i9_handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.code, STET_ELOST);
    CHECK_HAS(look.error, "5 workers died");
    CHECK_HAS(look.error, "charge");
    CHECK_STR(why_now(f->engine, &run).kind, "stuck");
    CHECK_INT(atomic_load(&i9_n), 5);
    for (int i = 1; i < 5; i++) {
        CHECK_STR(i9_bodies[i].token, i9_bodies[0].token);
        CHECK(i9_bodies[i].fence > i9_bodies[i - 1].fence);
    }
    CHECK_OK(stet_unstick(f->engine, &run, "ann"));
    EXPECT_RESULT(f->engine, &run, "ok");
    for (int i = 0; i < 5; i++)
        gate_open(&i9_doors[i]);
    for (int i = 0; i < 5; i++)
        stet_close(doomed[i]);
    fixture_end(f);
}

static int
body_tokens(stet_attempt *a, void *arg)
{
    int at = atomic_fetch_add(&i9_n, 1);

    (void)snprintf(i9_bodies[at].token, sizeof i9_bodies[0].token, "%s", stet_attempt_token(a));
    i9_bodies[at].fence = stet_attempt_fence(a);
    i9_bodies[at].is_at_risk = stet_attempt_is_at_risk(a);
    return at < *(const int *)arg ? stet_attempt_fail(a, STET_ERETRY, "again") : STET_OK;
}

static int
h_tokens(stet_ctx *ctx, stet_bytes input)
{
    static const int none = 0, three = 3;

    if (fixture_is(input, "policy"))
        STET_TRY(stet_step(ctx, NULL, "charge", body_tokens, (void *)(uintptr_t)&three,
                           STET_STEP(.attempts = 9, .first_ms = 1, .max_ms = 2)));
    else
        STET_TRY(stet_step(ctx, NULL, "charge", body_tokens, (void *)(uintptr_t)&three, NULL));
    STET_TRY(stet_step(ctx, NULL, "charge", body_tokens, (void *)(uintptr_t)&none, NULL));
    return stet_return(ctx, input);
}

static void
i9_tokens(const char *input)
{
    static const stet_handler handlers[] = { { "h", h_tokens, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", input, STET_START(.retry = { .attempts = 9 }));
    EXPECT_RESULT(f->engine, &run, input);
    CHECK_INT(atomic_load(&i9_n), 5);
    for (int i = 0; i < 4; i++) {
        CHECK_STR(i9_bodies[i].token, i9_bodies[0].token);
        CHECK(!i9_bodies[i].is_at_risk);
        /* Each failed attempt gives the run back, and the next owner has a higher fence. */
        if (i > 0)
            CHECK(i9_bodies[i].fence > i9_bodies[i - 1].fence);
    }
    CHECK(strcmp(i9_bodies[4].token, i9_bodies[0].token) !=
          0);                                          /* the second occurrence is another step */
    CHECK_INT(i9_bodies[4].fence, i9_bodies[3].fence); /* the same owner */
    fixture_end(f);
}

TEST(I9_the_token_is_the_same_over_the_runs_attempts_and_the_fence_grows)
{
    i9_tokens("run");
}

TEST(I9_the_token_is_the_same_over_the_steps_attempts_and_the_fence_grows)
{
    i9_tokens("policy");
}

/* ---- I9: a body is noted before it begins ---------------------------------------------------- */

static gate crumb_door = GATE_INIT;

static int
body_crumb(stet_attempt *a, void *arg)
{
    (void)a;
    gate_pass(&crumb_door);
    effect("%s", (const char *)arg);
    return STET_OK;
}

static int
h_crumbs(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[3];

    STET_TRY(stet_step_start(ctx, &futures[0], "a", body_crumb, (void *)"a", NULL));
    STET_TRY(stet_step_start(ctx, &futures[1], "b", body_crumb, (void *)"b", NULL));
    STET_TRY(stet_step_start(ctx, &futures[2], "c", body_crumb, (void *)"c", NULL));
    STET_TRY(stet_await_all(ctx, futures, 3));
    return stet_return(ctx, input);
}

TEST(I9_a_body_that_cannot_be_noted_is_not_begun_and_comes_later)
{
    static const stet_handler handlers[] = { { "h", h_crumbs, NULL }, { 0 } };
    const fixture_service     services[] = { { "t", handlers, false, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.concurrency = 4;
    f->engine = fixture_open(f);
    f->engine->n_crumbs = 2; /* one for the claim, one for a body */
    fixture_register(f->engine, services);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    gate_await(&crumb_door, 1);
    AWAIT(fixture_logged(f, "not begun") >= 1);
    CHECK_INT(crumb_door.arrived, 1);
    gate_open(&crumb_door);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("a"), 1);
    CHECK_INT(effects("b"), 1);
    CHECK_INT(effects("c"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "at risk", NULL), 0);
    fixture_end(f);
}
