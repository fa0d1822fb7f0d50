/* Tables of an SQLite file are lost: projections are rebuilt from baselines and facts, what is
 * about the living is made again, facts are not made up. Row F2. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lost.h"

/* ---- projections ----------------------------------------------------------------------------- */

#ifdef STET_WITH_SQLITE

static fixture *
f2_begin(lost_story *story)
{
    fixture *f = fixture_begin();

    if (!f->is_sqlite)
        test_skip("facts of a memory store cannot be without their rows");
    lost_fill(f, story);
    return f;
}

/* Lose it, be refused, rebuild it, find everything as it was, go on. */
static void
f2_lose(const char *sql, const char *named)
{
    lost_story   story;
    fixture     *f = f2_begin(&story);
    stet_engine *e = NULL;
    char        *before, *after;
    int          findings, repaired;

    before = lost_text(f->url);
    lost_sql(f->url, sql);
    CHECK_CODE(stet_open(&e, f->url, &f->options), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), named);
    CHECK_HAS(stet_last_error(), "verify --repair");
    lost_repair(f->url, &findings, &repaired);
    CHECK(findings > 0);
    CHECK_INT(repaired, findings);
    test_note("%d repairs", repaired);
    after = lost_text(f->url);
    CHECK_STR(after, before);
    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, 0);
    lost_goes_on(f, &story);
    free(before);
    free(after);
    fixture_end(f);
}

TEST(F2_the_table_of_runs_is_rebuilt)
{
    f2_lose("DROP TABLE runs", "table runs");
}
TEST(F2_the_table_of_timers_is_rebuilt)
{
    f2_lose("DROP TABLE timers", "table timers");
}
TEST(F2_the_table_of_values_is_rebuilt)
{
    f2_lose("DROP TABLE values_", "table values_");
}
TEST(F2_all_projections_at_once_are_rebuilt)
{
    f2_lose("DROP TABLE runs; DROP TABLE timers; DROP TABLE values_", "table runs");
}

TEST(F2_an_untouched_story_goes_on)
{
    lost_story story;
    fixture   *f = f2_begin(&story);
    int        findings, repaired;

    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, 0);
    lost_goes_on(f, &story);
    fixture_end(f);
}

static int
f2_body(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("entered %d", stet_attempt_is_at_risk(a));
    while (!stet_attempt_is_at_risk(a))
        pause();
    return STET_OK;
}

static int
f2_risky(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "first", body_effect, (void *)(uintptr_t) "first", NULL));
    STET_TRY(stet_step(ctx, NULL, "risky", f2_body, NULL, NULL));
    return stet_return(ctx, input);
}

static const stet_handler f2_handlers[] = { { "risky", f2_risky, NULL }, { 0 } };

/* A worker dies in the second step's body, then tables are lost. */
static fixture *
f2_die(stet_run_id *run, const char *lost)
{
    fixture *f = fixture_begin();
    pid_t    child;

    if (!f->is_sqlite)
        test_skip("needs a process that is killed");
    f->engine = fixture_open(f);
    *run = fixture_start(f->engine, "t.risky", "in", NULL);
    fixture_down(f);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        fixture_up_with(f, f2_handlers);
        for (;;)
            pause();
    }
    effects_await("entered 0", 1);
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK(waitpid(child, NULL, 0) == child);
    lost_sql(f->url, lost);
    return f;
}

/* Recorded steps stay recorded, and the one that was entered knows it. */
static void
f2_expect_risk(fixture *f, const stet_run_id *run)
{
    fixture_up_with(f, f2_handlers);
    EXPECT_RESULT(f->engine, run, "in");
    CHECK_INT(effects("first"), 1);
    CHECK_INT(effects("entered 1"), 1);
    CHECK_INT(effects("entered 0"), 1);
    CHECK_INT(fixture_facts(f->engine, run, "worker lost", NULL), 1);
    fixture_end(f);
}

/* Who had the run is lost with its row, and what that worker was doing is told all the same. */
TEST(F2_a_body_that_was_entered_is_at_risk_after_a_rebuild)
{
    stet_run_id run;
    fixture    *f = f2_die(&run, "DROP TABLE runs");
    int         findings, repaired;

    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, 1);
    CHECK_INT(repaired, 1);
    f2_expect_risk(f, &run);
}

/* ---- F2: tables about the living are lost ---------------------------------------------------- */

#define LIFE_LOST "DROP TABLE sessions; DROP TABLE committers"

