/* worker: serve the program's handlers until a signal says stop.
 *
 * SIGINT and SIGTERM are blocked before the engine makes its threads and taken with sigwait, so no
 * code runs in a signal handler. The first one drains; from then on the signals have their default
 * effect again, so the second one ends the process at once. That is safe at any moment: what was
 * recorded stands, and the next worker goes on. */
#include "cli/cli.h"
#include "platform/platform.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORKER_IDLE_POLL_MS 100

static const cli_option worker_options[] = {
    { "concurrency", "N", "slots: threads that execute handlers (10)" },
    { "worker", "NAME", "a name for people (host and process number)" },
    { "drain", "DURATION", "how long a stop waits for step bodies to end (10s)" },
    { "log-level", "LEVEL", "debug, info, warn, error or off (info); with --json lines are JSON" },
    { "set", "NAME=VALUE", "any line of `help config`; may be repeated" },
    { "until-idle", NULL, "stop when nothing is left to execute" },
    { 0 },
};

static int
worker_set(cli *c, stet_options *options)
{
    const char *given;

    for (size_t i = 0; (given = stet__cli_value_at(c, "set", i)) != NULL; i++) {
        const char *equals = strchr(given, '=');

        if (equals == NULL)
            return stet__cli_fail(c, CLI_USAGE,
                                  "--set %s: expected name=value; see \"%s help config\"", given,
                                  c->program);
        if (stet_options_set(options, stet__cli_printf(c, "%.*s", (int)(equals - given), given),
                             equals + 1) != STET_OK)
            return stet__cli_fail(c, CLI_USAGE, "--set %s: %s", given, stet_last_error());
    }
    return CLI_OK;
}

static const char *
worker_name(cli *c)
{
    char host[128] = "worker";

    gethostname(host, sizeof host - 1);
    return stet__cli_printf(c, "%s-%ld", host, (long)getpid());
}

/* ---- logs ----------------------------------------------------------------------------------- */

static void
worker_log_text(void *arg, const stet_log_record *r)
{
    (void)arg;
    stet__log_print(r);
}

/* One line, one write: lines of several threads do not mix. Without memory the line is lost, not
 * the worker, so the memory is not the command line's. */
static void
worker_log_json(void *arg, const stet_log_record *r)
{
    cli_json j;
    char     code[STET__CODE_TEXT_MAX];

    (void)arg;
    stet__buf_init(&j.buf, &stet__platform_real()->alloc);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "level", stet__level_name(r->level));
    stet__cli_json_int(&j, "time_ms", r->time_ms);
    stet__cli_json_text(&j, "message", r->message);
    if (r->run != NULL)
        stet__cli_json_text(&j, "run", r->run);
    if (r->handler != NULL)
        stet__cli_json_text(&j, "handler", r->handler);
    if (r->step != NULL)
        stet__cli_json_text(&j, "step", r->step);
    if (r->code != 0)
        stet__cli_json_text(&j, "code", stet__code_text(code, r->code));
    if (r->n_own > 0) {
        stet__cli_json_open(&j, "fields", '{');
        for (size_t i = 0; i < r->n_own; i++)
            stet__cli_json_text(&j, r->own[i].name, r->own[i].value);
        stet__cli_json_close(&j, '}');
    }
    stet__cli_json_close(&j, '}');
    stet__buf_byte(&j.buf, '\n');
    if (!j.buf.failed)
        fwrite(j.buf.data, 1, j.buf.len, stderr);
    stet__buf_free(&j.buf);
}

static int
worker_log(cli *c, stet_options *options)
{
    const char *given = stet__cli_value(c, "log-level");
    size_t      level = 0;

    if (given != NULL) {
        while (level <= STET_LOG_OFF && strcmp(stet__level_name((stet_level)level), given) != 0)
            level++;
        if (level > STET_LOG_OFF)
            return stet__cli_fail(
                c, CLI_USAGE, "--log-level %s: expected debug, info, warn, error or off", given);
    }
    /* Level 0 is "the normal one" to standard error, and everything to a sink of one's own. */
    if (options->log == NULL && (c->json || (given != NULL && level == STET_LOG_DEBUG))) {
        if (given == NULL && options->log_level == STET_LOG_DEBUG)
            options->log_level = STET_LOG_INFO;
        options->log = c->json ? worker_log_json : worker_log_text;
    }
    if (given != NULL)
        options->log_level = (stet_level)level;
    return CLI_OK;
}

