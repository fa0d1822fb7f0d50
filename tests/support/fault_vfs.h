/* A SQLite VFS over the default one in which reads, writes, truncations and flushes fail to order. Stores
 * opened with "?vfs=fault" go through it; others in the same process do not. Flushes that do not fail do
 * nothing, for speed.
 */
#ifndef STET_FAULT_VFS_H
#define STET_FAULT_VFS_H

#include <stdbool.h>

typedef enum fault_io {
    FAULT_NONE,
    FAULT_READ,     /* EIO */
    FAULT_WRITE,    /* EIO, nothing written */
    FAULT_SHORT,    /* EIO after half of it was written */
    FAULT_FULL,     /* no space, nothing written */
    FAULT_SYNC,     /* the flush fails */
    FAULT_TRUNCATE, /* EIO */
    FAULT_OPEN      /* a file cannot be opened */
} fault_io;

void fault_vfs_register(void);
/* Of the calls `io` is about, the one numbered `from` and the count - 1 after it fail. */
void fault_vfs_arm(fault_io io, long from, long count);
void fault_vfs_disarm(void);
/* Calls of the armed kind so far; how many of them failed. */
long fault_vfs_calls(void);
long fault_vfs_failed(void);

#endif
