/* Moving a store: everything goes on in the other one, nothing can be lost on the way, and what
 * would go wrong is refused. That it can be killed anywhere is in tests/crash/move_test.c. Row I5.
 * tsan: yes
 */
#include "damage.h"
#include "lost.h"

#include "engine/move.h"
#include "store/memory.h"

#ifdef STET_WITH_SQLITE

#include <sqlite3.h>
#include <unistd.h>

/* ---- two stores ------------------------------------------------------------------------------ */

/* A store beside that of STET_TEST_STORE; of another kind if asked for. */
static fixture *
target_begin(bool is_other_kind, const char *name)
{
    fixture *f = fixture_begin();

    if (is_other_kind) {
        bool is_sqlite = f->is_sqlite;

        fixture_end(f);
        f = fixture_begin_on(is_sqlite ? "memory" : "sqlite");
    }
    if (f->is_sqlite) {
        free((void *)(uintptr_t)f->url);
        CHECK((f->url = strdup(test_path(name))) != NULL);
    }
    return f;
}

/* Its address as it is told. */
static const char *
shown(const fixture *f)
{
    static char text[4][1024];
    static int  n;

    n = (n + 1) % 4;
    return stet__store_shown(text[n], sizeof text[n], f->url);
}

static int
move_now(fixture *from, fixture *to, stet_move_report *report, const stet_move_options *options)
{
    return stet__move_on(report, stet__platform_real(), damage_open(from), from->url,
                         damage_open(to), to->url, options);
}

/* ---- it goes on ------------------------------------------------------------------------------ */

static void
all_goes_on(bool is_other_kind)
{
    fixture         *f = fixture_begin(), *t = target_begin(is_other_kind, "target.db");
    stet_move_report report;
    lost_story       story;
    char            *before = NULL, *after;

    lost_fill(f, &story);
    if (f->is_sqlite)
        before = lost_text(f->url);
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK_INT(report.runs, story.runs);
    CHECK(report.open_runs >= 10 && report.open_runs < report.runs);
    CHECK(report.facts > report.runs);
    CHECK(report.inbox > 0);
    CHECK(report.baselines >= 7);
    CHECK_INT(report.findings, 0);
    CHECK(!report.is_continued && !report.was_done);
    CHECK_INT(strlen(report.digest), 64);
    if (f->is_sqlite && t->is_sqlite) { /* row by row, lane by lane, value by value */
        after = lost_text(t->url);
        CHECK_STR(after, before);
        free(after);
        after = lost_text(f->url);
        CHECK_STR(after, before);
        free(after);
    }
    free(before);
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

TEST(I5_everything_goes_on_in_the_target)
{
    all_goes_on(false);
}

TEST(I5_the_target_may_be_of_another_kind)
{
    all_goes_on(true);
}

TEST(I5_a_file_has_room_for_both)
{
    fixture   *f = fixture_begin(), *t;
    lost_story story;
    char       url[1024];

    if (!f->is_sqlite)
        test_skip("a file is needed");
    lost_fill(f, &story);
    t = target_begin(false, "unused.db");
    (void)snprintf(url, sizeof url, "%s?prefix=two", f->url);
    free((void *)(uintptr_t)t->url);
    CHECK((t->url = strdup(url)) != NULL);
    CHECK_OK(stet_move(NULL, f->url, t->url, NULL));
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

/* A target can be moved on. */
TEST(I5_what_was_moved_can_be_moved_again)
{
    fixture         *f = fixture_begin(), *t = target_begin(false, "target.db");
    fixture         *u = target_begin(true, "third.db");
    stet_move_report first, second;
    lost_story       story;

    lost_fill(f, &story);
    CHECK_OK(move_now(f, t, &first, NULL));
    CHECK_OK(move_now(t, u, &second, NULL));
    CHECK_STR(second.digest, first.digest);
    CHECK_CODE(move_now(f, u, NULL, NULL), STET_EMOVED);
    CHECK_HAS(stet_last_error(), shown(t));
    lost_goes_on(u, &story);
    fixture_end(u);
    fixture_end(t);
    fixture_end(f);
}

/* ---- handlers -------------------------------------------------------------------------------- */

/* That a worker was tried in the target makes it no store that is in use, and what the source's
 * workers said is what counts. */
TEST(I5_what_workers_said_of_their_handlers_is_moved_and_stands_in_no_way)
{
    static const stet_handler_options five = { .retry = { .attempts = 5 }, .timeout = "1h" };
    static const stet_handler         here[] = { { "f", h_echo, &five }, { 0 } };
    static const stet_handler         there[] = { { "f", h_echo, NULL }, { 0 } };
    static const fixture_service      real[] = { { "p", here, false, NULL }, { 0 } };
    static const fixture_service      tried[] = { { "p", there, false, NULL },
                                                  { "q", there, false, NULL },
                                                  { 0 } };
    fixture                          *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_run_id                       run;

    fixture_up(f, real);
    fixture_down(f);
    CHECK_CODE(move_now(f, t, NULL, NULL), STET_ENOTFOUND); /* there is nothing in it */
    fixture_up(f, real);
    (void)fixture_start(f->engine, "p.f", "", STET_START(.delay = "1h"));
    fixture_down(f);
    fixture_up(t, tried);
    fixture_down(t);
    CHECK_OK(move_now(f, t, NULL, NULL));
    t->options.roles = STET_ROLE_CLIENT;
    t->engine = fixture_open(t);
    run = fixture_start(t->engine, "p.f", "", NULL);
    CHECK_INT(fixture_look(t->engine, &run).attempts_max, 5);
    CHECK(fixture_look(t->engine, &run).deadline_ms > 0);
    (void)fixture_start(t->engine, "q.f", "",
                        STET_START(.key = "k")); /* nobody said anything of it */
    fixture_end(t);
    fixture_end(f);
}

/* ---- schedules ------------------------------------------------------------------------------- */

typedef struct plan {
    uint64_t    fired;
    int64_t     next_ms;
    stet_run_id run;
} plan;

static int
on_plan(void *arg, const stet_schedule_info *info)
{
    plan *p = arg;

    p->fired = info->fired;
    p->next_ms = info->next_ms;
    return info->last_run != NULL ? stet_run_id_parse(&p->run, info->last_run) : STET_OK;
}

static plan
plan_of(stet_engine *e, const char *name)
{
    plan p = { .fired = 0 };

    CHECK_OK(stet_schedule_get(e, name, on_plan, &p));
    return p;
}

static int
on_past(void *arg, const stet_occurrence_info *occurrence)
{
    *(int *)arg += occurrence->outcome == STET_OCCURRENCE_RAN; /* a slow move misses some */
    return STET_OK;
}

/* The index of the source stays behind; also what its runs put there when they ended. */
TEST(I5_schedules_are_moved_with_their_history_and_fire_in_the_target)
{
    static const stet_handler paused[] = { { "pauses", h_pauses, NULL }, { 0 } };
    fixture                  *f = fixture_begin(), *t = target_begin(false, "target.db");
    plan                      far, open, ended;
    int                       n = 0;

    fixture_up_with(f, paused);
    CHECK_OK(stet_schedule_ensure(f->engine, NULL, "far", "t.pauses", stet_text("far"),
                                  STET_SCHEDULE(.every = "1h")));
    CHECK_OK(stet_schedule_ensure(f->engine, NULL, "open", "t.pauses", stet_text("open"),
                                  STET_SCHEDULE(.every = "100ms", .from_completion = true)));
    CHECK_OK(stet_schedule_ensure(f->engine, NULL, "ended", "t.pauses", stet_text("ended"),
                                  STET_SCHEDULE(.every = "100ms", .from_completion = true)));
    AWAIT(plan_of(f->engine, "open").fired == 1 && plan_of(f->engine, "ended").fired == 1);
    far = plan_of(f->engine, "far");
    open = plan_of(f->engine, "open");
    ended = plan_of(f->engine, "ended");
    fixture_paused(f->engine, &open.run);
    fixture_paused(f->engine, &ended.run);
    fixture_down(f);
    f->options.roles = STET_ROLE_WORKER; /* it ends, and nobody looks at its schedule */
    fixture_up_with(f, paused);
    fixture_go_on(f->engine, &ended.run);
    EXPECT_RESULT(f->engine, &ended.run, "ended");
    fixture_down(f);
    CHECK_OK(move_now(f, t, NULL, NULL));
    fixture_up_with(t, paused);
    CHECK_INT(plan_of(t->engine, "far").next_ms, far.next_ms);
    CHECK_INT(plan_of(t->engine, "open").fired, 1);
    AWAIT(plan_of(t->engine, "ended").fired == 2);
    CHECK_OK(stet_schedule_history(t->engine, "ended", 0, on_past, &n));
    CHECK_INT(n, 2);
    fixture_go_on(t->engine, &open.run);
    AWAIT(plan_of(t->engine, "open").fired == 2);
    fixture_end(t);
    fixture_end(f);
}

/* ---- more than a page, more than a unit ------------------------------------------------------ */

static int
body_large(stet_attempt *a, void *arg)
{
    static char block[40000];

    memset(block, *(char *)arg, sizeof block);
    return stet_attempt_return(a, (stet_bytes){ block, sizeof block });
}

/* Each awakeable's answer is an inbox entry; each step waits for the one before. */
static int
h_large(stet_ctx *ctx, stet_bytes input)
{
    for (char c = 'a'; c <= 'p'; c++)
        STET_TRY(stet_step(ctx, NULL, "large", body_large, &c, NULL));
    for (int i = 0; i < 3; i++) {
        stet_future *approval;
        stet_bytes   value;

        STET_TRY(fixture_hand_out(ctx, &approval));
        STET_TRY(stet_await(ctx, &value, approval));
        if (value.len != 300000)
            return stet_fail(ctx, STET_EPERMANENT, "the answer is cut");
    }
    return stet_return(ctx, input);
}

static int
h_note(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "note", input));
    return stet_return(ctx, input);
}

