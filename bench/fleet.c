/* Several processes on one server: how work scales over workers, what idle ones ask, and how long
 * news takes from one process to another.
 *
 * Workers are children; this process is a client of theirs. Times are taken on both sides by the
 * steady clock, which is the same for all processes of a machine, and travel as results of runs.
 */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLEET_WORKERS    4
#define FLEET_ROUND_S    1.2
#define FLEET_ROUNDS     7 /* of workers: each has two backlogs to be put there */
#define FLEET_HAND_ROUNDS 3
#define FLEET_LOT        256  /* runs that one call starts */
#define FLEET_LEAD_MS    1500 /* time to start a backlog in */
#define FLEET_WARM_UP    1024
#define FLEET_IDLE       10
#define FLEET_IDLE_S     20.0
#define FLEET_IDLE_MAX   20.0
#define FLEET_SETTLE_S   12 /* PostgreSQL counts what an idle connection did 10 s later */
#define FLEET_NEWS       40
#define FLEET_PATIENCE_S 30.0
#define FLEET_LOOK_NS    1000000

/* ---- workers --------------------------------------------------------------------------------- */

int
bench_child_worker(const char *url, int64_t in_flight_max)
{
    stet_options options;
    stet_engine *e;
    double       ready = 1;

    stet_options_init(&options);
    options.concurrency = BENCH_SLOTS;
    options.in_flight_max = in_flight_max;
    e = bench_worker_with(url, &options);
    bench_child_say(&ready, 1);
    bench_child_wait();
    bench_worker_close(e);
    return 0;
}

static void
fleet_start(bench_child *workers, int n, const char *part, const char *url)
{
    double ready;

    for (int i = 0; i < n; i++) {
        bench_child_start(&workers[i], part, url);
        bench_child_read(&workers[i], &ready, 1);
    }
}

static void
fleet_end(bench_child *workers, int n)
{
    for (int i = 0; i < n; i++)
        bench_child_end(&workers[i]);
}

static int64_t
fleet_wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static stet_engine *
fleet_client(const char *url)
{
    stet_engine *e = NULL;
    stet_options options;

    stet_options_init(&options);
    options.roles = STET_ROLE_CLIENT;
    options.log_level = STET_LOG_ERROR;
    bench_ok(stet_open(&e, url, &options), url);
    bench_ok(stet_engine_start(e), "stet_engine_start");
    return e;
}

/* Runs a second that the workers get done of a backlog: `total` runs are started before they are due, so that starting
 * them takes nothing from the workers, which share this machine with their clients; timed from the first tenth to the
 * last. They are executed about in the order they were started. */
static double
fleet_backlog(stet_engine *e, int64_t total)
{
    stet_start_request *requests = calloc((size_t)total, sizeof *requests);
    stet_start_options  options;
    double              start_s;

    if (requests == NULL)
        bench_fail("out of memory");
    stet_start_options_init(&options);
    options.run_at_ms = fleet_wall_ms() + FLEET_LEAD_MS;
    for (int64_t i = 0; i < total; i++)
        requests[i] = (stet_start_request){ .handler = "bench.busy3",
                                            .input = stet_text("{\"order\":7}"),
                                            .options = &options };
    for (int64_t i = 0; i < total; i += FLEET_LOT)
        bench_ok(stet_start_many(e, requests + i,
                                 (size_t)(total - i < FLEET_LOT ? total - i : FLEET_LOT)),
                 "bench.busy3");
    if (fleet_wall_ms() > options.run_at_ms)
        bench_fail("%lld runs took longer to start than %d ms", (long long)total, FLEET_LEAD_MS);
    bench_ok(stet_wait(e, NULL, &requests[total / 10].run, 0), "bench.busy3");
    start_s = bench_now_s();
    bench_ok(stet_wait(e, NULL, &requests[total - 1 - total / 10].run, 0), "bench.busy3");
    start_s = bench_now_s() - start_s;
    for (int64_t i = total - total / 10; i < total; i++) /* those before have ended */
        bench_ok(stet_wait(e, NULL, &requests[i].run, 0), "bench.busy3");
    free(requests);
    return (double)(total - 1 - total / 10 - total / 10) / start_s;
}

