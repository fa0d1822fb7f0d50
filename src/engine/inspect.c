/* Looking: one run, its facts, workers, handlers, state, health. Lists of runs are in list.c. Reads only; any
 * thread, any process. */
#include <stdio.h>
#include <stdlib.h>
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

/* What there is to say of the audit hook, if it is not well. */
static const char *
inspect_audit(const stet_health *health, char *room, size_t size)
{
    room[0] = '\0';
    if (health->is_mirrored && !health->has_teller)
        (void)snprintf(room, size, "; no living engine tells the audit hook");
    else if (health->audit_failing > 0)
        (void)snprintf(room, size, "; the audit hook refuses entries of %zu runs", health->audit_failing);
    else if (health->audit_held > 0)
        (void)snprintf(room, size, "; %zu ended runs are kept until the audit hook was told of them", health->audit_held);
    return room;
}

static int
inspect_on_living(void *arg, const stet_session_row *row)
{
    inspect_serves *s = arg;
    size_t          at = 0, len = s->handler != NULL ? strlen(s->handler) : 0;
    stet_bytes      in = row->info, name;
    stet__serves    kind;
    stet__fact      info;

    if (row->is_dead)
        return STET_OK;
    s->living++;
    if (stet__fact_decode(&info, &in) != STET_OK)
        return STET_OK;
    s->timers += (info.flags & STET_ROLE_TIMERS) != 0;
    while (s->handler != NULL && stet__serves_next(&info, &at, &name, &kind))
        if (name.len == len && memcmp(name.data, s->handler, len) == 0) {
            s->workers++;
            break;
        }
    return STET_OK;
}

int
stet__served_by(stet_engine *e, const char *handler, size_t *workers, bool *has_timers)
{
    inspect_serves s = { handler, 0, 0, 0 };
    int            err = e->store->ops->sessions(e->store, inspect_on_living, &s);

    *workers = s.workers;
    *has_timers = s.timers > 0;
    return err;
}

static int
inspect_on_served(void *arg, const stet_session_row *row)
{
    stet__living *h = arg;
    stet_bytes    in = row->info, name;
    size_t        at = 0;
    stet__serves  kind;
    stet__fact    info;

    if (row->is_dead || stet__fact_decode(&info, &in) != STET_OK)
        return STET_OK;
    while (stet__serves_next(&info, &at, &name, &kind)) {
        uintptr_t n = (uintptr_t)stet__map_find(&h->names, name.data, name.len);

        if (kind == STET__SERVES_UNKNOWN)
            kind = (stet__serves)(n % 4);
        n = (n / 4 + 1) * 4 + (uintptr_t)kind;
        h->failed = h->failed || stet__map_put(&h->names, name.data, name.len, (void *)n) != STET_OK;
    }
    return STET_OK;
}

static int
inspect_compare(const void *a, const void *b)
{
    return strcmp(((const stet_handler_info *)a)->name, ((const stet_handler_info *)b)->name);
}

