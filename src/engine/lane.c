/* Working ahead on one key.
 *
 * Runs of one key execute one after the other, and each would cost a flush: the next may begin only when
 * the end of the previous is durable. But only effects have to wait. When a run's last unit is on its way
 * and the next run of that key is known here, it is executed at once, on the state the first one wrote,
 * in the belief that the unit will be applied and will grant it to us. Its own unit goes into the same or
 * the next batch, behind the other, and is conditional on the claim the first unit makes: if that one is
 * refused, this one is refused with it, and the execution is thrown away. No body begins and nobody is
 * answered before the belief has been confirmed, because the claim itself counts as not yet durable.
 *
 * The same is done for a start, without a key, whose handler is known to end without waiting for the store: it
 * is begun while its start is on its way, and both become durable with one flush.
 *
 * Guarded by engine->lock.
 */
#include <string.h>

#include "engine/engine.h"

#define LANE_ENTRIES_MAX 4096u
#define LANE_FACTS_MAX 4096u

/* ---- who waits for a key ------------------------------------------------------------------------------ */

void
stet__lane_remember(stet_engine *e, const char *lane, stet_id run, stet_bytes facts)
{
    stet__lane_entry *entry, *at;

    if (!e->config.work_ahead || e->n_lane_entries >= LANE_ENTRIES_MAX || facts.len > LANE_FACTS_MAX || e->life != STET__LIFE_STARTED)
        return;
    if ((entry = stet__get0(&e->p->alloc, sizeof *entry + facts.len)) == NULL)
        return;
    entry->run = run;
    entry->facts.len = facts.len;
    entry->facts.data = memcpy(entry + 1, facts.data, facts.len);
    at = stet__map_find(&e->lanes, lane, strlen(lane));
    if (at == NULL && stet__map_put(&e->lanes, lane, strlen(lane), entry) != STET_OK) {
        stet__free(&e->p->alloc, entry);
        return;
    }
    for (; at != NULL && at->next != NULL; at = at->next)
        ;
    if (at != NULL)
        at->next = entry;
    e->n_lane_entries++;
}

/* The first of a lane, out of the list. */
static stet__lane_entry *
lane_pop(stet_engine *e, const char *lane)
{
    stet__lane_entry *entry = stet__map_remove(&e->lanes, lane, strlen(lane));

    if (entry == NULL)
        return NULL;
    if (entry->next != NULL)
        (void)stet__map_put(&e->lanes, lane, strlen(lane), entry->next);
    e->n_lane_entries--;
    return entry;
}

static stet_bytes
lane_copy(stet_engine *e, const stet__lane_entry *entry)
{
    stet_bytes copy = { NULL, 0 };
    void      *p = stet__get(&e->p->alloc, entry->facts.len);

    if (p != NULL) {
        copy.data = memcpy(p, entry->facts.data, entry->facts.len);
        copy.len = entry->facts.len;
    }
    return copy;
}

stet_bytes
stet__lane_take(stet_engine *e, stet_id run)
{
    stet_bytes  copy = { NULL, 0 };
    size_t      at = 0, len;
    const void *key;
    void       *value;

    /* Grants of keys come in the order of their lists, so only the heads need a look. */
    while (e->n_lane_entries > 0 && stet__map_next(&e->lanes, &at, &key, &len, &value)) {
        stet__lane_entry *entry = value, *popped;
        char              lane[1024];

        if (!stet__id_equal(entry->run, run) || len >= sizeof lane)
            continue;
        memcpy(lane, key, len);
        lane[len] = '\0';
        if ((popped = lane_pop(e, lane)) != NULL) {
            copy = lane_copy(e, popped);
            stet__free(&e->p->alloc, popped);
        }
        break;
    }
    return copy;
}

/* ---- what is written and not yet durable --------------------------------------------------------------- */

/* False: not all could be, so nobody may work ahead on it. */
static bool
lane_publish(stet_engine *e, stet__work *w)
{
    bool ok = true;

    for (size_t i = 0; i < w->unit.n_ops; i++) {
        stet_op *op = &w->ops[i];

        if ((op->kind == STET_OP_VALUE_PUT || op->kind == STET_OP_VALUE_DEL) && strcmp(op->space, STET__SPACE_STATE) == 0) {
            w->has_state = true;
            ok = ok && stet__map_put(&e->written, op->key.data, op->key.len, w) == STET_OK;
        }
    }
    return ok;
}

