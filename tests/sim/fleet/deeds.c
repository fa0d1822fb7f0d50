/* Deeds: what operators did to runs, and what may be executed again because of it.
 *
 * A deed is noted before it is asked for, under a number that goes along as the reason. So an entry
 * in an inbox, or a run that was forked, is known to be what somebody wanted: once if the call was
 * answered, never if it was refused, either way if the answer was lost.
 *
 * A deed takes effect where the run takes it in. From the facts alone this knows which steps a rewind
 * forgets: those that were first recorded at or behind the revision it names. All others stand, and
 * are never executed again. /
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

static void *
deed_get(fleet *w, size_t size)
{
    void *p = stet__arena_get0(&w->arena, size);

    if (p == NULL)
        abort();
    return p;
}

/* ---- asking ---------------------------------------------------------------------------------- */

size_t
fleet_deed(fleet *w, fleet_run *run, stet__fact_kind kind, const char *step)
{
    fleet_deed_of *d;

    if (w->n_deeds == w->cap_deeds) {
        size_t cap = w->cap_deeds > 0 ? w->cap_deeds * 2 : 64;
        void  *grown = realloc(w->deeds, cap * sizeof *w->deeds);

        if (grown == NULL)
            abort();
        w->deeds = grown;
        w->cap_deeds = cap;
    }
    run->is_skipped = run->is_skipped || kind == STET__FACT_SKIP;
    d = &w->deeds[w->n_deeds++];
    *d = (fleet_deed_of){ .run = run, .kind = kind, .asked_us = stet__sim_now_us(w->sim) };
    (void)snprintf(d->step, sizeof d->step, "%s", step != NULL ? step : "");
    return w->n_deeds;
}

void
fleet_deed_answered(fleet *w, size_t number, int err)
{
    const fleet_deed_of *d = &w->deeds[number - 1];
    stet_class           class_ = stet_code_class(err);

    if (err == STET_OK && d->puts != 1)
        fleet_fail(w, d->run, "%s was answered, and is not in the store",
                   stet__fact_kind_name(d->kind));
    if (err != STET_OK && class_ != STET_CLASS_UNKNOWN && class_ != STET_CLASS_FENCED &&
        err != STET_EPOISONED && d->puts != 0)
        fleet_fail(w, d->run, "%s was refused (%s), and is in the store",
                   stet__fact_kind_name(d->kind), stet_code_name(err));
    if (err == STET_OK)
        w->stats.deeds[fleet_deed_kind(d->kind)]++;
}

int
fleet_deed_kind(stet__fact_kind kind)
{
    switch (kind) {
    case STET__FACT_SKIP: return 0;
    case STET__FACT_EDIT: return 1;
    case STET__FACT_REWIND: return 2;
    case STET__FACT_DECIDED: return 4;
    default: return 3;
    }
}

/* The deed an entry or a fork is for; it is there now. */
static fleet_deed_of *
deed_put(fleet *w, const fleet_run *run, stet__fact_kind kind, stet_bytes why, size_t *number)
{
    fleet_deed_of *d;

    *number = 0;
    for (size_t i = 0; i < why.len; i++)
        *number = *number * 10 + (size_t)(((const char *)why.data)[i] - '0');
    d = *number > 0 && *number <= w->n_deeds ? &w->deeds[*number - 1] : NULL;
    if (d == NULL || d->kind != kind || d->run != run) {
        fleet_fail(w, run, "%s, and nobody asked for it", stet__fact_kind_name(kind));
        return NULL;
    }
    if (d->puts++ > 0)
        fleet_fail(w, run, "%s is done twice", stet__fact_kind_name(kind));
    return d;
}

/* ---- which operation ------------------------------------------------------------------------- */

/* Of the program's operations, whose "s3", "h3" or "s3-1" is it? */
static size_t
deed_op(const fleet_run *run, const char *step)
{
    size_t op = step[0] != '\0' ? (size_t)strtoul(step + 1, NULL, 10) : 0;

    return op < run->program.n ? op : run->program.n;
}

