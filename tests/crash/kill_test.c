/* Real workers on one SQLite file, killed and stopped from outside: under load at random moments,
 * beyond their lease, and by their own handlers.
 *
 * Workers are tests/apps/crash_app.c. What they execute is counted in a file of their own; what the
 * engine says is read through a client engine of the test. STET_TEST_KILLS raises the number of
 * kills for soaks, STET_TEST_SEED changes the moments.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#include "test.h"

enum {
    KILL_WORKERS = 3,
    KILL_ARGS_MAX = 12,
    KILL_WAIT_MS = 120000
};

typedef struct kill_line {
    char   run[STET_ID_TEXT_MAX], step[32], nonce[64];
    size_t at; /* position in the ledger */
} kill_line;

typedef struct kill_world {
    stet_engine *e;
    char         db[512], ledger[512], log[512];
    uint64_t     random;
    kill_line   *lines; /* of the ledger, those of a run together, in order */
    size_t       n_lines;
} kill_world;

/* ---- small things ---------------------------------------------------------------------------- */

static int64_t
kill_now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t
kill_random(kill_world *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

static size_t
kill_env(const char *name, size_t normal)
{
    const char *text = getenv(name);

    return text != NULL && atoll(text) > 0 ? (size_t)atoll(text) : normal;
}

static void
kill_open(kill_world *w)
{
    memset(w, 0, sizeof *w);
    (void)snprintf(w->db, sizeof w->db, "%s", test_path("kill.db"));
    (void)snprintf(w->ledger, sizeof w->ledger, "%s", test_path("ledger"));
    (void)snprintf(w->log, sizeof w->log, "%s", test_path("log"));
    w->random = kill_env("STET_TEST_SEED", 20260101);
    CHECK_OK(stet_open(&w->e, w->db,
                       STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_ERROR)));
}

static void
kill_close(kill_world *w)
{
    stet_close(w->e);
    free(w->lines);
}

static void
kill_touch(const kill_world *w, const char *suffix)
{
    char path[600];
    int  fd;

    (void)snprintf(path, sizeof path, "%s.%s", w->ledger, suffix);
    CHECK((fd = open(path, O_WRONLY | O_CREAT, 0600)) >= 0);
    (void)close(fd);
}

/* A worker with these settings; its log is appended to w->log. */
static pid_t
kill_worker(const kill_world *w, const char *const *settings)
{
    const char *argv[KILL_ARGS_MAX] = { STET_TEST_BUILD_DIR "/tests/apps/crash_app", w->db,
                                        w->ledger };
    size_t      n = 3;
    pid_t       child;

    for (; *settings != NULL && n + 1 < KILL_ARGS_MAX; settings++)
        argv[n++] = *settings;
    argv[n] = NULL;
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        int fd = open(w->log, O_WRONLY | O_APPEND | O_CREAT, 0600);

        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return child;
}

static void
kill_reap(pid_t worker, int signal)
{
    int status;

    CHECK_INT(kill(worker, signal), 0);
    CHECK_INT(waitpid(worker, &status, 0), worker);
    if (signal == SIGKILL)
        CHECK(WIFSIGNALED(status));
    else
        CHECK_INT(status, 0);
}

static off_t
kill_size(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 ? s.st_size : 0;
}

/* ---- reading what happened ------------------------------------------------------------------- */

static char *
kill_read(const char *path)
{
    FILE  *f = fopen(path, "r");
    size_t len = (size_t)kill_size(path), got = 0;
    char  *text = malloc(len + 1);

    CHECK(text != NULL);
    if (f != NULL) {
        got = fread(text, 1, len, f);
        (void)fclose(f);
    }
    text[got] = '\0';
    return text;
}

static int
kill_compare(const void *a, const void *b)
{
    const kill_line *x = a, *y = b;
    int              order = strcmp(x->run, y->run);

    return order != 0 ? order : x->at < y->at ? -1 : x->at > y->at;
}

static void
kill_load_lines(kill_world *w)
{
    char *text = kill_read(w->ledger), *at = text;
    int   used;

    free(w->lines);
    w->n_lines = 0;
    w->lines = calloc(strlen(text) / 8 + 1, sizeof *w->lines);
    CHECK(w->lines != NULL);
    while (sscanf(at, "%39s %31s %63s\n%n", w->lines[w->n_lines].run, w->lines[w->n_lines].step,
                  w->lines[w->n_lines].nonce, &used) == 3) {
        at += used;
        w->lines[w->n_lines].at = w->n_lines;
        w->n_lines++;
    }
    free(text);
    qsort(w->lines, w->n_lines, sizeof *w->lines, kill_compare);
}

