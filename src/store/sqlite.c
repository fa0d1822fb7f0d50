/* The SQLite store's handle: its address, opening, closing, and the table of methods.
 *
 * Opening asks first and writes later: whose file it is is known before anything beside or in it is
 * made. A handle belongs to the process that opened it; in a forked child every method says so, and
 * close() there frees nothing that the parent still uses (SQLite's locks are the process's).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite.h"

void
stet__sqlite_test_advance(stet_store *s, int64_t ms)
{
    atomic_fetch_add(&sqlite_of(s)->advance_ms, ms);
}

int64_t
stet__sqlite_now_ms(stet_store *s)
{
    return stet__sqlite_now(sqlite_of(s));
}

int
stet__sqlite_enter(sqlite_store *st)
{
    if (!st->is_open)
        return stet__fail(STET_ESTATE, "the store is not open");
    if (st->pid != getpid())
        return stet__fail(
            STET_EFORKED,
            "store %s was opened by process %ld; open stores after fork(), not before", st->path,
            (long)st->pid);
    return STET_OK;
}

/* ---- the address ----------------------------------------------------------------------------- */

static int
sqlite_set_prefix(sqlite_store *st, const char *value, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", value[i]) ==
            NULL)
            break;
    if (len == 0 || len > LITE_PREFIX_MAX || i < len || (value[0] >= '0' && value[0] <= '9') ||
        (len >= 6 && sqlite3_strnicmp(value, "sqlite", 6) == 0))
        return stet__fail(
            STET_EURL,
            "store %s: a prefix is at most %d letters, digits and '_', begins with no "
            "digit and not with \"sqlite\"",
            st->path, LITE_PREFIX_MAX);
    memcpy(st->prefix, value, len);
    st->prefix[len] = '_';
    st->prefix[len + 1] = '\0';
    return STET_OK;
}

/* One NAME=VALUE of the address. */
static int
sqlite_option(sqlite_store *st, const char *text, size_t len)
{
    char *vfs;

    if (len >= 7 && memcmp(text, "prefix=", 7) == 0)
        return sqlite_set_prefix(st, text + 7, len - 7);
    if (len >= 4 && memcmp(text, "vfs=", 4) == 0) {
        if ((vfs = stet__get0(st->base.alloc, len - 3)) == NULL)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
        memcpy(vfs, text + 4, len - 4);
        stet__free(st->base.alloc, st->vfs);
        st->vfs = vfs;
        if (sqlite3_vfs_find(vfs) == NULL)
            return stet__fail(STET_EURL, "store %s: SQLite knows no VFS named %s", st->path, vfs);
        return STET_OK;
    }
    if (len == 8 && memcmp(text, "repair=1", 8) == 0) {
        st->may_mend = true;
        return STET_OK;
    }
    if (len == 10 && memcmp(text, "readonly=1", 10) == 0) {
        st->is_readonly = true;
        return STET_OK;
    }
    return stet__fail(STET_EURL,
                      "store %s: unknown option \"%.*s\"; there are prefix=NAME, vfs=NAME, "
                      "repair=1, readonly=1 and queue=…",
                      st->path, (int)strcspn(text, "=&"), text); /* its value may have a password */
}