static int
worker_configure(cli *c, stet_options *options)
{
    int exit;

    if ((exit = stet__cli_options(c, options)) != CLI_OK ||
        (exit = worker_set(c, options)) != CLI_OK || (exit = worker_log(c, options)) != CLI_OK ||
        (exit = stet__cli_number(c, "concurrency", &options->concurrency, 1, 1024)) != CLI_OK ||
        (exit = stet__cli_duration(c, "drain", &options->drain_ms)) != CLI_OK)
        return exit;
    if (stet__cli_has(c, "worker"))
        options->worker = stet__cli_value(c, "worker");
    if (options->worker == NULL)
        options->worker = worker_name(c);
    return CLI_OK;
}

static int64_t
worker_slots(const stet_options *options)
{
    const stet_config_item *item;

    if (options->concurrency != 0)
        return options->concurrency;
    for (size_t i = 0; (item = stet_config_at(i)) != NULL; i++)
        if (strcmp(item->name, "concurrency") == 0)
            return item->normal;
    return 0;
}

static void
worker_ready_json(cli *c, const stet_options *options)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "worker", options->worker);
    stet__cli_json_text(&j, "db", stet__cli_shown(c, c->db));
    stet__cli_json_int(&j, "slots", worker_slots(options));
    stet__cli_json_open(&j, "handlers", '[');
    for (size_t i = 0; i < c->app->n_services; i++)
        for (const stet_handler *h = c->app->services[i].handlers; h->name != NULL; h++)
            stet__cli_json_text(&j, NULL,
                                stet__cli_printf(c, "%s.%s", c->app->services[i].name, h->name));
    stet__cli_json_close(&j, ']');
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static void
worker_ready(cli *c, const stet_options *options)
{
    const char *comma = "";

    if (c->json) {
        worker_ready_json(c, options);
    } else {
        printf("worker %s serves ", options->worker);
        for (size_t i = 0; i < c->app->n_services; i++)
            for (const stet_handler *h = c->app->services[i].handlers; h->name != NULL;
                 h++, comma = ", ")
                printf("%s%s.%s", comma, c->app->services[i].name, h->name);
        printf(" on %s with %lld slots\n", stet__cli_shown(c, c->db),
               (long long)worker_slots(options));
    }
    /* Whoever started this process waits for the line. */
    fflush(stdout);
}

static int
worker_found(void *arg, const stet_run_info *info)
{
    (void)info;
    *(bool *)arg = true;
    return STET_OK;
}

typedef struct worker_look {
    const char *handler;
    bool        is_paused;
} worker_look;

static int
worker_on_paused(void *arg, const stet_paused *paused)
{
    worker_look *l = arg;
    size_t       len = strlen(paused->what);

    l->is_paused = l->is_paused || (strncmp(l->handler, paused->what, len) == 0 &&
                                    (l->handler[len] == '\0' || l->handler[len] == '.'));
    return STET_OK;
}

/* Of one that is paused only what is being executed is to be waited for. */
static int
worker_has_work(cli *c, const char *handler, bool *has_work)
{
    worker_look     l = { .handler = handler };
    stet_run_filter filter = { .size = sizeof filter, .handler = handler, .limit = 1 };
    int             err;

    filter.statuses = 1u << STET_STATUS_RUNNING;
    if ((err = stet_paused_list(c->engine, worker_on_paused, &l)) != STET_OK)
        return err;
    if (!l.is_paused)
        filter.statuses |= 1u << STET_STATUS_PENDING | 1u << STET_STATUS_RETRYING |
                           1u << STET_STATUS_CANCELLING | 1u << STET_STATUS_COMPENSATING;
    return stet_run_list(c->engine, &filter, worker_found, has_work);
}

