/* Slots: the threads that execute handlers and bodies, and their queues.
 *
 * A context that never ran waits in the shared queue; any slot takes it and keeps it from then on, so
 * that errno and thread-local state behave. Bodies of futures wait in a queue of their own. A context
 * waits for exactly one thing at a time, and stet__exec_wake() is the only way to go on: the sleeper
 * checks again what it waited for, so a wake too many does no harm and a wake before the sleep is kept
 * in is_woken.
 *
 * Locks: exec->lock for queues, states and wakes; never held while foreign code runs.
 */
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

/* ---- contexts ---------------------------------------------------------------------------------- */

stet_ctx *
stet__exec_new(stet__exec *x, stet_handler_fn fn, void *host)
{
    stet_ctx *c = x->spare;

    if (c != NULL)
        x->spare = c->next;
    else if ((c = stet__get(&x->p->alloc, sizeof *c)) == NULL)
        return NULL;
    memset((char *)c + sizeof c->magic, 0, sizeof *c - sizeof c->magic);
    atomic_store(&c->magic, STET__CTX_MAGIC);
    c->exec = x;
    c->fn = fn;
    c->host = host;
    c->state = STET__CTX_QUEUED;
    stet__arena_init(&c->arena, &x->p->alloc);
    stet__journal_init(&c->journal, &c->arena, &x->p->alloc);
    stet__map_init(&c->state_entries, &x->p->alloc);
    x->n_contexts++;
    return c;
}

static void
slot_free_memory(stet_ctx *c)
{
    stet__journal_free(&c->journal);
    stet__map_free(&c->state_entries);
    while (c->scope != NULL) {
        stet__scope *outer = c->scope->outer;

        stet__arena_free(&c->scope->arena);
        c->scope = outer;
    }
    stet__arena_free(&c->arena);
}

/* With the lock held. The struct stays readable for late misuse of the context. */
static void
slot_retire(stet__exec *x, stet_ctx *c)
{
    c->magic = 0;
    c->next = x->spare;
    x->spare = c;
    x->n_contexts--;
    stet__broadcast(x->p, &x->quiet);
}

void
stet__exec_discard(stet__exec *x, stet_ctx *c)
{
    slot_free_memory(c);
    slot_retire(x, c);
}

/* ---- queues ------------------------------------------------------------------------------------ */

/* Whoever polls may be waiting. */
static void
slot_tell(stet__exec *x)
{
    if (!x->has_threads)
        x->host->look_soon(x);
}

static void
slot_push(stet_ctx **first, stet_ctx **last, stet_ctx *c)
{
    c->next = NULL;
    if (*last != NULL)
        (*last)->next = c;
    else
        *first = c;
    *last = c;
}

static stet_ctx *
slot_pop(stet_ctx **first, stet_ctx **last)
{
    stet_ctx *c = *first;

    if (c != NULL && (*first = c->next) == NULL)
        *last = NULL;
    return c;
}

void
stet__exec_call_any(stet__exec *x)
{
    for (size_t i = 0; x->n_idle > 0 && i < x->n_slots; i++)
        if (x->slots[i].is_idle) {
            x->slots[i].is_idle = false;
            x->n_idle--;
            stet__signal(x->p, &x->slots[i].cond);
            return;
        }
}

/* Wake an idle slot for the shared queues. Not if the processors are at handler code already: those slots come
 * back for more in no time, or go into a body and call another one. Should one stay away, the keeper looks. */
static void
slot_call(stet__exec *x)
{
    if (x->n_idle == 0)
        return;
    if (x->n_slots - x->n_idle >= x->hot_max + atomic_load(&x->n_bodies)) {
        if (!x->is_watched && x->has_threads) {
            x->is_watched = true;
            x->host->look_soon(x);
        }
        return;
    }
    stet__exec_call_any(x);
}

void
stet__exec_submit(stet__exec *x, stet_ctx *c)
{
    c->state = STET__CTX_QUEUED;
    slot_push(&x->first, &x->last, c);
    atomic_fetch_add(&x->n_queued, 1);
    slot_call(x);
    slot_tell(x);
}

