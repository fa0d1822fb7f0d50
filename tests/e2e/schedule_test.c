/* Schedules as their users meet them: the command line on a fresh SQLite file, workers that are
 * killed, a program that brings schedules of its own. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stet.h>

#include "fixture.h"
#include "util/util.h"

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

/* Both outputs go to the file `out` of the test's directory. */
static pid_t
begin(const char *program, const char *const *args)
{
    char        path[512];
    const char *argv[40] = { path };
    pid_t       pid;

    snprintf(path, sizeof path, "%s/%s", STET_TEST_BUILD_DIR, program);
    for (size_t i = 0; args[i] != NULL && i < 38; i++)
        argv[i + 1] = args[i];
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
    execv(path, (char *const *)(uintptr_t)argv);
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

static const char *
output(void)
{
    static char text[1 << 18];
    FILE       *file = fopen(test_path("out"), "rb");
    size_t      n = 0;

    if (file != NULL) {
        n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

/* What it said; it must end with this exit code. */
static const char *
said(const char *file, int line, int want, const char *program, const char *const *args)
{
    int exit;

    (void)remove(test_path("out"));
    if ((exit = ended(begin(program, args))) != want)
        test_fail(file, line, "exit %d, expected %d: %s", exit, want, output());
    return output();
}
#define ARGS(...)      ((const char *const[]){ __VA_ARGS__, NULL })
#define APP            "tests/apps/cli_app"
#define SAYS(want, ...) said(__FILE__, __LINE__, want, APP, ARGS("schedule", __VA_ARGS__))
#define OK(...)        SAYS(0, __VA_ARGS__)

static int
lines(const char *text, const char *part)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        n++;
    return n;
}

/* Every line is a JSON value. */
static void
check_json(const char *text)
{
    size_t at;

    CHECK(*text != '\0');
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");

        if (!stet__json_valid((stet_bytes){ text, len }, &at))
            test_fail(__FILE__, __LINE__, "not JSON at %zu: %.*s", at, (int)len, text);
        text += len + (text[len] == '\n');
    }
}

/* ---- the store, seen from here -------------------------------------------------------------- */

static stet_engine *
open_store(const char *name)
{
    stet_engine *e;

    CHECK_OK(stet_open(&e, test_path(name), STET_OPTIONS(.roles = STET_ROLE_CLIENT)));
    return e;
}

static int
on_info(void *arg, const stet_schedule_info *s)
{
    *(uint64_t *)arg = s->fired;
    return STET_OK;
}

static uint64_t
fired(stet_engine *e, const char *name)
{
    uint64_t n = 0;
    int      err = stet_schedule_get(e, name, on_info, &n);

    CHECK(err == STET_OK || err == STET_ENOTFOUND);
    return n;
}

typedef struct schedule_seen {
    uint64_t skipped;
    bool     is_waiting;
} schedule_seen;

static int
on_seen(void *arg, const stet_schedule_info *s)
{
    *(schedule_seen *)arg = (schedule_seen){ s->skipped, s->waiting_ms != 0 };
    return STET_OK;
}

static schedule_seen
seen(stet_engine *e, const char *name)
{
    schedule_seen now = { 0 };

    CHECK_OK(stet_schedule_get(e, name, on_seen, &now));
    return now;
}

static void
await_fired(stet_engine *e, const char *name, uint64_t n)
{
    AWAIT(fired(e, name) >= n);
}

static int
on_run(void *arg, const stet_run_info *info)
{
    (void)info;
    (*(size_t *)arg)++;
    return STET_OK;
}

static int
on_ran(void *arg, const stet_occurrence_info *o)
{
    *(size_t *)arg += o->outcome == STET_OCCURRENCE_RAN;
    return STET_OK;
}

static int
on_finding(void *arg, const stet_finding *finding)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "%s: %s", finding->rule, finding->text);
}

/* ---- the command line ----------------------------------------------------------------------- */

