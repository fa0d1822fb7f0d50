/* The host: what a context needs from the engine (see exec/context.h), and what happens to claims.
 *
 * A claim records through one open unit at a time. Every unit of a claim is conditional on the claim
 * itself; suspending and ending are also conditional on the inbox, so nothing that arrived is slept
 * over or ended over. If such a unit is refused, its conditional tail is cut off, the rest stays open,
 * the news is taken in, and the decision is made again.
 *
 * Threads: a claim's open unit, mark and run belong to its context's slot; `returned`, `end`,
 * `is_owned` and the context's park state are set with engine->lock held by the committer.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

static void host_crumbs_release(stet__claim *claim, stet_attempt **spent);

static stet__claim *
host_claim(stet_ctx *c)
{
    return c->host;
}

/* ---- recording ----------------------------------------------------------------------------------- */

/* The answer to a unit of a run that was executed ahead of its claim. True: refused, and dropped with all that comes
 * after. */
bool
stet__host_is_dropped(stet_engine *e, stet__claim *claim, const stet_outcome *o)
{
    if (!claim->is_resumed && !claim->is_guess)
        return false;
    if (o->result == STET_OK) {
        claim->is_resumed = claim->is_guess = false; /* from now on it is a claim like any other */
        return false;
    }
    atomic_fetch_add(&claim->answered, 1);
    stet__claim_drop(e, claim);
    return true;
}

/* A state entry it read while it was executed ahead was another one by then: it is executed again, that is all. */
static bool
host_is_outdated(const stet__work *w, const stet_outcome *o)
{
    const stet_cond *cond = o->result == STET_ECONFLICT && o->cond < w->unit.n_conds ? &w->conds[o->cond] : NULL;

    return cond != NULL && (cond->kind == STET_COND_UNIT || cond->kind == STET_COND_WRITER ||
                            (cond->kind == STET_COND_VALUE && strcmp(cond->space, STET__SPACE_STATE) == 0));
}

bool
stet__host_unit_done(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    stet__claim *claim = w->arg;
    stet_ctx    *c = claim->ctx;

    if (stet__host_is_dropped(e, claim, o))
        return false;
    if (o->result == STET_OK || (STET__MUTANT(refused_durable) && o->result == STET_ECONFLICT)) {
        if (o->inbox > atomic_load(&c->inbox_known))
            atomic_store(&c->inbox_known, o->inbox);
        /* What ran before this record is durable now: not at risk any more. */
        if (claim->crumb >= 0 && c->state == STET__CTX_WAITING && claim->crumbs[claim->crumb].is_busy == 2 &&
            !claim->is_refused && atomic_load(&claim->submitted) == atomic_load(&claim->answered) + 1 && claim->open == NULL) {
            claim->crumbs[claim->crumb].is_busy = 0;
            claim->crumbs[claim->crumb].is_body = 0;
        }
    } else {
        if (o->result == STET_EFENCED)
            stet__disown(claim);
        claim->is_refused = true;
        claim->is_too_big = claim->is_too_big || o->result == STET_ETOOBIG;
        if (!host_is_outdated(w, o))
            stet__log(e, STET_LOG_WARN, &claim->run, NULL, NULL, o->result,
                  o->result == STET_EFENCED ? "fenced: another worker owns this run now; nothing was written"
                                            : "a unit was refused; the run is let go and goes on from its record");
        c->is_let_go = true;
        c->let_go_code = o->result;
    }
    atomic_fetch_add(&claim->answered, 1);
    stet__exec_wake(&e->exec, c);
    return false;
}

/* The first unit of a run that was resumed by its timer: take the run and the timer. */
static bool
host_open_resumed(stet__claim *claim)
{
    stet_engine *e = claim->engine;
    stet__work  *w = stet__work_new(e, stet__host_unit_done, claim);
    stet_cond   *cond;
    stet_op     *op;

    if (w == NULL)
        return false;
    claim->open = w;
    w->run = claim->run;
    w->first = claim->ctx->run.journal + 1;
    w->is_resume = true;
    w->claimer = (stet_claimer){ claim->session, STET_STATUS_RUNNING, e->handler_names, e->n_handlers };
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
    op->claimer = &w->claimer;
    return stet__work_op(w, STET_OP_FACTS, claim->run) != NULL;
}

