/* A worker that looks dead, comes to life again, and dies.
 *
 * In some seeds the store's clock is set ahead, past all leases, and right again as soon as another
 * node has looked at the runs of one that looks dead by it. That one has heard nothing, for its
 * renewals got no answer meanwhile; it goes on, takes another run, and crashes in its first body.
 * Only then, and when its lease is over, comes what the other one had to write about its death: it
 * knows nothing of that run. /
 */
#include "engine/engine.h"
#include "fleet.h"

enum { REVIVAL_ONE_IN = 8, REVIVAL_CHANCE = 3, REVIVAL_LOOK_US = 1000 };

#define REVIVAL_LIFE_US ((int64_t)8 * 1000000)

void
fleet_revivals_draw(fleet *w)
{
    w->plan.has_revivals = fleet_draw(&w->revivals, REVIVAL_ONE_IN) == 0;
}

/* One that has a session, and is here to stay. */
static fleet_node *
revival_node(fleet *w)
{
    size_t at = (size_t)fleet_draw(&w->revivals, w->n_nodes);

    for (size_t i = 0; i < w->n_nodes; i++, at = (at + 1) % w->n_nodes)
        if (w->nodes[at].is_up && !w->nodes[at].is_leaving && w->nodes[at].engine != NULL &&
            w->nodes[at].engine->session != 0)
            return &w->nodes[at];
    return NULL;
}

/* Wait for what another fiber does. */
static void
revival_await(fleet *w, const bool *is_so, int64_t us)
{
    int64_t until_us = stet__sim_now_us(w->sim) + us;

    while (!*is_so && w->has_faults && stet__sim_now_us(w->sim) < until_us)
        fleet_nap(w->server, REVIVAL_LOOK_US);
}

void
fleet_revival(fleet *w)
{
    fleet_revival_of *r = &w->revival;
    fleet_node       *node;
    int64_t           ahead_ms, most_us = w->plan.lease_ms * 500;

    if (!w->plan.has_revivals || fleet_draw(&w->revivals, REVIVAL_CHANCE) != 0 ||
        (node = revival_node(w)) == NULL)
        return;
    *r = (fleet_revival_of){ .session = node->engine->session, .node = node, .life = node->life };
    fleet_trace(w, node, NULL, "FAULT", "it looks dead", (int64_t)r->session, 0);
    ahead_ms = w->plan.lease_ms + (int64_t)fleet_draw(&w->revivals, (uint64_t)w->plan.lease_ms);
    node->aloof_end_us = stet__sim_now_us(w->sim) + most_us;
    fleet_store_ahead(w, ahead_ms);
    revival_await(w, &r->is_seen, most_us);
    fleet_store_right(w, ahead_ms);
    if (r->is_seen) {
        r->right_us = stet__sim_now_us(w->sim);
        revival_await(w, &r->is_over, REVIVAL_LIFE_US + w->plan.lease_ms * 2000);
    }
    r->session = 0;
}

/* About to be committed: does it tell of that death? */
void
fleet_revival_told(fleet *w, fleet_node *node, const stet_unit *unit)
{
    fleet_revival_of *r = &w->revival;
    uint64_t          session = r->session;
    bool              is_it = false;

    for (size_t i = 0; session != 0 && !r->is_seen && i < unit->n_ops; i++)
        is_it = is_it || (unit->ops[i].kind == STET_OP_REAP && unit->ops[i].session == session);
    if (!is_it || node == r->node)
        return;
    r->is_seen = true;
    while (w->has_faults && r->session == session &&
           (!r->has_crashed || stet__mem_is_alive(w->db, stet__mem_session(w->db, session))))
        fleet_nap_long(node, REVIVAL_LOOK_US);
    r->is_over = true;
}

/* A body is entered. */
void
fleet_revival_entered(fleet *w, fleet_node *node, const fleet_run *run)
{
    fleet_revival_of *r = &w->revival;

    if (r->session == 0 || r->node != node || r->life != node->life || r->right_us == 0 ||
        run->session != r->session || run->granted_us < r->right_us)
        return;
    r->has_crashed = true;
    w->crashes++;
    w->stats.faults[FLEET_CRASH]++;
    fleet_crash(w, node);
}
