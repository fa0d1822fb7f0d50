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
 *   NULL  nobody, till somebody names it  N > 0  the holder of session N
 *   0     anybody, from `due` on          -1-S   nobody for now, its status is S
 * The one index over it finds due work, the runs of a session, and idle runs by status. It has no
 * entries for runs that ended or are suspended, so it stays as small as the work at hand. So does the index over lanes: a run has
 * one only while it stands in it.
 *
 * runs, timers and values_ are projections of facts, inbox and base: a file that lost one of them is not
 * opened, except to be mended (option repair=1). Then the table is made again, empty, together with a mark
 * (a value in the space "mend") that keeps everybody else out until the engine has rebuilt what belongs into
 * it and removes the mark. A lost index is made again by whoever opens the file.
 *
 * So are sessions and committers, if nobody else has the file open: they are about open handles only. A
 * handle that lives may have a commit in doubt, and without its row in committers a repeat would be applied
 * twice; its commits fail while the table is missing, and nobody makes it anew under it. Sessions that may
 * have left something undone come back as dead ones, so that their runs are given on in the usual way.
 *
 * stretches and stretch_keys are made again from runs, also in a file of version 1, which had none. Not under
 * a handle that lives: one of an older stet would go on writing runs and leave them out.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite.h"

#define LITE_APPLICATION_ID 0x73746574 /* "stet" */
#define LITE_VERSION        2 /* 2: stretches */

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
    "CREATE TABLE IF NOT EXISTS $base(space TEXT, key BLOB, version INTEGER, data BLOB,"
    " run BLOB, rev INTEGER, PRIMARY KEY(space, key)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS $sessions(session INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB,"
    " token BLOB, started INTEGER, seen INTEGER, lease_until INTEGER, closed INTEGER, info BLOB);"
    /* With row numbers, because only such a table keeps up to a page of bytes in the row itself. */
    "CREATE TABLE IF NOT EXISTS $committers(id BLOB PRIMARY KEY, last_seq INTEGER, at INTEGER,"
    " outcomes BLOB);"
    "CREATE TABLE IF NOT EXISTS $stretches(what TEXT, stretch INTEGER, PRIMARY KEY(what, stretch))"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS $stretch_keys(lot INTEGER PRIMARY KEY, n INTEGER, data BLOB);"
    "CREATE INDEX IF NOT EXISTS $stretch_small ON $stretch_keys(lot) WHERE " LITE_STRETCH_IS_SMALL ";"
    "INSERT OR IGNORE INTO $meta(k, v) VALUES('instance', randomblob(16)), ('base', 1);";

typedef struct sqlite_part {
    const char *name;
    enum { PART_SOURCE, PART_PROJECTION, PART_BASE, PART_INDEX, PART_LIFE, PART_STRETCH } kind;
} sqlite_part;

static const sqlite_part sqlite_parts[] = {
    { "meta", PART_SOURCE },       { "facts", PART_SOURCE },      { "inbox", PART_SOURCE },
    { "runs", PART_PROJECTION },   { "timers", PART_PROJECTION }, { "values_", PART_PROJECTION },
    { "base", PART_BASE },         { "runs_work", PART_INDEX },   { "runs_lane", PART_INDEX },
    { "timers_run", PART_INDEX },  { "sessions", PART_LIFE },     { "committers", PART_LIFE },
    { "stretches", PART_STRETCH }, { "stretch_keys", PART_STRETCH }, { "stretch_small", PART_INDEX },
};
#define SQLITE_PARTS    (sizeof sqlite_parts / sizeof *sqlite_parts)
#define SQLITE_RUNS     3
#define SQLITE_SESSIONS 10
#define SQLITE_STRETCH  (3u << 12)
#define SQLITE_SMALL    14

bool
stet__sqlite_is_part(const sqlite_store *st, const char *name)
{
    size_t len = strlen(st->prefix), i;

    if (name == NULL || strncmp(name, st->prefix, len) != 0)
        return false;
    for (i = 0; i < SQLITE_PARTS; i++)
        if (sqlite3_stricmp(name + len, sqlite_parts[i].name) == 0)
            return true;
    return false;
}

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

