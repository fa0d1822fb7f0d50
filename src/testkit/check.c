/* What holds for every run, and crash everywhere: a workflow once for each point, checked each
 * time.
 */
#include "testkit/kit.h"

#include <stdio.h>
#include <string.h>

/* ---- what holds for every run ---------------------------------------------------------------- */

typedef struct check_look {
    stet_test   *kit;
    stet_engine *engine;
    stet_id     *runs;
    size_t       n;
    int          err; /* STET_OK: nothing found */
    char         text[1536];
} check_look;

static int
check_on_finding(void *arg, const stet_finding *finding)
{
    check_look *look = arg;

    look->err = STET_EPERMANENT;
    (void)snprintf(look->text, sizeof look->text,
                   "the store is not sound: %s, run %s, revision %llu: %s; this is a bug of stet",
                   finding->rule, finding->run != NULL ? finding->run : "-",
                   (unsigned long long)finding->revision, finding->text);
    return STET_END;
}

static int
check_on_run(void *arg, const stet_run_info *info)
{
    check_look *look = arg;
    stet_id    *grown = stet__grow(look->kit->alloc, look->runs, (look->n + 1) * sizeof *grown);

    if (grown == NULL)
        return STET_ENOMEM;
    look->runs = grown;
    if (stet__id_parse(&grown[look->n], STET__ID_RUN, info->id) == STET_OK)
        look->n++;
    if (info->status != STET_STATUS_STUCK || look->err != STET_OK)
        return STET_OK;
    look->err = info->code != STET_OK ? info->code : STET_ESTUCK;
    (void)snprintf(look->text, sizeof look->text, "%s of %s is stuck: %s", info->id, info->handler,
                   info->error != NULL    ? info->error
                   : info->reason != NULL ? info->reason
                                          : "");
    return STET_OK;
}

static int
check_nothing(void *arg, const stet_run_info *info)
{
    (void)arg;
    (void)info;
    return STET_OK;
}

static void
check_starts(check_look *look)
{
    for (size_t i = 0; i < look->kit->n_started && look->err == STET_OK; i++) {
        const stet_run_id *run = &look->kit->started[i];

        if (stet_run_get(look->engine, run, check_nothing, NULL) != STET_ENOTFOUND)
            continue;
        look->err = STET_EPERMANENT;
        (void)snprintf(
            look->text, sizeof look->text,
            "%s was started, the start acknowledged, and now there is no such run; unless it "
            "was removed by its retention this is a bug of stet",
            run->text);
    }
}

static int
check_main(stet_engine *e, void *arg)
{
    check_look *look = arg;
    int         err;

    look->engine = e;
    look->n = 0;
    look->err = STET_OK;
    if ((err = stet_run_list(e, STET_FILTER(.limit = 1000000, .with_payloads = true), check_on_run,
                             look)) != STET_OK)
        return err;
    check_starts(look);
    if (look->err == STET_OK)
        (void)stet_verify(e, NULL, check_on_finding, look);
    return look->err == STET_OK ? STET_OK : stet__fail(look->err, "%s", look->text);
}

static int
check_replays_main(stet_engine *e, void *arg)
{
    check_look *look = arg;
    int         err = STET_OK;

    for (size_t i = 0; i < look->n && err == STET_OK; i++)
        err = stet__kit_replay(e, look->runs[i]);
    return err;
}

/* All but the replays, which execute code of the user's; their runs are in `look`. */
static int
check_promises(stet_test *kit, check_look *look)
{
    int err;

    look->kit = kit;
    if ((err = stet_test_run_until_idle(kit)) != STET_OK)
        return err;
    if (kit->broken[0] != '\0')
        return stet__fail(STET_EPERMANENT, "%s", kit->broken);
    return stet__kit_do(kit, check_main, look, NULL);
}

