/* The simulated platform: one seed one history, virtual time, crashes, pauses, deadlocks. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/co.h"
#include "platform/platform.h"
#include "test.h"

#if defined(__SANITIZE_THREAD__)
#define SIM_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIM_TEST_TSAN 1
#endif
#endif
#ifndef SIM_TEST_TSAN
#define SIM_TEST_TSAN 0
#endif

#define SECOND_US INT64_C(1000000)
#define HOUR_US   (3600 * SECOND_US)

/* What the fibers of a test share; lives outside of every node, as the test itself does. */
typedef struct world {
    stet__sim      *sim;
    stet__platform *p, *other;
    stet__mutex     lock;
    stet__cond      changed;
    uint64_t        trace; /* a hash of everything that happened, in order */
    long            value, done;
    int64_t         at_us;
    bool            flag;
} world;

static void
world_init(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->sim = stet__sim_new(seed);
    CHECK(w->sim != NULL);
    w->p = stet__sim_node_new(w->sim);
    w->other = stet__sim_node_new(w->sim);
    CHECK(w->p != NULL && w->other != NULL);
    CHECK_OK(w->p->ops->mutex_init(w->p, &w->lock));
    CHECK_OK(w->p->ops->cond_init(w->p, &w->changed));
}

static void
world_note(world *w, uint64_t what)
{
    w->trace = (w->trace ^ what) * UINT64_C(0x100000001b3) + 1;
}

/* ---- determinism ---------------------------------------------------------------------------- */

static void
racer(void *arg)
{
    world   *w = arg;
    uint64_t random;
    int      i, me = (int)++w->done;

    for (i = 0; i < 50; i++) {
        stet__lock(w->p, &w->lock);
        world_note(w, (uint64_t)me);
        world_note(w, (uint64_t)stet__mono_us(w->p));
        w->p->ops->random(w->p, &random, sizeof random);
        world_note(w, random);
        if (i % 7 == me)
            stet__wait(w->p, &w->changed, &w->lock, stet__mono_us(w->p) + 1000 * me);
        stet__signal(w->p, &w->changed);
        stet__unlock(w->p, &w->lock);
    }
}

static uint64_t
race(uint64_t seed)
{
    uint64_t trace;
    world    w;
    int      i;

    world_init(&w, seed);
    for (i = 0; i < 5; i++)
        CHECK_OK(stet__sim_spawn(w.sim, i % 2 ? w.p : w.other, racer, &w));
    CHECK(stet__sim_run(w.sim, HOUR_US));
    world_note(&w, stet__sim_random(w.sim));
    world_note(&w, (uint64_t)stet__sim_now_us(w.sim));
    trace = w.trace;
    stet__sim_free(w.sim);
    return trace;
}

TEST(sim_same_seed_same_history)
{
    void    *shift[20];
    uint64_t seed;
    size_t   i;

    for (seed = 0; seed < 20; seed++) {
        uint64_t first = race(seed);

        shift[seed] = malloc(4000 * (seed + 1)); /* other addresses, same history */
        CHECK(race(seed) == first);
    }
    for (i = 0; i < 20; i++)
        free(shift[i]);
}

TEST(sim_other_seeds_other_histories)
{
    uint64_t seen[100];
    size_t   i, j;

    for (i = 0; i < 100; i++) {
        seen[i] = race(i);
        for (j = 0; j < i; j++)
            CHECK(seen[i] != seen[j]);
    }
}

/* A forgotten lock: read, let others run, write. */
static void
sloppy(void *arg)
{
    world *w = arg;
    long   old;
    int    i;

    for (i = 0; i < 4; i++) {
        stet__lock(w->p, &w->lock);
        old = w->value;
        stet__unlock(w->p, &w->lock);
        stet__lock(w->p, &w->lock);
        w->value = old + 1;
        stet__unlock(w->p, &w->lock);
    }
}

TEST(sim_finds_a_race_and_its_absence)
{
    int      lost = 0, kept = 0;
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 60; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.p, sloppy, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, sloppy, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        if (w.value < 8)
            lost++;
        else
            kept++;
        stet__sim_free(w.sim);
    }
    test_note("%d of 60 seeds lost an update", lost);
    CHECK(lost > 5 && kept > 5);
}

/* ---- locks and conditions -------------------------------------------------------------------- */

static void
careful(void *arg)
{
    world *w = arg;
    long   old;
    int    i;

    for (i = 0; i < 20; i++) {
        stet__lock(w->p, &w->lock);
        old = w->value;
        stet__sim_yield(w->sim);
        w->value = old + 1;
        stet__unlock(w->p, &w->lock);
    }
}

