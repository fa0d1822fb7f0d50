/* check, export, replay and describe as their users meet them: the real programs as processes, on a
 * file that a worker left behind. Whatever they do, no body of theirs may be entered: it would
 * leave the file "entered". */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stet.h>

#include "test.h"
#include "util/util.h"

#ifdef STET_WITH_SQLITE
#include <sqlite3.h>

/* ---- running programs ----------------------------------------------------------------------- */

typedef struct outcome {
    int  exit; /* or 1000 + signal */
    char out[65536], err[16384];
} outcome;

static void
redirect(int fd, const char *path)
{
    int opened = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (opened < 0 || dup2(opened, fd) < 0)
        _exit(99);
    close(opened);
}

static void
slurp(const char *name, char *text, size_t size)
{
    FILE  *file = fopen(test_path(name), "rb");
    size_t n;

    CHECK(file != NULL);
    n = fread(text, 1, size - 1, file);
    text[n] = '\0';
    fclose(file);
}

/* The programs lie beside this one. Words end with NULL; `code` is OFFLINE_APP. */
static outcome *
run(const char *program, const char *code, ...)
{
    static outcome o;
    const char    *argv[24] = { NULL };
    char           path[600];
    size_t         n = 1;
    int            status = 0;
    va_list        args;
    pid_t          pid;

    snprintf(path, sizeof path, "%s%s%s", *program == '/' ? "" : STET_TEST_BUILD_DIR,
             *program == '/' ? "" : "/", program);
    argv[0] = path;
    va_start(args, code);
    while ((argv[n] = va_arg(args, const char *)) != NULL && n < 22)
        n++;
    va_end(args);
    fflush(NULL);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        if (chdir(test_dir()) != 0)
            _exit(99);
        redirect(STDOUT_FILENO, "out");
        redirect(STDERR_FILENO, "err");
        unsetenv("STET_DB");
        setenv("OFFLINE_APP", code, 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(98);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    o.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    slurp("out", o.out, sizeof o.out);
    slurp("err", o.err, sizeof o.err);
    CHECK(access(test_path("entered"), F_OK) != 0);
    return &o;
}

#define APP "tests/apps/offline_app"

/* ---- what a worker left behind --------------------------------------------------------------- */

static int
body(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, stet_text("{\"receipt\":12}"));
}

/* The code that is deployed. */
static int
checkout(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes paid;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body, NULL, NULL));
    STET_TRY(stet_sleep(ctx, "change of mind", "1ms"));
    STET_TRY(stet_await_signal(ctx, &paid, "paid", "3d"));
    STET_TRY(stet_step(ctx, NULL, "ship", body, NULL, NULL));
    return stet_return(ctx, paid);
}

static const stet_handler old[] = { { "checkout", checkout, NULL },
                                    { "gone", checkout, NULL },
                                    { 0 } };
static const stet_handler other[] = { { "nap", checkout, NULL }, { 0 } };

static void
on_verdict(void *arg, const stet_verdict *verdict)
{
    *(bool *)arg = strcmp(verdict->kind, "signal") == 0;
}

static stet_run_id
stands(stet_engine *e, const char *handler)
{
    stet_run_id run;
    bool        is_there = false;

    CHECK_OK(stet_start(e, &run, handler, stet_text("{\"order\":7}"), NULL));
    for (int i = 0; i < 10000 && !is_there; i++) {
        CHECK_OK(stet_why(e, &run, on_verdict, &is_there));
        if (!is_there)
            (void)stet_wait(e, NULL, &run, 2); /* it does not end: this is a moment */
    }
    CHECK(is_there);
    return run;
}

/* shop.db with runs that wait for their signal; those of others, if they are asked for. */
static stet_run_id
deployed_with(stet_run_id *gone, stet_run_id *nap)
{
    stet_engine *e;
    stet_run_id  run;

    CHECK_OK(stet_open(&e, test_path("shop.db"), STET_OPTIONS(.log_level = STET_LOG_OFF)));
    CHECK_OK(stet_register(e, "orders", old));
    CHECK_OK(stet_register(e, "elsewhere", other));
    CHECK_OK(stet_engine_start(e));
    run = stands(e, "orders.checkout");
    if (gone != NULL) {
        *gone = stands(e, "orders.gone");
        *nap = stands(e, "elsewhere.nap");
        *nap = stands(e, "elsewhere.nap");
    }
    stet_close(e);
    return run;
}

