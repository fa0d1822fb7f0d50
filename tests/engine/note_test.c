/* Switches (B12), notes (B13), what is given out once and a look at other runs (B17). tsan: yes */
#include "engine/engine.h"
#include "fixture.h"

/* ---- notes ----------------------------------------------------------------------------------- */

static atomic_int executions;

/* Says something else in each execution; only what was said first stays. */
static int
h_notes(stet_ctx *ctx, stet_bytes input)
{
    int n = atomic_fetch_add(&executions, 1);

    (void)input;
    STET_TRY(stet_note(ctx, "begun in execution %d", n));
    for (int i = 0; i < 2; i++)
        STET_TRY(stet_note(ctx, "round %d", i));
    STET_TRY(fixture_pause(ctx));
    return stet_note(ctx, "ended");
}

/* The same with a note in front, and without one of the old ones. */
static int
h_notes_moved(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_note(ctx, "new"));
    for (int i = 0; i < 2; i++)
        STET_TRY(stet_note(ctx, "round %d", i));
    STET_TRY(fixture_pause(ctx));
    return stet_note(ctx, "ended");
}

static int
h_long_note(stet_ctx *ctx, stet_bytes input)
{
    const char *volatile empty = ""; /* not a literal: the compiler would complain */
    char *text = stet_ctx_alloc(ctx, 6000);

    (void)input;
    memset(text, 'x', 5999);
    text[4095] = (char)0xC3; /* a character across the limit */
    text[4096] = (char)0xA4;
    text[5999] = '\0';
    STET_TRY(stet_note(ctx, "%s", text));
    CHECK_CODE(stet_note(ctx, "%s", ""), STET_OK);
    CHECK_CODE(stet_note(ctx, empty, 0), STET_EINVAL); /* clang wants an argument */
    return STET_OK;
}

static const stet_handler notes[] = { { "notes", h_notes, NULL },
                                      { "long", h_long_note, NULL },
                                      { 0 } };
static const stet_handler notes_moved[] = { { "notes", h_notes_moved, NULL }, { 0 } };

TEST(B13_a_note_is_recorded_once_however_often_the_run_replays)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, notes);
    run = fixture_start(f->engine, "t.notes", "", NULL);
    fixture_paused(f->engine, &run);
    fixture_down(f);
    fixture_up_with(f, notes);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK(atomic_load(&executions) > 1);
    CHECK_INT(fixture_facts(f->engine, &run, "note", NULL), 4);
    CHECK_INT(fixture_facts(f->engine, &run, "note", "begun in execution 0"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "note", "round 0"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "note", "round 1"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "note", "ended"), 1);
    fixture_end(f);
}

TEST(B13_notes_can_be_added_and_dropped_under_running_runs)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, notes);
    run = fixture_start(f->engine, "t.notes", "", NULL);
    fixture_paused(f->engine, &run);
    fixture_down(f);
    fixture_up_with(f, notes_moved);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(fixture_facts(f->engine, &run, "note", "new"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "note", "round 0"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "note", "round 1"), 1);
    fixture_end(f);
}

static int
note_length(void *arg, const stet_fact_info *fact)
{
    if (strcmp(fact->kind, "note") == 0 && fact->name != NULL && strlen(fact->name) > 8)
        *(size_t *)arg = strlen(fact->name);
    return STET_OK;
}

TEST(B13_a_long_note_is_cut_at_a_whole_character_and_an_empty_one_is_refused)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    size_t      len = 0;

    fixture_up_with(f, notes);
    run = fixture_start(f->engine, "t.long", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_OK(stet_run_facts(f->engine, &run, false, note_length, &len));
    CHECK_INT(len, STET_NOTE_MAX - 1);
    fixture_end(f);
}

/* ---- switches -------------------------------------------------------------------------------- */

static atomic_int asked;
static atomic_int broken; /* code of the matcher that fails, or 0 */

static int
is_large(void *arg)
{
    atomic_fetch_add(&asked, 1);
    return *(const char *)arg == 'L' ? 1 : atomic_load(&broken);
}

