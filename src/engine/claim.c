/* Claims: runs the store gave us, and the one incarnation of each that may execute.
 *
 * Invariant: engine->claims has at most one context a run. An older incarnation that lost its place is
 * detached: it may still unwind on its slot, but records nothing. Locks: engine->lock, held by the caller.
 */
#include <string.h>

#include "engine/host.h"

static stet_bytes
claim_preload(stet_engine *e, stet_id run, const stet__work *from)
{
    stet_bytes copy = { NULL, 0 };

    for (const stet__started *s = from != NULL ? from->started : NULL; s != NULL; s = s->next)
        if (stet__id_equal(s->run, run)) {
            void *p = stet__get(&e->p->alloc, s->facts.len);

            if (p != NULL) {
                memcpy(p, s->facts.data, s->facts.len);
                copy.data = p;
                copy.len = s->facts.len;
            }
            break;
        }
    return copy;
}

/* The store had its facts at hand. What cannot be understood is read, by whoever can say what is wrong with it. */
static stet_bytes
claim_facts(stet_engine *e, const stet_grant *grant)
{
    stet_bytes in = grant->facts, copy = { NULL, 0 };
    stet__fact fact;
    void      *p;
    int        err = STET_OK;

    if (in.len == 0 || grant->epoch != 1 || grant->inbox > 0)
        return copy;
    while (err == STET_OK)
        err = stet__fact_decode(&fact, &in);
    if (err == STET_END && (p = stet__get(&e->p->alloc, grant->facts.len)) != NULL)
        copy = (stet_bytes){ memcpy(p, grant->facts.data, grant->facts.len), grant->facts.len };
    return copy;
}

/* A parked run is woken by one entry of its inbox. If the unit that granted the run has put it there, or the store
 * had it at hand, and it is the only one not taken yet, it need not be read. */
static void
claim_news(stet_engine *e, stet__claim *claim, const stet_grant *grant, const stet__work *from)
{
    stet_bytes news = grant->news;
    size_t     n = news.data != NULL ? 1 : 0;

    stet__free(&e->p->alloc, (void *)(uintptr_t)claim->news.data);
    claim->news = (stet_bytes){ NULL, 0 };
    for (size_t i = 0; grant->news.data == NULL && from != NULL && i < from->unit.n_ops; i++)
        if (from->ops[i].kind == STET_OP_INBOX && stet__id_equal(from->ops[i].run, grant->run)) {
            news = from->ops[i].data;
            n++;
        }
    if (n == 1 && grant->inbox == claim->ctx->run.taken + 1) {
        void *p = stet__get(&e->p->alloc, news.len);

        if (p == NULL)
            return;
        claim->news = (stet_bytes){ memcpy(p, news.data, news.len), news.len };
        claim->news_seq = grant->inbox;
    }
}

void
stet__disown(stet__claim *claim)
{
    if (!claim->is_owned)
        return;
    claim->is_owned = false;
    atomic_fetch_sub(&claim->engine->in_flight, 1);
}

/* Begin an incarnation. Out of memory: false; a run we own and nobody executes is found by the sweep. */
static stet__claim *
claim_begin(stet_engine *e, stet_id run, uint64_t session, uint64_t epoch, stet_bytes preload)
{
    stet__claim *claim = stet__get0(&e->p->alloc, sizeof *claim);

    if (claim == NULL)
        return NULL;
    claim->engine = e;
    claim->run = run;
    claim->session = session;
    claim->epoch = epoch;
    claim->is_owned = true;
    claim->is_new = true;
    claim->crumb = -1;
    if ((claim->ctx = stet__exec_new(&e->exec, NULL, claim)) == NULL) {
        stet__free(&e->p->alloc, claim);
        return NULL;
    }
    if (stet__map_put(&e->claims, run.bytes, sizeof run.bytes, claim->ctx) != STET_OK) {
        stet__exec_discard(&e->exec, claim->ctx);
        stet__free(&e->p->alloc, claim);
        return NULL;
    }
    claim->preload = preload;
    claim->crumb = stet__crumb_get(claim);
    return claim;
}

bool
stet__claim_guess(stet_engine *e, stet_id run, stet_bytes preload)
{
    stet__claim *claim;

    if (stet__map_find(&e->claims, run.bytes, sizeof run.bytes) != NULL ||
        (claim = claim_begin(e, run, e->session, 1, preload)) == NULL)
        return false;
    claim->is_guess = true;
    atomic_fetch_add(&e->in_flight, 1);
    stet__exec_submit_here(&e->exec, claim->ctx);
    return true;
}