TEST(sim_mutex_excludes)
{
    uint64_t seed;
    world    w;
    int      i;

    for (seed = 1; seed <= 30; seed++) {
        world_init(&w, seed);
        for (i = 0; i < 6; i++)
            CHECK_OK(stet__sim_spawn(w.sim, i % 2 ? w.p : w.other, careful, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK_INT(w.value, 120);
        w.p->ops->cond_destroy(w.p, &w.changed);
        w.p->ops->mutex_destroy(w.p, &w.lock);
        stet__sim_free(w.sim);
    }
}

/* A queue of one: no signal may get lost between looking and waiting, for any seed. */
static void
producer(void *arg)
{
    world *w = arg;
    int    i;

    for (i = 0; i < 50; i++) {
        stet__lock(w->p, &w->lock);
        while (w->value != 0)
            stet__wait(w->p, &w->changed, &w->lock, STET__FOREVER);
        w->value = 1;
        stet__broadcast(w->p, &w->changed);
        stet__unlock(w->p, &w->lock);
    }
}

static void
consumer(void *arg)
{
    world *w = arg;
    int    i;

    for (i = 0; i < 25; i++) {
        stet__lock(w->p, &w->lock);
        while (w->value == 0)
            stet__wait(w->p, &w->changed, &w->lock, STET__FOREVER);
        w->value = 0;
        w->done++;
        stet__broadcast(w->p, &w->changed);
        stet__unlock(w->p, &w->lock);
    }
}

TEST(sim_no_wakeup_is_lost)
{
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 100; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.p, producer, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, consumer, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.other, consumer, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK_INT(w.done, 50);
        stet__sim_free(w.sim);
    }
}

static void
thread_work(void *arg)
{
    world *w = arg;

    w->p->ops->thread_self(w->p);
    stet__sim_yield(w->sim);
    w->value++;
}

static void
starter(void *arg)
{
    world        *w = arg;
    stet__thread *t[5];
    int           i;

    for (i = 0; i < 5; i++)
        CHECK_OK(w->p->ops->thread_start(w->p, &t[i], "worker", thread_work, w));
    for (i = 0; i < 5; i++)
        w->p->ops->thread_join(w->p, t[i]);
    CHECK_INT(w->value, 5);
    w->flag = true;
}

TEST(sim_threads_are_joined)
{
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 20; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.p, starter, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK(w.flag);
        stet__sim_free(w.sim);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static void
world_sleep(world *w, int64_t until_us)
{
    stet__lock(w->p, &w->lock);
    while (stet__wait(w->p, &w->changed, &w->lock, until_us)) {}
    stet__unlock(w->p, &w->lock);
}

static void
sleeper(void *arg)
{
    world  *w = arg;
    int64_t until_us = stet__mono_us(w->p) + 24 * HOUR_US;

    world_sleep(w, until_us);
    w->at_us = stet__mono_us(w->p) - until_us;
}

TEST(sim_time_jumps_when_all_wait)
{
    int64_t wall_ms;
    world   w;

    world_init(&w, 1);
    wall_ms = stet__wall_ms(w.p);
    CHECK_INT(wall_ms / 1000, 1767225600); /* 2026-01-01 */
    CHECK_OK(stet__sim_spawn(w.sim, w.p, sleeper, &w));
    CHECK(stet__sim_run(w.sim, 48 * HOUR_US));
    CHECK(w.at_us >= 0 && w.at_us < 1000);
    CHECK_INT((stet__wall_ms(w.p) - wall_ms) / 1000, 24 * 3600);
    stet__sim_free(w.sim);
}

TEST(sim_run_stops_at_its_limit_and_goes_on)
{
    world w;

    world_init(&w, 1);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, sleeper, &w));
    CHECK(!stet__sim_run(w.sim, HOUR_US));
    CHECK_INT(stet__sim_now_us(w.sim), HOUR_US);
    CHECK_INT(w.at_us, 0);
    CHECK(stet__sim_run(w.sim, 48 * HOUR_US));
    CHECK(stet__sim_now_us(w.sim) >= 24 * HOUR_US);
    stet__sim_free(w.sim);
}

static void
spinner(void *arg)
{
    world *w = arg;

    while (stet__mono_us(w->p) < 5000) {}
    while (!w->flag)
        stet__sim_yield(w->sim);
}

static void
late_setter(void *arg)
{
    world *w = arg;

    world_sleep(w, 20000);
    w->flag = true;
}

