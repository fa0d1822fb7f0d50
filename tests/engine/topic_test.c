/* Topics (B9), emitted from handlers (B10), heard outside of runs (B25). tsan: yes */
#include "engine/engine.h"
#include "fixture.h"

/* Waits `n` times (its input) for an event on "news" and returns what came. */
static int
h_reads(stet_ctx *ctx, stet_bytes input)
{
    char *all = stet_ctx_printf(ctx, "%s", "");

    for (int i = 0; i < ((const char *)input.data)[0] - '0'; i++) {
        stet_bytes value;

        STET_TRY(stet_await_event(ctx, &value, "news", NULL));
        effect("got %.*s", (int)value.len, (const char *)value.data);
        all = stet_ctx_printf(ctx, "%s[%.*s]", all, (int)value.len, (const char *)value.data);
    }
    return stet_return(ctx, stet_text(all));
}

/* A limit (its input) for the first wait, a day for the second. */
static int
h_limited(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    int        first;

    if ((first = stet_await_event(ctx, &value, "news", input.data)) == STET_SUSPENDED)
        return first;
    effect("first %s", stet_code_name(first));
    STET_TRY(stet_await_event(ctx, &value, "news", "1d"));
    return stet_return(ctx, value);
}

/* Emits its input twice, and says how many heard it. */
static int
h_emits(stet_ctx *ctx, stet_bytes input)
{
    size_t first, second;

    STET_TRY(stet_ctx_emit(ctx, &first, "news", input));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_ctx_emit(ctx, &second, "news", input));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%zu %zu", first, second)));
}

static int
h_misuses(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    size_t     n = 9;

    (void)input;
    CHECK_CODE(stet_await_event(ctx, &value, "", NULL), STET_ENAME);
    CHECK_CODE(stet_await_event(ctx, &value, "__x", NULL), STET_ENAME);
    CHECK_CODE(stet_await_event(ctx, &value, "news", "soon"), STET_EDURATION);
    CHECK_CODE(stet_ctx_emit(ctx, &n, "rollback:x", stet_text("")), STET_ENAME);
    CHECK_INT(n, 0);
    CHECK_CODE(stet_ctx_emit(ctx, NULL, "news", (stet_bytes){ "x", 3000 }), STET_ETOOBIG);
    return STET_OK;
}

static const stet_handler handlers[] = { { "reads", h_reads, NULL },
                                         { "limited", h_limited, NULL },
                                         { "emits", h_emits, NULL },
                                         { "wrong", h_misuses, NULL },
                                         { 0 } };

static size_t
emit(fixture *f, const char *value)
{
    size_t n = 99;

    CHECK_OK(stet_emit(f->engine, &n, "news", stet_text(value)));
    return n;
}

TEST(B9_an_event_resumes_every_run_that_waits_and_says_how_many)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[3];

    fixture_up_with(f, handlers);
    CHECK_INT(emit(f, "nobody is there"), 0);
    for (int i = 0; i < 3; i++) {
        runs[i] = fixture_start(f->engine, "t.reads", i == 2 ? "2" : "1", NULL);
        fixture_await_status(f->engine, &runs[i], STET_STATUS_SUSPENDED);
    }
    CHECK_OK(stet_emit(f->engine, NULL, "other", stet_text("not this one")));
    CHECK_OK(stet_emit(f->engine, NULL, "new", stet_text("nor a part of the name")));
    CHECK_INT(emit(f, "one"), 3);
    EXPECT_RESULT(f->engine, &runs[0], "[one]");
    EXPECT_RESULT(f->engine, &runs[1], "[one]");
    fixture_await_status(f->engine, &runs[2], STET_STATUS_SUSPENDED);
    AWAIT(fixture_facts(f->engine, &runs[2], "event wait", "news") == 2);
    fixture_await_status(f->engine, &runs[2], STET_STATUS_SUSPENDED);
    CHECK_INT(emit(f, ""), 1);
    EXPECT_RESULT(f->engine, &runs[2], "[one][]");
    CHECK_INT(emit(f, "late"), 0);
    fixture_end(f);
}

