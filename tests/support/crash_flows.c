/* Workflows, ledger and check of the crash tests; see crash_flows.h.
 *
 * Bodies get no argument from the engine's side that could carry the ledger through a replay, so the
 * ledger of this process is a variable here. Its mutex also stops all bodies at the moment of a crash.
 */
#include "crash_flows.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/fact.h"
#include "engine/engine.h"
#include "exec/context.h"
#include "test.h"
#include "util/util.h"

#define FLOW_SCHEDULE "schedule"
#define FLOW_UPDATES "updates"
#define FLOW_OPERATORS "operators"
#define FLOW_PEOPLE "people"
#define FLOW_LETTERS "dead letters"

#define FLOW_DOUBT_MS 2000

static struct {
    flow_ledger    *ledger;
    pthread_mutex_t lock;
} flow_here = { NULL, PTHREAD_MUTEX_INITIALIZER };

/* ---- the ledger ------------------------------------------------------------------------------- */

flow_ledger *
flow_ledger_new(void)
{
    void *p = mmap(NULL, sizeof(flow_ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

void
flow_ledger_clear(flow_ledger *ledger)
{
    memset(ledger, 0, sizeof *ledger);
}

void
flow_ledger_begin(flow_ledger *ledger)
{
    flow_here.ledger = ledger;
    ledger->life++;
}

void
flow_ledger_stop(void)
{
    (void)pthread_mutex_lock(&flow_here.lock);
}

void
flow_ledger_crash(flow_ledger *ledger, const void *place)
{
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        flow_entry *entry = &ledger->entries[i];

        if (entry->life == ledger->life && !entry->is_settled && (place == NULL || entry->place == place))
            entry->is_lost = true;
    }
}

size_t
flow_ledger_lost(const flow_ledger *ledger)
{
    size_t lost = 0;

    for (size_t i = 0; i < atomic_load(&ledger->n); i++)
        lost += ledger->entries[i].is_lost;
    return lost;
}

void
flow_ledger_copy(flow_ledger *to, const flow_ledger *from)
{
    (void)pthread_mutex_lock(&flow_here.lock);
    memcpy(to, from, sizeof *to);
    (void)pthread_mutex_unlock(&flow_here.lock);
}

static void
flow_enter(const stet_attempt *a, const char *step)
{
    flow_ledger *ledger = flow_here.ledger;
    flow_entry  *entry;
    size_t       at;

    (void)pthread_mutex_lock(&flow_here.lock);
    at = atomic_load(&ledger->n);
    if (at < FLOW_ENTRIES_MAX) {
        entry = &ledger->entries[at];
        (void)snprintf(entry->run, sizeof entry->run, "%s", stet_attempt_run(a));
        (void)snprintf(entry->step, sizeof entry->step, "%s", step);
        (void)snprintf(entry->token, sizeof entry->token, "%s", stet_attempt_token(a));
        entry->is_at_risk = stet_attempt_is_at_risk(a);
        entry->life = ledger->life;
        entry->place = a->ctx->exec->p;
        entry->fence = stet_attempt_fence(a);
        atomic_store(&ledger->n, at + 1);
    }
    (void)pthread_mutex_unlock(&flow_here.lock);
}

#define FLOW_UNDO "rollback:" /* what the name of an undo begins with */

/* With `step` NULL: all of the run but its undos; the facts that end an attempt are the record of a body that
 * failed without a policy of its own. */
static void
flow_settle(flow_ledger *ledger, const char *run, uint64_t epoch, const char *step)
{
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        flow_entry *entry = &ledger->entries[i];

        if (entry->fence == epoch && strcmp(entry->run, run) == 0 &&
            (step == NULL ? strncmp(entry->step, FLOW_UNDO, strlen(FLOW_UNDO)) != 0 : strcmp(entry->step, step) == 0))
            entry->is_settled = true;
    }
}

static void
flow_settle_by(flow_ledger *ledger, const char *run, uint64_t epoch, const stet__fact *fact)
{
    char step[64];

    switch (fact->kind) {
    case STET__FACT_STEP:
    case STET__FACT_STEP_RETRY:
        (void)snprintf(step, sizeof step, "%.*s#%lld", (int)fact->name.len, (const char *)fact->name.data,
                       (long long)fact->occurrence);
        flow_settle(ledger, run, epoch, step);
        break;
    case STET__FACT_ROLLBACK: /* because it failed: this is the record of how */
        if (!(fact->flags & STET__FACT_AUTO))
            break;
        flow_settle(ledger, run, epoch, NULL);
        break;
    case STET__FACT_ATTEMPT_FAILED: flow_settle(ledger, run, epoch, NULL); break;
    default: break;
    }
}

/* Under which claim a unit records for this run. */
static uint64_t
flow_epoch(const stet_unit *unit, stet_id run)
{
    for (size_t i = 0; i < unit->n_conds; i++)
        if (unit->conds[i].kind == STET_COND_CLAIM && stet__id_equal(unit->conds[i].run, run))
            return unit->conds[i].epoch;
    return 0;
}

void
flow_ledger_applied(void *arg, const stet_unit *unit)
{
    char run[STET_ID_TEXT_MAX];

    (void)pthread_mutex_lock(&flow_here.lock);
    for (size_t i = 0; i < unit->n_ops; i++) {
        stet_bytes in = unit->ops[i].data;
        stet__fact fact;

        if (unit->ops[i].kind != STET_OP_FACTS)
            continue;
        stet__id_text(run, STET__ID_RUN, unit->ops[i].run);
        while (stet__fact_decode(&fact, &in) == STET_OK)
            flow_settle_by(arg, run, flow_epoch(unit, unit->ops[i].run), &fact);
    }
    (void)pthread_mutex_unlock(&flow_here.lock);
}

/* ---- what a store has -------------------------------------------------------------------------- */

enum { FLOW_RUNS_MAX = 16 };

typedef struct flow_found {
    flow_ledger *ledger;
    const bool  *was_settled;
    stet_id      runs[FLOW_RUNS_MAX];
    size_t       n;
    char         run[STET_ID_TEXT_MAX]; /* the one being read */
    uint64_t     epoch;                 /* of its last claim so far */
} flow_found;

static int
flow_on_row(void *arg, const stet_run_row *row)
{
    flow_found *found = arg;

    CHECK(found->n < FLOW_RUNS_MAX);
    found->runs[found->n++] = row->id;
    return STET_OK;
}

/* The records of the generations before went with them: the claim that ended the last one had
 * recorded all it entered, and of those before it is known. */
static void
flow_settle_past(const flow_found *found, uint64_t epoch)
{
    for (size_t i = 0; i < atomic_load(&found->ledger->n); i++) {
        flow_entry *entry = &found->ledger->entries[i];

        if (entry->fence <= epoch && strcmp(entry->run, found->run) == 0)
            entry->is_settled = entry->fence == epoch || found->was_settled[i];
    }
}

static int
flow_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    flow_found *found = arg;
    stet__fact  fact;

    (void)first;
    (void)count;
    while (stet__fact_decode(&fact, &facts) == STET_OK)
        if (fact.kind == STET__FACT_CLAIMED)
            found->epoch = (uint64_t)fact.number;
        else if (fact.kind == STET__FACT_STARTED && fact.generation != 0)
            flow_settle_past(found, (uint64_t)fact.epoch);
        else
            flow_settle_by(found->ledger, found->run, found->epoch, &fact);
    return STET_OK;
}

