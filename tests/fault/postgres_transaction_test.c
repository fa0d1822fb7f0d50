/* Steps whose SQL commits with their record, and starts inside the application's own transaction,
 * on PostgreSQL. What happened is counted in tables of the application, read by a connection of the
 * test's own. */
#include <libpq-fe.h>

#include "fixture.h"

#include "damage.h"
#include "engine/engine.h"

/* Before the fixture looks which store it is to use. */
__attribute__((constructor(101))) static void
bank_store(void)
{
    setenv("STET_TEST_STORE", "postgres", 1);
}

/* ---- tools ----------------------------------------------------------------------------------- */

static char bank_schema[64];

static void
bank_sql(PGconn *db, const char *sql)
{
    PGresult *res = PQexec(db, sql);

    if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    PQclear(res);
}

static int
bank_ask(PGconn *db, const char *sql)
{
    PGresult *res = PQexec(db, sql);
    int       answer;

    if (PQresultStatus(res) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    answer = (int)strtol(PQgetvalue(res, 0, 0), NULL, 10);
    PQclear(res);
    return answer;
}

static PGconn *
bank_open(const fixture *f)
{
    const char *schema = strstr(f->url, "&schema=");
    char        url[512], sql[128];
    PGconn     *db;

    CHECK(schema != NULL);
    (void)snprintf(url, sizeof url, "%.*s", (int)(schema - f->url), f->url);
    (void)snprintf(bank_schema, sizeof bank_schema, "%s", schema + 8);
    db = PQconnectdb(url);
    CHECK(PQstatus(db) == CONNECTION_OK);
    (void)snprintf(sql, sizeof sql, "CREATE SCHEMA IF NOT EXISTS bank_%s", bank_schema);
    bank_sql(db, "SET client_min_messages=error");
    bank_sql(db, sql);
    (void)snprintf(sql, sizeof sql, "SET search_path=bank_%s", bank_schema);
    bank_sql(db, sql);
    return db;
}

/* Tables beside stet's own, an engine that serves `handlers` and is not started, and a
 * connection. */
static PGconn *
bank_up(fixture *f, const stet_handler *handlers)
{
    PGconn *db = bank_open(f);

    bank_sql(db, "CREATE TABLE paid(who text, amount int); CREATE TABLE total(n int);"
                 "INSERT INTO total VALUES(0)");
    f->engine = fixture_open(f);
    fixture_register(f->engine, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    return db;
}

static void
bank_end(fixture *f, PGconn *db)
{
    PQfinish(db);
    fixture_end(f);
}

/* In a body; $ stands for the application's schema. */
static int
body_sql(stet_attempt *a, const char *sql)
{
    PGconn     *db = stet_attempt_postgres(a);
    const char *at = strchr(sql, '$');
    char        text[512];
    PGresult   *res;
    int         err = STET_OK;

    if (db == NULL)
        return stet_attempt_fail(a, STET_EPERMANENT, "no connection");
    (void)snprintf(text, sizeof text, "%.*s%s%s%s", at != NULL ? (int)(at - sql) : (int)strlen(sql),
                   sql, at != NULL ? "bank_" : "", at != NULL ? bank_schema : "",
                   at != NULL ? at + 1 : "");
    res = PQexec(db, text);
    if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
        err = stet_attempt_fail(a, STET_ERETRY, "%s", PQerrorMessage(db));
    PQclear(res);
    return err;
}

/* ---- one commit ------------------------------------------------------------------------------ */

static int
body_pay(stet_attempt *a, void *who)
{
    (void)who;
    effect("paying");
    STET_TRY(body_sql(a, "INSERT INTO $.paid VALUES('ann', 5)"));
    return stet_attempt_return(a, stet_text("paid"));
}

static int
h_pay(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "pay", body_pay, NULL,
                       STET_STEP(.transaction = true, .attempts = 3, .first_ms = 1)));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, out);
}

static const stet_handler pay_handlers[] = { { "pay", h_pay, NULL }, { 0 } };

