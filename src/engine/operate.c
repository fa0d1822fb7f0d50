/* What operators do to a run: pause, resume, skip a step, replace its result, rewind, fail.
 *
 * Each is an entry in the run's inbox, with who and why, and takes effect when the run takes it in: at the next
 * recorded point of one that is being executed, at once for all others, because the unit that puts the entry also
 * sets the row as the entry leaves it. A run that is failed and that nobody has ends in that unit.
 *
 * What may be done is judged by the run as its next execution would find it, entries that wait included; the unit
 * holds only if nothing came in between.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define OPERATE_TRIES_MAX 100
#define OPERATE_NAMES_MAX 12 /* in an error */

/* ---- which step ------------------------------------------------------------------------------------ */

/* Steps first. */
static const stet__fact_kind operate_kinds[] = {
    STET__FACT_STEP,  STET__FACT_SLEEP,    STET__FACT_CALL,   STET__FACT_SEND, STET__FACT_AWAKEABLE, STET__FACT_SIGNAL,
    STET__FACT_TOPIC, STET__FACT_BOUNDARY, STET__FACT_SWITCH, STET__FACT_NOTE, STET__FACT_ONCE,
};

/* "charge#2" is the second "charge", unless there is one that is called so. *occurrence 0: not said. */
static void
operate_split(const stet__journal *j, const char *text, char name[STET__UNDO_NAME_MAX], uint64_t *occurrence)
{
    const char        *mark = strrchr(text, '#');
    unsigned long long n = 0;
    char               end;

    *occurrence = 0;
    (void)snprintf(name, STET__UNDO_NAME_MAX, "%s", text);
    for (size_t i = 0; i < sizeof operate_kinds / sizeof *operate_kinds; i++)
        if (stet__journal_count(j, operate_kinds[i], name) > 0)
            return;
    if (mark == NULL || mark == text || sscanf(mark + 1, "%llu%c", &n, &end) != 1 || n == 0 || n > 1000000)
        return;
    *occurrence = n;
    (void)snprintf(name, STET__UNDO_NAME_MAX, "%.*s", (int)(mark - text), text);
}

static bool
operate_has_name(const stet__cmd *cmd, bool only_steps)
{
    for (size_t i = 0; i < (only_steps ? 1 : sizeof operate_kinds / sizeof *operate_kinds); i++)
        if (cmd->kind == operate_kinds[i])
            return true;
    return false;
}

/* In the order they were recorded in. Undos only with steps: nobody can go back to one. */
static const stet__cmd *
operate_after(const stet__journal *j, const stet__cmd *last, bool only_steps)
{
    const stet__cmd *next = NULL;
    size_t           at = 0, len;
    const void      *key;
    void            *value;

    while (stet__map_next(&j->rows, &at, &key, &len, &value)) {
        const stet__row_of_cmds *row = value;

        for (size_t i = 0; i < row->n; i++) {
            const stet__cmd *cmd = row->cmds[i];

            if (cmd != NULL && operate_has_name(cmd, only_steps) &&
                (only_steps || !stet__name_is_undo(stet_text(cmd->name))) && (last == NULL || cmd->revision > last->revision) &&
                (next == NULL || cmd->revision < next->revision))
                next = cmd;
        }
    }
    return next;
}

