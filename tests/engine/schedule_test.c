/* Schedules (E1 to E5, I10): made, fired once, changed, kept across restarts. tsan: yes */
#include "damage.h"
#include "engine/schedule.h"
#include "fixture.h"

#define MINUTE INT64_C(60000)
#define DAY    (24 * 60 * MINUTE)

/* Tells "ran", and its input, and returns. */
static int
h_ticks(stet_ctx *ctx, stet_bytes input)
{
    char line[64];

    (void)snprintf(line, sizeof line, "ran %.*s", (int)input.len, (const char *)input.data);
    STET_TRY(stet_step(ctx, NULL, "tell", body_effect, line, NULL));
    return stet_return(ctx, input);
}

static const stet_handler handlers[] = { { "tick", h_ticks, NULL },
                                         { "pauses", h_pauses, NULL },
                                         { 0 } };

static stet_schedule_change
ensure(stet_engine *e, const char *name, const char *handler, const stet_schedule_options *o)
{
    stet_schedule_change change;

    CHECK_OK(stet_schedule_ensure(e, &change, name, handler, stet_text(name), o));
    return change;
}

/* A copy of what stet_schedule_get() says. */
typedef struct seen {
    int64_t  next_ms, last_ms, waiting_ms, every_ms, at_ms;
    uint64_t fired, skipped;
    bool     is_paused, is_done, is_running;
    char     text[256], error[256], input[64], zone[64];
    stet_run_id run;
} seen;

static int
on_schedule(void *arg, const stet_schedule_info *i)
{
    seen *s = arg;

    memset(s, 0, sizeof *s);
    s->next_ms = i->next_ms;
    s->last_ms = i->last_ms;
    s->waiting_ms = i->waiting_ms;
    s->every_ms = i->every_ms;
    s->at_ms = i->at_ms;
    s->fired = i->fired;
    s->skipped = i->skipped;
    s->is_paused = i->is_paused;
    s->is_done = i->is_done;
    s->is_running = i->is_running;
    (void)snprintf(s->text, sizeof s->text, "%s", i->text);
    (void)snprintf(s->error, sizeof s->error, "%s", i->error != NULL ? i->error : "");
    (void)snprintf(s->zone, sizeof s->zone, "%s", i->zone != NULL ? i->zone : "");
    (void)snprintf(s->input, sizeof s->input, "%.*s", (int)i->input.len,
                   (const char *)i->input.data);
    (void)snprintf(s->run.text, sizeof s->run.text, "%s", i->last_run != NULL ? i->last_run : "");
    return STET_OK;
}

static seen
look(stet_engine *e, const char *name)
{
    seen s;

    CHECK_OK(stet_schedule_get(e, name, on_schedule, &s));
    return s;
}

typedef struct past {
    size_t   n, ran, waits, skipped; /* entries, … of them */
    uint64_t count[STET_SKIP_CHANGED + 1];
    int64_t  newest_ms, oldest_ms;
    char     runs[64][STET_ID_TEXT_MAX];
    char     text[256]; /* of the newest */
} past;

static int
on_occurrence(void *arg, const stet_occurrence_info *i)
{
    past *p = arg;

    if (p->n == 0) {
        p->newest_ms = i->planned_ms;
        (void)snprintf(p->text, sizeof p->text, "%s", i->text);
    } else
        CHECK(i->planned_ms < p->oldest_ms); /* newest first, each once */
    p->oldest_ms = i->planned_ms;
    p->n++;
    CHECK(i->until_ms >= i->planned_ms);
    if (i->outcome == STET_OCCURRENCE_RAN && p->ran < 64)
        (void)snprintf(p->runs[p->ran], sizeof p->runs[0], "%s", i->run);
    p->ran += i->outcome == STET_OCCURRENCE_RAN;
    p->waits += i->outcome == STET_OCCURRENCE_WAITS;
    p->skipped += i->outcome == STET_OCCURRENCE_SKIPPED;
    p->count[i->skip] += i->count;
    return STET_OK;
}

static past
history(stet_engine *e, const char *name)
{
    past p = { .n = 0 };

    CHECK_OK(stet_schedule_history(e, name, STET_SCHEDULE_HISTORY_MAX, on_occurrence, &p));
    return p;
}

static int
runs_of(stet_engine *e, const char *handler)
{
    return fixture_count(e, STET_FILTER(.handler = handler, .limit = 10000));
}

/* The schedule as if it had been made `back_ms` earlier and nobody had looked since: what a
 * process that was down for that long finds. */
static void
set_back(fixture *f, const char *name, int64_t back_ms)
{
    stet_store *store = damage_open(f);
    stet_value  value = { 0 };
    stet__arena arena;
    stet__sched s;
    stet__buf   b;
    stet_op     ops[3] = { { .kind = STET_OP_VALUE_PUT, .space = STET__SPACE_BASE_SCHED },
                           { .kind = STET_OP_VALUE_DEL },
                           { .kind = STET_OP_VALUE_PUT } };

    stet__arena_init(&arena, store->alloc);
    stet__buf_init(&b, store->alloc);
    CHECK_OK(store->ops->value(store, STET__SPACE_BASE_SCHED, stet_text(name), &value));
    CHECK_OK(stet__sched_decode(&arena, name, &value, &s));
    ops[1].space = ops[2].space = stet__sched_index(&arena, &s, &s.f, &ops[1].key);
    s.f.until_ms -= back_ms;
    s.f.look_ms -= back_ms;
    if (s.f.at_ms != 0)
        s.f.at_ms -= back_ms;
    (void)stet__sched_index(&arena, &s, &s.f, &ops[2].key);
    stet__fact_encode(&b, &s.f);
    ops[0].key = stet_text(name);
    ops[0].data = stet__buf_bytes(&b);
    ops[0].run = s.id;
    ops[0].number = s.edition + 1;
    ops[2].data = stet_text("");
    ops[2].number = 1;
    CHECK_INT(damage_try(store, NULL, 0, ops, 3).result, STET_OK);
    stet__free(store->alloc, (void *)(uintptr_t)value.data.data);
    stet__buf_free(&b);
    stet__arena_free(&arena);
    stet__store_close(store);
}

/* A client, which fires nothing, for making schedules before a worker is there. */
static void
up_without_timers(fixture *f)
{
    uint32_t roles = f->options.roles;

    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    CHECK_OK(stet_engine_start(f->engine));
    f->options.roles = roles;
}

/* ---- firing ---------------------------------------------------------------------------------- */

TEST(E3_an_interval_fires_one_run_for_each_planned_time)
{
    fixture *f = fixture_begin();
    past     p;
    seen     s;

    fixture_up_with(f, handlers);
    CHECK_INT(ensure(f->engine, "pulse", "t.tick", STET_SCHEDULE(.every = "100ms")),
              STET_SCHEDULE_CREATED);
    effects_await("ran pulse", 3);
    CHECK_OK(stet_schedule_pause(f->engine, "pulse", "test"));
    s = look(f->engine, "pulse");
    p = history(f->engine, "pulse");
    CHECK_INT(s.fired, p.ran);
    CHECK_INT(runs_of(f->engine, "t.tick"), p.ran);
    CHECK_INT(s.skipped, p.count[STET_SKIP_OVERLAP] + p.count[STET_SKIP_MISSED]);
    CHECK(s.is_paused);
    CHECK_HAS(s.text, "paused by test");
    AWAIT(effects("ran pulse") == (int)p.ran);
    fixture_end(f);
}

TEST(E3_a_one_time_schedule_fires_once_and_stays_over_at_every_boot)
{
    fixture                     *f = fixture_begin();
    const stet_schedule_options *soon = STET_SCHEDULE(.after = "20ms");
    seen                         s;

    fixture_up_with(f, handlers);
    CHECK_INT(ensure(f->engine, "once", "t.tick", soon), STET_SCHEDULE_CREATED);
    effects_await("ran once", 1);
    AWAIT(look(f->engine, "once").is_done);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_INT(ensure(f->engine, "once", "t.tick", soon), STET_SCHEDULE_UNCHANGED);
    s = look(f->engine, "once");
    CHECK_INT(s.fired, 1);
    CHECK_INT(s.next_ms, 0);
    CHECK_HAS(s.text, "over");
    CHECK_INT(history(f->engine, "once").ran, 1);
    CHECK_INT(runs_of(f->engine, "t.tick"), 1);
    fixture_end(f);
}

