/* Real processes on a machine whose clock is set: two workers and every client see the same false
 * time by libfaketime, which is told another one while they work. A body that is being executed is
 * not taken away, nobody is fenced, and work goes on at once. fault/clock_test.c has the finer
 * points.
 *
 * Skipped where the package (Debian: faketime) is not installed.
 */
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CLOCK_IS_SANITIZED 1
#endif
#endif

enum { CLOCK_WAIT_MS = 60000, CLOCK_TEXT_MAX = 1 << 20 };

typedef struct clock_world {
    char  library[256];
    char  db[512], ledger[512], log[512], time[512];
    pid_t workers[2];
} clock_world;

static int64_t
clock_now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static const char *
clock_read(const char *path)
{
    static char text[CLOCK_TEXT_MAX];
    FILE       *f = fopen(path, "r");
    size_t      len = 0;

    if (f != NULL) {
        len = fread(text, 1, sizeof text - 1, f);
        (void)fclose(f);
    }
    text[len] = '\0';
    return text;
}

/* In one piece, because it is read all the time. */
static void
clock_write(const char *path, const char *text)
{
    char  fresh[520];
    FILE *f;

    (void)snprintf(fresh, sizeof fresh, "%s~", path);
    CHECK((f = fopen(fresh, "w")) != NULL);
    CHECK(fputs(text, f) >= 0);
    CHECK_INT(fclose(f), 0);
    CHECK_INT(rename(fresh, path), 0);
}

static pid_t
clock_spawn(const clock_world *w, const char *out, const char *const *argv)
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        int fd = open(out, O_WRONLY | O_APPEND | O_CREAT, 0600);

        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)setenv("LD_PRELOAD", w->library, 1);
        (void)setenv("FAKETIME_TIMESTAMP_FILE", w->time, 1);
        (void)setenv("FAKETIME_NO_CACHE", "1", 1);
        (void)setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return child;
}

/* The plain command; its output goes to the end of w->log. */
static void
clock_command(const clock_world *w, const char *const *argv)
{
    pid_t child = clock_spawn(w, w->log, argv);
    int   status;

    CHECK_INT(waitpid(child, &status, 0), child);
    if (status != 0)
        test_fail(__FILE__, __LINE__, "%s %s ended with %x:\n%s", argv[0], argv[1], status,
                  clock_read(w->log));
}

static void
clock_begin(clock_world *w)
{
    glob_t found;

    memset(w, 0, sizeof *w);
#ifdef CLOCK_IS_SANITIZED
    test_skip("libfaketime and a sanitizer's own library get in each other's way");
#endif
    if (glob("/usr/lib/*/faketime/libfaketimeMT.so.1", 0, NULL, &found) != 0)
        test_skip("libfaketime is not installed");
    (void)snprintf(w->library, sizeof w->library, "%s", found.gl_pathv[0]);
    globfree(&found);
    (void)snprintf(w->db, sizeof w->db, "%s", test_path("clock.db"));
    (void)snprintf(w->ledger, sizeof w->ledger, "%s", test_path("ledger"));
    (void)snprintf(w->log, sizeof w->log, "%s", test_path("log"));
    (void)snprintf(w->time, sizeof w->time, "%s", test_path("time"));
    clock_write(w->time, "+0");
    for (size_t i = 0; i < 2; i++)
        w->workers[i] =
            clock_spawn(w, w->log,
                        (const char *const[]){ STET_TEST_BUILD_DIR "/tests/apps/crash_app", w->db,
                                               w->ledger, "lease_ms=2000", "renew_ms=200",
                                               "sweep_ms=50", "poll_ms=50", NULL });
}

static size_t
clock_count(const char *text, const char *part)
{
    size_t n = 0;

    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        n++;
    }
    return n;
}

static void
clock_await_entry(const clock_world *w, const char *step)
{
    int64_t until_ms = clock_now_ms() + (int64_t)CLOCK_WAIT_MS * test_slow();

    while (strstr(clock_read(w->ledger), step) == NULL) {
        if (clock_now_ms() > until_ms)
            test_fail(__FILE__, __LINE__, "%s was never entered:\n%s", step, clock_read(w->log));
        (void)poll(NULL, 0, 5);
    }
}

static void
clock_end(clock_world *w)
{
    for (size_t i = 0; i < 2; i++) {
        int status;

        CHECK_INT(kill(w->workers[i], SIGTERM), 0);
        CHECK_INT(waitpid(w->workers[i], &status, 0), w->workers[i]);
        CHECK_INT(status, 0);
    }
}

static void
clock_is_set(const char *to)
{
    static const char stet[] = STET_TEST_BUILD_DIR "/stet";
    char              gate[520];
    clock_world       w;

    clock_begin(&w);
    clock_command(&w,
                  (const char *const[]){ stet, "start", "load.hold", "{}", "--db", w.db, NULL });
    clock_await_entry(&w, " hold ");
    clock_write(w.time, to);
    /* Each of these takes longer than a sweep, all of them longer than the lease. */
    for (int64_t from_ms = clock_now_ms(); clock_now_ms() < from_ms + 2500;)
        clock_command(&w, (const char *const[]){ stet, "start", "load.flow", "{}", "--wait", "60s",
                                                 "--db", w.db, NULL });
    (void)snprintf(gate, sizeof gate, "%s.open", w.ledger);
    clock_write(gate, "");
    clock_await_entry(&w, " held ");
    clock_command(&w, (const char *const[]){ stet, "verify", "--db", w.db, NULL });
    clock_end(&w);
    CHECK_INT(clock_count(clock_read(w.ledger), " hold "), 1);
    CHECK_INT(clock_count(clock_read(w.log), "STET_EFENCED"), 0);
    CHECK_INT(clock_count(clock_read(w.log), "is gone; its"), 0);
    CHECK_INT(clock_count(clock_read(w.log), "it may happen twice"), 0);
}

TEST(G3_real_workers_and_a_clock_set_an_hour_forwards)
{
    clock_is_set("+1h");
}

TEST(G3_real_workers_and_a_clock_set_a_day_forwards)
{
    clock_is_set("+1d");
}

TEST(G3_real_workers_and_a_clock_set_an_hour_back)
{
    clock_is_set("-1h");
}

TEST(G3_real_workers_and_a_clock_set_a_day_back)
{
    clock_is_set("-1d");
}
