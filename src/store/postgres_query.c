/* Statements on a connection: arguments in binary form, the wait for the answer, and the columns of
 * it.
 *
 * Nothing here waits longer than the handle's answer_ms: a server that does not answer by then
 * (stopped, or behind a broken network) is given up with the connection. What it was told it may do
 * later all the same.
 */
#include <stdio.h>
#include <string.h>

#include "store/postgres.h"

/* ---- arguments ------------------------------------------------------------------------------- */

void
stet__pg_arg_raw(pg_args *a, Oid type, const void *data, size_t len)
{
    a->types[a->n] = type;
    a->values[a->n] = data;
    a->lengths[a->n] = (int)len;
    a->formats[a->n] = 1;
    a->n++;
}

void
stet__pg_arg_int8(pg_args *a, int64_t v)
{
    uint8_t *out = a->own[a->n];

    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)((uint64_t)v >> (56 - 8 * i));
    stet__pg_arg_raw(a, PG_INT8, out, 8);
}

void
stet__pg_arg_int4(pg_args *a, int32_t v)
{
    uint8_t *out = a->own[a->n];

    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)((uint32_t)v >> (24 - 8 * i));
    stet__pg_arg_raw(a, PG_INT4, out, 4);
}

void
stet__pg_arg_id(pg_args *a, const stet_id *id)
{
    stet__pg_arg_raw(a, PG_UUID, id->bytes, 16);
}

void
stet__pg_arg_bytes(pg_args *a, stet_bytes b)
{
    stet__pg_arg_raw(a, PG_BYTEA, b.len > 0 ? (const void *)b.data : "", b.len);
}

void
stet__pg_arg_text(pg_args *a, const char *text)
{
    stet__pg_arg_raw(a, PG_BYTEA, text, text != NULL ? strlen(text) : 0);
}

/* ---- the wait -------------------------------------------------------------------------------- */

/* Everything is on its way; false: the connection is of no more use. */
static bool
query_flush(pg_store *st, PGconn *db, int64_t until_us)
{
    int left;

    while ((left = PQflush(db)) > 0) {
        /* The server may send while we do, and not read before we took it. */
        if (!stet__pg_conn_wait(st, db, true, until_us) || PQconsumeInput(db) == 0)
            return false;
    }
    return left == 0;
}

/* All results until the server is ready again; the last one that matters. An error outweighs what
 * came before: a commit that fails does so after its function has answered. */
static bool
query_results(pg_store *st, PGconn *db, int64_t until_us, PGresult **out)
{
    PGresult *res, *kept = NULL;

    *out = NULL;
    for (;;) {
        while (PQisBusy(db))
            if (!stet__pg_conn_wait(st, db, false, until_us) || PQconsumeInput(db) == 0)
                goto lost;
        if ((res = PQgetResult(db)) == NULL)
            break;
        if (kept == NULL || PQresultStatus(res) == PGRES_FATAL_ERROR) {
            PQclear(kept);
            kept = res;
        } else {
            PQclear(res);
        }
    }
    if (PQstatus(db) == CONNECTION_BAD)
        goto lost;
    *out = kept;
    return kept != NULL;
lost:
    PQclear(kept);
    return false;
}

static bool
query_wait(pg_store *st, pg_link *c, PGresult **res)
{
    int64_t until_us = stet__mono_us(st->base.platform) + st->answer_ms * 1000;

    return query_flush(st, c->db, until_us) && query_results(st, c->db, until_us, res);
}

static bool
query_is_ok(const PGresult *res)
{
    return PQresultStatus(res) == PGRES_TUPLES_OK || PQresultStatus(res) == PGRES_COMMAND_OK;
}

/* The connection was lost, or the server did not answer. */
static int
query_lost(pg_store *st, pg_link *c, const char *what)
{
    bool is_late = PQstatus(c->db) == CONNECTION_OK;
    char reason[400];
    int  err;

    stet__pg_reason(reason, sizeof reason, PQerrorMessage(c->db));
    if (is_late)
        err = stet__fail(STET_EIO, "store %s: cannot %s: the server did not answer in %lld ms",
                         st->name, what, (long long)st->answer_ms);
    else
        err = stet__fail(STET_EIO, "store %s: cannot %s: the connection was lost: %s", st->name,
                         what, reason);
    stet__pg_conn_close(c);
    return err;
}

