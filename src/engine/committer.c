/* The committer: gathers the units of all runs and hands them to the store in batches.
 *
 * One batch at a time is with the store; while it is being flushed the next one gathers, so under load
 * one flush carries hundreds of units. Who commits is whoever finds the store free: a caller that has
 * nothing else to do takes the batch itself (no thread has to be woken for a lone unit), otherwise the
 * committer's own thread does. Units keep their order. A batch whose outcome is not known is submitted again with the same
 * sequence numbers until the store says what became of it; nothing is ever guessed.
 *
 * Locks: committer.lock for the queue; engine->lock while outcomes are delivered.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define COMMITTER_BATCH_MAX 1024u
#define COMMITTER_WAIT_FIRST_US 10000
#define COMMITTER_WAIT_MAX_US 1000000
#define COMMITTER_HEAL_US 200000
#define COMMITTER_GROW 16u /* units that a batch which grows waits for at least, unless there are no more to come */

int
stet__committer_init(stet_engine *e)
{
    stet__committer *m = &e->committer;
    int              err;

    memset(m, 0, sizeof *m);
    m->engine = e;
    if ((err = e->p->ops->mutex_init(e->p, &m->lock)) != STET_OK)
        return err;
    if ((err = e->p->ops->cond_init(e->p, &m->cond)) != STET_OK) {
        e->p->ops->mutex_destroy(e->p, &m->lock);
        m->engine = NULL;
        return err;
    }
    m->cap = COMMITTER_BATCH_MAX;
    m->units = stet__get(&e->p->alloc, m->cap * sizeof *m->units);
    m->outcomes = stet__get(&e->p->alloc, m->cap * sizeof *m->outcomes);
    m->batch = stet__get(&e->p->alloc, m->cap * sizeof(stet__work *));
    if (m->units == NULL || m->outcomes == NULL || m->batch == NULL) {
        stet__committer_free(e);
        return stet__fail(STET_ENOMEM, "out of memory for the committer");
    }
    return STET_OK;
}

void
stet__committer_free(stet_engine *e)
{
    stet__committer *m = &e->committer;

    if (m->engine == NULL)
        return;
    stet__free(&e->p->alloc, m->units);
    stet__free(&e->p->alloc, m->outcomes);
    stet__free(&e->p->alloc, m->batch);
    e->p->ops->cond_destroy(e->p, &m->cond);
    e->p->ops->mutex_destroy(e->p, &m->lock);
    m->engine = NULL;
}

void
stet__submit(stet_engine *e, stet__work *w)
{
    stet__committer *m = &e->committer;

    stet__work_seal(w);
    stet__lock(e->p, &m->lock);
    w->is_unknown = false; /* under a new number */
    w->unit.seq = ++m->seq;
    w->next = NULL;
    if (m->last != NULL)
        m->last->next = w;
    else
        m->first = w;
    m->last = w;
    atomic_fetch_add(&m->n_queued, 1);
    stet__unlock(e->p, &m->lock);
}

/* Timers that are due together wake many runs at once, and each ends or goes on within microseconds: a flush for the
 * first of them would make the others wait for the next one. Bounded: a slot may be busy. */
static bool
committer_gathers(stet__committer *m)
{
    stet_engine *e = m->engine;

    return atomic_load(&e->gathering) > 0 && m->has_thread && !m->is_closing &&
           stet__mono_us(e->p) < atomic_load(&e->gather_until_us);
}

/* Is there one to come for the batch that grows? Those that are woken meanwhile are executed while it is flushed. */
static bool
committer_grows_on(stet__committer *m)
{
    stet_engine *e = m->engine;

    return m->is_growing && atomic_load(&e->gathering_of[m->grow_round % STET__GATHER_ROUNDS]) > 0 && m->has_thread &&
           !m->is_closing && stet__mono_us(e->p) < m->grow_until_us;
}

/* May the first one of the queue get into the batch that grows? One that relies on a unit before it waits for the next,
 * where it is asked whether it still may. */
static bool
committer_may_grow(const stet__committer *m)
{
    return !m->first->is_relying && m->first->gather_round <= m->grow_round;
}

/* Is the batch that grows to wait for more? Taken one by one they would cost two switches each, several times what it
 * takes to execute them. */
static bool
committer_awaits(stet__committer *m)
{
    return (m->first == NULL || (committer_may_grow(m) && atomic_load(&m->n_queued) < COMMITTER_GROW)) &&
           committer_grows_on(m);
}

