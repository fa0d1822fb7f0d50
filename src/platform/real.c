/* The platform on POSIX threads and the kernel's clocks.
 *
 * Owns nothing: the platform object is constant, locks and conditions live in their users' memory.
 * Conditions count on CLOCK_MONOTONIC, the only steady clock they can wait on, while mono_us() is
 * CLOCK_BOOTTIME, which also counts while the machine sleeps; deadlines are converted when a wait
 * begins, and a wait is cut into slices so that a sleep of the machine stretches it by one at most.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "platform/platform.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define REAL_WAIT_SLICE_US ((int64_t)60 * 1000 * 1000)
#define REAL_SLACK_NS      1000ul /* the kernel's own is 50 us */

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(stet__mutex), "stet__mutex is too small");
_Static_assert(sizeof(pthread_cond_t) <= sizeof(stet__cond), "stet__cond is too small");

struct stet__thread {
    pthread_t id;
    void (*fn)(void *arg);
    void *arg;
    char  name[16]; /* the kernel's limit, with its NUL */
};

/* A lock call fails only if the lock was never initialised or is misused: nothing can go on. */
static void
real_must(int err, const char *what)
{
    if (err == 0)
        return;
    fprintf(stderr, "stet: %s: %s\n", what, strerror(err));
    abort();
}

/* ---- clocks -------------------------------------------------------------------------------- */

static int64_t
real_clock_us(clockid_t clock)
{
    struct timespec now;

    real_must(clock_gettime(clock, &now) == 0 ? 0 : errno, "clock_gettime");
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t
real_wall_us(stet__platform *p)
{
    (void)p;
    return real_clock_us(CLOCK_REALTIME);
}

static int64_t
real_mono_us(stet__platform *p)
{
    (void)p;
#ifdef CLOCK_BOOTTIME
    return real_clock_us(CLOCK_BOOTTIME);
#else
    return real_clock_us(CLOCK_MONOTONIC);
#endif
}

/* ---- randomness ---------------------------------------------------------------------------- */

/* A thread's unused random bytes are at its end. A child of fork() has the same ones in memory, so
 * they only count for the process that fetched them. */
typedef struct real_pool {
    pid_t   pid;
    size_t  left;
    uint8_t bytes[1024];
} real_pool;

static _Thread_local real_pool real_random_pool;

static void
real_random_fetch(void *out, size_t len)
{
    uint8_t *at = out;
    ssize_t  got;

    while (len > 0) {
        got = getrandom(at, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            real_must(errno, "getrandom");
        at += got;
        len -= (size_t)got;
    }
}

static void
real_random(stet__platform *p, void *out, size_t len)
{
    real_pool *pool = &real_random_pool;
    uint8_t   *from;

    (void)p;
    if (len > sizeof pool->bytes / 4) {
        real_random_fetch(out, len);
        return;
    }
    if (pool->left < len || pool->pid != getpid()) {
        real_random_fetch(pool->bytes, sizeof pool->bytes);
        pool->left = sizeof pool->bytes;
        pool->pid = getpid();
    }
    from = pool->bytes + (sizeof pool->bytes - pool->left);
    memcpy(out, from, len);
    memset(from, 0, len); /* what was handed out cannot be found here later */
    pool->left -= len;
}

/* ---- memory -------------------------------------------------------------------------------- */

static void *
real_get(stet__alloc *a, void *old, size_t size)
{
    (void)a;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, size);
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *
real_thread_main(void *arg)
{
    stet__thread *t = arg;

    pthread_setname_np(pthread_self(), t->name);
#ifdef __linux__
    (void)prctl(PR_SET_TIMERSLACK, REAL_SLACK_NS, 0, 0, 0); /* timers are late enough without it */
#endif
    t->fn(t->arg);
    return NULL;
}

/* Signals belong to the application. A mask is inherited, so it is set around the start. */
static int
real_thread_create(stet__thread *t)
{
    sigset_t all, before;
    int      err;

    sigfillset(&all);
    real_must(pthread_sigmask(SIG_SETMASK, &all, &before), "pthread_sigmask");
    err = pthread_create(&t->id, NULL, real_thread_main, t);
    real_must(pthread_sigmask(SIG_SETMASK, &before, NULL), "pthread_sigmask");
    return err;
}

static int
real_thread_start(stet__platform *p, stet__thread **out, const char *name, void (*fn)(void *arg),
                  void *arg)
{
    stet__thread *t = stet__get0(&p->alloc, sizeof *t);
    int           err;

    *out = NULL;
    if (t == NULL)
        return stet__fail(STET_ENOMEM, "thread %s: out of memory", name);
    t->fn = fn;
    t->arg = arg;
    snprintf(t->name, sizeof t->name, "%s", name);
    if ((err = real_thread_create(t)) != 0) {
        stet__free(&p->alloc, t);
        return stet__fail(err == ENOMEM ? STET_ENOMEM : STET_EBUSY,
                          "thread %s: cannot be started: %s", name, strerror(err));
    }
    *out = t;
    return STET_OK;
}

static void
real_thread_join(stet__platform *p, stet__thread *t)
{
    real_must(pthread_join(t->id, NULL), "pthread_join");
    stet__free(&p->alloc, t);
}

static size_t
real_processors(stet__platform *p)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    (void)p;
    return n > 0 ? (size_t)n : 1;
}

static const void *
real_thread_self(stet__platform *p)
{
    (void)p;
    return &real_random_pool; /* each living thread has one */
}

/* ---- locks --------------------------------------------------------------------------------- */

static pthread_mutex_t *
real_mutex(stet__mutex *m)
{
    return (pthread_mutex_t *)(void *)m->space;
}

static int
real_mutex_init(stet__platform *p, stet__mutex *m)
{
    int err = pthread_mutex_init(real_mutex(m), NULL);

    (void)p;
    return err == 0 ? STET_OK : stet__fail(STET_ENOMEM, "mutex: %s", strerror(err));
}

static void
real_mutex_destroy(stet__platform *p, stet__mutex *m)
{
    (void)p;
    real_must(pthread_mutex_destroy(real_mutex(m)), "pthread_mutex_destroy");
}

static void
real_lock(stet__platform *p, stet__mutex *m)
{
    (void)p;
    real_must(pthread_mutex_lock(real_mutex(m)), "pthread_mutex_lock");
}

static void
real_unlock(stet__platform *p, stet__mutex *m)
{
    (void)p;
    real_must(pthread_mutex_unlock(real_mutex(m)), "pthread_mutex_unlock");
}

/* ---- conditions ---------------------------------------------------------------------------- */

static pthread_cond_t *
real_cond(stet__cond *c)
{
    return (pthread_cond_t *)(void *)c->space;
}

static int
real_cond_init(stet__platform *p, stet__cond *c)
{
    pthread_condattr_t attr;
    int                err;

    (void)p;
    if ((err = pthread_condattr_init(&attr)) == 0) {
        if ((err = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC)) == 0)
            err = pthread_cond_init(real_cond(c), &attr);
        pthread_condattr_destroy(&attr);
    }
    return err == 0 ? STET_OK : stet__fail(STET_ENOMEM, "condition: %s", strerror(err));
}

