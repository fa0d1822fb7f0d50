/* From a wake-up to the end of the run: timers that are due, awakeables that are resolved,
 * signals. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAKE_SLEEPERS      200
#define WAKE_RESOLVES      50
#define WAKE_TIMEOUT_S     30.0
#define WAKE_LOOK_EVERY_NS 200000

/* ---- sleep ----------------------------------------------------------------------------------- */

typedef struct sleepers {
    stet_engine *e;
    stet_run_id  runs[WAKE_SLEEPERS];
    double       done_ms[WAKE_SLEEPERS]; /* since 1970, as the timers are */
} sleepers;

static double
wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* All at once: one call starts them, and they are waited for in that order. A run that ends before
 * an earlier one is noticed a little late. */
static void
sleepers_sleep(sleepers *s)
{
    stet_start_request requests[WAKE_SLEEPERS];

    for (int i = 0; i < WAKE_SLEEPERS; i++)
        requests[i] = (stet_start_request){ .handler = "bench.nap", .input = stet_text("{}") };
    bench_ok(stet_start_many(s->e, requests, WAKE_SLEEPERS), "stet_start_many");
    for (int i = 0; i < WAKE_SLEEPERS; i++) {
        s->runs[i] = requests[i].run;
        bench_ok(stet_wait(s->e, NULL, &requests[i].run, 0), "stet_wait");
        s->done_ms[i] = wall_ms();
    }
}

static int
sleeper_fact(void *arg, const stet_fact_info *fact)
{
    if (strcmp(fact->kind, "sleep") == 0)
        *(double *)arg = (double)fact->until_ms;
    return 0;
}

/* How late the 99th of a hundred was, in seconds. */
static double
sleepers_round(sleepers *s)
{
    double late_s[WAKE_SLEEPERS];

    sleepers_sleep(s);
    for (int i = 0; i < WAKE_SLEEPERS; i++) {
        double due_ms = 0;

        bench_ok(stet_run_facts(s->e, &s->runs[i], false, sleeper_fact, &due_ms), "stet_run_facts");
        late_s[i] = (s->done_ms[i] - due_ms) / 1e3;
        if (due_ms == 0 || late_s[i] < 0)
            bench_fail("a sleep ended before it was due");
    }
    return bench_percentile(late_s, WAKE_SLEEPERS, 99);
}

void
bench_sleep_overdue(bench_result *r)
{
    char        *stet_path = bench_path("stet.db"), *raw_path = bench_path("raw.db");
    sleepers    *s = calloc(1, sizeof *s);
    raw_db      *hand = raw_open(raw_path);
    bench_rounds rounds = { .n = 0 };

    if (s == NULL)
        bench_fail("out of memory");
    s->e = bench_worker(stet_path);
    (void)sleepers_round(s);
    for (int i = 0; i < BENCH_ROUNDS_MAX; i++) {
        double late_s = sleepers_round(s);

        bench_rounds_add(&rounds, late_s * 1e3, bench_raw_commit_s(hand) * 1e3);
    }
    bench_worker_close(s->e);
    raw_close(hand);
    bench_remove(stet_path);
    bench_remove(raw_path);
    free(s);
    free(stet_path);
    free(raw_path);
    bench_rounds_report(&rounds, r);
    r->unit = "ms";
    r->ok = r->ratio <= 20;
}

/* ---- awakeables and signals ------------------------------------------------------------------ */

static int
resolve_status(void *arg, const stet_run_info *info)
{
    *(stet_status *)arg = info->status;
    return 0;
}

/* The run is suspended and its awakeable is known. */
static const char *
resolve_ready(stet_engine *e, const stet_run_id *run)
{
    double          until_s = bench_now_s() + WAKE_TIMEOUT_S;
    struct timespec a_moment = { 0, WAKE_LOOK_EVERY_NS };
    const char     *id = NULL;
    stet_status     status = STET_STATUS_PENDING;

    while (id == NULL || status != STET_STATUS_SUSPENDED) {
        if (bench_now_s() > until_s)
            bench_fail("a run did not suspend at its awakeable");
        nanosleep(&a_moment, NULL);
        if (id == NULL)
            id = bench_awakeable_taken();
        bench_ok(stet_run_get(e, run, resolve_status, &status), "stet_run_get");
    }
    return id;
}

static double
resolve_one_s(stet_engine *e)
{
    stet_run_id run;
    const char *id;
    double      start_s;

    bench_ok(stet_start(e, &run, "bench.awaits", stet_text("{}"), NULL), "stet_start");
    id = resolve_ready(e, &run);
    start_s = bench_now_s();
    bench_ok(stet_resolve(e, id, stet_text("{\"by\":\"bench\"}")), "stet_resolve");
    bench_ok(stet_wait(e, NULL, &run, 0), "stet_wait");
    return bench_now_s() - start_s;
}

/* The run is suspended. */
static void
signal_ready(stet_engine *e, const stet_run_id *run)
{
    double          until_s = bench_now_s() + WAKE_TIMEOUT_S;
    struct timespec a_moment = { 0, WAKE_LOOK_EVERY_NS };
    stet_status     status = STET_STATUS_PENDING;

    while (status != STET_STATUS_SUSPENDED) {
        if (bench_now_s() > until_s)
            bench_fail("a run did not suspend at its signal");
        nanosleep(&a_moment, NULL);
        bench_ok(stet_run_get(e, run, resolve_status, &status), "stet_run_get");
    }
}

static double
signal_one_s(stet_engine *e)
{
    stet_run_id run;
    double      start_s;

    bench_ok(stet_start(e, &run, "bench.listens", stet_text("{}"), NULL), "stet_start");
    signal_ready(e, &run);
    start_s = bench_now_s();
    bench_ok(stet_signal(e, &run, "go", stet_text("{\"by\":\"bench\"}"), NULL), "stet_signal");
    bench_ok(stet_wait(e, NULL, &run, 0), "stet_wait");
    return bench_now_s() - start_s;
}

static void
resume_measure(bench_result *r, double (*one_s)(stet_engine *e))
{
    char        *stet_path = bench_path("stet.db"), *raw_path = bench_path("raw.db");
    stet_engine *e = bench_worker(stet_path);
    raw_db      *hand = raw_open(raw_path);
    bench_rounds rounds = { .n = 0 };
    double       took_s[WAKE_RESOLVES];

    (void)one_s(e);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        for (int k = 0; k < WAKE_RESOLVES; k++)
            took_s[k] = one_s(e);
        bench_rounds_add(&rounds, bench_percentile(took_s, WAKE_RESOLVES, 50) * 1e6,
                         bench_raw_commit_s(hand) * 1e6);
    }
    bench_worker_close(e);
    raw_close(hand);
    bench_remove(stet_path);
    bench_remove(raw_path);
    free(stet_path);
    free(raw_path);
    bench_rounds_report(&rounds, r);
    r->unit = "us";
    r->ok = r->ratio <= 4;
}

void
bench_awakeable_resume(bench_result *r)
{
    resume_measure(r, resolve_one_s);
}

void
bench_signal_resume(bench_result *r)
{
    resume_measure(r, signal_one_s);
}
