/* The system's tz database.
 *
 * Names become paths here, so here they are checked: no way out of the directory, no hidden file.
 * An unknown name is compared with all there are, which walks the directory; nobody else does.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "platform/tzdata.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TZDATA_DIR       "/usr/share/zoneinfo"
#define TZDATA_NAME_MAX  64
#define TZDATA_BYTES_MAX ((size_t)64 * 1024) /* the largest file has 4 KiB */
#define TZDATA_DEPTH_MAX 3                   /* America/Argentina/Salta */
#define TZDATA_SEEN_MAX  4096 /* there are 600, and as many twice more in some trees */
#define TZDATA_NEAR      3

static const char *
tzdata_dir(void)
{
    const char *dir = getenv("TZDIR");

    return dir != NULL && *dir != '\0' ? dir : TZDATA_DIR;
}

/* Letters, digits, "_+-" and single slashes between parts: neither ".." nor an absolute path. */
static bool
tzdata_is_name(const char *name)
{
    size_t len = strnlen(name, TZDATA_NAME_MAX + 1);

    if (len == 0 || len > TZDATA_NAME_MAX || name[0] == '/' || name[len - 1] == '/' ||
        strstr(name, "//") != NULL)
        return false;
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/") ==
           len;
}

/* ---- near names ------------------------------------------------------------------------------ */

typedef struct tzdata_search {
    char   typed[TZDATA_NAME_MAX + 1]; /* in lower case */
    size_t len, seen;
    struct {
        size_t edits;
        char   name[TZDATA_NAME_MAX + 1];
    } near[TZDATA_NEAR]; /* the nearest first */
    size_t n_near;
} tzdata_search;

static void
tzdata_lower(char *to, const char *from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = (char)(from[i] >= 'A' && from[i] <= 'Z' ? from[i] - 'A' + 'a' : from[i]);
    to[len] = '\0';
}

/* "berlin" is near to Europe/Berlin by its last part. Among equals the order of names decides: a
 * directory has none. */
static void
tzdata_offer(tzdata_search *s, const char *name)
{
    char        lower[TZDATA_NAME_MAX + 1];
    const char *last;
    size_t      edits, by_last, i;

    tzdata_lower(lower, name, strlen(name));
    last = strrchr(lower, '/');
    edits = stet__near_edits(s->typed, s->len, lower);
    by_last = last != NULL ? stet__near_edits(s->typed, s->len, last + 1) : SIZE_MAX;
    edits = by_last < edits ? by_last : edits;
    if (edits > 1 + s->len / 4)
        return;
    for (i = s->n_near; i > 0; i--) {
        if (s->near[i - 1].edits < edits ||
            (s->near[i - 1].edits == edits && strcmp(s->near[i - 1].name, name) < 0))
            break;
        if (i < TZDATA_NEAR)
            s->near[i] = s->near[i - 1];
    }
    if (i == TZDATA_NEAR)
        return;
    s->near[i].edits = edits;
    memcpy(s->near[i].name, name, strlen(name) + 1);
    s->n_near += s->n_near < TZDATA_NEAR;
}

/* Zones and their folders begin with a capital; "posix", "right" and tables do not. */
static void
tzdata_walk(tzdata_search *s, const char *folder, int depth)
{
    char           path[PATH_MAX], name[TZDATA_NAME_MAX + 1];
    struct dirent *entry;
    struct stat    info;
    DIR           *dir;
    int            len;

    len = snprintf(path, sizeof path, "%s/%s", tzdata_dir(), folder);
    if (len < 0 || (size_t)len >= sizeof path || (dir = opendir(path)) == NULL)
        return;
    while ((entry = readdir(dir)) != NULL && s->seen++ < TZDATA_SEEN_MAX) {
        len = snprintf(name, sizeof name, "%s%s%s", folder, *folder != '\0' ? "/" : "",
                       entry->d_name);
        if (len < 0 || (size_t)len >= sizeof name || !tzdata_is_name(name) ||
            entry->d_name[0] < 'A' || entry->d_name[0] > 'Z' ||
            fstatat(dirfd(dir), entry->d_name, &info, 0) != 0)
            continue;
        if (S_ISREG(info.st_mode))
            tzdata_offer(s, name);
        else if (S_ISDIR(info.st_mode) && depth + 1 < TZDATA_DEPTH_MAX)
            tzdata_walk(s, name, depth + 1);
    }
    (void)closedir(dir);
}

static int
tzdata_unknown(const char *name)
{
    tzdata_search s = { .len = strlen(name) };
    struct stat   info;

    if (stat(tzdata_dir(), &info) != 0)
        return stet__fail(STET_ENOTFOUND,
                          "time zone \"%s\": there is no tz database in %s; install it (Debian: "
                          "tzdata) or set TZDIR; UTC needs none",
                          name, tzdata_dir());
    tzdata_lower(s.typed, name, s.len);
    tzdata_walk(&s, "", 0);
    /* Beside a name that is very near the others are noise. */
    while (s.n_near > 1 && s.near[s.n_near - 1].edits > s.near[0].edits + 1)
        s.n_near--;
    if (s.n_near == 0)
        return stet__fail(STET_ENOTFOUND,
                          "there is no time zone \"%s\" in %s; names are like Europe/Berlin", name,
                          tzdata_dir());
    return stet__fail(STET_ENOTFOUND, "there is no time zone \"%s\"; did you mean %s%s%s%s%s?",
                      name, s.near[0].name,
                      s.n_near > 2   ? ", "
                      : s.n_near > 1 ? " or "
                                     : "",
                      s.n_near > 1 ? s.near[1].name : "", s.n_near > 2 ? " or " : "",
                      s.n_near > 2 ? s.near[2].name : "");
}

/* ---- reading --------------------------------------------------------------------------------- */

static int
tzdata_read_fd(stet__buf *out, int fd, const char *name)
{
    size_t  before = out->len;
    ssize_t n;

    do {
        if (!stet__buf_reserve(out, 4096))
            return stet__fail(STET_ENOMEM, "time zone %s: out of memory", name);
        n = read(fd, out->data + out->len, 4096);
        if (n > 0)
            out->len += (size_t)n;
        if (out->len - before > TZDATA_BYTES_MAX)
            return stet__fail(STET_ECORRUPT, "time zone %s: its file is too large", name);
    } while (n > 0 || (n < 0 && errno == EINTR));
    if (n < 0)
        return stet__fail(STET_EIO, "time zone %s: its file cannot be read: %s", name,
                          strerror(errno));
    return STET_OK;
}

int
stet__tzdata_read(stet__buf *out, const char *name)
{
    char        path[PATH_MAX];
    struct stat info;
    int         fd, len, err;

    if (!tzdata_is_name(name))
        return stet__fail(STET_EINVAL,
                          "\"%.64s\" is no name of a time zone; names are like Europe/Berlin: "
                          "letters, digits, '_', '+', '-' and '/'",
                          name);
    len = snprintf(path, sizeof path, "%s/%s", tzdata_dir(), name);
    if (len < 0 || (size_t)len >= sizeof path)
        return stet__fail(STET_EIO, "time zone %s: TZDIR is too long", name);
    /* Not blocking: whatever lies there, opening it must not wait. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return tzdata_unknown(name);
    if (fd < 0)
        return stet__fail(STET_EIO, "time zone %s: its file cannot be opened: %s", name,
                          strerror(errno));
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        err = tzdata_read_fd(out, fd, name);
    else
        err = tzdata_unknown(name); /* "Europe" is a folder */
    (void)close(fd);
    return err;
}
