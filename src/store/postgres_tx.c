/* Transactions that are lent to the body of a step, and units inside a transaction of somebody
 * else.
 *
 * A lent connection is nobody else's meanwhile; there are as many as bodies run at once, and each
 * is cleaned (DISCARD ALL) before it is lent again. The same function as in every commit checks and
 * applies the unit, inside the transaction, and remembers nothing of it: there is no batch that
 * could come again. It locks the row of the run, so whoever sets that row afterwards comes behind
 * the transaction, also when its outcome was not told.
 *
 * PostgreSQL cannot be kept from executing a COMMIT of the body. A setting that lasts as long as
 * the transaction shows whether it is still the one that was lent; if not, the step has failed and
 * says so, but what the body committed stays. Locks: tx_lock for the list.
 */
#include <stdio.h>
#include <string.h>

#include "store/postgres.h"

typedef struct pg_tx {
    stet_tx       base;
    struct pg_tx *next; /* among the free */
    pg_link       link;
    int64_t       until_us;
    char          mark[40];
} pg_tx;

/* ---- connections to lend --------------------------------------------------------------------- */

static pg_tx *
tx_take(pg_store *st)
{
    pg_tx *tx;

    stet__lock(st->base.platform, &st->tx_lock);
    if ((tx = st->tx_free) != NULL)
        st->tx_free = tx->next;
    stet__unlock(st->base.platform, &st->tx_lock);
    return tx != NULL ? tx : stet__get0(st->base.alloc, sizeof *tx);
}

/* Whatever the body left: results, settings, prepared statements. */
static void
tx_give(pg_store *st, pg_tx *tx)
{
    if (tx->link.db != NULL &&
        (PQtransactionStatus(tx->link.db) != PQTRANS_IDLE || atomic_load(&st->is_pooled) ||
         stet__pg_exec(st, &tx->link, "DISCARD ALL", NULL, "clean up") != STET_OK))
        stet__pg_conn_close(&tx->link);
    memset(tx->link.is_prepared, 0, sizeof tx->link.is_prepared);
    stet__lock(st->base.platform, &st->tx_lock);
    tx->next = st->tx_free;
    st->tx_free = tx;
    stet__unlock(st->base.platform, &st->tx_lock);
}

void
stet__pg_tx_close(pg_store *st)
{
    pg_tx *tx;

    while ((tx = st->tx_free) != NULL) {
        st->tx_free = tx->next;
        stet__pg_conn_close(&tx->link);
        stet__free(st->base.alloc, tx);
    }
}

/* ---- lending --------------------------------------------------------------------------------- */

