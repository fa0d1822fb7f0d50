/* Objects: one writer a key (A2) and state (B7). tsan: yes */
#include "fixture.h"

static gate held = GATE_INIT;

static int
body_held(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&held);
    return STET_OK;
}

static int
body_order(stet_attempt *a, void *input)
{
    (void)a;
    effect("ran %s", (const char *)input);
    return STET_OK;
}

static char *
text_of(stet_ctx *ctx, stet_bytes bytes)
{
    return stet_ctx_printf(ctx, "%.*s", (int)bytes.len,
                           bytes.data != NULL ? (const char *)bytes.data : "");
}

static int
deposit(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes balance;
    char      *sum;

    STET_TRY(stet_state_get(ctx, &balance, "balance"));
    sum = stet_ctx_printf(ctx, "%ld", fixture_number(balance) + fixture_number(input));
    STET_TRY(stet_state_set(ctx, "balance", stet_text(sum)));
    return stet_return(ctx, stet_text(sum));
}

static int
deposit_slowly(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes balance;
    char      *sum;

    STET_TRY(stet_state_get(ctx, &balance, "balance"));
    STET_TRY(stet_sleep(ctx, "count the money", "1ms"));
    sum = stet_ctx_printf(ctx, "%ld", fixture_number(balance) + fixture_number(input));
    STET_TRY(stet_state_set(ctx, "balance", stet_text(sum)));
    return stet_return(ctx, stet_text(sum));
}

static int
hold(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "order", body_order, text_of(ctx, input), NULL));
    return stet_step(ctx, NULL, "hold", body_held, NULL, NULL);
}

static int
note_order(stet_ctx *ctx, stet_bytes input)
{
    return stet_step(ctx, NULL, "order", body_order, text_of(ctx, input), NULL);
}

static int
waits(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(fixture_pause(ctx));
    return stet_step(ctx, NULL, "order", body_order, text_of(ctx, input), NULL);
}

static atomic_int failures_left;

static int
fails_first(stet_ctx *ctx, stet_bytes input)
{
    if (atomic_fetch_sub(&failures_left, 1) > 0)
        return stet_fail(ctx, STET_ERETRY, "try again");
    return stet_step(ctx, NULL, "order", body_order, text_of(ctx, input), NULL);
}

static int
fails_after_deposit(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(deposit(ctx, input));
    if (atomic_fetch_sub(&failures_left, 1) > 0)
        return stet_fail(ctx, STET_ERETRY, "try again");
    return STET_OK;
}

static const stet_handler account_handlers[] = { { "deposit", deposit, NULL },
                                                 { "slowly", deposit_slowly, NULL },
                                                 { "hold", hold, NULL },
                                                 { "order", note_order, NULL },
                                                 { "waits", waits, NULL },
                                                 { "fails", fails_first, NULL },
                                                 { "again", fails_after_deposit, NULL },
                                                 { 0 } };
static const stet_entry initial[] = { { "balance", { "100", 3 } }, { "owner", { "", 0 } }, { 0 } };
static const fixture_service accounts[] = { { "account", account_handlers, true, initial }, { 0 } };

static void
check_state(stet_engine *e, const char *key, const char *name, const char *want)
{
    stet_bytes value;

    CHECK_OK(stet_state_read(e, &value, "account", key, name));
    if (!fixture_is(value, want))
        test_fail(__FILE__, __LINE__, "%s of %s is \"%.*s\", expected \"%s\"", name, key,
                  (int)value.len, (const char *)value.data, want);
    stet_free((void *)(uintptr_t)value.data);
}

/* ---- A2: exact ------------------------------------------------------------------------------- */

typedef struct deposits {
    stet_engine *engines[2];
    const char  *handler;
    int          each;
} deposits;

static void
race_deposits(void *arg, int i)
{
    deposits   *d = arg;
    stet_run_id runs[32];

    for (int n = 0; n < d->each; n++)
        runs[n] = fixture_start(d->engines[i % 2], d->handler, n % 2 ? "3" : "1",
                                STET_START(.key = "shared"));
    for (int n = 0; n < d->each; n++) {
        EXPECT_ANSWER(d->engines[i % 2], &runs[n], STET_OK);
    }
}