static stet_run_id
deployed(void)
{
    return deployed_with(NULL, NULL);
}

/* Every row of every table, as one number. */
static uint64_t
digest(void)
{
    static const char *const tables[] = { "facts", "inbox", "runs", "timers", "values_", "lanes" };
    sqlite3                 *db;
    uint64_t                 sum = 0;
    int                      seen = 0;

    CHECK(sqlite3_open_v2(test_path("shop.db"), &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        sqlite3_stmt *stmt;
        char          sql[64];

        snprintf(sql, sizeof sql, "SELECT * FROM %s", tables[i]);
        if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
            continue;
        for (seen++; sqlite3_step(stmt) == SQLITE_ROW;)
            for (int c = 0; c < sqlite3_column_count(stmt); c++) {
                const void *at = sqlite3_column_blob(stmt, c);

                sum =
                    stet__hash64(at != NULL ? at : "", (size_t)sqlite3_column_bytes(stmt, c), sum);
            }
        sqlite3_finalize(stmt);
    }
    sqlite3_close(db);
    CHECK(seen >= 4);
    return sum;
}

/* Where the program has this text, as a check tells it: "offline_app.c:35". */
static const char *
source_line(const char *text)
{
    static char where[64];
    char        line[300];
    FILE       *file = fopen(STET_TEST_SOURCE_DIR "/tests/apps/offline_app.c", "r");
    int         n = 0;
    bool        is_found = false;

    CHECK(file != NULL);
    while (!is_found && fgets(line, sizeof line, file) != NULL) {
        n++;
        is_found = strstr(line, text) != NULL;
    }
    fclose(file);
    CHECK(is_found);
    snprintf(where, sizeof where, "offline_app.c:%d", n);
    return where;
}

/* ---- check ----------------------------------------------------------------------------------- */

TEST(I3_check_says_which_run_would_get_stuck_and_where)
{
    stet_run_id run_id = deployed();
    uint64_t    before = digest();
    outcome    *o = run(APP, "same", "check", "--db", "shop.db", NULL);

    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "1 open run checked, 0 would not go on");
    o = run(APP, "sleeps", "check", "--db", "shop.db", NULL);
    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, run_id.text);
    CHECK_HAS(o->out, "contradiction");
    CHECK_HAS(o->out, "step charge#1");
    CHECK_HAS(o->out, "sleep charge#1");
    CHECK_HAS(o->out, source_line("stet_sleep(ctx, \"charge\""));
    CHECK_HAS(o->out, "1 open run checked, 1 would not go on");
    o = run(APP, "renames", "check", "--db", "shop.db", "--json", NULL);
    CHECK_INT(o->exit, 1);
    CHECK(stet__json_valid(stet_text(o->out), NULL));
    CHECK_HAS(o->out, "\"found\":\"unasked\",\"recorded\":\"step charge#1\","
                      "\"asked\":\"step charge card#1\"");
    CHECK_HAS(o->out, "\"checked\":1,\"stuck\":1}");
    CHECK(digest() == before);
}

TEST(I3_check_lives_through_a_crash)
{
    stet_run_id run_id = deployed();
    outcome    *o = run(APP, "crashes", "check", "--db", "shop.db", NULL);

    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, run_id.text);
    CHECK_HAS(o->out, "crashed");
    CHECK_HAS(o->out, "1 open run checked, 1 would not go on");
}

TEST(I3_check_lists_handlers_this_program_does_not_have)
{
    stet_run_id gone, nap;
    outcome    *o;

    (void)deployed_with(&gone, &nap);
    o = run(APP, "same", "check", "--db", "shop.db", NULL);
    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, "no-handler");
    CHECK_HAS(o->out, "orders.gone");
    CHECK_HAS(o->out, "2 runs of elsewhere.nap: not of this program");
    CHECK_HAS(o->out, "4 open runs checked, 1 would not go on");
    o = run(APP, "same", "check", "--db", "shop.db", "--handler", "orders.checkout", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "1 open run checked");
}

