/* Crash everywhere, in-process: the reference workflows on the memory store under the simulator,
 * crashed before and after every store call, and again inside the recovery: all pairs.
 *
 * One seed gives one history, so the nth call is the same one each time until the crash. A node is
 * crashed from inside the store call; the next node finds what was committed and the crumbs,
 * nothing else.
 *
 *   STET_TEST_PAIRS_STRIDE=N  every Nth second crash only
 *   STET_TEST_PAIRS_SEEDS=N   for the tests that are not quadratic (6)
 */
#include "crash_flows.h"
#include "engine/engine.h"
#include "store/memory.h"
#include "test.h"

enum {
    PAIRS_LIMIT_MS = 600000, /* virtual, as all times here */
    PAIRS_LEASE_MS = 100,
    PAIRS_PAUSE_US = 450000
};

/* A node that crashes takes its memory along, except results: those are the caller's and come from
 * malloc(). The leak checker asks for this by name. */
const char *__lsan_default_suppressions(void);
const char *
__lsan_default_suppressions(void)
{
    return "leak:wait_fill\n";
}

typedef struct pairs_world {
    const flow      *f;
    flow_ledger     *ledger;
    uint64_t         seed;
    stet__sim       *sim;
    stet__memory_db *db;
    stet__platform  *owner;
    const char      *where;
} pairs_world;

/* A worker: one engine on one node. */
typedef struct pairs_node {
    pairs_world    *world;
    stet__platform *p;
    shim_script    *script;
    bool            is_last; /* nothing goes wrong in this life: check */
} pairs_node;

static void
pairs_crash(void *arg)
{
    pairs_node *node = arg;

    flow_ledger_crash(node->world->ledger, node->p);
    stet__sim_node_crash(node->world->sim, node->p);
}

/* The node stands still for longer than its lease, and another takes over. */
static void
pairs_pause(void *arg)
{
    pairs_node *node = arg;

    stet__sim_node_pause(node->world->sim, node->p,
                         stet__sim_now_us(node->world->sim) + PAIRS_PAUSE_US);
}

static void
pairs_applied(void *arg, const stet_unit *unit)
{
    flow_ledger_applied(((pairs_node *)arg)->world->ledger, unit);
}

/* Ten thousand crashes make a long log; STET_TEST_LOG asks for it. */
static stet_level
pairs_level(void)
{
    return getenv("STET_TEST_LOG") != NULL ? STET_LOG_WARN : STET_LOG_OFF;
}

/* One life of a worker: a root fiber of its node. */
static void
pairs_life(void *arg)
{
    pairs_node  *node = arg;
    pairs_world *w = node->world;
    stet_store  *memory, *store;
    stet_engine *e;

    CHECK_OK(stet__memory_open(&memory, node->p, w->db));
    CHECK_OK(stet__shim_store_new(&store, memory, node->script));
    CHECK_OK(
        stet__open_on(&e, node->p, store, "memory:",
                      STET_OPTIONS(.concurrency = 2, .lease_ms = PAIRS_LEASE_MS, .renew_ms = 45,
                                   .sweep_ms = 40, .poll_ms = 40, .wait_poll_ms = 50,
                                   .log = flow_log, .log_level = pairs_level())));
    CHECK_OK(flow_register(e));
    CHECK_OK(stet_engine_start(e));
    flow_drive(w->f, e, w->ledger, PAIRS_LIMIT_MS, w->where);
    if (node->is_last)
        flow_check(w->f, e, w->ledger, w->where);
    stet_close(e);
}

static void
pairs_join(pairs_world *w, pairs_node *node, shim_script *script, bool is_last)
{
    *node = (pairs_node){ .world = w, .script = script, .is_last = is_last };
    if (script->crash == NULL)
        script->crash = pairs_crash;
    script->applied = pairs_applied;
    script->arg = node;
    CHECK((node->p = stet__sim_node_new(w->sim)) != NULL);
    CHECK_OK(stet__sim_spawn(w->sim, node->p, pairs_life, node));
}

