/* A program of its own: what stet_app_* gathered, then one command of the command line.
 *
 * An app owns copies of everything it was told, so tables may live on a stack. Mistakes in them are
 * found by stet_register() when a verb opens the store, and reported then. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The command line's allocator ends the process when memory is out, see cli.h. The arena and
 * buffers of the library would otherwise hand a NULL to every line that formats a word. */
static void *
app_get(stet__alloc *a, void *old, size_t size)
{
    void *p;

    (void)a;
    if (size == 0) {
        free(old);
        return NULL;
    }
    if ((p = realloc(old, size)) == NULL) {
        static const char text[] = "stet: out of memory\n";
        ssize_t           n = write(STDERR_FILENO, text, sizeof text - 1);

        (void)n;
        _exit(CLI_OTHER);
    }
    return p;
}

stet_app *
stet_app_new(const char *name)
{
    stet_app *app = app_get(NULL, NULL, sizeof *app);

    memset(app, 0, sizeof *app);
    app->alloc.get = app_get;
    stet__arena_init(&app->arena, &app->alloc);
    app->name = name ? stet__arena_str(&app->arena, name) : NULL;
    stet_options_init(&app->options);
    return app;
}

static const char *
app_copy(stet_app *app, const char *text)
{
    return text ? stet__arena_str(&app->arena, text) : NULL;
}

static const stet_sample *
app_copy_samples(stet_app *app, const stet_sample *from)
{
    stet_sample *to;
    size_t       n = 0;

    if (from == NULL)
        return NULL;
    while (from[n].name != NULL)
        n++;
    to = stet__arena_copy(&app->arena, from, (n + 1) * sizeof *from);
    for (size_t i = 0; i < n; i++) {
        to[i].name = app_copy(app, from[i].name);
        to[i].value = app_copy(app, from[i].value);
    }
    return to;
}

static const stet_handler_options *
app_copy_options(stet_app *app, const stet_handler_options *from)
{
    stet_handler_options *to;

    if (from == NULL)
        return NULL;
    to = stet__arena_copy(&app->arena, from, sizeof *from);
    to->timeout = app_copy(app, from->timeout);
    to->retention = app_copy(app, from->retention);
    to->description = app_copy(app, from->description);
    to->category = app_copy(app, from->category);
    to->default_input = app_copy(app, from->default_input);
    to->samples = app_copy_samples(app, from->samples);
    return to;
}

static const stet_handler *
app_copy_handlers(stet_app *app, const stet_handler *from)
{
    stet_handler *to;
    size_t        n = 0;

    if (from == NULL)
        return NULL;
    while (from[n].name != NULL)
        n++;
    to = stet__arena_copy(&app->arena, from, (n + 1) * sizeof *from);
    for (size_t i = 0; i < n; i++) {
        to[i].name = app_copy(app, from[i].name);
        to[i].options = app_copy_options(app, from[i].options);
    }
    return to;
}

static const stet_entry *
app_copy_entries(stet_app *app, const stet_entry *from)
{
    stet_entry *to;
    size_t      n = 0;

    if (from == NULL)
        return NULL;
    while (from[n].name != NULL)
        n++;
    to = stet__arena_copy(&app->arena, from, (n + 1) * sizeof *from);
    for (size_t i = 0; i < n; i++) {
        to[i].name = app_copy(app, from[i].name);
        if (from[i].value.len > 0)
            to[i].value.data = stet__arena_copy(&app->arena, from[i].value.data, from[i].value.len);
    }
    return to;
}

static void
app_add(stet_app *app, cli_service service)
{
    app->services = stet__grow(&app->alloc, app->services, (app->n_services + 1) * sizeof service);
    app->services[app->n_services++] = service;
}

void
stet_app_service(stet_app *app, const char *service, const stet_handler *handlers)
{
    app_add(app, (cli_service){ .name = app_copy(app, service),
                                .handlers = app_copy_handlers(app, handlers) });
}

void
stet_app_object(stet_app *app, const char *service, const stet_handler *handlers,
                const stet_entry *initial)
{
    app_add(app, (cli_service){ .name = app_copy(app, service),
                                .handlers = app_copy_handlers(app, handlers),
                                .initial = app_copy_entries(app, initial),
                                .is_object = true });
}

