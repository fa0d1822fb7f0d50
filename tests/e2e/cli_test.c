/* The command line as its users meet it: the real programs, started as processes, on a fresh SQLite
 * file; what they print on both outputs, and how they end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef STET_WITH_SQLITE
#include <sqlite3.h>
#endif

#include <stet.h>

#include "command.h"
#include "util/util.h"

/* ---- help and mistakes ---------------------------------------------------------------------- */

TEST(cli_help_is_made_from_the_tables)
{
    static const char *const verbs[] = { "worker",   "start",     "send",        "wait",
                                         "ls",       "show",      "why",         "cancel",
                                         "resolve",  "reject",    "unstick",     "verify",
                                         "handlers", "workers",   "health",      "help",
                                         "dlq ls",   "dlq retry", "dlq discard", "state get",
                                         "move",     "signal",    "schedule preview",
                                         "query",    "update" };
    outcome                  o = OK("help");

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        CHECK_HAS(o.out, verbs[i]);
        CHECK_HAS(OK("help", verbs[i]).out, "--json");
    }
    CHECK_HAS(OK("--help").out, "cli_app.db");
    CHECK_HAS(OK("help", "dlq", "ls").out, "dlq ls");
    CHECK_HAS(OK("help", "dlq").out, "dlq discard");
    CHECK_HAS(OK("start", "-h").out, "--idempotency-key");
    CHECK_HAS(OK("dlq", "ls", "--help").out, "dlq ls");
    CHECK_HAS(OK("help", "config").out, "retry_jitter_percent");
    CHECK(json_lines(OK("help", "config", "--json").out) >= 20);
    CHECK_HAS(OK("help", "exit-codes").out, "deadline");
    CHECK_INT(json_lines(OK("help", "exit-codes", "--json").out), 11);
    o = OK("help", "--json");
    CHECK(json_lines(o.out) >= sizeof verbs / sizeof *verbs);
    CHECK_HAS(o.out, "{\"verb\":\"worker\",\"arguments\":\"\",\"summary\":\"");
    o = OK("help", "start", "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"verb\":\"start\",\"arguments\":\"HANDLER [INPUT|-|@FILE]\"");
    CHECK_HAS(o.out, "{\"option\":\"--key\",\"value\":\"KEY\",\"text\":\"object key\"}");
    CHECK_HAS(o.out, "\"details\":\"INPUT is JSON");
    CHECK_STR(OK("start", "--help", "--json").out, o.out);
    CHECK_INT(json_lines(OK("help", "dlq", "--json").out), 3);
    CHECK_HAS(OK("--version").out, STET_VERSION);
    CHECK(access(test_path("cli_app.db"), F_OK) != 0);
}

TEST(cli_mistakes_are_named_with_the_nearest_right_word)
{
    CHECK_HAS(CHECK_EXIT(RUN("strat"), 2).err, "did you mean \"start\"?");
    CHECK_HAS(CHECK_EXIT(RUN("frobnicate"), 2).err, "help\" lists them");
    CHECK_HAS(CHECK_EXIT(RUN("dlq"), 2).err, "dlq ls, dlq retry, dlq discard");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--handeler", "x"), 2).err, "did you mean --handler?");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--zzz"), 2).err, "--zzz");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "-x"), 2).err, "-x");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--key", "--json"), 2).err, "--key needs a value");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--limit"), 2).err, "--limit needs a value");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--json=1"), 2).err, "takes no value");
    CHECK_HAS(CHECK_EXIT(RUN("show"), 2).err, "show RUN");
    CHECK_HAS(CHECK_EXIT(RUN("show", "a", "b"), 2).err, "\"b\" is too much");
    CHECK_HAS(CHECK_EXIT(RUN("help", "strat"), 2).err, "start");
    CHECK_HAS(CHECK_EXIT(run_program("cli_app", NULL, (const char *const[]){ NULL }), 2).err,
              "help");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--status", "complete"), 2).err, "\"completed\"");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--limit", "x"), 2).err, "expected a number");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--since", "soon"), 2).err, "how long ago");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--label", "x"), 2).err, "name=value");
    CHECK_HAS(CHECK_EXIT(RUN("show", "run_x"), 2).err, "run_x");
    CHECK_HAS(CHECK_EXIT(RUN("dlq", "retry"), 2).err, "--all");
    CHECK(access(test_path("cli_app.db"), F_OK) != 0);
}

TEST(cli_errors_are_json_too_when_asked)
{
    outcome     o = CHECK_EXIT(RUN("strat", "--json"), 2);
    const char *line = strchr(o.err, '\n');

    CHECK(line != NULL);
    CHECK_INT(json_lines(line + 1), 1);
    CHECK_HAS(line, "\"error\":");
    CHECK_HAS(line, "\"code\":");
    CHECK_STR(o.out, "");
}

TEST(cli_plain_stet_asks_which_store)
{
    CHECK_HAS(CHECK_EXIT(STET("ls"), 2).err, "--db");
    CHECK_HAS(CHECK_EXIT(STET("worker", "--db", "x.db"), 2).err, "no handlers");
    CHECK_HAS(CHECK_EXIT(STET("help"), 0).out, "STET_DB");
    /* What it refuses is not among what it offers. */
    CHECK(strstr(CHECK_EXIT(STET("help"), 0).out, "\n  worker ") == NULL);
    CHECK_HAS(CHECK_EXIT(STET("help"), 0).out, "have also: worker, check, describe, replay.");
    CHECK(strstr(CHECK_EXIT(STET("help", "--json"), 0).out, "{\"verb\":\"worker\"") == NULL);
    CHECK_HAS(OK("help").out, "\n  worker ");
}

/* Help, man page and completion have the same verbs: those this program can do, and no other. */
static void
expect_same_verbs(const char *help, const char *man, const char *completion, bool has_handlers)
{
    static const char *const theirs[] = { "worker", "check", "describe", "replay" };
    char                     text[64];

    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        (void)snprintf(text, sizeof text, "{\"verb\":\"%s\",", theirs[i]);
        CHECK_INT(strstr(help, text) != NULL, has_handlers);
        (void)snprintf(text, sizeof text, "\n.SS %s ", theirs[i]);
        CHECK_INT(strstr(man, text) != NULL, has_handlers);
        (void)snprintf(text, sizeof text, "'%s '*)", theirs[i]);
        CHECK_INT(strstr(completion, text) != NULL, has_handlers);
        (void)snprintf(text, sizeof text, " %s ", theirs[i]);
        CHECK_INT(strstr(completion, text) != NULL, has_handlers);
    }
    for (const char *at = help; (at = strstr(at, "{\"verb\":\"")) != NULL; at++) {
        int len = (int)strcspn(at + 9, "\"");

        (void)snprintf(text, sizeof text, "\n.SS %.*s ", len, at + 9);
        CHECK_HAS(man, text);
        (void)snprintf(text, sizeof text, "'%.*s '*)", len, at + 9);
        CHECK_HAS(completion, text);
    }
}

TEST(H2_cli_help_man_and_completion_offer_what_the_program_can_do)
{
    outcome help = OK("help", "--json"), man = OK("man"), completion = OK("completion", "bash");

    expect_same_verbs(help.out, man.out, completion.out, true);
    CHECK(strstr(man.out, "have also") == NULL);
    CHECK(strstr(OK("help", "worker").out, "no handlers") == NULL);
    help = CHECK_EXIT(STET("help", "--json"), 0);
    man = CHECK_EXIT(STET("man"), 0);
    completion = CHECK_EXIT(STET("completion", "bash"), 0);
    expect_same_verbs(help.out, man.out, completion.out, false);
    CHECK_HAS(man.out, "have also:\n\\fBworker\\fR\n\\fBcheck\\fR");
    CHECK_HAS(CHECK_EXIT(STET("help", "worker"), 0).out, "This command has no handlers");
}

/* The verb with arguments as its usage has them, the first of them `first`, and `more` behind. */
static outcome
run_verb(const char *verb, const char *usage, const char *first, const char *more)
{
    const char *args[8] = { 0 };
    char        words[64];
    size_t      n = 0;

    (void)snprintf(words, sizeof words, "%s", verb);
    for (char *at = words, *word; (word = strtok_r(at, " ", &at)) != NULL;)
        args[n++] = word;
    args[n++] = first;
    for (const char *at = usage + strcspn(usage, " "); *at == ' ' && at[1] != '[';
         at += 1 + strcspn(at + 1, " "))
        args[n++] = strncmp(at + 1, "VALUE", 5) == 0 ? "1" : "nope";
    if (more != NULL)
        args[n++] = more;
    CHECK(n < 8);
    return run_program("cli_app", NULL, args);
}

/* Each verb tells an example and takes --json; what names no run, or something else, is told by its
 * ID and changes nothing. */
TEST(H2_cli_every_verb_has_an_example_and_refuses_what_is_no_run)
{
    static const char none[] = "run_00000000000000000000000000",
                      other[] = "awk_00000000000000000000000000";
    const char       *ended = START("orders.echo", "1"), *help = OK("help", "--json").out;
    char              verb[32], usage[64], before[16384];
    int               n = 0;

    drain();
    (void)snprintf(before, sizeof before, "%s", OK("ls", "--payloads", "--json").out);
    for (const char *at = help; (at = strstr(at, "{\"verb\":\"")) != NULL; at++) {
        const char *args = strstr(at, "\"arguments\":\"") + 13;
        const char *details = strstr(at, "\"details\":"), *end = strchr(at, '\n');
        const char *example = strstr(details, "    ");
        outcome     o;

        (void)snprintf(verb, sizeof verb, "%.*s", (int)strcspn(at + 9, "\""), at + 9);
        (void)snprintf(usage, sizeof usage, "%.*s", (int)strcspn(args, "\""), args);
        if (strcmp(verb, "help") != 0 && (example == NULL || example > end))
            test_fail(__FILE__, __LINE__, "help %s has no example", verb);
        if (strncmp(usage, "RUN", 3) != 0)
            continue;
        n++;
        o = CHECK_EXIT(run_verb(verb, usage, none, NULL), 3);
        CHECK_HAS(o.err, none);
        CHECK_HAS(o.err, "retention");
        CHECK(strchr(o.err, '?') == NULL); /* what the command added to the address */
        o = CHECK_EXIT(run_verb(verb, usage, none, "--json"), 3);
        CHECK_HAS(o.err, "\"exit\":3");
        if (strcmp(verb, "reject") != 0) /* which settles awakeables, too */
            CHECK_HAS(CHECK_EXIT(run_verb(verb, usage, other, NULL), 2).err, "is an awakeable");
        CHECK_HAS(CHECK_EXIT(run_verb(verb, usage, "x", NULL), 2).err, "is no ID");
        if (strncmp(verb, "dlq", 3) != 0)
            CHECK_EXIT(run_verb(verb, usage, "x", "1 2 3 4"), 2);
    }
    CHECK(n >= 20);
    CHECK_STR(OK("ls", "--payloads", "--json").out, before);
    CHECK_HAS(CHECK_EXIT(RUN("unstick", ended), 9).err, "`why run_");
    CHECK_HAS(CHECK_EXIT(RUN("rollback", ended), 9).err, "`why run_");
    CHECK_HAS(CHECK_EXIT(RUN("retry", ended), 9).err, "`fork`");
    CHECK_HAS(CHECK_EXIT(RUN("signal", ended, "x"), 9).err, "`fork`");
    CHECK_STR(OK("ls", "--payloads", "--json").out, before);
}

