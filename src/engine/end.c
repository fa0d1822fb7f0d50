/* Ending an execution: what the handler's return, a failure, a contradiction or a stop mean for the run.
 *
 * The decision becomes facts in the claim's open unit, conditional on the inbox. If something arrived
 * meanwhile the unit is refused, its tail cut off, the news taken in, and the decision made again.
 */
#include <stdio.h>
#include <string.h>

#include "engine/host.h"

#define END_AGAIN_US 20000
#define END_TROUBLED_MS 1000

static bool
end_done(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    stet__claim *claim = w->arg;
    stet_ctx    *c = claim->ctx;

    if (stet__host_is_dropped(e, claim, o))
        return false;
    if (stet__host_is_news(w, o)) {
        claim->returned = w;
        claim->end = STET__END_AGAIN;
        atomic_store(&c->has_news, true);
        atomic_fetch_add(&claim->answered, 1);
        stet__exec_wake(&e->exec, c);
        return true;
    }
    if (o->result != STET_OK)
        return stet__host_unit_done(e, w, o);
    claim->end = STET__END_DONE;
    stet__disown(claim);
    if (stet__run_is_answered(&c->run))
        stet__answer(e, &c->run);
    atomic_fetch_add(&claim->answered, 1);
    stet__exec_wake(&e->exec, c);
    if (e->has_backlog) {
        e->wants_claim = true;
        stet__keeper_poke(e);
    }
    return false;
}

static int
end_fact(stet_ctx *c, stet__fact_kind kind, int code, int cause, const char *text, const char *origin)
{
    stet__fact fact = { 0 };

    fact.kind = kind;
    fact.code = code;
    fact.cause = cause;
    if (text != NULL)
        fact.text = stet_text(text);
    if (origin != NULL)
        fact.origin = stet_text(origin);
    fact.attempt = stet__run_attempt(&c->run);
    return stet__host_append(c, &fact, NULL);
}

/* An undo failed for good, or no attempt is left to come to the end of them: the run waits for help, and whoever waits
 * for it is told. */
static int
end_compensation_failed(stet_ctx *c, int cause, int64_t *due_ms)
{
    stet__fact fact = { 0 };

    fact.kind = STET__FACT_COMPENSATION_FAILED;
    fact.name = stet_text(c->failed_undo);
    fact.code = STET_ECOMPENSATION;
    fact.cause = cause;
    fact.text = stet_text(c->failure.text);
    if (c->failure.origin != NULL)
        fact.origin = stet_text(c->failure.origin);
    *due_ms = STET__HELD_MS;
    return stet__host_append(c, &fact, NULL);
}

/* Nobody asked for another try: it waits on, as it was told. */
static int
end_held_again(stet_ctx *c, int64_t *due_ms)
{
    stet__fact fact = { 0 };

    fact.kind = STET__FACT_COMPENSATION_FAILED;
    if (c->run.undo != NULL)
        fact.name = stet_text(c->run.undo);
    fact.code = c->run.code;
    fact.cause = c->run.cause;
    if (c->run.error != NULL)
        fact.text = stet_text(c->run.error);
    if (c->run.origin != NULL)
        fact.origin = stet_text(c->run.origin);
    *due_ms = STET__HELD_MS;
    return stet__host_append(c, &fact, NULL);
}

