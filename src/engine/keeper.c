/* The keeper: one thread that fires timers, claims due runs, finds the dead, removes the old.
 *
 * It sleeps until the next thing is due: a timer, a delayed or retrying run, a sweep, a fallback poll.
 * Hints from other processes and units of this one wake it earlier. Lost hints only cost the time until
 * the next poll.
 *
 * Locks: engine->lock, given up around every store call.
 */
#include <string.h>

#include "engine/engine.h"

#define KEEPER_PURGE_US 10000 /* between two goes at runs whose retention is over */
#define KEEPER_QUIET_FIRST 2 /* sweeps that only look for dead workers and pauses, behind one that looked for all, */
#define KEEPER_QUIET_MAX 4   /* and behind the next ones */
#define KEEPER_TIMERS_MAX 512u
#define KEEPER_UNREAD_MAX 65536u  /* runs whose timers are passed over because nobody can read them … */
#define KEEPER_UNREAD_US 10000000 /* … until it is tried anew */
#define KEEPER_GATHER_US 1000 /* how long a commit waits for runs that were woken together */
#define KEEPER_CLAIM_MAX 256u
#define KEEPER_STALL_US 5000
#define KEEPER_BEHIND_MS 5
#define KEEPER_MAINTAIN_US 1000000
#define KEEPER_SCHED_MS 100 /* between looks at schedules that hints ask for */

void
stet__keeper_poke(stet_engine *e)
{
    e->n_pokes++;
    stet__signal(e->p, &e->keeper_cond);
}

/* The keeper is called only for what is earlier than what it waits for. */
static bool
keeper_lower(int64_t *next_ms, int64_t ms)
{
    if (ms >= *next_ms)
        return false;
    *next_ms = ms;
    return true;
}

void
stet__keeper_timer(stet_engine *e, int64_t ms)
{
    bool is_timer = keeper_lower(&e->next_timer_ms, ms), is_due = keeper_lower(&e->next_due_ms, ms);

    if (is_timer || is_due)
        stet__keeper_poke(e);
}

void
stet__keeper_due(stet_engine *e, int64_t ms)
{
    if (keeper_lower(&e->next_due_ms, ms))
        stet__keeper_poke(e);
}

void
stet__keeper_sched(stet_engine *e, int64_t ms)
{
    if (keeper_lower(&e->next_sched_ms, ms))
        stet__keeper_poke(e);
}

void
stet__keeper_on_hint(void *arg)
{
    stet_engine *e = arg;

    stet__lock(e->p, &e->lock);
    e->has_hint = true;
    stet__mirror_hint(e);
    stet__waiters_look(e);
    stet__keeper_poke(e);
    stet__unlock(e->p, &e->lock);
}

/* ---- timers ---------------------------------------------------------------------------------------- */

typedef struct keeper_timers {
    stet_engine *e;
    stet__arena  arena;
    stet_timer  *timers;
    size_t       n, n_read, max;
} keeper_timers;

/* Does it take more than a line in the inbox of its run to fire it? That fails as long as the run cannot be read. */
static bool
keeper_has_to_read(const stet_timer *t)
{
    return t->completion == STET__TIMER_DEADLINE || t->completion == STET__TIMER_VISIBLE;
}

static int
keeper_on_timer(void *arg, const stet_timer *timer)
{
    keeper_timers *t = arg;

    if (t->n_read == t->max)
        return STET_OK;
    t->n_read++;
    if (!keeper_has_to_read(timer) || stet__map_find(&t->e->unread, timer->run.bytes, sizeof timer->run.bytes) == NULL)
        t->timers[t->n++] = *timer;
    return STET_OK;
}

/* Its timer stays where it is, and those behind it have their turn all the same. */
static bool
keeper_pass_over(stet_engine *e, const stet_timer *t)
{
    if (e->unread.used >= KEEPER_UNREAD_MAX)
        return false;
    if (e->unread.used == 0)
        e->unread_until_us = stet__mono_us(e->p) + KEEPER_UNREAD_US;
    return stet__map_put(&e->unread, t->run.bytes, sizeof t->run.bytes, e) == STET_OK;
}

static bool
keeper_fired(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    (void)w;
    (void)o;
    if (--e->firing == 0)
        stet__keeper_poke(e);
    return false;
}

