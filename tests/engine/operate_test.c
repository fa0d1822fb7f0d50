/* What operators do to runs and handlers (C8, I12). tsan: yes */
#include "engine/engine.h"
#include "damage.h"

static char tokens[8][64]; /* of "charge", one an execution */
static atomic_int n_tokens;

static int
b_charge(stet_attempt *a, void *arg)
{
    int at = atomic_fetch_add(&n_tokens, 1);

    (void)arg;
    (void)snprintf(tokens[at % 8], sizeof tokens[0], "%s", stet_attempt_token(a));
    effect("charge");
    return stet_attempt_return(a, stet_text("paid"));
}

static int
b_closed(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("closed");
    return stet_attempt_fail(a, STET_ERETRY, "the bank is closed");
}

static int
b_never(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("never");
    return stet_attempt_fail(a, STET_EPERMANENT, "no such account");
}

/* reserve, charge, then a wait; what the steps gave is its result. */
static int
h_order(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes one, two, word;

    (void)input;
    STET_TRY(stet_step(ctx, &one, "reserve", body_effect, "reserve", NULL));
    STET_TRY(stet_step(ctx, &two, "charge", b_charge, NULL, NULL));
    STET_TRY(stet_await_signal(ctx, &word, "ship", NULL));
    return stet_return(ctx, stet_text(stet_ctx_printf(
                                ctx, "%.*s %.*s %.*s", (int)one.len, (const char *)one.data,
                                (int)two.len, (const char *)two.data, (int)word.len,
                                (const char *)word.data)));
}

static int
h_tries(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes got;

    (void)input;
    STET_TRY(stet_step(ctx, &got, "call bank", b_closed, NULL,
                       STET_STEP(.attempts = 1000, .first_ms = 3600000)));
    return stet_return(ctx, got);
}

/* The run fails passingly, and is tried again in an hour. */
static int
h_later(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_ERETRY, "not today");
}

static const stet_handler_options in_an_hour = {
    .retry = { .attempts = 3, .first_ms = 3600000, .max_ms = 3600000 }
};

static gate door = GATE_INIT;

static int
h_gate(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "pass", body_gate, &door, NULL));
    STET_TRY(stet_step(ctx, NULL, "behind", body_effect, "behind", NULL));
    return stet_return(ctx, input);
}

/* … and has a door to pass when it is executed again. */
static int
h_later_gate(stet_ctx *ctx, stet_bytes input)
{
    static atomic_int n;

    if (atomic_fetch_add(&n, 1) == 0)
        return h_later(ctx, input);
    return h_gate(ctx, input);
}

/* A step with a limit for the wait, then a signal. */
static int
h_limit(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;

    STET_TRY(stet_step_start(ctx, &future, "pass", body_gate, &door, NULL));
    STET_TRY(stet_await_for(ctx, NULL, future, "1h"));
    STET_TRY(stet_await_signal(ctx, NULL, "ship", NULL));
    return stet_return(ctx, input);
}

/* Takes two signals, one after the other. */
static int
h_two(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes one, two, three;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "begin", body_effect, "begin", NULL));
    STET_TRY(stet_await_signal(ctx, &one, "word", NULL));
    STET_TRY(stet_await_signal(ctx, &two, "word", NULL));
    STET_TRY(stet_step(ctx, NULL, "middle", body_effect, "middle", NULL));
    STET_TRY(stet_await_signal(ctx, &three, "word", NULL));
    return stet_return(ctx, stet_text(stet_ctx_printf(
                                ctx, "%.*s%.*s%.*s", (int)one.len, (const char *)one.data,
                                (int)two.len, (const char *)two.data, (int)three.len,
                                (const char *)three.data)));
}

static int
h_calls(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes got;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, "before", NULL));
    STET_TRY(stet_call(ctx, &got, "t.nap", stet_text(""), NULL));
    return stet_return(ctx, got);
}

static int
undo_refuses(stet_attempt *a, stet_bytes result)
{
    (void)result;
    effect("undo charge");
    return stet_attempt_fail(a, STET_EPERMANENT, "no refunds");
}

static int
undo_well(stet_attempt *a, stet_bytes result)
{
    (void)a;
    effect("undo %.*s", (int)result.len, (const char *)result.data);
    return STET_OK;
}

static int
h_undone(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "reserve", body_effect, "reserve", STET_STEP(.undo = undo_well)));
    STET_TRY(stet_step(ctx, NULL, "charge", b_charge, NULL, STET_STEP(.undo = undo_refuses)));
    STET_TRY(stet_rollback(ctx));
    return stet_fail(ctx, STET_EPERMANENT, "given up");
}

/* Rolls back when its time is up, in vain. */
static int
h_late(stet_ctx *ctx, stet_bytes input)
{
    int rc;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", b_charge, NULL, STET_STEP(.undo = undo_refuses)));
    if ((rc = stet_await_signal(ctx, NULL, "never", NULL)) == STET_EEXPIRED)
        STET_TRY(stet_rollback(ctx));
    return rc;
}

static int
h_sleeps_and_asks(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "first", body_effect, "first", NULL));
    STET_TRY(stet_sleep(ctx, "nap", "1ms"));
    STET_TRY(stet_step(ctx, NULL, "second", body_effect, "second", NULL));
    STET_TRY(stet_approve(ctx, NULL, "boss", stet_text("")));
    STET_TRY(stet_await_event(ctx, NULL, "news", "1h"));
    return stet_return(ctx, input);
}

/* Undoes what it did, and waits. */
static int
h_undoes(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "reserve", body_effect, "reserve", STET_STEP(.undo = undo_well)));
    STET_TRY(stet_step(ctx, NULL, "pack", body_effect, "pack", STET_STEP(.undo = undo_well)));
    STET_TRY(stet_rollback(ctx));
    STET_TRY(stet_await_signal(ctx, NULL, "ship", NULL));
    return stet_return(ctx, input);
}

/* Tidies up when it is stopped, and waits for a word. */
static int
h_tidies(stet_ctx *ctx, stet_bytes input)
{
    int rc = stet_await_signal(ctx, NULL, "ship", NULL);

    (void)input;
    if (rc != STET_ECANCELLED)
        return rc;
    STET_TRY(stet_step(ctx, NULL, "tidy", body_effect, "tidy", NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "bye", NULL));
    STET_TRY(stet_step(ctx, NULL, "left", body_effect, "left", NULL));
    return rc;
}

/* A step that fails for good, then a wait; what the step gave is its result. */
static int
h_given(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes got;
    int        rc = stet_step(ctx, &got, "call bank", b_never, NULL, NULL);

    (void)input;
    STET_TRY(stet_await_signal(ctx, NULL, "ship", NULL));
    return rc == STET_OK ? stet_return(ctx, got) : rc;
}

/* Reads, does something, and writes one more. */
static int
h_add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "n"));
    STET_TRY(stet_step(ctx, NULL, "between", body_effect, "between", NULL));
    return stet_state_set(ctx, "n",
                          stet_text(stet_ctx_printf(
                              ctx, "%ld", (value.data != NULL ? fixture_number(value) : 0) + 1)));
}

static const stet_handler handlers[] = {
    { "order", h_order, NULL },     { "tries", h_tries, NULL },     { "gate", h_gate, NULL },
    { "two", h_two, NULL },         { "calls", h_calls, NULL },     { "nap", h_hour, NULL },
    { "undone", h_undone, NULL },   { "short", h_short_nap, NULL }, { "quick", h_quick, NULL },
    { "marks", h_sleeps_and_asks, NULL }, { "fails", h_no_account, NULL },
    { "limit", h_limit, NULL },     { "later", h_later, &in_an_hour },
    { "later_gate", h_later_gate, &in_an_hour }, { "undoes", h_undoes, NULL },
    { "tidies", h_tidies, NULL },   { "given", h_given, NULL }, { "late", h_late, NULL }, { 0 }
};
static const stet_handler objects[] = { { "nap", h_hour, NULL },
                                        { "quick", h_echo, NULL },
                                        { "pass", h_gate, NULL },
                                        { "add", h_add, NULL },
                                        { 0 } };
static const fixture_service services[] = { { "t", handlers, false, NULL },
                                            { "o", objects, true, NULL },
                                            { 0 } };

static fixture *
begin(void)
{
    fixture *f = fixture_begin();

    door = (gate)GATE_INIT;
    fixture_up(f, services);
    return f;
}

static stet_run_id
suspended(fixture *f, const char *handler)
{
    stet_run_id run = fixture_start(f->engine, handler, "", NULL);

    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    return run;
}

/* ---- pause and resume ------------------------------------------------------------------------ */