/* A slip must not open the gate. */
TEST(I3_check_of_a_handler_that_is_nowhere_is_refused_with_those_that_exist)
{
    stet_run_id gone, nap;
    outcome    *o;

    (void)deployed_with(&gone, &nap);
    o = run(APP, "same", "check", "--db", "shop.db", "--handler", "orders.chekout", NULL);
    CHECK_INT(o->exit, 2);
    CHECK_HAS(o->err, "no handler orders.chekout");
    CHECK_HAS(o->err, "did you mean orders.checkout?");
    CHECK(strstr(o->out, "checked") == NULL);
    o = run(APP, "same", "check", "--db", "shop.db", "--handler", "nothing.like", "--json", NULL);
    CHECK_INT(o->exit, 2);
    CHECK_HAS(o->err, "orders.checkout");
    CHECK_STR(o->out, "");
    o = run(APP, "same", "check", "--db", "shop.db", "--handler", "nothing", NULL);
    CHECK_INT(o->exit, 2);
    CHECK_HAS(o->err, "no service nothing");
    o = run(APP, "same", "check", "--db", "shop.db", "--handler", "orders", NULL);
    CHECK_INT(o->exit, 1);
    o = run(APP, "same", "check", "--db", "shop.db", "--handler", "orders.gone", NULL);
    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, "no-handler");
    o = run(APP, "same", "check", "--db", "shop.db", "--handler", "elsewhere.nap", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "2 runs of elsewhere.nap: not of this program");
}

TEST(I3_check_says_what_is_wrong_with_the_command)
{
    outcome *o = run("stet", "", "check", "--db", "shop.db", NULL);

    CHECK_INT(o->exit, 2);
    CHECK_HAS(o->err, "no handlers");
    o = run(APP, "", "check", "--db", "nowhere.db", NULL);
    CHECK_INT(o->exit, 8);
    o = run(APP, "", "help", "check", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "./newshop check --db shop.db");
}

/* ---- export, replay -------------------------------------------------------------------------- */

static void
exported(const stet_run_id *run_id)
{
    outcome *o =
        run("stet", "", "export", run_id->text, "--db", "shop.db", "--out", "run.stet", NULL);

    if (o->exit != 0)
        test_fail(__FILE__, __LINE__, "export: %s", o->err);
    /* From here on there is no store. */
    CHECK(unlink(test_path("shop.db")) == 0);
    (void)unlink(test_path("shop.db-wal"));
    (void)unlink(test_path("shop.db-shm"));
}

TEST(I7_a_run_is_exported_and_replayed_without_its_store)
{
    stet_run_id run_id = deployed();
    outcome    *o;

    exported(&run_id);
    o = run(APP, "same", "replay", "run.stet", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, run_id.text);
    CHECK_HAS(o->out, "orders.checkout, suspended, as of revision");
    CHECK_HAS(o->out, "   1  step charge#1  {\"receipt\":12}");
    CHECK_HAS(o->out, "   2  sleep change of mind#1");
    CHECK_HAS(o->out, "   3  signal wait paid#1  has not come yet");
    CHECK_HAS(o->out, "came to the end of the record");
    CHECK(access(test_path("shop.db"), F_OK) != 0);
    CHECK(access(test_path("offline_app.db"), F_OK) != 0);
    o = run(APP, "same", "replay", "run.stet", "--json", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "\"kind\":\"step\",\"name\":\"charge\"");
    CHECK_HAS(o->out, "{\"end\":\"record\",\"fine\":true");
    o = run(APP, "sleeps", "replay", "run.stet", NULL);
    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, "recorded step charge#1, but the code asked for sleep charge#1");
    o = run("stet", "", "replay", "run.stet", NULL);
    CHECK_INT(o->exit, 2);
    o = run(APP, "same", "replay", "nothing.stet", NULL);
    CHECK_INT(o->exit, 3);
    o = run(APP, "same", "replay", "run_01m7rg4ja9etqhs8dts4p408gq", NULL);
    CHECK_INT(o->exit, 3);
    CHECK_HAS(o->err, " export run_01m7rg4ja9etqhs8dts4p408gq --out run.stet");
    o = run(APP, "same", "replay", "rollback:charge#1", NULL);
    CHECK_INT(o->exit, 3);
    CHECK_HAS(o->err, "skip RUN rollback:charge#1");
}

/* The first is of a handler this program has no longer, the second of a service it never had. */
TEST(I7_a_run_of_another_program_is_not_replayed)
{
    stet_run_id gone, nap;
    outcome    *o;

    (void)deployed_with(&gone, &nap);
    (void)run("stet", "", "export", gone.text, "--db", "shop.db", "--out", "gone.stet", NULL);
    (void)run("stet", "", "export", nap.text, "--db", "shop.db", "--out", "nap.stet", NULL);
    o = run(APP, "same", "replay", "gone.stet", NULL);
    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, "this program has no handler orders.gone");
    o = run(APP, "same", "replay", "nap.stet", NULL);
    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, "this program has no handler elsewhere.nap");
}

