/* Allocators for the tests of src/util: one that counts what is held and can fail at the Nth call.
 * A test loops over N until the code under test no longer reaches the failing call. */
#ifndef UTIL_FAULT_H
#define UTIL_FAULT_H

#include "test.h"
#include "util/util.h"

typedef struct fault_alloc {
    stet__alloc base;
    long        held;    /* allocations not yet freed */
    long        calls;   /* that ask for memory */
    long        fail_at; /* this call and all later ones fail; 0: none */
} fault_alloc;

static inline void *
fault_get(stet__alloc *a, void *old, size_t size)
{
    fault_alloc *f = (fault_alloc *)a;
    void        *p;

    if (size == 0) {
        if (old != NULL)
            f->held--;
        free(old);
        return NULL;
    }
    if (++f->calls >= f->fail_at && f->fail_at != 0)
        return NULL;
    p = realloc(old, size);
    if (p != NULL && old == NULL)
        f->held++;
    return p;
}

static inline fault_alloc
fault_new(long fail_at)
{
    fault_alloc f = { { .get = fault_get }, 0, 0, fail_at };

    return f;
}

static inline bool
fault_was_hit(const fault_alloc *f)
{
    return f->fail_at != 0 && f->calls >= f->fail_at;
}

#endif
