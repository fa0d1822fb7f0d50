/* Queries of a live run (I12). tsan: yes */
#include "damage.h"
#include "engine/engine.h"

typedef struct order {
    const char *phase;
    int         paid, parcels;
    stet_ctx   *ctx;
} order;

static int
q_status(void *arg, stet_bytes input, stet_reply *reply)
{
    const order *o = arg;

    return stet_reply_json(reply, "{\"phase\":%Q,\"paid\":%d,\"parcels\":%d,\"for\":%J}", o->phase,
                           o->paid, o->parcels, input.len > 0 ? input : stet_text("null"));
}

static int
q_refuses(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)arg;
    if (input.len == 0)
        return STET_EKEY;
    if (fixture_is(input, "own"))
        return stet_reply_fail(reply, -1234, "out of %s", "stock");
    if (fixture_is(input, "odd"))
        return 7;
    if (fixture_is(input, "json"))
        return stet_reply_json(reply, "%J", stet_text("{no"));
    if (fixture_is(input, "big"))
        return stet_reply_set(reply, (stet_bytes){ "x", (size_t)1 << 30 });
    if (fixture_is(input, "crash"))
        abort();
    return STET_OK; /* with nothing to say */
}

/* Uses the context, and says what came of it. */
static int
q_meddles(void *arg, stet_bytes input, stet_reply *reply)
{
    const order *o = arg;
    int          err = stet_sleep(o->ctx, "nap", "1h");

    (void)input;
    if (err != STET_EUSAGE || strstr(stet_last_error(), "cannot use the context") == NULL)
        return STET_EPERMANENT;
    return stet_step(o->ctx, NULL, "step", body_effect, "meddled", NULL) == STET_EUSAGE
               ? stet_reply_set(reply, stet_text("refused"))
               : STET_EPERMANENT;
}

static int
q_loops(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)arg;
    (void)input;
    for (volatile unsigned i = 0;; i++)
        ;
    return stet_reply_set(reply, stet_text(""));
}

/* Pays, waits for two parcels, and is done. */
static int
h_order(stet_ctx *ctx, stet_bytes input)
{
    order o = { "paying", 0, 0, ctx };

    (void)input;
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    STET_TRY(stet_on_query(ctx, "refuses", q_refuses, &o));
    STET_TRY(stet_on_query(ctx, "meddles", q_meddles, &o));
    STET_TRY(stet_on_query(ctx, "loops", q_loops, &o));
    STET_TRY(stet_step(ctx, NULL, "pay", body_effect, "paid", NULL));
    o.paid = 12;
    o.phase = "shipping";
    for (; o.parcels < 2; o.parcels++)
        STET_TRY(stet_await_signal(ctx, NULL, "parcel", NULL));
    o.phase = "done";
    return stet_return(ctx, stet_text("thanks"));
}

static gate door = GATE_INIT;

/* Two steps side by side, one of which takes long. */
static int
h_parallel(stet_ctx *ctx, stet_bytes input)
{
    order        o = { "begun", 0, 0, ctx };
    stet_future *slow, *quick;

    (void)input;
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    STET_TRY(stet_step_start(ctx, &slow, "slow", body_gate, &door, NULL));
    STET_TRY(stet_step_start(ctx, &quick, "quick", body_effect, "quick", NULL));
    STET_TRY(stet_await(ctx, NULL, quick));
    o.parcels = 1;
    STET_TRY(stet_note(ctx, "one is there"));
    STET_TRY(stet_step(ctx, NULL, "third", body_effect, "third", NULL));
    o.parcels = 2;
    STET_TRY(stet_await(ctx, NULL, slow));
    o.parcels = 3;
    return STET_OK;
}

/* Of two side by side the slow one is not needed, and then it is in another. */
static int
h_chooses(stet_ctx *ctx, stet_bytes input)
{
    order        o = { "choosing", 0, 0, ctx };
    stet_future *both[2];

    (void)input;
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    STET_TRY(stet_step_start(ctx, &both[0], "quick", body_effect, "quick", NULL));
    STET_TRY(stet_step_start(ctx, &both[1], "slow", body_gate, &door, NULL));
    STET_TRY(stet_await_any(ctx, NULL, both, 2, NULL));
    o.phase = "chosen";
    STET_TRY(stet_step(ctx, NULL, "next", body_gate, &door, NULL));
    return STET_OK;
}

