/* The clock of the store is set while runs go on: which write of an entry was the last is known all
 * the same, and what was refused by a clock that was ahead is not taken for unexecuted. Rows F2 and
 * G2. The store is the memory store, whose clock a test can set. */
#include "fixture.h"
#include "store/memory.h"

#define HOUR_MS ((int64_t)3600000)

static int
clock_set(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "note", input)); /* not read before */
    return stet_return(ctx, input);
}

static int
clock_add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes before;
    char       text[64];

    STET_TRY(stet_state_get(ctx, &before, "note"));
    snprintf(text, sizeof text, "%.*s%.*s", (int)before.len,
             before.data != NULL ? (const char *)before.data : "", (int)input.len,
             (const char *)input.data);
    STET_TRY(stet_state_set(ctx, "note", stet_text("between")));
    STET_TRY(stet_state_set(ctx, "note", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

static int
clock_clear(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_clear(ctx, "note"));
    return stet_return(ctx, input);
}

static const stet_handler clock_handlers[] = {
    { .name = "set", .fn = clock_set },
    { .name = "add", .fn = clock_add },
    { .name = "clear", .fn = clock_clear },
    { 0 },
};
static const fixture_service clock_objects[] = { { "o", clock_handlers, true, NULL }, { 0 } };

static fixture *
clock_begin(void)
{
    fixture *f = fixture_begin();

    if (f->db == NULL)
        test_skip("the clock of this store cannot be set by a test");
    return f;
}

static void
clock_do(fixture *f, const char *handler, const char *input, const char *want)
{
    stet_run_id run = fixture_start(f->engine, handler, input, STET_START(.key = "k"));

    EXPECT_RESULT(f->engine, &run, want);
}

static int
clock_on_finding(void *arg, const stet_finding *finding)
{
    test_note("%s: %s", finding->rule, finding->text);
    ++*(int *)arg;
    return 0;
}

/* Verify and repair find nothing, and the entry is what it was. */
static void
clock_is(fixture *f, const char *want)
{
    stet_bytes value = { NULL, 0 };
    int        findings = 0;

    CHECK_OK(stet_verify(f->engine, NULL, clock_on_finding, &findings));
    CHECK_OK(stet_repair(f->engine, NULL, clock_on_finding, &findings));
    CHECK_INT(findings, 0);
    if (want == NULL) {
        CHECK_CODE(stet_state_read(f->engine, &value, "o", "k", "note"), STET_ENOTFOUND);
        return;
    }
    CHECK_OK(stet_state_read(f->engine, &value, "o", "k", "note"));
    CHECK(fixture_is(value, want));
    stet_free((void *)(uintptr_t)value.data);
}

TEST(F2_the_last_write_is_known_though_the_clock_went_back)
{
    fixture *f = clock_begin();

    fixture_up(f, clock_objects);
    clock_do(f, "o.set", "a", "a");
    clock_is(f, "a");
    stet__memory_db_advance(f->db, -HOUR_MS);
    clock_do(f, "o.set", "b", "b");
    clock_is(f, "b");
    stet__memory_db_advance(f->db, -HOUR_MS);
    clock_do(f, "o.add", "c", "bc");
    clock_do(f, "o.add", "d", "bcd");
    clock_is(f, "bcd");
    fixture_end(f);
}

TEST(F2_a_cleared_entry_stays_cleared_though_the_clock_went_back)
{
    fixture *f = clock_begin();

    fixture_up(f, clock_objects);
    clock_do(f, "o.set", "a", "a");
    stet__memory_db_advance(f->db, -HOUR_MS);
    clock_do(f, "o.clear", "-", "-");
    clock_is(f, NULL);
    stet__memory_db_advance(f->db, -HOUR_MS);
    clock_do(f, "o.set", "b", "b");
    clock_is(f, "b");
    fixture_end(f);
}

/* The baselines of runs that were removed before and after it know too. */
TEST(F2_baselines_know_the_last_write_though_the_clock_went_back)
{
    fixture *f = clock_begin();

    f->options.retention_ms = 1;
    f->options.sweep_ms = 20;
    fixture_up(f, clock_objects);
    clock_do(f, "o.set", "a", "a");
    AWAIT(fixture_count(f->engine, NULL) == 0);
    stet__memory_db_advance(f->db, -HOUR_MS);
    clock_do(f, "o.add", "b", "ab");
    clock_do(f, "o.add", "c", "abc");
    clock_is(f, "abc");
    AWAIT(fixture_count(f->engine, NULL) == 0);
    clock_is(f, "abc");
    stet__memory_db_advance(f->db, -HOUR_MS);
    clock_do(f, "o.clear", "-", "-");
    AWAIT(fixture_count(f->engine, NULL) == 0);
    clock_is(f, NULL);
    fixture_end(f);
}

/* A baseline that was replaced goes with the run that replaced it, else it would be the latest by
 * its time. */
TEST(F2_a_baseline_goes_with_the_write_that_replaced_it)
{
    fixture    *f = clock_begin();
    stet_run_id clear;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 20;
    fixture_up(f, clock_objects);
    clock_do(f, "o.set", "a", "a");
    AWAIT(fixture_count(f->engine, NULL) == 0);
    stet__memory_db_advance(f->db, -HOUR_MS);
    clock_do(f, "o.set", "b", "b");
    clear = fixture_start(f->engine, "o.clear", "-", STET_START(.key = "k", .retention = "1h"));
    EXPECT_RESULT(f->engine, &clear, "-");
    AWAIT(fixture_count(f->engine, NULL) == 1);
    clock_is(f, NULL);
    fixture_end(f);
}

/* ---- a lease that ends and is valid again --------------------------------------------------- */

static gate clock_door = GATE_INIT;

static int
clock_body(stet_attempt *a, void *arg)
{
    (void)arg;
    effect(stet_attempt_is_at_risk(a) ? "body at risk" : "body");
    gate_pass(&clock_door);
    return STET_OK;
}

static int
clock_step(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "charge", clock_body, NULL, NULL));
    return stet_return(ctx, input);
}

