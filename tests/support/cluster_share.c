/* The server that all tests of a program share; see cluster.h. */
#include "cluster.h"

#include "test.h"

void
cluster_share(void)
{
    cluster *c;

    if (getenv(CLUSTER_ENV) != NULL)
        return;
    if ((c = cluster_new()) != NULL)
        setenv(CLUSTER_ENV, cluster_url_of(c, NULL), 1);
    else
        fprintf(stderr, "no PostgreSQL for the tests: %s\n", cluster_why());
    free(c); /* not cluster_free(): the server lives as long as this process */
}

const char *
cluster_url(const char *schema)
{
    static char url[512];
    const char *server = getenv(CLUSTER_ENV);

    if (server == NULL)
        test_fail(__FILE__, __LINE__, "there is no PostgreSQL server: %s", cluster_why());
    setenv("TMPDIR", test_dir(), 1); /* crumbs go with the test */
    (void)snprintf(url, sizeof url, "%s&schema=%s", server, schema);
    return url;
}
