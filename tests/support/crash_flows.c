/* The workflows of the crash tests; see crash_flows.h. */
#include "crash_flows_parts.h"
#include "engine/host.h"
#include "exec/context.h"

/* ---- bodies ---------------------------------------------------------------------------------- */

static int
flow_body(stet_attempt *a, void *step)
{
    flow_enter(a, step);
    return stet_attempt_return(a, stet_text(step));
}

static int
flow_failing(stet_attempt *a, void *step)
{
    flow_enter(a, step);
    return stet_attempt_fail(a, STET_ERETRY, "no luck in %s", (const char *)step);
}

static int
flow_hand_out(stet_attempt *a, void *arg)
{
    flow_ledger             *ledger = flow_here.ledger;
    const stet_awakeable_id *id = arg;

    flow_enter(a, "hand-out#1");
    if (ledger->awakeable[0] != '\0' && strcmp(ledger->awakeable, id->text) != 0)
        ledger->is_contradicted = true;
    memcpy(ledger->awakeable, id->text, sizeof ledger->awakeable);
    return STET_OK;
}

/* A step whose body says its name. */
static int
flow_step(stet_ctx *ctx, stet_bytes *out, const char *name, const char *full)
{
    return stet_step(ctx, out, name, flow_body, (void *)(uintptr_t)full, NULL);
}

/* ---- handlers -------------------------------------------------------------------------------- */

static int
flow_steps(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes a, b, c;

    (void)input;
    STET_TRY(flow_step(ctx, &a, "pack", "pack#1"));
    STET_TRY(flow_step(ctx, &b, "pack", "pack#2"));
    STET_TRY(flow_step(ctx, &c, "ship", "ship#1"));
    return stet_return(ctx, stet_text(stet_ctx_printf(
                                ctx, "%.*s %.*s %.*s", (int)a.len, (const char *)a.data, (int)b.len,
                                (const char *)b.data, (int)c.len, (const char *)c.data)));
}

static int
flow_nap(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(flow_step(ctx, NULL, "before", "before#1"));
    STET_TRY(stet_sleep_ms(ctx, "nap", 10));
    STET_TRY(flow_step(ctx, NULL, "after", "after#1"));
    return stet_return(ctx, stet_text("rested"));
}

static int
flow_child(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(flow_step(ctx, NULL, "work", "work#1"));
    return stet_return(ctx, input);
}

static int
flow_parent(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes answer;

    (void)input;
    STET_TRY(flow_step(ctx, NULL, "ask", "ask#1"));
    STET_TRY(stet_call(ctx, &answer, "flow.child", stet_text("called"), NULL));
    STET_TRY(stet_send(ctx, NULL, "flow.child", stet_text("sent"), NULL));
    STET_TRY(flow_step(ctx, NULL, "told", "told#1"));
    return stet_return(ctx, answer);
}

static int
flow_gate(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *opened;
    stet_bytes        value;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &opened, "opened"));
    STET_TRY(stet_step(ctx, NULL, "hand-out", flow_hand_out, &id, NULL));
    STET_TRY(stet_await(ctx, &value, opened));
    STET_TRY(flow_step(ctx, NULL, "pass", "pass#1"));
    return stet_return(ctx, value);
}

static int
flow_settler(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(flow_step(ctx, NULL, "think", "think#1"));
    return stet_ctx_resolve(ctx,
                            stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data),
                            stet_text("thought"));
}

static int
flow_asker(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *settled;
    stet_bytes        value;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &settled, "settled"));
    STET_TRY(stet_send(ctx, NULL, "flow.settler", stet_text(id.text), NULL));
    STET_TRY(stet_await(ctx, &value, settled));
    return stet_return(ctx, value);
}

static int
flow_add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    char      *text;

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "n"));
    text = stet_ctx_printf(ctx, "%d",
                           (value.data != NULL ? (int)strtol(value.data, NULL, 10) : 0) + 1);
    STET_TRY(flow_step(ctx, NULL, "add", "add#1"));
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

/* One of a crowd that wants the same key. Each says its name when it has it; the first one keeps it
 * until it is told. */
