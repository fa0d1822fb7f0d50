/* Moving the write-ahead log into the file, on a thread of its own so that no commit pays for it.
 *
 * A passive checkpoint disturbs nobody, but while commits go on it never quite catches up and the log
 * would grow without end. So a long log is first copied passively and then, with the writers' queue
 * held, the small rest; after that the log starts again from its beginning.
 */
#include "store/sqlite.h"

/* In pages of 4 KiB: 4, 32 and 256 MiB. */
#define LOG_PAGES_PASSIVE  1000
#define LOG_PAGES_RESTART  8000
#define LOG_PAGES_TRUNCATE 64000
#define LOG_LOOK_US        1000000
#define LOG_FORGET_MS      (24 * 3600 * 1000LL)

/* Runs on: the committer. The thread also looks by itself now and then, so a signal that falls between
 * its look and its wait costs a little time only. */
static int
log_hook(void *arg, sqlite3 *db, const char *name, int pages)
{
    sqlite_store *st = arg;

    (void)db;
    (void)name;
    atomic_store(&st->log_pages, pages);
    if (pages >= atomic_load(&st->log_mark))
        stet__signal(st->base.platform, &st->log_cond);
    return SQLITE_OK;
}

void
stet__sqlite_log_watch(sqlite_store *st, sqlite_conn *c)
{
    sqlite3_wal_hook(c->db, log_hook, st);
}

/* Locks: log_lock. */
static void
log_checkpoint(sqlite_store *st, int restart_from)
{
    int pages = 0, copied = 0;
    int mode, rc;

    rc = sqlite3_wal_checkpoint_v2(st->log.db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &copied);
    if (pages < 0 || rc != SQLITE_OK)
        pages =
            atomic_load(&st->log_pages); /* another process is at it, or the disk fails: later */
    atomic_store(&st->log_mark, pages + LOG_PAGES_PASSIVE);
    if (rc != SQLITE_OK || pages < restart_from ||
        stet__sqlite_queue_enter(st, st->log.queue_fd) != STET_OK)
        return;
    mode = pages >= LOG_PAGES_TRUNCATE ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART;
    /* A reader may hold it up; then the next round tries again. */
    if (sqlite3_wal_checkpoint_v2(st->log.db, NULL, mode, NULL, NULL) == SQLITE_OK) {
        atomic_store(&st->log_pages, 0);
        atomic_store(&st->log_mark, LOG_PAGES_PASSIVE);
    }
    stet__sqlite_queue_leave(st, st->log.queue_fd);
}

static void
log_loop(void *arg)
{
    sqlite_store   *st = arg;
    stet__platform *p = st->base.platform;

    stet__lock(p, &st->log_lock);
    while (!st->log_stop) {
        if (atomic_load(&st->log_pages) < atomic_load(&st->log_mark))
            stet__wait(p, &st->log_cond, &st->log_lock, stet__mono_us(p) + LOG_LOOK_US);
        else
            log_checkpoint(st, LOG_PAGES_RESTART);
    }
    stet__unlock(p, &st->log_lock);
}

int
stet__sqlite_log_start(sqlite_store *st)
{
    stet__platform *p = st->base.platform;
    int             err;

    if ((err = stet__sqlite_conn_open(st, &st->log, LITE_LOG)) != STET_OK)
        return err;
    sqlite3_busy_timeout(st->log.db, 100); /* it holds the queue while it waits for readers */
    st->log_stop = false;
    atomic_store(&st->log_mark, LOG_PAGES_PASSIVE);
    return p->ops->thread_start(p, &st->log_thread, "stet-log", log_loop, st);
}

void
stet__sqlite_log_stop(sqlite_store *st)
{
    stet__platform *p = st->base.platform;

    if (st->log_thread != NULL) {
        stet__lock(p, &st->log_lock);
        st->log_stop = true;
        stet__signal(p, &st->log_cond);
        stet__unlock(p, &st->log_lock);
        p->ops->thread_join(p, st->log_thread);
        st->log_thread = NULL;
    }
    stet__sqlite_conn_close(&st->log);
}

static int
log_forget(sqlite_store *st)
{
    int64_t       before_ms = stet__sqlite_now(st) - LOG_FORGET_MS;
    sqlite3_stmt *committers, *sessions;
    int           err;

    if ((err = stet__sqlite_begin(st, &st->side)) != STET_OK)
        return err;
    if ((committers = stet__sqlite_stmt(st, &st->side, LITE_SQL_COMMITTER_OLD, &err)) == NULL ||
        (sessions = stet__sqlite_stmt(st, &st->side, LITE_SQL_SESSION_OLD, &err)) == NULL)
        goto failed;
    sqlite3_bind_int64(committers, 1, before_ms);
    sqlite3_bind_int64(sessions, 1, before_ms);
    if ((err = stet__sqlite_run(st, &st->side, committers, "forget old committers")) != STET_OK ||
        (err = stet__sqlite_run(st, &st->side, sessions, "forget old sessions")) != STET_OK)
        goto failed;
    return stet__sqlite_end(st, &st->side);
failed:
    stet__sqlite_rollback(st, &st->side);
    return err;
}

int
stet__sqlite_maintain(stet_store *s)
{
    sqlite_store *st = sqlite_of(s);
    int           err = stet__sqlite_enter(st);

    if (err != STET_OK)
        return err;
    stet__lock(s->platform, &st->side_lock);
    err = log_forget(st);
    stet__unlock(s->platform, &st->side_lock);
    stet__lock(s->platform, &st->log_lock);
    log_checkpoint(st, LOG_PAGES_PASSIVE);
    stet__unlock(s->platform, &st->log_lock);
    return err;
}
