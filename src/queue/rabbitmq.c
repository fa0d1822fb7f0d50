/* Hints by a RabbitMQ broker: the port and its thread.
 *
 * Everything that touches the network is done by one thread, begun by the first send() or watch():
 * so a broker that is slow, hangs or is gone stops nobody. It connects again with growing pauses.
 * What could not be told meanwhile, and what was published and never confirmed, becomes one
 * STET_HINT_ANY when it is back; and whoever listened takes one too, for what it did not hear. A
 * change from connected to not and back is told once, by say() and health().
 *
 * Locks: `lock`; not held when `take` or `say` is called, or anything is asked of the broker.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "queue/rabbitmq.h"

#define RABBIT_RETRY_FIRST_US 100000
#define RABBIT_RETRY_MAX_US   10000000
#define RABBIT_LINGER_US      1000000  /* close() lets the last hints go out */
#define RABBIT_CUT_US         3000000 /* close() cuts the connection of a thread that hangs in it */
#define RABBIT_PACE_MS        1 /* between two rounds of publishing: equal hints meet in the box */

/* ---- being connected, or not ----------------------------------------------------------------- */

static void
rabbit_say(rabbit_port *r, bool is_connected, int code, const char *text)
{
    stet__platform *p = r->base.platform;
    bool            has_changed;

    stet__lock(p, &r->lock);
    /* The first connection that works is no change: nobody was told of anything else. */
    has_changed = r->state.is_connected != is_connected;
    if (has_changed)
        r->state.since_ms = stet__wall_ms(p);
    r->state.is_connected = is_connected;
    r->state.code = code;
    (void)snprintf(r->state.text, sizeof r->state.text, "%s", text);
    stet__unlock(p, &r->lock);
    if (has_changed && r->base.say != NULL)
        r->base.say(r->base.say_arg, is_connected, code, text);
}

/* The connection is of no more use; stet_last_error() says why. */
static void
rabbit_lost(rabbit_port *r, int code)
{
    char text[sizeof r->state.text];

    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    stet__rabbit_disconnect(r, false);
    rabbit_say(r, false, code, text);
    /* Up to a quarter more, each engine its own: a fleet that lost its broker does not come back as
     * one. */
    r->retry_us =
        stet__mono_us(r->base.platform) + r->wait_us + r->wait_us * r->base.self.bytes[15] / 1024;
    r->wait_us = r->wait_us * 2 < RABBIT_RETRY_MAX_US ? r->wait_us * 2 : RABBIT_RETRY_MAX_US;
}

/* Give a hint to who listens. False: nobody does. */
static bool
rabbit_give(rabbit_port *r, const stet_hint *hint, stet_hint_use *use)
{
    stet__platform   *p = r->base.platform;
    stet_hint_take_fn take;
    void             *arg;

    stet__lock(p, &r->lock);
    take = r->must_listen ? r->take : NULL;
    arg = r->arg;
    r->is_taking = take != NULL;
    stet__unlock(p, &r->lock);
    if (take == NULL)
        return false;
    *use = take(arg, hint);
    stet__lock(p, &r->lock);
    r->is_taking = false;
    stet__broadcast(p, &r->cond);
    stet__unlock(p, &r->lock);
    return true;
}

/* ---- a round of the thread ------------------------------------------------------------------- */

/* Listen, or not any more, as it is asked for. */
static int
rabbit_tune(rabbit_port *r)
{
    stet__platform *p = r->base.platform;
    stet_hint_use   use;
    stet_hint       any;
    bool            must_listen;
    uint32_t        wants;
    int             err;

    stet__lock(p, &r->lock);
    must_listen = r->must_listen;
    wants = r->wants;
    stet__unlock(p, &r->lock);
    if (r->is_listening && (!must_listen || wants != r->listens_for) &&
        (err = stet__rabbit_deafen(r)) != STET_OK)
        return err;
    if (!must_listen || r->is_listening)
        return STET_OK;
    if ((err = stet__rabbit_listen(r, wants)) != STET_OK)
        return err;
    memset(&any, 0, sizeof any); /* what was told meanwhile is lost */
    (void)rabbit_give(r, &any, &use);
    return STET_OK;
}

