/* Engines that tell each other by a RabbitMQ broker, and everything that can happen to one: it is
 * down, stopped and started, killed, cut off, somebody else, deaf. Rows G5, G9. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>

#include "cluster.h"
#include "damage.h"
#include "engine/engine.h"
#include "rabbit_server.h"
#include "redis_server.h"

#define HOUR_MS      3600000
#define WAIT_POLL_MS 60000 /* longer than any wait here: what comes earlier came by a hint */

static void
rabbit_before(void)
{
    rabbit_server_share();
#ifdef STET_WITH_POSTGRES
    cluster_share();
#endif
#ifdef STET_WITH_REDIS
    redis_server_share();
#endif
}

__attribute__((constructor)) static void
rabbit_constructor(void)
{
    test_before(rabbit_before);
}

/* ---- fleets ---------------------------------------------------------------------------------- */

static const char *
rabbit_prefix(void)
{
    static char prefix[32];

    (void)snprintf(prefix, sizeof prefix, "t%s", test_unique());
    return prefix;
}

/* Engines on `store` whose queue is behind that port (0: the broker itself), with polls of an
 * hour. */
static fixture *
quiet_begin(const char *store, int port)
{
    static char queue[256];
    fixture    *f;

    setenv("STET_TEST_STORE", store, 1);
    f = fixture_begin();
    (void)snprintf(queue, sizeof queue, "%s", rabbit_url(port, rabbit_prefix()));
    f->options.queue = queue;
    f->options.poll_ms = HOUR_MS;
    f->options.sweep_ms = HOUR_MS;
    f->options.wait_poll_ms = WAIT_POLL_MS;
    if (f->options.wait_ms >= WAIT_POLL_MS)
        f->options.wait_ms = WAIT_POLL_MS - 1000;
    return f;
}

/* The same with polls that come soon: for when there are no hints. */
static fixture *
polled_begin(const char *store, int port)
{
    fixture *f = quiet_begin(store, port);

    f->options.poll_ms = 50;
    f->options.wait_poll_ms = 50;
    return f;
}

static stet_engine *
rabbit_engine(fixture *f, uint32_t roles, const fixture_service *services)
{
    stet_options before = f->options;
    stet_engine *e;

    f->options.roles = roles;
    e = services != NULL ? fixture_open_with(f, services) : fixture_open(f);
    f->options = before;
    CHECK_OK(stet_engine_start(e));
    return e;
}

static void
run_some(stet_engine *client)
{
    stet_run_id runs[4];

    for (int i = 0; i < 4; i++)
        runs[i] = fixture_start(client, i % 2 ? "t.quick" : "o.quick", "ok",
                                i % 2 ? NULL : STET_START(.key = "k"));
    for (int i = 0; i < 4; i++)
        EXPECT_RESULT(client, &runs[i], "ok");
}

static stet_hint_health
hint_health(stet_engine *e)
{
    stet_hint_health health;

    e->hint->ops->health(e->hint, &health);
    return health;
}

typedef struct waiting {
    stet_engine *engine;
    stet_run_id  run;
    pthread_t    thread;
    int          answer;
} waiting;

static void *
waiting_main(void *arg)
{
    waiting *w = arg;

    w->answer = stet_wait(w->engine, NULL, &w->run, 0);
    return NULL;
}

static size_t
hint_waiters(stet_engine *e)
{
    size_t n;

    stet__lock(e->p, &e->lock);
    n = e->waiters.used;
    stet__unlock(e->p, &e->lock);
    return n;
}

