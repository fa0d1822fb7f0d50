/* A SQLite VFS that fails to order; see fault_vfs.h. */
#ifdef STET_WITH_SQLITE
#include "fault_vfs.h"

#include <stdatomic.h>

#include "fault_platform.h"
#include "vfs_shim.h"

static struct {
    _Atomic int  io;
    _Atomic long from, count, calls, failed;
} vfs_plan; /* SQLite hands no argument of ours to a file */

static sqlite3_vfs vfs_table;

static bool
vfs_fails(fault_io io)
{
    long at, from = atomic_load(&vfs_plan.from);

    if (fault_is_paused() || atomic_load(&vfs_plan.io) != (int)io)
        return false;
    at = atomic_fetch_add(&vfs_plan.calls, 1);
    if (at < from || at >= from + atomic_load(&vfs_plan.count))
        return false;
    atomic_fetch_add(&vfs_plan.failed, 1);
    return true;
}

static int
fault_read(vfs_file *f, void *to, int n, sqlite3_int64 at)
{
    if (vfs_fails(FAULT_READ))
        return SQLITE_IOERR_READ;
    return f->real->pMethods->xRead(f->real, to, n, at);
}

static int
fault_write(vfs_file *f, const void *from, int n, sqlite3_int64 at)
{
    if (vfs_fails(FAULT_WRITE))
        return SQLITE_IOERR_WRITE;
    if (vfs_fails(FAULT_FULL))
        return SQLITE_FULL;
    if (vfs_fails(FAULT_SHORT)) {
        (void)f->real->pMethods->xWrite(f->real, from, n / 2, at);
        return SQLITE_IOERR_WRITE;
    }
    return f->real->pMethods->xWrite(f->real, from, n, at);
}

static int
fault_truncate(vfs_file *f, sqlite3_int64 size)
{
    if (vfs_fails(FAULT_TRUNCATE))
        return SQLITE_IOERR_TRUNCATE;
    return f->real->pMethods->xTruncate(f->real, size);
}

static int
fault_sync(vfs_file *f, int flags)
{
    if (vfs_fails(FAULT_SYNC))
        return SQLITE_IOERR_FSYNC;
    /* Nobody pulls the plug here, and hundreds of rounds would wait for the disk. */
    (void)f;
    (void)flags;
    return SQLITE_OK;
}

static int
fault_open(sqlite3_vfs *real, const char *name, vfs_file *f, int flags, int *out)
{
    if (vfs_fails(FAULT_OPEN))
        return SQLITE_CANTOPEN;
    return real->xOpen(real, name, f->real, flags, out);
}

void
fault_vfs_register(void)
{
    static const vfs_hooks hooks = {
        .open = fault_open,
        .read = fault_read,
        .write = fault_write,
        .truncate = fault_truncate,
        .sync = fault_sync,
    };

    vfs_shim_register(&vfs_table, "fault", &hooks);
}

void
fault_vfs_arm(fault_io io, long from, long count)
{
    atomic_store(&vfs_plan.calls, 0);
    atomic_store(&vfs_plan.failed, 0);
    atomic_store(&vfs_plan.from, from);
    atomic_store(&vfs_plan.count, count);
    atomic_store(&vfs_plan.io, (int)io);
}

void
fault_vfs_disarm(void)
{
    atomic_store(&vfs_plan.count, 0);
}

long
fault_vfs_calls(void)
{
    return atomic_load(&vfs_plan.calls);
}

long
fault_vfs_failed(void)
{
    return atomic_load(&vfs_plan.failed);
}
#else
typedef int fault_vfs_needs_sqlite; /* a translation unit must not be empty */
#endif
