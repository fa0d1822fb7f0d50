/* Increments of counters that are objects: one writer a key, state read and written. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT_WARM_UP 1024
#define OBJECT_ROUND_S 0.5

static void
object_check(stet_engine *e, int64_t keys, int64_t expected)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < keys; i++) {
        stet_bytes value;
        char       key[32], text[32] = "";

        snprintf(key, sizeof key, "key%lld", (long long)i);
        bench_ok(stet_state_read(e, &value, "counter", key, "n"), "stet_state_read");
        memcpy(text, value.data, value.len < sizeof text ? value.len : sizeof text - 1);
        sum += strtoll(text, NULL, 10);
        stet_free((void *)(uintptr_t)value.data);
    }
    if (sum != expected)
        bench_fail("%lld increments were made and %lld counted", (long long)expected,
                   (long long)sum);
}

static int64_t
object_total(double per_second)
{
    int64_t total = (int64_t)(per_second * OBJECT_ROUND_S);

    return total < BENCH_IN_FLIGHT ? BENCH_IN_FLIGHT : total;
}

static void
object_measure(bench_result *r, int64_t keys, int64_t raw_batch, double must)
{
    char        *stet_path = bench_path("stet.db"), *raw_path = bench_path("raw.db");
    stet_engine *e = bench_worker(stet_path);
    raw_db      *hand = raw_open(raw_path);
    bench_rounds rounds = { .n = 0 };
    int64_t      stet_total = object_total(bench_flow(e, "counter.add", OBJECT_WARM_UP, keys));
    int64_t      raw_total =
        object_total(OBJECT_WARM_UP / raw_increments(hand, keys, raw_batch, OBJECT_WARM_UP));

    for (int i = 0; i < BENCH_ROUNDS; i++) {
        double stet_rate = bench_flow(e, "counter.add", stet_total, keys);

        bench_rounds_add(&rounds, stet_rate,
                         (double)raw_total / raw_increments(hand, keys, raw_batch, raw_total));
    }
    object_check(e, keys, OBJECT_WARM_UP + BENCH_ROUNDS * stet_total);
    bench_worker_close(e);
    raw_close(hand);
    bench_remove(stet_path);
    bench_remove(raw_path);
    free(stet_path);
    free(raw_path);
    bench_rounds_report(&rounds, r);
    r->unit = "adds/s";
    r->ok = r->ratio >= must;
}

void
bench_object_onekey(bench_result *r)
{
    object_measure(r, 1, 1, 0.5);
}

void
bench_object_100keys(bench_result *r)
{
    object_measure(r, 100, 100, 0.3);
}
