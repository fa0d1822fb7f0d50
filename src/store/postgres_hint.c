/* Hints by LISTEN and NOTIFY, on a connection of their own.
 *
 * A commit does not notify by itself: PostgreSQL lets one notifying transaction at a time through
 * its commit, with its flush. So the commit only says that there is news, and the thread that
 * listens sends one notification for all news since the last; that transaction writes nothing and
 * waits for no flush. A handle without that thread sends it after its commit. A hint that is lost
 * costs a poll. If the engine listens itself (`told`), it says what changed, and that goes into the
 * notification; a commit says nothing then.
 *
 * Runs that end under their claim, which nearly all do, are told on a channel of their own, if
 * somebody waits for them (postgres_ends.c), and who waits for none does not listen there. Waiting
 * shows by load() of what has ended; from then on the handle listens. What else the engine tells,
 * other ends among it, goes to everybody.
 *
 * The connection that listens is made by hint_listen() and nowhere else: one that a statement made
 * anew by itself would be as good as any for that statement, and deaf. Whoever loses it closes it,
 * and behind the next one everybody looks, since what was told meanwhile is lost.
 *
 * Behind a pooler that hands out another server process with every transaction nothing can be
 * listened to; watch() says so and the engine polls.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "store/postgres.h"

#define HINT_LOOK_MS  30000 /* a connection that is dead and silent is found by then */
#define HINT_RETRY_MS 250

/* `what`: "", something changed; else as in st->telling. */
static int
hint_send(pg_store *st, pg_link *c, const char *what)
{
    PGresult *res = NULL;
    pg_args   args = { 0 };
    char      text[sizeof st->self + PG_TELL_MAX];
    int       n = snprintf(text, sizeof text, "%s%s", st->self, what), err;

    stet__pg_arg_raw(&args, PG_TEXT, st->channel, strlen(st->channel));
    stet__pg_arg_raw(&args, PG_TEXT, text, (size_t)n);
    err = stet__pg_query(st, c, PG_SQL_NOTIFY, &args, &res, "tell the others");
    PQclear(res);
    return err;
}

static void
hint_wake(pg_store *st)
{
    uint64_t one = 1;
    ssize_t  done = write(st->hint_fd, &one, sizeof one);

    (void)done; /* it is full: then it wakes anyway */
}

void
stet__pg_hint(pg_store *st)
{
    if (st->base.is_mute)
        return;
    if (!atomic_load(&st->is_watching))
        (void)hint_send(st, &st->writer, "");
    else if (!atomic_exchange(&st->has_news, true))
        hint_wake(st);
}

/* ---- what the engine tells --------------------------------------------------------------------- */

bool
stet__pg_is_told(pg_store *st)
{
    return atomic_load(&st->is_watching) && st->base.told != NULL;
}

/* ":" and the bytes as hexadecimal digits, and a NUL; where that is. */
static char *
hint_put(char *to, const void *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t    *at = bytes;

    *to++ = ':';
    for (size_t i = 0; i < len; i++) {
        *to++ = digits[at[i] >> 4];
        *to++ = digits[at[i] & 15];
    }
    *to = '\0';
    return to;
}

bool
stet__pg_behind(pg_store *st, const char *channel, const void *bytes, size_t len)
{
    size_t n = st->n_behind;

    if (n > 0 && channel != st->behind_on)
        return false;
    st->behind_on = channel;
    if (n == 0)
        n = (size_t)snprintf(st->behind, sizeof st->behind, "%s", st->self);
    if (n + 2 + 2 * len > PG_TELL_MAX)
        return false;
    st->n_behind = (size_t)(hint_put(st->behind + n, bytes, len) - st->behind);
    return true;
}

void
stet__pg_tell(stet_store *s, const void *bytes, size_t len)
{
    pg_store *st = pg_of(s);
    bool      is_first;

    stet__lock(s->platform, &st->tell_lock);
    is_first = st->n_telling == 0 && !st->tells_all;
    if (st->n_telling + 2 + 2 * len > sizeof st->telling)
        st->tells_all = true;
    else {
        char *from = st->telling + st->n_telling, *to = hint_put(from, bytes, len);

        if (strstr(st->telling, from) == from) /* told once is enough */
            st->n_telling = (size_t)(to - st->telling);
        else
            *from = '\0';
    }
    if (is_first && atomic_load(&st->is_watching)) /* with the lock: the eventfd is there */
        hint_wake(st);
    stet__unlock(s->platform, &st->tell_lock);
}

