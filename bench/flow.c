/* Workflows a second with 256 in flight, and the time of one alone.
 *
 * In flight means: a few client threads that each start a lot of runs with one call, wait for their
 * results, and start the next lot, so that never more than 256 are on their way. The raw side works
 * in lots of 256 too.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define FLOW_WARM_UP     1024
#define FLOW_ROUND_S     0.5
#define FLOW_SINGLE_EACH 100

typedef double flow_raw(raw_db *r, int64_t batch, int64_t total);

/* As many as take about a round's time, in whole lots. */
static int64_t
flow_total(double per_second)
{
    int64_t total = (int64_t)(per_second * FLOW_ROUND_S);

    return total < BENCH_IN_FLIGHT ? BENCH_IN_FLIGHT : total / BENCH_IN_FLIGHT * BENCH_IN_FLIGHT;
}

static void
flow_measure(bench_result *r, const char *handler, flow_raw *raw_flow)
{
    char        *stet_path = bench_path("stet.db"), *raw_path = bench_path("raw.db");
    stet_engine *e = bench_worker(stet_path);
    raw_db      *hand = raw_open(raw_path);
    bench_rounds rounds = { .n = 0 };
    int64_t      stet_total = flow_total(bench_flow(e, handler, FLOW_WARM_UP, 0));
    int64_t raw_total = flow_total(FLOW_WARM_UP / raw_flow(hand, BENCH_IN_FLIGHT, FLOW_WARM_UP));

    for (int i = 0; i < BENCH_ROUNDS; i++) {
        double stet_rate = bench_flow(e, handler, stet_total, 0);

        bench_rounds_add(&rounds, stet_rate,
                         (double)raw_total / raw_flow(hand, BENCH_IN_FLIGHT, raw_total));
    }
    bench_worker_close(e);
    raw_close(hand);
    bench_remove(stet_path);
    bench_remove(raw_path);
    free(stet_path);
    free(raw_path);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 0.35;
}

void
bench_steps3_inflight(bench_result *r)
{
    flow_measure(r, "bench.steps3", raw_steps3);
}

void
bench_run0_inflight(bench_result *r)
{
    flow_measure(r, "bench.run0", raw_run0);
}

void
bench_steps3_single(bench_result *r)
{
    char        *stet_path = bench_path("stet.db"), *raw_path = bench_path("raw.db");
    stet_engine *e = bench_worker(stet_path);
    raw_db      *hand = raw_open(raw_path);
    bench_rounds rounds = { .n = 0 };
    double       took_s[FLOW_SINGLE_EACH], raw_s[FLOW_SINGLE_EACH], start_s;

    for (int i = 0; i < BENCH_ROUNDS; i++) {
        for (int k = 0; k < FLOW_SINGLE_EACH; k++) {
            start_s = bench_now_s();
            bench_invoke(e, "bench.steps3", "{\"order\":7}", NULL);
            took_s[k] = bench_now_s() - start_s;
        }
        for (int k = 0; k < FLOW_SINGLE_EACH; k++)
            raw_s[k] = raw_steps3(hand, 1, 1);
        bench_rounds_add(&rounds, bench_percentile(took_s, FLOW_SINGLE_EACH, 50) * 1e6,
                         bench_percentile(raw_s, FLOW_SINGLE_EACH, 50) * 1e6);
    }
    bench_worker_close(e);
    raw_close(hand);
    bench_remove(stet_path);
    bench_remove(raw_path);
    free(stet_path);
    free(raw_path);
    bench_rounds_report(&rounds, r);
    r->unit = "us";
    r->ok = r->ratio <= 1.5;
}
