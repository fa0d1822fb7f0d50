/* Updates of a live run (I12). tsan: yes */
#include "damage.h"
#include "engine/engine.h"
#include "fixture.h"

/* A letter that is written by whoever asks. */
typedef struct letter {
    char      text[256];
    stet_ctx *ctx;
} letter;

static int
u_check(void *arg, stet_bytes input, stet_reply *reply)
{
    letter *l = arg;

    effect("checked %.*s", (int)input.len, (const char *)input.data);
    if (fixture_is(input, "silent"))
        return STET_EKEY;
    if (fixture_is(input, "void"))
        return stet_reply_fail(reply, STET_ECANCELLED, "nobody wants it any more");
    if (fixture_is(input, "own"))
        return stet_reply_fail(reply, -1234, "not in this %s", "house");
    if (fixture_is(input, "meddle") &&
        (stet_note(l->ctx, "no") != STET_EUSAGE || strstr(stet_last_error(), "validation") == NULL))
        return STET_EPERMANENT;
    return STET_OK;
}

/* Adds a word; "half" adds it and fails. */
static int
u_add(void *arg, stet_bytes input, stet_reply *reply)
{
    letter *l = arg;
    size_t  len = strlen(l->text);

    if (fixture_is(input, "meddle") && stet_sleep(l->ctx, "nap", "1h") != STET_EUSAGE)
        return STET_EPERMANENT;
    (void)snprintf(l->text + len, sizeof l->text - len, "%.*s ", (int)input.len,
                   (const char *)input.data);
    if (fixture_is(input, "half"))
        return stet_reply_fail(reply, -1235, "only half");
    if (fixture_is(input, "mute"))
        return STET_OK;
    return stet_reply_json(reply, "%Q", l->text);
}

static int
q_read(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)input;
    return stet_reply_set(reply, stet_text(((letter *)arg)->text));
}

/* Registers all, and marks in the letter where it is. */
static int
letter_begin(stet_ctx *ctx, letter *l)
{
    l->text[0] = '\0';
    l->ctx = ctx;
    STET_TRY(stet_on_query(ctx, "read", q_read, l));
    STET_TRY(stet_on_update(ctx, "add", u_check, u_add, l));
    return stet_on_update(ctx, "put", NULL, u_add, l);
}

static void
letter_mark(letter *l, const char *mark)
{
    size_t len = strlen(l->text);

    (void)snprintf(l->text + len, sizeof l->text - len, "%s ", mark);
}

static int
letter_end(stet_ctx *ctx, const letter *l)
{
    return stet_return(ctx, stet_text(l->text));
}

/* Waits for two signals. */
static int
h_letter(stet_ctx *ctx, stet_bytes input)
{
    letter l;

    (void)input;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_await_signal(ctx, NULL, "one", NULL));
    letter_mark(&l, "|1");
    STET_TRY(stet_step(ctx, NULL, "post", body_effect, "posted", NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "two", NULL));
    letter_mark(&l, "|2");
    return letter_end(ctx, &l);
}

/* … as one who no longer knows of "add", and one who no longer waits for the first signal. */
static int
h_letter_deaf(stet_ctx *ctx, stet_bytes input)
{
    letter l = { "", ctx };

    (void)input;
    STET_TRY(stet_on_update(ctx, "put", NULL, u_add, &l));
    STET_TRY(stet_await_signal(ctx, NULL, "one", NULL));
    STET_TRY(stet_step(ctx, NULL, "post", body_effect, "posted", NULL));
    return letter_end(ctx, &l);
}

static int
h_letter_hasty(stet_ctx *ctx, stet_bytes input)
{
    stet_future *one;
    letter       l;

    (void)input;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_signal_start(ctx, &one, "one", NULL));
    STET_TRY(stet_step(ctx, NULL, "post", body_effect, "posted", NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "two", NULL));
    return letter_end(ctx, &l);
}

static bool has_limit;

/* Its code had a wait with a limit once. */
static int
h_letter_limited(stet_ctx *ctx, stet_bytes input)
{
    stet_future *nap;
    letter       l;

    (void)input;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_sleep_start(ctx, &nap, "nap", "2h"));
    if (has_limit && stet_await_for(ctx, NULL, nap, "1ms") != STET_ETIMEOUT)
        return STET_EPERMANENT;
    STET_TRY(stet_await_signal(ctx, NULL, "one", NULL));
    return letter_end(ctx, &l);
}

static gate door = GATE_INIT;

