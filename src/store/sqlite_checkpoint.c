/* Moving the write-ahead log into the file, on a thread of its own so that no commit pays for it.
 *
 * A passive checkpoint disturbs nobody, but while commits go on it never quite catches up and the log
 * would grow without end. So a long log is first copied passively and then, with the writers' queue
 * held, the small rest; after that the log starts again from its beginning.
 *
 * The same thread keeps the log's file longer than the log; see log_make_room().
 */
#include "store/sqlite.h"

/* In pages of 4 KiB: 4, 32 and 256 MiB. */
#define LOG_PAGES_PASSIVE  1000
#define LOG_PAGES_RESTART  8000
#define LOG_PAGES_TRUNCATE 64000
#define LOG_LOOK_US        1000000
/* How far ahead of the log its file is written, in pages: a little in the beginning, 2 MiB later. */
#define LOG_AHEAD_MIN      64
#define LOG_AHEAD_MAX      512
#define LOG_AHEAD_PIECE    (512 * 1024) /* bytes at a time, so that no commit waits for long */
#define LOG_FRAME_BYTES    (4096 + 24) /* a page with its header */
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
    if (pages >= atomic_load(&st->log_mark) || pages >= atomic_load(&st->log_room_mark))
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
        if (mode == SQLITE_CHECKPOINT_TRUNCATE)
            atomic_store(&st->log_room_mark, 1);
    }
    stet__sqlite_queue_leave(st, st->log.queue_fd);
}

/* ---- room ahead ------------------------------------------------------------------------------ */

/* Zeros behind the end of the log's file until it has this many bytes, or a piece of that. The writers' lock is held:
 * nobody appends. */
static int
log_lengthen(sqlite3_file *file, sqlite3_int64 bytes, sqlite3_int64 *size)
{
    static const char zeros[8192] = { 0 };
    sqlite3_int64     until;
    int               rc = file->pMethods->xFileSize(file, size);

    until = *size + LOG_AHEAD_PIECE < bytes ? *size + LOG_AHEAD_PIECE : bytes;
    while (rc == SQLITE_OK && *size < until)
        if ((rc = file->pMethods->xWrite(file, zeros, sizeof zeros, *size)) == SQLITE_OK)
            *size += (sqlite3_int64)sizeof zeros;
    return rc;
}

/* One piece. Writers wait while it is written, not while it is flushed. */
static int
log_lengthen_locked(sqlite_store *st, sqlite3_int64 bytes, sqlite3_int64 *size)
{
    sqlite3_file *file = NULL;
    int           rc;

    if (stet__sqlite_queue_enter(st, st->log.queue_fd) != STET_OK)
        return SQLITE_BUSY;
    if ((rc = sqlite3_exec(st->log.db, "BEGIN IMMEDIATE", NULL, NULL, NULL)) == SQLITE_OK) {
        rc = sqlite3_file_control(st->log.db, NULL, SQLITE_FCNTL_JOURNAL_POINTER, &file);
        if (rc == SQLITE_OK && (file == NULL || file->pMethods == NULL))
            rc = SQLITE_ERROR;
        if (rc == SQLITE_OK)
            rc = log_lengthen(file, bytes, size);
        (void)sqlite3_exec(st->log.db, "ROLLBACK", NULL, NULL, NULL);
    }
    stet__sqlite_queue_leave(st, st->log.queue_fd);
    return rc == SQLITE_OK ? file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) : rc;
}

/* A flush of bytes that overwrite others takes half as long as one that lengthens the file, because
 * the file system has nothing to note of its own; so the file is lengthened here, ahead of the commits.
 * What lies behind the end of the log means nothing to SQLite: its pages carry a salt and a checksum.
 * Should this fail, as on a full disk, commits are slower and that is all. Locks: log_lock. */
static void
log_make_room(sqlite_store *st)
{
    int           pages = atomic_load(&st->log_pages), ahead = pages;
    sqlite3_int64 size = 0, bytes;
    int           rc;

    if (ahead < LOG_AHEAD_MIN)
        ahead = LOG_AHEAD_MIN;
    if (ahead > LOG_AHEAD_MAX)
        ahead = LOG_AHEAD_MAX;
    bytes = (sqlite3_int64)(pages + ahead) * LOG_FRAME_BYTES;
    atomic_store(&st->log_room_mark, pages + LOG_AHEAD_MAX); /* if it fails: again after so many */
    do
        rc = log_lengthen_locked(st, bytes, &size);
    while (rc == SQLITE_OK && size < bytes);
    if (rc == SQLITE_OK)
        atomic_store(&st->log_room_mark, (int)(size / LOG_FRAME_BYTES) - ahead / 2);
}

/* Its own rollback may have found no memory. Until one works nobody else can write to the file. */
static void
log_let_go(sqlite_store *st)
{
    if (!sqlite3_get_autocommit(st->log.db))
        (void)sqlite3_exec(st->log.db, "ROLLBACK", NULL, NULL, NULL);
}

static void
log_loop(void *arg)
{
    sqlite_store   *st = arg;
    stet__platform *p = st->base.platform;

    stet__lock(p, &st->log_lock);
    while (!st->log_stop) {
        log_let_go(st);
        if (atomic_load(&st->log_pages) >= atomic_load(&st->log_room_mark))
            log_make_room(st);
        else if (atomic_load(&st->log_pages) < atomic_load(&st->log_mark))
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
    atomic_store(&st->log_room_mark, 1);
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
    if (err == STET_OK)
        err = stet__sqlite_stretch_tend(st);
    stet__lock(s->platform, &st->log_lock);
    log_checkpoint(st, LOG_PAGES_PASSIVE);
    stet__unlock(s->platform, &st->log_lock);
    return err;
}