static int64_t
fleet_total(double per_second)
{
    int64_t total = (int64_t)(per_second * FLEET_ROUND_S);

    return total < BENCH_IN_FLIGHT ? BENCH_IN_FLIGHT : total;
}

/* What four times the slots bring who does the same by hand: the machine and the server set a limit, too. */
static void
fleet_by_hand(const bench_server *s, bench_result *r)
{
    bench_rounds rounds = { .n = 0 };
    bench_result hand;
    int64_t      one = fleet_total(s->by_hand(s->arg, BENCH_SLOTS, FLEET_WARM_UP));
    int64_t      four = fleet_total(s->by_hand(s->arg, BENCH_SLOTS * FLEET_WORKERS, FLEET_WARM_UP));

    for (int i = 0; i < FLEET_HAND_ROUNDS; i++) {
        double four_rate = s->by_hand(s->arg, BENCH_SLOTS * FLEET_WORKERS, four);

        bench_rounds_add(&rounds, four_rate, s->by_hand(s->arg, BENCH_SLOTS, one));
    }
    bench_rounds_report(&rounds, &hand);
    snprintf(r->note, sizeof r->note, "by hand %.2f (%.0f and %.0f runs/s)", hand.ratio, hand.value,
             hand.raw);
}

/* One engine with one worker, one with four: they take turns, and who has none is idle. A worker
 * takes as many runs as it has slots. */
void
bench_fleet_workers(const bench_server *s, bench_result *r)
{
    char        *one_url = s->url(s->arg, "one"), *four_url = s->url(s->arg, "four");
    bench_child  one_worker[1], workers[FLEET_WORKERS];
    bench_rounds rounds = { .n = 0 };
    stet_engine *one, *four;
    int64_t      one_total, four_total;

    fleet_start(one_worker, 1, "slots", one_url);
    fleet_start(workers, FLEET_WORKERS, "slots", four_url);
    one = fleet_client(one_url);
    four = fleet_client(four_url);
    one_total = fleet_total(fleet_backlog(one, FLEET_WARM_UP));
    four_total = fleet_total(fleet_backlog(four, FLEET_WARM_UP));
    for (int i = 0; i < FLEET_ROUNDS; i++) {
        double four_rate = fleet_backlog(four, four_total);

        bench_rounds_add(&rounds, four_rate, fleet_backlog(one, one_total));
    }
    bench_worker_close(one);
    bench_worker_close(four);
    fleet_end(one_worker, 1);
    fleet_end(workers, FLEET_WORKERS);
    free(one_url);
    free(four_url);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 3;
    if (s->by_hand != NULL)
        fleet_by_hand(s, r);
}

/* ---- idle ------------------------------------------------------------------------------------ */

void
bench_fleet_idle(const bench_server *s, bench_result *r)
{
    struct timespec settle = { FLEET_SETTLE_S, 0 };
    char           *url = s->url(s->arg, "idle");
    bench_child     workers[FLEET_IDLE];
    stet_engine    *e;
    double          renewals;

    fleet_start(workers, FLEET_IDLE, "worker", url);
    e = fleet_client(url);
    bench_invoke(e, "bench.steps3", "{}", NULL);
    bench_worker_close(e);
    nanosleep(&settle, NULL);
    r->value = s->asked(s->arg, "idle", FLEET_IDLE_S, &renewals) / FLEET_IDLE_S;
    fleet_end(workers, FLEET_IDLE);
    free(url);
    r->unit = "/s";
    r->ok = r->value < FLEET_IDLE_MAX;
    snprintf(r->note, sizeof r->note, "and %.2f renewals of leases a second",
             renewals / FLEET_IDLE_S);
}

/* ---- news ------------------------------------------------------------------------------------ */

typedef struct news {
    stet_engine *e;
    stet_run_id  run;
    uint64_t     reads;
    char         id[STET_ID_TEXT_MAX]; /* of its awakeable */
    stet_status  status;
    double       resolved_s, resumed_s, answered_s;
} news;

static int
news_fact(void *arg, const stet_fact_info *fact)
{
    news *n = arg;

    if (fact->name != NULL && strcmp(fact->name, "say") == 0 && fact->value.len > 0 &&
        fact->value.len < sizeof n->id) {
        memcpy(n->id, fact->value.data, fact->value.len);
        n->id[fact->value.len] = '\0';
    }
    return 0;
}

