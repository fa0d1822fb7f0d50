/* The real platform: clocks, randomness, memory, threads, locks, conditions.
 * tsan: yes */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "platform/platform.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(real_clocks_move_forward)
{
    stet__platform *p = stet__platform_real();
    int64_t         a = stet__mono_us(p), b;
    int             i;

    for (i = 0; i < 1000; i++, a = b) {
        b = stet__mono_us(p);
        CHECK(b >= a);
    }
    CHECK(stet__wall_ms(p) > INT64_C(1700000000000));
    CHECK(stet__wall_ms(p) < INT64_C(10000000000000));
}

TEST(real_memory_follows_realloc)
{
    stet__platform *p = stet__platform_real();
    char           *text = p->alloc.get(&p->alloc, NULL, 4);

    CHECK(text != NULL);
    memcpy(text, "abc", 4);
    text = p->alloc.get(&p->alloc, text, 4000);
    CHECK_STR(text, "abc");
    CHECK(p->alloc.get(&p->alloc, text, 0) == NULL);
}

TEST(real_random_does_not_repeat)
{
    stet__platform *p = stet__platform_real();
    static uint64_t seen[2000];
    uint8_t         large[3000] = { 0 };
    size_t          i, j, zeros = 0;

    for (i = 0; i < 2000; i++) {
        p->ops->random(p, &seen[i], sizeof seen[i]);
        for (j = 0; j < i; j++)
            CHECK(seen[i] != seen[j]);
    }
    p->ops->random(p, large, sizeof large);
    for (i = 0; i < sizeof large; i++)
        zeros += large[i] == 0;
    CHECK(zeros < 100); /* 12 are to be expected */
    p->ops->random(p, large, 0);
}

TEST(real_random_differs_after_fork)
{
    stet__platform *p = stet__platform_real();
    uint8_t         mine[16], theirs[16];
    int             ends[2], status;
    pid_t           child;

    p->ops->random(p, mine, sizeof mine); /* the buffer is full now */
    CHECK(pipe(ends) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        p->ops->random(p, theirs, sizeof theirs);
        _exit(write(ends[1], theirs, sizeof theirs) == (ssize_t)sizeof theirs ? 0 : 1);
    }
    CHECK(read(ends[0], theirs, sizeof theirs) == (ssize_t)sizeof theirs);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    p->ops->random(p, mine, sizeof mine);
    CHECK(memcmp(mine, theirs, sizeof mine) != 0);
    close(ends[0]);
    close(ends[1]);
}

typedef struct shared {
    stet__platform *p;
    stet__mutex     lock;
    stet__cond      changed;
    long            value;
    bool            is_signal_blocked;
    char            name[16];
    const void     *self;
} shared;

static void
shared_init(shared *s)
{
    memset(s, 0, sizeof *s);
    s->p = stet__platform_real();
    CHECK_OK(s->p->ops->mutex_init(s->p, &s->lock));
    CHECK_OK(s->p->ops->cond_init(s->p, &s->changed));
}

static void
shared_free(shared *s)
{
    s->p->ops->cond_destroy(s->p, &s->changed);
    s->p->ops->mutex_destroy(s->p, &s->lock);
}

static void
add_often(void *arg)
{
    shared *s = arg;
    int     i;

    for (i = 0; i < 10000; i++) {
        stet__lock(s->p, &s->lock);
        s->value++;
        stet__unlock(s->p, &s->lock);
    }
}

TEST(real_mutex_excludes)
{
    enum { THREADS = 4 };
    stet__thread *t[THREADS];
    shared        s;
    int           i;

    shared_init(&s);
    for (i = 0; i < THREADS; i++)
        CHECK_OK(s.p->ops->thread_start(s.p, &t[i], "adder", add_often, &s));
    for (i = 0; i < THREADS; i++)
        s.p->ops->thread_join(s.p, t[i]);
    CHECK_INT(s.value, THREADS * 10000);
    shared_free(&s);
}

static void
look_around(void *arg)
{
    shared  *s = arg;
    sigset_t mask;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    s->is_signal_blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1;
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    s->self = s->p->ops->thread_self(s->p);
}

TEST(real_thread_has_a_name_and_no_signals)
{
    stet__thread *t;
    sigset_t      mask;
    shared        s;

    shared_init(&s);
    CHECK_OK(s.p->ops->thread_start(s.p, &t, "a-name-that-is-too-long", look_around, &s));
    s.p->ops->thread_join(s.p, t);
    CHECK(s.is_signal_blocked);
    CHECK_STR(s.name, "a-name-that-is-");
    CHECK(s.self != NULL);
    CHECK(s.self != s.p->ops->thread_self(s.p));
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    CHECK(sigismember(&mask, SIGTERM) == 0);
    shared_free(&s);
}

/* Two threads pass a ball: odd values belong to one, even ones to the other. */
static void
play(shared *s, long mine)
{
    int i;

    stet__lock(s->p, &s->lock);
    for (i = 0; i < 1000; i++) {
        while (s->value % 2 != mine)
            stet__wait(s->p, &s->changed, &s->lock, STET__FOREVER);
        s->value++;
        stet__signal(s->p, &s->changed);
    }
    stet__unlock(s->p, &s->lock);
}

static void
play_odd(void *arg)
{
    play(arg, 1);
}

TEST(real_cond_wakes_the_other_side)
{
    stet__thread *t;
    shared        s;

    shared_init(&s);
    CHECK_OK(s.p->ops->thread_start(s.p, &t, "odd", play_odd, &s));
    play(&s, 0);
    s.p->ops->thread_join(s.p, t);
    CHECK_INT(s.value, 2000);
    shared_free(&s);
}

static void
wait_for_start(void *arg)
{
    shared *s = arg;

    stet__lock(s->p, &s->lock);
    s->value++;
    while (s->value < 100)
        stet__wait(s->p, &s->changed, &s->lock, stet__mono_us(s->p) + 30000000);
    s->value++;
    stet__unlock(s->p, &s->lock);
}

TEST(real_broadcast_wakes_everybody)
{
    enum { THREADS = 5 };
    stet__thread *t[THREADS];
    shared        s;
    int           i;

    shared_init(&s);
    for (i = 0; i < THREADS; i++)
        CHECK_OK(s.p->ops->thread_start(s.p, &t[i], "waiter", wait_for_start, &s));
    for (;;) {
        stet__lock(s.p, &s.lock);
        if (s.value == THREADS)
            break;
        stet__unlock(s.p, &s.lock);
        sched_yield();
    }
    s.value = 100;
    stet__broadcast(s.p, &s.changed);
    stet__unlock(s.p, &s.lock);
    for (i = 0; i < THREADS; i++)
        s.p->ops->thread_join(s.p, t[i]);
    CHECK_INT(s.value, 100 + THREADS);
    shared_free(&s);
}

TEST(real_wait_ends_in_time_and_not_before)
{
    int64_t until_us, now_us;
    shared  s;

    shared_init(&s);
    stet__lock(s.p, &s.lock);
    until_us = stet__mono_us(s.p) + 20000;
    while (stet__wait(s.p, &s.changed, &s.lock, until_us)) {}
    now_us = stet__mono_us(s.p);
    CHECK(now_us >= until_us);
    CHECK(now_us < until_us + 5000000);
    CHECK(!stet__wait(s.p, &s.changed, &s.lock, 0)); /* long past */
    stet__unlock(s.p, &s.lock);
    shared_free(&s);
}