/* A passing failure: again after a backoff, or the end if attempts or time are used up. */
static int
end_retry(stet_ctx *c, int code, int64_t *due_ms)
{
    stet__claim *claim = host_claim(c);
    int64_t      now_ms = stet__store_now(claim->engine);
    const char  *text = c->failure.text != NULL ? c->failure.text : stet_code_text(code);
    stet__fact   fact = { 0 };
    uint64_t     random;
    bool         is_last = c->run.failed + 1 >= (uint32_t)c->run.retry.attempts && code != STET_EDEFER;
    bool         is_untold = c->run.stop_code != 0 && !c->run.is_stop_told;
    int          err;

    /* A stop that came while it executed: once more at once, so that it can be told. One that was there
     * from the beginning and met no operation to be told by: it has nothing left to do. */
    if (is_untold && c->was_stopped)
        is_last = true;
    if (is_last && c->run.rollback != 0 && !c->is_undone)
        return end_compensation_failed(c, code, due_ms);
    claim->engine->p->ops->random(claim->engine->p, &random, sizeof random);
    fact.kind = code == STET_EDEFER ? STET__FACT_DEFERRED : STET__FACT_ATTEMPT_FAILED;
    fact.time_ms = now_ms; /* the wait that is told begins then, however late it is written */
    fact.code = code;
    fact.cause = c->failure.cause;
    fact.text = stet_text(text);
    if (c->failure.origin != NULL)
        fact.origin = stet_text(c->failure.origin);
    fact.attempt = stet__run_attempt(&c->run);
    fact.inherited = code != STET_EDEFER ? (int64_t)c->journal.inherited : 0;
    fact.until_ms = code == STET_EDEFER ? stet__deferred_ms(&c->run.retry, c->defer_ms, now_ms, random)
                                        : stet__time_add(now_ms, stet__backoff_ms(&c->run.retry, c->run.failed + 1, random));
    if (is_untold)
        fact.until_ms = now_ms;
    *due_ms = is_last ? STET_NEVER : fact.until_ms;
    if (is_last)
        fact.until_ms = 0;
    if ((err = stet__host_append(c, &fact, NULL)) != STET_OK)
        return err;
    if (c->run.stop_code != 0 && is_last)
        return end_fact(c, c->run.stop_code == STET_EEXPIRED ? STET__FACT_EXPIRED : STET__FACT_CANCELLED,
                             c->run.stop_code, code, text, c->failure.origin);
    if (is_last)
        return end_fact(c, STET__FACT_FAILED, STET_EATTEMPTS, code, text, c->failure.origin);
    if (c->run.deadline_ms != 0 && fact.until_ms >= c->run.deadline_ms && c->run.stop_code == 0 && !c->run.is_told &&
        !c->rolls_back && c->run.rollback == 0) { /* one that undoes what it did is told by its deadline */
        *due_ms = STET_NEVER;
        return end_fact(c, STET__FACT_EXPIRED, STET_EEXPIRED, code, text, c->failure.origin);
    }
    return STET_OK;
}

/* A passing failure, as a classifier sees it. */
static int
end_passing(stet_ctx *c, int code, int64_t *due_ms)
{
    if (c->judged == STET_EPERMANENT && c->run.stop_code == 0)
        return end_fact(c, STET__FACT_FAILED, code, 0, c->failure.text != NULL ? c->failure.text : stet_code_text(code),
                        c->failure.origin);
    return end_retry(c, c->judged == STET_EDEFER ? c->judged : code, due_ms);
}

/* Other code may agree with the record, so a worker that starts tries such a run again. No code makes up for workers
 * that died: that one is held until somebody says `unstick`, or each start would claim it and record the same again. */
static int
end_stuck(stet_ctx *c, int64_t *due_ms)
{
    stet__fact fact = { 0 };

    *due_ms = c->stuck_code == STET_ELOST ? STET__HELD_MS : STET_NEVER;
    fact.kind = STET__FACT_STUCK;
    fact.code = c->stuck_code;
    fact.text = stet_text(c->stuck_text != NULL ? c->stuck_text : stet_code_text(c->stuck_code));
    if (c->stuck_where != NULL)
        fact.where = stet_text(c->stuck_where);
    if (c->stuck_recorded != NULL)
        fact.recorded = stet_text(c->stuck_recorded);
    if (c->stuck_asked != NULL)
        fact.asked = stet_text(c->stuck_asked);
    return stet__host_append(c, &fact, NULL);
}

static int
end_release(stet_ctx *c, int64_t *due_ms)
{
    stet__fact fact = { 0 };

    *due_ms = stet__store_now(host_claim(c)->engine);
    fact.kind = STET__FACT_RELEASED;
    return stet__host_append(c, &fact, NULL);
}

