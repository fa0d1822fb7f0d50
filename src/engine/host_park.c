/* Suspending: a run that waits gives its claim back and stays here, parked, as long as there is room.
 *
 * The unit that suspends is conditional on the inbox: what arrived is not slept over. From the wish to suspend
 * until the run is ours again its crumb and its place in the list are the committer's. Locks: engine->lock for the
 * list of parked claims.
 */
#include "engine/host.h"

static void
host_park(stet_engine *e, stet__claim *claim)
{
    stet__disown(claim);
    stet__crumb_put(claim, claim->crumb);
    claim->crumb = -1;
    stet__host_crumbs_release(claim, &claim->spent); /* their records were in this unit */
    if (e->has_backlog) { /* there is room again */
        e->wants_claim = true;
        stet__keeper_poke(e);
    }
    claim->parked_us = stet__mono_us(e->p);
    claim->parked_row = 1;
    claim->newer = NULL;
    claim->older = e->parked_newest;
    if (e->parked_newest != NULL)
        e->parked_newest->newer = claim;
    else
        e->parked_oldest = claim;
    e->parked_newest = claim;
    e->n_parked++;
    atomic_store(&claim->ctx->park, STET__PARK_PARKED);
    stet__parked_trim(e, claim->parked_us);
}

void
stet__unpark(stet_engine *e, stet__claim *claim)
{
    if (claim->parked_row == 0)
        return;
    claim->parked_row = 0;
    if (claim->newer != NULL)
        claim->newer->older = claim->older;
    else
        e->parked_newest = claim->older;
    if (claim->older != NULL)
        claim->older->newer = claim->newer;
    else
        e->parked_oldest = claim->newer;
    e->n_parked--;
}

void
stet__parked_trim(stet_engine *e, int64_t now_us)
{
    while (e->parked_oldest != NULL &&
           (e->n_parked > (size_t)e->config.parked_max || e->life != STET__LIFE_STARTED ||
            now_us - e->parked_oldest->parked_us > e->config.parked_ms * 1000)) {
        stet__claim *claim = e->parked_oldest;

        stet__unpark(e, claim);
        (void)stet__map_remove(&e->claims, claim->run.bytes, sizeof claim->run.bytes);
        claim->is_detached = true;
        stet__exec_let_go(&e->exec, claim->ctx, STET_SUSPENDED);
    }
}

/* Was the unit refused because something arrived in the inbox? Any other refusal (an awakeable somebody else
 * settled, state that changed under a guess) would come again: the execution is thrown away. */
bool
stet__host_is_news(const stet__work *w, const stet_outcome *o)
{
    return o->result == STET_ECONFLICT && o->cond < w->unit.n_conds && w->conds[o->cond].kind == STET_COND_INBOX;
}

static bool
host_suspend_done(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    stet__claim *claim = w->arg;

    if (stet__host_is_dropped(e, claim, o))
        return false;
    if (STET__MUTANT(timer_after) && o->result == STET_OK)
        for (const stet__cmd *cmd = claim->ctx->journal.waiting; cmd != NULL; cmd = cmd->next) {
            stet__work *late = cmd->has_timer ? stet__work_new(e, NULL, NULL) : NULL;

            if (late != NULL && stet__work_timer(late, claim->run, cmd->until_ms, cmd->completion))
                stet__submit(e, late);
        }
    if (o->result == STET_OK) {
        stet__host_stored(claim, w);
        atomic_fetch_add(&claim->answered, 1);
        host_park(e, claim);
        /* Told while the answer was on its way: had it been in the inbox, it would not be suspended. */
        if (atomic_load(&claim->ctx->has_news))
            stet__hint_parked(e, &claim->run);
        return false;
    }
    if (stet__host_is_news(w, o)) {
        claim->returned = w;
        atomic_store(&claim->ctx->has_news, true);
        atomic_store(&claim->ctx->park, STET__PARK_AGAIN);
        atomic_fetch_add(&claim->answered, 1);
        stet__exec_wake(&e->exec, claim->ctx);
        return true;
    }
    return stet__host_unit_done(e, w, o);
}

static int64_t
host_next_timer(const stet_ctx *c)
{
    int64_t next_ms = 0;

    for (const stet__cmd *cmd = c->journal.waiting; cmd != NULL; cmd = cmd->next)
        if (cmd->has_timer && (next_ms == 0 || cmd->until_ms < next_ms))
            next_ms = cmd->until_ms;
    return next_ms;
}

static int
host_suspend_unit(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet__fact   fact = { 0 };
    int          err;

    if ((err = stet__host_spare(c)) != STET_OK || (err = stet__host_mark(c)) != STET_OK)
        return err;
    fact.kind = STET__FACT_SUSPENDED;
    fact.text = stet_text(c->waits_for);
    fact.until_ms = host_next_timer(c);
    if ((err = stet__host_append(c, &fact, NULL)) != STET_OK ||
        (!STET__MUTANT(suspend_blind) && (err = stet__host_inbox_cond(c)) != STET_OK))
        return err;
    if (!stet__project_row(claim->open, &c->run, STET_RUN_STATUS | STET_RUN_OWNER | STET_RUN_ATTEMPT | STET_RUN_REASON,
                           STET_NEVER))
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    claim->open->done = host_suspend_done;
    return STET_OK;
}

/* Runs on: the slot, after the coroutine asked to be suspended. */
void
stet__host_suspend(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;

    if (host_suspend_unit(c) != STET_OK) {
        if (claim->open != NULL)
            stet__host_rollback(c, claim->open);
        (void)stet__ctx_fail(c, STET_ENOMEM, 0, stet_last_error(), NULL, 0);
        (void)stet__ctx_latch(c, STET_ENOMEM);
        stet__lock(e->p, &e->lock);
        stet__exec_wake(&e->exec, c);
        stet__unlock(e->p, &e->lock);
        return;
    }
    atomic_store(&c->park, STET__PARK_ASKED);
    stet__host_submit(claim);
}