TEST(C8_a_paused_run_keeps_what_comes_and_goes_on_when_it_is_resumed)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order");

    CHECK_OK(stet_run_pause(f->engine, &run, "the operator", "stock is being counted"));
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_PAUSED);
    CHECK_HAS(fixture_why(f->engine, &run).text, "paused by the operator");
    CHECK_HAS(fixture_why(f->engine, &run).text, "stock is being counted");
    CHECK_STR(fixture_why(f->engine, &run).kind, "paused");
    CHECK_CODE(stet_run_pause(f->engine, &run, "another", NULL), STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "paused by the operator at 2");
    CHECK_OK(stet_signal(f->engine, &run, "ship", stet_text("now"), NULL));
    CHECK_INT((int)fixture_sound(f->engine), 1);
    fixture_down(f);
    fixture_up(f, services);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_PAUSED);
    CHECK_OK(stet_run_resume(f->engine, &run, "the operator", "done"));
    EXPECT_RESULT(f->engine, &run, "reserve paid now");
    CHECK_INT(effects("reserve"), 1);
    CHECK_INT(effects("charge"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "paused", NULL), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "resumed", NULL), 1);
    CHECK_CODE(stet_run_pause(f->engine, &run, NULL, NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "fork");
    fixture_end(f);
}

TEST(C8_a_timer_that_fires_while_a_run_is_paused_waits_for_it)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.short"), other;

    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    other = fixture_start(f->engine, "t.short", "", NULL); /* its timer comes later */
    EXPECT_RESULT(f->engine, &other, "woke");
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_PAUSED);
    CHECK_INT((int)fixture_sound(f->engine), 2);
    CHECK_OK(stet_run_resume(f->engine, &run, NULL, NULL));
    EXPECT_RESULT(f->engine, &run, "woke");
    fixture_end(f);
}

TEST(C8_a_running_one_is_paused_at_its_next_recorded_point)
{
    fixture    *f = begin();
    stet_run_id run = fixture_start(f->engine, "t.gate", "x", NULL);

    gate_await(&door, 1);
    CHECK_OK(stet_run_pause(f->engine, &run, "me", NULL));
    CHECK_CODE(stet_run_pause(f->engine, &run, "you", NULL), STET_ESETTLED);
    gate_open(&door);
    fixture_await_status(f->engine, &run, STET_STATUS_PAUSED);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "pass"), 1);
    CHECK_INT(effects("behind"), 0);
    CHECK_INT((int)fixture_sound(f->engine), 1);
    CHECK_OK(stet_run_resume(f->engine, &run, "me", NULL));
    EXPECT_RESULT(f->engine, &run, "x");
    CHECK_INT(effects("behind"), 1);
    CHECK_INT(door.arrived, 1);
    fixture_end(f);
}

TEST(C8_a_pause_is_lifted_by_a_cancel_and_by_the_deadline)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order"), late;

    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    late = fixture_start(f->engine, "t.order", "", STET_START(.timeout = "2s"));
    fixture_await_status(f->engine, &late, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_pause(f->engine, &late, NULL, NULL));
    EXPECT_ANSWER(f->engine, &late, STET_EEXPIRED);
    AWAIT(fixture_look(f->engine, &late).status == STET_STATUS_EXPIRED);
    fixture_end(f);
}

static bool
is_in_lane(stet_engine *e, const stet_run_id *run)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    stet_id      id;
    bool         is;

    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run->text));
    stet__arena_init(&arena, &e->p->alloc);
    CHECK_OK(stet__load_row(e, id, &arena, &row, &extra));
    is = row.lane != NULL;
    stet__arena_free(&arena);
    return is;
}

TEST(C8_a_run_that_is_paused_before_it_enters_its_lane_is_sound_there_and_waits_for_its_turn)
{
    fixture    *f = fixture_begin();
    stet_run_id first, run;

    fixture_up(f, services);
    first = fixture_start(f->engine, "o.nap", "", STET_START(.key = "k"));
    fixture_await_status(f->engine, &first, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "o.quick", "x", STET_START(.key = "k", .delay = "100ms"));
    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    AWAIT(is_in_lane(f->engine, &run));
    (void)fixture_sound(f->engine);
    CHECK_OK(stet_cancel(f->engine, &first, NULL, NULL));
    EXPECT_ANSWER(f->engine, &first, STET_ECANCELLED);
    fixture_await_status(f->engine, &run, STET_STATUS_PAUSED);
    (void)fixture_sound(f->engine);
    CHECK_OK(stet_run_resume(f->engine, &run, NULL, NULL));
    EXPECT_RESULT(f->engine, &run, "x");
    fixture_end(f);
}

/* Its row goes on saying that it is paused; it is cancelled when its turn comes. */
TEST(C8_I2_a_run_that_is_paused_in_its_lane_and_stopped_by_its_caller_is_sound_and_ends)
{
    fixture    *f = fixture_begin();
    stet_run_id first, run, last;

    fixture_up(f, services);
    first = fixture_start(f->engine, "o.nap", "", STET_START(.key = "k"));
    fixture_await_status(f->engine, &first, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "o.quick", "x", STET_START(.key = "k"));
    last = fixture_start(f->engine, "o.quick", "y", STET_START(.key = "k"));
    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    damage_stop_called(f->engine, &run);
    CHECK_INT((int)fixture_sound(f->engine), 3);
    CHECK_STR(fixture_why(f->engine, &run).kind, "lane");
    CHECK_OK(stet_cancel(f->engine, &first, NULL, NULL));
    EXPECT_ANSWER(f->engine, &first, STET_ECANCELLED);
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    EXPECT_RESULT(f->engine, &last, "y");
    fixture_end(f);
}

TEST(C8_runs_that_wait_in_a_lane_or_for_their_time_are_paused_and_resumed)
{
    fixture    *f = begin();
    stet_run_id first = fixture_start(f->engine, "o.nap", "", STET_START(.key = "k")), second,
                third, delayed, later;

    fixture_await_status(f->engine, &first, STET_STATUS_SUSPENDED);
    second = fixture_start(f->engine, "o.quick", "2", STET_START(.key = "k"));
    third = fixture_start(f->engine, "o.quick", "3", STET_START(.key = "k"));
    delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "2s"));
    later = fixture_start(f->engine, "o.quick", "5", STET_START(.key = "other", .delay = "2s"));
    CHECK_OK(stet_run_pause(f->engine, &second, NULL, NULL));
    CHECK_OK(stet_run_pause(f->engine, &delayed, NULL, NULL));
    CHECK_OK(stet_run_pause(f->engine, &later, NULL, NULL));
    CHECK_INT((int)fixture_sound(f->engine), 5);
    CHECK_OK(stet_cancel(f->engine, &first, NULL, NULL));
    AWAIT(fixture_look(f->engine, &first).status == STET_STATUS_CANCELLED);
    /* It is first now, and keeps its key. */
    fixture_await_status(f->engine, &second, STET_STATUS_PAUSED);
    AWAIT(fixture_look(f->engine, &second).worker[0] == '\0');
    CHECK_INT(fixture_look(f->engine, &third).status, STET_STATUS_PENDING);
    CHECK_OK(stet_run_resume(f->engine, &second, NULL, NULL));
    EXPECT_RESULT(f->engine, &second, "2");
    EXPECT_RESULT(f->engine, &third, "3");
    CHECK_OK(stet_run_resume(f->engine, &delayed, NULL, NULL));
    CHECK_OK(stet_run_resume(f->engine, &later, NULL, NULL));
    EXPECT_RESULT(f->engine, &delayed, "");
    EXPECT_RESULT(f->engine, &later, "5");
    fixture_end(f);
}

/* ---- skip and edit --------------------------------------------------------------------------- */

