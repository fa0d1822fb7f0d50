/* Steps whose SQL commits with their record, and starts inside the application's own transaction.
 * What happened is counted in a table of the application, read by a connection of the test's own.
 * tsan: yes */
#include <sqlite3.h>

#include "fixture.h"

#include "damage.h"
#include "engine/engine.h"

/* ---- tools ----------------------------------------------------------------------------------- */

static sqlite3 *
bank_open(const fixture *f)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open(f->url, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, (int)fixture_patience_ms());
    return db;
}

static void
bank_sql(sqlite3 *db, const char *sql)
{
    char *text = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, text);
}

static int
bank_ask(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    int           answer;

    CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    answer = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return answer;
}

/* A fixture with a table `paid` beside stet's own, an engine that serves `handlers`, and a
 * connection to look with. Only where the store is a file. */
static sqlite3 *
bank_up(fixture *f, const stet_handler *handlers)
{
    sqlite3 *db;

    if (!f->is_sqlite)
        test_skip("the memory store has no transactions");
    f->engine = fixture_open(f);
    db = bank_open(f);
    bank_sql(db, "CREATE TABLE paid(who TEXT, amount INTEGER)");
    bank_sql(db, "CREATE TABLE total(n INTEGER)");
    bank_sql(db, "INSERT INTO total VALUES(0)");
    fixture_register(f->engine, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    return db;
}

static void
bank_end(fixture *f, sqlite3 *db)
{
    sqlite3_close(db);
    fixture_end(f);
}

static int
body_sql(stet_attempt *a, const char *sql)
{
    char *text = NULL;
    int   err = STET_OK;

    if (sqlite3_exec(stet_attempt_sqlite(a), sql, NULL, NULL, &text) != SQLITE_OK)
        err = stet_attempt_fail(a, STET_EPERMANENT, "%s", text);
    sqlite3_free(text);
    return err;
}

/* ---- one commit ------------------------------------------------------------------------------ */

static int
body_pay(stet_attempt *a, void *who)
{
    char sql[128];

    effect("paying");
    (void)snprintf(sql, sizeof sql, "INSERT INTO paid VALUES('%s', 5)", (const char *)who);
    STET_TRY(body_sql(a, sql));
    return stet_attempt_return(a, stet_text("paid"));
}

static int
h_pay(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "pay", body_pay, (void *)"ann", STET_STEP(.transaction = true)));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, out);
}

static const stet_handler pay_handlers[] = { { "pay", h_pay, NULL }, { 0 } };

TEST(I4_a_steps_sql_is_there_with_its_record_and_once)
{
    fixture    *f = fixture_begin();
    sqlite3    *db = bank_up(f, pay_handlers);
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

/* ---- none ------------------------------------------------------------------------------------ */

static atomic_int fails_left;

static int
body_fails(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("tried");
    STET_TRY(body_sql(a, "INSERT INTO paid VALUES('bob', 1)"));
    if (atomic_fetch_sub(&fails_left, 1) > 0)
        return stet_attempt_fail(a, STET_ERETRY, "the bank is closed");
    return STET_OK;
}

static int
h_fails(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "pay", body_fails, NULL,
                       STET_STEP(.transaction = true, .attempts = 3, .first_ms = 1)));
    return stet_return(ctx, input);
}