void
flow_ledger_recover(flow_ledger *ledger, stet_store *store, const char *where)
{
    static bool    was_settled[FLOW_ENTRIES_MAX];
    flow_found     found = { .ledger = ledger, .was_settled = was_settled };
    stet_run_query all = { .limit = FLOW_RUNS_MAX };

    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        was_settled[i] = ledger->entries[i].is_settled;
        ledger->entries[i].is_settled = false;
    }
    CHECK_OK(store->ops->runs(store, &all, flow_on_row, &found));
    for (size_t i = 0; i < found.n; i++) {
        stet__id_text(found.run, STET__ID_RUN, found.runs[i]);
        found.epoch = 0;
        CHECK_OK(store->ops->journal(store, found.runs[i], 1, 1000, flow_on_facts, &found));
    }
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        flow_entry *entry = &ledger->entries[i];

        if (was_settled[i] && !entry->is_settled)
            test_fail(__FILE__, __LINE__, "%s: the record of %s of %s, which was durable, is gone",
                      where, entry->step, entry->run);
        entry->is_lost = !entry->is_settled;
    }
}

/* ---- bodies ------------------------------------------------------------------------------------- */

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

/* ---- handlers ----------------------------------------------------------------------------------- */

static int
flow_steps(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes a, b, c;

    (void)input;
    STET_TRY(flow_step(ctx, &a, "pack", "pack#1"));
    STET_TRY(flow_step(ctx, &b, "pack", "pack#2"));
    STET_TRY(flow_step(ctx, &c, "ship", "ship#1"));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s %.*s", (int)a.len, (const char *)a.data, (int)b.len,
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
    return stet_ctx_resolve(ctx, stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data), stet_text("thought"));
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
    text = stet_ctx_printf(ctx, "%d", (value.data != NULL ? (int)strtol(value.data, NULL, 10) : 0) + 1);
    STET_TRY(flow_step(ctx, NULL, "add", "add#1"));
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

static int
flow_flaky(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "flaky", flow_failing, (void *)(uintptr_t) "flaky#1",
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
    STET_TRY(stet_step_start(ctx, &both[0], "tear", flow_failing, (void *)(uintptr_t) "tear#1", NULL));
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
    STET_TRY(stet_step_start(ctx, &both[1], "right", flow_body, (void *)(uintptr_t) "right#1", NULL));
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
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", (int)one.len, (const char *)one.data,
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

    (void)snprintf(w->text + len, sizeof w->text - len, "%.*s ", (int)input.len, (const char *)input.data);
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

/* An event that does not come in time, one that does; then a choice, a note, and a key that is given out once. */
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

    (void)snprintf(step, sizeof step, FLOW_UNDO "%.*s#1", (int)result.len, (const char *)result.data);
    flow_enter(a, step);
    return STET_OK;
}

static int
flow_undoable(stet_ctx *ctx, const char *name, const char *step)
{
    return stet_step(ctx, NULL, name, flow_body, (void *)(uintptr_t)step, STET_STEP(.undo = flow_undo));
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

/* Three generations of an object: each adds to its state, has a step of its own, and takes what the one before
 * left in its input. Words come to whichever there is. The first one leaves something behind. */
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
    text = stet_ctx_printf(ctx, "%d", (value.data != NULL ? (int)strtol(value.data, NULL, 10) : 0) + 1);
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    STET_TRY(flow_step(ctx, NULL, steps[turn], full[turn]));
    if (turn == 2)
        return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%s%.*s", text, (int)input.len, (const char *)input.data)));
    STET_TRY(stet_await_signal(ctx, &word, "word", NULL));
    return stet_continue(ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", turn == 0 ? 0 : (int)input.len,
                                                        (const char *)input.data, (int)word.len,
                                                        (const char *)word.data)));
}

/* Hopeless without an operator, who skips one step, mends the result of another and has a third done again. */
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
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", (int)first.len, (const char *)first.data,
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