/* One of every wait. */
static int
h_waits(stet_ctx *ctx, stet_bytes input)
{
    stet_future      *slow, *signal, *both[2];
    stet_awakeable_id id;
    stet_bytes        value;
    letter            l;
    int               err;

    (void)input;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_step_start(ctx, &slow, "slow", body_gate, &door, NULL));
    STET_TRY(stet_signal_start(ctx, &signal, "go", NULL));
    both[0] = slow;
    both[1] = signal;
    STET_TRY(stet_await_any(ctx, NULL, both, 2, NULL));
    letter_mark(&l, "|any");
    STET_TRY(stet_await_all(ctx, both, 2));
    letter_mark(&l, "|all");
    STET_TRY(stet_awakeable(ctx, &id, &signal, "approval"));
    STET_TRY(stet_step(ctx, NULL, "hand out", body_hand_out, id.text, NULL));
    STET_TRY(stet_await(ctx, &value, signal));
    letter_mark(&l, "|awakeable");
    STET_TRY(stet_approve(ctx, NULL, "boss", stet_text("{}")));
    letter_mark(&l, "|approval");
    STET_TRY(stet_await_event(ctx, NULL, "news", NULL));
    letter_mark(&l, "|event");
    err = stet_await_signal(ctx, NULL, "never", "50ms");
    if (err != STET_ETIMEOUT)
        return err;
    letter_mark(&l, "|time");
    return letter_end(ctx, &l);
}

/* Takes a word, then fails until it is told not to. */
static int
h_fails(stet_ctx *ctx, stet_bytes input)
{
    letter l;

    (void)input;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_await_signal(ctx, NULL, "one", NULL));
    letter_mark(&l, "|1");
    if (stet_info(ctx)->n_depended_on == 0)
        return stet_fail(ctx, STET_EPERMANENT, "no luck");
    STET_TRY(stet_await_signal(ctx, NULL, "two", NULL));
    return letter_end(ctx, &l);
}

/* Has nothing more to say behind its wait. */
static int
h_curt(stet_ctx *ctx, stet_bytes input)
{
    letter l;

    (void)input;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_await_signal(ctx, NULL, "one", NULL));
    return STET_EPERMANENT;
}

/* Waits in each of its generations. */
static int
h_turns(stet_ctx *ctx, stet_bytes input)
{
    letter l;

    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_await_signal(ctx, NULL, fixture_is(input, "next") ? "two" : "one", NULL));
    return fixture_is(input, "next") ? letter_end(ctx, &l) : stet_continue(ctx, stet_text("next"));
}

typedef struct posting {
    const letter *l;
    uint32_t      attempt;
} posting;

static gate post_door = GATE_INIT;

static int
body_post(stet_attempt *a, void *arg)
{
    const posting *p = arg;

    effect("posted \"%s\"", p->l->text);
    if (p->attempt > 1)
        return STET_OK;
    gate_pass(&post_door);
    return stet_attempt_fail(a, STET_ERETRY, "no stamp");
}

/* A body that looks at the variables, and fails at first. */
static int
h_posts(stet_ctx *ctx, stet_bytes input)
{
    posting p = { .attempt = stet_info(ctx)->attempt };
    letter  l;

    (void)input;
    p.l = &l;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_await_signal(ctx, NULL, "one", NULL));
    STET_TRY(stet_step(ctx, NULL, "post", body_post, &p, NULL));
    STET_TRY(stet_await_signal(ctx, NULL, "two", NULL));
    return letter_end(ctx, &l);
}

/* The same, and has three. */
static int
h_thrice(stet_ctx *ctx, stet_bytes input)
{
    static const char *const signals[] = { "one", "two", "three" };
    letter                   l;

    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_await_signal(ctx, NULL, signals[stet_info(ctx)->generation], NULL));
    return stet_info(ctx)->generation == 2 ? letter_end(ctx, &l) : stet_continue(ctx, input);
}

static gate again_doors[2] = { GATE_INIT, GATE_INIT }, child_door = GATE_INIT;
static bool is_again;

static int
h_refuses(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "wait", body_gate, &child_door, NULL));
    return STET_EPERMANENT;
}

/* A wait that fails. A retry comes to it again, behind a step that the first attempt had not;
 * stopped there, it sleeps. */
static int
h_stopped(stet_ctx *ctx, stet_bytes input)
{
    bool   calls = fixture_is(input, "call");
    letter l;
    int    err;

    STET_TRY(letter_begin(ctx, &l));
    if (is_again)
        STET_TRY(stet_step(ctx, NULL, "wait", body_gate, &again_doors[calls], NULL));
    err = calls ? stet_call(ctx, NULL, "t.refuses", stet_text(""), NULL)
                : stet_approve(ctx, NULL, "leave", stet_text(""));
    letter_mark(&l, err == STET_ECANCELLED ? "stopped" : "failed");
    effect("is %s", l.text);
    if (err == STET_ECANCELLED)
        STET_TRY(stet_sleep(ctx, "tidy", "1h"));
    return err;
}

static int
body_second_time(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("tried");
    return effects("tried") > 1 ? STET_OK : stet_attempt_fail(a, STET_EBUSY, "not now");
}

/* Begins a body, and waits for two signals beside it. */
static int
h_beside(stet_ctx *ctx, stet_bytes input)
{
    letter       l;
    stet_future *tried;

    (void)input;
    STET_TRY(letter_begin(ctx, &l));
    STET_TRY(stet_step_start(ctx, &tried, "try", body_second_time, NULL,
                             STET_STEP(.attempts = 3, .first_ms = 500, .max_ms = 500)));
    STET_TRY(stet_await_signal(ctx, NULL, "one", NULL));
    letter_mark(&l, "|1");
    STET_TRY(stet_await_signal(ctx, NULL, "two", NULL));
    letter_mark(&l, "|2");
    STET_TRY(stet_await(ctx, NULL, tried));
    return letter_end(ctx, &l);
}

