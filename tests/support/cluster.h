/* A private PostgreSQL server for tests: made by initdb in a fresh directory, on a free port of
 * 127.0.0.1 and on a socket in that directory, run by an unprivileged user, durable as it comes.
 *
 * A keeper process owns it. The keeper waits at a pipe whose other end is with the process that
 * asked for the server; when that process is gone, however it went, the keeper stops the server and
 * removes the directory. A server that ends on its own, or is killed by a test, is started again.
 */
#ifndef STET_CLUSTER_H
#define STET_CLUSTER_H

#include <stdbool.h>
#include <sys/types.h>

#define CLUSTER_ENV      "STET_TEST_POSTGRES" /* the address of a server that is there */
#define CLUSTER_USER     "stet"
#define CLUSTER_PASSWORD "s3cret-of-the-tests"

typedef struct cluster {
    char  dir[96];
    int   port;
    pid_t keeper;
    int   life; /* closing it ends the server */
} cluster;

/* NULL: it cannot be started here; cluster_why() says why. */
cluster    *cluster_new(void);
/* A second server that follows this one, until SELECT pg_promote(). */
cluster    *cluster_standby(const cluster *primary);
const char *cluster_why(void);
/* Ends the server and waits until it and its directory are gone. Accepts NULL. */
void cluster_free(cluster *c);
/* The server's first process, or 0 while it is being started. */
pid_t cluster_server(const cluster *c);
/* Wait until it answers. */
bool cluster_await(const cluster *c);

/* One server for all tests of a program, or of several: the first call in a program starts one,
 * unless CLUSTER_ENV names one, and sets CLUSTER_ENV. To be called before the tests are forked. */
void cluster_share(void);
/* The address of a schema of its own, in a static buffer; ends the test if there is no server. */
const char *cluster_url(const char *schema);
/* The address of this server in the same form, with another host, user … as a test needs them. */
const char *cluster_url_of(const cluster *c, const char *schema);

#endif