/* Started here, executed there, waited for before it ends: by hints alone. */
static void
by_hints_alone(const char *store)
{
    fixture     *f;
    stet_engine *worker, *client;
    waiting      w = { .answer = -1 };
    uint64_t     reads;

    rabbit_server_need();
    f = quiet_begin(store, 0);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    w.engine = client;
    w.run = fixture_start(client, "t.door", "x", NULL);
    gate_await(&common_door, 1);
    reads = stet_engine_reads(client);
    CHECK_INT(pthread_create(&w.thread, NULL, waiting_main, &w), 0);
    AWAIT(hint_waiters(client) > 0 && stet_engine_reads(client) > reads);
    gate_open(&common_door);
    pthread_join(w.thread, NULL);
    CHECK_INT(w.answer, STET_OK);
    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

TEST(G5_on_sqlite_hints_alone_start_and_answer)
{
    by_hints_alone("sqlite");
}

#ifdef STET_WITH_POSTGRES
TEST(G5_on_postgres_hints_alone_start_and_answer)
{
    by_hints_alone("postgres");
}
#endif

#ifdef STET_WITH_REDIS
TEST(G5_on_redis_hints_alone_start_and_answer)
{
    by_hints_alone("redis");
}
#endif

/* A worker without the handler is given the hint, and has no use for it. */
TEST(G5_work_given_to_a_worker_that_does_not_serve_it_reaches_the_one_that_does)
{
    static const stet_handler    others[] = { { "other", h_echo, NULL }, { 0 } };
    static const fixture_service strangers[] = { { "x", others, false, NULL }, { 0 } };
    fixture                     *f;
    stet_engine                 *stranger, *worker, *client;
    stet_run_id                  run;

    rabbit_server_need();
    f = quiet_begin("sqlite", 0);
    stranger = rabbit_engine(f, STET_ROLE_WORKER, strangers);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    for (int i = 0; i < 8; i++) { /* in turn to one and the other */
        run = fixture_start(client, "t.quick", "ok", NULL);
        EXPECT_RESULT(client, &run, "ok");
    }
    CHECK(hint_health(stranger).received > 0);
    stet_close(client);
    stet_close(worker);
    stet_close(stranger);
    fixture_end(f);
}

/* A program that starts a run and ends at once, as `stet start` does. */
TEST(G5_the_last_hint_goes_out_before_the_engine_is_closed)
{
    fixture     *f;
    stet_engine *worker, *client;
    stet_run_id  run;

    rabbit_server_need();
    f = quiet_begin("sqlite", 0);
    worker = rabbit_engine(f, 0, common_services);
    client = fixture_open(f); /* never started */
    run = fixture_start(client, "t.quick", "ok", NULL);
    stet_close(client);
    EXPECT_RESULT(worker, &run, "ok");
    stet_close(worker);
    fixture_end(f);
}

/* ---- what is in the broker ------------------------------------------------------------------- */

static amqp_connection_state_t
broker_connect(void)
{
    amqp_connection_state_t conn = amqp_new_connection();

    CHECK(amqp_socket_open(amqp_tcp_socket_new(conn), "127.0.0.1", rabbit_server_port()) == 0);
    CHECK_INT(amqp_login(conn, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, RABBIT_USER,
                         RABBIT_PASSWORD)
                  .reply_type,
              AMQP_RESPONSE_NORMAL);
    CHECK(amqp_channel_open(conn, 1) != NULL);
    return conn;
}

static void
broker_close(amqp_connection_state_t conn)
{
    (void)amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
    (void)amqp_destroy_connection(conn);
}

static amqp_bytes_t
broker_work(void)
{
    static char name[64];

    (void)snprintf(name, sizeof name, "%s.work", rabbit_prefix());
    return amqp_cstring_bytes(name);
}

/* Declared anew as a quorum queue with these settings it is the same; with others it is refused. */
TEST(G5_the_queue_of_work_is_a_quorum_queue_with_a_dead_letter_exchange_and_a_ttl)
{
    amqp_table_entry_t      entries[4];
    amqp_table_t            args = { 4, entries };
    amqp_connection_state_t conn;
    fixture                *f;
    stet_engine            *worker;
    char                    exchange[64];

    rabbit_server_need();
    f = quiet_begin("sqlite", 0);
    worker = rabbit_engine(f, 0, common_services);
    (void)snprintf(exchange, sizeof exchange, "%s.hints", rabbit_prefix());
    entries[0] = (amqp_table_entry_t){ amqp_cstring_bytes("x-queue-type"),
                                       { .kind = AMQP_FIELD_KIND_UTF8,
                                         .value.bytes = amqp_cstring_bytes("quorum") } };
    entries[1] = (amqp_table_entry_t){ amqp_cstring_bytes("x-dead-letter-exchange"),
                                       { .kind = AMQP_FIELD_KIND_UTF8,
                                         .value.bytes = amqp_cstring_bytes(exchange) } };
    entries[2] =
        (amqp_table_entry_t){ amqp_cstring_bytes("x-message-ttl"),
                              { .kind = AMQP_FIELD_KIND_I64, .value.i64 = 60000 } };
    entries[3] =
        (amqp_table_entry_t){ amqp_cstring_bytes("x-max-length"),
                              { .kind = AMQP_FIELD_KIND_I64, .value.i64 = 10000 } };
    conn = broker_connect();
    CHECK(amqp_queue_declare(conn, 1, broker_work(), 0, 1, 0, 0, args) != NULL);
    entries[2].value.value.i64 = 1;
    CHECK(amqp_queue_declare(conn, 1, broker_work(), 0, 1, 0, 0, args) == NULL);
    broker_close(conn);
    stet_close(worker);
    fixture_end(f);
}

TEST(G5_a_queue_that_somebody_deleted_is_declared_again)
{
    amqp_connection_state_t conn;
    fixture                *f;
    stet_engine            *worker, *client;
    stet_run_id             run;

    rabbit_server_need();
    f = quiet_begin("sqlite", 0);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    run = fixture_start(client, "t.quick", "ok", NULL);
    EXPECT_RESULT(client, &run, "ok");
    conn = broker_connect();
    CHECK(amqp_queue_delete(conn, 1, broker_work(), 0, 0) != NULL);
    broker_close(conn);
    AWAIT(fixture_logged(f, "was deleted in the broker") > 0);
    AWAIT(fixture_logged(f, "hints are back") > 0);
    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

TEST(G5_a_queue_with_other_settings_is_refused_with_advice)
{
    amqp_connection_state_t conn;
    fixture                *f;
    stet_engine            *e;

    rabbit_server_need();
    conn = broker_connect();
    CHECK(amqp_queue_declare(conn, 1, broker_work(), 0, 1, 0, 0, amqp_empty_table) != NULL);
    f = quiet_begin("sqlite", 0);
    e = fixture_open_with(f, common_services);
    CHECK_CODE(stet_engine_start(e), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "use another prefix=");
    CHECK(amqp_queue_delete(conn, 1, broker_work(), 0, 0) != NULL);
    CHECK_OK(stet_engine_start(e)); /* it can be tried again */
    broker_close(conn);
    stet_close(e);
    fixture_end(f);
}

/* ---- a broker that goes and comes ------------------------------------------------------------ */

static void
goes_and_comes(bool by_force)
{
    fixture     *f;
    stet_engine *worker, *client;
    stet_health  health;
    int          down = 0, up = 0;

    rabbit_server_need();
    f = polled_begin("sqlite", 0);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    run_some(client);
    CHECK_OK(stet_health_get(worker, &health));
    CHECK(health.has_hints);
    if (by_force) { /* so that the broker has its queue on disk: see the next test but one */
        rabbit_server_stop(false);
        rabbit_server_start();
        AWAIT(fixture_logged(f, "hints are back") == 2);
        down = up = 2;
    }
    rabbit_server_stop(by_force);
    AWAIT(fixture_logged(f, "no hints: what others do is found by asking the store") == down + 2);
    for (int i = 0; i < 3; i++)
        run_some(client);
    CHECK_OK(stet_health_get(worker, &health));
    CHECK(!health.has_hints && health.is_ready);
    CHECK_HAS(health.text, "no hints");
    CHECK(strstr(health.text, RABBIT_PASSWORD) == NULL);
    /* Tried again and again, and said once. */
    CHECK_INT(fixture_logged(f, "no hints"), down + 2);
    rabbit_server_start();
    AWAIT(fixture_logged(f, "hints are back") == up + 2);
    CHECK_OK(stet_health_get(worker, &health));
    CHECK(health.has_hints);
    CHECK_INT(fixture_logged(f, RABBIT_PASSWORD), 0);
    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

TEST_LIMIT(G5_a_broker_that_is_stopped_and_started_in_the_middle, 180)
{
    goes_and_comes(false);
}

TEST_LIMIT(G5_a_broker_that_is_killed_in_the_middle, 180)
{
    goes_and_comes(true);
}

/* And afterwards they hear each other again: with polls of an hour. The broker is killed so soon
 * after the queue of work was declared that it has forgotten where its leader is, and never
 * confirms what is published to it. Then everybody is told of work. */
TEST_LIMIT(G5_after_an_outage_hints_alone_are_enough_again, 180)
{
    fixture     *f;
    stet_engine *worker, *client;
    stet_run_id  run;
    char         queue[256];

    rabbit_server_need();
    f = quiet_begin("sqlite", 0);
    (void)snprintf(queue, sizeof queue, "%s&connect_timeout=2", rabbit_url(0, rabbit_prefix()));
    f->options.queue = queue;
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    rabbit_server_stop(true);
    AWAIT(fixture_logged(f, "no hints") == 2);
    run = fixture_start(client, "t.quick", "ok", NULL); /* nobody hears of it now */
    rabbit_server_start();
    EXPECT_RESULT(client, &run, "ok"); /* but when the broker is back */
    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

TEST_LIMIT(G5_with_the_broker_down_from_the_beginning_everything_completes, 180)
{
    fixture     *f;
    stet_engine *worker, *client;

    rabbit_server_need();
    rabbit_server_stop(true);
    f = polled_begin("sqlite", 0);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    CHECK_INT(fixture_logged(f, "no hints"), 2);
    CHECK(fixture_logged(f, "does it run there") > 0);
    for (int i = 0; i < 3; i++)
        run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

/* It keeps the connection and reads nothing from it any more. */
TEST_LIMIT(G5_a_broker_whose_memory_is_short_delays_nobody, 120)
{
    fixture     *f;
    stet_engine *worker, *client;
    stet_health  health;

    rabbit_server_need();
    f = polled_begin("sqlite", 0);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    rabbit_server_alarm(true);
    for (int i = 0; i < 5; i++)
        run_some(client);
    AWAIT(fixture_logged(f, "takes nothing now") == 2);
    CHECK_OK(stet_health_get(client, &health));
    CHECK(!health.has_hints);
    CHECK_HAS(health.text, "memory or disk is short");
    rabbit_server_alarm(false);
    AWAIT(fixture_logged(f, "takes hints again") == 2);
    run_some(client);
    rabbit_server_alarm(true);
    run_some(client);
    stet_close(client); /* closing is bounded, too */
    stet_close(worker);
    rabbit_server_alarm(false);
    fixture_end(f);
}

/* ---- a way that is cut ----------------------------------------------------------------------- */

#define RELAY_PAIRS 16

/* Bytes of one direction that are not yet a whole frame. */
typedef struct relay_bytes {
    uint8_t at[262144]; /* a frame has 131072 bytes at most */
    size_t  len;
} relay_bytes;

/* Between the engines and the broker: forwards frame by frame, cuts before one, or swallows
 * everything. */
typedef struct relay {
    int          listener, port;
    pthread_t    thread;
    _Atomic bool is_over, must_cut, must_hang;
    _Atomic int  accepted;
    _Atomic int  cut_from;    /* whose frame is lost: 0 a client's, 1 the broker's */
    _Atomic int  frames_left; /* of these, until it is lost with its connection; 0: none is */
    _Atomic int  frames[2];   /* that were forwarded, but for heartbeats */
    int          fds[RELAY_PAIRS][2];
    relay_bytes *bytes[RELAY_PAIRS][2];
} relay;

static void
relay_drop(relay *r, int i)
{
    for (int k = 0; k < 2; k++) {
        if (r->fds[i][k] >= 0)
            close(r->fds[i][k]);
        r->fds[i][k] = -1;
        if (r->bytes[i][k] != NULL)
            r->bytes[i][k]->len = 0;
    }
}

static void
relay_accept(relay *r)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)rabbit_server_port()),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                client = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC), i = 0;

    atomic_fetch_add(&r->accepted, 1);
    while (i < RELAY_PAIRS - 1 && r->fds[i][0] >= 0)
        i++;
    relay_drop(r, i);
    r->fds[i][0] = client;
    r->fds[i][1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(r->fds[i][1], (struct sockaddr *)&at, sizeof at) != 0)
        relay_drop(r, i);
}

/* Bytes of the first frame, 0: more has to come. A frame is a type, a channel of two bytes, the
 * size of what follows in four, that, and one byte; before the first a client says "AMQP" and a
 * version, eight bytes that are counted as one. */
static size_t
relay_frame(const relay_bytes *b)
{
    size_t len = 8;

    if (b->len < 8)
        return 0;
    if (memcmp(b->at, "AMQP", 4) != 0)
        len = 8 + ((size_t)b->at[3] << 24 | (size_t)b->at[4] << 16 | (size_t)b->at[5] << 8 |
                   b->at[6]);
    return b->len >= len ? len : 0;
}

/* When heartbeats come is chance, so they are not counted. */
static bool
relay_is_cut(relay *r, int from, uint8_t type)
{
    if (type == AMQP_FRAME_HEARTBEAT)
        return false;
    if (from == atomic_load(&r->cut_from) && atomic_load(&r->frames_left) > 0 &&
        atomic_fetch_sub(&r->frames_left, 1) == 1)
        return true;
    atomic_fetch_add(&r->frames[from], 1);
    return false;
}

static bool
relay_pass(relay *r, int i, int from)
{
    relay_bytes *b = r->bytes[i][from];
    size_t       len;
    ssize_t      got;

    if (b == NULL && (b = r->bytes[i][from] = calloc(1, sizeof *b)) == NULL)
        abort();
    if ((got = read(r->fds[i][from], b->at + b->len, sizeof b->at - b->len)) <= 0)
        return false;
    b->len += (size_t)got;
    while ((len = relay_frame(b)) > 0) {
        if (!atomic_load(&r->must_hang) &&
            (relay_is_cut(r, from, b->at[0]) ||
             send(r->fds[i][1 - from], b->at, len, MSG_NOSIGNAL) != (ssize_t)len))
            return false;
        b->len -= len;
        memmove(b->at, b->at + len, b->len);
    }
    return true;
}

static void
relay_forward(relay *r, int i, int from)
{
    if (!relay_pass(r, i, from))
        relay_drop(r, i);
}

static void *
relay_main(void *arg)
{
    relay        *r = arg;
    struct pollfd at[1 + 2 * RELAY_PAIRS];

    while (!atomic_load(&r->is_over)) {
        if (atomic_exchange(&r->must_cut, false))
            for (int i = 0; i < RELAY_PAIRS; i++)
                relay_drop(r, i);
        at[0] = (struct pollfd){ .fd = r->listener, .events = POLLIN };
        for (int i = 0; i < 2 * RELAY_PAIRS; i++)
            at[1 + i] = (struct pollfd){ .fd = r->fds[i / 2][i % 2], .events = POLLIN };
        if (poll(at, 1 + 2 * RELAY_PAIRS, 10) <= 0)
            continue;
        for (int i = 0; i < 2 * RELAY_PAIRS; i++)
            if (at[1 + i].revents != 0 && r->fds[i / 2][i % 2] >= 0)
                relay_forward(r, i / 2, i % 2);
        if (at[0].revents != 0)
            relay_accept(r);
    }
    return NULL;
}

static relay *
relay_new(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;
    relay             *r = calloc(1, sizeof *r);

    CHECK(r != NULL);
    memset(r->fds, -1, sizeof r->fds);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(r->listener, (struct sockaddr *)&at, len) == 0 && listen(r->listener, 16) == 0 &&
          getsockname(r->listener, (struct sockaddr *)&at, &len) == 0);
    r->port = ntohs(at.sin_port);
    CHECK_INT(pthread_create(&r->thread, NULL, relay_main, r), 0);
    return r;
}

