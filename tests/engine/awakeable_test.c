/* Awakeables (B6). tsan: yes */
#include "fixture.h"

/* Hand an awakeable's ID to the test. */
static int
body_tell(stet_attempt *a, void *id)
{
    (void)a;
    effect("id %s", (const char *)id);
    return STET_OK;
}

/* The nth ID that was told. */
static stet_awakeable_id
told(int n)
{
    stet_awakeable_id id = { "" };
    int64_t           until = fixture_mono_ms() + fixture_patience_ms();

    while (id.text[0] == '\0') {
        char *text = effects_text(), *at = text;

        for (int i = 0; at != NULL && (at = strstr(at, "id awk_")) != NULL; at += 3)
            if (++i == n)
                (void)snprintf(id.text, sizeof id.text, "%.*s", (int)strcspn(at + 3, "\n"), at + 3);
        free(text);
        if (fixture_mono_ms() > until)
            test_fail(__FILE__, __LINE__, "no awakeable was told");
        if (id.text[0] == '\0')
            fixture_breathe();
    }
    return id;
}

static int
awaits(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;
    int               code;

    (void)input;
    effect("enter");
    STET_TRY(stet_awakeable(ctx, &id, &future, "answer"));
    STET_TRY(stet_step(ctx, NULL, "tell", body_tell, id.text, NULL));
    STET_TRY(stet_step(ctx, NULL, "between", body_effect, (void *)"between", NULL));
    code = stet_await(ctx, &value, future);
    if (code == STET_SUSPENDED)
        return code;
    effect("awoke with %s %s", code == STET_OK ? "a value" : stet_code_name(code),
           code == STET_OK ? (value.data != NULL ? "" : "of nothing")
                           : stet_failure_get(ctx)->text);
    STET_TRY(code);
    return stet_return(ctx, value);
}

static const stet_handler awaiting[] = { { "await", awaits, NULL }, { 0 } };

TEST(B6_steps_between_creating_and_awaiting_run_and_a_value_comes_back)
{
    fixture          *f = fixture_begin();
    stet_run_id       run;
    stet_awakeable_id id;

    fixture_up_with(f, awaiting);
    run = fixture_start(f->engine, "t.await", "", NULL);
    id = told(1);
    effects_await("between", 1);
    CHECK_CODE(stet_result_get(f->engine, NULL, &run), STET_EOPEN);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_HAS(fixture_look(f->engine, &run).reason, id.text);
    CHECK_OK(stet_resolve(f->engine, id.text, stet_text("forty-two")));
    EXPECT_RESULT(f->engine, &run, "forty-two");
    CHECK_INT(effects("between"), 1);
    fixture_end(f);
}

static void
resolve_with(fixture *f, stet_bytes value, const char *want)
{
    int               n = effects("between") + 1;
    stet_run_id       run = fixture_start(f->engine, "t.await", "", NULL);
    stet_awakeable_id id = told(n);
    stet_result       result;

    CHECK_OK(stet_resolve(f->engine, id.text, value));
    result = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(result.value.len, value.len);
    CHECK(value.len == 0 || memcmp(result.value.data, value.data, value.len) == 0);
    CHECK(effects(want) > 0);
    stet_result_free(&result);
}

TEST(B6_values_of_every_shape)
{
    fixture *f = fixture_begin();
    char    *large = calloc(1, 200000);

    fixture_up_with(f, awaiting);
    resolve_with(f, stet_text(""), "awoke with a value ");
    resolve_with(f, (stet_bytes){ NULL, 0 }, "awoke with a value ");
    resolve_with(f, (stet_bytes){ "\0\xff\n", 3 }, "awoke with a value ");
    resolve_with(f, (stet_bytes){ large, 200000 }, "awoke with a value ");
    free(large);
    fixture_end(f);
}

TEST(B6_a_rejection_gives_its_text_identically_on_replay)
{
    fixture          *f = fixture_begin();
    stet_run_id       run;
    stet_awakeable_id id;
    stet_result       result;

    fixture_up_with(f, awaiting);
    run = fixture_start(f->engine, "t.await", "", NULL);
    id = told(1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_up_with(f, awaiting);
    CHECK_OK(stet_reject(f->engine, id.text, "the customer said no"));
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.code, STET_EREJECTED);
    CHECK_HAS(result.error, "the customer said no");
    stet_result_free(&result);
    CHECK_INT(effects("awoke with STET_EREJECTED the customer said no"), 1);
    CHECK_INT(effects("between"), 1);
    fixture_end(f);
}

TEST(B6_a_wait_and_its_settlement_survive_restarts)
{
    fixture          *f = fixture_begin();
    stet_engine      *client;
    stet_run_id       run;
    stet_awakeable_id id;

    fixture_up_with(f, awaiting);
    run = fixture_start(f->engine, "t.await", "", NULL);
    id = told(1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    /* Nobody executes anything; a client settles it. */
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    CHECK_OK(stet_resolve(client, id.text, stet_text("meanwhile")));
    CHECK_CODE(stet_resolve(client, id.text, stet_text("again")), STET_ESETTLED);
    stet_close(client);
    f->options.roles = 0;
    fixture_up_with(f, awaiting);
    EXPECT_RESULT(f->engine, &run, "meanwhile");
    CHECK_INT(effects("enter"), 2);
    CHECK_INT(effects("between"), 1);
    fixture_end(f);
}

static gate before_await = GATE_INIT;

static int
body_waits(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&before_await);
    return STET_OK;
}