TEST(B9_a_limit_ends_the_wait_and_nothing_is_kept_for_the_next)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.limited", "20ms", NULL);
    effects_await("first STET_ETIMEOUT", 1);
    AWAIT(fixture_facts(f->engine, &run, "event wait", "news") == 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_HAS(fixture_why(f->engine, &run).text, "topic news");
    CHECK_INT(emit(f, "now"), 1);
    EXPECT_RESULT(f->engine, &run, "now");
    fixture_end(f);
}

TEST(B9_a_wait_whose_time_is_up_is_not_counted_though_its_run_does_not_know_yet)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.limited", "1s", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    AWAIT(stet_engine_now_ms(f->engine) > fixture_look(f->engine, &run).created_ms + 1500);
    CHECK_INT(emit(f, "too late"), 0);
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    effects_await("first STET_ETIMEOUT", 1);
    AWAIT(fixture_facts(f->engine, &run, "event wait", "news") == 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_INT(emit(f, "in time"), 1);
    EXPECT_RESULT(f->engine, &run, "in time");
    fixture_end(f);
}

TEST(B9_more_waiters_than_one_lot_are_all_told_once)
{
    enum { RUNS = 600 };
    fixture            *f = fixture_begin();
    stet_start_request *requests = calloc(RUNS, sizeof *requests);

    fixture_up_with(f, handlers);
    for (int i = 0; i < RUNS; i++)
        requests[i] = (stet_start_request){ .handler = "t.reads", .input = stet_text("1") };
    CHECK_OK(stet_start_many(f->engine, requests, RUNS));
    AWAIT(fixture_count(f->engine, &(stet_run_filter){ .size = sizeof(stet_run_filter),
                                                       .statuses = 1u << STET_STATUS_SUSPENDED,
                                                       .limit = 1000 }) == RUNS);
    CHECK_INT(emit(f, "all"), RUNS);
    for (int i = 0; i < RUNS; i++)
        EXPECT_RESULT(f->engine, &requests[i].run, "[all]");
    CHECK_INT(emit(f, "again"), 0);
    free(requests);
    fixture_end(f);
}

TEST(B9_a_cancelled_wait_is_told_and_leaves_no_mark)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.reads", "1", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "test", "enough"));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_INT(emit(f, "gone"), 0);
    fixture_end(f);
}

static int
count_mark(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return STET_OK;
}

static uint64_t
inbox_of(stet_engine *e, const stet_run_id *run)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    stet_id      id;
    uint64_t     inbox;

    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run->text));
    stet__arena_init(&arena, &e->p->alloc);
    CHECK_OK(stet__load_row(e, id, &arena, &row, &extra));
    inbox = row.inbox;
    stet__arena_free(&arena);
    return inbox;
}

/* Its time was up, and it was paused: nobody has taken that in. */
TEST(B9_a_run_that_is_failed_when_its_wait_was_over_leaves_no_mark)
{
    fixture    *f = fixture_begin();
    stet_bytes  all = { NULL, 0 };
    stet_run_id run;
    int         marks = 0;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.limited", "300ms", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_pause(f->engine, &run, NULL, NULL));
    AWAIT(inbox_of(f->engine, &run) == 2);
    CHECK_OK(stet_run_fail(f->engine, &run, NULL, NULL));
    CHECK_OK(f->engine->store->ops->values(f->engine->store, STET__SPACE_TOPIC, all, NULL, 100,
                                           count_mark, &marks));
    CHECK_INT(marks, 0);
    fixture_end(f);
}

/* ---- a process that dies in the middle ------------------------------------------------------- */

static const stet_store_ops *committing;
static atomic_int            commits_left;

static int
commit_some(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    if (atomic_fetch_sub(&commits_left, 1) <= 0)
        return stet__fail(STET_EIO, "no disk any more");
    return committing->commit(s, units, n, outcomes);
}