TEST(sim_spinning_does_not_stop_time)
{
    world w;

    world_init(&w, 1);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, spinner, &w));
    CHECK_OK(stet__sim_spawn(w.sim, w.p, late_setter, &w));
    CHECK(stet__sim_run(w.sim, HOUR_US));
    CHECK(stet__sim_now_us(w.sim) < SECOND_US);
    stet__sim_free(w.sim);
}

TEST(sim_skew_moves_one_wall_clock)
{
    world w;

    world_init(&w, 1);
    stet__sim_node_skew(w.sim, w.other, -90000);
    CHECK_INT((stet__wall_ms(w.p) - stet__wall_ms(w.other)) / 1000, 90);
    CHECK(stet__mono_us(w.other) < SECOND_US);
    stet__sim_free(w.sim);
}

static void
ticker(void *arg)
{
    world *w = arg;
    int    i;

    for (i = 0; i < 100; i++) {
        w->value++;
        world_sleep(w, stet__mono_us(w->p) + 1000);
    }
}

static void
pauser(void *arg)
{
    world *w = arg;
    long   before;

    world_sleep(w, stet__mono_us(w->p) + 20000);
    stet__sim_node_pause(w->sim, w->p, stet__mono_us(w->p) + 10 * SECOND_US);
    before = w->value;
    world_sleep(w, stet__mono_us(w->p) + 9 * SECOND_US);
    CHECK_INT(w->value, before);
    CHECK(before > 0 && before < 100);
    w->flag = true;
}

TEST(sim_paused_node_stands_still)
{
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 20; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.p, ticker, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.other, pauser, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK(w.flag);
        CHECK_INT(w.value, 100);
        CHECK(stet__sim_now_us(w.sim) > 10 * SECOND_US);
        stet__sim_free(w.sim);
    }
}

static void
self_pauser(void *arg)
{
    world  *w = arg;
    int64_t before_us = stet__mono_us(w->p);

    stet__sim_node_pause(w->sim, w->p, before_us + SECOND_US);
    w->at_us = stet__mono_us(w->p) - before_us;
}

TEST(sim_pausing_oneself_takes_effect_at_once)
{
    world w;

    world_init(&w, 3);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, self_pauser, &w));
    CHECK(stet__sim_run(w.sim, HOUR_US));
    CHECK(w.at_us >= SECOND_US);
    stet__sim_free(w.sim);
}

/* ---- crashes --------------------------------------------------------------------------------- */

typedef struct process {
    world        *w;
    stet__mutex   lock;
    stet__cond    never;
    stet__co_pool stacks;
} process;

static void
process_handler(stet__co *co, void *arg)
{
    process      *proc = arg;
    volatile char locals[500];

    locals[0] = 'a';
    (void)co;
    for (;;) {
        stet__lock(proc->w->other, &proc->lock); /* a switch on the handler's stack */
        stet__unlock(proc->w->other, &proc->lock);
        CHECK_INT(locals[0], 'a');
        proc->w->value++;
        stet__co_yield(co);
    }
}

static void
process_thread(void *arg)
{
    process  *proc = arg;
    world    *w = proc->w;
    stet__co *co[3];
    char     *leak = stet__get(&w->other->alloc, 100);
    int       i, round;

    CHECK(leak != NULL);
    leak = stet__grow(&w->other->alloc, leak, 10000);
    CHECK(leak != NULL);
    memset(leak, 'x', 10000);
    for (i = 0; i < 3; i++)
        CHECK((co[i] = stet__co_new(&proc->stacks, process_handler, proc)) != NULL);
    for (round = 0; round < 20; round++)
        for (i = 0; i < 3; i++)
            CHECK(stet__co_resume(co[i]));
    stet__co_free(&proc->stacks, co[0]);
    stet__lock(w->other, &proc->lock);
    for (;;)
        stet__wait(w->other, &proc->never, &proc->lock, STET__FOREVER);
}

static void
process_main(void *arg)
{
    world        *w = arg;
    process      *proc = stet__get0(&w->other->alloc, sizeof *proc);
    stet__thread *t[3];
    int           i;

    CHECK(proc != NULL);
    proc->w = w;
    CHECK_OK(w->other->ops->mutex_init(w->other, &proc->lock));
    CHECK_OK(w->other->ops->cond_init(w->other, &proc->never));
    stet__co_pool_init(&proc->stacks, &w->other->alloc, (size_t)64 * 1024, 1);
    for (i = 0; i < 3; i++)
        CHECK_OK(w->other->ops->thread_start(w->other, &t[i], "worker", process_thread, proc));
    for (i = 0; i < 3; i++)
        w->other->ops->thread_join(w->other, t[i]);
}