TEST(I4_a_body_that_fails_leaves_nothing_behind)
{
    static const stet_handler handlers[] = { { "fails", h_fails, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    sqlite3                  *db = bank_up(f, handlers);
    stet_run_id               run;

    CHECK_OK(stet_engine_start(f->engine));
    atomic_store(&fails_left, 2);
    run = fixture_start(f->engine, "t.fails", "done", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(effects("tried"), 3);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    atomic_store(&fails_left, 3);
    run = fixture_start(f->engine, "t.fails", "done", NULL);
    AWAIT(effects("tried") == 6);
    fixture_await_status(f->engine, &run, STET_STATUS_FAILED);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    bank_end(f, db);
}

/* ---- a store in trouble ---------------------------------------------------------------------- */

static const stet_store_ops *troubled_ops;
static atomic_int            troubles;

static int
tx_begin_troubled(stet_store *s, int64_t limit_ms, stet_tx **tx)
{
    if (atomic_fetch_sub(&troubles, 1) > 0) {
        *tx = NULL;
        return stet__fail(STET_EIO, "the connection is lost");
    }
    return troubled_ops->tx_begin(s, limit_ms, tx);
}

static int
h_pay_once(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "pay", body_pay, (void *)"ann",
                     STET_STEP(.attempts = 1, .transaction = true));
}

/* No body was entered, and it is not its fault. */
TEST(I4_B2_a_transaction_that_cannot_be_begun_uses_no_attempt)
{
    static const stet_handler handlers[] = { { "pay", h_pay_once, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    sqlite3                  *db = bank_up(f, handlers);
    stet_run_id               run;

    troubled_ops = f->engine->store->ops;
    damage_ops(f->engine)->tx_begin = tx_begin_troubled;
    CHECK_OK(stet_engine_start(f->engine));
    atomic_store(&troubles, 2);
    run = fixture_start(f->engine, "t.pay", "", STET_START(.retry = { .attempts = 1 }));
    CHECK_OK(stet_wait(f->engine, NULL, &run, fixture_patience_ms()));
    CHECK_INT(atomic_load(&troubles), -1);
    CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "step retry", NULL), 0);
    CHECK_INT(fixture_facts(f->engine, &run, "released", NULL), 2);
    CHECK(fixture_logged(f, "the connection is lost") > 0);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(effects("paying"), 1);
    bank_end(f, db);
}

/* ---- what a body may not do ------------------------------------------------------------------ */

static int
body_refused(stet_attempt *a, void *sql)
{
    sqlite3 *db = stet_attempt_sqlite(a);

    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_AUTH)
        effect("allowed %s", (const char *)sql);
    return STET_OK;
}

static int
h_refused(stet_ctx *ctx, stet_bytes input)
{
    static const char *const sql[] = {
        "COMMIT",
        "ROLLBACK",
        "DELETE FROM facts",
        "UPDATE runs SET status = 1",
        "INSERT INTO timers VALUES(1, 2, 3)",
        "DROP TABLE inbox",
        "ALTER TABLE runs ADD COLUMN mine",
        "CREATE TRIGGER tr AFTER INSERT ON facts BEGIN SELECT 1; END",
        "CREATE INDEX ix ON facts(data)",
        "PRAGMA synchronous=OFF",
        "ATTACH ':memory:' AS other"
    };

    for (size_t i = 0; i < sizeof sql / sizeof *sql; i++)
        STET_TRY(stet_step(ctx, NULL, "try", body_refused, (void *)(uintptr_t)sql[i],
                           STET_STEP(.transaction = true)));
    return stet_return(ctx, input);
}

TEST(I4_a_body_cannot_end_the_transaction_or_write_to_stets_tables)
{
    static const stet_handler handlers[] = { { "refused", h_refused, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    sqlite3                  *db = bank_up(f, handlers);
    stet_run_id               run;
    char                     *text;

    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.refused", "done", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    text = effects_text();
    CHECK_STR(text, "");
    free(text);
    bank_end(f, db);
}

/* Statements that do not end are ended; what was done before is rolled back. */
static int
body_endless(stet_attempt *a, void *arg)
{
    (void)arg;
    STET_TRY(body_sql(a, "INSERT INTO paid VALUES('eve', 1)"));
    if (sqlite3_exec(stet_attempt_sqlite(a),
                     "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
                     "SELECT count(*) FROM c",
                     NULL, NULL, NULL) == SQLITE_INTERRUPT)
        effect("interrupted");
    return STET_OK;
}

static int
h_endless(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_step(ctx, NULL, "endless", body_endless, NULL,
                        STET_STEP(.transaction = true, .timeout = "20ms", .attempts = 1));

    if (err != STET_ESTEP)
        return err;
    return stet_return(ctx, input);
}

TEST(I4_the_time_is_limited_and_late_is_rolled_back)
{
    static const stet_handler handlers[] = { { "endless", h_endless, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    sqlite3                  *db = bank_up(f, handlers);
    stet_run_id               run;

    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.endless", "late", NULL);
    EXPECT_RESULT(f->engine, &run, "late");
    CHECK_INT(effects("interrupted"), 1);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 0);
    bank_end(f, db);
}

static int
body_starts(stet_attempt *a, void *engine)
{
    int err = stet_start(engine, NULL, "t.nothing", stet_text(""), NULL);

    if (err != STET_EUSAGE || strstr(stet_last_error(), "stet_start_in") == NULL)
        return stet_attempt_fail(a, STET_EPERMANENT, "stet_start said %d", err);
    return stet_start_in(engine, stet_conn_sqlite(stet_attempt_sqlite(a)), NULL, "t.nothing",
                         stet_text("x"), NULL);
}

static fixture *the_fixture;

static int
h_starts(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "s", body_starts, the_fixture->engine,
                       STET_STEP(.transaction = true)));
    return stet_return(ctx, input);
}

static int
h_nothing(stet_ctx *ctx, stet_bytes input)
{
    return stet_return(ctx, input);
}

static const stet_handler start_handlers[] = { { "starts", h_starts, NULL },
                                               { "nothing", h_nothing, NULL },
                                               { 0 } };

/* It would wait for the transaction that waits for it. */
TEST(I4_inside_a_transactional_step_only_stet_start_in_starts)
{
    fixture    *f = fixture_begin();
    sqlite3    *db = bank_up(f, start_handlers);
    stet_run_id run;

    the_fixture = f;
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.starts", "done", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    AWAIT(fixture_count(f->engine, STET_FILTER(.statuses = 1u << STET_STATUS_COMPLETED)) == 2);
    bank_end(f, db);
}

/* ---- who else is there ----------------------------------------------------------------------- */

static int
body_count(stet_attempt *a, void *arg)
{
    (void)arg;
    return body_sql(a, "UPDATE total SET n = n + 1");
}

static int
h_count(stet_ctx *ctx, stet_bytes input)
{
    for (int i = 0; i < 3; i++)
        STET_TRY(stet_step(ctx, NULL, "add", body_count, NULL, STET_STEP(.transaction = true)));
    return stet_return(ctx, input);
}

static const stet_handler count_handlers[] = { { "count", h_count, NULL }, { 0 } };

TEST(I4_many_at_once_take_turns_and_count_exactly)
{
    enum { RUNS = 40 };
    fixture     *f = fixture_begin();
    sqlite3     *db = bank_up(f, count_handlers);
    stet_engine *other = fixture_open(f);
    stet_run_id  runs[RUNS];

    CHECK_OK(stet_engine_start(f->engine));
    fixture_register(other, (fixture_service[]){ { "t", count_handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_start(other));
    for (int i = 0; i < RUNS; i++)
        runs[i] = fixture_start(i % 2 ? other : f->engine, "t.count", "done", NULL);
    for (int i = 0; i < RUNS; i++)
        EXPECT_RESULT(f->engine, &runs[i], "done");
    CHECK_INT(bank_ask(db, "SELECT n FROM total"), 3 * RUNS);
    stet_close(other);
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
    int err;

    if (atomic_fetch_sub(&tx_left, 1) <= 0)
        return tx_inner->tx_commit(s, tx, unit, outcome);
    if (!tx_is_applied) {
        tx_inner->tx_rollback(s, tx);
        return stet__fail(tx_code, "by the test");
    }
    err = tx_inner->tx_commit(s, tx, unit, outcome);
    CHECK_OK(err);
    return stet__fail(tx_code, "by the test");
}

static int
h_policy(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "pay", body_pay, (void *)"ann",
                       STET_STEP(.transaction = true, .attempts = 3, .first_ms = 1)));
    return stet_return(ctx, stet_text("done"));
}

static void
answered(int code, bool is_applied, int bodies)
{
    static const stet_handler handlers[] = { { "policy", h_policy, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    sqlite3                  *db = bank_up(f, handlers);
    stet_run_id               run;

    tx_inner = f->engine->store->ops;
    damage_ops(f->engine)->tx_commit = tx_fails;
    tx_code = code;
    tx_is_applied = is_applied;
    atomic_store(&tx_left, 1);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.policy", "", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(effects("paying"), bodies);
    CHECK_INT(fixture_facts(f->engine, &run, "at risk", NULL), 0);
    bank_end(f, db);
}

TEST(I4_a_commit_that_failed_is_an_attempt_that_failed)
{
    answered(STET_EBUSY, false, 2);
}
TEST(I4_a_lost_reply_of_a_commit_that_was_applied)
{
    answered(STET_EUNCERTAIN, true, 1);
}
TEST(I4_a_lost_reply_of_a_commit_that_was_not)
{
    answered(STET_EUNCERTAIN, false, 2);
}

/* The first commit is refused by the application itself, as a deferred constraint would. */
static int
veto_once(void *arg)
{
    (void)arg;
    effect("vetoed");
    return effects("vetoed") == 1;
}

static int
body_vetoed(stet_attempt *a, void *arg)
{
    sqlite3_commit_hook(stet_attempt_sqlite(a), veto_once, NULL);
    return body_pay(a, arg);
}

static int
h_vetoed(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "pay", body_vetoed, (void *)"ann",
                       STET_STEP(.transaction = true, .attempts = 3, .first_ms = 1)));
    return stet_return(ctx, stet_text("done"));
}

TEST(I4_a_commit_the_application_refuses_is_an_attempt_that_failed_and_harms_no_other)
{
    static const stet_handler handlers[] = { { "vetoed", h_vetoed, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    sqlite3                  *db = bank_up(f, handlers);
    stet_run_id               run;

    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.vetoed", "", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(effects("paying"), 2);
    CHECK_INT(fixture_facts(f->engine, &run, "at risk", NULL), 0);
    CHECK_INT(fixture_logged(f, "flush failed"), 0);
    bank_end(f, db);
}

/* The run was taken from the worker while the body ran. */
static int
body_robbed(stet_attempt *a, void *arg)
{
    stet_id run;
    char    sql[256], hex[33];

    (void)arg;
    STET_TRY(body_sql(a, "INSERT INTO paid VALUES('mallory', 1)"));
    effect("robbed");
    if (effects("robbed") > 1)
        return STET_OK;
    /* No other connection can write now, so the theft is done inside. */
    CHECK_OK(stet__id_parse(&run, STET__ID_RUN, stet_attempt_run(a)));
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", run.bytes[i]);
    sqlite3_set_authorizer(stet_attempt_sqlite(a), NULL, NULL);
    (void)snprintf(sql, sizeof sql, "UPDATE runs SET epoch = epoch + 1 WHERE id = x'%s'", hex);
    return body_sql(a, sql);
}

static int
h_robbed(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "pay", body_robbed, NULL, STET_STEP(.transaction = true)));
    return stet_return(ctx, input);
}

TEST(I4_a_worker_that_lost_its_claim_changes_nothing)
{
    static const stet_handler handlers[] = { { "robbed", h_robbed, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    sqlite3                  *db = bank_up(f, handlers);
    stet_run_id               run;

    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.robbed", "done", NULL);
    AWAIT(fixture_logged(f, "fenced") > 0);
    /* The theft was rolled back too: whoever comes next has the run, perhaps this worker. */
    fixture_down(f);
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK(effects("robbed") >= 2);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    bank_end(f, db);
}

/* ---- usage ----------------------------------------------------------------------------------- */

static int
body_none(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_sqlite(a) == NULL && stet_attempt_postgres(a) == NULL ? STET_OK
                                                                              : STET_EPERMANENT;
}

static int
h_usage(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;

    if (stet_step_start(ctx, &future, "s", body_none, NULL, STET_STEP(.transaction = true)) !=
        STET_EUSAGE)
        effect("as a future");
    if (stet_step(ctx, NULL, "s", body_none, NULL,
                  STET_STEP(.transaction = true, .timeout = "1h")) == STET_OK)
        effect("for an hour");
    STET_TRY(stet_step(ctx, NULL, "s", body_none, NULL, NULL));
    return stet_return(ctx, input);
}

TEST(I4_wrong_uses_are_told_and_change_nothing)
{
    static const stet_handler handlers[] = { { "usage", h_usage, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    char                     *text;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.usage", "done", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    text = effects_text();
    CHECK_STR(text, "");
    free(text);
    fixture_end(f);
}

static int
h_no_tx(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_step(ctx, NULL, "s", body_none, NULL, STET_STEP(.transaction = true));

    (void)input;
    return stet_return(ctx, stet_text(err == STET_EUSAGE ? stet_failure_get(ctx)->text : "?"));
}

TEST(I4_a_store_without_transactions_says_so)
{
    static const stet_handler handlers[] = { { "no", h_no_tx, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    if (f->db == NULL)
        test_skip("this store has them");
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.no", "", NULL);
    EXPECT_RESULT(f->engine, &run,
                  "step s: this store has no transactions; use SQLite or PostgreSQL");
    CHECK_CODE(stet_start_in(f->engine, stet_conn_sqlite(NULL), NULL, "t.no", stet_text(""), NULL),
               STET_EUSAGE);
    fixture_end(f);
}

/* ---- starts inside a transaction ------------------------------------------------------------- */

static const stet_handler nothing_handlers[] = { { "nothing", h_nothing, NULL }, { 0 } };

TEST(I4_a_start_in_a_transaction_is_there_if_it_commits)
{
    fixture    *f = fixture_begin();
    sqlite3    *db = bank_up(f, nothing_handlers);
    stet_conn   conn = stet_conn_sqlite(db);
    stet_run_id no, yes;

    CHECK_OK(stet_engine_start(f->engine));
    bank_sql(db, "BEGIN IMMEDIATE; INSERT INTO paid VALUES('ann', 1)");
    CHECK_OK(stet_start_in(f->engine, conn, &no, "t.nothing", stet_text("no"), NULL));
    bank_sql(db, "ROLLBACK");
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    bank_sql(db, "BEGIN IMMEDIATE; INSERT INTO paid VALUES('ann', 1)");
    CHECK_OK(stet_start_in(f->engine, conn, &yes, "t.nothing", stet_text("yes"), NULL));
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    bank_sql(db, "COMMIT");
    stet_engine_nudge(f->engine);
    EXPECT_RESULT(f->engine, &yes, "yes");
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    bank_end(f, db);
}

static int
body_starts_elsewhere(stet_attempt *a, void *engine)
{
    return stet_start_in(engine, stet_conn_sqlite(stet_attempt_sqlite(a)), NULL, "p.later",
                         stet_text(""), NULL);
}

static int
h_starts_elsewhere(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "s", body_starts_elsewhere, the_fixture->engine,
                       STET_STEP(.transaction = true)));
    return stet_return(ctx, input);
}

static int
on_attempts(void *arg, const stet_run_info *info)
{
    *(uint32_t *)arg = info->attempts_max;
    return STET_OK;
}

/* Its options are read while the transaction is open. */
TEST(D15_a_start_in_a_transaction_has_the_options_of_a_handler_that_is_elsewhere)
{
    static const stet_handler_options seven = { .retry = { .attempts = 7 } };
    static const stet_handler         elsewhere[] = { { "f", h_nothing, &seven },
                                                      { "later", h_nothing, &seven },
                                                      { 0 } };
    static const stet_handler         here[] = { { "starts", h_starts_elsewhere, NULL }, { 0 } };
    fixture                          *f = fixture_begin();
    sqlite3                          *db;
    stet_run_id                       run;
    uint32_t                          attempts = 0;

    fixture_up(f, (fixture_service[]){ { "p", elsewhere, false, NULL }, { 0 } });
    fixture_down(f);
    db = bank_up(f, here);
    the_fixture = f;
    CHECK_OK(stet_engine_start(f->engine));
    bank_sql(db, "BEGIN IMMEDIATE; INSERT INTO paid VALUES('ann', 1)");
    CHECK_OK(stet_start_in(f->engine, stet_conn_sqlite(db), &run, "p.f", stet_text(""), NULL));
    CHECK_CODE(stet_start_in(f->engine, stet_conn_sqlite(db), NULL, "p.f", stet_text(""),
                             STET_START(.key = "k")),
               STET_EKEY);
    bank_sql(db, "COMMIT");
    CHECK_INT(fixture_look(f->engine, &run).attempts_max, 7);
    run = fixture_start(f->engine, "t.starts", "done", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    CHECK_OK(stet_run_list(f->engine, STET_FILTER(.handler = "p.later"), on_attempts, &attempts));
    CHECK_INT(attempts, 7);
    bank_end(f, db);
}

TEST(I4_an_idempotency_key_holds_inside_a_transaction)
{
    fixture           *f = fixture_begin();
    sqlite3           *db = bank_up(f, nothing_handlers);
    stet_conn          conn = stet_conn_sqlite(db);
    bool               existed = false;
    stet_start_options o = *STET_START(.idempotency_key = "order-1", .existed = &existed);
    stet_run_id        first, again;

    bank_sql(db, "BEGIN IMMEDIATE");
    CHECK_OK(stet_start_in(f->engine, conn, &first, "t.nothing", stet_text("x"), &o));
    CHECK(!existed);
    CHECK_CODE(stet_start_in(f->engine, conn, &again, "t.nothing", stet_text("x"), &o),
               STET_ECONFLICT);
    bank_sql(db, "COMMIT");
    bank_sql(db, "BEGIN IMMEDIATE; INSERT INTO paid VALUES('ann', 1)");
    CHECK_OK(stet_start_in(f->engine, conn, &again, "t.nothing", stet_text("x"), &o));
    CHECK(existed);
    CHECK_STR(again.text, first.text);
    bank_sql(db, "COMMIT"); /* what was refused left the rest of it alone */
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_OK(stet_engine_start(f->engine));
    EXPECT_RESULT(f->engine, &first, "x");
    CHECK_INT(fixture_count(f->engine, NULL), 1);
    bank_end(f, db);
}

TEST(I4_an_object_started_in_a_transaction_waits_for_its_key)
{
    static const fixture_service services[] = { { "o", nothing_handlers, true, NULL }, { 0 } };
    fixture                     *f = fixture_begin();
    sqlite3                     *db = bank_up(f, pay_handlers);
    stet_run_id                  runs[3];

    fixture_register(f->engine, services);
    bank_sql(db, "BEGIN IMMEDIATE");
    for (int i = 0; i < 3; i++)
        CHECK_OK(stet_start_in(f->engine, stet_conn_sqlite(db), &runs[i], "o.nothing",
                               stet_text("x"), STET_START(.key = "k")));
    bank_sql(db, "COMMIT");
    CHECK_OK(stet_engine_start(f->engine));
    for (int i = 0; i < 3; i++)
        EXPECT_RESULT(f->engine, &runs[i], "x");
    bank_end(f, db);
}

TEST(I4_a_wrong_connection_is_told)
{
    fixture    *f = fixture_begin();
    sqlite3    *db = bank_up(f, nothing_handlers), *other = NULL;
    stet_run_id run;

    CHECK_CODE(
        stet_start_in(f->engine, stet_conn_sqlite(db), &run, "t.nothing", stet_text(""), NULL),
        STET_ESTATE);
    CHECK_HAS(stet_last_error(), "begin one");
    CHECK_CODE(
        stet_start_in(f->engine, stet_conn_postgres(NULL), &run, "t.nothing", stet_text(""), NULL),
        STET_EUSAGE);
    CHECK_INT(sqlite3_open(":memory:", &other), SQLITE_OK);
    bank_sql(other, "BEGIN");
    CHECK_CODE(
        stet_start_in(f->engine, stet_conn_sqlite(other), &run, "t.nothing", stet_text(""), NULL),
        STET_EMISMATCH);
    sqlite3_close(other);
    bank_sql(db, "BEGIN IMMEDIATE; INSERT INTO paid VALUES('ann', 1)");
    CHECK_CODE(stet_start_in(f->engine, stet_conn_sqlite(db), &run, "no name", stet_text(""), NULL),
               STET_ENAME);
    CHECK_CODE(stet_start_in(f->engine, stet_conn_sqlite(db), &run, "t.nothing", stet_text(""),
                             STET_START(.parent = &run)),
               STET_EUSAGE);
    bank_sql(db, "COMMIT");
    CHECK_INT(bank_ask(db, "SELECT count(*) FROM paid"), 1);
    CHECK_INT(fixture_count(f->engine, NULL), 0);
    bank_end(f, db);
}
