/* Faults: which ones a seed has, how often each strikes, and the fiber that does what no call
 * brings about. */
#include <string.h>

#include "fleet.h"

const char *const fleet_fault_names[FLEET_FAULTS] = {
#define FLEET_FAULT_NAME(name, one_in, text) text,
    FLEET_FAULT_LIST(FLEET_FAULT_NAME)
#undef FLEET_FAULT_NAME
};

static const uint64_t fault_rates[FLEET_FAULTS] = {
#define FLEET_FAULT_RATE(name, one_in, text) one_in,
    FLEET_FAULT_LIST(FLEET_FAULT_RATE)
#undef FLEET_FAULT_RATE
};

/* Every kind is there in half of the seeds, at its highest rate or up to eight times more rarely.
 * Kinds without a rate are the chaos fiber's: one in so many of its turns. One seed in sixteen has
 * no fault at all: what is wrong then is wrong without an excuse. */
void
fleet_plan_draw(fleet *w)
{
    fleet_plan *p = &w->plan;
    bool        is_calm = fleet_draw(&w->faults, 16) == 0;

    memset(p, 0, sizeof *p);
    for (int i = 0; i < FLEET_FAULTS_FIRST; i++) {
        uint64_t most = fault_rates[i] > 0 ? fault_rates[i] : 2;

        if (fleet_draw(&w->faults, 2) == 0 && !is_calm)
            p->one_in[i] = most << fleet_draw(&w->faults, 4);
    }
    if (fleet_draw(&w->late, 2) == 0 && !is_calm)
        p->one_in[FLEET_READ_LATE] = fault_rates[FLEET_READ_LATE] << fleet_draw(&w->late, 4);
    if (fleet_draw(&w->faults, 4) != 0)
        p->one_in[FLEET_DAMAGE] = 0;
    if (fleet_draw(&w->faults, 2) != 0)
        p->one_in[FLEET_STORE_JUMP] = 0; /* it excuses too much */
    if (fleet_draw(&w->faults, 2) != 0)
        p->one_in[FLEET_STORE_BACK] = 0; /* so does this */
    p->chaos_us = 100000 + (int64_t)fleet_draw(&w->faults, 4000000);
    p->last_us = 1000000 * (int64_t)(5 + fleet_draw(&w->faults, 40));
    p->crashes_max = (unsigned)fleet_draw(&w->faults, 9);
    p->lease_ms = 1000 + (int64_t)fleet_draw(&w->faults, 10) * 500;
    p->renew_ms = p->lease_ms / 3;
    fleet_revivals_draw(w);
    p->has_revivals = p->has_revivals && !is_calm;
    p->is_deaf = fleet_draw(&w->faults, 8) == 0;
    p->is_mirrored = fleet_draw(&w->faults, 8) < 2;
    p->retention_ms = fleet_draw(&w->faults, 4) == 0 ? 1000 + (int64_t)fleet_draw(&w->faults, 20000)
                                                     : 315360000000;
}

bool
fleet_fault_draw(fleet *w, fleet_fault_kind kind, const fleet_node *node)
{
    if (fleet_draw(&w->faults, w->plan.one_in[kind]) != 0)
        return false;
    if (kind == FLEET_CRASH || kind == FLEET_CRASH_BEFORE || kind == FLEET_CRASH_AFTER) {
        if (w->crashes >= w->plan.crashes_max)
            return false;
        w->crashes++;
    }
    w->stats.faults[kind]++;
    fleet_trace(w, node, NULL, "FAULT", fleet_fault_names[kind], 0, 0);
    return true;
}

/* ---- chaos ----------------------------------------------------------------------------------- */

/* A row of that tree: the last one, which was written last, or any. */
static mem_facts *
chaos_row(fleet *w, const mem_tree *rows)
{
    mem_node *node = stet__mem_tree_last(rows);

    for (uint64_t back = fleet_draw(&w->torn, 2) * fleet_draw(&w->torn, FLEET_ROWS_BACK);
         back > 0 && node != NULL && stet__mem_tree_prev(node) != NULL; back--)
        node = stet__mem_tree_prev(node);
    return node != NULL ? MEM_OF(mem_facts, node, node) : NULL;
}

/* Has somebody told it anything in this generation? */
static bool
chaos_has_letters(const fleet *w, const fleet_run *run)
{
    const mem_run *row = stet__mem_run(w->db, run->id);

    return row != NULL && row->row.inbox > run->turned_at;
}

/* Turn one bit of a row of some run, or cut it short, as a page that was written in part; what is in memory
 * somewhere may still be right. */