static int
rabbit_publish(rabbit_port *r)
{
    stet__platform *p = r->base.platform;
    stet_hint       hint;
    uint64_t        n = 0;
    int             err = STET_OK;

    while (!r->is_blocked && r->published - r->confirmed < RABBIT_WINDOW && err == STET_OK &&
           stet__outbox_take(&r->box, &hint)) {
        if ((err = stet__rabbit_publish(r, &hint)) == STET_OK)
            n++;
        else
            stet__outbox_lost(&r->box, 1);
    }
    stet__lock(p, &r->lock);
    r->state.sent += n;
    stet__unlock(p, &r->lock);
    if (err == STET_OK && r->published > r->confirmed &&
        stet__mono_us(p) > r->confirm_us + 2000 * (int64_t)r->connect_ms)
        err = r->is_work[(r->confirmed + 1) % RABBIT_WINDOW]
                  ? stet__rabbit_sick(r)
                  : stet__fail(STET_EIO, "queue %s: the broker confirms nothing", r->name);
    return err;
}

/* A message is complete. Nobody listens any more: one that was for us alone goes back. */
static int
rabbit_message(rabbit_port *r)
{
    rabbit_reading *m = &r->reading;
    stet_hint_use   use = STET_HINT_TAKEN;
    stet_hint       hint;
    stet_id         from;
    bool            is_own, is_given = true;

    stet__hint_decode(&hint, &from, m->bytes, m->len);
    is_own = stet__id_equal(from, r->base.self);
    if (is_own)
        use = STET_HINT_PASS; /* it was for the others */
    else {
        stet__lock(r->base.platform, &r->lock);
        r->state.received++;
        stet__unlock(r->base.platform, &r->lock);
        is_given = rabbit_give(r, &hint, &use);
    }
    return m->is_work
               ? stet__rabbit_settle(r, m->tag, !is_given || use == STET_HINT_PASS, !is_given)
               : STET_OK;
}

static int
rabbit_hear(rabbit_port *r)
{
    bool was_blocked = r->is_blocked, has = true;
    int  err = STET_OK;

    while (has && (err = stet__rabbit_read(r, &has)) == STET_OK)
        if (has && (err = rabbit_message(r)) != STET_OK)
            break;
    if (err == STET_OK && r->is_blocked != was_blocked) {
        char text[sizeof r->state.text];

        (void)snprintf(text, sizeof text,
                       r->is_blocked
                           ? "queue %s: the broker takes nothing now (its memory or disk is short)"
                           : "queue %s takes hints again",
                       r->name);
        rabbit_say(r, !r->is_blocked, r->is_blocked ? STET_EBUSY : STET_OK, text);
    }
    return err;
}

/* Is there a reason to have a connection? */
static bool
rabbit_is_needed(rabbit_port *r)
{
    bool must_listen;

    stet__lock(r->base.platform, &r->lock);
    must_listen = r->must_listen;
    stet__unlock(r->base.platform, &r->lock);
    return must_listen || stet__outbox_count(&r->box) > 0;
}

static void
rabbit_try(rabbit_port *r)
{
    char text[sizeof r->state.text];
    int  err;

    if ((err = stet__rabbit_connect(r)) == STET_OK && (err = rabbit_tune(r)) == STET_OK) {
        r->wait_us = RABBIT_RETRY_FIRST_US;
        (void)snprintf(text, sizeof text, "queue %s is connected", r->name);
        rabbit_say(r, true, STET_OK, text);
    } else
        rabbit_lost(r, err);
    stet__lock(r->base.platform, &r->lock);
    r->tries++;
    stet__unlock(r->base.platform, &r->lock);
}

/* Connect if there is need and it is time, or somebody waits for it. */
static void
rabbit_need(rabbit_port *r)
{
    stet__platform *p = r->base.platform;
    bool            must_try;

    stet__lock(p, &r->lock);
    must_try = r->must_try;
    stet__unlock(p, &r->lock);
    if (r->conn == NULL && rabbit_is_needed(r) && (must_try || stet__mono_us(p) >= r->retry_us))
        rabbit_try(r);
    if (!must_try)
        return;
    stet__lock(p, &r->lock);
    r->must_try = false;
    stet__broadcast(p, &r->cond);
    stet__unlock(p, &r->lock);
}

