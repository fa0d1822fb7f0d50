/* What a handler is like, told without executing its side effects (B14), and what is registered
 * with it for that (A8). Bodies and undos tell that they were entered (effect()), which must not
 * happen.
 */
#include <signal.h>

#include "fixture.h"

/* ---- what was told --------------------------------------------------------------------------- */

typedef struct told {
    char            text[8192];
    size_t          n;
    stet_replay_end end;
    bool            is_fine;
    char            why[512];
} told;

static int
on_operation(void *arg, const stet_operation *op)
{
    told  *t = arg;
    size_t len = strlen(t->text);

    CHECK(op->kind != NULL && op->name != NULL && op->shape != NULL && op->occurrence > 0);
    t->n++;
    snprintf(t->text + len, sizeof t->text - len,
             "%s|%s|%s#%d%s%s%s%s%s d=%lld t=%lld a=%d c=%d %s%s %.*s;\n", op->shape, op->kind,
             op->name, (int)op->occurrence, op->is_parallel ? " parallel" : "",
             op->is_transaction ? " tx" : "", op->has_undo ? " undo" : "",
             op->is_recorded ? " recorded" : "", op->is_settled ? " settled" : "",
             (long long)op->duration_ms, (long long)op->timeout_ms, op->attempts, op->code,
             op->key != NULL ? "key=" : "", op->key != NULL ? op->key : "", (int)op->value.len,
             op->value.len > 0 ? (const char *)op->value.data : "");
    return STET_OK;
}

static int
on_report(void *arg, const stet_replay_report *r)
{
    told *t = arg;

    CHECK(r->run == NULL && r->text != NULL && r->handler != NULL);
    t->end = r->end;
    t->is_fine = r->is_fine;
    snprintf(t->why, sizeof t->why, "%s", r->text);
    return STET_OK;
}

static told
describe(stet_engine *e, const char *handler, const stet_describe_options *options)
{
    told t = { .text = "" };

    CHECK_OK(stet_describe(e, handler, options, on_operation, on_report, &t));
    CHECK_INT(effects("entered"), 0);
    return t;
}

/* ---- handlers -------------------------------------------------------------------------------- */

static int
body_enters(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("entered");
    return stet_attempt_return(a, stet_text("real"));
}

static int
undo_enters(stet_attempt *a, stet_bytes result)
{
    (void)a;
    (void)result;
    effect("entered");
    return STET_OK;
}

static int
match_b(void *arg)
{
    return fixture_is(*(stet_bytes *)arg, "b");
}

/* All that can be asked for, each once, but for awaits. */
static int
h_all(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch ways[] = { { "way b", match_b }, { "way c", NULL }, { 0 } };
    stet_future             *aside, *approval;
    stet_run_id              self;
    stet_run_look            look;
    stet_bytes               value;
    int64_t                  now_ms;
    size_t                   way;
    bool                     is_first;
    int                      version;

    STET_TRY(stet_step(ctx, &value, "choose", body_enters, NULL,
                       STET_STEP(.attempts = 4, .timeout = "7s", .undo = undo_enters)));
    STET_TRY(stet_step(ctx, NULL, "sql", body_enters, NULL, STET_STEP(.transaction = true)));
    STET_TRY(stet_switch(ctx, &way, "ways", ways, &value));
    STET_TRY(stet_note(ctx, "went %d", (int)way));
    STET_TRY(stet_now(ctx, &now_ms));
    STET_TRY(stet_version(ctx, &version, "v", 1, 5));
    STET_TRY(stet_once(ctx, &is_first, "once"));
    if (!is_first || version != 5)
        return stet_fail(ctx, STET_EPERMANENT, "not as on a first execution");
    STET_TRY(stet_sleep(ctx, "nap", "90d"));
    STET_TRY(stet_step_start(ctx, &aside, "aside", body_enters, NULL, NULL));
    STET_TRY(stet_call(ctx, &value, "o.keeps", input, STET_START(.key = "k")));
    STET_TRY(stet_send(ctx, &self, "t.all", input, STET_START(.delay = "2h")));
    STET_TRY(stet_run_look_at(ctx, &look, &self));
    STET_TRY(stet_awakeable(ctx, NULL, &approval, "approval"));
    STET_TRY(stet_await(ctx, NULL, aside));
    STET_TRY(stet_await_for(ctx, NULL, approval, "3h"));
    STET_TRY(stet_ctx_signal(ctx, &self, "hello", input));
    STET_TRY(stet_await_signal(ctx, NULL, "paid", "4h"));
    STET_TRY(stet_await_event(ctx, NULL, "news", "5h"));
    STET_TRY(stet_ctx_emit(ctx, NULL, "done", input));
    STET_TRY(stet_approve(ctx, NULL, "manager", input));
    STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, value);
}

