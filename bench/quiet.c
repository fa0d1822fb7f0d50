/* What stet costs when nothing happens: reads and processor time of an idle worker, size on
 * disk. */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IDLE_WINDOWS   5
#define IDLE_WINDOW_S  5 /* as long as the time between two sweeps */
#define IDLE_READS_MAX 5.0
#define IDLE_CPU_MAX   0.5 /* percent */
#define SIZE_BYTES_MAX (1024 * 1024)

/* ---- idle ------------------------------------------------------------------------------------ */

static double
idle_cpu_s(void)
{
    struct rusage used;

    if (getrusage(RUSAGE_SELF, &used) != 0)
        bench_fail("cannot read the processor time of this process");
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Says for each window: reads a second, percent of a processor. */
int
bench_child_idle(const char *path)
{
    struct timespec settle = { 1, 0 }, window = { IDLE_WINDOW_S, 0 };
    stet_engine    *e = bench_worker(path);
    double          numbers[2 * IDLE_WINDOWS];

    bench_invoke(e, "bench.steps3", "{}", NULL);
    nanosleep(&settle, NULL);
    for (int i = 0; i < IDLE_WINDOWS; i++) {
        uint64_t reads = stet_engine_reads(e);
        double   cpu_s = idle_cpu_s(), start_s = bench_now_s(), took_s;

        nanosleep(&window, NULL);
        took_s = bench_now_s() - start_s;
        numbers[2 * i] = (double)(stet_engine_reads(e) - reads) / took_s;
        numbers[2 * i + 1] = 100 * (idle_cpu_s() - cpu_s) / took_s;
    }
    bench_child_say(numbers, 2 * IDLE_WINDOWS);
    bench_child_wait();
    bench_worker_close(e);
    return 0;
}

/* The median of the windows; the file goes. */
static void
idle_measure(char *path, double *reads_s, double *cpu_percent)
{
    bench_child c;
    double      numbers[2 * IDLE_WINDOWS], reads[IDLE_WINDOWS], cpu[IDLE_WINDOWS];

    bench_child_start(&c, "idle", path);
    bench_child_read(&c, numbers, 2 * IDLE_WINDOWS);
    bench_child_end(&c);
    for (int i = 0; i < IDLE_WINDOWS; i++) {
        reads[i] = numbers[2 * i];
        cpu[i] = numbers[2 * i + 1];
    }
    bench_remove(path);
    free(path);
    *reads_s = bench_percentile(reads, IDLE_WINDOWS, 50);
    *cpu_percent = bench_percentile(cpu, IDLE_WINDOWS, 50);
}

void
bench_idle(bench_result *r)
{
    double cpu_percent;

    idle_measure(bench_path("idle.db"), &r->value, &cpu_percent);
    r->unit = "reads/s";
    r->ok = r->value <= IDLE_READS_MAX && cpu_percent <= IDLE_CPU_MAX;
    snprintf(r->note, sizeof r->note, "%.2f %% of a processor", cpu_percent);
}

/* ---- schedules ------------------------------------------------------------------------------- */

#define SCHEDULES_N          10000
#define SCHEDULES_THREADS    16
#define SCHEDULES_READS_MORE 0.5 /* a second; one look a poll is in both */
#define SCHEDULES_CPU_MORE   0.1 /* percent */

typedef struct schedules_part {
    stet_engine *e;
    int          first;
} schedules_part;

/* Far apart and far away: each is active, none fires while it is measured. */
static void *
schedules_make(void *arg)
{
    const schedules_part *part = arg;
    char                  name[32];

    for (int i = part->first; i < SCHEDULES_N; i += SCHEDULES_THREADS) {
        snprintf(name, sizeof name, "schedule %d", i);
        if (stet_schedule_ensure(part->e, NULL, name, "bench.steps3", stet_text("{}"),
                                 STET_SCHEDULE(.every_ms = 86400000 + i * INT64_C(1000))) !=
            STET_OK)
            bench_fail("%s", stet_last_error());
    }
    return NULL;
}

static void
schedules_fill(const char *path)
{
    schedules_part parts[SCHEDULES_THREADS];
    pthread_t      threads[SCHEDULES_THREADS];
    stet_engine   *e;

    if (stet_open(&e, path, STET_OPTIONS(.roles = STET_ROLE_CLIENT)) != STET_OK ||
        stet_engine_start(e) != STET_OK)
        bench_fail("%s", stet_last_error());
    for (int i = 0; i < SCHEDULES_THREADS; i++) {
        parts[i] = (schedules_part){ e, i };
        if (pthread_create(&threads[i], NULL, schedules_make, &parts[i]) != 0)
            bench_fail("no threads");
    }
    for (int i = 0; i < SCHEDULES_THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    stet_close(e);
}

void
bench_schedules10k(bench_result *r)
{
    char  *path = bench_path("schedules.db");
    double cpu_with, cpu_without;

    schedules_fill(path);
    idle_measure(path, &r->value, &cpu_with);
    idle_measure(bench_path("none.db"), &r->raw, &cpu_without);
    r->unit = "reads/s";
    r->ok = r->value <= r->raw + SCHEDULES_READS_MORE && r->value <= IDLE_READS_MAX &&
            cpu_with <= cpu_without + SCHEDULES_CPU_MORE;
    snprintf(r->note, sizeof r->note, "%.2f %% of a processor, without %.2f %%", cpu_with,
             cpu_without);
}

/* ---- size ------------------------------------------------------------------------------------ */

static void
size_run(char *const *argv, int out)
{
    pid_t pid = fork();
    int   status = 0;

    if (pid == 0) {
        if (out >= 0)
            dup2(out, 1);
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        bench_fail("%s does not work here; it is part of binutils", argv[0]);
}

static bool
size_is_expected(const char *library)
{
    static const char *const expected[] = { "libc.so", "ld-linux", "libsqlite3.so", NULL };

    for (size_t i = 0; expected[i] != NULL; i++)
        if (strncmp(library, expected[i], strlen(expected[i])) == 0)
            return true;
    return false;
}

/* What the library says it needs, appended to `list`. False: something but libc and SQLite. */
static bool
size_needed(char *library, char *list, size_t size)
{
    char *argv[] = { "readelf", "-d", library, NULL }, line[512];
    FILE *out = tmpfile();
    bool  is_expected = true;

    if (out == NULL)
        bench_fail("cannot make a temporary file");
    size_run(argv, fileno(out));
    rewind(out);
    while (fgets(line, sizeof line, out) != NULL) {
        char *open = strchr(line, '['), *close = strchr(line, ']');

        if (strstr(line, "(NEEDED)") == NULL || open == NULL || close == NULL)
            continue;
        *close = '\0';
        is_expected = is_expected && size_is_expected(open + 1);
        snprintf(list + strlen(list), size - strlen(list), " %s", open + 1);
    }
    fclose(out);
    return is_expected;
}

/* The bytes of it, stripped, which is then at `to`. */
static double
size_stripped(char *library, char *to)
{
    char       *argv[] = { "strip", "-o", to, library, NULL };
    struct stat st;

    if (stat(library, &st) != 0)
        bench_fail("%s is not built", library);
    size_run(argv, -1);
    if (stat(to, &st) != 0)
        bench_fail("strip wrote nothing");
    return (double)st.st_size;
}

void
bench_size(bench_result *r)
{
    char  *library = bench_beside("libstet_embedded.so"), *all = bench_beside("../libstet.so");
    char  *stripped = bench_path("libstet.so"), links[256] = "";
    double bytes_all = size_stripped(all, stripped), bytes = size_stripped(library, stripped);

    r->ok = size_needed(stripped, links, sizeof links) && bytes < SIZE_BYTES_MAX;
    r->value = bytes / 1024;
    r->unit = "KiB";
    snprintf(r->note, sizeof r->note, "links%s; with all stores and queues of this build %.0f KiB",
             links, bytes_all / 1024);
    unlink(stripped);
    free(stripped);
    free(library);
    free(all);
}