static void
killer(void *arg)
{
    world   *w = arg;
    uint64_t steps = stet__sim_random(w->sim) % 200;

    while (steps-- > 0)
        stet__sim_yield(w->sim);
    stet__sim_node_crash(w->sim, w->other);
    w->flag = true;
}

/* How many mappings this process has: a stack that a crash forgot would be two of them. */
static int
mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int   n = 0, c;

    CHECK(maps != NULL);
    while ((c = getc(maps)) != EOF)
        n += c == '\n';
    fclose(maps);
    return n;
}

TEST(sim_crash_frees_everything)
{
    int      before = mappings();
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 60; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.other, process_main, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, killer, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK(w.flag);
        CHECK(!stet__sim_node_is_alive(w.sim, w.other));
        CHECK(stet__sim_node_is_alive(w.sim, w.p));
        /* The machine comes back: a new node on the same simulator. */
        w.other = stet__sim_node_new(w.sim);
        w.flag = false;
        CHECK_OK(stet__sim_spawn(w.sim, w.other, process_main, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, killer, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK(w.flag);
        stet__sim_free(w.sim);
    }
    /* 120 crashes with nine stacks each. TSan keeps mappings of its own for each of them. */
    CHECK(SIM_TEST_TSAN || mappings() < before + 200);
}

TEST(sim_free_ends_what_still_runs)
{
    world w;

    world_init(&w, 5);
    CHECK_OK(stet__sim_spawn(w.sim, w.other, process_main, &w));
    CHECK(!stet__sim_run(w.sim, 1100));
    stet__sim_free(w.sim);
}

static void
suicide(void *arg)
{
    world *w = arg;

    CHECK(stet__get(&w->other->alloc, 1000) != NULL);
    stet__lock(w->p, &w->lock); /* a server's lock: it must be free afterwards */
    w->value = 1;
    stet__sim_node_crash(w->sim, w->other);
    w->flag = true;
}

static void
survivor(void *arg)
{
    world *w = arg;

    while (w->value == 0)
        stet__sim_yield(w->sim);
    stet__lock(w->p, &w->lock);
    w->done = 1;
    stet__unlock(w->p, &w->lock);
}

TEST(sim_crash_lets_go_of_a_shared_lock)
{
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 20; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.other, suicide, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, survivor, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK(!w.flag);
        CHECK_INT(w.done, 1);
        CHECK(!stet__sim_node_is_alive(w.sim, w.other));
        stet__sim_free(w.sim);
    }
}

static void
shared_waiter(void *arg)
{
    world *w = arg;

    stet__lock(w->p, &w->lock);
    for (;;)
        stet__wait(w->p, &w->changed, &w->lock, STET__FOREVER);
}

static void
shared_locker(void *arg)
{
    world *w = arg;

    for (;;) {
        stet__lock(w->p, &w->lock);
        stet__sim_yield(w->sim);
        stet__unlock(w->p, &w->lock);
    }
}

static void
shared_user(void *arg)
{
    world *w = arg;
    int    i;

    for (i = 0; i < 100; i++) {
        stet__lock(w->p, &w->lock);
        stet__signal(w->p, &w->changed);
        stet__unlock(w->p, &w->lock);
    }
    w->done++;
}

TEST(sim_crash_leaves_shared_wait_lists)
{
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 40; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.other, shared_waiter, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.other, shared_locker, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.other, shared_locker, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, shared_user, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, killer, &w));
        CHECK(stet__sim_run(w.sim, HOUR_US));
        CHECK_INT(w.done, 1);
        stet__sim_free(w.sim);
    }
}

static void
shared_holder(void *arg)
{
    world *w = arg;

    stet__lock(w->p, &w->lock);
    w->value = 1;
    stet__sim_yield(w->sim);
    w->value = 2;
    stet__unlock(w->p, &w->lock);
}

static void
pause_holder(void *arg)
{
    world *w = arg;

    while (w->value == 0)
        stet__sim_yield(w->sim);
    stet__sim_node_pause(w->sim, w->other, HOUR_US);
    stet__lock(w->p, &w->lock); /* the server is not paused with its client */
    CHECK_INT(w->value, 2);
    CHECK(stet__mono_us(w->p) < SECOND_US);
    stet__unlock(w->p, &w->lock);
}

TEST(sim_paused_client_does_not_hold_up_the_server)
{
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 20; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.other, shared_holder, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, pause_holder, &w));
        CHECK(stet__sim_run(w.sim, 2 * HOUR_US));
        stet__sim_free(w.sim);
    }
}

