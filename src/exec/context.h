/* One execution of a run: the context a handler sees, and what the slots need to run it.
 *
 * A stet_ctx is one incarnation: a coroutine on one slot, the run as its facts say, the commands found
 * by name, and the memory of all results. It is only a cache of the journal: it can be let go at any
 * wait and the run replayed elsewhere.
 *
 * Everything the executor needs from the rest of the engine goes through stet__host_ops, so the
 * executor knows no store. What a handler decides leaves here as facts only; the host derives the rows,
 * timers and children from them.
 *
 * Threads: fields under "slot" belong to the thread of c->slot while the state is EXECUTING; those
 * under "shared" are guarded by exec->lock.
 */
#ifndef STET__CONTEXT_H
#define STET__CONTEXT_H

#include <stdatomic.h>

#include <stet/context.h>
#include <stet/live.h>
#include <stet/sys/store.h>

#include "core/journal.h"
#include "core/run.h"
#include "core/trace.h"
#include "exec/co.h"
#include "platform/platform.h"

typedef struct stet__exec stet__exec;
typedef struct stet__slot stet__slot;

#define STET__CTX_MAGIC 0x73746574u
/* What is deferred wakes at this time at the latest, the last minute of the year 9999: the times behind it are no due
 * times, they mean "held" and "never". */
#define STET__DEFER_MS_MAX 253402300740000

typedef enum stet__ctx_state {
    STET__CTX_QUEUED,    /* in the shared queue (never begun) or its slot's queue */
    STET__CTX_EXECUTING, /* its slot runs it */
    STET__CTX_WAITING    /* its coroutine waits for stet__exec_wake() */
} stet__ctx_state;

/* Why the coroutine gave the thread back. */
typedef enum stet__yield {
    STET__YIELD_NONE,
    STET__YIELD_WAIT,   /* until woken; it checks what for itself */
    STET__YIELD_BODY,   /* run c->job on the thread's stack and come back */
    STET__YIELD_SUSPEND /* ask the host to suspend the run; until woken */
} stet__yield;

/* What became of the wish to suspend; set by the host before it wakes. */
typedef enum stet__park {
    STET__PARK_NONE,
    STET__PARK_ASKED,  /* on its way to the store */
    STET__PARK_PARKED, /* the run is suspended and not ours */
    STET__PARK_AGAIN,  /* something had arrived, or the run was given back to us: look again */
} stet__park;

/* What stet_log_set() set; never changed once made, so that bodies on other threads can use it. */
typedef struct stet__log_fields {
    size_t         n;
    stet_log_field at[STET_LOG_FIELDS_MAX];
} stet__log_fields;

/* An execution of a step's body. */
struct stet_attempt {
    stet_ctx    *ctx;
    const char  *step;
    uint64_t     occurrence;
    uint32_t     number;
    bool         is_at_risk;
    uint64_t     fence;
    int64_t      deadline_ms, not_before_ms;
    char         token[64];
    stet_body_fn body;
    void        *arg;
    int          crumb;  /* its crumb, or -1 */
    int64_t      took_us; /* how long the body ran */
    stet__buf    result; /* allocated from the platform: the body may run on another thread */
    bool         has_result;
    bool         is_unrecorded; /* it ran, and its record could not be made */
    uint64_t     revision; /* its record, if it has one, is not behind this; the host's */
    bool         is_skipped; /* never entered: the lease had ended, or the run was let go, before its turn came; … */
    int          lacks;      /* … or the code of what it needed and could not have: a crumb, a transaction */
    int          code;
    stet__buf    text;
    struct stet_attempt *next; /* in the executor's queue of bodies, or the context's finished ones */
    stet_future *future;
    const stet__log_fields *log_fields; /* as they were when it was started */
    stet_tx     *tx;     /* of a transactional step: from before the body until its record */
    struct stet__slot *slot; /* on which its body runs */
};

/* A body with a time limit. */
typedef struct stet__limited {
    stet_id  run;
    char     step[STET__UNDO_NAME_MAX];
    uint64_t occurrence;
    int64_t  timeout_ms;
} stet__limited;

typedef enum stet__future_kind { STET__FUTURE_STEP, STET__FUTURE_CMD } stet__future_kind;

