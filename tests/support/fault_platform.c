/* A platform on which memory fails to order; see fault_platform.h. */
#include "fault_platform.h"

#include <stdlib.h>

static _Thread_local int fault_paused;

void
fault_pause(void)
{
    fault_paused++;
}

void
fault_resume(void)
{
    fault_paused--;
}

bool
fault_is_paused(void)
{
    return fault_paused > 0;
}

static void *
fault_get(stet__alloc *a, void *old, size_t size)
{
    fault_platform *f = (fault_platform *)(void *)a;
    void           *fresh;
    long            at, from;

    if (size == 0) {
        if (old != NULL)
            atomic_fetch_sub(&f->live, 1);
        free(old);
        return NULL;
    }
    if (fault_paused == 0) {
        at = atomic_fetch_add(&f->n, 1);
        from = atomic_load(&f->from);
        if (from >= 0 && at >= from && at < from + atomic_load(&f->count)) {
            atomic_fetch_add(&f->failed, 1);
            return NULL;
        }
    }
    if ((fresh = realloc(old, size)) != NULL && old == NULL)
        atomic_fetch_add(&f->live, 1);
    return fresh;
}

static int64_t
fault_wall_us(stet__platform *p)
{
    fault_platform *f = (fault_platform *)(void *)p;

    return stet__wall_us(stet__platform_real()) + atomic_load(&f->skew_us) +
           atomic_load(&f->set_ms) * 1000;
}

static int64_t
fault_mono_us(stet__platform *p)
{
    fault_platform *f = (fault_platform *)(void *)p;

    return stet__mono_us(stet__platform_real()) + atomic_load(&f->skew_us);
}

static bool
fault_cond_wait(stet__platform *p, stet__cond *c, stet__mutex *m, int64_t until_us)
{
    fault_platform *f = (fault_platform *)(void *)p;
    int64_t real_us = until_us == STET__FOREVER ? until_us : until_us - atomic_load(&f->skew_us);
    bool            is_woken = stet__platform_real()->ops->cond_wait(p, c, m, real_us);

    return is_woken && fault_mono_us(p) < until_us;
}

void
fault_platform_init(fault_platform *f)
{
    memset(f, 0, sizeof *f);
    f->base = *stet__platform_real();
    f->ops = *f->base.ops;
    f->ops.name = "fault";
    f->ops.wall_us = fault_wall_us;
    f->ops.mono_us = fault_mono_us;
    f->ops.cond_wait = fault_cond_wait;
    f->base.ops = &f->ops;
    f->base.alloc.get = fault_get;
    atomic_store(&f->from, -1);
}

void
fault_platform_arm(fault_platform *f, long from, long count)
{
    atomic_store(&f->count, count);
    atomic_store(&f->from, from);
}

void
fault_platform_disarm(fault_platform *f)
{
    atomic_store(&f->from, -1);
}

void
fault_platform_skip(fault_platform *f, int64_t ms)
{
    atomic_fetch_add(&f->skew_us, ms * 1000);
}

void
fault_platform_set_clock(fault_platform *f, int64_t by_ms)
{
    atomic_fetch_add(&f->set_ms, by_ms);
}