/* Foreign code may stay for long, and may be waiting for this very context: then it is for any slot. */
static bool
slot_is_in_code(const stet__slot *slot)
{
    return atomic_load(&slot->current_body) != NULL || (slot->current != NULL && atomic_load(&slot->current->is_inside));
}

void
stet__exec_submit_here(stet__exec *x, stet_ctx *c)
{
    const void *self = x->p->ops->thread_self(x->p);

    for (size_t i = 0; i < x->n_slots; i++) {
        stet__slot *slot = &x->slots[i];

        if (atomic_load(&slot->self) != self)
            continue;
        if (slot_is_in_code(slot))
            break;
        c->state = STET__CTX_QUEUED;
        c->slot = slot;
        slot_push(&slot->first, &slot->last, c);
        slot_tell(x);
        return;
    }
    stet__exec_submit(x, c);
}

static void
slot_queue(stet_ctx *c)
{
    stet__slot *slot = c->slot;

    c->state = STET__CTX_QUEUED;
    c->is_woken = false;
    slot_push(&slot->first, &slot->last, c);
    slot_tell(slot->exec);
    if (slot->is_idle) {
        slot->is_idle = false;
        slot->exec->n_idle--;
        stet__signal(slot->exec->p, &slot->cond);
    } else if (!slot->exec->is_watched && slot->exec->has_threads) {
        slot->exec->is_watched = true;
        slot->exec->host->look_soon(slot->exec);
    }
}

void
stet__exec_wake(stet__exec *x, stet_ctx *c)
{
    (void)x;
    if (c->state == STET__CTX_WAITING)
        slot_queue(c);
    else
        c->is_woken = true;
}

void
stet__exec_let_go(stet__exec *x, stet_ctx *c, int code)
{
    c->is_let_go = true;
    c->let_go_code = code;
    stet__exec_wake(x, c);
}

/* ---- executing --------------------------------------------------------------------------------- */

static void
slot_enter(stet__co *co, void *arg)
{
    stet_ctx *c = arg;

    (void)co;
    c->rc = c->fn(c, c->run.input);
    stet__ctx_returned(c);
    stet__live_over(c);
    stet__ctx_judge(c);
    stet__rollback_after(c);
}

/* For who asks, from another thread, why a run does not go on: the attempt itself is gone as soon as its body returns. */
static void
slot_note_limit(stet__slot *slot, const stet_attempt *a)
{
    stet__limited *l = &slot->limited;

    stet__lock(slot->exec->p, slot->exec->lock);
    l->run = a->ctx->run.id;
    (void)snprintf(l->step, sizeof l->step, "%s", a->step);
    l->occurrence = a->occurrence;
    l->timeout_ms = a->future->timeout_ms;
    stet__unlock(slot->exec->p, slot->exec->lock);
}

const stet__limited *
stet__exec_overrun(stet__exec *x, stet_id run, int64_t now_ms, int64_t *limit_ms)
{
    for (size_t i = 0; i < x->n_slots; i++) {
        const stet__slot *slot = &x->slots[i];

        *limit_ms = atomic_load(&slot->limit_ms);
        if (*limit_ms != 0 && *limit_ms < now_ms && stet__id_equal(slot->limited.run, run))
            return &slot->limited;
    }
    return NULL;
}

static void
slot_run_body(stet__slot *slot, stet_ctx *c, stet_attempt *a)
{
    stet__exec *x = slot->exec;

    a->slot = slot;
    if (a->future->timeout_ms > 0)
        slot_note_limit(slot, a);
    atomic_store(&slot->current_body, a);
    if (c != NULL)
        c->is_in_body = true;
    atomic_fetch_add(&x->n_bodies, 1);
    if (atomic_load(&x->n_queued) > 0) { /* we may be away for long */
        stet__lock(x->p, x->lock);
        slot_call(x);
        stet__unlock(x->p, x->lock);
    }
    /* First the crumb, then the look at the lease, then the body: whoever takes the run over because we
     * stood still in between is told that the body may have been entered. Nothing comes between the look and the
     * body, so the time is taken before. */
    a->took_us = -stet__mono_us(x->p);
    a->lacks = x->host->crumb_set(a->ctx, a) ? 0 : STET_ENOMEM;
    if (a->lacks == 0 && x->host->may_execute(a->ctx)) {
        stet__attempt_run(a);
        a->took_us += stet__mono_us(x->p);
    } else {
        a->took_us = 0;
        a->is_skipped = true;
    }
    atomic_fetch_sub(&x->n_bodies, 1);
    x->host->crumb_rest(a->ctx, a);
    if (c != NULL)
        c->is_in_body = false;
    atomic_store(&slot->current_body, NULL);
}

