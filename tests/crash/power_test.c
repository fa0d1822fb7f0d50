/* The power goes at every flush SQLite makes: each reference workflow is run once on a disk that
 * remembers what was written and what was flushed (power_vfs.h). Then, for each flush, the files
 * are made anew as the cut left them: what was not flushed is kept, dropped, shuffled or torn in
 * sectors. A fresh engine with SQLite's own VFS opens them, goes on and ends the work.
 *
 * Every answered start and every step that was recorded must be there, no recorded step executes
 * again, and verify finds nothing, both on what was left and in the end.
 *
 * The live file beside the database is never flushed. Where writes are kept it stays, written by
 * another boot of the machine; where they are dropped it is gone, where they are shuffled its slots
 * are zeros and where they are torn garbage. Without it only the lease tells that the worker is
 * gone, so then the machine was off for longer than that.
 *
 *   STET_POWER_STRIDE=N only every Nth flush
 *   STET_POWER_SEEDS=N  so many shuffled and torn versions of each cut (else 3; soak: 20)
 *   STET_TEST_SEED=N    others
 */
#include "test.h"

#ifdef STET_WITH_SQLITE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_flows.h"
#include "engine/engine.h"
#include "fault_platform.h"
#include "power_vfs.h"
#include "store/sqlite.h"

#define POWER_LIMIT_MS (INT64_C(30000) * test_slow())

enum { POWER_LEASE_MS = 600000, POWER_SLOTS_MAX = 8, POWER_HEAD = 4096 };

/* What was known when the power went: the ledger, and the live file as far as anybody reads it. */
typedef struct power_known {
    flow_ledger ledger;
    uint8_t     head[POWER_HEAD];
    sqlite_slot slots[POWER_SLOTS_MAX];
    size_t      n_slots;
} power_known;

typedef struct power_world {
    const flow  *f;
    flow_ledger *ledger;
    _Atomic int  units; /* applied */
    char         db[512], live[520], where[160];
    stet_store  *store;
    size_t       points, cuts, in_doubt;
    uint64_t     seed;
} power_world;

static off_t
power_slot_at(size_t slot)
{
    return (off_t)(slot + 1) * LITE_SLOT_BYTES;
}

/* ---- recording
 * ------------------------------------------------------------------------------------ */

/* Runs on: whoever flushes. */
static void *
power_look(void *arg)
{
    power_world *w = arg;
    power_known *known = calloc(1, sizeof *known);
    int          fd = open(w->live, O_RDONLY);

    CHECK(known != NULL);
    flow_ledger_copy(&known->ledger, w->ledger);
    if (fd >= 0) {
        CHECK(pread(fd, known->head, sizeof known->head, 0) >= 0);
        while (known->n_slots < POWER_SLOTS_MAX &&
               pread(fd, &known->slots[known->n_slots], sizeof known->slots[0],
                     power_slot_at(known->n_slots)) == (ssize_t)sizeof known->slots[0])
            known->n_slots++;
        (void)close(fd);
    }
    return known;
}

/* Now and then the log is moved into the file, so that the flushes of checkpoints are among the
 * points, and logs that begin anew over an old one. */
static void
power_applied(void *arg, const stet_unit *unit)
{
    power_world *w = arg;

    flow_ledger_applied(w->ledger, unit);
    if (atomic_fetch_add(&w->units, 1) % 3 == 2)
        (void)w->store->ops->maintain(w->store);
}

static stet_engine *
power_open(power_world *w, const char *url, stet__platform *p, shim_script *script)
{
    stet_store  *store;
    stet_engine *e;

    script->arg = w;
    CHECK_OK(stet__store_open(&w->store, p, url));
    CHECK_OK(stet__shim_store_new(&store, w->store, script));
    CHECK_OK(stet__open_on(&e, p, store, url,
                           STET_OPTIONS(.concurrency = 2, .lease_ms = POWER_LEASE_MS,
                                        .sweep_ms = 50, .poll_ms = 20, .wait_poll_ms = 10,
                                        .log = flow_log, .log_level = STET_LOG_ERROR)));
    CHECK_OK(flow_register(e));
    return e;
}

