/* A fleet that is told of its work by a RabbitMQ broker: workers are killed and stopped beyond
 * their leases, the broker is killed and stopped, all under load. No run is lost, no recorded step
 * is repeated, everything ends. What happens next depends on how far the fleet has come, not on
 * time.
 */
#include "cluster.h"
#include "crew.h"
#include "rabbit_server.h"
#include "test.h"

enum { WORKERS = 10, ROUNDS = 8, WAVE = 25, LEASE_MS = 1500 };

static void
fleet_servers(void)
{
    rabbit_server_share();
#ifdef STET_WITH_POSTGRES
    cluster_share();
#endif
}

__attribute__((constructor)) static void
fleet_constructor(void)
{
    test_before(fleet_servers);
}

static void
fleet_run(const char *store)
{
    static crew  c;
    char         url[512];
    stet_engine *e;

    (void)snprintf(url, sizeof url, "%s%cqueue=%s", store, strchr(store, '?') != NULL ? '&' : '?',
                   rabbit_url(0, "fleet"));
    crew_begin(&c, LEASE_MS);
    for (int i = 0; i < WORKERS; i++)
        crew_hire(&c, url);
    CHECK_OK(stet_open(
        &e, url,
        STET_OPTIONS(.roles = STET_ROLE_CLIENT, .wait_poll_ms = 50, .log_level = STET_LOG_ERROR)));
    CHECK_OK(stet_engine_start(e));
    for (int round = 0; round < ROUNDS; round++) {
        crew_start(&c, e, WAVE);
        crew_await_executed(&c, (round * WAVE + WAVE / 2) * CREW_STEPS);
        if (round % 3 == 2)
            crew_stop(&c, crew_draw(&c, WORKERS));
        else
            crew_kill(&c, crew_draw(&c, WORKERS), url);
        if (round == 2)
            rabbit_server_stop(false); /* the next rounds go on without it */
        else if (round == 4)
            rabbit_server_start();
        else if (round == 6)
            rabbit_server_stop(true);
    }
    if (c.stopped == 0)
        crew_stop(&c, crew_draw(&c, WORKERS));
    crew_await_runs(&c, e);
    crew_continue(&c);
    rabbit_server_start();
    crew_start(&c, e, WAVE);
    crew_await_runs(&c, e);
    crew_end(&c);
    crew_audit(&c);
    crew_verify(e);
    stet_close(e);
}

#ifdef STET_WITH_POSTGRES
TEST_LIMIT(G5_a_fleet_on_postgres_loses_and_repeats_nothing_when_workers_and_the_broker_die, 180)
{
    char schema[80];

    rabbit_server_need();
    (void)snprintf(schema, sizeof schema, "rabbit_fleet_%s", test_unique());
    fleet_run(cluster_url(schema));
}
#else
TEST_LIMIT(G5_a_fleet_on_sqlite_loses_and_repeats_nothing_when_workers_and_the_broker_die, 180)
{
    rabbit_server_need();
    fleet_run(test_path("fleet.db"));
}
#endif
