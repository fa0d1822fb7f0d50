/* Two processes that commit to one SQLite file as fast as they can: each gets its share. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#include "store/store.h"
#include "test.h"

enum { SHARE_MS = 5000 };

typedef struct share_board {
    pthread_barrier_t start;
    _Atomic uint64_t  commits[2];
} share_board;

static int64_t
share_now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Both begin at the same time. */
static void
share_meet(share_board *board)
{
    (void)pthread_barrier_wait(&board->start);
}

static void
share_commit(stet_store *s, uint64_t seq)
{
    stet_op      op = { .kind = STET_OP_VALUE_PUT, .space = "share", .data = { "x", 1 } };
    stet_unit    unit = { .seq = seq, .ops = &op, .n_ops = 1 };
    stet_outcome outcome = { 0 };

    op.key = (stet_bytes){ &s->committer, sizeof s->committer };
    CHECK_OK(s->ops->commit(s, &unit, 1, &outcome));
    CHECK_INT(outcome.result, STET_OK);
}

static void
share_store(share_board *board, int who, const char *path)
{
    stet_store *s;
    int64_t     until_ms;
    uint64_t    seq = 0;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), path));
    share_meet(board);
    until_ms = share_now_ms() + SHARE_MS;
    while (share_now_ms() < until_ms) {
        share_commit(s, ++seq);
        atomic_fetch_add(&board->commits[who], 1);
    }
    stet__store_close(s);
}

static void
share_engine(share_board *board, int who, const char *path)
{
    stet_engine *e;
    int64_t      until_ms;

    CHECK_OK(
        stet_open(&e, path, STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_ERROR)));
    share_meet(board);
    until_ms = share_now_ms() + SHARE_MS;
    while (share_now_ms() < until_ms) {
        CHECK_OK(stet_start(e, NULL, "some.where", stet_text("{}"), NULL));
        atomic_fetch_add(&board->commits[who], 1);
    }
    stet_close(e);
}

static void
share_both(void (*side)(share_board *board, int who, const char *path))
{
    share_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char           *path = test_path("share.db");
    pid_t                 child[2];
    uint64_t              a, b;
    pthread_barrierattr_t shared;

    CHECK(board != MAP_FAILED);
    CHECK_INT(pthread_barrierattr_init(&shared), 0);
    CHECK_INT(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED), 0);
    CHECK_INT(pthread_barrier_init(&board->start, &shared, 2), 0);
    for (int i = 0; i < 2; i++) {
        CHECK((child[i] = fork()) >= 0);
        if (child[i] == 0) {
            side(board, i, path);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status;

        CHECK_INT(waitpid(child[i], &status, 0), child[i]);
        CHECK_INT(status, 0);
    }
    a = atomic_load(&board->commits[0]);
    b = atomic_load(&board->commits[1]);
    test_note("%llu and %llu commits in %d ms", (unsigned long long)a, (unsigned long long)b,
              SHARE_MS);
    CHECK(a > 0 && b > 0);
    CHECK(a * 3 >= a + b);
    CHECK(b * 3 >= a + b);
}

TEST(C6_two_processes_that_commit_to_one_file_each_get_their_share)
{
    share_both(share_store);
}
TEST(C6_two_engines_that_start_runs_on_one_file_each_get_their_share)
{
    share_both(share_engine);
}