/* Nothing in them matters once nobody has the file open: whoever opens it makes them again. */
TEST(F2_lost_sessions_and_committers_are_made_again_by_who_opens_the_file)
{
    lost_story story;
    fixture   *f = f2_begin(&story);
    char      *before = lost_text(f->url), *after;
    int        findings, repaired;

    lost_sql(f->url, LIFE_LOST);
    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, 0);
    after = lost_text(f->url);
    CHECK_STR(after, before);
    lost_sql(f->url, LIFE_LOST);
    lost_goes_on(f, &story);
    free(before);
    free(after);
    fixture_end(f);
}

/* Who has it is in the run's row; what they did with it in the live file. */
TEST(F2_a_body_that_was_entered_is_at_risk_after_sessions_are_lost)
{
    stet_run_id run;
    fixture    *f = f2_die(&run, LIFE_LOST);

    f2_expect_risk(f, &run);
}

TEST(F2_a_body_that_was_entered_is_at_risk_after_all_but_the_facts_is_lost)
{
    stet_run_id run;
    fixture    *f = f2_die(&run, LIFE_LOST "; DROP TABLE runs; DROP TABLE timers;"
                                              "DROP TABLE values_");
    int         findings, repaired;

    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, 1);
    CHECK_INT(repaired, 1);
    f2_expect_risk(f, &run);
}

/* Nobody knows what they did who had it: that is told. */
static void
f2_without_live(const char *lost)
{
    stet_run_id run;
    fixture    *f = f2_die(&run, lost);
    int         findings, repaired;

    CHECK_INT(remove(test_path("engine.db-live")), 0);
    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, repaired);
    f2_expect_risk(f, &run);
}

TEST(F2_a_body_that_was_entered_is_at_risk_after_sessions_and_the_live_file_are_lost)
{
    f2_without_live(LIFE_LOST);
}

TEST(F2_a_body_that_was_entered_is_at_risk_after_sessions_rows_and_the_live_file_are_lost)
{
    f2_without_live(LIFE_LOST "; DROP TABLE runs");
}

/* A handle that is open may have a commit in doubt, and only `committers` knows what came of it. */
TEST(F2_sessions_and_committers_are_not_made_again_under_a_worker)
{
    static const char *const lost[] = { "DROP TABLE sessions", "DROP TABLE committers" };
    fixture                 *f = fixture_begin();

    if (!f->is_sqlite)
        test_skip("needs a file");
    for (size_t i = 0; i < 2; i++) {
        stet_engine *e = NULL;
        stet_run_id  run;

        fixture_up(f, common_services);
        run = fixture_start(f->engine, "t.nap", "", NULL);
        fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
        lost_sql(f->url, lost[i]);
        CHECK_CODE(stet_open(&e, f->url, &f->options), STET_EBUSY);
        CHECK_HAS(stet_last_error(), "stop them");
        fixture_close(f);
        fixture_up(f, common_services);
        (void)fixture_sound(f->engine);
        fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
        CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
        fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
        fixture_down(f);
    }
    fixture_end(f);
}

TEST(F2_a_lost_index_is_made_again_by_who_opens_the_file)
{
    lost_story story;
    fixture   *f = f2_begin(&story);
    char      *before = lost_text(f->url), *after;

    lost_sql(f->url, "DROP INDEX runs_work; DROP INDEX runs_lane; DROP INDEX timers_run");
    lost_goes_on(f, &story);
    after = lost_text(f->url);
    CHECK_HAS(after, "index|runs_work");
    CHECK_HAS(after, "index|runs_lane");
    CHECK_HAS(after, "index|timers_run");
    free(before);
    free(after);
    fixture_end(f);
}

static int
f2_on_listed(void *arg, const stet_run_row *row)
{
    (void)row;
    ++*(int *)arg;
    return STET_OK;
}

/* How many runs lists show: of each handler, status and key there is. */
static void
f2_lists(const char *url, int counts[3])
{
    static const char *const services[] = { "t.", "o." };
    stet_store              *s = NULL;

    memset(counts, 0, 3 * sizeof *counts);
    CHECK_OK(stet__store_open(&s, stet__platform_real(), url));
    for (size_t i = 0; i < 2; i++) {
        stet_run_query query = { .handler = services[i], .limit = 1000 };

        CHECK_OK(s->ops->runs(s, &query, f2_on_listed, &counts[0]));
    }
    for (unsigned status = 0; status < 20; status++) {
        stet_run_query query = { .status_mask = 1ull << status, .limit = 1000 };

        CHECK_OK(s->ops->runs(s, &query, f2_on_listed, &counts[1]));
    }
    for (char key[2] = "a"; key[0] <= 'z'; key[0]++) {
        stet_run_query query = { .key = key, .limit = 1000 };

        CHECK_OK(s->ops->runs(s, &query, f2_on_listed, &counts[2]));
    }
    stet__store_close(s);
    test_note("lists show %d, %d, %d", counts[0], counts[1], counts[2]);
}

