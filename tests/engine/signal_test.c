/* Signals to a run (B8), and as futures (B18). tsan: yes */
#include "engine/engine.h"
#include "fixture.h"

/* Waits `n` times (its input) for "go" and returns what came, one behind the other; between the
 * waits it naps, so that every wait begins in an execution of its own. */
static int
h_collects(stet_ctx *ctx, stet_bytes input)
{
    char *all = stet_ctx_printf(ctx, "%s", "");

    for (int i = 0; i < ((const char *)input.data)[0] - '0'; i++) {
        stet_bytes value;

        STET_TRY(stet_await_signal(ctx, &value, "go", NULL));
        all = stet_ctx_printf(ctx, "%s[%.*s]", all, (int)value.len, (const char *)value.data);
        STET_TRY(stet_sleep(ctx, "nap", "1ms"));
    }
    return stet_return(ctx, stet_text(all));
}

/* A limit of 20 ms for the first wait, none for the second. */
static int
h_limited(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    int        first;

    (void)input;
    if ((first = stet_await_signal(ctx, &value, "go", "20ms")) == STET_SUSPENDED)
        return first;
    effect("first %s", stet_code_name(first));
    STET_TRY(stet_await_signal(ctx, &value, "go", NULL));
    return stet_return(ctx, value);
}

/* A limit that is not reached; then an end the test gives. */
static int
h_patient(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &value, "go", "30d"));
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, value);
}

static const stet_handler handlers[] = { { "collect", h_collects, NULL },
                                         { "limited", h_limited, NULL },
                                         { "patient", h_patient, NULL },
                                         { 0 } };

static void
send(fixture *f, const stet_run_id *run, const char *value)
{
    CHECK_OK(stet_signal(f->engine, run, "go", stet_text(value), NULL));
}

TEST(B8_a_wait_gets_the_next_signal_of_its_name)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.collect", "1", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "other", stet_text("x"), NULL));
    AWAIT(fixture_facts(f->engine, &run, "signal", "other") == 1);
    CHECK_CODE(stet_result_get(f->engine, NULL, &run), STET_EOPEN);
    send(f, &run, "now");
    EXPECT_RESULT(f->engine, &run, "[now]");
    fixture_end(f);
}

TEST(B8_signals_before_the_wait_are_kept_in_order_and_each_has_one_wait)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE; /* every execution replays */
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.collect", "5", STET_START(.delay = "100ms"));
    send(f, &run, "one");
    send(f, &run, "two");
    send(f, &run, "");
    send(f, &run, "four");
    fixture_down(f);
    fixture_up_with(f, handlers);
    send(f, &run, "five");
    EXPECT_RESULT(f->engine, &run, "[one][two][][four][five]");
    CHECK_INT(fixture_facts(f->engine, &run, "signal wait", "go"), 5);
    fixture_end(f);
}

TEST(B8_a_limit_gives_the_timeout_and_the_late_signal_is_for_the_next_wait)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.limited", "", NULL);
    effects_await("first STET_ETIMEOUT", 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f); /* and so on a replay */
    fixture_up_with(f, handlers);
    send(f, &run, "late");
    EXPECT_RESULT(f->engine, &run, "late");
    CHECK_INT(effects("first STET_ETIMEOUT"), 2);
    CHECK_INT(effects("first STET_OK"), 0);
    fixture_end(f);
}

TEST(B8_a_signal_within_the_limit_takes_the_timer_with_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run, early;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.patient", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_sound(f->engine); /* its timer is there … */
    CHECK_STR(fixture_why(f->engine, &run).kind, "signal");
    CHECK_HAS(fixture_why(f->engine, &run).text, "waits for signal go, at most until its limit");
    CHECK_HAS(fixture_why(f->engine, &run).help, "stet signal run_");
    send(f, &run, "in time");
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "signal") == NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_sound(f->engine); /* … and now is not */
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "in time");
    /* The same if it was there before. */
    early = fixture_start(f->engine, "t.patient", "", NULL);
    send(f, &early, "early");
    AWAIT(fixture_facts(f->engine, &early, "signal wait", "go") == 1);
    fixture_await_status(f->engine, &early, STET_STATUS_SUSPENDED);
    AWAIT(strstr(fixture_look(f->engine, &early).reason, "signal") == NULL);
    fixture_await_status(f->engine, &early, STET_STATUS_SUSPENDED);
    fixture_sound(f->engine);
    fixture_go_on(f->engine, &early);
    EXPECT_RESULT(f->engine, &early, "early");
    fixture_end(f);
}

