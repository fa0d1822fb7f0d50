/* A fleet on one Redis server: workers are killed and stopped beyond their leases, the server is
 * killed, all under load. No run is lost, no recorded step is repeated, everything ends. What
 * happens next depends on how far the fleet has come, not on time.
 */
#include <signal.h>

#include "crew.h"
#include "redis_server.h"
#include "test.h"

enum { WORKERS = 10, ROUNDS = 12, WAVE = 25, LEASE_MS = 1500 };

TEST_LIMIT(G8_a_redis_fleet_loses_and_repeats_nothing_when_workers_and_the_server_die, 180)
{
    static crew   c;
    redis_server *server = redis_server_new(NULL);
    char          url[256];
    stet_engine  *e;

    CHECK(server != NULL);
    crew_begin(&c, LEASE_MS);
    (void)snprintf(url, sizeof url, "%s", redis_server_url(server, "fleet"));
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
        if (round % 4 == 3) {
            crew_restart(&c);
            CHECK_INT(kill(redis_server_pid(server), SIGKILL), 0);
        }
    }
    if (c.stopped == 0)
        crew_stop(&c, crew_draw(&c, WORKERS)); /* its lease ends, others go on with what it had */
    crew_await_runs(&c, e);
    crew_continue(&c); /* it is refused whatever it still wants to record */
    crew_start(&c, e, WAVE);
    crew_await_runs(&c, e);
    crew_end(&c);
    crew_audit(&c);
    crew_verify(e);
    stet_close(e);
    redis_server_free(server);
}
