/* The run state machine: what a run is after the facts so far.
 *
 * stet__run_apply() is the one function that changes a run, run_move() in run.c the one that changes its
 * status, by one table. The row a store keeps, what `show` prints and what `verify` compares are all
 * read off this struct.
 *
 * Invariants (stet__run_check):
 *   1. the first fact is STARTED, and only the first; a run that begins anew has one for each generation, which
 *      says at which revision it stands, and the facts before it are gone
 *   2. journal is the revision of the last applied fact; revisions have no gaps behind the first fact that is left
 *   3. a terminal run takes no fact
 *   4. taken <= the inbox sequence; entries are taken in order, once
 *   5. attempt is 1 + failed attempts; it never exceeds the maximum while the run is open
 */
#ifndef STET__RUN_H
#define STET__RUN_H

#include <stet/run.h>

#include "core/fact.h"
#include "core/retry.h"

/* A body that had been entered, and not recorded, when its worker died. */
typedef struct stet__risk {
    struct stet__risk *next;
    const char        *step; /* cut to STET_CRUMB_MAX - 1 bytes; NULL: not known which */
    uint64_t           occurrence;
    bool               is_lasting; /* not known which, and the run was rewound since: it may come to it at any time */
} stet__risk;

/* A failure as it was told. */
typedef struct stet__told {
    int         code, cause;
    const char *error, *origin;
} stet__told;

typedef struct stet__run {
    stet__arena *arena; /* owns all texts and bytes below */
    stet_id      id;

    /* From STARTED. */
    const char   *handler, *key, *group, *idempotency_key, *parent_step, *child_key;
    const char   *traceparent, *tracestate; /* as given; core/trace.h */
    const char   *schedule;          /* that started it, or NULL */
    int64_t       planned_ms;        /* … for this time */
    stet_bytes    input, labels, held;
    int64_t       created_ms, visible_ms, deadline_ms, retention_ms;
    int64_t       created_us;        /* by a steady clock; orders starts of one millisecond */
    int32_t       priority;
    stet__backoff retry;
    stet_id       parent, retry_of;
    uint64_t      parent_completion; /* 0: the parent does not wait */
    bool          is_object;
    bool          is_fork;           /* of retry_of */
    bool          is_shared;         /* has a key, and does not stand in its lane */
    uint64_t      generation;        /* how often it began anew */
    int64_t       began_ms;          /* this generation */

    stet_status status;
    stet__fact_kind dispatch; /* the last fact that began or ended an execution, or STARTED */
    uint64_t    journal;     /* last revision */
    uint64_t    taken;       /* last inbox sequence taken */
    uint32_t    failed;      /* attempts that failed */
    uint32_t    lost;        /* deaths of workers while executing it, since the last unstick */
    uint64_t    epoch;       /* of the last CLAIMED */
    int64_t     due_ms;      /* of a retrying run */
    int64_t     ended_ms;    /* STET_NEVER-like INT64_MAX while open */
    const char *reason;      /* why it is suspended, retrying or stuck */

    /* Result or last failure. */
    stet_bytes  result;
    int         code, cause;
    const char *error, *origin;

    /* Cancel or deadline: asked (taken from the inbox), and whether the handler was told. */
    int         stop_code; /* 0, STET_ECANCELLED or STET_EEXPIRED */
    const char *stop_who, *stop_why;
    bool        is_stop_told;
    uint64_t    stop_told_at; /* revision of the fact that told it */
    bool        is_answer_owed; /* the caller stopped it and is answered when it has ended */

    /* Compensation. */
    uint64_t    rollback;     /* revision of the ROLLBACK that is under way; 0: none */
    bool        is_auto;      /* … because the run failed */
    bool        is_told;      /* an undo failed, and the waiters were told: it cannot complete any more */
    bool        awaits_help;  /* … and nobody has asked for another try since */
    const char *undo;         /* that failed: the name of its step; NULL: none, or an older stet did not say */
    stet__told  told;         /* … the first time: what its waiters were told, and are told whatever fails later */

    /* What operators said. */
    bool        is_paused;    /* until it is resumed or stopped */
    bool        is_failed;    /* it ends when it is next looked at */
    const char *said_who, *said_why;
    int64_t     said_ms;

    stet__risk *risks;        /* steps the next execution has to know about */
    uint64_t    rewound;      /* the revision by which a rewind was taken, the last one; 0: none */
} stet__run;

void stet__run_init(stet__run *run, stet__arena *arena, stet_id id);

/* Apply the next journal fact; its revision must be run->journal + 1.
 * STET_ECORRUPT: it breaks an invariant (text says which); the run is unchanged. STET_ENOMEM. */
int stet__run_apply(stet__run *run, const stet__fact *fact);
/* Apply an inbox entry as it is taken (a TAKEN fact stands for it in the journal). */
int stet__run_apply_inbox(stet__run *run, const stet__fact *fact);

/* The STARTED fact of its next generation: all that the first one said, with another input. Bytes are the run's. */
void stet__run_restart(const stet__run *run, stet__fact *fact, stet_bytes input, uint64_t epoch);

/* What an open run is shown as that is `status` by its dispatch: a rollback and a stop outlast that. */
stet_status stet__run_shown(const stet__run *run, stet_status status);
/* May a run go from one status to another? `from` 0: before the first fact. */
bool stet__status_can(stet_status from, stet_status to);

/* Does it stand in a lane, or will when its time comes? */
bool stet__run_has_lane(const stet__run *run);

uint32_t stet__run_attempt(const stet__run *run);
bool     stet__run_is_terminal(const stet__run *run);
/* Has it been executed, by what it recorded? Then it holds its key until it ends. */
bool stet__run_has_begun(const stet__run *run);
/* An undo that failed is executed again by a rollback that somebody asks for, and by nothing else; the rollback goes on
 * without it if that very one is skipped. Of what rewrites a run: is it such help? */
bool stet__run_helps_rollback(const stet__run *run, const stet__fact *f);

/* Has every waiter been answered (terminal, stopped, or an undo failed)? */
bool stet__run_is_answered(const stet__run *run);
/* STET_OK for completed, else the code a waiter gets: STET_ERUN, STET_ECANCELLED, STET_EEXPIRED. */
int stet__run_answer(const stet__run *run);
/* May a body of this step have happened without a record, and it has no result? Where it is not known what a dead worker
 * was executing, every step is at risk until stet__run_settle_risks(), except (only_named) one that cannot be. */
bool stet__run_is_at_risk(const stet__run *run, const char *step, uint64_t occurrence, bool only_named);
/* The handler waits for what the journal does not have: no step it asks for from here on can have been
 * entered by a worker that died before. */
void stet__run_settle_risks(stet__run *run);

#endif
