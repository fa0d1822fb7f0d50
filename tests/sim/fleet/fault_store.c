/* The store as a node of the fleet sees it: the shared memory store behind everything that can go
 * wrong on the way to a server.
 *
 * Invariant: whatever the inner store applied has been told to the model before anything else
 * happens. The gate sees to it: it belongs to the server's node, and a fiber that holds such a
 * lock is neither switched away from nor paused (platform/sim.c), so no crash comes in between. /
 */
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

enum {
    FAULT_PLANNED_ONE_IN = 8,
    FAULT_PLANNED_MS = 200,
    FAULT_ASKED_ONE_IN = 4,
    FAULT_THINKS_MS = 2000,
    FAULT_REAPED_MS = 8000,
    FAULT_STALLED_ONE_IN = 2,
    FAULT_NEWS_ONE_IN = 2,
    FAULT_GREETED_ONE_IN = 8,
    FAULT_ALOOF_ONE_IN = 12,
    FAULT_BESIDE_ONE_IN = 2,
    FAULT_EMITS_US = 4000000,
    FAULT_REAPED_ONE_IN = 2,
    FAULT_STALLED_US = 50000
};

typedef struct fault_store {
    stet_store   base;
    stet_store  *inner;
    fleet_node  *node;
    stet_hint_fn on_hint;
    void        *hint_arg;
} fault_store;

static fault_store *
fault_of(stet_store *s)
{
    return (fault_store *)(void *)s;
}

static stet_store *
fault_inner(stet_store *s)
{
    return fault_of(s)->inner;
}

/* Before a call reaches the server, and before its answer reaches the caller. */
static void
fault_way(stet_store *s, fleet_fault_kind crash)
{
    fleet_node *node = fault_of(s)->node;
    fleet      *w = node->w;

    if (!w->has_faults)
        return;
    if (fleet_fault(w, crash, node))
        fleet_crash(w, node);
    if (fleet_fault(w, FLEET_SLOW, node))
        fleet_nap(s->platform, 1000 * (int64_t)(1 + fleet_draw(&w->faults, 8000)));
}

/* ---- commit ---------------------------------------------------------------------------------- */

static void
fault_forget(stet_store *s, size_t n, stet_outcome *outcomes)
{
    for (size_t i = 0; i < n; i++)
        stet__free(s->alloc, outcomes[i].grants);
    memset(outcomes, 0, n * sizeof *outcomes);
}

static int
fault_refuse(fleet *w)
{
    static const int codes[] = { STET_EBUSY, STET_EIO, STET_EFULL, STET_ENOMEM };

    return stet__fail(codes[fleet_draw(&w->faults, 4)], "refused by the simulator");
}

static int
fault_apply(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    fleet_node *node = fault_of(s)->node;
    fleet      *w = node->w;
    int         err;

    fault_inner(s)->sticky = s->sticky;
    fault_inner(s)->quiet = s->quiet;
    stet__lock(w->server, &w->gate);
    err = fault_inner(s)->ops->commit(fault_inner(s), units, n, outcomes);
    for (size_t i = 0; err == STET_OK && i < n; i++)
        if (outcomes[i].result == STET_OK && !outcomes[i].is_repeat)
            fleet_applied(w, node, &units[i], &outcomes[i]);
    if (err == STET_OK)
        fleet_committed(w, units, outcomes, n);
    fleet_check_index(w);
    stet__unlock(w->server, &w->gate);
    return err;
}

/* Who looked at a schedule is long on the way to write it: somebody may remove it meanwhile, and
 * make it anew. */
static void
fault_planned(stet_store *s, const stet_unit *units, size_t n)
{
    fleet *w = fault_of(s)->node->w;

    if (w->n_schedules == 0 || !w->has_faults || w->plan.one_in[FLEET_SLOW] == 0)
        return;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_conds; k++)
            if (units[i].conds[k].space != NULL &&
                strcmp(units[i].conds[k].space, STET__SPACE_BASE_SCHED) == 0 &&
                fleet_draw(&w->planner, FAULT_PLANNED_ONE_IN) == 0) {
                fleet_nap(s->platform, 1000 * (int64_t)fleet_draw(&w->planner, FAULT_PLANNED_MS));
                return;
            }
}