TEST(E3_a_run_says_which_schedule_started_it_and_for_when)
{
    fixture    *f = fixture_begin();
    seen        s;
    fixture_run run;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "known", "t.tick",
                 STET_SCHEDULE(.after_ms = 1, .timeout = "1h", .priority = 3, .group = "g"));
    effects_await("ran known", 1);
    s = look(f->engine, "known");
    EXPECT_RESULT(f->engine, &s.run, "known");
    run = fixture_look(f->engine, &s.run);
    CHECK_INT(run.priority, 3);
    CHECK_STR(run.group, "g");
    CHECK_INT(run.deadline_ms, run.created_ms + 3600000);
    CHECK(run.created_ms >= s.last_ms);
    fixture_end(f);
}

static void
race_engines(stet_engine *engines[4], fixture *f)
{
    for (int i = 0; i < 4; i++) {
        engines[i] = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL },
                                                               { 0 } });
        CHECK_OK(stet_engine_start(engines[i]));
    }
}

TEST(E3_many_pollers_start_one_run_for_each_firing)
{
    fixture     *f = fixture_begin();
    stet_engine *engines[4];
    size_t       ran = 0;

    fixture_up_with(f, handlers);
    for (int i = 0; i < 20; i++) { /* all due at the same moments */
        char name[16];

        (void)snprintf(name, sizeof name, "s%d", i);
        (void)ensure(f->engine, name, "t.tick",
                     STET_SCHEDULE(.every = "100ms", .overlap = STET_OVERLAP_ALLOW,
                                   .missed = STET_MISSED_ALL));
    }
    race_engines(engines, f);
    for (int i = 0; i < 20; i++) {
        char line[16];

        (void)snprintf(line, sizeof line, "ran s%d", i);
        effects_await(line, 3);
    }
    for (int i = 0; i < 20; i++) {
        char name[16], line[16];
        past p;

        (void)snprintf(name, sizeof name, "s%d", i);
        (void)snprintf(line, sizeof line, "ran s%d", i);
        CHECK_OK(stet_schedule_pause(f->engine, name, NULL));
        p = history(f->engine, name);
        CHECK_INT(look(f->engine, name).fired, p.ran);
        AWAIT(effects(line) == (int)p.ran);
        ran += p.ran;
    }
    CHECK_INT(runs_of(f->engine, "t.tick"), ran);
    for (int i = 0; i < 4; i++)
        stet_close(engines[i]);
    fixture_end(f);
}

TEST(E3_the_handler_need_not_be_known_where_it_is_fired)
{
    static const stet_handler other[] = { { "echo", h_echo, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *worker;
    seen                      s;

    fixture_up(f, (fixture_service[]){ { "else", other, false, NULL }, { 0 } });
    (void)ensure(f->engine, "far", "t.tick", STET_SCHEDULE(.after_ms = 1));
    AWAIT(look(f->engine, "far").fired == 1);
    s = look(f->engine, "far");
    CHECK_INT(fixture_look(f->engine, &s.run).status, STET_STATUS_PENDING);
    f->options.roles = STET_ROLE_WORKER;
    worker = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_start(worker));
    EXPECT_RESULT(worker, &s.run, "far");
    stet_close(worker);
    fixture_end(f);
}

TEST(E3_a_schedule_made_by_a_client_is_noticed_by_a_worker)
{
    fixture     *f = fixture_begin();
    stet_engine *client;

    fixture_up_with(f, handlers);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    (void)ensure(client, "told", "t.tick", STET_SCHEDULE(.after_ms = 5));
    effects_await("ran told", 1);
    stet_close(client);
    fixture_end(f);
}

/* Until it has looked at everything and asks the store for nothing any more. */
static void
rest(stet_engine *e)
{
    uint64_t reads;

    do {
        reads = stet_engine_reads(e);
        for (int i = 0; i < 50; i++)
            fixture_breathe();
    } while (stet_engine_reads(e) != reads);
}

/* A queue that says what it is about, and nobody polls. */
TEST(E3_a_hint_tells_a_worker_of_a_schedule_that_was_made_elsewhere)
{
    fixture     *f = fixture_begin();
    stet_engine *client;

    f->options.queue = "local";
    f->options.poll_ms = 3600000;
    fixture_up_with(f, handlers);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    CHECK_OK(stet_engine_start(client));
    rest(f->engine);
    (void)ensure(client, "first", "t.tick", STET_SCHEDULE(.after_ms = 5));
    effects_await("ran first", 1);
    (void)ensure(client, "second", "t.tick", STET_SCHEDULE(.every = "100ms"));
    effects_await("ran second", 2);
    CHECK_OK(stet_schedule_remove(client, "second"));
    stet_close(client);
    fixture_end(f);
}

/* ---- missed ---------------------------------------------------------------------------------- */

/* Made a day ago, and nobody was there; then a worker comes. */
static void
down_for_a_day(fixture *f, const char *name, const stet_schedule_options *o)
{
    up_without_timers(f);
    (void)ensure(f->engine, name, "t.tick", o);
    fixture_down(f);
    set_back(f, name, DAY);
    fixture_up_with(f, handlers);
    AWAIT(look(f->engine, name).next_ms > stet_engine_now_ms(f->engine));
}

TEST(E4_down_for_a_day_fires_once_by_default)
{
    fixture *f = fixture_begin();
    past     p;

    down_for_a_day(f, "hourly", STET_SCHEDULE(.every = "1h"));
    effects_await("ran hourly", 1);
    p = history(f->engine, "hourly");
    CHECK_INT(p.ran, 1);
    CHECK_INT(p.count[STET_SKIP_MISSED], 23);
    CHECK_INT(p.n, 2); /* all that were missed are one entry */
    CHECK_STR(p.text, "started");
    CHECK_INT(look(f->engine, "hourly").skipped, 23);
    CHECK_INT(runs_of(f->engine, "t.tick"), 1);
    fixture_down(f); /* and not again */
    fixture_up_with(f, handlers);
    CHECK_INT(look(f->engine, "hourly").fired, 1);
    CHECK_INT(runs_of(f->engine, "t.tick"), 1);
    fixture_end(f);
}

TEST(E4_down_for_a_day_skip_starts_nothing_and_says_why)
{
    fixture *f = fixture_begin();
    past     p;

    down_for_a_day(f, "hourly",
                   STET_SCHEDULE(.every = "1h", .missed = STET_MISSED_SKIP, .grace_ms = 0));
    p = history(f->engine, "hourly");
    CHECK_INT(p.ran + p.waits, p.count[STET_SKIP_NONE]);
    /* The last one fell due when the schedule was set back: it is in time, or a moment late. */
    CHECK_INT(p.count[STET_SKIP_MISSED], 23);
    CHECK_INT(p.count[STET_SKIP_LATE] + p.ran, 1);
    fixture_end(f);
}

TEST(E4_down_for_a_day_all_fires_the_last_n)
{
    fixture *f = fixture_begin();
    past     p;

    down_for_a_day(f, "hourly",
                   STET_SCHEDULE(.every = "1h", .missed = STET_MISSED_ALL, .missed_max = 5,
                                 .overlap = STET_OVERLAP_ALLOW));
    effects_await("ran hourly", 5);
    p = history(f->engine, "hourly");
    CHECK_INT(p.ran, 5);
    CHECK_INT(p.count[STET_SKIP_LIMIT], 19);
    CHECK_INT(runs_of(f->engine, "t.tick"), 5);
    CHECK_INT(effects("ran hourly"), 5);
    fixture_end(f);
}

TEST(E4_a_time_in_the_past_is_a_missed_one)
{
    fixture *f = fixture_begin();
    int64_t  now_ms;

    fixture_up_with(f, handlers);
    now_ms = stet_engine_now_ms(f->engine);
    (void)ensure(f->engine, "late", "t.tick", STET_SCHEDULE(.at_ms = now_ms - DAY));
    (void)ensure(f->engine, "over", "t.tick",
                 STET_SCHEDULE(.at_ms = now_ms - DAY, .missed = STET_MISSED_SKIP));
    effects_await("ran late", 1);
    AWAIT(look(f->engine, "over").is_done);
    CHECK_INT(look(f->engine, "over").fired, 0);
    CHECK_INT(history(f->engine, "over").count[STET_SKIP_LATE], 1);
    CHECK_HAS(history(f->engine, "over").text, "grace");
    CHECK_HAS(look(f->engine, "over").text, "will not fire");
    fixture_end(f);
}

/* ---- overlap --------------------------------------------------------------------------------- */

/* A schedule whose first run is open. */
static stet_run_id
busy(fixture *f, const char *name, stet_overlap overlap)
{
    seen s;

    (void)ensure(f->engine, name, "t.pauses",
                 STET_SCHEDULE(.every = "100ms", .overlap = overlap, .missed = STET_MISSED_ALL));
    AWAIT(look(f->engine, name).fired >= 1);
    s = look(f->engine, name);
    return s.run;
}

TEST(E4_overlap_skip_starts_no_second_run_while_one_is_open)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    past        p;

    fixture_up_with(f, handlers);
    run = busy(f, "s", STET_OVERLAP_SKIP);
    fixture_paused(f->engine, &run);
    AWAIT(look(f->engine, "s").skipped >= 2);
    CHECK_INT(look(f->engine, "s").fired, 1);
    CHECK_STR(look(f->engine, "s").run.text, run.text);
    p = history(f->engine, "s");
    CHECK_INT(p.ran, 1);
    CHECK(p.count[STET_SKIP_OVERLAP] >= 2);
    CHECK_HAS(p.text, run.text);
    CHECK_HAS(p.text, "still open");
    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, "s").fired >= 2);
    CHECK_OK(stet_schedule_remove(f->engine, "s"));
    fixture_end(f);
}

