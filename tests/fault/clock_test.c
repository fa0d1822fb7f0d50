/* Somebody sets the machine's clock by an hour or a day, forwards or back, while two workers are at
 * it on one SQLite file: no lease is lost or stolen, no timer fires early, none comes a day late,
 * and the store's clock never goes back. The platform of both engines is one machine whose clock
 * can be set.
 */
#include "test.h"

#ifdef STET_WITH_SQLITE
#include "engine/engine.h"
#include "fault_platform.h"
#include "fixture.h"

enum { CLOCK_HOUR_MS = 3600000, CLOCK_DAY_MS = 86400000 };

typedef struct clock_world {
    fault_platform p;
    stet_engine   *worker[2];
    const char    *db;
} clock_world;

static gate        clock_gate = GATE_INIT;
static _Atomic int clock_bodies, clock_fenced;

static void
clock_log(void *arg, const stet_log_record *r)
{
    (void)arg;
    if (r->code == STET_EFENCED || strstr(r->message, "is gone; its") != NULL) {
        (void)fprintf(stderr, "%s\n", r->message);
        atomic_fetch_add(&clock_fenced, 1);
    }
}

static int
clock_body(stet_attempt *a, void *arg)
{
    (void)arg;
    atomic_fetch_add(&clock_bodies, 1);
    CHECK(!stet_attempt_is_at_risk(a));
    gate_pass(&clock_gate);
    return STET_OK;
}

static int
clock_hold(stet_ctx *c, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(c, NULL, "hold", clock_body, NULL, NULL));
    return stet_return(c, stet_text("held"));
}

static int
clock_nap(stet_ctx *c, stet_bytes input)
{
    int64_t from_ms, to_ms, nap_ms = fixture_number(input);

    STET_TRY(stet_now(c, &from_ms));
    STET_TRY(stet_sleep_ms(c, "nap", nap_ms));
    STET_TRY(stet_now(c, &to_ms));
    return stet_return(c, stet_text(to_ms - from_ms >= nap_ms ? "rested" : "early"));
}

static stet_engine *
clock_open(clock_world *w)
{
    static const stet_handler handlers[] = { { "hold", clock_hold, NULL },
                                             { "nap", clock_nap, NULL },
                                             { 0 } };
    stet_store               *store;
    stet_engine              *e;

    CHECK_OK(stet__store_open(&store, &w->p.base, w->db));
    CHECK_OK(
        stet__open_on(&e, &w->p.base, store, w->db,
                      STET_OPTIONS(.lease_ms = 2000, .renew_ms = 100, .sweep_ms = 20, .poll_ms = 20,
                                   .wait_poll_ms = 20, .concurrency = 2, .log = clock_log)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    return e;
}

static void
clock_begin(clock_world *w)
{
    fault_platform_init(&w->p);
    w->db = test_path("clock.db");
    for (size_t i = 0; i < 2; i++)
        w->worker[i] = clock_open(w);
}

static void
clock_end(clock_world *w)
{
    for (size_t i = 0; i < 2; i++)
        stet_close(w->worker[i]);
}

typedef struct clock_seen {
    int64_t seen_ms[2];
    size_t  n;
} clock_seen;

static int
clock_on_worker(void *arg, const stet_worker_info *info)
{
    clock_seen *seen = arg;

    CHECK(!info->is_dead);
    CHECK(seen->n < 2);
    seen->seen_ms[seen->n++] = info->seen_ms;
    return STET_OK;
}

static int
clock_on_finding(void *arg, const stet_finding *f)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "verify: %s: %s", f->rule, f->text);
    return STET_OK;
}

static clock_seen
clock_look(clock_world *w)
{
    clock_seen seen = { { 0 }, 0 };

    CHECK_OK(stet_worker_list(w->worker[0], clock_on_worker, &seen));
    CHECK_INT(seen.n, 2);
    return seen;
}

/* Both workers have renewed their leases so many times more; they sweep in between. */
static void
clock_renewals(clock_world *w, int times)
{
    for (int i = 0; i < times; i++) {
        clock_seen before = clock_look(w);

        AWAIT(clock_look(w).seen_ms[0] > before.seen_ms[0]);
        AWAIT(clock_look(w).seen_ms[1] > before.seen_ms[1]);
    }
}

