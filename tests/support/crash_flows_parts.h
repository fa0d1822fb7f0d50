/* What the parts of crash_flows.h share: ledger, workflows, who drives them, who checks them.
 *
 * Bodies get no argument from the engine's side that could carry the ledger through a replay, so
 * the ledger of this process is a variable. Its mutex also stops all bodies at the moment of a
 * crash.
 */
#ifndef STET_CRASH_FLOWS_PARTS_H
#define STET_CRASH_FLOWS_PARTS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_flows.h"
#include "test.h"

/* Flows with a part of their own in driving or checking. */
#define FLOW_SCHEDULE "schedule"
#define FLOW_UPDATES "updates"
#define FLOW_OPERATORS "operators"
#define FLOW_PEOPLE "people"
#define FLOW_LETTERS "dead letters"
#define FLOW_FORKS "forks"
#define FLOW_MENDING "mended rollback"
#define FLOW_HALTED "halted handler"
#define FLOW_LATE "late listener"
#define FLOW_RESUME "late resume"

#define FLOW_UNDO "rollback:" /* what the name of an undo begins with */

typedef struct flow_place {
    flow_ledger    *ledger;
    uint32_t        life; /* of the ledger, which this process is */
    pthread_mutex_t lock;
} flow_place;

extern flow_place flow_here;

void flow_lock(void);
void flow_unlock(void);
/* An execution of this step begins. */
void flow_enter(const stet_attempt *a, const char *step);

static inline bool
flow_is(const flow *f, const char *name)
{
    return strcmp(f->name, name) == 0;
}

/* What an operator's facts tell of a run, for doing what comes next. */
typedef struct flow_story {
    int  retries, pauses, skips, edits, waits, rewinds;
    bool is_paused;
    bool is_lost; /* the one that is to be ended */
} flow_story;

int flow_on_story(void *arg, const stet_fact_info *fact);

/* How many forks a run has. */
typedef struct flow_forks {
    const char *of;
    size_t      n, wrong;
    const char *known; /* one to look for */
    bool        is_found;
} flow_forks;

int flow_on_fork(void *arg, const stet_run_info *info);

/* Entries, runs and their facts to standard error. */
void flow_dump(stet_engine *e, const flow_ledger *ledger);

#endif