TEST(E4_overlap_queue_starts_the_one_that_waits_when_the_other_ends)
{
    fixture    *f = fixture_begin();
    stet_run_id run, second;
    seen        s;
    past        p;

    fixture_up_with(f, handlers);
    run = busy(f, "q", STET_OVERLAP_QUEUE);
    fixture_paused(f->engine, &run);
    AWAIT(look(f->engine, "q").skipped >= 1); /* one waits, the next finds it waiting */
    CHECK_OK(stet_schedule_update(f->engine, NULL, "q", NULL, STET_SCHEDULE(.every = "1h")));
    s = look(f->engine, "q");
    CHECK(s.waiting_ms != 0);
    CHECK_INT(s.fired, 1);
    CHECK_HAS(s.text, "one waits for the end of");
    CHECK_INT(history(f->engine, "q").waits, 1);
    fixture_down(f); /* it waits through a restart */
    fixture_up_with(f, handlers);
    CHECK_INT(look(f->engine, "q").fired, 1);
    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, "q").fired == 2);
    s = look(f->engine, "q");
    second = s.run;
    CHECK_INT(s.waiting_ms, 0);
    CHECK(strcmp(second.text, run.text) != 0);
    fixture_paused(f->engine, &second);
    fixture_go_on(f->engine, &second);
    EXPECT_RESULT(f->engine, &second, "q");
    p = history(f->engine, "q");
    CHECK_INT(p.ran, 2);
    CHECK_INT(p.waits, 0);
    CHECK(p.count[STET_SKIP_QUEUED] >= 1);
    CHECK_INT(look(f->engine, "q").fired, 2);
    fixture_end(f);
}

TEST(E4_overlap_cancel_ends_the_old_run_and_starts_the_new_one)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    seen        s;

    fixture_up_with(f, handlers);
    run = busy(f, "c", STET_OVERLAP_CANCEL);
    AWAIT(look(f->engine, "c").fired >= 2);
    CHECK_OK(stet_schedule_pause(f->engine, "c", NULL));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    s = look(f->engine, "c");
    CHECK(s.is_running);
    CHECK_INT(s.skipped, 0);
    fixture_paused(f->engine, &s.run);
    fixture_go_on(f->engine, &s.run);
    EXPECT_RESULT(f->engine, &s.run, "c");
    CHECK_INT(history(f->engine, "c").ran, s.fired);
    CHECK_INT(runs_of(f->engine, "t.pauses"), s.fired);
    fixture_end(f);
}

TEST(E4_overlap_cancel_also_ends_a_run_that_nobody_has_begun)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers); /* serves no such service */
    (void)ensure(f->engine, "c", "other.one",
                 STET_SCHEDULE(.every = "100ms", .overlap = STET_OVERLAP_CANCEL));
    AWAIT(look(f->engine, "c").fired >= 1);
    run = look(f->engine, "c").run;
    AWAIT(look(f->engine, "c").fired >= 3);
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    CHECK_OK(stet_schedule_pause(f->engine, "c", NULL));
    CHECK_INT(fixture_count(f->engine,
                            STET_FILTER(.handler = "other.one",
                                        .statuses = 1u << STET_STATUS_PENDING)),
              1);
    fixture_end(f);
}

static gate sched_door = GATE_INIT;

static int
h_gated(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "gate", body_gate, &sched_door, NULL));
    return stet_return(ctx, input);
}

/* It is in a body, and has not learnt of it. */
TEST(E4_A5_who_waits_for_a_run_that_was_cancelled_before_its_schedule_cancels_it_is_told_so)
{
    static const stet_handler gated[] = { { "gated", h_gated, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *client;
    stet_run_id               run;
    uint64_t                  fired;

    fixture_up_with(f, gated);
    (void)ensure(f->engine, "c", "t.gated",
                 STET_SCHEDULE(.every = "500ms", .overlap = STET_OVERLAP_CANCEL));
    gate_await(&sched_door, 1);
    CHECK_OK(stet_schedule_pause(f->engine, "c", NULL));
    run = look(f->engine, "c").run;
    AWAIT(fixture_look(f->engine, &run).status == STET_STATUS_RUNNING);
    fired = look(f->engine, "c").fired;
    client = fixture_open(f); /* the worker has told nobody yet */
    CHECK_OK(stet_cancel(client, &run, "ann", "enough"));
    stet_close(client);
    CHECK_OK(stet_schedule_resume(f->engine, "c"));
    AWAIT(look(f->engine, "c").fired > fired);
    CHECK_OK(stet_schedule_remove(f->engine, "c"));
    EXPECT_ANSWER(f->engine, &run, STET_ECANCELLED);
    gate_open(&sched_door);
    fixture_end(f);
}

/* Nobody can execute it either: it is not in the way. */
TEST(E4_overlap_cancel_goes_on_when_the_old_run_cannot_be_read)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    uint64_t    fired;

    if (!f->is_sqlite)
        test_skip("damage needs a file");
    fixture_up_with(f, handlers);
    (void)busy(f, "c", STET_OVERLAP_CANCEL);
    CHECK_OK(stet_schedule_pause(f->engine, "c", NULL));
    run = look(f->engine, "c").run;
    fired = look(f->engine, "c").fired;
    fixture_down(f);
#ifdef STET_WITH_SQLITE
    damage_sql(f, "UPDATE facts SET data=x'00112233' WHERE run=?1 AND rev=1", &run,
               (stet_bytes){ NULL, 0 });
#endif
    fixture_up_with(f, handlers);
    CHECK_OK(stet_schedule_resume(f->engine, "c"));
    AWAIT(look(f->engine, "c").fired > fired);
    damage_end(f);
}

TEST(E4_overlap_allow_has_several_open)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, handlers);
    (void)busy(f, "a", STET_OVERLAP_ALLOW);
    AWAIT(fixture_count(f->engine, STET_FILTER(.handler = "t.pauses",
                                               .statuses = 1u << STET_STATUS_SUSPENDED)) >= 2);
    CHECK_OK(stet_schedule_remove(f->engine, "a"));
    fixture_end(f);
}