/* Not our run's fault: the store, or a worker that lacks memory or a handler. */
static bool
end_is_trouble(int latch)
{
    return latch == STET_ENOHANDLER || latch == STET_ENOTFOUND || latch == STET_ENOMEM || latch == STET_EMOVED ||
           (stet__store_is_away(latch) && !STET__MUTANT(trouble_counted));
}

/* So no attempt is used; but not at once again. */
static int
end_troubled(stet_ctx *c, int64_t *due_ms)
{
    stet_engine *e = host_claim(c)->engine;
    int          err = end_release(c, due_ms);

    if (stet__store_is_away(c->latch) && c->latch_text != NULL) {
        (void)stet__fail(c->latch, "%s", c->latch_text);
        stet__log_store(e, &c->run.id, c->run.handler, c->latch, "is given back, and executed again in a while");
    }
    *due_ms += END_TROUBLED_MS;
    return err;
}

/* One whose rollback is to go on, executed again, did not come to all that was done before it: what it did not come to
 * cannot be undone, and comes first. */
static bool
end_is_partial(const stet_ctx *c, const stet__cmd *unasked)
{
    return (unasked != NULL || stet__rollback_lacks(c) != 0) && c->run.rollback != 0 && !c->is_undone;
}

/* … and that may pass: its attempts are over, so none is used. */
static int
end_partial(stet_ctx *c, const stet__cmd *unasked, int64_t *due_ms)
{
    stet_engine *e = host_claim(c)->engine;
    stet__fact   fact = { .kind = STET__FACT_RELEASED };
    int64_t      now_ms = stet__store_now(e), wait_ms;
    uint64_t     random;
    char         what[STET__UNDO_NAME_MAX + 64], text[512];

    e->p->ops->random(e->p, &random, sizeof random);
    wait_ms = stet__backoff_ms(&c->run.retry, c->run.failed + 1, random);
    *due_ms = c->rc == STET_EDEFER && c->defer_ms > now_ms ? c->defer_ms
                                                           : stet__time_add(now_ms, wait_ms > 1000 ? wait_ms : 1000);
    if (stet__rollback_lacks(c) != 0)
        (void)snprintf(what, sizeof what, "all %llu steps that it inherited", (unsigned long long)stet__rollback_lacks(c));
    else
        (void)snprintf(what, sizeof what, "%s %s#%llu", stet__fact_kind_name(unasked->kind), unasked->name,
                       (unsigned long long)unasked->occurrence);
    (void)snprintf(text, sizeof text, "the rollback waits: it fails before it comes to %s: %s", what,
                   c->failure.text != NULL ? c->failure.text : stet_code_text(c->rc));
    fact.text = stet_text(text);
    stet__log(e, STET_LOG_WARN, &c->run.id, c->run.handler, NULL, c->rc, "%s", text);
    return stet__host_append(c, &fact, NULL);
}

/* … or it is how this code ends. */
static int
end_not_all(stet_ctx *c, const stet__cmd *unasked, int64_t *due_ms)
{
    uint64_t all = stet__rollback_lacks(c);

    if (unasked != NULL)
        (void)stet__ctx_stuck(c, unasked, STET__FACT_STEP, NULL, 0);
    if (all != 0) {
        c->stuck_code = STET_EREPLAY;
        c->stuck_recorded = stet__arena_printf(&c->arena, "%llu steps that it inherited", (unsigned long long)all);
        c->stuck_asked = stet__arena_printf(&c->arena, "%llu of them", (unsigned long long)c->journal.inherited);
        c->stuck_text = stet__arena_printf(&c->arena,
                                           "it failed behind %s, which are to be undone, and the handler came to %s now; "
                                           "start a worker with code that agrees",
                                           c->stuck_recorded ? c->stuck_recorded : "?", c->stuck_asked ? c->stuck_asked : "?");
    }
    return end_stuck(c, due_ms);
}

