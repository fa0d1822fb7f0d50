/* Every read, write, truncation and flush of SQLite fails in turn, once and several times in a row,
 * while everything an engine does is done (see fault_world.h). Every call works or says so and
 * works later; an acknowledged start is never lost, a recorded step never repeated, and the engine
 * goes on by itself when the disk is well again.
 *
 *   STET_FAULT_AT=N      only the round in which the Nth call fails
 *   STET_FAULT_STRIDE=N  every Nth round only
 *   STET_FAULT_THIN=N    only every Nth of the rounds there would be
 *   STET_FAULT_VERBOSE=1 the engine's log
 */
#include "test.h"

#ifdef STET_WITH_SQLITE
#include <sqlite3.h>
#include <unistd.h>

#include "fault_vfs.h"
#include "fault_world.h"
#include "fixture.h"

static bool
io_is_expected(int code)
{
    return code == STET_EIO || code == STET_EFULL || code == STET_EPOISONED ||
           code == STET_EUNCERTAIN || code == STET_EBUSY;
}

static void
io_forget(const char *path)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    char                     name[600];

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(name, sizeof name, "%s%s", path, ends[i]);
        (void)unlink(name);
    }
}

/* True: the fault came. */
static bool
io_round(fault_io io, bool has_threads, long at, long count)
{
    fault_platform p;
    world          w = { .p = &p, .has_threads = has_threads, .is_expected = io_is_expected };
    char           path[512], url[600], name[64], round[64];
    bool           has_failed;

    (void)snprintf(name, sizeof name, "io-%d-%ld-%ld.db", (int)io, at, count);
    (void)snprintf(path, sizeof path, "%s", test_path(name));
    (void)snprintf(url, sizeof url, "sqlite:%s?vfs=fault", path);
    (void)snprintf(round, sizeof round, "at %ld, %ld of kind %d fail", at, count, (int)io);
    w.url = url;
    w.round = round;
    if (getenv("STET_FAULT_VERBOSE") != NULL)
        (void)fprintf(stderr, "round %s\n", round);
    fault_platform_init(&p);
    fault_vfs_arm(io, at, count);
    world_live(&w);
    has_failed = fault_vfs_failed() > 0;
    fault_vfs_disarm();
    world_check(&w);
    io_forget(path);
    return has_failed;
}

static void
io_rounds(fault_io io, bool has_threads, long count, long stride)
{
    long only = test_number("STET_FAULT_AT", -1), rounds = 0;

    fault_vfs_register();
    stride = test_number("STET_FAULT_STRIDE", stride) * test_number("STET_FAULT_THIN", 1);
    for (long at = only >= 0 ? only : 0;; at += stride) {
        bool has_failed = io_round(io, has_threads, at, count);

        rounds++;
        if (!has_failed || only >= 0)
            break;
    }
    test_note("%ld rounds, %ld such calls in the last", rounds, fault_vfs_calls());
}

TEST_LIMIT(G2_every_flush_fails_once, 200)
{
    io_rounds(FAULT_SYNC, false, 1, 1);
}

TEST_LIMIT(G2_several_flushes_in_a_row_fail, 200)
{
    io_rounds(FAULT_SYNC, false, 5, 2);
}

TEST_LIMIT(G2_every_write_fails_once, 200)
{
    io_rounds(FAULT_WRITE, false, 1, 5);
}

TEST_LIMIT(G2_several_writes_in_a_row_fail, 200)
{
    io_rounds(FAULT_WRITE, false, 9, 11);
}

TEST_LIMIT(G2_every_write_is_cut_short_once, 200)
{
    io_rounds(FAULT_SHORT, false, 1, 7);
}

TEST_LIMIT(G2_the_disk_is_full_for_a_while, 200)
{
    io_rounds(FAULT_FULL, false, 7, 11);
}

TEST_LIMIT(G2_every_read_fails_once, 200)
{
    io_rounds(FAULT_READ, false, 1, 2);
}

TEST_LIMIT(G2_several_reads_in_a_row_fail, 200)
{
    io_rounds(FAULT_READ, false, 6, 5);
}

TEST_LIMIT(G2_every_opening_of_a_file_fails_once, 200)
{
    io_rounds(FAULT_OPEN, false, 1, 1);
}

TEST_LIMIT(G2_flushes_fail_while_threads_work, 200)
{
    io_rounds(FAULT_SYNC, true, 2, 3);
}

TEST_LIMIT(G2_writes_fail_while_threads_work, 200)
{
    io_rounds(FAULT_WRITE, true, 3, 23);
}

/* ---- a disk that cannot flush ---------------------------------------------------------------- */

static _Atomic int io_bodies, io_reopens_logged;

static int
io_body(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    atomic_fetch_add(&io_bodies, 1);
    return STET_OK;
}

static int
io_handler(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "once", io_body, NULL, NULL));
    return stet_return(ctx, stet_text("done"));
}

static void
io_log(void *arg, const stet_log_record *r)
{
    (void)arg;
    if (strstr(r->message, "unknown outcome") != NULL)
        atomic_fetch_add(&io_reopens_logged, 1);
}

