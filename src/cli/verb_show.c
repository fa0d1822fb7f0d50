/* show and why: one run for people. A block of its fields, the journal as a timeline with times
 * since its creation, and at the end the verdict: what it waits for and the command that helps. */
#include "cli/cli.h"

#include <string.h>

/* ---- why ------------------------------------------------------------------------------------ */

static void
show_why(cli *c, const cli_why *why)
{
    stet__cli_paint(c, CLI_BOLD, stet__cli_clean(c, stet_text(why->text ? why->text : "")));
    putchar('\n');
    if (why->help != NULL)
        printf("  try: %s\n", stet__cli_clean(c, stet_text(why->help)));
}

static void
show_why_json(cli_json *j, const cli_why *why)
{
    stet__cli_json_text(j, "kind", why->kind);
    stet__cli_json_text(j, "text", why->text);
    stet__cli_json_text(j, "help", why->help);
}

/* The run the first argument names, and why it is where it is. */
static int
show_read(cli *c, stet_run_id *run, stet_run_info **info, cli_why *why)
{
    int exit;

    if ((exit = stet__cli_run_id(c, c->args[0], run)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK || (exit = stet__cli_run_read(c, run, info)) != CLI_OK)
        return exit;
    return stet__cli_why_get(c, run, why);
}

static int
why_run(cli *c)
{
    stet_run_id    run;
    stet_run_info *info;
    cli_why        why;
    cli_json       j;
    int            exit;

    if ((exit = show_read(c, &run, &info, &why)) != CLI_OK)
        return exit;
    if (c->json) {
        stet__cli_json_begin(&j, c);
        stet__cli_json_open(&j, NULL, '{');
        stet__cli_json_text(&j, "run", run.text);
        stet__cli_json_text(&j, "status", stet_status_name(info->status));
        stet__cli_json_bool(&j, "served", info->is_served);
        show_why_json(&j, &why);
        stet__cli_json_close(&j, '}');
        stet__cli_json_end(&j, stdout);
        return CLI_OK;
    }
    show_why(c, &why);
    stet__cli_note_unserved(c, info);
    return CLI_OK;
}

const cli_verb stet__cli_why = {
    .name = "why",
    .args = "RUN",
    .summary = "say in one sentence why a run is where it is",
    .details = "    stet why run_…",
    .args_min = 1,
    .args_max = 1,
    .fn = why_run,
};

/* ---- the block of fields -------------------------------------------------------------------- */

#define SHOW_LABEL_COLUMNS 12

static void
show_field(cli *c, const char *label, const char *text)
{
    size_t room = c->width == SIZE_MAX || c->width < SHOW_LABEL_COLUMNS + 20
                      ? SIZE_MAX
                      : c->width - SHOW_LABEL_COLUMNS - 2;

    if (text == NULL || *text == '\0')
        return;
    printf("  ");
    stet__cli_paint(c, CLI_DIM, label);
    printf("%*s%s\n", (int)(SHOW_LABEL_COLUMNS - strlen(label)), "",
           stet__cli_cut(c, stet__cli_clean(c, stet_text(text)), room));
}

static void
show_time(cli *c, const char *label, int64_t ms, int64_t now_ms)
{
    if (ms != 0)
        show_field(c, label, stet__cli_when(c, ms, now_ms));
}

static const char *
show_error(cli *c, const stet_run_info *info)
{
    const char *code = info->code ? stet_code_name(info->code) : NULL;

    if (info->error == NULL && info->code == 0)
        return NULL;
    if (code == NULL)
        code = info->code ? stet__cli_printf(c, "code %d", info->code) : "";
    return stet__cli_printf(c, "%s%s%s%s%s%s", info->error ? info->error : "",
                            info->error ? " (" : "", code, info->origin ? ", in " : "",
                            info->origin ? info->origin : "", info->error ? ")" : "");
}

static void
show_fields(cli *c, const stet_run_info *info, int64_t now_ms)
{
    bool is_open = !stet_status_is_terminal(info->status);

    stet__cli_paint(c, CLI_BOLD, info->id);
    printf("  %s  ", stet__cli_clean(c, stet_text(info->handler)));
    stet__cli_paint(c, stet__cli_status_style(info->status), stet_status_name(info->status));
    putchar('\n');
    show_field(c, "key", info->key);
    show_field(c, "reason", info->reason);
    show_field(c, "attempt", stet__cli_printf(c, "%u of %u", info->attempt, info->attempts_max));
    show_time(c, "created", info->created_ms, now_ms);
    show_time(c, "eligible", info->eligible_ms != info->created_ms ? info->eligible_ms : 0, now_ms);
    show_time(c, "began", info->begun_ms, now_ms);
    if (info->generation > 0)
        show_field(c, "generation",
                   stet__cli_printf(c, "%llu", (unsigned long long)info->generation));
    show_time(c, "began anew", info->began_ms, now_ms);
    show_time(c, "due", is_open ? info->due_ms : 0, now_ms);
    show_time(c, "ended", info->ended_ms, now_ms);
    show_time(c, "deadline", info->deadline_ms, now_ms);
    show_field(c, "worker", info->worker);
    show_field(c, "parent", info->parent);
    show_field(c, "retry of", info->retry_of);
    show_field(c, "retried by", info->retried_by);
    show_field(c, "idempotency", info->idempotency_key);
    show_field(c, "labels", info->labels);
    if (info->schedule != NULL)
        show_field(c, "schedule",
                   stet__cli_printf(c, "%s, planned for %.23sZ", info->schedule,
                                    stet__cli_when(c, info->planned_ms, info->planned_ms)));
    show_field(c, "trace", info->traceparent);
    show_field(c, "group", info->group);
    if (info->priority != 0)
        show_field(c, "priority", stet__cli_printf(c, "%d", info->priority));
    if (info->lost > 0)
        show_field(c, "lost",
                   stet__cli_printf(c, "%zu worker%s died executing it", info->lost,
                                    info->lost == 1 ? "" : "s"));
    show_field(c, "input", stet__cli_payload_text(c, info->input));
    show_field(c, "result", stet__cli_payload_text(c, info->result));
    show_field(c, "error", show_error(c, info));
}

/* ---- the timeline --------------------------------------------------------------------------- */

typedef struct show_facts {
    cli      *c;
    cli_table table;
    cli_json *json;
    int64_t   created_ms, now_ms;
    bool      with_payloads;
    stet__buf payloads; /* full values, printed behind the table */
} show_facts;

static void
show_detail_add(stet__buf *detail, const char *text)
{
    if (text != NULL && *text != '\0')
        stet__buf_printf(detail, "%s%s", detail->len ? "  " : "", text);
}

static const char *
show_fact_detail(show_facts *s, const stet_fact_info *fact)
{
    cli        *c = s->c;
    const char *code = fact->code ? stet_code_name(fact->code) : NULL, *text;
    size_t      len = fact->value_len;
    stet__buf   detail;

    stet__buf_init(&detail, c->alloc);
    show_detail_add(&detail, fact->is_corrupt ? "DAMAGED: kept, never replayed" : NULL);
    show_detail_add(&detail, fact->is_at_risk ? "AT RISK: may have happened twice" : NULL);
    if (fact->code != 0)
        show_detail_add(&detail, code ? code : stet__cli_printf(c, "code %d", fact->code));
    show_detail_add(&detail, fact->text);
    show_detail_add(&detail,
                    fact->until_ms ? stet__cli_relative(c, fact->until_ms, s->now_ms) : NULL);
    show_detail_add(&detail, fact->run);
    if (strcmp(fact->kind, "switch") == 0 && fact->text != NULL)
        len = 0; /* its branch is both text and value, and is said already */
    if (len > 0 && fact->value.len > 0 && !s->with_payloads)
        show_detail_add(&detail, stet__cli_payload_text(c, fact->value));
    else if (len > 0)
        show_detail_add(&detail, stet__cli_printf(c, "%zu bytes", len));
    text = stet__arena_str(c->arena, stet__buf_cstr(&detail));
    stet__buf_free(&detail);
    return text;
}

static const char *
show_fact_name(cli *c, const stet_fact_info *fact)
{
    /* An await is named after what it awaits, which has its number already. */
    if (fact->name == NULL || fact->occurrence == 0 || strchr(fact->name, '#') != NULL)
        return fact->name;
    return stet__cli_printf(c, "%s#%llu", fact->name, (unsigned long long)fact->occurrence);
}

static const char *
show_fact_mark(const stet_fact_info *fact)
{
    if (fact->is_corrupt || fact->is_at_risk)
        return "!";
    if (fact->code != 0)
        return "x";
    return fact->inbox != 0 ? "<" : "-";
}

static void
show_fact_row(show_facts *s, const stet_fact_info *fact)
{
    const char *cells[] = {
        fact->revision ? stet__cli_printf(s->c, "%llu", (unsigned long long)fact->revision)
                       : "inbox",
        stet__cli_printf(s->c, "+%s", stet__cli_span(s->c, fact->time_ms - s->created_ms)),
        show_fact_mark(fact),
        fact->kind,
        show_fact_name(s->c, fact),
        show_fact_detail(s, fact),
    };

    stet__cli_table_row(&s->table, cells);
    if (!s->with_payloads || fact->value.len == 0)
        return;
    stet__buf_printf(&s->payloads, "\n%llu %s %s\n", (unsigned long long)fact->revision, fact->kind,
                     cells[4] ? stet__cli_clean(s->c, stet_text(cells[4])) : "");
    stet__buf_str(&s->payloads, stet__cli_payload_text(s->c, fact->value));
    stet__buf_byte(&s->payloads, '\n');
}

static void
show_fact_json(cli_json *j, const stet_fact_info *fact)
{
    stet__cli_json_open(j, NULL, '{');
    stet__cli_json_int(j, "revision", (int64_t)fact->revision);
    stet__cli_json_int(j, "inbox", (int64_t)fact->inbox);
    stet__cli_json_time(j, "time_ms", fact->time_ms);
    stet__cli_json_text(j, "kind", fact->kind);
    stet__cli_json_text(j, "name", fact->name);
    stet__cli_json_int(j, "occurrence", (int64_t)fact->occurrence);
    stet__cli_json_text(j, "code", fact->code ? stet_code_name(fact->code) : NULL);
    stet__cli_json_int(j, "number", fact->code);
    stet__cli_json_text(j, "text", fact->text);
    stet__cli_json_payload(j, "value", fact->value);
    stet__cli_json_int(j, "value_len", (int64_t)fact->value_len);
    stet__cli_json_time(j, "until_ms", fact->until_ms);
    stet__cli_json_text(j, "run", fact->run);
    stet__cli_json_bool(j, "at_risk", fact->is_at_risk);
    stet__cli_json_bool(j, "corrupt", fact->is_corrupt);
    stet__cli_json_close(j, '}');
}

static int
show_each(void *arg, const stet_fact_info *fact)
{
    show_facts *s = arg;

    if (s->json != NULL)
        show_fact_json(s->json, fact);
    else
        show_fact_row(s, fact);
    return STET_OK;
}

static const cli_column show_columns[] = {
    { "#", CLI_CELL_FIXED },    { "TIME", CLI_CELL_FIXED }, { " ", CLI_CELL_FIXED },
    { "FACT", CLI_CELL_FIXED }, { "NAME", CLI_CELL_CUT },   { "DETAIL", CLI_CELL_CUT },
};

static int
show_people(cli *c, const stet_run_id *run, const stet_run_info *info, const cli_why *why)
{
    show_facts s = { .c = c,
                     .created_ms = info->created_ms,
                     .now_ms = stet_engine_now_ms(c->engine),
                     .with_payloads = stet__cli_has(c, "payloads") };
    int        err;

    show_fields(c, info, s.now_ms);
    putchar('\n');
    stet__buf_init(&s.payloads, c->alloc);
    stet__cli_table_begin(&s.table, c, show_columns, sizeof show_columns / sizeof *show_columns);
    err = stet_run_facts(c->engine, run, true, show_each, &s);
    stet__cli_table_end(&s.table);
    fwrite(stet__buf_cstr(&s.payloads), 1, s.payloads.len, stdout);
    stet__buf_free(&s.payloads);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    putchar('\n');
    show_why(c, why);
    stet__cli_note_unserved(c, info);
    return CLI_OK;
}

static int
show_programs(cli *c, const stet_run_id *run, const stet_run_info *info, const cli_why *why)
{
    cli_json   j;
    show_facts s = { .c = c, .json = &j };
    int        err;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_run(&j, info);
    stet__cli_json_text(&j, "worker", info->worker);
    stet__cli_json_time(&j, "begun_ms", info->begun_ms);
    stet__cli_json_open(&j, "journal", '[');
    err = stet_run_facts(c->engine, run, true, show_each, &s);
    if (err != STET_OK) {
        stet__buf_free(&j.buf);
        return stet__cli_fail_code(c, err);
    }
    stet__cli_json_close(&j, ']');
    stet__cli_json_open(&j, "why", '{');
    show_why_json(&j, why);
    stet__cli_json_close(&j, '}');
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return CLI_OK;
}

static int
show_run(cli *c)
{
    stet_run_id    run;
    stet_run_info *info;
    cli_why        why;
    int            exit;

    if ((exit = show_read(c, &run, &info, &why)) != CLI_OK)
        return exit;
    return c->json ? show_programs(c, &run, info, &why) : show_people(c, &run, info, &why);
}

static const cli_option show_options[] = {
    { "payloads", NULL, "every value in full, behind the timeline" },
    { 0 },
};

const cli_verb stet__cli_show = {
    .name = "show",
    .args = "RUN",
    .summary = "show one run: its fields, its journal, what it waits for",
    .details =
        "Marks in the timeline: x a failure, ! a step that may have happened twice or a damaged\n"
        "record, < something that came from outside.\n"
        "    stet show run_… --payloads",
    .args_min = 1,
    .args_max = 1,
    .options = show_options,
    .fn = show_run,
};
