/* A crew: workers as real processes on one store, and what they did, told outside the engine.
 *
 * Workers are made by a process of their own that has no threads (the nursery), so that forking is
 * safe at any time; they serve "t.three", a run of three steps whose input is its number. Each
 * entry of a body appends a record to a file the engine does not know of, with one write. What
 * happens to the crew is written there too, so the order of all of it can be judged at the end.
 */
#ifndef STET_CREW_H
#define STET_CREW_H

#include <stdint.h>
#include <sys/types.h>

#include <stet.h>

enum {
    CREW_STEPS = 3,
    CREW_SLOTS = 2,
    CREW_IN_FLIGHT = 4,
    CREW_RENEW_MS = 200,
    CREW_RUNS_MAX = 2000,
    CREW_BEHIND = 8, /* so many later runs are started before one gets its signal */
    CREW_WORKERS_MAX = 16
};

typedef struct crew {
    int         orders, answers; /* pipes of the nursery */
    int         file;            /* of effects */
    int         lease_ms;
    uint64_t    random;
    pid_t       workers[CREW_WORKERS_MAX]; /* 0: none */
    pid_t       stopped;                   /* one of them, or 0 */
    int         n_workers, n_runs, kills, stops, restarts;
    stet_run_id runs[CREW_RUNS_MAX];
} crew;

/* Before this process has threads. The seed is that of STET_TEST_SEED, else 1. */
void crew_begin(crew *c, int lease_ms);
/* All workers go, and the nursery; the file stays. */
void crew_end(crew *c);
/* A number below n. */
int crew_draw(crew *c, int n);

/* One more worker on this address. */
void crew_hire(crew *c, const char *url);
/* Kill the ith; another one comes in its place. */
void crew_kill(crew *c, int i, const char *url);
/* Stop the ith with SIGSTOP; one at a time. */
void crew_stop(crew *c, int i);
/* And let it go on, if one is stopped. */
void crew_continue(crew *c);
/* The server is about to be restarted: leases may end, and what was not recorded is repeated. */
void crew_restart(crew *c);

/* Start n more runs, until the store has taken them, and signal each to begin its last step. */
void crew_start(crew *c, stet_engine *e, int n);
/* Wait until bodies were entered so often in all. */
void crew_await_executed(crew *c, int total);
int  crew_executed(crew *c);
/* Wait for the answers of all runs and compare them. */
void crew_await_runs(crew *c, stet_engine *e);
/* Judge the file: every step of every run was executed; none again once a later one was (its record
 * is durable by then), but by a worker that was stopped on its way into the body; and not more
 * often in all than workers went down with a record in hand. */
void crew_audit(crew *c);
/* verify finds nothing. */
void crew_verify(stet_engine *e);

#endif