int
stet_test_check(stet_test *kit)
{
    check_look look = { .n = 0 };
    int        err = stet__kit_enter(kit, "stet_test_check");

    if (err != STET_OK)
        return err;
    if ((err = check_promises(kit, &look)) == STET_OK)
        err = stet__kit_do(kit, check_replays_main, &look, NULL);
    stet__free(kit->alloc, look.runs);
    return err;
}

int
stet_test_fail(stet_test *kit, const char *fmt, ...)
{
    va_list args;
    int     err;

    (void)kit;
    va_start(args, fmt);
    err = stet__failv(STET_EPERMANENT, fmt, args);
    va_end(args);
    return err;
}

/* ---- crash everywhere ------------------------------------------------------------------------ */

typedef struct check_flow {
    stet_test_fn workflow, check;
    void        *arg;
} check_flow;

/* Once, with what was ordered. The promises come first: a run that is stuck says more than the
 * counts that are wrong because of it. The replays come last: code outside of steps runs again in
 * them. */
static int
check_once(stet_test *kit, const check_flow *flow)
{
    check_look look = { .n = 0 };
    int        err;

    if ((err = flow->workflow(kit, flow->arg)) == STET_OK &&
        (err = check_promises(kit, &look)) == STET_OK &&
        (flow->check == NULL || (err = flow->check(kit, flow->arg)) == STET_OK))
        err = stet__kit_do(kit, check_replays_main, &look, NULL);
    stet__free(kit->alloc, look.runs);
    return err;
}

static int
check_bad(const stet_test *kit, stet_test_report *report, uint64_t point, int err)
{
    char text[1024];

    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    report->failed = point;
    (void)snprintf(report->where, sizeof report->where, "%s",
                   point == 0 ? "without any crash" : kit->where);
    if (point == 0)
        (void)snprintf(report->text, sizeof report->text, "%s: %s", report->where, text);
    else
        (void)snprintf(report->text, sizeof report->text,
                       "%s: %s. Just this one again: STET_TEST_OPTIONS(.seed = %llu, .only = %llu)",
                       report->where, text, (unsigned long long)report->seed,
                       (unsigned long long)point);
    return stet__fail(err, "%s", report->text);
}

/* A kit as new with this order; false: it had no such point. */
static bool
check_point(stet_test *kit, const check_flow *flow, stet_test_report *report, uint64_t point,
            int *err)
{
    bool is_hit;

    if (point != 0) {
        stet__kit_end(kit);
        if ((*err = stet__kit_begin(kit)) != STET_OK)
            return false;
    }
    stet_test_crash_at(kit, point);
    *err = check_once(kit, flow);
    is_hit = kit->is_hit || point == 0;
    report->points += kit->is_hit;
    report->crashes += kit->is_dead_hit;
    if (*err != STET_OK && is_hit)
        *err = check_bad(kit, report, point, *err);
    return is_hit;
}

int
stet_test_crash_everywhere(const stet_test_options *options, stet_test_fn workflow,
                           stet_test_fn check, void *arg, stet_test_report *report)
{
    const check_flow flow = { workflow, check, arg };
    stet_test_report own;
    stet_test       *kit;
    uint64_t         only = options != NULL ? options->only : 0;
    int              err = STET_OK;

    if (report == NULL)
        report = &own;
    memset(report, 0, sizeof *report);
    if ((kit = stet_test_new(options)) == NULL)
        return options != NULL && options->size != sizeof *options ? STET_EINVAL : STET_ENOMEM;
    report->seed = kit->options.seed != 0 ? kit->options.seed : 1;
    if (only != 0) {
        if (!check_point(kit, &flow, report, only, &err) && err == STET_OK)
            err = stet__fail(STET_ENOTFOUND,
                             "the workflow has no point %llu with seed %llu, it ends at "
                             "%llu",
                             (unsigned long long)only, (unsigned long long)report->seed,
                             (unsigned long long)kit->points);
    } else
        for (uint64_t point = 0; err == STET_OK; point++)
            if (!check_point(kit, &flow, report, point, &err))
                break;
    stet_test_free(kit);
    return err;
}