static void
pairs_leave(pairs_world *w, pairs_node *node)
{
    if (stet__sim_node_is_alive(w->sim, node->p))
        stet__sim_node_crash(w->sim, node->p);
    stet__memory_db_forget(w->db, node->p);
}

static void
pairs_run(pairs_world *w)
{
    if (stet__sim_run(w->sim, INT64_MAX))
        return;
    stet__sim_dump(w->sim, stderr);
    test_fail(__FILE__, __LINE__, "%s: %s: nothing can go on", w->f->name, w->where);
}

static void
pairs_live(pairs_world *w, shim_script *script, bool is_last)
{
    pairs_node node;

    flow_ledger_begin(w->ledger);
    pairs_join(w, &node, script, is_last);
    pairs_run(w);
    pairs_leave(w, &node);
}

/* STET_TEST_SEED gives other interleavings. */
static uint64_t
pairs_seed(void)
{
    return (uint64_t)test_number("STET_TEST_SEED", 11);
}

static void
pairs_begin(pairs_world *w, const flow *f, flow_ledger *ledger, uint64_t seed, const char *where)
{
    *w = (pairs_world){ .f = f, .ledger = ledger, .seed = seed, .where = where };
    flow_ledger_clear(ledger);
    CHECK((w->sim = stet__sim_new(w->seed)) != NULL);
    CHECK((w->owner = stet__sim_node_new(w->sim)) != NULL);
    CHECK((w->db = stet__memory_db_new(w->owner)) != NULL);
}

/* A last life in which nothing goes wrong finishes and checks. */
static void
pairs_end(pairs_world *w)
{
    shim_script none = { .mode = SHIM_NONE };

    pairs_live(w, &none, true);
    stet__memory_db_free(w->db);
    stet__sim_free(w->sim);
}

/* Two lives that may crash and one that ends it. Scripts tell what happened. */
static void
pairs_play(const flow *f, flow_ledger *ledger, uint64_t seed, shim_script *first,
           shim_script *second)
{
    pairs_world w;
    char        where[128];

    (void)snprintf(where, sizeof where, "seed %llu, %s call %llu, then %s call %llu",
                   (unsigned long long)seed, stet__shim_mode_name(first->mode),
                   (unsigned long long)first->at, stet__shim_mode_name(second->mode),
                   (unsigned long long)second->at);
    pairs_begin(&w, f, ledger, seed, where);
    pairs_live(&w, first, false);
    pairs_live(&w, second, false);
    pairs_end(&w);
}

/* Two workers at the same time, both starting the same; one of them crashes, or stands still for
 * longer than its lease, and wakes. What it had executed and could not record is lost. */
static void
pairs_fleet(const flow *f, flow_ledger *ledger, uint64_t seed, shim_script *script,
            const char *what)
{
    shim_script none = { .mode = SHIM_NONE };
    pairs_world w;
    pairs_node  nodes[2];
    char        where[128];

    (void)snprintf(where, sizeof where, "seed %llu, one of two %s, %s call %llu",
                   (unsigned long long)seed, what, stet__shim_mode_name(script->mode),
                   (unsigned long long)script->at);
    pairs_begin(&w, f, ledger, seed, where);
    flow_ledger_begin(ledger);
    pairs_join(&w, &nodes[0], script, false);
    pairs_join(&w, &nodes[1], &none, false);
    pairs_run(&w);
    flow_ledger_crash(ledger, nodes[0].p);
    pairs_leave(&w, &nodes[0]);
    pairs_leave(&w, &nodes[1]);
    pairs_end(&w);
}

/* How many calls the first life makes if nothing goes wrong. */
static uint64_t
pairs_calls(const flow *f, flow_ledger *ledger)
{
    shim_script first = { .mode = SHIM_NONE }, second = { .mode = SHIM_NONE };

    pairs_play(f, ledger, pairs_seed(), &first, &second);
    CHECK_INT(flow_ledger_lost(ledger), 0);
    return atomic_load(&first.calls);
}

