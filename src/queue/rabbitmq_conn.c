/* One connection to the broker. Runs on: the port's thread, and nowhere else.
 *
 * In the broker there are, under the prefix of the address:
 *   PREFIX.hints  a fanout exchange. Everybody who listens has a queue of its own on it, which
 *                 goes with the connection
 *   PREFIX.work   a quorum queue that all workers share: a hint about work goes to one of them.
 *                 PREFIX.hints is its dead-letter exchange: what a worker has no use for, and what
 *                 waited longer than `ttl`, is told to everybody
 * Both are declared with every connection, so a broker that lost them has them again.
 *
 * Every RPC has a time limit; publishing is confirmed by the broker, and not waited for.
 *
 * A quorum queue can be there and not answer: most of its members are down, or (RabbitMQ 3.10) the
 * broker was killed a moment after it was declared, and it never finds a leader again. Then hints
 * about work go to everybody, as the others do, and the queue is tried again with a connection some
 * minutes later.
 */
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "platform/peer.h"
#include "queue/rabbitmq.h"

#define RABBIT_CHANNEL   1
#define RABBIT_FRAME_MAX 131072
#define RABBIT_OWN_MAX   1000  /* hints in a queue of one listener; the oldest go */
#define RABBIT_WORK_MAX  10000 /* hints about work that nobody took */
#define RABBIT_SICK_US   600000000
#define RABBIT_TAG_NEWS  "news"
#define RABBIT_TAG_WORK  "work"

/* ---- what went wrong ------------------------------------------------------------------------- */

static const char *
conn_advice(int status)
{
    switch (status) {
    case AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED: return "; is the host's name right?";
    case AMQP_STATUS_SOCKET_ERROR: return "; does it run there, and is the port right?";
    case AMQP_STATUS_TIMEOUT: return "; is the host right, and does a firewall stand between?";
    case AMQP_STATUS_BAD_AMQP_DATA:
    case AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION: return "; what answers there is no RabbitMQ";
    case AMQP_STATUS_SSL_ERROR:
    case AMQP_STATUS_SSL_CONNECTION_FAILED:
        return "; does it offer TLS on this port? (amqp:// is without, amqps:// with)";
    case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
        return "; name its certificate authority with cacert=PATH";
    case AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED: return "; its certificate is for another host";
    default: return "";
    }
}

/* A library's error. Wrong answers will not get better by themselves; no answer may. */
static int
conn_status(rabbit_port *r, int status, const char *doing)
{
    bool is_wrong =
        status == AMQP_STATUS_BAD_AMQP_DATA || status == AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION ||
        status == AMQP_STATUS_SSL_ERROR || status == AMQP_STATUS_SSL_CONNECTION_FAILED ||
        status == AMQP_STATUS_SSL_PEER_VERIFY_FAILED ||
        status == AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED;

    return stet__fail(is_wrong ? STET_ECONFIG : STET_EIO, "queue %s: cannot %s: %s%s", r->name,
                      doing, amqp_error_string2(status), conn_advice(status));
}

/* The broker's own words: they repeat names, never a password. */
static int
conn_closed(rabbit_port *r, int code, amqp_bytes_t text, const char *doing)
{
    const char *help = "";

    if (code == AMQP_ACCESS_REFUSED)
        help = strcmp(doing, "log in") == 0
                   ? "; are user and password right?"
                   : "; the user needs the rights to configure, write and read";
    else if (code == AMQP_NOT_ALLOWED)
        help = "; is there such a vhost, and may the user use it?";
    else if (code == AMQP_PRECONDITION_FAILED)
        help = "; it was declared with other settings: delete it in the broker, or use another "
               "prefix=";
    /* Shutting down is the broker's way to say goodbye (CONNECTION_FORCED). */
    return stet__fail(code == AMQP_CONNECTION_FORCED || code == AMQP_INTERNAL_ERROR ||
                              code == AMQP_RESOURCE_ERROR || code == AMQP_NOT_FOUND
                          ? STET_EIO
                          : STET_ECONFIG,
                      "queue %s: cannot %s: the broker says %d %.*s%s", r->name, doing, code,
                      (int)(text.len < 200 ? text.len : 200), (const char *)text.bytes, help);
}

