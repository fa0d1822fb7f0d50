/* Reads: each call takes a connection of the pool, uses one statement and gives it back. No read
 * transaction outlives its call, or the log could not be emptied.
 */
#include <string.h>

#include "store/sqlite.h"

/* GNU extension behind a name: the counter is in a public struct that C++ can read too. */
#define READ_COUNT(counter) ((void)__atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED))

/* ---- the pool -------------------------------------------------------------------------------- */

static size_t
read_pick(const sqlite_store *st)
{
    size_t i, fresh = LITE_READERS;

    for (i = LITE_READERS; i-- > 0;) {
        if (st->reader_busy[i])
            continue;
        if (st->readers[i].db != NULL)
            return i;
        fresh = i;
    }
    return fresh;
}

int
stet__sqlite_reader_take(sqlite_store *st, sqlite_conn **out)
{
    stet__platform *p = st->base.platform;
    size_t          i;
    int             err;

    *out = NULL;
    if ((err = stet__sqlite_enter(st)) != STET_OK)
        return err;
    READ_COUNT(st->base.reads);
    stet__lock(p, &st->read_lock);
    while ((i = read_pick(st)) == LITE_READERS)
        stet__wait(p, &st->read_cond, &st->read_lock, STET__FOREVER);
    st->reader_busy[i] = true;
    stet__unlock(p, &st->read_lock);

    if (st->readers[i].db == NULL &&
        (err = stet__sqlite_conn_open(st, &st->readers[i], LITE_READER)) != STET_OK) {
        stet__sqlite_reader_give(st, &st->readers[i]);
        return err;
    }
    *out = &st->readers[i];
    return STET_OK;
}

void
stet__sqlite_reader_give(sqlite_store *st, sqlite_conn *c)
{
    stet__platform *p = st->base.platform;

    stet__lock(p, &st->read_lock);
    st->reader_busy[c - st->readers] = false;
    stet__signal(p, &st->read_cond);
    stet__unlock(p, &st->read_lock);
}

/* A connection and its statement. After success read_end() must follow. */
static int
read_begin(sqlite_store *st, sqlite_sql which, sqlite_conn **c, sqlite3_stmt **stmt)
{
    int err;

    if ((err = stet__sqlite_reader_take(st, c)) != STET_OK)
        return err;
    if ((*stmt = stet__sqlite_stmt(st, *c, which, &err)) == NULL)
        stet__sqlite_reader_give(st, *c);
    return err;
}

/* `rc` is the last result of step, `err` what the callback said. */
static int
read_end(sqlite_store *st, sqlite_conn *c, sqlite3_stmt *stmt, int rc, int err)
{
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, c->db, rc, "read");
    sqlite3_reset(stmt);
    stet__sqlite_reader_give(st, c);
    return err;
}

static sqlite3_int64
read_limit(size_t limit)
{
    return limit > (size_t)INT32_MAX ? -1 : (sqlite3_int64)limit;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void
read_row(sqlite3_stmt *stmt, stet_run_row *row)
{
    int64_t work = sqlite3_column_int64(stmt, 6);

    row->id = stet__sqlite_column_id(stmt, 0);
    row->handler = stet__sqlite_column_text(stmt, 1);
    row->key = stet__sqlite_column_text(stmt, 2);
    row->lane = stet__sqlite_column_text(stmt, 3);
    row->status = (uint32_t)sqlite3_column_int64(stmt, 4);
    row->is_terminal = (uint32_t)sqlite3_column_int64(stmt, 5);
    row->session = work > 0 ? (uint64_t)work : 0;
    row->epoch = (uint64_t)sqlite3_column_int64(stmt, 7);
    row->inbox = (uint64_t)sqlite3_column_int64(stmt, 8);
    row->due_ms = stet__sqlite_column_time(stmt, 9);
    row->created_ms = sqlite3_column_int64(stmt, 10);
    row->ended_ms = stet__sqlite_column_ended(stmt, 11);
    row->priority = sqlite3_column_int(stmt, 12);
    row->attempt = (uint32_t)sqlite3_column_int64(stmt, 13);
    row->group = stet__sqlite_column_text(stmt, 14);
    row->reason = stet__sqlite_column_text(stmt, 15);
    row->extra = stet__sqlite_column_bytes(stmt, 16);
    row->journal = (uint64_t)sqlite3_column_int64(stmt, 17);
}

int
stet__sqlite_read_rows(sqlite3_stmt *stmt, stet_run_row_fn fn, void *arg, int *rc, size_t *n)
{
    stet_run_row row;
    int          err;

    for (*n = 0; (*rc = sqlite3_step(stmt)) == SQLITE_ROW; (*n)++) {
        read_row(stmt, &row);
        if ((err = fn(arg, &row)) != 0)
            return err;
    }
    return STET_OK;
}

int
stet__sqlite_read_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    size_t        n;
    char          text[STET_ID_TEXT_MAX];
    int           err, rc;

    if ((err = read_begin(st, LITE_SQL_RUN_GET, &c, &stmt)) != STET_OK)
        return err;
    sqlite_bind_id(stmt, 1, &run);
    err = stet__sqlite_read_rows(stmt, fn, arg, &rc, &n);
    err = read_end(st, c, stmt, rc, err);
    if (err == STET_OK && n == 0) {
        stet__id_text(text, STET__ID_RUN, run);
        return stet__fail(STET_ENOTFOUND, "store %s has no run %s", st->path, text);
    }
    return err;
}

