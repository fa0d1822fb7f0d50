/* How much is done at once, and stopping. Row C7. tsan: yes */
#include "fixture.h"

static _Atomic int c7_inside, c7_most;

static int
body_gauge(stet_attempt *a, void *arg)
{
    int inside = atomic_fetch_add(&c7_inside, 1) + 1, most = atomic_load(&c7_most);

    (void)a;
    (void)arg;
    while (inside > most && !atomic_compare_exchange_weak(&c7_most, &most, inside))
        ;
    fixture_breathe();
    atomic_fetch_sub(&c7_inside, 1);
    return STET_OK;
}

static int
h_gauge(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[3];

    STET_TRY(stet_step(ctx, NULL, "one", body_gauge, NULL, NULL));
    for (int i = 0; i < 3; i++)
        STET_TRY(stet_step_start(ctx, &futures[i], "many", body_gauge, NULL, NULL));
    STET_TRY(stet_await_all(ctx, futures, 3));
    return stet_return(ctx, input);
}

TEST(C7_no_more_bodies_run_at_once_than_there_are_slots)
{
    static const stet_handler handlers[] = { { "h", h_gauge, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[30];

    f->options.concurrency = 3;
    fixture_up_with(f, handlers);
    for (int i = 0; i < 30; i++)
        runs[i] = fixture_start(f->engine, "t.h", "ok", NULL);
    for (int i = 0; i < 30; i++)
        EXPECT_RESULT(f->engine, &runs[i], "ok");
    CHECK(atomic_load(&c7_most) <= 3);
    test_note("%d at once", atomic_load(&c7_most));
    fixture_end(f);
}

static gate c7_door = GATE_INIT;

static int
h_c7_door(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "before", body_effect, (void *)"before", NULL));
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &c7_door, NULL));
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, input);
}

static const stet_handler c7_handlers[] = { { "door", h_c7_door, NULL },
                                            { "quick", h_quick, NULL },
                                            { 0 } };

static gate *c7_together;

static int
h_c7_together(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, c7_together, NULL));
    return stet_return(ctx, input);
}

static const stet_handler c7_together_handlers[] = { { "door", h_c7_together, NULL }, { 0 } };

TEST(C7_in_flight_max_holds)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[8];
    stet_health health;

    f->options.in_flight_max = 2;
    fixture_up_with(f, c7_handlers);
    for (int i = 0; i < 8; i++)
        runs[i] = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&c7_door, 2);
    CHECK_OK(stet_health_get(f->engine, &health));
    CHECK_INT(health.in_flight, 2);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.statuses = 1u << STET_STATUS_RUNNING)), 2);
    gate_open(&c7_door);
    for (int i = 0; i < 8; i++)
        EXPECT_RESULT(f->engine, &runs[i], "ok");
    fixture_end(f);
}

/* Units that are on their way together may not each be granted the last place. */
TEST(C7_in_flight_max_holds_for_starts_that_share_a_commit)
{
    static gate        door = GATE_INIT;
    fixture           *f = fixture_begin();
    stet_start_request requests[8] = { { 0 } };
    stet_health        health;

    c7_together = &door;
    f->options.in_flight_max = 2;
    fixture_up_with(f, c7_together_handlers);
    for (int i = 0; i < 8; i++) {
        requests[i].handler = "t.door";
        requests[i].input = stet_text("ok");
    }
    CHECK_OK(stet_start_many(f->engine, requests, 8));
    gate_await(&door, 2);
    CHECK_OK(stet_health_get(f->engine, &health));
    CHECK_INT(health.in_flight, 2);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.statuses = 1u << STET_STATUS_RUNNING)), 2);
    gate_open(&door);
    for (int i = 0; i < 8; i++)
        EXPECT_RESULT(f->engine, &requests[i].run, "ok");
    fixture_end(f);
}

static void *
c7_stop(void *arg)
{
    return (void *)(intptr_t)stet_engine_stop(arg, 0);
}

TEST(C7_stop_drains_to_the_next_recorded_point)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  run;
    stet_health  health;
    pthread_t    thread;
    void        *stopped;

    fixture_up_with(f, c7_handlers);
    other = fixture_open(f);
    run = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&c7_door, 1);
    pthread_create(&thread, NULL, c7_stop, f->engine);
    do {
        CHECK_OK(stet_health_get(f->engine, &health));
    } while (health.is_ready);
    gate_open(&c7_door);
    pthread_join(thread, &stopped);
    CHECK_INT((intptr_t)stopped, STET_OK);
    fixture_close(f);
    CHECK_INT(fixture_facts(other, &run, "step", "door"), 1); /* the body's result was kept */
    CHECK(fixture_look(other, &run).status == STET_STATUS_PENDING ||
          fixture_look(other, &run).status == STET_STATUS_COMPLETED);
    CHECK_STR(fixture_look(other, &run).worker, "");
    stet_close(other);
    fixture_up_with(f, c7_handlers);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("before"), 1);
    CHECK_INT(effects("after"), 1);
    CHECK_INT(c7_door.arrived, 1);
    fixture_end(f);
}

TEST(C7_stop_with_a_body_that_does_not_end_says_which)
{
    fixture    *f = fixture_begin();
    stet_run_id run, none;
    int64_t     before_ms;

    fixture_up_with(f, c7_handlers);
    run = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&c7_door, 1);
    before_ms = fixture_mono_ms();
    CHECK_CODE(stet_engine_stop(f->engine, 50), STET_EBUSY);
    CHECK_HAS(stet_last_error(), run.text);
    CHECK_HAS(stet_last_error(), "door");
    CHECK(fixture_mono_ms() - before_ms < 10000);
    CHECK_CODE(stet_engine_stop(f->engine, STET_NONE), STET_EBUSY);
    CHECK(fixture_mono_ms() - before_ms < 20000);
    (void)stet_start(f->engine, &none, "t.quick", stet_text(""),
                     NULL); /* refused or written down, not executed */
    gate_open(&c7_door);
    CHECK_OK(stet_engine_stop(f->engine, 0));
    CHECK_OK(stet_engine_stop(f->engine, 0));
    CHECK_INT(effects("quick"), 0);
    fixture_close(f);
    fixture_up_with(f, c7_handlers);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(c7_door.arrived, 1);
    fixture_end(f);
}

TEST(C7_a_second_start_or_stop_is_harmless)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->engine = fixture_open(f);
    CHECK_OK(stet_engine_stop(f->engine, 0)); /* never started */
    CHECK_OK(stet_register(f->engine, "t", c7_handlers));
    CHECK_OK(stet_engine_start(f->engine));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.quick", "ok", NULL);
    EXPECT_RESULT(f->engine, &run, "ok");
    CHECK_INT(effects("quick"), 1);
    CHECK_OK(stet_engine_stop(f->engine, 0));
    CHECK_OK(stet_engine_stop(f->engine, 0));
    EXPECT_RESULT(f->engine, &run, "ok"); /* still readable */
    fixture_end(f);
}
