/* The hint contract on the Redis store's own hints. */
#define HINT_PREFIX G9_redis
#include "redis_server.h"
#include "hint_contract.h"

__attribute__((constructor)) static void
stamp_server(void)
{
    test_before(redis_server_share);
}

static stet_store *
stamp_store(ears *c, int place)
{
    stet_store *store;
    char        name[64];

    (void)snprintf(name, sizeof name, "%s_%d", c->name, place);
    CHECK_OK(stet__store_open(&store, stet__platform_real(), redis_shared_url(name)));
    return store;
}

#include "hint_store.h"

static void
stamp_begin(ears *c)
{
    (void)c;
}

static void
stamp_end(ears *c)
{
    stamp_close_stores(c);
}

#include "hint_suite.inc"
