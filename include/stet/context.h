/* What a handler can do.
 *
 * Every call here belongs to the handler's own thread and coroutine: not to a step body, not to
 * another thread, not after return (STET_EUSAGE, nothing recorded).
 *
 * A call that can suspend may return STET_SUSPENDED: return at once (STET_TRY does). From then on
 * every context call returns it without effect and the handler's result is ignored; later the handler
 * is entered again from the top and recorded results come back without running anything.
 *
 * Results belong to the context until the handler returns, or to the innermost scope.
 */
#ifndef STET_CONTEXT_H
#define STET_CONTEXT_H

#include <stet/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Pass an error on. */
#define STET_TRY(call)                                                                             \
    do {                                                                                           \
        int stet_try_ = (call);                                                                    \
        if (stet_try_ != STET_OK)                                                                  \
            return stet_try_;                                                                      \
    } while (0)

/* Calls note where they were made, so that "stuck" can name the line. */
STET_API stet_ctx *stet_at(stet_ctx *ctx, const char *file, int line);
#define STET_AT(ctx) stet_at((ctx), __FILE__, __LINE__)

/* ---- steps ---------------------------------------------------------------------------------- */

/** A step's body: the side effect. Runs on the thread's own stack; cannot use the context. Return
 * STET_OK (after stet_attempt_return() if it has a result), a permanent code or stet_attempt_fail()
 * with one (recorded at once), or any other code: a passing failure, tried again. */
typedef int (*stet_body_fn)(stet_attempt *attempt, void *arg);

STET_API int stet_attempt_return(stet_attempt *a, stet_bytes value); /* copied */
STET_API int stet_attempt_return_json(stet_attempt *a, const char *fmt, ...);
/** Fail with a sentence; returns `code`. */
STET_API int stet_attempt_fail(stet_attempt *a, int code, const char *fmt, ...) STET_PRINTF(3, 4);
/** Fail, and do not try again before this time (milliseconds since 1970). Uses no attempt; a time that is past counts as a
 * first failure's wait. Returns STET_EDEFER. */
STET_API int stet_attempt_not_before(stet_attempt *a, int64_t time_ms, const char *why);
/** What the handler gave the step for its body; in an undo, what it gave the step that is undone. */
STET_API void *stet_attempt_arg(const stet_attempt *a);
/** 1 for the first execution that counts. */
STET_API uint32_t stet_attempt_number(const stet_attempt *a);
/** This body was entered before and what came of it was not recorded, because its worker died or its
 * record could not be written: it may have happened already. So for every execution until one has a
 * result: a body that cannot find out now may fail, or ask to be tried later, and is told again. */
STET_API bool stet_attempt_is_at_risk(const stet_attempt *a);
/** The same for all executions of this step: hand it to the outside world to deduplicate. */
STET_API const char *stet_attempt_token(const stet_attempt *a);
/** Grows with every owner of the run: hand it to the outside world to refuse a stale worker. */
STET_API uint64_t stet_attempt_fence(const stet_attempt *a);
/** When this attempt times out (milliseconds since 1970); STET_NEVER-like INT64_MAX: never. */
STET_API int64_t stet_attempt_deadline_ms(const stet_attempt *a);
STET_API const char *stet_attempt_run(const stet_attempt *a);
/** W3C Trace Context for requests the body makes, with the run as the parent span; NULL: the run was
 * started without. */
STET_API const char *stet_attempt_traceparent(const stet_attempt *a);
STET_API const char *stet_attempt_tracestate(const stet_attempt *a);
/** A line in the log with the run's fields, the step's name and those of stet_log_set().
 * @param fields  as in stet_log_with(); NULL: none */
STET_API void stet_attempt_log(stet_attempt *a, stet_level level, const stet_log_field *fields,
                               const char *fmt, ...) STET_PRINTF(4, 5);