/* What it says of a handler's kind is what a worker said. */
TEST(A2_cli_plain_stet_knows_which_handlers_need_a_key)
{
    const char *const db = "cli_app.db";

    OK("start", "orders.echo", "1");
    drain();
    CHECK_HAS(CHECK_EXIT(STET("start", "wallet.deposit", "1", "--db", db), 2).err,
              "give the key of the object");
    CHECK_HAS(CHECK_EXIT(STET("start", "orders.echo", "1", "--key", "k", "--db", db), 2).err,
              "leave key away");
    CHECK_EXIT(STET("start", "wallet.deposit", "1", "--key", "k", "--db", db), 0);
}

/* The worker polls once an hour: it heard of the run. */
TEST(G9_cli_a_queue_is_named_in_the_address)
{
    char    db[64];
    worker  w;
    outcome o;

    (void)snprintf(db, sizeof db, "q.db?queue=local:t%ld", (long)getpid());
    w = worker_start(ARGS("worker", "--db", db, "--set", "poll_ms=1h"));
    o = OK("start", "orders.echo", "\"hi\"", "--wait", "--db", db);
    CHECK_HAS(o.out, "\"hi\"");
    OK("verify", "--db", db);
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
    OK("verify", "--repair", "--db", db);
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--db", "q.db?queue=locl"), 8).err, "did you mean local?");
}

#ifdef STET_WITH_RABBITMQ
/* Nobody listens at port 1. */
TEST(G5_cli_a_worker_without_its_broker_polls_and_shows_no_password)
{
    const char *db = "q.db?queue=amqp://u:hush@127.0.0.1:1/?prefix=x";
    worker      w = worker_start(ARGS("worker", "--db", db, "--set", "poll_ms=20"));
    outcome     o;

    CHECK_HAS(w.ready, "amqp://u:…@127.0.0.1:1/?prefix=x");
    CHECK(strstr(w.ready, "hush") == NULL);
    o = OK("start", "orders.echo", "\"hi\"", "--wait", "--db", db);
    CHECK_HAS(o.out, "\"hi\"");
    CHECK(strstr(o.out, "hush") == NULL && strstr(o.err, "hush") == NULL);
    o = OK("verify", "--repair", "--db", db); /* another option goes before the queue */
    CHECK(strstr(o.out, "hush") == NULL && strstr(o.err, "hush") == NULL);
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
}
#endif

TEST(cli_a_store_that_cannot_be_opened_ends_with_8)
{
    CHECK_HAS(CHECK_EXIT(STET("ls", "--db", "none.db?queue=none"), 8).err, "no store at none.db");
    CHECK_HAS(CHECK_EXIT(STET("ls", "--db", "none.db"), 8).err, "no store at none.db");
    CHECK(access(test_path("none.db"), F_OK) != 0);
    CHECK_EXIT(STET("ls", "--db", "carrier-pigeon://x"), 8);
    CHECK_EXIT(RUN("start", "orders.echo", "--db", "no/such/folder/x.db"), 8);
    spill("garbage.db",
          "this is no database at all, but it is long enough to have a header, surely, "
          "is it not? It goes on for more than a hundred bytes.");
    CHECK_EXIT(STET("ls", "--db", "garbage.db"), 8);
}