static const stet_handler    large_t[] = { { "large", h_large, NULL },
                                           { "quick", h_echo, NULL },
                                           { 0 } };
static const stet_handler    large_o[] = { { "note", h_note, NULL }, { 0 } };
static const fixture_service large_services[] = { { "t", large_t, false, NULL },
                                                  { "o", large_o, true, NULL },
                                                  { 0 } };

/* The n-th one, from 1. */
static void
large_answer(fixture *f, const stet_run_id *run, int n)
{
    static char block[300000];

    AWAIT(fixture_facts(f->engine, run, "awakeable", NULL) == n);
    fixture_await_status(f->engine, run, STET_STATUS_SUSPENDED);
    memset(block, '7', sizeof block);
    CHECK_OK(stet_resolve(f->engine, handed_out, (stet_bytes){ block, sizeof block }));
}

TEST(I5_many_runs_and_long_ones)
{
    enum { MANY = 150, KEYS = 70 };
    fixture           *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_start_request requests[MANY] = { 0 };
    stet_move_report   report;
    stet_run_id        large, notes[KEYS];
    char               key[16];

    f->options.sweep_ms = 10;
    fixture_up(f, large_services);
    large = fixture_start(f->engine, "t.large", "done", NULL);
    large_answer(f, &large, 1);
    large_answer(f, &large, 2);
    for (int i = 0; i < MANY; i++)
        requests[i] = (stet_start_request){ .handler = "t.quick", .input = stet_text("q") };
    CHECK_OK(stet_start_many(f->engine, requests, MANY));
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof key, "%d", i);
        notes[i] =
            fixture_start(f->engine, "o.note", key, STET_START(.key = key, .retention = "1ms"));
    }
    for (int i = 0; i < KEYS; i++)
        AWAIT(fixture_is_gone(f->engine, &notes[i]));
    for (int i = 0; i < MANY; i++)
        EXPECT_RESULT(f->engine, &requests[i].run, "q");
    AWAIT(fixture_facts(f->engine, &large, "awakeable", NULL) == 3);
    fixture_await_status(f->engine, &large, STET_STATUS_SUSPENDED);
    fixture_down(f);
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK_INT(report.runs, MANY + 1);
    CHECK_INT(report.baselines, KEYS);
    CHECK_INT(report.open_runs, 1);
    fixture_up(t, large_services);
    large_answer(t, &large, 3);
    EXPECT_RESULT(t->engine, &large, "done");
    for (int i = 0; i < KEYS; i++) {
        stet_bytes value;

        (void)snprintf(key, sizeof key, "%d", i);
        CHECK_OK(stet_state_read(t->engine, &value, "o", key, "note"));
        CHECK(fixture_is(value, key));
        stet_free((void *)(uintptr_t)value.data);
    }
    fixture_end(t);
    fixture_end(f);
}

