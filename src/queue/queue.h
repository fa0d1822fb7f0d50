/* What the hint ports share: opening by address, the hint as bytes, and the box of those that are
 * to be sent.
 *
 * queue.c      which port an address means, and the life of one
 * wire.c       a hint as bytes; what cannot be understood is STET_HINT_ANY
 * outbox.c     hints on their way out: bounded, equal ones once
 * none.c       nobody is told
 * store.c      the hints the stores have themselves
 * local.c      engines on this machine, by datagrams
 * rabbitmq*.c  a RabbitMQ broker
 */
#ifndef STET__QUEUE_H
#define STET__QUEUE_H

#include <stet/sys/hint.h>

#include "platform/platform.h"

extern const stet_hint_ops stet__hint_none_ops;
extern const stet_hint_ops stet__hint_store_ops;
extern const stet_hint_ops stet__hint_local_ops;
#ifdef STET_WITH_RABBITMQ
extern const stet_hint_ops stet__hint_rabbitmq_ops;
#endif

/* What a port is opened with. */
typedef struct stet__hint_setup {
    stet_store      *store;
    stet_hint_say_fn say; /* may be NULL */
    void            *say_arg;
} stet__hint_setup;

/* Allocates and opens. Addresses: "store", "none", "local", "local:NAME", "amqp://…". STET_EURL
 * lists what this build can open. */
int  stet__hint_open(stet_hint_port **out, stet__platform *p, const char *address,
                     const stet__hint_setup *setup);
void stet__hint_close(stet_hint_port *h); /* closes and frees; accepts NULL */
/* The nearest of the names (ended by NULL) to a mistyped one; NULL: none is near. */
const char *stet__hint_nearest(const char *typed, size_t len, const char *const *names);

/* ---- wire.c ---------------------------------------------------------------------------------- */

#define STET__HINT_BYTES_MAX 512

/* How many bytes were written; always fits. */
size_t stet__hint_encode(uint8_t out[STET__HINT_BYTES_MAX], stet_id from, const stet_hint *hint);
/* Whatever the bytes are: *hint is a hint, and *from its sender or zero. */
void stet__hint_decode(stet_hint *hint, stet_id *from, const void *bytes, size_t len);
bool stet__hint_equal(const stet_hint *a, const stet_hint *b);

/* ---- outbox.c -------------------------------------------------------------------------------- */

#define STET__OUTBOX_MAX 256u

/* When it is full the oldest goes, and STET_HINT_ANY is sent instead of all that went. */
typedef struct stet__outbox {
    stet__platform *p;
    stet__mutex     lock;
    bool            is_open;
    int             wake_fd; /* readable when there is something to do */
    stet_hint      *ring;
    size_t          first, n;
    bool            has_lost;
    uint64_t        dropped;
} stet__outbox;

int  stet__outbox_open(stet__outbox *o, stet__platform *p);
void stet__outbox_close(stet__outbox *o); /* safe twice, and without open */
void stet__outbox_put(stet__outbox *o, const stet_hint *hint);
bool stet__outbox_take(stet__outbox *o, stet_hint *hint); /* false: empty */
void stet__outbox_lost(stet__outbox *o, uint64_t n);      /* so many were taken and not sent */
void stet__outbox_wake(stet__outbox *o);
void stet__outbox_awake(stet__outbox *o); /* wake_fd is not readable any more */
size_t   stet__outbox_count(stet__outbox *o);
uint64_t stet__outbox_dropped(stet__outbox *o);

#endif
