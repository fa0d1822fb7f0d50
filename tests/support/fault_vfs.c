/* A SQLite VFS that fails to order; see fault_vfs.h. */
#ifdef STET_WITH_SQLITE
#include "fault_vfs.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stddef.h>

#include "fault_platform.h"

typedef struct vfs_file {
    sqlite3_file  base;
    sqlite3_file *real; /* behind this struct */
} vfs_file;

static struct {
    _Atomic int  io;
    _Atomic long from, count, calls, failed;
} vfs_plan; /* SQLite hands no argument of ours to a file */

static sqlite3_vfs vfs_table;

static sqlite3_file *
vfs_real(sqlite3_file *f)
{
    return ((vfs_file *)(void *)f)->real;
}

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
vfs_close(sqlite3_file *f)
{
    return vfs_real(f)->pMethods->xClose(vfs_real(f));
}

static int
vfs_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    if (vfs_fails(FAULT_READ))
        return SQLITE_IOERR_READ;
    return vfs_real(f)->pMethods->xRead(vfs_real(f), to, n, at);
}

static int
vfs_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    if (vfs_fails(FAULT_WRITE))
        return SQLITE_IOERR_WRITE;
    if (vfs_fails(FAULT_FULL))
        return SQLITE_FULL;
    if (vfs_fails(FAULT_SHORT)) {
        (void)vfs_real(f)->pMethods->xWrite(vfs_real(f), from, n / 2, at);
        return SQLITE_IOERR_WRITE;
    }
    return vfs_real(f)->pMethods->xWrite(vfs_real(f), from, n, at);
}

static int
vfs_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    if (vfs_fails(FAULT_TRUNCATE))
        return SQLITE_IOERR_TRUNCATE;
    return vfs_real(f)->pMethods->xTruncate(vfs_real(f), size);
}

static int
vfs_sync(sqlite3_file *f, int flags)
{
    if (vfs_fails(FAULT_SYNC))
        return SQLITE_IOERR_FSYNC;
    /* Nobody pulls the plug here, and hundreds of rounds would wait for the disk. */
    (void)f;
    (void)flags;
    return SQLITE_OK;
}

static int
vfs_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return vfs_real(f)->pMethods->xFileSize(vfs_real(f), size);
}

static int
vfs_lock(sqlite3_file *f, int level)
{
    return vfs_real(f)->pMethods->xLock(vfs_real(f), level);
}

static int
vfs_unlock(sqlite3_file *f, int level)
{
    return vfs_real(f)->pMethods->xUnlock(vfs_real(f), level);
}

static int
vfs_reserved(sqlite3_file *f, int *is_reserved)
{
    return vfs_real(f)->pMethods->xCheckReservedLock(vfs_real(f), is_reserved);
}

static int
vfs_control(sqlite3_file *f, int op, void *arg)
{
    return vfs_real(f)->pMethods->xFileControl(vfs_real(f), op, arg);
}

static int
vfs_sector(sqlite3_file *f)
{
    return vfs_real(f)->pMethods->xSectorSize(vfs_real(f));
}

static int
vfs_traits(sqlite3_file *f)
{
    return vfs_real(f)->pMethods->xDeviceCharacteristics(vfs_real(f));
}

static int
vfs_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **at)
{
    return vfs_real(f)->pMethods->xShmMap(vfs_real(f), page, size, extend, at);
}

static int
vfs_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return vfs_real(f)->pMethods->xShmLock(vfs_real(f), offset, n, flags);
}

static void
vfs_shm_barrier(sqlite3_file *f)
{
    vfs_real(f)->pMethods->xShmBarrier(vfs_real(f));
}

static int
vfs_shm_unmap(sqlite3_file *f, int is_last)
{
    return vfs_real(f)->pMethods->xShmUnmap(vfs_real(f), is_last);
}

/* Version 2: no memory mapping of the file itself, which would go round the reads. */
static const sqlite3_io_methods vfs_methods = {
    .iVersion = 2,
    .xClose = vfs_close,
    .xRead = vfs_read,
    .xWrite = vfs_write,
    .xTruncate = vfs_truncate,
    .xSync = vfs_sync,
    .xFileSize = vfs_size,
    .xLock = vfs_lock,
    .xUnlock = vfs_unlock,
    .xCheckReservedLock = vfs_reserved,
    .xFileControl = vfs_control,
    .xSectorSize = vfs_sector,
    .xDeviceCharacteristics = vfs_traits,
    .xShmMap = vfs_shm_map,
    .xShmLock = vfs_shm_lock,
    .xShmBarrier = vfs_shm_barrier,
    .xShmUnmap = vfs_shm_unmap,
};

static int
vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
    sqlite3_vfs *real = vfs->pAppData;
    vfs_file    *file = (vfs_file *)(void *)f;
    int          rc;

    file->base.pMethods = NULL;
    file->real = (sqlite3_file *)(void *)(file + 1);
    if (vfs_fails(FAULT_OPEN))
        return SQLITE_CANTOPEN;
    if ((rc = real->xOpen(real, name, file->real, flags, out)) == SQLITE_OK)
        file->base.pMethods = &vfs_methods;
    return rc;
}

void
fault_vfs_register(void)
{
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);

    vfs_table = *real;
    vfs_table.zName = "fault";
    vfs_table.pNext = NULL;
    vfs_table.pAppData = real;
    vfs_table.szOsFile = (int)sizeof(vfs_file) + real->szOsFile;
    vfs_table.xOpen = vfs_open;
    (void)sqlite3_vfs_register(&vfs_table, 0);
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
