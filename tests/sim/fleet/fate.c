/* Fates: which runs end the same way however often and whenever they are recovered.
 *
 * Two recoveries of one state do the same work in another order and at other times. So they may
 * differ in what depends on order or time, and in nothing else. A run is *open to chance* if
 *   - it may be stopped (it has a deadline, or a stop is in its inbox, or a schedule started it and
 *     may cancel it), or who called it may, or that one may be rewound and forget the call;
 *   - it, or what it calls, has a limit of time, waits for the first of several, settles an
 *     awakeable, or has a body that is too late the first time;
 *   - it, or what it calls, works on a key that another run open to chance works on, or that a run
 *     may hold for ever: who comes first is chance;
 *   - it was started, with an idempotency key, by a run: which of two is first is chance.
 * What a shared run sees of a key is chance, and how it ends is not: no program goes by what it reads.
 * All others are *bound*: fate.c says so from their programs and the image alone.
 */
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

enum {
    FATE_CHANCE = 1, /* how it ends */
    FATE_BLOCKS = 2, /* it may wait for ever, and keep its key */
    FATE_SETTLES = 4 /* it settles an awakeable: chance to itself, not to who waits for it */
};

typedef struct fate_walk {
    unsigned keys; /* open to chance, a bit each */
    size_t   ops_max;
} fate_walk;

static unsigned fate_program(fate_walk *f, const fleet_order *order, int key, unsigned *reach);

static unsigned
fate_child(fate_walk *f, const fleet_order *parent, const fleet_op *op, int part, bool is_awakened,
           unsigned *reach)
{
    fleet_order child = { .seed = op->seed + (uint64_t)(part + 1),
                          .depth = parent->depth + 1,
                          .floor = -1 };
    int         key = is_awakened ? -1 : op->key;
    bool        is_call = op->kind == FLEET_OP_CALL || op->kind == FLEET_OP_FUTURES;

    if (is_call)
        child.floor = parent->floor;
    child.is_shared = op->is_shared && !is_awakened;
    if (op->key > child.floor && !op->is_shared)
        child.floor = op->key;
    if (is_awakened)
        child.awakeable[0] = 'a';
    return fate_program(f, &child, key, reach) |
           (op->child_ms > 0 && !is_awakened ? FATE_CHANCE : 0);
}

static unsigned
fate_futures(fate_walk *f, const fleet_order *order, const fleet_op *op, unsigned *reach)
{
    unsigned flags = op->wait == FLEET_WAIT_ALL ? 0 : FATE_CHANCE;

    for (int i = 0; i < op->parts; i++) {
        if (op->part[i] == FLEET_OP_STEP && op->body[i].is_late)
            flags |= FATE_CHANCE;
        if (op->part[i] == FLEET_OP_SIGNAL || op->part[i] == FLEET_OP_AWAKE)
            flags |= FATE_BLOCKS;
        if (op->part[i] == FLEET_OP_CALL)
            flags |= fate_child(f, order, op, i, false, reach);
    }
    return flags;
}

static unsigned
fate_op(fate_walk *f, const fleet_order *order, const fleet_op *op, unsigned *reach)
{
    unsigned sent = 0, flags;

    switch (op->kind) {
    case FLEET_OP_STEP:
    case FLEET_OP_SCOPE:
    case FLEET_OP_DEPOSIT: return op->body[0].is_late ? FATE_CHANCE : 0;
    case FLEET_OP_CALL: return fate_child(f, order, op, -1, false, reach);
    case FLEET_OP_SEND:
        flags = fate_child(f, order, op, -1, false, &sent);
        if (op->has_limit || (flags & FATE_CHANCE) != 0)
            f->keys |= sent;
        *reach |= sent;
        return 0;
    case FLEET_OP_AWAKE:
        flags = op->has_limit ? FATE_CHANCE : FATE_BLOCKS;
        if (op->is_inside)
            flags |= fate_child(f, order, op, -1, true, reach) & FATE_CHANCE;
        return flags;
    case FLEET_OP_SIGNAL: return op->has_limit ? FATE_CHANCE : FATE_BLOCKS;
    case FLEET_OP_APPROVE:
    case FLEET_OP_PAUSE: return FATE_BLOCKS;
    case FLEET_OP_EVENT: return FATE_CHANCE | (fleet_event_has_limit(op) ? 0 : FATE_BLOCKS);
    case FLEET_OP_FUTURES: return fate_futures(f, order, op, reach);
    case FLEET_OP_SETTLE: return FATE_SETTLES;
    case FLEET_OP_SLEEP: return op->ms > FLEET_FAR_MS ? FATE_BLOCKS : 0;
    default: return 0;
    }
}

/* *reach: the keys it and whatever it starts may work on. */
static unsigned
fate_program(fate_walk *f, const fleet_order *order, int key, unsigned *reach)
{
    fleet_program p;
    unsigned      flags = 0, own = 0;

    fleet_program_make(&p, order, key >= 0, f->ops_max);
    if (order->is_shared)
        key = -1; /* it works on none, and waits for none */
    for (size_t i = 0; i < p.n; i++)
        flags |= fate_op(f, order, &p.ops[i], &own);
    if (key >= 0)
        own |= 1u << key;
    if (key >= 0 && (f->keys & 1u << key) != 0)
        flags |= FATE_CHANCE;
    if (key >= 0 && (flags & FATE_BLOCKS) != 0)
        f->keys |= 1u << key;
    if ((flags & FATE_CHANCE) != 0)
        f->keys |= own;
    *reach |= own;
    return flags;
}

