/* What a handler is and asks for holds for its runs wherever they are started: workers leave it in
 * the store, and who
 * does not have the handler reads it there. Rows A2, A4, C1, C5, D15. tsan: yes
 */
#include "damage.h"

#include "engine/engine.h"

/* ---- two programs: one has the handlers, one does not
 * ------------------------------------------- */

static const stet_handler_options stern = {
    .retry = { .attempts = 5, .max_ms = 7000, .jitter_percent = STET_NONE },
    .timeout = "1h",
    .retention = "2h"
};
static const stet_handler_options milder = { .retry = { .attempts = 9 } };
static const stet_handler_options shared = { .shared = true };
static const stet_handler plain[] = { { "f", h_echo, &stern }, { "bare", h_echo, NULL }, { 0 } };
static const stet_handler changed[] = { { "f", h_echo, &milder }, { "bare", h_echo, NULL }, { 0 } };
static const stet_handler objects[] = { { "w", h_echo, NULL }, { "read", h_echo, &shared }, { 0 } };
static const fixture_service services[] = { { "p", plain, false, NULL },
                                            { "o", objects, true, NULL },
                                            { 0 } };

static stet_engine *
client_open(fixture *f)
{
    f->options.roles = STET_ROLE_CLIENT;
    return fixture_open(f);
}

/* A worker that has served them was here. */
static void
worker_was(fixture *f, const fixture_service *has)
{
    f->options.roles = 0;
    fixture_up(f, has);
    fixture_down(f);
}

static stet_engine *
client_after(fixture *f)
{
    worker_was(f, services);
    return client_open(f);
}

typedef struct asked { /* of a run, as its first fact has it */
    stet__backoff retry;
    int64_t       timeout_ms, retention_ms;
    bool          is_shared;
} asked;

static asked
asked_of(stet_engine *e, const stet_run_id *run)
{
    stet__loaded l;
    asked        a;

    CHECK_OK(stet__load(e, &l, damage_id(run), false));
    a = (asked){ l.run.retry, l.run.deadline_ms != 0 ? l.run.deadline_ms - l.run.created_ms : 0,
                 l.run.retention_ms, l.run.is_shared };
    stet__loaded_free(&l);
    return a;
}

/* All that `stern` says, and of the rest what this engine says. */
static void
check_stern(stet_engine *e, const stet_run_id *run)
{
    asked a = asked_of(e, run);

    CHECK_INT(a.retry.attempts, 5);
    CHECK_INT(a.retry.first_ms, e->config.retry_first_ms);
    CHECK_INT(a.retry.max_ms, 7000);
    CHECK_INT(a.retry.factor_percent, e->config.retry_factor_percent);
    CHECK_INT(a.retry.jitter_percent, 0);
    CHECK_INT(a.timeout_ms, 3600000);
    CHECK_INT(a.retention_ms, 7200000);
}

static stet_value
stored(fixture *f, const char *handler)
{
    stet_store *s = damage_open(f);
    stet_value  v = { 0 };
    int         err = s->ops->value(s, STET__SPACE_HANDLER, stet_text(handler), &v);

    CHECK(err == STET_OK || err == STET_ENOTFOUND);
    stet__free(s->alloc, (void *)(uintptr_t)v.data.data);
    v.data.data = NULL;
    stet__store_close(s);
    return v;
}

/* ---- keys
 * ---------------------------------------------------------------------------------------- */

TEST(A2_who_does_not_have_the_handler_knows_whether_it_needs_a_key)
{
    fixture           *f = fixture_begin();
    stet_engine       *client = client_after(f);
    stet_start_request many[] = {
        { .handler = "o.w", .input = stet_text("") },
        { .handler = "p.f", .input = stet_text(""), .options = STET_START(.key = "k") },
        { .handler = "p.f", .input = stet_text("") }
    };

    CHECK_CODE(stet_start(client, NULL, "o.w", stet_text(""), NULL), STET_EKEY);
    CHECK_STR(stet_last_error(), "o.w belongs to an object: give the key of the object");
    CHECK_CODE(stet_start(client, NULL, "p.f", stet_text(""), STET_START(.key = "k")), STET_EKEY);
    CHECK_STR(stet_last_error(), "p.f belongs to a service, which has no keys; leave key away");
    CHECK_CODE(stet_start_many(client, many, 3), STET_EKEY);
    CHECK_CODE(many[1].code, STET_EKEY);
    CHECK_OK(many[2].code);
    CHECK_OK(stet_start(client, NULL, "o.w", stet_text(""), STET_START(.key = "k")));
    CHECK_INT(fixture_count(client, NULL), 2);
    stet_close(client);
    fixture_end(f);
}