/* A run with a key becomes visible: it enters its lane now. */
static int
keeper_visible_ops(stet_engine *e, stet__work *w, const stet_timer *t)
{
    stet_run_row row;
    stet__fact   extra;
    stet_op     *op;
    int          err = stet__load_row(e, t->run, &w->arena, &row, &extra);

    if (err != STET_OK && err != STET_ENOTFOUND && !STET__MUTANT(visible_forgotten))
        return err; /* not known: without its lane the run would never be executed */
    if (STET__MUTANT(visible_forgotten) && err != STET_OK)
        return STET_OK;
    if (err == STET_ENOTFOUND || row.is_terminal || row.key == NULL)
        return STET_OK; /* only the timer goes */
    if ((op = stet__work_op(w, STET_OP_LANE_ENTER, t->run)) == NULL ||
        (op->lane = stet__lane_name(&w->arena, row.handler, row.key)) == NULL)
        return STET_ENOMEM;
    op->status = STET_STATUS_PENDING;
    stet__lock(e->p, &e->lock);
    op->claimer = stet__work_claimer(e, w);
    stet__unlock(e->p, &e->lock);
    return STET_OK;
}

static int
keeper_timer_ops(stet_engine *e, stet__work *w, const stet_timer *t)
{
    stet__fact fact = { 0 };
    stet_cond *cond = stet__work_cond(w, STET_COND_TIMER, t->run);
    stet_op   *op = stet__work_op(w, STET_OP_TIMER_DEL, t->run);

    if (cond == NULL || op == NULL)
        return STET_ENOMEM;
    cond->fire_ms = op->fire_ms = t->fire_ms;
    cond->number = op->number = t->completion;
    if (STET__MUTANT(timer_stays))
        w->unit.n_ops--;
    if (t->completion == STET__TIMER_VISIBLE)
        return keeper_visible_ops(e, w, t);
    fact.kind = STET__FACT_TIMER;
    fact.time_ms = stet__store_now(e);
    fact.completion = (int64_t)t->completion;
    if ((op = stet__work_op(w, STET_OP_INBOX, t->run)) == NULL || !stet__work_fact(w, &op->data, &fact))
        return STET_ENOMEM;
    op->flags = STET_OP_IF_OPEN;
    return stet__work_wake(w, t->run, STET_STATUS_PENDING, 0) ? STET_OK : STET_ENOMEM;
}

