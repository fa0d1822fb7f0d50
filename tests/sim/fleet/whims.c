/* Whims: operators of some seeds, who see what happens and do what hurts most just then.
 *
 * What operators draw blindly (clients.c) seldom meets the moment in which it could do harm: a
 * rewind of a run whose worker died in a body, or that somebody decides about just now. These look at the
 * world first. One seed in three has them, drawn from a stream of their own: all other seeds are
 * what they are without. /
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

#define WHIMS_ONE_IN   3
#define WHIM_REAPED_US ((int64_t)5 * 1000000)

enum { WHIM_LOOKS = 20, WHIM_LOOK_US = 100000, WHIM_GREETS = 100, WHIM_GREET_US = 1000 };

void
fleet_whims_draw(fleet *w)
{
    w->plan.has_whims = fleet_draw(&w->whims, WHIMS_ONE_IN) == 0;
}

bool
fleet_whim_strikes(fleet *w, uint64_t one_in)
{
    return w->plan.has_whims && w->has_faults && fleet_draw(&w->whims, one_in) == 0;
}

typedef bool (*whim_fn)(const fleet *w, const fleet_run *run);

static size_t
whim_count(const fleet *w, whim_fn is)
{
    size_t n = 0;

    for (const fleet_run *run = w->first; run != NULL; run = run->next)
        n += is(w, run);
    return n;
}

/* One of those of which it is true, or NULL. */
static fleet_run *
whim_pick(fleet *w, whim_fn is)
{
    size_t n = whim_count(w, is), at;

    if (n == 0)
        return NULL;
    at = (size_t)fleet_draw(&w->whims, n);
    for (fleet_run *run = w->first; run != NULL; run = run->next)
        if (is(w, run) && at-- == 0)
            return run;
    return NULL;
}

/* A step of it that is recorded, or "": its beginning. */
static void
whim_step(fleet *w, const fleet_run *run, char step[32])
{
    size_t n = 1, at;

    step[0] = '\0';
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        n += s->is_recorded && s->code == 0 && s->step[0] != 'r';
    at = (size_t)fleet_draw(&w->whims, n);
    for (const fleet_step *s = run->steps; s != NULL && at > 0; s = s->next)
        if (s->is_recorded && s->code == 0 && s->step[0] != 'r' && --at == 0)
            (void)snprintf(step, 32, "%s", s->step);
}

/* ---- rewinds --------------------------------------------------------------------------------- */

/* Its worker died in a body, and nobody has executed it since. */
static bool
whim_is_widowed(const fleet *w, const fleet_run *run)
{
    (void)w;
    return run->end == 0 && !run->is_rolled_back && run->entries != NULL && run->entries->is_lost &&
           !run->entries->is_settled && !run->entries->is_stale && !run->entries->is_forgotten;
}

static int
whim_pause(fleet_node *node, fleet_run *run, const char *why)
{
    stet_run_id id;
    int         err;

    memcpy(id.text, run->text, sizeof id.text);
    err = stet_run_pause(node->engine, &id, "operator", why);
    fleet_operated(node->w, run, "pause", err,
                   err == STET_EENDED || err == STET_ESTATE || err == STET_ESETTLED ||
                       err == STET_ECORRUPT);
    return err;
}

/* It is stopped where it is, looked at, taken back, and goes on. */
static void
whim_rewind_widowed(fleet_node *node)
{
    fleet     *w = node->w;
    fleet_run *run = whim_pick(w, whim_is_widowed);
    int64_t    until_us = stet__sim_now_us(w->sim) + w->plan.lease_ms * 2000 + WHIM_REAPED_US;
    unsigned   deaths = run->deaths;
    char       step[32];
    int        err = whim_pause(node, run, "its worker is dead");

    while (err == STET_OK && run->deaths == deaths && !node->is_leaving &&
           stet__sim_now_us(w->sim) < until_us)
        fleet_nap(node->p, WHIM_LOOK_US);
    if (err != STET_OK || node->is_leaving)
        return;
    whim_step(w, run, step);
    fleet_rewind(node, run, step);
    if (!node->is_leaving)
        fleet_resume(node, run);
}

