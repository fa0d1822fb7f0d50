/* The same on every replay (B19), and code that changes under running runs (B20). tsan: yes */
#include "fixture.h"

#define STEP(ctx, name)                                                                            \
    STET_TRY(stet_step(ctx, NULL, name, body_effect, (void *)(uintptr_t)(name), NULL))

/* ---- B19 ------------------------------------------------------------------------------------- */

static int
same_again(stet_ctx *ctx, stet_bytes input)
{
    int64_t  first, second;
    uint64_t random = stet_random(ctx);
    char     uuid[37], other[37];

    (void)input;
    STET_TRY(stet_now(ctx, &first));
    (void)stet_uuid(ctx, uuid);
    STET_TRY(stet_sleep(ctx, "nap", "20ms"));
    STET_TRY(stet_now(ctx, &second));
    (void)stet_uuid(ctx, other);
    effect("drew %lld %lld %llx %s %s", (long long)first, (long long)second,
           (unsigned long long)random, uuid, other);
    CHECK(second - first >= 20);
    CHECK(strcmp(uuid, other) != 0);
    CHECK(strlen(uuid) == 36 && uuid[14] == '4' && strchr("89ab", uuid[19]) != NULL);
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text(uuid));
}

TEST(B19_now_random_and_uuid_are_the_same_on_every_replay)
{
    static const stet_handler handlers[] = { { "same", same_again, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, other;
    char                     *text, *at, line[256];
    stet_result               a, b;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.same", "", NULL);
    fixture_replay_with(f, &run, handlers);
    a = EXPECT_END(f->engine, &run, STET_OK);
    text = effects_text();
    at = strstr(text, "drew ");
    CHECK(at != NULL);
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    free(text);
    CHECK_INT(effects(line), 2);
    /* Another run draws something else. */
    other = fixture_start(f->engine, "t.same", "", NULL);
    fixture_paused(f->engine, &other);
    fixture_go_on(f->engine, &other);
    b = EXPECT_END(f->engine, &other, STET_OK);
    CHECK(a.value.len == 36 && b.value.len == 36 && memcmp(a.value.data, b.value.data, 36) != 0);
    stet_result_free(&a);
    stet_result_free(&b);
    fixture_end(f);
}

/* ---- B20: what is safe ----------------------------------------------------------------------- */

static int
old_code(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STEP(ctx, "reserve");
    STEP(ctx, "charge");
    STET_TRY(stet_sleep(ctx, "cool down", "1ms"));
    STET_TRY(fixture_pause(ctx));
    STEP(ctx, "ship");
    return stet_return(ctx, stet_text("old"));
}

static const stet_handler old_handlers[] = { { "order", old_code, NULL }, { 0 } };

/* A run that old code brought to its pause. */
static stet_run_id
begin_old(fixture *f)
{
    stet_run_id run;

    fixture_up_with(f, old_handlers);
    run = fixture_start(f->engine, "t.order", "", NULL);
    fixture_paused(f->engine, &run);
    return run;
}

static int
inserted_code(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STEP(ctx, "check fraud");
    STEP(ctx, "reserve");
    STEP(ctx, "reserve"); /* a second one of a name: reserve#2 is new */
    STEP(ctx, "charge");
    STET_TRY(stet_sleep(ctx, "cool down", "1ms"));
    STET_TRY(fixture_pause(ctx));
    STEP(ctx, "insure");
    STEP(ctx, "ship");
    return stet_return(ctx, stet_text("new"));
}

TEST(B20_steps_may_be_inserted_before_recorded_ones)
{
    static const stet_handler handlers[] = { { "order", inserted_code, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f);

    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "new");
    CHECK_INT(effects("check fraud"), 1);
    CHECK_INT(effects("reserve"), 2);
    CHECK_INT(effects("charge"), 1);
    CHECK_INT(effects("insure"), 1);
    CHECK_INT(effects("ship"), 1);
    fixture_end(f);
}

static int
moved_code(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STEP(ctx, "charge");
    STET_TRY(stet_sleep(ctx, "cool down", "1ms"));
    STEP(ctx, "reserve");
    STET_TRY(fixture_pause(ctx));
    STEP(ctx, "ship");
    return stet_return(ctx, stet_text("moved"));
}

TEST(B20_recorded_steps_may_be_moved)
{
    static const stet_handler handlers[] = { { "order", moved_code, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f);

    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "moved");
    CHECK_INT(effects("reserve"), 1);
    CHECK_INT(effects("charge"), 1);
    fixture_end(f);
}

static int
no_pause(stet_ctx *ctx, stet_bytes input)
{
    int64_t now_ms;

    (void)input;
    STET_TRY(stet_now(ctx, &now_ms));
    STEP(ctx, "one");
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("now"));
}

static int
without_now(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STEP(ctx, "one");
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("no now"));
}

