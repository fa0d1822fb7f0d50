/* The flow of flow.c on PostgreSQL, and several processes on it: a server of the benchmark's own,
 * made by initdb, durable as it comes. */
#include "bench.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster.h"
#include "raw_postgres.h"

#define POSTGRES_WARM_UP 2048
#define POSTGRES_ROUND_S 0.7

static int64_t
postgres_total(double per_second)
{
    int64_t total = (int64_t)(per_second * POSTGRES_ROUND_S);

    return total < BENCH_IN_FLIGHT ? BENCH_IN_FLIGHT : total / BENCH_IN_FLIGHT * BENCH_IN_FLIGHT;
}

typedef struct postgres {
    cluster *c;
    raw_pg  *hand;
    char     conninfo[256];
} postgres;

static void
postgres_begin(postgres *p)
{
    if ((p->c = cluster_new()) == NULL)
        bench_fail("no PostgreSQL: %s", cluster_why());
    (void)snprintf(p->conninfo, sizeof p->conninfo, "host=%s port=%d user=%s dbname=postgres",
                   p->c->dir, p->c->port, CLUSTER_USER);
    p->hand = raw_pg_open(p->conninfo);
}

static void
postgres_end(postgres *p)
{
    raw_pg_close(p->hand);
    cluster_free(p->c);
}

void
bench_postgres_steps3(bench_result *r)
{
    postgres     p;
    bench_rounds rounds = { .n = 0 };
    stet_engine *e;
    int64_t      stet_total, raw_total;

    postgres_begin(&p);
    e = bench_worker(cluster_url_of(p.c, "bench"));
    stet_total = postgres_total(bench_flow(e, "bench.steps3", POSTGRES_WARM_UP, 0));
    raw_total =
        postgres_total(POSTGRES_WARM_UP / raw_pg_steps3(p.hand, BENCH_IN_FLIGHT, POSTGRES_WARM_UP));
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        double stet_rate = bench_flow(e, "bench.steps3", stet_total, 0);

        bench_rounds_add(&rounds, stet_rate,
                         (double)raw_total / raw_pg_steps3(p.hand, BENCH_IN_FLIGHT, raw_total));
    }
    bench_worker_close(e);
    postgres_end(&p);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 0.4;
}

/* ---- several processes ----------------------------------------------------------------------- */

static char *
postgres_url(void *arg, const char *name)
{
    const postgres *p = arg;

    return strdup(cluster_url_of(p->c, name));
}

static void
postgres_commits(void *arg, int n, double *seconds)
{
    raw_pg_commits_each(((const postgres *)arg)->hand, n, seconds);
}

typedef struct postgres_counts {
    double transactions, renewals;
} postgres_counts;

/* Every statement of the store but a commit's is a transaction of its own; renewals are the updates
 * of the table of sessions. */
static postgres_counts
postgres_count(PGconn *db, const char *name)
{
    postgres_counts n;
    char            sql[400];
    PGresult       *res;

    (void)snprintf(sql, sizeof sql,
                   "SELECT xact_commit+xact_rollback,(SELECT n_tup_upd FROM pg_stat_user_tables "
                   "WHERE schemaname='%s' AND relname='sessions') FROM pg_stat_database WHERE "
                   "datname='postgres'",
                   name);
    res = PQexec(db, sql);
    if (PQresultStatus(res) != PGRES_TUPLES_OK || PQntuples(res) != 1)
        bench_fail("cannot count: %s", PQerrorMessage(db));
    n.transactions = strtod(PQgetvalue(res, 0, 0), NULL);
    n.renewals = strtod(PQgetvalue(res, 0, 1), NULL);
    PQclear(res);
    return n;
}

static double
postgres_asked(void *arg, const char *name, double seconds, double *renewals)
{
    const postgres *p = arg;
    PGconn         *db = PQconnectdb(p->conninfo);
    struct timespec window = { (time_t)seconds, 0 };
    postgres_counts before, after;

    before = postgres_count(db, name);
    nanosleep(&window, NULL);
    after = postgres_count(db, name);
    PQfinish(db);
    *renewals = after.renewals - before.renewals;
    return after.transactions - before.transactions - *renewals - 1; /* our own question */
}

static void
postgres_fleet(void (*measure)(const bench_server *s, bench_result *r), bench_result *r)
{
    postgres     p;
    bench_server s = { &p, postgres_url, postgres_commits, postgres_asked };

    postgres_begin(&p);
    measure(&s, r);
    postgres_end(&p);
}

void
bench_postgres_workers(bench_result *r)
{
    postgres_fleet(bench_fleet_workers, r);
}

void
bench_postgres_idle(bench_result *r)
{
    postgres_fleet(bench_fleet_idle, r);
}

void
bench_postgres_resolve(bench_result *r)
{
    postgres_fleet(bench_fleet_resolve, r);
}

void
bench_postgres_wait(bench_result *r)
{
    postgres_fleet(bench_fleet_wait, r);
}
