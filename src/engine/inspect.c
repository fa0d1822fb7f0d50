/* Looking: runs, their facts, workers, handlers, state, health. Reads only; any thread, any process. */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

/* ---- workers ---------------------------------------------------------------------------------------- */

typedef struct inspect_workers {
    stet_engine   *e;
    stet_worker_fn fn;
    void          *arg;
} inspect_workers;

static int
inspect_on_session(void *arg, const stet_session_row *row)
{
    inspect_workers *w = arg;
    stet_worker_info info;
    stet__arena      arena;
    int              err;

    stet__arena_init(&arena, &w->e->p->alloc);
    stet__info_decode(&info, &arena, row);
    err = w->fn(w->arg, &info);
    stet__arena_free(&arena);
    return err;
}

int
stet_worker_list(stet_engine *e, stet_worker_fn fn, void *arg)
{
    inspect_workers w = { e, fn, arg };
    int             err = stet__alive(e, "stet_worker_list");

    return err != STET_OK ? err : e->store->ops->sessions(e->store, inspect_on_session, &w);
}

typedef struct inspect_serves {
    const char *handler;
    size_t      workers, timers, living;
} inspect_serves;

static bool
inspect_has_word(const char *words, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = words; at != NULL && *at != '\0'; at = strchr(at, ' ')) {
        if (*at == ' ')
            at++;
        if (strncmp(at, word, len) == 0 && (at[len] == ' ' || at[len] == '\0'))
            return true;
    }
    return false;
}

static int
inspect_on_worker(void *arg, const stet_worker_info *info)
{
    inspect_serves *s = arg;

    if (info->is_dead)
        return STET_OK;
    s->living++;
    s->timers += (info->roles & STET_ROLE_TIMERS) != 0;
    s->workers += s->handler != NULL && inspect_has_word(info->handlers, s->handler);
    return STET_OK;
}

int
stet__served_by(stet_engine *e, const char *handler, size_t *workers, bool *has_timers)
{
    inspect_serves s = { handler, 0, 0, 0 };
    int            err = stet_worker_list(e, inspect_on_worker, &s);

    *workers = s.workers;
    *has_timers = s.timers > 0;
    return err;
}

typedef struct inspect_handlers {
    stet__arena arena;
    stet__map   names; /* handler -> count of workers */
    bool        failed;
} inspect_handlers;

static int
inspect_on_handlers(void *arg, const stet_worker_info *info)
{
    inspect_handlers *h = arg;
    const char       *at = info->handlers;

    while (!info->is_dead && *at != '\0') {
        size_t    len = strcspn(at, " ");
        uintptr_t n = (uintptr_t)stet__map_find(&h->names, at, len);

        h->failed = h->failed || stet__map_put(&h->names, at, len, (void *)(n + 1)) != STET_OK;
        at += len + (at[len] == ' ');
    }
    return STET_OK;
}

static int
inspect_handler_elsewhere(stet_engine *e, inspect_handlers *h, stet_handler_info_fn fn, void *arg)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;
    int         err = STET_OK;

    while (err == STET_OK && stet__map_next(&h->names, &at, &key, &len, &value)) {
        stet_handler_info info = { 0 };
        char             *name = stet__arena_copy(&h->arena, key, len);

        if (name == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        if (stet__handler_find(e, name) != NULL)
            continue;
        info.name = name;
        info.workers = (size_t)(uintptr_t)value;
        err = fn(arg, &info);
    }
    return err;
}

/* Which handlers have living workers. To be freed also after a failure. */
static int
inspect_served(stet_engine *e, inspect_handlers *h)
{
    int err;

    stet__arena_init(&h->arena, &e->p->alloc);
    stet__map_init(&h->names, &e->p->alloc);
    h->failed = false;
    if ((err = stet_worker_list(e, inspect_on_handlers, h)) == STET_OK && h->failed)
        err = stet__fail(STET_ENOMEM, "out of memory");
    return err;
}

static void
inspect_served_free(inspect_handlers *h)
{
    stet__map_free(&h->names);
    stet__arena_free(&h->arena);
}