/* What the run was told, seen from outside: the same in every execution, and what was acknowledged. */
static int
flow_hear(stet_attempt *a, void *arg)
{
    const flow_verdict *v = arg;
    flow_ledger        *ledger = flow_here.ledger;

    flow_enter(a, v->step);
    (void)pthread_mutex_lock(&flow_here.lock);
    if (ledger->heard[v->at][0] != '\0' && strcmp(ledger->heard[v->at], v->note) != 0)
        ledger->is_contradicted = true;
    (void)snprintf(ledger->heard[v->at], sizeof ledger->heard[0], "%s", v->note);
    (void)pthread_mutex_unlock(&flow_here.lock);
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
    STET_TRY(stet_call(ctx, &seen, "counter.peek", stet_text(""), STET_START(.key = stet_info(ctx)->key)));
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

/* Two times, and no more. */
static int
flow_times(void *arg, int64_t *next_ms, const char *schedule, int64_t after_ms)
{
    int64_t first_ms = flow_here.ledger->planned_ms;

    (void)arg;
    (void)schedule;
    *next_ms = after_ms < first_ms ? first_ms : first_ms + 10;
    return after_ms < first_ms + 10 ? STET_OK : STET_END;
}

int
flow_register(stet_engine *e)
{
    static const stet_handler services[] = {
        { "steps", flow_steps, NULL },   { "nap", flow_nap, NULL },     { "parent", flow_parent, NULL },
        { "child", flow_child, NULL },   { "gate", flow_gate, NULL },   { "asker", flow_asker, NULL },
        { "settler", flow_settler, NULL }, { "flaky", flow_flaky, NULL }, { "doomed", flow_doomed, NULL },
        { "race", flow_race, NULL },     { "torn", flow_torn, NULL },   { "speaker", flow_speaker, NULL },
        { "listener", flow_listener, NULL }, { "reader", flow_reader, NULL }, { "writer", flow_writer, NULL },
        { "saga", flow_saga, NULL },     { "regret", flow_regret, NULL }, { "job", flow_job, NULL },
        { "told", flow_told, NULL },     { "helped", flow_helped, NULL }, { "lost", flow_lost, NULL }, { 0 },
    };
    static const stet_handler_options shared = { .shared = true };
    static const stet_handler objects[] = {
        { "add", flow_add, NULL },     { "turns", flow_turns, NULL }, { "owner", flow_owner, NULL },
        { "peek", flow_peek, &shared }, { 0 },
    };
    int                       err = stet_register(e, "flow", services);

    if (err == STET_OK)
        err = stet_register_schedule(e, "times", flow_times, NULL);
    return err == STET_OK ? stet_register_object(e, "counter", objects, NULL) : err;
}

const flow flows[] = {
    { "steps",
      { { "flow.steps", NULL, STET_STATUS_COMPLETED, 0, "pack#1 pack#2 ship#1" } },
      1, 1, 0,
      { { "pack#1", 1 }, { "pack#2", 1 }, { "ship#1", 1 } } },
    { "sleep",
      { { "flow.nap", NULL, STET_STATUS_COMPLETED, 0, "rested" } },
      1, 1, 0,
      { { "before#1", 1 }, { "after#1", 1 } } },
    { "child",
      { { "flow.parent", NULL, STET_STATUS_COMPLETED, 0, "called" } },
      1, 3, 0,
      { { "ask#1", 1 }, { "work#1", 2 }, { "told#1", 1 } } },
    { "awakeable",
      { { "flow.gate", NULL, STET_STATUS_COMPLETED, 0, "open" } },
      1, 1, 0,
      { { "hand-out#1", 1 }, { "pass#1", 1 } } },
    { "settled by a run",
      { { "flow.asker", NULL, STET_STATUS_COMPLETED, 0, "thought" } },
      1, 2, 0,
      { { "think#1", 1 } } },
    { "object",
      { { "counter.add", "k", STET_STATUS_COMPLETED, 0, "1" }, { "counter.add", "k", STET_STATUS_COMPLETED, 0, "2" } },
      2, 2, 0,
      { { "add#1", 2 } } },
    { FLOW_LETTERS, /* one of them is retried, in vain */
      { { "flow.flaky", NULL, STET_STATUS_FAILED, STET_ESTEP, NULL },
        { "flow.doomed", NULL, STET_STATUS_FAILED, STET_EATTEMPTS, NULL } },
      2, 3, 2,
      { { "flaky#1", 6 }, { "hope#1", 1 }, { "break#1", 2 } } },
    { "torn futures",
      { { "flow.torn", NULL, STET_STATUS_FAILED, STET_EATTEMPTS, NULL } },
      1, 1, 1,
      { { "tear#1", 2 }, { "calm#1", 1 } } },
    { "first of with timeout",
      { { "flow.race", NULL, STET_STATUS_COMPLETED, 0, "timer" } },
      1, 1, 0,
      { { "left#1", 1 }, { "right#1", 1 }, { "won#1", 1 } } },
    { "signals",
      { { "flow.listener", NULL, STET_STATUS_COMPLETED, 0, "one two" } },
      1, 2, 0,
      { { "speak#1", 1 }, { "heard#1", 1 } } },
    { FLOW_UPDATES,
      { { "flow.told", NULL, STET_STATUS_COMPLETED, 0, "a b " } },
      1, 1, 0,
      { { "listen#1", 1 }, { "understood#1", 1 } } },
    { "events",
      { { "flow.reader", NULL, STET_STATUS_COMPLETED, 0, "first" } },
      1, 2, 0,
      { { "read#1", 1 }, { "wrote#1", 1 } } },
    { "rollback",
      { { "flow.saga", NULL, STET_STATUS_COMPLETED, 0, "undone" },
        { "flow.regret", NULL, STET_STATUS_FAILED, STET_EATTEMPTS, NULL } },
      2, 2, 1,
      { { "reserve#1", 2 },
        { "charge#1", 2 },
        { "break#1", 2 },
        { "rollback:charge#1#1", 2 },
        { "rollback:reserve#1#1", 2 } } },
    { "generations",
      { { "counter.turns", "t", STET_STATUS_COMPLETED, 0, "3 one two" } },
      1, 2, 0,
      { { "past-0#1", 1 }, { "past-1#1", 1 }, { "last#1", 1 }, { "speak#1", 1 } } },
    { FLOW_OPERATORS,
      { { "flow.helped", NULL, STET_STATUS_COMPLETED, 0, "mended by hand" },
        { "flow.lost", NULL, STET_STATUS_FAILED, STET_EFORCED, NULL } },
      2, 2, 1,
      { { "first#1", 1 }, { "hopeless#1", 1 }, { "again#1", 2 }, { "lost#1", 1 } } },
    { FLOW_PEOPLE,
      { { "counter.owner", "p", STET_STATUS_COMPLETED, 0, "one" } },
      1, 2, 0,
      { { "peek#1", 1 }, { "paid#1", 1 }, { "looked#1", 1 }, { "kept#1", 1 } } },
    { .name = FLOW_SCHEDULE, /* nothing is started: it does that, twice */
      .runs = 2,
      .steps = { { "begin#1", 2 }, { "finish#1", 2 } } },
};
const size_t flows_n = sizeof flows / sizeof flows[0];

/* ---- driving -------------------------------------------------------------------------------------- */

static void
flow_print_verdict(void *arg, const stet_verdict *verdict)
{
    (void)fprintf(stderr, "    %s: %s\n", (const char *)arg, verdict->text);
}

static int
flow_print_fact(void *arg, const stet_fact_info *fact)
{
    (void)arg;
    (void)fprintf(stderr, "    %3llu %3llu %-18s %s#%llu code %d %s%s\n", (unsigned long long)fact->revision,
                  (unsigned long long)fact->inbox, fact->kind, fact->name ? fact->name : "",
                  (unsigned long long)fact->occurrence, fact->code, fact->text ? fact->text : "",
                  fact->is_at_risk ? " AT RISK" : "");
    return STET_OK;
}

static int
flow_print_run(void *arg, const stet_run_info *info)
{
    stet_engine *e = arg;
    stet_run_id  run;

    (void)fprintf(stderr, "  %s %s %s attempt %u lost %zu due %lld %s\n", info->id, info->handler, stet_status_name(info->status),
                  info->attempt, info->lost, (long long)info->due_ms, info->error ? info->error : "");
    if (stet_run_id_parse(&run, info->id) == STET_OK) {
        (void)stet_why(e, &run, flow_print_verdict, run.text);
        (void)stet_run_facts(e, &run, false, flow_print_fact, NULL);
    }
    return STET_OK;
}

static void
flow_dump(stet_engine *e, const flow_ledger *ledger)
{
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        const flow_entry *entry = &ledger->entries[i];

        (void)fprintf(stderr, "  life %u fence %llu %s %s%s%s%s\n", entry->life, (unsigned long long)entry->fence, entry->run, entry->step,
                      entry->is_at_risk ? " at-risk" : "", entry->is_settled ? " settled" : "", entry->is_lost ? " lost" : "");
    }
    (void)stet_run_list(e, STET_FILTER(.with_payloads = true), flow_print_run, e);
}

