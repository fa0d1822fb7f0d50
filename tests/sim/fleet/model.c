/* The model: what the store was told, and what must hold at every single unit.
 *
 * It sees each unit once, when it was applied, in the order the store applied them. From the facts
 * alone it knows every run, what of it is recorded, and the state of every object: so a read that
 * saw anything but the last write before it, a step recorded twice, a timer that fired early or a
 * second run for an idempotency key is found at the very commit that does it. /
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

/* No program here needs nearly as many. */
#define MODEL_FACTS_MAX  1000
#define MODEL_GRANTS_MAX 1000

fleet_run *
fleet_run_of(const fleet *w, stet_id id)
{
    return stet__map_find(&w->runs, id.bytes, sizeof id.bytes);
}

fleet_run *
fleet_run_named(const fleet *w, const char *text)
{
    size_t      len = strlen(text);
    fleet_run **at =
        w->named != NULL && len > 1
            ? &w->named[((uint8_t)text[len - 2] * 5u + (uint8_t)text[len - 1]) % FLEET_NAMED]
            : NULL;
    fleet_run *run = at != NULL ? *at : NULL;
    stet_id    id;

    if (run != NULL && strcmp(run->text, text) == 0)
        return run;
    run = stet__id_parse(&id, STET__ID_RUN, text) == STET_OK ? fleet_run_of(w, id) : NULL;
    if (run != NULL && at != NULL)
        *at = run;
    return run;
}

static void
model_put(stet__map *map, const void *key, size_t len, void *value)
{
    if (stet__map_put(map, key, len, value) != STET_OK)
        abort();
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int
model_key(stet_bytes key)
{
    return key.data != NULL && key.len == 2 ? ((const char *)key.data)[1] - '0' : -1;
}

static void
model_check_once(fleet *w, fleet_run *run, const stet__fact *fact)
{
    fleet_run *other;
    char       idem[64];
    int        n;

    if (run->is_retry || run->is_planned)
        return;
    if ((other = stet__map_find(&w->nonces, &run->order.nonce, sizeof run->order.nonce)) != NULL)
        fleet_fail(w, run, "it was started for the same reason as run %u", other->number);
    model_put(&w->nonces, &run->order.nonce, sizeof run->order.nonce, run);
    if (fact->idempotency_key.data == NULL)
        return;
    n = snprintf(idem, sizeof idem, "%d %d %.*s", run->is_object + run->is_shared, run->key,
                 (int)fact->idempotency_key.len, (const char *)fact->idempotency_key.data);
    if ((other = stet__map_find(&w->idems, idem, (size_t)n)) != NULL)
        fleet_fail(w, run, "idempotency key %s has run %u already", idem, other->number);
    fleet_text(run->idem, sizeof run->idem, idem, strlen(idem));
    model_put(&w->idems, idem, (size_t)n, run);
}

/* What it reads the key may have had since it was asked for, or the one whose reads it inherits. */
static void
model_look_from(const fleet *w, fleet_run *run)
{
    const fleet_run *of = run->is_retry ? fleet_run_of(w, run->retry_of) : NULL;

    if (run->is_shared && run->key >= 0 && run->key < FLEET_KEYS)
        run->first_state = of != NULL ? of->first_state : w->objects[run->key].n_states;
}

static uint64_t
model_hash(const stet_bytes *texts, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++)
        h = texts[i].len > 0 ? stet__hash64(texts[i].data, texts[i].len, h + i) : h;
    return h;
}

/* What a run is started with and no generation of it loses. Not what it says of time, and its input. */
static uint64_t
model_terms(const stet__fact *f)
{
    const stet_bytes texts[] = { f->name,        f->key,       f->group,       f->idempotency_key,
                                 f->parent_step, f->child_key, f->traceparent, f->tracestate,
                                 f->schedule,    f->labels,    f->held,        f->run,
                                 f->retry_of };
    const int64_t    numbers[] = { f->planned_ms,   f->deadline_ms,  f->retention_ms,
                                   f->priority,     f->attempts_max, f->retry_first_ms,
                                   f->retry_max_ms, f->retry_factor, f->retry_jitter,
                                   f->completion,   f->flags };

    return model_hash(texts, sizeof texts / sizeof *texts,
                      stet__hash64(numbers, sizeof numbers, 7));
}

/* … and what its retries and forks have, too. */
static uint64_t
model_kept(const stet__fact *f)
{
    const stet_bytes texts[] = { f->name, f->key, f->group, f->schedule, f->labels };
    const int64_t    numbers[] = { f->retention_ms,   f->priority,     f->attempts_max,
                                   f->retry_first_ms, f->retry_max_ms, f->retry_factor,
                                   f->retry_jitter };

    return model_hash(texts, sizeof texts / sizeof *texts,
                      stet__hash64(numbers, sizeof numbers, 11));
}

/* A dead letter is retried or discarded, and that once. */
static void
model_letter(fleet *w, fleet_run *run, bool is_retry)
{
    if (run->is_retried || (is_retry && run->is_discarded))
        fleet_fail(w, run, "it is %s, and was %s", is_retry ? "retried" : "discarded",
                   run->is_retried ? "retried" : "discarded");
    run->is_retried = run->is_retried || is_retry;
    run->is_discarded = run->is_discarded || !is_retry;
}

/* A retry or fork is a run of its own: it answers no call, has no key, and as much time as the other had. */
static void
model_retry_terms(fleet *w, fleet_run *run, const stet__fact *fact)
{
    fleet_run *of = fleet_run_of(w, run->retry_of);

    if (fact->completion != 0 || fact->idempotency_key.data != NULL || fact->child_key.data != NULL)
        fleet_fail(w, run, "it has a call or a key of the run it is made from");
    if (of != NULL && (fact->flags & STET__FACT_FORKED) == 0)
        model_letter(w, of, true);
    if (of != NULL && run->kept != of->kept)
        fleet_fail(w, run, "it has other labels, or terms, than the run it is made from");
    if (of != NULL && run->limit_ms != of->limit_ms)
        fleet_fail(w, run, "it has %lld ms, and the run it is made from had %lld",
                   (long long)run->limit_ms, (long long)of->limit_ms);
}