/* What there is instead: steps, or for who goes back all that can be gone back to. */
static int
operate_no_step(const stet__journal *j, const char *run, const char *text, bool only_steps)
{
    char             names[512] = "";
    size_t           len = 0, n = 0;
    const stet__cmd *cmd = NULL;

    while (n < OPERATE_NAMES_MAX && len < sizeof names - 1 && (cmd = operate_after(j, cmd, only_steps)) != NULL) {
        bool is_step = cmd->kind == STET__FACT_STEP, is_undo = stet__name_is_undo(stet_text(cmd->name));
        char number[24] = ""; /* an undo has that of its step in its name */
        int  added;

        if (!is_undo)
            (void)snprintf(number, sizeof number, "#%llu", (unsigned long long)cmd->occurrence);
        added = snprintf(names + len, sizeof names - len, "%s%s%s%s%s", n++ > 0 ? ", " : "",
                         is_step ? "" : stet__fact_kind_name(cmd->kind), is_step ? "" : " ", cmd->name, number);
        len += added > 0 ? (size_t)added : 0;
    }
    if (n == 0)
        return stet__fail(STET_ENOTFOUND, "%s has not recorded %s, nor any %s", run, text, only_steps ? "step" : "step or wait");
    return stet__fail(STET_ENOTFOUND, "%s has not recorded %s; %s %s%s", run, text, only_steps ? "its steps are" : "it has", names,
                      n == OPERATE_NAMES_MAX && operate_after(j, cmd, only_steps) != NULL ? " …" : "");
}

int
stet__operate_find(const stet__journal *j, const char *run, const char *text, bool only_steps, const stet__cmd **cmd)
{
    char     name[STET__UNDO_NAME_MAX];
    uint64_t occurrence;

    *cmd = NULL;
    if (strlen(text) >= sizeof name)
        return stet__fail(STET_ENAME, "a name of %zu bytes", strlen(text));
    operate_split(j, text, name, &occurrence);
    for (size_t i = 0; *cmd == NULL && i < sizeof operate_kinds / sizeof *operate_kinds; i++) {
        uint64_t last = stet__journal_count(j, operate_kinds[i], name);

        *cmd = stet__journal_find(j, operate_kinds[i], name, occurrence != 0 ? occurrence : last);
    }
    return *cmd != NULL ? STET_OK : operate_no_step(j, run, text, only_steps);
}

/* ---- what may be done ------------------------------------------------------------------------------- */

typedef struct operation {
    const char *call;
    const char *run, *step;
    stet__fact  fact;
} operation;

static int
operate_may_pause(const operation *op, const stet__run *run)
{
    char when[STET__UTC_MAX];

    if (run->is_paused)
        return stet__fail(STET_ESETTLED, "%s was paused%s%s at %s%s%s", op->run, run->said_who != NULL ? " by " : "",
                          run->said_who != NULL ? run->said_who : "", stet__utc_text(when, run->said_ms),
                          run->said_why != NULL ? ": " : "", run->said_why != NULL ? run->said_why : "");
    if (run->stop_code != 0 || run->status == STET_STATUS_STUCK || run->status == STET_STATUS_COMPENSATION_FAILED)
        return stet__fail(STET_ESTATE, "%s is %s: it does nothing that could be paused", op->run, stet_status_name(run->status));
    return STET_OK;
}

/* An undo may have failed without a record of it. */
static bool
operate_is_undo(const stet__loaded *l, const char *text)
{
    const stet__cmd *cmd;

    return l->run.rollback != 0 && stet__name_is_undo(stet_text(text)) &&
           stet__operate_find(&l->journal, "", text + sizeof STET__UNDO_PREFIX - 1, true, &cmd) == STET_OK && cmd->kind == STET__FACT_STEP && cmd->is_settled;
}

/* Its handler is executed only to undo the rest. */
static int
operate_may_help(const operation *op, const stet__run *run)
{
    return stet__fail(STET_ESTATE,
                      "%s is %s: only an undo can be skipped%s%s; `stet rollback` tries it again, `stet edit` replaces the "
                      "result it is given",
                      op->run, stet_status_name(run->status), run->undo != NULL ? ", the one that failed is " : "",
                      run->undo != NULL ? run->undo : "");
}

