/* News: entries of the inbox are taken into a run's picture in the order they came, each once. A run that was
 * resumed by its timer takes the firing into its journal instead. What stops a run also stops the runs it called.
 */
#include <stdio.h>
#include <string.h>

#include "engine/host.h"

/* The first unit of a run that was resumed by its timer: take the run and the timer. Its handler may have been paused
 * since; the run is taken all the same, or what follows would be recorded for a run that is nobody's. */
static bool
host_open_resumed(stet__claim *claim)
{
    stet_engine  *e = claim->engine;
    stet__work   *w = stet__work_new(e, stet__host_unit_done, claim);
    stet_cond    *cond;
    stet_op      *op;
    stet_claimer *own; /* the work's own one may be filled anew before it is committed */

    if (w == NULL)
        return false;
    claim->open = w;
    w->run = claim->run;
    w->first = claim->ctx->run.journal + 1;
    w->is_resume = true;
    (void)stet__work_claims(w, claim->session);
    if ((own = stet__arena_get(&w->arena, sizeof *own)) == NULL)
        return false;
    *own = w->claimer;
    own->handlers = (const char *const *)&claim->handler->name;
    own->n_handlers = 1;
    if (STET__MUTANT(hold_split))
        *own = w->claimer;
    if ((cond = stet__work_cond(w, STET_COND_PARKED, claim->run)) == NULL)
        return false;
    cond->session = claim->session;
    cond->epoch = claim->epoch - 1;
    cond->number = claim->ctx->run.taken;
    if ((op = stet__work_op(w, STET_OP_TIMER_DEL, claim->run)) == NULL)
        return false;
    op->fire_ms = claim->timer_ms;
    op->number = claim->timer_completion;
    if ((op = stet__work_op(w, STET_OP_RUN_WAKE, claim->run)) == NULL)
        return false;
    op->status = STET_STATUS_PENDING;
    op->claimer = own;
    return stet__work_op(w, STET_OP_FACTS, claim->run) != NULL;
}

typedef struct host_inbox {
    stet_ctx *c;
    uint64_t  last;
    size_t    rows;
    bool      is_rewritten; /* what the handler has seen of its journal is not what is in there now */
} host_inbox;

static int
host_on_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    host_inbox *in = arg;
    stet__fact  fact;
    int         err;

    (void)count;
    if ((err = stet__fact_decode(&fact, &facts)) != STET_OK)
        return err == STET_END ? stet__fail(STET_ECORRUPT, "inbox entry %llu is empty", (unsigned long long)first) : err;
    in->is_rewritten = in->is_rewritten || stet__fact_is_rewrite(fact.kind);
    fact.revision = in->c->run.journal + 1;
    if ((err = stet__run_apply_inbox(&in->c->run, &fact)) != STET_OK ||
        (err = stet__journal_apply(&in->c->journal, &fact)) != STET_OK)
        return err;
    in->last = first;
    in->rows++;
    return STET_OK;
}

/* Operations that stop a run this one called: it is of no use any more. */
static int
host_stop_child(stet_ctx *c, stet_id child, const char *why)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet_run_row row;
    stet__fact   extra;

    /* One that waits (in a lane, for its time, for a worker) needs no execution to end. What stopped us is durable,
     * so that need not wait for our record of it. */
    if (stet__stop_unstarted(e, child, "caller", why))
        return STET_OK;
    return stet__stop_called(e, claim->open, child,
                             stet__load_row(e, child, &claim->open->arena, &row, &extra) == STET_OK ? &row : NULL, "caller", why)
               ? STET_OK
               : STET_ENOMEM;
}

/* What was taken in may mean the end of runs that were called: of all this one waits for, when it has to end itself,
 * or of those that a rewind forgot. */
static int
host_stop_children(stet_ctx *c, bool has_to_end)
{
    char why[96];
    int  err = STET_OK;

    if (STET__MUTANT(rewind_children))
        c->journal.orphans = NULL;
    if (c->journal.orphans == NULL && !has_to_end)
        return STET_OK;
    (void)snprintf(why, sizeof why, "its caller was %s: ", has_to_end ? "stopped" : "rewound");
    stet__id_text(why + strlen(why), STET__ID_RUN, host_claim(c)->run);
    for (; err == STET_OK && c->journal.orphans != NULL; c->journal.orphans = c->journal.orphans->spared)
        err = host_stop_child(c, c->journal.orphans->run, why);
    for (const stet__cmd *cmd = has_to_end ? c->journal.waiting : NULL; err == STET_OK && cmd != NULL; cmd = cmd->next)
        if (cmd->kind == STET__FACT_CALL && !cmd->is_settled)
            err = host_stop_child(c, cmd->run, why);
    return err;
}