/* To standard output as well, and the same bytes but for the time of the export. */
TEST(I7_export_writes_to_standard_output)
{
    stet_run_id      run_id = deployed();
    stet_bundle_info info;
    struct stat      st;
    char            *bytes;
    FILE            *file;

    CHECK_INT(run(APP, "", "export", run_id.text, "--db", "shop.db", NULL)->exit, 0);
    CHECK(stat(test_path("out"), &st) == 0);
    CHECK((bytes = malloc((size_t)st.st_size)) != NULL);
    CHECK((file = fopen(test_path("out"), "rb")) != NULL);
    CHECK_INT(fread(bytes, 1, (size_t)st.st_size, file), st.st_size);
    fclose(file);
    CHECK_OK(stet_bundle_read(&info, (stet_bytes){ bytes, (size_t)st.st_size }));
    CHECK_STR(info.run.text, run_id.text);
    CHECK_STR(info.handler, "orders.checkout");
    free(bytes);
    CHECK_INT(
        run(APP, "", "export", "run_00000000000000000000000001", "--db", "shop.db", NULL)->exit, 3);
}

/* The debugger stops in the handler, with its stack, and the record still ends as it does. */
TEST(I7_a_replay_can_be_debugged)
{
    stet_run_id run_id = deployed();
    char        app[600];
    outcome    *o;

    if (access("/usr/bin/gdb", X_OK) != 0)
        test_skip("there is no gdb");
    exported(&run_id);
    snprintf(app, sizeof app, "%s/%s", STET_TEST_BUILD_DIR, APP);
    o = run("/usr/bin/gdb", "same", "-q", "-nx", "-batch", "-ex", "break checkout", "-ex", "run",
            "-ex", "backtrace 1", "-ex", "continue", "--args", app, "replay", "run.stet", NULL);
    if (strstr(o->err, "ptrace") != NULL || strstr(o->err, "not permitted") != NULL)
        test_skip("gdb may not trace here");
    CHECK_HAS(o->out, "#0  checkout (");
    CHECK_HAS(o->out, "step charge#1  {\"receipt\":12}");
    CHECK_HAS(o->out, "came to the end of the record");
}

TEST(I7_a_damaged_file_is_refused)
{
    stet_run_id run_id = deployed();
    outcome    *o;

    exported(&run_id);
    CHECK(truncate(test_path("run.stet"), 100) == 0);
    o = run(APP, "same", "replay", "run.stet", NULL);
    CHECK_INT(o->exit, 10);
    CHECK_HAS(o->err, "run.stet: this is no bundle of a run, or a damaged one");
    CHECK_STR(o->out, "");
    o = run(APP, "same", "replay", "run.stet", "--json", NULL);
    CHECK_HAS(o->err, "\"code\":\"STET_ECORRUPT\"");
    /* What cannot be read is not called damaged. */
    o = run(APP, "same", "replay", ".", NULL);
    CHECK_INT(o->exit, 10);
    CHECK_HAS(o->err, ".: Is a directory");
}

/* ---- describe, handlers ---------------------------------------------------------------------- */

TEST(B14_describe_draws_a_handler_in_text)
{
    outcome *o = run(APP, "", "describe", "orders.checkout", NULL);

    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "orders.checkout  (one path, with the handler's samples as results)\n");
    CHECK_HAS(o->out, "├─ step charge           up to 5 attempts, at most 30s, with an undo  ");
    CHECK_HAS(o->out, "├─ sleep change of mind  20ms  ");
    CHECK_HAS(o->out, "├─ signal wait paid      at most 3d  ");
    CHECK_HAS(o->out, "├─ step ship             ");
    CHECK_HAS(o->out, "offline_app.c:");
    CHECK_HAS(o->out, "└─ returns\n");
    CHECK(access(test_path("offline_app.db"), F_OK) != 0); /* nothing asked for a store */
}

TEST(B14_describe_says_what_a_path_that_failed_may_lack)
{
    outcome *o = run(APP, "", "describe", "orders.choose", "--input", "{}", NULL);

    CHECK_HAS(o->out, "└─ returns\n");
    CHECK(strstr(o->out, "--from RUN") == NULL);
    o = run(APP, "", "describe", "orders.picky", NULL);
    CHECK_HAS(o->out, "└─ returned STET_EPERMANENT: ");
    CHECK_HAS(o->out, "give --input JSON or --from RUN");
}