/* ---- deadlock -------------------------------------------------------------------------------- */

typedef struct pair {
    world       w;
    stet__mutex second;
} pair;

static void
lock_forth(void *arg)
{
    pair *d = arg;

    stet__lock(d->w.p, &d->w.lock);
    d->w.value++;
    while (d->w.value < 2)
        stet__sim_yield(d->w.sim);
    stet__lock(d->w.p, &d->second);
}

static void
lock_back(void *arg)
{
    pair *d = arg;

    stet__lock(d->w.p, &d->second);
    d->w.value++;
    while (d->w.value < 2)
        stet__sim_yield(d->w.sim);
    stet__lock(d->w.p, &d->w.lock);
}

TEST(sim_deadlock_is_reported)
{
    char  text[1000] = "";
    FILE *out;
    pair  d;

    world_init(&d.w, 9);
    CHECK_OK(d.w.p->ops->mutex_init(d.w.p, &d.second));
    CHECK_OK(stet__sim_spawn(d.w.sim, d.w.p, lock_forth, &d));
    CHECK_OK(stet__sim_spawn(d.w.sim, d.w.p, lock_back, &d));
    CHECK(!stet__sim_run(d.w.sim, HOUR_US));
    CHECK(stet__sim_now_us(d.w.sim) < SECOND_US); /* at once, not at the limit */
    CHECK((out = tmpfile()) != NULL);
    stet__sim_dump(d.w.sim, out);
    rewind(out);
    CHECK(fread(text, 1, sizeof text - 1, out) > 0);
    fclose(out);
    CHECK_HAS(text, "waits for mutex 1, held by fiber 1");
    CHECK_HAS(text, "waits for mutex 3, held by fiber 2");
    stet__sim_free(d.w.sim);
}

TEST(sim_nothing_to_wait_for_is_a_deadlock)
{
    world w;

    world_init(&w, 2);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, shared_waiter, &w));
    CHECK(!stet__sim_run(w.sim, HOUR_US));
    CHECK(stet__sim_now_us(w.sim) < SECOND_US);
    stet__sim_free(w.sim);
}

TEST(sim_locks_work_outside_of_a_run)
{
    world w;

    world_init(&w, 2);
    stet__lock(w.p, &w.lock);
    stet__signal(w.p, &w.changed);
    stet__unlock(w.p, &w.lock);
    CHECK(w.p->ops->thread_self(w.p) != NULL);
    CHECK(stet__sim_run(w.sim, HOUR_US)); /* no roots: done */
    stet__sim_free(w.sim);
}

/* ---- stepped by hand ------------------------------------------------------------------------- */

static void
naps_twice(void *arg)
{
    world *w = arg;

    stet__lock(w->p, &w->lock);
    for (int i = 0; i < 2; i++) {
        int64_t until_us = w->p->ops->mono_us(w->p) + HOUR_US;

        while (stet__wait(w->p, &w->changed, &w->lock, until_us))
            ;
        w->value++;
    }
    stet__unlock(w->p, &w->lock);
}

TEST(sim_time_can_be_moved_by_hand)
{
    world   w;
    int64_t began_us;

    world_init(&w, 5);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, naps_twice, &w));
    CHECK_INT(stet__sim_next_us(w.sim), stet__sim_now_us(w.sim)); /* it can begin */
    CHECK(stet__sim_settle(w.sim, 1000));
    began_us = stet__sim_now_us(w.sim);
    CHECK(began_us < SECOND_US);
    CHECK(stet__sim_next_us(w.sim) > began_us);
    stet__sim_leap(w.sim, began_us + HOUR_US / 2);
    CHECK(stet__sim_settle(w.sim, 1000));
    CHECK_INT(w.value, 0);
    for (long i = 1; i <= 2; i++) {
        stet__sim_leap(w.sim, stet__sim_next_us(w.sim));
        CHECK(stet__sim_settle(w.sim, 1000));
        CHECK_INT(w.value, i);
    }
    CHECK(stet__sim_next_us(w.sim) == STET__FOREVER);
    CHECK(stet__sim_now_us(w.sim) >= 2 * HOUR_US);
    stet__sim_free(w.sim);
}

static void
yields_without_end(void *arg)
{
    world *w = arg;

    for (;;)
        stet__sim_yield(w->sim);
}

TEST(sim_settling_ends_after_so_many_events)
{
    world w;

    world_init(&w, 5);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, yields_without_end, &w));
    CHECK(!stet__sim_settle(w.sim, 100));
    CHECK_INT(stet__sim_next_us(w.sim), stet__sim_now_us(w.sim));
    stet__sim_free(w.sim);
}

