/* The quick functions of the PostgreSQL store against the memory store. */
#include "cluster.h"
#include "store/postgres.h"
#include "test.h"

#define QUICK_PREFIX G3_postgres

__attribute__((constructor)) static void
quick_server(void)
{
    test_before(cluster_share);
}

static const char *
quick_url(void)
{
    char schema[48];

    (void)snprintf(schema, sizeof schema, "t_%s", test_unique());
    return cluster_url(schema);
}

static bool
quick_was_used(stet_store *s)
{
    const bool *is_prepared = pg_of(s)->writer.is_prepared;

    return is_prepared[PG_SQL_STEPS] && is_prepared[PG_SQL_WAKE] && is_prepared[PG_SQL_CLAIM] &&
           is_prepared[PG_SQL_ONE];
}

/* It has none for them. */
static bool
quick_starts_were_used(stet_store *s)
{
    (void)s;
    return true;
}

#include "quick_suite.inc"