static fleet_run *
model_started(fleet *w, stet_id id, const stet__fact *fact)
{
    fleet_run *run = stet__arena_get0(&w->arena, sizeof *run);

    if (run == NULL)
        abort();
    run->id = id;
    stet__id_text(run->text, STET__ID_RUN, id);
    run->number = ++w->n_runs;
    run->is_object = (fact->flags & STET__FACT_OBJECT) != 0;
    run->key = model_key(fact->key);
    run->is_shared = (fact->flags & STET__FACT_SHARED) != 0;
    run->parent = stet__fact_id(fact->run);
    run->retry_of = stet__fact_id(fact->retry_of);
    run->is_retry = !stet__id_is_zero(run->retry_of);
    w->has_children = w->has_children || !stet__id_is_zero(run->parent);
    if (run->is_retry) {
        char text[STET_ID_TEXT_MAX];

        stet__id_text(text, STET__ID_RUN, run->retry_of);
        run->retry_nonce = fleet_nonce_of_retry(text);
    }
    run->created_ms = fact->time_ms;
    run->generation = fact->generation;
    run->attempts_max = (uint32_t)fact->attempts_max;
    run->terms = model_terms(fact);
    run->kept = model_kept(fact);
    run->limit_ms = fact->deadline_ms != 0 ? fact->deadline_ms - fact->time_ms : 0;
    if (run->is_retry)
        model_retry_terms(w, run, fact);
    run->is_called = fact->completion != 0;
    run->not_before_ms = fact->until_ms;
    run->deadline_ms = fact->deadline_ms;
    run->is_kept = fact->retention_ms > 86400000;
    run->is_planned = fact->schedule.data != NULL;
    if (!fleet_order_parse(&run->order, fact->value))
        fleet_fail(w, run, "its input is not what was sent");
    if (run->is_shared != run->order.is_shared)
        fleet_fail(w, run, "it is %sshared", run->is_shared ? "" : "not ");
    if (run->is_planned != (run->order.depth == FLEET_DEPTH_PLANNED))
        fleet_fail(w, run, "it is %sa schedule's", run->is_planned ? "" : "not ");
    model_look_from(w, run);
    fleet_text(run->handler, sizeof run->handler, fact->name.data, fact->name.len);
    run->is_unserved = fact->name.len == 10 && memcmp(fact->name.data, "nobody.run", 10) == 0;
    run->is_idle = run->is_unserved || run->order.depth == FLEET_DEPTH_IDLE ||
                   run->not_before_ms > run->created_ms + FLEET_FAR_MS;
    fleet_program_make(&run->program, &run->order, run->is_object, w->ops_max);
    if (w->last != NULL)
        w->last->next = run;
    else
        w->first = run;
    w->last = run;
    w->stats.runs++;
    if (fleet_run_of(w, id) != NULL)
        fleet_fail(w, run, "%s is started twice", run->text);
    model_put(&w->runs, id.bytes, sizeof id.bytes, run);
    if (fact->flags & STET__FACT_FORKED)
        fleet_deed_forked(w, run, fact);
    model_check_once(w, run, fact);
    return run;
}

/* ---- generations ----------------------------------------------------------------------------- */

/* Only the deadline's timer stays. */
static void
model_turn_timers(fleet *w, const fleet_run *run)
{
    mem_timer probe = { .fire_ms = INT64_MIN, .run = run->id };

    for (const mem_node *at = stet__mem_tree_ge(&w->db->timers_of, &probe.by_run); at != NULL;
         at = stet__mem_tree_next(at)) {
        const mem_timer *timer = MEM_OF(const mem_timer, by_run, at);

        if (!stet__id_equal(timer->run, run->id))
            break;
        if (timer->completion != STET__TIMER_DEADLINE)
            fleet_fail(w, run, "it began anew, and a timer of the generation before is left");
    }
}

/* The same run once more: one generation after the other, and nothing that came is passed over. */
static void
model_turned(fleet *w, fleet_run *run, const stet__fact *fact, bool is_anew)
{
    fleet_order order;

    if (!is_anew || fact->generation != run->generation + 1)
        fleet_fail(w, run, "generation %lld is started after generation %lld",
                   (long long)fact->generation, (long long)run->generation);
    if ((uint64_t)fact->taken != run->inbox)
        fleet_fail(w, run, "it began anew over %llu entries of its inbox",
                   (unsigned long long)(run->inbox - (uint64_t)fact->taken));
    if (fact->created_ms != run->created_ms || model_key(fact->key) != run->key ||
        !stet__id_equal(stet__fact_id(fact->run), run->parent) ||
        fact->deadline_ms != run->deadline_ms || (fact->completion != 0) != run->is_called ||
        model_terms(fact) != run->terms)
        fleet_fail(w, run, "it is another run since it began anew");
    if (!fleet_order_parse(&order, fact->value) || order.nonce != run->order.nonce)
        fleet_fail(w, run, "its input is not what it continued with");
    if (run->is_stopped)
        fleet_fail(w, run, "it was stopped, and begins anew");
    model_turn_timers(w, run);
    fleet_audit_turned(w, run);
    run->is_damaged =
        false; /* struck since its facts were read for the last time: gone with them */
    run->generation = fact->generation;
    run->steps = NULL;
    run->n_done = 0;
    run->rolled_at = 0;
    run->attempts = 0;
    run->not_before_ms = 0;
    run->turned_at = run->taken = run->inbox;
    fleet_order_forget(run);
    fleet_updates_turned(run);
    fleet_deeds_taken(w, run, (uint64_t)fact->taken, fact->revision);
}

/* ---- steps ----------------------------------------------------------------------------------- */

fleet_step *
fleet_step_of(fleet *w, fleet_run *run, stet_bytes name)
{
    fleet_step *s;

    for (s = run->steps; s != NULL; s = s->next)
        if (strlen(s->step) == name.len && memcmp(s->step, name.data, name.len) == 0)
            return s;
    if ((s = stet__arena_get0(&w->arena, sizeof *s)) == NULL)
        abort();
    fleet_text(s->step, sizeof s->step, name.data, name.len);
    s->next = run->steps;
    run->steps = s;
    return s;
}

bool
fleet_step_is_undoable(const fleet_run *run, const fleet_step *s)
{
    return s->done > 0 && (s->revision > run->inherited || s->was_met ||
                           (s->met_in != 0 && s->met_in >= run->recorded_in));
}

size_t
fleet_step_op(const fleet_step *s)
{
    return s->step[0] == 's' || s->step[0] == 'h' ? (size_t)strtoul(s->step + 1, NULL, 10)
                                                  : FLEET_OPS_MAX;
}

bool
fleet_step_is_before(const fleet_run *run, const fleet_step *s)
{
    return fleet_step_op(s) < run->program.rollback && !s->is_late;
}

/* The last one that was done and is not undone yet comes first; an operator may skip any (is_given). */
void
fleet_step_undone(fleet *w, fleet_run *run, const char *undo, bool is_given)
{
    fleet_step *undone = NULL;
    char        name[48];

    for (fleet_step *s = run->steps; s != NULL; s = s->next) {
        (void)snprintf(name, sizeof name, "rollback:%s#1", s->step);
        if (strcmp(name, undo) == 0)
            undone = s;
    }
    if (undone == NULL || undone->done == 0 || undone->is_undone) {
        fleet_fail(w, run, "%s, which was not done, or is undone already", undo);
        return;
    }
    /* A failure an operator replaced behind the rollback was done before it: who comes by there again undoes it. */
    if (!run->is_rolled_back && (undone->failed == 0 || run->rolled_at < undone->revision))
        fleet_fail(w, run, "%s, and no rollback is under way", undo);
    /* What a retry inherits from behind the rollback its handler asks for is nothing the handler has come to then. */
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        if (!is_given && s->done > undone->done && !s->is_undone &&
            fleet_step_is_undoable(run, s) &&
            fleet_step_is_before(run, s) == fleet_step_is_before(run, undone))
            fleet_fail(w, run, "%s, and %s was done later", undo, s->step);
    undone->is_undone = true;
}

/* The rollback its handler asked for is over: all that could be undone is. */
static void
model_rolled_back(fleet *w, const fleet_run *run)
{
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        if (fleet_step_is_before(run, s) && fleet_step_is_undoable(run, s) && !s->is_undone)
            fleet_fail(w, run, "it is rolled back, and %s is not undone", s->step);
}

static bool
model_is(stet_bytes name, const char *text)
{
    return name.len == strlen(text) && memcmp(name.data, text, name.len) == 0;
}