static size_t
pairs_stride(void)
{
    return (size_t)test_count("STET_TEST_PAIRS_STRIDE", 1);
}

static uint64_t
pairs_seeds(void)
{
    return (uint64_t)test_count("STET_TEST_PAIRS_SEEDS", 6);
}

static const shim_mode pairs_crashes[] = { SHIM_BEFORE, SHIM_AFTER };

/* All second crashes after one first crash. */
static void
pairs_second(const flow *f, flow_ledger *ledger, shim_mode mode, uint64_t at, size_t stride,
             size_t counts[3])
{
    shim_script first = { .mode = mode, .at = at }, second = { .mode = SHIM_NONE };
    uint64_t    calls;

    pairs_play(f, ledger, pairs_seed(), &first, &second);
    calls = atomic_load(&second.calls);
    counts[0]++;
    counts[2] += flow_ledger_lost(ledger);
    for (size_t m = 0; m < 2; m++)
        for (uint64_t j = 1 + at % stride; j <= calls; j += stride) {
            first = (shim_script){ .mode = mode, .at = at };
            second = (shim_script){ .mode = pairs_crashes[m], .at = j };
            pairs_play(f, ledger, pairs_seed(), &first, &second);
            CHECK(second.is_hit);
            counts[1]++;
            counts[2] += flow_ledger_lost(ledger);
        }
}

static void
pairs_all(const char *name, size_t stride)
{
    flow_ledger *ledger = flow_ledger_new();

    for (size_t i = 0; i < flows_n; i++) {
        uint64_t calls;
        size_t   counts[3] = { 0, 0, 0 };

        if (strcmp(flows[i].name, name) != 0)
            continue;
        calls = pairs_calls(&flows[i], ledger);
        for (uint64_t at = 1; at <= calls; at++)
            for (size_t m = 0; m < 2; m++)
                pairs_second(&flows[i], ledger, pairs_crashes[m], at, stride, counts);
        test_note("%s: %llu calls, %zu first crashes, %zu pairs (every %zu. second point), %zu "
                  "executions lost",
                  name, (unsigned long long)calls, counts[0], counts[1], stride, counts[2]);
        CHECK(counts[2] > 0);
    }
}

/* Lost replies and failed commits end no process; everything ends right all the same, and nothing
 * twice. */
static void
pairs_replies(const flow *f, flow_ledger *ledger, uint64_t seed, size_t *points)
{
    static const shim_mode modes[] = { SHIM_LOSE, SHIM_FAIL };

    for (size_t m = 0; m < 2; m++)
        for (uint64_t at = 1;; at++) {
            shim_script first = { .mode = modes[m], .which = SHIM_WRITES, .at = at },
                        second = { .mode = SHIM_NONE };

            pairs_play(f, ledger, seed, &first, &second);
            CHECK_INT(flow_ledger_lost(ledger), 0);
            if (at > atomic_load(&first.calls))
                break;
            *points += first.is_hit;
        }
}

TEST_LIMIT(C6_lost_replies_and_failed_commits_repeat_nothing, 120)
{
    flow_ledger *ledger = flow_ledger_new();
    size_t       points = 0;

    for (uint64_t seed = pairs_seed(); seed < pairs_seed() + pairs_seeds(); seed++)
        for (size_t i = 0; i < flows_n; i++)
            pairs_replies(&flows[i], ledger, seed, &points);
    test_note("%zu workflows, %llu seeds, %zu points", flows_n, (unsigned long long)pairs_seeds(),
              points);
}

/* The fault at each call of one worker in turn. */
static void
pairs_fleet_calls(const flow *f, flow_ledger *ledger, uint64_t seed, shim_mode mode,
                  void (*fault)(void *arg), const char *what, size_t counts[2])
{
    bool is_hit = true;

    for (uint64_t at = 1; is_hit; at++) {
        shim_script script = { .mode = mode, .at = at, .crash = fault };

        pairs_fleet(f, ledger, seed, &script, what);
        is_hit = script.is_hit;
        counts[0] += is_hit;
        counts[1] += flow_ledger_lost(ledger);
    }
}