/* An emission that its process does not end, behind so many that nobody heard. */
static void
emit_and_die(size_t n_before)
{
    enum { RUNS = 300 };
    fixture            *f = fixture_begin();
    stet_start_request *requests = calloc(RUNS, sizeof *requests);
    stet_engine        *client;
    stet_store_ops      some;
    size_t              resumed = 0;

    f->options.lease_ms = 1000;
    f->options.renew_ms = 300;
    f->options.sweep_ms = 50;
    fixture_up_with(f, handlers);
    for (int i = 0; i < RUNS; i++)
        requests[i] = (stet_start_request){ .handler = "t.reads", .input = stet_text("1") };
    CHECK_OK(stet_start_many(f->engine, requests, RUNS));
    AWAIT(fixture_count(f->engine, &(stet_run_filter){ .size = sizeof(stet_run_filter),
                                                       .statuses = 1u << STET_STATUS_SUSPENDED,
                                                       .limit = 1000 }) == RUNS);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    for (size_t i = 0; i < n_before; i++)
        CHECK_OK(stet_emit(client, NULL, "silence", stet_text("x")));
    committing = client->store->ops;
    some = *committing;
    some.commit = commit_some;
    atomic_store(&commits_left, 1);
    client->store->ops = &some;
    CHECK(stet_emit(client, &resumed, "news", stet_text("x")) != STET_OK);
    CHECK_INT(resumed, 256);
    client->store->ops = committing;
    stet_close(client);
    for (int i = 0; i < RUNS; i++)
        EXPECT_RESULT(f->engine, &requests[i].run, "[x]");
    free(requests);
    fixture_end(f);
}

TEST(B9_what_a_dead_process_began_to_emit_is_finished_by_a_worker)
{
    emit_and_die(0);
}

TEST(B9_what_a_dead_process_began_to_emit_is_finished_behind_many_events_that_are_fresh)
{
    emit_and_die(150);
}

/* ---- records of events that are over --------------------------------------------------------- */

static const stet_store_ops *sweeping;
static atomic_int            n_swept; /* lists of records of events */

static int
count_values(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
             size_t limit, stet_value_fn fn, void *arg)
{
    if (strcmp(space, STET__SPACE_BASE_EMIT) == 0)
        atomic_fetch_add(&n_swept, 1);
    return sweeping->values(s, space, prefix, after, limit, fn, arg);
}

/* Of events that were told at `at_ms`, as stet_emit() writes it; their places are those of the
 * numbers from `nth` to `last`. */
static void
put_told(stet_engine *e, int64_t nth, int64_t last, int64_t at_ms)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    uint8_t     random[10] = { 0 };
    stet__fact  record = { .kind = STET__FACT_EMIT, .time_ms = at_ms, .until_ms = at_ms };

    CHECK(w != NULL);
    record.name = stet_text("news");
    record.value = stet_text("x");
    for (; nth <= last; nth++) {
        stet_id  id = stet__id_make(nth, random);
        stet_op *op = stet__work_op(w, STET_OP_VALUE_PUT, id);

        CHECK(op != NULL && stet__work_bytes(w, &op->key, stet__id_bytes(&id)) &&
              stet__work_fact(w, &op->data, &record));
        op->space = STET__SPACE_BASE_EMIT;
    }
    CHECK_OK(stet__commit_sync(e, w, NULL));
}

static int
count_told(stet_engine *e)
{
    stet_bytes all = { NULL, 0 };
    int        n = 0;

    CHECK_OK(sweeping->values(e->store, STET__SPACE_BASE_EMIT, all, NULL, 10000, count_mark, &n));
    return n;
}

/* How often the store was asked. */
static int
sweep_told(stet_engine *e, bool *is_any)
{
    atomic_store(&n_swept, 0);
    *is_any = stet__emit_sweep(e);
    (void)stet__committer_help(e); /* it was not started: nobody else commits what is queued */
    return atomic_load(&n_swept);
}

static stet_store_ops counted;

/* An engine that nobody starts, whose lists of records of events are counted. */
static void
up_counted(fixture *f)
{
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    sweeping = f->engine->store->ops;
    counted = *sweeping;
    counted.values = count_values;
    f->engine->store->ops = &counted;
}

