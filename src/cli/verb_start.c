/* start, send and wait: runs from the outside.
 *
 * Standard output carries the run's ID, or with --wait its result; the rest is on standard
 * error. */
#include "cli/cli.h"

#include <string.h>

/* clang-format off */
#define START_OPTIONS                                                                              \
    { "key", "KEY", "object key" },                                                                \
    { "delay", "DURATION", "begin so much later" },                                                \
    { "at", "TIME", "begin then: 2030-01-31T12:00:00Z, or milliseconds since 1970" },              \
    { "attempts", "N", "executions before it fails" },                                             \
    { "idempotency-key", "TEXT", "a repeat with the same gives the same run" },                    \
    { "priority", "N", "kept with the run and shown" },                                            \
    { "group", "NAME", "fairness group" },                                                         \
    { "timeout", "DURATION", "of the whole run, from now" },                                       \
    { "deadline", "TIME", "the same as a time" },                                                  \
    { "label", "NAME=VALUE", "to find it by; may be repeated" },                                   \
    { "retention", "DURATION", "how long it is kept after its end" },                              \
    { "run", "ID", "use this run ID; a second start with it is refused" },                         \
    { "traceparent", "TEXT", "W3C trace context of who starts it" },                               \
    { "tracestate", "TEXT", "the same" },                                                          \
    { "raw", NULL, "INPUT need not be JSON" }
/* clang-format on */

static const cli_option start_options[] = {
    START_OPTIONS,
    { "wait", "[DURATION]", "wait for the end and print the result (30s; \"none\": no limit)" },
    { 0 },
};
static const cli_option send_options[] = { START_OPTIONS, { 0 } };

/* ---- the end of a run ----------------------------------------------------------------------- */

static void
start_result_json(cli *c, const stet_run_id *run, const stet_result *result)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", run->text);
    stet__cli_json_text(&j, "status", result->status ? stet_status_name(result->status) : NULL);
    stet__cli_json_payload(&j, "value", result->value);
    stet__cli_json_text(&j, "code", result->code ? stet_code_name(result->code) : NULL);
    stet__cli_json_int(&j, "cause", result->cause);
    stet__cli_json_text(&j, "cause_name", result->cause ? stet_code_name(result->cause) : NULL);
    stet__cli_json_text(&j, "error", result->error);
    stet__cli_json_text(&j, "origin", result->origin);
    stet__cli_json_int(&j, "attempts", result->attempts);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

/* The bytes as they are; a last line gets its end. */
static void
start_result_print(const stet_result *result)
{
    const char *data = result->value.data;

    if (result->value.len == 0)
        return;
    fwrite(data, 1, result->value.len, stdout);
    if (data[result->value.len - 1] != '\n')
        putchar('\n');
}

static int
start_await(cli *c, const stet_run_id *run, const char *timeout)
{
    stet_result result = { 0 };
    int64_t     timeout_ms = 0;
    int         code, exit;

    if (timeout != NULL && strcmp(timeout, "none") == 0)
        timeout_ms = STET_NONE;
    else if (timeout != NULL && stet_duration_parse(&timeout_ms, timeout) != STET_OK)
        return stet__cli_fail_code(c, STET_EDURATION);
    c->about = run->text;
    code = stet_wait(c->engine, &result, run, timeout_ms);
    exit = code == STET_OK ? CLI_OK : stet__cli_fail_code(c, code);
    if (c->json && result.status != 0)
        start_result_json(c, run, &result);
    else if (code == STET_OK)
        start_result_print(&result);
    c->about = NULL;
    stet_result_free(&result);
    return exit;
}

/* A wait of 0 would mean "the default" to stet_wait(). */
static int
start_check_timeout(cli *c, const char *option)
{
    const char *text = stet__cli_value(c, option);
    int64_t     ms = 1;
    int         exit;

    if (text == NULL || strcmp(text, "none") == 0)
        return CLI_OK;
    if ((exit = stet__cli_duration(c, option, &ms)) != CLI_OK)
        return exit;
    if (ms <= 0)
        return stet__cli_fail(c, CLI_USAGE,
                              "--%s %s: expected more than nothing; \"none\" waits without "
                              "limit",
                              option, text);
    return CLI_OK;
}