static int
flow_join(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes so_far;
    char      *text;

    if (input.len == 1 && *(const char *)input.data == '1')
        STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    STET_TRY(flow_step(ctx, NULL, "join", "join#1"));
    STET_TRY(stet_state_get(ctx, &so_far, "n"));
    text = stet_ctx_printf(ctx, "%.*s%.*s", (int)so_far.len,
                           so_far.len > 0 ? (const char *)so_far.data : "", (int)input.len,
                           (const char *)input.data);
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

/* Paused and resumed while it waits for the key: that does not give it to it. */
static int
flow_nudge(stet_attempt *a, void *run)
{
    stet_engine *e = ((const stet__claim *)a->ctx->host)->engine;
    int          rc;

    flow_enter(a, "nudge#1");
    while ((rc = stet_run_pause(e, run, "flow", NULL)) == STET_EBUSY || rc == STET_EUNCERTAIN)
        ;
    if (rc != STET_OK && rc != STET_ESETTLED)
        return rc;
    while ((rc = stet_run_resume(e, run, "flow", NULL)) == STET_EBUSY || rc == STET_EUNCERTAIN)
        ;
    return rc == STET_ESTATE ? STET_OK : rc; /* resumed by one of us who stood still */
}

/* They queue up for it, one of them for a moment only, and one is paused and resumed while it
 * waits; the last one comes when some have left. */
static int
flow_crowd(stet_ctx *ctx, stet_bytes input)
{
    static const char key[] = "q", handler[] = "counter.join";
    stet_run_id       first, second;
    stet_future      *hasty;
    stet_bytes        all;
    int               rc;

    (void)input;
    STET_TRY(stet_send(ctx, &first, handler, stet_text("1"), STET_START(.key = key)));
    STET_TRY(stet_send(ctx, &second, handler, stet_text("2"), STET_START(.key = key)));
    STET_TRY(stet_call_start(ctx, &hasty, handler, stet_text("3"),
                             STET_START(.key = key, .timeout = "10ms")));
    STET_TRY(stet_send(ctx, NULL, handler, stet_text("4"), STET_START(.key = key)));
    STET_TRY(stet_send(ctx, NULL, handler, stet_text("5"), STET_START(.key = key)));
    STET_TRY(stet_send(ctx, NULL, handler, stet_text("6"), STET_START(.key = key)));
    if ((rc = stet_await(ctx, NULL, hasty)) != STET_ECHILD)
        return rc == STET_OK ? STET_EPERMANENT : rc;
    STET_TRY(stet_step(ctx, NULL, "nudge", flow_nudge, &second, NULL));
    STET_TRY(stet_sleep(ctx, "a while", "20ms"));
    STET_TRY(stet_ctx_signal(ctx, &first, "go", stet_text("")));
    STET_TRY(stet_call(ctx, &all, handler, stet_text("7"), STET_START(.key = key)));
    return stet_return(ctx, all);
}

static int
flow_flaky(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(
        ctx, NULL, "flaky", flow_failing, (void *)(uintptr_t) "flaky#1",
        STET_STEP(.attempts = 3, .first_ms = 5, .max_ms = 5, .jitter_percent = STET_NONE));
}

static int
flow_doomed(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(flow_step(ctx, NULL, "hope", "hope#1"));
    return stet_step(ctx, NULL, "break", flow_failing, (void *)(uintptr_t) "break#1", NULL);
}

/* A passing failure of a future is recorded by the end of the run's attempt only. */
static int
flow_torn(stet_ctx *ctx, stet_bytes input)
{
    stet_future *both[2];

    (void)input;
    STET_TRY(
        stet_step_start(ctx, &both[0], "tear", flow_failing, (void *)(uintptr_t) "tear#1", NULL));
    STET_TRY(stet_step_start(ctx, &both[1], "calm", flow_body, (void *)(uintptr_t) "calm#1", NULL));
    STET_TRY(stet_await_all(ctx, both, 2));
    STET_TRY(stet_await(ctx, NULL, both[1]));
    return stet_await(ctx, NULL, both[0]);
}

static int
flow_race(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *of[2], *both[2];
    size_t            chosen;
    int               rc;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &of[0], "never"));
    STET_TRY(stet_sleep_start(ctx, &of[1], "soon", "5ms"));
    STET_TRY(stet_await_any(ctx, &chosen, of, 2, "1h"));
    if ((rc = stet_await_for(ctx, NULL, of[0], "5ms")) != STET_ETIMEOUT)
        return rc == STET_OK ? STET_EPERMANENT : rc;
    STET_TRY(stet_step_start(ctx, &both[0], "left", flow_body, (void *)(uintptr_t) "left#1", NULL));
    STET_TRY(
        stet_step_start(ctx, &both[1], "right", flow_body, (void *)(uintptr_t) "right#1", NULL));
    STET_TRY(stet_await_all(ctx, both, 2));
    STET_TRY(stet_await(ctx, NULL, both[0]));
    STET_TRY(stet_await(ctx, NULL, both[1]));
    STET_TRY(flow_step(ctx, NULL, "won", "won#1"));
    return stet_return(ctx, stet_text(chosen == 1 ? "timer" : "awakeable"));
}

