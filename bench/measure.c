/* Clocks, medians, client threads and workers: what every figure is made of. */
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLIENT_STACK_BYTES (512 * 1024)
#define RAW_COMMITS        200
#define FLOW_INPUT         "{\"order\":7,\"amount\":1999,\"card\":\"4242\"}"

void
bench_fail(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "stet-bench: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void
bench_ok(int code, const char *what)
{
    if (code != STET_OK)
        bench_fail("%s: %s: %s", what, stet_code_name(code), stet_last_error());
}

double
bench_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- medians --------------------------------------------------------------------------------- */

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double
bench_percentile(double *values, size_t n, double percent)
{
    size_t at = (size_t)ceil((double)n * percent / 100);

    qsort(values, n, sizeof *values, compare);
    return values[at > 0 ? at - 1 : 0];
}

void
bench_rounds_add(bench_rounds *rounds, double value, double raw_value)
{
    rounds->value[rounds->n] = value;
    rounds->raw[rounds->n++] = raw_value;
}

void
bench_rounds_report(const bench_rounds *rounds, bench_result *r)
{
    double ratios[BENCH_ROUNDS_MAX], median;
    size_t used;

    for (size_t i = 0; i < rounds->n; i++)
        ratios[i] = rounds->value[i] / rounds->raw[i];
    median = bench_percentile(ratios, rounds->n, 50);
    used = strlen(r->note);
    snprintf(r->note + used, sizeof r->note - used, "%srounds %.2f to %.2f", used > 0 ? "; " : "",
             ratios[0], ratios[rounds->n - 1]);
    for (size_t i = 0; i < rounds->n; i++)
        if (rounds->value[i] / rounds->raw[i] == median) {
            r->value = rounds->value[i];
            r->raw = rounds->raw[i];
        }
    r->ratio = median;
}

double
bench_raw_commit_s(raw_db *r)
{
    double seconds[RAW_COMMITS];

    (void)raw_commits_each(r, RAW_COMMITS, seconds);
    return bench_percentile(seconds, RAW_COMMITS, 50);
}

/* ---- clients --------------------------------------------------------------------------------- */

typedef struct client_crowd {
    pthread_barrier_t ready;
    _Atomic int64_t   next;
    int64_t           total;
    bench_piece      *piece;
    void             *arg;
} client_crowd;

static void *
client_main(void *arg)
{
    client_crowd *crowd = arg;
    int64_t       i;

    (void)pthread_setname_np(pthread_self(), "client"); /* to tell them apart in a profile */
    pthread_barrier_wait(&crowd->ready);
    while ((i = atomic_fetch_add(&crowd->next, 1)) < crowd->total)
        crowd->piece(crowd->arg, i);
    return NULL;
}

double
bench_clients(int clients, int64_t total, bench_piece *piece, void *arg)
{
    client_crowd   crowd = { .total = total, .piece = piece, .arg = arg };
    pthread_t     *threads = calloc((size_t)clients, sizeof *threads);
    pthread_attr_t attr;
    double         start_s;

    if (threads == NULL || pthread_attr_init(&attr) != 0 ||
        pthread_attr_setstacksize(&attr, CLIENT_STACK_BYTES) != 0 ||
        pthread_barrier_init(&crowd.ready, NULL, (unsigned)clients + 1) != 0)
        bench_fail("cannot prepare %d clients", clients);
    for (int i = 0; i < clients; i++)
        if (pthread_create(&threads[i], &attr, client_main, &crowd) != 0)
            bench_fail("cannot start client %d of %d", i + 1, clients);
    pthread_barrier_wait(&crowd.ready);
    start_s = bench_now_s();
    for (int i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    start_s = bench_now_s() - start_s;
    pthread_barrier_destroy(&crowd.ready);
    pthread_attr_destroy(&attr);
    free(threads);
    return start_s;
}

/* ---- workers --------------------------------------------------------------------------------- */

stet_engine *
bench_worker_with(const char *path, stet_options *options)
{
    stet_engine *e = NULL;

    options->log_level = STET_LOG_ERROR;
    bench_ok(stet_open(&e, path, options), path);
    bench_ok(stet_register(e, "bench", bench_handlers), "stet_register");
    bench_ok(stet_register_object(e, "counter", bench_counters, NULL), "stet_register_object");
    bench_ok(stet_engine_start(e), "stet_engine_start");
    return e;
}

stet_engine *
bench_worker(const char *path)
{
    stet_options options;

    stet_options_init(&options);
    return bench_worker_with(path, &options);
}

void
bench_worker_close(stet_engine *e)
{
    bench_ok(stet_engine_stop(e, 0), "stet_engine_stop");
    stet_close(e);
}

void
bench_invoke(stet_engine *e, const char *handler, const char *input, const char *key)
{
    stet_start_options options;

    stet_start_options_init(&options);
    options.key = key;
    bench_ok(stet_invoke(e, NULL, NULL, handler, stet_text(input), &options, 0), handler);
}

typedef struct flow {
    stet_engine *e;
    const char  *handler;
    int64_t      total, keys, lot;
} flow;

#define FLOW_LOT_MAX 256

/* One lot: started with one call, then waited for. */
static void
flow_piece(void *arg, int64_t i)
{
    const flow        *f = arg;
    stet_start_request requests[FLOW_LOT_MAX];
    stet_start_options options[FLOW_LOT_MAX];
    char               keys[FLOW_LOT_MAX][32];
    int64_t first = i * f->lot, n = f->total - first < f->lot ? f->total - first : f->lot;

    for (int64_t k = 0; k < n; k++) {
        stet_start_options_init(&options[k]);
        if (f->keys > 0) {
            snprintf(keys[k], sizeof keys[k], "key%lld", (long long)((first + k) % f->keys));
            options[k].key = keys[k];
        }
        requests[k] = (stet_start_request){ .handler = f->handler,
                                            .input = stet_text(FLOW_INPUT),
                                            .options = &options[k] };
    }
    bench_ok(stet_start_many(f->e, requests, (size_t)n), f->handler);
    for (int64_t k = 0; k < n; k++)
        bench_ok(stet_wait(f->e, NULL, &requests[k].run, 0), f->handler);
}

double
bench_flow(stet_engine *e, const char *handler, int64_t total, int64_t keys)
{
    flow f = { e, handler, total, keys, BENCH_IN_FLIGHT / BENCH_CLIENTS };

    return (double)total /
           bench_clients(BENCH_CLIENTS, (total + f.lot - 1) / f.lot, flow_piece, &f);
}