/* Resume the coroutine; bodies it asks for run here, on the thread's own stack. True: it waits;
 * false: its handler returned. */
static bool
slot_resume(stet__slot *slot, stet_ctx *c)
{
    stet__exec *x = slot->exec;

    for (;;) {
        bool is_alive;

        (void)x->host->crumb_set(c, NULL);
        c->is_inside = true;
        is_alive = stet__co_resume(c->co);
        c->is_inside = false;
        x->host->crumb_rest(c, NULL);
        if (!is_alive)
            return false;
        if (c->yield != STET__YIELD_BODY)
            return true;
        slot_run_body(slot, c, c->job);
    }
}

/* Not while a body of its own is executed, or about to be: what they free may be in its hands. Its end wakes us. False:
 * they have to wait for that. */
static bool
slot_run_exits(stet_ctx *c)
{
    const stet__exec *x = c->exec;
    bool              has_bodies;

    if (c->exits == NULL || !stet__co_is_done(c->co))
        return true;
    stet__lock(x->p, x->lock);
    has_bodies = c->jobs > 0;
    stet__unlock(x->p, x->lock);
    if (has_bodies)
        return false;
    while (c->exits != NULL) {
        stet__exit_hook *hook = c->exits;

        c->exits = hook->next;
        hook->fn(hook->arg);
    }
    return true;
}

/* First turn: load the run, make the coroutine. False: it is not to be executed. */
static bool
slot_begin(stet__slot *slot, stet_ctx *c)
{
    c->thread = slot->exec->p->ops->thread_self(slot->exec->p);
    if (slot->exec->host->begin(c) != STET_OK)
        return false;
    c->is_loaded = true;
    if (c->latch == 0 && (c->co = stet__co_new(&slot->pool, slot_enter, c)) == NULL) {
        c->latch = STET_ENOMEM;
        (void)stet__ctx_fail(c, STET_ENOMEM, 0, "no memory for the handler's stack", NULL, 0);
    }
    return true;
}

/* One turn of a context. True: it is over. Lock not held. */
static bool
slot_turn(stet__slot *slot, stet_ctx *c)
{
    stet__exec *x = slot->exec;

    if (!c->is_loaded && !slot_begin(slot, c))
        return true;
    if (c->is_let_go && c->latch == 0)
        c->latch = STET_SUSPENDED;
    if (c->co != NULL && !stet__co_is_done(c->co)) {
        if (slot_resume(slot, c)) {
            if (c->yield == STET__YIELD_SUSPEND)
                x->host->suspend(c);
            return false;
        }
    }
    /* A body of its own may still run elsewhere; its memory is ours. */
    return slot_run_exits(c) && !x->host->end(c);
}

static void
slot_finish(stet__slot *slot, stet_ctx *c)
{
    stet__exec *x = slot->exec;

    x->host->gone(c);
    if (c->co != NULL)
        stet__co_free(&slot->pool, c->co);
    c->co = NULL;
    slot_free_memory(c);
    stet__lock(x->p, x->lock);
    slot_retire(x, c);
    stet__unlock(x->p, x->lock);
}

static void
slot_execute(stet__slot *slot, stet_ctx *c)
{
    stet__exec *x = slot->exec;
    bool        is_over;

    do {
        is_over = slot_turn(slot, c);
        if (is_over)
            break;
        stet__lock(x->p, x->lock);
        is_over = !c->is_woken;
        c->is_woken = false;
        if (is_over)
            c->state = STET__CTX_WAITING; /* from here on another thread's wake may queue it */
        stet__unlock(x->p, x->lock);
        if (is_over)
            return;
    } while (true);
    slot_finish(slot, c);
}

