/* The pure core: what a run is after its facts, which recorded command answers which call, and how long to
 * wait before the next attempt.
 */
#include <stet/sys/store.h>

#include "core/retry.h"
#include "subject.h"

/* ---- statuses (B20) ------------------------------------------------------------------------------- */

TEST(B20_a_plain_life)
{
    subject s;

    subject_start(&s);
    CHECK_INT(s.run.status, STET_STATUS_PENDING);
    CHECK_STR(s.run.handler, "shop.order");
    subject_claim(&s);
    CHECK_INT(s.run.status, STET_STATUS_RUNNING);
    APPLY(&s, SUSPENDED, .text = TEXT("timer nap"));
    CHECK_INT(s.run.status, STET_STATUS_SUSPENDED);
    CHECK_STR(s.run.reason, "timer nap");
    subject_claim(&s);
    CHECK(s.run.reason == NULL);
    APPLY(&s, COMPLETED, .value = TEXT("done"), .time_ms = 5000);
    CHECK_INT(s.run.status, STET_STATUS_COMPLETED);
    CHECK_INT(s.run.ended_ms, 5000);
    CHECK_INT(stet__run_answer(&s.run), STET_OK);
    CHECK(stet__run_is_answered(&s.run));
    subject_free(&s);
}

TEST(B20_only_what_the_table_allows)
{
    /* From, and the statuses it may become, as bits. */
    static const struct {
        int      from;
        unsigned to;
    } table[] = {
#define BIT(name) (1u << STET_STATUS_##name)
#define STOPS (BIT(CANCELLING) | BIT(CANCELLED) | BIT(EXPIRED))
        { 0, BIT(PENDING) },
        { STET_STATUS_PENDING, BIT(RUNNING) | BIT(PAUSED) | BIT(STUCK) | BIT(FAILED) | STOPS },
        { STET_STATUS_RUNNING, BIT(PENDING) | BIT(RUNNING) | BIT(SUSPENDED) | BIT(RETRYING) | BIT(PAUSED) | BIT(STUCK) |
                                   BIT(CANCELLING) | BIT(COMPENSATING) | BIT(COMPLETED) | BIT(FAILED) | BIT(CANCELLED) |
                                   BIT(EXPIRED) },
        { STET_STATUS_SUSPENDED, BIT(RUNNING) | BIT(PENDING) | BIT(PAUSED) | BIT(FAILED) | STOPS },
        { STET_STATUS_RETRYING, BIT(RUNNING) | BIT(PENDING) | BIT(PAUSED) | BIT(FAILED) | STOPS },
        { STET_STATUS_PAUSED, BIT(PAUSED) | BIT(PENDING) | BIT(RUNNING) | BIT(STUCK) | BIT(COMPENSATING) |
                                  BIT(COMPENSATION_FAILED) | BIT(FAILED) | STOPS },
        { STET_STATUS_STUCK, BIT(PENDING) | BIT(RUNNING) | BIT(STUCK) | BIT(FAILED) | BIT(COMPENSATING) | STOPS },
        { STET_STATUS_CANCELLING, BIT(CANCELLING) | BIT(COMPENSATING) | BIT(STUCK) | BIT(CANCELLED) | BIT(EXPIRED) },
        { STET_STATUS_COMPENSATING, BIT(COMPENSATING) | BIT(PAUSED) | BIT(COMPENSATION_FAILED) | BIT(STUCK) | BIT(FAILED) |
                                        BIT(CANCELLED) | BIT(EXPIRED) | BIT(RUNNING) | BIT(CANCELLING) },
        { STET_STATUS_COMPENSATION_FAILED, BIT(COMPENSATING) | BIT(FAILED) | BIT(CANCELLED) | BIT(EXPIRED) },
        { STET_STATUS_COMPLETED, 0 },
        { STET_STATUS_FAILED, 0 },
        { STET_STATUS_CANCELLED, 0 },
        { STET_STATUS_EXPIRED, 0 },
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int to = 1; to <= STET_STATUS_EXPIRED; to++)
            if (stet__status_can((stet_status)table[i].from, (stet_status)to) != ((table[i].to >> to & 1u) != 0))
                test_fail(__FILE__, __LINE__, "from %d to %d", table[i].from, to);
    CHECK(!stet__status_can((stet_status)99, STET_STATUS_PENDING));
}

TEST(B20_statuses_have_names_both_ways)
{
    for (int i = 1; i <= STET_STATUS_EXPIRED; i++) {
        CHECK_INT(stet_status_parse(stet_status_name((stet_status)i)), i);
        CHECK_INT(stet_status_is_terminal((stet_status)i), i >= STET_STATUS_COMPLETED);
    }
    CHECK_STR(stet_status_name((stet_status)0), "unknown");
    CHECK_STR(stet_status_name((stet_status)14), "unknown");
    CHECK_INT(stet_status_parse("nonsense"), 0);
    CHECK_INT(stet_status_parse(NULL), 0);
}

TEST(F7_facts_that_cannot_follow_are_refused)
{
    subject s;

    subject_init(&s);
    REFUSED(&s, CLAIMED, .number = 1); /* nothing began */
    REFUSED(&s, STARTED, .revision = 2, .name = TEXT("a.b"));
    REFUSED(&s, STARTED, .value = TEXT("{}")); /* no handler */
    REFUSED(&s, STARTED, .name = TEXT("a.b"), .traceparent = TEXT("00-none"));
    subject_free(&s);
    subject_start(&s);
    REFUSED(&s, STARTED, .name = TEXT("a.b")); /* twice */
    REFUSED(&s, COMPLETED, .value = TEXT("")); /* never claimed */
    REFUSED(&s, STEP, .revision = 3, .name = TEXT("a"), .occurrence = 1);
    REFUSED(&s, STEP, .revision = 1, .name = TEXT("a"), .occurrence = 1);
    subject_claim(&s);
    REFUSED(&s, CLAIMED, .number = 1); /* an epoch that was */
    APPLY(&s, TAKEN, .number = 2);
    REFUSED(&s, TAKEN, .number = 2);
    REFUSED(&s, TAKEN, .number = 1);
    subject_free(&s);
}

/* ---- generations (B22) ---------------------------------------------------------------------------- */

static stet__fact
subject_restart(const subject *s, uint64_t epoch)
{
    stet__fact fact;

    stet__run_restart(&s->run, &fact, TEXT("next"), epoch);
    fact.time_ms = 9000;
    return fact;
}

