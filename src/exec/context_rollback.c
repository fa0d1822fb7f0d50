/* Compensation: undoing what was done, the last step first.
 *
 * An undo is a step of its own, named after the step it undoes, so a replay finds what is undone already. That a rollback
 * is under way is a fact (ROLLBACK), and so is its end (ROLLED_BACK): in between the run is compensating. An undo that
 * fails for good is not recorded as such; it ends the execution, and the run waits for help.
 *
 * A rollback the handler did not ask for, because it failed, begins when it has returned, and the run's end is its end.
 * Its fact says how the run failed: executed again, the handler does nothing that is not on record, whatever it returns
 * then, and the rollback goes on.
 */
#include <string.h>

#include "exec/context.h"

#undef stet_rollback

void *
stet_attempt_arg(const stet_attempt *a)
{
    return a->future->is_undo ? ((const stet__undo *)a->arg)->arg : a->arg;
}

int
stet_rollback_on_failure(stet_ctx *c, bool is_on)
{
    int err = stet__ctx_enter(c, "stet_rollback_on_failure");

    if (err == STET_OK)
        c->rolls_back = is_on;
    return err;
}

static stet__undo *
undo_make(stet_ctx *c, const stet_future *f)
{
    stet__undo *u = stet__arena_get0(&c->arena, sizeof *u);

    if (u == NULL || (u->step = stet__arena_str(&c->arena, f->name)) == NULL ||
        (f->cmd->value.data != NULL &&
         (u->result.data = stet__arena_copy(&c->arena, f->cmd->value.data, f->cmd->value.len)) == NULL)) {
        (void)stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for an undo"));
        return NULL;
    }
    u->result.len = f->cmd->value.len;
    u->occurrence = f->occurrence;
    u->order = f->cmd->settled_at;
    u->fn = f->undo;
    u->arg = f->arg;
    u->retry = f->retry.attempts > 0 ? f->retry : c->run.retry;
    return u;
}

int
stet__undo_note(stet_ctx *c, const stet_future *f)
{
    stet__undo *u;

    if (f->cmd->is_skipped) /* nothing was done */
        return STET_OK;
    if ((u = undo_make(c, f)) == NULL)
        return c->latch;
    u->next = c->undos;
    c->undos = u;
    return STET_OK;
}

/* ---- the one that is under way ------------------------------------------------------------------ */

static stet__cmd *
rollback_under_way(const stet_ctx *c)
{
    return stet__map_find(&c->journal.completions, &c->run.rollback, sizeof c->run.rollback);
}

/* The same for the handler, which is executed again because of it; NULL: it is not. */
static const stet__cmd *
rollback_taken_up(const stet_ctx *c)
{
    return c->run.is_auto && !c->is_undoing ? rollback_under_way(c) : NULL;
}

bool
stet__rollback_is_before(const stet_ctx *c, uint64_t order)
{
    const stet__cmd *cmd = rollback_taken_up(c);

    return cmd != NULL && cmd->fired_at < order && !STET__MUTANT(undone_goes_on);
}

/* What it inherited a handler need not ask for, and this one had. */
static bool
rollback_lacks(const stet_ctx *c, const stet__cmd *rollback)
{
    return c->journal.inherited < rollback->inherited && !STET__MUTANT(undo_disinherited);
}

uint64_t
stet__rollback_lacks(const stet_ctx *c)
{
    const stet__cmd *cmd = rollback_taken_up(c);

    return cmd != NULL && rollback_lacks(c, cmd) ? cmd->inherited : 0;
}

/* Did the handler, executed again, come to all that was done before this rollback, and beside its begin? What it did not
 * come to cannot be undone, and has to be before the rest is. */
static bool
rollback_knows_all(const stet_ctx *c, const stet__cmd *rollback)
{
    const stet__cmd *first = stet__journal_unasked(&c->journal);

    if (rollback_lacks(c, rollback))
        return false;
    return first == NULL || STET__MUTANT(undo_partial) ||
           (first->revision >= rollback->revision && (stet__journal_is_rollback(first) || STET__MUTANT(undo_beside)));
}

