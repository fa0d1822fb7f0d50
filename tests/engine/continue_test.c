/* Continue as new: a run begins anew with another input and an empty record (B22). tsan: yes */
#include "damage.h"

#include "engine/engine.h"

/* ---- handlers -------------------------------------------------------------------------------- */

static char *
text_of(stet_ctx *ctx, stet_bytes bytes)
{
    return stet_ctx_printf(ctx, "%.*s", (int)bytes.len,
                           bytes.data != NULL ? (const char *)bytes.data : "");
}

static int
body_token(stet_attempt *a, void *line)
{
    effect("%s", (const char *)line);
    return stet_attempt_return(a, stet_text(stet_attempt_token(a)));
}

/* Counts its input down to 0 by one generation each, with a step in each. */
static int
h_counts(stet_ctx *ctx, stet_bytes input)
{
    long left = fixture_number(input);

    STET_TRY(stet_step(ctx, NULL, "work", body_effect, "worked", NULL));
    if (left == 0)
        return stet_return(ctx, stet_text("counted"));
    return stet_continue(ctx, stet_text(stet_ctx_printf(ctx, "%ld", left - 1)));
}

/* The same without anything that could be recorded. */
static int
h_empty(stet_ctx *ctx, stet_bytes input)
{
    long left = fixture_number(input);

    if (left == 0)
        return stet_return(ctx, stet_text("empty"));
    return stet_continue(ctx, stet_text(stet_ctx_printf(ctx, "%ld", left - 1)));
}

/* One "go" in each generation; its input is what it has so far. "end" is the last one. */
static int
h_collects(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    char      *all;

    STET_TRY(stet_await_signal(ctx, &value, "go", NULL));
    all = stet_ctx_printf(ctx, "%s[%s]", text_of(ctx, input), text_of(ctx, value));
    if (fixture_is(value, "end"))
        return stet_return(ctx, stet_text(all));
    return stet_continue(ctx, stet_text(all));
}

/* Pauses in the first generation, waits for signals "go" and "stop" in the second. */
static int
h_relays(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes a, b, c;

    if (stet_info(ctx)->generation == 0) {
        STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
        STET_TRY(fixture_pause(ctx));
        return stet_continue(ctx, stet_text("next"));
    }
    STET_TRY(stet_await_signal(ctx, &a, "go", NULL));
    STET_TRY(stet_await_signal(ctx, &b, "stop", NULL));
    STET_TRY(stet_await_signal(ctx, &c, "go", NULL));
    return stet_return(
        ctx, stet_text(stet_ctx_printf(ctx, "%s %s%s%s", text_of(ctx, input), text_of(ctx, a),
                                       text_of(ctx, b), text_of(ctx, c))));
}

/* Adds 1 to "n" and clears "gone" in each generation. */
static int
h_deposits(stet_ctx *ctx, stet_bytes input)
{
    long       left = fixture_number(input);
    stet_bytes n;

    STET_TRY(stet_state_get(ctx, &n, "n"));
    n = stet_text(stet_ctx_printf(ctx, "%ld", fixture_number(n) + 1));
    STET_TRY(stet_state_set(ctx, "n", n));
    if (left % 2 == 0)
        STET_TRY(stet_state_set(ctx, "even", n));
    STET_TRY(stet_state_clear(ctx, "gone"));
    STET_TRY(stet_step(ctx, NULL, "work", body_effect, "worked", NULL));
    if (left == 0)
        return stet_return(ctx, n);
    return stet_continue(ctx, stet_text(stet_ctx_printf(ctx, "%ld", left - 1)));
}

static int
h_reads(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes n;

    (void)input;
    STET_TRY(stet_state_get(ctx, &n, "n"));
    return stet_return(ctx, n);
}

/* Pauses in every generation; 0 is the last one. */
static int
h_pauses_on(stet_ctx *ctx, stet_bytes input)
{
    long left = fixture_number(input);

    STET_TRY(fixture_pause(ctx));
    if (left == 0)
        return stet_return(ctx, stet_text("over"));
    return stet_continue(ctx, stet_text(stet_ctx_printf(ctx, "%ld", left - 1)));
}

static int
h_parent(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes answer;

    STET_TRY(stet_call(ctx, &answer, "t.counts", input, NULL));
    STET_TRY(stet_step(ctx, NULL, "told", body_effect, "parent told", NULL));
    return stet_return(ctx, answer);
}