/* A step that has no result yet, asked for or not. */
static int
operate_may_skip(operation *op, const stet__loaded *l, char name[STET__UNDO_NAME_MAX])
{
    const stet__cmd *cmd;
    uint64_t         occurrence = 0;
    int              err;

    if (operate_is_undo(l, op->step))
        (void)snprintf(name, STET__UNDO_NAME_MAX, "%s%s", op->step, strchr(op->step, '#') != NULL ? "" : "#1");
    else if (l->run.awaits_help)
        return operate_may_help(op, &l->run);
    else if ((cmd = stet__journal_find(&l->journal, STET__FACT_STEP, op->step, 1)) != NULL && cmd->is_settled &&
             stet__name_is_undo(stet_text(op->step)))
        return stet__fail(STET_ESETTLED, "%s of %s is done: there is nothing to skip", op->step, op->run);
    else if (stet__name_is_undo(stet_text(op->step)))
        return stet__fail(STET_ENOTFOUND,
                          "%s has no undo %s to skip: they are called rollback:STEP#N, of a step with a result, and can be "
                          "skipped from the begin of a rollback on",
                          op->run, op->step);
    else {
        operate_split(&l->journal, op->step, name, &occurrence);
        if (stet__journal_count(&l->journal, STET__FACT_STEP, name) == 0) {
            if ((err = stet__name_check("step", name)) != STET_OK)
                return err;
            if (occurrence == 0 && stet__operate_find(&l->journal, op->run, op->step, true, &cmd) == STET_OK)
                return stet__fail(STET_EKIND,
                                  "%s of %s is no step but a %s; only steps can be skipped, one of that name that is still to "
                                  "come as %s#1",
                                  op->step, op->run, stet__fact_kind_name(cmd->kind), op->step);
        }
    }
    if (occurrence == 0 && (occurrence = stet__journal_count(&l->journal, STET__FACT_STEP, name)) == 0)
        occurrence = 1;
    cmd = stet__journal_find(&l->journal, STET__FACT_STEP, name, occurrence);
    if (cmd != NULL && cmd->is_settled)
        return stet__fail(STET_ESETTLED, "%s has recorded the result of %s#%llu; `stet edit` replaces it, and %s#%llu is the next one",
                          op->run, name, (unsigned long long)occurrence, name, (unsigned long long)occurrence + 1);
    op->fact.name = stet_text(name);
    op->fact.occurrence = (int64_t)occurrence;
    return STET_OK;
}

static int
operate_may_edit(operation *op, const stet__loaded *l)
{
    const stet__cmd *cmd;
    int              err;

    if ((err = stet__operate_find(&l->journal, op->run, op->step, true, &cmd)) != STET_OK)
        return err;
    if (cmd->kind != STET__FACT_STEP)
        return stet__fail(STET_EKIND, "%s of %s is no step but a %s; only results of steps can be replaced", op->step, op->run,
                          stet__fact_kind_name(cmd->kind));
    if (!cmd->is_settled)
        return stet__fail(STET_ESTATE, "%s has no result of %s#%llu yet; `stet skip` gives it one", op->run, cmd->name,
                          (unsigned long long)cmd->occurrence);
    if (!stet__cmd_has_result(cmd))
        return stet__fail(STET_ESTATE, "%s#%llu of %s has no result: it was told to stop there; `stet rewind` goes back to before it",
                          cmd->name, (unsigned long long)cmd->occurrence, op->run);
    op->fact.name = stet_text(cmd->name);
    op->fact.occurrence = (int64_t)cmd->occurrence;
    return STET_OK;
}

static int
operate_may_rewind(operation *op, const stet__loaded *l)
{
    const stet__cmd *cmd, *undone;
    int              err;

    if (l->run.rollback != 0 || l->run.is_told)
        return stet__fail(STET_ESTATE, "%s is %s: what it did is being undone, it cannot go back%s", op->run,
                          stet_status_name(l->run.status),
                          l->run.awaits_help ? "; `stet rollback` tries again, `stet skip` goes on without an undo" : "");
    if (op->step == NULL) {
        op->fact.number = 2;
        return STET_OK;
    }
    if ((err = stet__operate_find(&l->journal, op->run, op->step, false, &cmd)) != STET_OK)
        return err;
    if (stet__name_is_undo(stet_text(cmd->name)))
        return stet__fail(STET_ESTATE, "%s of %s is an undo; rewind it to %s, or to what came before that", op->step, op->run,
                          cmd->name + sizeof STET__UNDO_PREFIX - 1);
    if ((undone = stet__journal_undone(&l->journal, cmd->revision)) != NULL)
        return stet__fail(STET_ESTATE,
                          "%s has undone %s#%llu, which would count as done before %s: rewind it to %s#%llu, or to what came before that",
                          op->run, undone->name, (unsigned long long)undone->occurrence, op->step, undone->name,
                          (unsigned long long)undone->occurrence);
    op->fact.name = stet_text(cmd->name);
    op->fact.occurrence = (int64_t)cmd->occurrence;
    op->fact.number = (int64_t)cmd->revision;
    return STET_OK;
}

