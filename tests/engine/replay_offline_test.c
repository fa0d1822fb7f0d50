/* Handlers executed against a record: the deploy gate (I3) and bundles (I7). The worker that
 * recorded a run has one code, the program that checks it another; what the second one's bodies
 * would do is told outside (effect()), and must never be told.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/offline.h"
#include "fixture.h"

/* ---- what a check found ---------------------------------------------------------------------- */

typedef struct report {
    stet_replay_end end;
    bool            is_fine;
    char run[STET_ID_TEXT_MAX], handler[64], recorded[200], asked[200], where[200], text[600];
    uint64_t operations, assumed;
} report;

typedef struct found {
    report             at[64];
    size_t             n;
    stet_check_summary summary;
} found;

static void
copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from != NULL ? from : "");
}

static int
on_report(void *arg, const stet_replay_report *r)
{
    found  *f = arg;
    report *to = &f->at[f->n++ % 64];

    CHECK(r->run != NULL && r->text != NULL);
    to->end = r->end;
    to->is_fine = r->is_fine;
    to->operations = r->operations;
    to->assumed = r->assumed;
    copy(to->run, sizeof to->run, r->run);
    copy(to->handler, sizeof to->handler, r->handler);
    copy(to->recorded, sizeof to->recorded, r->recorded);
    copy(to->asked, sizeof to->asked, r->asked);
    copy(to->where, sizeof to->where, r->where);
    copy(to->text, sizeof to->text, r->text);
    return STET_OK;
}

static found
check(fixture *f, const fixture_service *services, const stet_check_options *options)
{
    stet_engine *e = fixture_open_with(f, services);
    found        result = { .n = 0 };

    CHECK_OK(stet_check(e, &result.summary, options, on_report, &result));
    stet_close(e);
    return result;
}

static found
check_handler(fixture *f, stet_handler_fn fn)
{
    const stet_handler handlers[] = { { "flow", fn, NULL }, { 0 } };

    return check(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } }, NULL);
}

/* A run of t.flow with this code that stands at fixture_pause(); its worker is gone. */
static stet_run_id
stands(fixture *f, stet_handler_fn fn)
{
    const stet_handler handlers[] = { { "flow", fn, NULL }, { 0 } };
    stet_run_id        run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.flow", "7", NULL);
    fixture_paused(f->engine, &run);
    fixture_down(f);
    return run;
}

/* ---- codes ----------------------------------------------------------------------------------- */

static int
body_never(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    effect("entered");
    return STET_OK;
}

static int
body_value(stet_attempt *a, void *arg)
{
    return stet_attempt_return(a, stet_text(arg));
}

static int
h_old(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_value, "12", NULL));
    STET_TRY(stet_step(ctx, NULL, "ship", body_value, "boat", NULL));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("old"));
}

static int
h_same(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_never, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "ship", body_never, NULL, NULL));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_step(ctx, NULL, "behind", body_never, NULL, NULL));
    return stet_return(ctx, stet_text("same"));
}

TEST(I3_code_that_agrees_is_fine)
{
    fixture *f = fixture_begin();
    found    r;

    (void)stands(f, h_old);
    r = check_handler(f, h_same);
    CHECK_INT(r.n, 0);
    CHECK_INT(r.summary.checked, 1);
    CHECK_INT(r.summary.stuck, 0);
    CHECK_INT(effects("entered"), 0);
    fixture_end(f);
}

/* The child that executes it tells its line outside. */
static void
sleep_line(int line)
{
    effect("replay_offline_test.c:%d", line);
}

static int
h_sleeps(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    /* clang-format off */
    enum { SLEEP_LINE = __LINE__ + 1 }; sleep_line(SLEEP_LINE);
    STET_TRY(stet_sleep(ctx, "charge", "1h"));
    /* clang-format on */
    return stet_return(ctx, stet_text("slept"));
}

TEST(I3_another_kind_of_operation_is_named_with_its_line)
{
    fixture    *f = fixture_begin();
    stet_run_id run = stands(f, h_old);
    found       r = check_handler(f, h_sleeps);
    char       *told, *line;

    CHECK_INT(r.n, 1);
    CHECK_INT(r.summary.stuck, 1);
    CHECK_STR(r.at[0].run, run.text);
    CHECK_STR(r.at[0].handler, "t.flow");
    CHECK_INT(r.at[0].end, STET_REPLAY_CONTRADICTION);
    CHECK_STR(r.at[0].recorded, "step charge#1");
    CHECK_STR(r.at[0].asked, "sleep charge#1");
    told = effects_text();
    CHECK((line = strstr(told, "replay_offline_test.c:")) != NULL);
    line[strcspn(line, "\n")] = '\0';
    CHECK_HAS(r.at[0].where, line);
    free(told);
    fixture_end(f);
}

static int
h_renamed(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge card", body_never, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "ship", body_never, NULL, NULL));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("renamed"));
}

/* A worker would enter the renamed step's body, and get stuck only at the end. */
TEST(I3_a_renamed_step_is_found_and_not_entered)
{
    fixture *f = fixture_begin();
    found    r;

    (void)stands(f, h_old);
    r = check_handler(f, h_renamed);
    CHECK_INT(r.n, 1);
    CHECK_INT(r.at[0].end, STET_REPLAY_UNASKED);
    CHECK_STR(r.at[0].recorded, "step charge#1");
    CHECK_STR(r.at[0].asked, "step charge card#1");
    CHECK_HAS(r.at[0].where, "replay_offline_test.c:");
    CHECK(r.at[0].assumed > 0);
    CHECK_INT(effects("entered"), 0);
    fixture_end(f);
}

static int
h_added(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes   value;
    stet_future *future;
    int          version;
    int64_t      now_ms;

    (void)input;
    STET_TRY(stet_version(ctx, &version, "second", 1, 2));
    if (version != 1)
        return stet_fail(ctx, STET_EPERMANENT, "an old run got version %d", version);
    STET_TRY(stet_now(ctx, &now_ms));
    STET_TRY(stet_step(ctx, &value, "weigh", body_never, NULL, STET_STEP(.attempts = 3)));
    STET_TRY(stet_step(ctx, &value, "insure", body_never, NULL, STET_STEP(.transaction = true)));
    STET_TRY(stet_sleep(ctx, "cool down", "30d"));
    STET_TRY(stet_call(ctx, NULL, "t.flow", input, NULL));
    STET_TRY(stet_send(ctx, NULL, "t.flow", input, STET_START(.delay = "1h")));
    STET_TRY(stet_await_signal(ctx, NULL, "paid", "1h"));
    STET_TRY(stet_step_start(ctx, &future, "aside", body_never, NULL, NULL));
    STET_TRY(stet_await(ctx, NULL, future));
    STET_TRY(stet_step(ctx, &value, "charge", body_never, NULL, NULL));
    if (!fixture_is(value, "12"))
        return stet_fail(ctx, STET_EPERMANENT, "another result than the recorded one");
    STET_TRY(stet_step(ctx, NULL, "ship", body_never, NULL, NULL));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("added"));
}

