/* Reads: each is one statement on a connection of the pool, which is free again before the first
 * row is handed out. No transaction outlives its statement.
 */
#include <string.h>

#include "store/postgres.h"

/* GNU extension behind a name: the counter is in a public struct that C++ can read too. */
#define READ_COUNT(counter) ((void)__atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED))

/* ---- the pool -------------------------------------------------------------------------------- */

static size_t
read_pick(const pg_store *st)
{
    size_t fresh = PG_READERS;

    for (size_t i = PG_READERS; i-- > 0;) {
        if (st->reader_busy[i])
            continue;
        if (st->readers[i].db != NULL)
            return i;
        fresh = i;
    }
    return fresh;
}

int
stet__pg_reader_take(pg_store *st, pg_link **out)
{
    stet__platform *p = st->base.platform;
    size_t          i;
    int             err;

    *out = NULL;
    if ((err = stet__pg_enter(st)) != STET_OK)
        return err;
    READ_COUNT(st->base.reads);
    stet__lock(p, &st->read_lock);
    while ((i = read_pick(st)) == PG_READERS)
        stet__wait(p, &st->read_cond, &st->read_lock, STET__FOREVER);
    st->reader_busy[i] = true;
    stet__unlock(p, &st->read_lock);
    *out = &st->readers[i];
    return STET_OK;
}

void
stet__pg_reader_give(pg_store *st, pg_link *c)
{
    stet__platform *p = st->base.platform;

    stet__lock(p, &st->read_lock);
    st->reader_busy[c - st->readers] = false;
    stet__signal(p, &st->read_cond);
    stet__unlock(p, &st->read_lock);
}

int
stet__pg_read(pg_store *st, pg_sql which, const pg_args *args, PGresult **res, const char *what)
{
    pg_link *c;
    int      err;

    *res = NULL;
    if ((err = stet__pg_reader_take(st, &c)) != STET_OK)
        return err;
    err = stet__pg_query(st, c, which, args, res, what);
    stet__pg_reader_give(st, c);
    return err;
}

static int64_t
read_limit(size_t limit)
{
    return limit > (size_t)INT32_MAX ? INT32_MAX : (int64_t)limit;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void
read_row(const PGresult *res, int i, stet_run_row *row)
{
    row->id = stet__pg_id(res, i, 0);
    row->handler = stet__pg_text(res, i, 1);
    row->key = stet__pg_text(res, i, 2);
    row->lane = stet__pg_text(res, i, 3);
    row->status = (uint32_t)stet__pg_int4(res, i, 4);
    row->is_terminal = stet__pg_bool(res, i, 5) ? 1 : 0;
    row->session = (uint64_t)stet__pg_int8(res, i, 6);
    row->epoch = (uint64_t)stet__pg_int8(res, i, 7);
    row->inbox = (uint64_t)stet__pg_int8(res, i, 8);
    row->due_ms = stet__pg_time(res, i, 9);
    row->created_ms = stet__pg_int8(res, i, 10);
    row->ended_ms = stet__pg_time(res, i, 11);
    row->priority = stet__pg_int4(res, i, 12);
    row->attempt = (uint32_t)stet__pg_int4(res, i, 13);
    row->group = stet__pg_text(res, i, 14);
    row->reason = stet__pg_text(res, i, 15);
    row->extra = stet__pg_bytes(res, i, 16);
    row->journal = (uint64_t)stet__pg_int8(res, i, 17);
}

static int
read_rows(PGresult *res, stet_run_row_fn fn, void *arg)
{
    stet_run_row row;
    int          err = STET_OK;

    for (int i = 0; err == STET_OK && i < PQntuples(res); i++) {
        read_row(res, i, &row);
        err = fn(arg, &row);
    }
    PQclear(res);
    return err;
}

static int
read_no_run(pg_store *st, const stet_id *run)
{
    char text[STET_ID_TEXT_MAX];

    stet__id_text(text, STET__ID_RUN, *run);
    return stet__fail(STET_ENOTFOUND, "store %s has no run %s", st->name, text);
}

int
stet__pg_read_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    pg_store *st = pg_of(s);
    PGresult *res;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_id(&args, &run);
    if ((err = stet__pg_read(st, PG_SQL_RUN_GET, &args, &res, "read a run")) != STET_OK)
        return err;
    if (PQntuples(res) == 0) {
        PQclear(res);
        return read_no_run(st, &run);
    }
    return read_rows(res, fn, arg);
}

