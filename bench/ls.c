/* Lists among a million runs: the newest 50 by each filter a list can have, found or not. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LS_RUNS   1000000
#define LS_PAGE   50
#define LS_ROUNDS 7
#define LS_MOST_S 0.050
#define LS_HOUR   3600000LL

typedef struct ls_case {
    const char     *name;
    stet_run_filter filter;
    size_t          least, most; /* how many it must find */
} ls_case;

static int
ls_count(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(size_t *)arg;
    return 0;
}

/* Seconds, the median. */
static double
ls_measure(stet_engine *e, const ls_case *c)
{
    stet_run_filter filter = c->filter;
    double          rounds[LS_ROUNDS];

    filter.size = sizeof filter;
    for (int i = 0; i < LS_ROUNDS; i++) {
        size_t n = 0;

        rounds[i] = bench_now_s();
        bench_ok(stet_run_list(e, &filter, ls_count, &n), c->name);
        rounds[i] = bench_now_s() - rounds[i];
        if (n < c->least || n > c->most)
            bench_fail("%s: %zu runs were listed, not %zu to %zu", c->name, n, c->least, c->most);
    }
    return bench_percentile(rounds, LS_ROUNDS, 50);
}

static void
ls_measure_all(stet_engine *e, bench_result *r)
{
    int64_t       now_ms = stet_engine_now_ms(e);
    const ls_case cases[] = {
        { "nothing", { .limit = 0 }, LS_PAGE, LS_PAGE },
        { "completed", { .statuses = 1u << STET_STATUS_COMPLETED }, LS_PAGE, LS_PAGE },
        { "suspended", { .statuses = 1u << STET_STATUS_SUSPENDED }, LS_PAGE, LS_PAGE },
        { "pending", { .statuses = 1u << STET_STATUS_PENDING }, LS_PAGE, LS_PAGE },
        { "cancelled (11)", { .statuses = 1u << STET_STATUS_CANCELLED }, 11, 11 },
        { "expired (none)", { .statuses = 1u << STET_STATUS_EXPIRED }, 0, 0 },
        { "stuck (none)", { .statuses = 1u << STET_STATUS_STUCK }, 0, 0 },
        { "handler", { .handler = "bench.steps3" }, LS_PAGE, LS_PAGE },
        { "service", { .handler = "bench" }, LS_PAGE, LS_PAGE },
        { "handler (25)", { .handler = "bench.rare" }, 24, 25 },
        { "handler (none)", { .handler = "bench.absent" }, 0, 0 },
        { "handler (25), failed",
          { .handler = "bench.rare", .statuses = 1u << STET_STATUS_FAILED },
          0,
          3 },
        { "key", { .key = "customer-4242" }, LS_PAGE, LS_PAGE },
        { "key (none)", { .key = "customer-10000" }, 0, 0 },
        { "label", { .label = "tier=gold" }, LS_PAGE, LS_PAGE },
        { "label (none)", { .label = "tier=tin" }, 0, 0 },
        { "since an hour", { .from_ms = now_ms - LS_HOUR }, LS_PAGE, LS_PAGE },
        { "since a minute (none)", { .from_ms = now_ms - LS_HOUR / 60 }, 0, 0 },
        { "until 20 hours ago", { .to_ms = now_ms - 20 * LS_HOUR }, LS_PAGE, LS_PAGE },
        { "before all (none)", { .to_ms = now_ms - 100 * LS_HOUR }, 0, 0 },
        { "failed until 20 hours ago",
          { .to_ms = now_ms - 20 * LS_HOUR, .statuses = 1u << STET_STATUS_FAILED },
          LS_PAGE,
          LS_PAGE },
    };
    const char *slowest = "";

    r->value = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double took_s = ls_measure(e, &cases[i]);

        if (getenv("STET_BENCH_LS") != NULL)
            fprintf(stderr, "%-28s %8.3f ms\n", cases[i].name, took_s * 1000);
        if (took_s > r->value) {
            r->value = took_s;
            slowest = cases[i].name;
        }
    }
    r->ok = r->value < LS_MOST_S;
    r->value *= 1000;
    snprintf(r->note, sizeof r->note, "%zu filters; the slowest: %s", sizeof cases / sizeof *cases,
             slowest);
}

void
bench_ls1m(bench_result *r)
{
    char        *path = bench_path("ls.db");
    stet_engine *e = NULL;
    double       fixture_s = bench_now_s();
    size_t       len;

    bench_fixture_listed(path, LS_RUNS);
    fixture_s = bench_now_s() - fixture_s;
    bench_ok(
        stet_open(&e, path, STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_ERROR)),
        path);
    ls_measure_all(e, r);
    len = strlen(r->note);
    snprintf(r->note + len, sizeof r->note - len, "; fixture loaded in %.0f s", fixture_s);
    stet_close(e);
    bench_remove(path);
    free(path);
    r->unit = "ms";
    r->raw = r->ratio = NAN;
}
