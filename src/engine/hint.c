/* Hints: what the engine tells others after its commits, and what it does when it is told something.
 *
 * The port (src/queue) is the store's own hints unless another was asked for: by stet_options.queue or by
 * queue=… at the end of the store's address. Most stores tell of every commit themselves. Other ports, and stores
 * that can tell more while they are watched, are told here, when a unit was applied: of work that was left for
 * others (WORK), of a run that ended or got
 * news and is not executed here (RUN), of timers when this engine fires none (TIMER).
 *
 * What is received only makes the engine look: at due runs and timers (the keeper), at one run (its
 * waiters), at an inbox. Anybody who can send can send nonsense, so looks that come of nothing are paid
 * for: HINT_BURST at once, then one every HINT_EVERY_US; a look that found work is free. Later ones are not
 * forgotten but put off. A waiter looks at its run at growing intervals (wait.c).
 *
 * Locks: engine->lock. The port's methods never wait and never call back into this one.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define HINT_EVERY_US 100000
#define HINT_BURST    20

/* ---- the address ----------------------------------------------------------------------------- */

/* Where "queue=" begins in the options of a store's address; NULL: nowhere. */
static const char *
hint_option(const char *url)
{
    const char *at = strchr(url, '?');

    while (at != NULL && strncmp(at + 1, "queue=", 6) != 0)
        at = strchr(at + 1, '&');
    return at;
}

