/* A platform on which memory fails to order and time can be skipped: the real one with another
 * allocator and shifted clocks. One counter numbers the allocations of all threads, so that with
 * one thread the Nth is the same one in every round.
 */
#ifndef STET_FAULT_PLATFORM_H
#define STET_FAULT_PLATFORM_H

#include <stdatomic.h>

#include "platform/platform.h"

typedef struct fault_platform {
    stet__platform     base; /* first: it is handed out as a platform */
    stet__platform_ops ops;
    _Atomic long       n;      /* allocations asked for so far */
    _Atomic long       from;   /* the first that fails; negative: none does */
    _Atomic long       count;  /* how many fail from there on */
    _Atomic long       failed; /* how many did */
    _Atomic long       live;   /* pieces of memory handed out and not given back */
    _Atomic int64_t    skew_us;
    _Atomic int64_t    set_ms; /* by how much the wall clock was set, beside that */
} fault_platform;

void fault_platform_init(fault_platform *f);
void fault_platform_arm(fault_platform *f, long from, long count);
void fault_platform_disarm(fault_platform *f);
/* Both clocks go on by so much. Whoever waits for a time now wakes at the old one. */
void fault_platform_skip(fault_platform *f, int64_t ms);
/* Somebody sets the wall clock by so much, forwards or back; the other one does not notice. */
void fault_platform_set_clock(fault_platform *f, int64_t by_ms);
/* What this thread asks for between pause and resume neither counts nor fails: the test looking. */
void fault_pause(void);
void fault_resume(void);
bool fault_is_paused(void);

#endif