/* Every verb that asks a store. */
TEST(H2_cli_each_verb_without_a_store_ends_with_8)
{
#define NOWHERE "--db", "none.db"
    static const char *const run = "run_00000000000000000000000000";
    static const char *const awakeable = "awk_00000000000000000000000000";
    const char *const       *all[] = {
        ARGS("ls", NOWHERE),
        ARGS("show", run, NOWHERE),
        ARGS("why", run, NOWHERE),
        ARGS("wait", run, NOWHERE),
        ARGS("cancel", run, NOWHERE),
        ARGS("unstick", run, NOWHERE),
        ARGS("resolve", awakeable, "1", NOWHERE),
        ARGS("reject", awakeable, "no", NOWHERE),
        ARGS("signal", run, "paid", NOWHERE),
        ARGS("query", run, "where", NOWHERE),
        ARGS("update", run, "divert", NOWHERE),
        ARGS("emit", "news", NOWHERE),
        ARGS("approve", run, NOWHERE),
        ARGS("reject", run, "no", NOWHERE),
        ARGS("resume", run, NOWHERE),
        ARGS("rollback", run, NOWHERE),
        ARGS("waits", NOWHERE),
        ARGS("notes", run, NOWHERE),
        ARGS("audit", run, NOWHERE),
        ARGS("audit", "--off", NOWHERE),
        ARGS("dlq", "ls", NOWHERE),
        ARGS("dlq", "retry", run, NOWHERE),
        ARGS("dlq", "discard", run, NOWHERE),
        ARGS("dlq", "retry", "--all", NOWHERE),
        ARGS("state", "get", "wallet", "alice", NOWHERE),
        ARGS("workers", NOWHERE),
        ARGS("health", NOWHERE),
        ARGS("verify", NOWHERE),
        ARGS("pause", NOWHERE),
        ARGS("pause", run, NOWHERE),
        ARGS("pause", "--handler", "orders.echo", NOWHERE),
        ARGS("resume", "--service", "orders", NOWHERE),
        ARGS("skip", run, "step", NOWHERE),
        ARGS("edit", run, "step", "1", NOWHERE),
        ARGS("rewind", run, "step", NOWHERE),
        ARGS("fork", run, NOWHERE),
        ARGS("retry", run, NOWHERE),
        ARGS("fail", run, NOWHERE),
        ARGS("fail", "--all", "--status", "open", NOWHERE),
        ARGS("export", run, "--out", "x", NOWHERE),
        ARGS("check", NOWHERE),
        ARGS("describe", "orders.echo", "--from", run, NOWHERE),
        ARGS("schedule", "ls", NOWHERE),
        ARGS("schedule", "show", "nightly", NOWHERE),
        ARGS("schedule", "history", "nightly", NOWHERE),
        ARGS("schedule", "update", "nightly", "--every", "1h", NOWHERE),
        ARGS("schedule", "pause", "nightly", NOWHERE),
        ARGS("schedule", "resume", "nightly", NOWHERE),
        ARGS("schedule", "rm", "nightly", NOWHERE),
        ARGS("schedule", "ensure", "nightly", "orders.echo", "--every", "1h", "--db",
             "no/such/folder/x.db"),
        ARGS("ls", "--db", "sqlite:none.db"),
        ARGS("ls", "--db", "./no:ne.db"),
        ARGS("handlers", "--db", "no/such/folder/x.db"),
        ARGS("worker", "--db", "no/such/folder/x.db"),
        ARGS("start", "orders.echo", "--db", "no/such/folder/x.db"),
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK(CHECK_EXIT(run_program("cli_app", NULL, all[i]), 8).err[0] != '\0');
    CHECK(access(test_path("none.db"), F_OK) != 0);
}

TEST(H2_cli_what_cannot_be_read_is_named_before_a_store_is_made)
{
    static const char long_word[] = "a-word-that-is-longer-than-all-names-of-verbs-are";
    static const struct {
        const char *args[8], *said;
    } all[] = {
        { { "show", "x" }, "x" },
        { { "why", "x" }, "x" },
        { { "wait", "x" }, "x" },
        { { "cancel", "x" }, "x" },
        { { "unstick", "x" }, "x" },
        { { "dlq", "retry", "x" }, "x" },
        { { "dlq", "discard", "x" }, "x" },
        { { "dlq", "retry", "run_00000000000000000000000000", "--handler", "h" }, "--all" },
        { { "dlq", "frobnicate" }, "one more word" },
        { { "strat", "orders.echo" }, "did you mean" },
        { { "frobnicate", "much" }, "help\" lists them" },
        { { long_word }, "help\" lists them" },
        { { "help", long_word }, "lists the verbs" },
        { { "help", "dlqq" }, "dlqq" },
        { { "--frobnicate" }, "--frobnicate" },
        { { "--jsn" }, "did you mean --json" },
        { { "ls", "--handler", "a", "--service", "b" }, "exclude" },
        { { "ls", "--label", "=x" }, "name=value" },
        { { "ls", "--before", "x" }, "x" },
        { { "ls", "--limit", "" }, "expected a number" },
        { { "ls", "--limit", "0" }, "expected a number" },
        { { "ls", "--limit", "1000001" }, "expected a number" },
        { { "ls", "--limit", "99999999999999999999" }, "expected a number" },
        { { "ls", "--since", "2030-13-01T00:00:00Z" }, "how long ago" },
        { { "ls", "--until", "soon" }, "--until soon: expected how long ago" },
        { { "ls", "--text", "" }, "which text?" },
        { { "ls", "--look", "5" }, "--look goes with" },
        { { "ls", "--text", "x", "--look", "0" }, "expected a number" },
        { { "ls", "--status", "frobnicated" }, "frobnicated" },
        { { "dlq", "ls", "--limit", "x" }, "expected a number" },
        { { "dlq", "ls", "--waits-for-signal", "x" }, "no option --waits-for-signal of dlq ls" },
        { { "worker", "--set", "renew_ms=1d" }, " ms (default " },
        { { "start", "orders" }, "write service.handler" },
        { { "start", "__x.y" }, "__x" },
        { { "start", "orders.echo", "--key", "k" }, "which has no keys" },
        { { "start", "wallet.deposit" }, "give the key of the object" },
        { { "start", "orders.echo", "--idempotency-key", "" }, "an idempotency key has 1 to" },
        { { "start", "orders.echo", "--traceparent", "x" }, "is no traceparent" },
        { { "send", "orders" }, "write service.handler" },
        { { "schedule", "ensure", "n", "orders", "--every", "1h" }, "orders" },
        { { "schedule", "ensure", "n", "orders.echo" }, "cron" },
        { { "worker", "--set", "lease_ms=10s", "--set", "renew_ms=20s" }, "must be below" },
        { { "start", "orders.echo", "--priority", "x" }, "expected a number" },
        { { "start", "orders.echo", "--timeout", "x" }, "--timeout" },
        { { "start", "orders.echo", "--retention", "x" }, "--retention" },
        { { "start", "orders.echo", "--deadline", "x" }, "--deadline" },
        { { "start", "orders.echo", "--label", "=x" }, "name=value" },
        { { "start", "orders.echo", "--wait=x" }, "x" },
        { { "start", "orders.echo", "--run", "x" }, "x" },
        { { "start", "orders.echo", "@none.json" }, "cannot read none.json" },
        { { "start", "orders.echo", "@." }, "cannot read ." },
        { { "start", "orders.echo", "[1, 2" }, "its end" },
        { { "start", "orders.echo", "[1, nonsense that goes on and on]" }, "before: onsense" },
        { { "wait", "run_00000000000000000000000000", "--timeout", "x" }, "x" },
        { { "approve", "x" }, "x" },
        { { "audit", "x" }, "x" },
        { { "notes", "x" }, "x" },
        { { "export", "x" }, "x" },
        { { "fork", "x" }, "x" },
        { { "retry", "x" }, "x" },
        { { "skip", "x", "step" }, "x" },
        { { "skip", "run_00000000000000000000000000", "step", "{" }, "JSON" },
        { { "skip", "--all", "step", "1", "2" }, "2: one argument too many" },
        { { "edit", "--all", "step" }, "replaced with what" },
        { { "pause", "--all", "--since", "soon" }, "how long ago" },
        { { "resume", "run_00000000000000000000000000", "--status", "paused" }, "go with --all" },
        { { "retry", "run_00000000000000000000000000", "--dry-run" }, "go with --all" },
        { { "fork", "run_00000000000000000000000000", "--key", "k" }, "go with --all" },
        { { "check", "--time", "x" }, "--time" },
        { { "check", "--operations", "0" }, "expected a number" },
        { { "describe", "orders.echo", "--input", "{" }, "JSON" },
        { { "describe", "orders.echo", "--time", "x" }, "--time" },
        { { "describe", "orders.echo", "--operations", "x" }, "expected a number" },
        { { "describe", "orders.echo", "--from", "x" }, "x" },
        { { "describe", "orders.echo", "--from", "x", "--run=y" }, "exclude each other" },
        { { "schedule", "ls", "--limit", "0" }, "expected a number" },
        { { "schedule", "history", "n", "--limit", "0" }, "expected a number" },
        { { "schedule", "update", "n", "--after", "x" }, "--after" },
        { { "schedule", "update", "n", "--grace", "x" }, "--grace" },
        { { "schedule", "update", "n", "--timeout", "x" }, "--timeout" },
        { { "schedule", "update", "n", "--at", "x" }, "--at" },
        { { "schedule", "update", "n", "--priority", "x" }, "expected a number" },
        { { "schedule", "update", "n", "{" }, "JSON" },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK_HAS(CHECK_EXIT(run_program("cli_app", NULL, all[i].args), 2).err, all[i].said);
    CHECK_EXIT(RUN("start", "orders.ehco"), 3);
    CHECK(access(test_path("cli_app.db"), F_OK) != 0);
    CHECK(access(test_path("cli_app.db-live"), F_OK) != 0);
}

TEST(H2_cli_lists_without_anything_say_so)
{
    outcome o;

    CHECK_EXIT(STET("handlers", "--db", "empty.db"), 0); /* it makes the store */
    CHECK_HAS(CHECK_EXIT(STET("handlers", "--db", "empty.db"), 0).err, "no handlers");
    CHECK_STR(CHECK_EXIT(STET("handlers", "--json", "--db", "empty.db"), 0).err, "");
    CHECK_HAS(CHECK_EXIT(STET("workers", "--db", "empty.db"), 0).err, "no workers");
    CHECK_STR(CHECK_EXIT(STET("workers", "--json", "--db", "empty.db"), 0).err, "");
    CHECK_HAS(CHECK_EXIT(STET("dlq", "discard", "--all", "--db", "empty.db"), 0).err,
              "no dead letters");
    CHECK_STR(CHECK_EXIT(STET("dlq", "retry", "--all", "--json", "--db", "empty.db"), 0).err, "");
    CHECK_HAS(CHECK_EXIT(STET("state", "get", "s", "k", "--json", "--db", "empty.db"), 3).err,
              "\"code\":\"STET_ENOTFOUND\"");
    CHECK_STR(CHECK_EXIT(STET("ls", "--json", "--db", "sqlite:empty.db"), 0).err, "");
    o = CHECK_EXIT(STET("verify", "--json", "--db", "empty.db"), 0);
    CHECK_INT(json_lines(o.out), 1);
    CHECK_EXIT(STET("verify", "--repair", "--db", "empty.db?vfs=unix"), 0);
    CHECK_HAS(CHECK_EXIT(STET("waits", "--db", "empty.db"), 0).err, "no run waits");
    CHECK_HAS(CHECK_EXIT(STET("waits", "--for", "x", "--db", "empty.db"), 0).err,
              "no run waits for that");
    CHECK_HAS(CHECK_EXIT(STET("waits", "--people", "--db", "empty.db"), 0).err,
              "no run waits for a person");
    CHECK_STR(CHECK_EXIT(STET("waits", "--json", "--db", "empty.db"), 0).err, "");
    CHECK_STR(CHECK_EXIT(STET("pause", "--json", "--db", "empty.db"), 0).err, "");
    CHECK_STR(CHECK_EXIT(STET("schedule", "ls", "--json", "--db", "empty.db"), 0).err, "");
    CHECK_HAS(CHECK_EXIT(STET("describe", "orders.echo"), 2).err, "has no handlers");
    /* An empty name is none. */
    setenv("STET_DB", "", 1);
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--db="), 8).err, "cli_app.db"); /* the program's own */
    CHECK_EXIT(STET("ls", "--db="), 2);
    unsetenv("STET_DB");
}

TEST(H2_cli_several_dead_letters_one_of_which_is_refused)
{
    const char *one = START("orders.fail", "1"), *two = START("orders.fail", "2");
    outcome     o;

    drain();
    OK("dlq", "discard", one);
    o = CHECK_EXIT(RUN("dlq", "discard", one, two, "--json"), 9);
    CHECK_HAS(o.out, two);
    CHECK_HAS(o.out, "\"discarded\":true");
    CHECK_HAS(CHECK_EXIT(RUN("dlq", "discard", one, two, "x"), 2).err, "x");
}

/* Nobody can read what was not written: it must not end as if all were well. */
TEST(H2_cli_an_output_that_cannot_be_written_is_an_error)
{
    const char *run;
    pid_t       pid;

    START("orders.echo", "1");
    fflush(NULL);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        redirect(1, "/dev/full", O_WRONLY);
        redirect(2, test_path("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        become("cli_app", ARGS("ls"));
    }
    CHECK_INT(ended(pid), 10);
    CHECK_HAS(slurp(test_path("stderr")), "could not be written");
    run = START("orders.echo", "2");
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        redirect(1, "/dev/full", O_WRONLY);
        redirect(2, test_path("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        become("cli_app", ARGS("export", run));
    }
    CHECK_INT(ended(pid), 10);
    CHECK_HAS(slurp(test_path("stderr")), "the bundle could not be written");
    CHECK_HAS(CHECK_EXIT(RUN("export", run, "--out", "/dev/full"), 10).err,
              "the bundle could not be written");
    CHECK_HAS(CHECK_EXIT(RUN("export", run, "--out", "no/such/x"), 10).err, "no/such/x: ");
}

/* Run on a terminal that is so wide, to this exit code; what it shows. */
static char *
on_terminal(unsigned short columns, int want, const char *const *args)
{
    static char    text[65536];
    struct winsize size = { .ws_row = 24, .ws_col = columns };
    int            master = posix_openpt(O_RDWR | O_NOCTTY);
    size_t         len = 0;
    ssize_t        n;
    pid_t          pid;

    CHECK(master >= 0);
    CHECK_INT(grantpt(master), 0);
    CHECK_INT(unlockpt(master), 0);
    CHECK_INT(ioctl(master, TIOCSWINSZ, &size), 0);
    fflush(NULL);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        redirect(0, "/dev/null", O_RDONLY);
        redirect(1, ptsname(master), O_WRONLY | O_NOCTTY);
        redirect(2, ptsname(master), O_WRONLY | O_NOCTTY);
        close(master);
        become("cli_app", args);
    }
    /* At the end of the last writer a terminal reads as an error, and before the first one too. */
    while (len < sizeof text - 1) {
        struct pollfd ready = { .fd = master, .events = POLLIN };
        int           status;

        if (poll(&ready, 1, 10) > 0 && (ready.revents & POLLIN) != 0) {
            n = read(master, text + len, sizeof text - 1 - len);
            CHECK(n > 0);
            len += (size_t)n;
        } else if (waitpid(pid, &status, WNOHANG) == pid) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == want);
            while ((n = read(master, text + len, sizeof text - 1 - len)) > 0)
                len += (size_t)n;
            break;
        }
    }
    close(master);
    return keep(text, len);
}

TEST(H2_cli_a_terminal_gets_colours_and_lines_that_fit)
{
    const char *run = START("orders.fail", "\"a tail that is so long that no terminal shows it\"");

    drain();
    unsetenv("COLUMNS");
    setenv("TERM", "xterm", 1);
    CHECK_HAS(on_terminal(200, 0, ARGS("ls")), "\033[31mfailed");
    CHECK(strchr(on_terminal(200, 0, ARGS("ls", "--no-color")), '\033') == NULL);
    CHECK_HAS(on_terminal(60, 0, ARGS("dlq", "ls")), "\xe2\x80\xa6");
    CHECK(strstr(on_terminal(250, 0, ARGS("dlq", "ls")), "\xe2\x80\xa6") == NULL);
    /* One that does not know its width has 80 columns; a very narrow one shows all. */
    CHECK_HAS(on_terminal(0, 0, ARGS("dlq", "ls")), "\xe2\x80\xa6");
    CHECK_HAS(on_terminal(60, 0, ARGS("show", run)), "\xe2\x80\xa6");
    CHECK_HAS(on_terminal(25, 0, ARGS("show", run)), "no terminal shows it");
    setenv("TERM", "dumb", 1);
    CHECK(strchr(on_terminal(200, 0, ARGS("ls")), '\033') == NULL);
    unsetenv("TERM");
    CHECK_HAS(on_terminal(200, 0, ARGS("ls")), "\033[31mfailed");
}

TEST(I12_cli_a_terminal_shows_how_far_an_action_on_many_runs_is)
{
    char *text;

    for (int i = 0; i < 60; i++)
        START("orders.nap", "--label", "batch=1");
    OK("pause", "--all", "--label", "batch=1", "--limit", "25");
    text = on_terminal(100, 9, ARGS("pause", "--all", "--label", "batch=1"));
    CHECK_HAS(text, "pause");
    CHECK_HAS(text, "50/60");
    CHECK_HAS(text, "was paused by");
    CHECK_HAS(text, "35 of 60 paused; the others were left as they are");
}

/* ---- starting and waiting ------------------------------------------------------------------- */

TEST(A7_cli_a_start_nobody_serves_says_so)
{
    outcome     o = OK("start", "orders.echo", "{\"id\":7}");
    const char *run = word(o.out, "run_");

    CHECK_HAS(o.err, "no living worker serves orders.echo");
    CHECK_HAS(o.err, "worker");
    o = OK("send", "mail.deliver", "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"served\":false");
    CHECK_HAS(OK("why", run).err, "no living worker serves orders.echo");
    CHECK_HAS(OK("show", run).err, "no living worker serves orders.echo");
    CHECK_HAS(OK("ls").out, "no worker serves it");
    CHECK_HAS(CHECK_EXIT(STET("send", "mail.deliver", "--db", "cli_app.db"), 0).err,
              "program that has this handler");
    /* A worker of this program would not help, either: it has other handlers. */
    o = OK("start", "mail.deliver");
    CHECK_HAS(o.err, "program that has this handler");
    CHECK(strstr(o.err, "start one") == NULL);
    run = word(o.out, "run_");
    CHECK_HAS(OK("why", run).err, "program that has this handler");
    CHECK_HAS(OK("show", run).err, "program that has this handler");
}

TEST(A7_cli_an_unknown_handler_of_a_service_here_is_refused_with_the_list)
{
    outcome o = CHECK_EXIT(RUN("start", "orders.ehco"), 3);

    CHECK_HAS(o.err, "echo");
    CHECK_STR(o.out, "");
}

TEST(A5_cli_start_and_wait_print_the_result)
{
    worker      w = worker_start(ARGS("worker", "--worker", "anna", "--concurrency", "3"));
    outcome     o;
    const char *run;

    CHECK_HAS(w.ready, "worker anna serves orders.echo, ");
    CHECK_HAS(w.ready, "wallet.deposit on cli_app.db with 3 slots");
    o = OK("start", "orders.echo", "{\"id\":7}", "--wait");
    CHECK_STR(o.out, "{\"id\":7}\n");
    CHECK(strstr(o.err, "no living worker") == NULL);
    run = START("orders.echo", "[1]");
    CHECK_STR(OK("wait", run).out, "[1]\n");
    CHECK_STR(OK("wait", run, "--timeout", "none").out, "[1]\n");
    o = OK("wait", run, "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"value\":[1]");
    CHECK_HAS(o.out, "\"status\":\"completed\"");
    CHECK_STR(OK("start", "orders.echo", "7", "--wait", "20s").out, "7\n");
    CHECK_STR(OK("start", "orders.echo", "--wait", "7").out, "7\n");
    CHECK_STR(OK("start", "orders.echo", "-5", "--wait").out, "-5\n");
    CHECK_STR(OK("start", "--wait", "--", "orders.echo", "1").out, "1\n");
    CHECK_STR(OK("start", "orders.echo", "--wait").out, "");
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
}

TEST(A5_cli_each_end_has_its_exit_code)
{
    const char *failed = START("orders.fail", "1"), *cancelled = START("orders.nap");
    const char *expired = START("orders.nap", "--timeout", "1ms"), *open = START("orders.nap");
    outcome     o;

    OK("cancel", cancelled);
    drain();
    CHECK_HAS(CHECK_EXIT(RUN("wait", failed), 4).err, "no stock");
    o = OK("why", failed);
    CHECK(strncmp(o.out, "failed ", 7) == 0); /* as `show` has it */
    CHECK_HAS(o.out, ": no stock");
    o = CHECK_EXIT(RUN("wait", failed, "--json"), 4);
    CHECK_HAS(o.out, "\"status\":\"failed\"");
    CHECK_HAS(o.out, "\"code\":\"STET_EPERMANENT\"");
    CHECK_HAS(o.out, "\"cause_name\":");
    CHECK_EXIT(RUN("wait", cancelled), 5);
    CHECK_EXIT(RUN("wait", expired), 6);
    CHECK_HAS(CHECK_EXIT(RUN("wait", open, "--timeout", "10ms"), 7).err, open);
    /* Whoever started it, and did not see its end, still knows which run it is. */
    o = CHECK_EXIT(RUN("start", "orders.nap", "--wait", "10ms", "--json"), 7);
    CHECK_HAS(o.err, "\"exit\":7,\"run\":\"run_");
    CHECK_STR(o.out, "");
    CHECK_EXIT(RUN("wait", "run_00000000000000000000000000"), 3);
    CHECK_EXIT(RUN("wait", open, "--timeout", "soon"), 2);
    CHECK_EXIT(RUN("wait", open, "--timeout", "0"), 2);
    CHECK_EXIT(RUN("wait", "awk_00000000000000000000000000"), 2);
}

TEST(cli_input_is_json_from_text_pipe_or_file)
{
    worker  w = worker_start(ARGS("worker"));
    outcome o;

    CHECK_HAS(CHECK_EXIT(RUN("start", "orders.echo", "{\"a\":x}"), 2).err, "byte 6");
    CHECK_HAS(CHECK_EXIT(RUN("start", "orders.echo", "{\"a\":"), 2).err, "its end");
    CHECK_STR(OK("start", "orders.echo", "x y", "--raw", "--wait").out, "x y\n");
    o = run_program("cli_app", "{\"from\":\"pipe\"}\n",
                    ARGS("start", "orders.echo", "-", "--wait"));
    CHECK_STR(CHECK_EXIT(o, 0).out, "{\"from\":\"pipe\"}\n");
    spill("in.json", "[1,\n2]\n");
    CHECK_STR(OK("start", "orders.echo", "@in.json", "--wait").out, "[1,\n2]\n");
    o = OK("start", "orders.echo", "@in.json", "--wait", "--json");
    CHECK_INT(json_lines(o.out), 1);
    spill("bytes", "\xff\xfe");
    o = OK("start", "orders.echo", "@bytes", "--raw", "--wait", "--json");
    CHECK_HAS(o.out, "{\"base64\":\"//4=\"}");
    CHECK_HAS(CHECK_EXIT(RUN("start", "orders.echo", "@absent"), 2).err, "absent");
    CHECK_INT(worker_stop(&w, SIGINT), 0);
}

TEST(A4_cli_start_options_reach_the_run)
{
    const char *run =
        START("orders.echo", "1", "--priority", "-3", "--group", "gold", "--attempts", "7",
              "--deadline", "2040-01-31T12:00:00Z", "--at", "2039-12-31T23:59:59.5+02:00",
              "--label", "a=1", "--label", "b=2", "--retention", "3d");
    outcome o = OK("show", run, "--json");

    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"priority\":-3");
    CHECK_HAS(o.out, "\"group\":\"gold\"");
    CHECK_HAS(o.out, "\"attempts_max\":7");
    CHECK_HAS(o.out, "\"deadline_ms\":2211624000000");
    CHECK_HAS(o.out, "\"due_ms\":2208981599500");
    CHECK_HAS(o.out, "a=1");
    CHECK_HAS(CHECK_EXIT(RUN("start", "orders.echo", "--at", "2040-02-31"), 2).err, "--at");
    CHECK_HAS(CHECK_EXIT(RUN("start", "orders.echo", "--delay", "soon"), 2).err, "--delay");
    CHECK_HAS(CHECK_EXIT(RUN("start", "orders.echo", "--attempts", "0"), 2).err, "--attempts");
    CHECK_HAS(CHECK_EXIT(RUN("start", "orders.echo", "--label", "=x"), 2).err, "--label");
    CHECK_EXIT(RUN("start", "wallet.deposit", "1"), 2);
    CHECK_EXIT(RUN("start", "orders.echo", "1", "--key", "k"), 2);
}