/* Its last call is a step. */
static int
h_silent(stet_ctx *ctx, stet_bytes input)
{
    order o = { "begun", 0, 0, ctx };

    (void)input;
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    o.phase = "at its step";
    return stet_step(ctx, NULL, "only", body_effect, "only", NULL);
}

static int
undo(stet_attempt *a, stet_bytes result)
{
    (void)a;
    (void)result;
    effect("undone");
    return STET_OK;
}

/* Fails, and is rolled back because of that. */
static int
h_undone(stet_ctx *ctx, stet_bytes input)
{
    order o = { "begun", 0, 0, ctx };

    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, "one", STET_STEP(.undo = undo)));
    o.phase = "failing";
    return stet_fail(ctx, STET_EPERMANENT, "no luck");
}

static int
undo_gate(stet_attempt *a, stet_bytes result)
{
    (void)result;
    return body_gate(a, &door);
}

static gate next_door = GATE_INIT;

static int
b_busy(stet_attempt *a, void *arg)
{
    static atomic_int tries;

    (void)arg;
    return atomic_fetch_add(&tries, 1) > 0 ? STET_OK : stet_attempt_fail(a, STET_EBUSY, "not yet");
}

/* Rolls back beside a step that failed passingly, of which nothing is recorded. */
static int
h_rolls(stet_ctx *ctx, stet_bytes input)
{
    order        o = { "begun", 0, 0, ctx };
    stet_future *busy;

    (void)input;
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    STET_TRY(stet_step_start(ctx, &busy, "busy", b_busy, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, "one", STET_STEP(.undo = undo_gate)));
    STET_TRY(stet_step(ctx, NULL, "two", body_effect, "two", STET_STEP(.undo = undo)));
    o.phase = "rolling back";
    STET_TRY(stet_rollback(ctx));
    o.phase = "rolled back";
    return stet_step(ctx, NULL, "next", body_gate, &next_door, NULL);
}

static int
h_misuses(stet_ctx *ctx, stet_bytes input)
{
    order o = { "first", 0, 0, ctx }, again = { "again", 0, 0, ctx };
    char  name[32];

    (void)input;
    CHECK_CODE(stet_on_query(ctx, "", q_status, &o), STET_ENAME);
    CHECK_CODE(stet_on_query(ctx, NULL, q_status, &o), STET_ENAME);
    CHECK_CODE(stet_on_query(ctx, "none", NULL, &o), STET_EINVAL);
    for (int i = 0; i < STET_LIVE_MAX; i++) {
        (void)snprintf(name, sizeof name, "q%d", i);
        CHECK_OK(stet_on_query(ctx, name, q_status, &o));
    }
    CHECK_CODE(stet_on_query(ctx, "onemore", q_status, &o), STET_ETOOBIG);
    CHECK_OK(stet_on_query(ctx, "q3", q_status, &again));
    return fixture_pause(ctx);
}

/* The order as other people wrote it. */
static int
h_order_else(stet_ctx *ctx, stet_bytes input)
{
    order o = { "paying", 0, 0, ctx };

    (void)input;
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    STET_TRY(stet_sleep(ctx, "think", "1h"));
    STET_TRY(stet_step(ctx, NULL, "pay", body_effect, "paid", NULL));
    return fixture_pause(ctx);
}

/* … and as those who renamed a step did. */
static int
h_order_renamed(stet_ctx *ctx, stet_bytes input)
{
    order o = { "paying", 0, 0, ctx };

    (void)input;
    STET_TRY(stet_on_query(ctx, "status", q_status, &o));
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, "paid", NULL));
    return fixture_pause(ctx);
}

static int
h_crashes(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    if (stet_info(ctx)->is_replaying)
        abort();
    return stet_step(ctx, NULL, "pay", body_effect, "paid", NULL);
}

static const stet_handler handlers[] = { { "order", h_order, NULL },
                                         { "parallel", h_parallel, NULL },
                                         { "chooses", h_chooses, NULL },
                                         { "silent", h_silent, NULL },
                                         { "undone", h_undone, NULL },
                                         { "rolls", h_rolls, NULL },
                                         { "misuses", h_misuses, NULL },
                                         { "crashes", h_crashes, NULL },
                                         { 0 } };
static const stet_handler others[] = { { "other", h_echo, NULL }, { 0 } };
static const stet_handler changed[] = { { "order", h_order_else, NULL }, { 0 } };
static const stet_handler renamed[] = { { "order", h_order_renamed, NULL }, { 0 } };