/* Leaves all kinds of things behind in its first generation. */
static int
h_leaves(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future, *nap, *child;

    if (fixture_is(input, "next")) {
        STET_TRY(fixture_pause(ctx));
        return stet_return(ctx, stet_text(stet_ctx_printf(
                                    ctx, "%llu", (unsigned long long)stet_info(ctx)->generation)));
    }
    STET_TRY(stet_awakeable(ctx, &id, &future, "forgotten"));
    STET_TRY(stet_step(ctx, NULL, "hand out", body_hand_out, &id, NULL));
    STET_TRY(stet_sleep_start(ctx, &nap, "for ever", "30d"));
    STET_TRY(stet_call_start(ctx, &child, "t.pauses", stet_text("0"), NULL));
    return stet_continue(ctx, stet_text("next"));
}

static int
h_tokens(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes token;
    char       uuid[37];

    STET_TRY(stet_step(ctx, &token, "work", body_token, "worked", NULL));
    if (input.len == 0)
        return stet_continue(ctx, stet_text(stet_ctx_printf(ctx, "%s %s", text_of(ctx, token),
                                                            stet_uuid(ctx, uuid))));
    if (strstr(text_of(ctx, input), text_of(ctx, token)) != NULL ||
        strstr(text_of(ctx, input), stet_uuid(ctx, uuid)) != NULL)
        return stet_fail(ctx, STET_EPERMANENT, "the same again");
    return stet_return(ctx, stet_text("others"));
}

static atomic_int failures_left;

/* Fails now and then; in the generation whose input is "bad" for good. */
static int
h_falters(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "work", body_effect, "worked", NULL));
    if (atomic_fetch_sub(&failures_left, 1) > 0)
        return stet_fail(ctx, STET_ERETRY, "not now");
    if (fixture_is(input, "bad"))
        return stet_fail(ctx, STET_EPERMANENT, "never");
    if (fixture_is(input, "last"))
        return stet_return(ctx, stet_text("came through"));
    return stet_continue(ctx, stet_text(fixture_is(input, "to bad") ? "bad" : "last"));
}

static int
h_wrong(stet_ctx *ctx, stet_bytes input)
{
    static char big[2048];
    int         err;

    if (fixture_is(input, "other")) {
        err = stet_continue(ctx, stet_text("x"));
        return err == STET_CONTINUED ? STET_OK : err;
    }
    if (fixture_is(input, "big"))
        return stet_continue(ctx, (stet_bytes){ big, sizeof big });
    return STET_CONTINUED;
}

static int
body_continues(stet_attempt *a, void *ctx)
{
    effect("in a body %s", stet_code_name(stet_continue(ctx, stet_text("x"))));
    return stet_attempt_return(a, stet_text(""));
}

static int
h_in_body(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "wrong place", body_continues, ctx, NULL));
    return stet_return(ctx, input);
}

/* Begins anew until the test has seen enough. */
static atomic_bool is_enough;
static int
h_for_ever(stet_ctx *ctx, stet_bytes input)
{
    if (atomic_load(&is_enough))
        return stet_return(ctx, input);
    return stet_continue(ctx, input);
}

/* A future nobody waits for is in the record of its own generation. */
static int
h_unawaited(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;

    if (fixture_is(input, "next"))
        return stet_return(ctx, stet_text("done"));
    STET_TRY(stet_step_start(ctx, &future, "beside", body_effect, "beside", NULL));
    return stet_continue(ctx, stet_text("next"));
}

static int
h_cleans_up(stet_ctx *ctx, stet_bytes input)
{
    int err;

    if (fixture_is(input, "first"))
        return stet_continue(ctx, stet_text("next"));
    err = stet_sleep(ctx, "long", "1h");
    if (err == STET_ECANCELLED || err == STET_EEXPIRED) {
        STET_TRY(stet_step(ctx, NULL, "clean up", body_effect,
                           stet_ctx_printf(ctx, "cleaned up %s", stet_code_name(err)), NULL));
        return stet_continue(ctx, stet_text("again")); /* a stopped run does not begin anew */
    }
    return err;
}

static int
undo_it(stet_attempt *a, stet_bytes result)
{
    (void)a;
    effect("undid %.*s", (int)result.len, (const char *)result.data);
    return STET_OK;
}

static int
body_names(stet_attempt *a, void *name)
{
    return stet_attempt_return(a, stet_text(name));
}