TEST(I3_operations_added_before_recorded_ones_are_fine)
{
    fixture *f = fixture_begin();
    found    r;

    (void)stands(f, h_old);
    r = check_handler(f, h_added);
    if (r.n > 0)
        test_fail(__FILE__, __LINE__, "%s", r.at[0].text);
    CHECK_INT(r.summary.checked, 1);
    CHECK_INT(effects("entered"), 0);
    fixture_end(f);
}

static int
h_needs_weight(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_step(ctx, &value, "weigh", body_never, NULL, NULL));
    if (!fixture_is(value, "80"))
        return stet_fail(ctx, STET_EPERMANENT, "weighs nothing");
    return h_same(ctx, input);
}

/* Without a sample the new step gives nothing, and the report says that this was assumed. */
TEST(I3_samples_stand_in_for_new_operations)
{
    const stet_sample          samples[] = { { .name = "weigh", .value = "80" }, { 0 } };
    const stet_handler_options with = { .samples = samples };
    const stet_handler         handlers[] = { { "flow", h_needs_weight, &with }, { 0 } };
    fixture                   *f = fixture_begin();
    found                      r;

    (void)stands(f, h_old);
    r = check_handler(f, h_needs_weight);
    CHECK_INT(r.n, 1);
    CHECK_INT(r.at[0].end, STET_REPLAY_UNASKED);
    CHECK_INT(r.at[0].assumed, 1);
    CHECK_HAS(r.at[0].text, "weighs nothing");
    r = check(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } }, NULL);
    CHECK_INT(r.n, 0);
    CHECK_INT(effects("entered"), 0);
    fixture_end(f);
}

static int
h_early(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_never, NULL, NULL));
    return stet_return(ctx, input);
}

static int
h_impatient(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_never, NULL, NULL));
    return stet_fail(ctx, STET_ERETRY, "the bank is closed");
}

static int
h_strange(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_never, NULL, NULL));
    return 42;
}

TEST(I3_a_handler_that_returns_before_the_record_ends)
{
    fixture *f = fixture_begin();
    found    r;

    (void)stands(f, h_old);
    r = check_handler(f, h_early);
    CHECK_INT(r.n, 1);
    CHECK_INT(r.at[0].end, STET_REPLAY_UNASKED);
    CHECK_INT(r.at[0].assumed, 0);
    CHECK_STR(r.at[0].asked, "the handler returned");
    CHECK(strcmp(r.at[0].recorded, "step ship#1") == 0 ||
          strncmp(r.at[0].recorded, "awakeable", 9) == 0);
    r = check_handler(f, h_impatient);
    CHECK_INT(r.n, 1);
    CHECK_INT(r.at[0].end, STET_REPLAY_FAILED);
    CHECK_HAS(r.at[0].text, "the bank is closed");
    r = check_handler(f, h_strange);
    CHECK_INT(r.n, 1);
    CHECK_INT(r.at[0].end, STET_REPLAY_FAILED);
    CHECK_HAS(r.at[0].text, "42");
    fixture_end(f);
}

static int
h_print(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_value, "12",
                       STET_STEP(.fingerprint = stet_text("visa"))));
    (void)input;
    STET_TRY(fixture_pause(ctx));
    return STET_OK;
}

static int
h_other_print(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_never, NULL,
                       STET_STEP(.fingerprint = stet_text("cash"))));
    (void)input;
    return STET_OK;
}

TEST(I3_another_input_is_a_contradiction)
{
    fixture *f = fixture_begin();
    found    r;

    (void)stands(f, h_print);
    r = check_handler(f, h_other_print);
    CHECK_INT(r.n, 1);
    CHECK_INT(r.at[0].end, STET_REPLAY_CONTRADICTION);
    CHECK_HAS(r.at[0].text, "with another input");
    fixture_end(f);
}

/* ---- crashes and limits ---------------------------------------------------------------------- */

/* What the input says. */
static int
h_dies(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_never, NULL, NULL));
    if (fixture_is(input, "abort"))
        raise(SIGABRT);
    if (fixture_is(input, "kill"))
        raise(SIGKILL);
    if (fixture_is(input, "exit"))
        exit(0);
    for (volatile bool is_endless = fixture_is(input, "loop"); is_endless;)
        continue;
    while (fixture_is(input, "many"))
        STET_TRY(stet_step(ctx, NULL, "more", body_never, NULL, NULL));
    return h_same(ctx, input);
}

static int
h_lives(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_value, "12", NULL));
    STET_TRY(stet_step(ctx, NULL, "charge", body_value, "13", NULL));
    STET_TRY(stet_step(ctx, NULL, "ship", body_value, "boat", NULL));
    STET_TRY(fixture_pause(ctx));
    return STET_OK;
}

static void
several_stand(fixture *f, stet_run_id *runs, const char *const *inputs, size_t n)
{
    const stet_handler handlers[] = { { "flow", h_lives, NULL }, { 0 } };

    fixture_up_with(f, handlers);
    for (size_t i = 0; i < n; i++)
        runs[i] = fixture_start(f->engine, "t.flow", inputs[i], NULL);
    for (size_t i = 0; i < n; i++)
        fixture_paused(f->engine, &runs[i]);
    fixture_down(f);
}

static const report *
of_run(const found *f, const stet_run_id *run)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->at[i].run, run->text) == 0)
            return &f->at[i];
    test_fail(__FILE__, __LINE__, "no report of %s", run->text);
}

