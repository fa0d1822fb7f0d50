/* Operators in the core: steps that are skipped, results that are replaced, records that are
 * forgotten from a place on, runs that are paused, resumed and failed, and generations that begin.
 * C8, B22. */
#include "subject.h"

static void
rewrite_start(subject *s)
{
    subject_start(s);
    subject_claim(s);
}

static bool
is(stet_bytes got, const char *want)
{
    return got.len == strlen(want) && memcmp(got.data, want, got.len) == 0;
}

/* ---- skip ------------------------------------------------------------------------------------ */

TEST(C8_a_skipped_step_has_the_given_result_and_need_not_be_asked_for)
{
    subject    s;
    stet__cmd *cmd;

    rewrite_start(&s);
    APPLY(&s, STEP_RETRY, .name = TEXT("charge"), .occurrence = 1, .code = -1, .attempt = 1,
          .text = TEXT("no luck"), .until_ms = 5000);
    notify(&s, FACT(SKIP, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("waived")));
    notify(&s, FACT(SKIP, .name = TEXT("later"), .occurrence = 1, .value = TEXT("never")));
    CHECK_INT(s.journal.anomalies, 0);
    cmd = ask(&s, STET__FACT_STEP, "charge");
    CHECK(cmd->is_settled && cmd->is_skipped && cmd->text == NULL);
    CHECK(is(cmd->value, "waived"));
    CHECK(s.journal.spared == cmd); /* the timer of its next attempt has to go */
    CHECK(stet__journal_unasked(&s.journal) == NULL);
    subject_free(&s);
}

TEST(C8_what_is_settled_is_not_skipped_and_what_has_no_name_is_damage)
{
    subject    s;
    stet__fact nameless = FACT(SKIP, .value = TEXT("x"));

    rewrite_start(&s);
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("paid"));
    notify(&s, FACT(SKIP, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("waived")));
    CHECK_INT(s.journal.anomalies, 1);
    CHECK(is(ask(&s, STET__FACT_STEP, "charge")->value, "paid"));
    CHECK_CODE(stet__journal_apply(&s.journal, &nameless), STET_ECORRUPT);
    subject_free(&s);
}

/* ---- edit ------------------------------------------------------------------------------------ */

TEST(C8_only_a_recorded_result_is_replaced)
{
    subject    s;
    stet__cmd *cmd;

    rewrite_start(&s);
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 1, .code = -7, .text = TEXT("declined"),
          .origin = TEXT("step charge#1"));
    APPLY(&s, STEP_RETRY, .name = TEXT("ship"), .occurrence = 1, .code = -1, .attempt = 1,
          .until_ms = 5000);
    notify(&s, FACT(EDIT, .name = TEXT("ship"), .occurrence = 1));   /* it has none */
    notify(&s, FACT(EDIT, .name = TEXT("charge"), .occurrence = 2)); /* there is no second */
    notify(&s, FACT(EDIT, .name = TEXT("charge")));                  /* nor one without a number */
    notify(&s, FACT(EDIT, .name = TEXT("refund"), .occurrence = 1));
    notify(&s, FACT(EDIT, .occurrence = 1));
    CHECK_INT(s.journal.anomalies, 5);
    notify(&s, FACT(EDIT, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("paid")));
    CHECK_INT(s.journal.anomalies, 5);
    cmd = ask(&s, STET__FACT_STEP, "charge");
    CHECK(cmd->code == 0 && cmd->text == NULL && cmd->origin == NULL);
    CHECK(is(cmd->value, "paid"));
    subject_free(&s);
}

/* ---- rewind ---------------------------------------------------------------------------------- */

/* What was recorded from `from` on is asked for in vain, and the first of it is asked for again. */
static void
rewind_to(subject *s, uint64_t from)
{
    notify(s, FACT(REWIND, .number = (int64_t)from));
}

TEST(C8_a_rewind_forgets_steps_and_choices_and_counts_how_often)
{
    subject  s;
    uint64_t from;

    rewrite_start(&s);
    APPLY(&s, STEP, .name = TEXT("before"), .occurrence = 1);
    from = s.run.journal + 1;
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 2); /* the second was through first */
    APPLY(&s, ANY, .name = TEXT("any"), .occurrence = 1);
    CHECK_INT(s.journal.unasked, 2);
    CHECK_INT(s.journal.choices, 1);
    rewind_to(&s, from);
    CHECK_INT(s.journal.unasked, 1);
    CHECK_INT(s.journal.choices, 0);
    CHECK_INT(stet__journal_repeats(&s.journal, "charge", 2), 1);
    CHECK_INT(stet__journal_repeats(&s.journal, "charge", 1), 0);
    CHECK_INT(stet__journal_repeats(&s.journal, "before", 1), 0);
    CHECK(ask(&s, STET__FACT_STEP, "charge") == NULL);
    CHECK(ask(&s, STET__FACT_STEP, "before") != NULL);
    CHECK_INT(s.journal.unasked, 0);
    rewind_to(&s, 1);
    CHECK_INT(s.journal.unasked, 0); /* it had been asked for */
    CHECK_INT(stet__journal_repeats(&s.journal, "before", 1), 1);
    subject_free(&s);
}

