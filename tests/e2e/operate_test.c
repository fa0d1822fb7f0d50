/* The verbs of operators, as their users meet them (C8, I12, H2). */
#include <signal.h>
#include <string.h>

#include "command.h"

static const char nobody[] = "run_00000000000000000000000000";

TEST(C8_cli_a_run_is_paused_and_resumed_and_show_tells_the_story)
{
    const char *run = START("orders.post");
    outcome     o;

    drain();
    CHECK_HAS(OK("pause", run, "--by", "ops", "--why", "stocktaking").out, "paused");
    CHECK_HAS(OK("why", run).out, "was paused by ops");
    CHECK_HAS(OK("why", run).out, " resume run_");
    CHECK(strstr(OK("show", run).out, "9999") == NULL); /* it is due when somebody resumes it */
    CHECK_HAS(CHECK_EXIT(RUN("pause", run), 9).err, "was paused by ops");
    OK("signal", run, "paid", "1");
    drain();
    CHECK_HAS(OK("ls", "--status", "paused").out, run);
    CHECK_HAS(OK("resume", run, "--by", "ops", "--note", "done").out, "resumed");
    drain();
    CHECK_STR(OK("wait", run).out, "1\n");
    o = OK("show", run);
    CHECK_HAS(o.out, "paused");
    CHECK_HAS(o.out, "ops");
    CHECK_HAS(o.out, "stocktaking");
    CHECK_HAS(CHECK_EXIT(RUN("pause", run), 9).err, "has ended");
    CHECK_EXIT(RUN("pause", nobody), 3);
    CHECK_EXIT(RUN("resume"), 2);
}

TEST(C8_cli_a_handler_and_a_service_are_paused)
{
    const char *run = START("orders.echo", "0");

    CHECK_HAS(OK("pause").err, "no handler or service is paused");
    CHECK_HAS(OK("pause", "--handler", "orders.echo", "--why", "a bad release").out, "paused");
    CHECK_HAS(OK("pause", "--service", "wallet").out, "paused");
    CHECK_HAS(OK("pause").out, "a bad release");
    CHECK_INT(json_lines(OK("pause", "--json").out), 2);
    CHECK_HAS(CHECK_EXIT(RUN("pause", "--handler", "orders.echo"), 9).err, "was paused");
    run = START("orders.echo", "1");
    drain();
    CHECK_HAS(OK("why", run).out, "orders.echo is paused by tester: a bad release");
    CHECK_HAS(OK("resume", "--handler", "orders.echo").out, "resumed");
    CHECK_HAS(CHECK_EXIT(RUN("resume", "--handler", "orders.echo"), 3).err,
              "is not paused; `stet pause` lists what is");
    CHECK_HAS(CHECK_EXIT(RUN("resume", "--service", "walet"), 3).err, "did you mean wallet?");
    drain();
    CHECK_STR(OK("wait", run).out, "1\n");
    OK("resume", "--service", "wallet");
}

/* It may come with the next release; or it is a slip. */
TEST(C8_cli_a_pause_of_a_handler_that_nobody_has_is_accepted_with_a_word)
{
    outcome o;

    OK("start", "orders.echo");
    CHECK_STR(OK("pause", "--handler", "orders.echo").err, "");
    CHECK_STR(OK("pause", "--service", "orders").err, "");
    o = OK("pause", "--handler", "orders.ecko");
    CHECK_HAS(o.out, "paused");
    CHECK_HAS(o.err, "no worker and no run of this store has orders.ecko");
    CHECK_HAS(OK("pause", "--service", "ordrs").err,
              "no worker and no run of this store has ordrs");
    CHECK_HAS(OK("pause").out, "orders.ecko");
}

/* Nothing chosen by a name that nobody has is a slip, too. */
TEST(C8_cli_all_runs_of_a_handler_that_nobody_has_are_none_with_a_word)
{
    outcome o;

    OK("start", "orders.echo");
    o = OK("resume", "--all", "--handler", "orders.ecko");
    CHECK_HAS(o.out, "0 of 0 resumed");
    CHECK_HAS(o.err, "no worker and no run of this store has orders.ecko");
    CHECK_HAS(OK("cancel", "--all", "--service", "ordrs", "--dry-run").err,
              "no worker and no run of this store has ordrs");
    CHECK_STR(OK("cancel", "--all", "--handler", "orders.echo", "--key", "k").err, "");
}

