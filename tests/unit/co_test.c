/* Coroutines: switching, nesting, what is preserved, reuse, abandonment, the guard page. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "exec/co.h"
#include "platform/platform.h"
#include "test.h"

#include <execinfo.h>
#include <fenv.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CO_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CO_TEST_SANITIZED 1
#endif

#define STACK_BYTES ((size_t)64 * 1024)

static void
pool_make(stet__co_pool *pool, size_t keep_max)
{
    stet__co_pool_init(pool, &stet__platform_real()->alloc, STACK_BYTES, keep_max);
}

typedef struct counter {
    int   limit, seen;
    void *local;
} counter;

static void
count_up(stet__co *co, void *arg)
{
    counter *c = arg;
    int      i;

    for (i = 0; i < c->limit; i++) {
        c->seen++;
        stet__co_yield(co);
    }
}

TEST(co_switches_ten_thousand_times)
{
    stet__co_pool pool;
    counter       c = { 10000, 0, NULL };
    stet__co     *co;
    int           i;

    pool_make(&pool, 1);
    co = stet__co_new(&pool, count_up, &c);
    CHECK(co != NULL);
    CHECK(!stet__co_is_done(co));
    for (i = 1; i <= 10000; i++) {
        CHECK(stet__co_resume(co));
        CHECK_INT(c.seen, i);
    }
    CHECK(!stet__co_resume(co));
    CHECK(stet__co_is_done(co));
    stet__co_free(&pool, co);
    stet__co_pool_free(&pool);
}

typedef struct nest {
    stet__co_pool *pool;
    int            depth;
    int            seen;
} nest;

static void
nest_down(stet__co *co, void *arg)
{
    nest     *n = arg;
    nest      below = { n->pool, n->depth - 1, 0 };
    stet__co *inner;

    stet__co_yield(co);
    if (n->depth > 0) {
        inner = stet__co_new(n->pool, nest_down, &below);
        CHECK(inner != NULL);
        while (stet__co_resume(inner))
            stet__co_yield(co);
        stet__co_free(n->pool, inner);
    }
    n->seen = below.seen + 1;
}

TEST(co_nested_ones_find_back)
{
    stet__co_pool pool;
    nest          n = { &pool, 20, 0 };
    stet__co     *co;
    int           yields = 0;

    pool_make(&pool, 4);
    co = stet__co_new(&pool, nest_down, &n);
    while (stet__co_resume(co))
        yields++;
    CHECK_INT(n.seen, 21);
    CHECK_INT(yields, 21);
    stet__co_free(&pool, co);
    stet__co_pool_free(&pool);
}

typedef struct baton {
    stet__co **all;
    int        n, me, rounds;
    int       *turns, *out;
} baton;

/* Hands over to the next one until all turns are done; who comes then ends. */
static void
baton_run(stet__co *co, void *arg)
{
    baton *r = arg;

    while (*r->turns < r->rounds) {
        ++*r->turns;
        stet__co_pass(co, r->all[(r->me + 1) % r->n]);
    }
    ++*r->out;
}

TEST(co_passes_control_on_and_the_last_one_comes_back)
{
    stet__co_pool pool;
    stet__co     *all[3];
    baton         r[3];
    int           turns = 0, out = 0;

    if (!stet__co_can_pass())
        test_skip("sanitizers and ucontext know no such switch");
    pool_make(&pool, 3);
    for (int i = 0; i < 3; i++) {
        r[i] = (baton){ all, 3, i, 100, &turns, &out };
        all[i] = stet__co_new(&pool, baton_run, &r[i]);
        CHECK(all[i] != NULL);
    }
    /* The hundredth turn is the first one's; the second one ends, with the resumer of the first. */
    CHECK(stet__co_resume(all[0]));
    CHECK_INT(turns, 100);
    CHECK_INT(out, 1);
    CHECK(stet__co_is_done(all[1]) && !stet__co_is_done(all[0]) && !stet__co_is_done(all[2]));
    CHECK(!stet__co_resume(all[2]));
    CHECK(!stet__co_resume(all[0]));
    CHECK_INT(out, 3);
    for (int i = 0; i < 3; i++)
        stet__co_free(&pool, all[i]);
    stet__co_pool_free(&pool);
}

