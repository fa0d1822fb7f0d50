/* Retention under load: runs come, end and are removed, and the file stops growing. One that is open
 * since the beginning is there at the end. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define RETENTION_RUNS       60000 /* unless STET_BENCH_RUNS says more */
#define RETENTION_LOT        2000
#define RETENTION_PATIENCE_S 300.0

static int
retention_count(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(size_t *)arg;
    return 0;
}

/* Until the one that is open is left alone. */
static void
retention_settle(stet_engine *e)
{
    const struct timespec a_moment = { 0, 20000000 };
    double                until_s = bench_now_s() + RETENTION_PATIENCE_S;
    size_t                n;

    do {
        n = 0;
        bench_ok(stet_run_list(e, STET_FILTER(.limit = 2), retention_count, &n), "listing");
        if (bench_now_s() > until_s)
            bench_fail("after %.0f s there are runs whose retention was over long ago",
                       RETENTION_PATIENCE_S);
        nanosleep(&a_moment, NULL);
    } while (n > 1);
}

static double
retention_size(const char *path)
{
    struct stat file;

    return stat(path, &file) == 0 ? (double)file.st_size : 0;
}

static double
retention_load(stet_engine *e, int64_t runs)
{
    double start_s = bench_now_s();

    for (; runs > 0; runs -= RETENTION_LOT)
        (void)bench_flow(e, "bench.steps3", RETENTION_LOT, 0);
    retention_settle(e);
    return bench_now_s() - start_s;
}

void
bench_retention(bench_result *r)
{
    const char  *told = getenv("STET_BENCH_RUNS");
    int64_t      runs = told != NULL ? strtoll(told, NULL, 10) : RETENTION_RUNS;
    char        *path = bench_path("retention.db");
    stet_options options;
    stet_engine *e;
    stet_run_id  open;
    double       half, whole, took_s;
    size_t       n = 0;

    stet_options_init(&options);
    options.retention_ms = 1;
    e = bench_worker_with(path, &options);
    bench_ok(stet_start(e, &open, "bench.steps3", stet_text(""), STET_START(.delay = "1000h")),
             "start");
    took_s = retention_load(e, runs / 2);
    half = retention_size(path);
    took_s += retention_load(e, runs / 2);
    whole = retention_size(path);
    bench_ok(stet_run_get(e, &open, retention_count, &n), "the open run");
    bench_worker_close(e);
    bench_remove(path);
    free(path);
    r->value = whole / 1048576;
    r->raw = half / 1048576;
    r->ratio = whole / half;
    r->unit = "MiB";
    r->ok = r->ratio <= 1.5 && n == 1;
    snprintf(r->note, sizeof r->note, "%lld runs came and were removed, %.0f a second; one is open",
             (long long)runs, (double)runs / took_s);
}
