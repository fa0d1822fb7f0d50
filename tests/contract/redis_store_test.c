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

/* ==== only here: an estimate of the server's clock ============================================ */

/* As if the answers so far had been half a second on their way. */
TEST(G6_redis_a_handle_that_is_behind_asks_for_the_time)
{
    contract    c;
    stet_store *behind;
    int64_t     before;

    contract_begin(&c);
    behind = contract_open(&c);
    stet__redis_clock_seen((redis_store *)(void *)behind, contract_now(&c) - 500);
    before = contract_now(&c);
    CHECK(behind->ops->now_ms(behind) < before);
    CHECK_OK(behind->ops->ping(behind));
    CHECK(behind->ops->now_ms(behind) >= before);
    contract_end(&c);
}
