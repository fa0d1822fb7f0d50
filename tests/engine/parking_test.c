/* Bodies that block, and runs that are parked meanwhile. Row C9. tsan: yes */
#include "engine/engine.h"
#include "fixture.h"

static gate c9_door = GATE_INIT;

static int
h_c9_block(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "block", body_gate, &c9_door, NULL));
    return stet_return(ctx, input);
}

static int
h_c9_naps(stet_ctx *ctx, stet_bytes input)
{
    for (int i = 0; i < 3; i++) {
        STET_TRY(stet_step(ctx, NULL, "work", body_effect, (void *)"work", NULL));
        STET_TRY(stet_sleep_ms(ctx, "nap", 5));
    }
    return stet_return(ctx, input);
}

static const stet_handler c9_handlers[] = {
    { "block", h_c9_block, NULL }, { "naps", h_c9_naps, NULL }, { "quick", h_quick, NULL }, { 0 }
};

TEST(C9_others_finish_while_all_slots_but_one_are_blocked)
{
    fixture    *f = fixture_begin();
    stet_run_id blocked[3], runs[24];

    f->options.concurrency = 4;
    fixture_up_with(f, c9_handlers);
    for (int i = 0; i < 3; i++)
        blocked[i] = fixture_start(f->engine, "t.block", "b", NULL);
    gate_await(&c9_door, 3);
    for (int i = 0; i < 24; i++)
        runs[i] = fixture_start(f->engine, i % 2 ? "t.naps" : "t.quick", "ok", NULL);
    for (int i = 0; i < 24; i++)
        EXPECT_RESULT(f->engine, &runs[i], "ok");
    gate_open(&c9_door);
    for (int i = 0; i < 3; i++)
        EXPECT_RESULT(f->engine, &blocked[i], "b");
    fixture_end(f);
}

static int
h_c9_group(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep_ms(ctx, "nap", 150)); /* parked on the slot it began on */
    STET_TRY(stet_step(ctx, NULL, "work", body_effect, (void *)"group", NULL));
    return stet_return(ctx, input);
}

TEST(C9_a_run_parked_on_a_slot_that_is_now_blocked_goes_on_elsewhere)
{
    static const stet_handler handlers[] = { { "block", h_c9_block, NULL },
                                             { "group", h_c9_group, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               blocked[3], runs[24];

    f->options.concurrency = 4;
    fixture_up_with(f, handlers);
    for (int i = 0; i < 24; i++) /* spread over all slots, then parked there */
        runs[i] = fixture_start(f->engine, "t.group", "ok", NULL);
    for (int i = 0; i < 3; i++)
        blocked[i] = fixture_start(f->engine, "t.block", "b", NULL);
    gate_await(&c9_door, 3);
    for (int i = 0; i < 24; i++)
        EXPECT_RESULT(f->engine, &runs[i], "ok");
    CHECK_INT(effects("group"), 24);
    gate_open(&c9_door);
    for (int i = 0; i < 3; i++)
        EXPECT_RESULT(f->engine, &blocked[i], "b");
    fixture_end(f);
}

static int
h_c9_told(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)"before", NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, input);
}

