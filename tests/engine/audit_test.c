/* The audit trail and its mirror (H6). tsan: yes */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "damage.h"
#include "engine/engine.h"

/* ---- a sink that remembers ------------------------------------------------------------------- */

enum { SINK_MAX = 4096 };

typedef struct sink_entry {
    char run[STET_ID_TEXT_MAX], id[64], line[192], state[32];
} sink_entry;

typedef struct sink {
    pthread_mutex_t lock;
    sink_entry      entries[SINK_MAX];
    size_t          n;
    char            refuses[64]; /* entries whose line has this; "": none */
    int             refused;
    bool            is_shut; /* refuses all */
} sink;

/* As people would read it: what, of what, what came of it. */
static void
sink_line(char *out, size_t size, const stet_audit_entry *a)
{
    (void)snprintf(out, size, "%s: %s%s%s%s%s", a->topic, a->kind, a->name != NULL ? " " : "",
                   a->name != NULL ? a->name : "", a->outcome != NULL ? ", " : "",
                   a->outcome != NULL ? a->outcome : "");
}

static void
sink_fill(sink_entry *e, const stet_audit_entry *a)
{
    (void)snprintf(e->run, sizeof e->run, "%s", a->run);
    (void)snprintf(e->id, sizeof e->id, "%s", a->id);
    (void)snprintf(e->state, sizeof e->state, "%s%s", a->is_transition ? "now " : "",
                   stet_status_name(a->status));
    sink_line(e->line, sizeof e->line, a);
}

static int
sink_take(void *arg, const stet_audit_entry *a)
{
    sink       *s = arg;
    sink_entry *e;
    int         code = STET_OK;

    pthread_mutex_lock(&s->lock);
    CHECK(s->n < SINK_MAX);
    e = &s->entries[s->n];
    sink_fill(e, a);
    if (s->is_shut || (s->refuses[0] != '\0' && strstr(e->line, s->refuses) != NULL)) {
        s->refused++;
        code = STET_EBUSY;
    } else
        s->n++;
    pthread_mutex_unlock(&s->lock);
    return code;
}

static sink *
sink_new(fixture *f)
{
    sink *s = calloc(1, sizeof *s);

    CHECK(s != NULL);
    CHECK_INT(pthread_mutex_init(&s->lock, NULL), 0);
    f->options.audit = sink_take;
    f->options.audit_arg = s;
    f->options.sweep_ms = 20;
    return s;
}

static void
sink_set(sink *s, bool is_shut, const char *refuses)
{
    pthread_mutex_lock(&s->lock);
    s->is_shut = is_shut;
    (void)snprintf(s->refuses, sizeof s->refuses, "%s", refuses);
    pthread_mutex_unlock(&s->lock);
}

static int
sink_refused(sink *s)
{
    int n;

    pthread_mutex_lock(&s->lock);
    n = s->refused;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* How often this entry was told. */
static int
sink_has(sink *s, const char *id)
{
    int n = 0;

    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++)
        n += strcmp(s->entries[i].id, id) == 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void
sink_forget(sink *s)
{
    pthread_mutex_lock(&s->lock);
    s->n = 0;
    pthread_mutex_unlock(&s->lock);
}

/* ---- trails as they are read ----------------------------------------------------------------- */

typedef struct trail {
    sink_entry entries[256];
    size_t     n;
} trail;

static int
trail_take(void *arg, const stet_audit_entry *a)
{
    trail      *t = arg;
    sink_entry *e = &t->entries[t->n++];

    CHECK(t->n <= 256);
    sink_fill(e, a);
    return STET_OK;
}

static trail *
trail_of(stet_engine *e, const stet_run_id *run)
{
    trail *t = calloc(1, sizeof *t);

    CHECK(t != NULL);
    CHECK_OK(stet_audit_run(e, run, trail_take, t));
    return t;
}

/* Is the first telling of each entry of this run there, in the order of the trail, and nothing
 * else? */
static bool
sink_is_trail(sink *s, const trail *t)
{
    size_t next = 0;
    bool   ok = true;

    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; ok && i < s->n; i++) {
        bool is_repeat = false;

        if (strcmp(s->entries[i].run, t->entries[0].run) != 0)
            continue;
        for (size_t k = 0; k < next; k++)
            is_repeat = is_repeat || strcmp(s->entries[i].id, t->entries[k].id) == 0;
        if (is_repeat)
            continue;
        ok = next < t->n && strcmp(s->entries[i].id, t->entries[next].id) == 0 &&
             strcmp(s->entries[i].line, t->entries[next].line) == 0 &&
             strcmp(s->entries[i].state, t->entries[next].state) == 0;
        next++;
    }
    ok = ok && next == t->n;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

static void
await_told(sink *s, stet_engine *e, const stet_run_id *run)
{
    trail *t = trail_of(e, run);

    AWAIT(sink_is_trail(s, t));
    free(t);
}

static bool
trail_has(const trail *t, const char *line)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->entries[i].line, line) == 0)
            return true;
    return false;
}

static void
check_line(const trail *t, const char *line)
{
    if (trail_has(t, line))
        return;
    for (size_t i = 0; i < t->n; i++)
        printf("# %s %s\n", t->entries[i].id, t->entries[i].line);
    test_fail(__FILE__, __LINE__, "the trail has no \"%s\"", line);
}

/* ---- handlers -------------------------------------------------------------------------------- */

static int
body_second_time(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_number(a) < 2 ? stet_attempt_fail(a, STET_ERETRY, "not yet") : STET_OK;
}

static int
is_left(void *arg)
{
    (void)arg;
    return 1;
}

/* Three generations, each with a note and a signal. */
static int
h_rounds(stet_ctx *ctx, stet_bytes input)
{
    uint64_t   turn = stet_info(ctx)->generation;
    stet_bytes got;

    (void)input;
    STET_TRY(stet_note(ctx, "turn %llu", (unsigned long long)turn));
    STET_TRY(stet_await_signal(ctx, &got, "go", NULL));
    return turn < 2 ? stet_continue(ctx, got) : stet_return(ctx, got);
}

/* Something of everything. */
static int
h_all(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch branches[] = { { "left", is_left }, { "right", NULL }, { 0 } };
    stet_bytes               got;
    stet_decision            decision;
    size_t                   chosen;

    (void)input;
    STET_TRY(stet_note(ctx, "begun"));
    STET_TRY(stet_step(ctx, NULL, "charge", body_effect, "charged", NULL));
    STET_TRY(stet_step(ctx, NULL, "again", body_second_time, NULL,
                       STET_STEP(.attempts = 3, .first_ms = 1, .max_ms = 1)));
    STET_TRY(stet_switch(ctx, &chosen, "way", branches, NULL));
    STET_TRY(stet_sleep(ctx, "nap", "30ms"));
    if (stet_await_signal(ctx, &got, "never", "1ms") != STET_ETIMEOUT)
        return stet_fail(ctx, STET_EPERMANENT, "a signal came that nobody sent");
    STET_TRY(stet_await_signal(ctx, &got, "payment", NULL));
    STET_TRY(stet_approve(ctx, &decision, "boss", stet_text("")));
    return stet_return(ctx, got);
}