stet__work *
stet__host_open(stet__claim *claim)
{
    stet__work *w;
    stet_cond  *cond;
    stet_op    *op;

    if (claim->open != NULL)
        return claim->open;
    if ((w = stet__work_new(claim->engine, stet__host_unit_done, claim)) == NULL)
        return NULL;
    if ((cond = stet__work_cond(w, STET_COND_CLAIM, claim->run)) == NULL ||
        (op = stet__work_op(w, STET_OP_FACTS, claim->run)) == NULL) {
        stet__work_free(w);
        (void)stet__fail(STET_ENOMEM, "out of memory for a unit");
        return NULL;
    }
    cond->session = claim->session;
    cond->epoch = claim->epoch;
    w->run = claim->run;
    w->first = claim->ctx->run.journal + 1;
    return claim->open = w;
}

/* Which write of an entry is the last must be seen from the facts alone, also within one millisecond. */
static void
host_date_write(stet_ctx *c, stet__fact *fact)
{
    stet_engine *e = host_claim(c)->engine;
    char         name[STET__NAME_MAX + 1];

    fact->number = stet__mono_us(e->p);
    if (fact->kind != STET__FACT_STATE_CLEAR || fact->name.len >= sizeof name)
        return;
    memcpy(name, fact->name.data, fact->name.len);
    name[fact->name.len] = '\0';
    if (stet__initial_find(e, c->service, name) != NULL)
        fact->flags |= STET__FACT_INITIAL;
}

static int
host_append_one(stet_ctx *c, stet__work *w, stet__fact *fact, const stet__fact *child)
{
    stet_engine *e = host_claim(c)->engine;
    stet__work   before = *w;
    bool         ok;
    int          err;

    fact->revision = c->run.journal + 1;
    fact->time_ms = stet__store_now(e);
    if (fact->kind == STET__FACT_STATE_SET || fact->kind == STET__FACT_STATE_CLEAR)
        host_date_write(c, fact);
    stet__fact_encode(&w->facts, fact);
    if (w->facts.failed) {
        w->facts.failed = false;
        w->facts.len = before.facts.len;
        return stet__fail(STET_ENOMEM, "out of memory for a fact");
    }
    ok = true;
    if (fact->kind >= STET__FACT_STEP) {
        /* Only children read what the lock guards (capacity); everything else is our own. */
        if (child != NULL)
            stet__lock(e->p, &e->lock);
        ok = stet__project(e, w, &c->run, fact, child);
        if (child != NULL)
            stet__unlock(e->p, &e->lock);
    }
    if (!ok)
        err = stet__fail(STET_ENOMEM, "out of memory for a unit");
    else
        err = stet__run_apply(&c->run, fact);
    if (err != STET_OK) { /* nor may half of what follows from it stay */
        w->facts.len = before.facts.len;
        w->unit.n_ops = before.unit.n_ops;
        w->unit.n_conds = before.unit.n_conds;
        w->started = before.started;
        w->timer_ms = before.timer_ms;
        return err;
    }
    w->n_facts++;
    return STET_OK;
}

int
stet__host_append(stet_ctx *c, stet__fact *fact, const stet__fact *child)
{
    stet__claim *claim = host_claim(c);
    stet__work  *w = stet__host_open(claim);
    int          err;

    if (w == NULL)
        return STET_ENOMEM;
    if (claim->is_new) {
        stet__fact claimed = { 0 };

        claimed.kind = STET__FACT_CLAIMED;
        claimed.number = (int64_t)claim->epoch;
        claimed.who = stet_text(claim->engine->worker);
        claimed.attempt = stet__run_attempt(&c->run);
        if ((err = host_append_one(c, w, &claimed, NULL)) != STET_OK)
            return err;
        claim->is_new = false;
    }
    return host_append_one(c, w, fact, child);
}

/* What was executed ahead and given up submits nothing: the run may be granted to us with the same epoch before
 * the unit's turn comes, and then the unit would hold. */
void
stet__host_submit_locked(stet__claim *claim)
{
    stet__work *w = claim->open;
    bool        has_state;

    claim->open = NULL;
    if (claim->is_detached) {
        stet__work_free(w);
        return;
    }
    atomic_fetch_add(&claim->submitted, 1);
    has_state = w->has_state; /* then the lock is held; else the unit may be gone when it was submitted */
    stet__submit(claim->engine, w);
    if (has_state)
        stet__ahead_written(claim->engine, w);
    stet__claim_gathered(claim);
}