static sqlite_sql
read_runs_sql(const stet_run_query *q)
{
    if (q->session != 0)
        return q->oldest_first ? LITE_SQL_RUNS_OF_OLDEST : LITE_SQL_RUNS_OF_NEWEST;
    return q->oldest_first ? LITE_SQL_RUNS_OLDEST : LITE_SQL_RUNS_NEWEST;
}

static void
read_bind_handler(sqlite3_stmt *stmt, const char *handler, char end[LITE_END_MAX])
{
    size_t len = handler != NULL ? strlen(handler) : 0;
    bool   is_service = len > 0 && handler[len - 1] == '.';

    sqlite_bind_text(stmt, 2, is_service ? NULL : handler);
    sqlite_bind_text(stmt, 3, is_service ? handler : NULL);
    if (!is_service || len >= LITE_END_MAX) {
        sqlite3_bind_null(stmt, 4);
        return;
    }
    memcpy(end, handler, len + 1);
    end[len - 1] = '/';
    sqlite_bind_text(stmt, 4, end);
}

void
stet__sqlite_bind_query(sqlite3_stmt *stmt, const stet_run_query *query, const stet_id *from,
                        size_t limit, char end[LITE_END_MAX])
{
    sqlite_bind_id(stmt, 1, from);
    read_bind_handler(stmt, query->handler, end);
    sqlite_bind_text(stmt, 5, query->key);
    sqlite_bind_u64(stmt, 6, query->status_mask);
    sqlite3_bind_int64(stmt, 7, query->created_from_ms);
    sqlite3_bind_int64(stmt, 8, query->created_to_ms);
    sqlite3_bind_int64(stmt, 9, read_limit(limit));
}

static const stet_id read_last = { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                     0xff, 0xff, 0xff, 0xff, 0xff, 0xff } };

static int
read_lost(sqlite_store *st, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    stet_run_row  row = { .ended_ms = STET_NEVER, .due_ms = STET_NEVER };
    int           err, rc;

    if ((err = read_begin(st, LITE_SQL_RUNS_LOST, &c, &stmt)) != STET_OK)
        return err;
    sqlite_bind_id(stmt, 1, &query->before);
    sqlite_bind_id(stmt, 2, stet__id_is_zero(query->upto) ? &read_last : &query->upto);
    sqlite3_bind_int64(stmt, 3, read_limit(query->limit));
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        row.id = stet__sqlite_column_id(stmt, 0);
        row.journal = (uint64_t)sqlite3_column_int64(stmt, 1);
        row.inbox = (uint64_t)sqlite3_column_int64(stmt, 2);
        if ((err = fn(arg, &row)) != 0)
            break;
    }
    return read_end(st, c, stmt, rc, err);
}

int
stet__sqlite_read_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    sqlite_store  *st = sqlite_of(s);
    sqlite_conn   *c;
    sqlite3_stmt  *stmt;
    const stet_id *from = &query->before;
    char           end[LITE_END_MAX];
    size_t         n;
    bool           is_done;
    int            err, rc;

    if (query->is_lost)
        return read_lost(st, query, fn, arg);
    if ((err = stet__sqlite_list(st, query, fn, arg, &is_done)) != STET_OK || is_done)
        return err;
    if ((err = read_begin(st, read_runs_sql(query), &c, &stmt)) != STET_OK)
        return err;
    if (!query->oldest_first && stet__id_is_zero(query->before))
        from = &read_last;
    stet__sqlite_bind_query(stmt, query, from, query->limit, end);
    if (query->session != 0)
        sqlite_bind_u64(stmt, 10, query->session);
    err = stet__sqlite_read_rows(stmt, fn, arg, &rc, &n);
    return read_end(st, c, stmt, rc, err);
}

