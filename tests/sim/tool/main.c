/* The simulator as a program: `stet-sim [--seed N] [--seeds N] [--seconds N] [--large]
 * [--verbose]`.
 *
 * Prints what was simulated. The first seed that fails ends it with its story, unless --keep-going.
 * /
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fleet/fleet.h"

/* Results of waits are the caller's and come from malloc(); a node that crashes loses them. */
const char *__lsan_default_suppressions(void);
const char *
__lsan_default_suppressions(void)
{
    return "leak:wait_fill\n";
}

static volatile uint64_t tool_seed;

/* An assertion or a bad access inside the engine: say which seed it was. */
static void
tool_on_signal(int number)
{
    char     text[64] = "seed ";
    size_t   n = 5, digits = 1;
    uint64_t seed = tool_seed;

    for (uint64_t s = seed; s >= 10; s /= 10)
        digits++;
    for (size_t i = digits; i > 0; i--, seed /= 10)
        text[n + i - 1] = (char)('0' + seed % 10);
    n += digits;
    memcpy(text + n, " crashed the simulator\n", 23);
    if (write(2, text, n + 23) < 0)
        _exit(3);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static double
tool_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
tool_print(const fleet_stats *s, uint64_t seeds, double took)
{
    uint64_t ops = 0;

    for (int i = 0; i < FLEET_OPS; i++)
        ops += s->ops[i];
    printf("%" PRIu64 " seeds in %.1f s: %.0f a second, %.3f simulated years\n", seeds, took,
           (double)seeds / (took > 0 ? took : 1), (double)s->virtual_us / 1e6 / 86400 / 365.25);
    printf("%" PRIu64 " runs, %" PRIu64 " operations, %" PRIu64 " bodies, %" PRIu64
           " commits, %" PRIu64 " facts, %" PRIu64 " outcomes checked\n",
           s->runs, ops, s->bodies, s->commits, s->facts, s->checks);
    printf("started: one at a time %" PRIu64 ", several %" PRIu64 ", invoked %" PRIu64 "; %" PRIu64
           " polls, %" PRIu64 " exit hooks\n",
           s->ways[0], s->ways[1], s->ways[2], s->polls, s->exits);
    printf("operators: skip %" PRIu64 ", edit %" PRIu64 ", rewind %" PRIu64 ", fork %" PRIu64
           ", decide %" PRIu64 "\n",
           s->deeds[0], s->deeds[1], s->deeds[2], s->deeds[3], s->deeds[4]);
    printf("updates %" PRIu64 ", answers to them %" PRIu64 ", queries %" PRIu64 "\n", s->updates,
           s->answers, s->queries);
    printf("%" PRIu64 " handlers and services paused\n", s->holds);
    printf("schedules: fired %" PRIu64 ", skipped %" PRIu64 ", made or changed %" PRIu64 "\n",
           s->firings, s->skips, s->schedules);
    printf("classifiers: permanent %" PRIu64 ", deferred %" PRIu64 "\n", s->judged, s->deferred);
    printf("%" PRIu64 " audit entries told, %" PRIu64 " of them again\n", s->tales, s->retold);
    printf("%" PRIu64 " reasons of why and %" PRIu64 " waiting executions compared with the records\n", s->reasons,
           s->parked);
    printf("%" PRIu64 " histories of keys with an order, %" PRIu64 " undecided\n",
           s->orders - s->undecided, s->undecided);
    printf("%" PRIu64 " recoveries, %" PRIu64 " of %" PRIu64
           " open runs bound to come to one end\n",
           s->recoveries, s->recovered, s->left);
    printf("operations:");
    for (int i = 0; i < FLEET_OPS; i++)
        printf(" %s %" PRIu64 "%s", fleet_op_names[i], s->ops[i], i + 1 < FLEET_OPS ? "," : "\n");
    printf("faults:");
    for (int i = 0; i < FLEET_FAULTS; i++)
        printf(" %s %" PRIu64 "%s", fleet_fault_names[i], s->faults[i],
               i + 1 < FLEET_FAULTS ? "," : "\n");
}

int
main(int argc, char **argv)
{
    fleet_options options = { .seed = 1 };
    fleet_stats   stats = { 0 };
    uint64_t      seeds = 1, done = 0, failed = 0, hash = 0;
    double        seconds = 0, start = tool_seconds();
    bool          keeps_going = false;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";

        if (strcmp(argv[i], "--seed") == 0)
            options.seed = strtoull(value, NULL, 10), i++;
        else if (strcmp(argv[i], "--seeds") == 0)
            seeds = strtoull(value, NULL, 10), i++;
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(value, NULL), i++;
        else if (strcmp(argv[i], "--large") == 0)
            options.is_large = true;
        else if (strcmp(argv[i], "--verbose") == 0)
            options.is_verbose = true;
        else if (strcmp(argv[i], "--keep-going") == 0)
            keeps_going = true;
        else {
            fprintf(stderr,
                    "usage: %s [--seed N] [--seeds N] [--seconds N] [--large] [--verbose] "
                    "[--keep-going]\n",
                    argv[0]);
            return 2;
        }
    }
    (void)signal(SIGABRT, tool_on_signal);
    (void)signal(SIGSEGV, tool_on_signal);
    for (; seconds > 0 ? tool_seconds() - start < seconds : done < seeds; done++, options.seed++) {
        tool_seed = options.seed;
        if (fleet_seed(&options, &stats, &hash))
            continue;
        failed++;
        if (!keeps_going)
            break;
    }
    tool_print(&stats, done, tool_seconds() - start);
    if (options.is_verbose)
        printf("the last history: %016" PRIx64 "\n", hash);
    if (failed > 0)
        printf("%" PRIu64 " seeds failed\n", failed);
    return failed > 0;
}
