/* The benchmark: picks the figures, prints a table for people or a line of JSON a figure.
 *
 * Missing a "must" is a result, not an error: `ok` says so, and the exit code is 0. It is 1 when
 * something could not be measured, and 2 for bad arguments.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const bench_figure bench_figures[] = {
    { "steps3.inflight256", "3-step workflow, 256 in flight; raw: lots of 256", ">= 0.35", "0.7",
      bench_steps3_inflight },
    { "steps3.single", "the same one at a time, start to result, p50; raw: one at a time", "<= 1.5",
      "1.1", bench_steps3_single },
    { "run0.inflight256", "run without steps, 256 in flight; raw: lots of 256", ">= 0.35", "0.7",
      bench_run0_inflight },
    { "object.onekey", "increments of one hot key; raw: commits one at a time", ">= 0.5", "> 2",
      bench_object_onekey },
    { "object.100keys", "increments over 100 keys; raw: 100 in a commit", ">= 0.3", "0.6",
      bench_object_100keys },
    { "sleep.overdue",
      "200 runs sleep 100 ms at once: past due until completed, p99; raw: a commit", "<= 20", "5",
      bench_sleep_overdue },
    { "awakeable.resume", "resolve until the run has completed, p50; raw: a commit", "<= 4", "2",
      bench_awakeable_resume },
    { "signal.resume", "signal until the run has completed, p50; raw: a commit", "<= 4", "2",
      bench_signal_resume },
    { "emit.10k",
      "10,000 runs that wait are resumed by one event, no worker beside; raw: lots of 256",
      ">= 0.3", "0.6", bench_emit10k },
    { "parked.100k",
      "100,000 runs asleep for 30 days: memory beyond an idle worker (raw: the idle one)",
      "<= 64 MiB, <= 1 s", "16 MiB", bench_parked },
    { "steps100k.slope", "one run of 100,000 steps: a step at the end; raw: at the start",
      "<= 1.5, <= 1 s", "1.1", bench_steps100k },
    { "history1m.speed", "3-step workflows with 1,000,000 finished runs; raw: with an empty file",
      ">= 0.8", "0.95", bench_history1m },
    { "replay.ops", "recorded operations replayed against a bundle, no store call for each",
      ">= 500,000/s", "2,000,000/s", bench_replay_ops },
    { "check.100k", "the deploy gate over 100,000 open runs with short journals", "< 60 s", "10 s",
      bench_check100k },
    { "verify.1mfacts", "verify of a file with 1,000,000 facts", "< 10 s", "3 s", bench_verify1m },
    { "ls.1m", "the newest 50 of 1,000,000 runs, by the slowest of several filters", "< 50 ms",
      "5 ms", bench_ls1m },
    { "retention",
      "the file after STET_BENCH_RUNS workflows came and were removed; raw: after half", "<= 1.5",
      "1", bench_retention },
    { "testkit.30days", "a test of a workflow of thirty days, with the test kit, p50", "< 10 ms",
      "3 ms", bench_testkit_30days },
#ifdef STET_WITH_REDIS
    { "redis.steps3", "3-step workflow on Redis, 256 in flight; raw: lots of 256, pipelined",
      ">= 0.4", "0.7", bench_redis_steps3 },
    { "redis.workers", "backlog of 3 steps of 1 ms, four workers of 10 slots; raw: one worker",
      ">= 3", "3.9", bench_redis_workers },
    { "redis.idle", "what a Redis server is asked by 10 idle workers", "< 20", "10",
      bench_redis_idle },
    { "redis.resolve", "resolve until the run goes on in another process, p50; raw: a commit",
      "<= 5", "3", bench_redis_resolve },
    { "redis.wait", "a run ends until its waiter elsewhere has the answer, p50; raw: a commit",
      "<= 3", "2", bench_redis_wait },
#endif
    { "idle", "reads of the store by an idle worker", "<= 5, ~0 %", "1", bench_idle },
    { "schedules.10k", "the same with 10,000 active schedules; raw: with none", "+0.5, +0.1 %", "1",
      bench_schedules10k },
#ifdef STET_WITH_POSTGRES
    { "postgres.steps3",
      "3-step workflow on PostgreSQL, 256 in flight; raw: lots of 256, pipelined", ">= 0.4", "0.7",
      bench_postgres_steps3 },
    { "postgres.workers", "backlog of 3 steps of 1 ms, four workers of 10 slots; raw: one worker",
      ">= 3", "3.9", bench_postgres_workers },
    { "postgres.idle", "what a PostgreSQL server is asked by 10 idle workers", "< 20", "10",
      bench_postgres_idle },
    { "postgres.resolve", "resolve until the run goes on in another process, p50; raw: a commit",
      "<= 5", "3", bench_postgres_resolve },
    { "postgres.wait", "a run ends until its waiter elsewhere has the answer, p50; raw: a commit",
      "<= 3", "2", bench_postgres_wait },
    { "postgres.bloat",
      "tables and indexes after STET_BENCH_RUNS workflows came and were removed; raw: after half",
      "<= 1.5", "1", bench_postgres_bloat },
#ifdef STET_WITH_RABBITMQ
    { "amqp.resolve", "the same as postgres.resolve, hints by queue=amqp://; raw: a commit", "<= 5",
      "3", bench_amqp_resolve },
    { "amqp.wait", "the same as postgres.wait, hints by queue=amqp://; raw: a commit", "<= 3", "2",
      bench_amqp_wait },
#endif
#endif
    { "size", "the shared library with the embedded store, stripped", "< 1 MiB, libc and SQLite",
      "400 KiB", bench_size },
    { NULL, NULL, NULL, NULL, NULL }
};

typedef struct bench_args {
    const char *only;
    bool        is_json;
    const char *part, *path; /* of a child */
} bench_args;

