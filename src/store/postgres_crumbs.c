/* Crumbs of this handle's sessions, and those of the dead: files of this machine (crumbs.c). Locks:
 * side_lock. */
#include "store/crumbs.h"
#include "store/postgres.h"

/* The file stays as long as the row of the session: a session that was closed in good order left
 * nothing busy, and that is worth knowing. */
void
stet__pg_crumbs_close(pg_store *st, pg_session *own)
{
    stet__crumbs_unmap(st->instance, own->session, &own->map, false);
}

stet_crumb *
stet__pg_crumbs(stet_store *s, uint64_t session, size_t n)
{
    pg_store   *st = pg_of(s);
    pg_session *own;
    stet_crumb *crumbs = NULL;

    if (stet__pg_enter(st) != STET_OK)
        return NULL;
    stet__lock(s->platform, &st->side_lock);
    if ((own = stet__pg_session_own(st, session)) == NULL)
        (void)stet__fail(STET_ENOTFOUND, "store %s: session %llu is not of this handle", st->name,
                         (unsigned long long)session);
    else
        crumbs = stet__crumbs_map(st->instance, session, n, &own->map);
    stet__unlock(s->platform, &st->side_lock);
    return crumbs;
}

/* The owner of a living session is writing its crumbs. */
static int
crumbs_check_dead(pg_store *st, uint64_t session)
{
    PGresult *res = NULL;
    pg_args   args = { 0 };
    int       err;

    stet__pg_arg_int8(&args, (int64_t)session);
    stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
    if ((err = stet__pg_read(st, PG_SQL_SESSION_GET, &args, &res, "read a session")) == STET_OK &&
        PQntuples(res) == 1 && !stet__pg_bool(res, 0, 0))
        err = stet__fail(STET_ESTATE, "session %llu is alive; only a dead one's crumbs can be read",
                         (unsigned long long)session);
    PQclear(res);
    return err;
}

int
stet__pg_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    pg_store *st = pg_of(s);
    int       err;

    *crumbs = NULL;
    *n = 0;
    if ((err = crumbs_check_dead(st, session)) != STET_OK)
        return err;
    return stet__crumbs_load(s->alloc, st->instance, session, crumbs, n);
}