/* ---- runs of a store ------------------------------------------------------------------------- */

static void
fate_read_inbox(fleet_fate *fate, const mem_run *run)
{
    for (mem_node *n = stet__mem_tree_first(&run->inbox); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_facts *f = MEM_OF(mem_facts, node, n);
        stet_bytes       in = { f->data, f->len };
        stet__fact       fact;

        if (stet__fact_decode(&fact, &in) != STET_OK)
            continue;
        if (fact.kind == STET__FACT_CANCEL || fact.kind == STET__FACT_DEADLINE)
            fate->is_stoppable = true;
        if (fact.kind == STET__FACT_REWIND)
            fate->is_rewound = true;
    }
}

static fleet_fate *
fate_find(fleet_fates *all, stet_id id)
{
    size_t low = 0, high = all->n;

    while (low < high) {
        size_t mid = (low + high) / 2;
        int    order = memcmp(all->fates[mid].run->row.id.bytes, id.bytes, sizeof id.bytes);

        if (order == 0)
            return &all->fates[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static void
fate_read(fleet_fate *fate, const mem_run *run)
{
    mem_node        *first = stet__mem_tree_first(&run->journal);
    const mem_facts *f = first != NULL ? MEM_OF(mem_facts, node, first) : NULL;
    stet_bytes       in = f != NULL ? (stet_bytes){ f->data, f->len } : (stet_bytes){ NULL, 0 };
    stet__fact       started;

    fate->run = run;
    fate->key = run->row.key != NULL ? run->row.key[1] - '0' : -1;
    if (stet__fact_decode(&started, &in) != STET_OK || started.kind != STET__FACT_STARTED ||
        !fleet_order_parse(&fate->order, started.value)) {
        fate->is_chance = true; /* damaged */
        return;
    }
    fate->parent = stet__fact_id(started.run);
    fate->is_called = started.completion != 0;
    if (!run->row.is_terminal || fate->is_new) {
        fate->is_stoppable = started.deadline_ms != 0 || started.schedule.data != NULL;
        fate_read_inbox(fate, run);
    }
    fate->has_idem = started.idempotency_key.data != NULL;
}

/* Chance spreads: to who waits for it, to what it called, to the keys it works on. */
static bool
fate_spread(fleet_fates *all, fate_walk *walk)
{
    bool     has_changed = false;
    unsigned keys = walk->keys;

    for (size_t i = 0; i < all->n; i++) {
        fleet_fate *fate = &all->fates[i], *parent = fate_find(all, fate->parent);
        unsigned    reach = 0, flags;
        bool        was_chance = fate->is_chance;

        if (fate->run->row.is_terminal && !fate->is_new)
            continue;
        flags = fate_program(walk, &fate->order, fate->key, &reach);
        if (fate->is_called && parent != NULL && (parent->is_stoppable || parent->is_rewound))
            fate->is_stoppable = true;
        if (fate->is_new && (fate->has_idem || parent == NULL || parent->is_chance))
            fate->is_chance = true;
        if (fate->is_stoppable || (flags & (FATE_CHANCE | FATE_SETTLES)) != 0)
            fate->is_chance = true;
        if (fate->is_chance)
            walk->keys |= reach;
        if (fate->key >= 0 && !fate->order.is_shared && (walk->keys & 1u << fate->key) != 0)
            fate->is_chance = true;
        if (fate->is_chance && fate->is_called && parent != NULL && !parent->is_chance)
            parent->is_chance = has_changed = true;
        has_changed = has_changed || fate->is_chance != was_chance;
    }
    return has_changed || keys != walk->keys;
}

void
fleet_fates_make(fleet_fates *all, const stet__memory_db *image, const stet__memory_db *db,
                 size_t ops_max, unsigned keys)
{
    fate_walk walk = { .ops_max = ops_max, .keys = keys };
    size_t    n = 0;

    memset(all, 0, sizeof *all);
    for (mem_node *node = stet__mem_tree_first(&db->runs); node != NULL;
         node = stet__mem_tree_next(node))
        n++;
    if ((all->fates = calloc(n + 1, sizeof *all->fates)) == NULL)
        abort();
    for (mem_node *node = stet__mem_tree_first(&db->runs); node != NULL;
         node = stet__mem_tree_next(node)) {
        const mem_run *now = MEM_OF(mem_run, by_id, node);
        mem_run        probe = { .row = { .id = now->row.id } };
        mem_node      *before = stet__mem_tree_find(&image->runs, &probe.by_id);
        fleet_fate    *fate = &all->fates[all->n++];

        /* What it was when the recovery began; a run that had ended is bound by its record. */
        fate->is_new = before == NULL;
        fate->now = now;
        fate_read(fate, before != NULL ? MEM_OF(mem_run, by_id, before) : now);
    }
    while (fate_spread(all, &walk))
        continue;
    all->keys = walk.keys;
}

void
fleet_fates_free(fleet_fates *all)
{
    free(all->fates);
    memset(all, 0, sizeof *all);
}

/* A run that is new has another ID in every recovery; its name is who asked for it, for what. */
uint64_t
fleet_fate_lineage(fleet_fates *all, const fleet_fate *fate)
{
    const fleet_fate *parent = fate->is_new ? fate_find(all, fate->parent) : NULL;

    if (parent == NULL)
        return stet__hash64(fate->run->row.id.bytes, sizeof fate->run->row.id.bytes, 1);
    return stet__hash64(&fate->order.seed, sizeof fate->order.seed,
                        fleet_fate_lineage(all, parent));
}
