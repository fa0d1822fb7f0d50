/* Between a client and a server of the tests, PostgreSQL or Redis: forwards, until a test says
 * otherwise.
 *
 * It listens on a free port of 127.0.0.1. It knows where a request ends and where the answer to it
 * does, so that a connection is cut exactly before a request, or exactly between what the server
 * did and its answer. What it does is asked for by the test and happens once, on the connection of
 * the request. Runs on: a thread of its own.
 */
#ifndef STET_PROXY_H
#define STET_PROXY_H

#include <stddef.h>
#include <stdint.h>

#include "cluster.h"

typedef enum proxy_fault {
    PROXY_NONE,
    PROXY_LOSE_REQUEST, /* the request does not reach the server; the connection is cut */
    PROXY_LOSE_ANSWER,  /* the server has done it; the connection is cut before the answer */
    PROXY_HANG,         /* the request is swallowed, and nothing comes any more */
    PROXY_ANSWER,       /* the request is swallowed, and answered with bytes of the test */
    PROXY_SPOIL         /* the server has done it; the test changes the answer */
} proxy_fault;

enum { PROXY_NAME_MAX = 47, PROXY_KINDS_MAX = 96 };

/* Requests of one name: a PostgreSQL statement ("stet7", "prepare stet7", or how its text begins)
 * or a Redis command ("HGET", "EVALSHA 1f3a9c02", "XGROUP CREATE"); and "connect". */
typedef struct proxy_kind {
    char   name[PROXY_NAME_MAX + 1];
    size_t requests;
} proxy_kind;

typedef struct proxy proxy;

/* In front of the server of CLUSTER_ENV. */
proxy *proxy_new(void);
/* In front of a Redis server on this port. */
proxy *proxy_new_redis(int server_port);
void   proxy_free(proxy *p);
int    proxy_port(const proxy *p);
/* The address of PostgreSQL by this way, in a static buffer. */
const char *proxy_url(proxy *p, const char *schema, const char *more);

/* At the next request whose bytes have `part` in them. */
void proxy_fault_next(proxy *p, proxy_fault fault, const char *part);
/* At the nth request of this name from now on; NULL: of any. */
void proxy_fault_at(proxy *p, proxy_fault fault, const char *name, size_t n);
/* What PROXY_ANSWER answers; the bytes stay the caller's. */
void proxy_answer(proxy *p, const void *bytes, size_t len);
/* What PROXY_SPOIL does: changes the answer in place and says how long it is now, which must not be
 * more. Runs on: the proxy's thread. */
typedef size_t (*proxy_spoil_fn)(void *arg, uint8_t *bytes, size_t len);
void proxy_spoil(proxy *p, proxy_spoil_fn fn, void *arg);
/* No fault is due any more. True: it had not happened. */
bool proxy_calm(proxy *p);
int  proxy_faults(proxy *p); /* how many happened */
/* The kinds of request so far, in the order they were first made; forgotten afterwards.
 * Names beyond PROXY_KINDS_MAX are not counted. */
size_t proxy_census(proxy *p, proxy_kind kinds[PROXY_KINDS_MAX]);

/* From now on new connections go to the server on this port; those that are there stay. */
void proxy_lead(proxy *p, int server_port);

/* From now on new connections look as a pooler's: the server's process numbers are not its own. */
void proxy_pool(proxy *p);

#endif
