/* Transactions that are lent to bodies of steps, and units applied inside the transactions of
 * others.
 *
 * A file has one writer at a time, so one connection is enough for all bodies of a process; they
 * take turns. It is a guest: a handle of its own as far as units are concerned (the rows in memory
 * of the store's writer mean nothing in another transaction), with nothing else of a store. While a
 * body has it, an authorizer keeps its hands off our tables and off the transaction itself, and its
 * statements are interrupted when the time is up.
 *
 * Locks: tx_lock for whose turn it is; the guest belongs to whoever has the turn.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "store/sqlite.h"

typedef struct sqlite_tx {
    stet_tx       base;
    sqlite_store *st;
    sqlite_store  guest; /* its writer is the connection */
    bool          is_guarded; /* a body has it */
    int64_t       until_us;
} sqlite_tx;

/* What a unit needs of a handle; the rest stays empty. */
static int
tx_guest_init(sqlite_store *st, sqlite_store *guest)
{
    memset(guest, 0, sizeof *guest);
    guest->base.platform = st->base.platform;
    guest->base.alloc = st->base.alloc;
    guest->path = st->path;
    guest->full_path = st->full_path;
    guest->vfs = st->vfs;
    memcpy(guest->prefix, st->prefix, sizeof guest->prefix);
    memcpy(guest->token_hash, st->token_hash, sizeof guest->token_hash);
    memcpy(guest->instance, st->instance, sizeof guest->instance);
    memcpy(guest->boot, st->boot, sizeof guest->boot);
    guest->own = st->own;
    guest->queue = st->queue;
    guest->writer.queue_fd = -1;
    stet__arena_init(&guest->scratch, st->base.alloc);
    return stet__sqlite_runs_init(guest);
}

static void
tx_guest_free(sqlite_store *guest)
{
    stet__sqlite_runs_free(guest);
    stet__arena_free(&guest->scratch);
    stet__free(guest->base.alloc, guest->grants);
}

static int
tx_apply(sqlite_store *st, sqlite_store *guest, const stet_unit *unit, stet_outcome *outcome)
{
    int err;

    guest->base.sticky = st->base.sticky;
    guest->base.quiet = st->base.quiet;
    guest->now_ms = stet__sqlite_now(st);
    err = stet__sqlite_apply_alone(guest, unit, outcome);
    stet__arena_free(&guest->scratch);
    stet__arena_init(&guest->scratch, st->base.alloc);
    return err;
}

/* ---- what a body may do ---------------------------------------------------------------------- */

static int
tx_authorize(void *arg, int action, const char *first, const char *second, const char *database,
             const char *trigger)
{
    const sqlite_tx *tx = arg;

    (void)database;
    (void)trigger;
    if (!tx->is_guarded)
        return SQLITE_OK;
    switch (action) {
    case SQLITE_TRANSACTION:
    case SQLITE_ATTACH:
    case SQLITE_DETACH: return SQLITE_DENY;
    case SQLITE_PRAGMA: return second != NULL ? SQLITE_DENY : SQLITE_OK;
    case SQLITE_INSERT:
    case SQLITE_UPDATE:
    case SQLITE_DELETE:
    case SQLITE_DROP_TABLE:
    case SQLITE_CREATE_TRIGGER: /* its table is the second */
    case SQLITE_CREATE_INDEX:
    case SQLITE_DROP_INDEX:
        if (stet__sqlite_is_part(tx->st, first))
            return SQLITE_DENY;
        return (action == SQLITE_CREATE_TRIGGER || action == SQLITE_CREATE_INDEX ||
                action == SQLITE_DROP_INDEX) &&
                       stet__sqlite_is_part(tx->st, second)
                   ? SQLITE_DENY
                   : SQLITE_OK;
    case SQLITE_ALTER_TABLE: return stet__sqlite_is_part(tx->st, second) ? SQLITE_DENY : SQLITE_OK;
    default: return SQLITE_OK;
    }
}

static int
tx_is_late(void *arg)
{
    const sqlite_tx *tx = arg;

    return tx->is_guarded && stet__mono_us(tx->st->base.platform) > tx->until_us;
}

