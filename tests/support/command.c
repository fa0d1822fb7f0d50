#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/util.h"

/* The programs lie beside this one. */
const char *
program(const char *name)
{
    static char path[2][512];
    char       *at = path[strcmp(name, "stet") == 0];
    ssize_t     len = readlink("/proc/self/exe", at, 400);
    char       *slash;

    CHECK(len > 0);
    at[len] = '\0';
    slash = strrchr(at, '/');
    CHECK(slash != NULL);
    snprintf(slash, 100, strcmp(name, "stet") == 0 ? "/../%s" : "/apps/%s", name);
    return at;
}

/* A test's texts live until its process ends; the list keeps them from being called leaks. */
typedef struct kept {
    struct kept *next;
    char         text[];
} kept;
static kept *all_kept;

char *
keep(const char *text, size_t len)
{
    kept *k = malloc(sizeof *k + len + 1);

    CHECK(k != NULL);
    memcpy(k->text, text, len);
    k->text[len] = '\0';
    k->next = all_kept;
    all_kept = k;
    return k->text;
}

char *
slurp(const char *path)
{
    static char text[1 << 20];
    FILE       *file = fopen(path, "rb");
    size_t      n;

    CHECK(file != NULL);
    n = fread(text, 1, sizeof text, file);
    fclose(file);
    return keep(text, n);
}

void
spill(const char *name, const char *text)
{
    FILE *file = fopen(test_path(name), "wb");

    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

void
redirect(int fd, const char *path, int flags)
{
    int opened = open(path, flags, 0600);

    if (opened < 0 || dup2(opened, fd) < 0)
        _exit(99);
    close(opened);
}

/* In the child: become the program, in the test's directory, with a known environment. */
_Noreturn void
become(const char *name, const char *const *args)
{
    const char *argv[40] = { program(name) };

    for (size_t i = 0; args[i] != NULL && i < 38; i++)
        argv[i + 1] = args[i];
    if (chdir(test_dir()) != 0)
        _exit(99);
    unsetenv("STET_DB");
    unsetenv("NO_COLOR");
    setenv("USER", "tester", 1);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(98);
}

int
ended(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        CHECK_INT(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

outcome
run_program(const char *name, const char *input, const char *const *args)
{
    outcome o;
    pid_t   pid;

    if (input != NULL)
        spill("stdin", input);
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        redirect(0, input ? test_path("stdin") : "/dev/null", O_RDONLY);
        redirect(1, test_path("stdout"), O_WRONLY | O_CREAT | O_TRUNC);
        redirect(2, test_path("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        become(name, args);
    }
    o.exit = ended(pid);
    o.out = slurp(test_path("stdout"));
    o.err = slurp(test_path("stderr"));
    return o;
}

outcome
check_exit(const char *file, int line, outcome o, int want)
{
    if (o.exit != want)
        test_fail(file, line, "exit %d, expected %d\nstdout: %s\nstderr: %s", o.exit, want, o.out,
                  o.err);
    return o;
}
/* Every line is a JSON value; returns how many. */
size_t
json_lines(const char *text)
{
    size_t n = 0, at;

    while (*text != '\0') {
        size_t len = strcspn(text, "\n");

        if (!stet__json_valid((stet_bytes){ text, len }, &at))
            test_fail(__FILE__, __LINE__, "not JSON at %zu: %.*s", at, (int)len, text);
        text += len + (text[len] == '\n');
        n++;
    }
    return n;
}

/* The first word that begins with this, up to a quote, space or line end. */
const char *
word(const char *text, const char *begins)
{
    const char *at = strstr(text, begins);

    if (at == NULL)
        test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", text, begins);
    return keep(at, strcspn(at, "\" \r\n,:;"));
}

void
drain(void)
{
    OK("worker", "--until-idle", "--set", "retry_first_ms=10");
}

/* Reads the worker's lines up to one with this text. */
const char *
worker_line(worker *w, const char *text)
{
    static char line[1024];

    while (fgets(line, sizeof line, w->out) != NULL)
        if (strstr(line, text) != NULL)
            return line;
    test_fail(__FILE__, __LINE__, "the worker ended without saying \"%s\"", text);
}

/* Starts a worker and waits for its line. */
worker
worker_start(const char *const *args)
{
    worker w;
    int    ends[2];

    CHECK_INT(pipe(ends), 0);
    fflush(NULL);
    w.pid = fork();
    CHECK(w.pid >= 0);
    if (w.pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        become("cli_app", args);
    }
    close(ends[1]);
    w.out = fdopen(ends[0], "r");
    CHECK(w.out != NULL);
    snprintf(w.ready, sizeof w.ready, "%s", worker_line(&w, "slots"));
    return w;
}

int
worker_stop(worker *w, int signal_number)
{
    int exit;

    kill(w->pid, signal_number);
    exit = ended(w->pid);
    fclose(w->out);
    return exit;
}