static void
subject_start_full(subject *s)
{
    static const stet_id parent = { { 2 } }, before = { { 3 } };

    subject_init(s);
    APPLY(s, STARTED, .name = TEXT("o.work"), .value = TEXT("first"), .key = TEXT("k"), .group = TEXT("g"),
          .idempotency_key = TEXT("once"), .parent_step = TEXT("s"), .child_key = TEXT("c"), .schedule = TEXT("nightly"),
          .traceparent = TEXT("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), .tracestate = TEXT("a=b"),
          .labels = TEXT("a=1\0b=2"), .held = TEXT("o/k"), .time_ms = 500, .number = 77, .until_ms = 600,
          .deadline_ms = 70000, .retention_ms = 8, .priority = -4, .attempts_max = 3, .retry_first_ms = 10,
          .retry_max_ms = 20, .retry_factor = 150, .retry_jitter = 5, .completion = 6, .planned_ms = 450,
          .flags = STET__FACT_OBJECT | STET__FACT_FORKED | STET__FACT_SHARED, .run = stet__id_bytes(&parent),
          .retry_of = stet__id_bytes(&before));
}

/* Every field of the first start, written and read once more. */
TEST(B22_a_generation_is_started_as_the_run_was)
{
    subject    s, loaded;
    stet__fact first, again, as_first;
    stet__buf  a, b;

    subject_start_full(&s);
    stet__run_restart(&s.run, &first, s.run.input, 0);
    subject_claim(&s);
    APPLY(&s, TAKEN, .number = 4);
    APPLY(&s, ATTEMPT_FAILED, .code = STET_ERETRY, .text = TEXT("no"), .until_ms = 2000);
    subject_claim(&s);
    CHECK_OK(subject_apply(&s, subject_restart(&s, 2)));
    CHECK_INT(s.run.status, STET_STATUS_PENDING);
    CHECK_INT(s.run.generation, 1);
    CHECK_INT(s.run.created_ms, 500);
    CHECK_INT(s.run.began_ms, 9000);
    CHECK_INT(s.run.visible_ms, 600);
    CHECK_INT(s.run.failed, 0);
    CHECK_INT(s.run.epoch, 2);
    CHECK_INT(s.run.taken, 4);
    CHECK_INT(s.run.journal, 6);
    CHECK(s.run.error == NULL && s.run.is_fork && stet__run_has_begun(&s.run));
    stet__run_restart(&s.run, &again, s.run.input, 0);
    as_first = again;
    as_first.generation = first.generation;
    as_first.since = first.since;
    as_first.taken = first.taken;
    as_first.value = first.value;
    stet__buf_init(&a, s.arena.alloc);
    stet__buf_init(&b, s.arena.alloc);
    stet__fact_encode(&a, &first);
    stet__fact_encode(&b, &as_first);
    CHECK(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    /* From its own fact alone it is the same. */
    subject_init(&loaded);
    again = subject_restart(&s, 3);
    again.revision = 7;
    CHECK_OK(subject_apply(&loaded, again));
    CHECK_INT(loaded.run.journal, 7);
    CHECK_INT(loaded.run.taken, 4);
    CHECK_INT(loaded.run.epoch, 3);
    CHECK_INT(loaded.run.generation, 2);
    CHECK_STR(loaded.run.key, "k");
    stet__buf_free(&a);
    stet__buf_free(&b);
    subject_free(&loaded);
    subject_free(&s);
}

TEST(B22_what_is_no_generation_is_damage)
{
    subject    s, loaded;
    stet__fact fact;

    subject_start(&s);
    subject_claim(&s);
    fact = subject_restart(&s, 1);
    fact.since++; /* it stands elsewhere */
    CHECK_CODE(subject_apply(&s, fact), STET_ECORRUPT);
    fact = subject_restart(&s, 1);
    fact.generation++; /* one is missing */
    CHECK_CODE(subject_apply(&s, fact), STET_ECORRUPT);
    fact = subject_restart(&s, 0); /* of an older claim */
    CHECK_CODE(subject_apply(&s, fact), STET_ECORRUPT);
    fact = subject_restart(&s, 1);
    fact.generation = 0; /* a second start */
    CHECK_CODE(subject_apply(&s, fact), STET_ECORRUPT);
    CHECK_INT(s.run.journal, 2);
    /* A journal that lost its beginning. */
    subject_init(&loaded);
    CHECK_CODE(subject_apply(&loaded, FACT(CLAIMED, .number = 1, .revision = 5)), STET_ECORRUPT);
    fact = subject_restart(&s, 1);
    fact.revision = 5;
    CHECK_CODE(subject_apply(&loaded, fact), STET_ECORRUPT);
    /* Those who were answered cannot begin anew. */
    CHECK_OK(stet__run_apply_inbox(&s.run, &FACT(CANCEL, .time_ms = 1)));
    CHECK_CODE(subject_apply(&s, subject_restart(&s, 1)), STET_ECORRUPT);
    subject_free(&loaded);
    subject_free(&s);
}

TEST(B22_a_key_of_the_generation_before_is_known_and_brings_nothing)
{
    subject s;

    subject_start(&s);
    APPLY(&s, SIGNALLED, .idempotency_key = TEXT("old"), .flags = STET__FACT_SEEN);
    CHECK_OK(stet__journal_apply(&s.journal, &FACT(SIGNALLED, .name = TEXT("go"), .value = TEXT("x"),
                                                   .idempotency_key = TEXT("old"))));
    CHECK(!stet__journal_has_signal(&s.journal, "go"));
    CHECK(!stet__journal_has_signal(&s.journal, ""));
    CHECK_OK(stet__journal_apply(&s.journal, &FACT(SIGNALLED, .name = TEXT("go"), .value = TEXT("x"),
                                                   .idempotency_key = TEXT("new"))));
    CHECK(stet__journal_has_signal(&s.journal, "go"));
    CHECK(stet__map_find(&s.journal.signal_ids, "new", 3) == stet__journal_came(&s.journal));
    CHECK(stet__map_find(&s.journal.signal_ids, "old", 3) != stet__journal_came(&s.journal));
    subject_free(&s);
}

TEST(B20_nothing_follows_an_end)
{
    static const stet__fact_kind ends[] = { STET__FACT_COMPLETED, STET__FACT_FAILED, STET__FACT_CANCELLED, STET__FACT_EXPIRED };

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        stet__fact cancel = FACT(CANCEL, .time_ms = 1);
        subject    s;

        subject_start(&s);
        subject_claim(&s);
        CHECK_OK(subject_apply(&s, (stet__fact){ .kind = ends[i], .code = STET_EPERMANENT, .text = TEXT("so") }));
        CHECK(stet__run_is_terminal(&s.run));
#define RUN_FACT(kind_, number_, text_)                                                            \
    if (number_ != STET__FACT_ROW)                                                                 \
        REFUSED(&s, kind_, .number = 9, .name = TEXT("x"), .occurrence = 1);
        STET__FACT_LIST(RUN_FACT)
#undef RUN_FACT
        CHECK_CODE(stet__run_apply_inbox(&s.run, &cancel), STET_ECORRUPT);
        subject_free(&s);
    }
}

TEST(B20_failed_attempts_are_counted)
{
    subject s;

    subject_start(&s);
    CHECK_INT(stet__run_attempt(&s.run), 1);
    subject_claim(&s);
    APPLY(&s, ATTEMPT_FAILED, .code = STET_ERETRY, .cause = -1005, .text = TEXT("no"), .origin = TEXT("step a#1"), .until_ms = 9000);
    CHECK_INT(s.run.status, STET_STATUS_RETRYING);
    CHECK_INT(s.run.due_ms, 9000);
    CHECK_INT(s.run.cause, -1005);
    CHECK_STR(s.run.origin, "step a#1");
    CHECK_INT(stet__run_attempt(&s.run), 2);
    subject_claim(&s);
    APPLY(&s, DEFERRED, .code = STET_EDEFER, .until_ms = 12000); /* uses none */
    CHECK_INT(stet__run_attempt(&s.run), 2);
    subject_claim(&s);
    APPLY(&s, ATTEMPT_FAILED, .code = STET_ERETRY);
    APPLY(&s, FAILED, .code = STET_EATTEMPTS, .cause = STET_ERETRY, .text = TEXT("no"));
    CHECK_INT(s.run.status, STET_STATUS_FAILED);
    CHECK_INT(stet__run_attempt(&s.run), 2);
    CHECK_INT(stet__run_answer(&s.run), STET_ERUN);
    subject_free(&s);
}

TEST(B20_a_cancelled_run_stays_so_through_dispatch)
{
    subject    s;
    stet__fact cancel = FACT(CANCEL, .who = TEXT("op"), .text = TEXT("enough"));
    stet__fact deadline = FACT(DEADLINE, .text = TEXT("late"));

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, TAKEN, .number = 1);
    CHECK_OK(stet__run_apply_inbox(&s.run, &cancel));
    CHECK_INT(s.run.status, STET_STATUS_CANCELLING);
    CHECK_INT(stet__run_answer(&s.run), STET_ECANCELLED);
    CHECK(stet__run_is_answered(&s.run));
    CHECK_OK(stet__run_apply_inbox(&s.run, &deadline)); /* the first one counts */
    CHECK_INT(s.run.stop_code, STET_ECANCELLED);
    CHECK_STR(s.run.stop_why, "enough");
    CHECK(!s.run.is_stop_told);
    APPLY(&s, STEP, .name = TEXT("a"), .occurrence = 1, .code = STET_ECANCELLED);
    CHECK(s.run.is_stop_told);
    APPLY(&s, SUSPENDED, .text = TEXT("x"));
    CHECK_INT(s.run.status, STET_STATUS_CANCELLING);
    subject_claim(&s);
    APPLY(&s, RELEASED, .text = TEXT("x"));
    CHECK_INT(s.run.status, STET_STATUS_CANCELLING);
    subject_claim(&s);
    REFUSED(&s, COMPLETED, .value = TEXT("late")); /* its waiters were told otherwise */
    APPLY(&s, CANCELLED, .code = STET_ECANCELLED);
    subject_free(&s);
}

/* What a dead worker was executing lay behind what was recorded then: a run that goes back comes to it
 * only later, and waits in between. Found by the simulator. */
