/* A SQLite VFS over the default one that hands every call to the real file, with hooks where a test
 * wants to do something else. fault_vfs.c makes calls fail with it, power_vfs.c keeps a record of
 * what was written and what was flushed.
 */
#ifndef STET_VFS_SHIM_H
#define STET_VFS_SHIM_H

#ifdef STET_WITH_SQLITE
#include <sqlite3.h>

typedef struct vfs_hooks vfs_hooks;

typedef struct vfs_file {
    sqlite3_file     base;
    sqlite3_file    *real; /* behind this struct */
    const vfs_hooks *hooks;
    int              flags; /* SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_WAL …, as it was opened */
} vfs_file;

/* NULL: the real call alone. A hook that is there makes the real call itself, if it is to be made.
 */
struct vfs_hooks {
    int (*open)(sqlite3_vfs *real, const char *name, vfs_file *f, int flags, int *out);
    int (*remove)(sqlite3_vfs *real, const char *name, int is_synced);
    int (*read)(vfs_file *f, void *to, int n, sqlite3_int64 at);
    int (*write)(vfs_file *f, const void *from, int n, sqlite3_int64 at);
    int (*truncate)(vfs_file *f, sqlite3_int64 size);
    int (*sync)(vfs_file *f, int flags);
};

/* `table` and `hooks` must live for ever. Stores opened with "?vfs=NAME" go through it, others do
 * not. */
void vfs_shim_register(sqlite3_vfs *table, const char *name, const vfs_hooks *hooks);
#endif

#endif