/* Everything that is to be told, in one notification. If the connection is lost with it, the next
 * one tells that something changed, once. */
static void
hint_tell(pg_store *st)
{
    char what[PG_TELL_MAX];
    bool has_news = atomic_exchange(&st->has_news, false), was_all;

    stet__lock(st->base.platform, &st->tell_lock);
    was_all = st->tells_all;
    has_news = has_news || was_all;
    (void)snprintf(what, sizeof what, "%s", has_news ? "" : st->telling);
    has_news = has_news || st->n_telling > 0;
    st->n_telling = 0;
    st->telling[0] = '\0';
    st->tells_all = false;
    stet__unlock(st->base.platform, &st->tell_lock);
    if (!has_news || hint_send(st, &st->hint, what) == STET_OK || st->hint.db != NULL || was_all)
        return;
    stet__lock(st->base.platform, &st->tell_lock);
    st->tells_all = true;
    stet__unlock(st->base.platform, &st->tell_lock);
}

static bool
hint_hex(const char *text, size_t digits, uint8_t *out, size_t size)
{
    if (digits % 2 != 0 || digits / 2 > size)
        return false;
    for (size_t i = 0; i < digits; i++) {
        const char *all = "0123456789abcdef", *digit = memchr(all, text[i], 16);

        if (digit == NULL)
            return false;
        out[i / 2] = (uint8_t)(i % 2 == 0 ? (digit - all) << 4 : out[i / 2] | (digit - all));
    }
    return true;
}

/* One notification of somebody else. True: something changed, and no more is said about it. */
static bool
hint_hear(pg_store *st, const char *text)
{
    uint8_t bytes[512];

    text = strchr(text, ':');
    if (text == NULL || st->base.told == NULL)
        return true;
    while (*text == ':') {
        size_t digits = strcspn(++text, ":");

        if (!hint_hex(text, digits, bytes, sizeof bytes))
            return true;
        st->base.told(st->base.told_arg, bytes, digits / 2);
        text += digits;
    }
    return false;
}

void
stet__pg_hint_renew(pg_store *st)
{
    if (atomic_load(&st->is_watching))
        hint_wake(st);
}

static int
hint_listen_to(pg_store *st, const char *channel)
{
    char sql[sizeof st->channel + 16];

    (void)snprintf(sql, sizeof sql, "LISTEN %s", channel);
    return stet__pg_exec(st, &st->hint, sql, NULL, "listen");
}

static bool
hint_wants_ends(pg_store *st)
{
    bool wants;

    stet__lock(st->base.platform, &st->tell_lock);
    wants = (st->ends_wanted | st->ends_held) != 0;
    stet__unlock(st->base.platform, &st->tell_lock);
    return wants;
}

static int
hint_listen(pg_store *st)
{
    int err;

    if ((err = stet__pg_conn_need(st, &st->hint)) != STET_OK)
        return err;
    if (atomic_load(&st->is_pooled)) {
        stet__pg_conn_close(&st->hint);
        return stet__fail(STET_ESTATE,
                          "store %s: a pooler stands before the server, so there are no "
                          "notifications (give the address of "
                          "the server itself to have them)",
                          st->name);
    }
    st->hears_ends =
        st->base.is_client || st->base.wants_ends || st->base.told == NULL || hint_wants_ends(st);
    if ((err = hint_listen_to(st, st->channel)) != STET_OK ||
        (st->hears_ends && (err = hint_listen_to(st, st->ends)) != STET_OK) ||
        (err = stet__pg_ends_listen(st, true)) != STET_OK)
        return err;
    st->hint.is_listening = true;
    return STET_OK;
}

/* Somebody waits now, or nobody any more. */
static void
hint_listen_ends(pg_store *st)
{
    bool wants = st->hears_ends || hint_wants_ends(st);

    if (st->hint.db == NULL)
        return;
    if ((wants && !st->hears_ends && hint_listen_to(st, st->ends) != STET_OK) ||
        stet__pg_ends_listen(st, false) != STET_OK)
        stet__pg_conn_close(&st->hint); /* the next one listens to both */
    st->hears_ends = wants;
}

/* Has anybody but us told that something changed? */
static bool
hint_take(pg_store *st)
{
    PGnotify *note;
    bool      is_news = false;

    while ((note = PQnotifies(st->hint.db)) != NULL) {
        if (strncmp(note->extra, st->self, strlen(st->self)) != 0)
            is_news = hint_hear(st, note->extra) || is_news;
        PQfreemem(note);
    }
    return is_news;
}

