/* The simulated platform: one thread, fibers, virtual time, and a seed that decides everything.
 *
 * Owns: the fibers of all nodes and the one that runs now, the virtual clock, each node's memory.
 * A fiber is a coroutine of exec/co.h; the scheduler is whoever called stet__sim_run().
 *
 * Invariants:
 *  1. One seed, one history: choices come from sim->schedule alone, lists are ordered by what
 *     happened, nothing is ever ordered by an address. Clocks, randomness and workloads have
 *     generators of their own so that they do not disturb each other.
 *  2. A fiber is in sim->ready exactly when its state is FIBER_READY; in one wait list exactly when
 *     it waits for a mutex or a condition.
 *  3. Whoever holds a mutex has it in its `held` list, so that a crash can let go of it.
 *  4. A mutex of another node is a lock of a server that only happens to live in this process (the
 *     memory store). Its holder keeps running while its node is paused, and is not switched away
 *     from inside its critical section: killing a client never leaves a server half-way.
 *  5. Every clock call and every switch costs a microsecond, or in a calm simulation a part of one, so no
 *     loop lasts for ever.
 *  6. A fiber is interrupted at locks, waits and clock calls only, and not inside the critical section of a server.
 */
#include "platform/platform.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "exec/co.h"

#define SIM_PROCESSORS      2
#define SIM_WALL_START_MS   INT64_C(1767225600000) /* 2026-01-01 00:00:00 UTC */
#define SIM_MONO_START_US   1000                   /* not 0, which often means "unset" */
#define SIM_STACK_BYTES     ((size_t)256 * 1024)
#define SIM_STACKS_KEPT     64
#define SIM_SPURIOUS_ONE_IN 64

/* Blocks up to this size come from the node's chunks, in sizes of their own; larger ones from malloc(). With
 * AddressSanitizer all do, so that it sees where each one ends and that it was freed. */
#ifdef STET__ASAN
#define SIM_SMALL_MAX ((size_t)0)
#else
#define SIM_SMALL_MAX ((size_t)32 * 1024)
#endif
#define SIM_FINE_MAX    ((size_t)1024) /* in steps of 16 to here, then in powers of two */
#define SIM_SIZES       (64 + 5)
#define SIM_CHUNK_BYTES ((size_t)256 * 1024)

typedef struct sim_node     sim_node;
typedef struct sim_block    sim_block;
typedef struct sim_large    sim_large;
typedef struct sim_chunk    sim_chunk;
typedef struct stet__thread sim_fiber;

typedef enum fiber_state {
    FIBER_READY,
    FIBER_LOCK,
    FIBER_COND,
    FIBER_JOIN,
    FIBER_DONE
} fiber_state;

typedef struct sim_waiters {
    sim_fiber *first, *last;
    size_t     n;
} sim_waiters;

typedef struct sim_mutex {
    sim_fiber        *owner;
    sim_waiters       waiters;
    struct sim_mutex *held_next;
    sim_node         *node; /* whose memory it is in */
    uint64_t          id;
} sim_mutex;

typedef struct sim_cond {
    sim_waiters waiters;
    sim_node   *node;
    uint64_t    id;
} sim_cond;

_Static_assert(sizeof(sim_mutex) <= sizeof(stet__mutex), "stet__mutex is too small");
_Static_assert(sizeof(sim_cond) <= sizeof(stet__cond), "stet__cond is too small");

struct stet__thread {
    stet__co *co;
    sim_node *node;
    uint64_t  id;
    char      name[32];
    void (*fn)(void *arg);
    void       *arg;
    bool        is_root;
    fiber_state state;
    size_t      ready_at; /* its place in sim->ready */
    size_t      timed_at; /* FIBER_COND with a limit: its place in sim->timed */
    sim_fiber  *wait_prev, *wait_next;
    sim_mutex  *mutex; /* FIBER_LOCK: wanted */
    sim_cond   *cond;  /* FIBER_COND */
    int64_t     until_us;
    bool        timed_out;
    sim_fiber  *joined; /* FIBER_JOIN: whose end it waits for */
    sim_mutex  *held;
    unsigned    foreign_held; /* how many of them belong to another node */
    sim_fiber  *prev, *next;  /* all fibers, oldest first */
};

/* The header of each allocation; keeps what follows aligned to 16. */
struct sim_block {
    _Alignas(16) sim_block *next; /* in the list of free ones of its size */
    uint32_t size;                /* which of SIM_SIZES; SIM_SIZES: a large one */
    uint32_t is_taken;
};

struct sim_large {
    _Alignas(16) sim_large *prev;
    sim_large *next;
    size_t     bytes; /* of what follows the block */
    sim_block  block; /* last: what was asked for begins behind it */
};

struct sim_chunk {
    _Alignas(16) sim_chunk *next;
    size_t used;
};

_Static_assert(sizeof(sim_large) == offsetof(sim_large, block) + sizeof(sim_block),
               "what follows a block follows a large one");

typedef struct sim_timed {
    int64_t    until_us;
    sim_fiber *fiber;
} sim_timed;

struct sim_node {
    stet__platform platform; /* first: a platform is the node */
    stet__sim     *sim;
    unsigned       id;
    bool           is_alive;
    int64_t        skew_ms;
    int64_t        paused_until_us;
    stet__rng      random;
    stet__rng      memory; /* which allocations fail */
    uint64_t       fails_one_in;
    size_t         taken; /* blocks */
    sim_block     *free[SIM_SIZES];
    sim_chunk     *chunks; /* the first one is taken from */
    sim_large     *large;
    stet__co_owner stacks;
    sim_node      *next;
};

