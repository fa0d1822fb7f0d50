/* Cancel: in every status, its waiters, its children, what comes too late. Row C4. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

/* ---- C4: cancel ------------------------------------------------------------------------------ */

typedef struct c4_waiter {
    stet_engine *engine;
    stet_run_id  run;
    pthread_t    thread;
    int          answer;
    _Atomic bool is_done;
} c4_waiter;

static void *
c4_wait(void *arg)
{
    c4_waiter *w = arg;

    w->answer = stet_wait(w->engine, NULL, &w->run, 0);
    atomic_store(&w->is_done, true);
    return NULL;
}

static void
c4_wait_begin(c4_waiter *w, stet_engine *e, const stet_run_id *run)
{
    memset(w, 0, sizeof *w);
    w->engine = e;
    w->run = *run;
    pthread_create(&w->thread, NULL, c4_wait, w);
}

static void
c4_wait_end(c4_waiter *w, int answer)
{
    pthread_join(w->thread, NULL);
    CHECK_CODE(w->answer, answer);
}

typedef struct c4_seen {
    const char *kind, *part;
    int         n;
} c4_seen;

static int
c4_look_for(void *arg, const stet_fact_info *fact)
{
    c4_seen *s = arg;

    s->n += strcmp(fact->kind, s->kind) == 0 && fact->text != NULL &&
            strstr(fact->text, s->part) != NULL;
    return 0;
}

static int
facts_with(stet_engine *e, const stet_run_id *run, const char *kind, const char *part)
{
    c4_seen s = { kind, part, 0 };

    CHECK_OK(stet_run_facts(e, run, false, c4_look_for, &s));
    return s.n;
}

/* After a cancel of a run that never executed: ended at once, with who and why, and it never
 * executes. */
static void
c4_expect_never_executed(stet_engine *e, const stet_run_id *run)
{
    stet_result r = EXPECT_END(e, run, STET_ECANCELLED);

    CHECK_INT(r.status, STET_STATUS_CANCELLED);
    CHECK_INT(r.code, STET_ECANCELLED);
    CHECK_HAS(r.error, "not wanted");
    CHECK_INT(facts_with(e, run, "cancelled", "not wanted"), 1);
    CHECK_INT(fixture_facts(e, run, "claimed", NULL), 0);
    CHECK_OK(stet_cancel(e, run, "ann", "again"));
    stet_result_free(&r);
}

static const stet_handler c4_handlers[] = { { "quick", h_quick, NULL },
                                            { "nap", h_hour, NULL },
                                            { 0 } };

TEST(C4_cancel_of_a_pending_run)
{
    fixture    *f = fixture_begin();
    c4_waiter   w;
    stet_run_id run;

    f->engine = fixture_open(f); /* not started: nobody takes it */
    CHECK_OK(stet_register(f->engine, "t", c4_handlers));
    run = fixture_start(f->engine, "t.quick", "", NULL);
    c4_wait_begin(&w, f->engine, &run);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "not wanted"));
    c4_wait_end(&w, STET_ECANCELLED);
    c4_expect_never_executed(f->engine, &run);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("quick"), 1);
    fixture_end(f);
}

TEST(C4_cancel_of_a_delayed_run)
{
    const fixture_service services[] = { { "t", c4_handlers, false, NULL },
                                         { "o", c4_handlers, true, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    stet_run_id           plain, keyed, next;

    fixture_up(f, services);
    plain = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    keyed = fixture_start(f->engine, "o.quick", "", STET_START(.key = "k", .delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &plain, "ann", "not wanted"));
    CHECK_OK(stet_cancel(f->engine, &keyed, "ann", "not wanted"));
    c4_expect_never_executed(f->engine, &plain);
    c4_expect_never_executed(f->engine, &keyed);
    next = fixture_start(f->engine, "o.quick", "after", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &next, "after");
    fixture_end(f);
}

static gate c4_door = GATE_INIT;

static int
h_at_door(stet_ctx *ctx, stet_bytes input)
{
    int err;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &c4_door, NULL));
    err = stet_step(ctx, NULL, "next", body_effect, (void *)"next", NULL);
    if (err == STET_SUSPENDED)
        return err;
    effect("told %s: %s", stet_code_name(err) != NULL ? stet_code_name(err) : "ok",
           stet_failure_get(ctx)->text);
    STET_TRY(stet_step(ctx, NULL, "undo", body_effect, (void *)"undo", NULL));
    STET_TRY(stet_sleep_ms(ctx, "breath", 1));
    STET_TRY(stet_step(ctx, NULL, "undo", body_effect, (void *)"undo 2", NULL));
    return err;
}

