/* Stackful coroutines: a stack with a guard page below it, and a switch.
 *
 * Owns: stacks and the switch (assembly on x86-64 and arm64, ucontext elsewhere), the sanitizers'
 * annotations. Knows nothing of runs. A coroutine is resumed by one thread only, its first resumer.
 */
#ifndef STET__CO_H
#define STET__CO_H

#include "util/util.h"

typedef struct stet__co stet__co;
typedef void (*stet__co_fn)(stet__co *co, void *arg);

/* Stacks of one size are kept for reuse, up to keep_max. Not thread-safe: one pool a thread. */
typedef struct stet__co_pool {
    stet__alloc *alloc;
    size_t       stack_bytes; /* rounded up to pages */
    size_t       keep_max, kept;
    stet__co    *free_list;
} stet__co_pool;

void stet__co_pool_init(stet__co_pool *pool, stet__alloc *alloc, size_t stack_bytes, size_t keep_max);
void stet__co_pool_free(stet__co_pool *pool);

/* NULL: out of memory. Does not run yet. */
stet__co *stet__co_new(stet__co_pool *pool, stet__co_fn fn, void *arg);
/* Run it until it yields (true) or its function returned (false). */
bool stet__co_resume(stet__co *co);
/* Only from inside: back to the resumer. */
void stet__co_yield(stet__co *co);
/* Only from inside `from`: it is suspended and `to` goes on, whose resumer is then the one `from` had. For who resumes many of
 * them in turn (the simulator): half the switches. Sanitizers and ucontext do not know such a switch: ask first. */
bool stet__co_can_pass(void);
void stet__co_pass(stet__co *from, stet__co *to);
bool stet__co_is_done(const stet__co *co);
/* Only when done or never resumed; the stack goes back to the pool. An abandoned one (the
 * simulator's crash) may be freed too: its stack is not unwound. */
void stet__co_free(stet__co_pool *pool, stet__co *co);
/* Bytes of stack ever touched (census), page granularity; a reused stack keeps its deepest mark. */
size_t stet__co_stack_used(const stet__co *co);
/* Is the address in the guard page of this coroutine? (for the overflow reporter) */
bool stet__co_is_guard(const stet__co *co, const void *address);

/* ---- for the simulator --------------------------------------------------------------------- */

/* Mappings of one size that outlive their owners, since making them takes longer than what a simulated process does. */
typedef struct stet__co_maps {
    size_t bytes, n;
    void  *map[64];
} stet__co_maps;

/* Who answers for the stacks this thread maps. A simulated process that is killed frees nothing, so
 * the simulator collects its stacks here and unmaps what is left. Nobody else sets one. */
typedef struct stet__co_owner {
    stet__co      *stacks;
    stet__co_maps *maps; /* taken from and given back to; NULL: none are kept */
} stet__co_owner;

/* From now on, on this thread; NULL: nobody, the pools alone. Returns the former one. */
stet__co_owner *stet__co_owner_set(stet__co_owner *owner);
/* Unmap all of them, in any state. To be called before the memory of their pools goes. */
void stet__co_owner_reclaim(stet__co_owner *owner);
void stet__co_maps_free(stet__co_maps *maps);

#endif