TEST(F1_an_unknown_risk_lasts_over_a_rewind)
{
    static const bool is_first[] = { true, false };

    for (size_t i = 0; i < 2; i++) { /* the worker did not take the rewind, whichever was told first */
        subject    s;
        stet__fact unknown = FACT(LOST, .flags = STET__FACT_UNKNOWN), rewind = FACT(REWIND, .number = 2);

        subject_start(&s);
        subject_claim(&s);
        CHECK_OK(stet__run_apply_inbox(&s.run, is_first[i] ? &unknown : &rewind));
        CHECK_OK(stet__run_apply_inbox(&s.run, is_first[i] ? &rewind : &unknown));
        APPLY(&s, TAKEN, .number = 2);
        CHECK(stet__run_is_at_risk(&s.run, "first", 1, false));
        stet__run_settle_risks(&s.run);
        APPLY(&s, SUSPENDED, .text = TEXT("a timer"));
        subject_claim(&s);
        CHECK(stet__run_is_at_risk(&s.run, "second", 1, false));
        CHECK(!stet__run_is_at_risk(&s.run, "second", 1, true));
        subject_free(&s);
    }
    for (size_t i = 0; i < 2; i++) { /* it had taken the rewind; or there was one that came too late */
        subject    s;
        stet__fact unknown = FACT(LOST, .flags = STET__FACT_UNKNOWN), rewind = FACT(REWIND, .number = 2);

        subject_start(&s);
        subject_claim(&s);
        if (i == 1)
            APPLY(&s, ROLLBACK, .name = TEXT("rollback"), .occurrence = 1);
        CHECK_OK(stet__run_apply_inbox(&s.run, &rewind));
        if (i == 0)
            APPLY(&s, TAKEN, .number = 1);
        CHECK_OK(stet__run_apply_inbox(&s.run, &unknown));
        stet__run_settle_risks(&s.run);
        CHECK(!stet__run_is_at_risk(&s.run, "any", 1, false));
        subject_free(&s);
    }
}

/* A crumb has room for so much of a name. */
TEST(F1_the_risk_of_a_step_with_a_long_name_is_known_by_its_beginning)
{
    char       name[STET_CRUMB_MAX + 10];
    stet__fact in_body = FACT(LOST, .occurrence = 1, .flags = STET__FACT_EXECUTING | STET__FACT_IN_BODY);
    subject    s;

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    subject_start(&s);
    subject_claim(&s);
    in_body.name = (stet_bytes){ name, STET_CRUMB_MAX - 1 };
    CHECK_OK(stet__run_apply_inbox(&s.run, &in_body));
    CHECK(stet__run_is_at_risk(&s.run, name, 1, false));
    name[STET_CRUMB_MAX - 2] = '\0';
    CHECK(!stet__run_is_at_risk(&s.run, name, 1, false));
    name[STET_CRUMB_MAX - 2] = 'x';
    APPLY(&s, AT_RISK, .name = TEXT(name), .occurrence = 1);
    APPLY(&s, STEP, .name = TEXT(name), .occurrence = 1);
    CHECK(!stet__run_is_at_risk(&s.run, name, 1, false));
    APPLY(&s, AT_RISK, .name = TEXT(name), .occurrence = 1);
    CHECK(stet__run_is_at_risk(&s.run, name, 1, true));
    in_body.name = TEXT(""); /* whatever is read there */
    CHECK_OK(stet__run_apply_inbox(&s.run, &in_body));
    CHECK(stet__run_is_at_risk(&s.run, "", 1, true));
    subject_free(&s);
}

TEST(F1_lost_workers_leave_risks)
{
    subject    s;
    stet__fact in_body = FACT(LOST, .name = TEXT("charge"), .occurrence = 2, .flags = STET__FACT_EXECUTING | STET__FACT_IN_BODY);
    stet__fact idle = FACT(LOST, .flags = 0), unknown = FACT(LOST, .flags = STET__FACT_UNKNOWN), unstick = FACT(UNSTICK, .time_ms = 1);

    subject_start(&s);
    subject_claim(&s);
    CHECK_OK(stet__run_apply_inbox(&s.run, &idle));
    CHECK_INT(s.run.lost, 0);
    CHECK_OK(stet__run_apply_inbox(&s.run, &in_body));
    CHECK_INT(s.run.lost, 1);
    CHECK(!stet__run_is_at_risk(&s.run, "charge", 1, false));
    CHECK(!stet__run_is_at_risk(&s.run, "other", 2, false));
    CHECK(stet__run_is_at_risk(&s.run, "charge", 2, false));
    /* Also when it was told, until it has its result. */
    APPLY(&s, AT_RISK, .name = TEXT("charge"), .occurrence = 2);
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 1);
    CHECK(stet__run_is_at_risk(&s.run, "charge", 2, false));
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 2);
    CHECK(!stet__run_is_at_risk(&s.run, "charge", 2, false));
    CHECK_OK(stet__run_apply_inbox(&s.run, &unknown));
    /* Not known which: all that the handler asks for before it waits for something new. */
    CHECK(stet__run_is_at_risk(&s.run, "any", 7, false));
    CHECK(stet__run_is_at_risk(&s.run, "other", 1, false));
    CHECK(!stet__run_is_at_risk(&s.run, "other", 1, true));
    CHECK_OK(stet__run_apply_inbox(&s.run, &in_body));
    CHECK(stet__run_is_at_risk(&s.run, "charge", 2, false));
    CHECK_OK(stet__run_apply_inbox(&s.run, &in_body));
    stet__run_settle_risks(&s.run);
    CHECK(!stet__run_is_at_risk(&s.run, "any", 8, false));
    CHECK(stet__run_is_at_risk(&s.run, "charge", 2, false));
    CHECK_OK(stet__run_apply_inbox(&s.run, &unknown));
    APPLY(&s, AT_RISK, .name = TEXT("told"), .occurrence = 1);
    APPLY(&s, SUSPENDED, .text = TEXT("a timer"));
    CHECK(!stet__run_is_at_risk(&s.run, "any", 9, false));
    CHECK(stet__run_is_at_risk(&s.run, "told", 1, true));
    subject_claim(&s);
    APPLY(&s, STUCK, .code = STET_ELOST, .text = TEXT("too often"));
    CHECK_INT(s.run.status, STET_STATUS_STUCK);
    CHECK_OK(stet__run_apply_inbox(&s.run, &unstick));
    CHECK_INT(s.run.status, STET_STATUS_PENDING);
    CHECK_INT(s.run.lost, 0);
    subject_free(&s);
}

TEST(B20_answers_of_every_end)
{
    static const struct {
        stet__fact_kind kind;
        stet_status     status;
        int             code, answer;
        uint32_t        attempt;
    } ends[] = {
        { STET__FACT_COMPLETED, STET_STATUS_COMPLETED, 0, STET_OK, 1 },
        { STET__FACT_FAILED, STET_STATUS_FAILED, STET_EPERMANENT, STET_ERUN, 1 },
        { STET__FACT_FAILED, STET_STATUS_FAILED, STET_EATTEMPTS, STET_ERUN, 0 },
        { STET__FACT_CANCELLED, STET_STATUS_CANCELLED, STET_ECANCELLED, STET_ECANCELLED, 1 },
        { STET__FACT_EXPIRED, STET_STATUS_EXPIRED, STET_EEXPIRED, STET_EEXPIRED, 1 },
    };

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        subject s;

        subject_start(&s);
        subject_claim(&s);
        CHECK(!stet__run_is_answered(&s.run));
        CHECK_INT(stet__run_answer(&s.run), STET_EOPEN);
        CHECK_OK(subject_apply(&s, (stet__fact){ .kind = ends[i].kind, .code = ends[i].code }));
        CHECK_INT(s.run.status, ends[i].status);
        CHECK(stet__run_is_answered(&s.run));
        CHECK_INT(stet__run_answer(&s.run), ends[i].answer);
        CHECK_INT(stet__run_attempt(&s.run), ends[i].attempt);
        subject_free(&s);
    }
}

TEST(B20_a_stuck_run_that_is_cancelled_stays_stuck_and_is_answered)
{
    subject    s;
    stet__fact unstick = FACT(UNSTICK, .time_ms = 1), cancel = FACT(CANCEL, .who = TEXT("me"), .text = TEXT("enough"));

    subject_start(&s);
    CHECK_OK(stet__run_apply_inbox(&s.run, &unstick)); /* it was not stuck */
    CHECK_INT(s.run.status, STET_STATUS_PENDING);
    subject_claim(&s);
    APPLY(&s, STUCK, .code = STET_EREPLAY, .text = TEXT("bent"));
    CHECK_OK(stet__run_apply_inbox(&s.run, &cancel));
    CHECK_INT(s.run.status, STET_STATUS_STUCK);
    CHECK(stet__run_is_answered(&s.run));
    CHECK_INT(stet__run_answer(&s.run), STET_ECANCELLED);
    subject_free(&s);
}

