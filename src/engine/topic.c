/* Topics: who waits for events, and telling all of them.
 *
 * The mark of a wait is a value that is put with the wait's record. An emission takes marks in the order of their
 * runs, a lot at a time: one unit removes the marks, puts the event into the inboxes, wakes the runs, and records
 * how far the emission came. So no unit grows with the number of waiters, each of them is told once and counted
 * once, and a crash in the middle leaves a record from which the rest is done: the journal of the run that emits,
 * or for an emission from outside a value, which the sweep of any worker takes up.
 *
 * Whom it is for: runs that waited when it began, by the store's clock. It is asked for then, because an estimate that is
 * behind that of who recorded a wait would pass the wait over. One that waits anew meanwhile is behind the place where it
 * stood. A wait whose time is up is passed over, though its run may not know it yet. Whose timer has fired its time is
 * up, also if the store's clock was set back since: such waits are kept in mind when a unit is refused because of one, or
 * an emission would be refused until their runs are executed.
 */
#include <stddef.h>
#include <string.h>

#include "engine/host.h"

#define TOPIC_LOT_BYTES 1048576u
#define TOPIC_TRIES_MAX 100
#define TOPIC_KEPT_MS 60000  /* for those who subscribe */
#define TOPIC_SWEEP_PAGE 64u
#define TOPIC_SWEEP_PAGES_MAX 64

/* ---- marks ------------------------------------------------------------------------------------------ */

bool
stet__topic_wait_key(stet__arena *arena, stet_bytes *out, stet_bytes topic, stet_id run, uint64_t completion)
{
    uint8_t *at = stet__arena_get(arena, topic.len + 1 + sizeof run.bytes + 8);

    if (at == NULL)
        return false;
    out->data = at;
    out->len = topic.len + 1 + sizeof run.bytes + 8;
    memcpy(at, topic.data, topic.len);
    at += topic.len;
    *at++ = 0;
    memcpy(at, run.bytes, sizeof run.bytes);
    at += sizeof run.bytes;
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(completion >> (56 - 8 * i));
    return true;
}

void
stet__topic_wait_mark(const stet__fact *wait, uint64_t completion, stet__fact *mark)
{
    memset(mark, 0, sizeof *mark);
    mark->kind = STET__FACT_TOPIC;
    mark->time_ms = wait->time_ms;
    mark->until_ms = wait->until_ms;
    mark->completion = (int64_t)completion;
}

bool
stet__topic_wait_put(stet__work *w, stet_id run, const stet__fact *wait)
{
    stet_op   *op = stet__work_op(w, STET_OP_VALUE_PUT, run);
    stet__fact mark;

    if (op == NULL)
        return false;
    op->space = STET__SPACE_TOPIC;
    op->number = wait->revision;
    stet__topic_wait_mark(wait, wait->revision, &mark);
    return stet__topic_wait_key(&w->arena, &op->key, wait->name, run, wait->revision) &&
           stet__work_fact(w, &op->data, &mark);
}

bool
stet__topic_wait_gone(stet__work *w, stet_id run, const char *topic, uint64_t completion)
{
    stet_op *op = stet__work_op(w, STET_OP_VALUE_DEL, run);

    if (op == NULL)
        return false;
    op->space = STET__SPACE_TOPIC;
    return stet__topic_wait_key(&w->arena, &op->key, stet_text(topic), run, completion);
}

/* ---- a lot ------------------------------------------------------------------------------------------ */

typedef struct topic_wait {
    stet_bytes key;
    uint64_t   version;
    stet_id    run;
    int64_t    until_ms;
    uint64_t   completion;
} topic_wait;

typedef struct emission {
    stet_engine *e;
    stet_bytes   topic, value;
    int64_t      as_of_ms;
    stet_id      cursor;  /* the last run that was told; zero: none */
    uint64_t     count;
    bool         is_last; /* there are none behind this lot */
    size_t       most;    /* in a lot */
    stet__arena  arena;   /* of the lot */
    topic_wait  *waits;
    size_t       n, seen;
    stet_bytes   after;
    int64_t      now_ms;
    stet__late_wait late[STET__LATE_WAITS];
    size_t       n_late;
} emission;