/* Something that can be awaited; lives in the context's arena. */
struct stet_future {
    stet_ctx            *ctx;
    stet__future_kind    kind;
    stet__fact_kind      cmd_kind;
    const char          *name;
    uint64_t             occurrence;
    const char          *topic;       /* of a wait for a signal: which one */
    uint64_t             awaits;      /* how often it was awaited, for the occurrence of the await */
    stet__cmd           *cmd;         /* the command; a step has one from its record on */
    stet__cmd            local;       /* the outcome of a step that was waited for at once */
    bool                 is_sync;
    stet_attempt        *running;     /* a body of it is queued or runs */
    bool                 is_broken;   /* a passing failure without a policy: ends the run's attempt */
    int                  broken_cause;
    const char          *broken_text;
    /* Of a step. */
    stet_body_fn         body;
    void                *arg;
    stet__backoff        retry;       /* attempts 0: no policy */
    int64_t              timeout_ms;  /* 0: none */
    bool                 is_tx;       /* its body is lent a transaction, which its record shares */
    int64_t              fingerprint;
    stet_undo_fn         undo;        /* NULL: none */
    bool                 is_undo;     /* it is one itself: no stop is told by it, and its last failure is not its record */
    struct stet_future  *next;        /* all step futures of the context */
};

/* A step that is done and can be undone. */
typedef struct stet__undo {
    struct stet__undo *next;   /* the one done before */
    const char        *step;
    uint64_t           occurrence;
    uint64_t           order;  /* of its record */
    stet_undo_fn       fn;
    void              *arg;    /* of the step's body */
    stet_bytes         result;
    stet__backoff      retry;
} stet__undo;

/* What a registered function answers with. */
struct stet_reply {
    stet__buf value;
    int64_t   most; /* bytes */
    char      text[512]; /* of a refusal; "": none */
};

/* A query or update the handler registered; lives in the context's arena. */
typedef struct stet__live {
    struct stet__live *next;
    const char        *name;
    stet_reply_fn      validate; /* of an update; or NULL */
    stet_reply_fn      fn;
    void              *arg;
} stet__live;

typedef struct stet__exit_hook {
    struct stet__exit_hook *next;
    void (*fn)(void *arg);
    void *arg;
} stet__exit_hook;

typedef struct stet__scope {
    struct stet__scope *outer;
    stet__arena         arena;
} stet__scope;

struct stet_ctx {
    _Atomic uint32_t magic; /* first; also read by whoever uses the context after its end */
    stet__exec      *exec;
    void            *host; /* the engine's part: its claim */
    stet_handler_fn  fn;

    /* shared */
    stet__ctx_state  state;
    bool             is_woken;
    stet_ctx        *next;          /* in a queue */
    stet__slot      *slot;          /* NULL until begun */
    _Atomic stet__park park;        /* what became of the wish to suspend */
    atomic_bool      is_let_go;     /* unwind it: latch STET_SUSPENDED at its next turn */
    int              let_go_code;   /* STET_SUSPENDED, or STET_EFENCED for the log */
    size_t           jobs;          /* bodies queued or running */
    stet_attempt    *finished;      /* bodies that ended and are not yet recorded */
    atomic_bool      has_finished;  /* finished != NULL, readable without the lock */
    _Atomic uint64_t inbox_known;   /* highest inbox sequence heard of */
    atomic_bool      has_news;      /* something was put into its inbox */