TEST(A6_cli_an_idempotency_key_gives_the_same_run)
{
    const char *run = START("orders.echo", "1", "--idempotency-key", "k");
    outcome     o = OK("start", "orders.echo", "2", "--idempotency-key", "k");

    CHECK_STR(word(o.out, "run_"), run);
    CHECK_HAS(o.err, "existed");
    CHECK_HAS(OK("start", "orders.echo", "2", "--idempotency-key", "k", "--json").out,
              "\"existed\":true");
    CHECK_EXIT(RUN("start", "orders.echo", "--run", run), 9);
}

TEST(A12_cli_runs_are_found_by_their_labels)
{
    const char *red = START("orders.echo", "--label", "colour=red");
    const char *blue = START("orders.echo", "--label", "colour=blue");
    outcome     o = OK("ls", "--label", "colour=red");

    CHECK_HAS(o.out, red);
    CHECK(strstr(o.out, blue) == NULL);
    CHECK_STR(OK("ls", "--label", "colour=green").out, "");
}

/* "None" and "not read" must not look the same. */
TEST(A12_cli_lists_for_programs_leave_out_what_they_did_not_read)
{
    static const char *const of_facts[] = { "\"labels\":",      "\"idempotency_key\":",
                                            "\"lost\":",        "\"schedule\":",
                                            "\"traceparent\":", "\"eligible_ms\":" };
    outcome                  row, chosen, full, one;

    (void)START("orders.echo", "--label", "colour=red", "--idempotency-key", "k1");
    row = OK("ls", "--label", "colour=red", "--json");
    chosen = OK("cancel", "--all", "--label", "colour=red", "--dry-run", "--json");
    full = OK("ls", "--label", "colour=red", "--json", "--payloads");
    one = OK("show", word(row.out, "run_"), "--json");
    CHECK_INT(json_lines(row.out), 1);
    CHECK_INT(json_lines(chosen.out), 1);
    for (size_t i = 0; i < sizeof of_facts / sizeof *of_facts; i++) {
        CHECK(strstr(row.out, of_facts[i]) == NULL);
        CHECK(strstr(chosen.out, of_facts[i]) == NULL);
        CHECK_HAS(full.out, of_facts[i]);
        CHECK_HAS(one.out, of_facts[i]);
    }
    CHECK_HAS(full.out, "\"idempotency_key\":\"k1\",\"labels\":[\"colour=red\"]");
    CHECK_HAS(one.out, "\"idempotency_key\":\"k1\",\"labels\":[\"colour=red\"]");
    CHECK(strstr(full.out, "\"worker\":") == NULL && strstr(full.out, "\"begun_ms\":") == NULL);
    CHECK_HAS(one.out, "\"worker\":null");
    CHECK_HAS(one.out, "\"begun_ms\":null");
    /* A value may have a space. */
    one = OK("show", START("orders.echo", "--label", "a=b c", "--label", "d=e"), "--json");
    CHECK_HAS(one.out, "\"labels\":[\"a=b c\",\"d=e\"]");
    CHECK_HAS(OK("show", START("orders.echo"), "--json").out, "\"labels\":[]");
}

/* ---- looking -------------------------------------------------------------------------------- */

TEST(cli_ls_filters_pages_and_aligns)
{
    const char *one = START("orders.echo", "1"),
               *two = START("wallet.deposit", "2", "--key", "alice");
    const char *three = START("orders.echo", "3"), *header;
    outcome     o = OK("ls");

    CHECK(strstr(o.out, three) < strstr(o.out, two) && strstr(o.out, two) < strstr(o.out, one));
    header = strstr(o.out, "STATUS");
    CHECK(header != NULL);
    CHECK_INT(strstr(strchr(o.out, '\n'), "pending") - strchr(o.out, '\n') - 1, header - o.out);
    CHECK_INT(json_lines(OK("ls", "--json").out), 3);
    CHECK_INT(json_lines(OK("ls", "--json", "--payloads").out), 3);
    CHECK_INT(json_lines(OK("ls", "--json", "--limit", "1").out), 1);
    CHECK_HAS(OK("ls", "--limit", "1").err, "--before");
    CHECK_INT(json_lines(OK("ls", "--json", "--before", three).out), 2);
    CHECK_INT(json_lines(OK("ls", "--json", "--service", "orders").out), 2);
    CHECK_INT(json_lines(OK("ls", "--json", "--handler", "wallet.deposit").out), 1);
    CHECK_INT(json_lines(OK("ls", "--json", "--key", "alice").out), 1);
    CHECK_INT(json_lines(OK("ls", "--json", "--since", "1h").out), 3);
    CHECK_INT(json_lines(OK("ls", "--json", "--since", "2040-01-01").out), 0);
    CHECK_INT(json_lines(OK("ls", "--json", "--status", "open").out), 3);
    CHECK_INT(json_lines(OK("ls", "--json", "--status", "completed,failed").out), 0);
    drain();
    CHECK_INT(json_lines(OK("ls", "--json", "--status", "completed,failed").out), 3);
    CHECK_INT(json_lines(OK("ls", "--json", "--status", "ended").out), 3);
    CHECK(strstr(OK("ls").out, "\033") == NULL);
}

TEST(cli_tables_are_cut_at_the_width_of_the_terminal)
{
    outcome o;

    START("wallet.deposit", "1", "--key",
          "\xc3\xa4\xc3\xb6\xc3\xbc-\xe6\xbc\xa2\xe5\xad\x97-and-a-very-long-tail");
    setenv("COLUMNS", "80", 1);
    o = OK("ls");
    unsetenv("COLUMNS");
    CHECK_HAS(o.out, "\xe2\x80\xa6");
    CHECK(stet__utf8_len((const uint8_t *)o.out, strlen(o.out)) > 0);
    for (size_t i = 0, n; o.out[i] != '\0'; i += n) {
        n = stet__utf8_len((const uint8_t *)o.out + i, strlen(o.out) - i);
        CHECK(n > 0);
    }
    CHECK_HAS(OK("ls").out, "-and-a-very-long-tail");
}

