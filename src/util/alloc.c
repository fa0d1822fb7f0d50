/* Memory through the allocator of the platform.
 *
 * The vtable has one function with realloc semantics in which size 0 frees; the wrappers here keep
 * that case away from callers, so NULL always and only means "out of memory".
 */
#include "util/util.h"

void *
stet__get(stet__alloc *a, size_t size)
{
    return a->get(a, NULL, size ? size : 1);
}

void *
stet__get0(stet__alloc *a, size_t size)
{
    return stet__get_head(a, size, size);
}

void *
stet__get_head(stet__alloc *a, size_t size, size_t head)
{
    void *p = stet__get(a, size);

    if (p != NULL)
        memset(p, 0, head);
    return p;
}

void *
stet__grow(stet__alloc *a, void *old, size_t size)
{
    return a->get(a, old, size ? size : 1);
}

void
stet__free(stet__alloc *a, void *p)
{
    if (p != NULL)
        (void)a->get(a, p, 0);
}

char *
stet__strdup(stet__alloc *a, const char *s)
{
    size_t size;
    char  *copy;

    if (s == NULL)
        return NULL;
    size = strlen(s) + 1;
    copy = stet__get(a, size);
    if (copy != NULL)
        memcpy(copy, s, size);
    return copy;
}