bool
stet__lane_written(stet_engine *e, stet__arena *arena, stet_id base, stet_bytes key, stet_bytes *value, bool *is_known,
                   bool *is_unclear)
{
    stet__work *w;
    bool        ok = true;

    *is_known = false;
    *value = (stet_bytes){ NULL, 0 };
    stet__lock(e->p, &e->lock);
    w = stet__map_find(&e->written, key.data, key.len);
    /* Written by another than the one we follow: an earlier one of our chain, or one that never counts. */
    *is_unclear = w != NULL && !stet__id_equal(w->run, base);
    if (w != NULL && !*is_unclear)
        for (size_t i = w->unit.n_ops; i > 0 && !*is_known; i--) { /* the last write counts */
            const stet_op *op = &w->ops[i - 1];

            if ((op->kind != STET_OP_VALUE_PUT && op->kind != STET_OP_VALUE_DEL) || op->key.len != key.len ||
                memcmp(op->key.data, key.data, key.len) != 0 || strcmp(op->space, STET__SPACE_STATE) != 0)
                continue;
            *is_known = true;
            if (op->kind == STET_OP_VALUE_PUT) {
                value->data = stet__arena_copy(arena, op->data.data, op->data.len);
                value->len = op->data.len;
                ok = value->data != NULL;
            }
        }
    stet__unlock(e->p, &e->lock);
    return ok;
}

/* ---- guessing ------------------------------------------------------------------------------------------- */

void
stet__lane_guess(stet_engine *e, stet__claim *claim)
{
    stet__work       *w = claim->open;
    stet__lane_entry *entry;
    stet_bytes        preload;
    const char       *lane = stet__lane_name(&w->arena, claim->ctx->run.handler, claim->ctx->run.key);

    if (lane == NULL)
        return;
    /* What an earlier unit of it wrote and is still on its way would be read from the store, too early. */
    if (atomic_load(&claim->submitted) != atomic_load(&claim->answered))
        return;
    /* Not on a guess: the next one would be conditional on our base having ended at a revision, and a base that
     * another worker executed long ago (our list of the lane may be old) ended at the same one. */
    if (claim->is_guess)
        return;
    entry = e->life == STET__LIFE_STARTED && !e->is_poisoned && e->session == claim->session && !e->is_polled &&
                    atomic_load(&e->in_flight) < (size_t)e->config.in_flight_max
                ? lane_pop(e, lane)
                : NULL;
    if (entry != NULL) {
        preload = lane_copy(e, entry);
        if (preload.data != NULL && lane_publish(e, w) && stet__claim_guess(e, entry->run, preload, claim)) {
            w->guess = entry->run;
            w->has_guess = true;
        } else
            stet__free(&e->p->alloc, (void *)(uintptr_t)preload.data);
        stet__free(&e->p->alloc, entry);
    }
}

/* May this start be begun before it is durable? Not a run with a key: whether the key is free, and what its
 * state is, is not known before. Not one that may well be refused (an idempotency key, an ID or child key used
 * before): the handler of a run that never was would have been entered. Lock held. */
static bool
lane_may_begin(stet_engine *e, const stet__work *w)
{
    const stet_op *put = NULL;
    stet__handler *h;

    for (size_t i = 0; i < w->unit.n_ops && put == NULL; i++)
        if (w->ops[i].kind == STET_OP_RUN_PUT)
            put = &w->ops[i];
    if (!e->config.work_ahead || put == NULL || put->claimer == NULL || w->started->next != NULL || w->unit.n_conds != 1 || w->must_wait ||
        w->started->facts.len > LANE_FACTS_MAX)
        return false;
    h = stet__handler_find(e, put->row->handler);
    return h != NULL && atomic_load(&h->is_quick);
}

void
stet__submit_start(stet_engine *e, stet__work *w)
{
    void *copy;

    stet__lock(e->p, &e->lock);
    if (lane_may_begin(e, w) && (copy = stet__get(&e->p->alloc, w->started->facts.len)) != NULL) {
        stet_bytes preload = { copy, w->started->facts.len };

        memcpy(copy, w->started->facts.data, w->started->facts.len);
        if (stet__claim_guess(e, w->started->run, preload, NULL)) {
            w->guess = w->started->run;
            w->has_guess = true;
        } else
            stet__free(&e->p->alloc, copy);
    }
    stet__submit(e, w); /* under the lock: the run's own units must come behind it */
    stet__unlock(e->p, &e->lock);
}

void
stet__lane_settled(stet_engine *e, stet__work *w)
{
    for (size_t i = 0; w->has_state && i < w->unit.n_ops; i++)
        if ((w->ops[i].kind == STET_OP_VALUE_PUT || w->ops[i].kind == STET_OP_VALUE_DEL) &&
            stet__map_find(&e->written, w->ops[i].key.data, w->ops[i].key.len) == w)
            (void)stet__map_remove(&e->written, w->ops[i].key.data, w->ops[i].key.len);
    if (w->has_guess)
        stet__claim_guess_failed(e, w->guess); /* nothing if it was confirmed */
    w->has_state = w->has_guess = false;
}

void
stet__lane_free(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&e->lanes, &at, &key, &len, &value))
        while (value != NULL) {
            stet__lane_entry *entry = value;

            value = entry->next;
            stet__free(&e->p->alloc, entry);
        }
    stet__map_free(&e->lanes);
    stet__map_free(&e->written);
}