TEST(sim_a_calm_clock_moves_once_in_so_many_events)
{
    stet__sim      *sim = stet__sim_new_with(5, (size_t)64 * 1024, 1000);
    stet__platform *p = stet__sim_node_new(sim);
    int64_t         began_us = p->ops->mono_us(p);

    for (int i = 0; i < 998; i++)
        CHECK_INT(p->ops->mono_us(p), began_us);
    CHECK_INT(p->ops->mono_us(p), began_us + 1);
    stet__sim_free(sim);
}

static void
stops_without_end(void *arg)
{
    world *w = arg;

    for (;;) {
        w->value++;
        stet__sim_stop(w->sim);
        stet__sim_yield(w->sim);
    }
}

TEST(sim_settling_ends_when_it_is_stopped)
{
    world w;

    world_init(&w, 5);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, stops_without_end, &w));
    CHECK(!stet__sim_settle(w.sim, 1000));
    CHECK_INT(w.value, 1);
    CHECK(!stet__sim_settle(w.sim, 1000)); /* and goes on */
    CHECK_INT(w.value, 2);
    stet__sim_free(w.sim);
}

TEST(sim_a_paused_node_that_is_ready_has_to_wait_for_its_time)
{
    world   w;
    int64_t now_us;

    world_init(&w, 5);
    CHECK_OK(stet__sim_spawn(w.sim, w.p, yields_without_end, &w));
    now_us = stet__sim_now_us(w.sim);
    stet__sim_node_pause(w.sim, w.p, now_us + HOUR_US);
    CHECK_INT(stet__sim_next_us(w.sim), now_us + HOUR_US);
    stet__sim_leap(w.sim, now_us - 1); /* time does not go back */
    CHECK_INT(stet__sim_now_us(w.sim), now_us);
    stet__sim_yield(w.sim); /* outside of a run: nobody to go first */
    CHECK_INT(stet__sim_now_us(w.sim), now_us);
    stet__sim_free(w.sim);
    stet__sim_free(NULL);
}

TEST(sim_a_size_no_machine_has_leaves_the_old_block)
{
    world           w;
    volatile size_t huge = SIZE_MAX - 8;
    char           *block;

    world_init(&w, 3);
    block = stet__get(&w.p->alloc, 6);
    CHECK(block != NULL);
    memcpy(block, "still", 6);
    CHECK(stet__grow(&w.p->alloc, block, huge) == NULL);
    CHECK(stet__get(&w.p->alloc, huge) == NULL);
    CHECK_STR(block, "still");
    stet__free(&w.p->alloc, block);
    CHECK(stet__sim_node_is_clean(w.sim, w.p));
    stet__sim_free(w.sim);
}

TEST(sim_locks_are_let_go_in_any_order)
{
    pair d;

    world_init(&d.w, 2);
    CHECK_OK(d.w.p->ops->mutex_init(d.w.p, &d.second));
    stet__lock(d.w.p, &d.w.lock);
    stet__lock(d.w.p, &d.second);
    stet__unlock(d.w.p, &d.w.lock); /* the first one first */
    stet__unlock(d.w.p, &d.second);
    d.w.p->ops->mutex_destroy(d.w.p, &d.second);
    d.w.p->ops->mutex_destroy(d.w.p, &d.w.lock);
    stet__sim_free(d.w.sim);
}

TEST(sim_a_crash_takes_the_locks_the_outside_holds_in_it)
{
    pair  d;
    char  text[1000] = "";
    FILE *out;

    world_init(&d.w, 2);
    CHECK_OK(d.w.other->ops->mutex_init(d.w.other, &d.second));
    stet__lock(d.w.p, &d.w.lock);
    stet__lock(d.w.other, &d.second);
    CHECK((out = tmpfile()) != NULL);
    stet__sim_dump(d.w.sim, out);
    rewind(out);
    CHECK(fread(text, 1, sizeof text - 1, out) > 0);
    fclose(out);
    CHECK_HAS(text, "held outside of stet__sim_run()");
    stet__sim_node_crash(d.w.sim, d.w.p);
    stet__sim_node_crash(d.w.sim, d.w.p); /* twice is once */
    CHECK(!stet__sim_node_is_alive(d.w.sim, d.w.p));
    stet__unlock(d.w.other, &d.second);
    stet__sim_free(d.w.sim);
}

/* ---- the dump -------------------------------------------------------------------------------- */

