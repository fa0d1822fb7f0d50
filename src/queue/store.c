/* The stores' own hints as a port.
 *
 * As a rule every commit tells the others that something changed, and send() is for what was
 * written past commit(). A store that can tell() more carries the engine's own hints while it is
 * watched.
 */
#include <string.h>

#include "queue/queue.h"

typedef struct store_port {
    stet_hint_port    base;
    stet__mutex       lock;
    bool              is_open;
    bool              is_watching;
    stet_hint_take_fn take;
    void             *arg;
    _Atomic uint64_t  sent, received;
} store_port;

static store_port *
store_of(stet_hint_port *h)
{
    return (store_port *)(void *)h;
}

static int
store_open(stet_hint_port *h, const char *address)
{
    store_port *sp = store_of(h);
    int         err;

    if (address[0] != '\0')
        return stet__fail(STET_EURL, "queue=store takes nothing more");
    if ((err = h->platform->ops->mutex_init(h->platform, &sp->lock)) == STET_OK)
        sp->is_open = true;
    return err;
}

static void
store_send(stet_hint_port *h, const stet_hint *hint)
{
    uint8_t bytes[STET__HINT_BYTES_MAX];

    if (h->store == NULL)
        return;
    if (hint->kind != STET_HINT_ANY && h->store->told != NULL)
        h->store->ops->tell(h->store, bytes, stet__hint_encode(bytes, h->self, hint));
    else if (h->store->ops->hint != NULL)
        h->store->ops->hint(h->store);
    else
        return;
    store_of(h)->sent++;
}

static void
store_on_told(void *arg, const void *bytes, size_t len)
{
    store_port *sp = arg;
    stet_hint   hint;
    stet_id     from;

    sp->received++;
    stet__hint_decode(&hint, &from, bytes, len);
    if (len == 0)
        hint.kind = STET_HINT_WORK;
    if (len == sizeof hint.run.bytes) {
        hint.kind = STET_HINT_RUN;
        memcpy(hint.run.bytes, bytes, len);
    }
    if (len == 1 + sizeof hint.run.bytes && *(const char *)bytes == 'w') {
        hint.kind = STET_HINT_WORK;
        memcpy(hint.run.bytes, (const uint8_t *)bytes + 1, sizeof hint.run.bytes);
    }
    if (!stet__id_equal(from, sp->base.self))
        (void)sp->take(sp->arg, &hint);
}

static void
store_on_hint(void *arg)
{
    store_port *sp = arg;
    stet_hint   any;

    memset(&any, 0, sizeof any);
    sp->received++;
    (void)sp->take(sp->arg, &any);
}

static int
store_watch(stet_hint_port *h, uint32_t wants, stet_hint_take_fn take, void *arg)
{
    store_port *sp = store_of(h);
    int         err = STET_OK;

    (void)wants;
    if (h->store == NULL || h->store->ops->watch == NULL)
        return stet__fail(STET_ENOTFOUND, "this store has no hints of its own");
    stet__lock(h->platform, &sp->lock);
    if (sp->is_watching)
        err = stet__fail(STET_ESTATE, "the store is watched already");
    else {
        sp->take = take;
        sp->arg = arg;
        if (h->store->ops->tell != NULL) {
            h->store->told_arg = sp;
            h->store->told = store_on_told;
        }
        err = h->store->ops->watch(h->store, store_on_hint, sp);
        sp->is_watching = err == STET_OK;
        if (err != STET_OK)
            h->store->told = NULL;
    }
    stet__unlock(h->platform, &sp->lock);
    return err;
}

static void
store_unwatch(stet_hint_port *h)
{
    store_port *sp = store_of(h);

    stet__lock(h->platform, &sp->lock);
    if (sp->is_watching)
        h->store->ops->unwatch(h->store);
    sp->is_watching = false;
    stet__unlock(h->platform, &sp->lock);
}

static void
store_close(stet_hint_port *h)
{
    store_port *sp = store_of(h);

    if (!sp->is_open)
        return;
    store_unwatch(h);
    sp->is_open = false;
    h->platform->ops->mutex_destroy(h->platform, &sp->lock);
}

static void
store_health(stet_hint_port *h, stet_hint_health *health)
{
    store_port *sp = store_of(h);

    memset(health, 0, sizeof *health);
    health->is_connected = true; /* whether the store answers is asked of the store */
    health->sent = sp->sent;
    health->received = sp->received;
}

const stet_hint_ops stet__hint_store_ops = {
    .version = 1,
    .scheme = "store",
    .size = sizeof(store_port),
    .open = store_open,
    .close = store_close,
    .send = store_send,
    .watch = store_watch,
    .unwatch = store_unwatch,
    .health = store_health,
};