void
stet__emit_refused(stet_engine *e, const stet__work *w, const stet_outcome *outcome)
{
    const stet_cond *cond = outcome->cond < w->unit.n_conds ? &w->conds[outcome->cond] : NULL;

    if (outcome->result != STET_ECONFLICT || cond == NULL || cond->kind != STET_COND_TIMER)
        return;
    e->late_waits[e->n_late_waits++ % STET__LATE_WAITS] = (stet__late_wait){ cond->run, cond->number };
}

/* A copy: the store is asked without the lock. */
static void
emission_recall(emission *m)
{
    stet_engine *e = m->e;

    stet__lock(e->p, &e->lock);
    m->n_late = e->n_late_waits < STET__LATE_WAITS ? e->n_late_waits : STET__LATE_WAITS;
    memcpy(m->late, e->late_waits, m->n_late * sizeof *m->late);
    stet__unlock(e->p, &e->lock);
}

static bool
emission_is_late(const emission *m, const topic_wait *wait)
{
    for (size_t i = 0; i < m->n_late; i++)
        if (m->late[i].completion == wait->completion && stet__id_equal(m->late[i].run, wait->run))
            return true;
    return false;
}

static int
emission_begin(emission *m)
{
    int err = m->e->store->ops->ping(m->e->store);

    m->as_of_ms = stet__store_now(m->e);
    return err;
}

static size_t
emission_lot(const stet_engine *e, stet_bytes value)
{
    size_t fit = TOPIC_LOT_BYTES / (value.len + 1);

    return fit > e->topic_lot ? e->topic_lot : fit > 0 ? fit : 1;
}

