/* How a command ends: which code of stet gives which exit code, and what is said on the way.
 *
 * Errors go to standard error as "shop: what happened, what to do"; with --json a second line there
 * says the same to programs. Standard output carries results only. */
#include "cli/cli.h"

#include <string.h>

static const struct {
    int      code;
    cli_exit exit;
} exit_map[] = {
    { STET_OK, CLI_OK },
    { STET_ENOTFOUND, CLI_NOTFOUND },
    { STET_ENOHANDLER, CLI_NOTFOUND },
    { STET_EUNSERVED, CLI_STATE },
    { STET_ERUN, CLI_FAILED },
    { STET_ECANCELLED, CLI_CANCELLED },
    { STET_EEXPIRED, CLI_EXPIRED },
    { STET_ETIMEOUT, CLI_TIMEOUT },
    { STET_EURL, CLI_STORE },
    { STET_ENOTDB, CLI_STORE },
    { STET_ENEWER, CLI_STORE },
    { STET_EREADONLY, CLI_STORE },
    { STET_EIO, CLI_STORE },
    { STET_EFULL, CLI_STORE },
    { STET_EBUSY, CLI_STORE },
    { STET_EPOISONED, CLI_STORE },
    { STET_EUNCERTAIN, CLI_STORE },
    { STET_EEXISTS, CLI_STATE },
    { STET_ESETTLED, CLI_STATE },
    { STET_EENDED, CLI_STATE },
    { STET_EOPEN, CLI_STATE },
    { STET_EMISMATCH, CLI_STATE },
    { STET_ESTATE, CLI_STATE },
    { STET_ECONFLICT, CLI_STATE },
    { STET_EMOVED, CLI_STATE },
    { STET_EKIND, CLI_USAGE },
    { STET_EINVAL, CLI_USAGE },
    { STET_ENAME, CLI_USAGE },
    { STET_EDURATION, CLI_USAGE },
    { STET_EJSON, CLI_USAGE },
    { STET_ETOOBIG, CLI_USAGE },
    { STET_EKEY, CLI_USAGE },
    { STET_ECONFIG, CLI_USAGE },
};

cli_exit
stet__cli_exit_of(int code)
{
    for (size_t i = 0; i < sizeof exit_map / sizeof *exit_map; i++)
        if (exit_map[i].code == code)
            return exit_map[i].exit;
    return CLI_OTHER;
}

static const char *
exit_name(cli_exit exit)
{
    switch (exit) {
#define EXIT_NAME(name, number, text)                                                              \
    case CLI_##name: return #name;
        CLI_EXIT_LIST(EXIT_NAME)
#undef EXIT_NAME
    }
    return "OTHER";
}

static int
exit_say(cli *c, cli_exit exit, const char *code, const char *text)
{
    cli_json j;

    /* What was printed before the failure belongs before it on a terminal, too. */
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", c->name, stet__cli_clean(c, stet_text(text)));
    if (c->json) {
        stet__cli_json_begin(&j, c);
        stet__cli_json_open(&j, NULL, '{');
        stet__cli_json_text(&j, "error", text);
        stet__cli_json_text(&j, "code", code);
        stet__cli_json_int(&j, "exit", exit);
        if (c->about != NULL)
            stet__cli_json_text(&j, "run", c->about);
        stet__cli_json_close(&j, '}');
        stet__cli_json_end(&j, stderr);
    }
    return (int)exit;
}

int
stet__cli_fail(cli *c, cli_exit exit, const char *fmt, ...)
{
    va_list args;
    char    line[2048];

    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    return exit_say(c, exit, exit_name(exit), line);
}

/* About: a file it happened to, which the library does not know; or NULL. */
static int
exit_say_code(cli *c, cli_exit exit, int code, const char *about)
{
    const char *name = stet_code_name(code);
    /* Copied: making the message may itself call stet. */
    const char *text = stet__arena_str(c->arena, stet_last_error());

    if (*text == '\0')
        text = stet_code_text(code);
    if (about != NULL)
        text = stet__cli_printf(c, "%s: %s", about, text);
    return exit_say(c, exit, name ? name : "unknown", text);
}

int
stet__cli_fail_code(cli *c, int code)
{
    return exit_say_code(c, stet__cli_exit_of(code), code, NULL);
}

int
stet__cli_fail_file(cli *c, int code, const char *path)
{
    return exit_say_code(c, stet__cli_exit_of(code), code, path);
}

int
stet__cli_fail_open(cli *c, int code)
{
    bool is_moved = code == STET_EMOVED;
    /* A setting of the engine; what a store says begins with its name. */
    bool is_setting = code == STET_ECONFIG && strncmp(stet_last_error(), "store ", 6) != 0;

    return exit_say_code(c, is_moved || is_setting ? stet__cli_exit_of(code) : CLI_STORE, code,
                         NULL);
}

void
stet__cli_note(cli *c, const char *fmt, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s: ", c->name);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

typedef struct exit_known {
    const char *what;
    bool        is_known;
} exit_known;

static int
exit_on_handler(void *arg, const stet_handler_info *handler)
{
    exit_known *k = arg;
    size_t      len = strlen(k->what);

    if (strncmp(handler->name, k->what, len) == 0)
        k->is_known = k->is_known || handler->name[len] == '\0' || handler->name[len] == '.';
    return STET_OK;
}

static int
exit_on_run(void *arg, const stet_run_info *info)
{
    exit_known *k = arg;

    (void)info;
    k->is_known = true;
    return STET_OK;
}

void
stet__cli_note_unknown(cli *c, const char *what, const char *behind)
{
    exit_known k = { .what = what };

    if (stet_handler_list(c->engine, exit_on_handler, &k) == STET_OK && !k.is_known &&
        stet_run_list(c->engine, STET_FILTER(.handler = what, .limit = 1), exit_on_run, &k) ==
            STET_OK &&
        !k.is_known)
        stet__cli_note(c, "no worker and no run of this store has %s%s", what, behind);
}

/* A worker of this very program would serve it. */
static bool
exit_has_handler(const cli *c, const char *handler)
{
    for (size_t i = 0; i < c->app->n_services; i++) {
        const cli_service  *s = &c->app->services[i];
        size_t              len = strlen(s->name);
        const stet_handler *h = s->handlers;

        if (strncmp(handler, s->name, len) != 0 || handler[len] != '.')
            continue;
        for (; h != NULL && h->name != NULL; h++)
            if (strcmp(handler + len + 1, h->name) == 0)
                return true;
    }
    return false;
}

void
stet__cli_note_unserved(cli *c, const stet_run_info *info)
{
    if (info->is_served || stet_status_is_terminal(info->status))
        return;
    if (exit_has_handler(c, info->handler))
        stet__cli_note(c, "no living worker serves %s, so the run waits; start one: %s",
                       info->handler, stet__cli_command(c, "worker"));
    else
        stet__cli_note(
            c,
            "no living worker serves %s, so the run waits; start a worker of the program "
            "that has this handler on %s",
            info->handler, stet__cli_shown(c, c->db));
}
