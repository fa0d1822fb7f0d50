/* Several engines on one store and engines without threads: isolation, hints, workers, polling,
 * health. Rows G7, G9, G10, G11, H10. tsan: yes */
#include "damage.h"

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"

/* ---- handlers -------------------------------------------------------------------------------- */

static int
h_nap(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)"before", NULL));
    STET_TRY(stet_sleep_ms(ctx, "nap", 20));
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, input);
}

static int
h_calls(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    STET_TRY(stet_call(ctx, &out, "t.nap", input, NULL));
    return stet_return(ctx, out);
}

static int
h_put(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "entry", input));
    return stet_return(ctx, input);
}

static int
h_fails_twice(stet_ctx *ctx, stet_bytes input)
{
    effect("tried");
    if (effects("tried") < 3)
        return stet_fail(ctx, STET_ERETRY, "not yet");
    return stet_return(ctx, input);
}

static int
h_futures(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[3];

    STET_TRY(stet_step_start(ctx, &futures[0], "a", body_effect, (void *)"a", NULL));
    STET_TRY(stet_step_start(ctx, &futures[1], "b", body_effect, (void *)"b", NULL));
    STET_TRY(stet_sleep_start(ctx, &futures[2], "c", "10ms"));
    STET_TRY(stet_await_all(ctx, futures, 3));
    return stet_return(ctx, input);
}

static const stet_handler fleet_handlers[] = {
    { "quick", h_quick, NULL },
    { "nap", h_nap, NULL },
    { "calls", h_calls, NULL },
    { "approval", h_approval, NULL },
    { "fails", h_fails_twice, NULL },
    { "futures", h_futures, NULL },
    { 0 },
};
static const stet_handler    fleet_object[] = { { "put", h_put, NULL }, { 0 } };
static const fixture_service fleet_services[] = { { "t", fleet_handlers, false, NULL },
                                                  { "o", fleet_object, true, NULL },
                                                  { 0 } };

/* ---- G7: isolation --------------------------------------------------------------------------- */

static stet_engine *
g7_open(fixture *f, const char *prefix)
{
    stet_engine *e;
    char         url[512];

    if (f->is_sqlite)
        (void)snprintf(url, sizeof url, "%s?prefix=%s", f->url, prefix);
    else if (f->is_postgres || f->is_redis)
        (void)snprintf(url, sizeof url, "%s_%s", f->url,
                       prefix); /* it ends with the schema or prefix */
    else
        (void)snprintf(url, sizeof url, "memory:");
    CHECK_OK(stet_open(&e, url, &f->options));
    fixture_register(e, fleet_services);
    CHECK_OK(stet_engine_start(e));
    return e;
}

TEST(G7_engines_of_different_prefixes_do_not_see_each_other)
{
    fixture     *f = fixture_begin();
    stet_engine *e[2];
    stet_run_id  runs[2], put[2];
    stet_bytes   value;
    stet_health  health;

    e[0] = g7_open(f, "red");
    e[1] = g7_open(f, "blue");
    for (int i = 0; i < 2; i++) {
        bool        existed = true;
        const char *input = i ? "blue" : "red";

        runs[i] = fixture_start(e[i], "t.calls", input,
                                STET_START(.idempotency_key = "same", .existed = &existed));
        CHECK(!existed);
        put[i] = fixture_start(e[i], "o.put", input, STET_START(.key = "same"));
    }
    for (int i = 0; i < 2; i++) {
        EXPECT_RESULT(e[i], &runs[i], i ? "blue" : "red");
        EXPECT_RESULT(e[i], &put[i], i ? "blue" : "red");
        CHECK_CODE(stet_result_get(e[1 - i], NULL, &runs[i]), STET_ENOTFOUND);
        CHECK_CODE(stet_cancel(e[1 - i], &runs[i], NULL, NULL), STET_ENOTFOUND);
        CHECK_INT(fixture_count(e[i], NULL), 3);
        CHECK_OK(stet_state_read(e[i], &value, "o", "same", "entry"));
        CHECK(fixture_is(value, i ? "blue" : "red"));
        stet_free((void *)(uintptr_t)value.data);
        CHECK_OK(stet_health_get(e[i], &health));
        CHECK_INT(health.workers, 1);
    }
    stet_close(e[0]);
    stet_close(e[1]);
    fixture_end(f);
}

