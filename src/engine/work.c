/* Building units. A unit owns the memory of everything it mentions, so it can be submitted again. */
#include <string.h>

#include "engine/engine.h"

/* ---- memory ---------------------------------------------------------------------------------------- */

#define WORK_SPARE_MAX   256u
#define WORK_KEPT_BYTES  4096u /* of each of the two */
/* A sanitizer can only tell of one that is used after it was given back if it was. */
#ifdef STET__ASAN
#define WORK_IS_WATCHED true
#else
#define WORK_IS_WATCHED false
#endif

int
stet__works_init(stet_engine *e)
{
    return e->p->ops->mutex_init(e->p, &e->works.lock);
}

static void
work_drop(stet__work *w)
{
    stet__alloc *alloc = w->arena.alloc;

    stet__buf_free(&w->facts);
    stet__arena_free(&w->arena);
    stet__free(alloc, w);
}

void
stet__works_free(stet_engine *e)
{
    while (e->works.first != NULL) {
        stet__work *w = e->works.first;

        e->works.first = w->next;
        work_drop(w);
    }
    e->p->ops->mutex_destroy(e->p, &e->works.lock);
}

/* Units are made on one thread and given back on another, which allocators do not like. */
static stet__work *
work_spare(stet_engine *e)
{
    stet__work *w;
    stet__arena arena;
    stet__buf   facts;

    stet__lock(e->p, &e->works.lock);
    if ((w = e->works.first) != NULL) {
        e->works.first = w->next;
        e->works.n--;
    }
    stet__unlock(e->p, &e->works.lock);
    if (w == NULL)
        return NULL;
    arena = w->arena;
    facts = w->facts;
    memset(w, 0, sizeof *w);
    w->arena = arena;
    w->facts = facts;
    return w;
}

/* Empty, as the next one wants it. */
static void
work_empty(stet__work *w)
{
    stet__arena_reuse(&w->arena, WORK_KEPT_BYTES);
    if (w->facts.cap > WORK_KEPT_BYTES || w->facts.failed)
        stet__buf_free(&w->facts);
    w->facts.len = 0;
}

/* A list of them, linked by `next`, all at once: whoever makes the next one waits for this lock. */
static void
work_give_back(stet_engine *e, stet__work *list)
{
    stet__work *w;

    stet__lock(e->p, &e->works.lock);
    while ((w = list) != NULL && e->works.n < WORK_SPARE_MAX) {
        list = w->next;
        w->next = e->works.first;
        e->works.first = w;
        e->works.n++;
    }
    stet__unlock(e->p, &e->works.lock);
    while ((w = list) != NULL) {
        list = w->next;
        work_drop(w);
    }
}

stet__work *
stet__work_new(stet_engine *e, stet__work_fn done, void *arg)
{
    stet__work *w = work_spare(e);

    if (w == NULL) {
        if ((w = stet__get0(&e->p->alloc, sizeof *w)) == NULL) {
            (void)stet__fail(STET_ENOMEM, "out of memory for a unit");
            return NULL;
        }
        stet__arena_init(&w->arena, &e->p->alloc);
        stet__buf_init(&w->facts, &e->p->alloc);
    }
    w->engine = e;
    w->done = done;
    w->arg = arg;
    w->timer_ms = STET_NEVER;
    w->sched_ms = STET_NEVER;
    w->room = &e->asked;
    return w;
}

/* Nobody has it any more. False: it is not to be kept, and gone. */
static bool
work_end(stet__work *w)
{
    stet__work_ask(w, -(int)w->asked);
    if (w->drop != NULL)
        w->drop(w->drop_arg);
    if (w->arena.alloc->is_tight || WORK_IS_WATCHED) {
        work_drop(w);
        return false;
    }
    work_empty(w);
    return true;
}

void
stet__work_free(stet__work *w)
{
    if (w == NULL || !work_end(w))
        return;
    w->next = NULL;
    work_give_back(w->engine, w);
}

void
stet__work_free_all(stet_engine *e, stet__work **works, size_t n)
{
    stet__work *list = NULL;

    for (size_t i = 0; i < n; i++)
        if (works[i] != NULL && work_end(works[i])) {
            works[i]->next = list;
            list = works[i];
        }
    if (list != NULL)
        work_give_back(e, list);
}

/* ---- building -------------------------------------------------------------------------------------- */

static void *
work_grow(stet__work *w, void *old, size_t n, size_t *cap, size_t size)
{
    size_t more = stet__cap_next(w->arena.alloc, *cap, 4);
    void  *grown;

    if (n < *cap)
        return old;
    if ((grown = stet__arena_get(&w->arena, more * size)) == NULL)
        return NULL;
    if (n > 0)
        memcpy(grown, old, n * size);
    *cap = more;
    return grown;
}

