/* Runs from outside: start, wait, look, cancel, settle awakeables, dead letters. */
#ifndef STET_RUN_H
#define STET_RUN_H

#include <stet/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The closed list of statuses. The first nine are open, the others terminal. */
#define STET_STATUS_LIST(X)                                                                        \
    X(PENDING, 1, "pending")                                                                       \
    X(RUNNING, 2, "running")                                                                       \
    X(SUSPENDED, 3, "suspended")                                                                   \
    X(RETRYING, 4, "retrying")                                                                     \
    X(PAUSED, 5, "paused")                                                                         \
    X(STUCK, 6, "stuck")                                                                           \
    X(CANCELLING, 7, "cancelling")                                                                 \
    X(COMPENSATING, 8, "compensating")                                                             \
    X(COMPENSATION_FAILED, 9, "compensation-failed")                                               \
    X(COMPLETED, 10, "completed")                                                                  \
    X(FAILED, 11, "failed")                                                                        \
    X(CANCELLED, 12, "cancelled")                                                                  \
    X(EXPIRED, 13, "expired")

typedef enum stet_status {
#define STET_STATUS_ENUM(name, number, text) STET_STATUS_##name = number,
    STET_STATUS_LIST(STET_STATUS_ENUM)
#undef STET_STATUS_ENUM
} stet_status;

STET_API const char *stet_status_name(stet_status status);
/** 0 if there is no such status. */
STET_API stet_status stet_status_parse(const char *name);
STET_API bool        stet_status_is_terminal(stet_status status);

/* ---- starting ------------------------------------------------------------------------------- */

typedef struct stet_start_options {
    size_t             size;
    const char        *key;             /* object key; must be there for objects and only for them */
    const char        *delay;           /* "30m" from now */
    int64_t            delay_ms;        /* the same in milliseconds */
    int64_t            run_at_ms;       /* absolute, beats delay */
    stet_retry         retry;
    const char        *idempotency_key; /* one run per handler, object key and this */
    bool              *existed;         /* out: the idempotency key or child key had a run already */
    int32_t            priority;        /* kept with the run and shown; runs begin in the order they became due */
    const char        *group;           /* fairness group */
    const char        *timeout;         /* of the whole run, from creation */
    int64_t            timeout_ms;
    int64_t            deadline_ms;     /* absolute, beats timeout */
    const char *const *labels;          /* "name=value" texts, NULL-terminated */
    const char        *retention;       /* how long it is kept after its end */
    const stet_run_id *run;             /* an ID made by stet_run_id_make(); twice is refused */
    /* Lineage: the run this one is a child of, for starts from step bodies. The same parent, step,
     * handler and child key give the same child. */
    const stet_run_id *parent;
    const char        *parent_step;
    const char        *child_key;
    /* W3C Trace Context of who starts it. What the run calls and sends gets the same trace, and so does
     * what is started with it as `parent`. NULL: that of its parent, or none. */
    const char        *traceparent;     /* "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" */
    const char        *tracestate;
} stet_start_options;

#define STET_START(...) (&(stet_start_options){ .size = sizeof(stet_start_options), __VA_ARGS__ })
STET_API void stet_start_options_init(stet_start_options *options);

/** Make a run ID before starting it. */
STET_API int stet_run_id_make(stet_engine *engine, stet_run_id *run);

/**
 * Start a run of a handler ("orders.checkout").
 *
 * When it returns STET_OK the start is durable: it survives a crash of this process and power loss.
 * Repeating with one idempotency key gives the same run. The handler need not be served by this
 * process; a worker elsewhere picks it up. What the handler's options say holds all the same, as the
 * worker that was started last with it told the store. Any thread; not inside a handler (use stet_send).
 *
 * @param[out] run  the run's ID; may be NULL
 * @param input     copied before return
 * @param options   NULL: defaults
 * @return STET_OK; STET_ENOHANDLER, the service is served here and has no such handler (the text lists
 *         those that exist); STET_EKEY; STET_ENAME; STET_EDURATION; STET_ETOOBIG; STET_EEXISTS, this
 *         run ID was used; STET_EMISMATCH, the child key belongs to another child; STET_EENDED, the
 *         parent has ended; STET_EUSAGE, called in a handler; STET_EUNCERTAIN, the store did not answer
 *         in time: repeat with the same idempotency key.
 */
STET_API int stet_start(stet_engine *engine, stet_run_id *run, const char *handler, stet_bytes input,
                        const stet_start_options *options);