static int
end_returned(stet_ctx *c, const stet__cmd *unasked, int64_t *due_ms)
{
    stet_class       class_ = stet_code_class(c->rc);
    bool             is_well = c->rc == STET_OK || c->rc == STET_CONTINUED;
    bool             is_final = is_well || class_ == STET_CLASS_PERMANENT || class_ == STET_CLASS_USAGE;
    bool             is_none = c->rc > 0 || c->rc == STET_SUSPENDED || c->rc == STET_END;
    stet__fact       fact = { 0 };
    char             text[96];

    if (is_none && !end_is_partial(c, unasked)) {
        (void)snprintf(text, sizeof text, "the handler returned %d%s%s%s", c->rc, c->rc > 0 ? ", which is no stet code" : ", ",
                       c->rc > 0 ? "" : stet_code_name(c->rc), c->rc > 0 ? "" : ", which no call had returned to it");
        if (c->run.stop_code != 0) /* a stopped run was answered: it cannot fail any more */
            return end_fact(c, c->run.stop_code == STET_EEXPIRED ? STET__FACT_EXPIRED : STET__FACT_CANCELLED,
                            c->run.stop_code, STET_EHANDLER, text, NULL);
        return end_fact(c, STET__FACT_FAILED, STET_EHANDLER, 0, text, NULL);
    }
    if ((is_final || is_none) && (unasked != NULL || stet__rollback_lacks(c) != 0))
        return end_not_all(c, unasked, due_ms);
    /* Told in its last moment: it comes back to this when it is resumed. Not if it failed passingly, or its attempt
     * would not be counted. */
    if (is_final && c->run.is_paused)
        return end_release(c, due_ms);
    if (is_final && c->run.stop_code != 0) {
        bool is_told = is_well || c->rc == c->run.stop_code;

        return end_fact(c, c->run.stop_code == STET_EEXPIRED ? STET__FACT_EXPIRED : STET__FACT_CANCELLED,
                             c->run.stop_code, is_told ? 0 : c->rc,
                             !is_told && c->failure.text != NULL ? c->failure.text : c->run.stop_why, NULL);
    }
    if (c->rc == STET_CONTINUED) {
        *due_ms = stet__store_now(host_claim(c)->engine);
        return stet__end_anew(c);
    }
    if (c->rc == STET_OK) {
        fact.kind = STET__FACT_COMPLETED;
        fact.value = c->has_result ? c->result : stet_text("");
        fact.attempt = stet__run_attempt(&c->run);
        return stet__host_append(c, &fact, NULL);
    }
    if (is_final)
        return end_fact(c, STET__FACT_FAILED, c->rc, c->failure.cause, c->failure.text, c->failure.origin);
    if (c->run.is_auto && end_is_partial(c, unasked))
        return end_partial(c, unasked, due_ms);
    return end_passing(c, c->rc, due_ms);
}

/* Decide what the end of this execution means, as facts in the open unit. */
static int
end_decide(stet_ctx *c, int64_t *due_ms)
{
    stet__claim     *claim = host_claim(c);
    const stet__cmd *unasked;

    *due_ms = STET_NEVER;
    if (c->run.is_failed) {
        stet__fact fact = { 0 };

        stet__failed_fact(&c->run, c->run.stop_code, &fact);
        return stet__host_append(c, &fact, NULL);
    }
    if (claim->verdict == STET__FACT_CANCELLED || claim->verdict == STET__FACT_EXPIRED)
        return end_fact(c, claim->verdict, claim->verdict == STET__FACT_EXPIRED ? STET_EEXPIRED : STET_ECANCELLED, 0,
                             c->run.stop_why, NULL);
    if (claim->verdict == STET__FACT_COMPENSATION_FAILED) {
        return end_held_again(c, due_ms);
    }
    if (c->stuck_code != 0)
        return end_stuck(c, due_ms);
    if (c->is_let_go)
        return end_release(c, due_ms);
    if (c->latch == STET_SUSPENDED)
        return end_release(c, due_ms);
    if (c->latch == STET_ECOMPENSATION)
        return end_compensation_failed(c, c->failure.cause, due_ms);
    unasked = stet__journal_unasked(&c->journal);
    /* An undo failed, everybody was told, and since then it was done: what was answered stands. */
    if (c->run.is_told && c->run.stop_code == 0 && (c->latch == 0 || c->latch == STET_ERETRY) &&
        (c->is_undone || c->run.rollback == 0) && unasked == NULL)
        return end_fact(c, STET__FACT_FAILED, c->run.told.code, c->run.told.cause, c->run.told.error, c->run.told.origin);
    if (end_is_trouble(c->latch))
        return end_troubled(c, due_ms);
    if (c->latch == STET_EROLLBACK && end_is_partial(c, unasked))
        return end_not_all(c, unasked, due_ms);
    if (c->latch != 0)
        return end_passing(c, c->failure.code == c->latch && c->failure.cause != 0 ? c->failure.cause : c->latch, due_ms);
    return end_returned(c, unasked, due_ms);
}