static void
power_record(power_world *w)
{
    shim_script  script = { .applied = power_applied };
    char         url[600];
    stet_engine *e;

    (void)snprintf(w->db, sizeof w->db, "%s", test_path("recorded.db"));
    (void)snprintf(w->live, sizeof w->live, "%s-live", w->db);
    (void)snprintf(url, sizeof url, "sqlite:%s?vfs=power", w->db);
    flow_ledger_clear(w->ledger);
    flow_ledger_begin(w->ledger);
    power_vfs_begin(power_look, w);
    e = power_open(w, url, stet__platform_real(), &script);
    CHECK_OK(stet_engine_start(e));
    flow_drive(w->f, e, w->ledger, POWER_LIMIT_MS, "recording");
    flow_check(w->f, e, w->ledger, "recording");
    stet_close(e);
    w->points = power_vfs_end();
}

/* ---- recovering
 * ------------------------------------------------------------------------------------- */

/* The live file as the cut left it: never flushed, so anything may have become of it. */
static void
power_write_live(const power_world *w, const power_known *known, power_fate fate)
{
    int fd;

    (void)unlink(w->live);
    if (fate == POWER_DROP || known->n_slots == 0)
        return;
    CHECK((fd = open(w->live, O_RDWR | O_CREAT, 0600)) >= 0);
    CHECK_INT(pwrite(fd, known->head, sizeof known->head, 0), sizeof known->head);
    CHECK_INT(ftruncate(fd, power_slot_at(known->n_slots)), 0);
    for (size_t i = 0; i < known->n_slots; i++) {
        sqlite_slot slot = known->slots[i];

        slot.boot[0] = (char)(slot.boot[0] ^ 1);
        if (fate == POWER_SHUFFLE)
            memset(&slot, 0, sizeof slot);
        else if (fate == POWER_TEAR)
            memset(&slot, 0xa5, sizeof slot);
        CHECK_INT(pwrite(fd, &slot, sizeof slot, power_slot_at(i)), sizeof slot);
    }
    (void)close(fd);
}

static int
power_on_finding(void *arg, const stet_finding *finding)
{
    const power_world *w = arg;

    if (strcmp(finding->rule, "owner") == 0)
        return STET_OK; /* right: its worker is gone, and nobody is there yet to take it over */
    test_fail(__FILE__, __LINE__, "%s: %s: verify of what was left: %s revision %llu: %s: %s",
              w->f->name, w->where, finding->run ? finding->run : "-",
              (unsigned long long)finding->revision, finding->rule, finding->text);
    return STET_OK;
}

static void
power_applied_after(void *arg, const stet_unit *unit)
{
    flow_ledger_applied(((power_world *)arg)->ledger, unit);
}

static void
power_recover(power_world *w, const power_cut *cut, power_fate fate, uint64_t seed, size_t at)
{
    shim_script        script = { .applied = power_applied_after };
    const power_known *known = power_cut_known(cut);
    fault_platform     p;
    stet_engine       *e;

    (void)snprintf(w->where, sizeof w->where,
                   "power cut at flush %zu of %zu (%s), %zu writes %s, seed %llu", at + 1,
                   w->points, power_cut_file(cut), power_cut_pending(cut), power_fate_name(fate),
                   (unsigned long long)seed);
    (void)snprintf(w->db, sizeof w->db, "%s", test_path("cut.db"));
    (void)snprintf(w->live, sizeof w->live, "%s-live", w->db);
    power_cut_write(cut, fate, seed, w->db);
    power_write_live(w, known, fate);
    flow_ledger_copy(w->ledger, &known->ledger);
    fault_platform_init(&p);
    if (fate != POWER_KEEP)
        fault_platform_skip(&p, 2 * POWER_LEASE_MS);
    e = power_open(w, w->db, &p.base, &script);
    flow_ledger_recover(w->ledger, w->store, w->where);
    w->in_doubt += flow_ledger_lost(w->ledger);
    flow_ledger_begin(w->ledger);
    CHECK_OK(stet_verify(e, NULL, power_on_finding, w));
    CHECK_OK(stet_engine_start(e));
    flow_drive(w->f, e, w->ledger, POWER_LIMIT_MS, w->where);
    flow_check(w->f, e, w->ledger, w->where);
    stet_close(e);
    CHECK_INT(atomic_load(&p.live), 0);
    w->cuts++;
}

