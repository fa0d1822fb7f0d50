/* The platform port: clocks, randomness, memory, threads and waiting.
 *
 * Engine and executor reach these only through here. There are two implementations: real.c on
 * pthreads, and sim.c, a deterministic single-threaded one in which threads are fibers, time is
 * virtual and one seed gives one history.
 *
 * Locks and conditions are embedded storage; they must be initialised and destroyed through the
 * same platform. A mutex is not recursive.
 */
#ifndef STET__PLATFORM_H
#define STET__PLATFORM_H

#include <stdio.h>

#include "util/util.h"

typedef struct stet__mutex {
    _Alignas(16) unsigned char space[64];
} stet__mutex;
typedef struct stet__cond {
    _Alignas(16) unsigned char space[64];
} stet__cond;
typedef struct stet__thread stet__thread;
typedef struct stet__platform stet__platform;

#define STET__FOREVER INT64_MAX

typedef struct stet__platform_ops {
    const char *name;
    /* Milliseconds since 1970; may jump. */
    int64_t (*wall_us)(stet__platform *p);
    /* Microseconds of a clock that never jumps and also counts while the machine sleeps. */
    int64_t (*mono_us)(stet__platform *p);
    /* Cryptographic quality in real.c; from the seed in sim.c. Cannot fail. */
    void (*random)(stet__platform *p, void *out, size_t len);

    /* STET_OK or STET_ENOMEM/STET_EBUSY. All signals are blocked in the new thread. */
    int (*thread_start)(stet__platform *p, stet__thread **out, const char *name,
                        void (*fn)(void *arg), void *arg);
    /* Wait for its end and free it. */
    void (*thread_join)(stet__platform *p, stet__thread *t);
    /* Something unique among living threads, never NULL. */
    const void *(*thread_self)(stet__platform *p);
    size_t (*processors)(stet__platform *p); /* threads that can really run at once */

    int  (*mutex_init)(stet__platform *p, stet__mutex *m);
    void (*mutex_destroy)(stet__platform *p, stet__mutex *m);
    void (*lock)(stet__platform *p, stet__mutex *m);
    void (*unlock)(stet__platform *p, stet__mutex *m);

    int  (*cond_init)(stet__platform *p, stet__cond *c);
    void (*cond_destroy)(stet__platform *p, stet__cond *c);
    /* Until signalled or mono_us() >= until_us (STET__FOREVER: no limit). May wake without cause.
     * false: the time is up. */
    bool (*cond_wait)(stet__platform *p, stet__cond *c, stet__mutex *m, int64_t until_us);
    void (*cond_signal)(stet__platform *p, stet__cond *c);
    void (*cond_broadcast)(stet__platform *p, stet__cond *c);
} stet__platform_ops;

struct stet__platform {
    stet__alloc               alloc; /* first: a platform is an allocator */
    const stet__platform_ops *ops;
};

/* The real one; stateless, lives for ever, shared by all engines of the process. */
stet__platform *stet__platform_real(void);

static inline int64_t stet__wall_us(stet__platform *p) { return p->ops->wall_us(p); }
static inline int64_t stet__wall_ms(stet__platform *p) { return stet__wall_us(p) / 1000; }
static inline int64_t stet__mono_us(stet__platform *p) { return p->ops->mono_us(p); }
static inline int64_t stet__mono_ms(stet__platform *p) { return p->ops->mono_us(p) / 1000; }
/* So long from now; STET__FOREVER if no clock comes there. */
static inline int64_t stet__mono_in(stet__platform *p, int64_t ms)
{
    return stet__time_add(stet__mono_us(p), stet__ms_us(ms));
}
static inline void stet__lock(stet__platform *p, stet__mutex *m) { p->ops->lock(p, m); }
static inline void stet__unlock(stet__platform *p, stet__mutex *m) { p->ops->unlock(p, m); }
static inline void stet__signal(stet__platform *p, stet__cond *c) { p->ops->cond_signal(p, c); }
static inline void stet__broadcast(stet__platform *p, stet__cond *c) { p->ops->cond_broadcast(p, c); }
static inline bool stet__wait(stet__platform *p, stet__cond *c, stet__mutex *m, int64_t until_us)
{
    return p->ops->cond_wait(p, c, m, until_us);
}