static void
walk_frames(stet__co *co, void *arg)
{
    void *frames[64];

    (void)co;
    *(int *)arg = backtrace(frames, 64);
}

TEST(co_backtraces_end)
{
    stet__co_pool pool;
    int           frames = 0;
    stet__co     *co;

    pool_make(&pool, 1);
    co = stet__co_new(&pool, walk_frames, &frames);
    CHECK(!stet__co_resume(co));
    CHECK(frames > 0 && frames < 10);
    stet__co_free(&pool, co);
    stet__co_pool_free(&pool);
}

typedef struct relay {
    stet__co_pool *pool;
    stet__co      *outer;
    char           trace[32];
} relay;

static void
relay_add(relay *r, const char *what)
{
    size_t len = strlen(r->trace);

    snprintf(r->trace + len, sizeof r->trace - len, "%s", what);
}

/* Yields the coroutine that resumed it, from its own stack: what a handler does to its fiber. */
static void
relay_inner(stet__co *co, void *arg)
{
    relay       *r = arg;
    volatile int local[64];
    int          i;

    for (i = 0; i < 64; i++)
        local[i] = i;
    relay_add(r, "a");
    stet__co_yield(r->outer);
    relay_add(r, "b");
    stet__co_yield(co);
    relay_add(r, "d");
    stet__co_yield(r->outer);
    for (i = 0; i < 64; i++)
        CHECK_INT(local[i], i);
    relay_add(r, "e");
}

static void
relay_outer(stet__co *co, void *arg)
{
    relay    *r = arg;
    stet__co *inner = stet__co_new(r->pool, relay_inner, r);

    (void)co;
    CHECK(stet__co_resume(inner));
    relay_add(r, "c");
    CHECK(!stet__co_resume(inner));
    relay_add(r, "f");
    stet__co_free(r->pool, inner);
}

TEST(co_outer_yields_from_the_stack_of_an_inner_one)
{
    stet__co_pool pool;
    relay         r = { &pool, NULL, "" };

    pool_make(&pool, 4);
    r.outer = stet__co_new(&pool, relay_outer, &r);
    CHECK(stet__co_resume(r.outer));
    CHECK_STR(r.trace, "a");
    CHECK(stet__co_resume(r.outer));
    CHECK_STR(r.trace, "abcd");
    CHECK(!stet__co_resume(r.outer));
    CHECK_STR(r.trace, "abcdef");
    stet__co_free(&pool, r.outer);
    stet__co_pool_free(&pool);
}

static void
float_work(stet__co *co, void *arg)
{
    double *out = arg;
    double  a = 1.5, b = 2.25, c = 3.125, sum = 0;
    int     i;

    fesetround(FE_UPWARD);
    for (i = 0; i < 100; i++) {
        sum += a * i + b - c;
        stet__co_yield(co);
        CHECK_INT(fegetround(), FE_UPWARD);
    }
    *out = sum;
}

TEST(co_floats_and_rounding_are_preserved)
{
    stet__co_pool pool;
    double        got = 0, want = 0, mine = 0;
    stet__co     *co;
    int           i;

    pool_make(&pool, 1);
    co = stet__co_new(&pool, float_work, &got);
    fesetround(FE_DOWNWARD);
    for (i = 0; stet__co_resume(co); i++) {
        mine += 0.5 * i;
        CHECK_INT(fegetround(), FE_DOWNWARD);
    }
    fesetround(FE_TONEAREST);
    for (i = 0; i < 100; i++)
        want += 1.5 * i + 2.25 - 3.125;
    CHECK(got == want); /* exact in binary */
    CHECK(mine == 0.5 * 4950);
    stet__co_free(&pool, co);
    stet__co_pool_free(&pool);
}

TEST(co_many_live_at_once)
{
    enum { MANY = 1000 };
    stet__co_pool    pool;
    static counter   c[MANY];
    static stet__co *co[MANY];
    int              i, round;

    pool_make(&pool, 100);
    for (i = 0; i < MANY; i++) {
        c[i] = (counter){ 3, 0, NULL };
        CHECK((co[i] = stet__co_new(&pool, count_up, &c[i])) != NULL);
    }
    for (round = 0; round < 4; round++)
        for (i = 0; i < MANY; i++)
            CHECK(stet__co_resume(co[i]) == (round < 3));
    for (i = 0; i < MANY; i++) {
        CHECK_INT(c[i].seen, 3);
        stet__co_free(&pool, co[i]);
    }
    CHECK_INT(pool.kept, 100);
    stet__co_pool_free(&pool);
    CHECK_INT(pool.kept, 0);
}