TEST(C8_cli_ls_finds_by_text_and_says_how_far_it_looked)
{
    char    first[64];
    outcome o;

    (void)snprintf(first, sizeof first, "%s", START("orders.echo", "{\"order\":\"A-4711\"}"));
    (void)START("orders.echo", "1");
    (void)START("orders.echo", "2");
    o = OK("ls", "--text", "a-4711");
    CHECK_HAS(o.out, first);
    CHECK_HAS(o.err, "looked at all 3 runs there are");
    o = OK("ls", "--text", "a-4711", "--look", "2");
    CHECK_STR(o.out, "");
    CHECK_HAS(o.err, "no runs");
    CHECK_HAS(o.err, "looked at 2 runs back to 2");
    CHECK_HAS(o.err, "; go on with --before run_");
    o = OK("ls", "--text", "a-4711", "--look", "2", "--before",
           word(strstr(o.err, "--before "), "run_"));
    CHECK_HAS(o.out, first);
    CHECK_HAS(o.err, "looked at all 1 runs there are from there on");
    CHECK_INT(json_lines(OK("ls", "--json", "--until", "1h").out), 0);
    CHECK_INT(json_lines(OK("ls", "--json", "--until", "2090-01-01").out), 3);
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--since", "1h", "--until", "2h"), 2).err,
              "nothing is in between");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--waits-for-signal", "x", "--status", "failed"), 2).err,
              "ask for suspended ones");
    CHECK_HAS(CHECK_EXIT(RUN("ls", "--worker", "wrk_00000000000000000000000000"), 3).err,
              "there is no worker");
    CHECK(strstr(OK("show", first).out, "began") == NULL);
    drain();
    CHECK_HAS(OK("show", first).out, "began");
    CHECK_HAS(OK("show", first, "--json").out, "\"begun_ms\":1");
}

TEST(F8_cli_show_tells_the_journal_in_order)
{
    const char *run = START("orders.echo", "{\"id\":7}");
    outcome     o;

    drain();
    o = OK("show", run);
    CHECK_HAS(o.out, "orders.echo");
    CHECK_HAS(o.out, "completed");
    CHECK_HAS(o.out, "{\"id\":7}");
    CHECK_HAS(o.out, "count");
    CHECK_HAS(o.out, "{\"bytes\":8}");
    CHECK(strstr(o.out, "started") < strstr(o.out, "count"));
    o = OK("show", run, "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"journal\":[{");
    CHECK_HAS(o.out, "\"why\":{");
    CHECK_HAS(OK("show", run, "--payloads").out, "\n{\"bytes\":8}\n");
    CHECK_EXIT(RUN("show", "run_00000000000000000000000000"), 3);
}

TEST(F8_cli_show_names_generation_priority_and_the_step_that_failed)
{
    const char *run = START("orders.again", "1", "--priority", "7");
    outcome     o;

    drain();
    o = OK("show", run);
    CHECK_HAS(o.out, "generation");
    CHECK_HAS(o.out, "began anew");
    CHECK_HAS(o.out, "priority");
    CHECK_HAS(o.out, "declined (STET_ESTEP, in step pay#1)");
    o = OK("show", run, "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"generation\":1");
    CHECK_HAS(o.out, "\"code\":\"STET_ESTEP\"");
    CHECK_HAS(OK("audit", run).out, "pay");
}

TEST(I1_cli_why_names_the_timer)
{
    const char *run = START("orders.nap");
    outcome     o;

    drain();
    CHECK_HAS(OK("why", run).out, "cool-down");
    o = OK("why", run, "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"kind\":\"timer\"");
    CHECK_HAS(OK("show", run).out, "cool-down");
    CHECK_EXIT(RUN("why", "run_00000000000000000000000000"), 3);
}

TEST(I2_cli_verify_counts_runs_and_findings)
{
    START("orders.echo", "1");
    START("orders.nap");
    drain();
    CHECK_HAS(OK("verify").out, "2 runs checked, 0 findings");
    CHECK_HAS(OK("verify", "--json").out, "\"findings\":[]");
    CHECK_INT(json_lines(OK("verify", "--json").out), 1);
}

#ifdef STET_WITH_SQLITE
TEST(I2_cli_verify_names_the_run_that_breaks_a_rule)
{
    const char *run = START("orders.nap");
    sqlite3    *db = NULL;
    outcome     o;

    drain();
    CHECK_INT(sqlite3_open(test_path("cli_app.db"), &db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, "DELETE FROM timers", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    o = CHECK_EXIT(RUN("verify"), 1);
    CHECK_HAS(o.out, run);
    CHECK_HAS(o.out, "1 finding");
    o = CHECK_EXIT(RUN("verify", "--json"), 1);
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, run);
}

static void
lose_table(const char *sql)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open(test_path("cli_app.db"), &db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

TEST(I2_cli_verify_repairs_what_it_finds)
{
    const char *run = START("orders.nap");
    outcome     o;

    drain();
    lose_table("DELETE FROM timers");
    CHECK_EXIT(RUN("verify"), 1);
    o = CHECK_EXIT(RUN("verify", "--repair", "--json"), 0);
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"repaired\":true");
    CHECK_HAS(o.out, "\"repaired\":1");
    CHECK_HAS(OK("verify").out, "1 run checked, 0 findings");
    lose_table("DELETE FROM timers");
    o = CHECK_EXIT(RUN("verify", "--repair"), 0);
    CHECK_HAS(o.out, run);
    CHECK_HAS(o.out, "REPAIRED");
    CHECK_HAS(o.out, "1 finding, 1 repaired");
    CHECK_HAS(OK("verify", "--repair").out, "0 findings, 0 repaired");
}

TEST(F2_cli_a_lost_table_is_rebuilt_by_the_command_that_the_error_names)
{
    const char *run = START("orders.nap");
    outcome     o;

    START("orders.echo", "1");
    drain();
    lose_table("DROP TABLE runs");
    o = CHECK_EXIT(RUN("ls"), 8);
    CHECK_HAS(o.err, "table runs is missing");
    CHECK_HAS(o.err, "verify --repair");
    o = CHECK_EXIT(STET("verify", "--repair", "--db", "cli_app.db"), 0);
    CHECK_HAS(o.out, "2 runs checked, 2 findings, 2 repaired");
    CHECK_HAS(o.out, run);
    CHECK_HAS(OK("ls").out, run);
    CHECK_HAS(OK("verify").out, "2 runs checked, 0 findings");
}
#endif

TEST(I5_cli_a_store_is_moved_and_its_runs_go_on)
{
    const char *run = START("orders.nap"), *ended_run = START("orders.echo", "8");
    outcome     o;

    drain();
    o = OK("move", "--to", "new.db");
    CHECK_HAS(o.out, "2 runs moved, 1 of them open");
    CHECK_HAS(o.out, "both sides are the same: sha256 ");
    CHECK_STR(o.err, ""); /* a bar is for terminals */
    o = CHECK_EXIT(RUN("start", "orders.echo", "9"), 9);
    CHECK_HAS(o.err, "was moved to new.db");
    CHECK_HAS(CHECK_EXIT(RUN("worker", "--until-idle"), 9).err, "was moved to new.db");
    CHECK_HAS(OK("ls").out, run);
    CHECK_HAS(OK("ls", "--db", "new.db").out, run);
    CHECK_HAS(OK("show", ended_run, "--db", "new.db").out, "completed");
    OK("cancel", run, "--db", "new.db");
    OK("worker", "--until-idle", "--db", "new.db");
    CHECK_HAS(OK("verify", "--db", "new.db").out, "2 runs checked, 0 findings");
    o = CHECK_EXIT(STET("move", "--from", "cli_app.db", "--to", "new.db", "--json"), 0);
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"was_done\":true");
    CHECK_HAS(o.out, "\"sha256\":null");
    o = CHECK_EXIT(STET("move", "--from", "new.db", "--to", "third.db", "--json"), 0);
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"runs\":2,\"open\":0");
    CHECK_STR(o.err, "");
}

TEST(I5_cli_a_terminal_shows_how_far_a_move_is)
{
    const char *shown;

    START("orders.echo", "1");
    drain();
    shown = on_terminal(120, 0, ARGS("move", "--to", "new.db"));
    CHECK_HAS(shown, "copying    [########################] 1/1 runs");
    CHECK_HAS(shown, "comparing");
    CHECK_HAS(shown, "1 run moved");
}

TEST(I5_cli_mistakes_of_a_move_are_named)
{
    worker  w;
    outcome o;

    CHECK_HAS(CHECK_EXIT(RUN("move"), 2).err, "--to URL");
    CHECK_HAS(CHECK_EXIT(RUN("move", "--to", "new.db"), 8).err, "no store at cli_app.db");
    CHECK(access(test_path("cli_app.db"), F_OK) != 0);
    CHECK_EXIT(RUN("move", "--undo"), 8);
    START("orders.echo", "1");
    CHECK_EXIT(RUN("move", "--undo", "--to", "new.db"), 2);
    CHECK_EXIT(RUN("move", "--to", "cli_app.db"), 2);
    o = CHECK_EXIT(RUN("move", "--to", "nowhere://x", "--json"), 8);
    CHECK_INT(json_lines(strchr(o.err, '{')), 1);
    w = worker_start(ARGS("worker", "--worker", "anna"));
    CHECK_HAS(CHECK_EXIT(RUN("move", "--to", "new.db"), 8).err, "anna");
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
    START("orders.echo", "1", "--db", "other.db");
    CHECK_HAS(CHECK_EXIT(RUN("move", "--to", "other.db"), 9).err, "runs of its own");
    CHECK_HAS(OK("move", "--undo").out, "the source takes work");
    CHECK_INT(json_lines(OK("move", "--undo", "--json").out), 1);
    OK("move", "--to", "new.db");
    CHECK_HAS(CHECK_EXIT(RUN("move", "--undo"), 9).err, "was moved to new.db");
}

TEST(G10_cli_workers_and_handlers_are_listed)
{
    worker  w = worker_start(ARGS("worker", "--worker", "anna", "--json"));
    outcome o = OK("workers");

    CHECK_INT(json_lines(w.ready), 1);
    CHECK_HAS(o.out, "anna");
    CHECK_HAS(o.out, "alive");
    CHECK_HAS(o.out, "worker,timers");
    CHECK_HAS(o.out, "orders.echo");
    o = OK("workers", "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"handlers\":[\"orders.echo\",\"");
    o = OK("handlers");
    CHECK_HAS(o.out, "gives back what it gets");
    CHECK_HAS(o.out, "wallet.deposit");
    CHECK_INT(json_lines(OK("handlers", "--json").out), 15);
    o = CHECK_EXIT(STET("handlers", "--db", "cli_app.db"), 0);
    CHECK_HAS(o.out, "orders.echo");
    o = CHECK_EXIT(STET("handlers", "--json", "--db", "cli_app.db"), 0);
    CHECK_HAS(o.out, "\"handler\":\"wallet.deposit\",\"kind\":\"object\",\"here\":false");
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
}

