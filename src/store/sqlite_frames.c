/* The pages of a commit go to the log in one piece.
 *
 * SQLite writes each page of a commit with two calls of the system, its header and the page, one right
 * behind the other. A commit of many runs has 30 pages or 100, and whoever commits is who all others
 * wait for. So while COMMIT executes, writes to the log's file that follow each other are kept in a
 * buffer and written with one call: at the latest when SQLite flushes the file, which it does before
 * anybody can see the commit.
 *
 * The file is SQLite's own; its table of methods is replaced by ours, which has the other one behind it.
 * Nothing is registered anywhere, and closing the file puts things back.
 *
 * Invariants: outside COMMIT the buffer is empty and our methods do nothing of their own. What is kept
 * is written before the file is read, measured, cut or flushed. What is left when COMMIT failed is
 * dropped: by then another process may have written there. Locks: commit_lock.
 */
#include <string.h>

#include "store/sqlite.h"

/* SQLite's own files take less than 128 KiB in one call. */
#define FRAMES_BYTES ((size_t)120 * 1024)

static sqlite_frames *
frames_of(sqlite3_file *file)
{
    return (sqlite_frames *)(void *)(uintptr_t)file->pMethods; /* they are its first member */
}

static int
frames_write_out(sqlite_frames *f, sqlite3_file *file)
{
    size_t len = f->len;

    f->len = 0;
    return len > 0 ? f->real->xWrite(file, f->data, (int)len, f->at) : SQLITE_OK;
}

static int
frames_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 at)
{
    sqlite_frames *f = frames_of(file);
    size_t         bytes = (size_t)n;
    int            rc;

    if (!f->is_gathering)
        return f->real->xWrite(file, data, n, at);
    if ((at != f->at + (sqlite3_int64)f->len || f->len + bytes > FRAMES_BYTES) &&
        (rc = frames_write_out(f, file)) != SQLITE_OK)
        return rc;
    if (bytes > FRAMES_BYTES)
        return f->real->xWrite(file, data, n, at);
    if (f->len == 0)
        f->at = at;
    memcpy(f->data + f->len, data, bytes);
    f->len += bytes;
    return SQLITE_OK;
}

static int
frames_read(sqlite3_file *file, void *data, int n, sqlite3_int64 at)
{
    sqlite_frames *f = frames_of(file);
    int            rc = frames_write_out(f, file);

    return rc == SQLITE_OK ? f->real->xRead(file, data, n, at) : rc;
}

static int
frames_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    sqlite_frames *f = frames_of(file);
    int            rc = frames_write_out(f, file);

    return rc == SQLITE_OK ? f->real->xTruncate(file, size) : rc;
}

static int
frames_sync(sqlite3_file *file, int flags)
{
    sqlite_frames *f = frames_of(file);
    int            rc = frames_write_out(f, file);

    return rc == SQLITE_OK ? f->real->xSync(file, flags) : rc;
}

static int
frames_size(sqlite3_file *file, sqlite3_int64 *size)
{
    sqlite_frames *f = frames_of(file);
    int            rc = frames_write_out(f, file);

    return rc == SQLITE_OK ? f->real->xFileSize(file, size) : rc;
}

static int
frames_close(sqlite3_file *file)
{
    sqlite_frames *f = frames_of(file);

    file->pMethods = f->real;
    f->real = NULL;
    return file->pMethods->xClose(file);
}

/* False: it stays as it is, which costs time only. */
static bool
frames_attach(sqlite_store *st, sqlite_frames *f, sqlite3_file *file)
{
    if (file->pMethods == &f->methods)
        return true;
    if (f->real != NULL) /* another file has them: not closed yet, or never will be */
        return false;
    if (f->data == NULL && (f->data = stet__get(st->base.alloc, FRAMES_BYTES)) == NULL)
        return false;
    f->real = file->pMethods;
    f->methods = *f->real;
    f->methods.xClose = frames_close;
    f->methods.xRead = frames_read;
    f->methods.xWrite = frames_write;
    f->methods.xTruncate = frames_truncate;
    f->methods.xSync = frames_sync;
    f->methods.xFileSize = frames_size;
    f->len = 0;
    file->pMethods = &f->methods;
    return true;
}

void
stet__sqlite_frames_gather(sqlite_store *st)
{
    sqlite3_file *file = NULL;

    if (sqlite3_file_control(st->writer.db, NULL, SQLITE_FCNTL_JOURNAL_POINTER, &file) ==
            SQLITE_OK &&
        file != NULL && file->pMethods != NULL)
        st->frames.is_gathering = frames_attach(st, &st->frames, file);
}

void
stet__sqlite_frames_done(sqlite_store *st)
{
    st->frames.is_gathering = false;
    st->frames.len = 0;
}

void
stet__sqlite_frames_free(sqlite_store *st)
{
    stet__free(st->base.alloc, st->frames.data);
    st->frames.data = NULL;
}
