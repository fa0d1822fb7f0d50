/* The test kit: rows H5 and I6. The handlers here stand for a user's. tsan: yes */
#include <stet.h>
#include <stet/test.h>

#include "test.h"
#include "testkit/kit.h"

/* What happens outside: bodies and handlers count here, and the workflows set it back. */
static struct {
    int  charged, shipped, reminded, entered, flipped;
    char tokens[8][64];
    int  n_tokens;
} outside;

static int
body_charge(stet_attempt *a, void *arg)
{
    (void)arg;
    /* A payment provider that knows tokens. */
    for (int i = 0; i < outside.n_tokens; i++)
        if (strcmp(outside.tokens[i], stet_attempt_token(a)) == 0)
            return stet_attempt_return(a, stet_text("charged"));
    (void)snprintf(outside.tokens[outside.n_tokens++], sizeof outside.tokens[0], "%s",
                   stet_attempt_token(a));
    outside.charged++;
    return stet_attempt_return(a, stet_text("charged"));
}

static int
body_ship(stet_attempt *a, void *arg)
{
    (void)arg;
    if (!stet_attempt_is_at_risk(a))
        outside.shipped++;
    return STET_OK;
}

static int
body_remind(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    outside.reminded++;
    return STET_OK;
}

/* Thirty reminders, a day apart. */
static int
h_month(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    for (int i = 0; i < 30; i++) {
        STET_TRY(stet_step(ctx, NULL, "remind", body_remind, NULL, NULL));
        STET_TRY(stet_sleep(ctx, "a-day", "24h"));
    }
    return stet_return(ctx, stet_text("a month has passed"));
}

static int
h_checkout(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes charge;

    (void)input;
    STET_TRY(stet_step(ctx, &charge, "charge", body_charge, NULL, NULL));
    STET_TRY(stet_sleep(ctx, "cool-down", "24h"));
    STET_TRY(stet_step(ctx, NULL, "ship", body_ship, NULL, NULL));
    return stet_return(ctx, charge);
}

static int
h_approval(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes who;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &who, "approved", "3d"));
    return stet_return(ctx, who);
}

static const stet_handler shop[] = {
    { "month", h_month, NULL },
    { "checkout", h_checkout, NULL },
    { "approval", h_approval, NULL },
    { 0 },
};

static stet_test *
kit_new(uint64_t seed)
{
    stet_test *kit = stet_test_new(STET_TEST_OPTIONS(.seed = seed));

    memset(&outside, 0, sizeof outside);
    CHECK(kit != NULL);
    CHECK_OK(stet_test_service(kit, "shop", shop));
    return kit;
}

static stet_run_id
kit_start(stet_test *kit, const char *handler)
{
    stet_run_id run;

    CHECK_OK(stet_test_start(kit, &run, handler, stet_text("{}"), NULL));
    return run;
}

TEST(H5_thirty_days_pass_at_once)
{
    stet_test  *kit = kit_new(1);
    int64_t     began_ms = stet_test_now(kit);
    stet_run_id run = kit_start(kit, "shop.month");

    CHECK_OK(stet_test_advance(kit, "15d"));
    CHECK_INT(outside.reminded, 16);
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_SUSPENDED);
    CHECK_OK(stet_test_advance(kit, "15d"));
    CHECK_OK(stet_test_expect(kit, &run, "a month has passed"));
    CHECK_INT(outside.reminded, 30);
    CHECK_INT((stet_test_now(kit) - began_ms) / 86400000, 30);
    CHECK_OK(stet_test_check(kit));
    stet_test_free(kit);
}

/* ---- time ------------------------------------------------------------------------------------ */

TEST(H5_no_timer_is_early_or_late)
{
    stet_test  *kit = kit_new(1);
    stet_run_id run = kit_start(kit, "shop.checkout");

    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_INT(outside.charged, 1);
    CHECK_OK(stet_test_advance(kit, "23h"));
    CHECK_OK(stet_test_advance(kit, "3599s"));
    CHECK_INT(outside.shipped, 0);
    CHECK_OK(stet_test_advance(kit, "1s"));
    CHECK_INT(outside.shipped, 1);
    CHECK_OK(stet_test_expect(kit, &run, "charged"));
    stet_test_free(kit);
}

static int
on_fact(void *arg, const stet_fact_info *fact)
{
    char  *text = arg;
    size_t len = strlen(text);

    (void)snprintf(text + len, 4096 - len, "%lld %s %s\n", (long long)fact->time_ms, fact->kind,
                   fact->name != NULL ? fact->name : "");
    return STET_OK;
}

typedef struct story {
    stet_run_id run;
    char        text[4096];
} story;

static int
tell_story(stet_engine *e, void *arg)
{
    story *s = arg;

    s->text[0] = '\0';
    return stet_run_facts(e, &s->run, false, on_fact, s->text);
}

static story
story_of(uint64_t seed)
{
    stet_test *kit = kit_new(seed);
    story      s = { .run = kit_start(kit, "shop.checkout") };

    CHECK_OK(stet_test_advance(kit, "2d"));
    CHECK_OK(stet_test_do(kit, tell_story, &s));
    stet_test_free(kit);
    return s;
}

TEST(H5_one_seed_gives_one_history)
{
    story first = story_of(7), again = story_of(7), other = story_of(8);

    CHECK_STR(again.run.text, first.run.text);
    CHECK_STR(again.text, first.text);
    CHECK_HAS(first.text, "step ship");
    CHECK(strcmp(other.run.text, first.run.text) != 0);
}

TEST(H5_the_clock_begins_where_it_is_told_to)
{
    stet_test *kit = stet_test_new(STET_TEST_OPTIONS(.now_ms = INT64_C(951782400000)));
    story      s = { .text = "" };

    CHECK(kit != NULL);
    CHECK_OK(stet_test_service(kit, "shop", shop));
    CHECK_INT(stet_test_now(kit), INT64_C(951782400000));
    s.run = kit_start(kit, "shop.checkout");
    CHECK_OK(stet_test_do(kit, tell_story, &s));
    CHECK_HAS(s.text, "951782400000 started");
    stet_test_free(kit);
}

TEST(H5_a_clock_that_cannot_be_is_refused)
{
    static const int64_t bad[] = { -1, INT64_MIN, INT64_C(253402300800000), INT64_MAX };
    stet_test           *kit;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(stet_test_new(STET_TEST_OPTIONS(.now_ms = bad[i])) == NULL);
        CHECK_HAS(stet_last_error(), "outside the years 1970 to 9999");
    }
    CHECK((kit = stet_test_new(STET_TEST_OPTIONS(.now_ms = INT64_C(253402300799999)))) != NULL);
    stet_test_free(kit);
}

static bool
has_reminded(stet_test *kit, void *arg)
{
    (void)kit;
    return outside.reminded >= *(const int *)arg;
}

TEST(H5_wait_until_a_condition_holds)
{
    stet_test *kit = kit_new(1);
    int64_t    began_ms = stet_test_now(kit);
    int        n = 4;

    (void)kit_start(kit, "shop.month");
    CHECK_OK(stet_test_wait_until(kit, has_reminded, &n, "7d"));
    CHECK_INT((stet_test_now(kit) - began_ms) / 3600000, 72);
    n = 100;
    CHECK_CODE(stet_test_wait_until(kit, has_reminded, &n, "7d"), STET_ETIMEOUT);
    CHECK_INT((stet_test_now(kit) - began_ms) / 3600000, 240);
    CHECK_HAS(stet_last_error(), "not so after 7d");
    CHECK_HAS(stet_last_error(), "shop.month");
    CHECK_HAS(stet_last_error(), "a-day");
    CHECK_CODE(stet_test_wait_until(kit, has_reminded, &n, "soon"), STET_EDURATION);
    CHECK_CODE(stet_test_advance(kit, "soon"), STET_EDURATION);
    CHECK_CODE(stet_test_advance(kit, "99999999d"), STET_EDURATION);
    stet_test_free(kit);
}

static stet_test *spender;

static int
body_slow(stet_attempt *a, void *duration)
{
    int err = stet_test_spend(spender, duration);

    outside.reminded++;
    return err == STET_OK ? stet_attempt_return(a, stet_text("slow")) : err;
}

static int
h_too_slow(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(
        ctx, NULL, "slow", body_slow, (void *)(uintptr_t) "10s",
        STET_STEP(.timeout = "5s", .attempts = 2, .first_ms = 1000, .jitter_percent = STET_NONE));
}

static int
h_side_by_side(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];

    STET_TRY(stet_step_start(ctx, &both[0], "one", body_slow, (void *)(uintptr_t) "3h", NULL));
    STET_TRY(stet_step_start(ctx, &both[1], "two", body_slow, (void *)(uintptr_t) "3h", NULL));
    STET_TRY(stet_await_all(ctx, both, 2));
    return stet_return(ctx, input);
}

TEST(H5_a_body_can_take_its_time)
{
    static const stet_handler slow[] = { { "too-slow", h_too_slow, NULL },
                                         { "side-by-side", h_side_by_side, NULL },
                                         { 0 } };
    stet_test                *kit = kit_new(1);
    int64_t                   began_ms;
    stet_result               result;
    stet_run_id               run;

    spender = kit;
    CHECK_CODE(stet_test_spend(kit, "1h"), STET_EUSAGE);
    CHECK_OK(stet_test_service(kit, "slow", slow));
    run = kit_start(kit, "slow.too-slow");
    CHECK_OK(stet_test_advance(kit, "1m"));
    CHECK_CODE(stet_test_result(kit, &result, &run), STET_ERUN);
    CHECK_INT(result.cause, STET_ETIMEOUT);
    stet_result_free(&result);
    CHECK_INT(outside.reminded, 2);
    began_ms = stet_test_now(kit);
    run = kit_start(kit, "slow.side-by-side");
    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_INT(outside.reminded, 4);
    CHECK_INT((stet_test_now(kit) - began_ms) / 60000, 180);
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_COMPLETED);
    CHECK_OK(stet_test_check(kit));
    stet_test_free(kit);
}

