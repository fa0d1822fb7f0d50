/* The flow of flow.c on Redis: a server of the benchmark's own that flushes its log before it
 * answers (appendfsync always). */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "raw_redis.h"
#include "redis_server.h"

#define REDIS_WARM_UP 2048
#define REDIS_ROUND_S 0.7

static int64_t
redis_total(double per_second)
{
    int64_t total = (int64_t)(per_second * REDIS_ROUND_S);

    return total < BENCH_IN_FLIGHT ? BENCH_IN_FLIGHT : total / BENCH_IN_FLIGHT * BENCH_IN_FLIGHT;
}

void
bench_redis_steps3(bench_result *r)
{
    redis_server *s = redis_server_new(NULL);
    bench_rounds  rounds = { .n = 0 };
    stet_engine  *e;
    raw_redis    *hand;
    int64_t       stet_total, raw_total;

    if (s == NULL)
        bench_fail("no Redis: %s", redis_server_why());
    e = bench_worker(redis_server_url(s, "bench"));
    hand = raw_redis_open(s->port);
    stet_total = redis_total(bench_flow(e, "bench.steps3", REDIS_WARM_UP, 0));
    raw_total = redis_total(REDIS_WARM_UP /
                            raw_redis_steps3(hand, BENCH_IN_FLIGHT, REDIS_WARM_UP));
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        double stet_rate = bench_flow(e, "bench.steps3", stet_total, 0);

        bench_rounds_add(&rounds, stet_rate,
                         (double)raw_total / raw_redis_steps3(hand, BENCH_IN_FLIGHT, raw_total));
    }
    bench_worker_close(e);
    raw_redis_close(hand);
    redis_server_free(s);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 0.4;
}