static void
pairs_fleets(void (*fault)(void *arg), const char *what)
{
    flow_ledger *ledger = flow_ledger_new();
    size_t       counts[2] = { 0, 0 };

    for (uint64_t seed = pairs_seed(); seed < pairs_seed() + pairs_seeds(); seed++)
        for (size_t i = 0; i < flows_n; i++)
            for (size_t m = 0; m < 2; m++)
                pairs_fleet_calls(&flows[i], ledger, seed, pairs_crashes[m], fault, what, counts);
    test_note("%zu workflows, %llu seeds, %zu points, %zu executions lost", flows_n,
              (unsigned long long)pairs_seeds(), counts[0], counts[1]);
    CHECK(counts[1] > 0);
}

TEST_LIMIT(C6_one_of_two_workers_crashes_at_every_call, 120)
{
    pairs_fleets(pairs_crash, "crashes");
}
TEST_LIMIT(C6_one_of_two_workers_pauses_beyond_its_lease_at_every_call, 120)
{
    pairs_fleets(pairs_pause, "pauses");
}

#define PAIRS_TEST(id, name)                                                                       \
    TEST_LIMIT(C6_pairs_of_crashes_##id, 300)                                                     \
    {                                                                                              \
        pairs_all(name, pairs_stride());                                                           \
    }

PAIRS_TEST(steps, "steps")
PAIRS_TEST(sleep, "sleep")
PAIRS_TEST(child, "child")
PAIRS_TEST(awakeable, "awakeable")
PAIRS_TEST(settled_by_a_run, "settled by a run")
PAIRS_TEST(object, "object")
PAIRS_TEST(dead_letters, "dead letters")
PAIRS_TEST(torn_futures, "torn futures")
PAIRS_TEST(first_of_with_timeout, "first of with timeout")
PAIRS_TEST(signals, "signals")
PAIRS_TEST(events, "events")
PAIRS_TEST(rollback, "rollback")
PAIRS_TEST(late_listener, "late listener")
PAIRS_TEST(late_resume, "late resume")

/* Each generation ends once, with all its words, whatever crashes. */
TEST_LIMIT(B22_pairs_of_crashes_generations, 300)
{
    pairs_all("generations", pairs_stride());
}

/* Many calls: somebody looks again and again. */
TEST_LIMIT(C8_pairs_of_crashes_operators, 300)
{
    pairs_all("operators", 4 * pairs_stride());
}

/* Both of its times start one run each, whatever crashes. */
TEST_LIMIT(E3_pairs_of_crashes_schedule, 300)
{
    pairs_all("schedule", pairs_stride());
}

/* What was answered stays, and is made once. */
TEST_LIMIT(I12_pairs_of_crashes_updates, 300)
{
    pairs_all("updates", pairs_stride());
}

/* A decision that was acknowledged is the one its run gets; a shared handler reads beside it. */
TEST_LIMIT(B15_A3_pairs_of_crashes_people, 300)
{
    pairs_all("people", 2 * pairs_stride());
}

/* Inherited steps are not done again, whoever crashes; a fork that was acknowledged is there. */
TEST_LIMIT(I12_pairs_of_crashes_forks, 300)
{
    pairs_all("forks", pairs_stride());
}

TEST_LIMIT(B11_C2_pairs_of_crashes_mended_rollback, 300)
{
    pairs_all("mended rollback", 4 * pairs_stride());
}

/* Who wants the same key has it in the order in which they came, one at a time. */
TEST_LIMIT(A2_pairs_of_crashes_crowd, 300)
{
    pairs_all("crowd", 4 * pairs_stride());
}

TEST_LIMIT(C8_pairs_of_crashes_halted_handler, 300)
{
    pairs_all("halted handler", pairs_stride());
}
