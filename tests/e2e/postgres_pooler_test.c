/* Everything works behind PgBouncer with transaction pooling, where no two transactions need to
 * meet the same server process: nothing is prepared, nothing is listened to, and the engine polls
 * and says so once.
 */
#include <libpq-fe.h>
#include <unistd.h>

#include "cluster.h"
#include "fixture.h"
#include "pooler.h"

__attribute__((constructor)) static void
pool_server(void)
{
    setenv("STET_TEST_STORE", "postgres", 1);
    test_before(cluster_share);
}

static const char *
pool_schema(void)
{
    static char schema[32];

    (void)snprintf(schema, sizeof schema, "pool_%s", test_unique());
    return schema;
}

static fixture *
pool_begin(const pooler *p)
{
    fixture *f = fixture_begin();

    free((void *)(uintptr_t)f->url);
    f->url = strdup(pooler_url(p, pool_schema()));
    f->options.poll_ms = 50;
    f->options.wait_poll_ms = 20;
    return f;
}

/* ---- handlers -------------------------------------------------------------------------------- */

static int
body_insert(stet_attempt *a, void *arg)
{
    PGresult *res;
    bool      is_ok;

    res = PQexec(stet_attempt_postgres(a), arg);
    is_ok = PQresultStatus(res) == PGRES_COMMAND_OK;
    PQclear(res);
    return is_ok ? STET_OK : STET_ERETRY;
}

static int
h_books(stet_ctx *ctx, stet_bytes input)
{
    char sql[96];

    (void)snprintf(sql, sizeof sql, "INSERT INTO %s_app.moves VALUES('%.*s')", pool_schema(),
                   (int)input.len, (const char *)input.data);
    STET_TRY(stet_step(ctx, NULL, "write", body_insert, sql, STET_STEP(.transaction = true)));
    STET_TRY(stet_step(ctx, NULL, "say", body_effect, (void *)"said", NULL));
    return stet_return(ctx, input);
}

static int
h_count(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    char       text[24];

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "n"));
    (void)snprintf(text, sizeof text, "%ld", fixture_number(value) + 1);
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

static const stet_handler    pool_plain[] = { { "books", h_books, NULL },
                                              { "nap", h_short_nap, NULL },
                                              { "caller", h_caller, NULL },
                                              { "approval", h_approval, NULL },
                                              { 0 } };
static const stet_handler    pool_object[] = { { "count", h_count, NULL }, { 0 } };
static const fixture_service pool_services[] = { { "t", pool_plain, false, NULL },
                                                 { "o", pool_object, true, NULL },
                                                 { 0 } };

/* ---- the tests ------------------------------------------------------------------------------- */

static int
pool_ask(const char *sql)
{
    PGconn   *db = PQconnectdb(getenv(CLUSTER_ENV));
    PGresult *res = PQexec(db, sql);
    int       n = PQntuples(res) > 0 ? (int)strtol(PQgetvalue(res, 0, 0), NULL, 10) : 0;

    CHECK(PQresultStatus(res) == PGRES_COMMAND_OK || PQresultStatus(res) == PGRES_TUPLES_OK);
    PQclear(res);
    PQfinish(db);
    return n;
}

static void
pool_books(void)
{
    char sql[128];

    (void)snprintf(sql, sizeof sql, "CREATE SCHEMA %s_app; CREATE TABLE %s_app.moves(what text)",
                   pool_schema(), pool_schema());
    (void)pool_ask(sql);
}

enum { POOL_RUNS = 40 };

TEST_LIMIT(G3_everything_works_behind_pgbouncer_and_it_is_said_once_that_hints_are_missing, 120)
{
    pooler      *p = pooler_new(3); /* far fewer than the engines have connections */
    fixture     *f = pool_begin(p);
    stet_engine *client;
    stet_run_id  books[POOL_RUNS], count[POOL_RUNS], nap, caller, approval;
    char         text[96];

    pool_books();
    fixture_up(f, pool_services);
    CHECK_INT(fixture_logged(f, "a pooler stands before the server"), 1);
    client = fixture_open(f); /* another process would be no different */
    approval = fixture_start(client, "t.approval", "", NULL);
    nap = fixture_start(client, "t.nap", "", NULL);
    caller = fixture_start(client, "t.caller", "", NULL);
    for (int i = 0; i < POOL_RUNS; i++) {
        (void)snprintf(text, sizeof text, "%d", i);
        books[i] = fixture_start(client, "t.books", text, STET_START(.idempotency_key = text));
        count[i] = fixture_start(client, "o.count", "", STET_START(.key = "one"));
    }
    effects_await("handed out", 1);
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    EXPECT_RESULT(client, &approval, "yes");
    EXPECT_RESULT(client, &nap, "woke");
    EXPECT_RESULT(client, &caller, "woke");
    for (int i = 0; i < POOL_RUNS; i++) {
        (void)snprintf(text, sizeof text, "%d", i);
        EXPECT_RESULT(client, &books[i], text);
        (void)snprintf(text, sizeof text, "%d", i + 1);
        EXPECT_RESULT(client, &count[i], text);
    }
    (void)snprintf(text, sizeof text, "SELECT count(DISTINCT what)*1000+count(*) FROM %s_app.moves",
                   pool_schema());
    CHECK_INT(pool_ask(text), POOL_RUNS * 1000 + POOL_RUNS); /* each once */
    CHECK_INT(effects("said"), POOL_RUNS);
    CHECK_INT(fixture_logged(f, "a pooler stands before the server"), 1);
    stet_close(client);
    fixture_end(f);
    pooler_free(p);
}

/* It comes back, and everything goes on. */
TEST_LIMIT(G3_a_pooler_that_is_restarted_is_found_again, 120)
{
    pooler     *p = pooler_new(3);
    fixture    *f = pool_begin(p);
    stet_run_id run;
    int         port = p->port;

    fixture_up(f, common_services);
    run = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&common_door, 1);
    pooler_free(p);
    gate_open(&common_door); /* what the body did cannot be recorded now */
    AWAIT(fixture_logged(f, "commit") > 0);
    p = pooler_new_at(port, 3);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_end(f);
    pooler_free(p);
}