/* ---- bodies that ran and are not on record ---------------------------------------------------------- */

/* The same fact as after a worker's death, because it means the same: this body was entered, and what came
 * of it is not known. */
static bool
end_risk(stet__claim *claim, const char *step, uint64_t occurrence)
{
    stet__fact fact = { 0 };
    stet_op   *op = stet__work_op(claim->open, STET_OP_INBOX, claim->run);
    size_t     len = strnlen(step, STET_CRUMB_MAX - 1);

    if (op == NULL)
        return false;
    fact.kind = STET__FACT_LOST;
    fact.time_ms = stet__store_now(claim->engine);
    fact.who = stet_text(claim->engine->worker);
    fact.text = stet_text(claim->is_unsure ? "whether its record was written is not known" : "its record could not be written");
    fact.flags = STET__FACT_IN_BODY;
    fact.name = (stet_bytes){ step, len };
    fact.occurrence = (int64_t)occurrence;
    return stet__work_fact(claim->open, &op->data, &fact);
}

/* The run is given back, and what executes it next has to know which bodies may happen twice. The end of an attempt
 * is the record of all that failed in it, so there it is only those whose record found no memory. Otherwise it is
 * whatever our crumbs would tell if we had died now, but for those that are on record when this unit is: nobody died,
 * and who reads that a record could not be written will look for what happened twice. */
static bool
end_risks(stet__claim *claim, bool is_attempt_over)
{
    stet_engine *e = claim->engine;
    bool         ok = true;

    if (STET__MUTANT(release_untold))
        return true;
    for (const stet_attempt *a = claim->unrecorded; is_attempt_over && a != NULL && ok; a = a->next)
        ok = end_risk(claim, a->step, a->occurrence);
    if (is_attempt_over)
        return ok;
    stet__lock(e->p, &e->lock);
    for (size_t i = 0; claim->crumbs != NULL && claim->session == e->session && i < e->n_crumbs && ok; i++) {
        const stet__crumb_use *use = &e->crumb_uses[i];

        if (use->is_used && use->epoch == claim->epoch && stet__id_equal(use->run, claim->run) &&
            stet__host_crumb_is_risk(claim, (int)i))
            ok = end_risk(claim, claim->crumbs[i].step, claim->crumbs[i].occurrence);
    }
    stet__unlock(e->p, &e->lock);
    return ok;
}

/* Its waiters are told now, and the parent. A stop that is on its way has not seen that, and would tell them something
 * else: an entry of our own in the inbox refuses it. */
static bool
end_tell(stet_ctx *c, bool was_answered)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet__fact   told = { .kind = STET__FACT_TOLD, .time_ms = stet__store_now(e) };
    stet_op     *op = stet__work_op(claim->open, STET_OP_INBOX, claim->run);
    bool         ok;

    if (op == NULL || !stet__work_fact(claim->open, &op->data, &told))
        return false;
    if (STET__MUTANT(told_unguarded))
        claim->open->unit.n_ops--;
    if (was_answered)
        return true;
    stet__lock(e->p, &e->lock);
    ok = stet__tell_parent(e, claim->open, &c->run, stet__run_answer(&c->run));
    stet__unlock(e->p, &e->lock);
    return ok;
}