static void
relay_free(relay *r)
{
    atomic_store(&r->is_over, true);
    pthread_join(r->thread, NULL);
    for (int i = 0; i < RELAY_PAIRS; i++) {
        relay_drop(r, i);
        free(r->bytes[i][0]);
        free(r->bytes[i][1]);
    }
    close(r->listener);
    free(r);
}

TEST_LIMIT(G5_a_connection_that_is_cut_again_and_again, 120)
{
    fixture     *f;
    stet_engine *worker, *client;
    relay       *r;

    rabbit_server_need();
    r = relay_new();
    f = polled_begin("sqlite", r->port);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    for (int i = 0; i < 5; i++) {
        int before = atomic_load(&r->accepted);

        atomic_store(&r->must_cut, true);
        run_some(client);
        AWAIT(atomic_load(&r->accepted) > before);
    }
    AWAIT(hint_health(worker).is_connected && hint_health(client).is_connected);
    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
    relay_free(r);
}

/* ---- cut at every frame ---------------------------------------------------------------------- */

/* A life of two engines: connected, declared, consuming; hints that are published, confirmed,
 * delivered and acknowledged; closed. False: the frame at which it was to be cut never came.
 *
 * They are cut once, at that frame: everything ends all the same, and then both are connected. */
static bool
frames_live(relay *r, int from, int n)
{
    fixture     *f = polled_begin("sqlite", r->port);
    stet_engine *worker, *client;
    bool         was_reached;

    atomic_store(&r->cut_from, from);
    atomic_store(&r->frames_left, n);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    run_some(client);
    AWAIT(hint_health(worker).is_connected && hint_health(client).is_connected);
    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
    was_reached = atomic_load(&r->frames_left) <= 0;
    atomic_store(&r->frames_left, 0);
    return was_reached;
}