static int
operate_may(operation *op, const stet__loaded *l, char name[STET__UNDO_NAME_MAX])
{
    const stet__run *run = &l->run;

    if (stet__run_is_terminal(run))
        return stet__fail(STET_EENDED, "%s has ended: %s; `stet fork` starts a new run from any of its steps", op->run,
                          stet_status_name(run->status));
    if (run->is_failed)
        return stet__fail(STET_EENDED, "%s is about to end: it was failed by hand", op->run);
    switch (op->fact.kind) {
    case STET__FACT_PAUSE: return operate_may_pause(op, run);
    case STET__FACT_RESUME:
        return run->is_paused ? STET_OK
                              : stet__fail(STET_ESTATE, "%s is not paused, it is %s", op->run, stet_status_name(run->status));
    case STET__FACT_SKIP: return operate_may_skip(op, l, name);
    case STET__FACT_EDIT: return operate_may_edit(op, l);
    case STET__FACT_REWIND: return operate_may_rewind(op, l);
    default: return STET_OK;
    }
}

/* ---- how the row is left ----------------------------------------------------------------------------- */

static bool
operate_set(stet__work *w, stet_id run, stet_status status, uint32_t mask, int64_t due_ms)
{
    stet_op      *op = stet__work_op(w, STET_OP_RUN_SET, run);
    stet_run_row *row = stet__arena_get0(&w->arena, sizeof *row);

    if (op == NULL || row == NULL)
        return false;
    row->id = run;
    row->status = status;
    row->ended_ms = STET_NEVER;
    row->due_ms = due_ms;
    op->row = row;
    op->mask = mask;
    if (due_ms < w->timer_ms)
        w->timer_ms = due_ms;
    return true;
}

/* A keyed run that waits for its time stands in no lane before. */
static bool
operate_is_delayed(const stet__loaded *l)
{
    return stet__run_has_lane(&l->run) && l->row.lane == NULL && !stet__run_has_begun(&l->run);
}

/* The timer puts it into its lane, if that is not just happening: it changes neither owner nor inbox. */
static bool
operate_if_delayed(stet__work *w, const stet__run *run)
{
    stet_cond *cond = stet__work_cond(w, STET_COND_TIMER, run->id);

    if (cond == NULL)
        return false;
    cond->fire_ms = run->visible_ms;
    cond->number = STET__TIMER_VISIBLE;
    return true;
}

static bool
operate_resumed(stet_engine *e, stet__work *w, const stet__loaded *l)
{
    const stet__run *run = &l->run;
    int64_t          now_ms = stet__store_now(e), due_ms = 0;

    if (operate_is_delayed(l))
        return operate_if_delayed(w, run) &&
               operate_set(w, run->id, STET_STATUS_PENDING, STET_RUN_STATUS | STET_RUN_DUE, STET_NEVER);
    if (run->dispatch == STET__FACT_ATTEMPT_FAILED || run->dispatch == STET__FACT_DEFERRED)
        due_ms = run->due_ms;
    else if (!stet__run_has_begun(run) && l->row.lane == NULL) /* in its lane its turn counts, whatever the clock says */
        due_ms = run->visible_ms;
    if (due_ms > now_ms)
        return operate_set(w, run->id, run->status, STET_RUN_STATUS | STET_RUN_DUE, due_ms);
    /* Now, or when its turn comes. */
    return operate_set(w, run->id, run->status, STET_RUN_STATUS | STET_RUN_DUE, STET_NEVER) &&
           stet__work_wake(w, run->id, run->status, 0);
}