/* The deed of an operator whose result this is; 0: none. */
static size_t
model_given(stet_bytes value)
{
    char text[32];

    fleet_text(text, sizeof text, value.data, value.len);
    return strncmp(text, FLEET_GIVEN, strlen(FLEET_GIVEN)) == 0
               ? (size_t)strtoull(text + strlen(FLEET_GIVEN), NULL, 10)
               : 0;
}

/* What a retry or fork has of a step is what the other has. */
static void
model_inherited(fleet *w, fleet_run *run, fleet_step *s, const stet__fact *fact)
{
    const fleet_run *of = fleet_run_of(w, run->retry_of);
    char             text[32];

    for (const fleet_step *old = of->steps; old != NULL; old = old->next)
        if (strcmp(old->step, s->step) == 0) {
            s->given = old->given;
            s->is_skipped = old->is_skipped;
            memcpy(s->picked, old->picked, sizeof s->picked);
        }
    fleet_step_text(text, run, s->step);
    if (of->is_rewritten && fact->code == 0 && !model_is(fact->value, text)) {
        /* Replaced once more, or for the first time, between the look at it and the commit. */
        s->given = model_given(fact->value);
        fleet_step_text(text, run, s->step);
    }
    if (of->generation == run->generation && of->news == NULL && fact->code == 0 &&
        of->rewinds == 0 && !model_is(fact->value, text))
        fleet_fail(w, run, "it inherits \"%.*s\" of step %s, which gave \"%s\"",
                   (int)fact->value.len, (const char *)fact->value.data, s->step, text);
}

/* When it may be entered again; not before the time it asked for itself. */
static void
model_until(fleet *w, const fleet_run *run, fleet_step *s, const stet__fact *fact)
{
    size_t op = fleet_step_op(s);

    s->until_ms = run->is_stopped || run->news != NULL ? 0 : fact->until_ms;
    if (fact->code == STET_EDEFER && (fact->flags & STET__FACT_INHERITED) == 0 &&
        op < FLEET_OPS_MAX && fact->until_ms < run->later_ms[op] &&
        run->program.ops[op].kind != FLEET_OP_FUTURES)
        fleet_fail(w, run, "step %s asked for %lld ms more, and is tried before that", s->step,
                   (long long)(run->later_ms[op] - fact->until_ms));
}

/* A stop, or what an operator does to the run, ends its waits. */
static void
model_hasten(fleet_run *run)
{
    run->not_before_ms = 0;
    for (fleet_step *s = run->steps; s != NULL; s = s->next)
        s->until_ms = 0;
}