static int
news_status(void *arg, const stet_run_info *info)
{
    ((news *)arg)->status = info->status;
    return 0;
}

static void
news_moment(double until_s, const char *what)
{
    struct timespec a_moment = { 0, FLEET_LOOK_NS };

    if (bench_now_s() > until_s)
        bench_fail("%s", what);
    nanosleep(&a_moment, NULL);
}

/* The run is suspended and its awakeable is recorded. */
static void
news_suspended(news *n)
{
    double until_s = bench_now_s() + FLEET_PATIENCE_S;

    n->id[0] = '\0';
    n->status = STET_STATUS_PENDING;
    while (n->id[0] == '\0' || n->status != STET_STATUS_SUSPENDED) {
        news_moment(until_s, "a run did not suspend at its awakeable");
        bench_ok(stet_run_get(n->e, &n->run, news_status, n), "stet_run_get");
        if (n->status == STET_STATUS_SUSPENDED)
            bench_ok(stet_run_facts(n->e, &n->run, true, news_fact, n), "stet_run_facts");
    }
}

static void *
news_waiter(void *arg)
{
    news       *n = arg;
    stet_result result;
    char        text[64] = "";

    bench_ok(stet_wait(n->e, &result, &n->run, 0), "stet_wait");
    n->answered_s = bench_now_s();
    if (result.value.len < sizeof text)
        memcpy(text, result.value.data, result.value.len);
    n->resumed_s = strtod(text, NULL);
    stet_result_free(&result);
    return NULL;
}

/* One run is resolved while somebody waits for it. */
static void
news_one(news *n)
{
    double    until_s = bench_now_s() + FLEET_PATIENCE_S;
    pthread_t waiter;

    bench_ok(stet_start(n->e, &n->run, "bench.resumed", stet_text("{}"), NULL), "stet_start");
    news_suspended(n);
    n->reads = stet_engine_reads(n->e);
    if (pthread_create(&waiter, NULL, news_waiter, n) != 0)
        bench_fail("cannot start a waiter");
    do
        news_moment(until_s, "nobody waits");
    while (stet_engine_reads(n->e) == n->reads);
    n->resolved_s = bench_now_s();
    bench_ok(stet_resolve(n->e, n->id, stet_text("{\"by\":\"bench\"}")), "stet_resolve");
    pthread_join(waiter, NULL);
}

/* Seconds of one kind, for each of FLEET_NEWS; *raw_s: median of the commits in between. One after
 * each, so that a loud neighbour meets both, and neither finds a server that is warm. */
static void
news_round(const bench_server *s, news *n, bool is_wait, double *took_s, double *raw_s)
{
    double commit_s[FLEET_NEWS];

    for (int i = 0; i < FLEET_NEWS; i++) {
        news_one(n);
        took_s[i] = is_wait ? n->answered_s - n->resumed_s : n->resumed_s - n->resolved_s;
        s->commits(s->arg, 1, &commit_s[i]);
    }
    *raw_s = bench_percentile(commit_s, FLEET_NEWS, 50);
}

static void
fleet_news(const bench_server *s, bench_result *r, bool is_wait)
{
    char        *url = s->url(s->arg, "news");
    bench_child  worker;
    bench_rounds rounds = { .n = 0 };
    news         n;
    double       took_s[FLEET_NEWS], raw_s, median_s;

    fleet_start(&worker, 1, "worker", url);
    n.e = fleet_client(url);
    news_one(&n);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        news_round(s, &n, is_wait, took_s, &raw_s);
        median_s = bench_percentile(took_s, FLEET_NEWS, 50);
        /* The clock of a wait starts before the end is recorded: that is a commit by hand, too. */
        bench_rounds_add(&rounds, (is_wait ? median_s - raw_s : median_s) * 1e6, raw_s * 1e6);
    }
    bench_worker_close(n.e);
    fleet_end(&worker, 1);
    free(url);
    bench_rounds_report(&rounds, r);
    r->unit = "us";
}

void
bench_fleet_resolve(const bench_server *s, bench_result *r)
{
    fleet_news(s, r, false);
    r->ok = r->ratio <= 5;
}

void
bench_fleet_wait(const bench_server *s, bench_result *r)
{
    fleet_news(s, r, true);
    r->ok = r->ratio <= 3;
}