TEST(I3_a_crash_is_a_finding_that_names_its_run)
{
    static const char *const inputs[] = { "good", "abort", "good", "kill", "exit", "good" };
    fixture                 *f = fixture_begin();
    stet_run_id              runs[6];
    found                    r;

    several_stand(f, runs, inputs, 6);
    r = check_handler(f, h_dies);
    CHECK_INT(r.summary.checked, 6);
    CHECK_INT(r.summary.stuck, 3);
    CHECK_INT(r.n, 3);
    for (size_t i = 0; i < r.n; i++) {
        CHECK_INT(r.at[i].end, STET_REPLAY_CRASHED);
        CHECK_STR(r.at[i].asked, "step charge#1");
        CHECK_HAS(r.at[i].where, "replay_offline_test.c:");
        CHECK_STR(r.at[i].handler, "t.flow");
    }
    CHECK_HAS(of_run(&r, &runs[1])->text, "signal 6");
    CHECK_HAS(of_run(&r, &runs[3])->text, "signal 9");
    CHECK_HAS(of_run(&r, &runs[4])->text, "status 0");
    CHECK_INT(effects("entered"), 0);
    fixture_end(f);
}

TEST(I3_a_handler_that_does_not_end_is_stopped)
{
    static const char *const inputs[] = { "loop", "good", "many" };
    const stet_handler       handlers[] = { { "flow", h_dies, NULL }, { 0 } };
    fixture                 *f = fixture_begin();
    stet_run_id              runs[3];
    found                    r;

    several_stand(f, runs, inputs, 3);
    r = check(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } },
              STET_CHECK(.time_ms = 3000, .operations_max = 50));
    CHECK_INT(r.summary.checked, 3);
    CHECK_INT(r.n, 2);
    CHECK_INT(of_run(&r, &runs[0])->end, STET_REPLAY_TIME);
    CHECK_STR(of_run(&r, &runs[0])->asked, "step charge#1");
    CHECK_INT(of_run(&r, &runs[2])->end, STET_REPLAY_OPERATIONS);
    CHECK_INT(effects("entered"), 0);
    fixture_end(f);
}

/* ---- handlers of others ---------------------------------------------------------------------- */

