/* Failure and control: retries, dead letters, cancel, deadlines, stopping, slots, retention,
 * statuses. Rows C of the list of behaviours. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

/* ---- bodies and handlers many tests use ------------------------------------------------------ */

/* Ends at once. */
static int
h_quick(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "only", body_effect, (void *)"quick", NULL));
    return stet_return(ctx, input);
}

static int
h_nap(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_sleep(ctx, "nap", "1h"));
    return stet_return(ctx, stet_text("woke"));
}

static int
h_short_nap(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_sleep(ctx, "nap", "300ms"));
    return stet_return(ctx, stet_text("woke"));
}

/* ---- C1: retries ----------------------------------------------------------------------------- */

static int
h_always_fails(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("entered");
    STET_TRY(stet_step(ctx, NULL, "first", body_effect, (void *)"first", NULL));
    return stet_fail(ctx, STET_ERETRY, "no luck");
}

static const stet_handler c1_handlers[] = { { "fails", h_always_fails, NULL }, { 0 } };

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
    for (int i = 0; i < 5; i++) /* the time of the fact may be taken a moment after the decision */
        CHECK(w.ms[i] <= want[i] && w.ms[i] >= want[i] - 3);
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
        CHECK(w.ms[0] >= 40 && w.ms[0] <= 150);
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

/* ---- C3: dead letters ------------------------------------------------------------------------ */

static _Atomic bool c3_is_mended;

static int
body_brittle(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("brittle");
    return atomic_load(&c3_is_mended) ? stet_attempt_return(a, stet_text("mended"))
                                      : stet_attempt_fail(a, STET_EPERMANENT, "broken pipe");
}

static int
h_letter(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, (void *)"charge", NULL));
    STET_TRY(stet_sleep_ms(ctx, "pause", 5));
    STET_TRY(stet_step(ctx, &out, "brittle", body_brittle, NULL, NULL));
    return stet_return(ctx, out);
}

static const stet_handler c3_handlers[] = {
    { "letter", h_letter, NULL }, { "quick", h_quick, NULL }, { "nap", h_nap, NULL }, { 0 }
};

typedef struct letters {
    int  n;
    char ids[16][STET_ID_TEXT_MAX], inputs[16][32], errors[16][64], handlers[16][32];
    int  attempts[16];
    bool is_in_order, has_times;
} letters;

static int
keep_letter(void *arg, const stet_run_info *i)
{
    letters *l = arg;

    if (l->n > 0 && strcmp(i->id, l->ids[l->n - 1]) >= 0)
        l->is_in_order = false;
    if (i->ended_ms == 0)
        l->has_times = false;
    (void)snprintf(l->ids[l->n], sizeof l->ids[0], "%s", i->id);
    (void)snprintf(l->inputs[l->n], sizeof l->inputs[0], "%.*s", (int)i->input.len,
                   (const char *)i->input.data);
    (void)snprintf(l->errors[l->n], sizeof l->errors[0], "%s", i->error);
    (void)snprintf(l->handlers[l->n], sizeof l->handlers[0], "%s", i->handler);
    l->attempts[l->n++] = (int)i->attempt;
    return 0;
}

static letters
letters_now(stet_engine *e)
{
    letters l;

    memset(&l, 0, sizeof l);
    l.is_in_order = l.has_times = true;
    CHECK_OK(stet_dlq_list(e, NULL, keep_letter, &l));
    CHECK(l.is_in_order && l.has_times);
    return l;
}

TEST(C3_dead_letters_are_listed_newest_first)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[4], fine;
    letters     l;

    fixture_up_with(f, c3_handlers);
    fine = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &fine, "");
    CHECK_INT(letters_now(f->engine).n, 0);
    for (int i = 0; i < 4; i++) {
        char        input[16];
        stet_result r;

        (void)snprintf(input, sizeof input, "order %d", i);
        runs[i] = fixture_start(f->engine, "t.letter", input, NULL);
        r = EXPECT_END(f->engine, &runs[i], STET_ERUN);
        stet_result_free(&r);
    }
    l = letters_now(f->engine);
    CHECK_INT(l.n, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_STR(l.handlers[i], "t.letter");
        CHECK_STR(l.errors[i], "broken pipe");
        CHECK_INT(l.attempts[i], 1);
    }
    CHECK_STR(l.inputs[0], "order 3");
    CHECK_STR(l.inputs[3], "order 0");
    fixture_end(f);
}

static int
copy_links(void *arg, const stet_run_info *i)
{
    char *to = arg;

    (void)snprintf(to, 100, "%s/%s", i->retry_of != NULL ? i->retry_of : "",
                   i->retried_by != NULL ? i->retried_by : "");
    return 0;
}

TEST(C3_a_retry_is_a_new_run_that_inherits_and_is_linked_both_ways)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again, none;
    stet_result r;
    char        links[100], want[100];

    fixture_up_with(f, c3_handlers);
    run = fixture_start(f->engine, "t.letter", "order 9", NULL);
    r = EXPECT_END(f->engine, &run, STET_ERUN);
    CHECK_STR(r.origin, "step brittle#1");
    stet_result_free(&r);

    atomic_store(&c3_is_mended, true);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    CHECK(strcmp(again.text, run.text) != 0);
    EXPECT_RESULT(f->engine, &again, "mended");
    CHECK_INT(effects("charge"), 1);
    CHECK_INT(effects("brittle"), 2);
    CHECK_STR(fixture_look(f->engine, &again).input, "order 9");
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_FAILED);

    CHECK_OK(stet_run_get(f->engine, &again, copy_links, links));
    (void)snprintf(want, sizeof want, "%s/", run.text);
    CHECK_STR(links, want);
    CHECK_OK(stet_run_get(f->engine, &run, copy_links, links));
    (void)snprintf(want, sizeof want, "/%s", again.text);
    CHECK_STR(links, want);

    CHECK_INT(letters_now(f->engine).n, 0);
    CHECK_CODE(stet_dlq_retry(f->engine, &none, &run), STET_EEXISTS);
    CHECK_HAS(stet_last_error(), again.text);
    CHECK_CODE(stet_dlq_discard(f->engine, &run), STET_EEXISTS);
    fixture_end(f);
}

