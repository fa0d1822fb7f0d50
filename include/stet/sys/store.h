/* The store port, for people who write stores. Weaker promise of stability than <stet.h>.
 *
 * A store keeps five families of records and knows nothing of steps, sleeps or handlers:
 *   facts    the journal of a run (revisions 1, 2, 3 …) and its inbox (a sequence of its own); the beginning of both
 *            may be removed
 *   runs     one header row a run, with the few columns that are looked up
 *   timers   fire-at -> run, completion
 *   values   (space, key) -> bytes with a version; those of spaces that begin with "base." are baselines:
 *            they stand for facts that were removed, and are kept as safe as facts are
 *   lanes    ordered waiting lists of runs; the first in a lane holds it
 * and the sessions of the workers, because it judges leases by its own clock.
 *
 * Everything is written by commit(). tests/contract/store.c is the definition of a correct store.
 */
#ifndef STET_SYS_STORE_H
#define STET_SYS_STORE_H

#include <stet/base.h>
#include <stet/transaction.h>

#ifdef __cplusplus
extern "C" {
#endif

/** "Not at all", for due_ms, ended_ms, deadline_ms. */
#define STET_NEVER INT64_MAX

/* ---- rows ---------------------------------------------------------------------------------- */

/** A run's header row. Who may execute it:
 *   session == 0, due_ms == STET_NEVER   nobody: it is suspended, waits in its lane, is stuck or ended
 *   session == 0, due_ms == T            any worker that serves the handler, from T on
 *   session == S                         the holder of session S with this epoch (due_ms is ignored)
 * `epoch` grows by one with every change of owner to a session. */
typedef struct stet_run_row {
    stet_id     id;
    const char *handler;     /* "orders.checkout"; never changes */
    const char *key;         /* object key or NULL; never changes */
    const char *lane;        /* lane it is in, or NULL; set by STET_OP_LANE_ENTER and _LEAVE only */
    uint32_t    status;      /* opaque number */
    uint32_t    is_terminal; /* 0 or 1; a terminal run takes no inbox entries and is never claimed */
    uint64_t    session;
    uint64_t    epoch;
    uint64_t    journal;     /* last revision; kept by STET_OP_FACTS */
    uint64_t    inbox;       /* last inbox sequence; kept by STET_OP_INBOX */
    int64_t     due_ms;
    int64_t     created_ms;
    int64_t     ended_ms;    /* STET_NEVER while open */
    int32_t     priority;
    uint32_t    attempt;
    const char *group;       /* fairness group or NULL */
    const char *reason;      /* short text for lists, or NULL */
    stet_bytes  extra;       /* the engine's own */
} stet_run_row;

/* Columns STET_OP_RUN_SET may write. */
#define STET_RUN_STATUS 1u    /* status, is_terminal, ended_ms */
#define STET_RUN_OWNER 2u     /* session := 0 and due_ms (releasing); session must be 0 in the row */
#define STET_RUN_ATTEMPT 4u
#define STET_RUN_REASON 8u
#define STET_RUN_EXTRA 16u
#define STET_RUN_DUE 32u      /* due_ms only, and only if unclaimed; else ignored */

typedef struct stet_timer {
    int64_t  fire_ms;
    stet_id  run;
    uint64_t completion;
} stet_timer;

typedef struct stet_value {
    uint64_t   version; /* 1 when first put, +1 with each put; 0: absent */
    stet_bytes data;
    stet_id    run;     /* which run wrote it at which revision; zero: none */
    uint64_t   revision;
} stet_value;

/* ---- a unit: one decision ------------------------------------------------------------------- */

typedef enum stet_cond_kind {
    STET_COND_CLAIM,   /* the run exists and is claimed by (session, epoch), and that session is alive;
                          session 0: it exists, is unclaimed, and its epoch is `epoch` */
    STET_COND_JOURNAL, /* the run's last revision is `number`; 0: there is no such run */
    STET_COND_INBOX,   /* the run's last inbox sequence is `number` */
    STET_COND_VALUE,   /* the value's version is `number`; 0: absent */
    STET_COND_TIMER,   /* the timer (fire_ms, run, number) is there */
    STET_COND_SESSION_DEAD, /* session `session` is expired, closed or proven dead (or unknown) */
    /* Nothing has happened to the run since it was suspended: it is open, unclaimed and not due, its epoch is
     * `epoch`, its last inbox sequence `number`. And session `session` is this handle's own and alive, so that
     * a STET_OP_RUN_WAKE for it in the same unit grants. */
    STET_COND_PARKED,
    STET_COND_WRITER, /* the value is there, and was last put by `run` with revision `number` */
    /* Unit `number` of this handle, if it is in the same call of commit(), was applied. One that was in an earlier
     * call is no condition: its answer is known to the caller. */
    STET_COND_UNIT
} stet_cond_kind;

typedef struct stet_cond {
    stet_cond_kind kind;
    stet_id        run;
    uint64_t       session, epoch;
    uint64_t       number;
    int64_t        fire_ms;
    const char    *space;
    stet_bytes     key;
} stet_cond;

/** Who may be given a run in the same unit that makes it executable. NULL where none is wanted.
 * A run is granted only if its handler is in the list and the session is alive; otherwise it is
 * left due now for anybody. A grant sets session, epoch + 1, status := running_status. */
typedef struct stet_claimer {
    uint64_t           session;
    uint32_t           running_status;
    const char *const *handlers;
    size_t             n_handlers;
} stet_claimer;

typedef enum stet_op_kind {
    /* Create the run in `row` (journal and inbox start at 0, epoch 0, session 0, lane NULL). With a
     * `claimer` and due_ms at or before the store's now it is granted at once. The unit conflicts if
     * the run exists.
     * With STET_OP_RESTORE (and no claimer) the run has facts, and its row is written anew: made if it is
     * missing, else replaced but for its lane, and its epoch is not lowered. The unit conflicts if the run
     * is claimed, or if its facts do not end at row->journal and its inbox at row->inbox. */
    STET_OP_RUN_PUT,
    /* Write the columns in `mask` of row->id. */
    STET_OP_RUN_SET,
    /* If the run is unclaimed, not terminal, its due_ms is STET_NEVER, and its lane (if any) has it
     * first: due now, or granted to `claimer`. Otherwise nothing. `status` is written in both cases
     * when it applies (granted: the claimer's running_status). With STET_OP_HASTEN also if its due_ms
     * lies in the future. With STET_OP_DUE instead only if it is due, and then it is granted to `claimer` or
     * nothing happens. */
    STET_OP_RUN_WAKE,
    /* Append `count` facts (opaque bytes) as revisions number … number + count - 1; number must be
     * the run's journal + 1, else the unit conflicts.
     * With STET_OP_ANEW all facts before them are removed, and the inbox entries up to sequence `session`;
     * both go on counting: number may be any revision behind the journal's last (else the unit conflicts), and
     * an inbox that ends before `session` ends there from now on. */
    STET_OP_FACTS,
    /* Append one entry to the run's inbox with the next sequence. A missing or terminal run: the unit
     * conflicts, or with STET_OP_IF_OPEN the op does nothing. */
    STET_OP_INBOX,
    STET_OP_TIMER_PUT,  /* fire_ms, run, number (completion); a repeat is nothing */
    STET_OP_TIMER_DEL,  /* the same; absent is nothing */
    /* space, key, data, run, number (revision). With STET_OP_SETTLE every other unit that found the value
     * absent by a condition is durable when this one is applied, or refused; also one inside a transaction of
     * somebody else (apply_in), which is waited for. Only stores that apply units side by side have to do
     * something about it. */
    STET_OP_VALUE_PUT,
    STET_OP_VALUE_DEL,  /* space, key; absent is nothing */
    /* Put the run at the end of the lane `lane` (its row's lane is set). First: as STET_OP_RUN_WAKE,
     * else its due_ms becomes STET_NEVER. In the lane already: nothing. */
    STET_OP_LANE_ENTER,
    /* Take the run out of its lane, wherever it stands; row's lane becomes NULL. If another is first
     * now, it is woken as by STET_OP_RUN_WAKE with this op's status and claimer. */
    STET_OP_LANE_LEAVE,
    /* Grant up to `count` runs that are due (session 0, due_ms <= now) to `claimer`, oldest due first
     * within a handler, handlers in turn. */
    STET_OP_CLAIM_DUE,
    /* Every run claimed by `session` becomes unclaimed and due now, status `status`; the session's
     * record is removed. Use with STET_COND_SESSION_DEAD. */
    STET_OP_REAP,
    /* Remove the terminal run with its facts, inbox, timers. Not terminal: the unit conflicts. */
    STET_OP_RUN_DEL,
    /* Every unclaimed run of the claimer's handlers whose status is `status` and whose due_ms is
     * STET_NEVER becomes due now with the status in `number`. */
    STET_OP_REQUEUE,
    /* The session counts as closed from now on, also if the clock is set back behind the end of its lease: what
     * it has claimed can only become less. Unknown: nothing. Use with STET_COND_SESSION_DEAD. */
    STET_OP_BURY
} stet_op_kind;

#define STET_OP_IF_OPEN 1u
#define STET_OP_HASTEN 2u
#define STET_OP_RESTORE 4u
#define STET_OP_SETTLE 8u
#define STET_OP_ANEW 16u
#define STET_OP_DUE 32u

typedef struct stet_op {
    stet_op_kind        kind;
    uint32_t            flags;
    uint32_t            mask;
    uint32_t            status;
    uint32_t            count;
    stet_id             run;
    uint64_t            number;
    uint64_t            session; /* STET_OP_FACTS: a sequence */
    int64_t             fire_ms;
    const stet_run_row *row;
    const char         *space;
    const char         *lane;
    stet_bytes          key;
    stet_bytes          data;
    const stet_claimer *claimer;
} stet_op;

/** One decision: if all conditions hold when its turn comes, all operations apply; else nothing.
 * `seq` grows strictly within one store handle. A unit submitted again has its old seq. */
typedef struct stet_unit {
    uint64_t         seq;
    const stet_cond *conds;
    size_t           n_conds;
    const stet_op   *ops;
    size_t           n_ops;
} stet_unit;

typedef struct stet_grant {
    stet_id  run;
    uint64_t epoch;
    uint64_t inbox; /* the run's last inbox sequence when it was granted */
    stet_bytes news; /* that entry, if the store has it at hand; else no data. Lives with the grants */
    stet_bytes facts; /* all of its journal, if nobody had it before, its inbox is empty and the store has them at hand;
                         else no data. Lives with the grants */
    bool     is_soft; /* not flushed: a crash of the server may take it back. The next unit under this claim that is
                         applied makes it durable */
} stet_grant;

typedef struct stet_outcome {
    int         result;      /* STET_OK applied; STET_ECONFLICT nothing applied; STET_EFENCED: a
                                STET_COND_CLAIM failed, nothing applied; another code: the unit itself
                                is bad (STET_ETOOBIG, STET_EINVAL …), nothing applied */
    bool        is_repeat;   /* it had been applied (or refused) before; the answer is the old one */
    uint32_t    cond;        /* index of the condition that failed; n_conds: an operation's own rule */
    uint64_t    inbox;       /* inbox sequence of the run of the first STET_COND_CLAIM, after the unit */
    int64_t     next_due_ms; /* with STET_OP_CLAIM_DUE: when the next run of those handlers is due
                                (now or earlier if more are waiting), or STET_NEVER */
    stet_grant *grants;      /* in the order they were made; freed by the caller with store->alloc, one block */
    size_t      n_grants;
    bool        is_told;     /* others were told of this unit as by a store that has tells_commits */
} stet_outcome;

/* ---- sessions ------------------------------------------------------------------------------- */

typedef struct stet_session_row {
    uint64_t   session;   /* number given by the store, never reused */
    stet_id    id;        /* the worker's ID */
    int64_t    started_ms, seen_ms, lease_until_ms; /* by the store's clock */
    bool       is_dead;   /* expired, closed, or proven dead */
    stet_bytes info;      /* the engine's own: host, handlers, slots … */
} stet_session_row;

/** What a thread of a worker is executing, in memory that outlives the process (a mapped file) if the
 * store can; written without a lock by the owner of the slot, read after the session's death. */
#define STET_CRUMB_MAX 96
#define STET_CRUMBS_MAX 16384 /* a store has room for so many a session */
typedef struct stet_crumb {
    uint32_t is_busy; /* 1 while the rest is valid */
    uint32_t is_body; /* 1: inside a step body; 0: inside handler code */
    stet_id  run;
    uint64_t epoch;
    uint64_t occurrence;
    char     step[STET_CRUMB_MAX]; /* step name, cut to fit */
} stet_crumb;

/* ---- lists ---------------------------------------------------------------------------------- */

typedef struct stet_run_query {
    const char *handler;     /* NULL: any; a trailing '.' means "of this service" */
    const char *key;         /* NULL: any */
    uint64_t    status_mask; /* bit per status; 0: any */
    int64_t     created_from_ms, created_to_ms; /* 0: no limit */
    uint64_t    session;     /* 0: any */
    stet_id     before;      /* newest first, only runs older than this ID; zero: from the newest */
    bool        oldest_first; /* then `before` means "only runs newer than this ID" */
    /* Instead of all that: runs that have facts and no row, which is damage, oldest first, after `before`
     * and not after `upto` (zero: no limit). Of their rows only id, journal and inbox are filled. */
    bool        is_lost;
    stet_id     upto;
    size_t      limit;
} stet_run_query;

/* Rows, facts and texts handed to these are valid during the call only. Non-zero stops the listing
 * and is returned by the listing function. They must not call the store. */
typedef int (*stet_run_row_fn)(void *arg, const stet_run_row *row);
typedef int (*stet_facts_fn)(void *arg, uint64_t first, uint32_t count, stet_bytes facts);
typedef int (*stet_timer_fn)(void *arg, const stet_timer *timer);
typedef int (*stet_value_fn)(void *arg, stet_bytes key, const stet_value *value);
typedef int (*stet_lane_fn)(void *arg, stet_id run);
typedef int (*stet_session_fn)(void *arg, const stet_session_row *row);

typedef void (*stet_hint_fn)(void *arg);
typedef void (*stet_told_fn)(void *arg, const void *bytes, size_t len);
typedef int (*stet_doctor_fn)(void *arg, const char *sentence);
/* `run` is NULL where it is about none; `sentence` begins behind "run_…: ". */
typedef int (*stet_check_fn)(void *arg, const stet_id *run, const char *sentence, bool is_repaired);

/* ---- transactions that are lent --------------------------------------------------------------- */

/* A store's own struct begins with it. */
typedef struct stet_tx {
    stet_conn conn; /* for the body of a step */
} stet_tx;

/* ---- the store ------------------------------------------------------------------------------ */

typedef struct stet_store stet_store;
struct stet__platform;
struct stet__alloc;

/* Any thread may call any method of an open store, several at once, except that commit() has one
 * caller at a time. All texts of errors are left with stet__fail. */
typedef struct stet_store_ops {
    uint32_t    version; /* 1; append-only: new methods go last */
    const char *scheme;  /* "sqlite" */
    size_t      size;    /* sizeof the store's own struct, which begins with stet_store */

    /* Must. After a failure close() must still be safe. STET_ENOTDB, STET_ENEWER, STET_EREADONLY … */
    int (*open)(stet_store *s, const char *address);
    /* Must. Cannot fail; safe twice. */
    void (*close)(stet_store *s);
    /* Must. After STET_EPOISONED or a lost connection: make the handle usable again. */
    int (*reopen)(stet_store *s);
    /* Must. Milliseconds since 1970 by the clock leases, due times and timers are judged by. */
    int64_t (*now_ms)(stet_store *s);

    /* Must. Units in order, each all or nothing, each sees the earlier ones; one flush. Returns only
     * when durable. STET_OK: outcomes are filled. STET_EUNCERTAIN: it is not known; the engine submits
     * the same units again (perhaps more behind them). STET_EPOISONED: the same, after reopen().
     * STET_EBUSY, STET_EFULL, STET_EIO, STET_ENOMEM: nothing of it was applied. Runs on: committer. */
    int (*commit)(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);

    /* Must. Open a session with a lease; its secret token never reaches the store, only its hash. */
    int (*session_open)(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms, stet_bytes info);
    /* Must. STET_EFENCED: it has expired; open a new one. */
    int (*session_renew)(stet_store *s, uint64_t session, int64_t lease_ms);
    /* Must. Its claims can be reaped at once. */
    int (*session_close)(stet_store *s, uint64_t session);
    int (*sessions)(stet_store *s, stet_session_fn fn, void *arg);
    /* Must. Memory for n crumbs of an own session, zeroed; NULL only on failure. Valid until
     * session_close() or close(). */
    stet_crumb *(*crumbs)(stet_store *s, uint64_t session, size_t n);
    /* Must. Crumbs of another session that is dead; *n = 0 and STET_ENOTFOUND when they did not
     * survive. Freed by the caller with s->alloc. */
    int (*crumbs_of)(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n);

    /* Reads. Must. STET_ENOTFOUND where a single thing is absent. */
    int (*run)(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg);
    int (*runs)(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg);
    /* Journal rows from revision `from` on (a row may begin before it), at most `limit` rows. */
    int (*journal)(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg);
    /* Inbox entries with sequence >= from (count is 1). */
    int (*inbox)(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg);
    /* Timers with fire_ms <= until_ms in firing order, at most `limit`; *next_ms (may be NULL) is the
     * earliest one after those, or STET_NEVER. */
    int (*timers)(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
                  int64_t *next_ms);
    int (*timers_of)(stet_store *s, stet_id run, stet_timer_fn fn, void *arg);
    /* STET_ENOTFOUND and version 0 when absent; *data is freed by the caller with s->alloc. */
    int (*value)(stet_store *s, const char *space, stet_bytes key, stet_value *value);
    /* Values whose key begins with `prefix` and is greater than `after` (NULL: from the first), in
     * key order, at most `limit`. */
    int (*values)(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
                  size_t limit, stet_value_fn fn, void *arg);
    int (*lane)(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg);

    /* May be NULL: the engine polls. `on_hint` is called from any thread soon after another process
     * committed something; never while a store lock is held. unwatch() returns when it cannot be
     * called any more. */
    int  (*watch)(stet_store *s, stet_hint_fn on_hint, void *arg);
    void (*unwatch)(stet_store *s);
    /* Must. Upkeep that may take a while (checkpoint, forget old committers and sessions). Called now
     * and then from a thread that may block. */
    int (*maintain)(stet_store *s);
    /* Must. STET_OK if it answers. From then on now_ms() of this handle is not behind what that of any other was when
     * this was called: a handle that only estimates a server's clock brings its estimate up to date. */
    int (*ping)(stet_store *s);
    /* Must. When the earliest unclaimed run of these handlers is due (may be past), or STET_NEVER. */
    int (*due)(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms);

    /* All four may be NULL: the store has no transactions. Begin one on a connection that nothing of the store
     * uses meanwhile, with the time it may take as a limit for its statements. STET_EBUSY and the like: try again. */
    int (*tx_begin)(stet_store *s, int64_t limit_ms, stet_tx **tx);
    /* Apply the unit (its sequence number means nothing; it has no claimer) inside, and commit both. STET_OK and
     * outcome->result != STET_OK: refused, all was rolled back. STET_EUNCERTAIN, STET_EPOISONED: it is not known,
     * but whoever sets the row of the unit's run from now on comes after it. STET_ETIMEOUT, the limit is over, and
     * any other: all was rolled back. Ends the transaction in every case. */
    int (*tx_commit)(stet_store *s, stet_tx *tx, const stet_unit *unit, stet_outcome *outcome);
    void (*tx_rollback)(stet_store *s, stet_tx *tx);
    /* Apply the unit inside the transaction that is under way on somebody else's connection. On failure, or
     * when it is refused, the transaction is as it was before. STET_ESTATE: it cannot be applied in this one, for
     * instance because its snapshot may be older than what the unit depends on. */
    int (*apply_in)(stet_store *s, stet_conn conn, const stet_unit *unit, stet_outcome *outcome);
    /* May be NULL, with watch(). Hint as after a commit. */
    void (*hint)(stet_store *s);
    /* May be NULL: nothing is known. What is wrong with the place the data are in, and what it risks, one sentence
     * each; none: all is well. May ask a server. */
    int (*doctor)(stet_store *s, stet_doctor_fn fn, void *arg);
    /* May be NULL, with watch(). While this handle watches and has a `told`: give the bytes (at most 512) to all others
     * that do, soon. commit() then tells nothing by itself. Never waits; may be lost, as all hints may. */
    void (*tell)(stet_store *s, const void *bytes, size_t len);
    /* May be NULL: run() and journal() are asked. Both in one go: the row, then its journal from the first row on, at
     * most `limit` rows; with if_ended only that of a terminal run. */
    int (*load)(stet_store *s, stet_id run, bool if_ended, size_t limit, stet_run_row_fn row_fn,
                stet_facts_fn facts_fn, void *arg);
    /* May be NULL: whatever the methods above find, they find in the records themselves. Does what the store made of its
     * own records to find them by (queues, lists, columns of indexes) have every record where it belongs? Each that is
     * missing, or in the wrong place where that does harm, is told; with is_repairing it is set right first, durably. What
     * is left of records that are gone is no finding if it does no harm. Others may be at work: what they change meanwhile
     * is no finding either. In short transactions or calls; interrupted anywhere it can be repeated. */
    int (*check)(stet_store *s, bool is_repairing, stet_check_fn fn, void *arg);
} stet_store_ops;

struct stet_store {
    const stet_store_ops  *ops;
    struct stet__platform *platform;
    struct stet__alloc    *alloc;
    stet_id                committer; /* names this handle's sequence of units */
    uint64_t               reads;     /* how many read calls were made (atomic), for the idle figure */
    uint64_t               sticky;    /* bit per status that grants, wakes and reaps leave as it is; only
                                         STET_OP_RUN_SET changes it. Set by the engine before use */
    uint64_t               quiet;     /* bit per status that STET_OP_REQUEUE is never asked for: the store
                                         need not be able to find such runs. Set by the engine before use */
    /* A store that sets can_grow calls more() inside commit(), when the units it has are applied and nothing
     * is flushed yet: the engine may put units behind them, into the same arrays, and says how many there are
     * now. It may wait a little for some. Again until it adds none. Both are set by the engine; NULL: no. */
    bool   can_grow;
    size_t (*more)(void *arg, const stet_unit *units, size_t n);
    void  *more_arg;
    bool                   is_client; /* executes nothing: a hint that is meant for one of those who do is
                                         not for this handle. Set by the engine before use */
    stet_told_fn           told;      /* what others gave to tell() goes here, and not to on_hint. And what commit() told
                                         if the store has tells_commits: no bytes, runs were left due for anybody; the 16
                                         of an ID, that run ended, or got something from somebody else than its owner;
                                         'w' and an ID, it got something, and was left due if nobody executes it.
                                         NULL: they all mean "something changed". Set before watch() */
    void                  *told_arg;
    bool                   tells_commits; /* of these the engine need not tell. Set by the store */
    bool                   wants_ends; /* of all runs that end; else an end is told at least to those whose last load() with
                                         if_ended found the run open, if that is not longer ago than looks_ms. Between that
                                         load() and the first moment it is, told() names the run, or on_hint is called.
                                         Set by the engine before use */
    bool                   is_mute;   /* others are told another way: commit() need not hint. Set by the engine before use */
    int64_t                looks_ms;  /* who waits for a run looks at least that often whether it has ended. Set by the
                                         engine before use; 0: it did not say */
};

#ifdef __cplusplus
}
#endif
#endif