/* What is asked of a run is long on its way, and the run is another one when it comes. */
static void
fault_asked(stet_store *s, const stet_unit *units, size_t n)
{
    fleet *w = fault_of(s)->node->w;

    if (!w->plan.has_whims)
        return;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_ops; k++) {
            if (units[i].ops[k].kind == STET_OP_FACTS)
                break;
            if (units[i].ops[k].kind == STET_OP_INBOX &&
                fleet_whim_strikes(w, FAULT_ASKED_ONE_IN)) {
                fleet_nap(s->platform, 1000 * (int64_t)fleet_draw(&w->whims, FAULT_PLANNED_MS));
                return;
            }
        }
}

/* Who tells the runs of a dead worker what it did is long on the way: another node may be faster, know more, and
 * execute them meanwhile. */
static void
fault_reaped(stet_store *s, const stet_unit *units, size_t n)
{
    fleet *w = fault_of(s)->node->w;

    for (size_t i = 0; w->plan.has_whims && i < n; i++)
        if (units[i].n_ops > 1 && units[i].n_conds > 0 &&
            units[i].conds[0].kind == STET_COND_SESSION_DEAD &&
            fleet_whim_strikes(w, FAULT_REAPED_ONE_IN)) {
            fleet_nap_long(fault_of(s)->node,
                           1000 * (int64_t)fleet_draw(&w->whims, 2 * (uint64_t)w->plan.lease_ms +
                                                                     FAULT_REAPED_MS));
            return;
        }
}

typedef bool (*fault_fact_fn)(const fleet_run *run, const stet__fact *fact);

static bool
fault_has(const fleet *w, const stet_unit *unit, fault_fact_fn is)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        stet_bytes in = unit->ops[i].data;
        stet__fact fact;

        while (unit->ops[i].kind == STET_OP_FACTS && stet__fact_decode(&fact, &in) == STET_OK)
            if (is(fleet_run_of(w, unit->ops[i].run), &fact))
                return true;
    }
    return false;
}

static bool
fault_is_step(const fleet_run *run, const stet__fact *fact)
{
    (void)run;
    return fact->kind == STET__FACT_STEP;
}

/* A step, no undo, of a run that is being rolled back because it failed: it was done beside that. */
static bool
fault_is_beside(const fleet_run *run, const stet__fact *fact)
{
    return fault_is_step(run, fact) && run != NULL && run->is_undone && run->is_rolled_back &&
           !stet__name_is_undo(fact->name);
}

/* Not all who wait for this event have been told. */
static bool
fault_is_lot(const fleet_run *run, const stet__fact *fact)
{
    (void)run;
    return fact->kind == STET__FACT_EMIT && (fact->flags & STET__FACT_MORE);
}

/* Somebody tells a run something just when it records a step and is suspended, or ends: that is refused. */
static void
fault_greeted(stet_store *s, const stet_unit *units, size_t n)
{
    fleet *w = fault_of(s)->node->w;

    for (size_t i = 0; w->plan.has_whims && i < n; i++)
        for (size_t k = 0; k < units[i].n_conds; k++) {
            fleet_run *run = units[i].conds[k].kind == STET_COND_INBOX
                                 ? fleet_run_of(w, units[i].conds[k].run)
                                 : NULL;

            if (run != NULL && fault_has(w, &units[i], fault_is_step) &&
                fleet_whim_strikes(w, FAULT_GREETED_ONE_IN)) {
                fleet_whim_greet(w, s->platform, run);
                return;
            }
        }
}

/* The answer is on its way so long that others begin to wait for the event before the next lot. */
static void
fault_emits(stet_store *s, const stet_unit *units, size_t n)
{
    fleet *w = fault_of(s)->node->w;

    for (size_t i = 0; w->plan.has_whims && w->has_faults && i < n; i++)
        if (fault_has(w, &units[i], fault_is_lot)) {
            fleet_nap(s->platform, 1 + (int64_t)fleet_draw(&w->whims, FAULT_EMITS_US));
            return;
        }
}

/* The store answers a node nothing more until its lease is over, just when that has recorded a step, or was refused to
 * because of news: it hears of both, and of its lease, at the same time. */
