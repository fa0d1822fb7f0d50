/* Every allocation fails in turn, once and then many in a row, while everything an engine does is
 * done: open, register, start, steps, sleep, child, state, awakeable, cancel, lists, why, verify,
 * dead letters, taking over from a dead worker, stopping, closing. Every call works or says so and
 * works later; the engine goes on by itself when there is memory again; nothing is lost, repeated
 * or leaked.
 *
 *   STET_FAULT_AT=N     only the round in which the Nth allocation fails
 *   STET_FAULT_STRIDE=N every Nth round only (1: all of them)
 *   STET_FAULT_THIN=N   only every Nth of the rounds there would be
 *   STET_FAULT_VERBOSE=1 the engine's log
 */
#include <unistd.h>

#include "engine/engine.h"
#include "fault_vfs.h"
#include "fault_world.h"

/* Tight: nothing is asked for ahead, so that each thing finds no memory once (util.h). */
typedef enum memory_how { MEMORY_PLAIN, MEMORY_TIGHT, MEMORY_THREADS } memory_how;

static bool
memory_is_expected(int code)
{
    return code == STET_ENOMEM;
}

/* One life in which `count` allocations fail from the one numbered `at` on. Returns how many there
 * were. */
static long
memory_round(const char *url, memory_how how, long at, long count, long *in_vain)
{
    fault_platform p;
    world          w = { .p = &p, .url = url, .has_threads = how == MEMORY_THREADS };
    char           name[64];

    (void)snprintf(name, sizeof name, "at %ld, %ld fail", at, count);
    w.round = name;
    w.is_expected = memory_is_expected;
    if (getenv("STET_FAULT_VERBOSE") != NULL)
        (void)fprintf(stderr, "round %s\n", name);
    fault_platform_init(&p);
    p.base.alloc.is_tight = how == MEMORY_TIGHT;
    if (at >= 0)
        fault_platform_arm(&p, at, count);
    world_live(&w);
    fault_platform_disarm(&p);
    world_check(&w);
    *in_vain += w.bodies_in_vain;
    return at >= 0 && atomic_load(&p.failed) == 0 ? -1 : atomic_load(&p.n);
}

/* Through the VFS of the I/O tests, in which nothing fails here, because it does not wait for the
 * disk. */
static const char *
memory_url(char *url, size_t size, const char *kind, long at)
{
    char name[64];

    if (kind == NULL)
        return NULL;
    (void)snprintf(name, sizeof name, "w%ld.db", at);
    (void)snprintf(url, size, "sqlite:%s?vfs=fault", test_path(name));
    return url;
}

/* Removes the store of a round, or the disk fills up with hundreds. */
static void
memory_forget(const char *kind, long at)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    char                     name[64];

    for (size_t i = 0; kind != NULL && i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(name, sizeof name, "w%ld.db%s", at, ends[i]);
        (void)unlink(test_path(name));
    }
}

static void
memory_rounds(const char *kind, memory_how how, long count, long stride)
{
    long only = test_number("STET_FAULT_AT", -1), rounds = 0, n = 0, in_vain = 0;
    char url[600];

    stride = test_number("STET_FAULT_STRIDE", stride) * test_number("STET_FAULT_THIN", 1);
    if (kind != NULL)
        fault_vfs_register();
    (void)memory_round(memory_url(url, sizeof url, kind, -1), how, -1, 0, &in_vain);
    memory_forget(kind, -1);
    for (long at = only >= 0 ? only : 0; n >= 0; at += stride) {
        n = memory_round(memory_url(url, sizeof url, kind, at), how, at, count, &in_vain);
        memory_forget(kind, at);
        rounds++;
        if (only >= 0)
            break;
    }
    test_note("%ld rounds; %ld bodies ran again because their record found no memory", rounds,
              in_vain);
}

TEST_LIMIT(G1_every_allocation_fails_once_on_the_memory_store, 300)
{
    memory_rounds(NULL, MEMORY_PLAIN, 1, 1);
}

