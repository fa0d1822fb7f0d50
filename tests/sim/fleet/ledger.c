/* The ledger: what happened outside of the engine.
 *
 * Each execution of a body is an entry. It is settled when its record was applied by the store,
 * lost when its node crashed before. So executions of a step = records of it + entries that were
 * lost or fenced, and each of the latter must have been reported as "at risk" to the next.
 *
 * A stale entry is one by a node that had lost the run already: it can happen only if the node
 * stood still between its last look at the lease and the body. /
 */
#include <stdlib.h>
#include <string.h>

#include "exec/context.h"
#include "fleet.h"

/* How long after a pause a fiber may still act on what it knew before. */
#define LEDGER_AFTER_PAUSE_US 100000

static void *
ledger_get(fleet *w, size_t size)
{
    void *p = stet__arena_get0(&w->arena, size);

    if (p == NULL)
        abort();
    return p;
}

void
fleet_awakeable_add(fleet *w, fleet_run *run, size_t op, const char *id)
{
    fleet_awakeable *a;

    if (w->n_awakeables == w->cap_awakeables) {
        size_t cap = w->cap_awakeables > 0 ? w->cap_awakeables * 2 : 64;
        void  *grown = realloc(w->awakeables, cap * sizeof *a);

        if (grown == NULL)
            abort();
        w->awakeables = grown;
        w->cap_awakeables = cap;
    }
    a = &w->awakeables[w->n_awakeables++];
    *a = (fleet_awakeable){ .run = run, .op = op };
    (void)snprintf(a->id, sizeof a->id, "%s", id);
}

/* ---- signals --------------------------------------------------------------------------------- */

bool
fleet_is_signalled(const fleet_run *run, int name, uint32_t number)
{
    for (size_t i = 0; i < run->n_signals[name]; i++)
        if (run->signals[name][i] == number)
            return true;
    return false;
}

void
fleet_signalled(fleet *w, fleet_run *run, const stet__fact *fact)
{
    const char *text = fact->name.data;
    int         name = text[fact->name.len - 1] - '0';
    uint32_t    number = 0;

    for (size_t i = 0; i < fact->value.len; i++)
        number = number * 10 + (uint32_t)(((const char *)fact->value.data)[i] - '0');
    /* What it sends itself it sends again after a rewind. */
    if (!fleet_is_signalled(run, name, number) || (number >= FLEET_INSIDE && run->rewinds > 0)) {
        if (run->n_signals[name] < FLEET_SIGNALS_MAX)
            run->signals[name][run->n_signals[name]++] = number;
    } else if (fact->idempotency_key.data == NULL)
        fleet_fail(w, run, "signal %d is put into its inbox twice", (int)number);
}

/* ---- events ---------------------------------------------------------------------------------- */

void
fleet_told(fleet *w, const stet__fact *event)
{
    uint32_t number = 0;
    size_t   at;

    for (size_t i = 0; i < event->value.len; i++)
        number = number * 10 + (uint32_t)(((const char *)event->value.data)[i] - '0');
    at = number % FLEET_EVENTS;
    if (w->told_of[at] != number) {
        w->told_of[at] = number;
        w->told[at] = 0;
    }
    w->told[at]++;
}

size_t
fleet_told_of(const fleet *w, uint32_t number)
{
    return w->told_of[number % FLEET_EVENTS] == number ? w->told[number % FLEET_EVENTS] : 0;
}

/* ---- what no replay may contradict ----------------------------------------------------------- */