/* A body of a future, on whatever slot was free. It may have waited long for that. */
static void
slot_execute_body(stet__slot *slot, stet_attempt *a)
{
    stet__exec *x = slot->exec;
    stet_ctx   *c = a->ctx;

    if (c->is_let_go)
        a->is_skipped = true;
    else
        slot_run_body(slot, NULL, a);
    stet__lock(x->p, x->lock);
    a->next = c->finished;
    c->finished = a;
    atomic_store(&c->has_finished, true);
    c->jobs--;
    stet__exec_wake(x, c);
    stet__unlock(x->p, x->lock);
}

/* Will another thread look for work without being called, or when it is called? */
static bool
slot_has_other(const stet__slot *slot)
{
    const stet__exec *x = slot->exec;

    for (size_t i = 0; x->has_threads && i < x->n_slots; i++)
        if (&x->slots[i] != slot && x->slots[i].busy_since_us == 0)
            return true;
    return false;
}

/* A body on the slot of its own handler keeps that one from going on (a time limit, another future), so
 * it is left to any other slot that is free. */
static stet_attempt *
slot_take_body(stet__slot *slot)
{
    stet__exec   *x = slot->exec;
    stet_attempt *before = NULL;
    bool          has_other = x->first_body != NULL && slot_has_other(slot);

    for (stet_attempt *a = x->first_body; a != NULL; before = a, a = a->next) {
        if (has_other && a->ctx->slot == slot)
            continue;
        if (before != NULL)
            before->next = a->next;
        else
            x->first_body = a->next;
        if (x->last_body == a)
            x->last_body = before;
        atomic_fetch_sub(&x->n_queued, 1);
        return a;
    }
    if (x->first_body != NULL)
        stet__exec_call_any(x);
    return NULL;
}

/* Take one piece of work and execute it. Called and returns with the lock held; false: none. */
static bool
slot_work(stet__slot *slot)
{
    stet__exec   *x = slot->exec;
    stet_attempt *a = NULL;
    stet_ctx     *c = slot_pop(&slot->first, &slot->last);
    bool          is_free;

    if (c == NULL && (a = slot_take_body(slot)) == NULL && (c = slot_pop(&x->first, &x->last)) != NULL) {
        c->slot = slot;
        atomic_fetch_sub(&x->n_queued, 1);
    }
    if (c == NULL && a == NULL)
        return false;
    if (c != NULL) {
        c->state = STET__CTX_EXECUTING;
        slot->current = c;
    }
    slot->busy_since_us = stet__mono_us(x->p);
    /* More is waiting than this slot can do now: pass it on. */
    if (x->first_body != NULL)
        stet__exec_call_any(x);
    else if (x->first != NULL)
        slot_call(x);
    stet__unlock(x->p, x->lock);
    if (c != NULL)
        slot_execute(slot, c);
    else
        slot_execute_body(slot, a);
    stet__lock(x->p, x->lock);
    slot->current = NULL;
    slot->busy_since_us = 0;
    /* While other slots execute, more units are about to come: they share the thread's flush. */
    is_free = slot->first == NULL && x->first == NULL && x->first_body == NULL &&
              (!x->has_threads || x->n_idle + 1 == x->n_slots);
    stet__unlock(x->p, x->lock);
    x->host->after_turn(x, is_free);
    stet__lock(x->p, x->lock);
    return true;
}

static void
slot_main(void *arg)
{
    stet__slot *slot = arg;
    stet__exec *x = slot->exec;

    stet__lock(x->p, x->lock);
    atomic_store(&slot->self, x->p->ops->thread_self(x->p));
    for (;;) {
        if (slot_work(slot))
            continue;
        if (x->is_closing)
            break;
        if (!slot->is_idle) {
            slot->is_idle = true;
            x->n_idle++;
        }
        (void)stet__wait(x->p, &slot->cond, x->lock, STET__FOREVER);
        if (slot->is_idle) { /* woken without cause */
            slot->is_idle = false;
            x->n_idle--;
        }
    }
    stet__unlock(x->p, x->lock);
}

bool
stet__exec_run(stet__exec *x)
{
    bool has_done = false;

    stet__lock(x->p, x->lock);
    atomic_store(&x->slots[0].self, x->p->ops->thread_self(x->p));
    while (slot_work(&x->slots[0]))
        has_done = true;
    stet__unlock(x->p, x->lock);
    return has_done;
}

