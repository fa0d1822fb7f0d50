/* The Redis server that all tests of a program share; see redis_server.h. */
#include "redis_server.h"
#include "test.h"

void
redis_server_share(void)
{
    redis_server *s;
    char          port[16];

    if (getenv(REDIS_SERVER_ENV) != NULL)
        return;
    if ((s = redis_server_new(NULL)) == NULL) {
        fprintf(stderr, "no Redis for the tests: %s\n", redis_server_why());
        return;
    }
    (void)snprintf(port, sizeof port, "%d", s->port);
    setenv(REDIS_SERVER_ENV, port, 1);
    free(s); /* not redis_server_free(): the server lives as long as this process */
}

const char *
redis_shared_url(const char *prefix)
{
    const char *port = getenv(REDIS_SERVER_ENV);

    if (port == NULL)
        test_fail(__FILE__, __LINE__, "there is no Redis server: %s", redis_server_why());
    setenv("TMPDIR", test_dir(), 1); /* crumbs go with the test */
    return redis_server_url_at((int)strtol(port, NULL, 10), prefix);
}
