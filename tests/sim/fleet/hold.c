/* Paused handlers and services: what operators hold, and that nobody is given a run of it.
 *
 * The store tells when a pause begins and ends: each one that was answered, once. An engine reads
 * the pauses before it takes its first run; of later ones it learns with its next sweep. So a node
 * is given no run of what was paused before its life began, whatever goes wrong; and none of what
 * was paused some sweeps ago, in seeds in which nothing delays its looks or its claims. /
 */
#include <stdio.h>
#include <string.h>

#include "engine/host.h"
#include "exec/context.h"
#include "fleet.h"

/* Sweeps are at most 5 s apart; what was on its way then comes a little later. */
#define HOLD_LEARNT_US ((int64_t)12 * 1000000)
#define HOLD_WHIM_MS   2000
#define HOLD_TRIES     8
#define HOLD_EARLY_US  1000
#define HOLD_LATE_US   100

static const char *const hold_names[FLEET_HOLDS] = { "svc", "obj", "svc.run", "obj.run",
                                                     "obj.peek" };

static fleet_hold *
hold_named(fleet *w, stet_bytes name)
{
    for (size_t i = 0; i < FLEET_HOLDS; i++)
        if (strlen(hold_names[i]) == name.len && memcmp(hold_names[i], name.data, name.len) == 0)
            return &w->holds[i];
    return NULL;
}

/* ---- in the store ---------------------------------------------------------------------------- */

void
fleet_hold_applied(fleet *w, const fleet_node *node, const stet_op *op)
{
    fleet_hold *hold = hold_named(w, op->key);
    bool        is_put = op->kind == STET_OP_VALUE_PUT;

    if (hold == NULL || is_put == (hold->since_us != 0)) {
        fleet_fail(w, NULL, "%.*s is %s, and was before", (int)op->key.len,
                   (const char *)op->key.data, is_put ? "paused" : "resumed");
        return;
    }
    fleet_trace(w, node, NULL, is_put ? "paused:" : "resumed:", hold_names[hold - w->holds], 0, 0);
    hold->since_us = is_put ? stet__sim_now_us(w->sim) : 0;
    for (size_t i = 0; !is_put && i < w->n_nodes; i++)
        w->nodes[i].held_us[hold - w->holds] = 0;
    hold->puts += is_put;
    hold->dels += !is_put;
    w->stats.holds += is_put;
}

static bool
hold_is_of(size_t hold, const char *handler)
{
    size_t n = strlen(hold_names[hold]);

    return strncmp(handler, hold_names[hold], n) == 0 && (handler[n] == '\0' || handler[n] == '.');
}

/* Is a node's look at the pauses, or what it claims by it, late in this seed? */
static bool
hold_is_prompt(const fleet *w, const fleet_node *node)
{
    static const fleet_fault_kind delays[] = { FLEET_READ_FAILED,    FLEET_SLOW,
                                               FLEET_POISONED,       FLEET_NO_MEMORY,
                                               FLEET_COMMIT_REFUSED, FLEET_REPLY_LOST,
                                               FLEET_LEASE_SLOW,     FLEET_READ_LATE };

    for (size_t i = 0; i < sizeof delays / sizeof delays[0]; i++)
        if (w->plan.one_in[delays[i]] != 0)
            return false;
    return stet__sim_now_us(w->sim) - node->pause_end_us > HOLD_LEARNT_US &&
           stet__sim_now_us(w->sim) - node->late_us > HOLD_LEARNT_US;
}

void
fleet_hold_granted(fleet *w, const fleet_node *node, const fleet_run *run)
{
    for (size_t i = 0; i < FLEET_HOLDS; i++) {
        int64_t since_us = w->holds[i].since_us;

        if (since_us != 0 && hold_is_of(i, run->handler) &&
            (since_us < node->born_us ||
             (stet__sim_now_us(w->sim) - since_us > HOLD_LEARNT_US && hold_is_prompt(w, node))))
            fleet_fail(w, run, "it is granted to node %u, and %s is paused for %lld ms",
                       node->index, hold_names[i],
                       (long long)(stet__sim_now_us(w->sim) - since_us) / 1000);
    }
}

/* Unless its own look failed, or what it began before was still on its way. */
void
fleet_hold_entered(fleet *w, const fleet_node *node, const fleet_run *run, int64_t began_us)
{
    if (w->plan.one_in[FLEET_READ_FAILED] != 0 || w->plan.one_in[FLEET_NO_MEMORY] != 0)
        return;
    for (size_t i = 0; i < FLEET_HOLDS; i++)
        if (node->held_us[i] != 0 && began_us > node->held_us[i] && hold_is_of(i, run->handler))
            fleet_fail(w, run, "it is executed by node %u, which had paused %s before it began",
                       node->index, hold_names[i]);
}

bool
fleet_is_held(fleet *w)
{
    for (size_t i = 0; i < FLEET_HOLDS; i++)
        if (stet__mem_value(w->db, STET__SPACE_BASE_PAUSED, stet_text(hold_names[i])) != NULL)
            return true;
    return false;
}

/* ---- operators ------------------------------------------------------------------------------- */

static bool
hold_is_passing(int code)
{
    stet_class class_ = stet_code_class(code);

    return class_ == STET_CLASS_RETRY || class_ == STET_CLASS_UNKNOWN ||
           class_ == STET_CLASS_FENCED || code == STET_EPOISONED;
}