static int
conn_reply(rabbit_port *r, amqp_rpc_reply_t reply, const char *doing)
{
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return STET_OK;
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        return conn_status(r, reply.library_error, doing);
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
        if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
            amqp_connection_close_t *m = reply.reply.decoded;

            return conn_closed(r, m->reply_code, m->reply_text, doing);
        }
        if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
            amqp_channel_close_t *m = reply.reply.decoded;

            return conn_closed(r, m->reply_code, m->reply_text, doing);
        }
    }
    return stet__fail(STET_EIO, "queue %s: cannot %s: the broker ended the connection", r->name,
                      doing);
}

static int
conn_done(rabbit_port *r, const char *doing)
{
    return conn_reply(r, amqp_get_rpc_reply(r->conn), doing);
}

/* ---- the queue of work does not answer ------------------------------------------------------- */

static bool
conn_is_sick(const rabbit_port *r)
{
    return stet__mono_us(r->base.platform) < r->sick_us;
}

int
stet__rabbit_sick(rabbit_port *r)
{
    r->sick_us = stet__mono_us(r->base.platform) + RABBIT_SICK_US;
    return stet__fail(STET_EIO,
                      "queue %s: %s does not answer, so everybody is told of work; if it stays so, "
                      "delete it in the broker",
                      r->name, r->work);
}

/* conn_done() of an RPC about that queue. */
static int
conn_done_work(rabbit_port *r, const char *doing)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(r->conn);

    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
        reply.library_error == AMQP_STATUS_TIMEOUT)
        return stet__rabbit_sick(r);
    return conn_reply(r, reply, doing);
}

/* ---- reaching it ----------------------------------------------------------------------------- */

static int
conn_socket(rabbit_port *r, const struct timeval *limit)
{
    amqp_socket_t *socket = r->is_tls ? amqp_ssl_socket_new(r->conn) : amqp_tcp_socket_new(r->conn);
    int            status;

    if (socket == NULL)
        return stet__fail(STET_ENOMEM, "queue %s: out of memory", r->name);
    if (r->is_tls) {
        amqp_ssl_socket_set_verify_peer(socket, r->must_verify);
        amqp_ssl_socket_set_verify_hostname(socket, r->must_verify);
        if (r->cacert != NULL && amqp_ssl_socket_set_cacert(socket, r->cacert) != AMQP_STATUS_OK)
            return stet__fail(STET_ECONFIG, "queue %s: %s has no certificate that can be read",
                              r->name, r->cacert);
    }
    if ((status = amqp_socket_open_noblock(socket, r->host, r->port, limit)) != AMQP_STATUS_OK)
        return conn_status(r, status, "reach the broker");
    return STET_OK;
}

/* So that it says when it takes no more instead of letting us write until we hang, when a queue we
 * listen to is gone, and why it does not let us in. */
static int
conn_login(rabbit_port *r)
{
    static const char *const names[] = { "connection.blocked", "consumer_cancel_notify",
                                         "authentication_failure_close" };
    amqp_table_entry_t can[sizeof names / sizeof names[0]], about[2];
    amqp_table_t can_table = { sizeof names / sizeof names[0], can }, about_table = { 2, about };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        can[i].key = amqp_cstring_bytes(names[i]);
        can[i].value.kind = AMQP_FIELD_KIND_BOOLEAN;
        can[i].value.value.boolean = 1;
    }
    about[0].key = amqp_cstring_bytes("capabilities");
    about[0].value.kind = AMQP_FIELD_KIND_TABLE;
    about[0].value.value.table = can_table;
    about[1].key = amqp_cstring_bytes("connection_name"); /* for people who look at the broker */
    about[1].value.kind = AMQP_FIELD_KIND_UTF8;
    about[1].value.value.bytes = amqp_cstring_bytes("stet hints");
    return conn_reply(r,
                      amqp_login_with_properties(r->conn, r->vhost, 0, RABBIT_FRAME_MAX,
                                                 r->heartbeat_s, &about_table,
                                                 AMQP_SASL_METHOD_PLAIN, r->user, r->password),
                      "log in");
}

static amqp_table_entry_t
conn_int(const char *name, int64_t value)
{
    amqp_table_entry_t entry;

    entry.key = amqp_cstring_bytes(name);
    entry.value.kind = AMQP_FIELD_KIND_I64;
    entry.value.value.i64 = value;
    return entry;
}