/* ---- output ---------------------------------------------------------------------------------- */

static void
print_number(double n)
{
    if (isnan(n))
        printf("null");
    else
        printf("%.6g", n);
}

/* Names, units and notes are our own: nothing in them needs escaping. */
static void
print_json(const bench_figure *f, const bench_result *r)
{
    printf("{\"name\":\"%s\",\"value\":", f->name);
    print_number(r->value);
    printf(",\"unit\":\"%s\",\"raw\":", r->unit);
    print_number(r->raw);
    printf(",\"ratio\":");
    print_number(r->ratio);
    printf(",\"ok\":%s,\"must\":\"%s\",\"aim\":\"%s\",\"note\":\"%s\"}\n", r->ok ? "true" : "false",
           f->must, f->aim, r->note);
}

static void
print_cell(double n, int width, const char *format)
{
    char text[32];

    snprintf(text, sizeof text, format, n);
    printf(" %*s", width, isnan(n) ? "-" : text);
}

static const char *
number_format(double n)
{
    return fabs(n) >= 1000 ? "%.0f" : fabs(n) >= 100 ? "%.1f" : "%.3f";
}

static void
print_row(const bench_figure *f, const bench_result *r)
{
    printf("%-19s", f->name);
    print_cell(r->value, 10, number_format(r->value));
    printf(" %-7s", r->unit);
    print_cell(r->raw, 10, number_format(r->raw));
    print_cell(r->ratio, 7, "%.2f");
    printf("  %-4s must %s, aim %s\n", r->ok ? "ok" : "MISS", f->must, f->aim);
    printf("%-19s %s%s%s\n", "", f->about, r->note[0] != '\0' ? "\n                    " : "",
           r->note);
}

static void
print_head(void)
{
    printf("%-19s %10s %-7s %10s %7s\n", "figure", "stet", "unit", "raw", "ratio");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static bool
args_take(const char *arg, const char *name, const char **value)
{
    size_t len = strlen(name);

    if (strncmp(arg, name, len) != 0)
        return false;
    *value = arg + len;
    return true;
}

static bool
args_read(bench_args *args, int argc, char **argv)
{
    const char *format = "table";

    for (int i = 1; i < argc; i++)
        if (!args_take(argv[i], "--only=", &args->only) &&
            !args_take(argv[i], "--format=", &format) &&
            !args_take(argv[i], "--child=", &args->part) &&
            !args_take(argv[i], "--file=", &args->path))
            return false;
    args->is_json = strcmp(format, "json") == 0;
    return args->is_json || strcmp(format, "table") == 0;
}

static void
args_help(FILE *out)
{
    fprintf(out, "usage: stet-bench [--only=PREFIX] [--format=table|json]\nfigures:\n");
    for (const bench_figure *f = bench_figures; f->name != NULL; f++)
        fprintf(out, "  %-19s %s\n", f->name, f->about);
}

/* ---- main ------------------------------------------------------------------------------------ */

/* Returns how many were measured. */
static int
run_figures(const bench_args *args)
{
    int n = 0;

    for (const bench_figure *f = bench_figures; f->name != NULL; f++) {
        bench_result r = { 0 };

        if (args->only != NULL && strncmp(f->name, args->only, strlen(args->only)) != 0)
            continue;
        if (n++ == 0 && !args->is_json)
            print_head();
        r.raw = r.ratio = NAN;
        f->measure(&r);
        if (args->is_json)
            print_json(f, &r);
        else
            print_row(f, &r);
        fflush(stdout);
    }
    return n;
}

int
main(int argc, char **argv)
{
    bench_args args = { 0 };

    if (!args_read(&args, argc, argv)) {
        args_help(stderr);
        return 2;
    }
    if (args.part != NULL)
        return bench_child_main(args.part, args.path);
    bench_scratch_open();
    if (run_figures(&args) == 0) {
        fprintf(stderr, "no figure begins with \"%s\"\n", args.only);
        args_help(stderr);
        return 2;
    }
    return 0;
}
