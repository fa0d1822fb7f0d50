/* A life of an engine that uses all of a store, and the same life with its connection cut at each
 * request in turn: before it arrives, and after it was done and before the answer.
 *
 * Bodies are counted outside the engine. No process ends here, so a cut is no reason to execute one
 * twice: the books must be exact, everything must end, verify must find nothing.
 */
#ifndef STET_CUTS_H
#define STET_CUTS_H

#include <stddef.h>

#include <stet.h>

#include "proxy.h"

typedef struct cuts {
    proxy *proxy;
    /* The address for the nth life, by way of the proxy. */
    const char *(*url)(struct cuts *c, size_t n);
    /* Every so many of the requests of a kind are tried, the first always. */
    size_t stride;
    /* Where the store has transactions, else NULL: the body of a transactional step, which pays
     * for a key; a start
     * of "cut.inside" in a transaction that asks for that key (STET_EIO: the connection was lost,
     * call it again); and
     * how often a key was paid and asked for, by a connection that is not cut. */
    stet_body_fn pay;
    int (*start_in)(struct cuts *c, stet_engine *e, const char *key);
    void (*count)(struct cuts *c, const char *key, int *paid, int *asked);
} cuts;

/* STET_CUT_STRIDE, or this. STET_CUT_KINDS=N: of every Nth kind only. */
size_t cuts_stride(size_t otherwise);
/* All of it, for one kind of cut. */
void cuts_everywhere(cuts *c, proxy_fault fault);

#endif