/* Which parts are there, bit by bit. */
static int
sqlite_look(sqlite_store *st, sqlite_conn *c, uint32_t *found)
{
    sqlite3_stmt *stmt = NULL;
    int           err = STET_OK;
    int           rc;

    *found = 0;
    rc = sqlite3_prepare_v2(c->db, "SELECT 1 FROM sqlite_schema WHERE name=?1||?2", -1, &stmt, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < SQLITE_PARTS; i++) {
        sqlite_bind_text(stmt, 1, st->prefix);
        sqlite_bind_text(stmt, 2, sqlite_parts[i].name);
        if ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
            *found |= 1u << i;
        if (rc == SQLITE_ROW || rc == SQLITE_DONE)
            rc = sqlite3_reset(stmt);
    }
    if (rc != SQLITE_OK)
        err = stet__sqlite_fail(st, c->db, rc, "read it");
    sqlite3_finalize(stmt);
    return err;
}

/* One number from a statement about our own tables; nothing found: 0. */
static int
sqlite_count(sqlite_store *st, sqlite_conn *c, const char *what, const char *table, int64_t *out)
{
    char sql[192];

    sqlite3_snprintf((int)sizeof sql, sql, "SELECT count(*) FROM %s%s WHERE %s", st->prefix, table,
                     what);
    return sqlite_ask(st, c, sql, out);
}

/* Lost projections are made again, empty, and marked. */
static int
sqlite_mark(sqlite_store *st, sqlite_conn *c, uint32_t found)
{
    char sql[192];
    int  err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < SQLITE_PARTS; i++) {
        if ((found >> i & 1u) != 0 || sqlite_parts[i].kind != PART_PROJECTION)
            continue;
        sqlite3_snprintf((int)sizeof sql, sql,
                         "INSERT OR REPLACE INTO %svalues_(space,key,version,data) "
                         "VALUES('mend',CAST('%s' AS BLOB),1,x'')",
                         st->prefix, sqlite_parts[i].name);
        err = stet__sqlite_exec(st, c, sql, "mark a lost table");
    }
    return err;
}

/* Numbers of sessions are never used twice, so they go on above all that may have been. */
static int
sqlite_number_sessions(sqlite_store *st, sqlite_conn *c)
{
    char sql[256];

    sqlite3_snprintf((int)sizeof sql, sql,
                     "INSERT INTO sqlite_sequence(name,seq) SELECT '%ssessions',"
                     "max(coalesce(max(work),0),CAST(strftime('%%s','now') AS INTEGER)) FROM %sruns",
                     st->prefix, st->prefix);
    return stet__sqlite_exec(st, c, sql, "number its sessions");
}

/* The file its sessions have their slots in; -1: there is none. It is not open yet. */
static int
sqlite_slots_open(sqlite_store *st)
{
    stet__buf b;
    int       fd = -1;

    stet__buf_init(&b, st->base.alloc);
    stet__buf_printf(&b, "%s-live", st->full_path);
    if (st->prefix[0] != '\0')
        stet__buf_printf(&b, "-%.*s", (int)strlen(st->prefix) - 1, st->prefix);
    stet__buf_byte(&b, 0);
    if (!b.failed)
        fd = stet__sqlite_fd((const char *)b.data);
    stet__buf_free(&b);
    return fd;
}

/* A dead session; 0: with a number of its own. */
static int
sqlite_bury(sqlite_store *st, sqlite_conn *c, uint64_t session)
{
    char    sql[320], number[24] = "NULL";
    int64_t now_ms = stet__sqlite_now(st);

    if (session != 0)
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)session);
    (void)snprintf(sql, sizeof sql,
                   "INSERT OR IGNORE INTO $sessions(session,id,token,started,seen,lease_until,closed,info) "
                   "VALUES(%s,zeroblob(16),x'',%lld,%lld,%lld,1,x'')",
                   number, (long long)now_ms, (long long)now_ms, (long long)now_ms);
    return stet__sqlite_exec(st, c, sql, "restore its sessions");
}