/* ---- resumed by a timer ----------------------------------------------------------------------------- */

static bool
claim_waits_for(const stet_ctx *c, const stet_timer *t)
{
    for (const stet__cmd *cmd = c->journal.waiting; cmd != NULL; cmd = cmd->next)
        if (cmd->has_timer && cmd->completion == t->completion && cmd->until_ms == t->fire_ms)
            return true;
    return false;
}

stet__resume
stet__claim_resume(stet_engine *e, const stet_timer *t)
{
    stet_ctx    *c = stet__map_find(&e->claims, t->run.bytes, sizeof t->run.bytes);
    stet__claim *claim = c != NULL ? c->host : NULL;

    if (claim == NULL)
        return STET__RESUME_NO;
    if (claim->is_resumed && claim->timer_completion == t->completion && claim->timer_ms == t->fire_ms)
        return STET__RESUME_BEGUN;
    if (!stet__may_claim(e) || e->is_polled ||
        stet__room(e) == 0)
        return STET__RESUME_NO;
    if (atomic_load(&c->park) != STET__PARK_PARKED || c->is_let_go || claim->is_detached || !claim_waits_for(c, t) ||
        !stet__is_served(e, claim->handler->name))
        return STET__RESUME_NO;
    atomic_fetch_add(&e->in_flight, 1);
    stet__unpark(e, claim);
    claim->session = e->session;
    claim->epoch++;
    claim->is_owned = true;
    claim->is_new = true;
    claim->begun_ms = 0;
    claim->is_resumed = true;
    claim->must_resume = true;
    claim->gather_round = atomic_load(&e->gather_round);
    atomic_fetch_add(&e->gathering_of[claim->gather_round % STET__GATHER_ROUNDS], 1);
    atomic_fetch_add(&e->gathering, 1);
    atomic_store(&claim->is_gathered, true);
    claim->timer_ms = t->fire_ms;
    claim->timer_completion = t->completion;
    claim->crumb = stet__crumb_get(claim);
    atomic_store(&c->park, STET__PARK_AGAIN);
    stet__exec_wake(&e->exec, c);
    return STET__RESUME_NOW;
}

void
stet__claim_gathered(stet__claim *claim)
{
    stet_engine *e = claim->engine;

    if (!atomic_exchange(&claim->is_gathered, false) || STET__MUTANT(gather_stuck))
        return;
    atomic_fetch_sub(&e->gathering_of[claim->gather_round % STET__GATHER_ROUNDS], 1);
    atomic_fetch_sub(&e->gathering, 1);
}

void
stet__claim_drop(stet_engine *e, stet__claim *claim)
{
    stet__claim_gathered(claim);
    stet__disown(claim);
    claim->is_detached = true;
    claim->is_refused = true;
    if (stet__map_find(&e->claims, claim->run.bytes, sizeof claim->run.bytes) == claim->ctx)
        (void)stet__map_remove(&e->claims, claim->run.bytes, sizeof claim->run.bytes);
    stet__exec_let_go(&e->exec, claim->ctx, STET_EFENCED);
    if (claim->is_resumed) { /* its timer, or whatever woke it meanwhile */
        e->next_timer_ms = 0;
        e->wants_claim = true;
        stet__keeper_poke(e);
    }
}

/* ---- granted ------------------------------------------------------------------------------------------ */

