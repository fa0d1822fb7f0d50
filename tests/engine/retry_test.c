/* Retries: how many, how long apart, and which failures there are. Rows C1, C2. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

/* ---- C1: retries ----------------------------------------------------------------------------- */

static const stet_handler c1_handlers[] = { { "fails", h_unlucky, NULL }, { 0 } };

TEST(C1_n_attempts_are_n_executions_and_recorded_steps_are_not_repeated)
{
    static const int wanted[] = { 1, 2, 3, 5 };
    fixture         *f = fixture_begin();
    int              entered = 0;

    fixture_up_with(f, c1_handlers);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        stet_run_id run = fixture_start(f->engine, "t.fails", "x",
                                        STET_START(.retry = { .attempts = wanted[i] }));
        stet_result r = EXPECT_END(f->engine, &run, STET_ERUN);

        entered += wanted[i];
        CHECK_INT(effects("entered"), entered);
        CHECK_INT(effects("first"), (int)i + 1);
        CHECK_INT(r.status, STET_STATUS_FAILED);
        CHECK_INT(r.attempts, wanted[i]);
        CHECK_INT(r.code, STET_EATTEMPTS);
        CHECK_INT(r.cause, STET_ERETRY);
        CHECK_HAS(r.error, "no luck");
        CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), wanted[i]);
        CHECK_INT(fixture_facts(f->engine, &run, "step", "first"), 1);
        stet_result_free(&r);
    }
    fixture_end(f);
}

TEST(C1_three_attempts_are_the_default)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result r;

    fixture_up_with(f, c1_handlers);
    run = fixture_start(f->engine, "t.fails", "x", NULL);
    r = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(r.attempts, 3);
    CHECK_INT(effects("entered"), 3);
    CHECK_INT(fixture_look(f->engine, &run).attempts_max, 3);
    stet_result_free(&r);
    fixture_end(f);
}

typedef struct waits {
    int64_t ms[16];
    int     n;
} waits;

static int
keep_wait(void *arg, const stet_fact_info *fact)
{
    waits *w = arg;

    if (strcmp(fact->kind, "attempt failed") == 0 && fact->until_ms != 0 && w->n < 16)
        w->ms[w->n++] = fact->until_ms - fact->time_ms;
    return 0;
}

static waits
waits_of(stet_engine *e, const stet_run_id *run)
{
    waits w = { { 0 }, 0 };

    CHECK_OK(stet_run_facts(e, run, false, keep_wait, &w));
    return w;
}

TEST(C1_the_backoff_grows_to_its_maximum)
{
    static const int64_t want[] = { 4, 12, 30, 30, 30 };
    fixture             *f = fixture_begin();
    stet_run_id          run;
    stet_result          r;
    waits                w;

    fixture_up_with(f, c1_handlers);
    run = fixture_start(f->engine, "t.fails", "x",
                        STET_START(.retry = { .attempts = 6,
                                              .first_ms = 4,
                                              .max_ms = 30,
                                              .factor_percent = 300,
                                              .jitter_percent = STET_NONE }));
    r = EXPECT_END(f->engine, &run, STET_ERUN);
    w = waits_of(f->engine, &run);
    CHECK_INT(w.n, 5);
    for (int i = 0; i < 5; i++) /* to the millisecond: the fact has the time of the decision */
        CHECK_INT(w.ms[i], want[i]);
    stet_result_free(&r);
    fixture_end(f);
}

