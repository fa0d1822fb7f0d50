/* A fleet on one Redis server: workers are killed and stopped beyond their leases, the server is
 * killed, all under load. No run is lost, and a step is executed again only where a worker went
 * down with its record in hand.
 *
 * Workers are made by a process of their own that has no threads (the nursery), so that forking is
 * safe at any time. Executions are counted in memory shared by all. What happens next depends on
 * how far the fleet has come, not on time.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#include "redis_server.h"
#include "test.h"

enum { RUNS = 120, STEPS = 3, WORKERS = 4, IN_FLIGHT = 4, LEASE_MS = 1500 };

typedef struct ledger {
    _Atomic int executed[RUNS][STEPS];
    _Atomic int total;
} ledger;

static ledger *fleet_ledger;
static char    fleet_url[256];

/* ---- a worker -------------------------------------------------------------------------------- */

static int
body(stet_attempt *a, void *arg)
{
    const int *at = arg;

    atomic_fetch_add(&fleet_ledger->executed[at[0]][at[1]], 1);
    atomic_fetch_add(&fleet_ledger->total, 1);
    return stet_attempt_return(a, stet_text("{}"));
}

static int
h_three(stet_ctx *ctx, stet_bytes input)
{
    static const char *const names[STEPS] = { "reserve", "charge", "ship" };
    char                     text[16] = "";
    stet_bytes               result;
    int                      at[2];

    if (input.len < sizeof text)
        memcpy(text, input.data, input.len);
    at[0] = (int)strtol(text, NULL, 10);
    for (at[1] = 0; at[1] < STEPS; at[1]++)
        STET_TRY(stet_step(ctx, &result, names[at[1]], body, at, NULL));
    return stet_return(ctx, input);
}

static const stet_handler fleet_handlers[] = { { "three", h_three, NULL }, { 0 } };

/* Until it is killed, or its nursery is gone. */
static _Noreturn void
worker_main(int life)
{
    struct pollfd at = { .fd = life, .events = POLLIN };
    stet_engine  *e;
    char          byte;

    while (stet_open(&e, fleet_url,
                     STET_OPTIONS(.concurrency = 2, .in_flight_max = IN_FLIGHT,
                                  .lease_ms = LEASE_MS, .renew_ms = 200, .sweep_ms = 100,
                                  .poll_ms = 100, .log_level = STET_LOG_ERROR)) != STET_OK)
        (void)poll(NULL, 0, 20); /* the server may be away just now */
    if (stet_register(e, "t", fleet_handlers) != STET_OK || stet_engine_start(e) != STET_OK)
        _exit(1);
    while (poll(&at, 1, -1) < 0 || read(life, &byte, 1) > 0)
        continue;
    _exit(0);
}

/* ---- the nursery ----------------------------------------------------------------------------- */

typedef struct nursery {
    int orders, answers; /* pipes */
} nursery;

static _Noreturn void
nursery_main(int orders, int answers)
{
    int  life[2];
    char order;

    if (pipe(life) != 0)
        _exit(1);
    (void)signal(SIGCHLD, SIG_IGN);
    while (read(orders, &order, 1) == 1) {
        pid_t child = fork();

        if (child == 0) {
            close(life[1]);
            close(orders);
            close(answers);
            worker_main(life[0]);
        }
        if (write(answers, &child, sizeof child) != (ssize_t)sizeof child)
            _exit(1);
    }
    _exit(0);
}