static void
fault_aloof(stet_store *s, const stet_unit *units, const stet_outcome *outcomes, size_t n)
{
    fleet_node *node = fault_of(s)->node;
    fleet      *w = node->w;
    int64_t     us;

    for (size_t i = 0; w->plan.has_whims && i < n; i++) {
        bool is_news = outcomes[i].result == STET_ECONFLICT &&
                       units[i].conds[outcomes[i].cond].kind == STET_COND_INBOX;

        if ((outcomes[i].result != STET_OK && !is_news) ||
            !fault_has(w, &units[i], fault_is_step) ||
            !fleet_whim_strikes(w, is_news                                    ? FAULT_NEWS_ONE_IN
                                   : fault_has(w, &units[i], fault_is_beside) ? FAULT_BESIDE_ONE_IN
                                                                              : FAULT_ALOOF_ONE_IN))
            continue;
        us = 1000 * (w->plan.lease_ms + (int64_t)fleet_draw(&w->whims, (uint64_t)w->plan.lease_ms));
        node->aloof_end_us = stet__sim_now_us(w->sim) + us;
        fleet_trace(w, node, NULL, "FAULT", "the store is aloof", us, is_news);
        fleet_nap_long(node, us);
        return;
    }
}

static int
fault_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    fleet_node *node = fault_of(s)->node;
    fleet      *w = node->w;
    bool        is_poisoned, is_lost;
    int         err;

    fault_way(s, FLEET_CRASH_BEFORE);
    fault_planned(s, units, n);
    fault_asked(s, units, n);
    fault_reaped(s, units, n);
    fault_greeted(s, units, n);
    for (size_t i = 0; w->plan.has_revivals && i < n; i++)
        fleet_revival_told(w, node, &units[i]);
    if (node->is_poisoned)
        return stet__fail(STET_EPOISONED, "poisoned by the simulator");
    if (fleet_fault(w, FLEET_COMMIT_REFUSED, node))
        return fault_refuse(w);
    is_poisoned = fleet_fault(w, FLEET_POISONED, node);
    is_lost = fleet_fault(w, FLEET_REPLY_LOST, node);
    if ((is_poisoned || is_lost) && fleet_draw(&w->faults, 3) == 0)
        err = STET_OK; /* it never arrived; nobody can tell */
    else
        err = fault_apply(s, units, n, outcomes);
    if (err == STET_OK && !is_poisoned && !is_lost)
        fault_aloof(s, units, outcomes, n);
    if (err == STET_OK)
        fault_emits(s, units, n);
    fault_way(s, FLEET_CRASH_AFTER);
    if (err != STET_OK || !(is_poisoned || is_lost))
        return err;
    fault_forget(s, n, outcomes);
    node->is_poisoned = is_poisoned;
    return stet__fail(is_poisoned ? STET_EPOISONED : STET_EUNCERTAIN, "lost by the simulator");
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* The call, or its answer, is as long on its way as a lease lasts; everything else goes on, but for
 * some reads, which are answered with it. */
static void
fault_lease(stet_store *s)
{
    fleet_node *node = fault_of(s)->node;
    fleet      *w = node->w;
    int64_t     us = node->aloof_end_us - stet__sim_now_us(w->sim);

    if (us > 0)
        fleet_nap(s->platform, us);
    if (!fleet_fault(w, FLEET_LEASE_SLOW, node))
        return;
    us =
        1000 * (w->plan.lease_ms / 2 + (int64_t)fleet_draw(&w->faults, (uint64_t)w->plan.lease_ms));
    node->stall_end_us = stet__sim_now_us(w->sim) + us;
    fleet_nap(s->platform, us);
}

#define FAULT_SESSION(call, ...)                                                                   \
    fleet *w = fault_of(s)->node->w;                                                               \
    bool   is_hit = fleet_fault(w, FLEET_LEASE_FAILED, fault_of(s)->node);                         \
    int    err;                                                                                    \
                                                                                                   \
    fault_way(s, FLEET_CRASH_BEFORE);                                                              \
    if (is_hit && fleet_draw(&w->faults, 2) == 0)                                                  \
        return stet__fail(STET_EIO, "failed by the simulator");                                    \
    fault_lease(s);                                                                                \
    err = fault_inner(s)->ops->call(fault_inner(s), __VA_ARGS__);                                  \
    fault_lease(s);                                                                                \
    fault_way(s, FLEET_CRASH_AFTER);                                                               \
    return is_hit && err == STET_OK ? stet__fail(STET_EUNCERTAIN, "lost by the simulator") : err

static int
fault_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms, stet_bytes info)
{
    FAULT_SESSION(session_open, session, id, lease_ms, info);
}

static int
fault_session_renew(stet_store *s, uint64_t session, int64_t lease_ms)
{
    FAULT_SESSION(session_renew, session, lease_ms);
}