/* ---- who is kept out ------------------------------------------------------------------------- */

static void
expect_stopped(stet_engine *e, const lost_story *s, const char *text)
{
    stet_run_id run;

    CHECK_CODE(stet_start(e, &run, "t.quick", stet_text(""), NULL), STET_EMOVED);
    CHECK_HAS(stet_last_error(), text);
    CHECK_CODE(stet_resolve(e, s->awakeable, stet_text("1")), STET_EMOVED);
    CHECK_CODE(stet_cancel(e, &s->napping, NULL, NULL), STET_EMOVED);
    CHECK_CODE(stet_dlq_retry(e, &run, &s->retried), STET_EMOVED);
    CHECK_CODE(stet_dlq_discard(e, &s->retried), STET_EMOVED);
    CHECK_HAS(stet_last_error(), text);
}

TEST(I5_the_source_can_be_read_and_takes_nothing_any_more)
{
    fixture     *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_engine *early, *late;
    lost_story   story;

    lost_fill(f, &story);
    early = fixture_open_with(f, lost_services); /* before anybody thought of moving */
    CHECK_OK(move_now(f, t, NULL, NULL));
    expect_stopped(early, &story, shown(t));
    CHECK_INT(fixture_sound(early), story.runs);
    CHECK_CODE(stet_engine_start(early), STET_EMOVED);
    CHECK_HAS(stet_last_error(), shown(t));
    CHECK_CODE(stet_engine_poll(early, NULL, 0), STET_EMOVED);
    stet_close(early);
    late = fixture_open_with(f, lost_services);
    expect_stopped(late, &story, shown(t));
    CHECK_CODE(stet_engine_start(late), STET_EMOVED);
    CHECK_INT(fixture_look(late, &story.napping).status, STET_STATUS_SUSPENDED);
    stet_close(late);
    if (f->db == NULL) { /* opening tells, and reads */
        CHECK_OK(stet_open(&late, f->url, &f->options));
        CHECK(fixture_logged(f, "was moved to") >= 1);
        CHECK_INT(fixture_count(late, NULL), story.runs);
        stet_close(late);
    }
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

typedef struct flood {
    stet_engine *client;
    stet_run_id  runs[20000];
    _Atomic int  n;
    int          code;
} flood;

static flood the_flood;

static void *
flood_main(void *arg)
{
    flood *f = arg;

    while (f->n < 20000 && (f->code = stet_start(f->client, &f->runs[f->n], "t.quick",
                                                 stet_text("in"), NULL)) == STET_OK)
        f->n++;
    return NULL;
}

/* Callers have no session, so nobody sees them come. What they were told is started is there. */
TEST(I5_no_start_is_acknowledged_and_left_behind)
{
    fixture   *f = fixture_begin(), *t = target_begin(false, "target.db");
    pthread_t  thread;
    lost_story story;

    lost_fill(f, &story);
    the_flood.client = fixture_open_with(f, lost_services);
    CHECK_INT(pthread_create(&thread, NULL, flood_main, &the_flood), 0);
    AWAIT(the_flood.n >= 20);
    CHECK_OK(move_now(f, t, NULL, NULL));
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(the_flood.code, STET_EMOVED);
    stet_close(the_flood.client);
    fixture_up(t, lost_services);
    for (int i = 0; i < the_flood.n; i++)
        EXPECT_RESULT(t->engine, &the_flood.runs[i], "in");
    fixture_end(t);
    fixture_end(f);
}

TEST(I5_living_workers_are_named_and_nothing_is_changed)
{
    fixture    *f = fixture_begin(), *t = target_begin(false, "target.db");
    lost_story  story;
    stet_run_id run;

    lost_fill(f, &story);
    f->options.worker = "busy bee";
    fixture_up(f, lost_services);
    CHECK_CODE(move_now(f, t, NULL, NULL), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "busy bee");
    run = fixture_start(f->engine, "t.quick", "still", NULL);
    EXPECT_RESULT(f->engine, &run, "still");
    fixture_down(f);
    t->options.worker = "other bee";
    fixture_up(t, lost_services);
    CHECK_CODE(move_now(f, t, NULL, NULL), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "other bee");
    fixture_down(t);
    fixture_up(f, lost_services);
    run = fixture_start(f->engine, "t.quick", "still", NULL);
    EXPECT_RESULT(f->engine, &run, "still");
    fixture_down(f);
    CHECK_OK(move_now(f, t, NULL, NULL));
    fixture_end(t);
    fixture_end(f);
}

static int (*real_sessions)(stet_store *s, stet_session_fn fn, void *arg);
static int looks_dead; /* so many looks find the living dead */

typedef struct dead_look {
    stet_session_fn fn;
    void           *arg;
} dead_look;

static int
on_dead(void *arg, const stet_session_row *row)
{
    dead_look       *look = arg;
    stet_session_row dead = *row;

    dead.is_dead = true;
    return look->fn(look->arg, &dead);
}

static int
sessions_dead(stet_store *s, stet_session_fn fn, void *arg)
{
    dead_look look = { fn, arg };

    return looks_dead-- > 0 ? real_sessions(s, on_dead, &look) : real_sessions(s, fn, arg);
}

/* Its lease had ended when it was looked at, and a renewal was on its way. */
TEST(I5_a_worker_that_comes_back_to_life_is_not_passed_over)
{
    fixture       *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_store    *s;
    stet_store_ops ops;
    lost_story     story;
    stet_run_id    run;

    lost_fill(f, &story);
    f->options.worker = "slow bee";
    fixture_up(f, lost_services);
    for (int looks = 1; looks < 4; looks++) {
        s = damage_open(f);
        ops = *s->ops;
        real_sessions = ops.sessions;
        ops.sessions = sessions_dead;
        s->ops = &ops;
        looks_dead = looks;
        CHECK_CODE(stet__move_on(NULL, stet__platform_real(), s, f->url, damage_open(t), t->url,
                                 NULL),
                   STET_EBUSY);
        CHECK_HAS(stet_last_error(), "slow bee");
        run = fixture_start(f->engine, "t.quick", "still", NULL);
        EXPECT_RESULT(f->engine, &run, "still");
    }
    fixture_down(f);
    CHECK_OK(move_now(f, t, NULL, NULL));
    fixture_end(t);
    fixture_end(f);
}

typedef struct keep_timer {
    stet_timer_fn fn;
    void         *arg;
} keep_timer;

static _Atomic int timer_looks, run_looks; /* those that found something */

static int
on_any_timer(void *arg, const stet_timer *timer)
{
    keep_timer *k = arg;

    timer_looks++;
    return k->fn(k->arg, timer);
}

static int
timers_told(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
            int64_t *next_ms)
{
    keep_timer k = { fn, arg };

    return stet__store_memory_ops.timers(s, until_ms, limit, on_any_timer, &k, next_ms);
}

static int
runs_told(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    run_looks++;
    return stet__store_memory_ops.runs(s, query, fn, arg);
}

/* One that lost its lease and does not know it, or gets no new one, changes nothing any more. */
TEST(I5_a_worker_that_was_passed_over_fires_and_removes_nothing)
{
    fixture        *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_store_ops *ops;
    stet_engine    *e;
    stet_run_id     nap, old;
    uint64_t        facts;

    if (f->db == NULL)
        test_skip("the memory store's clock can be moved");
    f->options.sweep_ms = 10;
    fixture_up(f, common_services);
    nap = fixture_start(f->engine, "t.nap", "rested", NULL);
    old = fixture_start(f->engine, "t.quick", "old", STET_START(.retention = "10m"));
    EXPECT_RESULT(f->engine, &old, "old");
    fixture_await_status(f->engine, &nap, STET_STATUS_SUSPENDED);
    fixture_down(f);
    f->options.roles = STET_ROLE_TIMERS;
    e = fixture_open_with(f, common_services);
    damage_mortal(e);
    ops = damage_ops(e);
    ops->timers = timers_told;
    ops->runs = runs_told;
    CHECK_OK(stet_engine_start(e));
    damage_die(f, e);
    AWAIT(move_now(f, t, NULL, NULL) == STET_OK);
    facts = fixture_look(e, &nap).facts;
    timer_looks = run_looks = 0;
    stet__memory_db_advance(f->db, 3600000);
    AWAIT(timer_looks >= 3 && run_looks >= 20);
    CHECK_INT(fixture_look(e, &nap).facts, facts);
    CHECK_INT(fixture_look(e, &nap).status, STET_STATUS_SUSPENDED);
    CHECK(!fixture_is_gone(e, &old));
    CHECK_INT(fixture_sound(e), 2);
    CHECK_OK(stet_engine_stop(e, 0));
    stet_close(e);
    stet__memory_db_advance(t->db, 3600000);
    fixture_up(t, common_services);
    EXPECT_RESULT(t->engine, &nap, "rested");
    fixture_end(t);
    fixture_end(f);
}

/* ---- a worker that died in a step ------------------------------------------------------------ */

static gate         risk_door = GATE_INIT;
static _Atomic bool risk_seen;
static _Atomic int  risk_bodies;

static int
risk_body(stet_attempt *a, void *arg)
{
    (void)arg;
    if (risk_bodies++ == 0)
        gate_pass(&risk_door);
    else
        risk_seen = stet_attempt_is_at_risk(a);
    return STET_OK;
}

static int
h_risky(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "risky", risk_body, NULL, NULL));
    return stet_return(ctx, input);
}

