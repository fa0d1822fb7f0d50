/* Crash everywhere with transactions, on SQLite, or on PostgreSQL with STET_TEST_STORE: money
 * moves between two rows of the application's own table in two transactional steps, in a run that
 * was started inside the transaction that took the order. The process is killed before and after
 * each store call, and commits lose their replies. Whatever happens, the books are right: one
 * order, one debit, one credit, and nothing is said to be at risk but the plain step between. */
#ifdef STET_WITH_POSTGRES
#include <libpq-fe.h>
#endif
#include <signal.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"
#include "engine/engine.h"
#include "testkit/shim_store.h"
#include "test.h"

#define LIMIT_MS (60000 * test_slow())

typedef struct world {
    shim_script *script;
    char         db[512];
    char         schema[64]; /* of the application's tables, with its dot; "" on SQLite */
    char         where[128];
    size_t       points, worlds;
} world;

static bool
is_on_postgres(void)
{
    const char *store = getenv("STET_TEST_STORE");

    return store != NULL && strcmp(store, "postgres") == 0;
}

__attribute__((constructor)) static void
books_server(void)
{
    if (is_on_postgres())
        test_before(cluster_share);
}

/* ---- the books ------------------------------------------------------------------------------- */

typedef struct books {
    sqlite3        *sqlite; /* one of them */
    struct pg_conn *postgres;
} books;

#ifdef STET_WITH_POSTGRES

/* The number in the first column of the first row, or -1. */
static int
postgres_do(struct pg_conn *db, const char *sql)
{
    PGresult *res = PQexec(db, sql);
    int       n = -1;

    if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    if (PQntuples(res) > 0)
        n = (int)strtol(PQgetvalue(res, 0, 0), NULL, 10);
    PQclear(res);
    return n;
}

static books
books_open(const world *w)
{
    books b = { NULL, NULL };

    if (is_on_postgres()) {
        b.postgres = PQconnectdb(getenv(CLUSTER_ENV));
        (void)postgres_do(b.postgres, "SET client_min_messages=error");
    } else {
        CHECK_INT(sqlite3_open(w->db, &b.sqlite), SQLITE_OK);
        sqlite3_busy_timeout(b.sqlite, LIMIT_MS);
    }
    return b;
}

static void
books_close(books b)
{
    PQfinish(b.postgres);
    sqlite3_close(b.sqlite);
}

static int
body_exec(stet_attempt *a, const char *sql)
{
    PGresult *res;
    bool      is_ok;

    if (!is_on_postgres())
        return sqlite3_exec(stet_attempt_sqlite(a), sql, NULL, NULL, NULL) == SQLITE_OK
                   ? STET_OK
                   : STET_ERETRY;
    res = PQexec(stet_attempt_postgres(a), sql);
    is_ok = PQresultStatus(res) == PGRES_COMMAND_OK;
    PQclear(res);
    return is_ok ? STET_OK : STET_ERETRY;
}

#else

static int
postgres_do(struct pg_conn *db, const char *sql)
{
    (void)db;
    test_fail(__FILE__, __LINE__, "%s: built without PostgreSQL", sql);
}

static books
books_open(const world *w)
{
    books b = { NULL, NULL };

    CHECK_INT(sqlite3_open(w->db, &b.sqlite), SQLITE_OK);
    sqlite3_busy_timeout(b.sqlite, LIMIT_MS);
    return b;
}

static void
books_close(books b)
{
    sqlite3_close(b.sqlite);
}

static int
body_exec(stet_attempt *a, const char *sql)
{
    return sqlite3_exec(stet_attempt_sqlite(a), sql, NULL, NULL, NULL) == SQLITE_OK ? STET_OK
                                                                                    : STET_ERETRY;
}

#endif

static void
books_do(books b, const char *sql)
{
    char *text = NULL;

    if (b.sqlite == NULL)
        (void)postgres_do(b.postgres, sql);
    else if (sqlite3_exec(b.sqlite, sql, NULL, NULL, &text) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, text);
}

