/* Connections to the database file: opening, statements prepared once and kept, transactions, and the
 * sentences for SQLite's errors.
 *
 * A connection is used by one thread at a time (whoever holds its lock), so SQLite's own mutexes are
 * off. sqlite3_config() is never called: it would change SQLite for the whole process. No file is
 * mapped (mmap_size 0): an I/O error would be a SIGBUS in the host program instead of a code.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite.h"

static const char *const sqlite_texts[LITE_SQL_COUNT] = {
#define LITE_SQL_TEXT(name, text) text,
    LITE_SQL_LIST(LITE_SQL_TEXT)
#undef LITE_SQL_TEXT
};

/* ---- errors ---------------------------------------------------------------------------------- */

static int
sqlite_code(sqlite3 *db, int rc)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return STET_EBUSY;
    case SQLITE_FULL: return STET_EFULL;
    case SQLITE_NOMEM: return STET_ENOMEM;
    case SQLITE_READONLY:
    case SQLITE_PERM: return STET_EREADONLY;
    case SQLITE_NOTADB: return STET_ENOTDB;
    case SQLITE_CORRUPT: return STET_ECORRUPT;
    case SQLITE_TOOBIG: return STET_ETOOBIG;
    case SQLITE_IOERR:
        if (rc == SQLITE_IOERR_NOMEM)
            return STET_ENOMEM;
        if (db != NULL && sqlite3_system_errno(db) == EDQUOT)
            return STET_EFULL;
        return STET_EIO;
    default: return STET_EIO;
    }
}

static const char *
sqlite_advice(int code)
{
    switch (code) {
    case STET_EBUSY: return "another process holds the write lock; try again";
    case STET_EFULL: return "free some space on that disk and try again";
    case STET_ENOMEM: return "out of memory";
    case STET_EREADONLY: return "make the file and its directory writable for this user";
    case STET_ENOTDB:
        return "this file is not an SQLite database; give the path of a stet store or of a new "
               "file";
    case STET_ECORRUPT: return "the file is damaged; stop all workers and restore a backup";
    case STET_ETOOBIG: return "a record is larger than SQLite can hold";
    default: return "check the disk and the directory";
    }
}

int
stet__sqlite_fail(const sqlite_store *st, sqlite3 *db, int rc, const char *what)
{
    int         code = sqlite_code(db, rc);
    const char *text = db != NULL ? sqlite3_errmsg(db) : sqlite3_errstr(rc);

    return stet__fail(code, "store %s: cannot %s: %s (SQLite %d); %s", st->path, what, text, rc,
                      sqlite_advice(code));
}

/* ---- statements ------------------------------------------------------------------------------ */

/* '$' becomes the prefix. No statement has a '$' of its own. */
static char *
sqlite_expand(const sqlite_store *st, const char *sql)
{
    stet__buf b;

    stet__buf_init(&b, st->base.alloc);
    for (; *sql != '\0'; sql++) {
        if (*sql == '$')
            stet__buf_str(&b, st->prefix);
        else
            stet__buf_byte(&b, (uint8_t)*sql);
    }
    stet__buf_byte(&b, 0);
    if (b.failed) {
        stet__buf_free(&b);
        return NULL;
    }
    return (char *)b.data;
}

sqlite3_stmt *
stet__sqlite_stmt(sqlite_store *st, sqlite_conn *c, sqlite_sql which, int *err)
{
    char *sql;
    int   rc;

    if (c->stmts[which] != NULL)
        return c->stmts[which];
    if ((sql = sqlite_expand(st, sqlite_texts[which])) == NULL) {
        *err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
        return NULL;
    }
    rc = sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &c->stmts[which], NULL);
    if (rc != SQLITE_OK)
        *err = stet__sqlite_fail(st, c->db, rc, "prepare a statement");
    stet__free(st->base.alloc, sql);
    return c->stmts[which];
}

int
stet__sqlite_run(sqlite_store *st, sqlite_conn *c, sqlite3_stmt *stmt, const char *what)
{
    int rc = sqlite3_step(stmt);
    int err = STET_OK;

    if (rc != SQLITE_DONE && rc != SQLITE_ROW)
        err = stet__sqlite_fail(st, c->db, rc, what);
    sqlite3_reset(stmt);
    return err;
}