/* What is left of them on the blocked slot takes nothing that others need. */
TEST(C9_C6_runs_without_number_go_on_elsewhere_while_a_slot_is_blocked)
{
    enum { TOLD = 160 };
    static const stet_handler handlers[] = { { "block", h_c9_block, NULL },
                                             { "told", h_c9_told, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               blocked, runs[TOLD];

    f->options.concurrency = 2;
    f->options.in_flight_max = 4;
    fixture_up_with(f, handlers);
    for (int i = 0; i < TOLD; i++)
        runs[i] = fixture_start(f->engine, "t.told", "ok", NULL);
    for (int i = 0; i < TOLD; i++)
        fixture_await_status(f->engine, &runs[i], STET_STATUS_SUSPENDED);
    blocked = fixture_start(f->engine, "t.block", "b", NULL);
    gate_await(&c9_door, 1);
    for (int i = 0; i < TOLD; i++)
        CHECK_OK(stet_signal(f->engine, &runs[i], "go", stet_text(""), NULL));
    for (int i = 0; i < TOLD; i++)
        EXPECT_RESULT(f->engine, &runs[i], "ok");
    CHECK_INT(effects("after"), TOLD);
    CHECK_INT(fixture_logged(f, "too many bodies"), 0);
    gate_open(&c9_door);
    EXPECT_RESULT(f->engine, &blocked, "b");
    fixture_end(f);
}

#define C9_PARKED 20

static char c9_awakeables[C9_PARKED][STET_ID_TEXT_MAX];

typedef struct c9_hand {
    int         at;
    const char *id;
} c9_hand;

static int
body_c9_hand_out(stet_attempt *a, void *arg)
{
    c9_hand *h = arg;

    (void)a;
    (void)snprintf(c9_awakeables[h->at], sizeof c9_awakeables[0], "%s", h->id);
    effect("handed out");
    return STET_OK;
}

/* A handler that swallows errors: once it is let go, nothing it does may count. */
static int
h_c9_stubborn(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id = { "" };
    stet_future      *future = NULL;
    stet_bytes        out = { NULL, 0 };
    c9_hand           hand;
    int               err;

    err = stet_awakeable(ctx, &id, &future, "go");
    hand.at = (int)fixture_number(input);
    hand.id = id.text;
    err = stet_step(ctx, NULL, "hand out", body_c9_hand_out, &hand, NULL);
    if (future != NULL)
        err = stet_await(ctx, &out, future);
    if (err == STET_SUSPENDED) {
        stet_run_id sent;

        effect("ignored");
        CHECK_INT(stet_step(ctx, NULL, "wrong", body_effect, (void *)"wrong", NULL),
                  STET_SUSPENDED);
        CHECK_INT(stet_sleep(ctx, "wrong", "1ms"), STET_SUSPENDED);
        CHECK_INT(stet_send(ctx, &sent, "t.quick", stet_text("wrong"), NULL), STET_SUSPENDED);
        CHECK_INT(stet_await(ctx, &out, future), STET_SUSPENDED);
        CHECK_INT(stet_return(ctx, stet_text("wrong")), STET_SUSPENDED);
        return STET_OK;
    }
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, out);
}

static void
c9_park_many(int64_t parked_max)
{
    static const stet_handler handlers[] = { { "h", h_c9_stubborn, NULL },
                                             { "quick", h_quick, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[C9_PARKED];

    f->options.parked_max = parked_max;
    fixture_up_with(f, handlers);
    for (int i = 0; i < C9_PARKED; i++) {
        char input[8];

        (void)snprintf(input, sizeof input, "%d", i);
        runs[i] = fixture_start(f->engine, "t.h", input, NULL);
    }
    for (int i = 0; i < C9_PARKED; i++)
        fixture_await_status(f->engine, &runs[i], STET_STATUS_SUSPENDED);
    for (int i = 0; i < C9_PARKED; i++)
        CHECK_OK(stet_resolve(f->engine, c9_awakeables[i], stet_text("gone on")));
    for (int i = 0; i < C9_PARKED; i++)
        EXPECT_RESULT(f->engine, &runs[i], "gone on");
    CHECK_INT(effects("handed out"), C9_PARKED);
    CHECK_INT(effects("after"), C9_PARKED);
    CHECK_INT(effects("wrong"), 0);
    CHECK_INT(effects("quick"), 0);
    CHECK_INT(fixture_count(f->engine, NULL), C9_PARKED);
    if (parked_max < C9_PARKED) /* unwound by their slots when those come to it */
        AWAIT(effects("ignored") >= C9_PARKED - (parked_max > 0 ? (int)parked_max : 0));
    fixture_end(f);
}

TEST(C9_parked_runs_beyond_the_limit_are_let_go_and_still_finish)
{
    c9_park_many(2);
}

TEST(C9_with_nothing_parked_suspended_latches_and_ignoring_it_does_no_harm)
{
    c9_park_many(STET_NONE);
}

/* ---- commits that wait for runs woken together ----------------------------------------------- */

static stet_engine        *a10_engine;
static atomic_uint         a10_asked;
static atomic_int          a10_forgotten, a10_waits;

/* By the committer's clock a third of all looks come when nothing is to be waited for any more. */
static int64_t
a10_mono_us(stet__platform *p)
{
    int64_t us = stet__platform_real()->ops->mono_us(p);

    return atomic_fetch_add(&a10_asked, 1) % 3 == 2 ? us + 100000 : us;
}

static bool
a10_wait(stet__platform *p, stet__cond *c, stet__mutex *m, int64_t until_us)
{
    stet__committer *k = a10_engine != NULL ? &a10_engine->committer : NULL;

    if (k != NULL && c == &k->cond && k->first != NULL && !k->is_busy) {
        atomic_fetch_add(&a10_waits, 1);
        atomic_fetch_add(&a10_forgotten, until_us == STET__FOREVER);
        if (until_us == STET__FOREVER)
            until_us = stet__mono_us(p) + 1000; /* the test is to come to its end all the same */
    }
    return stet__platform_real()->ops->cond_wait(p, c, m, until_us);
}

static int
h_a10_naps(stet_ctx *ctx, stet_bytes input)
{
    for (int i = 0; i < 40; i++)
        STET_TRY(stet_sleep_ms(ctx, "nap", 3));
    return stet_return(ctx, input);
}

TEST(A10_a_commit_that_waits_for_runs_woken_together_never_waits_for_ever)
{
    static const stet_handler handlers[] = { { "naps", h_a10_naps, NULL }, { 0 } };
    const fixture_service     services[] = { { "t", handlers, false, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet__platform            platform = *stet__platform_real();
    stet__platform_ops        ops = *platform.ops;
    stet__memory_db          *db;
    stet_store               *store;
    stet_run_id               runs[12];

    ops.mono_us = a10_mono_us;
    ops.cond_wait = a10_wait;
    platform.ops = &ops;
    /* Its own store: others let batches grow, and nothing waits for more. */
    CHECK((db = stet__memory_db_new(stet__platform_real())) != NULL);
    CHECK_OK(stet__memory_open(&store, &platform, db));
    CHECK_OK(stet__open_on(&f->engine, &platform, store, f->url, &f->options));
    a10_engine = f->engine;
    fixture_register(f->engine, services);
    CHECK_OK(stet_engine_start(f->engine));
    for (int i = 0; i < 12; i++)
        runs[i] = fixture_start(f->engine, "t.naps", "ok", NULL);
    for (int i = 0; i < 12; i++)
        EXPECT_RESULT(f->engine, &runs[i], "ok");
    test_note("%d waits for more", atomic_load(&a10_waits));
    fixture_down(f);
    CHECK(atomic_load(&a10_waits) > 0);
    CHECK_INT(atomic_load(&a10_forgotten), 0);
    a10_engine = NULL;
    stet__memory_db_free(db);
    fixture_end(f);
}