static int
fault_session_close(stet_store *s, uint64_t session)
{
    FAULT_SESSION(session_close, session);
}

static stet_crumb *
fault_crumbs(stet_store *s, uint64_t session, size_t n)
{
    return fault_inner(s)->ops->crumbs(fault_inner(s), session, n);
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* How long is what was read on its way? */
static int64_t
fault_late_us(fleet *w, const fleet_node *node)
{
    int64_t stall_us = node->stall_end_us - stet__sim_now_us(w->sim);

    if (stall_us > 0 && fleet_draw(&w->late, FAULT_STALLED_ONE_IN) == 0)
        return stall_us + (int64_t)fleet_draw(&w->late, FAULT_STALLED_US);
    if (fleet_draw(&w->late, w->plan.one_in[FLEET_READ_LATE]) == 0)
        return 1000 * (int64_t)(1 + fleet_draw(&w->late, (uint64_t)w->plan.lease_ms * 2));
    return 0;
}

/* What was read is on its way for so long that others have written since: there is no other way in which a
 * store gives something old (docs/guarantees.md). */
static void
fault_late(stet_store *s)
{
    fleet_node *node = fault_of(s)->node;
    fleet      *w = node->w;
    int64_t     us;

    if (!w->has_faults || w->plan.one_in[FLEET_READ_LATE] == 0 ||
        (us = fault_late_us(w, node)) == 0)
        return;
    w->stats.faults[FLEET_READ_LATE]++;
    fleet_trace(w, node, NULL, "FAULT", fleet_fault_names[FLEET_READ_LATE], us, 0);
    fleet_nap(s->platform, us);
}

#define FAULT_READ(call, ...)                                                                      \
    int err;                                                                                       \
                                                                                                   \
    fault_way(s, FLEET_CRASH_BEFORE);                                                              \
    if (fleet_fault(fault_of(s)->node->w, FLEET_READ_FAILED, fault_of(s)->node))                   \
        return stet__fail(STET_EIO, "a read failed by the simulator");                             \
    err = fault_inner(s)->ops->call(fault_inner(s), __VA_ARGS__);                                  \
    fault_late(s);                                                                                 \
    fault_way(s, FLEET_CRASH_AFTER);                                                               \
    return err

static int
fault_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    FAULT_READ(sessions, fn, arg);
}

static int
fault_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    /* A file of crumbs that is gone: who died leaves no trace. */
    if (fleet_whim_strikes(fault_of(s)->node->w, 2))
        return stet__fail(STET_EIO, "no crumbs are left, says the simulator");
    FAULT_READ(crumbs_of, session, crumbs, n);
}

static int
fault_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    FAULT_READ(run, run, fn, arg);
}

static int
fault_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    FAULT_READ(runs, query, fn, arg);
}

static int
fault_journal(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    FAULT_READ(journal, run, from, limit, fn, arg);
}

static int
fault_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    FAULT_READ(inbox, run, from, limit, fn, arg);
}

static int
fault_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
             int64_t *next_ms)
{
    FAULT_READ(timers, until_ms, limit, fn, arg, next_ms);
}

static int
fault_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg)
{
    FAULT_READ(timers_of, run, fn, arg);
}

static int
fault_value_read(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    FAULT_READ(value, space, key, value);
}

static int
fault_value(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    fleet *w = fault_of(s)->node->w;
    int    err = fault_value_read(s, space, key, value);

    /* Who decides takes a while to think, and the question may be another one then. */
    if (err == STET_OK && strcmp(space, STET__SPACE_BOUNDARY) == 0 && fleet_whim_strikes(w, 2))
        fleet_nap(s->platform, 1000 * (int64_t)fleet_draw(&w->whims, FAULT_THINKS_MS));
    return err;
}

static int
fault_values_read(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
                  size_t limit, stet_value_fn fn, void *arg)
{
    fleet *w = fault_of(s)->node->w;

    /* Which schedules are due is read, and what is to be done with them comes after. */
    if (w->n_schedules > 0 && strcmp(space, STET__SPACE_SCHED_DUE) == 0 &&
        fleet_draw(&w->planner, FAULT_PLANNED_ONE_IN) == 0 &&
        fleet_fault(w, FLEET_STORE_BACK, NULL))
        fleet_store_back(w);
    FAULT_READ(values, space, prefix, after, limit, fn, arg);
}