/* ---- asking ---------------------------------------------------------------------------------- */

/* The answer, or the code's name; static, one at a time. */
static const char *
ask_with(stet_engine *e, const stet_run_id *run, const char *name, const char *input)
{
    static char text[1024];
    stet_bytes  reply;
    int         err = stet_query(e, &reply, run, name, stet_text(input), 0);

    if (err != STET_OK) {
        CHECK(reply.data == NULL);
        return stet_code_name(err) != NULL ? stet_code_name(err) : "own";
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)reply.len, (const char *)reply.data);
    stet_free((void *)(uintptr_t)reply.data);
    return text;
}

static const char *
ask(stet_engine *e, const stet_run_id *run)
{
    return ask_with(e, run, "status", "");
}

static stet_run_id
start_shipping(fixture *f)
{
    stet_run_id run = fixture_start(f->engine, "t.order", "", NULL);

    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    return run;
}

static int
count_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return STET_OK;
}

/* Questions and answers that lie in the store. */
static int
left_over(stet_engine *e)
{
    stet_bytes all = { NULL, 0 };
    int        n = 0;

    CHECK_OK(e->store->ops->values(e->store, STET__SPACE_ASK, all, NULL, 100, count_value, &n));
    CHECK_OK(e->store->ops->values(e->store, STET__SPACE_ANSWER, all, NULL, 100, count_value, &n));
    return n;
}

#define SHIPPING "{\"phase\":\"shipping\",\"paid\":12,\"parcels\":0,\"for\":null}"

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(I12_a_suspended_run_is_asked_about_its_variables_and_nothing_is_recorded)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    uint64_t    facts;

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    facts = fixture_look(f->engine, &run).facts;
    CHECK_STR(ask(f->engine, &run), SHIPPING);
    CHECK_STR(ask_with(f->engine, &run, "status", "[1]"),
              "{\"phase\":\"shipping\",\"paid\":12,\"parcels\":0,\"for\":[1]}");
    CHECK_INT(fixture_look(f->engine, &run).facts, facts);
    CHECK_INT(effects("paid"), 1);
    CHECK_OK(stet_signal(f->engine, &run, "parcel", stet_text(""), NULL));
    AWAIT(strstr(ask(f->engine, &run), "\"parcels\":1") != NULL);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_HAS(ask(f->engine, &run), "\"parcels\":1");
    CHECK_OK(stet_signal(f->engine, &run, "parcel", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &run, "thanks");
    CHECK_INT(effects("paid"), 1);
    fixture_end(f);
}

TEST(I12_a_run_that_has_ended_is_asked_about_its_last_call)
{
    fixture    *f = fixture_begin();
    stet_run_id order_run, silent, undone, never;

    fixture_up_with(f, handlers);
    order_run = start_shipping(f);
    for (int i = 0; i < 2; i++)
        CHECK_OK(stet_signal(f->engine, &order_run, "parcel", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &order_run, "thanks");
    CHECK_HAS(ask(f->engine, &order_run), "\"phase\":\"done\",\"paid\":12,\"parcels\":2");
    silent = fixture_start(f->engine, "t.silent", "", NULL);
    EXPECT_ANSWER(f->engine, &silent, STET_OK);
    CHECK_HAS(ask(f->engine, &silent), "at its step");
    undone = fixture_start(f->engine, "t.undone", "", NULL);
    EXPECT_ANSWER(f->engine, &undone, STET_ERUN);
    AWAIT(fixture_look(f->engine, &undone).status == STET_STATUS_FAILED);
    CHECK_INT(effects("undone"), 1);
    CHECK_HAS(ask(f->engine, &undone), "failing");
    CHECK_INT(effects("undone"), 1);
    never = fixture_start(f->engine, "t.order", "", STET_START(.delay = "1h"));
    CHECK_HAS(ask(f->engine, &never), "paying");
    CHECK_OK(stet_cancel(f->engine, &never, NULL, NULL));
    CHECK_HAS(ask(f->engine, &never), "paying");
    fixture_end(f);
}

TEST(I12_a_run_that_is_executed_is_asked_about_its_last_recorded_point)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.parallel", "", NULL);
    gate_await(&door, 1);
    AWAIT(strstr(ask(f->engine, &run), "\"parcels\":2") != NULL);
    CHECK_INT(effects("third"), 1);
    gate_open(&door);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    fixture_end(f);
}