TEST(E1_an_interval_from_completion_begins_with_the_end_of_the_run)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    seen        s;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "f", "t.pauses",
                 STET_SCHEDULE(.every = "150ms", .from_completion = true));
    AWAIT(look(f->engine, "f").fired == 1);
    s = look(f->engine, "f");
    run = s.run;
    fixture_paused(f->engine, &run);
    CHECK_INT(s.next_ms, 0);
    CHECK(!s.is_done);
    CHECK_HAS(s.text, "waits for the end of");
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_INT(look(f->engine, "f").fired, 1);
    fixture_go_on(f->engine, &run);
    AWAIT(look(f->engine, "f").fired == 2);
    s = look(f->engine, "f");
    CHECK_INT(s.last_ms, fixture_look(f->engine, &run).ended_ms + 150);
    CHECK_INT(s.skipped, 0);
    fixture_end(f);
}

/* ---- ensure, update, pause, resume, remove --------------------------------------------------- */

TEST(E2_ensure_makes_updates_what_differs_and_leaves_the_rest_alone)
{
    fixture *f = fixture_begin();
    seen     s, then;

    fixture_up_with(f, handlers);
    CHECK_INT(ensure(f->engine, "n", "t.tick", STET_SCHEDULE(.cron = "0 9 * * MON-FRI")),
              STET_SCHEDULE_CREATED);
    s = look(f->engine, "n");
    CHECK_STR(s.zone, "UTC");
    CHECK_INT(s.next_ms % DAY, 9 * 60 * MINUTE);
    CHECK_INT(ensure(f->engine, "n", "t.tick", STET_SCHEDULE(.cron = "0 9 * * MON-FRI")),
              STET_SCHEDULE_UNCHANGED);
    CHECK_INT(ensure(f->engine, "n", "t.tick",
                     STET_SCHEDULE(.cron = "0 9 * * MON-FRI", .overlap = STET_OVERLAP_QUEUE)),
              STET_SCHEDULE_UPDATED);
    then = look(f->engine, "n");
    CHECK_INT(then.next_ms, s.next_ms);
    CHECK_INT(ensure(f->engine, "n", "t.tick",
                     STET_SCHEDULE(.cron = "0 9 * * MON-FRI", .overlap = STET_OVERLAP_QUEUE,
                                   .zone = "Europe/Berlin")),
              STET_SCHEDULE_UPDATED);
    then = look(f->engine, "n");
    CHECK_STR(then.zone, "Europe/Berlin");
    CHECK(then.next_ms % DAY == 8 * 60 * MINUTE || then.next_ms % DAY == 7 * 60 * MINUTE);
    CHECK_INT(ensure(f->engine, "n", "t.tick", STET_SCHEDULE(.every = "1h")),
              STET_SCHEDULE_UPDATED);
    then = look(f->engine, "n");
    CHECK_INT(then.every_ms, 3600000);
    CHECK(then.next_ms > stet_engine_now_ms(f->engine));
    CHECK_INT(then.fired, 0);
    fixture_end(f);
}

typedef struct ensuring {
    fixture    *f;
    atomic_int  created, updated;
} ensuring;

static void
race_ensure(void *arg, int i)
{
    ensuring            *x = arg;
    stet_engine         *e = fixture_open(x->f);
    stet_schedule_change change;

    (void)i;
    CHECK_OK(stet_schedule_ensure(e, &change, "one", "t.tick", stet_text("one"),
                                  STET_SCHEDULE(.every = "1h")));
    atomic_fetch_add(&x->created, change == STET_SCHEDULE_CREATED);
    atomic_fetch_add(&x->updated, change == STET_SCHEDULE_UPDATED);
    stet_close(e);
}

static int
on_name(void *arg, const stet_schedule_info *i)
{
    char *names = arg;

    (void)snprintf(names + strlen(names), 256 - strlen(names), "%s ", i->name);
    return STET_OK;
}

TEST(E2_ensure_from_ten_at_once_makes_one_schedule)
{
    fixture *f = fixture_begin();
    ensuring x = { .f = f };
    char     names[256] = "";

    f->options.roles = STET_ROLE_CLIENT;
    f->engine = fixture_open(f);
    fixture_race(10, race_ensure, &x);
    CHECK_INT(x.created, 1);
    CHECK_INT(x.updated, 0);
    CHECK_OK(stet_schedule_list(f->engine, NULL, 0, on_name, names));
    CHECK_STR(names, "one ");
    fixture_end(f);
}

TEST(E2_schedules_are_listed_by_name_in_pages)
{
    fixture *f = fixture_begin();
    char     names[256] = "";

    fixture_up_with(f, handlers);
    for (const char *const *n = (const char *const[]){ "c", "a", "d", "b", NULL }; *n != NULL; n++)
        (void)ensure(f->engine, *n, "t.tick", STET_SCHEDULE(.every = "1h"));
    CHECK_OK(stet_schedule_list(f->engine, NULL, 3, on_name, names));
    CHECK_OK(stet_schedule_list(f->engine, "c", 3, on_name, names));
    CHECK_STR(names, "a b c d ");
    fixture_end(f);
}

TEST(E2_update_changes_what_is_given)
{
    fixture             *f = fixture_begin();
    stet_bytes           input = stet_text("other");
    stet_schedule_change change;
    seen                 s;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "u", "t.tick", STET_SCHEDULE(.every = "1h"));
    s = look(f->engine, "u");
    CHECK_OK(stet_schedule_update(f->engine, &change, "u", &input, NULL));
    CHECK_INT(change, STET_SCHEDULE_UPDATED);
    CHECK_STR(look(f->engine, "u").input, "other");
    CHECK_INT(look(f->engine, "u").next_ms, s.next_ms);
    CHECK_OK(stet_schedule_update(f->engine, &change, "u", &input, NULL));
    CHECK_INT(change, STET_SCHEDULE_UNCHANGED);
    CHECK_OK(stet_schedule_update(f->engine, &change, "u", NULL, STET_SCHEDULE(.after_ms = 10)));
    effects_await("ran other", 1);
    AWAIT(look(f->engine, "u").is_done);
    fixture_end(f);
}

TEST(E2_a_pause_holds_through_restarts_and_ensures_and_is_in_the_history)
{
    fixture *f = fixture_begin();
    past     p;

    up_without_timers(f);
    (void)ensure(f->engine, "p", "t.tick", STET_SCHEDULE(.every = "1h"));
    fixture_down(f);
    fixture_up_with(f, handlers);
    set_back(f, "p", 10 * MINUTE); /* due in 50 minutes */
    CHECK_OK(stet_schedule_pause(f->engine, "p", "ops"));
    CHECK_OK(stet_schedule_pause(f->engine, "p", "another")); /* harmless */
    CHECK_INT(ensure(f->engine, "p", "t.tick", STET_SCHEDULE(.every = "1h")),
              STET_SCHEDULE_UNCHANGED);
    CHECK_HAS(look(f->engine, "p").text, "paused by ops");
    CHECK_OK(stet_schedule_resume(f->engine, "p"));
    CHECK_OK(stet_schedule_resume(f->engine, "p"));
    CHECK(!look(f->engine, "p").is_paused);
    CHECK_INT(history(f->engine, "p").n, 0); /* nothing was due in it */
    CHECK_OK(stet_schedule_update(f->engine, NULL, "p", NULL, STET_SCHEDULE(.every = "100ms")));
    CHECK_OK(stet_schedule_pause(f->engine, "p", NULL));
    p = history(f->engine, "p");
    AWAIT(stet_engine_now_ms(f->engine) > look(f->engine, "p").next_ms);
    fixture_down(f);
    fixture_up_with(f, handlers);
    CHECK_INT(history(f->engine, "p").n, p.n);
    CHECK_OK(stet_schedule_update(f->engine, NULL, "p", NULL, STET_SCHEDULE(.missed =
                                                                            STET_MISSED_SKIP)));
    CHECK_OK(stet_schedule_resume(f->engine, "p"));
    CHECK(history(f->engine, "p").count[STET_SKIP_PAUSED] >= 1);
    AWAIT(look(f->engine, "p").fired >= p.ran + 1);
    fixture_end(f);
}

