/* Crash everywhere, in real processes on SQLite, or on PostgreSQL or Redis with STET_TEST_STORE:
 * each reference workflow is run by a process that is killed with SIGKILL before or after its nth
 * store call, or loses the reply of a commit; then a second process without faults finishes it and
 * checks.
 *
 * The ledger and the script are memory shared by all processes of the test, which the engine does
 * not know of. Timing decides which call is the nth; points are tried one after the other until a
 * process ends before it comes so far.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_life.h"
#include "test.h"

__attribute__((constructor)) static void
processes_server(void)
{
    crash_server();
}

typedef struct processes_world {
    const flow  *f;
    flow_ledger *ledger;
    shim_script *script;
    bool         is_last;
    char         where[128];
    char         db[512];
    size_t       points, lost;
} processes_world;

static void
processes_crash(void *arg)
{
    flow_ledger_stop();
    flow_ledger_crash(arg, NULL);
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

/* In a child: a worker with this script. */
static void
processes_life(void *arg)
{
    processes_world *w = arg;
    /* On SQLite the lease never ends by itself: what a dead worker had is free because its lock is.
     * The others have nothing but the lease. */
    crash_worker life = { .db = w->db,
                          .ledger = w->ledger,
                          .script = w->script,
                          .lease_ms = crash_is_on_server() ? 1000 : 600000,
                          .log = flow_log,
                          .level = STET_LOG_ERROR };

    crash_worker_start(&life);
    flow_drive(w->f, life.e, w->ledger, CRASH_LIMIT_MS, w->where);
    if (w->is_last)
        flow_check(w->f, life.e, w->ledger, w->where);
    stet_close(life.e);
}

/* How the child ended. */
static int
processes_fork(processes_world *w, bool is_last)
{
    pid_t child;
    int   status = 0;

    w->is_last = is_last;
    child = crash_fork(processes_life, w);
    CHECK_INT(waitpid(child, &status, 0), child);
    return status;
}

static void
processes_script(processes_world *w, shim_mode mode, shim_which which, uint64_t at)
{
    memset(w->script, 0, sizeof *w->script);
    w->script->mode = mode;
    w->script->which = which;
    w->script->at = at;
    w->script->crash = processes_crash;
    w->script->applied = flow_ledger_applied;
    w->script->arg = w->ledger;
}

/* One point: the faulty life, then the recovery. False: the fault was not reached. */
static bool
processes_point(processes_world *w, shim_mode mode, shim_which which, uint64_t at)
{
    bool is_hit;
    int  status;

    (void)snprintf(w->where, sizeof w->where, "%s %s %llu", stet__shim_mode_name(mode),
                   which == SHIM_READS ? "read" : "write", (unsigned long long)at);
    crash_fresh(w->db, sizeof w->db);
    flow_ledger_clear(w->ledger);
    processes_script(w, mode, which, at);
    status = processes_fork(w, false);
    is_hit = w->script->is_hit;
    if (is_hit && (mode == SHIM_BEFORE || mode == SHIM_AFTER)
            ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL
            : status != 0)
        test_fail(__FILE__, __LINE__, "%s: %s (%s): the process ended with %x", w->f->name,
                  w->where, w->script->hit, status);
    if (is_hit)
        (void)snprintf(w->where + strlen(w->where), sizeof w->where - strlen(w->where), " (%s)",
                       w->script->hit);
    processes_script(w, SHIM_NONE, SHIM_ANY, 0);
    if ((status = processes_fork(w, true)) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s: the recovery ended with %x", w->f->name, w->where,
                  status);
    w->points += is_hit;
    w->lost += flow_ledger_lost(w->ledger);
    if (mode == SHIM_LOSE || mode == SHIM_FAIL)
        CHECK_INT(flow_ledger_lost(w->ledger), 0);
    return is_hit;
}

/* Before and after each call until a process does not come that far. */
static uint64_t
processes_calls(processes_world *w, shim_which which)
{
    /* On a server every life waits for leases: some of the points, others with another seed. */
    long     normal = crash_is_on("postgres") ? 12 : crash_is_on("redis") ? 3 : 1;
    uint64_t stride = (uint64_t)test_count("STET_CRASH_STRIDE", normal);
    uint64_t at = 1 + (uint64_t)test_number("STET_TEST_SEED", (long)(w->f - flows) * 3) % stride;
    bool     is_hit;

    for (is_hit = true; is_hit; at += stride) {
        is_hit = processes_point(w, SHIM_BEFORE, which, at);
        if (!is_hit && stride > 1)
            break;
        is_hit = processes_point(w, SHIM_AFTER, which, at) || is_hit;
        if (which == SHIM_WRITES)
            (void)processes_point(w, SHIM_LOSE, which, at);
    }
    return at > stride ? at - stride : 0;
}

static void
processes_all(const char *name)
{
    processes_world w = { .f = flow_named(name),
                          .ledger = flow_ledger_new(),
                          .script = crash_shared(sizeof(shim_script)) };
    uint64_t        writes, reads;

    writes = processes_calls(&w, SHIM_WRITES);
    reads = processes_calls(&w, SHIM_READS);
    test_note("%s: tried %zu points (%llu writes and %llu reads, each before and after; each "
              "commit with its reply lost); "
              "%zu executions lost",
              name, w.points, (unsigned long long)writes, (unsigned long long)reads, w.lost);
}

#define PROCESSES_TEST(id, name)                                                                   \
    TEST_LIMIT(C6_processes_killed_everywhere_##id, 300)                                           \
    {                                                                                              \
        processes_all(name);                                                                       \
    }

PROCESSES_TEST(steps, "steps")
PROCESSES_TEST(sleep, "sleep")
PROCESSES_TEST(child, "child")
PROCESSES_TEST(awakeable, "awakeable")
PROCESSES_TEST(settled_by_a_run, "settled by a run")
PROCESSES_TEST(object, "object")
PROCESSES_TEST(dead_letters, "dead letters")
PROCESSES_TEST(torn_futures, "torn futures")
PROCESSES_TEST(first_of_with_timeout, "first of with timeout")
PROCESSES_TEST(signals, "signals")
PROCESSES_TEST(events, "events")
PROCESSES_TEST(rollback, "rollback")

TEST_LIMIT(A2_processes_killed_everywhere_crowd, 300)
{
    processes_all("crowd");
}

TEST_LIMIT(B22_processes_killed_everywhere_generations, 300)
{
    processes_all("generations");
}

TEST_LIMIT(E3_processes_killed_everywhere_schedule, 300)
{
    processes_all("schedule");
}

TEST_LIMIT(I12_processes_killed_everywhere_updates, 300)
{
    processes_all("updates");
}

TEST_LIMIT(C8_processes_killed_everywhere_operators, 300)
{
    processes_all("operators");
}

TEST_LIMIT(B15_A3_processes_killed_everywhere_people, 300)
{
    processes_all("people");
}

TEST_LIMIT(I12_processes_killed_everywhere_forks, 300)
{
    processes_all("forks");
}

TEST_LIMIT(B11_C2_processes_killed_everywhere_mended_rollback, 300)
{
    processes_all("mended rollback");
}

TEST_LIMIT(C8_processes_killed_everywhere_halted_handler, 300)
{
    processes_all("halted handler");
}