static stet_bytes
letter_of(subject *s, const char *signal)
{
    const stet__letterbox *box = stet__map_find(&s->journal.letters, signal, strlen(signal));

    return box != NULL && box->first != NULL ? box->first->value : (stet_bytes){ NULL, 0 };
}

/* It stands where it was made anew, and not where the one stood that a retry inherited. */
TEST(C8_C3_a_rewind_forgets_a_wait_whose_inherited_choice_was_void)
{
    subject    s;
    uint64_t   from;
    stet__cmd *wait;

    rewrite_start(&s);
    APPLY(&s, AWAIT, .name = TEXT("hook"), .occurrence = 1, .until_ms = 5000,
          .flags = STET__FACT_INHERITED);
    APPLY(&s, CHOICE, .completion = (int64_t)s.run.journal);
    from = s.run.journal + 1;
    APPLY(&s, STEP, .name = TEXT("again"), .occurrence = 1);
    APPLY(&s, AWAIT, .name = TEXT("hook"), .occurrence = 1, .until_ms = 9000);
    wait = ask(&s, STET__FACT_AWAIT, "hook");
    CHECK(!wait->is_settled && wait->has_timer);
    rewind_to(&s, from);
    CHECK(s.journal.spared == wait && wait->had_timer); /* nobody waits by it any more */
    CHECK(ask(&s, STET__FACT_AWAIT, "hook") == NULL);
    subject_free(&s);
}

TEST(C8_signals_come_back_in_the_order_they_were_taken_and_not_those_that_were_late)
{
    subject    s;
    uint64_t   from, late;
    stet__cmd *cmd;

    rewrite_start(&s);
    from = s.run.journal + 1;
    APPLY(&s, SIGNAL, .name = TEXT("first"), .topic = TEXT("a"), .occurrence = 1);
    APPLY(&s, SIGNAL, .name = TEXT("second"), .topic = TEXT("b"), .occurrence = 1);
    APPLY(&s, SIGNAL, .name = TEXT("third"), .topic = TEXT("a"), .occurrence = 1);
    APPLY(&s, SIGNAL, .name = TEXT("late"), .topic = TEXT("c"), .occurrence = 1, .until_ms = 9000);
    late = s.run.journal;
    notify(&s, FACT(SIGNALLED, .name = TEXT("b"), .value = TEXT("B")));
    notify(&s, FACT(SIGNALLED, .name = TEXT("a"), .value = TEXT("A1")));
    notify(&s, FACT(SIGNALLED, .name = TEXT("a"), .value = TEXT("A2")));
    notify(&s, FACT(TIMER, .completion = (int64_t)late));
    CHECK(letter_of(&s, "a").data == NULL);
    rewind_to(&s, from);
    CHECK(is(letter_of(&s, "a"), "A1"));
    CHECK(is(letter_of(&s, "b"), "B"));
    CHECK(letter_of(&s, "c").data == NULL);
    APPLY(&s, SIGNAL, .name = TEXT("first"), .topic = TEXT("a"), .occurrence = 1);
    cmd = ask(&s, STET__FACT_SIGNAL, "first");
    CHECK(cmd->is_settled);
    CHECK(is(cmd->value, "A1"));
    CHECK(is(letter_of(&s, "a"), "A2"));
    subject_free(&s);
}

/* So many that looking for the newest of them anew each time would take half a minute. */
TEST(C8_very_many_signals_come_back_in_their_order)
{
    enum { MANY = 20000 };
    subject  s;
    uint64_t from;
    char     text[16];

    rewrite_start(&s);
    from = s.run.journal + 1;
    for (int i = 1; i <= MANY; i++) {
        (void)snprintf(text, sizeof text, "%d", i);
        notify(&s, FACT(SIGNALLED, .name = TEXT("a"), .value = stet_text(text)));
        APPLY(&s, SIGNAL, .name = TEXT("word"), .topic = TEXT("a"), .occurrence = i);
    }
    CHECK(letter_of(&s, "a").data == NULL);
    rewind_to(&s, from);
    for (int i = 1; i <= MANY; i++) {
        (void)snprintf(text, sizeof text, "%d", i);
        APPLY(&s, SIGNAL, .name = TEXT("word"), .topic = TEXT("a"), .occurrence = i);
        CHECK(is(ask(&s, STET__FACT_SIGNAL, "word")->value, text));
    }
    subject_free(&s);
}