TEST(A2_a_handler_no_worker_ever_served_is_taken_as_it_comes)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_after(f);
    stet_run_id  run = fixture_start(client, "new.thing", "", NULL);

    (void)fixture_start(client, "new.thing", "", STET_START(.key = "k"));
    CHECK_INT(asked_of(client, &run).retry.attempts, client->config.run_attempts);
    CHECK_INT(asked_of(client, &run).timeout_ms, 0);
    stet_close(client);
    fixture_end(f);
}

TEST(A2_a_schedule_with_a_key_that_does_not_belong_is_refused_where_the_handler_is_not)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_after(f);

    CHECK_CODE(stet_schedule_ensure(client, NULL, "s", "p.f", stet_text(""),
                                    STET_SCHEDULE(.every = "1h", .key = "k")),
               STET_EKEY);
    CHECK_CODE(
        stet_schedule_ensure(client, NULL, "s", "o.w", stet_text(""), STET_SCHEDULE(.every = "1h")),
        STET_EKEY);
    stet_close(client);
    fixture_end(f);
}

TEST(A3_a_handler_is_known_to_be_shared_when_no_worker_lives)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_after(f);
    stet_run_id  run = fixture_start(client, "o.read", "", STET_START(.key = "k"));

    CHECK(asked_of(client, &run).is_shared);
    run = fixture_start(client, "o.w", "", STET_START(.key = "k"));
    CHECK(!asked_of(client, &run).is_shared);
    stet_close(client);
    fixture_end(f);
}

/* ---- options
 * ------------------------------------------------------------------------------------- */

TEST(D15_options_of_a_handler_hold_for_runs_that_are_started_where_it_is_not)
{
    fixture           *f = fixture_begin();
    stet_engine       *client;
    stet_run_id        run;
    stet_start_request many[] = { { .handler = "p.f", .input = stet_text("") },
                                  { .handler = "p.f", .input = stet_text("") } };

    worker_was(f, services);
    f->options.retry_first_ms = 23;
    f->options.retry_factor_percent = 321;
    client = client_open(f);
    run = fixture_start(client, "p.f", "", NULL);
    CHECK_INT(asked_of(client, &run).retry.first_ms, 23);
    check_stern(client, &run);
    CHECK_OK(stet_start_many(client, many, 2));
    check_stern(client, &many[1].run);
    CHECK_INT(fixture_look(client, &run).attempts_max, 5);
    run = fixture_start(client, "p.bare", "", NULL);
    CHECK_INT(asked_of(client, &run).retry.attempts, client->config.run_attempts);
    CHECK_INT(asked_of(client, &run).timeout_ms, 0);
    stet_close(client);
    fixture_end(f);
}

TEST(D15_what_the_call_says_beats_the_handler_field_by_field_where_it_is_not)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_after(f);
    stet_run_id  run;
    asked        a;

    run = fixture_start(client, "p.f", "",
                        STET_START(.retry = { .attempts = 2, .jitter_percent = 30 },
                                   .timeout = "5m", .retention = "3d"));
    a = asked_of(client, &run);
    CHECK_INT(a.retry.attempts, 2);
    CHECK_INT(a.retry.max_ms, 7000);
    CHECK_INT(a.retry.jitter_percent, 30);
    CHECK_INT(a.timeout_ms, 300000);
    CHECK_INT(a.retention_ms, 3 * 86400000);
    stet_close(client);
    fixture_end(f);
}

/* In a worker of other handlers. */
static int
h_sends(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id sent;

    (void)input;
    CHECK_CODE(stet_send(ctx, &sent, "o.w", stet_text(""), NULL), STET_EKEY);
    STET_TRY(stet_send(ctx, &sent, "p.f", stet_text(""), STET_START(.delay = "1h")));
    return stet_return(ctx, stet_text(sent.text));
}

