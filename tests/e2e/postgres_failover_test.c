/* A primary that takes no more writes, and another server in its place: the worker says what is
 * wrong in its log and its health, tries again, and goes on with whoever takes writes. It is never
 * alive but deaf: also its reads and hints come from the new one. */
#include <libpq-fe.h>
#include <poll.h>

#include "cluster.h"
#include "fixture.h"

__attribute__((constructor)) static void
failover_store(void)
{
    setenv("STET_TEST_STORE", "postgres", 1);
    test_before(cluster_share);
}

/* ---- servers --------------------------------------------------------------------------------- */

/* The first column of the first row, in a static buffer; "" for none. */
static const char *
server_ask(const cluster *c, const char *sql)
{
    static char text[128];
    char        conninfo[256];
    PGconn     *db;
    PGresult   *res;

    (void)snprintf(conninfo, sizeof conninfo,
                   "host=%s port=%d user=%s dbname=postgres "
                   "options='-c default_transaction_read_only=off'",
                   c->dir, c->port, CLUSTER_USER);
    db = PQconnectdb(conninfo);
    res = PQexec(db, sql);
    if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    (void)snprintf(text, sizeof text, "%s", PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
    PQclear(res);
    PQfinish(db);
    return text;
}

static void
server_read_only(const cluster *c, bool is_read_only)
{
    (void)server_ask(c, is_read_only ? "ALTER SYSTEM SET default_transaction_read_only=on"
                                     : "ALTER SYSTEM SET default_transaction_read_only=off");
    (void)server_ask(c, "SELECT pg_reload_conf()");
}

/* ---- what is seen of it ---------------------------------------------------------------------- */

static fixture *
failover_begin(const char *url)
{
    fixture *f = fixture_begin();

    free((void *)(uintptr_t)f->url);
    f->url = strdup(url);
    f->options.lease_ms = 60000; /* nobody else is there to take the runs */
    f->options.renew_ms = 500;
    return f;
}

static bool
health_says(stet_engine *e, bool is_ready, const char *part)
{
    stet_health health;

    CHECK_OK(stet_health_get(e, &health));
    return health.is_alive && health.is_ready == is_ready && strstr(health.text, part) != NULL;
}

TEST_LIMIT(G3_a_server_that_becomes_read_only_is_told_and_gone_on_with, 120)
{
    cluster    *c = cluster_new();
    fixture    *f;
    stet_run_id run, after;

    CHECK(c != NULL);
    f = failover_begin(cluster_url_of(c, "ro"));
    fixture_up(f, common_services);
    run = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&common_door, 1);
    CHECK(health_says(f->engine, true, "the store answers"));
    server_read_only(c, true);
    AWAIT(health_says(f->engine, false, "read-only")); /* its processes have heard of it */
    gate_open(&common_door); /* what the body did cannot be recorded now */
    AWAIT(fixture_logged(f, "read-only") > 0);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_RUNNING);
    server_read_only(c, false);
    EXPECT_RESULT(f->engine, &run, "ok");
    AWAIT(health_says(f->engine, true, "the store answers"));
    after = fixture_start(f->engine, "t.quick", "more", NULL);
    EXPECT_RESULT(f->engine, &after, "more");
    fixture_end(f);
    cluster_free(c);
}

/* An idle worker finds out, too. */
TEST_LIMIT(G3_an_idle_worker_says_that_the_server_is_read_only, 120)
{
    cluster *c = cluster_new();
    fixture *f;

    CHECK(c != NULL);
    f = failover_begin(cluster_url_of(c, "ro"));
    fixture_up(f, common_services);
    server_read_only(c, true);
    AWAIT(fixture_logged(f, "read-only") > 0);
    AWAIT(health_says(f->engine, false, "read-only"));
    server_read_only(c, false);
    AWAIT(health_says(f->engine, true, "the store answers"));
    fixture_end(f);
    cluster_free(c);
}

/* ---- another server -------------------------------------------------------------------------- */

static void
failover(bool is_killed)
{
    cluster    *old = cluster_new(), *next = old != NULL ? cluster_standby(old) : NULL;
    fixture    *f;
    stet_run_id door, approval, after;
    char        url[400], position[64], sql[160];

    CHECK(old != NULL && next != NULL);
    (void)snprintf(url, sizeof url,
                   "postgres://%s@/postgres?host=%s,%s&port=%d,%d&"
                   "target_session_attrs=read-write&schema=two",
                   CLUSTER_USER, old->dir, next->dir, old->port, next->port);
    f = failover_begin(url);
    f->options.poll_ms = 3600000; /* so that work from elsewhere comes by hint */
    fixture_up(f, common_services);
    approval = fixture_start(f->engine, "t.approval", "", NULL);
    effects_await("handed out", 1);
    fixture_await_status(f->engine, &approval, STET_STATUS_SUSPENDED);
    door = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&common_door, 1);
    server_read_only(old, true);
    (void)snprintf(position, sizeof position, "%s",
                   server_ask(old, "SELECT pg_current_wal_flush_lsn()"));
    (void)snprintf(sql, sizeof sql, "SELECT pg_last_wal_replay_lsn()>='%s'::pg_lsn", position);
    AWAIT(strcmp(server_ask(next, sql), "t") == 0);
    if (is_killed)
        cluster_free(old);
    gate_open(&common_door);
    AWAIT(fixture_logged(f, "a commit of") > 0); /* nobody takes it: one is gone, one follows */
    CHECK_STR(server_ask(next, "SELECT pg_promote()"), "t");
    server_read_only(next, false); /* the setting came with the copy's log or not */
    EXPECT_RESULT(f->engine, &door, "ok");
    AWAIT(health_says(f->engine, true, "the store answers"));
    {
        /* Somebody else, who knows only the new one. */
        stet_engine *other;
        stet_run_id  run;

        CHECK_OK(stet_open(&other, cluster_url_of(next, "two"), NULL));
        CHECK_OK(stet_resolve(other, handed_out, stet_text("yes")));
        run = fixture_start(other, "t.quick", "by hint", NULL);
        EXPECT_RESULT(f->engine, &run, "by hint");
        stet_close(other);
    }
    EXPECT_RESULT(f->engine, &approval, "yes");
    after = fixture_start(f->engine, "t.quick", "more", NULL);
    EXPECT_RESULT(f->engine, &after, "more");
    fixture_end(f);
    cluster_free(next);
    if (!is_killed)
        cluster_free(old);
}

TEST_LIMIT(G3_a_worker_goes_on_with_the_standby_when_the_primary_dies, 180)
{
    failover(true);
}

TEST_LIMIT(G3_a_worker_leaves_a_primary_that_only_reads_for_the_one_that_writes, 180)
{
    failover(false);
}