TEST(co_stacks_are_reused)
{
    stet__co_pool pool;
    counter       c = { 1, 0, NULL };
    stet__co     *first, *second;

    pool_make(&pool, 1);
    first = stet__co_new(&pool, count_up, &c);
    stet__co_free(&pool, first); /* never resumed */
    second = stet__co_new(&pool, count_up, &c);
    CHECK(first == second);
    CHECK(stet__co_resume(second));
    CHECK(!stet__co_resume(second));
    stet__co_free(&pool, second);
    stet__co_pool_free(&pool);
}

/* Locals with red zones around them; abandoned while they are poisoned. */
static void
local_work(stet__co *co, void *arg)
{
    counter      *c = arg;
    volatile char bytes[3000];
    size_t        i;

    for (i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)i;
    c->local = (void *)(uintptr_t)&bytes[0];
    c->seen++;
    stet__co_yield(co);
    for (i = 0; i < sizeof bytes; i++)
        CHECK(bytes[i] == (char)i);
}

/* Uses the same stack without instrumentation's knowledge of what was there. */
static void
other_work(stet__co *co, void *arg)
{
    char text[5000];

    (void)co;
    memset(text, 'x', sizeof text);
    *(int *)arg = text[4999];
}

TEST(co_abandoned_ones_leave_a_clean_stack)
{
    stet__co_pool pool;
    counter       c = { 0, 0, NULL };
    stet__co     *co;
    int           i, got = 0;

    pool_make(&pool, 1);
    for (i = 0; i < 50; i++) {
        co = stet__co_new(&pool, local_work, &c);
        CHECK(stet__co_resume(co));
        stet__co_free(&pool, co);
        co = stet__co_new(&pool, other_work, &got);
        CHECK(!stet__co_resume(co));
        CHECK_INT(got, 'x');
        stet__co_free(&pool, co);
    }
    CHECK_INT(c.seen, 50);
    stet__co_pool_free(&pool);
}

TEST(co_owner_reclaims_what_nobody_freed)
{
    stet__co_owner owner = { NULL, NULL };
    stet__co_pool  pool;
    counter        c = { 5, 0, NULL };
    stet__co      *co[4];
    int            i;

    pool_make(&pool, 4);
    CHECK(stet__co_owner_set(&owner) == NULL);
    for (i = 0; i < 4; i++) {
        CHECK((co[i] = stet__co_new(&pool, count_up, &c)) != NULL);
        CHECK(stet__co_resume(co[i]));
    }
    CHECK(stet__co_owner_set(NULL) == &owner);
    stet__co_free(&pool, co[3]); /* kept by the pool, still the owner's */
    stet__co_owner_reclaim(&owner);
    CHECK(owner.stacks == NULL);
    for (i = 0; i < 4; i++)
        stet__free(pool.alloc, co[i]); /* the part that a node's memory takes along */
}

TEST(co_owner_keeps_mappings_for_the_next)
{
    stet__co_maps  maps = { .n = 0 };
    stet__co_owner first = { NULL, &maps }, second = { NULL, &maps };
    stet__co_pool  pool;
    counter        c = { 5, 0, NULL };
    stet__co      *co;
    const void    *map;

    pool_make(&pool, 0);
    (void)stet__co_owner_set(&first);
    CHECK((co = stet__co_new(&pool, count_up, &c)) != NULL);
    CHECK(stet__co_resume(co));
    (void)stet__co_owner_set(NULL);
    stet__co_owner_reclaim(&first); /* in the middle of it */
    stet__free(pool.alloc, co);
    CHECK_INT(maps.n, 1);
    map = maps.map[0];

    (void)stet__co_owner_set(&second);
    c.seen = 0;
    CHECK((co = stet__co_new(&pool, count_up, &c)) != NULL);
    (void)stet__co_owner_set(NULL);
    CHECK_INT(maps.n, 0);
    CHECK(stet__co_is_guard(co, map)); /* the guard page is still the lowest */
    while (stet__co_resume(co))
        ;
    CHECK_INT(c.seen, 5);
    stet__co_free(&pool, co); /* the pool keeps none */
    CHECK_INT(maps.n, 1);
    stet__co_maps_free(&maps);
    CHECK_INT(maps.n, 0);
    stet__co_pool_free(&pool);
}