static int
keeper_fire_deadline(stet_engine *e, const stet_timer *t)
{
    stet__work *w;
    stet_op    *op;
    int         err = STET__MUTANT(deadline_ignored)
                          ? STET_EENDED
                          : stet__stop_run(e, t->run, STET_EEXPIRED, "deadline", "the deadline has passed", t);

    if (err != STET_EENDED && err != STET_ENOTFOUND)
        return err;
    /* Ended or gone: the timer is of no use. */
    if ((w = stet__work_new(e, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((op = stet__work_op(w, STET_OP_TIMER_DEL, t->run)) == NULL) {
        stet__work_free(w);
        return STET_ENOMEM;
    }
    op->fire_ms = t->fire_ms;
    op->number = t->completion;
    return stet__commit_sync(e, w, NULL);
}

static int
keeper_fire_one(stet_engine *e, const stet_timer *t)
{
    stet__work *w;
    int         err;

    if (t->completion == STET__TIMER_DEADLINE)
        return keeper_fire_deadline(e, t);
    if ((w = stet__work_new(e, keeper_fired, NULL)) == NULL)
        return STET_ENOMEM;
    if ((err = keeper_timer_ops(e, w, t)) == STET_OK && !stet__stop_guard(e, w))
        err = STET_ENOMEM;
    if (err != STET_OK) {
        stet__work_free(w);
        return err;
    }
    stet__lock(e->p, &e->lock);
    e->firing++;
    stet__unlock(e->p, &e->lock);
    stet__submit(e, w);
    return STET_OK;
}

/* How many made a difference: those behind them are within reach now. */
static size_t
keeper_fire(stet_engine *e, const keeper_timers *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        int err = keeper_fire_one(e, &t->timers[i]);

        if (err == STET_OK || (err == STET_ECORRUPT && keeper_has_to_read(&t->timers[i]) && keeper_pass_over(e, &t->timers[i])))
            n++;
    }
    return n;
}

/* Runs that are parked here go on at once; what is left in t takes the way through the store. Under one lock: the runs
 * need it to record anything, so those that are woken first would else hinder us to wake the others. */
static size_t
keeper_resume(stet_engine *e, keeper_timers *t)
{
    size_t n_left = 0, n_resumed = 0;

    stet__lock(e->p, &e->lock);
    if (atomic_load(&e->gathering) == 0) /* else one sits on a busy slot: the others need not wait for it again */
        atomic_store(&e->gather_until_us, stet__mono_us(e->p) + KEEPER_GATHER_US);
    atomic_fetch_add(&e->gather_round, 1);
    for (size_t i = 0; i < t->n; i++) {
        stet__resume resume =
            t->timers[i].completion != STET__TIMER_DEADLINE ? stet__claim_resume(e, &t->timers[i]) : STET__RESUME_NO;

        if (resume == STET__RESUME_NOW)
            n_resumed++;
        else if (resume == STET__RESUME_NO)
            t->timers[n_left++] = t->timers[i];
    }
    stet__unlock(e->p, &e->lock);
    t->n = n_left;
    return n_resumed;
}

/* Lock held on entry and return. */
static void
keeper_timers_round(stet_engine *e)
{
    keeper_timers t = { .e = e };
    int64_t       now_ms = stet__store_now(e), next_ms = STET_NEVER;
    size_t        n_fired = 0;
    int           err;

    if (STET__MUTANT(timer_early))
        now_ms++;
    if (STET__MUTANT(timer_own_clock))
        now_ms = stet__wall_ms(e->p);

    e->next_timer_ms = STET_NEVER; /* units applied from here on lower it again */
    stet__unlock(e->p, &e->lock);
    if (e->unread.used > 0 && stet__mono_us(e->p) >= e->unread_until_us) {
        stet__map_free(&e->unread); /* they may have been repaired */
        stet__map_init(&e->unread, &e->p->alloc);
    }
    stet__arena_init(&t.arena, &e->p->alloc);
    t.max = KEEPER_TIMERS_MAX + e->unread.used;
    t.timers = stet__arena_get(&t.arena, t.max * sizeof *t.timers);
    err = t.timers != NULL ? e->store->ops->timers(e->store, now_ms, t.max, keeper_on_timer, &t, &next_ms) : STET_ENOMEM;
    if (err == STET_OK) {
        n_fired = keeper_resume(e, &t);
        n_fired += keeper_fire(e, &t);
    }
    stet__arena_free(&t.arena);
    if (e->has_threads)
        stet__committer_kick(e); /* the next timers may be due before this commit is done */
    else
        (void)stet__committer_help(e);
    stet__lock(e->p, &e->lock);
    if (err != STET_OK)
        next_ms = now_ms + 1000;
    else if (t.n_read == t.max) /* there are more, behind these, which may just be on their way */
        next_ms = n_fired > 0 ? now_ms : now_ms + KEEPER_BEHIND_MS;
    if (next_ms < e->next_timer_ms)
        e->next_timer_ms = next_ms;
}

/* ---- dispatch -------------------------------------------------------------------------------------- */

static bool
keeper_claimed(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    (void)w;
    e->is_claiming = false;
    if (o->n_grants > 0)
        stet__hint_was_useful(e);
    if (o->result == STET_OK) {
        int64_t now_ms = stet__store_now(e);

        if (o->next_due_ms <= now_ms) {
            e->has_backlog = true;
            e->wants_claim = o->n_grants > 0;
        }
        if (o->next_due_ms > now_ms)
            stet__keeper_due(e, o->next_due_ms);
        if (o->next_due_ms > now_ms || o->n_grants > 0)
            e->behind_ms = KEEPER_BEHIND_MS;
        else { /* the commit's clock is a little behind, or somebody else was faster */
            stet__keeper_due(e, now_ms + e->behind_ms);
            if (e->behind_ms < e->config.poll_ms)
                e->behind_ms *= 2;
        }
    }
    if (e->wants_claim)
        stet__keeper_poke(e);
    return false;
}

/* Lock held on entry and return. */
static void
keeper_claim(stet_engine *e)
{
    size_t      room = stet__room(e);
    stet__work *w;
    stet_op    *op;

    if (!stet__may_claim(e))
        return;
    if (room == 0) {
        e->has_backlog = true;
        return;
    }
    if (e->is_polled)
        room = 1;
    if ((w = stet__work_new(e, keeper_claimed, NULL)) == NULL)
        return;
    if ((op = stet__work_op(w, STET_OP_CLAIM_DUE, (stet_id){ { 0 } })) == NULL) {
        stet__work_free(w);
        return;
    }
    stet__work_claims(w, e->session);
    op->claimer = &w->claimer;
    op->count = (uint32_t)(room < KEEPER_CLAIM_MAX ? room : KEEPER_CLAIM_MAX);
    stet__work_ask(w, (int)op->count);
    e->is_claiming = true;
    e->has_backlog = false;
    stet__unlock(e->p, &e->lock);
    stet__submit(e, w);
    (void)stet__committer_help(e);
    stet__lock(e->p, &e->lock);
}

static bool
keeper_wanted_done(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    const stet_id *run = &w->ops[0].run;
    stet_ctx      *c = stet__map_find(&e->claims, run->bytes, sizeof run->bytes);
    stet__claim   *claim = c != NULL ? c->host : NULL;
    bool           is_again = claim != NULL && claim->wanted == 2 && o->n_grants == 0;

    if (o->n_grants > 0)
        stet__hint_was_useful(e);
    if (claim != NULL)
        claim->wanted = 0;
    if (is_again) {
        e->wants_claim = true;
        stet__keeper_poke(e);
    }
    return false;
}

static void
keeper_unwant(stet_engine *e, const stet_id *run)
{
    stet_ctx *c = stet__map_find(&e->claims, run->bytes, sizeof run->bytes);

    if (c != NULL && c->host != NULL)
        ((stet__claim *)c->host)->wanted = 0;
}

/* Take runs that are parked here and were woken elsewhere. One that is not due any more has somebody else. Lock held on
 * entry and return. */
static void
keeper_claim_wanted(stet_engine *e)
{
    stet__work *works[STET__WANTED_MAX];
    size_t      n = 0;

    for (size_t i = 0; i < e->n_wanted; i++) {
        stet__work *w = stet__work_new(e, keeper_wanted_done, NULL);

        if (w == NULL || !stet__work_wake_locked(w, e->wanted[i], STET_STATUS_PENDING, STET_OP_DUE) ||
            w->ops[0].claimer == NULL) {
            keeper_unwant(e, &e->wanted[i]);
            stet__work_free(w);
            e->wants_claim = true;
        } else
            works[n++] = w;
    }
    e->n_wanted = 0;
    stet__unlock(e->p, &e->lock);
    for (size_t i = 0; i < n; i++)
        stet__submit(e, works[i]);
    (void)stet__committer_help(e);
    stet__lock(e->p, &e->lock);
}

/* Is anything due? A read, so that an idle worker writes nothing. Lock held on entry and return. */
static void
keeper_peek(stet_engine *e)
{
    const stet__served *served = atomic_load(&e->served);
    int64_t             due_ms = STET_NEVER, now_ms;
    int                 err = STET_OK;

    e->next_due_ms = STET_NEVER;
    stet__unlock(e->p, &e->lock);
    if (served != NULL && served->n > 0)
        err = e->store->ops->due(e->store, served->names, served->n, &due_ms);
    now_ms = stet__store_now(e);
    stet__lock(e->p, &e->lock);
    if (err != STET_OK)
        due_ms = now_ms + 1000;
    else if (due_ms <= now_ms) {
        e->wants_claim = true;
        due_ms = STET_NEVER;
    }
    if (due_ms < e->next_due_ms)
        e->next_due_ms = due_ms;
}

/* ---- sweeps ---------------------------------------------------------------------------------------- */

typedef struct keeper_orphan {
    stet_grant   grant;
    stet_run_row row; /* its numbers only */
    bool         is_refused;
} keeper_orphan;

typedef struct keeper_orphans {
    keeper_orphan *found;
    size_t         n, cap;
} keeper_orphans;

static int
keeper_on_own(void *arg, const stet_run_row *row)
{
    keeper_orphans *o = arg;
    keeper_orphan  *one = &o->found[o->n++];

    memset(one, 0, sizeof *one);
    one->grant.run = row->id;
    one->grant.epoch = row->epoch;
    one->row = *row;
    one->row.handler = one->row.key = one->row.lane = one->row.group = one->row.reason = NULL;
    one->row.extra = (stet_bytes){ NULL, 0 };
    return o->n < o->cap ? STET_OK : STET_END;
}

static bool
keeper_is_noted(const stet__map *claims, const stet_grant *g)
{
    void *epoch = stet__map_find(claims, g->run.bytes, sizeof g->run.bytes);

    return epoch != NULL && (uint64_t)(uintptr_t)epoch == g->epoch;
}

/* Runs the store says are ours and nobody here executes. A grant that found no memory: it is taken up when two sweeps in
 * a row see the same one, since a grant may be on its way to us right now. Or one whose records the store refused because
 * by its clock our lease had ended, and then the clock went back: what was executed is lost, so it goes on as after the
 * death of its worker. Lock held. */
static void
keeper_adopt(stet_engine *e)
{
    keeper_orphans o = { .n = 0 };
    stet_run_query query = { 0 };
    stet__map      seen;
    int            err;

    /* Room for all that live here, and some more. */
    o.cap = atomic_load(&e->in_flight) + 64;
    if (STET__MUTANT(orphan_left) || e->session == 0 || (o.found = stet__get(&e->p->alloc, o.cap * sizeof *o.found)) == NULL)
        return;
    query.session = e->session;
    query.limit = 1000000;
    query.oldest_first = true;
    stet__map_init(&seen, &e->p->alloc);
    stet__unlock(e->p, &e->lock);
    err = e->store->ops->runs(e->store, &query, keeper_on_own, &o);
    stet__lock(e->p, &e->lock);
    if (e->session != query.session || (err != STET_OK && err != STET_END))
        o.n = 0; /* they were the last one's */
    for (size_t i = 0; i < o.n; i++) {
        const stet_grant *g = &o.found[i].grant;

        if (stet__map_find(&e->claims, g->run.bytes, sizeof g->run.bytes) != NULL)
            continue;
        if (keeper_is_noted(&e->fenced, g) && !STET__MUTANT(refused_adopted))
            o.found[i].is_refused = true;
        else if (keeper_is_noted(&e->orphans, g))
            stet__grant(e, g, NULL);
        else
            (void)stet__map_put(&seen, g->run.bytes, sizeof g->run.bytes, (void *)(uintptr_t)g->epoch);
    }
    stet__map_free(&e->orphans);
    e->orphans = seen;
    stet__unlock(e->p, &e->lock);
    for (size_t i = 0; i < o.n; i++)
        if (o.found[i].is_refused)
            (void)stet__repair_owner(e, &o.found[i].row, true);
    stet__lock(e->p, &e->lock);
    stet__free(&e->p->alloc, o.found);
}

void
stet__requeue_stuck(stet_engine *e)
{
    stet__work *w;
    stet_op    *op;

    if (atomic_load(&e->served) == NULL || atomic_load(&e->served)->n == 0 || (w = stet__work_new(e, NULL, NULL)) == NULL)
        return;
    if ((op = stet__work_op(w, STET_OP_REQUEUE, (stet_id){ { 0 } })) == NULL) {
        stet__work_free(w);
        return;
    }
    stet__work_claims(w, e->session);
    op->claimer = &w->claimer;
    op->status = STET_STATUS_STUCK;
    op->number = STET_STATUS_PENDING;
    (void)stet__commit_sync(e, w, NULL);
}

/* May there be something to find? Where nothing is committed, here or elsewhere, it is looked for less and less often: an
 * idle fleet leaves its store alone. Lock held. */
static bool
keeper_is_stirred(stet_engine *e)
{
    uint64_t committed = stet__committer_count(e);

    if (e->is_stirred || e->stirred_seen != committed || e->orphans.used > 0 || e->fenced.used > 0)
        e->quiet_left = e->quiet_every = 0;
    e->is_stirred = false;
    e->stirred_seen = committed;
    if (e->quiet_left > 0) {
        e->quiet_left--;
        return false;
    }
    e->quiet_every = e->quiet_every == 0 ? KEEPER_QUIET_FIRST : KEEPER_QUIET_MAX;
    e->quiet_left = e->quiet_every;
    return true;
}

/* Lock held on entry and return. */
static void
keeper_sweep(stet_engine *e)
{
    bool is_stirred = keeper_is_stirred(e), has_event = false;

    stet__unlock(e->p, &e->lock);
    (void)stet__reap(e);
    if ((e->config.roles & STET_ROLE_WORKER) &&
        !(STET__MUTANT(hold_unlearnt) && atomic_load(&e->served)->n == e->n_handlers))
        (void)stet__hold_look(e);
    if (is_stirred && (e->config.roles & STET_ROLE_TIMERS)) {
        e->next_purge_us = stet__purge(e, false) ? stet__mono_us(e->p) + KEEPER_PURGE_US : STET__FOREVER;
        has_event = stet__emit_sweep(e);
        stet__query_sweep(e);
    }
    stet__lock(e->p, &e->lock);
    e->is_stirred = e->is_stirred || has_event;
    if (is_stirred)
        keeper_adopt(e);
}

/* More runs end than sweeps remove: a few between them, time and again, or the store would grow without end. Lock held
 * on entry and return. */
static void
keeper_purge(stet_engine *e)
{
    bool has_more;

    stet__unlock(e->p, &e->lock);
    has_more = stet__purge(e, true);
    stet__lock(e->p, &e->lock);
    e->next_purge_us = has_more ? stet__mono_us(e->p) + KEEPER_PURGE_US : STET__FOREVER;
}

/* ---- the round ------------------------------------------------------------------------------------- */

static int64_t
keeper_in(stet_engine *e, int64_t ms, int64_t now_us)
{
    int64_t in_ms;

    if (ms == STET_NEVER)
        return STET__FOREVER;
    in_ms = ms - stet__store_now(e);
    if (in_ms <= 0)
        return now_us;
    if (in_ms > 86400000)
        return now_us + 86400000000;
    /* The millisecond has begun some time ago. By our own clock: with another one it may not be time yet when we
     * wake, and then the next look comes within a millisecond. */
    return now_us + in_ms * 1000 - stet__wall_us(e->p) % 1000;
}

static bool
keeper_is_due(int64_t ms, int64_t now_ms)
{
    return ms != STET_NEVER && ms <= now_ms;
}

static int64_t
keeper_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Runs that wait beside a body are claimed, so nobody wakes them when another process puts something into
 * their inbox. */
static void
keeper_look_at_inboxes(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&e->claims, &at, &key, &len, &value)) {
        stet_ctx *c = value;

        if (c->jobs == 0 || atomic_load(&c->park) != STET__PARK_NONE)
            continue;
        atomic_store(&c->has_news, true);
        stet__exec_wake(&e->exec, c);
    }
}