TEST(C4_cancel_of_a_running_run_releases_waiters_before_the_handler_knows_and_lets_it_compensate)
{
    static const stet_handler handlers[] = { { "door", h_at_door, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    c4_waiter                 here, there;
    stet_engine              *other;
    stet_run_id               run;
    stet_result               r;

    fixture_up_with(f, handlers);
    other = fixture_open(f);
    run = fixture_start(f->engine, "t.door", "", NULL);
    gate_await(&c4_door, 1);
    c4_wait_begin(&here, f->engine, &run);
    c4_wait_begin(&there, other, &run);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "changed my mind"));
    c4_wait_end(&here, STET_ECANCELLED);
    c4_wait_end(&there, STET_ECANCELLED);
    CHECK_CODE(stet_result_get(f->engine, NULL, &run), STET_ECANCELLED);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_CANCELLING);
    CHECK_OK(stet_cancel(f->engine, &run, "bob", "me too"));
    gate_open(&c4_door);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(effects("next"), 0);
    CHECK(effects("told STET_ECANCELLED: changed my mind") >= 1);
    CHECK_INT(effects("undo"), 1);
    CHECK_INT(effects("undo 2"), 1);
    CHECK_INT(facts_with(f->engine, &run, "cancel asked", "changed my mind"), 1);
    CHECK_INT(facts_with(f->engine, &run, "cancel asked", "me too"), 0);
    r = EXPECT_END(other, &run, STET_ECANCELLED);
    CHECK_HAS(r.error, "changed my mind");
    stet_result_free(&r);
    stet_close(other);
    fixture_end(f);
}

static int
h_told_once(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_sleep(ctx, "long", "1h");

    (void)input;
    if (err == STET_SUSPENDED)
        return err;
    effect("first %s", stet_code_name(err));
    err = stet_sleep(ctx, "short", "1ms");
    if (err == STET_SUSPENDED)
        return err;
    effect("second %d", err);
    return stet_return(ctx, stet_text("too late"));
}

TEST(C4_cancel_of_a_suspended_run_is_told_once_and_its_result_does_not_count)
{
    static const stet_handler handlers[] = { { "h", h_told_once, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "enough"));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK(effects("first STET_ECANCELLED") >= 1);
    CHECK(effects("second 0") >= 1);
    CHECK_STR(fixture_look(f->engine, &run).result, "");
    fixture_end(f);
}

TEST(C4_cancel_of_a_retrying_run_does_not_wait_for_the_backoff)
{
    static const stet_handler handlers[] = { { "fails", h_unlucky, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.fails", "",
                        STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "enough"));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    fixture_end(f);
}

static gate        heir_door;
static atomic_bool heir_is_second;

/* Has no result in the run that is tried again, so its retry starts it anew, and in no other
 * either. */
static int
body_heir_slow(stet_attempt *a, void *arg)
{
    (void)arg;
    gate_pass(&heir_door);
    return stet_attempt_fail(a, STET_EBUSY, "not now");
}

static int
body_heir_next(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("next");
    return stet_attempt_fail(a, STET_EBUSY, "not now");
}