void
stet_app_options(stet_app *app, const stet_options *options)
{
    size_t size = sizeof app->options;

    /* A program compiled against an older header passes fewer fields. */
    stet_options_init(&app->options);
    memcpy(&app->options, options, options->size < size ? options->size : size);
    app->options.size = size;
    app->options.worker = app_copy(app, app->options.worker);
}

void
stet_app_schedule(stet_app *app, const char *name, const char *handler, stet_bytes input,
                  const stet_schedule_options *options)
{
    cli_schedule s = { .name = app_copy(app, name), .handler = app_copy(app, handler) };

    s.input = stet_text("");
    if (input.len > 0)
        s.input = (stet_bytes){ stet__arena_copy(&app->arena, input.data, input.len), input.len };
    if (options != NULL) { /* NULL has no time: told when it is ensured */
        s.options = *options;
        s.options.cron = app_copy(app, options->cron);
        s.options.zone = app_copy(app, options->zone);
        s.options.every = app_copy(app, options->every);
        s.options.after = app_copy(app, options->after);
        s.options.function = app_copy(app, options->function);
        s.options.grace = app_copy(app, options->grace);
        s.options.key = app_copy(app, options->key);
        s.options.group = app_copy(app, options->group);
        s.options.timeout = app_copy(app, options->timeout);
    } else
        stet_schedule_options_init(&s.options);
    app->schedules = stet__grow(&app->alloc, app->schedules, (app->n_schedules + 1) * sizeof s);
    app->schedules[app->n_schedules++] = s;
}

void
stet_app_schedule_fn(stet_app *app, const char *function, stet_schedule_fn fn, void *arg)
{
    cli_function f = { app_copy(app, function), fn, arg };

    app->functions = stet__grow(&app->alloc, app->functions, (app->n_functions + 1) * sizeof f);
    app->functions[app->n_functions++] = f;
}

void
stet__app_free(stet_app *app)
{
    stet__free(&app->alloc, app->services);
    stet__free(&app->alloc, app->schedules);
    stet__free(&app->alloc, app->functions);
    stet__arena_free(&app->arena);
    app_get(NULL, app, 0);
}

/* ---- the store ------------------------------------------------------------------------------ */

static int
app_environment(cli *c, stet_options *options)
{
    const stet_config_item *item;
    char                    name[64];

    for (size_t i = 0; (item = stet_config_at(i)) != NULL; i++) {
        const char *value;

        snprintf(name, sizeof name, "STET_%s", item->name);
        for (char *p = name; *p != '\0'; p++)
            *p = (char)toupper((unsigned char)*p);
        value = getenv(name);
        if (value != NULL && stet_options_set(options, item->name, value) != STET_OK)
            return stet__cli_fail(c, CLI_USAGE, "environment variable %s: %s", name,
                                  stet_last_error());
    }
    return CLI_OK;
}

int
stet__cli_options(cli *c, stet_options *options)
{
    *options = c->app->options;
    return app_environment(c, options);
}

int
stet__cli_address(cli *c)
{
    if (c->db == NULL || *c->db == '\0')
        c->db = getenv("STET_DB");
    if ((c->db == NULL || *c->db == '\0') && c->app->name != NULL)
        c->db = stet__cli_printf(c, "%s.db", c->app->name);
    if (c->db == NULL || *c->db == '\0')
        return stet__cli_fail(
            c, CLI_USAGE, "which store? Pass --db URL (for example --db shop.db) or set STET_DB");
    return CLI_OK;
}

/* Of SQLite: a path, or "sqlite:" and a path. */
static bool
app_is_file(const char *db)
{
    const char *from = strncmp(db, "sqlite:", 7) == 0 ? db + 7 : db;
    size_t      colon = strcspn(from, ":?"), slash = strcspn(from, "/?");

    return from[colon] != ':' || slash < colon;
}

static bool
app_is_server(const char *db)
{
    return !app_is_file(db) && strncmp(db, "memory:", 7) != 0;
}

