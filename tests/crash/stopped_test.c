/* Workers that stand still, in real processes on SQLite, or on PostgreSQL or Redis with
 * STET_TEST_STORE: each reference workflow is run by a process that stops itself (SIGSTOP) before
 * or after its nth store call. It loses its lease, and a second process takes its runs over. Then
 * the first one goes on: when the second one has finished and checked everything, or in the middle
 * of it, when it has made its first record for a run. From then on the first one writes nothing
 * under the claims it had, and is told; in the end everything is checked once more.
 *
 * What was entered and not recorded at the stop is lost, as at a crash; a record of it that is made
 * later all the same contradicts the ledger. A process that stands still must not hold a lock of
 * the store, so the shim lets it stop only where no write is on its way.
 *
 * Points wait for a lease for the most part, so several are tried at the same time.
 */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crash_life.h"
#include "engine/engine.h"
#include "test.h"

enum { STOPPED_LEASE_MS = 400, STOPPED_LONG_MS = 600000, STOPPED_LIMIT_S = 30 };

__attribute__((constructor)) static void
stopped_server(void)
{
    crash_server();
}

/* When the first one goes on. */
typedef enum stopped_when { STOPPED_END, STOPPED_MIDWAY } stopped_when;

/* Shared by the processes of a point. */
typedef struct stopped_board {
    shim_script  first, second;
    _Atomic bool is_stopped; /* the first one was */
    uint64_t     session;    /* that it had then; 0: none, or it was at its end */
    _Atomic bool is_reaped, is_midway;
    sem_t        reaped;  /* that session is put away */
    sem_t        told[2]; /* the first one knows: for itself, for who runs both */
} stopped_board;

/* Reads, or writes. */
typedef struct stopped_calls_of {
    _Atomic uint64_t next;
    _Atomic bool     is_over;
} stopped_calls_of;

typedef struct stopped_counts {
    stopped_calls_of of[2];
    _Atomic size_t   points, midway, told, lost;
    _Atomic size_t   late; /* lost ones that were entered when the process went on */
} stopped_counts;

typedef struct stopped_world {
    const flow     *f;
    flow_ledger    *ledger;
    stopped_board  *board;
    stopped_counts *counts;
    stopped_when    when;
    char            where[160];
    char            db[512];
} stopped_world;

/* What this process is, for callbacks that get nothing but the ledger. */
static struct {
    stopped_world *w;
    crash_worker   life;
    _Atomic bool   is_driven; /* the flow is over, it is closing */
} stopped_here;