static int
h_heir(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[2];
    size_t       chosen;
    int          err;

    (void)input;
    STET_TRY(stet_step_start(ctx, &futures[0], "quick", body_effect, "quick", NULL));
    err = stet_step_start(ctx, &futures[1], "slow", body_heir_slow, NULL, NULL);
    if (err == STET_ECANCELLED)
        effect("told at slow");
    STET_TRY(err);
    STET_TRY(stet_await_any(ctx, &chosen, futures, 2, "1h"));
    gate_open(&heir_door);
    if (!atomic_exchange(&heir_is_second, true))
        return stet_fail(ctx, STET_EPERMANENT, "broken");
    err = stet_step(ctx, NULL, "next", body_heir_next, NULL, NULL);
    if (err == STET_ECANCELLED)
        effect("told at next");
    return err;
}

/* What was chosen was inherited, and its first execution went past it. */
TEST(C4_C3_a_retry_is_told_of_its_cancel_behind_the_choices_it_inherited_and_went_past)
{
    static const stet_handler handlers[] = { { "heir", h_heir, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, again;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.heir", "",
                        STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    fixture_await_status(f->engine, &again, STET_STATUS_RETRYING);
    CHECK_OK(stet_cancel(f->engine, &again, "ann", "enough"));
    fixture_await_status(f->engine, &again, STET_STATUS_CANCELLED);
    CHECK_INT(effects("quick"), 1);
    CHECK_INT(effects("next"), 1);
    CHECK_INT(effects("told at slow"), 0);
    CHECK_INT(effects("told at next"), 1);
    fixture_end(f);
}

static gate spent_door;

static int
body_spent(stet_attempt *a, void *arg)
{
    (void)arg;
    gate_pass(&spent_door);
    return stet_attempt_fail(a, STET_EBUSY, "not now");
}

static int
undo_spent(stet_attempt *a, stet_bytes result)
{
    (void)a;
    (void)result;
    effect("undone");
    return STET_OK;
}

static int
h_spent(stet_ctx *ctx, stet_bytes input)
{
    stet_future *own, *inherited;

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step_start(ctx, &own, "own", body_spent, NULL, NULL));
    STET_TRY(stet_step_start(ctx, &inherited, "inherited", body_effect, "done",
                             STET_STEP(.undo = undo_spent)));
    STET_TRY(stet_await(ctx, NULL, inherited));
    return stet_await(ctx, NULL, own);
}

/* Told before that it could not be rolled back: what failed had come further. */
TEST(C4_C3_B11_a_retry_is_told_of_its_cancel_behind_the_steps_that_a_failed_attempt_inherited)
{
    static const stet_handler handlers[] = { { "spent", h_spent, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, again;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.spent", "",
                        STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
    gate_await(&spent_door, 1);
    AWAIT(fixture_facts(f->engine, &run, "step", "inherited") == 1);
    CHECK_OK(stet_run_fail(f->engine, &run, "ann", "again"));
    gate_open(&spent_door);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    fixture_await_status(f->engine, &again, STET_STATUS_RETRYING);
    CHECK_OK(stet_cancel(f->engine, &again, "ann", "enough"));
    fixture_await_status(f->engine, &again, STET_STATUS_CANCELLED);
    CHECK_INT(effects("done"), 1);
    CHECK_INT(effects("undone"), 1);
    fixture_end(f);
}

static stet_engine          *late_worker;
static const stet_store_ops *late_store;
static stet_run_id           late_run;
static atomic_bool           is_late, was_asleep;

static int
h_naps_and_fails(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "nap", input.data));
    return stet_fail(ctx, STET_EBUSY, "not now");
}

/* What was decided about a run that sleeps comes when it has failed, and waits for its next try. */
static int
commit_when_it_has_failed(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    if (atomic_exchange(&is_late, false)) {
        atomic_store(&was_asleep,
                     fixture_look(late_worker, &late_run).status == STET_STATUS_SUSPENDED);
        fixture_await_status(late_worker, &late_run, STET_STATUS_RETRYING);
    }
    return late_store->commit(s, units, n, outcomes);
}

TEST(C4_a_cancel_of_a_run_that_fails_meanwhile_does_not_wait_for_the_backoff)
{
    static const stet_handler_options patient = { .retry = { 5, 3600000, 3600000, 100, 0 } };
    static const stet_handler         nappers[] = { { "naps", h_naps_and_fails, &patient }, { 0 } };
    fixture                          *f = fixture_begin();
    stet_engine                      *client = fixture_open(f);
    int64_t                           nap_ms = 100;
    char                              nap[32];

    fixture_up_with(f, nappers);
    late_worker = f->engine;
    late_store = client->store->ops;
    damage_ops(client)->commit = commit_when_it_has_failed;
    while (!atomic_load(&was_asleep)) { /* until the nap is longer than it takes to ask */
        nap_ms *= 2;
        (void)snprintf(nap, sizeof nap, "%lldms", (long long)nap_ms);
        late_run = fixture_start(f->engine, "t.naps", nap, NULL);
        AWAIT(fixture_facts(f->engine, &late_run, "sleep", "nap") == 1);
        atomic_store(&is_late, true);
        CHECK_OK(stet_cancel(client, &late_run, "ann", "enough"));
        fixture_await_status(client, &late_run, STET_STATUS_CANCELLED);
    }
    stet_close(client);
    fixture_end(f);
}

static gate c4_lane_door = GATE_INIT;

static int
h_hold(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "hold", body_gate, &c4_lane_door, NULL));
    return stet_return(ctx, input);
}