/* Sessions that have runs, and those whose crumbs are left. With neither rows nor crumbs nobody knows who
 * executed what: one session without crumbs stands for all that may have been. */
static int
sqlite_restore_sessions(sqlite_store *st, sqlite_conn *c, bool has_lost_runs)
{
    char        sql[384];
    int64_t     now_ms = stet__sqlite_now(st);
    sqlite_slot head;
    size_t      n, n_left = 0;
    int         err, fd;

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO $sessions(session,id,token,started,seen,lease_until,closed,info) "
                   "SELECT DISTINCT work,zeroblob(16),x'',%lld,%lld,%lld,1,x'' FROM $runs WHERE work>0",
                   (long long)now_ms, (long long)now_ms, (long long)now_ms);
    if ((err = stet__sqlite_exec(st, c, sql, "restore its sessions")) != STET_OK)
        return err;
    fd = sqlite_slots_open(st);
    n = fd >= 0 ? stet__sqlite_slot_count(fd) : 0;
    for (size_t i = 0; err == STET_OK && i < n; i++) {
        if (!stet__sqlite_slot_read(fd, i, &head) || head.session == 0 || head.session > INT64_MAX / 2 ||
            memcmp(head.store, st->instance, sizeof st->instance) != 0)
            continue;
        err = sqlite_bury(st, c, head.session);
        n_left++;
    }
    if (fd >= 0)
        close(fd);
    if (err == STET_OK && has_lost_runs && n_left == 0)
        err = sqlite_bury(st, c, 0);
    return err;
}

static int
sqlite_remake_sessions(sqlite_store *st, sqlite_conn *c, uint32_t found)
{
    int err;

    if ((err = sqlite_instance(st, c)) != STET_OK || (err = sqlite_number_sessions(st, c)) != STET_OK)
        return err;
    return sqlite_restore_sessions(st, c, (found >> SQLITE_RUNS & 1u) == 0);
}

static int
sqlite_remake_stretches(sqlite_store *st, sqlite_conn *c)
{
    int err = stet__sqlite_exec(st, c, "DELETE FROM $stretches;DELETE FROM $stretch_keys", "make its tables");

    return err == STET_OK ? stet__sqlite_stretch_fill(st, c) : err;
}