void
stet__grant(stet_engine *e, const stet_grant *grant, const stet__work *from)
{
    stet_ctx    *c = stet__map_find(&e->claims, grant->run.bytes, sizeof grant->run.bytes);
    stet__claim *claim = c != NULL ? c->host : NULL;
    uint64_t     session = from != NULL ? from->claimer.session : e->session;
    stet_bytes   preload;
    bool         is_old = false;

    if (claim != NULL && claim->is_guess && claim->epoch == grant->epoch && claim->session == session) {
        claim->is_guess = false; /* guessed right */
        if (grant->inbox > 0) /* before a body: a cancel may have come while it waited in the lane */
            atomic_store(&c->has_news, true);
        stet__exec_wake(&e->exec, c);
        return;
    }
    if (claim != NULL && claim->is_owned && !claim->is_guess && !claim->is_resumed && claim->epoch == grant->epoch &&
        claim->session == session)
        return; /* the sweep took it up while the answer was out */
    /* The answer came after the lease had ended, or, from a store that took its time, after everything here was drained:
     * whoever reaps that session gives the run on. */
    if (session != e->session || e->is_drained)
        return;
    atomic_fetch_add(&e->in_flight, 1);
    /* What is parked here is of use only if nobody else had the run since: each owner raises the epoch. */
    if (claim != NULL && atomic_load(&c->park) == STET__PARK_PARKED && !c->is_let_go && grant->epoch == claim->epoch + 1) {
        stet__unpark(e, claim);
        claim->session = session;
        claim->epoch = grant->epoch;
        claim->is_owned = true;
        claim->is_new = true;
        claim->begun_ms = 0;
        claim->is_soft = grant->is_soft;
        claim->crumb = stet__crumb_get(claim);
        claim_news(e, claim, grant, from);
        atomic_store(&c->has_news, true);
        atomic_store(&c->park, STET__PARK_AGAIN);
        stet__exec_wake(&e->exec, c);
        return;
    }
    if (claim != NULL) {
        /* An older incarnation that lost the run; whatever it still does is fenced. */
        stet__disown(claim);
        claim->is_detached = true;
        stet__unpark(e, claim);
        c->is_let_go = true;
        c->let_go_code = STET_EFENCED;
        (void)stet__map_remove(&e->claims, grant->run.bytes, sizeof grant->run.bytes);
        stet__exec_wake(&e->exec, c);
    }
    preload = claim_preload(e, grant->run, from);
    if (preload.data == NULL && grant->epoch == 1) {
        preload = stet__ahead_take(e, grant->run);
        is_old = true;
    }
    if (preload.data == NULL)
        preload = claim_facts(e, grant);
    if ((claim = claim_begin(e, grant->run, session, grant->epoch, preload)) != NULL) {
        claim->is_soft = grant->is_soft;
        if (from == NULL || (grant->inbox > 0 && (is_old || preload.data == NULL)))
            atomic_store(&claim->ctx->has_news, true); /* its inbox is not in what was kept of it */
        stet__exec_submit(&e->exec, claim->ctx);
    }
    else {
        stet__free(&e->p->alloc, (void *)(uintptr_t)preload.data);
        atomic_fetch_sub(&e->in_flight, 1);
        stet__log(e, STET_LOG_ERROR, &grant->run, NULL, NULL, STET_ENOMEM,
                  "no memory to execute a claimed run; the next sweep takes it up");
    }
}

bool
stet__replay_elsewhere(void *engine, stet_ctx *c)
{
    stet_engine *e = engine;
    stet__claim *claim = c->host, *fresh;

    /* Woken by its timer and not executed since: fired as that of any other run. */
    if (claim != NULL && claim->is_resumed && claim->must_resume && !claim->is_detached) {
        stet__claim_drop(e, claim);
        return true;
    }
    /* Only one whose record is complete, and which has not begun to end. A body that failed and has no policy
     * is recorded by the end of the attempt only. */
    if (claim == NULL || claim->has_broken || !claim->is_owned || claim->is_guess || claim->is_resumed || claim->is_detached ||
        claim->end != STET__END_NONE || c->jobs > 0 ||
        c->finished != NULL || claim->open != NULL || claim->returned != NULL ||
        atomic_load(&claim->submitted) != atomic_load(&claim->answered))
        return false;
    /* It takes the other's place in the map, which needs no memory; without memory before that, the other stays in it. */
    if ((fresh = claim_begin(e, claim->run, claim->session, claim->epoch, (stet_bytes){ NULL, 0 })) == NULL)
        return false;
    /* What it entered is on record. It enters nothing any more, and its slot may be busy for hours: what it leaves behind
     * there must not take the crumb from others. */
    stet__host_crumbs_leave(claim);
    if (fresh->crumb < 0)
        fresh->crumb = stet__crumb_get(fresh);
    /* One that was woken and not executed since has not written its CLAIMED; the new one does. */
    fresh->is_new = claim->is_new;
    fresh->is_soft = atomic_load(&claim->is_soft);
    atomic_store(&fresh->ctx->has_news, true);
    stet__exec_submit(&e->exec, fresh->ctx);
    claim->is_owned = false; /* the new one has it; in_flight stays */
    claim->is_detached = true;
    return true;
}

void
stet__poke(stet_engine *e, stet_id run)
{
    stet_ctx *c = stet__map_find(&e->claims, run.bytes, sizeof run.bytes);

    if (c == NULL || atomic_load(&c->park) == STET__PARK_PARKED)
        return;
    atomic_store(&c->has_news, true);
    stet__exec_wake(&e->exec, c);
}