TEST(C4_cancel_of_a_run_that_waits_in_its_lane)
{
    static const stet_handler handlers[] = { { "hold", h_hold, NULL },
                                             { "quick", h_quick, NULL },
                                             { 0 } };
    const fixture_service     services[] = { { "o", handlers, true, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               holder, waits_, last;

    fixture_up(f, services);
    holder = fixture_start(f->engine, "o.hold", "h", STET_START(.key = "k"));
    gate_await(&c4_lane_door, 1);
    waits_ = fixture_start(f->engine, "o.quick", "w", STET_START(.key = "k"));
    last = fixture_start(f->engine, "o.quick", "l", STET_START(.key = "k"));
    CHECK_OK(stet_cancel(f->engine, &waits_, "ann", "not wanted"));
    c4_expect_never_executed(f->engine, &waits_);
    gate_open(&c4_lane_door);
    EXPECT_RESULT(f->engine, &holder, "h");
    EXPECT_RESULT(f->engine, &last, "l");
    CHECK_INT(effects("quick"), 1);
    fixture_end(f);
}

static char c4_sent[STET_ID_TEXT_MAX];

static int
body_keep_sent(stet_attempt *a, void *arg)
{
    (void)a;
    (void)snprintf(c4_sent, sizeof c4_sent, "%s", (const char *)arg);
    effect("sent");
    return STET_OK;
}

static int
h_parent(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id sent;

    (void)input;
    STET_TRY(stet_send(ctx, &sent, "t.nap", stet_text("sent"), NULL));
    STET_TRY(stet_step(ctx, NULL, "tell", body_keep_sent, sent.text, NULL));
    return stet_call(ctx, NULL, "t.child", stet_text("called"), NULL);
}

static int
h_child(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "t.nap", stet_text("grandchild"), NULL);
}

static const stet_handler c4_family[] = {
    { "parent", h_parent, NULL }, { "child", h_child, NULL }, { "nap", h_hour, NULL }, { 0 }
};

static int
c4_is_input(void *arg, const stet_run_info *i)
{
    void **args = arg;

    if (i->input.len == strlen(args[0]) && memcmp(i->input.data, args[0], i->input.len) == 0)
        CHECK_OK(stet_run_id_parse(args[1], i->id));
    return 0;
}

static stet_run_id
run_with_input(stet_engine *e, const char *input)
{
    stet_run_id run = { "" };
    void       *args[] = { (void *)(uintptr_t)input, &run };

    CHECK_OK(stet_run_list(e, STET_FILTER(.with_payloads = true), c4_is_input, args));
    return run;
}

TEST(C4_called_children_are_cancelled_and_sent_ones_are_not)
{
    fixture    *f = fixture_begin();
    stet_run_id parent, child, grandchild, sent;

    fixture_up_with(f, c4_family);
    parent = fixture_start(f->engine, "t.parent", "", NULL);
    AWAIT(run_with_input(f->engine, "grandchild").text[0] != '\0');
    grandchild = run_with_input(f->engine, "grandchild");
    child = run_with_input(f->engine, "called");
    fixture_await_status(f->engine, &grandchild, STET_STATUS_SUSPENDED);
    effects_await("sent", 1);
    CHECK_OK(stet_run_id_parse(&sent, c4_sent));
    CHECK_OK(stet_cancel(f->engine, &parent, "ann", "stop it all"));
    EXPECT_ANSWER(f->engine, &parent, STET_ECANCELLED);
    EXPECT_ANSWER(f->engine, &child, STET_ECANCELLED);
    EXPECT_ANSWER(f->engine, &grandchild, STET_ECANCELLED);
    fixture_await_status(f->engine, &parent, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &child, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &grandchild, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &sent, STET_STATUS_SUSPENDED);
    fixture_end(f);
}

static int
h_call_backoff(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "t.fails", stet_text("called"),
                     STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
}

static int
h_call_delayed(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "t.quick", stet_text("called"), STET_START(.delay = "1h"));
}