/* Afterwards hints alone are enough again, also with what the cuts left in the broker. */
static void
frames_quiet(relay *r)
{
    fixture     *f = quiet_begin("sqlite", r->port);
    stet_engine *worker = rabbit_engine(f, 0, common_services);
    stet_engine *client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);

    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

/* STET_CUT_STRIDE=1: each; else the first ten, which are the greeting, and then every so many. */
static void
frames_everywhere(int from)
{
    int    stride = (int)test_count("STET_CUT_STRIDE", 3), n = 1, cuts = 0;
    relay *r;

    rabbit_server_need();
    r = relay_new();
    for (; frames_live(r, from, n); n += n < 10 ? 1 : stride)
        cuts++;
    frames_quiet(r);
    test_note("cut before %d frames of %d that %s sends in a life", cuts, n - 1,
              from == 0 ? "a client" : "the broker");
    CHECK(n > 20);
    relay_free(r);
}

TEST_LIMIT(G5_a_connection_that_is_cut_before_each_frame_of_a_client, 300)
{
    frames_everywhere(0);
}

TEST_LIMIT(G5_a_connection_that_is_cut_before_each_frame_of_the_broker, 300)
{
    frames_everywhere(1);
}

/* Nothing is cut, nothing comes: only the missing heartbeats tell. */
TEST_LIMIT(G5_a_connection_that_swallows_everything_is_found_by_its_heartbeats, 120)
{
    fixture     *f;
    stet_engine *worker, *client;
    relay       *r;

    rabbit_server_need();
    r = relay_new();
    f = polled_begin("sqlite", r->port);
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    atomic_store(&r->must_hang, true);
    run_some(client);
    AWAIT(fixture_logged(f, "no hints") == 2);
    atomic_store(&r->must_hang, false);
    AWAIT(fixture_logged(f, "hints are back") == 2);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
    relay_free(r);
}