/* An address has options of its own, so it goes on to the end; a word ends at the next '&'. */
int
stet__hint_split(stet__platform *p, const char *url, char **store, char **queue)
{
    const char *at = hint_option(url), *value = at != NULL ? at + 7 : "", *end;
    size_t      head = at != NULL ? (size_t)(at - url) : strlen(url), len;

    *store = *queue = NULL;
    len = strcspn(value, "&");
    if (len > 0 && strncmp(value + strcspn(value, ":&"), "://", 3) == 0)
        len = strlen(value);
    end = value + len;
    if ((*store = stet__get0(&p->alloc, head + strlen(end) + 2)) == NULL ||
        (at != NULL && (*queue = stet__get0(&p->alloc, len + 1)) == NULL)) {
        stet__free(&p->alloc, *store);
        *store = NULL;
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    memcpy(*store, url, head);
    if (*end == '&') {
        (*store)[head] = *at; /* what follows takes its place */
        memcpy(*store + head + 1, end + 1, strlen(end + 1));
    }
    if (at != NULL)
        memcpy(*queue, value, len);
    if (hint_option(*store) == NULL)
        return STET_OK;
    stet__hint_wipe(p, *store);
    stet__hint_wipe(p, *queue);
    *store = *queue = NULL;
    return stet__fail(STET_EURL, "the option \"queue\" is given twice in the store's address; keep the one that is meant");
}

void
stet__hint_wipe(stet__platform *p, char *queue)
{
    if (queue != NULL)
        memset(queue, 0, strlen(queue)); /* it may have a password */
    stet__free(&p->alloc, queue);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void
hint_say(void *arg, bool is_connected, int code, const char *text)
{
    stet_engine *e = arg;

    if (is_connected)
        stet__log(e, STET_LOG_INFO, NULL, NULL, NULL, STET_OK, "hints are back: %s", text);
    else
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, code,
                  "no hints: what others do is found by asking the store every %lld ms: %s",
                  (long long)(e->config.roles & STET_ROLE_CLIENT ? e->config.wait_poll_ms : e->config.poll_ms), text);
}

int
stet__hint_begin(stet_engine *e, const char *queue)
{
    stet__hint_setup setup = { e->store, hint_say, e };

    if (queue == NULL)
        queue = "store";
    if (e->p != stet__platform_real() && strcmp(queue, "store") != 0 && strcmp(queue, "none") != 0)
        return stet__fail(STET_ECONFIG, "queue=%.5s… needs real threads; a simulated engine has store "
                          "and none", queue);
    e->hint_tells = strcmp(queue, "store") != 0 && strcmp(queue, "none") != 0;
    e->store->is_mute = strcmp(queue, "store") != 0;
    e->store->wants_ends = e->config.audit != NULL;
    return stet__hint_open(&e->hint, e->p, queue, &setup);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* May one more look be made for nothing? 0: yes, and it is counted; else when. Lock held. */
static int64_t
hint_wait_us(stet_engine *e, int64_t now_us)
{
    int64_t allowed_us = e->hint_paid_us - (HINT_BURST - 1) * (int64_t)HINT_EVERY_US;

    if (now_us < allowed_us)
        return allowed_us;
    if (e->hint_paid_us < now_us)
        e->hint_paid_us = now_us;
    e->hint_paid_us += HINT_EVERY_US;
    return 0;
}

void
stet__hint_was_useful(stet_engine *e)
{
    e->hint_paid_us = 0;
}

/* The keeper looks at due runs, timers and inboxes at this time at the latest. Lock held. */
static void
hint_put_off(stet_engine *e, int64_t when_us)
{
    if (when_us < e->next_poll_us)
        e->next_poll_us = when_us;
    stet__keeper_poke(e);
}

/* Let the keeper look (`what` is e->has_hint) or claim what is due (e->wants_claim), now or when it is time. Lock
 * held. */
static void
hint_ask(stet_engine *e, bool *what)
{
    int64_t when_us;

    if (*what)
        return;
    if ((when_us = hint_wait_us(e, stet__mono_us(e->p))) != 0) {
        hint_put_off(e, when_us);
        return;
    }
    *what = true;
    stet__keeper_poke(e);
}

/* A run that is parked here goes on here: it is taken by name, which costs less than a look at everything that may be
 * due, and need not wait until that look is given to us. Lock held. False: it is none of those. */
static bool
hint_want(stet_engine *e, const stet_id *run)
{
    stet_ctx    *c = stet__map_find(&e->claims, run->bytes, sizeof run->bytes);
    stet__claim *claim = c != NULL ? c->host : NULL;

    if (claim == NULL || atomic_load(&c->park) != STET__PARK_PARKED || c->is_let_go || !stet__may_claim(e))
        return false;
    if (claim->wanted > 0) {
        claim->wanted = 2; /* what is on its way may come too early */
        return true;
    }
    if (e->n_wanted == STET__WANTED_MAX || stet__room(e) == 0 || hint_wait_us(e, stet__mono_us(e->p)) != 0)
        return false;
    claim->wanted = 1;
    e->wanted[e->n_wanted++] = *run;
    stet__keeper_poke(e);
    return true;
}

void
stet__hint_parked(stet_engine *e, const stet_id *run)
{
    if (!hint_want(e, run))
        hint_ask(e, &e->wants_claim);
}

/* Its waiters look, and if it is executed here, it looks into its inbox. Lock held. */
static void
hint_run(stet_engine *e, const stet_id *run)
{
    int64_t when_us;

    stet__waiters_look_at(e, run);
    if (stet__map_find(&e->claims, run->bytes, sizeof run->bytes) == NULL || hint_want(e, run))
        return;
    if ((when_us = hint_wait_us(e, stet__mono_us(e->p))) == 0)
        stet__poke(e, *run);
    else
        hint_put_off(e, when_us);
}

/* Is it executed here, or asked for by name? */
static bool
hint_is_wanted(stet_engine *e, const stet_id *run)
{
    stet_ctx *c = stet__map_find(&e->claims, run->bytes, sizeof run->bytes);

    return c != NULL && (atomic_load(&c->park) != STET__PARK_PARKED || ((stet__claim *)c->host)->wanted > 0);
}

static stet_hint_use
hint_work(stet_engine *e, const stet_hint *hint)
{
    if (!stet__may_claim(e) || (hint->handler[0] != '\0' && stet__handler_find(e, hint->handler) == NULL))
        return STET_HINT_PASS;
    if (stet__room(e) == 0) {
        e->has_backlog = true;
        return STET_HINT_PASS;
    }
    if (!hint_is_wanted(e, &hint->run))
        hint_ask(e, &e->wants_claim);
    return STET_HINT_TAKEN;
}

static void
hint_timer(stet_engine *e, const stet_hint *hint)
{
    int64_t now_ms, when_us, ms = hint->time_ms;

    if (!(e->config.roles & STET_ROLE_TIMERS) || (ms >= e->next_timer_ms && ms >= e->next_sched_ms))
        return;
    now_ms = stet__store_now(e);
    if ((when_us = hint_wait_us(e, stet__mono_us(e->p))) != 0) {
        int64_t least_ms = now_ms + (when_us - stet__mono_us(e->p)) / 1000 + 1;

        ms = ms > least_ms ? ms : least_ms;
    }
    stet__keeper_timer(e, ms);
    stet__keeper_sched(e, ms); /* or it is of a schedule */
}

static stet_hint_use
hint_take(void *arg, const stet_hint *hint)
{
    stet_engine  *e = arg;
    stet_hint_use use = STET_HINT_TAKEN;

    stet__lock(e->p, &e->lock);
    stet__mirror_hint(e);
    switch (hint->kind) {
    case STET_HINT_WORK:
        if (!stet__id_is_zero(hint->run))
            hint_run(e, &hint->run);
        use = hint_work(e, hint);
        break;
    case STET_HINT_TIMER: hint_timer(e, hint); break;
    case STET_HINT_RUN: hint_run(e, &hint->run); break;
    case STET_HINT_ANY:
    default:
        stet__waiters_look_at(e, NULL);
        hint_ask(e, &e->has_hint);
    }
    stet__unlock(e->p, &e->lock);
    return use;
}

/* A store's own that says no more than that something changed: as often as it commits. */
static stet_hint_use
hint_take_store(void *arg, const stet_hint *hint)
{
    (void)hint;
    stet__keeper_on_hint(arg);
    return STET_HINT_TAKEN;
}

int
stet__hint_watch(stet_engine *e)
{
    uint32_t wants = e->config.roles & STET_ROLE_WORKER ? STET_HINT_WANTS_WORK : 0;
    bool     is_precise;
    int      err;

    if (e->is_watching || e->is_polled || (!e->hint_tells && e->store->ops->watch == NULL))
        return STET_OK;
    is_precise = e->hint_tells || e->store->ops->tell != NULL;
    err = e->hint->ops->watch(e->hint, wants, is_precise ? hint_take : hint_take_store, e);
    e->is_watching = err == STET_OK;
    if (err == STET_OK || e->hint_tells) {
        stet__lock(e->p, &e->lock);
        e->hint_tells = is_precise;
        stet__unlock(e->p, &e->lock);
        return err;
    }
    stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, err,
              "the store gives no hints and is asked every %lld ms: %s",
              (long long)(e->config.roles & STET_ROLE_CLIENT ? e->config.wait_poll_ms : e->config.poll_ms),
              stet_last_error());
    return STET_OK;
}

void
stet__hint_unwatch(stet_engine *e)
{
    if (e->is_watching)
        e->hint->ops->unwatch(e->hint);
    e->is_watching = false;
    stet__lock(e->p, &e->lock);
    e->hint_tells = e->hint_tells && e->store->is_mute; /* the store's own commits tell by themselves again */
    stet__unlock(e->p, &e->lock);
}

/* ---- telling --------------------------------------------------------------------------------- */

static void
hint_tell(stet_engine *e, stet_hint_kind kind, const stet_id *run, int64_t time_ms, const char *handler)
{
    stet_hint hint;

    memset(&hint, 0, sizeof hint);
    hint.kind = kind;
    hint.time_ms = time_ms;
    if (run != NULL)
        hint.run = *run;
    if (handler != NULL)
        (void)snprintf(hint.handler, sizeof hint.handler, "%s", handler);
    e->hint->ops->send(e->hint, &hint);
}

void
stet__hint_nudge(stet_engine *e)
{
    hint_tell(e, STET_HINT_ANY, NULL, 0, NULL);
}

static bool
hint_is_ours(stet_engine *e, stet_id run)
{
    return stet__map_find(&e->claims, run.bytes, sizeof run.bytes) != NULL;
}

/* What waiters elsewhere may be answered with: see wait_look(). */
static bool
hint_is_answer(const stet_op *op)
{
    return (op->mask & STET_RUN_STATUS) != 0 &&
           (op->row->is_terminal || op->row->status == STET_STATUS_CANCELLING ||
            op->row->status == STET_STATUS_STUCK || op->row->status == STET_STATUS_COMPENSATION_FAILED);
}

/* Does this operation leave a run due that was not granted to us? *handler: its handler, if that is known. */
static bool
hint_leaves_work(stet_engine *e, const stet_op *op, const stet_outcome *o, const char **handler)
{
    switch (op->kind) {
    case STET_OP_RUN_PUT:
        *handler = op->row->handler;
        return op->row->due_ms != STET_NEVER && !hint_is_ours(e, op->row->id);
    case STET_OP_RUN_SET: /* a retry is ours to remember, unless we go */
        return (op->mask & STET_RUN_OWNER) != 0 && op->row->due_ms != STET_NEVER &&
               e->life != STET__LIFE_STARTED;
    case STET_OP_RUN_WAKE:
    case STET_OP_LANE_ENTER: return (op->flags & STET_OP_DUE) == 0 && !hint_is_ours(e, op->run);
    case STET_OP_LANE_LEAVE: return o->n_grants == 0;
    case STET_OP_REAP:
    case STET_OP_REQUEUE: return true;
    default: return false;
    }
}

void
stet__hint_unit(stet_engine *e, const stet__work *w, const stet_outcome *o)
{
    const char *handler = NULL, *first = NULL;
    stet_id     run = { { 0 } };
    bool        has_work = false, is_mixed = false, is_told = o->is_told || (e->store->tells_commits && !e->store->is_mute);

    for (size_t i = 0; i < w->unit.n_ops; i++) {
        const stet_op *op = &w->ops[i];

        handler = NULL;
        if (hint_leaves_work(e, op, o, &handler)) {
            is_mixed = has_work && (first == NULL || handler == NULL || strcmp(first, handler) != 0);
            first = is_mixed ? NULL : handler;
            run = !has_work && op->kind == STET_OP_RUN_WAKE ? op->run : (stet_id){ { 0 } };
            has_work = true;
        }
        if (op->kind == STET_OP_RUN_SET && hint_is_answer(op) && !(is_told && op->row->is_terminal))
            hint_tell(e, STET_HINT_RUN, &op->row->id, 0, NULL);
        else if (op->kind == STET_OP_INBOX && !hint_is_ours(e, op->run) && !is_told)
            hint_tell(e, STET_HINT_RUN, &op->run, 0, NULL);
        else if (w->has_event && op->kind == STET_OP_VALUE_PUT && strcmp(op->space, STET__SPACE_UPDATE) == 0)
            hint_tell(e, STET_HINT_RUN, &op->run, 0, NULL); /* who asked may wait elsewhere */
        else if (op->kind == STET_OP_TIMER_PUT && !(e->config.roles & STET_ROLE_TIMERS))
            hint_tell(e, STET_HINT_TIMER, NULL, op->fire_ms, NULL);
    }
    if (w->sched_ms != STET_NEVER && (!(e->config.roles & STET_ROLE_TIMERS) || w->is_sched_elsewhere))
        hint_tell(e, STET_HINT_TIMER, NULL, w->sched_ms, NULL);
    if (has_work && !is_told)
        hint_tell(e, STET_HINT_WORK, &run, 0, first);
}