TEST(I4_postgres_a_steps_sql_is_there_with_its_record_and_once)
{
    fixture    *f = fixture_begin();
    PGconn     *db = bank_up(f, pay_handlers);
    stet_run_id run;

    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.pay", "", NULL);
    fixture_paused(f->engine, &run);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "step", "pay"), 1);
    fixture_replay_with(f, &run, pay_handlers);
    EXPECT_RESULT(f->engine, &run, "paid");
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(effects("paying"), 1);
    bank_end(f, db);
}

/* ---- what the store says --------------------------------------------------------------------- */

static const stet_store_ops *tx_inner;
static atomic_int            tx_left;
static int                   tx_code;
static bool                  tx_is_applied;

static int
tx_fails(stet_store *s, stet_tx *tx, const stet_unit *unit, stet_outcome *outcome)
{
    if (atomic_fetch_sub(&tx_left, 1) <= 0)
        return tx_inner->tx_commit(s, tx, unit, outcome);
    if (tx_is_applied)
        CHECK_OK(tx_inner->tx_commit(s, tx, unit, outcome));
    else
        tx_inner->tx_rollback(s, tx);
    return stet__fail(tx_code, "by the test");
}

static void
answered(int code, bool is_applied, int bodies)
{
    fixture    *f = fixture_begin();
    PGconn     *db = bank_up(f, pay_handlers);
    stet_run_id run;

    tx_inner = f->engine->store->ops;
    damage_ops(f->engine)->tx_commit = tx_fails;
    tx_code = code;
    tx_is_applied = is_applied;
    atomic_store(&tx_left, 1);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.pay", "", NULL);
    fixture_paused(f->engine, &run);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "paid");
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(effects("paying"), bodies);
    bank_end(f, db);
}

TEST(I4_postgres_a_commit_that_failed_is_an_attempt_that_failed) { answered(STET_EBUSY, false, 2); }
TEST(I4_postgres_a_lost_reply_of_a_commit_that_was_applied) { answered(STET_EUNCERTAIN, true, 1); }
TEST(I4_postgres_a_lost_reply_of_a_commit_that_was_not) { answered(STET_EUNCERTAIN, false, 2); }

/* ---- bodies that go wrong -------------------------------------------------------------------- */

static int
body_wrong(stet_attempt *a, void *how)
{
    bool is_first = effects("tried") == 0;

    effect("tried");
    STET_TRY(body_sql(a, "INSERT INTO $.paid VALUES('bob', 1)"));
    if (is_first && strcmp(how, "fails") == 0)
        return stet_attempt_fail(a, STET_ERETRY, "the bank is closed");
    if (is_first && strcmp(how, "statement") == 0)
        (void)body_sql(a, "SELECT 1/0"); /* and nobody looks */
    if (is_first && strcmp(how, "sleeps") == 0)
        return body_sql(a, "SELECT pg_sleep(60)");
    if (is_first && strcmp(how, "robbed") == 0) {
        char sql[128];

        (void)snprintf(sql, sizeof sql, "UPDATE %s.runs SET epoch=epoch+1", bank_schema);
        return body_sql(a, sql);
    }
    return STET_OK;
}

static int
h_wrong(stet_ctx *ctx, stet_bytes input)
{
    char how[16] = "";

    memcpy(how, input.data, input.len < sizeof how ? input.len : sizeof how - 1);
    STET_TRY(stet_step(ctx, NULL, "pay", body_wrong, how,
                       STET_STEP(.transaction = true, .attempts = 3, .first_ms = 1,
                                 .timeout = strcmp(how, "sleeps") == 0 ? "300ms" : NULL)));
    return stet_return(ctx, stet_text("done"));
}

static const stet_handler wrong_handlers[] = { { "wrong", h_wrong, NULL }, { 0 } };