static bool
deed_is(const char *step, stet_bytes name)
{
    size_t n = strcspn(step, "#");

    if (strncmp(step, "rollback:", 9) == 0)
        n = strlen(step);
    return n == name.len && memcmp(step, name.data, n) == 0;
}

/* ---- in the inbox ---------------------------------------------------------------------------- */

void
fleet_deed_put(fleet *w, fleet_run *run, const stet__fact *fact)
{
    size_t         number;
    fleet_deed_of *d = deed_put(w, run, fact->kind, fact->text, &number);
    fleet_news    *news, **last = &run->news;
    char           want[24];

    if (d == NULL)
        return;
    (void)snprintf(want, sizeof want, FLEET_GIVEN "%zu", number);
    if (fact->kind != STET__FACT_REWIND &&
        (fact->value.len != strlen(want) || memcmp(fact->value.data, want, fact->value.len) != 0))
        fleet_fail(w, run, "another result than \"%s\" is put into its inbox", want);
    if (d->step[0] != '\0' ? !deed_is(d->step, fact->name) : fact->number != 2)
        fleet_fail(w, run, "%s is asked for %s, and is for %.*s", stet__fact_kind_name(fact->kind),
                   d->step, (int)fact->name.len, (const char *)fact->name.data);
    news = deed_get(w, sizeof *news);
    *news = (fleet_news){ .entry = run->inbox,
                          .kind = fact->kind,
                          .deed = number,
                          .occurrence = fact->occurrence,
                          .from = (uint64_t)fact->number,
                          .generation = fact->generation };
    (void)snprintf(news->step, sizeof news->step, "%.*s", (int)fact->name.len,
                   fact->name.data != NULL ? (const char *)fact->name.data : "");
    while (*last != NULL)
        last = &(*last)->next;
    *last = news;
}

/* ---- taken in -------------------------------------------------------------------------------- */

static void
deed_forget_step(fleet_run *run, fleet_step *s)
{
    for (fleet_entry *e = run->entries; e != NULL; e = e->next)
        if (strcmp(e->step, s->step) == 0)
            e->is_forgotten = true;
    for (fleet_step *undone = run->steps; undone != NULL; undone = undone->next) {
        char undo[48];

        (void)snprintf(undo, sizeof undo, "rollback:%s#1", undone->step);
        if (strcmp(undo, s->step) == 0) /* it will be undone again, or not */
            undone->is_undone = false;
    }
    s->until_ms = 0;
    s->is_recorded = s->is_undone = s->was_met = s->is_skipped = s->is_late = false;
    s->met_in = 0;
    s->attempts = s->done = s->failed = 0;
    s->revision = 0;
    s->given = 0;
    s->repeats++;
}

/* Writes stay. For the order of a key they stand before the operation that is gone back to. */
static void
deed_forget_writes(fleet_run *run, uint64_t from, size_t op)
{
    for (fleet_write *write = run->writes; write != NULL; write = write->next) {
        if (write->is_forgotten ? write->at > op : write->revision >= from)
            write->at = op;
        write->is_forgotten = write->is_forgotten || write->revision >= from;
    }
}

/* Runs it called and still waits for are stopped with it; the reason for all of them is free again. */
static void
deed_forget_children(fleet *w, const fleet_run *run, uint64_t from, uint64_t before)
{
    for (fleet_run *child = w->first; child != NULL; child = child->next) {
        if (!stet__id_equal(child->parent, run->id) || child->is_retry || child->is_forgotten ||
            child->asked_at < from || child->asked_at >= before)
            continue;
        child->is_forgotten = true;
        if (stet__map_find(&w->nonces, &child->order.nonce, sizeof child->order.nonce) == child)
            (void)stet__map_remove(&w->nonces, &child->order.nonce, sizeof child->order.nonce);
        if (child->is_called && child->end == 0 && !child->is_stopped && !child->is_answered)
            child->must_stop = true;
    }
}

/* The first operation of which something is forgotten. What was inherited, or given before the run came
 * to it, is recorded in front of what the operations before it recorded. */
