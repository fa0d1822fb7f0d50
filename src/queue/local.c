/* Hints between the engines of one machine, those of one process among them: local, or local:NAME.
 *
 * Who listens binds one of LOCAL_SEATS datagram sockets, by a name that the kernel keeps and
 * forgets with the process; no file is left, and nothing is shared in memory, so engines need not
 * know of each other. A hint goes to every seat of the same user and NAME that somebody sits on. A
 * seat whose queue is full (the kernel keeps ten) is owed a STET_HINT_ANY, which stands for all it
 * missed.
 *
 * Runs on: one thread a port, begun by the first send() or watch(). Locks: `lock`; not held when
 * `take` is called, but unwatch() waits for the end of such a call.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "queue/queue.h"

#define LOCAL_SEATS    64
#define LOCAL_NAME_MAX 40
#define LOCAL_OWED_MS  1

typedef struct local_port {
    stet_hint_port    base;
    char              name[LOCAL_NAME_MAX + 1];
    stet__outbox      box;
    stet__mutex       lock;
    stet__cond        cond; /* is_taking or `seat` changed */
    bool              has_lock;
    stet__thread     *thread;
    int               out_fd, in_fd; /* in_fd < 0: nobody listens; changed with the lock */
    int               seat;
    bool              is_closing, is_taking;
    bool              is_deaf; /* unwatch() waits for the thread to see that in_fd is gone */
    stet_hint_take_fn take;
    void             *arg;
    uint64_t          owed; /* a bit for each seat; the thread's own */
    _Atomic uint64_t  sent, received;
} local_port;

static local_port *
local_of(stet_hint_port *h)
{
    return (local_port *)(void *)h;
}

