/* The journal: facts in order, claims and fences, durable before live, damage, ends that stay. Rows
 * F. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

/* ---- bodies and handlers many tests use ------------------------------------------------------ */

static gate facts_door = GATE_INIT;

static int
h_door_then(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &facts_door, NULL));
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, input);
}

static int
h_three(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, (void *)"one", NULL));
    STET_TRY(stet_sleep_ms(ctx, "nap", 5));
    STET_TRY(stet_step(ctx, NULL, "two", body_effect, (void *)"two", NULL));
    return stet_return(ctx, input);
}

static int
h_nap(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, (void *)"one", NULL));
    STET_TRY(stet_sleep(ctx, "nap", "1h"));
    return stet_return(ctx, input);
}

static const stet_handler facts_handlers[] = {
    { "door", h_door_then, NULL }, { "three", h_three, NULL },       { "nap", h_nap, NULL },
    { "quick", h_quick, NULL },    { "approval", h_approval, NULL }, { 0 },
};

/* ---- a copy of a run's facts ----------------------------------------------------------------- */

typedef struct kept_fact {
    uint64_t revision, inbox, occurrence;
    int64_t  time_ms;
    char     kind[32], name[64], value[64];
    size_t   value_len;
    bool     has_value, is_corrupt;
    int      code;
} kept_fact;

typedef struct kept_facts {
    kept_fact facts[128];
    size_t    n;
} kept_facts;

static int
keep_fact(void *arg, const stet_fact_info *i)
{
    kept_facts *to = arg;
    kept_fact  *k = &to->facts[to->n];

    CHECK(to->n < 128);
    to->n++;
    k->revision = i->revision;
    k->inbox = i->inbox;
    k->occurrence = i->occurrence;
    k->time_ms = i->time_ms;
    k->code = i->code;
    k->is_corrupt = i->is_corrupt;
    k->has_value = i->value.data != NULL;
    k->value_len = i->value_len;
    (void)snprintf(k->kind, sizeof k->kind, "%s", i->kind != NULL ? i->kind : "");
    (void)snprintf(k->name, sizeof k->name, "%s", i->name != NULL ? i->name : "");
    (void)snprintf(k->value, sizeof k->value, "%.*s", (int)i->value.len,
                   k->has_value ? (const char *)i->value.data : "");
    return 0;
}

static kept_facts *
facts_of(stet_engine *e, const stet_run_id *run, bool with_payloads)
{
    kept_facts *kept = calloc(1, sizeof *kept);

    CHECK(kept != NULL);
    CHECK_OK(stet_run_facts(e, run, with_payloads, keep_fact, kept));
    return kept;
}

/* ---- F1, F8: facts in order ------------------------------------------------------------------ */

/* What woke the run comes through its inbox, or, if the run was in memory, stands in the journal
 * itself. */
static void
facts_in_order(bool is_parked)
{
    static const char *const want[] = { "started",   "claimed",     "step", "sleep",
                                        "suspended", "timer fired", "step", "completed" };
    fixture                 *f = fixture_begin();
    stet_engine             *other;
    stet_run_id              run;
    kept_facts              *k;
    uint64_t                 last = 0, inbox = 0;
    size_t                   found = 0;

    f->options.parked_max = is_parked ? 10 : STET_NONE;
    fixture_up_with(f, facts_handlers);
    other = fixture_open(f); /* as another process would */
    run = fixture_start(f->engine, "t.three", "in", NULL);
    EXPECT_RESULT(f->engine, &run, "in");
    k = facts_of(other, &run, true);
    for (size_t i = 0; i < k->n; i++) {
        CHECK_INT(k->facts[i].revision, last + 1);
        last = k->facts[i].revision;
        if (k->facts[i].inbox != 0) {
            CHECK_INT(k->facts[i].inbox, inbox + 1);
            inbox = k->facts[i].inbox;
        }
        CHECK(k->facts[i].time_ms > 0);
        CHECK(!k->facts[i].is_corrupt);
        CHECK(i == 0 || k->facts[i].time_ms + 1000 >= k->facts[i - 1].time_ms);
        if (found < sizeof want / sizeof want[0] && strcmp(k->facts[i].kind, want[found]) == 0)
            found++;
    }
    CHECK_INT(found, sizeof want / sizeof want[0]);
    CHECK_INT(inbox, is_parked ? 0 : 1);
    CHECK_INT(last, fixture_look(other, &run).facts);
    free(k);
    stet_close(other);
    fixture_end(f);
}

TEST(F1_F8_facts_have_revisions_without_gaps_and_inbox_sequences)
{
    facts_in_order(false);
}

TEST(F1_F8_a_timer_that_wakes_a_parked_run_stands_in_its_journal)
{
    facts_in_order(true);
}

TEST(F8_payloads_come_only_when_asked_for)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    kept_facts *with, *without;
    int         values = 0;

    fixture_up_with(f, facts_handlers);
    run = fixture_start(f->engine, "t.three", "the input", NULL);
    EXPECT_RESULT(f->engine, &run, "the input");
    with = facts_of(f->engine, &run, true);
    without = facts_of(f->engine, &run, false);
    CHECK_INT(with->n, without->n);
    for (size_t i = 0; i < with->n; i++) {
        CHECK_STR(without->facts[i].kind, with->facts[i].kind);
        CHECK(!without->facts[i].has_value);
        CHECK_INT(without->facts[i].value_len, with->facts[i].value_len);
        values += with->facts[i].value_len > 0;
    }
    CHECK_STR(with->facts[0].value, "the input");
    CHECK_STR(with->facts[0].name, "t.three");
    CHECK(values >= 4); /* input, two steps, result */
    free(with);
    free(without);
    fixture_end(f);
}

