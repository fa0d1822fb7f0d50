/* PostgreSQL by hand (see raw_postgres.h). */
#include "raw_postgres.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RAW_INPUT  "{\"order\":7,\"amount\":1999,\"card\":\"4242\"}"
#define RAW_RESULT "{\"charge\":\"ch_0123456789\"}"

typedef enum raw_stmt {
    RAW_BEGIN,
    RAW_COMMIT,
    RAW_RUN_INSERT,
    RAW_RUN_UPDATE,
    RAW_RUN_FINISH,
    RAW_JOURNAL_INSERT,
    RAW_READY_INSERT,
    RAW_READY_DELETE,
    RAW_READY_TAKE,
    RAW_STMTS
} raw_stmt;

static const struct {
    const char *name, *sql;
} raw_sql[RAW_STMTS] = {
    [RAW_BEGIN] = { "b", "BEGIN" },
    [RAW_COMMIT] = { "c", "COMMIT" },
    [RAW_RUN_INSERT] = { "ri", "INSERT INTO raw.runs VALUES($1,$2,$3,$4,$5,NULL,$6,$6)" },
    [RAW_RUN_UPDATE] = { "ru",
                         "UPDATE raw.runs SET status=$2,revision=$3,updated=$4 WHERE run=$1" },
    [RAW_RUN_FINISH] = { "rf", "UPDATE raw.runs SET status=$2,revision=$3,updated=$4,result=$5 "
                               "WHERE run=$1" },
    [RAW_JOURNAL_INSERT] = { "ji", "INSERT INTO raw.journal VALUES($1,$2,$3,$4,$5,$6)" },
    [RAW_READY_INSERT] = { "qi", "INSERT INTO raw.ready VALUES($1,$2,$3)" },
    [RAW_READY_DELETE] = { "qd",
                           "DELETE FROM raw.ready WHERE queue=$1 AND priority=$2 AND run=$3" },
    [RAW_READY_TAKE] = { "qt", "DELETE FROM raw.ready WHERE queue=$1 AND (priority,run)=(SELECT "
                               "priority,run FROM raw.ready WHERE queue=$1 ORDER BY priority,run "
                               "LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING run" },
};

static const char *const raw_schema =
    "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw;"
    "CREATE TABLE raw.runs(run bigint PRIMARY KEY, name text NOT NULL, input bytea, status int NOT "
    "NULL,"
    " revision bigint NOT NULL, result bytea, created bigint NOT NULL, updated bigint NOT NULL)"
    " WITH (fillfactor=70);"
    "CREATE TABLE raw.journal(run bigint, revision bigint, kind int NOT NULL, name text, data "
    "bytea,"
    " time bigint NOT NULL, PRIMARY KEY(run,revision));"
    "CREATE TABLE raw.ready(queue text, priority int, run bigint, PRIMARY "
    "KEY(queue,priority,run));";

struct raw_pg {
    PGconn *db;
    int64_t runs, now_ms;
    int     sent; /* statements on their way */
};

/* ---- statements ------------------------------------------------------------------------------ */

static void
raw_must(raw_pg *r, int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "raw postgres: %s: %s\n", what, PQerrorMessage(r->db));
    exit(1);
}

typedef struct raw_args {
    int         n;
    char        numbers[8][8];
    const char *values[8];
    int         lengths[8], formats[8];
} raw_args;

static void
raw_number(raw_args *a, int64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        a->numbers[a->n][i] = (char)((uint64_t)v >> (8 * (bytes - 1 - i)));
    a->values[a->n] = a->numbers[a->n];
    a->lengths[a->n] = bytes;
    a->formats[a->n++] = 1;
}

static void
raw_bytes(raw_args *a, const char *text)
{
    a->values[a->n] = text;
    a->lengths[a->n] = (int)strlen(text);
    a->formats[a->n++] = 1;
}

static void
raw_send(raw_pg *r, raw_stmt s, const raw_args *a)
{
    static const raw_args none;

    a = a != NULL ? a : &none;
    raw_must(
        r, PQsendQueryPrepared(r->db, raw_sql[s].name, a->n, a->values, a->lengths, a->formats, 1),
        raw_sql[s].sql);
    r->sent++;
}

/* All answers of the pipeline. */
static void
raw_sync(raw_pg *r)
{
    raw_must(r, PQpipelineSync(r->db), "sync");
    for (; r->sent > 0; r->sent--) {
        PGresult *res = PQgetResult(r->db);

        raw_must(r,
                 PQresultStatus(res) == PGRES_COMMAND_OK || PQresultStatus(res) == PGRES_TUPLES_OK,
                 "a statement");
        PQclear(res);
        raw_must(r, (res = PQgetResult(r->db)) == NULL, "one answer a statement");
    }
    PQclear(PQgetResult(r->db)); /* of the sync */
}

/* ---- what a run writes ----------------------------------------------------------------------- */