static pg_sql
read_runs_sql(const stet_run_query *q)
{
    if (q->session != 0)
        return q->oldest_first ? PG_SQL_RUNS_OF_OLDEST : PG_SQL_RUNS_OF_NEWEST;
    return q->oldest_first ? PG_SQL_RUNS_OLDEST : PG_SQL_RUNS_NEWEST;
}

static const stet_id read_last = { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                     0xff, 0xff, 0xff, 0xff, 0xff, 0xff } };

static int
read_lost(pg_store *st, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    PGresult    *res;
    pg_args      args = { 0 };
    stet_run_row row = { .ended_ms = STET_NEVER, .due_ms = STET_NEVER };
    int          err;

    stet__pg_arg_id(&args, &query->before);
    stet__pg_arg_id(&args, stet__id_is_zero(query->upto) ? &read_last : &query->upto);
    stet__pg_arg_int8(&args, read_limit(query->limit));
    if ((err = stet__pg_read(st, PG_SQL_RUNS_LOST, &args, &res, "look for lost runs")) != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++) {
        row.id = stet__pg_id(res, i, 0);
        row.journal = (uint64_t)stet__pg_int8(res, i, 1);
        row.inbox = (uint64_t)stet__pg_int8(res, i, 2);
        err = fn(arg, &row);
    }
    PQclear(res);
    return err;
}

/* "orders." means from "orders." up to "orders/": '/' follows '.' in ASCII. */
static void
read_arg_handler(pg_args *args, const char *handler, char *end, size_t size)
{
    size_t len = handler != NULL ? strlen(handler) : 0;
    bool   is_service = len > 0 && len < size && handler[len - 1] == '.';

    stet__pg_arg_text(args, is_service ? NULL : handler);
    stet__pg_arg_text(args, is_service ? handler : NULL);
    if (is_service) {
        memcpy(end, handler, len + 1);
        end[len - 1] = '/';
    }
    stet__pg_arg_text(args, is_service ? end : NULL);
}

int
stet__pg_read_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    pg_store      *st = pg_of(s);
    const stet_id *from = &query->before;
    PGresult      *res;
    pg_args        args = { 0 };
    char           end[2 * STET__NAME_MAX + 4];
    int            err;

    if (query->is_lost)
        return read_lost(st, query, fn, arg);
    if (!query->oldest_first && stet__id_is_zero(query->before))
        from = &read_last;
    stet__pg_arg_id(&args, from);
    read_arg_handler(&args, query->handler, end, sizeof end);
    stet__pg_arg_text(&args, query->key);
    stet__pg_arg_int8(&args, (int64_t)query->status_mask);
    stet__pg_arg_int8(&args, query->created_from_ms);
    stet__pg_arg_int8(&args, query->created_to_ms);
    stet__pg_arg_int8(&args, read_limit(query->limit));
    if (query->session != 0)
        stet__pg_arg_int8(&args, (int64_t)query->session);
    if ((err = stet__pg_read(st, read_runs_sql(query), &args, &res, "list runs")) != STET_OK)
        return err;
    return read_rows(res, fn, arg);
}

/* ---- facts ----------------------------------------------------------------------------------- */

static int
read_facts(pg_store *st, pg_sql which, const stet_id *run, uint64_t from, size_t limit,
           stet_facts_fn fn, void *arg)
{
    PGresult *res;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_id(&args, run);
    stet__pg_arg_int8(&args, from > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)from);
    stet__pg_arg_int8(&args, read_limit(limit));
    if ((err = stet__pg_read(st, which, &args, &res, "read facts")) != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++)
        err = fn(arg, (uint64_t)stet__pg_int8(res, i, 0), (uint32_t)stet__pg_int4(res, i, 1),
                 stet__pg_bytes(res, i, 2));
    PQclear(res);
    return err;
}

int
stet__pg_read_journal(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                      void *arg)
{
    return read_facts(pg_of(s), PG_SQL_FACTS_GET, &run, from, limit, fn, arg);
}

int
stet__pg_read_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                    void *arg)
{
    return read_facts(pg_of(s), PG_SQL_INBOX_GET, &run, from, limit, fn, arg);
}

/* ---- both ------------------------------------------------------------------------------------ */

enum { LOAD_REV = 18, LOAD_COUNT, LOAD_DATA };