bool
stet__rollback_has_more(const stet_ctx *c)
{
    const stet__cmd *cmd = rollback_taken_up(c);

    return cmd != NULL && !rollback_knows_all(c, cmd);
}

/* ---- which, in which order ----------------------------------------------------------------------- */

/* Bodies of futures that run now may be done in a moment: what they do is undone too. */
static int
rollback_await_bodies(stet_ctx *c)
{
    for (;;) {
        const stet_future *f = c->steps;
        int                err = stet__ctx_catch_up(c);

        while (f != NULL && f->running == NULL)
            f = f->next;
        if (err != STET_OK || f == NULL)
            return err;
        stet__ctx_yield(c, STET__YIELD_WAIT);
        if (c->latch != 0)
            return c->latch;
    }
}

static void
rollback_insert(stet__undo **first, stet__undo *u)
{
    while (*first != NULL && ((*first)->order > u->order) != (STET__MUTANT(undo_forward) != 0))
        first = &(*first)->next;
    u->next = *first;
    *first = u;
}

/* Was it done when the rollback ended? What was still tried beside it, and done later, is not its to undo: a replay would
 * undo what was left standing. */
static bool
rollback_has(const stet__cmd *rollback, const stet_future *f)
{
    return f->undo != NULL && f->cmd != NULL && f->cmd->is_settled && f->cmd->code == 0 && !f->cmd->is_skipped &&
           (!rollback->is_settled || f->cmd->settled_at < rollback->settled_at || STET__MUTANT(undo_late));
}

/* The last one first. What is in the list is undone by the end of this rollback, so there is none from then on. */
static int
rollback_gather(stet_ctx *c, const stet__cmd *rollback, stet__undo **all)
{
    stet__undo *next;
    /* Where the host only looks (a query), no body ever ends. */
    int err = rollback->is_settled || c->is_watched ? STET_OK : rollback_await_bodies(c);

    *all = NULL;
    for (stet_future *f = c->steps; err == STET_OK && f != NULL; f = f->next) {
        stet__undo *u;

        if (!rollback_has(rollback, f))
            continue;
        if ((u = undo_make(c, f)) == NULL)
            return c->latch;
        f->undo = NULL;
        rollback_insert(all, u);
    }
    for (stet__undo *u = c->undos; err == STET_OK && u != NULL; u = next) {
        next = u->next;
        rollback_insert(all, u);
    }
    if (err == STET_OK)
        c->undos = NULL;
    return err;
}

/* ---- one ------------------------------------------------------------------------------------------- */

static int
undo_body(stet_attempt *a, void *undo)
{
    const stet__undo *u = undo;

    return u->fn(a, u->result);
}