TEST(B20_a_stop_is_told_by_the_first_command_that_carries_its_code)
{
    subject    s;
    stet__fact cancel = FACT(CANCEL, .who = TEXT("me"), .text = TEXT("enough"));

    subject_start(&s);
    subject_claim(&s);
    CHECK_OK(stet__run_apply_inbox(&s.run, &cancel));
    APPLY(&s, AT_RISK, .name = TEXT("a"), .occurrence = 1);
    APPLY(&s, STEP, .name = TEXT("a"), .occurrence = 1, .code = STET_EPERMANENT);
    CHECK(!s.run.is_stop_told);
    APPLY(&s, TAKEN, .number = 1);
    CHECK(!s.run.is_stop_told);
    APPLY(&s, SLEEP, .name = TEXT("z"), .occurrence = 1, .completion = 9, .until_ms = 5);
    APPLY(&s, TIMER, .completion = 9, .code = STET_ECANCELLED); /* no command */
    CHECK(!s.run.is_stop_told);
    APPLY(&s, UPDATE, .name = TEXT("u"), .occurrence = 1, .code = STET_ECANCELLED, .flags = STET__FACT_INHERITED,
          .topic = TEXT("w"), .value = TEXT("")); /* told to somebody else */
    CHECK(!s.run.is_stop_told);
    APPLY(&s, STEP, .name = TEXT("b"), .occurrence = 1, .code = STET_ECANCELLED);
    CHECK(s.run.is_stop_told);
    subject_free(&s);
}

/* ---- replay matching (C11, F1, F7) ---------------------------------------------------------------- */

static const stet__cmd *
ask_in_vain(subject *s, stet__fact_kind kind, const char *name, int64_t fingerprint)
{
    const stet__cmd *recorded = NULL;
    stet__cmd       *cmd;
    uint64_t         occurrence;

    CHECK_INT(stet__journal_ask(&s->journal, kind, name, fingerprint, &cmd, &occurrence, &recorded), STET_EREPLAY);
    CHECK(cmd == NULL && recorded != NULL);
    return recorded;
}

TEST(F1_recorded_steps_come_back_in_order)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("first"));
    APPLY(&s, STEP, .name = TEXT("charge"), .occurrence = 2, .value = TEXT("second"));
    APPLY(&s, STEP, .name = TEXT("mail"), .occurrence = 1, .code = STET_ESTEP, .cause = -1001, .text = TEXT("bounced"));
    CHECK_INT(s.journal.unasked, 3);
    cmd = ask(&s, STET__FACT_STEP, "charge");
    CHECK(cmd != NULL && cmd->is_settled && memcmp(cmd->value.data, "first", 5) == 0);
    /* Other names in between do no harm: matching is by name. */
    cmd = ask(&s, STET__FACT_STEP, "mail");
    CHECK(cmd != NULL && cmd->code == STET_ESTEP && cmd->cause == -1001);
    CHECK_STR(cmd->text, "bounced");
    cmd = ask(&s, STET__FACT_STEP, "charge");
    CHECK(cmd != NULL && memcmp(cmd->value.data, "second", 6) == 0);
    CHECK(stet__journal_unasked(&s.journal) == NULL);
    CHECK(ask(&s, STET__FACT_STEP, "charge") == NULL); /* new */
    CHECK(ask(&s, STET__FACT_STEP, "new") == NULL);
    subject_free(&s);
}

/* ---- signals (B8) ------------------------------------------------------------------------------ */

static void
expect_signal(subject *s, const char *wait, const char *value)
{
    const stet__cmd *cmd = ask(s, STET__FACT_SIGNAL, wait);

    CHECK(cmd != NULL && cmd->is_settled && cmd->code == 0);
    CHECK_INT(cmd->value.len, strlen(value));
    CHECK(memcmp(cmd->value.data, value, cmd->value.len) == 0);
}

TEST(B8_signals_are_given_to_waits_in_the_order_of_both)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    CHECK(!stet__journal_has_signal(&s.journal, "go"));
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("1"));
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT(""));
    CHECK(stet__journal_has_signal(&s.journal, "go"));
    CHECK(!stet__journal_has_signal(&s.journal, "g"));
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 1);
    APPLY(&s, SIGNAL, .name = TEXT("mine"), .topic = TEXT("go"), .occurrence = 1);
    CHECK(!stet__journal_has_signal(&s.journal, "go"));
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 2);
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 3);
    APPLY(&s, SIGNALLED, .name = TEXT("other"), .value = TEXT("x"));
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("3"));
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("4"));
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("5"));
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 4);
    expect_signal(&s, "go", "1");
    expect_signal(&s, "mine", "");
    expect_signal(&s, "go", "3");
    expect_signal(&s, "go", "4");
    expect_signal(&s, "go", "5");
    CHECK(s.journal.spared == NULL);
    subject_free(&s);
}

/* Room for so many. */
static int
two_letters(void *arg, stet_bytes signal, const stet__letter *letter)
{
    (void)signal;
    (void)letter;
    return ++*(int *)arg > 2 ? STET_ENOMEM : STET_OK;
}

TEST(B8_who_reads_signals_nobody_took_can_stop)
{
    subject s;
    int     n = 0;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("1"));
    APPLY(&s, SIGNALLED, .name = TEXT("stop"), .value = TEXT("1"));
    CHECK_OK(stet__journal_letters(&s.journal, two_letters, &n));
    CHECK_INT(n, 2);
    for (int i = 0; i < 2; i++) {
        APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("2"));
        APPLY(&s, SIGNALLED, .name = TEXT("stop"), .value = TEXT("2"));
    }
    n = 0;
    CHECK_CODE(stet__journal_letters(&s.journal, two_letters, &n), STET_ENOMEM);
    CHECK_INT(n, 3);
    subject_free(&s);
}

TEST(B8_a_signal_with_a_key_counts_once)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("1"), .idempotency_key = TEXT("k"));
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("1"), .idempotency_key = TEXT("k"));
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("2"), .idempotency_key = TEXT("l"));
    CHECK_INT(s.journal.anomalies, 1);
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 1);
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 2);
    expect_signal(&s, "go", "1");
    expect_signal(&s, "go", "2");
    subject_free(&s);
}

TEST(B8_signal_or_timeout_whichever_came_first)
{
    subject          s;
    const stet__cmd *cmd;
    uint64_t         first, second, third;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 1, .until_ms = 5000);
    first = s.run.journal;
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 2, .until_ms = 6000);
    second = s.run.journal;
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 3, .until_ms = 7000);
    third = s.run.journal;
    APPLY(&s, TIMER, .completion = (int64_t)first);
    CHECK(s.journal.spared == NULL);
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("late"));
    CHECK(s.journal.spared != NULL && s.journal.spared->completion == second);
    CHECK_INT(s.journal.spared->until_ms, 6000);
    APPLY(&s, TIMER, .completion = (int64_t)second); /* too late: changes nothing */
    CHECK_INT(s.journal.anomalies, 1);
    cmd = ask(&s, STET__FACT_SIGNAL, "go");
    CHECK(cmd != NULL && cmd->is_settled);
    CHECK_INT(cmd->code, STET_ETIMEOUT);
    expect_signal(&s, "go", "late");
    /* Told to stop: the third ends too, and its timer is to go. */
    APPLY(&s, SIGNAL, .name = TEXT("go"), .occurrence = 3, .code = STET_ECANCELLED);
    cmd = ask(&s, STET__FACT_SIGNAL, "go");
    CHECK_INT(cmd->code, STET_ECANCELLED);
    CHECK_INT(s.journal.spared->completion, third);
    CHECK_INT(s.journal.spared->until_ms, 7000);
    APPLY(&s, SIGNALLED, .name = TEXT("go"), .value = TEXT("kept"));
    CHECK(stet__journal_has_signal(&s.journal, "go"));
    subject_free(&s);
}

TEST(C2_the_timer_of_a_step_that_is_settled_before_its_next_attempt_is_to_go)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP_RETRY, .name = TEXT("flaky"), .occurrence = 1, .attempt = 1, .until_ms = 5000);
    APPLY(&s, STEP, .name = TEXT("flaky"), .occurrence = 1, .code = STET_ECANCELLED);
    CHECK(s.journal.spared != NULL);
    CHECK_INT(s.journal.spared->until_ms, 5000);
    subject_free(&s);
}