static int
h_steps(stet_ctx *ctx, stet_bytes input)
{
    for (int i = 0; i < 5; i++)
        STET_TRY(stet_step(ctx, NULL, "one", body_effect, "stepped", NULL));
    return stet_return(ctx, input);
}

static const stet_handler handlers[] = { { "all", h_all, NULL },       { "steps", h_steps, NULL },
                                         { "quick", h_quick, NULL },   { "hour", h_hour, NULL },
                                         { "pauses", h_pauses, NULL }, { "rounds", h_rounds, NULL },
                                         { 0 } };
static const stet_handler nothing[] = { { "nothing", h_quick, NULL }, { 0 } };

static stet_run_id
run_all(fixture *f)
{
    stet_run_id run = fixture_start(f->engine, "t.all", "\"in\"", NULL);

    AWAIT(strcmp(fixture_why(f->engine, &run).kind, "signal") == 0 &&
          strstr(fixture_why(f->engine, &run).text, "payment") != NULL);
    CHECK_OK(stet_signal(f->engine, &run, "payment", stet_text("\"gone\""),
                         STET_SIGNAL_OPTIONS(.by = "the clerk")));
    AWAIT(strstr(fixture_why(f->engine, &run).text, "boss") != NULL);
    CHECK_OK(stet_run_approve(f->engine, &run, "the boss", "fine"));
    EXPECT_RESULT(f->engine, &run, "\"gone\"");
    return run;
}

/* ---- the trail ------------------------------------------------------------------------------- */

typedef struct looked {
    int     n_step, n_transitions;
    int64_t nap_ms, whole_ms, step_ms;
    char    who[64], text[64], value[64], input[64];
} looked;

static int
look_at(void *arg, const stet_audit_entry *a)
{
    looked *l = arg;

    CHECK(a->time_ms > 0 && a->status != 0 && a->kind != NULL && a->topic != NULL);
    CHECK_STR(a->handler, "t.all");
    CHECK(a->key == NULL && !a->is_inherited && !a->is_untaken);
    CHECK((a->revision == 0) != (a->inbox == 0));
    l->n_transitions += a->is_transition;
    if (strcmp(a->kind, "step") == 0) {
        l->n_step++;
        l->step_ms = a->duration_ms;
    }
    if (strcmp(a->kind, "timer fired") == 0 && strcmp(a->name, "nap") == 0)
        l->nap_ms = a->duration_ms;
    if (strcmp(a->kind, "completed") == 0)
        l->whole_ms = a->duration_ms;
    if (strcmp(a->kind, "decision") == 0) {
        (void)snprintf(l->who, sizeof l->who, "%s", a->who);
        (void)snprintf(l->text, sizeof l->text, "%s", a->text);
    }
    if (strcmp(a->kind, "signal") == 0)
        (void)snprintf(l->value, sizeof l->value, "%.*s", (int)a->value.len,
                       (const char *)a->value.data);
    if (strcmp(a->kind, "started") == 0)
        (void)snprintf(l->input, sizeof l->input, "%.*s", (int)a->value.len,
                       (const char *)a->value.data);
    return STET_OK;
}

TEST(H6_the_trail_tells_steps_waits_signals_choices_notes_and_decisions)
{
    fixture    *f = fixture_begin();
    looked      l = { .nap_ms = -1, .whole_ms = -1, .step_ms = -1 };
    stet_run_id run;
    trail      *t;
    char        id[64];

    fixture_up_with(f, handlers);
    run = run_all(f);
    t = trail_of(f->engine, &run);
    check_line(t, "run: started t.all");
    check_line(t, "note: note begun");
    check_line(t, "step: step charge, done");
    check_line(t, "step: step retry again, retried");
    check_line(t, "step: step again, done");
    check_line(t, "choice: switch way");
    check_line(t, "sleep: sleep nap, waiting");
    check_line(t, "sleep: timer fired nap, done");
    check_line(t, "signal: signal wait never, waiting");
    check_line(t, "signal: timer fired never, timed out");
    check_line(t, "signal: signal wait payment, waiting");
    check_line(t, "signal: signal payment, delivered");
    check_line(t, "decision: decision wait boss, waiting");
    check_line(t, "decision: decision boss, approved");
    check_line(t, "run: completed");
    (void)snprintf(id, sizeof id, "%s/1", run.text);
    CHECK_STR(t->entries[0].id, id);
    free(t);
    CHECK_OK(stet_audit_run(f->engine, &run, look_at, &l));
    CHECK_INT(l.n_step, 2);
    CHECK(l.n_transitions >= 4); /* pending, running, suspended, …, completed */
    CHECK(l.nap_ms >= 30 && l.whole_ms >= l.nap_ms && l.step_ms >= 0);
    CHECK_STR(l.who, "the boss");
    CHECK_STR(l.text, "fine");
    CHECK_STR(l.value, "\"gone\"");
    CHECK_STR(l.input, "\"in\"");
    fixture_end(f);
}

static atomic_bool has_deferred;

static int
body_later(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_number(a) < 2 && !atomic_exchange(&has_deferred, true)
               ? stet_attempt_not_before(a, 1, "too early")
               : STET_OK;
}

static int
body_breaks(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_fail(a, STET_EPERMANENT, "broken");
}

static int
undo_effect(stet_attempt *a, stet_bytes result)
{
    (void)result;
    return body_effect(a, "cancelled");
}