static size_t
deed_rewind_op(const fleet_run *run, const fleet_news *news)
{
    if (news->from <= run->inherited)
        return 0;
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        if (s->is_skipped && strcmp(s->step, news->step) == 0)
            return 0;
    return deed_op(run, news->step);
}

static void
deed_rewind(fleet *w, fleet_run *run, const fleet_news *news, uint64_t revision)
{
    size_t op = deed_rewind_op(run, news);

    if (run->is_rolled_back)
        return; /* it came too late */
    run->attempts = 0;
    run->rewinds++;
    for (fleet_step *s = run->steps; s != NULL; s = s->next)
        if (s->revision >= news->from)
            deed_forget_step(run, s);
    if (run->rolled_at >= news->from) {
        run->rolled_at = 0;
        for (fleet_step *s = run->steps; s != NULL; s = s->next)
            s->is_late = false; /* what is left was done before the rollback that comes now */
    }
    /* What a retry inherits binds nobody: if nothing of its own is left behind it, a stop is told at the first operation
     * that has no record, though it had got past that before. */
    for (size_t i = run->is_retry ? 0 : op; i <= FLEET_OPS_MAX; i++)
        run->is_fixed[i] = false;
    for (size_t i = 0; i < w->n_awakeables; i++)
        if (w->awakeables[i].run == run && w->awakeables[i].op >= op)
            w->awakeables[i].is_forgotten = true;
    deed_forget_writes(run, news->from, op);
    fleet_updates_rewound(w, run, news->from);
    deed_forget_children(w, run, news->from, revision);
    run->forgets_from = news->from; /* also those that come with this unit */
    run->forgets_before = revision;
    w->has_orphans = true;
}

/* Is it the undo of a step that failed, or whose result an operator gave? There is nothing to undo. */
static bool
deed_undoes_nothing(const fleet_run *run, const char *undo)
{
    char name[48];

    for (const fleet_step *s = run->steps; s != NULL; s = s->next) {
        (void)snprintf(name, sizeof name, "rollback:%s#1", s->step);
        if (strcmp(name, undo) == 0)
            return s->done == 0;
    }
    return false;
}

/* Another result: its operation may see something else. Looks at one run are told apart by their order only: where an
 * earlier one is not made, the next finds its record. */
static void
deed_unfix(fleet_run *run, const char *step)
{
    size_t op = deed_op(run, step);

    run->is_fixed[op] = false;
    for (size_t i = op + 1; step[0] == 'l' && i < run->program.n; i++)
        if (run->program.ops[i].kind == FLEET_OP_LOOK)
            run->is_fixed[i] = false;
}

static void
deed_take(fleet *w, fleet_run *run, const fleet_news *news, uint64_t revision)
{
    fleet_step *s;

    run->is_rewritten = true;
    run->rewrites++;
    if (news->generation != run->generation)
        return; /* it was meant for another record */
    if (news->kind == STET__FACT_REWIND) {
        deed_rewind(w, run, news, revision);
        return;
    }
    if (news->occurrence != 1)
        return; /* no program has a second of that name */
    s = fleet_step_of(w, run, (stet_bytes){ news->step, strlen(news->step) });
    if (news->kind == STET__FACT_SKIP ? s->is_recorded : !s->is_recorded)
        return; /* it came too late, or what it was for is forgotten */
    if (news->kind == STET__FACT_SKIP) {
        s->is_skipped = s->is_recorded = true;
        s->revision = s->revision != 0 ? s->revision : revision;
        if (strncmp(s->step, "rollback:", 9) == 0 && !deed_undoes_nothing(run, s->step))
            fleet_step_undone(w, run, s->step, true);
    } else {
        if (s->code == STET_ECANCELLED || s->code == STET_EEXPIRED)
            return; /* it was told to stop there meanwhile: that is no result */
        deed_unfix(run, news->step);
        run->is_astray =
            run->is_astray || s->code != 0 || s->step[0] == 'l'; /* which run is looked at */
        if (s->done == 0)
            s->done = s->failed; /* who says what it gave says that it was done */
    }
    s->given = news->deed;
    s->code = 0;
}

