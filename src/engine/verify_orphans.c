/* What belongs to runs that are not there: values and timers that were left behind.
 *
 * Retention removes a run with all that is its own, in one unit, so what is found without its run
 * is damage: a key that would be answered with a run nobody has, a timer that would fire for
 * nobody. The store goes on meanwhile, so what looks like it is read again when its run is not
 * there.
 */
#include "engine/verify.h"

#define ORPHAN_PAGE 256u
#define ORPHAN_TIMERS 1000000000u /* all of them */

static int
orphan_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory while looking for what was left behind");
}

static int
orphan_value(verify *v, const char *space, stet_bytes key, stet_value *value)
{
    int err = v->e->store->ops->value(v->e->store, space, key, value);

    return err == STET_ENOTFOUND ? STET_OK : err;
}

/* ---- the run --------------------------------------------------------------------------------- */

static int
orphan_on_row(void *arg, const stet_run_row *row)
{
    (void)arg;
    (void)row;
    return STET_OK;
}

static int
orphan_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    (void)first;
    (void)count;
    (void)facts;
    *(bool *)arg = true;
    return STET_END;
}

/* Neither row nor facts: one that only lost its row was told. */
static int
orphan_is_gone(verify *v, stet_id run, bool *is_gone)
{
    stet_store *store = v->e->store;
    bool        has_facts = false;
    int         err = store->ops->run(store, run, orphan_on_row, NULL);

    *is_gone = false;
    if (err != STET_ENOTFOUND)
        return err;
    err = store->ops->journal(store, run, 1, 1, orphan_on_facts, &has_facts);
    *is_gone = !has_facts;
    return err == STET_END ? STET_OK : err;
}

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct owned {
    struct owned *next;
    stet_bytes    key;
    stet_id       run;
    uint64_t      version;
} owned;

typedef struct owned_page {
    stet__arena arena;
    owned      *last; /* newest first */
    size_t      n;
} owned_page;

static int
owned_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    owned_page *page = arg;
    owned      *o = stet__arena_get0(&page->arena, sizeof *o);

    if (o == NULL || (o->key.data = stet__arena_copy(&page->arena, key.data, key.len)) == NULL)
        return orphan_no_memory();
    o->key.len = key.len;
    o->run = value->run;
    o->version = value->version;
    o->next = page->last;
    page->last = o;
    page->n++;
    return STET_OK;
}

static int
owned_repair(verify *v, const char *space, const owned *o)
{
    stet__work *w = stet__work_new(v->e, NULL, NULL);
    stet_cond  *cond;
    stet_op    *op;
    bool ok = w != NULL && stet__work_cond(w, STET_COND_JOURNAL, o->run) != NULL; /* no such run */

    if (ok && (ok = (cond = stet__work_cond(w, STET_COND_VALUE, o->run)) != NULL &&
                    (op = stet__work_op(w, STET_OP_VALUE_DEL, o->run)) != NULL &&
                    stet__work_bytes(w, &cond->key, o->key))) {
        cond->space = op->space = space;
        cond->number = o->version;
        op->key = cond->key;
    }
    if (!ok) {
        stet__work_free(w);
        return orphan_no_memory();
    }
    return stet__commit_sync(v->e, w, NULL);
}

static int
owned_check(verify *v, const char *space, const owned *o)
{
    stet_value value = { 0 };
    bool       is_gone;
    int        err = orphan_is_gone(v, o->run, &is_gone), repaired = STET_ECONFLICT;

    if (err != STET_OK || !is_gone || (err = orphan_value(v, space, o->key, &value)) != STET_OK)
        return err;
    stet__free(v->e->store->alloc, (void *)(uintptr_t)value.data.data);
    if (value.version != o->version || !stet__id_equal(value.run, o->run))
        return STET_OK;
    if (v->is_repairing && (repaired = owned_repair(v, space, o)) != STET_OK &&
        repaired != STET_ECONFLICT)
        return repaired;
    (void)stet__verify_bad(v, "value", 0, "a value in \"%s\" is of this run, which is not there",
                           space);
    return stet__verify_tell(v, &o->run, repaired == STET_OK);
}

static int
owned_space(verify *v, const char *space)
{
    stet_store *store = v->e->store;
    stet_bytes  all = { NULL, 0 }, after = { NULL, 0 };
    owned_page  pages[2] = { { .n = 0 } };
    int         err, at = 0;

    stet__arena_init(&pages[0].arena, &v->e->p->alloc);
    stet__arena_init(&pages[1].arena, &v->e->p->alloc);
    do {
        owned_page *page = &pages[at];

        stet__arena_free(&page->arena); /* `after` is in the other one */
        page->last = NULL;
        page->n = 0;
        err = store->ops->values(store, space, all, after.data != NULL ? &after : NULL, ORPHAN_PAGE,
                                 owned_on_value, page);
        for (const owned *o = page->last; err == STET_OK && o != NULL; o = o->next)
            err = owned_check(v, space, o);
        if (page->last != NULL)
            after = page->last->key;
        at = !at;
    } while (err == STET_OK && pages[!at].n == ORPHAN_PAGE);
    stet__arena_free(&pages[0].arena);
    stet__arena_free(&pages[1].arena);
    return err;
}

