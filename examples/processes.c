/* processes: several workers on one SQLite file, one of them killed.
 *
 * The parent forks three workers, starts jobs, kills one worker with SIGKILL in the middle, and waits for
 * every job. The others take over what the dead one had. A handle must not cross fork(): every process
 * opens the file for itself, the parent after it has forked.
 *
 * Each step appends a line to a ledger file. In the end every job's step must stand there once, except
 * steps the dead worker had begun and not recorded: those may stand there twice, and their journal says
 * "at risk".
 *
 *   ./processes                   checks itself, in a temporary directory
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#define WORKERS 3
#define JOBS    60

static char ledger_path[512], db_path[512];

static void
must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "processes: not so: %s (%s)\n", what, stet_last_error());
    exit(1);
}
#define MUST(cond) must((cond), #cond)

/* ---- the job -------------------------------------------------------------------------------- */

static void
rest(long ms)
{
    const struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&time, NULL);
}

/* One write to a file opened for appending: lines of several processes do not mix. */
static int
note(stet_attempt *a, void *job)
{
    char    line[64];
    int     len = snprintf(line, sizeof line, "%d %ld\n", *(int *)job, (long)getpid());
    int     fd = open(ledger_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    ssize_t written = fd < 0 ? -1 : write(fd, line, (size_t)len);

    if (fd >= 0)
        close(fd);
    if (written != len)
        return stet_attempt_fail(a, STET_EIO, "the ledger cannot be written");
    rest(20);
    return STET_OK;
}

static int
job(stet_ctx *ctx, stet_bytes input)
{
    char text[16];
    int  number;

    snprintf(text, sizeof text, "%.*s", (int)input.len, (const char *)input.data);
    number = (int)strtol(text, NULL, 10);
    STET_TRY(stet_sleep(ctx, "first", "50ms"));
    STET_TRY(stet_step(ctx, NULL, "note", note, &number, NULL));
    return stet_return(ctx, input);
}

static const stet_handler jobs[] = { { "job", job, NULL }, { 0 } };

/* ---- processes ------------------------------------------------------------------------------ */

_Noreturn static void
work(void)
{
    stet_engine *engine;

    /* Nobody is left behind if the parent fails. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MUST(stet_open(&engine, db_path,
                   STET_OPTIONS(.concurrency = 4, .sweep_ms = 500, .log_level = STET_LOG_ERROR)) ==
         STET_OK);
    MUST(stet_register(engine, "work", jobs) == STET_OK);
    MUST(stet_engine_start(engine) == STET_OK);
    for (;;)
        pause();
}

static size_t
ledger_read(int counts[JOBS])
{
    FILE  *ledger = fopen(ledger_path, "r");
    size_t lines = 0;
    int    number;
    long   process;

    memset(counts, 0, JOBS * sizeof *counts);
    if (ledger == NULL)
        return 0;
    for (; fscanf(ledger, "%d %ld", &number, &process) == 2; lines++) {
        MUST(number >= 0 && number < JOBS);
        counts[number]++;
    }
    fclose(ledger);
    return lines;
}

static int
count_risks(void *arg, const stet_fact_info *fact)
{
    *(int *)arg += fact->is_at_risk;
    return STET_OK;
}

static int
check_jobs(stet_engine *engine, const stet_run_id runs[JOBS])
{
    int counts[JOBS], twice = 0;

    for (size_t i = 0; i < JOBS; i++)
        MUST(stet_wait(engine, NULL, &runs[i], 120000) == STET_OK);
    ledger_read(counts);
    for (size_t i = 0; i < JOBS; i++) {
        int risks = 0;

        MUST(stet_run_facts(engine, &runs[i], false, count_risks, &risks) == STET_OK);
        MUST(counts[i] == 1 || (counts[i] == 2 && risks > 0));
        twice += counts[i] - 1;
    }
    return twice;
}

static void
check(void)
{
    stet_engine *engine;
    stet_run_id  runs[JOBS];
    pid_t        workers[WORKERS];
    int          counts[JOBS];

    for (size_t i = 0; i < WORKERS; i++) {
        MUST((workers[i] = fork()) >= 0);
        if (workers[i] == 0)
            work();
    }
    MUST(stet_open(&engine, db_path,
                   STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_ERROR)) ==
         STET_OK);
    for (int i = 0; i < JOBS; i++) {
        char number[16];

        snprintf(number, sizeof number, "%d", i);
        MUST(stet_start(engine, &runs[i], "work.job", stet_text(number), NULL) == STET_OK);
    }
    while (ledger_read(counts) < JOBS / 3)
        rest(5);
    MUST(kill(workers[0], SIGKILL) == 0);
    printf("%d jobs started, worker 1 of %d killed after %zu\n", JOBS, WORKERS,
           ledger_read(counts));
    printf("all %d jobs completed; %d steps were in the air at the kill and ran again\n", JOBS,
           check_jobs(engine, runs));
    stet_close(engine);
    for (size_t i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGKILL);
        while (waitpid(workers[i], NULL, 0) < 0 && errno == EINTR)
            continue;
    }
}

int
main(void)
{
    static const char *const endings[] = { "", "-wal", "-shm", "-live" };
    const char              *tmp = getenv("TMPDIR");
    char                     dir[256];

    snprintf(dir, sizeof dir, "%s/stet-processes-XXXXXX", tmp != NULL && *tmp ? tmp : "/tmp");
    MUST(mkdtemp(dir) != NULL);
    snprintf(db_path, sizeof db_path, "%s/jobs.db", dir);
    snprintf(ledger_path, sizeof ledger_path, "%s/ledger", dir);
    check();
    unlink(ledger_path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char path[600];

        snprintf(path, sizeof path, "%s%s", db_path, endings[i]);
        unlink(path);
    }
    MUST(rmdir(dir) == 0);
    puts("ok");
    return 0;
}
