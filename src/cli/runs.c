/* What several verbs say of a run: its fields as JSON, filters over runs, one run read and kept. */
#include "cli/cli.h"

#include <string.h>

/* What only its facts tell. */
static void
runs_json_facts(cli_json *j, const stet_run_info *info)
{
    stet__cli_json_time(j, "eligible_ms", info->eligible_ms);
    stet__cli_json_text(j, "idempotency_key", info->idempotency_key);
    stet__cli_json_open(j, "labels", '[');
    for (const char *const *label = info->label_list; label != NULL && *label != NULL; label++)
        stet__cli_json_text(j, NULL, *label);
    stet__cli_json_close(j, ']');
    stet__cli_json_text(j, "schedule", info->schedule);
    stet__cli_json_time(j, "planned_ms", info->planned_ms);
    stet__cli_json_text(j, "traceparent", info->traceparent);
    stet__cli_json_text(j, "tracestate", info->tracestate);
    stet__cli_json_int(j, "lost", (int64_t)info->lost);
    stet__cli_json_payload(j, "input", info->input);
    stet__cli_json_payload(j, "result", info->result);
}

void
stet__cli_json_run(cli_json *j, const stet_run_info *info)
{
    bool was_read = info->eligible_ms != 0; /* every run has such a time */

    stet__cli_json_text(j, "run", info->id);
    stet__cli_json_text(j, "handler", info->handler);
    stet__cli_json_text(j, "key", info->key);
    stet__cli_json_text(j, "status", stet_status_name(info->status));
    stet__cli_json_text(j, "reason", info->reason);
    stet__cli_json_int(j, "attempt", info->attempt);
    stet__cli_json_int(j, "attempts_max", info->attempts_max);
    stet__cli_json_int(j, "priority", info->priority);
    stet__cli_json_text(j, "group", info->group);
    stet__cli_json_time(j, "created_ms", info->created_ms);
    stet__cli_json_time(j, "due_ms", info->due_ms);
    stet__cli_json_time(j, "ended_ms", info->ended_ms);
    stet__cli_json_time(j, "deadline_ms", info->deadline_ms);
    stet__cli_json_text(j, "parent", info->parent);
    stet__cli_json_text(j, "retry_of", info->retry_of);
    stet__cli_json_text(j, "retried_by", info->retried_by);
    stet__cli_json_int(j, "generation", (int64_t)info->generation);
    stet__cli_json_time(j, "began_ms", info->began_ms);
    stet__cli_json_int(j, "facts", (int64_t)info->facts);
    stet__cli_json_bool(j, "served", info->is_served);
    if (was_read)
        runs_json_facts(j, info);
    if (!was_read && info->code == 0)
        return;
    stet__cli_json_text(j, "code", info->code ? stet_code_name(info->code) : NULL);
    stet__cli_json_int(j, "cause", info->cause);
    stet__cli_json_text(j, "cause_name", info->cause ? stet_code_name(info->cause) : NULL);
    stet__cli_json_text(j, "error", info->error);
    stet__cli_json_text(j, "origin", info->origin);
}

/* How long ago (is_relative) or a time. */
static int
runs_when(cli *c, const char *option, int64_t *ms, bool *is_relative)
{
    const char *text = stet__cli_value(c, option);

    *is_relative = false;
    /* A time first: as a duration a plain number of milliseconds since 1970 would reach back to
     * 1970. */
    if (text == NULL || (strlen(text) >= 10 && stet__cli_time_parse(ms, text)))
        return CLI_OK;
    *is_relative = true;
    if (stet_duration_parse(ms, text) == STET_OK)
        return CLI_OK;
    return stet__cli_fail(c, CLI_USAGE,
                          "--%s %s: expected how long ago (2h), or a time such as "
                          "2030-01-31T12:00:00Z",
                          option, text);
}

int
stet__cli_since(cli *c, int64_t *ms, bool *is_relative)
{
    return runs_when(c, "since", ms, is_relative);
}

/* A page begins behind a run. */
static int
runs_before(cli *c, stet_run_filter *filter)
{
    const char *before = stet__cli_value(c, "before");
    stet_run_id run;
    int         exit;

    if (before == NULL)
        return CLI_OK;
    if ((exit = stet__cli_run_id(c, before, &run)) == CLI_OK)
        filter->before = stet__arena_copy(c->arena, &run, sizeof run);
    return exit;
}