struct stet__sim {
    stet__alloc  *alloc;
    stet__co_pool stacks;
    stet__co_maps maps; /* of stacks the nodes had for coroutines of their own */
    stet__rng     schedule, workload;
    unsigned      switch_bits; /* drawn from the seed: some histories are calm, some frantic */
    uint64_t
        places; /* the next ones, switch_bits wide each: its lowest bit is set if it is taken */
    unsigned places_left;
    uint64_t
        calm; /* so many places to be interrupted at are passed before the next one that is taken */
    int64_t     now_us;
    uint32_t    events, events_a_us; /* what a microsecond is made of */
    sim_node   *nodes;
    unsigned    node_count;
    uint64_t    fiber_count, lock_count;
    size_t      fibers_alive, roots_alive;
    uint64_t    memory_failures;
    bool        is_stopped;
    bool        for_roots;   /* the call that runs ends with them */
    int64_t     until_us;    /* … or then */
    uint64_t    events_left; /* … or after so many */
    sim_fiber  *chosen;      /* by the one that ran last: next */
    sim_chunk  *chunks;      /* of nodes that are gone */
    sim_fiber  *first, *last;
    sim_fiber **ready;
    size_t      ready_n, ready_cap;
    sim_timed  *timed; /* those who wait until a time, as a heap: the first one's is the earliest */
    size_t      timed_n, timed_cap;
    sim_fiber  *current;  /* NULL: nobody, the caller of stet__sim_run() or one before it */
    sim_node   *mapping;  /* who answers for stacks that are mapped now */
    sim_fiber   outside;  /* stands for that caller in locks */
    sim_node   *crashing; /* by one of its own fibers: the scheduler must do it */
};

/* ---- misuse -------------------------------------------------------------------------------- */

/* A lock used wrongly is a bug of the simulated program that real threads would hide. */
_Noreturn static void
sim_die(stet__sim *sim, const char *what)
{
    fprintf(stderr, "stet: simulator: %s\n", what);
    stet__sim_dump(sim, stderr);
    abort();
}

static sim_node *
sim_node_of(stet__platform *p)
{
    return (sim_node *)(void *)p;
}

static sim_fiber *
sim_me(stet__sim *sim)
{
    return sim->current != NULL ? sim->current : &sim->outside;
}

/* ---- fibers that can run, fibers that wait --------------------------------------------------- */

static uint64_t
sim_draw(stet__sim *sim, uint64_t below)
{
    return ((stet__rng_next(&sim->schedule) >> 32) * below) >> 32;
}

/* Each place is taken with a chance of one in 1 << switch_bits. There are many more of them than of anything else that is
 * drawn, so it is drawn ahead how many are passed until then. */
static void
sim_draw_calm(stet__sim *sim)
{
    /* The lowest bit of each place in 64 bits, by switch_bits. */
    static const uint64_t lowest[] = { 0,
                                       UINT64_MAX,
                                       UINT64_C(0x5555555555555555),
                                       UINT64_C(0x1249249249249249),
                                       UINT64_C(0x1111111111111111),
                                       UINT64_C(0x0084210842108421) };
    uint64_t              drawn, any;
    /* 64 / switch_bits, and 65536 / switch_bits rounded up: divisions take long. */
    static const uint8_t  places[] = { 0, 64, 32, 21, 16, 12 };
    static const uint16_t part[] = { 0, 0, 32768, 21846, 16384, 13108 };
    unsigned              i;

    sim->calm = 0;
    while (sim->places == 0) {
        sim->calm += sim->places_left;
        any = drawn = stet__rng_next(&sim->schedule);
        for (i = 1; i < sim->switch_bits; i++)
            any |= drawn >> i;
        sim->places = ~any & lowest[sim->switch_bits];
        sim->places_left = places[sim->switch_bits];
    }
    i = (unsigned)__builtin_ctzll(sim->places);
    if (sim->switch_bits > 1)
        i = i * part[sim->switch_bits] >> 16;
    sim->calm += i;
    sim->places = sim->places >> i * sim->switch_bits >> (sim->switch_bits - 1) >> 1;
    sim->places_left -= i + 1;
}

/* Is this place taken? */
static inline bool
sim_is_taken(stet__sim *sim)
{
    if (STET__LIKELY(sim->calm > 0)) {
        sim->calm--;
        return false;
    }
    sim_draw_calm(sim);
    return sim->current != NULL;
}

static void
sim_ready_add(stet__sim *sim, sim_fiber *f)
{
    f->state = FIBER_READY;
    f->ready_at = sim->ready_n;
    sim->ready[sim->ready_n++] = f; /* there is room for every fiber: sim_ready_reserve */
}

static void
sim_ready_remove(stet__sim *sim, sim_fiber *f)
{
    sim_fiber *moved = sim->ready[--sim->ready_n];

    sim->ready[f->ready_at] = moved;
    moved->ready_at = f->ready_at;
}

static bool
sim_ready_reserve(stet__sim *sim, size_t n)
{
    size_t      cap = sim->ready_cap == 0 ? 16 : sim->ready_cap;
    sim_fiber **grown;

    while (cap < n)
        cap *= 2;
    if (cap == sim->ready_cap)
        return true;
    if ((grown = stet__grow(sim->alloc, sim->ready, cap * sizeof(sim_fiber *))) == NULL)
        return false;
    sim->ready = grown;
    sim->ready_cap = cap;
    return true;
}

static bool
sim_timed_reserve(stet__sim *sim, size_t n)
{
    size_t     cap = sim->timed_cap == 0 ? 16 : sim->timed_cap;
    sim_timed *grown;

    while (cap < n)
        cap *= 2;
    if (cap == sim->timed_cap)
        return true;
    if ((grown = stet__grow(sim->alloc, sim->timed, cap * sizeof(sim_timed))) == NULL)
        return false;
    sim->timed = grown;
    sim->timed_cap = cap;
    return true;
}

static void
sim_timed_put(stet__sim *sim, size_t at, sim_timed t)
{
    sim->timed[at] = t;
    t.fiber->timed_at = at;
}

/* The place `at` is free: up or down from there to where t belongs. */
static void
sim_timed_sift(stet__sim *sim, size_t at, sim_timed t)
{
    size_t child;

    for (; at > 0 && sim->timed[(at - 1) / 2].until_us > t.until_us; at = (at - 1) / 2)
        sim_timed_put(sim, at, sim->timed[(at - 1) / 2]);
    for (; (child = at * 2 + 1) < sim->timed_n; at = child) {
        if (child + 1 < sim->timed_n && sim->timed[child + 1].until_us < sim->timed[child].until_us)
            child++;
        if (sim->timed[child].until_us >= t.until_us)
            break;
        sim_timed_put(sim, at, sim->timed[child]);
    }
    sim_timed_put(sim, at, t);
}