static int
is_any(void *arg)
{
    atomic_fetch_add(&asked, 1);
    return *(const char *)arg != '?' ? 7 : 0;
}

static const stet_branch branches[] = { { "large", is_large }, { "any", is_any }, { 0 } };
static const stet_branch with_default[] = { { "large", is_large }, { "rest", NULL }, { 0 } };
static const stet_branch without_large[] = { { "any", is_any }, { 0 } };
static _Atomic(const stet_branch *) code = branches;

static int
h_switches(stet_ctx *ctx, stet_bytes input)
{
    const stet_branch *of = atomic_load(&code);
    size_t             chosen;

    STET_TRY(stet_switch(ctx, &chosen, "size", of, (void *)(uintptr_t)input.data));
    effect("%s", of[chosen].id);
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text(of[chosen].id));
}

static int
h_misuses_switch(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch same[] = { { "a", is_any }, { "a", is_any }, { 0 } };
    static const stet_branch early[] = { { "rest", NULL }, { "a", is_any }, { 0 } };
    static const stet_branch none[] = { { 0 } };
    static const stet_branch illegal[] = { { "__x", is_any }, { 0 } };
    size_t                   at = 99;

    (void)input;
    CHECK_CODE(stet_switch(ctx, &at, "s", same, NULL), STET_EINVAL);
    CHECK_CODE(stet_switch(ctx, &at, "s", early, NULL), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "put it last");
    CHECK_CODE(stet_switch(ctx, &at, "s", none, NULL), STET_EINVAL);
    CHECK_CODE(stet_switch(ctx, &at, "s", NULL, NULL), STET_EINVAL);
    CHECK_CODE(stet_switch(ctx, &at, "s", illegal, NULL), STET_ENAME);
    CHECK_CODE(stet_switch(ctx, &at, "", branches, NULL), STET_ENAME);
    CHECK_INT(at, 99);
    return STET_OK;
}

static const stet_handler switches[] = { { "go", h_switches, NULL },
                                         { "wrong", h_misuses_switch, NULL },
                                         { 0 } };

TEST(B12_the_first_branch_that_matches_is_taken_and_no_matcher_runs_again)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, switches);
    run = fixture_start(f->engine, "t.go", "S", NULL);
    fixture_paused(f->engine, &run);
    CHECK_INT(atomic_load(&asked), 2);
    fixture_down(f);
    fixture_up_with(f, switches);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "any");
    CHECK_INT(atomic_load(&asked), 2);
    CHECK_INT(fixture_facts(f->engine, &run, "switch", "size"), 1);
    fixture_end(f);
}

TEST(B12_without_a_match_the_default_is_taken_or_the_run_fails)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result result;

    fixture_up_with(f, switches);
    run = fixture_start(f->engine, "t.go", "?", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_ENOBRANCH);
    CHECK_HAS(result.error, "none of its 2 branches");
    stet_result_free(&result);
    atomic_store(&code, with_default);
    run = fixture_start(f->engine, "t.go", "?", NULL);
    fixture_paused(f->engine, &run);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "rest");
    fixture_end(f);
}

TEST(B12_a_recorded_branch_the_code_lost_makes_the_run_stuck_and_its_return_mends_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, switches);
    run = fixture_start(f->engine, "t.go", "L", NULL);
    fixture_paused(f->engine, &run);
    fixture_down(f);
    atomic_store(&code, without_large);
    fixture_up_with(f, switches);
    fixture_go_on(f->engine, &run);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    CHECK_HAS(fixture_why(f->engine, &run).text, "branch large");
    fixture_down(f);
    atomic_store(&code, branches);
    fixture_up_with(f, switches);
    EXPECT_RESULT(f->engine, &run, "large");
    fixture_end(f);
}

TEST(B12_a_matcher_that_fails_fails_the_attempt_and_records_nothing)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, switches);
    atomic_store(&broken, STET_EBUSY);
    run = fixture_start(f->engine, "t.go", "S",
                        STET_START(.retry = { .attempts = 50, .first_ms = 1, .max_ms = 1 }));
    AWAIT(fixture_facts(f->engine, &run, "attempt failed", NULL) > 0);
    CHECK_INT(fixture_facts(f->engine, &run, "switch", NULL), 0);
    atomic_store(&broken, 0);
    fixture_paused(f->engine, &run);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "any");
    fixture_end(f);
}

