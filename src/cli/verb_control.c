/* cancel, signal, emit, resolve, unstick, rollback: acting on runs and awakeables. Repeats are
 * safe, those of a signal with a key; an event is emitted each time. */
#include "cli/cli.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

/* The name of a user is short; what does not fit here is a directory service gone wrong. */
#define CONTROL_USER_ROOM 4096

const char *
stet__cli_by(cli *c)
{
    static const char *const names[] = { "USER", "LOGNAME" };
    const char              *by = c->by != NULL ? c->by : stet__cli_value(c, "by");
    struct passwd            user, *found = NULL;
    char                     room[CONTROL_USER_ROOM];

    for (size_t i = 0; by == NULL && i < sizeof names / sizeof *names; i++) {
        by = getenv(names[i]);
        by = by != NULL && *by != '\0' ? by : NULL;
    }
    if (by == NULL && getpwuid_r(geteuid(), &user, room, sizeof room, &found) == 0 && found != NULL)
        by = stet__arena_str(c->arena, user.pw_name);
    if (by == NULL)
        by = stet__cli_printf(c, "uid %llu", (unsigned long long)geteuid());
    c->by = by; /* an action on many runs asks for each */
    return by;
}

int
stet__cli_done(cli *c, int err, const char *what, const char *id, const char *outcome)
{
    cli_json j;

    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (!c->json) {
        printf("%s %s\n", id, outcome);
        return CLI_OK;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, what, id);
    stet__cli_json_text(&j, "done", outcome);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return CLI_OK;
}

static int
cancel_one(cli *c, const stet_run_id *run, void *arg)
{
    (void)arg;
    return stet_cancel(c->engine, run, stet__cli_by(c), stet__cli_value(c, "why"));
}

static int
cancel_run(cli *c)
{
    return stet__cli_act(c, cancel_one, NULL, "cancelled");
}

static const cli_option cancel_options[] = {
    { "by", "WHO", "who cancels (the user)" },
    { "why", "TEXT", "why, for the journal" },
    CLI_BULK_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_cancel = {
    .name = "cancel",
    .args = "RUN",
    .summary = "cancel a run",
    .details =
        "Waiters are released at once; the handler learns at its next operation and may still\n"
        "compensate; runs it called are cancelled, too. Cancelling again is harmless.\n"
        "    stet cancel --all --label batch=7 --status open --dry-run",
    .args_max = 1,
    .options = cancel_options,
    .fn = cancel_run,
};

static int
unstick_one(cli *c, const stet_run_id *run, void *arg)
{
    (void)arg;
    return stet_unstick(c->engine, run, stet__cli_by(c));
}

static int
unstick_run(cli *c)
{
    return stet__cli_act(c, unstick_one, NULL, "unstuck");
}

static const cli_option unstick_options[] = {
    { "by", "WHO", "who does it (the user)" },
    CLI_BULK_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_unstick = {
    .name = "unstick",
    .args = "RUN",
    .summary = "let a stuck run try again, after the cause was mended",
    .details = "    stet unstick run_…\n"
               "    stet unstick --all --handler orders.checkout --dry-run",
    .args_max = 1,
    .options = unstick_options,
    .fn = unstick_run,
};

static int
signal_run(cli *c)
{
    stet_signal_options options = { .size = sizeof options };
    stet_run_id         run;
    stet_bytes          value;
    int                 exit;

    if ((exit = stet__cli_run_id(c, c->args[0], &run)) != CLI_OK ||
        (exit = stet__cli_payload(c, stet__cli_arg(c, 2), &value)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    options.idempotency_key = stet__cli_value(c, "idempotency-key");
    options.by = stet__cli_by(c);
    return stet__cli_done(c, stet_signal(c->engine, &run, c->args[1], value, &options), "run",
                          run.text, "signalled");
}

static const cli_option signal_options[] = {
    { "raw", NULL, "VALUE need not be JSON" },
    { "idempotency-key", "KEY", "repeating with the same key counts once" },
    { "by", "WHO", "who sends it (the user)" },
    { 0 },
};

const cli_verb stet__cli_signal = {
    .name = "signal",
    .args = "RUN NAME [VALUE|-|@FILE]",
    .summary = "send a signal to a run, which waits for it now or later",
    .details = "Signals of one name are kept in order, and each is given to one wait.\n"
               "    stet signal run_… approved '{\"amount\":120}'",
    .args_min = 2,
    .args_max = 3,
    .options = signal_options,
    .fn = signal_run,
};

static int
resolve_run(cli *c)
{
    stet_bytes value;
    int        exit;

    if ((exit = stet__cli_payload(c, stet__cli_arg(c, 1), &value)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    return stet__cli_done(c, stet_resolve(c->engine, c->args[0], value), "awakeable", c->args[0],
                          "resolved");
}

static const cli_option resolve_options[] = {
    { "raw", NULL, "VALUE need not be JSON" },
    { 0 },
};

const cli_verb stet__cli_resolve = {
    .name = "resolve",
    .args = "AWAKEABLE [VALUE|-|@FILE]",
    .summary = "settle an awakeable with a value",
    .details = "    stet resolve awk_… '{\"paid\":true}'",
    .args_min = 1,
    .args_max = 2,
    .options = resolve_options,
    .fn = resolve_run,
};

static int
rollback_one(cli *c, const stet_run_id *run, void *arg)
{
    (void)arg;
    return stet_rollback_retry(c->engine, run, stet__cli_by(c), stet__cli_value(c, "why"));
}

static int
rollback_run(cli *c)
{
    return stet__cli_act(c, rollback_one, NULL, "goes on with its rollback");
}

static const cli_option rollback_options[] = {
    { "by", "WHO", "who says so (the user)" },
    { "why", "TEXT", "why, for the journal" },
    CLI_BULK_OPTIONS,
    { 0 },
};

const cli_verb stet__cli_rollback = {
    .name = "rollback",
    .args = "RUN",
    .summary = "go on with a rollback that failed, from the undo that failed",
    .details = "For runs that are compensation-failed. The undo has its attempts anew.\n"
               "    stet rollback run_… --why 'the bank is open again'",
    .args_max = 1,
    .options = rollback_options,
    .fn = rollback_run,
};

static int
emit_run(cli *c)
{
    stet_bytes value;
    cli_json   j;
    size_t     resumed;
    int        exit, err;

    if ((exit = stet__cli_payload(c, stet__cli_arg(c, 1), &value)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    if ((err = stet_emit(c->engine, &resumed, c->args[0], value)) != STET_OK)
        return stet__cli_fail_code(c, err);
    if (!c->json) {
        printf("%zu %s resumed\n", resumed, resumed == 1 ? "run" : "runs");
        return CLI_OK;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "topic", c->args[0]);
    stet__cli_json_int(&j, "resumed", (int64_t)resumed);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return CLI_OK;
}

static const cli_option emit_options[] = {
    { "raw", NULL, "VALUE need not be JSON" },
    { 0 },
};

const cli_verb stet__cli_emit = {
    .name = "emit",
    .args = "TOPIC [VALUE|-|@FILE]",
    .summary = "emit an event: every run that waits on the topic now goes on",
    .details = "Nothing is kept for runs that wait later. If the store does not answer, `ls "
               "--waits-for-topic\n"
               "TOPIC` shows who waits still; to emit again tells those, and who waits anew.\n"
               "    stet emit prices '{\"EUR\":1.08}'",
    .args_min = 1,
    .args_max = 2,
    .options = emit_options,
    .fn = emit_run,
};
