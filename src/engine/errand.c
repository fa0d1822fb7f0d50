/* Work in a forked child: piece after piece, each answered through a pipe. The child may die of a
 * piece, or never end it; then the parent knows which one it was, and another child goes on behind
 * it.
 *
 * The child is this process as it was: it has the handlers, and of the parent's threads only the
 * one that called. It must not touch the store (whose handles say so in a child), prints nowhere
 * but to standard error, leaves no core file, and goes with its parent.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "engine/offline.h"

#define ERRAND_ANSWER_MAX ((size_t)1 << 28)

/* Before what is shared. */
typedef struct errand_head {
    _Alignas(16) volatile bool has_given_up;
} errand_head;

static errand_head *
errand_head_of(const stet__errand *x)
{
    return (errand_head *)x->shared - 1;
}

/* ---- the child ------------------------------------------------------------------------------- */

static bool
errand_write(int fd, const void *data, size_t len)
{
    const uint8_t *at = data;

    while (len > 0) {
        ssize_t n = write(fd, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static void
errand_seclude(pid_t parent)
{
    struct rlimit none = { 0, 0 };
    int           null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(null, STDOUT_FILENO);
    }
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGPIPE, SIG_IGN);
#if defined(__linux__)
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) /* it went before that was set */
        _exit(3);
}

/* Not what it executes is at fault: it has no memory. */
_Noreturn static void
errand_give_up(stet__errand *x)
{
    errand_head_of(x)->has_given_up = true;
    _exit(3);
}

_Noreturn static void
errand_child(stet__errand *x, size_t from, int fd, pid_t parent)
{
    stet__buf out;

    errand_seclude(parent);
    stet__buf_init(&out, &x->p->alloc);
    if (!x->begin(x))
        errand_give_up(x);
    for (size_t i = from; i < x->n; i++) {
        uint8_t head[4];

        out.len = 0;
        if (!x->perform(x, i, &out) || out.failed || out.len > ERRAND_ANSWER_MAX)
            errand_give_up(x);
        for (int b = 0; b < 4; b++)
            head[b] = (uint8_t)(out.len >> (8 * b));
        if (!errand_write(fd, head, sizeof head) || !errand_write(fd, out.data, out.len))
            _exit(3);
    }
    _exit(0); /* no exit handlers, no flushes: they are the parent's */
}

/* ---- the parent ------------------------------------------------------------------------------ */

typedef struct errand_pipe {
    stet__errand *x;
    pid_t         pid;
    int           fd;
    stet__buf     in;   /* what was read and not used */
    size_t        used; /* of it */
} errand_pipe;

typedef enum errand_read { ERRAND_READ, ERRAND_CLOSED, ERRAND_LATE, ERRAND_FAILED } errand_read;

