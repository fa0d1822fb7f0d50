/* A SQLite VFS with hooks; see vfs_shim.h. The hooks of a VFS stand behind its pAppData. */
#ifdef STET_WITH_SQLITE
#include "vfs_shim.h"

#include <stddef.h>

typedef struct vfs_shim {
    sqlite3_vfs     *real;
    const vfs_hooks *hooks;
} vfs_shim;

enum { VFS_SHIMS_MAX = 4 };
static vfs_shim vfs_shims[VFS_SHIMS_MAX];
static size_t   vfs_n_shims;

static vfs_file *
vfs_of(sqlite3_file *f)
{
    return (vfs_file *)(void *)f;
}

static sqlite3_file *
vfs_real(sqlite3_file *f)
{
    return vfs_of(f)->real;
}

static int
vfs_close(sqlite3_file *f)
{
    return vfs_real(f)->pMethods->xClose(vfs_real(f));
}

static int
vfs_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    if (vfs_of(f)->hooks->read != NULL)
        return vfs_of(f)->hooks->read(vfs_of(f), to, n, at);
    return vfs_real(f)->pMethods->xRead(vfs_real(f), to, n, at);
}

static int
vfs_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    if (vfs_of(f)->hooks->write != NULL)
        return vfs_of(f)->hooks->write(vfs_of(f), from, n, at);
    return vfs_real(f)->pMethods->xWrite(vfs_real(f), from, n, at);
}

static int
vfs_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    if (vfs_of(f)->hooks->truncate != NULL)
        return vfs_of(f)->hooks->truncate(vfs_of(f), size);
    return vfs_real(f)->pMethods->xTruncate(vfs_real(f), size);
}

static int
vfs_sync(sqlite3_file *f, int flags)
{
    if (vfs_of(f)->hooks->sync != NULL)
        return vfs_of(f)->hooks->sync(vfs_of(f), flags);
    return vfs_real(f)->pMethods->xSync(vfs_real(f), flags);
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
    vfs_shim *shim = vfs->pAppData;
    vfs_file *file = vfs_of(f);
    int       rc;

    file->base.pMethods = NULL;
    file->real = (sqlite3_file *)(void *)(file + 1);
    file->hooks = shim->hooks;
    file->flags = flags;
    if (shim->hooks->open != NULL)
        rc = shim->hooks->open(shim->real, name, file, flags, out);
    else
        rc = shim->real->xOpen(shim->real, name, file->real, flags, out);
    if (rc == SQLITE_OK)
        file->base.pMethods = &vfs_methods;
    return rc;
}

static int
vfs_delete(sqlite3_vfs *vfs, const char *name, int is_synced)
{
    vfs_shim *shim = vfs->pAppData;

    if (shim->hooks->remove != NULL)
        return shim->hooks->remove(shim->real, name, is_synced);
    return shim->real->xDelete(shim->real, name, is_synced);
}

void
vfs_shim_register(sqlite3_vfs *table, const char *name, const vfs_hooks *hooks)
{
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    vfs_shim    *shim = table->pAppData;

    if (shim == NULL && vfs_n_shims < VFS_SHIMS_MAX)
        shim = &vfs_shims[vfs_n_shims++];
    shim->real = real;
    shim->hooks = hooks;
    *table = *real;
    table->zName = name;
    table->pNext = NULL;
    table->pAppData = shim;
    table->szOsFile = (int)sizeof(vfs_file) + real->szOsFile;
    table->xOpen = vfs_open;
    table->xDelete = vfs_delete;
    (void)sqlite3_vfs_register(table, 0);
}
#else
typedef int vfs_shim_needs_sqlite; /* a translation unit must not be empty */
#endif