/* What another process did is not known here: look at timers and runs anew. Fallback polls come less
 * often the longer nothing happens. */
static void
keeper_poll(stet_engine *e, int64_t now_us)
{
    bool is_hint = e->has_hint;

    e->has_hint = false;
    if (is_hint) {
        e->poll_us = e->config.poll_ms * 1000;
        e->is_stirred = true;
    } else if (e->poll_us < e->config.poll_ms * 8000 && !e->is_polled) /* that one hears no hints */
        e->poll_us *= 2;
    if (e->poll_us > 5000000 && e->config.poll_ms * 1000 < 5000000)
        e->poll_us = 5000000;
    e->next_poll_us = STET__MUTANT(hints_trusted) ? STET__FOREVER : now_us + e->poll_us;
    e->next_timer_ms = 0;
    /* Most hints are about something else. */
    stet__keeper_sched(e, is_hint && now_us - e->sched_looked_us < KEEPER_SCHED_MS * 1000
                              ? stet__store_now(e) + KEEPER_SCHED_MS
                              : 0);
    stet__answerer_hint(e, now_us, is_hint);
    keeper_look_at_inboxes(e);
    keeper_peek(e);
}

static bool
keeper_fires_schedules(stet_engine *e)
{
    return (e->config.roles & STET_ROLE_TIMERS) && e->sched_firing == 0 && !e->is_poisoned;
}