/* ---- what a client does ---------------------------------------------------------------------- */

TEST(H5_signals_and_their_timeouts)
{
    stet_test  *kit = kit_new(1);
    stet_run_id early = kit_start(kit, "shop.approval"), late = kit_start(kit, "shop.approval");
    stet_result result;

    CHECK_OK(stet_test_advance(kit, "2d"));
    CHECK_CODE(stet_test_expect(kit, &early, "anna"), STET_EMISMATCH);
    CHECK_HAS(stet_last_error(), "suspended");
    CHECK_HAS(stet_last_error(), "approved");
    CHECK_OK(stet_test_signal(kit, &early, "approved", stet_text("anna")));
    CHECK_OK(stet_test_expect(kit, &early, "anna"));
    CHECK_CODE(stet_test_expect(kit, &early, "berta"), STET_EMISMATCH);
    CHECK_HAS(stet_last_error(), "\"anna\"");
    CHECK_OK(stet_test_advance(kit, "1d"));
    CHECK_CODE(stet_test_result(kit, &result, &late), STET_ERUN);
    CHECK_INT(result.code, STET_ETIMEOUT);
    stet_result_free(&result);
    CHECK_CODE(stet_test_signal(kit, &late, "approved", stet_text("berta")), STET_EENDED);
    stet_test_free(kit);
}

static char awakeable[STET_ID_TEXT_MAX];

static int
body_hand_out_id(stet_attempt *a, void *id)
{
    (void)a;
    (void)snprintf(awakeable, sizeof awakeable, "%s", ((const stet_awakeable_id *)id)->text);
    return STET_OK;
}

static int
h_awakeable(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "answer"));
    STET_TRY(stet_step(ctx, NULL, "hand-out", body_hand_out_id, &id, NULL));
    STET_TRY(stet_await(ctx, &value, future));
    return stet_return(ctx, value);
}

static int
h_add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes n;
    char      *text;

    (void)input;
    STET_TRY(stet_state_get(ctx, &n, "n"));
    text = stet_ctx_printf(ctx, "%ld", strtol(n.data, NULL, 10) + 1);
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

static const stet_handler more[] = { { "awakeable", h_awakeable, NULL }, { 0 } };
static const stet_handler counter[] = { { "add", h_add, NULL }, { 0 } };
static const stet_entry   from_ten[] = { { "n", { "10", 2 } }, { 0 } };

TEST(H5_awakeables_objects_and_cancels)
{
    stet_test  *kit = kit_new(1);
    stet_run_id run;

    CHECK_OK(stet_test_service(kit, "more", more));
    CHECK_OK(stet_test_object(kit, "counter", counter, from_ten));
    run = kit_start(kit, "more.awakeable");
    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_OK(stet_test_resolve(kit, awakeable, stet_text("yes")));
    CHECK_CODE(stet_test_resolve(kit, awakeable, stet_text("no")), STET_ESETTLED);
    CHECK_OK(stet_test_expect(kit, &run, "yes"));
    run = kit_start(kit, "more.awakeable");
    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_OK(stet_test_reject(kit, awakeable, "no such thing"));
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_FAILED);
    run = kit_start(kit, "more.awakeable");
    CHECK_OK(stet_test_cancel(kit, &run, "changed my mind"));
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_CANCELLED);
    CHECK_OK(stet_test_start(kit, &run, "counter.add", stet_text(""), STET_START(.key = "k")));
    CHECK_OK(stet_test_expect(kit, &run, "11"));
    CHECK_CODE(stet_test_start(kit, &run, "counter.sub", stet_text(""), STET_START(.key = "k")),
               STET_ENOHANDLER);
    CHECK_OK(stet_test_check(kit));
    stet_test_free(kit);
}

TEST(H5_an_app_is_taken_as_it_is)
{
    stet_test  *kit = stet_test_new(NULL), *other = stet_test_new(NULL);
    stet_app   *app = stet_app_new("shop");
    stet_run_id run;

    memset(&outside, 0, sizeof outside);
    stet_app_service(app, "shop", shop);
    stet_app_object(app, "counter", counter, from_ten);
    CHECK_OK(stet_test_app(kit, app));
    CHECK_OK(stet_test_start(kit, &run, "counter.add", stet_text(""), STET_START(.key = "k")));
    CHECK_OK(stet_test_expect(kit, &run, "11"));
    app = stet_app_new("shop");
    stet_app_service(app, "shop", shop);
    CHECK_CODE(stet_test_app(kit, app), STET_ESTATE);
    /* Two kits know nothing of each other. */
    CHECK_OK(stet_test_app(other, app));
    CHECK_INT(stet_test_status(other, &run), 0);
    stet_test_free(kit);
    stet_test_free(other);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

TEST(H5_a_crash_is_survived)
{
    stet_test  *kit = kit_new(1);
    stet_run_id run = kit_start(kit, "shop.checkout");

    CHECK_OK(stet_test_advance(kit, "1h"));
    CHECK_OK(stet_test_crash(kit));
    CHECK_OK(stet_test_crash(kit));
    CHECK_OK(stet_test_advance(kit, "23h"));
    CHECK_OK(stet_test_expect(kit, &run, "charged"));
    CHECK_INT(stet_test_bodies(kit, &run, "charge#1"), 1);
    CHECK_INT(stet_test_bodies(kit, &run, "ship#1"), 1);
    CHECK_INT(stet_test_bodies(kit, &run, "ship#2"), 0);
    CHECK_OK(stet_test_check(kit));
    stet_test_free(kit);
}

/* Which point is the nth: the first whose words are these. */
static uint64_t
point_of(const char *words)
{
    for (uint64_t n = 1;; n++) {
        stet_test *kit = kit_new(1);
        bool       is_it, is_over;

        stet_test_crash_at(kit, n);
        (void)kit_start(kit, "shop.checkout");
        CHECK_OK(stet_test_advance(kit, "1d"));
        is_over = stet_test_crashed(kit) == NULL;
        is_it = !is_over && strcmp(stet_test_crashed(kit), words) == 0;
        stet_test_free(kit);
        if (is_over)
            test_fail(__FILE__, __LINE__, "no point is \"%s\"", words);
        if (is_it)
            return n;
    }
}

TEST(H5_a_crash_at_a_point_repeats_what_was_not_recorded)
{
    static const struct {
        const char *words;
        size_t      charges;
    } cases[] = {
        { "crash before the body of step charge#1 was entered", 1 },
        { "crash after the body of step charge#1 ran, before its record was written", 2 },
        { "crash before the record of step ship#1 and the end of the run were written", 1 },
        { "the record of step ship#1 and the end of the run were written and the answer was lost",
          1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t    n = point_of(cases[i].words);
        stet_test  *kit = kit_new(1);
        stet_run_id run;

        stet_test_crash_at(kit, n);
        CHECK(stet_test_crashed(kit) == NULL);
        run = kit_start(kit, "shop.checkout");
        CHECK_OK(stet_test_advance(kit, "1d"));
        CHECK_STR(stet_test_crashed(kit), cases[i].words);
        CHECK(stet_test_points(kit) > n);
        CHECK_OK(stet_test_expect(kit, &run, "charged"));
        CHECK_INT(stet_test_bodies(kit, &run, "charge#1"), cases[i].charges);
        CHECK_INT(outside.charged, 1);
        CHECK_INT(outside.shipped, 1);
        stet_test_free(kit);
    }
}

TEST(H5_a_failing_store_delays_and_loses_nothing)
{
    static const int codes[] = { STET_EBUSY,  STET_EIO,        STET_EFULL,
                                 STET_ENOMEM, STET_EUNCERTAIN, STET_EPOISONED };

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        for (unsigned times = 1; times <= 3; times++) {
            stet_test  *kit = kit_new(i + 1);
            stet_run_id run = kit_start(kit, "shop.checkout");

            CHECK_OK(stet_test_fail_next(kit, codes[i], times));
            CHECK_OK(stet_test_fail_next(kit, STET_EBUSY, 1));
            CHECK_OK(stet_test_advance(kit, "25h"));
            CHECK_OK(stet_test_expect(kit, &run, "charged"));
            CHECK_INT(outside.charged, 1);
            CHECK_INT(outside.shipped, 1);
            CHECK_OK(stet_test_check(kit));
            stet_test_free(kit);
        }
}

TEST(H5_a_run_that_is_due_while_the_store_fails_begins_soon_after)
{
    static const int codes[] = { STET_EBUSY,  STET_EIO,        STET_EFULL,
                                 STET_ENOMEM, STET_EUNCERTAIN, STET_EPOISONED };

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        stet_test  *kit = kit_new(1);
        int64_t     began_ms = stet_test_now(kit);
        stet_run_id run;

        CHECK_OK(
            stet_test_start(kit, &run, "shop.approval", stet_text(""), STET_START(.delay = "1h")));
        CHECK_OK(stet_test_advance(kit, "59m"));
        CHECK_OK(stet_test_fail_next(kit, codes[i], 2));
        CHECK_OK(stet_test_advance(kit, "1m"));
        CHECK_OK(stet_test_advance(kit, "5s"));
        CHECK_INT(stet_test_status(kit, &run), STET_STATUS_SUSPENDED);
        CHECK((stet_test_now(kit) - began_ms) / 1000 < 3600 + 15);
        CHECK_INT(kit->n_faults, 0);
        stet_test_free(kit);
    }
}

TEST(H5_only_what_a_store_says_can_be_ordered)
{
    stet_test  *kit = kit_new(1);
    stet_run_id run;
    int         rc;

    CHECK_CODE(stet_test_fail_next(kit, STET_ETIMEOUT, 1), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "STET_EUNCERTAIN");
    CHECK_OK(stet_test_fail_next(kit, STET_EBUSY, 0));
    CHECK_OK(stet_test_start(kit, &run, "shop.approval", stet_text(""), NULL));
    /* It comes back to who starts, and then it is over. */
    CHECK_OK(stet_test_fail_next(kit, STET_EFULL, 1));
    rc = stet_test_start(kit, &run, "shop.approval", stet_text(""), NULL);
    CHECK(rc == STET_EFULL || rc == STET_OK);
    CHECK_OK(stet_test_start(kit, &run, "shop.approval", stet_text(""), NULL));
    stet_test_free(kit);
}

/* ---- replays --------------------------------------------------------------------------------- */

static int
h_flips(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    if (outside.flipped++ == 0)
        STET_TRY(stet_step(ctx, NULL, "charge", body_charge, NULL, NULL));
    else
        STET_TRY(stet_step(ctx, NULL, "ship", body_ship, NULL, NULL));
    return stet_return(ctx, stet_text("done"));
}

static int
h_counts(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%d", ++outside.flipped)));
}

static int
h_sometimes(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_charge, NULL, NULL));
    if (outside.flipped++ > 0)
        return stet_fail(ctx, STET_EPERMANENT, "not this time");
    return STET_OK;
}