/* As a fact: one that is paused, or being cancelled, is shown as that. */
static bool
end_is_attempt_over(const stet__run *run)
{
    return run->dispatch == STET__FACT_ATTEMPT_FAILED || run->dispatch == STET__FACT_DEFERRED ||
           run->status == STET_STATUS_COMPENSATION_FAILED;
}

static int
end_unit(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    bool         was_answered = (c->run.stop_code != 0 && !c->run.is_answer_owed) || c->run.is_told;
    uint64_t     generation = c->run.generation;
    int64_t      due_ms;
    bool         ok, is_anew;
    int          err;

    if ((err = stet__host_spare(c)) != STET_OK || (err = stet__host_mark(c)) != STET_OK || (err = end_decide(c, &due_ms)) != STET_OK ||
        (!STET__MUTANT(end_blind) && (err = stet__host_inbox_cond(c)) != STET_OK))
        return err;
    if (c->run.status == STET_STATUS_PAUSED)
        due_ms = STET__HELD_MS;
    is_anew = c->run.generation != generation;
    if (stet__run_is_terminal(&c->run)) {
        stet__lock(e->p, &e->lock);
        ok = stet__project_end(e, claim->open, &c->run, &c->journal, claim->has_lane, !was_answered);
        stet__unlock(e->p, &e->lock);
    } else
        ok = (!STET__MUTANT(parent_early) || c->run.status != STET_STATUS_RETRYING ||
              stet__tell_parent(e, claim->open, &c->run, c->run.code)) &&
             end_risks(claim, is_anew || end_is_attempt_over(&c->run)) &&
             (c->run.status != STET_STATUS_COMPENSATION_FAILED || claim->verdict != 0 || end_tell(c, was_answered)) &&
             stet__project_row(claim->open, &c->run,
                               STET_RUN_STATUS | STET_RUN_OWNER | STET_RUN_ATTEMPT | STET_RUN_REASON |
                                   (is_anew ? STET_RUN_EXTRA : 0),
                               due_ms);
    if (!ok)
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    claim->open->done = end_done;
    return STET_OK;
}

/* A generation ends with a unit of its own: what the facts it removes were is read from the store. */
static bool
end_must_wait(stet_ctx *c)
{
    return c->latch == 0 && c->rc == STET_CONTINUED && !stet__host_is_durable(c);
}

static void
end_log(stet_ctx *c)
{
    stet_engine *e = host_claim(c)->engine;
    const char  *error = c->run.error != NULL ? c->run.error : c->stuck_text; /* not if its facts cannot be read */

    if (error == NULL)
        error = stet_code_text(c->run.code);
    if (c->run.status == STET_STATUS_STUCK)
        stet__log(e, STET_LOG_ERROR, &c->run.id, c->run.handler, NULL, c->run.code, "stuck: %s", error);
    else if (c->run.status == STET_STATUS_COMPENSATION_FAILED)
        stet__log(e, STET_LOG_ERROR, &c->run.id, c->run.handler, NULL, c->run.code,
                  "could not be rolled back, and waits for help: %s", error);
    else if (c->run.status == STET_STATUS_FAILED)
        stet__log(e, STET_LOG_ERROR, &c->run.id, c->run.handler, NULL, c->run.code, "failed: %s", error);
    else if (c->run.status == STET_STATUS_RETRYING)
        stet__log(e, STET_LOG_WARN, &c->run.id, c->run.handler, NULL, c->run.code, "attempt %u failed: %s", c->run.failed, error);
}

/* The open unit goes, and with it the records of bodies that are in it. What became of one before it may not be known:
 * nobody but us appends to the journal, so its length says how far we came. */
static void
end_lose(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_run_row row;
    stet__fact   extra;

    stet__work_free(claim->open);
    claim->open = NULL;
    claim->is_unsure = claim->is_refused && stet__load_row(claim->engine, claim->run, &c->arena, &row, &extra) != STET_OK;
    if (claim->is_refused && !claim->is_unsure && row.session == claim->session && row.epoch == claim->epoch &&
        row.journal > claim->stored)
        claim->stored = row.journal;
    stet__host_crumbs_lose(claim);
}

