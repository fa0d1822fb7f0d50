/* One event for ten thousand runs that wait for it. */
#include "bench.h"

#include <stdlib.h>
#include <time.h>

#define EMIT_RUNS      10000
#define EMIT_ROUNDS    5
#define EMIT_LOT       256
#define EMIT_TIMEOUT_S 60.0

static void
emit_start(stet_engine *e)
{
    stet_start_request *requests = calloc(EMIT_RUNS, sizeof *requests);

    if (requests == NULL)
        bench_fail("out of memory");
    for (int i = 0; i < EMIT_RUNS; i++)
        requests[i] = (stet_start_request){ .handler = "bench.hears", .input = stet_text("{}") };
    for (int i = 0; i < EMIT_RUNS; i += 1000)
        bench_ok(stet_start_many(e, requests + i, 1000), "stet_start_many");
    free(requests);
}

static int
emit_is_open(void *arg, const stet_run_info *info)
{
    (void)info;
    *(bool *)arg = true;
    return 0;
}

/* A worker until all of them wait. */
static void
emit_settle(const char *path, bool is_first)
{
    stet_engine    *e = bench_worker(path);
    struct timespec a_moment = { 0, 2000000 };
    double          until_s = bench_now_s() + EMIT_TIMEOUT_S;
    stet_run_filter busy = { .size = sizeof busy,
                             .statuses = 1u << STET_STATUS_PENDING | 1u << STET_STATUS_RUNNING,
                             .limit = 1 };
    bool            is_open = true;

    if (is_first)
        emit_start(e);
    while (is_open) {
        if (bench_now_s() > until_s)
            bench_fail("the runs did not come to wait");
        nanosleep(&a_moment, NULL);
        is_open = false;
        bench_ok(stet_run_list(e, &busy, emit_is_open, &is_open), "stet_run_list");
    }
    bench_worker_close(e);
}

static double
emit_round(const char *path)
{
    stet_engine *e = NULL;
    size_t       resumed = 0;
    double       start_s, took_s;

    bench_ok(
        stet_open(&e, path, STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_ERROR)),
        path);
    start_s = bench_now_s();
    bench_ok(stet_emit(e, &resumed, "tick", stet_text("{\"n\":1}")), "stet_emit");
    took_s = bench_now_s() - start_s;
    if (resumed != EMIT_RUNS)
        bench_fail("%zu runs were resumed, not %d", resumed, EMIT_RUNS);
    stet_close(e);
    return EMIT_RUNS / took_s;
}

void
bench_emit10k(bench_result *r)
{
    char        *stet_path = bench_path("stet.db"), *raw_path = bench_path("raw.db");
    raw_db      *hand = raw_open(raw_path);
    bench_rounds rounds = { .n = 0 };

    for (int i = 0; i < EMIT_ROUNDS; i++) {
        emit_settle(stet_path, i == 0);
        bench_rounds_add(&rounds, emit_round(stet_path),
                         EMIT_RUNS / raw_wake(hand, EMIT_LOT, EMIT_RUNS));
    }
    raw_close(hand);
    bench_remove(stet_path);
    bench_remove(raw_path);
    free(stet_path);
    free(raw_path);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 0.3;
}
