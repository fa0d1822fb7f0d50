/* A hundred thousand sleeping runs: what they cost a worker in memory and at its start. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARKED_ROUNDS   5
#define PARKED_RUNS     100000
#define PARKED_SLEEP_MS (30LL * 24 * 3600 * 1000)
#define PARKED_MIB_MAX  64.0
#define PARKED_START_S  1.0

static double
parked_rss_mib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char  line[256];
    long  kib = -1;

    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (f != NULL)
        fclose(f);
    if (kib < 0)
        bench_fail("cannot read the memory of this process");
    return (double)kib / 1024;
}

/* Says: memory in MiB, seconds until the first run was through. */
int
bench_child_parked(const char *path)
{
    struct timespec settle = { 1, 0 }; /* the first sweeps belong to what is measured */
    double          numbers[2], start_s = bench_now_s();
    stet_engine    *e = bench_worker(path);

    bench_invoke(e, "bench.run0", "{}", NULL);
    numbers[1] = bench_now_s() - start_s;
    nanosleep(&settle, NULL);
    numbers[0] = parked_rss_mib();
    bench_child_say(numbers, 2);
    bench_child_wait();
    bench_worker_close(e);
    return 0;
}

static void
parked_round(const char *path, double *mib, double *start_s)
{
    bench_child c;
    double      numbers[2];

    bench_child_start(&c, "parked", path);
    bench_child_read(&c, numbers, 2);
    bench_child_end(&c);
    *mib = numbers[0];
    *start_s = numbers[1];
}

void
bench_parked(bench_result *r)
{
    char  *full = bench_path("parked.db"), *empty = bench_path("empty.db");
    double more_mib[PARKED_ROUNDS], idle_mib[PARKED_ROUNDS], start_s[PARKED_ROUNDS], empty_s,
        took_s;

    bench_fixture_sleeping(full, PARKED_RUNS, PARKED_SLEEP_MS);
    for (int i = 0; i < PARKED_ROUNDS; i++) {
        parked_round(full, &more_mib[i], &start_s[i]);
        parked_round(empty, &idle_mib[i], &empty_s);
        more_mib[i] -= idle_mib[i];
    }
    bench_remove(full);
    bench_remove(empty);
    free(full);
    free(empty);
    r->value = bench_percentile(more_mib, PARKED_ROUNDS, 50);
    r->raw = bench_percentile(idle_mib, PARKED_ROUNDS, 50);
    took_s = bench_percentile(start_s, PARKED_ROUNDS, 50);
    r->unit = "MiB";
    r->ok = r->value <= PARKED_MIB_MAX && took_s <= PARKED_START_S;
    snprintf(r->note, sizeof r->note,
             "start-up until a first run was through: %.3f s with them, %.3f s without", took_s,
             empty_s);
}