/* ---- a notification behind it ---------------------------------------------------------------- */

/* Sent together with a statement, as a transaction of its own: the server comes to it as soon as the
 * statement has committed, and nobody waits for it here. Its answer is read before the next use. */
static pg_sql
query_note(const pg_link *c)
{
    return c->behind_keys != NULL ? PG_SQL_NOTIFY_ENDS : PG_SQL_NOTIFY;
}

#ifdef LIBPQ_HAS_PIPELINING
static bool
query_is_paired(const pg_link *c, pg_sql which)
{
    return c->behind != NULL && c->is_prepared[which] && c->is_prepared[query_note(c)];
}

static int
query_send_pair(pg_link *c, const char *name, const pg_args *args)
{
    pg_args note = { 0 };
    char    notify[16];

    (void)snprintf(notify, sizeof notify, "stet%d", (int)query_note(c));
    stet__pg_arg_raw(&note, PG_TEXT, c->behind_on, strlen(c->behind_on));
    stet__pg_arg_raw(&note, PG_TEXT, c->behind, strlen(c->behind));
    if (c->behind_keys != NULL) {
        stet__pg_arg_raw(&note, PG_INT4S, c->behind_keys, 0);
        note.formats[note.n - 1] = 0;
    }
    c->is_behind = true;
    return PQenterPipelineMode(c->db) == 1 &&
           PQsendQueryPrepared(c->db, name, args->n, args->values, args->lengths, args->formats,
                               1) == 1 &&
           PQpipelineSync(c->db) == 1 &&
           PQsendQueryPrepared(c->db, notify, note.n, note.values, note.lengths, note.formats, 1) ==
               1 &&
           PQpipelineSync(c->db) == 1;
}

/* Behind a pooler a setting of the session would be somebody else's with the next transaction, so the
 * commit says itself what it is: three statements, one round trip. */
static bool
query_is_framed(pg_store *st, const pg_link *c, pg_sql which)
{
    return which == PG_SQL_COMMIT && atomic_load(&st->is_pooled) && !c->is_guest &&
           PQtransactionStatus(c->db) == PQTRANS_IDLE;
}

static int
query_send_framed(pg_link *c, const char *sql, const pg_args *args)
{
    return PQenterPipelineMode(c->db) == 1 &&
           PQsendQueryParams(c->db, PG_BEGIN, 0, NULL, NULL, NULL, NULL, 0) == 1 &&
           PQsendQueryParams(c->db, sql, args->n, args->types, args->values, args->lengths,
                             args->formats, 1) == 1 &&
           PQsendQueryParams(c->db, "COMMIT", 0, NULL, NULL, NULL, NULL, 0) == 1 &&
           PQpipelineSync(c->db) == 1;
}

/* To the end of the transaction, whose failure outweighs the statement's answer. */
static bool
query_sync(pg_store *st, pg_link *c, int64_t until_us, PGresult **kept)
{
    for (int nulls = 0; nulls < 8;) {
        PGresult *res;

        while (PQisBusy(c->db))
            if (!stet__pg_conn_wait(st, c->db, false, until_us) || PQconsumeInput(c->db) == 0)
                return false;
        if ((res = PQgetResult(c->db)) == NULL) {
            nulls++;
        } else if (PQresultStatus(res) == PGRES_PIPELINE_SYNC) {
            PQclear(res);
            return PQstatus(c->db) == CONNECTION_OK;
        } else if (kept != NULL && PQresultStatus(res) == PGRES_FATAL_ERROR) {
            PQclear(*kept);
            *kept = res;
        } else {
            PQclear(res);
        }
    }
    return false;
}

bool
stet__pg_query_rest(pg_store *st, pg_link *c)
{
    int64_t until_us = stet__mono_us(st->base.platform) + st->answer_ms * 1000;

    if (!c->is_behind)
        return true;
    c->is_behind = false;
    return query_sync(st, c, until_us, NULL) && PQexitPipelineMode(c->db) == 1;
}

static bool
query_wait_pair(pg_store *st, pg_link *c, PGresult **res)
{
    int64_t until_us = stet__mono_us(st->base.platform) + st->answer_ms * 1000;

    if (query_wait(st, c, res) && query_sync(st, c, until_us, res))
        return true;
    PQclear(*res);
    *res = NULL;
    return false;
}