TEST(H10_cli_health_is_good_only_with_a_worker)
{
    worker  w;
    outcome o;

    START("orders.nap", "--delay", "1h");
    CHECK_HAS(CHECK_EXIT(RUN("health"), 1).out, "unhealthy");
    w = worker_start(ARGS("worker"));
    CHECK_HAS(OK("health").out, "1 living worker,");
    o = OK("health", "--json");
    CHECK_INT(json_lines(o.out), 1);
    CHECK_HAS(o.out, "\"healthy\":true");
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
    CHECK_EXIT(RUN("health"), 1);
}

/* Whether the hook takes what it is told only its own engine knows. */
TEST(H6_cli_health_claims_no_more_of_an_audit_hook_than_it_knows)
{
    worker  w;
    outcome o;

    setenv("CLI_APP_AUDIT", "refuse", 1);
    w = worker_start(ARGS("worker"));
    unsetenv("CLI_APP_AUDIT");
    START("orders.echo");
    (void)worker_line(&w, "refused");
    o = OK("health");
    CHECK_HAS(o.out, "a living engine has the audit hook; its log says what the hook refuses");
    CHECK(strstr(o.out, "is told") == NULL);
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
    CHECK_HAS(CHECK_EXIT(RUN("health"), 1).out, "no living engine tells the audit hook");
}

TEST(H10_cli_workers_that_do_one_thing_only_are_told_apart)
{
    static const struct {
        uint32_t    roles;
        const char *said;
    } all[] = { { STET_ROLE_WORKER, "worker" }, { STET_ROLE_TIMERS, "timers" } };
    stet_engine *e;
    outcome      o;

    OK("handlers");
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(stet_open(&e, test_path("cli_app.db"),
                           STET_OPTIONS(.roles = all[i].roles, .worker = "alone",
                                        .log_level = STET_LOG_OFF)));
        CHECK_OK(stet_engine_start(e));
        o = OK("workers");
        CHECK_HAS(o.out, "alone");
        CHECK_HAS(o.out, all[i].said);
        CHECK(strstr(o.out, "worker,timers") == NULL);
        CHECK_HAS(OK("workers", "--json").out, "\"alone\"");
        if (all[i].roles == STET_ROLE_WORKER) /* nobody fires timers */
            CHECK_HAS(CHECK_EXIT(RUN("health"), 1).out, "unhealthy");
        stet_close(e);
    }
}

TEST(B7_cli_state_is_read_from_outside)
{
    START("wallet.deposit", "{\"eur\":5}", "--key", "alice");
    drain();
    CHECK_STR(OK("state", "get", "wallet", "alice", "balance").out, "{\"eur\":5}\n");
    CHECK_HAS(OK("state", "get", "wallet", "alice").out, "balance  {\"eur\":5}");
    CHECK_INT(json_lines(OK("state", "get", "wallet", "alice", "--json").out), 1);
    CHECK_HAS(OK("state", "get", "wallet", "alice", "balance", "--json").out,
              "\"value\":{\"eur\":5}");
    CHECK_EXIT(RUN("state", "get", "wallet", "alice", "absent"), 3);
    CHECK_HAS(OK("state", "get", "wallet", "bob").err, "no state");
    CHECK_HAS(CHECK_EXIT(RUN("state", "get", "walet", "alice"), 3).err, "no object walet is known");
    CHECK_HAS(CHECK_EXIT(RUN("state", "get", "walet", "alice", "n"), 3).err, "no object walet");
    CHECK_HAS(CHECK_EXIT(RUN("state", "get", "orders", "alice"), 2).err, "orders is a service");
    CHECK_HAS(CHECK_EXIT(RUN("state", "get", "orders", "alice", "n"), 2).err, "no state");
}

/* ---- acting --------------------------------------------------------------------------------- */

/* ---- schedules ------------------------------------------------------------------------------ */

TEST(I10_cli_a_preview_shows_local_times_and_utc)
{
    outcome o = CHECK_EXIT(STET("schedule", "preview", "0 9 * * MON-FRI", "--tz", "Europe/Berlin",
                                "-n", "3", "--from", "2026-11-19T12:00:00Z"),
                           0);

    CHECK_STR(o.out, "LOCAL                        UTC\n"
                     "Fri 2026-11-20 09:00 +01:00  2026-11-20T08:00:00Z\n"
                     "Mon 2026-11-23 09:00 +01:00  2026-11-23T08:00:00Z\n"
                     "Tue 2026-11-24 09:00 +01:00  2026-11-24T08:00:00Z\n");
    CHECK_STR(o.err, "");
    /* UTC, ten of them, from now on, also in a program of one's own; no store comes of it. */
    o = OK("schedule", "preview", "@hourly", "--json");
    CHECK_INT(json_lines(o.out), 10);
    CHECK_HAS(o.out, "+00:00\"");
    o = OK("schedule", "preview", "0 0 1 1 *", "--tz", "Africa/Monrovia", "-n=1", "--from",
           "1971-01-01T12:00:00Z");
    CHECK_HAS(o.out, "Sat 1972-01-01 00:00 -00:44:30  1972-01-01T00:44:30Z");
    CHECK(access(test_path("cli_app.db"), F_OK) != 0);
}

TEST(I10_cli_a_preview_marks_daylight_saving)
{
    outcome o = OK("schedule", "preview", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "2",
                   "--from", "2026-03-28T12:00:00Z");

    CHECK_STR(o.out, "LOCAL                        UTC                   DAYLIGHT SAVING\n"
                     "Sun 2026-03-29 03:00 +02:00  2026-03-29T01:00:00Z  clocks go forward 1h; "
                     "02:30 does not exist: fires at 03:00\n"
                     "Mon 2026-03-30 02:30 +02:00  2026-03-30T00:30:00Z\n");
    o = OK("schedule", "preview", "30 * * * *", "--tz", "Europe/Berlin", "-n", "3", "--from",
           "2026-10-25T00:00:00Z");
    CHECK_HAS(o.out, "02:30 +02:00  2026-10-25T00:30:00Z  repeated hour: the first 02:30\n");
    CHECK_HAS(o.out, "02:30 +01:00  2026-10-25T01:30:00Z  clocks go back 1h; repeated hour: the "
                     "second 02:30\n");
    CHECK_HAS(o.out, "03:30 +01:00  2026-10-25T02:30:00Z\n");
    o = OK("schedule", "preview", "0 9 * * *", "--tz", "America/New_York", "-n", "1", "--from",
           "2026-03-07T20:00:00Z");
    CHECK_HAS(o.out, "Sun 2026-03-08 09:00 -04:00  2026-03-08T13:00:00Z  clocks go forward 1h\n");
    /* One minute past midnight. */
    o = OK("schedule", "preview", "30 0 * * *", "--tz", "America/St_Johns", "-n", "1", "--from",
           "2005-04-02T12:00:00Z");
    CHECK_HAS(o.out, "00:30 does not exist: fires at 01:01");
    o = OK("schedule", "preview", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "1", "--from",
           "2026-03-28T12:00:00Z", "--json");
    CHECK_STR(o.out, "{\"at_ms\":1774746000000,\"local\":\"2026-03-29T03:00:00+02:00\",\"utc\":"
                     "\"2026-03-29T01:00:00Z\",\"offset_s\":7200,\"shift_s\":3600,\"mark\":"
                     "\"moved\",\"asked\":\"02:30\",\"note\":\"clocks go forward 1h; 02:30 does "
                     "not exist: fires at 03:00\"}\n");
}

TEST(I10_cli_mistakes_of_a_preview_are_named)
{
#define PREVIEW(...) STET("schedule", "preview", __VA_ARGS__)
    CHECK_HAS(CHECK_EXIT(PREVIEW("0 25 * * *"), 2).err,
              "cron \"0 25 * * *\": hour 25 at column 3 is not 0 to 23");
    CHECK_HAS(CHECK_EXIT(PREVIEW("0 0 30 2 *"), 2).err, "it never fires");
    CHECK_HAS(CHECK_EXIT(PREVIEW("@daily", "--tz", "Europe/Berln"), 2).err,
              "there is no time zone \"Europe/Berln\"; did you mean Europe/Berlin?");
    CHECK_HAS(CHECK_EXIT(PREVIEW("@daily", "--tz", "../UTC"), 2).err, "no name of a time zone");
    CHECK_HAS(CHECK_EXIT(PREVIEW("@daily", "-n", "0"), 2).err, "-n 0: expected a number from 1");
    CHECK_HAS(CHECK_EXIT(PREVIEW("@daily", "-n"), 2).err, "-n needs a value: -n N");
    CHECK_HAS(CHECK_EXIT(PREVIEW("@daily", "-m", "3"), 2).err, "there is no option -m");
    CHECK_HAS(CHECK_EXIT(PREVIEW("@daily", "---json"), 2).err, "there is no option ---json");
    CHECK_HAS(CHECK_EXIT(PREVIEW("@daily", "--from", "soon"), 2).err, "--from soon");
    CHECK_HAS(CHECK_EXIT(PREVIEW("0", "9", "*", "*", "*"), 2).err, "\"9\" is too much");
    CHECK_HAS(CHECK_EXIT(STET("schedule"), 2).err, "schedule preview");
    CHECK_HAS(CHECK_EXIT(STET("help", "schedule", "preview"), 0).out,
              "schedule preview '0 9 * * MON-FRI' --tz Europe/Berlin -n 5");
    /* The end of time: as many as there are. */
    CHECK_STR(CHECK_EXIT(PREVIEW("@yearly", "--from", "9999-06-01T00:00:00Z"), 0).out, "");
}

TEST(C4_cli_cancel_says_who_and_why)
{
    const char *run = START("orders.nap"), *done = START("orders.echo", "1");
    outcome     o;

    drain();
    CHECK_HAS(OK("cancel", run, "--by", "bea", "--why", "changed her mind").out, "cancelled");
    OK("cancel", run);
    drain();
    o = OK("show", run);
    CHECK_HAS(o.out, "bea");
    CHECK_HAS(o.out, "changed her mind");
    CHECK_EXIT(RUN("cancel", done), 9);
    CHECK_EXIT(RUN("cancel", "run_00000000000000000000000000"), 3);
    CHECK_INT(json_lines(OK("cancel", START("orders.nap"), "--json").out), 1);
}

/* A cron job, a container, a service of systemd: there is a user, but nothing says so. */
TEST(C8_cli_who_acts_is_known_without_a_name_in_the_environment)
{
    const char *run = START("orders.nap");
    char        line[2048], want[64];
    uid_t       uid = geteuid();

    (void)snprintf(want, sizeof want, uid == 0 ? "by root" : "by ");
    (void)snprintf(line, sizeof line,
                   "cd '%s' && '%s' schedule ensure s orders.echo --every 1h >/dev/null && "
                   "env -u USER LOGNAME=clerk '%s' pause %s >/dev/null && "
                   "env -u USER LOGNAME=clerk '%s' schedule pause s >/dev/null",
                   test_dir(), program("cli_app"), program("cli_app"), run, program("cli_app"));
    CHECK_INT(system(line), 0);
    CHECK_HAS(OK("why", run).out, "paused by clerk");
    CHECK_HAS(OK("schedule", "show", "s").out, "clerk");
    OK("resume", run);
    (void)snprintf(line, sizeof line,
                   "cd '%s' && env -u USER -u LOGNAME '%s' pause %s >/dev/null && "
                   "USER= LOGNAME= '%s' pause --handler orders.echo >/dev/null",
                   test_dir(), program("cli_app"), run, program("cli_app"));
    CHECK_INT(system(line), 0);
    CHECK_HAS(OK("why", run).out, want);
    CHECK_HAS(OK("pause", "--json").out, uid == 0 ? "\"by\":\"root\"" : "\"by\":\"");
}