/* What others wait for because of it, or see of it, is to go: each once. */
TEST(C8_a_rewind_leaves_open_calls_marks_and_timers_to_be_removed)
{
    subject          s;
    uint64_t         from, call;
    int              spared = 0;
    const stet__cmd *gone;

    rewrite_start(&s);
    from = s.run.journal + 1;
    APPLY(&s, CALL, .name = TEXT("shop.pay"), .occurrence = 1);
    call = s.run.journal;
    APPLY(&s, CALL, .name = TEXT("shop.pack"), .occurrence = 1);
    APPLY(&s, SLEEP, .name = TEXT("nap"), .occurrence = 1, .until_ms = 9000);
    APPLY(&s, TOPIC, .name = TEXT("news"), .occurrence = 1); /* a mark and no timer */
    APPLY(&s, AWAKEABLE, .name = TEXT("paid"), .occurrence = 1);
    APPLY(&s, BOUNDARY, .name = TEXT("boss"), .occurrence = 1);
    APPLY(&s, BOUNDARY, .name = TEXT("stopped"), .occurrence = 1);
    stet__journal_settle(&s.journal, ask(&s, STET__FACT_BOUNDARY, "stopped"));
    CHECK(s.journal.spared != NULL && s.journal.spared->spared == NULL);
    notify(&s, FACT(CHILD_DONE, .completion = (int64_t)call, .value = TEXT("paid")));
    rewind_to(&s, from);
    CHECK(s.journal.waiting == NULL);
    CHECK_STR(s.journal.orphans->name, "shop.pack");
    CHECK(s.journal.orphans->spared == NULL);
    for (gone = s.journal.spared; gone != NULL; gone = gone->spared)
        spared++;
    CHECK_INT(spared, 4);                                      /* nap, news, and both boundaries */
    notify(&s, FACT(CHILD_DONE, .completion = (int64_t)call)); /* an answer to nobody */
    CHECK_INT(s.journal.anomalies, 1);
    subject_free(&s);
}

TEST(C8_inside_of_a_rollback_it_is_too_late_to_rewind)
{
    subject  s;
    uint64_t begun;

    rewrite_start(&s);
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 1);
    APPLY(&s, ATTEMPT_FAILED, .code = -1, .until_ms = 3000);
    subject_claim(&s);
    subject_roll_back(&s);
    begun = s.run.journal;
    rewind_to(&s, 3);
    CHECK_INT(s.journal.anomalies, 1);
    CHECK_INT(s.run.failed, 1);
    CHECK(stet__journal_find(&s.journal, STET__FACT_STEP, "charge", 1) != NULL);
    APPLY(&s, ROLLED_BACK, .completion = (int64_t)begun);
    rewind_to(&s, 3);
    CHECK_INT(s.journal.anomalies, 1);
    CHECK_INT(s.run.failed, 0); /* it has its attempts anew */
    CHECK(stet__journal_find(&s.journal, STET__FACT_STEP, "charge", 1) == NULL);
    subject_free(&s);
}

/* ---- updates --------------------------------------------------------------------------------- */

static void
inherit_update(subject *s, const char *name)
{
    stet__fact f = FACT(UPDATE, .occurrence = 1, .topic = TEXT("sleep nap#1"),
                        .value = TEXT("answer"), .flags = STET__FACT_INHERITED);

    f.name = stet_text(name);
    CHECK_OK(subject_apply(s, f));
}

/* Those a retried run inherited have no key; after a rewind they are known by their name. */
TEST(I12_inherited_updates_that_were_rewound_are_made_again_by_name)
{
    subject  s;
    uint64_t from;

    rewrite_start(&s);
    from = s.run.journal + 1;
    notify(&s, FACT(UPDATE_ASKED, .name = TEXT("put"), .idempotency_key = TEXT("k"),
                    .value = TEXT("1")));
    inherit_update(&s, "settle");
    inherit_update(&s, "set");
    inherit_update(&s, "put");
    CHECK(s.journal.asked != NULL && s.journal.asked->next == NULL); /* it has a key: another one */
    rewind_to(&s, from);
    CHECK_STR(s.journal.asked->name, "settle");
    inherit_update(&s, "put");
    CHECK_STR(s.journal.updates_last->name, "put");
    CHECK_STR(s.journal.asked->next->name, "set");
    CHECK_STR(s.journal.asked_last->name, "put"); /* with the key */
    CHECK(s.journal.asked_last->key.data != NULL);
    subject_free(&s);
}