/* The queue has something and nobody is at it, or it was only waiting for us to end: call the thread. With the queue's
 * lock. */
static bool
committer_must_call(stet__committer *m)
{
    bool must;

    if (m->is_growing)
        must = m->is_waiting && !committer_awaits(m);
    else
        must = m->is_waiting && (m->first != NULL || m->engine->is_poisoned || m->is_closing) && !m->is_busy &&
               !(m->is_patient && committer_gathers(m));
    if (must)
        m->is_waiting = false;
    return must;
}

void
stet__committer_kick(stet_engine *e)
{
    stet__committer *m = &e->committer;
    bool             must;

    if (atomic_load(&m->n_queued) == 0)
        return; /* whoever queues something calls for it */
    stet__lock(e->p, &m->lock);
    must = committer_must_call(m);
    stet__unlock(e->p, &m->lock);
    if (must)
        stet__broadcast(e->p, &m->cond);
}

static bool
committer_has_granted(const stet_outcome *outcome, stet_id run)
{
    for (size_t i = 0; i < outcome->n_grants; i++)
        if (stet__id_equal(outcome->grants[i].run, run))
            return true;
    return false;
}

/* A run that was to be ours at once and is not, because it is not due yet by the clock of the commit: the keeper
 * claims it. Nobody else would tell. */
static void
committer_not_granted(stet_engine *e, const stet__work *w, const stet_outcome *outcome)
{
    for (size_t i = 0; i < w->unit.n_ops; i++)
        if (w->ops[i].kind == STET_OP_RUN_PUT && w->ops[i].claimer != NULL &&
            !committer_has_granted(outcome, w->ops[i].row->id))
            stet__keeper_due(e, w->ops[i].row->due_ms);
}

/* Tell everybody what became of a unit; lock held. True: it is of no use any more. */
static bool
committer_deliver(stet_engine *e, stet__work *w, stet_outcome *outcome)
{
    bool is_missed = w->asked > 0 && e->has_backlog; /* somebody found no room because of what it asked for */
    bool is_kept;

    if (outcome->result == STET_OK) {
        for (size_t i = 0; i < w->unit.n_ops; i++)
            if (w->ops[i].kind == STET_OP_INBOX)
                stet__poke(e, w->ops[i].run);
        if (w->timer_ms != STET_NEVER)
            stet__keeper_timer(e, w->timer_ms);
        if (w->sched_ms != STET_NEVER)
            stet__keeper_sched(e, w->sched_ms);
        if (w->started != NULL)
            committer_not_granted(e, w, outcome);
        if (w->has_event)
            stet__events_look(e);
        if (e->mirror != NULL)
            stet__mirror_note(e, w);
        /* A claim that was on its way then asked for all the room there was, and has come too early to see the run. */
        if (w->is_left && stet__may_claim(e) && stet__room(e) > 0) {
            e->wants_claim = true;
            stet__keeper_poke(e);
        } else if (w->is_left)
            e->has_backlog = true;
    } else {
        stet__ahead_settled(e, w, outcome); /* before `done`: a unit that is refused may be its run's again behind it */
        stet__emit_refused(e, w, outcome);
    }
    is_kept = w->done != NULL && w->done(e, w, outcome);
    for (size_t i = 0; i < outcome->n_grants; i++)
        if (!w->is_resume || !stet__id_equal(outcome->grants[i].run, w->run))
            stet__grant(e, &outcome->grants[i], is_kept ? NULL : w);
    if (e->hint_tells && outcome->result == STET_OK && !is_kept)
        stet__hint_unit(e, w, outcome);
    stet__free(e->store->alloc, outcome->grants);
    outcome->grants = NULL;
    if (is_kept)
        return false;
    if (outcome->result == STET_OK && (w->has_state || w->has_ahead || w->started != NULL))
        stet__ahead_settled(e, w, outcome);
    stet__work_ask(w, -(int)w->asked);
    if (is_missed) {
        e->wants_claim = true;
        stet__keeper_poke(e);
    }
    return true;
}

static void
committer_fail(stet_engine *e, stet__work *w, int code)
{
    stet_outcome outcome = { 0 };

    outcome.result = code;
    outcome.next_due_ms = STET_NEVER;
    if (committer_deliver(e, w, &outcome))
        stet__work_free(w);
}

/* Those who wait for an answer get the store's error instead of waiting for better times; nothing of
 * their units was applied. With `all`, everybody does: what was with the store before may have been, whatever the
 * store says now. Returns how many are left. */