TEST(C3_all_can_be_retried_and_a_retry_that_fails_is_a_letter_again)
{
    fixture *f = fixture_begin();
    letters  l;

    fixture_up_with(f, c3_handlers);
    for (int i = 0; i < 5; i++) {
        stet_run_id run = fixture_start(f->engine, "t.letter", "x", NULL);
        stet_result r = EXPECT_END(f->engine, &run, STET_ERUN);

        stet_result_free(&r);
    }
    for (int round = 0; round < 2; round++) {
        atomic_store(&c3_is_mended, round == 1);
        l = letters_now(f->engine);
        CHECK_INT(l.n, 5);
        for (int i = 0; i < l.n; i++) {
            stet_run_id run, again;
            stet_result r;

            CHECK_OK(stet_run_id_parse(&run, l.ids[i]));
            CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
            r = EXPECT_END(f->engine, &again, round == 1 ? STET_OK : STET_ERUN);
            stet_result_free(&r);
        }
    }
    CHECK_INT(letters_now(f->engine).n, 0);
    CHECK_INT(effects("charge"), 5);
    fixture_end(f);
}

TEST(C3_a_discarded_letter_stays_readable_and_cannot_be_retried)
{
    fixture    *f = fixture_begin();
    stet_run_id run, done, again;
    stet_result r;

    fixture_up_with(f, c3_handlers);
    run = fixture_start(f->engine, "t.letter", "order 1", NULL);
    r = EXPECT_END(f->engine, &run, STET_ERUN);
    stet_result_free(&r);
    CHECK_OK(stet_dlq_discard(f->engine, &run));
    CHECK_INT(letters_now(f->engine).n, 0);
    CHECK_STR(fixture_look(f->engine, &run).error, "broken pipe");
    CHECK_CODE(stet_dlq_retry(f->engine, &again, &run), STET_EENDED);
    done = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &done, "");
    CHECK_CODE(stet_dlq_retry(f->engine, &again, &done), STET_EENDED);
    CHECK_CODE(stet_dlq_discard(f->engine, &done), STET_EENDED);
    fixture_end(f);
}

TEST(C3_an_open_run_cannot_be_retried_and_a_cancelled_one_can)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again;
    stet_result r;

    fixture_up_with(f, c3_handlers);
    run = fixture_start(f->engine, "t.nap", "", NULL);
    CHECK_CODE(stet_dlq_retry(f->engine, &again, &run), STET_EOPEN);
    CHECK_CODE(stet_dlq_discard(f->engine, &run), STET_EOPEN);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    r = EXPECT_END(f->engine, &run, STET_ECANCELLED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(letters_now(f->engine).n, 0);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    fixture_await_status(f->engine, &again, STET_STATUS_SUSPENDED);
    fixture_end(f);
}

static void *
retry_in_thread(void *arg)
{
    void      **args = arg;
    stet_run_id again;
    int         err = stet_dlq_retry(args[0], &again, args[1]);

    return (void *)(intptr_t)err;
}

TEST(C3_two_retries_at_once_make_one_run)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, c3_handlers);
    atomic_store(&c3_is_mended, false);
    for (int i = 0; i < 10; i++) {
        stet_run_id run = fixture_start(f->engine, "t.letter", "x", NULL);
        stet_result r = EXPECT_END(f->engine, &run, STET_ERUN);
        void       *args[] = { f->engine, &run };
        void       *one, *two;
        pthread_t   threads[2];

        stet_result_free(&r);
        pthread_create(&threads[0], NULL, retry_in_thread, args);
        pthread_create(&threads[1], NULL, retry_in_thread, args);
        pthread_join(threads[0], &one);
        pthread_join(threads[1], &two);
        CHECK(((intptr_t)one == STET_OK && (intptr_t)two == STET_EEXISTS) ||
              ((intptr_t)two == STET_OK && (intptr_t)one == STET_EEXISTS));
    }
    CHECK_INT(fixture_count(f->engine, NULL), 20);
    fixture_end(f);
}

static void *
discard_in_thread(void *arg)
{
    void **args = arg;

    return (void *)(intptr_t)stet_dlq_discard(args[0], args[1]);
}

/* Each writes the run's row: the second would undo what the first wrote there. Two engines, so that
 * they look at the same time. */
TEST(C3_a_retry_and_a_discard_at_once_exclude_each_other)
{
    fixture     *f = fixture_begin();
    stet_engine *other;

    fixture_up_with(f, c3_handlers);
    other = fixture_open(f);
    atomic_store(&c3_is_mended, false);
    for (int i = 0; i < 40; i++) {
        stet_run_id run = fixture_start(f->engine, "t.letter", "x", NULL);
        stet_result r = EXPECT_END(f->engine, &run, STET_ERUN);
        void       *args[] = { f->engine, &run }, *others[] = { other, &run };
        void       *one, *two;
        pthread_t   threads[2];

        stet_result_free(&r);
        pthread_create(&threads[0], NULL, retry_in_thread, args);
        pthread_create(&threads[1], NULL, discard_in_thread, others);
        pthread_join(threads[0], &one);
        pthread_join(threads[1], &two);
        CHECK(((intptr_t)one == STET_OK) != ((intptr_t)two == STET_OK));
    }
    stet_close(other);
    fixture_end(f); /* verify: rows and marks agree */
}

/* ---- C4: cancel ------------------------------------------------------------------------------ */

typedef struct c4_waiter {
    stet_engine *engine;
    stet_run_id  run;
    pthread_t    thread;
    int          answer;
    _Atomic bool is_done;
} c4_waiter;

static void *
c4_wait(void *arg)
{
    c4_waiter *w = arg;

    w->answer = stet_wait(w->engine, NULL, &w->run, 0);
    atomic_store(&w->is_done, true);
    return NULL;
}

static void
c4_wait_begin(c4_waiter *w, stet_engine *e, const stet_run_id *run)
{
    memset(w, 0, sizeof *w);
    w->engine = e;
    w->run = *run;
    pthread_create(&w->thread, NULL, c4_wait, w);
}

static void
c4_wait_end(c4_waiter *w, int answer)
{
    pthread_join(w->thread, NULL);
    CHECK_CODE(w->answer, answer);
}

