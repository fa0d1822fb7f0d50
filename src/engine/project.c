/* From facts to rows: what the store has to hold because of what a run recorded.
 *
 * Facts come first; timers, child runs, state entries, awakeables and the header row follow from them
 * here and nowhere else, in the same unit.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

bool
stet__value_key_state(stet__arena *arena, stet_bytes *out, const char *handler, const char *key, const char *name)
{
    const char *dot = strchr(handler, '.');
    size_t      service = dot != NULL ? (size_t)(dot - handler) : strlen(handler);
    size_t      len = service + 1 + strlen(key) + 1 + strlen(name);
    char       *at = stet__arena_get(arena, len + 1);

    if (at == NULL)
        return false;
    out->data = at;
    out->len = len;
    memcpy(at, handler, service);
    at[service] = '\0';
    memcpy(at + service + 1, key, strlen(key) + 1);
    memcpy(at + service + 1 + strlen(key) + 1, name, strlen(name));
    return true;
}

bool
stet__value_key_parts(stet__arena *arena, stet_bytes key, const char **service, const char **object, const char **name)
{
    char *text = stet__arena_get(arena, key.len + 1), *end, *at;

    *service = *object = *name = NULL;
    if (text == NULL)
        return false;
    end = text + key.len;
    memcpy(text, key.data, key.len);
    *end = '\0';
    if ((at = memchr(text, '\0', key.len)) == NULL || memchr(at + 1, '\0', (size_t)(end - at - 1)) == NULL)
        return true;
    *object = at + 1;
    *name = *object + strlen(*object) + 1;
    return (*service = stet__arena_printf(arena, "%s.", text)) != NULL;
}

/* A cleared entry must not come back as its initial value. */
static bool
project_cleared(stet_engine *e, stet__work *w, const stet__run *run, const stet__fact *f, const char *name, stet_bytes key)
{
    char        service[STET__NAME_MAX + 1];
    const char *dot = strchr(run->handler, '.');
    stet_op    *op;

    (void)snprintf(service, sizeof service, "%.*s", (int)(dot - run->handler), run->handler);
    if (stet__initial_find(e, service, name) == NULL)
        return true;
    if ((op = stet__work_op(w, STET_OP_VALUE_PUT, run->id)) == NULL)
        return false;
    op->space = STET__SPACE_CLEARED;
    op->number = f->revision;
    op->key = key;
    op->data = stet_text("");
    return true;
}

static bool
project_state(stet_engine *e, stet__work *w, const stet__run *run, const stet__fact *f)
{
    char     name[STET__NAME_MAX + 1];
    stet_op *op = stet__work_op(w, f->kind == STET__FACT_STATE_SET ? STET_OP_VALUE_PUT : STET_OP_VALUE_DEL, run->id);

    if (op == NULL || f->name.len >= sizeof name)
        return false;
    memcpy(name, f->name.data, f->name.len);
    name[f->name.len] = '\0';
    op->space = STET__SPACE_STATE;
    op->number = f->revision;
    w->has_state = true;
    if (!stet__value_key_state(&w->arena, &op->key, run->handler, run->key, name))
        return false;
    return f->kind == STET__FACT_STATE_CLEAR ? project_cleared(e, w, run, f, name, op->key)
                                             : stet__work_bytes(w, &op->data, f->value);
}

static bool
project_awakeable(stet__work *w, const stet__run *run, const stet__fact *f)
{
    stet__fact value = { 0 };
    stet_op   *op = stet__work_op(w, STET_OP_VALUE_PUT, run->id);

    if (op == NULL)
        return false;
    value.kind = STET__FACT_SETTLED;
    value.time_ms = f->time_ms;
    value.run = stet__id_bytes(&run->id);
    value.completion = (int64_t)f->revision;
    value.name = f->name;
    op->space = STET__SPACE_AWAKEABLE;
    op->number = f->revision;
    return stet__work_bytes(w, &op->key, f->run) && stet__work_fact(w, &op->data, &value);
}

bool
stet__project_mark_gone(stet__work *w, stet_id run, const stet__cmd *cmd)
{
    return cmd->kind == STET__FACT_BOUNDARY ? stet__boundary_gone(w, run)
                                            : stet__topic_wait_gone(w, run, cmd->name, cmd->completion);
}