static int
h_keeps(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    STET_TRY(stet_state_get(ctx, &value, "n"));
    if (!fixture_is(value, "initial"))
        return stet_fail(ctx, STET_EPERMANENT, "without its initial state");
    STET_TRY(stet_state_set(ctx, "n", input));
    STET_TRY(stet_state_clear(ctx, "m"));
    return stet_return(ctx, stet_text(stet_info(ctx)->key));
}

static int
h_fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "one", body_enters, NULL, STET_STEP(.undo = undo_enters)));
    STET_TRY(stet_step(ctx, NULL, "two", body_enters, NULL, NULL));
    return STET_OK;
}

static int
h_dies(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "before", body_enters, NULL, NULL));
    for (volatile bool is_endless = fixture_is(input, "loop"); is_endless;)
        continue;
    raise(SIGKILL);
    return STET_OK;
}

static int
h_born_dead(stet_ctx *ctx, stet_bytes input)
{
    (void)ctx;
    (void)input;
    raise(SIGKILL);
    return STET_OK;
}

static int
h_wheel(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    for (;;)
        STET_TRY(stet_await_signal(ctx, NULL, "turn", NULL));
}

static const stet_sample          choose_samples[] = { { .name = "choose", .value = "b" }, { 0 } };
static const stet_sample fail_samples[] = { { .name = "two", .code = STET_EPERMANENT }, { 0 } };
static const stet_sample turn_samples[] = { { .name = "turn", .value = "any" },
                                            { .name = "turn", .value = "third", .occurrence = 3 },
                                            { 0 } };
static const stet_handler_options all_options = { .samples = choose_samples,
                                                  .category = "things",
                                                  .description = "does all",
                                                  .default_input = "{\"n\":1}" };
static const stet_handler_options fail_options = { .samples = fail_samples, .rollback = true };
static const stet_handler_options turn_options = { .samples = turn_samples };

static const stet_handler services[] = {
    { "all", h_all, &all_options },    { "fails", h_fails, &fail_options },
    { "dies", h_dies, NULL },          { "wheel", h_wheel, &turn_options },
    { "echo", h_echo, &all_options },  { "hour", h_hour, NULL },
    { "born-dead", h_born_dead, NULL },
    { 0 },
};
static const stet_handler objects[] = { { "keeps", h_keeps, NULL }, { 0 } };

