/* Crumbs: what the threads of a worker are executing, in a mapped file of this machine.
 *
 * They must be written without a statement and outlive the process, so they cannot be with the
 * server. A worker on another machine does not find them; there the death of a worker tells nothing
 * of its runs. Files are TMPDIR/stet-UID/INSTANCE-SESSION; a directory that is somebody else's is
 * not used. Locks: side_lock.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/postgres.h"

#define CRUMBS_MAGIC "stetcrm1"
#define CRUMBS_HEAD  64
#define CRUMBS_BYTES (CRUMBS_HEAD + STET_CRUMBS_MAX * sizeof(stet_crumb))

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
crumbs_prefix(const pg_store *st, char out[34])
{
    for (size_t i = 0; i < sizeof st->instance; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", st->instance[i]);
    out[32] = '-';
    out[33] = '\0';
}

static bool
crumbs_path(const pg_store *st, uint64_t session, char *out, size_t size)
{
    char dir[512], prefix[34];
    int  len;

    if (!crumbs_dir(dir, sizeof dir))
        return false;
    crumbs_prefix(st, prefix);
    len = snprintf(out, size, "%s/%s%llu", dir, prefix, (unsigned long long)session);
    return len > 0 && (size_t)len < size;
}

/* The file stays as long as the row of the session: a session that was closed in good order left nothing
 * busy, and that is worth knowing. */
void
stet__pg_crumbs_close(pg_session *own)
{
    if (own->map != NULL)
        munmap(own->map, CRUMBS_BYTES);
    own->map = NULL;
}

/* Mapped as long as it can become; room on the disk for what is asked for, because writing to a
 * mapping of a full disk is a SIGBUS. */
static bool
crumbs_map(pg_store *st, pg_session *own, size_t bytes)
{
    char  path[640];
    void *map = MAP_FAILED;
    int   fd = -1, error = 0;

    if (!crumbs_path(st, own->session, path, sizeof path))
        stet__fail(STET_EIO, "store %s: no directory for crumbs; check TMPDIR", st->name);
    else if ((fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0 ||
             ftruncate(fd, CRUMBS_BYTES) != 0 ||
             (error = posix_fallocate(fd, 0, (off_t)bytes)) != 0 ||
             (own->map == NULL && (map = mmap(NULL, CRUMBS_BYTES, PROT_READ | PROT_WRITE,
                                              MAP_SHARED, fd, 0)) == MAP_FAILED))
        stet__fail(STET_EIO, "store %s: cannot make %s: %s", st->name, path,
                   strerror(error != 0 ? error : errno));
    else if (own->map == NULL)
        own->map = map;
    if (fd >= 0)
        close(fd);
    return own->map != NULL && error == 0;
}

stet_crumb *
stet__pg_crumbs(stet_store *s, uint64_t session, size_t n)
{
    pg_store   *st = pg_of(s);
    pg_session *own;
    crumbs_head head = { CRUMBS_MAGIC, n };
    stet_crumb *crumbs = NULL;

    if (stet__pg_enter(st) != STET_OK)
        return NULL;
    if (n == 0 || n > STET_CRUMBS_MAX) {
        stet__fail(STET_EINVAL, "store %s: a session has room for 1 to %d crumbs, not %zu",
                   st->name, STET_CRUMBS_MAX, n);
        return NULL;
    }
    stet__lock(s->platform, &st->side_lock);
    for (own = st->sessions; own != NULL && own->session != session; own = own->next)
        continue;
    if (own == NULL)
        stet__fail(STET_ENOTFOUND, "store %s: session %llu is not of this handle", st->name,
                   (unsigned long long)session);
    else if (crumbs_map(st, own, CRUMBS_HEAD + n * sizeof *crumbs)) {
        memset(own->map, 0, CRUMBS_HEAD + n * sizeof *crumbs);
        memcpy(own->map, &head, sizeof head);
        crumbs = (stet_crumb *)(void *)((char *)own->map + CRUMBS_HEAD);
    }
    stet__unlock(s->platform, &st->side_lock);
    return crumbs;
}

/* ---- of the dead ----------------------------------------------------------------------------- */

/* The owner of a living session is writing its crumbs. */
static int
crumbs_check_dead(pg_store *st, uint64_t session)
{
    PGresult *res = NULL;
    pg_args   args = { 0 };
    int       err;

    pg_arg_int8(&args, (int64_t)session);
    pg_arg_int8(&args, atomic_load(&st->advance_ms));
    if ((err = stet__pg_read(st, PG_SQL_SESSION_GET, &args, &res, "read a session")) == STET_OK &&
        PQntuples(res) == 1 && !pg_bool(res, 0, 0))
        err = stet__fail(STET_ESTATE, "session %llu is alive; only a dead one's crumbs can be read",
                         (unsigned long long)session);
    PQclear(res);
    return err;
}

static int
crumbs_load(pg_store *st, int fd, stet_crumb **crumbs, size_t *n)
{
    crumbs_head head;
    size_t      bytes;

    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head.magic, CRUMBS_MAGIC, 8) != 0 || head.n == 0 || head.n > STET_CRUMBS_MAX)
        return STET_ENOTFOUND;
    bytes = (size_t)head.n * sizeof **crumbs;
    if ((*crumbs = stet__get(st->base.alloc, bytes)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if (pread(fd, *crumbs, bytes, CRUMBS_HEAD) != (ssize_t)bytes) {
        stet__free(st->base.alloc, *crumbs);
        *crumbs = NULL;
        return STET_ENOTFOUND;
    }
    *n = (size_t)head.n;
    return STET_OK;
}

int
stet__pg_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    pg_store *st = pg_of(s);
    char      path[640];
    int       fd = -1, err;

    *crumbs = NULL;
    *n = 0;
    if ((err = stet__pg_enter(st)) != STET_OK || (err = crumbs_check_dead(st, session)) != STET_OK)
        return err;
    err = STET_ENOTFOUND;
    if (crumbs_path(st, session, path, sizeof path) &&
        (fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) >= 0) {
        err = crumbs_load(st, fd, crumbs, n);
        close(fd);
    }
    if (err == STET_ENOTFOUND)
        return stet__fail(err, "store %s: no crumbs of session %llu are on this machine", st->name,
                          (unsigned long long)session);
    return err;
}

/* Files of an hour ago or more: a session gets its row before its crumbs, but the list may be
 * older. */
static bool
crumbs_is_old(pg_store *st, const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 &&
           stet__wall_ms(st->base.platform) / 1000 - info.st_mtim.tv_sec > 3600;
}

void
stet__pg_crumbs_sweep(pg_store *st, const uint64_t *known, size_t n)
{
    char           dir[512], prefix[34], path[800];
    struct dirent *entry;
    DIR           *list;

    crumbs_prefix(st, prefix);
    if (!crumbs_dir(dir, sizeof dir) || (list = opendir(dir)) == NULL)
        return;
    while ((entry = readdir(list)) != NULL) {
        uint64_t session =
            strtoull(entry->d_name + (strlen(entry->d_name) > 33 ? 33 : 0), NULL, 10);
        size_t   i = 0;

        if (strncmp(entry->d_name, prefix, 33) != 0)
            continue;
        while (i < n && known[i] != session)
            i++;
        (void)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (i == n && crumbs_is_old(st, path))
            (void)unlink(path);
    }
    closedir(list);
}