int
stet_handler_list(stet_engine *e, stet_handler_info_fn fn, void *arg)
{
    inspect_handlers h;
    int              err;

    if ((err = stet__alive(e, "stet_handler_list")) != STET_OK)
        return err;
    err = inspect_served(e, &h);
    for (size_t i = 0; err == STET_OK && i < e->n_handlers; i++) {
        stet_handler_info info = { 0 };

        info.name = e->handlers[i].name;
        info.description = e->handlers[i].description;
        info.category = e->handlers[i].category;
        info.default_input = e->handlers[i].default_input;
        info.is_object = e->handlers[i].is_object;
        info.is_shared = e->handlers[i].is_shared;
        info.is_here = true;
        info.workers = (size_t)(uintptr_t)stet__map_find(&h.names, info.name, strlen(info.name));
        err = fn(arg, &info);
    }
    if (err == STET_OK)
        err = inspect_handler_elsewhere(e, &h, fn, arg);
    inspect_served_free(&h);
    return err;
}

int
stet_health_get(stet_engine *e, stet_health *health)
{
    inspect_serves   s = { NULL, 0, 0, 0 };
    stet_hint_health hints;
    int              err;

    memset(health, 0, sizeof *health);
    if ((err = stet__alive(e, "stet_health_get")) != STET_OK)
        return err;
    stet__lock(e->p, &e->lock);
    health->is_alive = e->life == STET__LIFE_STARTED || e->life == STET__LIFE_STOPPING;
    health->is_ready = e->life == STET__LIFE_STARTED && !e->is_poisoned &&
                       (e->session != 0 || (e->config.roles & STET_ROLE_CLIENT));
    stet__unlock(e->p, &e->lock);
    health->in_flight = atomic_load(&e->in_flight);
    health->has_store = e->store->ops->ping(e->store) == STET_OK;
    if (!health->has_store) {
        health->is_ready = false;
        (void)stet__fail(STET_EIO, "the store %s does not answer: %s", e->url, stet_last_error());
        health->text = stet_last_error();
        return STET_OK;
    }
    (void)stet_worker_list(e, inspect_on_worker, &s);
    health->workers = s.living;
    health->has_timers = s.timers > 0;
    e->hint->ops->health(e->hint, &hints);
    health->has_hints = hints.is_connected && e->hint->ops != &stet__hint_none_ops;
    (void)stet__fail(STET_OK, "the store answers; %zu workers live; %s%s%s", s.living,
                     s.timers > 0 ? "timers are served" : "no living node serves timers",
                     hints.is_connected ? "" : "; no hints: ", hints.is_connected ? "" : hints.text);
    health->text = stet_last_error();
    return STET_OK;
}

/* ---- runs ------------------------------------------------------------------------------------------- */

/* NULL for none. False: out of memory; what is there must not look absent. */
static bool
inspect_id(stet__arena *arena, const char **out, const char *kind, stet_id id)
{
    char text[STET_ID_TEXT_MAX];

    *out = NULL;
    if (stet__id_is_zero(id))
        return true;
    stet__id_text(text, kind, id);
    return (*out = stet__arena_str(arena, text)) != NULL;
}

static int64_t
inspect_time(int64_t ms)
{
    return ms == STET_NEVER ? 0 : ms;
}

static int
inspect_from_row(stet__arena *arena, stet_run_info *info, const stet_run_row *row, const stet__fact *extra)
{
    info->handler = row->handler;
    info->key = row->key;
    /* A claim leaves the row's text as it was, so that it costs no write; it tells of the wait before. */
    info->reason = row->status == STET_STATUS_RUNNING ? NULL : row->reason;
    info->group = row->group;
    info->status = (stet_status)row->status;
    info->attempt = row->attempt;
    info->attempts_max = (uint32_t)extra->attempts_max;
    info->priority = row->priority;
    info->created_ms = row->created_ms;
    info->due_ms = row->session == 0 ? inspect_time(row->due_ms) : 0;
    info->ended_ms = inspect_time(row->ended_ms);
    info->deadline_ms = extra->deadline_ms;
    info->facts = row->journal;
    info->inbox = row->inbox;
    info->generation = (uint64_t)extra->generation;
    info->began_ms = extra->generation != 0 ? extra->time_ms : 0;
    if (!inspect_id(arena, &info->id, STET__ID_RUN, row->id) ||
        !inspect_id(arena, &info->parent, STET__ID_RUN, stet__fact_id(extra->run)) ||
        !inspect_id(arena, &info->retry_of, STET__ID_RUN, stet__fact_id(extra->retry_of)) ||
        !inspect_id(arena, &info->retried_by, STET__ID_RUN, stet__fact_id(extra->retried_by)))
        return stet__fail(STET_ENOMEM, "out of memory");
    return STET_OK;
}