/* close() was called, and there is nothing left to send, no way to, or no time. */
static bool
rabbit_is_over(rabbit_port *r)
{
    stet__platform *p = r->base.platform;
    int64_t         now_us = stet__mono_us(p);
    bool            is_closing, is_late, has_failed;

    stet__lock(p, &r->lock);
    is_closing = r->is_closing;
    is_late = now_us > r->close_us + RABBIT_LINGER_US;
    has_failed = r->conn == NULL && r->tries > 0 && r->retry_us > now_us;
    stet__unlock(p, &r->lock);
    return is_closing && (is_late || has_failed ||
                          (stet__outbox_count(&r->box) == 0 && r->published == r->confirmed));
}

/* Milliseconds until the thread has something to do by itself. */
static int
rabbit_pause_ms(rabbit_port *r)
{
    int64_t in_us;

    if (r->conn != NULL && r->published > r->confirmed)
        return r->connect_ms / 4 < r->heartbeat_s * 500 ? r->connect_ms / 4 : r->heartbeat_s * 500;
    if (r->conn != NULL) /* half a heartbeat: the library sends and checks them when it is called */
        return r->heartbeat_s * 500;
    if (!rabbit_is_needed(r))
        return -1;
    in_us = r->retry_us - stet__mono_us(r->base.platform);
    return in_us <= 0 ? 0 : (int)(in_us / 1000) + 1;
}

static void
rabbit_wait(rabbit_port *r, bool has_published)
{
    struct pollfd at[2] = { { .fd = r->box.wake_fd, .events = POLLIN },
                            { .fd = r->conn != NULL ? amqp_get_sockfd(r->conn) : -1,
                              .events = POLLIN } };
    int           ms = rabbit_pause_ms(r), closing_ms = 50;

    if (has_published)
        (void)poll(&at[1], 1, RABBIT_PACE_MS);
    stet__lock(r->base.platform, &r->lock);
    if (r->is_closing && (ms < 0 || ms > closing_ms))
        ms = closing_ms;
    stet__unlock(r->base.platform, &r->lock);
    if (poll(at, 2, ms) > 0 && at[0].revents != 0)
        stet__outbox_awake(&r->box);
}

static void
rabbit_main(void *arg)
{
    rabbit_port    *r = arg;
    stet__platform *p = r->base.platform;

    while (!rabbit_is_over(r)) {
        uint64_t before = r->published;
        int      err;

        rabbit_need(r);
        if (r->conn != NULL &&
            ((err = rabbit_tune(r)) != STET_OK || (err = rabbit_hear(r)) != STET_OK ||
             (err = rabbit_publish(r)) != STET_OK))
            rabbit_lost(r, err);
        rabbit_wait(r, r->conn != NULL && r->published != before);
    }
    stet__rabbit_disconnect(r, true);
    stet__lock(p, &r->lock);
    r->is_over = true;
    stet__broadcast(p, &r->cond);
    stet__unlock(p, &r->lock);
}

/* ---- the port -------------------------------------------------------------------------------- */

static int
rabbit_open(stet_hint_port *h, const char *address)
{
    rabbit_port *r = rabbit_of(h);
    int          err;

    r->fd = -1;
    r->wait_us = RABBIT_RETRY_FIRST_US;
    r->state.is_connected = true;
    if ((err = stet__rabbit_parse(r, address)) != STET_OK)
        return err;
    if ((err = h->platform->ops->mutex_init(h->platform, &r->lock)) != STET_OK)
        return err;
    if ((err = h->platform->ops->cond_init(h->platform, &r->cond)) != STET_OK) {
        h->platform->ops->mutex_destroy(h->platform, &r->lock);
        return err;
    }
    r->has_lock = true;
    return stet__outbox_open(&r->box, h->platform);
}