static stet__update *
update_of(subject *s, const char *key)
{
    return stet__map_find(&s->journal.update_keys, key, strlen(key));
}

TEST(I12_a_refused_update_is_no_contradiction_and_the_one_behind_it_is)
{
    subject          s;
    const stet__cmd *left;

    rewrite_start(&s);
    notify(&s, FACT(UPDATE_ASKED, .name = TEXT("set"), .idempotency_key = TEXT("a"),
                    .value = TEXT("1")));
    notify(&s, FACT(UPDATE_ASKED, .name = TEXT("set"), .idempotency_key = TEXT("b"),
                    .value = TEXT("2")));
    APPLY(&s, UPDATE, .name = TEXT("set"), .occurrence = 1, .idempotency_key = TEXT("a"),
          .topic = TEXT("sleep nap#1"), .flags = STET__FACT_REJECTED);
    APPLY(&s, UPDATE, .name = TEXT("set"), .occurrence = 2, .idempotency_key = TEXT("b"),
          .topic = TEXT("sleep nap#1"));
    left = stet__journal_unasked(&s.journal);
    CHECK(left != NULL && left->occurrence == 2);
    stet__journal_asked(&s.journal, update_of(&s, "b")->cmd);
    CHECK_INT(s.journal.unasked, 0);
    stet__journal_asked(&s.journal, update_of(&s, "b")->cmd);
    CHECK_INT(s.journal.unasked, 0); /* once */
    subject_free(&s);
}

/* ---- pause, resume --------------------------------------------------------------------------- */

TEST(C8_a_paused_run_is_resumed_to_where_it_was)
{
    subject s;

    rewrite_start(&s);
    notify(&s, FACT(RESUME, .who = TEXT("op"))); /* it is not paused */
    CHECK_INT(s.run.status, STET_STATUS_RUNNING);
    notify(&s, FACT(PAUSE, .who = TEXT("op"), .text = TEXT("stocktaking"), .time_ms = 7));
    CHECK_INT(s.run.status, STET_STATUS_PAUSED);
    CHECK_STR(s.run.said_who, "op");
    CHECK_STR(s.run.said_why, "stocktaking");
    CHECK_INT(s.run.said_ms, 7);
    notify(&s, FACT(RESUME, .who = TEXT("op")));
    CHECK_INT(s.run.status, STET_STATUS_RUNNING);
    APPLY(&s, RELEASED, .text = TEXT("stop"));
    notify(&s, FACT(PAUSE, .time_ms = 7));
    CHECK(s.run.said_who == NULL && s.run.said_why == NULL);
    notify(&s, FACT(RESUME, .time_ms = 8));
    CHECK_INT(s.run.status, STET_STATUS_PENDING);
    subject_free(&s);
}

TEST(C8_what_waits_for_help_or_has_to_stop_is_not_paused)
{
    subject s;

    rewrite_start(&s);
    APPLY(&s, STUCK, .code = STET_EREPLAY, .text = TEXT("bent"));
    notify(&s, FACT(PAUSE, .time_ms = 7));
    CHECK_INT(s.run.status, STET_STATUS_STUCK);
    notify(&s, FACT(SKIP, .name = TEXT("bent"), .occurrence = 1)); /* what helps: it tries again */
    CHECK_INT(s.run.status, STET_STATUS_PENDING);
    subject_claim(&s);
    subject_roll_back(&s);
    APPLY(&s, COMPENSATION_FAILED, .code = STET_ECOMPENSATION, .text = TEXT("no refund"));
    notify(&s, FACT(PAUSE, .time_ms = 7));
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATION_FAILED);
    notify(&s, FACT(SKIP, .name = TEXT("rollback:charge#1"), .occurrence = 1));
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    CHECK(!s.run.awaits_help);
    subject_free(&s);
    rewrite_start(&s);
    notify(&s, FACT(CANCEL, .who = TEXT("op")));
    notify(&s, FACT(PAUSE, .time_ms = 7));
    CHECK(!s.run.is_paused);
    subject_free(&s);
}

/* ---- generations ----------------------------------------------------------------------------- */

static int
begin_anew(subject *s, uint64_t epoch, int64_t taken)
{
    stet__fact f;

    stet__run_restart(&s->run, &f, stet_text("next"), epoch);
    f.taken += taken;
    return subject_apply(s, f);
}