typedef struct signal_race {
    stet_engine *engine;
    stet_run_id  run;
} signal_race;

static void
race_send(void *arg, int i)
{
    signal_race *r = arg;
    char         value[8];

    (void)snprintf(value, sizeof value, "%d", i);
    CHECK_OK(stet_signal(r->engine, &r->run, "go", stet_text(value), NULL));
}

TEST(B8_of_many_senders_at_once_each_is_delivered_once)
{
    fixture    *f = fixture_begin();
    signal_race r;
    stet_result result;

    fixture_up_with(f, handlers);
    r.engine = f->engine;
    r.run = fixture_start(f->engine, "t.collect", "8", NULL);
    fixture_race(8, race_send, &r);
    result = EXPECT_END(f->engine, &r.run, STET_OK);
    for (int i = 0; i < 8; i++) {
        char want[8], text[64];

        (void)snprintf(want, sizeof want, "[%d]", i);
        (void)snprintf(text, sizeof text, "%.*s", (int)result.value.len,
                       (const char *)result.value.data);
        CHECK_HAS(text, want);
    }
    CHECK_INT(result.value.len, 24);
    stet_result_free(&result);
    fixture_end(f);
}

TEST(B8_the_same_idempotency_key_counts_once)
{
    fixture                   *f = fixture_begin();
    const stet_signal_options *key = STET_SIGNAL_OPTIONS(.idempotency_key = "k1", .by = "till 3");
    stet_run_id                run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.collect", "2", NULL);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"), key));
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"), key));
    AWAIT(fixture_facts(f->engine, &run, "signal", "go") == 2);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"), key));
    send(f, &run, "b");
    EXPECT_RESULT(f->engine, &run, "[a][b]");
    fixture_end(f);
}