static void
raw_journal(raw_pg *r, int64_t run, int64_t revision, int kind, const char *name, const char *data)
{
    raw_args a = { 0 };

    raw_number(&a, run, 8);
    raw_number(&a, revision, 8);
    raw_number(&a, kind, 4);
    raw_bytes(&a, name);
    raw_bytes(&a, data);
    raw_number(&a, r->now_ms, 8);
    raw_send(r, RAW_JOURNAL_INSERT, &a);
}

static void
raw_ready(raw_pg *r, raw_stmt which, int64_t run)
{
    raw_args a = { 0 };

    raw_bytes(&a, "default");
    raw_number(&a, 0, 4);
    raw_number(&a, run, 8);
    raw_send(r, which, &a);
}

static void
raw_update(raw_pg *r, int64_t run, int status, int64_t revision, const char *result)
{
    raw_args a = { 0 };

    raw_number(&a, run, 8);
    raw_number(&a, status, 4);
    raw_number(&a, revision, 8);
    raw_number(&a, r->now_ms, 8);
    if (result != NULL)
        raw_bytes(&a, result);
    raw_send(r, result != NULL ? RAW_RUN_FINISH : RAW_RUN_UPDATE, &a);
}

static void
raw_start(raw_pg *r, int64_t run)
{
    raw_args a = { 0 };

    raw_number(&a, run, 8);
    raw_bytes(&a, "orders.checkout");
    raw_bytes(&a, RAW_INPUT);
    raw_number(&a, 0, 4);
    raw_number(&a, 1, 8);
    raw_number(&a, r->now_ms, 8);
    raw_send(r, RAW_RUN_INSERT, &a);
    raw_journal(r, run, 1, 0, "orders.checkout", RAW_INPUT);
    raw_ready(r, RAW_READY_INSERT, run);
}

static void
raw_take_step1(raw_pg *r, int64_t run)
{
    raw_ready(r, RAW_READY_DELETE, run);
    raw_journal(r, run, 2, 1, "reserve", RAW_RESULT);
    raw_update(r, run, 1, 2, NULL);
}

static void
raw_step2(raw_pg *r, int64_t run)
{
    raw_journal(r, run, 3, 1, "charge", RAW_RESULT);
    raw_update(r, run, 1, 3, NULL);
}

static void
raw_step3_finish(raw_pg *r, int64_t run)
{
    raw_journal(r, run, 4, 1, "ship", RAW_RESULT);
    raw_journal(r, run, 5, 2, "return", RAW_RESULT);
    raw_update(r, run, 2, 5, RAW_RESULT);
}

static double
raw_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double
raw_pg_steps3(raw_pg *r, int64_t batch, int64_t total)
{
    static void (*const phases[])(raw_pg *, int64_t) = { raw_start, raw_take_step1, raw_step2,
                                                         raw_step3_finish };
    double start_s = raw_now_s();

    for (int64_t done = 0; done < total; done += batch) {
        int64_t lot = batch < total - done ? batch : total - done;

        for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
            r->now_ms = (int64_t)(raw_now_s() * 1000);
            raw_send(r, RAW_BEGIN, NULL);
            for (int64_t run = r->runs + 1; run <= r->runs + lot; run++)
                phases[i](r, run);
            raw_send(r, RAW_COMMIT, NULL);
            raw_sync(r);
        }
        r->runs += lot;
    }
    return raw_now_s() - start_s;
}

void
raw_pg_commits_each(raw_pg *r, int n, double *seconds)
{
    int64_t run = ++r->runs;

    raw_start(r, run);
    raw_sync(r);
    for (int i = 0; i < n; i++) {
        double start_s = raw_now_s();

        r->now_ms = (int64_t)(start_s * 1000);
        raw_send(r, RAW_BEGIN, NULL);
        raw_journal(r, run, i + 2, 1, "charge", RAW_RESULT);
        raw_update(r, run, 1, i + 2, NULL);
        raw_send(r, RAW_COMMIT, NULL);
        raw_sync(r);
        seconds[i] = raw_now_s() - start_s;
    }
}

/* ---- several workers ------------------------------------------------------------------------- */

#define RAW_SLOTS_MAX 64

typedef struct raw_slots {
    _Atomic int64_t   left;
    pthread_barrier_t ready;
} raw_slots;

typedef struct raw_slot {
    raw_slots *all;
    raw_pg    *r;
    pthread_t  thread;
} raw_slot;

/* A transaction of what `write` sends. */
static void
raw_slot_commit(raw_pg *r, void (*write)(raw_pg *, int64_t), int64_t run)
{
    r->now_ms = (int64_t)(raw_now_s() * 1000);
    raw_send(r, RAW_BEGIN, NULL);
    write(r, run);
    raw_send(r, RAW_COMMIT, NULL);
    raw_sync(r);
}

static void
raw_slot_claim(raw_pg *r, int64_t run)
{
    raw_journal(r, run, 2, 1, "claimed", "");
    raw_update(r, run, 1, 2, NULL);
}

static void
raw_slot_step1(raw_pg *r, int64_t run)
{
    raw_journal(r, run, 3, 1, "reserve", RAW_RESULT);
    raw_update(r, run, 1, 3, NULL);
}