static const stet_handler risk_handlers[] = { { "risky", h_risky, NULL }, { 0 } };

TEST(I5_what_a_dead_worker_was_doing_is_known_in_the_target)
{
    fixture        *f = fixture_begin(), *t = target_begin(false, "target.db");
    fixture_service services[] = { { "t", risk_handlers, false, NULL }, { 0 } };
    stet_run_id     run;

    f->engine = fixture_open_with(f, services);
    damage_mortal(f->engine);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.risky", "alive", NULL);
    gate_await(&risk_door, 1);
    damage_die(f, f->engine);
    AWAIT(move_now(f, t, NULL, NULL) == STET_OK); /* when the lease is over */
    fixture_up(t, services);
    EXPECT_RESULT(t->engine, &run, "alive");
    CHECK(risk_seen);
    gate_open(&risk_door); /* the dead one comes back and may not write */
    fixture_close(f);
    CHECK_INT(risk_bodies, 2);
    fixture_end(t);
    fixture_end(f);
}

/* ---- begun and not finished ------------------------------------------------------------------ */

typedef struct watcher {
    stet_move_phase stop_at, last;
    bool            stops;
    int             n, phases;
    uint64_t        total;
} watcher;

static int
watch(void *arg, stet_move_phase phase, uint64_t done, uint64_t total)
{
    watcher *w = arg;

    CHECK(w->n == 0 || phase >= w->last);
    CHECK(phase == STET_MOVE_COUNTING ? total == 0 : done <= total);
    w->phases += w->n == 0 || phase != w->last;
    w->last = phase;
    w->total = total;
    w->n++;
    return w->stops && phase == w->stop_at ? -4711 : 0;
}

