/* The world: nodes and their lives, and the phases every seed goes through.
 *
 *   1. Faults: clients start and wait, operators interfere, nodes crash and come back.
 *   2. Healing: no more faults; schedules fire what is due, and are paused then; everything must
 *      end, or `why` must know why not.
 *   3. Help: an operator settles what nobody settled and frees what is stuck; now everything must
 *      end but what was damaged and what waits for that.
 *   4. Checks, on the store and by `verify`.
 *   5. The history is over: states of it are recovered, each several times (recover.c).
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

#define WORLD_SLICE_US ((int64_t)100000)
#define WORLD_HEAL_US  ((int64_t)900 * 1000000)
#define WORLD_LIMIT_US ((int64_t)7200 * 1000000)
#define WORLD_BACK_MS  60000
#define WORLD_TOLD_US  ((int64_t)300 * 1000000)
#define WORLD_FLIGHTS  128
#define WORLD_WATCH_US ((int64_t)6 * 1000000)

uint64_t
fleet_draw(stet__rng *r, uint64_t below)
{
    uint64_t drawn = below > 0 ? stet__rng_next(r) : 0;

    return below <= UINT32_MAX ? ((drawn >> 32) * below) >> 32 : drawn % below;
}

int64_t
fleet_now_ms(fleet *w)
{
    return mem_now(w->db);
}

int64_t
fleet_peak_ms(fleet *w)
{
    int64_t now_ms = fleet_now_ms(w), later_ms;

    if (w->peak_ms > now_ms)
        return w->peak_ms;
    later_ms = fleet_now_ms(w); /* a look takes time: others go on, and may set it back */
    now_ms = later_ms > now_ms ? later_ms : now_ms;
    return w->peak_ms > now_ms ? w->peak_ms : now_ms;
}

fleet_node *
fleet_node_of(fleet *w, const stet__platform *p)
{
    for (size_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].p == p)
            return &w->nodes[i];
    return NULL;
}

void
fleet_nap(stet__platform *p, int64_t us)
{
    stet__mutex mutex;
    stet__cond  cond;
    int64_t     until_us = stet__mono_us(p) + us;

    if (us <= 0)
        return;
    (void)p->ops->mutex_init(p, &mutex);
    (void)p->ops->cond_init(p, &cond);
    stet__lock(p, &mutex);
    while (stet__mono_us(p) < until_us)
        (void)stet__wait(p, &cond, &mutex, until_us);
    stet__unlock(p, &mutex);
    p->ops->cond_destroy(p, &cond);
    p->ops->mutex_destroy(p, &mutex);
}