static amqp_table_entry_t
conn_text(const char *name, const char *value)
{
    amqp_table_entry_t entry;

    entry.key = amqp_cstring_bytes(name);
    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = amqp_cstring_bytes(value);
    return entry;
}

static int
conn_declare(rabbit_port *r)
{
    amqp_table_entry_t entries[] = {
        conn_text("x-queue-type", "quorum"),
        conn_text("x-dead-letter-exchange", r->exchange),
        conn_int("x-message-ttl", (int64_t)r->ttl_s * 1000),
        conn_int("x-max-length", RABBIT_WORK_MAX),
    };
    amqp_table_t args = { sizeof entries / sizeof entries[0], entries };
    int          err;

    (void)amqp_exchange_declare(r->conn, RABBIT_CHANNEL, amqp_cstring_bytes(r->exchange),
                                amqp_cstring_bytes("fanout"), 0, 1, 0, 0, amqp_empty_table);
    if ((err = conn_done(r, "declare the exchange")) != STET_OK || conn_is_sick(r))
        return err;
    (void)amqp_queue_declare(r->conn, RABBIT_CHANNEL, amqp_cstring_bytes(r->work), 0, 1, 0, 0,
                             args);
    return conn_done_work(r, "declare the queue of work");
}

/* Once it was a broker it is one. */
static int
conn_judge(rabbit_port *r, int err)
{
    stet__peer peer = { "queue", r->name, "amqp", r->host, r->port, STET_ECONFIG };

    return r->is_met || r->is_tls ? err : stet__peer_judge(&peer, err);
}

int
stet__rabbit_connect(rabbit_port *r)
{
    struct timeval limit = { .tv_sec = r->connect_ms / 1000,
                             .tv_usec = r->connect_ms % 1000 * 1000 };
    int            err;

    if ((r->conn = amqp_new_connection()) == NULL)
        return stet__fail(STET_ENOMEM, "queue %s: out of memory", r->name);
    if ((err = conn_socket(r, &limit)) != STET_OK)
        goto failed;
    (void)amqp_set_handshake_timeout(r->conn, &limit);
    (void)amqp_set_rpc_timeout(r->conn, &limit);
    if ((err = conn_login(r)) != STET_OK) {
        err = conn_judge(r, err);
        goto failed;
    }
    r->is_met = true;
    (void)amqp_channel_open(r->conn, RABBIT_CHANNEL);
    if ((err = conn_done(r, "open a channel")) != STET_OK)
        goto failed;
    (void)amqp_confirm_select(r->conn, RABBIT_CHANNEL);
    if ((err = conn_done(r, "ask for confirms")) != STET_OK || (err = conn_declare(r)) != STET_OK)
        goto failed;
    r->published = r->confirmed = 0;
    r->is_blocked = r->is_listening = false;
    memset(&r->reading, 0, sizeof r->reading);
    stet__lock(r->base.platform, &r->lock);
    r->fd = amqp_get_sockfd(r->conn);
    stet__unlock(r->base.platform, &r->lock);
    return STET_OK;
failed:
    (void)amqp_destroy_connection(r->conn);
    r->conn = NULL;
    return err;
}

void
stet__rabbit_disconnect(rabbit_port *r, bool is_polite)
{
    struct timeval second = { .tv_sec = 1, .tv_usec = 0 };

    if (r->conn == NULL)
        return;
    if (is_polite) {
        (void)amqp_set_rpc_timeout(r->conn, &second);
        (void)amqp_connection_close(r->conn, AMQP_REPLY_SUCCESS);
    }
    stet__lock(r->base.platform, &r->lock);
    r->fd = -1; /* before it is closed: the number may be somebody else's soon */
    stet__unlock(r->base.platform, &r->lock);
    (void)amqp_destroy_connection(r->conn);
    r->conn = NULL;
    r->is_listening = false;
    stet__outbox_lost(&r->box, r->published - r->confirmed);
    r->published = r->confirmed = 0;
}

/* ---- listening ------------------------------------------------------------------------------- */

static int
conn_consume(rabbit_port *r, amqp_bytes_t queue, const char *tag, bool no_ack)
{
    (void)amqp_basic_consume(r->conn, RABBIT_CHANNEL, queue, amqp_cstring_bytes(tag), 0, no_ack, 0,
                             amqp_empty_table);
    return no_ack ? conn_done(r, "listen") : conn_done_work(r, "listen");
}

