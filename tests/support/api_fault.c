/* Failing allocations of one thread; see api_fault.h. The wrapped functions are used only by
 * programs that are linked for it: in the others __wrap_realloc is never called and __real_realloc
 * is a weak symbol that nobody defines.
 */
#include "api_fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

void *__wrap_realloc(void *old, size_t size);
void *__real_realloc(void *old, size_t size) __attribute__((weak));
int   __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int   __real_clock_gettime(clockid_t clock, struct timespec *t) __attribute__((weak));

static _Atomic long api_skew_ms;

/* Failures in child processes, which go with the plan of their parent. */
static _Atomic long *api_in_children;
static pid_t         api_planner;

static _Thread_local struct {
    bool is_armed, is_spent, is_for_good, is_of_store, spares_children;
    long at, asked, failed;
} api_here;

void
api_fault_plan(long at, bool is_for_good)
{
    api_here.is_armed = api_here.is_spent = false;
    api_here.is_for_good = is_for_good;
    api_here.at = at;
    api_here.asked = api_here.failed = 0;
    api_planner = getpid();
    if (api_in_children == NULL) {
        void *shared = mmap(NULL, sizeof *api_in_children, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        CHECK(shared != MAP_FAILED);
        api_in_children = shared;
    }
    atomic_store(api_in_children, 0);
}

void
api_fault_arm(void)
{
    api_here.is_armed = !api_here.is_spent;
}

void
api_fault_disarm(void)
{
    api_here.is_spent = api_here.is_spent || api_here.is_armed;
    api_here.is_armed = false;
}

long
api_fault_failed(void)
{
    return api_here.failed + (api_in_children != NULL ? atomic_load(api_in_children) : 0);
}

long
api_fault_asked(void)
{
    return api_here.asked;
}

static bool
api_fails_at(bool is_store)
{
    long n;

    if (!api_here.is_armed || api_here.is_of_store != is_store ||
        (api_here.spares_children && api_planner != getpid()))
        return false;
    n = api_here.asked++;
    if (api_here.at < 0 || n < api_here.at || (n > api_here.at && !api_here.is_for_good))
        return false;
    if (api_planner != getpid())
        atomic_fetch_add(api_in_children, 1);
    else
        api_here.failed++;
    return true;
}

static bool
api_fails(void)
{
    return api_fails_at(false);
}

void
api_fault_of_store(bool is_of_store)
{
    api_here.is_of_store = is_of_store;
}

void
api_fault_spare_children(bool is_spared)
{
    api_here.spares_children = is_spared;
}

bool
api_fault_store_fails(void)
{
    return api_fails_at(true);
}

void *
__wrap_realloc(void *old, size_t size)
{
    return api_fails() ? NULL : __real_realloc(old, size);
}

int
__wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    long skew_ms = atomic_load(&api_skew_ms);
    int  rc = __real_clock_gettime(clock, t);

    t->tv_sec += skew_ms / 1000;
    t->tv_nsec += skew_ms % 1000 * 1000000;
    if (t->tv_nsec >= 1000000000) {
        t->tv_sec++;
        t->tv_nsec -= 1000000000;
    }
    return rc;
}

void
api_fault_skip(long ms)
{
    if (ms == 0)
        atomic_store(&api_skew_ms, 0);
    else
        atomic_fetch_add(&api_skew_ms, ms);
}

#ifdef STET_WITH_SQLITE
#include <sqlite3.h>

static sqlite3_mem_methods api_sqlite;

static void *
api_sqlite_get(int size)
{
    return api_fails() ? NULL : api_sqlite.xMalloc(size);
}

static void *
api_sqlite_grow(void *old, int size)
{
    return api_fails() ? NULL : api_sqlite.xRealloc(old, size);
}

void
api_fault_init(void)
{
    sqlite3_mem_methods mine;

    CHECK(__real_realloc != NULL);
    if (api_sqlite.xMalloc != NULL)
        return;
    CHECK_INT(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &api_sqlite), SQLITE_OK);
    mine = api_sqlite;
    mine.xMalloc = api_sqlite_get;
    mine.xRealloc = api_sqlite_grow;
    CHECK_INT(sqlite3_config(SQLITE_CONFIG_MALLOC, &mine), SQLITE_OK);
}
#else
void
api_fault_init(void)
{
    CHECK(__real_realloc != NULL);
}
#endif
