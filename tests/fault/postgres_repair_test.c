/* Tables of a PostgreSQL store that are lost: projections are rebuilt from the facts and everything
 * is as it was, sources are not made up, and nothing is rebuilt beside a worker that lives. */
#include <libpq-fe.h>

#include "lost.h"

/* Before the fixture looks which store it is to use. */
__attribute__((constructor(101))) static void
repair_store(void)
{
    setenv("STET_TEST_STORE", "postgres", 1);
}

/* A connection that sees the tables of the fixture without their schema. */
static PGconn *
repair_connect(const fixture *f)
{
    const char *schema = strstr(f->url, "&schema=");
    char        url[512], sql[128];
    PGconn     *db;

    CHECK(schema != NULL);
    (void)snprintf(url, sizeof url, "%.*s", (int)(schema - f->url), f->url);
    db = PQconnectdb(url);
    CHECK(PQstatus(db) == CONNECTION_OK);
    (void)snprintf(sql, sizeof sql, "SET search_path=%s; SET client_min_messages=error",
                   schema + 8);
    PQclear(PQexec(db, sql));
    return db;
}

static void
repair_sql(const fixture *f, const char *sql)
{
    PGconn   *db = repair_connect(f);
    PGresult *res = PQexec(db, sql);

    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    PQclear(res);
    PQfinish(db);
}

/* All that a reader of the projections can see, but for epochs and due times that have passed. */
static const char repair_runs[] =
    "SELECT "
    "'run',id,handler,key,lane,status,terminal,inbox,created,ended,priority,attempt,grp,reason,"
    "extra,session,idle,CASE WHEN due<extract(epoch FROM now())*1000+60000 THEN 'now' ELSE "
    "due::text "
    "END,(SELECT count(*) FROM runs b WHERE b.lane=r.lane AND b.lane_pos<r.lane_pos) FROM runs r "
    "ORDER BY id";
static const char repair_timers[] =
    "SELECT 'timer',fire,run,completion FROM timers ORDER BY fire,run,completion";
static const char repair_values[] =
    "SELECT 'value',space,key,data,run,rev,space='awk' AND version>1 FROM vals "
    "WHERE space<>'handler' ORDER BY space,key"; /* workers write what their handlers ask for */
static const char repair_parts[] =
    "SELECT 'part',relkind,relname FROM pg_class WHERE relnamespace=current_schema()::regnamespace "
    "AND relkind IN ('r','i') ORDER BY relname";

static const char *const repair_queries[] = { repair_runs, repair_timers, repair_values,
                                              repair_parts };

static char *
repair_text(const fixture *f)
{
    PGconn *db = repair_connect(f);
    char   *text = NULL;
    size_t  len = 0;
    FILE   *out = open_memstream(&text, &len);

    CHECK(out != NULL);
    for (size_t q = 0; q < sizeof repair_queries / sizeof *repair_queries; q++) {
        PGresult *res = PQexec(db, repair_queries[q]);

        if (PQresultStatus(res) != PGRES_TUPLES_OK)
            test_fail(__FILE__, __LINE__, "%s", PQerrorMessage(db));
        for (int i = 0; i < PQntuples(res); i++)
            for (int c = 0; c < PQnfields(res); c++)
                fprintf(out, "%s%s", PQgetvalue(res, i, c), c + 1 < PQnfields(res) ? "|" : "\n");
        PQclear(res);
    }
    fclose(out);
    PQfinish(db);
    return text;
}

/* Lose it, be refused, rebuild it, find everything as it was, go on. */
static void
lose(const char *sql, const char *named)
{
    lost_story   story;
    fixture     *f = fixture_begin();
    stet_engine *e = NULL;
    char        *before, *after;
    int          findings, repaired;

    lost_fill(f, &story);
    before = repair_text(f);
    repair_sql(f, sql);
    CHECK_CODE(stet_open(&e, f->url, &f->options), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), named);
    CHECK_HAS(stet_last_error(), "verify --repair");
    lost_repair(f->url, &findings, &repaired);
    CHECK(findings > 0);
    CHECK_INT(repaired, findings);
    test_note("%d repairs", repaired);
    after = repair_text(f);
    CHECK_STR(after, before);
    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, 0);
    lost_goes_on(f, &story);
    free(before);
    free(after);
    fixture_end(f);
}

TEST(F2_postgres_the_table_of_runs_is_rebuilt) { lose("DROP TABLE runs", "table runs"); }
TEST(F2_postgres_the_table_of_timers_is_rebuilt) { lose("DROP TABLE timers", "table timers"); }
TEST(F2_postgres_the_table_of_values_is_rebuilt) { lose("DROP TABLE vals", "table vals"); }
TEST(F2_postgres_all_projections_at_once_are_rebuilt)
{
    lose("DROP TABLE runs; DROP TABLE timers; DROP TABLE vals", "table runs");
}

TEST(F2_postgres_lost_facts_and_baselines_are_not_made_up)
{
    static const char *const tables[] = { "facts", "inbox", "base", "meta" };

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        fixture     *f = fixture_begin();
        stet_engine *e = NULL;
        char         url[512], sql[64];

        f->engine = fixture_open(f);
        fixture_down(f);
        (void)snprintf(sql, sizeof sql, "DROP TABLE %s", tables[i]);
        repair_sql(f, sql);
        (void)snprintf(url, sizeof url, "%s&repair=1", f->url);
        CHECK_CODE(stet_open(&e, f->url, &f->options), STET_ECORRUPT);
        CHECK_HAS(stet_last_error(), "restore a backup");
        CHECK_CODE(stet_open(&e, url, &f->options), STET_ECORRUPT);
        CHECK_HAS(stet_last_error(), tables[i]);
        fixture_end(f);
    }
}

TEST(F2_postgres_a_lost_index_and_lost_sessions_are_made_again)
{
    static const stet_handler handlers[] = { { "approval", h_approval, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    char                     *before, *after;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    before = repair_text(f);
    repair_sql(f, "DROP INDEX runs_due; DROP TABLE sessions; DROP TABLE committers");
    fixture_up_with(f, handlers);
    after = repair_text(f);
    CHECK_STR(after, before);
    CHECK_OK(stet_resolve(f->engine, handed_out, stet_text("yes")));
    EXPECT_RESULT(f->engine, &run, "yes");
    free(before);
    free(after);
    fixture_end(f);
}

TEST(F2_postgres_tables_are_not_rebuilt_beside_a_worker)
{
    static const stet_handler handlers[] = { { "approval", h_approval, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *e = NULL;
    char                      url[512];

    fixture_up_with(f, handlers);
    repair_sql(f, "DROP TABLE timers");
    (void)snprintf(url, sizeof url, "%s&repair=1", f->url);
    CHECK_CODE(stet_open(&e, url, &f->options), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "stop them");
    CHECK_OK(stet_engine_stop(f->engine, 0));
    stet_close(f->engine);
    f->engine = NULL;
    CHECK_OK(stet_open(&e, url, &f->options));
    /* Half way: nobody else may begin to work on it. */
    CHECK_CODE(stet_open(&f->engine, f->url, &f->options), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "interrupted");
    CHECK_OK(stet_repair(e, NULL, NULL, NULL));
    stet_close(e);
    f->engine = fixture_open(f);
    fixture_end(f);
}