/* Statements the body left in the middle would keep the transaction from ending. */
static void
tx_reset_all(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;

    while ((stmt = sqlite3_next_stmt(db, stmt)) != NULL)
        sqlite3_reset(stmt);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static int
tx_turn_take(sqlite_store *st, int64_t until_us)
{
    stet__platform *p = st->base.platform;
    int             err = STET_OK;

    stet__lock(p, &st->tx_lock);
    while (st->is_lent && stet__mono_us(p) < until_us)
        (void)stet__wait(p, &st->tx_cond, &st->tx_lock, until_us);
    if (st->is_lent)
        err = stet__fail(
            STET_EBUSY,
            "store %s: another transactional step of this process has not ended; try again",
            st->path);
    else
        st->is_lent = true;
    stet__unlock(p, &st->tx_lock);
    return err;
}

static void
tx_turn_give(sqlite_store *st)
{
    stet__platform *p = st->base.platform;

    stet__lock(p, &st->tx_lock);
    st->is_lent = false;
    stet__signal(p, &st->tx_cond);
    stet__unlock(p, &st->tx_lock);
}

static int
tx_connect(sqlite_store *st)
{
    sqlite_tx *tx = st->tx;
    int        err;

    if (tx == NULL) {
        if ((tx = stet__get0(st->base.alloc, sizeof *tx)) == NULL)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
        if ((err = tx_guest_init(st, &tx->guest)) != STET_OK) {
            stet__free(st->base.alloc, tx);
            return err;
        }
        tx->st = st;
        st->tx = tx;
    }
    if (tx->guest.writer.db != NULL)
        return STET_OK;
    if ((err = stet__sqlite_conn_open(st, &tx->guest.writer, LITE_WRITER)) != STET_OK)
        return err;
    stet__sqlite_log_watch(st, &tx->guest.writer);
    /* Once: setting an authorizer makes SQLite prepare every statement again, and what ends a
     * transaction must not need memory. */
    sqlite3_set_authorizer(tx->guest.writer.db, tx_authorize, tx);
    sqlite3_progress_handler(tx->guest.writer.db, 1000, tx_is_late, tx);
    return STET_OK;
}

int
stet__sqlite_tx_begin(stet_store *s, int64_t limit_ms, stet_tx **out)
{
    sqlite_store *st = sqlite_of(s);
    int64_t       until_us = stet__mono_us(s->platform) + limit_ms * 1000;
    int           err;

    *out = NULL;
    if ((err = stet__sqlite_enter(st)) != STET_OK || (err = tx_turn_take(st, until_us)) != STET_OK)
        return err;
    if (atomic_load(&st->is_poisoned))
        err = stet__fail(STET_EPOISONED,
                         "store %s: a flush failed before; the store is being reopened", st->path);
    else if ((err = tx_connect(st)) == STET_OK)
        err = stet__sqlite_begin(st, &st->tx->guest.writer);
    if (err != STET_OK) {
        tx_turn_give(st);
        return err;
    }
    st->tx->until_us = stet__mono_us(s->platform) + limit_ms * 1000;
    st->tx->base.conn = stet_conn_sqlite(st->tx->guest.writer.db);
    st->tx->is_guarded = true;
    *out = &st->tx->base;
    return STET_OK;
}

void
stet__sqlite_tx_rollback(stet_store *s, stet_tx *base)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_tx    *tx = (sqlite_tx *)base;

    tx->is_guarded = false;
    tx_reset_all(tx->guest.writer.db);
    stet__sqlite_rollback(st, &tx->guest.writer);
    if (!sqlite3_get_autocommit(
            tx->guest.writer.db)) /* no memory: it would hold up every writer of the file */
        stet__sqlite_conn_close(&tx->guest.writer);
    tx_turn_give(st);
}

int
stet__sqlite_tx_commit(stet_store *s, stet_tx *base, const stet_unit *unit, stet_outcome *outcome)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_tx    *tx = (sqlite_tx *)base;
    sqlite_conn  *c = &tx->guest.writer;
    bool          is_late;
    int           err;

    is_late = tx_is_late(
        tx); /* a statement may have been interrupted, and the body may not have looked */
    tx->is_guarded = false;
    tx_reset_all(c->db);
    if (is_late)
        err = stet__fail(STET_ETIMEOUT, "store %s: the transaction took longer than its limit",
                         st->path);
    else if (sqlite3_get_autocommit(c->db))
        err = stet__fail(STET_ERETRY,
                         "store %s: a statement of the body rolled its transaction back", st->path);
    else
        err = tx_apply(st, &tx->guest, unit, outcome);
    if (err != STET_OK || outcome->result != STET_OK)
        stet__sqlite_rollback(st, c);
    else if ((err = stet__sqlite_end(st, c)) == STET_OK)
        stet__sqlite_hint(st);
    if (err == STET_EPOISONED)
        atomic_store(&st->is_poisoned, true);
    if (err == STET_EPOISONED || !sqlite3_get_autocommit(c->db))
        stet__sqlite_conn_close(c);
    tx_turn_give(st);
    return err;
}

void
stet__sqlite_tx_close(sqlite_store *st)
{
    if (st->tx == NULL)
        return;
    stet__sqlite_conn_close(&st->tx->guest.writer);
    tx_guest_free(&st->tx->guest);
    stet__free(st->base.alloc, st->tx);
    st->tx = NULL;
}

/* ---- the transaction of somebody else -------------------------------------------------------- */