TEST(I5_progress_is_told)
{
    fixture   *f = fixture_begin(), *t = target_begin(false, "target.db");
    watcher    w = { .n = 0 };
    lost_story story;

    lost_fill(f, &story);
    CHECK_OK(move_now(f, t, NULL, STET_MOVE(.progress = watch, .arg = &w)));
    CHECK_INT(w.phases, 5);
    CHECK_INT(w.total, story.runs);
    CHECK_STR(stet_move_phase_name(STET_MOVE_COUNTING), "counting");
    CHECK_STR(stet_move_phase_name(STET_MOVE_COMPARING), "comparing");
    fixture_end(t);
    fixture_end(f);
}

static void
stop_and_go_on(stet_move_phase phase)
{
    fixture         *f = fixture_begin(), *t = target_begin(false, "target.db");
    watcher          w = { .stop_at = phase, .stops = true };
    stet_move_report report;
    stet_engine     *e;
    lost_story       story;

    lost_fill(f, &story);
    CHECK_CODE(move_now(f, t, NULL, STET_MOVE(.progress = watch, .arg = &w)), -4711);
    e = fixture_open_with(f, lost_services);
    expect_stopped(e, &story, "is being moved to");
    CHECK_CODE(stet_engine_start(e), STET_EMOVED);
    stet_close(e);
    if (t->db == NULL) {
        CHECK_CODE(stet_open(&e, t->url, NULL), STET_EMOVED);
        CHECK_HAS(stet_last_error(), shown(f));
        CHECK(e == NULL);
    }
    CHECK_OK(stet__open_on(&e, stet__platform_real(), damage_open(t), t->url, &t->options));
    CHECK_CODE(stet_start(e, NULL, "t.quick", stet_text(""), NULL), STET_EMOVED);
    CHECK_HAS(stet_last_error(), "is not complete");
    CHECK_CODE(stet_engine_start(e), STET_EMOVED);
    stet_close(e);
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK(report.is_continued);
    CHECK_INT(report.runs, story.runs);
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

TEST(I5_a_move_that_stops_counting_goes_on)
{
    stop_and_go_on(STET_MOVE_COUNTING);
}

TEST(I5_a_move_that_stops_copying_goes_on)
{
    stop_and_go_on(STET_MOVE_COPYING);
}

TEST(I5_a_move_that_stops_rebuilding_goes_on)
{
    stop_and_go_on(STET_MOVE_REBUILDING);
}

TEST(I5_a_move_that_stops_verifying_goes_on)
{
    stop_and_go_on(STET_MOVE_VERIFYING);
}

TEST(I5_a_move_that_stops_comparing_goes_on)
{
    stop_and_go_on(STET_MOVE_COMPARING);
}

TEST(I5_a_repeat_after_success_is_harmless)
{
    fixture         *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_move_report report;
    lost_story       story;

    lost_fill(f, &story);
    CHECK_OK(move_now(f, t, NULL, NULL));
    lost_goes_on(t, &story);
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK(report.was_done);
    CHECK_INT(report.runs, story.runs);
    fixture_up(t, lost_services); /* still open for work */
    fixture_end(t);
    fixture_end(f);
}

TEST(I5_a_move_can_be_called_off)
{
    fixture   *f = fixture_begin(), *t = target_begin(false, "target.db");
    fixture   *u = target_begin(false, "second.db");
    watcher    w = { .stop_at = STET_MOVE_REBUILDING, .stops = true };
    lost_story story;

    if (f->db != NULL)
        test_skip("stet_move_undo() opens the store by its address");
    lost_fill(f, &story);
    CHECK_OK(stet_move_undo(f->url)); /* nothing to call off */
    CHECK_CODE(move_now(f, t, NULL, STET_MOVE(.progress = watch, .arg = &w)), -4711);
    CHECK_CODE(stet_move_undo(t->url), STET_EMOVED);
    CHECK_OK(stet_move_undo(f->url));
    CHECK_OK(stet_move_undo(f->url));
    fixture_up(f, lost_services);
    fixture_down(f);
    CHECK_CODE(move_now(f, t, NULL, NULL), STET_EEXISTS); /* half filled, and not by this one */
    CHECK_OK(move_now(f, u, NULL, NULL));
    CHECK_CODE(stet_move_undo(f->url), STET_EMOVED);
    CHECK_CODE(move_now(f, t, NULL, NULL), STET_EMOVED);
    CHECK_HAS(stet_last_error(), shown(u));
    lost_goes_on(u, &story);
    fixture_end(u);
    fixture_end(t);
    fixture_end(f);
}

/* The disk of the target is lost: another empty one takes its place, and the first can never be
 * finished. */
TEST(I5_a_target_that_is_lost_can_be_replaced)
{
    fixture   *f = fixture_begin(), *t = target_begin(false, "target.db");
    fixture   *u = target_begin(false, "second.db");
    watcher    w = { .stop_at = STET_MOVE_COMPARING, .stops = true };
    lost_story story;

    lost_fill(f, &story);
    CHECK_CODE(move_now(f, t, NULL, STET_MOVE(.progress = watch, .arg = &w)), -4711);
    CHECK_OK(move_now(f, u, NULL, NULL));
    CHECK_CODE(move_now(f, t, NULL, NULL), STET_EMOVED);
    lost_goes_on(u, &story);
    fixture_end(u);
    fixture_end(t);
    fixture_end(f);
}

/* Two were begun; the one that is named last becomes the home, and the other cannot any more. */
TEST(I5_one_of_two_targets_becomes_the_home)
{
    fixture         *f = fixture_begin(), *t = target_begin(false, "target.db");
    fixture         *u = target_begin(false, "second.db");
    watcher          w = { .stop_at = STET_MOVE_COMPARING, .stops = true };
    stet_move_report report;
    lost_story       story;

    lost_fill(f, &story);
    CHECK_CODE(move_now(f, t, NULL, STET_MOVE(.progress = watch, .arg = &w)), -4711);
    w = (watcher){ .stop_at = STET_MOVE_COMPARING, .stops = true };
    CHECK_CODE(move_now(f, u, NULL, STET_MOVE(.progress = watch, .arg = &w)), -4711);
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK(report.is_continued);
    CHECK_CODE(move_now(f, u, NULL, NULL), STET_EMOVED);
    lost_goes_on(t, &story);
    fixture_end(u);
    fixture_end(t);
    fixture_end(f);
}

typedef struct rivals {
    fixture *from, *to;
    int      codes[2];
} rivals;

static void
rival(void *arg, int i)
{
    rivals *r = arg;

    r->codes[i] = move_now(r->from, r->to, NULL, NULL);
}

TEST(I5_two_moves_at_once_make_one)
{
    fixture   *f = fixture_begin(), *t = target_begin(false, "target.db");
    rivals     r = { .from = f, .to = t };
    lost_story story;

    lost_fill(f, &story);
    fixture_race(2, rival, &r);
    test_note("%s, %s", r.codes[0] ? stet_code_name(r.codes[0]) : "OK",
              r.codes[1] ? stet_code_name(r.codes[1]) : "OK");
    CHECK_OK(move_now(f, t, NULL, NULL)); /* if both gave way to the other */
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

/* ---- what is not in the facts, and what is not readable -------------------------------------- */

typedef struct line {
    stet_id runs[8];
    size_t  n;
} line;

static int
on_line(void *arg, stet_id run)
{
    line *l = arg;

    CHECK(l->n < 8);
    l->runs[l->n++] = run;
    return STET_OK;
}

static line
line_of(fixture *f, const char *handler, const char *key)
{
    stet_store *s = damage_open(f);
    line        l = { .n = 0 };
    stet__arena arena;

    stet__arena_init(&arena, &stet__platform_real()->alloc);
    CHECK_OK(s->ops->lane(s, stet__lane_name(&arena, handler, key), 8, on_line, &l));
    stet__arena_free(&arena);
    stet__store_close(s);
    return l;
}

/* The order of those that wait is the store's, and not that of their facts. */
TEST(I5_who_waits_keeps_his_place)
{
    fixture    *f = fixture_begin(), *t = target_begin(true, "target.db");
    stet_op     ops[2] = { { .kind = STET_OP_LANE_LEAVE, .status = STET_STATUS_PENDING },
                           { .kind = STET_OP_LANE_ENTER, .status = STET_STATUS_PENDING } };
    stet__arena arena;
    lost_story  story;
    line        before, after;

    lost_fill(f, &story);
    before = line_of(f, "o.tell", "l");
    CHECK_INT(before.n, 4);
    stet__arena_init(&arena, &stet__platform_real()->alloc);
    ops[0].run = ops[1].run = before.runs[1];
    ops[1].lane = stet__lane_name(&arena, "o.tell", "l");
    damage_do(f, ops, 2); /* the first of those that wait is the last now */
    stet__arena_free(&arena);
    before = line_of(f, "o.tell", "l");
    CHECK_OK(move_now(f, t, NULL, NULL));
    after = line_of(t, "o.tell", "l");
    CHECK_INT(after.n, before.n);
    CHECK(memcmp(after.runs, before.runs, sizeof before.runs) == 0);
    fixture_end(t);
    fixture_end(f);
}

static void expect_note(fixture *f, const char *key, const char *want);

TEST(I5_a_long_line_moves_whole)
{
    enum { WAITING = 40 };
    fixture     *f = fixture_begin(), *t = target_begin(true, "target.db");
    stet_engine *e = fixture_open(f);
    stet_run_id  runs[WAITING];
    char         text[16];

    for (int i = 0; i < WAITING; i++) {
        (void)snprintf(text, sizeof text, "%d", i);
        runs[i] = fixture_start(e, "o.note", text, STET_START(.key = "a"));
    }
    stet_close(e);
    CHECK_OK(move_now(f, t, NULL, NULL));
    fixture_up(t, large_services);
    for (int i = 0; i < WAITING; i++) {
        (void)snprintf(text, sizeof text, "%d", i);
        EXPECT_RESULT(t->engine, &runs[i], text);
    }
    fixture_down(t);
    expect_note(t, "a", text); /* the last was the last */
    fixture_end(t);
    fixture_end(f);
}

static void
expect_note(fixture *f, const char *key, const char *want)
{
    stet_engine *e = fixture_open(f);
    stet_bytes   value = { NULL, 0 };

    if (want == NULL)
        CHECK_CODE(stet_state_read(e, &value, "o", key, "note"), STET_ENOTFOUND);
    else {
        CHECK_OK(stet_state_read(e, &value, "o", key, "note"));
        CHECK(fixture_is(value, want));
        stet_free((void *)(uintptr_t)value.data);
    }
    stet_close(e);
}

/* Facts tell what was written last, but not always: the entry itself knows. */
TEST(I5_state_moves_as_it_is)
{
    fixture         *f = fixture_begin(), *t = target_begin(true, "target.db");
    stet_op          ops[2] = { { .kind = STET_OP_VALUE_PUT }, { .kind = STET_OP_VALUE_DEL } };
    stet_move_report report;
    stet_run_id      first, second;
    stet__arena      arena;

    fixture_up(f, large_services);
    first = fixture_start(f->engine, "o.note", "first", STET_START(.key = "a"));
    EXPECT_RESULT(f->engine, &first, "first");
    second = fixture_start(f->engine, "o.note", "second", STET_START(.key = "a"));
    EXPECT_RESULT(f->engine, &second, "second");
    second = fixture_start(f->engine, "o.note", "gone", STET_START(.key = "b"));
    EXPECT_RESULT(f->engine, &second, "gone");
    second = fixture_start(f->engine, "o.note", "kept", STET_START(.key = "c"));
    EXPECT_RESULT(f->engine, &second, "kept");
    fixture_down(f);
    stet__arena_init(&arena, &stet__platform_real()->alloc);
    for (int i = 0; i < 2; i++) {
        ops[i].space = STET__SPACE_STATE;
        CHECK(stet__value_key_state(&arena, &ops[i].key, "o.note", i == 0 ? "a" : "b", "note"));
    }
    ops[0].run = damage_id(&first);
    ops[0].number = 3;
    ops[0].data = stet_text("first");
    damage_do(f, ops, 2);
    stet__arena_free(&arena);
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK_INT(report.findings, 2);
    expect_note(t, "a", "first");
    expect_note(t, "b", NULL);
    expect_note(t, "c", "kept");
    damage_end(t);
    damage_end(f);
}

TEST(I5_state_end_and_key_of_a_run_whose_facts_cannot_be_read_are_kept)
{
    fixture         *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_move_report report;
    stet_engine     *e;
    stet_run_id      run, again;

    if (!f->is_sqlite)
        test_skip("damage needs a file");
    fixture_up(f, large_services);
    run = fixture_start(f->engine, "o.note", "mine",
                        STET_START(.key = "a", .idempotency_key = "once"));
    EXPECT_RESULT(f->engine, &run, "mine");
    fixture_down(f);
    damage_sql(f, "UPDATE facts SET data=x'00112233' WHERE run=?1 AND rev>1", &run,
               (stet_bytes){ NULL, 0 });
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK_INT(report.findings, 1);
    e = fixture_open(t);
    CHECK_INT(fixture_look(e, &run).status, STET_STATUS_COMPLETED); /* as its row said */
    CHECK_OK(stet_register_object(e, "o", large_o, NULL));
    CHECK_OK(stet_start(e, &again, "o.note", stet_text("mine"),
                        STET_START(.key = "a", .idempotency_key = "once")));
    CHECK_STR(again.text, run.text); /* it is still its key */
    stet_close(e);
    expect_note(t, "a", "mine");
    damage_end(t);
    damage_end(f);
}

TEST(I5_facts_that_cannot_be_read_move_as_they_are)
{
    fixture         *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_move_report report;
    lost_story       story;
    stet_engine     *e;

    if (!f->is_sqlite)
        test_skip("damage needs a file");
    lost_fill(f, &story);
    damage_sql(f, "UPDATE facts SET data=x'00112233' WHERE run=?1 AND rev=1", &story.napping,
               (stet_bytes){ NULL, 0 });
    damage_sql(f, "UPDATE facts SET data=x'00112233' WHERE run=?1 AND rev>1", &story.hold,
               (stet_bytes){ NULL, 0 });
    e = fixture_open(f);
    CHECK_OK(stet_repair(e, NULL, NULL, NULL));
    stet_close(e);
    CHECK_OK(move_now(f, t, &report, NULL));
    CHECK(report.findings >= 2);
    CHECK_INT(report.runs, story.runs);
    e = fixture_open(t);
    CHECK_INT(fixture_look(e, &story.hold).status, STET_STATUS_STUCK);
    CHECK_STR(fixture_look(e, &story.hold).reason, "its facts cannot be read");
    stet_close(e);
    fixture_up(t, lost_services);
    CHECK_OK(stet_resolve(t->engine, story.awakeable, stet_text("\"ok\"")));
    EXPECT_RESULT(t->engine, &story.approval, "\"ok\"");
    fixture_await_status(t->engine, &story.hold, STET_STATUS_STUCK); /* tried again, in vain */
    fixture_down(t);
    damage_end(t);
    damage_end(f);
}

TEST(I5_a_source_that_lost_facts_is_refused)
{
    static const struct {
        const char *sql;
        bool        is_told; /* of the run that has several entries in its inbox */
    } damages[] = {
        { "DELETE FROM inbox WHERE run=?1 AND seq=1", false },
        { "DELETE FROM inbox WHERE run=?1 AND seq=1", true },
        { "DELETE FROM facts WHERE run=?1 AND rev=1", false },
        { "DELETE FROM facts WHERE run=?1 AND rev=(SELECT MAX(rev) FROM facts WHERE run=?1)",
          false },
        { "DELETE FROM facts WHERE run=?1 AND rev="
          "(SELECT MIN(rev) FROM facts WHERE run=?1 AND rev>1)",
          false },
    };

    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        fixture           *f = fixture_begin(), *t = target_begin(false, "target.db");
        lost_story         story;
        const stet_run_id *run = damages[i].is_told ? &story.told : &story.settled;

        if (!f->is_sqlite)
            test_skip("damage needs a file");
        lost_fill(f, &story);
        damage_sql(f, damages[i].sql, run, (stet_bytes){ NULL, 0 });
        CHECK_CODE(move_now(f, t, NULL, NULL), STET_ECORRUPT);
        CHECK_HAS(stet_last_error(), run->text);
        CHECK_OK(stet_move_undo(f->url));
        damage_end(t);
        damage_end(f);
        (void)unlink(test_path("target.db"));
        fixture_wipe();
    }
}

/* What is compared in the end: one byte, one entry, one run. */
TEST(I5_a_difference_is_found_and_named)
{
    static const char *const damages[] = {
        "UPDATE facts SET data=data||x'00' WHERE run=?1 AND rev=1",
        "UPDATE inbox SET data=data||x'00' WHERE run=?1 AND seq=1",
    };

    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        fixture   *f = fixture_begin(), *t = target_begin(false, "target.db");
        watcher    w = { .stop_at = STET_MOVE_VERIFYING, .stops = true };
        lost_story story;

        if (!f->is_sqlite)
            test_skip("damage needs a file");
        lost_fill(f, &story);
        CHECK_CODE(move_now(f, t, NULL, STET_MOVE(.progress = watch, .arg = &w)), -4711);
        damage_sql(t, damages[i], &story.settled, (stet_bytes){ NULL, 0 });
        CHECK_CODE(move_now(f, t, NULL, NULL), STET_ECORRUPT);
        CHECK_HAS(stet_last_error(), story.settled.text);
        CHECK_OK(stet_move_undo(f->url));
        fixture_up(f, lost_services);
        damage_end(t);
        fixture_end(f);
        (void)unlink(test_path("target.db"));
        fixture_wipe();
    }
}

