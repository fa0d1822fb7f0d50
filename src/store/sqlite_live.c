/* The sidecar file PATH-live: what processes on one database tell each other outside of it.
 *
 *   byte locks   NEXT and NOW queue the writers; PRESENT is held by every open handle; each slot has one
 *   head         mapped by all: futex words for the queue and for hints
 *   slots        one a session: who it is, then its crumbs
 *
 * Nothing in it is needed for correctness: if the file is deleted between runs it is made anew, and the
 * database's own lock and the leases decide alone. All locks are OFD locks, which belong to an open file
 * and not to a process: two handles of one process exclude each other too, and the kernel frees them
 * however the process ends.
 *
 * The queue: take NEXT, then NOW, then let NEXT go. Whoever has just written must stand behind the one
 * that waits with NEXT, so writers alternate. Waiting is on a futex with a short limit, because a holder
 * that dies frees its lock without waking anybody; the whole is limited, so that a stopped process
 * cannot hang the others without an error.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* F_OFD_SETLK, syscall() */
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "store/sqlite.h"

#define LIVE_MAGIC      "stetliv3" /* the last byte is the version of the layout */
#define LIVE_FAMILY     7          /* how much of it all versions share */
#define LIVE_NEXT       0
#define LIVE_NOW        1
#define LIVE_PRESENT    2
#define LIVE_INIT       3
#define LIVE_CLOCK      4
#define LIVE_HEAD_BYTES 4096
#define LIVE_WAIT_MS    20
#define LIVE_WATCH_MS   1000

/* ---- locks and futexes ----------------------------------------------------------------------- */