/* Lock held. */
static int
rabbit_need_thread(rabbit_port *r)
{
    stet__platform *p = r->base.platform;

    if (r->thread != NULL)
        return STET_OK;
    return p->ops->thread_start(p, &r->thread, "stet-hint", rabbit_main, r);
}

static void
rabbit_send(stet_hint_port *h, const stet_hint *hint)
{
    rabbit_port *r = rabbit_of(h);
    bool         has_thread;

    stet__lock(h->platform, &r->lock);
    has_thread = rabbit_need_thread(r) == STET_OK;
    stet__unlock(h->platform, &r->lock);
    if (has_thread)
        stet__outbox_put(&r->box, hint);
    else
        stet__outbox_lost(&r->box, 1);
}

static int
rabbit_watch(stet_hint_port *h, uint32_t wants, stet_hint_take_fn take, void *arg)
{
    rabbit_port *r = rabbit_of(h);
    int          err;

    stet__lock(h->platform, &r->lock);
    if (r->must_listen)
        err = stet__fail(STET_ESTATE, "queue %s is watched already", r->name);
    else if ((err = rabbit_need_thread(r)) == STET_OK) {
        r->must_listen = true;
        r->wants = wants;
        r->take = take;
        r->arg = arg;
        /* One try is waited for: what it finds wrong in the address is better said at once. */
        r->must_try = true;
        stet__outbox_wake(&r->box);
        while (r->must_try)
            (void)stet__wait(h->platform, &r->cond, &r->lock, STET__FOREVER);
        if (!r->state.is_connected && r->state.code == STET_ECONFIG) {
            err = stet__fail(STET_ECONFIG, "%s", r->state.text);
            r->must_listen = false;
        }
    }
    stet__unlock(h->platform, &r->lock);
    return err;
}

static void
rabbit_unwatch(stet_hint_port *h)
{
    rabbit_port *r = rabbit_of(h);

    stet__lock(h->platform, &r->lock);
    if (r->must_listen) {
        r->must_listen = false;
        stet__outbox_wake(&r->box);
    }
    while (r->is_taking)
        (void)stet__wait(h->platform, &r->cond, &r->lock, STET__FOREVER);
    stet__unlock(h->platform, &r->lock);
}

static void
rabbit_join(rabbit_port *r)
{
    stet__platform *p = r->base.platform;
    int64_t         until_us = stet__mono_us(p) + RABBIT_CUT_US;

    stet__lock(p, &r->lock);
    r->is_closing = true;
    r->close_us = stet__mono_us(p);
    stet__outbox_wake(&r->box);
    while (!r->is_over && stet__mono_us(p) < until_us)
        (void)stet__wait(p, &r->cond, &r->lock, until_us);
    if (!r->is_over && r->fd >= 0)
        (void)shutdown(r->fd, SHUT_RDWR);
    stet__unlock(p, &r->lock);
    p->ops->thread_join(p, r->thread);
    r->thread = NULL;
}

static void
rabbit_close(stet_hint_port *h)
{
    rabbit_port *r = rabbit_of(h);

    if (r->thread != NULL) {
        rabbit_unwatch(h);
        rabbit_join(r);
    }
    stet__outbox_close(&r->box);
    if (r->has_lock) {
        h->platform->ops->cond_destroy(h->platform, &r->cond);
        h->platform->ops->mutex_destroy(h->platform, &r->lock);
    }
    r->has_lock = false;
    stet__rabbit_forget(r);
}

static void
rabbit_health(stet_hint_port *h, stet_hint_health *health)
{
    rabbit_port *r = rabbit_of(h);

    stet__lock(h->platform, &r->lock);
    *health = r->state;
    stet__unlock(h->platform, &r->lock);
    health->dropped = stet__outbox_dropped(&r->box);
}

const stet_hint_ops stet__hint_rabbitmq_ops = {
    .version = 1,
    .scheme = "amqp",
    .size = sizeof(rabbit_port),
    .open = rabbit_open,
    .close = rabbit_close,
    .send = rabbit_send,
    .watch = rabbit_watch,
    .unwatch = rabbit_unwatch,
    .health = rabbit_health,
};