static void
chaos_damage(fleet *w)
{
    unsigned   skip = (unsigned)fleet_draw(&w->faults, w->n_runs + 1);
    bool       is_inbox = fleet_draw(&w->torn, 3) == 0, is_cut = fleet_draw(&w->torn, 2) == 0;
    fleet_run *run = w->first;
    mem_run   *row;
    mem_facts *facts;

    while (run != NULL && skip-- > 0)
        run = run->next;
    while (run != NULL && is_inbox && !chaos_has_letters(w, run))
        run = run->next;
    if (run == NULL || run->is_damaged || (row = stet__mem_run(w->db, run->id)) == NULL)
        return;
    if ((facts = chaos_row(w, is_inbox ? &row->inbox : &row->journal)) == NULL || facts->len < 8 ||
        (is_inbox &&
         facts->first <= run->turned_at)) /* of a generation that is gone: nobody reads it */
        return;
    if (is_cut)
        facts->len = (size_t)fleet_draw(&w->torn, facts->len);
    else
        facts->data[2 + fleet_draw(&w->faults, facts->len - 2)] ^= 0x40;
    run->is_damaged = run->was_damaged = true;
    w->damaged++;
    w->stats.faults[is_inbox ? FLEET_INBOX_DAMAGE : is_cut ? FLEET_TORN : FLEET_DAMAGE]++;
    fleet_trace(w, NULL, run, is_cut ? "FAULT: a row is cut short" : "FAULT: a fact is damaged",
                is_inbox ? "inbox" : "journal", (int64_t)facts->first, (int64_t)facts->len);
}

static int64_t
chaos_far(fleet *w)
{
    uint64_t most_ms = fleet_draw(&w->faults, 2) == 0 ? (uint64_t)w->plan.lease_ms / 2 : 7200000;

    return (int64_t)fleet_draw(&w->faults, most_ms);
}

/* A server's clock that is set back. A file's never goes back (docs/decisions, 11). */
void
fleet_store_back(fleet *w)
{
    int64_t ms = chaos_far(w), peak_ms = fleet_peak_ms(w);

    if (peak_ms > w->peak_ms) /* somebody else may have set it back while we looked */
        w->peak_ms = peak_ms;
    w->back_ms += ms;
    w->set_back_ms += ms;
    stet__memory_db_advance(w->db, -ms);
    fleet_trace(w, NULL, NULL, "the store's clock is back by", NULL, ms, 0);
}

void
fleet_store_ahead(fleet *w, int64_t ms)
{
    stet__memory_db_advance(w->db, ms);
    w->jumped_us = stet__sim_now_us(w->sim);
    fleet_trace(w, NULL, NULL, "the store's clock is ahead by", NULL, ms, 0);
}

void
fleet_store_right(fleet *w, int64_t ms)
{
    int64_t peak_ms = fleet_peak_ms(w);

    if (peak_ms > w->peak_ms)
        w->peak_ms = peak_ms;
    w->back_ms += ms;
    w->set_back_ms += ms;
    stet__memory_db_advance(w->db, -ms);
    fleet_trace(w, NULL, NULL, "the store's clock is right again", NULL, ms, 0);
}

/* Everybody's leases end by it if it is far. */
static void
chaos_store_jump(fleet *w)
{
    fleet_store_ahead(w, chaos_far(w));
}

/* Set ahead by mistake and set right a moment later: leases have ended in between, and go on. What was
 * recorded meanwhile was refused. */
static void
chaos_hiccup(fleet *w)
{
    int64_t ms = w->plan.lease_ms + (int64_t)fleet_draw(&w->hiccups, (uint64_t)w->plan.lease_ms);

    fleet_store_ahead(w, ms);
    fleet_nap(w->server, 1 + (int64_t)fleet_draw(&w->hiccups, (uint64_t)w->plan.renew_ms * 500));
    fleet_store_right(w, ms);
}

static bool
chaos_has_hiccups(const fleet *w)
{
    return w->plan.one_in[FLEET_STORE_JUMP] != 0 && w->plan.one_in[FLEET_STORE_BACK] != 0;
}

static void
chaos_turn(fleet *w)
{
    fleet_node *node = &w->nodes[fleet_draw(&w->faults, w->n_nodes)];

    if (!node->is_up)
        return;
    if (fleet_fault(w, FLEET_CRASH, node)) {
        fleet_crash(w, node);
        return;
    }
    if (!node->is_leaving && node->engine != NULL && fleet_fault(w, FLEET_STOP, node))
        fleet_leave_node(w, node);
    if (fleet_fault(w, FLEET_PAUSE, node)) {
        node->pause_end_us = stet__sim_now_us(w->sim) +
                             1000 * (int64_t)fleet_draw(&w->faults, (uint64_t)w->plan.lease_ms * 3);
        stet__sim_node_pause(w->sim, node->p, node->pause_end_us);
    }
    if (fleet_fault(w, FLEET_JUMP, node)) {
        node->skew_ms += (int64_t)fleet_draw(&w->faults, 7200001) - 3600000;
        stet__sim_node_skew(w->sim, node->p, node->skew_ms);
    }
    if (fleet_fault(w, FLEET_STORE_JUMP, NULL))
        chaos_store_jump(w);
    if (fleet_fault(w, FLEET_STORE_BACK, NULL))
        fleet_store_back(w);
    if (w->plan.one_in[FLEET_DAMAGE] != 0 && w->damaged < FLEET_DAMAGED_MAX &&
        fleet_draw(&w->faults, w->plan.one_in[FLEET_DAMAGE]) == 0)
        chaos_damage(w);
}

void
fleet_chaos(void *arg)
{
    fleet *w = arg;

    while (w->has_faults) {
        fleet_nap(w->server, 1 + (int64_t)fleet_draw(&w->faults, (uint64_t)w->plan.chaos_us * 2));
        if (w->has_faults)
            chaos_turn(w);
        if (w->has_faults && chaos_has_hiccups(w))
            chaos_hiccup(w);
        if (w->has_faults)
            fleet_revival(w);
    }
}
