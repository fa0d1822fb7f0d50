/* notes: what a run's handler noted. */
#include "cli/cli.h"

#include <string.h>

typedef struct notes_list {
    cli    *c;
    int64_t now_ms;
    size_t  n;
} notes_list;

static int
notes_each(void *arg, const stet_fact_info *fact)
{
    notes_list *l = arg;
    cli_json    j;

    if (strcmp(fact->kind, "note") != 0)
        return STET_OK;
    l->n++;
    if (!l->c->json) {
        printf("%s  %s\n", stet__cli_when(l->c, fact->time_ms, l->now_ms),
               stet__cli_clean(l->c, stet_text(fact->name != NULL ? fact->name : "")));
        return STET_OK;
    }
    stet__cli_json_begin(&j, l->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_time(&j, "time_ms", fact->time_ms);
    stet__cli_json_int(&j, "revision", (int64_t)fact->revision);
    stet__cli_json_text(&j, "note", fact->name);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
notes_run(cli *c)
{
    notes_list  l = { .c = c };
    stet_run_id run;
    int         exit, err;

    if ((exit = stet__cli_run_id(c, c->args[0], &run)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    l.now_ms = stet_engine_now_ms(c->engine);
    if ((err = stet_run_facts(c->engine, &run, false, notes_each, &l)) != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "%s has noted nothing", run.text);
    return CLI_OK;
}

const cli_verb stet__cli_notes = {
    .name = "notes",
    .args = "RUN",
    .summary = "what a run noted on its way",
    .details = "    stet notes run_…",
    .args_min = 1,
    .args_max = 1,
    .fn = notes_run,
};