/* ---- G9: hints ------------------------------------------------------------------------------- */

static stet_engine *
g9_open(fixture *f, uint32_t roles)
{
    stet_options before = f->options;
    stet_engine *e;

    f->options.roles = roles;
    f->options.poll_ms = 20;
    e = fixture_open(f);
    f->options = before;
    return e;
}

static void
g9_run_all(fixture *f, stet_engine *client)
{
    stet_run_id runs[5], approval;

    (void)f;
    approval = fixture_start(client, "t.approval", "", NULL);
    for (int i = 0; i < 5; i++)
        runs[i] = fixture_start(client, i % 2 ? "t.calls" : "t.fails", "ok",
                                STET_START(.retry = { .attempts = 9 }));
    effects_await("handed out", 1);
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    EXPECT_RESULT(client, &approval, "yes");
    for (int i = 0; i < 5; i++)
        EXPECT_RESULT(client, &runs[i], "ok");
}

TEST(G9_without_hints_everything_completes_by_polling)
{
    fixture     *f = fixture_begin();
    stet_engine *worker = g9_open(f, STET_ROLE_WORKER), *timers = g9_open(f, STET_ROLE_TIMERS),
                *client;
    stet_engine    *all[2] = { worker, timers };
    stet_store_ops *ops;

    for (int i = 0; i < 2; i++) {
        ops = damage_ops(all[i]);
        ops->watch = NULL;
        ops->unwatch = NULL;
    }
    fixture_register(worker, fleet_services);
    CHECK_OK(stet_engine_start(worker));
    CHECK_OK(stet_engine_start(timers));
    client = g9_open(f, STET_ROLE_CLIENT);
    ops = damage_ops(client);
    ops->watch = NULL;
    ops->unwatch = NULL;
    CHECK_OK(stet_engine_start(client));
    g9_run_all(f, client);
    stet_close(client);
    stet_close(worker);
    stet_close(timers);
    fixture_end(f);
}

TEST(G9_with_hints_work_from_elsewhere_is_taken_up_before_the_poll)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    int64_t      before_ms;
    stet_run_id  run;

    f->options.poll_ms = 3600000; /* so only a hint can do it */
    f->options.wait_poll_ms = 60000;
    f->options.sweep_ms = 3600000;
    fixture_up(f, fleet_services);
    client = fixture_open(f);
    before_ms = fixture_mono_ms();
    for (int i = 0; i < 3; i++) {
        run = fixture_start(client, "t.quick", "ok", NULL);
        EXPECT_RESULT(f->engine, &run, "ok");
    }
    CHECK(fixture_mono_ms() - before_ms < 60000);
    stet_close(client);
    fixture_end(f);
}

typedef struct g9_client {
    stet_engine *engine;
    uint64_t     reads;
} g9_client;

/* The run ends when its waiter has looked once. */
static void *
g9_let_go(void *arg)
{
    const g9_client *c = arg;

    AWAIT(stet_engine_reads(c->engine) > c->reads);
    gate_open(&common_door);
    return NULL;
}

TEST(G9_an_api_only_node_is_told_of_an_answer_before_the_poll)
{
    fixture    *f = fixture_begin();
    g9_client   client;
    pthread_t   thread;
    stet_run_id run;

    f->options.wait_poll_ms = 60000; /* so only a hint can do it */
    fixture_up(f, common_services);
    f->options.roles = STET_ROLE_CLIENT;
    client.engine = fixture_open(f);
    CHECK_OK(stet_engine_start(client.engine));
    run = fixture_start(client.engine, "t.door", "ok", NULL);
    gate_await(&common_door, 1);
    client.reads = stet_engine_reads(client.engine);
    CHECK_INT(pthread_create(&thread, NULL, g9_let_go, &client), 0);
    CHECK_OK(stet_wait(client.engine, NULL, &run, 50000));
    pthread_join(thread, NULL);
    stet_close(client.engine);
    fixture_end(f);
}

