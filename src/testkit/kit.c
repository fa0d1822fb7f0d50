/* A kit's life: the simulated machine, the process under test on it, and calls into that process.
 *
 * Invariants:
 *  1. kit->is_up: kit->node is alive and kit->engine started on it.
 *  2. What outlives the process is allocated from kit->alloc, never from the node; what is the
 *  node's
 *     goes with it.
 *  3. is_inside is set exactly while fibers run.
 */
#include "testkit/kit.h"

#include <stdio.h>
#include <string.h>

#define KIT_STACK_BYTES  ((size_t)1024 * 1024)
#define KIT_EVENTS_A_US  1000u
#define KIT_CALM_MS      INT64_C(3600000)       /* the most the configuration allows */
#define KIT_NEVER_MS     INT64_C(3155760000000) /* a hundred years */
#define KIT_DAY_MS       INT64_C(86400000)
#define KIT_RETENTION_MS INT64_C(315360000000)    /* the most the configuration allows */
#define KIT_BEGIN_MS     INT64_C(1767225600000)   /* 2026-01-01 00:00:00 UTC */
#define KIT_LAST_MS      INT64_C(253402300799999) /* of the year 9999 */
#define KIT_EVENTS_MAX   UINT64_C(20000000)
#define KIT_WAITS_MAX    200000u /* in one call: months, if it looks each minute */
#define KIT_SLOTS        4
#define KIT_IN_FLIGHT    64
#define KIT_WAIT_POLL_MS 60000

void
stet_test_options_init(stet_test_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* ---- the machine ---------------------------------------------------------------------------- */

static stet__platform *
kit_node(stet_test *kit)
{
    stet__platform *node = stet__sim_node_new(kit->sim);
    int64_t         begin_ms = kit->options.now_ms != 0 ? kit->options.now_ms : KIT_BEGIN_MS;

    if (node != NULL) /* the simulator's clock begins a millisecond later */
        stet__sim_node_skew(kit->sim, node, begin_ms - KIT_BEGIN_MS - 1);
    return node;
}

static int
kit_machine(stet_test *kit)
{
    uint64_t seed = kit->options.seed != 0 ? kit->options.seed : 1;

    if (kit->sim != NULL)
        stet__sim_restart(kit->sim, seed);
    else if ((kit->sim = stet__sim_new_with(seed, KIT_STACK_BYTES, KIT_EVENTS_A_US)) == NULL)
        return STET_ENOMEM;
    if ((kit->owner = kit_node(kit)) == NULL || (kit->db = stet__memory_db_new(kit->owner)) == NULL)
        return STET_ENOMEM;
    if (stet__memory_open(&kit->look, kit->owner, kit->db) != STET_OK)
        return STET_ENOMEM;
    kit->wall_ms =
        (stet__wall_us(kit->owner) - stet__sim_now_us(kit->sim)) / 1000; /* both are whole here */
    return STET_OK;
}

int
stet__kit_begin(stet_test *kit)
{
    int err;

    stet__map_init(&kit->steps, kit->alloc);
    stet__map_init(&kit->runs, kit->alloc);
    kit->app = stet_app_new("test");
    if ((err = kit_machine(kit)) != STET_OK)
        return stet__fail(err, "the test kit: out of memory");
    kit->script = (shim_script){ .choose = stet__kit_choose,
                                 .applied = stet__kit_applied,
                                 .crash = stet__kit_crash,
                                 .arg = kit };
    return STET_OK;
}

void
stet__kit_end(stet_test *kit)
{
    stet__kit_down(kit);
    stet__store_close(kit->look);
    stet__memory_db_free(kit->db);
    kit->look = NULL;
    kit->db = NULL;
    if (kit->app != NULL)
        stet__app_free(kit->app);
    kit->app = NULL;
    stet__kit_points_free(kit);
    stet__free(kit->alloc, kit->started);
    kit->started = NULL;
    kit->n_started = 0;
    kit->calls = 0;
    kit->spent_us = 0;
    kit->life = 0;
    kit->signal_key[0] = '\0';
    kit->broken[0] = '\0';
}

stet_test *
stet_test_new(const stet_test_options *options)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;
    stet_test   *kit;

    if (options != NULL && options->size != sizeof *options) {
        (void)stet__fail(STET_EINVAL,
                         "stet_test_options.size is %zu; use STET_TEST_OPTIONS(…) or "
                         "stet_test_options_init()",
                         options->size);
        return NULL;
    }
    if (options != NULL && (options->now_ms < 0 || options->now_ms > KIT_LAST_MS)) {
        (void)stet__fail(STET_EINVAL,
                         "stet_test_options.now_ms is %lld, outside the years 1970 to 9999",
                         (long long)options->now_ms);
        return NULL;
    }
    if ((kit = stet__get0(alloc, sizeof *kit)) == NULL) {
        (void)stet__fail(STET_ENOMEM, "the test kit: out of memory");
        return NULL;
    }
    kit->alloc = alloc;
    kit->events_max = KIT_EVENTS_MAX;
    stet_test_options_init(&kit->options);
    if (options != NULL)
        kit->options = *options;
    if (kit->options.engine != NULL) {
        kit->engine_options = *kit->options.engine;
        kit->has_engine_options = true;
    }
    kit->options.engine = NULL;
    if (stet__kit_begin(kit) != STET_OK) {
        stet_test_free(kit);
        return NULL;
    }
    return kit;
}