static size_t
committer_refuse_clients(stet_engine *e, size_t n, int code, bool all)
{
    stet__committer *m = &e->committer;
    size_t           kept = 0;

    stet__lock(e->p, &e->lock);
    for (size_t i = 0; i < n; i++)
        if (all || (m->batch[i]->is_client && !m->batch[i]->is_unknown))
            committer_fail(e, m->batch[i], m->batch[i]->is_unknown ? STET_EUNCERTAIN : code);
        else
            m->batch[kept++] = m->batch[i];
    stet__broadcast(e->p, &e->store_cond);
    stet__unlock(e->p, &e->lock);
    return kept;
}

/* Wait before the next try, unless we are to end. False: give up. */
static bool
committer_pause(stet_engine *e, int64_t *wait_us)
{
    stet__committer *m = &e->committer;
    int64_t          until_us = stet__mono_us(e->p) + *wait_us;
    bool             is_closing;

    if (e->is_polled || !e->has_threads)
        return false;
    stet__lock(e->p, &m->lock);
    while (!m->is_closing && stet__mono_us(e->p) < until_us)
        (void)stet__wait(e->p, &m->cond, &m->lock, until_us);
    is_closing = m->is_closing;
    stet__unlock(e->p, &m->lock);
    *wait_us = *wait_us * 2 > COMMITTER_WAIT_MAX_US ? COMMITTER_WAIT_MAX_US : *wait_us * 2;
    return !is_closing;
}

/* Those that could not end while the store took nothing try again (stet__host_end()). Lock held. */
static void
committer_wake_all(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&e->claims, &at, &key, &len, &value))
        stet__exec_wake(&e->exec, value);
}

/* trouble: what the store said; NULL: it is well. */
static void
committer_poisoned(stet_engine *e, const char *trouble)
{
    bool is_poisoned = trouble != NULL;

    if (!is_poisoned)
        stet__store_back(e);
    stet__lock(e->p, &e->lock);
    if (is_poisoned)
        (void)snprintf(e->trouble, sizeof e->trouble, "%s", trouble);
    if (e->is_poisoned != is_poisoned) {
        e->is_poisoned = is_poisoned;
        if (!is_poisoned) {
            e->wants_claim = true;
            if (e->is_polled && !STET__MUTANT(heal_unwoken))
                committer_wake_all(e);
            stet__keeper_poke(e);
        }
    }
    stet__unlock(e->p, &e->lock);
}

/* Nothing new is begun after a failed commit, so nothing would ever show that the store is well again:
 * ask it. */
bool
stet__committer_heal(stet_engine *e)
{
    int err;

    if (!e->is_poisoned)
        return true;
    if ((err = e->store->ops->ping(e->store)) == STET_EPOISONED)
        err = e->store->ops->reopen(e->store);
    if (err == STET_OK)
        committer_poisoned(e, NULL);
    return err == STET_OK;
}

static void
committer_take_first(stet__committer *m, size_t at)
{
    m->batch[at] = m->first;
    if ((m->first = m->first->next) == NULL)
        m->last = NULL;
    atomic_fetch_sub(&m->n_queued, 1);
}

/* Runs that were woken together and are still being executed get into the flush that has begun for the first of
 * them. */
size_t
stet__committer_more(void *arg, const stet_unit *units, size_t n)
{
    stet__committer *m = arg;
    stet_engine     *e = m->engine;

    if (units != m->units || n != m->n)
        return n; /* somebody in between commits a part of the batch */
    stet__lock(e->p, &m->lock);
    while (committer_awaits(m)) {
        m->is_waiting = true;
        (void)stet__wait(e->p, &m->cond, &m->lock, m->grow_until_us);
        m->is_waiting = false;
    }
    for (; m->is_growing && m->first != NULL && committer_may_grow(m) && n < m->cap; n++) {
        committer_take_first(m, n);
        m->units[n] = m->batch[n]->unit;
    }
    m->n = n;
    stet__unlock(e->p, &m->lock);
    return n;
}

/* A batch that is submitted again is the same. */
static void
committer_grown(stet__committer *m)
{
    if (!m->is_growing)
        return;
    stet__lock(m->engine->p, &m->lock);
    m->is_growing = false;
    stet__unlock(m->engine->p, &m->lock);
}

static void
committer_put_back(stet__committer *m, size_t n)
{
    stet_engine *e = m->engine;

    stet__lock(e->p, &m->lock);
    for (size_t i = n; i > 0; i--) {
        m->batch[i - 1]->next = m->first;
        m->first = m->batch[i - 1];
        if (m->last == NULL)
            m->last = m->first;
    }
    atomic_fetch_add(&m->n_queued, n);
    stet__unlock(e->p, &m->lock);
}