static int
h_waits_later(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    if (outside.flipped++ > 0)
        STET_TRY(stet_sleep(ctx, "nap", "1h"));
    return STET_OK;
}

static int
body_fails(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_fail(a, STET_ERETRY, "no luck");
}

/* One of two futures fails, and has no record but the end of the attempt. */
static int
h_torn(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];

    (void)input;
    STET_TRY(stet_step_start(ctx, &both[0], "tear", body_fails, NULL, NULL));
    STET_TRY(stet_step_start(ctx, &both[1], "remind", body_remind, NULL, NULL));
    STET_TRY(stet_await_all(ctx, both, 2));
    STET_TRY(stet_await(ctx, NULL, both[1]));
    return stet_await(ctx, NULL, both[0]);
}

static int
h_everything(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];
    stet_bytes   answer;
    int64_t      now_ms;
    size_t       chosen;
    int          version;
    char         uuid[37];

    (void)input;
    STET_TRY(stet_version(ctx, &version, "v", 1, 2));
    STET_TRY(stet_now(ctx, &now_ms));
    STET_TRY(stet_step_start(ctx, &both[0], "remind", body_remind, NULL, NULL));
    STET_TRY(stet_sleep_start(ctx, &both[1], "nap", "1h"));
    STET_TRY(stet_await_any(ctx, &chosen, both, 2, "2h"));
    STET_TRY(stet_await_all(ctx, both, 2));
    STET_TRY(stet_call(ctx, &answer, "shop.checkout", stet_text("{}"), NULL));
    STET_TRY(stet_send(ctx, NULL, "shop.approval", stet_text("{}"), NULL));
    STET_TRY(stet_step(ctx, NULL, "remind", body_remind, NULL, STET_STEP(.attempts = 2)));
    return stet_return(ctx, stet_text(stet_ctx_printf(
                                ctx, "%d %lld %zu %.*s %s %llu", version, (long long)now_ms, chosen,
                                (int)answer.len, (const char *)answer.data, stet_uuid(ctx, uuid),
                                (unsigned long long)stet_random(ctx))));
}

static const stet_handler odd[] = {
    { "flips", h_flips, NULL },
    { "counts", h_counts, NULL },
    { "sometimes", h_sometimes, NULL },
    { "waits-later", h_waits_later, NULL },
    { "torn", h_torn, NULL },
    { "everything", h_everything, NULL },
    { 0 },
};

static stet_test *
odd_kit(void)
{
    stet_test *kit = kit_new(3);

    CHECK_OK(stet_test_service(kit, "odd", odd));
    return kit;
}

TEST(H5_a_replay_agrees_with_what_is_recorded_and_does_nothing)
{
    stet_test  *kit = odd_kit();
    stet_run_id all = kit_start(kit, "odd.everything"), torn = kit_start(kit, "odd.torn"), none;
    uint64_t    points;
    int         reminded;

    for (int hours = 0; hours < 30; hours++) {
        CHECK_OK(stet_test_run_until_idle(kit));
        reminded = outside.reminded;
        points = stet_test_points(kit);
        CHECK_OK(stet_test_replay(kit, &all));
        CHECK_OK(stet_test_replay(kit, &torn));
        CHECK_INT(outside.reminded, reminded);
        CHECK_INT(stet_test_points(kit), points); /* nothing was written */
        CHECK_OK(stet_test_advance(kit, "1h"));
    }
    CHECK_INT(stet_test_status(kit, &all), STET_STATUS_COMPLETED);
    CHECK_INT(stet_test_status(kit, &torn), STET_STATUS_FAILED);
    CHECK_INT(outside.charged, 1);
    CHECK_OK(stet_test_check(kit));
    CHECK_OK(stet_run_id_parse(&none, "run_00000000000000000000000001"));
    CHECK_CODE(stet_test_replay(kit, &none), STET_ENOTFOUND);
    stet_test_free(kit);
}

TEST(H5_a_replay_finds_a_handler_that_does_something_else)
{
    static const struct {
        const char *handler, *recorded, *asked;
    } cases[] = {
        { "odd.flips", "step charge#1", "asked for step ship#1" },
        { "odd.counts", "the result \"1\"", "returned \"2\"" },
        { "odd.sometimes", "that it completed", "not this time" },
        { "odd.waits-later", "the end of the run", "sleep nap#1" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stet_test  *kit = odd_kit();
        stet_run_id run = kit_start(kit, cases[i].handler);
        int         shipped;

        CHECK_INT(stet_test_status(kit, &run), STET_STATUS_COMPLETED);
        shipped = outside.shipped;
        CHECK_CODE(stet_test_replay(kit, &run), STET_EREPLAY);
        CHECK_HAS(stet_last_error(), cases[i].recorded);
        CHECK_HAS(stet_last_error(), cases[i].asked);
        CHECK_HAS(stet_last_error(), cases[i].handler);
        CHECK_HAS(stet_last_error(), "on nothing else");
        if (i == 0)
            CHECK_HAS(stet_last_error(), "testkit_test.c:");
        CHECK_INT(outside.shipped, shipped);
        CHECK_CODE(stet_test_check(kit), STET_EREPLAY);
        stet_test_free(kit);
    }
}

/* Completes at once, and when it is executed again does what its input says. */
static int
h_later(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id self;
    stet_bytes  value;
    char        what[32];

    (void)snprintf(what, sizeof what, "%.*s", (int)input.len, (const char *)input.data);
    if (strcmp(what, "recovers") == 0)
        return outside.flipped++ == 0 ? stet_fail(ctx, STET_EPERMANENT, "no") : STET_OK;
    if (strcmp(what, "input") == 0)
        return stet_step(ctx, NULL, "charge", body_charge, NULL,
                         STET_STEP(.fingerprint = stet_text(outside.flipped++ == 0 ? "a" : "b")));
    if (strcmp(what, "returns") == 0)
        return outside.flipped++ == 0 ? stet_step(ctx, NULL, "charge", body_charge, NULL, NULL)
                                      : STET_OK;
    if (outside.flipped++ == 0)
        return STET_OK;
    (void)snprintf(self.text, sizeof self.text, "%s", stet_info(ctx)->run);
    if (strcmp(what, "state") == 0)
        return stet_state_get(ctx, &value, "n");
    if (strcmp(what, "call") == 0)
        return stet_call(ctx, &value, "shop.checkout", input, NULL);
    if (strcmp(what, "send") == 0)
        return stet_send(ctx, NULL, "shop.checkout", input, STET_START(.idempotency_key = "k"));
    if (strcmp(what, "signal") == 0)
        return stet_ctx_signal(ctx, &self, "word", input);
    return stet_await_signal(ctx, &value, "word", NULL);
}

TEST(H5_a_replay_that_goes_on_or_ends_otherwise_is_found_and_does_nothing)
{
    static const struct {
        const char *input, *recorded, *asked;
    } cases[] = {
        { "returns", "step charge#1", "but it returned" },
        { "recovers", "that it failed", "returned without a failure" },
        { "input", "step charge#1", "asked for step charge#1" },
        { "state", "the end of the run", "asked for state read n#1" },
        { "call", "the end of the run", "asked to call shop.checkout" },
        { "send", "the end of the run", "asked to send to shop.checkout" },
        { "signal", "the end of the run", "asked for signal sent" },
        { "wait", "the end of the run", "asked for signal wait word#1" },
    };
    static const stet_handler later[] = { { "later", h_later, NULL }, { 0 } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stet_test  *kit = kit_new(1);
        stet_run_id run;
        uint64_t    points;

        CHECK_OK(stet_test_object(kit, "odd", later, from_ten));
        CHECK_OK(stet_test_start(kit, &run, "odd.later", stet_text(cases[i].input),
                                 STET_START(.key = "k")));
        CHECK(stet_status_is_terminal(stet_test_status(kit, &run)));
        points = stet_test_points(kit);
        CHECK_CODE(stet_test_replay(kit, &run), STET_EREPLAY);
        CHECK_HAS(stet_last_error(), cases[i].recorded);
        CHECK_HAS(stet_last_error(), cases[i].asked);
        CHECK_INT(stet_test_points(kit), points);
        stet_test_free(kit);
    }
}

/* ---- options --------------------------------------------------------------------------------- */

static int
h_luckless(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    stet_log(ctx, STET_LOG_INFO, "trying");
    return stet_fail(ctx, STET_ERETRY, "no luck");
}

typedef struct log_lines {
    int     tries;
    int64_t last_ms;
} log_lines;

static void
log_line(void *arg, const stet_log_record *record)
{
    log_lines *lines = arg;

    if (strcmp(record->message, "trying") == 0) {
        lines->tries++;
        lines->last_ms = record->time_ms;
    }
}

TEST(H5_the_engine_is_configured_and_logs_as_it_is_told)
{
    static const stet_handler luckless[] = { { "luckless", h_luckless, NULL }, { 0 } };
    log_lines                 lines = { 0, 0 };
    stet_options              options;
    stet_test                *kit;
    int64_t                   began_ms;
    stet_run_id               run;

    stet_options_init(&options);
    options.run_attempts = 4;
    options.retry_first_ms = 60000;
    options.retry_max_ms = 3600000;
    options.retry_jitter_percent = STET_NONE;
    options.log = log_line;
    options.log_arg = &lines;
    kit = stet_test_new(STET_TEST_OPTIONS(.engine = &options));
    CHECK(kit != NULL);
    began_ms = stet_test_now(kit);
    CHECK_OK(stet_test_service(kit, "t", luckless));
    run = kit_start(kit, "t.luckless");
    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_INT(lines.tries, 1);
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_RETRYING);
    CHECK_OK(stet_test_advance(kit, "1m"));
    CHECK_INT(lines.tries, 2);
    CHECK_OK(stet_test_advance(kit, "1h"));
    CHECK_INT(lines.tries, 4);
    CHECK_INT(lines.last_ms - began_ms, 60000 + 120000 + 240000);
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_FAILED);
    stet_test_free(kit);
}

