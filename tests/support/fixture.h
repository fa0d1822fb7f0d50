/* What the tests of the engine share: an engine on the store that STET_TEST_STORE names (memory,
 * the default, sqlite, postgres or redis), closed and opened again on the same data as often as a
 * test likes; side effects that are counted outside the engine; waiting for conditions with a
 * deadline; the log as records.
 *
 *     fixture *f = fixture_begin();
 *     fixture_up(f, (fixture_service[]){ { "shop", handlers, false, NULL }, { 0 } });
 *     …
 *     fixture_down(f);                       a worker goes; what it did stays
 *     fixture_up(f, …);                      another one comes, perhaps with other code
 *     fixture_end(f);
 *
 * Everything here ends the test when it fails. Runs on: any thread, but for begin, up, down and
 * end.
 */
#ifndef STET_FIXTURE_H
#define STET_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include <stet.h>

#include "store/store.h"
#include "test.h"

typedef struct fixture_record {
    stet_level level;
    int        code;
    char       message[512], run[STET_ID_TEXT_MAX], handler[64], step[64], fields[512];
    size_t     n_own;
} fixture_record;

typedef struct fixture {
    stet_engine     *engine;    /* of fixture_up(), else NULL */
    stet_options     options;   /* for the next engine; small retry times, logs into `records` */
    bool             is_sqlite, is_postgres, is_redis;
    const char      *url;
    stet__memory_db *db;        /* memory only */
    pthread_mutex_t  log_lock;
    fixture_record  *records;
    size_t           n_records;
} fixture;

typedef struct fixture_service {
    const char         *name;
    const stet_handler *handlers;
    bool                is_object;
    const stet_entry   *initial;
} fixture_service;

/* ---- engines --------------------------------------------------------------------------------- */

fixture *fixture_begin(void);
/* On this store, whatever STET_TEST_STORE says. If it is a server, the program starts it. */
fixture *fixture_begin_on(const char *store);
/* Verifies the store, if f->engine is still up, and closes it. */
void     fixture_end(fixture *f);
/* One more engine on the same data with f->options, nothing registered, not started. */
stet_engine *fixture_open(fixture *f);
void         fixture_register(stet_engine *e, const fixture_service *services);
/* Both. */
stet_engine *fixture_open_with(fixture *f, const fixture_service *services);
/* Open, register and start f->engine. */
void fixture_up(fixture *f, const fixture_service *services);
/* The same with one service called "t". */
void fixture_up_with(fixture *f, const stet_handler *handlers);
/* verify finds nothing; how many runs it looked at. */
size_t fixture_sound(stet_engine *e);
/* Stop and close f->engine. */
void fixture_down(fixture *f);
/* Close f->engine as it is. */
void fixture_close(fixture *f);
/* After fixture_end(): the next fixture of this test finds no file. */
void fixture_wipe(void);

/* ---- effects: what happened, told outside the engine ----------------------------------------- */