TEST(C11_steps_may_be_added_before_recorded_ones)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP, .name = TEXT("b"), .occurrence = 1);
    CHECK(ask(&s, STET__FACT_STEP, "a") == NULL);
    CHECK(ask(&s, STET__FACT_STEP, "b") != NULL);
    CHECK(stet__journal_unasked(&s.journal) == NULL);
    subject_free(&s);
}

TEST(C11_a_recorded_command_nobody_asks_for_is_named)
{
    subject          s;
    const stet__cmd *left;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP, .name = TEXT("a"), .occurrence = 1);
    APPLY(&s, STEP, .name = TEXT("gone"), .occurrence = 1);
    /* Reads and choices may be dropped from the code without harm. */
    APPLY(&s, NOW, .name = TEXT("now"), .occurrence = 1, .number = 5);
    APPLY(&s, STATE_GET, .name = TEXT("n"), .occurrence = 1);
    APPLY(&s, VERSION, .name = TEXT("v"), .occurrence = 1, .number = 2);
    CHECK(ask(&s, STET__FACT_STEP, "a") != NULL);
    left = stet__journal_unasked(&s.journal);
    CHECK(left != NULL);
    CHECK_STR(left->name, "gone");
    subject_free(&s);
}

TEST(C11_the_same_place_with_another_kind_is_a_contradiction)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP, .name = TEXT("pay"), .occurrence = 1);
    CHECK_INT(ask_in_vain(&s, STET__FACT_SLEEP, "pay", 0)->kind, STET__FACT_STEP);
    subject_free(&s);
}

TEST(C11_another_fingerprint_is_a_contradiction)
{
    subject          s;
    const stet__cmd *recorded;
    stet__cmd       *cmd;
    uint64_t         occurrence;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP, .name = TEXT("pay"), .occurrence = 1, .fingerprint = 77);
    APPLY(&s, STEP, .name = TEXT("pay"), .occurrence = 2, .fingerprint = 78);
    CHECK_OK(stet__journal_ask(&s.journal, STET__FACT_STEP, "pay", 77, &cmd, &occurrence, &recorded));
    CHECK_INT(ask_in_vain(&s, STET__FACT_STEP, "pay", 99)->fingerprint, 78);
    subject_free(&s);
}

TEST(F7_an_impossible_occurrence_is_refused)
{
    static const int64_t bad[] = { 0, -1, INT64_MIN, INT64_MAX, INT64_C(1) << 40 };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        subject s;

        subject_start(&s);
        subject_claim(&s);
        CHECK_CODE(subject_apply(&s, FACT(STEP, .name = TEXT("a"), .occurrence = bad[i])), STET_ECORRUPT);
        subject_free(&s);
    }
}

TEST(F1_notifications_settle_what_they_answer_once)
{
    subject    s;
    stet__cmd *sleep, *call, *awakeable;
    uint64_t   at[3];

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, SLEEP, .name = TEXT("nap"), .occurrence = 1, .until_ms = 7000);
    at[0] = s.run.journal;
    APPLY(&s, CALL, .name = TEXT("a.b"), .occurrence = 1);
    at[1] = s.run.journal;
    APPLY(&s, AWAKEABLE, .name = TEXT("w"), .occurrence = 1);
    at[2] = s.run.journal;
    notify(&s, FACT(CHILD_DONE, .completion = (int64_t)at[1], .value = TEXT("child's")));
    notify(&s, FACT(TIMER, .completion = (int64_t)at[0]));
    notify(&s, FACT(CHILD_DONE, .completion = (int64_t)at[1], .value = TEXT("another"))); /* a repeat */
    notify(&s, FACT(SETTLED, .completion = 999, .value = TEXT("nobody's")));
    CHECK_INT(s.journal.anomalies, 2);
    sleep = ask(&s, STET__FACT_SLEEP, "nap");
    call = ask(&s, STET__FACT_CALL, "a.b");
    awakeable = ask(&s, STET__FACT_AWAKEABLE, "w");
    CHECK(sleep->is_settled && call->is_settled && !awakeable->is_settled);
    CHECK(call->settled_at < sleep->settled_at); /* the order they were seen in */
    CHECK_INT(call->value.len, 7);
    CHECK(memcmp(call->value.data, "child's", 7) == 0);
    notify(&s, FACT(SETTLED, .completion = (int64_t)at[2], .code = STET_EREJECTED, .text = TEXT("no")));
    CHECK(awakeable->is_settled && awakeable->code == STET_EREJECTED);
    subject_free(&s);
}

TEST(F1_a_step_retry_waits_for_its_own_timer)
{
    subject    s;
    stet__cmd *cmd;
    uint64_t   first;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP_RETRY, .name = TEXT("a"), .occurrence = 1, .attempt = 1, .code = STET_ERETRY, .until_ms = 2000);
    first = s.run.journal;
    APPLY(&s, STEP_RETRY, .name = TEXT("a"), .occurrence = 1, .attempt = 2, .code = STET_ERETRY, .until_ms = 4000);
    notify(&s, FACT(TIMER, .completion = (int64_t)first)); /* late, of the attempt before */
    cmd = ask(&s, STET__FACT_STEP, "a");
    CHECK_INT(cmd->attempt, 2);
    CHECK(!cmd->is_settled && cmd->fired_at == 0 && cmd->has_timer);
    notify(&s, FACT(TIMER, .completion = (int64_t)s.run.journal));
    CHECK(cmd->fired_at != 0 && !cmd->has_timer);
    APPLY(&s, STEP, .name = TEXT("a"), .occurrence = 1, .attempt = 3, .value = TEXT("ok"));
    CHECK(cmd->is_settled && cmd->attempt == 3 && cmd->code == 0);
    subject_free(&s);
}

TEST(F1_a_choice_is_the_same_on_every_replay)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, ANY, .name = TEXT("any"), .occurrence = 1, .until_ms = 9000);
    APPLY(&s, CHOICE, .completion = (int64_t)s.run.journal, .number = 4);
    cmd = ask(&s, STET__FACT_ANY, "any");
    CHECK(cmd->is_settled);
    CHECK_INT(cmd->number, 4);
    subject_free(&s);
}

TEST(F1_inherited_steps_need_not_be_asked_for)
{
    subject s;

    subject_start(&s);
    APPLY(&s, STEP, .name = TEXT("old"), .occurrence = 1, .flags = STET__FACT_INHERITED, .value = TEXT("v"));
    subject_claim(&s);
    CHECK_INT(s.journal.unasked, 0);
    CHECK(ask(&s, STET__FACT_STEP, "old")->is_inherited);
    subject_free(&s);
}

/* A run that was a retry itself made its choice anew; its own retry inherits both. */
TEST(F1_of_two_inherited_choices_the_later_counts)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    for (int64_t i = 1; i <= 2; i++) {
        APPLY(&s, AWAIT, .name = TEXT("f"), .occurrence = 1, .flags = STET__FACT_INHERITED, .until_ms = 9);
        APPLY(&s, CHOICE, .completion = (int64_t)s.run.journal, .number = i);
    }
    subject_claim(&s);
    CHECK_INT(s.journal.anomalies, 0);
    CHECK_INT(s.journal.choices, 0);
    cmd = ask(&s, STET__FACT_AWAIT, "f");
    CHECK(cmd->is_settled && cmd->is_inherited);
    CHECK(!cmd->has_timer); /* verify would miss its row */
    CHECK_INT(cmd->number, 2);
    subject_free(&s);
}