/** Undoes a step that was done: gets what it recorded. Under the rules of a body, and recorded like one. */
typedef int (*stet_undo_fn)(stet_attempt *attempt, stet_bytes result);

typedef struct stet_step_options {
    size_t      size;
    int         attempts;  /* 0: no policy of its own: a passing failure ends the run's attempt */
    int64_t     first_ms, max_ms; /* at most 10,000 years */
    int         factor_percent, jitter_percent;
    const char *timeout;   /* of each attempt; a later result counts as timed out */
    stet_bytes  fingerprint; /* its input; another one on replay is a contradiction */
    bool        transaction; /* the body is lent a database transaction; see stet/transaction.h. Not for
                                stet_step_start(). Its timeout is 2s unless given, and at most a third of lease_ms */
    stet_undo_fn undo;     /* what stet_rollback() calls; retried as the step is, or as the run if it has no policy.
                              The step's arg must live as long as the handler then, not in a scope that ends */
} stet_step_options;
#define STET_STEP(...) (&(stet_step_options){ .size = sizeof(stet_step_options), __VA_ARGS__ })

/**
 * Run a side effect once and record its result.
 *
 * On replay the recorded result comes back and the body does not run. No later side effect starts
 * before the record is durable. A crash between the body's entry and its record runs it again.
 * @param[out] out  its result; may be NULL
 * @return STET_OK; STET_ESTEP, failed for good (see stet_failure_get); STET_ERETRY, a passing failure: pass it
 *         on; STET_ECANCELLED, STET_EEXPIRED (once); STET_SUSPENDED; STET_ENAME; STET_EUSAGE.
 */
STET_API STET_MUST_USE int stet_step(stet_ctx *ctx, stet_bytes *out, const char *name,
                                     stet_body_fn body, void *arg, const stet_step_options *options);
#define stet_step(ctx, ...) stet_step(STET_AT(ctx), __VA_ARGS__)

/* ---- time ----------------------------------------------------------------------------------- */

/** Sleep durably ("24h"). Never wakes early; costs no memory while it lasts. */
STET_API STET_MUST_USE int stet_sleep(stet_ctx *ctx, const char *name, const char *duration);
STET_API STET_MUST_USE int stet_sleep_ms(stet_ctx *ctx, const char *name, int64_t ms);
#define stet_sleep(ctx, ...) stet_sleep(STET_AT(ctx), __VA_ARGS__)
#define stet_sleep_ms(ctx, ...) stet_sleep_ms(STET_AT(ctx), __VA_ARGS__)

/* ---- other runs ----------------------------------------------------------------------------- */

/** Call a handler and wait for its result. The child, this record of it and its dispatch are one
 * commit. @return as stet_step(), and STET_ECHILD, it did not complete; STET_EDEADLOCK, it would wait
 * for a key this run or its callers hold. */
STET_API STET_MUST_USE int stet_call(stet_ctx *ctx, stet_bytes *out, const char *handler,
                                     stet_bytes input, const stet_start_options *options);
/** Start a run and do not wait; exactly once however often this replays. */
STET_API STET_MUST_USE int stet_send(stet_ctx *ctx, stet_run_id *run, const char *handler,
                                     stet_bytes input, const stet_start_options *options);
#define stet_call(ctx, ...) stet_call(STET_AT(ctx), __VA_ARGS__)
#define stet_send(ctx, ...) stet_send(STET_AT(ctx), __VA_ARGS__)

/* ---- awakeables ----------------------------------------------------------------------------- */

/** Something to await that the outside settles: hand the ID out in a step, then await the future. */
STET_API STET_MUST_USE int stet_awakeable(stet_ctx *ctx, stet_awakeable_id *id, stet_future **future,
                                          const char *name);