/* Says two words to the run its input names. */
static int
flow_speaker(stet_ctx *ctx, stet_bytes input)
{
    stet_run_id to;

    (void)snprintf(to.text, sizeof to.text, "%.*s", (int)input.len, (const char *)input.data);
    STET_TRY(flow_step(ctx, NULL, "speak", "speak#1"));
    STET_TRY(stet_ctx_signal(ctx, &to, "word", stet_text("one")));
    return stet_ctx_signal(ctx, &to, "word", stet_text("two"));
}

/* A limit that is up, one that is not, none: each word to one wait. */
static int
flow_listener(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes one, two;
    int        rc;

    (void)input;
    if ((rc = stet_await_signal(ctx, &one, "word", "5ms")) != STET_ETIMEOUT)
        return rc == STET_OK ? STET_EPERMANENT : rc;
    STET_TRY(stet_send(ctx, NULL, "flow.speaker", stet_text(stet_info(ctx)->run), NULL));
    STET_TRY(stet_await_signal(ctx, &one, "word", "1h"));
    STET_TRY(flow_step(ctx, NULL, "heard", "heard#1"));
    STET_TRY(stet_await_signal(ctx, &two, "word", NULL));
    return stet_return(
        ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", (int)one.len, (const char *)one.data,
                                       (int)two.len, (const char *)two.data)));
}

typedef struct flow_words {
    char text[64];
} flow_words;

static int
flow_add_word(void *arg, stet_bytes input, stet_reply *reply)
{
    flow_words *w = arg;
    size_t      len = strlen(w->text);

    (void)snprintf(w->text + len, sizeof w->text - len, "%.*s ", (int)input.len,
                   (const char *)input.data);
    return stet_reply_set(reply, stet_text(w->text));
}

static int
flow_read_words(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)input;
    return stet_reply_set(reply, stet_text(((flow_words *)arg)->text));
}

/* Gets its words from outside, while it waits; see flow_drive_updates(). */
static int
flow_told(stet_ctx *ctx, stet_bytes input)
{
    flow_words w = { "" };

    (void)input;
    STET_TRY(stet_on_query(ctx, "words", flow_read_words, &w));
    STET_TRY(stet_on_update(ctx, "word", NULL, flow_add_word, &w));
    STET_TRY(flow_step(ctx, NULL, "listen", "listen#1"));
    STET_TRY(stet_await_signal(ctx, NULL, "go", "1h"));
    STET_TRY(flow_step(ctx, NULL, "understood", "understood#1"));
    return stet_return(ctx, stet_text(w.text));
}

/* Emits until somebody has heard it: once, since there is one. */
static int
flow_writer(stet_ctx *ctx, stet_bytes input)
{
    size_t heard = 0;

    (void)input;
    for (;;) {
        STET_TRY(stet_ctx_emit(ctx, &heard, "word", stet_text("word")));
        if (heard > 0)
            break;
        STET_TRY(stet_sleep(ctx, "again", "5ms"));
    }
    if (heard != 1)
        return STET_EPERMANENT;
    return flow_step(ctx, NULL, "wrote", "wrote#1");
}

static int
flow_is_word(void *value)
{
    const stet_bytes *b = value;

    return b->len == 4 && memcmp(b->data, "word", 4) == 0;
}

