/* A move's writing: sources are copied run by run, then what follows from them is rebuilt.
 *
 * Every unit stands on conditions that hold once only: a row that is not there, a journal or an
 * inbox that ends where the unit goes on. So a unit that was applied before is seen in the target
 * and not made again, whoever was killed when. Until the row is rebuilt a run in the target is open
 * and unclaimed, since only such a one takes an inbox.
 *
 * Lanes are entered in the order the source has them; that order is not in the facts. State of
 * objects is set right in the end to what the source has: the facts tell it too, but not where some
 * of them cannot be read, and not when two machines wrote within a millisecond.
 */
#include <string.h>

#include "engine/move.h"

#define COPY_ROWS 64u /* of a journal or inbox, read at a time */

int
stet__move_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory while moving");
}

/* ---- units, many to a flush ------------------------------------------------------------------ */

int
stet__move_flush(move *m)
{
    int    results[MOVE_PAGE];
    size_t n = m->n_works;
    int    err;

    m->n_works = m->bytes = 0;
    if (n == 0)
        return STET_OK;
    if ((err = stet__commit_all(m->to, m->works, n, results, NULL)) != STET_OK)
        return err;
    for (size_t i = 0; i < n; i++)
        if (results[i] == STET_ECONFLICT)
            return stet__fail(STET_ECONFLICT,
                              "%s was changed while it was filled; is another move at work?",
                              m->to->url);
        else if ((err = stet__commit_failed(m->to, results[i])) != STET_OK)
            return err;
    return STET_OK;
}

int
stet__move_add(move *m, stet__work *w, size_t bytes)
{
    m->works[m->n_works++] = w;
    m->bytes += bytes;
    return m->n_works == MOVE_PAGE || m->bytes >= 4 * m->unit_bytes ? stet__move_flush(m) : STET_OK;
}

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct copy_run {
    move               *m;
    const stet_run_row *row;            /* in the source */
    bool                exists;         /* in the target, or will by the units on their way */
    uint64_t            journal, inbox; /* the same */
    uint64_t            inbox_first;    /* in the source; behind the last one if it is empty */
    stet__work         *w;
    size_t              bytes;
} copy_run;

static int
copy_on_target(void *arg, const stet_run_row *row)
{
    copy_run *c = arg;

    c->exists = true;
    c->journal = row->journal;
    c->inbox = row->inbox;
    return STET_OK;
}

/* Nobody can claim it: the target is stopped. What the row says about being ready may not be in the
 * facts, so it is there for the rebuilding to see. */
static bool
copy_put_row(copy_run *c)
{
    stet_run_row *row = stet__arena_copy(&c->w->arena, c->row, sizeof *row);
    stet_op      *op = stet__work_op(c->w, STET_OP_RUN_PUT, c->row->id);

    if (row == NULL || op == NULL ||
        (row->handler = stet__arena_str(&c->w->arena, row->handler)) == NULL ||
        (row->key != NULL && (row->key = stet__arena_str(&c->w->arena, row->key)) == NULL) ||
        (row->group != NULL && (row->group = stet__arena_str(&c->w->arena, row->group)) == NULL) ||
        (row->reason != NULL &&
         (row->reason = stet__arena_str(&c->w->arena, row->reason)) == NULL) ||
        !stet__work_bytes(c->w, &row->extra, row->extra))
        return false;
    if (row->is_terminal) {
        row->status = STET_STATUS_PENDING;
        row->due_ms = STET_NEVER;
    }
    row->lane = NULL;
    row->session = row->epoch = row->journal = row->inbox = 0;
    row->is_terminal = 0;
    row->ended_ms = STET_NEVER;
    op->row = row;
    return true;
}

