/* A file that is opened to be read (readonly=1): no lock, no live file, no checkpoint, not a byte
 * of it changes. For those who look at a store beside its workers, or at one they may not write
 * (the deploy gate).
 *
 * SQLite itself may make its -wal and -shm beside the file if they are not there; it needs them to
 * read. So it can be read while a worker has it open, or in a directory that this user may write.
 * The clock is the machine's, and a worker is dead when its lease has ended: the proofs that are
 * quicker lie in the live file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite.h"

static int
readonly_refused(stet_store *s)
{
    return stet__fail(STET_EREADONLY, "store %s was opened to be read (readonly=1)",
                      sqlite_of(s)->path);
}

static int
readonly_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    (void)units;
    memset(outcomes, 0, n * sizeof *outcomes);
    return readonly_refused(s);
}

static int
readonly_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms,
                      stet_bytes info)
{
    (void)id, (void)lease_ms, (void)info;
    *session = 0;
    return readonly_refused(s);
}

static int
readonly_session_renew(stet_store *s, uint64_t session, int64_t lease_ms)
{
    (void)session, (void)lease_ms;
    return readonly_refused(s);
}

static int
readonly_session_close(stet_store *s, uint64_t session)
{
    (void)session;
    return readonly_refused(s);
}

static stet_crumb *
readonly_crumbs(stet_store *s, uint64_t session, size_t n)
{
    (void)session, (void)n;
    (void)readonly_refused(s);
    return NULL;
}

static int
readonly_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    (void)session;
    *crumbs = NULL;
    *n = 0;
    return readonly_refused(s) == STET_OK ? STET_OK : STET_ENOTFOUND;
}

static int
readonly_apply_in(stet_store *s, stet_conn conn, const stet_unit *unit, stet_outcome *outcome)
{
    (void)conn, (void)unit;
    memset(outcome, 0, sizeof *outcome);
    return readonly_refused(s);
}

static int
readonly_reopen(stet_store *s)
{
    return stet__sqlite_enter(sqlite_of(s));
}

static const stet_store_ops *
readonly_ops(void)
{
    static const stet_store_ops ops = {
        .version = 1,
        .scheme = "sqlite",
        .size = sizeof(sqlite_store),
        .open = stet__sqlite_open,
        .close = stet__sqlite_close,
        .reopen = readonly_reopen,
        .now_ms = stet__sqlite_now_ms,
        .commit = readonly_commit,
        .session_open = readonly_session_open,
        .session_renew = readonly_session_renew,
        .session_close = readonly_session_close,
        .sessions = stet__sqlite_sessions,
        .crumbs = readonly_crumbs,
        .crumbs_of = readonly_crumbs_of,
        .run = stet__sqlite_read_run,
        .runs = stet__sqlite_read_runs,
        .journal = stet__sqlite_read_journal,
        .inbox = stet__sqlite_read_inbox,
        .timers = stet__sqlite_read_timers,
        .timers_of = stet__sqlite_read_timers_of,
        .value = stet__sqlite_read_value,
        .values = stet__sqlite_read_values,
        .lane = stet__sqlite_read_lane,
        .maintain = readonly_reopen,
        .ping = stet__sqlite_ping,
        .due = stet__sqlite_read_due,
        .apply_in = readonly_apply_in,
        .check = stet__sqlite_check_indexes,
    };

    return &ops;
}

/* Nobody has the file open, and SQLite may not make what it needs to read it. The file alone could
 * be read as if it never changed (immutable=1); but a directory that this user cannot write, or that
 * is mounted to be read, may be written by others, and a worker that starts meanwhile would change
 * pages under the reader. */
static int
readonly_why(const sqlite_store *st, int err)
{
    char  shm[4096];
    char *dir;

    (void)snprintf(shm, sizeof shm, "%s-shm", st->path);
    if ((err != STET_EREADONLY && err != STET_EIO) || access(shm, F_OK) == 0)
        return err;
    if ((dir = stet__sqlite_dir(st)) == NULL)
        return STET_ENOMEM;
    if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) != 0)
        err = stet__fail(STET_EREADONLY,
                         "store %s: no process has it open, and to read it SQLite has to make %s "
                         "and its log beside it, but the directory %s cannot be written (%s); "
                         "let this user write there, read it while a worker runs, or read a copy",
                         st->path, shm, dir, strerror(errno));
    stet__free(st->base.alloc, dir);
    return err;
}

int
stet__sqlite_open_readonly(sqlite_store *st)
{
    const char *name;
    int         err;

    st->base.ops = readonly_ops();
    if (access(st->path, F_OK) != 0)
        return stet__fail(STET_EIO, "store %s: there is no such file (%s)", st->path,
                          strerror(errno));
    if ((err = stet__sqlite_conn_open(st, &st->side, LITE_READER)) != STET_OK ||
        (err = stet__sqlite_identify(st, &st->side)) != STET_OK ||
        (err = stet__sqlite_is_whole(st, &st->side)) != STET_OK)
        return readonly_why(st, err);
    name = sqlite3_db_filename(st->side.db, "main");
    if ((st->full_path = stet__strdup(st->base.alloc, name)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    return STET_OK;
}