/* An event that does not come in time, one that does; then a choice, a note, and a key that is
 * given out once. */
static int
flow_reader(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch branches[] = { { "word", flow_is_word }, { "noise", NULL }, { 0 } };
    stet_bytes               value;
    size_t                   chosen;
    bool                     is_first;
    int                      rc;

    (void)input;
    if ((rc = stet_await_event(ctx, &value, "never", "5ms")) != STET_ETIMEOUT)
        return rc == STET_OK ? STET_EPERMANENT : rc;
    STET_TRY(stet_send(ctx, NULL, "flow.writer", stet_text(""), NULL));
    STET_TRY(stet_await_event(ctx, &value, "word", "1h"));
    STET_TRY(stet_switch(ctx, &chosen, "kind", branches, &value));
    STET_TRY(stet_note(ctx, "heard it in execution %u", stet_info(ctx)->attempt));
    STET_TRY(flow_step(ctx, NULL, "read", "read#1"));
    STET_TRY(stet_once(ctx, &is_first, "read"));
    return stet_return(ctx, stet_text(chosen == 0 && is_first ? "first" : "not"));
}

/* What a body returned is its name; its undo is named after it. */
static int
flow_undo(stet_attempt *a, stet_bytes result)
{
    char step[48];

    (void)snprintf(step, sizeof step, FLOW_UNDO "%.*s#1", (int)result.len,
                   (const char *)result.data);
    flow_enter(a, step);
    return STET_OK;
}

static int
flow_undoable(stet_ctx *ctx, const char *name, const char *step)
{
    return stet_step(ctx, NULL, name, flow_body, (void *)(uintptr_t)step,
                     STET_STEP(.undo = flow_undo));
}

/* Undoes what it did, and goes on. */
static int
flow_saga(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(flow_undoable(ctx, "reserve", "reserve#1"));
    STET_TRY(flow_undoable(ctx, "charge", "charge#1"));
    STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, stet_text("undone"));
}

/* Fails until its attempts are used up, and is undone then. */
static int
flow_regret(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_rollback_on_failure(ctx, true));
    STET_TRY(flow_undoable(ctx, "reserve", "reserve#1"));
    STET_TRY(flow_undoable(ctx, "charge", "charge#1"));
    return stet_step(ctx, NULL, "break", flow_failing, (void *)(uintptr_t) "break#1", NULL);
}

/* Fails for good until somebody has mended it. */
static int
flow_undo_sore(stet_attempt *a, stet_bytes result)
{
    bool is_mended;

    (void)flow_undo(a, result);
    flow_lock();
    is_mended = flow_here.ledger->is_mended;
    flow_unlock();
    return is_mended ? STET_OK : stet_attempt_fail(a, STET_EPERMANENT, "it hurts");
}

static int
flow_sore(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(flow_undoable(ctx, "reserve", "reserve#1"));
    STET_TRY(stet_step(ctx, NULL, "cut", flow_body, (void *)(uintptr_t) "cut#1",
                       STET_STEP(.undo = flow_undo_sore)));
    STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, stet_text("never told"));
}

/* Would be tried again, if its classifier did not know better. */
static int
flow_classed(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "tear", flow_failing, (void *)(uintptr_t) "tear#1", NULL);
}

static int
flow_classify(void *arg, const stet_failed *failed, int64_t *not_before_ms)
{
    (void)arg;
    (void)not_before_ms;
    return strstr(failed->text, "no luck in tear#1") != NULL ? STET_EPERMANENT : STET_OK;
}

/* Not where its handler is known to be paused. */
static int
flow_halted(stet_attempt *a, void *step)
{
    flow_ledger *ledger = flow_here.ledger;

    flow_enter(a, step);
    flow_lock();
    if (ledger->halted_at == a->ctx->exec->p && ledger->resumes_asked == 0)
        ledger->is_contradicted = true;
    flow_unlock();
    return STET_OK;
}

static int
flow_halting(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "halted", flow_halted, (void *)(uintptr_t) "halted#1", NULL);
}

/* Three generations of an object: each adds to its state, has a step of its own, and takes what the
 * one before left in its input. Words come to whichever there is. The first one leaves something
 * behind. */