void
fleet_deeds_taken(fleet *w, fleet_run *run, uint64_t upto, uint64_t revision)
{
    while (run->news != NULL && run->news->entry <= upto) {
        fleet_trace(w, NULL, run, "takes", run->news->step, (int64_t)run->news->kind,
                    (int64_t)run->news->from);
        deed_take(w, run, run->news, revision);
        run->news = run->news->next;
    }
}

/* The unit that takes a rewind in stops those it forgets. */
void
fleet_deeds_reach(fleet *w)
{
    if (!w->has_orphans)
        return;
    for (fleet_run *run = w->first; run != NULL; run = run->next)
        if (run->forgets_before != 0) {
            deed_forget_children(w, run, run->forgets_from, run->forgets_before);
            run->forgets_before = 0;
        }
    for (fleet_run *child = w->first; child != NULL; child = child->next) {
        if (child->must_stop && child->end == 0 && !child->is_stopped)
            fleet_fail(w, child, "who called it was rewound, and it goes on");
        child->must_stop = false;
    }
    w->has_orphans = false;
}

/* ---- what steps give ------------------------------------------------------------------------- */

bool
fleet_is_given(const fleet_run *run, size_t op)
{
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        if (s->given != 0 && s->step[0] != 'r' && deed_op(run, s->step) == op)
            return true;
    return false;
}

/* What the step `name` gave: its name, the run it picked, or what an operator said. */
void
fleet_step_text(char text[32], const fleet_run *run, const char *name)
{
    (void)snprintf(text, 32, "%s", name);
    for (const fleet_step *s = run->steps; s != NULL; s = s->next) {
        if (s->picked[0] != '\0' && strcmp(s->step, name) == 0)
            (void)snprintf(text, 32, "%.31s", s->picked);
        if (s->given != 0 && strcmp(s->step, name) == 0)
            (void)snprintf(text, 32, FLEET_GIVEN "%zu", s->given);
    }
}

/* ---- decisions ------------------------------------------------------------------------------- */

void
fleet_decided(fleet *w, fleet_run *run, const stet__fact *fact)
{
    size_t         number;
    fleet_deed_of *d = deed_put(w, run, STET__FACT_DECIDED, fact->text, &number);

    if (d != NULL && d->is_resume == ((fact->flags & STET__FACT_APPROVAL) != 0))
        fleet_fail(w, run, "decision %zu is of the wrong kind", number);
    if (d != NULL && (d->is_approval || d->is_resume) != (fact->code == 0))
        fleet_fail(w, run, "decision %zu is the other one in its inbox", number);
    if ((uint64_t)fact->completion != run->boundary)
        fleet_fail(w, run, "decision %zu is for what it asked at %lld, and now it asks at %llu",
                   number, (long long)fact->completion, (unsigned long long)run->boundary);
}

void
fleet_resumed(fleet *w, fleet_run *run, const stet__fact *fact)
{
    size_t         number;
    fleet_deed_of *d =
        fact->text.data != NULL ? deed_put(w, run, STET__FACT_DECIDED, fact->text, &number) : NULL;

    if (d != NULL && !d->is_resume)
        fleet_fail(w, run, "decision %zu resumes it", number);
    if (d != NULL)
        d->is_plain = true;
}

/* Who comes too late is told who was first: the note of that decision ends the sentence. */
static void
deed_check_first(fleet *w, const fleet_run *run)
{
    const char *note = strrchr(stet_last_error(), ' ');
    size_t      first = note != NULL ? (size_t)strtoul(note, NULL, 10) : 0;

    if (first == 0 || first > w->n_deeds || w->deeds[first - 1].run != run ||
        w->deeds[first - 1].kind != STET__FACT_DECIDED || w->deeds[first - 1].puts != 1)
        fleet_fail(w, run, "a second decision does not name the first: %s", stet_last_error());
}