static int
local_open(stet_hint_port *h, const char *address)
{
    local_port *l = local_of(h);
    size_t      len = strlen(address);
    int         err;

    l->out_fd = l->in_fd = l->seat = -1;
    if (len > LOCAL_NAME_MAX ||
        strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != len)
        return stet__fail(STET_EURL,
                          "queue=local:NAME has a name of at most %d letters, digits and - _ .",
                          LOCAL_NAME_MAX);
    memcpy(l->name, len > 0 ? address : "default", len > 0 ? len + 1 : 8);
    if ((err = h->platform->ops->mutex_init(h->platform, &l->lock)) != STET_OK)
        return err;
    if ((err = h->platform->ops->cond_init(h->platform, &l->cond)) != STET_OK) {
        h->platform->ops->mutex_destroy(h->platform, &l->lock);
        return err;
    }
    l->has_lock = true;
    if ((err = stet__outbox_open(&l->box, h->platform)) != STET_OK)
        return err;
    if ((l->out_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        return stet__fail(STET_EIO, "queue=local: %s", strerror(errno));
    return STET_OK;
}

/* A leading NUL: the kernel's own names, which need no file. */
static socklen_t
local_address(const local_port *l, int seat, struct sockaddr_un *at)
{
    int len;

    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    len = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "stet-hint/%ld/%s/%d", (long)getuid(),
                   l->name, seat);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void
local_send_seat(local_port *l, int seat, const uint8_t *bytes, size_t len)
{
    struct sockaddr_un at;
    socklen_t          at_len = local_address(l, seat, &at);

    if (sendto(l->out_fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&at,
               at_len) >= 0)
        l->owed &= ~(UINT64_C(1) << seat);
    else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
        l->owed |= UINT64_C(1) << seat;
    else
        l->owed &= ~(UINT64_C(1) << seat); /* nobody sits there */
}

static void
local_pay(local_port *l)
{
    uint8_t   bytes[STET__HINT_BYTES_MAX];
    stet_hint any;
    size_t    len;

    if (l->owed == 0)
        return;
    memset(&any, 0, sizeof any);
    len = stet__hint_encode(bytes, l->base.self, &any);
    for (int i = 0; i < LOCAL_SEATS; i++)
        if ((l->owed & UINT64_C(1) << i) != 0)
            local_send_seat(l, i, bytes, len);
}

static void
local_drain(local_port *l)
{
    uint8_t   bytes[STET__HINT_BYTES_MAX];
    stet_hint hint;
    size_t    len;

    while (stet__outbox_take(&l->box, &hint)) {
        len = stet__hint_encode(bytes, l->base.self, &hint);
        for (int i = 0; i < LOCAL_SEATS; i++)
            if ((l->owed & UINT64_C(1) << i) == 0) /* who is owed one gets that first */
                local_send_seat(l, i, bytes, len);
        l->sent++;
    }
    local_pay(l);
}

/* ---- listening ------------------------------------------------------------------------------- */

/* One hint, if there is one and we still listen. */
static bool
local_hear(local_port *l)
{
    stet__platform   *p = l->base.platform;
    uint8_t           bytes[STET__HINT_BYTES_MAX];
    stet_hint_take_fn take;
    stet_hint         hint;
    stet_id           from;
    void             *arg;
    ssize_t           len;

    stet__lock(p, &l->lock);
    len = l->in_fd >= 0 ? recv(l->in_fd, bytes, sizeof bytes, MSG_DONTWAIT) : -1;
    take = l->take;
    arg = l->arg;
    l->is_taking = len >= 0;
    stet__unlock(p, &l->lock);
    if (len < 0)
        return false;
    stet__hint_decode(&hint, &from, bytes, (size_t)len);
    if (!stet__id_equal(from, l->base.self)) {
        l->received++;
        (void)take(arg, &hint); /* everybody was told, so there is nobody to pass it to */
    }
    stet__lock(p, &l->lock);
    l->is_taking = false;
    stet__broadcast(p, &l->cond);
    stet__unlock(p, &l->lock);
    return true;
}

static void
local_main(void *arg)
{
    local_port     *l = arg;
    stet__platform *p = l->base.platform;

    for (;;) {
        struct pollfd at[2] = { { .fd = l->box.wake_fd, .events = POLLIN }, { .events = POLLIN } };
        bool          is_closing;

        stet__lock(p, &l->lock);
        at[1].fd = l->in_fd;
        is_closing = l->is_closing;
        l->is_deaf = l->in_fd < 0;
        stet__broadcast(p, &l->cond);
        stet__unlock(p, &l->lock);
        local_drain(l);
        if (is_closing)
            return; /* after the last ones went out */
        if (poll(at, 2, l->owed != 0 ? LOCAL_OWED_MS : -1) < 0 && errno != EINTR)
            return; /* cannot be: two good descriptors */
        if (at[0].revents != 0)
            stet__outbox_awake(&l->box);
        if (at[1].revents != 0)
            while (local_hear(l))
                ;
    }
}

/* Lock held. */
static int
local_need_thread(local_port *l)
{
    stet__platform *p = l->base.platform;

    if (l->thread != NULL)
        return STET_OK;
    return p->ops->thread_start(p, &l->thread, "stet-hint", local_main, l);
}

static void
local_send(stet_hint_port *h, const stet_hint *hint)
{
    local_port *l = local_of(h);
    bool        has_thread;

    stet__lock(h->platform, &l->lock);
    has_thread = local_need_thread(l) == STET_OK;
    stet__unlock(h->platform, &l->lock);
    if (has_thread)
        stet__outbox_put(&l->box, hint);
    else
        stet__outbox_lost(&l->box, 1);
}

/* Sit down on the first free seat. Lock held. */
static int
local_sit(local_port *l)
{
    struct sockaddr_un at;
    socklen_t          len;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;

    if (fd < 0)
        return stet__fail(STET_EIO, "queue=local: %s", strerror(errno));
    for (int i = 0; i < LOCAL_SEATS; i++) {
        len = local_address(l, i, &at);
        if (bind(fd, (struct sockaddr *)&at, len) == 0) {
            l->in_fd = fd;
            l->seat = i;
            return STET_OK;
        }
        if ((why = errno) != EADDRINUSE)
            break;
    }
    close(fd);
    if (why == EADDRINUSE)
        return stet__fail(STET_EBUSY,
                          "queue=local:%s: %d engines listen already; use another name, or "
                          "queue=store", l->name, LOCAL_SEATS);
    return stet__fail(STET_EIO, "queue=local:%s: %s", l->name, strerror(why));
}

static int
local_watch(stet_hint_port *h, uint32_t wants, stet_hint_take_fn take, void *arg)
{
    local_port *l = local_of(h);
    int         err;

    (void)wants;
    stet__lock(h->platform, &l->lock);
    if (l->in_fd >= 0)
        err = stet__fail(STET_ESTATE, "queue=local:%s is watched already", l->name);
    else if ((err = local_need_thread(l)) == STET_OK && (err = local_sit(l)) == STET_OK) {
        l->take = take;
        l->arg = arg;
        stet__outbox_wake(&l->box);
    }
    stet__unlock(h->platform, &l->lock);
    return err;
}

/* The thread polls the descriptor, so it is closed only when the thread has seen that it is not
 * ours any more; the number may be somebody else's soon. */
static void
local_unwatch(stet_hint_port *h)
{
    local_port *l = local_of(h);
    int         fd;

    stet__lock(h->platform, &l->lock);
    fd = l->in_fd;
    l->in_fd = l->seat = -1;
    l->is_deaf = false;
    if (fd >= 0)
        stet__outbox_wake(&l->box);
    while (fd >= 0 && (l->is_taking || !l->is_deaf))
        (void)stet__wait(h->platform, &l->cond, &l->lock, STET__FOREVER);
    stet__unlock(h->platform, &l->lock);
    if (fd >= 0)
        close(fd);
}

static void
local_close(stet_hint_port *h)
{
    local_port *l = local_of(h);

    if (l->thread != NULL) {
        local_unwatch(h);
        stet__lock(h->platform, &l->lock);
        l->is_closing = true;
        stet__unlock(h->platform, &l->lock);
        stet__outbox_wake(&l->box);
        h->platform->ops->thread_join(h->platform, l->thread);
        l->thread = NULL;
    }
    stet__outbox_close(&l->box);
    if (l->out_fd >= 0)
        close(l->out_fd);
    l->out_fd = -1;
    if (l->has_lock) {
        h->platform->ops->cond_destroy(h->platform, &l->cond);
        h->platform->ops->mutex_destroy(h->platform, &l->lock);
    }
    l->has_lock = false;
}

static void
local_health(stet_hint_port *h, stet_hint_health *health)
{
    local_port *l = local_of(h);

    memset(health, 0, sizeof *health);
    health->is_connected = true;
    health->sent = l->sent;
    health->received = l->received;
    health->dropped = stet__outbox_dropped(&l->box);
}

const stet_hint_ops stet__hint_local_ops = {
    .version = 1,
    .scheme = "local",
    .size = sizeof(local_port),
    .open = local_open,
    .close = local_close,
    .send = local_send,
    .watch = local_watch,
    .unwatch = local_unwatch,
    .health = local_health,
};