static int
flow_turns(stet_ctx *ctx, stet_bytes input)
{
    static const char *const steps[] = { "past-0", "past-1", "last" };
    static const char *const full[] = { "past-0#1", "past-1#1", "last#1" };
    uint64_t                 turn = stet_info(ctx)->generation;
    stet_awakeable_id        id;
    stet_future             *left;
    stet_bytes               value, word = { NULL, 0 };
    char                    *text;

    if (turn > 2)
        return STET_EPERMANENT;
    if (turn == 0) {
        STET_TRY(stet_awakeable(ctx, &id, &left, "left"));
        STET_TRY(stet_sleep_start(ctx, &left, "left", "1h"));
        STET_TRY(stet_send(ctx, NULL, "flow.speaker", stet_text(stet_info(ctx)->run), NULL));
    }
    STET_TRY(stet_state_get(ctx, &value, "n"));
    text = stet_ctx_printf(ctx, "%d",
                           (value.data != NULL ? (int)strtol(value.data, NULL, 10) : 0) + 1);
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    STET_TRY(flow_step(ctx, NULL, steps[turn], full[turn]));
    if (turn == 2)
        return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%s%.*s", text, (int)input.len,
                                                          (const char *)input.data)));
    STET_TRY(stet_await_signal(ctx, &word, "word", NULL));
    return stet_continue(ctx,
                         stet_text(stet_ctx_printf(ctx, "%.*s %.*s", turn == 0 ? 0 : (int)input.len,
                                                   (const char *)input.data, (int)word.len,
                                                   (const char *)word.data)));
}

/* Hopeless without an operator, who skips one step, mends the result of another and has a third
 * done again. */
static int
flow_helped(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes first, given, word;

    (void)input;
    STET_TRY(flow_step(ctx, &first, "first", "first#1"));
    STET_TRY(stet_step(ctx, &given, "hopeless", flow_failing, (void *)(uintptr_t) "hopeless#1",
                       STET_STEP(.attempts = 1000, .first_ms = 3600000, .max_ms = 3600000)));
    STET_TRY(flow_step(ctx, NULL, "again", "again#1"));
    STET_TRY(stet_await_signal(ctx, &word, "go", NULL));
    return stet_return(
        ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", (int)first.len, (const char *)first.data,
                                       (int)given.len, (const char *)given.data)));
}

/* Waits for what never comes, until an operator ends it. */
static int
flow_lost(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(flow_step(ctx, NULL, "lost", "lost#1"));
    return stet_await_signal(ctx, NULL, "never", NULL);
}

/* Forked from its second step when it has ended. */
static int
flow_tree(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes trunk, branch;

    (void)input;
    STET_TRY(flow_step(ctx, &trunk, "trunk", "trunk#1"));
    STET_TRY(flow_step(ctx, &branch, "branch", "branch#1"));
    STET_TRY(stet_sleep_ms(ctx, "grow", 5));
    return stet_return(
        ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", (int)trunk.len, (const char *)trunk.data,
                                       (int)branch.len, (const char *)branch.data)));
}

/* Long enough to be paused and resumed meanwhile. */
static int
flow_slow_body(stet_attempt *a, void *step)
{
    stet__platform *p = a->ctx->exec->p;
    stet__cond      cond;
    stet__mutex     lock;

    flow_enter(a, step);
    if (p->ops->cond_init(p, &cond) != STET_OK || p->ops->mutex_init(p, &lock) != STET_OK)
        return STET_ENOMEM;
    stet__lock(p, &lock);
    (void)stet__wait(p, &cond, &lock, stet__mono_us(p) + 60000);
    stet__unlock(p, &lock);
    p->ops->mutex_destroy(p, &lock);
    p->ops->cond_destroy(p, &cond);
    return STET_OK;
}

static int
flow_slow(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "slow", flow_slow_body, (void *)(uintptr_t) "slow#1", NULL));
    STET_TRY(flow_step(ctx, NULL, "then", "then#1"));
    return stet_return(ctx, stet_text("resumed"));
}

/* Holds its key for a moment; who comes next has not begun until then. */
static int
flow_hold(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(flow_step(ctx, NULL, "hold", "hold#1"));
    STET_TRY(stet_sleep_ms(ctx, "hold", 30));
    return stet_return(ctx, stet_text("held"));
}