TEST(C8_cli_a_step_is_skipped_and_edited_and_the_run_rewound)
{
    const char *run = START("orders.post"), *gate = START("orders.gate");

    drain();
    CHECK_EXIT(RUN("skip", run), 2);
    CHECK_EXIT(RUN("edit", run, "count"), 2);
    CHECK_HAS(CHECK_EXIT(RUN("edit", run, "count", "1"), 3).err, "nor any step");
    CHECK_HAS(CHECK_EXIT(RUN("rewind", run), 2).err, "--start");
    CHECK_HAS(CHECK_EXIT(RUN("rewind", run, "x", "--start"), 2).err, "--start");
    CHECK_HAS(CHECK_EXIT(RUN("rewind", gate, "count"), 3).err,
              "it has awakeable approval#1, hand-out#1");
    CHECK_HAS(CHECK_EXIT(RUN("skip", gate, "hand-out#1", "1"), 9).err, "edit");
    CHECK_HAS(OK("edit", gate, "hand-out", "{\"x\":1}", "--note", "test").out, "new result");
    CHECK_HAS(OK("rewind", gate, "hand-out", "--json").out, "\"done\"");
    CHECK_HAS(OK("rewind", gate, "--start").out, "goes on");
    drain();
    CHECK_HAS(OK("show", gate).out, "result replaced");
    CHECK_HAS(OK("show", gate).out, "rewound");
    OK("skip", run, "later", "null");
    CHECK_HAS(OK("show", run).out, "step skipped");
}

TEST(C8_cli_a_run_is_failed_retried_and_forked)
{
    const char *run = START("orders.post"), *again, *fork;

    drain();
    CHECK_HAS(OK("fail", run, "--why", "the customer is gone").out, "failed");
    CHECK_HAS(CHECK_EXIT(RUN("wait", run), 4).err, "the customer is gone");
    CHECK_HAS(CHECK_EXIT(RUN("fail", run), 9).err, "has ended");
    again = word(OK("retry", run, "--by", "ann", "--why", "he is back").out, "run_");
    CHECK_HAS(OK("show", again).out, "by ann: he is back");
    CHECK_EXIT(RUN("retry", run), 9);
    fork = word(OK("fork", run, "--json").out, "run_");
    CHECK_HAS(CHECK_EXIT(RUN("fork", run, "nowhere"), 3).err, "nowhere");
    OK("signal", again, "paid", "1");
    OK("signal", fork, "paid", "2");
    drain();
    CHECK_STR(OK("wait", again).out, "1\n");
    CHECK_STR(OK("wait", fork).out, "2\n");
    CHECK_HAS(OK("fail", START("orders.nap", "--delay", "1h")).out, "failed");
    again =
        word(strstr(OK("dlq", "retry", "--all", "--by", "bob", "--why", "mended").out, "by run_"),
             "run_");
    CHECK_HAS(OK("show", again).out, "by bob: mended");
    CHECK_EXIT(RUN("fork"), 2);
    CHECK_EXIT(RUN("fail", nobody), 3);
}

TEST(I12_cli_an_action_on_many_runs_is_shown_first_and_refusals_keep_none_of_the_others)
{
    const char *a = START("orders.post", "--label", "batch=7"),
               *b = START("orders.post", "--label", "batch=7"), *other = START("orders.post");
    outcome     o;

    drain();
    CHECK_HAS(CHECK_EXIT(RUN("cancel", "--all"), 2).err, "of which runs?");
    CHECK_HAS(CHECK_EXIT(RUN("cancel", a, "--dry-run"), 2).err, "go with --all");
    CHECK_HAS(CHECK_EXIT(RUN("cancel"), 2).err, "which run?");
    o = OK("pause", "--all", "--label", "batch=7", "--dry-run");
    CHECK_HAS(o.out, a);
    CHECK_HAS(o.out, b);
    CHECK(strstr(o.out, other) == NULL);
    CHECK_HAS(o.err, "2 runs are chosen, nothing was done");
    CHECK_INT(json_lines(OK("pause", "--all", "--label", "batch=7", "--dry-run", "--json").out), 2);
    CHECK_HAS(OK("ls", "--status", "paused").err, "no runs");
    OK("pause", b);
    o = CHECK_EXIT(RUN("pause", "--all", "--label", "batch=7"), 9);
    CHECK_HAS(o.out, "1 of 2 paused; the others were left as they are");
    CHECK_HAS(o.err, "was paused by tester");
    CHECK_INT(json_lines(OK("resume", "--all", "--status", "paused", "--limit", "1", "--json").out),
              1);
    CHECK_HAS(OK("resume", "--all", "--status", "paused").out, "1 of 1 resumed");
    CHECK_HAS(OK("fail", "--all", "--label", "batch=7", "--status", "open").out, "2 of 2 failed");
    o = OK("retry", "--all", "--label", "batch=7", "--status", "failed");
    CHECK_HAS(o.out, "2 of 2 retried");
    CHECK_HAS(
        OK("cancel", "--all", "--service", "orders", "--status", "open", "--why", "closing").out,
        "3 of 3 cancelled");
    CHECK_EXIT(RUN("cancel", "--all", "--status", "opem"), 2);
    drain();
    CHECK_HAS(CHECK_EXIT(RUN("wait", other), 5).err, "closing");
}

