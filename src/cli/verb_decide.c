/* approve, reject: what people decide (resume: verb_operate.c); waits: who waits, and for what. */
#include "cli/cli.h"

#include <string.h>

static int
decide_run(cli *c, bool is_approved, const char *note)
{
    const char *name = stet__cli_value(c, "name"), *by = stet__cli_by(c);
    stet_run_id run;
    int         exit, err;

    if ((exit = stet__cli_run_id(c, c->args[0], &run)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    err = name != NULL  ? stet_run_decide(c->engine, &run, name, is_approved, by, note)
          : is_approved ? stet_run_approve(c->engine, &run, by, note)
                        : stet_run_reject(c->engine, &run, by, note);
    return stet__cli_done(c, err, "run", run.text, is_approved ? "approved" : "rejected");
}

static const cli_option decide_options[] = {
    { "name", "NAME", "of the approval: no other is decided" },
    { "by", "WHO", "who decides (the user)" },
    { "note", "TEXT", "what they say, for the handler and the journal" },
    { 0 },
};

static int
approve_run(cli *c)
{
    return decide_run(c, true, stet__cli_value(c, "note"));
}

const cli_verb stet__cli_approve = {
    .name = "approve",
    .args = "RUN",
    .summary = "approve what a run waits for",
    .details =
        "The first decision stands; another one is told who decided. `waits` lists the runs.\n"
        "    stet approve run_… --name manager --note 'within budget'",
    .args_min = 1,
    .args_max = 1,
    .options = decide_options,
    .fn = approve_run,
};

/* A run's approval, or an awakeable. */
static int
reject_run(cli *c)
{
    const char *text = stet__cli_arg(c, 1);
    int         exit;

    if (strncmp(c->args[0], "awk_", 4) != 0)
        return decide_run(c, false, text ? text : stet__cli_value(c, "note"));
    if (text == NULL)
        return stet__cli_fail(c, CLI_USAGE, "reject %s: say with what error: reject AWAKEABLE TEXT",
                              c->args[0]);
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    return stet__cli_done(c, stet_reject(c->engine, c->args[0], text), "awakeable", c->args[0],
                          "rejected");
}

const cli_verb stet__cli_reject = {
    .name = "reject",
    .args = "RUN|AWAKEABLE [TEXT]",
    .summary = "reject what a run waits for, or settle an awakeable with an error",
    .details = "    stet reject run_… 'too dear' --by boss\n"
               "    stet reject awk_… 'the card was refused'",
    .args_min = 1,
    .args_max = 2,
    .options = decide_options,
    .fn = reject_run,
};

/* ---- waits ----------------------------------------------------------------------------------- */

static const cli_column people_columns[] = {
    { "RUN", CLI_CELL_FIXED },   { "KIND", CLI_CELL_FIXED },   { "NAME", CLI_CELL_CUT },
    { "SINCE", CLI_CELL_FIXED }, { "METADATA", CLI_CELL_CUT },
};

static const cli_column waits_columns[] = {
    { "RUN", CLI_CELL_FIXED },     { "HANDLER", CLI_CELL_CUT }, { "KEY", CLI_CELL_CUT },
    { "WAITS FOR", CLI_CELL_CUT }, { "AGE", CLI_CELL_FIXED },
};

typedef struct waits_list {
    cli        *c;
    cli_table   table;
    int64_t     now_ms;
    const char *part; /* of what it waits for; NULL: any */
    size_t      n, seen;
    const char *last;
} waits_list;

static int
waits_person(void *arg, const stet_boundary *b)
{
    waits_list *l = arg;
    const char *kind = b->is_approval ? "approval" : "pause";
    const char *cells[] = { b->run, kind, b->name, stet__cli_relative(l->c, b->since_ms, l->now_ms),
                            stet__cli_payload_text(l->c, b->metadata) };
    cli_json    j;

    if (l->part != NULL && strstr(b->name, l->part) == NULL)
        return STET_OK;
    l->n++;
    if (!l->c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_begin(&j, l->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", b->run);
    stet__cli_json_text(&j, "kind", kind);
    stet__cli_json_text(&j, "name", b->name);
    stet__cli_json_time(&j, "since_ms", b->since_ms);
    stet__cli_json_payload(&j, "metadata", b->metadata);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
waits_each(void *arg, const stet_run_info *info)
{
    waits_list *l = arg;
    const char *reason = info->reason != NULL ? info->reason : "";
    const char *cells[] = { info->id, info->handler, info->key, reason,
                            stet__cli_relative(l->c, info->created_ms, l->now_ms) };
    cli_json    j;

    l->seen++;
    l->last = stet__arena_str(l->c->arena, info->id);
    if (l->part != NULL && strstr(reason, l->part) == NULL)
        return STET_OK;
    l->n++;
    if (!l->c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_begin(&j, l->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", info->id);
    stet__cli_json_text(&j, "handler", info->handler);
    stet__cli_json_text(&j, "key", info->key);
    stet__cli_json_text(&j, "waits_for", reason);
    stet__cli_json_time(&j, "created_ms", info->created_ms);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
waits_run(cli *c)
{
    waits_list      l = { .c = c };
    stet_run_filter filter;
    bool            is_people = stet__cli_has(c, "people");
    int             exit, err;

    if ((exit = stet__cli_filter_open(c, &filter)) != CLI_OK)
        return exit;
    l.part = stet__cli_value(c, "for");
    l.now_ms = stet_engine_now_ms(c->engine);
    filter.statuses = 1u << STET_STATUS_SUSPENDED;
    stet__cli_table_begin(&l.table, c, is_people ? people_columns : waits_columns,
                          is_people ? sizeof people_columns / sizeof *people_columns
                                    : sizeof waits_columns / sizeof *waits_columns);
    err = is_people ? stet_boundary_list(c->engine, waits_person, &l)
                    : stet_run_list(c->engine, &filter, waits_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, is_people ? "no run waits for a person" : "no run waits%s",
                       l.part != NULL ? " for that" : "");
    if (!is_people && l.seen == filter.limit)
        stet__cli_note(c, "looked at the newest %zu that wait; the next ones: --before %s", l.seen,
                       l.last);
    return CLI_OK;
}

static const cli_option waits_options[] = {
    { "people", NULL, "only approvals and pauses, with what is to be decided" },
    { "for", "TEXT", "only waits that have this text in what they wait for" },
    CLI_FILTER_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_waits = {
    .name = "waits",
    .args = "",
    .summary = "who waits, and for what",
    .details = "    stet waits --for 'signal wait paid'\n"
               "    stet waits --people",
    .options = waits_options,
    .fn = waits_run,
};
