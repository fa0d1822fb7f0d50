/* Engines that tell each other: queue=local on every store, with polls so rare that nothing but a
 * hint can be the cause; and hints that are lost, doubled or forged. Rows G9, C6. tsan: yes */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "damage.h"
#include "engine/engine.h"

/* ---- a fleet that polls once an hour --------------------------------------------------------- */

#define HOUR_MS 3600000

/* Longer than any test waits: what comes earlier came by a hint. */
#define WAIT_POLL_MS 60000

static char queue_name[64];

static fixture *
quiet_begin(void)
{
    fixture *f = fixture_begin();

    (void)snprintf(queue_name, sizeof queue_name, "local:t%ld", (long)getpid());
    f->options.queue = queue_name;
    f->options.poll_ms = HOUR_MS;
    f->options.sweep_ms = HOUR_MS;
    f->options.wait_poll_ms = WAIT_POLL_MS;
    f->options.wait_ms =
        fixture_patience_ms() < WAIT_POLL_MS ? fixture_patience_ms() : WAIT_POLL_MS - 1000;
    return f;
}

static stet_engine *
quiet_engine(fixture *f, uint32_t roles, const fixture_service *services)
{
    stet_options before = f->options;
    stet_engine *e;

    f->options.roles = roles;
    e = services != NULL ? fixture_open_with(f, services) : fixture_open(f);
    f->options = before;
    CHECK_OK(stet_engine_start(e));
    return e;
}

static size_t
hint_waiters(stet_engine *e)
{
    size_t n;

    stet__lock(e->p, &e->lock);
    n = e->waiters.used;
    stet__unlock(e->p, &e->lock);
    return n;
}

typedef struct waiting {
    stet_engine *engine;
    stet_run_id  run;
    pthread_t    thread;
    int          answer;
} waiting;

static void *
waiting_main(void *arg)
{
    waiting *w = arg;

    w->answer = stet_wait(w->engine, NULL, &w->run, 0);
    return NULL;
}

/* Wait for the run on another thread; returns when it has looked once in vain. */
static void
waiting_begin(waiting *w, stet_engine *e, const stet_run_id *run)
{
    uint64_t reads = stet_engine_reads(e);

    w->engine = e;
    w->run = *run;
    CHECK_INT(pthread_create(&w->thread, NULL, waiting_main, w), 0);
    AWAIT(hint_waiters(e) > 0 && stet_engine_reads(e) > reads);
}

static void
waiting_end(waiting *w)
{
    pthread_join(w->thread, NULL);
    CHECK_INT(w->answer, STET_OK);
}

