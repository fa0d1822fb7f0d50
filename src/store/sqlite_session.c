/* Sessions of workers: a row with a lease in the database, a locked slot in the live file.
 *
 * The row decides by the clock. The slot is quicker: its lock is held by the process as long as it
 * lives, so a free lock proves death at once. A slot is locked before its row can be seen and is used
 * again only when its row is gone, so a slot found with the session's number is the session's.
 *
 * Everything here writes on the side connection. Locks: side_lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/sqlite.h"

/* Where a slot begins; with the number behind the last one, how long the file is. */
static off_t
session_slot_at(size_t slot)
{
    return (off_t)(slot + 1) * LITE_SLOT_BYTES;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static bool
session_slot_is_of(const sqlite_store *st, const sqlite_slot *head, uint64_t session)
{
    return head->session == session && memcmp(head->store, st->instance, 16) == 0;
}

static bool
session_slot_find(sqlite_store *st, uint64_t session, size_t *slot, sqlite_slot *head)
{
    size_t n = stet__sqlite_slot_count(st->own.fd);

    for (*slot = 0; *slot < n; (*slot)++)
        if (stet__sqlite_slot_read(st->own.fd, *slot, head) &&
            session_slot_is_of(st, head, session))
            return true;
    return false;
}

bool
stet__sqlite_is_proven_dead(sqlite_store *st, uint64_t session)
{
    sqlite_slot head;
    size_t      slot;

    if (st->is_readonly || !session_slot_find(st, session, &slot, &head))
        return false;
    if (memcmp(head.boot, st->boot, LITE_BOOT_MAX) != 0)
        return true;
    return !stet__sqlite_slot_is_held(st->own.fd, slot);
}

/* Inside the transaction: may the owner of this slot be forgotten? */
static int
session_is_gone(sqlite_store *st, uint64_t session, bool *is_gone)
{
    int           err = STET_OK;
    int           rc;
    sqlite3_stmt *row = stet__sqlite_stmt(st, &st->side, LITE_SQL_SESSION_GET, &err);

    if (row == NULL)
        return err;
    sqlite_bind_u64(row, 1, session);
    rc = sqlite3_step(row);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, st->side.db, rc, "read a session");
    *is_gone = rc == SQLITE_DONE;
    sqlite3_reset(row);
    return err;
}

static int
session_slot_take(sqlite_store *st, int fd, size_t *out)
{
    size_t      n = stet__sqlite_slot_count(fd);
    sqlite_slot head;
    size_t      slot;
    bool        is_gone;
    int         err;

    for (slot = 0; slot <= n; slot++) { /* behind the last one is a new one */
        if (!stet__sqlite_slot_lock(fd, slot))
            continue;
        if (!stet__sqlite_slot_read(fd, slot, &head) || head.session == 0 ||
            memcmp(head.store, st->instance, 16) != 0)
            goto found;
        if ((err = session_is_gone(st, head.session, &is_gone)) != STET_OK)
            return err;
        if (is_gone)
            goto found;
        stet__sqlite_slot_unlock(fd, slot);
    }
    return stet__fail(STET_EIO, "store %s: cannot lock %s", st->path, st->own.path);
found:
    *out = slot;
    return STET_OK;
}

/* Room on the disk for the first `bytes` of the slot: writing to a mapping of a full disk is a SIGBUS. */
static int
session_slot_reserve(sqlite_store *st, const sqlite_session *own, size_t bytes)
{
    int error = posix_fallocate(own->fd, session_slot_at(own->slot), (off_t)bytes);

    if (error == 0)
        return STET_OK;
    return stet__fail(error == ENOSPC || error == EDQUOT ? STET_EFULL : STET_EIO,
                      "store %s: cannot grow %s: %s", st->path, st->own.path, strerror(error));
}

/* Inside the transaction, so nobody else changes the length of the file. */
static int
session_slot_map(sqlite_store *st, sqlite_session *own, size_t slot)
{
    void *map;
    int   err;

    own->slot = slot;
    if (slot >= stet__sqlite_slot_count(own->fd) &&
        ftruncate(own->fd, session_slot_at(slot + 1)) != 0)
        return stet__fail(STET_EIO, "store %s: cannot grow %s: %s", st->path, st->own.path,
                          strerror(errno));
    if ((err = session_slot_reserve(st, own, LITE_SLOT_HEAD)) != STET_OK)
        return err;
    map = mmap(NULL, LITE_SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, own->fd,
               session_slot_at(slot));
    if (map == MAP_FAILED)
        return stet__fail(STET_EIO, "store %s: cannot map %s: %s", st->path, st->own.path,
                          strerror(errno));
    own->map = map;
    return STET_OK;
}