static const char *
app_path(cli *c)
{
    const char *from = strncmp(c->db, "sqlite:", 7) == 0 ? c->db + 7 : c->db;

    return stet__cli_printf(c, "%.*s", (int)strcspn(from, "?"), from);
}

/* A mistyped path must not leave an empty store behind and then report "no runs". */
static int
app_must_exist(cli *c)
{
    if (!app_is_file(c->db) || access(app_path(c), F_OK) == 0)
        return CLI_OK;
    return stet__cli_fail(c, CLI_STORE, "there is no store at %s; a worker or a start makes it",
                          app_path(c));
}

static int
app_register(cli *c)
{
    for (size_t i = 0; i < c->app->n_services; i++) {
        const cli_service *s = &c->app->services[i];
        int err = s->is_object ? stet_register_object(c->engine, s->name, s->handlers, s->initial)
                               : stet_register(c->engine, s->name, s->handlers);

        if (err != STET_OK)
            return stet__cli_fail_code(c, err);
    }
    for (size_t i = 0; i < c->app->n_functions; i++) {
        const cli_function *f = &c->app->functions[i];
        int                 err = stet_register_schedule(c->engine, f->name, f->fn, f->arg);

        if (err != STET_OK)
            return stet__cli_fail_code(c, err);
    }
    return CLI_OK;
}

int
stet__cli_ensure(cli *c)
{
    for (size_t i = 0; i < c->app->n_schedules; i++) {
        const cli_schedule *s = &c->app->schedules[i];
        int err = stet_schedule_ensure(c->engine, NULL, s->name, s->handler, s->input, &s->options);

        if (err != STET_OK)
            return stet__cli_fail_code(c, err);
    }
    return CLI_OK;
}

/* As the first option: a queue's address goes on to the end. What the address says itself stays. */
static const char *
app_with(cli *c, const char *address, const char *name, int value)
{
    const char *options = strchr(address, '?');

    if (options == NULL)
        return stet__cli_printf(c, "%s?%s=%d", address, name, value);
    if (stet__option_is_set(options + 1, name))
        return address;
    return stet__cli_printf(c, "%.*s?%s=%d&%s", (int)(options - address), address, name, value,
                            options + 1);
}

const char *
stet__cli_shown(cli *c, const char *url)
{
    const char *from = strstr(url, "://"), *at = NULL, *colon, *next;
    const char *word = strstr(url, "password=");

    if (word != NULL && word[9] != '\0' && strncmp(word + 9, "…", strlen("…")) != 0)
        return stet__cli_shown(c, stet__cli_printf(c, "%.*spassword=…%s", (int)(word - url), url,
                                                   word + strcspn(word, "&")));
    if (from == NULL)
        return url;
    from += 3;
    if ((next = strstr(from, "://")) == NULL)
        next = from + strlen(from);
    for (const char *i = from; i < next && *i != '?'; i++)
        if (*i == '@')
            at = i; /* a password may have one that was not written as %40 */
    colon = at != NULL ? memchr(from, ':', (size_t)(at - from)) : NULL;
    if (colon == NULL)
        return stet__cli_printf(c, "%.*s%s", (int)(from - url), url, stet__cli_shown(c, from));
    return stet__cli_printf(c, "%.*s:…%s", (int)(colon - url), url, stet__cli_shown(c, at));
}

static int
app_try_in_memory(cli *c, const stet_options *options)
{
    stet_options with = *options;
    int          exit, err;

    /* Nobody is told of what does not happen. */
    with.roles = STET_ROLE_CLIENT;
    with.log_level = STET_LOG_OFF;
    with.log = NULL;
    with.audit = NULL;
    with.id = NULL;
    with.queue = NULL;
    if ((err = stet_open(&c->engine, "memory:", &with)) != STET_OK)
        return stet__cli_fail_code(c, err);
    if ((exit = app_register(c)) == CLI_OK && c->ask != NULL &&
        (err = c->ask(c, c->ask_arg)) != STET_OK)
        exit = stet__cli_fail_code(c, err);
    stet_close(c->engine);
    c->engine = NULL;
    return exit;
}