TEST(I10_times_in_a_pause_are_in_the_ledger_if_the_time_is_changed_before_its_end)
{
    fixture *f = fixture_begin();
    int64_t  from_ms;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "p", "t.tick", STET_SCHEDULE(.every = "100ms"));
    CHECK_OK(stet_schedule_pause(f->engine, "p", NULL));
    from_ms = look(f->engine, "p").next_ms;
    AWAIT(stet_engine_now_ms(f->engine) > from_ms + 150);
    CHECK_OK(stet_schedule_update(f->engine, NULL, "p", NULL, STET_SCHEDULE(.every = "1h")));
    CHECK(look(f->engine, "p").is_paused);
    CHECK(history(f->engine, "p").count[STET_SKIP_PAUSED] >= 2);
    CHECK_OK(stet_schedule_resume(f->engine, "p"));
    CHECK(look(f->engine, "p").next_ms > from_ms + 50 * MINUTE);
    CHECK_INT(fixture_sound(f->engine), history(f->engine, "p").ran);
    fixture_end(f);
}

/* The program was away, and comes back as one that changes the schedule: what it missed is not
 * fired any more, and said. */
TEST(I10_times_that_were_missed_are_in_the_ledger_if_the_time_is_changed_before_anybody_fires)
{
    fixture *f = fixture_begin();
    int64_t  from_ms;
    past     p;

    up_without_timers(f);
    (void)ensure(f->engine, "m", "t.tick", STET_SCHEDULE(.every = "100ms"));
    from_ms = look(f->engine, "m").next_ms;
    AWAIT(stet_engine_now_ms(f->engine) > from_ms + 150);
    CHECK_INT(ensure(f->engine, "m", "t.tick", STET_SCHEDULE(.every = "1h")),
              STET_SCHEDULE_UPDATED);
    p = history(f->engine, "m");
    CHECK_INT(p.n, 1);
    CHECK(p.count[STET_SKIP_CHANGED] >= 2);
    CHECK_INT(look(f->engine, "m").skipped, p.count[STET_SKIP_CHANGED]);
    CHECK(look(f->engine, "m").next_ms > from_ms + 50 * MINUTE);
    /* Nothing was due: nothing is said. */
    CHECK_INT(ensure(f->engine, "m", "t.tick", STET_SCHEDULE(.every = "2h")),
              STET_SCHEDULE_UPDATED);
    CHECK_INT(history(f->engine, "m").n, 1);
    CHECK_INT(fixture_sound(f->engine), 0);
    fixture_end(f);
}

/* Set right to a time that is earlier still, it is that one that is late. */
TEST(I10_one_time_that_is_corrected_to_an_earlier_one_is_still_fired)
{
    fixture *f = fixture_begin();
    int64_t  now_ms;

    up_without_timers(f);
    now_ms = stet_engine_now_ms(f->engine);
    (void)ensure(f->engine, "c", "t.tick", STET_SCHEDULE(.at_ms = now_ms - MINUTE));
    (void)ensure(f->engine, "c", "t.tick", STET_SCHEDULE(.at_ms = now_ms - 2 * MINUTE));
    fixture_down(f);
    fixture_up_with(f, handlers);
    AWAIT(look(f->engine, "c").is_done);
    CHECK_INT(look(f->engine, "c").fired, 1);
    fixture_end(f);
}

TEST(E2_a_removed_one_fires_no_more_and_its_runs_go_on)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = busy(f, "gone", STET_OVERLAP_QUEUE);
    fixture_paused(f->engine, &run);
    CHECK_OK(stet_schedule_remove(f->engine, "gone"));
    CHECK_CODE(stet_schedule_get(f->engine, "gone", on_schedule, NULL), STET_ENOTFOUND);
    CHECK_CODE(stet_schedule_history(f->engine, "gone", 0, on_occurrence, NULL), STET_ENOTFOUND);
    CHECK_CODE(stet_schedule_remove(f->engine, "gone"), STET_ENOTFOUND);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "gone");
    CHECK_INT(runs_of(f->engine, "t.pauses"), 1);
    (void)ensure(f->engine, "gone", "t.tick", STET_SCHEDULE(.every = "1h"));
    CHECK_INT(history(f->engine, "gone").n, 0); /* another one of that name */
    CHECK_INT(look(f->engine, "gone").fired, 0);
    fixture_end(f);
}

/* ---- functions ------------------------------------------------------------------------------- */

typedef struct steps {
    _Atomic int64_t every_ms;
    atomic_int      calls, code;
} steps;

static int
every_so_often(void *arg, int64_t *next_ms, const char *schedule, int64_t after_ms)
{
    steps *s = arg;

    CHECK_STR(schedule, "own");
    atomic_fetch_add(&s->calls, 1);
    *next_ms = after_ms + atomic_load(&s->every_ms);
    return atomic_load(&s->code);
}

TEST(E5_a_function_says_when_and_only_those_who_have_it_fire)
{
    fixture     *f = fixture_begin();
    stet_engine *able;
    steps        s = { .every_ms = 100 };

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "own", "t.tick", STET_SCHEDULE(.function = "often"));
    CHECK_HAS(look(f->engine, "own").text, "no worker has its function often");
    CHECK_INT(look(f->engine, "own").fired, 0);
    able = fixture_open(f);
    CHECK_OK(stet_register_schedule(able, "often", every_so_often, &s));
    CHECK_CODE(stet_register_schedule(able, "often", every_so_often, &s), STET_EEXISTS);
    CHECK_CODE(stet_register_schedule(able, "none", NULL, NULL), STET_EINVAL);
    CHECK_CODE(stet_register_schedule(able, "", every_so_often, &s), STET_ENAME);
    CHECK_OK(stet_engine_start(able));
    CHECK_CODE(stet_register_schedule(able, "later", every_so_often, &s), STET_ESTATE);
    effects_await("ran own", 2);
    CHECK(atomic_load(&s.calls) >= 2);
    CHECK_OK(stet_schedule_remove(able, "own"));
    stet_close(able);
    fixture_end(f);
}

TEST(E5_a_hint_tells_those_who_have_the_function)
{
    fixture     *f = fixture_begin();
    stet_engine *able;
    steps        s = { .every_ms = 100 };

    f->options.queue = "local";
    f->options.poll_ms = 3600000;
    fixture_up_with(f, handlers);
    able = fixture_open(f);
    CHECK_OK(stet_register_schedule(able, "often", every_so_often, &s));
    CHECK_OK(stet_engine_start(able));
    rest(able);
    (void)ensure(f->engine, "own", "t.tick", STET_SCHEDULE(.function = "often"));
    effects_await("ran own", 2);
    CHECK_OK(stet_schedule_remove(f->engine, "own"));
    stet_close(able);
    fixture_end(f);
}

TEST(E5_a_function_that_fails_is_told_and_hurts_nobody_else)
{
    fixture *f = fixture_begin();
    steps    good = { .every_ms = 100 };

    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_register_schedule(f->engine, "often", every_so_often, &good));
    CHECK_OK(stet_engine_start(f->engine));
    (void)ensure(f->engine, "own", "t.tick", STET_SCHEDULE(.function = "often"));
    effects_await("ran own", 1);
    CHECK_OK(stet_schedule_pause(f->engine, "own", NULL));
    AWAIT(stet_engine_now_ms(f->engine) > look(f->engine, "own").next_ms);
    atomic_store(&good.every_ms, -5); /* not later */
    CHECK_CODE(stet_schedule_resume(f->engine, "own"), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "must be later");
    CHECK(look(f->engine, "own").is_paused);
    atomic_store(&good.every_ms, 100);
    CHECK_OK(stet_schedule_resume(f->engine, "own"));
    atomic_store(&good.code, STET_EIO);
    AWAIT(look(f->engine, "own").error[0] != '\0');
    CHECK_HAS(look(f->engine, "own").error, "function often failed");
    (void)ensure(f->engine, "other", "t.tick", STET_SCHEDULE(.after_ms = 1));
    effects_await("ran other", 1);
    CHECK(fixture_logged(f, "function often failed") >= 1);
    fixture_end(f);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

TEST(I10_every_occurrence_is_in_the_ledger_once_with_its_run_or_its_reason)
{
    fixture *f = fixture_begin();
    past     p;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "l", "t.tick", STET_SCHEDULE(.every = "100ms"));
    effects_await("ran l", 2);
    CHECK_OK(stet_schedule_pause(f->engine, "l", NULL));
    p = history(f->engine, "l");
    CHECK(p.ran >= 2);
    for (size_t i = 0; i < p.ran && i < 64; i++) {
        stet_run_id run;

        (void)snprintf(run.text, sizeof run.text, "%s", p.runs[i]);
        EXPECT_RESULT(f->engine, &run, "l");
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(p.runs[i], p.runs[j]) != 0);
    }
    CHECK_INT(look(f->engine, "l").fired + look(f->engine, "l").skipped,
              (p.newest_ms - p.oldest_ms) / 100 + 1); /* no planned time is left out */
    fixture_end(f);
}