static void
goes_wrong(const char *how)
{
    fixture    *f = fixture_begin();
    PGconn     *db = bank_up(f, wrong_handlers);
    stet_run_id run;

    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.wrong", how, NULL);
    if (strcmp(how, "robbed") == 0) {
        AWAIT(fixture_logged(f, "fenced") > 0);
        /* The theft was rolled back too: whoever comes next has the run, perhaps this worker. */
        fixture_down(f);
        fixture_up_with(f, wrong_handlers);
    }
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(effects("tried"), 2);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    bank_end(f, db);
}

TEST(I4_postgres_a_body_that_fails_leaves_nothing_behind) { goes_wrong("fails"); }
TEST(I4_postgres_a_statement_that_failed_is_an_attempt_that_failed) { goes_wrong("statement"); }
TEST(I4_postgres_the_time_is_limited_and_late_is_rolled_back) { goes_wrong("sleeps"); }
TEST(I4_postgres_a_worker_that_lost_its_claim_changes_nothing) { goes_wrong("robbed"); }

static int
body_ends(stet_attempt *a, void *arg)
{
    (void)arg;
    return body_sql(a, "COMMIT; BEGIN");
}

static int
h_ends(stet_ctx *ctx, stet_bytes input)
{
    int code = stet_step(ctx, NULL, "ends", body_ends, NULL, STET_STEP(.transaction = true));

    (void)input;
    return code == STET_ESTEP ? stet_return(ctx, stet_text(stet_last_error())) : code;
}