static const stet_handler_options soon = { .retry = { .attempts = 3, .first_ms = 1, .max_ms = 1 } };

static const stet_handler handlers[] = { { "letter", h_letter, NULL },
                                         { "curt", h_curt, NULL },
                                         { "turns", h_turns, NULL },
                                         { "thrice", h_thrice, NULL },
                                         { "posts", h_posts, &soon },
                                         { "waits", h_waits, NULL },
                                         { "fails", h_fails, NULL },
                                         { "hour", h_hour, NULL },
                                         { "stopped", h_stopped, NULL },
                                         { "refuses", h_refuses, NULL },
                                         { "limited", h_letter_limited, NULL },
                                         { "beside", h_beside, NULL },
                                         { 0 } };
static const stet_handler deaf[] = { { "letter", h_letter_deaf, NULL }, { 0 } };
static const stet_handler hasty[] = { { "letter", h_letter_hasty, NULL }, { 0 } };

/* ---- asking ---------------------------------------------------------------------------------- */

/* The answer, or the code's name; static, one at a time. */
static const char *
put_with(stet_engine *e, const stet_run_id *run, const char *name, const char *input,
         const stet_update_options *o)
{
    static char text[1024];
    stet_bytes  reply;
    int         err = stet_update(e, &reply, run, name, stet_text(input), o);

    if (err != STET_OK) {
        CHECK(reply.data == NULL);
        return stet_code_name(err) != NULL ? stet_code_name(err) : "own";
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)reply.len, (const char *)reply.data);
    stet_free((void *)(uintptr_t)reply.data);
    return text;
}

static const char *
put(stet_engine *e, const stet_run_id *run, const char *input)
{
    return put_with(e, run, "add", input, NULL);
}

static const char *
letter_of(stet_engine *e, const stet_run_id *run)
{
    static char text[1024];
    stet_bytes  reply;

    CHECK_OK(stet_query(e, &reply, run, "read", stet_text(""), 0));
    (void)snprintf(text, sizeof text, "%.*s", (int)reply.len, (const char *)reply.data);
    stet_free((void *)(uintptr_t)reply.data);
    return text;
}

static stet_run_id
start_waiting(fixture *f, const char *handler)
{
    stet_run_id run = fixture_start(f->engine, handler, "", NULL);

    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    return run;
}

static void
tell(stet_engine *e, const stet_run_id *run, const char *signal)
{
    CHECK_OK(stet_signal(e, run, signal, stet_text(""), NULL));
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(I12_an_update_is_validated_applied_recorded_and_answered_and_every_replay_has_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    CHECK_STR(put(f->engine, &run, "b"), "\"a b \"");
    CHECK_STR(put_with(f->engine, &run, "put", "mute", NULL), "");
    CHECK_STR(letter_of(f->engine, &run), "a b mute ");
    CHECK_INT(fixture_facts(f->engine, &run, "update", "add"), 2);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_STR(letter_of(f->engine, &run), "a b mute ");
    tell(f->engine, &run, "one");
    effects_await("posted", 1);
    CHECK_STR(put(f->engine, &run, "c"), "\"a b mute |1 c \"");
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_STR(put(f->engine, &run, "d"), "\"a b mute |1 c d \"");
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "a b mute |1 c d |2 ");
    CHECK_INT(effects("posted"), 1);
    CHECK_INT(effects("checked a"), 1);
    CHECK_INT(effects("checked c"), 1);
    fixture_end(f);
}

TEST(I12_a_parked_handler_takes_updates_without_being_executed_anew)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    CHECK_STR(put(f->engine, &run, "b"), "\"a b \"");
    tell(f->engine, &run, "one");
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "a b |1 |2 ");
    fixture_end(f);
}

TEST(I12_an_update_is_refused_by_its_validation_or_by_name_and_changes_nothing)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put(f->engine, &run, "own"), "own");
    CHECK_HAS(stet_last_error(), "update add: not in this house");
    CHECK_STR(put(f->engine, &run, "silent"), "STET_EKEY");
    CHECK_STR(put_with(f->engine, &run, "ad", "x", NULL), "STET_ENOTFOUND");
    CHECK_HAS(stet_last_error(), "this run has no update ad; it has add, put");
    CHECK_STR(put(f->engine, &run, "meddle"), "\"meddle \"");
    fixture_down(f);
    fixture_up_with(f, handlers);
    tell(f->engine, &run, "one");
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "meddle |1 |2 ");
    CHECK_INT(effects("checked own"), 1);
    fixture_end(f);
}

TEST(I12_an_update_that_fails_while_it_is_made_is_made_again_by_every_replay)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put(f->engine, &run, "half"), "own");
    CHECK_HAS(stet_last_error(), "only half");
    CHECK_STR(put(f->engine, &run, "more"), "\"half more \"");
    tell(f->engine, &run, "one");
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "half more |1 |2 ");
    fixture_end(f);
}

