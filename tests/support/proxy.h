/* Between a client and a PostgreSQL server of the tests: forwards, until a test says otherwise.
 *
 * It listens on a free port of 127.0.0.1. What it does to a connection is asked for by the test and
 * happens once, at the next statement on any connection. Runs on: a thread of its own.
 */
#ifndef STET_PROXY_H
#define STET_PROXY_H

#include "cluster.h"

typedef enum proxy_fault {
    PROXY_NONE,
    PROXY_LOSE_REQUEST, /* the statement does not reach the server; the connection is cut */
    PROXY_LOSE_ANSWER,  /* the server has done it; the connection is cut before the answer */
    PROXY_HANG          /* the statement is swallowed, and nothing comes any more */
} proxy_fault;

typedef struct proxy proxy;

/* In front of the server of CLUSTER_ENV. */
proxy *proxy_new(void);
void   proxy_free(proxy *p);
/* The address by this way, in a static buffer. */
const char *proxy_url(proxy *p, const char *schema, const char *more);
/* At the next statement whose text or name has `part` in it. */
void proxy_fault_next(proxy *p, proxy_fault fault, const char *part);
int  proxy_faults(proxy *p); /* how many happened */
/* From now on new connections look as a pooler's: the server's process numbers are not its own. */
void proxy_pool(proxy *p);

#endif