/* The first line of a run, or where it would be. */
static size_t
kill_find(const kill_world *w, const char *run)
{
    size_t low = 0, high = w->n_lines;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(w->lines[middle].run, run) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How often this step of this run was entered; *last is the last nonce. */
static size_t
kill_entered(const kill_world *w, const char *run, const char *step, const char **last)
{
    size_t n = 0;

    for (size_t i = kill_find(w, run); i < w->n_lines && strcmp(w->lines[i].run, run) == 0; i++)
        if (strcmp(w->lines[i].step, step) == 0) {
            n++;
            if (last != NULL)
                *last = w->lines[i].nonce;
        }
    return n;
}

/* Until the step was entered `n` times. */
static void
kill_await_entry(kill_world *w, const char *run, const char *step, size_t n)
{
    int64_t until_ms = kill_now_ms() + (int64_t)KILL_WAIT_MS * test_slow();

    do {
        kill_load_lines(w);
        if (kill_entered(w, run, step, NULL) >= n)
            return;
        (void)poll(NULL, 0, 2);
    } while (kill_now_ms() < until_ms);
    test_fail(__FILE__, __LINE__, "step %s of %s was not entered %zu times:\n%s", step, run, n,
              kill_read(w->log));
}

typedef struct kill_step {
    const char *step;
    char        nonce[64];
    size_t      records, risks;
} kill_step;

static int
kill_on_fact(void *arg, const stet_fact_info *fact)
{
    kill_step *s = arg;

    if (fact->name == NULL || strcmp(fact->name, s->step) != 0)
        return STET_OK;
    if (strcmp(fact->kind, "step") == 0) {
        s->records++;
        (void)snprintf(s->nonce, sizeof s->nonce, "%.*s", (int)fact->value.len,
                       (const char *)fact->value.data);
    } else if (strcmp(fact->kind, "at risk") == 0)
        s->risks++;
    return STET_OK;
}

static void
kill_facts(kill_world *w, const char *run, const char *step, kill_step *s)
{
    stet_run_id id;

    memset(s, 0, sizeof *s);
    s->step = step;
    CHECK_OK(stet_run_id_parse(&id, run));
    CHECK_OK(stet_run_facts(w->e, &id, true, kill_on_fact, s));
}

static int
kill_print_fact(void *arg, const stet_fact_info *fact)
{
    (void)arg;
    (void)fprintf(stderr, "  %3llu %3llu %lld %-18s %s#%llu %s%s\n",
                  (unsigned long long)fact->revision, (unsigned long long)fact->inbox,
                  (long long)fact->time_ms, fact->kind, fact->name ? fact->name : "",
                  (unsigned long long)fact->occurrence, fact->text ? fact->text : "",
                  fact->is_at_risk ? " AT RISK" : "");
    return STET_OK;
}

/* Everything known of a run, for the message. */
static void
kill_dump(kill_world *w, const char *run)
{
    stet_run_id id;

    for (size_t i = 0; i < w->n_lines; i++)
        if (strcmp(w->lines[i].run, run) == 0)
            (void)fprintf(stderr, "  executed %s %s\n", w->lines[i].step, w->lines[i].nonce);
    if (stet_run_id_parse(&id, run) == STET_OK)
        (void)stet_run_facts(w->e, &id, false, kill_print_fact, NULL);
}

typedef struct kill_totals {
    kill_world *w;
    size_t      runs, executions, repeats;
} kill_totals;

static const char *const kill_steps[] = { "one", "two",  "three", "leaf",
                                          "add", "hold", "held",  "fuse" };

/* Each step of a completed run is recorded once, what is recorded is its last execution (so none
 * came after the record), and each further execution was reported as a risk. */
static int
kill_check_run(void *arg, const stet_run_info *info)
{
    kill_totals *t = arg;

    t->runs++;
    if (info->status != STET_STATUS_COMPLETED)
        test_fail(__FILE__, __LINE__, "%s %s is %s: %s\n%s", info->id, info->handler,
                  stet_status_name(info->status), info->error ? info->error : "",
                  kill_read(t->w->log));
    for (size_t i = 0; i < sizeof kill_steps / sizeof kill_steps[0]; i++) {
        const char *last = NULL;
        size_t      n = kill_entered(t->w, info->id, kill_steps[i], &last);
        kill_step   s;

        if (n == 0)
            continue;
        kill_facts(t->w, info->id, kill_steps[i], &s);
        t->executions += n;
        t->repeats += n - 1;
        CHECK_INT(s.records, 1);
        CHECK_STR(s.nonce, last);
        if (n > 1 + s.risks)
            kill_dump(t->w, info->id);
        if (n > 1 + s.risks)
            test_fail(__FILE__, __LINE__,
                      "%s: step %s was executed %zu times, but only %zu of them knew of the risk",
                      info->id, kill_steps[i], n, s.risks);
    }
    return STET_OK;
}

static int
kill_on_finding(void *arg, const stet_finding *finding)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "verify: %s revision %llu: %s: %s",
              finding->run ? finding->run : "-", (unsigned long long)finding->revision,
              finding->rule, finding->text);
}