TEST(B6_cli_resolve_and_reject_settle_once)
{
    const char *yes = START("orders.gate"), *no = START("orders.gate"), *id;

    drain();
    id = word(OK("show", yes, "--json").out, "awk_");
    CHECK_HAS(CHECK_EXIT(RUN("resolve", id, "not json"), 2).err, "byte");
    CHECK_HAS(OK("resolve", id, "{\"by\":\"bea\"}").out, "resolved");
    CHECK_EXIT(RUN("resolve", id, "2"), 9);
    CHECK_EXIT(RUN("reject", id, "late"), 9);
    id = word(OK("show", no, "--json").out, "awk_");
    CHECK_INT(json_lines(OK("reject", id, "out of budget", "--json").out), 1);
    drain();
    CHECK_STR(OK("wait", yes).out, "{\"by\":\"bea\"}\n");
    CHECK_HAS(CHECK_EXIT(RUN("wait", no), 4).err, "out of budget");
    CHECK_EXIT(RUN("resolve", "awk_00000000000000000000000000"), 3);
    CHECK_EXIT(RUN("resolve", yes), 2);
    CHECK_EXIT(RUN("reject", id), 2);
}

TEST(B8_cli_signals_reach_the_run_that_waits)
{
    const char *run = START("orders.post"), *early = START("orders.post");

    OK("signal", early, "paid", "1");
    drain();
    CHECK_STR(OK("wait", early).out, "1\n");
    CHECK_HAS(OK("why", run).out, "waits for signal paid, at most until its limit");
    CHECK_HAS(OK("ls", "--waits-for-signal", "paid").out, run);
    CHECK(strstr(OK("ls", "--waits-for-signal", "paid").out, early) == NULL);
    CHECK_STR(OK("ls", "--waits-for-topic", "paid").out, "");
    CHECK_HAS(OK("why", run).out, " signal run_");
    CHECK_HAS(CHECK_EXIT(RUN("signal", run, "paid", "not json"), 2).err, "byte");
    CHECK_EXIT(RUN("signal", run), 2);
    CHECK_EXIT(RUN("signal", run, "a b\n", "1"), 2);
    CHECK_EXIT(RUN("signal", "run_00000000000000000000000000", "paid"), 3);
    CHECK_HAS(OK("signal", run, "paid", "{\"cents\":250}", "--by", "till").out, "signalled");
    CHECK_INT(json_lines(OK("signal", run, "paid", "2", "--idempotency-key", "k", "--json").out),
              1);
    drain();
    CHECK_STR(OK("wait", run).out, "{\"cents\":250}\n");
    CHECK_HAS(OK("show", run).out, "till");
    CHECK_HAS(CHECK_EXIT(RUN("signal", run, "paid"), 9).err, "has ended");
}

TEST(I12_cli_a_run_is_asked_by_its_program_and_through_a_worker)
{
    const char *run = START("orders.ship");
    worker      w;

    drain();
    /* The program has the handler: no worker is needed. */
    CHECK_STR(OK("query", run, "where").out, "{\"legs\":0,\"to\":\"Bremen\"}\n");
    CHECK_INT(json_lines(OK("query", run, "where", "--json").out), 1);
    CHECK_HAS(CHECK_EXIT(RUN("query", run, "were"), 3).err, "no query were; it has where");
    CHECK_HAS(CHECK_EXIT(RUN("query", run, "where", "false"), 10).err, "that cannot be known");
    CHECK_HAS(CHECK_EXIT(STET("query", run, "where", "--db", "cli_app.db"), 9).err,
              "no worker serves it");
    w = worker_start(ARGS("worker"));
    CHECK_STR(CHECK_EXIT(STET("query", run, "where", "--db", "cli_app.db"), 0).out,
              "{\"legs\":0,\"to\":\"Bremen\"}\n");
    OK("signal", run, "leg");
    OK("signal", run, "leg");
    CHECK_STR(OK("wait", run).out, "\"Bremen\"\n");
    CHECK_STR(CHECK_EXIT(STET("query", run, "where", "--db", "cli_app.db"), 0).out,
              "{\"legs\":2,\"to\":\"Bremen\"}\n");
    CHECK_HAS(CHECK_EXIT(STET("query", run, "were", "--db", "cli_app.db"), 3).err,
              "no query were; it has where");
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
    CHECK_EXIT(RUN("query", run), 2);
    CHECK_EXIT(RUN("query", run, "where", "{no"), 2);
    CHECK_EXIT(RUN("query", run, "where", "--timeout", "soon"), 2);
    CHECK_EXIT(RUN("query", "run_00000000000000000000000000", "where"), 3);
}

TEST(I12_cli_a_run_is_changed_and_answers)
{
    const char *run = START("orders.ship");
    worker      w;

    drain();
    CHECK_HAS(CHECK_EXIT(RUN("update", run, "divert", "\"Bonn\"", "--key", "k", "--timeout", "1ms"),
                         7).err,
              "ask again with the idempotency key k");
    w = worker_start(ARGS("worker"));
    CHECK_STR(OK("update", run, "divert", "\"Bonn\"", "--key", "k").out, "{\"to\":\"Bonn\"}\n");
    CHECK_STR(CHECK_EXIT(STET("update", run, "divert", "\"Mainz\"", "--by", "anna", "--db",
                              "cli_app.db"), 0).out,
              "{\"to\":\"Mainz\"}\n");
    CHECK_INT(json_lines(OK("update", run, "divert", "\"Bonn\"", "--key", "k", "--json").out), 1);
    CHECK_STR(OK("query", run, "where").out, "{\"legs\":0,\"to\":\"Mainz\"}\n");
    CHECK_HAS(CHECK_EXIT(RUN("update", run, "diver", "1"), 3).err, "no update diver; it has div");
    OK("signal", run, "leg");
    CHECK_HAS(CHECK_EXIT(RUN("update", run, "divert", "\"Ulm\""), 10).err, "on its way to Mainz");
    CHECK_HAS(OK("show", run).out, "anna");
    CHECK_HAS(OK("show", run).out, "  at signal wait leg#1  ");
    OK("signal", run, "leg");
    CHECK_STR(OK("wait", run).out, "\"Mainz\"\n");
    CHECK_HAS(CHECK_EXIT(RUN("update", run, "divert", "\"Ulm\""), 9).err, "has ended");
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
    CHECK_EXIT(RUN("update", run), 2);
    CHECK_EXIT(RUN("update", run, "divert", "{no"), 2);
    CHECK_EXIT(RUN("update", run, "divert", "--timeout", "soon"), 2);
    CHECK_EXIT(RUN("update", "run_00000000000000000000000000", "divert"), 3);
}

TEST(H6_cli_the_trail_of_a_run_is_printed)
{
    const char *run = START("orders.ask", "{\"amount\":5}");
    outcome     o;
    char        id[64];
    size_t      n;

    drain();
    CHECK_HAS(OK("approve", run, "--by", "owner", "--note", "fine").out, "approved");
    drain();
    o = OK("audit", run);
    CHECK_HAS(o.out, "ENTRY");
    CHECK_HAS(o.out, "started orders.ask");
    CHECK_HAS(o.out, "decision wait boss");
    CHECK_HAS(o.out, "approved");
    CHECK_HAS(o.out, "by owner: fine");
    CHECK(strstr(o.out, "amount") == NULL); /* payloads only if asked for */
    CHECK_HAS(OK("audit", run, "--payloads").out, "{\"amount\":5}");
    o = OK("audit", run, "--json", "--payloads");
    n = json_lines(o.out);
    CHECK(n >= 6);
    snprintf(id, sizeof id, "\"id\":\"%s/1\"", run);
    CHECK_HAS(o.out, id);
    CHECK_HAS(o.out, "\"value\":{\"amount\":5}");
    CHECK_INT(json_lines(OK("audit", run, "--json", "--since", "1h").out), n);
    CHECK_INT(json_lines(OK("audit", run, "--json", "--since", "2200-01-01T00:00:00Z").out), 0);
    CHECK_HAS(OK("audit", run, "--since", "2200-01-01T00:00:00Z").err, "nothing has happened");
    CHECK_HAS(CHECK_EXIT(RUN("audit"), 2).err, "name a run");
    CHECK_HAS(CHECK_EXIT(RUN("audit", run, "--off"), 2).err, "name no run");
    CHECK_HAS(CHECK_EXIT(RUN("audit", run, "--since", "soon"), 2).err, "--since soon");
    CHECK_EXIT(RUN("audit", "run_00000000000000000000000000"), 3);
    CHECK_HAS(OK("audit", "--off").out, "is not mirrored any more");
}

TEST(B15_cli_people_approve_reject_and_resume)
{
    const char *yes = START("orders.ask", "{\"amount\":5}"), *no = START("orders.ask", "{}");
    outcome     o;

    drain();
    o = OK("waits", "--people");
    CHECK_HAS(o.out, yes);
    CHECK_HAS(o.out, "boss");
    CHECK_HAS(o.out, "{\"amount\":5}");
    CHECK_INT(json_lines(OK("waits", "--people", "--json").out), 2);
    CHECK_INT(json_lines(OK("waits", "--for", "decision wait boss", "--json").out), 2);
    CHECK_INT(json_lines(OK("waits", "--for", "something else", "--json").out), 0);
    CHECK_HAS(OK("why", yes).out, " approve run_");
    CHECK_HAS(CHECK_EXIT(RUN("resume", yes), 9).err, "is an approval: `stet approve run_");
    CHECK_HAS(OK("approve", yes, "--by", "owner", "--note", "fine").out, "approved");
    CHECK_HAS(CHECK_EXIT(RUN("reject", yes, "no"), 9).err, "was approved by owner");
    CHECK_INT(json_lines(OK("reject", no, "too dear", "--by", "owner", "--json").out), 1);
    drain();
    CHECK_HAS(OK("show", yes).out, "approved by owner: fine");
    CHECK_HAS(OK("show", no).out, "by owner: too dear");
    CHECK_HAS(OK("show", yes).out, "by mail\n");
    CHECK(strstr(OK("show", yes).out, "by mail  by mail") == NULL);
    CHECK_HAS(CHECK_EXIT(RUN("wait", no), 4).err, "owner says too dear");
    CHECK_HAS(OK("notes", yes).out, "approved by owner");
    CHECK_INT(json_lines(OK("notes", yes, "--json").out), 1);
    CHECK_HAS(OK("notes", no).err, "noted nothing");
    CHECK_HAS(OK("resume", yes).out, "resumed");
    drain();
    CHECK_STR(OK("wait", yes).out, "{\"by\":\"owner\"}\n");
    CHECK_HAS(CHECK_EXIT(RUN("approve", yes), 9).err, "boss was approved by owner at 2");
    CHECK_HAS(CHECK_EXIT(RUN("resume", yes), 9).err, "stocktaking was resumed by tester at 2");
    CHECK_EXIT(RUN("approve", "run_00000000000000000000000000"), 3);
    CHECK_EXIT(RUN("approve"), 2);
    CHECK_HAS(OK("waits", "--people").err, "no run waits for a person");
}