static void
dump_child(void *arg)
{
    world *w = arg;

    stet__lock(w->p, &w->lock);
    while (stet__wait(w->p, &w->changed, &w->lock, STET__FOREVER))
        ;
}

static void
dump_joiner(void *arg)
{
    world        *w = arg;
    stet__thread *t;

    CHECK_OK(w->p->ops->thread_start(w->p, &t, "child", dump_child, w));
    w->p->ops->thread_join(w->p, t);
}

static void
dump_napper(void *arg)
{
    world *w = arg;

    stet__lock(w->p, &w->lock);
    while (stet__wait(w->p, &w->changed, &w->lock, 5 * HOUR_US))
        ;
    stet__unlock(w->p, &w->lock);
}

static void
dump_nothing(void *arg)
{
    (void)arg;
}

static void
dump_looker(void *arg)
{
    world        *w = arg;
    stet__thread *ended;
    FILE         *out = tmpfile();
    char          text[2000] = "";

    CHECK_OK(w->p->ops->thread_start(w->p, &ended, "short", dump_nothing, w));
    stet__sim_node_pause(w->sim, w->other, 4 * HOUR_US);
    stet__lock(w->p, &w->lock);
    stet__wait(w->p, &w->changed, &w->lock, 2 * HOUR_US); /* the others get where they will be */
    stet__unlock(w->p, &w->lock);
    CHECK(out != NULL);
    stet__sim_dump(w->sim, out);
    rewind(out);
    CHECK(fread(text, 1, sizeof text - 1, out) > 0);
    fclose(out);
    CHECK_HAS(text, "root: runs");
    CHECK_HAS(text, "ready, node paused");
    CHECK_HAS(text, "waits for condition 2 without limit");
    CHECK_HAS(text, "waits for condition 2 until 18000000000");
    CHECK_HAS(text, "joins fiber ");
    CHECK_HAS(text, "short: ended, not joined");
    w->done++;
    stet__sim_stop(w->sim);
}

TEST(sim_dump_says_what_each_fiber_waits_for)
{
    uint64_t seed;
    world    w;

    for (seed = 1; seed <= 10; seed++) {
        world_init(&w, seed);
        CHECK_OK(stet__sim_spawn(w.sim, w.p, dump_joiner, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, dump_napper, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.p, dump_looker, &w));
        CHECK_OK(stet__sim_spawn(w.sim, w.other, yields_without_end, &w));
        CHECK(!stet__sim_run(w.sim, 3 * HOUR_US));
        CHECK_INT(w.done, 1);
        stet__sim_free(w.sim);
    }
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static void
holds_on(void *arg)
{
    world *w = arg;

    stet__lock(w->p, &w->lock);
    w->value = 1;
    yields_without_end(w);
}

static void
locks_of_another(void *arg)
{
    world *w = arg;

    stet__lock(w->other, &w->lock);
    yields_without_end(w);
}

static void
waits_in_another(void *arg)
{
    pair *d = arg;

    stet__lock(d->w.other, &d->second);
    while (stet__wait(d->w.p, &d->w.changed, &d->second, STET__FOREVER))
        ;
}

static void
ends_locked(void *arg)
{
    world *w = arg;

    stet__lock(w->p, &w->lock);
}

static void
runs_itself(void *arg)
{
    world *w = arg;

    stet__sim_run(w->sim, HOUR_US);
}

static void
settles_itself(void *arg)
{
    world *w = arg;

    stet__sim_settle(w->sim, 10);
}

static void
misuse_join(pair *d)
{
    stet__thread *t;

    CHECK_OK(d->w.p->ops->thread_start(d->w.p, &t, "t", yields_without_end, &d->w));
    d->w.p->ops->thread_join(d->w.p, t);
}

static void
misuse_memory(pair *d)
{
    stet__sim_node_crash(d->w.sim, d->w.p);
    stet__get(&d->w.p->alloc, 8);
}

static void
misuse_spawn(pair *d)
{
    stet__sim_node_crash(d->w.sim, d->w.p);
    stet__sim_spawn(d->w.sim, d->w.p, yields_without_end, &d->w);
}

static void
misuse_end_locked(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, ends_locked, &d->w));
    stet__sim_run(d->w.sim, HOUR_US);
}

static void
misuse_destroy_held(pair *d)
{
    stet__lock(d->w.p, &d->w.lock);
    d->w.p->ops->mutex_destroy(d->w.p, &d->w.lock);
}

static void
misuse_destroy_waited(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, dump_child, &d->w));
    stet__sim_run(d->w.sim, HOUR_US);
    d->w.p->ops->cond_destroy(d->w.p, &d->w.changed);
}