/* ---- facts ----------------------------------------------------------------------------------- */

static int
read_facts(sqlite_store *st, sqlite_sql which, const stet_id *run, uint64_t from, size_t limit,
           stet_facts_fn fn, void *arg)
{
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    int           err, rc;

    if ((err = read_begin(st, which, &c, &stmt)) != STET_OK)
        return err;
    sqlite_bind_id(stmt, 1, run);
    sqlite_bind_u64(stmt, 2, from > (uint64_t)INT64_MAX ? (uint64_t)INT64_MAX : from);
    sqlite3_bind_int64(stmt, 3, read_limit(limit));
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
        if ((err = fn(arg, (uint64_t)sqlite3_column_int64(stmt, 0),
                      (uint32_t)sqlite3_column_int64(stmt, 1),
                      stet__sqlite_column_bytes(stmt, 2))) != 0)
            break;
    return read_end(st, c, stmt, rc, err);
}

int
stet__sqlite_read_journal(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                          void *arg)
{
    return read_facts(sqlite_of(s), LITE_SQL_FACTS_GET, &run, from, limit, fn, arg);
}

int
stet__sqlite_read_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                        void *arg)
{
    return read_facts(sqlite_of(s), LITE_SQL_INBOX_GET, &run, from, limit, fn, arg);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void
read_timer(sqlite3_stmt *stmt, stet_timer *timer)
{
    timer->fire_ms = sqlite3_column_int64(stmt, 0);
    timer->run = stet__sqlite_column_id(stmt, 1);
    timer->completion = (uint64_t)sqlite3_column_int64(stmt, 2);
}

/* So many at once, then the log may be emptied in between: verify reads all there are. */
#define READ_TIMERS 1000u

typedef struct read_timers {
    int64_t    until_ms, next_ms;
    size_t     limit, n;
    stet_timer last;
    bool       has_more;
} read_timers;

static int
read_timers_page(sqlite_store *st, read_timers *r, stet_timer_fn fn, void *arg)
{
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    stet_timer    after = r->last;
    size_t        end = r->n + READ_TIMERS;
    int           err, rc;

    r->has_more = false;
    if ((err = read_begin(st, LITE_SQL_TIMERS, &c, &stmt)) != STET_OK)
        return err;
    sqlite3_bind_int64(stmt, 1, after.fire_ms);
    sqlite_bind_id(stmt, 2, &after.run);
    sqlite3_bind_int64(stmt, 3, (sqlite3_int64)after.completion);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (r->n == end) {
            r->has_more = true;
            break;
        }
        read_timer(stmt, &r->last);
        if (r->n == r->limit || r->last.fire_ms > r->until_ms) {
            r->next_ms = r->last.fire_ms;
            break;
        }
        r->n++;
        if ((err = fn(arg, &r->last)) != 0)
            break;
    }
    return read_end(st, c, stmt, rc, err);
}

int
stet__sqlite_read_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
                         int64_t *next_ms)
{
    read_timers r = { .until_ms = until_ms, .next_ms = STET_NEVER, .limit = limit };
    int         err;

    r.last.fire_ms = INT64_MIN;
    do
        err = read_timers_page(sqlite_of(s), &r, fn, arg);
    while (err == STET_OK && r.has_more);
    if (next_ms != NULL)
        *next_ms = r.next_ms;
    return err;
}

int
stet__sqlite_read_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    stet_timer    timer;
    int           err, rc;

    if ((err = read_begin(st, LITE_SQL_TIMERS_OF, &c, &stmt)) != STET_OK)
        return err;
    sqlite_bind_id(stmt, 1, &run);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        read_timer(stmt, &timer);
        if ((err = fn(arg, &timer)) != 0)
            break;
    }
    return read_end(st, c, stmt, rc, err);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void
read_value_row(sqlite3_stmt *stmt, stet_value *value)
{
    value->version = (uint64_t)sqlite3_column_int64(stmt, 1);
    value->data = stet__sqlite_column_bytes(stmt, 2);
    value->run = stet__sqlite_column_id(stmt, 3);
    value->revision = (uint64_t)sqlite3_column_int64(stmt, 4);
}

