/* Redis by hand (see raw_redis.h): a hash for a run, a list for its journal, a sorted set of what
 * is ready. */
#include "raw_redis.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RAW_INPUT  "{\"order\":7,\"amount\":1999,\"card\":\"4242\"}"
#define RAW_RESULT "{\"charge\":\"ch_0123456789\"}"

struct raw_redis {
    redisContext *db;
    int64_t       runs, now_ms;
    int           sent; /* commands on their way */
};

static void
raw_must(raw_redis *r, int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "raw redis: %s: %s\n", what, r->db != NULL ? r->db->errstr : "out of memory");
    exit(1);
}

/* Appends; sent with the others when the answers are taken. */
#define RAW_SEND(r, ...)                                                                           \
    (raw_must(r, redisAppendCommand((r)->db, __VA_ARGS__) == REDIS_OK, "a command"), (r)->sent++)

static void
raw_sync(raw_redis *r)
{
    for (; r->sent > 0; r->sent--) {
        void *reply = NULL;

        raw_must(r, redisGetReply(r->db, &reply) == REDIS_OK, "an answer");
        raw_must(r, ((redisReply *)reply)->type != REDIS_REPLY_ERROR, "a refused command");
        freeReplyObject(reply);
    }
}

/* ---- what a run writes ----------------------------------------------------------------------- */

static void
raw_start(raw_redis *r, int64_t run)
{
    RAW_SEND(r,
             "HSET raw:r:%lld name orders.checkout input %s status 0 revision 1 created %lld "
             "updated %lld",
             (long long)run, RAW_INPUT, (long long)r->now_ms, (long long)r->now_ms);
    RAW_SEND(r, "RPUSH raw:j:%lld 1|0|orders.checkout|%s|%lld", (long long)run, RAW_INPUT,
             (long long)r->now_ms);
    RAW_SEND(r, "ZADD raw:q 0 %lld", (long long)run);
}

static void
raw_step(raw_redis *r, int64_t run, int revision, const char *name)
{
    RAW_SEND(r, "RPUSH raw:j:%lld %d|1|%s|%s|%lld", (long long)run, revision, name, RAW_RESULT,
             (long long)r->now_ms);
    RAW_SEND(r, "HSET raw:r:%lld status 1 revision %d updated %lld", (long long)run, revision,
             (long long)r->now_ms);
}

static void
raw_take_step1(raw_redis *r, int64_t run)
{
    RAW_SEND(r, "ZREM raw:q %lld", (long long)run);
    raw_step(r, run, 2, "reserve");
}

static void
raw_step2(raw_redis *r, int64_t run)
{
    raw_step(r, run, 3, "charge");
}

static void
raw_step3_finish(raw_redis *r, int64_t run)
{
    RAW_SEND(r, "RPUSH raw:j:%lld 4|1|ship|%s|%lld 5|2|return|%s|%lld", (long long)run, RAW_RESULT,
             (long long)r->now_ms, RAW_RESULT, (long long)r->now_ms);
    RAW_SEND(r, "HSET raw:r:%lld status 2 revision 5 updated %lld result %s", (long long)run,
             (long long)r->now_ms, RAW_RESULT);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double
raw_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double
raw_redis_steps3(raw_redis *r, int64_t batch, int64_t total)
{
    static void (*const phases[])(raw_redis *, int64_t) = { raw_start, raw_take_step1, raw_step2,
                                                            raw_step3_finish };
    double start_s = raw_now_s();

    for (int64_t done = 0; done < total; done += batch) {
        int64_t lot = batch < total - done ? batch : total - done;

        for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
            r->now_ms = (int64_t)(raw_now_s() * 1000);
            RAW_SEND(r, "MULTI");
            for (int64_t run = r->runs + 1; run <= r->runs + lot; run++)
                phases[i](r, run);
            RAW_SEND(r, "EXEC");
            raw_sync(r);
        }
        r->runs += lot;
    }
    return raw_now_s() - start_s;
}

void
raw_redis_commits_each(raw_redis *r, int n, double *seconds)
{
    int64_t run = ++r->runs;

    raw_start(r, run);
    raw_sync(r);
    for (int i = 0; i < n; i++) {
        double start_s = raw_now_s();

        r->now_ms = (int64_t)(start_s * 1000);
        RAW_SEND(r, "MULTI");
        raw_step(r, run, i + 2, "charge");
        RAW_SEND(r, "EXEC");
        raw_sync(r);
        seconds[i] = raw_now_s() - start_s;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

raw_redis *
raw_redis_open(int port)
{
    raw_redis *r = calloc(1, sizeof *r);

    if (r == NULL)
        exit(1);
    r->db = redisConnect("127.0.0.1", port);
    raw_must(r, r->db != NULL && r->db->err == 0, "connect");
    return r;
}

void
raw_redis_close(raw_redis *r)
{
    if (r == NULL)
        return;
    redisFree(r->db);
    free(r);
}