/* A thousand entries behind the engine's back: the next firing removes the oldest. */
TEST(I10_the_ledger_keeps_the_last_thousand)
{
    fixture     *f = fixture_begin();
    stet_store  *store;
    stet__arena  arena;
    stet__fact   entry = { .kind = STET__FACT_OCCURRENCE };
    stet__buf    b, record;
    stet_op     *ops = calloc(STET_SCHEDULE_HISTORY_MAX + 1, sizeof *ops);
    stet_value   value = { 0 };
    stet__sched  s;
    past         p;

    up_without_timers(f);
    (void)ensure(f->engine, "l", "t.tick", STET_SCHEDULE(.every = "1h"));
    store = damage_open(f);
    stet__arena_init(&arena, store->alloc);
    stet__buf_init(&b, store->alloc);
    stet__buf_init(&record, store->alloc);
    entry.planned_ms = entry.until_ms = 1;
    entry.number = 1;
    entry.code = STET_OCCURRENCE_SKIPPED;
    entry.cause = STET_SKIP_MISSED;
    CHECK_OK(store->ops->value(store, STET__SPACE_BASE_SCHED, stet_text("l"), &value));
    CHECK_OK(stet__sched_decode(&arena, "l", &value, &s));
    s.f.logged = STET_SCHEDULE_HISTORY_MAX;
    stet__fact_encode(&record, &s.f);
    for (int i = 0; i <= STET_SCHEDULE_HISTORY_MAX; i++)
        ops[i] = (stet_op){ .kind = STET_OP_VALUE_PUT, .number = 1, .run = s.id };
    for (int i = 0; i < STET_SCHEDULE_HISTORY_MAX; i++) {
        entry.planned_ms = entry.until_ms = i + 1;
        b.len = 0;
        stet__fact_encode(&b, &entry);
        ops[i].space = STET__SPACE_BASE_SCHED_LOG;
        ops[i].key = stet__sched_log_key(&arena, "l", i + 1);
        ops[i].data = (stet_bytes){ stet__arena_copy(&arena, b.data, b.len), b.len };
    }
    ops[STET_SCHEDULE_HISTORY_MAX].space = STET__SPACE_BASE_SCHED;
    ops[STET_SCHEDULE_HISTORY_MAX].key = stet_text("l");
    ops[STET_SCHEDULE_HISTORY_MAX].data = stet__buf_bytes(&record);
    ops[STET_SCHEDULE_HISTORY_MAX].number = s.edition + 1;
    CHECK_INT(damage_try(store, NULL, 0, ops, STET_SCHEDULE_HISTORY_MAX + 1).result, STET_OK);
    stet__free(store->alloc, (void *)(uintptr_t)value.data.data);
    stet__buf_free(&b);
    stet__buf_free(&record);
    stet__arena_free(&arena);
    stet__store_close(store);
    free(ops);
    CHECK_INT(history(f->engine, "l").oldest_ms, 1);
    fixture_down(f);
    set_back(f, "l", 3600000);
    fixture_up_with(f, handlers);
    effects_await("ran l", 1);
    p = history(f->engine, "l");
    CHECK_INT(p.n, STET_SCHEDULE_HISTORY_MAX);
    CHECK_INT(p.oldest_ms, 2);
    CHECK_INT(p.ran, 1);
    CHECK_OK(stet_schedule_remove(f->engine, "l")); /* all of it in one unit */
    fixture_end(f);
}

/* ---- verify and repair ----------------------------------------------------------------------- */

typedef struct findings {
    int  n, repaired;
    char rule[32], text[256];
} findings;

static int
on_finding(void *arg, const stet_finding *finding)
{
    findings *to = arg;

    to->n++;
    to->repaired += finding->is_repaired;
    (void)snprintf(to->rule, sizeof to->rule, "%s", finding->rule);
    (void)snprintf(to->text, sizeof to->text, "%s", finding->text);
    return STET_OK;
}

/* One finding with this in its text; it is mended; then there is none. */
static void
mended(stet_engine *e, const char *part)
{
    findings found = { 0 }, mending = { 0 };

    CHECK_OK(stet_verify(e, NULL, on_finding, &found));
    CHECK_HAS(found.text, part);
    CHECK_STR(found.rule, "schedule");
    CHECK_INT(found.n, 1);
    CHECK_OK(stet_repair(e, NULL, on_finding, &mending));
    CHECK_INT(mending.n, 1);
    CHECK_INT(mending.repaired, 1);
    (void)fixture_sound(e);
}

/* An entry of the index by hand: when, and of which schedule. */
static void
index_op(fixture *f, stet_op_kind kind, const char *name, int64_t at_ms)
{
    stet__arena arena;
    stet__sched s = { .name = name };
    stet_op     op = { .kind = kind, .number = 1, .data = stet_text("") };

    stet__arena_init(&arena, &stet__platform_real()->alloc);
    s.f.look_ms = at_ms;
    op.space = stet__sched_index(&arena, &s, &s.f, &op.key);
    damage_do(f, &op, 1);
    stet__arena_free(&arena);
}

/* The same, of the entry that the end of a run adds. */
static void
asked_op(fixture *f, stet_op_kind kind, const char *name, int64_t ended_ms, const stet_run_id *run)
{
    stet__arena arena;
    stet_op     op = { .kind = kind, .number = 1, .data = stet_text("") };

    stet__arena_init(&arena, &stet__platform_real()->alloc);
    op.space = STET__SPACE_SCHED_DUE;
    op.key = stet__sched_asked(&arena, name, ended_ms, damage_id(run));
    damage_do(f, &op, 1);
    stet__arena_free(&arena);
}

TEST(E2_verify_finds_and_repair_mends_the_index)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    int64_t     next_ms;

    up_without_timers(f);
    (void)ensure(f->engine, "v", "t.tick", STET_SCHEDULE(.every = "1h"));
    (void)fixture_sound(f->engine);
    next_ms = look(f->engine, "v").next_ms;
    index_op(f, STET_OP_VALUE_DEL, "v", next_ms);
    mended(f->engine, "schedule v is not in the index");
    index_op(f, STET_OP_VALUE_PUT, "v", next_ms + 5);
    mended(f->engine, "at another time than its own");
    index_op(f, STET_OP_VALUE_PUT, "w", next_ms);
    mended(f->engine, "schedule w, which is not there");
    index_op(f, STET_OP_VALUE_PUT, "v", 1000); /* of a run that ended: nothing is wrong */
    (void)fixture_sound(f->engine);
    CHECK_OK(stet_run_id_make(f->engine, &run));
    asked_op(f, STET_OP_VALUE_PUT, "v", next_ms + 5, &run); /* and the clock was set back */
    asked_op(f, STET_OP_VALUE_PUT, "w", next_ms + 5, &run);
    (void)fixture_sound(f->engine);
    fixture_down(f);
    set_back(f, "v", 3600000);
    fixture_up_with(f, handlers);
    effects_await("ran v", 1);
    fixture_end(f);
}

/* More than are read at a time. */
TEST(E2_verify_looks_at_all_of_many_schedules)
{
    enum { MANY = 300 };
    fixture *f = fixture_begin();
    int64_t  last_ms = 0;
    char     name[16];

    up_without_timers(f);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "s%03d", i);
        (void)ensure(f->engine, name, "t.tick", STET_SCHEDULE(.every = "1h"));
    }
    (void)fixture_sound(f->engine);
    for (int i = 0; i < MANY; i += MANY - 1) { /* the first, the last */
        (void)snprintf(name, sizeof name, "s%03d", i);
        last_ms = look(f->engine, name).next_ms;
        index_op(f, STET_OP_VALUE_DEL, name, last_ms);
        mended(f->engine, "is not in the index");
    }
    fixture_end(f);
}