void
stet_test_free(stet_test *kit)
{
    if (kit == NULL)
        return;
    stet__kit_end(kit);
    stet__sim_free(kit->sim);
    stet__free(kit->alloc, kit);
}

/* ---- what is registered ---------------------------------------------------------------------- */

/* The last one registered takes the place of an earlier one of its name. */
static void
kit_replace(stet_test *kit)
{
    stet_app    *app = kit->app;
    cli_service *last = &app->services[app->n_services - 1];

    for (size_t i = 0; i + 1 < app->n_services; i++)
        if (last->name != NULL && app->services[i].name != NULL &&
            strcmp(app->services[i].name, last->name) == 0) {
            app->services[i] = *last;
            app->n_services--;
            return;
        }
}

int
stet_test_service(stet_test *kit, const char *service, const stet_handler *handlers)
{
    int err = stet__kit_enter(kit, "stet_test_service");

    if (err != STET_OK)
        return err;
    stet__kit_down(kit);
    stet_app_service(kit->app, service, handlers);
    kit_replace(kit);
    return STET_OK;
}

int
stet_test_object(stet_test *kit, const char *service, const stet_handler *handlers,
                 const stet_entry *initial)
{
    int err = stet__kit_enter(kit, "stet_test_object");

    if (err != STET_OK)
        return err;
    stet__kit_down(kit);
    stet_app_object(kit->app, service, handlers, initial);
    kit_replace(kit);
    return STET_OK;
}

int
stet_test_app(stet_test *kit, stet_app *app)
{
    int err = stet__kit_enter(kit, "stet_test_app");

    if (err != STET_OK)
        return err;
    if (kit->app->n_services > 0)
        return stet__fail(STET_ESTATE,
                          "stet_test_app: services are registered already; give the kit "
                          "the app first, then what the app has not");
    stet__kit_down(kit);
    stet__app_free(kit->app);
    kit->app = app;
    return STET_OK;
}

/* ---- the process under test ------------------------------------------------------------------ */

int
stet__kit_enter(stet_test *kit, const char *call)
{
    if (kit == NULL)
        return stet__fail(STET_EINVAL, "%s: no kit; stet_test_new() returned NULL", call);
    if (kit->is_inside)
        return stet__fail(
            STET_EUSAGE,
            "%s: called in a handler, a body or stet_test_do(); call it from the test. "
            "A body uses stet_test_engine()",
            call);
    return STET_OK;
}