int
stet__sqlite_exec(sqlite_store *st, sqlite_conn *c, const char *sql, const char *what)
{
    char *text = sqlite_expand(st, sql);
    int   rc;

    if (text == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    rc = sqlite3_exec(c->db, text, NULL, NULL, NULL);
    stet__free(st->base.alloc, text);
    return rc == SQLITE_OK ? STET_OK : stet__sqlite_fail(st, c->db, rc, what);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The writer flushes with every commit: an acknowledged start survives the loss of power. What the
 * side connection writes (leases) means nothing after a power loss, so it is only kept in order. */
static const char *
sqlite_pragmas(sqlite_role role)
{
    switch (role) {
    case LITE_WRITER:
        if (STET__MUTANT(file_unsynced))
            return "PRAGMA synchronous=OFF;PRAGMA wal_autocheckpoint=0";
        return "PRAGMA synchronous=FULL;PRAGMA wal_autocheckpoint=0;PRAGMA cache_size=-32768;"
               "PRAGMA temp_store=MEMORY;PRAGMA mmap_size=0;PRAGMA journal_size_limit=67108864";
    case LITE_LOG:
        return "PRAGMA synchronous=FULL;PRAGMA wal_autocheckpoint=0;PRAGMA cache_size=-512;"
               "PRAGMA mmap_size=0;PRAGMA journal_size_limit=67108864";
    case LITE_SIDE:
        return "PRAGMA synchronous=NORMAL;PRAGMA wal_autocheckpoint=0;PRAGMA cache_size=-512;"
               "PRAGMA temp_store=MEMORY;PRAGMA mmap_size=0";
    case LITE_READER: break;
    }
    return "PRAGMA query_only=1;PRAGMA wal_autocheckpoint=0;PRAGMA cache_size=-4096;"
           "PRAGMA temp_store=MEMORY;PRAGMA mmap_size=0";
}

int
stet__sqlite_conn_open(sqlite_store *st, sqlite_conn *c, sqlite_role role)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    int rc, err;

    memset(c, 0, sizeof *c);
    c->queue_fd = -1;
    if (st->is_readonly)
        flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    else if (st->full_path == NULL) /* the first connection makes the file, the others find it */
        flags |= SQLITE_OPEN_CREATE;
    rc = sqlite3_open_v2(st->full_path != NULL ? st->full_path : st->path, &c->db, flags, st->vfs);
    if (rc != SQLITE_OK) {
        err = stet__sqlite_fail(st, c->db, rc, "open it");
        goto failed;
    }
    sqlite3_busy_timeout(c->db, LITE_BUSY_MS);
    if ((err = stet__sqlite_exec(st, c, sqlite_pragmas(role), "set it up")) != STET_OK)
        goto failed;
    if (role != LITE_READER && st->queue.path != NULL &&
        (c->queue_fd = stet__sqlite_fd(st->queue.path)) < 0) {
        err = stet__fail(STET_EIO, "store %s: cannot open %s: %s", st->path, st->queue.path,
                         strerror(errno));
        goto failed;
    }
    return STET_OK;
failed:
    stet__sqlite_conn_close(c);
    return err;
}

void
stet__sqlite_conn_close(sqlite_conn *c)
{
    size_t i;

    for (i = 0; i < LITE_SQL_COUNT; i++) {
        sqlite3_finalize(c->stmts[i]);
        c->stmts[i] = NULL;
    }
    if (c->db != NULL) {
        sqlite3_close(c->db);
        c->db = NULL;
        if (c->queue_fd >= 0)
            close(c->queue_fd);
    }
    c->queue_fd = -1;
}

/* ---- transactions ---------------------------------------------------------------------------- */

int
stet__sqlite_begin(sqlite_store *st, sqlite_conn *c)
{
    sqlite3_stmt *stmt;
    int           err;

    /* What ends a transaction is there before one begins: memory may be out by then. */
    if (stet__sqlite_stmt(st, c, LITE_SQL_COMMIT, &err) == NULL ||
        stet__sqlite_stmt(st, c, LITE_SQL_ROLLBACK, &err) == NULL ||
        (err = stet__sqlite_queue_enter(st, c->queue_fd)) != STET_OK)
        return err;
    if (!sqlite3_get_autocommit(c->db)) /* a rollback that failed; nothing of it was made durable */
        (void)sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    if ((stmt = stet__sqlite_stmt(st, c, LITE_SQL_BEGIN, &err)) == NULL ||
        (err = stet__sqlite_run(st, c, stmt, "begin to write")) != STET_OK)
        stet__sqlite_queue_leave(st, c->queue_fd);
    return err;
}

void
stet__sqlite_rollback(sqlite_store *st, sqlite_conn *c)
{
    sqlite3_stmt *stmt;
    int           err;

    /* SQLite may have rolled back by itself; and without memory for the prepared one the plain call
     * still works or the connection is closed by reopen(). */
    if (!sqlite3_get_autocommit(c->db)) {
        if ((stmt = stet__sqlite_stmt(st, c, LITE_SQL_ROLLBACK, &err)) != NULL) {
            sqlite3_step(stmt);
            sqlite3_reset(stmt);
        } else {
            sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
        }
    }
    stet__sqlite_queue_leave(st, c->queue_fd);
}

int
stet__sqlite_end(sqlite_store *st, sqlite_conn *c)
{
    sqlite3_stmt *stmt;
    int           err = STET_OK;
    int           rc;

    if ((stmt = stet__sqlite_stmt(st, c, LITE_SQL_COMMIT, &err)) == NULL) {
        stet__sqlite_rollback(st, c);
        return err;
    }
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE) {
        sqlite3_reset(stmt);
        stet__sqlite_queue_leave(st, c->queue_fd);
        return STET_OK;
    }
    err = stet__sqlite_fail(st, c->db, rc, "make it durable");
    /* Locks run out before anything is written, and constraints (of the application's tables, in a transaction that
     * is lent to it) speak before that; memory may be missing when the log is written already and only its index is
     * not; all else leaves the outcome open, too. */
    if ((rc & 0xff) == SQLITE_CONSTRAINT)
        err = stet__fail(
            STET_ERETRY,
            "store %s: the commit was refused: %s; see to it that what the body wrote keeps to the "
            "constraints of its tables",
            st->path, sqlite3_errmsg(c->db));
    else if (err == STET_ENOMEM)
        err = stet__fail(STET_EUNCERTAIN, "store %s: out of memory in a commit", st->path);
    else if (err != STET_EBUSY)
        err =
            stet__fail(STET_EPOISONED,
                       "store %s: the flush failed: %s (SQLite %d); nothing more is written until "
                       "the store is reopened; %s",
                       st->path, sqlite3_errmsg(c->db), rc, sqlite_advice(err));
    sqlite3_reset(stmt);
    stet__sqlite_rollback(st, c);
    return err;
}