typedef struct listed {
    int inputs, results, n;
} listed;

static int
count_payloads(void *arg, const stet_run_info *i)
{
    listed *l = arg;

    l->n++;
    l->inputs += i->input.data != NULL;
    l->results += i->result.data != NULL;
    return 0;
}

TEST(F8_lists_carry_no_payloads_unless_asked)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    listed      l = { 0, 0, 0 };

    fixture_up_with(f, facts_handlers);
    for (int i = 0; i < 3; i++) {
        run = fixture_start(f->engine, "t.quick", "payload", NULL);
        EXPECT_RESULT(f->engine, &run, "payload");
    }
    CHECK_OK(stet_run_list(f->engine, NULL, count_payloads, &l));
    CHECK_INT(l.n, 3);
    CHECK_INT(l.inputs + l.results, 0);
    CHECK_OK(stet_run_list(f->engine, STET_FILTER(.with_payloads = true), count_payloads, &l));
    CHECK_INT(l.inputs, 3);
    CHECK_INT(l.results, 3);
    fixture_end(f);
}

TEST(F8_a_long_journal_is_read_in_pages)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet__buf   b;
    stet__fact  fact = { .kind = STET__FACT_NOW, .time_ms = 1 };
    stet_store *s;
    uint64_t    last;

    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.nobody", "", NULL);
    last = fixture_look(f->engine, &run).facts;
    s = damage_open(f);
    fact.name = stet_text("now");
    for (int i = 0; i < 700; i++) {
        stet_op op = { .kind = STET_OP_FACTS, .count = 1 };

        stet__buf_init(&b, &stet__platform_real()->alloc);
        fact.occurrence = i + 1;
        stet__fact_encode(&b, &fact);
        op.run = damage_id(&run);
        op.number = last + 1 + (uint64_t)i;
        op.data = stet__buf_bytes(&b);
        CHECK_INT(damage_try(s, NULL, 0, &op, 1).result, STET_OK);
        stet__buf_free(&b);
    }
    stet__store_close(s);
    CHECK_INT(fixture_facts(f->engine, &run, "now", NULL), 700);
    CHECK_INT(fixture_look(f->engine, &run).facts, last + 700);
    fixture_end(f);
}

enum { FACTS_WORDS = 300 }; /* more than are read at once */

static int
facts_listens(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes word;
    int        sum = 0;

    (void)input;
    for (int i = 0; i < FACTS_WORDS; i++) {
        STET_TRY(stet_await_signal(ctx, &word, "word", NULL));
        sum = sum * 31 % 1000003 + (int)strtol(word.data, NULL, 10);
    }
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%d", sum)));
}

TEST(F8_a_long_inbox_is_read_in_pages_and_in_order)
{
    const stet_handler listens[] = { { "listens", facts_listens, NULL }, { 0 } };
    fixture           *f = fixture_begin();
    stet_run_id        run;
    char               text[16];
    int                sum = 0;

    fixture_up_with(f, listens);
    run = fixture_start(f->engine, "t.listens", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    for (int i = 0; i < FACTS_WORDS; i++) {
        if (i == FACTS_WORDS - 1) { /* what is taken by now is read anew for the last one */
            AWAIT(fixture_facts(f->engine, &run, "signal wait", NULL) == FACTS_WORDS);
            fixture_down(f);
            fixture_up_with(f, listens);
        }
        (void)snprintf(text, sizeof text, "%d", i);
        CHECK_OK(stet_signal(f->engine, &run, "word", stet_text(text), NULL));
        sum = sum * 31 % 1000003 + i;
    }
    (void)snprintf(text, sizeof text, "%d", sum);
    EXPECT_RESULT(f->engine, &run, text);
    fixture_end(f);
}

TEST(F1_an_append_that_expects_another_revision_conflicts)
{
    fixture     *f = fixture_begin();
    stet_store  *s;
    stet_run_id  run;
    uint64_t     last;
    stet_cond    cond = { .kind = STET_COND_JOURNAL };
    stet_op      op = { .kind = STET_OP_FACTS, .count = 1 };
    stet_outcome o;

    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.nobody", "", NULL);
    last = fixture_look(f->engine, &run).facts;
    s = damage_open(f);
    cond.run = op.run = damage_id(&run);
    op.data = stet_text("whatever");
    cond.number = last - 1;
    op.number = last + 1;
    o = damage_try(s, &cond, 1, &op, 1);
    CHECK_INT(o.result, STET_ECONFLICT);
    CHECK_INT(o.cond, 0);
    op.number = last;
    CHECK_INT(damage_try(s, NULL, 0, &op, 1).result, STET_ECONFLICT);
    op.number = last + 2;
    CHECK_INT(damage_try(s, NULL, 0, &op, 1).result, STET_ECONFLICT);
    CHECK_INT(fixture_look(f->engine, &run).facts, last);
    stet__store_close(s);
    fixture_end(f);
}

/* ---- F2: projections ------------------------------------------------------------------------- */

TEST(F2_rows_and_facts_agree_after_restarts)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    for (int round = 0; round < 3; round++) {
        fixture_up_with(f, facts_handlers);
        for (int i = 0; i < 10; i++)
            (void)fixture_start(f->engine, i % 2 ? "t.three" : "t.nap", "x", NULL);
        run = fixture_start(f->engine, "t.quick", "q", NULL);
        EXPECT_RESULT(f->engine, &run, "q");
        fixture_down(f); /* wherever they are just now */
        f->engine = fixture_open(f);
        CHECK_INT(fixture_sound(f->engine), (round + 1) * 11);
        fixture_close(f);
    }
    fixture_end(f);
}