#define stet_awakeable(ctx, ...) stet_awakeable(STET_AT(ctx), __VA_ARGS__)
/** Settle another run's awakeable from a handler, once. */
STET_API STET_MUST_USE int stet_ctx_resolve(stet_ctx *ctx, const char *awakeable, stet_bytes value);
STET_API STET_MUST_USE int stet_ctx_reject(stet_ctx *ctx, const char *awakeable, const char *error);
#define stet_ctx_resolve(ctx, ...) stet_ctx_resolve(STET_AT(ctx), __VA_ARGS__)
#define stet_ctx_reject(ctx, ...) stet_ctx_reject(STET_AT(ctx), __VA_ARGS__)

/* ---- signals -------------------------------------------------------------------------------- */

/** Wait for the next signal of this name sent to this run: stet_signal(), `stet signal RUN NAME`. One that
 * came before the wait is there at once; each is given to one wait, in the order they came.
 * @param[out] out  what was sent with it; may be NULL
 * @param timeout   "3d"; NULL: none
 * @return STET_OK; STET_ETIMEOUT, the time was up first: then no signal was taken, and one that comes
 *         later is for the next wait; STET_ENAME; STET_EDURATION; and as stet_step(). */
STET_API STET_MUST_USE int stet_await_signal(stet_ctx *ctx, stet_bytes *out, const char *signal,
                                             const char *timeout);
/** Send a signal to another run, or to this one, once however often this replays.
 * @return STET_OK; STET_ENOTFOUND; STET_EENDED; STET_ENAME; STET_ETOOBIG; and as stet_step(). */
STET_API STET_MUST_USE int stet_ctx_signal(stet_ctx *ctx, const stet_run_id *run, const char *signal,
                                           stet_bytes value);
#define stet_await_signal(ctx, ...) stet_await_signal(STET_AT(ctx), __VA_ARGS__)
#define stet_ctx_signal(ctx, ...) stet_ctx_signal(STET_AT(ctx), __VA_ARGS__)

/* ---- topics --------------------------------------------------------------------------------- */

/** Wait for the next event on a topic: stet_emit(), `stet emit TOPIC`. All that wait when it is emitted get
 * it; what was emitted before the wait is gone.
 * @param[out] out  what was sent with it; may be NULL
 * @param timeout   "3d"; NULL: none
 * @return STET_OK; STET_ETIMEOUT, the time was up first; STET_ENAME; STET_EDURATION; and as stet_step(). */
STET_API STET_MUST_USE int stet_await_event(stet_ctx *ctx, stet_bytes *out, const char *topic,
                                            const char *timeout);
/** Emit an event from a handler, once however often this replays.
 * @param[out] resumed  how many runs waited, the same on every replay; may be NULL
 * @return STET_OK; STET_ENAME; STET_ETOOBIG; and as stet_step(). */
STET_API STET_MUST_USE int stet_ctx_emit(stet_ctx *ctx, size_t *resumed, const char *topic, stet_bytes value);
#define stet_await_event(ctx, ...) stet_await_event(STET_AT(ctx), __VA_ARGS__)
#define stet_ctx_emit(ctx, ...) stet_ctx_emit(STET_AT(ctx), __VA_ARGS__)

/* ---- people --------------------------------------------------------------------------------- */

/** What a person decided. */
typedef struct stet_decision {
    bool        is_approved; /* or resumed */
    const char *by, *note;   /* or NULL */
    int64_t     time_ms;
} stet_decision;
/** Wait until a person approves or rejects: `stet approve RUN`, stet_run_approve(). `stet waits` lists those
 * that wait.
 * @param[out] decision  may be NULL
 * @param metadata       for whoever decides; JSON by convention
 * @return STET_OK, approved; STET_EREJECTED, the failure's text is the note; STET_ENAME; STET_ETOOBIG; and
 *         as stet_step(). */
STET_API STET_MUST_USE int stet_approve(stet_ctx *ctx, stet_decision *decision, const char *name,
                                        stet_bytes metadata);