static void
model_step_fact(fleet *w, fleet_run *run, uint64_t epoch, const stet__fact *fact)
{
    fleet_step *s = fleet_step_of(w, run, fact->name);
    bool        is_undo = strncmp(s->step, "rollback:", 9) == 0;

    if (s->is_recorded)
        fleet_fail(w, run, "step %s is recorded twice", s->step);
    if (fact->kind == STET__FACT_STEP && is_undo)
        fleet_step_undone(w, run, s->step, false);
    if (s->revision == 0)
        s->revision = fact->revision;
    /* Hand-outs have no undo. */
    if (fact->kind == STET__FACT_STEP && s->step[0] == 's' &&
        (fact->flags & STET__FACT_SKIPPED) == 0) {
        run->n_done++;
        s->is_late = run->rolled_at != 0;
        s->is_beside = run->is_undone && run->is_rolled_back;
        if (fact->code == 0)
            s->done = run->n_done;
        else
            s->failed = run->n_done;
    }
    if (fact->kind == STET__FACT_STEP) {
        s->is_recorded = true;
        s->recorded_us = stet__sim_now_us(w->sim);
        s->code = (int)fact->code;
    } else {
        s->attempts = (uint32_t)fact->attempt;
        model_until(w, run, s, fact);
    }
    if (fact->flags & STET__FACT_INHERITED) {
        model_inherited(w, run, s, fact);
        return;
    }
    if (s->step[0] == 'l' && fact->kind == STET__FACT_STEP)
        fleet_text(s->picked, sizeof s->picked, fact->value.data, fact->value.len);
    if (fact->code != STET_ECANCELLED && fact->code != STET_EEXPIRED &&
        !fleet_is_executed(run, epoch, fact))
        fleet_fail(w, run, "attempt %lld of step %s is recorded, and was not executed",
                   (long long)fact->attempt, s->step);
    fleet_settle(w, run, epoch, fact->name);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void
model_write(fleet *w, fleet_run *run, const stet__fact *fact, bool is_account, uint64_t amount)
{
    fleet_write *write = stet__arena_get0(&w->arena, sizeof *write);

    if (write == NULL)
        abort();
    *write =
        (fleet_write){ .revision = fact->revision, .is_account = is_account, .amount = amount };
    if (run->last_write != NULL)
        run->last_write->next = write;
    else
        run->writes = write;
    run->last_write = write;
}

/* The next state. */
static void
model_state_add(fleet_object *o)
{
    uint64_t *state;

    if (o->n_states == o->cap_states) {
        size_t cap = o->cap_states > 0 ? o->cap_states * 2 : 32;
        void  *grown = realloc(o->states, cap * sizeof *o->states);

        if (grown == NULL)
            abort();
        o->states = grown;
        o->cap_states = cap;
    }
    state = o->states[o->n_states++];
    state[0] = o->writes << 32 | o->sum;
    state[1] = o->has_scribble ? stet__hash64(o->scribble, strlen(o->scribble), 3) | 1u : 0;
}

size_t
fleet_state_find(const fleet *w, int key, size_t entry, uint64_t value, size_t from, size_t upto)
{
    const fleet_object *o = &w->objects[key];

    while (from <= upto && (from == 0 ? 0 : o->states[from - 1][entry]) != value)
        from++;
    return from;
}

void
fleet_looks(fleet *w, fleet_run *run, size_t entry, uint64_t epoch)
{
    fleet_look *look = &run->looks[entry];

    if (w->of == NULL && epoch > look->epoch)
        *look = (fleet_look){ epoch, w->objects[run->key].n_states };
}

/* A shared run sees what was current at some moment between when its handler asked and when that is
 * recorded, and never what was before something else it saw. */
static void
model_looked(fleet *w, fleet_run *run, uint64_t epoch, const stet__fact *fact)
{
    const fleet_object *o = &w->objects[run->key];
    size_t              entry = model_is(fact->name, "account") ? 0 : 1, at;
    const fleet_look   *look = &run->looks[entry];
    uint64_t            value = 0, writes = 0, sum = 0;
    char                text[48] = "";

    if (fact->kind != STET__FACT_STATE_GET)
        fleet_fail(w, run, "it is shared, and writes %.*s", (int)fact->name.len,
                   (const char *)fact->name.data);
    if (look->epoch != epoch && run->grants > 1) /* the first claim may read ahead of the start */
        fleet_fail(w, run, "%.*s is read by nobody", (int)fact->name.len,
                   (const char *)fact->name.data);
    (void)snprintf(text, sizeof text, "%.*s", (int)fact->value.len,
                   fact->value.data != NULL ? (const char *)fact->value.data : "");
    if ((fact->flags & STET__FACT_ABSENT) == 0 && entry == 1)
        value = stet__hash64(text, strlen(text), 3) | 1u;
    else if (sscanf(text, "%" SCNu64 " %" SCNu64, &writes, &sum) == 2)
        value = writes << 32 | sum;
    at = look->epoch == epoch ? look->from : run->first_state;
    at = at > run->looked ? at : run->looked;
    run->looked = fleet_state_find(w, run->key, entry, value, at, o->n_states);
    if (run->looked > o->n_states)
        fleet_fail(w, run, "key %d: it saw \"%s\", and states %zu to %zu are others", run->key,
                   text, at, o->n_states);
    w->stats.checks++;
}

static void
model_account(fleet *w, fleet_run *run, fleet_object *o, stet_bytes value)
{
    uint64_t writes = 0, sum = 0, amount;
    bool     is_known = false;

    if (value.len >= sizeof o->account) {
        fleet_fail(w, run, "an account of %zu bytes", value.len);
        return;
    }
    memcpy(o->account, value.data, value.len);
    o->account[value.len] = '\0';
    (void)sscanf(o->account, "%" SCNu64 " %" SCNu64, &writes, &sum);
    amount = sum - o->sum;
    for (size_t i = 0; i < run->program.n; i++)
        is_known = is_known || (run->program.ops[i].kind == FLEET_OP_DEPOSIT &&
                                amount == run->program.ops[i].seed % 100 + 1);
    if (writes != o->writes + 1 || !is_known)
        fleet_fail(w, run,
                   "key %d: \"%" PRIu64 " %" PRIu64 "\" is written over \"%" PRIu64 " %" PRIu64
                   "\"",
                   run->key, writes, sum, o->writes, o->sum);
    o->writes = writes;
    o->sum = sum;
    if (writes < FLEET_WRITES_MAX)
        o->writers[writes] = run;
}

/* An entry every key begins with; one that was cleared has none. */
static void
model_motto(fleet *w, const fleet_run *run, fleet_object *o, const stet__fact *fact)
{
    const char *text = o->motto[0] != '\0' ? o->motto : FLEET_MOTTO;

    switch (fact->kind) {
    case STET__FACT_STATE_GET:
        if (o->has_no_motto != ((fact->flags & STET__FACT_ABSENT) != 0) ||
            (!o->has_no_motto && !model_is(fact->value, text)))
            fleet_fail(w, run, "key %d: its motto is read as \"%.*s\", and is \"%s\"", run->key,
                       (int)fact->value.len,
                       fact->value.data != NULL ? (const char *)fact->value.data : "",
                       o->has_no_motto ? "(none)" : text);
        w->stats.checks++;
        break;
    case STET__FACT_STATE_SET:
        fleet_text(o->motto, sizeof o->motto, fact->value.data, fact->value.len);
        o->has_no_motto = false;
        break;
    default: o->has_no_motto = true; break;
    }
}

static void
model_state_fact(fleet *w, fleet_run *run, uint64_t epoch, const stet__fact *fact)
{
    fleet_object *o;
    const char   *text;
    bool          is_account = model_is(fact->name, "account"), is_absent;

    if (run->key < 0 || run->key >= FLEET_KEYS) {
        fleet_fail(w, run, "state of key %d", run->key);
        return;
    }
    if (fact->flags & STET__FACT_INHERITED)
        return; /* the run it retries did it */
    if (run->is_shared) {
        model_looked(w, run, epoch, fact);
        return;
    }
    o = &w->objects[run->key];
    if (model_is(fact->name, "motto")) {
        model_motto(w, run, o, fact);
        return;
    }
    if (run->touched == 0)
        run->touched = ++w->touches;
    switch (fact->kind) {
    case STET__FACT_STATE_GET:
        text = is_account ? o->account : o->scribble;
        is_absent = is_account ? o->writes == 0 : !o->has_scribble;
        if (is_absent != ((fact->flags & STET__FACT_ABSENT) != 0) ||
            (!is_absent && !model_is(fact->value, text)))
            fleet_fail(w, run, "key %d: a read gave \"%.*s\", the last write was \"%s\"", run->key,
                       (int)fact->value.len,
                       fact->value.data != NULL ? (const char *)fact->value.data : "",
                       is_absent ? "(none)" : text);
        break;
    case STET__FACT_STATE_SET:
        if (is_account) {
            uint64_t sum = o->sum;

            model_account(w, run, o, fact->value);
            model_write(w, run, fact, true, o->sum - sum);
        } else {
            model_write(w, run, fact, false,
                        stet__hash64(fact->value.data, fact->value.len, 3) | 1u);
            fleet_text(o->scribble, sizeof o->scribble, fact->value.data, fact->value.len);
            o->has_scribble = true;
        }
        break;
    default:
        model_write(w, run, fact, false, 0);
        o->has_scribble = false;
        break;
    }
    if (fact->kind != STET__FACT_STATE_GET)
        model_state_add(o);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* What classifiers said came of it. Nobody asks them about a run that was stopped. */
static void
model_judged(fleet *w, fleet_run *run, const stet__fact *fact)
{
    fleet_verdict verdict = fleet_verdict_of(fact->text.data, fact->text.len);
    int           want = fleet_verdict_outcome(verdict), got = 0;

    if (fact->kind == STET__FACT_DEFERRED)
        got = STET_EDEFER;
    else if (fact->kind == STET__FACT_FAILED && fact->code != STET_EATTEMPTS)
        got = STET_EPERMANENT;
    if (verdict == FLEET_VERDICT_NONE || run->is_stopped || fact->code == STET_EFORCED)
        return;
    if (got != want)
        fleet_fail(w, run, "\"%.*s\" is recorded as %s", (int)fact->text.len,
                   (const char *)fact->text.data, stet__fact_kind_name(fact->kind));
    run->is_judged = run->is_judged || got == STET_EPERMANENT;
    w->stats.judged += got == STET_EPERMANENT;
    w->stats.deferred += got == STET_EDEFER;
}

/* ---- facts ----------------------------------------------------------------------------------- */

static void
model_ended(fleet *w, fleet_run *run, const stet__fact *fact)
{
    if (run->is_stopped && fact->kind != STET__FACT_CANCELLED && fact->kind != STET__FACT_EXPIRED)
        fleet_fail(w, run, "it was stopped, and ends with %s", stet__fact_kind_name(fact->kind));
    if (run->is_broken && !run->is_stopped && fact->kind != STET__FACT_FAILED)
        fleet_fail(w, run, "it told that its rollback failed, and ends with %s",
                   stet__fact_kind_name(fact->kind));
    run->end = fact->kind;
    if (run->is_shared)
        run->last_state = w->objects[run->key].n_states;
    run->ended_ms = fact->time_ms;
    run->code = (int)fact->code;
    run->result_len = fact->value.len;
    if (fact->value.len > 0 &&
        (run->result = stet__arena_copy(&w->arena, fact->value.data, fact->value.len)) == NULL)
        abort();
    if (fact->kind == STET__FACT_COMPLETED)
        fleet_seen_check(w, run, (const fleet_seen *)(const void *)run->result,
                         run->result_len / sizeof(fleet_seen), true);
}

/* A child comes with the unit that records why. */
static void
model_children(fleet *w, const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops && w->has_children; i++) {
        stet_bytes in = unit->ops[i].data;
        uint64_t   revision = unit->ops[i].number;
        stet__fact fact;

        for (; unit->ops[i].kind == STET_OP_FACTS && stet__fact_decode(&fact, &in) == STET_OK;
             revision++) {
            fleet_run *child = fact.kind == STET__FACT_CALL || fact.kind == STET__FACT_SEND
                                   ? fleet_run_of(w, stet__fact_id(fact.run))
                                   : NULL;

            if (child != NULL && child->asked_at == 0 &&
                stet__id_equal(child->parent, unit->ops[i].run))
                child->asked_at = revision;
        }
    }
    w->has_children = false;
}

/* What an undo that failed for good said; or there was no memory for that, or on the way there. */
static void
model_broken(fleet *w, fleet_run *run, const stet__fact *fact)
{
    bool   is_scarce = w->plan.one_in[FLEET_NO_MEMORY] != 0 || w->plan.has_whims;
    char   want[96];
    size_t op;

    run->is_broken = run->awaits_help = true;
    fleet_text(run->undo, sizeof run->undo, fact->name.data, fact->name.len);
    fleet_text(run->broken, sizeof run->broken, fact->text.data, fact->text.len);
    (void)snprintf(want, sizeof want, "the undo of step %.40s failed: no refunds",
                   strncmp(run->undo, "rollback:", 9) == 0 ? run->undo + 9 : "(none)");
    op = run->undo[0] != '\0' ? (size_t)strtoul(run->undo + 10, NULL, 10) : FLEET_OPS_MAX + 1;
    if (strcmp(run->broken, want) == 0 && op <= FLEET_OPS_MAX && (run->refused >> op & 1u) != 0)
        return;
    if (!is_scarce || strstr(run->broken, "out of memory") == NULL)
        fleet_fail(w, run, "its rollback fails with \"%s\" (%s)", run->broken, run->undo);
}

/* Whoever goes on with that has to come to all that this execution came to. */
static void
model_met(fleet_run *run, uint64_t epoch)
{
    for (fleet_step *s = run->steps; s != NULL; s = s->next)
        s->was_met = s->was_met || (s->met_in != 0 && s->met_in == epoch);
}

static fleet_run *
model_fact(fleet *w, const fleet_node *node, fleet_run *run, const stet_op *op, uint64_t epoch,
           const stet__fact *fact)
{
    char   name[20];
    size_t n;

    if (run != NULL && fact->kind == STET__FACT_STARTED)
        model_turned(w, run, fact, (op->flags & STET_OP_ANEW) != 0);
    if (run == NULL && fact->kind == STET__FACT_STARTED)
        run = model_started(w, op->run, fact);
    if (run == NULL) {
        fleet_fail(w, NULL, "a fact of a run that was never started");
        return NULL;
    }
    n = fact->name.len < sizeof name - 1 ? fact->name.len : sizeof name - 1;
    if (n > 0)
        memcpy(name, fact->name.data, n);
    name[n] = '\0';
    fleet_trace(w, node, run, stet__fact_kind_name(fact->kind), name, (int64_t)(fact->revision),
                fact->code != 0 ? fact->code : fact->number);
    w->stats.facts++;
    if (fact->flags & STET__FACT_INHERITED)
        run->inherited = fact->revision;
    if (run->end != 0)
        fleet_fail(w, run, "a fact (%s) after its end", stet__fact_kind_name(fact->kind));
    if (run->is_undone && fact->kind >= STET__FACT_STEP && fact->kind < STET__FACT_TIMER &&
        fact->kind != STET__FACT_STEP && fact->kind != STET__FACT_STEP_RETRY)
        fleet_fail(w, run, "its handler goes on (%s), and its failure is rolled back",
                   stet__fact_kind_name(fact->kind));
    fleet_order_fact(w, run, fact);
    run->recorded_in = epoch;
    if (fact->kind == STET__FACT_ROLLBACK || fact->kind == STET__FACT_ATTEMPT_FAILED)
        model_met(run, epoch);
    switch (fact->kind) {
    case STET__FACT_STEP:
    case STET__FACT_STEP_RETRY: model_step_fact(w, run, epoch, fact); break;
    case STET__FACT_BOUNDARY: run->boundary = fact->revision; break;
    case STET__FACT_UPDATE: fleet_update_made(w, run, fact); break;
    case STET__FACT_LOOK: fleet_looked_at(w, run, epoch, fact); break;
    case STET__FACT_EMIT: fleet_topic_emits(w, run, fact); break;
    case STET__FACT_TAKEN:
        run->taken = (uint64_t)fact->number;
        fleet_deeds_taken(w, run, run->taken, fact->revision);
        fleet_order_taken(run, run->taken, fact->revision);
        break;
    case STET__FACT_COMPENSATION_FAILED:
        model_broken(w, run, fact);
        fleet_settle(w, run, epoch, (stet_bytes){ NULL, 0 }); /* fall through */
    case STET__FACT_STUCK: run->is_paused = false; break;
    case STET__FACT_ROLLBACK: /* because it failed it is the record of that */
        run->is_rolled_back = true;
        if (fact->flags & STET__FACT_AUTO) {
            run->is_undone = true;
            fleet_settle_failed(
                run, epoch); /* a body beside the handler may go on, and be recorded later */
        }
        break;
    case STET__FACT_ROLLED_BACK: /* its handler asked for it, and goes on */
        run->is_rolled_back = false;
        model_rolled_back(w, run);
        run->rolled_at = fact->revision;
        break;
    case STET__FACT_ATTEMPT_FAILED:
        run->attempts++;
        if (stet__store_is_away((int)fact->code)) /* no handler fails like that */
            fleet_fail(w, run, "a store in trouble (%s) uses one of its attempts",
                       stet_code_name((int)fact->code));
        /* fall through */
    case STET__FACT_DEFERRED:
        fleet_settle(w, run, epoch, (stet_bytes){ NULL, 0 });
        run->not_before_ms = fact->until_ms;
        model_judged(w, run, fact);
        break;
    case STET__FACT_STATE_GET:
    case STET__FACT_STATE_SET:
    case STET__FACT_STATE_CLEAR: model_state_fact(w, run, epoch, fact); break;
    case STET__FACT_COMPLETED:
    case STET__FACT_CANCELLED:
    case STET__FACT_EXPIRED: model_ended(w, run, fact); break;
    case STET__FACT_FAILED:
        model_judged(w, run, fact);
        model_ended(w, run, fact);
        break;
    default: break;
    }
    return run;
}

static uint64_t
model_epoch(const stet_unit *unit, stet_id run)
{
    for (size_t i = 0; i < unit->n_conds; i++)
        if (stet__id_equal(unit->conds[i].run, run)) {
            if (unit->conds[i].kind == STET_COND_CLAIM)
                return unit->conds[i].epoch;
            if (unit->conds[i].kind == STET_COND_PARKED)
                return unit->conds[i].epoch + 1; /* the unit takes the run */
        }
    return 0;
}

static void
model_facts(fleet *w, const fleet_node *node, const stet_unit *unit, const stet_op *op)
{
    fleet_run *run = fleet_run_of(w, op->run);
    stet_bytes in = op->data;
    stet__fact fact;
    uint64_t   revision = op->number;
    int        err;

    if (run != NULL && run->journal + 1 != op->number)
        fleet_fail(w, run, "revision %llu follows %llu", (unsigned long long)op->number,
                   (unsigned long long)run->journal);
    while ((err = stet__fact_decode(&fact, &in)) == STET_OK) {
        fact.revision = revision++;
        if ((run = model_fact(w, node, run, op, model_epoch(unit, op->run), &fact)) == NULL)
            return;
        run->journal = fact.revision;
        if (fact.kind != STET__FACT_TAKEN)
            run->spoken = fact.revision;
    }
    if (run->journal > MODEL_FACTS_MAX)
        fleet_fail(w, run, "it has %llu facts: it goes round in a circle",
                   (unsigned long long)run->journal);
    if (err != STET_END || revision != op->number + op->count)
        fleet_fail(w, run, "a unit whose facts cannot be read");
}

/* ---- retention ------------------------------------------------------------------------------- */

/* Its idempotency key goes with it, so a later start is a new run; nothing else of it may come
 * again. */
static void
model_purged(fleet *w, const fleet_node *node, const stet_op *op)
{
    fleet_run *run = fleet_run_of(w, op->run);

    if (run == NULL)
        return;
    fleet_trace(w, node, run, "removed", NULL, 0, 0);
    if (run->end == 0)
        fleet_fail(w, run, "it is removed and has not ended");
    if (run->is_kept || fleet_peak_ms(w) < run->ended_ms + w->plan.retention_ms)
        fleet_fail(w, run, "it is removed before its time");
    fleet_audit_purged(w, run);
    run->is_purged = true;
    if (run->idem[0] != '\0' && stet__map_find(&w->idems, run->idem, strlen(run->idem)) == run)
        (void)stet__map_remove(&w->idems, run->idem, strlen(run->idem));
    if (run->order.depth == 0 || run->order.depth == FLEET_DEPTH_IDLE)
        (void)stet__map_remove(&w->nonces, &run->order.nonce, sizeof run->order.nonce);
}

/* ---- inboxes --------------------------------------------------------------------------------- */

static void
model_told_once(fleet *w, fleet_run *run, const stet__fact *fact)
{
    uint64_t what = (uint64_t)fact->kind << 48 | (uint64_t)fact->completion;

    for (size_t i = 0; i < run->n_told; i++)
        if (run->told[i] == what)
            fleet_fail(w, run, "%s (%lld) is told twice", stet__fact_kind_name(fact->kind),
                       (long long)fact->completion);
    if (run->n_told < sizeof run->told / sizeof run->told[0])
        run->told[run->n_told++] = what;
}

/* Told by a worker that lives: a body has ended, and is on no record. Its unit, and what it records, came before.
 * Or by whoever finds a worker dead; not when somebody else has executed the run since. */
static void
model_lost(fleet *w, fleet_run *run, const stet_unit *unit, const stet__fact *fact)
{
    static const char said[] = "its record could not be written";

    run->deaths++;
    for (size_t i = 0; i < unit->n_conds; i++)
        if (unit->conds[i].kind == STET_COND_SESSION_DEAD &&
            unit->conds[i].session != run->session && run->recorded_in == run->epoch)
            fleet_fail(w, run, "it is told of the death of who had it before it was executed last");
    if (fact->text.len == strlen(said) && memcmp(fact->text.data, said, strlen(said)) == 0 &&
        !fleet_is_at_risk(run, model_epoch(unit, run->id), fact->name))
        fleet_fail(w, run, "it is told that the record of %.*s could not be written, and it was",
                   (int)fact->name.len, (const char *)fact->name.data);
}

static void
model_inbox(fleet *w, const fleet_node *node, const stet_unit *unit, const stet_op *op)
{
    fleet_run     *run = fleet_run_of(w, op->run), *child;
    const mem_run *row = stet__mem_run(w->db, op->run);
    stet_bytes     in = op->data;
    stet__fact     fact;

    if (run == NULL || row == NULL || row->row.inbox == run->inbox)
        return; /* it had ended: nothing was put */
    if (stet__fact_decode(&fact, &in) != STET_OK) {
        fleet_fail(w, run, "an inbox entry that cannot be read");
        return;
    }
    run->inbox++;
    fleet_trace(w, node, run, stet__fact_kind_name(fact.kind), NULL, fact.completion, fact.code);
    switch (fact.kind) {
    case STET__FACT_CANCEL:
    case STET__FACT_DEADLINE:
        if (run->is_broken && (fact.flags & STET__FACT_UNTOLD)) {
            model_hasten(
                run); /* by a caller that did not know: it wakes the run, and what was told stands */
            break;
        }
        if (!run->is_stopped)
            run->stop_entry = run->inbox;
        if (!run->is_stopped && run->is_broken)
            fleet_fail(w, run, "it is stopped, and its waiters were told that it failed");
        run->is_stopped = true;
        run->is_paused = false;
        model_hasten(run);
        break;
    case STET__FACT_SKIP:
    case STET__FACT_EDIT:
    case STET__FACT_REWIND:
        if (fact.kind == STET__FACT_SKIP &&
            (run->undo[0] != '\0' ? model_is(fact.name, run->undo) : stet__name_is_undo(fact.name)))
            run->awaits_help = false; /* where no undo is to blame, any one that is skipped helps */
        fleet_deed_put(w, run, &fact);
        if (run->grants > 0)
            model_hasten(run); /* it tries again at once */
        break;
    case STET__FACT_ROLLBACK_RETRY: run->awaits_help = false; break;
    case STET__FACT_LOST: model_lost(w, run, unit, &fact); break;
    case STET__FACT_PAUSE: run->is_paused = !run->is_stopped; break;
    case STET__FACT_RESUME:
        fleet_resumed(w, run, &fact);
        run->is_paused = false;
        break;
    case STET__FACT_TIMER: fleet_order_entry(run, &fact); break;
    case STET__FACT_SETTLED:
        model_told_once(w, run, &fact);
        fleet_order_entry(run, &fact);
        break;
    case STET__FACT_DECIDED:
        model_told_once(w, run, &fact);
        fleet_decided(w, run, &fact);
        break;
    case STET__FACT_SIGNALLED: fleet_signalled(w, run, &fact); break;
    case STET__FACT_UPDATE_ASKED: fleet_update_asked(w, run, &fact); break;
    case STET__FACT_EVENT:
        model_told_once(w, run, &fact);
        fleet_told(w, &fact);
        break;
    case STET__FACT_CHILD_DONE:
        child = fleet_run_of(w, stet__fact_id(fact.run));
        if (child == NULL || !child->was_damaged) /* else what it was told may be what is torn, and comes again */
            model_told_once(w, run, &fact);
        if (child != NULL)
            child->is_answered = true;
        if (child != NULL && child->end == 0 && !child->is_stopped && !child->is_broken)
            fleet_fail(w, run, "it is told of the end of run %u, which goes on", child->number);
        break;
    default: break;
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

static bool
model_has(const stet_unit *unit, stet_op_kind kind, stet_id run)
{
    for (size_t i = 0; i < unit->n_ops; i++)
        if (unit->ops[i].kind == kind && stet__id_equal(unit->ops[i].run, run))
            return true;
    return false;
}

/* A timer that is taken early: only by a unit that ends what it is for, or records what came first.
 */
static void
model_timers(fleet *w, const stet_unit *unit)
{
    int64_t now_ms = fleet_peak_ms(w);

    for (size_t i = 0; i < unit->n_conds; i++) {
        const stet_cond *cond = &unit->conds[i];

        for (size_t k = 0; cond->kind == STET_COND_PARKED && k < unit->n_ops; k++)
            if (unit->ops[k].kind == STET_OP_TIMER_DEL &&
                stet__id_equal(unit->ops[k].run, cond->run)) {
                if (unit->ops[k].fire_ms > now_ms)
                    fleet_fail(w, fleet_run_of(w, cond->run), "a run is resumed %lld ms early",
                               (long long)(unit->ops[k].fire_ms - now_ms));
                break; /* the first is the one that woke it */
            }
    }
    for (size_t i = 0; i < unit->n_conds; i++)
        if (model_has(unit, STET_OP_FACTS, unit->conds[i].run))
            return;
    for (size_t i = 0; i < unit->n_conds; i++)
        if (unit->conds[i].kind == STET_COND_TIMER && unit->conds[i].fire_ms > now_ms &&
            model_has(unit, STET_OP_TIMER_DEL,
                      unit->conds[i].run)) /* else an event that asks for it */
            fleet_fail(w, fleet_run_of(w, unit->conds[i].run), "a timer fires %lld ms early",
                       (long long)(unit->conds[i].fire_ms - now_ms));
}

/* A run that ends leaves no timer behind. */
static void
model_end_timers(fleet *w, const stet_op *op)
{
    mem_timer  probe = { .fire_ms = INT64_MIN, .run = op->run };
    mem_node  *node = stet__mem_tree_ge(&w->db->timers_of, &probe.by_run);
    fleet_run *run = fleet_run_of(w, op->run);

    if (node != NULL && run != NULL && !run->is_damaged &&
        stet__id_equal(MEM_OF(const mem_timer, by_run, node)->run, op->run))
        fleet_fail(w, run, "it has ended, and a timer of its is left");
}

/* Who waits for it is told by the unit that ends it, or was before. */
static void
model_end_told(fleet *w, const stet_op *op)
{
    const fleet_run *run = fleet_run_of(w, op->run),
                    *parent = run != NULL && run->is_called ? fleet_run_of(w, run->parent) : NULL;

    if (parent != NULL && parent->end == 0 && !run->is_answered && !run->was_damaged)
        fleet_fail(w, run, "it has ended, and run %u, which called it, is not told",
                   parent->number);
}

/* Whoever stops a run that has begun wakes it: else one that is held, or in backoff, might never learn of it. */
static void
model_stop_wakes(fleet *w, const stet_op *op)
{
    const fleet_run *run = fleet_run_of(w, op->run);
    const mem_run   *row =
        run != NULL && run->is_stopped && !run->is_stop_taken && run->grants > 0 && !run->is_broken
              ? stet__mem_run(w->db, op->run)
              : NULL;

    if (row != NULL && row->row.session == 0 && !row->row.is_terminal &&
        row->row.due_ms > fleet_peak_ms(w) && row->row.status != STET_STATUS_STUCK &&
        run->stop_entry == run->inbox)
        fleet_fail(w, run, "it is stopped, and nothing wakes it");
}

/* A fenced worker writes nothing. */
static void
model_fenced(fleet *w, const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_conds; i++) {
        const stet_cond *cond = &unit->conds[i];

        if ((cond->kind == STET_COND_CLAIM || cond->kind == STET_COND_PARKED) &&
            cond->session != 0 &&
            !stet__mem_is_alive(w->db, stet__mem_session(w->db, cond->session)))
            fleet_fail(w, fleet_run_of(w, cond->run), "a worker whose lease has ended records");
    }
}

/* A run that takes a stop in stops, in the same unit, those it has called and waits for. What it
 * calls in that unit it may call because it was stopped. */
static void
model_stop_reaches(fleet *w, const stet_unit *unit, const fleet_run *run)
{
    for (const fleet_run *child = w->first; child != NULL; child = child->next)
        if (child->is_called && child->end == 0 && !child->is_stopped && !child->is_broken &&
            stet__id_equal(child->parent, run->id) && !model_has(unit, STET_OP_FACTS, child->id))
            fleet_fail(w, run, "it is stopped, and run %u, which it called, goes on",
                       child->number);
}

/* One that is failed by hand does not ask its handler, and what it called is of no use any more. */
static void
model_end_children(fleet *w, const stet_unit *unit, const stet_op *op)
{
    const fleet_run *run = fleet_run_of(w, op->run);

    if (run != NULL && run->end == STET__FACT_FAILED && run->code == STET_EFORCED &&
        !run->was_damaged)
        model_stop_reaches(w, unit, run);
}

static void
model_stops(fleet *w, const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        fleet_run *run =
            unit->ops[i].kind == STET_OP_FACTS ? fleet_run_of(w, unit->ops[i].run) : NULL;
        stet_bytes in = unit->ops[i].data;
        stet__fact fact;

        /* Once: what it calls afterwards, to clean up, goes on. */
        while (run != NULL && run->is_stopped && !run->is_stop_taken &&
               stet__fact_decode(&fact, &in) == STET_OK)
            if (fact.kind == STET__FACT_TAKEN && (uint64_t)fact.number >= run->stop_entry) {
                run->is_stop_taken = true;
                model_stop_reaches(w, unit, run);
            }
    }
}

/* Whose is it now? */
static uint64_t
model_session(const fleet *w, const fleet_run *run)
{
    const mem_run *row = stet__mem_run(w->db, run->id);

    return row != NULL ? row->row.session : 0;
}

static void
model_granted(fleet *w, const fleet_node *node, const stet_unit *unit, const stet_grant *grant)
{
    fleet_run *run = fleet_run_of(w, grant->run);

    fleet_trace(w, node, run, "granted", NULL, (int64_t)grant->epoch, 0);
    if (run == NULL || (run->end != 0 && !model_has(unit, STET_OP_FACTS, run->id))) {
        fleet_fail(w, run, "a run that has ended, or never began, is granted");
        return;
    }
    /* A unit that resumes a run may end its attempt as well. */
    if (fleet_peak_ms(w) < run->not_before_ms && !model_has(unit, STET_OP_FACTS, run->id))
        fleet_fail(w, run, "it is granted %lld ms early",
                   (long long)(run->not_before_ms - fleet_peak_ms(w)));
    fleet_hold_granted(w, node, run);
    run->session = model_session(w, run);
    run->epoch = grant->epoch;
    run->granted_us = stet__sim_now_us(w->sim);
    run->is_held = run->is_paused;
    if (++run->grants > MODEL_GRANTS_MAX)
        fleet_fail(w, run, "it was granted %u times: it goes round in a circle", run->grants);
}

/* The numbers of signals: of those a journal was given, or of entries of an inbox. */
typedef struct model_letters {
    uint32_t of[FLEET_SIGNALS_MAX];
    size_t   n;
} model_letters;

static void
model_letters_add(model_letters *l, stet_bytes facts)
{
    stet__fact fact;
    char       text[16];

    while (stet__fact_decode(&fact, &facts) == STET_OK)
        if (fact.kind == STET__FACT_SIGNALLED && (fact.flags & STET__FACT_SEEN) == 0 &&
            l->n < FLEET_SIGNALS_MAX) {
            fleet_text(text, sizeof text, fact.value.data, fact.value.len);
            l->of[l->n++] = (uint32_t)strtoul(text, NULL, 10);
        }
}

static void
model_letters_read(model_letters *l, mem_tree *tree, uint64_t from)
{
    for (const mem_node *at = stet__mem_tree_first(tree); at != NULL;
         at = stet__mem_tree_next(at)) {
        const mem_facts *facts = MEM_OF(const mem_facts, node, at);

        if (facts->first >= from)
            model_letters_add(l, (stet_bytes){ facts->data, facts->len });
    }
}

static size_t
model_letters_count(const model_letters *l, uint32_t number)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        n += l->of[i] == number;
    return n;
}