/* ---- deploys and misuse ---------------------------------------------------------------------- */

static int
h_checkout_new(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_return(ctx, stet_text("new"));
}

TEST(H5_new_code_takes_over_and_can_be_stuck)
{
    static const stet_handler next[] = { { "checkout", h_checkout_new, NULL }, { 0 } };
    stet_test                *kit = kit_new(1);
    stet_run_id               run = kit_start(kit, "shop.checkout");

    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_OK(stet_test_service(kit, "shop", next));
    CHECK_OK(stet_test_advance(kit, "25h"));
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_STUCK);
    CHECK_CODE(stet_test_check(kit), STET_EREPLAY);
    CHECK_HAS(stet_last_error(), "stuck");
    CHECK_HAS(stet_last_error(), "recorded step charge#1");
    /* The code that agrees is deployed again. */
    CHECK_OK(stet_test_service(kit, "shop", shop));
    CHECK_OK(stet_test_expect(kit, &run, "charged"));
    CHECK_OK(stet_test_check(kit));
    stet_test_free(kit);
}

static int
body_misuses(stet_attempt *a, void *kit)
{
    (void)a;
    outside.entered = stet_test_advance(kit, "1h");
    outside.flipped = stet_test_engine(kit) != NULL && stet_test_now(kit) > 0;
    return STET_OK;
}

static stet_test *misused;

static int
h_misuses(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "misuse", body_misuses, misused, NULL);
}

TEST(H5_misuse_is_told)
{
    static const stet_handler misusing[] = { { "it", h_misuses, NULL }, { 0 } };
    static const stet_handler nameless[] = { { "a.b", h_misuses, NULL }, { 0 } };
    stet_test_options         bad = { .size = 3 };
    stet_test                *kit = kit_new(1);

    misused = kit;
    CHECK_OK(stet_test_service(kit, "misusing", misusing));
    (void)kit_start(kit, "misusing.it");
    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_INT(outside.entered, STET_EUSAGE);
    CHECK(outside.flipped);
    CHECK_OK(stet_test_service(kit, "nameless", nameless));
    CHECK_CODE(stet_test_run_until_idle(kit), STET_ENAME);
    CHECK_HAS(stet_last_error(), "a.b");
    stet_test_free(kit);
    stet_test_free(NULL);
    CHECK(stet_test_new(&bad) == NULL);
    CHECK_HAS(stet_last_error(), "STET_TEST_OPTIONS");
    CHECK_CODE(stet_test_crash_everywhere(&bad, NULL, NULL, NULL, NULL), STET_EINVAL);
    CHECK_CODE(stet_test_advance(NULL, "1h"), STET_EINVAL);
}

static void
on_exit_count(void *arg)
{
    free(arg);
    outside.entered++;
}

/* Takes what a body may take of the stack, and waits with memory of its own. */
static int
body_large(stet_attempt *a, void *arg)
{
    volatile char room[600 * 1024];

    (void)arg;
    for (size_t i = 0; i < sizeof room; i += 1024)
        room[i] = 1;
    outside.charged = room[1024];
    return stet_attempt_return(a, stet_text(""));
}

static int
h_tidy(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes who;

    (void)input;
    STET_TRY(stet_on_exit(ctx, on_exit_count, malloc(64)));
    STET_TRY(stet_step(ctx, NULL, "large", body_large, NULL, NULL));
    return stet_await_signal(ctx, &who, "approved", NULL);
}

TEST(H5_the_end_of_a_kit_lets_handlers_clean_up)
{
    static const stet_handler tidy[] = { { "tidy", h_tidy, NULL }, { 0 } };
    stet_test                *kit = kit_new(1);

    CHECK_OK(stet_test_service(kit, "tidy", tidy));
    (void)kit_start(kit, "tidy.tidy");
    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_INT(outside.charged, 1);
    CHECK_INT(outside.entered, 0);
    stet_test_free(kit);
    CHECK_INT(outside.entered, 1);
}

typedef struct wait_call {
    stet_run_id run;
    int64_t     limit_ms;
    int         called;
} wait_call;

static int
wait_for_run(stet_engine *e, void *arg)
{
    wait_call *call = arg;

    call->called++;
    return stet_wait(e, NULL, &call->run, call->limit_ms);
}

TEST(H5_a_call_may_wait_and_is_made_again_after_a_crash)
{
    bool is_over = false;
    int  crashes = 0;

    for (uint64_t next = 1; !is_over; next++) {
        wait_call  call = { .limit_ms = 172800000 };
        stet_test *kit = kit_new(1);
        int64_t    began_ms = stet_test_now(kit);

        call.run = kit_start(kit, "shop.checkout");
        CHECK_OK(stet_test_run_until_idle(kit));
        stet_test_crash_at(kit, stet_test_points(kit) + next);
        CHECK_OK(stet_test_do(kit, wait_for_run, &call));
        CHECK_INT((stet_test_now(kit) - began_ms) / 3600000, 24);
        is_over = stet_test_crashed(kit) == NULL;
        crashes += call.called == 2;
        CHECK(call.called <= 2);
        stet_test_free(kit);
    }
    CHECK(crashes >= 4);
}

/* Nobody settles it. */
TEST(H5_a_call_that_waits_without_end_is_given_up)
{
    wait_call  call = { .limit_ms = STET_NONE };
    stet_test *kit = kit_new(1);

    CHECK_OK(stet_test_service(kit, "more", more));
    call.run = kit_start(kit, "more.awakeable");
    CHECK_CODE(stet_test_do(kit, wait_for_run, &call), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "limit");
    CHECK_OK(stet_test_check(kit)); /* the kit goes on */
    stet_test_free(kit);
}

static int
h_again(stet_ctx *ctx, stet_bytes input)
{
    return stet_send(ctx, NULL, "again.again", input, NULL);
}

TEST(H5_what_never_rests_is_given_up)
{
    static const stet_handler again[] = { { "again", h_again, NULL }, { 0 } };
    stet_test                *kit = kit_new(1);

    kit->events_max = 200000;
    CHECK_OK(stet_test_service(kit, "again", again));
    (void)stet_test_start(kit, NULL, "again.again", stet_text(""), NULL);
    CHECK_CODE(stet_test_run_until_idle(kit), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "without end");
    stet_test_free(kit);
}

/* ---- crash everywhere ------------------------------------------------------------------------ */

/* What a correct program does: charges with a token, ships only what was not at risk of being
 * shipped. */
static int
flow_checkout(stet_test *kit, void *run)
{
    memset(&outside, 0, sizeof outside);
    STET_TRY(stet_test_service(kit, "shop", shop));
    STET_TRY(stet_test_start(kit, run, "shop.checkout", stet_text("{}"), NULL));
    return stet_test_advance(kit, "1d");
}

static int
check_checkout(stet_test *kit, void *run)
{
    if (outside.charged != 1)
        return stet_test_fail(kit, "charged %d times", outside.charged);
    if (outside.shipped > 1)
        return stet_test_fail(kit, "shipped %d times", outside.shipped);
    return stet_test_expect(kit, run, "charged");
}