stet_cond *
stet__work_cond(stet__work *w, stet_cond_kind kind, stet_id run)
{
    void      *grown = work_grow(w, w->conds, w->unit.n_conds, &w->cap_conds, sizeof *w->conds);
    stet_cond *cond;

    if (grown == NULL)
        return NULL;
    w->conds = grown;
    cond = &w->conds[w->unit.n_conds++];
    memset(cond, 0, sizeof *cond);
    cond->kind = kind;
    cond->run = run;
    return cond;
}

stet_op *
stet__work_op(stet__work *w, stet_op_kind kind, stet_id run)
{
    void    *grown = work_grow(w, w->ops, w->unit.n_ops, &w->cap_ops, sizeof *w->ops);
    stet_op *op;

    if (grown == NULL)
        return NULL;
    w->ops = grown;
    op = &w->ops[w->unit.n_ops++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->run = run;
    return op;
}

bool
stet__work_bytes(stet__work *w, stet_bytes *out, stet_bytes from)
{
    out->data = stet__arena_copy(&w->arena, from.data, from.len);
    out->len = from.len;
    return out->data != NULL;
}

bool
stet__work_fact(stet__work *w, stet_bytes *out, const stet__fact *fact)
{
    stet__buf b;
    bool      ok;

    stet__buf_init(&b, w->arena.alloc);
    stet__fact_encode(&b, fact);
    ok = !b.failed && stet__work_bytes(w, out, stet__buf_bytes(&b));
    stet__buf_free(&b);
    return ok;
}

bool
stet__work_timer(stet__work *w, stet_id run, int64_t fire_ms, uint64_t completion)
{
    stet_op *op = stet__work_op(w, STET_OP_TIMER_PUT, run);

    if (op == NULL)
        return false;
    op->fire_ms = fire_ms;
    op->number = completion;
    if (fire_ms < w->timer_ms)
        w->timer_ms = fire_ms;
    return true;
}

bool
stet__work_timer_gone(stet__work *w, stet_id run, int64_t fire_ms, uint64_t completion)
{
    stet_op *op = stet__work_op(w, STET_OP_TIMER_DEL, run);

    if (op == NULL)
        return false;
    op->fire_ms = fire_ms;
    op->number = completion;
    return true;
}

bool
stet__may_claim(stet_engine *e)
{
    return e->session != 0 && e->life == STET__LIFE_STARTED && atomic_load(&e->served) != NULL && atomic_load(&e->served)->n > 0 && !e->is_poisoned &&
           (e->config.roles & STET_ROLE_WORKER) != 0 && stet__lease_holds(e);
}

size_t
stet__room(stet_engine *e)
{
    size_t taken = atomic_load(&e->in_flight) + atomic_load(&e->asked), most = (size_t)e->config.in_flight_max;

    return taken < most ? most - taken : 0;
}

void
stet__work_ask(stet__work *w, int n)
{
    w->asked += (size_t)n;
    if (n != 0)
        atomic_fetch_add(w->room, (size_t)n);
}

const stet_claimer *
stet__work_claims(stet__work *w, uint64_t session)
{
    const stet__served *served = atomic_load(&w->engine->served);

    w->claimer.session = session;
    w->claimer.running_status = STET_STATUS_RUNNING;
    w->claimer.handlers = served->names;
    w->claimer.n_handlers = served->n;
    return &w->claimer;
}

const stet_claimer *
stet__work_claimer(stet_engine *e, stet__work *w)
{
    bool was_left = w->is_left;

    w->is_left = true;
    if (!stet__may_claim(e))
        return NULL;
    if (stet__room(e) == 0 || e->is_polled) {
        e->has_backlog = true;
        return NULL;
    }
    w->is_left = was_left;
    stet__work_ask(w, 1);
    return stet__work_claims(w, e->session);
}

bool
stet__work_wake_locked(stet__work *w, stet_id run, stet_status status, uint32_t flags)
{
    stet_op *op = stet__work_op(w, STET_OP_RUN_WAKE, run);

    if (op == NULL)
        return false;
    op->status = status;
    op->flags = flags;
    op->claimer = stet__work_claimer(w->engine, w);
    return true;
}

bool
stet__work_wake(stet__work *w, stet_id run, stet_status status, uint32_t flags)
{
    stet_engine *e = w->engine;
    bool         ok;

    stet__lock(e->p, &e->lock);
    ok = stet__work_wake_locked(w, run, status, flags);
    stet__unlock(e->p, &e->lock);
    return ok;
}

void
stet__work_seal(stet__work *w)
{
    w->unit.conds = w->conds;
    w->unit.ops = w->ops;
    for (size_t i = 0; i < w->unit.n_ops; i++)
        if (w->ops[i].kind == STET_OP_FACTS && w->ops[i].data.data == NULL) {
            w->ops[i].data = stet__buf_bytes(&w->facts);
            w->ops[i].number = w->first;
            w->ops[i].count = w->n_facts;
        }
    w->is_sealed = true;
}
