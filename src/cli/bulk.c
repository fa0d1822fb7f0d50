/* The same action on one run, or on all that a filter chooses (--all): with a dry run, a bar on
 * long work, and one run's refusal keeping none of the others.
 *
 * The runs are chosen first and then acted on, so that what the action changes does not change the
 * choice.
 */
#include "cli/cli.h"

#include <unistd.h>

#define BULK_PAGE 500u
#define BULK_BAR 24       /* how wide the bar is */
#define BULK_BAR_MIN 50u  /* fewer are done before anybody looks */
#define BULK_REFUSED_MAX 10u /* told one by one */

void
stet__cli_bar(const char *what, uint64_t done, uint64_t total)
{
    char     cells[BULK_BAR + 1];
    uint64_t full = total > 0 ? done * BULK_BAR / total : 0;

    for (uint64_t i = 0; i < BULK_BAR; i++)
        cells[i] = i < full ? '#' : '.';
    cells[BULK_BAR] = '\0';
    if (total > 0)
        fprintf(stderr, "\r%-10s [%s] %llu/%llu runs \033[K", what, cells, (unsigned long long)done,
                (unsigned long long)total);
    else
        fprintf(stderr, "\r%-10s %llu runs \033[K", what, (unsigned long long)done);
    fflush(stderr);
}

void
stet__cli_bar_end(void)
{
    fprintf(stderr, "\r\033[K");
}

bool
stet__cli_has_bar(const cli *c)
{
    return !c->json && isatty(STDERR_FILENO);
}

/* ---- choosing -------------------------------------------------------------------------------- */

typedef struct bulk {
    cli       *c;
    stet__buf  ids; /* of stet_run_id */
    bool       is_dry;
    cli_table  table;
    int64_t    now_ms;
} bulk;

static const cli_column bulk_columns[] = {
    { "RUN", CLI_CELL_FIXED },     { "HANDLER", CLI_CELL_CUT }, { "KEY", CLI_CELL_CUT },
    { "STATUS", CLI_CELL_STATUS }, { "AGE", CLI_CELL_FIXED },   { "REASON", CLI_CELL_CUT },
};

static size_t
bulk_count(const bulk *b)
{
    return b->ids.len / sizeof(stet_run_id);
}

static stet_run_id
bulk_at(const bulk *b, size_t i)
{
    stet_run_id run;

    memcpy(&run, (const char *)b->ids.data + i * sizeof run, sizeof run);
    return run;
}