TEST(G9_combinations_that_cannot_work_are_refused)
{
    fixture     *f = fixture_begin();
    stet_engine *e;

    CHECK_CODE(stet_open(&e, "memory:", STET_OPTIONS(.roles = STET_ROLE_CLIENT | STET_ROLE_WORKER)),
               STET_ECONFIG);
    CHECK_CODE(stet_open(&e, "memory:", STET_OPTIONS(.lease_ms = 1000, .renew_ms = 1000)),
               STET_ECONFIG);
    CHECK_CODE(stet_open(&e, "memory:", STET_OPTIONS(.retry_first_ms = 1000, .retry_max_ms = 10)),
               STET_ECONFIG);
    CHECK_CODE(stet_open(&e, "carrier-pigeon://loft", NULL), STET_EURL);
    CHECK_CODE(stet_open(&e, "", NULL), STET_EURL);
    fixture_end(f);
}

/* ---- G10: workers ---------------------------------------------------------------------------- */

typedef struct workers {
    int      n, dead;
    char     id[8][STET_ID_TEXT_MAX], name[8][64], handlers[8][256];
    int64_t  started_ms[8], seen_ms[8], process[8];
    uint32_t roles[8], slots[8];
    bool     has_host;
} workers;

static int
keep_worker(void *arg, const stet_worker_info *i)
{
    workers *w = arg;

    if (i->is_dead) {
        w->dead++;
        return 0;
    }
    CHECK(w->n < 8);
    (void)snprintf(w->id[w->n], sizeof w->id[0], "%s", i->id);
    (void)snprintf(w->name[w->n], sizeof w->name[0], "%s", i->name);
    (void)snprintf(w->handlers[w->n], sizeof w->handlers[0], "%s", i->handlers);
    w->roles[w->n] = i->roles;
    w->slots[w->n] = i->slots;
    w->process[w->n] = i->process;
    w->started_ms[w->n] = i->started_ms;
    w->seen_ms[w->n] = i->seen_ms;
    w->has_host = i->host != NULL && i->host[0] != '\0';
    w->n++;
    return 0;
}

static workers
workers_now(stet_engine *e)
{
    workers w;

    memset(&w, 0, sizeof w);
    CHECK_OK(stet_worker_list(e, keep_worker, &w));
    return w;
}

TEST(G10_workers_are_listed_with_what_they_do)
{
    fixture     *f = fixture_begin();
    stet_engine *timers, *looker;
    workers      w;
    int          at;

    looker = fixture_open(f);
    CHECK_INT(workers_now(looker).n, 0);
    f->options.worker = "alice";
    f->options.concurrency = 3;
    f->options.renew_ms = 20;
    fixture_up(f, fleet_services);
    f->options.worker = "bob";
    f->options.roles = STET_ROLE_TIMERS;
    timers = fixture_open(f);
    CHECK_OK(stet_engine_start(timers));
    w = workers_now(looker);
    CHECK_INT(w.n, 2);
    at = strcmp(w.name[0], "alice") == 0 ? 0 : 1;
    CHECK_STR(w.name[at], "alice");
    CHECK_STR(w.name[1 - at], "bob");
    CHECK(strcmp(w.id[0], w.id[1]) != 0);
    CHECK_HAS(w.handlers[at], "t.quick");
    CHECK_HAS(w.handlers[at], "o.put");
    CHECK_STR(w.handlers[1 - at], "");
    CHECK_INT(w.roles[at], STET_ROLE_WORKER | STET_ROLE_TIMERS);
    CHECK_INT(w.roles[1 - at], STET_ROLE_TIMERS);
    CHECK_INT(w.slots[at], 3);
    CHECK(w.process[at] > 0 && w.has_host);
    CHECK(w.started_ms[at] > 0 && w.seen_ms[at] >= w.started_ms[at]);
    AWAIT(workers_now(looker).seen_ms[at] > w.seen_ms[at]);
    fixture_down(f);
    w = workers_now(looker);
    CHECK_INT(w.n, 1);
    CHECK_STR(w.name[0], "bob");
    stet_close(timers);
    CHECK_INT(workers_now(looker).n, 0);
    stet_close(looker);
    fixture_end(f);
}

