/* A Redis server that becomes a replica, and another one in its place: the worker says what is
 * wrong, tries again, and goes on with the one the address leads to. Its reads and hints come from
 * there, too. */
#include "fixture.h"
#include "proxy.h"
#include "redis_server.h"
#include "store/redis.h"

__attribute__((constructor)) static void
failover_store(void)
{
    setenv("STET_TEST_STORE", "redis", 1);
    test_before(redis_server_share);
}

/* ---- servers --------------------------------------------------------------------------------- */

/* What the server tells about its replication, in a static buffer; first a command, or NULL. */
static const char *
server_tell(int port, const char *command, const char *field)
{
    static char   text[64];
    redisContext *c = redisConnect("127.0.0.1", port);
    redisReply   *reply;

    CHECK(c != NULL && c->err == 0);
    if (command != NULL) {
        reply = redisCommand(c, command);
        CHECK(reply != NULL && reply->type != REDIS_REPLY_ERROR);
        freeReplyObject(reply);
    }
    reply = redisCommand(c, "INFO replication");
    CHECK(reply != NULL && reply->type == REDIS_REPLY_STRING);
    text[0] = '\0';
    (void)stet__redis_info(reply->str, field, text, sizeof text);
    freeReplyObject(reply);
    redisFree(c);
    return text;
}

static redis_server *
server_new(void)
{
    redis_server *s = redis_server_new("repl-diskless-sync-delay 0");

    if (s == NULL)
        test_fail(__FILE__, __LINE__, "no server: %s", redis_server_why());
    return s;
}

static redis_server *
server_replica(const redis_server *of)
{
    redis_server *s = server_new();
    char          command[64];

    (void)snprintf(command, sizeof command, "REPLICAOF 127.0.0.1 %d", of->port);
    (void)server_tell(s->port, command, "role");
    AWAIT(strcmp(server_tell(s->port, NULL, "master_link_status"), "up") == 0);
    return s;
}

/* Nothing that was acknowledged is missing there. */
static void
server_promote(const redis_server *old, const redis_server *next)
{
    long long at = strtoll(server_tell(old->port, NULL, "master_repl_offset"), NULL, 10);

    AWAIT(strtoll(server_tell(next->port, NULL, "slave_repl_offset"), NULL, 10) >= at);
    CHECK_STR(server_tell(next->port, "REPLICAOF NO ONE", "role"), "master");
}

/* ---- a worker -------------------------------------------------------------------------------- */

static bool
health_says(stet_engine *e, bool is_ready)
{
    stet_health health;

    CHECK_OK(stet_health_get(e, &health));
    return health.is_alive && health.is_ready == is_ready;
}

static fixture *
failover_begin(int port)
{
    fixture *f = fixture_begin();

    free((void *)(uintptr_t)f->url);
    f->url = strdup(redis_server_url_at(port, "two"));
    (void)setenv("TMPDIR", test_dir(), 1); /* crumbs go with the test */
    f->options.lease_ms = 60000;           /* nobody else is there to take the runs */
    f->options.renew_ms = 500;
    f->options.poll_ms = 3600000; /* so that work from elsewhere comes by hint */
    fixture_up(f, common_services);
    return f;
}

/* Somebody else, who knows only this server. */
static void
failover_other(fixture *f, const redis_server *server, const stet_run_id *approval)
{
    stet_engine *other;
    stet_run_id  run;

    CHECK_OK(stet_open(&other, redis_server_url(server, "two"), NULL));
    CHECK_OK(stet_resolve(other, handed_out, stet_text("yes")));
    run = fixture_start(other, "t.quick", "by hint", NULL);
    EXPECT_RESULT(f->engine, &run, "by hint");
    stet_close(other);
    EXPECT_RESULT(f->engine, approval, "yes");
}

TEST_LIMIT(G4_a_worker_leaves_a_redis_server_that_became_a_replica, 120)
{
    redis_server *old = server_new(), *next = server_replica(old);
    proxy        *p = proxy_new_redis(old->port);
    fixture      *f = failover_begin(proxy_port(p));
    stet_run_id   door, approval, after;

    approval = fixture_start(f->engine, "t.approval", "", NULL);
    effects_await("handed out", 1);
    fixture_await_status(f->engine, &approval, STET_STATUS_SUSPENDED);
    door = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&common_door, 1);
    AWAIT(health_says(f->engine, true));
    server_promote(old, next);
    CHECK_STR(server_tell(old->port, "REPLICAOF 127.0.0.1 1", "role"), "slave");
    gate_open(&common_door); /* what the body did cannot be recorded now */
    AWAIT(fixture_logged(f, "replica") > 0);
    AWAIT(health_says(f->engine, false));
    proxy_lead(p, next->port);
    EXPECT_RESULT(f->engine, &door, "ok");
    AWAIT(health_says(f->engine, true));
    failover_other(f, next, &approval);
    after = fixture_start(f->engine, "t.quick", "more", NULL);
    EXPECT_RESULT(f->engine, &after, "more");
    fixture_end(f);
    proxy_free(p);
    redis_server_free(next);
    redis_server_free(old);
}