/** The same for a pause that a person ends: `stet resume RUN`, stet_run_resume(). */
STET_API STET_MUST_USE int stet_pause(stet_ctx *ctx, stet_decision *decision, const char *name,
                                      stet_bytes metadata);
#define stet_approve(ctx, ...) stet_approve(STET_AT(ctx), __VA_ARGS__)
#define stet_pause(ctx, ...) stet_pause(STET_AT(ctx), __VA_ARGS__)

/* ---- futures -------------------------------------------------------------------------------- */

/* Start without waiting. The body of a step runs on another slot; `arg` must stay valid until it was
 * awaited. A future belongs to the context. */
STET_API STET_MUST_USE int stet_step_start(stet_ctx *ctx, stet_future **future, const char *name,
                                           stet_body_fn body, void *arg,
                                           const stet_step_options *options);
STET_API STET_MUST_USE int stet_sleep_start(stet_ctx *ctx, stet_future **future, const char *name,
                                            const char *duration);
STET_API STET_MUST_USE int stet_call_start(stet_ctx *ctx, stet_future **future, const char *handler,
                                           stet_bytes input, const stet_start_options *options);

typedef struct stet_signal_wait {
    size_t      size;
    const char *timeout; /* then awaiting it gives STET_ETIMEOUT; NULL: none */
    const char *id;      /* a name of its own for this wait, by which a replay finds it, so that waits for
                            the same signal can be added before it; NULL: the signal's */
} stet_signal_wait;
#define STET_SIGNAL(...) (&(stet_signal_wait){ .size = sizeof(stet_signal_wait), __VA_ARGS__ })
/** A future for the next signal of this name. Until it has one it stands in line before later waits. */
STET_API STET_MUST_USE int stet_signal_start(stet_ctx *ctx, stet_future **future, const char *signal,
                                             const stet_signal_wait *options);
#define stet_signal_start(ctx, ...) stet_signal_start(STET_AT(ctx), __VA_ARGS__)
#define stet_step_start(ctx, ...) stet_step_start(STET_AT(ctx), __VA_ARGS__)
#define stet_sleep_start(ctx, ...) stet_sleep_start(STET_AT(ctx), __VA_ARGS__)
#define stet_call_start(ctx, ...) stet_call_start(STET_AT(ctx), __VA_ARGS__)

/** Wait for one. Returns what the blocking call would have returned. */
STET_API STET_MUST_USE int stet_await(stet_ctx *ctx, stet_bytes *out, stet_future *future);
/** The same with a limit: STET_ETIMEOUT if the time was up first; recorded, and so on every replay. */
STET_API STET_MUST_USE int stet_await_for(stet_ctx *ctx, stet_bytes *out, stet_future *future,
                                          const char *timeout);
/** Wait until all have ended; read each with stet_await(). STET_OK even if some failed. */
STET_API STET_MUST_USE int stet_await_all(stet_ctx *ctx, stet_future *const *futures, size_t n);
/** Wait for the first of them; *chosen is its index, recorded, the same on every replay.
 * STET_ERETRY, pass it on: one without a policy failed passingly before any other had ended, and with it the attempt.
 * @param timeout NULL: none; else STET_ETIMEOUT when the time is up first */
STET_API STET_MUST_USE int stet_await_any(stet_ctx *ctx, size_t *chosen, stet_future *const *futures,
                                          size_t n, const char *timeout);
#define stet_await(ctx, ...) stet_await(STET_AT(ctx), __VA_ARGS__)
#define stet_await_for(ctx, ...) stet_await_for(STET_AT(ctx), __VA_ARGS__)
#define stet_await_all(ctx, ...) stet_await_all(STET_AT(ctx), __VA_ARGS__)
#define stet_await_any(ctx, ...) stet_await_any(STET_AT(ctx), __VA_ARGS__)

/* ---- object state --------------------------------------------------------------------------- */