/* ---- F3: claims ------------------------------------------------------------------------------ */

static const stet_store_ops *f3_inner;
static _Atomic int           f3_sweeps;
static atomic_bool           f3_was_late;

typedef struct f3_listing {
    stet_session_fn fn;
    void           *arg;
} f3_listing;

static int
f3_session(void *arg, const stet_session_row *row)
{
    const f3_listing *l = arg;

    if (row->is_dead)
        atomic_store(&f3_was_late, true);
    return l->fn(l->arg, row);
}

static int
count_sweeps(stet_store *s, stet_session_fn fn, void *arg)
{
    f3_listing l = { fn, arg };

    atomic_fetch_add(&f3_sweeps, 1);
    return f3_inner->sessions(s, f3_session, &l);
}

/* False: the machine stood still for a whole lease, so that the worker was late. */
static bool
f3_living(void)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  run;
    int          before = effects("after");
    bool         was_late;

    gate_shut(&facts_door);
    atomic_store(&f3_sweeps, 0);
    atomic_store(&f3_was_late, false);

    f->options.lease_ms = 2000;
    f->options.renew_ms = 50;
    fixture_up_with(f, facts_handlers);
    run = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&facts_door, 1);
    f->options.sweep_ms = 20;
    other = fixture_open(f);
    f3_inner = other->store->ops;
    damage_ops(other)->sessions = count_sweeps;
    CHECK_OK(stet_register(other, "t", facts_handlers));
    CHECK_OK(stet_engine_start(other));
    AWAIT(atomic_load(&f3_sweeps) >= 120); /* more than a lease, many looks for the dead */
    was_late = atomic_load(&f3_was_late);
    CHECK(was_late || gate_arrived(&facts_door) == 1);
    gate_open(&facts_door);
    EXPECT_RESULT(other, &run, "ok");
    was_late = was_late || atomic_load(&f3_was_late);
    CHECK(was_late || fixture_facts(f->engine, &run, "worker lost", NULL) == 0);
    CHECK_INT(effects("after"), before + 1);
    stet_close(other);
    fixture_end(f);
    fixture_wipe();
    return !was_late;
}

TEST(F3_a_run_is_not_taken_from_a_living_worker)
{
    int tries = 0;

    while (!f3_living())
        CHECK(++tries < 5);
}

/* The whole story of a run, for a test that found it wrong. */
static int
tell_fact(void *arg, const stet_fact_info *fact)
{
    char  *story = arg;
    size_t len = strlen(story);

    (void)snprintf(story + len, 4096 - len, "\n%llu/%llu @%lld %s %s#%llu code %d %s",
                   (unsigned long long)fact->revision, (unsigned long long)fact->inbox,
                   (long long)fact->time_ms, fact->kind, fact->name != NULL ? fact->name : "",
                   (unsigned long long)fact->occurrence, fact->code,
                   fact->text != NULL ? fact->text : "");
    return STET_OK;
}

TEST(F3_an_expired_claim_is_taken_over_and_the_old_one_is_refused_and_told)
{
    fixture     *f = fixture_begin();
    stet_engine *doomed;
    stet_run_id  run;
    stet_options before;

    before = f->options;
    f->options.sweep_ms = 3600000;
    doomed = fixture_open(f);
    damage_mortal(doomed);
    CHECK_OK(stet_register(doomed, "t", facts_handlers));
    CHECK_OK(stet_engine_start(doomed));
    run = fixture_start(doomed, "t.door", "ok", NULL);
    gate_await(&facts_door, 1);
    damage_die(f, doomed);
    f->options = before;
    f->options.sweep_ms = 20;
    fixture_up_with(f, facts_handlers);
    gate_await(&facts_door, 2); /* the same body, by the new owner */
    gate_open(&facts_door);
    EXPECT_RESULT(f->engine, &run, "ok");
    AWAIT(fixture_logged(f, "fenced") >= 1);
    CHECK_OK(stet_engine_stop(doomed, 0));
    CHECK_INT(fixture_facts(f->engine, &run, "step", "door"), 1);
    if (effects("after") != 1) {
        char story[4096] = "";

        (void)stet_run_facts(f->engine, &run, false, tell_fact, story);
        test_fail(__FILE__, __LINE__, "step after was executed %d times:%s", effects("after"),
                  story);
    }
    stet_close(doomed);
    fixture_end(f);
}

static fixture              *f3_fixture;
static const stet__host_ops *f3_host;
static atomic_bool           f3_armed;

/* The answer to the record of "door" comes between the look at it when "after" is entered, and this
 * one. */
static bool
durable_once_fenced(stet_ctx *c)
{
    if (atomic_load(&f3_armed)) {
        f3_host->commit_now(c);
        AWAIT(fixture_logged(f3_fixture, "fenced") >= 1);
    }
    return f3_host->is_durable(c);
}