TEST_LIMIT(E2_schedule_verbs_make_show_change_and_remove, DEADLINE_S)
{
    const char *text = OK("ensure", "nightly", "orders.echo", "{\"days\":1}", "--cron", "0 3 * * *",
                          "--tz", "Europe/Berlin", "--overlap", "queue");

    CHECK_HAS(text, "nightly created: no worker is up that fires schedules");
    CHECK_HAS(OK("ensure", "nightly", "orders.echo", "{\"days\":1}", "--cron", "0 3 * * *", "--tz",
                 "Europe/Berlin", "--overlap", "queue"),
              "nightly unchanged");
    CHECK_HAS(OK("update", "nightly", "--missed", "all", "--missed-max", "3"), "nightly updated");
    text = OK("show", "nightly");
    CHECK_HAS(text, "0 3 * * * (Europe/Berlin)");
    CHECK_HAS(text, "{\"days\":1}");
    CHECK_HAS(text, "queue");
    CHECK_HAS(text, "all, at most the last 3");
    CHECK_HAS(OK("ensure", "hourly", "orders.echo", "--every", "1h", "--from-completion"),
              "hourly created");
    text = OK("ls");
    CHECK_HAS(text, "NAME");
    CHECK_HAS(text, "every 1h from completion");
    CHECK(strstr(text, "hourly") < strstr(text, "nightly"));
    text = OK("ls", "--json", "--after", "hourly", "--limit", "1");
    check_json(text);
    CHECK_INT(lines(text, "\"name\":\"nightly\""), 1);
    CHECK_HAS(text, "\"overlap\":\"queue\"");
    CHECK_HAS(text, "\"zone\":\"Europe/Berlin\"");
    CHECK_HAS(OK("pause", "nightly", "--by", "ops"), "nightly paused: paused by ops");
    CHECK_HAS(OK("resume", "nightly"), "nightly resumed");
    text = OK("history", "nightly");
    CHECK_HAS(text, "nothing was due yet");
    check_json(OK("show", "nightly", "--json"));
    CHECK_HAS(OK("rm", "nightly"), "nightly removed");
    check_json(OK("rm", "hourly", "--json"));
    CHECK_HAS(OK("ls"), "no schedules");
}

TEST_LIMIT(E2_schedule_verbs_refuse_what_is_wrong, DEADLINE_S)
{
#define ENSURE(...) SAYS(2, "ensure", "n", "orders.echo", __VA_ARGS__)
    CHECK_HAS(ENSURE("--cron", "0 25 * * *"), "column");
    CHECK_HAS(ENSURE("--cron", "0 3 * * *", "--tz", "Europe/Berlim"), "Europe/Berlin");
    CHECK_HAS(ENSURE("--every", "1h", "--at", "2030-01-01"), "both every and at");
    CHECK_HAS(ENSURE("--every", "soon"), "soon");
    CHECK_HAS(ENSURE("--every", "1h", "--overlap", "maybe"), "skip, allow, queue or cancel");
    CHECK_HAS(ENSURE("--every", "1h", "--missed", "maybe"), "once, skip or all");
    CHECK_HAS(ENSURE("--every", "1h", "--missed-max", "0"), "missed-max");
    CHECK_HAS(ENSURE("--every", "1h", "--grace", "1s"), "grace goes with");
    CHECK_HAS(SAYS(2, "ensure", "n", "orders.echo"), "has no time");
    CHECK_HAS(SAYS(2, "ensure", "n", "orders.echo", "{", "--every", "1h"), "JSON");
    CHECK_HAS(SAYS(2, "ensure", "n"), "HANDLER");
    CHECK_HAS(SAYS(8, "ls"), "there is no store"); /* what is refused makes none */
    (void)OK("ensure", "nightly", "orders.echo", "--every", "1h");
    CHECK_HAS(SAYS(3, "show", "nigthly"), "there is nightly");
    CHECK_HAS(SAYS(3, "pause", "other"), "no schedule other");
    CHECK_HAS(SAYS(3, "history", "other"), "no schedule other");
    CHECK_HAS(SAYS(3, "rm", "other"), "no schedule other");
    CHECK_HAS(said(__FILE__, __LINE__, 0, APP, ARGS("help", "schedule", "ensure")),
              "--cron '0 3 * * *' --tz Europe/Berlin");
}

TEST_LIMIT(E2_schedule_verbs_show_each_kind_of_time_and_policy, DEADLINE_S)
{
    const char *text;

    (void)OK("ensure", "once", "orders.echo", "--at", "2035-01-31T12:00:00Z", "--missed", "skip",
             "--grace", "5m", "--timeout", "2h", "--group", "g", "--priority", "3");
    text = OK("show", "once");
    CHECK_HAS(text, "at 2035-01-31T12:00:00Z");
    CHECK_HAS(text, "skip, later than 5m");
    CHECK_HAS(text, "timeout    2h");
    (void)OK("ensure", "own", "orders.echo", "--function", "orders.when");
    CHECK_HAS(OK("ls"), "function orders.when");
    text = OK("show", "own");
    CHECK_HAS(text, "missed     once");
    text = OK("ensure", "json", "orders.echo", "--every", "1h", "--json");
    check_json(text);
    CHECK_HAS(text, "\"change\":\"created\"");
    CHECK_HAS(OK("update", "json", "7"), "json updated");
    CHECK_HAS(OK("update", "json", "7"), "json unchanged");
    CHECK_HAS(OK("pause", "json", "--json"), "\"paused\":true");
    CHECK_STR(OK("history", "json", "--json"), "");
}