static bool
live_lock(int fd, off_t at, short type, bool is_waiting)
{
    struct flock l;
    int          rc;

    memset(&l, 0, sizeof l);
    l.l_type = type;
    l.l_whence = SEEK_SET;
    l.l_start = at;
    l.l_len = 1;
    do
        rc = fcntl(fd, is_waiting ? F_OFD_SETLKW : F_OFD_SETLK, &l);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

static void
live_wait(_Atomic uint32_t *word, uint32_t seen, int ms)
{
    struct timespec limit;

    limit.tv_sec = ms / 1000;
    limit.tv_nsec = (long)(ms % 1000) * 1000000L;
    syscall(SYS_futex, (void *)word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static void
live_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- the file -------------------------------------------------------------------------------- */

int
stet__sqlite_fd(const char *path)
{
    return open(path, O_RDWR | O_CLOEXEC);
}

static int
live_fail(sqlite_store *st, sqlite_live *live, int error)
{
    int code = error == ENOSPC || error == EDQUOT                    ? STET_EFULL
               : error == EACCES || error == EROFS || error == EPERM ? STET_EREADONLY
                                                                     : STET_EIO;

    return stet__fail(code, "store %s: cannot use %s beside it: %s; check the directory", st->path,
                      live->path, strerror(error));
}

/* A file of another version holds nothing that is needed, unless somebody is using it. */
static int
live_empty(sqlite_store *st, sqlite_live *live)
{
    if (!live_lock(live->fd, LIVE_PRESENT, F_WRLCK, false))
        return stet__fail(STET_ESTATE,
                          "store %s is in use by another version of stet; stop that one first",
                          st->path);
    return ftruncate(live->fd, 0) == 0 ? STET_OK : live_fail(st, live, errno);
}

/* Under the INIT lock. Space is reserved, because writing to a mapping of a full disk is a SIGBUS. */
static int
live_make(sqlite_store *st, sqlite_live *live)
{
    char        magic[8] = { 0 };
    struct stat info;
    int         err, error;

    if (fstat(live->fd, &info) != 0)
        return live_fail(st, live, errno);
    if (info.st_size > 0 && pread(live->fd, magic, sizeof magic, 0) < 0)
        return live_fail(st, live, errno);
    if (memcmp(magic, LIVE_MAGIC, sizeof magic) == 0)
        return STET_OK;
    if (memcmp(magic, LIVE_MAGIC, LIVE_FAMILY) == 0) {
        if ((err = live_empty(st, live)) != STET_OK)
            return err;
    } else if (memcmp(magic, "\0\0\0\0\0\0\0\0", sizeof magic) != 0) {
        return stet__fail(STET_ENOTDB,
                          "store %s needs the name %s, which is another file; move it away",
                          st->path, live->path);
    }
    if ((error = posix_fallocate(live->fd, 0, LIVE_HEAD_BYTES)) != 0)
        return live_fail(st, live, error);
    if (pwrite(live->fd, LIVE_MAGIC, sizeof magic, 0) != (ssize_t)sizeof magic)
        return live_fail(st, live, errno);
    return STET_OK;
}

static int
live_map(sqlite_store *st, sqlite_live *live)
{
    void *map = mmap(NULL, LIVE_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, live->fd, 0);

    if (map == MAP_FAILED)
        return live_fail(st, live, errno);
    live->head = map;
    /* Alone: counts left by killed processes would cost a system call for ever. */
    if (live_lock(live->fd, LIVE_PRESENT, F_WRLCK, false)) {
        atomic_store(&live->head->watchers, 0);
        atomic_store(&live->head->queue_waiters[LIVE_NEXT], 0);
        atomic_store(&live->head->queue_waiters[LIVE_NOW], 0);
    }
    live_lock(live->fd, LIVE_PRESENT, F_RDLCK, false);
    return STET_OK;
}

int
stet__sqlite_live_open(sqlite_store *st, sqlite_live *live, const char *suffix)
{
    struct stat info;
    stet__buf   b;
    mode_t      mode = 0644;
    int         err;

    live->fd = -1;
    stet__buf_init(&b, st->base.alloc);
    stet__buf_printf(&b, "%s-live%s", st->full_path, suffix);
    stet__buf_byte(&b, 0);
    if (b.failed) {
        stet__buf_free(&b);
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    }
    live->path = (char *)b.data;
    if (stat(st->full_path, &info) == 0)
        mode = info.st_mode & 0777; /* whoever may use the database may use this */
    if ((live->fd = open(live->path, O_RDWR | O_CREAT | O_CLOEXEC, mode)) < 0)
        return live_fail(st, live, errno);
    if (!live_lock(live->fd, LIVE_INIT, F_WRLCK, true))
        return live_fail(st, live, errno);
    if ((err = live_make(st, live)) == STET_OK && (err = live_map(st, live)) == STET_OK)
        stet__sqlite_clock_open(st, live);
    live_lock(live->fd, LIVE_INIT, F_UNLCK, false);
    return err;
}

bool
stet__sqlite_live_is_alone(sqlite_live *live)
{
    bool is_alone = live_lock(live->fd, LIVE_PRESENT, F_WRLCK, false);

    live_lock(live->fd, LIVE_PRESENT, F_RDLCK, false);
    return is_alone;
}

void
stet__sqlite_live_close(sqlite_store *st, sqlite_live *live)
{
    if (live->path == NULL)
        return;
    if (live->head != NULL)
        munmap(live->head, LIVE_HEAD_BYTES);
    if (live->fd >= 0)
        close(live->fd);
    stet__free(st->base.alloc, live->path);
    live->head = NULL;
    live->fd = -1;
    live->path = NULL;
}

bool
stet__sqlite_clock_lock(sqlite_store *st)
{
    return live_lock(st->queue.fd, LIVE_CLOCK, F_WRLCK, false);
}

void
stet__sqlite_clock_unlock(sqlite_store *st)
{
    live_lock(st->queue.fd, LIVE_CLOCK, F_UNLCK, false);
}

/* ---- the queue of writers -------------------------------------------------------------------- */

static int
live_queue_take(sqlite_store *st, int fd, int which, int64_t until_us)
{
    sqlite_live_head *head = st->queue.head;
    uint32_t          seen;

    for (;;) {
        seen = atomic_load(&head->queue_word[which]);
        if (live_lock(fd, which, F_WRLCK, false))
            return STET_OK;
        if (errno != EAGAIN && errno != EACCES)
            return stet__fail(STET_EIO, "store %s: cannot lock %s: %s", st->path, st->queue.path,
                              strerror(errno));
        if (stet__mono_us(st->base.platform) >= until_us)
            return stet__fail(STET_EBUSY,
                              "store %s: another process has been writing for %d ms; try again",
                              st->path, LITE_BUSY_MS);
        atomic_fetch_add(&head->queue_waiters[which], 1);
        live_wait(&head->queue_word[which], seen, LIVE_WAIT_MS);
        atomic_fetch_sub(&head->queue_waiters[which], 1);
    }
}

static void
live_queue_give(sqlite_store *st, int fd, int which)
{
    sqlite_live_head *head = st->queue.head;

    live_lock(fd, which, F_UNLCK, false);
    atomic_fetch_add(&head->queue_word[which], 1);
    if (atomic_load(&head->queue_waiters[which]) != 0)
        live_wake(&head->queue_word[which]);
}

int
stet__sqlite_queue_enter(sqlite_store *st, int fd)
{
    int64_t until_us = stet__mono_us(st->base.platform) + LITE_BUSY_MS * 1000;
    int     err;

    if ((err = live_queue_take(st, fd, LIVE_NEXT, until_us)) != STET_OK)
        return err;
    err = live_queue_take(st, fd, LIVE_NOW, until_us);
    live_queue_give(st, fd, LIVE_NEXT);
    return err;
}

void
stet__sqlite_queue_leave(sqlite_store *st, int fd)
{
    live_queue_give(st, fd, LIVE_NOW);
}

/* ---- hints ----------------------------------------------------------------------------------- */

/* A handle does not wake itself: hint - own_hints counts what the others did. own_hints goes first, so
 * that the difference is never too large, and is read last for the same reason. */
void
stet__sqlite_hint(sqlite_store *st)
{
    sqlite_live_head *head = st->own.head;
    uint32_t          self;

    atomic_fetch_add(&st->own_hints, 1);
    atomic_fetch_add(&head->hint, 1);
    self = atomic_load(&st->is_watching) ? 1 : 0;
    if (atomic_load(&head->watchers) > self)
        live_wake(&head->hint);
}

static void
live_watch(void *arg)
{
    sqlite_store     *st = arg;
    sqlite_live_head *head = st->own.head;
    uint32_t          seen = st->watch_seen;
    uint32_t          word, others;

    while (!atomic_load(&st->watch_stop)) {
        word = atomic_load(&head->hint);
        others = word - atomic_load(&st->own_hints);
        if ((int32_t)(others - seen) > 0) {
            seen = others;
            st->on_hint(st->hint_arg);
            continue;
        }
        live_wait(&head->hint, word, LIVE_WATCH_MS);
    }
}

int
stet__sqlite_watch(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    sqlite_store *st = sqlite_of(s);
    int           err = stet__sqlite_enter(st);

    if (err != STET_OK)
        return err;
    stet__lock(s->platform, &st->watch_lock);
    if (st->is_watching) {
        err = stet__fail(STET_ESTATE, "store %s is being watched already", st->path);
    } else {
        st->on_hint = on_hint;
        st->hint_arg = arg;
        atomic_store(&st->watch_stop, false);
        /* Here, because the thread may begin after a commit that follows this call. */
        st->watch_seen = atomic_load(&st->own.head->hint);
        st->watch_seen -= atomic_load(&st->own_hints);
        atomic_store(&st->is_watching, true);
        atomic_fetch_add(&st->own.head->watchers, 1);
        err = s->platform->ops->thread_start(s->platform, &st->watch_thread, "stet-watch",
                                             live_watch, st);
        if (err != STET_OK) {
            atomic_store(&st->is_watching, false);
            atomic_fetch_sub(&st->own.head->watchers, 1);
        }
    }
    stet__unlock(s->platform, &st->watch_lock);
    return err;
}

void
stet__sqlite_unwatch(stet_store *s)
{
    sqlite_store *st = sqlite_of(s);

    if (stet__sqlite_enter(st) != STET_OK)
        return;
    stet__lock(s->platform, &st->watch_lock);
    if (st->is_watching) {
        atomic_store(&st->watch_stop, true);
        /* Bumped, not only woken: the thread may be just about to wait. */
        atomic_fetch_add(&st->own_hints, 1);
        atomic_fetch_add(&st->own.head->hint, 1);
        live_wake(&st->own.head->hint);
        s->platform->ops->thread_join(s->platform, st->watch_thread);
        st->watch_thread = NULL;
        atomic_store(&st->is_watching, false);
        atomic_fetch_sub(&st->own.head->watchers, 1);
    }
    stet__unlock(s->platform, &st->watch_lock);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static off_t
live_slot_at(size_t slot)
{
    return (off_t)(slot + 1) * LITE_SLOT_BYTES;
}

bool
stet__sqlite_slot_lock(int fd, size_t slot)
{
    return live_lock(fd, live_slot_at(slot), F_WRLCK, false);
}

void
stet__sqlite_slot_unlock(int fd, size_t slot)
{
    live_lock(fd, live_slot_at(slot), F_UNLCK, false);
}

bool
stet__sqlite_slot_is_held(int fd, size_t slot)
{
    struct flock l;

    memset(&l, 0, sizeof l);
    l.l_type = F_WRLCK;
    l.l_whence = SEEK_SET;
    l.l_start = live_slot_at(slot);
    l.l_len = 1;
    return fcntl(fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

size_t
stet__sqlite_slot_count(int fd)
{
    struct stat info;

    if (fstat(fd, &info) != 0 || info.st_size <= LITE_SLOT_BYTES)
        return 0;
    return (size_t)((info.st_size - 1) / LITE_SLOT_BYTES);
}

bool
stet__sqlite_slot_read(int fd, size_t slot, sqlite_slot *head)
{
    return pread(fd, head, sizeof *head, live_slot_at(slot)) == (ssize_t)sizeof *head;
}

/* Which start of the machine this is; "" where that cannot be known. */
void
stet__sqlite_boot_id(char boot[LITE_BOOT_MAX])
{
    ssize_t n = -1;
    int     fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    memset(boot, 0, LITE_BOOT_MAX);
    if (fd < 0)
        return;
    n = read(fd, boot, LITE_BOOT_MAX - 1);
    close(fd);
    if (n <= 0)
        boot[0] = '\0';
    boot[LITE_BOOT_MAX - 1] = '\0';
}