/* Our picture of the journal is not what is stored (unreadable, or a unit was refused): give the run back
 * by its row alone, without a fact. */
static int
end_bare(stet_ctx *c, stet_status status, const char *reason, int64_t due_ms)
{
    stet__claim *claim = host_claim(c);

    end_lose(c);
    if (stet__host_open(claim) == NULL)
        return STET_ENOMEM;
    claim->open->unit.n_ops = 0; /* no facts */
    c->run.status = status;
    c->run.reason = reason;
    c->run.ended_ms = STET_NEVER; /* an end that was refused is none */
    c->run.is_told = false;       /* nor is a failed rollback; who was told of one that stands knows it already */
    if (!end_risks(claim, false) ||
        !stet__project_row(claim->open, &c->run, (status != 0 ? STET_RUN_STATUS : 0) | STET_RUN_OWNER | STET_RUN_REASON,
                           due_ms))
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    claim->open->done = end_done;
    return STET_OK;
}

/* What it wanted to record is more than the store takes, and would be so again with the next execution, which would
 * enter its bodies again. So it is stuck, as a fact behind what is stored. Not STET_OK: it is given back. */
static int
end_too_big(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet_run_row row;
    stet__fact   extra;
    uint64_t     bad;
    int          err;

    end_lose(c);
    if ((err = stet__load_row(e, claim->run, &c->arena, &row, &extra)) != STET_OK)
        return err;
    if (row.session != claim->session || row.epoch != claim->epoch)
        return stet__fail(STET_EFENCED, "another worker owns this run now");
    stet__journal_free(&c->journal);
    stet__journal_init(&c->journal, &c->arena, &e->p->alloc);
    stet__run_init(&c->run, &c->arena, claim->run);
    if ((err = stet__load_facts(e, &c->run, &c->journal, &row, &bad)) != STET_OK)
        return err;
    atomic_store(&c->inbox_known, row.inbox);
    claim->is_new = c->run.epoch != claim->epoch;
    claim->is_too_big = false;
    claim->is_refused = false;
    c->stuck_code = STET_ETOOBIG;
    c->stuck_text = "it records more than the store takes at once; give it a step or a sleep in between, or smaller values";
    return STET_OK;
}

/* Trying at once would keep a slot spinning, and a host without threads inside its poll. */
int64_t
stet__end_again(stet_engine *e, int64_t now_us)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    if (e->end_again_us == 0 || now_us < e->end_again_us)
        return e->end_again_us == 0 ? STET__FOREVER : e->end_again_us;
    e->end_again_us = 0;
    while (stet__map_next(&e->claims, &at, &key, &len, &value)) {
        stet__claim *claim = host_claim(value);

        if (claim->is_starved) {
            claim->is_starved = false;
            stet__exec_wake(&e->exec, value);
        }
    }
    return STET__FOREVER;
}

/* Its session may have been given up while the end was decided, which takes reads. The store need not know that: its clock
 * was ahead and was set right. It would take what is given back here, and our crumbs are not to be read any more. */
static void
end_submit(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    const char  *lane;

    stet__lock(e->p, &e->lock);
    if (!claim->is_owned)
        stet__exec_wake(&e->exec, c); /* to end as one that is not ours */
    else {
        claim->end = STET__END_ASKED;
        /* The next run of the key may begin, but its units must queue behind this one. */
        if (stet__run_is_terminal(&c->run) && claim->has_lane && !claim->is_detached &&
            (lane = stet__lane_name(&claim->open->arena, c->run.handler, c->run.key)) != NULL)
            stet__ahead_end(e, claim->open, lane, c->run.handler);
        stet__host_submit_locked(claim);
    }
    stet__unlock(e->p, &e->lock);
}