static void
flow_start_all(const flow *f, stet_engine *e, flow_ledger *ledger, stet_run_id *runs,
               const char *where)
{
    static const char *const keys[FLOW_STARTS_MAX] = { "first", "second" };

    for (size_t i = 0; i < f->n_starts; i++) {
        char before[STET_ID_TEXT_MAX];
        bool existed = false;
        int  tries = 0, rc;

        (void)pthread_mutex_lock(&flow_here.lock);
        memcpy(before, ledger->answered[i], sizeof before);
        (void)pthread_mutex_unlock(&flow_here.lock);

        /* A failed commit is reported to whoever starts; the same key makes the repeat harmless. */
        do
            rc = stet_start(e, &runs[i], f->starts[i].handler, stet_text("{}"),
                            STET_START(.key = f->starts[i].key, .idempotency_key = keys[i],
                                       .existed = &existed,
                                       .retry = { .attempts = 2, .first_ms = 5, .max_ms = 5, .jitter_percent = STET_NONE }));
        while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
        if (rc != STET_OK)
            test_fail(__FILE__, __LINE__, "%s: %s: starting %s: %s: %s", f->name, where, f->starts[i].handler,
                      stet_code_name(rc), stet_last_error());
        if (before[0] != '\0' && (!existed || strcmp(before, runs[i].text) != 0))
            test_fail(__FILE__, __LINE__, "%s: %s: %s, whose start was acknowledged, is gone",
                      f->name, where, before);
        (void)pthread_mutex_lock(&flow_here.lock);
        memcpy(ledger->answered[i], runs[i].text, sizeof ledger->answered[i]);
        (void)pthread_mutex_unlock(&flow_here.lock);
    }
}

/* The outside settles the awakeable it was handed; a failed commit is reported, so again at the next call. */
static void
flow_outside(const flow *f, stet_engine *e, flow_ledger *ledger, const char *where)
{
    int rc;

    if (ledger->awakeable[0] == '\0' || ledger->is_resolved)
        return;
    rc = stet_resolve(e, ledger->awakeable, stet_text("open"));
    if (rc != STET_OK && rc != STET_ESETTLED && rc != STET_EENDED && rc != STET_EBUSY && rc != STET_EUNCERTAIN)
        test_fail(__FILE__, __LINE__, "%s: %s: resolving: %s: %s", f->name, where, stet_code_name(rc), stet_last_error());
    (void)pthread_mutex_lock(&flow_here.lock);
    ledger->is_resolved = rc == STET_OK || rc == STET_ESETTLED;
    (void)pthread_mutex_unlock(&flow_here.lock);
}