static const stet_handler lease_handlers[] = { { .name = "step", .fn = clock_step }, { 0 } };

/* False: a sweep found the lease ended and gave the run on, which is another story. */
static bool
clock_refused(void)
{
    fixture    *f = clock_begin();
    stet_run_id run;
    bool        was_gone;

    clock_door = (gate)GATE_INIT;
    f->options.sweep_ms = 2000;
    f->options.renew_ms = 10000; /* not while the clock is ahead */
    fixture_up_with(f, lease_handlers);
    run = fixture_start(f->engine, "t.step", "paid", NULL);
    gate_await(&clock_door, 1);
    stet__memory_db_advance(f->db, HOUR_MS);
    gate_open(&clock_door);
    AWAIT(fixture_logged(f, "fenced") > 0);
    stet__memory_db_advance(f->db, -HOUR_MS);
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_COMPLETED ||
          fixture_logged(f, "is gone") > 0); /* a sweep may be at it just now */
    was_gone = fixture_logged(f, "is gone") > 0;
    if (!was_gone) {
        EXPECT_RESULT(f->engine, &run, "paid");
        CHECK_INT(effects("body at risk"), 1);
    } else
        fixture_close(f); /* the run is late by an hour, and verify says so */
    fixture_end(f);
    return !was_gone;
}

TEST(G2_what_was_refused_by_a_clock_that_was_ahead_is_at_risk)
{
    int tries = 1;

    while (!clock_refused()) {
        CHECK(tries < 20);
        tries++;
    }
    CHECK_INT(effects("body"), tries);
}

/* ---- a wait whose time was up before the clock was set back ------------------------------------
 * */

static int
clock_waits(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes event;
    int        rc = stet_await_event(ctx, &event, "news", "30m");

    (void)input;
    if (rc != STET_ETIMEOUT)
        return rc;
    return stet_return(ctx, stet_text("too late"));
}

static int
clock_emits(stet_ctx *ctx, stet_bytes input)
{
    size_t n;

    (void)input;
    STET_TRY(stet_ctx_emit(ctx, &n, "news", stet_text("late")));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%zu", n)));
}

/* Its timer has fired and its run was not executed since: its mark stands, and by the clock it
 * would still wait. Nobody
 * who emits may be refused because of it until somebody executes that run. */
TEST(B9_an_event_passes_over_a_wait_whose_timer_fired_before_the_clock_was_set_back)
{
    static const stet_handler waits[] = { { "waits", clock_waits, NULL }, { 0 } };
    static const stet_handler emits[] = { { "emits", clock_emits, NULL }, { 0 } };
    const fixture_service     services[] = { { "w", waits, false, NULL },
                                             { "e", emits, false, NULL },
                                             { 0 } };
    fixture                  *f = clock_begin();
    stet_run_id               run, emitter;
    size_t                    told = 7;

    fixture_up(f, services);
    run = fixture_start(f->engine, "w.waits", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_handler_pause(f->engine, "w.waits", NULL, NULL));
    fixture_down(f); /* nothing of it is parked any more */
    stet__memory_db_advance(f->db, HOUR_MS);
    fixture_up(f, services);
    AWAIT(fixture_look(f->engine, &run).status != STET_STATUS_SUSPENDED); /* the timer has fired */
    stet__memory_db_advance(f->db, -HOUR_MS);
    emitter = fixture_start(f->engine, "e.emits", "", NULL);
    EXPECT_RESULT(f->engine, &emitter, "0");
    CHECK_OK(stet_emit(f->engine, &told, "news", stet_text("later")));
    CHECK_INT(told, 0);
    CHECK_OK(stet_handler_resume(f->engine, "w.waits", NULL, NULL));
    stet__memory_db_advance(f->db, HOUR_MS); /* it is due when its timer fired */
    EXPECT_RESULT(f->engine, &run, "too late");
    fixture_end(f);
}
