/* Redis by hand: the least a durable workflow must write, with none of the engine.
 *
 * One connection, commands pipelined, a transaction (MULTI … EXEC) for each phase of a lot, and the
 * server flushes its log before it answers, as it does for the engine. See raw.h. */
#ifndef STET_BENCH_RAW_REDIS_H
#define STET_BENCH_RAW_REDIS_H

#include <stdint.h>

typedef struct raw_redis raw_redis;

raw_redis *raw_redis_open(int port);
void       raw_redis_close(raw_redis *r); /* accepts NULL */
/* `total` workflows of three steps in lots of `batch`; seconds. A lot is four transactions. */
double raw_redis_steps3(raw_redis *r, int64_t batch, int64_t total);
/* `n` transactions one after the other, each of a fact and its run's row; seconds of each. */
void raw_redis_commits_each(raw_redis *r, int n, double *seconds);

#endif
