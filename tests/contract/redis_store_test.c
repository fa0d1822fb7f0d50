/* The store contract on Redis: a prefix for each test on a server of the tests' own. */
#include "store_contract.h"

#include <unistd.h>

#include "redis_server.h"
#include "store/redis.h"

#define STORE_PREFIX G4_redis

__attribute__((constructor)) static void
stamp_server(void)
{
    test_before(redis_server_share);
}

static const char *
stamp_url(void)
{
    char prefix[48];

    (void)snprintf(prefix, sizeof prefix, "t%s", test_unique());
    return redis_shared_url(prefix);
}

static void
stamp_begin(contract *c)
{
    c->data = NULL;
}

static stet_store *
stamp_open(contract *c)
{
    stet_store *store;

    CHECK_OK(stet__store_open(&store, c->platform, stamp_url()));
    stet__redis_test_advance(store, c->advanced_ms);
    return store;
}

static void
stamp_advance(contract *c, int64_t ms)
{
    for (size_t i = 0; i < CONTRACT_HANDLES; i++)
        if (c->handles[i] != NULL)
            stet__redis_test_advance(c->handles[i], ms);
}

static void
stamp_end(contract *c)
{
    (void)c;
}

#include "store_suite.inc"