/** Read an entry of this object's state; out->data is NULL if there is none. */
STET_API STET_MUST_USE int stet_state_get(stet_ctx *ctx, stet_bytes *out, const char *name);
STET_API STET_MUST_USE int stet_state_set(stet_ctx *ctx, const char *name, stet_bytes value);
STET_API STET_MUST_USE int stet_state_clear(stet_ctx *ctx, const char *name);
#define stet_state_get(ctx, ...) stet_state_get(STET_AT(ctx), __VA_ARGS__)
#define stet_state_set(ctx, ...) stet_state_set(STET_AT(ctx), __VA_ARGS__)
#define stet_state_clear(ctx, ...) stet_state_clear(STET_AT(ctx), __VA_ARGS__)

/* ---- the same on every replay --------------------------------------------------------------- */

STET_API STET_MUST_USE int stet_now(stet_ctx *ctx, int64_t *now_ms);
#define stet_now(ctx, ...) stet_now(STET_AT(ctx), __VA_ARGS__)
STET_API uint64_t stet_random(stet_ctx *ctx);
/** A version-4 UUID; `text` has room for 37 characters. */
STET_API const char *stet_uuid(stet_ctx *ctx, char text[37]);

/** Mark a change of the code: a run that was past this place under old code gets `oldest`, a new one
 * `newest`; recorded. */
STET_API STET_MUST_USE int stet_version(stet_ctx *ctx, int *version, const char *name, int oldest,
                                        int newest);
#define stet_version(ctx, ...) stet_version(STET_AT(ctx), __VA_ARGS__)

/* ---- what was decided, and what is worth knowing ---------------------------------------------- */

/** A way a switch can go. */
typedef struct stet_branch {
    const char *id;
    /* > 0: this one; 0: not this one; a code (< 0): it could not be told, and stet_switch() returns that
     * code. Called in handler code; it must not use the context. NULL: the default, which is the last. */
    int (*match)(void *arg);
} stet_branch;

/**
 * Choose a way: the first branch that matches, recorded before anything in it runs. On replay no
 * matcher is called; a recorded branch that the code does not have any more makes the run stuck.
 * @param[out] chosen  index into `branches`
 * @param branches     ended by { 0 }; at most STET_BRANCHES_MAX
 * @param arg          for the matchers
 * @return STET_OK; STET_ENOBRANCH, none matches and there is no default; what a matcher returned;
 *         STET_ENAME; STET_EINVAL, two with one ID, or a default that is not the last; and as
 *         stet_step().
 */
STET_API STET_MUST_USE int stet_switch(stet_ctx *ctx, size_t *chosen, const char *name,
                                       const stet_branch *branches, void *arg);
#define stet_switch(ctx, ...) stet_switch(STET_AT(ctx), __VA_ARGS__)
#define STET_BRANCHES_MAX 256

/** A line in the run's record, once however often this replays: for those who look at it with `show`.
 * A replay knows a note by its format, so notes may be added and moved. Cut to STET_NOTE_MAX bytes.
 * @return STET_OK; STET_EINVAL, an empty format; STET_SUSPENDED; STET_EUSAGE. */
STET_API int stet_note(stet_ctx *ctx, const char *fmt, ...) STET_PRINTF(2, 3);
#define stet_note(ctx, ...) stet_note(STET_AT(ctx), __VA_ARGS__)
#define STET_NOTE_MAX 4096

/** True for the first that asks for this key, in all runs, processes and times: recorded, so it is true
 * again when this replays, and in a run that retries this one. The key stays taken when the run is gone.
 * @param key  1 to 256 bytes
 * @return STET_OK; STET_ETOOBIG; STET_EINVAL, an empty key; and as stet_step(). */
STET_API STET_MUST_USE int stet_once(stet_ctx *ctx, bool *is_first, const char *key);
#define stet_once(ctx, ...) stet_once(STET_AT(ctx), __VA_ARGS__)