typedef struct c4_seen {
    const char *kind, *part;
    int         n;
} c4_seen;

static int
c4_look_for(void *arg, const stet_fact_info *fact)
{
    c4_seen *s = arg;

    s->n += strcmp(fact->kind, s->kind) == 0 && fact->text != NULL &&
            strstr(fact->text, s->part) != NULL;
    return 0;
}

static int
facts_with(stet_engine *e, const stet_run_id *run, const char *kind, const char *part)
{
    c4_seen s = { kind, part, 0 };

    CHECK_OK(stet_run_facts(e, run, false, c4_look_for, &s));
    return s.n;
}

/* After a cancel of a run that never executed: ended at once, with who and why, and it never
 * executes. */
static void
c4_expect_never_executed(stet_engine *e, const stet_run_id *run)
{
    stet_result r = EXPECT_END(e, run, STET_ECANCELLED);

    CHECK_INT(r.status, STET_STATUS_CANCELLED);
    CHECK_INT(r.code, STET_ECANCELLED);
    CHECK_HAS(r.error, "not wanted");
    CHECK_INT(facts_with(e, run, "cancelled", "not wanted"), 1);
    CHECK_INT(fixture_facts(e, run, "claimed", NULL), 0);
    CHECK_OK(stet_cancel(e, run, "ann", "again"));
    stet_result_free(&r);
}

static const stet_handler c4_handlers[] = { { "quick", h_quick, NULL },
                                            { "nap", h_nap, NULL },
                                            { 0 } };

TEST(C4_cancel_of_a_pending_run)
{
    fixture    *f = fixture_begin();
    c4_waiter   w;
    stet_run_id run;

    f->engine = fixture_open(f); /* not started: nobody takes it */
    CHECK_OK(stet_register(f->engine, "t", c4_handlers));
    run = fixture_start(f->engine, "t.quick", "", NULL);
    c4_wait_begin(&w, f->engine, &run);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "not wanted"));
    c4_wait_end(&w, STET_ECANCELLED);
    c4_expect_never_executed(f->engine, &run);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(effects("quick"), 1);
    fixture_end(f);
}

TEST(C4_cancel_of_a_delayed_run)
{
    const fixture_service services[] = { { "t", c4_handlers, false, NULL },
                                         { "o", c4_handlers, true, NULL },
                                         { 0 } };
    fixture              *f = fixture_begin();
    stet_run_id           plain, keyed, next;

    fixture_up(f, services);
    plain = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    keyed = fixture_start(f->engine, "o.quick", "", STET_START(.key = "k", .delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &plain, "ann", "not wanted"));
    CHECK_OK(stet_cancel(f->engine, &keyed, "ann", "not wanted"));
    c4_expect_never_executed(f->engine, &plain);
    c4_expect_never_executed(f->engine, &keyed);
    next = fixture_start(f->engine, "o.quick", "after", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &next, "after");
    fixture_end(f);
}

static gate c4_door = GATE_INIT;

static int
h_at_door(stet_ctx *ctx, stet_bytes input)
{
    int err;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &c4_door, NULL));
    err = stet_step(ctx, NULL, "next", body_effect, (void *)"next", NULL);
    if (err == STET_SUSPENDED)
        return err;
    effect("told %s: %s", stet_code_name(err) != NULL ? stet_code_name(err) : "ok",
           stet_failure_get(ctx)->text);
    STET_TRY(stet_step(ctx, NULL, "undo", body_effect, (void *)"undo", NULL));
    STET_TRY(stet_sleep_ms(ctx, "breath", 1));
    STET_TRY(stet_step(ctx, NULL, "undo", body_effect, (void *)"undo 2", NULL));
    return err;
}

TEST(C4_cancel_of_a_running_run_releases_waiters_before_the_handler_knows_and_lets_it_compensate)
{
    static const stet_handler handlers[] = { { "door", h_at_door, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    c4_waiter                 here, there;
    stet_engine              *other;
    stet_run_id               run;
    stet_result               r;

    fixture_up_with(f, handlers);
    other = fixture_open(f);
    run = fixture_start(f->engine, "t.door", "", NULL);
    gate_await(&c4_door, 1);
    c4_wait_begin(&here, f->engine, &run);
    c4_wait_begin(&there, other, &run);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "changed my mind"));
    c4_wait_end(&here, STET_ECANCELLED);
    c4_wait_end(&there, STET_ECANCELLED);
    CHECK_CODE(stet_result_get(f->engine, NULL, &run), STET_ECANCELLED);
    CHECK_INT(fixture_look(f->engine, &run).status, STET_STATUS_CANCELLING);
    CHECK_OK(stet_cancel(f->engine, &run, "bob", "me too"));
    gate_open(&c4_door);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK_INT(effects("next"), 0);
    CHECK(effects("told STET_ECANCELLED: changed my mind") >= 1);
    CHECK_INT(effects("undo"), 1);
    CHECK_INT(effects("undo 2"), 1);
    CHECK_INT(facts_with(f->engine, &run, "cancel asked", "changed my mind"), 1);
    CHECK_INT(facts_with(f->engine, &run, "cancel asked", "me too"), 0);
    r = EXPECT_END(other, &run, STET_ECANCELLED);
    CHECK_HAS(r.error, "changed my mind");
    stet_result_free(&r);
    stet_close(other);
    fixture_end(f);
}

static int
h_told_once(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_sleep(ctx, "long", "1h");

    (void)input;
    if (err == STET_SUSPENDED)
        return err;
    effect("first %s", stet_code_name(err));
    err = stet_sleep(ctx, "short", "1ms");
    if (err == STET_SUSPENDED)
        return err;
    effect("second %d", err);
    return stet_return(ctx, stet_text("too late"));
}

TEST(C4_cancel_of_a_suspended_run_is_told_once_and_its_result_does_not_count)
{
    static const stet_handler handlers[] = { { "h", h_told_once, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               r;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "enough"));
    r = EXPECT_END(f->engine, &run, STET_ECANCELLED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    CHECK(effects("first STET_ECANCELLED") >= 1);
    CHECK(effects("second 0") >= 1);
    CHECK_STR(fixture_look(f->engine, &run).result, "");
    fixture_end(f);
}

TEST(C4_cancel_of_a_retrying_run_does_not_wait_for_the_backoff)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result r;

    fixture_up_with(f, c1_handlers);
    run = fixture_start(f->engine, "t.fails", "",
                        STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
    fixture_await_status(f->engine, &run, STET_STATUS_RETRYING);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "enough"));
    r = EXPECT_END(f->engine, &run, STET_ECANCELLED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    fixture_end(f);
}