static int
rollback_one(stet_ctx *c, stet__undo *u)
{
    char        name[STET__UNDO_NAME_MAX];
    const char *text;
    stet_future f = { .ctx = c, .kind = STET__FUTURE_STEP, .cmd_kind = STET__FACT_STEP, .is_sync = true, .is_undo = true };
    int         err;

    f.body = undo_body;
    f.arg = u;
    f.retry = u->retry;
    if ((f.name = stet__arena_str(&c->arena, stet__undo_name(name, u->step, strlen(u->step), u->occurrence))) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for an undo"));
    if ((err = stet__ctx_ask(c, STET__FACT_STEP, f.name, 0, &f.cmd, &f.occurrence)) != STET_OK ||
        (err = stet__step_run(c, &f, NULL)) != STET_OK || !f.is_broken)
        return err;
    text = stet__arena_printf(&c->arena, "the undo of step %s#%llu failed: %s", u->step, (unsigned long long)u->occurrence,
                              f.broken_text != NULL ? f.broken_text : stet_code_text(f.broken_cause));
    c->failed_undo = f.name;
    (void)stet__ctx_fail(c, STET_ECOMPENSATION, f.broken_cause, text, NULL, 0);
    return stet__ctx_latch(c, STET_ECOMPENSATION);
}

/* ---- all ------------------------------------------------------------------------------------------- */

static int
rollback_begin(stet_ctx *c, stet__fact *fact, stet__cmd **cmd)
{
    int err;

    fact->kind = STET__FACT_ROLLBACK;
    fact->name = stet_text("rollback");
    if ((err = stet__ctx_append(c, fact, NULL)) != STET_OK)
        return err;
    if ((*cmd = stet__journal_add(&c->journal, STET__FACT_ROLLBACK, "rollback", (uint64_t)fact->occurrence, 0)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    err = stet__journal_apply(&c->journal, fact);
    return err == STET_OK ? STET_OK : stet__ctx_latch(c, err);
}

static int
rollback_run(stet_ctx *c, stet__cmd *cmd)
{
    stet__fact  fact = { 0 };
    stet__undo *all;
    int         err = rollback_gather(c, cmd, &all);

    for (stet__undo *u = all; err == STET_OK && u != NULL; u = u->next)
        err = rollback_one(c, u);
    if (err != STET_OK || cmd->is_settled || c->is_undoing)
        return err; /* one that failed has its end behind this, and no handler that goes on */
    stet__run_settle_risks(&c->run);
    fact.kind = STET__FACT_ROLLED_BACK;
    fact.completion = (int64_t)cmd->completion;
    if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
        return err;
    err = stet__journal_apply(&c->journal, &fact);
    return err == STET_OK ? STET_OK : stet__ctx_latch(c, err);
}

int
stet_rollback(stet_ctx *c)
{
    const stet__cmd *taken_up = rollback_taken_up(c);
    stet__fact       fact = { 0 };
    stet__cmd       *cmd;
    uint64_t         occurrence;
    int              err;

    if ((err = stet__ctx_enter(c, "stet_rollback")) != STET_OK)
        return err;
    /* The one that is under way because it failed is not what it asks for here, and must be left to be found. */
    if (taken_up != NULL && stet__journal_peek(&c->journal, STET__FACT_ROLLBACK, "rollback") == taken_up) {
        (void)stet__ctx_is_undone(c);
        return c->latch;
    }
    if ((err = stet__ctx_ask(c, STET__FACT_ROLLBACK, "rollback", 0, &cmd, &occurrence)) != STET_OK)
        return err;
    fact.occurrence = (int64_t)occurrence;
    if (cmd == NULL && ((err = stet__ctx_catch_up(c)) != STET_OK || (err = rollback_begin(c, &fact, &cmd)) != STET_OK))
        return err;
    return rollback_run(c, cmd);
}

/* ---- because it failed ------------------------------------------------------------------------------- */

/* Is this how the run ends? As end.c decides; what is decided otherwise there is not undone here. */
static bool
rollback_is_end(const stet_ctx *c)
{
    stet_class class_ = stet_code_class(c->rc);
    bool       is_final = c->latch == 0 && (class_ == STET_CLASS_PERMANENT || class_ == STET_CLASS_USAGE || c->rc > 0 ||
                                      c->rc == STET_SUSPENDED || c->rc == STET_END);

    if (c->is_let_go || (c->latch != 0 && c->latch != STET_ERETRY))
        return false;
    /* Before it came to all it did: that is a contradiction. If it may pass, the run fails all the same, and what it did is
     * undone when an execution has come to it. */
    if (stet__journal_unasked(&c->journal) != NULL && (is_final || c->run.stop_code != 0 || STET__MUTANT(undo_hasty)))
        return false;
    if ((c->latch == 0 && (c->rc == STET_OK || c->rc == STET_EDEFER || c->rc == STET_CONTINUED)) || c->judged == STET_EDEFER)
        return false;
    if (c->judged == STET_EPERMANENT)
        return true;
    if (c->run.stop_code != 0 && !c->run.is_stop_told && c->was_stopped)
        return true;
    return is_final || c->run.failed + 1 >= (uint32_t)c->run.retry.attempts;
}

/* Or it may come to one that an attempt before had come to. */
static bool
rollback_has_undo(const stet_ctx *c)
{
    if (stet__journal_unasked(&c->journal) != NULL || c->journal.inherited < c->journal.inherited_max)
        return true;
    for (const stet_future *f = c->steps; f != NULL; f = f->next)
        if (f->undo != NULL)
            return true;
    return c->undos != NULL;
}

/* Asked for also when it is recorded: what nobody asks for makes the run stuck at its end. A rollback of its own that the
 * handler did not come to now is another one. */
static int
rollback_ask(stet_ctx *c, stet__cmd **cmd, uint64_t *occurrence)
{
    if (*cmd == NULL && stet__journal_peek(&c->journal, STET__FACT_ROLLBACK, "rollback") != NULL) {
        *occurrence = stet__journal_count(&c->journal, STET__FACT_ROLLBACK, "rollback") + 1;
        return STET_OK;
    }
    return stet__ctx_ask(c, STET__FACT_ROLLBACK, "rollback", 0, cmd, occurrence);
}

void
stet__rollback_after(stet_ctx *c)
{
    stet__cmd   *cmd = c->run.is_auto ? rollback_under_way(c) : NULL;
    stet__fact   fact = { 0 };
    stet_failure failure = c->failure;
    uint64_t     occurrence;
    int          rc = c->rc, latch = c->latch, err = STET_OK;

    if (cmd != NULL) { /* begun by an earlier execution */
        if (c->is_let_go || (latch != 0 && latch != STET_EROLLBACK) || !rollback_knows_all(c, cmd))
            return;
        rc = (int)cmd->number;
        latch = rc == STET_ERETRY ? rc : 0;
        failure = (stet_failure){ .code = rc, .cause = cmd->cause, .text = cmd->text != NULL ? cmd->text : stet_code_text(rc),
                                  .origin = cmd->origin };
        /* It was the run's end: where attempts were left, a classifier had said so. */
        if (c->run.failed + 1 < (uint32_t)c->run.retry.attempts && !STET__MUTANT(classify_undone))
            c->judged = STET_EPERMANENT;
    } else if (!c->rolls_back || c->run.rollback != 0 || !rollback_is_end(c) || !rollback_has_undo(c))
        return; /* one that the handler asked for and that is not over yet has failed with it, and waits for help */
    c->latch = 0;
    c->is_undoing = true;
    if ((err = rollback_ask(c, &cmd, &occurrence)) == STET_OK && cmd == NULL) {
        fact.flags = STET__FACT_AUTO;
        fact.occurrence = (int64_t)occurrence;
        fact.number = latch != 0 ? latch : rc;
        fact.cause = failure.cause;
        fact.inherited = (int64_t)(c->journal.inherited > c->journal.inherited_max ? c->journal.inherited : c->journal.inherited_max);
        if (failure.text != NULL)
            fact.text = stet_text(failure.text);
        if (failure.origin != NULL)
            fact.origin = stet_text(failure.origin);
        err = rollback_begin(c, &fact, &cmd);
    }
    if (err == STET_OK && !rollback_knows_all(c, cmd)) { /* it waits for an execution that does */
        c->is_undoing = false;
        c->rc = latch != 0 ? latch : rc;
        return;
    }
    if (err == STET_OK)
        err = rollback_run(c, cmd);
    c->is_undoing = false;
    if (err != STET_OK || c->latch != 0)
        return; /* let go, or an undo failed */
    c->is_undone = true;
    c->latch = latch;
    c->rc = rc;
    c->failure = failure;
}
