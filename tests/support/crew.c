/* Workers as real processes; see crew.h. */
#include "crew.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define CREW_PATIENCE_MS (INT64_C(90000) * test_slow())
#define CREW_URL_MAX     400

/* What lies in the file, record after record. */
typedef enum crew_kind { CREW_ENTERED = 1, CREW_KILLED, CREW_STOPPED, CREW_RESTARTED } crew_kind;

typedef struct crew_record {
    int32_t kind, run, step, pid;
} crew_record;

/* In a worker: the file. Set between fork and the first thread. */
static int crew_file = -1;

static void
crew_tell(int file, crew_kind kind, int run, int step, pid_t pid)
{
    crew_record r = { (int32_t)kind, run, step, (int32_t)pid };

    if (write(file, &r, sizeof r) != (ssize_t)sizeof r)
        abort(); /* an effect that is not counted would hide a repeat */
}

static int64_t
crew_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- a worker -------------------------------------------------------------------------------- */

static int
crew_body(stet_attempt *a, void *arg)
{
    const int *at = arg;

    crew_tell(crew_file, CREW_ENTERED, at[0], at[1], getpid());
    return stet_attempt_return(a, stet_text("{}"));
}

static int
crew_three(stet_ctx *ctx, stet_bytes input)
{
    static const char *const names[CREW_STEPS] = { "reserve", "charge", "ship" };
    char                     text[16] = "";
    stet_bytes               result;
    int                      at[2];

    if (input.len < sizeof text)
        memcpy(text, input.data, input.len);
    at[0] = (int)strtol(text, NULL, 10);
    for (at[1] = 0; at[1] < CREW_STEPS; at[1]++) {
        if (at[1] == CREW_STEPS - 1) /* mostly parked by then: it is claimed anew */
            STET_TRY(stet_await_signal(ctx, &result, "go", NULL));
        STET_TRY(stet_step(ctx, &result, names[at[1]], crew_body, at, NULL));
    }
    return stet_return(ctx, input);
}

static const stet_handler crew_handlers[] = { { "three", crew_three, NULL }, { 0 } };

/* Until it is killed, or its nursery is gone. */
static _Noreturn void
crew_worker_main(const char *url, int lease_ms, int life)
{
    struct pollfd at = { .fd = life, .events = POLLIN };
    stet_engine  *e;
    char          byte;

    while (stet_open(&e, url,
                     STET_OPTIONS(.concurrency = CREW_SLOTS, .in_flight_max = CREW_IN_FLIGHT,
                                  .lease_ms = lease_ms, .renew_ms = CREW_RENEW_MS, .sweep_ms = 100,
                                  .poll_ms = 100, .log_level = STET_LOG_ERROR)) != STET_OK)
        if (poll(&at, 1, 20) > 0) /* the server may be away just now */
            _exit(0);
    if (stet_register(e, "t", crew_handlers) != STET_OK || stet_engine_start(e) != STET_OK)
        _exit(1);
    while (poll(&at, 1, -1) < 0 || read(life, &byte, 1) > 0)
        continue;
    _exit(0);
}

/* ---- the nursery ----------------------------------------------------------------------------- */

static _Noreturn void
crew_nursery_main(int orders, int answers, int lease_ms, int log)
{
    int  life[2];
    char url[CREW_URL_MAX];

    if (pipe(life) != 0)
        _exit(1);
    (void)signal(SIGCHLD, SIG_IGN);
    (void)dup2(log, STDERR_FILENO); /* of a fleet in trouble nobody wants to read it all */
    while (read(orders, url, sizeof url) == (ssize_t)sizeof url) { /* pipes keep it whole */
        pid_t child = fork();

        if (child == 0) {
            close(life[1]);
            close(orders);
            close(answers);
            crew_worker_main(url, lease_ms, life[0]);
        }
        if (write(answers, &child, sizeof child) != (ssize_t)sizeof child)
            _exit(1);
    }
    _exit(0);
}

static pid_t
crew_order(crew *c, const char *url)
{
    char  order[CREW_URL_MAX] = "";
    pid_t child = -1;

    CHECK(strlen(url) < sizeof order);
    (void)snprintf(order, sizeof order, "%s", url);
    CHECK_INT(write(c->orders, order, sizeof order), sizeof order);
    CHECK_INT(read(c->answers, &child, sizeof child), sizeof child);
    CHECK(child > 0);
    return child;
}