/* Submit a batch until its outcome is known. Returns how many units have outcomes. */
static size_t
committer_settle(stet_engine *e, size_t n, bool is_thread)
{
    stet__committer *m = &e->committer;
    int64_t          wait_us = COMMITTER_WAIT_FIRST_US;
    bool             is_unknown = false;
    int              err = STET_OK;

    if (e->is_polled || !e->has_threads)
        (void)stet__committer_heal(e);
    for (;;) {
        for (size_t i = 0; STET__MUTANT(unknown_renumbered) && is_unknown && i < n; i++) {
            stet__lock(e->p, &m->lock);
            m->batch[i]->unit.seq = ++m->seq;
            stet__unlock(e->p, &m->lock);
        }
        for (size_t i = 0; i < n; i++)
            m->units[i] = m->batch[i]->unit;
        memset(m->outcomes, 0, n * sizeof *m->outcomes);
        m->n = n;
        err = e->store->ops->commit(e->store, m->units, n, m->outcomes);
        n = m->n;
        committer_grown(m);
        if (err == STET_OK) {
            committer_poisoned(e, NULL);
            return n;
        }
        if (err == STET_EUNCERTAIN || err == STET_EPOISONED)
            is_unknown = true;
        stet__log_store(e, NULL, NULL, err, "a commit of %zu units %s", n,
                        is_unknown ? "has an unknown outcome and is submitted again" : "failed and is tried again");
        committer_poisoned(e, stet_last_error());
        for (size_t i = 0; is_unknown && i < n; i++)
            m->batch[i]->is_unknown = true;
        n = committer_refuse_clients(e, n, err, false);
        if (!is_thread && m->has_thread) {
            committer_put_back(m, n); /* a caller does not wait for better times; the thread does */
            return 0;
        }
        do {
            if (!committer_pause(e, &wait_us)) {
                (void)committer_refuse_clients(e, n, err, true);
                return 0;
            }
        } while (n == 0 && !stet__committer_heal(e));
        if (n == 0)
            return 0;
        if (err == STET_EPOISONED && e->store->ops->reopen(e->store) != STET_OK)
            stet__log_store(e, NULL, NULL, err, "the store cannot be reopened yet");
    }
}

/* Units that rely on one that was refused meanwhile are not to be applied. Returns how many are left. */
static size_t
committer_drop_void(stet_engine *e, size_t n)
{
    stet__committer *m = &e->committer;
    size_t           kept = 0, i = 0;

    while (i < n && !m->batch[i]->is_relying)
        i++;
    if (i == n)
        return n;
    stet__lock(e->p, &e->lock);
    for (i = 0; i < n; i++) {
        stet__work *w = m->batch[i];

        if (w->is_relying && !w->is_unknown && ((stet__claim *)w->arg)->is_void)
            committer_fail(e, w, STET_ECONFLICT);
        else
            m->batch[kept++] = w;
    }
    stet__unlock(e->p, &e->lock);
    return kept;
}

/* Commit one batch; is_busy is ours. */
static void
committer_round(stet_engine *e, size_t n, bool is_thread)
{
    stet__committer *m = &e->committer;

    if ((n = committer_drop_void(e, n)) > 0)
        n = committer_settle(e, n, is_thread);
    stet__lock(e->p, &e->lock);
    for (size_t i = 0; i < n; i++)
        if (!committer_deliver(e, m->batch[i], &m->outcomes[i]))
            m->batch[i] = NULL;
    stet__broadcast(e->p, &e->store_cond);
    stet__unlock(e->p, &e->lock);
    stet__work_free_all(e, m->batch, n);
}

/* Take the batch and the turn; 0: nothing to do, or somebody else is at it. With the queue's lock. */
static size_t
committer_take(stet__committer *m, bool is_thread)
{
    bool   gathers = committer_gathers(m);
    size_t n = 0;

    if (m->is_busy || (gathers && !(is_thread && m->engine->store->can_grow)))
        return 0;
    m->busy_seq = m->first != NULL ? m->first->unit.seq : 0;
    while (m->first != NULL && n < m->cap)
        committer_take_first(m, n++);
    m->is_busy = n > 0;
    m->is_growing = n > 0 && gathers;
    m->grow_round = atomic_load(&m->engine->gather_round);
    m->grow_until_us = atomic_load(&m->engine->gather_until_us);
    return n;
}