    /* slot */
    stet__co        *co;
    stet__yield      yield;
    stet_attempt    *job;           /* with STET__YIELD_BODY */
    _Atomic(const void *) thread;   /* these three are also read by whoever misuses the context */
    atomic_bool      is_inside;     /* handler code is on the thread now */
    atomic_bool      is_in_body;
    bool             is_loaded;
    bool             is_rewritten;  /* an operator changed what it has seen: what its bodies leave is not of that record */
    int              latch;         /* 0, or what every further call returns */
    const char      *latch_text;    /* what was said of that; or NULL */
    int              lacks;         /* what a body that was not entered could not have; or 0 */
    const char      *lacks_text;
    const char      *file;
    int              line;
    const stet_branch *branches;     /* of the switch that is being asked for, for host->asked() */
    char             waits_for[192]; /* for people: what it is about to be suspended for */
    stet__arena      arena;
    stet__scope     *scope, *scopes_spare; /* spare: ended ones, for loops */
    uint32_t         scopes_missing;       /* began without memory, not ended yet */
    stet__run        run;
    stet__journal    journal;
    uint64_t         passed;        /* what settled up to here (journal.order) an earlier execution, or who asks, may have seen */
    stet__map        state_entries; /* name -> what is known of it; see context_state.c */
    stet_future     *steps;
    stet__undo      *undos;         /* of steps that were waited for at once */
    const char      *failed_undo;   /* for good: the latch is STET_ECOMPENSATION */
    bool             rolls_back;    /* if it fails */
    bool             is_shared;     /* its handler only reads state */
    bool             is_undoing;    /* because it failed */
    bool             is_undone;     /* … and all of it was */
    bool             was_stopped;   /* a cancel or deadline was known before the handler was entered */
    stet__exit_hook *exits;
    stet__live      *queries, *updates;
    bool             is_watched;    /* calls are refused (`callback`), or the host looks at each (entered) */
    const char      *callback;      /* a registered function of this kind runs; else NULL */
    const stet__log_fields *log_fields; /* NULL: none */
    stet__rng        rng;
    stet_failure     failure;
    stet_ctx_info    info;
    char             trace_text[STET__TRACEPARENT_LEN + 1];
    char             run_text[STET_ID_TEXT_MAX], parent_text[STET_ID_TEXT_MAX], retried_text[STET_ID_TEXT_MAX];
    stet_dependency  retried; /* the one dependency a run can have so far */
    char             service[STET__NAME_MAX + 1];
    bool             has_result;
    stet_bytes       result;
    bool             has_next;      /* it asked to begin anew … */
    stet_bytes       next_input;    /* … with this */
    int              rc;            /* what the handler returned */
    int              judged;        /* 0, or what a classifier made of it: STET_EPERMANENT, STET_EDEFER */
    int64_t          defer_ms;
    /* A contradiction, for the stuck fact. */
    const char      *stuck_recorded, *stuck_asked, *stuck_where;
    int              stuck_code;
    const char      *stuck_text;
};

/* What the executor asks of the engine. All run on the context's slot thread, without locks. */
typedef struct stet__host_ops {
    /* Before its first instruction: fill run and journal. Not STET_OK: do not execute; the host has
     * dealt with the run, and gone() follows. */
    int (*begin)(stet_ctx *c);
    /* Record a fact. Gives it its revision (into fact->revision) and time. `child` is the STARTED fact
     * of a CALL or SEND, else NULL. STET_ENOMEM. */
    int (*append)(stet_ctx *c, stet__fact *fact, const stet__fact *child);
    /* Make what was appended durable; wakes the context. Nothing open: nothing. */
    void (*commit)(stet_ctx *c);
    /* The same, and at once: the handler may go on for long before it waits. */
    void (*commit_now)(stet_ctx *c);
    /* Is everything appended so far durable, and the claim itself? */
    bool (*is_durable)(stet_ctx *c);
    /* It is executed in the belief that it will be ours; it may have to be executed again. */
    bool (*is_ahead)(stet_ctx *c);
    /* The context waits for the outside: suspend the run unless its inbox moved. Wakes with c->park
     * changed (STET__PARK_AGAIN), or much later when the run is given back. */
    void (*suspend)(stet_ctx *c);
    /* Take what arrived in the inbox into run and journal. Latches on failure. */
    int (*refresh)(stet_ctx *c);
    /* The handler returned or was unwound (c->latch, c->rc tell). Decide and record; may ask for more
     * time by returning true: c waits and end() is called again when woken. */
    bool (*end)(stet_ctx *c);
    /* What a passing failure with this code means: 0, STET_EPERMANENT or STET_EDEFER (then *not_before_ms). May be
     * NULL: nobody has an opinion. */
    int (*judge)(stet_ctx *c, int code, const char *text, const char *origin, int64_t *not_before_ms);
    /* It is over: forget it. The memory is the executor's. */
    void (*gone)(stet_ctx *c);
    /* The thread is through with a turn. is_free: it has nothing else to do, so it may see to the store
     * itself. */
    void (*after_turn)(stet__exec *x, bool is_free);
    /* Something waits behind a slot that executes: call stet__exec_unstall() in a while. Lock held. */
    void (*look_soon)(stet__exec *x);
    /* May a body begin now (is our lease surely valid)? */
    bool (*may_execute)(stet_ctx *c);
    /* Note what is being executed: a NULL: handler code. False: a body that could not be noted, and must
     * not be begun, because nobody would know of it after a crash. */
    bool (*crumb_set)(stet_ctx *c, stet_attempt *a);
    void (*crumb_rest)(stet_ctx *c, stet_attempt *a);
    /* *writer: who wrote it (stet__fact_writer()). */
    int (*state_read)(stet_ctx *c, const char *name, stet_bytes *value, int64_t *writer);
    /* Act on the store in the same unit as the fact (SETTLE, SIGNAL_SEND, ONCE, LOOK), which is appended with the
     * answer; if it cannot be done the fact says so (its code and text). */
    int (*tell)(stet_ctx *c, stet__fact *fact);
    /* The body's record was appended; its crumb can go once that is durable. Or it could not be
     * (is_unrecorded): whoever executes it next is told of the risk. */
    void (*crumb_spent)(stet_ctx *c, stet_attempt *a);
    /* Check a child's handler, key, options; fill its ID and STARTED fact (texts in the context's arena). */
    int (*child)(stet_ctx *c, stet_id *id, stet__fact *started, const char *handler, stet_bytes input,
                 const stet_start_options *options, bool is_call);
    /* A run started with an idempotency key: ask the store. *existing is zero if the key is free. */
    int (*child_existing)(stet_ctx *c, const stet__fact *started, stet_id *existing);
    /* Transactional steps. tx_limit: the longest one may take, 0 if the store has no transactions. tx_begin fills
     * a->tx. tx_record: append the fact and commit it with the transaction, everything before being durable;
     * STET_SUSPENDED: it was refused or is not known, and the run is let go; otherwise all was rolled back. */
    int64_t (*tx_limit)(stet_ctx *c);
    int (*tx_begin)(stet_ctx *c, stet_attempt *a, int64_t limit_ms);
    int (*tx_record)(stet_ctx *c, stet_attempt *a, stet__fact *fact);
    void (*tx_rollback)(stet_ctx *c, stet_attempt *a);
    int64_t (*now_ms)(stet_ctx *c);
    int64_t (*payload_max)(stet_ctx *c);
    /* Also from bodies on other threads. */
    void (*log)(stet_ctx *c, stet_level level, const char *step, int code, const stet_log_field *fields,
                size_t n, const char *message);
    /* May be NULL. The handler asked for this operation; cmd NULL: it is not recorded. */
    void (*asked)(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence, const stet__cmd *cmd);
    bool takes_updates; /* those that were asked for are decided here */
    /* May be NULL. While c->is_watched: the handler is in a call, or has registered something in it. */
    void (*entered)(stet_ctx *c);
} stet__host_ops;