TEST(B8_bad_signals_have_their_own_errors_and_change_nothing)
{
    fixture    *f = fixture_begin();
    stet_run_id run, unknown;
    char        long_key[300];
    char       *large = calloc(1, 2000);

    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.collect", "1", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_id_make(f->engine, &unknown));
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    CHECK_CODE(stet_signal(f->engine, &unknown, "go", stet_text(""), NULL), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), unknown.text);
    CHECK_CODE(stet_signal(f->engine, &run, "", stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_signal(f->engine, &run, NULL, stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_signal(f->engine, &run, "a b\n", stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_signal(f->engine, NULL, "go", stet_text(""), NULL), STET_EINVAL);
    CHECK_CODE(stet_signal(f->engine, &run, "go", (stet_bytes){ large, 2000 }, NULL), STET_ETOOBIG);
    CHECK_CODE(stet_signal(f->engine, &run, "go", stet_text(""), &(stet_signal_options){ 0 }),
               STET_EINVAL);
    CHECK_CODE(stet_signal(f->engine, &run, "go", stet_text(""),
                           STET_SIGNAL_OPTIONS(.idempotency_key = long_key)),
               STET_ETOOBIG);
    CHECK_CODE(
        stet_signal(f->engine, &run, "go", stet_text(""), STET_SIGNAL_OPTIONS(.by = long_key)),
        STET_ETOOBIG);
    CHECK_INT(fixture_facts(f->engine, &run, "signal", NULL), 0);
    send(f, &run, "good");
    EXPECT_RESULT(f->engine, &run, "[good]");
    CHECK_CODE(stet_signal(f->engine, &run, "go", stet_text("late"), NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "completed");
    CHECK_INT(fixture_facts(f->engine, &run, "signal", NULL), 1);
    free(large);
    fixture_end(f);
}

static int
h_careless(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes   value;
    stet_future *future;

    (void)input;
    CHECK_CODE(stet_await_signal(ctx, &value, "", NULL), STET_ENAME);
    CHECK_CODE(stet_await_signal(ctx, &value, "go", "soon"), STET_EDURATION);
    CHECK_CODE(stet_signal_start(ctx, &future, "go", &(stet_signal_wait){ 0 }), STET_EINVAL);
    CHECK_CODE(stet_signal_start(ctx, &future, "go", STET_SIGNAL(.id = "a\tb")), STET_ENAME);
    CHECK_CODE(stet_ctx_signal(ctx, NULL, "go", stet_text("")), STET_EINVAL);
    return stet_return(ctx, stet_text("unharmed"));
}

TEST(B8_bad_waits_are_refused_and_record_nothing)
{
    static const stet_handler careless[] = { { "careless", h_careless, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, careless);
    run = fixture_start(f->engine, "t.careless", "", NULL);
    EXPECT_RESULT(f->engine, &run, "unharmed");
    CHECK_INT(fixture_facts(f->engine, &run, "signal wait", NULL), 0);
    fixture_end(f);
}

/* ---- from a handler -------------------------------------------------------------------------- */

/* Signals the run its input names, twice with a nap in between, and one that does not exist. */
static int
h_sends(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id to = { "" }, nobody = { "run_00000000000000000000000000" };
    int         first, second, third;

    (void)snprintf(to.text, sizeof to.text, "%.*s", (int)input.len, (const char *)input.data);
    if ((first = stet_ctx_signal(ctx, &to, "go", stet_text("from a handler"))) == STET_SUSPENDED)
        return first;
    STET_TRY(stet_sleep(ctx, "nap", "2ms"));
    if ((second = stet_ctx_signal(ctx, &nobody, "go", stet_text(""))) == STET_SUSPENDED)
        return second;
    STET_TRY(fixture_pause(ctx));
    if ((third = stet_ctx_signal(ctx, &to, "go", stet_text(""))) == STET_SUSPENDED)
        return third;
    effect("sent %d %d %d", first, second, third);
    return stet_return(ctx, stet_text("sent"));
}

TEST(B8_a_handler_signals_once_and_what_it_was_told_is_recorded)
{
    static const stet_handler sending[] = { { "collect", h_collects, NULL },
                                            { "send", h_sends, NULL },
                                            { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, sender;
    char                      want[64];

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, sending);
    run = fixture_start(f->engine, "t.collect", "1", NULL);
    sender = fixture_start(f->engine, "t.send", run.text, NULL);
    EXPECT_RESULT(f->engine, &run, "[from a handler]");
    fixture_await_status(f->engine, &sender, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_up_with(f, sending);
    fixture_go_on(f->engine, &sender);
    EXPECT_RESULT(f->engine, &sender, "sent");
    (void)snprintf(want, sizeof want, "sent 0 %d %d", STET_ENOTFOUND, STET_EENDED);
    CHECK_INT(effects(want), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "signal", "go"), 1);
    CHECK_INT(fixture_facts(f->engine, &sender, "signal sent", "go"), 3);
    fixture_end(f);
}

static int
h_to_itself(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id self = { "" };
    stet_bytes  value;

    (void)input;
    (void)snprintf(self.text, sizeof self.text, "%s", stet_info(ctx)->run);
    STET_TRY(stet_ctx_signal(ctx, &self, "go", stet_text("echo")));
    STET_TRY(stet_await_signal(ctx, &value, "go", "1h"));
    return stet_return(ctx, value);
}

TEST(B8_a_run_can_signal_itself)
{
    static const stet_handler own[] = { { "self", h_to_itself, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, own);
    run = fixture_start(f->engine, "t.self", "", NULL);
    EXPECT_RESULT(f->engine, &run, "echo");
    CHECK_INT(fixture_facts(f->engine, &run, "signal", "go"), 1);
    fixture_end(f);
}

static int
body_sends_outside(stet_attempt *a, void *engine)
{
    stet_run_id run = { "" };

    (void)snprintf(run.text, sizeof run.text, "%s", stet_attempt_run(a));
    return stet_signal(engine, &run, "go", stet_text("from a body"), NULL);
}

static stet_engine *body_engine;

static int
h_uses_engine(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id self = { "" };
    stet_bytes  value;

    (void)input;
    (void)snprintf(self.text, sizeof self.text, "%s", stet_info(ctx)->run);
    CHECK_CODE(stet_signal(body_engine, &self, "go", stet_text(""), NULL), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "stet_ctx_signal");
    STET_TRY(stet_step(ctx, NULL, "send", body_sends_outside, body_engine, NULL));
    STET_TRY(stet_await_signal(ctx, &value, "go", NULL));
    return stet_return(ctx, value);
}

TEST(B8_the_call_from_outside_belongs_to_bodies_not_to_handlers)
{
    static const stet_handler using_engine[] = { { "use", h_uses_engine, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, using_engine);
    body_engine = f->engine;
    run = fixture_start(f->engine, "t.use", "", NULL);
    EXPECT_RESULT(f->engine, &run, "from a body");
    fixture_end(f);
}

/* ---- stops ----------------------------------------------------------------------------------- */

/* Told to stop while it waits, it waits again for the same signal before it ends. */
static int
h_cleans_up(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    int        code;

    (void)input;
    code = stet_await_signal(ctx, &value, "go", "30d");
    if (code != STET_ECANCELLED)
        return code;
    effect("told");
    STET_TRY(stet_await_signal(ctx, &value, "go", NULL));
    effect("cleaned up with %.*s", (int)value.len, (const char *)value.data);
    return STET_ECANCELLED;
}

TEST(B8_C4_a_cancel_ends_the_wait_once_and_a_later_signal_is_for_the_next)
{
    static const stet_handler cleaning[] = { { "clean", h_cleans_up, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, cleaning);
    run = fixture_start(f->engine, "t.clean", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "test", "enough"));
    effects_await("told", 1);
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "go") == 3); /* one began and ended */
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "signal") != NULL);
    fixture_sound(f->engine); /* no timer is left of the first */
    send(f, &run, "a broom");
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(effects("cleaned up with a broom"), 1);
    fixture_end(f);
}

/* ---- futures --------------------------------------------------------------------------------- */

/* Whichever comes first of two signals and a sleep; then the other signal too. */
static int
h_first_of(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[3];
    stet_bytes   value, other;
    size_t       chosen;

    (void)input;
    STET_TRY(stet_signal_start(ctx, &futures[0], "yes", NULL));
    STET_TRY(stet_signal_start(ctx, &futures[1], "no", STET_SIGNAL(.timeout = "30d")));
    STET_TRY(stet_sleep_start(ctx, &futures[2], "limit", "30d"));
    STET_TRY(stet_await_any(ctx, &chosen, futures, 3, NULL));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_await(ctx, &value, futures[chosen]));
    STET_TRY(stet_await(ctx, &other, futures[1 - chosen]));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%zu %.*s %.*s", chosen, (int)value.len,
                                                      (const char *)value.data, (int)other.len,
                                                      (const char *)other.data)));
}