/* Closing is bounded when nothing answers any more. */
TEST_LIMIT(G5_an_engine_closes_while_the_broker_swallows_everything, 60)
{
    fixture     *f;
    stet_engine *worker;
    relay       *r;
    stet_run_id  run;

    rabbit_server_need();
    r = relay_new();
    f = polled_begin("sqlite", r->port);
    worker = rabbit_engine(f, 0, common_services);
    atomic_store(&r->must_hang, true);
    run = fixture_start(worker, "t.quick", "ok", NULL);
    EXPECT_RESULT(worker, &run, "ok");
    stet_close(worker);
    fixture_end(f);
    relay_free(r);
}

/* ---- addresses and brokers that are wrong ---------------------------------------------------- */

/* A port nobody listens at. */
static int
closed_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
          getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

static fixture *
wrong_begin(const char *fmt, int port)
{
    static char queue[256];
    fixture    *f = polled_begin("sqlite", 0);

    (void)snprintf(queue, sizeof queue, "%.*s%d%s", (int)(strstr(fmt, "PORT") - fmt), fmt, port,
                   strstr(fmt, "PORT") + 4);
    f->options.queue = queue;
    return f;
}

/* The broker answers, and does not want us: the engine does not start. */
static void
expect_refused(const char *queue, int port, const char *said, const char *advice)
{
    fixture     *f = wrong_begin(queue, port);
    stet_engine *e = fixture_open_with(f, common_services);

    CHECK_CODE(stet_engine_start(e), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), said);
    CHECK_HAS(stet_last_error(), advice);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    CHECK(strstr(stet_last_error(), RABBIT_PASSWORD) == NULL);
    CHECK_INT(fixture_logged(f, "hush"), 0);
    stet_close(e);
    fixture_end(f);
}