TEST(I3_runs_of_handlers_that_are_not_here_are_listed)
{
    static const stet_handler old[] = { { "nap", h_hour, NULL }, { "gone", h_hour, NULL }, { 0 } };
    static const stet_handler new[] = { { "nap", h_hour, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               gone;
    found                     r;

    fixture_up(f,
               (fixture_service[]){ { "t", old, false, NULL }, { "u", new, false, NULL }, { 0 } });
    (void)fixture_start(f->engine, "t.nap", "1", NULL);
    gone = fixture_start(f->engine, "t.gone", "1", NULL);
    (void)fixture_start(f->engine, "u.nap", "1", NULL);
    fixture_down(f);
    r = check(f, (fixture_service[]){ { "t", new, false, NULL }, { 0 } }, NULL);
    CHECK_INT(r.summary.checked, 3);
    CHECK_INT(r.summary.stuck, 1);
    CHECK_INT(r.summary.elsewhere, 1);
    CHECK_INT(r.n, 2);
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(r.at[i].end, STET_REPLAY_NO_HANDLER);
        CHECK_INT(r.at[i].is_fine, strcmp(r.at[i].run, gone.text) != 0);
    }
    r = check(f, (fixture_service[]){ { "t", new, false, NULL }, { 0 } },
              STET_CHECK(.handler = "t.nap"));
    CHECK_INT(r.summary.checked, 1);
    CHECK_INT(r.n, 0);
    r = check(f, (fixture_service[]){ { "t", new, false, NULL }, { 0 } },
              STET_CHECK(.handler = "t"));
    CHECK_INT(r.summary.checked, 2);
    fixture_end(f);
}

TEST(I3_bad_options_are_refused)
{
    fixture           *f = fixture_begin();
    stet_engine       *e = fixture_open(f);
    stet_check_options none = { .size = 0 };

    CHECK_CODE(stet_check(e, NULL, &none, on_report, NULL), STET_EINVAL);
    CHECK_CODE(stet_check(e, NULL, STET_CHECK(.time_ms = -1), on_report, NULL), STET_EINVAL);
    CHECK_CODE(stet_check(NULL, NULL, NULL, on_report, NULL), STET_EINVAL);
    CHECK_OK(stet_check(e, NULL, NULL, NULL, NULL));
    stet_close(e);
    fixture_end(f);
}

/* What the function says ends it, and the child with it. */
static int
on_report_stop(void *arg, const stet_replay_report *r)
{
    (void)r;
    ++*(int *)arg;
    return STET_ESTOPPED;
}

TEST(I3_the_function_can_end_it)
{
    static const char *const inputs[] = { "abort", "abort" };
    const stet_handler       handlers[] = { { "flow", h_dies, NULL }, { 0 } };
    const fixture_service    services[] = { { "t", handlers, false, NULL }, { 0 } };
    fixture                 *f = fixture_begin();
    stet_run_id              runs[2];
    stet_engine             *e;
    int                      told = 0;

    several_stand(f, runs, inputs, 2);
    e = fixture_open_with(f, services);
    CHECK_CODE(stet_check(e, NULL, NULL, on_report_stop, &told), STET_ESTOPPED);
    CHECK_INT(told, 1);
    stet_close(e);
    fixture_end(f);
}

TEST(I3_a_check_without_room_for_a_child_says_so)
{
    const stet_handler handlers[] = { { "flow", h_same, NULL }, { 0 } };
    fixture           *f = fixture_begin_on("memory");
    stet_engine       *e;
    struct rlimit      before, none;
    int                last;

    (void)stands(f, h_old);
    e = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK((last = dup(STDOUT_FILENO)) >= 0);
    CHECK(close(last) == 0);
    none = before;
    none.rlim_cur = (rlim_t)last;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_CODE(stet_check(e, NULL, NULL, on_report, NULL), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "no pipe");
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_OK(stet_check(e, NULL, NULL, on_report, NULL));
    stet_close(e);
    fixture_end(f);
}

/* More than a page, and runs that have ended are none of its business. */
TEST(I3_all_open_runs_are_checked)
{
    enum { RUNS = 1200 };
    static stet_start_request requests[RUNS];
    static const stet_handler handlers[] = { { "nap", h_hour, NULL },
                                             { "quick", h_quick, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               quick;
    found                     r;

    fixture_up_with(f, handlers);
    quick = fixture_start(f->engine, "t.quick", "1", NULL);
    EXPECT_RESULT(f->engine, &quick, "1");
    for (size_t i = 0; i < RUNS; i++)
        requests[i] = (stet_start_request){ .handler = "t.nap", .input = stet_text("1") };
    CHECK_OK(stet_start_many(f->engine, requests, RUNS));
    fixture_down(f);
    r = check(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } }, NULL);
    CHECK_INT(r.summary.checked, RUNS);
    CHECK_INT(r.n, 0);
    fixture_end(f);
}

/* ---- every place a run can be at ------------------------------------------------------------- */

static gate aside_door = GATE_INIT;

static int
body_line(stet_attempt *a, void *line)
{
    effect("%s", (const char *)line);
    return stet_attempt_return(a, stet_text(line));
}

static int
body_refuses(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_fail(a, STET_EPERMANENT, "no");
}

static int
body_second(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_number(a) < 2 ? stet_attempt_fail(a, STET_ERETRY, "not yet")
                                      : stet_attempt_return(a, stet_text("at last"));
}

/* All of the vocabulary, some of it side by side. */
static int
h_all(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch ways[] = { { "there", NULL }, { 0 } };
    stet_future      *one, *two, *nap, *set[2];
    stet_awakeable_id id;
    stet_run_id       self;
    stet_run_look     look;
    bool              is_first;
    stet_bytes        value;
    int64_t           now_ms;
    size_t            chosen;
    int               version;

    STET_TRY(stet_version(ctx, &version, "v", 1, 3));
    STET_TRY(stet_now(ctx, &now_ms));
    STET_TRY(stet_state_get(ctx, &value, "seen"));
    STET_TRY(stet_state_set(ctx, "seen", input));
    STET_TRY(stet_step(ctx, &value, "first", body_line, "first", NULL));
    if (stet_step(ctx, NULL, "refused", body_refuses, NULL, NULL) == STET_ESTEP)
        STET_TRY(stet_step(ctx, NULL, "instead", body_line, "instead", NULL));
    STET_TRY(stet_step(ctx, &value, "again", body_second, NULL,
                       STET_STEP(.attempts = 3, .first_ms = 1, .jitter_percent = STET_NONE)));
    STET_TRY(stet_step_start(ctx, &one, "one", body_line, "one", NULL));
    STET_TRY(stet_step_start(ctx, &two, "two", body_line, "two", NULL));
    set[0] = one;
    set[1] = two;
    STET_TRY(stet_await_all(ctx, set, 2));
    STET_TRY(stet_await(ctx, &value, two));
    STET_TRY(stet_sleep_start(ctx, &nap, "nap", "1ms"));
    STET_TRY(stet_call_start(ctx, &one, "t.quick", stet_text("5"), NULL));
    set[0] = nap;
    set[1] = one;
    STET_TRY(stet_await_any(ctx, &chosen, set, 2, "1h"));
    STET_TRY(stet_await(ctx, &value, one));
    snprintf(self.text, sizeof self.text, "%s", stet_info(ctx)->run);
    STET_TRY(stet_ctx_signal(ctx, &self, "hello", stet_text("me")));
    STET_TRY(stet_await_signal(ctx, &value, "hello", "1h"));
    STET_TRY(stet_awakeable(ctx, &id, &two, "own"));
    STET_TRY(stet_ctx_resolve(ctx, id.text, stet_text("mine")));
    STET_TRY(stet_await_for(ctx, &value, two, "1h"));
    STET_TRY(stet_send(ctx, NULL, "t.quick", stet_text("6"), NULL));
    STET_TRY(stet_note(ctx, "half way at %lld", (long long)now_ms));
    STET_TRY(stet_switch(ctx, &chosen, "way", ways, NULL));
    STET_TRY(stet_once(ctx, &is_first, stet_info(ctx)->run));
    STET_TRY(stet_run_look_at(ctx, &look, &self));
    STET_TRY(stet_ctx_emit(ctx, NULL, "nobody", stet_text("hears it")));
    if (stet_await_event(ctx, &value, "never", "1ms") == STET_ETIMEOUT)
        STET_TRY(stet_step(ctx, NULL, "late", body_line, "late", NULL));
    STET_TRY(stet_sleep(ctx, "last", "1ms"));
    STET_TRY(stet_state_clear(ctx, "seen"));
    return stet_return_json(ctx, "{\"random\":%llu}",
                            (unsigned long long)(stet_random(ctx) % 2 + 1));
}

static int
undo_line(stet_attempt *a, stet_bytes result)
{
    (void)a;
    effect("undo %.*s", (int)result.len, (const char *)result.data);
    return STET_OK;
}

/* Undone once because it asks for it, and what came after because it fails. */
static int
h_undone(stet_ctx *ctx, stet_bytes input)
{
    stet_future *aside;

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step(ctx, NULL, "a", body_line, "a", STET_STEP(.undo = undo_line)));
    STET_TRY(stet_step_start(ctx, &aside, "b", body_line, "b", STET_STEP(.undo = undo_line)));
    STET_TRY(stet_await(ctx, NULL, aside));
    STET_TRY(stet_rollback(ctx));
    STET_TRY(stet_step(ctx, NULL, "c", body_line, "c", STET_STEP(.undo = undo_line)));
    STET_TRY(stet_sleep(ctx, "moment", "1ms"));
    STET_TRY(stet_step(ctx, NULL, "d", body_line, "d", STET_STEP(.undo = undo_line)));
    return stet_fail(ctx, STET_EPERMANENT, "all in vain");
}

/* Fails until the test says it may not; an attempt more does not help. */
static int
body_gives_up(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("tried");
    if (effects("tried") == 1)
        return stet_attempt_fail(a, STET_EPERMANENT, "not today");
    return stet_attempt_return(a, stet_text("well"));
}

static int
h_gives_up(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "inherited", body_line, "inherited", NULL));
    STET_TRY(stet_sleep(ctx, "moment", "1ms"));
    STET_TRY(stet_step(ctx, NULL, "fails", body_gives_up, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "last", body_line, "last", NULL));
    return STET_OK;
}

static int
h_cleans_up(stet_ctx *ctx, stet_bytes input)
{
    int err;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "work", body_line, "work", NULL));
    err = fixture_pause(ctx);
    if (err == STET_ECANCELLED)
        STET_TRY(stet_step(ctx, NULL, "clean", body_line, "cleaned", NULL));
    return err;
}

static const stet_handler all_objects[] = { { "all", h_all, NULL }, { "undone", h_undone, NULL },
                                            { 0 } };