TEST(B18_B8_signals_are_futures_and_what_came_first_is_recorded)
{
    static const stet_handler first_of[] = { { "first", h_first_of, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, first_of);
    run = fixture_start(f->engine, "t.first", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "no", stet_text("n"), NULL));
    AWAIT(fixture_facts(f->engine, &run, "choice", NULL) == 1);
    CHECK_OK(stet_signal(f->engine, &run, "yes", stet_text("y"), NULL));
    fixture_down(f);
    fixture_up_with(f, first_of);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "1 n y");
    fixture_end(f);
}

/* Two futures of one name with limits: the first is up, so the signal is the second's. */
static int
h_two_limits(stet_ctx *ctx, stet_bytes input)
{
    stet_future *shorter, *longer;
    stet_bytes   value;
    int          code;

    (void)input;
    STET_TRY(stet_signal_start(ctx, &shorter, "go", STET_SIGNAL(.timeout = "10ms")));
    STET_TRY(stet_signal_start(ctx, &longer, "go", STET_SIGNAL(.timeout = "30d", .id = "long")));
    if ((code = stet_await(ctx, &value, shorter)) == STET_SUSPENDED)
        return code;
    CHECK_CODE(code, STET_ETIMEOUT);
    effect("up");
    STET_TRY(stet_await(ctx, &value, longer));
    return stet_return(ctx, value);
}

