/* The audit trail: what happened to a run, entry by entry, for people and for cold storage.
 *
 * The trail is read from the run's facts; nothing is written for it. Each entry has an ID that
 * is the same on every reading, on every store, and after a move, so whoever keeps entries
 * elsewhere can tell a repeat by it. stet_audit_run() reads the trail of one run;
 * stet_options.audit is told the trails of all runs as they grow.
 */
#ifndef STET_AUDIT_H
#define STET_AUDIT_H

#include <stet/engine.h>
#include <stet/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One entry. Texts and bytes are valid during the call only; NULL where there is none. */
struct stet_audit_entry {
    const char *id;          /* "run_…/12", by its revision in the journal; "run_…/in.3", the third
                                that came from outside */
    const char *run, *handler, *key;
    uint64_t    revision;    /* 0: it came from outside */
    uint64_t    inbox;       /* its number among what came from outside, or 0 */
    int64_t     time_ms;     /* when it was recorded; what came from outside: when it came */
    const char *topic;       /* "run", "step", "sleep", "signal", "event", "call", "awakeable",
                                "state", "choice", "decision", "note", "operator", "other" */
    const char *kind;        /* as `show` has it: "started", "step retry", "timer fired" … */
    const char *outcome;     /* "done", "failed", "waiting", "delivered", "timed out", "kept",
                                "late" …, or NULL */
    const char *name;        /* of the step, sleep, signal, entry, handler; what was noted */
    uint64_t    occurrence;  /* 1, 2 … among equal names; 0: none */
    uint32_t    attempt;     /* of a step; 0: none */
    stet_status status;      /* of the run, with this entry */
    bool        is_transition; /* which it had not before */
    /* Of a step: how long its body ran, without waiting for its turn or between attempts (each
     * has its entry). Of what ends a wait (a sleep, a signal, a call, a decision …): since the
     * wait was recorded, which is the wait itself. Of the run's end: since it was started, all
     * waits included. -1: none. */
    int64_t     duration_ms;
    int64_t     until_ms;    /* fires at, is retried at, is given up at; 0: none */
    int         code;        /* of a failure, else 0 */
    const char *text;        /* what went wrong, or what was said */
    const char *who;         /* who asked for it, where that is known */
    const char *other;       /* the other run: child, parent, whose signal …; or the awakeable */
    stet_bytes  value;       /* the payload: input, result, value; not a copy */
    bool        is_inherited; /* recorded by the run this one retries or was forked from */
    bool        is_untaken;  /* came from outside, and the run has not seen it yet */
};

/**
 * The trail of one run, in the order of its journal. What came from outside stands where the run
 * took it; what it did not take comes last.
 *
 * Reads only. Any thread; fn may call stet.
 * @param fn  non-zero stops the trail and is returned
 * @return STET_OK; STET_ENOTFOUND; STET_ECORRUPT, a fact cannot be read: what stands before it was
 *         told; STET_ENOMEM; what the store says.
 */
STET_API int stet_audit_run(stet_engine *engine, const stet_run_id *run, stet_audit_fn fn,
                            void *arg);

/**
 * End the mirroring of this store: retention does not wait for a hook any more, and how far the
 * hook was told is forgotten. Engines that have a hook do not call it again until they are opened anew,
 * which turns it on again and tells all runs from their start. Twice is harmless.
 * @return STET_OK; what the store says.
 */
STET_API int stet_audit_off(stet_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