/* Fails in its second generation, after it did something in both. */
static int
h_regrets(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(
        stet_step(ctx, NULL, "work", body_names, text_of(ctx, input), STET_STEP(.undo = undo_it)));
    if (fixture_is(input, "second"))
        return stet_fail(ctx, STET_EPERMANENT, "no");
    return stet_continue(ctx, stet_text("second"));
}

static gate told_door = GATE_INIT;

static int
note_it(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)snprintf(arg, 32, "%.*s", (int)input.len, (const char *)input.data);
    return stet_reply_json(reply, "%Q", (const char *)arg);
}

/* Executes in its first generation while it is told, and listens in its second. */
static int
h_told(stet_ctx *ctx, stet_bytes input)
{
    char note[32] = "-";

    if (!fixture_is(input, "next")) {
        STET_TRY(stet_step(ctx, NULL, "door", body_gate, &told_door, NULL));
        return stet_continue(ctx, stet_text("next"));
    }
    STET_TRY(stet_on_update(ctx, "note", NULL, note_it, note));
    STET_TRY(stet_await_signal(ctx, NULL, "end", NULL));
    return stet_return(ctx, stet_text(note));
}

static const stet_handler handlers[] = {
    { "counts", h_counts, NULL },       { "empty", h_empty, NULL },
    { "collects", h_collects, NULL },   { "relays", h_relays, NULL },
    { "pauses", h_pauses_on, NULL },    { "parent", h_parent, NULL },
    { "leaves", h_leaves, NULL },       { "tokens", h_tokens, NULL },
    { "falters", h_falters, NULL },     { "wrong", h_wrong, NULL },
    { "in_body", h_in_body, NULL },     { "for_ever", h_for_ever, NULL },
    { "unawaited", h_unawaited, NULL }, { "cleans_up", h_cleans_up, NULL },
    { "echo", h_echo, NULL },           { "regrets", h_regrets, NULL },
    { "told", h_told, NULL },           { 0 }
};
static const stet_handler    objects[] = { { "deposits", h_deposits, NULL },
                                           { "pauses", h_pauses_on, NULL },
                                           { "reads", h_reads, NULL },
                                           { 0 } };
static const stet_entry      initial[] = { { "gone", { "here", 4 } }, { 0 } };
static const fixture_service services[] = { { "t", handlers, false, NULL },
                                            { "o", objects, true, initial },
                                            { 0 } };

static int
keep_info(void *arg, const stet_run_info *info)
{
    *(stet_run_info *)arg = *info; /* numbers only */
    return STET_OK;
}

static stet_run_info
look(stet_engine *e, const stet_run_id *run)
{
    stet_run_info info;

    CHECK_OK(stet_run_get(e, run, keep_info, &info));
    return info;
}

static int
count_fact(void *arg, const stet_fact_info *fact)
{
    (void)fact;
    ++*(int *)arg;
    return STET_OK;
}

static int
keep_first_revision(void *arg, const stet_fact_info *fact)
{
    *(uint64_t *)arg = fact->revision;
    return STET_END;
}

static int
all_facts(stet_engine *e, const stet_run_id *run)
{
    int n = 0;

    CHECK_OK(stet_run_facts(e, run, false, count_fact, &n));
    return n;
}

/* ---- generations ----------------------------------------------------------------------------- */

TEST(B22_a_thousand_generations_are_one_run_that_does_not_grow)
{
    fixture      *f = fixture_begin();
    stet_run_id   run;
    stet_run_info info;

    fixture_up(f, services);
    run = fixture_start(
        f->engine, "t.counts", "1000",
        STET_START(.idempotency_key = "one", .labels = (const char *[]){ "a=b", NULL }));
    EXPECT_RESULT(f->engine, &run, "counted");
    CHECK_INT(effects("worked"), 1001);
    info = look(f->engine, &run);
    CHECK_INT(info.generation, 1000);
    CHECK_INT(info.attempt, 1);
    CHECK(info.began_ms >= info.created_ms);
    CHECK(all_facts(f->engine, &run) < 8);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "a=b")), 1);
    CHECK_STR(fixture_look(f->engine, &run).idempotency_key, "one");
    CHECK_STR(fixture_look(f->engine, &run).input, "0");
    fixture_end(f);
}

TEST(B22_a_handler_that_does_nothing_else_begins_anew)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.empty", "50", NULL);
    EXPECT_RESULT(f->engine, &run, "empty");
    CHECK_INT(look(f->engine, &run).generation, 50);
    CHECK(all_facts(f->engine, &run) < 8);
    fixture_end(f);
}

