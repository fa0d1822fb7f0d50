/* An engine: one store, the handlers this process serves, and the threads that execute them. */
#ifndef STET_ENGINE_H
#define STET_ENGINE_H

#include <stet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stet_engine  stet_engine;
typedef struct stet_ctx     stet_ctx;
typedef struct stet_attempt stet_attempt;
typedef struct stet_future  stet_future;

/* ---- configuration -------------------------------------------------------------------------- */

/* The one table of configuration: name, default, least, most, unit, meaning. 0 means the default.
 * docs/operations.md and `help config` are made from it. */
#define STET_CONFIG_LIST(X)                                                                        \
    X(concurrency, 10, 1, 1024, "", "slots: threads that execute handlers and step bodies")        \
    X(in_flight_max, 1024, 1, 10000, "", "runs this process has claimed at one time")             \
    X(run_attempts, 3, 1, 1000000, "", "executions of a run before it fails")                      \
    X(retry_first_ms, 1000, 1, 86400000, "ms", "wait before the second attempt")                   \
    X(retry_max_ms, 30000, 1, 2592000000, "ms", "longest wait between attempts")                   \
    X(retry_factor_percent, 200, 100, 10000, "%", "growth of the wait from attempt to attempt")    \
    X(retry_jitter_percent, 25, 0, 100, "%", "random part of the wait, up and down")               \
    X(lease_ms, 30000, 100, 3600000, "ms", "a worker silent for so long has lost its runs")        \
    X(renew_ms, 10000, 10, 1800000, "ms", "how often the lease is renewed")                        \
    X(drain_ms, 10000, 0, 3600000, "ms", "how long stop waits for bodies to end")                  \
    X(wait_ms, 30000, 1, 2592000000, "ms", "how long invoke and wait wait if not told")            \
    X(wait_poll_ms, 250, 10, 60000, "ms", "fallback poll while waiting for a run elsewhere")       \
    X(poll_ms, 1000, 10, 3600000, "ms", "fallback poll for work of other processes, when idle")    \
    X(payload_bytes_max, 4194304, 1, 268435456, "bytes", "largest input, result or state entry")   \
    X(stack_bytes, 65536, 16384, 16777216, "bytes", "stack of a handler (bodies use the thread's)") \
    X(parked_max, 256, 0, 1000000, "", "suspended handlers kept in memory to resume fast")         \
    X(parked_ms, 60000, 0, 86400000, "ms", "how long a suspended handler is kept in memory")       \
    X(lost_max, 5, 1, 1000, "", "worker deaths inside a run before it is stuck")                   \
    X(retention_ms, 604800000, 1, 315360000000, "ms", "how long ended runs are kept")              \
    X(sweep_ms, 5000, 10, 3600000, "ms", "how often dead workers and old runs are looked for")     \
    X(audit_hold_ms, 2592000000, 0, 315360000000, "ms", "how much longer ended runs wait for the audit hook") \
    X(work_ahead, 1, 0, 1, "", "0: begin no run ahead of the flush it stands on")

typedef enum stet_level { STET_LOG_DEBUG, STET_LOG_INFO, STET_LOG_WARN, STET_LOG_ERROR, STET_LOG_OFF } stet_level;

/** A field of your own on a log line: see stet_log_with(). */
typedef struct stet_log_field {
    const char *name, *value;
} stet_log_field;

#define STET_LOG_FIELDS_MAX 16  /* on one line; more are left out */
#define STET_LOG_NAME_MAX 64    /* bytes; letters, digits and _ - . only */
#define STET_LOG_VALUE_MAX 1024 /* bytes; longer values are cut and end in "…" */

/** One structured log line. Texts are valid during the call; NULL fields are absent. */
typedef struct stet_log_record {
    stet_level  level;
    int64_t     time_ms;
    const char *message;
    const char *run, *handler, *step; /* the run it is about */
    int         code;                 /* 0: none */
    const char *fields;               /* your own as text, or NULL: amount=12 card="visa gold" */
    const stet_log_field *own;        /* the same one by one */
    size_t      n_own;
    const char *traceparent;          /* of the run, with itself as the parent span; NULL: none */
} stet_log_record;