TEST(I4_postgres_a_body_that_ends_the_transaction_is_told)
{
    static const stet_handler handlers[] = { { "ends", h_ends, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    PGconn                   *db = bank_up(f, handlers);
    stet_run_id               run;
    fixture_run               look;

    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.ends", "", NULL);
    AWAIT(fixture_look(f->engine, &run).ended_ms != STET_NEVER &&
          fixture_look(f->engine, &run).ended_ms != 0);
    look = fixture_look(f->engine, &run);
    CHECK(strstr(look.result, "not its to end") != NULL ||
          strstr(look.error, "not its to end") != NULL);
    bank_end(f, db);
}

/* ---- many ------------------------------------------------------------------------------------ */

enum { RUNS = 24 };

static int
body_count(stet_attempt *a, void *arg)
{
    (void)arg;
    return body_sql(a, "UPDATE $.total SET n=n+1");
}

static int
h_count(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    for (int i = 0; i < 3; i++)
        STET_TRY(stet_step(ctx, NULL, "count", body_count, NULL,
                           STET_STEP(.transaction = true, .attempts = 20, .first_ms = 1)));
    return stet_return(ctx, stet_text("done"));
}

TEST(I4_postgres_many_at_once_count_exactly)
{
    static const stet_handler handlers[] = { { "count", h_count, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    PGconn                   *db = bank_up(f, handlers);
    stet_run_id               runs[RUNS];

    CHECK_OK(stet_engine_start(f->engine));
    for (int i = 0; i < RUNS; i++)
        runs[i] = fixture_start(f->engine, "t.count", "", NULL);
    for (int i = 0; i < RUNS; i++)
        EXPECT_RESULT(f->engine, &runs[i], "done");
    CHECK_INT(bank_ask(db, "SELECT n FROM total"), 3 * RUNS);
    bank_end(f, db);
}

/* ---- starts ---------------------------------------------------------------------------------- */

static int
h_returns(stet_ctx *ctx, stet_bytes input)
{
    return stet_return(ctx, input);
}

static const stet_handler echo_handlers[] = { { "echo", h_returns, NULL }, { 0 } };

TEST(I4_postgres_a_start_in_a_transaction_is_there_if_it_commits)
{
    fixture    *f = fixture_begin();
    PGconn     *db = bank_up(f, echo_handlers);
    stet_conn   conn = stet_conn_postgres(db);
    stet_run_id run, gone, twice;
    bool        existed = true;

    CHECK_OK(stet_engine_start(f->engine));
    bank_sql(db, "BEGIN");
    CHECK_OK(stet_start_in(f->engine, conn, &gone, "t.echo", stet_text("a"), NULL));
    bank_sql(db, "INSERT INTO paid VALUES('a',1)");
    bank_sql(db, "ROLLBACK");
    bank_sql(db, "BEGIN");
    CHECK_OK(stet_start_in(f->engine, conn, &run, "t.echo", stet_text("b"),
                           STET_START(.idempotency_key = "k", .existed = &existed)));
    CHECK(!existed);
    CHECK_CODE(stet_start_in(f->engine, conn, &twice, "t.echo", stet_text("b"),
                             STET_START(.idempotency_key = "k", .existed = &existed)),
               STET_ECONFLICT); /* it cannot be seen before the commit */
    bank_sql(db, "INSERT INTO paid VALUES('b',1)");
    bank_sql(db, "COMMIT");
    stet_engine_nudge(f->engine);
    EXPECT_RESULT(f->engine, &run, "b");
    bank_sql(db, "BEGIN");
    CHECK_OK(stet_start_in(f->engine, conn, &twice, "t.echo", stet_text("b"),
                           STET_START(.idempotency_key = "k", .existed = &existed)));
    CHECK(existed);
    CHECK_STR(twice.text, run.text);
    bank_sql(db, "COMMIT");
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    bank_end(f, db);
}

TEST(I4_postgres_a_wrong_connection_is_told)
{
    fixture    *f = fixture_begin();
    PGconn     *db = bank_up(f, echo_handlers), *other;
    char        url[512];
    const char *at = strstr(f->url, "/postgres?");

    CHECK(at != NULL);
    CHECK_CODE(
        stet_start_in(f->engine, stet_conn_postgres(db), NULL, "t.echo", stet_text(""), NULL),
        STET_ESTATE);
    CHECK_CODE(
        stet_start_in(f->engine, stet_conn_sqlite(NULL), NULL, "t.echo", stet_text(""), NULL),
        STET_EUSAGE);
    (void)snprintf(url, sizeof url, "%.*s/template1?%.*s", (int)(at - f->url), f->url,
                   (int)(strstr(f->url, "&schema=") - at - 10), at + 10);
    other = PQconnectdb(url);
    CHECK(PQstatus(other) == CONNECTION_OK);
    bank_sql(other, "BEGIN");
    CHECK_CODE(
        stet_start_in(f->engine, stet_conn_postgres(other), NULL, "t.echo", stet_text(""), NULL),
        STET_EMISMATCH);
    CHECK_HAS(stet_last_error(), "template1");
    CHECK_INT(bank_ask(other, "SELECT 7"), 7); /* still the caller's, and in order */
    bank_sql(other, "ROLLBACK");
    PQfinish(other);
    bank_end(f, db);
}

/* Who holds a key is seen only by a transaction whose statements see what others committed. */
TEST(I4_postgres_a_keyed_start_is_refused_in_a_transaction_with_an_old_snapshot)
{
    static const char *const levels[] = { "REPEATABLE READ", "SERIALIZABLE" };
    fixture                 *f = fixture_begin();
    PGconn                  *db = bank_up(f, echo_handlers);
    stet_conn                conn = stet_conn_postgres(db);
    stet_run_id              first[2], free[2], last, refused;

    fixture_register(f->engine, (fixture_service[]){ { "o", echo_handlers, true, NULL }, { 0 } });
    for (int i = 0; i < 2; i++) {
        char begin[64];

        (void)snprintf(begin, sizeof begin, "BEGIN ISOLATION LEVEL %s", levels[i]);
        bank_sql(db, begin);
        CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), i);
        CHECK_OK(stet_start(f->engine, &first[i], "o.echo", stet_text("first"),
                            STET_START(.key = "ann")));
        CHECK_CODE(stet_start_in(f->engine, conn, &refused, "o.echo", stet_text("late"),
                                 STET_START(.key = "ann")),
                   STET_ESTATE);
        CHECK_HAS(stet_last_error(), i == 0 ? "repeatable read" : "serializable");
        CHECK_HAS(stet_last_error(), "o/ann");
        CHECK_HAS(stet_last_error(), "READ COMMITTED");
        CHECK_OK(stet_start_in(f->engine, conn, &free[i], "t.echo", stet_text("free"), NULL));
        bank_sql(db, "INSERT INTO paid VALUES('a',1)");
        bank_sql(db, "COMMIT");
    }
    bank_sql(db, "BEGIN ISOLATION LEVEL READ COMMITTED");
    CHECK_OK(stet_start_in(f->engine, conn, &last, "o.echo", stet_text("last"),
                           STET_START(.key = "ann")));
    bank_sql(db, "COMMIT");
    CHECK_INT(fixture_count(f->engine, NULL), 5);
    CHECK_OK(stet_engine_start(f->engine));
    for (int i = 0; i < 2; i++) {
        EXPECT_RESULT(f->engine, &first[i], "first");
        EXPECT_RESULT(f->engine, &free[i], "free");
    }
    EXPECT_RESULT(f->engine, &last, "last");
    bank_end(f, db);
}

/* ---- a start inside a transaction, and a move ------------------------------------------------ */

static const stet_handler move_handlers[] = { { "quick", h_echo, NULL }, { 0 } };

typedef struct mover {
    fixture    *from, *to;
    int         code;
    _Atomic int is_done;
} mover;

static void *
mover_main(void *arg)
{
    mover *m = arg;

    m->code = stet_move(NULL, m->from->url, m->to->url, NULL);
    m->is_done = 1;
    return NULL;
}

/* Something to move, and a program that only starts runs. */
static PGconn *
mover_begin(mover *m)
{
    PGconn     *db;
    stet_run_id run;

    *m = (mover){ .from = fixture_begin(), .to = fixture_begin() };
    db = bank_up(m->from, move_handlers);
    CHECK_OK(stet_start(m->from->engine, &run, "t.quick", stet_text("first"), NULL));
    return db;
}

static void
mover_end(mover *m, PGconn *db)
{
    fixture_end(m->to);
    bank_end(m->from, db);
}

/* The transaction had found the store open, and commits after the mark was to be put. */
TEST(I5_a_move_waits_for_a_transaction_that_starts_a_run)
{
    mover       m;
    PGconn     *db = mover_begin(&m);
    pthread_t   thread;
    stet_run_id run;

    bank_sql(db, "BEGIN");
    CHECK_OK(stet_start_in(m.from->engine, stet_conn_postgres(db), &run, "t.quick",
                           stet_text("told"), NULL));
    CHECK_INT(pthread_create(&thread, NULL, mover_main, &m), 0);
    AWAIT(m.is_done || bank_ask(db, "SELECT count(*) FROM pg_locks a JOIN pg_locks b "
                                    "USING(locktype,database,classid,objid) WHERE "
                                    "a.pid=pg_backend_pid() AND a.granted AND NOT b.granted") > 0);
    CHECK(!m.is_done);
    bank_sql(db, "COMMIT");
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_OK(m.code);
    fixture_up_with(m.to, move_handlers);
    EXPECT_RESULT(m.to->engine, &run, "told");
    mover_end(&m, db);
}

/* Its snapshot is older than the mark, which it cannot see. */
TEST(I5_a_transaction_with_an_old_snapshot_starts_nothing_in_a_store_that_was_moved)
{
    mover       m;
    PGconn     *db = mover_begin(&m);
    stet_run_id run;

    bank_sql(db, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 0);
    CHECK_OK(stet_move(NULL, m.from->url, m.to->url, NULL));
    CHECK(stet_start_in(m.from->engine, stet_conn_postgres(db), &run, "t.quick", stet_text("late"),
                        NULL) != STET_OK);
    test_note("%s", stet_last_error());
    bank_sql(db, "ROLLBACK");
    bank_sql(db, "BEGIN");
    CHECK_CODE(stet_start_in(m.from->engine, stet_conn_postgres(db), &run, "t.quick",
                             stet_text("later"), NULL),
               STET_EMOVED);
    bank_sql(db, "COMMIT");
    CHECK_INT(fixture_count(m.from->engine, NULL), 1);
    fixture_up_with(m.to, move_handlers);
    mover_end(&m, db);
}
