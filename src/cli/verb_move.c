/* move: all runs of one store go on in another. */
#include "cli/cli.h"

typedef struct move_bar {
    bool is_shown;
} move_bar;

static int
move_progress(void *arg, stet_move_phase phase, uint64_t done, uint64_t total)
{
    const move_bar *bar = arg;

    if (bar->is_shown)
        stet__cli_bar(stet_move_phase_name(phase), done, total);
    return STET_OK;
}

static int
move_fail(cli *c, int err)
{
    if (err == STET_ENOTFOUND)
        return stet__cli_fail(c, CLI_STORE, "%s", stet_last_error());
    if (err == STET_ECORRUPT)
        return stet__cli_fail(c, CLI_NEGATIVE, "%s", stet_last_error());
    return stet__cli_fail_code(c, err);
}

static void
move_print(cli *c, const stet_move_report *r)
{
    cli_json j;

    if (!c->json) {
        printf("%llu run%s %s, %llu of them open: %llu facts, %llu inbox entries, %llu baselines\n",
               (unsigned long long)r->runs, r->runs == 1 ? "" : "s",
               r->was_done ? "had been moved before" : "moved", (unsigned long long)r->open_runs,
               (unsigned long long)r->facts, (unsigned long long)r->inbox,
               (unsigned long long)r->baselines);
        if (!r->was_done)
            printf("both sides are the same: sha256 %s\n", r->digest);
        if (r->findings > 0)
            printf("%llu finding%s of verify moved as they were\n", (unsigned long long)r->findings,
                   r->findings == 1 ? "" : "s");
        return;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_int(&j, "runs", (int64_t)r->runs);
    stet__cli_json_int(&j, "open", (int64_t)r->open_runs);
    stet__cli_json_int(&j, "facts", (int64_t)r->facts);
    stet__cli_json_int(&j, "inbox", (int64_t)r->inbox);
    stet__cli_json_int(&j, "baselines", (int64_t)r->baselines);
    stet__cli_json_int(&j, "findings", (int64_t)r->findings);
    stet__cli_json_bool(&j, "continued", r->is_continued);
    stet__cli_json_bool(&j, "was_done", r->was_done);
    stet__cli_json_text(&j, "sha256", r->was_done ? NULL : r->digest);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static int
move_undo(cli *c, const char *from)
{
    int      err = stet_move_undo(from);
    cli_json j;

    if (err != STET_OK)
        return move_fail(c, err);
    if (!c->json) {
        printf("the source takes work; a target that was begun stays closed: delete it\n");
        return CLI_OK;
    }
    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_bool(&j, "undone", true);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
    return CLI_OK;
}

static int
move_run(cli *c)
{
    move_bar         bar = { .is_shown = stet__cli_has_bar(c) };
    const char      *from = stet__cli_value(c, "from"), *to = stet__cli_value(c, "to");
    stet_move_report report;
    int              exit, err;

    if (from == NULL) {
        if ((exit = stet__cli_address(c)) != CLI_OK)
            return exit;
        from = c->db;
    }
    if (stet__cli_has(c, "undo"))
        return to == NULL ? move_undo(c, from)
                          : stet__cli_fail(c, CLI_USAGE, "--undo goes with --from only");
    if (to == NULL)
        return stet__cli_fail(c, CLI_USAGE, "where to? Pass --to URL (for example --to new.db)");
    err = stet_move(&report, from, to, STET_MOVE(.progress = move_progress, .arg = &bar));
    if (bar.is_shown)
        stet__cli_bar_end();
    if (err != STET_OK)
        return move_fail(c, err);
    move_print(c, &report);
    return CLI_OK;
}

static const cli_option move_options[] = {
    { "from", "URL", "the store to move; default: that of --db" },
    { "to", "URL", "an empty store, or the one where a move of this source was interrupted" },
    { "undo", NULL, "call off a move that is not finished: the source takes work again" },
    { 0 },
};

const cli_verb stet__cli_move = {
    .name = "move",
    .args = "",
    .summary = "move all runs, open and ended, to another store; exit code 1 if the sides differ",
    .details =
        "Stop all workers first. While it is moved neither store takes work; in the end both are\n"
        "compared, the target is opened for work, and the source can only be read any more. "
        "Interrupted\n"
        "anywhere, the same command continues.\n"
        "    stet move --from shop.db --to postgres://db/shop",
    .options = move_options,
    .fn = move_run,
};