static int
awaits_late(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;
    int               code;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "answer"));
    STET_TRY(stet_step(ctx, NULL, "tell", body_tell, id.text, NULL));
    STET_TRY(stet_step(ctx, NULL, "wait", body_waits, NULL, NULL));
    STET_TRY(stet_sleep(ctx, "and sleep", "10ms"));
    code = stet_await(ctx, &value, future);
    if (code == STET_EREJECTED)
        return stet_return(ctx, stet_text(stet_failure_get(ctx)->text));
    STET_TRY(code);
    return stet_return(ctx, value);
}

static void
settled_before_the_await(bool is_rejected)
{
    static const stet_handler handlers[] = { { "late", awaits_late, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_awakeable_id         id;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.late", "", NULL);
    id = told(1);
    gate_await(&before_await, 1);
    if (is_rejected)
        CHECK_OK(stet_reject(f->engine, id.text, "early"));
    else
        CHECK_OK(stet_resolve(f->engine, id.text, stet_text("early")));
    gate_open(&before_await);
    EXPECT_RESULT(f->engine, &run, "early");
    fixture_end(f);
}

TEST(B6_resolving_before_the_await_is_kept) { settled_before_the_await(false); }
TEST(B6_rejecting_before_the_await_is_kept) { settled_before_the_await(true); }

TEST(B6_unknown_and_settled_awakeables_have_their_own_errors)
{
    fixture          *f = fixture_begin();
    stet_run_id       run, other;
    stet_awakeable_id id, cancelled;
    char              unknown[STET_ID_TEXT_MAX];
    char             *large = calloc(1, 2000);

    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, awaiting);
    run = fixture_start(f->engine, "t.await", "", NULL);
    id = told(1);
    (void)snprintf(unknown, sizeof unknown, "%s", id.text);
    unknown[strlen(unknown) - 1] = unknown[strlen(unknown) - 1] == '0' ? '1' : '0';
    CHECK_CODE(stet_resolve(f->engine, unknown, stet_text("x")), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), unknown);
    CHECK_CODE(stet_reject(f->engine, unknown, "x"), STET_ENOTFOUND);
    CHECK_CODE(stet_resolve(f->engine, run.text, stet_text("x")), STET_EKIND);
    CHECK_HAS(stet_last_error(), "awk_");
    CHECK_CODE(stet_resolve(f->engine, "nonsense", stet_text("x")), STET_EINVAL);
    CHECK_CODE(stet_resolve(f->engine, "", stet_text("x")), STET_EINVAL);
    CHECK_CODE(stet_resolve(f->engine, NULL, stet_text("x")), STET_EINVAL);
    CHECK_CODE(stet_resolve(f->engine, id.text, (stet_bytes){ large, 2000 }), STET_ETOOBIG);
    CHECK_OK(stet_resolve(f->engine, id.text, stet_text("good")));
    CHECK_CODE(stet_resolve(f->engine, id.text, stet_text("bad")), STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "resolved");
    CHECK_CODE(stet_reject(f->engine, id.text, "bad"), STET_ESETTLED);
    EXPECT_RESULT(f->engine, &run, "good");
    CHECK_CODE(stet_resolve(f->engine, id.text, stet_text("late")), STET_ESETTLED);
    CHECK_INT(fixture_facts(f->engine, &run, "awakeable settled", NULL), 1);
    /* One that nobody will ever await: its run has ended. */
    other = fixture_start(f->engine, "t.await", "", NULL);
    cancelled = told(2);
    fixture_await_status(f->engine, &other, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &other, "tester", "enough"));
    fixture_await_status(f->engine, &other, STET_STATUS_CANCELLED);
    CHECK_CODE(stet_resolve(f->engine, cancelled.text, stet_text("late")), STET_EENDED);
    free(large);
    fixture_end(f);
}

typedef struct settle_race {
    stet_engine      *engine;
    stet_awakeable_id id;
    atomic_int        won, winner;
} settle_race;

static void
race_resolve(void *arg, int i)
{
    settle_race *r = arg;
    char         value[16];
    int          code;

    (void)snprintf(value, sizeof value, "%d", i);
    code = stet_resolve(r->engine, r->id.text, stet_text(value));
    if (code == STET_OK) {
        atomic_fetch_add(&r->won, 1);
        atomic_store(&r->winner, i);
    } else
        CHECK_CODE(code, STET_ESETTLED);
}

TEST(B6_one_of_many_racing_settlements_wins)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, awaiting);
    for (int round = 1; round <= 5; round++) {
        stet_run_id run = fixture_start(f->engine, "t.await", "", NULL);
        settle_race r = { f->engine, told(round), 0, -1 };
        char        want[16];

        fixture_race(8, race_resolve, &r);
        CHECK_INT(r.won, 1);
        (void)snprintf(want, sizeof want, "%d", r.winner);
        EXPECT_RESULT(f->engine, &run, want);
    }
    fixture_end(f);
}

