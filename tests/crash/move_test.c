/* Crash everywhere through a move: a process that moves a file ends before or after its calls of
 * either store; the next one finishes it, and the target is what the source was, row by row, with
 * nothing lost or doubled. Row I5.
 *
 * Reads change nothing, so a crash before any of them is one after the write before it; every write
 * is tried, and of all calls every few. The counting goes over both stores.
 */
#include "lost.h"
#include "mover.h"

#ifdef STET_WITH_SQLITE

static void
move_copy(const char *from, const char *to)
{
    static const char *const beside[] = { "", "-live", "-wal", "-shm" };
    char                     path[1024], block[65536];
    FILE                    *in, *out;
    size_t                   n;

    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", to, beside[i]);
        (void)remove(path);
        if (from == NULL || i > 1)
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

typedef struct move_world {
    fixture    *f;
    lost_story  story;
    const char *from, *to;
    char       *before;
} move_world;

static void
move_begin(move_world *w)
{
    CHECK_INT(setenv("STET_TEST_STORE", "sqlite", 1), 0);
    w->f = fixture_begin();
    lost_fill(w->f, &w->story);
    w->before = lost_text(w->f->url);
    w->from = strdup(test_path("from.db"));
    w->to = strdup(test_path("to.db"));
}

/* The target is what the source was, and so is the source still. */
static void
move_is_right(const move_world *w, const char *where, uint64_t at)
{
    char *after = lost_text(w->to), *left = lost_text(w->from);

    if (strcmp(after, w->before) != 0 || strcmp(left, w->before) != 0)
        test_note("%s call %llu", where, (unsigned long long)at);
    CHECK_STR(after, w->before);
    CHECK_STR(left, w->before);
    free(after);
    free(left);
}

static void
move_end(move_world *w)
{
    free((void *)(uintptr_t)w->f->url);
    w->f->url = w->to;
    lost_goes_on(w->f, &w->story);
    free(w->before);
    free((void *)(uintptr_t)w->from);
    fixture_end(w->f);
}

static void
move_everywhere(shim_mode mode, shim_which which, uint64_t stride, size_t unit_bytes)
{
    move_world w;
    uint64_t   at = 1;
    int        code = MOVER_CRASHED, n = 0;

    move_begin(&w);
    for (; code != 0; at += stride, n++) {
        move_copy(w.f->url, w.from);
        move_copy(NULL, w.to);
        code = mover_until(w.from, w.to, mode, which, at, unit_bytes);
        if (code != 0 && code != MOVER_CRASHED && code != MOVER_REFUSED)
            test_fail(__FILE__, __LINE__, "%s call %llu: exit code %d", stet__shim_mode_name(mode),
                      (unsigned long long)at, code);
        mover_has_one_owner(w.from, w.to);
        CHECK_OK(stet_move(NULL, w.from, w.to, NULL));
        move_is_right(&w, stet__shim_mode_name(mode), at);
    }
    CHECK(n > 6);
    test_note("%s %d of %llu calls", stet__shim_mode_name(mode), n - 1,
              (unsigned long long)(at - stride));
    move_end(&w);
}

TEST_LIMIT(I5_a_move_that_ends_before_any_write_can_be_repeated, 240)
{
    move_everywhere(SHIM_BEFORE, SHIM_WRITES, 1, 1);
}

TEST_LIMIT(I5_a_move_that_ends_after_any_write_can_be_repeated, 240)
{
    move_everywhere(SHIM_AFTER, SHIM_WRITES, 1, 1);
}

TEST_LIMIT(I5_a_move_that_ends_before_a_call_can_be_repeated, 240)
{
    move_everywhere(SHIM_BEFORE, SHIM_ANY, 7, 0);
}

TEST_LIMIT(I5_a_move_whose_replies_are_lost_moves_once, 240)
{
    move_everywhere(SHIM_LOSE, SHIM_WRITES, 1, 0);
}

TEST_LIMIT(I5_a_move_whose_commits_are_refused_can_be_repeated, 240)
{
    move_everywhere(SHIM_FAIL, SHIM_WRITES, 1, 0);
}

/* Each one dies one write later than the one before it, all on the same two stores. */
TEST_LIMIT(I5_a_move_that_is_killed_again_and_again_is_finished, 240)
{
    move_world w;
    uint64_t   at = 1;
    int        code = MOVER_CRASHED;

    move_begin(&w);
    move_copy(w.f->url, w.from);
    for (; code == MOVER_CRASHED; at++) {
        code = mover_until(w.from, w.to, SHIM_AFTER, SHIM_WRITES, at, 1);
        mover_has_one_owner(w.from, w.to);
    }
    CHECK_INT(code, 0);
    CHECK(at > 6);
    test_note("killed %llu times", (unsigned long long)(at - 2));
    move_is_right(&w, "the last", at);
    move_end(&w);
}

#endif