int
stet__rabbit_listen(rabbit_port *r, uint32_t wants)
{
    amqp_table_entry_t       entries[] = { conn_int("x-max-length", RABBIT_OWN_MAX),
                                           conn_int("x-message-ttl", (int64_t)r->ttl_s * 1000) };
    amqp_table_t             args = { sizeof entries / sizeof entries[0], entries };
    amqp_queue_declare_ok_t *own;
    char                     name[256];
    int                      err;

    own = amqp_queue_declare(r->conn, RABBIT_CHANNEL, amqp_empty_bytes, 0, 0, 1, 1, args);
    if ((err = conn_done(r, "declare a queue")) != STET_OK)
        return err;
    (void)snprintf(name, sizeof name, "%.*s", (int)own->queue.len, (const char *)own->queue.bytes);
    (void)amqp_queue_bind(r->conn, RABBIT_CHANNEL, amqp_cstring_bytes(name),
                          amqp_cstring_bytes(r->exchange), amqp_empty_bytes, amqp_empty_table);
    if ((err = conn_done(r, "bind a queue")) != STET_OK)
        return err;
    (void)amqp_basic_qos(r->conn, RABBIT_CHANNEL, 0, RABBIT_PREFETCH, 0);
    if ((err = conn_done(r, "limit what comes at once")) != STET_OK ||
        (err = conn_consume(r, amqp_cstring_bytes(name), RABBIT_TAG_NEWS, true)) != STET_OK)
        return err;
    r->has_work = (wants & STET_HINT_WANTS_WORK) != 0 && !conn_is_sick(r);
    if (r->has_work &&
        (err = conn_consume(r, amqp_cstring_bytes(r->work), RABBIT_TAG_WORK, false)) != STET_OK)
        return err;
    r->is_listening = true;
    r->listens_for = wants;
    return STET_OK;
}

int
stet__rabbit_deafen(rabbit_port *r)
{
    int err = STET_OK;

    r->is_listening = false;
    if (r->has_work) {
        (void)amqp_basic_cancel(r->conn, RABBIT_CHANNEL, amqp_cstring_bytes(RABBIT_TAG_WORK));
        err = conn_done(r, "end listening");
    }
    if (err == STET_OK) { /* its queue goes with its last listener */
        (void)amqp_basic_cancel(r->conn, RABBIT_CHANNEL, amqp_cstring_bytes(RABBIT_TAG_NEWS));
        err = conn_done(r, "end listening");
    }
    return err;
}

/* ---- messages -------------------------------------------------------------------------------- */

int
stet__rabbit_publish(rabbit_port *r, const stet_hint *hint)
{
    bool                    is_work = hint->kind == STET_HINT_WORK && !conn_is_sick(r);
    uint8_t                 bytes[STET__HINT_BYTES_MAX];
    amqp_basic_properties_t properties;
    amqp_bytes_t            body;
    int                     status;

    memset(&properties, 0, sizeof properties);
    properties._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.content_type = amqp_cstring_bytes("application/x-stet-hint");
    properties.delivery_mode = 1; /* a hint need not survive a restart: then everybody looks */
    body.len = stet__hint_encode(bytes, r->base.self, hint);
    body.bytes = bytes;
    /* A hint about work that nobody would get comes back: somebody deleted the queue. */
    status = amqp_basic_publish(
        r->conn, RABBIT_CHANNEL, is_work ? amqp_empty_bytes : amqp_cstring_bytes(r->exchange),
        is_work ? amqp_cstring_bytes(r->work) : amqp_empty_bytes, is_work, 0, &properties, body);
    if (status != AMQP_STATUS_OK)
        return conn_status(r, status, "publish");
    if (r->published++ == r->confirmed)
        r->confirm_us = stet__mono_us(r->base.platform);
    r->is_confirmed[r->published % RABBIT_WINDOW] = false;
    r->is_work[r->published % RABBIT_WINDOW] = is_work;
    return STET_OK;
}

int
stet__rabbit_settle(rabbit_port *r, uint64_t tag, bool is_passed, bool again)
{
    int status = is_passed ? amqp_basic_nack(r->conn, RABBIT_CHANNEL, tag, 0, again)
                           : amqp_basic_ack(r->conn, RABBIT_CHANNEL, tag, 0);

    return status == AMQP_STATUS_OK ? STET_OK : conn_status(r, status, "acknowledge");
}