static void
session_slot_name(sqlite_store *st, sqlite_session *own)
{
    sqlite_slot head;

    memset(&head, 0, sizeof head);
    head.session = own->session;
    memcpy(head.store, st->instance, 16);
    memcpy(head.boot, st->boot, LITE_BOOT_MAX);
    memset(own->map, 0, LITE_SLOT_HEAD); /* no crumbs yet, whatever lies behind */
    memcpy(own->map, &head, sizeof head);
}

static void
session_free(sqlite_store *st, sqlite_session *own)
{
    if (own == NULL)
        return;
    if (own->map != NULL)
        munmap(own->map, LITE_SLOT_BYTES);
    if (own->fd >= 0)
        close(own->fd); /* lets the slot's lock go */
    stet__free(st->base.alloc, own);
}

void
stet__sqlite_sessions_free(sqlite_store *st)
{
    sqlite_session *own;

    while ((own = st->sessions) != NULL) {
        st->sessions = own->next;
        session_free(st, own);
    }
}

static sqlite_session *
session_own(sqlite_store *st, uint64_t session)
{
    sqlite_session *own = st->sessions;

    while (own != NULL && own->session != session)
        own = own->next;
    return own;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int
session_insert(sqlite_store *st, sqlite_session *own, const stet_id *id, int64_t lease_ms,
               stet_bytes info)
{
    int64_t       now_ms = stet__sqlite_now(st);
    int           err = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, &st->side, LITE_SQL_SESSION_ADD, &err);

    if (stmt == NULL)
        return err;
    sqlite_bind_id(stmt, 1, id);
    sqlite3_bind_blob(stmt, 2, st->token_hash, 32, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 3, now_ms);
    sqlite3_bind_int64(stmt, 4, now_ms + lease_ms);
    sqlite_bind_bytes(stmt, 5, info);
    if ((err = stet__sqlite_run(st, &st->side, stmt, "open a session")) == STET_OK)
        own->session = (uint64_t)sqlite3_last_insert_rowid(st->side.db);
    return err;
}

static int
session_begin(sqlite_store *st, sqlite_session *own, const stet_id *id, int64_t lease_ms,
              stet_bytes info)
{
    size_t slot = 0;
    int    err;

    if ((own->fd = stet__sqlite_fd(st->own.path)) < 0)
        return stet__fail(STET_EIO, "store %s: cannot open %s: %s", st->path, st->own.path,
                          strerror(errno));
    if ((err = stet__sqlite_begin(st, &st->side)) != STET_OK)
        return err;
    if ((err = session_slot_take(st, own->fd, &slot)) != STET_OK ||
        (err = session_slot_map(st, own, slot)) != STET_OK ||
        (err = session_insert(st, own, id, lease_ms, info)) != STET_OK) {
        stet__sqlite_rollback(st, &st->side);
        return err;
    }
    session_slot_name(st, own);
    return stet__sqlite_end(st, &st->side);
}

