/* Acting on runs from outside: cancel, deadline, awakeables, unstick.
 *
 * None of it needs a claim. It is put into the run's inbox, and whoever has or gets the run takes it in.
 * A run that never executed and is not claimed ends at once, in the same unit.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define CONTROL_TRIES_MAX 100
#define CONTROL_PAGE 1000u

/* ---- cancel and deadline -------------------------------------------------------------------------- */

/* Nobody has it: its end is one unit of ours, fenced by "unclaimed, this epoch, this revision". `fact` is the end. */
int
stet__end_unclaimed(stet_engine *e, stet__work *w, stet__loaded *l, stet__fact *fact)
{
    bool       was_answered = (l->run.stop_code != 0 && !l->run.is_answer_owed) || l->run.is_told;
    stet_cond *cond;
    stet_op   *op;
    int        err;

    if ((cond = stet__work_cond(w, STET_COND_CLAIM, l->run.id)) == NULL)
        return STET_ENOMEM;
    cond->epoch = l->row.epoch;
    if ((cond = stet__work_cond(w, STET_COND_INBOX, l->run.id)) == NULL ||
        (op = stet__work_op(w, STET_OP_FACTS, l->run.id)) == NULL)
        return STET_ENOMEM;
    cond->number = l->row.inbox;
    fact->revision = l->run.journal + 1;
    fact->time_ms = stet__store_now(e);
    l->run.failed = l->failed; /* a rewind that nobody took was none */
    if ((err = stet__run_apply(&l->run, fact)) != STET_OK)
        return err;
    stet__fact_encode(&w->facts, fact);
    w->run = l->run.id;
    w->first = fact->revision;
    w->n_facts = 1;
    if (w->facts.failed)
        return STET_ENOMEM;
    /* An entry nobody took may have settled a wait before its timer fired, or be the timer of one that has a mark. */
    for (const stet__cmd *cmd = l->journal.spared; cmd != NULL; cmd = cmd->spared)
        if ((cmd->had_timer && !stet__work_timer_gone(w, l->run.id, cmd->until_ms, cmd->completion)) ||
            (cmd->has_mark && !stet__project_mark_gone(w, l->run.id, cmd)))
            return STET_ENOMEM;
    if (l->run.visible_ms > l->run.created_ms && stet__run_has_lane(&l->run) && !stet__run_has_begun(&l->run)) {
        /* Becoming visible changes neither owner nor inbox: without this, a run that entered its lane just now
         * would end in it and never leave it. */
        if (l->row.lane == NULL) {
            if ((cond = stet__work_cond(w, STET_COND_TIMER, l->run.id)) == NULL)
                return STET_ENOMEM;
            cond->fire_ms = l->run.visible_ms;
            cond->number = STET__TIMER_VISIBLE;
        }
        if (!stet__work_timer_gone(w, l->run.id, l->run.visible_ms, STET__TIMER_VISIBLE))
            return STET_ENOMEM;
    }
    stet__lock(e->p, &e->lock);
    err = stet__project_end(e, w, &l->run, &l->journal, l->row.lane != NULL, !was_answered) ? STET_OK : STET_ENOMEM;
    stet__unlock(e->p, &e->lock);
    return err;
}

static int
control_end_unstarted(stet_engine *e, stet__work *w, stet__loaded *l, int code, const char *by, const char *why)
{
    stet__fact fact = { 0 };

    fact.kind = code == STET_EEXPIRED ? STET__FACT_EXPIRED : STET__FACT_CANCELLED;
    fact.code = code;
    if (by != NULL)
        fact.who = stet_text(by);
    if (why != NULL)
        fact.text = stet_text(why);
    return stet__end_unclaimed(e, w, l, &fact);
}