/* ---- locks that begin and end together (locks.c) --------------------------------------------- */

#define STET__LOCKS_MAX 8
/* Each list ends with a NULL. */
typedef struct stet__locks {
    stet__mutex *mutexes[STET__LOCKS_MAX];
    stet__cond  *conds[STET__LOCKS_MAX];
} stet__locks;
/* All of them, or none and STET_ENOMEM. */
int  stet__locks_begin(stet__platform *p, const stet__locks *locks);
void stet__locks_end(stet__platform *p, const stet__locks *locks);

/* ---- the simulator (sim.c) ------------------------------------------------------------------
 *
 * A sim owns virtual time and all fibers. A node is a platform of its own: its memory and fibers
 * vanish together when it crashes. Fibers switch at lock, unlock, wait and at stet__sim_yield();
 * which one runs next is drawn from the seed, so races are explored. When every fiber waits, time
 * jumps to the earliest deadline.
 */
typedef struct stet__sim stet__sim;

stet__sim      *stet__sim_new(uint64_t seed);
/* The same with stacks of that size for its fibers, and a clock that moves by itself only once in so many
 * events, where it else does with each: a test of days must not be late by what the code in it costs. */
stet__sim      *stet__sim_new_with(uint64_t seed, size_t stack_bytes, uint32_t events_a_us);
void            stet__sim_free(stet__sim *sim);
/* As a new one of that seed, but the stacks of its fibers are kept: mapping them takes long. */
void            stet__sim_restart(stet__sim *sim, uint64_t seed);
stet__platform *stet__sim_node_new(stet__sim *sim);
/* Memory, fibers, locks: gone, as if the process was killed. From a fiber of another node, from
 * outside stet__sim_run(), or from one of its own fibers (then it does not return). */
void stet__sim_node_crash(stet__sim *sim, stet__platform *node);
bool stet__sim_node_is_alive(stet__sim *sim, stet__platform *node);
/* Add a skew to what wall_us() of that node says. */
void stet__sim_node_skew(stet__sim *sim, stet__platform *node, int64_t skew_ms);
/* A node's fibers do not run until mono time `until_us` (SIGSTOP). */
void stet__sim_node_pause(stet__sim *sim, stet__platform *node, int64_t until_us);
/* From now on one in so many allocations of that node fails, by a generator of its own; 0: none. */
void stet__sim_node_memory(stet__sim *sim, stet__platform *node, uint64_t fails_one_in);
/* Has everything been given back that the node ever allocated? */
bool stet__sim_node_is_clean(const stet__sim *sim, const stet__platform *node);
/* How many allocations failed, on all nodes. */
uint64_t stet__sim_memory_failures(const stet__sim *sim);
int  stet__sim_spawn(stet__sim *sim, stet__platform *node, void (*fn)(void *arg), void *arg);
/* Run until every spawned root fiber ended (true), or virtual time reaches until_us or nothing can
 * ever run again (false). Engine threads are not roots. */
bool stet__sim_run(stet__sim *sim, int64_t until_us);
/* From a fiber: stet__sim_run() returns (false unless all roots ended) when this fiber next switches. */
void stet__sim_stop(stet__sim *sim);
void stet__sim_yield(stet__sim *sim);
/* Instead of stet__sim_run(), for who moves the clock himself. Run, roots or not, until no fiber can go on
 * without time passing (true), or for so many events (false: more can run, or stet__sim_stop()). */
bool stet__sim_settle(stet__sim *sim, uint64_t events);
/* When the next fiber can go on; STET__FOREVER: none ever will by itself. */
int64_t stet__sim_next_us(stet__sim *sim);
/* Nothing can run now: it is later. Not beyond stet__sim_next_us(). */
void stet__sim_leap(stet__sim *sim, int64_t to_us);
int64_t  stet__sim_now_us(stet__sim *sim);
uint64_t stet__sim_random(stet__sim *sim); /* for faults and workloads, from the same seed */
/* Every fiber and what it waits for: the first thing to look at when stet__sim_run() says false. */
void stet__sim_dump(stet__sim *sim, FILE *out);

#endif