int
stet__sqlite_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms,
                          stet_bytes info)
{
    sqlite_store   *st = sqlite_of(s);
    sqlite_session *own;
    int             err;

    *session = 0;
    if ((err = stet__sqlite_enter(st)) != STET_OK)
        return err;
    if (lease_ms <= 0)
        return stet__fail(STET_EINVAL, "a session needs a lease longer than 0 ms");
    if ((own = stet__get0(s->alloc, sizeof *own)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    own->fd = -1;
    stet__lock(s->platform, &st->side_lock);
    if ((err = session_begin(st, own, &id, lease_ms, info)) == STET_OK) {
        *session = own->session;
        own->next = st->sessions;
        st->sessions = own;
        own = NULL;
    }
    session_free(st, own);
    stet__unlock(s->platform, &st->side_lock);
    return err;
}

/* ---- renewing and closing -------------------------------------------------------------------- */

/* One statement in a transaction of its own; *changed tells whether it found its row. */
static int
session_write(sqlite_store *st, sqlite3_stmt *stmt, const char *what, bool *changed)
{
    int err = stet__sqlite_begin(st, &st->side);

    if (err != STET_OK)
        return err;
    if ((err = stet__sqlite_run(st, &st->side, stmt, what)) != STET_OK) {
        stet__sqlite_rollback(st, &st->side);
        return err;
    }
    *changed = sqlite3_changes(st->side.db) > 0;
    return stet__sqlite_end(st, &st->side);
}

int
stet__sqlite_session_renew(stet_store *s, uint64_t session, int64_t lease_ms)
{
    sqlite_store *st = sqlite_of(s);
    sqlite3_stmt *stmt;
    bool          changed = false;
    int64_t       now_ms;
    int           err;

    if ((err = stet__sqlite_enter(st)) != STET_OK)
        return err;
    stet__lock(s->platform, &st->side_lock);
    if ((stmt = stet__sqlite_stmt(st, &st->side, LITE_SQL_SESSION_RENEW, &err)) != NULL) {
        now_ms = stet__sqlite_now(st);
        sqlite_bind_u64(stmt, 1, session);
        sqlite3_bind_blob(stmt, 2, st->token_hash, 32, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 3, now_ms);
        sqlite3_bind_int64(stmt, 4, now_ms + lease_ms);
        err = session_write(st, stmt, "renew a session", &changed);
        if (err == STET_OK && !changed)
            err = stet__fail(STET_EFENCED,
                             "session %llu has expired or is not of this handle; open a new one",
                             (unsigned long long)session);
    }
    stet__unlock(s->platform, &st->side_lock);
    return err;
}

static void
session_forget(sqlite_store *st, uint64_t session)
{
    sqlite_session **at = &st->sessions;
    sqlite_session  *own;

    while (*at != NULL && (*at)->session != session)
        at = &(*at)->next;
    if ((own = *at) != NULL) {
        *at = own->next;
        session_free(st, own);
    }
}

/* Closing what is gone is fine; closing another's session is not. */
static int
session_is_foreign(sqlite_store *st, uint64_t session)
{
    bool is_gone;
    int  err;

    if ((err = session_is_gone(st, session, &is_gone)) != STET_OK || is_gone)
        return err;
    return stet__fail(STET_EFENCED, "session %llu was opened by another handle",
                      (unsigned long long)session);
}

int
stet__sqlite_session_close(stet_store *s, uint64_t session)
{
    sqlite_store *st = sqlite_of(s);
    sqlite3_stmt *stmt;
    bool          changed = false;
    int           err;

    if ((err = stet__sqlite_enter(st)) != STET_OK)
        return err;
    stet__lock(s->platform, &st->side_lock);
    if ((stmt = stet__sqlite_stmt(st, &st->side, LITE_SQL_SESSION_CLOSE, &err)) != NULL) {
        sqlite_bind_u64(stmt, 1, session);
        sqlite3_bind_blob(stmt, 2, st->token_hash, 32, SQLITE_STATIC);
        err = session_write(st, stmt, "close a session", &changed);
    }
    if (err == STET_OK && !changed && session_own(st, session) == NULL)
        err = session_is_foreign(st, session);
    session_forget(st, session);
    if (changed)
        stet__sqlite_hint(st); /* its claims wait for somebody */
    stet__unlock(s->platform, &st->side_lock);
    return err;
}

/* ---- listing --------------------------------------------------------------------------------- */

static void
session_decode(sqlite_store *st, sqlite3_stmt *stmt, stet_session_row *row)
{
    row->session = (uint64_t)sqlite3_column_int64(stmt, 0);
    row->id = stet__sqlite_column_id(stmt, 1);
    row->started_ms = sqlite3_column_int64(stmt, 2);
    row->seen_ms = sqlite3_column_int64(stmt, 3);
    row->lease_until_ms = sqlite3_column_int64(stmt, 4);
    row->is_dead = sqlite3_column_int(stmt, 5) != 0 ||
                   row->lease_until_ms <= stet__sqlite_now(st) ||
                   stet__sqlite_is_proven_dead(st, row->session);
    row->info = stet__sqlite_column_bytes(stmt, 6);
}

int
stet__sqlite_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    sqlite_store    *st = sqlite_of(s);
    sqlite_conn     *c;
    sqlite3_stmt    *stmt;
    stet_session_row row;
    int              err, rc;

    if ((err = stet__sqlite_reader_take(st, &c)) != STET_OK)
        return err;
    if ((stmt = stet__sqlite_stmt(st, c, LITE_SQL_SESSIONS, &err)) != NULL) {
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
            session_decode(st, stmt, &row);
            if ((err = fn(arg, &row)) != 0)
                break;
        }
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
            err = stet__sqlite_fail(st, c->db, rc, "list sessions");
        sqlite3_reset(stmt);
    }
    stet__sqlite_reader_give(st, c);
    return err;
}