bool
stet__host_end(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    size_t       jobs;
    bool         is_owned, is_settled, is_done;
    int          err;

    stet__lock(e->p, &e->lock);
    jobs = c->jobs;
    is_owned = claim->is_owned && !claim->is_detached;
    is_settled = atomic_load(&claim->submitted) == atomic_load(&claim->answered);
    is_done = claim->end == STET__END_DONE;
    stet__unlock(e->p, &e->lock);
    if (is_done)
        return !is_settled;
    if (jobs > 0 || !is_settled)
        return true;
    if (claim->returned != NULL) { /* refused: something had arrived, or we were let go while parking */
        stet__host_rollback(c, claim->returned);
        claim->returned = NULL;
    }
    if (!is_owned) {
        stet__work_free(claim->open);
        claim->open = NULL;
        /* Frees what bodies left. Nothing may be recorded, though the handler may have returned well: a unit would be
         * answered when this claim is gone. */
        if (c->latch == 0)
            c->latch = STET_SUSPENDED;
        (void)stet__ctx_catch_up(c);
        return false;
    }
    /* Without a committer's thread a store that takes nothing would be asked here for ever: whoever finds that it is
     * well wakes us. */
    if (claim->is_refused && e->is_polled && e->is_poisoned)
        return true;
    if (c->stuck_code == STET_ECORRUPT || claim->is_refused) { /* what bodies left is freed, not recorded */
        if (c->latch == 0)
            c->latch = STET_SUSPENDED;
        (void)stet__ctx_catch_up(c);
    }
    if (claim->is_too_big && c->stuck_code != STET_ECORRUPT)
        (void)end_too_big(c);
    if (c->stuck_code == STET_ECORRUPT)
        err = end_bare(c, STET_STATUS_STUCK, c->stuck_text, STET_NEVER);
    else if (claim->is_refused && end_is_trouble(c->latch)) /* its status was not learnt */
        err = end_bare(c, 0, NULL, stet__store_now(e) + END_TROUBLED_MS);
    else if (claim->is_refused)
        err = end_bare(c, stet__run_shown(&c->run, STET_STATUS_PENDING), NULL, stet__store_now(e));
    else {
        int latch = c->latch;

        c->latch = 0; /* bodies of futures that ended after the handler are recorded too */
        (void)stet__ctx_catch_up(c);
        if (claim->is_refused) { /* news that could not be taken in */
            stet__lock(e->p, &e->lock);
            stet__exec_wake(&e->exec, c);
            stet__unlock(e->p, &e->lock);
            return true;
        }
        if (latch != 0)
            c->latch = latch;
        if (claim->verdict == STET__FACT_STUCK && c->run.lost < (uint32_t)e->config.lost_max) {
            claim->verdict = 0; /* unstuck meanwhile */
            c->stuck_code = 0;
        }
        if (end_must_wait(c)) {
            stet__host_commit(c);
            return true;
        }
        err = end_unit(c);
        if (err == STET_ECORRUPT) { /* it would be so for ever; if the run is not ours, this is refused */
            c->stuck_code = err;
            c->stuck_text = stet__arena_str(&c->arena, stet_last_error());
            err = end_bare(c, STET_STATUS_STUCK, c->stuck_text, STET_NEVER);
        }
    }
    if (err != STET_OK) {
        /* Out of memory: keep the claim and try again a little later. */
        if (claim->open != NULL && c->stuck_code != STET_ECORRUPT && !claim->is_refused)
            stet__host_rollback(c, claim->open);
        stet__log_store(e, &claim->run, c->run.handler, err, "its end cannot be recorded yet");
        stet__lock(e->p, &e->lock);
        claim->is_starved = true;
        if (e->end_again_us == 0) {
            e->end_again_us = stet__mono_us(e->p) + END_AGAIN_US;
            stet__keeper_poke(e);
        }
        stet__unlock(e->p, &e->lock);
        return true;
    }
    end_log(c);
    if (STET__MUTANT(answer_early) && stet__run_is_terminal(&c->run)) {
        stet__lock(e->p, &e->lock);
        stet__answer(e, &c->run);
        stet__unlock(e->p, &e->lock);
    }
    end_submit(c);
    return true;
}