/* ---- the executor: slots and queues (slot.c) ------------------------------------------------------ */

struct stet__slot {
    stet__exec    *exec;
    stet__thread  *thread;
    stet__cond     cond;
    stet__co_pool  pool;
    stet_ctx      *first, *last;  /* contexts of this slot that can go on */
    stet_ctx      *current;       /* executing now, or NULL */
    _Atomic(const void *) self;   /* its thread, from its start on */
    _Atomic(stet_attempt *) current_body; /* body being executed, its own or another context's */
    int64_t        busy_since_us; /* 0: waits for work */
    /* The last body with a time limit: written with the lock held, while limit_ms is 0. That is set when the body is
     * entered and 0 again when it returns, without the lock. Who has the lock and sees it set sees all of it. */
    stet__limited   limited;
    _Atomic int64_t limit_ms; /* when its time is over */
    bool           is_idle;
};

struct stet__exec {
    stet__platform       *p;
    const stet__host_ops *host;
    void                 *host_arg; /* the engine */
    stet__mutex          *lock;   /* the engine's */
    size_t                stack_bytes;
    stet__slot           *slots;
    size_t                n_slots;
    bool                  has_threads;
    bool                  is_stopping; /* begin nothing new */
    bool                  is_closing;  /* threads end */
    stet_ctx             *first, *last;           /* shared queue: not begun */
    stet_attempt         *first_body, *last_body; /* bodies of futures */
    stet_ctx             *spare;                  /* context memory for reuse */
    size_t                n_idle;
    size_t                hot_max;                /* so many slots in handler code at once: more gain nothing */
    _Atomic size_t        n_bodies;               /* slots inside a body */
    _Atomic size_t        n_queued;               /* contexts and bodies any slot may take */
    bool                  is_watched;             /* look_soon() was called; unstall() will look */
    size_t                n_contexts;             /* alive */
    stet__cond            quiet;                  /* signalled when n_contexts falls */
};