TEST(B22_a_run_that_is_paused_failed_or_being_undone_does_not_begin_anew)
{
    subject s;

    rewrite_start(&s);
    notify(&s, FACT(PAUSE, .time_ms = 7));
    CHECK_CODE(begin_anew(&s, s.run.epoch, 0), STET_ECORRUPT);
    subject_free(&s);
    rewrite_start(&s);
    notify(&s, FACT(FAIL, .who = TEXT("op")));
    CHECK_CODE(begin_anew(&s, s.run.epoch, 0), STET_ECORRUPT);
    subject_free(&s);
    rewrite_start(&s);
    subject_roll_back(&s);
    CHECK_CODE(begin_anew(&s, s.run.epoch, 0), STET_ECORRUPT);
    subject_free(&s);
}

TEST(B22_a_generation_knows_what_the_one_before_knew)
{
    subject s;

    rewrite_start(&s);
    APPLY(&s, TAKEN, .number = 3);
    CHECK_CODE(begin_anew(&s, s.run.epoch - 1, 0), STET_ECORRUPT);
    CHECK_CODE(begin_anew(&s, s.run.epoch, -1), STET_ECORRUPT);
    CHECK_OK(begin_anew(&s, s.run.epoch, 0));
    CHECK_INT(s.run.generation, 1);
    CHECK_INT(s.run.taken, 3);
    subject_free(&s);
}

/* ---- what was undone ------------------------------------------------------------------------- */

TEST(C8_where_a_run_was_told_to_stop_nothing_is_replaced)
{
    static const int codes[] = { STET_ECANCELLED, STET_EEXPIRED };
    subject          s;

    for (size_t i = 0; i < 2; i++) {
        rewrite_start(&s);
        APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 1, .code = codes[i]);
        notify(&s, FACT(EDIT, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("paid")));
        CHECK_INT(s.journal.anomalies, 1);
        CHECK_INT(ask(&s, STET__FACT_STEP, "charge")->code, codes[i]);
        subject_free(&s);
    }
}

/* Whatever the order in which they are found. */
TEST(C8_B11_the_first_step_that_was_undone_behind_a_place_is_named)
{
    static const char *const names[] = { "one", "two", "three", "four", "five", "six" };
    enum { N = sizeof names / sizeof names[0] };
    subject  s;
    char     undo[N][STET__UNDO_NAME_MAX];
    uint64_t from, first;

    rewrite_start(&s);
    first = s.run.journal + 1;
    for (size_t i = 0; i < N; i++)
        APPLY(&s, STEP, .name = stet_text(names[i]), .occurrence = 1);
    from = s.run.journal + 1;
    APPLY(&s, SLEEP, .name = TEXT("nap"), .occurrence = 1, .until_ms = 5000);
    APPLY(&s, ROLLBACK, .name = TEXT("rollback"), .occurrence = 1, .code = STET_ESTEP);
    notify(&s, FACT(REWIND, .number = (int64_t)from)); /* it has begun: too late */
    CHECK_INT(s.journal.anomalies, 1);
    for (size_t i = N; i-- > 0;)
        APPLY(&s, STEP, .name = stet_text(stet__undo_name(undo[i], names[i], strlen(names[i]), 1)),
              .occurrence = 1);
    notify(&s, FACT(REWIND, .number = (int64_t)from)); /* it goes on, and much is undone */
    CHECK_INT(s.journal.anomalies, 2);
    CHECK(stet__journal_undone(&s.journal, from) != NULL);
    CHECK_INT(stet__journal_undone(&s.journal, from)->revision, first);
    CHECK(stet__journal_undone(&s.journal, first) == NULL);
    subject_free(&s);
}

TEST(C8_B11_of_a_step_that_was_done_twice_the_one_that_was_undone_counts)
{
    subject  s;
    char     undo[2][STET__UNDO_NAME_MAX];
    uint64_t from, first;

    rewrite_start(&s);
    APPLY(&s, STEP, .name = TEXT("one"), .occurrence = 1);
    first = s.run.journal + 1;
    APPLY(&s, STEP, .name = TEXT("two"), .occurrence = 1);
    APPLY(&s, STEP, .name = TEXT("one"), .occurrence = 2);
    from = s.run.journal + 1;
    APPLY(&s, ROLLBACK, .name = TEXT("rollback"), .occurrence = 1, .code = STET_ESTEP);
    APPLY(&s, STEP, .name = stet_text(stet__undo_name(undo[0], "one", 3, 2)), .occurrence = 1);
    APPLY(&s, STEP, .name = stet_text(stet__undo_name(undo[1], "two", 3, 1)), .occurrence = 1);
    CHECK_INT(stet__journal_undone(&s.journal, from)->revision, first);
    subject_free(&s);
}
