/* The store contract on the memory store. The database outlives its handles here, as a file
 * would. */
#include "store_contract.h"

#include "store/memory.h"

#define STORE_PREFIX G1_memory

static void
stamp_begin(contract *c)
{
    c->data = stet__memory_db_new(c->platform);
    CHECK(c->data != NULL);
}

static stet_store *
stamp_open(contract *c)
{
    stet_store *store;

    CHECK_OK(stet__memory_open(&store, c->platform, c->data));
    return store;
}

static void
stamp_advance(contract *c, int64_t ms)
{
    stet__memory_db_advance(c->data, ms);
}

static void
stamp_end(contract *c)
{
    stet__memory_db_free(c->data);
}

#include "store_suite.inc"
