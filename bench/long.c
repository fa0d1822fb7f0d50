/* One run of 100,000 steps: does the last step cost more than the first, and how long does the run
 * take to stand where it stood after its process was killed?
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define LONG_WARM_UP  1000
#define LONG_WINDOW   (BENCH_STEPS100K / 20) /* 5 % */
#define LONG_PART     (LONG_WINDOW / BENCH_ROUNDS)
#define LONG_RAW_EACH 10 /* of so many steps in a window one commits by hand too */
#define LONG_RAW_WARM 2000
#define LONG_SLOPE    1.5
#define LONG_RESUMES  5
#define LONG_RESUME_S 1.0

/* Of the process that executes the run. The commits by hand tell what the disk was like at that
 * time: between the first and the last window lie many seconds. */
static struct {
    double  start_s;
    bool    is_last, has_steps;
    raw_db *hand;
    double  enter_s[BENCH_STEPS100K], exit_s[BENCH_STEPS100K];
} long_run;

/* Until its log has once begun again: while a log grows each commit costs about twice as much, and
 * the first window would be measured with another yardstick than the last. */
static void
long_warm_up(raw_db *hand)
{
    static double took_s[LONG_RAW_WARM];

    (void)raw_commits_each(hand, LONG_RAW_WARM, took_s);
}

static bool
long_is_in_window(size_t i)
{
    return (i >= LONG_WARM_UP && i < LONG_WARM_UP + LONG_WINDOW) ||
           i >= BENCH_STEPS100K - LONG_WINDOW;
}

static void
long_on_step(size_t i)
{
    double took_s;

    long_run.has_steps = true;
    long_run.enter_s[i] = bench_now_s();
    if (long_is_in_window(i) && i % LONG_RAW_EACH == 0)
        (void)raw_commits_each(long_run.hand, 1, &took_s);
    long_run.exit_s[i] = bench_now_s();
}

/* Medians in part `part` of the window that begins at `first`: from the end of a body to the begin
 * of the next, and of the bodies that commit by hand. */
static void
long_part(size_t first, size_t part, double *step_s, double *raw_s)
{
    double steps[LONG_PART], raws[LONG_PART];
    size_t n = 0, n_raw = 0, at = first + part * LONG_PART;

    for (size_t i = at; i < at + LONG_PART - 1; i++) {
        steps[n++] = long_run.enter_s[i + 1] - long_run.exit_s[i];
        if (i % LONG_RAW_EACH == 0)
            raws[n_raw++] = long_run.exit_s[i] - long_run.enter_s[i];
    }
    *step_s = bench_percentile(steps, n, 50);
    *raw_s = bench_percentile(raws, n_raw, 50);
}

/* In the body of the last step. Says: seconds since this process began; then for each part a step
 * at the end, and a step at the start as it would be on the disk of the end. */
static void
long_on_last(void)
{
    double numbers[1 + 2 * BENCH_ROUNDS] = { bench_now_s() - long_run.start_s };

    for (size_t i = 0; long_run.has_steps && i < BENCH_ROUNDS; i++) {
        double first_s, first_raw_s, last_s, last_raw_s;

        long_part(LONG_WARM_UP, i, &first_s, &first_raw_s);
        long_part(BENCH_STEPS100K - LONG_WINDOW, i, &last_s, &last_raw_s);
        numbers[1 + 2 * i] = last_s;
        numbers[2 + 2 * i] = first_s * last_raw_s / first_raw_s;
    }
    bench_child_say(numbers, sizeof numbers / sizeof *numbers);
    if (!long_run.is_last)
        bench_child_wait(); /* to be killed here: entered and not recorded */
}

int
bench_child_long(const char *path, bool is_last)
{
    stet_options       options;
    stet_start_options start;
    stet_engine       *e;
    stet_run_id        run;
    char               raw_path[4096];

    snprintf(raw_path, sizeof raw_path, "%s-raw", path);
    long_run.hand = raw_open(raw_path);
    long_warm_up(long_run.hand);
    long_run.start_s = bench_now_s();
    long_run.is_last = is_last;
    bench_long_hooks = (bench_long){ long_on_step, long_on_last };
    stet_options_init(&options);
    options.lost_max = 1000; /* killed in one body again and again */
    e = bench_worker_with(path, &options);
    stet_start_options_init(&start);
    start.idempotency_key = "the-long-one";
    bench_ok(stet_start(e, &run, "bench.long", stet_text("{}"), &start), "stet_start");
    bench_ok(stet_wait(e, NULL, &run, STET_NONE), "stet_wait");
    bench_worker_close(e);
    raw_close(long_run.hand);
    return 0;
}

void
bench_steps100k(bench_result *r)
{
    char        *path = bench_path("long.db");
    bench_child  c;
    bench_rounds rounds = { .n = 0 };
    double       numbers[1 + 2 * BENCH_ROUNDS], resume_s[LONG_RESUMES], median_s;

    bench_child_start(&c, "long", path);
    bench_child_read(&c, numbers, sizeof numbers / sizeof *numbers);
    bench_child_kill(&c);
    for (size_t i = 0; i < BENCH_ROUNDS; i++)
        bench_rounds_add(&rounds, numbers[1 + 2 * i] * 1e6, numbers[2 + 2 * i] * 1e6);
    for (int i = 0; i < LONG_RESUMES; i++) {
        bool is_last = i == LONG_RESUMES - 1;

        bench_child_start(&c, is_last ? "long-last" : "long", path);
        bench_child_read(&c, numbers, 1);
        resume_s[i] = numbers[0];
        if (is_last)
            bench_child_end(&c);
        else
            bench_child_kill(&c);
    }
    bench_remove(path);
    free(path);
    median_s = bench_percentile(resume_s, LONG_RESUMES, 50);
    snprintf(r->note, sizeof r->note,
             "killed in the last step, back there after %.3f s (slowest %.3f s)", median_s,
             resume_s[LONG_RESUMES - 1]);
    bench_rounds_report(&rounds, r);
    r->unit = "us/step";
    r->ok = r->ratio <= LONG_SLOPE && median_s <= LONG_RESUME_S;
}