static void
power_all(const char *name)
{
    power_world w = { .f = flows, .ledger = flow_ledger_new() };
    uint64_t    seeds = (uint64_t)test_count("STET_POWER_SEEDS", 3);

    while (strcmp(w.f->name, name) != 0)
        w.f++;
    w.seed = (uint64_t)test_number("STET_TEST_SEED", 20260101);
    power_record(&w);
    for (size_t i = 0; i < w.points; i += (size_t)test_count("STET_POWER_STRIDE", 1)) {
        const power_cut *cut = power_vfs_cut(i);

        power_recover(&w, cut, POWER_KEEP, 0, i);
        power_recover(&w, cut, POWER_DROP, 0, i);
        for (uint64_t k = 0; power_cut_pending(cut) > 0 && k < seeds; k++) {
            power_recover(&w, cut, POWER_SHUFFLE, w.seed + i * 1000 + k, i);
            power_recover(&w, cut, POWER_TEAR, w.seed + i * 1000 + k, i);
        }
    }
    test_note("%s: %zu flushes, %zu power cuts, %zu executions in doubt", name, w.points, w.cuts,
              w.in_doubt);
    power_vfs_free(free);
}

#define POWER_TEST(id, name)                                                                       \
    TEST_LIMIT(G2_the_power_goes_at_every_flush_##id, 300)                                         \
    {                                                                                              \
        power_all(name);                                                                           \
    }

POWER_TEST(steps, "steps")
POWER_TEST(sleep, "sleep")
POWER_TEST(child, "child")
POWER_TEST(awakeable, "awakeable")
POWER_TEST(settled_by_a_run, "settled by a run")
POWER_TEST(object, "object")
POWER_TEST(dead_letters, "dead letters")
POWER_TEST(torn_futures, "torn futures")
POWER_TEST(first_of_with_timeout, "first of with timeout")
POWER_TEST(signals, "signals")
POWER_TEST(events, "events")
POWER_TEST(rollback, "rollback")

TEST_LIMIT(A2_the_power_goes_at_every_flush_crowd, 300)
{
    power_all("crowd");
}

TEST_LIMIT(B22_the_power_goes_at_every_flush_generations, 300)
{
    power_all("generations");
}

TEST_LIMIT(E3_the_power_goes_at_every_flush_schedule, 300)
{
    power_all("schedule");
}
TEST_LIMIT(I12_the_power_goes_at_every_flush_updates, 300)
{
    power_all("updates");
}

TEST_LIMIT(C8_the_power_goes_at_every_flush_operators, 300)
{
    power_all("operators");
}

TEST_LIMIT(B15_A3_the_power_goes_at_every_flush_people, 300)
{
    power_all("people");
}

TEST_LIMIT(I12_the_power_goes_at_every_flush_forks, 300)
{
    power_all("forks");
}

TEST_LIMIT(B11_C2_the_power_goes_at_every_flush_mended_rollback, 300)
{
    power_all("mended rollback");
}

TEST_LIMIT(C8_the_power_goes_at_every_flush_halted_handler, 300)
{
    power_all("halted handler");
}
#else
TEST(G2_power)
{
    test_skip("built without SQLite");
}
#endif