void
fleet_hold_pause(fleet_node *node)
{
    fleet      *w = node->w;
    size_t      i = (size_t)fleet_draw(&w->draws, FLEET_HOLDS);
    fleet_hold *hold = &w->holds[i];
    uint64_t    puts = hold->puts;
    int64_t     most_ms = fleet_draw(&w->draws, 4) == 0 ? 40000 : 4000;
    int         err;

    if (hold->since_us == 0)
        hold->until_us =
            stet__sim_now_us(w->sim) + 1000 * (int64_t)fleet_draw(&w->draws, (uint64_t)most_ms);
    err = stet_handler_pause(node->engine, hold_names[i], "operator", "a whim");
    if (err == STET_OK && hold->puts == puts + 1 && hold->since_us != 0)
        node->held_us[i] = stet__sim_now_us(w->sim);
    if (err == STET_OK ? hold->puts == puts : err != STET_ESETTLED && !hold_is_passing(err))
        fleet_fail(w, NULL, "pausing %s gives %s: %s", hold_names[i], stet_code_name(err),
                   stet_last_error());
    if (err == STET_ESETTLED && strstr(stet_last_error(), "by operator") == NULL)
        fleet_fail(w, NULL, "a second pause does not name the first: %s", stet_last_error());
}

/* One that has been paused long enough, or none that is paused at all. */
void
fleet_hold_resume(fleet_node *node)
{
    fleet      *w = node->w;
    size_t      i = (size_t)fleet_draw(&w->draws, FLEET_HOLDS);
    fleet_hold *hold;
    uint64_t    dels;
    int         err;

    for (size_t k = 0; k < FLEET_HOLDS && w->holds[i].since_us == 0; k++)
        i = (i + 1) % FLEET_HOLDS;
    hold = &w->holds[i];
    dels = hold->dels;
    if (hold->since_us != 0 && stet__sim_now_us(w->sim) < hold->until_us)
        return;
    err = stet_handler_resume(node->engine, hold_names[i], "operator", "enough");
    if (err == STET_OK ? hold->dels == dels : err != STET_ENOTFOUND && !hold_is_passing(err))
        fleet_fail(w, NULL, "resuming %s gives %s: %s", hold_names[i], stet_code_name(err),
                   stet_last_error());
}

/* Its timer has fired, and it waits for a slot: nothing of that is on record yet. */
static bool
hold_is_resumed(const fleet_node *node, const fleet_run *run)
{
    stet_ctx *c = stet__map_find(&node->engine->claims, run->id.bytes, sizeof run->id.bytes);

    return c != NULL && c->host != NULL && ((stet__claim *)c->host)->is_resumed;
}

/* Just when the next timer of a run that is parked here fires, if that is soon: what serves it. Or when it has fired, if
 * the run is not executed yet. */
static size_t
hold_next(fleet_node *node)
{
    fleet  *w = node->w;
    int64_t now_ms = fleet_now_ms(w);
    bool    is_behind = fleet_draw(&w->whims, 4) != 0;

    for (mem_node *n = stet__mem_tree_first(&w->db->timers); n != NULL;
         n = stet__mem_tree_next(n)) {
        const mem_timer *timer = MEM_OF(mem_timer, by_time, n);
        const fleet_run *run = fleet_run_of(w, timer->run);
        int64_t          us = 1000 * (timer->fire_ms - now_ms);

        if (us > 1000 * HOLD_WHIM_MS)
            break;
        if (us <= 0 || run == NULL ||
            stet__map_find(&node->engine->claims, run->id.bytes, sizeof run->id.bytes) == NULL)
            continue;
        if (is_behind) {
            fleet_nap(node->p, us + HOLD_LATE_US);
            if (node->is_leaving || !hold_is_resumed(node, run))
                return FLEET_HOLDS;
        } else
            fleet_nap(node->p, us - (int64_t)fleet_draw(&w->whims, HOLD_EARLY_US));
        return run->is_object ? 3 - 2 * fleet_draw(&w->whims, 2) : 2 * fleet_draw(&w->whims, 2);
    }
    return (size_t)fleet_draw(&w->whims, FLEET_HOLDS);
}

void
fleet_hold_whim(fleet_node *node)
{
    fleet      *w = node->w;
    size_t      i = FLEET_HOLDS;
    fleet_hold *hold;
    uint64_t    puts;

    for (int tries = 0; i == FLEET_HOLDS && tries < HOLD_TRIES && !node->is_leaving; tries++)
        i = hold_next(node);
    if (i == FLEET_HOLDS || node->is_leaving)
        return;
    hold = &w->holds[i];
    puts = hold->puts;
    if (hold->since_us != 0 ||
        stet_handler_pause(node->engine, hold_names[i], "operator", "a whim") != STET_OK)
        return;
    if (hold->puts == puts + 1 && hold->since_us != 0)
        node->held_us[i] = stet__sim_now_us(w->sim);
    fleet_nap(node->p, 1000 * (int64_t)fleet_draw(&w->whims, HOLD_WHIM_MS));
    if (!node->is_leaving)
        (void)stet_handler_resume(node->engine, hold_names[i], "operator", "enough");
}

void
fleet_hold_end(stet_engine *e)
{
    for (size_t i = 0; i < FLEET_HOLDS; i++)
        (void)stet_handler_resume(e, hold_names[i], "helper", NULL);
}