TEST(H2_cli_a_shell_completes_and_man_has_a_page)
{
    outcome o = OK("completion", "bash");
    char    line[8192];

    spill("complete.sh", o.out);
    CHECK(snprintf(
              line, sizeof line,
              "bash -c 'source \"%s\"; f() { COMP_WORDS=(cli_app \"$@\"); COMP_CWORD=$#; "
              "_stet_cli_app; echo \"${COMPREPLY[*]}\"; }; "
              "[ \"$(f sche)\" = schedule ] && [ \"$(f dlq re)\" = retry ] && "
              "[ \"$(f emit news --ra)\" = --raw ] && [ \"$(f --json appr)\" = approve ] && "
              "[ \"$(f --db x.db appr)\" = approve ] && [ \"$(f --db x.db dlq re)\" = retry ] && "
              "[ \"$(f --db x.db emit --db=y --ra)\" = --raw ] && "
              "[ \"$(f ls --handler appr --st)\" = --status ] && "
              "[ \"$(f help sche)\" = schedule ] && [ \"$(f help dlq re)\" = retry ] && "
              "[ \"$(f help exit)\" = exit-codes ] && [ \"$(f help conf)\" = config ]'",
              test_path("complete.sh")) < (int)sizeof line);
    CHECK_INT(system(line), 0);
    CHECK_EXIT(RUN("completion", "fish"), 2);
    o = OK("man");
    CHECK_HAS(o.out, ".SS schedule ensure");
    CHECK_HAS(o.out, "\\-\\-idempotency\\-key");
    CHECK_HAS(o.out, ".SH EXIT STATUS");
}

TEST(B9_cli_an_event_resumes_those_who_wait)
{
    const char *one = START("orders.hear"), *two = START("orders.hear");

    CHECK_HAS(OK("emit", "news", "0").out, "0 runs resumed");
    drain();
    CHECK_HAS(OK("why", one).out, "waits for an event on topic news");
    CHECK_HAS(CHECK_EXIT(RUN("emit", "news", "not json"), 2).err, "byte");
    CHECK_EXIT(RUN("emit", "a b\n"), 2);
    CHECK_EXIT(RUN("emit"), 2);
    CHECK_HAS(OK("emit", "news", "[1]", "--json").out, "\"resumed\":2");
    drain();
    CHECK_STR(OK("wait", one).out, "[1]\n");
    CHECK_STR(OK("wait", two).out, "[1]\n");
}

TEST(B11_cli_a_rollback_that_failed_goes_on_with_mended_code)
{
    const char *run = START("orders.regret");

    drain();
    CHECK_HAS(CHECK_EXIT(RUN("wait", run), 4).err, "the undo of step charge#1 failed");
    CHECK_HAS(OK("why", run).out, "could not be rolled back");
    CHECK_HAS(OK("ls", "--status", "compensation-failed").out, run);
    CHECK(strstr(OK("show", run).out, "9999") == NULL); /* nothing is due */
    CHECK_HAS(OK("show", run, "--json").out, "\"due_ms\":null");
    CHECK_EXIT(RUN("cancel", run), 9);
    setenv("CLI_APP_NEW", "1", 1);
    CHECK_HAS(OK("rollback", run, "--why", "it is open").out, "goes on");
    drain();
    unsetenv("CLI_APP_NEW");
    CHECK_HAS(OK("show", run).out, "failed");
    CHECK_HAS(OK("show", run).out, "it is open");
    CHECK_EXIT(RUN("rollback", run), 9);
}

TEST(C3_cli_dead_letters_are_listed_retried_and_discarded)
{
    const char *one = START("orders.fail", "\"pears\""), *two = START("orders.fail", "\"apples\"");
    outcome     o;

    drain();
    o = OK("dlq", "ls");
    CHECK_HAS(o.out, "no stock");
    CHECK_HAS(o.out, "\"pears\"");
    CHECK(strstr(o.out, two) < strstr(o.out, one));
    CHECK(strchr(o.out, '\033') == NULL);
    CHECK_INT(json_lines(OK("dlq", "ls", "--json").out), 2);
    CHECK_INT(json_lines(OK("dlq", "ls", "--json", "--handler", "orders.echo").out), 0);
    CHECK_HAS(OK("dlq", "discard", one).out, "discarded");
    CHECK_INT(json_lines(OK("dlq", "ls", "--json").out), 1);
    o = OK("dlq", "retry", two);
    CHECK_HAS(o.out, "retried by run_");
    CHECK_EXIT(RUN("dlq", "retry", two), 9);
    CHECK_STR(OK("dlq", "ls").out, "");
    drain();
    CHECK_INT(json_lines(OK("dlq", "retry", "--all", "--handler", "orders.fail", "--json").out), 1);
    drain();
    OK("dlq", "discard", "--all");
    CHECK_HAS(OK("dlq", "ls").err, "no dead letters");
    CHECK_EXIT(RUN("dlq", "retry", START("orders.nap", "--delay", "1h")), 9);
    CHECK_EXIT(RUN("dlq", "retry", "run_00000000000000000000000000"), 3);
    CHECK_EXIT(RUN("dlq", "retry", one, "--all"), 2);
}

TEST(B20_cli_unstick_lets_a_stuck_run_go_on)
{
    const char *run = START("orders.shape", "1"), *id;

    drain();
    id = word(OK("show", run, "--json").out, "awk_");
    OK("resolve", id, "5");
    setenv("CLI_APP_NEW", "1", 1);
    drain();
    unsetenv("CLI_APP_NEW");
    CHECK_HAS(OK("ls", "--status", "stuck").out, run);
    CHECK_HAS(OK("why", run).out, "approval#1");
    CHECK_HAS(OK("show", run).out, "(STET_EREPLAY");
    CHECK_HAS(OK("unstick", run, "--by", "bea").out, "unstuck");
    drain();
    CHECK_STR(OK("wait", run).out, "5\n");
    CHECK(strstr(OK("show", run).out, "(STET_EREPLAY") == NULL); /* that is over; its fact stays */
    CHECK_HAS(OK("show", run).out, "STET_EREPLAY");
    CHECK_HAS(OK("show", run, "--json").out,
              "\"code\":null,\"cause\":0,\"cause_name\":null,\"error\":null");
    CHECK_EXIT(RUN("unstick", run), 9);
    CHECK_EXIT(RUN("unstick", "run_00000000000000000000000000"), 3);
}

/* ---- the worker ----------------------------------------------------------------------------- */

TEST(H7_cli_worker_logs_the_users_fields_as_text_and_as_json)
{
    const char *run = START("orders.speak", "1");
    outcome     o = OK("worker", "--until-idle");

    CHECK_HAS(o.err, "stet info: spoken run=");
    CHECK_HAS(o.err, run);
    CHECK_HAS(o.err, " handler=orders.speak customer=\"anna b\" amount=12\n");
    CHECK(strstr(o.err, "inside") == NULL); /* below the level */
    START("orders.speak", "2");
    o = OK("worker", "--until-idle", "--log-level", "debug");
    CHECK_HAS(o.err, "stet debug: inside run=");
    CHECK_HAS(o.err, "step=inner customer=\"anna b\"\n");
    run = START("orders.speak", "3");
    o = OK("worker", "--until-idle", "--json");
    CHECK(json_lines(o.err) >= 1);
    CHECK_HAS(o.err, "{\"level\":\"info\",\"time_ms\":");
    CHECK_HAS(o.err, "\"message\":\"spoken\",\"run\":\"run_");
    CHECK_HAS(o.err, run);
    CHECK_HAS(
        o.err,
        "\"handler\":\"orders.speak\",\"fields\":{\"customer\":\"anna b\",\"amount\":\"12\"}}\n");
    CHECK(strstr(o.err, "inside") == NULL);
    START("orders.speak", "4");
    o = OK("worker", "--until-idle", "--json", "--log-level", "off");
    CHECK(strstr(o.err, "spoken") == NULL);
    o = CHECK_EXIT(RUN("worker", "--log-level", "loud"), 2);
    CHECK_HAS(o.err, "--log-level loud: expected debug");
}

TEST(H7_cli_worker_logs_failures_as_json)
{
    worker      w = worker_start(ARGS("worker", "--json", "--log-level", "debug"));
    const char *run = START("orders.again", "1");
    const char *line = worker_line(&w, "declined");

    CHECK_HAS(line, run);
    CHECK_HAS(line, "\"handler\":\"orders.again\"");
    CHECK_INT(worker_stop(&w, SIGTERM), 0);
}

TEST(H7_C2_cli_worker_logs_a_number_that_is_no_code)
{
    outcome o;

    START("orders.odd");
    o = OK("worker", "--until-idle");
    CHECK_HAS(o.err, "returned 4711, which is no verdict");
    CHECK_HAS(o.err, "code=4711");
    START("orders.odd");
    o = OK("worker", "--until-idle", "--json");
    CHECK_HAS(o.err, "\"code\":\"4711\"");
}

TEST(A10_cli_worker_settings_come_from_environment_and_command_line)
{
    outcome o;

    CHECK_HAS(CHECK_EXIT(RUN("worker", "--set", "concurency=3"), 2).err, "concurency");
    CHECK_HAS(CHECK_EXIT(RUN("worker", "--set", "lease_ms"), 2).err, "name=value");
    CHECK_HAS(CHECK_EXIT(RUN("worker", "--concurrency", "0"), 2).err, "--concurrency");
    CHECK_HAS(CHECK_EXIT(RUN("worker", "--drain", "x"), 2).err, "--drain");
    setenv("STET_CONCURRENCY", "many", 1);
    CHECK_HAS(CHECK_EXIT(RUN("worker"), 2).err, "STET_CONCURRENCY");
    setenv("STET_CONCURRENCY", "4", 1);
    CHECK_HAS(OK("worker", "--until-idle").out, "with 4 slots");
    CHECK_HAS(OK("worker", "--until-idle", "--set", "concurrency=5").out, "with 5 slots");
    o = OK("worker", "--until-idle", "--concurrency", "6", "--db", "other.db");
    CHECK_HAS(o.out, "on other.db with 6 slots");
    unsetenv("STET_CONCURRENCY");
}

/* A worker whose step body was entered and does not end. */
static worker
worker_hanging(const char *drain_time)
{
    worker w;
    int    fd;

    CHECK_INT(mkfifo(test_path("fifo"), 0600), 0);
    setenv("CLI_APP_FIFO", test_path("fifo"), 1);
    START("orders.hang");
    w = worker_start(ARGS("worker", "--drain", drain_time));
    fd = open(test_path("fifo"), O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
    return w;
}

TEST(C7_cli_a_worker_whose_body_does_not_end_says_which)
{
    worker w = worker_hanging("50ms");

    kill(w.pid, SIGTERM);
    CHECK_HAS(worker_line(&w, "ending without it"), "for ever");
    CHECK_INT(ended(w.pid), 7);
}

/* lost_max=1: the next worker does not try it again. */
TEST(C1_cli_one_worker_that_died_is_one_worker)
{
    worker      w = worker_hanging("1h");
    const char *run = word(OK("ls", "--json").out, "run_");

    CHECK_INT(worker_stop(&w, SIGKILL), 1000 + SIGKILL);
    OK("worker", "--until-idle", "--set", "lost_max=1");
    CHECK_HAS(OK("show", run).out, "1 worker died executing it");
    CHECK_HAS(OK("show", run).out, "1 worker died while executing it");
}

TEST(C7_cli_a_second_signal_ends_a_worker_at_once)
{
    worker w = worker_hanging("1h");

    kill(w.pid, SIGTERM);
    /* From here on a signal either ends it, or stays pending until it does. */
    worker_line(&w, "stopping");
    CHECK_INT(worker_stop(&w, SIGINT), 1000 + SIGINT);
}