TEST(C8_a_step_that_fails_and_fails_is_skipped_with_a_result)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.tries");

    CHECK_OK(
        stet_run_skip(f->engine, &run, "call bank", stet_text("by hand"), "me", "phoned them"));
    EXPECT_RESULT(f->engine, &run, "by hand");
    CHECK_INT(effects("closed"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step skipped", "call bank"), 1);
    fixture_end(f);
}

TEST(C8_a_step_is_skipped_before_the_run_comes_to_it_and_not_when_it_has_a_result)
{
    fixture    *f = begin();
    stet_run_id run = fixture_start(f->engine, "t.gate", "x", NULL);

    gate_await(&door, 1);
    CHECK_OK(stet_run_skip(f->engine, &run, "behind", stet_text(""), NULL, NULL));
    CHECK_CODE(stet_run_skip(f->engine, &run, "behind#1", stet_text(""), NULL, NULL),
               STET_ESETTLED);
    gate_open(&door);
    EXPECT_RESULT(f->engine, &run, "x");
    CHECK_INT(effects("behind"), 0);
    CHECK_INT(door.arrived, 1);
    run = suspended(f, "t.order");
    CHECK_CODE(stet_run_skip(f->engine, &run, "charge#1", stet_text(""), NULL, NULL),
               STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "stet edit");
    /* Who names no number means the one that is there, not one that may never come. */
    CHECK_CODE(stet_run_skip(f->engine, &run, "charge", stet_text(""), NULL, NULL), STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "charge#2");
    CHECK_INT(fixture_facts(f->engine, &run, "step skipped", NULL), 0);
    CHECK_OK(stet_run_skip(f->engine, &run, "charge#2", stet_text(""), NULL, NULL));
    fixture_end(f);
}

/* A wait cannot be skipped; a step that has its name can, if it is said that one is meant. */
TEST(C8_only_steps_are_skipped)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order");

    CHECK_CODE(stet_run_skip(f->engine, &run, "ship", stet_text("x"), NULL, NULL), STET_EKIND);
    CHECK_HAS(stet_last_error(), "is no step but a signal wait");
    CHECK_INT(fixture_facts(f->engine, &run, "step skipped", NULL), 0);
    CHECK_OK(stet_run_skip(f->engine, &run, "ship#1", stet_text("x"), NULL, NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_INT(fixture_facts(f->engine, &run, "step skipped", NULL), 1);
    fixture_end(f);
}

TEST(C8_a_recorded_result_is_replaced)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order"), again;

    CHECK_CODE(stet_run_edit(f->engine, &run, "refund", stet_text("x"), NULL, NULL),
               STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "its steps are reserve#1, charge#1");
    CHECK_CODE(stet_run_rewind(f->engine, &run, "refund", NULL, NULL), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "it has reserve#1, charge#1, signal wait ship#1");
    CHECK_CODE(stet_run_edit(f->engine, &run, "ship", stet_text("x"), NULL, NULL), STET_EKIND);
    CHECK_OK(stet_run_edit(f->engine, &run, "charge", stet_text("waived"), "me", "a present"));
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "ship", stet_text("now"), NULL));
    EXPECT_RESULT(f->engine, &run, "reserve waived now");
    CHECK_INT(effects("charge"), 1);
    /* A fork inherits what was replaced. */
    CHECK_OK(stet_run_fork(f->engine, &again, &run, "ship", "me", "again"));
    EXPECT_RESULT(f->engine, &again, "reserve waived now");
    CHECK_INT(effects("charge"), 1);
    fixture_end(f);
}

static gate told_door = GATE_INIT, tidy_door = GATE_INIT;

static int
h_told_at_two(stet_ctx *ctx, stet_bytes input)
{
    int rc;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "one", body_gate, &told_door, NULL));
    if ((rc = stet_step(ctx, NULL, "two", body_effect, (void *)"two", NULL)) != STET_OK) {
        STET_TRY(stet_step(ctx, NULL, "tidy", body_gate, &tidy_door, NULL));
        return rc;
    }
    return stet_step(ctx, NULL, "three", body_effect, (void *)"three", NULL);
}

/* It was told once: with a result there the handler would never learn of its cancel. */
static void
check_told_at_two(bool by_deadline)
{
    static const stet_handler told[] = { { "told", h_told_at_two, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, told);
    run = fixture_start(f->engine, "t.told", "",
                        STET_START(.timeout = by_deadline ? "100ms" : NULL));
    gate_await(&told_door, 1);
    if (!by_deadline)
        CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLING);
    gate_open(&told_door);
    gate_await(&tidy_door, 1);
    AWAIT(fixture_facts(f->engine, &run, "step", "two") == 1);
    CHECK_CODE(stet_run_edit(f->engine, &run, "two", stet_text("given"), NULL, NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "told to stop");
    CHECK_OK(stet_run_edit(f->engine, &run, "one", stet_text("given"), NULL, NULL));
    gate_open(&tidy_door);
    fixture_await_status(f->engine, &run,
                         by_deadline ? STET_STATUS_EXPIRED : STET_STATUS_CANCELLED);
    CHECK_INT(effects("two"), 0);
    fixture_end(f);
}

TEST(C8_C4_where_a_run_was_told_of_its_cancel_there_is_no_result_to_be_replaced)
{
    check_told_at_two(false);
}

TEST(C8_C5_where_a_run_was_told_of_its_deadline_there_is_no_result_to_be_replaced)
{
    check_told_at_two(true);
}

TEST(C8_a_retry_of_a_retry_has_a_given_result_once)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order"), again;

    CHECK_OK(stet_run_skip(f->engine, &run, "later", stet_text("waived"), NULL, NULL));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL));
        AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
        CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
        fixture_await_status(f->engine, &again, STET_STATUS_SUSPENDED);
        CHECK_INT(fixture_facts(f->engine, &again, "step", "later"), 1);
        run = again;
    }
    CHECK_INT(effects("charge"), 1);
    fixture_end(f);
}

/* ---- rewind ---------------------------------------------------------------------------------- */

TEST(C8_a_run_goes_back_to_a_step_and_does_it_again_with_another_token)
{
    fixture    *f = begin();
    stet_run_id run;

    atomic_store(&n_tokens, 0);
    run = suspended(f, "t.order");
    CHECK_CODE(stet_run_rewind(f->engine, &run, "charge#2", NULL, NULL), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "reserve#1, charge#1");
    CHECK_OK(stet_run_rewind(f->engine, &run, "charge", "me", "the wrong card"));
    effects_await("charge", 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_INT(effects("reserve"), 1);
    CHECK(strcmp(tokens[0], tokens[1]) != 0);
    CHECK_INT((int)fixture_sound(f->engine), 1);
    CHECK_OK(stet_run_rewind(f->engine, &run, NULL, "me", "from the beginning"));
    effects_await("charge", 3);
    CHECK_INT(effects("reserve"), 2);
    CHECK(strcmp(tokens[1], tokens[2]) != 0 && strcmp(tokens[0], tokens[2]) != 0);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_up(f, services);
    CHECK_OK(stet_signal(f->engine, &run, "ship", stet_text("now"), NULL));
    EXPECT_RESULT(f->engine, &run, "reserve paid now");
    CHECK_INT(effects("charge"), 3);
    CHECK_INT(fixture_facts(f->engine, &run, "rewound", NULL), 2);
    fixture_end(f);
}

TEST(C8_signals_that_were_consumed_behind_the_step_are_there_again_in_their_order)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.two");

    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("a"), NULL));
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("b"), NULL));
    effects_await("middle", 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_rewind(f->engine, &run, "word#2", NULL, NULL));
    effects_await("middle", 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_rewind(f->engine, &run, "begin", NULL, NULL));
    effects_await("middle", 3);
    CHECK_INT(effects("begin"), 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("c"), NULL));
    EXPECT_RESULT(f->engine, &run, "abc");
    fixture_end(f);
}

TEST(C8_a_rewind_cancels_the_run_it_waited_for_and_takes_its_marks_and_timers_with_it)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.calls"), marks = suspended(f, "t.marks");

    CHECK_INT(fixture_count(f->engine, STET_FILTER(.handler = "t.nap")), 1);
    CHECK_OK(stet_run_rewind(f->engine, &run, "before", NULL, NULL));
    effects_await("before", 2);
    AWAIT(fixture_count(f->engine, STET_FILTER(.handler = "t.nap",
                                               .statuses = 1u << STET_STATUS_CANCELLED)) == 1);
    AWAIT(fixture_count(f->engine, STET_FILTER(.handler = "t.nap",
                                               .statuses = 1u << STET_STATUS_SUSPENDED)) == 1);
    AWAIT(strstr(fixture_look(f->engine, &marks).reason, "boss") != NULL);
    CHECK_OK(stet_run_approve(f->engine, &marks, "b", NULL));
    AWAIT(strstr(fixture_look(f->engine, &marks).reason, "news") != NULL);
    CHECK_OK(stet_run_pause(f->engine, &marks, NULL, NULL));
    CHECK_OK(stet_run_rewind(f->engine, &marks, "second", NULL, NULL));
    CHECK_INT(effects("second"), 1);
    CHECK_OK(stet_run_resume(f->engine, &marks, NULL, NULL));
    effects_await("second", 2);
    AWAIT(strstr(fixture_look(f->engine, &marks).reason, "boss") != NULL);
    fixture_await_status(f->engine, &marks, STET_STATUS_SUSPENDED);
    CHECK_INT(effects("first"), 1);
    CHECK_INT((int)fixture_sound(f->engine), 4);
    CHECK_OK(stet_run_reject(f->engine, &marks, "b", NULL));
    AWAIT(fixture_look(f->engine, &marks).status == STET_STATUS_FAILED);
    fixture_end(f);
}