static int
inspect_from_facts(stet__arena *arena, stet_run_info *info, const stet__run *run)
{
    info->input = run->input;
    info->result = run->result;
    info->code = run->code;
    info->cause = run->cause;
    info->error = run->error;
    info->origin = run->origin;
    info->lost = run->lost;
    info->idempotency_key = run->idempotency_key;
    info->schedule = run->schedule;
    info->planned_ms = run->planned_ms;
    info->traceparent = run->traceparent;
    info->tracestate = run->tracestate;
    if (run->labels.len > 0) {
        char *labels = stet__arena_copy(arena, run->labels.data, run->labels.len);

        if (labels == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        for (size_t i = 0; i < run->labels.len; i++)
            if (labels[i] == '\0')
                labels[i] = ' ';
        info->labels = labels;
    }
    return STET_OK;
}

typedef struct inspect_owner {
    stet__arena *arena;
    uint64_t     session;
    const char  *worker;
} inspect_owner;

static int
inspect_on_owner(void *arg, const stet_session_row *row)
{
    inspect_owner *o = arg;

    if (row->session == o->session && !inspect_id(o->arena, &o->worker, STET__ID_WORKER, row->id))
        return stet__fail(STET_ENOMEM, "out of memory");
    return STET_OK;
}

int
stet_run_get(stet_engine *e, const stet_run_id *run, stet_run_info_fn fn, void *arg)
{
    stet_run_info info = { 0 };
    inspect_owner owner = { 0 };
    stet__arena   arena;
    stet__run     facts;
    stet_run_row  row;
    stet__fact    extra;
    stet_id       id;
    uint64_t      bad;
    size_t        workers = 0;
    bool          has_timers;
    int           err;

    if ((err = stet__alive(e, "stet_run_get")) != STET_OK || (err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    stet__arena_init(&arena, &e->p->alloc);
    if ((err = stet__load_row(e, id, &arena, &row, &extra)) == STET_OK &&
        (err = inspect_from_row(&arena, &info, &row, &extra)) == STET_OK) {
        stet__run_init(&facts, &arena, id);
        err = stet__load_facts(e, &facts, NULL, &row, &bad);
        if (err == STET_OK)
            err = inspect_from_facts(&arena, &info, &facts);
        else if (err == STET_ECORRUPT) {
            info.code = STET_ECORRUPT;
            info.error = stet__arena_str(&arena, stet_last_error());
            err = STET_OK;
        }
        if (err == STET_OK && row.session != 0) {
            owner.arena = &arena;
            owner.session = row.session;
            err = e->store->ops->sessions(e->store, inspect_on_owner, &owner);
            info.worker = owner.worker;
        }
        if (err == STET_OK)
            err = stet__served_by(e, row.handler, &workers, &has_timers);
        info.is_served = workers > 0;
    }
    if (err == STET_OK)
        err = fn(arg, &info);
    stet__arena_free(&arena);
    return err;
}

typedef struct inspect_list {
    stet__arena   arena;
    stet_run_row *rows;
    size_t        n, cap;
} inspect_list;

static int
inspect_keep_row(void *arg, const stet_run_row *row)
{
    inspect_list *l = arg;
    stet_run_row *to;
    bool          ok = true;

    if (l->n == l->cap)
        return STET_END;
    to = &l->rows[l->n];
    *to = *row;
#define INSPECT_TEXT(field)                                                                        \
    if (ok && row->field != NULL)                                                                  \
        ok = (to->field = stet__arena_str(&l->arena, row->field)) != NULL;
    INSPECT_TEXT(handler)
    INSPECT_TEXT(key)
    INSPECT_TEXT(lane)
    INSPECT_TEXT(group)
    INSPECT_TEXT(reason)
#undef INSPECT_TEXT
    to->extra.data = stet__arena_copy(&l->arena, row->extra.data, row->extra.len);
    if (!ok || to->extra.data == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    l->n++;
    return STET_OK;
}

/* Looked at in one go. */
enum { INSPECT_LABELS = 400 };

/* Runs with a label, of those older than `before`; oldest first, as their keys are. */
typedef struct inspect_labelled {
    stet_bytes label; /* "name=value" with its NUL */
    char      *after; /* room for a key */
    stet_id    before; /* zero: all */
    stet_id   *ids;
    size_t     n, cap;
    bool       is_full; /* there were more */
    bool       is_ring; /* then the last of them are kept, from ids[n % cap] on */
    bool       is_all;  /* there are none older than these */
    uint64_t   gap;     /* how far back the last ones were, in units of an ID's first half */
} inspect_labelled;

static int
inspect_on_label(void *arg, stet_bytes key, const stet_value *value)
{
    inspect_labelled *l = arg;
    stet_id           id;

    (void)value;
    if (key.len != l->label.len + sizeof id.bytes)
        return STET_OK;
    memcpy(id.bytes, (const char *)key.data + l->label.len, sizeof id.bytes);
    if (!stet__id_is_zero(l->before) && memcmp(id.bytes, l->before.bytes, sizeof id.bytes) >= 0)
        return STET_END;
    if (l->n >= l->cap && !l->is_ring) {
        l->is_full = true;
        return STET_END;
    }
    l->ids[l->n++ % l->cap] = id;
    return STET_OK;
}

/* Those whose ID begins with `from` or more. */
static int
inspect_label_from(stet_engine *e, inspect_labelled *l, uint64_t from)
{
    stet_bytes after = { l->after, l->label.len + sizeof(stet_id) };
    size_t     limit = l->is_ring ? 1000000 : l->cap + 2; /* one too many, and `before` itself */
    int        err;

    l->n = 0;
    l->is_full = false;
    memcpy(l->after, l->label.data, l->label.len);
    memset(l->after + l->label.len, 0, sizeof(stet_id));
    for (int i = 0; i < 8; i++)
        l->after[l->label.len + (size_t)i] = (char)(uint8_t)(from >> (56 - 8 * i));
    err = e->store->ops->values(e->store, STET__SPACE_LABEL, l->label, from > 0 ? &after : NULL, limit, inspect_on_label, l);
    return err == STET_END ? STET_OK : err;
}

static uint64_t
inspect_id_half(stet_id id)
{
    uint64_t half = 0;

    for (int i = 0; i < 8; i++)
        half = half << 8 | id.bytes[i];
    return half;
}

/* The newest before `before`, at least `want` of them unless there are fewer. A store lists keys forwards only, so
 * we look for a place near the end: further and further back until there are enough, then halving until there
 * are not too many. */
static int
inspect_label_newest(stet_engine *e, inspect_labelled *l, size_t want)
{
    uint64_t end = stet__id_is_zero(l->before) ? (uint64_t)stet__store_now(e) << 16 : inspect_id_half(l->before);
    uint64_t few = UINT64_MAX, many = end, gap = l->gap;
    int      err;

    l->is_ring = false;
    for (;;) {
        if ((err = inspect_label_from(e, l, many)) != STET_OK || l->is_full)
            break;
        if (l->n >= want || many == 0) {
            l->gap = gap / 256;
            l->is_all = many == 0;
            return STET_OK;
        }
        few = many;
        gap = gap < (uint64_t)1 << 16 ? (uint64_t)1 << 16 : gap > UINT64_MAX / 16 ? UINT64_MAX : gap * 16;
        many = gap < end ? end - gap : 0;
    }
    while (err == STET_OK && few - many > 1) {
        uint64_t middle = many + (few - many) / 2;

        if ((err = inspect_label_from(e, l, middle)) != STET_OK)
            break;
        if (l->is_full)
            many = middle;
        else if (l->n >= want) {
            l->gap = end > middle ? (end - middle) / 256 : 0;
            return STET_OK;
        } else
            few = middle;
    }
    l->is_ring = true; /* more begin with the same half than fit */
    return err == STET_OK ? inspect_label_from(e, l, many) : err;
}

static bool
inspect_matches(const stet_run_filter *f, const stet_run_row *row)
{
    size_t len = f->handler != NULL ? strlen(f->handler) : 0;

    if (len > 0 && strcmp(row->handler, f->handler) != 0 && !(strncmp(row->handler, f->handler, len) == 0 && row->handler[len] == '.'))
        return false;
    if (f->key != NULL && (row->key == NULL || strcmp(row->key, f->key) != 0))
        return false;
    if (f->statuses != 0 && !(f->statuses >> row->status & 1u))
        return false;
    return (f->from_ms == 0 || row->created_ms >= f->from_ms) && (f->to_ms == 0 || row->created_ms <= f->to_ms);
}

typedef struct inspect_matching {
    inspect_list          *l;
    const stet_run_filter *f;
} inspect_matching;

static int
inspect_keep_match(void *arg, const stet_run_row *row)
{
    inspect_matching *m = arg;

    return inspect_matches(m->f, row) ? inspect_keep_row(m->l, row) : STET_OK;
}

static int
inspect_by_label(stet_engine *e, inspect_list *l, const stet_run_filter *f, stet_id before)
{
    inspect_labelled found = { .label = { f->label, strlen(f->label) + 1 }, .before = before, .cap = INSPECT_LABELS };
    int              err;

    if ((found.after = stet__arena_get(&l->arena, found.label.len + sizeof(stet_id))) == NULL ||
        (found.ids = stet__arena_get(&l->arena, found.cap * sizeof *found.ids)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    while (l->n < l->cap && !found.is_all) {
        size_t want = l->cap - l->n < found.cap / 4 ? l->cap - l->n : found.cap / 4, n;

        if ((err = inspect_label_newest(e, &found, want)) != STET_OK)
            return err;
        if ((n = found.n < found.cap ? found.n : found.cap) == 0)
            break;
        for (size_t i = 1; i <= n && l->n < l->cap; i++) {
            found.before = found.ids[(found.n - i) % found.cap];
            err = e->store->ops->run(e->store, found.before, inspect_keep_match, &(inspect_matching){ l, f });
            if (err != STET_OK && err != STET_ENOTFOUND)
                return err;
        }
    }
    return STET_OK;
}

static int
inspect_by_query(stet_engine *e, inspect_list *l, const stet_run_filter *f, stet_id before)
{
    stet_run_query query = { 0 };
    char           service[2 * STET__NAME_MAX + 2];
    int            err;

    if (f->handler != NULL) {
        (void)snprintf(service, sizeof service, "%s%s", f->handler, strchr(f->handler, '.') != NULL ? "" : ".");
        query.handler = service;
    }
    query.key = f->key;
    query.status_mask = f->statuses;
    query.created_from_ms = f->from_ms;
    query.created_to_ms = f->to_ms;
    query.before = before;
    query.limit = l->cap;
    err = e->store->ops->runs(e->store, &query, inspect_keep_row, l);
    return err == STET_END ? STET_OK : err;
}

static int
inspect_hand_out(stet_engine *e, inspect_list *l, const stet_run_filter *f, bool (*skip)(const stet__fact *extra),
                 stet_run_info_fn fn, void *arg)
{
    inspect_handlers served;
    int              err;

    if ((err = inspect_served(e, &served)) != STET_OK)
        goto done;
    for (size_t i = 0; err == STET_OK && i < l->n; i++) {
        stet_run_info info = { 0 };
        stet__fact    extra = { 0 };
        stet_bytes    in = l->rows[i].extra;
        stet__run     run;
        uint64_t      bad;

        if (in.len > 0)
            (void)stet__fact_decode(&extra, &in);
        if (skip != NULL && skip(&extra))
            continue;
        if ((err = inspect_from_row(&l->arena, &info, &l->rows[i], &extra)) != STET_OK)
            break;
        info.is_served = stet__map_find(&served.names, info.handler, strlen(info.handler)) != NULL;
        if (f->with_payloads) {
            stet__run_init(&run, &l->arena, l->rows[i].id);
            if ((err = stet__load_facts(e, &run, NULL, &l->rows[i], &bad)) == STET_OK)
                err = inspect_from_facts(&l->arena, &info, &run);
            else if (err == STET_ECORRUPT) /* or removed just now: it is listed without payloads */
                err = STET_OK;
        }
        if (err == STET_OK)
            err = fn(arg, &info);
    }
done:
    inspect_served_free(&served);
    return err;
}

static int
inspect_runs(stet_engine *e, const char *call, const stet_run_filter *filter, uint32_t only_statuses,
             bool (*skip)(const stet__fact *extra), bool with_payloads, stet_run_info_fn fn, void *arg)
{
    static const stet_run_filter all = { .size = sizeof all };
    stet_run_filter              f = filter != NULL ? *filter : all;
    inspect_list                 l = { .n = 0 };
    stet_id                      before = { { 0 } };
    int                          err;

    if ((err = stet__alive(e, call)) != STET_OK)
        return err;
    if (f.size != sizeof f)
        return stet__fail(STET_EINVAL, "stet_run_filter.size is %zu; use STET_FILTER(…)", f.size);
    if (f.before != NULL && (err = stet__id_parse(&before, STET__ID_RUN, f.before->text)) != STET_OK)
        return err;
    if (only_statuses != 0)
        f.statuses = only_statuses;
    f.with_payloads = f.with_payloads || with_payloads;
    l.cap = f.limit > 0 ? f.limit : 50;
    if (l.cap > 100000)
        l.cap = 100000;
    stet__arena_init(&l.arena, &e->p->alloc);
    if ((l.rows = stet__arena_get(&l.arena, l.cap * sizeof *l.rows)) == NULL)
        err = stet__fail(STET_ENOMEM, "out of memory");
    else
        err = f.label != NULL ? inspect_by_label(e, &l, &f, before) : inspect_by_query(e, &l, &f, before);
    if (err == STET_OK)
        err = inspect_hand_out(e, &l, &f, skip, fn, arg);
    stet__arena_free(&l.arena);
    return err;
}

int
stet_run_list(stet_engine *e, const stet_run_filter *filter, stet_run_info_fn fn, void *arg)
{
    return inspect_runs(e, "stet_run_list", filter, 0, NULL, false, fn, arg);
}

static bool
inspect_is_settled_letter(const stet__fact *extra)
{
    return extra->retried_by.data != NULL || (extra->flags & STET__FACT_DISCARDED) != 0;
}

int
stet_dlq_list(stet_engine *e, const stet_run_filter *filter, stet_run_info_fn fn, void *arg)
{
    return inspect_runs(e, "stet_dlq_list", filter, 1u << STET_STATUS_FAILED, inspect_is_settled_letter, true, fn, arg);
}

/* ---- facts ------------------------------------------------------------------------------------------ */

typedef struct inspect_facts {
    stet_engine *e;
    stet__arena  arena;
    stet_fact_fn fn;
    void        *arg;
    bool         with_payloads;
    bool         is_at_risk_next;
    uint64_t     next;
    size_t       rows;
    stet_bytes  *inbox;
    size_t       n_inbox, cap_inbox, taken; /* taken: so many of those that are left */
    uint64_t     inbox_first;
} inspect_facts;

static bool
inspect_text(inspect_facts *f, const char **out, stet_bytes b)
{
    *out = b.data != NULL ? stet__arena_copy(&f->arena, b.data, b.len) : NULL;
    return b.data == NULL || *out != NULL;
}

static int
inspect_emit(inspect_facts *f, const stet__fact *fact, uint64_t revision, uint64_t inbox)
{
    stet_fact_info info = { 0 };
    bool           is_awakeable = fact->kind == STET__FACT_AWAKEABLE || fact->kind == STET__FACT_SETTLE ||
                        fact->kind == STET__FACT_SETTLED;

    info.revision = revision;
    info.inbox = inbox;
    info.time_ms = fact->time_ms;
    info.kind = stet__fact_kind_name(fact->kind);
    info.occurrence = (uint64_t)fact->occurrence;
    info.code = (int)fact->code;
    if (!inspect_text(f, &info.name, fact->name) ||
        !inspect_text(f, &info.text, fact->text.data != NULL ? fact->text : fact->who) ||
        !inspect_id(&f->arena, &info.run, is_awakeable ? STET__ID_AWAKEABLE : STET__ID_RUN, stet__fact_id(fact->run)))
        return stet__fail(STET_ENOMEM, "out of memory");
    if (fact->text.data != NULL && fact->who.data != NULL &&
        (info.text = stet__arena_printf(&f->arena, "by %.*s: %s", (int)fact->who.len, (const char *)fact->who.data,
                                        info.text)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if (fact->kind == STET__FACT_NOTE && info.text != NULL) { /* its name is the format, for replays */
        info.name = info.text;
        info.text = NULL;
    }
    if (fact->topic.data != NULL && info.text == NULL &&
        (info.text = stet__arena_printf(&f->arena, "for signal %.*s", (int)fact->topic.len, (const char *)fact->topic.data)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    info.value_len = fact->value.len;
    if (f->with_payloads)
        info.value = fact->value;
    info.until_ms = fact->until_ms;
    info.is_at_risk = fact->kind == STET__FACT_AT_RISK || (fact->kind == STET__FACT_LOST && (fact->flags & STET__FACT_IN_BODY));
    return f->fn(f->arg, &info);
}

static int
inspect_corrupt(inspect_facts *f, uint64_t revision, uint64_t inbox)
{
    stet_fact_info info = { 0 };

    info.revision = revision;
    info.inbox = inbox;
    info.kind = "unreadable";
    info.code = STET_ECORRUPT;
    info.text = stet__arena_str(&f->arena, stet_last_error());
    info.is_corrupt = true;
    return f->fn(f->arg, &info);
}

static int
inspect_emit_inbox(inspect_facts *f, uint64_t upto, uint64_t revision)
{
    int err = STET_OK;

    for (; f->taken < f->n_inbox && f->inbox_first + f->taken <= upto && err == STET_OK; f->taken++) {
        stet_bytes in = f->inbox[f->taken];
        uint64_t   seq = f->inbox_first + f->taken;
        stet__fact fact;

        if (stet__fact_decode(&fact, &in) != STET_OK)
            err = inspect_corrupt(f, revision, seq);
        else
            err = inspect_emit(f, &fact, revision, seq);
    }
    return err;
}

static int
inspect_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    inspect_facts *f = arg;
    int            err = STET_OK;

    f->rows++;
    for (uint32_t i = 0; i < count && err == STET_OK; i++) {
        stet__fact fact;
        int        bad = stet__fact_decode(&fact, &facts);

        f->next = first + i + 1;
        if (bad == STET_END)
            break;
        if (bad != STET_OK)
            err = inspect_corrupt(f, first + i, 0);
        else if (fact.kind == STET__FACT_TAKEN)
            err = inspect_emit_inbox(f, (uint64_t)fact.number, first + i);
        else {
            /* What a generation before this one took is no part of it. */
            while (fact.kind == STET__FACT_STARTED && f->taken < f->n_inbox &&
                   f->inbox_first + f->taken <= (uint64_t)fact.taken)
                f->taken++;
            err = inspect_emit(f, &fact, first + i, 0);
        }
    }
    f->next = first + count;
    return err;
}

static int
inspect_keep_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    inspect_facts *f = arg;

    (void)count;
    if (f->n_inbox == 0)
        f->inbox_first = first;
    if (f->n_inbox == f->cap_inbox) {
        size_t      cap = stet__cap_next(&f->e->p->alloc, f->cap_inbox, 16);
        stet_bytes *grown = stet__arena_get(&f->arena, cap * sizeof *grown);

        if (grown == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        if (f->n_inbox > 0)
            memcpy(grown, f->inbox, f->n_inbox * sizeof *grown);
        f->inbox = grown;
        f->cap_inbox = cap;
    }
    f->inbox[f->n_inbox].len = facts.len;
    if ((f->inbox[f->n_inbox].data = stet__arena_copy(&f->arena, facts.data, facts.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    f->n_inbox++;
    f->rows++;
    return STET_OK;
}

int
stet_run_facts(stet_engine *e, const stet_run_id *run, bool with_payloads, stet_fact_fn fn, void *arg)
{
    inspect_facts f = { .e = e, .fn = fn, .arg = arg, .with_payloads = with_payloads, .next = 1, .inbox_first = 1 };
    stet_run_row  row;
    stet__fact    extra;
    stet_id       id;
    int           err;

    if ((err = stet__alive(e, "stet_run_facts")) != STET_OK || (err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    stet__arena_init(&f.arena, &e->p->alloc);
    if ((err = stet__load_row(e, id, &f.arena, &row, &extra)) == STET_OK)
        do {
            f.rows = 0;
            err = e->store->ops->inbox(e->store, id, f.inbox_first + f.n_inbox, 256, inspect_keep_inbox, &f);
        } while (err == STET_OK && f.rows == 256);
    while (err == STET_OK && f.next <= row.journal) {
        f.rows = 0;
        err = e->store->ops->journal(e->store, id, f.next, 256, inspect_on_facts, &f);
        if (f.rows == 0)
            break;
    }
    if (err == STET_OK)
        err = inspect_emit_inbox(&f, UINT64_MAX, 0);
    stet__arena_free(&f.arena);
    return err;
}

/* ---- state ------------------------------------------------------------------------------------------ */

static int
inspect_copy_out(stet_bytes *out, stet_bytes from)
{
    char *copy = stet__get(&stet__platform_real()->alloc, from.len + 1);

    if (copy == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if (from.len > 0)
        memcpy(copy, from.data, from.len);
    copy[from.len] = '\0';
    out->data = copy;
    out->len = from.len;
    return STET_OK;
}

static int
inspect_state_check(stet_engine *e, const char *call, const char *service, const char *key)
{
    int err;

    if ((err = stet__alive(e, call)) != STET_OK || (err = stet__part_check("service", service)) != STET_OK)
        return err;
    return key == NULL || key[0] == '\0' ? stet__fail(STET_EKEY, "state belongs to a key of %s: give the key", service) : STET_OK;
}

int
stet_state_read(stet_engine *e, stet_bytes *value, const char *service, const char *key, const char *name)
{
    const stet_entry *initial = NULL;
    stet_value        v = { 0 };
    stet__arena       arena;
    stet_bytes        at;
    int               err;

    *value = (stet_bytes){ NULL, 0 };
    if ((err = inspect_state_check(e, "stet_state_read", service, key)) != STET_OK ||
        (err = stet__name_check("state entry", name)) != STET_OK)
        return err;
    stet__arena_init(&arena, &e->p->alloc);
    err = stet__value_key_state(&arena, &at, service, key, name) ? e->store->ops->value(e->store, STET__SPACE_STATE, at, &v)
                                                                : stet__fail(STET_ENOMEM, "out of memory");
    if (err == STET_OK) {
        err = inspect_copy_out(value, v.data);
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        stet__arena_free(&arena);
        return err;
    }
    if (err == STET_ENOTFOUND && (initial = stet__initial_find(e, service, name)) != NULL &&
        (err = e->store->ops->value(e->store, STET__SPACE_CLEARED, at, &v)) == STET_OK) {
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        initial = NULL;
        err = STET_ENOTFOUND;
    }
    stet__arena_free(&arena);
    if (err != STET_ENOTFOUND)
        return err;
    if (initial != NULL)
        return inspect_copy_out(value, initial->value);
    return stet__fail(STET_ENOTFOUND, "%s/%s has no entry %s", service, key, name);
}

typedef struct inspect_entries {
    stet_entry_fn fn;
    void         *arg;
    size_t        prefix;
} inspect_entries;

static int
inspect_on_entry(void *arg, stet_bytes key, const stet_value *value)
{
    inspect_entries *s = arg;
    char             name[STET__NAME_MAX + 1];

    (void)snprintf(name, sizeof name, "%.*s", (int)(key.len - s->prefix), (const char *)key.data + s->prefix);
    return s->fn(s->arg, name, value->data);
}

int
stet_state_list(stet_engine *e, const char *service, const char *key, stet_entry_fn fn, void *arg)
{
    inspect_entries s = { fn, arg, 0 };
    stet__arena     arena;
    stet_bytes      at;
    int             err;

    if ((err = inspect_state_check(e, "stet_state_list", service, key)) != STET_OK)
        return err;
    stet__arena_init(&arena, &e->p->alloc);
    if (!stet__value_key_state(&arena, &at, service, key, ""))
        err = stet__fail(STET_ENOMEM, "out of memory");
    else {
        s.prefix = at.len;
        err = e->store->ops->values(e->store, STET__SPACE_STATE, at, NULL, 100000, inspect_on_entry, &s);
    }
    stet__arena_free(&arena);
    return err;
}
