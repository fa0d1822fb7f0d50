/* The examples as their readers run them: each as a process in a directory of its own. What they
 * check themselves is their exit code; hello is killed in its sleep, and the demo is run as a
 * whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stet.h>

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
begin_with(const char *path, const char *const *args)
{
    char *argv[16] = { (char *)(uintptr_t)path };
    pid_t pid;

    for (size_t i = 0; args[i] != NULL; i++) {
        CHECK(i + 2 < sizeof argv / sizeof argv[0]);
        argv[i + 1] = (char *)(uintptr_t)args[i];
    }
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

static pid_t
begin(const char *path, const char *arg)
{
    const char *const args[] = { arg, NULL };

    return begin_with(path, args);
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

/* Each draws its handlers to the end, with nothing given by hand and nothing executed. */
TEST_LIMIT(B14_examples_describe_themselves, DEADLINE_S)
{
    static const char *const all[][2] = {
        { "shop", "orders.checkout" },   { "shop", "shipping.ship" },
        { "orders", "orders.checkout" }, { "orders", "shipping.ship" },
        { "webhook", "shop.invoice" },   { "webhook", "shop.counter" },
        { "parcel", "parcels.ship" },    { "wallet", "wallet.deposit" },
        { "mirror", "tea.serve" },       { "reports", "reports.write" },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *const args[] = { "describe", all[i][1], NULL };

        CHECK_INT(ended(begin_with(example(all[i][0]), args)), 0);
        CHECK_HAS(output(), "┌─ start");
        CHECK_HAS(output(), "└─ returns\n");
    }
    CHECK(access(test_path("shop.ledger"), F_OK) != 0);
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

static int
is_asleep(void *arg, const stet_run_info *info)
{
    *(bool *)arg = info->status == STET_STATUS_SUSPENDED;
    return STET_OK;
}

static void
await_sleep(const char *db)
{
    stet_engine *e;
    bool         is_there = false;

    CHECK_OK(stet_open(&e, test_path(db), STET_OPTIONS(.roles = STET_ROLE_CLIENT)));
    while (!is_there) {
        CHECK_OK(stet_run_list(e, NULL, is_asleep, &is_there));
        (void)poll(NULL, 0, 2);
    }
    stet_close(e);
}

TEST_LIMIT(hello_goes_on_after_sigkill, DEADLINE_S)
{
    static const char *const start[] = { "start",     "greeter.greet",
                                         "\"world\"", "--idempotency-key",
                                         "first",     NULL };
    static const char *const wait[] = { "start", "greeter.greet", "\"world\"", "--idempotency-key",
                                        "first", "--wait",        "100s",      NULL };
    pid_t                    worker;

    CHECK_INT(ended(begin_with(example("hello"), start)), 0);
    worker = begin(example("hello"), "worker");
    await_sleep("hello.db");
    CHECK_INT(kill(worker, SIGKILL), 0);
    CHECK_INT(ended(worker), 1000 + SIGKILL);
    CHECK_INT(count(output(), "Hello."), 1);
    CHECK_INT(count(output(), "Goodbye."), 0);

    worker = begin(example("hello"), "worker");
    CHECK_INT(ended(begin_with(example("hello"), wait)), 0);
    CHECK_INT(kill(worker, SIGTERM), 0);
    CHECK_INT(ended(worker), 0);
    CHECK_INT(count(output(), "Hello."), 1);
    CHECK_INT(count(output(), "Goodbye."), 1);
    CHECK_INT(count(output(), "{\"greeted\":\"world\"}"), 1);

    /* Everything is recorded: the same start gives the same answer, without a worker. */
    CHECK_INT(ended(begin_with(example("hello"), wait)), 0);
    CHECK_INT(count(output(), "Goodbye."), 1);
    CHECK_INT(count(output(), "{\"greeted\":\"world\"}"), 2);
}

/* ---- the mirror ------------------------------------------------------------------------------ */

static char first_run[STET_ID_TEXT_MAX];

static int
keep_run(void *arg, const stet_run_info *info)
{
    (void)arg;
    snprintf(first_run, sizeof first_run, "%s", info->id);
    return STET_OK;
}

typedef struct mirrored {
    const char *file;
    size_t      n, missing;
} mirrored;

static int
is_mirrored(void *arg, const stet_audit_entry *entry)
{
    mirrored *m = arg;
    char      id[128];

    snprintf(id, sizeof id, "{\"id\":\"%s\",", entry->id);
    m->n++;
    m->missing += strstr(m->file, id) == NULL;
    return STET_OK;
}

static const char *
mirror_file(void)
{
    static char text[1 << 16];
    FILE       *file = fopen(test_path("audit.jsonl"), "rb");
    size_t      n = 0;

    if (file != NULL) {
        n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

TEST_LIMIT(H6_mirror_misses_nothing_after_sigkill, DEADLINE_S)
{
    static const char *const start[] = { "start", "tea.serve", "\"green\"", NULL };
    stet_engine             *e;
    stet_run_id              run;
    mirrored                 m = { "", 0, 1 };
    pid_t                    worker;

    CHECK_INT(ended(begin_with(example("mirror"), start)), 0);
    worker = begin(example("mirror"), "worker");
    await_sleep("mirror.db");
    CHECK_INT(kill(worker, SIGKILL), 0);
    CHECK_INT(ended(worker), 1000 + SIGKILL);
    worker = begin(example("mirror"), "worker");
    CHECK_OK(stet_open(&e, test_path("mirror.db"), STET_OPTIONS(.roles = STET_ROLE_CLIENT)));
    CHECK_OK(stet_run_list(e, NULL, keep_run, NULL));
    snprintf(run.text, sizeof run.text, "%s", first_run);
    CHECK_OK(stet_wait(e, NULL, &run, 100000));
    while (m.missing > 0) { /* the test's own time limit ends it */
        m = (mirrored){ mirror_file(), 0, 0 };
        CHECK_OK(stet_audit_run(e, &run, is_mirrored, &m));
        (void)poll(NULL, 0, 2);
    }
    CHECK(m.n >= 8);
    CHECK_HAS(m.file, "\"name\":\"ordered \\\"green\\\"\"");
    CHECK_HAS(m.file, "\"kind\":\"completed\"");
    stet_close(e);
    CHECK_INT(kill(worker, SIGTERM), 0);
    CHECK_INT(ended(worker), 0);
}

TEST_LIMIT(the_command_line_of_an_example_works, DEADLINE_S)
{
    CHECK_INT(ended(begin(example("wallet"), "ls")), 8);
    CHECK_HAS(output(), "there is no store at wallet.db");
    CHECK_INT(ended(begin(example("shop"), "help")), 0);
    CHECK_HAS(output(), "worker");
}

TEST_LIMIT(I12_the_parcel_is_asked_and_diverted, DEADLINE_S)
{
    const char *const start[] = { "start", "parcels.ship", "\"Bremen\"", NULL };
    char              run[64] = "";
    pid_t             worker;

    CHECK_INT(ended(begin_with(example("parcel"), start)), 0);
    CHECK_INT(sscanf(output(), "%63s", run), 1);
    worker = begin(example("parcel"), "worker");
    CHECK_INT(ended(begin_with(example("parcel"),
                               (const char *const[]){ "update", run, "divert", "\"Bonn\"", NULL })),
              0);
    CHECK_INT(
        ended(begin_with(example("parcel"), (const char *const[]){ "query", run, "where", NULL })),
        0);
    CHECK_INT(count(output(), "{\"legs\":0,\"to\":\"Bonn\"}"), 2);
    CHECK_INT(kill(worker, SIGTERM), 0);
    CHECK_INT(ended(worker), 0);
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