static void *
failing_get(stet__alloc *a, void *old, size_t size)
{
    (void)a;
    (void)old;
    (void)size;
    return NULL;
}

TEST(co_new_says_when_memory_is_out)
{
    stet__alloc   none = { .get = failing_get };
    stet__co_pool pool;
    counter       c = { 0, 0, NULL };

    stet__co_pool_init(&pool, &none, STACK_BYTES, 1);
    CHECK(stet__co_new(&pool, count_up, &c) == NULL);
    stet__co_pool_free(&pool);
}

/* Each frame hands its room on, so that no compiler turns this into a loop. */
__attribute__((noinline)) static int
dig(int depth, volatile char *above)
{
    volatile char room[1024];
    int           below;

    room[0] = (char)depth;
    room[1] = 0;
    above[1] = room[0];
    below = depth > 0 ? dig(depth - 1, room) : 0;
    return below + room[1];
}

static void
dig_deep(stet__co *co, void *arg)
{
    volatile char room[2];

    (void)co;
    *(int *)arg = dig(*(int *)arg, room);
}

TEST(co_census_counts_pages)
{
    stet__co_pool pool;
    stet__co     *co;
    int           depth = 10;

    pool_make(&pool, 1);
    co = stet__co_new(&pool, dig_deep, &depth);
    CHECK(stet__co_stack_used(co) < STACK_BYTES);
    CHECK(!stet__co_resume(co));
#ifndef CO_TEST_SANITIZED
    CHECK(stet__co_stack_used(co) >= (size_t)10 * 1024);
    CHECK(stet__co_stack_used(co) < (size_t)32 * 1024);
#endif
    stet__co_free(&pool, co);
    stet__co_pool_free(&pool);
}

TEST(co_knows_its_guard_page)
{
    stet__co_pool  pool;
    counter        c = { 0, 0, NULL };
    stet__co      *co;
    unsigned char *local;
    size_t         page = (size_t)sysconf(_SC_PAGESIZE);
    size_t         i, guards = 0;

    pool_make(&pool, 1);
    co = stet__co_new(&pool, local_work, &c);
    CHECK(stet__co_resume(co));
    CHECK(!stet__co_is_guard(co, c.local));
    CHECK(!stet__co_is_guard(co, &pool));
    CHECK(!stet__co_is_guard(co, NULL));
#ifndef CO_TEST_SANITIZED
    local = c.local;
    for (i = 0; i <= STACK_BYTES / page; i++)
        if (stet__co_is_guard(co, (void *)((uintptr_t)local - i * page)))
            guards++;
    CHECK_INT(guards, 1);
#else
    (void)local;
    (void)page;
    (void)i;
    (void)guards;
#endif
    stet__co_free(&pool, co);
    stet__co_pool_free(&pool);
}

#ifndef CO_TEST_SANITIZED
TEST(co_overflow_dies_at_the_guard_page)
{
    stet__co_pool pool;
    stet__co     *co;
    int           depth = 1000, status = 0;
    pid_t         child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit no_core = { 0, 0 };

        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        pool_make(&pool, 1);
        co = stet__co_new(&pool, dig_deep, &depth);
        stet__co_resume(co);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), SIGSEGV);
}

static void
spin(stet__co *co, void *arg)
{
    (void)arg;
    for (;;)
        stet__co_yield(co);
}

TEST(co_switch_is_fast)
{
    enum { ROUNDS = 1000000 };
    stet__co_pool   pool;
    stet__co       *co;
    struct timespec a, b;
    double          ns;
    int             i;

    pool_make(&pool, 1);
    co = stet__co_new(&pool, spin, NULL);
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (i = 0; i < ROUNDS; i++)
        stet__co_resume(co);
    clock_gettime(CLOCK_MONOTONIC, &b);
    ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
    test_note("%.1f ns for there and back", ns / ROUNDS);
    stet__co_free(&pool, co);
    stet__co_pool_free(&pool);
}
#endif
