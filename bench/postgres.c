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
#define BLOAT_RUNS       30000 /* unless STET_BENCH_RUNS says more */
#define BLOAT_LOT        2000
#define BLOAT_PATIENCE_S 120.0

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
    bool     is_amqp; /* hints go through a broker */
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
    char            url[768];

    (void)snprintf(url, sizeof url, "%s", cluster_url_of(p->c, name));
#ifdef STET_WITH_RABBITMQ
    if (p->is_amqp)
        (void)snprintf(url + strlen(url), sizeof url - strlen(url), "%cqueue=%s",
                       strchr(url, '?') != NULL ? '&' : '?', bench_rabbit_url(name));
#endif
    return strdup(url);
}

static void
postgres_commits(void *arg, int n, double *seconds)
{
    raw_pg_commits_each(((const postgres *)arg)->hand, n, seconds);
}

static double
postgres_by_hand(void *arg, int slots, int64_t total)
{
    const postgres *p = arg;

    return raw_pg_workers(p->hand, p->conninfo, slots, total);
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

typedef void postgres_measure(const bench_server *s, bench_result *r);

static void
postgres_fleet_on(postgres_measure *measure, bench_result *r, bool is_amqp)
{
    postgres     p = { .is_amqp = is_amqp };
    bench_server s = { &p, postgres_url, postgres_commits, postgres_asked, postgres_by_hand };

#ifdef STET_WITH_RABBITMQ
    if (is_amqp) /* first: who keeps it would else keep the server's life as well */
        (void)bench_rabbit_url("first");
#endif
    postgres_begin(&p);
    measure(&s, r);
    postgres_end(&p);
}

static void
postgres_fleet(postgres_measure *measure, bench_result *r)
{
    postgres_fleet_on(measure, r, false);
}

#ifdef STET_WITH_RABBITMQ
void
bench_amqp_resolve(bench_result *r)
{
    postgres_fleet_on(bench_fleet_resolve, r, true);
}

void
bench_amqp_wait(bench_result *r)
{
    postgres_fleet_on(bench_fleet_wait, r, true);
}
#endif

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

/* ---- what stays behind ----------------------------------------------------------------------- */

static double
bloat_ask(PGconn *db, const char *sql, char *text, size_t size)
{
    PGresult *res = PQexec(db, sql);
    double    n;

    if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
        bench_fail("%s: %s", sql, PQerrorMessage(db));
    n = PQntuples(res) > 0 ? strtod(PQgetvalue(res, 0, 0), NULL) : 0;
    if (text != NULL && PQntuples(res) > 0)
        snprintf(text, size, "%s", PQgetvalue(res, 0, 1));
    PQclear(res);
    return n;
}

/* All is removed, and what was removed is swept: then the size is what it comes to. */
static double
bloat_settled(PGconn *db, char *text, size_t size)
{
    double          until_s = bench_now_s() + BLOAT_PATIENCE_S;
    struct timespec a_moment = { 0, 100000000 };

    while (bloat_ask(db, "SELECT count(*) FROM bloat.runs", NULL, 0) > 0) {
        if (bench_now_s() > until_s)
            bench_fail("ended runs were not removed");
        nanosleep(&a_moment, NULL);
    }
    return bloat_ask(
        db,
        "SELECT sum(pg_total_relation_size(relid)),string_agg(format('%s %s+%s KiB',relname,"
        "pg_table_size(relid)/1024,pg_indexes_size(relid)/1024),', ' ORDER BY "
        "pg_total_relation_size(relid) DESC) FROM pg_stat_user_tables WHERE schemaname='bloat' AND "
        "relname IN ('runs','facts','committers')",
        text, size);
}

static void
bloat_load(stet_engine *e, int64_t runs)
{
    for (; runs > 0; runs -= BLOAT_LOT)
        (void)bench_flow(e, "bench.steps3", BLOAT_LOT, 0);
}

/* The server sweeps by the settings of the tables, only without its minute of waiting. */
void
bench_postgres_bloat(bench_result *r)
{
    const char  *told = getenv("STET_BENCH_RUNS");
    int64_t      runs = told != NULL ? strtoll(told, NULL, 10) : BLOAT_RUNS;
    stet_options options;
    stet_engine *e;
    postgres     p;
    PGconn      *db;
    double       half, whole;

    postgres_begin(&p);
    db = PQconnectdb(p.conninfo);
    (void)bloat_ask(db, "ALTER SYSTEM SET autovacuum_naptime='1s'", NULL, 0);
    (void)bloat_ask(db, "SELECT pg_reload_conf()", NULL, 0);
    stet_options_init(&options);
    options.retention_ms = 1;
    options.sweep_ms = 200;
    e = bench_worker_with(cluster_url_of(p.c, "bloat"), &options);
    bloat_load(e, runs / 2);
    half = bloat_settled(db, NULL, 0);
    bloat_load(e, runs / 2);
    snprintf(r->note, sizeof r->note, "%lld runs, 0 left; tables + indexes: ", (long long)runs);
    whole = bloat_settled(db, r->note + strlen(r->note), sizeof r->note - strlen(r->note));
    bench_worker_close(e);
    PQfinish(db);
    postgres_end(&p);
    r->value = whole / 1048576;
    r->raw = half / 1048576;
    r->ratio = whole / half;
    r->unit = "MiB";
    r->ok = r->ratio <= 1.5;
}
