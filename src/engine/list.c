/* Lists of runs: newest first, by what they are and by what they wait for, in pages.
 *
 * What an index of the store answers (handler, key, status, time, label, topic) is found however
 * far back it is. What only the facts of a run tell (a text, a signal it waits for) is looked for
 * run by run among those the rest of the filter leaves, at most so many a call; the caller learns
 * how far that went and goes on from there. Reads only; any thread, any process.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define LIST_MARKS    400 /* looked at in one go */
#define LIST_PAGE     256
#define LIST_MAX      100000
#define LIST_LOOK     10000
#define LIST_LOOK_MAX 1000000
#define LIST_TEXT_MAX 256

typedef struct list {
    stet_engine    *e;
    stet_run_filter f;
    bool (*skip)(const stet__fact *extra);
    stet__arena     arena; /* of the rows */
    stet_run_row   *rows;
    size_t          n, cap;
    char           *text; /* f.text in small letters */
    size_t          text_len;
    stet_id         before;
    uint64_t        session; /* 0: any */
    stet_run_looked looked;
} list;

static int
list_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory");
}

static int
list_copy(stet__arena *arena, stet_run_row *to, const stet_run_row *row)
{
    bool ok = true;

    *to = *row;
#define LIST_COPY(field)                                                                           \
    if (ok && row->field != NULL)                                                                  \
        ok = (to->field = stet__arena_str(arena, row->field)) != NULL;
    LIST_COPY(handler)
    LIST_COPY(key)
    LIST_COPY(lane)
    LIST_COPY(group)
    LIST_COPY(reason)
#undef LIST_COPY
    to->extra.data = stet__arena_copy(arena, row->extra.data, row->extra.len);
    return ok && to->extra.data != NULL ? STET_OK : list_no_memory();
}

static void
list_note_looked(list *l, const stet_run_row *row)
{
    l->looked.runs++;
    stet__id_text(l->looked.last.text, STET__ID_RUN, row->id);
    l->looked.created_ms = row->created_ms;
}

static int
list_keep(list *l, const stet_run_row *row)
{
    int err = list_copy(&l->arena, &l->rows[l->n], row);

    l->n += err == STET_OK;
    return err;
}

/* ---- what only facts tell -------------------------------------------------------------------- */