/* Tell the run through its inbox; its waiters are answered now. */
static int
control_tell(stet_engine *e, stet__work *w, stet__loaded *l, int code, const char *by, const char *why)
{
    stet__fact    fact = { 0 };
    stet_cond    *cond;
    stet_op      *op;
    stet_run_row *row;

    fact.kind = code == STET_EEXPIRED ? STET__FACT_DEADLINE : STET__FACT_CANCEL;
    fact.time_ms = stet__store_now(e);
    if (by != NULL)
        fact.who = stet_text(by);
    if (why != NULL)
        fact.text = stet_text(why);
    if ((cond = stet__work_cond(w, STET_COND_INBOX, l->run.id)) == NULL ||
        (op = stet__work_op(w, STET_OP_INBOX, l->run.id)) == NULL || !stet__work_fact(w, &op->data, &fact))
        return STET_ENOMEM;
    cond->number = l->row.inbox;
    if ((op = stet__work_op(w, STET_OP_RUN_SET, l->run.id)) == NULL ||
        (row = stet__arena_get0(&w->arena, sizeof *row)) == NULL)
        return STET_ENOMEM;
    row->id = l->run.id;
    row->status = l->run.status == STET_STATUS_STUCK ? STET_STATUS_STUCK
                  : l->run.rollback != 0             ? STET_STATUS_COMPENSATING
                                                     : STET_STATUS_CANCELLING;
    row->ended_ms = STET_NEVER;
    row->due_ms = fact.time_ms;
    op->row = row;
    op->mask = STET_RUN_STATUS;
    /* In backoff: now. One that waits in its lane never executed and does not come here. A stuck one learns of it when
     * somebody helps it. */
    if (l->row.session == 0 && l->row.due_ms != STET_NEVER && l->run.status != STET_STATUS_STUCK)
        op->mask |= STET_RUN_DUE;
    /* One that is given back just now, or that its timer woke, may be held, or in backoff: then nothing else would wake
     * it for this. */
    if (l->run.status != STET_STATUS_STUCK &&
        !stet__work_wake(w, l->run.id, STET_STATUS_CANCELLING, STET__MUTANT(cancel_hasten) ? 0 : STET_OP_HASTEN))
        return STET_ENOMEM;
    l->run.stop_code = code;
    l->run.stop_why = why;
    stet__lock(e->p, &e->lock);
    if (!stet__tell_parent(e, w, &l->run, code)) {
        stet__unlock(e->p, &e->lock);
        return STET_ENOMEM;
    }
    stet__unlock(e->p, &e->lock);
    w->timer_ms = fact.time_ms;
    return STET_OK;
}

typedef struct control_scan {
    int      code;
    bool     is_told; /* since the journal was read */
    uint64_t last;
    size_t   rows;
} control_scan;

static int
control_on_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    control_scan *scan = arg;
    stet__fact    fact;

    (void)count;
    scan->last = first;
    scan->rows++;
    if (stet__fact_decode(&fact, &facts) != STET_OK)
        return STET_OK; /* whoever takes it will be stuck on it; it asks for nothing */
    if (fact.kind == STET__FACT_TOLD)
        scan->is_told = true;
    if (scan->code == 0 && !scan->is_told && fact.kind == STET__FACT_CANCEL)
        scan->code = STET_ECANCELLED;
    if (scan->code == 0 && !scan->is_told && fact.kind == STET__FACT_DEADLINE)
        scan->code = STET_EEXPIRED;
    return STET_OK;
}

/* A stop that waits in the inbox counts as asked; but not behind what was told, also where the journal was read before
 * that. */
int
stet__stop_asked(stet_engine *e, const stet__run *run, int *code)
{
    control_scan scan = { .code = run->stop_code, .last = run->taken };
    int          err;

    *code = 0;
    do {
        if (scan.code != 0 || scan.is_told || run->is_told)
            break;
        scan.rows = 0;
        if ((err = e->store->ops->inbox(e->store, run->id, scan.last + 1, CONTROL_PAGE, control_on_inbox, &scan)) != STET_OK)
            return err;
    } while (scan.rows == CONTROL_PAGE);
    *code = scan.code;
    return STET_OK;
}

int
stet__stop_ops(stet_engine *e, stet__work *w, stet__loaded *l, int code, const char *by, const char *why)
{
    if (l->row.epoch == 0 && l->row.session == 0)
        return control_end_unstarted(e, w, l, code, by, why);
    return control_tell(e, w, l, code, by, why);
}

