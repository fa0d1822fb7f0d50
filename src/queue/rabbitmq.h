/* Hints by a RabbitMQ broker: what its files share.
 *
 * rabbitmq.c       the port: sending, watching, health, and the thread that does it all
 * rabbitmq_conn.c  one connection: reaching the broker, declaring, publishing, what the broker says
 * rabbitmq_url.c   the address
 */
#ifndef STET__RABBITMQ_H
#define STET__RABBITMQ_H

#include <amqp.h>
#include <stdatomic.h>

#include "queue/queue.h"

#define RABBIT_NAME_MAX  128 /* user, vhost, host */
#define RABBIT_PREFIX_MAX 40
#define RABBIT_WINDOW    128u /* published and not confirmed yet */
#define RABBIT_PREFETCH  10

/* What is being read: a method, its header, its body. A body may be as long as its sender liked;
 * the first STET__HINT_BYTES_MAX bytes are kept. */
typedef struct rabbit_reading {
    bool     is_message; /* a deliver or return was read, its header or body follows */
    bool     is_work, is_returned, has_header;
    uint64_t tag, left;
    size_t   len;
    uint8_t  bytes[STET__HINT_BYTES_MAX];
} rabbit_reading;

typedef struct rabbit_port {
    stet_hint_port base;

    /* The address; fixed once open. */
    bool  is_tls, must_verify;
    char  host[RABBIT_NAME_MAX + 1], user[RABBIT_NAME_MAX + 1], vhost[RABBIT_NAME_MAX + 1];
    char *password, *cacert;
    int   port;
    char  prefix[RABBIT_PREFIX_MAX + 1];
    int   connect_ms, heartbeat_s, ttl_s;
    char  name[2 * RABBIT_NAME_MAX + 64]; /* as it may be told */
    char  exchange[RABBIT_PREFIX_MAX + 16], work[RABBIT_PREFIX_MAX + 16];

    stet__outbox  box;
    stet__mutex   lock;
    stet__cond    cond;
    bool          has_lock;
    stet__thread *thread;

    /* With the lock. */
    bool              is_closing, is_over;
    int64_t           close_us;
    bool              must_listen, is_taking;
    uint32_t          wants;
    stet_hint_take_fn take;
    void             *arg;
    uint64_t          tries;    /* connections tried */
    bool              must_try; /* now, and not in its own time; watch() waits for the end of it */
    int               fd;     /* of the connection, to cut it; -1 */
    stet_hint_health  state;

    /* The thread's own. */
    amqp_connection_state_t conn; /* NULL: none */
    bool                    is_listening, is_blocked;
    bool                    is_met; /* it was a broker once */
    bool                    has_work;    /* it listens to the queue of work too */
    uint32_t                listens_for; /* `wants` of that */
    uint64_t                published, confirmed; /* all up to `confirmed` are */
    bool                    is_confirmed[RABBIT_WINDOW]; /* of those between, by tag */
    bool                    is_work[RABBIT_WINDOW];
    int64_t                 confirm_us; /* since when the oldest of them has waited, at most */
    int64_t                 sick_us; /* until then the queue of work is not used; rabbitmq_conn.c */
    int64_t                 retry_us, wait_us;
    rabbit_reading          reading;
} rabbit_port;

static inline rabbit_port *
rabbit_of(stet_hint_port *h)
{
    return (rabbit_port *)(void *)h;
}

/* rabbitmq_url.c. STET_EURL; never repeats a password. */
int  stet__rabbit_parse(rabbit_port *r, const char *address);
void stet__rabbit_forget(rabbit_port *r); /* the password */

/* rabbitmq_conn.c. Runs on: the port's thread. */
/* STET_OK; STET_ECONFIG: the broker was reached and refuses us; STET_EIO: it was not reached. */
int  stet__rabbit_connect(rabbit_port *r);
void stet__rabbit_disconnect(rabbit_port *r, bool is_polite);
int  stet__rabbit_listen(rabbit_port *r, uint32_t wants);
int  stet__rabbit_deafen(rabbit_port *r);
int  stet__rabbit_publish(rabbit_port *r, const stet_hint *hint);
/* Acknowledge a hint that was given to us alone; is_passed: the others are told. */
int stet__rabbit_settle(rabbit_port *r, uint64_t tag, bool is_passed, bool again);
/* Read what has come. STET_OK: *has says whether a message is complete in r->reading. Else the
 * connection is of no more use. */
int stet__rabbit_read(rabbit_port *r, bool *has);
/* The queue of work does not answer: everybody is told of work instead. Returns STET_EIO. */
int stet__rabbit_sick(rabbit_port *r);

#endif
