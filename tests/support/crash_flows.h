/* The reference workflows of the crash tests, the ledger in which their side effects are counted
 * outside the engine, and the check that everything ended right.
 *
 * The ledger is memory that outlives what crashes: shared between the processes of a test, or
 * simply outside the simulated nodes. Each execution of a step's body is one entry. An entry is
 * settled when the step's record was applied by the store, or lost when its process ended before
 * that. So in the end
 *     executions of a step = executions a run without faults needs + lost entries
 * and nothing is left that is neither settled nor lost.
 */
#ifndef STET_CRASH_FLOWS_H
#define STET_CRASH_FLOWS_H

#include <stdatomic.h>

#include <stet.h>

#include "testkit/shim_store.h"

enum {
    FLOW_ENTRIES_MAX = 256,
    FLOW_STEPS_MAX = 6,
    FLOW_STARTS_MAX = 2,
    FLOW_BOUNDARIES = 3
};

typedef struct flow_entry {
    char     run[STET_ID_TEXT_MAX];
    char     step[32]; /* "charge#1" */
    char     token[64];
    uint32_t life;     /* of the ledger: 1, 2 …; one that is stopped goes on beside the next */
    const void *place; /* the platform of its engine */
    uint64_t fence;
    bool     is_at_risk;
    bool     is_settled, is_lost;
} flow_entry;

typedef struct flow_ledger {
    flow_entry      entries[FLOW_ENTRIES_MAX];
    _Atomic size_t  n;
    uint32_t        life;
    char            awakeable[STET_ID_TEXT_MAX]; /* handed out to the outside */
    bool            is_contradicted; /* handed out twice with different IDs; two decisions; … */
    /* What the outside was told, which must hold whatever happens: runs whose start was
     * acknowledged; that the awakeable was settled. */
    char            answered[FLOW_STARTS_MAX][STET_ID_TEXT_MAX];
    bool            is_resolved;
    bool            is_updated[2]; /* by update "a", by update "b" */
    bool            is_mended; /* what undos fail for until then */
    /* The platform of the engine that knows its handler to be paused, and how often its end was
     * asked for. */
    const void     *halted_at;
    int             resumes_asked;
    const void     *speaker; /* the platform of the engine that says the word, if nobody has yet */
    bool            is_said;
    size_t          forks_asked;
    char            forked[STET_ID_TEXT_MAX]; /* the one that was acknowledged last */
    /* Each decision has a note of its own: the one that was acknowledged is the one the run must
     * get. */
    int             notes;
    char            decided[FLOW_BOUNDARIES][24], heard[FLOW_BOUNDARIES][24];
    int64_t         planned_ms;   /* the first time of the schedule; 0: not said yet */
    uint32_t        planned_life; /* in which that was said: one that finds none says it anew */
} flow_ledger;

typedef struct flow_start {
    const char *handler, *key;
    stet_status status; /* how it has to end */
    int         code;
    const char *value;  /* of a completed one */
} flow_start;

typedef struct flow {
    const char *name;
    flow_start  starts[FLOW_STARTS_MAX];
    size_t      n_starts;
    size_t      runs;    /* in the store at the end, children too */
    size_t      letters; /* dead letters at the end */
    struct {
        const char *step;
        size_t      executions; /* without faults, over all runs */
    } steps[FLOW_STEPS_MAX];
} flow;

extern const flow   flows[];
extern const size_t flows_n;
const flow *flow_named(const char *name);

/* A ledger all children of this process share. */
flow_ledger *flow_ledger_new(void);
/* Forget everything. */
void flow_ledger_clear(flow_ledger *ledger);
/* The bodies of this process write here from now on; a new life of it begins. */
void flow_ledger_begin(flow_ledger *ledger);
/* For shim_script.applied: `arg` is the ledger. */
void flow_ledger_applied(void *arg, const stet_unit *unit);
/* No body of this process gets past its entry any more. */
void flow_ledger_stop(void);
/* They do again: the process was only stopped. */
void flow_ledger_go_on(void);
/* What was entered on this platform in this life and is not settled is lost; NULL: everywhere. */
void flow_ledger_crash(flow_ledger *ledger, const void *place);
size_t flow_ledger_lost(const flow_ledger *ledger);
/* As it is at one moment, for going back to it. */
void flow_ledger_copy(flow_ledger *to, const flow_ledger *from);
/* The power went and this store is what is left: what is settled must be recorded in it; what is
 * not, and is recorded, is settled now; the rest is lost. Before an engine is on it. */
void flow_ledger_recover(flow_ledger *ledger, stet_store *store, const char *where);

int flow_register(stet_engine *e);
/* Start what the flow starts (again: the same runs), play the outside, wait for the ends. Fails the
 * test if they take longer than limit_ms. */
void flow_drive(const flow *f, stet_engine *e, flow_ledger *ledger, int64_t limit_ms,
                const char *where);
/* Everything ended right; `where` names the point of the crash in messages. */
void flow_check(const flow *f, stet_engine *e, const flow_ledger *ledger, const char *where);
/* Warnings and errors of an engine to standard error. */
void flow_log(void *arg, const stet_log_record *record);

#endif
