/* Sessions of workers: a row with a lease, judged by the server's clock; and upkeep.
 *
 * Each call is one statement on the side connection, repeated on a new one if it was lost: to renew
 * or to close twice is harmless, and a session that was opened twice ends with its lease. Locks:
 * side_lock.
 */
#include <string.h>

#include "store/crumbs.h"
#include "store/postgres.h"

#define SESSION_FORGET_MS (7 * 86400000LL)
#define SESSIONS_MAX      4096

pg_session *
stet__pg_session_own(pg_store *st, uint64_t session)
{
    pg_session *own = st->sessions;

    while (own != NULL && own->session != session)
        own = own->next;
    return own;
}

static void
session_forget(pg_store *st, uint64_t session)
{
    pg_session **at = &st->sessions, *own;

    while (*at != NULL && (*at)->session != session)
        at = &(*at)->next;
    if ((own = *at) != NULL) {
        *at = own->next;
        stet__pg_crumbs_close(st, own);
        stet__free(st->base.alloc, own);
    }
}

void
stet__pg_sessions_free(pg_store *st)
{
    pg_session *own;

    while ((own = st->sessions) != NULL) {
        st->sessions = own->next;
        stet__pg_crumbs_close(st, own);
        stet__free(st->base.alloc, own);
    }
}