/* What asks others: state, runs, events, people; and goes wrong in the end. */
static int
h_more(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_run_id       self, sent;
    stet_run_look     look;
    stet_decision     decision;
    stet_future      *f, *naps[2];
    stet_bytes        got;
    size_t            chosen;
    int64_t           now_ms;
    int               version;
    bool              is_first;

    STET_TRY(stet_state_get(ctx, &got, "n"));
    STET_TRY(stet_state_set(ctx, "n", input));
    STET_TRY(stet_state_clear(ctx, "m"));
    STET_TRY(stet_once(ctx, &is_first, "only"));
    STET_TRY(stet_now(ctx, &now_ms));
    STET_TRY(stet_version(ctx, &version, "change", 1, 2));
    STET_TRY(stet_send(ctx, &sent, "t.quick", input, NULL));
    STET_TRY(stet_run_look_at(ctx, &look, &sent));
    STET_TRY(stet_call(ctx, &got, "t.quick", input, NULL));
    if (stet_call(ctx, NULL, "t.fails", input, NULL) != STET_ECHILD)
        return stet_fail(ctx, STET_EPERMANENT, "the child did not fail");
    STET_TRY(stet_awakeable(ctx, &id, &f, "hook"));
    STET_TRY(stet_ctx_reject(ctx, id.text, "no"));
    if (stet_await(ctx, NULL, f) != STET_EREJECTED)
        return stet_fail(ctx, STET_EPERMANENT, "it was not rejected");
    (void)snprintf(self.text, sizeof self.text, "%s", stet_info(ctx)->run);
    STET_TRY(stet_ctx_signal(ctx, &self, "go", stet_text("1")));
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    STET_TRY(stet_ctx_emit(ctx, NULL, "news", stet_text("1")));
    STET_TRY(stet_sleep_start(ctx, &naps[0], "short", "1ms"));
    STET_TRY(stet_sleep_start(ctx, &naps[1], "long", "1h"));
    STET_TRY(stet_await_any(ctx, &chosen, naps, 2, NULL));
    STET_TRY(stet_await_event(ctx, &got, "answers", NULL));
    if (stet_approve(ctx, &decision, "boss", stet_text("")) != STET_EREJECTED)
        return stet_fail(ctx, STET_EPERMANENT, "the boss said yes");
    STET_TRY(stet_pause(ctx, &decision, "break", stet_text("")));
    STET_TRY(stet_step(ctx, NULL, "book", body_effect, "booked", STET_STEP(.undo = undo_effect)));
    STET_TRY(stet_step(ctx, NULL, "later", body_later, NULL, NULL));
    if (stet_step(ctx, NULL, "breaks", body_breaks, NULL, NULL) == STET_OK)
        return stet_fail(ctx, STET_EPERMANENT, "it did not break");
    return stet_rollback(ctx);
}

static const stet_handler    more_handlers[] = { { "more", h_more, NULL },
                                                 { "quick", h_quick, NULL },
                                                 { "fails", h_no_account, NULL },
                                                 { 0 } };
static const fixture_service more_services[] = { { "t", more_handlers, false, NULL },
                                                 { "o", more_handlers, true, NULL },
                                                 { 0 } };

TEST(H6_the_trail_tells_state_calls_events_and_what_went_wrong)
{
    static const char *const lines[] = {
        "state: state read n",
        "state: state set n",
        "state: state cleared m",
        "state: once only",
        "other: now now",
        "choice: version change",
        "call: send t.quick",
        "call: call t.quick, waiting",
        "call: child ended t.quick, done",
        "call: child ended t.fails, failed",
        "awakeable: awakeable settled hook, failed",
        "signal: signal sent go",
        "signal: signal go, kept",
        "signal: signal wait go, delivered",
        "signal: signal go, repeated",
        "event: emit news",
        "event: event wait answers, waiting",
        "event: event answers, delivered",
        "choice: choice any",
        "decision: decision boss, rejected",
        "decision: decision break, resumed",
        "step: step retry later, deferred",
        "step: timer fired later, due",
        "step: step breaks, failed",
        "run: rollback rollback",
        "run: rolled back rollback",
        "run: completed",
    };
    fixture    *f = fixture_begin();
    stet_run_id run;
    trail      *t;

    fixture_up(f, more_services);
    run = fixture_start(f->engine, "o.more", "1", STET_START(.key = "k"));
    AWAIT(strstr(fixture_why(f->engine, &run).text, "answers") != NULL);
    for (int i = 0; i < 2; i++)
        CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("2"),
                             STET_SIGNAL_OPTIONS(.idempotency_key = "once")));
    CHECK_OK(stet_emit(f->engine, NULL, "answers", stet_text("2")));
    AWAIT(strstr(fixture_why(f->engine, &run).text, "boss") != NULL);
    CHECK_OK(stet_run_reject(f->engine, &run, "the boss", "no"));
    AWAIT(strstr(fixture_why(f->engine, &run).text, "break") != NULL);
    CHECK_OK(stet_run_resume(f->engine, &run, "the clerk", NULL));
    AWAIT(stet_status_is_terminal(fixture_look(f->engine, &run).status));
    t = trail_of(f->engine, &run);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        check_line(t, lines[i]);
    free(t);
    fixture_end(f);
}

static char late_awakeable[STET_ID_TEXT_MAX];

static int
h_late(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_decision     decision;
    stet_future      *f;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &f, "hook"));
    memcpy(late_awakeable, id.text, sizeof id.text);
    if (stet_await_for(ctx, NULL, f, "1ms") != STET_ETIMEOUT)
        return stet_fail(ctx, STET_EPERMANENT, "somebody was quick");
    return stet_pause(ctx, &decision, "break", stet_text(""));
}