TEST(B22_one_that_begins_anew_for_ever_leaves_room_for_others)
{
    fixture    *f = fixture_begin();
    stet_run_id run, other;

    f->options.concurrency = 1;
    f->options.in_flight_max = 1;
    fixture_up(f, services);
    run = fixture_start(f->engine, "t.for_ever", "x", NULL);
    AWAIT(look(f->engine, &run).generation > 3);
    for (int i = 0; i < 5; i++) {
        other = fixture_start(f->engine, "t.echo", "hello", NULL);
        EXPECT_RESULT(f->engine, &other, "hello");
    }
    fixture_sound(f->engine); /* also while it does */
    atomic_store(&is_enough, true);
    EXPECT_RESULT(f->engine, &run, "x");
    fixture_end(f);
}

TEST(B22_a_worker_that_comes_later_goes_on_with_the_generation)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.pauses", "3", NULL);
    for (int i = 0; i < 4; i++) {
        AWAIT(look(f->engine, &run).generation == (uint64_t)i);
        fixture_replay(f, &run, services);
    }
    EXPECT_RESULT(f->engine, &run, "over");
    fixture_end(f);
}

TEST(B22_those_who_wait_elsewhere_get_the_last_answer)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  run;
    stet_result  result;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.counts", "60", NULL);
    other = fixture_open(f);
    CHECK_OK(stet_wait(other, &result, &run, fixture_patience_ms()));
    CHECK(fixture_is(result.value, "counted"));
    stet_result_free(&result);
    stet_close(other);
    fixture_end(f);
}

TEST(B22_a_parent_is_told_once_by_the_last_generation)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.parent", "7", NULL);
    EXPECT_RESULT(f->engine, &run, "counted");
    CHECK_INT(effects("worked"), 8);
    CHECK_INT(effects("parent told"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "child ended", NULL), 1);
    fixture_end(f);
}

TEST(B22_steps_and_randomness_of_another_generation_are_others)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.tokens", "", NULL);
    EXPECT_RESULT(f->engine, &run, "others");
    fixture_end(f);
}

TEST(B22_a_body_nobody_waits_for_is_recorded_before_its_generation_ends)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.unawaited", "", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(effects("beside"), 1);
    fixture_end(f);
}

/* ---- signals --------------------------------------------------------------------------------- */

TEST(B22_signals_are_delivered_once_and_in_order_whichever_generation_they_meet)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    char        want[512] = "";

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.collects", "", STET_START(.delay = "20ms"));
    for (int i = 0; i < 40; i++) {
        char value[8];

        (void)snprintf(value, sizeof value, i == 39 ? "end" : "%d", i);
        (void)snprintf(want + strlen(want), sizeof want - strlen(want), "[%s]", value);
        CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(value), NULL));
    }
    EXPECT_RESULT(f->engine, &run, want);
    CHECK_INT(look(f->engine, &run).generation, 39);
    fixture_end(f);
}

TEST(B22_signals_nobody_took_wait_for_the_next_generation)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up(f, services);
    run = fixture_start(f->engine, "t.relays", "", NULL);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("0"), NULL));
    fixture_paused(f->engine, &run);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"), NULL));
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("b"), NULL));
    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, &run).generation == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_sound(f->engine);
    fixture_down(f);
    fixture_up(f, services);
    CHECK_OK(stet_signal(f->engine, &run, "stop", stet_text("!"), NULL));
    EXPECT_RESULT(f->engine, &run, "next a!b");
    fixture_end(f);
}

TEST(B22_a_signal_that_is_sent_again_in_the_next_generation_is_still_known)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.collects", "", NULL);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"),
                         STET_SIGNAL_OPTIONS(.idempotency_key = "first")));
    AWAIT(look(f->engine, &run).generation == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"),
                         STET_SIGNAL_OPTIONS(.idempotency_key = "first")));
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("end"),
                         STET_SIGNAL_OPTIONS(.idempotency_key = "last")));
    EXPECT_RESULT(f->engine, &run, "[a][end]");
    CHECK_INT(look(f->engine, &run).generation, 1);
    fixture_end(f);
}

static int
keep_known(void *arg, const stet_fact_info *fact)
{
    char *known = arg;

    if (strcmp(fact->kind, "signal") == 0)
        CHECK(fact->name != NULL);
    if (strcmp(fact->kind, "known key") == 0)
        (void)snprintf(known, 128, "%s, %s", fact->name, fact->text);
    return STET_OK;
}

