/* Handlers against their record: how fast recorded operations are replayed, and the deploy gate
 * over a hundred thousand open runs.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define REPLAY_ROUNDS   11
#define REPLAY_TIMES    20 /* the run in a round */
#define REPLAY_LEAST    500000.0
#define CHECK_RUNS      100000
#define CHECK_MONTH_MS  (int64_t)2592000000
#define CHECK_MOST_S    60.0

/* ---- operations ------------------------------------------------------------------------------ */

static int
replay_report(void *arg, const stet_replay_report *report)
{
    if (report->end != STET_REPLAY_RETURNED || report->assumed != 0)
        bench_fail("replay: %s", report->text);
    *(uint64_t *)arg += report->operations;
    return STET_OK;
}

void
bench_replay_ops(bench_result *r)
{
    double       rounds[REPLAY_ROUNDS];
    stet_engine *e = bench_worker("memory:");
    stet_run_id  run;
    stet_bytes   bundle;
    uint64_t     operations = 0;

    bench_ok(stet_start(e, &run, "bench.replayed", stet_text("{}"), NULL), "start");
    bench_ok(stet_wait(e, NULL, &run, STET_NONE), "wait");
    bench_ok(stet_run_export(e, &bundle, &run), "export");
    for (int i = 0; i < REPLAY_ROUNDS; i++) {
        double start_s = bench_now_s();

        operations = 0;
        for (int n = 0; n < REPLAY_TIMES; n++)
            bench_ok(stet_replay(e, bundle, NULL, replay_report, &operations), "replay");
        rounds[i] = (double)operations / (bench_now_s() - start_s);
    }
    snprintf(r->note, sizeof r->note, "a bundle of %llu operations, %zu KiB, decoded each time",
             (unsigned long long)operations / REPLAY_TIMES, bundle.len / 1024);
    stet_free((void *)(uintptr_t)bundle.data);
    bench_worker_close(e);
    r->value = bench_percentile(rounds, REPLAY_ROUNDS, 50);
    r->unit = "operations/s";
    r->raw = r->ratio = NAN;
    r->ok = r->value >= REPLAY_LEAST;
}

/* ---- the gate -------------------------------------------------------------------------------- */

static int
check_report(void *arg, const stet_replay_report *report)
{
    (void)arg;
    bench_fail("check: %s: %s", report->run, report->text);
}

void
bench_check100k(bench_result *r)
{
    char              *path = bench_path("check.db"), address[4200];
    stet_engine       *e = NULL;
    stet_check_summary summary;
    double             start_s;

    bench_fixture_sleeping(path, CHECK_RUNS, CHECK_MONTH_MS);
    snprintf(address, sizeof address, "%s?readonly=1", path);
    bench_ok(stet_open(&e, address,
                       STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_OFF)),
             "open");
    bench_ok(stet_register(e, "bench", bench_handlers), "register");
    start_s = bench_now_s();
    bench_ok(stet_check(e, &summary, NULL, check_report, NULL), "check");
    r->value = bench_now_s() - start_s;
    if (summary.checked != CHECK_RUNS)
        bench_fail("check looked at %zu runs", summary.checked);
    stet_close(e);
    bench_remove(path);
    free(path);
    snprintf(r->note, sizeof r->note, "%.0f us a run", r->value / CHECK_RUNS * 1e6);
    r->unit = "s";
    r->raw = r->ratio = NAN;
    r->ok = r->value < CHECK_MOST_S;
}