TEST(A4_a_send_gets_what_the_handler_asks_for_also_from_a_worker_of_others)
{
    static const stet_handler others[] = { { "sends", h_sends, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, sent;
    stet_result               result;

    worker_was(f, services);
    fixture_up_with(f, others);
    run = fixture_start(f->engine, "t.sends", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_OK);
    (void)snprintf(sent.text, sizeof sent.text, "%.*s", (int)result.value.len,
                   (const char *)result.value.data);
    stet_result_free(&result);
    check_stern(f->engine, &sent);
    fixture_end(f);
}

typedef struct first_run {
    stet_run_id run;
    int         n;
} first_run;

static int
on_run(void *arg, const stet_run_info *info)
{
    first_run *r = arg;

    (void)snprintf(r->run.text, sizeof r->run.text, "%s", info->id);
    r->n++;
    return STET_OK;
}

static int
started(stet_engine *e, first_run *r)
{
    r->n = 0;
    CHECK_OK(stet_run_list(e, STET_FILTER(.handler = "p.f"), on_run, r));
    return r->n;
}

TEST(C5_a_schedule_that_a_timer_node_fires_gives_its_runs_what_the_handler_asks_for)
{
    fixture  *f = fixture_begin();
    first_run r;

    worker_was(f, services);
    f->options.roles = STET_ROLE_TIMERS;
    f->engine = fixture_open(f);
    CHECK_OK(stet_engine_start(f->engine));
    CHECK_OK(stet_schedule_ensure(f->engine, NULL, "s", "p.f", stet_text(""),
                                  STET_SCHEDULE(.after_ms = 1)));
    AWAIT(started(f->engine, &r) == 1);
    check_stern(f->engine, &r.run);
    fixture_end(f);
}

TEST(C1_attempts_are_those_of_the_handler_when_the_run_was_started_elsewhere)
{
    static const stet_handler_options four = { .retry = { .attempts = 4, .first_ms = 1 } };
    static const stet_handler         fails[] = { { "fails", h_bank_closed, &four }, { 0 } };
    fixture                          *f = fixture_begin();
    stet_engine                      *client;
    stet_run_id                       run;
    stet_result                       result;

    fixture_up_with(f, fails);
    client = client_open(f);
    run = fixture_start(client, "t.fails", "", NULL);
    result = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_INT(result.attempts, 4);
    stet_result_free(&result);
    stet_close(client);
    fixture_end(f);
}

/* ---- who writes
 * ------------------------------------------------------------------------------------ */

TEST(D15_a_worker_writes_only_what_is_not_there_and_nobody_else_writes)
{
    static const fixture_service later[] = { { "p", changed, false, NULL },
                                             { "o", objects, true, NULL },
                                             { 0 } };
    fixture                     *f = fixture_begin();
    stet_engine                 *client;
    stet_run_id                  run;

    f->options.roles = STET_ROLE_CLIENT;
    fixture_up(f, services);
    fixture_down(f);
    f->options.roles = STET_ROLE_TIMERS;
    fixture_up(f, services);
    fixture_down(f);
    CHECK_INT(stored(f, "p.f").version, 0);
    worker_was(f, services);
    worker_was(f, services);
    CHECK_INT(stored(f, "p.f").version, 1);
    CHECK_INT(stored(f, "o.read").version, 1);
    worker_was(f, later);
    CHECK_INT(stored(f, "p.f").version, 2);
    CHECK_INT(stored(f, "p.bare").version, 1);
    client = client_open(f);
    run = fixture_start(client, "p.f", "", NULL);
    CHECK_INT(asked_of(client, &run).retry.attempts, 9);
    CHECK_INT(asked_of(client, &run).timeout_ms, 0);
    stet_close(client);
    fixture_end(f);
}

TEST(D15_an_engine_that_is_polled_tells_too)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open_with(f, services);

    CHECK_OK(stet_engine_poll(e, NULL, 0));
    CHECK_INT(stored(f, "p.f").version, 1);
    stet_close(e);
    fixture_end(f);
}

static void
race_up(void *arg, int i)
{
    stet_engine **e = arg;

    CHECK_OK(stet_engine_start(e[i]));
}

TEST(D15_workers_that_start_together_tell_once)
{
    fixture     *f = fixture_begin();
    stet_engine *e[4];

    for (int i = 0; i < 4; i++)
        e[i] = fixture_open_with(f, services);
    fixture_race(4, race_up, e);
    CHECK_INT(stored(f, "p.f").version, 1);
    CHECK_INT(stored(f, "o.w").version, 1);
    CHECK_INT(fixture_logged(f, "could not be written"), 0);
    for (int i = 0; i < 4; i++)
        stet_close(e[i]);
    fixture_end(f);
}

/* ---- a store that does not do as it is told
 * ------------------------------------------------------- */

static fixture    *between;    /* where another worker writes between the look and the unit … */
static _Atomic int n_between;  /* … so often */
static _Atomic int fails_with; /* 0: not at all */
static _Atomic int n_read;
static int (*inner_values)(stet_store *s, const char *space, stet_bytes prefix,
                           const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg);
static int (*inner_value)(stet_store *s, const char *space, stet_bytes key, stet_value *value);

static void
put_raw(fixture *f, const char *handler, const char *data)
{
    stet_op op = { .kind = STET_OP_VALUE_PUT,
                   .space = STET__SPACE_HANDLER,
                   .key = stet_text(handler),
                   .data = stet_text(data) };

    damage_do(f, &op, 1);
}

static int
values_between(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
               size_t limit, stet_value_fn fn, void *arg)
{
    int err;

    if (strcmp(space, STET__SPACE_HANDLER) != 0)
        return inner_values(s, space, prefix, after, limit, fn, arg);
    if (fails_with != 0)
        return stet__fail(fails_with, "by the test");
    err = inner_values(s, space, prefix, after, limit, fn, arg);
    if (n_between > 0) {
        n_between--;
        put_raw(between, "p.f", "another one");
    }
    return err;
}

static int
value_counted(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    if (strcmp(space, STET__SPACE_HANDLER) != 0)
        return inner_value(s, space, key, value);
    n_read++;
    return fails_with != 0 ? stet__fail(fails_with, "by the test")
                           : inner_value(s, space, key, value);
}

static void
spy(stet_engine *e)
{
    stet_store_ops *ops = damage_ops(e);

    inner_values = ops->values;
    inner_value = ops->value;
    ops->values = values_between;
    ops->value = value_counted;
}

static void
worker_is(fixture *f)
{
    f->options.roles = 0;
    f->engine = fixture_open_with(f, services);
    spy(f->engine);
    CHECK_OK(stet_engine_start(f->engine));
}

TEST(D15_a_worker_that_finds_another_one_writing_looks_again)
{
    fixture *f = between = fixture_begin();

    n_between = 2;
    worker_is(f);
    CHECK_INT(stored(f, "p.f").version, 3);
    CHECK_INT(stored(f, "o.w").version, 1);
    CHECK_INT(fixture_logged(f, "could not be written"), 0);
    fixture_down(f);
    put_raw(f, "p.f", "and another");
    n_between = 100;
    worker_is(f);
    n_between = 0;
    CHECK_INT(fixture_logged(f, "other workers write it all the time"), 1);
    fixture_end(f);
}

TEST(D15_a_worker_that_cannot_tell_executes_all_the_same)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fails_with = STET_EIO;
    worker_is(f);
    fails_with = 0;
    CHECK_INT(fixture_logged(f, "could not be written, so runs that are started elsewhere"), 1);
    CHECK_INT(stored(f, "p.f").version, 0);
    run = fixture_start(f->engine, "p.f", "x", NULL);
    EXPECT_RESULT(f->engine, &run, "x");
    check_stern(f->engine, &run);
    fixture_end(f);
}