static int
tx_start(pg_store *st, pg_tx *tx, int64_t limit_ms)
{
    uint8_t random[16];
    char    sql[256];
    int     err;

    if ((err = stet__pg_conn_need(st, &tx->link)) != STET_OK)
        return err;
    st->base.platform->ops->random(st->base.platform, random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(tx->mark + 2 * i, 3, "%02x", random[i]);
    (void)snprintf(sql, sizeof sql,
                   PG_BEGIN "; SET LOCAL statement_timeout=%lld; SET LOCAL "
                            "stet.lent='%s'",
                   (long long)(limit_ms > 0 ? limit_ms : 1), tx->mark);
    if ((err = stet__pg_exec(st, &tx->link, sql, NULL, "begin a transaction")) != STET_OK)
        return err;
    /* Without one each statement of the body would commit itself. */
    if (PQtransactionStatus(tx->link.db) != PQTRANS_INTRANS)
        return stet__fail(STET_EIO,
                          "store %s: cannot begin a transaction: the server answered nonsense",
                          st->name);
    return STET_OK;
}

int
stet__pg_tx_begin(stet_store *s, int64_t limit_ms, stet_tx **out)
{
    pg_store *st = pg_of(s);
    pg_tx    *tx;
    int       err;

    *out = NULL;
    if ((err = stet__pg_enter(st)) != STET_OK)
        return err;
    if ((tx = tx_take(st)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    tx->until_us = stet__mono_us(s->platform) + limit_ms * 1000;
    if ((err = tx_start(st, tx, limit_ms)) != STET_OK) {
        stet__pg_conn_close(&tx->link);
        tx_give(st, tx);
        return err;
    }
    (void)PQsetnonblocking(tx->link.db, 0); /* as people know it */
    tx->base.conn = stet_conn_postgres(tx->link.db);
    *out = &tx->base;
    return STET_OK;
}

/* It is ours again; false: it is of no more use. */
static bool
tx_recover(pg_tx *tx)
{
    PGresult *res;

    if (PQstatus(tx->link.db) != CONNECTION_OK ||
        PQtransactionStatus(tx->link.db) == PQTRANS_ACTIVE)
        return false;
    while ((res = PQgetResult(tx->link.db)) != NULL)
        PQclear(res);
    return PQsetnonblocking(tx->link.db, 1) == 0;
}

static void
tx_undo(pg_store *st, pg_tx *tx)
{
    char text[1024]; /* the rollback must not change what went wrong */

    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    if (tx->link.db != NULL && PQtransactionStatus(tx->link.db) != PQTRANS_IDLE &&
        stet__pg_exec(st, &tx->link, "ROLLBACK", NULL, "roll back") != STET_OK)
        stet__pg_conn_close(&tx->link);
    (void)stet__fail(STET_EIO, "%s", text);
}

void
stet__pg_tx_rollback(stet_store *s, stet_tx *base)
{
    pg_store *st = pg_of(s);
    pg_tx    *tx = (pg_tx *)base;

    if (!tx_recover(tx))
        stet__pg_conn_close(&tx->link);
    tx_undo(st, tx);
    tx_give(st, tx);
}

/* ---- committing ------------------------------------------------------------------------------ */

/* Is it the transaction that was lent, and in order? From here on the time is ours. */
static int
tx_check(pg_store *st, pg_tx *tx)
{
    PGresult *res = NULL;
    bool      is_ours;
    int       err;

    if (stet__mono_us(st->base.platform) > tx->until_us)
        return stet__fail(STET_ETIMEOUT, "store %s: the transaction took longer than its limit",
                          st->name);
    if (!tx_recover(tx))
        return stet__fail(STET_ERETRY, "store %s: the body left its connection in the middle",
                          st->name);
    if (PQtransactionStatus(tx->link.db) == PQTRANS_INERROR)
        return stet__fail(STET_ERETRY,
                          "store %s: a statement of the body failed, and its transaction with it",
                          st->name);
    if ((err = stet__pg_exec(st, &tx->link,
                             "SELECT current_setting('stet.lent',true),"
                             "set_config('statement_timeout','0',true)",
                             &res, "look at the transaction")) != STET_OK)
        return err;
    is_ours = PQtransactionStatus(tx->link.db) == PQTRANS_INTRANS &&
              strcmp(PQgetvalue(res, 0, 0), tx->mark) == 0;
    PQclear(res);
    if (!is_ours)
        return stet__fail(
            STET_EPERMANENT,
            "store %s: the body ended its transaction, which is not its to end; what it "
            "committed is not recorded",
            st->name);
    return STET_OK;
}

static int
tx_apply(pg_store *st, pg_link *c, const stet_unit *unit, stet_outcome *outcome)
{
    PGresult *res = NULL;
    char      state[6];
    int       err;

    memset(outcome, 0, sizeof *outcome);
    outcome->next_due_ms = STET_NEVER;
    if ((err = stet__pg_commit_send(st, c, NULL, unit, outcome, 0, 1, &res, state)) == STET_OK) {
        err = stet__pg_commit_answer(st, res, unit, 1, outcome);
        outcome->is_repeat = false;
    }
    PQclear(res);
    return err;
}

int
stet__pg_tx_commit(stet_store *s, stet_tx *base, const stet_unit *unit, stet_outcome *outcome)
{
    pg_store *st = pg_of(s);
    pg_tx    *tx = (pg_tx *)base;
    int       err;

    memset(outcome, 0, sizeof *outcome);
    outcome->next_due_ms = STET_NEVER;
    if ((err = tx_check(st, tx)) == STET_OK &&
        (err = tx_apply(st, &tx->link, unit, outcome)) == STET_OK && outcome->result == STET_OK)
        err = stet__pg_exec_commit(st, &tx->link, "commit");
    else
        tx_undo(st, tx);
    if (err == STET_OK && outcome->result == STET_OK)
        st->base.ops->hint(s);
    tx_give(st, tx);
    return err;
}

/* ---- the transaction of somebody else -------------------------------------------------------- */

/* A lane is no row: whoever waited for its lock has to look who is in it with a snapshot that is younger
 * than the lock, and here the caller's may be older. */
static int
tx_check_lanes(pg_store *st, const char *isolation, const stet_unit *unit)
{
    if (strcmp(isolation, "repeatable read") != 0 && strcmp(isolation, "serializable") != 0)
        return STET_OK;
    for (size_t i = 0; i < unit->n_ops; i++)
        if (unit->ops[i].kind == STET_OP_LANE_ENTER)
            return stet__fail(
                STET_ESTATE,
                "store %s: the transaction is %s, and does not see who has the key of %s since it "
                "began; begin it with BEGIN ISOLATION LEVEL READ COMMITTED, or start the run "
                "after its commit",
                st->name, isolation, unit->ops[i].lane);
    return STET_OK;
}

/* Inside the savepoint: is our store in the database of this connection, and may the unit be applied? */
static int
tx_check_inside(pg_store *st, pg_link *c, const stet_unit *unit)
{
    PGresult *res = NULL;
    char      sql[256], instance[33];
    bool      is_ours;
    int       err;

    for (size_t i = 0; i < sizeof st->instance; i++)
        (void)snprintf(instance + 2 * i, 3, "%02x", st->instance[i]);
    (void)snprintf(sql, sizeof sql,
                   "SELECT convert_from(v,'SQL_ASCII'),current_setting('transaction_isolation') "
                   "FROM \"%s\".meta WHERE k='instance'",
                   st->schema);
    err = stet__pg_exec(st, c, sql, &res, "find the store");
    is_ours = err == STET_OK && PQntuples(res) == 1 && strcmp(PQgetvalue(res, 0, 0), instance) == 0;
    if (is_ours)
        err = tx_check_lanes(st, PQgetvalue(res, 0, 1), unit);
    PQclear(res);
    if (is_ours || c->db == NULL) /* lost: nothing is known of the database */
        return err;
    return stet__fail(STET_EMISMATCH, "the connection is to the database %s, where %s is not",
                      PQdb(c->db), st->name);
}

static int
tx_check_conn(pg_store *st, stet_conn conn)
{
    if (conn.kind != STET_CONN_POSTGRES || conn.handle == NULL)
        return stet__fail(STET_EUSAGE, "store %s is PostgreSQL: give a connection of libpq",
                          st->name);
    if (PQtransactionStatus(conn.handle) != PQTRANS_INTRANS)
        return stet__fail(
            STET_ESTATE,
            "no transaction has begun on the connection to %s, or it has failed; begin one",
            st->name);
    return STET_OK;
}

int
stet__pg_apply_in(stet_store *s, stet_conn conn, const stet_unit *unit, stet_outcome *outcome)
{
    pg_store *st = pg_of(s);
    pg_link   c = { .db = conn.handle, .is_guest = true };
    char      text[1024];
    int       err;

    memset(outcome, 0, sizeof *outcome);
    if ((err = stet__pg_enter(st)) != STET_OK || (err = tx_check_conn(st, conn)) != STET_OK ||
        (err = stet__pg_exec(st, &c, "SAVEPOINT stet_start", NULL, "start a run in it")) != STET_OK)
        return err;
    if ((err = tx_check_inside(st, &c, unit)) == STET_OK &&
        (err = tx_apply(st, &c, unit, outcome)) == STET_OK && outcome->result == STET_OK)
        return stet__pg_exec(st, &c, "RELEASE stet_start", NULL, "start a run in it");
    if (err == STET_OK || c.db == NULL)
        (void)snprintf(text, sizeof text, "the connection was lost");
    if (err != STET_OK)
        (void)snprintf(text, sizeof text, "%s", stet_last_error());
    if (c.db != NULL)
        (void)stet__pg_exec(st, &c, "ROLLBACK TO stet_start; RELEASE stet_start", NULL, "leave it");
    return err != STET_OK ? stet__fail(err, "%s", text) : STET_OK;
}