static gate c4_lane_door = GATE_INIT;

static int
h_hold(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "hold", body_gate, &c4_lane_door, NULL));
    return stet_return(ctx, input);
}

TEST(C4_cancel_of_a_run_that_waits_in_its_lane)
{
    static const stet_handler handlers[] = { { "hold", h_hold, NULL },
                                             { "quick", h_quick, NULL },
                                             { 0 } };
    const fixture_service     services[] = { { "o", handlers, true, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               holder, waits_, last;

    fixture_up(f, services);
    holder = fixture_start(f->engine, "o.hold", "h", STET_START(.key = "k"));
    gate_await(&c4_lane_door, 1);
    waits_ = fixture_start(f->engine, "o.quick", "w", STET_START(.key = "k"));
    last = fixture_start(f->engine, "o.quick", "l", STET_START(.key = "k"));
    CHECK_OK(stet_cancel(f->engine, &waits_, "ann", "not wanted"));
    c4_expect_never_executed(f->engine, &waits_);
    gate_open(&c4_lane_door);
    EXPECT_RESULT(f->engine, &holder, "h");
    EXPECT_RESULT(f->engine, &last, "l");
    CHECK_INT(effects("quick"), 1);
    fixture_end(f);
}

static char c4_sent[STET_ID_TEXT_MAX];

static int
body_keep_sent(stet_attempt *a, void *arg)
{
    (void)a;
    (void)snprintf(c4_sent, sizeof c4_sent, "%s", (const char *)arg);
    effect("sent");
    return STET_OK;
}

static int
h_parent(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id sent;

    (void)input;
    STET_TRY(stet_send(ctx, &sent, "t.nap", stet_text("sent"), NULL));
    STET_TRY(stet_step(ctx, NULL, "tell", body_keep_sent, sent.text, NULL));
    return stet_call(ctx, NULL, "t.child", stet_text("called"), NULL);
}

static int
h_child(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "t.nap", stet_text("grandchild"), NULL);
}

static const stet_handler c4_family[] = {
    { "parent", h_parent, NULL }, { "child", h_child, NULL }, { "nap", h_nap, NULL }, { 0 }
};

static int
c4_is_input(void *arg, const stet_run_info *i)
{
    void **args = arg;

    if (i->input.len == strlen(args[0]) && memcmp(i->input.data, args[0], i->input.len) == 0)
        CHECK_OK(stet_run_id_parse(args[1], i->id));
    return 0;
}

static stet_run_id
run_with_input(stet_engine *e, const char *input)
{
    stet_run_id run = { "" };
    void       *args[] = { (void *)(uintptr_t)input, &run };

    CHECK_OK(stet_run_list(e, STET_FILTER(.with_payloads = true), c4_is_input, args));
    return run;
}

TEST(C4_called_children_are_cancelled_and_sent_ones_are_not)
{
    fixture    *f = fixture_begin();
    stet_run_id parent, child, grandchild, sent;
    stet_result r;

    fixture_up_with(f, c4_family);
    parent = fixture_start(f->engine, "t.parent", "", NULL);
    AWAIT(run_with_input(f->engine, "grandchild").text[0] != '\0');
    grandchild = run_with_input(f->engine, "grandchild");
    child = run_with_input(f->engine, "called");
    fixture_await_status(f->engine, &grandchild, STET_STATUS_SUSPENDED);
    effects_await("sent", 1);
    CHECK_OK(stet_run_id_parse(&sent, c4_sent));
    CHECK_OK(stet_cancel(f->engine, &parent, "ann", "stop it all"));
    r = EXPECT_END(f->engine, &parent, STET_ECANCELLED);
    stet_result_free(&r);
    r = EXPECT_END(f->engine, &child, STET_ECANCELLED);
    stet_result_free(&r);
    r = EXPECT_END(f->engine, &grandchild, STET_ECANCELLED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &parent, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &child, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &grandchild, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &sent, STET_STATUS_SUSPENDED);
    fixture_end(f);
}

static int
h_call_backoff(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "t.fails", stet_text("called"),
                     STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
}

static int
h_call_delayed(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "t.quick", stet_text("called"), STET_START(.delay = "1h"));
}

static int
h_call_lane(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_call(ctx, NULL, "o.quick", stet_text("called"), STET_START(.key = "k"));
}

static gate c4_child_door = GATE_INIT;

static int
h_hold_key(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "hold", body_gate, &c4_child_door, NULL));
    return stet_return(ctx, input);
}

static int
h_next_of_key(stet_ctx *ctx, stet_bytes input)
{
    return stet_return(ctx, input);
}

