/* query, update: asking a run under way, and changing it. */
#include "cli/cli.h"

/* What a run answered, alone on standard output. */
static int
live_print(cli *c, const stet_run_id *run, stet_bytes reply)
{
    cli_json j;

    if (c->json) {
        stet__cli_json_begin(&j, c);
        stet__cli_json_open(&j, NULL, '{');
        stet__cli_json_text(&j, "run", run->text);
        stet__cli_json_payload(&j, "reply", reply);
        stet__cli_json_close(&j, '}');
        stet__cli_json_end(&j, stdout);
    } else if (reply.len > 0)
        printf("%s\n", stet__cli_payload_text(c, reply));
    stet_free((void *)(uintptr_t)reply.data);
    return CLI_OK;
}

static int
query_run(cli *c)
{
    stet_run_id run;
    stet_bytes  input, reply;
    int64_t     timeout_ms = 0;
    int         exit, err;

    if ((exit = stet__cli_run_id(c, c->args[0], &run)) != CLI_OK ||
        (exit = stet__cli_payload(c, stet__cli_arg(c, 2), &input)) != CLI_OK ||
        (exit = stet__cli_duration(c, "timeout", &timeout_ms)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    if ((err = stet_query(c->engine, &reply, &run, c->args[1], input, timeout_ms)) != STET_OK)
        return stet__cli_fail_code(c, err);
    return live_print(c, &run, reply);
}

static const cli_option query_options[] = {
    { "raw", NULL, "INPUT need not be JSON" },
    { "timeout", "D", "how long a worker may take to answer (10s)" },
    { 0 },
};

const cli_verb stet__cli_query = {
    .name = "query",
    .args = "RUN NAME [INPUT|-|@FILE]",
    .summary = "ask a run about its variables, also one that has ended",
    .details =
        "The handler says what can be asked. It is executed against what is recorded, without any\n"
        "effect: by this program if it has the handler, else by a worker that serves it.\n"
        "    stet query run_… status",
    .args_min = 2,
    .args_max = 3,
    .options = query_options,
    .fn = query_run,
};

static int
update_run(cli *c)
{
    stet_update_options options = { .size = sizeof options };
    stet_run_id         run;
    stet_bytes          input, reply;
    int                 exit, err;

    if ((exit = stet__cli_run_id(c, c->args[0], &run)) != CLI_OK ||
        (exit = stet__cli_payload(c, stet__cli_arg(c, 2), &input)) != CLI_OK ||
        (exit = stet__cli_duration(c, "timeout", &options.timeout_ms)) != CLI_OK ||
        (exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    options.idempotency_key = stet__cli_value(c, "key");
    options.by = stet__cli_by(c);
    if ((err = stet_update(c->engine, &reply, &run, c->args[1], input, &options)) != STET_OK)
        return stet__cli_fail_code(c, err);
    return live_print(c, &run, reply);
}

static const cli_option update_options[] = {
    { "raw", NULL, "INPUT need not be JSON" },
    { "key", "KEY", "repeating with the same key gives the same answer, and changes it once" },
    { "timeout", "D", "how long to wait for the answer (10s); it is not taken back then" },
    { "by", "WHO", "who asks for it (the user)" },
    { 0 },
};

const cli_verb stet__cli_update = {
    .name = "update",
    .args = "RUN NAME [INPUT|-|@FILE]",
    .summary = "change the variables of an open run, and print what it answers",
    .details = "The handler says what can be changed, and may refuse. It is taken in where the run "
               "waits.\n"
               "    stet update run_… set-address '{\"city\":\"Bonn\"}' --key ticket-81",
    .args_min = 2,
    .args_max = 3,
    .options = update_options,
    .fn = update_run,
};