TEST(I12_updates_are_taken_in_at_every_kind_of_wait)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    size_t      resumed = 0;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.waits", "", NULL);
    gate_await(&door, 1);
    CHECK_STR(put(f->engine, &run, "a"), "\"a \""); /* beside a body that runs */
    tell(f->engine, &run, "go");
    AWAIT(strcmp(letter_of(f->engine, &run), "a |any ") == 0);
    CHECK_STR(put(f->engine, &run, "b"), "\"a |any b \"");
    gate_open(&door);
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "awakeable approval") != NULL);
    CHECK_STR(put(f->engine, &run, "c"), "\"a |any b |all c \"");
    CHECK_OK(stet_resolve(f->engine, handed_out, stet_text("1")));
    AWAIT(strstr(fixture_why(f->engine, &run).text, "boss") != NULL);
    CHECK_STR(put(f->engine, &run, "d"), "\"a |any b |all c |awakeable d \"");
    CHECK_OK(stet_run_approve(f->engine, &run, NULL, NULL));
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "news") != NULL);
    CHECK_STR(put(f->engine, &run, "e"), "\"a |any b |all c |awakeable d |approval e \"");
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_emit(f->engine, &resumed, "news", stet_text("")));
    CHECK_INT(resumed, 1);
    EXPECT_RESULT(f->engine, &run, "a |any b |all c |awakeable d |approval e |event |time ");
    fixture_end(f);
}

TEST(I12_an_update_that_comes_with_the_end_of_a_wait_is_made_before_it_and_never_at_an_earlier_one)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run, second;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    second = start_waiting(f, "t.letter");
    tell(f->engine, &second, "one");
    AWAIT(effects("posted") == 1);
    AWAIT(strstr(fixture_look(f->engine, &second).reason, "two") != NULL);
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_STR(put_with(client, &run, "add", "x", STET_UPDATE_OPTIONS(.timeout_ms = 1)),
              "STET_ETIMEOUT");
    CHECK_HAS(stet_last_error(),
              "no worker serves its handler; ask again with the idempotency key upd_");
    tell(client, &run, "one");
    CHECK_STR(put_with(client, &second, "add", "y",
                       STET_UPDATE_OPTIONS(.idempotency_key = "why", .timeout_ms = 1)),
              "STET_ETIMEOUT");
    CHECK_HAS(stet_last_error(), "idempotency key why");
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    CHECK_STR(
        put_with(client, &second, "add", "other", STET_UPDATE_OPTIONS(.idempotency_key = "why")),
        "\"|1 y \"");
    tell(client, &run, "two");
    tell(client, &second, "two");
    EXPECT_RESULT(f->engine, &run, "x |1 |2 ");
    EXPECT_RESULT(f->engine, &second, "|1 y |2 ");
    stet_close(client);
    fixture_end(f);
}

static int
count_timer(void *arg, const stet_timer *t)
{
    (void)t;
    ++*(int *)arg;
    return 0;
}

static int
timers_of(stet_engine *e, const stet_run_id *run)
{
    int n = 0;

    CHECK_OK(e->store->ops->timers_of(e->store, damage_id(run), count_timer, &n));
    return n;
}

/* The end of the wait is on record by itself, because a body begins behind it: whoever asks goes
 * past the wait, and so must the run. The simulator found it. */
TEST(I12_an_update_is_not_made_at_a_wait_whose_end_was_recorded_without_it)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.beside");
    AWAIT(fixture_facts(f->engine, &run, "step retry", "try") == 1);
    fixture_down(f);
    f->options.roles = STET_ROLE_TIMERS;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    CHECK_STR(put_with(client, &run, "add", "x",
                       STET_UPDATE_OPTIONS(.idempotency_key = "k", .timeout_ms = 1)),
              "STET_ETIMEOUT");
    tell(client, &run, "one");
    AWAIT(timers_of(client, &run) == 0); /* its step is due when it is executed again */
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    CHECK_STR(put_with(client, &run, "add", "x", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"|1 x \"");
    tell(client, &run, "two");
    EXPECT_RESULT(f->engine, &run, "|1 x |2 ");
    CHECK_INT(effects("tried"), 2);
    stet_close(client);
    fixture_end(f);
}

typedef struct crowd {
    stet_engine       *e;
    const stet_run_id *run;
    const char        *key; /* NULL: each its own */
} crowd;

static void
crowd_asks(void *arg, int i)
{
    const crowd *c = arg;
    stet_bytes   reply;
    char         input[16];

    (void)snprintf(input, sizeof input, "w%d", c->key != NULL ? 0 : i);
    CHECK_OK(stet_update(c->e, &reply, c->run, "put", stet_text(input),
                         STET_UPDATE_OPTIONS(.idempotency_key = c->key, .timeout_ms = 60000)));
    CHECK_HAS(reply.data, input);
    stet_free((void *)(uintptr_t)reply.data);
}