TEST(B20_reads_that_the_new_code_does_not_ask_for_do_no_harm)
{
    static const stet_handler before[] = { { "order", no_pause, NULL }, { 0 } };
    static const stet_handler after[] = { { "order", without_now, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, before);
    run = fixture_start(f->engine, "t.order", "", NULL);
    fixture_replay_with(f, &run, after);
    EXPECT_RESULT(f->engine, &run, "no now");
    fixture_end(f);
}

/* ---- B20: contradictions --------------------------------------------------------------------- */

static int kind_line;

static int
other_kind(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STEP(ctx, "reserve");
    kind_line = __LINE__ + 1;
    STET_TRY(stet_sleep(ctx, "charge", "1ms"));
    STEP(ctx, "never");
    return stet_return(ctx, stet_text("wrong"));
}

static void
check_stuck(fixture *f, const stet_run_id *run, const char *recorded, const char *asked,
            const char *where)
{
    fixture_run r;

    fixture_await_status(f->engine, run, STET_STATUS_STUCK);
    r = fixture_look(f->engine, run);
    CHECK_INT(r.code, STET_EREPLAY);
    CHECK_HAS(r.error, recorded);
    CHECK_HAS(r.error, asked);
    CHECK_HAS(r.error, where);
    CHECK(strstr(r.error, "asked for the handler") == NULL);
    CHECK_INT(effects("never"), 0);
    CHECK_CODE(stet_result_get(f->engine, NULL, run), STET_EOPEN); /* stuck, not failed */
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.statuses = 1u << STET_STATUS_STUCK)), 1);
}

TEST(B20_another_kind_in_the_place_of_a_recorded_step_makes_the_run_stuck)
{
    static const stet_handler handlers[] = { { "order", other_kind, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f);
    char                      where[64];

    fixture_replay_with(f, &run, handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    (void)snprintf(where, sizeof where, "replay_test.c:%d", kind_line);
    check_stuck(f, &run, "recorded step charge#1", "sleep charge#1", where);
    CHECK(fixture_logged(f, "stuck") > 0 || fixture_logged(f, "recorded step charge#1") > 0);
    CHECK(fixture_facts(f->engine, &run, "stuck", NULL) >= 1);
    fixture_end(f);
}

/* Why it was cancelled is not why it was stuck. */
TEST(B20_C4_who_waits_for_a_stuck_run_that_is_cancelled_is_told_why)
{
    static const stet_handler handlers[] = { { "order", other_kind, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f);
    stet_result               r;

    fixture_replay_with(f, &run, handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    CHECK_OK(stet_cancel(f->engine, &run, "me", "sold out"));
    r = EXPECT_END(f->engine, &run, STET_ECANCELLED);
    CHECK_STR(r.error, "sold out");
    stet_result_free(&r);
    fixture_end(f);
}

static int
leaves_out(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STEP(ctx, "reserve");
    return stet_return(ctx, stet_text("wrong"));
}

TEST(B20_a_recorded_step_that_nobody_asked_for_makes_the_run_stuck)
{
    static const stet_handler handlers[] = { { "order", leaves_out, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f);

    fixture_replay_with(f, &run, handlers);
    check_stuck(f, &run, "recorded ", "the handler returned", "");
    fixture_end(f);
}

static int
fails_early(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "I do not know this order");
}

TEST(B20_a_permanent_failure_before_recorded_steps_is_a_contradiction_too)
{
    static const stet_handler handlers[] = { { "order", fails_early, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f);

    fixture_replay_with(f, &run, handlers);
    check_stuck(f, &run, "recorded ", "the handler returned", "");
    fixture_end(f);
}

static int
print_input(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charge",
                       STET_STEP(.fingerprint = input)));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, input);
}

static int
print_other(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charge",
                       STET_STEP(.fingerprint = stet_text("another amount"))));
    STEP(ctx, "never");
    return stet_return(ctx, input);
}