uint64_t
stet__committer_count(stet_engine *e)
{
    uint64_t n;

    stet__lock(e->p, &e->committer.lock);
    n = e->committer.seq;
    stet__unlock(e->p, &e->committer.lock);
    return n;
}

bool
stet__committer_help(stet_engine *e)
{
    stet__committer *m = &e->committer;
    size_t           n;
    bool             must;

    if (atomic_load(&m->n_queued) == 0)
        return false;
    stet__lock(e->p, &m->lock);
    if ((n = committer_take(m, false)) == 0) {
        /* What gathers is left to the thread. It may have gathered just now, so that is not asked again. */
        must = m->first != NULL && committer_must_call(m);
        stet__unlock(e->p, &m->lock);
        if (must)
            stet__broadcast(e->p, &m->cond);
        return false;
    }
    do { /* what came meanwhile is for the thread; without one, nobody else would see to it */
        stet__unlock(e->p, &m->lock);
        committer_round(e, n, false);
        stet__lock(e->p, &m->lock);
        m->is_busy = false;
    } while (!m->has_thread && (n = committer_take(m, false)) > 0);
    must = committer_must_call(m);
    stet__unlock(e->p, &m->lock);
    if (must)
        stet__broadcast(e->p, &m->cond);
    return true;
}

static void
committer_main(void *arg)
{
    stet_engine     *e = arg;
    stet__committer *m = &e->committer;
    size_t           n;

    stet__lock(e->p, &m->lock);
    for (;;) {
        if ((n = committer_take(m, true)) > 0) {
            stet__unlock(e->p, &m->lock);
            committer_round(e, n, true);
            stet__lock(e->p, &m->lock);
            m->is_busy = m->is_growing = false;
            continue;
        }
        if (m->is_closing && m->first == NULL && !m->is_busy)
            break;
        m->is_waiting = true;
        /* What was not taken though nobody is at it was left to what gathers, also if that is over just now. */
        m->is_patient = m->first != NULL && (!m->is_busy || committer_gathers(m));
        (void)stet__wait(e->p, &m->cond, &m->lock,
                         m->is_patient    ? atomic_load(&e->gather_until_us)
                         : e->is_poisoned ? stet__mono_us(e->p) + COMMITTER_HEAL_US
                                          : STET__FOREVER);
        m->is_waiting = false;
        if (e->is_poisoned && m->first == NULL && !m->is_busy && !m->is_closing) {
            m->is_busy = true;
            m->busy_seq = 0;
            stet__unlock(e->p, &m->lock);
            (void)stet__committer_heal(e);
            stet__lock(e->p, &m->lock);
            m->is_busy = false;
        }
    }
    stet__unlock(e->p, &m->lock);
}

int
stet__committer_start(stet_engine *e)
{
    int err;

    e->committer.is_closing = false;
    e->committer.has_thread = true;
    if ((err = e->p->ops->thread_start(e->p, &e->committer.thread, "stet-commit", committer_main, e)) != STET_OK)
        e->committer.has_thread = false;
    return err;
}

void
stet__committer_close(stet_engine *e)
{
    stet__committer *m = &e->committer;

    if (m->engine == NULL)
        return;
    stet__lock(e->p, &m->lock);
    m->is_closing = true;
    stet__broadcast(e->p, &m->cond);
    stet__unlock(e->p, &m->lock);
    if (m->thread != NULL)
        e->p->ops->thread_join(e->p, m->thread);
    m->thread = NULL;
    m->has_thread = false; /* from here on whoever helps sees to all of it */
    while (stet__committer_help(e))
        ;
}

/* ---- a caller that waits ------------------------------------------------------------------------- */

/* One block for all units of a call, kept alive by whoever still needs it: the caller, or units whose
 * outcome is still out when the caller gave up. */
typedef struct committer_call {
    stet__cond cond;
    size_t     waiting; /* units without an outcome */
    bool       is_left; /* the caller gave up */
    int       *results;
    uint32_t  *conds;   /* may be NULL */
} committer_call;

typedef struct committer_seat {
    committer_call *call;
    size_t          index;
} committer_seat;

static void
committer_call_free(stet_engine *e, committer_call *call)
{
    e->p->ops->cond_destroy(e->p, &call->cond);
    stet__free(&e->p->alloc, call);
}