TEST(I12_cli_retries_and_forks_of_many_runs_name_the_new_ones)
{
    const char *a = START("orders.fail", "1"), *b = START("orders.fail", "2"), *line;
    outcome     o;

    drain();
    CHECK_HAS(OK("retry", "--all", "--status", "failed", "--limit", "1", "--dry-run").err,
              "1 run is chosen, nothing was done");
    o = OK("fork", "--all", "--status", "failed");
    CHECK_HAS(o.out, "2 of 2 forked");
    line = strstr(o.out, a);
    CHECK(line != NULL && strstr(o.out, b) != NULL);
    CHECK_HAS(line, " forked as run_");
    o = OK("retry", "--all", "--status", "failed", "--json");
    CHECK_INT(json_lines(o.out), 4); /* what became of each, and that it was done */
    CHECK_HAS(o.out, "\"retried\":\"run_");
    CHECK_HAS(o.out, "\"done\":\"retried\"");
    o = CHECK_EXIT(RUN("retry", "--all", "--status", "failed", "--json"), 9); /* they were */
    CHECK_INT(json_lines(o.out), 2);
    CHECK_HAS(o.out, "\"refused\":\"");
    o = CHECK_EXIT(RUN("skip", "--all", "later", "null", "--status", "failed"), 9);
    CHECK_HAS(o.out, "0 of 2 does without the step; the others were left as they are");
    CHECK_HAS(o.err, "has ended");
    o = OK("edit", "--all", "count", "7", "--handler", "orders.nothing");
    CHECK_HAS(o.out, "0 of 0");
}

TEST(I12_cli_an_action_on_many_runs_takes_all_of_them_and_help_says_so)
{
    outcome o = OK("help", "pause");

    CHECK_HAS(o.out, "at most so many (all)");
    CHECK_HAS(OK("help", "ls").out, "at most so many (50)");
    CHECK_HAS(OK("help", "waits").out, "at most so many (50)");
    for (int i = 0; i < 60; i++)
        OK("start", "orders.nap");
    CHECK_HAS(OK("pause", "--all", "--handler", "orders.nap").out, "60 of 60 paused\n");
    CHECK_HAS(CHECK_EXIT(RUN("pause", "--all", "--handler", "orders.nap"), 9).out,
              "0 of 60 paused");
}

TEST(I12_cli_one_run_takes_no_filter_and_a_dry_run_changes_nothing)
{
    const char *run = START("orders.fail", "1");

    drain();
    CHECK_HAS(CHECK_EXIT(RUN("retry", run, "--dry-run"), 2).err, "go with --all");
    CHECK_HAS(CHECK_EXIT(RUN("fork", run, "--dry-run"), 2).err, "go with --all");
    CHECK_INT(json_lines(OK("ls", "--json").out), 1);
}

TEST(B15_cli_waits_are_chosen_by_what_is_waited_for)
{
    const char *one = START("orders.post"), *two = START("orders.hear"),
               *asks = START("orders.ask", "\"may we?\"");
    outcome     o;

    drain();
    o = OK("waits", "--for", "paid");
    CHECK_HAS(o.out, one);
    CHECK(strstr(o.out, two) == NULL);
    CHECK_HAS(OK("waits", "--limit", "2").err, "the next ones: --before run_");
    o = OK("waits", "--people", "--for", "boss");
    CHECK_HAS(o.out, asks);
    CHECK_HAS(o.out, "approval");
    CHECK_HAS(OK("waits", "--people", "--for", "nobody").err, "no run waits for a person");
    CHECK_INT(json_lines(OK("waits", "--json").out), 3);
    CHECK_INT(json_lines(OK("waits", "--json", "--for", "news").out), 1);
    OK("approve", asks);
    drain();
    o = OK("waits", "--people");
    CHECK_HAS(o.out, "pause");
    CHECK_HAS(o.out, "stocktaking");
}