/* A retry or fork has no signal that the other had not, in its generation, and each once; and all that it did not come to
 * take in, unless it had one with that key before. */
static void
model_retry_letters(fleet *w, const stet_op *op, const fleet_run *run)
{
    const fleet_run *of = fleet_run_of(w, run->retry_of);
    mem_run         *row = of != NULL ? stet__mem_run(w->db, of->id) : NULL;
    model_letters    had = { .n = 0 }, untaken = { .n = 0 }, got = { .n = 0 };

    if (row == NULL || of->was_damaged || of->end == 0)
        return;
    model_letters_read(&had, &row->journal, 0);
    model_letters_read(&had, &row->inbox, of->turned_at + 1);
    model_letters_read(&untaken, &row->inbox, of->taken + 1);
    model_letters_add(&got, op->data);
    if (had.n == FLEET_SIGNALS_MAX)
        return;
    for (size_t i = 0; i < got.n; i++)
        if (model_letters_count(&had, got.of[i]) == 0 ||
            (got.of[i] < FLEET_INSIDE && model_letters_count(&got, got.of[i]) > 1))
            fleet_fail(w, run, "it is given signal %u, which the run it is made from %s", got.of[i],
                       model_letters_count(&had, got.of[i]) == 0 ? "had not" : "had once");
    /* What a fork is made from may have gone on since it was read. */
    for (size_t i = 0; i < untaken.n && run->fork == 0; i++)
        if (model_letters_count(&had, untaken.of[i]) == 1 &&
            model_letters_count(&got, untaken.of[i]) == 0)
            fleet_fail(w, run, "it is not given signal %u, which came to the run it is made from",
                       untaken.of[i]);
}

