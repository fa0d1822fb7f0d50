/* Retry arithmetic: exponential backoff with jitter. Pure. */
#ifndef STET__RETRY_H
#define STET__RETRY_H

#include "util/util.h"

typedef struct stet__backoff {
    int64_t attempts; /* executions in all */
    int64_t first_ms, max_ms;
    int64_t factor_percent, jitter_percent;
} stet__backoff;

/* Wait before attempt `failed` + 1, after `failed` (>= 1) executions failed. `random` is any number;
 * the jitter is ± jitter_percent, and the sum never exceeds max_ms nor is below 0. */
int64_t stet__backoff_ms(const stet__backoff *policy, uint32_t failed, uint64_t random);

/* When to come back for who asked for a time. One that is past counts as a first failure's wait: a deferral uses no
 * attempt, and would go round without end. */
int64_t stet__deferred_ms(const stet__backoff *policy, int64_t asked_ms, int64_t now_ms, uint64_t random);

#endif