int
stet__verify_owned(verify *v)
{
    static const char *const spaces[] = { STET__SPACE_IDEM,      STET__SPACE_LABEL,
                                          STET__SPACE_AWAKEABLE, STET__SPACE_RETRY,
                                          STET__SPACE_DISCARD,   STET__SPACE_BASE_DISCARD,
                                          STET__SPACE_TOPIC,     STET__SPACE_BOUNDARY,
                                          STET__SPACE_UPDATE,    STET__SPACE_BASE_UPDATE,
                                          STET__SPACE_BASE_TOLD, STET__SPACE_BASE_UNTOLD };
    int                      err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < sizeof spaces / sizeof spaces[0]; i++)
        err = owned_space(v, spaces[i]);
    return err;
}

/* ---- timers ---------------------------------------------------------------------------------- */

typedef struct left_timer {
    struct left_timer *next;
    stet_timer         timer;
} left_timer;

typedef struct left_timers {
    verify      *v;
    stet__arena  arena;
    left_timer  *first, **end; /* as they will fire */
} left_timers;

/* Most are of runs that verify has just seen; of the others the store is asked. */
static int
left_on_timer(void *arg, const stet_timer *timer)
{
    left_timers *left = arg;
    left_timer  *t;

    if (stet__map_find(&left->v->timed, timer->run.bytes, sizeof timer->run.bytes) != NULL)
        return STET_OK;
    if ((t = stet__arena_get0(&left->arena, sizeof *t)) == NULL)
        return orphan_no_memory();
    t->timer = *timer;
    *left->end = t;
    left->end = &t->next;
    return STET_OK;
}

typedef struct left_seek {
    const stet_timer *timer;
    bool              found;
} left_seek;

static int
left_on_seek(void *arg, const stet_timer *timer)
{
    left_seek *s = arg;

    s->found = s->found || (timer->fire_ms == s->timer->fire_ms &&
                            timer->completion == s->timer->completion);
    return STET_OK;
}

static int
left_repair(verify *v, const stet_timer *t)
{
    stet__work *w = stet__work_new(v->e, NULL, NULL);
    stet_cond  *cond = NULL;
    stet_op    *op;

    if (w == NULL || stet__work_cond(w, STET_COND_JOURNAL, t->run) == NULL || /* no such run */
        (cond = stet__work_cond(w, STET_COND_TIMER, t->run)) == NULL ||
        (op = stet__work_op(w, STET_OP_TIMER_DEL, t->run)) == NULL) {
        stet__work_free(w);
        return orphan_no_memory();
    }
    cond->fire_ms = op->fire_ms = t->fire_ms;
    cond->number = op->number = t->completion;
    return stet__commit_sync(v->e, w, NULL);
}

static int
left_check(verify *v, const stet_timer *t)
{
    stet_store *store = v->e->store;
    left_seek   seek = { .timer = t };
    bool        is_gone;
    int64_t     in_ms = t->fire_ms - stet__store_now(v->e);
    char        when[64];
    int         err = orphan_is_gone(v, t->run, &is_gone), repaired = STET_ECONFLICT;

    if (err != STET_OK || !is_gone)
        return err;
    if ((err = store->ops->timers_of(store, t->run, left_on_seek, &seek)) != STET_OK || !seek.found)
        return err;
    if (v->is_repairing && (repaired = left_repair(v, t)) != STET_OK && repaired != STET_ECONFLICT)
        return repaired;
    (void)stet__verify_bad(v, "timer", 0, "a timer due in %s is of this run, which is not there",
                           stet_duration_text(when, sizeof when, in_ms > 0 ? in_ms : 0));
    return stet__verify_tell(v, &t->run, repaired == STET_OK);
}

int
stet__verify_timers_left(verify *v)
{
    stet_store *store = v->e->store;
    left_timers left = { .v = v };
    int         err;

    left.end = &left.first;
    stet__arena_init(&left.arena, &v->e->p->alloc);
    err = store->ops->timers(store, STET_NEVER, ORPHAN_TIMERS, left_on_timer, &left, NULL);
    for (const left_timer *t = left.first; err == STET_OK && t != NULL; t = t->next)
        err = left_check(v, &t->timer);
    stet__arena_free(&left.arena);
    return err;
}