int  stet__exec_init(stet__exec *x, stet__platform *p, const stet__host_ops *host, stet__mutex *lock,
                     size_t n_slots, size_t stack_bytes);
int  stet__exec_start(stet__exec *x);
/* Lock held. Is a body of this run beyond its time limit? *limit_ms: since when. NULL: no. */
const stet__limited *stet__exec_overrun(stet__exec *x, stet_id run, int64_t now_ms, int64_t *limit_ms);
/* Ends the threads; waits for bodies that run. */
void stet__exec_close(stet__exec *x);
void stet__exec_free(stet__exec *x);

/* All with the lock held. */
stet_ctx *stet__exec_new(stet__exec *x, stet_handler_fn fn, void *host); /* NULL: out of memory */
void      stet__exec_submit(stet__exec *x, stet_ctx *c);
/* The same for the slot whose thread calls: it takes it next, no other thread is woken. */
void      stet__exec_submit_here(stet__exec *x, stet_ctx *c);
/* A body was queued: wake a slot for it. */
void      stet__exec_call_any(stet__exec *x);
void      stet__exec_wake(stet__exec *x, stet_ctx *c);
/* Unwind it at its next turn (must be WAITING or QUEUED; never while it executes). */
void      stet__exec_let_go(stet__exec *x, stet_ctx *c, int code);
/* Move contexts stranded behind a body that runs longer than stall_us to other slots: those that can
 * be replayed are handed to `replay` (abandoned here), which submits a new one. Returns the time of the
 * next look, or STET__FOREVER. */
int64_t stet__exec_unstall(stet__exec *x, int64_t now_us, int64_t stall_us,
                           bool (*replay)(void *arg, stet_ctx *c), void *arg);
/* Without threads: execute what is ready until nothing is; on slot 0. Lock not held. False: nothing
 * was. */
bool stet__exec_run(stet__exec *x);
/* Free a context that was never begun. */
void stet__exec_discard(stet__exec *x, stet_ctx *c);

/* ---- for the context calls (context_*.c) ---------------------------------------------------------- */

/* STET_OK, or why this call is not possible here. */
int  stet__ctx_enter(stet_ctx *c, const char *call);
/* Let every further call return `code`; returns it. In the coroutine it waits for the run's bodies first. */
int  stet__ctx_latch(stet_ctx *c, int code);
/* Because of a body that was not entered. */
int  stet__ctx_skipped(stet_ctx *c);
void stet__ctx_yield(stet_ctx *c, stet__yield why);
/* Suspend the run and go on when something arrived; takes it into run and journal. */
int  stet__ctx_suspend(stet_ctx *c);
/* The same, unless bodies of the run are queued or running: those belong to this claim, so it stays. The caller
 * catches up and looks again. c->waits_for tells people what for. */
int  stet__ctx_await_news(stet_ctx *c);
/* The same for futures, and what it waits for is said from the first that is not settled. */
int  stet__wait_for_news(stet_ctx *c, stet_future *const *futures, size_t n, bool is_all);
/* The record of a wait that is ended through the inbox (SIGNAL, TOPIC, BOUNDARY); the fact has its kind and what is
 * special about it. `code` not 0: that it was ended, by a stop. */
int  stet__wait_record(stet_ctx *c, stet_future *f, stet__fact *fact, int code);
/* Until such a wait has ended; one that is stopped is recorded so, since nobody can come back to it. */
int  stet__wait_settled(stet_ctx *c, stet_future *f, int (*record)(stet_ctx *c, stet_future *f, int64_t until_ms, int code));
/* A time limit in text; at least 1 ms. */
int  stet__ctx_timeout(stet_ctx *c, const char *call, const char *text, int64_t *ms);
/* Wait until all facts so far are durable. */
int  stet__ctx_barrier(stet_ctx *c);
/* Record finished bodies and take news from the inbox. */
int  stet__ctx_catch_up(stet_ctx *c);
int  stet__ctx_append(stet_ctx *c, stet__fact *fact, const stet__fact *child);
/* Ask the journal; contradictions latch and make the run stuck. */
int  stet__ctx_ask(stet_ctx *c, stet__fact_kind kind, const char *name, int64_t fingerprint,
                   stet__cmd **cmd, uint64_t *occurrence);
/* Record a command that ends as it is asked for; *cmd is what a replay finds. */
int  stet__ctx_end_cmd(stet_ctx *c, stet__cmd **cmd, stet__fact_kind kind, const char *name,
                       uint64_t occurrence, int code, const char *text);