TEST(A2_concurrent_deposits_to_one_key_give_the_exact_balance)
{
    fixture *f = fixture_begin();
    deposits d = { { NULL, NULL }, "account.deposit", 20 };

    fixture_up(f, accounts);
    d.engines[0] = d.engines[1] = f->engine;
    fixture_race(16, race_deposits, &d);
    check_state(f->engine, "shared", "balance", "740");
    fixture_end(f);
}

TEST(A2_concurrent_deposits_are_exact_while_runs_suspend)
{
    fixture *f = fixture_begin();
    deposits d = { { NULL, NULL }, "account.slowly", 8 };

    f->options.parked_max = STET_NONE;
    fixture_up(f, accounts);
    d.engines[0] = d.engines[1] = f->engine;
    fixture_race(8, race_deposits, &d);
    check_state(f->engine, "shared", "balance", "228");
    fixture_end(f);
}

TEST(A2_deposits_are_exact_with_two_workers_on_the_store)
{
    fixture *f = fixture_begin();
    deposits d = { { NULL, NULL }, "account.deposit", 10 };

    fixture_up(f, accounts);
    d.engines[0] = f->engine;
    d.engines[1] = fixture_open(f);
    fixture_register(d.engines[1], accounts);
    CHECK_OK(stet_engine_start(d.engines[1]));
    fixture_race(8, race_deposits, &d);
    check_state(f->engine, "shared", "balance", "260");
    stet_close(d.engines[1]);
    fixture_end(f);
}

TEST(A2_a_retried_deposit_counts_once)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    atomic_store(&failures_left, 2);
    fixture_up(f, accounts);
    run = fixture_start(f->engine, "account.again", "5", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "105");
    check_state(f->engine, "k", "balance", "105");
    CHECK_INT(fixture_look(f->engine, &run).attempt, 3);
    fixture_end(f);
}

/* ---- A2: order ------------------------------------------------------------------------------- */