/* ---- G11: without threads -------------------------------------------------------------------- */

static void
g11_poll_until(stet_engine *e, const stet_run_id *run, const char *want)
{
    int64_t     until_ms = fixture_mono_ms() + fixture_patience_ms();
    stet_result r;
    int         err;

    while ((err = stet_result_get(e, &r, run)) == STET_EOPEN) {
        CHECK(fixture_mono_ms() < until_ms);
        CHECK_OK(stet_engine_poll(e, NULL, 20));
    }
    if (err != STET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", stet_code_name(err), stet_last_error());
    CHECK(fixture_is(r.value, want));
    stet_result_free(&r);
}

TEST(G11_whole_workflows_without_a_thread_of_stet)
{
    fixture     *f = fixture_begin();
    stet_engine *e;
    stet_run_id  run;
    int          did;

    e = fixture_open_with(f, fleet_services);
    CHECK_OK(stet_engine_poll(e, &did, 0));
    CHECK_INT(did, 0);
    run = fixture_start(e, "t.quick", "q", NULL);
    g11_poll_until(e, &run, "q");
    run = fixture_start(e, "t.nap", "n", NULL);
    g11_poll_until(e, &run, "n");
    run = fixture_start(e, "t.calls", "c", NULL);
    g11_poll_until(e, &run, "c");
    run = fixture_start(e, "t.fails", "f", NULL);
    g11_poll_until(e, &run, "f");
    run = fixture_start(e, "t.futures", "u", NULL);
    g11_poll_until(e, &run, "u");
    run = fixture_start(e, "o.put", "p", STET_START(.key = "k"));
    g11_poll_until(e, &run, "p");
    run = fixture_start(e, "t.quick", "d", STET_START(.delay_ms = 30));
    g11_poll_until(e, &run, "d");
    CHECK_INT(effects("before"), 2);
    CHECK_INT(effects("after"), 2);
    CHECK_INT(effects("tried"), 3);
    stet_close(e);
    fixture_end(f);
}

TEST(G11_signals_cancels_and_deadlines_reach_a_polled_engine)
{
    fixture     *f = fixture_begin();
    stet_engine *e;
    stet_run_id  run, other, late;

    e = fixture_open_with(f, fleet_services);
    run = fixture_start(e, "t.approval", "", NULL);
    other = fixture_start(e, "t.approval", "", NULL);
    while (effects("handed out") < 2)
        CHECK_OK(stet_engine_poll(e, NULL, 10));
    CHECK_OK(stet_resolve(e, handed_out, stet_text("yes"))); /* of whichever came last */
    while (stet_result_get(e, NULL, &run) == STET_EOPEN &&
           stet_result_get(e, NULL, &other) == STET_EOPEN)
        CHECK_OK(stet_engine_poll(e, NULL, 10));
    if (stet_result_get(e, NULL, &run) == STET_OK)
        run = other;
    CHECK_OK(stet_cancel(e, &run, "ann", "no"));
    CHECK_CODE(stet_result_get(e, NULL, &run), STET_ECANCELLED);
    while (fixture_look(e, &run).status != STET_STATUS_CANCELLED)
        CHECK_OK(stet_engine_poll(e, NULL, 10));
    late = fixture_start(e, "t.approval", "", STET_START(.timeout_ms = 40));
    while (fixture_look(e, &late).status != STET_STATUS_EXPIRED)
        CHECK_OK(stet_engine_poll(e, NULL, 10));
    stet_close(e);
    fixture_end(f);
}

TEST(G11_at_most_one_run_a_call_and_the_wait_is_bounded)
{
    fixture     *f = fixture_begin();
    stet_engine *e;
    int64_t      before_ms;
    int          did;

    e = fixture_open_with(f, fleet_services);
    for (int i = 0; i < 5; i++)
        (void)fixture_start(e, "t.quick", "", NULL);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(stet_engine_poll(e, &did, 1000));
        CHECK_INT(did, 1);
        CHECK_INT(effects("quick"), i + 1);
    }
    before_ms = fixture_mono_ms();
    CHECK_OK(stet_engine_poll(e, &did, 60));
    CHECK_INT(did, 0);
    CHECK(fixture_mono_ms() - before_ms >= 50);
    CHECK(fixture_mono_ms() - before_ms < 20000);
    CHECK_OK(stet_engine_stop(e, 0));
    CHECK_CODE(stet_engine_poll(e, &did, 0), STET_ESTATE);
    stet_close(e);
    fixture_up(f, fleet_services);
    CHECK_CODE(stet_engine_poll(f->engine, &did, 0), STET_ESTATE); /* it has threads */
    fixture_end(f);
}