TEST(C4_called_children_that_do_not_execute_are_cancelled_too)
{
    static const stet_handler plain[] = {
        { "backoff", h_call_backoff, NULL }, { "delayed", h_call_delayed, NULL },
        { "lane", h_call_lane, NULL },       { "fails", h_always_fails, NULL },
        { "quick", h_quick, NULL },          { 0 }
    };
    static const stet_handler keyed[] = { { "quick", h_quick, NULL }, { "hold", h_hold_key, NULL },
                                          { "next", h_next_of_key, NULL }, { 0 } };
    static const char *const  parents[] = { "t.backoff", "t.delayed", "t.lane" };
    const fixture_service     services[] = { { "t", plain, false, NULL },
                                             { "o", keyed, true, NULL },
                                             { 0 } };
    fixture                  *f;

    for (int i = 0; i < 3; i++) {
        stet_run_id parent, child;
        stet_result r;

        f = fixture_begin();
        fixture_up(f, services);
        if (i == 2) {
            (void)fixture_start(f->engine, "o.hold", "", STET_START(.key = "k"));
            gate_await(&c4_child_door, 1);
        }
        parent = fixture_start(f->engine, parents[i], "", NULL);
        AWAIT(run_with_input(f->engine, "called").text[0] != '\0');
        child = run_with_input(f->engine, "called");
        if (i == 0)
            fixture_await_status(f->engine, &child, STET_STATUS_RETRYING);
        fixture_await_status(f->engine, &parent, STET_STATUS_SUSPENDED);
        CHECK_OK(stet_cancel(f->engine, &parent, "ann", "stop it all"));
        fixture_await_status(f->engine, &parent, STET_STATUS_CANCELLED);
        r = EXPECT_END(f->engine, &child, STET_ECANCELLED);
        stet_result_free(&r);
        fixture_await_status(f->engine, &child, STET_STATUS_CANCELLED);
        if (i == 2) { /* while the key was held; and its place in the lane keeps nobody up */
            stet_run_id next = fixture_start(f->engine, "o.next", "free", STET_START(.key = "k"));

            CHECK_CODE(stet_result_get(f->engine, NULL, &next), STET_EOPEN);
            gate_open(&c4_child_door);
            EXPECT_RESULT(f->engine, &next, "free");
        }
        CHECK_INT(effects("quick"), 0);
        fixture_end(f);
        if (!getenv("STET_TEST_STORE") || strcmp(getenv("STET_TEST_STORE"), "sqlite") != 0)
            continue;
        (void)remove(test_path("engine.db"));
        (void)remove(test_path("engine.db-wal"));
        (void)remove(test_path("engine.db-shm"));
    }
}

static int
h_awaits(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        out;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "approval"));
    STET_TRY(stet_step(ctx, NULL, "hand out", body_hand_out, id.text, NULL));
    STET_TRY(stet_await_for(ctx, &out, future, "200ms"));
    return stet_return(ctx, out);
}

TEST(C4_later_timers_and_signals_change_nothing)
{
    static const stet_handler handlers[] = { { "awaits", h_awaits, NULL },
                                             { "nap", h_short_nap, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run, sleeper, clock_;
    fixture_run               before, after;
    stet_result               r;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.awaits", "", NULL);
    sleeper = fixture_start(f->engine, "t.nap", "", NULL);
    effects_await("handed out", 1);
    CHECK_OK(stet_cancel(f->engine, &run, "ann", "enough"));
    CHECK_OK(stet_cancel(f->engine, &sleeper, "ann", "enough"));
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    fixture_await_status(f->engine, &sleeper, STET_STATUS_CANCELLED);
    before = fixture_look(f->engine, &run);
    clock_ = fixture_start(f->engine, "t.nap", "", NULL); /* wakes after all timers of the others */
    CHECK_CODE(stet_resolve(f->engine, handed_out, stet_text("yes")), STET_EENDED);
    CHECK_CODE(stet_reject(f->engine, handed_out, "no"), STET_EENDED);
    EXPECT_RESULT(f->engine, &clock_, "woke");
    after = fixture_look(f->engine, &run);
    CHECK_INT(after.facts, before.facts);
    CHECK_INT(after.status, STET_STATUS_CANCELLED);
    CHECK_INT(after.ended_ms, before.ended_ms);
    r = EXPECT_END(f->engine, &sleeper, STET_ECANCELLED);
    stet_result_free(&r);
    fixture_end(f);
}

TEST(C4_cancel_of_what_ended_or_never_was_is_refused)
{
    fixture    *f = fixture_begin();
    stet_run_id run, bad;

    fixture_up_with(f, c4_handlers);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_CODE(stet_cancel(f->engine, &run, "ann", "late"), STET_EENDED);
    CHECK_HAS(stet_last_error(), run.text);
    CHECK_HAS(stet_last_error(), "completed");
    CHECK_OK(stet_run_id_make(f->engine, &bad));
    CHECK_CODE(stet_cancel(f->engine, &bad, NULL, NULL), STET_ENOTFOUND);
    EXPECT_RESULT(f->engine, &run, "");
    fixture_end(f);
}

TEST(C4_a_cancel_that_races_with_the_end_never_gives_two_answers)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    int          cancelled = 0, completed = 0;

    fixture_up_with(f, c4_handlers);
    other = fixture_open(f);
    for (int i = 0; i < 150; i++) {
        stet_run_id   run = fixture_start(f->engine, "t.quick", "v", NULL);
        c4_waiter     w;
        int           cancel, answer;
        volatile long spin = 0;

        c4_wait_begin(&w, f->engine, &run);
        while (spin < (i % 15) * 20000)
            spin++;
        cancel = stet_cancel(i % 2 ? f->engine : other, &run, "ann", "race");
        answer = stet_wait(f->engine, NULL, &run, 0);
        CHECK(cancel == STET_OK || cancel == STET_EENDED);
        CHECK_INT(answer, cancel == STET_OK ? STET_ECANCELLED : STET_OK);
        c4_wait_end(&w, answer);
        CHECK_CODE(stet_wait(other, NULL, &run, 0), answer);
        if (answer == STET_OK)
            completed++;
        else {
            cancelled++;
            fixture_await_status(other, &run, STET_STATUS_CANCELLED);
        }
        CHECK_CODE(stet_wait(other, NULL, &run, 0), answer);
        CHECK_INT(fixture_look(other, &run).status,
                  answer == STET_OK ? STET_STATUS_COMPLETED : STET_STATUS_CANCELLED);
    }
    test_note("%d cancelled, %d completed", cancelled, completed);
    stet_close(other);
    fixture_end(f);
}

/* ---- C5: deadlines --------------------------------------------------------------------------- */

static int
h_sleep_then_compensate(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_sleep(ctx, "long", "1h");

    (void)input;
    if (err == STET_SUSPENDED)
        return err;
    effect("told %s", stet_code_name(err));
    STET_TRY(stet_step(ctx, NULL, "undo", body_effect, (void *)"undo", NULL));
    return err;
}

static const stet_handler_options c5_options = { .timeout = "150ms" };
static const stet_handler         c5_handlers[] = {
    { "quick", h_quick, NULL },
    { "fails", h_always_fails, NULL },
    { "sleeps", h_sleep_then_compensate, NULL },
    { "hurried", h_nap, &c5_options },
    { 0 },
};

TEST(C5_a_deadline_beats_a_timeout_and_both_count_from_creation)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    fixture_run look;
    int64_t     now_ms;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", c5_handlers));
    now_ms = stet_engine_now_ms(f->engine);
    run = fixture_start(f->engine, "t.quick", "", STET_START(.timeout = "1m"));
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 60000);
    run = fixture_start(f->engine, "t.quick", "", STET_START(.timeout_ms = 5000));
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 5000);
    run = fixture_start(f->engine, "t.quick", "",
                        STET_START(.timeout = "1m", .deadline_ms = now_ms + 7000000));
    CHECK_INT(fixture_look(f->engine, &run).deadline_ms, now_ms + 7000000);
    run = fixture_start(f->engine, "t.hurried", "", NULL);
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 150);
    run = fixture_start(f->engine, "t.hurried", "", STET_START(.timeout = "9s"));
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 9000);
    fixture_end(f);
}