/* The caller owns the bytes; empty ones are a pointer too, so that they can be told from none. */
static int
read_value_keep(sqlite_store *st, stet_value *value)
{
    void *copy = stet__get(st->base.alloc, value->data.len + 1);

    if (copy == NULL) {
        memset(value, 0, sizeof *value);
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    }
    if (value->data.len > 0)
        memcpy(copy, value->data.data, value->data.len);
    ((char *)copy)[value->data.len] = '\0';
    value->data.data = copy;
    return STET_OK;
}

int
stet__sqlite_read_value(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    int           err, rc;

    memset(value, 0, sizeof *value);
    if ((err = read_begin(st, stet__sqlite_of_space(space, LITE_SQL_VALUE_GET), &c, &stmt)) != STET_OK)
        return err;
    sqlite_bind_text(stmt, 1, space);
    sqlite_bind_bytes(stmt, 2, key);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        read_value_row(stmt, value);
        err = read_value_keep(st, value);
    } else if (rc == SQLITE_DONE) {
        err = stet__fail(STET_ENOTFOUND, "store %s has no such value in %s", st->path, space);
    }
    return read_end(st, c, stmt, rc, err);
}

static bool
read_begins_with(stet_bytes key, stet_bytes prefix)
{
    return key.len >= prefix.len &&
           (prefix.len == 0 || memcmp(key.data, prefix.data, prefix.len) == 0);
}

static int
read_compare(stet_bytes a, stet_bytes b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int    order = len > 0 ? memcmp(a.data, b.data, len) : 0;

    if (order != 0)
        return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

int
stet__sqlite_read_values(stet_store *s, const char *space, stet_bytes prefix,
                         const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    stet_value    value;
    stet_bytes    key;
    bool          is_after = after != NULL && read_compare(*after, prefix) >= 0;
    size_t        n;
    int           err;
    int           rc = SQLITE_DONE;

    err = read_begin(
        st, stet__sqlite_of_space(space, is_after ? LITE_SQL_VALUES_AFTER : LITE_SQL_VALUES_FROM),
        &c, &stmt);
    if (err != STET_OK)
        return err;
    sqlite_bind_text(stmt, 1, space);
    sqlite_bind_bytes(stmt, 2, is_after ? *after : prefix);
    for (n = 0; n < limit && (rc = sqlite3_step(stmt)) == SQLITE_ROW; n++) {
        key = stet__sqlite_column_bytes(stmt, 0);
        if (!read_begins_with(key, prefix))
            break;
        read_value_row(stmt, &value);
        if ((err = fn(arg, key, &value)) != 0)
            break;
    }
    return read_end(st, c, stmt, rc, err);
}

/* ---- lanes and life -------------------------------------------------------------------------- */

int
stet__sqlite_read_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    int           err, rc;

    if ((err = read_begin(st, LITE_SQL_LANE, &c, &stmt)) != STET_OK)
        return err;
    sqlite_bind_text(stmt, 1, lane);
    sqlite3_bind_int64(stmt, 2, read_limit(limit));
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
        if ((err = fn(arg, stet__sqlite_column_id(stmt, 0))) != 0)
            break;
    return read_end(st, c, stmt, rc, err);
}

int
stet__sqlite_read_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    int64_t       due;
    size_t        i;
    int           err;
    int           rc = SQLITE_DONE;

    *due_ms = STET_NEVER;
    if ((err = read_begin(st, LITE_SQL_WORK_NEXT, &c, &stmt)) != STET_OK)
        return err;
    for (i = 0; i < n; i++) {
        sqlite3_reset(stmt);
        sqlite_bind_text(stmt, 1, handlers[i]);
        if ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
            due = sqlite3_column_int64(stmt, 0);
            *due_ms = due < *due_ms ? due : *due_ms;
        } else if (rc != SQLITE_DONE) {
            break;
        }
    }
    return read_end(st, c, stmt, rc, STET_OK);
}

int
stet__sqlite_ping(stet_store *s)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn  *c;
    sqlite3_stmt *stmt;
    int           err;

    if (atomic_load(&st->is_poisoned))
        return stet__fail(STET_EPOISONED, "store %s: a flush failed before; reopen the store",
                          st->path);
    if ((err = read_begin(st, LITE_SQL_PING, &c, &stmt)) != STET_OK)
        return err;
    return read_end(st, c, stmt, sqlite3_step(stmt), STET_OK);
}