TEST(B14_describe_takes_samples_and_a_default_input)
{
    outcome *o = run(APP, "", "describe", "orders.choose", "--json", NULL);

    CHECK_INT(o->exit, 0);
    CHECK(stet__json_valid(stet_text(o->out), NULL));
    CHECK_HAS(o->out, "\"input\":\"{\\\"item\\\":\\\"lamp\\\"}\"");
    CHECK_HAS(o->out, "\"kind\":\"call\",\"shape\":\"run\",\"name\":\"orders.checkout\"");
    CHECK_HAS(o->out, "\"name\":\"pack it\"");
    CHECK_HAS(o->out, "\"parallel\":true");
    CHECK_HAS(o->out, "\"timeout_ms\":7200000"); /* of the await behind it */
    CHECK_HAS(o->out, "\"text\":\"packed 5 bytes\"");
    CHECK_HAS(o->out, "\"branches\":[\"ship\",\"drive\",\"walk\"],\"default\":true,"
                      "\"value\":\"ship\"");
    CHECK_HAS(o->out, "\"kind\":\"event wait\",\"shape\":\"wait\",\"name\":\"prices\"");
    CHECK_HAS(o->out, "\"timeout_ms\":300000");
    CHECK_HAS(o->out, "\"kind\":\"decision wait\",\"shape\":\"wait\",\"name\":\"manager\"");
    CHECK_HAS(o->out, "\"kind\":\"emit\"");
    CHECK_HAS(o->out, "\"kind\":\"send\",\"shape\":\"run\",\"name\":\"wallet.book\"");
    CHECK_HAS(o->out, "\"key\":\"anna\"");
    CHECK_HAS(o->out, "\"duration_ms\":86400000");
    CHECK_HAS(o->out, "\"value\":\"large\"");
    CHECK_HAS(o->out, "\"end\":\"returned\"");
}

TEST(B14_describe_draws_mermaid_and_dot)
{
    outcome *o = run(APP, "", "describe", "orders.checkout", "--format", "mermaid", NULL);

    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "flowchart TD\n");
    CHECK_HAS(
        o->out,
        "n1[\"step charge<br/>up to 5 attempts, at most 30s, with an undo\"]\n    n0 --> n1\n");
    CHECK_HAS(o->out, "n3([\"signal wait paid<br/>at most 3d\"])\n");
    o = run(APP, "", "describe", "orders.choose", "--format", "mermaid", NULL);
    CHECK_HAS(o->out, "n6{\"switch way\"}\n");
    CHECK_HAS(o->out,
              "    n6 -->|\"ship\"| n7\n    n6 -.->|\"drive\"| n6_5([\"not on this path\"])\n"
              "    n6 -.->|\"walk (default)\"| n6_11(");
    o = run(APP, "", "describe", "orders.choose", "--format", "dot", NULL);
    CHECK_HAS(o->out, "n6 [shape=diamond,label=\"switch way\"];\n");
    CHECK_HAS(o->out, "n6 -> n7 [label=\"ship\"];\n");
    CHECK_HAS(o->out, "n6 -> n6_11 [style=dashed,label=\"walk (default)\"];\n");
    o = run(APP, "", "describe", "orders.choose", NULL);
    CHECK_HAS(o->out, "goes ship, of ship, drive, walk (default)");
    o = run(APP, "", "describe", "wallet.book", "--format", "dot", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "digraph \"wallet.book\" {\n");
    CHECK_HAS(o->out, "n2 [shape=cylinder,label=\"state read balance\"];\n    n1 -> n2;\n");
    o = run(APP, "", "describe", "wallet.book", "--format", "paint", NULL);
    CHECK_INT(o->exit, 2);
    CHECK_HAS(o->err, "text, json, mermaid or dot");
}

