/* The examples as their readers run them: each as a process in a directory of its own. What they check
 * themselves is their exit code; hello is killed in its sleep, and the demo is run as a whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define DEADLINE_S 120

/* ---- processes ------------------------------------------------------------------------------ */

static void
redirect(int fd, const char *path, int flags)
{
    int opened = open(path, flags, 0600);

    if (opened < 0 || dup2(opened, fd) < 0)
        _exit(99);
    close(opened);
}

/* Start a program in the test's directory; its output goes to the file `out` there. */
static pid_t
begin(const char *path, const char *arg)
{
    char *const argv[] = { (char *)(uintptr_t)path, (char *)(uintptr_t)arg, NULL };
    pid_t       pid;

    fflush(NULL);
    CHECK((pid = fork()) >= 0);
    if (pid != 0)
        return pid;
    if (chdir(test_dir()) != 0)
        _exit(99);
    redirect(0, "/dev/null", O_RDONLY);
    redirect(1, "out", O_WRONLY | O_CREAT | O_APPEND);
    if (dup2(1, 2) < 0)
        _exit(99);
    unsetenv("STET_DB");
    setenv("TMPDIR", test_dir(), 1);
    execv(path, argv);
    _exit(98);
}

static int
ended(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        CHECK_INT(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* What was printed so far; "" before the file is there. */
static const char *
output(void)
{
    static char text[1 << 16];
    FILE       *file = fopen(test_path("out"), "rb");
    size_t      n = 0;

    if (file != NULL) {
        n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

static const char *
example(const char *name)
{
    static char path[1024];

    snprintf(path, sizeof path, "%s/examples/%s", STET_TEST_BUILD_DIR, name);
    return path;
}

static void
check_example(const char *name)
{
    int status = ended(begin(example(name), NULL));

    if (status != 0)
        test_fail(__FILE__, __LINE__, "%s ended with %d and said: %s", name, status, output());
    CHECK_HAS(output(), "ok\n");
}

static size_t
count(const char *text, const char *part)
{
    size_t n = 0;

    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

/* ---- tests ---------------------------------------------------------------------------------- */

TEST_LIMIT(orders_undoes_by_hand, DEADLINE_S)
{
    check_example("orders");
}
TEST_LIMIT(wallet_is_exact, DEADLINE_S)
{
    check_example("wallet");
}
TEST_LIMIT(webhook_is_answered_refused_and_late, DEADLINE_S)
{
    check_example("webhook");
}
TEST_LIMIT(processes_survive_one_of_them, DEADLINE_S)
{
    check_example("processes");
}

TEST_LIMIT(examples_leave_nothing_behind, DEADLINE_S)
{
    DIR           *dir;
    struct dirent *entry;

    check_example("processes");
    CHECK((dir = opendir(test_dir())) != NULL);
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "out") != 0)
            test_fail(__FILE__, __LINE__, "left behind: %s", entry->d_name);
    closedir(dir);
}

TEST_LIMIT(hello_goes_on_after_sigkill, DEADLINE_S)
{
    struct stat there;
    pid_t       pid = begin(example("hello"), NULL);

    /* Killed at any moment before its end; what it then says is decided by the journal. */
    while (stat(test_path("hello.db-live"), &there) != 0)
        CHECK_INT(waitpid(pid, NULL, WNOHANG), 0);
    CHECK_INT(kill(pid, SIGKILL), 0);
    CHECK_INT(ended(pid), 1000 + SIGKILL);
    CHECK_INT(ended(begin(example("hello"), NULL)), 0);
    CHECK_INT(count(output(), "Goodbye."), 1);
    CHECK_INT(count(output(), "{\"greeted\":\"world\"}"), 1);

    /* The third time everything is recorded: only the result is printed. */
    CHECK_INT(ended(begin(example("hello"), NULL)), 0);
    CHECK_INT(count(output(), "Goodbye."), 1);
    CHECK_INT(count(output(), "{\"greeted\":\"world\"}"), 2);
}

TEST_LIMIT(the_command_line_of_an_example_works, DEADLINE_S)
{
    CHECK_INT(ended(begin(example("wallet"), "ls")), 8);
    CHECK_HAS(output(), "there is no store at wallet.db");
    CHECK_INT(ended(begin(example("shop"), "help")), 0);
    CHECK_HAS(output(), "worker");
}

TEST_LIMIT(the_demo_finishes_every_order, DEADLINE_S)
{
    char path[1024];
    int  status;

    snprintf(path, sizeof path, "%s/examples/demo.sh", STET_TEST_SOURCE_DIR);
    setenv("BUILD", STET_TEST_BUILD_DIR, 1);
    setenv("DEMO_BUILD", "no", 1);
    status = ended(begin(path, NULL));
    if (status != 0)
        test_fail(__FILE__, __LINE__, "the demo ended with %d and said: %s", status, output());
    CHECK_HAS(output(), "12 of 12 orders completed");
    CHECK_HAS(output(), "AT RISK");
    CHECK_HAS(output(), "in the air at the kill: step charge of order 5, and no other");
    CHECK_HAS(output(), "Every order was finished, no recorded side effect was repeated.");
    CHECK(strchr(output(), '\033') == NULL);
    /* `ls` was asked while a worker lived. */
    CHECK(strstr(output(), "no worker serves it") == NULL);
}