TEST(G9_started_on_one_and_waited_for_on_another_by_hints_alone)
{
    fixture     *f = quiet_begin();
    stet_engine *worker = quiet_engine(f, 0, common_services);
    stet_engine *client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    waiting      w;
    stet_run_id  run;

    run = fixture_start(client, "t.door", "x", NULL);
    gate_await(&common_door, 1); /* the worker heard of it */
    waiting_begin(&w, client, &run);
    gate_open(&common_door);
    waiting_end(&w); /* and the client of its end */
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

/* The two halves of a worker on two nodes: one fires timers, the other executes. */
TEST(G9_a_timer_node_and_a_worker_node_need_no_poll)
{
    static const stet_handler    naps[] = { { "nap", h_short_nap, NULL }, { 0 } };
    static const fixture_service services[] = { { "t", naps, false, NULL }, { 0 } };
    fixture                     *f = quiet_begin();
    stet_engine                 *timers = quiet_engine(f, STET_ROLE_TIMERS, NULL);
    stet_engine                 *worker = quiet_engine(f, STET_ROLE_WORKER, services);
    stet_engine                 *client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    stet_run_id                  run;

    for (int i = 0; i < 3; i++) {
        run = fixture_start(client, "t.nap", "", NULL);
        EXPECT_RESULT(client, &run, "woke");
    }
    stet_close(client);
    stet_close(worker);
    stet_close(timers);
    fixture_end(f);
}

TEST(G9_what_a_client_resolves_wakes_a_run_elsewhere)
{
    fixture     *f = quiet_begin();
    stet_engine *worker = quiet_engine(f, 0, common_services);
    stet_engine *client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    stet_run_id  run = fixture_start(client, "t.approval", "", NULL);

    effects_await("handed out", 1);
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    EXPECT_RESULT(client, &run, "yes");
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

static const stet_store_ops *named_real;
static stet_store_ops        named_ops;
static atomic_int            named_looks, named_grants; /* of runs that were asked for by name */

static int
named_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    int err = named_real->commit(s, units, n, outcomes);

    for (size_t i = 0; err == STET_OK && i < n; i++)
        if (units[i].n_ops == 1 && (units[i].ops[0].flags & STET_OP_DUE) != 0) {
            atomic_fetch_add(&named_looks, 1);
            atomic_fetch_add(&named_grants, (int)outcomes[i].n_grants);
        }
    return err;
}

static bool
named_is_parked(stet_engine *e, stet_id run)
{
    stet_ctx *c;
    bool      is_parked;

    stet__lock(e->p, &e->lock);
    c = stet__map_find(&e->claims, run.bytes, sizeof run.bytes);
    is_parked = c != NULL && atomic_load(&c->park) == STET__PARK_PARKED;
    stet__unlock(e->p, &e->lock);
    return is_parked;
}

/* And a forged hint about it takes nothing. One is enough; many would use up what it may look
 * for nothing, and then the real one is answered by a look at all that is due. */
TEST(G9_a_run_that_is_parked_and_woken_elsewhere_is_taken_by_name)
{
    fixture         *f = quiet_begin();
    stet_engine     *worker = fixture_open_with(f, common_services);
    stet_engine     *client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    stet__hint_setup setup = { 0 };
    stet_hint_port  *forger;
    stet_hint        hint = { .kind = STET_HINT_RUN };
    stet_run_id      run;

    named_real = worker->store->ops;
    named_ops = *named_real;
    named_ops.commit = named_commit;
    worker->store->ops = &named_ops;
    CHECK_OK(stet_engine_start(worker));
    run = fixture_start(client, "t.approval", "", NULL);
    effects_await("handed out", 1);
    fixture_await_status(client, &run, STET_STATUS_SUSPENDED);
    hint.run = damage_id(&run);
    AWAIT(named_is_parked(worker, hint.run));
    CHECK_OK(stet__hint_open(&forger, stet__platform_real(), queue_name, &setup));
    forger->ops->send(forger, &hint);
    AWAIT(atomic_load(&named_looks) > 0);
    CHECK_INT(atomic_load(&named_grants), 0);
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    EXPECT_RESULT(client, &run, "yes");
    CHECK_INT(atomic_load(&named_grants), 1);
    stet__hint_close(forger);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

static gate                  parking = GATE_INIT;
static const stet_store_ops *parking_real;
static stet_store_ops        parking_ops;
static stet_id               parking_run;

static int
parking_row(void *arg, const stet_run_row *row)
{
    *(bool *)arg = row->status == STET_STATUS_SUSPENDED;
    return STET_OK;
}

/* The run is suspended, and the answer that says so takes its time. */
static int
parking_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    int  err = parking_real->commit(s, units, n, outcomes);
    bool is_suspended = false;

    if (err == STET_OK &&
        parking_real->run(s, parking_run, parking_row, &is_suspended) == STET_OK && is_suspended)
        gate_pass(&parking);
    return err;
}

static bool
parking_has_news(stet_engine *e)
{
    stet_ctx *c;
    bool      has_news;

    stet__lock(e->p, &e->lock);
    c = stet__map_find(&e->claims, parking_run.bytes, sizeof parking_run.bytes);
    has_news = c != NULL && atomic_load(&c->has_news);
    stet__unlock(e->p, &e->lock);
    return has_news;
}

/* It is not parked yet as far as its worker knows, so it is not asked for by name; nobody tells
 * again. */
TEST(G9_what_comes_while_a_suspension_is_answered_is_not_slept_over)
{
    fixture     *f = quiet_begin();
    stet_engine *worker = fixture_open_with(f, common_services);
    stet_engine *client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    stet_run_id  run;

    run = fixture_start(client, "t.approval", "", NULL);
    parking_run = damage_id(&run);
    parking_real = worker->store->ops;
    parking_ops = *parking_real;
    parking_ops.commit = parking_commit;
    worker->store->ops = &parking_ops;
    CHECK_OK(stet_engine_start(worker));
    gate_await(&parking, 1);
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    AWAIT(parking_has_news(worker));
    gate_open(&parking);
    EXPECT_RESULT(client, &run, "yes");
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

/* Runs of one key wait for each other on different nodes. */
TEST(G9_the_next_of_a_key_is_taken_up_on_another_node)
{
    fixture     *f = quiet_begin();
    stet_engine *one = quiet_engine(f, 0, common_services);
    stet_engine *two = quiet_engine(f, 0, common_services);
    stet_engine *client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    stet_run_id  runs[4];

    for (int i = 0; i < 4; i++)
        runs[i] = fixture_start(client, "o.quick", "q", STET_START(.key = "k"));
    for (int i = 0; i < 4; i++)
        EXPECT_RESULT(client, &runs[i], "q");
    stet_close(client);
    stet_close(two);
    stet_close(one);
    fixture_end(f);
}

/* What a worker that stops gives back is taken up by the other at once. */
TEST(G9_what_a_stopping_worker_gives_back_is_taken_up)
{
    fixture     *f = quiet_begin();
    stet_engine *one = quiet_engine(f, 0, common_services), *two, *client;
    stet_run_id  run;

    client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    run = fixture_start(client, "t.approval", "", NULL);
    effects_await("handed out", 1);
    two = quiet_engine(f, 0, common_services);
    CHECK_OK(stet_engine_stop(one, 0));
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    EXPECT_RESULT(client, &run, "yes");
    stet_close(client);
    stet_close(one);
    stet_close(two);
    fixture_end(f);
}

TEST(G9_health_says_whether_there_are_hints)
{
    fixture     *f = fixture_begin();
    stet_engine *e;
    stet_health  health;

    f->options.queue = "none";
    e = fixture_open(f);
    CHECK_OK(stet_health_get(e, &health));
    CHECK(!health.has_hints);
    stet_close(e);
    f->options.queue = NULL;
    e = fixture_open(f);
    CHECK_OK(stet_health_get(e, &health));
    CHECK(health.has_hints);
    stet_close(e);
    fixture_end(f);
}

/* ---- hints that are lost and doubled --------------------------------------------------------- */

static _Atomic uint64_t     double_calls;
static int                  double_rate;  /* one in so many is lost */
static int                  double_times; /* the others are sent so often */
static const stet_hint_ops *double_real;

static void
double_send(stet_hint_port *h, const stet_hint *hint)
{
    if (double_rate > 0 && ++double_calls % (uint64_t)double_rate == 0)
        return;
    for (int i = 0; i < double_times; i++)
        double_real->send(h, hint);
}

/* In front of the engine's port, before it is started. */
static void
double_put(stet_engine *e)
{
    static stet_hint_ops ops;

    double_real = e->hint->ops;
    ops = *double_real;
    ops.send = double_send;
    e->hint->ops = &ops;
}

static stet_engine *
double_engine(fixture *f, uint32_t roles, const fixture_service *services)
{
    stet_options before = f->options;
    stet_engine *e;

    f->options.roles = roles;
    e = services != NULL ? fixture_open_with(f, services) : fixture_open(f);
    f->options = before;
    double_put(e);
    CHECK_OK(stet_engine_start(e));
    return e;
}

static void
double_fleet(int rate, int times)
{
    fixture     *f = quiet_begin();
    stet_engine *worker, *timers, *client;
    stet_run_id  runs[6], approval;

    double_rate = rate;
    double_times = times;
    f->options.poll_ms = 20;
    f->options.wait_poll_ms = 20;
    timers = double_engine(f, STET_ROLE_TIMERS, NULL);
    worker = double_engine(f, STET_ROLE_WORKER, common_services);
    client = double_engine(f, STET_ROLE_CLIENT, NULL);
    approval = fixture_start(client, "t.approval", "", NULL);
    for (int i = 0; i < 6; i++)
        runs[i] = fixture_start(client, i % 2 ? "t.quick" : "o.quick", "ok",
                                i % 2 ? NULL : STET_START(.key = "k"));
    effects_await("handed out", 1);
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    EXPECT_RESULT(client, &approval, "yes");
    for (int i = 0; i < 6; i++)
        EXPECT_RESULT(client, &runs[i], "ok");
    stet_close(client);
    stet_close(worker);
    stet_close(timers);
    fixture_end(f);
}

TEST(G9_with_every_hint_lost_everything_completes)
{
    double_fleet(1, 1);
}

TEST(G9_with_every_second_hint_lost_everything_completes)
{
    double_fleet(2, 1);
}

TEST(G9_with_hints_five_times_and_some_lost_everything_completes)
{
    double_fleet(3, 5);
}

/* What was written past the engine (stet_start_in) is told by hand. */
TEST(G9_a_nudge_tells_the_others)
{
    fixture     *f = quiet_begin();
    stet_engine *worker = quiet_engine(f, 0, common_services), *client;
    stet_run_id  run;
    bool         untold = false;

    double_rate = 1; /* the start is told to nobody */
    double_times = 1;
    client = double_engine(f, STET_ROLE_CLIENT, NULL);
    /* One that the worker's own first looks found by chance proves nothing: then another. */
    for (int tries = 0; tries < 20; tries++) {
        run = fixture_start(client, "t.quick", "ok", NULL);
        untold = fixture_look(client, &run).status == STET_STATUS_PENDING;
        if (untold)
            break;
        EXPECT_RESULT(client, &run, "ok");
    }
    CHECK(untold);
    double_rate = 0;
    stet_engine_nudge(client);
    EXPECT_RESULT(client, &run, "ok");
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

/* ---- hints that are forged ------------------------------------------------------------------- */

static void
forge(stet_hint_port *h, stet_hint_kind kind, const stet_run_id *run, int64_t time_ms, int n)
{
    stet_hint hint;

    memset(&hint, 0, sizeof hint);
    hint.kind = kind;
    hint.time_ms = time_ms;
    if (run != NULL)
        hint.run = damage_id(run);
    /* The box merges equal ones that wait: so that it does not, each goes out by itself. */
    for (int i = 0; i < n; i++) {
        stet_hint_health before, now;

        h->ops->health(h, &before);
        h->ops->send(h, &hint);
        do
            h->ops->health(h, &now);
        while (now.sent == before.sent);
    }
}

/* A thousand hints about nothing: looks are counted in reads of the store. A look is five or six
 * of them, by what was told; twenty are free, then ten a second. */
TEST(G9_forged_hints_make_no_busy_loop)
{
    fixture         *f = quiet_begin();
    stet_engine     *worker = quiet_engine(f, 0, common_services);
    stet__hint_setup setup = { 0 };
    stet_hint_port  *forger;
    int64_t          began_ms, took_ms;
    uint64_t         reads;

    CHECK_OK(stet__hint_open(&forger, stet__platform_real(), queue_name, &setup));
    reads = stet_engine_reads(worker);
    began_ms = fixture_mono_ms();
    for (int i = 0; i < 50; i++) {
        forge(forger, STET_HINT_ANY, NULL, 0, 5);
        forge(forger, STET_HINT_WORK, NULL, 0, 5);
        forge(forger, STET_HINT_TIMER, NULL, i, 5);
        forge(forger, STET_HINT_RUN, NULL, 0, 5);
    }
    took_ms = fixture_mono_ms() - began_ms;
    reads = stet_engine_reads(worker) - reads;
    test_note("1000 hints in %lld ms: %llu reads", (long long)took_ms, (unsigned long long)reads);
    CHECK(reads <= 8 * (uint64_t)(21 + took_ms / 100));
    stet__hint_close(forger);
    stet_close(worker);
    fixture_end(f);
}

/* And about a run that somebody waits for. The looks grow apart: 0.2, 0.4, 0.8 … 250 ms. */
TEST(G9_forged_news_of_a_run_make_its_waiter_look_at_growing_intervals)
{
    fixture         *f = quiet_begin();
    stet_engine     *worker = quiet_engine(f, 0, common_services);
    stet_engine     *client = quiet_engine(f, STET_ROLE_CLIENT, NULL);
    stet__hint_setup setup = { 0 };
    stet_hint_port  *forger;
    int64_t          began_ms, took_ms;
    uint64_t         reads;
    stet_run_id      run = fixture_start(client, "t.door", "x", NULL);
    waiting          w;

    gate_await(&common_door, 1);
    CHECK_OK(stet__hint_open(&forger, stet__platform_real(), queue_name, &setup));
    waiting_begin(&w, client, &run);
    reads = stet_engine_reads(client);
    began_ms = fixture_mono_ms();
    forge(forger, STET_HINT_RUN, &run, 0, 1000);
    took_ms = fixture_mono_ms() - began_ms;
    reads = stet_engine_reads(client) - reads;
    test_note("1000 hints in %lld ms: %llu reads", (long long)took_ms, (unsigned long long)reads);
    CHECK(reads <= 2 * (uint64_t)(14 + took_ms / 250));
    gate_open(&common_door);
    waiting_end(&w); /* the real one is not forgotten */
    stet__hint_close(forger);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}