/* Entries may have been applied and cannot be recorded as taken, so our picture is not what is stored: what
 * was recorded before is kept, and the run is read anew by its next execution. */
static int
host_refresh_failed(stet_ctx *c, int err)
{
    host_claim(c)->is_refused = true;
    stet__host_commit(c);
    if (err == STET_ECORRUPT) {
        c->stuck_code = STET_ECORRUPT;
        c->stuck_text = stet__arena_str(&c->arena, stet_last_error());
    }
    (void)stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    return stet__ctx_latch(c, err);
}

/* Entries that were not taken yet. The one that woke the run may be at hand; if more has come since, it is
 * not missed, because suspending and ending are conditional on the inbox. */
static int
host_inbox_take(stet__claim *claim, host_inbox *in)
{
    stet_store *store = claim->engine->store;
    int         err;

    if (claim->news.data != NULL && claim->news_seq == in->last + 1)
        return host_on_inbox(in, claim->news_seq, 1, claim->news);
    do {
        in->rows = 0;
        if ((err = store->ops->inbox(store, claim->run, in->last + 1, 256, host_on_inbox, in)) != STET_OK)
            return err;
    } while (in->rows == 256);
    return STET_OK;
}

/* Its timer is taken by the unit that is begun here, instead of from the inbox. */
static int
host_resume(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet__fact   fired = { 0 };
    bool         ok;

    claim->must_resume = false;
    fired.kind = STET__FACT_TIMER;
    fired.completion = (int64_t)claim->timer_completion;
    ok = host_open_resumed(claim) && stet__host_append(c, &fired, NULL) == STET_OK &&
         stet__journal_apply(&c->journal, &fired) == STET_OK;
    if (ok)
        return STET_OK;
    stet__lock(e->p, &e->lock);
    stet__claim_drop(e, claim);
    stet__unlock(e->p, &e->lock);
    return stet__ctx_latch(c, STET_SUSPENDED);
}

int
stet__host_refresh(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    host_inbox   in = { c, c->run.taken, 0, false };
    bool         had_to_end = c->run.stop_code != 0 || c->run.is_failed, has_to_end;
    stet__cmd   *spared = c->journal.spared, *orphans = c->journal.orphans;
    uint32_t     attempt;
    stet__fact   taken = { 0 };
    int          err;

    if (claim->must_resume)
        return host_resume(c);
    if (claim->returned != NULL) {
        stet__host_rollback(c, claim->returned);
        claim->returned = NULL;
    }
    atomic_store(&c->has_news, false);
    attempt = stet__run_attempt(&c->run);
    if ((err = host_inbox_take(claim, &in)) != STET_OK)
        goto failed;
    if (in.last == c->run.taken)
        return STET_OK;
    taken.kind = STET__FACT_TAKEN;
    taken.number = (int64_t)in.last;
    if ((err = stet__host_mark(c)) != STET_OK)
        goto failed;
    err = stet__host_append(c, &taken, NULL);
    if (err == STET_OK)
        err = stet__host_spare(c);
    if (err == STET_OK && stet__run_attempt(&c->run) != attempt && !STET__MUTANT(rewind_unlisted) &&
        !stet__project_row(claim->open, &c->run, STET_RUN_ATTEMPT, STET_NEVER))
        err = stet__fail(STET_ENOMEM, "out of memory for a unit"); /* a rewind lets it count anew */
    has_to_end = !had_to_end && (c->run.stop_code != 0 || c->run.is_failed) && !STET__MUTANT(children_go_on);
    if (err == STET_OK && (err = host_stop_children(c, has_to_end)) != STET_OK)
        (void)stet__fail(err, "out of memory for a unit");
    if (err != STET_OK) {
        stet__host_rollback(c, claim->open);
        goto failed;
    }
    c->is_rewritten = c->is_rewritten || (c->is_loaded && in.is_rewritten && !STET__MUTANT(rewritten_recorded));
    /* Whatever it does next would rest on what is not so any more, or is not wanted. */
    if (c->is_loaded && (in.is_rewritten || c->run.is_failed || (c->run.is_paused && c->is_inside)))
        return stet__ctx_latch(c, STET_SUSPENDED);
    return STET_OK;

failed:
    /* What was not taken in removes nothing: no unit of this execution may take along the timers and marks it settled. */
    c->journal.spared = spared;
    c->journal.orphans = orphans;
    return host_refresh_failed(c, err);
}