/* The unit that goes on, or the next one. */
static int
copy_open(copy_run *c)
{
    stet_cond *cond;

    if (c->w != NULL && c->bytes < c->m->unit_bytes)
        return STET_OK;
    if (c->w != NULL) {
        stet__work *w = c->w;
        int         err;

        c->w = NULL;
        if ((err = stet__move_add(c->m, w, c->bytes)) != STET_OK)
            return err;
    }
    c->bytes = 0;
    if ((c->w = stet__work_new(c->m->to, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if (!c->exists) {
        c->exists = true;
        return copy_put_row(c) ? STET_OK : stet__move_no_memory();
    }
    if ((cond = stet__work_cond(c->w, STET_COND_INBOX, c->row->id)) == NULL)
        return stet__move_no_memory();
    cond->number = c->inbox;
    return STET_OK;
}

/* Does a generation begin there? In the target its facts and inbox begin where they do in the source. */
static bool
copy_is_anew(const copy_run *c, uint64_t first, stet_bytes facts)
{
    stet__fact fact;

    return c->journal == 0 && stet__fact_decode(&fact, &facts) == STET_OK && fact.kind == STET__FACT_STARTED &&
           fact.generation != 0 && (uint64_t)fact.since == first;
}

/* Runs in the middle of a read: it only builds units, copy_open() before the read made room. */
static int
copy_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    copy_run *c = arg;
    stet_op  *op;
    bool      is_anew = false;

    if (first > c->row->journal)
        return STET_END;
    if (first != c->journal + 1 && !(is_anew = copy_is_anew(c, first, facts)))
        return stet__fail(STET_ECORRUPT, "revision %llu follows %llu", (unsigned long long)first,
                          (unsigned long long)c->journal);
    if ((op = stet__work_op(c->w, STET_OP_FACTS, c->row->id)) == NULL ||
        !stet__work_bytes(c->w, &op->data, facts))
        return stet__move_no_memory();
    op->number = first;
    op->count = count;
    if (is_anew) {
        op->flags = STET_OP_ANEW;
        op->session = c->inbox = c->inbox_first - 1;
    }
    c->journal = first + count - 1;
    c->bytes += facts.len + 64;
    return c->bytes < c->m->unit_bytes ? STET_OK : STET_END; /* the next unit goes on from here */
}

static int
copy_on_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes entry)
{
    copy_run *c = arg;
    stet_op  *op;

    (void)count;
    if (first > c->row->inbox)
        return STET_END;
    if (first != c->inbox + 1)
        return stet__fail(STET_ECORRUPT, "inbox entry %llu follows %llu", (unsigned long long)first,
                          (unsigned long long)c->inbox);
    if ((op = stet__work_op(c->w, STET_OP_INBOX, c->row->id)) == NULL ||
        !stet__work_bytes(c->w, &op->data, entry))
        return stet__move_no_memory();
    c->inbox++;
    c->bytes += entry.len + 64;
    return c->bytes < c->m->unit_bytes ? STET_OK : STET_END;
}

static int
copy_on_first(void *arg, uint64_t first, uint32_t count, stet_bytes entry)
{
    (void)count;
    (void)entry;
    ((copy_run *)arg)->inbox_first = first;
    return STET_END;
}

static int
copy_damaged(const copy_run *c)
{
    char text[512], run[STET_ID_TEXT_MAX];

    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    stet__id_text(run, STET__ID_RUN, c->row->id);
    return stet__fail(STET_ECORRUPT, "run %s cannot be moved: %s; `verify` tells more", run, text);
}

static int
copy_read_all(copy_run *c)
{
    stet_store *s = c->m->from->store;
    uint64_t    before;
    int         err = STET_OK;

    c->inbox_first = c->row->inbox + 1;
    if (c->row->inbox > 0 && (err = s->ops->inbox(s, c->row->id, 1, 1, copy_on_first, c)) == STET_END)
        err = STET_OK;
    while (err == STET_OK && c->journal < c->row->journal) {
        before = c->journal;
        if ((err = copy_open(c)) != STET_OK)
            break;
        err = s->ops->journal(s, c->row->id, before + 1, COPY_ROWS, copy_on_facts, c);
        err = err == STET_END ? STET_OK : err;
        if (err == STET_OK && c->journal == before)
            err = stet__fail(STET_ECORRUPT, "its facts end at revision %llu of %llu",
                             (unsigned long long)before, (unsigned long long)c->row->journal);
    }
    while (err == STET_OK && c->inbox < c->row->inbox) {
        before = c->inbox;
        if ((err = copy_open(c)) != STET_OK)
            break;
        err = s->ops->inbox(s, c->row->id, before + 1, COPY_ROWS, copy_on_inbox, c);
        err = err == STET_END ? STET_OK : err;
        if (err == STET_OK && c->inbox == before)
            err = stet__fail(STET_ECORRUPT, "its inbox ends at entry %llu of %llu",
                             (unsigned long long)before, (unsigned long long)c->row->inbox);
    }
    return err == STET_ECORRUPT ? copy_damaged(c) : err;
}

static int
copy_one(move *m, const stet_run_row *row)
{
    copy_run    c = { .m = m, .row = row };
    stet_store *t = m->to->store;
    int         err = t->ops->run(t, row->id, copy_on_target, &c);

    if (err != STET_OK && err != STET_ENOTFOUND)
        return err;
    if (c.journal > row->journal || c.inbox > row->inbox) {
        char run[STET_ID_TEXT_MAX];

        stet__id_text(run, STET__ID_RUN, row->id);
        return stet__fail(STET_ECORRUPT, "%s has more of run %s than %s", m->to->url, run,
                          m->from->url);
    }
    err = copy_read_all(&c);
    if (err == STET_OK && !c.exists) /* a row without facts; told by verify, on both sides */
        err = copy_open(&c);
    if (err == STET_OK && c.w != NULL)
        return stet__move_add(m, c.w, c.bytes);
    stet__work_free(c.w);
    return err;
}

/* ---- baselines ------------------------------------------------------------------------------- */

typedef struct copy_base {
    struct copy_base *next;
    stet_bytes        key;
    stet_value        value;
} copy_base;

typedef struct copy_bases {
    move      *m;
    copy_base *first, **end;
    size_t     n;
} copy_bases;

static int
copy_on_base(void *arg, stet_bytes key, const stet_value *value)
{
    copy_bases *b = arg;
    copy_base  *base = stet__arena_get0(&b->m->arena, sizeof *base);

    if (base == NULL)
        return stet__move_no_memory();
    base->value = *value;
    if ((base->key.data = stet__arena_copy(&b->m->arena, key.data, key.len)) == NULL ||
        (base->value.data.data =
             stet__arena_copy(&b->m->arena, value->data.data, value->data.len)) == NULL)
        return stet__move_no_memory();
    base->key.len = key.len;
    *b->end = base;
    b->end = &base->next;
    b->n++;
    return STET_OK;
}

static int
copy_put_base(move *m, const char *space, const copy_base *base)
{
    stet_store *t = m->to->store;
    stet_value  is = { 0 };
    stet__work *w;
    stet_op    *op;
    bool        is_same;
    int         err = t->ops->value(t, space, base->key, &is);

    if (err != STET_OK && err != STET_ENOTFOUND)
        return err;
    is_same = err == STET_OK && is.data.len == base->value.data.len &&
              (is.data.len == 0 || memcmp(is.data.data, base->value.data.data, is.data.len) == 0) &&
              stet__id_equal(is.run, base->value.run) && is.revision == base->value.revision;
    stet__free(t->alloc, (void *)(uintptr_t)is.data.data);
    if (is_same)
        return STET_OK;
    if ((w = stet__work_new(m->to, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((op = stet__work_op(w, STET_OP_VALUE_PUT, base->value.run)) == NULL ||
        !stet__work_bytes(w, &op->key, base->key) ||
        !stet__work_bytes(w, &op->data, base->value.data)) {
        stet__work_free(w);
        return stet__move_no_memory();
    }
    op->space = space;
    op->number = base->value.revision;
    return stet__move_add(m, w, base->key.len + base->value.data.len);
}

static int
copy_space(move *m, const char *space)
{
    stet_store *s = m->from->store;
    stet_bytes  none = { NULL, 0 }, after = none;
    copy_bases  b;
    stet__buf   at; /* outlives the page */
    int         err;

    stet__buf_init(&at, &m->from->p->alloc);
    do {
        stet__arena_free(&m->arena);
        b = (copy_bases){ .m = m, .end = &b.first };
        err = s->ops->values(s, space, none, after.data != NULL ? &after : NULL, MOVE_PAGE,
                             copy_on_base, &b);
        for (const copy_base *base = b.first; err == STET_OK && base != NULL; base = base->next) {
            err = copy_put_base(m, space, base);
            if (base->next == NULL) {
                at.len = 0;
                stet__buf_add(&at, base->key.data, base->key.len);
                after = stet__buf_bytes(&at);
            }
        }
        if (err == STET_OK && at.failed)
            err = stet__move_no_memory();
    } while (err == STET_OK && b.n == MOVE_PAGE);
    stet__buf_free(&at);
    return err;
}

/* ---- state ----------------------------------------------------------------------------------- */

typedef struct copy_keys {
    move       *m;
    stet_bytes *keys;
    size_t      n;
} copy_keys;

static int
copy_on_key(void *arg, stet_bytes key, const stet_value *value)
{
    copy_keys  *k = arg;
    stet_bytes *at = &k->keys[k->n];

    (void)value;
    if ((at->data = stet__arena_copy(&k->m->arena, key.data, key.len)) == NULL)
        return stet__move_no_memory();
    at->len = key.len;
    k->n++;
    return STET_OK;
}

/* What the source has not goes from the target. */
static int
copy_drop(move *m, const char *space, stet_bytes key)
{
    stet_store *s = m->from->store;
    stet_value  is = { 0 };
    int         err = s->ops->value(s, space, key, &is);
    stet__work *w;
    stet_op    *op;

    stet__free(s->alloc, (void *)(uintptr_t)is.data.data);
    if (err != STET_ENOTFOUND)
        return err;
    if ((w = stet__work_new(m->to, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((op = stet__work_op(w, STET_OP_VALUE_DEL, (stet_id){ { 0 } })) == NULL ||
        !stet__work_bytes(w, &op->key, key)) {
        stet__work_free(w);
        return stet__move_no_memory();
    }
    op->space = space;
    return stet__move_add(m, w, key.len);
}

static int
copy_drop_others(move *m, const char *space)
{
    stet_store *t = m->to->store;
    stet_bytes  none = { NULL, 0 }, after = none, keys[MOVE_PAGE];
    copy_keys   k = { .m = m, .keys = keys };
    stet__buf   at; /* outlives the page */
    int         err;

    stet__buf_init(&at, &m->to->p->alloc);
    do {
        stet__arena_free(&m->arena);
        k.n = 0;
        err = t->ops->values(t, space, none, after.data != NULL ? &after : NULL, MOVE_PAGE,
                             copy_on_key, &k);
        for (size_t i = 0; err == STET_OK && i < k.n; i++)
            err = copy_drop(m, space, keys[i]);
        if (err == STET_OK && k.n > 0) {
            at.len = 0;
            stet__buf_add(&at, keys[k.n - 1].data, keys[k.n - 1].len);
            after = stet__buf_bytes(&at);
            if (at.failed)
                err = stet__move_no_memory();
        }
    } while (err == STET_OK && k.n == MOVE_PAGE);
    stet__buf_free(&at);
    return err;
}

int
stet__move_state(move *m)
{
    static const char *const spaces[] = STET__SPACES_STATE;
    int                      err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < sizeof spaces / sizeof *spaces; i++)
        if ((err = copy_space(m, spaces[i])) == STET_OK && (err = stet__move_flush(m)) == STET_OK &&
            (err = copy_drop_others(m, spaces[i])) == STET_OK)
            err = stet__move_flush(m);
    return err;
}

/* All were rebuilt but those that no readable fact tells. Without its idempotency key a run could be
 * started a second time. */
int
stet__move_values(move *m)
{
    static const char *const spaces[] = STET__SPACES_RUN;
    int                      err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < sizeof spaces / sizeof *spaces; i++)
        err = copy_space(m, spaces[i]);
    return err == STET_OK ? stet__move_flush(m) : err;
}

int
stet__move_copy(move *m)
{
    static const char *const spaces[] = STET__SPACES_BASE;
    int                      err = STET_OK;

    memset(&m->last, 0, sizeof m->last);
    m->done = 0;
    do {
        if ((err = stet__move_page(m)) != STET_OK)
            return err;
        for (size_t i = 0; err == STET_OK && i < m->n_rows; i++)
            err = copy_one(m, &m->rows[i]);
        m->done += m->n_rows;
        if (err == STET_OK && (err = stet__move_flush(m)) == STET_OK)
            err = stet__move_tell(m, STET_MOVE_COPYING);
    } while (err == STET_OK && m->n_rows > 0);
    for (size_t i = 0; err == STET_OK && i < sizeof spaces / sizeof *spaces; i++)
        err = copy_space(m, spaces[i]);
    return err == STET_OK ? stet__move_flush(m) : err;
}

/* ---- what follows ---------------------------------------------------------------------------- */

/* Into the lane without being woken by that: a time that is not "never" sees to it, until it is set
 * right. */
static bool
rebuild_enter(stet__work *w, const stet_run_row *row, stet_run_row *put)
{
    stet_run_row *set = stet__arena_get0(&w->arena, sizeof *set);
    stet_op      *op = stet__work_op(w, STET_OP_LANE_ENTER, row->id);

    if (set == NULL || op == NULL || (op->lane = stet__arena_str(&w->arena, row->lane)) == NULL)
        return false;
    op->status = row->status;
    if (put->due_ms == STET_NEVER)
        put->due_ms = STET_NEVER - 1;
    set->id = row->id;
    set->due_ms = row->due_ms;
    if ((op = stet__work_op(w, STET_OP_RUN_SET, row->id)) == NULL)
        return false;
    op->row = set;
    op->mask = STET_RUN_DUE;
    return true;
}

/* Its facts do not tell what it is: all that is known is the row the source has. */
static int
rebuild_as_it_was(move *m, const stet_run_row *row)
{
    copy_run      c = { .m = m, .row = row };
    stet_run_row *put;

    if ((c.w = stet__work_new(m->to, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if (!copy_put_row(&c))
        goto failed;
    c.w->ops[0].flags = STET_OP_RESTORE;
    put = (stet_run_row *)(uintptr_t)c.w->ops[0].row;
    put->status = row->status;
    put->is_terminal = row->is_terminal;
    put->ended_ms = row->ended_ms;
    put->journal = row->journal;
    put->inbox = row->inbox;
    if (row->is_terminal ? stet__work_op(c.w, STET_OP_LANE_LEAVE, row->id) != NULL
                         : row->lane == NULL || rebuild_enter(c.w, row, put))
        return stet__move_add(m, c.w, 256);
failed:
    stet__work_free(c.w);
    return stet__move_no_memory();
}

/* It has ended, and the facts that say so cannot be read. */
static int
rebuild_is_end_lost(move *m, const stet_run_row *row, const stet__work *w, bool *is_lost)
{
    stet__expect x;
    int          err;

    *is_lost = false;
    for (size_t i = 0; i < w->unit.n_ops; i++)
        if (w->ops[i].kind == STET_OP_RUN_PUT && w->ops[i].row->is_terminal == row->is_terminal)
            return STET_OK;
    if (!row->is_terminal || (err = stet__expect_load(m->to, &x, row->id, NULL)) != STET_OK)
        return row->is_terminal ? err : STET_OK;
    *is_lost = x.is_unreadable;
    stet__expect_free(&x);
    return STET_OK;
}

static int
rebuild_run(move *m, const stet_run_row *row)
{
    stet__work *w = NULL;
    bool        is_lost;
    int         err;

    if (row->journal == 0)
        return STET_OK; /* no facts: it stays as it was copied, and verify tells of it */
    err = stet__repair_work(m->to, &w, row->id, NULL, NULL);
    if (err == STET_ECORRUPT)
        return rebuild_as_it_was(m, row);
    if (err != STET_OK)
        return err;
    if ((err = rebuild_is_end_lost(m, row, w, &is_lost)) != STET_OK) {
        stet__work_free(w);
        return err;
    }
    if ((err = stet__move_add(m, w, 1024)) == STET_OK && is_lost)
        err = rebuild_as_it_was(m, row);
    return err;
}

typedef struct rebuild_lane {
    stet__arena *arena;
    stet_id     *runs;
    size_t       n, cap;
} rebuild_lane;

static int
rebuild_on_lane(void *arg, stet_id run)
{
    rebuild_lane *lane = arg;

    if (lane->n == lane->cap) {
        size_t   cap = lane->cap * 2 + 16;
        stet_id *grown = stet__arena_get(lane->arena, cap * sizeof *grown);

        if (grown == NULL)
            return stet__move_no_memory();
        if (lane->n > 0)
            memcpy(grown, lane->runs, lane->n * sizeof *grown);
        lane->runs = grown;
        lane->cap = cap;
    }
    lane->runs[lane->n++] = run;
    return STET_OK;
}

/* The whole lane when its first comes by; the others come with it. */
static int
rebuild_with_lane(move *m, const stet_run_row *row)
{
    stet_store  *s = m->from->store;
    stet__arena  arena;
    rebuild_lane lane = { .arena = &arena };
    stet_run_row other;
    stet__fact   extra;
    int          err;

    stet__arena_init(&arena, &m->from->p->alloc);
    err = s->ops->lane(s, row->lane, 1, rebuild_on_lane, &lane);
    if (err == STET_OK && lane.n > 0 && stet__id_equal(lane.runs[0], row->id)) {
        lane.n = 0;
        err = s->ops->lane(s, row->lane, INT32_MAX, rebuild_on_lane, &lane);
        for (size_t i = 0; err == STET_OK && i < lane.n; i++) {
            stet__arena row_arena;

            stet__arena_init(&row_arena, &m->from->p->alloc);
            err = stet__load_row(m->from, lane.runs[i], &row_arena, &other, &extra);
            if (err == STET_OK || err == STET_ECORRUPT ||
                err == STET_END) /* its extra is rebuilt */
                err = rebuild_run(m, &other);
            stet__arena_free(&row_arena);
        }
    }
    stet__arena_free(&arena);
    return err;
}

int
stet__move_rebuild(move *m)
{
    int err = STET_OK;

    memset(&m->last, 0, sizeof m->last);
    m->done = 0;
    do {
        if ((err = stet__move_page(m)) != STET_OK)
            return err;
        for (size_t i = 0; err == STET_OK && i < m->n_rows; i++)
            err = m->rows[i].lane != NULL ? rebuild_with_lane(m, &m->rows[i])
                                          : rebuild_run(m, &m->rows[i]);
        m->done += m->n_rows;
        if (err == STET_OK && (err = stet__move_flush(m)) == STET_OK)
            err = stet__move_tell(m, STET_MOVE_REBUILDING);
    } while (err == STET_OK && m->n_rows > 0);
    return err;
}