TEST(I12_one_key_is_one_update_and_one_answer_whoever_asks_and_however_often)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run;

    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    fixture_race(6, crowd_asks, &(crowd){ f->engine, &run, "k" });
    fixture_race(4, crowd_asks, &(crowd){ client, &run, "k" });
    CHECK_STR(letter_of(f->engine, &run), "w0 ");
    CHECK_STR(put_with(client, &run, "put", "again", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"w0 \"");
    CHECK_STR(put_with(client, &run, "add", "again", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "STET_EMISMATCH");
    CHECK_HAS(stet_last_error(), "of an update put, not add");
    tell(client, &run, "one");
    tell(client, &run, "two");
    EXPECT_RESULT(f->engine, &run, "w0 |1 |2 ");
    /* The answer is as long as the run is; nothing new is taken in. */
    CHECK_STR(put_with(client, &run, "put", "late", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"w0 \"");
    CHECK_STR(put(client, &run, "late"), "STET_EENDED");
    CHECK_HAS(stet_last_error(), "has ended (completed) before it came to the update");
    stet_close(client);
    fixture_end(f);
}

TEST(I12_updates_from_many_sides_are_each_made_once)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    char       *text, want[8];

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    fixture_race(8, crowd_asks, &(crowd){ f->engine, &run, NULL });
    text = strdup(letter_of(f->engine, &run));
    CHECK(text != NULL);
    CHECK_INT(strlen(text), 8 * 3);
    for (int i = 0; i < 8; i++) {
        (void)snprintf(want, sizeof want, "w%d ", i);
        CHECK_HAS(text, want);
    }
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_STR(letter_of(f->engine, &run), text);
    free(text);
    fixture_end(f);
}

/* An update with the key "k", and a cancel, come while nobody serves the run; then a worker
 * comes. */
static stet_run_id
asked_and_cancelled(fixture *f, stet_engine **client, const char *handler, const char *input)
{
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = start_waiting(f, handler);
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    *client = fixture_open(f);
    CHECK_STR(put_with(*client, &run, "add", input,
                       STET_UPDATE_OPTIONS(.idempotency_key = "k", .timeout_ms = 1)),
              "STET_ETIMEOUT");
    CHECK_OK(stet_cancel(*client, &run, NULL, NULL));
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    return run;
}

TEST(I12_a_run_that_ends_without_coming_to_a_wait_answers_that_it_has_ended)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run = asked_and_cancelled(f, &client, "t.hour", "x");

    /* It was taken in and refused, or not taken in at all. */
    CHECK(stet_update(client, NULL, &run, "add", stet_text("x"),
                      STET_UPDATE_OPTIONS(.idempotency_key = "k")) != STET_OK);
    stet_close(client);
    fixture_end(f);
}

/* The code of a refused update was taken for what tells the handler: it waited on. */
TEST(I12_C4_an_update_that_is_refused_as_cancelled_does_not_hide_a_cancel_from_the_handler)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  run = asked_and_cancelled(f, &client, "t.letter", "void");

    CHECK_STR(put_with(client, &run, "add", "void", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "STET_ECANCELLED");
    CHECK_INT(effects("checked void"), 1);
    stet_close(client);
    fixture_end(f);
}

static void
is_stuck_on(fixture *f, const stet_run_id *run, const stet_handler *code, const char *recorded,
            const char *asked)
{
    fixture_up_with(f, code);
    fixture_await_status(f->engine, run, STET_STATUS_STUCK);
    CHECK_HAS(fixture_look(f->engine, run).error, recorded);
    CHECK_HAS(fixture_look(f->engine, run).error, asked);
    fixture_down(f);
}

TEST(I12_code_without_a_recorded_update_or_its_wait_is_stuck_until_it_is_mended)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    tell(f->engine, &run, "one");
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "two") != NULL);
    CHECK_STR(put(f->engine, &run, "b"), "\"a |1 b \"");
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    tell(f->engine, &run, "two");
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    is_stuck_on(f, &run, deaf, "recorded update add#1", "signal wait one#1");
    is_stuck_on(f, &run, hasty, "recorded update add#1", "signal wait two#1");
    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &run, "a |1 b |2 ");
    fixture_end(f);
}

static int
on_report(void *arg, const stet_replay_report *r)
{
    (void)snprintf(arg, 512, "%s; %s", r->recorded != NULL ? r->recorded : "", r->text);
    return STET_OK;
}

/* They were accepted and never made. */
TEST(I12_B20_a_run_whose_code_has_a_recorded_wait_no_more_takes_updates)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    has_limit = true;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.limited", "", NULL);
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "one") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    for (int i = 0; i < 2; i++) {
        fixture_down(f);
        has_limit = false;
        fixture_up_with(f, handlers);
        CHECK_STR(put(f->engine, &run, i == 0 ? "dear" : "you"),
                  i == 0 ? "\"dear \"" : "\"dear you \"");
    }
    tell(f->engine, &run, "one");
    EXPECT_RESULT(f->engine, &run, "dear you ");
    fixture_end(f);
}