/* Those that only others serve, by name: a map has them in an order that means nothing. */
static int
inspect_handler_elsewhere(stet_engine *e, stet__living *h, stet_handler_info_fn fn, void *arg)
{
    stet_handler_info *found = stet__arena_get0(&h->arena, (h->names.used + 1) * sizeof *found);
    size_t             at = 0, len, n = 0;
    const void        *key;
    void              *value;
    int                err = STET_OK;

    if (found == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    while (stet__map_next(&h->names, &at, &key, &len, &value)) {
        stet_handler_info *info = &found[n];
        stet__serves       kind = (stet__serves)((uintptr_t)value % 4);

        if ((info->name = stet__arena_copy(&h->arena, key, len)) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        if (stet__handler_find(e, info->name) != NULL)
            continue;
        info->workers = (size_t)((uintptr_t)value / 4);
        info->is_shared = kind == STET__SERVES_SHARED;
        info->is_object = kind == STET__SERVES_OBJECT || kind == STET__SERVES_SHARED;
        n++;
    }
    qsort(found, n, sizeof *found, inspect_compare);
    for (size_t i = 0; i < n && err == STET_OK; i++)
        err = fn(arg, &found[i]);
    return err;
}

int
stet__living_open(stet_engine *e, stet__living *h)
{
    int err;

    stet__arena_init(&h->arena, &e->p->alloc);
    stet__map_init(&h->names, &e->p->alloc);
    h->failed = false;
    if ((err = e->store->ops->sessions(e->store, inspect_on_served, h)) == STET_OK && h->failed)
        err = stet__fail(STET_ENOMEM, "out of memory");
    return err;
}

void
stet__living_free(stet__living *h)
{
    stet__map_free(&h->names);
    stet__arena_free(&h->arena);
}

int
stet_handler_list(stet_engine *e, stet_handler_info_fn fn, void *arg)
{
    stet__living h;
    int              err;

    if ((err = stet__alive(e, "stet_handler_list")) != STET_OK)
        return err;
    err = stet__living_open(e, &h);
    for (size_t i = 0; err == STET_OK && i < e->n_handlers; i++) {
        stet_handler_info info = { 0 };

        info.name = e->handlers[i].name;
        info.description = e->handlers[i].description;
        info.category = e->handlers[i].category;
        info.default_input = e->handlers[i].default_input;
        info.is_object = e->handlers[i].is_object;
        info.is_shared = e->handlers[i].is_shared;
        info.is_here = true;
        info.workers = (size_t)((uintptr_t)stet__map_find(&h.names, info.name, strlen(info.name)) / 4);
        err = fn(arg, &info);
    }
    if (err == STET_OK)
        err = inspect_handler_elsewhere(e, &h, fn, arg);
    stet__living_free(&h);
    return err;
}

int
stet_health_get(stet_engine *e, stet_health *health)
{
    inspect_serves   s = { NULL, 0, 0, 0 };
    stet_hint_health hints;
    char             audit[128];
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
    health->audit_failing = stet__mirror_failing(e);
    health->audit_held = atomic_load(&e->purge_held);
    health->has_store = e->store->ops->ping(e->store) == STET_OK;
    if (!health->has_store) {
        health->is_ready = false;
        (void)stet__fail(STET_EIO, "the store %s does not answer: %s", e->url, stet_last_error());
        health->text = stet_last_error();
        return STET_OK;
    }
    (void)e->store->ops->sessions(e->store, inspect_on_living, &s);
    health->workers = s.living;
    health->has_timers = s.timers > 0;
    (void)stet__mirror_state(e, &health->is_mirrored, &health->has_teller);
    e->hint->ops->health(e->hint, &hints);
    health->has_hints = hints.is_connected && e->hint->ops != &stet__hint_none_ops;
    (void)stet__fail(STET_OK, "the store answers; %zu workers live; %s%s%s%s", s.living,
                     s.timers > 0 ? "timers are served" : "no living node serves timers",
                     hints.is_connected ? "" : "; no hints: ", hints.is_connected ? "" : hints.text,
                     inspect_audit(health, audit, sizeof audit));
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

/* What a row has as its reason is what it waits for only while it is suspended; of one that executes, or is to, it is left over. */
const char *
stet__row_state(stet__arena *arena, const stet_run_row *row)
{
    const char *name = stet_status_name((stet_status)row->status), *text;

    if (row->reason == NULL || row->status == STET_STATUS_RUNNING || row->status == STET_STATUS_PENDING)
        return name;
    text = stet__arena_printf(arena, "%s%s%s", name, row->status == STET_STATUS_SUSPENDED ? ", waits for " : ": ", row->reason);
    return text != NULL ? text : name;
}

static int64_t
inspect_time(int64_t ms)
{
    return ms == STET_NEVER || ms == STET__HELD_MS ? 0 : ms;
}

int
stet__info_from_row(stet__arena *arena, stet_run_info *info, const stet_run_row *row, const stet__fact *extra)
{
    info->handler = row->handler;
    info->key = row->key;
    /* A claim leaves the row's text as it was, so that it costs no write; it tells of the wait before. */
    info->reason = row->status == STET_STATUS_RUNNING || row->session != 0 ? NULL : row->reason;
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

/* One by one: joined, a value with a space in it looks like two labels. */
static int
inspect_label_list(stet__arena *arena, stet_run_info *info, stet_bytes labels)
{
    const char  *at = stet__arena_copy(arena, labels.data, labels.len), *end;
    const char **list;
    size_t       n = 1;

    for (size_t i = 0; i < labels.len; i++)
        n += ((const char *)labels.data)[i] == '\0';
    list = stet__arena_get0(arena, (n + 1) * sizeof *list);
    if (at == NULL || list == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    info->label_list = list;
    for (end = at + labels.len; at < end; at += strlen(at) + 1)
        *list++ = at;
    return STET_OK;
}

int
stet__info_from_facts(stet__arena *arena, stet_run_info *info, const stet__run *run)
{
    /* What a run has got over is told by its facts only. */
    bool is_over = run->status == STET_STATUS_COMPLETED || (run->code == STET_EREPLAY && run->status != STET_STATUS_STUCK);

    info->input = run->input;
    info->result = run->result;
    if (!is_over) {
        info->code = run->code;
        info->cause = run->cause;
        info->error = run->error;
        info->origin = run->origin;
    }
    info->lost = run->lost;
    info->idempotency_key = run->idempotency_key;
    info->schedule = run->schedule;
    info->planned_ms = run->planned_ms;
    info->eligible_ms = run->visible_ms > run->created_ms ? run->visible_ms : run->created_ms;
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
        return inspect_label_list(arena, info, run->labels);
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

typedef struct inspect_begun {
    int64_t  ms; /* 0: not found */
    uint64_t next;
} inspect_begun;

static int
inspect_on_begun(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    inspect_begun *b = arg;
    stet__fact     fact;

    b->next = first + count;
    for (uint32_t i = 0; i < count && stet__fact_decode(&fact, &facts) == STET_OK; i++)
        if (fact.kind == STET__FACT_CLAIMED) {
            b->ms = fact.time_ms;
            return STET_END;
        }
    return STET_OK;
}

/* The first claim is near the beginning, behind what a retry or fork inherited. */
static int
inspect_begin(stet_engine *e, const stet_run_row *row, int64_t *begun_ms)
{
    inspect_begun b = { .next = 1 };
    int           err = STET_OK;

    while (err == STET_OK && b.next <= row->journal) {
        uint64_t before = b.next;

        err = e->store->ops->journal(e->store, row->id, b.next, 64, inspect_on_begun, &b);
        if (b.next == before)
            break;
    }
    *begun_ms = b.ms;
    return err == STET_END ? STET_OK : err;
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
        (err = stet__info_from_row(&arena, &info, &row, &extra)) == STET_OK) {
        stet__run_init(&facts, &arena, id);
        err = stet__load_facts(e, &facts, NULL, &row, &bad);
        if (err == STET_OK)
            err = stet__info_from_facts(&arena, &info, &facts);
        else if (err == STET_ECORRUPT) {
            info.code = STET_ECORRUPT;
            info.error = stet__arena_str(&arena, stet_last_error());
            err = STET_OK;
        }
        if (err == STET_OK)
            err = inspect_begin(e, &row, &info.begun_ms);
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

/* ---- facts ------------------------------------------------------------------------------------------ */

typedef struct inspect_facts {
    stet_engine *e;
    stet__arena  arena;
    stet_fact_fn fn;
    void        *arg;
    bool         with_payloads;
    bool         is_at_risk_next;
    bool         is_over; /* there are more, and none of them is to be shown */
    uint64_t     next;
    uint64_t     upto; /* what was there before the inbox was read; later facts may have taken later entries */
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

/* "approved by ann: fine". A rejection has its code to tell it. */
static const char *
inspect_decided(inspect_facts *f, const stet__fact *fact, const char *said)
{
    const char *verb = fact->flags & STET__FACT_APPROVAL ? "approved" : "resumed";

    if (said == NULL)
        return verb;
    return stet__arena_printf(&f->arena, "%s%s%s", verb,
                              fact->who.data == NULL    ? ": "
                              : fact->text.data == NULL ? " by "
                                                        : " ",
                              said);
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
    if (fact->kind == STET__FACT_DECIDED && fact->code == 0 &&
        (info.text = inspect_decided(f, fact, info.text)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    /* The topic of an update is the wait it came to: "signal wait fin#1". */
    if (fact->topic.data != NULL && info.text == NULL &&
        (info.text = stet__arena_printf(&f->arena, fact->kind == STET__FACT_UPDATE ? "at %.*s" : "for signal %.*s",
                                        (int)fact->topic.len, (const char *)fact->topic.data)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if ((fact->flags & STET__FACT_SEEN) != 0 && (fact->kind == STET__FACT_SIGNALLED || fact->kind == STET__FACT_UPDATE_ASKED)) {
        info.kind = "known key"; /* nothing came: it is remembered, for what may be sent again */
        info.text = fact->kind == STET__FACT_SIGNALLED ? "of a signal to the generation before"
                                                       : "of an update of the generation before";
        if (!inspect_text(f, &info.name, fact->idempotency_key))
            return stet__fail(STET_ENOMEM, "out of memory");
    }
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
    if (first > f->upto && f->next > 1) {
        f->is_over = true;
        return STET_OK;
    }
    if (first > f->upto)
        f->upto = UINT64_MAX; /* it began anew since its row was read: this is all there is */
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
    err = stet__load_row(e, id, &f.arena, &row, &extra);
    f.upto = row.journal;
    if (err == STET_OK)
        do {
            f.rows = 0;
            err = e->store->ops->inbox(e->store, id, f.inbox_first + f.n_inbox, 256, inspect_keep_inbox, &f);
        } while (err == STET_OK && f.rows == 256);
    while (err == STET_OK && !f.is_over && f.next <= f.upto) {
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

/* Nothing is there. STET_OK: it could be. */
static int
inspect_no_state(stet_engine *e, const char *service)
{
    bool is_known, is_object;
    int  err = stet__policy_service(e, service, &is_known, &is_object);

    if (err != STET_OK)
        return err;
    if (!is_known)
        return stet__fail(STET_ENOTFOUND,
                          "no object %s is known: this program does not have it, and no worker that has it was started on this store; "
                          "`handlers` lists those that are served", service);
    return is_object ? STET_OK : stet__fail(STET_EKEY, "%s is a service, which has no keys and no state", service);
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
    if ((err = inspect_no_state(e, service)) != STET_OK)
        return err;
    return stet__fail(STET_ENOTFOUND, "%s/%s has no entry %s", service, key, name);
}

typedef struct inspect_entries {
    stet_entry_fn fn;
    void         *arg;
    size_t        prefix, n;
} inspect_entries;

static int
inspect_on_entry(void *arg, stet_bytes key, const stet_value *value)
{
    inspect_entries *s = arg;
    char             name[STET__NAME_MAX + 1];

    s->n++;
    (void)snprintf(name, sizeof name, "%.*s", (int)(key.len - s->prefix), (const char *)key.data + s->prefix);
    return s->fn(s->arg, name, value->data);
}

int
stet_state_list(stet_engine *e, const char *service, const char *key, stet_entry_fn fn, void *arg)
{
    inspect_entries s = { fn, arg, 0, 0 };
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
    return err == STET_OK && s.n == 0 ? inspect_no_state(e, service) : err;
}