static void
kill_check_all(kill_world *w, kill_totals *t)
{
    *t = (kill_totals){ .w = w };
    kill_load_lines(w);
    CHECK_OK(stet_run_list(w->e, STET_FILTER(.limit = 1000000), kill_check_run, t));
    CHECK_OK(stet_verify(w->e, NULL, kill_on_finding, NULL));
}

static void
kill_wait(kill_world *w, const stet_run_id *run)
{
    int rc = stet_wait(w->e, NULL, run, (int64_t)KILL_WAIT_MS * test_slow());

    if (rc != STET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s: %s\n%s", run->text, stet_code_name(rc),
                  stet_last_error(), kill_read(w->log));
}

/* ---- under load ------------------------------------------------------------------------------ */

static void
kill_start_some(kill_world *w, stet_run_id *runs, size_t *n, size_t more)
{
    for (size_t i = 0; i < more; i++, ++*n)
        if (*n % 5 == 4)
            CHECK_OK(stet_start(w->e, &runs[*n], "counter.add", stet_text("{}"),
                                STET_START(.key = *n % 2 ? "a" : "b")));
        else
            CHECK_OK(stet_start(w->e, &runs[*n], "load.flow", stet_text("{}"), NULL));
}

/* A random moment: when some more bodies were entered. */
static void
kill_moment(kill_world *w)
{
    off_t   size = kill_size(w->ledger) + (off_t)(kill_random(w) % 1500);
    int64_t until_ms = kill_now_ms() + 50 + (int64_t)(kill_random(w) % 50);

    while (kill_size(w->ledger) < size && kill_now_ms() < until_ms)
        (void)poll(NULL, 0, 1);
}

TEST_LIMIT(C6_workers_killed_at_random_under_load_finish_everything_once, 240)
{
    static const char *const settings[] = { "lost_max=1000", "sweep_ms=20", "poll_ms=50",
                                            "concurrency=4", NULL };
    size_t                   kills = kill_env("STET_TEST_KILLS", 100), n = 0, counted[2] = { 0, 0 };
    stet_run_id             *runs = calloc(120 + 6 * kills, sizeof *runs);
    pid_t                    workers[KILL_WORKERS];
    kill_totals              totals;
    kill_world               w;

    CHECK(runs != NULL);
    kill_open(&w);
    for (size_t i = 0; i < KILL_WORKERS; i++)
        workers[i] = kill_worker(&w, settings);
    kill_start_some(&w, runs, &n, 120);
    for (size_t i = 0; i < kills; i++) {
        size_t victim = kill_random(&w) % KILL_WORKERS;

        kill_moment(&w);
        kill_reap(workers[victim], SIGKILL);
        workers[victim] = kill_worker(&w, settings);
        kill_start_some(&w, runs, &n, 6);
    }
    for (size_t i = 0; i < n; i++)
        kill_wait(&w, &runs[i]);
    for (size_t i = 0; i < KILL_WORKERS; i++)
        kill_reap(workers[i], SIGTERM);
    kill_check_all(&w, &totals);
    for (size_t i = 0; i < 2; i++) {
        stet_bytes value;

        CHECK_OK(stet_state_read(w.e, &value, "counter", i ? "a" : "b", "n"));
        counted[i] = (size_t)strtoull(value.data, NULL, 10);
        stet_free((void *)(uintptr_t)value.data);
    }
    CHECK_INT(counted[0] + counted[1], n / 5);
    test_note("%zu kills, %zu runs, %zu executions, %zu of them repeats", kills, totals.runs,
              totals.executions, totals.repeats);
    kill_close(&w);
    free(runs);
}

