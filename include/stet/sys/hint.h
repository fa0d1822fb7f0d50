/* The hint port, for people who write one. Weaker promise of stability than <stet.h>.
 *
 * A hint says "look at the store now". Nothing depends on it: a hint that is lost, doubled, late, out of
 * order or forged costs a look or the time until the next poll, never work. So a port may do what it likes
 * with hints but wait: whoever sends one has just committed something and goes on at once.
 *
 * Everything beyond the kind is optional. Who does not understand a hint takes it as STET_HINT_ANY.
 * tests/contract/hint_suite.inc is the definition of a correct port.
 */
#ifndef STET_SYS_HINT_H
#define STET_SYS_HINT_H

#include <stet/base.h>
#include <stet/sys/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum stet_hint_kind {
    STET_HINT_ANY = 0,  /* something changed */
    /* Runs of `handler` (empty: of some) wait for a worker; one of them is enough. Or it is `run` (if that is not zero)
     * that got something into its inbox, and waits for a worker if nobody executes it. */
    STET_HINT_WORK = 1,
    STET_HINT_RUN = 2,  /* `run` ended, or something was put into its inbox */
    STET_HINT_TIMER = 3 /* a timer was set that fires at `time_ms`, by the store's clock */
} stet_hint_kind;

#define STET_HINT_HANDLER_MAX 264 /* "service.handler" and a NUL */

typedef struct stet_hint {
    stet_hint_kind kind;
    stet_id        run;
    int64_t        time_ms; /* 0: not known */
    char           handler[STET_HINT_HANDLER_MAX];
} stet_hint;

/* What became of a hint. */
typedef enum stet_hint_use {
    STET_HINT_TAKEN,
    STET_HINT_PASS /* STET_HINT_WORK that is of no use here: the port tells the others, once */
} stet_hint_use;

/** Called from a thread of the port, never while a lock of the port is held. Must not block for long, and
 * must not call the port. */
typedef stet_hint_use (*stet_hint_take_fn)(void *arg, const stet_hint *hint);
/** The port lost its connection (the text says why and what to do), or has it again. Once for each change. */
typedef void (*stet_hint_say_fn)(void *arg, bool is_connected, int code, const char *text);

typedef struct stet_hint_health {
    bool     is_connected; /* or nothing has been asked of it yet */
    int64_t  since_ms;     /* milliseconds since 1970 of the last change; 0: there was none */
    uint64_t sent, received;
    uint64_t dropped;      /* never sent: too many at once, or no connection */
    int      code;         /* why it is not connected; STET_OK */
    char     text[512];    /* the same as a sentence; "" */
} stet_hint_health;

typedef struct stet_hint_port stet_hint_port;
struct stet__platform;
struct stet__alloc;

#define STET_HINT_WANTS_WORK 1u /* STET_HINT_WORK may be given to us alone */

/* Any thread may call any method of an open port, several at once, but for close(). */
typedef struct stet_hint_ops {
    uint32_t    version; /* 1; append-only: new methods go last */
    const char *scheme;  /* "amqp" */
    size_t      size;    /* sizeof the port's own struct, which begins with stet_hint_port */

    /* Must. Understand the address (behind "SCHEME:") and no more: nothing is asked of the network, no
     * thread is begun. STET_EURL. After a failure close() must still be safe. */
    int (*open)(stet_hint_port *h, const char *address);
    /* Must. Sends what was given to send(), within a bounded time. Cannot fail; safe twice. */
    void (*close)(stet_hint_port *h);
    /* Must. Tell everybody else who watches; STET_HINT_WORK at least one who wants work. Never waits for
     * anything but a short lock: it is called with locks held. Cannot fail: what cannot be sent is dropped. */
    void (*send)(stet_hint_port *h, const stet_hint *hint);
    /* Must. Begin to listen. STET_OK also while nothing can be reached: say() tells, and the port goes on
     * trying, and gives a STET_HINT_ANY when it hears again. STET_ECONFIG: it was reached and refuses us,
     * which will not get better by itself. STET_ESTATE: watched already. */
    int (*watch)(stet_hint_port *h, uint32_t wants, stet_hint_take_fn take, void *arg);
    /* Must. Returns when `take` cannot be called any more. Safe without watch(). */
    void (*unwatch)(stet_hint_port *h);
    /* Must. Any time. */
    void (*health)(stet_hint_port *h, stet_hint_health *health);
} stet_hint_ops;

struct stet_hint_port {
    const stet_hint_ops   *ops;
    struct stet__platform *platform;
    struct stet__alloc    *alloc;
    stet_id                self;  /* in every hint of ours; our own are not given to us */
    stet_store            *store; /* for the one that uses the store's own hints */
    stet_hint_say_fn       say;   /* may be NULL */
    void                  *say_arg;
};

#ifdef __cplusplus
}
#endif
#endif