TEST(B9_records_of_events_go_in_one_sweep_and_few_ask_the_store_once)
{
    fixture *f = fixture_begin();
    int64_t  now_ms;
    bool     is_any;

    up_counted(f);
    now_ms = stet_engine_now_ms(f->engine);
    CHECK_INT(sweep_told(f->engine, &is_any), 1);
    put_told(f->engine, 1, 63, now_ms + 3600000); /* fresh, and the oldest by their place */
    CHECK_INT(sweep_told(f->engine, &is_any), 1);
    put_told(f->engine, 64, 69, now_ms + 3600000);
    put_told(f->engine, 70, 300, now_ms - 3600000);
    CHECK_INT(count_told(f->engine), 300);
    CHECK_INT(sweep_told(f->engine, &is_any), 5); /* 64 a page */
    CHECK(!is_any);
    CHECK_INT(count_told(f->engine), 69);
    f->engine->store->ops = sweeping;
    fixture_end(f);
}

/* A sweep is bounded: the next one goes on from there, and the one behind the last begins anew. */
TEST(B9_a_sweep_of_very_many_records_of_events_goes_on_with_the_next)
{
    enum { A_SWEEP = 64 * 64 };
    fixture *f = fixture_begin();
    int64_t  now_ms;
    bool     is_any;

    up_counted(f);
    now_ms = stet_engine_now_ms(f->engine);
    for (int64_t i = 0; i < A_SWEEP; i += 512)
        put_told(f->engine, i + 1, i + 512, now_ms + 3600000);
    put_told(f->engine, A_SWEEP + 1, A_SWEEP + 10, now_ms - 3600000);
    CHECK_INT(sweep_told(f->engine, &is_any), 64);
    CHECK(is_any);
    CHECK_INT(count_told(f->engine), A_SWEEP + 10);
    CHECK_INT(sweep_told(f->engine, &is_any), 1);
    CHECK(!is_any);
    CHECK_INT(count_told(f->engine), A_SWEEP);
    CHECK_INT(sweep_told(f->engine, &is_any), 64);
    f->engine->store->ops = sweeping;
    fixture_end(f);
}

/* ---- two at once ----------------------------------------------------------------------------- */

static gate                  after_list = GATE_INIT;
static const stet_store_ops *listing;
static atomic_int            slow_at; /* the nth list from now on; 0: none */

/* The marks were read, and the answer takes its time. */
static int
slow_values(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
            size_t limit, stet_value_fn fn, void *arg)
{
    int err = listing->values(s, space, prefix, after, limit, fn, arg);

    if (strcmp(space, "topic") == 0 && atomic_fetch_sub(&slow_at, 1) == 1)
        gate_pass(&after_list);
    return err;
}

static size_t told_slowly;

static void *
emit_slowly(void *e)
{
    CHECK_OK(stet_emit(e, &told_slowly, "news", stet_text("slow")));
    return NULL;
}

/* A store whose lists of who waits can be slow, under an engine that has not begun. */
static stet_store_ops slow_ops;

static void
list_slowly(stet_engine *e)
{
    listing = e->store->ops;
    slow_ops = *listing;
    slow_ops.values = slow_values;
    e->store->ops = &slow_ops;
}

TEST(B9_of_two_events_at_once_a_wait_gets_one_and_is_counted_once)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run;
    pthread_t    thread;

    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    list_slowly(client);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.reads", "2", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    atomic_store(&slow_at, 1);
    CHECK_INT(pthread_create(&thread, NULL, emit_slowly, client), 0);
    gate_await(&after_list, 1);
    fixture_breathe();           /* its second wait is younger than the slow event */
    for (int i = 0; i < 25; i++) /* … also by a worker's clock that is a little behind */
        fixture_breathe();
    CHECK_INT(emit(f, "quick"), 1);
    AWAIT(fixture_facts(f->engine, &run, "event wait", "news") == 2);
    gate_open(&after_list);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(told_slowly, 0);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_INT(emit(f, "last"), 1);
    EXPECT_RESULT(f->engine, &run, "[quick][last]");
    client->store->ops = listing;
    stet_close(client);
    fixture_end(f);
}

/* One of them is cancelled when it is about to be told: the lot it is in is refused, and told
 * without it. */
