/* What operators can do for a run: pause it, give a step a result, replace one, go back, fail it, fork it; and pause
 * all runs of a handler or service.
 *
 * Everything here is recorded in the run's journal with who did it and why (both may be NULL), and is durable on
 * return. A run that is being executed learns of it when it records something next; all others at once. On a run that
 * has ended only stet_run_fork() and stet_run_retry() are possible: they start a new one. A step is named as "charge",
 * or "charge#2" for the second of that name.
 *
 * All return STET_OK; STET_ENOTFOUND, there is no such run or step (the text names what there is); STET_EENDED;
 * STET_ESTATE, not in the state it is in; STET_ETOOBIG; STET_EUSAGE, inside a handler; STET_EBUSY, it changed all the
 * time, nothing was written.
 */
#ifndef STET_OPERATE_H
#define STET_OPERATE_H

#include <stet/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Nothing of it is executed until stet_run_resume(), a cancel or its deadline. It keeps its object's key. Timers,
 * signals and all else that comes is kept. STET_ESETTLED: it is paused, the text says by whom. */
STET_API int stet_run_pause(stet_engine *engine, const stet_run_id *run, const char *by, const char *why);

/** The step is not executed (again): this is its result. Without a number it is the last of that name, or the first
 * if none was recorded yet; one that is still to come gets the result when it comes. In a rollback it is not undone, because nothing was done; undos themselves ("rollback:charge#1") can be
 * skipped, too, and a rollback that this one made fail then goes on. A stuck run tries again. STET_ESTATE: the rollback of
 * this run failed, and this is no undo. STET_ESETTLED: it has a result (name the next one by its number). STET_EKIND: what
 * was recorded by that name is no step; a step of that name that is still to come has to be said with its number. */
STET_API int stet_run_skip(stet_engine *engine, const stet_run_id *run, const char *step, stet_bytes result,
                           const char *by, const char *why);

/** Replace the recorded result of a step. The handler is replayed with it; if it takes another way now than what is
 * recorded, the run gets stuck, and stet_run_rewind() helps. Without a number it is the last of that name. A
 * rollback that failed is not tried again by it: stet_rollback_retry() does that, with the new result. A step that had
 * failed counts as done from then on: a rollback behind it undoes it, also one that is over, when the handler comes by
 * there again. STET_ESTATE: it has none yet, or none because the handler was told to stop there. */
STET_API int stet_run_edit(stet_engine *engine, const stet_run_id *run, const char *step, stet_bytes result,
                           const char *by, const char *why);

/** Forget what was recorded from this step (or sleep, call, wait …) on, and go on from there: steps are executed again,
 * with other tokens (stet_attempt_token()), and attempts count anew. Signals consumed since are there again, runs it
 * called and still waits for are cancelled. What it wrote and sent stays: object state, sends, signals, events.
 * STET_ESTATE: a step before this one was undone since, and would count as done; the text names it.
 * @param step  NULL: from the beginning; without a number it is the last of that name */
STET_API int stet_run_rewind(stet_engine *engine, const stet_run_id *run, const char *step, const char *by,
                             const char *why);

/** End it as failed (STET_EFORCED), without asking its handler: nothing is undone. Runs it called are cancelled. One that
 * is being cancelled ends as cancelled; one whose rollback failed, and whose waiters were told so, stays failed as they were
 * told (STET_ECOMPENSATION), and who failed it and why is a fact of it. */
STET_API int stet_run_fail(stet_engine *engine, const stet_run_id *run, const char *by, const char *why);

/** A new run of the same handler, input, key and options that inherits what was recorded before this step, from a run
 * in whatever state; its `retry_of` names that. Signals that run consumed from the step on, and those nobody took, are
 * the new one's too, in the order they came: its waits take them at once, before any that is sent to it. The other run
 * keeps what it has; what it is sent from now on is its own. @param step NULL: it inherits nothing but those signals */
STET_API int stet_run_fork(stet_engine *engine, stet_run_id *forked, const stet_run_id *run, const char *step,
                           const char *by, const char *why);

/** As stet_dlq_retry(): a new run that inherits the recorded steps of a failed, cancelled or expired one, with who
 * retried it and why in its first fact. STET_EOPEN, it has not ended; STET_EEXISTS, retried before (by which). */
STET_API int stet_run_retry(stet_engine *engine, stet_run_id *retried, const stet_run_id *run, const char *by,
                            const char *why);

/** No run of this handler ("orders.checkout") or service ("orders") is begun or goes on until stet_handler_resume(),
 * on any worker of the store; others learn of it with their next sweep (sweep_ms). What is being executed goes on until
 * it waits or ends. STET_ESETTLED: it is paused, the text says by whom. */
STET_API int stet_handler_pause(stet_engine *engine, const char *handler, const char *by, const char *why);
/** STET_ENOTFOUND: it is not paused; the text says what is. */
STET_API int stet_handler_resume(stet_engine *engine, const char *handler, const char *by, const char *why);

typedef struct stet_paused {
    const char *what; /* handler or service */
    const char *by, *why; /* or NULL */
    int64_t     since_ms;
} stet_paused;
typedef int (*stet_paused_fn)(void *arg, const stet_paused *paused);
/** All paused handlers and services, by name. Non-zero from `fn` stops it and is returned. */
STET_API int stet_paused_list(stet_engine *engine, stet_paused_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