TEST(I12_a_choice_is_part_of_the_last_recorded_point_though_a_body_that_began_before_it_runs)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.chooses", "", NULL);
    gate_await(&door, 2);
    CHECK_HAS(ask(f->engine, &run), "\"phase\":\"chosen\"");
    gate_open(&door);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK_HAS(ask(f->engine, &run), "\"phase\":\"chosen\"");
    fixture_end(f);
}

TEST(I12_B11_a_rollback_is_asked_about_though_a_step_beside_it_is_on_no_record)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.rolls", "", NULL);
    gate_await(&door, 1);
    AWAIT(fixture_facts(f->engine, &run, "step", "rollback:two#1") == 1);
    CHECK_HAS(ask(f->engine, &run), "\"phase\":\"rolling back\"");
    gate_open(&door);
    gate_await(&next_door, 1);
    CHECK_HAS(ask(f->engine, &run), "\"phase\":\"rolled back\"");
    gate_open(&next_door);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    fixture_end(f);
}

TEST(I12_what_lies_in_the_inbox_and_nobody_took_is_not_in_the_answer)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    fixture_down(f);
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_signal(f->engine, &run, "parcel", stet_text(""), NULL));
    CHECK_STR(ask(f->engine, &run), SHIPPING); /* and no worker was needed for it */
    fixture_close(f);
    fixture_end(f);
}

TEST(I12_a_process_without_the_handler_asks_a_worker_through_the_store)
{
    fixture     *f = fixture_begin();
    stet_engine *client, *stranger;
    stet_run_id  run;
    char         big[STET_QUERY_INPUT_MAX + 1];

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_STR(ask(client, &run), SHIPPING);
    CHECK_STR(ask_with(client, &run, "status", "\"me\""),
              "{\"phase\":\"shipping\",\"paid\":12,\"parcels\":0,\"for\":\"me\"}");
    CHECK_STR(ask_with(client, &run, "stat", ""), "STET_ENOTFOUND");
    CHECK_HAS(stet_last_error(), "no query stat; it has status, refuses, meddles, loops");
    CHECK_STR(ask_with(client, &run, "refuses", "own"), "own");
    CHECK_HAS(stet_last_error(), "out of stock");
    CHECK_STR(ask_with(client, &run, "refuses", "crash"), "STET_ELOST");
    memset(big, 'x', sizeof big);
    CHECK_CODE(stet_query(client, NULL, &run, "status", (stet_bytes){ big, sizeof big }, 0),
               STET_ETOOBIG);
    CHECK_INT(left_over(client), 0);
    /* A worker of other handlers neither answers nor is in the way. */
    f->options.roles = 0;
    stranger = fixture_open_with(f, (fixture_service[]){ { "u", others, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_start(stranger));
    CHECK_STR(ask(stranger, &run), SHIPPING);
    CHECK_STR(ask(client, &run), SHIPPING);
    fixture_down(f);
    CHECK_STR(ask(client, &run), "STET_EUNSERVED");
    CHECK_HAS(stet_last_error(), "t.order");
    CHECK_HAS(stet_last_error(), "no worker serves it");
    stet_close(stranger);
    stet_close(client);
    fixture_end(f);
}

typedef struct crowd {
    stet_engine       *client;
    const stet_run_id *run;
    atomic_int         answered;
} crowd;

static void
crowd_asks(void *arg, int i)
{
    crowd     *c = arg;
    stet_bytes reply;
    char       input[16], want[128];

    (void)snprintf(input, sizeof input, "%d", i);
    (void)snprintf(want, sizeof want, "\"parcels\":0,\"for\":%d}", i);
    CHECK_OK(stet_query(c->client, &reply, c->run, "status", stet_text(input), 60000));
    CHECK_HAS(reply.data, want);
    stet_free((void *)(uintptr_t)reply.data);
    c->answered++;
}

TEST(I12_many_askers_get_each_their_own_answer_from_several_workers)
{
    fixture     *f = fixture_begin();
    stet_engine *second;
    stet_run_id  run;
    crowd        c = { 0 };

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    second = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_start(second));
    f->options.roles = STET_ROLE_CLIENT;
    c.client = fixture_open(f);
    c.run = &run;
    CHECK_OK(stet_engine_start(c.client));
    fixture_race(8, crowd_asks, &c);
    CHECK_INT(c.answered, 8);
    CHECK_INT(left_over(c.client), 0);
    stet_close(c.client);
    stet_close(second);
    fixture_end(f);
}

TEST(I12_a_question_nobody_answers_times_out_and_leaves_nothing_behind)
{
    fixture     *f = fixture_begin();
    stet_engine *client, *idle;
    stet_run_id  run;
    int          did;

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    /* It serves the handler by what the store knows, and does nothing more. */
    idle = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_poll(idle, &did, 0));
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_CODE(stet_query(client, NULL, &run, "status", stet_text(""), 50), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "no worker that serves t.order answered query status in 50 ms");
    CHECK_INT(left_over(client), 0);
    stet_close(client);
    stet_close(idle);
    fixture_end(f);
}