void
fleet_seen_check(fleet *w, fleet_run *run, const fleet_seen *seen, size_t n, bool is_fixed)
{
    for (size_t i = 0; i < n && i <= FLEET_OPS_MAX; i++) {
        if (run->is_fixed[i] &&
            (run->seen[i].code != seen[i].code || run->seen[i].value != seen[i].value ||
             run->seen[i].updates != seen[i].updates))
            fleet_fail(w, run, "operation %zu (%s) gave %d/%llx/%x first and %d/%llx/%x later", i,
                       fleet_op_names[seen[i].kind % FLEET_OPS], run->seen[i].code,
                       (unsigned long long)run->seen[i].value, run->seen[i].updates, seen[i].code,
                       (unsigned long long)seen[i].value, seen[i].updates);
        run->seen[i] = seen[i];
        run->is_fixed[i] = run->is_fixed[i] || is_fixed;
    }
    w->stats.checks += n;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static fleet_step *
ledger_step(const fleet_run *run, const char *step)
{
    fleet_step *s = run->steps;

    while (s != NULL && strcmp(s->step, step) != 0)
        s = s->next;
    return s;
}

/* Is the run this worker's, by the store? */
static bool
ledger_is_stale(fleet *w, const fleet_run *run, uint64_t fence)
{
    const mem_run *row = stet__mem_run(w->db, run->id);

    return row == NULL || row->row.epoch != fence || row->row.session == 0 ||
           !stet__mem_is_alive(w->db, stet__mem_session(w->db, row->row.session));
}

/* A worker cannot know that the store's clock jumped; after a lease it has noticed. */
static void
ledger_check_stale(fleet *w, fleet_run *run, const fleet_node *node, const fleet_entry *e)
{
    if (w->jumped_us != 0 &&
        stet__sim_now_us(w->sim) - w->jumped_us <= w->plan.lease_ms * 1000 + LEDGER_AFTER_PAUSE_US)
        return;
    if (stet__sim_now_us(w->sim) - node->pause_end_us > LEDGER_AFTER_PAUSE_US)
        fleet_fail(w, run, "body %s is entered by node %u, which lost the run (fence %llu)",
                   e->step, node->index, (unsigned long long)e->fence);
}

static void
ledger_check_owner(fleet *w, fleet_run *run, const fleet_entry *e)
{
    const fleet_step *step = ledger_step(run, e->step);
    const mem_run    *row = stet__mem_run(w->db, run->id);

    if (step != NULL && step->is_recorded)
        fleet_fail(w, run, "body %s is entered again after its record", e->step);
    if (step != NULL && step->attempts >= e->number)
        fleet_fail(w, run, "attempt %u of body %s is entered again after its record", e->number,
                   e->step);
    if (run->is_held && run->is_paused)
        fleet_fail(w, run, "body %s is entered, and its run is paused", e->step);
    if (run->end != 0)
        fleet_fail(w, run, "body %s is entered after the end of its run", e->step);
    if (run->is_shared && row != NULL && row->row.lane != NULL)
        fleet_fail(w, run, "it is shared, and stands in the lane of its key");
    if (run->is_object && !run->is_shared && row != NULL &&
        (row->row.lane == NULL || stet__mem_lane_first(w->db, row->row.lane) != row))
        fleet_fail(w, run, "body %s is entered, and its run does not hold its key", e->step);
    for (const fleet_entry *old = run->entries; old != NULL; old = old->next) {
        if (strcmp(old->step, e->step) == 0 && !old->is_stale &&
            (old->token == e->token) != (old->repeats == e->repeats))
            fleet_fail(w, run, "body %s has %s token it had", e->step,
                       old->token == e->token ? "the" : "another");
        /* Every execution is told, until one has a result. */
        if (strcmp(old->step, e->step) != 0 || old->is_settled || old->is_stale ||
            old->is_forgotten)
            continue;
        if (old->fence >= e->fence && !old->is_lost)
            fleet_fail(w, run, "body %s is executed twice by one owner", e->step);
        else if (!e->is_at_risk)
            fleet_fail(w, run,
                       "body %s was entered before (node %u, fence %llu) and not recorded; "
                       "the next execution is not told",
                       e->step, old->node, (unsigned long long)old->fence);
    }
}

bool
fleet_enter(fleet *w, stet_attempt *a, const fleet_execution *x, size_t seen, size_t op)
{
    fleet_run   *run = fleet_run_named(w, stet_attempt_run(a));
    fleet_node  *node = fleet_node_of(w, a->ctx->exec->p);
    fleet_entry *e;

    (void)op;
    if (w->of != NULL) {
        w->stats.bodies++;
        return true;
    }
    if (run == NULL || node == NULL) {
        fleet_fail(w, run, "body %s is entered before the start of its run is durable", a->step);
        return false;
    }
    e = ledger_get(w, sizeof *e);
    fleet_text(e->step, sizeof e->step, a->step, strlen(a->step));
    e->number = stet_attempt_number(a);
    e->fence = stet_attempt_fence(a);
    e->node = node->index;
    e->life = node->life;
    e->at_us = stet__sim_now_us(w->sim);
    e->is_at_risk = stet_attempt_is_at_risk(a);
    e->is_inside = true;
    e->token = stet__hash64(stet_attempt_token(a), strlen(stet_attempt_token(a)), 5);
    e->repeats = ledger_step(run, e->step) != NULL ? ledger_step(run, e->step)->repeats : 0;
    e->is_stale = ledger_is_stale(w, run, e->fence);
    fleet_trace(w, node, run, e->is_stale ? "enters, stale," : "enters", e->step, e->number,
                (int64_t)e->fence);
    w->stats.bodies++;
    if (e->is_stale)
        ledger_check_stale(w, run, node, e);
    else
        ledger_check_owner(w, run, e);
    /* Effects after facts: what the handler knew when it began this is recorded. One that lost the run
     * may not know that operators changed it since. */
    if (!e->is_stale || !run->is_rewritten)
        fleet_seen_check(w, run, x->seen, seen, true);
    if (!e->is_stale && run->awaits_help)
        fleet_fail(w, run, "%s is entered, and nobody asked for another try of its rollback",
                   e->step);
    if (!e->is_stale) {
        fleet_check_inherited(w, run, x, seen);
        fleet_hold_entered(w, node, run, x->began_us);
    }
    e->next = run->entries;
    run->entries = e;
    if (w->plan.has_revivals)
        fleet_revival_entered(w, node, run);
    return !e->is_stale;
}

void
fleet_leave(fleet *w, stet_attempt *a)
{
    fleet_run   *run = fleet_run_named(w, stet_attempt_run(a));
    fleet_entry *e = run != NULL ? run->entries : NULL;

    for (; e != NULL; e = e->next)
        if (e->is_inside && e->fence == stet_attempt_fence(a) && strcmp(e->step, a->step) == 0)
            e->is_inside = false;
}

void
fleet_ledger_crash(fleet *w, const fleet_node *node)
{
    for (fleet_run *run = w->first; run != NULL; run = run->next)
        for (fleet_entry *e = run->entries; e != NULL; e = e->next)
            if (e->node == node->index && e->life == node->life && !e->is_settled) {
                e->is_lost = true;
                e->is_inside = false;
            }
}

static bool
ledger_is(const fleet_entry *e, stet_bytes name)
{
    return strlen(e->step) == name.len && memcmp(e->step, name.data, name.len) == 0;
}

bool
fleet_is_executed(const fleet_run *run, uint64_t epoch, const stet__fact *fact)
{
    for (const fleet_entry *e = run->entries; e != NULL; e = e->next)
        if (e->fence == epoch && !e->is_inside && !e->is_forgotten && ledger_is(e, fact->name))
            return true;
    return false;
}

bool
fleet_is_at_risk(const fleet_run *run, uint64_t epoch, stet_bytes name)
{
    for (const fleet_entry *e = run->entries; e != NULL; e = e->next)
        if (e->fence == epoch && (!e->is_settled || e->is_unsure) && ledger_is(e, name))
            return true;
    return false;
}

/* With an empty name: all of the run; the facts that end an attempt are the record of a body that
 * failed without a policy of its own. */
void
fleet_settle(fleet *w, fleet_run *run, uint64_t epoch, stet_bytes name)
{
    (void)w;
    for (fleet_entry *e = run->entries; e != NULL; e = e->next)
        if (e->fence == epoch && (name.len == 0 || ledger_is(e, name)))
            e->is_settled = true;
}

void
fleet_body_failed(fleet *w, const stet_attempt *a)
{
    fleet_run *run = fleet_run_named(w, stet_attempt_run(a));

    for (fleet_entry *e = run != NULL ? run->entries : NULL; e != NULL; e = e->next)
        if (e->fence == stet_attempt_fence(a) && strcmp(e->step, a->step) == 0)
            e->has_failed = true;
}

void
fleet_settle_failed(fleet_run *run, uint64_t epoch)
{
    for (fleet_entry *e = run->entries; e != NULL; e = e->next)
        if (e->fence == epoch && e->has_failed) {
            /* The fact was made before it was stored, and a body beside the handler may have failed in between. */
            e->is_unsure = e->is_unsure || !e->is_settled;
            e->is_settled = true;
        }
}