/** One of several starts. */
typedef struct stet_start_request {
    const char               *handler;
    stet_bytes                input;
    const stet_start_options *options; /* NULL: defaults */
    stet_run_id               run;     /* out */
    int                       code;    /* out: as stet_start() returns */
} stet_start_request;

/**
 * Start many runs with one wait: they share a flush, each is accepted or refused on its own.
 * @return STET_OK if all were started, else the code of the first that was not.
 */
STET_API int stet_start_many(stet_engine *engine, stet_start_request *requests, size_t n);

/** How a run ended, or why it has not. Free with stet_result_free(). */
typedef struct stet_result {
    stet_status status;
    stet_bytes  value;    /* of a completed run */
    int         code;     /* 0, or the code of the failure */
    int         cause;    /* the code behind it (a step's own), or 0 */
    uint32_t    attempts; /* executions used */
    const char *error;    /* its text, or NULL */
    const char *origin;   /* "step charge#1", "child run_…", or NULL */
    void       *owned;    /* stet's */
} stet_result;
STET_API void stet_result_free(stet_result *result);

/**
 * Wait for a run's end.
 * @param[out] result  may be NULL
 * @param timeout_ms   0: wait_ms of the configuration (30 s); STET_NONE: without limit
 * @return STET_OK, completed; STET_ERUN, failed; STET_ECANCELLED; STET_EEXPIRED; STET_ETIMEOUT, it goes
 *         on (the text names the run and what it waits for); STET_ENOTFOUND; STET_EUSAGE, inside a
 *         handler (use stet_call); STET_EBUSY, called in a step's body, and with it every slot of
 *         this engine would wait for a run that needs one of them: the run goes on, the body must not
 *         wait for it.
 */
STET_API int stet_wait(stet_engine *engine, stet_result *result, const stet_run_id *run,
                       int64_t timeout_ms);
/** The same without waiting: STET_EOPEN if it has not ended. */
STET_API int stet_result_get(stet_engine *engine, stet_result *result, const stet_run_id *run);
/** stet_start() and stet_wait(). After STET_ETIMEOUT *run names the run, which goes on. */
STET_API int stet_invoke(stet_engine *engine, stet_result *result, stet_run_id *run,
                         const char *handler, stet_bytes input, const stet_start_options *options,
                         int64_t timeout_ms);

/* ---- control -------------------------------------------------------------------------------- */

/**
 * Cancel a run. Waiters are released at once with STET_ECANCELLED; the handler learns at its next
 * unrecorded operation and may still compensate; runs it called are cancelled too. Durable on return.
 * @param by, why  who and why, may be NULL
 * @return STET_OK, also if it was cancelled before; STET_ENOTFOUND; STET_EENDED.
 */
STET_API int stet_cancel(stet_engine *engine, const stet_run_id *run, const char *by, const char *why);

/** Settle an awakeable with a value. @return STET_OK; STET_ENOTFOUND, no such awakeable;
 * STET_ESETTLED, the text says how and when; STET_EENDED, its run has ended; STET_EKIND. */
STET_API int stet_resolve(stet_engine *engine, const char *awakeable, stet_bytes value);
/** Settle an awakeable with an error: the await returns STET_EREJECTED with this text. */
STET_API int stet_reject(stet_engine *engine, const char *awakeable, const char *error);

/**
 * Decide what a run waits for in stet_approve() or stet_pause(). The first decision stands.
 * @param by, note  who decides and what they say, may be NULL
 * @return STET_OK; STET_ESETTLED, the text says who decided, when and what; STET_ESTATE, it waits for no
 *         decision, or for one of the other kind; STET_EENDED, the text says who decided if its facts tell;
 *         STET_ENOTFOUND; STET_ETOOBIG; STET_EUSAGE.
 */
STET_API int stet_run_approve(stet_engine *engine, const stet_run_id *run, const char *by, const char *note);
STET_API int stet_run_reject(stet_engine *engine, const stet_run_id *run, const char *by, const char *note);
STET_API int stet_run_resume(stet_engine *engine, const stet_run_id *run, const char *by, const char *note);
/** As stet_run_approve() and stet_run_reject(), of the approval of this name and no other: a second click decides nothing
 * behind it. STET_ESETTLED: that one was decided, by whom and when; STET_ESTATE: the run waits for another, which is
 * named; STET_ENAME. */
STET_API int stet_run_decide(stet_engine *engine, const stet_run_id *run, const char *name, bool is_approved,
                             const char *by, const char *note);