static int
flow_hear_late(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes word;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &word, "word", NULL));
    STET_TRY(flow_step(ctx, NULL, "heard", "heard#1"));
    return stet_return(ctx, word);
}

/* Looks at an object whose key another run holds. */
static int
flow_peek(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "n"));
    STET_TRY(flow_step(ctx, NULL, "peek", "peek#1"));
    return stet_return(ctx, value);
}

typedef struct flow_verdict {
    size_t      at;
    const char *step, *note;
} flow_verdict;

/* What the run was told, seen from outside: the same in every execution, and what was
 * acknowledged. */
static int
flow_hear(stet_attempt *a, void *arg)
{
    const flow_verdict *v = arg;
    flow_ledger        *ledger = flow_here.ledger;

    flow_enter(a, v->step);
    flow_lock();
    if (ledger->heard[v->at][0] != '\0' && strcmp(ledger->heard[v->at], v->note) != 0)
        ledger->is_contradicted = true;
    (void)snprintf(ledger->heard[v->at], sizeof ledger->heard[0], "%s", v->note);
    flow_unlock();
    return STET_OK;
}

static int
flow_heard(stet_ctx *ctx, size_t at, const char *name, const char *step, const stet_decision *d)
{
    flow_verdict v = { at, step, d->note != NULL ? d->note : "none" };

    return stet_step(ctx, NULL, name, flow_hear, &v, NULL);
}

/* Asks people three times, and once a shared handler of its own key; see flow_decide(). */
static int
flow_owner(stet_ctx *ctx, stet_bytes input)
{
    stet_decision d;
    stet_bytes    seen;
    int           rc;

    (void)input;
    STET_TRY(stet_state_set(ctx, "n", stet_text("one")));
    STET_TRY(stet_call(ctx, &seen, "counter.peek", stet_text(""),
                       STET_START(.key = stet_info(ctx)->key)));
    STET_TRY(stet_approve(ctx, &d, "pay", stet_text("{}")));
    STET_TRY(flow_heard(ctx, 0, "paid", "paid#1", &d));
    STET_TRY(stet_state_set(ctx, "n", stet_text("two")));
    STET_TRY(stet_pause(ctx, &d, "look", stet_text("{}")));
    STET_TRY(flow_heard(ctx, 1, "looked", "looked#1", &d));
    if ((rc = stet_approve(ctx, &d, "ship", stet_text("{}"))) != STET_EREJECTED)
        return rc == STET_OK ? STET_EPERMANENT : rc;
    STET_TRY(flow_heard(ctx, 2, "kept", "kept#1", &d));
    return stet_return(ctx, seen);
}

/* Longer than until the second time of its schedule, so that the second waits for the first. */
static int
flow_job(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(flow_step(ctx, NULL, "begin", "begin#1"));
    STET_TRY(stet_sleep(ctx, "job", "20ms"));
    STET_TRY(flow_step(ctx, NULL, "finish", "finish#1"));
    return stet_return(ctx, stet_text("over"));
}

/* Two times, and no more. They are to come when it is made, however slowly that goes: the
 * first is a little later than what is asked for then. */
static int
flow_times(void *arg, int64_t *next_ms, const char *schedule, int64_t after_ms)
{
    flow_ledger *ledger = flow_here.ledger;
    int64_t      first_ms;

    (void)arg;
    (void)schedule;
    flow_lock();
    if (ledger->planned_ms == 0)
        ledger->planned_ms = after_ms + 120;
    first_ms = ledger->planned_ms;
    flow_unlock();
    *next_ms = after_ms < first_ms ? first_ms : first_ms + 10;
    return after_ms < first_ms + 10 ? STET_OK : STET_END;
}

