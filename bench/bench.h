/* The benchmark's own frame: figures, a scratch directory, clocks, clients, children.
 *
 * A figure is one line of the table. It measures stet and the raw side in turn for BENCH_ROUNDS
 * rounds and reports the round with the median ratio, so that a disk that gets slower or a
 * neighbour that gets louder meets both sides. Anything that fails ends the program with a
 * sentence: a benchmark that goes on after an error measures nothing.
 */
#ifndef STET_BENCH_H
#define STET_BENCH_H

#include <stet.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raw.h"

#define BENCH_ROUNDS    11 /* short ones: a loud neighbour should meet both sides of a round */
#define BENCH_ROUNDS_MAX 51 /* where a round is a tenth of a second and one differs much from the next */
#define BENCH_IN_FLIGHT 256
#define BENCH_CLIENTS   8 /* threads; each has its share in flight, started with one call */

typedef struct bench_result {
    double      value;
    const char *unit;
    double      raw;   /* what it is compared with; NAN: nothing */
    double      ratio; /* NAN: none */
    bool        ok;    /* every "must" of the figure is met */
    char        note[200];
} bench_result;

typedef struct bench_figure {
    const char *name;
    const char *about;
    const char *must, *aim; /* for people */
    void (*measure)(bench_result *r);
} bench_figure;

extern const bench_figure bench_figures[]; /* ended by { 0 }; main.c */

void bench_steps3_inflight(bench_result *r); /* flow.c */
void bench_steps3_single(bench_result *r);
void bench_run0_inflight(bench_result *r);
void bench_object_onekey(bench_result *r); /* object.c */
void bench_object_100keys(bench_result *r);
void bench_sleep_overdue(bench_result *r); /* wake.c */
void bench_awakeable_resume(bench_result *r);
void bench_signal_resume(bench_result *r);
void bench_emit10k(bench_result *r); /* emit.c */
void bench_parked(bench_result *r); /* parked.c */
void bench_steps100k(bench_result *r); /* long.c */
void bench_history1m(bench_result *r); /* history.c */
void bench_verify1m(bench_result *r); /* verify.c */
void bench_ls1m(bench_result *r); /* ls.c */
void bench_retention(bench_result *r); /* retention.c */
void bench_testkit_30days(bench_result *r); /* testkit.c */
void bench_replay_ops(bench_result *r); /* replay.c */
void bench_check100k(bench_result *r);
void bench_redis_steps3(bench_result *r); /* redis.c */
void bench_redis_workers(bench_result *r);
void bench_redis_idle(bench_result *r);
void bench_redis_resolve(bench_result *r);
void bench_redis_wait(bench_result *r);
void bench_idle(bench_result *r); /* quiet.c */
void bench_schedules10k(bench_result *r);
void bench_size(bench_result *r);
void bench_postgres_steps3(bench_result *r); /* postgres.c */
void bench_postgres_workers(bench_result *r);
void bench_postgres_idle(bench_result *r);
void bench_postgres_resolve(bench_result *r);
void bench_postgres_wait(bench_result *r);
void bench_postgres_bloat(bench_result *r);
void bench_amqp_resolve(bench_result *r);
void bench_amqp_wait(bench_result *r);
/* The address of a broker that is begun by the first call, in a static buffer (rabbitmq.c). */
const char *bench_rabbit_url(const char *name);

/* ---- scratch (scratch.c) --------------------------------------------------------------------- */

/* Beside the program, so on the disk of the build directory; removed at exit. Directories left by
 * benchmarks that were killed are removed too. */
void        bench_scratch_open(void);
/* A path in it; the text is the caller's to free(). */
char       *bench_path(const char *name);
/* A path relative to the directory of the program. */
char       *bench_beside(const char *name);
/* Remove a store: the file and what lies beside it under its name. */
void        bench_remove(const char *path);

/* ---- measuring (measure.c) ------------------------------------------------------------------- */

_Noreturn void bench_fail(const char *fmt, ...) STET_PRINTF(1, 2);
void   bench_ok(int code, const char *what); /* STET_OK, or the end with stet's sentence */
double bench_now_s(void);
/* Of n values, which are sorted on the way. percent 50 is the median. */
double bench_percentile(double *values, size_t n, double percent);

/* Rounds of two numbers; reports the round whose value / raw is the median. */
typedef struct bench_rounds {
    double value[BENCH_ROUNDS_MAX], raw[BENCH_ROUNDS_MAX];
    size_t n;
} bench_rounds;
void bench_rounds_add(bench_rounds *rounds, double value, double raw_value);
void bench_rounds_report(const bench_rounds *rounds, bench_result *r);