TEST(I12_the_deploy_gate_and_a_query_know_updates)
{
    fixture           *f = fixture_begin();
    stet_check_summary summary;
    stet_run_id        run;
    char               text[512] = "";

    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    CHECK_OK(stet_check(f->engine, &summary, NULL, on_report, text));
    CHECK_INT(summary.stuck, 0);
    fixture_down(f);
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", deaf, false, NULL }, { 0 } });
    CHECK_OK(stet_check(f->engine, &summary, NULL, on_report, text));
    CHECK_INT(summary.stuck, 1);
    CHECK_HAS(text, "update add#1");
    fixture_close(f);
    fixture_end(f);
}

TEST(I12_a_retry_of_a_dead_letter_has_its_updates)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.fails");
    CHECK_STR(put_with(f->engine, &run, "add", "a", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"a \"");
    CHECK_STR(put(f->engine, &run, "own"), "own");
    tell(f->engine, &run, "one");
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    AWAIT(strstr(fixture_look(f->engine, &again).reason, "two") != NULL);
    CHECK_STR(letter_of(f->engine, &again), "a |1 ");
    CHECK_STR(put_with(f->engine, &again, "add", "b", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"a |1 b \"");
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_STR(letter_of(f->engine, &again), "a |1 b ");
    CHECK_OK(stet_run_rewind(f->engine, &again, NULL, NULL, NULL));
    AWAIT(strcmp(letter_of(f->engine, &again), "a b |1 ") == 0);
    fixture_down(f);
    fixture_up_with(f, handlers);
    tell(f->engine, &again, "two");
    EXPECT_RESULT(f->engine, &again, "a b |1 ");
    fixture_end(f);
}

TEST(I12_what_a_rewind_forgets_is_made_again_with_the_answer_that_was_given)
{
    fixture    *f = fixture_begin();
    stet_run_id run, forked;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put_with(f->engine, &run, "add", "a", STET_UPDATE_OPTIONS(.idempotency_key = "a")),
              "\"a \"");
    tell(f->engine, &run, "one");
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "two") != NULL);
    CHECK_STR(put_with(f->engine, &run, "add", "b", STET_UPDATE_OPTIONS(.idempotency_key = "b")),
              "\"a |1 b \"");
    CHECK_STR(put(f->engine, &run, "own"), "own");
    CHECK_OK(stet_run_fork(f->engine, &forked, &run, "post", NULL, NULL));
    CHECK_OK(stet_run_rewind(f->engine, &run, "post", NULL, NULL));
    effects_await("posted", 3);
    /* Its first wait was over: it comes to the second. */
    AWAIT(strcmp(letter_of(f->engine, &run), "a |1 b ") == 0);
    CHECK_STR(put_with(f->engine, &run, "add", "x", STET_UPDATE_OPTIONS(.idempotency_key = "b")),
              "\"a |1 b \"");
    CHECK_OK(stet_run_rewind(f->engine, &run, NULL, NULL, NULL));
    AWAIT(strcmp(letter_of(f->engine, &run), "a b |1 ") == 0);
    CHECK_STR(put_with(f->engine, &run, "add", "x", STET_UPDATE_OPTIONS(.idempotency_key = "a")),
              "\"a \"");
    CHECK_INT(effects("checked a"), 1);
    CHECK_INT(effects("checked b"), 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    (void)fixture_sound(f->engine);
    fixture_down(f);
    fixture_up_with(f, handlers);
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "a b |1 |2 ");
    tell(f->engine, &forked, "two");
    EXPECT_RESULT(f->engine, &forked, "a |1 |2 ");
    fixture_end(f);
}

TEST(I12_an_update_that_fails_and_is_made_again_after_a_rewind_has_the_record_it_had)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put_with(f->engine, &run, "put", "half", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "own");
    CHECK_OK(stet_run_rewind(f->engine, &run, NULL, NULL, NULL));
    AWAIT(fixture_facts(f->engine, &run, "update", "put") == 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_STR(letter_of(f->engine, &run), "half ");
    CHECK_STR(put_with(f->engine, &run, "put", "half", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "own");
    CHECK_HAS(stet_last_error(), "only half");
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

/* What was done behind a wait was done without it: a body that is tried again sees what it saw. */
TEST(I12_an_update_is_not_made_at_a_wait_that_another_attempt_had_left)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.posts");
    tell(f->engine, &run, "one");
    gate_await(&post_door, 1);
    CHECK_STR(put_with(f->engine, &run, "put", "x",
                       STET_UPDATE_OPTIONS(.idempotency_key = "k", .timeout_ms = 1)),
              "STET_ETIMEOUT");
    gate_open(&post_door);
    CHECK_STR(put_with(f->engine, &run, "put", "x", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"x \"");
    CHECK_INT(effects("posted \"\""), 2);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK(strstr(fixture_look(f->engine, &run).reason, "two") != NULL);
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "x ");
    fixture_end(f);
}

TEST(I12_a_query_of_a_run_that_failed_at_once_knows_its_last_update)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.curt");
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    tell(f->engine, &run, "one");
    fixture_await_status(f->engine, &run, STET_STATUS_FAILED);
    CHECK_STR(letter_of(f->engine, &run), "a ");
    fixture_end(f);
}

