/* The test kit: your handlers on an engine in memory, with time that passes only when you say so, and
 * crashes, failing stores and replays to order. See docs/testing.md. Link it in your own tests only:
 * pkg-config stet-test, or the CMake target stet::test.
 *
 *     stet_test  *kit = stet_test_new(NULL);
 *     stet_run_id run;
 *
 *     stet_test_service(kit, "orders", orders);
 *     stet_test_start(kit, &run, "orders.checkout", stet_text("{}"), NULL);
 *     stet_test_advance(kit, "30d");
 *     assert(stet_test_status(kit, &run) == STET_STATUS_COMPLETED);
 *     stet_test_free(kit);
 *
 * Everything happens on the thread that calls, inside these calls: handlers and bodies run, one at a
 * time, in an order drawn from the seed. Between two calls nothing runs and no time passes. One seed,
 * one history: the same IDs, the same order, the same times. So a kit belongs to one thread, a body
 * must not wait for another one in real time, and none of these calls may be made in a handler or
 * body (STET_EUSAGE) unless it says so. Bodies have a stack of 1 MiB.
 *
 * Functions that can fail return a code; stet_last_error() says what happened, where and what to do.
 * Out of memory is STET_ENOMEM, or while a table is copied the end of the process.
 */
#ifndef STET_TEST_KIT_H
#define STET_TEST_KIT_H

#include <stet/app.h>
#include <stet/context.h>
#include <stet/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stet_test stet_test;

typedef struct stet_test_options {
    size_t              size;
    uint64_t            seed;   /* 0: 1 */
    int64_t             now_ms; /* the time at the beginning, 1970 to 9999; 0: 2026-01-01 00:00:00 UTC */
    /* Configuration of the engine; NULL: that of the app, or the defaults. Copied. Leases, polls and
     * sweeps are the kit's own. Without a sink of yours nothing is logged. */
    const stet_options *engine;
    uint64_t            only;   /* stet_test_crash_everywhere(): this point alone; 0: all */
} stet_test_options;
#define STET_TEST_OPTIONS(...)                                                                     \
    (&(stet_test_options){ .size = sizeof(stet_test_options), __VA_ARGS__ })
STET_API void stet_test_options_init(stet_test_options *options);

/* ---- life ----------------------------------------------------------------------------------- */

/** A kit with an empty store. The engine is opened when it is first needed, and again after each crash.
 * @param options  NULL: defaults
 * @return NULL: out of memory, or options that are none (stet_last_error() says which) */
STET_API stet_test *stet_test_new(const stet_test_options *options);
/** Stops the engine, so that suspended handlers can clean up, and frees everything. Accepts NULL. */
STET_API void stet_test_free(stet_test *kit);

/** As stet_register(): the names and the table are copied. A service that is registered already is
 * replaced: the engine stops in order, and the next call goes on with the new code, as after a deploy.
 * Mistakes in the table are reported by the first call that needs the engine. */
STET_API int stet_test_service(stet_test *kit, const char *service, const stet_handler *handlers);
STET_API int stet_test_object(stet_test *kit, const char *service, const stet_handler *handlers,
                              const stet_entry *initial);
/** Everything your program registers, and its options. The app is the kit's from now on. */
STET_API int stet_test_app(stet_test *kit, stet_app *app);

/* ---- what a client does --------------------------------------------------------------------- */

/* If the engine dies inside one of these, it is opened again and the call is repeated so that it counts
 * once, as a careful client does. Errors of the store (stet_test_fail_next) come back to you. */

/** As stet_start(). */
STET_API int stet_test_start(stet_test *kit, stet_run_id *run, const char *handler, stet_bytes input,
                             const stet_start_options *options);
/** As stet_signal(), stet_resolve(), stet_reject(), stet_cancel(). */
STET_API int stet_test_signal(stet_test *kit, const stet_run_id *run, const char *signal,
                              stet_bytes value);
STET_API int stet_test_resolve(stet_test *kit, const char *awakeable, stet_bytes value);
STET_API int stet_test_reject(stet_test *kit, const char *awakeable, const char *error);
STET_API int stet_test_cancel(stet_test *kit, const stet_run_id *run, const char *why);
/** As stet_result_get(); free with stet_result_free(). What is ready runs first; no time passes. */
STET_API int stet_test_result(stet_test *kit, stet_result *result, const stet_run_id *run);
/** The same in one line: STET_OK if it completed and its result is this text. Else the sentence says
 * what it is instead, and what an open run waits for. */
STET_API int stet_test_expect(stet_test *kit, const stet_run_id *run, const char *value);
/** 0: there is no such run. */
STET_API stet_status stet_test_status(stet_test *kit, const stet_run_id *run);

/** Anything else: `fn` is called with the engine and may use all of <stet.h>. Waiting in it lets time
 * pass. If the engine dies meanwhile, fn is not returned to but called again, with the next engine: what
 * it allocated until then is lost. Returns what fn returned; STET_ETIMEOUT if it waits without end. */
STET_API int stet_test_do(stet_test *kit, int (*fn)(stet_engine *engine, void *arg), void *arg);
/** For bodies that use the engine. NULL: there is none just now. Also in handlers and bodies. */
STET_API stet_engine *stet_test_engine(stet_test *kit);

/* ---- time ----------------------------------------------------------------------------------- */

/** Milliseconds since 1970. Also in handlers and bodies. */
STET_API int64_t stet_test_now(stet_test *kit);
/** Let this much time pass ("30d"). Timers, delays and retries in it happen in their order, each at
 * its time; what is due at the end has run when it returns.
 * @return STET_OK; STET_EDURATION; STET_ETIMEOUT, something runs without end (the text names it) */