/* ---- bad input ------------------------------------------------------------------------------- */

TEST(I5_bad_input_changes_nothing)
{
    fixture    *f = fixture_begin(), *t = target_begin(false, "target.db");
    lost_story  story;
    stet_run_id run;
    char        url[1024];

    if (!f->is_sqlite)
        test_skip("addresses of files");
    CHECK_CODE(stet_move(NULL, f->url, t->url, NULL), STET_ENOTFOUND); /* no such source */
    CHECK_INT(access(f->url, F_OK), -1);
    CHECK_CODE(stet_move_undo(f->url), STET_ENOTFOUND);
    CHECK_CODE(stet_move(NULL, NULL, t->url, NULL), STET_EURL);
    CHECK_CODE(stet_move(NULL, f->url, "", NULL), STET_EURL);
    CHECK_CODE(stet_move(NULL, "memory:", t->url, NULL), STET_EURL);
    CHECK_CODE(stet_move(NULL, f->url, "memory:", NULL), STET_EURL);
    lost_fill(f, &story);
    CHECK_CODE(stet_move(NULL, f->url, f->url, NULL), STET_EINVAL);
    (void)snprintf(url, sizeof url, "sqlite:%s", f->url);
    CHECK_CODE(stet_move(NULL, f->url, url, NULL), STET_EINVAL);
    CHECK_HAS(stet_last_error(), "the same store");
    CHECK_CODE(stet_move(NULL, f->url, "nowhere://x", NULL), STET_EURL);
    CHECK_CODE(stet_move(NULL, f->url, t->url, &(stet_move_options){ .size = 1 }), STET_ECONFIG);
    fixture_up(t, lost_services);
    run = fixture_start(t->engine, "t.quick", "mine", NULL);
    EXPECT_RESULT(t->engine, &run, "mine");
    fixture_down(t);
    CHECK_CODE(stet_move(NULL, f->url, t->url, NULL), STET_EEXISTS);
    CHECK_HAS(stet_last_error(), "runs of its own");
    (void)snprintf(url, sizeof url, "%s?prefix=none", f->url);
    CHECK_CODE(stet_move(NULL, url, test_path("third.db"), NULL), STET_ENOTFOUND);
    CHECK_HAS(stet_last_error(), "nothing to move");
    lost_goes_on(f, &story); /* nobody noticed */
    fixture_up(t, lost_services);
    fixture_end(t);
    fixture_end(f);
}