/* What a call is refused for, an empty store refuses, too: it is found out before there is a new
 * one that nobody wanted. Of a server nobody knows whether it has a store before it is opened. */
static int
app_try(cli *c, const stet_options *options)
{
    if (strncmp(c->db, "memory:", 7) == 0 || (app_is_file(c->db) && access(app_path(c), F_OK) == 0))
        return CLI_OK;
    return app_try_in_memory(c, options);
}

int
stet__cli_open_with(cli *c, const stet_options *options)
{
    const char *address;
    int         exit, err;

    if ((exit = stet__cli_address(c)) != CLI_OK)
        return exit;
    exit = c->verb->creates_store ? app_try(c, options) : app_must_exist(c);
    if (exit != CLI_OK)
        return exit;
    address = c->db; /* what is added is not told */
    if (!c->verb->creates_store && app_is_server(c->db))
        address = app_with(c, address, "create", 0);
    if (c->has_repair && strncmp(c->db, "memory:", 7) != 0)
        address = app_with(c, address, "repair", 1);
    if (c->is_readonly && app_is_file(c->db))
        address = app_with(c, address, "readonly", 1);
    if ((err = stet_open(&c->engine, address, options)) != STET_OK)
        return stet__cli_fail_open(c, err);
    return app_register(c);
}

int
stet__cli_open(cli *c)
{
    stet_options options;
    int          exit;

    if ((exit = stet__cli_options(c, &options)) != CLI_OK)
        return exit;
    options.roles = STET_ROLE_CLIENT;
    /* Whoever asks a question wants the answer, not the engine's diary. */
    if (options.log == NULL && options.log_level < STET_LOG_WARN)
        options.log_level = STET_LOG_WARN;
    return stet__cli_open_with(c, &options);
}

int
stet__cli_open_to(cli *c, cli_ask_fn ask, void *arg)
{
    c->ask = ask;
    c->ask_arg = arg;
    return stet__cli_open(c);
}

const char *
stet__cli_command(cli *c, const char *words)
{
    const char *db = c->verb ? stet__cli_value(c, "db") : NULL;

    return stet__cli_printf(c, "%s %s%s%s", c->program, words, db ? " --db " : "",
                            db ? stet__cli_shown(c, db) : "");
}

/* ---- one command ---------------------------------------------------------------------------- */

/* COLUMNS goes first, so that a pipe can be told a width; without it a pipe is never cut. */
static size_t
app_width(void)
{
    const char    *columns = getenv("COLUMNS");
    struct winsize size;
    long           n = columns ? strtol(columns, NULL, 10) : 0;

    if (n >= 20)
        return (size_t)n;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return isatty(STDOUT_FILENO) ? 80 : SIZE_MAX;
}

static bool
app_has_color(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && (no == NULL || *no == '\0') &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

static int
app_run(cli *c, int argc, char **argv)
{
    int exit;

    if ((exit = stet__cli_parse(c, argc, argv)) != CLI_OK)
        return exit;
    if (c->is_version) {
        printf("%s (stet " STET_VERSION ")\n", c->name);
        return CLI_OK;
    }
    if (c->verb == NULL && !c->is_help) {
        stet__cli_fail(c, CLI_USAGE, "what shall I do? \"%s help\" lists the verbs", c->program);
        return CLI_USAGE;
    }
    return c->is_help ? stet__cli_help.fn(c) : c->verb->fn(c);
}

int
stet_main(int argc, char **argv, stet_app *app)
{
    cli c = { .app = app,
              .alloc = &app->alloc,
              .arena = &app->arena,
              .width = app_width(),
              .has_color = app_has_color() };
    int exit;

    c.name = app->name ? app->name : "stet";
    c.program = argc > 0 && argv[0] != NULL && *argv[0] != '\0' ? argv[0] : c.name;
    exit = app_run(&c, argc, argv);
    stet_close(c.engine);
    if ((fflush(stdout) != 0 || ferror(stdout)) && exit == CLI_OK)
        exit = stet__cli_fail(&c, CLI_OTHER, "the output could not be written");
    stet__app_free(app);
    return exit;
}