TEST(B20_another_fingerprint_makes_the_run_stuck_and_the_same_does_not)
{
    static const stet_handler same[] = { { "order", print_input, NULL }, { 0 } };
    static const stet_handler other[] = { { "order", print_other, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, same);
    run = fixture_start(f->engine, "t.order", "12.50", NULL);
    fixture_replay_with(f, &run, same);
    EXPECT_RESULT(f->engine, &run, "12.50");
    run = fixture_start(f->engine, "t.order", "13", NULL);
    fixture_replay_with(f, &run, other);
    check_stuck(f, &run, "recorded step charge#1", "with another input", "replay_test.c:");
    fixture_end(f);
}

TEST(B20_fixed_code_resumes_a_stuck_run_by_itself)
{
    static const stet_handler wrong[] = { { "order", other_kind, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f);

    fixture_replay_with(f, &run, wrong);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    CHECK_INT(effects("ship"), 0);
    fixture_down(f);
    fixture_up_with(f, old_handlers); /* a new worker looks at stuck runs once */
    EXPECT_RESULT(f->engine, &run, "old");
    CHECK_INT(effects("reserve"), 1);
    CHECK_INT(effects("charge"), 1);
    CHECK_INT(effects("ship"), 1);
    CHECK_CODE(stet_unstick(f->engine, &run, "tester"), STET_ESTATE);
    fixture_end(f);
}

TEST(B20_unstick_lets_a_stuck_run_try_again)
{
    static const stet_handler wrong[] = { { "order", other_kind, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f), unknown;
    int                       before;

    fixture_replay_with(f, &run, wrong);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    before = fixture_facts(f->engine, &run, "stuck", NULL);
    /* The worker itself may be having its one look at stuck runs just now. */
    AWAIT(stet_unstick(f->engine, &run, "tester") == STET_OK);
    AWAIT(fixture_facts(f->engine, &run, "stuck", NULL) >
          before); /* the code is as wrong as before */
    CHECK(fixture_facts(f->engine, &run, "unstuck", NULL) >= 1);
    CHECK_INT(effects("charge"), 1);
    CHECK_OK(stet_run_id_make(f->engine, &unknown));
    CHECK_CODE(stet_unstick(f->engine, &unknown, "tester"), STET_ENOTFOUND);
    fixture_end(f);
}

TEST(B20_a_stuck_run_disturbs_no_other_run)
{
    static const stet_handler wrong[] = { { "order", other_kind, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run = begin_old(f), fresh;

    fixture_replay_with(f, &run, wrong);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    fresh = fixture_start(f->engine, "t.order", "", NULL);
    EXPECT_RESULT(f->engine, &fresh, "wrong"); /* for a new run the new code is right */
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_STUCK);
    fixture_end(f);
}

/* ---- B20: version ---------------------------------------------------------------------------- */

static int
marked(stet_ctx *ctx, stet_bytes input)
{
    int version;

    (void)input;
    STEP(ctx, "reserve");
    STET_TRY(stet_version(ctx, &version, "tax", 0, 2));
    effect("version %d", version);
    if (version >= 2)
        STEP(ctx, "tax");
    STEP(ctx, "charge");
    STET_TRY(stet_sleep(ctx, "cool down", "1ms"));
    STET_TRY(fixture_pause(ctx));
    STEP(ctx, "ship");
    return stet_return_json(ctx, "%d", version);
}

static const stet_handler marked_handlers[] = { { "order", marked, NULL }, { 0 } };

TEST(B20_version_gives_the_old_one_to_runs_that_were_past_the_mark)
{
    fixture    *f = fixture_begin();
    stet_run_id run = begin_old(f), fresh;

    fixture_replay_with(f, &run, marked_handlers);
    EXPECT_RESULT(f->engine, &run, "0");
    CHECK_INT(effects("tax"), 0);
    fresh = fixture_start(f->engine, "t.order", "", NULL);
    fixture_replay_with(f, &fresh, marked_handlers);
    EXPECT_RESULT(f->engine, &fresh, "2");
    CHECK_INT(effects("tax"), 1);
    CHECK(effects("version 2") >= 2);
    fixture_end(f);
}

static int
before_the_mark(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STEP(ctx, "reserve");
    STET_TRY(stet_sleep(ctx, "early", "1ms"));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("old"));
}

static int
mark_after_the_pause(stet_ctx *ctx, stet_bytes input)
{
    int version;

    (void)input;
    STEP(ctx, "reserve");
    STET_TRY(stet_sleep(ctx, "early", "1ms"));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_version(ctx, &version, "tax", 1, 3));
    STET_TRY(stet_sleep(ctx, "late", "1ms"));
    return stet_return_json(ctx, "%d", version);
}

TEST(B20_version_gives_the_new_one_to_runs_that_were_not_yet_there)
{
    static const stet_handler before[] = { { "order", before_the_mark, NULL }, { 0 } };
    static const stet_handler after[] = { { "order", mark_after_the_pause, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, before);
    run = fixture_start(f->engine, "t.order", "", NULL);
    fixture_replay_with(f, &run, after);
    EXPECT_RESULT(f->engine, &run, "3");
    fixture_end(f);
}

/* Of three naps the last is the first to end; the code has `n` of them. */
static int
naps(stet_ctx *ctx, size_t n)
{
    stet_future *set[3];
    size_t       chosen;

    STET_TRY(stet_sleep_start(ctx, &set[0], "hour", "1h"));
    STET_TRY(stet_sleep_start(ctx, &set[1], "day", "1d"));
    STET_TRY(stet_sleep_start(ctx, &set[2], "moment", "1ms"));
    STET_TRY(stet_await_any(ctx, &chosen, set, n, NULL));
    STET_TRY(fixture_pause(ctx));
    return STET_OK;
}

static int
three_naps(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return naps(ctx, 3);
}

static int
two_naps(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return naps(ctx, 2);
}

/* It used to fail the run, which nobody can mend. */
TEST(B20_a_recorded_choice_the_code_no_longer_has_makes_the_run_stuck)
{
    static const stet_handler before[] = { { "order", three_naps, NULL }, { 0 } };
    static const stet_handler after[] = { { "order", two_naps, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, before);
    run = fixture_start(f->engine, "t.order", "", NULL);
    fixture_replay_with(f, &run, after);
    check_stuck(f, &run, "await any any: future 3 of more than 2#1", "await any any#1",
                "replay_test.c:");
    fixture_end(f);
}

static bool has_mark;

/* Its only record behind the mark is that of a wait with a limit. */
static int
limited(stet_ctx *ctx, stet_bytes input)
{
    stet_future *nap;
    int          version = 0;

    (void)input;
    STET_TRY(stet_sleep_start(ctx, &nap, "nap", "2h"));
    if (has_mark)
        STET_TRY(stet_version(ctx, &version, "tax", 1, 2));
    if (stet_await_for(ctx, NULL, nap, "1h") != STET_ECANCELLED)
        return STET_EPERMANENT;
    effect("version %d", version);
    return STET_OK;
}

TEST(B20_a_run_that_waits_with_a_limit_is_past_what_comes_before_the_wait)
{
    static const stet_handler handlers[] = { { "limited", limited, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    has_mark = false;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.limited", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    has_mark = true;
    fixture_up_with(f, handlers);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_INT(effects("version 1"), 1);
    fixture_end(f);
}

static int
dropped_version(stet_ctx *ctx, stet_bytes input)
{
    int version;

    (void)input;
    STEP(ctx, "reserve");
    STET_TRY(stet_version(ctx, &version, "tax", 3, 4)); /* the code of version 2 is gone */
    STEP(ctx, "never");
    return STET_OK;
}

static int
bad_version(stet_ctx *ctx, stet_bytes input)
{
    int version;

    (void)input;
    CHECK_CODE(stet_version(ctx, &version, "", 0, 1), STET_ENAME);
    CHECK_CODE(stet_version(ctx, &version, "tax", 2, 1), STET_EINVAL);
    return STET_OK;
}

TEST(B20_a_recorded_version_the_code_no_longer_has_makes_the_run_stuck)
{
    static const stet_handler dropped[] = { { "order", dropped_version, NULL },
                                            { "bad", bad_version, NULL },
                                            { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, bad;

    fixture_up_with(f, marked_handlers);
    run = fixture_start(f->engine, "t.order", "", NULL);
    fixture_replay_with(f, &run, dropped);
    check_stuck(f, &run, "version tax#1", "version tax#1", "replay_test.c:");
    bad = fixture_start(f->engine, "t.bad", "", NULL);
    EXPECT_RESULT(f->engine, &bad, "");
    fixture_end(f);
}
