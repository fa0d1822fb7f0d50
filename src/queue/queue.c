/* Opening a hint port by its address: which one an address means, and the life of a handle.
 *
 * A port is one line in queue_ports. What is told about an address never has a password in it: only
 * the scheme is repeated.
 */
#include <stdio.h>
#include <string.h>

#include "queue/queue.h"

static const stet_hint_ops *const queue_ports[] = {
    &stet__hint_store_ops,
    &stet__hint_none_ops,
    &stet__hint_local_ops,
#ifdef STET_WITH_RABBITMQ
    &stet__hint_rabbitmq_ops,
#endif
};

#define QUEUE_PORTS (sizeof queue_ports / sizeof queue_ports[0])

static const char *const queue_words[] = { "store", "none", "local", "amqp", "amqps", NULL };

#ifdef STET_WITH_RABBITMQ
#define QUEUE_KNOWN "store, none, local, local:NAME, amqp://USER:PASSWORD@HOST:PORT/VHOST"
#else
#define QUEUE_KNOWN "store, none, local, local:NAME"
#endif

const char *
stet__hint_nearest(const char *typed, size_t len, const char *const *names)
{
    stet__near near;

    stet__near_begin(&near, typed, len);
    for (size_t i = 0; names[i] != NULL; i++)
        stet__near_offer(&near, names[i]);
    return near.name;
}

/* ---- opening --------------------------------------------------------------------------------- */

static const stet_hint_ops *
queue_port(const char *address, size_t len)
{
    if (len == 5 && memcmp(address, "amqps", 5) == 0)
        len = 4; /* the port sees the difference itself */
    for (size_t i = 0; i < QUEUE_PORTS; i++)
        if (strlen(queue_ports[i]->scheme) == len &&
            memcmp(queue_ports[i]->scheme, address, len) == 0)
            return queue_ports[i];
    return NULL;
}

static int
queue_unknown(const char *address, size_t len)
{
    const char *near = stet__hint_nearest(address, len, queue_words);
    size_t      shown =
        strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");

#ifndef STET_WITH_RABBITMQ
    if ((len == 4 || len == 5) && memcmp(address, "amqps", len) == 0)
        return stet__fail(STET_EURL,
                          "this build has no RabbitMQ; build stet with rabbitmq-c (Debian: "
                          "librabbitmq-dev), or use one of: %s", QUEUE_KNOWN);
#endif
    /* What is no word may be a piece of a password. */
    if (shown > len || shown > 20)
        shown = 0;
    return stet__fail(STET_EURL, "no queue \"%.*s%s\"%s%s%s; this build has: %s", (int)shown,
                      address, address[shown] != '\0' ? "…" : "",
                      near != NULL ? ", did you mean " : "", near != NULL ? near : "",
                      near != NULL ? "?" : "", QUEUE_KNOWN);
}

int
stet__hint_open(stet_hint_port **out, stet__platform *p, const char *address,
                const stet__hint_setup *setup)
{
    size_t               len = strcspn(address, ":");
    const stet_hint_ops *ops = queue_port(address, len);
    stet_hint_port      *h;
    uint8_t              random[10];
    int                  err;

    *out = NULL;
    if (ops == NULL)
        return queue_unknown(address, len);
    if ((h = stet__get0(&p->alloc, ops->size)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for hints");
    p->ops->random(p, random, sizeof random);
    h->ops = ops;
    h->platform = p;
    h->alloc = &p->alloc;
    h->self = stet__id_make(stet__wall_ms(p), random);
    h->store = setup->store;
    h->say = setup->say;
    h->say_arg = setup->say_arg;
    if (strcmp(ops->scheme, "amqp") != 0) /* that one begins with its own scheme */
        address += len + (address[len] == ':' ? 1 : 0);
    if ((err = ops->open(h, address)) != STET_OK) {
        stet__hint_close(h);
        return err;
    }
    *out = h;
    return STET_OK;
}

void
stet__hint_close(stet_hint_port *h)
{
    if (h == NULL)
        return;
    h->ops->close(h);
    stet__free(h->alloc, h);
}