static const fixture_service *
all_services(void)
{
    static stet_entry            initial[2];
    static const fixture_service with[] = { { "t", services, false, NULL },
                                            { "o", objects, true, initial },
                                            { 0 } };

    initial[0] = (stet_entry){ "n", stet_text("initial") };
    return with;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

TEST(B14_all_operations_are_described_and_none_executed)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open_with(f, all_services());
    told         t = describe(e, "t.all", NULL);

    CHECK_INT(t.end, STET_REPLAY_RETURNED);
    CHECK_STR(t.why, "returns");
    CHECK_HAS(t.text, "work|step|choose#1 undo d=0 t=7000 a=4 c=0  b;");
    CHECK_HAS(t.text, "work|step|sql#1 tx d=0 t=2000 a=0");
    CHECK_HAS(t.text, "choice|switch|ways#1 d=0 t=0 a=0 c=0  way b;");
    CHECK_HAS(t.text, "mark|note|went %d#1");
    CHECK_HAS(t.text, "mark|now|now#1");
    CHECK_HAS(t.text, "mark|version|v#1");
    CHECK_HAS(t.text, "state|once|once#1");
    CHECK_HAS(t.text, "wait|sleep|nap#1 d=7776000000 t=0");
    CHECK_HAS(t.text, "work|step|aside#1 parallel");
    CHECK_HAS(t.text, "run|call|o.keeps#1 d=0 t=0 a=0 c=0 key=k");
    CHECK_HAS(t.text, "run|send|t.all#1 d=7200000");
    CHECK_HAS(t.text, "run|look at run|run_");
    CHECK_HAS(t.text, "wait|awakeable|approval#1 d=0 t=10800000");
    CHECK_HAS(t.text, "run|signal sent|hello#1");
    CHECK_HAS(t.text, "wait|signal wait|paid#1 d=0 t=14400000");
    CHECK_HAS(t.text, "wait|event wait|news#1 d=0 t=18000000");
    CHECK_HAS(t.text, "run|emit|done#1");
    CHECK_HAS(t.text, "wait|decision wait|manager#1");
    CHECK_HAS(t.text, "mark|rollback|rollback#1");
    CHECK_HAS(t.text, "work|step|rollback:choose#1#1"); /* its undo */
    CHECK_INT(fixture_count(e, NULL), 0);
    stet_close(e);
    fixture_end(f);
}

TEST(B14_an_object_is_described_with_its_initial_state)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open_with(f, all_services());
    told         t = describe(e, "o.keeps", STET_DESCRIBE(.key = "anna", .input = stet_text("7")));

    CHECK_INT(t.end, STET_REPLAY_RETURNED);
    CHECK_STR(t.why, "returns");
    CHECK_HAS(t.text, "state|state read|n#1 d=0 t=0 a=0 c=0  initial;");
    CHECK_HAS(t.text, "state|state set|n#1 d=0 t=0 a=0 c=0  7;");
    CHECK_HAS(t.text, "state|state cleared|m#1");
    stet_close(e);
    fixture_end(f);
}

TEST(B14_a_sample_can_be_a_failure)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open_with(f, all_services());
    told         t = describe(e, "t.fails", NULL);

    CHECK_INT(t.end, STET_REPLAY_RETURNED);
    CHECK_HAS(t.why, "STET_ESTEP");
    CHECK_HAS(t.text, "work|step|two#1 d=0 t=0 a=0 c=-21");
    CHECK_HAS(t.text, "work|step|rollback:one#1#1"); /* what would be undone then */
    stet_close(e);
    fixture_end(f);
}

TEST(B14_samples_can_be_of_one_occurrence)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open_with(f, all_services());
    told         t = describe(e, "t.wheel", STET_DESCRIBE(.operations_max = 4));

    CHECK_INT(t.end, STET_REPLAY_OPERATIONS);
    CHECK_HAS(t.text, "turn#2 d=0 t=0 a=0 c=0  any;");
    CHECK_HAS(t.text, "turn#3 d=0 t=0 a=0 c=0  third;");
    CHECK_HAS(t.text, "turn#4 d=0 t=0 a=0 c=0  any;");
    CHECK(!t.is_fine);
    stet_close(e);
    fixture_end(f);
}

TEST(B14_a_handler_that_dies_or_does_not_end_is_a_report)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open_with(f, all_services());
    told         t = describe(e, "t.dies", NULL);

    CHECK_INT(t.end, STET_REPLAY_CRASHED);
    CHECK_HAS(t.why, "crashed after step before#1: killed by signal 9");
    CHECK_INT(t.n, 1);
    CHECK_HAS(t.text, "work|step|before#1");
    t = describe(e, "t.dies", STET_DESCRIBE(.input = stet_text("loop"), .time_ms = 2000));
    CHECK_INT(t.end, STET_REPLAY_TIME);
    CHECK_HAS(t.why, "after step before#1");
    CHECK_INT(t.n, 1);
    t = describe(e, "t.born-dead", NULL);
    CHECK_INT(t.end, STET_REPLAY_CRASHED);
    CHECK_HAS(t.why, "crashed after its begin");
    CHECK_INT(t.n, 0);
    stet_close(e);
    fixture_end(f);
}