int
stet__pg_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms,
                      stet_bytes info)
{
    pg_store   *st = pg_of(s);
    pg_session *own;
    PGresult   *res = NULL;
    pg_args     args = { 0 };
    int64_t     asked_us = stet__pg_clock_ask(st);
    int         err;

    *session = 0;
    if ((err = stet__pg_enter(st)) != STET_OK)
        return err;
    if (lease_ms <= 0)
        return stet__fail(STET_EINVAL, "a session needs a lease longer than 0 ms");
    if ((own = stet__get0(s->alloc, sizeof *own)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    stet__pg_arg_id(&args, &id);
    stet__pg_arg_raw(&args, PG_BYTEA, st->token_hash, sizeof st->token_hash);
    stet__pg_arg_int8(&args, lease_ms);
    stet__pg_arg_bytes(&args, info);
    stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
    stet__lock(s->platform, &st->side_lock);
    if ((err = stet__pg_query(st, &st->side, PG_SQL_SESSION_ADD, &args, &res, "open a session")) ==
            STET_OK &&
        (err = stet__pg_one(st, res, "open a session")) == STET_OK) {
        *session = own->session = (uint64_t)stet__pg_int8(res, 0, 0);
        stet__pg_clock_seen(st, asked_us, stet__pg_int8(res, 0, 1) - atomic_load(&st->advance_ms));
        own->next = st->sessions;
        st->sessions = own;
        own = NULL;
    }
    stet__unlock(s->platform, &st->side_lock);
    PQclear(res);
    stet__free(s->alloc, own);
    return err;
}

int
stet__pg_session_renew(stet_store *s, uint64_t session, int64_t lease_ms)
{
    pg_store *st = pg_of(s);
    int64_t   asked_us = stet__pg_clock_ask(st);
    PGresult *res = NULL;
    pg_args   args = { 0 };
    int       err;

    if ((err = stet__pg_enter(st)) != STET_OK)
        return err;
    stet__pg_arg_int8(&args, (int64_t)session);
    stet__pg_arg_raw(&args, PG_BYTEA, st->token_hash, sizeof st->token_hash);
    stet__pg_arg_int8(&args, lease_ms);
    stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
    stet__lock(s->platform, &st->side_lock);
    err = stet__pg_query(st, &st->side, PG_SQL_SESSION_RENEW, &args, &res, "renew a session");
    if (err == STET_OK && PQntuples(res) == 1)
        stet__pg_clock_seen(st, asked_us, stet__pg_int8(res, 0, 0) - atomic_load(&st->advance_ms));
    else if (err == STET_OK)
        err = stet__fail(STET_EFENCED,
                         "session %llu has expired or is not of this handle; open a new one",
                         (unsigned long long)session);
    stet__unlock(s->platform, &st->side_lock);
    PQclear(res);
    return err;
}

/* Closing what is gone is fine; closing another's session is not. */
static int
session_is_foreign(pg_store *st, uint64_t session)
{
    PGresult *res = NULL;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_int8(&args, (int64_t)session);
    stet__pg_arg_int8(&args, 0);
    if ((err = stet__pg_query(st, &st->side, PG_SQL_SESSION_GET, &args, &res, "read a session")) ==
            STET_OK &&
        PQntuples(res) > 0)
        err = stet__fail(STET_EFENCED, "session %llu was opened by another handle",
                         (unsigned long long)session);
    PQclear(res);
    return err;
}

int
stet__pg_session_close(stet_store *s, uint64_t session)
{
    pg_store *st = pg_of(s);
    PGresult *res = NULL;
    pg_args   args = { 0 };
    bool      is_closed = false;
    int       err;

    if ((err = stet__pg_enter(st)) != STET_OK)
        return err;
    stet__pg_arg_int8(&args, (int64_t)session);
    stet__pg_arg_raw(&args, PG_BYTEA, st->token_hash, sizeof st->token_hash);
    stet__lock(s->platform, &st->side_lock);
    if ((err = stet__pg_query(st, &st->side, PG_SQL_SESSION_CLOSE, &args, &res,
                              "close a session")) == STET_OK)
        is_closed = PQntuples(res) > 0;
    PQclear(res);
    if (err == STET_OK && !is_closed && stet__pg_session_own(st, session) == NULL)
        err = session_is_foreign(st, session);
    session_forget(st, session);
    stet__unlock(s->platform, &st->side_lock);
    if (is_closed) { /* its claims wait for somebody */
        stet__lock(s->platform, &st->commit_lock);
        stet__pg_hint(st);
        stet__unlock(s->platform, &st->commit_lock);
    }
    return err;
}

int
stet__pg_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    pg_store *st = pg_of(s);
    PGresult *res = NULL;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
    if ((err = stet__pg_read(st, PG_SQL_SESSIONS, &args, &res, "list sessions")) != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < PQntuples(res); i++) {
        stet_session_row row = { .session = (uint64_t)stet__pg_int8(res, i, 0),
                                 .id = stet__pg_id(res, i, 1),
                                 .started_ms = stet__pg_int8(res, i, 2),
                                 .seen_ms = stet__pg_int8(res, i, 3),
                                 .lease_until_ms = stet__pg_int8(res, i, 4),
                                 .is_dead = stet__pg_bool(res, i, 5),
                                 .info = stet__pg_bytes(res, i, 6) };

        err = fn(arg, &row);
    }
    PQclear(res);
    return err;
}

/* ---- upkeep ---------------------------------------------------------------------------------- */

static int
maintain_forget(pg_store *st, pg_sql which, int64_t before_ms, const char *what)
{
    PGresult *res = NULL;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_int8(&args, before_ms);
    err = stet__pg_query(st, &st->side, which, &args, &res, what);
    PQclear(res);
    return err;
}

/* Crumbs of sessions that are not listed any more. */
static int
maintain_crumbs(pg_store *st)
{
    uint64_t *known;
    PGresult *res = NULL;
    pg_args   args = { 0 };
    size_t    n;
    int       err;

    stet__pg_arg_int8(&args, 0);
    if ((err = stet__pg_query(st, &st->side, PG_SQL_SESSIONS, &args, &res, "list sessions")) !=
        STET_OK)
        return err;
    n = (size_t)PQntuples(res);
    if (n <= SESSIONS_MAX && (known = stet__get(st->base.alloc, n * sizeof *known)) != NULL) {
        for (size_t i = 0; i < n; i++)
            known[i] = (uint64_t)stet__pg_int8(res, (int)i, 0);
        stet__crumbs_sweep(st->instance, known, n, stet__wall_ms(st->base.platform));
        stet__free(st->base.alloc, known);
    }
    PQclear(res);
    return STET_OK;
}

int
stet__pg_maintain(stet_store *s)
{
    pg_store *st = pg_of(s);
    int64_t   before_ms;
    int       err;

    if ((err = stet__pg_enter(st)) != STET_OK)
        return err;
    before_ms = stet__pg_now(st) - SESSION_FORGET_MS;
    stet__lock(s->platform, &st->side_lock);
    if ((err = maintain_forget(st, PG_SQL_COMMITTER_OLD, before_ms, "forget old committers")) ==
            STET_OK &&
        (err = maintain_forget(st, PG_SQL_SESSION_OLD, before_ms, "forget old sessions")) ==
            STET_OK)
        err = maintain_crumbs(st);
    stet__unlock(s->platform, &st->side_lock);
    return err;
}