/* Threads that each take the next of `total` pieces of work until none is left. Returns the seconds
 * from when all were ready until all were through. */
typedef void bench_piece(void *arg, int64_t i);
double       bench_clients(int clients, int64_t total, bench_piece *piece, void *arg);

/* ---- engines (measure.c) --------------------------------------------------------------------- */

/* A started worker with the benchmark's handlers on a file; defaults but for the logs. */
stet_engine *bench_worker(const char *path);
/* The same with options; .log_level is set by it. */
stet_engine *bench_worker_with(const char *path, stet_options *options);
void         bench_worker_close(stet_engine *e);
void         bench_invoke(stet_engine *e, const char *handler, const char *input, const char *key);
/* `total` runs of a handler, BENCH_IN_FLIGHT at a time; keys: 0, none; else in turn. Per second. */
double       bench_flow(stet_engine *e, const char *handler, int64_t total, int64_t keys);
double       bench_raw_commit_s(raw_db *r); /* median of single commits just now */

extern const stet_handler bench_handlers[]; /* service "bench"; handlers.c */
extern const stet_handler bench_counters[]; /* object "counter" */
/* Where "bench.awaits" tells its awakeable. */
const char *bench_awakeable_taken(void); /* NULL: not yet; forgets it */

#define BENCH_STEPS100K 100000
/* What the bodies of "bench.long" call. */
typedef struct bench_long {
    void (*on_step)(size_t i);
    void (*on_last)(void);
} bench_long;
extern bench_long bench_long_hooks;

/* ---- fixtures (fixture.c) -------------------------------------------------------------------- */

/* Written through the store port in large commits, as the engine would have written them. */
void bench_fixture_sleeping(const char *path, int64_t n, int64_t sleep_ms);
void bench_fixture_finished(const char *path, int64_t n);
/* Runs of many handlers, statuses, keys: one half over a day, the other in a burst of 50 a
 * millisecond half an hour ago. Every so manieth: */
#define BENCH_LISTED_FEW  40009 /* of the handler "bench.rare" */
#define BENCH_LISTED_RARE 90001 /* cancelled */
#define BENCH_LISTED_OPEN 5003  /* pending */
#define BENCH_LISTED_GOLD 1009  /* labelled "tier=gold" */
#define BENCH_LISTED_KEYS 10000 /* every second one has a key "customer-N" with N below that */
void bench_fixture_listed(const char *path, int64_t n);

/* ---- children (child.c) ---------------------------------------------------------------------- */

/* This program again as a process of its own: a clean heap to measure, or something to kill. It
 * writes a line of numbers when it is ready and lives on until its standard input closes. */
typedef struct bench_child {
    int pid, in, out;
} bench_child;
void bench_child_start(bench_child *c, const char *part, const char *path);
void bench_child_read(bench_child *c, double *numbers, size_t n);
void bench_child_end(bench_child *c);  /* closes its input and waits */
void bench_child_kill(bench_child *c); /* SIGKILL and waits */
/* In the child: perform `part`. Returns the exit code. */
int  bench_child_main(const char *part, const char *path);
/* In the child: say the numbers, then wait for the end. */
void bench_child_say(const double *numbers, size_t n);
void bench_child_wait(void);

/* ---- several processes on one server (fleet.c) ----------------------------------------------- */

typedef struct bench_server {
    void *arg;
    /* The address of an engine of this name; the caller's to free(). */
    char *(*url)(void *arg, const char *name);
    /* Single commits by hand just now; seconds of each. */
    void (*commits)(void *arg, int n, double *seconds);
    /* What the server is asked in so many seconds, as it tells; renewals of leases are not counted,
     * *renewals says how many there were. */
    double (*asked)(void *arg, const char *name, double seconds, double *renewals);
    /* Runs a second of a backlog by hand, with so many slots; NULL: not written. */
    double (*by_hand)(void *arg, int slots, int64_t total);
} bench_server;

void bench_fleet_workers(const bench_server *s, bench_result *r);
void bench_fleet_idle(const bench_server *s, bench_result *r);
void bench_fleet_resolve(const bench_server *s, bench_result *r);
void bench_fleet_wait(const bench_server *s, bench_result *r);
/* in_flight_max 0: the default. */
#define BENCH_SLOTS 10
int  bench_child_worker(const char *url, int64_t in_flight_max);

int bench_child_parked(const char *path); /* parked.c */
int bench_child_long(const char *path, bool is_last); /* long.c */
int bench_child_idle(const char *path); /* quiet.c */

#endif