typedef struct flow_story {
    int  retries, pauses, skips, edits, resumes, waits, rewinds;
    bool is_lost; /* the one that is to be ended */
} flow_story;

static int
flow_on_story(void *arg, const stet_fact_info *fact)
{
    flow_story *s = arg;

    s->retries += strcmp(fact->kind, "step retry") == 0;
    s->pauses += strcmp(fact->kind, "paused") == 0;
    s->skips += strcmp(fact->kind, "step skipped") == 0;
    s->resumes += strcmp(fact->kind, "resumed") == 0;
    s->waits += strcmp(fact->kind, "signal wait") == 0;
    s->edits += strcmp(fact->kind, "result replaced") == 0;
    s->rewinds += strcmp(fact->kind, "rewound") == 0;
    s->is_lost = s->is_lost || (fact->name != NULL && strcmp(fact->name, "flow.lost") == 0);
    return STET_OK;
}

/* Does what the run's story says comes next; what was not answered is found there at the next call. */
static void
flow_operate(const flow *f, stet_engine *e, const stet_run_id *run, const char *where)
{
    flow_story s = { 0 };
    int        rc = STET_OK;

    if (strcmp(f->name, FLOW_OPERATORS) != 0 || stet_run_facts(e, run, false, flow_on_story, &s) != STET_OK ||
        (s.is_lost ? s.waits : s.retries) == 0)
        return;
    if (s.is_lost)
        rc = stet_run_fail(e, run, "flow", NULL);
    else if (s.pauses == 0)
        rc = stet_run_pause(e, run, "flow", NULL);
    else if (s.skips == 0)
        rc = stet_run_skip(e, run, "hopeless", stet_text("by hand"), "flow", NULL);
    else if (s.resumes == 0)
        rc = stet_run_resume(e, run, "flow", NULL);
    else if (s.waits > 0 && s.edits == 0)
        rc = stet_run_edit(e, run, "first", stet_text("mended"), "flow", NULL);
    else if (s.waits > 0 && s.rewinds == 0)
        rc = stet_run_rewind(e, run, "again", "flow", NULL);
    else if (s.waits > 1)
        rc = stet_signal(e, run, "go", stet_text(""), STET_SIGNAL_OPTIONS(.idempotency_key = "go"));
    /* Not found, not paused: another one was first. */
    if (rc != STET_OK && rc != STET_EBUSY && rc != STET_EUNCERTAIN && rc != STET_ESETTLED && rc != STET_EENDED &&
        rc != STET_ENOTFOUND && rc != STET_ESTATE)
        test_fail(__FILE__, __LINE__, "%s: %s: helping it: %s: %s", f->name, where, stet_code_name(rc), stet_last_error());
}

typedef struct flow_asked {
    stet_run_id run;
    size_t      at;
} flow_asked;

static int
flow_on_boundary(void *arg, const stet_boundary *b)
{
    static const char *const names[FLOW_BOUNDARIES] = { "pay", "look", "ship" };
    flow_asked              *asked = arg;

    for (asked->at = 0; asked->at < FLOW_BOUNDARIES; asked->at++)
        if (strcmp(names[asked->at], b->name) == 0)
            return stet_run_id_parse(&asked->run, b->run) == STET_OK ? STET_END : STET_OK;
    return STET_OK;
}

/* Decides what is asked for: yes, go on, no. Whoever decides has a note of their own. */
static void
flow_decide(const flow *f, stet_engine *e, flow_ledger *ledger, const char *where)
{
    static int (*const verbs[FLOW_BOUNDARIES])(stet_engine *, const stet_run_id *, const char *, const char *) = {
        stet_run_approve, stet_run_resume, stet_run_reject
    };
    flow_asked asked;
    char       note[24];
    int        rc;

    if (strcmp(f->name, FLOW_PEOPLE) != 0 || stet_boundary_list(e, flow_on_boundary, &asked) != STET_END)
        return;
    (void)pthread_mutex_lock(&flow_here.lock);
    (void)snprintf(note, sizeof note, "note %d", ++ledger->notes);
    (void)pthread_mutex_unlock(&flow_here.lock);
    rc = verbs[asked.at](e, &asked.run, "flow", note);
    /* Settled, ended, of another kind: another one was first. */
    if (rc != STET_OK && rc != STET_EBUSY && rc != STET_EUNCERTAIN && rc != STET_ESETTLED && rc != STET_EENDED &&
        rc != STET_ESTATE)
        test_fail(__FILE__, __LINE__, "%s: %s: deciding: %s: %s", f->name, where, stet_code_name(rc), stet_last_error());
    if (rc != STET_OK)
        return;
    (void)pthread_mutex_lock(&flow_here.lock);
    if (ledger->decided[asked.at][0] != '\0')
        ledger->is_contradicted = true;
    memcpy(ledger->decided[asked.at], note, sizeof note);
    (void)pthread_mutex_unlock(&flow_here.lock);
}

/* Let time pass, real or not. */
static void
flow_pass_ms(stet_engine *e, int64_t ms)
{
    stet__cond  cond;
    stet__mutex lock;

    CHECK_OK(e->p->ops->cond_init(e->p, &cond));
    CHECK_OK(e->p->ops->mutex_init(e->p, &lock));
    stet__lock(e->p, &lock);
    (void)stet__wait(e->p, &cond, &lock, stet__mono_us(e->p) + ms * 1000);
    stet__unlock(e->p, &lock);
    e->p->ops->mutex_destroy(e->p, &lock);
    e->p->ops->cond_destroy(e->p, &cond);
}