static void
stopped_await(sem_t *what, const char *text)
{
    struct timespec until;

    CHECK_INT(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += (time_t)STOPPED_LIMIT_S * test_slow();
    while (sem_timedwait(what, &until) != 0)
        if (errno != EINTR)
            test_fail(__FILE__, __LINE__, "%s: %s: %s", stopped_here.w->f->name,
                      stopped_here.w->where, text);
}

/* ---- the first one --------------------------------------------------------------------------- */

static void
stopped_stop(void *arg)
{
    stopped_board *board = stopped_here.w->board;
    stet_engine   *e = stopped_here.life.e;

    (void)arg;
    board->session = e != NULL && !stopped_here.is_driven ? atomic_load(&e->session) : 0;
    board->is_stopped = true;
    crash_worker_stand_still(&stopped_here.life, true);
}

static void
stopped_first_applied(void *ledger, const stet_unit *unit)
{
    const stopped_world *w = stopped_here.w;

    flow_ledger_applied(ledger, unit);
    if (!w->board->is_stopped || w->board->session == 0)
        return;
    for (size_t i = 0; i < unit->n_conds; i++)
        if (unit->conds[i].kind == STET_COND_CLAIM && unit->conds[i].session == w->board->session) {
            (void)sem_post(&w->board->told[1]); /* it will not be, any more */
            test_fail(__FILE__, __LINE__,
                      "%s: %s: it wrote under a claim that was taken from it when it stood still",
                      w->f->name, w->where);
        }
}

static void
stopped_first_log(void *arg, const stet_log_record *record)
{
    stopped_board *board = stopped_here.w->board;

    flow_log(arg, record);
    if (record->code != STET_EFENCED || !board->is_stopped)
        return;
    (void)sem_post(&board->told[0]);
    (void)sem_post(&board->told[1]);
}

static void
stopped_first(void *arg)
{
    stopped_world *w = arg;
    size_t         lost;

    stopped_here.w = w;
    stopped_here.life = (crash_worker){ .db = w->db,
                                        .ledger = w->ledger,
                                        .script = &w->board->first,
                                        .lease_ms = STOPPED_LEASE_MS,
                                        .log = stopped_first_log,
                                        .level = STET_LOG_WARN };
    crash_worker_start(&stopped_here.life);
    flow_drive(w->f, stopped_here.life.e, w->ledger, CRASH_LIMIT_MS, w->where);
    stopped_here.is_driven = true;
    if (w->board->is_stopped && w->board->session != 0)
        stopped_await(&w->board->told[0], "it was not told that its lease is lost");
    stet_close(stopped_here.life.e);
    if (!w->board->is_stopped)
        return;
    lost = flow_ledger_lost(w->ledger);
    flow_ledger_crash(w->ledger, NULL);
    w->counts->late += flow_ledger_lost(w->ledger) - lost;
}

/* ---- the second one -------------------------------------------------------------------------- */

static void
stopped_second_applied(void *ledger, const stet_unit *unit)
{
    stopped_world *w = stopped_here.w;
    stopped_board *board = w->board;

    flow_ledger_applied(ledger, unit);
    for (size_t i = 0; i < unit->n_ops && !board->is_reaped; i++)
        if (unit->ops[i].kind == STET_OP_REAP && unit->ops[i].session == board->session) {
            board->is_reaped = true;
            (void)sem_post(&board->reaped);
        }
    if (w->when != STOPPED_MIDWAY || !board->is_reaped || board->is_midway || unit->n_conds == 0 ||
        unit->conds[0].kind != STET_COND_CLAIM)
        return;
    board->is_midway = true;
    crash_worker_stand_still(&stopped_here.life, false);
}

static void
stopped_second(void *arg)
{
    stopped_world *w = arg;
    crash_worker  *life = &stopped_here.life;

    stopped_here.w = w;
    *life = (crash_worker){ .db = w->db,
                            .ledger = w->ledger,
                            .script = &w->board->second,
                            .lease_ms = STOPPED_LONG_MS,
                            .log = flow_log,
                            .level = STET_LOG_ERROR };
    crash_worker_start(life);
    flow_drive(w->f, life->e, w->ledger, CRASH_LIMIT_MS, w->where);
    if (w->board->session != 0)
        stopped_await(&w->board->reaped, "the session of the stopped one was not put away");
    if (!w->board->is_midway)
        flow_check(w->f, life->e, w->ledger, w->where);
    /* Until the first one has ended. */
    stet__shim_hold(life->store);
    crash_worker_stand_still(life, false);
    stet__shim_let_go(life->store);
    flow_check(w->f, life->e, w->ledger, w->where);
    stet_close(life->e);
}

/* ---- a point --------------------------------------------------------------------------------- */

static void
stopped_board_clear(stopped_world *w, shim_mode mode, shim_which which, uint64_t at)
{
    stopped_board *board = w->board;

    memset(board, 0, sizeof *board);
    CHECK_INT(sem_init(&board->reaped, 1, 0), 0);
    for (size_t i = 0; i < 2; i++)
        CHECK_INT(sem_init(&board->told[i], 1, 0), 0);
    board->first = (shim_script){ .mode = mode,
                                  .which = which,
                                  .at = at,
                                  .crash = stopped_stop,
                                  .applied = stopped_first_applied,
                                  .arg = w->ledger };
    board->second = (shim_script){ .applied = stopped_second_applied, .arg = w->ledger };
}

/* Both processes of a point. */
typedef struct stopped_pair {
    pid_t pids[2];
    bool  is_stopped[2], has_ended[2];
} stopped_pair;

enum { STOPPED_FIRST, STOPPED_SECOND };

/* Until this one stops, or ends well; false: it has ended. Whichever ends badly ends the test. */
static bool
stopped_wait(const stopped_world *w, stopped_pair *pair, int which)
{
    static const char *const names[2] = { "first", "second" };

    while (!pair->is_stopped[which] && !pair->has_ended[which]) {
        int   status = 0;
        pid_t pid = waitpid(-1, &status, WUNTRACED);
        int   is = pid == pair->pids[STOPPED_SECOND] ? STOPPED_SECOND : STOPPED_FIRST;

        CHECK_INT(pid, pair->pids[is]);
        pair->is_stopped[is] = WIFSTOPPED(status);
        pair->has_ended[is] = !pair->is_stopped[is];
        if (pair->has_ended[is] && status != 0)
            test_fail(__FILE__, __LINE__, "%s: %s: the %s one ended with %x", w->f->name, w->where,
                      names[is], status);
    }
    return pair->is_stopped[which];
}

static void
stopped_go_on(stopped_pair *pair, int which)
{
    pair->is_stopped[which] = false;
    CHECK_INT(kill(pair->pids[which], SIGCONT), 0);
}

/* False: the first one came to its end before that call. */
static bool
stopped_point(stopped_world *w, shim_mode mode, shim_which which, uint64_t at)
{
    stopped_board *board = w->board;
    stopped_pair   pair = { .pids = { 0 } };

    (void)snprintf(w->where, sizeof w->where, "stopped %s %s %llu, woken %s",
                   mode == SHIM_BEFORE ? "before" : "after", which == SHIM_READS ? "read" : "write",
                   (unsigned long long)at, w->when == STOPPED_END ? "at the end" : "midway");
    crash_fresh(w->db, sizeof w->db);
    flow_ledger_clear(w->ledger);
    stopped_board_clear(w, mode, which, at);
    stopped_here.w = w;
    pair.pids[STOPPED_FIRST] = crash_fork(stopped_first, w);
    if (!stopped_wait(w, &pair, STOPPED_FIRST))
        return false;
    (void)snprintf(w->where + strlen(w->where), sizeof w->where - strlen(w->where), " (%s)",
                   board->first.hit);
    pair.pids[STOPPED_SECOND] = crash_fork(stopped_second, w);
    CHECK(stopped_wait(w, &pair, STOPPED_SECOND));
    stopped_go_on(&pair, STOPPED_FIRST);
    if (board->is_midway) {
        stopped_await(&board->told[1], "the first one was not told that its lease is lost");
        stopped_go_on(&pair, STOPPED_SECOND);
        CHECK(stopped_wait(w, &pair, STOPPED_SECOND));
    }
    CHECK(!stopped_wait(w, &pair, STOPPED_FIRST));
    stopped_go_on(&pair, STOPPED_SECOND);
    CHECK(!stopped_wait(w, &pair, STOPPED_SECOND));
    w->counts->points++;
    w->counts->midway += board->is_midway;
    w->counts->told += board->session != 0;
    w->counts->lost += flow_ledger_lost(w->ledger);
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static uint64_t
stopped_stride(void)
{
    long normal = crash_is_on("postgres") ? 6 : crash_is_on("redis") ? 3 : 1;

    return (uint64_t)test_count("STET_CRASH_STRIDE", normal);
}

/* The next call nobody has tried yet, until a process does not come that far. */
static void
stopped_calls(stopped_world *w, shim_which which)
{
    stopped_calls_of *calls = &w->counts->of[which == SHIM_READS];
    uint64_t          stride = stopped_stride();
    uint64_t first = 1 + (uint64_t)test_number("STET_TEST_SEED", (long)(w->f - flows) * 3) % stride;

    while (!calls->is_over) {
        uint64_t n = atomic_fetch_add(&calls->next, 1), at = first + n * stride;

        /* Woken at the end before a call and midway after it; at the next call the other way. */
        w->when = n % 2 == 0 ? STOPPED_END : STOPPED_MIDWAY;
        if (!stopped_point(w, SHIM_BEFORE, which, at))
            calls->is_over = true;
        w->when = n % 2 == 0 ? STOPPED_MIDWAY : STOPPED_END;
        if (!calls->is_over && !stopped_point(w, SHIM_AFTER, which, at))
            calls->is_over = true;
    }
}

static void
stopped_lane(void *arg)
{
    stopped_world w = *(const stopped_world *)arg;

    w.ledger = flow_ledger_new();
    w.board = crash_shared(sizeof *w.board);
    stopped_calls(&w, SHIM_WRITES);
    stopped_calls(&w, SHIM_READS);
}

static void
stopped_all(const char *name)
{
    stopped_world w = { .f = flow_named(name), .counts = crash_shared(sizeof *w.counts) };
    /* Each of them finds the end by itself: if there are few points, that would be most of it. */
    size_t lanes = stopped_stride() < 8 ? 8 : 3;
    int    status;

    for (size_t i = 0; i < lanes; i++)
        (void)crash_fork(stopped_lane, &w);
    for (size_t i = 0; i < lanes; i++) {
        CHECK(wait(&status) > 0);
        CHECK_INT(status, 0);
    }
    test_note("%s: stopped at %zu points, woken midway at %zu, %zu times with a lease; %zu "
              "executions lost, %zu of them entered late",
              name, w.counts->points, w.counts->midway, w.counts->told, w.counts->lost,
              w.counts->late);
    CHECK(w.counts->points > 0);
}

#define STOPPED_TEST(id, name)                                                                     \
    TEST_LIMIT(F3_C6_workers_stopped_everywhere_##id, 600)                                         \
    {                                                                                              \
        stopped_all(name);                                                                         \
    }

STOPPED_TEST(steps, "steps")
STOPPED_TEST(sleep, "sleep")
STOPPED_TEST(child, "child")
STOPPED_TEST(awakeable, "awakeable")
STOPPED_TEST(settled_by_a_run, "settled by a run")
STOPPED_TEST(object, "object")
STOPPED_TEST(dead_letters, "dead letters")
STOPPED_TEST(torn_futures, "torn futures")
STOPPED_TEST(first_of_with_timeout, "first of with timeout")
STOPPED_TEST(signals, "signals")
STOPPED_TEST(events, "events")
STOPPED_TEST(rollback, "rollback")
STOPPED_TEST(generations, "generations")
STOPPED_TEST(schedule, "schedule")
STOPPED_TEST(updates, "updates")
STOPPED_TEST(operators, "operators")
STOPPED_TEST(people, "people")
STOPPED_TEST(forks, "forks")
STOPPED_TEST(mended_rollback, "mended rollback")
STOPPED_TEST(halted_handler, "halted handler")