int
stet__pg_read_load(stet_store *s, stet_id run, bool if_ended, size_t limit, stet_run_row_fn row_fn,
                   stet_facts_fn facts_fn, void *arg)
{
    PGresult    *res;
    pg_args      args = { 0 };
    stet_run_row row;
    bool         is_heard = true;
    int          err;

    if ((err = stet__pg_enter(pg_of(s))) != STET_OK)
        return err;
    if (if_ended)
        is_heard = stet__pg_ends_look(pg_of(s), &run);
    stet__pg_arg_id(&args, &run);
    stet__pg_arg_raw(&args, PG_BOOL, if_ended ? "\1" : "\0", 1);
    stet__pg_arg_int8(&args, read_limit(limit));
    if ((err = stet__pg_read(pg_of(s), PG_SQL_LOAD, &args, &res, "read a run")) != STET_OK)
        return err;
    if (PQntuples(res) == 0)
        err = read_no_run(pg_of(s), &run);
    else {
        read_row(res, 0, &row);
        if (!is_heard && row.is_terminal == 0)
            stet__pg_ends_await(pg_of(s), &run);
        err = row_fn(arg, &row);
    }
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++)
        if (!PQgetisnull(res, i, LOAD_REV))
            err = facts_fn(arg, (uint64_t)stet__pg_int8(res, i, LOAD_REV),
                           (uint32_t)stet__pg_int4(res, i, LOAD_COUNT),
                           stet__pg_bytes(res, i, LOAD_DATA));
    PQclear(res);
    return err;
}

/* ---- timers ---------------------------------------------------------------------------------- */

static stet_timer
read_timer(const PGresult *res, int i)
{
    return (stet_timer){ stet__pg_int8(res, i, 0), stet__pg_id(res, i, 1),
                         (uint64_t)stet__pg_int8(res, i, 2) };
}

int
stet__pg_read_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
                     int64_t *next_ms)
{
    pg_store *st = pg_of(s);
    int64_t   next = STET_NEVER;
    PGresult *res;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_int8(&args, read_limit(limit) + 1); /* one more: the next */
    if ((err = stet__pg_read(st, PG_SQL_TIMERS, &args, &res, "read timers")) != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++) {
        stet_timer timer = read_timer(res, i);

        if ((size_t)i == limit || timer.fire_ms > until_ms) {
            next = timer.fire_ms;
            break;
        }
        err = fn(arg, &timer);
    }
    if (next_ms != NULL)
        *next_ms = next;
    PQclear(res);
    return err;
}