static const stet_handler all_services[] = { { "quick", h_quick, NULL },
                                             { "gives-up", h_gives_up, NULL },
                                             { "cleans-up", h_cleans_up, NULL },
                                             { 0 } };
static const fixture_service all_of_it[] = { { "t", all_services, false, NULL },
                                             { "o", all_objects, true, NULL },
                                             { 0 } };

static int
count_operation(void *arg, const stet_operation *op)
{
    CHECK(op->kind != NULL && op->shape != NULL && op->name != NULL && op->occurrence > 0);
    ++*(size_t *)arg;
    return STET_OK;
}

typedef struct prefix {
    found  found;
    size_t operations;
} prefix;

static int
on_prefix_operation(void *arg, const stet_operation *op)
{
    prefix *p = arg;

    /* "all" is recorded by what it waits for, and "two" may be recorded before "one". */
    CHECK(op->is_recorded || strcmp(op->name, "all") == 0 || strcmp(op->name, "one") == 0);
    return count_operation(&p->operations, op);
}

static int
on_prefix_report(void *arg, const stet_replay_report *r)
{
    return on_report(&((prefix *)arg)->found, r);
}

/* The bundle with the facts up to revision `upto` only. */
static stet_bytes
cut(stet__buf *b, const stet__tape *tape, uint64_t upto)
{
    b->len = 0;
    stet__bundle_begin(b, tape->run, STET_STATUS_SUSPENDED, upto, 0);
    for (size_t i = 0; i < tape->n_inbox; i++)
        stet__bundle_inbox(b, tape->inbox[i].first, tape->inbox[i].facts);
    for (size_t i = 0; i < tape->n_journal; i++) {
        stet_bytes in = tape->journal[i].facts;
        uint64_t   revision = tape->journal[i].first;
        stet__fact fact;

        for (; revision <= upto; revision++) {
            const char *at = in.data;

            if (stet__fact_decode(&fact, &in) != STET_OK)
                break;
            stet__bundle_journal(b, revision, 1,
                                 (stet_bytes){ at, (size_t)((const char *)in.data - at) });
        }
    }
    stet__bundle_end(b, 0);
    CHECK(!b->failed);
    return stet__buf_bytes(b);
}

/* The code of a run that has ended against every part of its record that begins with its start.
 * Ends the fixture. */
static void
agrees_everywhere(fixture *f, const stet_run_id *run, uint64_t revisions)
{
    stet_bytes   bundle;
    stet__arena  arena;
    stet__tape   tape;
    stet__buf    b;
    stet_engine *e;
    char        *before, *after;

    CHECK_OK(stet_run_export(f->engine, &bundle, run));
    fixture_down(f);
    before = effects_text();
    stet__arena_init(&arena, &stet__platform_real()->alloc);
    stet__buf_init(&b, &stet__platform_real()->alloc);
    CHECK_OK(stet__bundle_decode(&tape, &arena, bundle));
    CHECK(tape.revision > revisions);
    e = fixture_open_with(f, all_of_it);
    for (uint64_t upto = 1; upto <= tape.revision; upto++) {
        prefix p = { .operations = 0 };

        CHECK_OK(stet_replay(e, cut(&b, &tape, upto), on_prefix_operation, on_prefix_report, &p));
        CHECK_INT(p.found.n, 1);
        if (!p.found.at[0].is_fine)
            test_fail(__FILE__, __LINE__, "up to revision %d: %s", (int)upto, p.found.at[0].text);
        CHECK_INT(p.found.at[0].operations, p.operations);
    }
    test_note("%d places", (int)tape.revision);
    after = effects_text();
    CHECK_STR(after, before); /* no body was entered again */
    free(before);
    free(after);
    stet__buf_free(&b);
    stet__arena_free(&arena);
    stet_free((void *)(uintptr_t)bundle.data);
    stet_close(e);
    fixture_end(f);
}

TEST(I3_a_run_agrees_with_its_own_code_wherever_it_stands)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, all_of_it);
    run = fixture_start(f->engine, "o.all", "7", STET_START(.key = "k"));
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    agrees_everywhere(f, &run, 40);
}

TEST(I3_a_rollback_agrees_with_its_own_code_wherever_it_stands)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, all_of_it);
    run = fixture_start(f->engine, "o.undone", "7", STET_START(.key = "k"));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    agrees_everywhere(f, &run, 14);
}

/* What was inherited need not be asked for, and what is new is recorded behind it. */
TEST(I3_a_retry_agrees_with_its_own_code_wherever_it_stands)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again;

    fixture_up(f, all_of_it);
    run = fixture_start(f->engine, "t.gives-up", "7", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    EXPECT_ANSWER(f->engine, &again, STET_OK);
    CHECK_INT(effects("inherited"), 1);
    agrees_everywhere(f, &again, 5);
}

TEST(I3_a_cancelled_run_agrees_with_its_own_code_wherever_it_stands)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, all_of_it);
    run = fixture_start(f->engine, "t.cleans-up", "7", NULL);
    fixture_paused(f->engine, &run);
    CHECK_OK(stet_cancel(f->engine, &run, "tester", "enough"));
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(effects("cleaned"), 1);
    agrees_everywhere(f, &run, 7);
}

static int
body_waits(stet_attempt *a, void *arg)
{
    (void)arg;
    gate_pass(&aside_door);
    return stet_attempt_return(a, stet_text("late"));
}

/* A body that is at work while others are recorded: its step is new to a replay, and not
 * strange. */
static int
h_aside(stet_ctx *ctx, stet_bytes input)
{
    stet_future *slow;

    (void)input;
    STET_TRY(stet_step_start(ctx, &slow, "slow", body_waits, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "fast", body_line, "fast", NULL));
    STET_TRY(stet_send(ctx, NULL, "t.flow", stet_text("never"), STET_START(.delay = "1d")));
    STET_TRY(stet_await(ctx, NULL, slow));
    return stet_return(ctx, stet_text("both"));
}

