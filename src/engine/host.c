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
#include <string.h>

#include "engine/host.h"

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

void
stet__host_stored(stet__claim *claim, const stet__work *w)
{
    if (w->n_facts > 0)
        claim->stored = w->first + w->n_facts - 1;
}

bool
stet__host_unit_done(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    stet__claim *claim = w->arg;
    stet_ctx    *c = claim->ctx;

    if (stet__host_is_dropped(e, claim, o))
        return false;
    if (o->result == STET_OK || (STET__MUTANT(refused_durable) && o->result == STET_ECONFLICT)) {
        claim->is_soft = false;
        stet__host_stored(claim, w);
        if (o->inbox > atomic_load(&c->inbox_known))
            atomic_store(&c->inbox_known, o->inbox);
        /* What ran before this record is durable now: not at risk any more. */
        if (claim->crumb >= 0 && c->state == STET__CTX_WAITING && claim->crumbs[claim->crumb].is_busy == 2 &&
            !claim->is_refused && atomic_load(&claim->submitted) == atomic_load(&claim->answered) + 1 && claim->open == NULL) {
            claim->crumbs[claim->crumb].is_busy = 0;
            claim->crumbs[claim->crumb].is_body = 0;
        }
    } else {
        if (o->result == STET_EFENCED) {
            stet__disown(claim);
            (void)stet__map_put(&e->fenced, claim->run.bytes, sizeof claim->run.bytes, (void *)(uintptr_t)claim->epoch);
        }
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
    claim->marked = NULL;
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
    /* What decided at a moment (a claim, a wait for the next try) has that moment. */
    if (fact->kind >= STET__FACT_STEP || fact->time_ms == 0)
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

/* The first fact of an epoch. It is written with what the run did first, and a body may take hours. */
static int
host_append_claimed(stet_ctx *c, stet__work *w)
{
    stet__claim *claim = host_claim(c);
    stet__fact   claimed = { 0 };
    int          err;

    claimed.kind = STET__FACT_CLAIMED;
    claimed.time_ms = claim->begun_ms;
    claimed.number = (int64_t)claim->epoch;
    claimed.who = stet_text(claim->engine->worker);
    claimed.attempt = stet__run_attempt(&c->run);
    if ((err = host_append_one(c, w, &claimed, NULL)) == STET_OK)
        claim->is_new = false;
    return err;
}

int
stet__host_append(stet_ctx *c, stet__fact *fact, const stet__fact *child)
{
    stet__claim *claim = host_claim(c);
    stet__work  *w = stet__host_open(claim);
    int          err;

    if (w == NULL)
        return STET_ENOMEM;
    if (claim->is_new && (err = host_append_claimed(c, w)) != STET_OK)
        return err;
    err = host_append_one(c, w, fact, child);
    if (err == STET_OK && fact->kind == STET__FACT_ROLLBACK && (fact->flags & STET__FACT_AUTO) != 0)
        stet__host_crumbs_failed(claim);
    return err;
}

static bool
host_spare(stet__claim *claim, stet__work *w)
{
    stet__journal *j = &claim->ctx->journal;

    for (; j->spared != NULL && !STET__MUTANT(timer_spared); j->spared = j->spared->spared)
        if ((j->spared->had_timer &&
             !stet__work_timer_gone(w, claim->run, j->spared->until_ms, j->spared->completion)) ||
            (j->spared->has_mark && !stet__project_mark_gone(w, claim->run, j->spared)))
            return false;
    return true;
}

int
stet__host_spare(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet__work  *w = c->journal.spared != NULL ? stet__host_open(claim) : NULL;

    if (c->journal.spared != NULL && (w == NULL || !host_spare(claim, w)))
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    return STET_OK;
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
    if (w->has_read)
        claim->read_until = atomic_load(&claim->submitted);
    (void)host_spare(claim, w); /* what finds no memory goes with the next unit */
    if (atomic_load(&claim->is_gathered))
        w->gather_round = claim->gather_round;
    /* Whoever asks behind this goes past waits whose outcomes are in it: no update is made at them any more. */
    claim->ctx->passed = claim->ctx->journal.order;
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

/* What is asked to be durable is the claim alone: its fact makes it so. */
static void
host_harden(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;

    if (stet__host_open(claim) != NULL && host_append_claimed(c, claim->open) == STET_OK)
        return;
    (void)stet__ctx_fail(c, STET_ENOMEM, 0, stet_last_error(), NULL, 0);
    (void)stet__ctx_latch(c, STET_ENOMEM);
    stet__lock(e->p, &e->lock);
    stet__exec_wake(&e->exec, c);
    stet__unlock(e->p, &e->lock);
}

void
stet__host_commit(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);

    if (claim->is_soft && claim->is_new && c->latch == 0)
        host_harden(c);
    if (claim->is_guess)
        stet__ahead_in_vain(claim->handler);
    if (claim->open != NULL && claim->open->n_facts > 0)
        stet__host_submit(claim);
}

static void
host_commit_now(stet_ctx *c)
{
    stet__host_commit(c);
    stet__committer_kick(host_claim(c)->engine);
}

bool
stet__host_is_durable(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);

    /* A claim we only believe in is not durable either, nor is what came back because of news. */
    return !claim->is_guess && !claim->is_resumed && !claim->is_soft && (claim->open == NULL || claim->open->n_facts == 0) &&
           atomic_load(&claim->submitted) == atomic_load(&claim->answered) &&
           (claim->returned == NULL || STET__MUTANT(returned_durable)); /* in this order: who answers sets it before */
}

static bool
host_is_ahead(stet_ctx *c)
{
    const stet__claim *claim = host_claim(c);

    return claim->is_guess || claim->is_resumed || (claim->open != NULL && claim->open->has_read) ||
           atomic_load(&claim->answered) < claim->read_until;
}

/* ---- units that are conditional on the inbox ------------------------------------------------------ */

int
stet__host_mark(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet__work  *w = stet__host_open(claim);

    if (w == NULL)
        return STET_ENOMEM;
    claim->marked = w;
    claim->run_before = c->run;
    claim->mark_is_new = claim->is_new;
    claim->mark_facts = w->facts.len;
    claim->mark_n = w->n_facts;
    claim->mark_ops = w->unit.n_ops;
    claim->mark_conds = w->unit.n_conds;
    return STET_OK;
}

/* Cut the conditional tail off again. There is none if memory was short before the mark: the last one is then of a unit
 * that may be durable by now. */
void
stet__host_rollback(stet_ctx *c, stet__work *w)
{
    stet__claim *claim = host_claim(c);

    if (claim->marked != w)
        return;
    claim->marked = NULL;
    w->facts.len = claim->mark_facts;
    w->n_facts = claim->mark_n;
    w->unit.n_ops = claim->mark_ops;
    w->unit.n_conds = claim->mark_conds;
    for (size_t i = 0; i < w->unit.n_ops; i++)
        if (w->ops[i].kind == STET_OP_FACTS && stet__id_equal(w->ops[i].run, w->run)) {
            w->ops[i].data = (stet_bytes){ NULL, 0 };
            w->ops[i].flags = 0;
            w->ops[i].session = 0;
        }
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
    stet__host_crumbs_leave(claim);
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
    stet__claim    *claim = host_claim(c);
    stet_log_record line = { .level = level, .message = message, .step = step, .code = code };

    line.handler = claim->handler != NULL ? claim->handler->name : NULL;
    line.traceparent = c->info.traceparent;
    stet__log_with(claim->engine, &line, &claim->run, fields, n);
}

/* The handler's own classifier, then that for all. */
static int
host_judge_failure(stet_ctx *c, int code, const char *text, const char *origin, int64_t *not_before_ms)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    const struct {
        stet_classify_fn fn;
        void            *arg;
    } judges[] = { { claim->handler->classify, claim->handler->classify_arg }, { e->config.classify, e->config.classify_arg } };
    stet_failed failed = { .run = c->run_text,
                           .handler = claim->handler->name,
                           .code = code,
                           .text = text,
                           .origin = origin,
                           .attempt = stet__run_attempt(&c->run),
                           .attempts_max = (uint32_t)c->run.retry.attempts };

    for (size_t i = 0; i < sizeof judges / sizeof *judges; i++) {
        int64_t when_ms = 0;
        int     verdict = judges[i].fn != NULL ? judges[i].fn(judges[i].arg, &failed, &when_ms) : STET_OK;

        if (verdict == STET_OK || (verdict == STET_ERETRY && STET__MUTANT(classify_passed)))
            continue;
        if (verdict == STET_EPERMANENT)
            return verdict;
        if (verdict == STET_EDEFER && when_ms > 0) {
            *not_before_ms = when_ms > STET__DEFER_MS_MAX ? STET__DEFER_MS_MAX : when_ms;
            return verdict;
        }
        /* It would come back at once and use no attempt: for ever, if the cause stays. */
        if (verdict == STET_EDEFER)
            stet__log(e, STET_LOG_WARN, &claim->run, failed.handler, NULL, verdict,
                      "the classifier %s returned STET_EDEFER without a time (%lld); the failure is retried as usual",
                      i == 0 ? "of the handler" : "for all handlers", (long long)when_ms);
        else if (verdict != STET_ERETRY)
            stet__log(e, STET_LOG_WARN, &claim->run, failed.handler, NULL, verdict,
                      "the classifier %s returned %d, which is no verdict; the failure is retried as usual",
                      i == 0 ? "of the handler" : "for all handlers", verdict);
        break;
    }
    return 0;
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
    .begin = stet__host_begin,
    .append = stet__host_append,
    .commit = stet__host_commit,
    .commit_now = host_commit_now,
    .is_durable = stet__host_is_durable,
    .is_ahead = host_is_ahead,
    .suspend = stet__host_suspend,
    .refresh = stet__host_refresh,
    .end = stet__host_end,
    .judge = host_judge_failure,
    .gone = host_gone,
    .after_turn = host_after_turn,
    .look_soon = host_look_soon,
    .may_execute = host_may_execute,
    .crumb_set = stet__host_crumb_set,
    .crumb_rest = stet__host_crumb_rest,
    .crumb_spent = stet__host_crumb_spent,
    .state_read = stet__host_state_read,
    .tell = stet__host_tell,
    .child = stet__host_child,
    .child_existing = stet__host_child_existing,
    .tx_limit = stet__host_tx_limit,
    .tx_begin = stet__host_tx_begin,
    .tx_record = stet__host_tx_record,
    .tx_rollback = stet__host_tx_rollback,
    .now_ms = host_now_ms,
    .payload_max = host_payload_max,
    .log = host_log,
    .takes_updates = true,
};