/* The wait for a step was recorded before anything of the step was, and what it came to later. */
TEST(C8_a_wait_that_a_forgotten_step_ended_is_waited_again)
{
    fixture    *f = begin();
    stet_run_id run = fixture_start(f->engine, "t.limit", "", NULL);

    gate_await(&door, 1);
    AWAIT(fixture_facts(f->engine, &run, "await", NULL) == 1);
    gate_open(&door);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_rewind(f->engine, &run, "pass", NULL, NULL));
    gate_await(&door, 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_INT((int)fixture_sound(f->engine), 1);
    CHECK_OK(stet_signal(f->engine, &run, "ship", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(door.arrived, 2);
    fixture_end(f);
}

/* Nobody wakes it for that: it would begin early, and beside whoever has its key. */
TEST(C8_a_run_that_waits_for_its_time_does_so_whatever_is_done_to_its_steps)
{
    fixture    *f = begin();
    stet_run_id first = fixture_start(f->engine, "o.nap", "", STET_START(.key = "k")), later;

    fixture_await_status(f->engine, &first, STET_STATUS_SUSPENDED);
    later = fixture_start(f->engine, "o.pass", "", STET_START(.key = "k", .delay = "1h"));
    CHECK_OK(stet_run_skip(f->engine, &later, "behind", stet_text(""), NULL, NULL));
    CHECK_OK(stet_run_rewind(f->engine, &later, NULL, NULL, NULL));
    first = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &first, "");
    CHECK_INT((int)fixture_sound(f->engine), 3);
    CHECK_INT(fixture_look(f->engine, &later).status, STET_STATUS_PENDING);
    CHECK_INT(fixture_facts(f->engine, &later, "claimed", NULL), 0);
    fixture_end(f);
}

/* ---- fail ------------------------------------------------------------------------------------ */

/* A worker may be gone before it writes anything else of it: verify asked for what it had not
 * written. Found by the simulator. */
TEST(C8_a_run_that_took_a_rewind_is_listed_with_its_first_attempt)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.later_gate", "x", NULL);
    AWAIT(fixture_look(f->engine, &run).attempt == 2);
    CHECK_OK(stet_run_rewind(f->engine, &run, NULL, NULL, NULL));
    gate_await(&door, 1);
    CHECK_INT(fixture_look(f->engine, &run).attempt, 1);
    gate_open(&door);
    EXPECT_RESULT(f->engine, &run, "x");
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

/* It was told once and for all: rewound, it waited where it had been stopped. */
TEST(C8_C4_a_run_that_is_rewound_to_before_it_was_told_to_stop_is_told_again_and_else_not)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.tidies");

    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    effects_await("tidy", 1);
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "bye") == 1);
    CHECK_OK(stet_run_rewind(f->engine, &run, "ship", NULL, NULL));
    effects_await("tidy", 2);
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "bye") == 2);
    CHECK_OK(stet_run_rewind(f->engine, &run, "bye", NULL, NULL));
    CHECK_OK(stet_signal(f->engine, &run, "bye", stet_text(""), NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_INT(effects("tidy"), 2);
    CHECK_INT(effects("left"), 1);
    fixture_end(f);
}

/* What was undone counted as done, and was undone once more. */
TEST(C8_B11_a_run_is_not_rewound_to_where_what_it_has_undone_would_count_as_done)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.undoes");

    CHECK_CODE(stet_run_rewind(f->engine, &run, "pack", NULL, NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "has undone reserve#1");
    CHECK_CODE(stet_run_rewind(f->engine, &run, "rollback:pack#1", NULL, NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "rollback:pack#1 of ");
    CHECK_HAS(stet_last_error(), "is an undo; rewind it to pack#1, or to what came before that");
    CHECK_CODE(stet_run_rewind(f->engine, &run, "rollback:pack", NULL, NULL), STET_ENOTFOUND);
    CHECK(strstr(stet_last_error(), "#1#1") == NULL);
    CHECK(strstr(stet_last_error(), ", rollback:") == NULL); /* nobody can go back to one */
    CHECK_CODE(stet_run_edit(f->engine, &run, "rollback:pick#1", stet_text("1"), NULL, NULL),
               STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), ", rollback:pack#1");
    CHECK(strstr(stet_last_error(), "#1#1") == NULL);
    CHECK_CODE(stet_run_skip(f->engine, &run, "rollback:pack#1", stet_text(""), NULL, NULL),
               STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "rollback:pack#1 of ");
    CHECK_HAS(stet_last_error(), "is done: there is nothing to skip");
    CHECK_OK(stet_run_rewind(f->engine, &run, "ship", NULL, NULL));
    CHECK_OK(stet_run_rewind(f->engine, &run, "reserve", NULL, NULL));
    effects_await("undo reserve", 2);
    CHECK_OK(stet_signal(f->engine, &run, "ship", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("reserve"), 2);
    CHECK_INT(effects("pack"), 2);
    CHECK_INT(effects("undo pack"), 2);
    CHECK_INT(effects("undo reserve"), 2);
    fixture_end(f);
}

/* Nobody came to take the rewind: its attempts are those it had. Found by the simulator. */
TEST(C8_a_run_that_is_failed_before_it_takes_a_rewind_has_the_attempts_it_had)
{
    fixture    *f = begin();
    stet_run_id run = fixture_start(f->engine, "t.later", "", NULL);

    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    CHECK_OK(stet_run_rewind(f->engine, &run, NULL, NULL, NULL));
    CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_INT((int)fixture_sound(f->engine), 1);
    fixture_end(f);
}

/* Nobody came to take the rewind: what it had called behind the step goes with it all the same.
 * Found by the simulator. */
TEST(C8_a_run_that_is_failed_before_it_takes_a_rewind_cancels_what_it_had_called)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.calls");

    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    CHECK_OK(stet_run_rewind(f->engine, &run, "before", NULL, NULL));
    CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_INT(effects("before"), 1);
    AWAIT(fixture_count(f->engine, STET_FILTER(.handler = "t.nap",
                                               .statuses = 1u << STET_STATUS_CANCELLED)) == 1);
    CHECK_INT((int)fixture_sound(f->engine), 2);
    fixture_end(f);
}

TEST(C8_a_run_is_failed_by_hand_whoever_has_it)
{
    fixture    *f = begin();
    stet_run_id waits = suspended(f, "t.calls"),
                runs = fixture_start(f->engine, "t.gate", "", NULL),
                delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    stet_result result;

    gate_await(&door, 1);
    CHECK_OK(stet_run_fail(f->engine, &waits, "me", "the customer is gone"));
    result = EXPECT_END(f->engine, &waits, STET_ERUN);
    CHECK_INT(result.code, STET_EFORCED);
    CHECK_STR(result.error, "the customer is gone");
    stet_result_free(&result);
    AWAIT(fixture_count(f->engine, STET_FILTER(.handler = "t.nap",
                                               .statuses = 1u << STET_STATUS_CANCELLED)) == 1);
    CHECK_OK(stet_run_fail(f->engine, &delayed, NULL, NULL));
    EXPECT_ANSWER(f->engine, &delayed, STET_ERUN);
    CHECK_OK(stet_run_fail(f->engine, &runs, NULL, NULL));
    CHECK_CODE(stet_run_pause(f->engine, &runs, NULL, NULL), STET_EENDED);
    gate_open(&door);
    EXPECT_ANSWER(f->engine, &runs, STET_ERUN);
    CHECK_INT(effects("behind"), 0);
    CHECK_CODE(stet_run_fail(f->engine, &runs, NULL, NULL), STET_EENDED);
    CHECK_OK(stet_dlq_retry(f->engine, &delayed, &runs));
    EXPECT_RESULT(f->engine, &delayed, "");
    CHECK_INT(door.arrived, 1); /* what was recorded is inherited */
    fixture_end(f);
}

static int
on_run(void *arg, const stet_run_info *info)
{
    stet_run_id *run = arg;

    (void)snprintf(run->text, sizeof run->text, "%s", info->id);
    return STET_OK;
}

TEST(C8_a_run_is_failed_without_any_worker_and_its_parent_is_told)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.calls"), child = { "" };

    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    CHECK_OK(stet_run_list(f->engine, STET_FILTER(.handler = "t.nap"), on_run, &child));
    CHECK_OK(stet_run_fail(f->engine, &child, "me", "enough"));
    EXPECT_ANSWER(f->engine, &child, STET_ERUN);
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    fixture_up(f, services);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_HAS(fixture_look(f->engine, &run).error, "enough");
    fixture_end(f);
}