static void
deed_decide(fleet_node *node, fleet_run *run, bool is_approval, bool is_resume)
{
    fleet      *w = node->w;
    size_t      deed = fleet_deed(w, run, STET__FACT_DECIDED, NULL);
    char        note[24];
    stet_run_id id;
    int         err;

    w->deeds[deed - 1].is_approval = is_approval;
    w->deeds[deed - 1].is_resume = is_resume;
    (void)snprintf(note, sizeof note, "%zu", deed);
    memcpy(id.text, run->text, sizeof id.text);
    err = is_resume     ? stet_run_resume(node->engine, &id, "boss", note)
          : is_approval ? stet_run_approve(node->engine, &id, "boss", note)
                        : stet_run_reject(node->engine, &id, "boss", note);
    if (err == STET_ESETTLED)
        deed_check_first(w, run);
    else if (err != STET_OK && err != STET_ESTATE && err != STET_EENDED && err != STET_ECORRUPT &&
             err != STET_EPOISONED && !(err == STET_ENOTFOUND && run->is_purged) &&
             stet_code_class(err) != STET_CLASS_RETRY &&
             stet_code_class(err) != STET_CLASS_UNKNOWN &&
             stet_code_class(err) != STET_CLASS_FENCED)
        fleet_fail(w, run, "deciding gives %s: %s", stet_code_name(err), stet_last_error());
    fleet_deed_answered(w, deed, err);
}

void
fleet_decide(fleet_node *node, fleet_run *run, bool is_approval)
{
    deed_decide(node, run, is_approval, false);
}

void
fleet_resume(fleet_node *node, fleet_run *run)
{
    deed_decide(node, run, false, true);
}

bool
fleet_is_decided(fleet *w, const fleet_run *run, uint64_t deed, int code, bool is_resume)
{
    const fleet_deed_of *d = deed > 0 && deed <= w->n_deeds ? &w->deeds[deed - 1] : NULL;

    while (d != NULL && run != NULL && d->run != run)
        run = run->is_retry ? fleet_run_of(w, run->retry_of) : NULL;
    return d != NULL && run != NULL && d->kind == STET__FACT_DECIDED && d->puts == 1 &&
           !d->is_plain && d->is_resume == is_resume &&
           code == (d->is_approval || is_resume ? STET_OK : STET_EREJECTED);
}

/* ---- forks ----------------------------------------------------------------------------------- */

void
fleet_deed_forked(fleet *w, fleet_run *run, const stet__fact *started)
{
    fleet_run     *of = fleet_run_of(w, run->retry_of);
    size_t         number;
    fleet_deed_of *d = deed_put(w, of, STET__FACT_STARTED, started->text, &number);

    run->fork = d != NULL ? number : 0;
}

/* The revision a fork begins at: that of its step's first fact; 0: not known, it is no step. */
static uint64_t
deed_fork_from(const fleet_run *of, const fleet_deed_of *d)
{
    if (d->step[0] == '\0')
        return 2;
    for (const fleet_step *s = of->steps; s != NULL; s = s->next)
        if (deed_is(d->step, stet_text(s->step)))
            return s->revision;
    return 0;
}

/* It has what was recorded before its step, and nothing that came later. Where the other was rewound
 * meanwhile, who knows what the fork has seen of it. */
void
fleet_deed_check_fork(fleet *w, fleet_run *run)
{
    const fleet_run     *of = fleet_run_of(w, run->retry_of);
    const fleet_deed_of *d = &w->deeds[run->fork - 1];
    uint64_t             from = deed_fork_from(of, d);

    if (from == 0 || of->is_rewritten || of->generation != run->generation || of->is_retry)
        return;
    for (const fleet_step *s = of->steps; s != NULL; s = s->next) {
        const fleet_step *own = run->steps;

        if (!s->is_recorded || s->code != 0 || s->is_undone || s->step[0] == 'r')
            continue;
        while (own != NULL && strcmp(own->step, s->step) != 0)
            own = own->next;
        /* One between two attempts was not recorded before, though it had begun. */
        if (s->revision < from && s->recorded_us < d->asked_us && own == NULL)
            fleet_fail(w, run, "a fork from %s has lost %s", d->step, s->step);
        if (s->revision >= from && own != NULL)
            fleet_fail(w, run, "a fork from %s has %s, which came later", d->step, s->step);
        w->stats.checks++;
    }
}