static void
bulk_would(bulk *b, const stet_run_info *info)
{
    const char *cells[] = { info->id,
                            info->handler,
                            info->key,
                            stet_status_name(info->status),
                            stet__cli_relative(b->c, info->created_ms, b->now_ms),
                            info->reason };
    cli_json    j;

    if (!b->c->json) {
        stet__cli_table_row(&b->table, cells);
        return;
    }
    stet__cli_json_begin(&j, b->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_run(&j, info);
    stet__cli_json_bool(&j, "dry_run", true);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static int
bulk_keep(void *arg, const stet_run_info *info)
{
    bulk       *b = arg;
    stet_run_id run = { { 0 } };

    (void)snprintf(run.text, sizeof run.text, "%s", info->id);
    stet__buf_add(&b->ids, &run, sizeof run);
    if (b->is_dry)
        bulk_would(b, info);
    return b->ids.failed ? STET_ENOMEM : STET_OK;
}

/* At most --limit, all without one. */
static int
bulk_choose(bulk *b)
{
    cli            *c = b->c;
    stet_run_filter filter;
    stet_run_id     last;
    size_t          most = SIZE_MAX;
    int             exit, err;

    if ((exit = stet__cli_filter_open(c, &filter)) != CLI_OK ||
        (exit = stet__cli_statuses(c, &filter.statuses)) != CLI_OK)
        return exit;
    if (stet__cli_value(c, "limit") != NULL)
        most = filter.limit;
    b->now_ms = stet_engine_now_ms(c->engine);
    do {
        filter.limit = most - bulk_count(b) < BULK_PAGE ? most - bulk_count(b) : BULK_PAGE;
        if (filter.limit == 0)
            break;
        if ((err = stet_run_list(c->engine, &filter, bulk_keep, b)) != STET_OK)
            return stet__cli_fail_code(c, err);
        last = filter.looked->last;
        filter.before = &last;
    } while (!filter.looked->is_all);
    return CLI_OK;
}

/* ---- acting ---------------------------------------------------------------------------------- */

static void
bulk_said(cli *c, const stet_run_id *run, const char *outcome, int err)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", run->text);
    stet__cli_json_text(&j, err == STET_OK ? "done" : "refused",
                        err == STET_OK ? outcome : stet_last_error());
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

/* A run may be in a state in which the action makes no sense, or have ended just now: that is told,
 * keeps none of the others, and is the exit code. A store that fails ends it. */
static bool
bulk_is_refusal(int err)
{
    return err == STET_ESTATE || err == STET_EENDED || err == STET_ESETTLED ||
           err == STET_EEXISTS || err == STET_ENOTFOUND || err == STET_EOPEN || err == STET_EKIND ||
           err == STET_EBUSY;
}

static int
bulk_act(bulk *b, cli_act_fn fn, void *arg, const char *outcome)
{
    cli   *c = b->c;
    size_t n = bulk_count(b), done = 0, refused = 0;
    bool   has_bar = stet__cli_has_bar(c) && n >= BULK_BAR_MIN;
    int    err = STET_OK;

    for (size_t i = 0; i < n; i++) {
        stet_run_id run = bulk_at(b, i);

        if (has_bar && i % 10 == 0)
            stet__cli_bar(c->verb->name, i, n);
        err = fn(c, &run, arg);
        if (err != STET_OK && !bulk_is_refusal(err))
            break;
        done += err == STET_OK;
        refused += err != STET_OK;
        if (c->json)
            bulk_said(c, &run, outcome, err);
        else if (err != STET_OK && refused <= BULK_REFUSED_MAX) {
            if (has_bar)
                stet__cli_bar_end();
            stet__cli_note(c, "%s", stet_last_error());
        }
        err = STET_OK;
    }
    if (has_bar)
        stet__cli_bar_end();
    if (!c->json)
        printf("%zu of %zu %s%s\n", done, n, outcome,
               refused > 0 ? "; the others were left as they are" : "");
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    return refused > 0 ? CLI_STATE : CLI_OK;
}

static int
bulk_all(cli *c, cli_act_fn fn, void *arg, const char *outcome)
{
    const char *handler = stet__cli_value(c, "handler"), *service = stet__cli_value(c, "service");
    bulk        b = { .c = c, .is_dry = stet__cli_has(c, "dry-run") };
    int         exit;

    stet__buf_init(&b.ids, c->alloc);
    stet__cli_table_begin(&b.table, c, bulk_columns, sizeof bulk_columns / sizeof *bulk_columns);
    exit = bulk_choose(&b);
    stet__cli_table_end(&b.table);
    if (exit == CLI_OK && b.is_dry && !c->json)
        stet__cli_note(c, "dry run: %zu run%s chosen, nothing was done", bulk_count(&b),
                       bulk_count(&b) == 1 ? " is" : "s are");
    else if (exit == CLI_OK && !b.is_dry)
        exit = bulk_act(&b, fn, arg, outcome);
    if (exit == CLI_OK && bulk_count(&b) == 0 && (handler != NULL || service != NULL))
        stet__cli_note_unknown(c, handler != NULL ? handler : service, "");
    stet__buf_free(&b.ids);
    return exit;
}

/* Without anything that chooses, "all" is too easily said. */
static bool
bulk_has_filter(const cli *c)
{
    static const char *const names[] = { "handler", "service",          "key",
                                         "label",   "since",            "until",
                                         "text",    "waits-for-signal", "waits-for-topic",
                                         "status",  "limit" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (stet__cli_has(c, names[i]))
            return true;
    return false;
}

int
stet__cli_act_one(cli *c, stet_run_id *run)
{
    int exit;

    if (c->n_args == 0)
        return stet__cli_fail(c, CLI_USAGE, "which run? %s %s RUN …, or --all with a filter",
                              c->program, c->verb->name);
    if (stet__cli_has(c, "dry-run") || bulk_has_filter(c))
        return stet__cli_fail(c, CLI_USAGE, "filters and --dry-run go with --all, not with a RUN");
    if ((exit = stet__cli_run_id(c, c->args[0], run)) != CLI_OK)
        return exit;
    return stet__cli_open(c);
}

int
stet__cli_act(cli *c, cli_act_fn fn, void *arg, const char *outcome)
{
    stet_run_id run;
    int         exit;

    if (stet__cli_has(c, "all")) {
        if (!bulk_has_filter(c))
            return stet__cli_fail(
                c, CLI_USAGE,
                "--all: of which runs? Choose with --status, --handler, --service, "
                "--key, --label, --text, --since or --limit, and look with --dry-run "
                "first");
        return bulk_all(c, fn, arg, outcome);
    }
    if ((exit = stet__cli_act_one(c, &run)) != CLI_OK)
        return exit;
    return stet__cli_done(c, fn(c, &run, arg), "run", run.text, outcome);
}

const char *
stet__cli_act_arg(const cli *c, size_t i)
{
    return stet__cli_arg(c, i + (stet__cli_has(c, "all") ? 0 : 1));
}
