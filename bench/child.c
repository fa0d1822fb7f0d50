/* Children: this program again, as a process with a heap of its own that can be measured or
 * killed. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_LINE_MAX 512

static void
child_exec(const char *part, const char *path)
{
    char  *self = "/proc/self/exe", part_arg[64];
    size_t len = strlen(path) + sizeof "--file=";
    char  *path_arg = malloc(len);
    char  *argv[] = { self, part_arg, path_arg, NULL };

    if (path_arg == NULL)
        _exit(127);
    snprintf(part_arg, sizeof part_arg, "--child=%s", part);
    snprintf(path_arg, len, "--file=%s", path);
    execv(self, argv);
    _exit(127);
}

void
bench_child_start(bench_child *c, const char *part, const char *path)
{
    int to[2], from[2]; /* no child holds the ends of another, or that one would not see its end */

    fflush(stdout);
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0 || (c->pid = (int)fork()) < 0)
        bench_fail("cannot start a child: %s", strerror(errno));
    if (c->pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        child_exec(part, path);
    }
    close(to[0]);
    close(from[1]);
    c->in = to[1];
    c->out = from[0];
}

void
bench_child_read(bench_child *c, double *numbers, size_t n)
{
    char   line[CHILD_LINE_MAX], *at = line;
    size_t len = 0;

    while (len < sizeof line - 1 && read(c->out, line + len, 1) == 1 && line[len] != '\n')
        len++;
    line[len] = '\0';
    for (size_t i = 0; i < n; i++) {
        char *end;

        numbers[i] = strtod(at, &end);
        if (end == at)
            bench_fail("a child ended before it said what it measured");
        at = end;
    }
}

static int
child_reap(bench_child *c)
{
    int status = 0;

    close(c->in);
    while (waitpid((pid_t)c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(c->out);
    return status;
}

void
bench_child_end(bench_child *c)
{
    if (child_reap(c) != 0)
        bench_fail("a child did not end well");
}

void
bench_child_kill(bench_child *c)
{
    kill((pid_t)c->pid, SIGKILL);
    (void)child_reap(c);
}

/* ---- in the child ---------------------------------------------------------------------------- */

void
bench_child_say(const double *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%.9g", i > 0 ? " " : "", numbers[i]);
    printf("\n");
    fflush(stdout);
}

void
bench_child_wait(void)
{
    char byte;

    while (read(0, &byte, 1) > 0)
        ;
}

int
bench_child_main(const char *part, const char *path)
{
    if (path != NULL && strcmp(part, "parked") == 0)
        return bench_child_parked(path);
    if (path != NULL && strcmp(part, "long") == 0)
        return bench_child_long(path, false);
    if (path != NULL && strcmp(part, "long-last") == 0)
        return bench_child_long(path, true);
    if (path != NULL && strcmp(part, "idle") == 0)
        return bench_child_idle(path);
    if (path != NULL && strcmp(part, "worker") == 0)
        return bench_child_worker(path, 0);
    if (path != NULL && strcmp(part, "slots") == 0)
        return bench_child_worker(path, BENCH_SLOTS);
    fprintf(stderr, "no part \"%s\"\n", part);
    return 2;
}
