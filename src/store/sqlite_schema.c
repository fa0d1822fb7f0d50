/* Whose file it is, and the tables in it.
 *
 * A file is ours if its application_id says so; a new or empty one becomes ours; anything else is left
 * exactly as it was found. user_version is the version of the tables, one for the whole file; several
 * prefixes in one file are several isolated sets of tables.
 *
 * Keys are the 16 bytes of the IDs and all tables are clustered on them (WITHOUT ROWID): IDs grow with
 * time, so what is in flight lies together at the end of each tree and a commit touches few pages.
 *
 * runs.work says who may execute a run, in one indexed number:
 *   NULL  nobody any more (terminal)      N > 0  the holder of session N
 *   0     anybody, from `due` on          -1-S   nobody for now, its status is S
 * The one index over it finds due work, the runs of a session, and idle runs by status. It has no
 * entries for ended runs, so it stays as small as the work at hand. So does the index over lanes: a run has
 * one only while it stands in it.
 */
#include <string.h>

#include "store/sqlite.h"

#define LITE_APPLICATION_ID 0x73746574 /* "stet" */
#define LITE_VERSION        1

static const char sqlite_tables[] =
    "CREATE TABLE IF NOT EXISTS $meta(k TEXT PRIMARY KEY, v) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS $runs(id BLOB PRIMARY KEY, handler TEXT, status INTEGER,"
    " terminal INTEGER, work INTEGER, epoch INTEGER, inbox INTEGER, due INTEGER, created INTEGER,"
    " ended INTEGER, priority INTEGER, attempt INTEGER, lane TEXT, lane_pos INTEGER, key TEXT,"
    " grp TEXT, reason TEXT, extra BLOB) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS $runs_work ON $runs(work, handler, due) WHERE work IS NOT NULL;"
    "CREATE INDEX IF NOT EXISTS $runs_lane ON $runs(lane, lane_pos) WHERE lane IS NOT NULL;"
    "CREATE TABLE IF NOT EXISTS $facts(run BLOB, rev INTEGER, count INTEGER, data BLOB,"
    " PRIMARY KEY(run, rev)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS $inbox(run BLOB, seq INTEGER, data BLOB,"
    " PRIMARY KEY(run, seq)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS $timers(fire INTEGER, run BLOB, completion INTEGER,"
    " PRIMARY KEY(fire, run, completion)) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS $timers_run ON $timers(run);"
    "CREATE TABLE IF NOT EXISTS $values_(space TEXT, key BLOB, version INTEGER, data BLOB,"
    " run BLOB, rev INTEGER, PRIMARY KEY(space, key)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS $sessions(session INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB,"
    " token BLOB, started INTEGER, seen INTEGER, lease_until INTEGER, closed INTEGER, info BLOB);"
    /* With row numbers, because only such a table keeps up to a page of bytes in the row itself. */
    "CREATE TABLE IF NOT EXISTS $committers(id BLOB PRIMARY KEY, last_seq INTEGER, at INTEGER,"
    " outcomes BLOB);"
    "INSERT OR IGNORE INTO $meta(k, v) VALUES('instance', randomblob(16));";

/* One number from a statement that is used once. */
static int
sqlite_ask(sqlite_store *st, sqlite_conn *c, const char *sql, int64_t *out)
{
    sqlite3_stmt *stmt = NULL;
    int           err = STET_OK;
    int           rc;

    if ((rc = sqlite3_prepare_v2(c->db, sql, -1, &stmt, NULL)) == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(stmt, 0);
    else
        err = stet__sqlite_fail(st, c->db, rc, "read it");
    sqlite3_finalize(stmt);
    return err;
}

int
stet__sqlite_identify(sqlite_store *st, sqlite_conn *c)
{
    int64_t app = 0, version = 0, tables = 0;
    int     err;

    if ((err = sqlite_ask(st, c, "SELECT count(*) FROM sqlite_schema", &tables)) != STET_OK ||
        (err = sqlite_ask(st, c, "PRAGMA application_id", &app)) != STET_OK ||
        (err = sqlite_ask(st, c, "PRAGMA user_version", &version)) != STET_OK)
        return err;
    if (app != LITE_APPLICATION_ID && (tables > 0 || app != 0))
        return stet__fail(STET_ENOTDB,
                          "%s is an SQLite database of something else; give stet a file of its own",
                          st->path);
    if (app == LITE_APPLICATION_ID && version > LITE_VERSION)
        return stet__fail(STET_ENEWER,
                          "store %s has format %d and this stet knows up to %d; use the newer stet",
                          st->path, (int)version, LITE_VERSION);
    return STET_OK;
}

static int
sqlite_instance(sqlite_store *st, sqlite_conn *c)
{
    int           err = STET_OK;
    int           rc;
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, c, LITE_SQL_INSTANCE, &err);

    if (stmt == NULL)
        return err;
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && sqlite3_column_bytes(stmt, 0) == 16)
        memcpy(st->instance, sqlite3_column_blob(stmt, 0), 16);
    else if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        err = stet__fail(STET_ECORRUPT, "store %s: its table %smeta is damaged; restore a backup",
                         st->path, st->prefix);
    else
        err = stet__sqlite_fail(st, c->db, rc, "read it");
    sqlite3_reset(stmt);
    return err;
}

static int
sqlite_create(sqlite_store *st, sqlite_conn *c)
{
    char numbers[96];
    int  err;

    if ((err = stet__sqlite_exec(st, c, "BEGIN IMMEDIATE", "begin to write")) != STET_OK)
        return err;
    sqlite3_snprintf((int)sizeof numbers, numbers,
                     "PRAGMA application_id=%d;PRAGMA user_version=%d", LITE_APPLICATION_ID,
                     LITE_VERSION);
    /* Asked again: another process may have made it its own since. */
    if ((err = stet__sqlite_identify(st, c)) != STET_OK ||
        (err = stet__sqlite_exec(st, c, sqlite_tables, "make its tables")) != STET_OK ||
        (err = stet__sqlite_exec(st, c, numbers, "mark it as a store")) != STET_OK ||
        (err = stet__sqlite_exec(st, c, "COMMIT", "make its tables")) != STET_OK) {
        if (!sqlite3_get_autocommit(c->db))
            sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return err;
}

int
stet__sqlite_prepare_file(sqlite_store *st, sqlite_conn *c)
{
    sqlite3_stmt *stmt = NULL;
    bool          is_there;
    char          sql[128];
    int           err, rc;

    /* page_size counts only while the file is empty. 8 KiB commits large batches 8 % faster than 4 KiB, and
     * small ones, where every page that is touched is flushed, 10 to 20 % slower. */
    if ((err = stet__sqlite_exec(st, c, "PRAGMA page_size=4096;PRAGMA journal_mode=WAL",
                                 "write to it")) != STET_OK)
        return err;
    sqlite3_snprintf((int)sizeof sql, sql, "SELECT 1 FROM sqlite_schema WHERE name='%scommitters'",
                     st->prefix);
    if ((rc = sqlite3_prepare_v2(c->db, sql, -1, &stmt, NULL)) == SQLITE_OK)
        rc = sqlite3_step(stmt);
    is_there = rc == SQLITE_ROW;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, c->db, rc, "read it");
    sqlite3_finalize(stmt);
    if (err != STET_OK || (!is_there && (err = sqlite_create(st, c)) != STET_OK))
        return err;
    return sqlite_instance(st, c);
}