/* Values the kit decides. With one engine, known timers and no other process there is nothing to
 * poll for, and a lease that ends while days are skipped would only be in the way. */
static void
kit_configure(const stet_test *kit, stet_options *o)
{
    *o = kit->has_engine_options ? kit->engine_options : kit->app->options;
    o->size = sizeof *o;
    o->lease_ms = o->poll_ms = o->sweep_ms = KIT_CALM_MS;
    o->renew_ms = KIT_CALM_MS / 2;
    o->queue = "none";
    if (o->worker == NULL)
        o->worker = "test";
    if (o->concurrency == 0)
        o->concurrency = KIT_SLOTS;
    if (o->in_flight_max == 0)
        o->in_flight_max = KIT_IN_FLIGHT;
    if (o->retention_ms == 0)
        o->retention_ms = KIT_RETENTION_MS;
    if (o->wait_poll_ms == 0)
        o->wait_poll_ms = KIT_WAIT_POLL_MS;
    if (o->log == NULL)
        o->log_level = STET_LOG_OFF;
}

static int
kit_register(stet_test *kit)
{
    int err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < kit->app->n_services; i++) {
        const cli_service *s = &kit->app->services[i];

        err = s->is_object ? stet_register_object(kit->engine, s->name, s->handlers, s->initial)
                           : stet_register(kit->engine, s->name, s->handlers);
    }
    return err;
}

