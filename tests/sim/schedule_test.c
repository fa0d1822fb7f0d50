/* Schedules over weeks of virtual time: workers come, race, are killed, and for days there is none.
 * In the end each planned time was fired once or skipped, and each firing is one run. */
#include "engine/engine.h"
#include "store/memory.h"
#include "test.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_US  (24 * HOUR_MS * 1000)

/* A node that is killed takes its memory along, except results: those are the caller's and come
 * from malloc(). The leak checker asks for this by name. */
const char *__lsan_default_suppressions(void);
const char *
__lsan_default_suppressions(void)
{
    return "leak:wait_fill\n";
}

enum { SEEDS = 30, PHASES = 8, NODES_MAX = 3 };

typedef struct world {
    stet__sim       *sim;
    stet__memory_db *db;
    uint64_t         seed;
} world;

typedef struct node {
    world          *w;
    stet__platform *p;
    bool            is_last;
} node;

static int
h_quick(stet_ctx *ctx, stet_bytes input)
{
    return stet_return(ctx, input);
}

/* Longer than the interval of its schedule. */
static int
h_slow(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "work", "7h"));
    return stet_return(ctx, input);
}

static const stet_handler handlers[] = { { "quick", h_quick, NULL },
                                         { "slow", h_slow, NULL },
                                         { 0 } };

/* Twice a day, on days that clocks shift as well. */
static const char *const cron_text = "30 2,14 * * *", *const cron_zone = "Europe/Berlin";

static void
ensure(stet_engine *e, const char *name, const char *handler, const stet_schedule_options *o)
{
    CHECK_OK(stet_schedule_ensure(e, NULL, name, handler, stet_text("{}"), o));
}

static void
pass(stet__platform *p, int64_t us)
{
    int64_t     until_us = stet__mono_us(p) + us;
    stet__cond  cond;
    stet__mutex lock;

    CHECK_OK(p->ops->cond_init(p, &cond));
    CHECK_OK(p->ops->mutex_init(p, &lock));
    stet__lock(p, &lock);
    while (stet__mono_us(p) < until_us)
        (void)stet__wait(p, &cond, &lock, until_us);
    stet__unlock(p, &lock);
    p->ops->mutex_destroy(p, &lock);
    p->ops->cond_destroy(p, &cond);
}

/* ---- the end -------------------------------------------------------------------------------- */

typedef struct seen {
    int64_t  created_ms, last_ms, next_ms, waiting_ms;
    uint64_t fired, skipped;
    /* by the ledger */
    uint64_t ran, left_out;
    int64_t  before_ms;
} seen;

static int
on_schedule(void *arg, const stet_schedule_info *i)
{
    *(seen *)arg = (seen){ i->created_ms, i->last_ms, i->next_ms, i->waiting_ms,
                           i->fired,      i->skipped, 0,          0,
                           INT64_MAX };
    return STET_OK;
}

static int
on_occurrence(void *arg, const stet_occurrence_info *i)
{
    seen *s = arg;

    CHECK(i->until_ms < s->before_ms); /* in order, without a time twice */
    CHECK(i->time_ms >= i->until_ms);  /* never early */
    s->before_ms = i->planned_ms;
    s->ran += i->outcome == STET_OCCURRENCE_RAN;
    s->left_out += i->outcome == STET_OCCURRENCE_SKIPPED ? i->count : 0;
    return STET_OK;
}

static int
on_run(void *arg, const stet_run_info *info)
{
    CHECK(info->created_ms > 0);
    (*(uint64_t *)arg)++;
    return STET_OK;
}

static int
on_finding(void *arg, const stet_finding *finding)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "%s: %s", finding->rule, finding->text);
}

/* How many times were planned after it was made, up to the last one that was dealt with. */
static uint64_t
planned(const stet_cron *cron, const seen *s, int64_t every_ms)
{
    uint64_t n = 0;
    int64_t  at_ms = s->created_ms;

    if (cron == NULL)
        return (uint64_t)((s->last_ms - s->created_ms) / every_ms);
    while (stet_cron_next(cron, &at_ms, at_ms) == STET_OK && at_ms <= s->last_ms)
        n++;
    return n;
}

