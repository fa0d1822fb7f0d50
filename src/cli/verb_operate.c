/* pause, resume, skip, edit, rewind, fail, fork, retry: helping runs along, one or all that a
 * filter chooses. cancel, unstick and rollback act in the same way; see verb_control.c. */
#include "cli/cli.h"

#include <string.h>

static const char *
operate_why(const cli *c)
{
    return stet__cli_value(c, c->verb == &stet__cli_resume ? "note" : "why");
}

/* ---- pause and resume: runs, handlers, services ---------------------------------------------- */

static const cli_column paused_columns[] = {
    { "PAUSED", CLI_CELL_CUT },
    { "SINCE", CLI_CELL_FIXED },
    { "BY", CLI_CELL_CUT },
    { "WHY", CLI_CELL_CUT },
};

typedef struct paused_list {
    cli      *c;
    cli_table table;
    int64_t   now_ms;
    size_t    n;
} paused_list;

static int
paused_each(void *arg, const stet_paused *p)
{
    paused_list *l = arg;
    const char  *cells[] = { p->what, stet__cli_relative(l->c, p->since_ms, l->now_ms), p->by,
                             p->why };
    cli_json     j;

    l->n++;
    if (!l->c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_begin(&j, l->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "paused", p->what);
    stet__cli_json_time(&j, "since_ms", p->since_ms);
    stet__cli_json_text(&j, "by", p->by);
    stet__cli_json_text(&j, "why", p->why);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
paused_show(cli *c)
{
    paused_list l = { .c = c };
    int         exit, err;

    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    l.now_ms = stet_engine_now_ms(c->engine);
    stet__cli_table_begin(&l.table, c, paused_columns,
                          sizeof paused_columns / sizeof *paused_columns);
    err = stet_paused_list(c->engine, paused_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "no handler or service is paused; paused runs: %s",
                       stet__cli_command(c, "ls --status paused"));
    return CLI_OK;
}

static int
pause_one(cli *c, const stet_run_id *run, void *arg)
{
    (void)arg;
    return stet_run_pause(c->engine, run, stet__cli_by(c), operate_why(c));
}

static int
resume_one(cli *c, const stet_run_id *run, void *arg)
{
    (void)arg;
    return stet_run_resume(c->engine, run, stet__cli_by(c), operate_why(c));
}

/* Without --all and a RUN, --handler and --service say what is paused itself. */
static const char *
operate_handler(const cli *c)
{
    const char *handler = stet__cli_value(c, "handler");

    if (stet__cli_has(c, "all") || c->n_args > 0)
        return NULL;
    return handler != NULL ? handler : stet__cli_value(c, "service");
}

static int
pause_run(cli *c)
{
    const char *what = operate_handler(c);
    int         exit, err;

    if (what == NULL && c->n_args == 0 && !stet__cli_has(c, "all"))
        return paused_show(c);
    if (what == NULL)
        return stet__cli_act(c, pause_one, NULL, "paused");
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    err = stet_handler_pause(c->engine, what, stet__cli_by(c), operate_why(c));
    exit = stet__cli_done(c, err, "handler", what,
                          "paused; workers begin none of its runs, and learn of it within seconds");
    if (err == STET_OK)
        /* It may come with the next release, so it is paused all the same; but it may be a slip. */
        stet__cli_note_unknown(c, what, "; it is paused in case one comes");
    return exit;
}

static int
resume_run(cli *c)
{
    const char *what = operate_handler(c);
    int         exit;

    if (what == NULL)
        return stet__cli_act(c, resume_one, NULL, "resumed");
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    return stet__cli_done(c, stet_handler_resume(c->engine, what, stet__cli_by(c), operate_why(c)),
                          "handler", what, "resumed");
}

static const cli_option pause_options[] = {
    { "by", "WHO", "who does it (the user)" },
    { "why", "TEXT", "why, for the journal" },
    CLI_BULK_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_pause = {
    .name = "pause",
    .args = "[RUN]",
    .summary = "stop executing a run, or all runs of a handler or service, until it is resumed",
    .details = "A run that is being executed stops when it records something next. What comes "
               "meanwhile is\n"
               "kept. Without arguments: which handlers and services are paused.\n"
               "    stet pause run_… --why 'wrong price list'\n"
               "    stet pause --handler orders.checkout --why 'a bad release'\n"
               "    stet pause --all --service orders --status suspended --dry-run",
    .args_max = 1,
    .options = pause_options,
    .fn = pause_run,
};

static const cli_option resume_options[] = {
    { "by", "WHO", "who does it (the user)" },
    { "note", "TEXT", "what they say, for the handler and the journal" },
    CLI_BULK_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_resume = {
    .name = "resume",
    .args = "[RUN]",
    .summary = "let a run go on that was paused, or paused for a person; or a handler or service",
    .details = "    stet resume run_… --note 'stocktaking is over'\n"
               "    stet resume --handler orders.checkout\n"
               "    stet resume --all --status paused --service orders",
    .args_max = 1,
    .options = resume_options,
    .fn = resume_run,
};

/* ---- skip and edit --------------------------------------------------------------------------- */

typedef struct operate_step {
    const char *step;
    stet_bytes  result;
} operate_step;

static int
skip_one(cli *c, const stet_run_id *run, void *arg)
{
    const operate_step *s = arg;

    return stet_run_skip(c->engine, run, s->step, s->result, stet__cli_by(c), operate_why(c));
}

static int
edit_one(cli *c, const stet_run_id *run, void *arg)
{
    const operate_step *s = arg;

    return stet_run_edit(c->engine, run, s->step, s->result, stet__cli_by(c), operate_why(c));
}

static int
operate_result(cli *c, cli_act_fn fn, const char *outcome)
{
    operate_step s = { .step = stet__cli_act_arg(c, 0) };
    int          exit;

    if (s.step == NULL)
        return stet__cli_fail(c, CLI_USAGE,
                              "which step? As charge, or charge#2 for the second of that name");
    if (stet__cli_act_arg(c, 2) != NULL)
        return stet__cli_fail(c, CLI_USAGE, "%s: one argument too many", stet__cli_act_arg(c, 2));
    if ((exit = stet__cli_payload(c, stet__cli_act_arg(c, 1), &s.result)) != CLI_OK)
        return exit;
    return stet__cli_act(c, fn, &s, outcome);
}

static int
skip_run(cli *c)
{
    return operate_result(c, skip_one, "does without the step");
}

static int
edit_run(cli *c)
{
    if (stet__cli_act_arg(c, 0) != NULL && stet__cli_act_arg(c, 1) == NULL)
        return stet__cli_fail(c, CLI_USAGE, "%s: replaced with what? Give VALUE, - or @FILE",
                              stet__cli_act_arg(c, 0));
    return operate_result(c, edit_one, "has the new result");
}

static const cli_option step_options[] = {
    { "raw", NULL, "VALUE need not be JSON" },
    { "by", "WHO", "who does it (the user)" },
    { "why", "TEXT", "why, for the journal" },
    CLI_BULK_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_skip = {
    .name = "skip",
    .args = "RUN STEP [VALUE|-|@FILE]",
    .summary = "do not execute a step (again): this is its result",
    .details = "Also of undos that fail (rollback:charge#1). A stuck run tries again. A step that\n"
               "is still to come has the result when it comes; the second of a name is charge#2.\n"
               "    stet skip run_… charge '{\"paid\":true}' --why 'paid by hand'\n"
               "    stet skip --all charge --handler orders.checkout --status retrying",
    .args_max = 3,
    .options = step_options,
    .fn = skip_run,
};

const cli_verb stet__cli_edit = {
    .name = "edit",
    .args = "RUN STEP VALUE|-|@FILE",
    .summary = "replace the recorded result of a step; the run is replayed with it",
    .details = "    stet edit run_… price '{\"amount\":90}' --why 'the wrong list'",
    .args_max = 3,
    .options = step_options,
    .fn = edit_run,
};

/* ---- rewind, fork, fail, retry --------------------------------------------------------------- */

static int
rewind_one(cli *c, const stet_run_id *run, void *step)
{
    return stet_run_rewind(c->engine, run, step, stet__cli_by(c), operate_why(c));
}

static int
rewind_run(cli *c)
{
    const char *step = stet__cli_act_arg(c, 0);

    if ((step == NULL) != stet__cli_has(c, "start"))
        return stet__cli_fail(c, CLI_USAGE,
                              "where to? Name a STEP, or pass --start for the beginning");
    return stet__cli_act(c, rewind_one, (void *)(uintptr_t)step, "goes on from there");
}

static const cli_option rewind_options[] = {
    { "start", NULL, "to the beginning" },
    { "by", "WHO", "who does it (the user)" },
    { "why", "TEXT", "why, for the journal" },
    CLI_BULK_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_rewind = {
    .name = "rewind",
    .args = "RUN STEP",
    .summary = "forget what was recorded from a step on, and go on from there",
    .details = "Steps behind it are executed again; signals they consumed are there again; what "
               "was sent and\n"
               "written stays.\n"
               "    stet rewind run_… charge --why 'the card was the wrong one'\n"
               "    stet rewind run_… --start",
    .args_max = 2,
    .options = rewind_options,
    .fn = rewind_run,
};

static int
fail_one(cli *c, const stet_run_id *run, void *arg)
{
    (void)arg;
    return stet_run_fail(c->engine, run, stet__cli_by(c), operate_why(c));
}

static int
fail_run(cli *c)
{
    return stet__cli_act(c, fail_one, NULL, "failed");
}

const cli_verb stet__cli_fail_verb = {
    .name = "fail",
    .args = "RUN",
    .summary = "end a run as failed, without asking its handler",
    .details = "Nothing is undone; `cancel` is the gentle way. It becomes a dead letter.\n"
               "    stet fail run_… --why 'the customer is gone'\n"
               "    stet fail --all --status stuck --handler orders.old --dry-run",
    .args_max = 1,
    .options = pause_options,
    .fn = fail_run,
};

/* Both start a new run, whose ID is what is asked for. */
typedef struct operate_fresh {
    const char *step;
    const char *verb;
    bool        is_retry;
} operate_fresh;

static int
fresh_said(cli *c, int err, const stet_run_id *run, const stet_run_id *fresh, const char *verb)
{
    cli_json j;

    if (err != STET_OK || !stet__cli_has(c, "all")) /* of one run it is the whole answer */
        return err;
    if (!c->json) {
        printf("%s %s as %s\n", run->text, verb, fresh->text);
        return err;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", run->text);
    stet__cli_json_text(&j, verb, fresh->text);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return err;
}

static int
fresh_start(cli *c, const operate_fresh *f, stet_run_id *fresh, const stet_run_id *run)
{
    if (f->is_retry)
        return stet_run_retry(c->engine, fresh, run, stet__cli_by(c), operate_why(c));
    return stet_run_fork(c->engine, fresh, run, f->step, stet__cli_by(c), operate_why(c));
}

static int
fresh_one(cli *c, const stet_run_id *run, void *arg)
{
    const operate_fresh *f = arg;
    stet_run_id          fresh;
    int                  err = fresh_start(c, f, &fresh, run);

    return fresh_said(c, err, run, &fresh, f->verb);
}

/* One: print the ID of the new run, for scripts. */
static int
fresh_run(cli *c, operate_fresh *f)
{
    stet_run_id run, fresh;
    cli_json    j;
    int         exit, err;

    if (stet__cli_has(c, "all"))
        return stet__cli_act(c, fresh_one, f, f->verb);
    if ((exit = stet__cli_act_one(c, &run)) != CLI_OK)
        return exit;
    if ((err = fresh_start(c, f, &fresh, &run)) != STET_OK)
        return stet__cli_fail_code(c, err);
    if (!c->json) {
        printf("%s\n", fresh.text);
        return CLI_OK;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", fresh.text);
    stet__cli_json_text(&j, "of", run.text);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return CLI_OK;
}

static int
fork_run(cli *c)
{
    operate_fresh f = { .step = stet__cli_act_arg(c, 0), .verb = "forked" };

    return fresh_run(c, &f);
}

const cli_verb stet__cli_fork = {
    .name = "fork",
    .args = "RUN [STEP]",
    .summary = "start a new run that inherits what another one recorded before a step",
    .details =
        "From a run in whatever state; without STEP it inherits nothing. Prints the new run's ID.\n"
        "    stet fork run_… charge --why 'with the new tariff'",
    .args_max = 2,
    .options = pause_options,
    .fn = fork_run,
};

static int
retry_run(cli *c)
{
    operate_fresh f = { .verb = "retried", .is_retry = true };

    return fresh_run(c, &f);
}

const cli_verb stet__cli_retry = {
    .name = "retry",
    .args = "RUN",
    .summary = "start a failed, cancelled or expired run again; recorded steps are not repeated",
    .details = "Prints the new run's ID. `dlq retry` does the same for dead letters.\n"
               "    stet retry run_… --why 'the bank is open again'\n"
               "    stet retry --all --status failed --handler orders.checkout --since 2h",
    .args_max = 1,
    .options = pause_options,
    .fn = retry_run,
};