TEST(I5_a_source_of_a_newer_version_is_refused)
{
    fixture   *f = fixture_begin();
    lost_story story;

    if (!f->is_sqlite)
        test_skip("addresses of files");
    lost_fill(f, &story);
    lost_sql(f->url, "PRAGMA user_version=9999");
    CHECK_CODE(stet_move(NULL, f->url, test_path("target.db"), NULL), STET_ENEWER);
    CHECK_INT(access(test_path("target.db"), F_OK), -1);
    damage_end(f);
}

/* Which write of state is the later is told by the time of its fact. */
TEST(I5_the_clock_of_the_target_is_past_that_of_the_source)
{
    fixture    *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_store *s;
    lost_story  story;
    int64_t     source_ms;

    if (f->db == NULL)
        test_skip("the memory store's clock can be moved");
    stet__memory_db_advance(f->db, 3600000);
    lost_fill(f, &story);
    CHECK_CODE(move_now(f, t, NULL, NULL), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "clock");
    stet__memory_db_advance(t->db, 3600000 - 300);
    s = damage_open(f);
    source_ms = s->ops->now_ms(s);
    stet__store_close(s);
    CHECK_OK(move_now(f, t, NULL, NULL));
    s = damage_open(t);
    CHECK(s->ops->now_ms(s) > source_ms);
    stet__store_close(s);
    lost_goes_on(t, &story);
    fixture_end(t);
    fixture_end(f);
}

/* Marks are read by people, and by whoever may look at the store. */
TEST(I5_passwords_are_not_written_down)
{
    fixture     *f = fixture_begin(), *t = target_begin(false, "target.db");
    stet_engine *e;
    lost_story   story;
    stet_run_id  run;

    lost_fill(f, &story);
    CHECK_OK(stet__move_on(NULL, stet__platform_real(), damage_open(f), f->url, damage_open(t),
                           "postgres://me:s3cr3t@db/shop?password=s3cr3t&x=1", NULL));
    e = fixture_open_with(f, lost_services);
    CHECK_CODE(stet_start(e, &run, "t.quick", stet_text(""), NULL), STET_EMOVED);
    CHECK_HAS(stet_last_error(), "db/shop");
    CHECK(strstr(stet_last_error(), "s3cr3t") == NULL);
    stet_close(e);
    fixture_end(t);
    fixture_end(f);
}

#endif