TEST(B9_who_waits_is_told_though_another_of_the_same_lot_does_not_wait_any_more)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  runs[5];
    pthread_t    thread;

    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    list_slowly(client);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    for (int i = 0; i < 5; i++) {
        runs[i] = fixture_start(f->engine, "t.reads", "1", NULL);
        fixture_await_status(f->engine, &runs[i], STET_STATUS_SUSPENDED);
    }
    atomic_store(&slow_at, 1);
    CHECK_INT(pthread_create(&thread, NULL, emit_slowly, client), 0);
    gate_await(&after_list, 1);
    CHECK_OK(stet_cancel(f->engine, &runs[2], "test", "enough"));
    EXPECT_ANSWER(f->engine, &runs[2], STET_ECANCELLED);
    AWAIT(fixture_look(f->engine, &runs[2]).status == STET_STATUS_CANCELLED);
    gate_open(&after_list);
    CHECK_INT(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 5; i++)
        if (i != 2)
            EXPECT_RESULT(f->engine, &runs[i], "[slow]");
    CHECK_INT(told_slowly, 4);
    client->store->ops = listing;
    stet_close(client);
    fixture_end(f);
}

/* ---- whose clock ----------------------------------------------------------------------------- */

static atomic_bool is_behind;

/* What a handle estimates of a server's clock, when its answers were on their way for long. */
static int64_t
now_behind(stet_store *s)
{
    return listing->now_ms(s) - (atomic_load(&is_behind) ? 60000 : 0);
}

static int
ping_in_time(stet_store *s)
{
    atomic_store(&is_behind, false);
    return listing->ping(s);
}

static stet_engine *
open_behind(fixture *f)
{
    stet_engine *e = fixture_open(f);

    list_slowly(e);
    slow_ops.now_ms = now_behind;
    slow_ops.ping = ping_in_time;
    return e;
}

TEST(B9_an_emitter_whose_clock_is_behind_tells_all_who_wait)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run;
    size_t       told = 0;

    f->options.roles = STET_ROLE_CLIENT;
    client = open_behind(f);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.reads", "1", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    atomic_store(&is_behind, true);
    CHECK_OK(stet_emit(client, &told, "news", stet_text("now")));
    CHECK_INT(told, 1);
    EXPECT_RESULT(f->engine, &run, "[now]");
    client->store->ops = listing;
    stet_close(client);
    fixture_end(f);
}

TEST(B10_a_handler_whose_clock_is_behind_tells_all_who_wait)
{
    fixture    *f = fixture_begin();
    stet_run_id run, emitter;

    f->engine = open_behind(f);
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.reads", "1", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    atomic_store(&is_behind, true);
    emitter = fixture_start(f->engine, "t.emits", "e", NULL);
    fixture_paused(f->engine, &emitter);
    CHECK(!atomic_load(&is_behind));
    EXPECT_RESULT(f->engine, &run, "[e]");
    fixture_go_on(f->engine, &emitter);
    EXPECT_RESULT(f->engine, &emitter, "1 0");
    stet_close(f->engine);
    f->engine = NULL;
    fixture_end(f);
}

/* ---- handlers -------------------------------------------------------------------------------- */

TEST(B10_who_begins_to_wait_between_two_lots_of_an_event_is_not_told)
{
    fixture    *f = fixture_begin();
    stet_run_id early[3], late, emitter;

    f->engine = fixture_open(f);
    f->engine->topic_lot = 2;
    list_slowly(f->engine);
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    for (int i = 0; i < 3; i++) {
        early[i] = fixture_start(f->engine, "t.reads", "1", NULL);
        fixture_await_status(f->engine, &early[i], STET_STATUS_SUSPENDED);
    }
    atomic_store(&slow_at, 1);
    emitter = fixture_start(f->engine, "t.emits", "e", NULL);
    gate_await(&after_list, 1);
    fixture_breathe(); /* it is younger than the event */
    late = fixture_start(f->engine, "t.reads", "1", NULL);
    fixture_await_status(f->engine, &late, STET_STATUS_SUSPENDED);
    gate_open(&after_list);
    fixture_paused(f->engine, &emitter);
    for (int i = 0; i < 3; i++)
        EXPECT_RESULT(f->engine, &early[i], "[e]");
    fixture_await_status(f->engine, &late, STET_STATUS_SUSPENDED);
    fixture_go_on(f->engine, &emitter);
    EXPECT_RESULT(f->engine, &emitter, "3 1");
    EXPECT_RESULT(f->engine, &late, "[e]");
    fixture_down(f);
    fixture_end(f);
}

