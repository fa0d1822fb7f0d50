/* Lists of runs, newest first, by what they are asked for.
 *
 * Each thing that is asked for (a handler, statuses, a key, a time) says in which stretches of time
 * there can be such runs (sqlite_stretch.c); only stretches that all of them name are read, from
 * the newest on, until there are enough. What is rare or absent is found without walking all runs.
 *
 * Where that does not pay the walk over all runs goes on from there: a status of runs at hand
 * (those with `work`) when many are at hand, or entries by the thousand that are no longer true.
 *
 * It reads in one transaction, or a run that ends meanwhile could be neither at hand nor ended.
 */
#include <stdlib.h>
#include <string.h>

#include "store/sqlite.h"

#define LIST_AT_HAND  4096
#define LIST_NAMES    256  /* handlers of a service */
#define LIST_VISITS   4096 /* stretches without a run that was looked for */
#define LIST_WIDE_MAX 4096

typedef struct list_source {
    char   *what;
    int64_t stretch; /* the newest one not after where we are; -1: none */
    bool    is_known;
} list_source;

/* One thing that is asked for: stretches by entries of the table, or by a list, or both. */
typedef struct list_group {
    bool         is_used;
    list_source *sources;
    size_t       n_sources;
    int64_t     *stretches; /* newest first */
    size_t       n, at;
} list_group;

typedef enum list_kind { LIST_HANDLER, LIST_STATUS, LIST_KEY, LIST_TIME, LIST_KINDS } list_kind;

typedef struct list_walk {
    sqlite_store         *st;
    sqlite_conn          *c;
    const stet_run_query *q;
    stet__arena           arena;
    list_group            groups[LIST_KINDS];
    int64_t               first, last; /* the time that is asked for */
    stet_run_row_fn       fn;
    void                 *arg;
    size_t                left;
} list_walk;

static int
list_no_memory(const list_walk *w)
{
    return stet__fail(STET_ENOMEM, "store %s: out of memory", w->st->path);
}

static int
list_failed(list_walk *w, int rc)
{
    return stet__sqlite_fail(w->st, w->c->db, rc, "list runs");
}

/* ---- what there is to go by ------------------------------------------------------------------ */

static int
list_source_add(list_walk *w, list_group *g, size_t max, const char *what)
{
    if (g->sources == NULL &&
        (g->sources = stet__arena_get(&w->arena, max * sizeof *g->sources)) == NULL)
        return list_no_memory(w);
    g->sources[g->n_sources] = (list_source){ .what = stet__arena_str(&w->arena, what) };
    if (g->sources[g->n_sources].what == NULL)
        return list_no_memory(w);
    g->n_sources++;
    return STET_OK;
}

/* All handlers of a service there have been. */
static int
list_service(list_walk *w, list_group *g, const char *from)
{
    size_t        len = strlen(from);
    const char   *after = from;
    sqlite3_stmt *stmt;
    int           err = STET_OK, rc;

    while ((stmt = stet__sqlite_stmt(w->st, w->c, LITE_SQL_STRETCH_NAME, &err)) != NULL) {
        sqlite_bind_text(stmt, 1, after);
        if ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
            const char *what = stet__sqlite_column_text(stmt, 0);
            bool        is_of = what != NULL && strncmp(what, from, len) == 0;

            if (is_of && g->n_sources == LIST_NAMES) {
                g->is_used = false;
                rc = SQLITE_DONE;
            } else if (is_of && (err = list_source_add(w, g, LIST_NAMES, what)) == STET_OK)
                after = g->sources[g->n_sources - 1].what;
            else
                rc = SQLITE_DONE;
        } else if (rc != SQLITE_DONE)
            err = list_failed(w, rc);
        sqlite3_reset(stmt);
        if (err != STET_OK || rc != SQLITE_ROW)
            break;
    }
    return err;
}

static int
list_handlers(list_walk *w)
{
    list_group *g = &w->groups[LIST_HANDLER];
    size_t      len = w->q->handler != NULL ? strlen(w->q->handler) : 0;
    char       *what;

    if (w->q->handler == NULL)
        return STET_OK;
    g->is_used = true;
    if ((what = stet__arena_get(&w->arena, len + 2)) == NULL)
        return list_no_memory(w);
    what[0] = 'h';
    memcpy(what + 1, w->q->handler, len + 1);
    return len > 0 && what[len] == '.' ? list_service(w, g, what) : list_source_add(w, g, 1, what);
}