static int
worker_is_idle(cli *c, bool *is_idle)
{
    bool has_work = false;
    int  err;

    for (size_t i = 0; i < c->app->n_services; i++)
        for (const stet_handler *h = c->app->services[i].handlers; h->name != NULL && !has_work;
             h++) {
            char handler[512];

            (void)snprintf(handler, sizeof handler, "%s.%s", c->app->services[i].name, h->name);
            if ((err = worker_has_work(c, handler, &has_work)) != STET_OK)
                return stet__cli_fail_code(c, err);
        }
    *is_idle = !has_work;
    return CLI_OK;
}

/* Until a signal, or until there is nothing left to do if that was asked for. */
static int
worker_wait(cli *c, const sigset_t *signals)
{
    const struct timespec poll = { 0, WORKER_IDLE_POLL_MS * 1000000L };
    int                   taken, exit;
    bool                  is_idle = false;

    if (!stet__cli_has(c, "until-idle")) {
        while (sigwait(signals, &taken) != 0)
            continue;
        stet__cli_note(
            c, "stopping; running step bodies may end first; a second signal ends it at once");
        return CLI_OK;
    }
    do {
        if ((exit = worker_is_idle(c, &is_idle)) != CLI_OK || is_idle)
            return exit;
    } while (sigtimedwait(signals, NULL, &poll) < 0);
    return CLI_OK;
}

static int
worker_stop(cli *c, const stet_options *options, const sigset_t *signals)
{
    int64_t drain_ms = options->drain_ms;
    int     err;

    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    if (drain_ms == 0 && stet__cli_has(c, "drain"))
        drain_ms = STET_NONE;
    if ((err = stet_engine_stop(c->engine, drain_ms)) == STET_OK)
        return CLI_OK;
    if (err != STET_EBUSY)
        return stet__cli_fail_code(c, err);
    stet__cli_fail(c, CLI_TIMEOUT, "%s; ending without it, the next worker runs that step again",
                   stet_last_error());
    fflush(NULL);
    /* Closing the engine would wait for the body that was just given up. */
    _exit(CLI_TIMEOUT);
}

static int
worker_run(cli *c)
{
    stet_options options;
    sigset_t     signals, before;
    int          exit, err;

    if (c->app->n_services == 0)
        return stet__cli_fail(
            c, CLI_USAGE,
            "this command has no handlers to serve; run the worker verb of a program "
            "that calls stet_main() with its services");
    if ((exit = worker_configure(c, &options)) != CLI_OK)
        return exit;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    if ((exit = stet__cli_open_with(c, &options)) != CLI_OK)
        goto done;
    if ((exit = stet__cli_ensure(c)) != CLI_OK)
        goto done;
    if ((err = stet_engine_start(c->engine)) != STET_OK) {
        exit = stet__cli_fail_code(c, err);
        goto done;
    }
    worker_ready(c, &options);
    exit = worker_wait(c, &signals);
    if ((err = worker_stop(c, &options, &signals)) != CLI_OK && exit == CLI_OK)
        exit = err;
done:
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return exit;
}

const cli_verb stet__cli_worker = {
    .name = "worker",
    .args = "",
    .summary = "serve this program's handlers until SIGINT or SIGTERM",
    .details = "The first signal stops it in order, a second one ends it at once; both are safe: "
               "what was\n"
               "recorded stands and the next worker goes on.\n"
               "--until-idle: stops when no run of its handlers is pending (also a delayed one), "
               "running,\n"
               "retrying, cancelling or compensating. Suspended runs (sleeping, waiting for an "
               "awakeable)\n"
               "do not keep it.\n"
               "Settings come from the program, then from STET_<NAME> in the environment, then "
               "from --set.\n"
               "    ./shop worker --db shop.db --set concurrency=20",
    .options = worker_options,
    .creates_store = true,
    .needs_handlers = true,
    .fn = worker_run,
};
