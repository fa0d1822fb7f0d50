/* State of objects, as a run reads it: its own writes are in its context, the rest is read here, from the store or
 * from what units on their way are about to write (ahead.c).
 */
#include "engine/host.h"

/* The unit is applied only if what was seen is what is there then. */
static bool
host_rely_on(stet__claim *claim, stet_bytes key, const stet__seen *seen)
{
    stet__work *w = stet__host_open(claim);
    bool        is_absent = stet__id_is_zero(seen->run);
    stet_cond  *cond = w != NULL ? stet__work_cond(w, is_absent ? STET_COND_VALUE : STET_COND_WRITER, seen->run) : NULL;

    if (cond == NULL)
        return false;
    if (STET__MUTANT(ahead_unchecked)) {
        w->unit.n_conds--;
        return true;
    }
    w->has_read = true;
    cond->space = STET__SPACE_STATE;
    cond->number = seen->revision;
    if (!stet__work_bytes(w, &cond->key, key)) {
        w->unit.n_conds--;
        return false;
    }
    if (seen->seq == 0)
        return true;
    if ((cond = stet__work_cond(w, STET_COND_UNIT, claim->run)) == NULL)
        return false;
    cond->number = seen->seq;
    w->is_relying = true;
    return true;
}

/* A run that works ahead may see what is not durable yet, or not true any more. */
static int
host_state_read_ahead(stet_ctx *c, stet_bytes key, stet_bytes *value, int64_t *writer)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet__seen   seen = { 0 };
    stet_value   v = { 0 };
    bool         is_known;
    int          err;

    stet__lock(e->p, &e->lock);
    is_known = stet__ahead_read(e, &c->arena, key, &seen, value);
    if (is_known && seen.seq != 0) {
        if (claim->n_relied == STET__RELIED_MAX)
            is_known = false;
        else
            claim->relied[claim->n_relied++] = seen.seq;
    }
    stet__unlock(e->p, &e->lock);
    if (!is_known) {
        seen = (stet__seen){ .seq = 0 };
        if ((err = e->store->ops->value(e->store, STET__SPACE_STATE, key, &v)) != STET_OK && err != STET_ENOTFOUND)
            return err;
        if (err == STET_OK) {
            seen.run = v.run;
            seen.revision = v.revision;
            value->data = stet__arena_copy(&c->arena, v.data.data, v.data.len);
            value->len = v.data.len;
        }
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        if (err == STET_OK && value->data == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        stet__lock(e->p, &e->lock);
        stet__ahead_has_read(e, key, &seen, *value);
        stet__unlock(e->p, &e->lock);
    }
    *writer = stet__fact_writer(seen.run, seen.revision);
    if (STET__MUTANT(shared_ahead) && c->is_shared)
        return STET_OK;
    return host_rely_on(claim, key, &seen) ? STET_OK : stet__fail(STET_ENOMEM, "out of memory for a unit");
}

int
stet__host_state_read(stet_ctx *c, const char *name, stet_bytes *value, int64_t *writer)
{
    stet__claim      *claim = host_claim(c);
    stet_engine      *e = claim->engine;
    const stet_entry *initial = stet__initial_find(e, c->service, name);
    stet_value        v = { 0 };
    stet_bytes        key;
    int               err;

    *value = (stet_bytes){ NULL, 0 };
    if (!stet__value_key_state(&c->arena, &key, c->run.handler, c->run.key, name))
        return stet__fail(STET_ENOMEM, "out of memory");
    if ((claim->is_guess || (c->is_shared && STET__MUTANT(shared_ahead))) && initial == NULL)
        return host_state_read_ahead(c, key, value, writer);
    if (claim->is_guess && (err = stet__ctx_barrier(c)) != STET_OK)
        return err;
    err = e->store->ops->value(e->store, STET__SPACE_STATE, key, &v);
    *writer = stet__fact_writer(v.run, v.revision);
    if (err == STET_OK) {
        value->data = stet__arena_copy(&c->arena, v.data.data, v.data.len);
        value->len = v.data.len;
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        return value->data != NULL ? STET_OK : stet__fail(STET_ENOMEM, "out of memory");
    }
    if (err != STET_ENOTFOUND || initial == NULL)
        return err == STET_ENOTFOUND ? STET_OK : err;
    if ((err = e->store->ops->value(e->store, STET__SPACE_CLEARED, key, &v)) == STET_OK)
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    else if (err == STET_ENOTFOUND) {
        *value = initial->value;
        err = STET_OK;
    }
    return err;
}