TEST(C1_jitter_spreads_the_backoff_within_its_bounds)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[12];
    int64_t     least = INT64_MAX, most = 0;

    fixture_up_with(f, c1_handlers);
    for (int i = 0; i < 12; i++)
        runs[i] = fixture_start(
            f->engine, "t.fails", "x",
            STET_START(.retry = {
                           .attempts = 2, .first_ms = 100, .max_ms = 1000, .jitter_percent = 50 }));
    for (int i = 0; i < 12; i++) {
        stet_result r = EXPECT_END(f->engine, &runs[i], STET_ERUN);
        waits       w = waits_of(f->engine, &runs[i]);

        CHECK_INT(w.n, 1);
        CHECK(w.ms[0] >= 50 && w.ms[0] <= 150);
        least = w.ms[0] < least ? w.ms[0] : least;
        most = w.ms[0] > most ? w.ms[0] : most;
        stet_result_free(&r);
    }
    CHECK(most - least > 10);
    fixture_end(f);
}

static _Atomic int c1_failures_left;

static int
h_fails_then_works(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "first", body_effect, (void *)"first", NULL));
    if (atomic_fetch_sub(&c1_failures_left, 1) > 0)
        return stet_fail(ctx, STET_CODE_USER - 7, "my own passing trouble");
    return stet_return(ctx, input);
}

TEST(C1_a_retry_that_works_completes_the_run)
{
    static const stet_handler handlers[] = { { "h", h_fails_then_works, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               r;

    atomic_store(&c1_failures_left, 2);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    r = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(r.attempts, 3);
    CHECK(fixture_is(r.value, "ok"));
    CHECK_INT(effects("first"), 1);
    stet_result_free(&r);
    fixture_end(f);
}

/* ---- C2: what kind of failure ---------------------------------------------------------------- */

static int
h_permanent(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("entered");
    return stet_fail(ctx, STET_EPERMANENT, "no such item %d", 7);
}

static int
h_defers(stet_ctx *ctx, stet_bytes input)
{
    int64_t now_ms;

    (void)input;
    effect("entered");
    STET_TRY(stet_now(ctx, &now_ms));
    if (effects("entered") < 4)
        return stet_defer_until(ctx, now_ms + 30 * effects("entered"), "closed on sundays");
    CHECK_INT(stet_info(ctx)->attempt, 1);
    return stet_return(ctx, stet_text("open"));
}

static const stet_handler c2_handlers[] = { { "permanent", h_permanent, NULL },
                                            { "defers", h_defers, NULL },
                                            { 0 } };

TEST(C2_a_permanent_failure_is_a_dead_letter_at_once)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result r;

    fixture_up_with(f, c2_handlers);
    run = fixture_start(f->engine, "t.permanent", "x", NULL);
    r = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(effects("entered"), 1);
    CHECK_INT(r.attempts, 1);
    CHECK_INT(r.code, STET_EPERMANENT);
    CHECK_STR(r.error, "no such item 7");
    stet_result_free(&r);
    fixture_end(f);
}

TEST(C2_a_deferral_uses_no_attempt_and_is_not_early)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result r;
    fixture_run look;

    fixture_up_with(f, c2_handlers);
    run = fixture_start(f->engine, "t.defers", "x", STET_START(.retry = { .attempts = 1 }));
    r = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(r.attempts, 1);
    CHECK(fixture_is(r.value, "open"));
    CHECK_INT(fixture_facts(f->engine, &run, "deferred", NULL), 3);
    CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 0);
    look = fixture_look(f->engine, &run);
    CHECK(look.ended_ms - look.created_ms >=
          90); /* now is recorded: the third deferral is 90 ms from it */
    stet_result_free(&r);
    fixture_end(f);
}

static int
body_not_before(stet_attempt *a, void *arg)
{
    effect("body %u", stet_attempt_number(a));
    if (effects("body 1") < 3)
        return stet_attempt_not_before(a, stet_engine_now_ms(arg) + 25, "later");
    return stet_attempt_return(a, stet_text("now"));
}

static stet_engine *c2_engine;

static int
h_step_defers(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "call", body_not_before, c2_engine, NULL));
    return stet_return(ctx, out);
}

static int
body_never_again(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_not_before(a, INT64_MAX, "never again");
}

static int
h_never_again(stet_ctx *ctx, stet_bytes input)
{
    if (fixture_is(input, "body"))
        return stet_step(ctx, NULL, "call", body_never_again, NULL, NULL);
    return stet_defer_until(ctx, INT64_MAX, "never again");
}