static int
control_stop_once(stet_engine *e, stet_id run, int code, const char *by, const char *why, const stet_timer *timer,
                  bool *was_asked)
{
    stet__loaded l;
    stet__work  *w;
    char         text[STET_ID_TEXT_MAX];
    int          err, asked = 0;

    if ((err = stet__load(e, &l, run, false)) != STET_OK)
        return err;
    if (!stet__run_is_terminal(&l.run) && (err = stet__stop_asked(e, &l.run, &asked)) != STET_OK) {
        stet__loaded_free(&l);
        return err;
    }
    if (l.run.is_told && !stet__run_is_terminal(&l.run) && timer == NULL) {
        stet__loaded_free(&l);
        stet__id_text(text, STET__ID_RUN, run);
        return stet__fail(STET_ESTATE, "%s: its rollback failed and everybody was told so: nothing is left to cancel; "
                                       "`stet rollback` tries again", text);
    }
    if (stet__run_is_terminal(&l.run) || l.run.is_told || asked != 0) {
        *was_asked = true;
        /* A timer must go in any case, and its owner sees to that. */
        err = timer != NULL || (stet__run_is_terminal(&l.run) && l.run.status != STET_STATUS_CANCELLED)
                  ? stet__fail(STET_EENDED, "the run has ended: %s", stet_status_name(l.run.status))
                  : STET_OK;
        stet__loaded_free(&l);
        return err;
    }
    if ((w = stet__work_new(e, NULL, NULL)) == NULL) {
        stet__loaded_free(&l);
        return STET_ENOMEM;
    }
    if (timer != NULL && !stet__work_timer_gone(w, run, timer->fire_ms, timer->completion))
        err = STET_ENOMEM;
    else
        err = stet__stop_ops(e, w, &l, code, by, why);
    if (err != STET_OK) {
        stet__work_free(w);
        err = err == STET_ENOMEM ? stet__fail(err, "out of memory") : err;
    } else if ((err = stet__commit_sync(e, w, NULL)) == STET_OK) {
        stet__lock(e->p, &e->lock);
        stet__answer(e, &l.run);
        stet__unlock(e->p, &e->lock);
    }
    stet__loaded_free(&l);
    return err;
}

bool
stet__stop_unstarted(stet_engine *e, stet_id run, const char *by, const char *why)
{
    stet__loaded l;
    stet__work  *w = NULL;
    int          err;

    if (stet__load(e, &l, run, false) != STET_OK)
        return false;
    if (stet__run_is_terminal(&l.run) || l.row.epoch != 0 || l.row.session != 0 || (w = stet__work_new(e, NULL, NULL)) == NULL)
        err = STET_ESTATE;
    else if ((err = control_end_unstarted(e, w, &l, STET_ECANCELLED, by, why)) != STET_OK)
        stet__work_free(w);
    else if ((err = stet__commit_sync(e, w, NULL)) == STET_OK) {
        stet__lock(e->p, &e->lock);
        stet__answer(e, &l.run);
        stet__unlock(e->p, &e->lock);
    }
    stet__loaded_free(&l);
    return err == STET_OK;
}

bool
stet__stop_called(stet_engine *e, stet__work *w, stet_id run, const stet_run_row *row, const char *by, const char *why)
{
    stet__fact    cancel = { .kind = STET__FACT_CANCEL, .time_ms = stet__store_now(e), .text = stet_text(why) };
    stet_run_row *now;
    stet_op      *op;

    if (row != NULL && row->status == STET_STATUS_COMPENSATION_FAILED && !STET__MUTANT(told_stopped))
        return true; /* it has told how it ended, and waits for a person: nothing of it is left to be stopped */
    cancel.flags = STET__FACT_UNTOLD; /* its caller has not been answered, and may wait for it to clean up */
    if (by != NULL)
        cancel.who = stet_text(by);
    if ((op = stet__work_op(w, STET_OP_INBOX, run)) == NULL || !stet__work_fact(w, &op->data, &cancel))
        return false;
    op->flags = STET_OP_IF_OPEN;
    /* Also out of a delay or backoff. */
    if (!stet__work_wake(w, run, STET_STATUS_PENDING, STET_OP_HASTEN))
        return false;
    /* A wake does nothing for one that is delayed or in backoff: it would learn only then. */
    if (row == NULL || row->is_terminal || row->session != 0 || row->due_ms == STET_NEVER)
        return true;
    if ((op = stet__work_op(w, STET_OP_RUN_SET, run)) == NULL || (now = stet__arena_get0(&w->arena, sizeof *now)) == NULL)
        return false;
    now->id = run;
    now->due_ms = cancel.time_ms;
    op->row = now;
    op->mask = STET_RUN_DUE;
    if (cancel.time_ms < w->timer_ms)
        w->timer_ms = cancel.time_ms;
    return true;
}