TEST(B12_bad_branches_are_refused_and_nothing_is_recorded)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, switches);
    run = fixture_start(f->engine, "t.wrong", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(fixture_facts(f->engine, &run, "switch", NULL), 0);
    fixture_end(f);
}

/* ---- once, look ------------------------------------------------------------------------------ */

/* Two keys: the one in its input, and one of its own. */
static int
h_once(stet_ctx *ctx, stet_bytes input)
{
    bool first, own;

    STET_TRY(stet_once(ctx, &first, (const char *)input.data));
    STET_TRY(stet_once(ctx, &own, stet_info(ctx)->run));
    if (first)
        effect("first");
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text(!own ? "not even its own" : first ? "yes" : "no"));
}

static int
h_misuses_once(stet_ctx *ctx, stet_bytes input)
{
    bool          is_first = true;
    stet_run_look look;
    stet_run_id   awakeable = { "awk_0000000000000000000000000000" };
    char          key[300];

    (void)input;
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    CHECK_CODE(stet_once(ctx, &is_first, ""), STET_EINVAL);
    CHECK(!is_first);
    CHECK_CODE(stet_once(ctx, &is_first, NULL), STET_EINVAL);
    CHECK_CODE(stet_once(ctx, &is_first, key), STET_ETOOBIG);
    CHECK(stet_run_look_at(ctx, &look, &awakeable) < 0);
    CHECK(stet_run_look_at(ctx, &look, NULL) < 0);
    return STET_OK;
}

/* Looks at the run its input names, before and after a pause, each look recorded. */
static int
h_looks(stet_ctx *ctx, stet_bytes input)
{
    stet_run_look before, after;
    stet_run_id   run;
    int           rc;

    (void)snprintf(run.text, sizeof run.text, "%.*s", (int)input.len, (const char *)input.data);
    if ((rc = stet_run_look_at(ctx, &before, &run)) != STET_OK)
        return rc;
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_run_look_at(ctx, &after, &run));
    return stet_return(ctx, stet_text(stet_ctx_printf(
                                ctx, "%s, %s %.*s %d %s", stet_status_name(before.status),
                                stet_status_name(after.status), (int)after.value.len,
                                after.value.data != NULL ? (const char *)after.value.data : "",
                                after.code, after.error != NULL ? after.error : "-")));
}

static int
h_refuses(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(fixture_pause(ctx));
    return stet_fail(ctx, STET_EPERMANENT, "no way");
}

static const stet_handler onces[] = { { "once", h_once, NULL },
                                      { "looks", h_looks, NULL },
                                      { "refuses", h_refuses, NULL },
                                      { "wrong", h_misuses_once, NULL },
                                      { 0 } };

TEST(B17_once_is_true_for_one_run_of_many_and_again_when_that_one_replays)
{
    enum { RUNS = 20 };
    fixture    *f = fixture_begin();
    stet_run_id runs[RUNS];
    int         yes = 0;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, onces);
    for (int i = 0; i < RUNS; i++)
        runs[i] = fixture_start(f->engine, "t.once", "invoice 7", NULL);
    for (int i = 0; i < RUNS; i++)
        fixture_paused(f->engine, &runs[i]);
    fixture_down(f);
    fixture_up_with(f, onces);
    for (int i = 0; i < RUNS; i++) {
        stet_result result;

        fixture_go_on(f->engine, &runs[i]);
        result = EXPECT_END(f->engine, &runs[i], STET_OK);
        yes += fixture_is(result.value, "yes");
        CHECK(fixture_is(result.value, "yes") || fixture_is(result.value, "no"));
        stet_result_free(&result);
    }
    CHECK_INT(yes, 1);
    CHECK_INT(fixture_sound(f->engine), RUNS);
    fixture_end(f);
}

