/* The hint contract on a RabbitMQ broker of the tests' own. tsan: yes */
#include "hint_contract.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <unistd.h>

#include "rabbit_server.h"

#define HINT_PREFIX   G5_rabbitmq
#define HINT_IS_EXACT true
#define HINT_FLOOD    100000

static void ear_say(void *arg, bool is_connected, int code, const char *text);

__attribute__((constructor)) static void
stamp_server(void)
{
    test_before(rabbit_server_share);
}

static void
stamp_begin(ears *c)
{
    (void)c;
    rabbit_server_need();
}

static stet_hint_port *
stamp_open(ears *c, int place)
{
    stet__hint_setup setup = { NULL, ear_say, &c->ears[c->n] };
    stet_hint_port  *port;
    char             prefix[64];

    (void)snprintf(prefix, sizeof prefix, "%.30s-%d", c->name, place);
    CHECK_OK(stet__hint_open(&port, stet__platform_real(), rabbit_url(0, prefix), &setup));
    return port;
}

static void
stamp_send(ears *c, ear *x, const stet_hint *hint)
{
    (void)c;
    x->port->ops->send(x->port, hint);
}

/* To everybody who listens, and to the queue of work. */
static void
stamp_raw(ears *c, const void *bytes, size_t len)
{
    amqp_connection_state_t conn = amqp_new_connection();
    amqp_bytes_t            body = { len, (void *)(uintptr_t)bytes };
    char                    name[64];

    CHECK(amqp_socket_open(amqp_tcp_socket_new(conn), "127.0.0.1", rabbit_server_port()) == 0);
    CHECK_INT(amqp_login(conn, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, RABBIT_USER,
                         RABBIT_PASSWORD)
                  .reply_type,
              AMQP_RESPONSE_NORMAL);
    (void)amqp_channel_open(conn, 1);
    (void)snprintf(name, sizeof name, "%.30s-0.hints", c->name);
    CHECK_INT(amqp_basic_publish(conn, 1, amqp_cstring_bytes(name), amqp_empty_bytes, 0, 0, NULL,
                                 body),
              AMQP_STATUS_OK);
    (void)snprintf(name, sizeof name, "%.30s-0.work", c->name);
    CHECK_INT(amqp_basic_publish(conn, 1, amqp_empty_bytes, amqp_cstring_bytes(name), 0, 0, NULL,
                                 body),
              AMQP_STATUS_OK);
    (void)amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
    (void)amqp_destroy_connection(conn);
}

static void
stamp_end(ears *c)
{
    (void)c;
}

#include "hint_suite.inc"
