/* schedule ls, show, history, ensure, update, pause, resume, rm: schedules in a store. */
#include "cli/cli.h"

#include <string.h>

/* ---- looking -------------------------------------------------------------------------------- */

/* "cron 0 9 * * MON-FRI (Europe/Berlin)", "every 15m", "at 2030-…Z" */
static const char *
schedules_when(cli *c, const stet_schedule_info *s)
{
    char span[32];

    if (s->cron != NULL)
        return stet__cli_printf(c, "%s (%s)", s->cron, s->zone);
    if (s->function != NULL)
        return stet__cli_printf(c, "function %s", s->function);
    if (s->every_ms != 0)
        return stet__cli_printf(c, "every %s%s", stet_duration_text(span, sizeof span, s->every_ms),
                                s->from_completion ? " from completion" : "");
    if (s->at_ms != 0)
        return stet__cli_printf(c, "at %.19sZ", stet__cli_when(c, s->at_ms, s->at_ms));
    return "";
}

static void
schedules_json(cli_json *j, const stet_schedule_info *s, bool with_input)
{
    stet__cli_json_text(j, "name", s->name);
    stet__cli_json_text(j, "handler", s->handler);
    stet__cli_json_text(j, "key", s->key);
    stet__cli_json_text(j, "group", s->group);
    stet__cli_json_text(j, "cron", s->cron);
    stet__cli_json_text(j, "zone", s->zone);
    stet__cli_json_text(j, "function", s->function);
    stet__cli_json_int(j, "every_ms", s->every_ms);
    stet__cli_json_bool(j, "from_completion", s->from_completion);
    stet__cli_json_time(j, "at_ms", s->at_ms);
    stet__cli_json_int(j, "after_ms", s->after_ms);
    stet__cli_json_text(j, "overlap", stet_overlap_name(s->overlap));
    stet__cli_json_text(j, "missed", stet_missed_name(s->missed));
    stet__cli_json_int(j, "missed_max", s->missed_max);
    stet__cli_json_int(j, "grace_ms", s->grace_ms);
    stet__cli_json_int(j, "priority", s->priority);
    stet__cli_json_int(j, "timeout_ms", s->timeout_ms);
    stet__cli_json_time(j, "created_ms", s->created_ms);
    stet__cli_json_time(j, "updated_ms", s->updated_ms);
    stet__cli_json_bool(j, "paused", s->is_paused);
    stet__cli_json_text(j, "paused_by", s->paused_by);
    stet__cli_json_bool(j, "done", s->is_done);
    stet__cli_json_time(j, "next_ms", s->next_ms);
    stet__cli_json_time(j, "last_ms", s->last_ms);
    stet__cli_json_time(j, "fired_ms", s->fired_ms);
    stet__cli_json_text(j, "last_run", s->last_run);
    stet__cli_json_bool(j, "running", s->is_running);
    stet__cli_json_time(j, "waiting_ms", s->waiting_ms);
    stet__cli_json_int(j, "fired", (int64_t)s->fired);
    stet__cli_json_int(j, "skipped", (int64_t)s->skipped);
    stet__cli_json_text(j, "error", s->error);
    stet__cli_json_text(j, "text", s->text);
    if (with_input)
        stet__cli_json_payload(j, "input", s->input);
}

static void
schedules_print_json(cli *c, const stet_schedule_info *s, bool with_input)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    schedules_json(&j, s, with_input);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static const cli_column schedules_columns[] = {
    { "NAME", CLI_CELL_FIXED },    { "WHEN", CLI_CELL_CUT },   { "HANDLER", CLI_CELL_CUT },
    { "NEXT", CLI_CELL_FIXED },    { "LAST", CLI_CELL_FIXED }, { "RAN", CLI_CELL_FIXED },
    { "SKIPPED", CLI_CELL_FIXED }, { "STATE", CLI_CELL_CUT },
};

typedef struct schedules_list {
    cli      *c;
    cli_table table;
    int64_t   now_ms;
    size_t    n;
} schedules_list;

static int
schedules_each(void *arg, const stet_schedule_info *s)
{
    schedules_list *l = arg;
    cli            *c = l->c;
    const char     *cells[] = {
            s->name,
            schedules_when(c, s),
            s->handler,
        s->next_ms != 0 ? stet__cli_relative(c, s->next_ms, l->now_ms) : "",
        s->last_ms != 0 ? stet__cli_relative(c, s->last_ms, l->now_ms) : "",
            stet__cli_printf(c, "%llu", (unsigned long long)s->fired),
            stet__cli_printf(c, "%llu", (unsigned long long)s->skipped),
            s->text,
    };

    l->n++;
    if (c->json)
        schedules_print_json(c, s, false);
    else
        stet__cli_table_row(&l->table, cells);
    return STET_OK;
}

