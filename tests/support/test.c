/* The test runner: it owns the list of tests and, one at a time, the process of the test that runs.
 *
 * Each test is a child process and the leader of a process group of its own, so whatever it starts
 * dies with it. The runner adopts orphans (child subreaper) and waits for the whole group before it
 * removes the test's directory; nothing of one test can reach into the next. What the child prints
 * goes to an unnamed file and is shown only if the test fails. The child tells how it ended by its
 * exit status and by one shared flag: a test that exits with 0 without having returned did not
 * pass.
 *
 * Runs on: test_fail, test_skip, test_note, test_dir and test_path may be called by any thread of
 * the test, and by processes it forks.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TEST_EXIT_FAILED = 1,
    TEST_EXIT_SKIPPED = 77,
    TEST_LIMIT_S = 60,
    TEST_SLOW_MS = 1000,      /* tests that take longer say so */
    TEST_SHOWN_BYTES = 65536, /* the end of a failed test's output */
    TEST_PATH_BYTES = 1024,
    TEST_PATH_RING = 16
};

typedef enum test_result { TEST_PASSED, TEST_FAILED, TEST_SKIPPED } test_result;

typedef struct test_options {
    bool   is_list;
    bool   is_no_fork;
    char **filters;
    int    n_filters;
} test_options;

/* How a child ended. */
typedef struct test_end {
    int  status; /* of waitpid */
    bool is_timed_out;
    int  limit_s;
    long took_ms;
} test_end;

/* State of the test program. Tests register from constructors, before main. */
static struct {
    test_case  *first;
    test_case **last;
    FILE       *notes;       /* written by the child, read by the runner */
    FILE       *output;      /* the child's stdout and stderr */
    bool       *is_finished; /* shared with the child: the test function returned */
    bool        is_no_fork;
    jmp_buf     no_fork_skip;
    void      (*before)(void);
    char        dir[TEST_PATH_BYTES];
} runner;

void
test_register(test_case *test)
{
    if (runner.last == NULL)
        runner.last = &runner.first;
    *runner.last = test;
    runner.last = &test->next;
}

void
test_before(void (*fn)(void))
{
    runner.before = fn;
}

/* ---- called by tests ---------------------------------------------------------------------- */

void
test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    if (runner.is_no_fork)
        abort(); /* the debugger stops here; the directory stays for a look */
    fflush(NULL);
    _exit(TEST_EXIT_FAILED);
}

/* One write, so that lines of several threads and processes do not mix. */
static void
test_note_write(const char *fmt, va_list args)
{
    char line[1024];
    int  len = vsnprintf(line, sizeof line - 1, fmt, args);

    if (len < 0)
        return;
    if ((size_t)len > sizeof line - 2)
        len = (int)sizeof line - 2;
    line[len++] = '\n';
    if (write(runner.is_no_fork ? STDOUT_FILENO : fileno(runner.notes), line, (size_t)len) != len)
        perror("test_note");
}

void
test_note(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    test_note_write(fmt, args);
    va_end(args);
}

void
test_skip(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    test_note_write(fmt, args);
    va_end(args);
    if (runner.is_no_fork)
        longjmp(runner.no_fork_skip, 1);
    fflush(NULL);
    _exit(TEST_EXIT_SKIPPED);
}

const char *
test_dir(void)
{
    return runner.dir;
}

const char *
test_path(const char *name)
{
    static _Thread_local char     ring[TEST_PATH_RING][TEST_PATH_BYTES];
    static _Thread_local unsigned next;
    char                         *path = ring[next++ % TEST_PATH_RING];
    int                           len = snprintf(path, TEST_PATH_BYTES, "%s/%s", runner.dir, name);

    if (len < 0 || len >= TEST_PATH_BYTES)
        test_fail(__FILE__, __LINE__, "the path %s/%s is too long", runner.dir, name);
    return path;
}

static struct timespec test_began; /* this process */

static void
test_begin_time(void)
{
    (void)clock_gettime(CLOCK_REALTIME, &test_began);
}

__attribute__((constructor)) static void
test_begin(void)
{
    test_begin_time();
    (void)pthread_atfork(NULL, NULL, test_begin_time);
}

