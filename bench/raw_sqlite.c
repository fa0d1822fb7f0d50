/* SQLite by hand (see raw.h). It owns one connection and its prepared statements.
 *
 * Runs are numbered from 1 across all measurements on one file, so each finds fresh rows. A
 * statement is reset right after its step: no read or write transaction outlives a commit.
 */
#include "raw.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RAW_INPUT  "{\"order\":7,\"amount\":1999,\"card\":\"4242\"}"
#define RAW_RESULT "{\"charge\":\"ch_0123456789\"}"
#define RAW_QUEUE  "default"

typedef enum raw_status { RAW_PENDING, RAW_RUNNING, RAW_COMPLETED } raw_status;
typedef enum raw_kind { RAW_KIND_STARTED, RAW_KIND_STEP, RAW_KIND_COMPLETED } raw_kind;

typedef enum raw_stmt {
    RAW_BEGIN,
    RAW_COMMIT,
    RAW_RUN_INSERT,
    RAW_RUN_UPDATE,
    RAW_RUN_FINISH,
    RAW_JOURNAL_INSERT,
    RAW_READY_INSERT,
    RAW_READY_DELETE,
    RAW_STATE_UPDATE,
    RAW_STMTS
} raw_stmt;

struct raw_db {
    sqlite3      *db;
    sqlite3_stmt *stmts[RAW_STMTS];
    int64_t       runs;   /* the last run's number */
    int64_t       now_ms; /* stands for a clock that is read once a commit */
};

static const char *const raw_schema =
    "CREATE TABLE runs (run INTEGER PRIMARY KEY, name TEXT NOT NULL, input BLOB, status INTEGER NOT"
    " NULL, revision INTEGER NOT NULL, result BLOB, created INTEGER NOT NULL, updated INTEGER NOT "
    "NULL);"
    "CREATE TABLE journal (run INTEGER, revision INTEGER, kind INTEGER NOT NULL, name TEXT, data "
    "BLOB,"
    " time INTEGER NOT NULL, PRIMARY KEY (run, revision)) WITHOUT ROWID;"
    "CREATE TABLE ready (queue TEXT, priority INTEGER, run INTEGER, PRIMARY KEY (queue, priority, "
    "run))"
    " WITHOUT ROWID;"
    "CREATE TABLE state (key INTEGER PRIMARY KEY, value INTEGER NOT NULL, version INTEGER NOT "
    "NULL);";

static const char *const raw_sql[RAW_STMTS] = {
    [RAW_BEGIN] = "BEGIN IMMEDIATE",
    [RAW_COMMIT] = "COMMIT",
    [RAW_RUN_INSERT] = "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6, ?6)",
    [RAW_RUN_UPDATE] = "UPDATE runs SET status = ?2, revision = ?3, updated = ?4 WHERE run = ?1",
    [RAW_RUN_FINISH] =
        "UPDATE runs SET status = ?2, revision = ?3, updated = ?4, result = ?5 WHERE run = ?1",
    [RAW_JOURNAL_INSERT] = "INSERT INTO journal VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [RAW_READY_INSERT] = "INSERT INTO ready VALUES (?1, ?2, ?3)",
    [RAW_READY_DELETE] = "DELETE FROM ready WHERE queue = ?1 AND priority = ?2 AND run = ?3",
    [RAW_STATE_UPDATE] = "UPDATE state SET value = value + 1, version = version + 1 WHERE key = ?1",
};

/* ---- statements ----------------------------------------------------------------------------- */

static void
raw_must(raw_db *r, int code, int want, const char *what)
{
    if (code == want)
        return;
    fprintf(stderr, "raw sqlite: %s: %s\n", what, sqlite3_errmsg(r->db));
    exit(1);
}

static void
raw_exec(raw_db *r, const char *sql)
{
    raw_must(r, sqlite3_exec(r->db, sql, NULL, NULL, NULL), SQLITE_OK, sql);
}

static void
raw_int(raw_db *r, raw_stmt s, int at, int64_t value)
{
    raw_must(r, sqlite3_bind_int64(r->stmts[s], at, value), SQLITE_OK, raw_sql[s]);
}

/* Only constants and literals are bound, so SQLite need not copy them. */
static void
raw_text(raw_db *r, raw_stmt s, int at, const char *value)
{
    raw_must(r, sqlite3_bind_text(r->stmts[s], at, value, (int)strlen(value), SQLITE_STATIC),
             SQLITE_OK, raw_sql[s]);
}

static void
raw_blob(raw_db *r, raw_stmt s, int at, const char *value)
{
    raw_must(r, sqlite3_bind_blob(r->stmts[s], at, value, (int)strlen(value), SQLITE_STATIC),
             SQLITE_OK, raw_sql[s]);
}