/** A run that waits for a person. */
typedef struct stet_boundary {
    const char *run, *name;
    bool        is_approval; /* else a pause */
    stet_bytes  metadata;
    int64_t     since_ms;
} stet_boundary;
typedef int (*stet_boundary_fn)(void *arg, const stet_boundary *boundary);
/** All of them, oldest run first. Non-zero from `fn` stops it and is returned. */
STET_API int stet_boundary_list(stet_engine *engine, stet_boundary_fn fn, void *arg);

/**
 * Emit an event on a topic: every run that waits for it now (stet_await_event()) goes on with this
 * value. Nothing is kept for later waits. Many waiters are told in lots, each durable on its own; if
 * this process dies in the middle, a worker tells the rest when nobody was at it for lease_ms (30 s).
 * @param[out] resumed  how many waited; may be NULL
 * @return STET_OK; STET_ENAME; STET_ETOOBIG; STET_EUSAGE, in a handler (use stet_ctx_emit); STET_EBUSY,
 *         STET_EIO …: *resumed were told, the rest is if the event was recorded; STET_EUNCERTAIN: the same, and it is
 *         not known whether it was. An event has no idempotency key. Runs that were told wait no more, so look who still
 *         does (stet_run_filter.waits_for_topic, `ls --waits-for-topic TOPIC`): to emit again tells those, and a
 *         second time who went on and waits on the topic anew.
 */
STET_API int stet_emit(stet_engine *engine, size_t *resumed, const char *topic, stet_bytes value);

/** Listens to a topic from outside any run. */
typedef struct stet_subscription stet_subscription;
typedef struct stet_event {
    const char *topic;
    stet_bytes  value;
    int64_t     time_ms; /* when it was emitted */
} stet_event;
/** Events on this topic from now on, from whatever process. Best effort: one may be missed when this
 * process is away for a minute, or when clocks of processes disagree; runs that wait never miss one. */
STET_API int stet_subscribe(stet_engine *engine, stet_subscription **subscription, const char *topic);
/** Wait for the next event. One thread at a time.
 * @param[out] event   valid until the next call with this subscription
 * @param timeout_ms   0: wait_ms of the configuration (30 s); STET_NONE: without limit
 * @return STET_OK; STET_ETIMEOUT; STET_ESTOPPED, the engine is stopping; a failure of the store. */
STET_API int stet_event_next(stet_subscription *subscription, stet_event *event, int64_t timeout_ms);
/** Accepts NULL. Before its engine is closed. */
STET_API void stet_unsubscribe(stet_subscription *subscription);

typedef struct stet_signal_options {
    size_t      size;
    const char *idempotency_key; /* a signal of the same run and key counts once */
    const char *by;              /* who sends it, for those who look at the run; may be NULL */
} stet_signal_options;
#define STET_SIGNAL_OPTIONS(...)                                                                   \
    (&(stet_signal_options){ .size = sizeof(stet_signal_options), __VA_ARGS__ })

/**
 * Send a signal to a run, which waits for it with stet_await_signal().
 *
 * Signals of one name are kept in the order they were accepted in and each is given to one wait, also
 * if it comes before the wait. Durable on return. Any thread; not inside a handler (use
 * stet_ctx_signal).
 * @param value    copied; handed to the wait
 * @param options  NULL: defaults
 * @return STET_OK; STET_ENOTFOUND; STET_EENDED, the run has ended; STET_ENAME; STET_ETOOBIG;
 *         STET_EUNCERTAIN: repeat with the same idempotency key.
 */
STET_API int stet_signal(stet_engine *engine, const stet_run_id *run, const char *signal,
                         stet_bytes value, const stet_signal_options *options);

/** Read an entry of an object's state. *value is allocated; free with stet_free().
 * STET_ENOTFOUND if there is none (the initial state counts if the object is registered here), or no such object is known:
 * not registered here, and no worker that has it was ever started on this store; STET_EKEY, it is a service without keys. */
STET_API int  stet_state_read(stet_engine *engine, stet_bytes *value, const char *service,
                              const char *key, const char *name);
typedef int (*stet_entry_fn)(void *arg, const char *name, stet_bytes value);
/** The entries that were written. STET_OK, also if there are none; STET_ENOTFOUND, no such object is known; STET_EKEY: as
 * above. */
STET_API int  stet_state_list(stet_engine *engine, const char *service, const char *key,
                              stet_entry_fn fn, void *arg);
STET_API void stet_free(void *p);

/* ---- looking -------------------------------------------------------------------------------- */

