/* The flow of flow.c on Redis, and several processes on it: a server of the benchmark's own that
 * flushes its log before it answers (appendfsync always). */
#include "bench.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "raw_redis.h"
#include "redis_server.h"

#define REDIS_WARM_UP 2048
#define REDIS_ROUND_S 0.7

static int64_t
redis_total(double per_second)
{
    int64_t total = (int64_t)(per_second * REDIS_ROUND_S);

    return total < BENCH_IN_FLIGHT ? BENCH_IN_FLIGHT : total / BENCH_IN_FLIGHT * BENCH_IN_FLIGHT;
}

void
bench_redis_steps3(bench_result *r)
{
    redis_server *s = redis_server_new(NULL);
    bench_rounds  rounds = { .n = 0 };
    stet_engine  *e;
    raw_redis    *hand;
    int64_t       stet_total, raw_total;

    if (s == NULL)
        bench_fail("no Redis: %s", redis_server_why());
    e = bench_worker(redis_server_url(s, "bench"));
    hand = raw_redis_open(s->port);
    stet_total = redis_total(bench_flow(e, "bench.steps3", REDIS_WARM_UP, 0));
    raw_total = redis_total(REDIS_WARM_UP / raw_redis_steps3(hand, BENCH_IN_FLIGHT, REDIS_WARM_UP));
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        double stet_rate = bench_flow(e, "bench.steps3", stet_total, 0);

        bench_rounds_add(&rounds, stet_rate,
                         (double)raw_total / raw_redis_steps3(hand, BENCH_IN_FLIGHT, raw_total));
    }
    bench_worker_close(e);
    raw_redis_close(hand);
    redis_server_free(s);
    bench_rounds_report(&rounds, r);
    r->unit = "runs/s";
    r->ok = r->ratio >= 0.4;
}

/* ---- several processes ----------------------------------------------------------------------- */

typedef struct redis {
    redis_server *s;
    raw_redis    *hand;
} redis;

static char *
redis_url(void *arg, const char *name)
{
    const redis *p = arg;

    return strdup(redis_server_url(p->s, name));
}

static void
redis_commits(void *arg, int n, double *seconds)
{
    raw_redis_commits_each(((const redis *)arg)->hand, n, seconds);
}

/* MONITOR tells every command, those of scripts as `[0 lua]`: they are no questions. */
static double
redis_asked(void *arg, const char *name, double seconds, double *renewals)
{
    const redis   *p = arg;
    redisContext  *db = redisConnect("127.0.0.1", p->s->port);
    double         until_s, left_s, asked = 0;
    struct timeval patience;
    void          *reply;

    (void)name;
    if (db == NULL || db->err != 0 || (reply = redisCommand(db, "MONITOR")) == NULL)
        bench_fail("cannot watch the server");
    freeReplyObject(reply);
    *renewals = 0;
    until_s = bench_now_s() + seconds;
    while ((left_s = until_s - bench_now_s()) > 0) {
        const redisReply *line;

        patience = (struct timeval){ (time_t)left_s,
                                     (suseconds_t)((left_s - (double)(time_t)left_s) * 1e6) };
        if (redisSetTimeout(db, patience) != REDIS_OK)
            bench_fail("cannot watch the server");
        if (redisGetReply(db, &reply) != REDIS_OK)
            break; /* nothing more in that time */
        line = reply;
        if (strstr(line->str, " lua]") == NULL) {
            if (strstr(line->str, "\"renew\"") != NULL)
                ++*renewals;
            else
                asked++;
        }
        freeReplyObject(reply);
    }
    redisFree(db);
    return asked;
}

static void
redis_fleet(void (*measure)(const bench_server *s, bench_result *r), bench_result *r)
{
    redis        p;
    bench_server s = { &p, redis_url, redis_commits, redis_asked, NULL };

    if ((p.s = redis_server_new(NULL)) == NULL)
        bench_fail("no Redis: %s", redis_server_why());
    p.hand = raw_redis_open(p.s->port);
    measure(&s, r);
    raw_redis_close(p.hand);
    redis_server_free(p.s);
}

void
bench_redis_workers(bench_result *r)
{
    redis_fleet(bench_fleet_workers, r);
}

void
bench_redis_idle(bench_result *r)
{
    redis_fleet(bench_fleet_idle, r);
}

void
bench_redis_resolve(bench_result *r)
{
    redis_fleet(bench_fleet_resolve, r);
}

void
bench_redis_wait(bench_result *r)
{
    redis_fleet(bench_fleet_wait, r);
}
