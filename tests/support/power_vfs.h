/* A SQLite VFS that knows what a power cut would leave behind.
 *
 * It keeps an image of each file as the last flush left it, and the writes, truncations and
 * removals since. Whenever SQLite flushes a file, the moment just before is kept as a cut: the
 * images, and all that was not flushed by then. Afterwards a cut can be written out as files, as
 * often as one likes, each time with another fate of what was not flushed. Flushes themselves do
 * nothing more, for speed.
 *
 * A piece that is torn is torn in sectors of 512 bytes of which each is new, old or garbage; bytes
 * of a sector that were not written are never harmed (SQLite's SQLITE_IOCAP_POWERSAFE_OVERWRITE,
 * which its Unix VFS takes for granted).
 *
 * One database at a time. The file of shared memory is memory and is not kept.
 */
#ifndef STET_POWER_VFS_H
#define STET_POWER_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum power_fate {
    POWER_KEEP,    /* all of it reached the disk */
    POWER_DROP,    /* nothing did */
    POWER_SHUFFLE, /* each write did or did not */
    POWER_TEAR     /* each sector of each write is new, old or garbage */
} power_fate;

typedef struct power_cut power_cut;

/* Begin a new recording: databases opened with "?vfs=power" are empty and recorded. look() is
 * called at each flush before the cut is taken and says what the world knew then; its answer stays
 * with the cut. */
void power_vfs_begin(void *(*look)(void *arg), void *arg);
/* No more cuts are taken. Returns how many there are. */
size_t           power_vfs_end(void);
const power_cut *power_vfs_cut(size_t at);
/* Forget all cuts; forget() gets what look() gave. */
void power_vfs_free(void (*forget)(void *known));

void *power_cut_known(const power_cut *cut);
/* Which file was being flushed: "database", "journal" or "log". */
const char *power_cut_file(const power_cut *cut);
/* How many writes, truncations and removals were not flushed. */
size_t power_cut_pending(const power_cut *cut);
/* Make `path`, `path`-journal and `path`-wal what the cut left. */
void        power_cut_write(const power_cut *cut, power_fate fate, uint64_t seed, const char *path);
const char *power_fate_name(power_fate fate);

#endif