typedef struct stet_run_info {
    const char *id, *handler, *key, *reason, *group;
    stet_status status;
    uint32_t    attempt, attempts_max;
    int32_t     priority;
    int64_t     created_ms, due_ms, ended_ms, deadline_ms; /* 0: none */
    uint64_t    facts, inbox;
    const char *worker;         /* ID of the worker that has it, or NULL. Not in lists */
    const char *parent, *retry_of, *retried_by;
    /* Of stet_run_get() and lists with payloads, elsewhere not read: */
    const char *idempotency_key;
    const char *labels;         /* "a=1 b=2", or NULL */
    stet_bytes  input;
    stet_bytes  result;         /* of a completed run */
    int         code, cause;
    const char *error, *origin; /* of a failed or stuck one, or the last failed attempt of one that has not completed */
    size_t      lost;           /* how often its worker died while executing it */
    bool        is_served;      /* a living worker serves its handler. In all lists */
    const char *traceparent, *tracestate; /* as it was started with, or NULL */
    const char *schedule;       /* that started it, or NULL */
    int64_t     planned_ms;     /* … for this time; 0: none */
    /* In all lists: */
    uint64_t    generation;     /* how often it began anew, see stet_continue(); facts are of the last one only */
    int64_t     began_ms;       /* this generation; 0: it is the first */
    /* Of stet_run_get() and lists with payloads: */
    int64_t     eligible_ms;    /* from then on it could begin: its creation, or the end of its delay; 0: its facts were not read */
    int64_t     begun_ms;       /* a worker began to execute it; 0: no execution has recorded anything yet. Not in lists */
    const char *const *label_list; /* the labels one by one, ended by NULL; NULL: none */
} stet_run_info;
typedef int (*stet_run_info_fn)(void *arg, const stet_run_info *info);

/** Full detail of one run, handed to fn. */
STET_API int stet_run_get(stet_engine *engine, const stet_run_id *run, stet_run_info_fn fn, void *arg);

/** How far a list came. */
typedef struct stet_run_looked {
    size_t      runs;       /* so many were looked at, */
    stet_run_id last;       /* this was the oldest of them: go on with .before = &last; "": there was none */
    int64_t     created_ms; /* … and when it was created */
    bool        is_all;     /* there are none behind it */
} stet_run_looked;

typedef struct stet_run_filter {
    size_t             size;
    const char        *handler;   /* "orders.checkout", or "orders" for the service */
    const char        *key;
    const char        *label;     /* "name=value" */
    uint32_t           statuses;  /* bits 1u << STET_STATUS_…; 0: any */
    int64_t            from_ms, to_ms; /* of creation */
    const stet_run_id *before;    /* page: only runs older than this one */
    size_t             limit;     /* 0: 50 */
    bool               with_payloads; /* fill what is read from facts: input, result, error, labels … (slower) */
    /* A piece of text in handler, key, labels, input, error or idempotency key; small and capital letters of
     * ASCII are the same. At most 256 bytes. */
    const char        *text;
    const char        *waits_for_signal; /* open runs that wait for this signal, */
    const char        *waits_for_topic;  /* … for an event on this topic */
    bool               is_here;   /* only what this engine has claimed at the moment */
    const char        *worker;    /* … what this worker has (its ID) */
    /* Texts and signals are looked for run by run among those the rest of the filter leaves: at most so many
     * in one call. 0: 10,000; at most 1,000,000. */
    size_t             look_max;
    stet_run_looked   *looked;    /* out: how far it came; may be NULL */
} stet_run_filter;
#define STET_FILTER(...) (&(stet_run_filter){ .size = sizeof(stet_run_filter), __VA_ARGS__ })
/** Runs, newest first. With `text` or `waits_for_signal` fewer than `limit` may be found in the runs that one call
 * looks at; `looked` tells how far it came:
 *
 *     stet_run_looked at = { .is_all = false };
 *     do
 *         err = stet_run_list(e, STET_FILTER(.text = "4711", .before = at.runs > 0 ? &at.last : NULL, .looked = &at),
 *                             on_run, NULL);
 *     while (err == STET_OK && !at.is_all && at.runs > 0);
 *
 * Non-zero from `fn` stops it and is returned.
 * @return STET_OK; STET_EINVAL, a filter that can find nothing (an empty or too long text, ended runs that wait) or of
 *         another size; STET_ENAME, no name of a signal or topic; STET_ENOTFOUND, there is no such worker. */
STET_API int stet_run_list(stet_engine *engine, const stet_run_filter *filter, stet_run_info_fn fn,
                           void *arg);