TEST(F3_a_refusal_that_comes_while_a_step_is_entered_keeps_its_body_from_running)
{
    fixture              *f = fixture_begin();
    static stet__host_ops host;
    stet_engine          *doomed;
    stet_run_id           run;

    f3_fixture = f;
    atomic_store(&f3_armed, false);
    f->options.sweep_ms = 3600000;
    doomed = fixture_open(f);
    damage_mortal(doomed);
    f3_host = doomed->exec.host;
    host = *f3_host;
    host.is_durable = durable_once_fenced;
    doomed->exec.host = &host;
    CHECK_OK(stet_register(doomed, "t", facts_handlers));
    CHECK_OK(stet_engine_start(doomed));
    run = fixture_start(doomed, "t.door", "ok", NULL);
    gate_await(&facts_door, 1);
    atomic_store(&f3_armed, true);
    damage_die(f, doomed);
    f->options.sweep_ms = 20;
    fixture_up_with(f, facts_handlers);
    gate_await(&facts_door, 2);
    gate_open(&facts_door);
    EXPECT_RESULT(f->engine, &run, "ok");
    AWAIT(fixture_logged(f, "fenced") >= 1);
    CHECK_OK(stet_engine_stop(doomed, 0));
    CHECK_INT(effects("after"), 1);
    stet_close(doomed);
    fixture_end(f);
}

TEST(F3_only_the_current_claim_can_record)
{
    fixture     *f = fixture_begin();
    stet_store  *s, *thief;
    stet_run_id  run;
    uint64_t     session = 0, last;
    stet_id      worker = { { 1 } };
    const char  *handlers[] = { "t.nobody" };
    stet_claimer claimer = { 0, STET_STATUS_RUNNING, handlers, 1 };
    stet_op      claim = { .kind = STET_OP_CLAIM_DUE, .count = 1, .claimer = &claimer };
    stet_op      fact = { .kind = STET_OP_FACTS, .count = 1 };
    stet_cond    cond = { .kind = STET_COND_CLAIM, .epoch = 1 };
    stet_outcome o;

    f->engine = fixture_open(f);
    run = fixture_start(f->engine, "t.nobody", "", NULL);
    last = fixture_look(f->engine, &run).facts;
    s = damage_open(f);
    CHECK_OK(s->ops->session_open(s, &session, worker, 60000, stet_text("")));
    claimer.session = session;
    o = damage_try(s, NULL, 0, &claim, 1);
    CHECK_INT(o.n_grants, 1);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_RUNNING);
    cond.run = fact.run = damage_id(&run);
    fact.number = last + 1;
    fact.data = stet_text("a fact");
    cond.session = session;
    cond.epoch = 2; /* stale or from the future */
    CHECK_INT(damage_try(s, &cond, 1, &fact, 1).result, STET_EFENCED);
    cond.epoch = 0;
    CHECK_INT(damage_try(s, &cond, 1, &fact, 1).result, STET_EFENCED);
    cond.epoch = 1;
    cond.session = session + 1; /* somebody else */
    CHECK_INT(damage_try(s, &cond, 1, &fact, 1).result, STET_EFENCED);
    thief = damage_open(f); /* knows the number, not the token */
    CHECK_CODE(thief->ops->session_renew(thief, session, 60000), STET_EFENCED);
    CHECK_CODE(thief->ops->session_close(thief, session), STET_EFENCED);
    stet__store_close(thief);
    CHECK_OK(s->ops->session_close(s, session));
    cond.session = session; /* closed: not any more */
    CHECK_INT(damage_try(s, &cond, 1, &fact, 1).result, STET_EFENCED);
    CHECK_INT(fixture_look(f->engine, &run).facts, last);
    stet__store_close(s);
    fixture_end(f);
}

TEST(F3_only_a_hash_of_the_token_is_stored)
{
    fixture *f = fixture_begin();
    uint8_t  bytes[128];
    size_t   len = 0;

    if (!f->is_sqlite)
        test_skip("the memory store stores nothing");
    fixture_up_with(f, facts_handlers);
    CHECK(damage_sql_get(f, "SELECT token FROM sessions", NULL, bytes, sizeof bytes, &len));
    CHECK_INT(len, 32); /* SHA-256 */
    fixture_end(f);
}

TEST(F3_no_claim_before_the_visible_time)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    kept_facts *k;
    int64_t     at;

    fixture_up_with(f, facts_handlers);
    at = stet_engine_now_ms(f->engine) + 1500;
    run = fixture_start(f->engine, "t.quick", "ok", STET_START(.run_at_ms = at));
    CHECK_INT(fixture_look(f->engine, &run).due_ms, at);
    EXPECT_RESULT(f->engine, &run, "ok");
    k = facts_of(f->engine, &run, false);
    CHECK_STR(k->facts[1].kind, "claimed");
    CHECK(k->facts[1].time_ms >= at);
    free(k);
    fixture_end(f);
}

/* ---- F4: durable before live ----------------------------------------------------------------- */

static stet_engine *f4_other;

static int
body_f4(stet_attempt *a, void *arg)
{
    stet_run_id run;

    CHECK_OK(stet_run_id_parse(&run, stet_attempt_run(a)));
    CHECK_INT(fixture_facts(f4_other, &run, "step", NULL), *(const int *)arg);
    if (*(const int *)arg > 0)
        CHECK_INT(fixture_facts(f4_other, &run, "send", NULL), *(const int *)arg);
    return STET_OK;
}

