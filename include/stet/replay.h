/* Handlers executed against a record: no store is written, no step body is entered.
 *
 *   stet_check()       would this program's code get a run of the store stuck? The deploy gate
 *   stet_run_export()  one run as one file (a bundle), and stet_replay(): execute it offline
 *   stet_describe()    the operations a handler comes to, without any run
 *
 * What is recorded is given back as it is. Where the code asks for something that is not recorded,
 * before all that is recorded was asked for, a result is assumed: the handler's sample for it
 * (stet_sample), or an empty one. A report says how often.
 */
#ifndef STET_REPLAY_H
#define STET_REPLAY_H

#include <stet/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How an execution against a record ended: name, number, word, is it fine, meaning. */
#define STET_REPLAY_LIST(X)                                                                        \
    X(RECORD, 1, "record", true, "came to the end of the record")                                  \
    X(RETURNED, 2, "returned", true, "returned where the record ends")                             \
    X(CONTRADICTION, 3, "contradiction", false, "the code asks for something else")                \
    X(UNASKED, 4, "unasked", false, "the code does not come to what is recorded")                  \
    X(FAILED, 5, "failed", false, "fails before it comes to the end of the record")                \
    X(CRASHED, 6, "crashed", false, "the process died")                                            \
    X(TIME, 7, "time", false, "did not come to an end in time")                                    \
    X(OPERATIONS, 8, "operations", false, "asks for more operations than allowed")                 \
    X(NO_HANDLER, 9, "no-handler", false, "this program has no such handler")                      \
    X(CORRUPT, 10, "corrupt", false, "the record cannot be read")

typedef enum stet_replay_end {
#define STET_REPLAY_ENUM(name, number, word, is_fine, text) STET_REPLAY_##name = number,
    STET_REPLAY_LIST(STET_REPLAY_ENUM)
#undef STET_REPLAY_ENUM
} stet_replay_end;

/** "contradiction"; NULL for a number that is none. */
STET_API const char *stet_replay_end_name(stet_replay_end end);

/** What came of one execution. Texts are valid during the call that hands it over; NULL: absent. */
typedef struct stet_replay_report {
    const char     *run, *handler;
    stet_status     status;     /* of the run */
    stet_replay_end end;
    bool            is_fine;    /* the run would go on; or its service is not of this program */
    const char     *recorded;   /* "step charge#1": what is recorded … */
    const char     *asked;      /* … and what the code asked for; of a fine one: where it stopped */
    const char     *where;      /* "shop.c:42" */
    const char     *text;       /* a sentence */
    uint64_t        operations; /* so many were asked for */
    uint64_t        assumed;    /* so many results were assumed; with 0 the report is certain */
    int             code;       /* what the handler returned where it failed, else 0 */
} stet_replay_report;
typedef int (*stet_replay_fn)(void *arg, const stet_replay_report *report);

/** One operation a handler asked for. Texts are valid during the call. */
typedef struct stet_operation {
    const char *kind;         /* "step", "sleep", "signal wait" … */
    const char *shape;        /* what it is like: "work", "wait", "run", "state", "choice", "mark" */
    const char *name;
    uint64_t    occurrence;   /* 1, 2 … */
    const char *where;        /* "shop.c:42", or NULL */
    bool        is_recorded;
    bool        is_settled;   /* … and has its outcome */
    bool        is_parallel;  /* others were asked for before it was awaited */
    int         code;         /* 0, or of the failure it gave */
    const char *text;         /* of that, or NULL */
    stet_bytes  value;        /* what it gave */
    int64_t     duration_ms;  /* of a sleep; 0: none, or not known */
    int64_t     timeout_ms;   /* 0: none, or not known */
    int         attempts;     /* of a step with a policy; 0: none */
    bool        is_transaction;
    bool        has_undo;
    const char *key;          /* of a call or send to an object, or NULL */
    stet_bytes  branches;     /* of a switch: the IDs of all, each ended by a NUL; the chosen one
                                 is the value */
    bool        has_default;  /* … and the last of them is the default */
} stet_operation;
/** A non-zero return stops and is returned. */
typedef int (*stet_operation_fn)(void *arg, const stet_operation *operation);

/* ---- the deploy gate ------------------------------------------------------------------------ */

typedef struct stet_check_options {
    size_t      size;
    const char *handler;        /* "orders.checkout", or "orders" for the service; NULL: all */
    int64_t     time_ms;        /* for one run; 0: 5 s */
    int64_t     operations_max; /* of one run beyond what is recorded; 0: 10,000 */
} stet_check_options;
#define STET_CHECK(...) (&(stet_check_options){ .size = sizeof(stet_check_options), __VA_ARGS__ })

