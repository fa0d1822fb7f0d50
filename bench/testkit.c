/* What a test of a long workflow costs: thirty days of one reminder a day, from a new kit to the
 * end of the check.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <stet/test.h>

#define TESTKIT_TIMES 101
#define TESTKIT_MS    10.0

static int
testkit_remind(stet_attempt *a, void *arg)
{
    (void)a;
    ++*(int *)arg;
    return STET_OK;
}

static int testkit_reminded;

static int
testkit_month(stet_ctx *ctx, stet_bytes input)
{
    for (int i = 0; i < 30; i++) {
        STET_TRY(stet_step(ctx, NULL, "remind", testkit_remind, &testkit_reminded, NULL));
        STET_TRY(stet_sleep(ctx, "a-day", "24h"));
    }
    return stet_return(ctx, input);
}

static double
testkit_once(void)
{
    static const stet_handler handlers[] = { { "month", testkit_month, NULL }, { 0 } };
    stet_test                *kit;
    stet_run_id               run;
    double                    begin_s = bench_now_s();

    testkit_reminded = 0;
    if ((kit = stet_test_new(NULL)) == NULL)
        bench_fail("testkit: %s", stet_last_error());
    bench_ok(stet_test_service(kit, "t", handlers), "registering");
    bench_ok(stet_test_start(kit, &run, "t.month", stet_text("done"), NULL), "starting");
    bench_ok(stet_test_advance(kit, "30d"), "thirty days");
    bench_ok(stet_test_expect(kit, &run, "done"), "its end");
    bench_ok(stet_test_check(kit), "the check");
    stet_test_free(kit);
    if (testkit_reminded != 30)
        bench_fail("testkit: %d reminders, not 30", testkit_reminded);
    return bench_now_s() - begin_s;
}

void
bench_testkit_30days(bench_result *r)
{
    double took_s[TESTKIT_TIMES];

    for (size_t i = 0; i < TESTKIT_TIMES; i++)
        took_s[i] = testkit_once();
    r->value = bench_percentile(took_s, TESTKIT_TIMES, 50) * 1000;
    r->unit = "ms";
    r->ok = r->value < TESTKIT_MS;
    snprintf(r->note, sizeof r->note,
             "p99 %.2f ms; 30 steps, 30 sleeps of a day, kit and check and all",
             bench_percentile(took_s, TESTKIT_TIMES, 99) * 1000);
}
