/* Between the hint contract and its stamps.
 *
 * hint_suite.inc is the definition of a correct hint port. A stamp is a test program that says how
 * its port is opened and includes the suite:
 *
 *     #include "hint_contract.h"
 *     #define HINT_PREFIX G9_local
 *     #define HINT_IS_EXACT true    a hint arrives as what it was sent; false: as STET_HINT_ANY
 *     static void stamp_begin(ears *c) { … }                    a place of its own for this test
 *     static stet_hint_port *stamp_open(ears *c, int place)      one more port; others do not hear
 *                                                                those of another `place`
 *     static void stamp_send(ears *c, stet_hint_port *h, const stet_hint *hint)
 *     static void stamp_raw(ears *c, const void *bytes, size_t len)   past the port: what anybody
 *                                                                might send; or nothing
 *     static void stamp_end(ears *c) { … }                      after all ports are closed
 *     #include "hint_suite.inc"
 *
 * That a hint is *not* heard is never waited for: another one that comes behind it is.
 */
#ifndef HINT_CONTRACT_H
#define HINT_CONTRACT_H

#include <pthread.h>

#include <stet.h>

#include "fixture.h"
#include "platform/platform.h"
#include "queue/queue.h"
#include "test.h"

#define EARS_MAX  8
#define HEARD_MAX 4096

typedef struct ears ears;

/* One port, and what it heard. */
typedef struct ear {
    ears           *all;
    stet_hint_port *port;
    stet_store     *store; /* the stamp's own */
    pthread_mutex_t lock;
    stet_hint       heard[HEARD_MAX]; /* the first ones */
    size_t          n;                /* all of them */
    bool            is_passing;
    bool            is_deaf; /* unwatch() has returned */
    size_t          n_late;  /* heard after that */
    int             n_up, n_down; /* say() */
    char            said[512];
} ear;

struct ears {
    char name[48]; /* of this test alone */
    ear  ears[EARS_MAX];
    int  n;
};

#endif