/* ---- one worker at a time -------------------------------------------------------------------- */

/* A worker that is inside its step, and stopped. One that is stopped in the middle of a commit has
 * the only write lock of the file, and nobody could go on: then another one. */
static pid_t
kill_stop_one(kill_world *w, const char *const *settings, stet_run_id *run)
{
    for (int tries = 0; tries < 10; tries++) {
        pid_t worker = kill_worker(w, settings);
        int   rc;

        CHECK_OK(stet_start(w->e, run, "load.hold", stet_text("{}"), NULL));
        kill_await_entry(w, run->text, "hold", 1);
        CHECK_INT(kill(worker, SIGSTOP), 0);
        if ((rc = stet_signal(w->e, run, "probe", stet_text(""), NULL)) == STET_OK)
            return worker;
        CHECK(rc == STET_EBUSY || rc == STET_EUNCERTAIN);
        kill_reap(worker, SIGKILL);
    }
    test_fail(__FILE__, __LINE__, "ten workers were stopped in the middle of a commit");
}

TEST_LIMIT(C6_a_worker_stopped_beyond_its_lease_writes_nothing_when_it_wakes, 120)
{
    static const char *const settings[] = { "lease_ms=1000", "renew_ms=400", "sweep_ms=50",
                                            "poll_ms=50", NULL };
    const char              *last = NULL;
    char                     prefix[32], *log;
    stet_run_id              run, other;
    kill_step                step;
    kill_world               w;
    pid_t                    stopped, taker;

    kill_open(&w);
    stopped = kill_stop_one(&w, settings, &run);
    taker = kill_worker(&w, settings);
    kill_await_entry(&w, run.text, "hold", 2);
    kill_touch(&w, "open");
    kill_wait(&w, &run);
    CHECK_INT(kill(stopped, SIGCONT), 0);
    /* It is of use again: alone, it finishes another run, in a session of its own. */
    kill_reap(taker, SIGTERM);
    CHECK_OK(stet_start(w.e, &other, "load.flow", stet_text("{}"), NULL));
    kill_wait(&w, &other);
    kill_reap(stopped, SIGTERM);

    kill_load_lines(&w);
    CHECK_INT(kill_entered(&w, run.text, "hold", &last), 2);
    kill_facts(&w, run.text, "hold", &step);
    CHECK_INT(step.records, 1);
    CHECK_INT(step.risks, 1);
    (void)snprintf(prefix, sizeof prefix, "%d.", (int)taker);
    if (strncmp(step.nonce, prefix, strlen(prefix)) != 0)
        test_fail(__FILE__, __LINE__, "recorded was %s, which is not of worker %s", step.nonce,
                  prefix);
    CHECK_INT(kill_entered(&w, run.text, "held", &last), 1);
    CHECK(strncmp(last, prefix, strlen(prefix)) == 0);
    log = kill_read(w.log);
    CHECK_HAS(log, "STET_EFENCED");
    free(log);
    CHECK_OK(stet_verify(w.e, NULL, kill_on_finding, NULL));
    kill_close(&w);
}

TEST_LIMIT(C6_the_runs_of_a_killed_worker_go_on_at_once_and_not_after_its_lease, 60)
{
    static const char *const settings[] = { "lease_ms=600000", NULL };
    stet_run_id              runs[5];
    kill_totals              totals;
    int64_t                  began_ms;
    kill_world               w;
    pid_t                    worker;

    kill_open(&w);
    worker = kill_worker(&w, settings);
    for (size_t i = 0; i < 5; i++)
        CHECK_OK(stet_start(w.e, &runs[i], "load.hold", stet_text("{}"), NULL));
    for (size_t i = 0; i < 5; i++)
        kill_await_entry(&w, runs[i].text, "hold", 1);
    kill_reap(worker, SIGKILL);
    kill_touch(&w, "open");
    began_ms = kill_now_ms();
    worker = kill_worker(&w, settings);
    for (size_t i = 0; i < 5; i++)
        kill_wait(&w, &runs[i]);
    test_note("went on %lld ms after the restart", (long long)(kill_now_ms() - began_ms));
    kill_reap(worker, SIGTERM);
    kill_check_all(&w, &totals);
    CHECK_INT(totals.repeats, 5);
    kill_close(&w);
}

