/* Manual boundaries (B15). tsan: yes */
#include "damage.h"
#include "engine/engine.h"
#include "fixture.h"

/* Asks a manager, then pauses, then says who decided what. */
static int
h_asks(stet_ctx *ctx, stet_bytes input)
{
    stet_decision approval, pause;

    STET_TRY(stet_approve(ctx, &approval, "manager", input));
    effect("approved by %s", approval.by);
    STET_TRY(stet_pause(ctx, &pause, "stocktaking", stet_text("")));
    CHECK(approval.time_ms > 0 && pause.time_ms >= approval.time_ms);
    return stet_return(
        ctx, stet_text(stet_ctx_printf(ctx, "%s (%s), %s (%s)", approval.by, approval.note,
                                       pause.by, pause.note != NULL ? pause.note : "-")));
}

/* What becomes of one that is rejected. */
static int
h_rejected(stet_ctx *ctx, stet_bytes input)
{
    stet_decision d;
    int           rc = stet_approve(ctx, &d, "manager", input);

    if (rc != STET_EREJECTED)
        return rc;
    CHECK(!d.is_approved);
    return stet_return(
        ctx, stet_text(stet_ctx_printf(ctx, "%s: %s", d.by, stet_failure_get(ctx)->text)));
}

static int
h_misuses(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    CHECK_CODE(stet_approve(ctx, NULL, "", stet_text("")), STET_ENAME);
    CHECK_CODE(stet_pause(ctx, NULL, "__x", stet_text("")), STET_ENAME);
    CHECK_CODE(stet_approve(ctx, NULL, "big", (stet_bytes){ "x", 3000 }), STET_ETOOBIG);
    return STET_OK;
}

/* Two people, one behind the other. */
static int
h_both(stet_ctx *ctx, stet_bytes input)
{
    stet_decision one, two;

    STET_TRY(stet_approve(ctx, &one, "manager", input));
    STET_TRY(stet_approve(ctx, &two, "director", input));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%s, %s", one.by, two.by)));
}

static const stet_handler handlers[] = { { "asks", h_asks, NULL },
                                         { "both", h_both, NULL },
                                         { "rejected", h_rejected, NULL },
                                         { "wrong", h_misuses, NULL },
                                         { 0 } };

typedef struct seen {
    int  n;
    char text[512];
} seen;

static int
on_boundary(void *arg, const stet_boundary *b)
{
    seen *s = arg;

    s->n++;
    (void)snprintf(s->text, sizeof s->text, "%s %s %d %.*s", b->run, b->name, b->is_approval,
                   (int)b->metadata.len, (const char *)b->metadata.data);
    CHECK(b->since_ms > 0);
    return STET_OK;
}

static seen
waiting(fixture *f)
{
    seen s = { 0 };

    CHECK_OK(stet_boundary_list(f->engine, on_boundary, &s));
    return s;
}

TEST(B15_a_run_waits_for_an_approval_and_then_for_a_resume_across_restarts)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    char        want[256];

    f->options.parked_max = STET_NONE;
    fixture_up_with(f, handlers);
    CHECK_INT(waiting(f).n, 0);
    run = fixture_start(f->engine, "t.asks", "{\"amount\":5}", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    (void)snprintf(want, sizeof want, "%s manager 1 {\"amount\":5}", run.text);
    CHECK_STR(waiting(f).text, want);
    CHECK_HAS(fixture_why(f->engine, &run).text, "approve or reject manager");
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_OK(stet_run_approve(f->engine, &run, "the boss", "fine with me"));
    effects_await("approved by the boss", 1);
    AWAIT(waiting(f).n == 1 && strstr(waiting(f).text, "stocktaking 0") != NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_resume(f->engine, &run, "the clerk", NULL));
    EXPECT_RESULT(f->engine, &run, "the boss (fine with me), the clerk (-)");
    CHECK_INT(waiting(f).n, 0);
    fixture_end(f);
}

TEST(B15_a_rejection_reaches_the_handler_with_who_and_why)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.rejected", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_reject(f->engine, &run, "the boss", "too dear"));
    EXPECT_RESULT(f->engine, &run, "the boss: too dear");
    fixture_end(f);
}

TEST(B15_a_second_decision_is_refused_with_who_decided_and_one_of_the_wrong_kind_with_the_right_one)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.asks", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_CODE(stet_run_resume(f->engine, &run, "x", NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "`stet approve ");
    CHECK_HAS(stet_last_error(), "` or `stet reject ");
    fixture_down(f);
    f->options.roles = STET_ROLE_CLIENT; /* nobody takes the decision in */
    f->engine = fixture_open(f);
    CHECK_OK(stet_run_approve(f->engine, &run, "the boss", "yes"));
    CHECK_CODE(stet_run_reject(f->engine, &run, "another", "no"), STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "manager was approved by the boss at 2");
    CHECK_HAS(stet_last_error(), ": yes");
    stet_close(f->engine);
    f->engine = NULL;
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    AWAIT(waiting(f).n == 1);
    CHECK_CODE(stet_run_approve(f->engine, &run, "x", NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "is a pause, not an approval: `stet resume run_");
    CHECK_CODE(stet_run_decide(f->engine, &run, "board", true, "x", NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "does not wait for board, but for the pause ");
    CHECK_HAS(stet_last_error(), ": `stet resume run_");
    CHECK_OK(stet_run_resume(f->engine, &run, "x", "y"));
    EXPECT_RESULT(f->engine, &run, "the boss (yes), x (y)");
    CHECK_CODE(stet_run_resume(f->engine, &run, NULL, NULL), STET_EENDED);
    fixture_end(f);
}