static void
io_await(bool (*is_so)(stet_engine *e), stet_engine *e, const char *what)
{
    int64_t until_us = stet__mono_us(stet__platform_real()) + 60000000;

    while (!is_so(e)) {
        if (stet__mono_us(stet__platform_real()) > until_us)
            test_fail(__FILE__, __LINE__, "never came: %s", what);
        fixture_breathe();
    }
}

static bool
io_has_logged(stet_engine *e)
{
    (void)e;
    return atomic_load(&io_reopens_logged) > 0;
}

static bool
io_is_ready(stet_engine *e)
{
    stet_health health;

    return stet_health_get(e, &health) == STET_OK && health.is_ready;
}

TEST_LIMIT(G2_a_failed_flush_stops_work_until_the_store_was_reopened, 200)
{
    static const stet_handler handlers[] = { { "h", io_handler, NULL }, { 0 } };
    stet_engine              *e, *other;
    stet_run_id               run, later;
    stet_result               result;
    char                      url[600];

    fault_vfs_register();
    (void)snprintf(url, sizeof url, "sqlite:%s?vfs=fault", test_path("flush.db"));
    CHECK_OK(stet_open(&other, test_path("flush.db"),
                       STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_OFF)));
    CHECK_OK(stet_open(&e, url,
                       STET_OPTIONS(.log = io_log, .wait_ms = 200, .poll_ms = 10, .sweep_ms = 50)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    CHECK_OK(stet_invoke(e, NULL, NULL, "t.h", stet_text(""), NULL, 30000));
    CHECK_INT(atomic_load(&io_bodies), 1);
    fault_vfs_arm(FAULT_SYNC, 0, 1000000);
    CHECK_CODE(stet_start(e, &run, "t.h", stet_text(""), STET_START(.idempotency_key = "one")),
               STET_EUNCERTAIN);
    CHECK_HAS(stet_last_error(), "disk"); /* not only that it did not answer */
    io_await(io_has_logged, e, "the log says that a flush failed");
    CHECK(!io_is_ready(e));
    /* Work that is there, put there by a healthy process, is not begun. */
    CHECK_OK(stet_start(other, &later, "t.h", stet_text(""), NULL));
    CHECK_CODE(stet_wait(other, NULL, &later, 300), STET_ETIMEOUT);
    CHECK_INT(atomic_load(&io_bodies), 1);
    /* The disk is mended; nobody does anything. */
    fault_vfs_disarm();
    CHECK_OK(stet_wait(other, &result, &later, 60000));
    stet_result_free(&result);
    io_await(io_is_ready, e, "the engine is ready again");
    CHECK_OK(stet_start(e, &run, "t.h", stet_text(""), STET_START(.idempotency_key = "one")));
    CHECK_OK(stet_wait(e, &result, &run, 60000));
    stet_result_free(&result);
    CHECK_INT(atomic_load(&io_bodies), 3);
    stet_close(e);
    stet_close(other);
}
/* ---- runs that are woken together ------------------------------------------------------------ */

#define IO_SLEEPERS 40

static int
io_sleeper(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_sleep_ms(ctx, "nap", 100));
    STET_TRY(stet_step(ctx, NULL, "once", io_body, NULL, NULL));
    return stet_return(ctx, stet_text("done"));
}

/* They join a commit that has begun for the first of them, and that fails at its `at`th call. */
static bool
io_woken_round(fault_io io, long at)
{
    static const stet_handler handlers[] = { { "nap", io_sleeper, NULL }, { 0 } };
    stet_start_request        requests[IO_SLEEPERS];
    stet_engine              *e;
    char                      url[600], name[64];
    bool                      has_failed;

    (void)snprintf(name, sizeof name, "woken-%d-%ld.db", (int)io, at);
    (void)snprintf(url, sizeof url, "sqlite:%s?vfs=fault", test_path(name));
    CHECK_OK(stet_open(&e, url, STET_OPTIONS(.log_level = STET_LOG_OFF, .poll_ms = 10)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    atomic_store(&io_bodies, 0);
    for (int i = 0; i < IO_SLEEPERS; i++)
        requests[i] = (stet_start_request){ .handler = "t.nap", .input = stet_text("") };
    CHECK_OK(stet_start_many(e, requests, IO_SLEEPERS));
    fault_vfs_arm(io, at, 1);
    for (int i = 0; i < IO_SLEEPERS; i++)
        CHECK_OK(stet_wait(e, NULL, &requests[i].run, 60000));
    has_failed = fault_vfs_failed() > 0;
    fault_vfs_disarm();
    CHECK_INT(atomic_load(&io_bodies), IO_SLEEPERS);
    stet_close(e);
    io_forget(test_path(name));
    return has_failed;
}

static void
io_woken_rounds(fault_io io, long stride)
{
    long rounds = 0;

    fault_vfs_register();
    stride = test_number("STET_FAULT_STRIDE", stride) * test_number("STET_FAULT_THIN", 1);
    for (long at = 0; io_woken_round(io, at); at += stride)
        rounds++;
    test_note("%ld rounds", rounds);
}

TEST_LIMIT(B3_flushes_fail_while_runs_are_woken_together, 200)
{
    io_woken_rounds(FAULT_SYNC, 1);
}

TEST_LIMIT(B3_writes_fail_while_runs_are_woken_together, 200)
{
    io_woken_rounds(FAULT_WRITE, 9);
}
#else
TEST(G2_io)
{
    test_skip("built without SQLite");
}
#endif