TEST(B22_F8_a_key_that_a_generation_knows_of_the_one_before_is_no_signal_without_a_name)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    char        known[128] = "";

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.collects", "", NULL);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"),
                         STET_SIGNAL_OPTIONS(.idempotency_key = "first")));
    AWAIT(look(f->engine, &run).generation == 1);
    CHECK_OK(stet_run_facts(f->engine, &run, true, keep_known, known));
    CHECK_STR(known, "first, of a signal to the generation before");
    fixture_end(f);
}

/* ---- objects --------------------------------------------------------------------------------- */

TEST(B22_an_object_keeps_its_state_and_its_key_through_generations)
{
    fixture    *f = fixture_begin();
    stet_run_id run, next;

    fixture_up(f, services);
    run = fixture_start(f->engine, "o.deposits", "20", STET_START(.key = "k"));
    next = fixture_start(f->engine, "o.reads", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "21");
    EXPECT_RESULT(f->engine, &next, "21"); /* nobody came between */
    CHECK_INT(effects("worked"), 21);
    fixture_sound(f->engine);
    fixture_down(f);
    fixture_up(f, services);
    run = fixture_start(f->engine, "o.deposits", "1", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "23");
    fixture_end(f);
}

TEST(B22_a_key_is_held_from_one_generation_to_the_next)
{
    fixture    *f = fixture_begin();
    stet_run_id run, next;

    fixture_up(f, services);
    run = fixture_start(f->engine, "o.pauses", "1", STET_START(.key = "k"));
    fixture_paused(f->engine, &run);
    next = fixture_start(f->engine, "o.reads", "", STET_START(.key = "k"));
    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, &run).generation == 1);
    AWAIT(fixture_facts(f->engine, &run, "awakeable", "go on") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_CODE(stet_result_get(f->engine, NULL, &next), STET_EOPEN);
    fixture_sound(f->engine);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "over");
    EXPECT_RESULT(f->engine, &next, "");
    fixture_end(f);
}

TEST(B22_state_outlives_a_run_of_many_generations_that_is_removed)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.sweep_ms = 20;
    fixture_up(f, services);
    run = fixture_start(f->engine, "o.deposits", "4", STET_START(.key = "k", .retention = "1ms"));
    AWAIT(fixture_is_gone(f->engine, &run));
    fixture_sound(f->engine);
    run = fixture_start(f->engine, "o.reads", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "5");
    fixture_end(f);
}

/* ---- what is left behind --------------------------------------------------------------------- */

TEST(B22_what_a_generation_left_open_goes_with_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    char        id[STET_ID_TEXT_MAX];

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.leaves", "", NULL);
    AWAIT(look(f->engine, &run).generation == 1);
    (void)snprintf(id, sizeof id, "%s", handed_out);
    CHECK_CODE(stet_resolve(f->engine, id, stet_text("late")), STET_ENOTFOUND);
    fixture_paused(f->engine, &run);
    fixture_sound(f->engine); /* no timer, no value of it is left */
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "1");
    fixture_down(f);
    f->engine = fixture_open(f);
    fixture_end(f);
}

TEST(B22_a_child_key_belongs_to_a_generation)
{
    fixture    *f = fixture_begin();
    stet_run_id run, child, again, next;
    bool        existed;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.pauses", "1", NULL);
    fixture_paused(f->engine, &run);
    child = fixture_start(f->engine, "t.echo", "1",
                          STET_START(.parent = &run, .parent_step = "s", .child_key = "c"));
    again = fixture_start(f->engine, "t.echo", "1",
                          STET_START(.parent = &run, .parent_step = "s", .child_key = "c"));
    CHECK_STR(again.text, child.text);
    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, &run).generation == 1);
    AWAIT(fixture_facts(f->engine, &run, "awakeable", "go on") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    next = fixture_start(
        f->engine, "t.echo", "2",
        STET_START(.parent = &run, .parent_step = "s", .child_key = "c", .existed = &existed));
    CHECK(!existed);
    EXPECT_RESULT(f->engine, &child, "1");
    EXPECT_RESULT(f->engine, &next, "2");
    fixture_sound(f->engine);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "over");
    fixture_end(f);
}