/* It does not answer: the engine starts, says so and polls. */
static void
expect_polled(const char *queue, int port, const char *said, const char *advice)
{
    fixture     *f = wrong_begin(queue, port);
    stet_engine *worker = rabbit_engine(f, 0, common_services), *client = fixture_open(f);

    CHECK_INT(fixture_logged(f, "no hints"), 1);
    CHECK(fixture_logged(f, said) > 0);
    CHECK(fixture_logged(f, advice) > 0);
    CHECK_INT(fixture_logged(f, "hush"), 0);
    run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
}

TEST(G5_a_wrong_password_is_told_and_not_repeated)
{
    rabbit_server_need();
    expect_refused("amqp://" RABBIT_USER ":hush@127.0.0.1:PORT/", rabbit_server_port(),
                   "ACCESS_REFUSED", "are user and password right?");
}

static stet_hint_use
take_nothing(void *arg, const stet_hint *hint)
{
    (void)arg;
    (void)hint;
    return STET_HINT_TAKEN;
}

/* The start of an engine commits something first, and that is a hint. */
TEST(G5_a_refusal_that_a_hint_met_first_is_told_all_the_same)
{
    stet__hint_setup setup = { 0 };
    stet_hint_health health;
    stet_hint_port  *port;
    stet_hint        hint = { .kind = STET_HINT_WORK };
    char             address[128];

    rabbit_server_need();
    (void)snprintf(address, sizeof address, "amqp://" RABBIT_USER ":hush@127.0.0.1:%d/",
                   rabbit_server_port());
    CHECK_OK(stet__hint_open(&port, stet__platform_real(), address, &setup));
    port->ops->send(port, &hint);
    do
        port->ops->health(port, &health);
    while (health.is_connected);
    CHECK_CODE(port->ops->watch(port, 0, take_nothing, NULL), STET_ECONFIG);
    stet__hint_close(port);
}