TEST(I3_a_body_that_is_at_work_just_now_is_no_finding)
{
    const stet_handler handlers[] = { { "flow", h_aside, NULL }, { 0 } };
    fixture           *f = fixture_begin();
    stet_engine       *e;
    stet_run_id        run;
    found              r = { .n = 0 };

    f->options.concurrency = 2;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.flow", "1", NULL);
    gate_await(&aside_door, 1);
    AWAIT(fixture_facts(f->engine, &run, "send", NULL) == 1);
    e = f->is_sqlite ? fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL },
                                                                { 0 } })
                     : f->engine; /* also of an engine that is at work */
    CHECK_OK(stet_check(e, &r.summary, NULL, on_report, &r));
    if (r.n > 0)
        test_fail(__FILE__, __LINE__, "%s", r.at[0].text);
    CHECK_INT(r.summary.checked, 2);
    gate_open(&aside_door);
    EXPECT_RESULT(f->engine, &run, "both");
    CHECK_INT(effects("fast"), 1);
    if (e != f->engine)
        stet_close(e);
    fixture_end(f);
}

/* ---- what a worker would do ------------------------------------------------------------------ */

static int
h_rich(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch ways[] = { { "left", NULL }, { 0 } };
    stet_future             *set[3];
    size_t                   chosen;
    int                      version;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_line, "charge",
                       STET_STEP(.fingerprint = stet_text("visa"))));
    STET_TRY(stet_version(ctx, &version, "v", 1, 1));
    STET_TRY(stet_switch(ctx, &chosen, "way", ways, NULL));
    STET_TRY(stet_sleep_start(ctx, &set[0], "slow", "1h"));
    STET_TRY(stet_sleep_start(ctx, &set[1], "slower", "2h"));
    STET_TRY(stet_sleep_start(ctx, &set[2], "fast", "1ms"));
    STET_TRY(stet_await_any(ctx, &chosen, set, 3, NULL));
    STET_TRY(stet_step(ctx, NULL, "ship", body_line, "ship", NULL));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("rich"));
}

/* The same with one change; 0 is none. */
static int change;

static int
h_changed(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch old_ways[] = { { "left", NULL }, { 0 } };
    static const stet_branch new_ways[] = { { "right", NULL }, { 0 } };
    stet_future             *set[3];
    size_t                   chosen;
    int                      version;

    (void)input;
    if (change == 1)
        return stet_return(ctx, stet_text("early"));
    if (change == 2)
        STET_TRY(stet_step(ctx, NULL, "added", body_line, "added", NULL));
    if (change == 3)
        STET_TRY(stet_sleep(ctx, "charge", "1ms"));
    if (change == 4)
        STET_TRY(stet_step(ctx, NULL, "ship", body_line, "ship", NULL)); /* moved to the front */
    STET_TRY(stet_step(ctx, NULL, change == 5 ? "charge card" : "charge", body_line, "charge",
                       STET_STEP(.fingerprint = stet_text(change == 6 ? "cash" : "visa"))));
    if (change != 7)
        STET_TRY(stet_version(ctx, &version, "v", change == 8 ? 2 : 1, change == 8 ? 2 : 1));
    STET_TRY(stet_switch(ctx, &chosen, "way", change == 9 ? new_ways : old_ways, NULL));
    STET_TRY(stet_sleep_start(ctx, &set[0], "slow", "1h"));
    STET_TRY(stet_sleep_start(ctx, &set[1], "slower", "2h"));
    STET_TRY(stet_sleep_start(ctx, &set[2], "fast", "1ms"));
    STET_TRY(stet_await_any(ctx, &chosen, set, change == 10 ? 2 : 3, NULL));
    if (change == 11)
        return stet_fail(ctx, STET_EPERMANENT, "no more");
    if (change != 4)
        STET_TRY(stet_step(ctx, NULL, "ship", body_line, "ship", NULL));
    if (change == 12)
        STET_TRY(stet_step(ctx, NULL, "ship", body_line, "ship", NULL)); /* once more */
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("rich"));
}

static bool
is_decided(stet_engine *e, const stet_run_id *run)
{
    stet_status status = fixture_look(e, run).status;

    return status == STET_STATUS_STUCK || stet_status_is_terminal(status);
}

/* For each change: what the check says before, and what becomes of the run after. */
TEST_LIMIT(I3_the_gate_says_what_a_worker_would_do, 120)
{
    enum { CHANGES = 13 };
    const stet_handler handlers[] = { { "flow", h_changed, NULL }, { 0 } };
    int                stuck = 0;

    for (change = 0; change < CHANGES; change++) {
        fixture    *f = fixture_begin();
        stet_run_id run = stands(f, h_rich);
        found       r = check_handler(f, h_changed);
        bool        is_stuck;

        fixture_up_with(f, handlers);
        if (!is_decided(f->engine, &run))
            fixture_go_on(f->engine, &run);
        AWAIT(is_decided(f->engine, &run));
        is_stuck = fixture_look(f->engine, &run).status == STET_STATUS_STUCK;
        if (is_stuck != (r.n > 0))
            test_fail(__FILE__, __LINE__, "change %d: the gate says %s, the run is %s: %s", change,
                      r.n > 0 ? r.at[0].text : "fine",
                      stet_status_name(fixture_look(f->engine, &run).status),
                      fixture_look(f->engine, &run).error);
        stuck += is_stuck;
        fixture_end(f);
        fixture_wipe();
    }
    CHECK_INT(stuck, 8);
}

/* ---- bundles --------------------------------------------------------------------------------- */

typedef struct listing {
    char   text[4096];
    report report;
} listing;

static int
on_operation(void *arg, const stet_operation *op)
{
    listing *l = arg;
    size_t   len = strlen(l->text);

    CHECK(op->is_recorded);
    CHECK(op->where != NULL);
    snprintf(l->text + len, sizeof l->text - len, "%s %s#%d%s%.*s\n", op->kind, op->name,
             (int)op->occurrence, op->is_settled ? " -> " : " …", (int)op->value.len,
             op->value.len > 0 ? (const char *)op->value.data : "");
    return STET_OK;
}

static int
on_listing_report(void *arg, const stet_replay_report *r)
{
    found f = { .n = 0 };

    CHECK_OK(on_report(&f, r));
    ((listing *)arg)->report = f.at[0];
    return STET_OK;
}