int
stet__pg_read_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg)
{
    pg_store *st = pg_of(s);
    PGresult *res;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_id(&args, &run);
    if ((err = stet__pg_read(st, PG_SQL_TIMERS_OF, &args, &res, "read timers")) != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++) {
        stet_timer timer = read_timer(res, i);

        err = fn(arg, &timer);
    }
    PQclear(res);
    return err;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Baselines have a table of their own: it must not be lost with the projections. */
static pg_sql
read_of_space(const char *space, pg_sql which)
{
    if (strncmp(space, "base.", 5) != 0)
        return which;
    return which == PG_SQL_VALUE_GET     ? PG_SQL_BASE_GET
           : which == PG_SQL_VALUES_FROM ? PG_SQL_BASES_FROM
                                         : PG_SQL_BASES_AFTER;
}

static void
read_value_row(const PGresult *res, int i, stet_value *value)
{
    value->version = (uint64_t)stet__pg_int8(res, i, 1);
    value->data = stet__pg_bytes(res, i, 2);
    value->run = stet__pg_id(res, i, 3);
    value->revision = (uint64_t)stet__pg_int8(res, i, 4);
}

/* The caller owns the bytes; empty ones are a pointer too, so that they can be told from none. */
static int
read_value_keep(pg_store *st, stet_value *value)
{
    void *copy = stet__get(st->base.alloc, value->data.len + 1);

    if (copy == NULL) {
        memset(value, 0, sizeof *value);
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    }
    if (value->data.len > 0)
        memcpy(copy, value->data.data, value->data.len);
    ((char *)copy)[value->data.len] = '\0';
    value->data.data = copy;
    return STET_OK;
}

int
stet__pg_read_value(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    pg_store *st = pg_of(s);
    PGresult *res;
    pg_args   args = { 0 };
    int       err;

    memset(value, 0, sizeof *value);
    stet__pg_arg_text(&args, space);
    stet__pg_arg_bytes(&args, key);
    if ((err = stet__pg_read(st, read_of_space(space, PG_SQL_VALUE_GET), &args, &res,
                             "read a value")) != STET_OK)
        return err;
    if (PQntuples(res) == 0)
        err = stet__fail(STET_ENOTFOUND, "store %s has no such value in %s", st->name, space);
    else {
        read_value_row(res, 0, value);
        err = read_value_keep(st, value);
    }
    PQclear(res);
    return err;
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

/* The first key that does not begin with the prefix: the prefix with its last byte one higher. */
static void
read_arg_end(pg_args *args, stet_bytes prefix, uint8_t *copy)
{
    size_t len = prefix.len;

    while (len > 0 && ((const uint8_t *)prefix.data)[len - 1] == 0xff)
        len--;
    if (len > 0) {
        memcpy(copy, prefix.data, len);
        copy[len - 1]++;
    }
    stet__pg_arg_raw(args, PG_BYTEA, len > 0 ? copy : NULL, len);
}

int
stet__pg_read_values(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
                     size_t limit, stet_value_fn fn, void *arg)
{
    pg_store  *st = pg_of(s);
    bool       is_after = after != NULL && read_compare(*after, prefix) >= 0;
    PGresult  *res;
    pg_args    args = { 0 };
    stet_value value;
    uint8_t   *end = stet__get(s->alloc, prefix.len + 1);
    int        err;

    if (end == NULL)
        return stet__fail(STET_ENOMEM, "store: out of memory");
    stet__pg_arg_text(&args, space);
    stet__pg_arg_bytes(&args, is_after ? *after : prefix);
    read_arg_end(&args, prefix, end);
    stet__pg_arg_int8(&args, read_limit(limit));
    err =
        stet__pg_read(st, read_of_space(space, is_after ? PG_SQL_VALUES_AFTER : PG_SQL_VALUES_FROM),
                      &args, &res, "list values");
    stet__free(s->alloc, end);
    if (err != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++) {
        read_value_row(res, i, &value);
        err = fn(arg, stet__pg_bytes(res, i, 0), &value);
    }
    PQclear(res);
    return err;
}

/* ---- lanes and life -------------------------------------------------------------------------- */

int
stet__pg_read_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg)
{
    pg_store *st = pg_of(s);
    PGresult *res;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_text(&args, lane);
    stet__pg_arg_int8(&args, read_limit(limit));
    if ((err = stet__pg_read(st, PG_SQL_LANE, &args, &res, "list a lane")) != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++)
        err = fn(arg, stet__pg_id(res, i, 0));
    PQclear(res);
    return err;
}

int
stet__pg_read_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms)
{
    pg_store *st = pg_of(s);
    PGresult *res;
    pg_args   args = { 0 };
    pg_col    names;
    int       err;

    *due_ms = STET_NEVER;
    if ((err = stet__pg_col_texts(st, &names, handlers, n)) != STET_OK)
        return err;
    stet__pg_arg_raw(&args, PG_BYTEAS, names.buf.data, names.buf.len);
    if ((err = stet__pg_read(st, PG_SQL_DUE, &args, &res, "look for due work")) == STET_OK) {
        *due_ms = PQntuples(res) == 1 ? stet__pg_time(res, 0, 0) : STET_NEVER;
        PQclear(res);
    }
    stet__buf_free(&names.buf);
    return err;
}

/* A server that takes no writes does not answer, as far as the engine is concerned. */
static int
ping_link(pg_store *st, pg_link *c)
{
    int64_t   asked_us = stet__pg_clock_ask(st);
    PGresult *res = NULL;
    int       err = stet__pg_query(st, c, PG_SQL_PING, NULL, &res, "ask the server");

    if (err == STET_OK && PQntuples(res) == 1) {
        stet__pg_clock_seen(st, asked_us, stet__pg_int8(res, 0, 0));
        if (stet__pg_bool(res, 0, 1)) {
            err = stet__fail(STET_EREADONLY,
                             "store %s: the server is read-only (a standby, or "
                             "default_transaction_read_only is set)",
                             st->name);
            stet__pg_conn_read_only(st, c);
        }
    }
    PQclear(res);
    return err;
}

int
stet__pg_ping(stet_store *s)
{
    pg_store *st = pg_of(s);
    pg_link  *c;
    int       err;

    if ((err = stet__pg_reader_take(st, &c)) != STET_OK)
        return err;
    if ((err = ping_link(st, c)) == STET_EREADONLY)
        err = ping_link(st, c); /* another one may be the primary now */
    stet__pg_reader_give(st, c);
    return err;
}