static int
h_f4(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id sent;
    int         i = 0;

    for (; i < 5; i++) {
        STET_TRY(stet_step(ctx, NULL, "look", body_f4, &i, NULL));
        STET_TRY(stet_send(ctx, &sent, "t.quick", stet_text(""), NULL));
    }
    return stet_return(ctx, input);
}

TEST(F4_what_a_body_depends_on_is_durable_when_it_begins)
{
    static const stet_handler handlers[] = { { "h", h_f4, NULL },
                                             { "quick", h_quick, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    f4_other = fixture_open(f);
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "ok", NULL);
    EXPECT_RESULT(f->engine, &run, "ok");
    stet_close(f4_other);
    fixture_end(f);
}

TEST(F4_an_answer_is_given_only_when_the_end_is_durable)
{
    fixture     *f = fixture_begin();
    stet_engine *other;

    fixture_up_with(f, facts_handlers);
    other = fixture_open(f);
    for (int i = 0; i < 40; i++) {
        stet_run_id run = fixture_start(f->engine, "t.quick", "ok", NULL);
        stet_result r;

        CHECK_INT(fixture_look(other, &run).facts > 0, 1); /* so is the start */
        EXPECT_RESULT(f->engine, &run, "ok");
        CHECK_OK(stet_result_get(other, &r, &run));
        CHECK(fixture_is(r.value, "ok"));
        stet_result_free(&r);
    }
    stet_close(other);
    fixture_end(f);
}

/* Notifications that fail (the store cannot be watched) or vanish (it can, and never says a
 * word). */
static int
f4_watch_fails(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    (void)s;
    (void)on_hint;
    (void)arg;
    effect("not watched");
    return stet__fail(STET_EIO, "no notifications here");
}

static int
f4_watch_is_deaf(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    (void)s;
    (void)on_hint;
    (void)arg;
    effect("not watched");
    return STET_OK;
}

static void
f4_unwatch(stet_store *s)
{
    (void)s;
}

/* Everything that tells another process: a start, a settled awakeable, an end, a cancel. */
static void
f4_check(int (*watch)(stet_store *s, stet_hint_fn on_hint, void *arg))
{
    fixture        *f = fixture_begin();
    stet_engine    *other = fixture_open(f);
    stet_store_ops *ops;
    stet_run_id     run, approval, nap;

    CHECK(f->engine == NULL);
    f->engine = fixture_open(f);
    ops = damage_ops(f->engine);
    ops->watch = watch;
    ops->unwatch = f4_unwatch;
    CHECK_OK(stet_register(f->engine, "t", facts_handlers));
    CHECK_OK(stet_engine_start(f->engine));
    CHECK_INT(effects("not watched"), 1);

    run = fixture_start(other, "t.quick", "ok", NULL);
    approval = fixture_start(other, "t.approval", "", NULL);
    nap = fixture_start(other, "t.nap", "", NULL);
    CHECK(fixture_look(f->engine, &run).facts > 0); /* committed, whoever heard of it */
    EXPECT_RESULT(other, &run, "ok");
    fixture_await_status(other, &approval, STET_STATUS_SUSPENDED);
    fixture_await_status(other, &nap, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_resolve(other, handed_out, stet_text("yes")));
    CHECK_CODE(stet_resolve(other, handed_out, stet_text("no")), STET_ESETTLED); /* it stands */
    EXPECT_RESULT(other, &approval, "yes");
    CHECK_OK(stet_cancel(other, &nap, "somebody", "enough"));
    EXPECT_ANSWER(f->engine, &nap, STET_ECANCELLED);
    fixture_await_status(other, &nap, STET_STATUS_CANCELLED);
    CHECK_INT(effects("quick"), 1);
    CHECK_INT(effects("one"), 1);
    CHECK_INT(effects("handed out"), 1);
    stet_close(other);
    fixture_end(f);
}

TEST(F4_a_notification_that_fails_never_undoes_a_commit)
{
    f4_check(f4_watch_fails);
}
TEST(F4_a_notification_that_is_lost_never_undoes_a_commit)
{
    f4_check(f4_watch_is_deaf);
}

/* ---- F5: recovery ---------------------------------------------------------------------------- */

static int
h_f5_parent(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_call(ctx, &out, "c.child", stet_text("from child"), NULL));
    return stet_return(ctx, out);
}