static int
h_call_lane(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "o.quick", stet_text("called"), STET_START(.key = "k"));
}

static gate c4_child_door = GATE_INIT;

static int
h_hold_key(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "hold", body_gate, &c4_child_door, NULL));
    return stet_return(ctx, input);
}

TEST(C4_called_children_that_do_not_execute_are_cancelled_too)
{
    static const stet_handler plain[] = {
        { "backoff", h_call_backoff, NULL }, { "delayed", h_call_delayed, NULL },
        { "lane", h_call_lane, NULL },       { "fails", h_unlucky, NULL },
        { "quick", h_quick, NULL },          { 0 }
    };
    static const stet_handler keyed[] = {
        { "quick", h_quick, NULL }, { "hold", h_hold_key, NULL }, { "next", h_echo, NULL }, { 0 }
    };
    static const char *const parents[] = { "t.backoff", "t.delayed", "t.lane" };
    const fixture_service    services[] = { { "t", plain, false, NULL },
                                            { "o", keyed, true, NULL },
                                            { 0 } };
    fixture                 *f;

    for (int i = 0; i < 3; i++) {
        stet_run_id parent, child;

        f = fixture_begin();
        fixture_up(f, services);
        if (i == 2) {
            (void)fixture_start(f->engine, "o.hold", "", STET_START(.key = "k"));
            gate_await(&c4_child_door, 1);
        }
        parent = fixture_start(f->engine, parents[i], "", NULL);
        AWAIT(run_with_input(f->engine, "called").text[0] != '\0');
        child = run_with_input(f->engine, "called");
        if (i == 0)
            fixture_await_status(f->engine, &child, STET_STATUS_RETRYING);
        fixture_await_status(f->engine, &parent, STET_STATUS_SUSPENDED);
        CHECK_OK(stet_cancel(f->engine, &parent, "ann", "stop it all"));
        fixture_await_status(f->engine, &parent, STET_STATUS_CANCELLED);
        EXPECT_ANSWER(f->engine, &child, STET_ECANCELLED);
        fixture_await_status(f->engine, &child, STET_STATUS_CANCELLED);
        if (i == 2) { /* while the key was held; and its place in the lane keeps nobody up */
            stet_run_id next = fixture_start(f->engine, "o.next", "free", STET_START(.key = "k"));

            CHECK_CODE(stet_result_get(f->engine, NULL, &next), STET_EOPEN);
            gate_open(&c4_child_door);
            EXPECT_RESULT(f->engine, &next, "free");
        }
        CHECK_INT(effects("quick"), 0);
        fixture_end(f);
        if (!getenv("STET_TEST_STORE") || strcmp(getenv("STET_TEST_STORE"), "sqlite") != 0)
            continue;
        fixture_wipe();
    }
}