/* The statement's answer, if the server says that it has committed; or the first error. */
static bool
query_wait_framed(pg_store *st, pg_link *c, PGresult **out)
{
    int64_t   until_us = stet__mono_us(st->base.platform) + st->answer_ms * 1000;
    PGresult *parts[3] = { NULL, NULL, NULL };
    size_t    which = 1;
    bool      is_whole = query_flush(st, c->db, until_us);

    for (size_t i = 0; i < 3; i++)
        is_whole = is_whole && query_results(st, c->db, until_us, &parts[i]);
    is_whole = is_whole && query_sync(st, c, until_us, NULL) && PQexitPipelineMode(c->db) == 1;
    for (size_t i = 3; is_whole && i-- > 0;)
        if (PQresultStatus(parts[i]) == PGRES_FATAL_ERROR)
            which = i;
    is_whole = is_whole && (PQresultStatus(parts[which]) == PGRES_FATAL_ERROR ||
                            strcmp(PQcmdStatus(parts[2]), "COMMIT") == 0);
    *out = is_whole ? parts[which] : NULL;
    for (size_t i = 0; i < 3; i++)
        if (!is_whole || i != which)
            PQclear(parts[i]);
    return is_whole;
}
#else
/* Then its function refuses it where it is anything else. */
static bool
query_is_framed(pg_store *st, const pg_link *c, pg_sql which)
{
    (void)st;
    (void)c;
    (void)which;
    return false;
}

static int
query_send_framed(pg_link *c, const char *sql, const pg_args *args)
{
    (void)c;
    (void)sql;
    (void)args;
    return 0;
}

static bool
query_wait_framed(pg_store *st, pg_link *c, PGresult **res)
{
    return query_wait(st, c, res);
}

static bool
query_is_paired(const pg_link *c, pg_sql which)
{
    (void)c;
    (void)which;
    return false;
}

static int
query_send_pair(pg_link *c, const char *name, const pg_args *args)
{
    (void)c;
    (void)name;
    (void)args;
    return 0;
}

bool
stet__pg_query_rest(pg_store *st, pg_link *c)
{
    (void)st;
    (void)c;
    return true;
}

static bool
query_wait_pair(pg_store *st, pg_link *c, PGresult **res)
{
    return query_wait(st, c, res);
}
#endif

/* ---- one statement --------------------------------------------------------------------------- */

/* Prepared once a connection, unless somebody hands us another server process every time. */
static int
query_prepare(pg_store *st, pg_link *c, pg_sql which, const pg_args *args, const char *what)
{
    PGresult *res = NULL;
    char      name[16];
    int       err = STET_OK;

    (void)snprintf(name, sizeof name, "stet%d", (int)which);
    if (PQsendPrepare(c->db, name, st->sql[which], args->n, args->types) == 0 ||
        !query_wait(st, c, &res))
        return query_lost(st, c, what);
    if (query_is_ok(res))
        c->is_prepared[which] = true;
    else
        err = stet__pg_fail(st, c, res, what);
    PQclear(res);
    return err;
}

static int
query_prepare_note(pg_store *st, pg_link *c, const char *what)
{
    static const pg_args texts = { .n = 2, .types = { PG_TEXT, PG_TEXT } },
                         keys = { .n = 3, .types = { PG_TEXT, PG_TEXT, PG_INT4S } };
    pg_sql note = query_note(c);

    return c->is_prepared[note]
               ? STET_OK
               : query_prepare(st, c, note, note == PG_SQL_NOTIFY ? &texts : &keys, what);
}

typedef enum query_way { QUERY_ALONE, QUERY_PAIRED, QUERY_FRAMED } query_way;

static int
query_send(pg_store *st, pg_link *c, pg_sql which, const pg_args *args, query_way way)
{
    char name[16];

    (void)snprintf(name, sizeof name, "stet%d", (int)which);
    if (way == QUERY_PAIRED)
        return query_send_pair(c, name, args);
    if (way == QUERY_FRAMED)
        return query_send_framed(c, st->sql[which], args);
    if (c->is_prepared[which])
        return PQsendQueryPrepared(c->db, name, args->n, args->values, args->lengths, args->formats,
                                   1);
    return PQsendQueryParams(c->db, st->sql[which], args->n, args->types, args->values,
                             args->lengths, args->formats, 1);
}