int
flow_register(stet_engine *e)
{
    static const stet_handler_options classed = { .classify = flow_classify };
    static const stet_handler         services[] = {
                { "steps", flow_steps, NULL },
                { "nap", flow_nap, NULL },
                { "parent", flow_parent, NULL },
                { "child", flow_child, NULL },
                { "gate", flow_gate, NULL },
                { "asker", flow_asker, NULL },
                { "settler", flow_settler, NULL },
                { "flaky", flow_flaky, NULL },
                { "doomed", flow_doomed, NULL },
                { "race", flow_race, NULL },
                { "torn", flow_torn, NULL },
                { "speaker", flow_speaker, NULL },
                { "listener", flow_listener, NULL },
                { "reader", flow_reader, NULL },
                { "writer", flow_writer, NULL },
                { "saga", flow_saga, NULL },
                { "regret", flow_regret, NULL },
                { "job", flow_job, NULL },
                { "told", flow_told, NULL },
                { "helped", flow_helped, NULL },
                { "lost", flow_lost, NULL },
                { "tree", flow_tree, NULL },
                { "sore", flow_sore, NULL },
                { "halting", flow_halting, NULL },
                { "classed", flow_classed, &classed },
                { "slow", flow_slow, NULL },
                { "crowd", flow_crowd, NULL },
                { 0 },
    };
    static const stet_handler_options shared = { .shared = true };
    static const stet_handler         objects[] = {
                { "add", flow_add, NULL },
                { "turns", flow_turns, NULL },
                { "owner", flow_owner, NULL },
                { "peek", flow_peek, &shared },
                { "hold", flow_hold, NULL },
                { "hear", flow_hear_late, NULL },
                { "join", flow_join, NULL },
                { 0 },
    };
    int err = stet_register(e, "flow", services);

    if (err == STET_OK)
        err = stet_register_schedule(e, "times", flow_times, NULL);
    return err == STET_OK ? stet_register_object(e, "counter", objects, NULL) : err;
}