static void
conn_confirmed(rabbit_port *r, uint64_t tag, bool with_earlier)
{
    if (tag <= r->confirmed || tag > r->published)
        return;
    for (uint64_t i = with_earlier ? r->confirmed + 1 : tag; i <= tag; i++)
        r->is_confirmed[i % RABBIT_WINDOW] = true;
    while (r->confirmed < r->published && r->is_confirmed[(r->confirmed + 1) % RABBIT_WINDOW]) {
        r->confirmed++;
        r->confirm_us = stet__mono_us(r->base.platform);
    }
}

static int
conn_method(rabbit_port *r, const amqp_method_t *method)
{
    rabbit_reading *m = &r->reading;

    switch (method->id) {
    case AMQP_BASIC_DELIVER_METHOD: {
        const amqp_basic_deliver_t *d = method->decoded;

        memset(m, 0, offsetof(rabbit_reading, bytes));
        m->is_message = true;
        m->tag = d->delivery_tag;
        m->is_work = d->consumer_tag.len == strlen(RABBIT_TAG_WORK) &&
                     memcmp(d->consumer_tag.bytes, RABBIT_TAG_WORK, d->consumer_tag.len) == 0;
        return STET_OK;
    }
    case AMQP_BASIC_RETURN_METHOD:
        return stet__fail(STET_EIO, "queue %s: %s was deleted in the broker; it is declared again",
                          r->name, r->work);
    case AMQP_BASIC_CANCEL_METHOD:
        return stet__fail(
            STET_EIO, "queue %s: a queue was deleted in the broker; it is declared again", r->name);
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *a = method->decoded;

        conn_confirmed(r, a->delivery_tag, a->multiple);
        return STET_OK;
    }
    case AMQP_BASIC_NACK_METHOD: { /* it was not kept; sent again, that might go on for ever */
        const amqp_basic_nack_t *a = method->decoded;

        conn_confirmed(r, a->delivery_tag, a->multiple);
        return STET_OK;
    }
    case AMQP_CONNECTION_BLOCKED_METHOD: r->is_blocked = true; return STET_OK;
    case AMQP_CONNECTION_UNBLOCKED_METHOD: r->is_blocked = false; return STET_OK;
    case AMQP_CHANNEL_CLOSE_METHOD: {
        const amqp_channel_close_t *c = method->decoded;

        return conn_closed(r, c->reply_code, c->reply_text, "go on");
    }
    case AMQP_CONNECTION_CLOSE_METHOD: {
        const amqp_connection_close_t *c = method->decoded;

        return conn_closed(r, c->reply_code, c->reply_text, "go on");
    }
    default: return STET_OK;
    }
}

int
stet__rabbit_read(rabbit_port *r, bool *has)
{
    struct timeval  now = { 0, 0 };
    rabbit_reading *m = &r->reading;
    amqp_frame_t    frame;
    size_t          n;
    int             status, err;

    *has = false;
    for (;;) {
        amqp_maybe_release_buffers(r->conn);
        if ((status = amqp_simple_wait_frame_noblock(r->conn, &frame, &now)) == AMQP_STATUS_TIMEOUT)
            return STET_OK;
        if (status != AMQP_STATUS_OK)
            return conn_status(r, status, "listen");
        if (frame.frame_type == AMQP_FRAME_METHOD) {
            if ((err = conn_method(r, &frame.payload.method)) != STET_OK)
                return err;
            continue;
        }
        if (!m->is_message)
            continue;
        if (frame.frame_type == AMQP_FRAME_HEADER) {
            m->left = frame.payload.properties.body_size;
            m->has_header = true;
        } else if (frame.frame_type == AMQP_FRAME_BODY && m->has_header) {
            n = frame.payload.body_fragment.len;
            m->left -= n < m->left ? n : m->left;
            if (n > sizeof m->bytes - m->len)
                n = sizeof m->bytes - m->len;
            memcpy(m->bytes + m->len, frame.payload.body_fragment.bytes, n);
            m->len += n;
        }
        if (m->has_header && m->left == 0) {
            m->is_message = false;
            *has = true;
            return STET_OK;
        }
    }
}