TEST(B8_a_wait_that_is_over_leaves_the_line_and_one_has_a_name_of_its_own)
{
    static const stet_handler two[] = { { "two", h_two_limits, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, two);
    run = fixture_start(f->engine, "t.two", "", NULL);
    effects_await("up", 1);
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "long") != NULL);
    CHECK_INT(fixture_facts(f->engine, &run, "signal wait", "long"), 1);
    CHECK_INT(fixture_facts(f->engine, &run, "signal wait", "go"), 1);
    CHECK_HAS(fixture_why(f->engine, &run).text, "waits for signal go");
    send(f, &run, "second");
    EXPECT_RESULT(f->engine, &run, "second");
    fixture_end(f);
}

/* ---- retries --------------------------------------------------------------------------------- */

static atomic_bool is_mended;

/* Takes one signal, fails until it is mended, takes another. */
static int
h_fails_between(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes first, second;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &first, "go", "30d"));
    if (!atomic_load(&is_mended))
        return stet_fail(ctx, STET_EPERMANENT, "not today");
    STET_TRY(stet_await_signal(ctx, &second, "go", NULL));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", (int)first.len,
                                                      (const char *)first.data, (int)second.len,
                                                      (const char *)second.data)));
}

TEST(B8_C5_a_retry_has_the_signals_that_were_taken_and_those_that_were_not)
{
    static const stet_handler failing[] = { { "fail", h_fails_between, NULL }, { 0 } };
    const stet_signal_options *key = STET_SIGNAL_OPTIONS(.idempotency_key = "k");
    fixture                   *f = fixture_begin();
    stet_run_id                run, again, third;

    f->engine =
        fixture_open_with(f, (fixture_service[]){ { "t", failing, false, NULL }, { 0 } });
    run = fixture_start(f->engine, "t.fail", "", NULL);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("a"), key));
    send(f, &run, "b");
    CHECK_OK(stet_engine_start(f->engine));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    EXPECT_ANSWER(f->engine, &again, STET_ERUN); /* it did not ask for the first one again */
    atomic_store(&is_mended, true);
    CHECK_OK(stet_dlq_retry(f->engine, &third, &again));
    EXPECT_RESULT(f->engine, &third, "a b");
    fixture_end(f);
}

/* ---- another engine -------------------------------------------------------------------------- */

TEST(B8_a_signal_from_another_engine_and_without_any_worker)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.collect", "2", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    CHECK_OK(stet_signal(client, &run, "go", stet_text("near"), NULL));
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "go") == 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    CHECK_OK(stet_signal(client, &run, "go", stet_text("far"), NULL));
    stet_close(client);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "[near][far]");
    fixture_end(f);
}

/* ---- a run that begins meanwhile ------------------------------------------------------------- */

static gate                  after_look = GATE_INIT;
static const stet_store_ops *looking;
static atomic_bool           is_slow;

/* The row was read, and the answer takes its time. */
static int
slow_look(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    int err = looking->run(s, run, fn, arg);

    if (atomic_load(&is_slow))
        gate_pass(&after_look);
    return err;
}

static void *
send_slowly(void *arg)
{
    signal_race *r = arg;

    CHECK_OK(stet_signal(r->engine, &r->run, "go", stet_text("in between"), NULL));
    return NULL;
}

TEST(B8_a_signal_to_a_run_that_begins_meanwhile_wakes_it)
{
    fixture       *f = fixture_begin();
    stet_store_ops slow;
    signal_race    r;
    pthread_t      thread;

    f->options.roles = STET_ROLE_CLIENT;
    r.engine = fixture_open(f);
    looking = r.engine->store->ops;
    slow = *looking;
    slow.run = slow_look;
    r.engine->store->ops = &slow;
    CHECK_OK(stet_engine_start(r.engine));
    r.run = fixture_start(r.engine, "t.collect", "1", NULL);
    atomic_store(&is_slow, true);
    CHECK_INT(pthread_create(&thread, NULL, send_slowly, &r), 0);
    gate_await(&after_look, 1);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    fixture_await_status(f->engine, &r.run, STET_STATUS_SUSPENDED);
    gate_open(&after_look);
    CHECK_INT(pthread_join(thread, NULL), 0);
    EXPECT_RESULT(f->engine, &r.run, "[in between]");
    stet_close(r.engine);
    fixture_end(f);
}