/** Another run, as a handler sees it. */
typedef struct stet_run_look {
    stet_status status;
    stet_bytes  value; /* of a completed run */
    int         code;  /* of a failed one, else 0 */
    const char *error; /* … and its text, or NULL */
} stet_run_look;
/** What is known of a run now; recorded, and so on every replay.
 * @return STET_OK; STET_ENOTFOUND, and STET_ECORRUPT, its record is damaged (both recorded too); STET_EKIND;
 *         STET_EINVAL; and as stet_step(). */
STET_API STET_MUST_USE int stet_run_look_at(stet_ctx *ctx, stet_run_look *look, const stet_run_id *run);
#define stet_run_look_at(ctx, ...) stet_run_look_at(STET_AT(ctx), __VA_ARGS__)

/* ---- undoing -------------------------------------------------------------------------------- */

/** Undo the steps that were done and have an undo, the last one first. Each undo runs like a step of
 * its own ("rollback:charge#1"): recorded once, retried, at risk after a crash; a crash goes on with the
 * next one. Works after a cancel, and the handler goes on behind it as it likes.
 * @return STET_OK; STET_ECOMPENSATION: an undo failed for good. Pass it on: the run is then
 *         compensation-failed, its waiters are told, and `stet rollback` tries again; STET_SUSPENDED. */
STET_API STET_MUST_USE int stet_rollback(stet_ctx *ctx);
#define stet_rollback(ctx) stet_rollback(STET_AT(ctx))
/** From here on: if this run fails for good, or is stopped, undo what it did before it ends. As if every
 * way out of the handler that is a failure had called stet_rollback(). It is not recorded: an attempt
 * that fails before it comes here undoes nothing, so call it first; or set
 * `stet_handler_options.rollback`, which does this for all runs of a handler, whatever it comes to. */
STET_API int stet_rollback_on_failure(stet_ctx *ctx, bool is_on);

/* ---- ending --------------------------------------------------------------------------------- */

/** Set the result (copied) and return its value: `return stet_return(ctx, stet_text("done"));` */
STET_API int stet_return(stet_ctx *ctx, stet_bytes value);
/** The same as JSON: printf with %Q (quoted text) and %J (stet_bytes that must be JSON). */
STET_API int stet_return_json(stet_ctx *ctx, const char *fmt, ...);
/** Fail with a sentence: `return stet_fail(ctx, STET_EPERMANENT, "no such item %s", id);` A code of class
 * permanent goes to the dead letters at once, any other is retried. Returns `code`. */
STET_API int stet_fail(stet_ctx *ctx, int code, const char *fmt, ...) STET_PRINTF(3, 4);
/** End this attempt and come back at that time (milliseconds since 1970); uses no attempt. One that is past counts as a
 * first failure's wait, or a handler that asks for it again and again would be executed without a pause. Returns
 * STET_EDEFER, which without this call fails the run (STET_EHANDLER). */
STET_API int stet_defer_until(stet_ctx *ctx, int64_t time_ms, const char *why);
/** Begin anew with another input and an empty record: `return stet_continue(ctx, input);` For runs that would
 * grow without end.
 *
 * The run stays the same to everybody else: its ID, key, place in the line for that key, parent, labels, deadline and
 * those who wait for it. What it recorded is removed when the next generation is durable, in one unit; its
 * attempts are counted anew. Signals it did not take are there for the next generation, in their order. What it
 * wrote to its object's state stands; its awakeables, timers, undos and child keys are gone, and runs it
 * called and did not wait for go on without it.
 *
 * The handler must return what this returns: a run that returns something else after it, or STET_CONTINUED
 * without it, fails with STET_EHANDLER. A run that was stopped ends instead of beginning anew.
 * @param input  copied
 * @return STET_CONTINUED; STET_ETOOBIG; STET_EUSAGE; STET_SUSPENDED; STET_ENOMEM. */
STET_API STET_MUST_USE int stet_continue(stet_ctx *ctx, stet_bytes input);