/* What a run that is told to stop is told. */
const char *stet__ctx_stop_text(const stet_ctx *c);
/* If cancel or deadline is due to be told: record it as this command's end. *cmd is left as it is if
 * not. For a command that is waited for: the wait goes the way that it goes in a replay. */
int  stet__ctx_stop_cmd(stet_ctx *c, stet__cmd **cmd, stet__fact_kind kind, const char *name,
                        uint64_t occurrence);
/* The same for one that is not: returns the code. */
int  stet__ctx_stop(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence);
int  stet__ctx_fail(stet_ctx *c, int code, int cause, const char *text, const char *origin,
                    uint32_t attempts);
void *stet__ctx_get(stet_ctx *c, size_t size); /* from the innermost scope */
/* Copy into the innermost scope. */
int  stet__ctx_out(stet_ctx *c, stet_bytes *out, stet_bytes value);
/* Return what a settled command gave. */
int  stet__ctx_outcome(stet_ctx *c, stet_bytes *out, const stet__cmd *cmd);
int  stet__ctx_stuck(stet_ctx *c, const stet__cmd *recorded, stet__fact_kind kind, const char *name,
                     uint64_t occurrence);

/* Steps (context_step.c). */
void stet__attempt_init(stet_attempt *a, stet_future *f);
void stet__attempt_run(stet_attempt *a); /* on any slot's stack */
/* Record what a body gave. */
int  stet__step_record(stet_ctx *c, stet_attempt *a);
/* Begin the body of a step future whose retry is due. */
int  stet__step_begin(stet_ctx *c, stet_future *f);
/* Execute a step that is waited for, until it has its record or is broken; f has been asked for. */
int  stet__step_run(stet_ctx *c, stet_future *f, stet_bytes *out);

/* Is the run being rolled back because it failed? Then the handler does nothing new: its call ends with the latch. */
bool stet__ctx_is_undone(stet_ctx *c);
/* The handler returned: whether it begins anew must be what it returned. */
void stet__ctx_returned(stet_ctx *c);
/* The handler returned: if that is a passing failure, ask what it means. */
void stet__ctx_judge(stet_ctx *c);

/* Queries and updates (context_live.c, context_update.c). */
/* stet__ctx_enter() of a watched context: STET_OK, or why the call is refused. */
int  stet__live_enter(stet_ctx *c, const char *call);
/* The handler has returned: what it registered points to nothing any more. */
void stet__live_over(stet_ctx *c);
stet__live *stet__live_find(stet__live *first, const char *name);
/* Call it; STET_OK, or the code it refused with, and then reply->text. `kind` names it to who calls the context. */
int  stet__live_call(stet_ctx *c, const char *kind, stet_reply_fn fn, void *arg, stet_bytes input, stet_reply *reply);
/* "there is no KIND NAME here; there are: …", into reply->text; STET_ENOTFOUND. */
int  stet__live_unknown(const stet__live *first, const char *kind, const char *name, stet_reply *reply);
void stet__reply_init(stet_reply *reply, stet__alloc *alloc, int64_t most);
/* The handler waits, for what is named by this: make the updates that were recorded here, and decide those that were
 * asked for since, unless an earlier execution may have left it (is_passed). Before the outcome of the wait is looked
 * at. */
int  stet__updates_make(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence, bool is_passed);
static inline int
stet__updates_here(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence, bool is_passed)
{
    return STET__LIKELY(c->journal.updates == NULL && c->journal.asked == NULL)
               ? STET_OK
               : stet__updates_make(c, kind, name, occurrence, is_passed);
}

/* Compensation (context_rollback.c). */
/* The step was done and can be undone. */
int  stet__undo_note(stet_ctx *c, const stet_future *f);
/* For a handler that is executed again while its failure is rolled back. Did that begin before this? Then the handler
 * never came to know it. */
bool stet__rollback_is_before(const stet_ctx *c, uint64_t order);
/* … Is there more on record that it has to come to? */
bool stet__rollback_has_more(const stet_ctx *c);
/* … How many steps that it inherited had it come to, if it came to fewer now? Else 0. */
uint64_t stet__rollback_lacks(const stet_ctx *c);
/* The handler returned. If it failed for good and wants that, undo what it did. */
void stet__rollback_after(stet_ctx *c);

#endif