/* Lock held on entry and return; gives the time of the next round. */
static int64_t
keeper_round(stet_engine *e)
{
    int64_t now_us = stet__mono_us(e->p), now_ms, next_us, next_ms, stall_us, again_us;

    if (now_us >= e->next_sweep_us) {
        e->next_sweep_us = now_us + e->config.sweep_ms * 1000;
        keeper_sweep(e);
    }
    if (now_us >= e->next_purge_us)
        keeper_purge(e);
    if (e->has_hint || now_us >= e->next_poll_us)
        keeper_poll(e, now_us);
    now_ms = stet__store_now(e);
    if ((e->config.roles & STET_ROLE_TIMERS) && e->firing == 0 && !e->is_poisoned && keeper_is_due(e->next_timer_ms, now_ms))
        keeper_timers_round(e);
    if (keeper_fires_schedules(e) && keeper_is_due(e->next_sched_ms, now_ms))
        stet__sched_round(e);
    if (now_us >= e->next_questions_us)
        stet__answerer_look(e, now_us);
    if (keeper_is_due(e->next_due_ms, now_ms)) {
        e->next_due_ms = STET_NEVER;
        e->wants_claim = true;
    }
    if (e->n_wanted > 0)
        keeper_claim_wanted(e);
    if (e->wants_claim && !e->is_claiming) {
        e->wants_claim = false;
        keeper_claim(e);
    }
    stet__parked_trim(e, now_us);
    again_us = stet__end_again(e, now_us);
    now_us = stet__mono_us(e->p);
    stall_us = e->has_threads ? stet__exec_unstall(&e->exec, now_us, KEEPER_STALL_US, stet__replay_elsewhere, e) : STET__FOREVER;
    next_us = keeper_least(keeper_least(e->next_sweep_us, e->next_poll_us), keeper_least(stall_us, again_us));
    next_us = keeper_least(next_us, e->next_purge_us);
    next_us = keeper_least(next_us, e->next_questions_us);
    next_ms = e->next_due_ms;
    /* Poisoned: no timer is fired, so none may bring us round again at once, with the lock held. */
    if ((e->config.roles & STET_ROLE_TIMERS) && e->firing == 0 && !e->is_poisoned)
        next_ms = keeper_least(next_ms, e->next_timer_ms);
    if (keeper_fires_schedules(e))
        next_ms = keeper_least(next_ms, e->next_sched_ms);
    next_us = keeper_least(next_us, keeper_in(e, next_ms, now_us));
    if ((e->wants_claim && !e->is_claiming) || e->n_wanted > 0)
        next_us = now_us;
    return next_us;
}

