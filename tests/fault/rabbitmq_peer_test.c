/* The right port of the wrong server: PostgreSQL, Redis and RabbitMQ, each asked as if it were
 * another. What answers there is named, in a bounded time, and no password appears.
 * Rows G3, G4, G5. */
#include "cluster.h"
#include "fixture.h"
#include "platform/platform.h"
#include "rabbit_server.h"
#include "redis_server.h"
#include "store/store.h"

static void
peer_before(void)
{
    cluster_share();
    redis_server_share();
    rabbit_server_share();
}

__attribute__((constructor)) static void
peer_constructor(void)
{
    test_before(peer_before);
}

#if defined STET_WITH_POSTGRES && defined STET_WITH_REDIS
static int
port_of(const char *url, const char *before)
{
    const char *port = strstr(url, before);

    CHECK(port != NULL);
    return (int)strtol(port + strlen(before), NULL, 10);
}

static int
postgres_port(void)
{
    return port_of(cluster_url("x"), "@:");
}

static int
redis_port(void)
{
    return port_of(redis_shared_url("x"), "127.0.0.1:");
}

static void
expect_told(const char *url, const char *is, const char *advice)
{
    stet_store *store = NULL;

    CHECK_CODE(stet__store_open(&store, stet__platform_real(), url), STET_ENOTDB);
    CHECK_HAS(stet_last_error(), is);
    CHECK_HAS(stet_last_error(), advice);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
}

TEST(G4_redis_at_the_port_of_another_server_names_that)
{
    char url[200];

    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%d/0", postgres_port());
    expect_told(url, "no Redis server, it seems to be PostgreSQL", "postgres://");
    (void)snprintf(url, sizeof url, "redis://u:hush@127.0.0.1:%d/3", postgres_port());
    expect_told(url, "no Redis server, it seems to be PostgreSQL", "postgres://");
    rabbit_server_need();
    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%d/0?connect_timeout=2",
                   rabbit_server_port());
    expect_told(url, "no Redis server, it seems to be RabbitMQ", "amqp://");
}

/* Redis waits for the end of a line that does not come: the time that was asked for. */
TEST(G3_postgres_at_the_port_of_another_server_names_that)
{
    redis_server *locked = redis_server_new("requirepass hush\n");
    char          url[200];

    (void)snprintf(url, sizeof url, "postgres://u:hush@127.0.0.1:%d/db?connect_timeout=1",
                   redis_port());
    expect_told(url, "no PostgreSQL server, it seems to be Redis", "redis://");
    CHECK(locked != NULL);
    (void)snprintf(url, sizeof url, "postgres://u@127.0.0.1:%d/db?connect_timeout=1", locked->port);
    expect_told(url, "no PostgreSQL server, it seems to be Redis", "redis://");
    redis_server_free(locked);
    rabbit_server_need();
    (void)snprintf(url, sizeof url, "postgres://u@127.0.0.1:%d/db?connect_timeout=2",
                   rabbit_server_port());
    expect_told(url, "no PostgreSQL server, it seems to be RabbitMQ", "amqp://");
}

/* It does not start: an address that is wrong does not get better. */
static void
expect_queue_told(int port, const char *is)
{
    fixture     *f = fixture_begin();
    stet_engine *e;
    char         queue[200];

    (void)snprintf(queue, sizeof queue, "amqp://u:hush@127.0.0.1:%d/?connect_timeout=1", port);
    f->options.queue = queue;
    e = fixture_open(f);
    CHECK_CODE(stet_engine_start(e), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), is);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    stet_close(e);
    fixture_end(f);
}

TEST(G5_a_queue_at_the_port_of_another_server_names_that)
{
    expect_queue_told(postgres_port(), "no RabbitMQ server, it seems to be PostgreSQL");
    expect_queue_told(redis_port(), "no RabbitMQ server, it seems to be Redis");
}
#else
TEST(G5_a_queue_at_the_port_of_another_server_names_that)
{
    test_skip("this build has not all three");
}
#endif
