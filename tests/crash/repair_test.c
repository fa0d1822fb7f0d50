/* Crash everywhere through a repair: a file that lost all its projections is rebuilt by a process
 * that ends before or after each of its store calls; the next one finishes it, and everything is as
 * it was. Rows F2, I2.
 *
 *   STET_CRASH_STRIDE=N  before every Nth call only: there the file is as the last commit left it,
 *                        and the ends after each commit are tests of their own
 */
#include <sys/wait.h>
#include <unistd.h>

#include "lost.h"
#include "testkit/shim_store.h"

#ifdef STET_WITH_SQLITE

#include "engine/engine.h"

#define CRASHED 77
#define REFUSED 78

static void
repair_crash(void *arg)
{
    (void)arg;
    _exit(CRASHED);
}

static int
repair_ignore(void *arg, const stet_finding *finding)
{
    (void)arg;
    (void)finding;
    return STET_OK;
}

static void
repair_copy(const char *from, const char *to)
{
    static const char *const beside[] = { "", "-live", "-wal", "-shm" };
    char                     path[1024], block[65536];
    FILE                    *in, *out;
    size_t                   n;

    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", to, beside[i]);
        (void)remove(path);
        if (i > 1)
            continue; /* the last to close it emptied the log */
        CHECK((out = fopen(path, "wb")) != NULL);
        (void)snprintf(path, sizeof path, "%s%s", from, beside[i]);
        CHECK((in = fopen(path, "rb")) != NULL);
        while ((n = fread(block, 1, sizeof block, in)) > 0)
            CHECK(fwrite(block, 1, n, out) == n);
        fclose(in);
        CHECK_INT(fclose(out), 0);
    }
}

/* In a process of its own. Its exit code. */
static int
repair_until(const char *path, shim_mode mode, shim_which which, uint64_t at)
{
    shim_script  script = { .mode = mode, .which = which, .at = at, .crash = repair_crash };
    stet_store  *inner = NULL, *store = NULL;
    stet_engine *e = NULL;
    char         url[1024];
    int          status, err;
    pid_t        child = fork();

    CHECK(child >= 0);
    if (child > 0) {
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        return WEXITSTATUS(status);
    }
    (void)snprintf(url, sizeof url, "%s?repair=1", path);
    if (stet__store_open(&inner, stet__platform_real(), url) != STET_OK ||
        stet__shim_store_new(&store, inner, &script) != STET_OK ||
        stet__open_on(&e, stet__platform_real(), store, url,
                      STET_OPTIONS(.log_level = STET_LOG_OFF)) != STET_OK)
        _exit(99);
    err = stet_repair(e, NULL, repair_ignore, NULL);
    _exit(!script.is_hit ? (err == STET_OK ? 0 : 98) : err == STET_OK ? CRASHED : REFUSED);
}

static uint64_t
repair_stride(shim_which which)
{
    return which == SHIM_ANY ? (uint64_t)test_count("STET_CRASH_STRIDE", 1) : 1;
}

static void
repair_everywhere(const char *sql, shim_mode mode, shim_which which)
{
    lost_story  story;
    fixture    *f;
    char       *before, *after;
    const char *copy = strdup(test_path("copy.db"));
    uint64_t    stride = repair_stride(which);
    int         findings, repaired, code = CRASHED, n = 0;

    CHECK_INT(setenv("STET_TEST_STORE", "sqlite", 1), 0);
    f = fixture_begin();
    lost_fill(f, &story);
    before = lost_text(f->url);
    lost_sql(f->url, sql);
    for (uint64_t at = 1; code != 0; at += stride, n++) {
        repair_copy(f->url, copy);
        code = repair_until(copy, mode, which, at);
        if (code != 0 && code != CRASHED && code != REFUSED)
            test_fail(__FILE__, __LINE__, "%s call %llu: exit code %d", stet__shim_mode_name(mode),
                      (unsigned long long)at, code);
        lost_repair(copy, &findings, &repaired);
        CHECK_INT(repaired, findings);
        after = lost_text(copy);
        if (strcmp(after, before) != 0)
            test_note("%s call %llu", stet__shim_mode_name(mode), (unsigned long long)at);
        CHECK_STR(after, before);
        free(after);
    }
    CHECK(n > 20);
    test_note("%s each of %d calls, every %llu.", stet__shim_mode_name(mode), n - 1,
              (unsigned long long)stride);
    /* The last one goes on. */
    repair_copy(copy, f->url);
    lost_goes_on(f, &story);
    free(before);
    free((void *)(uintptr_t)copy);
    fixture_end(f);
}

#define ALL_LOST "DROP TABLE runs; DROP TABLE timers; DROP TABLE values_"

TEST_LIMIT(F2_a_repair_that_ends_before_any_store_call_can_be_repeated, 240)
{
    repair_everywhere(ALL_LOST, SHIM_BEFORE, SHIM_ANY);
}

TEST_LIMIT(F2_a_repair_that_ends_after_any_commit_can_be_repeated, 240)
{
    repair_everywhere(ALL_LOST, SHIM_AFTER, SHIM_WRITES);
}

TEST_LIMIT(F2_a_repair_without_sessions_that_ends_after_any_commit_can_be_repeated, 240)
{
    repair_everywhere(ALL_LOST "; DROP TABLE sessions; DROP TABLE committers", SHIM_AFTER,
                      SHIM_WRITES);
}

TEST_LIMIT(F2_a_repair_whose_replies_are_lost_repairs_once, 240)
{
    repair_everywhere(ALL_LOST, SHIM_LOSE, SHIM_WRITES);
}

TEST_LIMIT(I2_a_repair_whose_commits_are_refused_can_be_repeated, 240)
{
    repair_everywhere(ALL_LOST, SHIM_FAIL, SHIM_WRITES);
}

#endif