static int
emission_on_mark(void *arg, stet_bytes key, const stet_value *value)
{
    emission   *m = arg;
    topic_wait *wait = &m->waits[m->n];
    stet_bytes  in = value->data;
    stet__fact  mark;
    void       *copy = stet__arena_copy(&m->arena, key.data, key.len);

    if (copy == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    m->seen++;
    m->after = (stet_bytes){ copy, key.len };
    if (stet__fact_decode(&mark, &in) != STET_OK || key.len != m->topic.len + 1 + sizeof wait->run.bytes + 8 ||
        mark.time_ms > m->as_of_ms - STET__MUTANT(event_edge) || (mark.until_ms != 0 && mark.until_ms <= m->now_ms))
        return STET_OK;
    *wait = (topic_wait){ .key = m->after,
                          .version = value->version,
                          .until_ms = mark.until_ms,
                          .completion = (uint64_t)mark.completion };
    memcpy(wait->run.bytes, (const char *)key.data + m->topic.len + 1, sizeof wait->run.bytes);
    if (!emission_is_late(m, wait))
        m->n++;
    return STET_OK;
}

/* The next lot of those who wait. */
static int
emission_gather(emission *m)
{
    stet_store *store = m->e->store;
    stet_bytes  prefix;
    uint8_t    *at;
    int         err = STET_OK;

    stet__arena_free(&m->arena);
    emission_recall(m);
    m->n = 0;
    m->is_last = false;
    m->now_ms = stet__store_now(m->e);
    m->after = (stet_bytes){ NULL, 0 };
    if ((at = stet__arena_get(&m->arena, m->topic.len + 1)) == NULL ||
        (m->waits = stet__arena_get(&m->arena, m->most * sizeof *m->waits)) == NULL ||
        (!stet__id_is_zero(m->cursor) &&
         !stet__topic_wait_key(&m->arena, &m->after, m->topic, m->cursor, UINT64_MAX)))
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    memcpy(at, m->topic.data, m->topic.len);
    at[m->topic.len] = 0;
    prefix = (stet_bytes){ at, m->topic.len + 1 };
    do {
        stet_bytes after = m->after;
        size_t     room = m->most - m->n;

        m->seen = 0;
        if ((err = store->ops->values(store, STET__SPACE_TOPIC, prefix, after.data != NULL ? &after : NULL, room,
                                      emission_on_mark, m)) != STET_OK)
            return err;
        m->is_last = m->seen < room;
    } while (!m->is_last && m->n < m->most);
    return STET_OK;
}

static bool
emission_tell(stet__work *w, const topic_wait *wait, const emission *m)
{
    stet__fact event = { 0 };
    stet_cond *cond = stet__work_cond(w, STET_COND_VALUE, wait->run);
    stet_op   *op = stet__work_op(w, STET_OP_VALUE_DEL, wait->run);

    if (cond == NULL || op == NULL || !stet__work_bytes(w, &op->key, wait->key))
        return false;
    cond->space = op->space = STET__SPACE_TOPIC;
    cond->key = op->key;
    cond->number = wait->version;
    if (STET__MUTANT(event_unchecked))
        w->unit.n_conds--;
    /* Its time may be up by now, and then that came first. */
    if (wait->until_ms != 0) {
        if ((cond = stet__work_cond(w, STET_COND_TIMER, wait->run)) == NULL)
            return false;
        cond->fire_ms = wait->until_ms;
        cond->number = wait->completion;
    }
    event.kind = STET__FACT_EVENT;
    event.time_ms = m->now_ms;
    event.name = m->topic;
    event.value = m->value;
    event.completion = (int64_t)wait->completion;
    return (op = stet__work_op(w, STET_OP_INBOX, wait->run)) != NULL && stet__work_fact(w, &op->data, &event) &&
           (STET__MUTANT(event_unwoken) || stet__work_wake(w, wait->run, STET_STATUS_PENDING, 0));
}

/* Conditions and operations for all of the lot; the emission is as it is when they are applied. */
static int
emission_ops(emission *m, stet__work *w)
{
    for (size_t i = 0; i < m->n; i++)
        if (!emission_tell(w, &m->waits[i], m))
            return stet__fail(STET_ENOMEM, "out of memory for an event");
    m->count += m->n;
    if (m->n > 0)
        m->cursor = m->waits[m->n - 1].run;
    return STET_OK;
}

/* ---- records of emissions ---------------------------------------------------------------------------- */

static int
emission_put(emission *m, stet__work *w, stet_id id, const uint64_t *version, bool is_done)
{
    stet__fact record = { 0 };
    stet_op   *op = stet__work_op(w, STET_OP_VALUE_PUT, id);
    stet_cond *cond;

    record.kind = STET__FACT_EMIT;
    record.time_ms = m->as_of_ms;
    record.until_ms = m->now_ms;
    record.name = m->topic;
    record.value = m->value;
    record.number = (int64_t)m->count;
    record.run = stet__id_bytes(&m->cursor);
    record.flags = is_done ? 0 : STET__FACT_MORE;
    if (op == NULL || !stet__work_bytes(w, &op->key, stet__id_bytes(&id)) || !stet__work_fact(w, &op->data, &record))
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    op->space = STET__SPACE_BASE_EMIT;
    w->has_event = true;
    if (version == NULL)
        return STET_OK;
    if ((cond = stet__work_cond(w, STET_COND_VALUE, id)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    cond->space = STET__SPACE_BASE_EMIT;
    cond->key = op->key;
    cond->number = *version;
    return STET_OK;
}

static stet_id
emission_id(stet_engine *e, int64_t now_ms)
{
    uint8_t random[10];

    e->p->ops->random(e->p, random, sizeof random);
    return stet__id_make(now_ms, random);
}

/* Lot after lot. A conflict: somebody does not wait any more, and smaller lots meet fewer of those; or somebody else is
 * at this emission. */
static int
emission_run(emission *m, stet_id id, uint64_t version)
{
    int tries = 0, err;

    do {
        stet__work *w = stet__work_new(m->e, NULL, NULL);
        emission    before = *m;
        uint32_t    cond = 0, record;

        if (w == NULL)
            return STET_ENOMEM;
        if ((err = emission_gather(m)) != STET_OK || (err = emission_ops(m, w)) != STET_OK ||
            (err = emission_put(m, w, id, &version, m->is_last)) != STET_OK) {
            stet__work_free(w);
            return err;
        }
        record = (uint32_t)w->unit.n_conds - 1;
        if ((err = stet__commit_sync(m->e, w, &cond)) == STET_OK) {
            version++;
            tries = 0;
            continue;
        }
        m->count = STET__MUTANT(emit_recount) ? m->count : before.count;
        m->cursor = STET__MUTANT(emit_cursor) ? m->cursor : before.cursor;
        m->is_last = m->is_last && STET__MUTANT(emit_conflict_last);
        m->most = m->most > 1 ? m->most / 2 : 1;
        if (err != STET_ECONFLICT || cond == record || ++tries == TOPIC_TRIES_MAX)
            return err;
    } while (!m->is_last);
    return STET_OK;
}

int
stet_emit(stet_engine *e, size_t *resumed, const char *topic, stet_bytes value)
{
    emission m = { .e = e };
    int      err;

    if (resumed != NULL)
        *resumed = 0;
    if ((err = stet__alive(e, "stet_emit")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_emit", "stet_ctx_emit")) != STET_OK ||
        (err = stet__name_check("topic", topic)) != STET_OK)
        return err;
    if ((int64_t)value.len > e->config.payload_bytes_max)
        return stet__fail(STET_ETOOBIG, "topic %s: %zu bytes; the limit is payload_bytes_max, %lld", topic, value.len,
                          (long long)e->config.payload_bytes_max);
    stet__arena_init(&m.arena, &e->p->alloc);
    m.topic = stet_text(topic);
    m.value = value.data != NULL ? value : stet_text("");
    m.most = emission_lot(m.e, m.value);
    if ((err = emission_begin(&m)) == STET_OK)
        err = emission_run(&m, emission_id(e, m.as_of_ms), 0);
    stet__arena_free(&m.arena);
    if (resumed != NULL)
        *resumed = (size_t)m.count;
    if (err == STET_ECONFLICT)
        return stet__fail(STET_EBUSY, "topic %s: those who wait for it changed all the time; %llu were told, the rest will be "
                                      "by a worker", topic, (unsigned long long)m.count);
    if (err == STET_EUNCERTAIN) /* no key: a topic keeps nothing, so a repeat has nothing to be compared with */
        return stet__commit_unknown(e, "topic %.100s: %llu were told, and the rest if the event was recorded; "
                                       "`ls --waits-for-topic` shows who waits still, and to emit again tells those and who "
                                       "waits anew", topic, (unsigned long long)m.count);
    return err;
}

int
stet__emit_in(stet_ctx *c, stet__work *w, stet__fact *fact)
{
    emission m = { .e = host_claim(c)->engine };
    bool     is_first = fact->until_ms == 0;
    stet_id *cursor = stet__arena_get(&c->arena, sizeof *cursor);
    int      err = STET_OK;

    if (cursor == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    stet__arena_init(&m.arena, &m.e->p->alloc);
    m.topic = fact->name;
    m.value = fact->value;
    m.as_of_ms = STET__MUTANT(emit_since) ? stet__store_now(m.e) : fact->until_ms;
    m.cursor = stet__fact_id(fact->run);
    m.count = STET__MUTANT(emit_uncounted) ? 0 : (uint64_t)fact->number;
    m.most = emission_lot(m.e, m.value);
    if ((!is_first || (err = emission_begin(&m)) == STET_OK) && (err = emission_gather(&m)) == STET_OK &&
        (err = emission_ops(&m, w)) == STET_OK &&
        (!is_first || (err = emission_put(&m, w, emission_id(m.e, m.as_of_ms), NULL, true)) == STET_OK)) {
        *cursor = m.cursor;
        fact->run = stet__id_bytes(cursor);
        fact->until_ms = m.as_of_ms;
        fact->number = (int64_t)m.count;
        fact->flags = m.is_last ? 0 : STET__FACT_MORE;
        if (!is_first)
            fact->value = (stet_bytes){ NULL, 0 }; /* the first one has it */
        err = stet__host_append(c, fact, NULL);
    }
    stet__arena_free(&m.arena);
    return err;
}

/* ---- sweeping ---------------------------------------------------------------------------------------- */

typedef struct emit_found {
    stet_id    id;
    uint64_t   version;
    stet__fact record;
} emit_found;

typedef struct emit_page {
    stet__arena arena;
    int64_t     now_ms, stale_ms;
    bool        is_any; /* goes on, or went on when its emitter died */
    size_t      n, seen;
    stet_id     last;
    emit_found  found[TOPIC_SWEEP_PAGE]; /* n of them: those that are old */
} emit_page;

/* Oldest first. */
static int
emit_on_record(void *arg, stet_bytes key, const stet_value *value)
{
    emit_page *page = arg;
    stet_bytes in = { stet__arena_copy(&page->arena, value->data.data, value->data.len), value->data.len };
    stet__fact record;

    page->seen++;
    page->last = stet__fact_id(key);
    if (in.data == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    if (stet__fact_decode(&record, &in) != STET_OK)
        return STET_OK; /* kept for who looks into it */
    page->is_any = page->is_any || (record.flags & STET__FACT_MORE);
    if (record.until_ms + (record.flags & STET__FACT_MORE ? page->stale_ms : TOPIC_KEPT_MS) > page->now_ms)
        return STET_OK;
    page->found[page->n++] = (emit_found){ page->last, value->version, record };
    return STET_OK;
}

static void
emit_forget(stet_engine *e, stet_id id)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    stet_op    *op = w != NULL ? stet__work_op(w, STET_OP_VALUE_DEL, id) : NULL;

    if (op == NULL || !stet__work_bytes(w, &op->key, stet__id_bytes(&id)) || !stet__stop_guard(e, w)) {
        stet__work_free(w);
        return;
    }
    op->space = STET__SPACE_BASE_EMIT;
    stet__submit(e, w);
}

/* Nobody is at it any more: what is left of it is done, else with the next sweep, or by who was faster. */
static void
emit_finish(stet_engine *e, const emit_found *found)
{
    const stet__fact *record = &found->record;
    emission          m = { .e = e };

    stet__arena_init(&m.arena, &e->p->alloc);
    m.topic = record->name;
    m.value = record->value;
    m.as_of_ms = record->time_ms;
    m.cursor = stet__fact_id(record->run);
    m.count = (uint64_t)record->number;
    m.most = emission_lot(m.e, m.value);
    (void)emission_run(&m, found->id, found->version);
    stet__arena_free(&m.arena);
}

/* One page from the cursor on. True: there may be more behind it. */
static bool
emit_page_round(stet_engine *e, emit_page *page)
{
    stet_bytes all = { NULL, 0 }, after = stet__id_bytes(&e->emit_after);
    int        err;

    stet__arena_free(&page->arena);
    page->n = page->seen = 0;
    err = e->store->ops->values(e->store, STET__SPACE_BASE_EMIT, all, stet__id_is_zero(e->emit_after) ? NULL : &after,
                                TOPIC_SWEEP_PAGE, emit_on_record, page);
    for (size_t i = 0; i < page->n; i++)
        if (!(page->found[i].record.flags & STET__FACT_MORE) || STET__MUTANT(emit_left))
            emit_forget(e, page->found[i].id);
        else
            emit_finish(e, &page->found[i]);
    stet__committer_kick(e);
    if (err != STET_OK)
        return false;
    /* Past the last page it begins again at the oldest, with the next sweep. */
    e->emit_after = page->seen == TOPIC_SWEEP_PAGE ? page->last : (stet_id){ { 0 } };
    return page->seen == TOPIC_SWEEP_PAGE;
}

/* Within bounds, so that the keeper is not kept from its timers; the next sweep goes on from there. */
bool
stet__emit_sweep(stet_engine *e)
{
    emit_page *page = stet__get_head(&e->p->alloc, sizeof *page, offsetof(emit_page, found));
    bool       has_more = true, is_any;

    if (page == NULL)
        return true;
    stet__arena_init(&page->arena, &e->p->alloc);
    page->now_ms = stet__store_now(e);
    page->stale_ms = e->config.lease_ms; /* so long without a lot: nobody is at it any more */
    for (int i = 0; i < TOPIC_SWEEP_PAGES_MAX && has_more; i++)
        has_more = emit_page_round(e, page);
    is_any = page->is_any || !stet__id_is_zero(e->emit_after);
    stet__arena_free(&page->arena);
    stet__free(&e->p->alloc, page);
    return is_any;
}