TEST(C5_it_expires_while_suspended_and_may_compensate)
{
    fixture    *f = fixture_begin();
    stet_run_id run, hurried;
    stet_result r;
    fixture_run look;

    fixture_up_with(f, c5_handlers);
    run = fixture_start(f->engine, "t.sleeps", "", STET_START(.timeout = "120ms"));
    hurried = fixture_start(f->engine, "t.hurried", "", NULL);
    r = EXPECT_END(f->engine, &run, STET_EEXPIRED);
    CHECK_INT(r.code, STET_EEXPIRED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
    look = fixture_look(f->engine, &run);
    CHECK(look.ended_ms >= look.deadline_ms);
    CHECK(effects("told STET_EEXPIRED") >= 1);
    CHECK_INT(effects("undo"), 1);
    r = EXPECT_END(f->engine, &hurried, STET_EEXPIRED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &hurried, STET_STATUS_EXPIRED);
    CHECK_CODE(stet_cancel(f->engine, &run, "ann", "late"), STET_EENDED);
    fixture_end(f);
}

TEST(C5_retries_do_not_reset_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result r;
    fixture_run look;

    fixture_up_with(f, c5_handlers);
    run = fixture_start(f->engine, "t.fails", "",
                        STET_START(.timeout = "300ms",
                                   .retry = { .attempts = 100000, .first_ms = 10, .max_ms = 20 }));
    r = EXPECT_END(f->engine, &run, STET_EEXPIRED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
    look = fixture_look(f->engine, &run);
    CHECK_INT(look.deadline_ms, look.created_ms + 300);
    CHECK(fixture_facts(f->engine, &run, "attempt failed", NULL) >= 2);
    fixture_end(f);
}

TEST(C5_it_expires_instead_of_a_retry_that_would_be_too_late)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    stet_result r;
    fixture_run look;

    fixture_up_with(f, c5_handlers);
    run = fixture_start(
        f->engine, "t.fails", "",
        STET_START(.timeout = "30m",
                   .retry = { .attempts = 9, .first_ms = 3600000, .max_ms = 3600000 }));
    r = EXPECT_END(f->engine, &run, STET_EEXPIRED);
    CHECK_INT(r.status, STET_STATUS_EXPIRED);
    CHECK_HAS(r.error, "no luck");
    stet_result_free(&r);
    look = fixture_look(f->engine, &run);
    CHECK(look.ended_ms < look.deadline_ms);
    CHECK_INT(effects("entered"), 1);
    fixture_end(f);
}

TEST(C5_it_expires_before_a_dispatch_that_is_too_late)
{
    fixture    *f = fixture_begin();
    stet_run_id waited, delayed, past;
    stet_result r;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", c5_handlers));
    waited = fixture_start(f->engine, "t.quick", "", STET_START(.timeout_ms = 30));
    delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h", .timeout_ms = 100));
    AWAIT(stet_engine_now_ms(f->engine) > fixture_look(f->engine, &waited).deadline_ms);
    CHECK_OK(stet_engine_start(f->engine));
    r = EXPECT_END(f->engine, &waited, STET_EEXPIRED);
    stet_result_free(&r);
    r = EXPECT_END(f->engine, &delayed, STET_EEXPIRED);
    stet_result_free(&r);
    past = fixture_start(f->engine, "t.quick", "",
                         STET_START(.deadline_ms = stet_engine_now_ms(f->engine) - 5));
    r = EXPECT_END(f->engine, &past, STET_EEXPIRED);
    stet_result_free(&r);
    fixture_await_status(f->engine, &waited, STET_STATUS_EXPIRED);
    fixture_await_status(f->engine, &delayed, STET_STATUS_EXPIRED);
    fixture_await_status(f->engine, &past, STET_STATUS_EXPIRED);
    CHECK_INT(effects("quick"), 0);
    fixture_end(f);
}

static gate c5_door = GATE_INIT;

static int
h_running_late(stet_ctx *ctx, stet_bytes input)
{
    int err;

    (void)input;
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &c5_door, NULL));
    err = stet_step(ctx, NULL, "next", body_effect, (void *)"next", NULL);
    if (err != STET_SUSPENDED)
        effect("told %s", stet_code_name(err));
    return err;
}

TEST(C5_a_running_one_learns_at_its_next_operation)
{
    static const stet_handler handlers[] = { { "h", h_running_late, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_result               r;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "", STET_START(.timeout_ms = 250));
    gate_await(&c5_door, 1);
    r = EXPECT_END(f->engine, &run, STET_EEXPIRED); /* while the body still runs */
    stet_result_free(&r);
    gate_open(&c5_door);
    fixture_await_status(f->engine, &run, STET_STATUS_EXPIRED);
    CHECK(effects("told STET_EEXPIRED") >= 1);
    CHECK_INT(effects("next"), 0);
    fixture_end(f);
}

/* ---- C6: restart ----------------------------------------------------------------------------- */

static char c6_awakeables[4][STET_ID_TEXT_MAX];

static int
body_keep_nth(stet_attempt *a, void *arg)
{
    (void)a;
    (void)snprintf(c6_awakeables[0], sizeof c6_awakeables[0], "%s", (const char *)arg);
    effect("handed out");
    return STET_OK;
}

static int
h_c6_awaits(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        out;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "approval"));
    STET_TRY(stet_step(ctx, NULL, "hand out", body_keep_nth, id.text, NULL));
    STET_TRY(stet_await(ctx, &out, future));
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, out);
}