static void
raw_slot_step2(raw_pg *r, int64_t run)
{
    raw_journal(r, run, 4, 1, "charge", RAW_RESULT);
    raw_update(r, run, 1, 4, NULL);
}

static void
raw_slot_step3(raw_pg *r, int64_t run)
{
    raw_journal(r, run, 5, 1, "ship", RAW_RESULT);
    raw_journal(r, run, 6, 2, "return", RAW_RESULT);
    raw_update(r, run, 2, 6, RAW_RESULT);
}

/* The oldest that is ready, taken with its row and the fact that says so. */
static int64_t
raw_slot_take(raw_pg *r)
{
    raw_args  a = { 0 };
    PGresult *res;
    int64_t   run = 0;

    raw_send(r, RAW_BEGIN, NULL);
    raw_bytes(&a, "default");
    raw_send(r, RAW_READY_TAKE, &a);
    raw_must(r, PQsendFlushRequest(r->db) && PQflush(r->db) == 0, "take");
    PQclear(PQgetResult(r->db));
    PQclear(PQgetResult(r->db));
    res = PQgetResult(r->db);
    raw_must(r, PQresultStatus(res) == PGRES_TUPLES_OK, "take");
    if (PQntuples(res) == 1)
        for (int i = 0; i < 8; i++)
            run = run << 8 | (uint8_t)PQgetvalue(res, 0, 0)[i];
    PQclear(res);
    PQclear(PQgetResult(r->db));
    r->sent -= 2;
    if (run != 0)
        raw_slot_claim(r, run);
    raw_send(r, RAW_COMMIT, NULL);
    raw_sync(r);
    return run;
}

static void *
raw_slot_main(void *arg)
{
    static void (*const steps[])(raw_pg *, int64_t) = { raw_slot_step1, raw_slot_step2,
                                                        raw_slot_step3 };
    raw_slot             *s = arg;
    const struct timespec body = { 0, 1000000 };

    pthread_barrier_wait(&s->all->ready);
    while (atomic_fetch_sub(&s->all->left, 1) > 0) {
        int64_t run = raw_slot_take(s->r);

        raw_must(s->r, run != 0, "nothing is ready");
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            nanosleep(&body, NULL);
            raw_slot_commit(s->r, steps[i], run);
        }
    }
    return NULL;
}

/* Put there in one transaction. */
static void
raw_backlog(raw_pg *r, int64_t total)
{
    r->now_ms = (int64_t)(raw_now_s() * 1000);
    raw_send(r, RAW_BEGIN, NULL);
    for (int64_t i = 0; i < total; i++) {
        raw_start(r, ++r->runs);
        if (i % 64 == 63)
            raw_sync(r);
    }
    raw_send(r, RAW_COMMIT, NULL);
    raw_sync(r);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void
raw_ignore(void *arg, const PGresult *res)
{
    (void)arg;
    (void)res;
}

static raw_pg *
raw_connect(const char *conninfo, const char *schema)
{
    raw_pg   *r = calloc(1, sizeof *r);
    PGresult *res;

    if (r == NULL)
        exit(1);
    r->db = PQconnectdb(conninfo);
    raw_must(r, PQstatus(r->db) == CONNECTION_OK, conninfo);
    PQsetNoticeReceiver(r->db, raw_ignore, NULL);
    res = PQexec(r->db, schema);
    raw_must(r, PQresultStatus(res) == PGRES_COMMAND_OK, "schema");
    PQclear(res);
    for (int i = 0; i < RAW_STMTS; i++) {
        res = PQprepare(r->db, raw_sql[i].name, raw_sql[i].sql, 0, NULL);
        raw_must(r, PQresultStatus(res) == PGRES_COMMAND_OK, raw_sql[i].sql);
        PQclear(res);
    }
    raw_must(r, PQenterPipelineMode(r->db), "pipeline");
    return r;
}

raw_pg *
raw_pg_open(const char *conninfo)
{
    return raw_connect(conninfo, raw_schema);
}

double
raw_pg_workers(raw_pg *r, const char *conninfo, int slots, int64_t total)
{
    raw_slots all = { .left = total };
    raw_slot  each[RAW_SLOTS_MAX];
    double    start_s;

    raw_backlog(r, total);
    pthread_barrier_init(&all.ready, NULL, (unsigned)slots + 1);
    for (int i = 0; i < slots; i++) {
        each[i] = (raw_slot){ .all = &all, .r = raw_connect(conninfo, "SET search_path=raw") };
        raw_must(r, pthread_create(&each[i].thread, NULL, raw_slot_main, &each[i]) == 0, "thread");
    }
    pthread_barrier_wait(&all.ready);
    start_s = raw_now_s();
    for (int i = 0; i < slots; i++)
        pthread_join(each[i].thread, NULL);
    start_s = raw_now_s() - start_s;
    for (int i = 0; i < slots; i++)
        raw_pg_close(each[i].r);
    pthread_barrier_destroy(&all.ready);
    return (double)total / start_s;
}

void
raw_pg_close(raw_pg *r)
{
    if (r == NULL)
        return;
    PQfinish(r->db);
    free(r);
}