TEST_LIMIT(G1_every_single_thing_finds_no_memory_on_the_memory_store, 300)
{
    memory_rounds(NULL, MEMORY_TIGHT, 1, 1);
}

TEST_LIMIT(G1_every_single_thing_finds_no_memory_on_sqlite, 300)
{
    memory_rounds("sqlite", MEMORY_TIGHT, 1, 17);
}

TEST_LIMIT(G1_many_allocations_in_a_row_fail_on_the_memory_store, 300)
{
    memory_rounds(NULL, MEMORY_PLAIN, 60, 3);
}

TEST_LIMIT(G1_every_allocation_fails_once_on_sqlite, 300)
{
    memory_rounds("sqlite", MEMORY_PLAIN, 1, 5);
}

TEST_LIMIT(G1_many_allocations_in_a_row_fail_on_sqlite, 300)
{
    memory_rounds("sqlite", MEMORY_PLAIN, 60, 23);
}

TEST_LIMIT(G1_allocations_fail_while_threads_work_on_the_memory_store, 300)
{
    memory_rounds(NULL, MEMORY_THREADS, 1, 17);
}

TEST_LIMIT(G1_allocations_fail_while_threads_work_on_sqlite, 300)
{
    memory_rounds("sqlite", MEMORY_THREADS, 20, 31);
}

/* ---- a start below a parent that ends just then ---------------------------------------------- */

static const stet_store_ops *lineage_ops;
static stet_engine          *lineage_eye;
static const stet_run_id    *lineage_parent; /* ends before the next commit; NULL: no more */

/* Behind the look at the parent, and before the child is there. */
static int
lineage_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    const stet_run_id *parent = lineage_parent;

    lineage_parent = NULL;
    if (parent != NULL)
        CHECK_OK(stet_cancel(lineage_eye, parent, "test", NULL));
    return lineage_ops->commit(s, units, n, outcomes);
}

static stet_engine *
lineage_open(stet__platform *p, stet__memory_db *db)
{
    stet_engine *e;
    stet_store  *store;
    stet_options options;

    stet_options_init(&options);
    options.roles = STET_ROLE_CLIENT;
    CHECK_OK(stet__memory_open(&store, p, db));
    CHECK_OK(stet__open_on(&e, p, store, "memory:", &options));
    return e;
}

/* One start, in which the allocation numbered `at` fails. False: there was none. */
static bool
lineage_round(fault_platform *p, stet_engine *e, long at)
{
    stet_run_id parent, child;
    int         rc;

    CHECK_OK(stet_start(lineage_eye, &parent, "nobody.serves", stet_text(""), NULL));
    lineage_parent = &parent;
    atomic_store(&p->failed, 0);
    fault_platform_arm(p, atomic_load(&p->n) + at, 1);
    rc = stet_start(e, &child, "nobody.serves", stet_text(""),
                    STET_START(.parent = &parent, .parent_step = "one", .child_key = "k"));
    fault_platform_disarm(p);
    if (rc == STET_OK)
        test_fail(__FILE__, __LINE__, "allocation %ld: a run that had ended got a child", at);
    if (rc != STET_ENOMEM)
        CHECK_CODE(rc, STET_EENDED);
    return atomic_load(&p->failed) > 0;
}

TEST(B16_a_parent_that_ends_just_then_gets_no_child_whatever_finds_no_memory)
{
    fault_platform   p;
    stet__memory_db *db = stet__memory_db_new(stet__platform_real());
    stet_store_ops   ops;
    stet_engine     *e;
    long             at = 0;

    CHECK(db != NULL);
    fault_platform_init(&p);
    p.base.alloc.is_tight = true;
    lineage_eye = lineage_open(stet__platform_real(), db);
    e = lineage_open(&p.base, db);
    lineage_ops = e->store->ops;
    ops = *lineage_ops;
    ops.commit = lineage_commit;
    e->store->ops = &ops;
    while (lineage_round(&p, e, at))
        at++;
    CHECK(at > 5);
    test_note("%ld allocations", at);
    e->store->ops = lineage_ops;
    stet_close(e);
    stet_close(lineage_eye);
    stet__memory_db_free(db);
}