/** Called from any thread, never during replay; must not call stet. */
typedef void (*stet_log_fn)(void *arg, const stet_log_record *record);
/** Fill `out` with 16 bytes: see stet_id. For tests that want the same IDs every time. */
typedef void (*stet_id_fn)(void *arg, stet_id *out, int64_t now_ms);

/** An attempt of a run that failed in a way that may pass, for who judges it. */
typedef struct stet_failed {
    const char *run, *handler;
    int         code;     /* what the handler returned, or the body of the step that ended the attempt */
    const char *text;     /* never NULL */
    const char *origin;   /* "step charge#1"; or NULL */
    uint32_t    attempt, attempts_max;
} stet_failed;
/** What such a failure means. Not asked about failures the handler itself called permanent or deferred, nor about
 * runs that were stopped. Any thread, several at once; must not call stet.
 * @param[out] not_before_ms  with STET_EDEFER: when to come back, milliseconds since 1970; a past time counts as a first
 *                            failure's wait
 * @return STET_OK, no opinion: who is asked next decides; STET_ERETRY, retry as usual; STET_EPERMANENT, to the dead
 *         letters now; STET_EDEFER, come back at that time without using an attempt. Anything else, also
 *         STET_EDEFER without a time, is reported in the log, and the failure is retried as usual. */
typedef int (*stet_classify_fn)(void *arg, const stet_failed *failed, int64_t *not_before_ms);

typedef struct stet_audit_entry stet_audit_entry; /* stet/audit.h */
/** As stet_options.audit: told every entry of every run's trail on the store, whichever process made it, at least once;
 * a repeat has the same ID. Of one run in order: an entry is not told before those that stand before it were. Runs go
 * on meanwhile: it hears of an entry after it is durable. What came from outside is told when its run has taken it, or
 * has ended. On a thread of its own, one call at a time; it may take its time, may call stet, but must not stop or
 * close the engine, which waits for the call to end. One engine of the store tells at a time; if it dies another one that has a hook goes on.
 * Retention keeps a run until all of it was told, at most audit_hold_ms longer. A run that begins anew
 * (stet_continue()) does not wait: what was not told of the generation before is kept until it was.
 * @return STET_OK; anything else: the same entry is told again later, the run's others wait behind it. */
typedef int (*stet_audit_fn)(void *arg, const stet_audit_entry *entry);

/* Roles: 0 means STET_ROLE_WORKER | STET_ROLE_TIMERS. */
#define STET_ROLE_WORKER 1u /* execute runs of registered handlers */
#define STET_ROLE_TIMERS 2u /* fire timers, reap dead workers, remove old runs */
#define STET_ROLE_CLIENT 4u /* neither: an API-only node */

/** All zero but `size` is fine; use STET_OPTIONS(.concurrency = 4). */
typedef struct stet_options {
    size_t size;
#define STET_CONFIG_FIELD(name, normal, least, most, unit, text) int64_t name;
    STET_CONFIG_LIST(STET_CONFIG_FIELD)
#undef STET_CONFIG_FIELD
    uint32_t    roles;
    const char *worker;    /* a name for people; default: the host's name and the process number */
    stet_level  log_level; /* 0: STET_LOG_DEBUG to a sink of yours, STET_LOG_INFO to standard error */
    stet_log_fn log;       /* NULL: standard error */
    void       *log_arg;
    stet_id_fn  id;
    void       *id_arg;
    const char *queue;     /* how others are told: "store" (NULL: the store's own hints), "none", "local",
                              "amqp://…"; copied. Or at the end of the store's address: ?queue=… */
    stet_classify_fn classify; /* of all handlers that have no opinion of their own; or NULL */
    void            *classify_arg;
    stet_audit_fn audit;   /* told what happens to all runs: see above; or NULL. Needs STET_ROLE_WORKER or _TIMERS */
    void         *audit_arg;
} stet_options;

#define STET_OPTIONS(...) (&(stet_options){ .size = sizeof(stet_options), __VA_ARGS__ })
/** For C++ and generated code: zero and size. */
STET_API void stet_options_init(stet_options *options);

