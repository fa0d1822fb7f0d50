/* Moving a store: all its runs go on in another one. */
#ifndef STET_MOVE_H
#define STET_MOVE_H

#include <stet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a move is at, in this order. */
typedef enum stet_move_phase {
    STET_MOVE_COUNTING,   /* how much is there? */
    STET_MOVE_COPYING,    /* facts, inboxes, baselines */
    STET_MOVE_REBUILDING, /* what follows from them: rows, timers, lanes, keys, state */
    STET_MOVE_VERIFYING,  /* the target by itself, as stet_verify() does */
    STET_MOVE_COMPARING   /* both sides, every byte that was copied */
} stet_move_phase;

/** For progress bars. Called on the caller's thread; must not call stet. Non-zero stops the move,
 * which returns it and can be continued by another call.
 * @param total runs there are, 0: not known yet */
typedef int (*stet_move_fn)(void *arg, stet_move_phase phase, uint64_t done, uint64_t total);

typedef struct stet_move_options {
    size_t       size;
    stet_move_fn progress;   /* or NULL */
    void        *arg;
    size_t       unit_bytes; /* how much is written at a time; 0: 256 KiB */
} stet_move_options;
#define STET_MOVE(...) (&(stet_move_options){ .size = sizeof(stet_move_options), __VA_ARGS__ })
/** For C++ and generated code: zero and size. */
STET_API void stet_move_options_init(stet_move_options *options);

/** What was counted on both sides, which is the same. */
typedef struct stet_move_report {
    uint64_t runs, open_runs;  /* all; those that go on in the target */
    uint64_t facts, inbox, baselines;
    uint64_t findings;         /* what verify found in the source and finds in the target as well */
    bool     is_continued;     /* an earlier call had begun it */
    bool     was_done;         /* an earlier call had finished it: baselines are not counted */
    char     digest[65];       /* SHA-256 over all that was copied, as text; "" if was_done */
} stet_move_report;

/** "counting", "copying" … */
STET_API const char *stet_move_phase_name(stet_move_phase phase);

/**
 * Move all runs, open and ended, with keys, state, timers, awakeables and dead letters, from one
 * store to another, of the same kind or not. Run IDs stay what they are.
 *
 * Stop all workers first. From the first moment on neither store takes work or input: workers do
 * not start, starts and signals are refused with STET_EMOVED. When it returns STET_OK the target is
 * open for work and the source is not any more; that can still be read and names the target.
 *
 * Killed or failed at any point, the same call continues where it was and both stores stay closed
 * for work until then; stet_move_undo() gives the source back instead. A repeat after success is
 * harmless.
 *
 * Any thread, no engine needed; takes as long as it takes to read the source four times.
 * @param[out] report  may be NULL
 * @param options      NULL: no progress is told
 * @return STET_OK; STET_EINVAL, both are the same store; STET_ENOTFOUND, there is no source or
 *         nothing in it; STET_EBUSY, a worker is alive on one of them (named): stop it, or the
 *         clock of the target is more than a minute behind;
 *         STET_EEXISTS, the target is in use; STET_EMOVED, the source was moved somewhere else, or
 *         is itself the unfinished target of a move; STET_ECORRUPT, the source is damaged
 *         (`verify --repair` first), or the sides differ in the end; STET_ECONFLICT, the move was
 *         called off or finished by somebody else; and all that stet_open() returns.
 */
STET_API int stet_move(stet_move_report *report, const char *from, const char *to,
                       const stet_move_options *options);

/**
 * Call off a move that is not finished: the source takes work again. What was copied stays in the
 * target, which is closed for good; delete it, or use another one next time. A repeat is harmless.
 * @return STET_OK; STET_EMOVED, it is finished: the runs live in the target; STET_ENOTFOUND, no
 *         such store; and all that stet_open() returns.
 */
STET_API int stet_move_undo(const char *from);

#ifdef __cplusplus
}
#endif
#endif