TEST(B10_a_handler_emits_once_per_call_however_often_it_replays)
{
    fixture    *f = fixture_begin();
    stet_run_id reader, late, emitter;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    reader = fixture_start(f->engine, "t.reads", "2", NULL);
    fixture_await_status(f->engine, &reader, STET_STATUS_SUSPENDED);
    emitter = fixture_start(f->engine, "t.emits", "e", NULL);
    fixture_paused(f->engine, &emitter);
    AWAIT(fixture_facts(f->engine, &reader, "event wait", "news") == 2);
    late = fixture_start(f->engine, "t.reads", "1", NULL);
    fixture_await_status(f->engine, &reader, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &late, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_up_with(f, handlers);
    fixture_go_on(f->engine, &emitter);
    EXPECT_RESULT(f->engine, &emitter, "1 2");
    EXPECT_RESULT(f->engine, &reader, "[e][e]");
    EXPECT_RESULT(f->engine, &late, "[e]");
    CHECK_INT(fixture_facts(f->engine, &emitter, "emit", "news"), 2);
    fixture_end(f);
}

TEST(B10_bad_topics_limits_and_values_are_refused_and_nothing_is_recorded)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.wrong", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(fixture_facts(f->engine, &run, "emit", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "event wait", NULL), 0);
    CHECK_CODE(stet_emit(f->engine, NULL, "", stet_text("")), STET_ENAME);
    CHECK_CODE(stet_emit(f->engine, NULL, "news", (stet_bytes){ "x", 3000 }), STET_ETOOBIG);
    fixture_end(f);
}

/* ---- subscriptions --------------------------------------------------------------------------- */

TEST(B25_a_program_hears_what_is_emitted_while_it_subscribes)
{
    fixture           *f = fixture_begin();
    stet_subscription *s, *none = NULL;
    stet_event         event;
    stet_run_id        emitter;

    fixture_up_with(f, handlers);
    CHECK_CODE(stet_subscribe(f->engine, &none, ""), STET_ENAME);
    CHECK(none == NULL);
    CHECK_OK(stet_emit(f->engine, NULL, "news", stet_text("before")));
    fixture_breathe();
    CHECK_OK(stet_subscribe(f->engine, &s, "news"));
    CHECK_CODE(stet_event_next(s, &event, 1), STET_ETIMEOUT);
    CHECK_OK(stet_emit(f->engine, NULL, "other", stet_text("not this one")));
    CHECK_OK(stet_emit(f->engine, NULL, "news", stet_text("one")));
    CHECK_OK(stet_emit(f->engine, NULL, "news", stet_text("two")));
    CHECK_OK(stet_event_next(s, &event, 0));
    CHECK_STR(event.topic, "news");
    CHECK(fixture_is(event.value, "one") || fixture_is(event.value, "two"));
    CHECK_OK(stet_event_next(s, &event, 0));
    CHECK_CODE(stet_event_next(s, &event, 1), STET_ETIMEOUT);
    emitter = fixture_start(f->engine, "t.emits", "from a handler", NULL);
    CHECK_OK(stet_event_next(s, &event, 0));
    CHECK(fixture_is(event.value, "from a handler"));
    fixture_paused(f->engine, &emitter);
    CHECK_CODE(stet_event_next(s, &event, 1), STET_ETIMEOUT);
    stet_unsubscribe(s);
    stet_unsubscribe(NULL);
    fixture_end(f);
}

static void *
stop_engine(void *e)
{
    CHECK_OK(stet_engine_stop(e, 0));
    return NULL;
}

TEST(B25_a_program_that_listens_is_told_that_the_engine_goes)
{
    fixture           *f = fixture_begin();
    stet_subscription *s;
    stet_event         event;
    pthread_t          thread;

    fixture_up_with(f, handlers);
    CHECK_OK(stet_subscribe(f->engine, &s, "news"));
    CHECK_INT(pthread_create(&thread, NULL, stop_engine, f->engine), 0);
    CHECK_CODE(stet_event_next(s, &event, STET_NONE), STET_ESTOPPED);
    CHECK_INT(pthread_join(thread, NULL), 0);
    stet_unsubscribe(s);
    fixture_end(f);
}
