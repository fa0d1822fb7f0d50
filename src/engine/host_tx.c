/* Transactional steps: the record of a step is committed with the SQL of its body, on a connection of the store that
 * the committer does not use.
 *
 * Everything the run did before is durable, and nothing else of it is on its way, so the record is the next
 * revision. If the claim is lost meanwhile the store refuses it, and the SQL with it. If the outcome is not known the
 * run is given back by its row, which comes behind the transaction, and whoever executes it next reads what was
 * recorded.
 */
#include "engine/host.h"

int64_t
stet__host_tx_limit(stet_ctx *c)
{
    const stet_engine *e = host_claim(c)->engine;

    return e->store->ops->tx_begin != NULL ? e->config.lease_ms / 3 : 0;
}

int
stet__host_tx_begin(stet_ctx *c, stet_attempt *a, int64_t limit_ms)
{
    stet_store *store = host_claim(c)->engine->store;

    return store->ops->tx_begin(store, limit_ms, &a->tx);
}

void
stet__host_tx_rollback(stet_ctx *c, stet_attempt *a)
{
    stet_store *store = host_claim(c)->engine->store;

    store->ops->tx_rollback(store, a->tx);
    a->tx = NULL;
}

/* The unit was answered, or nobody knows. */
static int
host_tx_done(stet__claim *claim, stet__work *w, const stet_outcome *outcome)
{
    stet_engine *e = claim->engine;

    claim->open = NULL;
    atomic_fetch_add(&claim->submitted, 1);
    stet__lock(e->p, &e->lock);
    (void)stet__host_unit_done(e, w, outcome);
    if (outcome->result == STET_OK && w->timer_ms != STET_NEVER)
        stet__keeper_timer(e, w->timer_ms);
    if (outcome->result == STET_OK && w->sched_ms != STET_NEVER)
        stet__keeper_sched(e, w->sched_ms);
    stet__unlock(e->p, &e->lock);
    stet__work_free(w);
    return outcome->result == STET_OK ? STET_OK : STET_SUSPENDED;
}

int
stet__host_tx_record(stet_ctx *c, stet_attempt *a, stet__fact *fact)
{
    stet__claim *claim = host_claim(c);
    stet_store  *store = claim->engine->store;
    stet_outcome outcome = { .next_due_ms = STET_NEVER };
    int          err;

    if ((err = stet__host_mark(c)) != STET_OK || (err = stet__host_append(c, fact, NULL)) != STET_OK) {
        stet__host_tx_rollback(c, a);
        if (claim->open != NULL)
            stet__host_rollback(c, claim->open);
        return err;
    }
    stet__work_seal(claim->open);
    err = store->ops->tx_commit(store, a->tx, &claim->open->unit, &outcome);
    a->tx = NULL;
    if (err == STET_EUNCERTAIN || err == STET_EPOISONED)
        outcome.result = err;
    else if (err != STET_OK) {
        stet__host_rollback(c, claim->open);
        return err;
    }
    return host_tx_done(claim, claim->open, &outcome);
}