/* It was void, and what came of it is this run's own: told behind it, not inherited again. */
TEST(F1_an_inherited_choice_that_is_made_anew_is_the_runs_own)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    APPLY(&s, AWAIT, .name = TEXT("f"), .occurrence = 1, .flags = STET__FACT_INHERITED);
    APPLY(&s, AWAIT, .name = TEXT("g"), .occurrence = 1, .flags = STET__FACT_INHERITED);
    APPLY(&s, SLEEP, .name = TEXT("s"), .occurrence = 1, .flags = STET__FACT_INHERITED);
    subject_claim(&s);
    CHECK_INT(s.journal.choices, 0);
    APPLY(&s, AWAIT, .name = TEXT("f"), .occurrence = 1, .until_ms = 9);
    CHECK_INT(s.journal.choices, 1);
    cmd = ask(&s, STET__FACT_AWAIT, "f");
    CHECK(!cmd->is_inherited && !cmd->is_settled && cmd->has_timer);
    CHECK_INT(s.journal.choices, 0);
    /* Nothing is told behind one that the handler has come to. */
    CHECK(ask(&s, STET__FACT_AWAIT, "g")->is_inherited);
    APPLY(&s, AWAIT, .name = TEXT("g"), .occurrence = 1);
    CHECK_INT(s.journal.choices, 0);
    /* A sleep is no choice. */
    APPLY(&s, SLEEP, .name = TEXT("s"), .occurrence = 1, .until_ms = 9);
    CHECK_INT(s.journal.choices, 0);
    CHECK_INT(s.journal.unasked, 1);
    CHECK(!ask(&s, STET__FACT_SLEEP, "s")->is_inherited);
    CHECK_INT(s.journal.unasked, 0);
    subject_free(&s);
}

/* ---- rollbacks (B11) ------------------------------------------------------------------------- */

TEST(B11_a_rollback_is_compensating_through_dispatch_and_then_goes_on)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    subject_claim(&s);
    subject_roll_back(&s);
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    CHECK_INT(s.run.rollback, s.run.journal);
    CHECK(s.run.is_auto);
    CHECK(!stet__run_is_answered(&s.run));
    cmd = ask(&s, STET__FACT_ROLLBACK, "rollback");
    CHECK(cmd != NULL && !cmd->is_settled);
    CHECK_STR(cmd->text, "no stock");
    APPLY(&s, SUSPENDED, .text = TEXT("a timer"));
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    subject_claim(&s);
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    APPLY(&s, ROLLED_BACK, .completion = (int64_t)cmd->completion);
    CHECK_INT(s.run.status, STET_STATUS_RUNNING);
    CHECK(s.run.rollback == 0 && !s.run.is_auto);
    CHECK(cmd->is_settled);
    CHECK_INT(s.journal.anomalies, 0);
    subject_free(&s);
}

TEST(B11_rollbacks_begin_and_end_in_pairs)
{
    subject s;
    int64_t begun;

    subject_start(&s);
    subject_claim(&s);
    REFUSED(&s, ROLLED_BACK, .completion = 0); /* none began */
    subject_roll_back(&s);
    begun = (int64_t)s.run.journal;
    REFUSED(&s, ROLLBACK, .name = TEXT("rollback"), .occurrence = 2); /* inside of it */
    REFUSED(&s, ROLLED_BACK, .completion = begun - 1);                /* of another one */
    CHECK_INT(s.run.rollback, begun);
    APPLY(&s, ROLLED_BACK, .completion = begun);
    REFUSED(&s, ROLLED_BACK, .completion = begun); /* twice */
    subject_free(&s);
}

/* Which interventions let a rollback that failed be tried again: a rewind, and the skip of an undo; of the one that
 * failed, if it is known. */
TEST(B11_C8_only_a_skip_of_the_undo_that_failed_helps_a_rollback)
{
    stet__run  run = { 0 };
    stet__fact skip = { .kind = STET__FACT_SKIP }, edit = { .kind = STET__FACT_EDIT },
               rewind = { .kind = STET__FACT_REWIND };

    CHECK(!stet__run_helps_rollback(&run, &edit));
    CHECK(stet__run_helps_rollback(&run, &rewind));
    skip.name = stet_text("charge");
    CHECK(!stet__run_helps_rollback(&run, &skip));
    skip.name = stet_text("charge card");
    CHECK(!stet__run_helps_rollback(&run, &skip));
    skip.name = stet_text("rollback:charge#1");
    CHECK(stet__run_helps_rollback(&run, &skip));
    run.undo = "rollback:charge#1";
    CHECK(stet__run_helps_rollback(&run, &skip));
    skip.name = stet_text("rollback:charge#2");
    CHECK(!stet__run_helps_rollback(&run, &skip));
    skip.name = stet_text("rollback:charge#10");
    CHECK(!stet__run_helps_rollback(&run, &skip));
}

TEST(B11_an_undo_that_failed_is_told_once_and_the_answer_stays)
{
    subject  s;
    uint64_t begun;

    subject_start(&s);
    subject_claim(&s);
    REFUSED(&s, COMPENSATION_FAILED, .code = STET_ECOMPENSATION); /* of no rollback */
    subject_roll_back(&s);
    begun = s.run.journal;
    notify(&s, FACT(ROLLBACK_RETRY, .who = TEXT("op"))); /* nothing failed yet */
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    APPLY(&s, COMPENSATION_FAILED, .code = STET_ECOMPENSATION, .cause = -1001,
          .text = TEXT("no refund"), .origin = TEXT("step rollback:charge#1"));
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATION_FAILED);
    CHECK_INT(s.run.code, STET_ECOMPENSATION);
    CHECK_INT(s.run.cause, -1001);
    CHECK_STR(s.run.reason, "no refund");
    CHECK_STR(s.run.origin, "step rollback:charge#1");
    CHECK(stet__run_is_answered(&s.run));
    CHECK_INT(stet__run_answer(&s.run), STET_ERUN);
    notify(&s, FACT(ROLLBACK_RETRY, .who = TEXT("op")));
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    subject_claim(&s);
    APPLY(&s, ROLLED_BACK, .completion = (int64_t)begun);
    CHECK_INT(s.run.status, STET_STATUS_RUNNING);
    CHECK(stet__run_is_answered(&s.run));
    CHECK_INT(stet__run_answer(&s.run), STET_ERUN);
    APPLY(&s, FAILED, .code = STET_EPERMANENT, .text = TEXT("no stock"));
    CHECK_INT(stet__run_answer(&s.run), STET_ERUN);
    subject_free(&s);
}

TEST(B11_a_stop_changes_nothing_of_a_run_whose_rollback_failed)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    subject_roll_back(&s);
    APPLY(&s, COMPENSATION_FAILED, .code = STET_ECOMPENSATION, .text = TEXT("no refund"));
    notify(&s, FACT(DEADLINE, .text = TEXT("late")));
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATION_FAILED);
    CHECK_INT(s.run.stop_code, 0);
    CHECK_INT(stet__run_answer(&s.run), STET_ERUN);
    CHECK(s.run.awaits_help);
    notify(&s, FACT(ROLLBACK_RETRY, .who = TEXT("op"))); /* it is still tried again */
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    CHECK(!s.run.awaits_help);
    notify(&s, FACT(CANCEL, .text = TEXT("late"), .flags = STET__FACT_UNTOLD));
    CHECK_INT(s.run.status, STET_STATUS_COMPENSATING);
    CHECK_INT(stet__run_answer(&s.run), STET_ERUN);
    subject_free(&s);
}

TEST(B11_a_rollback_tried_again_gives_open_undos_all_their_attempts)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, SLEEP, .name = TEXT("rollback:nap"), .occurrence = 1, .attempt = 9, .until_ms = 9);
    APPLY(&s, STEP_RETRY, .name = TEXT("flaky"), .occurrence = 1, .attempt = 2);
    subject_roll_back(&s);
    APPLY(&s, STEP_RETRY, .name = TEXT("rollback:b#1"), .occurrence = 1, .attempt = 1);
    APPLY(&s, STEP, .name = TEXT("rollback:b#1"), .occurrence = 1, .attempt = 2);
    APPLY(&s, STEP_RETRY, .name = TEXT("rollback:a#1"), .occurrence = 1, .attempt = 3);
    APPLY(&s, COMPENSATION_FAILED, .code = STET_ECOMPENSATION, .text = TEXT("no refund"));
    notify(&s, FACT(ROLLBACK_RETRY, .who = TEXT("op")));
    CHECK_INT(ask(&s, STET__FACT_STEP, "rollback:a#1")->attempt, 0);
    CHECK_INT(ask(&s, STET__FACT_STEP, "rollback:b#1")->attempt, 2); /* has its result */
    CHECK_INT(ask(&s, STET__FACT_STEP, "flaky")->attempt, 2);        /* undoes nothing */
    CHECK_INT(ask(&s, STET__FACT_SLEEP, "rollback:nap")->attempt, 9);
    subject_free(&s);
}

/* ---- topics, decisions and what is written down (B9, B12, B13, B15, B17) --------------------- */

