/* Several processes on one server: how work scales over workers, what idle ones ask, and how long
 * news takes from one process to another.
 *
 * Workers are children; this process is a client of theirs. Times are taken on both sides by the
 * steady clock, which is the same for all processes of a machine, and travel as results of runs.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLEET_WORKERS    4
#define FLEET_ROUND_S    0.8
#define FLEET_WARM_UP    1024
#define FLEET_IDLE       10
#define FLEET_IDLE_S     20.0
#define FLEET_IDLE_MAX   20.0
#define FLEET_SETTLE_S   7 /* longer than the slowest poll */
#define FLEET_NEWS       40
#define FLEET_PATIENCE_S 30.0
#define FLEET_LOOK_NS    1000000

/* ---- workers --------------------------------------------------------------------------------- */

int
bench_child_worker(const char *url)
{
    stet_engine *e = bench_worker(url);
    double       ready = 1;

    bench_child_say(&ready, 1);
    bench_child_wait();
    bench_worker_close(e);
    return 0;
}

static void
fleet_start(bench_child *workers, int n, const char *url)
{
    double ready;

    for (int i = 0; i < n; i++) {
        bench_child_start(&workers[i], "worker", url);
        bench_child_read(&workers[i], &ready, 1);
    }
}

static void
fleet_end(bench_child *workers, int n)
{
    for (int i = 0; i < n; i++)
        bench_child_end(&workers[i]);
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

static int64_t
fleet_total(double per_second)
{
    int64_t total = (int64_t)(per_second * FLEET_ROUND_S);

    return total < BENCH_IN_FLIGHT ? BENCH_IN_FLIGHT : total;
}

/* One engine with one worker, one with four: they take turns, and who has none is idle. */
void
bench_fleet_workers(const bench_server *s, bench_result *r)
{
    char        *one_url = s->url(s->arg, "one"), *four_url = s->url(s->arg, "four");
    bench_child  one_worker[1], workers[FLEET_WORKERS];
    bench_rounds rounds = { .n = 0 };
    stet_engine *one, *four;
    int64_t      one_total, four_total;

    fleet_start(one_worker, 1, one_url);
    fleet_start(workers, FLEET_WORKERS, four_url);
    one = fleet_client(one_url);
    four = fleet_client(four_url);
    one_total = fleet_total(bench_flow(one, "bench.busy3", FLEET_WARM_UP, 0));
    four_total = fleet_total(bench_flow(four, "bench.busy3", FLEET_WARM_UP, 0));
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        double four_rate = bench_flow(four, "bench.busy3", four_total, 0);

        bench_rounds_add(&rounds, four_rate, bench_flow(one, "bench.busy3", one_total, 0));
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

    fleet_start(workers, FLEET_IDLE, url);
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

static double
news_wait(stet_engine *e, const stet_run_id *run)
{
    stet_result result;
    char        text[64] = "";
    double      stamp_s;

    bench_ok(stet_wait(e, &result, run, 0), "stet_wait");
    if (result.value.len < sizeof text)
        memcpy(text, result.value.data, result.value.len);
    stamp_s = strtod(text, NULL);
    stet_result_free(&result);
    return stamp_s;
}

typedef struct news_said {
    char        id[STET_ID_TEXT_MAX];
    stet_status status;
} news_said;

static int
news_fact(void *arg, const stet_fact_info *fact)
{
    news_said *said = arg;

    if (fact->name != NULL && strcmp(fact->name, "say") == 0 && fact->value.len > 0 &&
        fact->value.len < sizeof said->id) {
        memcpy(said->id, fact->value.data, fact->value.len);
        said->id[fact->value.len] = '\0';
    }
    return 0;
}

static int
news_status(void *arg, const stet_run_info *info)
{
    ((news_said *)arg)->status = info->status;
    return 0;
}

/* The run is suspended and its awakeable is recorded. */
static void
news_suspended(stet_engine *e, const stet_run_id *run, news_said *said)
{
    double          until_s = bench_now_s() + FLEET_PATIENCE_S;
    struct timespec a_moment = { 0, FLEET_LOOK_NS };

    memset(said, 0, sizeof *said);
    while (said->id[0] == '\0' || said->status != STET_STATUS_SUSPENDED) {
        if (bench_now_s() > until_s)
            bench_fail("a run did not suspend at its awakeable");
        nanosleep(&a_moment, NULL);
        bench_ok(stet_run_get(e, run, news_status, said), "stet_run_get");
        if (said->status == STET_STATUS_SUSPENDED)
            bench_ok(stet_run_facts(e, run, true, news_fact, said), "stet_run_facts");
    }
}

/* From the call of resolve until the handler goes on in the worker. */
static double
news_resolve_s(stet_engine *e)
{
    stet_run_id run;
    news_said   said;
    double      start_s;

    bench_ok(stet_start(e, &run, "bench.resumed", stet_text("{}"), NULL), "stet_start");
    news_suspended(e, &run, &said);
    start_s = bench_now_s();
    bench_ok(stet_resolve(e, said.id, stet_text("{\"by\":\"bench\"}")), "stet_resolve");
    return news_wait(e, &run) - start_s;
}

/* From the handler's return, before it is recorded, until the answer is here. */
static double
news_wait_s(stet_engine *e)
{
    stet_run_id run;
    double      stamp_s;

    bench_ok(stet_start(e, &run, "bench.stamp", stet_text("{}"), NULL), "stet_start");
    stamp_s = news_wait(e, &run);
    return bench_now_s() - stamp_s;
}

static void
fleet_news(const bench_server *s, bench_result *r, double (*one_s)(stet_engine *e))
{
    char        *url = s->url(s->arg, "news");
    bench_child  worker;
    bench_rounds rounds = { .n = 0 };
    stet_engine *e;
    double       took_s[FLEET_NEWS];

    fleet_start(&worker, 1, url);
    e = fleet_client(url);
    (void)one_s(e);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        for (int k = 0; k < FLEET_NEWS; k++)
            took_s[k] = one_s(e);
        bench_rounds_add(&rounds, bench_percentile(took_s, FLEET_NEWS, 50) * 1e6,
                         s->commit_s(s->arg) * 1e6);
    }
    bench_worker_close(e);
    fleet_end(&worker, 1);
    free(url);
    bench_rounds_report(&rounds, r);
    r->unit = "us";
}

void
bench_fleet_resolve(const bench_server *s, bench_result *r)
{
    fleet_news(s, r, news_resolve_s);
    r->ok = r->ratio <= 5;
}

void
bench_fleet_wait(const bench_server *s, bench_result *r)
{
    fleet_news(s, r, news_wait_s);
    r->ok = r->ratio <= 3;
}
