/* The hint contract on the SQLite store's own hints. tsan: yes */
#define HINT_PREFIX G9_sqlite
#include "hint_contract.h"

static stet_store *
stamp_store(ears *c, int place)
{
    stet_store *store;

    (void)c;
    CHECK_OK(stet__store_open(&store, stet__platform_real(),
                              test_path(place == 0 ? "here.db" : "there.db")));
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
