/* audit: the trail of a run; and the end of mirroring. */
#include "cli/cli.h"

#include <string.h>

typedef struct audit_list {
    cli      *c;
    cli_table table;
    int64_t   since_ms;
    bool      with_payloads;
    size_t    n;
} audit_list;

static const cli_column audit_columns[] = {
    { "ENTRY", CLI_CELL_FIXED },   { "TIME", CLI_CELL_FIXED },  { "TOPIC", CLI_CELL_FIXED },
    { "WHAT", CLI_CELL_CUT },      { "OUTCOME", CLI_CELL_CUT }, { "TOOK", CLI_CELL_FIXED },
    { "STATUS", CLI_CELL_STATUS }, { "TEXT", CLI_CELL_CUT },
};

static void
audit_json(const audit_list *l, const stet_audit_entry *a)
{
    cli_json j;

    stet__cli_json_begin(&j, l->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "id", a->id);
    stet__cli_json_text(&j, "run", a->run);
    stet__cli_json_text(&j, "handler", a->handler);
    stet__cli_json_text(&j, "key", a->key);
    stet__cli_json_time(&j, "time_ms", a->time_ms);
    stet__cli_json_text(&j, "topic", a->topic);
    stet__cli_json_text(&j, "kind", a->kind);
    stet__cli_json_text(&j, "outcome", a->outcome);
    stet__cli_json_text(&j, "name", a->name);
    stet__cli_json_int(&j, "occurrence", (int64_t)a->occurrence);
    stet__cli_json_int(&j, "attempt", (int64_t)a->attempt);
    stet__cli_json_text(&j, "status", stet_status_name(a->status));
    stet__cli_json_bool(&j, "transition", a->is_transition);
    if (a->duration_ms >= 0)
        stet__cli_json_int(&j, "duration_ms", a->duration_ms);
    else
        stet__cli_json_text(&j, "duration_ms", NULL);
    stet__cli_json_time(&j, "until_ms", a->until_ms);
    stet__cli_json_int(&j, "code", a->code);
    stet__cli_json_text(&j, "text", a->text);
    stet__cli_json_text(&j, "who", a->who);
    stet__cli_json_text(&j, "other", a->other);
    stet__cli_json_bool(&j, "inherited", a->is_inherited);
    stet__cli_json_bool(&j, "untaken", a->is_untaken);
    stet__cli_json_int(&j, "value_bytes", (int64_t)a->value.len);
    if (l->with_payloads)
        stet__cli_json_payload(&j, "value", a->value);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static const char *
audit_what(cli *c, const stet_audit_entry *a)
{
    if (a->name == NULL)
        return a->kind;
    if (a->occurrence > 1)
        return stet__cli_printf(c, "%s %s#%llu", a->kind, a->name,
                                (unsigned long long)a->occurrence);
    return stet__cli_printf(c, "%s %s", a->kind, a->name);
}

static const char *
audit_remark(const audit_list *l, const stet_audit_entry *a)
{
    cli        *c = l->c;
    const char *text = a->text != NULL ? a->text : "";

    if (a->who != NULL)
        text = stet__cli_printf(c, "by %s%s%s", a->who, *text != '\0' ? ": " : "", text);
    if (a->other != NULL)
        text = stet__cli_printf(c, "%s%s%s", a->other, *text != '\0' ? " " : "", text);
    if (a->is_untaken)
        text = stet__cli_printf(c, "(not taken yet)%s%s", *text != '\0' ? " " : "", text);
    if (l->with_payloads && a->value.len > 0)
        text = stet__cli_printf(c, "%s%s%s", text, *text != '\0' ? " " : "",
                                stet__cli_payload_text(c, a->value));
    return stet__cli_clean(c, stet_text(text));
}

static int
audit_each(void *arg, const stet_audit_entry *a)
{
    audit_list *l = arg;
    cli        *c = l->c;
    char        time[STET__UTC_MAX];

    if (a->time_ms < l->since_ms)
        return STET_OK;
    l->n++;
    if (c->json)
        audit_json(l, a);
    else {
        const char *cells[] = { strchr(a->id, '/') + 1,
                                stet__utc_text(time, a->time_ms),
                                a->topic,
                                stet__cli_clean(c, stet_text(audit_what(c, a))),
                                a->outcome,
                                a->duration_ms >= 0 ? stet__cli_span(c, a->duration_ms) : NULL,
                                a->is_transition ? stet_status_name(a->status) : NULL,
                                audit_remark(l, a) };

        stet__cli_table_row(&l->table, cells);
    }
    return STET_OK;
}

static int
audit_off(cli *c)
{
    int exit;

    if (c->n_args > 0)
        return stet__cli_fail(c, CLI_USAGE, "audit --off is about the whole store: name no run");
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    return stet__cli_done(c, stet_audit_off(c->engine), "store", stet__cli_shown(c, c->db),
                          "is not mirrored any more");
}

static int
audit_run(cli *c)
{
    audit_list  l = { .c = c, .since_ms = INT64_MIN };
    stet_run_id run;
    bool        is_relative = false;
    int         exit, err;

    if (stet__cli_has(c, "off"))
        return audit_off(c);
    if (c->n_args == 0)
        return stet__cli_fail(c, CLI_USAGE, "audit: name a run, or say --off");
    if ((exit = stet__cli_run_id(c, c->args[0], &run)) != CLI_OK ||
        (exit = stet__cli_since(c, &l.since_ms, &is_relative)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    if (is_relative)
        l.since_ms = stet_engine_now_ms(c->engine) - l.since_ms;
    l.with_payloads = stet__cli_has(c, "payloads");
    stet__cli_table_begin(&l.table, c, audit_columns, sizeof audit_columns / sizeof *audit_columns);
    err = stet_audit_run(c->engine, &run, audit_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "nothing has happened to %s since then", run.text);
    return CLI_OK;
}

static const cli_option audit_options[] = {
    { "since", "WHEN", "only entries since: 2h, or 2030-01-31T12:00:00Z" },
    { "payloads", NULL, "with inputs, results and values" },
    { "off", NULL,
      "no run: end the mirroring of this store; retention waits for no hook any more" },
    { 0 }
};

const cli_verb stet__cli_audit = {
    .name = "audit",
    .args = "[RUN]",
    .summary = "what happened to a run, entry by entry",
    .details =
        "The ID of an entry is the run's, '/' and what stands under ENTRY; it never changes.\n"
        "TOOK is how long a step's body ran, how long a wait took, or a whole run.\n"
        "\n"
        "    stet audit run_…\n"
        "    stet audit run_… --since 1h --json",
    .args_max = 1,
    .options = audit_options,
    .fn = audit_run,
};