static void
raw_step(raw_db *r, raw_stmt s)
{
    raw_must(r, sqlite3_step(r->stmts[s]), SQLITE_DONE, raw_sql[s]);
    raw_must(r, sqlite3_reset(r->stmts[s]), SQLITE_OK, raw_sql[s]);
}

static void
raw_begin(raw_db *r)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    r->now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    raw_step(r, RAW_BEGIN);
}

static double
raw_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int64_t
raw_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- what a run writes ---------------------------------------------------------------------- */

static void
raw_journal(raw_db *r, int64_t run, int64_t revision, raw_kind kind, const char *name,
            const char *data)
{
    raw_int(r, RAW_JOURNAL_INSERT, 1, run);
    raw_int(r, RAW_JOURNAL_INSERT, 2, revision);
    raw_int(r, RAW_JOURNAL_INSERT, 3, kind);
    raw_text(r, RAW_JOURNAL_INSERT, 4, name);
    raw_blob(r, RAW_JOURNAL_INSERT, 5, data);
    raw_int(r, RAW_JOURNAL_INSERT, 6, r->now_ms);
    raw_step(r, RAW_JOURNAL_INSERT);
}

static void
raw_run_insert(raw_db *r, int64_t run, raw_status status)
{
    raw_int(r, RAW_RUN_INSERT, 1, run);
    raw_text(r, RAW_RUN_INSERT, 2, "orders.checkout");
    raw_blob(r, RAW_RUN_INSERT, 3, RAW_INPUT);
    raw_int(r, RAW_RUN_INSERT, 4, status);
    raw_int(r, RAW_RUN_INSERT, 5, 1);
    raw_int(r, RAW_RUN_INSERT, 6, r->now_ms);
    raw_step(r, RAW_RUN_INSERT);
}

static void
raw_run_update(raw_db *r, int64_t run, int64_t revision)
{
    raw_int(r, RAW_RUN_UPDATE, 1, run);
    raw_int(r, RAW_RUN_UPDATE, 2, RAW_RUNNING);
    raw_int(r, RAW_RUN_UPDATE, 3, revision);
    raw_int(r, RAW_RUN_UPDATE, 4, r->now_ms);
    raw_step(r, RAW_RUN_UPDATE);
}

static void
raw_run_finish(raw_db *r, int64_t run, int64_t revision)
{
    raw_journal(r, run, revision, RAW_KIND_COMPLETED, "return", RAW_RESULT);
    raw_int(r, RAW_RUN_FINISH, 1, run);
    raw_int(r, RAW_RUN_FINISH, 2, RAW_COMPLETED);
    raw_int(r, RAW_RUN_FINISH, 3, revision);
    raw_int(r, RAW_RUN_FINISH, 4, r->now_ms);
    raw_blob(r, RAW_RUN_FINISH, 5, RAW_RESULT);
    raw_step(r, RAW_RUN_FINISH);
}

static void
raw_ready(raw_db *r, raw_stmt insert_or_delete, int64_t run)
{
    raw_text(r, insert_or_delete, 1, RAW_QUEUE);
    raw_int(r, insert_or_delete, 2, 0);
    raw_int(r, insert_or_delete, 3, run);
    raw_step(r, insert_or_delete);
}

static void
raw_start(raw_db *r, int64_t run)
{
    raw_run_insert(r, run, RAW_PENDING);
    raw_journal(r, run, 1, RAW_KIND_STARTED, "orders.checkout", RAW_INPUT);
    raw_ready(r, RAW_READY_INSERT, run);
}

static void
raw_take_step1(raw_db *r, int64_t run)
{
    raw_ready(r, RAW_READY_DELETE, run);
    raw_journal(r, run, 2, RAW_KIND_STEP, "reserve", RAW_RESULT);
    raw_run_update(r, run, 2);
}

static void
raw_step2(raw_db *r, int64_t run)
{
    raw_journal(r, run, 3, RAW_KIND_STEP, "charge", RAW_RESULT);
    raw_run_update(r, run, 3);
}

static void
raw_step3_finish(raw_db *r, int64_t run)
{
    raw_journal(r, run, 4, RAW_KIND_STEP, "ship", RAW_RESULT);
    raw_run_finish(r, run, 5);
}

static void
raw_take_finish(raw_db *r, int64_t run)
{
    raw_ready(r, RAW_READY_DELETE, run);
    raw_run_finish(r, run, 2);
}

/* ---- measuring ------------------------------------------------------------------------------ */

typedef void raw_phase(raw_db *r, int64_t run);

/* Each lot of runs goes through all phases, one commit a phase. */
static double
raw_phases(raw_db *r, int64_t batch, int64_t total, raw_phase *const *phases, size_t n)
{
    double start_s = raw_now_s();

    for (int64_t done = 0; done < total; done += batch) {
        int64_t lot = raw_min(batch, total - done);

        for (size_t i = 0; i < n; i++) {
            raw_begin(r);
            for (int64_t run = r->runs + 1; run <= r->runs + lot; run++)
                phases[i](r, run);
            raw_step(r, RAW_COMMIT);
        }
        r->runs += lot;
    }
    return raw_now_s() - start_s;
}