TEST(G5_an_unknown_vhost_is_told)
{
    rabbit_server_need();
    expect_refused("amqp://" RABBIT_USER ":" RABBIT_PASSWORD "@127.0.0.1:PORT/nowhere",
                   rabbit_server_port(), "nowhere", "is there such a vhost");
}

TEST(G5_tls_that_is_not_offered_is_told)
{
    rabbit_server_need();
    expect_refused("amqps://" RABBIT_USER ":hush@127.0.0.1:PORT/", rabbit_server_port(), "SSL",
                   "does it offer TLS on this port?");
}

TEST(G5_a_certificate_file_that_is_not_there_is_told)
{
    rabbit_server_need();
    expect_refused("amqps://u:hush@127.0.0.1:PORT/?cacert=/no/where.pem", rabbit_server_port(),
                   "/no/where.pem", "certificate");
}

/* With the right authority it opens; with that of the system the certificate is a stranger's. */
TEST(G5_with_tls_hints_alone_are_enough)
{
    fixture     *f;
    stet_engine *worker, *client;
    char         queue[256];

    rabbit_server_need();
    if (rabbit_server_tls_port() == 0)
        test_skip("no openssl to make a certificate with");
    f = quiet_begin("sqlite", 0);
    (void)snprintf(queue, sizeof queue, "amqps://%s:%s@localhost:%d/?prefix=%s&cacert=%s",
                   RABBIT_USER, RABBIT_PASSWORD, rabbit_server_tls_port(), rabbit_prefix(),
                   rabbit_server_cacert());
    f->options.queue = queue;
    worker = rabbit_engine(f, 0, common_services);
    client = rabbit_engine(f, STET_ROLE_CLIENT, NULL);
    for (int i = 0; i < 3; i++)
        run_some(client);
    stet_close(client);
    stet_close(worker);
    fixture_end(f);
    expect_refused("amqps://u:hush@localhost:PORT/", rabbit_server_tls_port(), "SSL",
                   "cacert=PATH");
}