static int
fault_values(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
             size_t limit, stet_value_fn fn, void *arg)
{
    fleet *w = fault_of(s)->node->w;
    int    err = fault_values_read(s, space, prefix, after, limit, fn, arg);

    /* Who waits for an event is known, and may not wait any more when it is told. */
    if (err == STET_OK && strcmp(space, STET__SPACE_TOPIC) == 0 && fleet_whim_strikes(w, 1))
        fleet_nap(s->platform, 1000 * (int64_t)fleet_draw(&w->whims, FAULT_THINKS_MS));
    return err;
}

static int
fault_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg)
{
    FAULT_READ(lane, lane, limit, fn, arg);
}

static int
fault_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms)
{
    FAULT_READ(due, handlers, n, due_ms);
}

/* ---- hints ----------------------------------------------------------------------------------- */

static void
fault_hint(void *arg)
{
    fault_store *f = arg;
    fleet       *w = f->node->w;

    if (w->plan.is_deaf || fleet_fault(w, FLEET_HINT_LOST, f->node))
        return;
    if (fleet_fault(w, FLEET_HINT_LATE, f->node))
        fleet_nap(f->base.platform, 1000 * (int64_t)fleet_draw(&w->faults, 3000));
    f->on_hint(f->hint_arg);
    if (fleet_fault(w, FLEET_HINT_TWICE, f->node))
        f->on_hint(f->hint_arg);
}

static int
fault_watch(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    fault_store *f = fault_of(s);

    f->on_hint = on_hint;
    f->hint_arg = arg;
    return f->inner->ops->watch(f->inner, fault_hint, f);
}

static void
fault_unwatch(stet_store *s)
{
    fault_inner(s)->ops->unwatch(fault_inner(s));
}

/* ---- life ------------------------------------------------------------------------------------ */

static int
fault_open(stet_store *s, const char *address)
{
    (void)s;
    (void)address;
    return STET_OK;
}

static void
fault_close(stet_store *s)
{
    fault_store *f = fault_of(s);

    if (f->inner != NULL)
        stet__store_close(f->inner);
    f->inner = NULL;
}

static int
fault_reopen(stet_store *s)
{
    if (fleet_fault(fault_of(s)->node->w, FLEET_COMMIT_REFUSED, fault_of(s)->node))
        return stet__fail(STET_EIO, "not reopened by the simulator");
    fault_of(s)->node->is_poisoned = false;
    return fault_inner(s)->ops->reopen(fault_inner(s));
}

static int
fault_ping(stet_store *s)
{
    if (fault_of(s)->node->is_poisoned)
        return stet__fail(STET_EPOISONED, "poisoned by the simulator");
    return fault_inner(s)->ops->ping(fault_inner(s));
}

static int
fault_maintain(stet_store *s)
{
    return fault_inner(s)->ops->maintain(fault_inner(s));
}

static int64_t
fault_now_ms(stet_store *s)
{
    return fault_inner(s)->ops->now_ms(fault_inner(s));
}

static const stet_store_ops fault_ops = {
    .version = 1,
    .scheme = "fault",
    .size = sizeof(fault_store),
    .open = fault_open,
    .close = fault_close,
    .reopen = fault_reopen,
    .now_ms = fault_now_ms,
    .commit = fault_commit,
    .session_open = fault_session_open,
    .session_renew = fault_session_renew,
    .session_close = fault_session_close,
    .sessions = fault_sessions,
    .crumbs = fault_crumbs,
    .crumbs_of = fault_crumbs_of,
    .run = fault_run,
    .runs = fault_runs,
    .journal = fault_journal,
    .inbox = fault_inbox,
    .timers = fault_timers,
    .timers_of = fault_timers_of,
    .value = fault_value,
    .values = fault_values,
    .lane = fault_lane,
    .watch = fault_watch,
    .unwatch = fault_unwatch,
    .maintain = fault_maintain,
    .ping = fault_ping,
    .due = fault_due,
};

int
fleet_store_new(stet_store **out, stet_store *inner, fleet_node *node)
{
    fault_store *f = stet__get0(inner->alloc, sizeof *f);

    *out = NULL;
    if (f == NULL) {
        stet__store_close(inner);
        return STET_ENOMEM;
    }
    f->base = *inner;
    f->base.ops = &fault_ops;
    f->inner = inner;
    f->node = node;
    node->is_poisoned = false;
    *out = &f->base;
    return STET_OK;
}