static void
model_forks(fleet *w, const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        fleet_run *run = unit->ops[i].kind == STET_OP_FACTS && unit->ops[i].number == 1
                             ? fleet_run_of(w, unit->ops[i].run)
                             : NULL;

        if (run != NULL && run->fork != 0)
            fleet_deed_check_fork(w, run);
        if (run != NULL && run->is_retry)
            model_retry_letters(w, &unit->ops[i], run);
    }
}

/* Who resumes a run and records for it has it then, unless that ends it or gives it back. */
static void
model_resumed(fleet *w, const stet_unit *unit, const stet_outcome *outcome)
{
    for (size_t i = 0; i < unit->n_conds; i++) {
        stet_id run = unit->conds[i].run;
        bool    is_had =
            unit->conds[i].kind != STET_COND_PARKED || !model_has(unit, STET_OP_FACTS, run);

        for (size_t k = 0; k < unit->n_ops && !is_had; k++)
            is_had = unit->ops[k].kind == STET_OP_RUN_SET &&
                     stet__id_equal(unit->ops[k].run, run) &&
                     (unit->ops[k].mask & STET_RUN_OWNER) != 0;
        for (size_t k = 0; k < outcome->n_grants && !is_had; k++)
            is_had = stet__id_equal(outcome->grants[k].run, run);
        if (!is_had)
            fleet_fail(w, fleet_run_of(w, run),
                       "it is resumed and recorded for, and nobody has it");
    }
}

