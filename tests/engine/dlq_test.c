/* Dead letters: runs that failed for good, retried or discarded. Row C3. tsan: yes */
#include "fixture.h"

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
    { "letter", h_letter, NULL }, { "quick", h_quick, NULL }, { "nap", h_hour, NULL }, { 0 }
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
        char input[16];

        (void)snprintf(input, sizeof input, "order %d", i);
        runs[i] = fixture_start(f->engine, "t.letter", input, NULL);
        EXPECT_ANSWER(f->engine, &runs[i], STET_ERUN);
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

        EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    }
    for (int round = 0; round < 2; round++) {
        atomic_store(&c3_is_mended, round == 1);
        l = letters_now(f->engine);
        CHECK_INT(l.n, 5);
        for (int i = 0; i < l.n; i++) {
            stet_run_id run, again;

            CHECK_OK(stet_run_id_parse(&run, l.ids[i]));
            CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
            EXPECT_ANSWER(f->engine, &again, round == 1 ? STET_OK : STET_ERUN);
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

    fixture_up_with(f, c3_handlers);
    run = fixture_start(f->engine, "t.letter", "order 1", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
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

    fixture_up_with(f, c3_handlers);
    run = fixture_start(f->engine, "t.nap", "", NULL);
    CHECK_CODE(stet_dlq_retry(f->engine, &again, &run), STET_EOPEN);
    CHECK_CODE(stet_dlq_discard(f->engine, &run), STET_EOPEN);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
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