static stet_store_ops dying_ops;
static int (*dying_commit)(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);
static atomic_int dying_commits; /* that are made before it is dead */

/* As after the death of its process: nothing more is written. */
static int
commit_dying(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    return atomic_fetch_sub(&dying_commits, 1) > 0 ? dying_commit(s, units, n, outcomes)
                                                   : stet__fail(STET_EIO, "the process is dead");
}

/* Who fails a run is asked nothing else, and may die as soon as that is durable. */
TEST(C8_what_a_run_had_called_is_cancelled_with_it_though_who_failed_it_dies)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.calls"), child = { "" };

    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    CHECK_OK(stet_run_list(f->engine, STET_FILTER(.handler = "t.nap"), on_run, &child));
    dying_ops = *f->engine->store->ops;
    dying_commit = dying_ops.commit;
    dying_ops.commit = commit_dying;
    f->engine->store->ops = &dying_ops;
    atomic_store(&dying_commits, 1);
    CHECK_OK(stet_run_fail(f->engine, &run, "me", "the customer is gone"));
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    fixture_up(f, services);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    EXPECT_ANSWER(f->engine, &child, STET_ECANCELLED);
    fixture_end(f);
}

/* ---- a rollback that failed ------------------------------------------------------------------ */

TEST(C8_an_undo_that_fails_is_skipped_and_the_rollback_goes_on)
{
    fixture    *f = begin();
    stet_run_id run = fixture_start(f->engine, "t.undone", "", NULL);

    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    CHECK_CODE(stet_run_pause(f->engine, &run, NULL, NULL), STET_ESTATE);
    CHECK_CODE(stet_run_rewind(f->engine, &run, "charge", NULL, NULL), STET_ESTATE);
    CHECK_CODE(stet_run_skip(f->engine, &run, "rollback:nosuch#1", stet_text(""), NULL, NULL),
               STET_ESTATE);
    CHECK_HAS(stet_last_error(), "rollback:charge#1");
    CHECK_OK(stet_run_skip(f->engine, &run, "rollback:charge#1", stet_text(""), "me", "refunded"));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_INT(effects("undo charge"), 1);
    CHECK_INT(effects("undo reserve"), 1);
    run = fixture_start(f->engine, "t.undone", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    CHECK_OK(stet_run_fail(f->engine, &run, "me", "leave it"));
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_FAILED);
    CHECK_INT(effects("undo reserve"), 1);
    fixture_end(f);
}

/* Also if somebody asked for another try of it, and nobody came to take that. Found by the
 * simulator. */
TEST(C8_B11_a_run_whose_time_was_up_and_whose_rollback_failed_is_ended_by_hand_as_expired)
{
    fixture    *f = begin();
    stet_run_id runs[2];

    for (int i = 0; i < 2; i++) {
        runs[i] = fixture_start(f->engine, "t.late", "", STET_START(.timeout = "300ms"));
        fixture_await_status(f->engine, &runs[i], STET_STATUS_COMPENSATION_FAILED);
    }
    CHECK_OK(stet_run_fail(f->engine, &runs[0], "me", "leave it"));
    CHECK_INT(fixture_look(f->engine, &runs[0]).status, STET_STATUS_EXPIRED);
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    CHECK_OK(stet_rollback_retry(f->engine, &runs[1], "me", NULL));
    CHECK_OK(stet_run_fail(f->engine, &runs[1], "me", "leave it"));
    CHECK_INT(fixture_look(f->engine, &runs[1]).status, STET_STATUS_EXPIRED);
    CHECK_INT((int)fixture_sound(f->engine), 2);
    fixture_down(f);
    fixture_end(f);
}

/* Whoever skips an undo says that it is done; a retry does again what was undone. */
TEST(C8_B11_a_retry_does_again_what_was_undone_by_hand_and_can_undo_it)
{
    fixture    *f = begin();
    stet_run_id run = fixture_start(f->engine, "t.undone", "", NULL), again, fork;

    fixture_await_status(f->engine, &run, STET_STATUS_COMPENSATION_FAILED);
    CHECK_OK(stet_run_skip(f->engine, &run, "rollback:charge#1", stet_text(""), "me", "refunded"));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_FAILED);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    fixture_await_status(f->engine, &again, STET_STATUS_COMPENSATION_FAILED);
    CHECK_INT(effects("charge"), 2);
    CHECK_INT(effects("undo charge"), 2);
    CHECK_INT(effects("reserve"), 2);
    CHECK_INT(effects("undo reserve"), 1);
    /* A fork has the steps before its own, unless they are undone. */
    CHECK_OK(stet_run_fork(f->engine, &fork, &run, "rollback:charge#1", NULL, NULL));
    fixture_await_status(f->engine, &fork, STET_STATUS_COMPENSATION_FAILED);
    CHECK_INT(effects("charge"), 3);
    fixture_end(f);
}

TEST(C8_a_step_that_was_skipped_is_not_undone)
{
    fixture    *f = begin();
    stet_run_id run;

    CHECK_OK(stet_handler_pause(f->engine, "t.undone", NULL, NULL));
    run = fixture_start(f->engine, "t.undone", "", NULL);
    CHECK_OK(stet_run_skip(f->engine, &run, "charge", stet_text(""), NULL, NULL));
    CHECK_OK(stet_handler_resume(f->engine, "t.undone", NULL, NULL));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_INT(effects("charge"), 0);
    CHECK_INT(effects("undo charge"), 0);
    CHECK_INT(effects("undo reserve"), 1);
    fixture_end(f);
}

/* ---- fork ------------------------------------------------------------------------------------ */

TEST(I12_a_fork_inherits_what_was_recorded_before_the_step)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.two"), fork, all;

    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("a"), NULL));
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("b"), NULL));
    effects_await("middle", 1);
    /* From a run that is still open. */
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_fork(f->engine, &fork, &run, "middle", "me", "what if"));
    effects_await("middle", 2);
    fixture_await_status(f->engine, &fork, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("c"), NULL));
    CHECK_OK(stet_signal(f->engine, &fork, "word", stet_text("C"), NULL));
    EXPECT_RESULT(f->engine, &run, "abc");
    EXPECT_RESULT(f->engine, &fork, "abC");
    CHECK_INT(effects("begin"), 1);
    /* From one that completed; what it consumed behind the step is there for the fork. */
    CHECK_OK(stet_run_fork(f->engine, &all, &run, NULL, NULL, NULL));
    EXPECT_RESULT(f->engine, &all, "abc");
    CHECK_INT(effects("begin"), 2);
    CHECK_CODE(stet_run_fork(f->engine, NULL, &run, "end", NULL, NULL), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(),
              "it has begin#1, signal wait word#1, signal wait word#2, middle#1");
    fixture_end(f);
}

static const stet_store_ops *moving_real;
static stet_store_ops        moving_ops;
static stet_engine          *moving_worker;
static stet_run_id           moving_run;
static atomic_int            moving_times;

/* What is to be forked goes on between two reads of it. */
static int
moving_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    int err = moving_real->inbox(s, run, from, limit, fn, arg);

    if (atomic_fetch_sub(&moving_times, 1) > 0) {
        int charges = effects("charge");

        CHECK_OK(stet_run_rewind(moving_worker, &moving_run, "charge", NULL, NULL));
        effects_await("charge", charges + 1);
        fixture_await_status(moving_worker, &moving_run, STET_STATUS_SUSPENDED);
    }
    return err;
}

/* Found by the simulator. */
TEST(I12_a_fork_of_a_run_that_goes_on_meanwhile_inherits_each_step_once)
{
    fixture     *f = begin();
    stet_run_id  run = suspended(f, "t.order"), fork;
    stet_engine *client = fixture_open(f);

    moving_worker = f->engine;
    moving_run = run;
    moving_real = client->store->ops;
    moving_ops = *moving_real;
    moving_ops.inbox = moving_inbox;
    client->store->ops = &moving_ops;
    atomic_store(&moving_times, 1);
    CHECK_OK(stet_run_fork(client, &fork, &run, "ship", NULL, NULL));
    fixture_await_status(f->engine, &fork, STET_STATUS_SUSPENDED);
    CHECK_INT(fixture_facts(f->engine, &fork, "step", "reserve"), 1);
    CHECK_INT(fixture_facts(f->engine, &fork, "step", "charge"), 1);
    CHECK_INT(effects("charge"), 2);
    /* Nor is a part of what comes meanwhile shown. */
    atomic_store(&moving_times, 1);
    CHECK_INT(fixture_facts(client, &run, "step", "charge"), 2);
    CHECK_INT(fixture_facts(client, &run, "step", "charge"), 3);
    stet_close(client);
    fixture_end(f);
}