/* A number of a table of the application. */
static int
books_ask(const world *w, books b, const char *what, const char *table, const char *where)
{
    sqlite3_stmt *stmt = NULL;
    char          sql[256];
    int           answer;

    (void)snprintf(sql, sizeof sql, "SELECT %s FROM %s%s WHERE %s", what, w->schema, table, where);
    if (b.sqlite == NULL)
        return postgres_do(b.postgres, sql);
    CHECK_INT(sqlite3_prepare_v2(b.sqlite, sql, -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    answer = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return answer;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Set before the engine starts. */
static const char *move_schema;

typedef struct move {
    const char *what, *who;
    int         n;
} move;

static int
body_move(stet_attempt *a, void *arg)
{
    const move *m = arg;
    char        sql[256];

    if (stet_attempt_is_at_risk(a))
        return stet_attempt_fail(a, STET_EPERMANENT, "a transactional step is at risk");
    (void)snprintf(sql, sizeof sql,
                   "UPDATE %saccount SET n = n + %d WHERE who = '%s';"
                   "INSERT INTO %smoves VALUES('%s')",
                   move_schema, m->n, m->who, move_schema, m->what);
    return body_exec(a, sql);
}

static int
body_plain(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    return STET_OK;
}

static int
h_move(stet_ctx *ctx, stet_bytes input)
{
    move debit = { "debit", "a", -10 }, credit = { "credit", "b", 10 };

    STET_TRY(stet_step(ctx, NULL, "debit", body_move, &debit, STET_STEP(.transaction = true)));
    STET_TRY(stet_step(ctx, NULL, "say", body_plain, NULL, NULL));
    STET_TRY(stet_sleep_ms(ctx, "rest", 1));
    STET_TRY(stet_step(ctx, NULL, "credit", body_move, &credit, STET_STEP(.transaction = true)));
    return stet_return(ctx, input);
}

static const stet_handler handlers[] = { { "move", h_move, NULL }, { 0 } };

/* ---- lives ----------------------------------------------------------------------------------- */

static void
life_crash(void *arg)
{
    (void)arg;
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

static int
life_first(void *arg, const stet_run_info *info)
{
    memcpy(arg, info->id, strlen(info->id) + 1);
    return 1;
}

/* The order and its run, once. */
static void
life_order(const world *w, stet_engine *e, books b)
{
    char sql[128];

    books_do(b, b.sqlite != NULL ? "BEGIN IMMEDIATE" : "BEGIN");
    if (books_ask(w, b, "count(*)", "orders", "true") == 0) {
        (void)snprintf(sql, sizeof sql, "INSERT INTO %sorders VALUES(1)", w->schema);
        books_do(b, sql);
        CHECK_OK(stet_start_in(
            e, b.sqlite != NULL ? stet_conn_sqlite(b.sqlite) : stet_conn_postgres(b.postgres), NULL,
            "bank.move", stet_text("ok"), NULL));
    }
    books_do(b, "COMMIT");
}

static void
life(world *w)
{
    stet_store  *real, *store;
    stet_engine *e;
    books        b = books_open(w);
    stet_run_id  run = { "" };

    move_schema = w->schema;
    CHECK_OK(stet__store_open(&real, stet__platform_real(), w->db));
    CHECK_OK(stet__shim_store_new(&store, real, w->script));
    /* On SQLite a lock that is free proves a death; a server has nothing but the lease. */
    CHECK_OK(
        stet__open_on(&e, stet__platform_real(), store, w->db,
                      STET_OPTIONS(.concurrency = 2, .lease_ms = is_on_postgres() ? 1000 : 600000,
                                   .renew_ms = 30, .sweep_ms = 50, .poll_ms = 20,
                                   .wait_poll_ms = 20, .log_level = STET_LOG_ERROR)));
    CHECK_OK(stet_register(e, "bank", handlers));
    CHECK_OK(stet_engine_start(e));
    life_order(w, e, b);
    stet_engine_nudge(e);
    (void)stet_run_list(e, NULL, life_first, run.text); /* stops at the first */
    CHECK_OK(stet_wait(e, NULL, &run, LIMIT_MS));
    stet_close(e);
    books_close(b);
}

static int
world_fork(world *w)
{
    pid_t child = fork();
    int   status = 0;

    CHECK(child >= 0);
    if (child == 0) {
        life(w);
        _exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    return status;
}

static void
world_script(world *w, shim_mode mode, shim_which which, uint64_t at)
{
    memset(w->script, 0, sizeof *w->script);
    w->script->mode = mode;
    w->script->which = which;
    w->script->at = at;
    w->script->crash = life_crash;
}

/* A store nobody has used. */
static void
world_fresh(world *w)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-live" };
    char                     path[600];

    if (is_on_postgres()) {
        (void)snprintf(w->schema, sizeof w->schema, "b_%s_%zu", test_unique(), ++w->worlds);
        (void)snprintf(path, sizeof path, "s%s", w->schema);
        (void)snprintf(w->db, sizeof w->db, "%s", cluster_url(path));
        strncat(w->schema, ".", 2);
        return;
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", w->db, suffixes[i]);
        (void)unlink(path);
    }
}

static void
world_new(world *w)
{
    stet_engine *e;
    char         sql[400];
    books        b;

    world_fresh(w);
    CHECK_OK(stet_open(&e, w->db, NULL)); /* the file is stet's before it is anybody's */
    stet_close(e);
    b = books_open(w);
    if (is_on_postgres()) {
        (void)snprintf(sql, sizeof sql, "CREATE SCHEMA %.*s", (int)strlen(w->schema) - 1,
                       w->schema);
        books_do(b, sql);
    }
    (void)snprintf(sql, sizeof sql,
                   "CREATE TABLE %sorders(n INTEGER); CREATE TABLE %smoves(what TEXT);"
                   "CREATE TABLE %saccount(who TEXT, n INTEGER);"
                   "INSERT INTO %saccount VALUES('a', 100), ('b', 0)",
                   w->schema, w->schema, w->schema, w->schema);
    books_do(b, sql);
    books_close(b);
}

static int
world_count_run(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

static void
world_check(world *w)
{
    books        b = books_open(w);
    stet_engine *e;
    int          runs = 0;

    CHECK_OK(stet_open(&e, w->db, NULL));
    CHECK_OK(stet_run_list(e, NULL, world_count_run, &runs));
    stet_close(e);
    CHECK_INT(runs, 1);
    CHECK_INT(books_ask(w, b, "count(*)", "orders", "true"), 1);
    CHECK_INT(books_ask(w, b, "count(*)", "moves", "what = 'debit'"), 1);
    CHECK_INT(books_ask(w, b, "count(*)", "moves", "what = 'credit'"), 1);
    CHECK_INT(books_ask(w, b, "n", "account", "who = 'a'"), 90);
    CHECK_INT(books_ask(w, b, "n", "account", "who = 'b'"), 10);
    books_close(b);
}

static bool
world_point(world *w, shim_mode mode, shim_which which, uint64_t at)
{
    bool is_hit, is_crash = mode == SHIM_BEFORE || mode == SHIM_AFTER;
    int  status;

    (void)snprintf(w->where, sizeof w->where, "%s %s %llu", stet__shim_mode_name(mode),
                   which == SHIM_READS ? "read" : "write", (unsigned long long)at);
    world_new(w);
    world_script(w, mode, which, at);
    status = world_fork(w);
    is_hit = w->script->is_hit;
    if (is_hit && is_crash ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0)
        test_fail(__FILE__, __LINE__, "%s (%s): the process ended with %x", w->where,
                  w->script->hit, status);
    world_script(w, SHIM_NONE, SHIM_ANY, 0);
    if ((status = world_fork(w)) != 0)
        test_fail(__FILE__, __LINE__, "%s: the recovery ended with %x", w->where, status);
    world_check(w);
    w->points += is_hit;
    return is_hit;
}

TEST_LIMIT(I4_the_books_are_right_whatever_is_killed, 300)
{
    uint64_t    stride = (uint64_t)test_count("STET_CRASH_STRIDE", is_on_postgres() ? 3 : 1), at;
    world       w = { 0 };
    bool        is_hit;

    w.script =
        mmap(NULL, sizeof *w.script, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(w.script != MAP_FAILED);
    (void)snprintf(w.db, sizeof w.db, "%s", test_path("books.db"));
    for (int which = SHIM_WRITES; which <= SHIM_READS; which++)
        for (at = 1, is_hit = true; is_hit; at += stride) {
            is_hit = world_point(&w, SHIM_BEFORE, (shim_which)which, at);
            is_hit = world_point(&w, SHIM_AFTER, (shim_which)which, at) || is_hit;
            if (which == SHIM_WRITES)
                (void)world_point(&w, SHIM_LOSE, SHIM_WRITES, at);
        }
    test_note("tried %zu points", w.points);
}