static void
sim_timed_add(stet__sim *sim, sim_fiber *f)
{
    if (f->until_us != STET__FOREVER)
        sim_timed_sift(sim, sim->timed_n++, (sim_timed){ f->until_us, f });
}

static void
sim_timed_remove(stet__sim *sim, sim_fiber *f)
{
    sim_timed last;

    if (f->until_us == STET__FOREVER)
        return;
    last = sim->timed[--sim->timed_n];
    if (last.fiber != f)
        sim_timed_sift(sim, f->timed_at, last);
}

static void
sim_waiters_add(sim_waiters *w, sim_fiber *f)
{
    f->wait_next = NULL;
    f->wait_prev = w->last;
    if (w->last != NULL)
        w->last->wait_next = f;
    else
        w->first = f;
    w->last = f;
    w->n++;
}

static void
sim_waiters_remove(sim_waiters *w, sim_fiber *f)
{
    if (f->wait_prev != NULL)
        f->wait_prev->wait_next = f->wait_next;
    else
        w->first = f->wait_next;
    if (f->wait_next != NULL)
        f->wait_next->wait_prev = f->wait_prev;
    else
        w->last = f->wait_prev;
    f->wait_prev = f->wait_next = NULL;
    w->n--;
}

static void
sim_wake(stet__sim *sim, sim_waiters *w, sim_fiber *f)
{
    sim_waiters_remove(w, f);
    if (f->state == FIBER_COND)
        sim_timed_remove(sim, f);
    sim_ready_add(sim, f);
}

static void
sim_wake_all(stet__sim *sim, sim_waiters *w)
{
    while (w->first != NULL)
        sim_wake(sim, w, w->first);
}

static bool
sim_fiber_can_run(const sim_fiber *f)
{
    return f->node->paused_until_us <= f->node->sim->now_us || f->foreign_held > 0;
}

/* May one more fiber run? */
static bool
sim_goes_on(const stet__sim *sim)
{
    return sim->now_us < sim->until_us && sim->events_left > 0 && !sim->is_stopped &&
           (sim->roots_alive > 0 || !sim->for_roots);
}

static void
sim_tick(stet__sim *sim)
{
    if (++sim->events < sim->events_a_us)
        return;
    sim->events = 0;
    sim->now_us++;
}

/* From now on f runs. */
static void
sim_turn(stet__sim *sim, sim_fiber *f)
{
    sim->events_left--;
    sim_tick(sim);
    sim->current = f;
    if (sim->mapping != f->node) {
        sim->mapping = f->node;
        (void)stet__co_owner_set(&f->node->stacks);
    }
}

static sim_fiber *sim_choose(stet__sim *sim);

/* Can nobody but the fiber that runs now be next? */
static bool
sim_is_alone(const stet__sim *sim)
{
    return sim->ready_n == 1 && (sim->timed_n == 0 || sim->timed[0].until_us > sim->now_us) &&
           sim->crashing == NULL && sim_fiber_can_run(sim->current) && sim_goes_on(sim);
}

/* Let another one go first. The caller has set its state, or stays ready. It may well be on the stack
 * of a coroutine it resumed; co.h allows that. Often it is its own turn again, and then nothing is switched. */
static void
sim_switch(stet__sim *sim)
{
    sim_fiber *f = sim->current, *next = NULL;

    if (f->state == FIBER_READY && sim_is_alone(sim)) {
        sim->events_left--;
        sim_tick(sim);
        return;
    }
    if (f->state != FIBER_READY)
        sim_ready_remove(sim, f);
    if (sim->crashing == NULL && sim_goes_on(sim))
        next = sim_choose(sim);
    if (next != NULL && (next == f || stet__co_can_pass())) {
        sim_turn(sim, next);
        if (next != f)
            stet__co_pass(f->co, next->co);
        return;
    }
    sim->chosen = next;
    stet__co_yield(f->co);
}

/* Another fiber may go first here, if the seed says so. */
static inline void
sim_maybe_switch(stet__sim *sim)
{
    if (sim_is_taken(sim) && sim->current->foreign_held == 0)
        sim_switch(sim);
}

/* ---- clocks and randomness ------------------------------------------------------------------ */

STET__NOINLINE static void
sim_look_switch(stet__sim *sim)
{
    sim_maybe_switch(sim);
}

/* Looking at the clock is a place to be interrupted: there are many of them in code that takes no lock. */
static inline int64_t
sim_look(stet__sim *sim)
{
    if (STET__LIKELY(sim->calm > 0))
        sim->calm--;
    else
        sim_look_switch(sim);
    sim_tick(sim);
    return sim->now_us;
}

static int64_t
sim_mono_us(stet__platform *p)
{
    return sim_look(sim_node_of(p)->sim);
}

static int64_t
sim_wall_us(stet__platform *p)
{
    return sim_look(sim_node_of(p)->sim) + (SIM_WALL_START_MS + sim_node_of(p)->skew_ms) * 1000;
}