static int
schedules_ls_run(cli *c)
{
    schedules_list l = { .c = c };
    int64_t        limit = 50;
    int            exit, err;

    if ((exit = stet__cli_number(c, "limit", &limit, 1, 100000)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    l.now_ms = stet_engine_now_ms(c->engine);
    stet__cli_table_begin(&l.table, c, schedules_columns,
                          sizeof schedules_columns / sizeof *schedules_columns);
    err = stet_schedule_list(c->engine, stet__cli_value(c, "after"), (size_t)limit, schedules_each,
                             &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "no schedules");
    return CLI_OK;
}

static const cli_option schedules_ls_options[] = {
    { "limit", "N", "at most so many (50)" },
    { "after", "NAME", "the next page: only names behind this one" },
    { 0 },
};

const cli_verb stet__cli_schedule_ls = {
    .name = "schedule ls",
    .args = "",
    .summary = "list schedules by name: when, next, last, what they do",
    .details = "    stet schedule ls --limit 20 --after nightly",
    .options = schedules_ls_options,
    .fn = schedules_ls_run,
};

/* ---- schedule show -------------------------------------------------------------------------- */

static void
schedules_field(cli *c, const char *name, const char *value)
{
    if (value != NULL && *value != '\0')
        printf("%-10s %s\n", name, stet__cli_clean(c, stet_text(value)));
}

static void
schedules_time(cli *c, const char *name, int64_t ms, int64_t now_ms)
{
    if (ms != 0)
        schedules_field(c, name, stet__cli_when(c, ms, now_ms));
}

static const char *
schedules_missed(cli *c, const stet_schedule_info *s)
{
    char span[32];

    if (s->missed == STET_MISSED_ALL)
        return stet__cli_printf(c, "all, at most the last %d", s->missed_max);
    if (s->missed == STET_MISSED_SKIP)
        return stet__cli_printf(c, "skip, later than %s",
                                stet_duration_text(span, sizeof span, s->grace_ms));
    return stet_missed_name(s->missed);
}

static int
schedules_show(void *arg, const stet_schedule_info *s)
{
    cli    *c = arg;
    int64_t now_ms = stet_engine_now_ms(c->engine);
    char    span[32];

    if (c->json) {
        schedules_print_json(c, s, true);
        return STET_OK;
    }
    schedules_field(c, "schedule", s->name);
    schedules_field(c, "state", s->text);
    schedules_field(c, "when", schedules_when(c, s));
    schedules_field(c, "handler", s->handler);
    schedules_field(c, "key", s->key);
    schedules_field(c, "group", s->group);
    schedules_field(c, "input", stet__cli_payload_text(c, s->input));
    if (s->timeout_ms != 0)
        schedules_field(c, "timeout", stet_duration_text(span, sizeof span, s->timeout_ms));
    schedules_field(c, "overlap", stet_overlap_name(s->overlap));
    schedules_field(c, "missed", schedules_missed(c, s));
    schedules_time(c, "next", s->next_ms, now_ms);
    schedules_time(c, "last", s->last_ms, now_ms);
    schedules_time(c, "fired", s->fired_ms, now_ms);
    if (s->last_run != NULL)
        schedules_field(c, "last run",
                        stet__cli_printf(c, "%s%s", s->last_run, s->is_running ? " (open)" : ""));
    schedules_time(c, "waiting", s->waiting_ms, now_ms);
    schedules_field(c, "ran", stet__cli_printf(c, "%llu", (unsigned long long)s->fired));
    schedules_field(c, "skipped", stet__cli_printf(c, "%llu", (unsigned long long)s->skipped));
    schedules_field(c, "error", s->error);
    schedules_time(c, "created", s->created_ms, now_ms);
    schedules_time(c, "changed", s->updated_ms, now_ms);
    return STET_OK;
}

static int
schedules_show_run(cli *c)
{
    int exit, err;

    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    err = stet_schedule_get(c->engine, c->args[0], schedules_show, c);
    return err == STET_OK ? CLI_OK : stet__cli_fail_code(c, err);
}

const cli_verb stet__cli_schedule_show = {
    .name = "schedule show",
    .args = "NAME",
    .summary = "one schedule: when, its policies, next and last time, what keeps it",
    .details = "    stet schedule show nightly",
    .args_min = 1,
    .args_max = 1,
    .fn = schedules_show_run,
};

/* ---- schedule history ----------------------------------------------------------------------- */

static const cli_column schedules_past_columns[] = {
    { "PLANNED", CLI_CELL_FIXED },
    { "OUTCOME", CLI_CELL_FIXED },
    { "RUN", CLI_CELL_FIXED },
    { "WHY", CLI_CELL_CUT },
};

static const char *
schedules_outcome(stet_occurrence_outcome outcome)
{
    switch (outcome) {
    case STET_OCCURRENCE_RAN: return "ran";
    case STET_OCCURRENCE_WAITS: return "waits";
    case STET_OCCURRENCE_SKIPPED: break;
    }
    return "skipped";
}

static void
schedules_past_json(cli *c, const stet_occurrence_info *o)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_time(&j, "planned_ms", o->planned_ms);
    stet__cli_json_time(&j, "until_ms", o->until_ms);
    stet__cli_json_int(&j, "count", (int64_t)o->count);
    stet__cli_json_time(&j, "time_ms", o->time_ms);
    stet__cli_json_text(&j, "outcome", schedules_outcome(o->outcome));
    stet__cli_json_text(&j, "skip", o->skip != STET_SKIP_NONE ? stet_skip_name(o->skip) : NULL);
    stet__cli_json_text(&j, "run", o->run);
    stet__cli_json_text(&j, "text", o->text);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static int
schedules_past(void *arg, const stet_occurrence_info *o)
{
    schedules_list *l = arg;
    cli            *c = l->c;
    const char     *planned = stet__cli_when(c, o->planned_ms, o->planned_ms);
    const char     *cells[] = {
            stet__cli_printf(c, "%.19sZ", planned),
            schedules_outcome(o->outcome),
        o->outcome == STET_OCCURRENCE_RAN ? o->run : NULL,
        o->outcome == STET_OCCURRENCE_RAN ? NULL : o->text,
    };

    l->n++;
    if (o->count > 1)
        cells[3] =
            stet__cli_printf(c, "%llu, the last one %.19sZ: %s", (unsigned long long)o->count,
                             stet__cli_when(c, o->until_ms, o->until_ms), o->text);
    if (c->json)
        schedules_past_json(c, o);
    else
        stet__cli_table_row(&l->table, cells);
    return STET_OK;
}

static int
schedules_history_run(cli *c)
{
    schedules_list l = { .c = c };
    int64_t        limit = 50;
    int            exit, err;

    if ((exit = stet__cli_number(c, "limit", &limit, 1, STET_SCHEDULE_HISTORY_MAX)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    stet__cli_table_begin(&l.table, c, schedules_past_columns,
                          sizeof schedules_past_columns / sizeof *schedules_past_columns);
    err = stet_schedule_history(c->engine, c->args[0], (size_t)limit, schedules_past, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "nothing was due yet");
    return CLI_OK;
}

static const cli_option schedules_history_options[] = {
    { "limit", "N", "at most so many (50)" },
    { 0 },
};

const cli_verb stet__cli_schedule_history = {
    .name = "schedule history",
    .args = "NAME",
    .summary = "what became of each planned time, newest first: ran, or skipped and why",
    .details = "The last 1000 are kept.\n\n    stet schedule history nightly --limit 10",
    .args_min = 1,
    .args_max = 1,
    .options = schedules_history_options,
    .fn = schedules_history_run,
};

/* ---- schedule ensure, update ---------------------------------------------------------------- */

/* clang-format off */
#define SCHEDULES_OPTIONS                                                                          \
    { "cron", "CRON", "five fields, or @daily …; quote it" },                                      \
    { "tz", "ZONE", "time zone of --cron, such as Europe/Berlin (UTC)" },                          \
    { "every", "DURATION", "at an interval, counted from the planned time" },                      \
    { "from-completion", NULL, "count --every from the end of the run: one time is planned" },     \
    { "at", "TIME", "once: 2030-01-31T12:00:00Z, or milliseconds since 1970" },                    \
    { "after", "DURATION", "once, so long after the schedule is made" },                           \
    { "function", "NAME", "when a function of the worker's program says" },                        \
    { "overlap", "POLICY", "if its last run is open: skip, allow, queue or cancel (skip)" },       \
    { "missed", "POLICY", "what was due while nobody fired: once, skip or all (once)" },           \
    { "missed-max", "N", "with --missed all: at most the last N (10)" },                           \
    { "grace", "DURATION", "with --missed skip: how late is not missed (1m)" },                    \
    { "key", "KEY", "object key of the runs" },                                                    \
    { "group", "NAME", "fairness group of the runs" },                                             \
    { "priority", "N", "of the runs" },                                                            \
    { "timeout", "DURATION", "of each run" },                                                      \
    { "raw", NULL, "INPUT need not be JSON" }
/* clang-format on */

static int
schedules_policies(cli *c, stet_schedule_options *o)
{
    const char *overlap = stet__cli_value(c, "overlap"), *missed = stet__cli_value(c, "missed");
    int64_t     missed_max = 0, priority = 0;
    int         exit;

    o->overlap = stet_overlap_parse(overlap);
    o->missed = stet_missed_parse(missed);
    if (overlap != NULL && o->overlap == STET_OVERLAP_DEFAULT)
        return stet__cli_fail(c, CLI_USAGE, "--overlap %s: expected skip, allow, queue or cancel",
                              overlap);
    if (missed != NULL && o->missed == STET_MISSED_DEFAULT)
        return stet__cli_fail(c, CLI_USAGE, "--missed %s: expected once, skip or all", missed);
    if ((exit = stet__cli_number(c, "missed-max", &missed_max, 1, STET_SCHEDULE_MISSED_MAX)) !=
            CLI_OK ||
        (exit = stet__cli_number(c, "priority", &priority, INT32_MIN, INT32_MAX)) != CLI_OK)
        return exit;
    o->missed_max = (int)missed_max;
    o->priority = (int32_t)priority;
    return CLI_OK;
}

static int
schedules_read(cli *c, stet_schedule_options *o)
{
    int64_t ignored;
    int     exit;

    stet_schedule_options_init(o);
    o->cron = stet__cli_value(c, "cron");
    o->zone = stet__cli_value(c, "tz");
    /* A wrong word of the command line, whatever a store has. */
    if (o->cron != NULL && stet_cron_parse(NULL, o->cron, o->zone) != STET_OK)
        return stet__cli_fail(c, CLI_USAGE, "%s", stet_last_error());
    if ((exit = stet__cli_duration(c, "every", &ignored)) != CLI_OK ||
        (exit = stet__cli_duration(c, "after", &ignored)) != CLI_OK ||
        (exit = stet__cli_duration(c, "grace", &ignored)) != CLI_OK ||
        (exit = stet__cli_duration(c, "timeout", &ignored)) != CLI_OK ||
        (exit = stet__cli_time(c, "at", &o->at_ms)) != CLI_OK ||
        (exit = schedules_policies(c, o)) != CLI_OK)
        return exit;
    o->every = stet__cli_value(c, "every");
    o->from_completion = stet__cli_has(c, "from-completion");
    o->after = stet__cli_value(c, "after");
    o->function = stet__cli_value(c, "function");
    o->grace = stet__cli_value(c, "grace");
    o->timeout = stet__cli_value(c, "timeout");
    o->key = stet__cli_value(c, "key");
    o->group = stet__cli_value(c, "group");
    return CLI_OK;
}

/* What was done, and how it is now. */
typedef struct schedules_done {
    cli        *c;
    const char *what;
} schedules_done;

static int
schedules_said(void *arg, const stet_schedule_info *s)
{
    schedules_done *done = arg;
    cli            *c = done->c;
    cli_json        j;

    if (!c->json) {
        printf("%s %s: %s\n", s->name, done->what, stet__cli_clean(c, stet_text(s->text)));
        return STET_OK;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "change", done->what);
    schedules_json(&j, s, true);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
schedules_say(cli *c, int err, const char *what)
{
    schedules_done done = { c, what };

    if (err == STET_OK)
        err = stet_schedule_get(c->engine, c->args[0], schedules_said, &done);
    return err == STET_OK ? CLI_OK : stet__cli_fail_code(c, err);
}

static const char *
schedules_change(stet_schedule_change change)
{
    switch (change) {
    case STET_SCHEDULE_CREATED: return "created";
    case STET_SCHEDULE_UPDATED: return "updated";
    case STET_SCHEDULE_UNCHANGED: break;
    }
    return "unchanged";
}

typedef struct schedules_call {
    stet_schedule_options options;
    stet_schedule_change  change;
    stet_bytes            input;
} schedules_call;

static int
schedules_ask(cli *c, void *arg)
{
    schedules_call *call = arg;

    return stet_schedule_ensure(c->engine, &call->change, c->args[0], c->args[1], call->input,
                                &call->options);
}

static int
schedules_ensure_run(cli *c)
{
    schedules_call call = { .change = STET_SCHEDULE_UNCHANGED };
    int            exit, err;

    if ((exit = schedules_read(c, &call.options)) != CLI_OK ||
        (exit = stet__cli_payload(c, stet__cli_arg(c, 2), &call.input)) != CLI_OK ||
        (exit = stet__cli_open_to(c, schedules_ask, &call)) != CLI_OK)
        return exit;
    err = schedules_ask(c, &call);
    return schedules_say(c, err, schedules_change(call.change));
}

static int
schedules_update_run(cli *c)
{
    stet_schedule_options options;
    stet_schedule_change  change = STET_SCHEDULE_UNCHANGED;
    const char           *text = stet__cli_arg(c, 1);
    stet_bytes            input;
    int                   exit, err;

    if ((exit = schedules_read(c, &options)) != CLI_OK ||
        (exit = stet__cli_payload(c, text, &input)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    err = stet_schedule_update(c->engine, &change, c->args[0], text != NULL ? &input : NULL,
                               &options);
    return schedules_say(c, err, schedules_change(change));
}

static const cli_option schedules_ensure_options[] = { SCHEDULES_OPTIONS, { 0 } };

const cli_verb stet__cli_schedule_ensure = {
    .name = "schedule ensure",
    .args = "NAME HANDLER [INPUT]",
    .summary = "make a schedule, or change it to what is given; the same again is harmless",
    .details = "Exactly one of --cron, --every, --at, --after, --function says when.\n\n"
               "    stet schedule ensure nightly orders.report '{\"days\":1}' --cron '0 3 * * *' "
               "--tz Europe/Berlin",
    .args_min = 2,
    .args_max = 3,
    .options = schedules_ensure_options,
    .creates_store = true,
    .fn = schedules_ensure_run,
};

const cli_verb stet__cli_schedule_update = {
    .name = "schedule update",
    .args = "NAME [INPUT]",
    .summary = "change the time, the input or a policy of a schedule; the rest stays",
    .details = "    stet schedule update nightly --cron '30 3 * * *'",
    .args_min = 1,
    .args_max = 2,
    .options = schedules_ensure_options,
    .fn = schedules_update_run,
};

/* ---- schedule pause, resume, rm ------------------------------------------------------------- */

static int
schedules_pause_run(cli *c)
{
    int exit = stet__cli_open(c);

    if (exit != CLI_OK)
        return exit;
    return schedules_say(c, stet_schedule_pause(c->engine, c->args[0], stet__cli_by(c)), "paused");
}

static int
schedules_resume_run(cli *c)
{
    int exit = stet__cli_open(c);

    return exit != CLI_OK
               ? exit
               : schedules_say(c, stet_schedule_resume(c->engine, c->args[0]), "resumed");
}

static int
schedules_rm_run(cli *c)
{
    cli_json j;
    int      exit = stet__cli_open(c), err;

    if (exit != CLI_OK)
        return exit;
    if ((err = stet_schedule_remove(c->engine, c->args[0])) != STET_OK)
        return stet__cli_fail_code(c, err);
    if (!c->json) {
        printf("%s removed\n", c->args[0]);
        return CLI_OK;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "name", c->args[0]);
    stet__cli_json_bool(&j, "removed", true);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return CLI_OK;
}

static const cli_option schedules_pause_options[] = {
    { "by", "WHO", "who does it, for those who look at it (the user)" },
    { 0 },
};

const cli_verb stet__cli_schedule_pause = {
    .name = "schedule pause",
    .args = "NAME",
    .summary = "fire no more until it is resumed; runs it started go on",
    .details = "    stet schedule pause nightly --by ops",
    .args_min = 1,
    .args_max = 1,
    .options = schedules_pause_options,
    .fn = schedules_pause_run,
};

const cli_verb stet__cli_schedule_resume = {
    .name = "schedule resume",
    .args = "NAME",
    .summary = "fire again from the next time on; times in the pause are skipped",
    .details = "    stet schedule resume nightly",
    .args_min = 1,
    .args_max = 1,
    .fn = schedules_resume_run,
};

const cli_verb stet__cli_schedule_rm = {
    .name = "schedule rm",
    .args = "NAME",
    .summary = "remove a schedule and its history; runs it started go on",
    .details = "    stet schedule rm nightly",
    .args_min = 1,
    .args_max = 1,
    .fn = schedules_rm_run,
};
