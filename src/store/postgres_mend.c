/* Is `idle` of every run what the columns beside it say? STET_OP_REQUEUE finds runs by it, so one that
 * lost it is never tried again by new code, and one that has it wrongly would be given away. And set
 * right what is not. All else that runs are found by are indexes, which the server keeps.
 *
 * A page is one statement, which sees what was committed before it: what differs there is damage. It
 * is repaired by one statement more, which looks at each run again. Locks: side_lock for that one.
 */
#include "store/postgres.h"

#define MEND_PAGE 2000

typedef struct mend {
    pg_store *st;
    PGresult *page; /* runs that are wrong, and the last of the page */
    stet_id   last;
    bool      is_end;
} mend;

static int
mend_look(mend *m)
{
    pg_args args = { 0 };
    int     err, n;

    stet__pg_arg_id(&args, &m->last);
    stet__pg_arg_int8(&args, (int64_t)m->st->base.quiet);
    stet__pg_arg_int8(&args, MEND_PAGE);
    if ((err = stet__pg_read(m->st, PG_SQL_IDLE_LOOK, &args, &m->page, "look for idle runs")) !=
        STET_OK)
        return err;
    n = PQntuples(m->page);
    m->is_end = n == 0;
    if (n > 0)
        m->last = stet__pg_id(m->page, n - 1, 0);
    return STET_OK;
}

/* The last of the page is there whatever it says. */
static bool
mend_is_wrong(const mend *m, int i)
{
    return stet__pg_bool(m->page, i, 2);
}

static int
mend_repair(mend *m)
{
    pg_store *st = m->st;
    PGresult *res = NULL;
    pg_col    ids = { .n = 0 };
    pg_args   args = { 0 };
    int       err;

    stet__pg_col_begin(&ids, st);
    for (int i = 0; i < PQntuples(m->page); i++)
        if (mend_is_wrong(m, i)) {
            stet_id id = stet__pg_id(m->page, i, 0);

            stet__pg_col_raw(&ids, id.bytes, sizeof id.bytes);
        }
    if (ids.n == 0 || !stet__pg_col_end(&ids, PG_UUID)) {
        bool is_empty = ids.n == 0;

        stet__buf_free(&ids.buf);
        return is_empty ? STET_OK : stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    }
    stet__pg_arg_raw(&args, PG_UUIDS, ids.buf.data, ids.buf.len);
    stet__pg_arg_int8(&args, (int64_t)st->base.quiet);
    stet__lock(st->base.platform, &st->side_lock);
    err = stet__pg_query(st, &st->side, PG_SQL_IDLE_MEND, &args, &res, "repair idle runs");
    stet__unlock(st->base.platform, &st->side_lock);
    PQclear(res);
    stet__buf_free(&ids.buf);
    return err;
}

static int
mend_tell(const mend *m, bool is_repaired, stet_check_fn fn, void *arg)
{
    int err = STET_OK;

    for (int i = 0; err == STET_OK && i < PQntuples(m->page); i++)
        if (mend_is_wrong(m, i)) {
            stet_id id = stet__pg_id(m->page, i, 0);

            err = fn(arg, &id,
                     stet__pg_bool(m->page, i, 1)
                         ? "it is found by its status, though it may be executed or has ended"
                         : "it is not found by its status: a worker that has new code leaves it as "
                           "it is",
                     is_repaired);
        }
    return err;
}

int
stet__pg_check(stet_store *s, bool is_repairing, stet_check_fn fn, void *arg)
{
    mend m = { .st = pg_of(s) };
    int  err;

    if ((err = stet__pg_enter(m.st)) != STET_OK)
        return err;
    do {
        if ((err = mend_look(&m)) != STET_OK)
            return err;
        if (is_repairing)
            err = mend_repair(&m);
        if (err == STET_OK)
            err = mend_tell(&m, is_repairing, fn, arg);
        PQclear(m.page);
    } while (err == STET_OK && !m.is_end);
    return err;
}