static int
tx_check_conn(sqlite_store *st, stet_conn conn)
{
    const char *name;
    struct stat ours, theirs;

    if (conn.kind != STET_CONN_SQLITE || conn.handle == NULL)
        return stet__fail(STET_EUSAGE, "store %s is an SQLite file: give a connection of SQLite",
                          st->path);
    name = sqlite3_db_filename(conn.handle, "main");
    if (name == NULL || stat(name, &theirs) != 0 || stat(st->full_path, &ours) != 0 ||
        ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino)
        return stet__fail(STET_EMISMATCH, "the connection is open on %s, not on %s",
                          name != NULL && name[0] != '\0' ? name : "no file", st->path);
    if (sqlite3_get_autocommit(conn.handle))
        return stet__fail(STET_ESTATE,
                          "no transaction has begun on the connection to %s; begin one", st->path);
    return STET_OK;
}

/* What goes back is there before anything is written: memory may be out by then. */
typedef struct tx_savepoint {
    sqlite3_stmt *begin, *back, *release, *give_up;
} tx_savepoint;

static void
tx_savepoint_free(tx_savepoint *p)
{
    sqlite3_finalize(p->begin);
    sqlite3_finalize(p->back);
    sqlite3_finalize(p->release);
    sqlite3_finalize(p->give_up);
}

static int
tx_savepoint_prepare(sqlite_store *st, sqlite3 *db, tx_savepoint *p)
{
    int rc;

    if ((rc = sqlite3_prepare_v2(db, "SAVEPOINT stet_start", -1, &p->begin, NULL)) != SQLITE_OK ||
        (rc = sqlite3_prepare_v2(db, "ROLLBACK TO stet_start", -1, &p->back, NULL)) != SQLITE_OK ||
        (rc = sqlite3_prepare_v2(db, "RELEASE stet_start", -1, &p->release, NULL)) != SQLITE_OK ||
        (rc = sqlite3_prepare_v2(db, "ROLLBACK", -1, &p->give_up, NULL)) != SQLITE_OK)
        return stet__sqlite_fail(st, db, rc, "start a run in it");
    return STET_OK;
}

/* After a failure the transaction is as it was; if even that cannot be done it is ended, which its
 * owner learns from its next statement. */
static int
tx_apply_in(sqlite_store *st, sqlite_store *guest, const stet_unit *unit, stet_outcome *outcome,
            tx_savepoint *p)
{
    sqlite3 *db = guest->writer.db;
    int      rc = sqlite3_step(p->begin);
    char     text[512];
    int      err;

    if (rc != SQLITE_DONE)
        return stet__sqlite_fail(st, db, rc, "start a run in it");
    err = tx_apply(st, guest, unit, outcome);
    if (err == STET_OK && outcome->result == STET_OK &&
        (rc = sqlite3_step(p->release)) == SQLITE_DONE)
        return STET_OK;
    if (err == STET_OK && outcome->result == STET_OK)
        err = stet__sqlite_fail(st, db, rc, "start a run in it");
    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    sqlite3_reset(p->release);
    if (!sqlite3_get_autocommit(db) && sqlite3_step(p->back) != SQLITE_DONE)
        (void)sqlite3_step(p->give_up);
    else
        (void)sqlite3_step(p->release);
    return err != STET_OK ? stet__fail(err, "%s", text) : STET_OK;
}

int
stet__sqlite_apply_in(stet_store *s, stet_conn conn, const stet_unit *unit, stet_outcome *outcome)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_store *guest;
    sqlite_tx    *own = NULL; /* the connection is the one we lent to the caller */
    tx_savepoint  savepoint = { NULL, NULL, NULL, NULL };
    size_t        i;
    int           err;

    if ((err = stet__sqlite_enter(st)) != STET_OK || (err = tx_check_conn(st, conn)) != STET_OK)
        return err;
    stet__lock(s->platform, &st->tx_lock);
    if (st->is_lent && st->tx != NULL && st->tx->guest.writer.db == conn.handle)
        own = st->tx;
    stet__unlock(s->platform, &st->tx_lock);
    if ((guest = stet__get(s->alloc, sizeof *guest)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    if ((err = tx_guest_init(st, guest)) == STET_OK) {
        guest->writer.db = conn.handle;
        if (own != NULL)
            own->is_guarded = false;
        if ((err = tx_savepoint_prepare(st, conn.handle, &savepoint)) == STET_OK)
            err = tx_apply_in(st, guest, unit, outcome, &savepoint);
        tx_savepoint_free(&savepoint);
        for (i = 0; i < LITE_SQL_COUNT; i++)
            sqlite3_finalize(guest->writer.stmts[i]);
        if (own != NULL)
            own->is_guarded = true;
        tx_guest_free(guest);
    }
    stet__free(s->alloc, guest);
    return err;
}