int64_t
stet__exec_unstall(stet__exec *x, int64_t now_us, int64_t stall_us,
                   bool (*replay)(void *arg, stet_ctx *c), void *arg)
{
    int64_t next_us = STET__FOREVER;
    bool    is_waited_for = x->n_idle > 0 && (x->first != NULL || x->first_body != NULL);

    for (size_t i = 0; i < x->n_slots; i++) {
        stet__slot *slot = &x->slots[i];

        if ((slot->first == NULL && !is_waited_for) || slot->busy_since_us == 0)
            continue;
        if (now_us - slot->busy_since_us < stall_us) {
            if (slot->busy_since_us + stall_us < next_us)
                next_us = slot->busy_since_us + stall_us;
            continue;
        }
        if (is_waited_for) {
            stet__exec_call_any(x);
            is_waited_for = x->n_idle > 0;
        }
        for (stet_ctx *c = slot->first; c != NULL; c = c->next)
            if (!c->is_let_go && x->n_idle > 0 && replay(arg, c)) {
                c->is_let_go = true;
                c->let_go_code = STET_SUSPENDED;
            }
        /* One that could not be moved yet (its belief or record is out) may be able to soon. */
        for (stet_ctx *c = slot->first; c != NULL; c = c->next)
            if (!c->is_let_go && now_us + 4 * stall_us < next_us)
                next_us = now_us + 4 * stall_us;
    }
    x->is_watched = next_us != STET__FOREVER;
    return next_us;
}

/* ---- life -------------------------------------------------------------------------------------- */

int
stet__exec_init(stet__exec *x, stet__platform *p, const stet__host_ops *host, stet__mutex *lock,
                size_t n_slots, size_t stack_bytes)
{
    int err;

    memset(x, 0, sizeof *x);
    x->p = p;
    x->host = host;
    x->lock = lock;
    x->stack_bytes = stack_bytes;
    x->hot_max = p->ops->processors(p);
    if (x->hot_max > 1)
        x->hot_max--; /* one is for who commits */
    if ((err = p->ops->cond_init(p, &x->quiet)) != STET_OK)
        return err;
    if ((x->slots = stet__get0(&p->alloc, n_slots * sizeof *x->slots)) == NULL) {
        p->ops->cond_destroy(p, &x->quiet);
        return stet__fail(STET_ENOMEM, "out of memory for %zu slots", n_slots);
    }
    for (size_t i = 0; i < n_slots; i++) {
        stet__slot *slot = &x->slots[i];

        slot->exec = x;
        if ((err = p->ops->cond_init(p, &slot->cond)) != STET_OK) {
            stet__exec_free(x);
            return err;
        }
        stet__co_pool_init(&slot->pool, &p->alloc, stack_bytes, 256);
        x->n_slots++;
    }
    return STET_OK;
}

int
stet__exec_start(stet__exec *x)
{
    int err = STET_OK;

    x->is_closing = false;
    for (size_t i = 0; i < x->n_slots && err == STET_OK; i++)
        err = x->p->ops->thread_start(x->p, &x->slots[i].thread, "stet-slot", slot_main, &x->slots[i]);
    x->has_threads = true;
    return err;
}

void
stet__exec_close(stet__exec *x)
{
    stet__lock(x->p, x->lock);
    x->is_closing = true;
    for (size_t i = 0; i < x->n_slots; i++)
        stet__signal(x->p, &x->slots[i].cond);
    stet__unlock(x->p, x->lock);
    for (size_t i = 0; i < x->n_slots; i++)
        if (x->slots[i].thread != NULL) {
            x->p->ops->thread_join(x->p, x->slots[i].thread);
            x->slots[i].thread = NULL;
        }
    x->has_threads = false;
}

void
stet__exec_free(stet__exec *x)
{
    if (x->slots == NULL)
        return;
    for (size_t i = 0; i < x->n_slots; i++) {
        stet__co_pool_free(&x->slots[i].pool);
        x->p->ops->cond_destroy(x->p, &x->slots[i].cond);
    }
    stet__free(&x->p->alloc, x->slots);
    x->slots = NULL;
    while (x->spare != NULL) {
        stet_ctx *c = x->spare;

        x->spare = c->next;
        stet__free(&x->p->alloc, c);
    }
    x->p->ops->cond_destroy(x->p, &x->quiet);
}