/* ---- about this run ------------------------------------------------------------------------- */

/** What failed in the last context call that returned a failure. */
typedef struct stet_failure {
    int         code;     /* what the call returned */
    int         cause;    /* the code behind it: of the body, of the child; or 0 */
    const char *text;     /* never NULL */
    const char *origin;   /* "step charge#1", "child run_…"; or NULL */
    uint32_t    attempts; /* executions used; 0: does not apply */
} stet_failure;
STET_API const stet_failure *stet_failure_get(const stet_ctx *ctx);

/** A run that had ended before this one was made, and that this one builds on. */
typedef struct stet_dependency {
    const char *run;
    const char *kind; /* "retry": it did not complete; its recorded steps are inherited */
} stet_dependency;

typedef struct stet_ctx_info {
    const char *run, *service, *handler, *key, *group, *parent; /* absent: NULL */
    const char *parent_step, *child_key; /* as the start named them, or NULL */
    const stet_dependency *depended_on;  /* what it depended on; the same on every replay */
    size_t                 n_depended_on;
    uint32_t    attempt, attempts_max;
    int64_t     created_ms, deadline_ms; /* deadline 0: none */
    bool        is_replaying;
    /* Trace context to hand on, with this run as the parent; NULL: it was started without. */
    const char *traceparent, *tracestate;
    uint64_t    generation; /* how often it began anew, see stet_continue() */
} stet_ctx_info;
/** Valid until the handler returns. */
STET_API const stet_ctx_info *stet_info(stet_ctx *ctx);

/** A line in the log with the run's fields; silent during replay: what was said before a recorded
 * operation is not said again. Nothing is recorded. */
STET_API void stet_log(stet_ctx *ctx, stet_level level, const char *fmt, ...) STET_PRINTF(3, 4);
/** The same with fields of your own, ended by { 0 }:
 * `stet_log_with(ctx, STET_LOG_INFO, STET_FIELDS({ "card", card }, { "amount", text }), "charged");`
 * The sink gets them one by one and as text; see stet_log_record for their limits. A field with a
 * NULL value is left out, an illegal character of a name becomes '_'.
 * @param fields  copied as far as needed; NULL: none */
STET_API void stet_log_with(stet_ctx *ctx, stet_level level, const stet_log_field *fields,
                            const char *fmt, ...) STET_PRINTF(4, 5);
#define STET_FIELDS(...) ((const stet_log_field[]){ __VA_ARGS__, { 0 } })
/** From here on every line of this handler, and of the bodies it starts, carries this field; one of
 * the same name on a line of its own wins. It belongs to this execution: a replay comes here again.
 * @param value  copied; NULL: take the field off again
 * @return STET_OK; STET_ENAME; STET_ETOOBIG, STET_LOG_FIELDS_MAX are set already; STET_EUSAGE;
 *         STET_SUSPENDED; STET_ENOMEM. The handler may ignore all of them: only log lines differ. */
STET_API int stet_log_set(stet_ctx *ctx, const char *name, const char *value);

/** Results obtained between begin and end are freed at the end: for loops. Scopes nest. */
STET_API void stet_scope_begin(stet_ctx *ctx);
STET_API void stet_scope_end(stet_ctx *ctx);
/** Memory that lives as long as the context (or scope). NULL when out of memory. */
STET_API void *stet_ctx_alloc(stet_ctx *ctx, size_t size);
/** printf into such memory, for building inputs. NULL when out of memory. */
STET_API char *stet_ctx_printf(stet_ctx *ctx, const char *fmt, ...) STET_PRINTF(2, 3);
/** Call fn(arg) when the handler has ended in whatever way, also when it is let go; last first. Behind all
 * bodies it began, also those it did not wait for, and behind the undos of an automatic rollback. */
STET_API int stet_on_exit(stet_ctx *ctx, void (*fn)(void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