TEST(E2_repair_finds_a_schedule_that_waits_for_a_run_that_has_ended)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    int64_t     ended_ms;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "w", "t.pauses",
                 STET_SCHEDULE(.every = "100ms", .from_completion = true));
    AWAIT(look(f->engine, "w").fired == 1);
    run = look(f->engine, "w").run;
    fixture_paused(f->engine, &run);
    fixture_down(f);
    f->options.roles = STET_ROLE_WORKER; /* executes, and fires nothing */
    fixture_up_with(f, handlers);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "w");
    ended_ms = fixture_look(f->engine, &run).ended_ms;
    (void)fixture_sound(f->engine);
    asked_op(f, STET_OP_VALUE_DEL, "w", ended_ms, &run);
    mended(f->engine, "waits for a run that has ended");
    fixture_down(f);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    AWAIT(look(f->engine, "w").fired == 2);
    CHECK_INT(look(f->engine, "w").last_ms, ended_ms + 100); /* however late */
    fixture_end(f);
}

/* All workers wake when it is due. One fires it, and a short run ends in the same millisecond;
 * another one had come by the entry of that time, saw the run open, and removes the entry. */
TEST(E3_a_look_at_an_open_run_leaves_what_its_end_asks_for_in_the_same_millisecond)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "w", "t.pauses",
                 STET_SCHEDULE(.every = "100ms", .from_completion = true));
    AWAIT(look(f->engine, "w").fired == 1);
    run = look(f->engine, "w").run;
    fixture_paused(f->engine, &run);
    fixture_down(f);
    f->options.roles = STET_ROLE_WORKER; /* executes, and fires nothing */
    fixture_up_with(f, handlers);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "w");
    index_op(f, STET_OP_VALUE_DEL, "w", fixture_look(f->engine, &run).ended_ms);
    (void)fixture_sound(f->engine);
    fixture_down(f);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    AWAIT(look(f->engine, "w").fired == 2);
    fixture_end(f);
}

/* The look in the pause did nothing, and that which the resume asks for has not come yet. */
TEST(E2_a_time_that_is_changed_after_a_pause_in_which_the_run_ended_is_kept)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "u", "t.pauses", STET_SCHEDULE(.every = "100ms"));
    AWAIT(look(f->engine, "u").fired == 1);
    run = look(f->engine, "u").run;
    fixture_paused(f->engine, &run);
    CHECK_OK(stet_schedule_pause(f->engine, "u", NULL));
    fixture_down(f);
    f->options.roles = STET_ROLE_WORKER; /* executes, and fires nothing */
    fixture_up_with(f, handlers);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "u");
    asked_op(f, STET_OP_VALUE_DEL, "u", fixture_look(f->engine, &run).ended_ms, &run);
    CHECK_OK(stet_schedule_resume(f->engine, "u"));
    CHECK_OK(stet_schedule_update(f->engine, NULL, "u", NULL,
                                  STET_SCHEDULE(.every = "100ms", .from_completion = true)));
    (void)fixture_sound(f->engine);
    fixture_down(f);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    AWAIT(look(f->engine, "u").fired == 2);
    fixture_end(f);
}

/* The end of its run is looked at when the clock is there again: nothing is forgotten. */
TEST(E2_I2_a_schedule_that_was_resumed_by_a_clock_that_was_ahead_is_sound)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up_with(f, handlers);
    run = busy(f, "b", STET_OVERLAP_QUEUE);
    fixture_paused(f->engine, &run);
    AWAIT(look(f->engine, "b").waiting_ms != 0);
    CHECK_OK(stet_schedule_pause(f->engine, "b", NULL));
    fixture_down(f);
    f->options.roles = STET_ROLE_WORKER; /* executes, and fires nothing */
    fixture_up_with(f, handlers);
    fixture_go_on(f->engine, &run);
    EXPECT_RESULT(f->engine, &run, "b");
    asked_op(f, STET_OP_VALUE_DEL, "b", fixture_look(f->engine, &run).ended_ms, &run);
    CHECK_OK(stet_schedule_resume(f->engine, "b"));
    set_back(f, "b", -60 * MINUTE);
    (void)fixture_sound(f->engine);
    fixture_down(f);
    set_back(f, "b", 60 * MINUTE);
    f->options.roles = 0;
    fixture_up_with(f, handlers);
    AWAIT(look(f->engine, "b").fired >= 2);
    CHECK_OK(stet_schedule_remove(f->engine, "b"));
    fixture_end(f);
}

static int64_t (*true_now_ms)(stet_store *s);
static int (*true_values)(stet_store *s, const char *space, stet_bytes prefix,
                          const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg);
static atomic_int is_ahead;

static int64_t
ahead_now_ms(stet_store *s)
{
    return true_now_ms(s) + (atomic_load(&is_ahead) ? 60 * MINUTE : 0);
}

static int
ahead_values(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
             size_t limit, stet_value_fn fn, void *arg)
{
    int err = true_values(s, space, prefix, after, limit, fn, arg);

    if (strcmp(space, STET__SPACE_SCHED_DUE) == 0)
        atomic_store(&is_ahead, 0);
    return err;
}

/* By the clock as it is now it is not due yet, and nothing is to be done. */
TEST(E3_a_clock_that_is_set_back_during_a_look_leaves_the_schedule_where_it_stands)
{
    fixture        *f = fixture_begin();
    stet_store_ops *ops;

    up_without_timers(f);
    (void)ensure(f->engine, "b", "t.tick", STET_SCHEDULE(.every = "30m"));
    fixture_down(f);
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    true_now_ms = f->engine->store->ops->now_ms;
    true_values = f->engine->store->ops->values;
    atomic_store(&is_ahead, 1);
    ops = damage_ops(f->engine);
    ops->now_ms = ahead_now_ms;
    ops->values = ahead_values;
    CHECK_OK(stet_engine_start(f->engine));
    AWAIT(!atomic_load(&is_ahead));
    fixture_down(f); /* what it has begun is over */
    up_without_timers(f);
    CHECK_INT(look(f->engine, "b").fired, 0);
    (void)fixture_sound(f->engine);
    fixture_end(f);
}

TEST(I10_repair_removes_the_ledger_of_a_schedule_that_is_not_there)
{
    fixture    *f = fixture_begin();
    stet__arena arena;
    stet_op     op = { .kind = STET_OP_VALUE_PUT, .number = 1, .data = stet_text("x") };

    up_without_timers(f);
    stet__arena_init(&arena, &stet__platform_real()->alloc);
    op.space = STET__SPACE_BASE_SCHED_LOG;
    op.key = stet__sched_log_key(&arena, "nobody", 5);
    damage_do(f, &op, 1);
    stet__arena_free(&arena);
    mended(f->engine, "ledger has an entry of schedule nobody");
    fixture_end(f);
}

/* An edition that the engine does not come to by itself: what it has read before is refused. */
static void
rubbish(fixture *f, const char *name)
{
    stet_op op = { .kind = STET_OP_VALUE_PUT, .number = 1000000, .data = stet_text("rubbish") };

    op.space = STET__SPACE_BASE_SCHED;
    op.key = stet_text(name);
    damage_do(f, &op, 1);
}

TEST(E2_verify_tells_of_a_damaged_schedule_once_though_it_is_in_the_index)
{
    fixture  *f = fixture_begin();
    findings  found = { 0 };

    up_without_timers(f);
    (void)ensure(f->engine, "bad", "t.tick", STET_SCHEDULE(.every = "1h"));
    rubbish(f, "bad");
    CHECK_OK(stet_verify(f->engine, NULL, on_finding, &found));
    CHECK_INT(found.n, 1);
    CHECK_HAS(found.text, "schedule bad cannot be read");
    CHECK_OK(stet_schedule_remove(f->engine, "bad"));
    mended(f->engine, "schedule bad, which is not there");
    fixture_end(f);
}