static int
flow_on_schedule(void *arg, const stet_schedule_info *info)
{
    *(bool *)arg = info->is_done;
    return STET_OK;
}

/* Everybody ensures it, as at a boot, and waits until it is over. */
static void
flow_drive_schedule(const flow *f, stet_engine *e, flow_ledger *ledger, int64_t until_ms,
                    const char *where)
{
    int64_t first_ms = stet_engine_now_ms(e) + 120; /* not under the lock: fibers switch */
    bool    is_done = false;
    bool    is_new;
    int     tries = 0, rc;

    if (strcmp(f->name, FLOW_SCHEDULE) != 0)
        return;
    /* Its times are to come when it is made. */
    is_new = stet_schedule_get(e, "planned", flow_on_schedule, &is_done) == STET_ENOTFOUND;
    (void)pthread_mutex_lock(&flow_here.lock);
    if (is_new && ledger->planned_life != ledger->life) {
        ledger->planned_ms = first_ms;
        ledger->planned_life = ledger->life;
    }
    (void)pthread_mutex_unlock(&flow_here.lock);
    do
        rc = stet_schedule_ensure(e, NULL, "planned", "flow.job", stet_text("{}"),
                                  STET_SCHEDULE(.function = "times", .overlap = STET_OVERLAP_QUEUE,
                                                .missed = STET_MISSED_ALL));
    while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
    while (rc == STET_OK && !is_done) {
        if ((rc = stet_schedule_get(e, "planned", flow_on_schedule, &is_done)) == STET_OK &&
            !is_done)
            flow_pass_ms(e, 20);
        if (stet_engine_now_ms(e) > until_ms)
            test_fail(__FILE__, __LINE__, "%s: %s: its schedule is not over", f->name, where);
    }
    if (rc != STET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s: its schedule: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
}

static int
flow_count_update(void *arg, const stet_fact_info *fact)
{
    *(int *)arg += strcmp(fact->kind, "update") == 0;
    return STET_OK;
}

/* What was answered is recorded, before anybody asks for it again. */
static void
flow_check_updates(const flow *f, stet_engine *e, const flow_ledger *ledger, const stet_run_id *run, const char *where)
{
    int n = 0, answered = ledger->is_updated[0] + ledger->is_updated[1];

    if (stet_run_facts(e, run, false, flow_count_update, &n) == STET_OK && n < answered)
        test_fail(__FILE__, __LINE__, "%s: %s: %d updates were answered, %d are recorded", f->name, where, answered, n);
}

/* One word, with a key: the same answer as often as it is asked for, and for good once it was given. */
static void
flow_update(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *run, int i, int64_t until_ms,
            const char *where)
{
    static const char *const words[] = { "a", "b" }, *const answers[] = { "a ", "a b " };
    stet_bytes               reply = { NULL, 0 };
    int                      rc;

    do {
        rc = stet_update(e, &reply, run, "word", stet_text(words[i]),
                         STET_UPDATE_OPTIONS(.idempotency_key = words[i], .timeout_ms = 1000));
        if (rc == STET_EBUSY)
            flow_pass_ms(e, 5);
    } while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN || rc == STET_ETIMEOUT) && stet_engine_now_ms(e) < until_ms);
    if (rc != STET_OK || reply.len != strlen(answers[i]) || memcmp(reply.data, answers[i], reply.len) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s: update %s%s: %s: %s: \"%.*s\"", f->name, where, words[i],
                  ledger->is_updated[i] ? ", which was answered before" : "", stet_code_name(rc),
                  rc != STET_OK ? stet_last_error() : "", (int)reply.len, reply.data != NULL ? (const char *)reply.data : "");
    stet_free((void *)(uintptr_t)reply.data);
    (void)pthread_mutex_lock(&flow_here.lock);
    ledger->is_updated[i] = true;
    (void)pthread_mutex_unlock(&flow_here.lock);
}

static void
flow_drive_updates(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *run, int64_t until_ms,
                   const char *where)
{
    stet_bytes reply = { NULL, 0 };
    int        tries = 0, rc;

    if (strcmp(f->name, FLOW_UPDATES) != 0)
        return;
    flow_check_updates(f, e, ledger, run, where);
    for (int i = 0; i < 2; i++)
        flow_update(f, e, ledger, run, i, until_ms, where);
    /* What was answered is recorded: whoever asks sees it. A child process for it would be in the way of crashes. */
    if (e->p != stet__platform_real() && (rc = stet_query(e, &reply, run, "words", stet_text(""), 0)) != STET_EBUSY &&
        (rc != STET_OK || reply.len != 4 || memcmp(reply.data, "a b ", 4) != 0))
        test_fail(__FILE__, __LINE__, "%s: %s: query: %s: %s: \"%.*s\"", f->name, where, stet_code_name(rc),
                  rc != STET_OK ? stet_last_error() : "", (int)reply.len, reply.data != NULL ? (const char *)reply.data : "");
    stet_free((void *)(uintptr_t)reply.data);
    do
        rc = stet_signal(e, run, "go", stet_text(""), STET_SIGNAL_OPTIONS(.idempotency_key = "go"));
    while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
    if (rc != STET_OK && rc != STET_EENDED)
        test_fail(__FILE__, __LINE__, "%s: %s: signal: %s: %s", f->name, where, stet_code_name(rc), stet_last_error());
}

/* Retried once, by whoever is first. */
static void
flow_drive_letters(const flow *f, stet_engine *e, const stet_run_id *letter, int64_t until_ms, const char *where)
{
    stet_run_id again;
    int         rc;

    if (strcmp(f->name, FLOW_LETTERS) != 0)
        return;
    do {
        if ((rc = stet_dlq_retry(e, &again, letter)) == STET_EOPEN)
            (void)stet_wait(e, NULL, letter, 20);
    } while ((rc == STET_EOPEN || rc == STET_EBUSY || rc == STET_EUNCERTAIN) && stet_engine_now_ms(e) < until_ms);
    if (rc != STET_OK && rc != STET_EEXISTS)
        test_fail(__FILE__, __LINE__, "%s: %s: retrying: %s: %s", f->name, where, stet_code_name(rc), stet_last_error());
}