static void
real_cond_destroy(stet__platform *p, stet__cond *c)
{
    (void)p;
    real_must(pthread_cond_destroy(real_cond(c)), "pthread_cond_destroy");
}

/* The moment on the condition's clock at which to look again; `left_us` is rounded up by one so
 * that a wait never ends a fraction too early and spins. */
static struct timespec
real_wait_end(int64_t left_us)
{
    struct timespec end;
    int64_t         at_us;

    if (left_us < 0)
        left_us = 0;
    if (left_us > REAL_WAIT_SLICE_US)
        left_us = REAL_WAIT_SLICE_US;
    at_us = real_clock_us(CLOCK_MONOTONIC) + left_us + 1;
    end.tv_sec = (time_t)(at_us / 1000000);
    end.tv_nsec = (long)(at_us % 1000000) * 1000;
    return end;
}

static bool
real_cond_wait(stet__platform *p, stet__cond *c, stet__mutex *m, int64_t until_us)
{
    struct timespec end;
    int64_t         now_us;
    int             err;

    if (until_us == STET__FOREVER) {
        real_must(pthread_cond_wait(real_cond(c), real_mutex(m)), "pthread_cond_wait");
        return true;
    }
    now_us = real_mono_us(p);
    end = real_wait_end(until_us > now_us ? until_us - now_us : 0);
    err = pthread_cond_timedwait(real_cond(c), real_mutex(m), &end);
    if (err != ETIMEDOUT)
        real_must(err, "pthread_cond_timedwait");
    /* A slice that ended early counts as a wake without cause. */
    return err != ETIMEDOUT || real_mono_us(p) < until_us;
}

static void
real_cond_signal(stet__platform *p, stet__cond *c)
{
    (void)p;
    real_must(pthread_cond_signal(real_cond(c)), "pthread_cond_signal");
}

static void
real_cond_broadcast(stet__platform *p, stet__cond *c)
{
    (void)p;
    real_must(pthread_cond_broadcast(real_cond(c)), "pthread_cond_broadcast");
}

/* ---- the platform -------------------------------------------------------------------------- */

static const stet__platform_ops real_ops = {
    .name = "real",
    .wall_us = real_wall_us,
    .mono_us = real_mono_us,
    .random = real_random,
    .thread_start = real_thread_start,
    .thread_join = real_thread_join,
    .thread_self = real_thread_self,
    .processors = real_processors,
    .mutex_init = real_mutex_init,
    .mutex_destroy = real_mutex_destroy,
    .lock = real_lock,
    .unlock = real_unlock,
    .cond_init = real_cond_init,
    .cond_destroy = real_cond_destroy,
    .cond_wait = real_cond_wait,
    .cond_signal = real_cond_signal,
    .cond_broadcast = real_cond_broadcast,
};

stet__platform *
stet__platform_real(void)
{
    /* Constant, so several engines share it; the port's functions take it without const because
     * other platforms have state. */
    static const stet__platform real = { .alloc = { .get = real_get }, .ops = &real_ops };

    return (stet__platform *)(uintptr_t)&real;
}