/* A retry of `run`, stopped at the wait where the first attempt took an update in. */
static void
check_stopped(fixture *f, const stet_run_id *run, gate *stop)
{
    stet_run_id again;

    EXPECT_ANSWER(f->engine, run, STET_ERUN);
    is_again = true;
    CHECK_OK(stet_dlq_retry(f->engine, &again, run));
    gate_await(stop, 1);
    CHECK_OK(stet_cancel(f->engine, &again, NULL, NULL));
    gate_open(stop);
    AWAIT(strstr(fixture_look(f->engine, &again).reason, "tidy") != NULL);
    CHECK_INT(effects("is stopped "), 0);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_STR(letter_of(f->engine, &again), "a stopped ");
    is_again = false;
}

TEST(I12_a_retry_that_is_stopped_where_an_update_was_made_has_it_at_once_and_in_every_replay)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.stopped", "approve", NULL);
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    CHECK_OK(stet_run_reject(f->engine, &run, NULL, "no"));
    check_stopped(f, &run, &again_doors[0]);
    run = fixture_start(f->engine, "t.stopped", "call", NULL);
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    gate_open(&child_door);
    check_stopped(f, &run, &again_doors[1]);
    fixture_end(f);
}

/* Who found no answer and was slow to ask: meanwhile it was made, and the run began anew. */
TEST(I12_an_update_that_is_asked_for_again_in_the_next_generation_is_not_made_again)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_id     id;
    stet__fact  late = { .kind = STET__FACT_UPDATE_ASKED,
                         .name = stet_text("put"),
                         .value = stet_text("a"),
                         .idempotency_key = stet_text("k") };

    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.turns");
    CHECK_STR(put_with(f->engine, &run, "put", "a", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"a \"");
    tell(f->engine, &run, "one");
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "two") != NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_STR(put(f->engine, &run, "b"), "\"b \"");
    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run.text));
    CHECK_CODE(stet__signal_put(f->engine, &run, id, &late), STET_EBUSY);
    CHECK_STR(put(f->engine, &run, "c"), "\"b c \"");
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "b c ");
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

/* Whoever asked had looked for the answer when there was none, and was on the way for two
 * generations. */
TEST(I12_an_update_that_is_on_its_way_for_two_generations_is_not_made_again)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_id     id;
    stet__fact  late = { .kind = STET__FACT_UPDATE_ASKED,
                         .name = stet_text("put"),
                         .value = stet_text("a"),
                         .idempotency_key = stet_text("k") };

    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.thrice");
    CHECK_STR(put_with(f->engine, &run, "put", "a", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"a \"");
    tell(f->engine, &run, "one");
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "two") != NULL);
    tell(f->engine, &run, "two");
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "three") != NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run.text));
    CHECK_CODE(stet__signal_put(f->engine, &run, id, &late), STET_EBUSY);
    CHECK_STR(put(f->engine, &run, "c"), "\"c \"");
    tell(f->engine, &run, "three");
    EXPECT_RESULT(f->engine, &run, "c ");
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

TEST(I12_bad_updates_are_refused_each_with_its_own_error)
{
    fixture            *f = fixture_begin();
    stet_run_id         run, none = { "run_00000000000000000000000001" };
    stet_update_options bad = { .size = 3 };
    char                key[300];

    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = '\0';
    CHECK_STR(put_with(f->engine, &run, "", "", NULL), "STET_ENAME");
    CHECK_STR(put_with(f->engine, &none, "add", "", NULL), "STET_ENOTFOUND");
    CHECK_STR(put_with(f->engine, &run, "add", "", &bad), "STET_EINVAL");
    CHECK_STR(put_with(f->engine, &run, "add", "", STET_UPDATE_OPTIONS(.timeout_ms = -7)),
              "STET_EINVAL");
    CHECK_STR(put_with(f->engine, &run, "add", "", STET_UPDATE_OPTIONS(.idempotency_key = "")),
              "STET_ETOOBIG");
    CHECK_STR(put_with(f->engine, &run, "add", "", STET_UPDATE_OPTIONS(.idempotency_key = key)),
              "STET_ETOOBIG");
    CHECK_CODE(stet_update(f->engine, NULL, &run, "add", (stet_bytes){ "x", 1001 }, NULL),
               STET_ETOOBIG);
    CHECK_CODE(stet_update(f->engine, NULL, NULL, "add", stet_text(""), NULL), STET_EINVAL);
    CHECK_OK(stet_update(f->engine, NULL, &run, "add", stet_text("a"), NULL));
    CHECK_STR(letter_of(f->engine, &run), "a ");
    fixture_end(f);
}

/* ---- its value ------------------------------------------------------------------------------- */

static int
on_finding(void *arg, const stet_finding *finding)
{
    (void)snprintf(arg, 512, "%s %d", finding->text, finding->is_repaired);
    return STET_OK;
}

static int
count_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return STET_OK;
}

static int
answers_kept(stet_engine *e)
{
    stet_bytes all = { NULL, 0 };
    int        n = 0;

    CHECK_OK(e->store->ops->values(e->store, STET__SPACE_UPDATE, all, NULL, 100, count_value, &n));
    CHECK_OK(
        e->store->ops->values(e->store, STET__SPACE_BASE_UPDATE, all, NULL, 100, count_value, &n));
    return n;
}

