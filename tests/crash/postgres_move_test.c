/* Moves between stores of different kinds: a file, PostgreSQL, Redis, in every direction; and crash
 * everywhere on the way from a file into a fleet. Row I5.
 *
 * What a run is does not depend on the store it is in, so a move once around ends in a file that is
 * equal, row by row, to the one it began with.
 */
#include <unistd.h>

#include "cluster.h"
#include "lost.h"
#include "mover.h"
#include "redis_server.h"

#ifdef STET_WITH_SQLITE

static void
begin_servers(void)
{
    cluster_share();
#ifdef STET_WITH_REDIS
    redis_server_share();
#endif
}

__attribute__((constructor)) static void
choose_servers(void)
{
    test_before(begin_servers);
}

/* ---- once around ----------------------------------------------------------------------------- */

#ifdef STET_WITH_REDIS

static fixture *
begin_on(const char *store, const char *file)
{
    fixture *f = fixture_begin_on(store);

    if (f->is_sqlite) {
        free((void *)(uintptr_t)f->url);
        CHECK((f->url = strdup(test_path(file))) != NULL);
    }
    return f;
}

/* From the first to the last; each is filled by the move from the one before it. */
static void
move_around(const char *const *stores, size_t n)
{
    fixture         *f[5];
    stet_move_report first, report;
    lost_story       story;
    char            *before, *after;

    CHECK(n <= 5);
    for (size_t i = 0; i < n; i++)
        f[i] = begin_on(stores[i], i == 0 ? "first.db" : "last.db");
    lost_fill(f[0], &story);
    before = lost_text(f[0]->url);
    for (size_t i = 1; i < n; i++) {
        CHECK_OK(stet_move(&report, f[i - 1]->url, f[i]->url, NULL));
        CHECK_INT(report.runs, story.runs);
        CHECK_INT(report.findings, 0);
        CHECK(!report.is_continued && !report.was_done);
        if (i == 1)
            first = report;
        CHECK_STR(report.digest, first.digest);
        CHECK_INT(report.facts, first.facts);
        CHECK_INT(report.inbox, first.inbox);
        CHECK_INT(report.baselines, first.baselines);
        mover_has_one_owner(f[i - 1]->url, f[i]->url);
        CHECK_OK(stet_move(&report, f[i - 1]->url, f[i]->url, NULL)); /* a repeat is harmless */
        CHECK(report.was_done);
        CHECK_CODE(stet_move_undo(f[i - 1]->url), STET_EMOVED);
    }
    after = lost_text(f[n - 1]->url);
    CHECK_STR(after, before);
    free(after);
    free(before);
    lost_goes_on(f[n - 1], &story);
    for (size_t i = n; i-- > 0;)
        fixture_end(f[i]);
}

TEST_LIMIT(I5_from_a_file_to_postgres_to_redis_to_a_file, 120)
{
    move_around((const char *const[]){ "sqlite", "postgres", "redis", "sqlite" }, 4);
}

TEST_LIMIT(I5_from_a_file_to_redis_to_postgres_to_a_file, 120)
{
    move_around((const char *const[]){ "sqlite", "redis", "postgres", "sqlite" }, 4);
}

TEST_LIMIT(I5_from_postgres_to_postgres, 120)
{
    move_around((const char *const[]){ "sqlite", "postgres", "postgres", "sqlite" }, 4);
}

TEST_LIMIT(I5_from_redis_to_redis, 120)
{
    move_around((const char *const[]){ "sqlite", "redis", "redis", "sqlite" }, 4);
}

/* Filled where servers and workers are, and gone on elsewhere. */
static void
goes_on(const char *from, const char *to)
{
    fixture   *f = fixture_begin_on(from), *t = fixture_begin_on(to);
    lost_story story;

    lost_fill(f, &story);
    CHECK_OK(stet_move(NULL, f->url, t->url, NULL));
    mover_has_one_owner(f->url, t->url);
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

TEST_LIMIT(I5_what_postgres_began_goes_on_in_redis, 120)
{
    goes_on("postgres", "redis");
}

TEST_LIMIT(I5_what_redis_began_goes_on_in_postgres, 120)
{
    goes_on("redis", "postgres");
}

#endif

/* ---- crash everywhere ------------------------------------------------------------------------ */

/* Every `stride`-th write, from the first on; the next move finishes it. With unit_bytes 1 each
 * entry is a write. */
static void
move_everywhere(shim_mode mode, uint64_t stride, size_t unit_bytes)
{
    fixture         *f = fixture_begin_on("sqlite"), *t = NULL;
    stet_move_report first, report;
    lost_story       story;
    char            *before, *after, from[1024];
    uint64_t         at = 1;
    int              code = MOVER_CRASHED, n = 0;

    lost_fill(f, &story);
    before = lost_text(f->url);
    (void)snprintf(from, sizeof from, "%s", test_path("from.db"));
    for (; code != 0; at += stride, n++) {
        char copy[2200];

        if (t != NULL)
            fixture_end(t);
        t = fixture_begin_on("postgres");
        (void)remove(from);
        (void)snprintf(copy, sizeof copy, "VACUUM INTO '%s'", from);
        lost_sql(f->url, copy);
        code = mover_until(from, t->url, mode, SHIM_WRITES, at, unit_bytes);
        if (code != 0 && code != MOVER_CRASHED && code != MOVER_REFUSED)
            test_fail(__FILE__, __LINE__, "%s call %llu: exit code %d", stet__shim_mode_name(mode),
                      (unsigned long long)at, code);
        mover_has_one_owner(from, t->url);
        CHECK_OK(stet_move(&report, from, t->url, NULL));
        CHECK_INT(report.runs, story.runs);
        if (n == 0)
            first = report;
        if (!report.was_done)
            CHECK_STR(report.digest, first.digest);
        after = lost_text(from);
        CHECK_STR(after, before);
        free(after);
    }
    CHECK(n > 3);
    test_note("%s %d of %llu writes", stet__shim_mode_name(mode), n - 1,
              (unsigned long long)(at - stride));
    free(before);
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

TEST_LIMIT(I5_a_move_to_postgres_that_ends_before_a_write_can_be_repeated, 120)
{
    move_everywhere(SHIM_BEFORE, 5, 1);
}

TEST_LIMIT(I5_a_move_to_postgres_that_ends_after_a_write_can_be_repeated, 120)
{
    move_everywhere(SHIM_AFTER, 5, 1);
}

TEST_LIMIT(I5_a_move_to_postgres_whose_replies_are_lost_moves_once, 120)
{
    move_everywhere(SHIM_LOSE, 2, 0);
}

#endif