TEST(B9_an_event_takes_the_mark_of_its_wait_and_leaves_the_timer_to_be_removed)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, TOPIC, .name = TEXT("news"), .occurrence = 1);
    notify(&s, FACT(EVENT, .completion = (int64_t)s.run.journal, .value = TEXT("one")));
    CHECK(s.journal.spared == NULL); /* no timer, and the mark went with the event */
    APPLY(&s, TOPIC, .name = TEXT("news"), .occurrence = 2, .until_ms = 9000);
    notify(&s, FACT(EVENT, .completion = (int64_t)s.run.journal, .value = TEXT("two")));
    CHECK(ask(&s, STET__FACT_TOPIC, "news") != NULL);
    cmd = ask(&s, STET__FACT_TOPIC, "news");
    CHECK(cmd->is_settled && cmd->code == 0);
    CHECK_INT(cmd->value.len, 3);
    CHECK(memcmp(cmd->value.data, "two", 3) == 0);
    CHECK(s.journal.spared == cmd);
    CHECK(cmd->had_timer && !cmd->has_timer && !cmd->has_mark);
    CHECK_INT(cmd->until_ms, 9000);
    subject_free(&s);
}

TEST(B9_a_wait_whose_time_was_up_leaves_its_mark_to_be_removed)
{
    subject    s;
    stet__cmd *cmd;
    int64_t    at;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, TOPIC, .name = TEXT("news"), .occurrence = 1, .until_ms = 9000);
    at = (int64_t)s.run.journal;
    notify(&s, FACT(TIMER, .completion = at));
    notify(&s, FACT(EVENT, .completion = at, .value = TEXT("late"))); /* changes nothing */
    CHECK_INT(s.journal.anomalies, 1);
    cmd = ask(&s, STET__FACT_TOPIC, "news");
    CHECK(cmd->is_settled && cmd->value.data == NULL);
    CHECK_INT(cmd->code, STET_ETIMEOUT);
    CHECK(s.journal.spared == cmd);
    CHECK(cmd->has_mark && !cmd->had_timer);
    subject_free(&s);
}

TEST(B9_a_wait_that_was_stopped_leaves_mark_and_timer_to_be_removed)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, TOPIC, .name = TEXT("news"), .occurrence = 1, .until_ms = 9000);
    APPLY(&s, TOPIC, .name = TEXT("news"), .occurrence = 1, .code = STET_ECANCELLED);
    cmd = ask(&s, STET__FACT_TOPIC, "news");
    CHECK(cmd->is_settled);
    CHECK_INT(cmd->code, STET_ECANCELLED);
    CHECK(s.journal.spared == cmd);
    CHECK(cmd->has_mark && cmd->had_timer);
    CHECK_INT(cmd->until_ms, 9000);
    subject_free(&s);
}

TEST(B9_an_emit_with_waiters_left_is_not_done)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, EMIT, .name = TEXT("news"), .occurrence = 1, .number = 100,
          .flags = STET__FACT_MORE);
    cmd = ask(&s, STET__FACT_EMIT, "news");
    CHECK(!cmd->is_settled);
    CHECK_INT(cmd->number, 100);
    APPLY(&s, EMIT, .name = TEXT("news"), .occurrence = 1, .number = 130);
    CHECK(cmd->is_settled);
    CHECK_INT(cmd->number, 130);
    CHECK(ask(&s, STET__FACT_EMIT, "news") == NULL); /* both were the same emit */
    subject_free(&s);
}

TEST(B15_a_decision_says_who_and_when_and_only_the_first_counts)
{
    subject    s;
    stet__cmd *cmd;
    int64_t    at;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, BOUNDARY, .name = TEXT("ship"), .occurrence = 1, .flags = STET__FACT_APPROVAL);
    at = (int64_t)s.run.journal;
    cmd = ask(&s, STET__FACT_BOUNDARY, "ship");
    CHECK(cmd->is_approval && cmd->has_mark && !cmd->is_settled);
    notify(&s, FACT(DECIDED, .completion = at, .time_ms = 7000, .who = TEXT("op"),
                    .code = STET_EREJECTED, .text = TEXT("too late")));
    notify(&s, FACT(DECIDED, .completion = at, .time_ms = 8000, .who = TEXT("another")));
    CHECK_INT(s.journal.anomalies, 1);
    CHECK(cmd->is_settled && !cmd->has_mark); /* the decision stands in the mark */
    CHECK(s.journal.spared == NULL);
    CHECK_INT(cmd->number, 7000);
    CHECK_INT(cmd->code, STET_EREJECTED);
    CHECK_STR(cmd->text, "too late");
    CHECK_STR(cmd->origin, "op");
    subject_free(&s);
}

TEST(B15_a_decision_of_nobody_in_particular)
{
    subject    s;
    stet__cmd *cmd;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, BOUNDARY, .name = TEXT("ship"), .occurrence = 1);
    notify(&s, FACT(DECIDED, .completion = (int64_t)s.run.journal, .time_ms = 7000));
    cmd = ask(&s, STET__FACT_BOUNDARY, "ship");
    CHECK(cmd->is_settled && !cmd->is_approval && cmd->code == 0);
    CHECK(cmd->origin == NULL);
    CHECK_INT(cmd->number, 7000);
    subject_free(&s);
}

static void
expect_binding(stet__fact_kind kind, bool is_binding)
{
    stet__fact fact = { .kind = kind, .name = TEXT("n"), .occurrence = 1, .number = 2 };
    stet__cmd *cmd;
    subject    s;

    subject_start(&s);
    subject_claim(&s);
    CHECK_OK(subject_apply(&s, fact));
    CHECK_INT(stet__journal_is_binding(kind), is_binding);
    CHECK_INT(s.journal.unasked, is_binding);
    CHECK((stet__journal_unasked(&s.journal) != NULL) == is_binding);
    cmd = ask(&s, kind, "n"); /* recorded: nothing is done again */
    CHECK(cmd != NULL && cmd->is_settled);
    CHECK_INT(cmd->number, 2);
    CHECK_INT(s.journal.unasked, 0);
    subject_free(&s);
}

TEST(B12_a_recorded_switch_must_be_asked_for)
{
    expect_binding(STET__FACT_SWITCH, true);
}

TEST(B13_a_recorded_note_may_be_gone_from_the_code)
{
    expect_binding(STET__FACT_NOTE, false);
}

TEST(B17_a_recorded_once_must_be_asked_for_and_a_look_need_not)
{
    expect_binding(STET__FACT_ONCE, true);
    expect_binding(STET__FACT_LOOK, false);
}

TEST(F1_a_command_is_found_without_being_asked_for)
{
    const stet__cmd *cmd;
    subject          s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP, .name = TEXT("a"), .occurrence = 1);
    APPLY(&s, STEP, .name = TEXT("a"), .occurrence = 3);
    CHECK(stet__journal_find(&s.journal, STET__FACT_STEP, "a", 0) == NULL);
    CHECK(stet__journal_find(&s.journal, STET__FACT_STEP, "a", 2) == NULL);
    CHECK(stet__journal_find(&s.journal, STET__FACT_STEP, "a", 4) == NULL);
    CHECK(stet__journal_find(&s.journal, STET__FACT_SLEEP, "a", 1) == NULL);
    cmd = stet__journal_find(&s.journal, STET__FACT_STEP, "a", 3);
    CHECK(cmd != NULL && cmd->occurrence == 3 && !cmd->is_asked);
    CHECK_INT(s.journal.unasked, 2);
    subject_free(&s);
}

/* ---- retries (A10) -------------------------------------------------------------------------------- */

static const stet__backoff backoff_normal = { 3, 1000, 30000, 200, 25 };

TEST(F1_many_occurrences_in_any_order)
{
    static const int64_t order[] = { 1, 2, 3, 4, 5, 40, 7, 6, 39 };
    subject              s;

    subject_start(&s);
    subject_claim(&s);
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        APPLY(&s, STEP, .name = TEXT("same"), .occurrence = order[i], .value = TEXT("v"));
    CHECK(stet__journal_peek(&s.journal, STET__FACT_STEP, "other") == NULL);
    for (int64_t i = 1; i <= 7; i++) {
        CHECK_INT(stet__journal_peek(&s.journal, STET__FACT_STEP, "same")->occurrence, i);
        CHECK(ask(&s, STET__FACT_STEP, "same") != NULL);
    }
    CHECK(ask(&s, STET__FACT_STEP, "same") == NULL); /* the eighth is new */
    APPLY(&s, STEP, .name = TEXT("one"), .occurrence = 1);
    CHECK(ask(&s, STET__FACT_STEP, "one") != NULL);
    CHECK(stet__journal_peek(&s.journal, STET__FACT_STEP, "one") == NULL);
    CHECK_INT(stet__journal_unasked(&s.journal)->occurrence, 40); /* it was recorded first */
    subject_free(&s);
}