TEST(I6_a_correct_handler_passes_everywhere)
{
    stet_test_report report;
    stet_run_id      run;

    for (uint64_t seed = 1; seed <= 5; seed++) {
        CHECK_OK(stet_test_crash_everywhere(STET_TEST_OPTIONS(.seed = seed), flow_checkout,
                                            check_checkout, &run, &report));
        CHECK(report.points >= 15);
        CHECK(report.crashes >= 10 && report.crashes < report.points);
        CHECK_INT(report.seed, seed);
        CHECK_INT(report.failed, 0);
        CHECK_STR(report.text, "");
    }
    test_note("%llu points, %llu crashes", (unsigned long long)report.points,
              (unsigned long long)report.crashes);
}

/* More of the vocabulary, driven from outside: none of it needs to know of crashes. */
static int
flow_everything(stet_test *kit, void *run)
{
    stet_run_id approval, answer;

    memset(&outside, 0, sizeof outside);
    awakeable[0] = '\0';
    STET_TRY(stet_test_service(kit, "shop", shop));
    STET_TRY(stet_test_service(kit, "odd", odd));
    STET_TRY(stet_test_service(kit, "more", more));
    STET_TRY(stet_test_object(kit, "counter", counter, from_ten));
    STET_TRY(stet_test_start(kit, run, "odd.everything", stet_text("{}"), NULL));
    STET_TRY(stet_test_start(kit, &approval, "shop.approval", stet_text("{}"), NULL));
    STET_TRY(stet_test_start(kit, &answer, "more.awakeable", stet_text("{}"), NULL));
    for (int i = 0; i < 2; i++)
        STET_TRY(stet_test_start(kit, NULL, "counter.add", stet_text(""), STET_START(.key = "k")));
    STET_TRY(stet_test_advance(kit, "1h"));
    STET_TRY(stet_test_signal(kit, &approval, "approved", stet_text("anna")));
    STET_TRY(stet_test_resolve(kit, awakeable, stet_text("yes")));
    STET_TRY(stet_test_advance(kit, "30h"));
    STET_TRY(stet_test_expect(kit, &approval, "anna"));
    return stet_test_expect(kit, &answer, "yes");
}

static int
read_counter(stet_engine *e, void *arg)
{
    stet_bytes value;
    int        err = stet_state_read(e, &value, "counter", "k", "n");

    if (err != STET_OK)
        return err;
    *(long *)arg = strtol(value.data, NULL, 10);
    stet_free((void *)(uintptr_t)value.data);
    return STET_OK;
}

static int
check_everything(stet_test *kit, void *run)
{
    long n = 0;

    STET_TRY(stet_test_do(kit, read_counter, &n));
    if (n != 12)
        return stet_test_fail(kit, "the counter is %ld", n);
    if (stet_test_status(kit, run) != STET_STATUS_COMPLETED)
        return stet_test_fail(kit, "it is %s", stet_status_name(stet_test_status(kit, run)));
    return outside.charged == 1 ? STET_OK
                                : stet_test_fail(kit, "charged %d times", outside.charged);
}

TEST_LIMIT(I6_signals_children_objects_and_futures_pass_everywhere, 120)
{
    stet_test_report report;
    stet_run_id      run;

    CHECK_OK(stet_test_crash_everywhere(NULL, flow_everything, check_everything, &run, &report));
    CHECK(report.points > 60);
    test_note("%llu points, %llu crashes", (unsigned long long)report.points,
              (unsigned long long)report.crashes);
}

/* What a trip books is given back if it fails, each once: the outside knows tokens. */
static struct {
    char tokens[32][64];
    int  n, booked, given_back;
} agency;

static bool
agency_is_new(const stet_attempt *a)
{
    for (int i = 0; i < agency.n; i++)
        if (strcmp(agency.tokens[i], stet_attempt_token(a)) == 0)
            return false;
    CHECK(agency.n < 32);
    (void)snprintf(agency.tokens[agency.n++], sizeof agency.tokens[0], "%s", stet_attempt_token(a));
    return true;
}

static int
body_book(stet_attempt *a, void *arg)
{
    (void)arg;
    agency.booked += agency_is_new(a);
    return stet_attempt_return(a, stet_text("booked"));
}

static int
undo_book(stet_attempt *a, stet_bytes result)
{
    (void)result;
    agency.given_back += agency_is_new(a);
    return STET_OK;
}

static int
is_winter(void *arg)
{
    (void)arg;
    return 0;
}

static int
h_trip(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch seasons[] = { { "winter", is_winter }, { "summer", NULL }, { 0 } };
    stet_bytes               weather;
    size_t                   season;
    bool                     is_first;

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_note(ctx, "a trip"));
    STET_TRY(stet_once(ctx, &is_first, "trip"));
    STET_TRY(stet_switch(ctx, &season, "season", seasons, NULL));
    STET_TRY(stet_step(ctx, NULL, "flight", body_book, NULL, STET_STEP(.undo = undo_book)));
    STET_TRY(stet_sleep(ctx, "think", "1h"));
    STET_TRY(stet_step(ctx, NULL, "hotel", body_book, NULL, STET_STEP(.undo = undo_book)));
    STET_TRY(stet_await_event(ctx, &weather, "weather", "1d"));
    return stet_fail(ctx, STET_EPERMANENT, "%s and %.*s: stay at home", seasons[season].id,
                     (int)weather.len, (const char *)weather.data);
}

static int
emit_weather(stet_engine *e, void *arg)
{
    (void)arg;
    return stet_emit(e, NULL, "weather", stet_text("rain"));
}

static int
flow_trip(stet_test *kit, void *run)
{
    static const stet_handler trips[] = { { "trip", h_trip, NULL }, { 0 } };

    memset(&agency, 0, sizeof agency);
    STET_TRY(stet_test_service(kit, "trips", trips));
    STET_TRY(stet_test_start(kit, run, "trips.trip", stet_text(""), NULL));
    STET_TRY(stet_test_advance(kit, "2h"));
    STET_TRY(stet_test_do(kit, emit_weather, NULL));
    return stet_test_advance(kit, "1h");
}

static int
check_trip(stet_test *kit, void *run)
{
    stet_result result;
    int         err;

    if (agency.booked != 2 || agency.given_back != 2)
        return stet_test_fail(kit, "booked %d, given back %d", agency.booked, agency.given_back);
    err = stet_test_result(kit, &result, run);
    if (err == STET_ERUN && strcmp(result.error, "summer and rain: stay at home") == 0)
        err = STET_OK;
    else
        err = stet_test_fail(kit, "it ended with %d: %s", err, result.error);
    stet_result_free(&result);
    return err;
}

TEST(I6_undos_choices_and_events_pass_everywhere)
{
    stet_test_report report;
    stet_run_id      run;

    CHECK_OK(stet_test_crash_everywhere(NULL, flow_trip, check_trip, &run, &report));
    CHECK(report.points > 30);
    test_note("%llu points, %llu crashes", (unsigned long long)report.points,
              (unsigned long long)report.crashes);
}

/* Rolls back by itself, does more, and fails: what it did since is undone too. */
static int
h_twice(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_step(ctx, NULL, "flight", body_book, NULL, STET_STEP(.undo = undo_book)));
    STET_TRY(stet_rollback(ctx));
    STET_TRY(stet_step(ctx, NULL, "train", body_book, NULL, STET_STEP(.undo = undo_book)));
    return stet_fail(ctx, STET_EPERMANENT, "stay at home");
}

static int
flow_twice(stet_test *kit, void *run)
{
    static const stet_handler trips[] = { { "twice", h_twice, NULL }, { 0 } };

    memset(&agency, 0, sizeof agency);
    STET_TRY(stet_test_service(kit, "trips", trips));
    STET_TRY(stet_test_start(kit, run, "trips.twice", stet_text(""), NULL));
    return stet_test_advance(kit, "1m");
}

static int
check_twice(stet_test *kit, void *run)
{
    if (agency.booked != 2 || agency.given_back != 2)
        return stet_test_fail(kit, "booked %d, given back %d", agency.booked, agency.given_back);
    return stet_test_status(kit, run) == STET_STATUS_FAILED
               ? STET_OK
               : stet_test_fail(kit, "it is %s", stet_status_name(stet_test_status(kit, run)));
}

static int
undo_stubborn(stet_attempt *a, stet_bytes result)
{
    (void)result;
    if (outside.flipped == 0)
        return stet_attempt_fail(a, STET_EPERMANENT, "the agency is closed");
    agency.given_back += agency_is_new(a);
    return STET_OK;
}

static int
h_stubborn(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "flight", body_book, NULL, STET_STEP(.undo = undo_stubborn)));
    STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, stet_text("home"));
}

static int
rollback_again(stet_engine *e, void *run)
{
    int err = stet_rollback_retry(e, run, "test", "the agency has opened");

    return err == STET_ESTATE ? STET_OK : err; /* it was asked for before a crash */
}

static int
flow_stubborn(stet_test *kit, void *run)
{
    static const stet_handler trips[] = { { "stubborn", h_stubborn, NULL }, { 0 } };

    memset(&agency, 0, sizeof agency);
    memset(&outside, 0, sizeof outside);
    STET_TRY(stet_test_service(kit, "trips", trips));
    STET_TRY(stet_test_start(kit, run, "trips.stubborn", stet_text(""), NULL));
    STET_TRY(stet_test_advance(kit, "1m"));
    outside.flipped = 1;
    STET_TRY(stet_test_do(kit, rollback_again, run));
    return stet_test_advance(kit, "1m");
}

static int
check_stubborn(stet_test *kit, void *run)
{
    (void)run;
    return agency.booked == 1 && agency.given_back == 1
               ? STET_OK
               : stet_test_fail(kit, "booked %d, given back %d", agency.booked, agency.given_back);
}