/* `l` is the run with the entry taken in. */
static bool
operate_row(stet_engine *e, stet__work *w, const stet__loaded *l, stet__fact_kind kind, stet_status before)
{
    const stet__run *run = &l->run;
    bool             waits_in_lane = l->row.lane != NULL && l->row.due_ms == STET_NEVER && !stet__run_has_begun(run);

    if (kind == STET__FACT_PAUSE)
        return (!operate_is_delayed(l) || operate_if_delayed(w, run)) &&
               operate_set(w, run->id, STET_STATUS_PAUSED, STET_RUN_STATUS | (waits_in_lane ? 0 : STET_RUN_DUE), STET__HELD_MS);
    if (kind == STET__FACT_RESUME)
        return operate_resumed(e, w, l);
    if (run->is_paused || (operate_is_delayed(l) && !STET__MUTANT(helped_early)))
        return true; /* one that is not in its lane yet must not be woken beside it */
    if (run->awaits_help)
        return true; /* it is no help: the next rollback finds it */
    if (before == STET_STATUS_COMPENSATION_FAILED)
        return operate_set(w, run->id, run->status, STET_RUN_STATUS | STET_RUN_DUE, stet__store_now(e));
    return stet__work_wake(w, run->id, stet__run_shown(run, STET_STATUS_PENDING),
                           stet__run_has_begun(run) ? STET_OP_HASTEN : 0);
}

/* ---- doing it ------------------------------------------------------------------------------------------ */

void
stet__failed_fact(const stet__run *run, int stop, stet__fact *fact)
{
    fact->kind = stop == 0 ? STET__FACT_FAILED : stop == STET_EEXPIRED ? STET__FACT_EXPIRED : STET__FACT_CANCELLED;
    fact->code = stop != 0 ? stop : STET_EFORCED;
    fact->cause = stop != 0 ? STET_EFORCED : 0;
    fact->text = stet_text(run->said_why != NULL ? run->said_why : stet_code_text(STET_EFORCED));
    if (run->said_who != NULL)
        fact->who = stet_text(run->said_who);
    fact->attempt = stet__run_attempt(run);
}

/* A run it called is of no use any more. One that was never executed waits for something, and must not be woken: it is
 * told, so that nothing of it is executed whatever becomes of us, and ended when this unit is durable (then `w` is NULL). */
static int
operate_stop_child(stet_engine *e, stet__work *w, stet_id child, const char *by, const char *why)
{
    stet_run_row row;
    stet__fact   extra;
    stet_cond   *cond;
    stet_op     *op;
    stet__fact   cancel = { .kind = STET__FACT_CANCEL, .text = stet_text(why), .flags = STET__FACT_UNTOLD };
    int          err;

    if (w == NULL) {
        (void)stet__stop_unstarted(e, child, by, why);
        return STET_OK;
    }
    err = stet__load_row(e, child, &w->arena, &row, &extra);
    if (err == STET_ENOTFOUND || (err == STET_OK && row.is_terminal))
        return STET_OK;
    if (err != STET_OK && err != STET_ECORRUPT)
        return err;
    /* One that is paused waits for nothing that comes by itself. */
    if (err == STET_ECORRUPT || row.epoch != 0 || row.session != 0 || row.status == STET_STATUS_PAUSED)
        return stet__stop_called(e, w, child, err == STET_OK ? &row : NULL, by, why) ? STET_OK : STET_ENOMEM;
    cancel.time_ms = stet__store_now(e);
    if (by != NULL)
        cancel.who = stet_text(by);
    cond = stet__work_cond(w, STET_COND_CLAIM, child); /* still nobody's, or nothing would wake it for this */
    op = cond != NULL ? stet__work_op(w, STET_OP_INBOX, child) : NULL;
    if (op == NULL || !stet__work_fact(w, &op->data, &cancel))
        return STET_ENOMEM;
    op->flags = STET_OP_IF_OPEN;
    return STET_OK;
}