double
raw_steps3(raw_db *r, int64_t batch, int64_t total)
{
    static raw_phase *const phases[] = { raw_start, raw_take_step1, raw_step2, raw_step3_finish };

    return raw_phases(r, batch, total, phases, sizeof phases / sizeof *phases);
}

double
raw_run0(raw_db *r, int64_t batch, int64_t total)
{
    static raw_phase *const phases[] = { raw_start, raw_take_finish };

    return raw_phases(r, batch, total, phases, sizeof phases / sizeof *phases);
}

double
raw_wake(raw_db *r, int64_t batch, int64_t total)
{
    static raw_phase *const waits[] = { raw_start, raw_take_step1 };
    double                  start_s;
    int64_t                 first = r->runs + 1;

    (void)raw_phases(r, batch, total, waits, sizeof waits / sizeof *waits);
    start_s = raw_now_s();
    for (int64_t done = 0; done < total; done += batch) {
        int64_t lot = raw_min(batch, total - done);

        raw_begin(r);
        for (int64_t run = first + done; run < first + done + lot; run++) {
            raw_step2(r, run);
            raw_ready(r, RAW_READY_INSERT, run);
        }
        raw_step(r, RAW_COMMIT);
    }
    return raw_now_s() - start_s;
}

double
raw_commits_each(raw_db *r, size_t n, double *seconds)
{
    int64_t run = ++r->runs;
    double  start_s, last_s, now_s;

    raw_begin(r);
    raw_run_insert(r, run, RAW_RUNNING);
    raw_step(r, RAW_COMMIT);

    start_s = last_s = raw_now_s();
    for (size_t i = 0; i < n; i++) {
        raw_begin(r);
        raw_journal(r, run, (int64_t)i + 2, RAW_KIND_STEP, "charge", RAW_RESULT);
        raw_run_update(r, run, (int64_t)i + 2);
        raw_step(r, RAW_COMMIT);
        now_s = raw_now_s();
        seconds[i] = now_s - last_s;
        last_s = now_s;
    }
    return last_s - start_s;
}

/* The keys exist before the clock starts, with version 0. */
static void
raw_state_fill(raw_db *r, int64_t keys)
{
    char sql[200];

    snprintf(
        sql, sizeof sql,
        "WITH RECURSIVE k(key) AS (VALUES(0) UNION ALL SELECT key + 1 FROM k WHERE key + 1 < %lld)"
        " INSERT OR IGNORE INTO state SELECT key, 0, 0 FROM k",
        (long long)keys);
    raw_exec(r, sql);
}

double
raw_increments(raw_db *r, int64_t keys, int64_t batch, int64_t total)
{
    double start_s;

    raw_state_fill(r, keys);
    start_s = raw_now_s();
    for (int64_t done = 0; done < total;) {
        raw_begin(r);
        for (int64_t end = raw_min(done + batch, total); done < end; done++) {
            int64_t run = ++r->runs;

            raw_int(r, RAW_STATE_UPDATE, 1, done % keys);
            raw_step(r, RAW_STATE_UPDATE);
            raw_journal(r, run, 1, RAW_KIND_COMPLETED, "counter.add", RAW_RESULT);
            raw_run_insert(r, run, RAW_COMPLETED);
        }
        raw_step(r, RAW_COMMIT);
    }
    return raw_now_s() - start_s;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void
raw_remove(const char *path)
{
    static const char *const endings[] = { "", "-wal", "-shm" };
    char                     name[4096];

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(name, sizeof name, "%s%s", path, endings[i]);
        unlink(name);
    }
}

raw_db *
raw_open(const char *path)
{
    raw_db *r = calloc(1, sizeof *r);

    if (r == NULL) {
        fprintf(stderr, "raw sqlite: out of memory\n");
        exit(1);
    }
    raw_remove(path);
    raw_must(r, sqlite3_open(path, &r->db), SQLITE_OK, path);
    raw_exec(r, "PRAGMA journal_mode = WAL");
    raw_exec(r, "PRAGMA synchronous = FULL");
    raw_exec(r, raw_schema);
    for (int i = 0; i < RAW_STMTS; i++)
        raw_must(r,
                 sqlite3_prepare_v3(r->db, raw_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &r->stmts[i],
                                    NULL),
                 SQLITE_OK, raw_sql[i]);
    return r;
}

void
raw_close(raw_db *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < RAW_STMTS; i++)
        sqlite3_finalize(r->stmts[i]);
    sqlite3_close(r->db);
    free(r);
}