/* Runs on: a fiber of the process. */
static int
kit_open(stet_test *kit)
{
    stet_store  *memory, *store;
    stet_options options;
    int          err;

    kit_configure(kit, &options);
    if ((err = stet__memory_open(&memory, kit->node, kit->db)) != STET_OK ||
        (err = stet__shim_store_new(&store, memory, &kit->script)) != STET_OK ||
        (err = stet__open_on(&kit->engine, kit->node, store, "memory:", &options)) != STET_OK)
        return err;
    kit->engine->config.lease_ms = KIT_NEVER_MS;
    kit->engine->config.renew_ms = KIT_NEVER_MS / 2;
    kit->engine->config.sweep_ms = KIT_DAY_MS;
    stet__kit_watch(kit);
    if ((err = kit_register(kit)) == STET_OK && (err = stet_engine_start(kit->engine)) == STET_OK)
        return STET_OK;
    return err;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct kit_call {
    stet_test *kit;
    int (*fn)(stet_engine *engine, void *arg);
    void *arg;
    bool  is_done;
    int   rc;
    char  error[1024]; /* the thread's last error is everybody's here */
} kit_call;

static void
kit_call_main(void *arg)
{
    kit_call *call = arg;

    call->rc = call->fn != NULL ? call->fn(call->kit->engine, call->arg) : kit_open(call->kit);
    (void)snprintf(call->error, sizeof call->error, "%s", stet_last_error());
    call->is_done = true;
}

/* Of a process that died: its sessions are proven dead, so that the next takes over at once. */
static void
kit_bury(stet_test *kit)
{
    if (kit->node == NULL)
        return;
    if (stet__sim_node_is_alive(kit->sim, kit->node))
        stet__sim_node_crash(kit->sim, kit->node);
    stet__memory_db_forget(kit->db, kit->node);
    stet__memory_db_bury(kit->db);
    kit->node = NULL;
    kit->engine = NULL;
    kit->is_up = false;
}

/* False: the process died meanwhile. */
static bool
kit_play(stet_test *kit, kit_call *call)
{
    uint32_t waits = 0;
    int      err;

    call->is_done = false;
    call->error[0] = '\0';
    if ((call->rc = stet__sim_spawn(kit->sim, kit->node, kit_call_main, call)) != STET_OK) {
        (void)snprintf(call->error, sizeof call->error, "%s", stet_last_error());
        return true;
    }
    while ((err = stet__kit_settle(kit)) == STET_OK && !call->is_done &&
           stet__sim_node_is_alive(kit->sim, kit->node))
        if (!stet__kit_leap(kit, STET__FOREVER) || ++waits > KIT_WAITS_MAX) {
            err = stet__fail(STET_ETIMEOUT,
                             "the call waits for what never happens; give its wait a limit");
            break;
        }
    if (err == STET_OK)
        return call->is_done;
    call->rc = err;
    (void)snprintf(call->error, sizeof call->error, "%s", stet_last_error());
    if (stet__sim_node_is_alive(kit->sim, kit->node))
        stet__kit_die(kit); /* it has a pointer to this call */
    kit_bury(kit);
    return true;
}

int
stet__kit_up(stet_test *kit)
{
    kit_call call = { .kit = kit };

    if (kit->is_up && stet__sim_node_is_alive(kit->sim, kit->node))
        return STET_OK;
    do {
        kit_bury(kit);
        kit->life++;
        if ((kit->node = kit_node(kit)) == NULL)
            return stet__fail(STET_ENOMEM, "the test kit: out of memory");
    } while (!kit_play(kit, &call) ||
             (call.rc == STET_OK && !stet__sim_node_is_alive(kit->sim, kit->node)));
    if (call.rc != STET_OK) {
        kit_bury(kit);
        return stet__fail(call.rc, "the engine cannot be opened: %s", call.error);
    }
    kit->is_up = true;
    return STET_OK;
}

int
stet__kit_do(stet_test *kit, int (*fn)(stet_engine *engine, void *arg), void *arg, int *tries)
{
    kit_call call = { .kit = kit, .fn = fn, .arg = arg };
    int      err;

    do {
        if ((err = stet__kit_up(kit)) != STET_OK)
            return err;
        if (tries != NULL)
            ++*tries;
    } while (!kit_play(kit, &call));
    return call.rc == STET_OK ? STET_OK : stet__fail(call.rc, "%s", call.error);
}

int
stet_test_do(stet_test *kit, int (*fn)(stet_engine *engine, void *arg), void *arg)
{
    int err = stet__kit_enter(kit, "stet_test_do");

    return err == STET_OK ? stet__kit_do(kit, fn, arg, NULL) : err;
}

stet_engine *
stet_test_engine(stet_test *kit)
{
    return kit->is_up ? kit->engine : NULL;
}

/* ---- ends ------------------------------------------------------------------------------------ */

static int
kit_close(stet_engine *engine, void *arg)
{
    stet_test *kit = arg;

    kit->is_up = false;
    stet_close(engine);
    kit->engine = NULL;
    return STET_OK;
}

void
stet__kit_down(stet_test *kit)
{
    kit_call call = { .kit = kit, .fn = kit_close, .arg = kit };

    if (kit->sim != NULL && kit->is_up && stet__sim_node_is_alive(kit->sim, kit->node))
        (void)kit_play(kit, &call);
    if (kit->sim != NULL)
        kit_bury(kit);
}

/* Results are the caller's and come from the real allocator, so the engine's copies of them do not
 * go with the node's memory. */
static void
kit_drop_results(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    if (e == NULL)
        return;
    for (size_t i = 0; e->recent != NULL && i < e->recent_n; i++)
        stet_result_free(&e->recent[i].result);
    while (stet__map_next(&e->waiters, &at, &key, &len, &value))
        for (stet__waiter *w = value; w != NULL; w = w->next)
            stet_result_free(&w->result);
}

void
stet__kit_die(stet_test *kit)
{
    kit_drop_results(kit->engine);
    stet__sim_node_crash(kit->sim, kit->node);
}

int
stet_test_crash(stet_test *kit)
{
    int err = stet__kit_enter(kit, "stet_test_crash");

    if (err != STET_OK || (err = stet__kit_up(kit)) != STET_OK)
        return err;
    stet__kit_die(kit);
    kit_bury(kit);
    return STET_OK;
}
