/* A fleet on one PostgreSQL server: ten workers are killed, stopped beyond their leases, cut off
 * from the server at statements and answers, and the server is restarted at once, all at random
 * (STET_TEST_SEED) under load. No run is lost, no recorded step is repeated, everything ends.
 */
#include <libpq-fe.h>
#include <signal.h>

#include "crew.h"
#include "proxy.h"
#include "test.h"

enum { WORKERS = 10, ROUNDS = 18, WAVE = 25, LEASE_MS = 2000 };

static char fleet_direct[400], fleet_proxied[400];

/* Every other worker is behind the proxy. */
static const char *
fleet_url(int i)
{
    return i % 2 == 0 ? fleet_direct : fleet_proxied;
}

/* The server ends some connections of the workers, whatever they are at. */
static void
fleet_cut(const cluster *server, int n)
{
    char    sql[200];
    PGconn *db;

    (void)snprintf(sql, sizeof sql, "host=%s port=%d user=%s dbname=postgres", server->dir,
                   server->port, CLUSTER_USER);
    db = PQconnectdb(sql);
    (void)snprintf(sql, sizeof sql,
                   "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                   "application_name='stet' ORDER BY random() LIMIT %d",
                   n);
    /* It may be starting just now: then there is nothing to cut. */
    PQclear(PQexec(db, sql));
    PQfinish(db);
}

static void
fleet_restart(crew *c, const cluster *server)
{
    pid_t pid = cluster_server(server);

    if (pid <= 0)
        return; /* it is down already */
    crew_restart(c);
    (void)kill(pid, SIGQUIT); /* as pg_ctl restart -m immediate; its keeper starts it again */
}

static void
fleet_strike(crew *c, const cluster *server, proxy *p, int round)
{
    int at = crew_draw(c, WORKERS);

    if (round == ROUNDS / 3 || round == 2 * ROUNDS / 3)
        fleet_restart(c, server);
    switch (crew_draw(c, 6)) {
    case 0:
    case 1: crew_kill(c, at, fleet_url(at)); break;
    case 2: crew_stop(c, at); break;
    case 3: fleet_cut(server, 1 + crew_draw(c, 8)); break;
    case 4: proxy_fault_next(p, PROXY_LOSE_ANSWER, "stet0"); break;
    case 5: proxy_fault_next(p, PROXY_LOSE_REQUEST, ""); break;
    }
}

TEST_LIMIT(G8_a_postgres_fleet_loses_and_repeats_nothing_when_workers_and_the_server_die, 180)
{
    static crew  c;
    cluster     *server = cluster_new();
    proxy       *p;
    stet_engine *e;

    CHECK(server != NULL);
    crew_begin(&c, LEASE_MS);
    setenv(CLUSTER_ENV, cluster_url_of(server, NULL), 1); /* for the proxy */
    p = proxy_new();
    (void)snprintf(fleet_direct, sizeof fleet_direct, "%s", cluster_url_of(server, "fleet"));
    (void)snprintf(fleet_proxied, sizeof fleet_proxied, "%s", proxy_url(p, "fleet", ""));
    for (int i = 0; i < WORKERS; i++)
        crew_hire(&c, fleet_url(i));
    CHECK_OK(stet_open(
        &e, fleet_direct,
        STET_OPTIONS(.roles = STET_ROLE_CLIENT, .wait_poll_ms = 50, .log_level = STET_LOG_ERROR)));
    CHECK_OK(stet_engine_start(e));
    for (int round = 0; round < ROUNDS; round++) {
        crew_start(&c, e, WAVE);
        crew_await_executed(&c, (round * WAVE + WAVE / 2) * CREW_STEPS);
        fleet_strike(&c, server, p, round);
    }
    if (c.stopped == 0)
        crew_stop(&c, crew_draw(&c, WORKERS)); /* others go on with what it had */
    crew_await_runs(&c, e);
    crew_continue(&c); /* it is refused whatever it still wants to record */
    crew_start(&c, e, WAVE);
    crew_await_runs(&c, e);
    test_note("%d connections cut by the proxy", proxy_faults(p));
    crew_end(&c);
    crew_audit(&c);
    crew_verify(e);
    stet_close(e);
    proxy_free(p);
    cluster_free(server);
}
