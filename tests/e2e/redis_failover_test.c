/* A Redis server that becomes a replica, and another one in its place: the worker says what is
 * wrong, tries again, and goes on with the one the address leads to. Its reads and hints come from
 * there, too. */
#include "fixture.h"
#include "proxy.h"
#include "redis_pair.h"

__attribute__((constructor)) static void
failover_store(void)
{
    setenv("STET_TEST_STORE", "redis", 1);
    test_before(redis_server_share);
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
    redis_server *old, *next;
    proxy        *p;
    fixture      *f;
    stet_run_id   door, approval, after;

    redis_pair(&old, &next);
    p = proxy_new_redis(old->port);
    f = failover_begin(proxy_port(p));
    approval = fixture_start(f->engine, "t.approval", "", NULL);
    effects_await("handed out", 1);
    fixture_await_status(f->engine, &approval, STET_STATUS_SUSPENDED);
    door = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&common_door, 1);
    AWAIT(health_says(f->engine, true));
    redis_pair_swap(old, next);
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