/* ---- from another handler -------------------------------------------------------------------- */

static int
settles(stet_ctx *ctx, stet_bytes input)
{
    char  *id = stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data);
    int    first, second, third;

    if ((first = stet_ctx_resolve(ctx, id, stet_text("from a handler"))) == STET_SUSPENDED)
        return first;
    STET_TRY(stet_sleep(ctx, "nap", "2ms"));
    if ((second = stet_ctx_reject(ctx, id, "changed my mind")) == STET_SUSPENDED)
        return second;
    STET_TRY(stet_sleep(ctx, "nap", "2ms"));
    third = stet_ctx_resolve(ctx, "awk_00000000000000000000000000", stet_text(""));
    effect("settled %d %d %d", first, second, third);
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, stet_text("settled"));
}

TEST(B6_a_handler_settles_once_and_what_it_was_told_is_recorded)
{
    static const stet_handler handlers[] = { { "await", awaits, NULL },
                                             { "settle", settles, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, settler;
    stet_awakeable_id         id;
    char                      line[64];

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.await", "", NULL);
    id = told(1);
    settler = fixture_start(f->engine, "t.settle", id.text, NULL);
    EXPECT_RESULT(f->engine, &run, "from a handler");
    fixture_replay_with(f, &settler, handlers);
    EXPECT_RESULT(f->engine, &settler, "settled");
    (void)snprintf(line, sizeof line, "settled %d %d %d", STET_OK, STET_ESETTLED, STET_ENOTFOUND);
    CHECK(effects(line) >= 2);
    CHECK_INT(fixture_facts(f->engine, &run, "awakeable settled", NULL), 1);
    fixture_end(f);
}

static int
settles_badly(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;

    (void)input;
    CHECK_CODE(stet_ctx_resolve(ctx, stet_info(ctx)->run, stet_text("")), STET_EKIND);
    CHECK_CODE(stet_ctx_resolve(ctx, "nonsense", stet_text("")), STET_EINVAL);
    CHECK_CODE(stet_awakeable(ctx, &id, &future, ""), STET_ENAME);
    CHECK_CODE(stet_awakeable(ctx, &id, &future, "__mine"), STET_ENAME);
    CHECK_CODE(stet_await(ctx, NULL, NULL), STET_EINVAL);
    return stet_return(ctx, stet_text("unharmed"));
}

TEST(B6_misuse_in_a_handler_is_refused_and_records_nothing)
{
    static const stet_handler handlers[] = { { "bad", settles_badly, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.bad", "", NULL);
    EXPECT_RESULT(f->engine, &run, "unharmed");
    CHECK_INT(fixture_facts(f->engine, &run, "settle awakeable", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "awakeable", NULL), 0);
    fixture_end(f);
}

/* ---- with a limit ---------------------------------------------------------------------------- */

static int
awaits_twice(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;
    int               first;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "answer"));
    STET_TRY(stet_step(ctx, NULL, "tell", body_tell, id.text, NULL));
    first = stet_await_for(ctx, &value, future, "30ms");
    if (first == STET_SUSPENDED)
        return first;
    effect("first %s", first == STET_OK ? "value" : stet_code_name(first));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_await(ctx, &value, future));
    return stet_return(ctx, value);
}

TEST(B6_a_timeout_is_recorded_and_stays_one_after_the_value_came)
{
    static const stet_handler handlers[] = { { "twice", awaits_twice, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_awakeable_id         id;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.twice", "", NULL);
    id = told(1);
    fixture_paused(f->engine, &run);
    CHECK_INT(effects("first STET_ETIMEOUT"), 1);
    CHECK_OK(stet_resolve(f->engine, id.text, stet_text("late")));
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "late");
    CHECK(effects("first STET_ETIMEOUT") >= 2);
    CHECK_INT(effects("first value"), 0);
    fixture_end(f);
}

static int
awaits_in_time(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;

    (void)input;
    CHECK_CODE(stet_await_for(ctx, &value, NULL, "1s"), STET_EINVAL);
    STET_TRY(stet_awakeable(ctx, &id, &future, "answer"));
    CHECK_CODE(stet_await_for(ctx, &value, future, "later"), STET_EDURATION);
    CHECK_CODE(stet_await_for(ctx, &value, future, "-1s"), STET_EDURATION);
    STET_TRY(stet_step(ctx, NULL, "tell", body_tell, id.text, NULL));
    STET_TRY(stet_await_for(ctx, &value, future, "1h"));
    effect("in time");
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, value);
}

TEST(B6_a_value_within_the_limit_is_recorded_as_such)
{
    static const stet_handler handlers[] = { { "await", awaits_in_time, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_awakeable_id         id;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.await", "", NULL);
    id = told(1);
    CHECK_OK(stet_resolve(f->engine, id.text, stet_text("soon")));
    fixture_replay_with(f, &run, handlers);
    EXPECT_RESULT(f->engine, &run, "soon");
    CHECK_INT(effects("in time"), 2);
    fixture_end(f);
}