typedef struct polled_wait {
    stet_engine *engine;
    stet_run_id  run;
    stet_result  result;
    int          poll, wait;
    atomic_bool  is_over;
} polled_wait;

static void *
polled_waiter(void *arg)
{
    polled_wait *p = arg;

    p->poll = stet_engine_poll(p->engine, NULL, 0);
    p->wait = stet_wait(p->engine, &p->result, &p->run, 0);
    atomic_store(&p->is_over, true);
    return NULL;
}

/* A handler that is parked belongs to the thread it began on; resumed by the wait of another one it
 * would fail for good. */
TEST(G11_another_thread_waits_and_does_not_poll)
{
    fixture    *f = fixture_begin();
    polled_wait p = { .is_over = false };
    pthread_t   thread;

    p.engine = fixture_open(f);
    fixture_register(p.engine, fleet_services);
    p.run = fixture_start(p.engine, "t.nap", "n", NULL);
    while (effects("before") == 0)
        CHECK_OK(stet_engine_poll(p.engine, NULL, 10));
    CHECK(pthread_create(&thread, NULL, polled_waiter, &p) == 0);
    while (!atomic_load(&p.is_over))
        CHECK_OK(stet_engine_poll(p.engine, NULL, 10));
    (void)pthread_join(thread, NULL);
    CHECK_CODE(p.wait, STET_OK);
    CHECK_CODE(p.poll, STET_EUSAGE);
    CHECK_INT(effects("after"), 1);
    stet_result_free(&p.result);
    stet_close(p.engine);
    fixture_end(f);
}

/* False: the machine stood still for the better part of a lease, and its polls came too late. */
static bool
g11_beats(void)
{
    fixture     *f = fixture_begin();
    stet_engine *e;
    workers      w;
    int64_t      until_ms, polled_ms;
    bool         stood_still = false, is_well;

    f->options.lease_ms = 1500;
    f->options.renew_ms = 50;
    e = fixture_open_with(f, fleet_services);
    CHECK_OK(stet_engine_poll(e, NULL, 0));
    polled_ms = fixture_mono_ms();
    f->options.lease_ms = 0;
    f->options.renew_ms = 0;
    f->options.sweep_ms = 20;
    f->options.roles = STET_ROLE_TIMERS;
    fixture_up(f, (const fixture_service[]){ { 0 } }); /* looks for the dead all the time */
    until_ms = stet_engine_now_ms(e) + 3200;           /* more than two leases */
    do {
        CHECK_OK(stet_engine_poll(e, NULL, 10));
        stood_still = stood_still || fixture_mono_ms() - polled_ms > 500;
        polled_ms = fixture_mono_ms();
    } while (stet_engine_now_ms(e) < until_ms);
    w = workers_now(f->engine);
    is_well =
        w.n == 2 && fixture_logged(f, "is gone") == 0 && fixture_logged(f, "lease ended") == 0;
    stood_still = stood_still || fixture_mono_ms() - polled_ms > 500;
    stet_close(e);
    fixture_end(f);
    fixture_wipe();
    CHECK(is_well || stood_still);
    return is_well;
}

