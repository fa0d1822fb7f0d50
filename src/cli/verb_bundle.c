/* export, replay: one run as one file, and that file executed offline. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- export --------------------------------------------------------------------------------- */

static int
export_write(cli *c, stet_bytes bundle, const char *path)
{
    FILE *file = path != NULL ? fopen(path, "wb") : stdout;
    bool  ok;

    if (file == NULL)
        return stet__cli_fail(c, CLI_OTHER, "%s: %s", path, strerror(errno));
    ok = fwrite(bundle.data, 1, bundle.len, file) == bundle.len && fflush(file) == 0;
    if (path != NULL)
        ok = fclose(file) == 0 && ok;
    return ok ? CLI_OK : stet__cli_fail(c, CLI_OTHER, "the bundle could not be written");
}

static int
export_run(cli *c)
{
    const char *path = stet__cli_value(c, "out");
    stet_run_id run;
    stet_bytes  bundle;
    int         exit, err;

    if ((exit = stet__cli_run_id(c, stet__cli_arg(c, 0), &run)) != CLI_OK)
        return exit;
    if (path == NULL && isatty(STDOUT_FILENO))
        return stet__cli_fail(c, CLI_USAGE, "a bundle is no text: redirect it, or pass --out FILE");
    c->is_readonly = true;
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    if ((err = stet_run_export(c->engine, &bundle, &run)) != STET_OK)
        return stet__cli_fail_code(c, err);
    exit = export_write(c, bundle, path);
    stet_free((void *)(uintptr_t)bundle.data);
    return exit;
}

static const cli_option export_options[] = {
    { "out", "FILE", "write it there; default: standard output" },
    { 0 },
};

const cli_verb stet__cli_export = {
    .name = "export",
    .args = "RUN",
    .summary = "write one run as one file: facts, inbox, payloads, build ID",
    .details = "    stet export RUN --db shop.db > run.stet\n"
               "    gdb --args ./shop replay run.stet\n"
               "\n"
               "Open runs too: as they are now. It has the payloads: treat it as you treat them.",
    .args_min = 1,
    .args_max = 1,
    .options = export_options,
    .fn = export_run,
};

/* ---- replay --------------------------------------------------------------------------------- */

/* Not a file, but what other verbs take: a run, or one of its steps or undos. */
static int
replay_no_file(cli *c, const char *path)
{
    const char *why = strerror(errno);

    if (strncmp(path, "run_", 4) == 0)
        return stet__cli_fail(c, CLI_NOTFOUND,
                              "%s: %s; `replay` takes a file: %s export %s --out run.stet", path,
                              why, c->program, path);
    if (strncmp(path, "rollback:", 9) == 0)
        return stet__cli_fail(c, CLI_NOTFOUND,
                              "%s: %s; `replay` takes a file; for an undo there are "
                              "rollback RUN, which tries again, and skip RUN %s",
                              path, why, path);
    return stet__cli_fail(c, CLI_NOTFOUND, "%s: %s", path, why);
}

/* In the arena. */
static int
replay_read(cli *c, const char *path, stet_bytes *out)
{
    FILE     *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    stet__buf b;
    size_t    n;
    char      piece[16384];
    bool      is_read;
    int       error;

    if (file == NULL)
        return replay_no_file(c, path);
    stet__buf_init(&b, c->alloc);
    while (b.len <= STET_BUNDLE_BYTES_MAX && (n = fread(piece, 1, sizeof piece, file)) > 0)
        stet__buf_add(&b, piece, n);
    is_read = ferror(file) == 0;
    error = errno;
    if (file != stdin)
        fclose(file);
    out->data = stet__arena_copy(c->arena, b.data, b.len);
    out->len = b.len;
    stet__buf_free(&b);
    return is_read ? CLI_OK : stet__cli_fail(c, CLI_OTHER, "%s: %s", path, strerror(error));
}

typedef struct replay_out {
    cli   *c;
    size_t n;
    bool   is_fine;
} replay_out;

static void
replay_json(cli *c, const stet_operation *op)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "kind", op->kind);
    stet__cli_json_text(&j, "name", op->name);
    stet__cli_json_int(&j, "occurrence", (int64_t)op->occurrence);
    stet__cli_json_text(&j, "where", op->where);
    stet__cli_json_bool(&j, "recorded", op->is_recorded);
    stet__cli_json_bool(&j, "settled", op->is_settled);
    stet__cli_json_text(&j, "code", op->code ? stet_code_name(op->code) : NULL);
    stet__cli_json_text(&j, "text", op->text);
    stet__cli_json_payload(&j, "value", op->value);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