void
crew_begin(crew *c, int lease_ms)
{
    int orders[2], answers[2], log;

    memset(c, 0, sizeof *c);
    c->lease_ms = lease_ms;
    c->random = (uint64_t)test_number("STET_TEST_SEED", 1);
    setenv("TMPDIR", test_dir(), 1); /* crumbs of the killed go with the test */
    c->file = crew_file = open(test_path("effects"), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    log = open(test_path("log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    CHECK(c->file >= 0 && log >= 0);
    CHECK_INT(pipe(orders), 0);
    CHECK_INT(pipe(answers), 0);
    if (fork() == 0) {
        close(orders[1]);
        close(answers[0]);
        crew_nursery_main(orders[0], answers[1], lease_ms, log);
    }
    close(log);
    close(orders[0]);
    close(answers[1]);
    c->orders = orders[1];
    c->answers = answers[0];
}

void
crew_end(crew *c)
{
    crew_continue(c);
    close(c->orders);
    close(c->answers);
}

int
crew_draw(crew *c, int n)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((c->random >> 33) % (uint64_t)n);
}

/* ---- what happens to them -------------------------------------------------------------------- */

void
crew_hire(crew *c, const char *url)
{
    CHECK(c->n_workers < CREW_WORKERS_MAX);
    c->workers[c->n_workers++] = crew_order(c, url);
}

void
crew_kill(crew *c, int i, const char *url)
{
    if (c->workers[i] == c->stopped)
        c->stopped = 0; /* SIGKILL needs no SIGCONT */
    crew_tell(c->file, CREW_KILLED, 0, 0, c->workers[i]);
    CHECK_INT(kill(c->workers[i], SIGKILL), 0);
    c->kills++;
    c->workers[i] = crew_order(c, url);
}

void
crew_stop(crew *c, int i)
{
    crew_continue(c);
    crew_tell(c->file, CREW_STOPPED, 0, 0, c->workers[i]);
    CHECK_INT(kill(c->workers[i], SIGSTOP), 0);
    c->stopped = c->workers[i];
    c->stops++;
}

void
crew_continue(crew *c)
{
    if (c->stopped != 0)
        CHECK_INT(kill(c->stopped, SIGCONT), 0);
    c->stopped = 0;
}

void
crew_restart(crew *c)
{
    crew_tell(c->file, CREW_RESTARTED, 0, 0, 0);
    c->restarts++;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool
crew_is_passing(int err)
{
    return err == STET_EUNCERTAIN || err == STET_EIO || err == STET_EBUSY;
}

/* Its last step may begin. The same key: one signal, whatever became of the first. */
static void
crew_signal(crew *c, stet_engine *e, int i)
{
    int64_t until_ms = crew_now_ms() + CREW_PATIENCE_MS;
    bool    is_repeat = false;
    int     err;

    while (crew_is_passing(err = stet_signal(e, &c->runs[i], "go", stet_text("{}"),
                                             STET_SIGNAL_OPTIONS(.idempotency_key = "go"))) &&
           crew_now_ms() < until_ms) {
        is_repeat = true;
        (void)poll(NULL, 0, 2);
    }
    if (err != STET_EENDED || !is_repeat)
        CHECK_OK(err);
}

void
crew_start(crew *c, stet_engine *e, int n)
{
    int64_t until_ms = crew_now_ms() + CREW_PATIENCE_MS;
    int     first = c->n_runs;

    for (; n > 0; n--) {
        char key[32], input[16];
        int  err, i = c->n_runs++;

        CHECK(i < CREW_RUNS_MAX);
        (void)snprintf(key, sizeof key, "run-%d", i);
        (void)snprintf(input, sizeof input, "%d", i);
        while (crew_is_passing(err = stet_start(e, &c->runs[i], "t.three", stet_text(input),
                                                STET_START(.idempotency_key = key))) &&
               crew_now_ms() < until_ms)
            (void)poll(NULL, 0, 2); /* the same key: the same run, whatever became of the first */
        CHECK_OK(err);
        if (i - first >= CREW_BEHIND)
            crew_signal(c, e, i - CREW_BEHIND);
    }
    for (int i = c->n_runs - first > CREW_BEHIND ? c->n_runs - CREW_BEHIND : first; i < c->n_runs;
         i++)
        crew_signal(c, e, i);
}

static int
crew_records(crew *c, crew_record **out)
{
    struct stat st;
    size_t      n;

    CHECK_INT(fstat(c->file, &st), 0);
    n = (size_t)st.st_size / sizeof **out;
    CHECK((*out = malloc((n + 1) * sizeof **out)) != NULL);
    CHECK_INT(pread(c->file, *out, n * sizeof **out, 0), n * sizeof **out);
    return (int)n;
}

int
crew_executed(crew *c)
{
    crew_record *records;
    int          n = crew_records(c, &records), executed = 0;

    for (int i = 0; i < n; i++)
        executed += records[i].kind == CREW_ENTERED;
    free(records);
    return executed;
}

void
crew_await_executed(crew *c, int total)
{
    int64_t until_ms = crew_now_ms() + CREW_PATIENCE_MS;

    while (crew_executed(c) < total) {
        CHECK(crew_now_ms() < until_ms);
        (void)poll(NULL, 0, 2);
    }
}

void
crew_await_runs(crew *c, stet_engine *e)
{
    for (int i = 0; i < c->n_runs; i++) {
        int64_t     until_ms = crew_now_ms() + CREW_PATIENCE_MS;
        stet_result result;
        char        want[16];
        int         err;

        (void)snprintf(want, sizeof want, "%d", i);
        while (crew_is_passing(err = stet_wait(e, &result, &c->runs[i], CREW_PATIENCE_MS)) &&
               crew_now_ms() < until_ms)
            stet_result_free(&result);
        CHECK_OK(err);
        CHECK_INT(result.value.len, strlen(want));
        CHECK(memcmp(result.value.data, want, strlen(want)) == 0);
        stet_result_free(&result);
    }
}

/* ---- the judgement --------------------------------------------------------------------------- */

static bool
crew_was_stopped(const crew_record *records, int n, int32_t pid)
{
    for (int i = 0; i < n; i++)
        if (records[i].kind == CREW_STOPPED && records[i].pid == pid)
            return true;
    return false;
}

void
crew_audit(crew *c)
{
    static int   executed[CREW_RUNS_MAX][CREW_STEPS], last[CREW_RUNS_MAX];
    crew_record *records;
    int          n = crew_records(c, &records), total = 0, late = 0, downs;

    memset(executed, 0, sizeof executed);
    memset(last, 0, sizeof last);
    for (int i = 0; i < n; i++) {
        const crew_record *r = &records[i];

        if (r->kind != CREW_ENTERED)
            continue;
        CHECK(r->run >= 0 && r->run < c->n_runs && r->step >= 0 && r->step < CREW_STEPS);
        executed[r->run][r->step]++;
        total++;
        if (r->step >= last[r->run])
            last[r->run] = r->step;
        else if (crew_was_stopped(records, i, r->pid))
            late++;
        else
            test_fail(__FILE__, __LINE__,
                      "run %d (%s): step %d was executed again by %d after step %d had begun",
                      r->run, c->runs[r->run].text, r->step, r->pid, last[r->run]);
    }
    free(records);
    for (int i = 0; i < c->n_runs; i++)
        for (int k = 0; k < CREW_STEPS; k++)
            if (executed[i][k] == 0)
                test_fail(__FILE__, __LINE__, "run %d: step %d was never executed", i, k);
    test_note("%d runs, %d steps, %d executions; %d workers killed, %d stopped, %d servers "
              "restarted; %d entered late",
              c->n_runs, c->n_runs * CREW_STEPS, total, c->kills, c->stops, c->restarts, late);
    downs = c->kills + c->stops + c->restarts * c->n_workers;
    CHECK(late <= c->stops * CREW_SLOTS);
    CHECK(total <= c->n_runs * CREW_STEPS + downs * CREW_IN_FLIGHT);
}

static int
crew_finding(void *arg, const stet_finding *finding)
{
    test_note("%s: %s", finding->rule, finding->text);
    ++*(int *)arg;
    return 0;
}

void
crew_verify(stet_engine *e)
{
    int findings = 0;

    CHECK_OK(stet_verify(e, NULL, crew_finding, &findings));
    CHECK_INT(findings, 0);
}
