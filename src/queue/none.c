/* No hints: nobody is told, nobody listens, everything completes by polling. */
#include <string.h>

#include "queue/queue.h"

static int
none_open(stet_hint_port *h, const char *address)
{
    (void)h;
    if (address[0] != '\0')
        return stet__fail(STET_EURL, "queue=none takes nothing more");
    return STET_OK;
}

static void
none_close(stet_hint_port *h)
{
    (void)h;
}

static void
none_send(stet_hint_port *h, const stet_hint *hint)
{
    (void)h;
    (void)hint;
}

static int
none_watch(stet_hint_port *h, uint32_t wants, stet_hint_take_fn take, void *arg)
{
    (void)h;
    (void)wants;
    (void)take;
    (void)arg;
    return STET_OK;
}

static void
none_unwatch(stet_hint_port *h)
{
    (void)h;
}

static void
none_health(stet_hint_port *h, stet_hint_health *health)
{
    (void)h;
    memset(health, 0, sizeof *health);
    health->is_connected = true;
}

const stet_hint_ops stet__hint_none_ops = {
    .version = 1,
    .scheme = "none",
    .size = sizeof(stet_hint_port),
    .open = none_open,
    .close = none_close,
    .send = none_send,
    .watch = none_watch,
    .unwatch = none_unwatch,
    .health = none_health,
};