/* Wait for news of others or of our own; false: the connection is of no more use. */
static bool
hint_wait(pg_store *st)
{
    struct pollfd at[2] = { { .fd = PQsocket(st->hint.db), .events = POLLIN },
                            { .fd = st->hint_fd, .events = POLLIN } };
    uint64_t      count;

    if (poll(at, 2, stet__pg_ends_wait_ms(st, HINT_LOOK_MS)) < 0)
        return errno == EINTR;
    if ((at[1].revents & POLLIN) != 0 && read(st->hint_fd, &count, sizeof count) < 0)
        return false;
    if (at[0].revents != 0 && PQconsumeInput(st->hint.db) == 0)
        return false;
    return true;
}

static void
hint_main(void *arg)
{
    pg_store     *st = arg;
    struct pollfd end = { .fd = st->hint_fd, .events = POLLIN };
    uint64_t      count;

    while (atomic_load(&st->is_watching)) {
        if (st->hint.db != NULL && st->hint.era != atomic_load(&st->era))
            stet__pg_conn_close(&st->hint);
        if (st->hint.db == NULL) {
            if (hint_listen(st) != STET_OK) {
                stet__pg_conn_close(&st->hint);
                if (poll(&end, 1, HINT_RETRY_MS) > 0 && read(st->hint_fd, &count, sizeof count) < 0)
                    break;
                continue;
            }
            st->on_hint(st->hint_arg); /* what was told meanwhile is lost */
        }
        hint_tell(st);
        hint_listen_ends(st);
        if (st->hint.db != NULL && hint_take(st))
            st->on_hint(st->hint_arg);
        if (st->hint.db != NULL && atomic_load(&st->is_watching) && !hint_wait(st))
            stet__pg_conn_close(&st->hint);
    }
}

/* With hint_lock. */
static int
hint_start(pg_store *st, stet_hint_fn on_hint, void *arg)
{
    int err;

    if ((err = hint_listen(st)) != STET_OK)
        return err;
    st->on_hint = on_hint;
    st->hint_arg = arg;
    if ((st->hint_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return stet__fail(STET_EIO, "store %s: %s", st->name, strerror(errno));
    atomic_store(&st->is_watching, true);
    err = st->base.platform->ops->thread_start(st->base.platform, &st->hint_thread, "stet-hint",
                                               hint_main, st);
    if (err != STET_OK) {
        atomic_store(&st->is_watching, false);
        close(st->hint_fd);
        st->hint_fd = -1;
    }
    return err;
}

int
stet__pg_watch(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    pg_store *st = pg_of(s);
    int       err;

    if ((err = stet__pg_enter(st)) != STET_OK)
        return err;
    stet__lock(s->platform, &st->hint_lock);
    if (st->hint_thread != NULL)
        err = stet__fail(STET_ESTATE, "store %s is watched already", st->name);
    else if ((err = hint_start(st, on_hint, arg)) != STET_OK)
        stet__pg_conn_close(&st->hint);
    stet__unlock(s->platform, &st->hint_lock);
    return err;
}

void
stet__pg_unwatch(stet_store *s)
{
    pg_store *st = pg_of(s);

    if (!st->is_open || st->pid != getpid())
        return;
    stet__lock(s->platform, &st->hint_lock);
    if (st->hint_thread != NULL) {
        stet__lock(s->platform, &st->commit_lock); /* nobody is about to write to hint_fd */
        stet__lock(s->platform, &st->tell_lock);
        atomic_store(&st->is_watching, false);
        stet__unlock(s->platform, &st->tell_lock);
        stet__unlock(s->platform, &st->commit_lock);
        hint_wake(st);
        s->platform->ops->thread_join(s->platform, st->hint_thread);
        st->hint_thread = NULL;
        stet__lock(s->platform, &st->tell_lock);
        st->ends_wanted |= st->ends_held; /* nobody is told meanwhile */
        st->ends_held = 0;
        stet__unlock(s->platform, &st->tell_lock);
        st->hint.is_listening = false; /* it need not any more */
        if (st->hint.db != NULL)
            hint_tell(st); /* the last news */
        stet__pg_conn_close(&st->hint);
        close(st->hint_fd);
        st->hint_fd = -1;
    }
    stet__unlock(s->platform, &st->hint_lock);
}