/* Others decide about it just now. */
static void
whim_rewind_asked(fleet_node *node)
{
    fleet     *w = node->w;
    fleet_run *run;
    char       step[32];

    fleet_nap(node->p, FLEET_ROUND_US - stet__sim_now_us(w->sim) % FLEET_ROUND_US +
                           (int64_t)fleet_draw(&w->whims, FLEET_ROUND_US / 2));
    if (node->is_leaving || (run = fleet_first_asked(w)) == NULL)
        return;
    whim_step(w, run, step);
    fleet_rewind(node, run, step);
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* It goes on, and somebody told it something while it slept. */
static bool
whim_is_updated(const fleet *w, const fleet_run *run)
{
    (void)w;
    return run->end == 0 && run->made != NULL && run->made->op < FLEET_OPS_MAX && !run->is_forced;
}

static bool
whim_is_open(const fleet *w, const fleet_run *run)
{
    (void)w;
    return run->end == 0 && !run->is_unserved && !run->is_damaged;
}

static void
whim_cancel(fleet_node *node, const stet_run_id *run)
{
    fleet_run *known = fleet_run_named(node->w, run->text);
    int        err = stet_cancel(node->engine, run, "operator", "a whim");

    fleet_operated(node->w, known, "cancel", err,
                   err == STET_EENDED || (err == STET_ESTATE && known->is_broken));
}

/* It is failed by hand, which undoes nothing, and tried again. False: it is not. */
static bool
whim_fail_and_retry(fleet_node *node, fleet_run *run, stet_run_id *fresh)
{
    fleet      *w = node->w;
    stet_run_id id;
    int         err;

    memcpy(id.text, run->text, sizeof id.text);
    run->is_forced = true;
    err = stet_run_fail(node->engine, &id, "operator", FLEET_FAILED);
    fleet_operated(w, run, "fail", err, err == STET_EENDED || err == STET_ECORRUPT);
    for (int i = 0; i < WHIM_LOOKS && run->end == 0 && !node->is_leaving; i++)
        fleet_nap(node->p, WHIM_LOOK_US);
    if (run->end != STET__FACT_FAILED || node->is_leaving)
        return false;
    fleet_asked(w, fleet_nonce_of_retry(id.text));
    err = stet_dlq_retry(node->engine, fresh, &id);
    fleet_operated(w, run, "dlq retry", err,
                   err == STET_EOPEN || err == STET_EENDED || err == STET_EEXISTS);
    return err == STET_OK && !node->is_leaving;
}

/* It is failed in its sleep, tried again with its updates, and stopped before it sleeps again. */
static void
whim_retry_updated(fleet_node *node)
{
    fleet      *w = node->w;
    fleet_run  *run = whim_pick(w, whim_is_updated);
    stet_run_id fresh;

    if (run == NULL && (run = whim_pick(w, whim_is_open)) != NULL) {
        fleet_ask_update(node, run);
        return;
    }
    if (run != NULL && whim_fail_and_retry(node, run, &fresh))
        whim_cancel(node, &fresh);
}

/* It has done what will be undone if it fails. */
static bool
whim_is_heirloom(const fleet *w, const fleet_run *run)
{
    const fleet_step *s = run->steps;

    while (s != NULL && (!s->is_recorded || s->done == 0 || s->is_undone))
        s = s->next;
    return s != NULL && whim_is_open(w, run) && run->program.is_undone && !run->is_rolled_back &&
           !run->is_stopped && !run->is_forced;
}

/* What it did is inherited by its retry, which is stopped on its way and has to undo it. */
static void
whim_retry_undone(fleet_node *node)
{
    fleet_run  *run = whim_pick(node->w, whim_is_heirloom);
    stet_run_id fresh;

    if (run == NULL || !whim_fail_and_retry(node, run, &fresh))
        return;
    fleet_nap(node->p, 1 + (int64_t)fleet_draw(&node->w->whims, WHIM_LOOK_US));
    if (!node->is_leaving)
        whim_cancel(node, &fresh);
}

/* It is a retry that has written. */
static bool
whim_is_heir(const fleet *w, const fleet_run *run)
{
    (void)w;
    return run->is_retry && run->is_object && !run->is_shared &&
           run->journal > run->inherited + 2 && !run->is_purged;
}

static bool
whim_has_written(const fleet *w, const fleet_run *run)
{
    (void)w;
    return run->writes != NULL && !run->is_purged;
}

/* A retry of a retry, if there is one: others may have written in between, twice. */
static void
whim_fork_heir(fleet_node *node)
{
    fleet      *w = node->w;
    fleet_run  *run = whim_pick(w, whim_is_heir);
    stet_run_id fresh;
    char        step[32];

    if (run == NULL && (run = whim_pick(w, whim_has_written)) == NULL)
        return;
    whim_step(w, run, step);
    (void)fleet_fork(node, run, step, &fresh);
}

/* ---- rollbacks ------------------------------------------------------------------------------- */

static bool
whim_is_undone(const fleet *w, const fleet_run *run)
{
    (void)w;
    return run->end == 0 && run->program.has_undo && !run->is_stopped && !run->is_damaged &&
           run->entries != NULL && run->entries->is_inside &&
           strncmp(run->entries->step, "rollback:", 9) == 0;
}

static bool
whim_is_broken(const fleet *w, const fleet_run *run)
{
    const mem_run *row = run->end == 0 && run->is_broken ? stet__mem_run(w->db, run->id) : NULL;

    return row != NULL && row->row.status == STET_STATUS_COMPENSATION_FAILED;
}

/* Who called it is taken back while it does nothing, and learns only then how it ended. */
static void
whim_rewind_caller(fleet_node *node, const fleet_run *run, fleet_run *caller)
{
    if (whim_pause(node, caller, "what it called fails") != STET_OK || node->is_leaving)
        return;
    fleet_rewind(node, caller, "");
    for (int i = 0; i < WHIM_LOOKS && !run->is_broken && run->end == 0 && !node->is_leaving; i++)
        fleet_nap(node->p, WHIM_LOOK_US);
    if (!node->is_leaving)
        fleet_resume(node, caller);
}

/* One that waits for help gets it; one whose undo is about to fail is stopped, or who called it is taken back. */
static void
whim_undone(fleet_node *node)
{
    fleet      *w = node->w;
    fleet_run  *run = fleet_draw(&w->whims, 2) == 0 ? whim_pick(w, whim_is_broken) : NULL, *caller;
    stet_run_id id;
    int         err;

    if (run != NULL) {
        memcpy(id.text, run->text, sizeof id.text);
        err = stet_rollback_retry(node->engine, &id, "operator", "a whim");
        fleet_operated(w, run, "rollback", err, err == STET_ESTATE || err == STET_ECORRUPT);
    } else if ((run = whim_pick(w, whim_is_undone)) != NULL) {
        caller = run->is_called ? fleet_run_of(w, run->parent) : NULL;
        if (caller != NULL && caller->end == 0 && !caller->is_rolled_back) {
            whim_rewind_caller(node, run, caller);
            return;
        }
        memcpy(id.text, run->text, sizeof id.text);
        fleet_nap(node->p, run->entries->at_us + FLEET_REFUSED_MS * 1000 -
                               stet__sim_now_us(w->sim) -
                               (int64_t)fleet_draw(&w->whims, WHIM_LOOK_US));
        if (!node->is_leaving)
            whim_cancel(node, &id);
    }
}

/* All who settle come at the same time, for the same. */
static void
whim_settle(fleet_node *node)
{
    fleet_nap(node->p, FLEET_ROUND_US - stet__sim_now_us(node->w->sim) % FLEET_ROUND_US);
    if (!node->is_leaving)
        fleet_settle_first(node);
}

/* ---- children -------------------------------------------------------------------------------- */

/* It has called one that goes on, and waits for it. */
static bool
whim_is_caller(const fleet *w, const fleet_run *run)
{
    const fleet_run *child = w->first;

    while (child != NULL && (!child->is_called || child->end != 0 || child->is_stopped ||
                             child->is_forgotten || !stet__id_equal(child->parent, run->id)))
        child = child->next;
    return child != NULL && whim_is_open(w, run) && !run->is_stopped && !run->is_rolled_back;
}

/* It is taken back while nobody executes it, and failed before anybody knows. */
static void
whim_fail_rewound(fleet_node *node)
{
    fleet      *w = node->w;
    fleet_run  *run = whim_pick(w, whim_is_caller);
    stet_run_id id;
    int         err;

    if (run == NULL || whim_pause(node, run, "it is taken back") != STET_OK || node->is_leaving)
        return;
    fleet_rewind(node, run, "");
    if (node->is_leaving)
        return;
    memcpy(id.text, run->text, sizeof id.text);
    run->is_forced = true;
    err = stet_run_fail(node->engine, &id, "operator", FLEET_FAILED);
    fleet_operated(w, run, "fail", err, err == STET_EENDED || err == STET_ECORRUPT);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool
whim_is_reader(const fleet *w, const fleet_run *run)
{
    const mem_run *row = whim_is_open(w, run) ? stet__mem_run(w->db, run->id) : NULL;

    return row != NULL && row->row.reason != NULL && strstr(row->row.reason, "event wait") != NULL;
}

static void
whim_stop_reader(void *arg)
{
    fleet_node *node = arg;
    fleet_run  *run;
    stet_run_id id;

    fleet_nap(node->p, WHIM_LOOK_US);
    if ((run = whim_pick(node->w, whim_is_reader)) != NULL && !node->is_leaving) {
        memcpy(id.text, run->text, sizeof id.text);
        whim_cancel(node, &id);
    }
    node->clients--;
}

/* Somebody stops waiting just when all who wait are told. */
static void
whim_emit(fleet_node *node)
{
    for (int i = 0; i < WHIM_LOOKS && whim_count(node->w, whim_is_reader) < 2; i++)
        fleet_nap(node->p, WHIM_LOOK_US);
    if (node->is_leaving)
        return;
    fleet_spawn(node, whim_stop_reader, node);
    fleet_emit(node);
}

/* ---- greetings ------------------------------------------------------------------------------- */

typedef struct whim_greeting {
    fleet_node *node;
    fleet_run  *run;
    bool        is_over;
} whim_greeting;

static void
whim_signal(void *arg)
{
    whim_greeting *g = arg;

    fleet_signal(g->node, g->run, (int)fleet_draw(&g->node->w->whims, FLEET_SIGNALS), false);
    g->is_over = true;
    g->node->clients--;
}

void
fleet_whim_greet(fleet *w, stet__platform *p, fleet_run *run)
{
    whim_greeting *g = stet__arena_get(&w->arena, sizeof *g);
    size_t         at = (size_t)fleet_draw(&w->whims, w->n_nodes), i = 0;

    if (g == NULL)
        abort();
    while (i < w->n_nodes && (!w->nodes[at].is_up || w->nodes[at].engine == NULL ||
                              w->nodes[at].is_leaving || w->nodes[at].p == p)) {
        at = (at + 1) % w->n_nodes;
        i++;
    }
    if (i == w->n_nodes)
        return;
    *g = (whim_greeting){ .node = &w->nodes[at], .run = run };
    fleet_spawn(g->node, whim_signal, g);
    for (int k = 0; k < WHIM_GREETS && !g->is_over; k++)
        fleet_nap(p, WHIM_GREET_US);
}

/* ---- one of them ----------------------------------------------------------------------------- */

void
fleet_whim(fleet_node *node)
{
    fleet *w = node->w;

    if (w->n_schedules > 0 && fleet_draw(&w->whims, 2) == 0) {
        fleet_schedule_whim(node);
        return;
    }
    if (whim_pick(w, whim_is_widowed) != NULL) { /* there is not much time */
        whim_rewind_widowed(node);
        return;
    }
    if (whim_pick(w, whim_is_undone) != NULL) { /* … nor here */
        whim_undone(node);
        return;
    }
    if (whim_pick(w, whim_is_heir) != NULL && fleet_draw(&w->whims, 3) == 0) {
        whim_fork_heir(node);
        return;
    }
    switch (fleet_draw(&w->whims, 12)) {
    case 10: whim_fail_rewound(node); break;
    case 11: whim_emit(node); break;
    case 4:
    case 5: whim_settle(node); break;
    case 3: whim_undone(node); break;
    case 0: whim_rewind_asked(node); break;
    case 2: fleet_hold_whim(node); break;
    case 1: whim_retry_updated(node); break;
    case 8:
    case 9: whim_retry_undone(node); break;
    default: whim_fork_heir(node); break;
    }
}