/* ---- crumbs ---------------------------------------------------------------------------------- */

static stet_crumb *
session_crumbs_make(sqlite_store *st, sqlite_session *own, size_t n)
{
    stet_crumb *crumbs = (stet_crumb *)(void *)(own->map + LITE_SLOT_HEAD);
    uint64_t    count = n;

    if (session_slot_reserve(st, own, LITE_SLOT_HEAD + n * sizeof *crumbs) != STET_OK)
        return NULL;
    memset(crumbs, 0, n * sizeof *crumbs);
    memcpy(own->map + offsetof(sqlite_slot, n_crumbs), &count, sizeof count);
    return crumbs;
}

stet_crumb *
stet__sqlite_crumbs(stet_store *s, uint64_t session, size_t n)
{
    sqlite_store   *st = sqlite_of(s);
    sqlite_session *own;
    stet_crumb     *crumbs = NULL;

    if (stet__sqlite_enter(st) != STET_OK)
        return NULL;
    if (n == 0 || n > LITE_CRUMBS_MAX) {
        stet__fail(STET_EINVAL, "store %s: a session has room for 1 to %zu crumbs, not %zu",
                   st->path, (size_t)LITE_CRUMBS_MAX, n);
        return NULL;
    }
    stet__lock(s->platform, &st->side_lock);
    if ((own = session_own(st, session)) != NULL)
        crumbs = session_crumbs_make(st, own, n);
    else
        stet__fail(STET_ENOTFOUND, "store %s: session %llu is not of this handle", st->path,
                   (unsigned long long)session);
    stet__unlock(s->platform, &st->side_lock);
    return crumbs;
}

/* The owner of a living session is writing its crumbs. */
static int
session_check_dead(sqlite_store *st, uint64_t session)
{
    sqlite_conn  *c;
    sqlite3_stmt *row;
    int           err, rc;

    if (stet__sqlite_is_proven_dead(st, session))
        return STET_OK;
    if ((err = stet__sqlite_reader_take(st, &c)) != STET_OK)
        return err;
    if ((row = stet__sqlite_stmt(st, c, LITE_SQL_SESSION_GET, &err)) != NULL) {
        sqlite_bind_u64(row, 1, session);
        rc = sqlite3_step(row);
        if (rc == SQLITE_ROW && sqlite3_column_int(row, 2) == 0 &&
            sqlite3_column_int64(row, 0) > stet__sqlite_now(st))
            err = stet__fail(STET_ESTATE,
                             "session %llu is alive; only a dead one's crumbs can be read",
                             (unsigned long long)session);
        else if (rc != SQLITE_ROW && rc != SQLITE_DONE)
            err = stet__sqlite_fail(st, c->db, rc, "read a session");
        sqlite3_reset(row);
    }
    stet__sqlite_reader_give(st, c);
    return err;
}

int
stet__sqlite_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    sqlite_store *st = sqlite_of(s);
    sqlite_slot   head;
    size_t        slot, bytes;
    int           err;

    *crumbs = NULL;
    *n = 0;
    if ((err = stet__sqlite_enter(st)) != STET_OK ||
        (err = session_check_dead(st, session)) != STET_OK)
        return err;
    if (!session_slot_find(st, session, &slot, &head) ||
        memcmp(head.boot, st->boot, LITE_BOOT_MAX) != 0 || head.n_crumbs == 0 ||
        head.n_crumbs > LITE_CRUMBS_MAX)
        return stet__fail(STET_ENOTFOUND, "store %s: no crumbs of session %llu are left", st->path,
                          (unsigned long long)session);
    bytes = (size_t)head.n_crumbs * sizeof **crumbs;
    if ((*crumbs = stet__get(s->alloc, bytes)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    if (pread(st->own.fd, *crumbs, bytes, session_slot_at(slot) + LITE_SLOT_HEAD) !=
        (ssize_t)bytes) {
        stet__free(s->alloc, *crumbs);
        *crumbs = NULL;
        return stet__fail(STET_EIO, "store %s: cannot read %s", st->path, st->own.path);
    }
    *n = (size_t)head.n_crumbs;
    return STET_OK;
}