static int
questions(stet_engine *e)
{
    stet_bytes all = { NULL, 0 };
    int        n = 0;

    CHECK_OK(e->store->ops->values(e->store, STET__SPACE_ASK, all, NULL, 1000, count_value, &n));
    return n;
}

/* Questions by hand: of this kind, until then; until_ms -1: they go. */
static void
put_questions(fixture *f, int from, int n, stet__fact_kind kind, int64_t until_ms,
              const stet_run_id *run)
{
    static stet_id keys[256];
    static stet_op ops[256];
    stet__fact     fact = { .kind = kind, .until_ms = until_ms };
    stet_id        id = damage_id(run);
    stet__buf      b;

    fact.name = stet_text("status");
    fact.key = stet_text("t.order");
    fact.run = stet__id_bytes(&id);
    fact.value = stet_text("");
    stet__buf_init(&b, &stet__platform_real()->alloc);
    stet__fact_encode(&b, &fact);
    for (int i = 0; i < n; i++) {
        keys[i] = (stet_id){ { 1 } };
        keys[i].bytes[15] = (uint8_t)(from + i);
        ops[i] = (stet_op){ .kind = until_ms == -1 ? STET_OP_VALUE_DEL : STET_OP_VALUE_PUT,
                            .space = STET__SPACE_ASK,
                            .key = stet__id_bytes(&keys[i]),
                            .data = kind != 0 ? stet__buf_bytes(&b) : stet_text("no fact") };
    }
    damage_do(f, ops, (size_t)n);
    stet__buf_free(&b);
}

TEST(I12_questions_whose_time_is_over_are_removed_and_too_many_wait_for_nobody)
{
    fixture     *f = fixture_begin();
    stet_engine *client, *idle;
    stet_run_id  run;
    int64_t      now_ms;

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    now_ms = stet_engine_now_ms(f->engine);
    idle = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_poll(idle, NULL, 0));
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    /* Of those who did not wait to the end, of somebody who wrote nonsense, of none of our kind. */
    put_questions(f, 0, 20, STET__FACT_QUESTION, now_ms - 1, &run);
    put_questions(f, 20, 2, (stet__fact_kind)0, 0, &run);
    CHECK_CODE(stet_query(client, NULL, &run, "status", stet_text(""), 20), STET_ETIMEOUT);
    CHECK_INT(left_over(client), 0);
    put_questions(f, 0, 256, STET__FACT_QUESTION, now_ms + 3600000, &run);
    CHECK_CODE(stet_query(client, NULL, &run, "status", stet_text(""), 20), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "256 questions wait");
    stet_close(client);
    /* One that serves them answers all, whoever asked, and passes over what is none. */
    put_questions(f, 17, 239, STET__FACT_QUESTION, -1, &run);
    put_questions(f, 17, 1, STET__FACT_ANSWER, now_ms + 3600000, &run);
    AWAIT(stet_engine_poll(idle, NULL, 1) == STET_OK && questions(idle) == 1);
    CHECK_INT(left_over(idle), 18);
    stet_close(idle);
    fixture_end(f);
}

static void *
asks_alone(void *arg)
{
    crowd_asks(arg, 1);
    return NULL;
}

TEST(I12_an_engine_that_is_polled_answers_itself_and_others)
{
    fixture     *f = fixture_begin();
    stet_engine *polled;
    stet_run_id  run;
    crowd        c = { .run = &run };
    pthread_t    thread;

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    fixture_down(f);
    polled = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_poll(polled, NULL, 0));
    CHECK_STR(ask(polled, &run), SHIPPING);
    f->options.roles = STET_ROLE_CLIENT;
    c.client = fixture_open(f);
    CHECK_INT(pthread_create(&thread, NULL, asks_alone, &c), 0);
    AWAIT(stet_engine_poll(polled, NULL, 1) == STET_OK && c.answered == 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
    stet_close(c.client);
    stet_close(polled);
    fixture_end(f);
}

