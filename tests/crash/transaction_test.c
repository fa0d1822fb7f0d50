/* Crash everywhere with transactions: money moves between two rows of the application's own table
 * in two transactional steps, in a run that was started inside the transaction that took the order.
 * The process is killed before and after each store call, and commits lose their replies. Whatever
 * happens, the books are right: one order, one debit, one credit, and nothing is said to be at risk
 * but the plain step between.
 */
#include <signal.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"
#include "shim_store.h"
#include "test.h"

enum { LIMIT_MS = 60000 };

typedef struct world {
    shim_script *script;
    char         db[512];
    char         where[128];
    size_t       points;
} world;

/* ---- the books ------------------------------------------------------------------------------- */

static sqlite3 *
books_open(const world *w)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open(w->db, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, LIMIT_MS);
    return db;
}

static void
books_do(sqlite3 *db, const char *sql)
{
    char *text = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, text);
}

static int
books_ask(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    int           answer;

    CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    answer = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return answer;
}

/* ---- the run --------------------------------------------------------------------------------- */

static int
body_move(stet_attempt *a, void *sql)
{
    sqlite3 *db = stet_attempt_sqlite(a);

    if (stet_attempt_is_at_risk(a))
        return stet_attempt_fail(a, STET_EPERMANENT, "a transactional step is at risk");
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? STET_OK : STET_ERETRY;
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
    STET_TRY(stet_step(ctx, NULL, "debit", body_move,
                       (void *)"UPDATE account SET n = n - 10 WHERE who = 'a';"
                               "INSERT INTO moves VALUES('debit')",
                       STET_STEP(.transaction = true)));
    STET_TRY(stet_step(ctx, NULL, "say", body_plain, NULL, NULL));
    STET_TRY(stet_sleep_ms(ctx, "rest", 1));
    STET_TRY(stet_step(ctx, NULL, "credit", body_move,
                       (void *)"UPDATE account SET n = n + 10 WHERE who = 'b';"
                               "INSERT INTO moves VALUES('credit')",
                       STET_STEP(.transaction = true)));
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
life_order(stet_engine *e, sqlite3 *db)
{
    books_do(db, "BEGIN IMMEDIATE");
    if (books_ask(db, "SELECT count(*) FROM orders") == 0) {
        books_do(db, "INSERT INTO orders VALUES(1)");
        CHECK_OK(stet_start_in(e, stet_conn_sqlite(db), NULL, "bank.move", stet_text("ok"), NULL));
    }
    books_do(db, "COMMIT");
}

static void
life(world *w)
{
    stet_store  *sqlite, *store;
    stet_engine *e;
    sqlite3     *db = books_open(w);
    stet_run_id  run = { "" };

    CHECK_OK(stet__store_open(&sqlite, stet__platform_real(), w->db));
    CHECK_OK(shim_store_new(&store, sqlite, w->script));
    CHECK_OK(stet__open_on(&e, stet__platform_real(), store, w->db,
                           STET_OPTIONS(.concurrency = 2, .lease_ms = 600000, .renew_ms = 30,
                                        .sweep_ms = 50, .poll_ms = 20, .wait_poll_ms = 20,
                                        .log_level = STET_LOG_ERROR)));
    CHECK_OK(stet_register(e, "bank", handlers));
    CHECK_OK(stet_engine_start(e));
    life_order(e, db);
    stet_engine_nudge(e);
    (void)stet_run_list(e, NULL, life_first, run.text); /* stops at the first */
    CHECK_OK(stet_wait(e, NULL, &run, LIMIT_MS));
    stet_close(e);
    sqlite3_close(db);
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

static void
world_new(world *w)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-live" };
    char                     path[600];
    stet_engine             *e;
    sqlite3                 *db;

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", w->db, suffixes[i]);
        (void)unlink(path);
    }
    CHECK_OK(stet_open(&e, w->db, NULL)); /* the file is stet's before it is anybody's */
    stet_close(e);
    db = books_open(w);
    books_do(db, "CREATE TABLE orders(n); CREATE TABLE moves(what TEXT);"
                 "CREATE TABLE account(who TEXT, n INTEGER);"
                 "INSERT INTO account VALUES('a', 100), ('b', 0)");
    sqlite3_close(db);
}

static void
world_check(world *w)
{
    sqlite3 *db = books_open(w);

    CHECK_INT(books_ask(db, "SELECT count(*) FROM orders"), 1);
    CHECK_INT(books_ask(db, "SELECT count(*) FROM runs"), 1);
    CHECK_INT(books_ask(db, "SELECT count(*) FROM moves WHERE what = 'debit'"), 1);
    CHECK_INT(books_ask(db, "SELECT count(*) FROM moves WHERE what = 'credit'"), 1);
    CHECK_INT(books_ask(db, "SELECT n FROM account WHERE who = 'a'"), 90);
    CHECK_INT(books_ask(db, "SELECT n FROM account WHERE who = 'b'"), 10);
    sqlite3_close(db);
}

static bool
world_point(world *w, shim_mode mode, shim_which which, uint64_t at)
{
    bool is_hit, is_crash = mode == SHIM_BEFORE || mode == SHIM_AFTER;
    int  status;

    (void)snprintf(w->where, sizeof w->where, "%s %s %llu", shim_mode_name(mode),
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
    world    w = { 0 };
    uint64_t at;
    bool     is_hit;

    w.script =
        mmap(NULL, sizeof *w.script, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(w.script != MAP_FAILED);
    (void)snprintf(w.db, sizeof w.db, "%s", test_path("books.db"));
    for (int which = SHIM_WRITES; which <= SHIM_READS; which++)
        for (at = 1, is_hit = true; is_hit; at++) {
            is_hit = world_point(&w, SHIM_BEFORE, (shim_which)which, at);
            is_hit = world_point(&w, SHIM_AFTER, (shim_which)which, at) || is_hit;
            if (which == SHIM_WRITES)
                (void)world_point(&w, SHIM_LOSE, SHIM_WRITES, at);
        }
    test_note("tried %zu points", w.points);
}