static int
h_no_time(stet_ctx *ctx, stet_bytes input)
{
    (void)ctx;
    (void)input;
    effect("no time");
    return STET_EDEFER;
}

/* It would come back at once, without end. */
TEST(C2_a_handler_that_defers_without_a_time_fails)
{
    static const stet_handler handlers[] = { { "h", h_no_time, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               r;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "", NULL);
    r = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(r.code, STET_EHANDLER);
    CHECK_HAS(r.error, "did not call stet_defer_until()");
    CHECK_INT(effects("no time"), 1);
    stet_result_free(&r);
    fixture_end(f);
}

/* The end of time is no time: a run that waited for it would have nothing that wakes it. */
TEST(C2_I2_a_deferral_to_the_end_of_time_leaves_a_run_that_wakes)
{
    static const stet_handler handlers[] = { { "h", h_never_again, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[2];

    fixture_up_with(f, handlers);
    runs[0] = fixture_start(f->engine, "t.h", "handler", NULL);
    runs[1] = fixture_start(f->engine, "t.h", "body", NULL);
    fixture_await_status(f->engine, &runs[0], STET_STATUS_RETRYING);
    fixture_await_status(f->engine, &runs[1], STET_STATUS_SUSPENDED);
    CHECK_HAS(fixture_why(f->engine, &runs[0]).text, "it is tried again in ");
    CHECK_INT(fixture_sound(f->engine), 2);
    fixture_end(f);
}

TEST(C2_a_body_can_say_not_before_without_using_an_attempt)
{
    static const stet_handler handlers[] = { { "h", h_step_defers, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->engine = fixture_open(f);
    c2_engine = f->engine;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.h", "", STET_START(.retry = { .attempts = 1 }));
    EXPECT_RESULT(f->engine, &run, "now");
    CHECK_INT(effects("body 1"), 3);
    fixture_end(f);
}

/* Seconds, where milliseconds are meant. */
static int
body_long_ago(stet_attempt *a, void *arg)
{
    effect("entered");
    if (effects("entered") > 3)
        return STET_OK;
    return stet_attempt_not_before(a, stet_engine_now_ms(arg) / 1000, "closed on sundays");
}

static int
h_long_ago(stet_ctx *ctx, stet_bytes input)
{
    if (fixture_is(input, "body"))
        return stet_step(ctx, NULL, "call", body_long_ago, c2_engine, NULL);
    effect("entered");
    if (effects("entered") > 3)
        return STET_OK;
    return stet_defer_until(ctx, stet_engine_now_ms(c2_engine) / 1000, "closed on sundays");
}

static int
last_until(void *arg, const stet_fact_info *fact)
{
    if (fact->until_ms != 0)
        *(int64_t *)arg = fact->until_ms;
    return 0;
}

/* It uses no attempt: if it came back at once, it would do so without end. */
static void
long_ago_is_a_failures_wait(const char *input, stet_status status, const char *fact)
{
    static const stet_handler handlers[] = { { "h", h_long_ago, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    const int64_t             hour_ms = 3600000;
    int64_t                   until_ms = 0;

    f->engine = c2_engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.h", input,
                        STET_START(.retry = { .attempts = 1, .first_ms = hour_ms,
                                              .max_ms = hour_ms }));
    AWAIT(fixture_facts(f->engine, &run, fact, NULL) > 0);
    fixture_await_status(f->engine, &run, status);
    CHECK_INT(effects("entered"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, fact, NULL), 1);
    CHECK_OK(stet_run_facts(f->engine, &run, false, last_until, &until_ms));
    CHECK(until_ms > stet_engine_now_ms(f->engine) + hour_ms / 2);
    fixture_end(f);
}

TEST(C2_a_deferral_to_a_time_that_is_past_waits_like_a_failure)
{
    long_ago_is_a_failures_wait("handler", STET_STATUS_RETRYING, "deferred");
}

TEST(C2_not_before_a_time_that_is_past_waits_like_a_failure)
{
    long_ago_is_a_failures_wait("body", STET_STATUS_SUSPENDED, "step retry");
}

/* ---- a store in trouble ---------------------------------------------------------------------- */

static const stet_store_ops *c1_real;
static atomic_int            c1_code, c1_left, c1_refused;

static int
c1_refuse(void)
{
    atomic_fetch_sub(&c1_left, 1);
    atomic_fetch_add(&c1_refused, 1);
    return stet__fail(atomic_load(&c1_code), "store x: the server is loading");
}

static int
c1_value(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    if (atomic_load(&c1_left) > 0 && strcmp(space, STET__SPACE_STATE) == 0)
        return c1_refuse();
    return c1_real->value(s, space, key, value);
}

static stet_id c1_run; /* whose inbox cannot be read */

static int
c1_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    if (atomic_load(&c1_left) > 0 && stet__id_equal(run, c1_run))
        return c1_refuse();
    return c1_real->inbox(s, run, from, limit, fn, arg);
}

static int
h_reads(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "entry"));
    return stet_return(ctx, stet_text("read"));
}

TEST(C1_a_read_that_a_store_in_trouble_refuses_uses_no_attempt)
{
    static const int          codes[] = { STET_EBUSY, STET_EFULL };
    static const stet_handler handlers[] = { { "reads", h_reads, NULL }, { 0 } };
    const fixture_service     services[] = { { "o", handlers, true, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    char                      key[8];

    f->engine = fixture_open_with(f, services);
    c1_real = f->engine->store->ops;
    damage_ops(f->engine)->value = c1_value;
    CHECK_OK(stet_engine_start(f->engine));
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        (void)snprintf(key, sizeof key, "%zu", i);
        atomic_store(&c1_code, codes[i]);
        atomic_store(&c1_left, 1);
        run = fixture_start(f->engine, "o.reads", "",
                            STET_START(.key = key, .retry = { .attempts = 1 }));
        EXPECT_RESULT(f->engine, &run, "read");
        CHECK_INT(atomic_load(&c1_left), 0);
        CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 0);
    }
    fixture_end(f);
}

static int
h_go(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes word;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &word, "go", NULL));
    return stet_return(ctx, word);
}

static int
h_c1_naps(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep_ms(ctx, "nap", 300));
    return stet_return(ctx, input);
}