static int
h_c6_calls(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_call(ctx, &out, "t.nap", stet_text(""), NULL));
    return stet_return(ctx, out);
}

static int
h_c6_retries(stet_ctx *ctx, stet_bytes input)
{
    effect("tried");
    if (effects("tried") < 2)
        return stet_fail(ctx, STET_ERETRY, "not yet");
    return stet_return(ctx, input);
}

TEST(C6_every_incomplete_run_goes_on_after_a_restart)
{
    static const stet_handler handlers[] = {
        { "awaits", h_c6_awaits, NULL }, { "calls", h_c6_calls, NULL },
        { "nap", h_short_nap, NULL },    { "retries", h_c6_retries, NULL },
        { "quick", h_quick, NULL },      { 0 }
    };
    fixture                  *f = fixture_begin();
    stet_engine              *client;
    stet_run_id               awaits, calls, nap, retries, delayed, fresh;

    fixture_up_with(f, handlers);
    awaits = fixture_start(f->engine, "t.awaits", "", NULL);
    calls = fixture_start(f->engine, "t.calls", "", NULL);
    nap = fixture_start(f->engine, "t.nap", "", NULL);
    retries = fixture_start(f->engine, "t.retries", "r",
                            STET_START(.retry = { .first_ms = 200, .max_ms = 200 }));
    delayed = fixture_start(f->engine, "t.quick", "d", STET_START(.delay_ms = 200));
    effects_await("handed out", 1);
    effects_await("tried", 1);
    fixture_down(f);

    client = fixture_open(f); /* nobody executes: what comes now is only written down */
    fresh = fixture_start(client, "t.quick", "f", NULL);
    CHECK_OK(stet_resolve(client, c6_awakeables[0], stet_text("yes")));
    stet_close(client);

    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &awaits, "yes");
    EXPECT_RESULT(f->engine, &calls, "woke");
    EXPECT_RESULT(f->engine, &nap, "woke");
    EXPECT_RESULT(f->engine, &retries, "r");
    EXPECT_RESULT(f->engine, &delayed, "d");
    EXPECT_RESULT(f->engine, &fresh, "f");
    CHECK_INT(effects("handed out"), 1);
    CHECK_INT(effects("after"), 1);
    fixture_end(f);
}

/* ---- C7: limits and stopping ----------------------------------------------------------------- */

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
    static gate         door = GATE_INIT;
    fixture            *f = fixture_begin();
    stet_start_request  requests[8] = { { 0 } };
    stet_health         health;

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
    stet_close(f->engine);
    f->engine = NULL;
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
    stet_close(f->engine);
    f->engine = NULL;
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

/* ---- C9: blocking bodies --------------------------------------------------------------------- */

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

static const stet_handler c9_handlers[] = { { "block", h_c9_block, NULL },
                                            { "naps", h_c9_naps, NULL },
                                            { "awaits", h_c6_awaits, NULL },
                                            { "quick", h_quick, NULL },
                                            { 0 } };

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

/* ---- C10: retention -------------------------------------------------------------------------- */

static int
h_c10_put(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "entry", input));
    return stet_return(ctx, input);
}

static int
c10_is_gone(stet_engine *e, const stet_run_id *run)
{
    return stet_run_get(e, run, copy_links, (char[100]){ 0 }) == STET_ENOTFOUND;
}

static int
c10_no_finding(void *arg, const stet_finding *finding)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "verify: %s of %s: %s", finding->rule, finding->run,
              finding->text);
}

TEST(C10_finished_runs_are_removed_and_nothing_else)
{
    static const stet_handler plain[] = { { "quick", h_quick, NULL },
                                          { "nap", h_nap, NULL },
                                          { "fails", h_always_fails, NULL },
                                          { "awaits", h_c6_awaits, NULL },
                                          { 0 } };
    static const stet_handler object[] = { { "put", h_c10_put, NULL }, { 0 } };
    const fixture_service     services[] = { { "t", plain, false, NULL },
                                             { "o", object, true, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               quick, kept, put, failed, cancelled, again, nap, delayed, retrying;
    stet_result               r;
    stet_bytes                value;
    bool                      existed = true;
    size_t                    checked;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 20;
    fixture_up(f, services);
    nap = fixture_start(f->engine, "t.nap", "", NULL);
    delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    retrying = fixture_start(f->engine, "t.fails", "",
                             STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
    quick = fixture_start(
        f->engine, "t.quick", "q",
        STET_START(.idempotency_key = "once", .labels = (const char *[]){ "a=b", NULL }));
    kept = fixture_start(f->engine, "t.quick", "k", STET_START(.retention = "1h"));
    put = fixture_start(f->engine, "o.put", "kept", STET_START(.key = "k"));
    failed = fixture_start(f->engine, "t.fails", "", STET_START(.retry = { .attempts = 1 }));
    cancelled = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &cancelled, NULL, NULL));
    EXPECT_RESULT(f->engine, &kept, "k");
    AWAIT(c10_is_gone(f->engine, &quick) && c10_is_gone(f->engine, &put) &&
          c10_is_gone(f->engine, &failed) && c10_is_gone(f->engine, &cancelled));
    fixture_await_status(f->engine, &nap, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &delayed, STET_STATUS_PENDING);
    fixture_await_status(f->engine, &retrying, STET_STATUS_RETRYING);
    CHECK_INT(fixture_look(f->engine, &kept).status, STET_STATUS_COMPLETED);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "a=b")), 0);
    CHECK_OK(stet_state_read(f->engine, &value, "o", "k", "entry"));
    CHECK(fixture_is(value, "kept"));
    stet_free((void *)(uintptr_t)value.data);
    again = fixture_start(f->engine, "t.quick", "again",
                          STET_START(.idempotency_key = "once", .existed = &existed));
    CHECK(!existed);
    CHECK(strcmp(again.text, quick.text) != 0);
    r = EXPECT_END(f->engine, &again, STET_OK);
    stet_result_free(&r);
    CHECK_OK(stet_verify(f->engine, &checked, c10_no_finding, NULL));
    CHECK(checked >= 4);
    fixture_end(f);
}