TEST(D15_a_value_that_cannot_be_read_harms_nobody_and_the_next_worker_writes_it_anew)
{
    fixture     *f = fixture_begin();
    stet_engine *client = NULL;
    stet_run_id  run;

    worker_was(f, services);
    put_raw(f, "p.f", "nonsense");
    put_raw(f, "gone.f", "");
    client = client_open(f);
    spy(client);
    n_read = 0;
    run = fixture_start(client, "p.f", "", NULL);
    (void)fixture_start(client, "gone.f", "", NULL);
    CHECK_INT(asked_of(client, &run).retry.attempts, client->config.run_attempts);
    CHECK_INT(fixture_logged(f, "what the store says of p.f cannot be read"), 1);
    AWAIT((fixture_start(client, "p.f", "", NULL),
           n_read >= 4)); /* asked for again, and not said again */
    CHECK_INT(fixture_logged(f, "what the store says of p.f cannot be read"), 1);
    (void)fixture_sound(client);
    worker_was(f, services);
    AWAIT(
        (run = fixture_start(client, "p.f", "", NULL), asked_of(client, &run).retry.attempts == 5));
    (void)fixture_sound(client);
    stet_close(client);
    fixture_end(f);
}

/* Goes on whatever the send says. */
static int
h_stubborn(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id sent = { "" };
    int         err = stet_send(ctx, &sent, "p.f", stet_text(""), STET_START(.delay = "1h"));

    (void)input;
    effect("send: %d", err);
    if (err != STET_OK)
        STET_TRY(stet_step(ctx, NULL, "other way", body_effect, "other way", NULL));
    return stet_return(ctx, stet_text(sent.text));
}