void
stet__host_submit(stet__claim *claim)
{
    stet_engine *e = claim->engine;

    if (!claim->is_guess && !claim->is_resumed && !claim->open->has_state) {
        stet__host_submit_locked(claim);
        return;
    }
    stet__lock(e->p, &e->lock);
    stet__host_submit_locked(claim);
    stet__unlock(e->p, &e->lock);
}

static void
host_commit(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);

    if (claim->is_guess)
        stet__ahead_in_vain(claim->handler);
    if (claim->open != NULL && claim->open->n_facts > 0)
        stet__host_submit(claim);
}

static void
host_commit_now(stet_ctx *c)
{
    host_commit(c);
    stet__committer_kick(host_claim(c)->engine);
}

static bool
host_is_durable(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);

    /* A claim we only believe in is not durable either. */
    return !claim->is_guess && !claim->is_resumed && (claim->open == NULL || claim->open->n_facts == 0) &&
           atomic_load(&claim->submitted) == atomic_load(&claim->answered);
}

static bool
host_is_ahead(stet_ctx *c)
{
    return host_claim(c)->is_guess || host_claim(c)->is_resumed;
}

/* ---- units that are conditional on the inbox ------------------------------------------------------ */

int
stet__host_mark(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet__work  *w = stet__host_open(claim);

    if (w == NULL)
        return STET_ENOMEM;
    claim->run_before = c->run;
    claim->mark_is_new = claim->is_new;
    claim->mark_facts = w->facts.len;
    claim->mark_n = w->n_facts;
    claim->mark_ops = w->unit.n_ops;
    claim->mark_conds = w->unit.n_conds;
    return STET_OK;
}

/* Cut the conditional tail off again. */
void
stet__host_rollback(stet_ctx *c, stet__work *w)
{
    stet__claim *claim = host_claim(c);

    w->facts.len = claim->mark_facts;
    w->n_facts = claim->mark_n;
    w->unit.n_ops = claim->mark_ops;
    w->unit.n_conds = claim->mark_conds;
    for (size_t i = 0; i < w->unit.n_ops; i++)
        if (w->ops[i].kind == STET_OP_FACTS && stet__id_equal(w->ops[i].run, w->run))
            w->ops[i].data = (stet_bytes){ NULL, 0 };
    w->done = stet__host_unit_done;
    w->is_sealed = false;
    claim->open = w;
    claim->is_new = claim->mark_is_new;
    c->run = claim->run_before;
}