TEST(C10_an_idempotency_key_lives_as_long_as_its_run)
{
    static const stet_handler handlers[] = { { "quick", h_quick, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               first, second, other;
    bool                      existed = false;

    f->options.retention_ms = 3600000;
    f->options.sweep_ms = 10;
    fixture_up_with(f, handlers);
    first = fixture_start(f->engine, "t.quick", "1", STET_START(.idempotency_key = "once"));
    EXPECT_RESULT(f->engine, &first, "1");
    other = fixture_start(f->engine, "t.quick", "x", STET_START(.retention = "1ms"));
    AWAIT(c10_is_gone(f->engine, &other)); /* so the sweep has been there */
    second = fixture_start(f->engine, "t.quick", "2",
                           STET_START(.idempotency_key = "once", .existed = &existed));
    CHECK(existed);
    CHECK_STR(second.text, first.text);
    EXPECT_RESULT(f->engine, &second, "1");
    fixture_end(f);
}

/* ---- C11: statuses --------------------------------------------------------------------------- */

/* From (row) to (column), in the order of STET_STATUS_LIST:
 * pending running suspended retrying paused stuck cancelling compensating compensation-failed
 * completed failed cancelled expired. Written down again on purpose: a change of the table must be
 * meant. */
static const char *const c11_table[14] = {
    "x............", /* from nothing */
    ".x..xxx....xx", /* pending */
    "xxxxxxxx.xxxx", /* running */
    "xx..x.x....xx", /* suspended */
    "xx..x.x...xxx", /* retrying */
    "x.....x...xxx", /* paused */
    "xx...xx...xxx", /* stuck */
    ".....xxx...xx", /* cancelling */
    ".....x.xx.xxx", /* compensating */
    ".......x..xx.", /* compensation-failed */
    ".............", /* completed */
    ".............", /* failed */
    ".............", /* cancelled */
    ".............", /* expired */
};

TEST(C11_every_pair_of_statuses)
{
    for (int from = 0; from <= STET_STATUS_EXPIRED; from++)
        for (int to = 1; to <= STET_STATUS_EXPIRED; to++)
            if (stet__status_can((stet_status)from, (stet_status)to) !=
                (c11_table[from][to - 1] == 'x'))
                test_fail(__FILE__, __LINE__, "from %s to %s",
                          from ? stet_status_name((stet_status)from) : "nothing",
                          stet_status_name((stet_status)to));
    CHECK(!stet__status_can((stet_status)14, STET_STATUS_PENDING));
}

TEST(C11_the_list_is_closed_and_its_names_are_read_back)
{
    for (int i = 1; i <= STET_STATUS_EXPIRED; i++) {
        CHECK_INT(stet_status_parse(stet_status_name((stet_status)i)), i);
        CHECK_INT(stet_status_is_terminal((stet_status)i), i >= STET_STATUS_COMPLETED);
    }
    CHECK_INT(stet_status_parse("sleeping"), 0);
    CHECK_INT(stet_status_parse(""), 0);
    CHECK_INT(stet_status_parse(NULL), 0);
    CHECK_STR(stet_status_name((stet_status)0), "unknown");
    CHECK_STR(stet_status_name((stet_status)14), "unknown");
}

/* ---- C4: a cancel that cannot be seen is not "none" ------------------------------------------ */

static atomic_int unseen_calls; /* the inbox read at which it reaches 0 fails */
static int (*unseen_inbox)(stet_store *s, stet_id run, uint64_t from, size_t limit,
                           stet_facts_fn fn, void *arg);

static int
inbox_fails(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    if (atomic_fetch_sub(&unseen_calls, 1) == 1)
        return stet__fail(STET_EIO, "the inbox cannot be read");
    return unseen_inbox(s, run, from, limit, fn, arg);
}

static int
h_unseen(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, input);
}

static int
on_unseen(void *arg, const stet_finding *finding)
{
    (void)arg;
    test_fail(__FILE__, __LINE__, "found: %s", finding->text);
}

static int
unseen_result(stet_engine *e, const stet_run_id *run)
{
    stet_result result;
    int         err = stet_result_get(e, &result, run);

    stet_result_free(&result);
    return err;
}

static int
unseen_cancel(stet_engine *e, const stet_run_id *run)
{
    return stet_cancel(e, run, "two", "again");
}

static int
unseen_verify(stet_engine *e, const stet_run_id *run)
{
    (void)run;
    return stet_verify(e, NULL, on_unseen, NULL);
}

/* With each of its reads failing in turn, a call says so; with none it says what is so. Returns how
 * many. */
static int
unseen_walk(stet_engine *e, const stet_run_id                       *run,
            int (*call)(stet_engine *e, const stet_run_id *run), int want)
{
    for (int at = 1;; at++) {
        int code;

        atomic_store(&unseen_calls, at);
        code = call(e, run);
        if (atomic_load(&unseen_calls) > 0) {
            CHECK_CODE(code, want);
            atomic_store(&unseen_calls, 0);
            return at - 1;
        }
        CHECK_CODE(code, STET_EIO);
    }
}

TEST(C4_a_read_that_fails_is_told_and_not_taken_for_no_cancel)
{
    static const stet_handler handlers[] = { { "h", h_unseen, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    stet_engine              *other;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.h", "", NULL);
    fixture_paused(f->engine, &run);
    fixture_down(f); /* nobody takes the cancel in */
    f->options.roles = STET_ROLE_CLIENT;
    other = fixture_open(f);
    CHECK_OK(stet_cancel(other, &run, "one", "enough"));
    stet_close(other);
    other = fixture_open(f); /* remembers nothing */
    unseen_inbox = other->store->ops->inbox;
    damage_ops(other)->inbox = inbox_fails;

    /* Loading the run, and looking what has come since. */
    CHECK(unseen_walk(other, &run, unseen_result, STET_ECANCELLED) >= 2);
    CHECK(unseen_walk(other, &run, unseen_cancel, STET_OK) >= 2); /* it was cancelled before */
    CHECK(unseen_walk(other, &run, unseen_verify, STET_OK) >= 1);
    CHECK_INT(fixture_facts(other, &run, "cancel asked", NULL), 1);
    stet_close(other);
    fixture_end(f);
}