static bool
query_answer(pg_store *st, pg_link *c, query_way way, PGresult **res)
{
    switch (way) {
    case QUERY_PAIRED: return query_wait_pair(st, c, res);
    case QUERY_FRAMED: return query_wait_framed(st, c, res);
    default: return query_wait(st, c, res);
    }
}

/* What failed between its BEGIN and its COMMIT left a transaction. */
static void
query_leave(pg_store *st, pg_link *c)
{
    if (PQtransactionStatus(c->db) != PQTRANS_IDLE &&
        stet__pg_exec(st, c, "ROLLBACK", NULL, "roll back") != STET_OK)
        stet__pg_conn_close(c);
}

int
stet__pg_query_state(pg_store *st, pg_link *c, pg_sql which, const pg_args *args, PGresult **out,
                     const char *what, char state[6])
{
    static const pg_args none;
    PGresult            *res = NULL;
    const char          *said;
    query_way            way = QUERY_ALONE;
    int                  err;

    *out = NULL;
    (void)snprintf(state, 6, "08001"); /* nothing was sent */
    if (args == NULL)
        args = &none;
    if ((err = stet__pg_conn_need(st, c)) != STET_OK)
        return err;
    if (!atomic_load(&st->is_pooled) && !c->is_guest && !c->is_prepared[which] &&
        (err = query_prepare(st, c, which, args, what)) != STET_OK)
        return err;
    if (c->behind != NULL && (err = query_prepare_note(st, c, what)) != STET_OK)
        return err;
    if (query_is_paired(c, which))
        way = QUERY_PAIRED;
    else if (query_is_framed(st, c, which))
        way = QUERY_FRAMED;
    state[0] = '\0';
    if (query_send(st, c, which, args, way) == 0 || !query_answer(st, c, way, &res))
        return query_lost(st, c, what);
    if (query_is_ok(res)) {
        *out = res;
        return STET_OK;
    }
    said = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    (void)snprintf(state, 6, "%s", said != NULL ? said : "XX000");
    if (way == QUERY_FRAMED)
        query_leave(st, c);
    err = stet__pg_fail(st, c, res, what);
    PQclear(res);
    if (strcmp(state, "25006") == 0)
        stet__pg_conn_read_only(st, c);
    return err;
}

int
stet__pg_query(pg_store *st, pg_link *c, pg_sql which, const pg_args *args, PGresult **res,
               const char *what)
{
    char state[6];
    bool may_renew = c->db != NULL && !c->is_listening;
    int  err = stet__pg_query_state(st, c, which, args, res, what, state);

    /* A connection that was idle may have died long ago, or its server may not be the primary any
     * more; whoever only reads, or may repeat it, tries a new one. */
    if ((err == STET_EIO || err == STET_EREADONLY) && may_renew && c->db == NULL)
        err = stet__pg_query_state(st, c, which, args, res, what, state);
    return err;
}

int
stet__pg_exec(pg_store *st, pg_link *c, const char *sql, PGresult **out, const char *what)
{
    PGresult *res = NULL;
    int       err = STET_OK;

    if (out != NULL)
        *out = NULL;
    if (PQsendQuery(c->db, sql) == 0 || !query_wait(st, c, &res))
        return query_lost(st, c, what);
    if (!query_is_ok(res))
        err = stet__pg_fail(st, c, res, what);
    if (err == STET_OK && out != NULL)
        *out = res;
    else
        PQclear(res);
    return err;
}

int
stet__pg_exec_commit(pg_store *st, pg_link *c, const char *what)
{
    PGresult *res = NULL;
    bool      is_undone;
    int       err = stet__pg_exec(st, c, "COMMIT", &res, what);

    if (err != STET_OK)
        return c->db != NULL
                   ? err
                   : stet__fail(STET_EUNCERTAIN, "%s; what became of the commit is not known",
                                stet_last_error());
    if (strcmp(PQcmdStatus(res), "COMMIT") == 0) {
        PQclear(res);
        return STET_OK;
    }
    is_undone = strcmp(PQcmdStatus(res), "ROLLBACK") == 0;
    PQclear(res);
    stet__pg_conn_close(c); /* whatever is open on it ends */
    return is_undone ? stet__fail(STET_EIO,
                                  "store %s: cannot %s: the server rolled the transaction back; "
                                  "nothing was written, try again",
                                  st->name, what)
                     : stet__fail(STET_EUNCERTAIN,
                                  "store %s: cannot %s: the server answered nonsense to COMMIT; "
                                  "what became of the commit is not known",
                                  st->name, what);
}