static void
model_value(fleet *w, const fleet_node *node, const stet_unit *unit, const stet_op *op)
{
    if (strcmp(op->space, STET__SPACE_DISCARD) == 0 && op->kind == STET_OP_VALUE_PUT &&
        fleet_run_of(w, op->run) != NULL)
        model_letter(w, fleet_run_of(w, op->run), false);
    if (strcmp(op->space, STET__SPACE_BASE_PAUSED) == 0)
        fleet_hold_applied(w, node, op);
    if (strcmp(op->space, STET__SPACE_TOPIC) == 0)
        fleet_topic_mark(w, unit, op);
    if (strcmp(op->space, STET__SPACE_BASE_EMIT) == 0)
        fleet_topic_emission(w, op);
}

void
fleet_applied(fleet *w, const fleet_node *node, const stet_unit *unit, const stet_outcome *outcome)
{
    model_fenced(w, unit);
    model_timers(w, unit);
    model_resumed(w, unit, outcome);
    for (size_t i = 0; i < unit->n_ops; i++)
        if (unit->ops[i].kind == STET_OP_FACTS)
            model_facts(w, node, unit, &unit->ops[i]);
    model_children(w, unit);
    for (size_t i = 0; i < unit->n_ops; i++)
        if (unit->ops[i].kind == STET_OP_INBOX)
            model_inbox(w, node, unit, &unit->ops[i]);
    for (size_t i = 0; i < unit->n_ops; i++)
        if (unit->ops[i].kind == STET_OP_RUN_DEL)
            model_purged(w, node, &unit->ops[i]);
        else if (unit->ops[i].kind == STET_OP_VALUE_PUT || unit->ops[i].kind == STET_OP_VALUE_DEL)
            model_value(w, node, unit, &unit->ops[i]);
    for (size_t i = 0; i < unit->n_ops; i++)
        if (unit->ops[i].kind == STET_OP_RUN_SET && (unit->ops[i].mask & STET_RUN_STATUS) != 0 &&
            unit->ops[i].row->is_terminal) {
            model_end_timers(w, &unit->ops[i]);
            model_end_told(w, &unit->ops[i]);
            model_end_children(w, unit, &unit->ops[i]);
        }
    model_stops(w, unit);
    fleet_topic_counted(w);
    if (w->n_schedules > 0)
        fleet_planned(w, node, unit);
    fleet_deeds_reach(w);
    model_forks(w, unit);
    for (size_t i = 0; i < outcome->n_grants; i++)
        model_granted(w, node, unit, &outcome->grants[i]);
    w->stats.commits++;
}