/** One fact of a run as people read it. */
typedef struct stet_fact_info {
    uint64_t    revision;   /* journal revision */
    uint64_t    inbox;      /* inbox sequence for what came from outside, else 0 */
    int64_t     time_ms;
    const char *kind;       /* "started", "step", "sleep", "timer fired" … */
    const char *name;       /* of a step, sleep, handler …, or NULL */
    uint64_t    occurrence; /* 1, 2 …; 0: none */
    int         code;       /* 0, or of the failure it records */
    const char *text;       /* error or explanation, or NULL */
    stet_bytes  value;      /* payload, if asked for */
    size_t      value_len;
    int64_t     until_ms;   /* fires at, retried at …; 0: none */
    const char *run;        /* the other run (child, parent), or NULL */
    bool        is_at_risk; /* this step may have happened twice */
    bool        is_corrupt; /* not readable; kept, never replayed */
} stet_fact_info;
typedef int (*stet_fact_fn)(void *arg, const stet_fact_info *fact);
/** The journal in order. Inbox entries stand where they were taken; those not yet taken come last. */
STET_API int stet_run_facts(stet_engine *engine, const stet_run_id *run, bool with_payloads,
                            stet_fact_fn fn, void *arg);

/** One sentence: why is this run where it is, and the command that helps. */
typedef struct stet_verdict {
    const char *text; /* "waits for timer cool-down, fires in 23 h" */
    const char *help; /* "stet cancel run_…", or NULL */
    const char *kind; /* "timer", "awakeable", "signal", "child", "lane", "no-worker", "backoff", "delay",
                         "running", "stuck", "ended", "no-timers", "ready", "deadlock" */
} stet_verdict;
typedef void (*stet_verdict_fn)(void *arg, const stet_verdict *verdict);
STET_API int stet_why(stet_engine *engine, const stet_run_id *run, stet_verdict_fn fn, void *arg);

/** One broken rule found by stet_verify(). */
typedef struct stet_finding {
    const char *run;      /* or NULL */
    uint64_t    revision; /* or 0 */
    const char *rule;     /* "facts", "projection", "wake-up", "owner", "lane", "timer", "value",
                             "schedule", "index" */
    const char *text;
    bool        is_repaired; /* by stet_repair() */
} stet_finding;
typedef int (*stet_finding_fn)(void *arg, const stet_finding *finding);
/** Check every run of the store: facts readable; rows, timers, lanes, keys, labels, awakeables and object
 * state equal to what the facts say; every run, value and timer where the store looks for it; every open run
 * has a wake-up source and every running one an owner that lives, or died no longer ago than living workers need to find it: two sweeps (sweep_ms of this
 * engine). Without workers nobody is to take it over, and that is no finding. Reads only; workers may be
 * at work. @param[out] checked runs; may be NULL */
STET_API int stet_verify(stet_engine *engine, size_t *checked, stet_finding_fn fn, void *arg);
/** As stet_verify(), and what is found is set right from the facts: each finding says whether it was. What
 * is repaired is durable when it is told. A run that a worker has at that moment is left alone, as are
 * facts that cannot be read. Workers may be at work; interrupted anywhere it can be repeated. A store that
 * lost a whole table is opened for it with the option repair=1 ("shop.db?repair=1"), by one process alone. */
STET_API int stet_repair(stet_engine *engine, size_t *checked, stet_finding_fn fn, void *arg);

/* ---- dead letters --------------------------------------------------------------------------- */

/** A new run with the same input that inherits the recorded steps of a failed, cancelled or expired
 * one; linked both ways. STET_EOPEN, it has not ended; STET_EEXISTS, retried before (by which). */
STET_API int stet_dlq_retry(stet_engine *engine, stet_run_id *retried, const stet_run_id *run);
/** Take a failed run out of the dead letters; it stays readable until retention removes it. */
STET_API int stet_dlq_discard(stet_engine *engine, const stet_run_id *run);
/** Failed runs that were neither retried nor discarded, newest first. */
STET_API int stet_dlq_list(stet_engine *engine, const stet_run_filter *filter, stet_run_info_fn fn,
                           void *arg);

/** Let a run whose rollback failed go on with it, from the undo that failed (after the cause was mended). Its
 * waiters were told that it failed, and so it ends.
 * @param by, why  who and why, may be NULL
 * @return STET_OK; STET_ESTATE, its rollback did not fail; STET_ENOTFOUND. */
STET_API int stet_rollback_retry(stet_engine *engine, const stet_run_id *run, const char *by, const char *why);

/** Let a stuck run try again (after the cause was mended). @return STET_OK; STET_ESTATE, not stuck. */
STET_API int stet_unstick(stet_engine *engine, const stet_run_id *run, const char *by);

#ifdef __cplusplus
}
#endif
#endif