int
stet__pg_one(pg_store *st, const PGresult *res, const char *what)
{
    if (PQntuples(res) == 1)
        return STET_OK;
    return stet__fail(STET_EIO, "store %s: cannot %s: the server answered nonsense", st->name,
                      what);
}

/* ---- columns --------------------------------------------------------------------------------- */

static uint64_t
pg_be(const uint8_t *at, size_t len)
{
    uint64_t v = 0;

    for (size_t i = 0; i < len; i++)
        v = v << 8 | at[i];
    return v;
}

static const uint8_t *
pg_at(const PGresult *res, int row, int col)
{
    return (const uint8_t *)PQgetvalue(res, row, col);
}

int64_t
stet__pg_int8(const PGresult *res, int row, int col)
{
    return PQgetlength(res, row, col) == 8 ? (int64_t)pg_be(pg_at(res, row, col), 8) : 0;
}

int32_t
stet__pg_int4(const PGresult *res, int row, int col)
{
    return PQgetlength(res, row, col) == 4 ? (int32_t)(uint32_t)pg_be(pg_at(res, row, col), 4) : 0;
}

bool
stet__pg_bool(const PGresult *res, int row, int col)
{
    return PQgetlength(res, row, col) == 1 && pg_at(res, row, col)[0] != 0;
}

int64_t
stet__pg_time(const PGresult *res, int row, int col)
{
    return PQgetisnull(res, row, col) ? STET_NEVER : stet__pg_int8(res, row, col);
}

stet_id
stet__pg_id(const PGresult *res, int row, int col)
{
    stet_id id = { { 0 } };

    if (PQgetlength(res, row, col) == 16)
        memcpy(id.bytes, pg_at(res, row, col), 16);
    return id;
}

stet_bytes
stet__pg_bytes(const PGresult *res, int row, int col)
{
    return (stet_bytes){ pg_at(res, row, col), (size_t)PQgetlength(res, row, col) };
}

const char *
stet__pg_text(const PGresult *res, int row, int col)
{
    return PQgetisnull(res, row, col) ? NULL : PQgetvalue(res, row, col);
}

bool
stet__pg_array_get(const PGresult *res, int row, int col, size_t size, pg_array *out)
{
    const uint8_t *at = pg_at(res, row, col);
    size_t         len = (size_t)PQgetlength(res, row, col);

    memset(out, 0, sizeof *out);
    if (len < 12 || pg_be(at, 4) > 1)
        return false;
    if (pg_be(at, 4) == 0)
        return true;
    if (len < 20)
        return false;
    out->n = (size_t)pg_be(at + 12, 4);
    out->step = size + 4;
    out->at = at + 24;
    return len == 20 + out->n * out->step;
}

uint64_t
stet__pg_array_int8(const pg_array *a, size_t i)
{
    return pg_be(a->at + i * a->step, 8);
}

int32_t
stet__pg_array_int4(const pg_array *a, size_t i)
{
    return (int32_t)(uint32_t)pg_be(a->at + i * a->step, 4);
}

stet_id
stet__pg_array_id(const pg_array *a, size_t i)
{
    stet_id id;

    memcpy(id.bytes, a->at + i * a->step, 16);
    return id;
}

bool
stet__pg_array_read(const PGresult *res, int row, int col, size_t n, pg_array_reader *out)
{
    const uint8_t *at = pg_at(res, row, col);
    size_t         len = (size_t)PQgetlength(res, row, col);

    if (len < 20 || pg_be(at, 4) != 1 || pg_be(at + 12, 4) != n)
        return false;
    *out = (pg_array_reader){ at + 20, at + len };
    return true;
}

bool
stet__pg_array_next(pg_array_reader *a, stet_bytes *out)
{
    size_t len;

    *out = (stet_bytes){ NULL, 0 };
    if (a->end - a->at < 4)
        return false;
    len = (size_t)pg_be(a->at, 4);
    a->at += 4;
    if (len == UINT32_MAX) /* NULL */
        return true;
    if (len > (size_t)(a->end - a->at))
        return false;
    *out = (stet_bytes){ a->at, len };
    a->at += len;
    return true;
}