/* Its row says at which attempt it is: a failed one counts, and a rewind lets it count anew. */
static void
model_attempt(fleet *w, const fleet_run *run)
{
    const mem_run *row = run != NULL ? stet__mem_run(w->db, run->id) : NULL;

    if (row != NULL && run->end == 0 && row->row.attempt != run->attempts + 1)
        fleet_fail(w, run, "its row says attempt %u, and %u have failed", row->row.attempt,
                   run->attempts);
}

/* Is it given back behind that, by units of the same commit? Then its row is what these say. */
static bool
model_is_given_back(const stet_unit *units, size_t n, stet_id run)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_ops; k++)
            if (units[i].ops[k].kind == STET_OP_RUN_SET &&
                (units[i].ops[k].mask & STET_RUN_OWNER) != 0 &&
                stet__id_equal(units[i].ops[k].run, run))
                return true;
    return false;
}

void
fleet_committed(fleet *w, const stet_unit *units, const stet_outcome *outcomes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_ops; k++)
            if (units[i].ops[k].kind == STET_OP_FACTS)
                model_attempt(w, fleet_run_of(w, units[i].ops[k].run));
            else if (units[i].ops[k].kind == STET_OP_INBOX && outcomes[i].result == STET_OK &&
                     !outcomes[i].is_repeat &&
                     !model_is_given_back(units + i + 1, n - i - 1, units[i].ops[k].run))
                model_stop_wakes(w, &units[i].ops[k]);
}