TEST(H6_the_trail_tells_what_timed_out_and_how_runs_ended)
{
    static const stet_handler late_handlers[] = { { "late", h_late, NULL },
                                                  { "hour", h_hour, NULL },
                                                  { "fails", h_no_account, NULL },
                                                  { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               late, expires, fails;
    trail                    *t;

    fixture_up_with(f, late_handlers);
    late = fixture_start(f->engine, "t.late", "", NULL);
    AWAIT(strstr(fixture_why(f->engine, &late).text, "break") != NULL);
    CHECK_OK(stet_resolve(f->engine, late_awakeable, stet_text("1")));
    CHECK_OK(stet_run_resume(f->engine, &late, "the clerk", NULL));
    EXPECT_ANSWER(f->engine, &late, STET_OK);
    t = trail_of(f->engine, &late);
    check_line(t, "choice: timer fired awakeable hook#1, timed out");
    check_line(t, "choice: choice awakeable hook#1");
    check_line(t, "awakeable: awakeable settled hook, delivered");
    free(t);
    expires = fixture_start(f->engine, "t.hour", "", STET_START(.timeout = "20ms"));
    fixture_await_status(f->engine, &expires, STET_STATUS_EXPIRED);
    t = trail_of(f->engine, &expires);
    check_line(t, "run: expired");
    free(t);
    fails = fixture_start(f->engine, "t.fails", "", NULL);
    EXPECT_ANSWER(f->engine, &fails, STET_ERUN);
    t = trail_of(f->engine, &fails);
    check_line(t, "run: failed");
    free(t);
    fixture_end(f);
}

static gate         slow_door = GATE_INIT;
static atomic_llong slow_ms;

static int
body_slow(stet_attempt *a, void *arg)
{
    int64_t began_ms = fixture_mono_ms();

    (void)a;
    (void)arg;
    while (fixture_mono_ms() < began_ms + 20)
        fixture_breathe();
    atomic_store(&slow_ms, fixture_mono_ms() - began_ms);
    return STET_OK;
}

/* Its body runs beside one that waits at the door. */
static int
h_beside(stet_ctx *ctx, stet_bytes input)
{
    stet_future *door, *slow;

    (void)input;
    STET_TRY(stet_step_start(ctx, &door, "door", body_gate, &slow_door, NULL));
    STET_TRY(stet_step_start(ctx, &slow, "slow", body_slow, NULL, NULL));
    STET_TRY(stet_await(ctx, NULL, slow));
    return stet_await(ctx, NULL, door);
}

static int
slow_took(void *arg, const stet_audit_entry *a)
{
    if (strcmp(a->kind, "step") == 0 && strcmp(a->name, "slow") == 0)
        *(int64_t *)arg = a->duration_ms;
    return STET_OK;
}

TEST(H6_the_duration_of_a_step_is_that_of_its_body)
{
    static const stet_handler beside[] = { { "beside", h_beside, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    int64_t                   took_ms = -1;

    fixture_up_with(f, beside);
    run = fixture_start(f->engine, "t.beside", "", NULL);
    gate_await(&slow_door, 1);
    gate_open(&slow_door);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK_OK(stet_audit_run(f->engine, &run, slow_took, &took_ms));
    CHECK(took_ms >= atomic_load(&slow_ms) - 1);
    fixture_end(f);
}

static int
count_untaken(void *arg, const stet_audit_entry *a)
{
    *(int *)arg += a->is_untaken;
    return STET_OK;
}

static int
stop_at_once(void *arg, const stet_audit_entry *a)
{
    (void)a;
    ++*(int *)arg;
    return STET_EBUSY;
}

TEST(H6_the_trail_is_the_same_on_every_reading_and_says_what_was_not_taken)
{
    fixture    *f = fixture_begin();
    stet_run_id run, none = { "run_00000000000000000000000000" };
    trail      *before, *after;
    int         n = 0;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.pauses", "", NULL);
    fixture_paused(f->engine, &run);
    fixture_down(f);
    fixture_up_with(f, nothing);
    before = trail_of(f->engine, &run);
    CHECK_OK(stet_signal(f->engine, &run, "other", stet_text("1"), NULL));
    CHECK_OK(stet_audit_run(f->engine, &run, count_untaken, &n));
    CHECK_INT(n, 1);
    after = trail_of(f->engine, &run);
    CHECK_INT(after->n, before->n + 1);
    CHECK_STR(after->entries[before->n].line, "signal: signal other, kept");
    for (size_t i = 0; i < before->n; i++)
        CHECK(memcmp(&before->entries[i], &after->entries[i], sizeof before->entries[i]) == 0);
    n = 0;
    CHECK_CODE(stet_audit_run(f->engine, &run, stop_at_once, &n), STET_EBUSY);
    CHECK_INT(n, 1);
    CHECK_CODE(stet_audit_run(f->engine, &none, trail_take, before), STET_ENOTFOUND);
    free(before);
    free(after);
    fixture_end(f);
}

typedef struct hand {
    char kinds[512];
} hand;

static int
hand_of(void *arg, const stet_audit_entry *a)
{
    hand  *h = arg;
    size_t len = strlen(h->kinds);

    if (strcmp(a->topic, "operator") == 0)
        (void)snprintf(h->kinds + len, sizeof h->kinds - len, "%s by %s: %s; ", a->kind,
                       a->who != NULL ? a->who : "-", a->text != NULL ? a->text : "-");
    return STET_OK;
}

TEST(H6_the_trail_tells_what_operators_did_by_whom_and_why)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id run;
    hand        h = { "" };

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.hour", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_run_pause(f->engine, &run, "the owner", "stocktaking"));
    CHECK_OK(stet_run_resume(f->engine, &run, "the clerk", "counted"));
    CHECK_OK(stet_cancel(f->engine, &run, "the owner", "too late"));
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED); /* its answer comes before */
    CHECK_OK(stet_audit_run(f->engine, &run, hand_of, &h));
    CHECK_STR(h.kinds, "paused by the owner: stocktaking; resumed by the clerk: counted; "
                       "cancel asked by the owner: too late; ");
    await_told(s, f->engine, &run);
    fixture_end(f);
    free(s);
}

/* ---- the mirror ------------------------------------------------------------------------------ */

TEST(H6_the_hook_is_told_the_trail_of_each_run_in_its_order)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id all, steps[20];

    fixture_up_with(f, handlers);
    for (size_t i = 0; i < 20; i++)
        steps[i] = fixture_start(f->engine, "t.steps", "", NULL);
    all = run_all(f);
    for (size_t i = 0; i < 20; i++) {
        EXPECT_ANSWER(f->engine, &steps[i], STET_OK);
        await_told(s, f->engine, &steps[i]);
    }
    await_told(s, f->engine, &all);
    CHECK(fixture_sound(f->engine) >= 21);
    fixture_end(f);
    free(s);
}

TEST(H6_a_hook_is_told_of_runs_that_were_there_before_it_and_of_nothing_twice)
{
    fixture    *f = fixture_begin();
    stet_run_id run, open, late;
    sink       *s;
    size_t      n;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    open = fixture_start(f->engine, "t.pauses", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    fixture_paused(f->engine, &open);
    fixture_down(f);
    s = sink_new(f);
    fixture_up_with(f, handlers);
    await_told(s, f->engine, &run);
    await_told(s, f->engine, &open);
    fixture_down(f);
    n = s->n;
    fixture_up_with(f, handlers);
    late = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_ANSWER(f->engine, &late, STET_OK);
    await_told(s, f->engine, &late);
    fixture_go_on(f->engine, &open);
    EXPECT_ANSWER(f->engine, &open, STET_OK);
    await_told(s, f->engine, &open);
    fixture_down(f);
    for (size_t i = n; i < s->n; i++)
        CHECK_INT(sink_has(s, s->entries[i].id), 1);
    fixture_end(f);
    free(s);
}

TEST(H6_what_an_engine_did_before_it_stopped_is_told_when_it_has)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id run;
    trail      *t;

    f->options.sweep_ms = 3600000; /* nothing is found by looking */
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    fixture_down(f);
    f->options.audit = NULL;
    fixture_up_with(f, nothing);
    t = trail_of(f->engine, &run);
    CHECK(sink_is_trail(s, t));
    free(t);
    fixture_end(f);
    free(s);
}

TEST(H6_a_refused_entry_is_told_again_and_holds_up_its_run_alone)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id held, free_[5];
    stet_health health;
    char        id[64];

    sink_set(s, false, "note: note begun");
    fixture_up_with(f, handlers);
    held = run_all(f); /* it goes on, whatever the hook says */
    for (size_t i = 0; i < 5; i++) {
        free_[i] = fixture_start(f->engine, "t.steps", "", NULL);
        EXPECT_ANSWER(f->engine, &free_[i], STET_OK);
        await_told(s, f->engine, &free_[i]);
    }
    AWAIT(sink_refused(s) >= 2);
    (void)snprintf(id, sizeof id, "%s/1", held.text);
    CHECK(sink_has(s, id) >= 1);
    (void)snprintf(id, sizeof id, "%s/5", held.text);
    CHECK_INT(sink_has(s, id), 0); /* what stands behind it waits */
    CHECK_OK(stet_health_get(f->engine, &health));
    CHECK_INT(health.audit_failing, 1);
    CHECK_HAS(health.text, "the audit hook refuses entries of 1 runs");
    CHECK(fixture_logged(f, "the audit hook refused entry") >= 1);
    sink_set(s, false, "");
    await_told(s, f->engine, &held);
    AWAIT(stet_health_get(f->engine, &health) == STET_OK && health.audit_failing == 0);
    fixture_end(f);
    free(s);
}