static void
misuse_raw_mutex(pair *d)
{
    memset(&d->second, 0, sizeof d->second);
    stet__lock(d->w.p, &d->second);
}

static void
misuse_raw_cond(pair *d)
{
    memset(&d->w.changed, 0, sizeof d->w.changed);
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, dump_child, &d->w));
    stet__sim_run(d->w.sim, HOUR_US);
}

static void
misuse_twice(pair *d)
{
    stet__lock(d->w.p, &d->w.lock);
    stet__lock(d->w.p, &d->w.lock);
}

static void
misuse_held_by_fiber(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, holds_on, &d->w));
    while (d->w.value == 0)
        stet__sim_settle(d->w.sim, 10);
    stet__lock(d->w.p, &d->w.lock);
}

static void
misuse_unlock(pair *d)
{
    stet__unlock(d->w.p, &d->w.lock);
}

static void
misuse_wait_outside(pair *d)
{
    stet__lock(d->w.p, &d->w.lock);
    stet__wait(d->w.p, &d->w.changed, &d->w.lock, STET__FOREVER);
}

static void
misuse_run(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, runs_itself, &d->w));
    stet__sim_run(d->w.sim, HOUR_US);
}

static void
misuse_settle(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, settles_itself, &d->w));
    stet__sim_run(d->w.sim, HOUR_US);
}

static void
misuse_leap(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, yields_without_end, &d->w));
    stet__sim_leap(d->w.sim, HOUR_US);
}

/* The lock is one of the node that crashes. */
static void
misuse_crash_under_waiter(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.p, holds_on, &d->w));
    while (d->w.value == 0)
        stet__sim_settle(d->w.sim, 10);
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.other, locks_of_another, &d->w));
    stet__sim_settle(d->w.sim, 1000);
    stet__sim_node_crash(d->w.sim, d->w.p);
}

static void
misuse_crash_under_sleeper(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.other, waits_in_another, d));
    CHECK(stet__sim_settle(d->w.sim, 1000));
    stet__sim_node_crash(d->w.sim, d->w.p);
}

static void
misuse_crash_under_holder(pair *d)
{
    CHECK_OK(stet__sim_spawn(d->w.sim, d->w.other, locks_of_another, &d->w));
    stet__sim_settle(d->w.sim, 1000);
    stet__sim_node_crash(d->w.sim, d->w.p);
}

/* In a child; what it says before it aborts. */
static void
check_dies(void (*misuse)(pair *), const char *says)
{
    char  text[4000] = "";
    FILE *out = tmpfile();
    int   status;
    pid_t child;
    pair  d;

    CHECK(out != NULL);
    fflush(NULL);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(fileno(out), STDERR_FILENO);
        world_init(&d.w, 11);
        CHECK_OK(d.w.other->ops->mutex_init(d.w.other, &d.second));
        misuse(&d);
        _exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    rewind(out);
    (void)!fread(text, 1, sizeof text - 1, out);
    fclose(out);
    CHECK_HAS(text, says);
    CHECK_HAS(text, "simulator at "); /* the dump */
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

TEST(sim_misuse_is_named_and_ends_the_program)
{
    check_dies(misuse_join, "thread_join outside of stet__sim_run() for a fiber");
    check_dies(misuse_memory, "memory of a crashed node is used");
    check_dies(misuse_spawn, "a fiber is started on a crashed node");
    check_dies(misuse_end_locked, "a fiber ended with a lock held");
    check_dies(misuse_destroy_held, "a mutex in use is destroyed");
    check_dies(misuse_destroy_waited, "a condition in use is destroyed");
    check_dies(misuse_raw_mutex, "a mutex is locked that was never initialised here");
    check_dies(misuse_raw_cond, "a condition is waited for that was never initialised here");
    check_dies(misuse_twice, "a mutex is locked twice by one fiber");
    check_dies(misuse_held_by_fiber, "a mutex held by a fiber is locked outside");
    check_dies(misuse_unlock, "unlocked by a fiber that does not hold it");
    check_dies(misuse_wait_outside, "cond_wait outside of stet__sim_run()");
    check_dies(misuse_run, "stet__sim_run() inside of itself");
    check_dies(misuse_settle, "stet__sim_settle() inside of the simulation");
    check_dies(misuse_leap, "beyond what has to happen before");
    check_dies(misuse_crash_under_waiter, "waits for something in its memory");
    check_dies(misuse_crash_under_sleeper, "waits for something in its memory");
    check_dies(misuse_crash_under_holder, "holds a lock in its memory");
}