int
stet__stop_run(stet_engine *e, stet_id run, int code, const char *by, const char *why, const stet_timer *timer)
{
    bool was_asked = false;
    int  err = STET_ECONFLICT;

    for (int i = 0; i < CONTROL_TRIES_MAX && err == STET_ECONFLICT; i++)
        err = control_stop_once(e, run, code, by, why, timer, &was_asked);
    if (err == STET_ECONFLICT)
        return stet__fail(STET_EBUSY, "the run changed all the time; nothing was written, try again");
    return err;
}

int
stet__said_check(const char *by, const char *why)
{
    if ((by != NULL && strlen(by) > 256) || (why != NULL && strlen(why) > 4096))
        return stet__fail(STET_ETOOBIG, "who has at most 256 bytes, why at most 4096");
    return STET_OK;
}

int
stet_cancel(stet_engine *e, const stet_run_id *run, const char *by, const char *why)
{
    stet_id id;
    int     err;

    if ((err = stet__alive(e, "stet_cancel")) != STET_OK || (err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    if ((err = stet__said_check(by, why)) != STET_OK)
        return err;
    if ((err = stet__stop_run(e, id, STET_ECANCELLED, by, why, NULL)) == STET_EENDED) {
        char text[512];

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        return stet__fail(err, "%s: %s; nothing to cancel", run->text, text);
    }
    return err;
}

/* ---- awakeables ----------------------------------------------------------------------------------- */

/* Conditions and operations that settle; *refusal is set instead if it cannot be. Whether the run is open is asked
 * for only if the store refused it once: it does so when the run has ended. */
static int
control_settle(stet_engine *e, stet__work *w, stet_id id, stet_bytes value, bool is_rejected, bool was_refused, int *refusal)
{
    stet_value   v = { 0 };
    stet__fact   old, fact = { 0 };
    stet_bytes   in;
    stet_run_row row;
    stet__fact   extra;
    stet_cond   *cond;
    stet_op     *op;
    stet_id      run;
    char         text[STET_ID_TEXT_MAX], name[STET__NAME_MAX + 1], when[STET__UTC_MAX];
    int          err;

    *refusal = 0;
    stet__id_text(text, STET__ID_AWAKEABLE, id);
    err = e->store->ops->value(e->store, STET__SPACE_AWAKEABLE, stet__id_bytes(&id), &v);
    if (err == STET_ENOTFOUND) {
        *refusal = stet__fail(STET_ENOTFOUND, "there is no awakeable %s; its run may have been removed after its retention", text);
        return STET_OK;
    }
    if (err != STET_OK)
        return err;
    in = v.data;
    if ((err = stet__fact_decode(&old, &in)) != STET_OK)
        goto done;
    run = stet__fact_id(old.run);
    (void)snprintf(name, sizeof name, "%.*s", (int)old.name.len, old.name.data != NULL ? (const char *)old.name.data : "");
    if (v.version > 1) {
        *refusal = stet__fail(STET_ESETTLED, "awakeable %s (%s) was %s at %s", text, name,
                              old.flags & STET__FACT_REJECTED ? "rejected" : "resolved", stet__utc_text(when, old.time_ms));
        goto done;
    }
    if (was_refused && (err = stet__load_row(e, run, &w->arena, &row, &extra)) != STET_OK && err != STET_ENOTFOUND)
        goto done;
    if (was_refused && (err == STET_ENOTFOUND || row.is_terminal)) {
        stet_value now = { 0 };

        /* Somebody else may have settled it since we looked, and so have ended the run. */
        if (e->store->ops->value(e->store, STET__SPACE_AWAKEABLE, stet__id_bytes(&id), &now) == STET_OK) {
            stet__free(e->store->alloc, (void *)(uintptr_t)now.data.data);
            if (now.version != v.version) {
                stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
                return control_settle(e, w, id, value, is_rejected, was_refused, refusal);
            }
        }
        *refusal = stet__fail(STET_EENDED, "the run of awakeable %s (%s) has ended", text, name);
        err = STET_OK;
        goto done;
    }
    err = STET_ENOMEM;
    if ((cond = stet__work_cond(w, STET_COND_VALUE, run)) == NULL)
        goto done;
    cond->space = STET__SPACE_AWAKEABLE;
    cond->number = v.version;
    if (!stet__work_bytes(w, &cond->key, stet__id_bytes(&id)) || (op = stet__work_op(w, STET_OP_VALUE_PUT, run)) == NULL)
        goto done;
    op->space = STET__SPACE_AWAKEABLE;
    op->key = cond->key;
    if (STET__MUTANT(settle_unchecked))
        w->unit.n_conds--;
    op->number = (uint64_t)old.completion;
    fact.kind = STET__FACT_SETTLED;
    fact.time_ms = stet__store_now(e);
    fact.completion = old.completion;
    fact.name = old.name;
    fact.run = old.run;
    fact.flags = is_rejected ? STET__FACT_REJECTED : 0;
    if (!stet__work_fact(w, &op->data, &fact))
        goto done;
    fact.run = stet__id_bytes(&id);
    if (is_rejected) {
        fact.code = STET_EREJECTED;
        fact.text = value;
        fact.origin = stet_text("awakeable");
    } else
        fact.value = value.data != NULL ? value : stet_text("");
    if (STET__MUTANT(settle_apart)) {
        stet__work *apart = stet__work_new(e, NULL, NULL);

        if (apart == NULL || (op = stet__work_op(apart, STET_OP_INBOX, run)) == NULL ||
            !stet__work_fact(apart, &op->data, &fact) || !stet__work_wake(apart, run, STET_STATUS_PENDING, 0))
            goto done;
        op->flags = STET_OP_IF_OPEN;
        stet__submit(e, apart);
        err = STET_OK;
        goto done;
    }
    if ((op = stet__work_op(w, STET_OP_INBOX, run)) == NULL || !stet__work_fact(w, &op->data, &fact) ||
        !stet__work_wake(w, run, STET_STATUS_PENDING, 0))
        goto done;
    err = STET_OK;
done:
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    return err == STET_ENOMEM ? stet__fail(err, "out of memory") : err;
}

static int
control_settle_sync(stet_engine *e, const char *call, const char *awakeable, stet_bytes value, bool is_rejected)
{
    stet_id id;
    int     err = STET_ECONFLICT, refusal;

    if ((err = stet__alive(e, call)) != STET_OK ||
        (err = stet__not_in_handler(e, call, is_rejected ? "stet_ctx_reject" : "stet_ctx_resolve")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_AWAKEABLE, awakeable)) != STET_OK)
        return err;
    if ((int64_t)value.len > e->config.payload_bytes_max)
        return stet__fail(STET_ETOOBIG, "%s: %zu bytes; the limit is payload_bytes_max, %lld", awakeable, value.len,
                          (long long)e->config.payload_bytes_max);
    err = STET_ECONFLICT;
    for (int i = 0; i < CONTROL_TRIES_MAX && err == STET_ECONFLICT; i++) {
        stet__work *w = stet__work_new(e, NULL, NULL);

        if (w == NULL)
            return STET_ENOMEM;
        if ((err = control_settle(e, w, id, value, is_rejected, i > 0, &refusal)) != STET_OK || refusal != 0) {
            stet__work_free(w);
            return err != STET_OK ? err : refusal;
        }
        err = stet__commit_sync(e, w, NULL);
    }
    return err;
}

int
stet_resolve(stet_engine *e, const char *awakeable, stet_bytes value)
{
    return control_settle_sync(e, "stet_resolve", awakeable, value, false);
}

int
stet_reject(stet_engine *e, const char *awakeable, const char *error)
{
    return control_settle_sync(e, "stet_reject", awakeable, stet_text(error != NULL ? error : "rejected"), true);
}

static int
control_settle_in(stet_ctx *c, stet__work *w, stet__fact *fact)
{
    stet__claim *claim = c->host;
    const char  *text;
    int          err, refusal;

    if ((err = control_settle(claim->engine, w, stet__fact_id(fact->run), fact->value,
                              (fact->flags & STET__FACT_REJECTED) != 0, true, &refusal)) != STET_OK)
        return err;
    if (refusal != 0) { /* recorded too: the same on every replay */
        if ((text = stet__arena_str(&c->arena, stet_last_error())) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        fact->code = refusal;
        fact->text = stet_text(text);
    }
    return stet__host.append(c, fact, NULL);
}

/* From a handler: what it does to another run and the record of it are one unit. If somebody else settles first, or
 * the other run ends, the unit is refused, the context let go, and the replay finds it so. */
int
stet__host_tell(stet_ctx *c, stet__fact *fact)
{
    stet__work *w = stet__host_open(c->host);
    size_t      n_conds, n_ops;
    int         err;

    if (w == NULL)
        return STET_ENOMEM;
    n_conds = w->unit.n_conds;
    n_ops = w->unit.n_ops;
    switch (fact->kind) {
    case STET__FACT_SETTLE: err = control_settle_in(c, w, fact); break;
    case STET__FACT_SIGNAL_SEND: err = stet__signal_in(c, w, fact); break;
    case STET__FACT_EMIT: err = stet__emit_in(c, w, fact); break;
    case STET__FACT_ONCE: err = stet__once_in(c, w, fact); break;
    default: err = stet__look_in(c, fact); break;
    }
    if (err != STET_OK) {
        /* The unit goes on with the run's release: half of it must not be in there. */
        w->unit.n_conds = n_conds;
        w->unit.n_ops = n_ops;
    }
    return err;
}

/* ---- a rollback that failed ----------------------------------------------------------------------- */

/* Put an entry into the inbox of a run that is in this status, and make it due with another one. */
static int
control_revive(stet_engine *e, const stet_run_id *run, stet_status from, stet_status to, stet__fact *fact,
               const char *by, const char *why)
{
    stet_run_row  row, *set;
    stet__fact    extra;
    stet__work   *w;
    stet_cond    *cond;
    stet_op      *op;
    stet_id       id;
    int           err;

    if ((err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    if ((err = stet__said_check(by, why)) != STET_OK)
        return err;
    if ((w = stet__work_new(e, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((err = stet__load_row(e, id, &w->arena, &row, &extra)) != STET_OK)
        goto refused;
    if (row.status != (uint32_t)from) {
        err = stet__fail(STET_ESTATE, "%s is not %s, it is %s; nothing was changed, `why %s` tells what helps", run->text,
                         stet_status_name(from), stet_status_name((stet_status)row.status), run->text);
        goto refused;
    }
    fact->time_ms = stet__store_now(e);
    if (by != NULL)
        fact->who = stet_text(by);
    if (why != NULL)
        fact->text = stet_text(why);
    if ((cond = stet__work_cond(w, STET_COND_JOURNAL, id)) == NULL || (op = stet__work_op(w, STET_OP_INBOX, id)) == NULL ||
        !stet__work_fact(w, &op->data, fact) || (op = stet__work_op(w, STET_OP_RUN_SET, id)) == NULL ||
        (set = stet__arena_get0(&w->arena, sizeof *set)) == NULL) {
        err = stet__fail(STET_ENOMEM, "out of memory");
        goto refused;
    }
    cond->number = row.journal;
    set->id = id;
    set->status = to;
    set->ended_ms = STET_NEVER;
    set->due_ms = fact->time_ms;
    op->row = set;
    op->mask = STET_RUN_STATUS | STET_RUN_DUE;
    w->timer_ms = fact->time_ms;
    if ((err = stet__commit_sync(e, w, NULL)) == STET_ECONFLICT)
        return stet__fail(STET_EBUSY, "%s changed just now; nothing was written, look again", run->text);
    return err;
refused:
    stet__work_free(w);
    return err;
}

int
stet_rollback_retry(stet_engine *e, const stet_run_id *run, const char *by, const char *why)
{
    stet__fact fact = { .kind = STET__FACT_ROLLBACK_RETRY };
    int        err = stet__alive(e, "stet_rollback_retry");

    return err != STET_OK ? err
                          : control_revive(e, run, STET_STATUS_COMPENSATION_FAILED, STET_STATUS_COMPENSATING, &fact, by, why);
}

/* ---- unstick -------------------------------------------------------------------------------------- */

int
stet_unstick(stet_engine *e, const stet_run_id *run, const char *by)
{
    stet__fact fact = { .kind = STET__FACT_UNSTICK };
    int        err = stet__alive(e, "stet_unstick");

    return err != STET_OK ? err : control_revive(e, run, STET_STATUS_STUCK, STET_STATUS_PENDING, &fact, by, NULL);
}