/* Two that came from outside and were taken together: the first changes the status, the second does
 * not, also if it is told alone. */
TEST(H6_an_entry_that_was_refused_is_told_again_as_it_was)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id run;

    sink_set(s, false, "signal: signal other");
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.hour", "", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    fixture_down(f);
    fixture_up_with(f, nothing);
    CHECK_OK(stet_cancel(f->engine, &run, "the owner", "too late"));
    CHECK_OK(stet_signal(f->engine, &run, "other", stet_text("1"), NULL));
    fixture_down(f);
    fixture_up_with(f, handlers);
    fixture_await_status(f->engine, &run, STET_STATUS_CANCELLED);
    AWAIT(sink_refused(s) >= 2); /* the second time from where it stands */
    sink_set(s, false, "");
    await_told(s, f->engine, &run);
    fixture_end(f);
    free(s);
}

TEST(H6_a_hook_that_refuses_everything_is_left_alone_for_a_while_and_then_told_all)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id runs[30];

    sink_set(s, true, "");
    fixture_up_with(f, handlers);
    for (size_t i = 0; i < 30; i++)
        runs[i] = fixture_start(f->engine, "t.quick", "", NULL);
    for (size_t i = 0; i < 30; i++)
        EXPECT_ANSWER(f->engine, &runs[i], STET_OK);
    AWAIT(sink_refused(s) >= 8);
    sink_set(s, false, "");
    for (size_t i = 0; i < 30; i++)
        await_told(s, f->engine, &runs[i]);
    fixture_end(f);
    free(s);
}

TEST(H6_retention_waits_until_the_hook_was_told)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id run, kept;
    stet_health health;
    trail      *t;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 10;
    sink_set(s, false, "run: completed");
    fixture_up_with(f, handlers);
    kept = fixture_start(f->engine, "t.hour", "", NULL);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    t = trail_of(f->engine, &run);
    AWAIT(fixture_logged(f, "are kept beyond their retention") >= 1);
    AWAIT(stet_health_get(f->engine, &health) == STET_OK && health.audit_held == 1);
    CHECK(!fixture_is_gone(f->engine, &run));
    sink_set(s, false, "");
    AWAIT(fixture_is_gone(f->engine, &run));
    CHECK(sink_is_trail(s, t));
    AWAIT(stet_health_get(f->engine, &health) == STET_OK && health.audit_held == 0);
    CHECK(!fixture_is_gone(f->engine, &kept));
    free(t);
    fixture_end(f); /* and nothing is left of what was told of it */
    free(s);
}

/* ---- a hook that comes late ------------------------------------------------------------------ */

static gate       office_door = GATE_INIT;
static atomic_int office_asked, sweeps_seen;
static int (*office_value)(stet_store *s, const char *space, stet_bytes key, stet_value *value);
static int (*office_values)(stet_store *s, const char *space, stet_bytes prefix,
                            const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg);

/* The mirror asks first who tells, and has no answer for long. */
static int
value_late(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    if (strcmp(space, STET__SPACE_BASE_AUDIT) == 0 && atomic_fetch_add(&office_asked, 1) == 0)
        gate_pass(&office_door);
    return office_value(s, space, key, value);
}

/* Each sweep looks for what is paused. */
static int
values_counted(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
               size_t limit, stet_value_fn fn, void *arg)
{
    if (strcmp(space, STET__SPACE_BASE_PAUSED) == 0)
        atomic_fetch_add(&sweeps_seen, 1);
    return office_values(s, space, prefix, after, limit, fn, arg);
}

TEST(H6_nothing_is_removed_before_an_engines_own_hook_is_there)
{
    fixture        *f = fixture_begin();
    sink           *s = sink_new(f);
    stet_store_ops *ops;
    stet_run_id     run;
    trail          *t;
    int             seen;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 10;
    f->engine = fixture_open(f);
    ops = damage_ops(f->engine);
    office_value = ops->value;
    office_values = ops->values;
    ops->value = value_late;
    ops->values = values_counted;
    CHECK_OK(stet_register(f->engine, "t", handlers));
    CHECK_OK(stet_engine_start(f->engine));
    gate_await(&office_door, 1);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    t = trail_of(f->engine, &run);
    seen = atomic_load(&sweeps_seen);
    AWAIT(atomic_load(&sweeps_seen) >= seen + 10);
    CHECK(!fixture_is_gone(f->engine, &run));
    gate_open(&office_door);
    AWAIT(fixture_is_gone(f->engine, &run));
    CHECK(sink_is_trail(s, t));
    free(t);
    fixture_end(f);
    free(s);
}

/* Also in processes that have none, and after those with one are gone. */
/* ---- generations ----------------------------------------------------------------------------- */

static int
count_untold(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return STET_OK;
}

static int
untold_kept(stet_engine *e)
{
    stet_bytes all = { NULL, 0 };
    int        n = 0;

    CHECK_OK(
        e->store->ops->values(e->store, STET__SPACE_BASE_UNTOLD, all, NULL, 100, count_untold, &n));
    return n;
}

/* A hook that is on its way hears nothing of what ended before it was there. */
static bool
is_mirrored(stet_engine *e)
{
    uint64_t version = 0;

    CHECK_OK(stet__mirror_version(e, &version));
    return version != 0;
}

