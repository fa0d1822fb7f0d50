/* ls: runs in a table, newest first. */
#include "cli/cli.h"

#include <string.h>

static const cli_option ls_options[] = {
    { "status", "A,B", "only in these statuses; \"open\" and \"ended\" stand for several" },
    CLI_FILTER_OPTIONS,
    { "worker", "WORKER", "only what this worker executes or holds at the moment" },
    { "payloads", NULL,
      "with --json: input, result, error, labels, keys and what else facts tell" },
    { 0 },
};

static const cli_column ls_columns[] = {
    { "RUN", CLI_CELL_FIXED },     { "HANDLER", CLI_CELL_CUT }, { "KEY", CLI_CELL_CUT },
    { "STATUS", CLI_CELL_STATUS }, { "TRY", CLI_CELL_FIXED },   { "AGE", CLI_CELL_FIXED },
    { "REASON", CLI_CELL_CUT },
};

typedef struct ls_list {
    cli      *c;
    cli_table table;
    int64_t   now_ms;
    size_t    n;
} ls_list;

static void
ls_row(ls_list *l, const stet_run_info *info)
{
    bool        is_lonely = !info->is_served && !stet_status_is_terminal(info->status);
    const char *reason = info->reason ? info->reason : "";
    const char *cells[] = {
        info->id,
        info->handler,
        info->key,
        stet_status_name(info->status),
        stet__cli_printf(l->c, "%u/%u", info->attempt, info->attempts_max),
        stet__cli_relative(l->c, info->created_ms, l->now_ms),
        is_lonely ? stet__cli_printf(l->c, "%s%sno worker serves it", reason, *reason ? "; " : "")
                  : reason,
    };

    stet__cli_table_row(&l->table, cells);
}

static int
ls_each(void *arg, const stet_run_info *info)
{
    ls_list *l = arg;
    cli_json j;

    l->n++;
    if (!l->c->json) {
        ls_row(l, info);
        return STET_OK;
    }
    stet__cli_json_begin(&j, l->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_run(&j, info);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
ls_run(cli *c)
{
    ls_list         l = { .c = c };
    stet_run_filter filter;
    uint32_t        statuses;
    int             exit, err;

    if ((exit = stet__cli_statuses(c, &statuses)) != CLI_OK ||
        (exit = stet__cli_filter_open(c, &filter)) != CLI_OK)
        return exit;
    filter.statuses = statuses;
    filter.worker = stet__cli_value(c, "worker");
    filter.with_payloads = stet__cli_has(c, "payloads");
    l.now_ms = stet_engine_now_ms(c->engine);
    stet__cli_table_begin(&l.table, c, ls_columns, sizeof ls_columns / sizeof *ls_columns);
    err = stet_run_list(c->engine, &filter, ls_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "no runs");
    stet__cli_note_looked(c, &filter);
    return CLI_OK;
}

const cli_verb stet__cli_ls = {
    .name = "ls",
    .args = "",
    .summary = "list runs, newest first",
    .details = "Statuses: pending running suspended retrying paused stuck cancelling compensating\n"
               "compensation-failed (open), completed failed cancelled expired (ended).\n"
               "    stet ls --status open --since 2h\n"
               "    stet ls --text 4711\n"
               "    stet ls --waits-for-signal paid",
    .options = ls_options,
    .fn = ls_run,
};
