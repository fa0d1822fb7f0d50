/* Locks that begin and end together. */
#include "platform/platform.h"
#include "util/util.h"

static void
locks_end(stet__platform *p, const stet__locks *locks, size_t mutexes, size_t conds)
{
    while (conds > 0)
        p->ops->cond_destroy(p, locks->conds[--conds]);
    while (mutexes > 0)
        p->ops->mutex_destroy(p, locks->mutexes[--mutexes]);
}

int
stet__locks_begin(stet__platform *p, const stet__locks *locks)
{
    size_t i = 0, k = 0;

    while (locks->mutexes[i] != NULL && p->ops->mutex_init(p, locks->mutexes[i]) == STET_OK)
        i++;
    while (locks->mutexes[i] == NULL && locks->conds[k] != NULL &&
           p->ops->cond_init(p, locks->conds[k]) == STET_OK)
        k++;
    if (locks->mutexes[i] == NULL && locks->conds[k] == NULL)
        return STET_OK;
    locks_end(p, locks, i, k);
    return stet__fail(STET_ENOMEM, "no memory for locks");
}

void
stet__locks_end(stet__platform *p, const stet__locks *locks)
{
    size_t i = 0, k = 0;

    while (locks->mutexes[i] != NULL)
        i++;
    while (locks->conds[k] != NULL)
        k++;
    locks_end(p, locks, i, k);
}