static int
sqlite_create(sqlite_store *st, sqlite_conn *c)
{
    char     numbers[96];
    uint32_t found = 0;
    int      err;

    if ((err = stet__sqlite_exec(st, c, "BEGIN IMMEDIATE", "begin to write")) != STET_OK)
        return err;
    sqlite3_snprintf((int)sizeof numbers, numbers,
                     "PRAGMA application_id=%d;PRAGMA user_version=%d", LITE_APPLICATION_ID,
                     LITE_VERSION);
    /* Asked again: another process may have made it its own since. */
    if ((err = stet__sqlite_identify(st, c)) != STET_OK ||
        (err = sqlite_look(st, c, &found)) != STET_OK ||
        (err = stet__sqlite_exec(st, c, sqlite_tables, "make its tables")) != STET_OK ||
        (found != 0 && (err = sqlite_mark(st, c, found)) != STET_OK) ||
        (found != 0 && (found >> SQLITE_SESSIONS & 1u) == 0 &&
         (err = sqlite_remake_sessions(st, c, found)) != STET_OK) ||
        (found != 0 && (found & SQLITE_STRETCH) != SQLITE_STRETCH &&
         (err = sqlite_remake_stretches(st, c)) != STET_OK) ||
        (err = stet__sqlite_exec(st, c, numbers, "mark it as a store")) != STET_OK ||
        (err = stet__sqlite_exec(st, c, "COMMIT", "make its tables")) != STET_OK) {
        if (!sqlite3_get_autocommit(c->db))
            sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return err;
}

/* May a file with these parts be opened? Something of it is there. */
static int
sqlite_check_parts(sqlite_store *st, sqlite_conn *c, uint32_t found)
{
    int64_t     n = 0;
    const char *lost = NULL, *life = NULL;
    char        what[96] = "rebuilding its tables was interrupted";
    int         err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < SQLITE_PARTS; i++) {
        const sqlite_part *part = &sqlite_parts[i];
        bool               is_gone = (found >> i & 1u) == 0;

        if (is_gone && part->kind == PART_BASE) /* files made before there were baselines have none */
            err = sqlite_count(st, c, "k='base'", "meta", &n);
        if (err == STET_OK && is_gone && (part->kind == PART_SOURCE || (part->kind == PART_BASE && n > 0)))
            return stet__fail(STET_ECORRUPT,
                              "store %s: its table %s%s is missing and cannot be rebuilt; restore a backup",
                              st->path, st->prefix, part->name);
        if (is_gone && part->kind == PART_PROJECTION && lost == NULL)
            lost = part->name;
        if (is_gone && (part->kind == PART_LIFE || part->kind == PART_STRETCH) && life == NULL)
            life = part->name;
        if (err == STET_OK && !is_gone && lost == NULL && strcmp(part->name, "values_") == 0) {
            err = sqlite_count(st, c, "space='mend'", "values_", &n);
            lost = n > 0 ? "" : NULL;
        }
    }
    if (err != STET_OK || (lost == NULL && life == NULL))
        return err;
    if (lost == NULL || lost[0] != '\0')
        sqlite3_snprintf((int)sizeof what, what, "its table %s%s is missing", st->prefix,
                         lost != NULL ? lost : life);
    if (lost != NULL && !st->may_mend)
        return stet__fail(STET_ECORRUPT,
                          "store %s: %s; stop all workers and run `stet verify --repair`, which rebuilds it "
                          "from the facts",
                          st->path, what);
    if (!stet__sqlite_live_is_alone(&st->queue))
        return stet__fail(STET_EBUSY,
                          "store %s: %s, and other processes have the file open; stop them before it is "
                          "%s",
                          st->path, what, lost != NULL ? "rebuilt" : "made again");
    return STET_OK;
}

int
stet__sqlite_is_whole(sqlite_store *st, sqlite_conn *c)
{
    uint32_t found;
    int      err = sqlite_look(st, c, &found);

    if (err != STET_OK)
        return err;
    if (found == 0)
        return stet__fail(STET_ENOTDB, "%s has no store in it, or one with another prefix", st->path);
    for (size_t i = 0; i < SQLITE_PARTS; i++)
        if ((found >> i & 1u) == 0 && sqlite_parts[i].kind != PART_STRETCH && i != SQLITE_SMALL)
            return stet__fail(STET_ECORRUPT, "store %s: its table %s%s is missing; open it without readonly=1 first",
                              st->path, st->prefix, sqlite_parts[i].name);
    st->has_stretches = (found & SQLITE_STRETCH) == SQLITE_STRETCH;
    return sqlite_instance(st, c);
}

int
stet__sqlite_prepare_file(sqlite_store *st, sqlite_conn *c)
{
    uint32_t found;
    int      err;

    /* page_size counts only while the file is empty. 8 KiB commits large batches 8 % faster than 4 KiB, and
     * small ones, where every page that is touched is flushed, 10 to 20 % slower. */
    if ((err = stet__sqlite_exec(st, c, "PRAGMA page_size=4096;PRAGMA journal_mode=WAL",
                                 "write to it")) != STET_OK ||
        (err = sqlite_look(st, c, &found)) != STET_OK ||
        (found != 0 && (err = sqlite_check_parts(st, c, found)) != STET_OK) ||
        (found != (1u << SQLITE_PARTS) - 1 && (err = sqlite_create(st, c)) != STET_OK))
        return err;
    st->has_stretches = true;
    return sqlite_instance(st, c);
}