TEST(F5_what_was_planned_or_recorded_while_nobody_was_there_is_completed)
{
    static const stet_handler parents[] = { { "parent", h_f5_parent, NULL },
                                            { "approval", h_approval, NULL },
                                            { 0 } };
    static const stet_handler children[] = { { "child", h_quick, NULL }, { 0 } };
    const fixture_service     p[] = { { "p", parents, false, NULL }, { 0 } },
                          c[] = { { "c", children, false, NULL }, { 0 } };
    fixture    *f = fixture_begin();
    stet_run_id parent, approval;

    fixture_up(f, p); /* the child is planned, nobody serves it */
    parent = fixture_start(f->engine, "p.parent", "", NULL);
    approval = fixture_start(f->engine, "p.approval", "", NULL);
    fixture_await_status(f->engine, &parent, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &approval, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_up(f, c); /* its result is recorded, nobody takes it */
    CHECK_OK(stet_resolve(f->engine, handed_out, stet_text("yes")));
    effects_await("quick", 1);
    AWAIT(fixture_count(f->engine, STET_FILTER(.handler = "c.child",
                                               .statuses = 1u << STET_STATUS_COMPLETED)) == 1);
    CHECK_CODE(stet_result_get(f->engine, NULL, &parent), STET_EOPEN);
    fixture_down(f);
    fixture_up(f, p);
    EXPECT_RESULT(f->engine, &parent, "from child");
    EXPECT_RESULT(f->engine, &approval, "yes");
    CHECK_INT(effects("quick"), 1);
    CHECK_INT(effects("handed out"), 1);
    fixture_end(f);
}

/* ---- F6: damage ------------------------------------------------------------------------------ */

TEST(F6_the_same_unit_again_is_a_silent_success)
{
    fixture     *f = fixture_begin();
    stet_store  *s;
    stet_op      op = { .kind = STET_OP_VALUE_PUT, .space = "test" };
    stet_cond    cond = { .kind = STET_COND_VALUE, .space = "test" };
    stet_unit    unit = { 1, &cond, 1, &op, 1 };
    stet_outcome o;

    f->engine = fixture_open(f);
    s = damage_open(f);
    op.key = cond.key = stet_text("key");
    op.data = stet_text("data");
    for (int i = 0; i < 3; i++) {
        memset(&o, 0, sizeof o);
        CHECK_OK(s->ops->commit(s, &unit, 1, &o));
        CHECK_INT(o.result, STET_OK);
        CHECK_INT(o.is_repeat, i > 0);
        stet__free(s->alloc, o.grants);
    }
    stet__store_close(s);
    fixture_end(f);
}

typedef struct f6_found {
    char     rule[32], run[STET_ID_TEXT_MAX];
    uint64_t revision;
    int      n;
} f6_found;

static int
f6_keep(void *arg, const stet_finding *finding)
{
    f6_found *to = arg;

    to->n++;
    (void)snprintf(to->rule, sizeof to->rule, "%s", finding->rule);
    (void)snprintf(to->run, sizeof to->run, "%s", finding->run);
    to->revision = finding->revision;
    return 0;
}

/* Append something that is no fact to a suspended run, wake it, and see it stopped and told while
 * its neighbour goes on. Works on every store. */
TEST(F6_a_run_with_a_corrupt_fact_is_stuck_and_others_go_on)
{
    fixture    *f = fixture_begin();
    stet_run_id run, neighbour;
    kept_facts *k;
    uint64_t    last;
    f6_found    found;
    stet_op     ops[2] = { { .kind = STET_OP_FACTS, .count = 1 },
                           { .kind = STET_OP_RUN_WAKE, .status = STET_STATUS_PENDING } };

    fixture_up_with(f, facts_handlers);
    run = fixture_start(f->engine, "t.nap", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    f->engine = fixture_open(f);
    last = fixture_look(f->engine, &run).facts;
    ops[0].run = ops[1].run = damage_id(&run);
    ops[0].number = last + 1;
    ops[0].data = stet_text("\x0c garbage here!!");
    damage_do(f, ops, 2);
    fixture_close(f);

    fixture_up_with(f, facts_handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_STUCK);
    neighbour = fixture_start(f->engine, "t.three", "ok", NULL);
    EXPECT_RESULT(f->engine, &neighbour, "ok");
    CHECK_INT(fixture_look(f->engine, &run).code, STET_ECORRUPT);
    k = facts_of(f->engine, &run, false); /* kept, and said which */
    CHECK_INT(k->n, last + 1);
    CHECK(k->facts[last].is_corrupt);
    CHECK_INT(k->facts[last].code, STET_ECORRUPT);
    CHECK_INT(k->facts[last].revision, last + 1);
    CHECK(!k->facts[last - 1].is_corrupt);
    free(k);
    memset(&found, 0, sizeof found);
    CHECK_OK(stet_verify(f->engine, NULL, f6_keep, &found));
    CHECK_INT(found.n, 1);
    CHECK_STR(found.rule, "facts");
    CHECK_STR(found.run, run.text);
    CHECK_INT(found.revision, last + 1);
    CHECK(fixture_logged(f, "cannot be executed") + fixture_logged(f, "stuck") >= 1);
    CHECK_INT(fixture_logged(f, "(null)"), 0);
    CHECK_INT(effects("one"), 2); /* nothing was executed again: one of each */
    damage_end(f);
}

static void
f6_say(void *arg, const stet_verdict *verdict)
{
    (void)snprintf(arg, 256, "%s: %s", verdict->kind, verdict->text);
}

/* An entry of the inbox that is still to be taken in: verify names it, no repair takes it for
 * something that never
 * came, and why says what there is to say of a run that is paused before it. */
TEST(F6_an_inbox_entry_that_cannot_be_read_is_told_before_it_is_taken_in)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    f6_found    found = { 0 };
    char        said[256] = "";
    stet_op     op = { .kind = STET_OP_INBOX };

    fixture_up_with(f, facts_handlers);
    run = fixture_start(f->engine, "t.nap", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    f->engine = fixture_open(f);
    CHECK_OK(stet_run_pause(f->engine, &run, "ops", "a look"));
    op.run = damage_id(&run);
    op.data = stet_text("\x0c garbage here!!");
    damage_do(f, &op, 1);
    CHECK_OK(stet_verify(f->engine, NULL, f6_keep, &found));
    CHECK_INT(found.n, 1);
    CHECK_STR(found.rule, "facts");
    CHECK_STR(found.run, run.text);
    CHECK_OK(stet_why(f->engine, &run, f6_say, said));
    CHECK(strncmp(said, "paused: ", 8) == 0);
    CHECK(strstr(said, "inbox entry 2 is not readable") != NULL);
    memset(&found, 0, sizeof found);
    CHECK_OK(stet_repair(f->engine, NULL, f6_keep, &found));
    CHECK_INT(found.n, 1);
    CHECK_STR(found.rule, "facts");
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_PAUSED);
    damage_end(f);
}

/* Every byte of every stored fact of a suspended run, one after the other: never replayed, always
 * found. */
TEST_LIMIT(F6_every_flipped_byte_is_found, 120)
{
    fixture    *f = fixture_begin();
    stet_run_id run, neighbour;
    uint8_t     rev[32], original[4096];
    size_t      rev_len, len, flips = 0;

    if (!f->is_sqlite)
        test_skip("bytes are flipped in the file");
    fixture_up_with(f, facts_handlers);
    run = fixture_start(f->engine, "t.nap", "input", NULL);
    neighbour = fixture_start(f->engine, "t.nap", "input", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &neighbour, STET_STATUS_SUSPENDED);
    fixture_down(f);
    f->engine = fixture_open(f);
    for (int row = 0; row < 8; row++) {
        char at[64], sql[160], put[160];

        (void)snprintf(
            sql, sizeof sql,
            "SELECT CAST(rev AS TEXT) FROM facts WHERE run = ?1 ORDER BY rev LIMIT 1 OFFSET %d",
            row);
        if (!damage_sql_get(f, sql, &run, rev, sizeof rev, &rev_len))
            break;
        (void)snprintf(at, sizeof at, "%.*s", (int)rev_len, (const char *)rev);
        (void)snprintf(sql, sizeof sql, "SELECT data FROM facts WHERE run = ?1 AND rev = %s", at);
        (void)snprintf(put, sizeof put, "UPDATE facts SET data = ?2 WHERE run = ?1 AND rev = %s",
                       at);
        CHECK(damage_sql_get(f, sql, &run, original, sizeof original, &len));
        for (size_t i = 0; i < len; i++) {
            uint8_t  bad[4096];
            f6_found found;

            memcpy(bad, original, len);
            bad[i] ^= (uint8_t)(1u << (i % 8));
            damage_sql(f, put, &run, (stet_bytes){ bad, len });
            memset(&found, 0, sizeof found);
            CHECK_OK(stet_verify(f->engine, NULL, f6_keep, &found));
            if (found.n != 1 || strcmp(found.rule, "facts") != 0 ||
                strcmp(found.run, run.text) != 0 || found.revision < (uint64_t)atoll(at))
                test_fail(
                    __FILE__, __LINE__,
                    "byte %zu of the facts from revision %s on: %d findings (%s of %s at %llu)", i,
                    at, found.n, found.rule, found.run, (unsigned long long)found.revision);
            flips++;
        }
        damage_sql(f, put, &run, (stet_bytes){ original, len });
    }
    test_note("%zu bytes", flips);
    CHECK(flips > 50);
    (void)fixture_sound(f->engine);
    fixture_close(f);
    damage_end(f);
}

/* A byte of a fact of a run in the middle of its life, and the worker comes: for several places. */
TEST_LIMIT(F6_a_flipped_byte_stops_its_run_only, 120)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[12];
    int         mended = 0;

    if (!f->is_sqlite)
        test_skip("bytes are flipped in the file");
    fixture_up_with(f, facts_handlers);
    for (int i = 0; i < 12; i++) {
        runs[i] = fixture_start(f->engine, "t.nap", "x", NULL);
        fixture_await_status(f->engine, &runs[i], STET_STATUS_SUSPENDED);
    }
    fixture_down(f);
    for (int i = 0; i < 12; i += 2) {
        uint8_t bytes[4096];
        size_t  len;

        CHECK(damage_sql_get(f, "SELECT data FROM facts WHERE run = ?1 ORDER BY rev LIMIT 1",
                             &runs[i], bytes, sizeof bytes, &len));
        bytes[(size_t)i * len / 12] ^= 0x10;
        damage_sql(f,
                   "UPDATE facts SET data = ?2 WHERE run = ?1 AND rev = (SELECT min(rev) FROM "
                   "facts WHERE run = ?1)",
                   &runs[i], (stet_bytes){ bytes, len });
    }
    damage_sql(f, "UPDATE timers SET fire = 1 WHERE completion > 1", NULL, (stet_bytes){ NULL, 0 });
    fixture_up_with(f, facts_handlers);
    for (int i = 0; i < 12; i++) {
        if (i % 2)
            EXPECT_RESULT(f->engine, &runs[i], "x");
        else {
            fixture_await_status(f->engine, &runs[i], STET_STATUS_STUCK);
            CHECK_INT(fixture_look(f->engine, &runs[i]).code, STET_ECORRUPT);
            mended++;
        }
    }
    CHECK_INT(mended, 6);
    CHECK_INT(effects("one"), 12);
    damage_end(f);
}