/* An undo that failed is executed again when it is tried again: it has no record, and the kit does
 * not take it for one that had. */
TEST(B11_a_failed_undo_that_is_tried_again_is_done_once)
{
    stet_test_report report;
    stet_run_id      run;

    CHECK_OK(stet_test_crash_everywhere(NULL, flow_stubborn, check_stubborn, &run, &report));
    CHECK(report.points > 20);
}

TEST(B11_a_crash_inside_a_rollback_goes_on_with_it_asked_for_or_not)
{
    stet_test_report report;
    stet_run_id      run;

    for (uint64_t seed = 1; seed <= 5; seed++) {
        CHECK_OK(stet_test_crash_everywhere(STET_TEST_OPTIONS(.seed = seed), flow_trip, check_trip,
                                            &run, &report));
        CHECK_OK(stet_test_crash_everywhere(STET_TEST_OPTIONS(.seed = seed), flow_twice,
                                            check_twice, &run, &report));
        CHECK(report.points > 20);
    }
}

/* Three bugs of users. An effect outside of a step: */
static int
h_outside(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    outside.entered++; /* "it is only a counter" */
    STET_TRY(stet_step(ctx, NULL, "charge", body_charge, NULL, NULL));
    return stet_return(ctx, stet_text("charged"));
}

/* … a step that is not safe to repeat, and does not ask whether it was: */
static int
body_charge_blindly(stet_attempt *a, void *arg)
{
    (void)arg;
    outside.charged++;
    return stet_attempt_return(a, stet_text("charged"));
}

static int
h_blind(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes charge;

    (void)input;
    STET_TRY(stet_step(ctx, &charge, "charge", body_charge_blindly, NULL, NULL));
    return stet_return(ctx, charge);
}

/* … and a branch that depends on something that is not recorded: h_flips, and this one, which waits
 * after it, so that a crash finds it as well. */
static int
h_branch(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, outside.charged == 0 ? "charge" : "charge-again", body_charge,
                       NULL, NULL));
    STET_TRY(stet_sleep(ctx, "nap", "1h"));
    return stet_return(ctx, stet_text("charged"));
}

static const stet_handler buggy[] = {
    { "outside", h_outside, NULL },
    { "blind", h_blind, NULL },
    { "branch", h_branch, NULL },
    { "flips", h_flips, NULL },
    { 0 },
};

typedef struct buggy_flow {
    const char *handler;
    stet_run_id run;
} buggy_flow;

static int
flow_buggy(stet_test *kit, void *arg)
{
    buggy_flow *flow = arg;

    memset(&outside, 0, sizeof outside);
    STET_TRY(stet_test_service(kit, "buggy", buggy));
    STET_TRY(stet_test_start(kit, &flow->run, flow->handler, stet_text("{}"), NULL));
    return stet_test_advance(kit, "1h");
}

static int
check_buggy(stet_test *kit, void *arg)
{
    (void)arg;
    if (outside.entered > 1)
        return stet_test_fail(kit, "counted %d times", outside.entered);
    return outside.charged == 1 ? STET_OK
                                : stet_test_fail(kit, "charged %d times", outside.charged);
}

TEST(I6_planted_bugs_are_found_and_named)
{
    static const struct {
        const char *handler, *where, *what;
        int         code;
    } bugs[] = {
        { "buggy.outside", "crash before the body of step charge#1 was entered", "counted 2 times",
          STET_EPERMANENT },
        { "buggy.blind", "crash after the body of step charge#1 ran, before its record was written",
          "charged 2 times", STET_EPERMANENT },
        { "buggy.branch", "without any crash", "asked for step charge-again#1", STET_EREPLAY },
        { "buggy.flips", "without any crash", "asked for step ship#1", STET_EREPLAY },
    };

    for (size_t i = 0; i < sizeof bugs / sizeof bugs[0]; i++) {
        buggy_flow       flow = { .handler = bugs[i].handler };
        stet_test_report report, again;

        CHECK_CODE(stet_test_crash_everywhere(NULL, flow_buggy, check_buggy, &flow, &report),
                   bugs[i].code);
        CHECK_HAS(report.text, bugs[i].what);
        CHECK_HAS(stet_last_error(), bugs[i].what);
        CHECK_STR(report.where, bugs[i].where);
        if (report.failed == 0)
            continue;
        CHECK_HAS(report.text, ".only = ");
        CHECK_CODE(stet_test_crash_everywhere(STET_TEST_OPTIONS(.only = report.failed), flow_buggy,
                                              check_buggy, &flow, &again),
                   bugs[i].code);
        CHECK_STR(again.text, report.text);
        CHECK_INT(again.points, 1);
    }
}

/* Without the replay that is part of it, a crash alone would show it. */
TEST(I6_a_branch_on_what_is_not_recorded_gets_stuck_after_a_crash)
{
    buggy_flow flow = { .handler = "buggy.branch" };
    bool       is_stuck = false;

    for (uint64_t n = 1; !is_stuck; n++) {
        stet_test *kit = stet_test_new(NULL);

        stet_test_crash_at(kit, n);
        CHECK_OK(flow_buggy(kit, &flow));
        is_stuck = stet_test_status(kit, &flow.run) == STET_STATUS_STUCK;
        CHECK(is_stuck || stet_test_crashed(kit) != NULL);
        if (is_stuck)
            CHECK_CODE(stet_test_check(kit), STET_EREPLAY);
        stet_test_free(kit);
    }
}

TEST(I6_a_point_that_is_not_there_is_told)
{
    stet_test_report report;
    stet_run_id      run;

    CHECK_CODE(stet_test_crash_everywhere(STET_TEST_OPTIONS(.only = 100000), flow_checkout,
                                          check_checkout, &run, &report),
               STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "no point 100000");
    CHECK_OK(
        stet_test_crash_everywhere(STET_TEST_OPTIONS(.only = 3), flow_checkout, NULL, &run, NULL));
}

static int
flow_fails(stet_test *kit, void *arg)
{
    (void)arg;
    return stet_test_fail(kit, "the workflow itself is wrong");
}

TEST(I6_a_workflow_that_fails_is_told_at_once)
{
    stet_test_report report;

    CHECK_CODE(stet_test_crash_everywhere(NULL, flow_fails, NULL, NULL, &report), STET_EPERMANENT);
    CHECK_STR(report.text, "without any crash: the workflow itself is wrong");
    CHECK_INT(report.points, 0);
}

/* ---- what is executed again and may be ------------------------------------------------------- */

static int
body_flaky(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_number(a) < 3 ? stet_attempt_fail(a, STET_ERETRY, "later") : STET_OK;
}

static int
h_flaky(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "nap", "2h"));
    STET_TRY(stet_step(ctx, NULL, "flaky", body_flaky, NULL,
                       STET_STEP(.attempts = 5, .first_ms = 1000)));
    return stet_return(ctx, input);
}

static const stet_handler again[] = { { "flaky", h_flaky, NULL }, { 0 } };

static int
flow_flaky(stet_test *kit, void *arg)
{
    (void)arg;
    STET_TRY(stet_test_service(kit, "again", again));
    for (int i = 0; i < 3; i++)
        STET_TRY(stet_test_start(kit, NULL, "again.flaky", stet_text(""), NULL));
    return stet_test_advance(kit, "3h");
}

/* The engine died at a body while the commit of another run was applied and not yet told to the
 * kit: that one's record was there, and the kit did not know. */
TEST_LIMIT(H5_I6_attempts_that_fail_in_several_runs_at_once_pass_everywhere, 120)
{
    stet_test_report report;
    uint64_t         seeds = (uint64_t)test_count("STET_TEST_KIT_SEEDS", 80);

    for (uint64_t seed = 1; seed <= seeds; seed++)
        if (stet_test_crash_everywhere(STET_TEST_OPTIONS(.seed = seed), flow_flaky, NULL, NULL,
                                       &report) != STET_OK)
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, report.text);
}

static int
body_counted(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    return STET_OK;
}

static int
h_rewound(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "reserve", body_counted, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "charge", body_counted, NULL, NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    STET_TRY(stet_step(ctx, NULL, "pack", body_counted, NULL, NULL));
    return stet_return(ctx, input);
}

static const stet_handler rewound[] = { { "rewound", h_rewound, NULL }, { 0 } };

static int
rewind_charge(stet_engine *e, void *run)
{
    return stet_run_rewind(e, run, "charge", "ann", "the wrong card");
}

static int
flow_rewound(stet_test *kit, void *run)
{
    STET_TRY(stet_test_service(kit, "again", rewound));
    STET_TRY(stet_test_start(kit, run, "again.rewound", stet_text("done"), NULL));
    STET_TRY(stet_test_run_until_idle(kit));
    STET_TRY(stet_test_do(kit, rewind_charge, run));
    STET_TRY(stet_test_run_until_idle(kit));
    STET_TRY(stet_test_signal(kit, run, "go", stet_text("")));
    return stet_test_run_until_idle(kit);
}

static int
check_rewound(stet_test *kit, void *run)
{
    if (stet_test_bodies(kit, run, "charge#1") < 2)
        return stet_test_fail(kit, "it was not executed again");
    return stet_test_expect(kit, run, "done");
}