/* The run that has the key now is not the one that is removed. */
TEST(B22_B16_a_child_key_stays_when_the_child_of_an_older_generation_is_removed)
{
    fixture    *f = fixture_begin();
    stet_run_id run, child, next, again;

    f->options.sweep_ms = 20;
    fixture_up(f, services);
    run = fixture_start(f->engine, "t.pauses", "1", NULL);
    fixture_paused(f->engine, &run);
    child = fixture_start(f->engine, "t.echo", "1",
                          STET_START(.parent = &run, .parent_step = "s", .child_key = "c",
                                     .delay = "300ms", .retention = "1ms"));
    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, &run).generation == 1);
    AWAIT(fixture_facts(f->engine, &run, "awakeable", "go on") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    next = fixture_start(f->engine, "t.echo", "2",
                         STET_START(.parent = &run, .parent_step = "s", .child_key = "c"));
    AWAIT(fixture_is_gone(f->engine, &child));
    again = fixture_start(f->engine, "t.echo", "2",
                          STET_START(.parent = &run, .parent_step = "s", .child_key = "c"));
    CHECK_STR(again.text, next.text);
    fixture_sound(f->engine);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "over");
    fixture_end(f);
}

/* The key is its parent's, who may start it again for as long as it goes on. */
TEST(B16_C10_a_child_key_outlives_its_child)
{
    fixture    *f = fixture_begin();
    stet_run_id run, child, again;
    bool        existed = false;

    f->options.sweep_ms = 20;
    fixture_up(f, services);
    run = fixture_start(f->engine, "t.pauses", "0", NULL);
    fixture_paused(f->engine, &run);
    child = fixture_start(
        f->engine, "t.echo", "1",
        STET_START(.parent = &run, .parent_step = "s", .child_key = "c", .retention = "1ms"));
    AWAIT(fixture_is_gone(f->engine, &child));
    again = fixture_start(
        f->engine, "t.echo", "1",
        STET_START(.parent = &run, .parent_step = "s", .child_key = "c", .existed = &existed));
    CHECK_STR(again.text, child.text);
    CHECK(existed);
    fixture_sound(f->engine);
    fixture_end(f);
}

/* ---- failures and stops ---------------------------------------------------------------------- */

TEST(B22_attempts_are_counted_anew)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&failures_left, 2);
    fixture_up(f, services);
    run = fixture_start(f->engine, "t.falters", "", STET_START(.retry = { .attempts = 3 }));
    EXPECT_RESULT(f->engine, &run, "came through");
    CHECK_INT(look(f->engine, &run).attempt, 1);
    CHECK_INT(look(f->engine, &run).attempts_max, 3);
    CHECK_INT(effects("worked"), 2);
    fixture_end(f);
}

TEST(B22_a_retry_of_a_failed_one_begins_with_its_last_generation)
{
    fixture    *f = fixture_begin();
    stet_run_id run, retried;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.falters", "to bad", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_INT(look(f->engine, &run).generation, 1);
    CHECK_OK(stet_dlq_retry(f->engine, &retried, &run));
    EXPECT_ANSWER(f->engine, &retried, STET_ERUN);
    CHECK_STR(fixture_look(f->engine, &retried).input, "bad");
    CHECK_INT(look(f->engine, &retried).generation, 1); /* as its handler knows it */
    CHECK_INT(effects("worked"), 2);                    /* the retry inherits the step */
    fixture_end(f);
}

TEST(B22_a_cancel_reaches_whichever_generation_there_is)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.cleans_up", "first", NULL);
    AWAIT(look(f->engine, &run).generation == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "me", "enough"));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    effects_await("cleaned up STET_ECANCELLED", 1);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(look(f->engine, &run).generation, 1);
    fixture_end(f);
}

TEST(B22_a_deadline_is_that_of_the_whole_run)
{
    fixture    *f = fixture_begin();
    int64_t     timeout_ms = 150;
    stet_run_id run;

    fixture_up(f, services);
    do { /* until there was time for a second generation */
        timeout_ms *= 2;
        run =
            fixture_start(f->engine, "t.cleans_up", "first", STET_START(.timeout_ms = timeout_ms));
        EXPECT_ANSWER(f->engine, &run, STET_EEXPIRED);
        fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
    } while (fixture_facts(f->engine, &run, "sleep", "long") == 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "clean up"), 1);
    CHECK(effects("cleaned up STET_EEXPIRED") >= 1);
    CHECK_INT(look(f->engine, &run).generation, 1);
    fixture_end(f);
}