static char
list_small(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool
list_has(const list *l, const void *data, size_t len)
{
    const char *at = data;

    for (size_t i = 0; len >= l->text_len && i <= len - l->text_len; i++) {
        size_t k = 0;

        while (k < l->text_len && list_small(at[i + k]) == l->text[k])
            k++;
        if (k == l->text_len)
            return true;
    }
    return false;
}

static bool
list_has_str(const list *l, const char *text)
{
    return text != NULL && list_has(l, text, strlen(text));
}

typedef struct list_begun {
    const list *l;
    bool        has;
} list_begun;

static int
list_on_started(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    list_begun *b = arg;
    stet__fact  fact;

    (void)first; /* not 1 where a run continued as new */
    (void)count;
    if (stet__fact_decode(&fact, &facts) != STET_OK || fact.kind != STET__FACT_STARTED)
        return STET_END;
    b->has = list_has(b->l, fact.value.data, fact.value.len) ||
             list_has(b->l, fact.labels.data, fact.labels.len) ||
             list_has(b->l, fact.idempotency_key.data, fact.idempotency_key.len);
    return STET_END;
}

/* Only these can have an error. */
static bool
list_may_have_failed(const stet_run_row *row)
{
    return row->attempt > 1 ||
           (row->status != STET_STATUS_COMPLETED && row->status != STET_STATUS_PENDING &&
            row->status != STET_STATUS_RUNNING && row->status != STET_STATUS_SUSPENDED);
}

static int
list_has_text(const list *l, const stet_run_row *row, bool *has)
{
    list_begun  begun = { .l = l };
    stet__arena arena;
    stet__run   run;
    uint64_t    bad;
    int         err;

    if ((*has = list_has_str(l, row->handler) || list_has_str(l, row->key)))
        return STET_OK;
    err = l->e->store->ops->journal(l->e->store, row->id, 1, 1, list_on_started, &begun);
    *has = begun.has;
    if ((err != STET_OK && err != STET_END) || *has || !list_may_have_failed(row))
        return err == STET_END ? STET_OK : err;
    stet__arena_init(&arena, &l->e->p->alloc);
    stet__run_init(&run, &arena, row->id);
    if ((err = stet__load_facts(l->e, &run, NULL, row, &bad)) == STET_OK)
        *has = list_has_str(l, run.error);
    stet__arena_free(&arena);
    return err == STET_ECORRUPT ? STET_OK : err; /* not readable, or removed just now */
}

/* Does it wait for this signal, as its next execution would find it? */
static int
list_waits_for_signal(const list *l, const stet_run_row *row, bool *waits)
{
    stet__loaded loaded;
    int          err = stet__load_next(l->e, &loaded, row->id);

    *waits = false;
    if (err != STET_OK)
        return err == STET_ECORRUPT || err == STET_ENOTFOUND ? STET_OK : err;
    for (const stet__cmd *cmd = loaded.journal.waiting; cmd != NULL; cmd = cmd->next)
        *waits = *waits || (cmd->kind == STET__FACT_SIGNAL && !cmd->is_settled &&
                            cmd->topic != NULL && strcmp(cmd->topic, l->f.waits_for_signal) == 0);
    stet__loaded_free(&loaded);
    return STET_OK;
}

static int
list_has_label(const list *l, const stet_run_row *row, bool *has)
{
    size_t      len = strlen(l->f.label) + 1;
    stet_value  value = { 0 };
    stet__arena arena;
    char       *key;
    int         err;

    stet__arena_init(&arena, &l->e->p->alloc);
    if ((key = stet__arena_get(&arena, len + sizeof row->id.bytes)) == NULL)
        err = list_no_memory();
    else {
        memcpy(key, l->f.label, len);
        memcpy(key + len, row->id.bytes, sizeof row->id.bytes);
        err = l->e->store->ops->value(l->e->store, STET__SPACE_LABEL,
                                      (stet_bytes){ key, len + sizeof row->id.bytes }, &value);
    }
    stet__free(l->e->store->alloc, (void *)(uintptr_t)value.data.data);
    stet__arena_free(&arena);
    *has = err == STET_OK;
    return err == STET_ENOTFOUND ? STET_OK : err;
}

/* What the index that led to this row did not ask. `by` is that index: a label's space, a topic's,
 * or NULL. */
static int
list_wants(const list *l, const char *by, const stet_run_row *row, bool *wants)
{
    stet__fact extra = { 0 };
    stet_bytes in = row->extra;
    int        err = STET_OK;

    *wants = true;
    if (in.len > 0)
        (void)stet__fact_decode(&extra, &in);
    if (l->skip != NULL && l->skip(&extra))
        *wants = false;
    if ((l->f.waits_for_signal != NULL || l->f.waits_for_topic != NULL) && row->session != 0)
        *wants = false; /* it executes */
    if (*wants && l->f.label != NULL && (by == NULL || strcmp(by, STET__SPACE_LABEL) != 0))
        err = list_has_label(l, row, wants);
    if (err == STET_OK && *wants && l->text != NULL)
        err = list_has_text(l, row, wants);
    if (err == STET_OK && *wants && l->f.waits_for_signal != NULL)
        err = list_waits_for_signal(l, row, wants);
    return err;
}

static bool
list_is_full(const list *l)
{
    return l->n >= l->cap || l->looked.runs >= l->f.look_max;
}

/* ---- by a label or a topic ------------------------------------------------------------------- */

/* Runs that a space of values has under a name (a label, a topic), of those older than `before`;
 * oldest first, as their keys are. */
typedef struct list_marks {
    const char *space;
    stet_bytes  name;   /* with its NUL; the run's ID follows in the key, */
    size_t      tail;   /* and so many bytes more */
    int64_t     now_ms; /* marks whose time is up by then do not count; 0: they have no time */
    char       *after;  /* room for a key */
    stet_id     before; /* zero: all */
    stet_id    *ids;
    size_t      n, cap, seen;
    bool        is_full; /* there were more */
    bool        is_ring; /* then the last of them are kept, from ids[n % cap] on */
    bool        is_all;  /* there are none older than these */
    uint64_t    gap;     /* how far back the last ones were, in units of an ID's first half */
    uint64_t    reached; /* … and where the search for them ended */
} list_marks;

static bool
list_is_over(const list_marks *l, const stet_value *value)
{
    stet_bytes in = value->data;
    stet__fact mark;

    return l->now_ms != 0 && stet__fact_decode(&mark, &in) == STET_OK && mark.until_ms != 0 &&
           mark.until_ms <= l->now_ms;
}

static int
list_on_mark(void *arg, stet_bytes key, const stet_value *value)
{
    list_marks *l = arg;
    stet_id     id;

    l->seen++;
    if (key.len != l->name.len + sizeof id.bytes + l->tail || list_is_over(l, value))
        return STET_OK;
    memcpy(id.bytes, (const char *)key.data + l->name.len, sizeof id.bytes);
    if (!stet__id_is_zero(l->before) && memcmp(id.bytes, l->before.bytes, sizeof id.bytes) >= 0)
        return STET_END;
    if (l->n > 0 && stet__id_equal(l->ids[(l->n - 1) % l->cap], id))
        return STET_OK; /* it waits twice */
    if (l->n >= l->cap && !l->is_ring) {
        l->is_full = true;
        return STET_END;
    }
    l->ids[l->n++ % l->cap] = id;
    return STET_OK;
}

/* Those whose ID begins with `from` or more. */
static int
list_marks_from(stet_engine *e, list_marks *l, uint64_t from)
{
    stet_bytes after = { l->after, l->name.len + sizeof(stet_id) };
    size_t     limit = l->is_ring ? 1000000 : 2 * l->cap + 2; /* some may be over, or come twice */
    int        err;

    l->n = l->seen = 0;
    l->is_full = false;
    memcpy(l->after, l->name.data, l->name.len);
    memset(l->after + l->name.len, 0, sizeof(stet_id));
    for (int i = 0; i < 8; i++)
        l->after[l->name.len + (size_t)i] = (char)(uint8_t)(from >> (56 - 8 * i));
    err = e->store->ops->values(e->store, l->space, l->name, from > 0 ? &after : NULL, limit,
                                list_on_mark, l);
    if (!l->is_ring && l->seen >= limit)
        l->is_full = true;
    return err == STET_END ? STET_OK : err;
}

static uint64_t
list_id_half(stet_id id)
{
    uint64_t half = 0;

    for (int i = 0; i < 8; i++)
        half = half << 8 | id.bytes[i];
    return half;
}

/* The newest before `before`, at least `want` of them unless there are fewer. A store lists keys
 * forwards only, so we look for a place near the end: further and further back until there are
 * enough, then halving until there are not too many. */
static int
list_marks_newest(stet_engine *e, list_marks *l, size_t want)
{
    uint64_t end =
        stet__id_is_zero(l->before) ? (uint64_t)stet__store_now(e) << 16 : list_id_half(l->before);
    uint64_t few = UINT64_MAX, many = end, gap = l->gap;
    int      err;

    l->is_ring = false;
    for (;;) {
        if ((err = list_marks_from(e, l, many)) != STET_OK || l->is_full)
            break;
        if (l->n >= want || many == 0) {
            l->gap = gap / 256;
            l->is_all = many == 0;
            return STET_OK;
        }
        few = many;
        gap = gap < (uint64_t)1 << 16 ? (uint64_t)1 << 16
              : gap > UINT64_MAX / 16 ? UINT64_MAX
                                      : gap * 16;
        many = gap < end ? end - gap : 0;
    }
    while (err == STET_OK && few - many > 1) {
        uint64_t middle = many + (few - many) / 2;

        if ((err = list_marks_from(e, l, middle)) != STET_OK)
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
    l->reached = many;
    return err == STET_OK ? list_marks_from(e, l, many) : err;
}

static bool
list_matches(const list *l, const stet_run_row *row)
{
    const stet_run_filter *f = &l->f;
    size_t                 len = f->handler != NULL ? strlen(f->handler) : 0;

    if (len > 0 && strcmp(row->handler, f->handler) != 0 &&
        !(strncmp(row->handler, f->handler, len) == 0 && row->handler[len] == '.'))
        return false;
    if (f->key != NULL && (row->key == NULL || strcmp(row->key, f->key) != 0))
        return false;
    if (f->statuses != 0 && !(f->statuses >> row->status & 1u))
        return false;
    if (l->session != 0 && row->session != l->session)
        return false;
    return (f->from_ms == 0 || row->created_ms >= f->from_ms) &&
           (f->to_ms == 0 || row->created_ms <= f->to_ms);
}

typedef struct list_one {
    stet__arena  arena;
    stet_run_row row;
} list_one;

static int
list_on_one(void *arg, const stet_run_row *row)
{
    list_one *one = arg;

    return list_copy(&one->arena, &one->row, row);
}

static int
list_look_at(list *l, const char *by, stet_id id)
{
    list_one one;
    bool     wants;
    int      err;

    stet__arena_init(&one.arena, &l->e->p->alloc);
    err = l->e->store->ops->run(l->e->store, id, list_on_one, &one);
    if (err == STET_OK) {
        list_note_looked(l, &one.row);
        wants = list_matches(l, &one.row);
        if (wants && (err = list_wants(l, by, &one.row, &wants)) == STET_OK && wants)
            err = list_keep(l, &one.row);
    }
    stet__arena_free(&one.arena);
    return err == STET_ENOTFOUND ? STET_OK : err;
}

static int
list_by_marks(list *l, const char *space, const char *name, size_t tail)
{
    list_marks found = { .space = space,
                         .name = { name, strlen(name) + 1 },
                         .tail = tail,
                         .before = l->before,
                         .cap = LIST_MARKS };
    int        err;

    if (tail > 0)
        found.now_ms = stet__store_now(l->e);
    if ((found.after = stet__arena_get(&l->arena, found.name.len + sizeof(stet_id))) == NULL ||
        (found.ids = stet__arena_get(&l->arena, found.cap * sizeof *found.ids)) == NULL)
        return list_no_memory();
    while (!list_is_full(l) && !found.is_all) {
        size_t want = l->cap - l->n < found.cap / 4 ? l->cap - l->n : found.cap / 4, n;

        if ((err = list_marks_newest(l->e, &found, want)) != STET_OK)
            return err;
        if ((n = found.n < found.cap ? found.n : found.cap) == 0 && !found.is_all) {
            /* The time of all of these is up. */
            memset(found.before.bytes, 0, sizeof found.before.bytes);
            for (int i = 0; i < 8; i++)
                found.before.bytes[i] = (uint8_t)(found.reached >> (56 - 8 * i));
            found.is_all = found.reached == 0;
        }
        for (size_t i = 1; i <= n; i++) {
            if (list_is_full(l))
                return STET_OK;
            found.before = found.ids[(found.n - i) % found.cap];
            if ((err = list_look_at(l, space, found.before)) != STET_OK)
                return err;
        }
    }
    l->looked.is_all = found.is_all;
    return STET_OK;
}

/* ---- by what rows tell ----------------------------------------------------------------------- */

typedef struct list_page {
    stet__arena  arena;
    stet_run_row rows[LIST_PAGE];
    size_t       n;
} list_page;

static int
list_on_page(void *arg, const stet_run_row *row)
{
    list_page *p = arg;
    int        err;

    if (p->n == LIST_PAGE)
        return STET_END;
    if ((err = list_copy(&p->arena, &p->rows[p->n], row)) == STET_OK)
        p->n++;
    return err;
}

/* A page of rows, looked at one by one. */
static int
list_page_of(list *l, stet_run_query *query)
{
    size_t     room = sizeof(list_page);
    list_page *p = stet__get(&l->e->p->alloc, room);
    bool       wants;
    int        err;

    if (p == NULL)
        return list_no_memory();
    stet__arena_init(&p->arena, &l->e->p->alloc);
    p->n = 0;
    query->limit = LIST_PAGE;
    err = l->e->store->ops->runs(l->e->store, query, list_on_page, p);
    err = err == STET_END ? STET_OK : err;
    l->looked.is_all = p->n < LIST_PAGE;
    for (size_t i = 0; err == STET_OK && i < p->n; i++) {
        if (list_is_full(l)) {
            l->looked.is_all = false;
            break;
        }
        list_note_looked(l, &p->rows[i]);
        query->before = p->rows[i].id;
        if ((err = list_wants(l, NULL, &p->rows[i], &wants)) == STET_OK && wants)
            err = list_keep(l, &p->rows[i]);
    }
    stet__arena_free(&p->arena);
    stet__free(&l->e->p->alloc, p);
    return err;
}

static int
list_on_row(void *arg, const stet_run_row *row)
{
    list *l = arg;

    if (l->n == l->cap)
        return STET_END;
    list_note_looked(l, row);
    return list_keep(l, row);
}

static int
list_by_query(list *l)
{
    stet_run_query query = { 0 };
    char           service[2 * STET__NAME_MAX + 2];
    int            err = STET_OK;

    if (l->f.handler != NULL) {
        (void)snprintf(service, sizeof service, "%s%s", l->f.handler,
                       strchr(l->f.handler, '.') != NULL ? "" : ".");
        query.handler = service;
    }
    query.key = l->f.key;
    query.status_mask = l->f.statuses;
    query.created_from_ms = l->f.from_ms;
    query.created_to_ms = l->f.to_ms;
    query.session = l->session;
    query.before = l->before;
    query.limit = l->cap;
    if (l->text == NULL && l->f.waits_for_signal == NULL && l->skip == NULL) {
        err = l->e->store->ops->runs(l->e->store, &query, list_on_row, l);
        l->looked.is_all = l->n < l->cap;
        return err == STET_END ? STET_OK : err;
    }
    while (err == STET_OK && !list_is_full(l) && !l->looked.is_all)
        err = list_page_of(l, &query);
    return err;
}

/* ---- the call -------------------------------------------------------------------------------- */

static int
list_hand_out(list *l, stet_run_info_fn fn, void *arg)
{
    stet__living served;
    int          err;

    if ((err = stet__living_open(l->e, &served)) != STET_OK)
        goto done;
    for (size_t i = 0; err == STET_OK && i < l->n; i++) {
        stet_run_info info = { 0 };
        stet__fact    extra = { 0 };
        stet_bytes    in = l->rows[i].extra;
        stet__run     run;
        uint64_t      bad;

        if (in.len > 0)
            (void)stet__fact_decode(&extra, &in);
        if ((err = stet__info_from_row(&l->arena, &info, &l->rows[i], &extra)) != STET_OK)
            break;
        info.is_served = stet__map_find(&served.names, info.handler, strlen(info.handler)) != NULL;
        if (l->f.with_payloads) {
            stet__run_init(&run, &l->arena, l->rows[i].id);
            if ((err = stet__load_facts(l->e, &run, NULL, &l->rows[i], &bad)) == STET_OK)
                err = stet__info_from_facts(&l->arena, &info, &run);
            else if (err == STET_ECORRUPT) /* or removed just now: it is listed without payloads */
                err = STET_OK;
        }
        if (err == STET_OK)
            err = fn(arg, &info);
    }
done:
    stet__living_free(&served);
    return err;
}

typedef struct list_worker {
    stet_id  id;
    uint64_t session;
} list_worker;

static int
list_on_session(void *arg, const stet_session_row *row)
{
    list_worker *w = arg;

    if (stet__id_equal(row->id, w->id) && row->session > w->session)
        w->session = row->session;
    return STET_OK;
}

/* Whose runs? *is_nobody: this engine has none. */
static int
list_whose(list *l, bool *is_nobody)
{
    list_worker w = { .session = 0 };
    int         err;

    *is_nobody = false;
    if (l->f.is_here) {
        stet__lock(l->e->p, &l->e->lock);
        l->session = l->e->session;
        stet__unlock(l->e->p, &l->e->lock);
        *is_nobody = l->session == 0;
    }
    if (l->f.worker == NULL)
        return STET_OK;
    if ((err = stet__id_parse(&w.id, STET__ID_WORKER, l->f.worker)) != STET_OK ||
        (err = l->e->store->ops->sessions(l->e->store, list_on_session, &w)) != STET_OK)
        return err;
    if (w.session == 0)
        return stet__fail(STET_ENOTFOUND, "there is no worker %s in %s; `stet workers` lists them",
                          l->f.worker, l->e->url);
    l->session = w.session;
    return STET_OK;
}

static int
list_check_waits(list *l)
{
    uint32_t open = 0;
    int      err;

    if (l->f.waits_for_signal == NULL && l->f.waits_for_topic == NULL)
        return STET_OK;
    if ((l->f.waits_for_signal != NULL &&
         (err = stet__name_check("signal", l->f.waits_for_signal)) != STET_OK) ||
        (l->f.waits_for_topic != NULL &&
         (err = stet__name_check("topic", l->f.waits_for_topic)) != STET_OK))
        return err;
    for (int status = STET_STATUS_PENDING; status <= STET_STATUS_EXPIRED; status++)
        if (!stet_status_is_terminal((stet_status)status) && status != STET_STATUS_RUNNING)
            open |= 1u << status;
    if (l->f.statuses != 0 && (l->f.statuses & open) == 0)
        return stet__fail(
            STET_EINVAL,
            "runs in these statuses wait for no signal and no event; ask for suspended ones");
    if (l->f.is_here || l->f.worker != NULL)
        return stet__fail(STET_EINVAL,
                          "a run that waits is at no worker; ask for one or the other");
    l->f.statuses = l->f.statuses != 0 ? l->f.statuses & open : open;
    return STET_OK;
}

static int
list_check_text(list *l)
{
    if (l->f.text == NULL)
        return STET_OK;
    l->text_len = strlen(l->f.text);
    if (l->text_len == 0 || l->text_len > LIST_TEXT_MAX)
        return stet__fail(STET_EINVAL, "the text to look for has %zu bytes; expected 1 to %d",
                          l->text_len, LIST_TEXT_MAX);
    if ((l->text = stet__arena_str(&l->arena, l->f.text)) == NULL)
        return list_no_memory();
    for (size_t i = 0; i < l->text_len; i++)
        l->text[i] = list_small(l->text[i]);
    return STET_OK;
}

static int
list_check(list *l)
{
    stet_run_filter *f = &l->f;
    int              err;

    if (f->size != sizeof *f)
        return stet__fail(STET_EINVAL, "stet_run_filter.size is %zu; use STET_FILTER(…)", f->size);
    if (f->is_here && f->worker != NULL)
        return stet__fail(STET_EINVAL,
                          "runs of this process, or of worker %s? ask for one or the other",
                          f->worker);
    if (f->before != NULL &&
        (err = stet__id_parse(&l->before, STET__ID_RUN, f->before->text)) != STET_OK)
        return err;
    if (f->look_max == 0)
        f->look_max = l->text != NULL || f->waits_for_signal != NULL ? LIST_LOOK : LIST_LOOK_MAX;
    if (f->look_max > LIST_LOOK_MAX)
        f->look_max = LIST_LOOK_MAX;
    l->cap = f->limit > 0 ? f->limit : 50;
    if (l->cap > LIST_MAX)
        l->cap = LIST_MAX;
    return list_check_waits(l);
}

static int
list_find(list *l)
{
    bool is_nobody;
    int  err;

    if ((err = list_whose(l, &is_nobody)) != STET_OK)
        return err;
    l->looked.is_all = is_nobody;
    if (is_nobody)
        return STET_OK;
    if ((l->rows = stet__arena_get(&l->arena, l->cap * sizeof *l->rows)) == NULL)
        return list_no_memory();
    if (l->f.waits_for_topic != NULL)
        return list_by_marks(l, STET__SPACE_TOPIC, l->f.waits_for_topic, 8);
    return l->f.label != NULL ? list_by_marks(l, STET__SPACE_LABEL, l->f.label, 0)
                              : list_by_query(l);
}

static int
list_runs(stet_engine *e, const char *call, const stet_run_filter *filter,
          bool (*skip)(const stet__fact *extra), stet_run_info_fn fn, void *arg)
{
    static const stet_run_filter all = { .size = sizeof all };
    list                         l = { .e = e, .f = filter != NULL ? *filter : all, .skip = skip };
    int                          err;

    if ((err = stet__alive(e, call)) != STET_OK)
        return err;
    if (skip != NULL) {
        l.f.statuses = 1u << STET_STATUS_FAILED;
        l.f.with_payloads = true;
    }
    stet__arena_init(&l.arena, &e->p->alloc);
    if ((err = list_check_text(&l)) == STET_OK && (err = list_check(&l)) == STET_OK &&
        (err = list_find(&l)) == STET_OK) {
        if (l.f.looked != NULL)
            *l.f.looked = l.looked;
        err = list_hand_out(&l, fn, arg);
    }
    stet__arena_free(&l.arena);
    return err;
}

int
stet_run_list(stet_engine *e, const stet_run_filter *filter, stet_run_info_fn fn, void *arg)
{
    return list_runs(e, "stet_run_list", filter, NULL, fn, arg);
}

static bool
list_is_settled_letter(const stet__fact *extra)
{
    return extra->retried_by.data != NULL || (extra->flags & STET__FACT_DISCARDED) != 0;
}

int
stet_dlq_list(stet_engine *e, const stet_run_filter *filter, stet_run_info_fn fn, void *arg)
{
    return list_runs(e, "stet_dlq_list", filter, list_is_settled_letter, fn, arg);
}
