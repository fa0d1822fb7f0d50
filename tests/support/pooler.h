/* PgBouncer between the tests and their PostgreSQL server, with transaction pooling: each
 * transaction of a client is given whichever of a few server connections is free. */
#ifndef STET_POOLER_H
#define STET_POOLER_H

#include <sys/types.h>

typedef struct pooler {
    char  file[160];
    int   port;
    pid_t process;
} pooler;

/* Before the server of CLUSTER_ENV, on a free port of 127.0.0.1; goes with this process, its files
 * with the server's. Ends the test if it cannot be started. */
pooler *pooler_new(int server_connections);
pooler *pooler_new_at(int port, int server_connections);
void    pooler_free(pooler *p);
/* The address by this way, in a static buffer. */
const char *pooler_url(const pooler *p, const char *schema);

#endif