TEST(G5_an_unknown_host_is_told)
{
    expect_polled("amqp://u:hush@no-such-host.invalid:PORT/", 5672, "no-such-host.invalid",
                  "is the host's name right?");
}

TEST(G5_a_wrong_port_is_told)
{
    expect_polled("amqp://u:hush@127.0.0.1:PORT/", closed_port(), "cannot reach the broker",
                  "is the port right?");
}

typedef struct impostor {
    int          listener, port;
    const char  *greeting; /* NULL: says nothing */
    pthread_t    thread;
    _Atomic bool is_over;
} impostor;

static void *
impostor_main(void *arg)
{
    impostor *m = arg;
    int       held[64], n = 0;

    while (!atomic_load(&m->is_over)) {
        struct pollfd at = { .fd = m->listener, .events = POLLIN };
        int           fd;

        if (poll(&at, 1, 10) <= 0 || n == 64 || (fd = accept(m->listener, NULL, NULL)) < 0)
            continue;
        if (m->greeting != NULL)
            (void)!send(fd, m->greeting, strlen(m->greeting), MSG_NOSIGNAL);
        held[n++] = fd;
    }
    while (n > 0)
        close(held[--n]);
    return NULL;
}

static void
impostor_begin(impostor *m, const char *greeting)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;

    memset(m, 0, sizeof *m);
    m->greeting = greeting;
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(m->listener, (struct sockaddr *)&at, len) == 0 && listen(m->listener, 16) == 0 &&
          getsockname(m->listener, (struct sockaddr *)&at, &len) == 0);
    m->port = ntohs(at.sin_port);
    CHECK_INT(pthread_create(&m->thread, NULL, impostor_main, m), 0);
}

static void
impostor_end(impostor *m)
{
    atomic_store(&m->is_over, true);
    pthread_join(m->thread, NULL);
    close(m->listener);
}

TEST(G5_something_that_is_no_broker_is_told)
{
    impostor m;

    impostor_begin(&m, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    expect_refused("amqp://u:hush@127.0.0.1:PORT/?connect_timeout=2", m.port, "cannot log in",
                   "no RabbitMQ");
    impostor_end(&m);
}

TEST(G5_something_that_says_nothing_is_given_up_in_time)
{
    impostor m;

    impostor_begin(&m, NULL);
    expect_polled("amqp://u:hush@127.0.0.1:PORT/?connect_timeout=1", m.port, "cannot log in",
                  "timed out");
    impostor_end(&m);
}

TEST(G5_tls_with_something_that_says_nothing_is_given_up_in_time)
{
    impostor m;

    impostor_begin(&m, NULL);
    expect_polled("amqps://u:hush@127.0.0.1:PORT/?connect_timeout=1", m.port,
                  "cannot reach the broker", "timed out");
    impostor_end(&m);
}