/* A cancel that meets a run which does nothing but begin anew. */
TEST(B22_a_run_that_only_begins_anew_can_be_cancelled)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.for_ever", "x", NULL);
    AWAIT(look(f->engine, &run).generation > 3);
    AWAIT(stet_cancel(f->engine, &run, NULL, NULL) == STET_OK);
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    fixture_end(f);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static void
expect_wrong(fixture *f, const char *input, int code, const char *part)
{
    stet_run_id run = fixture_start(f->engine, "t.wrong", input, NULL);
    stet_result result = EXPECT_END(f->engine, &run, STET_ERUN);

    CHECK_CODE(result.code, code);
    CHECK_HAS(result.error, part);
    CHECK_INT(look(f->engine, &run).generation, 0);
    stet_result_free(&result);
}

TEST(B22_wrong_calls_say_what_is_wrong)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.payload_bytes_max = 1024;
    fixture_up(f, services);
    expect_wrong(f, "other", STET_EHANDLER,
                 "called stet_continue() and returned 0 instead of what that returned");
    expect_wrong(f, "without", STET_EHANDLER, "did not call stet_continue()");
    expect_wrong(f, "big", STET_ETOOBIG, "an input of 2048 bytes");
    run = fixture_start(f->engine, "t.in_body", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("in a body STET_EUSAGE"), 1);
    fixture_end(f);
}

/* ---- operators, records, damage -------------------------------------------------------------- */

/* In its second generation, waiting for the test. */
static stet_run_id
second_generation(fixture *f)
{
    stet_run_id run = fixture_start(f->engine, "t.pauses", "1", NULL);

    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, &run).generation == 1);
    AWAIT(fixture_facts(f->engine, &run, "awakeable", "go on") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    return run;
}

TEST(B22_only_what_the_last_generation_did_is_undone)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.regrets", "first", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_INT(effects("undid second"), 1);
    CHECK_INT(effects("undid first"), 0);
    fixture_end(f);
}

TEST(B22_a_paused_run_begins_anew_when_it_is_resumed)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "t.pauses", "1", NULL);
    fixture_paused(f->engine, &run);
    CHECK_OK(stet_run_pause(f->engine, &run, "me", "wait"));
    fixture_go_on(f->engine, &run);
    fixture_down(f);
    fixture_up(f, services);
    fixture_sound(f->engine);
    CHECK_INT(look(f->engine, &run).generation, 0);
    CHECK_OK(stet_run_resume(f->engine, &run, "me", NULL));
    AWAIT(look(f->engine, &run).generation == 1);
    AWAIT(fixture_facts(f->engine, &run, "awakeable", "go on") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "over");
    fixture_end(f);
}

/* What an operator said of a step was under way when its generation ended. */
TEST(B22_a_rewind_of_another_generation_does_nothing)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_op     ops[2] = { { .kind = STET_OP_INBOX },
                           { .kind = STET_OP_RUN_WAKE, .status = STET_STATUS_PENDING } };
    stet__fact  rewind = { .kind = STET__FACT_REWIND, .time_ms = 1, .number = 2 };
    stet__buf   b;

    fixture_up(f, services);
    run = second_generation(f);
    stet__buf_init(&b, &stet__platform_real()->alloc);
    stet__fact_encode(&b, &rewind);
    ops[0].run = ops[1].run = damage_id(&run);
    ops[0].data = stet__buf_bytes(&b);
    damage_do(f, ops, 2);
    stet__buf_free(&b);
    AWAIT(fixture_facts(f->engine, &run, "rewound", NULL) == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_INT(fixture_facts(f->engine, &run, "awakeable", "go on"), 1);
    /* One of its own does. */
    CHECK_OK(stet_run_rewind(f->engine, &run, "tell the test", "me", "again"));
    AWAIT(fixture_facts(f->engine, &run, "step", "tell the test") == 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "over");
    fixture_end(f);
}

static int
keep_report(void *arg, const stet_replay_report *report)
{
    *(stet_replay_report *)arg = *report; /* numbers only */
    return STET_OK;
}

static stet_replay_report
replay_of(stet_engine *e, const stet_run_id *run)
{
    stet_replay_report report;
    stet_bytes         bundle;

    CHECK_OK(stet_run_export(e, &bundle, run));
    CHECK_OK(stet_replay(e, bundle, NULL, keep_report, &report));
    stet_free((void *)(uintptr_t)bundle.data);
    return report;
}

TEST(B22_the_record_of_a_generation_is_checked_exported_and_replayed)
{
    fixture           *f = fixture_begin();
    stet_check_summary summary;
    stet_run_id        run;

    fixture_up(f, services);
    run = second_generation(f);
    CHECK_INT(replay_of(f->engine, &run).end, STET_REPLAY_RECORD);
    CHECK_OK(stet_check(f->engine, &summary, NULL, NULL, NULL));
    CHECK_INT(summary.checked, 1);
    CHECK_INT(summary.stuck, 0);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "over");
    CHECK_INT(replay_of(f->engine, &run).end, STET_REPLAY_RETURNED);
    CHECK_OK(stet_describe(f->engine, "t.counts", STET_DESCRIBE(.input = stet_text("3")), NULL,
                           NULL, NULL));
    fixture_end(f);
}

