/* Verify of a file with a million facts: six each of 150,000 finished runs, four each of 25,000
 * that sleep. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define VERIFY_FINISHED 150000
#define VERIFY_SLEEPING 25000
#define VERIFY_ROUNDS   1
#define VERIFY_MOST_S   10.0
#define VERIFY_MONTH_MS (int64_t)2592000000

static int
verify_on_finding(void *arg, const stet_finding *finding)
{
    (void)arg;
    bench_fail("verify: %s of %s: %s", finding->rule, finding->run, finding->text);
}

void
bench_verify1m(bench_result *r)
{
    char        *path = bench_path("verify.db");
    stet_engine *e = NULL;
    double       rounds[VERIFY_ROUNDS], fixture_s = bench_now_s();
    size_t       checked;

    bench_fixture_finished(path, VERIFY_FINISHED);
    bench_fixture_sleeping(path, VERIFY_SLEEPING, VERIFY_MONTH_MS);
    fixture_s = bench_now_s() - fixture_s;
    bench_ok(stet_open(&e, path, STET_OPTIONS(.log_level = STET_LOG_OFF)), "open");
    for (int i = 0; i < VERIFY_ROUNDS; i++) {
        rounds[i] = bench_now_s();
        bench_ok(stet_verify(e, &checked, verify_on_finding, NULL), "verify");
        rounds[i] = bench_now_s() - rounds[i];
        if (checked != VERIFY_FINISHED + VERIFY_SLEEPING)
            bench_fail("verify checked %zu runs", checked);
    }
    stet_close(e);
    bench_remove(path);
    free(path);
    snprintf(r->note, sizeof r->note, "%zu runs, fixture loaded in %.0f s", checked, fixture_s);
    r->value = bench_percentile(rounds, VERIFY_ROUNDS, 50);
    r->unit = "s";
    r->raw = r->ratio = NAN;
    r->ok = r->value < VERIFY_MOST_S;
}