static int
list_newest(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Runs that have work, in these statuses. */
static int
list_at_hand(list_walk *w, list_group *g)
{
    size_t        seen = 0;
    int           err = STET_OK, rc;
    sqlite3_stmt *stmt = stet__sqlite_stmt(w->st, w->c, LITE_SQL_RUNS_AT_HAND, &err);

    if (stmt == NULL)
        return err;
    if ((g->stretches = stet__arena_get(&w->arena, LIST_AT_HAND * sizeof *g->stretches)) == NULL)
        return list_no_memory(w);
    sqlite3_bind_int64(stmt, 1, LIST_AT_HAND + 1);
    for (; (rc = sqlite3_step(stmt)) == SQLITE_ROW && seen < LIST_AT_HAND; seen++) {
        stet_id  id = stet__sqlite_column_id(stmt, 0);
        uint64_t status = (uint64_t)sqlite3_column_int64(stmt, 1);

        if (status < 64 && (w->q->status_mask >> status & 1u))
            g->stretches[g->n++] = stet__sqlite_stretch_of(&id);
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = list_failed(w, rc);
    sqlite3_reset(stmt);
    if (rc == SQLITE_ROW) /* there are more */
        g->is_used = false;
    qsort(g->stretches, g->n, sizeof *g->stretches, list_newest);
    return err;
}

static int
list_statuses(list_walk *w)
{
    list_group *g = &w->groups[LIST_STATUS];
    int         err = STET_OK;

    if (w->q->status_mask == 0)
        return STET_OK;
    g->is_used = true;
    for (unsigned status = 0; err == STET_OK && status < 64; status++) {
        char what[4] = { 's', (char)('0' + status % 10), '\0', '\0' };

        if (status >= 10) {
            what[1] = (char)('0' + status / 10);
            what[2] = (char)('0' + status % 10);
        }
        if (w->q->status_mask >> status & 1u)
            err = list_source_add(w, g, 64, what);
    }
    return err == STET_OK ? list_at_hand(w, g) : err;
}

static int
list_keys(list_walk *w)
{
    list_group   *g = &w->groups[LIST_KEY];
    uint32_t      hash;
    stet__buf     found;
    sqlite3_stmt *stmt;
    int           err = STET_OK, rc;

    if (w->q->key == NULL)
        return STET_OK;
    g->is_used = true;
    hash = stet__sqlite_stretch_hash(w->q->key);
    if ((stmt = stet__sqlite_stmt(w->st, w->c, LITE_SQL_STRETCH_KEYS, &err)) == NULL)
        return err;
    stet__buf_init(&found, w->st->base.alloc);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        stet_bytes lot = stet__sqlite_column_bytes(stmt, 0);

        for (size_t at = 0; at + 12 <= lot.len; at += 12) {
            const uint8_t *entry = (const uint8_t *)lot.data + at;

            if (stet__load_u32(entry) == hash) {
                int64_t stretch = (int64_t)stet__load_u64(entry + 4);

                stet__buf_add(&found, &stretch, sizeof stretch);
            }
        }
    }
    if (rc != SQLITE_DONE)
        err = list_failed(w, rc);
    sqlite3_reset(stmt);
    g->n = found.len / sizeof *g->stretches;
    if (err == STET_OK &&
        (found.failed ||
         (g->stretches = stet__arena_copy(
              &w->arena, found.data != NULL ? (const void *)found.data : "", found.len)) == NULL))
        err = list_no_memory(w);
    stet__buf_free(&found);
    if (err == STET_OK && g->n > 0)
        qsort(g->stretches, g->n, sizeof *g->stretches, list_newest);
    return err;
}

static int
list_time(list_walk *w)
{
    list_group *g = &w->groups[LIST_TIME];

    g->is_used = w->q->created_from_ms > 0 || w->q->created_to_ms != 0;
    stet__sqlite_stretch_window(w->q->created_from_ms, w->q->created_to_ms, &w->first, &w->last);
    return g->is_used ? list_source_add(w, g, 1, "o") : STET_OK;
}

/* ---- where to look next ---------------------------------------------------------------------- */

static int
list_source_next(list_walk *w, list_source *s, int64_t at)
{
    int           err = STET_OK, rc;
    sqlite3_stmt *stmt;

    if (s->is_known && s->stretch <= at)
        return STET_OK;
    if ((stmt = stet__sqlite_stmt(w->st, w->c, LITE_SQL_STRETCH_BEFORE, &err)) == NULL)
        return err;
    sqlite_bind_text(stmt, 1, s->what);
    sqlite3_bind_int64(stmt, 2, at);
    rc = sqlite3_step(stmt);
    s->stretch = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;
    s->is_known = true;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = list_failed(w, rc);
    sqlite3_reset(stmt);
    return err;
}

/* The newest stretches of a group that are not after `at`: from *high down to *low; -1: none. */
static int
list_group_next(list_walk *w, list_kind kind, int64_t at, int64_t *high, int64_t *low)
{
    list_group *g = &w->groups[kind];
    int         err;

    *high = -1;
    for (size_t i = 0; i < g->n_sources; i++) {
        if ((err = list_source_next(w, &g->sources[i], at)) != STET_OK)
            return err;
        if (g->sources[i].stretch > *high)
            *high = g->sources[i].stretch;
    }
    while (g->at < g->n && g->stretches[g->at] > at)
        g->at++;
    if (g->at < g->n && g->stretches[g->at] > *high)
        *high = g->stretches[g->at];
    *low = *high;
    if (kind == LIST_TIME && at >= w->first && (at <= w->last || *high <= w->last)) {
        *high = at < w->last ? at : w->last;
        *low = w->first;
    }
    return STET_OK;
}

/* The same for all that is asked for. */
static int
list_next(list_walk *w, int64_t *high, int64_t *low)
{
    int err;

    *low = 0;
    for (int kind = 0; kind < LIST_KINDS && *high >= 0; kind++) {
        int64_t top, bottom;

        if (!w->groups[kind].is_used)
            continue;
        if ((err = list_group_next(w, (list_kind)kind, *high, &top, &bottom)) != STET_OK)
            return err;
        if (top < *high) { /* from the first kind again, unless there is none */
            *high = top;
            *low = 0;
            kind = -1;
        } else if (bottom > *low)
            *low = bottom;
    }
    return STET_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int
list_read(list_walk *w, int64_t high, int64_t low, size_t *n)
{
    stet_id       first = stet__sqlite_stretch_first(low), from;
    char          end[LITE_END_MAX];
    int           err = STET_OK, rc;
    sqlite3_stmt *stmt = stet__sqlite_stmt(w->st, w->c, LITE_SQL_RUNS_BETWEEN, &err);

    *n = 0;
    if (stmt == NULL)
        return err;
    from = high < LITE_STRETCH_MAX ? stet__sqlite_stretch_first(high + 1)
                                   : stet__sqlite_stretch_last(high);
    if (!stet__id_is_zero(w->q->before) &&
        memcmp(w->q->before.bytes, from.bytes, sizeof from.bytes) < 0)
        from = w->q->before;
    stet__sqlite_bind_query(stmt, w->q, &from, w->left, end);
    sqlite_bind_id(stmt, 11, &first);
    err = stet__sqlite_read_rows(stmt, w->fn, w->arg, &rc, n);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = list_failed(w, rc);
    sqlite3_reset(stmt);
    w->left -= *n < w->left ? *n : w->left;
    return err;
}

/* Stretches that lie close together, with runs in them, are read several at a time: twice as many
 * as before each time. */
static int
list_walk_all(list_walk *w)
{
    int64_t high =
        stet__id_is_zero(w->q->before) ? LITE_STRETCH_MAX : stet__sqlite_stretch_of(&w->q->before);
    int64_t low, wide = 1, last = -1;
    size_t  n = 0, in_vain = 0;
    int     err;

    while (w->left > 0) {
        if ((err = list_next(w, &high, &low)) != STET_OK || high < 0)
            return err;
        if (in_vain > LIST_VISITS)
            low = 0;
        else if (low == high) {
            bool is_dense = last >= 0 && last - high <= wide && (int64_t)n * 8 >= wide;

            wide = !is_dense ? 1 : wide < LIST_WIDE_MAX ? wide * 2 : wide;
            low = high - wide + 1 > 0 ? high - wide + 1 : 0;
        }
        if ((err = list_read(w, high, low, &n)) != STET_OK)
            return err;
        in_vain = n > 0 ? 0 : in_vain + 1;
        last = low;
        high = low - 1;
        if (high < 0)
            return STET_OK;
    }
    return STET_OK;
}

static int
list_end(list_walk *w, int err)
{
    int           bad = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(w->st, w->c, LITE_SQL_COMMIT, &bad);

    if (stmt != NULL) {
        (void)sqlite3_step(stmt);
        sqlite3_reset(stmt);
    }
    if (!sqlite3_get_autocommit(w->c->db)) /* no memory: it would keep the log from being emptied */
        stet__sqlite_conn_close(w->c);
    return err;
}

int
stet__sqlite_list(sqlite_store *st, const stet_run_query *q, stet_run_row_fn fn, void *arg,
                  bool *is_done)
{
    list_walk     w = { .st = st, .q = q, .fn = fn, .arg = arg, .left = q->limit };
    sqlite3_stmt *begin;
    int           err;

    *is_done = false;
    if (!st->has_stretches || q->oldest_first || q->session != 0 ||
        (q->handler == NULL && q->key == NULL && q->status_mask == 0 && q->created_from_ms <= 0 &&
         q->created_to_ms == 0))
        return STET_OK;
    if ((err = stet__sqlite_reader_take(st, &w.c)) != STET_OK)
        return err;
    stet__arena_init(&w.arena, st->base.alloc);
    if ((begin = stet__sqlite_stmt(st, w.c, LITE_SQL_READ_BEGIN, &err)) != NULL &&
        (err = stet__sqlite_run(st, w.c, begin, "list runs")) == STET_OK) {
        if ((err = list_handlers(&w)) == STET_OK && (err = list_statuses(&w)) == STET_OK &&
            (err = list_keys(&w)) == STET_OK && (err = list_time(&w)) == STET_OK)
            for (int kind = 0; kind < LIST_KINDS; kind++)
                *is_done = *is_done || w.groups[kind].is_used;
        if (*is_done)
            err = list_walk_all(&w);
        err = list_end(&w, err);
    }
    stet__arena_free(&w.arena);
    stet__sqlite_reader_give(st, w.c);
    return err;
}
