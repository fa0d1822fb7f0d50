/* handlers, workers, health: what serves this store. */
#include "cli/cli.h"

typedef struct fleet_list {
    cli      *c;
    cli_table table;
    int64_t   now_ms;
    size_t    n;
} fleet_list;

/* ---- handlers ------------------------------------------------------------------------------- */

static const cli_column handlers_columns[] = {
    { "HANDLER", CLI_CELL_FIXED },     { "KIND", CLI_CELL_FIXED },
    { "HERE", CLI_CELL_FIXED },        { "WORKERS", CLI_CELL_FIXED },
    { "CATEGORY", CLI_CELL_CUT },      { "DESCRIPTION", CLI_CELL_CUT },
    { "DEFAULT INPUT", CLI_CELL_CUT },
};

static int
handlers_each(void *arg, const stet_handler_info *handler)
{
    fleet_list *l = arg;
    const char *cells[] = { handler->name,
                            handler->is_shared   ? "shared"
                            : handler->is_object ? "object"
                                                 : "service",
                            handler->is_here ? "yes" : "no",
                            stet__cli_printf(l->c, "%zu", handler->workers),
                            handler->category,
                            handler->description,
                            handler->default_input };
    cli_json    j;

    l->n++;
    if (!l->c->json) {
        stet__cli_table_row(&l->table, cells);
        return STET_OK;
    }
    stet__cli_json_begin(&j, l->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "handler", handler->name);
    stet__cli_json_text(&j, "kind", cells[1]);
    stet__cli_json_bool(&j, "here", handler->is_here);
    stet__cli_json_int(&j, "workers", (int64_t)handler->workers);
    stet__cli_json_text(&j, "category", handler->category);
    stet__cli_json_text(&j, "description", handler->description);
    stet__cli_json_text(&j, "default_input", handler->default_input);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return STET_OK;
}

static int
handlers_run(cli *c)
{
    fleet_list l = { .c = c };
    int        exit, err;

    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    stet__cli_table_begin(&l.table, c, handlers_columns,
                          sizeof handlers_columns / sizeof *handlers_columns);
    err = stet_handler_list(c->engine, handlers_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "no handlers: none in this program, and no living worker serves any");
    return CLI_OK;
}

const cli_verb stet__cli_handlers = {
    .name = "handlers",
    .args = "",
    .summary = "list handlers: of this program, and of living workers",
    .details = "    ./shop handlers",
    .fn = handlers_run,
    /* A program can tell its own handlers before there is any store. */
    .creates_store = true,
};

/* ---- workers -------------------------------------------------------------------------------- */

static const cli_column workers_columns[] = {
    { "WORKER", CLI_CELL_FIXED },  { "NAME", CLI_CELL_CUT },    { "HOST", CLI_CELL_CUT },
    { "PROCESS", CLI_CELL_FIXED }, { "ROLES", CLI_CELL_FIXED }, { "SLOTS", CLI_CELL_FIXED },
    { "STARTED", CLI_CELL_FIXED }, { "SEEN", CLI_CELL_FIXED },  { "STATE", CLI_CELL_FIXED },
    { "HANDLERS", CLI_CELL_CUT },
};

static const char *
workers_roles(uint32_t roles)
{
    bool is_worker = (roles & STET_ROLE_WORKER) != 0, has_timers = (roles & STET_ROLE_TIMERS) != 0;

    return is_worker && has_timers ? "worker,timers"
           : is_worker             ? "worker"
           : has_timers            ? "timers"
                                   : "-";
}

/* "orders.checkout, orders.refund": in a name may be spaces, but no comma. */
static const char *
workers_handlers(cli *c, const char *lines)
{
    const char *text = "";

    while (*lines != '\0') {
        size_t len = strcspn(lines, "\n");

        text = stet__cli_printf(c, "%s%s%.*s", text, *text != '\0' ? ", " : "", (int)len, lines);
        lines += len + (lines[len] == '\n');
    }
    return text;
}