typedef struct stet_check_summary {
    size_t checked;   /* open runs that were looked at */
    size_t stuck;     /* reports that are not fine */
    size_t elsewhere; /* runs of services this program does not have */
} stet_check_summary;

/**
 * Replay every open run of the store with the handlers registered here, and report those that would
 * not go on. Reads only; workers may be at work. Handlers execute in a forked child, which has no
 * store and whose standard output leads nowhere: one that crashes, or does not end, is a report,
 * and the next run is replayed in another child. No step body is entered. Needs no start of the
 * engine.
 * @param[out] summary  may be NULL
 * @param options       NULL: defaults
 * @param fn            gets each report that is not fine, and runs of other programs' services
 * @return STET_OK, whatever was found; STET_EINVAL; STET_ENOHANDLER, neither this program nor
 *         an open run has what options->handler names (the text lists what there is); STET_EBUSY, no
 *         child could be made; what the store says; what fn returned.
 */
STET_API int stet_check(stet_engine *engine, stet_check_summary *summary,
                        const stet_check_options *options, stet_replay_fn fn, void *arg);

/* ---- bundles -------------------------------------------------------------------------------- */

/** Larger ones are refused. docs/bundle.md describes the format. */
#define STET_BUNDLE_BYTES_MAX ((size_t)1 << 30)

/**
 * One run as it is now: facts, inbox, payloads, and which program exported it. Open runs too.
 * @param[out] bundle  free with stet_free()
 * @return STET_OK; STET_ENOTFOUND; STET_ETOOBIG; STET_ENOMEM; what the store says.
 */
STET_API int stet_run_export(stet_engine *engine, stet_bytes *bundle, const stet_run_id *run);

typedef struct stet_bundle_info {
    stet_run_id run;
    char        handler[300];
    stet_status status;
    uint64_t    revision;     /* the last one in it */
    uint64_t    inbox;        /* entries */
    int64_t     exported_ms;
    char        version[32];  /* of stet */
    char        build[72];    /* of the program that exported it, in hex; "": it has no ID */
    bool        is_this_build;
} stet_bundle_info;
/** What a bundle is. @return STET_OK; STET_ECORRUPT, it is none, or damaged; STET_ENEWER. */
STET_API int stet_bundle_read(stet_bundle_info *info, stet_bytes bundle);

/**
 * Execute the handler of a bundle on this thread, under a debugger if you like, until the record
 * ends. The engine lends its handlers only; "memory:" will do. No step body is entered.
 * @param operation  each operation with its recorded result, as it is asked for; may be NULL
 * @param report     how it ended
 * @return STET_OK, however it ended; STET_ECORRUPT, the bundle is damaged; STET_ENEWER;
 * STET_ENOMEM;
 *         what report returned.
 */
STET_API int stet_replay(stet_engine *engine, stet_bytes bundle, stet_operation_fn operation,
                         stet_replay_fn report, void *arg);

/* ---- describing ----------------------------------------------------------------------------- */

typedef struct stet_describe_options {
    size_t             size;
    stet_bytes         input;          /* data NULL: the handler's default input */
    const char        *key;            /* of an object; NULL: "key" */
    const stet_run_id *from;           /* take input and results from this run, where it has them */
    bool               has_progress;   /* mark what `from` has recorded and what has settled */
    int64_t            time_ms;        /* 0: 5 s */
    int64_t            operations_max; /* 0: 1,000 */
} stet_describe_options;
#define STET_DESCRIBE(...)                                                                         \
    (&(stet_describe_options){ .size = sizeof(stet_describe_options), __VA_ARGS__ })

/**
 * The operations a handler comes to when all goes well: one path, in the order they are asked for.
 * It executes in a forked child as with stet_check(); results are those of `from`, the handler's
 * samples, or empty.
 * @param operation  each, when all are known
 * @param report     how it ended
 * @return STET_OK; STET_ENOHANDLER; STET_ENOTFOUND, no such run; STET_EMISMATCH, `from` is of
 * another
 *         handler; STET_EBUSY, no child could be made; what the functions returned.
 */
STET_API int stet_describe(stet_engine *engine, const char *handler,
                           const stet_describe_options *options, stet_operation_fn operation,
                           stet_replay_fn report, void *arg);

#ifdef __cplusplus
}
#endif
#endif
