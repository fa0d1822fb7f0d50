/* Hints by LISTEN and NOTIFY, on a connection of their own.
 *
 * A commit does not notify by itself: PostgreSQL lets one notifying transaction at a time through
 * its commit, with its flush. So the commit only says that there is news, and the thread that
 * listens sends one notification for all news since the last; that transaction writes nothing and
 * waits for no flush. A handle without that thread sends it after its commit. A hint that is lost
 * costs a poll.
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

static int
hint_send(pg_store *st, pg_link *c)
{
    PGresult *res = NULL;
    pg_args   args = { 0 };
    int       err;

    pg_arg_raw(&args, PG_TEXT, st->channel, strlen(st->channel));
    pg_arg_raw(&args, PG_TEXT, st->self, strlen(st->self));
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
        (void)hint_send(st, &st->writer);
    else if (!atomic_exchange(&st->has_news, true))
        hint_wake(st);
}

void
stet__pg_hint_renew(pg_store *st)
{
    if (atomic_load(&st->is_watching))
        hint_wake(st);
}

static int
hint_listen(pg_store *st)
{
    char sql[PG_SCHEMA_MAX + 32];
    int  err;

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
    (void)snprintf(sql, sizeof sql, "LISTEN %s", st->channel);
    return stet__pg_exec(st, &st->hint, sql, NULL, "listen");
}

/* Has anybody but us told something? */
static bool
hint_take(pg_store *st)
{
    PGnotify *note;
    bool      is_news = false;

    while ((note = PQnotifies(st->hint.db)) != NULL) {
        is_news = is_news || strcmp(note->extra, st->self) != 0;
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

    if (poll(at, 2, HINT_LOOK_MS) < 0)
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
        if (atomic_exchange(&st->has_news, false))
            (void)hint_send(st, &st->hint);
        if (st->hint.db != NULL && hint_take(st))
            st->on_hint(st->hint_arg);
        if (st->hint.db != NULL && atomic_load(&st->is_watching) && !hint_wait(st))
            stet__pg_conn_close(&st->hint);
    }
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
    else if ((err = hint_listen(st)) == STET_OK) {
        st->on_hint = on_hint;
        st->hint_arg = arg;
        if ((st->hint_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
            err = stet__fail(STET_EIO, "store %s: %s", st->name, strerror(errno));
        else {
            atomic_store(&st->is_watching, true);
            err = s->platform->ops->thread_start(s->platform, &st->hint_thread, "stet-hint",
                                                 hint_main, st);
            if (err != STET_OK) {
                atomic_store(&st->is_watching, false);
                close(st->hint_fd);
                st->hint_fd = -1;
            }
        }
        if (err != STET_OK)
            stet__pg_conn_close(&st->hint);
    }
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
        atomic_store(&st->is_watching, false);
        stet__unlock(s->platform, &st->commit_lock);
        hint_wake(st);
        s->platform->ops->thread_join(s->platform, st->hint_thread);
        st->hint_thread = NULL;
        if (atomic_exchange(&st->has_news, false) && st->hint.db != NULL)
            (void)hint_send(st, &st->hint); /* the last news */
        stet__pg_conn_close(&st->hint);
        close(st->hint_fd);
        st->hint_fd = -1;
    }
    stet__unlock(s->platform, &st->hint_lock);
}
