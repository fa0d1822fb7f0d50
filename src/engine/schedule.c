/* Schedules in the store: the record, its place in the index, its ledger; see schedule.h. */
#include "engine/schedule.h"

#include <stdio.h>
#include <string.h>

#include "core/cron.h"

#define SCHED_NEAR_MAX 1000u /* names that are looked at for near ones */
#define SCHED_LAST_MS  INT64_C(253402300799999)

static void
sched_put_time(uint8_t *at, int64_t ms)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)((uint64_t)ms >> (56 - 8 * i));
}

/* ---- reading --------------------------------------------------------------------------------- */

int
stet__sched_decode(stet__arena *arena, const char *name, const stet_value *value, stet__sched *s)
{
    stet_bytes data = { stet__arena_copy(arena, value->data.data, value->data.len),
                        value->data.len };
    int        err;

    memset(s, 0, sizeof *s);
    s->name = name;
    s->id = value->run;
    s->edition = value->revision;
    if (data.data == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if ((err = stet__fact_decode(&s->f, &data)) != STET_OK || !stet__sched_is_sound(&s->f))
        return stet__fail(STET_ECORRUPT,
                          "schedule %s is damaged: remove it and make it anew", name);
    return STET_OK;
}

int
stet__sched_read(stet_engine *e, stet__arena *arena, const char *name, stet__sched *s)
{
    stet_value value = { 0 };
    int        err = e->store->ops->value(e->store, STET__SPACE_BASE_SCHED, stet_text(name), &value);

    memset(s, 0, sizeof *s);
    s->name = name;
    if (err != STET_OK)
        return err;
    err = stet__sched_decode(arena, name, &value, s);
    stet__free(e->store->alloc, (void *)(uintptr_t)value.data.data);
    return err;
}

typedef struct sched_near {
    stet__near near;
    char       best[STET__NAME_MAX + 1];
    size_t     n;
} sched_near;

static int
sched_on_near(void *arg, stet_bytes key, const stet_value *value)
{
    sched_near *near = arg;
    char        name[STET__NAME_MAX + 1];

    (void)value;
    near->n++;
    if (key.len >= sizeof name)
        return STET_OK;
    memcpy(name, key.data, key.len);
    name[key.len] = '\0';
    near->near.name = NULL;
    stet__near_offer(&near->near, name);
    if (near->near.name != NULL)
        memcpy(near->best, name, key.len + 1);
    return STET_OK;
}

int
stet__sched_no_such(stet_engine *e, const char *name)
{
    sched_near near = { .n = 0 };

    stet__near_begin(&near.near, name, strlen(name));
    (void)e->store->ops->values(e->store, STET__SPACE_BASE_SCHED, (stet_bytes){ NULL, 0 }, NULL,
                                SCHED_NEAR_MAX, sched_on_near, &near);
    if (near.best[0] != '\0')
        return stet__fail(STET_ENOTFOUND, "there is no schedule %s; there is %s", name, near.best);
    return stet__fail(STET_ENOTFOUND, "there is no schedule %s%s", name,
                      near.n > 0 ? "; `schedule ls` lists those that exist" : ", and no other");
}

/* ---- the index ------------------------------------------------------------------------------- */

const char *
stet__sched_index(stet__arena *arena, const stet__sched *s, const stet__fact *f, stet_bytes *key)
{
    bool     is_user = (f->flags & STET__SCHED_FUNCTION) != 0;
    size_t   head = is_user ? f->cron.len + 1 : 0, len = strlen(s->name);
    uint8_t *at;

    *key = (stet_bytes){ NULL, 0 };
    if (f->look_ms == STET_NEVER)
        return NULL;
    if ((at = stet__arena_get0(arena, head + 8 + len)) == NULL)
        return NULL;
    if (is_user)
        memcpy(at, f->cron.data, f->cron.len);
    sched_put_time(at + head, f->look_ms);
    memcpy(at + head + 8, s->name, len);
    *key = (stet_bytes){ at, head + 8 + len };
    return is_user ? STET__SPACE_SCHED_FN : STET__SPACE_SCHED_DUE;
}

static bool
sched_index_op(stet__work *w, stet_op_kind kind, const char *space, stet_bytes key)
{
    stet_op *op = stet__work_op(w, kind, (stet_id){ { 0 } });

    if (op == NULL)
        return false;
    op->space = space;
    op->data = stet_text("");
    op->number = 1;
    return stet__work_bytes(w, &op->key, key);
}

bool
stet__sched_unask(stet__work *w, const char *space, stet_bytes key)
{
    return sched_index_op(w, STET_OP_VALUE_DEL, space, key);
}

stet_bytes
stet__sched_asked(stet__arena *arena, const char *name, int64_t at_ms, stet_id run)
{
    size_t     len = strlen(name) + 1;
    uint8_t   *at = stet__arena_get(arena, 8 + len + sizeof run.bytes);
    stet_bytes key = { at, 8 + len + sizeof run.bytes };

    if (at == NULL)
        return (stet_bytes){ NULL, 0 };
    sched_put_time(at, at_ms);
    memcpy(at + 8, name, len);
    memcpy(at + 8 + len, run.bytes, sizeof run.bytes);
    if (STET__MUTANT(sched_same_key))
        key.len = 8 + len - 1;
    return key;
}

bool
stet__sched_ask(stet__work *w, const char *name, int64_t at_ms, stet_id run)
{
    stet_bytes key = stet__sched_asked(&w->arena, name, at_ms, run);

    if (key.data == NULL)
        return false;
    if (at_ms < w->sched_ms)
        w->sched_ms = at_ms;
    return sched_index_op(w, STET_OP_VALUE_PUT, STET__SPACE_SCHED_DUE, key);
}

/* Can this engine find its next times? */
static bool
sched_is_here(const stet_engine *e, const stet__fact *f)
{
    const stet__sched_function *fn = e->sched_functions;

    if (!(f->flags & STET__SCHED_FUNCTION))
        return true;
    while (fn != NULL && (strlen(fn->name) != f->cron.len ||
                          memcmp(fn->name, f->cron.data, f->cron.len) != 0))
        fn = fn->next;
    return fn != NULL;
}

bool
stet__sched_place(stet__work *w, const stet__sched *s, const stet__fact *f)
{
    const char *space;
    stet_bytes  key;

    if (f->look_ms == STET_NEVER)
        return true;
    if (f->look_ms < w->sched_ms)
        w->sched_ms = f->look_ms;
    w->is_sched_elsewhere = !sched_is_here(w->engine, f);
    return (space = stet__sched_index(&w->arena, s, f, &key)) != NULL &&
           sched_index_op(w, STET_OP_VALUE_PUT, space, key);
}

/* ---- writing --------------------------------------------------------------------------------- */

bool
stet__sched_is_as_read(stet__work *w, const stet__sched *s)
{
    stet_cond *cond =
        stet__work_cond(w,
                        s->edition > 0 && !STET__MUTANT(sched_versioned) ? STET_COND_WRITER
                                                                         : STET_COND_VALUE,
                        s->id);

    if (cond == NULL)
        return false;
    cond->space = STET__SPACE_BASE_SCHED;
    cond->number = s->edition;
    return stet__work_bytes(w, &cond->key, stet_text(s->name));
}

bool
stet__sched_write(stet__work *w, const stet__sched *was, const stet__fact *now)
{
    const char *space;
    stet_bytes  key;
    stet_op    *op;

    if ((!STET__MUTANT(sched_unchecked) && !stet__sched_is_as_read(w, was)) ||
        (op = stet__work_op(w, STET_OP_VALUE_PUT, was->id)) == NULL)
        return false;
    op->space = STET__SPACE_BASE_SCHED;
    op->number = was->edition + 1;
    if (!stet__work_bytes(w, &op->key, stet_text(was->name)) || !stet__work_fact(w, &op->data, now))
        return false;
    if (was->edition > 0 && was->f.look_ms != STET_NEVER &&
        ((space = stet__sched_index(&w->arena, was, &was->f, &key)) == NULL ||
         !stet__sched_unask(w, space, key)))
        return false;
    return stet__sched_place(w, was, now);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

stet_bytes
stet__sched_log_key(stet__arena *arena, const char *name, int64_t planned_ms)
{
    size_t     len = strlen(name) + 1;
    uint8_t   *at = stet__arena_get(arena, len + 8);
    stet_bytes key = { at, len + 8 };

    if (at == NULL)
        return (stet_bytes){ NULL, 0 };
    memcpy(at, name, len);
    sched_put_time(at + len, planned_ms);
    return key;
}

static int
sched_on_oldest(void *arg, stet_bytes key, const stet_value *value)
{
    stet__work *w = arg;

    (void)value;
    return stet__sched_unask(w, STET__SPACE_BASE_SCHED_LOG, key) ? STET_OK : STET_ENOMEM;
}

/* Is it there, of an occurrence that waited? With a thousand others behind it, it is not. */
static int
sched_is_logged(stet_engine *e, stet_bytes key, bool *is_there)
{
    stet_value value = { 0 };
    int        err = e->store->ops->value(e->store, STET__SPACE_BASE_SCHED_LOG, key, &value);

    *is_there = err == STET_OK;
    stet__free(e->store->alloc, (void *)(uintptr_t)value.data.data);
    return err == STET_ENOTFOUND ? STET_OK : err;
}

int
stet__sched_log(stet_engine *e, stet__work *w, const stet__sched *s, stet__fact *f,
                const stet__sched_act *act, const stet_id *run, int64_t now_ms)
{
    stet__fact entry = { .kind = STET__FACT_OCCURRENCE };
    stet_bytes key = stet__sched_log_key(&w->arena, s->name, act->planned_ms);
    stet_bytes prefix = { key.data, strlen(s->name) + 1 };
    bool       is_there = false;
    stet_op   *op = NULL;
    int        err = STET_OK;

    entry.time_ms = now_ms;
    entry.planned_ms = act->planned_ms;
    entry.until_ms = act->until_ms;
    entry.number = act->count;
    entry.cause = act->skip;
    entry.code = act->what == STET__SCHED_FIRE   ? STET_OCCURRENCE_RAN
                 : act->what == STET__SCHED_WAIT ? STET_OCCURRENCE_WAITS
                                                 : STET_OCCURRENCE_SKIPPED;
    if (run != NULL && !stet__id_is_zero(*run))
        entry.run = stet__id_bytes(run);
    if (key.data == NULL || (op = stet__work_op(w, STET_OP_VALUE_PUT, s->id)) == NULL ||
        !stet__work_fact(w, &op->data, &entry))
        return stet__fail(STET_ENOMEM, "out of memory");
    op->space = STET__SPACE_BASE_SCHED_LOG;
    op->key = key;
    op->number = 1;
    if (act->has_waited && (err = sched_is_logged(e, key, &is_there)) != STET_OK)
        return err;
    if (is_there)
        return STET_OK;
    f->logged++;
    if (f->logged > STET_SCHEDULE_HISTORY_MAX) {
        size_t too_many = (size_t)(f->logged - STET_SCHEDULE_HISTORY_MAX);

        if ((err = e->store->ops->values(e->store, STET__SPACE_BASE_SCHED_LOG, prefix, NULL,
                                         too_many, sched_on_oldest, w)) != STET_OK)
            return err == STET_ENOMEM ? stet__fail(err, "out of memory") : err;
        f->logged = STET_SCHEDULE_HISTORY_MAX;
    }
    return STET_OK;
}

/* ---- next times ------------------------------------------------------------------------------ */

const stet__sched_function *
stet__sched_function_find(const stet_engine *e, const char *name)
{
    const stet__sched_function *f = e->sched_functions;

    while (f != NULL && strcmp(f->name, name) != 0)
        f = f->next;
    return f;
}

static int
sched_by_cron(void *arg, int64_t *next_ms, int64_t after_ms)
{
    const stet__sched_clock *clock = arg;

    return stet_cron_next(clock->cron, next_ms, after_ms);
}

static int
sched_by_function(void *arg, int64_t *next_ms, int64_t after_ms)
{
    const stet__sched_clock *clock = arg;
    const char              *function = clock->function->name;
    int64_t                  ms = 0;
    int                      err = clock->function->fn(clock->function->arg, &ms, clock->s->name,
                                                       after_ms);

    if (err == STET_END)
        return err;
    if (err != STET_OK)
        return stet__fail(err, "function %s failed: %s", function,
                          stet_code_name(err) != NULL ? stet_code_name(err) : "no known code");
    if (ms <= after_ms || ms > SCHED_LAST_MS)
        return stet__fail(STET_EINVAL,
                          "function %s was asked for a time after %lld and gave %lld; it must be "
                          "later, and before the year 10000",
                          function, (long long)after_ms, (long long)ms);
    *next_ms = ms;
    return STET_OK;
}

int
stet__sched_clock_open(stet_engine *e, stet__sched_clock *clock, const stet__sched *s,
                       stet__sched_now *now)
{
    char text[STET__CRON_TEXT_MAX + 1], zone[256];
    int  err;

    memset(clock, 0, sizeof *clock);
    clock->s = s;
    now->next = NULL;
    now->arg = clock;
    (void)snprintf(text, sizeof text, "%.*s", (int)s->f.cron.len,
                   s->f.cron.len > 0 ? (const char *)s->f.cron.data : "");
    (void)snprintf(zone, sizeof zone, "%.*s", (int)s->f.zone.len,
                   s->f.zone.len > 0 ? (const char *)s->f.zone.data : "");
    switch (stet__sched_kind_of(&s->f)) {
    case STET__SCHED_EVERY:
    case STET__SCHED_AT: return STET_OK;
    case STET__SCHED_USER:
        if ((clock->function = stet__sched_function_find(e, text)) != NULL)
            now->next = sched_by_function;
        return STET_OK;
    case STET__SCHED_CRON: break;
    }
    if ((err = stet_cron_parse(&clock->cron, text, zone)) == STET_OK)
        now->next = sched_by_cron;
    return err;
}

void
stet__sched_clock_close(stet__sched_clock *clock)
{
    stet_cron_free(clock->cron);
    clock->cron = NULL;
}