/** A line of the configuration table. */
typedef struct stet_config_item {
    const char *name, *unit, *text;
    int64_t     normal, least, most;
} stet_config_item;
/** NULL past the last. */
STET_API const stet_config_item *stet_config_at(size_t index);
/** Set one value by name ("concurrency", "8" or for times "30s"). STET_ECONFIG. */
STET_API int stet_options_set(stet_options *options, const char *name, const char *value);

/* ---- handlers ------------------------------------------------------------------------------- */

/** A handler: an ordinary function. Returns STET_OK, or a code: the error of a context call passed on,
 * or stet_fail(). It may be entered again from the top at any time (replay): everything that must
 * happen once goes through the context. No lock may be held across a call that can suspend. */
typedef int (*stet_handler_fn)(stet_ctx *ctx, stet_bytes input);

/** Retrying: fields that are 0 come from the next wider scope. */
typedef struct stet_retry {
    int     attempts;
    int64_t first_ms, max_ms; /* at most 10,000 years */
    int     factor_percent;
    int     jitter_percent; /* STET_NONE: no jitter */
} stet_retry;

/** What an operation gives when a handler is executed without a record: see stet/replay.h. */
typedef struct stet_sample {
    const char *name;       /* of the step, signal, awakeable, state entry; handler of a call */
    const char *value;      /* what it gives; NULL: nothing */
    int         code;       /* or how it fails */
    uint64_t    occurrence; /* only of this one (1, 2 …); 0: of all that have none of their own */
} stet_sample;

/** retry, timeout, retention and shared hold wherever a run is started, also in a process that does not have the
 * handler, once a worker that has it was started on the store. */
typedef struct stet_handler_options {
    stet_retry  retry;
    const char *timeout;     /* of each run from its creation; NULL: none */
    const char *retention;   /* how long ended runs are kept; NULL: the engine's */
    const char *description; /* for `handlers` */
    bool        rollback;    /* undo what a run did if it fails; see stet_rollback_on_failure() */
    stet_classify_fn classify; /* what a failure of its runs means; or NULL */
    void            *classify_arg;
    const char *category;    /* for `handlers`: people's order in a long list */
    const char *default_input;  /* for `describe` only; a start never gets it */
    const stet_sample *samples; /* ended by { 0 }; for `describe` and `check` only; copied */
    bool        shared;      /* of an object: runs beside whoever has the key, reads state as it was last recorded, and
                                cannot write it */
} stet_handler_options;

typedef struct stet_handler {
    const char                 *name;
    stet_handler_fn             fn;
    const stet_handler_options *options; /* may be NULL */
} stet_handler;

/** An entry of an object's initial state. */
typedef struct stet_entry {
    const char *name;
    stet_bytes  value;
} stet_entry;

/* ---- life ----------------------------------------------------------------------------------- */

/**
 * Open an engine on a store: "shop.db" (SQLite, created if absent), "memory:" (gone on close).
 *
 * Starts no thread that executes anything. Not valid in a child after fork(): calls there return
 * STET_EFORKED.
 * @param options NULL: all defaults
 * @return STET_OK; STET_ECONFIG, a value out of range (named); STET_EURL; STET_ENOTDB, the file is
 *         something else; STET_ENEWER, written by a newer stet; STET_EREADONLY; STET_EIO; STET_ENOMEM;
 *         STET_EMOVED, it is the target of a move that is not complete (stet/move.h).
 */
STET_API int stet_open(stet_engine **engine, const char *url, const stet_options *options);

/**
 * Add a service: a name and a table of handlers ended by { 0 }. Names are copied, the table is not
 * kept. Before stet_engine_start() only.
 * @return STET_OK; STET_EEXISTS, the name is taken; STET_ENAME; STET_ESTATE, already started.
 */
STET_API int stet_register(stet_engine *engine, const char *service, const stet_handler *handlers);
/** Add an object: a service whose runs have a key, one writer at a time, and state.
 * @param initial  entries every key begins with, ended by { 0 }; NULL: none */
STET_API int stet_register_object(stet_engine *engine, const char *service,
                                  const stet_handler *handlers, const stet_entry *initial);