TEST(G11_polling_is_the_heartbeat)
{
    int tries = 0;

    while (!g11_beats())
        CHECK(++tries < 8);
}

TEST(G11_what_a_polled_engine_left_another_takes_over)
{
    fixture     *f = fixture_begin();
    stet_engine *e;
    stet_run_id  run;

    e = fixture_open_with(f, fleet_services);
    run = fixture_start(e, "t.nap", "n", NULL);
    while (effects("before") == 0)
        CHECK_OK(stet_engine_poll(e, NULL, 10));
    stet_close(e);
    fixture_up(f, fleet_services);
    EXPECT_RESULT(f->engine, &run, "n");
    CHECK_INT(effects("before"), 1);
    CHECK_INT(effects("after"), 1);
    fixture_end(f);
}

/* ---- H10: health ----------------------------------------------------------------------------- */

static int
ping_fails(stet_store *s)
{
    (void)s;
    return stet__fail(STET_EIO, "the disk is gone");
}

TEST(H10_health_before_during_and_after)
{
    fixture    *f = fixture_begin();
    stet_health h;

    f->engine = fixture_open_with(f, fleet_services);
    CHECK_OK(stet_health_get(f->engine, &h));
    CHECK(!h.is_alive && !h.is_ready && h.has_store && !h.has_timers);
    CHECK_INT(h.workers, 0);
    CHECK(h.text != NULL && h.text[0] != '\0');
    CHECK_OK(stet_engine_start(f->engine));
    CHECK_OK(stet_health_get(f->engine, &h));
    CHECK(h.is_alive && h.is_ready && h.has_store && h.has_timers);
    CHECK_INT(h.workers, 1);
    CHECK_OK(stet_engine_stop(f->engine, 0));
    CHECK_OK(stet_health_get(f->engine, &h));
    CHECK(!h.is_alive && !h.is_ready && h.has_store && !h.has_timers);
    CHECK_INT(h.workers, 0);
    fixture_end(f);
}

TEST(H10_health_of_a_store_that_does_not_answer)
{
    fixture        *f = fixture_begin();
    stet_health     h;
    stet_store_ops *ops;

    fixture_up(f, fleet_services);
    stet_close(f->engine);
    f->engine = fixture_open(f);
    ops = damage_ops(f->engine);
    CHECK_OK(stet_engine_start(f->engine));
    ops->ping = ping_fails;
    CHECK_OK(stet_health_get(f->engine, &h));
    CHECK(!h.has_store && !h.is_ready && h.is_alive);
    CHECK_HAS(h.text, "the disk is gone");
    fixture_end(f);
}

TEST(H10_a_client_is_ready_and_sees_who_serves_timers)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_health  h;

    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    CHECK_OK(stet_health_get(client, &h));
    CHECK(h.is_alive && h.is_ready && h.has_store && !h.has_timers);
    CHECK_INT(h.workers, 0);
    CHECK_HAS(h.text, "no living node serves timers");
    f->options.roles = 0;
    fixture_up(f, fleet_services);
    CHECK_OK(stet_health_get(client, &h));
    CHECK(h.has_timers);
    CHECK_INT(h.workers, 1);
    fixture_down(f);
    stet_close(client);
    fixture_end(f);
}