/* The other workers are alive: a sweep finds the dead one. */
TEST_LIMIT(C6_the_runs_of_a_killed_worker_go_on_elsewhere_without_a_restart, 60)
{
    static const char *const settings[] = { "lease_ms=600000", "sweep_ms=100", NULL };
    stet_run_id              run;
    kill_totals              totals;
    kill_world               w;
    pid_t                    worker, other;

    kill_open(&w);
    worker = kill_worker(&w, settings);
    CHECK_OK(stet_start(w.e, &run, "load.hold", stet_text("{}"), NULL));
    kill_await_entry(&w, run.text, "hold", 1);
    other = kill_worker(&w, settings);
    kill_reap(worker, SIGKILL);
    kill_touch(&w, "open");
    kill_wait(&w, &run);
    kill_reap(other, SIGTERM);
    kill_check_all(&w, &totals);
    CHECK_INT(totals.repeats, 1);
    kill_close(&w);
}

typedef struct kill_status {
    stet_status status;
    int         code;
    size_t      lost;
    char        error[256];
} kill_status;

static int
kill_on_status(void *arg, const stet_run_info *info)
{
    kill_status *s = arg;

    s->status = info->status;
    s->code = info->code;
    s->lost = info->lost;
    (void)snprintf(s->error, sizeof s->error, "%s", info->error ? info->error : "");
    return STET_OK;
}

/* Start workers again and again until the bomb is stuck; returns the last, living one. */
static pid_t
kill_until_stuck(kill_world *w, const stet_run_id *bomb, kill_status *s, size_t *deaths)
{
    static const char *const settings[] = { "concurrency=4", "sweep_ms=50", "poll_ms=50", NULL };
    int64_t                  until_ms = kill_now_ms() + (int64_t)KILL_WAIT_MS * test_slow();
    pid_t                    worker = kill_worker(w, settings);
    int                      status;

    while (kill_now_ms() < until_ms) {
        CHECK_OK(stet_run_get(w->e, bomb, kill_on_status, s));
        if (s->status == STET_STATUS_STUCK)
            return worker;
        if (waitpid(worker, &status, WNOHANG) == worker) {
            CHECK(WIFSIGNALED(status));
            ++*deaths;
            worker = kill_worker(w, settings);
        }
        (void)poll(NULL, 0, 2);
    }
    test_fail(__FILE__, __LINE__, "the bomb is not stuck but %s after %zu deaths\n%s",
              stet_status_name(s->status), *deaths, kill_read(w->log));
}

TEST_LIMIT(C1_a_handler_that_kills_its_worker_five_times_is_stuck_and_its_neighbours_are_not, 120)
{
    stet_run_id bomb, neighbours[20];
    kill_status s;
    kill_totals totals;
    size_t      deaths = 0;
    kill_world  w;
    pid_t       worker;

    kill_open(&w);
    for (size_t i = 0; i < 10; i++)
        CHECK_OK(stet_start(w.e, &neighbours[i], "load.flow", stet_text("{}"), NULL));
    CHECK_OK(stet_start(w.e, &bomb, "load.bomb", stet_text("{}"), NULL));
    for (size_t i = 10; i < 20; i++)
        CHECK_OK(stet_start(w.e, &neighbours[i], "load.flow", stet_text("{}"), NULL));
    worker = kill_until_stuck(&w, &bomb, &s, &deaths);
    CHECK_INT(deaths, 5);
    CHECK_INT(s.code, STET_ELOST);
    CHECK_HAS(s.error, "fuse");
    for (size_t i = 0; i < 20; i++)
        kill_wait(&w, &neighbours[i]);

    kill_touch(&w, "safe");
    CHECK_OK(stet_unstick(w.e, &bomb, "test"));
    kill_wait(&w, &bomb);
    kill_reap(worker, SIGTERM);
    kill_check_all(&w, &totals);
    CHECK_INT(kill_entered(&w, bomb.text, "fuse", NULL), 6);
    test_note("%zu deaths, %zu runs, %zu repeats", deaths, totals.runs, totals.repeats);
    kill_close(&w);
}