/* It goes the way of the other as far as that was told; what is sent to it comes behind. */
TEST(I12_a_fork_is_given_the_signals_that_were_consumed_behind_its_step)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.two"), open, middle, second;

    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("a"), NULL));
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("b"), NULL));
    effects_await("middle", 1);
    CHECK_OK(stet_run_fork(f->engine, &open, &run, "word#1", NULL, NULL));
    CHECK_OK(stet_signal(f->engine, &open, "word", stet_text("X"), NULL));
    EXPECT_RESULT(f->engine, &open, "abX");
    CHECK_INT(effects("middle"), 2);
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("c"), NULL));
    EXPECT_RESULT(f->engine, &run, "abc"); /* it kept its own, and did not see the fork's */
    CHECK_OK(stet_run_fork(f->engine, &middle, &run, "middle", NULL, NULL));
    EXPECT_RESULT(f->engine, &middle, "abc");
    CHECK_OK(stet_run_fork(f->engine, &second, &run, "word#2", NULL, NULL));
    EXPECT_RESULT(f->engine, &second, "abc");
    CHECK_INT(effects("middle"), 4);
    CHECK_INT(effects("begin"), 1);
    fixture_end(f);
}

/* ---- retry ----------------------------------------------------------------------------------- */

typedef struct start_said {
    char text[64];
} start_said;

static int
keep_start(void *arg, const stet_fact_info *fact)
{
    start_said *s = arg;

    if (strcmp(fact->kind, "started") == 0)
        (void)snprintf(s->text, sizeof s->text, "%s", fact->text != NULL ? fact->text : "nobody");
    return STET_OK;
}

static const char *
started_by(stet_engine *e, const stet_run_id *run, start_said *s)
{
    CHECK_OK(stet_run_facts(e, run, false, keep_start, s));
    return s->text;
}

/* Each says its own, and none what was said of the run it goes back to. */
TEST(C8_a_retry_is_recorded_with_who_and_why)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order"), fork, again, third;
    start_said  s;

    CHECK_OK(stet_run_fork(f->engine, &fork, &run, "charge", "me", "what if"));
    CHECK_STR(started_by(f->engine, &fork, &s), "by me: what if");
    CHECK_OK(stet_run_fail(f->engine, &fork, NULL, NULL));
    fixture_await_status(f->engine, &fork, STET_STATUS_FAILED);
    CHECK_OK(stet_run_retry(f->engine, &again, &fork, "ann", "mended"));
    CHECK_STR(started_by(f->engine, &again, &s), "by ann: mended");
    CHECK_OK(stet_run_fail(f->engine, &again, NULL, NULL));
    fixture_await_status(f->engine, &again, STET_STATUS_FAILED);
    CHECK_OK(stet_dlq_retry(f->engine, &third, &again));
    CHECK_STR(started_by(f->engine, &third, &s), "nobody");
    CHECK_CODE(stet_run_retry(f->engine, NULL, &again, "ann", "twice"), STET_EEXISTS);
    /* It waits for its signal, so it is open for sure. */
    CHECK_CODE(stet_run_retry(f->engine, NULL, &third, "ann", "too soon"), STET_EOPEN);
    fixture_end(f);
}

/* ---- handlers -------------------------------------------------------------------------------- */

typedef struct listed {
    int  n;
    char text[256];
} listed;

static int
on_paused(void *arg, const stet_paused *p)
{
    listed *l = arg;

    l->n++;
    (void)snprintf(l->text, sizeof l->text, "%s by %s: %s", p->what, p->by != NULL ? p->by : "-",
                   p->why != NULL ? p->why : "-");
    CHECK(p->since_ms > 0);
    return STET_OK;
}

static listed
paused(fixture *f)
{
    listed l = { 0 };

    CHECK_OK(stet_paused_list(f->engine, on_paused, &l));
    return l;
}

TEST(I12_a_fork_has_no_result_that_was_given_behind_its_step)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.two"), fork;

    CHECK_OK(stet_run_skip(f->engine, &run, "later", stet_text("waived"), NULL, NULL));
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("a"), NULL));
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("b"), NULL));
    effects_await("middle", 1);
    CHECK_OK(stet_run_fork(f->engine, &fork, &run, "word#1", NULL, NULL));
    effects_await("middle", 2);
    CHECK_INT(fixture_facts(f->engine, &fork, "step", "later"), 0);
    fixture_end(f);
}

/* It was inherited as what had failed: tried again. */
TEST(I12_C8_a_retry_and_a_fork_inherit_the_result_that_was_given_to_a_step_that_had_failed)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.given"), again[2];

    CHECK_OK(stet_run_edit(f->engine, &run, "call bank", stet_text("waived"), NULL, NULL));
    CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_run_fork(f->engine, &again[0], &run, "ship", NULL, NULL));
    CHECK_OK(stet_dlq_retry(f->engine, &again[1], &run));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(stet_signal(f->engine, &again[i], "ship", stet_text(""), NULL));
        EXPECT_RESULT(f->engine, &again[i], "waived");
    }
    CHECK_INT(effects("never"), 1);
    fixture_end(f);
}

/* What was done before a rewind, and given behind it, is inherited as it was given. */
TEST(I12_a_retry_has_a_step_once_that_was_done_forgotten_and_skipped)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order"), again;

    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    CHECK_OK(stet_run_rewind(f->engine, &run, "charge", NULL, NULL));
    CHECK_OK(stet_run_skip(f->engine, &run, "charge", stet_text("waived"), NULL, NULL));
    CHECK_OK(stet_run_resume(f->engine, &run, NULL, NULL));
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL));
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    CHECK_OK(stet_signal(f->engine, &again, "ship", stet_text("now"), NULL));
    EXPECT_RESULT(f->engine, &again, "reserve waived now");
    CHECK_INT(fixture_facts(f->engine, &again, "step", "charge"), 1);
    CHECK_INT(effects("charge"), 1);
    fixture_end(f);
}

/* What the other wrote behind the step is not the fork's, nor is what it read for that. */
TEST(I12_a_fork_from_between_a_read_and_its_write_reads_anew)
{
    fixture    *f = begin();
    stet_run_id run, fork;
    stet_bytes  value;

    for (int i = 0; i < 2; i++) {
        run = fixture_start(f->engine, "o.add", "", STET_START(.key = "k"));
        EXPECT_RESULT(f->engine, &run, "");
    }
    CHECK_OK(stet_run_fork(f->engine, &fork, &run, "between", NULL, NULL));
    EXPECT_RESULT(f->engine, &fork, "");
    CHECK_OK(stet_state_read(f->engine, &value, "o", "k", "n"));
    CHECK_INT(fixture_number(value), 3);
    stet_free((void *)(uintptr_t)value.data);
    fixture_end(f);
}

TEST(C8_no_run_of_a_paused_handler_or_service_begins_or_goes_on)
{
    fixture    *f = begin();
    stet_run_id waits = suspended(f, "t.order"), quick, object;

    CHECK_OK(stet_handler_pause(f->engine, "t.quick", "me", "a bad release"));
    CHECK_CODE(stet_handler_pause(f->engine, "t.quick", "you", NULL), STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "paused by me at 2");
    CHECK_STR(paused(f).text, "t.quick by me: a bad release");
    quick = fixture_start(f->engine, "t.quick", "x", NULL);
    object = fixture_start(f->engine, "o.quick", "y", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &object, "y");
    CHECK_STR(fixture_why(f->engine, &quick).kind, "paused");
    CHECK_HAS(fixture_why(f->engine, &quick).help, "resume --handler t.quick");
    CHECK_OK(stet_handler_pause(f->engine, "t", NULL, NULL));
    CHECK_INT(paused(f).n, 2);
    CHECK_OK(stet_signal(f->engine, &waits, "ship", stet_text("now"), NULL));
    fixture_down(f);
    fixture_up(f, services); /* one that comes later knows it, too */
    object = fixture_start(f->engine, "o.quick", "z", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &object, "z");
    CHECK_INT(fixture_look(f->engine, &waits).status, STET_STATUS_PENDING);
    CHECK_HAS(fixture_why(f->engine, &waits).help, "resume --service t");
    CHECK_OK(stet_handler_resume(f->engine, "t", "me", NULL));
    EXPECT_RESULT(f->engine, &waits, "reserve paid now");
    CHECK_INT(effects("quick"), 0);
    CHECK_OK(stet_handler_resume(f->engine, "t.quick", "me", NULL));
    EXPECT_RESULT(f->engine, &quick, "x");
    CHECK_CODE(stet_handler_resume(f->engine, "t.quick", "me", NULL), STET_ENOTFOUND);
    CHECK_INT(paused(f).n, 0);
    fixture_end(f);
}