static const stet_store_ops *real;
static gate                  both;
static atomic_int            readers;

/* Two runs have both seen that the key is free before either of them takes it. */
static int
value_seen_by_both(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    int err = real->value(s, space, key, value);

    if (fixture_is(key, "invoice 8") && atomic_fetch_add(&readers, 1) < 2)
        gate_pass(&both);
    return err;
}

TEST(B17_of_two_runs_that_both_saw_the_key_free_one_gets_it)
{
    fixture       *f = fixture_begin();
    stet_store_ops ops;
    stet_run_id    runs[2];
    int            yes = 0;

    both = (gate)GATE_INIT;
    atomic_store(&readers, 0);
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", onces, false, NULL }, { 0 } });
    real = f->engine->store->ops;
    ops = *real;
    ops.value = value_seen_by_both;
    f->engine->store->ops = &ops;
    CHECK_OK(stet_engine_start(f->engine));
    for (int i = 0; i < 2; i++)
        runs[i] = fixture_start(f->engine, "t.once", "invoice 8", NULL);
    gate_await(&both, 2);
    gate_open(&both);
    for (int i = 0; i < 2; i++) {
        stet_result result;

        fixture_paused(f->engine, &runs[i]);
        fixture_go_on(f->engine, &runs[i]);
        result = EXPECT_END(f->engine, &runs[i], STET_OK);
        yes += fixture_is(result.value, "yes");
        stet_result_free(&result);
    }
    CHECK_INT(yes, 1);
    fixture_end(f);
}

TEST(B17_a_key_stays_taken_when_its_run_is_gone)
{
    fixture    *f = fixture_begin();
    stet_run_id run, other;

    f->options.sweep_ms = 50;
    fixture_up_with(f, onces);
    run = fixture_start(f->engine, "t.once", "kept", STET_START(.retention = "1ms"));
    fixture_paused(f->engine, &run);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "yes");
    AWAIT(fixture_is_gone(f->engine, &run));
    other = fixture_start(f->engine, "t.once", "kept", NULL);
    fixture_paused(f->engine, &other);
    fixture_go_on(f->engine, &other);
    EXPECT_RESULT(f->engine, &other, "no");
    fixture_end(f);
}

TEST(B17_the_state_of_another_run_is_read_and_recorded)
{
    fixture    *f = fixture_begin();
    stet_run_id good, bad, looks[3];
    stet_result result;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, onces);
    good = fixture_start(f->engine, "t.once", "some", NULL);
    bad = fixture_start(f->engine, "t.refuses", "", NULL);
    fixture_paused(f->engine, &good);
    fixture_paused(f->engine, &bad);
    looks[0] = fixture_start(f->engine, "t.looks", good.text, NULL);
    looks[1] = fixture_start(f->engine, "t.looks", bad.text, NULL);
    looks[2] = fixture_start(f->engine, "t.looks", "run_00000000000000000000000001", NULL);
    fixture_paused(f->engine, &looks[0]);
    fixture_paused(f->engine, &looks[1]);
    fixture_go_on(f->engine, &good);
    fixture_go_on(f->engine, &bad);
    EXPECT_RESULT(f->engine, &good, "yes");
    EXPECT_ANSWER(f->engine, &bad, STET_ERUN);
    fixture_down(f);
    fixture_up_with(f, onces);
    fixture_go_on(f->engine, &looks[0]);
    fixture_go_on(f->engine, &looks[1]);
    EXPECT_RESULT(f->engine, &looks[0], "suspended, completed yes 0 -");
    EXPECT_RESULT(f->engine, &looks[1], "suspended, failed  -20 no way");
    result = EXPECT_END(f->engine, &looks[2], STET_ERUN);
    CHECK_INT(result.code, STET_ENOTFOUND);
    stet_result_free(&result);
    fixture_end(f);
}

TEST(B17_bad_keys_and_ids_are_refused_and_nothing_is_recorded)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, onces);
    run = fixture_start(f->engine, "t.wrong", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(fixture_facts(f->engine, &run, "once", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "look at run", NULL), 0);
    fixture_end(f);
}