TEST(B14_describe_shows_how_far_a_run_is)
{
    stet_run_id run_id = deployed();
    outcome    *o =
        run(APP, "", "describe", "orders.checkout", "--run", run_id.text, "--db", "shop.db", NULL);

    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "✓ ├─ step charge ");
    CHECK_HAS(o->out, "✓ ├─ sleep change of mind ");
    CHECK_HAS(o->out, "… ├─ signal wait paid ");
    CHECK_HAS(o->out, "  ├─ step ship ");
    o = run(APP, "", "describe", "orders.checkout", "--run", run_id.text, "--db", "shop.db",
            "--json", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "\"value\":{\"receipt\":12},\"progress\":\"done\"");
    CHECK_HAS(o->out, "\"progress\":\"waiting\"");
    CHECK_HAS(o->out, "\"progress\":\"ahead\"");
    o = run(APP, "", "describe", "orders.checkout", "--from", run_id.text, "--db", "shop.db",
            "--json", NULL);
    CHECK_HAS(o->out, "\"value\":{\"receipt\":12}}");
    o = run(APP, "", "describe", "orders.choose", "--from", run_id.text, "--db", "shop.db", NULL);
    CHECK_INT(o->exit, 9);
    CHECK_HAS(o->err, "is one of orders.checkout");
}

TEST(B14_describe_draws_how_far_a_run_is)
{
    stet_run_id run_id = deployed();
    outcome    *o = run(APP, "", "describe", "orders.checkout", "--run", run_id.text, "--db",
                        "shop.db", "--format", "mermaid", NULL);

    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "    classDef done fill:#cfc\n");
    CHECK_HAS(o->out, "    class n1 done\n    class n2 done\n    class n3 waiting\n");
    CHECK_HAS(o->out, "    class n4 ahead\n");
    o = run(APP, "", "describe", "orders.checkout", "--run", run_id.text, "--db", "shop.db",
            "--format", "dot", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "style=filled,fillcolor=palegreen");
    CHECK_HAS(o->out, "style=filled,fillcolor=khaki");
}

TEST(B14_describe_draws_what_fails_and_what_has_quotes)
{
    outcome *o = run(APP, "", "describe", "orders.refused", "--input", "{\"a\":1}", NULL);

    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "fails: STET_ESTEP");
    CHECK_HAS(o->out, "said \"no\" \\ ");
    o = run(APP, "", "describe", "orders.refused", "--format", "mermaid", NULL);
    CHECK_HAS(o->out, "said #quot;no#quot; \\ ");
    o = run(APP, "", "describe", "orders.refused", "--format", "dot", NULL);
    CHECK_HAS(o->out, "said \\\"no\\\" \\\\ ");
    o = run(APP, "", "describe", "orders.refused", "--json", NULL);
    CHECK(stet__json_valid(stet_text(o->out), NULL));
    CHECK_HAS(o->out, "\"code\":\"STET_ESTEP\"");
}

TEST(B14_describe_survives_what_a_handler_does)
{
    outcome *o = run(APP, "", "describe", "orders.broken", NULL);

    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, "├─ step fine");
    CHECK_HAS(o->out, "└─ crashed after step fine#1");
    o = run(APP, "", "describe", "orders.endless", "--operations", "7", NULL);
    CHECK_INT(o->exit, 1);
    CHECK_HAS(o->out, "sleep tick#7");
    CHECK(strstr(o->out, "sleep tick#9") == NULL);
    CHECK_HAS(o->out, "asks for more than 7 operations");
    o = run(APP, "", "describe", "orders.nothing", NULL);
    CHECK_INT(o->exit, 3);
    CHECK_HAS(o->err, "no handler orders.nothing");
}

TEST(A8_handlers_are_listed_with_category_and_default_input)
{
    outcome *o = run(APP, "", "handlers", NULL);

    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "warehouse");
    CHECK_HAS(o->out, "packs what it is given");
    CHECK_HAS(o->out, "{\"item\":\"lamp\"}");
    o = run(APP, "", "handlers", "--json", NULL);
    CHECK_HAS(o->out,
              "\"handler\":\"orders.choose\",\"kind\":\"service\",\"here\":true,\"workers\":0,"
              "\"category\":\"warehouse\",\"description\":\"packs what it is given\","
              "\"default_input\":\"{\\\"item\\\":\\\"lamp\\\"}\"}");
}

TEST(A8_a_start_does_not_get_the_default_input)
{
    outcome *o = run(APP, "", "start", "orders.choose", NULL);
    char     id[64];

    CHECK_INT(o->exit, 0);
    CHECK(sscanf(o->out, "%63s", id) == 1);
    o = run(APP, "", "show", id, "--json", NULL);
    CHECK_INT(o->exit, 0);
    CHECK_HAS(o->out, "\"input\":null");
    CHECK(strstr(o->out, "lamp") == NULL);
}
#endif