/* The status alone. */
static bool
project_status(stet__work *w, const stet__run *run, stet_status status)
{
    stet_op      *op = stet__work_op(w, STET_OP_RUN_SET, run->id);
    stet_run_row *row = stet__arena_get0(&w->arena, sizeof *row);

    if (op == NULL || row == NULL)
        return false;
    row->id = run->id;
    row->status = status;
    row->ended_ms = STET_NEVER;
    op->row = row;
    op->mask = STET_RUN_STATUS;
    return true;
}

bool
stet__project(stet_engine *e, stet__work *w, const stet__run *run, const stet__fact *f, const stet__fact *child)
{
    switch (f->kind) {
    case STET__FACT_SLEEP:
    case STET__FACT_AWAIT:
    case STET__FACT_ANY:
    case STET__FACT_SIGNAL:
    case STET__FACT_TOPIC:
    case STET__FACT_STEP_RETRY:
        if (f->kind == STET__FACT_TOPIC && f->code == 0 && !stet__topic_wait_put(w, run->id, f))
            return false;
        if (f->until_ms == 0 || (f->code != 0 && f->kind != STET__FACT_STEP_RETRY))
            return true;
        if (STET__MUTANT(timer_after))
            return true;
        return stet__work_timer(w, run->id, f->until_ms, f->revision);
    case STET__FACT_CHOICE:
        if (f->until_ms == 0 || f->code == STET_ETIMEOUT)
            return true;
        return stet__work_timer_gone(w, run->id, f->until_ms, (uint64_t)f->completion);
    case STET__FACT_CALL:
    case STET__FACT_SEND: {
        stet__fact started;

        if (child == NULL)
            return true;
        started = *child;
        if (f->kind == STET__FACT_CALL)
            started.completion = (int64_t)f->revision;
        if (STET__MUTANT(child_apart)) {
            stet__work *apart = stet__work_new(e, NULL, NULL);

            if (apart == NULL || !stet__start_ops(e, apart, &started, stet__fact_id(f->run), false, NULL, 0))
                return false;
            stet__submit(e, apart);
            return true;
        }
        return stet__start_ops(e, w, &started, stet__fact_id(f->run), true, NULL, 0);
    }
    case STET__FACT_BOUNDARY: return f->code != 0 || stet__boundary_put(w, run->id, f);
    case STET__FACT_UPDATE: return (f->flags & STET__FACT_INHERITED) != 0 || stet__update_put(w, run->id, f);
    case STET__FACT_ROLLBACK: return project_status(w, run, STET_STATUS_COMPENSATING);
    case STET__FACT_ROLLED_BACK:
        return project_status(w, run, run->stop_code != 0 ? STET_STATUS_CANCELLING : STET_STATUS_RUNNING);
    case STET__FACT_AWAKEABLE: return f->code != 0 || project_awakeable(w, run, f);
    case STET__FACT_STATE_SET:
    case STET__FACT_STATE_CLEAR: return project_state(e, w, run, f);
    default: return true;
    }
}

void
stet__extra_of(const stet__run *run, stet__fact *extra)
{
    memset(extra, 0, sizeof *extra);
    extra->kind = STET__FACT_ROW;
    extra->deadline_ms = run->deadline_ms;
    extra->attempts_max = run->retry.attempts;
    extra->retention_ms = run->retention_ms;
    extra->generation = (int64_t)run->generation;
    extra->time_ms = run->generation != 0 ? run->began_ms : 0;
    if (!stet__id_is_zero(run->parent))
        extra->run = stet__id_bytes(&run->parent);
    if (!stet__id_is_zero(run->retry_of))
        extra->retry_of = stet__id_bytes(&run->retry_of);
}

/* By the time they tell: both are of one run's lifetime, and who does not know had better not complain. */
bool
stet__child_is_past(const stet__run *child, const stet__fact *parent_extra)
{
    return parent_extra->generation != 0 && child->created_ms <= parent_extra->time_ms;
}

