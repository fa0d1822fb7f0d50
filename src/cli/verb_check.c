/* check: would the runs of a store go on with this program? For pipelines, before it is
 * deployed. */
#include "cli/cli.h"

#include <string.h>

static const cli_column check_columns[] = {
    { "RUN", CLI_CELL_FIXED },    { "HANDLER", CLI_CELL_CUT },   { "FOUND", CLI_CELL_FIXED },
    { "RECORDED", CLI_CELL_CUT }, { "ASKED FOR", CLI_CELL_CUT }, { "WHERE", CLI_CELL_CUT },
    { "DETAIL", CLI_CELL_CUT },
};
#define CHECK_COLUMNS (sizeof check_columns / sizeof *check_columns)

/* Runs of handlers that other programs serve, counted: there may be very many. */
typedef struct check_other {
    struct check_other *next;
    const char         *handler;
    size_t              runs;
} check_other;

typedef struct check_list {
    cli         *c;
    cli_table    table;
    cli_json     json;
    check_other *others;
} check_list;

static void
check_count(check_list *l, const char *handler)
{
    check_other *o = l->others;

    while (o != NULL && strcmp(o->handler, handler) != 0)
        o = o->next;
    if (o == NULL) {
        o = stet__arena_get0(l->c->arena, sizeof *o);
        o->handler = stet__arena_str(l->c->arena, handler);
        o->next = l->others;
        l->others = o;
    }
    o->runs++;
}

/* What the columns before it do not say. */
static const char *
check_detail(cli *c, const stet_replay_report *r)
{
    const char *text = r->recorded == NULL || r->end == STET_REPLAY_FAILED ? r->text : "";

    if (r->assumed == 0)
        return text;
    return stet__cli_printf(c, "%s%sif %llu new operation%s nothing (samples would tell)", text,
                            *text != '\0' ? "; " : "", (unsigned long long)r->assumed,
                            r->assumed == 1 ? " gives" : "s give");
}

static int
check_each(void *arg, const stet_replay_report *r)
{
    check_list *l = arg;
    const char *cells[] = {
        r->run, r->handler, stet_replay_end_name(r->end), r->recorded, r->asked, r->where, NULL,
    };

    if (r->is_fine) {
        check_count(l, r->handler);
        return STET_OK;
    }
    cells[6] = check_detail(l->c, r);
    if (!l->c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_open(&l->json, NULL, '{');
    stet__cli_json_text(&l->json, "run", r->run);
    stet__cli_json_text(&l->json, "handler", r->handler);
    stet__cli_json_text(&l->json, "status", stet_status_name(r->status));
    stet__cli_json_text(&l->json, "found", cells[2]);
    stet__cli_json_text(&l->json, "recorded", r->recorded);
    stet__cli_json_text(&l->json, "asked", r->asked);
    stet__cli_json_text(&l->json, "where", r->where);
    stet__cli_json_text(&l->json, "text", r->text);
    stet__cli_json_int(&l->json, "operations", (int64_t)r->operations);
    stet__cli_json_int(&l->json, "assumed", (int64_t)r->assumed);
    stet__cli_json_close(&l->json, '}');
    return STET_OK;
}

static void
check_print(check_list *l, const stet_check_summary *s)
{
    stet__cli_json_close(&l->json, ']');
    stet__cli_json_open(&l->json, "elsewhere", '[');
    for (const check_other *o = l->others; o != NULL; o = o->next) {
        stet__cli_json_open(&l->json, NULL, '{');
        stet__cli_json_text(&l->json, "handler", o->handler);
        stet__cli_json_int(&l->json, "runs", (int64_t)o->runs);
        stet__cli_json_close(&l->json, '}');
        if (!l->c->json)
            printf("%zu run%s of %s: not of this program\n", o->runs, o->runs == 1 ? "" : "s",
                   o->handler);
    }
    stet__cli_json_close(&l->json, ']');
    stet__cli_json_int(&l->json, "checked", (int64_t)s->checked);
    stet__cli_json_int(&l->json, "stuck", (int64_t)s->stuck);
    stet__cli_json_close(&l->json, '}');
    if (!l->c->json)
        printf("%zu open run%s checked, %zu would not go on\n", s->checked,
               s->checked == 1 ? "" : "s", s->stuck);
    else
        stet__cli_json_end(&l->json, stdout);
}

static int
check_run(cli *c)
{
    check_list         l = { .c = c };
    stet_check_summary summary;
    stet_check_options options = { .size = sizeof options };
    int                exit, err;

    options.handler = stet__cli_value(c, "handler");
    if (c->app->n_services == 0)
        return stet__cli_fail(c, CLI_USAGE,
                              "%s has no handlers: let the program that is to be deployed check "
                              "(./shop check --db shop.db)",
                              c->name);
    if ((exit = stet__cli_duration(c, "time", &options.time_ms)) != CLI_OK ||
        (exit = stet__cli_number(c, "operations", &options.operations_max, 1, 1000000000)) !=
            CLI_OK)
        return exit;
    c->is_readonly = true;
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    stet__cli_table_begin(&l.table, c, check_columns, CHECK_COLUMNS);
    stet__cli_json_begin(&l.json, c);
    stet__cli_json_open(&l.json, NULL, '{');
    stet__cli_json_open(&l.json, "findings", '[');
    err = stet_check(c->engine, &summary, &options, check_each, &l);
    stet__cli_table_end(&l.table);
    if (err == STET_OK)
        check_print(&l, &summary);
    stet__buf_free(&l.json.buf);
    if (err == STET_ENOHANDLER) /* a wrong word of the command line */
        return stet__cli_fail(c, CLI_USAGE, "%s", stet_last_error());
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    return summary.stuck > 0 ? CLI_NEGATIVE : CLI_OK;
}

static const cli_option check_options[] = {
    { "handler", "HANDLER", "only runs of this handler (orders.checkout), or service (orders)" },
    { "time", "D", "how long one run may take (5s)" },
    { "operations", "N", "so many operations of one run may be new (10000)" },
    { 0 },
};

const cli_verb stet__cli_check = {
    .name = "check",
    .args = "",
    .summary = "replay all open runs with this program's code; exit code 1 if one would get stuck",
    .details =
        "    ./newshop check --db shop.db && deploy newshop\n"
        "\n"
        "Reads only, beside workers if they are at work; nothing is executed but the handlers "
        "themselves,\n"
        "in a child process, against what is recorded: no step body is entered. Listed are runs "
        "whose code\n"
        "asks for something else than is recorded, never comes to it, crashes or does not end, "
        "and runs of\n"
        "handlers this program no longer has.",
    .options = check_options,
    .needs_handlers = true,
    .fn = check_run,
};