/* All it waits for, and what it waited for before a rewind that it does not come to take in. Without `w` those that were
 * never executed are ended. */
static int
operate_stop_children(stet_engine *e, stet__work *w, const stet__loaded *l, const char *why)
{
    const char *by = l->run.said_who;
    int         err = STET_OK;

    for (const stet__cmd *cmd = STET__MUTANT(fail_orphans) ? NULL : l->journal.orphans; err == STET_OK && cmd != NULL;
         cmd = cmd->spared)
        err = operate_stop_child(e, w, cmd->run, by, why);
    for (const stet__cmd *cmd = l->journal.waiting; err == STET_OK && cmd != NULL; cmd = cmd->next)
        if (cmd->kind == STET__FACT_CALL && !cmd->is_settled)
            err = operate_stop_child(e, w, cmd->run, by, why);
    return err;
}

static int
operate_fail(stet_engine *e, stet__work *w, stet__loaded *l, const char *why)
{
    stet__fact end = { 0 };
    int        err;

    stet__failed_fact(&l->run, l->run.stop_code, &end);
    err = stet__end_unclaimed(e, w, l, &end);
    return err != STET_OK || STET__MUTANT(fail_children) ? err : operate_stop_children(e, w, l, why);
}

static void
operate_failed(stet_engine *e, const stet__loaded *l, const char *why)
{
    stet__lock(e->p, &e->lock);
    stet__answer(e, &l->run);
    stet__unlock(e->p, &e->lock);
    (void)operate_stop_children(e, NULL, l, why);
}

static int
operate_tell(stet_engine *e, stet__work *w, stet__loaded *l, const operation *op, stet_status before, bool is_dead)
{
    stet_cond *cond;
    stet_op   *entry;

    if ((cond = stet__work_cond(w, STET_COND_INBOX, l->run.id)) == NULL)
        return STET_ENOMEM;
    cond->number = l->row.inbox;
    /* Still owned, by nobody or by somebody alive: one that was given back meanwhile may be held, and then nothing
     * would wake it for this. The owner may be dead: then it has recorded nothing since. */
    if ((cond = stet__work_cond(w, is_dead ? STET_COND_JOURNAL : STET_COND_CLAIM, l->run.id)) == NULL)
        return STET_ENOMEM;
    cond->session = l->row.session;
    cond->epoch = l->row.epoch;
    if (is_dead)
        cond->number = l->row.journal;
    if (STET__MUTANT(helped_unowned) && l->row.session != 0)
        w->unit.n_conds--;
    if ((entry = stet__work_op(w, STET_OP_INBOX, l->run.id)) == NULL || !stet__work_fact(w, &entry->data, &op->fact))
        return STET_ENOMEM;
    /* One that is being executed is found by what it records next; should it be suspended meanwhile, it is woken. */
    return (l->row.session != 0 ? stet__work_wake(w, l->run.id, STET_STATUS_PENDING, 0)
                                : operate_row(e, w, l, op->fact.kind, before))
               ? STET_OK
               : STET_ENOMEM;
}

/* is_dead: should somebody own the run, it is asked whether that is so otherwise than by its being alive. */
static int
operate_once(stet_engine *e, stet_id id, operation *op, bool is_dead)
{
    char         name[STET__UNDO_NAME_MAX], why[96] = "its caller was failed by hand: ";
    stet__loaded l;
    stet__work  *w;
    stet_status  before;
    int          err;

    stet__id_text(why + strlen(why), STET__ID_RUN, id);
    if ((err = stet__load_next(e, &l, id)) != STET_OK)
        return err;
    before = l.run.status;
    op->fact.time_ms = stet__store_now(e);
    op->fact.revision = l.run.journal + 1;
    op->fact.generation = (int64_t)l.run.generation;
    if ((err = operate_may(op, &l, name)) != STET_OK || (err = stet__run_apply_inbox(&l.run, &op->fact)) != STET_OK ||
        (w = stet__work_new(e, NULL, NULL)) == NULL) {
        stet__loaded_free(&l);
        return err != STET_OK ? err : STET_ENOMEM;
    }
    if (op->fact.kind == STET__FACT_FAIL && l.row.session == 0)
        err = operate_fail(e, w, &l, why);
    else
        err = operate_tell(e, w, &l, op, before, is_dead && l.row.session != 0);
    if (err != STET_OK) {
        stet__work_free(w);
        err = err == STET_ENOMEM ? stet__fail(err, "out of memory") : err;
    } else if ((err = stet__commit_sync(e, w, NULL)) == STET_OK && stet__run_is_terminal(&l.run))
        operate_failed(e, &l, why);
    stet__loaded_free(&l);
    return err;
}

