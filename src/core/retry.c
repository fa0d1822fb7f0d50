/* Retry arithmetic; see retry.h. Policies come from stored facts, so any number may be in them. */
#include "core/retry.h"

/* One factor further, at least a millisecond: small waits would else never grow by 150 %. */
static int64_t
backoff_grow(int64_t wait_ms, int64_t factor_percent)
{
    int64_t grown_ms;

    if (wait_ms > INT64_MAX / factor_percent)
        return INT64_MAX;
    grown_ms = wait_ms * factor_percent / 100;
    return grown_ms > wait_ms ? grown_ms : wait_ms + 1;
}

/* Up or down by at most the spread, within 0 and the maximum. */
static int64_t
backoff_jitter(int64_t wait_ms, int64_t max_ms, int64_t jitter_percent, uint64_t random)
{
    uint64_t spread = (uint64_t)(wait_ms / 100 * jitter_percent + wait_ms % 100 * jitter_percent / 100);
    uint64_t at = random % (2 * spread + 1);

    if (at < spread)
        return wait_ms - (int64_t)(spread - at);
    return at - spread < (uint64_t)(max_ms - wait_ms) ? wait_ms + (int64_t)(at - spread) : max_ms;
}

int64_t
stet__backoff_ms(const stet__backoff *policy, uint32_t failed, uint64_t random)
{
    int64_t max_ms = policy->max_ms > 0 ? policy->max_ms : 0;
    int64_t wait_ms = policy->first_ms > 0 ? policy->first_ms : 0;
    int64_t jitter = policy->jitter_percent < 100 ? policy->jitter_percent : 100;

    /* Growth is exponential above 100 ms, so this ends soon however often it failed. */
    for (uint32_t i = 1; i < failed && wait_ms < max_ms && policy->factor_percent > 100; i++)
        wait_ms = backoff_grow(wait_ms, policy->factor_percent);
    if (wait_ms > max_ms)
        wait_ms = max_ms;
    return jitter > 0 ? backoff_jitter(wait_ms, max_ms, jitter, random) : wait_ms;
}

int64_t
stet__deferred_ms(const stet__backoff *policy, int64_t asked_ms, int64_t now_ms, uint64_t random)
{
    return asked_ms > now_ms ? asked_ms : stet__time_add(now_ms, stet__backoff_ms(policy, 1, random));
}