static void
check_order(const char *want)
{
    char *text = effects_text(), *save = NULL, got[512] = "";

    for (char *at = strtok_r(text, "\n", &save); at != NULL; at = strtok_r(NULL, "\n", &save))
        if (strncmp(at, "ran ", 4) == 0)
            (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", at + 4);
    free(text);
    CHECK_STR(got, want);
}

TEST(A2_runs_of_one_key_execute_in_the_order_they_became_visible)
{
    fixture    *f = fixture_begin();
    stet_run_id first, runs[12];
    char        want[64] = "first ", input[8];

    fixture_up(f, accounts);
    first = fixture_start(f->engine, "account.hold", "first", STET_START(.key = "k"));
    gate_await(&held, 1);
    for (int i = 0; i < 12; i++) {
        (void)snprintf(input, sizeof input, "%d", i);
        (void)snprintf(want + strlen(want), sizeof want - strlen(want), "%d ", i);
        runs[i] =
            fixture_start(f->engine, "account.order", input, STET_START(.key = "k", .priority = i));
    }
    CHECK_INT(effects("ran 0"), 0);
    gate_open(&held);
    EXPECT_RESULT(f->engine, &first, "");
    for (int i = 0; i < 12; i++)
        EXPECT_RESULT(f->engine, &runs[i], "");
    check_order(want);
    fixture_end(f);
}

TEST(A2_a_delayed_run_blocks_nobody_and_queues_when_it_becomes_visible)
{
    fixture    *f = fixture_begin();
    stet_run_id delayed, soon, now;

    fixture_up(f, accounts);
    delayed =
        fixture_start(f->engine, "account.order", "delayed", STET_START(.key = "k", .delay = "1h"));
    soon = fixture_start(f->engine, "account.order", "soon", STET_START(.key = "k", .delay = "2s"));
    now = fixture_start(f->engine, "account.order", "now", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &now, "");
    EXPECT_RESULT(f->engine, &soon, "");
    check_order("now soon ");
    CHECK_INT(fixture_look(f->engine, &delayed).status, STET_STATUS_PENDING);
    fixture_end(f);
}

TEST(A2_other_keys_go_on_in_parallel)
{
    fixture    *f = fixture_begin();
    stet_run_id one, two, three, behind;

    fixture_up(f, accounts);
    one = fixture_start(f->engine, "account.hold", "one", STET_START(.key = "one"));
    behind = fixture_start(f->engine, "account.order", "behind", STET_START(.key = "one"));
    two = fixture_start(f->engine, "account.hold", "two", STET_START(.key = "two"));
    gate_await(&held, 2); /* both bodies at one time */
    three = fixture_start(f->engine, "account.order", "three", STET_START(.key = "three"));
    EXPECT_RESULT(f->engine, &three, "");
    CHECK_CODE(stet_result_get(f->engine, NULL, &behind), STET_EOPEN);
    CHECK_INT(effects("ran behind"), 0);
    gate_open(&held);
    EXPECT_RESULT(f->engine, &one, "");
    EXPECT_RESULT(f->engine, &two, "");
    EXPECT_RESULT(f->engine, &behind, "");
    fixture_end(f);
}

TEST(A2_the_key_is_held_while_a_run_is_suspended_also_over_a_restart)
{
    fixture    *f = fixture_begin();
    stet_run_id first, second, third, other;

    fixture_up(f, accounts);
    first = fixture_start(f->engine, "account.waits", "first", STET_START(.key = "k"));
    second = fixture_start(f->engine, "account.order", "second", STET_START(.key = "k"));
    fixture_paused(f->engine, &first);
    other = fixture_start(f->engine, "account.order", "other", STET_START(.key = "l"));
    EXPECT_RESULT(f->engine, &other, "");
    fixture_down(f);
    fixture_up(f, accounts);
    third = fixture_start(f->engine, "account.order", "third", STET_START(.key = "k"));
    other = fixture_start(f->engine, "account.order", "other2", STET_START(.key = "l"));
    EXPECT_RESULT(f->engine, &other, "");
    CHECK_INT(fixture_look(f->engine, &second).status, STET_STATUS_PENDING);
    CHECK_INT(fixture_look(f->engine, &third).status, STET_STATUS_PENDING);
    fixture_go_on(f->engine, &first);
    EXPECT_RESULT(f->engine, &third, "");
    check_order("other other2 first second third ");
    fixture_end(f);
}

TEST(A2_the_key_is_held_during_the_backoff_of_a_failed_attempt)
{
    fixture    *f = fixture_begin();
    stet_run_id first, second;

    atomic_store(&failures_left, 1);
    fixture_up(f, accounts);
    first = fixture_start(f->engine, "account.fails", "first",
                          STET_START(.key = "k", .retry = { .first_ms = 150, .max_ms = 150 }));
    second = fixture_start(f->engine, "account.order", "second", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &second, "");
    EXPECT_RESULT(f->engine, &first, "");
    check_order("first second ");
    fixture_end(f);
}

TEST(A2_a_run_that_ends_badly_gives_its_key_back)
{
    fixture    *f = fixture_begin();
    stet_run_id cancelled, failed, waiting, last;

    atomic_store(&failures_left, 1);
    fixture_up(f, accounts);
    cancelled = fixture_start(f->engine, "account.waits", "cancelled", STET_START(.key = "k"));
    waiting = fixture_start(f->engine, "account.order", "waiting", STET_START(.key = "k"));
    failed = fixture_start(f->engine, "account.fails", "failed",
                           STET_START(.key = "k", .retry.attempts = 1));
    last = fixture_start(f->engine, "account.order", "last", STET_START(.key = "k"));
    fixture_paused(f->engine, &cancelled);
    CHECK_OK(stet_cancel(f->engine, &waiting, NULL, NULL)); /* one in the middle of the queue */
    CHECK_OK(stet_cancel(f->engine, &cancelled, NULL, NULL));
    EXPECT_RESULT(f->engine, &last, "");
    EXPECT_ANSWER(f->engine, &failed, STET_ERUN);
    check_order("last ");
    fixture_end(f);
}

/* ---- A2: refused ----------------------------------------------------------------------------- */

static const stet_handler plain_handlers[] = { { "plain", h_echo, NULL }, { 0 } };

TEST(A2_a_key_on_a_service_and_none_on_an_object_are_errors)
{
    const fixture_service services[] = { { "account", account_handlers, true, NULL },
                                         { "svc", plain_handlers, false, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    char                  large[600];

    memset(large, 'k', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    fixture_up(f, services);
    CHECK_CODE(stet_start(f->engine, NULL, "svc.plain", stet_text(""), STET_START(.key = "k")),
               STET_EKEY);
    CHECK_HAS(stet_last_error(), "svc.plain");
    CHECK_CODE(stet_start(f->engine, NULL, "account.deposit", stet_text("1"), NULL), STET_EKEY);
    CHECK_HAS(stet_last_error(), "account.deposit");
    CHECK_CODE(
        stet_start(f->engine, NULL, "account.deposit", stet_text("1"), STET_START(.key = "")),
        STET_EKEY);
    CHECK_CODE(
        stet_start(f->engine, NULL, "account.deposit", stet_text("1"), STET_START(.key = large)),
        STET_EKEY);
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    fixture_end(f);
}

static int
h_misplaced(stet_ctx *ctx, stet_bytes input)
{
    if (stet_state_set(ctx, "x", stet_text("1")) == STET_OK)
        effect("written");
    effect("misplaced");
    return stet_return(ctx, input);
}

/* Who starts them does not have the handlers, and no worker lives yet. */
TEST(A2_a_key_on_a_service_and_none_on_an_object_started_elsewhere_fail_before_any_code)
{
    static const stet_handler handlers[] = { { "run", h_misplaced, NULL }, { 0 } };
    const fixture_service     services[] = { { "account", handlers, true, NULL },
                                             { "svc", handlers, false, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               keyed, keyless;
    stet_engine              *client;
    stet_result               r;
    stet_bytes                value;

    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    keyed = fixture_start(client, "svc.run", "", STET_START(.key = "k"));
    keyless = fixture_start(client, "account.run", "", NULL);
    f->options.roles = 0;
    fixture_up(f, services);
    r = EXPECT_END(f->engine, &keyed, STET_ERUN);
    CHECK_INT(r.code, STET_EKEY);
    CHECK_HAS(r.error, "svc.run belongs to a service");
    stet_result_free(&r);
    r = EXPECT_END(f->engine, &keyless, STET_ERUN);
    CHECK_INT(r.code, STET_EKEY);
    CHECK_HAS(r.error, "account.run belongs to an object");
    stet_result_free(&r);
    CHECK_INT(effects("misplaced"), 0);
    /* Nothing is there. */
    CHECK_CODE(stet_state_read(client, &value, "svc", "k", "x"), STET_EKEY);
    stet_close(client);
    fixture_end(f);
}

/* call SERVICE.HANDLER KEY, as the input says: "b.call k b.call k2 …" */
static int
call_on(stet_ctx *ctx, stet_bytes input)
{
    char      *text = text_of(ctx, input), *rest;
    char      *handler = text, *key;
    stet_bytes out;
    int        code;

    if (text[0] == '\0')
        return stet_return(ctx, stet_text("end"));
    key = strchr(handler, ' ');
    *key++ = '\0';
    rest = key + strcspn(key, " ");
    if (*rest == ' ')
        *rest++ = '\0';
    code = stet_call(ctx, &out, handler, stet_text(rest),
                     strcmp(key, "-") == 0 ? NULL : STET_START(.key = key));
    if (code == STET_EDEADLOCK) {
        effect("refused");
        STET_TRY(stet_sleep(ctx, "replay", "1ms"));
        return stet_return(ctx, stet_text(stet_failure_get(ctx)->text));
    }
    STET_TRY(code);
    return stet_return(ctx, out);
}

static const stet_handler    call_handlers[] = { { "call", call_on, NULL }, { 0 } };
static const fixture_service callers[] = { { "a", call_handlers, true, NULL },
                                           { "b", call_handlers, true, NULL },
                                           { "s", call_handlers, false, NULL },
                                           { 0 } };

static void
check_deadlock(fixture *f, const char *input, const char *part)
{
    stet_run_id run = fixture_start(f->engine, "a.call", input, STET_START(.key = "k"));
    stet_result result = EXPECT_END(f->engine, &run, STET_OK);
    char        text[512];

    (void)snprintf(text, sizeof text, "%.*s", (int)result.value.len,
                   (const char *)result.value.data);
    CHECK_HAS(text, part);
    stet_result_free(&result);
}

TEST(A2_a_run_that_would_wait_for_a_key_its_callers_hold_is_refused_with_the_chain)
{
    fixture *f = fixture_begin();
    int      before;

    fixture_up(f, callers);
    check_deadlock(f, "a.call k", "a/k -> a/k");
    check_deadlock(f, "b.call k2 a.call k", "a/k -> b/k2 -> a/k");
    check_deadlock(f, "s.call - a.call k", "a/k -> a/k");
    check_deadlock(f, "b.call k2 s.call - b.call k2", "a/k -> b/k2 -> b/k2");
    before = fixture_count(f->engine, NULL);
    CHECK_INT(before, 8); /* the refused calls made no run */
    /* Other keys, and the same key of another object, are fine. */
    check_deadlock(f, "a.call k2", "end");
    check_deadlock(f, "b.call k", "end");
    check_deadlock(f, "b.call k a.call k2 b.call k3", "end");
    fixture_end(f);
}

TEST(A2_a_refusal_is_recorded_and_replayed)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up(f, callers);
    run = fixture_start(f->engine, "a.call", "a.call k", STET_START(.key = "k"));
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK_INT(effects("refused"), 2);
    CHECK_INT(fixture_facts(f->engine, &run, "call", NULL), 1);
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    fixture_end(f);
}

static int
sends_to_itself(stet_ctx *ctx, stet_bytes input)
{
    if (fixture_is(input, "end"))
        return stet_step(ctx, NULL, "order", body_order, (void *)"end", NULL);
    STET_TRY(
        stet_send(ctx, NULL, "a.send", stet_text("end"), STET_START(.key = stet_info(ctx)->key)));
    return stet_step(ctx, NULL, "order", body_order, (void *)"begin", NULL);
}

TEST(A2_a_run_may_send_to_its_own_key)
{
    static const stet_handler handlers[] = { { "send", sends_to_itself, NULL }, { 0 } };
    const fixture_service     services[] = { { "a", handlers, true, NULL }, { 0 } };
    fixture                  *f = fixture_begin();

    fixture_up(f, services);
    (void)fixture_start(f->engine, "a.send", "begin", STET_START(.key = "k"));
    effects_await("ran end", 1);
    check_order("begin end ");
    fixture_end(f);
}

/* ---- B7 -------------------------------------------------------------------------------------- */

static int
state_tour(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes balance, owner, none, again;

    (void)input;
    STET_TRY(stet_state_get(ctx, &balance, "balance"));
    STET_TRY(stet_state_get(ctx, &owner, "owner"));
    STET_TRY(stet_state_get(ctx, &none, "nothing"));
    effect("initial %d %d %d", fixture_is(balance, "100"), owner.data != NULL && owner.len == 0,
           none.data == NULL);
    STET_TRY(stet_state_set(ctx, "balance", stet_text("7")));
    STET_TRY(stet_state_get(ctx, &again, "balance"));
    effect("own write %d", fixture_is(again, "7"));
    STET_TRY(stet_state_clear(ctx, "owner"));
    STET_TRY(stet_state_get(ctx, &again, "owner"));
    effect("cleared %d", again.data == NULL);
    STET_TRY(stet_state_set(ctx, "owner", stet_text("me")));
    STET_TRY(stet_state_clear(ctx, "owner"));
    STET_TRY(stet_state_set(ctx, "extra", (stet_bytes){ "\0x", 2 }));
    STET_TRY(stet_state_set(ctx, "empty", stet_text("")));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_state_get(ctx, &again, "balance"));
    effect("after %d", fixture_is(again, "7"));
    return stet_state_set(ctx, "balance", stet_text("8"));
}

static int
count_entries(void *arg, const char *name, stet_bytes value)
{
    effect("entry %s %zu", name, value.len);
    ++*(int *)arg;
    return 0;
}

/* A name that is spelt wrong must not look like an object that is empty; also where the handlers
 * are not. */
TEST(B7_state_of_what_is_no_object_is_refused)
{
    static const stet_handler handlers[] = { { "run", h_misplaced, NULL }, { 0 } };
    const fixture_service     services[] = { { "account", handlers, true, NULL },
                                             { "svc", handlers, false, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *client, *asked[2];
    stet_bytes                value;
    int                       n = 0;

    fixture_up(f, services);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    asked[0] = f->engine;
    asked[1] = client;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(stet_state_list(asked[i], "account", "k", count_entries, &n));
        CHECK_CODE(stet_state_read(asked[i], &value, "account", "k", "x"), STET_ENOTFOUND);
        CHECK_HAS(stet_last_error(), "has no entry x");
        CHECK_CODE(stet_state_list(asked[i], "svc", "k", count_entries, &n), STET_EKEY);
        CHECK_CODE(stet_state_list(asked[i], "acount", "k", count_entries, &n), STET_ENOTFOUND);
        CHECK_CODE(stet_state_read(asked[i], &value, "acount", "k", "x"), STET_ENOTFOUND);
        CHECK_HAS(stet_last_error(), "no object acount is known");
    }
    CHECK_INT(n, 0);
    stet_close(client);
    fixture_end(f);
}

TEST(B7_state_is_read_set_and_cleared_and_a_replay_sees_the_same)
{
    static const stet_handler handlers[] = { { "tour", state_tour, NULL }, { 0 } };
    const fixture_service     services[] = { { "account", handlers, true, initial }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_bytes                value;
    int                       n = 0;

    fixture_up(f, services);
    check_state(f->engine, "k", "balance",
                "100"); /* the initial state counts before the first run */
    run = fixture_start(f->engine, "account.tour", "", STET_START(.key = "k"));
    fixture_paused(f->engine, &run);
    check_state(f->engine, "k", "balance", "7"); /* committed while it is suspended */
    fixture_replay(f, &run, services);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("initial 1 1 1"), 2);
    CHECK_INT(effects("own write 1"), 2);
    CHECK_INT(effects("cleared 1"), 2);
    CHECK_INT(effects("after 1"), 1);
    check_state(f->engine, "k", "balance", "8");
    check_state(f->engine, "k", "empty", "");
    CHECK_OK(stet_state_read(f->engine, &value, "account", "k", "extra"));
    CHECK(value.len == 2 && memcmp(value.data, "\0x", 2) == 0);
    stet_free((void *)(uintptr_t)value.data);
    CHECK_CODE(stet_state_read(f->engine, &value, "account", "k", "owner"), STET_ENOTFOUND);
    CHECK_CODE(stet_state_read(f->engine, &value, "account", "k", "nothing"), STET_ENOTFOUND);
    check_state(f->engine, "other", "balance", "100");
    CHECK_OK(stet_state_list(f->engine, "account", "k", count_entries, &n));
    CHECK_INT(effects("entry balance 1"), 1);
    CHECK_INT(effects("entry empty 0"), 1);
    CHECK_INT(effects("entry extra 2"), 1);
    CHECK_INT(effects("entry owner 0"), 0);
    CHECK_INT(n, 3);
    fixture_end(f);
}

static int
reads(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "owner"));
    return stet_return_json(ctx, "%d", value.data == NULL ? -1 : (int)value.len);
}

TEST(B7_a_cleared_entry_does_not_fall_back_to_the_initial_state)
{
    static const stet_handler handlers[] = { { "tour", state_tour, NULL },
                                             { "reads", reads, NULL },
                                             { 0 } };
    const fixture_service     services[] = { { "account", handlers, true, initial }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "account.reads", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "0");
    run = fixture_start(f->engine, "account.tour", "", STET_START(.key = "k"));
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "");
    run = fixture_start(f->engine, "account.reads", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "-1");
    fixture_down(f);
    fixture_up(f, services);
    run = fixture_start(f->engine, "account.reads", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "-1");
    fixture_end(f);
}

static int
clears(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_state_clear(ctx, "owner");
}

TEST(B7_a_run_that_works_ahead_sees_what_the_one_before_wrote_and_cleared)
{
    static const stet_handler handlers[] = { { "hold", hold, NULL },
                                             { "clears", clears, NULL },
                                             { "reads", reads, NULL },
                                             { "deposit", deposit, NULL },
                                             { 0 } };
    const fixture_service     services[] = { { "account", handlers, true, initial }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               before, after, clear, deposits_[3];

    fixture_up(f, services);
    (void)fixture_start(f->engine, "account.hold", "", STET_START(.key = "k"));
    gate_await(&held, 1); /* so the others queue up behind it */
    before = fixture_start(f->engine, "account.reads", "", STET_START(.key = "k"));
    clear = fixture_start(f->engine, "account.clears", "", STET_START(.key = "k"));
    after = fixture_start(f->engine, "account.reads", "", STET_START(.key = "k"));
    for (int i = 0; i < 3; i++)
        deposits_[i] = fixture_start(f->engine, "account.deposit", "10", STET_START(.key = "k"));
    gate_open(&held);
    EXPECT_RESULT(f->engine, &before, "0");
    EXPECT_RESULT(f->engine, &clear, "");
    EXPECT_RESULT(f->engine, &after, "-1");
    EXPECT_RESULT(f->engine, &deposits_[0], "110");
    EXPECT_RESULT(f->engine, &deposits_[2], "130");
    fixture_end(f);
}

static int
writes_then_fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_state_set(ctx, "balance", stet_text("1")));
    return stet_fail(ctx, STET_EPERMANENT, "after the write");
}

TEST(B7_what_a_failed_run_wrote_and_recorded_stays)
{
    static const stet_handler handlers[] = { { "fails", writes_then_fails, NULL }, { 0 } };
    const fixture_service     services[] = { { "account", handlers, true, initial }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "account.fails", "", STET_START(.key = "k"));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    /* Facts are never taken back: the write is in the journal, so it is in the state. */
    CHECK_INT(fixture_facts(f->engine, &run, "state set", "balance"), 1);
    check_state(f->engine, "k", "balance", "1");
    fixture_end(f);
}

static int
state_misuse(stet_ctx *ctx, stet_bytes input)
{
    char       large[2000] = { 0 };
    stet_bytes value;

    (void)input;
    if (stet_info(ctx)->key == NULL) {
        CHECK_CODE(stet_state_get(ctx, &value, "x"), STET_EKEY);
        CHECK_CODE(stet_state_set(ctx, "x", stet_text("1")), STET_EKEY);
        CHECK_CODE(stet_state_clear(ctx, "x"), STET_EKEY);
    } else {
        CHECK_CODE(stet_state_get(ctx, &value, ""), STET_ENAME);
        CHECK_CODE(stet_state_set(ctx, "__x", stet_text("1")), STET_ENAME);
        CHECK_CODE(stet_state_clear(ctx, "a\nb"), STET_ENAME);
        CHECK_CODE(stet_state_set(ctx, "x", (stet_bytes){ large, sizeof large }), STET_ETOOBIG);
        CHECK_HAS(stet_last_error(), "payload_bytes_max, 1000");
    }
    return stet_return(ctx, stet_text("unharmed"));
}

TEST(B7_misuse_of_state_is_refused_and_changes_nothing)
{
    static const stet_handler handlers[] = { { "misuse", state_misuse, NULL }, { 0 } };
    const fixture_service     services[] = { { "obj", handlers, true, NULL },
                                             { "svc", handlers, false, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_bytes                value;
    int                       n = 0;

    f->options.payload_bytes_max = 1000;
    fixture_up(f, services);
    run = fixture_start(f->engine, "svc.misuse", "", NULL);
    EXPECT_RESULT(f->engine, &run, "unharmed");
    run = fixture_start(f->engine, "obj.misuse", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "unharmed");
    CHECK_OK(stet_state_list(f->engine, "obj", "k", count_entries, &n));
    CHECK_INT(n, 0);
    CHECK_CODE(stet_state_read(f->engine, &value, "obj", "k", "x"), STET_ENOTFOUND);
    fixture_end(f);
}