TEST(F6_a_late_notification_changes_nothing)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet__buf   b;
    stet__fact  fact = { .kind = STET__FACT_TIMER, .time_ms = 1, .completion = 77 };
    stet_op     ops[2] = { { .kind = STET_OP_INBOX },
                           { .kind = STET_OP_RUN_WAKE, .status = STET_STATUS_PENDING } };

    fixture_up_with(f, facts_handlers);
    run = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    stet__buf_init(&b, &stet__platform_real()->alloc);
    stet__fact_encode(&b, &fact); /* answers a command that never was */
    ops[0].run = ops[1].run = damage_id(&run);
    ops[0].data = stet__buf_bytes(&b);
    damage_do(f, ops, 2);
    stet__buf_free(&b);
    AWAIT(fixture_facts(f->engine, &run, "timer fired", NULL) == 1 &&
          fixture_look(f->engine, &run).status == STET_STATUS_SUSPENDED);
    CHECK_OK(stet_resolve(f->engine, handed_out, stet_text("yes")));
    EXPECT_RESULT(f->engine, &run, "yes");
    CHECK_INT(effects("handed out"), 1);
    fixture_end(f);
}

TEST(F6_settling_twice_keeps_the_first)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, facts_handlers);
    run = fixture_start(f->engine, "t.approval", "", NULL);
    effects_await("handed out", 1);
    fixture_down(f);
    f->engine = fixture_open(f);
    CHECK_OK(stet_resolve(f->engine, handed_out, stet_text("first")));
    CHECK_CODE(stet_resolve(f->engine, handed_out, stet_text("second")), STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "resolved");
    CHECK_CODE(stet_reject(f->engine, handed_out, "third"), STET_ESETTLED);
    fixture_close(f);
    fixture_up_with(f, facts_handlers);
    EXPECT_RESULT(f->engine, &run, "first");
    fixture_end(f);
}