TEST(A4_a_send_that_cannot_learn_what_the_handler_asks_for_is_tried_again_and_uses_no_attempt)
{
    static const stet_handler others[] = { { "stubborn", h_stubborn, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, sent;
    stet_result               result;

    worker_was(f, services);
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", others, false, NULL }, { 0 } });
    spy(f->engine);
    CHECK_OK(stet_engine_start(f->engine));
    fails_with = STET_EBUSY;
    run = fixture_start(f->engine, "t.stubborn", "", NULL);
    effects_await("send: -4", 1);
    fails_with = 0;
    result = EXPECT_END(f->engine, &run, STET_OK);
    CHECK_INT(result.attempts, 1);
    CHECK_INT(effects("other way"), 0);
    CHECK_INT(effects("send: 0"), 1);
    (void)snprintf(sent.text, sizeof sent.text, "%.*s", (int)result.value.len,
                   (const char *)result.value.data);
    stet_result_free(&result);
    check_stern(f->engine, &sent);
    fixture_end(f);
}

/* ---- what is remembered
 * ---------------------------------------------------------------------------- */

TEST(D15_thousands_of_starts_cost_one_look)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_after(f);
    int64_t      began_ms = fixture_mono_ms();

    spy(client);
    n_read = 0;
    for (int i = 0; i < 50; i++)
        (void)fixture_start(client, "p.f", "", NULL);
    CHECK(n_read <= 1 + (fixture_mono_ms() - began_ms) / 10000);
    n_read = 0;
    began_ms = fixture_mono_ms();
    for (int i = 0; i < 50; i++)
        (void)fixture_start(client, "new.thing", "", NULL);
    CHECK(n_read <= 1 + (fixture_mono_ms() - began_ms) / 1000);
    stet_close(client);
    fixture_end(f);
}

TEST(D15_a_worker_that_comes_later_is_heard_soon)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_open(f);
    stet_run_id  run = fixture_start(client, "p.f", "", NULL);

    CHECK_INT(asked_of(client, &run).timeout_ms, 0);
    worker_was(f, services);
    AWAIT((run = fixture_start(client, "p.f", "", NULL),
           asked_of(client, &run).timeout_ms == 3600000));
    stet_close(client);
    fixture_end(f);
}

TEST(D15_what_is_remembered_is_bounded)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_after(f);
    stet__policy policy;
    char         name[64];

    for (int i = 0; i < 2500; i++) {
        (void)snprintf(name, sizeof name, "many.f%d", i);
        CHECK_OK(stet__policy_elsewhere(client, name, &policy));
        CHECK(!policy.is_known);
        CHECK(client->policies.used <= 1000);
    }
    CHECK_OK(stet__policy_elsewhere(client, "p.f", &policy));
    CHECK(policy.is_known && policy.retry.attempts == 5);
    stet_close(client);
    fixture_end(f);
}

TEST(D15_a_start_whose_look_fails_says_so_and_what_was_known_is_used)
{
    fixture     *f = fixture_begin();
    stet_engine *client = client_after(f);
    stet_run_id  run;
    size_t       at = 0, len;
    const void  *key;
    void        *known;

    spy(client);
    fails_with = STET_EBUSY;
    CHECK_CODE(stet_start(client, NULL, "p.f", stet_text(""), NULL), STET_EBUSY);
    CHECK_INT(fixture_count(client, NULL), 0);
    fails_with = 0;
    run = fixture_start(client, "p.f", "", NULL);
    check_stern(client, &run);
    fails_with = STET_EBUSY;
    while (stet__map_next(&client->policies, &at, &key, &len, &known))
        *(int64_t *)known = 0; /* it is old */
    n_read = 0;
    run = fixture_start(client, "p.f", "", NULL);
    CHECK_INT(n_read, 1);
    check_stern(client, &run);
    fails_with = 0;
    stet_close(client);
    fixture_end(f);
}