TEST(I7_a_bundle_of_an_open_run_replays_without_its_store)
{
    const stet_handler handlers[] = { { "flow", h_same, NULL }, { 0 } };
    fixture           *f = fixture_begin();
    stet_run_id        run = stands(f, h_old);
    stet_engine       *e = fixture_open(f), *offline;
    stet_bundle_info   info;
    stet_bytes         bundle;
    listing            l = { .text = "" };

    CHECK_OK(stet_run_export(e, &bundle, &run));
    stet_close(e);
    CHECK_OK(stet_bundle_read(&info, bundle));
    CHECK_STR(info.run.text, run.text);
    CHECK_STR(info.handler, "t.flow");
    CHECK_INT(info.status, STET_STATUS_SUSPENDED);
    CHECK_STR(info.version, STET_VERSION);
    CHECK(info.revision >= 5);
    CHECK(info.is_this_build == (info.build[0] != '\0'));

    CHECK_OK(stet_open(&offline, "memory:", STET_OPTIONS(.roles = STET_ROLE_CLIENT)));
    CHECK_OK(stet_register(offline, "t", handlers));
    CHECK_OK(stet_replay(offline, bundle, on_operation, on_listing_report, &l));
    CHECK_HAS(l.text, "step charge#1 -> 12\nstep ship#1 -> boat\n");
    CHECK_INT(l.report.end, STET_REPLAY_RECORD);
    CHECK_INT(l.report.assumed, 0);
    CHECK_INT(effects("entered"), 0);
    stet_close(offline);
    stet_free((void *)(uintptr_t)bundle.data);
    fixture_end(f);
}

TEST(I7_a_bundle_of_an_ended_run_replays_to_its_return)
{
    const stet_handler handlers[] = { { "flow", h_quick, NULL }, { 0 } };
    fixture           *f = fixture_begin();
    stet_run_id        run;
    stet_bundle_info   info;
    stet_bytes         bundle;
    listing            l = { .text = "" };
    size_t             n = 0;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.flow", "9", NULL);
    EXPECT_RESULT(f->engine, &run, "9");
    CHECK_OK(stet_run_export(f->engine, &bundle, &run));
    CHECK_OK(stet_bundle_read(&info, bundle));
    CHECK_INT(info.status, STET_STATUS_COMPLETED);
    CHECK_OK(stet_replay(f->engine, bundle, NULL, on_listing_report, &l));
    CHECK_INT(l.report.end, STET_REPLAY_RETURNED);
    CHECK_INT(l.report.operations, 1);
    CHECK_OK(stet_replay(f->engine, bundle, count_operation, NULL, &n));
    CHECK_INT(n, 1);
    CHECK_INT(effects("quick"), 1);
    stet_free((void *)(uintptr_t)bundle.data);
    fixture_end(f);
}

static int
on_operation_stop(void *arg, const stet_operation *op)
{
    (void)op;
    ++*(int *)arg;
    return STET_ESTOPPED;
}

TEST(I7_the_functions_can_end_it)
{
    const stet_handler handlers[] = { { "flow", h_same, NULL }, { 0 } };
    fixture           *f = fixture_begin();
    stet_run_id        run = stands(f, h_old);
    stet_engine       *e;
    stet_bytes         bundle;
    int                told = 0;

    e = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_run_export(e, &bundle, &run));
    CHECK_CODE(stet_replay(e, bundle, on_operation_stop, on_report, &told), STET_ESTOPPED);
    CHECK_INT(told, 1);
    CHECK_CODE(stet_replay(e, bundle, NULL, on_report_stop, &told), STET_ESTOPPED);
    CHECK_INT(told, 2);
    CHECK_CODE(stet_describe(e, "t.flow", NULL, on_operation_stop, on_report, &told),
               STET_ESTOPPED);
    CHECK_INT(told, 3);
    stet_free((void *)(uintptr_t)bundle.data);
    stet_close(e);
    fixture_end(f);
}

TEST(I7_export_says_what_is_not_there)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open(f);
    stet_run_id  run = { "run_00000000000000000000000001" }, bad = { "nonsense" };
    stet_bytes   bundle;

    CHECK_CODE(stet_run_export(e, &bundle, &run), STET_ENOTFOUND);
    CHECK(bundle.data == NULL);
    CHECK_CODE(stet_run_export(e, &bundle, &bad), STET_EINVAL);
    CHECK_CODE(stet_run_export(e, &bundle, NULL), STET_EINVAL);
    stet_close(e);
    fixture_end(f);
}

/* Every byte of it counts: whichever is changed or missing, it is refused or fails in the same
 * way. */
TEST(I7_a_damaged_bundle_is_refused)
{
    fixture         *f = fixture_begin();
    stet_run_id      run = stands(f, h_old);
    stet_engine     *e = fixture_open(f);
    stet_bundle_info info;
    stet_bytes       bundle;
    uint8_t         *copy_of;

    CHECK_OK(stet_run_export(e, &bundle, &run));
    CHECK((copy_of = malloc(bundle.len + 1)) != NULL);
    for (size_t i = 0; i < bundle.len; i++) {
        int err;

        memcpy(copy_of, bundle.data, bundle.len);
        copy_of[i] ^= 0x20;
        err = stet_bundle_read(&info, (stet_bytes){ copy_of, bundle.len });
        CHECK(err == STET_ECORRUPT || (i == 8 && err == STET_ENEWER));
        CHECK_CODE(stet_bundle_read(&info, (stet_bytes){ bundle.data, i }), STET_ECORRUPT);
    }
    memcpy(copy_of, bundle.data, bundle.len);
    copy_of[bundle.len] = 0;
    CHECK_CODE(stet_bundle_read(&info, (stet_bytes){ copy_of, bundle.len + 1 }), STET_ECORRUPT);
    CHECK_CODE(stet_replay(e, (stet_bytes){ copy_of, 20 }, NULL, on_report, NULL), STET_ECORRUPT);
    free(copy_of);
    stet_free((void *)(uintptr_t)bundle.data);
    stet_close(e);
    fixture_end(f);
}

/* A record that is damaged in the store is so in the bundle, and the report says where. */
/* Sections by hand, with the checksum they should have. */
static stet_bytes
bundle_of(char *to, const char *sections, size_t len, const char *behind)
{
    size_t   n = 9;
    uint32_t crc;

    memcpy(to, "stetrun\n\1", n);
    memcpy(to + n, sections, len);
    n += len;
    crc = stet__crc32c(0, to, n);
    to[n++] = 0;
    to[n++] = (char)(4 + strlen(behind));
    for (int i = 0; i < 4; i++)
        to[n++] = (char)(uint8_t)(crc >> 8 * i);
    memcpy(to + n, behind, strlen(behind));
    return (stet_bytes){ to, n + strlen(behind) };
}