static void
workers_json(cli *c, const stet_worker_info *worker)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "worker", worker->id);
    stet__cli_json_text(&j, "name", worker->name);
    stet__cli_json_text(&j, "host", worker->host);
    stet__cli_json_int(&j, "process", worker->process);
    stet__cli_json_text(&j, "roles", workers_roles(worker->roles));
    stet__cli_json_int(&j, "slots", worker->slots);
    stet__cli_json_time(&j, "started_ms", worker->started_ms);
    stet__cli_json_time(&j, "seen_ms", worker->seen_ms);
    stet__cli_json_bool(&j, "dead", worker->is_dead);
    stet__cli_json_lines(&j, "handlers", worker->handlers);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static int
workers_each(void *arg, const stet_worker_info *worker)
{
    fleet_list *l = arg;
    cli        *c = l->c;
    const char *cells[] = { worker->id,
                            worker->name,
                            worker->host,
                            stet__cli_printf(c, "%lld", (long long)worker->process),
                            workers_roles(worker->roles),
                            stet__cli_printf(c, "%u", worker->slots),
                            stet__cli_relative(c, worker->started_ms, l->now_ms),
                            stet__cli_relative(c, worker->seen_ms, l->now_ms),
                            worker->is_dead ? "dead" : "alive",
                            workers_handlers(c, worker->handlers) };

    l->n++;
    if (c->json)
        workers_json(c, worker);
    else
        stet__cli_table_row(&l->table, cells);
    return STET_OK;
}

static int
workers_run(cli *c)
{
    fleet_list l = { .c = c };
    int        exit, err;

    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    l.now_ms = stet_engine_now_ms(c->engine);
    stet__cli_table_begin(&l.table, c, workers_columns,
                          sizeof workers_columns / sizeof *workers_columns);
    err = stet_worker_list(c->engine, workers_each, &l);
    stet__cli_table_end(&l.table);
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    if (l.n == 0 && !c->json)
        stet__cli_note(c, "no workers");
    return CLI_OK;
}

const cli_verb stet__cli_workers = {
    .name = "workers",
    .args = "",
    .summary = "list workers with their last sign of life",
    .details = "    stet workers",
    .fn = workers_run,
};

/* ---- health --------------------------------------------------------------------------------- */

static void
health_json(cli *c, const stet_health *health, bool is_healthy, const char *text)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_bool(&j, "healthy", is_healthy);
    stet__cli_json_bool(&j, "store", health->has_store);
    stet__cli_json_bool(&j, "timers", health->has_timers);
    stet__cli_json_int(&j, "workers", (int64_t)health->workers);
    stet__cli_json_bool(&j, "mirrored", health->is_mirrored);
    stet__cli_json_bool(&j, "teller", health->has_teller);
    stet__cli_json_text(&j, "text", text);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static int
health_run(cli *c)
{
    stet_health health = { 0 };
    bool        is_healthy;
    int         exit, err;
    const char *text;

    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    if ((err = stet_health_get(c->engine, &health)) != STET_OK)
        return stet__cli_fail_code(c, err);
    /* This process serves nothing, so the question is about the store and the others. */
    is_healthy = health.has_store && health.has_timers && health.workers > 0;
    text = stet__cli_printf(
        c, "%s: the store %s, %zu living worker%s, timers are %s%s",
        is_healthy ? "healthy" : "unhealthy", health.has_store ? "answers" : "does not answer",
        health.workers, health.workers == 1 ? "" : "s", health.has_timers ? "served" : "not served",
        !health.is_mirrored ? ""
        : health.has_teller
            ? ", a living engine has the audit hook; its log says what the hook refuses"
            : ", no living engine tells the audit hook");
    if (c->json)
        health_json(c, &health, is_healthy, text);
    else
        puts(text);
    return is_healthy ? CLI_OK : CLI_NEGATIVE;
}

const cli_verb stet__cli_health = {
    .name = "health",
    .args = "",
    .summary = "is the store reachable, do workers live, are timers served",
    .details = "Exit code 0 if all three are so, 1 if not, 8 if the store cannot be opened.\n"
               "    stet health --db postgres://db/shop || page somebody",
    .fn = health_run,
};