static void
f2_lose_lists(const char *sql, bool is_found)
{
    lost_story story;
    fixture   *f = f2_begin(&story);
    char      *before = lost_text(f->url), *after;
    int        counts[3], shown[3], findings, repaired;

    f2_lists(f->url, counts);
    CHECK(counts[0] > 0 && counts[1] > 0 && counts[2] > 0);
    lost_sql(f->url, sql);
    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings > 0, is_found);
    CHECK_INT(repaired, findings);
    after = lost_text(f->url);
    CHECK_STR(after, before);
    f2_lists(f->url, shown);
    CHECK(memcmp(shown, counts, sizeof counts) == 0);
    lost_repair(f->url, &findings, &repaired);
    CHECK_INT(findings, 0);
    lost_goes_on(f, &story);
    free(before);
    free(after);
    fixture_end(f);
}

/* Dropped: made again by who opens the file. Emptied: nobody notices but verify. */
TEST(F2_tables_that_lists_go_by_are_made_again_by_who_opens_the_file)
{
    f2_lose_lists("DROP TABLE stretches; DROP TABLE stretch_keys", false);
}
TEST(F2_a_table_that_lists_go_by_is_made_again_by_who_opens_the_file)
{
    f2_lose_lists("DROP TABLE stretch_keys", false);
}
TEST(F2_entries_that_lists_go_by_are_rebuilt)
{
    f2_lose_lists("DELETE FROM stretches", true);
}
TEST(F2_entries_that_lists_by_key_go_by_are_rebuilt)
{
    f2_lose_lists("DELETE FROM stretch_keys", true);
}
TEST(F2_the_column_that_the_queue_goes_by_is_rebuilt)
{
    f2_lose_lists("UPDATE runs SET work=NULL WHERE work<=0", true);
}

TEST(F2_lost_facts_and_baselines_are_not_made_up)
{
    static const char *const lost[] = { "DROP TABLE facts", "DROP TABLE inbox", "DROP TABLE base",
                                        "DROP TABLE meta" };

    for (size_t i = 0; i < sizeof lost / sizeof lost[0]; i++) {
        fixture     *f = fixture_begin();
        stet_engine *e = NULL;
        char         url[1024];

        if (!f->is_sqlite)
            test_skip("needs a file");
        f->engine = fixture_open(f);
        fixture_down(f);
        lost_sql(f->url, lost[i]);
        (void)snprintf(url, sizeof url, "%s?repair=1", f->url);
        CHECK_CODE(stet_open(&e, f->url, &f->options), STET_ECORRUPT);
        CHECK_HAS(stet_last_error(), "restore a backup");
        CHECK_CODE(stet_open(&e, url, &f->options), STET_ECORRUPT);
        CHECK_HAS(stet_last_error(), "restore a backup");
        fixture_end(f);
        fixture_wipe();
    }
}

TEST(F2_a_file_from_before_baselines_gets_a_place_for_them)
{
    fixture *f = fixture_begin();

    if (!f->is_sqlite)
        test_skip("needs a file");
    f->engine = fixture_open(f);
    fixture_down(f);
    lost_sql(f->url, "DROP TABLE base; DELETE FROM meta WHERE k='base'");
    f->engine = fixture_open(f);
    fixture_end(f);
}

TEST(F2_tables_are_not_rebuilt_beside_another_process)
{
    fixture     *f = fixture_begin();
    stet_engine *e = NULL;
    char         url[1024];

    if (!f->is_sqlite)
        test_skip("needs a file");
    f->engine = fixture_open(f);
    lost_sql(f->url, "DROP TABLE timers");
    (void)snprintf(url, sizeof url, "%s?repair=1", f->url);
    CHECK_CODE(stet_open(&e, url, &f->options), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "stop them");
    fixture_close(f);
    CHECK_OK(stet_open(&e, url, &f->options));
    /* Half way: nobody else may begin to work on it, and it can be gone on with. */
    CHECK_CODE(stet_open(&f->engine, f->url, &f->options), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "interrupted");
    stet_close(e);
    CHECK_CODE(stet_open(&f->engine, f->url, &f->options), STET_ECORRUPT);
    CHECK_OK(stet_open(&e, url, &f->options));
    CHECK_OK(stet_repair(e, NULL, NULL, NULL));
    stet_close(e);
    f->engine = fixture_open(f);
    fixture_end(f);
}

#endif