static int
keep_rule(void *arg, const stet_finding *finding)
{
    (void)snprintf(arg, 256, "%s: %s", finding->rule, finding->text);
    return STET_OK;
}

/* Facts that begin in the middle, and not with a generation. */
TEST(B22_a_journal_that_lost_its_beginning_is_damage)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    char        found[256] = "";

    if (!f->is_sqlite)
        test_skip("a file is needed");
    fixture_up(f, services);
    run = second_generation(f);
    fixture_down(f);
    damage_sql(f,
               "DELETE FROM facts WHERE run=?1 AND rev=(SELECT min(rev) FROM facts WHERE run=?1)",
               &run, (stet_bytes){ NULL, 0 });
    f->engine = fixture_open(f);
    CHECK_OK(stet_verify(f->engine, NULL, keep_rule, found));
    CHECK_HAS(found, "facts: ");
    CHECK_HAS(found, "is missing");
    damage_end(f);
}

/* The fact that would tell that a generation begins there: it is named, not one long gone. */
TEST(B22_the_damaged_first_fact_of_a_generation_is_named)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    uint64_t    since = 0;
    char        named[64];

    if (!f->is_sqlite)
        test_skip("a file is needed");
    fixture_up(f, services);
    run = second_generation(f);
    CHECK_INT(stet_run_facts(f->engine, &run, false, keep_first_revision, &since), STET_END);
    CHECK(since > 1);
    fixture_down(f);
    damage_sql(f,
               "UPDATE facts SET data=x'00' || data WHERE run=?1 AND rev=(SELECT min(rev) FROM "
               "facts WHERE run=?1)",
               &run, (stet_bytes){ NULL, 0 });
    f->engine = fixture_open(f);
    (void)snprintf(named, sizeof named, "fact %llu is not readable", (unsigned long long)since);
    CHECK_HAS(fixture_why(f->engine, &run).text, named);
    damage_end(f);
}

typedef struct readers {
    stet_engine *engine;
    stet_run_id  run;
} readers;

static void
read_on(void *arg, int i)
{
    readers *r = arg;
    uint64_t last = 0;

    (void)i;
    for (int n = 0; n < 100; n++) {
        stet_run_info info = look(r->engine, &r->run);

        CHECK(info.generation >= last);
        CHECK_CODE(info.code, 0);
        last = info.generation;
        CHECK(all_facts(r->engine, &r->run) < 12);
    }
}

/* Whoever looks while it begins anew sees one generation or the other, and no damage. */
TEST(B22_readers_meet_no_half_of_a_generation)
{
    fixture *f = fixture_begin();
    readers  r;

    atomic_store(&is_enough, false);
    fixture_up(f, services);
    r.engine = f->engine;
    r.run = fixture_start(f->engine, "t.for_ever", "x", NULL);
    fixture_race(3, read_on, &r);
    atomic_store(&is_enough, true);
    EXPECT_RESULT(f->engine, &r.run, "x");
    fixture_end(f);
}

/* One asks for an update, the other lets the generation end that has not come to decide it. */
static void
update_or_open(void *arg, int i)
{
    readers   *r = arg;
    stet_bytes reply;

    if (i == 0) {
        AWAIT(look(r->engine, &r->run).inbox > 0);
        gate_open(&told_door);
        return;
    }
    CHECK_OK(stet_update(r->engine, &reply, &r->run, "note", stet_text("noted"), NULL));
    CHECK(fixture_is(reply, "\"noted\""));
    stet_free((void *)(uintptr_t)reply.data);
}

TEST(B22_an_update_nobody_decided_is_for_the_next_generation)
{
    fixture *f = fixture_begin();
    readers  r;

    fixture_up(f, services);
    r.engine = f->engine;
    r.run = fixture_start(f->engine, "t.told", "", NULL);
    gate_await(&told_door, 1);
    fixture_race(2, update_or_open, &r);
    CHECK_INT(look(f->engine, &r.run).generation, 1);
    CHECK_OK(stet_signal(f->engine, &r.run, "end", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &r.run, "noted");
    fixture_end(f);
}
