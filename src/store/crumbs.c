/* Crumbs: what the threads of a worker are executing, in a mapped file of this machine.
 *
 * They must be written without asking a server and outlive the process, so they cannot be with the
 * server. A worker on another machine does not find them; there the death of a worker tells nothing
 * of its runs. Files are TMPDIR/stet-UID/INSTANCE-SESSION; a directory that is somebody else's is
 * not used. Whoever calls sees to it that a session is mapped by one thread at a time.
 */
#include "store/crumbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CRUMBS_MAGIC "stetcrm1"
#define CRUMBS_HEAD  64
#define CRUMBS_BYTES (CRUMBS_HEAD + STET_CRUMBS_MAX * sizeof(stet_crumb))
#define CRUMBS_OLD_S 3600

typedef struct crumbs_head {
    char     magic[8];
    uint64_t n;
} crumbs_head;

/* Where they lie; false: nowhere. */
static bool
crumbs_dir(char *out, size_t size)
{
    const char *parent = getenv("TMPDIR");
    struct stat info;
    int         len;

    len = snprintf(out, size, "%s/stet-%ld", parent != NULL && *parent != '\0' ? parent : "/tmp",
                   (long)getuid());
    if (len < 0 || (size_t)len >= size || (mkdir(out, 0700) != 0 && errno != EEXIST))
        return false;
    return lstat(out, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid() &&
           (info.st_mode & 022) == 0;
}

static void
crumbs_prefix(const uint8_t instance[16], char out[34])
{
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", instance[i]);
    out[32] = '-';
    out[33] = '\0';
}

static bool
crumbs_path(const uint8_t instance[16], uint64_t session, char *out, size_t size)
{
    char dir[512], prefix[34];
    int  len;

    if (!crumbs_dir(dir, sizeof dir))
        return false;
    crumbs_prefix(instance, prefix);
    len = snprintf(out, size, "%s/%s%llu", dir, prefix, (unsigned long long)session);
    return len > 0 && (size_t)len < size;
}

void
stet__crumbs_unmap(const uint8_t instance[16], uint64_t session, void **map, bool is_ended)
{
    char path[640];

    if (*map != NULL)
        munmap(*map, CRUMBS_BYTES);
    *map = NULL;
    if (is_ended && crumbs_path(instance, session, path, sizeof path))
        (void)unlink(path);
}

/* Mapped as long as it can become; room on the disk for what is asked for, because writing to a
 * mapping of a full disk is a SIGBUS. */
static int
crumbs_file(const char *path, size_t bytes, void **map)
{
    void *fresh = MAP_FAILED;
    int   error, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return errno;
    error = ftruncate(fd, (off_t)CRUMBS_BYTES) != 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (error == 0 && *map == NULL) {
        fresh = mmap(NULL, CRUMBS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (fresh == MAP_FAILED)
            error = errno;
        else
            *map = fresh;
    }
    close(fd);
    return error;
}

stet_crumb *
stet__crumbs_map(const uint8_t instance[16], uint64_t session, size_t n, void **map)
{
    crumbs_head head = { CRUMBS_MAGIC, n };
    size_t      bytes = CRUMBS_HEAD + n * sizeof(stet_crumb);
    char        path[640];
    int         error;

    if (n == 0 || n > STET_CRUMBS_MAX) {
        (void)stet__fail(STET_EINVAL, "a session has room for 1 to %d crumbs, not %zu",
                         STET_CRUMBS_MAX, n);
        return NULL;
    }
    if (!crumbs_path(instance, session, path, sizeof path)) {
        (void)stet__fail(STET_EIO, "there is no directory for crumbs; check TMPDIR");
        return NULL;
    }
    if ((error = crumbs_file(path, bytes, map)) != 0) {
        (void)stet__fail(STET_EIO, "cannot make %s: %s", path, strerror(error));
        return NULL;
    }
    memset(*map, 0, bytes);
    memcpy(*map, &head, sizeof head);
    return (stet_crumb *)(void *)((char *)*map + CRUMBS_HEAD);
}

static int
crumbs_read(stet__alloc *alloc, int fd, stet_crumb **crumbs, size_t *n)
{
    crumbs_head head;
    size_t      bytes;

    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head.magic, CRUMBS_MAGIC, 8) != 0 || head.n == 0 || head.n > STET_CRUMBS_MAX)
        return STET_ENOTFOUND;
    bytes = (size_t)head.n * sizeof **crumbs;
    if ((*crumbs = stet__get(alloc, bytes)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while reading crumbs");
    if (pread(fd, *crumbs, bytes, CRUMBS_HEAD) != (ssize_t)bytes) {
        stet__free(alloc, *crumbs);
        *crumbs = NULL;
        return STET_ENOTFOUND;
    }
    *n = (size_t)head.n;
    return STET_OK;
}

int
stet__crumbs_load(stet__alloc *alloc, const uint8_t instance[16], uint64_t session,
                  stet_crumb **crumbs, size_t *n)
{
    char path[640];
    int  fd, err = STET_ENOTFOUND;

    *crumbs = NULL;
    *n = 0;
    if (crumbs_path(instance, session, path, sizeof path) &&
        (fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) >= 0) {
        err = crumbs_read(alloc, fd, crumbs, n);
        close(fd);
    }
    if (err == STET_ENOTFOUND)
        return stet__fail(err, "no crumbs of session %llu are on this machine",
                          (unsigned long long)session);
    return err;
}

/* A session is known before it has crumbs, but the list of the known may be older than both. */
static bool
crumbs_is_old(const char *path, int64_t now_ms)
{
    struct stat info;

    return lstat(path, &info) == 0 && now_ms / 1000 - info.st_mtim.tv_sec > CRUMBS_OLD_S;
}

void
stet__crumbs_sweep(const uint8_t instance[16], const uint64_t *known, size_t n, int64_t now_ms)
{
    char           dir[512], prefix[34], path[800];
    struct dirent *entry;
    DIR           *list;

    crumbs_prefix(instance, prefix);
    if (!crumbs_dir(dir, sizeof dir) || (list = opendir(dir)) == NULL)
        return;
    while ((entry = readdir(list)) != NULL) {
        uint64_t session;
        size_t   i = 0;

        if (strncmp(entry->d_name, prefix, 33) != 0)
            continue;
        session = strtoull(entry->d_name + 33, NULL, 10);
        while (i < n && known[i] != session)
            i++;
        (void)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (i == n && crumbs_is_old(path, now_ms))
            (void)unlink(path);
    }
    closedir(list);
}
