/* The flow of flow.c on PostgreSQL: a server of the benchmark's own, made by initdb, durable as it
 * comes. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

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

void
bench_postgres_steps3(bench_result *r)
{
    cluster     *c = cluster_new();
    bench_rounds rounds = { .n = 0 };
    stet_engine *e;
    raw_pg      *hand;
    int64_t      stet_total, raw_total;
    char         conninfo[256];

    if (c == NULL)
        bench_fail("no PostgreSQL: %s", cluster_why());
    e = bench_worker(cluster_url_of(c, "bench"));
    (void)snprintf(conninfo, sizeof conninfo, "host=%s port=%d user=%s dbname=postgres", c->dir,
                   c->port, CLUSTER_USER);
    hand = raw_pg_open(conninfo);
    stet_total = postgres_total(bench_flow(e, "bench.steps3", POSTGRES_WARM_UP, 0));
    raw_total =
        postgres_total(POSTGRES_WARM_UP / raw_pg_steps3(hand, BENCH_IN_FLIGHT, POSTGRES_WARM_UP));
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        double stet_rate = bench_flow(e, "bench.steps3", stet_total, 0);

        bench_rounds_add(&rounds, stet_rate,
                         (double)raw_total / raw_pg_steps3(hand, BENCH_IN_FLIGHT, raw_total));
    }
    bench_worker_close(e);
    raw_pg_close(hand);
    cluster_free(c);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 0.4;
}