static int
operate(stet_engine *e, const stet_run_id *run, operation *op, const char *by, const char *why)
{
    stet_id id;
    int     err;

    if ((err = stet__alive(e, op->call)) != STET_OK || (err = stet__not_in_handler(e, op->call, "stet_ctx_signal")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK)
        return err;
    if ((err = stet__said_check(by, why)) != STET_OK)
        return err;
    if ((int64_t)op->fact.value.len > e->config.payload_bytes_max)
        return stet__fail(STET_ETOOBIG, "%s: %zu bytes; the limit is payload_bytes_max, %lld", run->text, op->fact.value.len,
                          (long long)e->config.payload_bytes_max);
    op->run = run->text;
    if (by != NULL)
        op->fact.who = stet_text(by);
    if (why != NULL)
        op->fact.text = stet_text(why);
    err = STET_ECONFLICT;
    for (int i = 0; i < OPERATE_TRIES_MAX && err == STET_ECONFLICT; i++)
        err = operate_once(e, id, op, i % 2 != 0);
    return err == STET_ECONFLICT
               ? stet__fail(STET_EBUSY, "%s changed all the time; nothing was written, try again", run->text)
               : err;
}

static int
operate_on_step(stet_engine *e, const char *call, const stet_run_id *run, stet__fact_kind kind, const char *step,
                stet_bytes value, const char *by, const char *why)
{
    operation op = { .call = call, .step = step, .fact = { .kind = kind } };

    if (step == NULL || *step == '\0' || strlen(step) >= STET__UNDO_NAME_MAX)
        return stet__fail(STET_ENAME, "%s: say which step, as \"charge\" or \"charge#2\"", call);
    op.fact.value = value.data != NULL ? value : stet_text("");
    return operate(e, run, &op, by, why);
}

int
stet_run_pause(stet_engine *e, const stet_run_id *run, const char *by, const char *why)
{
    operation op = { .call = "stet_run_pause", .fact = { .kind = STET__FACT_PAUSE } };

    return operate(e, run, &op, by, why);
}

int
stet__operate_resume(stet_engine *e, const stet_run_id *run, const char *by, const char *why)
{
    operation op = { .call = "stet_run_resume", .fact = { .kind = STET__FACT_RESUME } };

    return operate(e, run, &op, by, why);
}

int
stet_run_fail(stet_engine *e, const stet_run_id *run, const char *by, const char *why)
{
    operation op = { .call = "stet_run_fail", .fact = { .kind = STET__FACT_FAIL } };

    return operate(e, run, &op, by, why);
}

int
stet_run_skip(stet_engine *e, const stet_run_id *run, const char *step, stet_bytes result, const char *by, const char *why)
{
    return operate_on_step(e, "stet_run_skip", run, STET__FACT_SKIP, step, result, by, why);
}

int
stet_run_edit(stet_engine *e, const stet_run_id *run, const char *step, stet_bytes result, const char *by, const char *why)
{
    return operate_on_step(e, "stet_run_edit", run, STET__FACT_EDIT, step, result, by, why);
}

int
stet_run_rewind(stet_engine *e, const stet_run_id *run, const char *step, const char *by, const char *why)
{
    operation op = { .call = "stet_run_rewind", .step = step, .fact = { .kind = STET__FACT_REWIND } };

    return operate(e, run, &op, by, why);
}