static errand_read
errand_more(errand_pipe *p, int64_t until_us)
{
    int64_t       left_ms = stet__time_add(until_us - stet__mono_us(p->x->p), 999) / 1000;
    struct pollfd wait = { p->fd, POLLIN, 0 };
    ssize_t       n;
    int           ready;

    if (p->used > 0) {
        memmove(p->in.data, p->in.data + p->used, p->in.len - p->used);
        p->in.len -= p->used;
        p->used = 0;
    }
    if (!stet__buf_reserve(&p->in, 65536))
        return ERRAND_FAILED;
    ready = poll(&wait, 1, left_ms <= 0 ? 0 : left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
    if (ready == 0)
        return ERRAND_LATE;
    if (ready < 0)
        return errno == EINTR ? ERRAND_READ : ERRAND_FAILED;
    n = read(p->fd, p->in.data + p->in.len, 65536);
    if (n < 0)
        return errno == EINTR ? ERRAND_READ : ERRAND_FAILED;
    p->in.len += (size_t)n;
    return n == 0 ? ERRAND_CLOSED : ERRAND_READ;
}

/* The next answer. Its time begins now: the child is not ahead by more than the pipe holds. */
static errand_read
errand_answer(errand_pipe *p, stet_bytes *out)
{
    int64_t until_us = stet__mono_in(p->x->p, p->x->time_ms);

    for (;;) {
        size_t      have = p->in.len - p->used;
        size_t      len = have >= 4 ? stet__load_u32(p->in.data + p->used) : 0;
        errand_read what;

        if (have >= 4 && have - 4 >= len) {
            *out = (stet_bytes){ p->in.data + p->used + 4, len };
            p->used += 4 + len;
            return ERRAND_READ;
        }
        if ((what = errand_more(p, until_us)) != ERRAND_READ)
            return what;
    }
}

/* How it ended, for people. */
static void
errand_bury(errand_pipe *p, bool must_kill, char *text, size_t size)
{
    int   status = 0;
    pid_t pid;

    if (must_kill)
        (void)kill(p->pid, SIGKILL);
    while ((pid = waitpid(p->pid, &status, 0)) < 0 && errno == EINTR)
        ;
    (void)close(p->fd);
    stet__buf_free(&p->in);
    p->used = 0;
    if (pid > 0 && WIFSIGNALED(status))
        (void)snprintf(text, size, "killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else if (pid > 0 && WIFEXITED(status))
        (void)snprintf(text, size, "the process ended with status %d", WEXITSTATUS(status));
    else
        (void)snprintf(text, size, "the process ended");
}

static int
errand_fork(errand_pipe *p, size_t from)
{
    pid_t parent = getpid();
    int   fds[2];

    if (pipe2(fds, O_CLOEXEC) != 0)
        return stet__fail(STET_EBUSY, "no pipe to a child process: %s", strerror(errno));
    if ((p->pid = fork()) < 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return stet__fail(STET_EBUSY, "no child process: %s", strerror(errno));
    }
    if (p->pid == 0)
        errand_child(p->x, from, fds[1], parent);
    (void)close(fds[1]);
    p->fd = fds[0];
    stet__buf_init(&p->in, &p->x->p->alloc);
    return STET_OK;
}

/* With AddressSanitizer a child of several threads may find the allocator locked, by a thread that it does not have: then
 * another one is asked, once a piece. *asked: the last piece that was, + 1. */
static bool
errand_asks_again(const stet__errand *x, errand_read what, size_t i, size_t *asked)
{
#ifdef STET__ASAN
    if (what == ERRAND_LATE && *asked != i + 1) {
        *asked = i + 1;
        memset(x->shared, 0, x->shared_bytes); /* what the first one wrote there */
        return true;
    }
#else
    (void)x;
    (void)what;
    (void)i;
    (void)asked;
#endif
    return false;
}

/* One child, from piece *i on; *i moves behind what was answered or lost. */
static int
errand_send(stet__errand *x, size_t *i, size_t *asked)
{
    errand_pipe p = { .x = x };
    errand_read what = ERRAND_READ;
    stet_bytes  out;
    char        text[160];
    int         err = errand_fork(&p, *i);

    if (err != STET_OK)
        return err;
    while (err == STET_OK && *i < x->n && (what = errand_answer(&p, &out)) == ERRAND_READ)
        err = x->done(x, (*i)++, out);
    errand_bury(&p, what != ERRAND_CLOSED && (err != STET_OK || *i < x->n), text, sizeof text);
    if (err != STET_OK || *i == x->n)
        return err;
    if (what == ERRAND_FAILED || errand_head_of(x)->has_given_up)
        return stet__fail(STET_ENOMEM, "out of memory, here or in a child process");
    if (errand_asks_again(x, what, *i, asked))
        return STET_OK;
    return x->lost(x, (*i)++, what == ERRAND_LATE, text);
}

int
stet__errand_run(stet__errand *x)
{
    errand_head *head;
    size_t       asked = 0;
    int          err = STET_OK;

    x->shared = NULL;
    if (strcmp(x->p->ops->name, "sim") == 0)
        return stet__fail(STET_EUSAGE, "a simulated engine has no child processes");
    head = mmap(NULL, sizeof *head + x->shared_bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (head == MAP_FAILED)
        return stet__fail(STET_ENOMEM, "out of memory");
    x->shared = head + 1;
    for (size_t i = 0; err == STET_OK && i < x->n;)
        err = errand_send(x, &i, &asked);
    (void)munmap(head, sizeof *head + x->shared_bytes);
    x->shared = NULL;
    return err;
}

/* ---- what is told, as bytes ------------------------------------------------------------------ */

/* In the encoding of facts, which has a field for all of it. */
void
stet__report_encode(stet__buf *b, const stet_replay_report *r)
{
    stet__fact f = { .kind = STET__FACT_STUCK };

#define ERRAND_TEXT(member, from)                                                                  \
    if ((from) != NULL)                                                                            \
        f.member = stet_text(from)
    ERRAND_TEXT(key, r->run);
    ERRAND_TEXT(name, r->handler);
    ERRAND_TEXT(recorded, r->recorded);
    ERRAND_TEXT(asked, r->asked);
    ERRAND_TEXT(where, r->where);
    ERRAND_TEXT(text, r->text);
    f.code = (int64_t)r->end;
    f.cause = (int64_t)r->status;
    f.flags = r->is_fine;
    f.number = (int64_t)r->operations;
    f.attempt = (int64_t)r->assumed;
    f.occurrence = r->code;
    stet__fact_encode(b, &f);
}

static bool
errand_text(stet__arena *arena, const char **out, stet_bytes from)
{
    *out = from.data != NULL ? stet__arena_copy(arena, from.data, from.len) : NULL;
    return from.data == NULL || *out != NULL;
}

int
stet__report_decode(stet_replay_report *r, stet__arena *arena, stet_bytes *in)
{
    stet__fact f;
    int        err = stet__fact_decode(&f, in);

    memset(r, 0, sizeof *r);
    if (err != STET_OK)
        return err;
    if (!errand_text(arena, &r->run, f.key) || !errand_text(arena, &r->handler, f.name) ||
        !errand_text(arena, &r->recorded, f.recorded) || !errand_text(arena, &r->asked, f.asked) ||
        !errand_text(arena, &r->where, f.where) || !errand_text(arena, &r->text, f.text))
        return stet__fail(STET_ENOMEM, "out of memory for a report");
    r->end = (stet_replay_end)f.code;
    r->status = (stet_status)f.cause;
    r->is_fine = f.flags != 0;
    r->operations = (uint64_t)f.number;
    r->assumed = (uint64_t)f.attempt;
    r->code = (int)f.occurrence;
    return STET_OK;
}

void
stet__operation_encode(stet__buf *b, const stet_operation *op)
{
    stet__fact f = { .kind = STET__FACT_STEP };

    ERRAND_TEXT(origin, op->kind);
    ERRAND_TEXT(group, op->shape);
    ERRAND_TEXT(name, op->name);
    ERRAND_TEXT(where, op->where);
    ERRAND_TEXT(text, op->text);
    ERRAND_TEXT(key, op->key);
    f.labels = op->branches;
#undef ERRAND_TEXT
    f.occurrence = (int64_t)op->occurrence;
    f.value = op->value;
    f.code = op->code;
    f.until_ms = op->duration_ms;
    f.deadline_ms = op->timeout_ms;
    f.attempts_max = op->attempts;
    f.flags = op->is_recorded | op->is_settled << 1 | op->is_parallel << 2 |
              op->is_transaction << 3 | op->has_undo << 4 | op->has_default << 5;
    stet__fact_encode(b, &f);
}

int
stet__operation_decode(stet_operation *op, stet__arena *arena, stet_bytes *in)
{
    stet__fact f;
    int        err = stet__fact_decode(&f, in);

    memset(op, 0, sizeof *op);
    if (err != STET_OK)
        return err;
    if (!errand_text(arena, &op->kind, f.origin) || !errand_text(arena, &op->shape, f.group) ||
        !errand_text(arena, &op->name, f.name) || !errand_text(arena, &op->where, f.where) ||
        !errand_text(arena, &op->text, f.text) || !errand_text(arena, &op->key, f.key))
        return stet__fail(STET_ENOMEM, "out of memory for an operation");
    op->occurrence = (uint64_t)f.occurrence;
    op->value = f.value; /* in `in`, as the next one */
    op->branches = f.labels;
    op->code = (int)f.code;
    op->duration_ms = f.until_ms;
    op->timeout_ms = f.deadline_ms;
    op->attempts = (int)f.attempts_max;
    op->is_recorded = (f.flags & 1) != 0;
    op->is_settled = (f.flags & 2) != 0;
    op->is_parallel = (f.flags & 4) != 0;
    op->is_transaction = (f.flags & 8) != 0;
    op->has_undo = (f.flags & 16) != 0;
    op->has_default = (f.flags & 32) != 0;
    return STET_OK;
}