/** Begin executing. A second start is harmless. STET_EMOVED, the store is being moved, or was moved: the text says
 * where to. */
STET_API int stet_engine_start(stet_engine *engine);
/**
 * Stop taking work, let running handlers reach their next recorded point, give up claims. A second
 * stop is harmless. Whatever was not finished goes on when a worker starts again.
 * @param drain_ms  0: the configured one; STET_NONE: do not wait
 * @return STET_OK; STET_EBUSY, a body did not end in time: the text names run and step; the engine
 *         stays stopping and stet_engine_stop() may be called again.
 */
STET_API int stet_engine_stop(stet_engine *engine, int64_t drain_ms);
/** Stop and free. If a body does not end, waits for it: a body cannot be killed. Accepts NULL. */
STET_API void stet_close(stet_engine *engine);

/**
 * For a host without stet threads: instead of stet_engine_start(), call this from your own loop. It
 * renews the lease, fires due timers, claims at most one run and executes it until it suspends or
 * ends, on this thread. Waits up to wait_ms for something to do. One thread polls, and stops the engine:
 * the handlers it began are its. Other threads may start, wait and look while it does.
 * @param[out] did  how many runs were executed (0 or 1); may be NULL
 * @return STET_OK; STET_ESTATE, the engine has threads or was stopped; STET_EUSAGE, another thread polls it;
 *         what the store says.
 */
STET_API int stet_engine_poll(stet_engine *engine, int *did, int64_t wait_ms);

/* ---- looking -------------------------------------------------------------------------------- */

typedef struct stet_health {
    bool        is_alive;     /* this engine's threads run */
    bool        is_ready;     /* started, not stopping, store reachable, session held */
    bool        has_store;    /* the store answered just now */
    bool        has_timers;   /* some living node serves timers */
    size_t      workers;      /* living ones on this store */
    size_t      in_flight;    /* runs this process has claimed */
    bool        has_hints;    /* others are told and heard at once; false: found by polling, `text` says why */
    const char *text;         /* a sentence; valid until the thread's next stet call */
    bool        is_mirrored;  /* audit hooks are told what happens to runs: retention waits for that */
    bool        has_teller;   /* a living engine tells them */
    size_t      audit_failing; /* runs whose entries the audit hook of this engine refuses */
    size_t      audit_held;   /* ended runs that are kept only because the audit hook was not told of them, as far as this
                                 engine's retention saw */
} stet_health;
STET_API int stet_health_get(stet_engine *engine, stet_health *health);

typedef struct stet_worker_info {
    const char *id, *name, *host;
    const char *handlers;     /* one a line: "orders.checkout\norders.refund"; "": none */
    uint32_t    roles;
    uint32_t    slots;
    int64_t     process;
    int64_t     started_ms, seen_ms;
    bool        is_dead;
    const char *schedules;    /* functions for next times it has, one a line */
} stet_worker_info;
typedef int (*stet_worker_fn)(void *arg, const stet_worker_info *worker);
/** Workers on this store. A non-zero return of fn stops and is returned. */
STET_API int stet_worker_list(stet_engine *engine, stet_worker_fn fn, void *arg);

typedef struct stet_handler_info {
    const char *name;         /* "orders.checkout" */
    const char *description;  /* or NULL */
    bool        is_object;
    bool        is_here;      /* registered in this process */
    size_t      workers;      /* living workers that serve it */
    const char *category;     /* or NULL */
    const char *default_input; /* or NULL; for `describe` only */
    bool        is_shared;    /* of an object, and only reads */
} stet_handler_info;
typedef int (*stet_handler_info_fn)(void *arg, const stet_handler_info *handler);
/** Handlers of this process as they were registered, then by name those that only other living workers serve. Of these
 * description, category and default input are not known, and whether they are of an object not from workers of builds
 * before that was told. A non-zero return of fn stops and is returned. */
STET_API int stet_handler_list(stet_engine *engine, stet_handler_info_fn fn, void *arg);

/** Milliseconds since 1970 by the store's clock. */
STET_API int64_t stet_engine_now_ms(stet_engine *engine);
/** How many reads this handle has asked the store for. */
STET_API uint64_t stet_engine_reads(stet_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