TEST(F1_names_longer_than_any_and_none_at_all)
{
    static char long_name[400];
    subject     s;

    memset(long_name, 'n', sizeof long_name - 1);
    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STEP, .name = { long_name, sizeof long_name - 1 }, .occurrence = 1);
    APPLY(&s, NOW, .occurrence = 1, .number = 7);
    CHECK(ask(&s, STET__FACT_STEP, long_name) != NULL);
    CHECK_INT(ask(&s, STET__FACT_NOW, "")->number, 7);
    subject_free(&s);
}

TEST(F1_a_command_that_was_refused_is_settled_at_once)
{
    stet__cmd *cmd;
    subject    s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, CALL, .name = TEXT("shop.pay"), .occurrence = 1, .code = STET_EENDED, .text = TEXT("too late"));
    cmd = ask(&s, STET__FACT_CALL, "shop.pay");
    CHECK(cmd->is_settled);
    CHECK_INT(cmd->code, STET_EENDED);
    CHECK_STR(cmd->text, "too late");
    subject_free(&s);
}

TEST(F1_a_timer_for_what_has_none_is_an_anomaly)
{
    subject    s;
    stet__fact timer = FACT(TIMER, .completion = 3);

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, AWAKEABLE, .name = TEXT("a"), .occurrence = 1);
    CHECK_OK(stet__journal_apply(&s.journal, &timer));
    CHECK_INT(s.journal.anomalies, 1);
    CHECK(!ask(&s, STET__FACT_AWAKEABLE, "a")->is_settled);
    subject_free(&s);
}

TEST(C11_what_was_asked_for_inherited_or_only_read_is_no_contradiction)
{
    subject s;

    subject_start(&s);
    APPLY(&s, STEP, .name = TEXT("old"), .occurrence = 1, .flags = STET__FACT_INHERITED);
    subject_claim(&s);
    APPLY(&s, STEP, .name = TEXT("one"), .occurrence = 1);
    APPLY(&s, STATE_GET, .name = TEXT("n"), .occurrence = 1);
    APPLY(&s, STEP, .name = TEXT("left"), .occurrence = 1, .fingerprint = 5);
    CHECK(ask(&s, STET__FACT_STEP, "one") != NULL);
    CHECK(ask(&s, STET__FACT_SLEEP, "one") == NULL); /* the step was asked for: another thing */
    CHECK(ask(&s, STET__FACT_SLEEP, "old") == NULL); /* inherited */
    CHECK(ask(&s, STET__FACT_STATE_GET, "n") != NULL);
    CHECK(ask(&s, STET__FACT_SLEEP, "one") == NULL); /* its second: no such occurrence of a step */
    CHECK(ask(&s, STET__FACT_STEP, "left") != NULL); /* asked without a fingerprint */
    CHECK(stet__journal_unasked(&s.journal) == NULL);
    subject_free(&s);
}

TEST(C11_what_this_execution_added_is_no_contradiction)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    /* Reads that nobody asks for any more lie before and behind the step that matters. */
    for (int64_t i = 1; i <= 9; i++)
        APPLY(&s, NOW, .name = { &"abcdefghi"[i - 1], 1 }, .occurrence = 1);
    APPLY(&s, STEP, .name = TEXT("left"), .occurrence = 1);
    CHECK(stet__journal_add(&s.journal, STET__FACT_SLEEP, "fresh", 1, 0) != NULL);
    CHECK(ask(&s, STET__FACT_STEP, "fresh") == NULL);
    /* It is not taken from what is recorded and still to be asked for. */
    CHECK_INT(s.journal.unasked, 1);
    CHECK(ask(&s, STET__FACT_SLEEP, "fresh") != NULL);
    CHECK_INT(s.journal.unasked, 1);
    CHECK_STR(stet__journal_unasked(&s.journal)->name, "left");
    subject_free(&s);
}

TEST(F7_nothing_waits_after_it_was_stuck)
{
    subject s;

    subject_start(&s);
    subject_claim(&s);
    APPLY(&s, STUCK, .code = STET_EREPLAY, .text = TEXT("bent"));
    REFUSED(&s, SUSPENDED, .text = TEXT("a timer"));
    REFUSED(&s, ATTEMPT_FAILED, .code = -1, .until_ms = 5);
    subject_free(&s);
}

TEST(A10_waits_double_from_one_second_to_thirty)
{
    static const int64_t want[] = { 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000 };
    stet__backoff        plain = backoff_normal;

    plain.jitter_percent = 0;
    for (uint32_t i = 0; i < sizeof want / sizeof want[0]; i++)
        CHECK_INT(stet__backoff_ms(&plain, i + 1, 12345), want[i]);
    CHECK_INT(stet__backoff_ms(&plain, UINT32_MAX, 1), 30000);
}

TEST(A10_jitter_is_a_quarter_up_and_down_and_never_above_the_maximum)
{
    stet__backoff plain = backoff_normal;
    stet__rng     rng;

    plain.jitter_percent = 0;
    stet__rng_seed(&rng, 42);
    for (uint32_t failed = 1; failed <= 8; failed++) {
        int64_t base = stet__backoff_ms(&plain, failed, 0), least = INT64_MAX, most = 0;

        for (int i = 0; i < 20000; i++) {
            int64_t ms = stet__backoff_ms(&backoff_normal, failed, stet__rng_next(&rng));

            CHECK(ms >= base * 3 / 4 && ms <= base * 5 / 4 && ms <= 30000);
            least = ms < least ? ms : least;
            most = ms > most ? ms : most;
        }
        CHECK(least <= base * 76 / 100); /* and the whole width is used */
        CHECK(most >= (base * 124 / 100 < 30000 ? base * 124 / 100 : 30000));
    }
}

TEST(A10_extreme_policies_do_not_overflow)
{
    static const int64_t  numbers[] = { 0, 1, 99, 100, 101, 10000, INT32_MAX, INT64_MAX / 200, INT64_MAX - 1, INT64_MAX };
    static const uint64_t randoms[] = { 0, 1, UINT64_MAX / 2, UINT64_MAX };
    static const uint32_t failures[] = { 1, 2, 3, 64, 1000, UINT32_MAX };
    enum { N = sizeof numbers / sizeof numbers[0] };

    for (size_t first = 0; first < N; first++)
        for (size_t max = 0; max < N; max++)
            for (size_t factor = 0; factor < N; factor++)
                for (size_t f = 0; f < sizeof failures / sizeof failures[0]; f++)
                    for (size_t r = 0; r < sizeof randoms / sizeof randoms[0]; r++)
                        for (int64_t jitter = 0; jitter <= 100; jitter += 25) {
                            stet__backoff b = { 3, numbers[first], numbers[max], numbers[factor], jitter };
                            int64_t       ms = stet__backoff_ms(&b, failures[f], randoms[r]);

                            CHECK(ms >= 0 && ms <= numbers[max]);
                        }
}

TEST(C2_a_deferral_to_the_past_under_an_extreme_policy_is_one_for_ever)
{
    const stet__backoff endless = { 3, INT64_MAX, INT64_MAX, 200, 0 };

    CHECK_INT(stet__deferred_ms(&endless, 0, 1000, 0), INT64_MAX);
    CHECK_INT(stet__deferred_ms(&endless, INT64_MAX, 1000, 0), INT64_MAX);
}

/* A policy is read back from a file that anybody may have damaged. */
TEST(A10_policies_that_make_no_sense_give_a_wait_that_does)
{
    static const stet__backoff bad[] = { { 3, -5, 30000, 200, 25 },      { 3, 1000, -5, 200, 25 },
                                         { 3, 1000, 30000, -200, 25 },   { 3, 1000, 30000, 200, -25 },
                                         { 3, 1000, 30000, 200, 1000 },  { 3, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN },
                                         { 3, 1000, 30000, 200, INT64_MAX }, { 0, 0, 0, 0, 0 } };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (uint64_t random = 0; random < 1000; random += 7)
            for (uint32_t failed = 0; failed < 70; failed += 3) {
                int64_t ms = stet__backoff_ms(&bad[i], failed, random * UINT64_C(0x9E3779B97F4A7C15));

                CHECK(ms >= 0 && (ms <= bad[i].max_ms || ms == 0));
            }
}
