/* verify: check the whole store, and name what breaks which rule. */
#include "cli/cli.h"

static const cli_column verify_columns[] = {
    { "RUN", CLI_CELL_FIXED },
    { "REVISION", CLI_CELL_FIXED },
    { "RULE", CLI_CELL_FIXED },
    { "FINDING", CLI_CELL_CUT },
};

typedef struct verify_list {
    cli      *c;
    cli_table table;
    cli_json  json;
    size_t    n;
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
    };

    l->n++;
    if (!l->c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_open(&l->json, NULL, '{');
    stet__cli_json_text(&l->json, "run", finding->run);
    stet__cli_json_int(&l->json, "revision", (int64_t)finding->revision);
    stet__cli_json_text(&l->json, "rule", finding->rule);
    stet__cli_json_text(&l->json, "text", finding->text);
    stet__cli_json_close(&l->json, '}');
    return STET_OK;
}

static int
verify_run(cli *c)
{
    verify_list l = { .c = c };
    size_t      checked = 0;
    int         exit, err;

    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    stet__cli_table_begin(&l.table, c, verify_columns,
                          sizeof verify_columns / sizeof *verify_columns);
    stet__cli_json_begin(&l.json, c);
    stet__cli_json_open(&l.json, NULL, '{');
    stet__cli_json_open(&l.json, "findings", '[');
    err = stet_verify(c->engine, &checked, verify_each, &l);
    stet__cli_json_close(&l.json, ']');
    stet__cli_json_int(&l.json, "checked", (int64_t)checked);
    stet__cli_json_close(&l.json, '}');
    stet__cli_table_end(&l.table);
    if (err == STET_OK && c->json)
        stet__cli_json_end(&l.json, stdout);
    stet__buf_free(&l.json.buf);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (!c->json)
        printf("%zu run%s checked, %zu finding%s\n", checked, checked == 1 ? "" : "s", l.n,
               l.n == 1 ? "" : "s");
    return l.n > 0 ? CLI_NEGATIVE : CLI_OK;
}

const cli_verb stet__cli_verify = {
    .name = "verify",
    .args = "",
    .summary = "check every run of the store; exit code 1 if something is wrong",
    .details = "Facts are readable, rows equal what the facts say, every open run has a wake-up "
               "source and\n"
               "every running one a live owner.",
    .fn = verify_run,
};