static const stet_handler c1_waits[] = { { "waits", h_go, NULL },
                                         { "naps", h_c1_naps, NULL },
                                         { 0 } };

/* Time goes by as another run tells; then the store is well again. */
TEST(C1_a_store_that_is_busy_is_not_asked_for_an_inbox_without_a_pause)
{
    fixture    *f = fixture_begin();
    stet_run_id run, other;

    f->options.parked_max = STET_NONE;
    f->engine = fixture_open(f);
    c1_real = f->engine->store->ops;
    CHECK_OK(stet_register(f->engine, "t", c1_waits));
    damage_ops(f->engine)->inbox = c1_inbox;
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.waits", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    AWAIT(fixture_look(f->engine, &run).worker[0] == '\0');
    c1_run = damage_id(&run);
    atomic_store(&c1_code, STET_EBUSY);
    atomic_store(&c1_left, 1000000000);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("gone"), NULL));
    AWAIT(atomic_load(&c1_refused) >= 2);
    other = fixture_start(f->engine, "t.naps", "", NULL);
    EXPECT_RESULT(f->engine, &other, "");
    atomic_store(&c1_left, 0);
    EXPECT_RESULT(f->engine, &run, "gone");
    CHECK(atomic_load(&c1_refused) < 100);
    CHECK_INT(fixture_facts(f->engine, &run, "attempt failed", NULL), 0);
    fixture_end(f);
}
