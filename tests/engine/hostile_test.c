/* What a second hostile reader tried: bodies that begin without a lease, answers that are not true,
 * runs that are executed behind somebody who waits for them. tsan: yes */
#include "fixture.h"

#include "engine/engine.h"

/* ---- a host without threads, and its lease --------------------------------------------------- */

static gate       hostile_door = GATE_INIT;
static atomic_int hostile_entries;

/* The first one to come in is held up. */
static int
h_thinks(stet_ctx *ctx, stet_bytes input)
{
    if (atomic_fetch_add(&hostile_entries, 1) == 0)
        gate_pass(&hostile_door);
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charged", NULL));
    return stet_return(ctx, input);
}

static void *
polls(void *engine)
{
    int did = 0;

    while (did == 0)
        CHECK_OK(stet_engine_poll(engine, &did, 100));
    return NULL;
}

/* Nobody renews its lease while its handler computes; the run is another worker's by then, and the
 * step is on record. */
TEST(B18_a_host_without_threads_begins_no_body_after_its_lease)
{
    static const stet_handler    handlers[] = { { "thinks", h_thinks, NULL }, { 0 } };
    static const fixture_service services[] = { { "t", handlers, false, NULL }, { 0 } };
    fixture                     *f = fixture_begin();
    int64_t                      lease_ms = f->options.lease_ms, renew_ms = f->options.renew_ms;
    stet_engine                 *polled;
    pthread_t                    thread;
    stet_run_id                  run;

    f->options.lease_ms = 100;
    f->options.renew_ms = 50;
    polled = fixture_open_with(f, services);
    run = fixture_start(polled, "t.thinks", "ok", NULL);
    CHECK_INT(pthread_create(&thread, NULL, polls, polled), 0);
    gate_await(&hostile_door, 1);
    f->options.lease_ms = lease_ms;
    f->options.renew_ms = renew_ms;
    f->options.sweep_ms = 10;
    fixture_up(f, services);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("charged"), 1);
    gate_open(&hostile_door);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(effects("charged"), 1);
    stet_close(polled);
    fixture_end(f);
}

/* ---- a body that waits for what it starts ---------------------------------------------------- */

static stet_engine *hostile_engine;

static int
body_starts_and_waits(stet_attempt *a, void *arg)
{
    stet_run_id run;
    stet_result result;
    int         err;

    (void)arg;
    STET_TRY(stet_start(hostile_engine, &run, "t.quick", stet_text("quick"), NULL));
    err = stet_wait(hostile_engine, &result, &run, 0);
    if (err == STET_OK)
        err = stet_attempt_return(a, result.value);
    else
        err = stet_attempt_fail(a, STET_ESTEP, "%s", stet_last_error());
    stet_result_free(&result);
    return err;
}

static int
h_waits(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "wait", body_starts_and_waits, NULL, NULL));
    return stet_return(ctx, out);
}

/* The run is begun ahead on the thread of the body that waits for it. Nothing but the body's own
 * start may have to happen for another slot to take it. */