/* ---- columns --------------------------------------------------------------------------------- */

stet_id
stet__sqlite_column_id(sqlite3_stmt *stmt, int at)
{
    stet_id     id = { { 0 } };
    const void *data = sqlite3_column_blob(stmt, at);

    if (data != NULL && sqlite3_column_bytes(stmt, at) == 16)
        memcpy(id.bytes, data, 16);
    return id;
}

int64_t
stet__sqlite_column_time(sqlite3_stmt *stmt, int at)
{
    if (sqlite3_column_type(stmt, at) == SQLITE_NULL)
        return STET_NEVER;
    return sqlite3_column_int64(stmt, at);
}

int64_t
stet__sqlite_column_ended(sqlite3_stmt *stmt, int at)
{
    int64_t ms = stet__sqlite_column_time(stmt, at);

    return ms == LITE_NOT_ENDED ? STET_NEVER : ms;
}

stet_bytes
stet__sqlite_column_bytes(sqlite3_stmt *stmt, int at)
{
    stet_bytes b;

    b.data = sqlite3_column_blob(stmt, at);
    b.len = (size_t)sqlite3_column_bytes(stmt, at);
    return b;
}

const char *
stet__sqlite_column_text(sqlite3_stmt *stmt, int at)
{
    return (const char *)sqlite3_column_text(stmt, at);
}