/* One line as it comes: under a debugger the last line is where the handler is. */
static int
replay_operation(void *arg, const stet_operation *op)
{
    replay_out *r = arg;
    cli        *c = r->c;
    const char *gave;

    r->n++;
    if (c->json) {
        replay_json(c, op);
        fflush(stdout);
        return STET_OK;
    }
    if (!op->is_recorded)
        gave = "is new: nothing is recorded";
    else if (!op->is_settled)
        gave = "has not come yet";
    else if (op->code != 0)
        gave = stet__cli_printf(c, "failed: %s",
                                op->text != NULL ? op->text : stet_code_text(op->code));
    else
        gave = op->value.len > 0 ? stet__cli_payload_text(c, op->value) : "-";
    printf("%4zu  %s %s#%llu  ", r->n, op->kind, stet__cli_clean(c, stet_text(op->name)),
           (unsigned long long)op->occurrence);
    stet__cli_paint(c, op->code != 0 ? CLI_BAD : CLI_PLAIN, stet__cli_clean(c, stet_text(gave)));
    if (op->where != NULL) {
        printf("  ");
        stet__cli_paint(c, CLI_DIM, op->where);
    }
    putchar('\n');
    fflush(stdout);
    return STET_OK;
}

static int
replay_report(void *arg, const stet_replay_report *report)
{
    replay_out *r = arg;
    cli_json    j;

    r->is_fine = report->is_fine && report->end != STET_REPLAY_NO_HANDLER;
    if (r->c->json) {
        stet__cli_json_begin(&j, r->c);
        stet__cli_json_open(&j, NULL, '{');
        stet__cli_json_text(&j, "end", stet_replay_end_name(report->end));
        stet__cli_json_bool(&j, "fine", r->is_fine);
        stet__cli_json_text(&j, "recorded", report->recorded);
        stet__cli_json_text(&j, "asked", report->asked);
        stet__cli_json_text(&j, "where", report->where);
        stet__cli_json_text(&j, "text", report->text);
        stet__cli_json_close(&j, '}');
        stet__cli_json_end(&j, stdout);
        return STET_OK;
    }
    stet__cli_paint(r->c, r->is_fine ? CLI_GOOD : CLI_BAD, report->text);
    if (report->end == STET_REPLAY_RECORD && report->asked != NULL)
        printf(": next is %s%s%s", report->asked, report->where != NULL ? " at " : "",
               report->where != NULL ? report->where : "");
    putchar('\n');
    return STET_OK;
}

static void
replay_head(cli *c, const stet_bundle_info *info)
{
    if (!c->json)
        printf("run %s of %s, %s, as of revision %llu\n", info->run.text,
               stet__cli_clean(c, stet_text(info->handler)), stet_status_name(info->status),
               (unsigned long long)info->revision);
    if (!info->is_this_build && info->build[0] != '\0')
        stet__cli_note(c, "exported by another build (%s, stet %s)",
                       stet__cli_clean(c, stet_text(info->build)),
                       stet__cli_clean(c, stet_text(info->version)));
}

static int
replay_run(cli *c)
{
    replay_out       r = { .c = c };
    stet_bundle_info info;
    stet_bytes       bundle;
    int              exit, err;

    if (c->app->n_services == 0)
        return stet__cli_fail(c, CLI_USAGE,
                              "%s has no handlers: let the program of the run replay it "
                              "(./shop replay run.stet)",
                              c->name);
    if ((exit = replay_read(c, stet__cli_arg(c, 0), &bundle)) != CLI_OK)
        return exit;
    if ((err = stet_bundle_read(&info, bundle)) != STET_OK)
        return stet__cli_fail_file(c, err, stet__cli_arg(c, 0));
    c->db = "memory:"; /* an engine without a store; only its handlers are used */
    if ((exit = stet__cli_open(c)) != CLI_OK)
        return exit;
    replay_head(c, &info);
    if ((err = stet_replay(c->engine, bundle, replay_operation, replay_report, &r)) != STET_OK)
        return stet__cli_fail_code(c, err);
    return r.is_fine ? CLI_OK : CLI_NEGATIVE;
}

const cli_verb stet__cli_replay = {
    .name = "replay",
    .args = "FILE",
    .summary = "execute an exported run offline until its record ends; exit code 1 if it disagrees",
    .details = "    gdb --args ./shop replay run.stet\n"
               "\n"
               "In this process and thread, without a store and without side effects: no step body "
               "is entered.\n"
               "Prints each operation with its recorded result as the handler asks for it. - reads "
               "standard input.",
    .args_min = 1,
    .args_max = 1,
    .needs_handlers = true,
    .fn = replay_run,
};