TEST(E2_a_damaged_schedule_is_told_hurts_no_other_and_can_be_removed)
{
    fixture  *f = fixture_begin();
    findings  found = { 0 };
    char      names[256] = "";

    fixture_up_with(f, handlers);
    (void)ensure(f->engine, "bad", "t.tick", STET_SCHEDULE(.every = "100ms"));
    (void)ensure(f->engine, "good", "t.tick", STET_SCHEDULE(.every = "100ms"));
    rubbish(f, "bad");
    AWAIT(fixture_logged(f, "schedule bad is damaged") > 0);
    CHECK_CODE(stet_schedule_get(f->engine, "bad", on_schedule, NULL), STET_ECORRUPT);
    CHECK_CODE(stet_schedule_ensure(f->engine, NULL, "bad", "t.tick", stet_text(""),
                                    STET_SCHEDULE(.every = "1h")),
               STET_ECORRUPT);
    CHECK_OK(stet_schedule_list(f->engine, NULL, 0, on_name, names));
    CHECK_STR(names, "bad good ");
    CHECK_OK(stet_verify(f->engine, NULL, on_finding, &found));
    CHECK_HAS(found.text, "schedule bad cannot be read");
    effects_await("ran good", 2);
    CHECK_OK(stet_schedule_remove(f->engine, "bad"));
    (void)ensure(f->engine, "bad", "t.tick", STET_SCHEDULE(.every = "1h"));
    fixture_end(f);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void
refused(stet_engine *e, int code, const char *part, const stet_schedule_options *o)
{
    CHECK_CODE(stet_schedule_ensure(e, NULL, "bad", "t.tick", stet_text(""), o), code);
    CHECK_HAS(stet_last_error(), part);
}

TEST(E1_exactly_one_kind_of_time)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, handlers);
    refused(f->engine, STET_EINVAL, "has no time", NULL);
    refused(f->engine, STET_EINVAL, "has no time", STET_SCHEDULE(.overlap = STET_OVERLAP_SKIP));
    refused(f->engine, STET_EINVAL, "both cron and every",
            STET_SCHEDULE(.cron = "* * * * *", .every = "1h"));
    refused(f->engine, STET_EINVAL, "both every and at",
            STET_SCHEDULE(.every_ms = 1000, .at_ms = 1));
    refused(f->engine, STET_EINVAL, "both at and after", STET_SCHEDULE(.at_ms = 1, .after = "1s"));
    refused(f->engine, STET_EINVAL, "both after and function",
            STET_SCHEDULE(.after_ms = 1, .function = "f"));
    CHECK_CODE(stet_schedule_get(f->engine, "bad", on_schedule, NULL), STET_ENOTFOUND);
    fixture_end(f);
}

TEST(E2_bad_input_has_its_own_error_and_changes_nothing)
{
    fixture    *f = fixture_begin();
    char        long_name[200];
    stet_bytes  large = { long_name, sizeof long_name };

    f->options.payload_bytes_max = 100;
    fixture_up_with(f, handlers);
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    refused(f->engine, STET_EINVAL, "column", STET_SCHEDULE(.cron = "61 * * * *"));
    refused(f->engine, STET_ENOTFOUND, "Europe/Berlin",
            STET_SCHEDULE(.cron = "* * * * *", .zone = "Europe/Berlim"));
    refused(f->engine, STET_EINVAL, "time zone goes with cron",
            STET_SCHEDULE(.every = "1h", .zone = "UTC"));
    refused(f->engine, STET_EINVAL, "from_completion goes with every",
            STET_SCHEDULE(.cron = "* * * * *", .from_completion = true));
    refused(f->engine, STET_EDURATION, "every", STET_SCHEDULE(.every = "soon"));
    refused(f->engine, STET_EINVAL, "100 ms", STET_SCHEDULE(.every = "99ms"));
    refused(f->engine, STET_EDURATION, "negative", STET_SCHEDULE(.every_ms = -1));
    refused(f->engine, STET_EINVAL, "years 1970 to 9999", STET_SCHEDULE(.at_ms = INT64_MAX));
    refused(f->engine, STET_EINVAL, "years 1970 to 9999", STET_SCHEDULE(.at_ms = -1));
    refused(f->engine, STET_EINVAL, "years 1970 to 9999", STET_SCHEDULE(.after = "3000000d"));
    refused(f->engine, STET_EINVAL, "no overlap policy",
            STET_SCHEDULE(.every = "1h", .overlap = (stet_overlap)9));
    refused(f->engine, STET_EINVAL, "no policy for missed",
            STET_SCHEDULE(.every = "1h", .missed = (stet_missed)9));
    refused(f->engine, STET_EINVAL, "missed_max goes with",
            STET_SCHEDULE(.every = "1h", .missed_max = 5));
    refused(f->engine, STET_EINVAL, "it is 1 to 1000",
            STET_SCHEDULE(.every = "1h", .missed = STET_MISSED_ALL, .missed_max = 1001));
    refused(f->engine, STET_EINVAL, "grace goes with",
            STET_SCHEDULE(.every = "1h", .grace = "1s"));
    refused(f->engine, STET_EKEY, "no keys", STET_SCHEDULE(.every = "1h", .key = "k"));
    refused(f->engine, STET_ENAME, "group", STET_SCHEDULE(.every = "1h", .group = ""));
    refused(f->engine, STET_EDURATION, "timeout", STET_SCHEDULE(.every = "1h", .timeout = "x"));
    refused(f->engine, STET_EINVAL, "STET_SCHEDULE", &(stet_schedule_options){ .every = "1h" });
    CHECK_CODE(stet_schedule_ensure(f->engine, NULL, "", "t.tick", stet_text(""),
                                    STET_SCHEDULE(.every = "1h")),
               STET_ENAME);
    CHECK_CODE(stet_schedule_ensure(f->engine, NULL, NULL, "t.tick", stet_text(""),
                                    STET_SCHEDULE(.every = "1h")),
               STET_ENAME);
    CHECK_CODE(stet_schedule_ensure(f->engine, NULL, "bad", NULL, stet_text(""),
                                    STET_SCHEDULE(.every = "1h")),
               STET_ENAME);
    CHECK_CODE(stet_schedule_ensure(f->engine, NULL, "bad", "t.nobody", stet_text(""),
                                    STET_SCHEDULE(.every = "1h")),
               STET_ENOHANDLER);
    CHECK_HAS(stet_last_error(), "t.tick");
    CHECK_CODE(stet_schedule_ensure(f->engine, NULL, "bad", "t.tick", large,
                                    STET_SCHEDULE(.every = "1h")),
               STET_ETOOBIG);
    CHECK_CODE(stet_schedule_ensure(NULL, NULL, "bad", "t.tick", stet_text(""), NULL), STET_EINVAL);
    CHECK_CODE(stet_schedule_get(f->engine, "bad", on_schedule, NULL), STET_ENOTFOUND);
    (void)ensure(f->engine, "nightly", "t.tick", STET_SCHEDULE(.every = "1h"));
    CHECK_CODE(stet_schedule_pause(f->engine, "nigthly", NULL), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "there is nightly");
    CHECK_CODE(stet_schedule_resume(f->engine, "x"), STET_ENOTFOUND);
    CHECK_CODE(stet_schedule_update(f->engine, NULL, "x", NULL, NULL), STET_ENOTFOUND);
    CHECK_CODE(stet_schedule_update(f->engine, NULL, "nightly", NULL,
                                    STET_SCHEDULE(.cron = "x")),
               STET_EINVAL);
    CHECK_CODE(stet_schedule_pause(f->engine, "nightly", long_name), STET_OK);
    CHECK_INT(look(f->engine, "nightly").every_ms, 3600000);
    fixture_end(f);
}

static int
h_meddles(stet_ctx *ctx, stet_bytes input)
{
    stet_engine *e = *(stet_engine *const *)input.data;

    CHECK_CODE(stet_schedule_ensure(e, NULL, "x", "t.tick", input, STET_SCHEDULE(.every = "1h")),
               STET_EUSAGE);
    CHECK_CODE(stet_schedule_remove(e, "x"), STET_EUSAGE);
    return stet_return(ctx, stet_text("refused"));
}

TEST(E2_not_inside_a_handler)
{
    static const stet_handler meddling[] = { { "meddle", h_meddles, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;

    fixture_up_with(f, meddling);
    CHECK_OK(stet_start(f->engine, &run, "t.meddle", (stet_bytes){ &f->engine, sizeof f->engine },
                        NULL));
    EXPECT_RESULT(f->engine, &run, "refused");
    fixture_end(f);
}