static int
wait_run(cli *c)
{
    stet_run_id run;
    int         exit;

    if ((exit = stet__cli_run_id(c, c->args[0], &run)) != CLI_OK ||
        (exit = start_check_timeout(c, "timeout")) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    return start_await(c, &run, stet__cli_value(c, "timeout"));
}

static const cli_option wait_options[] = {
    { "timeout", "DURATION", "how long to wait (30s); \"none\": without limit" },
    { 0 },
};

const cli_verb stet__cli_wait = {
    .name = "wait",
    .args = "RUN",
    .summary = "wait for a run's end and print its result",
    .details = "The exit code tells how it ended: see \"help exit-codes\".\n"
               "    stet wait run_… --timeout 1h",
    .args_min = 1,
    .args_max = 1,
    .options = wait_options,
    .fn = wait_run,
};

/* ---- starting ------------------------------------------------------------------------------- */

static int
start_labels(cli *c, stet_start_options *options)
{
    const char **labels;
    const char  *label;
    size_t       n = 0;

    while ((label = stet__cli_value_at(c, "label", n)) != NULL) {
        if (*label == '=' || strchr(label, '=') == NULL)
            return stet__cli_fail(c, CLI_USAGE, "--label %s: expected name=value", label);
        n++;
    }
    labels = stet__arena_get0(c->arena, (n + 1) * sizeof *labels);
    for (size_t i = 0; i < n; i++)
        labels[i] = stet__cli_value_at(c, "label", i);
    options->labels = n > 0 ? labels : NULL;
    return CLI_OK;
}

/* Durations go through as text; they are checked here, so that the option is named. */
static int
start_durations(cli *c, stet_start_options *options)
{
    int64_t ignored;
    int     exit;

    if ((exit = stet__cli_duration(c, "delay", &ignored)) != CLI_OK ||
        (exit = stet__cli_duration(c, "timeout", &ignored)) != CLI_OK ||
        (exit = stet__cli_duration(c, "retention", &ignored)) != CLI_OK ||
        (exit = stet__cli_time(c, "at", &options->run_at_ms)) != CLI_OK ||
        (exit = stet__cli_time(c, "deadline", &options->deadline_ms)) != CLI_OK)
        return exit;
    options->delay = stet__cli_value(c, "delay");
    options->timeout = stet__cli_value(c, "timeout");
    options->retention = stet__cli_value(c, "retention");
    return CLI_OK;
}

static int
start_read_options(cli *c, stet_start_options *options, stet_run_id *run)
{
    const char *id = stet__cli_value(c, "run");
    int64_t     attempts = 0, priority = 0;
    int         exit;

    stet_start_options_init(options);
    options->key = stet__cli_value(c, "key");
    options->idempotency_key = stet__cli_value(c, "idempotency-key");
    options->group = stet__cli_value(c, "group");
    options->traceparent = stet__cli_value(c, "traceparent");
    options->tracestate = stet__cli_value(c, "tracestate");
    if ((exit = stet__cli_number(c, "attempts", &attempts, 1, 1000000)) != CLI_OK ||
        (exit = stet__cli_number(c, "priority", &priority, INT32_MIN, INT32_MAX)) != CLI_OK ||
        (exit = start_durations(c, options)) != CLI_OK ||
        (exit = start_labels(c, options)) != CLI_OK)
        return exit;
    options->retry.attempts = (int)attempts;
    options->priority = (int32_t)priority;
    if (id != NULL) {
        if ((exit = stet__cli_run_id(c, id, run)) != CLI_OK)
            return exit;
        options->run = run;
    }
    return CLI_OK;
}

static void
start_print(cli *c, const stet_run_id *run, const stet_run_info *info, bool existed)
{
    cli_json j;

    if (!c->json) {
        puts(run->text);
        return;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "run", run->text);
    stet__cli_json_text(&j, "handler", info->handler);
    stet__cli_json_text(&j, "status", stet_status_name(info->status));
    stet__cli_json_bool(&j, "existed", existed);
    stet__cli_json_bool(&j, "served", info->is_served);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

typedef struct start_call {
    stet_start_options options;
    stet_bytes         input;
    stet_run_id        run;
} start_call;

static int
start_ask(cli *c, void *arg)
{
    start_call *call = arg;

    return stet_start(c->engine, &call->run, c->args[0], call->input, &call->options);
}

static int
start_any(cli *c, bool may_wait)
{
    start_call     call;
    stet_run_id    given, run;
    stet_run_info *info;
    bool           existed = false, is_waiting = may_wait && stet__cli_has(c, "wait");
    int            exit, err;

    if ((exit = start_read_options(c, &call.options, &given)) != CLI_OK ||
        (is_waiting && (exit = start_check_timeout(c, "wait")) != CLI_OK) ||
        (exit = stet__cli_payload(c, stet__cli_arg(c, 1), &call.input)) != CLI_OK ||
        (exit = stet__cli_open_to(c, start_ask, &call)) != CLI_OK)
        return exit;
    call.options.existed = &existed;
    if ((err = start_ask(c, &call)) != STET_OK)
        return stet__cli_fail_code(c, err);
    run = call.run;
    if ((exit = stet__cli_run_read(c, &run, &info)) != CLI_OK)
        return exit;
    if (is_waiting)
        stet__cli_note(c, "started %s", run.text);
    else
        start_print(c, &run, info, existed);
    if (existed)
        stet__cli_note(c, "this run existed already; its first input stays");
    stet__cli_note_unserved(c, info);
    return is_waiting ? start_await(c, &run, stet__cli_value(c, "wait")) : CLI_OK;
}

static int
start_run(cli *c)
{
    return start_any(c, true);
}

static int
send_run(cli *c)
{
    return start_any(c, false);
}

#define START_DETAILS                                                                              \
    "INPUT is JSON: text, - for standard input, @FILE for a file. Without it the input is "        \
    "empty.\n"                                                                                     \
    "The run is durable when its ID is printed."

const cli_verb stet__cli_start = {
    .name = "start",
    .args = "HANDLER [INPUT|-|@FILE]",
    .summary = "start a run of a handler (orders.checkout) and print its ID",
    .details = START_DETAILS
    " With --wait the result is printed instead, and\n"
    "the ID goes to standard error; --wait takes a duration with a unit (5s).\n"
    "    stet start orders.checkout '{\"order\":7}' --idempotency-key order-7 --wait 5s",
    .args_min = 1,
    .args_max = 2,
    .options = start_options,
    .creates_store = true,
    .fn = start_run,
};

const cli_verb stet__cli_send = {
    .name = "send",
    .args = "HANDLER [INPUT|-|@FILE]",
    .summary = "the same, never waiting",
    .details = START_DETAILS "\n    stet send mail.reminder '{\"order\":7}' --delay 3d",
    .args_min = 1,
    .args_max = 2,
    .options = send_options,
    .creates_store = true,
    .fn = send_run,
};