TEST(I12_verify_misses_an_answer_repair_puts_it_again_and_retention_takes_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_id     id;
    stet_bytes  key;
    stet__arena arena;
    stet__work *w;
    stet_op    *op;
    char        text[512] = "";

    f->options.retention_ms = 1;
    f->options.sweep_ms = 20;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.letter");
    CHECK_STR(put_with(f->engine, &run, "add", "a", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"a \"");
    CHECK_INT(fixture_sound(f->engine), 1);
    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run.text));
    stet__arena_init(&arena, &f->engine->p->alloc);
    CHECK(stet__update_key(&arena, &key, id, stet_text("k")));
    CHECK((w = stet__work_new(f->engine, NULL, NULL)) != NULL);
    CHECK((op = stet__work_op(w, STET_OP_VALUE_DEL, id)) != NULL);
    op->space = STET__SPACE_UPDATE;
    CHECK(stet__work_bytes(w, &op->key, key));
    CHECK_OK(stet__commit_sync(f->engine, w, NULL));
    stet__arena_free(&arena);
    CHECK_OK(stet_verify(f->engine, NULL, on_finding, text));
    CHECK_HAS(text, "the answer to update add is missing 0");
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_repair(f->engine, NULL, on_finding, text));
    CHECK_HAS(text, "the answer to update add is missing 1");
    CHECK_INT(fixture_sound(f->engine), 1);
    CHECK_STR(put_with(f->engine, &run, "add", "x", STET_UPDATE_OPTIONS(.idempotency_key = "k")),
              "\"a \"");
    tell(f->engine, &run, "one");
    tell(f->engine, &run, "two");
    EXPECT_RESULT(f->engine, &run, "a |1 |2 ");
    AWAIT(fixture_is_gone(f->engine, &run) && answers_kept(f->engine) == 0);
    fixture_end(f);
}

static const fixture_service late_services[] = { { "t", handlers, false, NULL }, { 0 } };
static fixture              *late_fixture;
static const stet_store_ops *late_real;
static stet_store_ops        late_ops;
static uint64_t              late_entries;
static stet_run_id           late_run;

static int
late_entries_of(void *arg, const stet_run_row *row)
{
    *(uint64_t *)arg = row->inbox;
    return STET_OK;
}

/* Between two looks of who waits for an answer the update is made, the run ends, and, when that was
 * read, both are removed. */
static int
late_read(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    fixture     *f = late_fixture;
    stet_engine *worker, *sweeper;
    uint64_t     entries = 0;
    int          err;

    if (f == NULL || late_real->run(s, run, late_entries_of, &entries) != STET_OK ||
        entries <= late_entries)
        return late_real->run(s, run, fn, arg);
    late_fixture = NULL;
    worker = fixture_open_with(f, late_services);
    CHECK_OK(stet_engine_start(worker));
    tell(worker, &late_run, "one");
    tell(worker, &late_run, "two");
    EXPECT_RESULT(worker, &late_run, "a |1 |2 ");
    err = late_real->run(s, run, fn, arg);
    f->options.sweep_ms = 20;
    sweeper = fixture_open_with(f, late_services);
    CHECK_OK(stet_engine_start(sweeper));
    AWAIT(late_real->run(s, run, late_entries_of, &entries) == STET_ENOTFOUND);
    stet_close(sweeper);
    stet_close(worker);
    return err;
}

/* Found by the simulator. */
TEST(I12_C10_a_run_that_is_removed_meanwhile_is_not_said_to_have_ended_without_the_update)
{
    fixture     *f = fixture_begin();
    stet_engine *worker, *client;
    stet_bytes   reply;
    stet_id      id;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 3600000;
    worker = fixture_open_with(f, late_services);
    CHECK_OK(stet_engine_start(worker));
    client = fixture_open(f);
    f->engine = worker;
    late_run = start_waiting(f, "t.letter");
    f->engine = NULL;
    stet_close(worker);
    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, late_run.text));
    CHECK_OK(client->store->ops->run(client->store, id, late_entries_of, &late_entries));
    late_real = client->store->ops;
    late_ops = *late_real;
    late_ops.run = late_read;
    client->store->ops = &late_ops;
    late_fixture = f;
    CHECK_CODE(stet_update(client, &reply, &late_run, "add", stet_text("a"), NULL), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "removed");
    CHECK_INT(effects("checked a"), 1);
    stet_close(client);
    fixture_end(f);
}

TEST(I12_retention_takes_the_answers_of_all_generations)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 20;
    fixture_up_with(f, handlers);
    run = start_waiting(f, "t.turns");
    CHECK_STR(put(f->engine, &run, "a"), "\"a \"");
    tell(f->engine, &run, "one");
    AWAIT(strstr(fixture_look(f->engine, &run).reason, "two") != NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_STR(put(f->engine, &run, "b"), "\"b \"");
    CHECK_INT(answers_kept(f->engine), 2);
    tell(f->engine, &run, "two");
    AWAIT(fixture_is_gone(f->engine, &run));
    CHECK_INT(answers_kept(f->engine), 0);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}