void
fleet_nap_long(fleet_node *node, int64_t us)
{
    fleet  *w = node->w;
    int64_t until_us = stet__sim_now_us(w->sim) + us, left_us;

    while (w->has_faults && (left_us = until_us - stet__sim_now_us(w->sim)) > 0)
        fleet_nap(node->p, left_us < WORLD_SLICE_US ? left_us : WORLD_SLICE_US);
    node->late_us = stet__sim_now_us(w->sim);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

void
fleet_crash(fleet *w, fleet_node *node)
{
    stet__platform *p = node->p;

    fleet_trace(w, node, NULL, "the node crashes", NULL, node->life, 0);
    fleet_ledger_crash(w, node);
    fleet_check_parked(w);
    fleet_image_take(w, false);
    node->is_up = false;
    node->engine = NULL;
    node->up_at_us = stet__sim_now_us(w->sim) + 1000 * (int64_t)fleet_draw(&w->faults, 5000);
    stet__sim_node_crash(w->sim, p);
}

static void
world_log(void *arg, const stet_log_record *r)
{
    fleet_node *node = arg;

    if (node->w->options.is_verbose)
        fprintf(stderr, "  %12.6f s  node %u  %s%s%s\n",
                (double)stet__sim_now_us(node->w->sim) / 1e6, node->index,
                r->run != NULL ? r->run : "", r->run != NULL ? ": " : "", r->message);
}

static void
world_options(fleet_node *node, stet_options *o)
{
    static const char *const names[FLEET_NODES_MAX] = { "w0", "w1", "w2", "w3", "w4",
                                                        "w5", "w6", "w7", "w8", "w9" };
    static const uint32_t    roles[8] = { STET_ROLE_CLIENT, STET_ROLE_WORKER, STET_ROLE_TIMERS };
    static const int64_t     parked[] = { 1, 2, 256 }, flights[] = { 2, 8, 1024 };
    fleet                   *w = node->w;
    stet__rng                r;

    /* The same in every life of a node. */
    stet__rng_seed(&r, w->options.seed * 31 + node->index);
    stet_options_init(o);
    o->concurrency = 1 + (int64_t)fleet_draw(&r, 3);
    o->in_flight_max = flights[fleet_draw(&r, 3)];
    if (!w->options.is_large && o->in_flight_max > WORLD_FLIGHTS)
        o->in_flight_max =
            WORLD_FLIGHTS; /* more than there are runs: all the rest is room for crumbs nobody writes */
    o->parked_max = parked[fleet_draw(&r, 3)];
    o->parked_ms = 1 + (int64_t)fleet_draw(&r, 20000);
    o->lease_ms = w->plan.lease_ms;
    o->renew_ms = w->plan.renew_ms;
    o->sweep_ms = 500 + (int64_t)fleet_draw(&r, 4500);
    o->poll_ms = 200 + (int64_t)fleet_draw(&r, 1500);
    o->wait_poll_ms = 100 + (int64_t)fleet_draw(&r, 1000);
    o->work_ahead = fleet_draw(&r, 2) == 0 ? 1 : STET_NONE;
    o->retention_ms = w->plan.retention_ms;
    if (w->of != NULL)
        o->lost_max = 1000; /* how often a worker dies is chance */
    /* The first does everything; some of the others only work, only keep time, or do neither. */
    if (node->index > 0)
        o->roles = roles[fleet_draw(&r, 8)];
    node->is_polled = node->index > 0 && o->roles == 0 && fleet_draw(&r, 4) == 0;
    if (w->plan.is_mirrored && o->roles != STET_ROLE_CLIENT &&
        (node->index == 0 || fleet_draw(&r, 3) != 0)) {
        o->audit = fleet_audit;
        o->audit_arg = node;
    }
    o->worker = names[(int)node->index < w->same_name ? 0 : node->index];
    o->classify = fleet_classify;
    o->log = world_log;
    o->log_arg = node;
    o->log_level = STET_LOG_WARN; /* also when nobody listens: logging looks at the clock */
}

/* So many of those who wait for an event are told at once: all, or so few that there are several lots. */
static size_t
world_lot(const fleet *w)
{
    uint64_t lot = w->options.seed % 4;

    return lot > 0 ? (size_t)lot : STET__TOPIC_LOT;
}

static int
world_open(fleet_node *node)
{
    fleet       *w = node->w;
    stet_options options;
    stet_store  *memory, *store;
    stet_engine *e = NULL;
    int          err;

    world_options(node, &options);
    if ((err = stet__memory_open(&memory, node->p, w->db)) != STET_OK)
        return err;
    store = memory;
    if ((w->of == NULL && (err = fleet_store_new(&store, memory, node)) != STET_OK) ||
        (err = stet__open_on(&e, node->p, store, "memory:", &options)) != STET_OK)
        return err;
    if ((err = fleet_register(e)) != STET_OK ||
        (err = node->is_polled ? stet_engine_poll(e, NULL, 0) : stet_engine_start(e)) != STET_OK) {
        stet_close(e);
        return err;
    }
    e->topic_lot = world_lot(w);
    node->engine = e;
    return STET_OK;
}

/* The loop of a host without threads. It may fail as long as the store does. When all others have
 * gone it stops the engine: what it began is its own to end. */
static void
world_poll(fleet_node *node)
{
    fleet *w = node->w;

    while (!node->is_leaving || node->clients > 1) {
        int did = 0, err = stet_engine_poll(node->engine, &did, 1000);

        w->stats.polls++;
        if (did != 0)
            fleet_nap(node->p, 200); /* the program does other things as well */
        if (err != STET_OK && !w->has_faults)
            fleet_fail(w, NULL, "polling gives %s: %s", stet_code_name(err), stet_last_error());
        if (err != STET_OK)
            fleet_nap(node->p, 50000);
    }
    while (stet_engine_stop(node->engine, 0) != STET_OK)
        fleet_nap(node->p, 50000);
    node->clients--;
}

void
fleet_spawn(fleet_node *node, void (*fn)(void *arg), void *arg)
{
    if (stet__sim_spawn(node->w->sim, node->p, fn, arg) != STET_OK)
        abort();
    node->clients++;
}

/* A life begins: a root fiber of the new node. */
static void
world_life(void *arg)
{
    fleet_node *node = arg;
    fleet      *w = node->w;

    while (world_open(node) != STET_OK)
        fleet_nap(node->p, 100000);
    for (unsigned i = 0; w->of == NULL && i <= FLEET_CLIENTS; i++) {
        node->seats[i] = (fleet_seat){ node, i };
        fleet_spawn(node, i < FLEET_CLIENTS ? fleet_client : fleet_operator, &node->seats[i]);
    }
    if (node->is_polled) {
        node->clients++;
        world_poll(node); /* on the fiber it was opened by: polls are one thread's */
    }
}

/* An orderly end: nobody uses the engine any more, it stops and is closed, and all memory is given
 * back. A root fiber of the node. */
static void
world_leave(void *arg)
{
    fleet_node  *node = arg;
    fleet       *w = node->w;
    stet_engine *e;

    while (node->clients > 0)
        fleet_nap(node->p, 50000);
    e = node->engine;
    node->engine = NULL;
    stet_close(e);
    fleet_trace(w, node, NULL, "the node has stopped", NULL, node->life, 0);
    if (!stet__sim_node_is_clean(w->sim, node->p))
        fleet_fail(w, NULL, "node %u was closed and has not given all memory back", node->index);
    if (node->exits > 0)
        fleet_fail(w, NULL, "node %u was closed, and %u exit hooks were not called", node->index,
                   node->exits);
    fleet_ledger_crash(w, node); /* what it could not record is lost */
    node->up_at_us = stet__sim_now_us(w->sim) + 1000 * (int64_t)fleet_draw(&w->faults, 5000);
    node->is_up = false;
}

void
fleet_leave_node(fleet *w, fleet_node *node)
{
    node->is_leaving = true;
    if (stet__sim_spawn(w->sim, node->p, world_leave, node) != STET_OK)
        abort();
}

static void
world_up(fleet *w, fleet_node *node)
{
    if (node->p != NULL)
        stet__memory_db_forget(w->db, node->p);
    if ((node->p = stet__sim_node_new(w->sim)) == NULL)
        abort();
    node->life++;
    node->born_us = stet__sim_now_us(w->sim);
    node->is_up = true;
    node->is_leaving = false;
    node->clients = node->exits = 0;
    node->engine = NULL;
    node->is_poisoned = false;
    node->skew_ms = 0;
    memset(node->held_us, 0, sizeof node->held_us);
    if (w->has_faults && fleet_fault(w, FLEET_SKEW, node))
        node->skew_ms = (int64_t)fleet_draw(&w->faults, 36000001) - 18000000;
    stet__sim_node_skew(w->sim, node->p, node->skew_ms);
    if (w->has_faults)
        stet__sim_node_memory(w->sim, node->p, w->plan.one_in[FLEET_NO_MEMORY]);
    fleet_trace(w, node, NULL, "a life begins", NULL, node->life, 0);
    if (stet__sim_spawn(w->sim, node->p, world_life, node) != STET_OK)
        abort();
}

void
fleet_raise(fleet *w)
{
    for (size_t i = 0; i < w->n_nodes; i++)
        if (!w->nodes[i].is_up && stet__sim_now_us(w->sim) >= w->nodes[i].up_at_us)
            world_up(w, &w->nodes[i]);
}

static void
world_heal(fleet *w)
{
    w->has_faults = false;
    /* Whoever waits for a time waits so much longer; what is hours late is not waited for. */
    if (w->back_ms > WORLD_BACK_MS) {
        stet__memory_db_advance(w->db, w->back_ms);
        w->jumped_us = stet__sim_now_us(w->sim);
        w->back_ms = 0;
    }
    if (w->healed_ms == 0)
        w->healed_ms = fleet_now_ms(w);
    for (size_t i = 0; i < w->n_nodes; i++) {
        fleet_node *node = &w->nodes[i];

        node->up_at_us = 0;
        if (node->is_up)
            stet__sim_node_memory(w->sim, node->p, 0);
    }
    fleet_trace(w, NULL, NULL, "no more faults", NULL, 0, 0);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static bool
world_is_up(const fleet *w)
{
    for (size_t i = 0; i < w->n_nodes; i++)
        if (!w->nodes[i].is_up)
            return false;
    return true;
}

static bool
world_is_started(const fleet *w)
{
    for (size_t i = 0; i < w->n_tasks; i++) {
        const fleet_task *t = &w->tasks[i];

        if (!t->is_given_up && (!t->is_acked || (t->cancels && !t->is_done)))
            return false; /* its client will still start or cancel it */
    }
    return true;
}

static fleet_node *
world_node(fleet *w)
{
    for (;;) {
        for (size_t i = 0; i < w->n_nodes; i++)
            if (w->nodes[i].is_up && w->nodes[i].engine != NULL && !w->nodes[i].is_leaving)
                return &w->nodes[i];
        fleet_raise(w);
        fleet_nap(w->server, 100000);
    }
}

static stet_engine *
world_engine(fleet *w)
{
    return world_node(w)->engine;
}

/* The timers of a run that cannot be read stay. */
static bool
world_has_timer(fleet *w, int64_t far_ms)
{
    for (mem_node *n = stet__mem_tree_first(&w->db->timers); n != NULL;
         n = stet__mem_tree_next(n)) {
        const mem_timer *timer = MEM_OF(mem_timer, by_time, n);
        const fleet_run *run = fleet_run_of(w, timer->run);
        const mem_run   *row = w->of != NULL ? stet__mem_run(w->db, timer->run) : NULL;

        if (timer->fire_ms > far_ms)
            return false; /* and so are all behind it */
        if (w->of != NULL ? row == NULL || fleet_is_readable(row) : run == NULL || !run->is_damaged)
            return true;
    }
    return false;
}

static bool
world_has_work(fleet *w, int64_t far_ms)
{
    for (mem_node *n = stet__mem_tree_first(&w->db->ready); n != NULL; n = stet__mem_tree_next(n)) {
        const stet_run_row *row = &MEM_OF(mem_run, by_place, n)->row;

        if (row->due_ms < far_ms && strcmp(row->handler, "nobody.run") != 0)
            return true;
    }
    return stet__mem_tree_first(&w->db->owned) != NULL;
}

bool
fleet_is_quiet(fleet *w)
{
    int64_t far_ms = fleet_now_ms(w) + FLEET_FAR_MS; /* once: others go on while it is asked for */

    return world_is_started(w) && !fleet_schedules_go_on(w) && !fleet_schedules_asked(w) &&
           !world_has_work(w, far_ms) && !world_has_timer(w, far_ms) && w->emissions.used == 0;
}

static void
world_resume_on(void *arg)
{
    fleet_node *node = arg;

    fleet_hold_end(node->engine);
    fleet_schedules_pause(node->w, node->engine);
    node->w->is_helped = true;
}

/* What operators paused goes on, also if their calls come late; but for schedules, which would not
 * let anything come to rest. */
static void
world_resume(fleet *w)
{
    fleet_node *node = fleet_is_held(w) || fleet_schedules_go_on(w) ? world_node(w) : NULL;

    w->is_helped = node == NULL;
    if (node != NULL && stet__sim_spawn(w->sim, node->p, world_resume_on, node) != STET_OK)
        abort();
    while (!w->is_helped && !w->is_failed)
        fleet_nap(w->server, 1000);
}

static void
world_plan_on(void *arg)
{
    fleet_node *node = arg;

    fleet_schedules_resume(node->w, node->engine);
    node->w->is_helped = true;
}

/* Is every node at work? */
static bool
world_is_well(const fleet *w)
{
    for (size_t i = 0; i < w->n_nodes; i++)
        if (!w->nodes[i].is_up || w->nodes[i].is_leaving || w->nodes[i].engine == NULL ||
            w->nodes[i].pause_end_us > stet__sim_now_us(w->sim))
            return false;
    return true;
}

/* Faults are over: schedules fire what is due. */
static void
world_watch(fleet *w)
{
    fleet_node *node;
    int64_t     until_us;

    if (w->n_schedules == 0)
        return;
    while (!world_is_well(w) && !w->is_failed) {
        fleet_raise(w);
        fleet_nap(w->server, 100000);
    }
    node = world_node(w);
    w->is_helped = false;
    if (stet__sim_spawn(w->sim, node->p, world_plan_on, node) != STET_OK)
        abort();
    while (!w->is_helped && !w->is_failed)
        fleet_nap(w->server, 1000);
    until_us = stet__sim_now_us(w->sim) + WORLD_WATCH_US;
    while ((fleet_schedules_watch(w) || stet__sim_now_us(w->sim) < until_us) && !w->is_failed)
        fleet_nap(w->server, 200000);
}

/* Every run has ended, or what has not waits for the outside. A node that was raised just now will
 * still let stuck runs try again. */
static void
world_settle(fleet *w)
{
    int64_t until_us = stet__sim_now_us(w->sim) + WORLD_HEAL_US;

    while (stet__sim_now_us(w->sim) < until_us && !w->is_failed) {
        bool was_up = world_is_up(w);

        fleet_raise(w);
        world_resume(w);
        if (was_up && fleet_is_quiet(w))
            return;
        fleet_nap(w->server, 500000);
    }
    if (!w->is_failed && !world_is_started(w))
        fleet_fail(w, NULL, "a client cannot start its run");
    else if (!w->is_failed)
        fleet_check_open(w, world_engine(w), false); /* names the first that does not end */
    if (!w->is_failed && !fleet_is_quiet(w))
        fleet_fail(w, NULL, "it does not come to rest");
}

/* What only an operator can do. On a fiber of the engine's node: for one of the server's the gate
 * around commits would be no wall. */
static void
world_help_on(void *arg)
{
    fleet_node  *node = arg;
    fleet       *w = node->w;
    stet_engine *e = node->engine;

    for (size_t i = 0; i < w->n_awakeables; i++) {
        int err = stet_resolve(e, w->awakeables[i].id, stet_text("helped"));

        if (err != STET_OK && err != STET_ESETTLED && err != STET_EENDED && err != STET_ECORRUPT &&
            !(err == STET_ENOTFOUND &&
              (w->awakeables[i].run->is_purged || w->awakeables[i].run->is_retry)))
            fleet_fail(w, w->awakeables[i].run, "an awakeable cannot be settled: %s",
                       stet_last_error());
    }
    fleet_emit(node);
    for (fleet_run *run = w->first; run != NULL; run = run->next) {
        const mem_run *row = stet__mem_run(w->db, run->id);
        stet_run_id    id;

        if (run->end != 0 || row == NULL || run->is_damaged)
            continue;
        memcpy(id.text, run->text, sizeof id.text);
        for (size_t i = 0; i < run->program.n && run->end == 0; i++)
            if (run->program.ops[i].kind == FLEET_OP_SIGNAL && !run->is_unserved)
                fleet_signal(node, run, (int)(run->program.ops[i].seed % FLEET_SIGNALS), false);
        for (size_t i = fleet_signal_parts(&run->program, run->program.n, 0);
             i > 0 && run->end == 0 && !run->is_unserved; i--)
            fleet_signal(node, run, FLEET_SIGNAL_PART, false);
        for (size_t i = 0; i < run->program.n && run->end == 0; i++)
            if (run->program.ops[i].kind == FLEET_OP_APPROVE && !run->is_unserved)
                fleet_decide(node, run, true);
        for (size_t i = 0; i < run->program.n && run->end == 0; i++)
            if (run->program.ops[i].kind == FLEET_OP_PAUSE && !run->is_unserved)
                fleet_resume(node, run);
        if (run->is_idle && stet_cancel(e, &id, "helper", "it takes too long") != STET_OK)
            fleet_fail(w, run, "an idle run cannot be cancelled: %s", stet_last_error());
        row = stet__mem_run(w->db, run->id);
        if (run->end == 0 && row->row.status == STET_STATUS_PAUSED &&
            stet_run_resume(e, &id, "helper", NULL) != STET_OK && !run->is_stopped && run->end == 0)
            fleet_fail(w, run, "a paused run cannot be resumed: %s", stet_last_error());
        row = stet__mem_run(w->db, run->id);
        if (run->end == 0 && row->row.status == STET_STATUS_COMPENSATION_FAILED &&
            stet_rollback_retry(e, &id, "helper", NULL) != STET_OK)
            fleet_fail(w, run, "a rollback cannot be tried again: %s", stet_last_error());
        row = stet__mem_run(w->db, run->id);
        if (run->end == 0 && row->row.status == STET_STATUS_STUCK &&
            stet_unstick(e, &id, "helper") != STET_OK)
            fleet_fail(w, run, "a stuck run cannot be freed: %s", stet_last_error());
    }
    w->is_helped = true;
}

static void
world_help(fleet *w)
{
    fleet_node *node = world_node(w);

    w->is_helped = false;
    if (stet__sim_spawn(w->sim, node->p, world_help_on, node) != STET_OK)
        abort();
    while (!w->is_helped && !w->is_failed)
        fleet_nap(w->server, 1000);
}

/* A hook that refused an entry hears it again a minute later at most. */
static void
world_told(fleet *w)
{
    int64_t until_us = stet__sim_now_us(w->sim) + WORLD_TOLD_US;

    while (!w->is_failed && !fleet_audit_is_over(w) && stet__sim_now_us(w->sim) < until_us) {
        fleet_raise(w); /* it may be one that was about to stop */
        fleet_nap(w->server, 200000);
    }
}

static void
world_story(void *arg)
{
    fleet *w = arg;

    while (stet__sim_now_us(w->sim) < w->plan.last_us && !w->is_failed) {
        fleet_raise(w);
        fleet_check_parked(w);
        fleet_nap(w->server, world_is_up(w) ? 500000 : 100000);
    }
    world_heal(w);
    world_watch(w);
    world_settle(w);
    if (!w->is_failed)
        fleet_check_open(w, world_engine(w), false);
    fleet_image_take(w, false);
    /* Who is helped may let others go on that need help then. */
    for (size_t i = 0, left = 0; !w->is_failed && fleet_open_runs(w) > 0; i++) {
        if (i >= 3 && fleet_open_runs(w) == left)
            break;
        left = fleet_open_runs(w);
        world_help(w);
        world_settle(w);
    }
    if (!w->is_failed)
        fleet_check_open(w, world_engine(w), true);
    world_told(w);
    if (!w->is_failed)
        fleet_check_end(w, world_engine(w));
    if (!w->is_failed)
        fleet_history_end(w, world_engine(w));
    while (!w->is_failed && fleet_is_held(w))
        world_resume(w); /* a pause that was slow to come */
    if (!w->is_failed)
        fleet_image_take(w, true);
    w->is_over = true;
    stet__sim_stop(w->sim);
}

/* ---- the world ------------------------------------------------------------------------------- */

/* It does not end in this seed, unless somebody ends it. */
static void
world_idle(fleet *w, fleet_task *t)
{
    t->timeout_ms = 0;
    switch (fleet_draw(&w->draws, 3)) {
    case 0: t->delay_ms = 10 * FLEET_FAR_MS; break;
    case 1:
        t->order.depth = FLEET_DEPTH_IDLE;
        if (w->options.is_large)
            t->order.is_shared = false,
            t->key = t->order.floor = -1; /* or soon somebody would hold every key for days */
        break;
    default:
        t->is_unserved = true;
        t->order.is_shared = false;
        t->key = t->order.floor = -1;
        t->delay_ms = 0;
        break;
    }
}

static void
world_tasks(fleet *w)
{
    if ((w->tasks = calloc(w->n_tasks, sizeof *w->tasks)) == NULL)
        abort();
    for (size_t i = 0; i < w->n_tasks; i++) {
        fleet_task *t = &w->tasks[i];

        t->order.seed = stet__rng_next(&w->draws);
        t->order.nonce = i + 1;
        t->key = fleet_draw(&w->draws, 3) == 0 ? (int)fleet_draw(&w->draws, FLEET_KEYS) : -1;
        t->order.is_shared = t->key >= 0 && fleet_draw(&w->draws, 4) == 0;
        t->order.floor = t->order.is_shared ? -1 : t->key;
        t->at_us = (int64_t)fleet_draw(&w->draws, (uint64_t)w->plan.last_us);
        if (fleet_draw(&w->draws, t->key >= 0 ? 2 : 4) == 0)
            t->delay_ms = (int64_t)fleet_draw(&w->draws, 5000);
        if (fleet_draw(&w->draws, 8) == 0)
            t->timeout_ms = 1 + (int64_t)fleet_draw(&w->draws, 20000);
        t->has_idem = fleet_draw(&w->draws, 2) == 0;
        t->has_id = !t->has_idem && fleet_draw(&w->draws, 2) == 0;
        t->waits = fleet_draw(&w->draws, 2) == 0;
        t->cancels = fleet_draw(&w->draws, 12) == 0;
        if (fleet_draw(&w->draws, 2) == 1)
            t->way = (fleet_way)fleet_draw(&w->draws, 3);
        if (fleet_draw(&w->draws, 24) == 0)
            world_idle(w, t);
    }
}

static fleet_event world_events[FLEET_EVENTS_KEPT];
static stet__sim  *world_sims[3]; /* not in use; as many as worlds live at once */

stet__sim *
fleet_sim_get(uint64_t seed)
{
    for (size_t i = 0; i < sizeof world_sims / sizeof world_sims[0]; i++)
        if (world_sims[i] != NULL) {
            stet__sim *sim = world_sims[i];

            world_sims[i] = NULL;
            stet__sim_restart(sim, seed);
            return sim;
        }
    return stet__sim_new(seed);
}

void
fleet_sim_put(stet__sim *sim)
{
    stet__sim_restart(sim, 0); /* what lives in it ends now */
    for (size_t i = 0; i < sizeof world_sims / sizeof world_sims[0]; i++)
        if (world_sims[i] == NULL) {
            world_sims[i] = sim;
            return;
        }
    stet__sim_free(sim);
}

static void
world_begin(fleet *w, const fleet_options *options)
{
    memset(w, 0, sizeof *w);
    w->options = *options;
    w->events = world_events;
    w->n_nodes = options->is_large ? 10 : 3;
    /* With the children they start, some 40 and 2,000 runs. */
    w->n_tasks = options->is_large ? 890 : 21;
    w->ops_max = options->is_large ? 30 : 10;
    stet__arena_init(&w->arena, &stet__platform_real()->alloc);
    stet__map_init(&w->runs, &stet__platform_real()->alloc);
    stet__map_init(&w->idems, &stet__platform_real()->alloc);
    stet__map_init(&w->entered, &stet__platform_real()->alloc);
    stet__map_init(&w->asked, &stet__platform_real()->alloc);
    stet__map_init(&w->nonces, &stet__platform_real()->alloc);
    stet__map_init(&w->marks, &stet__platform_real()->alloc);
    stet__map_init(&w->emissions, &stet__platform_real()->alloc);
    if ((w->named = stet__arena_get0(&w->arena, FLEET_NAMED * sizeof(fleet_run *))) == NULL)
        abort();
    stet__rng_seed(&w->draws, options->seed);
    stet__rng_seed(&w->faults, stet__rng_next(&w->draws));
    stet__rng_seed(&w->moments, options->seed * 131 + 7);
    stet__rng_seed(&w->planner, options->seed * 131 + 11);
    stet__rng_seed(&w->whims, options->seed * 131 + 13);
    stet__rng_seed(&w->revivals, options->seed * 131 + 41);
    stet__rng_seed(&w->hiccups, options->seed * 131 + 17);
    stet__rng_seed(&w->torn, options->seed * 131 + 19);
    stet__rng_seed(&w->late, options->seed * 131 + 23);
    stet__rng_seed(&w->calls, options->seed * 131 + 31);
    stet__rng_seed(&w->looks, options->seed * 131 + 37);
    if ((w->sim = fleet_sim_get(options->seed)) == NULL ||
        (w->server = stet__sim_node_new(w->sim)) == NULL ||
        (w->db = stet__memory_db_new(w->server)) == NULL ||
        w->server->ops->mutex_init(w->server, &w->gate) != STET_OK)
        abort();
    fleet_plan_draw(w);
    w->has_faults = true;
    if (fleet_fault(w, FLEET_SAME_NAME, NULL))
        w->same_name = 2;
    world_tasks(w);
    fleet_schedules_draw(w);
    fleet_whims_draw(w);
    for (size_t i = 0; i < w->n_nodes; i++) {
        w->nodes[i].w = w;
        w->nodes[i].index = (unsigned)i;
        w->nodes[i].pause_end_us = w->nodes[i].late_us = -1000000000;
        w->nodes[i].up_at_us = (int64_t)fleet_draw(&w->faults, 2000000);
    }
    if (stet__sim_spawn(w->sim, w->server, world_story, w) != STET_OK ||
        stet__sim_spawn(w->sim, w->server, fleet_chaos, w) != STET_OK)
        abort();
}

static void
world_end(fleet *w)
{
    fleet_images_free(w);
    fleet_schedules_free(w);
    fleet_sim_put(w->sim); /* with the store, which is the server's memory */
    stet__map_free(&w->runs);
    stet__map_free(&w->idems);
    stet__map_free(&w->entered);
    stet__map_free(&w->asked);
    stet__map_free(&w->nonces);
    stet__map_free(&w->marks);
    stet__map_free(&w->emissions);
    stet__arena_free(&w->arena);
    for (int i = 0; i < FLEET_KEYS; i++)
        free(w->objects[i].states);
    free(w->awakeables);
    free(w->deeds);
    free(w->updates);
    free(w->tasks);
}

/* A seed opens some ten engines, each with large tables: asking the kernel for them every time
 * takes as long as the simulation. */
static void
world_keep_memory(void)
{
    static bool is_done;

    if (is_done)
        return;
    is_done = true;
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

bool
fleet_seed(const fleet_options *options, fleet_stats *stats, uint64_t *hash)
{
    fleet *w = malloc(sizeof *w);
    bool   is_ok;

    if (w == NULL)
        abort();
    world_keep_memory();
    world_begin(w, options);
    fleet_here = w;
    if (!stet__sim_run(w->sim, WORLD_LIMIT_US) && !w->is_over && !w->is_failed) {
        fleet_fail(w, NULL, "nothing can go on, or time is up");
        stet__sim_dump(w->sim, stderr);
    }
    w->stats.faults[FLEET_NO_MEMORY] = stet__sim_memory_failures(w->sim);
    w->stats.virtual_us = stet__sim_now_us(w->sim);
    if (!w->is_failed)
        fleet_check_history(w);
    if (!w->is_failed)
        fleet_recover(w);
    is_ok = !w->is_failed;
    if (options->failure != NULL)
        (void)snprintf(options->failure, sizeof w->failure, "%s", w->failure);
    else if (!is_ok || options->is_verbose)
        fleet_tell(w, stderr);
    if (stats != NULL) {
        const uint64_t *from = (const uint64_t *)(const void *)&w->stats;
        uint64_t       *to = (uint64_t *)(void *)stats;

        for (size_t i = 0; i < sizeof *stats / sizeof *to; i++)
            to[i] += from[i];
    }
    if (hash != NULL)
        *hash = w->hash;
    fleet_here = NULL;
    world_end(w);
    free(w);
    return is_ok;
}
