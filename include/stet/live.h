/* Queries and updates: asking a run that is under way about its variables, and changing them.
 *
 * A handler registers both at its beginning, each with a name, functions and a pointer to variables
 * of its own. Those functions are handler code that only looks or only changes variables: they
 * must be quick, the same every time, and may not call the context (STET_EUSAGE).
 *
 *     typedef struct order { const char *phase; int shipped; } order;
 *
 *     static int status(void *arg, stet_bytes input, stet_reply *reply)
 *     {
 *         const order *o = arg;
 *         (void)input;
 *         return stet_reply_json(reply, "{\"phase\":%Q,\"shipped\":%d}", o->phase, o->shipped);
 *     }
 *     …
 *     order o = { "paying", 0 };
 *     STET_TRY(stet_on_query(ctx, "status", status, &o));
 */
#ifndef STET_LIVE_H
#define STET_LIVE_H

#include <stet/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- answering, in the functions a handler registers ---------------------------------------- */

typedef struct stet_reply stet_reply;

/** The answer, copied; the last one counts, none is an empty one.
 * @return STET_OK; STET_ETOOBIG, more than payload_bytes_max; STET_ENOMEM. Return it. */
STET_API int stet_reply_set(stet_reply *reply, stet_bytes value);
/** The same as JSON: printf with %Q (quoted text) and %J (stet_bytes that must be JSON). */
STET_API int stet_reply_json(stet_reply *reply, const char *fmt, ...);
/** Refuse with a sentence; returns `code`, which whoever asked gets. */
STET_API int stet_reply_fail(stet_reply *reply, int code, const char *fmt, ...) STET_PRINTF(3, 4);

/** @param arg    what was registered: variables of the handler
 *  @param input  what whoever asks gave; valid during the call
 *  @return STET_OK, or a code (of stet, or the application's own), which whoever asked gets. */
typedef int (*stet_reply_fn)(void *arg, stet_bytes input, stet_reply *reply);

/* ---- queries -------------------------------------------------------------------------------- */

/** At most so many of each kind a handler has at a time. */
#define STET_LIVE_MAX 64
/** What is asked from another process has at most so many bytes. */
#define STET_QUERY_INPUT_MAX 65536

/**
 * From here on this run can be asked this. Nothing is recorded, and nothing of it is called while a
 * worker executes the run: see stet_query(). The same name again replaces the one before.
 * @param arg  must be valid until the handler returns: a variable of the handler itself will do
 * @return STET_OK; STET_ENAME; STET_EINVAL, no function; STET_ETOOBIG, STET_LIVE_MAX are there
 *         already; STET_SUSPENDED; STET_ENOMEM; STET_EUSAGE.
 */
STET_API STET_MUST_USE int stet_on_query(stet_ctx *ctx, const char *name, stet_reply_fn fn,
                                         void *arg);
#define stet_on_query(ctx, ...) stet_on_query(STET_AT(ctx), __VA_ARGS__)

/**
 * Ask a run.
 *
 * Its handler is executed against what is recorded, in a process that has it: this one if it is
 * registered here (no worker is needed then), else a worker, which is asked through the store. No
 * step body is entered, nothing is written into the run. The answer is about the last point that is
 * recorded; of a run that has ended, about the last call its handler made (stet_return() counts).
 * It executes in a forked child, which has no store, for 5 s at most: a handler or query that
 * crashes or does not end is an error and no more. (On a simulated clock there is no child.)
 * Any thread; not inside a handler, a step body may.
 * @param[out] reply   free its data with stet_free(); may be NULL
 * @param input        handed to the query; copied
 * @param timeout_ms   0: 10 s. For an answer from another process
 * @return STET_OK; what the query refused with; STET_ENOTFOUND, no such run, or no such query (the
 *         text names those there are); STET_EUNSERVED, the handler is not here and no worker serves
 *         it; STET_ETIMEOUT; STET_EREPLAY, the code here contradicts what is recorded; STET_ELOST,
 *         it crashed; STET_ECORRUPT; STET_ETOOBIG; STET_ENAME; STET_EBUSY, too many wait, or no
 *         child could be made; STET_EINVAL; STET_EUSAGE; what the store says.
 */
STET_API int stet_query(stet_engine *engine, stet_bytes *reply, const stet_run_id *run,
                        const char *name, stet_bytes input, int64_t timeout_ms);

/* ---- updates -------------------------------------------------------------------------------- */

/**
 * From here on this run can be changed this way: see stet_update(). The same name again replaces
 * the one before.
 * @param validate  called first, and once: looks, and may refuse, which changes nothing; NULL: all
 *                  are fine
 * @param apply     changes the handler's variables, and answers. Called again by every replay, at
 *                  the same place and with the same input; what it answers then is not looked at
 * @param arg       as in stet_on_query()
 * @return as stet_on_query().
 */
STET_API STET_MUST_USE int stet_on_update(stet_ctx *ctx, const char *name, stet_reply_fn validate,
                                          stet_reply_fn apply, void *arg);
#define stet_on_update(ctx, ...) stet_on_update(STET_AT(ctx), __VA_ARGS__)

typedef struct stet_update_options {
    size_t      size;
    const char *idempotency_key; /* of the same run and key: one update, one answer */
    const char *by;              /* who asks, for those who look at the run; may be NULL */
    int64_t     timeout_ms;      /* for the answer; 0: 10 s; STET_NONE: without limit */
} stet_update_options;
#define STET_UPDATE_OPTIONS(...)                                                                   \
    (&(stet_update_options){ .size = sizeof(stet_update_options), __VA_ARGS__ })

/**
 * Change the variables of a run, and get its answer.
 *
 * It is put into the run's inbox, durably, and taken in where the handler waits next (a sleep, a
 * signal, a call, a person … but not between the attempts of a step), in the order of the inbox.
 * What came of it and the answer are recorded in one unit; from then on it is part of the run.
 * Repeated with the same idempotency key it gives the same answer, also when the run has ended and
 * is kept. Any thread; not inside a handler, a step body may.
 * @param[out] reply  free its data with stet_free(); may be NULL
 * @param input       handed to validate and apply; copied
 * @param options     NULL: defaults
 * @return STET_OK; what validate or apply refused with; STET_ENOTFOUND, no such run, or it was
 *         removed meanwhile, or no such update (the text says which); STET_EENDED, the run has ended without it;
 *         STET_ETIMEOUT, it was accepted and is not answered yet: repeat with the idempotency key
 *         the text names; STET_EMISMATCH, the key was used for another update; STET_ENAME;
 *         STET_ETOOBIG; STET_EINVAL; STET_EUSAGE; STET_EUNCERTAIN: repeat with the same key; what
 *         the store says.
 */
STET_API int stet_update(stet_engine *engine, stet_bytes *reply, const stet_run_id *run,
                         const char *name, stet_bytes input, const stet_update_options *options);

#ifdef __cplusplus
}
#endif
#endif