static bool
committer_call_done(stet_engine *e, stet__work *w, const stet_outcome *outcome)
{
    committer_seat *seat = w->arg;
    committer_call *call = seat->call;

    if (!call->is_left) {
        int result = stet__stop_result(w, outcome);

        call->results[seat->index] = result == STET_EFENCED ? STET_ECONFLICT : result;
        if (call->conds != NULL)
            call->conds[seat->index] = outcome->cond;
    }
    if (--call->waiting == 0) {
        if (call->is_left)
            committer_call_free(e, call);
        else
            stet__signal(e->p, &call->cond);
    }
    return false;
}

static committer_call *
committer_call_new(stet_engine *e, stet__work **works, size_t n, int *results, uint32_t *conds)
{
    committer_call *call = stet__get0(&e->p->alloc, sizeof *call);

    if (call == NULL || e->p->ops->cond_init(e->p, &call->cond) != STET_OK) {
        stet__free(&e->p->alloc, call);
        return NULL;
    }
    call->results = results;
    call->conds = conds;
    for (size_t i = 0; i < n; i++) {
        committer_seat *seat;

        results[i] = STET_EUNCERTAIN;
        if (works[i] == NULL)
            continue;
        if ((seat = stet__arena_get(&works[i]->arena, sizeof *seat)) == NULL || !stet__stop_guard(e, works[i])) {
            committer_call_free(e, call);
            return NULL;
        }
        seat->call = call;
        seat->index = i;
        works[i]->done = committer_call_done;
        works[i]->arg = seat;
        works[i]->is_client = true;
        call->waiting++;
    }
    return call;
}

int
stet__commit_all(stet_engine *e, stet__work **works, size_t n, int *results, uint32_t *conds)
{
    bool            is_lent = stet__in_transaction(e);
    committer_call *call = is_lent ? NULL : committer_call_new(e, works, n, results, conds);
    int64_t         until_us = stet__mono_us(e->p) + e->config.wait_ms * 1000;
    bool            is_begun = false;

    if (call == NULL) {
        for (size_t i = 0; i < n; i++)
            stet__work_free(works[i]);
        return is_lent ? stet__fail(STET_EUSAGE, "a transactional step holds the store: this would wait for its end; "
                                                 "use stet_start_in(), or a step of its own")
                       : stet__fail(STET_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++)
        if (works[i] != NULL && works[i]->started != NULL)
            is_begun = stet__submit_start(e, works[i]) || is_begun;
        else if (works[i] != NULL)
            stet__submit(e, works[i]);
    if (is_begun)
        stet__committer_kick(e); /* what is executed already may get into the same flush */
    else
        (void)stet__committer_help(e);
    stet__lock(e->p, &e->lock);
    while (call->waiting > 0 && stet__wait(e->p, &call->cond, &e->lock, until_us))
        ;
    if (call->waiting > 0)
        call->is_left = true;
    else
        committer_call_free(e, call);
    stet__unlock(e->p, &e->lock);
    return STET_OK;
}

int
stet__commit_sync(stet_engine *e, stet__work *w, uint32_t *cond)
{
    int      result, err;
    uint32_t failed = 0;

    if ((err = stet__commit_all(e, &w, 1, &result, &failed)) != STET_OK)
        return err;
    if (cond != NULL)
        *cond = failed;
    return stet__commit_failed(e, result);
}

/* What the store said, " (…)", if it is in trouble. */
static const char *
committer_trouble(stet_engine *e, char *out, size_t size)
{
    out[0] = '\0';
    stet__lock(e->p, &e->lock);
    if (e->is_poisoned)
        (void)snprintf(out, size, " (%s)", e->trouble);
    stet__unlock(e->p, &e->lock);
    return out;
}

int
stet__commit_unknown(stet_engine *e, const char *what_to_do, ...)
{
    char    trouble[sizeof e->trouble + 4], advice[400];
    va_list args;

    va_start(args, what_to_do);
    (void)vsnprintf(advice, sizeof advice, what_to_do, args);
    va_end(args);
    return stet__fail(STET_EUNCERTAIN, "%s: the store did not answer in time%s; %s", e->url,
                      committer_trouble(e, trouble, sizeof trouble), advice);
}

int
stet__commit_failed(stet_engine *e, int result)
{
    char trouble[sizeof e->trouble + 4];

    if (result == STET_OK || result == STET_ECONFLICT)
        return result;
    if (result == STET_EMOVED)
        return stet__stop_refused(e);
    if (result == STET_EUNCERTAIN)
        return stet__commit_unknown(e, "this was done, will be, or will not; look at what is there before you repeat it");
    return stet__fail(result, "%s: the store could not be written; nothing was changed%s", e->url,
                      committer_trouble(e, trouble, sizeof trouble));
}