static int
sqlite_parse(sqlite_store *st, const char *address)
{
    const char *options;
    size_t      len;
    int         err;

    if (strncmp(address, "sqlite:", 7) == 0)
        address += 7;
    len = strcspn(address, "?");
    if (len == 0 || address[0] == ':')
        return stet__fail(STET_EURL, "\"%s\" is no path; give the path of a file", address);
    if ((st->path = stet__get0(st->base.alloc, len + 1)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", address);
    memcpy(st->path, address, len);
    options = address + len;
    if (*options == '?' && (err = stet__options_check(options + 1, "store", st->path)) != STET_OK)
        return err;
    while (*options != '\0') {
        options++;
        len = strcspn(options, "&");
        if ((err = sqlite_option(st, options, len)) != STET_OK)
            return err;
        options += len;
    }
    return STET_OK;
}

char *
stet__sqlite_dir(const sqlite_store *st)
{
    const char *slash = strrchr(st->path, '/');
    char       *dir;
    size_t      len;

    if (slash == NULL)
        dir = stet__strdup(st->base.alloc, ".");
    else {
        len = slash == st->path ? 1 : (size_t)(slash - st->path);
        if ((dir = stet__get0(st->base.alloc, len + 1)) != NULL)
            memcpy(dir, st->path, len);
    }
    if (dir == NULL)
        (void)stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    return dir;
}

/* SQLite says "unable to open database file" to all of these; people deserve better. */
static int
sqlite_check_place(sqlite_store *st)
{
    char *dir = stet__sqlite_dir(st);
    int   err = STET_OK;

    if (dir == NULL)
        return STET_ENOMEM;
    if (access(dir, F_OK) != 0)
        err = stet__fail(STET_EIO, "store %s: there is no directory %s; make it first", st->path,
                         dir);
    else if (access(dir, W_OK | X_OK) != 0)
        err = stet__fail(
            STET_EREADONLY,
            "store %s: the directory %s cannot be written (%s); SQLite needs to make files "
            "beside its own",
            st->path, dir, strerror(errno));
    else if (access(st->path, F_OK) == 0 && access(st->path, R_OK | W_OK) != 0)
        err = stet__fail(STET_EREADONLY, "store %s cannot be written (%s); change its permissions",
                         st->path, strerror(errno));
    stet__free(st->base.alloc, dir);
    return err;
}

/* ---- opening --------------------------------------------------------------------------------- */

static stet__locks
sqlite_locks(sqlite_store *st)
{
    return (stet__locks){ .mutexes = { &st->commit_lock, &st->side_lock, &st->read_lock,
                                       &st->log_lock, &st->watch_lock, &st->tx_lock },
                          .conds = { &st->read_cond, &st->log_cond, &st->tx_cond } };
}

static int
sqlite_init_locks(sqlite_store *st)
{
    stet__locks locks = sqlite_locks(st);
    int         err = stet__locks_begin(st->base.platform, &locks);

    st->has_locks = err == STET_OK;
    return err;
}

static void
sqlite_destroy_locks(sqlite_store *st)
{
    stet__locks locks = sqlite_locks(st);

    if (st->has_locks)
        stet__locks_end(st->base.platform, &locks);
    st->has_locks = false;
}

/* Random, so that no other process can act for this handle's sessions; the file has the hash only. */
static void
sqlite_make_token(sqlite_store *st)
{
    stet__platform *p = st->base.platform;

    p->ops->random(p, st->token, sizeof st->token);
    stet__sha256(st->token_hash, st->token, sizeof st->token);
    if (stet__id_is_zero(st->base.committer))
        p->ops->random(p, st->base.committer.bytes, sizeof st->base.committer.bytes);
}

/* The first connection, and what it needs beside the file. */
static int
sqlite_open_file(sqlite_store *st)
{
    const char *name;
    int         err;

    if ((err = stet__sqlite_conn_open(st, &st->side, LITE_SIDE)) != STET_OK)
        return err;
    if (sqlite3_db_readonly(st->side.db, "main") == 1)
        return stet__fail(STET_EREADONLY, "store %s cannot be written; change its permissions",
                          st->path);
    if ((err = stet__sqlite_identify(st, &st->side)) != STET_OK)
        return err;
    name = sqlite3_db_filename(st->side.db, "main");
    if ((st->full_path = stet__strdup(st->base.alloc, name)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    if ((err = stet__sqlite_live_open(st, &st->queue, "")) != STET_OK)
        return err;
    if ((st->side.queue_fd = stet__sqlite_fd(st->queue.path)) < 0)
        return stet__fail(STET_EIO, "store %s: cannot open %s: %s", st->path, st->queue.path,
                          strerror(errno));
    if ((err = stet__sqlite_queue_enter(st, st->side.queue_fd)) != STET_OK)
        return err;
    err = stet__sqlite_prepare_file(st, &st->side);
    stet__sqlite_queue_leave(st, st->side.queue_fd);
    return err;
}

static int
sqlite_open_own_live(sqlite_store *st)
{
    char suffix[LITE_PREFIX_MAX + 4] = "";

    if (st->prefix[0] != '\0') {
        suffix[0] = '-';
        memcpy(suffix + 1, st->prefix, strlen(st->prefix) - 1);
    }
    return stet__sqlite_live_open(st, &st->own, suffix);
}

static int
sqlite_open_writer(sqlite_store *st)
{
    int err;

    if ((err = stet__sqlite_conn_open(st, &st->writer, LITE_WRITER)) == STET_OK)
        stet__sqlite_log_watch(st, &st->writer);
    return err;
}

static int
sqlite_open_parts(sqlite_store *st)
{
    int err;

    if ((err = sqlite_check_place(st)) != STET_OK || (err = sqlite_open_file(st)) != STET_OK ||
        (err = sqlite_open_own_live(st)) != STET_OK || (err = sqlite_open_writer(st)) != STET_OK ||
        (err = stet__sqlite_runs_init(st)) != STET_OK)
        return err;
    return stet__sqlite_log_start(st);
}

int
stet__sqlite_open(stet_store *s, const char *address)
{
    sqlite_store *st = sqlite_of(s);
    int           err;

    st->pid = getpid();
    s->can_grow = true;
    stet__buf_init(&st->remember, s->alloc);
    stet__buf_init(&st->remembered, s->alloc);
    stet__sqlite_boot_id(st->boot);
    if ((err = sqlite_init_locks(st)) != STET_OK)
        return err;
    st->is_open = true;
    sqlite_make_token(st);
    if ((err = sqlite_parse(st, address)) == STET_OK)
        err = st->is_readonly ? stet__sqlite_open_readonly(st) : sqlite_open_parts(st);
    if (err != STET_OK)
        stet__sqlite_close(s);
    return err;
}

/* ---- closing and reopening ------------------------------------------------------------------- */

static void
sqlite_free(sqlite_store *st)
{
    stet__alloc *a = st->base.alloc;

    stet__sqlite_runs_free(st);
    stet__sqlite_frames_free(st);
    stet__buf_free(&st->remember);
    stet__buf_free(&st->remembered);
    stet__free(a, st->grants);
    stet__free(a, st->path);
    stet__free(a, st->full_path);
    stet__free(a, st->vfs);
    st->grants = NULL;
    st->grants_cap = 0;
    st->path = st->full_path = st->vfs = NULL;
    st->prefix[0] = '\0';
}

void
stet__sqlite_close(stet_store *s)
{
    sqlite_store *st = sqlite_of(s);
    size_t        i;

    if (!st->is_open)
        return;
    if (st->pid == getpid()) {
        stet__sqlite_unwatch(s);
        stet__sqlite_log_stop(st);
        stet__sqlite_tx_close(st);
        for (i = 0; i < LITE_READERS; i++)
            stet__sqlite_conn_close(&st->readers[i]);
        stet__sqlite_conn_close(&st->writer);
        stet__sqlite_conn_close(&st->side);
        stet__sqlite_sessions_free(st);
        stet__sqlite_live_close(st, &st->own);
        stet__sqlite_live_close(st, &st->queue);
        sqlite_destroy_locks(st);
    }
    sqlite_free(st);
    st->is_open = false;
}

static int
sqlite_reopen(stet_store *s)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_conn   fresh;
    int           err = stet__sqlite_enter(st);

    if (err != STET_OK)
        return err;
    stet__lock(s->platform, &st->commit_lock);
    stet__sqlite_runs_clear(st);
    stet__sqlite_conn_close(&st->writer);
    if ((err = sqlite_open_writer(st)) == STET_OK)
        atomic_store(&st->is_poisoned, false);
    stet__unlock(s->platform, &st->commit_lock);
    if (err != STET_OK)
        return err;
    stet__lock(s->platform, &st->side_lock);
    if ((err = stet__sqlite_conn_open(st, &fresh, LITE_SIDE)) == STET_OK) {
        stet__sqlite_conn_close(&st->side);
        st->side = fresh;
    }
    stet__unlock(s->platform, &st->side_lock);
    return err;
}

static void
sqlite_hint(stet_store *s)
{
    if (stet__sqlite_enter(sqlite_of(s)) == STET_OK)
        stet__sqlite_hint(sqlite_of(s));
}

const stet_store_ops stet__store_sqlite_ops = {
    .version = 1,
    .scheme = "sqlite",
    .size = sizeof(sqlite_store),
    .open = stet__sqlite_open,
    .close = stet__sqlite_close,
    .reopen = sqlite_reopen,
    .now_ms = stet__sqlite_now_ms,
    .commit = stet__sqlite_commit,
    .session_open = stet__sqlite_session_open,
    .session_renew = stet__sqlite_session_renew,
    .session_close = stet__sqlite_session_close,
    .sessions = stet__sqlite_sessions,
    .crumbs = stet__sqlite_crumbs,
    .crumbs_of = stet__sqlite_crumbs_of,
    .run = stet__sqlite_read_run,
    .runs = stet__sqlite_read_runs,
    .journal = stet__sqlite_read_journal,
    .inbox = stet__sqlite_read_inbox,
    .timers = stet__sqlite_read_timers,
    .timers_of = stet__sqlite_read_timers_of,
    .value = stet__sqlite_read_value,
    .values = stet__sqlite_read_values,
    .lane = stet__sqlite_read_lane,
    .watch = stet__sqlite_watch,
    .unwatch = stet__sqlite_unwatch,
    .maintain = stet__sqlite_maintain,
    .ping = stet__sqlite_ping,
    .due = stet__sqlite_read_due,
    .tx_begin = stet__sqlite_tx_begin,
    .tx_commit = stet__sqlite_tx_commit,
    .tx_rollback = stet__sqlite_tx_rollback,
    .apply_in = stet__sqlite_apply_in,
    .hint = sqlite_hint,
    .check = stet__sqlite_check_indexes,
};