static void
sim_random(stet__platform *p, void *out, size_t len)
{
    uint8_t *at = out;
    uint64_t r;
    size_t   n, i;

    /* Byte by byte from the number, so that the bytes are the same on every machine. */
    for (; len > 0; len -= n, at += n) {
        r = stet__rng_next(&sim_node_of(p)->random);
        n = len < 8 ? len : 8;
        for (i = 0; i < n; i++)
            at[i] = (uint8_t)(r >> (8 * i));
    }
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Which size a block of so many bytes has; SIM_SIZES: a large one. */
static unsigned
sim_size_of(size_t bytes)
{
    if (bytes <= SIM_FINE_MAX && bytes <= SIM_SMALL_MAX)
        return (unsigned)((bytes + 15) / 16) - 1;
    if (bytes > SIM_SMALL_MAX)
        return SIM_SIZES;
    return (unsigned)(SIM_FINE_MAX / 16) + 63 -
           (unsigned)__builtin_clzll((bytes - 1) / SIM_FINE_MAX);
}

static size_t
sim_size_bytes(unsigned size)
{
    return size < SIM_FINE_MAX / 16 ? ((size_t)size + 1) * 16
                                    : SIM_FINE_MAX * 2 << (size - SIM_FINE_MAX / 16);
}

/* From the chunks: none of this size was given back. */
static sim_block *
sim_small_new(sim_node *node, unsigned size)
{
    size_t     bytes = sizeof(sim_block) + sim_size_bytes(size);
    sim_block *b;
    sim_chunk *c = node->chunks;

    if (c == NULL || SIM_CHUNK_BYTES - c->used < bytes) {
        if ((c = node->sim->chunks) != NULL)
            node->sim->chunks = c->next;
        else if ((c = malloc(SIM_CHUNK_BYTES)) == NULL)
            return NULL;
        c->used = sizeof *c;
        c->next = node->chunks;
        node->chunks = c;
    }
    b = (sim_block *)(void *)((char *)c + c->used);
    c->used += bytes;
    b->size = size;
    return b;
}

static inline sim_block *
sim_small_get(sim_node *node, unsigned size)
{
    sim_block *b = node->free[size];

    if (!STET__LIKELY(b != NULL))
        return sim_small_new(node, size);
    node->free[size] = b->next;
    return b;
}

static sim_large *
sim_large_of(sim_block *b)
{
    return (sim_large *)(void *)((char *)b - offsetof(sim_large, block));
}

static sim_block *
sim_large_get(sim_node *node, size_t bytes)
{
    sim_large *l = bytes <= SIZE_MAX - sizeof *l ? malloc(sizeof *l + bytes) : NULL;

    if (l == NULL)
        return NULL;
    l->prev = NULL;
    l->next = node->large;
    if (l->next != NULL)
        l->next->prev = l;
    node->large = l;
    l->bytes = bytes;
    l->block.size = SIM_SIZES;
    return &l->block;
}

static void
sim_large_free(sim_node *node, sim_large *l)
{
    if (l->prev != NULL)
        l->prev->next = l->next;
    else
        node->large = l->next;
    if (l->next != NULL)
        l->next->prev = l->prev;
    free(l);
}

static size_t
sim_block_bytes(sim_block *b)
{
    return b->size < SIM_SIZES ? sim_size_bytes(b->size) : sim_large_of(b)->bytes;
}

static inline void
sim_block_free(sim_node *node, sim_block *b)
{
    if (!b->is_taken)
        sim_die(node->sim, "a block of memory is freed twice");
    b->is_taken = false;
    node->taken--;
    if (b->size == SIM_SIZES) {
        sim_large_free(node, sim_large_of(b));
        return;
    }
    b->next = node->free[b->size];
    node->free[b->size] = b;
}

static void *
sim_get(stet__alloc *a, void *old, size_t bytes)
{
    sim_node  *node = (sim_node *)(void *)a;
    sim_block *before = old != NULL ? (sim_block *)old - 1 : NULL;
    sim_block *after;
    unsigned   size;

    if (!node->is_alive)
        sim_die(node->sim, "memory of a crashed node is used");
    if (bytes == 0) {
        if (before != NULL)
            sim_block_free(node, before);
        return NULL;
    }
    if (node->fails_one_in != 0 && stet__rng_next(&node->memory) % node->fails_one_in == 0) {
        node->sim->memory_failures++;
        return NULL;
    }
    size = sim_size_of(bytes);
    if (before != NULL && size == before->size && size < SIM_SIZES)
        return old;
    if ((after = size < SIM_SIZES ? sim_small_get(node, size) : sim_large_get(node, bytes)) == NULL)
        return NULL; /* a failed growth leaves the old one valid */
    after->is_taken = true;
    node->taken++;
    if (before != NULL) {
        memcpy(after + 1, old, sim_block_bytes(before) < bytes ? sim_block_bytes(before) : bytes);
        sim_block_free(node, before);
    }
    return after + 1;
}

/* All that a node has, whoever still refers to it. */
static void
sim_memory_free(sim_node *node)
{
    sim_chunk *c;

    while (node->large != NULL)
        sim_large_free(node, node->large);
    while ((c = node->chunks) != NULL) {
        node->chunks = c->next;
        c->next = node->sim->chunks;
        node->sim->chunks = c;
    }
}

/* ---- fibers -------------------------------------------------------------------------------- */

static void
sim_fiber_main(stet__co *co, void *arg)
{
    sim_fiber *f = arg;

    (void)co;
    f->fn(f->arg);
    if (f->held != NULL)
        sim_die(f->node->sim, "a fiber ended with a lock held");
}

static void
sim_fiber_link(stet__sim *sim, sim_fiber *f)
{
    f->prev = sim->last;
    if (sim->last != NULL)
        sim->last->next = f;
    else
        sim->first = f;
    sim->last = f;
    sim->fibers_alive++;
}

static void
sim_fiber_free(stet__sim *sim, sim_fiber *f)
{
    if (f->prev != NULL)
        f->prev->next = f->next;
    else
        sim->first = f->next;
    if (f->next != NULL)
        f->next->prev = f->prev;
    else
        sim->last = f->prev;
    sim->fibers_alive--;
    stet__co_free(&sim->stacks, f->co);
    stet__free(sim->alloc, f);
}

static int
sim_fiber_new(sim_node *node, sim_fiber **out, const char *name, void (*fn)(void *arg), void *arg)
{
    stet__sim      *sim = node->sim;
    stet__co_owner *owner = stet__co_owner_set(NULL); /* this stack is the simulator's own */
    sim_fiber      *f = NULL;
    int             err = STET_ENOMEM;

    *out = NULL;
    if (!node->is_alive)
        sim_die(sim, "a fiber is started on a crashed node");
    if (!sim_ready_reserve(sim, sim->fibers_alive + 1) ||
        !sim_timed_reserve(sim, sim->fibers_alive + 1))
        goto done;
    if ((f = stet__get0(sim->alloc, sizeof *f)) == NULL)
        goto done;
    if ((f->co = stet__co_new(&sim->stacks, sim_fiber_main, f)) == NULL)
        goto done;
    f->node = node;
    f->id = ++sim->fiber_count;
    f->fn = fn;
    f->arg = arg;
    memcpy(f->name, name, strnlen(name, sizeof f->name - 1)); /* the rest is 0 */
    sim_fiber_link(sim, f);
    sim_ready_add(sim, f);
    *out = f;
    f = NULL;
    err = STET_OK;
done:
    stet__co_owner_set(owner);
    stet__free(sim->alloc, f);
    return err == STET_OK ? err : stet__fail(err, "fiber %s: out of memory", name);
}

static int
sim_thread_start(stet__platform *p, stet__thread **out, const char *name, void (*fn)(void *arg),
                 void *arg)
{
    int err = sim_fiber_new(sim_node_of(p), out, name, fn, arg);

    if (err == STET_OK)
        sim_maybe_switch(sim_node_of(p)->sim);
    return err;
}

static void
sim_thread_join(stet__platform *p, stet__thread *t)
{
    stet__sim *sim = sim_node_of(p)->sim;
    sim_fiber *me = sim->current;

    if (me == NULL && t->state != FIBER_DONE)
        sim_die(sim, "thread_join outside of stet__sim_run() for a fiber that has not ended");
    while (t->state != FIBER_DONE) {
        me->joined = t;
        me->state = FIBER_JOIN;
        sim_switch(sim);
    }
    sim_fiber_free(sim, t);
}

static size_t
sim_processors(stet__platform *p)
{
    (void)p;
    return SIM_PROCESSORS;
}

static const void *
sim_thread_self(stet__platform *p)
{
    return sim_me(sim_node_of(p)->sim);
}

/* ---- locks --------------------------------------------------------------------------------- */

static sim_mutex *
sim_mutex_of(stet__mutex *m)
{
    return (sim_mutex *)(void *)m->space;
}

static bool
sim_is_foreign(const sim_mutex *m, const sim_fiber *f)
{
    return f->node != NULL && m->node != f->node;
}

static int
sim_mutex_init(stet__platform *p, stet__mutex *mutex)
{
    sim_mutex *m = sim_mutex_of(mutex);

    memset(m, 0, sizeof *m);
    m->node = sim_node_of(p);
    m->id = ++m->node->sim->lock_count;
    return STET_OK;
}

static void
sim_mutex_destroy(stet__platform *p, stet__mutex *mutex)
{
    sim_mutex *m = sim_mutex_of(mutex);

    if (m->owner != NULL || m->waiters.n > 0)
        sim_die(sim_node_of(p)->sim, "a mutex in use is destroyed");
    memset(m, 0, sizeof *m);
}

/* It has an owner. */
static void
sim_acquire_wait(stet__sim *sim, sim_fiber *me, sim_mutex *m)
{
    if (m->owner == me)
        sim_die(sim, "a mutex is locked twice by one fiber");
    while (m->owner != NULL) {
        if (sim->current == NULL)
            sim_die(sim, "a mutex held by a fiber is locked outside of stet__sim_run()");
        me->mutex = m;
        me->state = FIBER_LOCK;
        sim_waiters_add(&m->waiters, me);
        sim_switch(sim);
    }
}

static inline void
sim_own(sim_fiber *f, sim_mutex *m)
{
    m->owner = f;
    m->held_next = f->held;
    f->held = m;
    if (sim_is_foreign(m, f))
        f->foreign_held++;
}

/* `at` points to it in the list of what f holds. */
static inline void
sim_disown(sim_fiber *f, sim_mutex *m, sim_mutex **at)
{
    *at = m->held_next;
    m->owner = NULL;
    if (sim_is_foreign(m, f))
        f->foreign_held--;
}

static inline void
sim_acquire(stet__sim *sim, sim_fiber *me, sim_mutex *m)
{
    if (m->node == NULL || m->node->sim != sim)
        sim_die(sim, "a mutex is locked that was never initialised here");
    if (!STET__LIKELY(m->owner == NULL))
        sim_acquire_wait(sim, me, m);
    sim_own(me, m);
}

/* All who wait are woken and try again: the seed, not the order of arrival, decides who is next,
 * and nobody depends on a fiber that was chosen and then paused or killed. */
static inline void
sim_release(stet__sim *sim, sim_fiber *f, sim_mutex *m)
{
    sim_mutex **at = &f->held;

    if (m->owner != f)
        sim_die(sim, "a mutex is unlocked by a fiber that does not hold it");
    while (*at != m)
        at = &(*at)->held_next;
    sim_disown(f, m, at);
    if (!STET__LIKELY(m->waiters.first == NULL))
        sim_wake_all(sim, &m->waiters);
}

/* Apart from its callers, which then need no registers for what hardly ever comes. */
STET__NOINLINE static void
sim_lock_slowly(stet__sim *sim, sim_fiber *me, sim_mutex *m)
{
    bool inside = me->foreign_held > 0;

    sim_maybe_switch(sim);
    sim_acquire(sim, me, m);
    /* Also with it held, else nobody ever finds it taken. Nothing was changed under it yet, so
     * this holds for a foreign lock too, if it is the first. */
    if (sim_is_taken(sim) && !inside)
        sim_switch(sim);
}

static void
sim_lock(stet__platform *p, stet__mutex *mutex)
{
    stet__sim *sim = sim_node_of(p)->sim;
    sim_fiber *me = sim_me(sim);
    sim_mutex *m = sim_mutex_of(mutex);

    if (sim->calm < 2 || m->owner != NULL || m->node == NULL || m->node->sim != sim) {
        sim_lock_slowly(sim, me, m);
        return;
    }
    sim->calm -= 2; /* two places, neither of them taken */
    sim_own(me, m);
}

STET__NOINLINE static void
sim_unlock_slowly(stet__sim *sim, sim_fiber *me, sim_mutex *m)
{
    sim_release(sim, me, m);
    sim_maybe_switch(sim);
}

static void
sim_unlock(stet__platform *p, stet__mutex *mutex)
{
    stet__sim *sim = sim_node_of(p)->sim;
    sim_fiber *me = sim_me(sim);
    sim_mutex *m = sim_mutex_of(mutex);

    if (sim->calm < 1 || me->held != m || m->waiters.first != NULL) {
        sim_unlock_slowly(sim, me, m);
        return;
    }
    sim->calm--;
    sim_disown(me, m, &me->held);
}

/* ---- conditions ---------------------------------------------------------------------------- */

static sim_cond *
sim_cond_of(stet__cond *c)
{
    return (sim_cond *)(void *)c->space;
}

static int
sim_cond_init(stet__platform *p, stet__cond *cond)
{
    sim_cond *c = sim_cond_of(cond);

    memset(c, 0, sizeof *c);
    c->node = sim_node_of(p);
    c->id = ++c->node->sim->lock_count;
    return STET_OK;
}

static void
sim_cond_destroy(stet__platform *p, stet__cond *cond)
{
    sim_cond *c = sim_cond_of(cond);

    if (c->waiters.n > 0)
        sim_die(sim_node_of(p)->sim, "a condition in use is destroyed");
    memset(c, 0, sizeof *c);
}

static bool
sim_cond_wait(stet__platform *p, stet__cond *cond, stet__mutex *mutex, int64_t until_us)
{
    stet__sim *sim = sim_node_of(p)->sim;
    sim_fiber *me = sim->current;
    sim_cond  *c = sim_cond_of(cond);

    if (me == NULL)
        sim_die(sim, "cond_wait outside of stet__sim_run()");
    if (c->node == NULL || c->node->sim != sim)
        sim_die(sim, "a condition is waited for that was never initialised here");
    sim_release(sim, me, sim_mutex_of(mutex));
    me->timed_out = false;
    if (sim_draw(sim, SIM_SPURIOUS_ONE_IN) != 0) {
        me->cond = c;
        me->until_us = until_us;
        me->state = FIBER_COND;
        sim_waiters_add(&c->waiters, me);
        sim_timed_add(sim, me);
    }
    sim_switch(sim);
    sim_acquire(sim, me, sim_mutex_of(mutex));
    return !me->timed_out;
}

/* Any of those who wait may be the one. */
static void
sim_cond_signal(stet__platform *p, stet__cond *cond)
{
    stet__sim *sim = sim_node_of(p)->sim;
    sim_cond  *c = sim_cond_of(cond);
    sim_fiber *f = c->waiters.first;
    uint64_t   skip;

    if (f != NULL) {
        for (skip = sim_draw(sim, c->waiters.n); skip > 0; skip--)
            f = f->wait_next;
        sim_wake(sim, &c->waiters, f);
    }
    sim_maybe_switch(sim);
}

static void
sim_cond_broadcast(stet__platform *p, stet__cond *cond)
{
    stet__sim *sim = sim_node_of(p)->sim;

    sim_wake_all(sim, &sim_cond_of(cond)->waiters);
    sim_maybe_switch(sim);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static const stet__platform_ops sim_ops = {
    .name = "sim",
    .wall_us = sim_wall_us,
    .mono_us = sim_mono_us,
    .random = sim_random,
    .thread_start = sim_thread_start,
    .thread_join = sim_thread_join,
    .thread_self = sim_thread_self,
    .processors = sim_processors,
    .mutex_init = sim_mutex_init,
    .mutex_destroy = sim_mutex_destroy,
    .lock = sim_lock,
    .unlock = sim_unlock,
    .cond_init = sim_cond_init,
    .cond_destroy = sim_cond_destroy,
    .cond_wait = sim_cond_wait,
    .cond_signal = sim_cond_signal,
    .cond_broadcast = sim_cond_broadcast,
};

stet__platform *
stet__sim_node_new(stet__sim *sim)
{
    sim_node *node = stet__get0(sim->alloc, sizeof *node);

    if (node == NULL)
        return NULL;
    node->platform.alloc.get = sim_get;
    node->platform.ops = &sim_ops;
    node->sim = sim;
    node->stacks.maps = &sim->maps;
    node->id = ++sim->node_count;
    node->is_alive = true;
    stet__rng_seed(&node->random, stet__rng_next(&sim->workload));
    stet__rng_seed(&node->memory, stet__rng_next(&node->random));
    node->next = sim->nodes;
    sim->nodes = node;
    return &node->platform;
}

/* Take a killed fiber out of every list, but keep its memory: locks may be on its stack. */
static void
sim_fiber_detach(stet__sim *sim, sim_fiber *f)
{
    while (f->held != NULL)
        sim_release(sim, f, f->held);
    if (f->state == FIBER_READY)
        sim_ready_remove(sim, f);
    else if (f->state == FIBER_LOCK)
        sim_waiters_remove(&f->mutex->waiters, f);
    else if (f->state == FIBER_COND) {
        sim_waiters_remove(&f->cond->waiters, f);
        sim_timed_remove(sim, f);
    }
    if (f->is_root && f->state != FIBER_DONE)
        sim->roots_alive--;
    f->state = FIBER_DONE;
}

/* The fibers of one node, or all of them (NULL), end where they are. */
static void
sim_fibers_kill(stet__sim *sim, const sim_node *node)
{
    sim_fiber *f, *next;

    for (f = sim->first; f != NULL; f = f->next)
        if (node == NULL || f->node == node)
            sim_fiber_detach(sim, f);
    for (f = sim->first; f != NULL; f = next) {
        next = f->next;
        if (node == NULL || f->node == node)
            sim_fiber_free(sim, f);
    }
}

/* The memory of a node goes while another one's fiber relies on a lock in it: the test is wrong,
 * the owner of what is shared must outlive those who share it. */
static void
sim_check_survivor(stet__sim *sim, const sim_node *dead, const sim_fiber *f)
{
    const sim_mutex *m;

    if ((f->state == FIBER_LOCK && f->mutex->node == dead) ||
        (f->state == FIBER_COND && f->cond->node == dead) ||
        (f->state == FIBER_JOIN && f->joined->node == dead))
        sim_die(sim, "a node crashed and a fiber of another one waits for something in its memory");
    for (m = f->held; m != NULL; m = m->held_next)
        if (m->node == dead)
            sim_die(sim, "a node crashed and a fiber of another one holds a lock in its memory");
}

static void
sim_outside_forget(stet__sim *sim, const sim_node *dead)
{
    sim_mutex **at = &sim->outside.held;

    while (*at != NULL)
        if ((*at)->node == dead)
            *at = (*at)->held_next;
        else
            at = &(*at)->held_next;
}

/* Runs on: any stack but those of the node's own fibers. */
static void
sim_node_bury(stet__sim *sim, sim_node *node)
{
    sim_fiber *f;

    for (f = sim->first; f != NULL; f = f->next)
        if (f->node != node)
            sim_check_survivor(sim, node, f);
    sim_fibers_kill(sim, node);
    sim_outside_forget(sim, node);
    stet__co_owner_reclaim(&node->stacks);
    sim_memory_free(node);
    node->is_alive = false;
}

void
stet__sim_node_crash(stet__sim *sim, stet__platform *p)
{
    sim_node *node = sim_node_of(p);

    if (!node->is_alive)
        return;
    if (sim->current == NULL || sim->current->node != node) {
        sim_node_bury(sim, node);
        return;
    }
    sim->crashing = node;
    sim_switch(sim);
    abort(); /* nobody resumes a fiber of a crashed node */
}

bool
stet__sim_node_is_alive(stet__sim *sim, stet__platform *p)
{
    (void)sim;
    return sim_node_of(p)->is_alive;
}

void
stet__sim_node_skew(stet__sim *sim, stet__platform *p, int64_t skew_ms)
{
    (void)sim;
    sim_node_of(p)->skew_ms = skew_ms;
}

void
stet__sim_node_memory(stet__sim *sim, stet__platform *p, uint64_t fails_one_in)
{
    (void)sim;
    sim_node_of(p)->fails_one_in = fails_one_in;
}

bool
stet__sim_node_is_clean(const stet__sim *sim, const stet__platform *p)
{
    (void)sim;
    return ((const sim_node *)(const void *)p)->taken == 0;
}

uint64_t
stet__sim_memory_failures(const stet__sim *sim)
{
    return sim->memory_failures;
}

void
stet__sim_node_pause(stet__sim *sim, stet__platform *p, int64_t until_us)
{
    sim_node *node = sim_node_of(p);

    node->paused_until_us = until_us;
    if (sim->current != NULL && sim->current->node == node)
        sim_switch(sim);
}

/* ---- the scheduler -------------------------------------------------------------------------- */

int
stet__sim_spawn(stet__sim *sim, stet__platform *p, void (*fn)(void *arg), void *arg)
{
    sim_fiber *f;
    int        err;

    if ((err = sim_fiber_new(sim_node_of(p), &f, "root", fn, arg)) != STET_OK)
        return err;
    f->is_root = true;
    sim->roots_alive++;
    return STET_OK;
}

/* Wake those whose time is up. */
static void
sim_expire(stet__sim *sim)
{
    sim_fiber *f;

    while (sim->timed_n > 0 && sim->timed[0].until_us <= sim->now_us) {
        f = sim->timed[0].fiber;
        f->timed_out = true;
        sim_wake(sim, &f->cond->waiters, f);
    }
}

/* Any fiber that can run now; NULL: none can. */
static sim_fiber *
sim_choose(stet__sim *sim)
{
    size_t at, tried;

    sim_expire(sim);
    if (sim->ready_n == 0)
        return NULL;
    at = sim->ready_n > 1 ? (size_t)sim_draw(sim, sim->ready_n) : 0;
    for (tried = 0; tried < sim->ready_n; tried++) {
        if (sim_fiber_can_run(sim->ready[at]))
            return sim->ready[at];
        if (++at == sim->ready_n)
            at = 0;
    }
    return NULL;
}

/* Nothing can run now: when will something? */
static int64_t
sim_next_us(const stet__sim *sim)
{
    int64_t next_us = sim->timed_n > 0 ? sim->timed[0].until_us : STET__FOREVER;
    size_t  i;

    for (i = 0; i < sim->ready_n; i++)
        if (sim->ready[i]->node->paused_until_us < next_us)
            next_us = sim->ready[i]->node->paused_until_us;
    return next_us;
}

static void
sim_fiber_ended(stet__sim *sim, sim_fiber *ended)
{
    sim_fiber *f;

    sim_ready_remove(sim, ended);
    ended->state = FIBER_DONE;
    for (f = sim->first; f != NULL; f = f->next)
        if (f->state == FIBER_JOIN && f->joined == ended)
            sim_ready_add(sim, f);
    if (ended->is_root) {
        sim->roots_alive--;
        sim_fiber_free(sim, ended);
    }
}

static void
sim_dispatch(stet__sim *sim, sim_fiber *f)
{
    sim_node *crashed;

    sim_turn(sim, f);
    (void)stet__co_resume(f->co);
    f = sim->current; /* it may have passed the control on, and this one gave it back */
    sim->current = NULL;
    if ((crashed = sim->crashing) != NULL) {
        sim->crashing = NULL;
        sim_node_bury(sim, crashed);
    } else if (stet__co_is_done(f->co)) {
        sim_fiber_ended(sim, f);
    }
}

/* The next one and nothing more: it may have been chosen already. false: none can run now. */
static bool
sim_step(stet__sim *sim)
{
    sim_fiber *f = sim->chosen;

    sim->chosen = NULL;
    if (f == NULL && (f = sim_choose(sim)) == NULL)
        return false;
    sim_dispatch(sim, f);
    return true;
}

bool
stet__sim_run(stet__sim *sim, int64_t until_us)
{
    stet__co_owner *owner = stet__co_owner_set(NULL);
    int64_t         next_us;

    if (sim->current != NULL)
        sim_die(sim, "stet__sim_run() inside of itself");
    sim->is_stopped = false;
    sim->for_roots = true;
    sim->until_us = until_us;
    sim->events_left = UINT64_MAX;
    sim->mapping = NULL;
    while (sim_goes_on(sim)) {
        if (sim_step(sim))
            continue;
        if ((next_us = sim_next_us(sim)) == STET__FOREVER)
            break;
        sim->now_us = next_us < until_us ? next_us : until_us;
    }
    (void)stet__co_owner_set(owner);
    return sim->roots_alive == 0;
}

bool
stet__sim_settle(stet__sim *sim, uint64_t events)
{
    stet__co_owner *owner = stet__co_owner_set(NULL);
    bool            is_settled = false;

    if (sim->current != NULL)
        sim_die(sim, "stet__sim_settle() inside of the simulation");
    sim->is_stopped = false;
    sim->for_roots = false;
    sim->until_us = STET__FOREVER;
    sim->events_left = events;
    sim->mapping = NULL;
    while (!is_settled && sim_goes_on(sim))
        is_settled = !sim_step(sim);
    (void)stet__co_owner_set(owner);
    return is_settled;
}

int64_t
stet__sim_next_us(stet__sim *sim)
{
    size_t i;

    sim_expire(sim);
    for (i = 0; i < sim->ready_n; i++)
        if (sim_fiber_can_run(sim->ready[i]))
            return sim->now_us;
    return sim_next_us(sim);
}

void
stet__sim_leap(stet__sim *sim, int64_t to_us)
{
    if (to_us > stet__sim_next_us(sim))
        sim_die(sim, "stet__sim_leap() beyond what has to happen before");
    if (to_us > sim->now_us)
        sim->now_us = to_us;
}

void
stet__sim_stop(stet__sim *sim)
{
    sim->is_stopped = true;
}

void
stet__sim_yield(stet__sim *sim)
{
    if (sim->current != NULL)
        sim_switch(sim);
}

int64_t
stet__sim_now_us(stet__sim *sim)
{
    return sim->now_us;
}

uint64_t
stet__sim_random(stet__sim *sim)
{
    return stet__rng_next(&sim->workload);
}

/* ---- the simulator ------------------------------------------------------------------------- */

static void
sim_begin(stet__sim *sim, uint64_t seed)
{
    sim->now_us = SIM_MONO_START_US;
    sim->events = 0;
    stet__rng_seed(&sim->schedule, seed);
    stet__rng_seed(&sim->workload, stet__rng_next(&sim->schedule));
    sim->switch_bits = 1 + (unsigned)sim_draw(sim, 5); /* one in 2 to one in 32 */
    sim->places = sim->places_left = 0;
    sim_draw_calm(sim);
}

stet__sim *
stet__sim_new(uint64_t seed)
{
    return stet__sim_new_with(seed, SIM_STACK_BYTES, 1);
}

stet__sim *
stet__sim_new_with(uint64_t seed, size_t stack_bytes, uint32_t events_a_us)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;
    stet__sim   *sim = stet__get0(alloc, sizeof *sim);

    if (sim == NULL)
        return NULL;
    sim->alloc = alloc;
    snprintf(sim->outside.name, sizeof sim->outside.name, "%s", "outside");
    sim->events_a_us = events_a_us;
    stet__co_pool_init(&sim->stacks, alloc, stack_bytes, SIM_STACKS_KEPT);
    sim_begin(sim, seed);
    return sim;
}

static void
sim_clear(stet__sim *sim)
{
    sim_node *node;

    /* All fibers first, so that no node's end finds another one waiting in its memory. */
    sim_fibers_kill(sim, NULL);
    while ((node = sim->nodes) != NULL) {
        sim->nodes = node->next;
        sim_node_bury(sim, node);
        stet__free(sim->alloc, node);
    }
}

void
stet__sim_restart(stet__sim *sim, uint64_t seed)
{
    sim_clear(sim);
    sim->node_count = 0;
    sim->fiber_count = sim->lock_count = sim->memory_failures = 0;
    sim->is_stopped = false;
    sim_begin(sim, seed);
}

void
stet__sim_free(stet__sim *sim)
{
    sim_chunk *c;

    if (sim == NULL)
        return;
    sim_clear(sim);
    stet__co_pool_free(&sim->stacks);
    stet__co_maps_free(&sim->maps);
    while ((c = sim->chunks) != NULL) {
        sim->chunks = c->next;
        free(c);
    }
    stet__free(sim->alloc, sim->ready);
    stet__free(sim->alloc, sim->timed);
    stet__free(sim->alloc, sim);
}

static void
sim_dump_fiber(const stet__sim *sim, const sim_fiber *f, FILE *out)
{
    const sim_mutex *m;

    fprintf(out, "  node %u fiber %" PRIu64 " %s: ", f->node->id, f->id, f->name);
    if (f == sim->current)
        fprintf(out, "runs");
    else if (f->state == FIBER_READY)
        fprintf(out, "%s", sim_fiber_can_run(f) ? "ready" : "ready, node paused");
    else if (f->state == FIBER_LOCK && f->mutex->owner != NULL)
        fprintf(out, "waits for mutex %" PRIu64 ", held by fiber %" PRIu64 " %s", f->mutex->id,
                f->mutex->owner->id, f->mutex->owner->name);
    else if (f->state == FIBER_COND && f->until_us == STET__FOREVER)
        fprintf(out, "waits for condition %" PRIu64 " without limit", f->cond->id);
    else if (f->state == FIBER_COND)
        fprintf(out, "waits for condition %" PRIu64 " until %" PRId64, f->cond->id, f->until_us);
    else if (f->state == FIBER_JOIN)
        fprintf(out, "joins fiber %" PRIu64 " %s", f->joined->id, f->joined->name);
    else
        fprintf(out, "ended, not joined");
    for (m = f->held; m != NULL; m = m->held_next)
        fprintf(out, ", holds mutex %" PRIu64, m->id);
    fprintf(out, "\n");
}

void
stet__sim_dump(stet__sim *sim, FILE *out)
{
    const sim_fiber *f;

    fprintf(out, "simulator at %" PRId64 " us, %zu fibers, %zu roots\n", sim->now_us,
            sim->fibers_alive, sim->roots_alive);
    for (f = sim->first; f != NULL; f = f->next)
        sim_dump_fiber(sim, f, out);
    if (sim->outside.held != NULL)
        fprintf(out, "  a lock is held outside of stet__sim_run()\n");
}