TEST(I12_bad_queries_are_refused_each_with_its_own_error)
{
    fixture    *f = fixture_begin();
    stet_run_id run, none = { "run_00000000000000000000000001" };

    f->options.payload_bytes_max = 100000;
    fixture_up_with(f, handlers);
    run = start_shipping(f);
    CHECK_STR(ask_with(f->engine, &run, "refuses", "quiet"), "");
    CHECK_STR(ask_with(f->engine, &run, "refuses", ""), "STET_EKEY");
    CHECK_STR(ask_with(f->engine, &run, "refuses", "own"), "own");
    CHECK_HAS(stet_last_error(), "query refuses: out of stock");
    CHECK_STR(ask_with(f->engine, &run, "refuses", "odd"), "STET_EHANDLER");
    CHECK_HAS(stet_last_error(), "returned 7");
    CHECK_STR(ask_with(f->engine, &run, "refuses", "json"), "STET_EJSON");
    CHECK_STR(ask_with(f->engine, &run, "refuses", "big"), "STET_ETOOBIG");
    CHECK_STR(ask_with(f->engine, &run, "meddles", ""), "refused");
    CHECK_STR(ask_with(f->engine, &run, "nothing", ""), "STET_ENOTFOUND");
    CHECK_HAS(stet_last_error(), "no query nothing; it has status, refuses, meddles, loops");
    CHECK_STR(ask_with(f->engine, &run, "", ""), "STET_ENAME");
    CHECK_CODE(stet_query(f->engine, NULL, &run, NULL, stet_text(""), 0), STET_ENAME);
    CHECK_CODE(stet_query(f->engine, NULL, NULL, "status", stet_text(""), 0), STET_EINVAL);
    CHECK_CODE(stet_query(f->engine, NULL, &run, "status", stet_text(""), -5), STET_EINVAL);
    CHECK_CODE(stet_query(f->engine, NULL, &run, "status", (stet_bytes){ "x", 100001 }, 0),
               STET_ETOOBIG);
    CHECK_STR(ask_with(f->engine, &none, "status", ""), "STET_ENOTFOUND");
    CHECK_OK(stet_query(f->engine, NULL, &run, "status", stet_text(""), 0));
    fixture_end(f);
}

TEST(I12_what_a_handler_registers_wrongly_is_refused_and_the_last_of_a_name_counts)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.misuses", "", NULL);
    fixture_paused(f->engine, &run);
    CHECK_HAS(ask_with(f->engine, &run, "q2", ""), "first");
    CHECK_HAS(ask_with(f->engine, &run, "q3", ""), "again");
    CHECK_STR(ask_with(f->engine, &run, "onemore", ""), "STET_ENOTFOUND");
    fixture_go_on(f->engine, &run);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    fixture_end(f);
}

TEST(I12_a_handler_or_query_that_crashes_or_loops_takes_nobody_with_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run, crashing;

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    CHECK_STR(ask_with(f->engine, &run, "refuses", "crash"), "STET_ELOST");
    CHECK_HAS(stet_last_error(), "crashed after signal wait parcel#1");
    crashing = fixture_start(f->engine, "t.crashes", "", NULL);
    EXPECT_ANSWER(f->engine, &crashing, STET_OK);
    CHECK_STR(ask(f->engine, &crashing), "STET_ELOST");
    CHECK_STR(ask_with(f->engine, &run, "loops", ""), "STET_ETIMEOUT");
    CHECK_HAS(stet_last_error(), "did not end in");
    CHECK_STR(ask(f->engine, &run), SHIPPING);
    fixture_end(f);
}

TEST(I12_code_that_contradicts_the_record_answers_nothing_and_names_both_sides)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = start_shipping(f);
    fixture_down(f);
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", changed, false, NULL }, { 0 } });
    CHECK_STR(ask(f->engine, &run), "STET_EREPLAY");
    CHECK_HAS(stet_last_error(), "sleep think#1");
    CHECK_HAS(stet_last_error(), "#1, which is");
    fixture_close(f);
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", renamed, false, NULL }, { 0 } });
    CHECK_STR(ask(f->engine, &run), "STET_EREPLAY");
    CHECK_HAS(stet_last_error(), "step charge#1");
    fixture_close(f);
    fixture_end(f);
}
