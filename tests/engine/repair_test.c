/* Repair: projections are dropped and rebuilt from baselines and facts. Rows F2, I2. */
#include "damage.h"

#include "lost.h"

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

TEST(F2_the_table_of_runs_is_rebuilt) { f2_lose("DROP TABLE runs", "table runs"); }
TEST(F2_the_table_of_timers_is_rebuilt) { f2_lose("DROP TABLE timers", "table timers"); }
TEST(F2_the_table_of_values_is_rebuilt) { f2_lose("DROP TABLE values_", "table values_"); }
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

TEST(F2_lost_facts_and_baselines_are_not_made_up)
{
    static const char *const lost[] = { "DROP TABLE facts", "DROP TABLE inbox", "DROP TABLE base", "DROP TABLE meta" };

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
        (void)remove(test_path("engine.db"));
        (void)remove(test_path("engine.db-wal"));
        (void)remove(test_path("engine.db-shm"));
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
    stet_close(f->engine);
    f->engine = NULL;
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