TEST_LIMIT(E4_schedule_history_says_what_ran_what_was_skipped_and_what_waits, DEADLINE_S)
{
    static const char *const work[] = { "worker", NULL };
    const char              *text;
    stet_engine             *e;
    pid_t                    pid;

    (void)OK("ensure", "skips", "orders.nap", "--every", "100ms");
    (void)OK("ensure", "queues", "orders.nap", "--every", "100ms", "--overlap", "queue");
    e = open_store("cli_app.db");
    pid = begin(APP, work);
    AWAIT(seen(e, "skips").skipped >= 3 && seen(e, "queues").is_waiting);
    kill(pid, SIGKILL);
    (void)ended(pid);
    stet_close(e);
    text = OK("history", "skips");
    CHECK_HAS(text, "ran");
    CHECK_HAS(text, "skipped");
    CHECK_HAS(text, "run_");
    text = OK("history", "skips", "--json");
    check_json(text);
    CHECK_HAS(text, "\"skip\":\"");
    CHECK_HAS(OK("history", "queues"), "waits");
    text = OK("show", "queues");
    CHECK_HAS(text, "last run   run_");
    CHECK_HAS(text, " (open)");
    CHECK_HAS(text, "waiting ");
    CHECK_HAS(OK("ls"), "queues");
}

/* ---- workers that are killed ---------------------------------------------------------------- */

TEST_LIMIT(E3_workers_that_are_killed_start_one_run_for_each_firing, DEADLINE_S)
{
    static const char *const work[] = { "worker", NULL };
    stet_engine             *e;
    size_t                   runs = 0, ran = 0;

    (void)OK("ensure", "pulse", "orders.echo", "1", "--every", "100ms", "--overlap", "allow",
             "--missed", "all", "--missed-max", "100");
    e = open_store("cli_app.db");
    for (int i = 0; i < 6; i++) {
        pid_t a = begin(APP, work), b = begin(APP, work);

        await_fired(e, "pulse", fired(e, "pulse") + 3);
        kill(a, SIGKILL);
        await_fired(e, "pulse", fired(e, "pulse") + 2);
        kill(b, SIGKILL);
        CHECK_INT(ended(a), 1000 + SIGKILL);
        CHECK_INT(ended(b), 1000 + SIGKILL);
    }
    CHECK_OK(stet_schedule_pause(e, "pulse", NULL));
    CHECK_OK(stet_schedule_history(e, "pulse", STET_SCHEDULE_HISTORY_MAX, on_ran, &ran));
    CHECK_OK(stet_run_list(e, STET_FILTER(.handler = "orders.echo", .limit = 10000), on_run,
                           &runs));
    CHECK_INT(runs, ran);
    CHECK_INT(fired(e, "pulse"), ran);
    CHECK(ran >= 30);
    CHECK_OK(stet_verify(e, NULL, on_finding, NULL));
    stet_close(e);
    CHECK_HAS(OK("history", "pulse", "--limit", "3"), "ran");
    check_json(OK("history", "pulse", "--json"));
}

/* ---- a program with schedules of its own ---------------------------------------------------- */

TEST_LIMIT(E5_a_program_brings_its_schedules_and_a_function, DEADLINE_S)
{
#define REPORTS(...) said(__FILE__, __LINE__, 0, "examples/reports", ARGS("schedule", __VA_ARGS__))
    static const char *const work[] = { "worker", NULL };
    stet_engine             *e = open_store("reports.db");
    const char              *text;

    for (int boot = 0; boot < 2; boot++) {
        pid_t worker = begin("examples/reports", work);

        await_fired(e, "pulse", fired(e, "pulse") + 1);
        AWAIT(lines(output(), "report: \"alive\"") > boot);
        kill(worker, SIGTERM);
        CHECK_INT(ended(worker), 0);
    }
    text = REPORTS("ls");
    CHECK_INT(lines(text, "reports.write"), 3);
    CHECK_HAS(text, "function month end");
    text = REPORTS("show", "payday", "--json");
    check_json(text);
    CHECK(strstr(text, "\"next_ms\":null") == NULL);
    CHECK_HAS(text, "no worker is up");
    stet_close(e);
}