/* The trails of all its generations, as they were read when each was about to end. */
static stet_run_id
rounds(fixture *f, trail **trails)
{
    static const char *const turns[] = { "note: note turn 0", "note: note turn 1",
                                         "note: note turn 2" };
    stet_run_id              run = fixture_start(f->engine, "t.rounds", "", NULL);

    for (int i = 0; i < 3; i++) {
        bool is_there = false;

        while (!is_there) {
            fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
            trails[i] = trail_of(f->engine, &run);
            if (!(is_there = trail_has(trails[i], turns[i])))
                free(trails[i]);
        }
        CHECK_OK(stet_signal(f->engine, &run, "go", stet_text("1"), NULL));
    }
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    return run;
}

/* Each entry of these trails was told, the first tellings in this order. */
static bool
sink_has_all(sink *s, trail *const *trails, size_t n)
{
    size_t at = 0;
    bool   ok = true;

    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; ok && k < trails[i]->n; k++) {
            while (at < s->n && strcmp(s->entries[at].id, trails[i]->entries[k].id) != 0)
                at++;
            ok = at < s->n && strcmp(s->entries[at].line, trails[i]->entries[k].line) == 0 &&
                 strcmp(s->entries[at].state, trails[i]->entries[k].state) == 0;
        }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

TEST(H6_what_was_not_told_of_a_generation_is_told_behind_its_end)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id run;
    trail      *trails[3];
    int         refused;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 10;
    sink_set(s, true, "");
    fixture_up_with(f, handlers);
    AWAIT(is_mirrored(f->engine));
    run = rounds(f, trails);
    CHECK(!fixture_is_gone(f->engine, &run));
    CHECK_INT(untold_kept(f->engine), 2);
    (void)fixture_sound(f->engine);
    sink_set(s, false, "note turn 1"); /* in the middle of one */
    refused = sink_refused(s);
    AWAIT(sink_has_all(s, trails, 1) && sink_refused(s) > refused);
    CHECK(!fixture_is_gone(f->engine, &run));
    sink_set(s, false, "");
    AWAIT(fixture_is_gone(f->engine, &run));
    CHECK(sink_has_all(s, trails, 3));
    CHECK_INT(untold_kept(f->engine), 0);
    for (size_t i = 0; i < 3; i++)
        free(trails[i]);
    fixture_end(f);
    free(s);
}

/* A hook that keeps up, or none: nothing is kept for it. */
TEST(H6_generations_leave_nothing_behind_for_a_hook_that_is_not_there)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    trail      *trails[3];

    fixture_up_with(f, handlers);
    run = rounds(f, trails);
    CHECK_INT(untold_kept(f->engine), 0);
    (void)run;
    for (size_t i = 0; i < 3; i++)
        free(trails[i]);
    fixture_end(f);
}

TEST(H6_mirroring_that_is_turned_off_forgets_what_was_kept_for_it)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    trail      *trails[3];

    sink_set(s, true, "");
    fixture_up_with(f, handlers);
    AWAIT(is_mirrored(f->engine));
    (void)rounds(f, trails);
    CHECK_INT(untold_kept(f->engine), 2);
    CHECK_OK(stet_audit_off(f->engine));
    CHECK_INT(untold_kept(f->engine), 0);
    for (size_t i = 0; i < 3; i++)
        free(trails[i]);
    fixture_end(f);
    free(s);
}

static int
on_duration(void *arg, const stet_audit_entry *a)
{
    if (strcmp(a->kind, "signal") == 0 && a->outcome != NULL)
        *(int64_t *)arg = a->duration_ms;
    return STET_OK;
}

TEST(H6_how_long_a_wait_took_is_told_in_every_generation)
{
    fixture    *f = fixture_begin();
    stet_run_id run;
    trail      *trails[3];
    int64_t     took_ms = -2;

    fixture_up_with(f, handlers);
    run = rounds(f, trails);
    CHECK_OK(stet_audit_run(f->engine, &run, on_duration, &took_ms));
    CHECK(took_ms >= 0 && took_ms < 60000);
    for (size_t i = 0; i < 3; i++)
        free(trails[i]);
    fixture_end(f);
}

TEST(H6_retention_elsewhere_waits_for_the_hook_too_but_not_for_ever)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id first, run;

    fixture_up_with(f, handlers);
    first = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_ANSWER(f->engine, &first, STET_OK);
    await_told(s, f->engine, &first);
    fixture_down(f);
    f->options.audit = NULL;
    f->options.retention_ms = 1;
    f->options.sweep_ms = 10;
    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.quick", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    AWAIT(fixture_is_gone(f->engine, &first)); /* it was told */
    AWAIT(fixture_logged(f, "are kept beyond their retention") >= 1);
    CHECK(!fixture_is_gone(f->engine, &run));
    fixture_down(f);
    f->options.audit_hold_ms = STET_NONE;
    fixture_up_with(f, handlers);
    AWAIT(fixture_is_gone(f->engine, &run));
    AWAIT(fixture_logged(f, "whose trail the audit hook was not told") >= 1);
    fixture_end(f);
    free(s);
}

TEST(H6_a_hook_hears_what_other_processes_do)
{
    fixture     *f = fixture_begin();
    stet_engine *teller;
    stet_run_id  run, open;
    sink        *s;

    fixture_up_with(f, handlers); /* has none */
    s = sink_new(f);
    f->options.roles = STET_ROLE_TIMERS;
    teller = fixture_open(f);
    CHECK_OK(stet_engine_start(teller));
    run = run_all(f);
    open = fixture_start(f->engine, "t.pauses", "", NULL);
    fixture_paused(f->engine, &open);
    await_told(s, f->engine, &run);
    await_told(s, f->engine, &open);
    fixture_go_on(f->engine, &open);
    EXPECT_ANSWER(f->engine, &open, STET_OK);
    await_told(s, f->engine, &open);
    stet_close(teller);
    fixture_end(f);
    free(s);
}

TEST(H6_of_two_hooks_one_is_told_and_when_it_goes_the_other_goes_on)
{
    fixture     *f = fixture_begin();
    sink        *first = sink_new(f), *second;
    stet_engine *other;
    stet_run_id  run, late;
    char         id[64];

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    await_told(first, f->engine, &run);
    second = sink_new(f);
    other = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    CHECK_OK(stet_engine_start(other));
    for (int i = 0; i < 10; i++) {
        run = fixture_start(i % 2 == 0 ? f->engine : other, "t.steps", "", NULL);
        EXPECT_ANSWER(other, &run, STET_OK);
        await_told(first, other, &run);
    }
    CHECK_INT(second->n, 0);
    fixture_down(f);
    late = fixture_start(other, "t.steps", "", NULL);
    EXPECT_ANSWER(other, &late, STET_OK);
    await_told(second, other, &late);
    (void)snprintf(id, sizeof id, "%s/1", run.text);
    CHECK_INT(sink_has(second, id), 0); /* the first was told of that one */
    stet_close(other);
    free(first);
    free(second);
    fixture_end(f);
}