TEST(H5_I6_what_was_rewound_may_be_executed_again_and_passes_everywhere)
{
    stet_test       *kit = kit_new(1);
    stet_test_report report;
    stet_run_id      run;

    CHECK_OK(flow_rewound(kit, &run));
    CHECK_OK(stet_test_check(kit));
    CHECK_INT(stet_test_bodies(kit, &run, "reserve#1"), 1);
    CHECK_INT(stet_test_bodies(kit, &run, "charge#1"), 2);
    CHECK_INT(stet_test_bodies(kit, &run, "pack#1"), 1);
    stet_test_free(kit);
    for (uint64_t seed = 1; seed <= 3; seed++)
        if (stet_test_crash_everywhere(STET_TEST_OPTIONS(.seed = seed), flow_rewound, check_rewound,
                                       &run, &report) != STET_OK)
            test_fail(__FILE__, __LINE__, "%s", report.text);
}

/* Tell the kit of a record that is not there. */
static void
forge_record(stet_test *kit, const stet_run_id *run, const char *step, uint64_t revision)
{
    stet__fact fact = { .kind = STET__FACT_STEP, .name = stet_text(step), .occurrence = 1 };
    stet__buf  facts;
    stet_op    op = { .kind = STET_OP_FACTS, .number = revision };
    stet_unit  unit = { .ops = &op, .n_ops = 1 };

    stet__buf_init(&facts, &stet__platform_real()->alloc);
    stet__fact_encode(&facts, &fact);
    op.data = stet__buf_bytes(&facts);
    CHECK_OK(stet__id_parse(&op.run, STET__ID_RUN, run->text));
    stet__kit_applied(kit, &unit);
    stet__buf_free(&facts);
}

static int
rewound_after(uint64_t revision)
{
    stet_test  *kit = kit_new(1);
    stet_run_id run;
    int         err;

    CHECK_OK(stet_test_service(kit, "again", rewound));
    CHECK_OK(stet_test_start(kit, &run, "again.rewound", stet_text("done"), NULL));
    CHECK_OK(stet_test_run_until_idle(kit));
    forge_record(kit, &run, "pack", revision);
    CHECK_OK(stet_test_do(kit, rewind_charge, &run));
    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_OK(stet_test_check(kit));
    CHECK_OK(stet_test_signal(kit, &run, "go", stet_text("")));
    CHECK_OK(stet_test_run_until_idle(kit));
    err = stet_test_check(kit);
    stet_test_free(kit);
    return err;
}

TEST(H5_I6_a_rewind_forgets_what_is_behind_it_and_nothing_before)
{
    CHECK_CODE(rewound_after(2), STET_EPERMANENT);
    CHECK_HAS(stet_last_error(), "step pack#1");
    CHECK_HAS(stet_last_error(), "though its record was durable");
    CHECK_OK(rewound_after(100));
}

/* ---- and what else an operator, or the handler, may do */

static int
body_until_fixed(stet_attempt *a, void *arg)
{
    (void)arg;
    return outside.flipped ? STET_OK : stet_attempt_fail(a, STET_EPERMANENT, "broken");
}

static int
body_until_fixed_passing(stet_attempt *a, void *arg)
{
    (void)arg;
    return outside.flipped ? STET_OK : stet_attempt_fail(a, STET_ERETRY, "not yet");
}

static int
undo_until_fixed(stet_attempt *a, stet_bytes result)
{
    (void)result;
    return outside.flipped ? STET_OK : stet_attempt_fail(a, STET_EPERMANENT, "closed");
}

/* Its first half is inherited by a retry. */
static int
h_failing(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "reserve", body_counted, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "pay", body_until_fixed, NULL, NULL));
    return stet_return(ctx, input);
}

static int
h_undoing(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "book", body_counted, NULL, STET_STEP(.undo = undo_until_fixed)));
    STET_TRY(stet_rollback(ctx));
    return stet_fail(ctx, STET_EPERMANENT, "taken back");
}

static int
h_anew(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "round", body_counted, NULL, NULL));
    if (input.len < 3) {
        char next[] = "xxx";

        return stet_continue(ctx, (stet_bytes){ next, input.len + 1 });
    }
    return stet_return(ctx, input);
}

/* Its failure is put off by a classifier: no attempt ends. */
static int
h_deferred(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "call", body_until_fixed_passing, NULL, NULL));
    return stet_return(ctx, input);
}

static int
put_off(void *arg, const stet_failed *failed, int64_t *not_before_ms)
{
    (void)failed;
    *not_before_ms = stet_test_now(*(stet_test **)arg) + 3600000;
    return STET_EDEFER;
}

static stet_test                 *operated_kit;
static const stet_handler_options operated_options = { .classify = put_off,
                                                       .classify_arg = &operated_kit };
static const stet_handler         operated[] = {
            { "failing", h_failing, NULL }, { "undoing", h_undoing, NULL },
            { "anew", h_anew, NULL },       { "deferred", h_deferred, &operated_options },
            { "rewound", h_rewound, NULL }, { 0 }
};

typedef struct operated_runs {
    stet_run_id failing, undoing, anew, deferred, given, retried, forked;
} operated_runs;

/* A call that is made again because the engine died in it finds it done. */
static int
operate_all(stet_engine *e, void *arg)
{
    operated_runs *r = arg;
    int            err;

    if ((err = stet_run_edit(e, &r->given, "charge", stet_text("7"), "ann", "look")) != STET_OK)
        return err;
    err = stet_run_skip(e, &r->given, "pack#1", stet_text("8"), "ann", "by hand");
    if (err != STET_OK && err != STET_ESETTLED)
        return err;
    err = stet_rollback_retry(e, &r->undoing, "ann", "open again");
    if (err != STET_OK && err != STET_ESTATE && err != STET_EENDED)
        return err;
    err = stet_dlq_retry(e, &r->retried, &r->failing);
    if (err != STET_OK && err != STET_EEXISTS)
        return err;
    return stet_run_fork(e, &r->forked, &r->failing, "pay", "ann", "look");
}

static int
flow_operated(stet_test *kit, void *arg)
{
    operated_runs *r = arg;

    memset(&outside, 0, sizeof outside);
    operated_kit = kit;
    STET_TRY(stet_test_service(kit, "op", operated));
    STET_TRY(stet_test_start(kit, &r->failing, "op.failing", stet_text("a"), NULL));
    STET_TRY(stet_test_start(kit, &r->undoing, "op.undoing", stet_text("b"), NULL));
    STET_TRY(stet_test_start(kit, &r->anew, "op.anew", stet_text(""), NULL));
    STET_TRY(stet_test_start(kit, &r->deferred, "op.deferred", stet_text("d"), NULL));
    STET_TRY(stet_test_start(kit, &r->given, "op.rewound", stet_text("e"), NULL));
    STET_TRY(stet_test_advance(kit, "1m"));
    outside.flipped = true;
    STET_TRY(stet_test_do(kit, operate_all, r));
    STET_TRY(stet_test_signal(kit, &r->given, "go", stet_text("")));
    return stet_test_advance(kit, "2h");
}

static int
check_operated(stet_test *kit, void *arg)
{
    operated_runs *r = arg;

    if (stet_test_bodies(kit, &r->given, "pack#1") != 0)
        return stet_test_fail(kit, "a skipped step was executed");
    STET_TRY(stet_test_expect(kit, &r->forked, "a"));
    STET_TRY(stet_test_expect(kit, &r->anew, "xxx"));
    STET_TRY(stet_test_expect(kit, &r->deferred, "d"));
    return stet_test_expect(kit, &r->given, "e");
}

TEST_LIMIT(H5_I6_skips_edits_retries_forks_new_beginnings_and_deferrals_pass_everywhere, 120)
{
    stet_test_report report;
    operated_runs    runs;

    for (uint64_t seed = 1; seed <= 3; seed++)
        if (stet_test_crash_everywhere(STET_TEST_OPTIONS(.seed = seed), flow_operated,
                                       check_operated, &runs, &report) != STET_OK)
            test_fail(__FILE__, __LINE__, "%s", report.text);
    test_note("%llu points", (unsigned long long)report.points);
}

/* What the engine never does, told to the kit by hand: it must be seen from outside. */
TEST(I6_a_body_that_runs_after_its_record_was_durable_is_found)
{
    stet_test  *kit = kit_new(1);
    stet_run_id run;

    CHECK_OK(
        stet_test_start(kit, &run, "shop.checkout", stet_text("{}"), STET_START(.delay = "1h")));
    forge_record(kit, &run, "charge", 2);
    CHECK_OK(stet_test_check(kit));
    CHECK_OK(stet_test_advance(kit, "1h"));
    CHECK_CODE(stet_test_check(kit), STET_EPERMANENT);
    CHECK_HAS(stet_last_error(), "step charge#1");
    CHECK_HAS(stet_last_error(), "though its record was durable");
    stet_test_free(kit);
}

TEST(I6_a_start_that_was_acknowledged_and_is_gone_is_found)
{
    stet_test *kit = kit_new(1);

    (void)kit_start(kit, "shop.checkout");
    CHECK_OK(stet_test_check(kit));
    kit->started[0].text[STET_ID_TEXT_MAX / 2] ^= 1;
    CHECK_CODE(stet_test_check(kit), STET_EPERMANENT);
    CHECK_HAS(stet_last_error(), "acknowledged");
    stet_test_free(kit);
}

/* ---- bugs of the engine ---------------------------------------------------------------------- */

#ifdef STET_MUTANTS
/* Planted ones (src/util/mutant.h), found by a user's workflow without a check of the user's: `make
 * mutants` runs this. */
