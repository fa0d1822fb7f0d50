/* state get: an object's state from outside. */
#include "cli/cli.h"

static void
state_json(cli *c, const char *name, stet_bytes value)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "service", c->args[0]);
    stet__cli_json_text(&j, "key", c->args[1]);
    stet__cli_json_text(&j, "name", name);
    stet__cli_json_payload(&j, "value", value);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static int
state_one(cli *c)
{
    stet_bytes value = { NULL, 0 };
    int        err = stet_state_read(c->engine, &value, c->args[0], c->args[1], c->args[2]);

    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (c->json) {
        state_json(c, c->args[2], value);
    } else {
        if (value.len > 0)
            fwrite(value.data, 1, value.len, stdout);
        putchar('\n');
    }
    stet_free((void *)(uintptr_t)value.data);
    return CLI_OK;
}

static const cli_column state_columns[] = { { "NAME", CLI_CELL_FIXED }, { "VALUE", CLI_CELL_CUT } };

typedef struct state_list {
    cli      *c;
    cli_table table;
    size_t    n;
} state_list;

static int
state_each(void *arg, const char *name, stet_bytes value)
{
    state_list *l = arg;
    const char *cells[] = { name, stet__cli_payload_text(l->c, value) };

    l->n++;
    if (l->c->json)
        state_json(l->c, name, value);
    else
        stet__cli_table_row(&l->table, cells);
    return STET_OK;
}

static int
state_run(cli *c)
{
    state_list l = { .c = c };
    int        exit, err;

    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    if (c->n_args == 3)
        return state_one(c);
    stet__cli_table_begin(&l.table, c, state_columns, sizeof state_columns / sizeof *state_columns);
    err = stet_state_list(c->engine, c->args[0], c->args[1], state_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "%s %s has no state", c->args[0], c->args[1]);
    return CLI_OK;
}

const cli_verb stet__cli_state_get = {
    .name = "state get",
    .args = "SERVICE KEY [NAME]",
    .summary = "read an object's state: one entry, or all",
    .details = "    stet state get wallet ann balance",
    .args_min = 2,
    .args_max = 3,
    .fn = state_run,
};
