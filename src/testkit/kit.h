/* What the files of the test kit share. See include/stet/test.h for what it promises.
 *
 *   kit.c     life: the simulated machine, the engine on it, calls from outside
 *   client.c  what a client does: start, signal, look
 *   time.c    letting time pass
 *   points.c  where the engine can die, in numbers and words; failing commits; bodies counted
 *   replay.c  a handler executed again from its journal, without effect
 *   check.c   what holds for every run; crash everywhere
 *
 * A kit is one simulator (platform/sim.c) with two nodes at a time: one owns the database and never
 * dies, the other is the process under test. The caller stands outside: whatever needs the engine
 * is a fiber of that process, and dies with it.
 *
 * Runs on: the thread that made the kit, all of it.
 */
#ifndef STET__KIT_H
#define STET__KIT_H

#include <stet/test.h>

#include "cli/cli.h"
#include "engine/engine.h"
#include "store/memory.h"
#include "testkit/shim_store.h"

/* What the kit puts between executor and engine, to see bodies come and go. */
typedef struct kit_host {
    stet__host_ops        ops; /* first: the executor has a pointer to it */
    const stet__host_ops *inner;
    stet_test            *kit;
} kit_host;

/* A step of a run, as it looks from outside. */
typedef struct kit_step {
    struct kit_step *next;        /* of its run */
    size_t           bodies;      /* entered */
    uint32_t         entered;     /* in which life one was whose end is not on record; 0: none */
    uint64_t         revision;    /* of the first fact of it that counts; 0: none */
    bool             is_recorded; /* durable, not forgotten: its body must not be entered again */
} kit_step;

/* A run: how far it has taken its inbox in, because a rewind counts from there. */
typedef struct kit_run {
    struct kit_run *next;
    kit_step       *steps;
    uint64_t        taken;
    int64_t         generation;
    bool            is_undoing; /* its rollback has begun: a rewind comes too late */
} kit_run;

typedef struct kit_fault {
    int      code;
    unsigned times;
} kit_fault;

struct stet_test {
    stet__alloc      *alloc;  /* the real one: what lives longer than the engine */
    stet_test_options options;
    stet_options      engine_options;
    bool              has_engine_options;
    stet_app         *app;    /* what is registered */

    /* The machine. */
    stet__sim        *sim;
    stet__platform   *owner;
    stet__memory_db  *db;
    stet_store       *look;   /* the kit's own handle */
    int64_t           wall_ms; /* the time when the simulator's clock was 0 */
    int64_t           spent_us; /* until then at the latest bodies are at work */

    /* The process under test. */
    stet__platform   *node;   /* NULL: none */
    stet_engine      *engine; /* NULL: none, or not open yet */
    uint32_t          life;   /* 1, 2 … */
    bool              is_up;  /* opened, registered, started */
    uint64_t          events_max; /* without time passing; then something runs without end */
    bool              is_inside; /* code of handlers and bodies runs */
    kit_host          host;
    shim_script       script;

    /* Points. */
    uint64_t          points, armed; /* 0: none */
    bool              is_hit;        /* what was ordered has happened */
    bool              is_dead_hit;   /* … and the engine died of it */
    char              where[256];
    kit_fault        *faults;
    size_t            n_faults;

    /* Outside the engine. */
    stet__map         steps;   /* run and step -> kit_step */
    stet__map         runs;    /* run -> kit_run */
    kit_run          *all_runs;
    stet_run_id      *started; /* acknowledged */
    size_t            n_started;
    uint64_t          calls;   /* makes idempotency keys */
    char              signal_key[32]; /* of the last signal that was written */
    char              broken[512]; /* the first promise that was broken, or "" */
};

/* ---- kit.c ---------------------------------------------------------------------------------- */

/* As new, of this seed; what is registered goes too. */
int  stet__kit_begin(stet_test *kit);
void stet__kit_end(stet_test *kit);
/* STET_OK; STET_EUSAGE in a handler or body. */
int  stet__kit_enter(stet_test *kit, const char *call);
/* Call fn in the process under test. `tries`, if given, counts how often it was begun. */
int  stet__kit_do(stet_test *kit, int (*fn)(stet_engine *engine, void *arg), void *arg, int *tries);
/* The process under test is there, with everything registered. */
int  stet__kit_up(stet_test *kit);
/* It ends where it is. From inside it does not return. */
void stet__kit_die(stet_test *kit);
/* Stops in order. */
void stet__kit_down(stet_test *kit);

/* ---- time.c --------------------------------------------------------------------------------- */

/* Let run what can until all waits. STET_OK; STET_ETIMEOUT, something runs without end. */
int stet__kit_settle(stet_test *kit);
/* All waits: it is the time of the next one, but not beyond until_us. False: nothing waits until
 * then. */
bool stet__kit_leap(stet_test *kit, int64_t until_us);
int64_t stet__kit_now_us(stet_test *kit);

/* ---- points.c ------------------------------------------------------------------------------- */

void stet__kit_watch(stet_test *kit); /* the engine was opened and not started */
shim_mode stet__kit_choose(void *kit, const stet_unit *units, size_t n, int *code);
void stet__kit_applied(void *kit, const stet_unit *unit);
void stet__kit_crash(void *kit);
void stet__kit_points_free(stet_test *kit);

/* ---- replay.c ------------------------------------------------------------------------------- */

int stet__kit_replay(stet_engine *e, stet_id run);

#endif