static int
flow_find_open(void *arg, const stet_run_info *info)
{
    if (stet_status_is_terminal(info->status))
        return STET_OK;
    return stet_run_id_parse(arg, info->id) == STET_OK ? STET_END : STET_OK;
}

static bool
flow_is_in_doubt(flow_ledger *ledger)
{
    bool is_in_doubt = false;

    (void)pthread_mutex_lock(&flow_here.lock);
    for (size_t i = 0; i < atomic_load(&ledger->n); i++)
        is_in_doubt = is_in_doubt || (!ledger->entries[i].is_settled && !ledger->entries[i].is_lost);
    (void)pthread_mutex_unlock(&flow_here.lock);
    return is_in_doubt;
}

void
flow_drive(const flow *f, stet_engine *e, flow_ledger *ledger, int64_t limit_ms, const char *where)
{
    stet_run_id runs[FLOW_STARTS_MAX], open;
    int64_t     until_ms = stet_engine_now_ms(e) + limit_ms;
    int         rc;

    flow_start_all(f, e, ledger, runs, where);
    flow_drive_schedule(f, e, ledger, until_ms, where);
    flow_drive_updates(f, e, ledger, &runs[0], until_ms, where);
    flow_drive_letters(f, e, &runs[0], until_ms, where);
    /* Also those that were sent and nobody waits for. */
    while ((rc = stet_run_list(e, NULL, flow_find_open, &open)) == STET_END) {
        if (stet_wait(e, NULL, &open, 20) == STET_ETIMEOUT) {
            flow_outside(f, e, ledger, where);
            flow_operate(f, e, &open, where);
            flow_decide(f, e, ledger, where);
        }
        if (stet_engine_now_ms(e) > until_ms) {
            flow_dump(e, ledger);
            test_fail(__FILE__, __LINE__, "%s: %s: not over after %lld ms", f->name, where, (long long)limit_ms);
        }
    }
    /* What is stored can be seen a moment before the ledger hears of it, where threads are real. */
    until_ms = stet_engine_now_ms(e) + FLOW_DOUBT_MS;
    while (rc == STET_OK && e->p == stet__platform_real() && flow_is_in_doubt(ledger) &&
           stet_engine_now_ms(e) <= until_ms)
        rc = stet_run_list(e, NULL, flow_find_open, &open);
    if (rc != STET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s: listing: %s: %s", f->name, where, stet_code_name(rc), stet_last_error());
}

/* ---- checking ------------------------------------------------------------------------------------- */

typedef struct flow_look {
    const flow        *f;
    stet_engine       *e;
    const flow_ledger *ledger;
    const char        *where;
    size_t             runs, letters;
    size_t             rewinds; /* several, if two operators were at it */
    /* of one run's facts */
    const flow_entry  *entry;
    size_t             records, risks;
} flow_look;

#define FLOW_CHECK(look, cond, ...)                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            char text_[512];                                                                       \
                                                                                                   \
            (void)snprintf(text_, sizeof text_, __VA_ARGS__);                                      \
            flow_dump((look)->e, (look)->ledger);                                                  \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", (look)->f->name, (look)->where, text_);    \
        }                                                                                          \
    } while (0)

static int
flow_count_run(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(size_t *)arg;
    return STET_OK;
}

static int
flow_on_finding(void *arg, const stet_finding *finding)
{
    flow_look *look = arg;

    FLOW_CHECK(look, false, "verify: %s revision %llu: %s: %s", finding->run ? finding->run : "-",
               (unsigned long long)finding->revision, finding->rule, finding->text);
    return STET_OK;
}

static int
flow_on_fact(void *arg, const stet_fact_info *fact)
{
    flow_look *look = arg;
    char       step[64];

    if (fact->name == NULL)
        return STET_OK;
    (void)snprintf(step, sizeof step, "%s#%llu", fact->name, (unsigned long long)fact->occurrence);
    if (strcmp(step, look->entry->step) != 0)
        return STET_OK;
    look->records += strcmp(fact->kind, "step") == 0;
    look->risks += fact->is_at_risk;
    return STET_OK;
}

static size_t
flow_records(const flow_look *look, const char *step)
{
    if (strcmp(look->f->name, FLOW_OPERATORS) == 0)
        return strcmp(step, "again#1") == 0 ? 1 + look->rewinds : strcmp(step, "hopeless#1") == 0 ? 0 : 1;
    return strcmp(step, "break#1") == 0 || strcmp(step, "tear#1") == 0 ? 0 : 1;
}

/* One execution: its step is recorded once (or its run failed for lack of a policy); if it was lost it was
 * reported, and every later execution knew. */
static void
flow_check_entry(flow_look *look, size_t at)
{
    const flow_entry *entry = &look->ledger->entries[at];
    bool              is_past = strncmp(entry->step, "past-", 5) == 0; /* of a generation that is gone */
    stet_run_id       run;
    bool              is_again; /* done once more, as another execution, when it was done */

    look->entry = entry;
    look->records = look->risks = 0;
    is_again = flow_records(look, entry->step) > 1;
    FLOW_CHECK(look, stet_run_id_parse(&run, entry->run) == STET_OK, "%s is no run", entry->run);
    FLOW_CHECK(look, stet_run_facts(look->e, &run, false, flow_on_fact, look) == STET_OK, "%s has no facts", entry->run);
    FLOW_CHECK(look, entry->is_settled != entry->is_lost, "execution %zu of %s is %s", at, entry->step,
               entry->is_settled ? "both settled and lost" : "neither settled nor lost: it ran for nothing");
    FLOW_CHECK(look, look->records == (is_past ? 0 : flow_records(look, entry->step)), "%s has %zu records", entry->step, look->records);
    FLOW_CHECK(look, !entry->is_lost || look->risks > 0 || is_past, "%s was lost and not reported at risk", entry->step);
    for (size_t i = at + 1; i < atomic_load(&look->ledger->n); i++) {
        const flow_entry *later = &look->ledger->entries[i];

        if (strcmp(later->run, entry->run) != 0 || strcmp(later->step, entry->step) != 0)
            continue;
        FLOW_CHECK(look, (strcmp(later->token, entry->token) == 0) != (is_again && entry->is_settled),
                   "%s had %s", entry->step, is_again ? "one token" : "two tokens");
        FLOW_CHECK(look, !entry->is_lost || later->fence > entry->fence, "%s: fence %llu after fence %llu", entry->step,
                   (unsigned long long)later->fence, (unsigned long long)entry->fence);
        FLOW_CHECK(look, !entry->is_lost || later->is_at_risk, "%s was lost, and a later execution was not told", entry->step);
        if (later->is_settled)
            break; /* what follows is another attempt */
    }
}

static void
flow_check_starts(flow_look *look)
{
    static const char *const keys[FLOW_STARTS_MAX] = { "first", "second" };

    for (size_t i = 0; i < look->f->n_starts; i++) {
        const flow_start *start = &look->f->starts[i];
        stet_run_id       run;
        stet_result       result;
        bool              existed = false;
        int               rc;

        rc = stet_start(look->e, &run, start->handler, stet_text("{}"),
                        STET_START(.key = start->key, .idempotency_key = keys[i], .existed = &existed));
        FLOW_CHECK(look, rc == STET_OK && existed, "the start of %s was lost (%d)", start->handler, rc);
        rc = stet_result_get(look->e, &result, &run);
        FLOW_CHECK(look, result.status == start->status, "%s is %s (%d)", start->handler, stet_status_name(result.status), rc);
        FLOW_CHECK(look, result.code == start->code, "%s: code %d, expected %d", start->handler, result.code, start->code);
        FLOW_CHECK(look,
                   start->value == NULL ||
                       (result.value.len == strlen(start->value) && memcmp(result.value.data, start->value, result.value.len) == 0),
                   "%s: \"%.*s\", expected \"%s\"", start->handler, (int)result.value.len, (const char *)result.value.data,
                   start->value);
        stet_result_free(&result);
    }
}

static void
flow_count_rewinds(flow_look *look)
{
    flow_story  s = { 0 };
    stet_run_id run;

    if (strcmp(look->f->name, FLOW_OPERATORS) != 0)
        return;
    FLOW_CHECK(look, stet_run_id_parse(&run, look->ledger->answered[0]) == STET_OK, "nothing was started");
    FLOW_CHECK(look, stet_run_facts(look->e, &run, false, flow_on_story, &s) == STET_OK, "it has no facts");
    FLOW_CHECK(look, s.rewinds > 0 && s.skips > 0 && s.pauses > 0, "it was not helped");
    look->rewinds = (size_t)s.rewinds;
}

void
flow_check(const flow *f, stet_engine *e, const flow_ledger *ledger, const char *where)
{
    flow_look look = { .f = f, .e = e, .ledger = ledger, .where = where };

    flow_check_starts(&look);
    (void)stet_run_list(e, NULL, flow_count_run, &look.runs);
    FLOW_CHECK(&look, look.runs == f->runs, "%zu runs, expected %zu", look.runs, f->runs);
    (void)stet_dlq_list(e, NULL, flow_count_run, &look.letters);
    FLOW_CHECK(&look, look.letters == f->letters, "%zu dead letters, expected %zu", look.letters, f->letters);
    FLOW_CHECK(&look, !ledger->is_contradicted, "two awakeables were handed out, or two decisions stand");
    for (size_t i = 0; i < FLOW_BOUNDARIES; i++)
        FLOW_CHECK(&look, ledger->decided[i][0] == '\0' || strcmp(ledger->decided[i], ledger->heard[i]) == 0,
                   "decision %zu was acknowledged with \"%s\", and the run got \"%s\"", i + 1, ledger->decided[i],
                   ledger->heard[i]);
    FLOW_CHECK(&look, stet_verify(e, NULL, flow_on_finding, &look) == STET_OK, "verify: %s", stet_last_error());
    flow_count_rewinds(&look);
    for (size_t i = 0; i < FLOW_STEPS_MAX && f->steps[i].step != NULL; i++) {
        size_t executions = 0, lost = 0, expected = f->steps[i].executions;

        if (strcmp(f->steps[i].step, "again#1") == 0)
            expected = 1 + look.rewinds;

        for (size_t k = 0; k < atomic_load(&ledger->n); k++)
            if (strcmp(ledger->entries[k].step, f->steps[i].step) == 0) {
                executions++;
                lost += ledger->entries[k].is_lost;
            }
        FLOW_CHECK(&look, executions == expected + lost, "%s was executed %zu times, %zu of them lost; expected %zu + lost",
                   f->steps[i].step, executions, lost, expected);
    }
    for (size_t i = 0; i < atomic_load(&ledger->n); i++)
        flow_check_entry(&look, i);
}

void
flow_log(void *arg, const stet_log_record *record)
{
    (void)arg;
    if (record->level >= STET_LOG_WARN)
        (void)fprintf(stderr, "    %lld [%s] %s %s\n", (long long)(record->time_ms % 1000000), record->handler ? record->handler : "-", record->run ? record->run : "-",
                      record->message);
}