static int
h_awaits(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;
    stet_bytes   out;

    STET_TRY(fixture_hand_out(ctx, &future));
    STET_TRY(stet_await_for(ctx, &out, future, input.data));
    return stet_return(ctx, out);
}

static int
h_long_nap(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "nap", input.data));
    return stet_return(ctx, stet_text("woke"));
}

TEST(C4_later_timers_and_signals_change_nothing)
{
    static const stet_handler handlers[] = { { "awaits", h_awaits, NULL },
                                             { "nap", h_long_nap, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    int64_t                   time_ms = 500;
    char                      time[32];
    stet_run_id               run, sleeper, clock_;
    fixture_run               before, after;

    fixture_up_with(f, handlers);
    for (int n = 1;; n++) { /* until they are cancelled before their timers fire */
        time_ms *= 2;
        (void)snprintf(time, sizeof time, "%lldms", (long long)time_ms);
        run = fixture_start(f->engine, "t.awaits", time, NULL);
        sleeper = fixture_start(f->engine, "t.nap", time, NULL);
        effects_await("handed out", n);
        if (stet_cancel(f->engine, &run, "ann", "enough") == STET_OK &&
            stet_cancel(f->engine, &sleeper, "ann", "enough") == STET_OK &&
            stet_wait(f->engine, NULL, &run, 0) == STET_ECANCELLED &&
            stet_wait(f->engine, NULL, &sleeper, 0) == STET_ECANCELLED &&
            fixture_facts(f->engine, &run, "timer fired", NULL) +
                    fixture_facts(f->engine, &sleeper, "timer fired", NULL) ==
                0)
            break;
    }
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &sleeper, STET_STATUS_CANCELLED);
    before = fixture_look(f->engine, &run);
    clock_ =
        fixture_start(f->engine, "t.nap", time, NULL); /* wakes after all timers of the others */
    CHECK_CODE(stet_resolve(f->engine, handed_out, stet_text("yes")), STET_EENDED);
    CHECK_CODE(stet_reject(f->engine, handed_out, "no"), STET_EENDED);
    EXPECT_RESULT(f->engine, &clock_, "woke");
    after = fixture_look(f->engine, &run);
    CHECK_INT(after.facts, before.facts);
    CHECK_INT(after.status, STET_STATUS_CANCELLED);
    CHECK_INT(after.ended_ms, before.ended_ms);
    EXPECT_ANSWER(f->engine, &sleeper, STET_ECANCELLED);
    fixture_end(f);
}

TEST(C4_cancel_of_what_ended_or_never_was_is_refused)
{
    fixture    *f = fixture_begin();
    stet_run_id run, bad;

    fixture_up_with(f, c4_handlers);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_CODE(stet_cancel(f->engine, &run, "ann", "late"), STET_EENDED);
    CHECK_HAS(stet_last_error(), run.text);
    CHECK_HAS(stet_last_error(), "completed");
    CHECK_OK(stet_run_id_make(f->engine, &bad));
    CHECK_CODE(stet_cancel(f->engine, &bad, NULL, NULL), STET_ENOTFOUND);
    EXPECT_RESULT(f->engine, &run, "");
    fixture_end(f);
}

TEST(C4_a_cancel_that_races_with_the_end_never_gives_two_answers)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    int          cancelled = 0, completed = 0;

    fixture_up_with(f, c4_handlers);
    other = fixture_open(f);
    for (int i = 0; i < 150; i++) {
        stet_run_id   run = fixture_start(f->engine, "t.quick", "v", NULL);
        c4_waiter     w;
        int           cancel, answer;
        volatile long spin = 0;

        c4_wait_begin(&w, f->engine, &run);
        while (spin < (i % 15) * 20000)
            spin++;
        cancel = stet_cancel(i % 2 ? f->engine : other, &run, "ann", "race");
        answer = stet_wait(f->engine, NULL, &run, 0);
        CHECK(cancel == STET_OK || cancel == STET_EENDED);
        CHECK_INT(answer, cancel == STET_OK ? STET_ECANCELLED : STET_OK);
        c4_wait_end(&w, answer);
        CHECK_CODE(stet_wait(other, NULL, &run, 0), answer);
        if (answer == STET_OK)
            completed++;
        else {
            cancelled++;
            fixture_await_status(other, &run, STET_STATUS_CANCELLED);
        }
        CHECK_CODE(stet_wait(other, NULL, &run, 0), answer);
        CHECK_INT(fixture_look(other, &run).status,
                  answer == STET_OK ? STET_STATUS_COMPLETED : STET_STATUS_CANCELLED);
    }
    test_note("%d cancelled, %d completed", cancelled, completed);
    stet_close(other);
    fixture_end(f);
}