static void
nursery_begin(nursery *n)
{
    int orders[2], answers[2];

    CHECK_INT(pipe(orders), 0);
    CHECK_INT(pipe(answers), 0);
    if (fork() == 0) {
        close(orders[1]);
        close(answers[0]);
        nursery_main(orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    n->orders = orders[1];
    n->answers = answers[0];
}

static pid_t
nursery_worker(nursery *n)
{
    pid_t child = -1;

    CHECK_INT(write(n->orders, "w", 1), 1);
    CHECK_INT(read(n->answers, &child, sizeof child), sizeof child);
    CHECK(child > 0);
    return child;
}

/* ---- what happens to them -------------------------------------------------------------------- */

static int64_t
now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void
await_total(int total)
{
    int64_t until_ms = now_ms() + 60000;

    while (atomic_load(&fleet_ledger->total) < total) {
        CHECK(now_ms() < until_ms);
        (void)poll(NULL, 0, 2);
    }
}

static void
start_runs(stet_engine *e, stet_run_id *ids)
{
    for (int i = 0; i < RUNS; i++) {
        char key[32], input[16];
        int  err;

        (void)snprintf(key, sizeof key, "run-%d", i);
        (void)snprintf(input, sizeof input, "%d", i);
        do /* the same key: the same run, whatever became of the first try */
            err = stet_start(e, &ids[i], "t.three", stet_text(input),
                             STET_START(.idempotency_key = key));
        while (err == STET_EUNCERTAIN || err == STET_EIO || err == STET_EBUSY);
        CHECK_OK(err);
    }
}

static void
await_runs(stet_engine *e, const stet_run_id *ids)
{
    for (int i = 0; i < RUNS; i++) {
        stet_result result;
        int         err;

        do {
            err = stet_wait(e, &result, &ids[i], 60000);
            stet_result_free(&result);
        } while (err == STET_EUNCERTAIN || err == STET_EIO || err == STET_EBUSY);
        CHECK_OK(err);
    }
}

static int
on_finding(void *arg, const stet_finding *finding)
{
    test_note("%s: %s", finding->rule, finding->text);
    ++*(int *)arg;
    return 0;
}

TEST_LIMIT(G8_a_redis_fleet_loses_and_repeats_nothing_when_workers_and_the_server_die, 180)
{
    redis_server *server = redis_server_new(NULL);
    pid_t         workers[WORKERS], stopped;
    stet_run_id   ids[RUNS];
    stet_engine  *e;
    nursery       n;
    int           downs = 0, findings = 0, total;

    CHECK(server != NULL);
    setenv("TMPDIR", test_dir(), 1); /* crumbs of the killed go with the test */
    (void)snprintf(fleet_url, sizeof fleet_url, "%s", redis_server_url(server, "fleet"));
    fleet_ledger = mmap(NULL, sizeof *fleet_ledger, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(fleet_ledger != MAP_FAILED);
    nursery_begin(&n);
    for (int i = 0; i < WORKERS; i++)
        workers[i] = nursery_worker(&n);
    CHECK_OK(stet_open(&e, fleet_url, STET_OPTIONS(.roles = STET_ROLE_CLIENT, .wait_poll_ms = 50,
                                                   .log_level = STET_LOG_ERROR)));
    CHECK_OK(stet_engine_start(e));
    start_runs(e, ids);
    for (int round = 0; round < 6; round++) {
        int at = round % WORKERS;

        await_total((round + 1) * RUNS * STEPS / 10);
        CHECK_INT(kill(workers[at], SIGKILL), 0);
        downs++;
        workers[at] = nursery_worker(&n);
        if (round % 2 == 1)
            CHECK_INT(kill(redis_server_pid(server), SIGKILL), 0);
    }
    stopped = workers[3];
    CHECK_INT(kill(stopped, SIGSTOP), 0); /* its lease ends, others go on with what it had */
    downs++;
    await_runs(e, ids);
    CHECK_INT(kill(stopped, SIGCONT), 0); /* it is refused whatever it still wants to record */
    for (int i = 0; i < RUNS; i++)
        for (int k = 0; k < STEPS; k++)
            CHECK(atomic_load(&fleet_ledger->executed[i][k]) >= 1);
    total = atomic_load(&fleet_ledger->total);
    test_note("%d steps, %d executions, %d workers down, 3 servers killed", RUNS * STEPS, total,
              downs);
    CHECK(total <= RUNS * STEPS + downs * IN_FLIGHT);
    close(n.orders);
    CHECK_OK(stet_verify(e, NULL, on_finding, &findings));
    CHECK_INT(findings, 0);
    stet_close(e);
    redis_server_free(server);
}