const flow flows[] = {
    { "steps",
      { { "flow.steps", NULL, STET_STATUS_COMPLETED, 0, "pack#1 pack#2 ship#1" } },
      1,
      1,
      0,
      { { "pack#1", 1 }, { "pack#2", 1 }, { "ship#1", 1 } } },
    { "sleep",
      { { "flow.nap", NULL, STET_STATUS_COMPLETED, 0, "rested" } },
      1,
      1,
      0,
      { { "before#1", 1 }, { "after#1", 1 } } },
    { "child",
      { { "flow.parent", NULL, STET_STATUS_COMPLETED, 0, "called" } },
      1,
      3,
      0,
      { { "ask#1", 1 }, { "work#1", 2 }, { "told#1", 1 } } },
    { "awakeable",
      { { "flow.gate", NULL, STET_STATUS_COMPLETED, 0, "open" } },
      1,
      1,
      0,
      { { "hand-out#1", 1 }, { "pass#1", 1 } } },
    { "settled by a run",
      { { "flow.asker", NULL, STET_STATUS_COMPLETED, 0, "thought" } },
      1,
      2,
      0,
      { { "think#1", 1 } } },
    { "object",
      { { "counter.add", "k", STET_STATUS_COMPLETED, 0, "1" },
        { "counter.add", "k", STET_STATUS_COMPLETED, 0, "2" } },
      2,
      2,
      0,
      { { "add#1", 2 } } },
    { FLOW_LETTERS, /* one of them is retried, in vain */
      { { "flow.flaky", NULL, STET_STATUS_FAILED, STET_ESTEP, NULL },
        { "flow.doomed", NULL, STET_STATUS_FAILED, STET_EATTEMPTS, NULL } },
      2,
      3,
      2,
      { { "flaky#1", 6 }, { "hope#1", 1 }, { "break#1", 2 } } },
    { "torn futures",
      { { "flow.torn", NULL, STET_STATUS_FAILED, STET_EATTEMPTS, NULL } },
      1,
      1,
      1,
      { { "tear#1", 2 }, { "calm#1", 1 } } },
    { "first of with timeout",
      { { "flow.race", NULL, STET_STATUS_COMPLETED, 0, "timer" } },
      1,
      1,
      0,
      { { "left#1", 1 }, { "right#1", 1 }, { "won#1", 1 } } },
    { "signals",
      { { "flow.listener", NULL, STET_STATUS_COMPLETED, 0, "one two" } },
      1,
      2,
      0,
      { { "speak#1", 1 }, { "heard#1", 1 } } },
    { FLOW_UPDATES,
      { { "flow.told", NULL, STET_STATUS_COMPLETED, 0, "a b " } },
      1,
      1,
      0,
      { { "listen#1", 1 }, { "understood#1", 1 } } },
    { "events",
      { { "flow.reader", NULL, STET_STATUS_COMPLETED, 0, "first" } },
      1,
      2,
      0,
      { { "read#1", 1 }, { "wrote#1", 1 } } },
    { "rollback",
      { { "flow.saga", NULL, STET_STATUS_COMPLETED, 0, "undone" },
        { "flow.regret", NULL, STET_STATUS_FAILED, STET_EATTEMPTS, NULL } },
      2,
      2,
      1,
      { { "reserve#1", 2 },
        { "charge#1", 2 },
        { "break#1", 2 },
        { "rollback:charge#1#1", 2 },
        { "rollback:reserve#1#1", 2 } } },
    { "generations",
      { { "counter.turns", "t", STET_STATUS_COMPLETED, 0, "3 one two" } },
      1,
      2,
      0,
      { { "past-0#1", 1 }, { "past-1#1", 1 }, { "last#1", 1 }, { "speak#1", 1 } } },
    { FLOW_OPERATORS,
      { { "flow.helped", NULL, STET_STATUS_COMPLETED, 0, "mended by hand" },
        { "flow.lost", NULL, STET_STATUS_FAILED, STET_EFORCED, NULL } },
      2,
      2,
      1,
      { { "first#1", 1 }, { "hopeless#1", 1 }, { "again#1", 2 }, { "lost#1", 1 } } },
    { FLOW_FORKS, /* one at least: who is not told of one makes another */
      { { "flow.tree", NULL, STET_STATUS_COMPLETED, 0, "trunk#1 branch#1" } },
      1,
      1,
      0,
      { { "trunk#1", 1 }, { "branch#1", 1 } } },
    { FLOW_MENDING, /* its waiters were told that it failed, and so it ends */
      { { "flow.sore", NULL, STET_STATUS_FAILED, STET_ECOMPENSATION, NULL },
        { "flow.classed", NULL, STET_STATUS_FAILED, STET_ERETRY, NULL } },
      2,
      2,
      2,
      { { "reserve#1", 1 },
        { "cut#1", 1 },
        { "tear#1", 1 },
        { "rollback:cut#1#1", 2 },
        { "rollback:reserve#1#1", 1 } } },
    { FLOW_HALTED,
      { { "flow.halting", NULL, STET_STATUS_COMPLETED, 0, NULL } },
      1,
      1,
      0,
      { { "halted#1", 1 } } },
    { FLOW_PEOPLE,
      { { "counter.owner", "p", STET_STATUS_COMPLETED, 0, "one" } },
      1,
      2,
      0,
      { { "peek#1", 1 }, { "paid#1", 1 }, { "looked#1", 1 }, { "kept#1", 1 } } },
    { FLOW_RESUME,
      { { "flow.slow", NULL, STET_STATUS_COMPLETED, 0, "resumed" } },
      1,
      1,
      0,
      { { "slow#1", 1 }, { "then#1", 1 } } },
    { FLOW_LATE,
      { { "counter.hold", "s", STET_STATUS_COMPLETED, 0, "held" },
        { "counter.hear", "s", STET_STATUS_COMPLETED, 0, "word" } },
      2,
      2,
      0,
      { { "hold#1", 1 }, { "heard#1", 1 } } },
    { "crowd",
      { { "flow.crowd", NULL, STET_STATUS_COMPLETED, 0, "124567" } },
      1,
      8,
      0,
      { { "join#1", 6 }, { "nudge#1", 1 } } },
    { .name = FLOW_SCHEDULE, /* nothing is started: it does that, twice */
      .runs = 2,
      .steps = { { "begin#1", 2 }, { "finish#1", 2 } } },
};
const size_t flows_n = sizeof flows / sizeof flows[0];

const flow *
flow_named(const char *name)
{
    for (size_t i = 0; i < flows_n; i++)
        if (flow_is(&flows[i], name))
            return &flows[i];
    test_fail(__FILE__, __LINE__, "there is no flow \"%s\"", name);
}