TEST_LIMIT(I6_bugs_planted_in_the_engine_are_found, 300)
{
    static const stet__mutant_name bugs[] = {
        STET__MUTANT_epoch_kept,    STET__MUTANT_repeat_applied,     STET__MUTANT_timer_after,
        STET__MUTANT_parent_untold, STET__MUTANT_journal_short,      STET__MUTANT_inbox_short,
        STET__MUTANT_step_before,   STET__MUTANT_unknown_renumbered, STET__MUTANT_now_unrecorded,
        STET__MUTANT_random_anew,   STET__MUTANT_child_apart,        STET__MUTANT_death_untold,
        STET__MUTANT_crumb_early,
    };
    stet_test_report report;
    stet_run_id      run;

    for (size_t i = 0; i < sizeof bugs / sizeof bugs[0]; i++) {
        int code;

        stet__mutant = bugs[i];
        code = stet_test_crash_everywhere(NULL, flow_everything, NULL, &run, &report);
        stet__mutant = STET__MUTANT_none;
        if (code == STET_OK)
            test_fail(__FILE__, __LINE__, "planted bug %d was not found", (int)bugs[i]);
    }
    CHECK_OK(stet_test_crash_everywhere(NULL, flow_everything, NULL, &run, &report));
}
#endif

/* ---- refusals and limits ------------------------------------------------------------------- */

static int
count_options(void *arg, const stet_worker_info *worker)
{
    if (strcmp(worker->name, "mine") == 0)
        ++*(int *)arg;
    return STET_OK;
}

static int
see_worker(stet_engine *e, void *arg)
{
    return stet_worker_list(e, count_options, arg);
}

TEST(H5_options_of_the_engine_are_kept)
{
    stet_test *kit = stet_test_new(
        STET_TEST_OPTIONS(.engine = STET_OPTIONS(.worker = "mine", .concurrency = 3,
                                                 .in_flight_max = 9, .retention_ms = 3600000,
                                                 .wait_poll_ms = 50)));
    stet_run_id run;
    int         n = 0;

    CHECK(kit != NULL);
    memset(&outside, 0, sizeof outside);
    CHECK(stet_test_engine(kit) == NULL); /* not before it is needed */
    CHECK_OK(stet_test_service(kit, "shop", shop));
    run = kit_start(kit, "shop.checkout");
    CHECK_OK(stet_test_do(kit, see_worker, &n));
    CHECK_INT(n, 1);
    CHECK_OK(stet_test_advance(kit, "25h"));
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_COMPLETED);
    CHECK_OK(stet_test_advance(kit, "2d")); /* an hour it is kept, then a sweep takes it */
    CHECK_INT(stet_test_status(kit, &run), 0);
    stet_test_free(kit);
}

static bool
never(stet_test *kit, void *arg)
{
    (void)kit;
    (void)arg;
    return false;
}

/* What each of them gives inside of a body. */
static int
body_misuses_all(stet_attempt *a, void *arg)
{
    stet_test  *kit = arg;
    stet_run_id run;

    (void)a;
    (void)snprintf(run.text, sizeof run.text, "run_00000000000000000000000001");
    outside.entered = stet_test_service(kit, "x", shop) == STET_EUSAGE &&
                      stet_test_object(kit, "x", shop, NULL) == STET_EUSAGE &&
                      stet_test_app(kit, NULL) == STET_EUSAGE &&
                      stet_test_fail_next(kit, STET_EBUSY, 1) == STET_EUSAGE &&
                      stet_test_replay(kit, &run) == STET_EUSAGE &&
                      stet_test_wait_until(kit, never, NULL, "1h") == STET_EUSAGE &&
                      stet_test_run_until_idle(kit) == STET_EUSAGE &&
                      stet_test_crash(kit) == STET_EUSAGE &&
                      stet_test_check(kit) == STET_EUSAGE &&
                      stet_test_do(kit, see_worker, NULL) == STET_EUSAGE &&
                      stet_test_start(kit, &run, "shop.checkout", stet_text(""), NULL) ==
                          STET_EUSAGE &&
                      stet_test_signal(kit, &run, "s", stet_text("")) == STET_EUSAGE &&
                      stet_test_resolve(kit, "awk_x", stet_text("")) == STET_EUSAGE &&
                      stet_test_reject(kit, "awk_x", "no") == STET_EUSAGE &&
                      stet_test_cancel(kit, &run, "no") == STET_EUSAGE &&
                      stet_test_expect(kit, &run, "") == STET_EUSAGE;
    outside.flipped = stet_test_spend(kit, "soon") == STET_EDURATION &&
                      stet_test_spend(kit, "99999999d") == STET_EDURATION &&
                      stet_test_spend(kit, "1h") == STET_OK;
    return STET_OK;
}

static int
h_misuses_all(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "misuse", body_misuses_all, misused, NULL);
}

TEST(H5_every_call_is_refused_inside_of_a_body)
{
    static const stet_handler misusing[] = { { "it", h_misuses_all, NULL }, { 0 } };
    stet_test                *kit = kit_new(1);
    stet_run_id               run;

    misused = kit;
    CHECK_OK(stet_test_service(kit, "misusing", misusing));
    run = kit_start(kit, "misusing.it");
    CHECK_OK(stet_test_advance(kit, "2h"));
    CHECK_INT(stet_test_status(kit, &run), STET_STATUS_COMPLETED);
    CHECK_INT(outside.entered, 1);
    CHECK_INT(outside.flipped, 1);
    CHECK_CODE(stet_test_app(kit, NULL), STET_ESTATE);
    CHECK_CODE(stet_test_fail_next(kit, 12345, 1), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "that (12345)");
    (void)snprintf(run.text, sizeof run.text, "run_x");
    CHECK_CODE(stet_test_replay(kit, &run), STET_EINVAL);
    CHECK_CODE(stet_test_spend(kit, "1h"), STET_EUSAGE);
    stet_test_free(kit);
}

TEST(H5_what_never_comes_is_told_with_the_runs_that_are_open)
{
    stet_test *kit = kit_new(1);

    CHECK_CODE(stet_test_wait_until(kit, never, NULL, "1h"), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "no run is open");
    (void)kit_start(kit, "shop.checkout");
    CHECK_OK(stet_test_advance(kit, "25h"));
    CHECK_CODE(stet_test_wait_until(kit, never, NULL, "1h"), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "no run is open"); /* that one has ended */
    for (int i = 0; i < 7; i++)
        (void)kit_start(kit, "shop.approval");
    CHECK_CODE(stet_test_wait_until(kit, never, NULL, "1h"), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "; shop.approval run_");
    stet_test_free(kit);
}

TEST(H5_a_kit_that_has_no_such_handler_replays_nothing)
{
    static const stet_handler other[] = { { "month", h_month, NULL }, { 0 } };
    stet_test                *kit = kit_new(1);
    stet_run_id               run = kit_start(kit, "shop.checkout");

    CHECK_OK(stet_test_run_until_idle(kit));
    CHECK_OK(stet_test_service(kit, "shop", other));
    CHECK_CODE(stet_test_replay(kit, &run), STET_ENOHANDLER);
    CHECK_HAS(stet_last_error(), "shop.checkout is not registered in this kit");
    stet_test_free(kit);
}

/* ---- points in words ----------------------------------------------------------------------- */

static int
body_second_time(stet_attempt *a, void *arg)
{
    (void)arg;
    return outside.entered++ % 2 == 0 ? stet_attempt_fail(a, STET_ERETRY, "not yet")
                                      : stet_attempt_return(a, stet_text(""));
}

/* Fails as a whole, begins anew, retries a step. */
static int
h_words(stet_ctx *ctx, stet_bytes input)
{
    if (stet_info(ctx)->generation == 0) {
        STET_TRY(stet_step(ctx, NULL, "twice", body_second_time, NULL,
                           STET_STEP(.attempts = 3, .first_ms = 1000)));
        return stet_continue(ctx, input);
    }
    STET_TRY(stet_step(ctx, NULL, "ship", body_ship, NULL, NULL));
    STET_TRY(stet_sleep(ctx, "nap", "1h"));
    return stet_fail(ctx, STET_ERETRY, "the whole of it");
}

static const stet_handler_options words_options = {
    .retry = { .attempts = 2, .first_ms = 1000 }
};

TEST(I6_each_point_is_told_in_words)
{
    static const stet_handler words[] = { { "words", h_words, &words_options }, { 0 } };
    static const char *const  parts[] = {
        "the start of words.words",
        "the record of a failed attempt of step twice#1",
        "the new beginning of",
        "the end of a failed attempt of the run",
        "the end of the run",
        "the firing of a timer",
        "the claim of due runs",
        "the engine's start",
        "after the body of step ship#1 ran",
        "and the answer was lost",
    };
    static char said[200000];
    bool        is_over = false;

    for (uint64_t n = 1; !is_over; n++) {
        stet_test  *kit = kit_new(1);
        stet_run_id run, late;

        CHECK_OK(stet_test_service(kit, "words", words));
        stet_test_crash_at(kit, n);
        run = kit_start(kit, "words.words");
        CHECK_OK(stet_test_start(kit, &late, "shop.approval", stet_text(""),
                                 STET_START(.timeout = "1h")));
        CHECK_OK(stet_test_advance(kit, "1d"));
        CHECK_INT(stet_test_status(kit, &run), STET_STATUS_FAILED);
        CHECK_INT(stet_test_status(kit, &late), STET_STATUS_EXPIRED);
        is_over = stet_test_crashed(kit) == NULL;
        if (!is_over && strlen(said) + strlen(stet_test_crashed(kit)) + 2 < sizeof said)
            (void)snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n",
                           stet_test_crashed(kit));
        stet_test_free(kit);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_HAS(said, parts[i]);
}