static seen
check(stet_engine *e, const char *name, const char *handler, const stet_cron *cron,
      int64_t every_ms)
{
    uint64_t runs = 0;
    seen     s;

    CHECK_OK(stet_schedule_get(e, name, on_schedule, &s));
    CHECK_OK(stet_schedule_history(e, name, STET_SCHEDULE_HISTORY_MAX, on_occurrence, &s));
    CHECK_OK(stet_run_list(e, STET_FILTER(.handler = handler, .limit = 100000), on_run, &runs));
    CHECK_INT(s.fired + s.skipped + (s.waiting_ms != 0), planned(cron, &s, every_ms));
    CHECK_INT(s.ran, s.fired);
    CHECK_INT(s.left_out, s.skipped);
    CHECK_INT(runs, s.fired);
    CHECK(s.next_ms > stet_engine_now_ms(e));
    CHECK(s.fired > 0);
    return s;
}

/* ---- workers -------------------------------------------------------------------------------- */

static void
live(void *arg)
{
    node        *n = arg;
    stet_store  *store;
    stet_engine *e;
    stet_cron   *cron;

    CHECK_OK(stet__memory_open(&store, n->p, n->w->db));
    CHECK_OK(stet__open_on(&e, n->p, store, "memory:",
                           STET_OPTIONS(.concurrency = 2, .poll_ms = HOUR_MS,
                                        .sweep_ms = HOUR_MS, .lease_ms = HOUR_MS,
                                        .renew_ms = HOUR_MS / 3, .retention_ms = 1000 * 24 * HOUR_MS,
                                        .log_level = STET_LOG_OFF)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    ensure(e, "cron", "t.quick", STET_SCHEDULE(.cron = cron_text, .zone = cron_zone));
    ensure(e, "slow", "t.slow",
           STET_SCHEDULE(.every = "6h", .overlap = STET_OVERLAP_QUEUE, .missed = STET_MISSED_ALL,
                         .missed_max = 3));
    if (!n->is_last)
        pass(n->p, 1000 * DAY_US);
    pass(n->p, HOUR_MS * 1000);
    CHECK_OK(stet_cron_parse(&cron, cron_text, cron_zone));
    CHECK(check(e, "cron", "t.quick", cron, 0).skipped > 0);
    CHECK(check(e, "slow", "t.slow", NULL, 6 * HOUR_MS).skipped > 0);
    stet_cron_free(cron);
    CHECK_OK(stet_verify(e, NULL, on_finding, NULL));
    stet_close(e);
}

static void
nobody(void *arg)
{
    node *n = arg;

    pass(n->p, (int64_t)(stet__sim_random(n->w->sim) % (3 * (uint64_t)DAY_US)));
}

static node
join(world *w, void (*fn)(void *arg), node *n, bool is_last)
{
    *n = (node){ .w = w, .is_last = is_last };
    CHECK((n->p = stet__sim_node_new(w->sim)) != NULL);
    CHECK_OK(stet__sim_spawn(w->sim, n->p, fn, n));
    return *n;
}

static void
leave(world *w, node *n)
{
    if (stet__sim_node_is_alive(w->sim, n->p))
        stet__sim_node_crash(w->sim, n->p);
    stet__memory_db_forget(w->db, n->p);
}

/* Some of them, killed at some moment; then nobody for a while. */
static void
phase(world *w)
{
    node    nodes[NODES_MAX], alone;
    size_t  n = 1 + stet__sim_random(w->sim) % NODES_MAX;
    int64_t until_us = stet__sim_now_us(w->sim) + HOUR_MS * 1000 +
                       (int64_t)(stet__sim_random(w->sim) % (6 * (uint64_t)DAY_US));

    for (size_t i = 0; i < n; i++)
        (void)join(w, live, &nodes[i], false);
    CHECK(!stet__sim_run(w->sim, until_us));
    for (size_t i = 0; i < n; i++)
        leave(w, &nodes[i]);
    (void)join(w, nobody, &alone, false);
    CHECK(stet__sim_run(w->sim, INT64_MAX));
    leave(w, &alone);
}

TEST_LIMIT(E3_over_weeks_each_planned_time_is_one_run_or_a_skip, 120)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world           w = { .seed = seed };
        stet__platform *owner;
        node            last;

        CHECK((w.sim = stet__sim_new(seed)) != NULL);
        CHECK((owner = stet__sim_node_new(w.sim)) != NULL);
        CHECK((w.db = stet__memory_db_new(owner)) != NULL);
        for (int i = 0; i < PHASES; i++)
            phase(&w);
        (void)join(&w, live, &last, true);
        if (!stet__sim_run(w.sim, INT64_MAX)) {
            stet__sim_dump(w.sim, stderr);
            test_fail(__FILE__, __LINE__, "seed %llu: nothing can go on", (unsigned long long)seed);
        }
        leave(&w, &last);
        stet__memory_db_free(w.db);
        stet__sim_free(w.sim);
    }
}