static void
clock_is_set(int64_t by_ms)
{
    static clock_world w;
    stet_run_id        held, hour, moment;
    int64_t            before_ms;

    clock_begin(&w);
    held = fixture_start(w.worker[0], "t.hold", "", NULL);
    gate_await(&clock_gate, 1);
    hour = fixture_start(w.worker[0], "t.nap", "3600000", NULL);
    moment = fixture_start(w.worker[0], "t.nap", "400", NULL);
    fixture_await_status(w.worker[0], &hour, STET_STATUS_SUSPENDED);
    before_ms = stet_engine_now_ms(w.worker[1]);
    fault_platform_set_clock(&w.p, by_ms);
    CHECK(stet_engine_now_ms(w.worker[0]) >= before_ms);
    /* Nobody loses what he has, and who waits for a moment does not wait for a day. */
    clock_renewals(&w, 5);
    EXPECT_RESULT(w.worker[1], &moment, "rested");
    CHECK_INT(fixture_look(w.worker[0], &hour).status, STET_STATUS_SUSPENDED);
    gate_open(&clock_gate);
    EXPECT_RESULT(w.worker[0], &held, "held");
    CHECK_INT(atomic_load(&clock_bodies), 1);
    CHECK_INT(atomic_load(&clock_fenced), 0);
    /* The machine sleeps for an hour, of which the store's clock counts 7/8 at the least. */
    fault_platform_skip(&w.p, CLOCK_HOUR_MS / 7 * 8 + 1000);
    EXPECT_RESULT(w.worker[1], &hour, "rested");
    CHECK_OK(stet_verify(w.worker[0], NULL, clock_on_finding, NULL));
    clock_end(&w);
}

TEST(G3_the_clock_is_set_an_hour_forwards)
{
    clock_is_set(CLOCK_HOUR_MS);
}

TEST(G3_the_clock_is_set_a_day_forwards)
{
    clock_is_set(CLOCK_DAY_MS);
}

TEST(G3_the_clock_is_set_an_hour_back)
{
    clock_is_set(-CLOCK_HOUR_MS);
}

TEST(G3_the_clock_is_set_a_day_back)
{
    clock_is_set(-CLOCK_DAY_MS);
}

/* ---- the clock itself ------------------------------------------------------------------------ */

static int64_t
clock_now(stet_store *s)
{
    return s->ops->now_ms(s);
}

/* By less than a second, whatever goes by between two looks. */
static bool
clock_follows(stet_store *s, fault_platform *p)
{
    int64_t before_ms = stet__wall_ms(&p->base), now_ms = clock_now(s);

    return now_ms > before_ms - 1000 && now_ms < stet__wall_ms(&p->base) + 1000;
}

static int64_t
clock_mono_ms(void)
{
    return stet__mono_us(stet__platform_real()) / 1000;
}

TEST(G3_the_stores_clock_follows_the_machines_without_ever_going_back)
{
    fault_platform p;
    stet_store    *s;
    int64_t        last_ms, now_ms, looked_ms;

    fault_platform_init(&p);
    CHECK_OK(stet__store_open(&s, &p.base, test_path("follow.db")));
    CHECK(clock_follows(s, &p));
    last_ms = clock_now(s);
    fault_platform_set_clock(&p, -CLOCK_HOUR_MS);
    CHECK(clock_now(s) >= last_ms);
    looked_ms = clock_mono_ms();
    last_ms = clock_now(s);
    for (int minute = 0; minute < 9 * 60; minute++) {
        int64_t here_ms = clock_mono_ms();

        fault_platform_skip(&p, 60000);
        now_ms = clock_now(s);
        /* At least 7/8 of the time that went by, and on a machine that is not at rest what went by
         * meanwhile. */
        CHECK(now_ms - last_ms >= 60000 / 8 * 7 - 1);
        CHECK(now_ms - last_ms < 61000 + clock_mono_ms() - looked_ms);
        last_ms = now_ms;
        looked_ms = here_ms;
    }
    CHECK(clock_follows(s, &p));
    fault_platform_set_clock(&p, CLOCK_HOUR_MS);
    for (int minute = 0; minute < 9 * 60; minute++)
        fault_platform_skip(&p, 60000), (void)clock_now(s);
    CHECK(clock_follows(s, &p));
    stet__store_close(s);
}

/* The process went and came again meanwhile: the live file remembers. */
TEST(G3_a_clock_set_between_two_processes_moves_nothing)
{
    fault_platform p;
    stet_store    *s;
    int64_t        before_ms, now_ms;

    fault_platform_init(&p);
    CHECK_OK(stet__store_open(&s, &p.base, test_path("between.db")));
    before_ms = clock_now(s);
    stet__store_close(s);
    fault_platform_set_clock(&p, CLOCK_DAY_MS);
    CHECK_OK(stet__store_open(&s, &p.base, test_path("between.db")));
    now_ms = clock_now(s);
    CHECK(now_ms >= before_ms && now_ms < before_ms + CLOCK_HOUR_MS);
    stet__store_close(s);
}

/* A machine that began in 1970 and was told the time later. */
TEST(G3_a_clock_that_was_wrong_by_years_is_believed_at_once)
{
    fault_platform p;
    stet_store    *s;

    fault_platform_init(&p);
    fault_platform_set_clock(&p, -20000LL * CLOCK_DAY_MS);
    CHECK_OK(stet__store_open(&s, &p.base, test_path("years.db")));
    (void)clock_now(s);
    fault_platform_set_clock(&p, 20000LL * CLOCK_DAY_MS);
    CHECK(clock_follows(s, &p));
    stet__store_close(s);
}
#else
TEST(G3_clocks)
{
    test_skip("built without SQLite");
}
#endif
