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

/* ---- what RabbitMQ has besides --------------------------------------------------------------- */

/* Nobody wants work, so nobody takes it: when its time is over it goes to everybody. */
TEST(G5_work_that_waits_too_long_is_told_to_everybody)
{
    ears            *c;
    ear             *x;
    stet__hint_setup setup = { 0 };
    stet_hint_port  *from;
    stet_hint        hint = hint_make(STET_HINT_WORK, 1);
    char             address[256];

    c = ears_begin();
    (void)snprintf(address, sizeof address, "%s&ttl=1", rabbit_url(0, "t-ttl"));
    x = &c->ears[c->n++];
    x->all = c;
    pthread_mutex_init(&x->lock, NULL);
    CHECK_OK(stet__hint_open(&x->port, stet__platform_real(), address, &setup));
    CHECK_OK(x->port->ops->watch(x->port, 0, ear_take, x));
    CHECK_OK(stet__hint_open(&from, stet__platform_real(), address, &setup));
    from->ops->send(from, &hint);
    AWAIT(ear_heard(x, &hint, 0));
    stet__hint_close(from);
    ears_end(c);
}

static stet_hint_use
gate_take(void *arg, const stet_hint *hint)
{
    if (hint->kind == STET_HINT_WORK)
        gate_pass(arg);
    return STET_HINT_TAKEN;
}

static int
work_left(amqp_connection_state_t conn, const char *name)
{
    amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(conn, 1, amqp_cstring_bytes(name), 1, 0, 0, 0, amqp_empty_table);

    CHECK(ok != NULL);
    return (int)ok->message_count;
}

/* A worker that is slow has ten hints about work, not all of them. */
TEST(G5_a_worker_is_given_ten_hints_about_work_at_once)
{
    static gate             door = GATE_INIT;
    ears                   *c = ears_begin();
    ear                    *from = ears_open(c, 0), *slow = ears_open(c, 0);
    amqp_connection_state_t conn;
    char                    name[64];

    CHECK_OK(slow->port->ops->watch(slow->port, STET_HINT_WANTS_WORK, gate_take, &door));
    for (int i = 0; i < 40; i++) {
        stet_hint hint = hint_make(STET_HINT_WORK, i);

        ear_send(from, &hint);
    }
    gate_await(&door, 1);
    conn = amqp_new_connection();
    CHECK(amqp_socket_open(amqp_tcp_socket_new(conn), "127.0.0.1", rabbit_server_port()) == 0);
    CHECK_INT(amqp_login(conn, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, RABBIT_USER,
                         RABBIT_PASSWORD)
                  .reply_type,
              AMQP_RESPONSE_NORMAL);
    (void)amqp_channel_open(conn, 1);
    (void)snprintf(name, sizeof name, "%.30s-0.work", c->name);
    AWAIT(work_left(conn, name) == 30);
    gate_open(&door);
    AWAIT(work_left(conn, name) == 0);
    (void)amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
    (void)amqp_destroy_connection(conn);
    ears_end(c);
}
