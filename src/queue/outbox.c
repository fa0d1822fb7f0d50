/* Hints on their way out. Whoever sends has a lock of the engine and has just committed: it leaves
 * the hint here and goes on; the port's thread takes it out.
 *
 * Bounded: a hundred thousand commits while the port is stuck leave STET__OUTBOX_MAX hints here.
 * The oldest go first, and one STET_HINT_ANY stands for all that went. An equal one that waits
 * already is enough.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "queue/queue.h"

int
stet__outbox_open(stet__outbox *o, stet__platform *p)
{
    int err;

    o->p = p;
    if ((o->ring = stet__get0(&p->alloc, STET__OUTBOX_MAX * sizeof *o->ring)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for hints");
    if ((o->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        err = stet__fail(STET_EIO, "hints: %s", strerror(errno));
    else if ((err = p->ops->mutex_init(p, &o->lock)) != STET_OK)
        close(o->wake_fd);
    if (err != STET_OK) {
        stet__free(&p->alloc, o->ring);
        o->ring = NULL;
        return err;
    }
    o->is_open = true;
    return STET_OK;
}

void
stet__outbox_close(stet__outbox *o)
{
    if (!o->is_open)
        return;
    o->is_open = false;
    close(o->wake_fd);
    o->p->ops->mutex_destroy(o->p, &o->lock);
    stet__free(&o->p->alloc, o->ring);
    o->ring = NULL;
}

void
stet__outbox_wake(stet__outbox *o)
{
    uint64_t one = 1;
    ssize_t  done = write(o->wake_fd, &one, sizeof one);

    (void)done; /* it is full: then it wakes anyway */
}

void
stet__outbox_awake(stet__outbox *o)
{
    uint64_t count;
    ssize_t  done = read(o->wake_fd, &count, sizeof count);

    (void)done;
}

void
stet__outbox_put(stet__outbox *o, const stet_hint *hint)
{
    bool is_there = false, was_empty;

    stet__lock(o->p, &o->lock);
    was_empty = o->n == 0 && !o->has_lost;
    for (size_t i = 0; i < o->n && !is_there; i++)
        is_there = stet__hint_equal(&o->ring[(o->first + i) % STET__OUTBOX_MAX], hint);
    if (!is_there && o->n == STET__OUTBOX_MAX) {
        o->first = (o->first + 1) % STET__OUTBOX_MAX;
        o->n--;
        o->dropped++;
        o->has_lost = true;
    }
    if (!is_there)
        o->ring[(o->first + o->n++) % STET__OUTBOX_MAX] = *hint;
    stet__unlock(o->p, &o->lock);
    if (was_empty)
        stet__outbox_wake(o);
}

bool
stet__outbox_take(stet__outbox *o, stet_hint *hint)
{
    bool has;

    stet__lock(o->p, &o->lock);
    has = o->has_lost || o->n > 0;
    if (o->has_lost) {
        memset(hint, 0, sizeof *hint); /* STET_HINT_ANY */
        o->has_lost = false;
    } else if (has) {
        *hint = o->ring[o->first];
        o->first = (o->first + 1) % STET__OUTBOX_MAX;
        o->n--;
    }
    stet__unlock(o->p, &o->lock);
    return has;
}

void
stet__outbox_lost(stet__outbox *o, uint64_t n)
{
    if (n == 0)
        return;
    stet__lock(o->p, &o->lock);
    o->dropped += n;
    o->has_lost = true;
    stet__unlock(o->p, &o->lock);
}

size_t
stet__outbox_count(stet__outbox *o)
{
    size_t n;

    stet__lock(o->p, &o->lock);
    n = o->n + (o->has_lost ? 1 : 0);
    stet__unlock(o->p, &o->lock);
    return n;
}

uint64_t
stet__outbox_dropped(stet__outbox *o)
{
    uint64_t dropped;

    stet__lock(o->p, &o->lock);
    dropped = o->dropped;
    stet__unlock(o->p, &o->lock);
    return dropped;
}