/* Append a line to a file of the test (one O_APPEND write, so processes and threads do not mix). */
void effect(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* How many lines are equal to `line`. */
int effects(const char *line);
/* All lines, in order; free(). */
char *effects_text(void);
/* Wait until there are at least n such lines. */
void effects_await(const char *line, int n);

/* ---- waiting --------------------------------------------------------------------------------- */

/* Milliseconds a test may wait for something that should come at once. */
int64_t fixture_patience_ms(void);
int64_t fixture_mono_ms(void);
/* Give others a moment; for loops that look at a condition until a deadline. */
void fixture_breathe(void);
/* Wait for a condition; `what` is told when it does not come. */
#define AWAIT(cond)                                                                                \
    do {                                                                                           \
        int64_t until_ = fixture_mono_ms() + fixture_patience_ms();                                \
        while (!(cond)) {                                                                          \
            if (fixture_mono_ms() > until_)                                                        \
                test_fail(__FILE__, __LINE__, "never came: %s", #cond);                            \
            fixture_breathe();                                                                     \
        }                                                                                          \
    } while (0)

/* A place where bodies wait until the test lets them go on. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t  cond;
    int             arrived;
    bool            is_open;
} gate;
#define GATE_INIT { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false }
void gate_pass(gate *g);             /* in a body: arrive, wait until it is open */
void gate_await(gate *g, int n);     /* in the test: wait until n have arrived */
void gate_open(gate *g);
int  gate_arrived(gate *g);
void gate_shut(gate *g);             /* as it was; nobody may be in it */

/* Call fn(arg, 0 … n-1) on n threads that begin together, and wait for them. */
void fixture_race(int n, void (*fn)(void *arg, int i), void *arg);

/* ---- bodies and handlers many tests use (handlers.c) ----------------------------------------- */

/* Tell this line, and return it. */
int body_effect(stet_attempt *a, void *line);
/* Pass this gate. */
int body_gate(stet_attempt *a, void *door);
/* Hand out the awakeable with this ID: it is in handed_out, and told. */
int body_hand_out(stet_attempt *a, void *id);
extern char handed_out[STET_ID_TEXT_MAX];
/* In a handler: make an awakeable "approval" and hand it out. */
int fixture_hand_out(stet_ctx *ctx, stet_future **future);
/* Hand out an awakeable "approval", wait for it, return what it was resolved with. */
int h_approval(stet_ctx *ctx, stet_bytes input);
/* Return the input; the same after a step "one" that tells "quick", after sleeping "cool down" for
 * an hour, after fixture_pause(). */
int h_echo(stet_ctx *ctx, stet_bytes input);
int h_quick(stet_ctx *ctx, stet_bytes input);
int h_hour(stet_ctx *ctx, stet_bytes input);
int h_pauses(stet_ctx *ctx, stet_bytes input);
/* Sleep "nap" for a second, return "woke". */
int h_short_nap(stet_ctx *ctx, stet_bytes input);
/* Fail: "no luck" after telling "entered" and a step that tells "first", "the bank is closed" at
 * once (both may be retried), "no such account" (for good). */
int h_unlucky(stet_ctx *ctx, stet_bytes input);
int h_bank_closed(stet_ctx *ctx, stet_bytes input);
int h_no_account(stet_ctx *ctx, stet_bytes input);
/* Return what a call of t.nap returned. */
int h_caller(stet_ctx *ctx, stet_bytes input);
/* Return the input after a step that passes common_door. */
int h_door(stet_ctx *ctx, stet_bytes input);
extern gate common_door;
/* A service "t" and an object "o", both with quick (h_echo), nap (h_hour), approval, caller, fails
 * (h_bank_closed), permanent (h_no_account) and door. */
extern const fixture_service common_services[];

/* ---- runs ------------------------------------------------------------------------------------ */

/* A copy of what stet_run_get() says; "" for what is absent. */
typedef struct fixture_run {
    stet_status status;
    uint32_t    attempt, attempts_max;
    int         code, cause;
    int32_t     priority;
    int64_t     created_ms, due_ms, ended_ms, deadline_ms;
    uint64_t    facts;
    char        handler[300], key[64], reason[256], group[64], labels[256];
    char        parent[STET_ID_TEXT_MAX];
    char        error[1024], origin[256], input[256], result[256], idempotency_key[64], worker[64];
    bool        is_served;
} fixture_run;

fixture_run fixture_look(stet_engine *e, const stet_run_id *run);
bool        fixture_is_gone(stet_engine *e, const stet_run_id *run); /* removed */
/* What stet_why() says, in one line. */
typedef struct fixture_verdict {
    char kind[32], text[512], help[256];
} fixture_verdict;
fixture_verdict fixture_why(stet_engine *e, const stet_run_id *run);
void        fixture_await_status(stet_engine *e, const stet_run_id *run, stet_status status);
/* How many runs match; NULL: all. */
int fixture_count(stet_engine *e, const stet_run_filter *filter);
/* How many facts of this kind and name (NULL: any) the run has. */
int fixture_facts(stet_engine *e, const stet_run_id *run, const char *kind, const char *name);
/* Start with a text as input. */
stet_run_id fixture_start(stet_engine *e, const char *handler, const char *input,
                          const stet_start_options *options);
/* Wait until it has completed and compare the result. */
void fixture_expect(const char *file, int line, stet_engine *e, const stet_run_id *run,
                    const char *want);
/* Wait until it ended with this answer; the result, to be freed. */
stet_result fixture_ended(const char *file, int line, stet_engine *e, const stet_run_id *run,
                          int answer);
void        fixture_answer(const char *file, int line, stet_engine *e, const stet_run_id *run,
                           int answer);
#define EXPECT_RESULT(e, run, want) fixture_expect(__FILE__, __LINE__, e, run, want)
/* The same, where only the answer counts. */
#define EXPECT_ANSWER(e, run, answer) fixture_answer(__FILE__, __LINE__, e, run, answer)
#define EXPECT_END(e, run, answer) fixture_ended(__FILE__, __LINE__, e, run, answer)

/* In a handler: suspend until the test says fixture_go_on(). */
int fixture_pause(stet_ctx *ctx);
/* Wait until the run is suspended in fixture_pause(). */
void fixture_paused(stet_engine *e, const stet_run_id *run);
void fixture_go_on(stet_engine *e, const stet_run_id *run);
/* All that: the worker goes while the run is paused, another one comes and the run goes on
 * there. */
void fixture_replay(fixture *f, const stet_run_id *run, const fixture_service *services);
void fixture_replay_with(fixture *f, const stet_run_id *run, const stet_handler *handlers);

/* Bytes as a number; 0 for none. */
long fixture_number(stet_bytes bytes);
bool fixture_is(stet_bytes bytes, const char *text);

/* ---- log ------------------------------------------------------------------------------------- */

/* How many records so far have `part` in their message. */
int fixture_logged(fixture *f, const char *part);

#endif
