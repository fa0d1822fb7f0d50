/* Handlers and services that are paused: no worker takes a run of them, and none resumes one. What is being
 * executed goes on until it waits or ends.
 *
 * A pause is a value that no run's facts tell of, so it is a baseline. Each engine reads them before it takes its
 * first run and with every sweep, and leaves those handlers out of what it claims.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define HOLD_PAGE 256u
#define HOLD_MAX 10000u /* looked at; more is no list anybody keeps */

/* "orders.checkout" is held by a pause of itself or of "orders". */
static bool
hold_covers(stet_bytes held, const char *handler)
{
    return strncmp(handler, held.data, held.len) == 0 && (handler[held.len] == '\0' || handler[held.len] == '.');
}

/* ---- what this engine serves --------------------------------------------------------------------- */

typedef struct hold_look {
    stet_engine *e;
    bool        *is_held; /* by handler */
    size_t       rows, n;
    stet__arena  arena;
    stet_bytes   after;
    bool         failed;
    stet_paused_fn fn; /* or NULL */
    void          *arg;
} hold_look;

static int
hold_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    hold_look *l = arg;

    (void)value;
    l->rows++;
    l->n++;
    l->after.len = key.len;
    if ((l->after.data = stet__arena_copy(&l->arena, key.data, key.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    for (size_t i = 0; l->is_held != NULL && i < l->e->n_handlers; i++)
        l->is_held[i] = l->is_held[i] || hold_covers(l->after, l->e->handlers[i].name);
    return STET_OK;
}

static int
hold_read(hold_look *l, stet_value_fn fn)
{
    stet_store *store = l->e->store;
    int         err;

    do {
        stet_bytes after = l->after;

        l->rows = 0;
        err = store->ops->values(store, STET__SPACE_BASE_PAUSED, (stet_bytes){ NULL, 0 }, after.data != NULL ? &after : NULL,
                                 HOLD_PAGE, fn, l);
    } while (err == STET_OK && l->rows == HOLD_PAGE && l->n < HOLD_MAX);
    return err;
}

/* Lists that were in use may be in a unit that is on its way: they go when the engine does. Lock held. */
static bool
hold_publish(stet_engine *e, const bool *is_held)
{
    stet__served *old = atomic_load(&e->served);
    stet__served *served;
    size_t        n = 0;

    for (size_t i = 0; i < e->n_handlers; i++)
        n += !is_held[i];
    if (old != NULL && old->n == n) {
        bool   is_same = true;
        size_t at = 0;

        for (size_t i = 0; i < e->n_handlers && is_same; i++)
            if (!is_held[i])
                is_same = old->names[at++] == e->handlers[i].name;
        if (is_same)
            return true;
    }
    if ((served = stet__get(&e->p->alloc, sizeof *served + e->n_handlers * sizeof *served->names)) == NULL)
        return false;
    served->n = 0;
    served->older = old;
    for (size_t i = 0; i < e->n_handlers; i++)
        if (!is_held[i])
            served->names[served->n++] = e->handlers[i].name;
    atomic_store(&e->served, served);
    return true;
}

int
stet__hold_look(stet_engine *e)
{
    hold_look l = { .e = e };
    uint64_t  look;
    bool      was_fewer;
    int       err = STET_OK;

    if (e->n_handlers == 0)
        return STET_OK;
    stet__arena_init(&l.arena, &e->p->alloc);
    if ((l.is_held = stet__get0(&e->p->alloc, e->n_handlers * sizeof *l.is_held)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    stet__lock(e->p, &e->lock);
    look = ++e->hold_begun;
    stet__unlock(e->p, &e->lock);
    err = hold_read(&l, hold_on_value);
    stet__lock(e->p, &e->lock);
    /* A sweep may have read what was there before a caller's pause, and come behind what that caller was told. */
    if (err == STET_OK && look > e->hold_heeded) {
        e->hold_heeded = look;
        if (STET__MUTANT(hold_late) && atomic_load(&e->served) == NULL)
            memset(l.is_held, 0, e->n_handlers * sizeof *l.is_held);
        was_fewer = atomic_load(&e->served) != NULL && atomic_load(&e->served)->n < e->n_handlers;
        if (!hold_publish(e, l.is_held))
            err = stet__fail(STET_ENOMEM, "out of memory");
        else if (was_fewer) /* some may have been resumed */
            e->wants_claim = true;
    }
    stet__unlock(e->p, &e->lock);
    stet__free(&e->p->alloc, l.is_held);
    stet__arena_free(&l.arena);
    return err;
}

bool
stet__is_served(stet_engine *e, const char *handler)
{
    const stet__served *served = atomic_load(&e->served);

    for (size_t i = 0; i < served->n; i++)
        if (strcmp(served->names[i], handler) == 0)
            return true;
    return false;
}

bool
stet__is_held(stet_engine *e, const char *handler)
{
    return atomic_load(&e->served)->n < e->n_handlers && !stet__is_served(e, handler);
}

void
stet__hold_free(stet_engine *e)
{
    for (stet__served *served = atomic_load(&e->served), *older; served != NULL; served = older) {
        older = served->older;
        stet__free(&e->p->alloc, served);
    }
    atomic_store(&e->served, NULL);
}

/* ---- pausing and resuming -------------------------------------------------------------------------- */

static int
hold_check(stet_engine *e, const char *call, const char *what, const char *by, const char *why)
{
    const char *dot = what != NULL ? strchr(what, '.') : NULL;
    int         err;

    if ((err = stet__alive(e, call)) != STET_OK)
        return err;
    if (what == NULL || *what == '\0')
        return stet__fail(STET_ENAME, "%s: say which handler (\"orders.checkout\") or service (\"orders\")", call);
    if ((err = stet__name_check(dot != NULL ? "handler" : "service", what)) != STET_OK)
        return err;
    return stet__said_check(by, why);
}

/* The value as it is, to be freed, and a unit that holds only while it is that. */
static int
hold_begin(stet_engine *e, const char *what, stet_value *v, stet__work **w)
{
    stet_cond *cond = NULL;
    int        err = e->store->ops->value(e->store, STET__SPACE_BASE_PAUSED, stet_text(what), v);

    if (err != STET_OK && err != STET_ENOTFOUND)
        return err;
    if ((*w = stet__work_new(e, NULL, NULL)) == NULL || (cond = stet__work_cond(*w, STET_COND_VALUE, (stet_id){ { 0 } })) == NULL ||
        !stet__work_bytes(*w, &cond->key, stet_text(what))) {
        stet__work_free(*w);
        stet__free(e->store->alloc, (void *)(uintptr_t)v->data.data);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    cond->space = STET__SPACE_BASE_PAUSED;
    cond->number = v->version;
    return STET_OK;
}

/* What a caller is told holds on this worker from now on, also if another one was first and nothing is to be written. */
static void
hold_heed(stet_engine *e, stet__work *unused)
{
    stet__work_free(unused);
    (void)stet__hold_look(e); /* or with the next sweep */
    stet__lock(e->p, &e->lock);
    stet__keeper_poke(e);
    stet__unlock(e->p, &e->lock);
}

static int
hold_end(stet_engine *e, stet__work *w, const char *what)
{
    int err = stet__commit_sync(e, w, NULL);

    if (err == STET_ECONFLICT)
        return stet__fail(STET_EBUSY, "%s was paused or resumed just now; look again", what);
    if (err == STET_OK)
        hold_heed(e, NULL);
    return err;
}

static int
hold_refused(stet_bytes data, const char *what)
{
    stet__fact said;
    char       when[STET__UTC_MAX];

    if (stet__fact_decode(&said, &data) != STET_OK)
        return stet__fail(STET_ESETTLED, "%s is paused already", what);
    return stet__fail(STET_ESETTLED, "%s was paused%s%.*s at %s%s%.*s", what, said.who.len > 0 ? " by " : "",
                      (int)said.who.len, said.who.len > 0 ? (const char *)said.who.data : "",
                      stet__utc_text(when, said.time_ms), said.text.len > 0 ? ": " : "", (int)said.text.len,
                      said.text.len > 0 ? (const char *)said.text.data : "");
}

int
stet_handler_pause(stet_engine *e, const char *what, const char *by, const char *why)
{
    stet__fact  fact = { .kind = STET__FACT_PAUSE };
    stet_value  v = { 0 };
    stet__work *w;
    stet_op    *op = NULL;
    int         err;

    if ((err = hold_check(e, "stet_handler_pause", what, by, why)) != STET_OK ||
        (err = hold_begin(e, what, &v, &w)) != STET_OK)
        return err;
    if (v.version != 0) {
        hold_heed(e, w);
        err = hold_refused(v.data, what);
    }
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    if (err != STET_OK)
        return err;
    fact.time_ms = stet__store_now(e);
    if (by != NULL)
        fact.who = stet_text(by);
    if (why != NULL)
        fact.text = stet_text(why);
    if ((op = stet__work_op(w, STET_OP_VALUE_PUT, (stet_id){ { 0 } })) == NULL ||
        !stet__work_bytes(w, &op->key, stet_text(what)) || !stet__work_fact(w, &op->data, &fact)) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    op->space = STET__SPACE_BASE_PAUSED;
    return hold_end(e, w, what);
}

typedef struct hold_near {
    stet__near near;
    char       best[STET__NAME_MAX + 1], service[STET__NAME_MAX + 1];
    size_t     n;
} hold_near;

static int
hold_on_near(void *arg, const stet_paused *paused)
{
    hold_near *l = arg;

    l->n++;
    l->near.name = NULL;
    stet__near_offer(&l->near, paused->what);
    if (l->near.name != NULL)
        (void)snprintf(l->best, sizeof l->best, "%s", paused->what);
    if (hold_covers(stet_text(paused->what), l->near.typed))
        (void)snprintf(l->service, sizeof l->service, "%s", paused->what);
    return STET_OK;
}

/* What is, then? */
static int
hold_not_paused(stet_engine *e, const char *what)
{
    hold_near l = { .n = 0 };

    stet__near_begin(&l.near, what, strlen(what));
    if (stet_paused_list(e, hold_on_near, &l) != STET_OK)
        return stet__fail(STET_ENOTFOUND, "%s is not paused", what);
    if (l.service[0] != '\0')
        return stet__fail(STET_ENOTFOUND, "%s is not paused itself, but its service: `stet resume --service %s`", what, l.service);
    if (l.best[0] != '\0')
        return stet__fail(STET_ENOTFOUND, "%s is not paused; did you mean %s?", what, l.best);
    return stet__fail(STET_ENOTFOUND, "%s is not paused%s", what, l.n > 0 ? "; `stet pause` lists what is" : ", and nothing else is");
}

int
stet_handler_resume(stet_engine *e, const char *what, const char *by, const char *why)
{
    stet_value  v = { 0 };
    stet__work *w;
    stet_op    *op = NULL;
    int         err;

    if ((err = hold_check(e, "stet_handler_resume", what, by, why)) != STET_OK ||
        (err = hold_begin(e, what, &v, &w)) != STET_OK)
        return err;
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    if (v.version == 0) {
        hold_heed(e, w);
        return hold_not_paused(e, what);
    }
    if ((op = stet__work_op(w, STET_OP_VALUE_DEL, (stet_id){ { 0 } })) == NULL ||
        !stet__work_bytes(w, &op->key, stet_text(what))) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    op->space = STET__SPACE_BASE_PAUSED;
    if ((err = hold_end(e, w, what)) == STET_OK)
        stet__log(e, STET_LOG_INFO, NULL, what, NULL, 0, "%s was resumed%s%s%s%s", what, by != NULL ? " by " : "",
                  by != NULL ? by : "", why != NULL ? ": " : "", why != NULL ? why : "");
    return err;
}

static int
hold_on_listed(void *arg, stet_bytes key, const stet_value *value)
{
    hold_look  *l = arg;
    stet_paused paused = { 0 };
    stet_bytes  in = value->data;
    stet__fact  said;
    int         err = hold_on_value(arg, key, value);

    if (err != STET_OK)
        return err;
    paused.what = l->after.data;
    if (stet__fact_decode(&said, &in) == STET_OK) {
        paused.since_ms = said.time_ms;
        paused.by = said.who.data != NULL ? stet__arena_copy(&l->arena, said.who.data, said.who.len) : NULL;
        paused.why = said.text.data != NULL ? stet__arena_copy(&l->arena, said.text.data, said.text.len) : NULL;
    }
    return l->fn(l->arg, &paused);
}

int
stet_paused_list(stet_engine *e, stet_paused_fn fn, void *arg)
{
    hold_look l = { .e = e, .fn = fn, .arg = arg };
    int       err;

    if ((err = stet__alive(e, "stet_paused_list")) != STET_OK)
        return err;
    stet__arena_init(&l.arena, &e->p->alloc);
    err = hold_read(&l, hold_on_listed);
    stet__arena_free(&l.arena);
    return err;
}

static int
hold_on_holder(void *arg, const stet_paused *paused)
{
    stet__held_by *by = arg;

    if (!hold_covers(stet_text(paused->what), by->handler))
        return STET_OK;
    (void)snprintf(by->text, sizeof by->text, "%s is paused%s%s%s%s", paused->what, paused->by != NULL ? " by " : "",
                   paused->by != NULL ? paused->by : "", paused->why != NULL ? ": " : "",
                   paused->why != NULL ? paused->why : "");
    (void)snprintf(by->what, sizeof by->what, "%s", paused->what);
    by->since_ms = paused->since_ms;
    return STET_END;
}

int
stet__hold_find(stet_engine *e, stet__held_by *by)
{
    int err = stet_paused_list(e, hold_on_holder, by);

    return err == STET_END ? STET_OK : err;
}
