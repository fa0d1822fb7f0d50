/* The quick scripts of the Redis store against the memory store. */
#include <stdio.h>

#include "redis_server.h"
#include "store/redis.h"
#include "test.h"

#define QUICK_PREFIX G4_redis

__attribute__((constructor)) static void
quick_server(void)
{
    test_before(redis_server_share);
}

static const char *
quick_url(void)
{
    char prefix[48];

    (void)snprintf(prefix, sizeof prefix, "t%s", test_unique());
    return redis_shared_url(prefix);
}

static bool
quick_was_used(stet_store *s)
{
    const uint64_t *n = redis_of(s)->n_quick;

    test_note("%llu commits by steps, %llu by wake, %llu by one", (unsigned long long)n[REDIS_STEPS],
              (unsigned long long)n[REDIS_WAKE], (unsigned long long)n[REDIS_ONE]);
    return n[REDIS_STEPS] > 200 && n[REDIS_WAKE] > 50 && n[REDIS_ONE] > 50;
}

static bool
quick_starts_were_used(stet_store *s)
{
    test_note("%llu commits by starts", (unsigned long long)redis_of(s)->n_quick[REDIS_STARTS]);
    return redis_of(s)->n_quick[REDIS_STARTS] > 30;
}

#include "quick_suite.inc"