TEST(B15_a_second_decision_about_a_run_that_has_ended_is_refused_with_who_decided)
{
    fixture    *f = fixture_begin();
    stet_run_id run, rejected, unasked;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.asks", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_approve(f->engine, &run, "the boss", "fine"));
    AWAIT(waiting(f).n == 1 && strstr(waiting(f).text, "stocktaking 0") != NULL);
    CHECK_OK(stet_run_resume(f->engine, &run, "the clerk", NULL));
    EXPECT_RESULT(f->engine, &run, "the boss (fine), the clerk (-)");
    CHECK_CODE(stet_run_reject(f->engine, &run, "another", NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "has ended (completed): manager was approved by the boss at 2");
    CHECK_HAS(stet_last_error(), ": fine");
    CHECK_CODE(stet_run_resume(f->engine, &run, "another", NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "stocktaking was resumed by the clerk at 2");
    rejected = fixture_start(f->engine, "t.rejected", "", NULL);
    fixture_await_status(f->engine, &rejected, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_reject(f->engine, &rejected, "the boss", "too dear"));
    EXPECT_RESULT(f->engine, &rejected, "the boss: too dear");
    CHECK_CODE(stet_run_approve(f->engine, &rejected, "another", NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "manager was rejected by the boss at 2");
    CHECK_CODE(stet_run_resume(f->engine, &rejected, "another", NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "nothing is left to decide");
    unasked = fixture_start(f->engine, "t.asks", "", NULL);
    fixture_await_status(f->engine, &unasked, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &unasked, NULL, NULL));
    fixture_await_status(f->engine, &unasked, STET_STATUS_CANCELLED);
    CHECK_CODE(stet_run_approve(f->engine, &unasked, "x", NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "nothing is left to decide");
    fixture_end(f);
}

typedef struct race {
    stet_engine *e;
    stet_run_id  run;
    atomic_int   won, lost;
} race;

static void
decide(void *arg, int i)
{
    race *r = arg;
    char  who[16];
    int   rc;

    (void)snprintf(who, sizeof who, "clerk %d", i);
    rc = i % 2 == 0 ? stet_run_approve(r->e, &r->run, who, NULL)
                    : stet_run_reject(r->e, &r->run, who, NULL);
    if (rc == STET_OK)
        atomic_fetch_add(&r->won, 1);
    else if (rc == STET_ESETTLED)
        atomic_fetch_add(&r->lost, 1);
}

/* A click that comes twice is not for the next one. */
TEST(B15_a_decision_by_name_is_for_that_boundary_only)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.both", "", NULL);
    AWAIT(stet_run_decide(f->engine, &run, "director", true, "ann", NULL) == STET_ESTATE &&
          strstr(stet_last_error(), "but for the approval manager: `stet approve run_") != NULL);
    CHECK_HAS(stet_last_error(), " --name manager` or `stet reject run_");
    CHECK_OK(stet_run_decide(f->engine, &run, "manager", true, "ann", "fine"));
    AWAIT(strstr(waiting(f).text, "director") != NULL);
    CHECK_CODE(stet_run_decide(f->engine, &run, "manager", true, "ann", "again"), STET_ESETTLED);
    CHECK_HAS(stet_last_error(), "manager was approved by ann");
    CHECK_HAS(stet_last_error(), "fine");
    CHECK_CODE(stet_run_decide(f->engine, &run, "", true, "ann", NULL), STET_ENAME);
    CHECK_CODE(stet_run_decide(f->engine, &run, NULL, true, "ann", NULL), STET_ENAME);
    CHECK_OK(stet_run_decide(f->engine, &run, "director", true, "bo", NULL));
    EXPECT_RESULT(f->engine, &run, "ann, bo");
    CHECK_CODE(stet_run_decide(f->engine, &run, "manager", false, "ann", NULL), STET_EENDED);
    CHECK_HAS(stet_last_error(), "manager was approved by ann");
    fixture_end(f);
}

TEST(B15_of_many_who_decide_at_once_one_does)
{
    fixture *f = fixture_begin();
    race     r = { .won = 0 };

    f->options.roles = STET_ROLE_CLIENT;
    r.e = fixture_open(f);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    r.run = fixture_start(f->engine, "t.asks", "", NULL);
    fixture_await_status(f->engine, &r.run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_race(8, decide, &r);
    CHECK_INT(r.won, 1);
    CHECK_INT(r.lost, 7);
    stet_close(r.e);
    fixture_up_with(f, handlers);
    fixture_end(f);
}

TEST(B15_a_cancel_ends_the_wait_and_nothing_is_left_to_decide)
{
    fixture    *f = fixture_begin();
    stet_run_id run, none = { "run_00000000000000000000000001" }, quick;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.asks", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_CANCELLED);
    CHECK_INT(waiting(f).n, 0);
    CHECK_CODE(stet_run_approve(f->engine, &run, NULL, NULL), STET_EENDED);
    CHECK_CODE(stet_run_approve(f->engine, &none, NULL, NULL), STET_ENOTFOUND);
    quick = fixture_start(f->engine, "t.asks", "", STET_START(.delay = "1h"));
    CHECK_CODE(stet_run_approve(f->engine, &quick, NULL, NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "waits for no decision");
    fixture_end(f);
}

TEST(B15_bad_names_and_metadata_are_refused_and_nothing_is_recorded)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.payload_bytes_max = 1000;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.wrong", "", NULL);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_INT(fixture_facts(f->engine, &run, "decision wait", NULL), 0);
    fixture_end(f);
}

/* ---- a decision that was on its way ---------------------------------------------------------- */

static int
h_reserves(stet_ctx *ctx, stet_bytes input)
{
    stet_decision d;

    STET_TRY(stet_step(ctx, NULL, "reserve", body_effect, "reserve", NULL));
    STET_TRY(stet_approve(ctx, &d, "manager", input));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%s", d.by)));
}

static const stet_handler late_handlers[] = { { "reserves", h_reserves, NULL }, { 0 } };

typedef struct late {
    stet_engine *e;
    stet_run_id  run;
    int          rc;
} late;

static gate               late_door = GATE_INIT;
static _Thread_local bool is_late;
static int (*late_value)(stet_store *s, const char *space, stet_bytes key, stet_value *value);

/* What the manager has read is old when the door opens. */
static int
value_late(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    int err = late_value(s, space, key, value);

    if (is_late && strcmp(space, STET__SPACE_BOUNDARY) == 0) {
        is_late = false;
        gate_pass(&late_door);
    }
    return err;
}

static void *
late_approve(void *arg)
{
    late *l = arg;

    is_late = true;
    l->rc = stet_run_approve(l->e, &l->run, "manager", NULL);
    return NULL;
}

/* The mark of the new boundary counts its versions anew: it looks like the one that was read. */
TEST(B15_C8_a_decision_that_was_on_its_way_when_the_run_was_rewound_is_for_what_it_waits_for_now)
{
    fixture  *f = fixture_begin();
    pthread_t manager;
    late      l;

    f->engine = fixture_open(f);
    late_value = f->engine->store->ops->value;
    damage_ops(f->engine)->value = value_late;
    CHECK_OK(stet_register(f->engine, "t", late_handlers));
    CHECK_OK(stet_engine_start(f->engine));
    l.e = f->engine;
    l.run = fixture_start(f->engine, "t.reserves", "", NULL);
    fixture_await_status(f->engine, &l.run, STET_STATUS_SUSPENDED);
    CHECK_INT(pthread_create(&manager, NULL, late_approve, &l), 0);
    gate_await(&late_door, 1);
    CHECK_OK(stet_run_rewind(f->engine, &l.run, "reserve", NULL, NULL));
    effects_await("reserve", 2);
    AWAIT(waiting(f).n == 1);
    fixture_await_status(f->engine, &l.run, STET_STATUS_SUSPENDED);
    gate_open(&late_door);
    CHECK_INT(pthread_join(manager, NULL), 0);
    CHECK_OK(l.rc);
    EXPECT_RESULT(f->engine, &l.run, "manager");
    fixture_end(f);
}

/* ---- a pause that was left by a stop and rewound --------------------------------------------- */

static gate tidy_door = GATE_INIT;

static int
h_tidies(stet_ctx *ctx, stet_bytes input)
{
    stet_decision d;
    int           rc = stet_pause(ctx, &d, "stocktaking", input);

    if (rc == STET_ECANCELLED) {
        STET_TRY(stet_step(ctx, NULL, "tidy", body_gate, &tidy_door, NULL));
        return rc;
    }
    STET_TRY(rc);
    return stet_step(ctx, NULL, "late", body_effect, (void *)"late", NULL);
}

/* It had begun before the step of the rewind and ended behind it, so it was forgotten with its
 * mark, and the wait that was asked for instead never had one. The simulator found it. */
TEST(B15_C8_I2_a_pause_that_began_before_a_rewind_and_was_left_behind_it_has_no_mark)
{
    static const stet_handler tidy[] = { { "tidies", h_tidies, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, tidy);
    run = fixture_start(f->engine, "t.tidies", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_skip(f->engine, &run, "late#1", stet_text("given"), NULL, NULL));
    AWAIT(fixture_facts(f->engine, &run, "suspended", NULL) == 2);
    CHECK_OK(stet_cancel(f->engine, &run, NULL, NULL));
    gate_await(&tidy_door, 1);
    CHECK_OK(stet_run_rewind(f->engine, &run, "late", NULL, NULL));
    gate_open(&tidy_door);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}
