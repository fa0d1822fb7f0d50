/* New workflows in a file with a million finished ones, against an empty file. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define HISTORY_RUNS    1000000
#define HISTORY_WARM_UP 1024
#define HISTORY_ROUND_S 0.5

void
bench_history1m(bench_result *r)
{
    char        *full_path = bench_path("history.db"), *empty_path = bench_path("empty.db");
    stet_engine *full, *empty;
    bench_rounds rounds = { .n = 0 };
    double       fixture_s = bench_now_s(), rate;
    int64_t      total;

    bench_fixture_finished(full_path, HISTORY_RUNS);
    fixture_s = bench_now_s() - fixture_s;
    full = bench_worker(full_path);
    empty = bench_worker(empty_path);
    (void)bench_flow(full, "bench.steps3", HISTORY_WARM_UP, 0);
    rate = bench_flow(empty, "bench.steps3", HISTORY_WARM_UP, 0);
    total = (int64_t)(rate * HISTORY_ROUND_S) + BENCH_IN_FLIGHT;
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        rate = bench_flow(full, "bench.steps3", total, 0);
        bench_rounds_add(&rounds, rate, bench_flow(empty, "bench.steps3", total, 0));
    }
    bench_worker_close(full);
    bench_worker_close(empty);
    bench_remove(full_path);
    bench_remove(empty_path);
    free(full_path);
    free(empty_path);
    snprintf(r->note, sizeof r->note, "fixture loaded in %.0f s", fixture_s);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 0.8;
}