long
test_number(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

long
test_count(const char *name, long otherwise)
{
    long n = test_number(name, otherwise);

    return n > 0 ? n : otherwise;
}

int
test_slow(void)
{
    long slow = test_count("STET_TEST_SLOW", 1);

    return slow <= 1000 ? (int)slow : 1;
}

const char *
test_unique(void)
{
    static _Thread_local char name[40];

    (void)snprintf(name, sizeof name, "%ld_%llx%05lx", (long)getpid(),
                   (unsigned long long)test_began.tv_sec & 0xffffff, test_began.tv_nsec / 1000);
    return name;
}

/* ---- the runner's own ---------------------------------------------------------------------- */

static _Noreturn void
runner_die(const char *what)
{
    fprintf(stderr, "test runner: %s: %s\n", what, strerror(errno));
    exit(2);
}

static long
runner_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void
runner_dir_make(void)
{
    const char *parent = getenv("TMPDIR");

    if (parent == NULL || *parent == '\0')
        parent = "/tmp";
    if (snprintf(runner.dir, sizeof runner.dir, "%s/stet-test-XXXXXX", parent) >=
        (int)sizeof runner.dir / 2) {
        errno = ENAMETOOLONG;
        runner_die("TMPDIR");
    }
    if (mkdtemp(runner.dir) == NULL)
        runner_die(runner.dir);
}

static int
runner_dir_remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void
runner_dir_remove(void)
{
    if (nftw(runner.dir, runner_dir_remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(stderr, "test runner: cannot remove %s: %s\n", runner.dir, strerror(errno));
}

static int
runner_limit_s(const test_case *test)
{
    return (test->limit_s > 0 ? test->limit_s : TEST_LIMIT_S) * test_slow();
}

static sigset_t
runner_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

static FILE *
runner_file(void)
{
    FILE *file = tmpfile();

    if (file == NULL)
        runner_die("a temporary file");
    /* Everybody appends: the child, what it forks, and the runner reads with an offset of its
     * own. */
    if (fcntl(fileno(file), F_SETFL, O_APPEND) != 0)
        runner_die("a temporary file");
    return file;
}

/* ---- the child ------------------------------------------------------------------------------ */

static _Noreturn void
child_run(const test_case *test, pid_t parent)
{
    struct rlimit no_core = { 0, 0 };
    sigset_t      signals = runner_signals();
    int           null = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    /* The runner itself may be killed; then this test must not linger. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(TEST_EXIT_FAILED);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(null, STDIN_FILENO);
    close(null);
    dup2(fileno(runner.output), STDOUT_FILENO);
    dup2(fileno(runner.output), STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigprocmask(SIG_UNBLOCK, &signals, NULL);

    test->fn();
    *runner.is_finished = true;
    exit(0); /* not _exit: the leak checker runs at exit and may turn this into a failure */
}

/* Kill what is left of the test's process group and wait until it is gone. */
static void
child_bury(pid_t child)
{
    kill(-child, SIGKILL);
    while (waitpid(-child, NULL, 0) > 0 || errno == EINTR)
        continue;
}

/* Wait for a child signal until `end_ms`. Being told to stop ends the whole program, cleanly. */
static void
child_await_signal(pid_t child, long end_ms)
{
    sigset_t        signals = runner_signals();
    long            left_ms = end_ms - runner_now_ms();
    struct timespec left;
    int             got;

    if (left_ms <= 0)
        return;
    left.tv_sec = left_ms / 1000;
    left.tv_nsec = left_ms % 1000 * 1000000;
    got = sigtimedwait(&signals, NULL, &left);
    if (got == SIGINT || got == SIGTERM || got == SIGHUP) {
        child_bury(child);
        runner_dir_remove();
        fprintf(stderr, "test runner: stopped by %s\n", strsignal(got));
        exit(128 + got);
    }
}

static test_end
child_wait(pid_t child, const test_case *test)
{
    test_end end = { 0 };
    long     start_ms = runner_now_ms(), end_ms;
    pid_t    got;

    end.limit_s = runner_limit_s(test);
    end_ms = start_ms + end.limit_s * 1000L;
    while ((got = waitpid(child, &end.status, WNOHANG)) == 0) {
        if (runner_now_ms() >= end_ms) {
            end.is_timed_out = true;
            kill(-child, SIGKILL);
            got = waitpid(child, &end.status, 0);
            break;
        }
        child_await_signal(child, end_ms);
    }
    if (got != child)
        runner_die("waitpid");
    end.took_ms = runner_now_ms() - start_ms;
    child_bury(child);
    return end;
}

/* ---- one test ------------------------------------------------------------------------------- */

/* The end of a file, indented, each line after `mark`. */
static void
show_file(FILE *file, const char *mark)
{
    char  *line = NULL;
    size_t size = 0;
    long   len;

    fseek(file, 0, SEEK_END);
    len = ftell(file);
    if (len > TEST_SHOWN_BYTES) {
        printf("    %s(%ld bytes before this are not shown)\n", mark, len - TEST_SHOWN_BYTES);
        fseek(file, len - TEST_SHOWN_BYTES, SEEK_SET);
    } else {
        rewind(file);
    }
    while (getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        printf("    %s%s\n", mark, line);
    }
    free(line);
}

static void
show_cause(const test_end *end)
{
    if (end->is_timed_out)
        printf("    timed out after %d s\n", end->limit_s);
    else if (WIFSIGNALED(end->status))
        printf("    killed by SIG%s (%s)\n", sigabbrev_np(WTERMSIG(end->status)),
               strsignal(WTERMSIG(end->status)));
    else if (WEXITSTATUS(end->status) == 0)
        printf("    the process exited before the test returned\n");
    else if (WEXITSTATUS(end->status) != TEST_EXIT_FAILED)
        printf("    exit status %d\n", WEXITSTATUS(end->status));
}

static test_result
test_judge(const test_end *end)
{
    if (end->is_timed_out || !WIFEXITED(end->status))
        return TEST_FAILED;
    if (WEXITSTATUS(end->status) == TEST_EXIT_SKIPPED)
        return TEST_SKIPPED;
    return WEXITSTATUS(end->status) == 0 && *runner.is_finished ? TEST_PASSED : TEST_FAILED;
}

/* The last note is the reason of a skip. */
static void
show_skip(const test_case *test)
{
    char  *line = NULL;
    size_t size = 0;
    char   reason[1024] = "";

    rewind(runner.notes);
    while (getline(&line, &size, runner.notes) > 0)
        snprintf(reason, sizeof reason, "%.*s", (int)strcspn(line, "\n"), line);
    free(line);
    printf("skip %s: %s\n", test->name, reason);
}

static test_result
test_show(const test_case *test, const test_end *end)
{
    test_result result = test_judge(end);

    if (result == TEST_SKIPPED) {
        show_skip(test);
        return result;
    }
    printf("%s %s\n", result == TEST_PASSED ? "ok" : "not ok", test->name);
    if (result == TEST_FAILED)
        show_cause(end);
    show_file(runner.notes, "");
    if (end->took_ms >= TEST_SLOW_MS)
        printf("    took %ld.%ld s\n", end->took_ms / 1000, end->took_ms % 1000 / 100);
    if (result == TEST_FAILED)
        show_file(runner.output, "| ");
    return result;
}

static test_result
test_run_forked(const test_case *test)
{
    pid_t       parent = getpid(), child;
    test_end    end;
    test_result result;

    runner.notes = runner_file();
    runner.output = runner_file();
    *runner.is_finished = false;
    fflush(NULL);
    if ((child = fork()) < 0)
        runner_die("fork");
    if (child == 0)
        child_run(test, parent);
    setpgid(child, child); /* also in the child: whoever comes first */
    end = child_wait(child, test);
    result = test_show(test, &end);
    fclose(runner.notes);
    fclose(runner.output);
    return result;
}

static test_result
test_run_here(const test_case *test)
{
    if (setjmp(runner.no_fork_skip) != 0) {
        printf("skip %s\n", test->name);
        return TEST_SKIPPED;
    }
    fprintf(stderr, "running %s in %s\n", test->name, runner.dir);
    test->fn();
    printf("ok %s\n", test->name);
    return TEST_PASSED;
}

static test_result
test_run(const test_case *test)
{
    test_result result;

    runner_dir_make();
    result = runner.is_no_fork ? test_run_here(test) : test_run_forked(test);
    runner_dir_remove();
    fflush(stdout);
    return result;
}

/* ---- the program ---------------------------------------------------------------------------- */

static bool
options_match(const test_options *options, const test_case *test)
{
    for (int i = 0; i < options->n_filters; i++)
        if (strstr(test->name, options->filters[i]) != NULL)
            return true;
    return options->n_filters == 0;
}

/* Options come first; what follows are filters. */
static test_options
options_parse(int argc, char **argv)
{
    test_options options = { 0 };
    int          i;

    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            options.is_list = true;
        } else if (strcmp(argv[i], "--no-fork") == 0) {
            options.is_no_fork = true;
        } else {
            fprintf(stderr, "usage: %s [--list] [--no-fork] [SUBSTRING ...]\n", argv[0]);
            exit(2);
        }
    }
    options.filters = argv + i;
    options.n_filters = argc - i;
    return options;
}

static void
runner_start(const test_options *options)
{
    sigset_t signals = runner_signals();

    runner.is_no_fork = options->is_no_fork;
    runner.is_finished = mmap(NULL, sizeof *runner.is_finished, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (runner.is_finished == MAP_FAILED)
        runner_die("mmap");
    if (options->is_no_fork)
        return;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        runner_die("prctl");
    sigprocmask(SIG_BLOCK, &signals, NULL);
}

int
main(int argc, char **argv)
{
    test_options options = options_parse(argc, argv);
    int          counts[3] = { 0 };

    runner_start(&options);
    if (runner.before != NULL && !options.is_list)
        runner.before();
    for (const test_case *test = runner.first; test != NULL; test = test->next) {
        if (!options_match(&options, test))
            continue;
        if (options.is_list)
            printf("%s\n", test->name);
        else
            counts[test_run(test)]++;
    }
    if (options.is_list)
        return 0;
    printf("%d passed, %d failed", counts[TEST_PASSED], counts[TEST_FAILED]);
    if (counts[TEST_SKIPPED] > 0)
        printf(", %d skipped", counts[TEST_SKIPPED]);
    printf("\n");
    return counts[TEST_FAILED] > 0 ? 1 : 0;
}