int
stet__host_inbox_cond(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_cond   *cond = stet__work_cond(claim->open, STET_COND_INBOX, claim->run);

    if (cond == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    cond->number = c->run.taken;
    return STET_OK;
}

/* ---- suspending ----------------------------------------------------------------------------------- */

static void
host_park(stet_engine *e, stet__claim *claim)
{
    stet__disown(claim);
    stet__crumb_put(claim, claim->crumb);
    claim->crumb = -1;
    host_crumbs_release(claim, &claim->spent); /* their records were in this unit */
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
        atomic_fetch_add(&claim->answered, 1);
        host_park(e, claim);
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

    if ((err = stet__host_mark(c)) != STET_OK)
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
static void
host_suspend(stet_ctx *c)
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

/* ---- the inbox ------------------------------------------------------------------------------------ */

typedef struct host_inbox {
    stet_ctx *c;
    uint64_t  last;
    size_t    rows;
    bool      was_stopped;
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
    if ((err = stet__run_apply_inbox(&in->c->run, &fact)) != STET_OK ||
        (err = stet__journal_apply(&in->c->journal, &fact)) != STET_OK)
        return err;
    in->last = first;
    in->rows++;
    return STET_OK;
}

/* Runs this one called and waits for are to stop with it. */
static int
host_stop_children(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet__fact   cancel = { 0 };
    char         why[96] = "its caller was stopped: ";

    stet__id_text(why + strlen(why), STET__ID_RUN, claim->run);
    cancel.kind = STET__FACT_CANCEL;
    cancel.time_ms = stet__store_now(e);
    cancel.who = stet_text("caller");
    cancel.flags = STET__FACT_UNTOLD; /* we have not been answered, and may wait for it to clean up */
    cancel.text = stet_text(why);
    for (const stet__cmd *cmd = c->journal.waiting; cmd != NULL; cmd = cmd->next) {
        stet_op      *op;
        stet_run_row  row, *now;
        stet__fact    extra;

        if (cmd->kind != STET__FACT_CALL || cmd->is_settled)
            continue;
        /* One that waits (in a lane, for its time, for a worker) needs no execution to end. What stopped us is durable,
         * so that need not wait for our record of it. */
        if (stet__stop_unstarted(e, cmd->run, "caller", why))
            continue;
        if ((op = stet__work_op(claim->open, STET_OP_INBOX, cmd->run)) == NULL ||
            !stet__work_fact(claim->open, &op->data, &cancel))
            return STET_ENOMEM;
        op->flags = STET_OP_IF_OPEN;
        if ((op = stet__work_op(claim->open, STET_OP_RUN_WAKE, cmd->run)) == NULL)
            return STET_ENOMEM;
        op->flags = STET_OP_HASTEN; /* also out of a delay or backoff */
        op->status = STET_STATUS_PENDING;
        stet__lock(e->p, &e->lock);
        op->claimer = stet__work_claimer(e, claim->open);
        stet__unlock(e->p, &e->lock);
        /* A wake does nothing for one that is delayed or in backoff: it would learn only then. */
        if (stet__load_row(e, cmd->run, &claim->open->arena, &row, &extra) != STET_OK || row.is_terminal ||
            row.session != 0 || row.due_ms == STET_NEVER)
            continue;
        if ((op = stet__work_op(claim->open, STET_OP_RUN_SET, cmd->run)) == NULL ||
            (now = stet__arena_get0(&claim->open->arena, sizeof *now)) == NULL)
            return STET_ENOMEM;
        now->id = cmd->run;
        now->due_ms = cancel.time_ms;
        op->row = now;
        op->mask = STET_RUN_DUE;
        if (cancel.time_ms < claim->open->timer_ms)
            claim->open->timer_ms = cancel.time_ms;
    }
    return STET_OK;
}

/* Entries may have been applied and cannot be recorded as taken, so our picture is not what is stored: what
 * was recorded before is kept, and the run is read anew by its next execution. */
static int
host_refresh_failed(stet_ctx *c, int err)
{
    host_claim(c)->is_refused = true;
    host_commit(c);
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

static int
host_refresh(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    host_inbox   in = { c, c->run.taken, 0, c->run.stop_code != 0 };
    stet__fact   taken = { 0 };
    int          err;

    if (claim->must_resume)
        return host_resume(c);
    if (claim->returned != NULL) {
        stet__host_rollback(c, claim->returned);
        claim->returned = NULL;
    }
    atomic_store(&c->has_news, false);
    if ((err = host_inbox_take(claim, &in)) != STET_OK)
        return host_refresh_failed(c, err);
    if (in.last == c->run.taken)
        return STET_OK;
    taken.kind = STET__FACT_TAKEN;
    taken.number = (int64_t)in.last;
    if ((err = stet__host_mark(c)) != STET_OK)
        return host_refresh_failed(c, err);
    err = stet__host_append(c, &taken, NULL);
    if (err == STET_OK && !in.was_stopped && c->run.stop_code != 0 && !STET__MUTANT(children_go_on) && (err = host_stop_children(c)) != STET_OK)
        (void)stet__fail(err, "out of memory for a unit");
    if (err != STET_OK) {
        stet__host_rollback(c, claim->open);
        return host_refresh_failed(c, err);
    }
    return STET_OK;
}

/* ---- beginning ------------------------------------------------------------------------------------ */

static void
host_info(stet_ctx *c)
{
    const char *dot = strchr(c->run.handler, '.');

    stet__id_text(c->run_text, STET__ID_RUN, c->run.id);
    c->info.run = c->run_text;
    if (dot != NULL && (size_t)(dot - c->run.handler) < sizeof c->service) {
        memcpy(c->service, c->run.handler, (size_t)(dot - c->run.handler));
        c->service[dot - c->run.handler] = '\0';
        c->info.handler = dot + 1;
    } else
        c->info.handler = c->run.handler;
    c->info.service = c->service;
    c->info.key = c->run.key;
    c->info.group = c->run.group;
    if (!stet__id_is_zero(c->run.parent)) {
        stet__id_text(c->parent_text, STET__ID_RUN, c->run.parent);
        c->info.parent = c->parent_text;
    }
    c->info.parent_step = c->run.parent_step;
    c->info.child_key = c->run.child_key;
    if (!stet__id_is_zero(c->run.retry_of)) {
        stet__id_text(c->retried_text, STET__ID_RUN, c->run.retry_of);
        c->retried = (stet_dependency){ c->retried_text, "retry" };
        c->info.depended_on = &c->retried;
        c->info.n_depended_on = 1;
    }
    c->info.attempt = stet__run_attempt(&c->run);
    c->info.attempts_max = (uint32_t)c->run.retry.attempts;
    c->info.created_ms = c->run.created_ms;
    c->info.deadline_ms = c->run.deadline_ms;
    stet__rng_seed(&c->rng, stet__hash64(c->run.id.bytes, sizeof c->run.id.bytes, STET__MUTANT(random_anew) ? 7 + c->run.epoch : 7));
}

static int
host_load(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet_run_row row;
    stet__fact   extra;
    uint64_t     bad;
    int          err;

    stet__run_init(&c->run, &c->arena, claim->run);
    if (claim->preload.data != NULL) {
        stet_bytes in = claim->preload;
        stet__fact fact;

        while ((err = stet__fact_decode(&fact, &in)) == STET_OK) {
            fact.revision = c->run.journal + 1;
            if ((err = stet__run_apply(&c->run, &fact)) != STET_OK || (err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
                return err;
        }
        claim->has_lane = c->run.key != NULL;
        return err == STET_END ? STET_OK : err;
    }
    if ((err = stet__load_row(e, claim->run, &c->arena, &row, &extra)) != STET_OK)
        return err;
    /* A grant may be old news: what the sweep took up was ours when it asked. Nothing of this claim would be with the
     * store before its first body, so nobody else would tell. */
    if (!claim->is_guess && (row.session != claim->session || row.epoch != claim->epoch))
        return stet__fail(STET_EFENCED, "another worker owns this run now");
    claim->has_lane = row.lane != NULL;
    atomic_store(&c->inbox_known, row.inbox);
    return stet__load_facts(e, &c->run, &c->journal, row.journal - (STET__MUTANT(journal_short) ? 1 : 0), &bad);
}

/* Cases in which the handler is not entered: decided here, recorded by stet__host_end(). */
static void
host_judge(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    bool         was_executed = c->run.epoch > 1 || c->journal.rows.used > 0;

    claim->was_stopped = c->run.stop_code != 0;
    if (c->run.lost >= (uint32_t)e->config.lost_max) {
        claim->verdict = STET__FACT_STUCK;
        c->stuck_code = STET_ELOST;
        c->stuck_text = stet__arena_printf(&c->arena, "%u workers died while executing it%s%s; `unstick` lets it try again",
                                           c->run.lost, c->run.risks != NULL && c->run.risks->step ? ", last in step " : "",
                                           c->run.risks != NULL && c->run.risks->step ? c->run.risks->step : "");
    } else if (c->run.stop_code != 0 && !was_executed)
        claim->verdict = c->run.stop_code == STET_EEXPIRED ? STET__FACT_EXPIRED : STET__FACT_CANCELLED;
    else if (c->run.deadline_ms != 0 && stet__store_now(e) >= c->run.deadline_ms && !was_executed)
        claim->verdict = STET__FACT_EXPIRED;
    if (claim->verdict != 0)
        c->latch = STET_SUSPENDED;
}

static int
host_begin(stet_ctx *c)
{
    stet__claim   *claim = host_claim(c);
    stet_engine   *e = claim->engine;
    stet__handler *h;
    int            err = host_load(c);

    if (err != STET_OK)
        claim->is_refused = true; /* half a picture of the journal is none */
    if (err == STET_OK && (h = stet__handler_find(e, c->run.handler)) == NULL)
        err = stet__fail(STET_ENOHANDLER, "%s is not served here", c->run.handler);
    if (err == STET_OK) {
        claim->handler = h;
        c->fn = h->fn;
        host_info(c);
        if (atomic_load(&c->inbox_known) > c->run.taken || atomic_load(&c->has_news))
            err = host_refresh(c);
    }
    if (err == STET_OK)
        host_judge(c);
    else {
        if (err == STET_ECORRUPT && c->stuck_code == 0) {
            c->stuck_code = STET_ECORRUPT;
            c->stuck_text = stet__arena_str(&c->arena, stet_last_error());
        }
        stet__log(e, STET_LOG_ERROR, &claim->run, c->run.handler, NULL, err, "cannot be executed: %s", stet_last_error());
        (void)stet__ctx_latch(c, err);
    }
    return STET_OK;
}

/* ---- gone ------------------------------------------------------------------------------------------ */

/* Refused and never given back by us: whoever takes the run over reads in our crumbs that a body was entered,
 * so they stay as they are until the session ends. One that entered no body has nothing to tell, and a crumb that
 * is kept for nothing is one less. */
static bool
host_is_evidence(const stet__claim *claim)
{
    bool has_body = (claim->crumb >= 0 && claim->crumbs[claim->crumb].is_body != 0) || claim->spent != NULL ||
                    claim->broken != NULL || claim->unrecorded != NULL;

    return has_body && claim->end != STET__END_DONE &&
           (claim->is_refused || claim->has_broken || claim->is_unrecorded || claim->unrecorded != NULL);
}

static void
host_gone(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;

    stet__lock(e->p, &e->lock);
    if (stet__map_find(&e->claims, claim->run.bytes, sizeof claim->run.bytes) == c)
        (void)stet__map_remove(&e->claims, claim->run.bytes, sizeof claim->run.bytes);
    stet__unpark(e, claim);
    if (claim->is_resumed && !claim->is_detached)
        stet__claim_drop(e, claim); /* let go before it recorded anything */
    stet__disown(claim);
    stet__claim_gathered(claim);
    if (!host_is_evidence(claim)) {
        stet__crumb_put(claim, claim->crumb);
        host_crumbs_release(claim, &claim->spent);
        host_crumbs_release(claim, &claim->broken);
        host_crumbs_release(claim, &claim->unrecorded);
    }
    c->host = NULL; /* a slot shows its context until it takes the lock again */
    stet__unlock(e->p, &e->lock);
    stet__work_free(claim->open);
    stet__work_free(claim->returned);
    stet__free(&e->p->alloc, (void *)(uintptr_t)claim->preload.data);
    stet__free(&e->p->alloc, (void *)(uintptr_t)claim->news.data);
    stet__free(&e->p->alloc, claim);
}

/* ---- small services ------------------------------------------------------------------------------- */

static bool
host_may_execute(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;

    if (e->is_polled && !stet__lease_holds(e))
        stet__renew(e); /* nobody else does, while its host's thread is in here */
    /* The lease is that of the session we have now; a claim of the one before is lost. In this order: a new session
     * is there before its lease, so the lease we see is never newer than the session. */
    if ((stet__lease_holds(e) || STET__MUTANT(lease_unasked)) &&
        claim->session == atomic_load(&e->session))
        return true;
    stet__log(e, STET_LOG_WARN, &c->run.id, c->run.handler, NULL, STET_EFENCED,
              "the lease is about to end; no step is begun and the run is let go");
    return false;
}

/* From the wish to suspend until the run is ours again the crumb is the committer's, who gives it back: a
 * context that is woken for nothing in between must not write into what may be another run's by now. */
static bool
host_is_parking(stet_ctx *c)
{
    stet__park park = atomic_load(&c->park);

    return park == STET__PARK_ASKED || park == STET__PARK_PARKED;
}

static bool
host_crumb_set(stet_ctx *c, stet_attempt *a)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet_crumb  *crumb;
    int          at = a == NULL && host_is_parking(c) ? -1 : claim->crumb;

    if (a != NULL)
        a->fence = claim->epoch; /* the run learns of its epoch only with the first fact of this claim */
    if (a != NULL && a->future != NULL && !a->future->is_sync) {
        stet__lock(e->p, &e->lock);
        a->crumb = stet__crumb_get(claim);
        stet__unlock(e->p, &e->lock);
        at = a->crumb;
    }
    if (at < 0 && a != NULL && claim->session == atomic_load(&e->session))
        stet__log(e, STET_LOG_WARN, &claim->run, NULL, a->step, STET_EBUSY,
                  "too many bodies are not on record yet; this one is not begun and the run is let go");
    if (at < 0)
        return a == NULL;
    crumb = &claim->crumbs[at];
    crumb->run = claim->run;
    crumb->epoch = claim->epoch;
    if (a != NULL) {
        size_t len = strlen(a->step);

        if (len >= sizeof crumb->step)
            len = sizeof crumb->step - 1;
        memcpy(crumb->step, a->step, len);
        crumb->step[len] = '\0';
        crumb->occurrence = a->occurrence;
    }
    atomic_signal_fence(memory_order_seq_cst);
    if (a != NULL)
        crumb->is_body = 1;
    crumb->is_busy = 1;
    return true;
}

/* Out of user code: after a body until its record is durable, the crumb says "entered" (2); the record
 * is durable when the handler code of this context runs again behind its barrier. */
static void
host_crumb_rest(stet_ctx *c, stet_attempt *a)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    int          at = -1;

    if (a != NULL && a->future != NULL && !a->future->is_sync)
        at = a->crumb; /* -1: there was none left; the claim's own is its slot's */
    else if (a != NULL || !host_is_parking(c))
        at = claim->crumb;
    if (at < 0)
        return;
    if (a != NULL) {
        claim->crumbs[at].is_busy = STET__MUTANT(crumb_early) ? 0 : 2;
        if (at == claim->crumb)
            claim->is_unrecorded = true;
    } else if (claim->crumbs[at].is_body &&
               (claim->is_unrecorded || claim->has_broken || claim->is_refused || !host_is_durable(c)))
        claim->crumbs[at].is_busy = 2;
    else {
        claim->crumbs[at].is_busy = 0;
        claim->crumbs[at].is_body = 0;
        if (claim->spent != NULL && !claim->is_refused && host_is_durable(c)) {
            stet__lock(e->p, &e->lock);
            host_crumbs_release(claim, &claim->spent);
            stet__unlock(e->p, &e->lock);
        }
    }
}

static void
host_crumbs_release(stet__claim *claim, stet_attempt **spent)
{
    while (*spent != NULL) {
        stet_attempt *a = *spent;

        *spent = a->next;
        stet__crumb_put(claim, a->crumb);
        a->crumb = -1;
    }
}

static void
host_crumb_spent(stet_ctx *c, stet_attempt *a)
{
    stet__claim   *claim = host_claim(c);
    bool           is_broken = a->future != NULL && a->future->is_broken;
    stet_attempt **list = a->is_unrecorded ? &claim->unrecorded : is_broken ? &claim->broken : &claim->spent;

    claim->has_broken = claim->has_broken || is_broken;
    if (a->crumb < 0 && !a->is_unrecorded) {
        claim->is_unrecorded = false;
        return;
    }
    a->next = *list;
    *list = a;
}

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
host_state_read_ahead(stet_ctx *c, stet_bytes key, stet_bytes *value)
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
    return host_rely_on(claim, key, &seen) ? STET_OK : stet__fail(STET_ENOMEM, "out of memory for a unit");
}

static int
host_state_read(stet_ctx *c, const char *name, stet_bytes *value)
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
    if (claim->is_guess && initial == NULL)
        return host_state_read_ahead(c, key, value);
    if (claim->is_guess && (err = stet__ctx_barrier(c)) != STET_OK)
        return err;
    err = e->store->ops->value(e->store, STET__SPACE_STATE, key, &v);
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

static int64_t
host_now_ms(stet_ctx *c)
{
    return stet__store_now(host_claim(c)->engine);
}

static int64_t
host_payload_max(stet_ctx *c)
{
    return host_claim(c)->engine->config.payload_bytes_max;
}

/* What is read here does not change while a body runs: it may be on another thread. */
static void
host_log(stet_ctx *c, stet_level level, const char *step, int code, const stet_log_field *fields, size_t n,
         const char *message)
{
    stet__claim *claim = host_claim(c);

    stet__log_with(claim->engine, level, &claim->run, claim->handler != NULL ? claim->handler->name : NULL, step, code,
                   fields, n, message);
}

/* ---- children and awakeables ---------------------------------------------------------------------- */

/* The keys this run and its callers hold, this run's own last. */
static int
host_held(stet_ctx *c, stet__fact *started)
{
    const char *own;
    size_t      len, own_len;
    char       *at;

    if (!c->run.is_object) {
        started->held = c->run.held;
        return STET_OK;
    }
    if ((own = stet__lane_name(&c->arena, c->run.handler, c->run.key)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    own_len = strlen(own);
    len = c->run.held.len + (c->run.held.len > 0 ? 1 : 0) + own_len;
    if ((at = stet__arena_get0(&c->arena, len + 1)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if (c->run.held.len > 0)
        memcpy(at, c->run.held.data, c->run.held.len);
    memcpy(at + len - own_len, own, own_len);
    started->held = (stet_bytes){ at, len };
    return STET_OK;
}

static int
host_check_deadlock(stet_ctx *c, const stet__fact *started, const char *handler)
{
    const char *lane, *at = started->held.data, *end = at != NULL ? at + started->held.len : NULL;
    stet__buf   chain;
    int         err = STET_OK;

    if (started->key.data == NULL || at == NULL)
        return STET_OK;
    if ((lane = stet__lane_name(&c->arena, handler, started->key.data)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    stet__buf_init(&chain, &c->exec->p->alloc);
    for (; at < end; at += strnlen(at, (size_t)(end - at)) + 1) {
        stet__buf_printf(&chain, "%s%s", chain.len > 0 ? " -> " : "", at);
        if (strcmp(at, lane) == 0)
            err = STET_EDEADLOCK;
    }
    if (err != STET_OK)
        (void)stet__fail(err, "%s would wait for %s, which its own callers hold: %s -> %s; use stet_send", handler, lane,
                         stet__buf_cstr(&chain), lane);
    stet__buf_free(&chain);
    return err;
}

static int
host_child(stet_ctx *c, stet_id *id, stet__fact *started, const char *handler, stet_bytes input, const stet_start_options *options,
           bool is_call)
{
    stet__claim *claim = host_claim(c);
    stet__start  s;
    stet_id     *parent;
    int          err;

    if ((err = stet__start_check(claim->engine, &c->arena, &s, handler, input, options)) != STET_OK)
        return err;
    if (is_call && (err = host_held(c, &s.fact)) != STET_OK)
        return err;
    if (is_call && (err = host_check_deadlock(c, &s.fact, handler)) != STET_OK)
        return err;
    if ((parent = stet__arena_copy(&c->arena, &claim->run, sizeof claim->run)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    *id = s.run;
    *started = s.fact;
    started->run = stet__id_bytes(parent);
    return STET_OK;
}

static int
host_child_existing(stet_ctx *c, const stet__fact *started, stet_id *existing)
{
    stet_engine *e = host_claim(c)->engine;
    stet_value   v = { 0 };
    stet_bytes   key;
    int          err;

    memset(existing, 0, sizeof *existing);
    if (!stet__idem_key(&c->arena, &key, started->name, started->key, started->idempotency_key))
        return stet__fail(STET_ENOMEM, "out of memory");
    err = e->store->ops->value(e->store, STET__SPACE_IDEM, key, &v);
    if (err == STET_ENOTFOUND)
        return STET_OK;
    if (err != STET_OK)
        return err;
    *existing = stet__fact_id(v.data);
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    return STET_OK;
}

static void
host_look_soon(stet__exec *x)
{
    stet__keeper_poke(x->host_arg);
}

static void
host_after_turn(stet__exec *x, bool is_free)
{
    if (is_free)
        (void)stet__committer_help(x->host_arg);
    else
        stet__committer_kick(x->host_arg);
}

const stet__host_ops stet__host = {
    .begin = host_begin,
    .append = stet__host_append,
    .commit = host_commit,
    .commit_now = host_commit_now,
    .is_durable = host_is_durable,
    .is_ahead = host_is_ahead,
    .suspend = host_suspend,
    .refresh = host_refresh,
    .end = stet__host_end,
    .gone = host_gone,
    .after_turn = host_after_turn,
    .look_soon = host_look_soon,
    .may_execute = host_may_execute,
    .crumb_set = host_crumb_set,
    .crumb_rest = host_crumb_rest,
    .crumb_spent = host_crumb_spent,
    .state_read = host_state_read,
    .settle = stet__host_settle,
    .child = host_child,
    .child_existing = host_child_existing,
    .now_ms = host_now_ms,
    .payload_max = host_payload_max,
    .log = host_log,
};