#define RUN_PART     "\1\20" "0123456789abcdef"
#define HEAD_PART    "\2\12" "\1\1" "12345678"
#define JOURNAL_PART "\5\3" "\1\1x"

/* Whole by their checksum, and yet they make no sense. */
TEST(I7_a_bundle_that_makes_no_sense_is_refused)
{
    static const struct {
        const char *sections;
        size_t      len;
        const char *text;
    } all[] = {
#define SECTIONS(parts, said) { parts, sizeof(parts) - 1, said }
        SECTIONS(HEAD_PART JOURNAL_PART, "is missing"),
        SECTIONS(RUN_PART JOURNAL_PART, "is missing"),
        SECTIONS(RUN_PART HEAD_PART, "is missing"),
        SECTIONS("\1\3" "012", "another length"),
        SECTIONS("\2\0", "too short"),
        SECTIONS("\2\1" "\1", "too short"),
        SECTIONS("\2\5" "\1\1" "123", "too short"),
        SECTIONS("\2\12" "\1\177" "12345678", "a status nobody knows"),
        SECTIONS("\2\12" "\1\0" "12345678", "a status nobody knows"),
        SECTIONS("\5\0", "without a number"),
        SECTIONS("\5\1" "\1", "without a number"),
        SECTIONS("\6\0", "without a number"),
        SECTIONS("\5\3" "\0\1x", "impossible number"),
        SECTIONS("\5\3" "\1\0x", "impossible number"),
        SECTIONS("\5\3" "\1\2x", "impossible number"),
        SECTIONS(JOURNAL_PART "\5\3" "\7\1x", "a gap"),
        SECTIONS("\5\177" "\1\1x", "cut off"),
#undef SECTIONS
    };
    stet_bundle_info info;
    char             bytes[256];

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK_CODE(stet_bundle_read(&info, bundle_of(bytes, all[i].sections, all[i].len, "")),
                   STET_ECORRUPT);
        CHECK_HAS(stet_last_error(), all[i].text);
    }
    CHECK_CODE(stet_bundle_read(&info, bundle_of(bytes, RUN_PART, sizeof RUN_PART - 1, "more")),
               STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "follows its end");
    CHECK_CODE(stet_bundle_read(&info, (stet_bytes){ bytes, STET_BUNDLE_BYTES_MAX + 1 }),
               STET_ETOOBIG);
}

TEST(I7_a_damaged_record_is_a_report)
{
    fixture     *f = fixture_begin();
    stet_run_id  run = stands(f, h_old);
    stet_engine *e;
    stet_bytes   bundle;
    stet__arena  arena;
    stet__tape   tape;
    stet__buf    b;
    found        r = { .n = 0 };
    const stet_handler handlers[] = { { "flow", h_same, NULL }, { 0 } };

    e = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_run_export(e, &bundle, &run));
    stet__arena_init(&arena, &stet__platform_real()->alloc);
    stet__buf_init(&b, &stet__platform_real()->alloc);
    CHECK_OK(stet__bundle_decode(&tape, &arena, bundle));
    stet__bundle_begin(&b, tape.run, tape.status, tape.revision, 0);
    for (size_t i = 0; i < tape.n_journal; i++) {
        stet_bytes facts = tape.journal[i].facts;
        char      *spoilt = stet__arena_copy(&arena, facts.data, facts.len);

        if (i == tape.n_journal - 1)
            spoilt[facts.len / 2] ^= 1;
        stet__bundle_journal(&b, tape.journal[i].first, tape.journal[i].count,
                             (stet_bytes){ spoilt, facts.len });
    }
    stet__bundle_end(&b, 0);
    CHECK_OK(stet_replay(e, stet__buf_bytes(&b), NULL, on_report, &r));
    CHECK_INT(r.at[0].end, STET_REPLAY_CORRUPT);
    CHECK_HAS(r.at[0].text, "revision ");
    stet__buf_free(&b);
    stet__arena_free(&arena);
    stet_free((void *)(uintptr_t)bundle.data);
    stet_close(e);
    fixture_end(f);
}

/* ---- the store stays as it is ---------------------------------------------------------------- */

static char *
image(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(1 << 26);

    *len = 0;
    CHECK(bytes != NULL);
    if (file == NULL)
        return bytes;
    *len = fread(bytes, 1, 1 << 26, file);
    CHECK(*len < 1 << 26);
    fclose(file);
    return bytes;
}

TEST(I3_a_store_that_is_opened_to_be_read_is_not_written)
{
    static const char *const ends[] = { "", "-wal", "-live" };
    const stet_handler       handlers[] = { { "flow", h_renamed, NULL }, { 0 } };
    fixture                 *f = fixture_begin_on("sqlite");
    char                     path[512], url[600], *before[3], *after;
    size_t                   lens[3], len;
    stet_run_id              run = stands(f, h_old);
    stet_engine             *e;
    found                    r = { .n = 0 };
    stet_bytes               bundle;

    snprintf(path, sizeof path, "%s", f->url);
    path[strcspn(path, "?")] = '\0';
    snprintf(url, sizeof url, "%s?readonly=1", path);
    for (size_t i = 0; i < 3; i++) {
        char file[600];

        snprintf(file, sizeof file, "%s%s", path, ends[i]);
        before[i] = image(file, &lens[i]);
    }
    CHECK(lens[0] > 0);
    CHECK_OK(stet_open(&e, url, STET_OPTIONS(.roles = STET_ROLE_CLIENT)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_check(e, &r.summary, NULL, on_report, &r));
    CHECK_INT(r.n, 1);
    CHECK_OK(stet_run_export(e, &bundle, &run));
    stet_free((void *)(uintptr_t)bundle.data);
    CHECK_CODE(stet_start(e, NULL, "t.flow", stet_text("1"), NULL), STET_EREADONLY);
    CHECK_CODE(stet_cancel(e, &run, NULL, NULL), STET_EREADONLY);
    CHECK_CODE(stet_engine_poll(e, NULL, 0), STET_EREADONLY);
    stet_close(e);
    for (size_t i = 0; i < 3; i++) {
        char file[600];

        snprintf(file, sizeof file, "%s%s", path, ends[i]);
        after = image(file, &len);
        CHECK_INT(len, lens[i]);
        CHECK(memcmp(after, before[i], len) == 0);
        free(after);
        free(before[i]);
    }
    fixture_end(f);
}