TEST(H6_mirroring_can_be_turned_off_and_a_hook_turns_it_on_again_from_the_start)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id run, other;
    char        id[64];

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    await_told(s, f->engine, &run);
    CHECK_OK(stet_audit_off(f->engine));
    CHECK_OK(stet_audit_off(f->engine));
    AWAIT(fixture_logged(f, "mirroring was turned off") == 1);
    sink_forget(s);
    other = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &other, STET_OK);
    fixture_down(f);
    CHECK_INT(s->n, 0);
    fixture_up_with(f, handlers);
    await_told(s, f->engine, &run);
    await_told(s, f->engine, &other);
    (void)snprintf(id, sizeof id, "%s/1", run.text);
    CHECK_INT(sink_has(s, id), 1);
    fixture_end(f);
    free(s);
}

TEST(H6_an_engine_without_threads_tells_while_it_is_polled)
{
    fixture    *f = fixture_begin();
    sink       *s = sink_new(f);
    stet_run_id run;
    trail      *t;
    int64_t     until_ms = fixture_mono_ms() + fixture_patience_ms();

    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    run = fixture_start(f->engine, "t.steps", "", NULL);
    while (fixture_look(f->engine, &run).status != STET_STATUS_COMPLETED) {
        CHECK(fixture_mono_ms() < until_ms);
        CHECK_OK(stet_engine_poll(f->engine, NULL, 10));
    }
    t = trail_of(f->engine, &run);
    while (!sink_is_trail(s, t)) {
        CHECK(fixture_mono_ms() < until_ms);
        CHECK_OK(stet_engine_poll(f->engine, NULL, 10));
    }
    free(t);
    fixture_end(f);
    free(s);
}

/* ---- calls of stet from the hook ------------------------------------------------------------- */

typedef struct curious {
    stet_engine *engine;
    atomic_int   read, told;
} curious;

static int
curious_take(void *arg, const stet_audit_entry *a)
{
    curious    *c = arg;
    trail      *t;
    stet_run_id run;

    atomic_fetch_add(&c->told, 1);
    if (strcmp(a->kind, "completed") != 0)
        return STET_OK;
    (void)snprintf(run.text, sizeof run.text, "%s", a->run);
    t = trail_of(c->engine, &run);
    atomic_store(&c->read, (int)t->n);
    free(t);
    return STET_OK;
}

TEST(H6_a_hook_may_call_stet)
{
    fixture    *f = fixture_begin();
    curious     c = { 0 };
    stet_run_id run;

    f->options.audit = curious_take;
    f->options.audit_arg = &c;
    f->engine = fixture_open_with(f, (fixture_service[]){ { "t", handlers, false, NULL }, { 0 } });
    c.engine = f->engine;
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    AWAIT(atomic_load(&c.read) > 0);
    CHECK_INT(atomic_load(&c.read), atomic_load(&c.told));
    fixture_end(f);
}

/* ---- what was told is kept in the store ------------------------------------------------------ */

static int
put_told(stet_engine *e, const char *run, uint64_t revision)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    stet_op    *op = stet__work_op(w, STET_OP_VALUE_PUT, (stet_id){ { 0 } });

    CHECK_OK(stet__id_parse(&op->run, STET__ID_RUN, run));
    CHECK(stet__work_bytes(w, &op->key, stet__id_bytes(&op->run)));
    op->space = STET__SPACE_BASE_TOLD;
    op->number = revision;
    return stet__commit_sync(e, w, NULL);
}

static int
count_finding(void *arg, const stet_finding *finding)
{
    CHECK_STR(finding->rule, "value");
    CHECK_HAS(finding->text, "base.told");
    ++*(int *)arg;
    return STET_OK;
}

TEST(H6_verify_finds_what_was_told_of_runs_that_are_not_there_and_a_mirror_forgets_it)
{
    fixture    *f = fixture_begin();
    sink       *s;
    stet_run_id run;
    int         n = 0;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK_OK(put_told(f->engine, "run_00000000000000000000000001", 7));
    CHECK_OK(stet_verify(f->engine, NULL, count_finding, &n));
    CHECK_INT(n, 1);
    CHECK_OK(stet_repair(f->engine, NULL, count_finding, &n));
    CHECK_INT(fixture_sound(f->engine), 1);
    CHECK_OK(put_told(f->engine, run.text, 9999)); /* told more than there is: all is told */
    fixture_down(f);
    s = sink_new(f);
    fixture_up_with(f, handlers);
    await_told(s, f->engine, &run);
    fixture_end(f);
    free(s);
}

static bool
is_told(stet_engine *e, stet_id id)
{
    stet_value v = { 0 };
    int        err = e->store->ops->value(e->store, STET__SPACE_BASE_TOLD, stet__id_bytes(&id), &v);

    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    CHECK(err == STET_OK || err == STET_ENOTFOUND);
    return err == STET_OK;
}

/* A run may go while it is told; what is noted of it then is nobody's. */
TEST(H6_a_mirror_forgets_what_was_told_of_runs_that_are_not_there)
{
    static const char oldest[] = "run_00000000000000000000000001";
    fixture          *f = fixture_begin();
    sink             *s;
    stet_run_id       run;
    stet_id           old, middle;
    int64_t           now_ms;
    char              text[STET_ID_TEXT_MAX];

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    CHECK_OK(stet__id_parse(&middle, STET__ID_RUN, run.text));
    middle.bytes[15] ^= 1; /* the last bytes are chance, the first ones a time */
    now_ms = stet_engine_now_ms(f->engine);
    AWAIT(stet_engine_now_ms(f->engine) > now_ms);
    run = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &run, STET_OK);
    stet__id_text(text, STET__ID_RUN, middle);
    CHECK_OK(stet__id_parse(&old, STET__ID_RUN, oldest));
    CHECK_OK(put_told(f->engine, oldest, 7));
    CHECK_OK(put_told(f->engine, text, 7));
    CHECK(is_told(f->engine, old) && is_told(f->engine, middle));
    fixture_down(f);
    s = sink_new(f);
    fixture_up_with(f, handlers);
    AWAIT(!is_told(f->engine, old) && !is_told(f->engine, middle));
    await_told(s, f->engine, &run);
    CHECK_INT(fixture_sound(f->engine), 2);
    fixture_end(f);
    free(s);
}

TEST(H6_a_run_whose_facts_cannot_be_read_is_told_as_far_as_it_goes)
{
    fixture    *f = fixture_begin();
    sink       *s;
    stet_run_id bad, good;
    trail      *t = calloc(1, sizeof *t);

    CHECK(t != NULL);
    if (!f->is_sqlite)
        test_skip("damage needs a file");
    fixture_up_with(f, handlers);
    bad = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &bad, STET_OK);
    good = fixture_start(f->engine, "t.steps", "", NULL);
    EXPECT_ANSWER(f->engine, &good, STET_OK);
    fixture_down(f);
