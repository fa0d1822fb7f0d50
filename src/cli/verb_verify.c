/* verify: check the whole store, name what breaks which rule, and with --repair set it right. */
#include "cli/cli.h"

static const cli_column verify_columns[] = {
    { "RUN", CLI_CELL_FIXED },   { "REVISION", CLI_CELL_FIXED }, { "RULE", CLI_CELL_FIXED },
    { "FINDING", CLI_CELL_CUT }, { "REPAIRED", CLI_CELL_FIXED },
};
#define VERIFY_COLUMNS (sizeof verify_columns / sizeof *verify_columns)

typedef struct verify_list {
    cli      *c;
    cli_table table;
    cli_json  json;
    size_t    n, repaired;
} verify_list;

static int
verify_each(void *arg, const stet_finding *finding)
{
    verify_list *l = arg;
    const char  *cells[] = {
         finding->run,
        finding->revision ? stet__cli_printf(l->c, "%llu", (unsigned long long)finding->revision)
                           : NULL,
         finding->rule,
         finding->text,
        finding->is_repaired ? "yes" : "no",
    };

    l->n++;
    l->repaired += finding->is_repaired;
    if (!l->c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_open(&l->json, NULL, '{');
    stet__cli_json_text(&l->json, "run", finding->run);
    stet__cli_json_int(&l->json, "revision", (int64_t)finding->revision);
    stet__cli_json_text(&l->json, "rule", finding->rule);
    stet__cli_json_text(&l->json, "text", finding->text);
    if (l->c->has_repair)
        stet__cli_json_bool(&l->json, "repaired", finding->is_repaired);
    stet__cli_json_close(&l->json, '}');
    return STET_OK;
}

static int
verify_run(cli *c)
{
    verify_list l = { .c = c };
    size_t      checked = 0;
    int         exit, err;

    c->has_repair = stet__cli_has(c, "repair");
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    stet__cli_table_begin(&l.table, c, verify_columns, VERIFY_COLUMNS - (c->has_repair ? 0 : 1));
    stet__cli_json_begin(&l.json, c);
    stet__cli_json_open(&l.json, NULL, '{');
    stet__cli_json_open(&l.json, "findings", '[');
    err = c->has_repair ? stet_repair(c->engine, &checked, verify_each, &l)
                        : stet_verify(c->engine, &checked, verify_each, &l);
    stet__cli_json_close(&l.json, ']');
    stet__cli_json_int(&l.json, "checked", (int64_t)checked);
    if (c->has_repair)
        stet__cli_json_int(&l.json, "repaired", (int64_t)l.repaired);
    stet__cli_json_close(&l.json, '}');
    stet__cli_table_end(&l.table);
    if (err == STET_OK && c->json)
        stet__cli_json_end(&l.json, stdout);
    stet__buf_free(&l.json.buf);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (!c->json)
        printf("%zu run%s checked, %zu finding%s", checked, checked == 1 ? "" : "s", l.n,
               l.n == 1 ? "" : "s");
    if (!c->json && c->has_repair)
        printf(", %zu repaired", l.repaired);
    if (!c->json)
        printf("\n");
    return l.n > l.repaired ? CLI_NEGATIVE : CLI_OK;
}

static const cli_option verify_options[] = {
    { "repair", NULL, "set right what is found, from the facts; exit code 1 if something stays" },
    { 0 },
};

const cli_verb stet__cli_verify = {
    .name = "verify",
    .args = "",
    .summary = "check every run of the store; exit code 1 if something is wrong",
    .details =
        "Facts are readable; rows, timers, lanes, keys and state equal what the facts say; every "
        "open run\n"
        "has a wake-up source and every running one a live owner. Workers may be at work, except "
        "when a\n"
        "whole table was lost: then --repair must be alone.\n"
        "    stet verify --db shop.db",
    .options = verify_options,
    .fn = verify_run,
};
