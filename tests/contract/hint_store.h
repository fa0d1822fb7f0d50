/* What the stamps of the hint contract on the stores' own hints share: two places on the same
 * server, a hint is whatever a commit tells. A stamp says stamp_url(c, place). */
#ifndef HINT_STORE_H
#define HINT_STORE_H

#include "hint_contract.h"

#include <unistd.h>

#include "store/store.h"

#define HINT_IS_EXACT false
#define HINT_FLOOD    300

static void ear_say(void *arg, bool is_connected, int code, const char *text);

static stet_hint_port *
stamp_open(ears *c, int place)
{
    ear             *x = &c->ears[c->n];
    stet__hint_setup setup = { NULL, ear_say, x };
    stet_hint_port  *port;

    x->store = stamp_store(c, place);
    setup.store = x->store;
    CHECK_OK(stet__hint_open(&port, stet__platform_real(), "store", &setup));
    return port;
}

/* A commit tells by itself, unless the store can say more: then whoever committed does. */
static void
stamp_send(ears *c, ear *x, const stet_hint *hint)
{
    static _Atomic uint64_t seq;
    stet_op                 op = { .kind = STET_OP_VALUE_PUT, .space = "t" };
    stet_unit               unit = { .seq = ++seq, .ops = &op, .n_ops = 1 };
    stet_outcome            outcome = { .next_due_ms = STET_NEVER };

    (void)c;
    op.key = stet_text("k");
    op.data = (stet_bytes){ hint, sizeof *hint };
    CHECK_OK(x->store->ops->commit(x->store, &unit, 1, &outcome));
    CHECK_INT(outcome.result, STET_OK);
    stet__free(x->store->alloc, outcome.grants);
    if (x->store->told != NULL && !x->is_deaf)
        x->port->ops->send(x->port, hint);
}

static void
stamp_raw(ears *c, const void *bytes, size_t len)
{
    (void)c;
    (void)bytes;
    (void)len;
}

static void
stamp_close_stores(ears *c)
{
    for (int i = 0; i < c->n; i++)
        stet__store_close(c->ears[i].store);
}

#endif