/* ---- C4: a cancel that cannot be seen is not "none" ------------------------------------------ */

static atomic_int unseen_calls; /* the inbox read at which it reaches 0 fails */
static int (*unseen_inbox)(stet_store *s, stet_id run, uint64_t from, size_t limit,
                           stet_facts_fn fn, void *arg);

static int
inbox_fails(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    if (atomic_fetch_sub(&unseen_calls, 1) == 1)
        return stet__fail(STET_EIO, "the inbox cannot be read");
    return unseen_inbox(s, run, from, limit, fn, arg);
}

static int
on_unseen(void *arg, const stet_finding *finding)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "found: %s", finding->text);
}

static int
unseen_result(stet_engine *e, const stet_run_id *run)
{
    stet_result result;
    int         err = stet_result_get(e, &result, run);

    stet_result_free(&result);
    return err;
}

static int
unseen_cancel(stet_engine *e, const stet_run_id *run)
{
    return stet_cancel(e, run, "two", "again");
}

static int
unseen_verify(stet_engine *e, const stet_run_id *run)
{
    (void)run;
    return stet_verify(e, NULL, on_unseen, NULL);
}

/* With each of its reads failing in turn, a call says so; with none it says what is so. Returns how
 * many. */
static int
unseen_walk(stet_engine *e, const stet_run_id                       *run,
            int (*call)(stet_engine *e, const stet_run_id *run), int want)
{
    for (int at = 1;; at++) {
        int code;

        atomic_store(&unseen_calls, at);
        code = call(e, run);
        if (atomic_load(&unseen_calls) > 0) {
            CHECK_CODE(code, want);
            atomic_store(&unseen_calls, 0);
            return at - 1;
        }
        CHECK_CODE(code, STET_EIO);
    }
}

TEST(C4_a_read_that_fails_is_told_and_not_taken_for_no_cancel)
{
    static const stet_handler handlers[] = { { "h", h_pauses, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_engine              *other;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "", NULL);
    fixture_paused(f->engine, &run);
    fixture_down(f); /* nobody takes the cancel in */
    f->options.roles = STET_ROLE_CLIENT;
    other = fixture_open(f);
    CHECK_OK(stet_cancel(other, &run, "one", "enough"));
    stet_close(other);
    other = fixture_open(f); /* remembers nothing */
    unseen_inbox = other->store->ops->inbox;
    damage_ops(other)->inbox = inbox_fails;

    /* Loading the run, and looking what has come since. */
    CHECK(unseen_walk(other, &run, unseen_result, STET_ECANCELLED) >= 2);
    CHECK(unseen_walk(other, &run, unseen_cancel, STET_OK) >= 2); /* it was cancelled before */
    CHECK(unseen_walk(other, &run, unseen_verify, STET_OK) >= 1);
    CHECK_INT(fixture_facts(other, &run, "cancel asked", NULL), 1);
    stet_close(other);
    fixture_end(f);
}
