/* The scratch directory of one benchmark: beside the program, named after the process.
 *
 * Its owner removes it at exit. One whose owner is dead was left by a benchmark that was killed;
 * the next one removes it.
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRATCH_PREFIX "scratch-"

static char *
scratch_join(const char *directory, const char *name)
{
    size_t len = strlen(directory) + 1 + strlen(name) + 1;
    char  *path = malloc(len);

    if (path == NULL)
        bench_fail("out of memory");
    snprintf(path, len, "%s/%s", directory, name);
    return path;
}

char *
bench_beside(const char *name)
{
    char    self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    char   *slash;

    if (len < 0)
        bench_fail("cannot find the program's own directory: %s", strerror(errno));
    self[len] = '\0';
    if ((slash = strrchr(self, '/')) != NULL)
        *slash = '\0';
    return scratch_join(self, name);
}

static char *
scratch_name(void)
{
    char name[64];

    snprintf(name, sizeof name, SCRATCH_PREFIX "%ld", (long)getpid());
    return bench_beside(name);
}

char *
bench_path(const char *name)
{
    char *directory = scratch_name(), *path = scratch_join(directory, name);

    free(directory);
    return path;
}

/* Files only: nothing here makes directories. */
static void
scratch_remove_all(const char *directory)
{
    DIR           *d = opendir(directory);
    struct dirent *entry;

    while (d != NULL && (entry = readdir(d)) != NULL) {
        char *path = scratch_join(directory, entry->d_name);

        if (entry->d_name[0] != '.')
            unlink(path);
        free(path);
    }
    if (d != NULL)
        closedir(d);
    rmdir(directory);
}

static void
scratch_close(void)
{
    char *directory = scratch_name();

    scratch_remove_all(directory);
    free(directory);
}

static void
scratch_remove_left(void)
{
    char          *parent = bench_beside(".");
    DIR           *d = opendir(parent);
    struct dirent *entry;

    while (d != NULL && (entry = readdir(d)) != NULL) {
        long pid;

        if (strncmp(entry->d_name, SCRATCH_PREFIX, strlen(SCRATCH_PREFIX)) != 0 ||
            (pid = strtol(entry->d_name + strlen(SCRATCH_PREFIX), NULL, 10)) <= 0)
            continue;
        if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
            char *path = scratch_join(parent, entry->d_name);

            scratch_remove_all(path);
            free(path);
        }
    }
    if (d != NULL)
        closedir(d);
    free(parent);
}

void
bench_scratch_open(void)
{
    char *directory = scratch_name();

    scratch_remove_left();
    if (mkdir(directory, 0700) != 0)
        bench_fail("%s: %s", directory, strerror(errno));
    free(directory);
    atexit(scratch_close);
}

void
bench_remove(const char *path)
{
    const char    *slash = strrchr(path, '/');
    const char    *name = slash != NULL ? slash + 1 : path;
    char          *directory = scratch_name();
    DIR           *d = opendir(directory);
    struct dirent *entry;

    while (d != NULL && (entry = readdir(d)) != NULL)
        if (strncmp(entry->d_name, name, strlen(name)) == 0) {
            char *found = scratch_join(directory, entry->d_name);

            unlink(found);
            free(found);
        }
    if (d != NULL)
        closedir(d);
    free(directory);
}