int
stet__cli_filter_open(cli *c, stet_run_filter *filter)
{
    const char *handler = stet__cli_value(c, "handler"), *service = stet__cli_value(c, "service");
    const char *label = stet__cli_value(c, "label");
    const char *text = stet__cli_value(c, "text");
    int64_t     limit = 50, look = 0;
    bool        is_since, is_until;
    int         exit;

    memset(filter, 0, sizeof *filter);
    filter->size = sizeof *filter;
    filter->handler = handler ? handler : service;
    filter->key = stet__cli_value(c, "key");
    filter->label = label;
    filter->text = text;
    if (stet__cli_offers(c, "waits-for-signal")) {
        filter->waits_for_signal = stet__cli_value(c, "waits-for-signal");
        filter->waits_for_topic = stet__cli_value(c, "waits-for-topic");
    }
    filter->looked = stet__arena_get0(c->arena, sizeof *filter->looked);
    if (text != NULL && *text == '\0')
        return stet__cli_fail(c, CLI_USAGE, "--text: which text?");
    if (stet__cli_has(c, "look") && text == NULL && filter->waits_for_signal == NULL)
        return stet__cli_fail(c, CLI_USAGE, "--look goes with --text%s",
                              stet__cli_offers(c, "waits-for-signal") ? " or --waits-for-signal"
                                                                      : "");
    if (handler != NULL && service != NULL)
        return stet__cli_fail(c, CLI_USAGE, "--handler and --service exclude each other");
    if (label != NULL && (*label == '=' || strchr(label, '=') == NULL))
        return stet__cli_fail(c, CLI_USAGE, "--label %s: expected name=value", label);
    if ((exit = stet__cli_number(c, "limit", &limit, 1, 1000000)) != CLI_OK ||
        (exit = stet__cli_number(c, "look", &look, 1, 1000000)) != CLI_OK ||
        (exit = runs_before(c, filter)) != CLI_OK ||
        (exit = runs_when(c, "since", &filter->from_ms, &is_since)) != CLI_OK ||
        (exit = runs_when(c, "until", &filter->to_ms, &is_until)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    filter->limit = (size_t)limit;
    filter->look_max = (size_t)look;
    if (is_since)
        filter->from_ms = stet_engine_now_ms(c->engine) - filter->from_ms;
    if (is_until)
        filter->to_ms = stet_engine_now_ms(c->engine) - filter->to_ms;
    if (filter->to_ms != 0 && filter->to_ms < filter->from_ms)
        return stet__cli_fail(c, CLI_USAGE, "--until is before --since: nothing is in between");
    return CLI_OK;
}

void
stet__cli_note_looked(cli *c, const stet_run_filter *filter)
{
    const stet_run_looked *at = filter->looked;

    if (filter->text == NULL && filter->waits_for_signal == NULL) {
        if (!at->is_all && !c->json)
            stet__cli_note(c, "there may be more: --before %s", at->last.text);
    } else if (at->is_all)
        stet__cli_note(c, "looked at all %zu runs there are%s", at->runs,
                       filter->before != NULL ? " from there on" : "");
    else
        stet__cli_note(c, "looked at %zu runs back to %.19sZ; go on with --before %s", at->runs,
                       stet__cli_when(c, at->created_ms, at->created_ms), at->last.text);
}

static const char *
runs_status_name(const void *arg, size_t i)
{
    static const char *const names[] = {
#define RUNS_STATUS(name, number, text) text,
        STET_STATUS_LIST(RUNS_STATUS)
#undef RUNS_STATUS
            "open",
        "ended",
    };

    (void)arg;
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}

/* One word of --status as bits; 0 if it is none. */
static uint32_t
runs_status_bits(const char *word)
{
    bool        is_open = strcmp(word, "open") == 0, is_ended = strcmp(word, "ended") == 0;
    stet_status status = stet_status_parse(word);
    uint32_t    bits = status ? 1u << status : 0;

    for (int s = STET_STATUS_PENDING; s <= STET_STATUS_EXPIRED; s++)
        if (stet_status_is_terminal((stet_status)s) ? is_ended : is_open)
            bits |= 1u << s;
    return bits;
}

int
stet__cli_statuses(cli *c, uint32_t *statuses)
{
    const char *list;

    *statuses = 0;
    for (size_t i = 0; (list = stet__cli_value_at(c, "status", i)) != NULL; i++) {
        while (*list != '\0') {
            size_t      len = strcspn(list, ",");
            const char *word = stet__cli_printf(c, "%.*s", (int)len, list);
            uint32_t    bits = runs_status_bits(word);
            const char *near = bits ? NULL : stet__cli_nearest(word, runs_status_name, NULL);

            if (bits == 0 && near != NULL)
                return stet__cli_fail(
                    c, CLI_USAGE, "there is no status \"%s\"; did you mean \"%s\"?", word, near);
            if (bits == 0)
                return stet__cli_fail(c, CLI_USAGE,
                                      "there is no status \"%s\"; \"%s help ls\" lists them", word,
                                      c->program);
            *statuses |= bits;
            list += len + (list[len] == ',');
        }
    }
    return CLI_OK;
}

static const char *
runs_text(cli *c, const char *text)
{
    return text ? stet__arena_str(c->arena, text) : NULL;
}

static stet_bytes
runs_bytes(cli *c, stet_bytes bytes)
{
    if (bytes.len > 0)
        bytes.data = stet__arena_copy(c->arena, bytes.data, bytes.len);
    return bytes;
}

static const char *const *
runs_list(cli *c, const char *const *list)
{
    const char **copy;
    size_t       n = 0;

    if (list == NULL)
        return NULL;
    while (list[n] != NULL)
        n++;
    copy = stet__arena_get0(c->arena, (n + 1) * sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = runs_text(c, list[i]);
    return copy;
}

stet_run_info *
stet__cli_run_copy(cli *c, const stet_run_info *info)
{
    stet_run_info *copy = stet__arena_copy(c->arena, info, sizeof *info);
    const char   **texts[] = {
          &copy->id,     &copy->handler, &copy->key,      &copy->reason,     &copy->group,
          &copy->worker, &copy->parent,  &copy->retry_of, &copy->retried_by, &copy->idempotency_key,
          &copy->labels, &copy->error,   &copy->origin,   &copy->traceparent, &copy->tracestate,
          &copy->schedule
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = runs_text(c, *texts[i]);
    copy->label_list = runs_list(c, info->label_list);
    copy->input = runs_bytes(c, info->input);
    copy->result = runs_bytes(c, info->result);
    return copy;
}

typedef struct runs_one {
    cli            *c;
    stet_run_info **info;
} runs_one;

static int
runs_keep(void *arg, const stet_run_info *info)
{
    runs_one *one = arg;

    *one->info = stet__cli_run_copy(one->c, info);
    return STET_OK;
}

int
stet__cli_run_read(cli *c, const stet_run_id *run, stet_run_info **info)
{
    runs_one one = { c, info };
    int      err;

    *info = NULL;
    if ((err = stet_run_get(c->engine, run, runs_keep, &one)) != STET_OK)
        return stet__cli_fail_code(c, err);
    return CLI_OK;
}

typedef struct runs_why {
    cli     *c;
    cli_why *why;
} runs_why;

static void
runs_keep_why(void *arg, const stet_verdict *verdict)
{
    runs_why   *w = arg;
    const char *help = verdict->help;

    w->why->text = runs_text(w->c, verdict->text);
    w->why->kind = runs_text(w->c, verdict->kind);
    w->why->help = NULL;
    if (help == NULL)
        return;
    /* The engine says "stet cancel …"; here the command has a name and a store. */
    if (strncmp(help, "stet ", 5) == 0)
        w->why->help = stet__cli_command(w->c, help + 5);
    else
        w->why->help = runs_text(w->c, help);
}

int
stet__cli_why_get(cli *c, const stet_run_id *run, cli_why *why)
{
    runs_why w = { c, why };
    int      err;

    memset(why, 0, sizeof *why);
    if ((err = stet_why(c->engine, run, runs_keep_why, &w)) != STET_OK)
        return stet__cli_fail_code(c, err);
    return CLI_OK;
}