int64_t
stet__keeper_round(stet_engine *e)
{
    int64_t next_us;

    stet__lock(e->p, &e->lock);
    next_us = keeper_round(e);
    stet__unlock(e->p, &e->lock);
    return next_us;
}

static void
keeper_main(void *arg)
{
    stet_engine *e = arg;

    stet__lock(e->p, &e->lock);
    while (!e->is_keeper_closing) {
        int64_t next_us = keeper_round(e), now_us = stet__mono_us(e->p);

        if (e->is_keeper_closing)
            break;
        if (now_us >= e->next_maintain_us) {
            e->next_maintain_us = now_us + KEEPER_MAINTAIN_US * 60;
            stet__unlock(e->p, &e->lock);
            (void)e->store->ops->maintain(e->store);
            stet__doctor_ask(e);
            stet__unserved_look(e);
            stet__lock(e->p, &e->lock);
            continue;
        }
        if (next_us > now_us && !e->has_hint && !e->is_keeper_closing)
            (void)stet__wait(e->p, &e->keeper_cond, &e->lock, next_us);
    }
    stet__unlock(e->p, &e->lock);
}

int
stet__keeper_start(stet_engine *e)
{
    int64_t now_us = stet__mono_us(e->p);
    int     err;

    e->is_keeper_closing = false;
    e->wants_claim = true;
    e->poll_us = e->config.poll_ms * 1000;
    e->next_poll_us = now_us;
    e->next_sweep_us = now_us;
    e->next_purge_us = STET__FOREVER;
    e->quiet_left = e->quiet_every = 0;
    e->next_maintain_us = now_us + KEEPER_MAINTAIN_US;
    e->next_timer_ms = 0;
    e->next_sched_ms = 0;
    e->next_due_ms = STET_NEVER;
    e->next_questions_us = STET__FOREVER;
    e->is_answerer_closing = false;
    e->behind_ms = KEEPER_BEHIND_MS;
    stet__doctor_ask(e);
    if (e->is_polled)
        return STET_OK;
    if ((err = stet__hint_watch(e)) != STET_OK)
        return err;
    return e->p->ops->thread_start(e->p, &e->keeper, "stet-keeper", keeper_main, e);
}

void
stet__keeper_close(stet_engine *e)
{
    if (e->keeper != NULL) {
        stet__lock(e->p, &e->lock);
        e->is_keeper_closing = true;
        stet__keeper_poke(e);
        stet__unlock(e->p, &e->lock);
        e->p->ops->thread_join(e->p, e->keeper);
        e->keeper = NULL;
    }
    stet__answerer_close(e);
    stet__hint_unwatch(e);
}