#ifdef STET_WITH_SQLITE
    damage_sql(f, "UPDATE facts SET data=x'00112233' WHERE run=?1 AND rev>1", &bad,
               (stet_bytes){ NULL, 0 });
#endif
    s = sink_new(f);
    fixture_up_with(f, handlers);
    await_told(s, f->engine, &good);
    CHECK_CODE(stet_audit_run(f->engine, &bad, trail_take, t), STET_ECORRUPT);
    CHECK(t->n > 0);
    CHECK_STR(t->entries[0].line, "run: started t.steps");
    for (size_t i = 0; i < t->n; i++)
        AWAIT(sink_has(s, t->entries[i].id) == 1);
    fixture_down(f);
    free(t);
    free(s);
    damage_end(f);
}

/* ---- moves ----------------------------------------------------------------------------------- */

TEST(H6_a_move_keeps_the_ids_and_what_was_told)
{
    fixture    *f = fixture_begin(), *t;
    sink       *s = sink_new(f);
    stet_run_id run, open;
    trail      *before, *after;
    size_t      n;

    if (!f->is_sqlite)
        test_skip("a file is needed");
    fixture_up_with(f, handlers);
    run = run_all(f);
    open = fixture_start(f->engine, "t.pauses", "", NULL);
    fixture_paused(f->engine, &open);
    await_told(s, f->engine, &run);
    await_told(s, f->engine, &open);
    before = trail_of(f->engine, &run);
    fixture_down(f);
    n = s->n;
    t = fixture_begin();
    free((void *)(uintptr_t)t->url);
    CHECK((t->url = strdup(test_path("moved.db"))) != NULL);
    CHECK_OK(stet_move(NULL, f->url, t->url, NULL));
    t->options.audit = sink_take;
    t->options.audit_arg = s;
    t->options.sweep_ms = 20;
    fixture_up_with(t, handlers);
    after = trail_of(t->engine, &run);
    CHECK_INT(after->n, before->n);
    CHECK(memcmp(before, after, sizeof *before) == 0);
    fixture_go_on(t->engine, &open);
    EXPECT_ANSWER(t->engine, &open, STET_OK);
    await_told(s, t->engine, &open);
    for (size_t i = n; i < s->n; i++)
        CHECK_STR(s->entries[i].run, open.text);
    free(before);
    free(after);
    fixture_end(t);
    fixture_end(f);
    free(s);
}

/* ---- processes that are killed --------------------------------------------------------------- */

typedef struct outside {
    int fd;
    int left; /* entries until the process is killed; 0: it is not */
} outside;

/* To a file, as one write; and then nothing more of this process. */
static int
outside_take(void *arg, const stet_audit_entry *a)
{
    outside *o = arg;
    char     line[128];
    int      len = snprintf(line, sizeof line, "%s\n", a->id);

    CHECK_INT(write(o->fd, line, (size_t)len), len);
    if (o->left > 0 && --o->left == 0)
        (void)kill(getpid(), SIGKILL);
    return STET_OK;
}

/* How often this entry stands in the file, and where first. */
static int
outside_has(const char *id, long *first)
{
    FILE *file = fopen(test_path("mirror"), "rb");
    char  line[128];
    int   n = 0;

    CHECK(file != NULL);
    for (long at = 0; fgets(line, sizeof line, file) != NULL; at++) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, id) == 0 && n++ == 0)
            *first = at;
    }
    fclose(file);
    return n;
}

/* In a child: works until its hook has taken so many. */
static void
outside_life(fixture *f, int left)
{
    outside o = { open(test_path("mirror"), O_WRONLY | O_CREAT | O_APPEND, 0600), left };

    CHECK(o.fd >= 0);
    f->options.audit = outside_take;
    f->options.audit_arg = &o;
    f->options.sweep_ms = 20;
    fixture_up_with(f, handlers);
    /* The hook may have to wait until the lease of the last life is over. */
    for (int i = 0; i < 40; i++) {
        stet_run_id run = fixture_start(f->engine, "t.steps", "", NULL);

        EXPECT_ANSWER(f->engine, &run, STET_OK);
    }
    for (;;)
        (void)pause();
}

static int
outside_run(void *arg, const stet_run_info *info)
{
    stet_run_id *runs = arg;
    size_t       n = 0;

    while (runs[n].text[0] != '\0')
        n++;
    CHECK(n < 999);
    (void)snprintf(runs[n].text, sizeof runs[n].text, "%s", info->id);
    return STET_OK;
}

static bool
outside_is_complete(stet_engine *e, const stet_run_id *run, int *repeats)
{
    trail *t = trail_of(e, run);
    long   last = -1;
    bool   ok = true;

    for (size_t i = 0; ok && i < t->n; i++) {
        long first = -1;
        int  n = outside_has(t->entries[i].id, &first);

        ok = n >= 1 && first > last;
        last = first;
        *repeats += n > 1;
    }
    free(t);
    return ok;
}

TEST_LIMIT(H6_processes_are_killed_and_a_file_outside_has_every_entry, 120)
{
    fixture     *f = fixture_begin();
    stet_run_id *runs = calloc(1000, sizeof *runs);
    outside      o = { -1, 0 };
    int          repeats = 0, status;

    CHECK(runs != NULL);
    if (!f->is_sqlite && !f->is_postgres && !f->is_redis)
        test_skip("a process of its own needs a store that outlives it");
    f->options.lease_ms = 1000;
    f->options.renew_ms = 100;
    for (int i = 0; i < 5; i++) {
        pid_t child;

        fflush(NULL);
        CHECK((child = fork()) >= 0);
        if (child == 0) {
            outside_life(f, 7 + 11 * i);
            _exit(0);
        }
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    CHECK((o.fd = open(test_path("mirror"), O_WRONLY | O_APPEND)) >= 0);
    f->options.audit = outside_take;
    f->options.audit_arg = &o;
    f->options.sweep_ms = 20;
    fixture_up_with(f, handlers);
    CHECK_OK(stet_run_list(f->engine, STET_FILTER(.limit = 1000), outside_run, runs));
    for (size_t i = 0; runs[i].text[0] != '\0'; i++) {
        EXPECT_ANSWER(f->engine, &runs[i], STET_OK);
        AWAIT(outside_is_complete(f->engine, &runs[i], &repeats));
    }
    CHECK(repeats > 0); /* each kill came after an entry was taken and before that was written */
    fixture_end(f);
    close(o.fd);
    free(runs);
}