bool
stet__project_row(stet__work *w, const stet__run *run, uint32_t mask, int64_t due_ms)
{
    stet_op      *op = stet__work_op(w, STET_OP_RUN_SET, run->id);
    stet_run_row *row = stet__arena_get0(&w->arena, sizeof *row);

    if (op == NULL || row == NULL)
        return false;
    op->mask = mask;
    op->row = row;
    row->id = run->id;
    row->status = run->status;
    row->is_terminal = stet__run_is_terminal(run);
    row->ended_ms = run->ended_ms;
    row->due_ms = due_ms;
    row->attempt = stet__run_attempt(run);
    if (run->reason != NULL && (row->reason = stet__arena_str(&w->arena, run->reason)) == NULL)
        return false;
    if (due_ms != STET_NEVER && due_ms < w->timer_ms)
        w->timer_ms = due_ms;
    if (mask & STET_RUN_EXTRA) {
        stet__fact extra;

        stet__extra_of(run, &extra);
        return stet__work_fact(w, &row->extra, &extra);
    }
    return true;
}

/* Put the child's end into its parent's inbox and wake it. */
bool
stet__tell_parent(stet_engine *e, stet__work *w, const stet__run *run, int code)
{
    stet__fact fact = { 0 };
    stet_op   *op;
    char       origin[STET_ID_TEXT_MAX + 8] = "child ";

    if (run->parent_completion == 0)
        return true;
    fact.kind = STET__FACT_CHILD_DONE;
    fact.time_ms = run->ended_ms != STET_NEVER ? run->ended_ms : stet__store_now(e);
    fact.completion = (int64_t)run->parent_completion;
    fact.run = stet__id_bytes(&run->id);
    if (code == STET_OK)
        fact.value = run->result;
    else {
        stet__id_text(origin + 6, STET__ID_RUN, run->id);
        fact.code = STET_ECHILD;
        fact.cause = code == STET_ERUN ? run->code : code;
        fact.origin = stet_text(origin);
        fact.text = stet_text(code == STET_ERUN && run->error != NULL ? run->error
                              : run->stop_why != NULL                 ? run->stop_why
                                                                      : stet_code_text(code));
    }
    if ((op = stet__work_op(w, STET_OP_INBOX, run->parent)) == NULL || !stet__work_fact(w, &op->data, &fact))
        return false;
    op->flags = STET_OP_IF_OPEN;
    return stet__work_wake_locked(w, run->parent, STET_STATUS_PENDING, 0);
}

bool
stet__project_end(stet_engine *e, stet__work *w, const stet__run *run, const stet__journal *journal, bool has_lane,
                  bool tell_parent)
{
    stet_op *op;

    if (!stet__project_row(w, run, STET_RUN_STATUS | STET_RUN_OWNER | STET_RUN_ATTEMPT | STET_RUN_REASON, STET_NEVER))
        return false;
    for (const stet__cmd *cmd = journal != NULL ? journal->waiting : NULL; cmd != NULL; cmd = cmd->next)
        if ((cmd->has_timer && !stet__work_timer_gone(w, run->id, cmd->until_ms, cmd->completion)) ||
            (cmd->kind == STET__FACT_TOPIC && cmd->has_mark && !cmd->is_settled && !stet__project_mark_gone(w, run->id, cmd)))
            return false;
    /* One that asked people keeps no answer of theirs: there is one mark for all. */
    for (const stet__cmd *cmd = journal != NULL ? journal->waiting : NULL; cmd != NULL; cmd = cmd->next)
        if (cmd->kind == STET__FACT_BOUNDARY) {
            if (!stet__boundary_gone(w, run->id))
                return false;
            break;
        }
    if (run->deadline_ms != 0 && !stet__work_timer_gone(w, run->id, run->deadline_ms, STET__TIMER_DEADLINE))
        return false;
    if (has_lane) {
        if ((op = stet__work_op(w, STET_OP_LANE_LEAVE, run->id)) == NULL)
            return false;
        op->status = STET_STATUS_PENDING;
        op->claimer = stet__work_claimer(e, w);
    }
    /* Its schedule may wait for it. */
    if (run->schedule != NULL && !STET__MUTANT(sched_unasked) &&
        !stet__sched_ask(w, run->schedule, run->ended_ms, run->id))
        return false;
    return !tell_parent || STET__MUTANT(parent_untold) || stet__tell_parent(e, w, run, stet__run_answer(run));
}