TEST(C8_who_resumes_what_is_not_paused_is_told_what_is)
{
    fixture *f = begin();

    CHECK_CODE(stet_handler_resume(f->engine, "t.quick", NULL, NULL), STET_ENOTFOUND);
    CHECK_STR(stet_last_error(), "t.quick is not paused, and nothing else is");
    CHECK_OK(stet_handler_pause(f->engine, "t.quick", NULL, NULL));
    CHECK_CODE(stet_handler_resume(f->engine, "t.qiuck", NULL, NULL), STET_ENOTFOUND);
    CHECK_STR(stet_last_error(), "t.qiuck is not paused; did you mean t.quick?");
    CHECK_CODE(stet_handler_resume(f->engine, "elsewhere", NULL, NULL), STET_ENOTFOUND);
    CHECK_STR(stet_last_error(), "elsewhere is not paused; `stet pause` lists what is");
    CHECK_CODE(stet_handler_resume(f->engine, "t", NULL, NULL), STET_ENOTFOUND);
    CHECK_STR(stet_last_error(), "t is not paused; `stet pause` lists what is");
    CHECK_OK(stet_handler_pause(f->engine, "o", NULL, NULL));
    CHECK_CODE(stet_handler_resume(f->engine, "o.quick", NULL, NULL), STET_ENOTFOUND);
    CHECK_STR(stet_last_error(),
              "o.quick is not paused itself, but its service: `stet resume --service o`");
    CHECK_INT(paused(f).n, 2);
    fixture_end(f);
}

TEST(C8_another_worker_learns_of_a_paused_handler_with_its_next_sweep)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  run;

    f->options.sweep_ms = 20;
    fixture_up(f, services);
    f->options.roles = STET_ROLE_CLIENT;
    other = fixture_open(f);
    CHECK_OK(stet_handler_pause(other, "t.quick", NULL, NULL));
    AWAIT(!stet__is_served(f->engine, "t.quick"));
    run = fixture_start(other, "t.quick", "x", NULL);
    CHECK_OK(stet_handler_resume(other, "t.quick", NULL, NULL));
    EXPECT_RESULT(f->engine, &run, "x");
    stet_close(other);
    fixture_end(f);
}

/* Also when another one was first. */
TEST(C8_a_worker_that_was_told_that_a_handler_is_paused_or_not_acts_on_it)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  run;

    f->options.sweep_ms = 3600000;
    fixture_up(f, services);
    f->options.roles = STET_ROLE_CLIENT;
    other = fixture_open(f);
    CHECK_OK(stet_handler_pause(other, "t.quick", NULL, NULL));
    CHECK_CODE(stet_handler_pause(f->engine, "t.quick", NULL, NULL), STET_ESETTLED);
    CHECK(!stet__is_served(f->engine, "t.quick"));
    run = fixture_start(f->engine, "t.quick", "x", NULL);
    CHECK_OK(stet_handler_resume(other, "t.quick", NULL, NULL));
    CHECK_CODE(stet_handler_resume(f->engine, "t.quick", NULL, NULL), STET_ENOTFOUND);
    EXPECT_RESULT(f->engine, &run, "x");
    stet_close(other);
    fixture_end(f);
}

/* ---- a look that comes back late ------------------------------------------------------------- */

static gate late_door = GATE_INIT;
static _Thread_local bool is_late; /* the thread whose look is */
static int (*late_values)(stet_store *s, const char *space, stet_bytes prefix,
                          const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg);

/* It has read what there is, and says so when the door is open. */
static int
values_late(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
            size_t limit, stet_value_fn fn, void *arg)
{
    int err = late_values(s, space, prefix, after, limit, fn, arg);

    if (is_late && strcmp(space, STET__SPACE_BASE_PAUSED) == 0)
        gate_pass(&late_door);
    return err;
}

static void *
late_look(void *e)
{
    is_late = true;
    CHECK_OK(stet__hold_look(e));
    return NULL;
}

TEST(C8_what_a_worker_was_told_is_not_forgotten_because_of_a_look_that_began_before)
{
    fixture  *f = fixture_begin();
    pthread_t sweep;

    f->options.sweep_ms = 3600000;
    f->engine = fixture_open_with(f, services);
    late_values = f->engine->store->ops->values;
    damage_ops(f->engine)->values = values_late;
    CHECK_OK(stet_engine_start(f->engine));
    CHECK_INT(pthread_create(&sweep, NULL, late_look, f->engine), 0);
    gate_await(&late_door, 1);
    CHECK_OK(stet_handler_pause(f->engine, "t.quick", NULL, NULL));
    CHECK(!stet__is_served(f->engine, "t.quick"));
    gate_open(&late_door);
    CHECK_INT(pthread_join(sweep, NULL), 0);
    CHECK(!stet__is_served(f->engine, "t.quick"));
    fixture_end(f);
}

/* ---- a run that is read while its handler is paused ------------------------------------------ */

static gate inbox_door = GATE_INIT;
static atomic_int inboxes_left; /* the look at which it reaches 0 waits */
static int (*late_inbox)(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                         void *arg);

static int
inbox_late(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    int err = late_inbox(s, run, from, limit, fn, arg);

    if (atomic_fetch_sub(&inboxes_left, 1) == 1)
        gate_pass(&inbox_door);
    return err;
}

/* The worker has it, and its handler was not paused when it looked. */
TEST(C8_a_run_whose_handler_is_paused_while_its_news_are_read_is_given_back)
{
    fixture     *f = begin();
    stet_run_id  run = suspended(f, "t.two");
    stet_engine *other;

    fixture_down(f);
    f->options.sweep_ms = 3600000;
    f->engine = fixture_open_with(f, services);
    late_inbox = f->engine->store->ops->inbox;
    damage_ops(f->engine)->inbox = inbox_late;
    CHECK_OK(stet_engine_start(f->engine));
    f->options.roles = STET_ROLE_CLIENT;
    other = fixture_open(f);
    CHECK_OK(stet_run_pause(other, &run, NULL, NULL)); /* both come together */
    CHECK_OK(stet_signal(other, &run, "word", stet_text("a"), NULL));
    CHECK_OK(stet_signal(other, &run, "word", stet_text("b"), NULL));
    atomic_store(&inboxes_left, 2); /* one with the journal, then what was not taken yet */
    CHECK_OK(stet_run_resume(other, &run, NULL, NULL));
    gate_await(&inbox_door, 1);
    CHECK_OK(stet_handler_pause(f->engine, "t.two", NULL, NULL));
    gate_open(&inbox_door);
    AWAIT(atomic_load(&f->engine->in_flight) == 0);
    CHECK_INT(effects("middle"), 0);
    CHECK_OK(stet_handler_resume(f->engine, "t.two", NULL, NULL));
    AWAIT(effects("middle") == 1);
    CHECK_OK(stet_signal(other, &run, "word", stet_text("c"), NULL));
    EXPECT_RESULT(f->engine, &run, "abc");
    stet_close(other);
    fixture_end(f);
}

/* ---- a resume that comes late ---------------------------------------------------------------- */

static gate body_door = GATE_INIT, commit_door = GATE_INIT;
static atomic_int commits_left; /* the one at which it reaches 0 waits */
static int (*late_commit)(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);

static int
commit_late(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    if (atomic_fetch_sub(&commits_left, 1) == 1)
        gate_pass(&commit_door);
    return late_commit(s, units, n, outcomes);
}

/* In the handler's own code, so that no body is in doubt when it is given back. */
static int
h_blocked(stet_ctx *ctx, stet_bytes input)
{
    gate_pass(&body_door);
    STET_TRY(stet_step(ctx, NULL, "next", body_effect, "next", NULL));
    return stet_return(ctx, input);
}

static const stet_handler blocked[] = { { "blocked", h_blocked, NULL }, { 0 } };

typedef struct helper {
    stet_engine *e;
    stet_run_id  run;
    int          rc;
} helper;

static void *
late_resume(void *arg)
{
    helper *h = arg;

    h->rc = stet_run_resume(h->e, &h->run, NULL, NULL);
    return NULL;
}

/* Who resumes has seen the run with its worker; when that is written, the worker has given it back,
 * held, and nothing would wake it. */