STET_API int stet_test_advance(stet_test *kit, const char *duration);
/** Until nothing more happens without time passing or somebody doing something: every run has ended,
 * is suspended, stuck, or waits for its next attempt. */
STET_API int stet_test_run_until_idle(stet_test *kit);
typedef bool (*stet_test_predicate)(stet_test *kit, void *arg);
/** Let time pass until the predicate holds; it is asked whenever something may have happened, and may
 * use the kit. @param limit  of virtual time: "7d"
 * @return STET_OK; STET_ETIMEOUT, it does not hold after the limit: the text names the open runs and
 *         what they wait for; STET_EDURATION */
STET_API int stet_test_wait_until(stet_test *kit, stet_test_predicate predicate, void *arg,
                                  const char *limit);

/** In a body: it takes so long. Others go on meanwhile, and the step's timeout passes.
 * @return STET_OK; STET_EDURATION; STET_EUSAGE, in the test itself (use stet_test_advance) */
STET_API int stet_test_spend(stet_test *kit, const char *duration);

/* ---- what goes wrong ------------------------------------------------------------------------ */

/** The engine dies now: its memory and its handlers are gone, nothing is cleaned up, the store stays.
 * The next call goes on with a new one. */
STET_API int stet_test_crash(stet_test *kit);
/** The engine will die at the nth point from the beginning of the kit, once, and a new one goes on.
 *
 * Points are counted as they come. One is before each step body is entered, one after it has run. Each
 * commit has three: before it is written, after it was written, and (nobody dies) written but the answer
 * lost. 0: it will not. Replaces an earlier order. */
STET_API void stet_test_crash_at(stet_test *kit, uint64_t n);
/** How many points there were so far. */
STET_API uint64_t stet_test_points(const stet_test *kit);
/** Where what stet_test_crash_at() ordered happened: "crash after the record of step charge#1 was
 * written". NULL: not yet. Valid until the next call. */
STET_API const char *stet_test_crashed(const stet_test *kit);
/** The next `times` commits fail with this code, after those that were ordered before. STET_EUNCERTAIN:
 * written, but the answer is lost. STET_EBUSY, STET_EIO, STET_EFULL, STET_ENOMEM, STET_EPOISONED: nothing
 * is written. @return STET_OK; STET_EINVAL, a store never says that */
STET_API int stet_test_fail_next(stet_test *kit, int code, unsigned times);

/* ---- what is checked ------------------------------------------------------------------------ */

/** How often the body of this step ("charge#1") was entered in this run, counted outside the engine,
 * over all crashes. */
STET_API size_t stet_test_bodies(const stet_test *kit, const stet_run_id *run, const char *step);
/** Execute the handler again from what is recorded, without any effect: no body runs, nothing is
 * written, nothing is logged. Code outside of steps does run again.
 * @return STET_OK, it asks for what is recorded, as far as the record goes, and ends as it did;
 *         STET_EREPLAY, it does something else: the text says what was recorded, what it asked for
 *         and where; STET_ENOTFOUND; STET_ENOHANDLER */
STET_API int stet_test_replay(stet_test *kit, const stet_run_id *run);
/** What holds for every run, whatever it does: no body ran again after its record was durable (unless a rewind or
 * a new beginning forgot that), each that may have run before a crash was told so (stet_attempt_is_at_risk), no start that was acknowledged is
 * lost, no run is stuck, every replay agrees with the record, and the store is sound. @return STET_OK; STET_EPERMANENT or STET_EREPLAY with what is wrong */
STET_API int stet_test_check(stet_test *kit);
/** For checks of your own: `return stet_test_fail(kit, "charged %d times", n);` Leaves the sentence for
 * stet_last_error() and returns STET_EPERMANENT. */
STET_API int stet_test_fail(stet_test *kit, const char *fmt, ...) STET_PRINTF(2, 3);

/** What stet_test_crash_everywhere() did and found. */
typedef struct stet_test_report {
    uint64_t points;     /* tried */
    uint64_t crashes;    /* of them, those at which the engine died; at the others an answer was lost */
    uint64_t seed;
    uint64_t failed;     /* the first bad point, for stet_test_options.only; 0: none, or without a crash */
    char     where[256]; /* that point in words, "" if all is well */
    char     text[2048]; /* all of it in one sentence or two, ready to be printed; "" if all is well */
} stet_test_report;

typedef int (*stet_test_fn)(stet_test *kit, void *arg);

/**
 * Run a workflow once without a crash, and once for each point of stet_test_crash_at(), and check each.
 *
 * @param options   NULL: defaults; .only runs a single point again
 * @param workflow  registers handlers, starts runs, lets time pass. Called once for each point, with a
 *                  kit as new: it begins by setting back what you count yourself. It need not know of
 *                  crashes. Not STET_OK: it failed at that point
 * @param check     your invariant, after stet_test_run_until_idle(): what must hold wherever the engine
 *                  died. NULL: stet_test_check() alone, which follows in any case
 * @param[out] report  may be NULL
 * @return STET_OK, it holds everywhere; else what workflow, check or stet_test_check() returned at the
 *         first point where it does not, with report->text, which is stet_last_error() as well
 */
STET_API int stet_test_crash_everywhere(const stet_test_options *options, stet_test_fn workflow,
                                        stet_test_fn check, void *arg, stet_test_report *report);

#ifdef __cplusplus
}
#endif
#endif