/* ---- from a run ------------------------------------------------------------------------------ */

TEST(B14_a_runs_progress_is_laid_over)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    told        t;

    fixture_up(f, all_services());
    run = fixture_start(f->engine, "t.hour", "\"mine\"", NULL);
    AWAIT(fixture_facts(f->engine, &run, "suspended", NULL) == 1);
    t = describe(f->engine, "t.hour", STET_DESCRIBE(.from = &run, .has_progress = true));
    CHECK_INT(t.end, STET_REPLAY_RETURNED);
    CHECK_HAS(t.text, "wait|sleep|cool down#1 recorded d=3600000");
    t = describe(f->engine, "t.hour", STET_DESCRIBE(.from = &run));
    CHECK_HAS(t.text, "wait|sleep|cool down#1 d=3600000");
    CHECK_CODE(stet_describe(f->engine, "t.all", STET_DESCRIBE(.from = &run), NULL, NULL, NULL),
               STET_EMISMATCH);
    fixture_end(f);
}

TEST(B14_bad_questions_are_refused)
{
    fixture               *f = fixture_begin();
    stet_engine           *e = fixture_open_with(f, all_services());
    stet_run_id            none = { "run_00000000000000000000000001" };
    stet_describe_options  odd = { .size = 3 };

    CHECK_CODE(stet_describe(e, "t.nobody", NULL, NULL, NULL, NULL), STET_ENOHANDLER);
    CHECK_CODE(stet_describe(e, NULL, NULL, NULL, NULL, NULL), STET_ENOHANDLER);
    CHECK_CODE(stet_describe(e, "t.all", &odd, NULL, NULL, NULL), STET_EINVAL);
    CHECK_CODE(stet_describe(e, "t.all", STET_DESCRIBE(.time_ms = -5), NULL, NULL, NULL),
               STET_EINVAL);
    CHECK_CODE(stet_describe(e, "t.all", STET_DESCRIBE(.from = &none), NULL, NULL, NULL),
               STET_ENOTFOUND);
    CHECK_OK(stet_describe(e, "t.all", NULL, NULL, NULL, NULL));
    stet_close(e);
    fixture_end(f);
}

/* ---- A8 -------------------------------------------------------------------------------------- */

static int
on_handler(void *arg, const stet_handler_info *info)
{
    if (strcmp(info->name, "t.all") == 0) {
        CHECK_STR(info->category, "things");
        CHECK_STR(info->description, "does all");
        CHECK_STR(info->default_input, "{\"n\":1}");
        ++*(int *)arg;
    }
    if (strcmp(info->name, "t.dies") == 0) {
        CHECK(info->category == NULL && info->description == NULL && info->default_input == NULL);
        ++*(int *)arg;
    }
    return STET_OK;
}

TEST(A8_handlers_are_listed_with_what_was_registered)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open_with(f, all_services());
    int          seen = 0;

    CHECK_OK(stet_handler_list(e, on_handler, &seen));
    CHECK_INT(seen, 2);
    stet_close(e);
    fixture_end(f);
}

/* h_echo returns what it gets, and is registered with a default input. */
TEST(A8_the_default_input_is_for_describe_only)
{
    fixture    *f = fixture_begin();
    stet_result r;
    stet_run_id run;

    fixture_up(f, all_services());
    CHECK_OK(stet_invoke(f->engine, &r, &run, "t.echo", (stet_bytes){ NULL, 0 }, NULL, 0));
    CHECK_INT(r.value.len, 0);
    stet_result_free(&r);
    fixture_end(f);
}