TEST(C8_a_resume_that_was_on_its_way_when_the_run_was_given_back_lets_it_go_on)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    pthread_t    operator_;
    helper       h;

    fixture_up_with(f, blocked);
    f->options.roles = STET_ROLE_CLIENT;
    other = fixture_open(f);
    late_commit = other->store->ops->commit;
    damage_ops(other)->commit = commit_late;
    atomic_store(&commits_left, 1);
    h.e = other;
    h.run = fixture_start(f->engine, "t.blocked", "done", NULL);
    gate_await(&body_door, 1);
    CHECK_OK(stet_run_pause(f->engine, &h.run, NULL, NULL));
    CHECK_INT(pthread_create(&operator_, NULL, late_resume, &h), 0);
    gate_await(&commit_door, 1);
    gate_open(&body_door);
    AWAIT(atomic_load(&f->engine->in_flight) == 0); /* it is given back */
    gate_open(&commit_door);
    CHECK_INT(pthread_join(operator_, NULL), 0);
    CHECK_OK(h.rc);
    EXPECT_RESULT(f->engine, &h.run, "done");
    stet_close(other);
    fixture_end(f);
}

/* There is one mark for all decisions of a run; that of the wait before the rewind is long gone. */
TEST(C8_B15_a_run_that_is_given_back_because_its_handler_was_paused_can_still_be_decided)
{
    fixture     *f = begin();
    stet_run_id  run = fixture_start(f->engine, "t.marks", "done", NULL);
    stet_engine *other;

    AWAIT(fixture_facts(f->engine, &run, "decision wait", "boss") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    CHECK_OK(stet_run_approve(f->engine, &run, "me", NULL));
    CHECK_OK(stet_run_rewind(f->engine, &run, "second", NULL, NULL));
    CHECK_OK(stet_run_resume(f->engine, &run, NULL, NULL));
    AWAIT(fixture_facts(f->engine, &run, "decision wait", "boss") == 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    f->engine = fixture_open_with(f, services);
    late_commit = f->engine->store->ops->commit;
    damage_ops(f->engine)->commit = commit_late;
    CHECK_OK(stet_engine_start(f->engine)); /* it is not parked here */
    f->options.roles = STET_ROLE_CLIENT;
    other = fixture_open(f);
    atomic_store(&commits_left, 1);
    CHECK_OK(stet_run_skip(other, &run, "later", stet_text(""), NULL, NULL)); /* it is due now */
    gate_await(&commit_door, 1); /* the worker asks for work */
    CHECK_OK(stet_handler_pause(other, "t.marks", NULL, NULL));
    CHECK_OK(stet__hold_look(f->engine));
    gate_open(&commit_door);
    AWAIT(fixture_facts(other, &run, "released", NULL) >= 1);
    CHECK_OK(stet_handler_resume(other, "t.marks", NULL, NULL));
    CHECK_OK(stet__hold_look(f->engine));
    CHECK_OK(stet_run_approve(other, &run, "me", "once more"));
    AWAIT(fixture_facts(other, &run, "event wait", "news") == 1);
    stet_close(other);
    fixture_end(f);
}

/* ---- bad input ------------------------------------------------------------------------------- */

TEST(C8_what_is_wrong_is_refused_and_changes_nothing)
{
    fixture    *f = begin();
    stet_run_id run = suspended(f, "t.order"), none = { "run_00000000000000000000000001" },
                bad = { "nonsense" };
    uint64_t    facts = fixture_look(f->engine, &run).facts;
    char        who[300];

    memset(who, 'w', sizeof who);
    who[sizeof who - 1] = '\0';
    CHECK_CODE(stet_run_pause(f->engine, &none, NULL, NULL), STET_ENOTFOUND);
    CHECK_CODE(stet_run_pause(f->engine, &bad, NULL, NULL), STET_EINVAL);
    CHECK_CODE(stet_run_pause(f->engine, &run, who, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_run_fork(f->engine, NULL, &run, NULL, who, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_run_fork(f->engine, NULL, &none, NULL, NULL, NULL), STET_ENOTFOUND);
    CHECK_CODE(stet_run_skip(f->engine, &run, "", stet_text(""), NULL, NULL), STET_ENAME);
    CHECK_CODE(stet_run_skip(f->engine, &run, NULL, stet_text(""), NULL, NULL), STET_ENAME);
    CHECK_CODE(stet_run_skip(f->engine, &run, "a\nb", stet_text(""), NULL, NULL), STET_ENAME);
    CHECK_CODE(stet_run_skip(f->engine, &run, "rollback:charge#1", stet_text(""), NULL, NULL),
               STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "rollback:STEP#N");
    CHECK_CODE(stet_run_edit(f->engine, &run, "charge", (stet_bytes){ "x", 1u << 30 }, NULL, NULL),
               STET_ETOOBIG);
    CHECK_CODE(stet_handler_pause(f->engine, "", NULL, NULL), STET_ENAME);
    CHECK_CODE(stet_handler_pause(f->engine, NULL, NULL, NULL), STET_ENAME);
    CHECK_CODE(stet_handler_resume(f->engine, "t.order", NULL, NULL), STET_ENOTFOUND);
    CHECK_CODE(stet_run_resume(f->engine, &run, NULL, NULL), STET_ESTATE);
    CHECK_INT((int)fixture_look(f->engine, &run).facts, (int)facts);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_SUSPENDED);
    fixture_end(f);
}

static int
count_timer(void *n, const stet_timer *timer)
{
    (void)timer;
    ++*(int *)n;
    return STET_OK;
}

static int
h_listens(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_await_event(ctx, NULL, "news", "30d"));
    return stet_return(ctx, input);
}

/* An event that came while it was paused ended its wait, and nobody had taken it in. */
TEST(C8_a_run_that_is_failed_leaves_no_timer_of_a_wait_that_had_ended)
{
    const stet_handler listens[] = { { "listens", h_listens, NULL }, { 0 } };
    fixture           *f = fixture_begin();
    stet_run_id        run;
    stet_store        *s;
    size_t             n = 0;
    int                timers = 0;

    fixture_up_with(f, listens);
    run = fixture_start(f->engine, "t.listens", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_pause(f->engine, &run, "me", NULL));
    CHECK_OK(stet_emit(f->engine, &n, "news", stet_text("")));
    CHECK_INT(n, 1);
    CHECK_OK(stet_run_fail(f->engine, &run, "me", "enough"));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    s = damage_open(f);
    CHECK_OK(s->ops->timers_of(s, damage_id(&run), count_timer, &timers));
    stet__store_close(s);
    CHECK_INT(timers, 0);
    fixture_end(f);
}

/* ---- a run that was never executed, and whose caller is failed ------------------------------- */

static const stet_store_ops *dying_store;
static atomic_bool           is_dead;

static int
commit_and_die(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    int err = dying_store->commit(s, units, n, outcomes);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_ops; k++) {
            stet_bytes in = units[i].ops[k].data;
            stet__fact fact;

            while (units[i].ops[k].kind == STET_OP_FACTS &&
                   stet__fact_decode(&fact, &in) == STET_OK)
                if (fact.kind == STET__FACT_FAILED)
                    atomic_store(&is_dead, true);
        }
    return err;
}

static int
run_of_the_dead(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    return atomic_load(&is_dead) ? stet__fail(STET_EIO, "it is gone")
                                 : dying_store->run(s, run, fn, arg);
}

static int
h_calls_late(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "t.quick", stet_text(""), STET_START(.delay = "1h"));
}

static int
find_child(void *arg, const stet_run_info *info)
{
    if (strcmp(info->handler, "t.quick") == 0)
        CHECK_OK(stet_run_id_parse(arg, info->id));
    return 0;
}

/* Who failed its caller dies before it could end it: it was paused, and nothing else would wake it.
 * The simulator found it. */
TEST(C8_a_paused_run_that_never_began_ends_when_its_caller_is_failed_whoever_dies)
{
    static const stet_handler callers[] = { { "calls", h_calls_late, NULL },
                                            { "quick", h_quick, NULL },
                                            { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *ann;
    stet_run_id               run, child = { "" };
    stet_store_ops           *ops;

    fixture_up_with(f, callers);
    run = fixture_start(f->engine, "t.calls", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_list(f->engine, NULL, find_child, &child));
    CHECK_OK(stet_run_pause(f->engine, &child, NULL, NULL));
    f->options.roles = STET_ROLE_CLIENT;
    ann = fixture_open(f);
    dying_store = ann->store->ops;
    ops = damage_ops(ann);
    ops->commit = commit_and_die;
    ops->run = run_of_the_dead;
    CHECK_OK(stet_run_fail(ann, &run, NULL, NULL));
    CHECK(atomic_load(&is_dead));
    fixture_await_status(f->engine, &child, STET_STATUS_CANCELLED);
    atomic_store(&is_dead, false);
    stet_close(ann);
    fixture_end(f);
}