/* ---- F7: ends stay --------------------------------------------------------------------------- */

static int
h_permanent(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "no");
}

TEST(F7_an_ended_run_stays_as_it_is)
{
    static const stet_handler handlers[] = { { "quick", h_quick, NULL },
                                             { "permanent", h_permanent, NULL },
                                             { "nap", h_nap, NULL },
                                             { 0 } };
    static const stet_status  statuses[] = { STET_STATUS_COMPLETED, STET_STATUS_FAILED,
                                             STET_STATUS_CANCELLED, STET_STATUS_EXPIRED };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[4];
    stet_store               *s;
    uint64_t                  session = 0;
    stet_id                   worker = { { 2 } };
    const char               *names[] = { "t.quick", "t.permanent", "t.nap" };
    stet_claimer              claimer = { 0, STET_STATUS_RUNNING, names, 3 };

    fixture_up_with(f, handlers);
    runs[0] = fixture_start(f->engine, "t.quick", "ok", NULL);
    runs[1] = fixture_start(f->engine, "t.permanent", "", NULL);
    runs[2] = fixture_start(f->engine, "t.nap", "", NULL);
    runs[3] = fixture_start(f->engine, "t.nap", "", STET_START(.timeout_ms = 30));
    fixture_await_status(f->engine, &runs[2], STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &runs[2], "ann", "no"));
    for (int i = 0; i < 4; i++)
        fixture_await_status(f->engine, &runs[i], statuses[i]);
    fixture_down(f);

    f->engine = fixture_open(f);
    s = damage_open(f);
    CHECK_OK(s->ops->session_open(s, &session, worker, 60000, stet_text("")));
    claimer.session = session;
    for (int i = 0; i < 4; i++) {
        fixture_run before = fixture_look(f->engine, &runs[i]), after;
        stet_op     claim = { .kind = STET_OP_CLAIM_DUE, .count = 10, .claimer = &claimer };
        stet_op     inbox = { .kind = STET_OP_INBOX },
                wake = { .kind = STET_OP_RUN_WAKE, .status = STET_STATUS_PENDING };
        stet_cond cond = { .kind = STET_COND_CLAIM };

        cond.run = inbox.run = wake.run = damage_id(&runs[i]);
        cond.session = session;
        cond.epoch = 1;
        inbox.data = stet_text("late");
        wake.claimer = &claimer;
        CHECK_INT(damage_try(s, NULL, 0, &claim, 1).n_grants, 0);
        CHECK_INT(damage_try(s, NULL, 0, &inbox, 1).result, STET_ECONFLICT);
        inbox.flags = STET_OP_IF_OPEN;
        CHECK_INT(damage_try(s, NULL, 0, &inbox, 1).result, STET_OK);
        CHECK_INT(damage_try(s, NULL, 0, &wake, 1).n_grants, 0);
        CHECK_INT(damage_try(s, &cond, 1, &inbox, 1).result, STET_EFENCED);
        CHECK_INT(stet_cancel(f->engine, &runs[i], "ann", "late"), i == 2 ? STET_OK : STET_EENDED);
        CHECK_CODE(stet_unstick(f->engine, &runs[i], "ann"), STET_ESTATE);
        after = fixture_look(f->engine, &runs[i]);
        CHECK_INT(after.status, statuses[i]);
        CHECK_INT(after.facts, before.facts);
        CHECK_INT(after.ended_ms, before.ended_ms);
        CHECK_INT(after.code, before.code);
        CHECK_STR(after.result, before.result);
    }
    stet__store_close(s);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}
