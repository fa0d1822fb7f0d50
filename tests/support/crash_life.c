/* Lives of workers in processes of their own; see crash_life.h. */
#include "crash_life.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cluster.h"
#include "engine/engine.h"
#include "redis_server.h"
#ifdef STET_WITH_SQLITE
#include "store/sqlite.h"
#endif
#include "test.h"

bool
crash_is_on(const char *store)
{
    const char *is = getenv("STET_TEST_STORE");

    return is != NULL && strcmp(is, store) == 0;
}

bool
crash_is_on_server(void)
{
    return crash_is_on("postgres") || crash_is_on("redis");
}

void
crash_server(void)
{
    if (crash_is_on("postgres"))
        test_before(cluster_share);
    if (crash_is_on("redis"))
        test_before(redis_server_share);
}

void *
crash_shared(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

void
crash_fresh(char *db, size_t size)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-live" };
    static size_t            stores;
    char                     path[600];

    if (crash_is_on_server()) {
        (void)snprintf(path, sizeof path, "c_%s_%zu", test_unique(), stores++);
        (void)snprintf(db, size, "%s",
                       crash_is_on("postgres") ? cluster_url(path) : redis_shared_url(path));
        return;
    }
    if (db[0] == '\0') {
        (void)snprintf(path, sizeof path, "crash_%s.db", test_unique());
        (void)snprintf(db, size, "%s", test_path(path));
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", db, suffixes[i]);
        (void)unlink(path);
    }
}

void
crash_worker_start(crash_worker *w)
{
    flow_ledger_begin(w->ledger);
    CHECK_OK(stet__store_open(&w->real, stet__platform_real(), w->db));
    CHECK_OK(stet__shim_store_new(&w->store, w->real, w->script));
    CHECK_OK(stet__open_on(&w->e, stet__platform_real(), w->store, w->db,
                           STET_OPTIONS(.concurrency = 2, .lease_ms = w->lease_ms, .renew_ms = 30,
                                        .sweep_ms = 50, .poll_ms = 50, .wait_poll_ms = 20,
                                        .log = w->log, .log_level = w->level)));
    CHECK_OK(flow_register(w->e));
    CHECK_OK(stet_engine_start(w->e));
}

/* The thread that makes room in the log writes by itself: the file's only write lock must not stay
 * with who stands still. */
static void
crash_log_hold(const crash_worker *w, bool is_held)
{
#ifdef STET_WITH_SQLITE
    if (crash_is_on_server())
        return;
    if (is_held)
        stet__lock(w->real->platform, &sqlite_of(w->real)->log_lock);
    else
        stet__unlock(w->real->platform, &sqlite_of(w->real)->log_lock);
#else
    (void)w;
    (void)is_held;
#endif
}

void
crash_worker_stand_still(crash_worker *w, bool is_lost)
{
    crash_log_hold(w, true);
    flow_ledger_stop();
    if (is_lost)
        flow_ledger_crash(w->ledger, NULL);
    (void)raise(SIGSTOP); /* this thread stops before it returns, the others with it */
    flow_ledger_go_on();
    crash_log_hold(w, false);
}

pid_t
crash_fork(void (*life)(void *arg), void *arg)
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        life(arg);
        _exit(0);
    }
    return child;
}