TEST(B8_a_run_that_a_body_starts_and_waits_for_is_executed_by_another_slot)
{
    static const stet_handler handlers[] = { { "quick", h_echo, NULL },
                                             { "waits", h_waits, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.poll_ms = 3600000;
    f->options.sweep_ms = 3600000;
    f->options.concurrency = 4;
    fixture_up_with(f, handlers);
    hostile_engine = f->engine;
    for (int i = 0; i < 20; i++) {
        run = fixture_start(f->engine, "t.waits", "", NULL);
        EXPECT_RESULT(f->engine, &run, "quick");
    }
    fixture_end(f);
}

/* ---- a clock that is behind what the engine takes it for ------------------------------------- */

static stet_store_ops        hostile_ops;
static const stet_store_ops *hostile_inner;

static int64_t
now_ahead(stet_store *s)
{
    return hostile_inner->now_ms(s) + 60;
}

/* A start is due at once by the engine's clock, and a moment later by that of the commit, which
 * then does not give the run to the engine. Neither hint nor poll nor sweep helps. */
TEST(A1_a_start_that_is_not_due_yet_by_the_stores_clock_is_executed_when_it_is)
{
    static const stet_handler handlers[] = { { "quick", h_echo, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.poll_ms = 3600000;
    f->options.sweep_ms = 3600000;
    f->options.wait_poll_ms = 60000;
    f->engine = fixture_open(f);
    hostile_inner = f->engine->store->ops;
    hostile_ops = *hostile_inner;
    hostile_ops.now_ms = now_ahead;
    f->engine->store->ops = &hostile_ops;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    for (int i = 0; i < 3; i++) {
        run = fixture_start(f->engine, "t.quick", "late", NULL);
        EXPECT_RESULT(f->engine, &run, "late");
    }
    fixture_end(f);
}

/* ---- a store that says nothing, and then no -------------------------------------------------- */

static atomic_int hostile_commits;

/* The first commit is made and its answer lost; none is taken after that. */
static int
commit_once(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    int err;

    if (atomic_fetch_add(&hostile_commits, 1) > 0)
        return stet__fail(STET_EBUSY, "not now");
    err = hostile_inner->commit(s, units, n, outcomes);
    for (size_t i = 0; i < n; i++)
        stet__free(s->alloc, outcomes[i].grants);
    return err == STET_OK ? stet__fail(STET_EUNCERTAIN, "no answer") : err;
}

typedef struct lost_call {
    int (*fn)(void);
    int  code;
    char text[600];
} lost_call;

static void *
calls(void *arg)
{
    lost_call *call = arg;

    call->code = call->fn();
    (void)snprintf(call->text, sizeof call->text, "%s", stet_last_error());
    return NULL;
}

static stet_run_id hostile_run;

/* What `fn` says when its commit is made and not answered, and the engine closes; it makes so many
 * runs. `before` is made and answered. */
static lost_call
answer_lost(int (*fn)(void), int (*before)(void), int runs)
{
    static const stet_handler handlers[] = { { "quick", h_echo, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    lost_call                 call = { .fn = fn };
    pthread_t                 thread;

    f->options.roles = STET_ROLE_CLIENT;
    hostile_engine = fixture_open(f);
    CHECK_OK(stet_register(hostile_engine, "t", handlers));
    CHECK_OK(stet_engine_start(hostile_engine));
    if (before != NULL)
        CHECK_OK(before());
    runs += fixture_count(hostile_engine, NULL); /* of the call before this one, too */
    atomic_store(&hostile_commits, 0);
    hostile_inner = hostile_engine->store->ops;
    hostile_ops = *hostile_inner;
    hostile_ops.commit = commit_once;
    hostile_engine->store->ops = &hostile_ops;
    CHECK_INT(pthread_create(&thread, NULL, calls, &call), 0);
    AWAIT(atomic_load(&hostile_commits) > 1);
    CHECK_OK(stet_engine_stop(hostile_engine, 0));
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(fixture_count(hostile_engine, NULL), runs);
    CHECK_INT(call.code, STET_EUNCERTAIN);
    stet_close(hostile_engine);
    fixture_end(f);
    return call;
}

static int
starts(void)
{
    return stet_start(hostile_engine, &hostile_run, "t.quick", stet_text(""), NULL);
}

static int
starts_with_key(void)
{
    return stet_start(hostile_engine, NULL, "t.quick", stet_text(""),
                      STET_START(.idempotency_key = "k7"));
}

static int
signals(void)
{
    return stet_signal(hostile_engine, &hostile_run, "go", stet_text(""), NULL);
}

static int
signals_with_key(void)
{
    return stet_signal(hostile_engine, &hostile_run, "go", stet_text(""),
                       STET_SIGNAL_OPTIONS(.idempotency_key = "k7"));
}

static int
emits(void)
{
    return stet_emit(hostile_engine, NULL, "news", stet_text(""));
}

static int
cancels(void)
{
    return stet_cancel(hostile_engine, &hostile_run, "ops", "test");
}

/* "Busy" says that nothing was written and that one may start again; but the run is there. */
TEST(A4_a_start_whose_answer_was_lost_is_uncertain_also_when_the_engine_closes)
{
    lost_call call = answer_lost(starts, NULL, 1);

    CHECK_HAS(call.text, "`show run_");
    call = answer_lost(starts_with_key, NULL, 1);
    CHECK_HAS(call.text, "repeat with the same idempotency key");
}

/* It was told to repeat with a key; neither has one. */
TEST(B9_what_to_do_about_an_event_or_signal_whose_answer_was_lost_is_said)
{
    lost_call call = answer_lost(emits, NULL, 0);

    CHECK_HAS(call.text, "topic news");
    CHECK_HAS(call.text, "`ls --waits-for-topic`");
    CHECK(strstr(call.text, "key") == NULL);
    call = answer_lost(signals, starts, 0);
    CHECK_HAS(call.text, "`show run_");
    call = answer_lost(signals_with_key, starts, 0);
    CHECK_HAS(call.text, "repeat with the idempotency key k7");
    call = answer_lost(cancels, starts, 0);
    CHECK_HAS(call.text, "look at what is there");
    CHECK(strstr(call.text, "key") == NULL);
}

/* ---- what is left of runs that were removed -------------------------------------------------- */

static int
body_starts_child(stet_attempt *a, void *arg)
{
    stet_run_id parent, child;

    (void)arg;
    memset(&parent, 0, sizeof parent);
    (void)snprintf(parent.text, sizeof parent.text, "%s", stet_attempt_run(a));
    return stet_start(hostile_engine, &child, "t.quick", stet_text(""),
                      STET_START(.parent = &parent, .parent_step = "start", .child_key = "only"));
}

static int
h_parent(stet_ctx *ctx, stet_bytes input)
{
    stet_future      *approval;
    stet_awakeable_id id;

    STET_TRY(stet_step(ctx, NULL, "start", body_starts_child, NULL, NULL));
    STET_TRY(stet_awakeable(ctx, &id, &approval, "approval"));
    STET_TRY(stet_ctx_resolve(ctx, id.text, stet_text("yes")));
    STET_TRY(stet_await(ctx, NULL, approval));
    return stet_return(ctx, input);
}

static int
count_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    (*(int *)arg)++;
    return STET_OK;
}

static int
count_values(const char *space)
{
    stet_store *s = hostile_engine->store;
    int         n = 0;

    CHECK_OK(s->ops->values(s, space, (stet_bytes){ NULL, 0 }, NULL, 1000, count_value, &n));
    return n;
}

/* Or a store whose runs come and go grows for ever. */
TEST(A16_nothing_is_left_of_a_parent_and_its_children_after_their_retention)
{
    static const stet_handler handlers[] = { { "quick", h_echo, NULL },
                                             { "parent", h_parent, NULL },
                                             { 0 } };
    static const char *const  labels[] = { "a=b", NULL };
    fixture                  *f = fixture_begin();

    f->options.sweep_ms = 10;
    f->options.retention_ms = 1;
    fixture_up_with(f, handlers);
    hostile_engine = f->engine;
    (void)fixture_start(f->engine, "t.parent", "ok",
                        STET_START(.idempotency_key = "once", .labels = labels));
    AWAIT(fixture_count(f->engine, NULL) == 0);
    CHECK_INT(count_values(STET__SPACE_IDEM), 0);
    CHECK_INT(count_values(STET__SPACE_LABEL), 0);
    CHECK_INT(count_values(STET__SPACE_AWAKEABLE), 0);
    CHECK_INT(count_values(STET__SPACE_CHILD), 0);
    CHECK_INT(count_values(STET__SPACE_BASE_CHILD), 0);
    fixture_end(f);
}

/* ---- stopping while others commit ------------------------------------------------------------ */

static atomic_bool hostile_is_over;
static atomic_int  hostile_starts;

static void *
starts_on(void *arg)
{
    (void)arg;
    while (!atomic_load(&hostile_is_over)) {
        CHECK_OK(stet_start(hostile_engine, NULL, "t.quick", stet_text(""), NULL));
        atomic_fetch_add(&hostile_starts, 1);
    }
    return NULL;
}

/* A caller that commits for itself is the last one at the store: whoever waits for it is told. */
TEST(G4_an_engine_stops_while_others_start_runs_with_it)
{
    static const stet_handler handlers[] = { { "quick", h_echo, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    pthread_t                 thread;

    f->options.roles = STET_ROLE_CLIENT;
    for (int i = 0; i < (f->db == NULL ? 20 : 100); i++) {
        hostile_engine = fixture_open(f);
        CHECK_OK(stet_register(hostile_engine, "t", handlers));
        CHECK_OK(stet_engine_start(hostile_engine));
        atomic_store(&hostile_is_over, false);
        atomic_store(&hostile_starts, 0);
        CHECK_INT(pthread_create(&thread, NULL, starts_on, NULL), 0);
        AWAIT(atomic_load(&hostile_starts) > 0);
        CHECK_OK(stet_engine_stop(hostile_engine, 0));
        atomic_store(&hostile_is_over, true);
        CHECK_INT(pthread_join(thread, NULL), 0);
        stet_close(hostile_engine);
    }
    fixture_end(f);
}

/* ---- a unit that no store takes -------------------------------------------------------------- */

/* As a store whose rows are small. */
static int
commit_small(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    int err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < n; i++) {
        bool is_big = false;

        for (size_t k = 0; k < units[i].n_ops; k++)
            is_big = is_big ||
                     (units[i].ops[k].kind == STET_OP_FACTS && units[i].ops[k].data.len > 100000);
        if (!is_big)
            err = hostile_inner->commit(s, &units[i], 1, &outcomes[i]);
        else
            outcomes[i] = (stet_outcome){ .result = STET_ETOOBIG,
                                          .cond = (uint32_t)units[i].n_conds,
                                          .next_due_ms = STET_NEVER };
    }
    return err;
}

static int
h_much(stet_ctx *ctx, stet_bytes input)
{
    static char much[60000];
    stet_bytes  value = { much, sizeof much };

    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charged", NULL));
    STET_TRY(stet_state_set(ctx, "a", value));
    STET_TRY(stet_state_set(ctx, "b", value));
    return stet_return(ctx, input);
}

/* It would be refused again by every execution, each of which enters the body. */
TEST(B24_a_run_that_records_more_than_the_store_takes_is_stuck)
{
    static const stet_handler    handlers[] = { { "much", h_much, NULL }, { 0 } };
    static const fixture_service services[] = { { "o", handlers, true, NULL }, { 0 } };
    fixture                     *f = fixture_begin();
    fixture_run                  look;
    stet_run_id                  run;

    f->engine = fixture_open(f);
    hostile_inner = f->engine->store->ops;
    hostile_ops = *hostile_inner;
    hostile_ops.commit = commit_small;
    f->engine->store->ops = &hostile_ops;
    fixture_register(f->engine, services);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "o.much", "", STET_START(.key = "k"));
    AWAIT(effects("charged") > 5 || fixture_look(f->engine, &run).status == STET_STATUS_STUCK);
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.status, STET_STATUS_STUCK);
    CHECK_HAS(look.reason, "more than the store takes");
    CHECK_INT(effects("charged"), 1);
    fixture_end(f);
}
