/* dlq ls, dlq retry, dlq discard: runs that failed.
 *
 * --all gathers the list first and acts afterwards, because acting changes the list. */
#include "cli/cli.h"

#include <string.h>

/* ---- dlq ls --------------------------------------------------------------------------------- */

static const cli_column dlq_columns[] = {
    { "RUN", CLI_CELL_FIXED },   { "HANDLER", CLI_CELL_CUT },  { "KEY", CLI_CELL_CUT },
    { "TRIES", CLI_CELL_FIXED }, { "FAILED", CLI_CELL_FIXED }, { "ERROR", CLI_CELL_CUT },
    { "INPUT", CLI_CELL_CUT },
};

typedef struct dlq_list {
    cli      *c;
    cli_table table;
    int64_t   now_ms;
    size_t    n;
} dlq_list;

static int
dlq_each(void *arg, const stet_run_info *info)
{
    dlq_list   *l = arg;
    cli        *c = l->c;
    cli_json    j;
    const char *cells[] = {
        info->id,
        info->handler,
        info->key,
        stet__cli_printf(c, "%u", info->attempt),
        stet__cli_relative(c, info->ended_ms, l->now_ms),
        info->error ? info->error : stet_code_name(info->code),
        stet__cli_payload_text(c, info->input),
    };

    l->n++;
    if (!c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_run(&j, info);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
dlq_ls_run(cli *c)
{
    dlq_list        l = { .c = c };
    stet_run_filter filter;
    int             exit, err;

    if ((exit = stet__cli_filter_open(c, &filter)) != CLI_OK)
        return exit;
    filter.with_payloads = true;
    l.now_ms = stet_engine_now_ms(c->engine);
    stet__cli_table_begin(&l.table, c, dlq_columns, sizeof dlq_columns / sizeof *dlq_columns);
    err = stet_dlq_list(c->engine, &filter, dlq_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "no dead letters");
    stet__cli_note_looked(c, &filter);
    return CLI_OK;
}

/* A run that failed waits for nothing, so these options do not choose by that. */
static const cli_option dlq_ls_options[] = {
    CLI_WHICH_OPTIONS,
    { "look", "N", "with --text: look at so many runs at most (10000)" },
    CLI_WHEN_OPTIONS,
    { "limit", "N", "at most so many (50)" },
    { 0 },
};

const cli_verb stet__cli_dlq_ls = {
    .name = "dlq ls",
    .args = "",
    .summary = "list dead letters: failed runs, newest first",
    .details = "    stet dlq ls --handler orders.checkout",
    .options = dlq_ls_options,
    .fn = dlq_ls_run,
};

/* ---- acting on one or all ------------------------------------------------------------------- */

typedef struct dlq_ids {
    stet__buf ids; /* of stet_run_id */
} dlq_ids;

static int
dlq_keep(void *arg, const stet_run_info *info)
{
    dlq_ids    *d = arg;
    stet_run_id run = { { 0 } };

    memcpy(run.text, info->id, strnlen(info->id, sizeof run.text - 1));
    stet__buf_add(&d->ids, &run, sizeof run);
    return STET_OK;
}

static size_t
dlq_count(const dlq_ids *d)
{
    return d->ids.len / sizeof(stet_run_id);
}

static stet_run_id
dlq_at(const dlq_ids *d, size_t i)
{
    stet_run_id run;

    memcpy(&run, d->ids.data + i * sizeof run, sizeof run);
    return run;
}

#define DLQ_PAGE 500

/* All pages of the list. */
static int
dlq_gather(cli *c, dlq_ids *d, stet_run_filter *filter)
{
    stet_run_id last;
    size_t      before;
    int         err;

    filter->limit = DLQ_PAGE;
    do {
        before = dlq_count(d);
        if ((err = stet_dlq_list(c->engine, filter, dlq_keep, d)) != STET_OK)
            return stet__cli_fail_code(c, err);
        if (dlq_count(d) > before) {
            last = dlq_at(d, dlq_count(d) - 1);
            filter->before = &last;
        }
    } while (dlq_count(d) == before + DLQ_PAGE);
    return CLI_OK;
}

static void
dlq_said(cli *c, const stet_run_id *run, const stet_run_id *retried)
{
    cli_json j;

    if (!c->json) {
        printf("%s %s%s\n", run->text, retried ? "retried by " : "discarded",
               retried ? retried->text : "");
        return;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", run->text);
    if (retried != NULL)
        stet__cli_json_text(&j, "retried_by", retried->text);
    else
        stet__cli_json_bool(&j, "discarded", true);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

/* One failure does not keep the others; the first one is the exit code. */
static int
dlq_act(cli *c, const dlq_ids *d, bool is_retry)
{
    stet_run_id retried;
    int         exit = CLI_OK, one, err;

    for (size_t i = 0; i < dlq_count(d); i++) {
        stet_run_id run = dlq_at(d, i);

        err = is_retry ? stet_run_retry(c->engine, &retried, &run, stet__cli_by(c),
                                        stet__cli_value(c, "why"))
                       : stet_dlq_discard(c->engine, &run);
        if (err == STET_OK) {
            dlq_said(c, &run, is_retry ? &retried : NULL);
        } else {
            one = stet__cli_fail_code(c, err);
            exit = exit == CLI_OK ? one : exit;
        }
    }
    if (dlq_count(d) == 0 && !c->json)
        stet__cli_note(c, "no dead letters");
    return exit;
}

static int
dlq_named(cli *c, dlq_ids *d)
{
    stet_run_id run;
    int         exit = CLI_OK;

    for (size_t i = 0; i < c->n_args && exit == CLI_OK; i++)
        if ((exit = stet__cli_run_id(c, c->args[i], &run)) == CLI_OK)
            stet__buf_add(&d->ids, &run, sizeof run);
    return exit == CLI_OK ? stet__cli_open(c) : exit;
}

static int
dlq_any(cli *c, bool is_retry)
{
    bool            is_all = stet__cli_has(c, "all");
    stet_run_filter filter;
    dlq_ids         d;
    int             exit;

    if (is_all == (c->n_args > 0))
        return stet__cli_fail(c, CLI_USAGE, "which? %s %s RUN, or --all", c->program,
                              c->verb->name);
    if (!is_all && stet__cli_has(c, "handler"))
        return stet__cli_fail(c, CLI_USAGE, "--handler goes with --all");
    memset(&filter, 0, sizeof filter);
    filter.size = sizeof filter;
    filter.handler = stet__cli_value(c, "handler");
    stet__buf_init(&d.ids, c->alloc);
    if (is_all && (exit = stet__cli_open(c)) == CLI_OK)
        exit = dlq_gather(c, &d, &filter);
    else if (!is_all)
        exit = dlq_named(c, &d);
    if (exit == CLI_OK)
        exit = dlq_act(c, &d, is_retry);
    stet__buf_free(&d.ids);
    return exit;
}

static int
dlq_retry_run(cli *c)
{
    return dlq_any(c, true);
}

static int
dlq_discard_run(cli *c)
{
    return dlq_any(c, false);
}

static const cli_option dlq_options[] = {
    { "by", "WHO", "who does it (the user)" }, /* a discard has neither of the two */
    { "why", "TEXT", "why, for the journal of the new run" },
    { "all", NULL, "all dead letters" },
    { "handler", "HANDLER", "with --all: only of this handler or service" },
    { 0 },
};

const cli_verb stet__cli_dlq_retry = {
    .name = "dlq retry",
    .args = "RUN…|--all",
    .summary = "start failed runs again; recorded steps are not repeated",
    .details = "Each becomes a new run with the same input that inherits the recorded steps.\n"
               "    stet dlq retry --all --handler orders.checkout",
    .args_max = SIZE_MAX,
    .options = dlq_options,
    .fn = dlq_retry_run,
};

const cli_verb stet__cli_dlq_discard = {
    .name = "dlq discard",
    .args = "RUN…|--all",
    .summary = "take failed runs out of the dead letters; they stay readable",
    .details = "    stet dlq discard run_…",
    .args_max = SIZE_MAX,
    .options = dlq_options + 2,
    .fn = dlq_discard_run,
};
