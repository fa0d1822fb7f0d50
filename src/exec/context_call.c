/* Other runs and the outside: calls, sends, awakeables.
 *
 * A child's ID is drawn here and recorded in the command; the child's own first fact travels with it,
 * so the host commits the command, the child and its dispatch as one unit.
 */
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

#undef stet_call
#undef stet_call_start
#undef stet_send
#undef stet_awakeable
#undef stet_ctx_resolve
#undef stet_ctx_reject

/* A refusal that is a fact about the world (deadlock) is recorded; a misuse is not. */
static int
call_refused(stet_ctx *c, stet__cmd **cmd, stet__fact_kind kind, const char *handler, uint64_t occurrence, int code)
{
    char text[512];

    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    if (code == STET_EDEADLOCK)
        return stet__ctx_end_cmd(c, cmd, kind, handler, occurrence, code, text);
    return stet__ctx_fail(c, code, 0, text, NULL, 0);
}

/* Common to call and send: ask, check, make the child's first fact, record. */
static int
call_make(stet_ctx *c, stet__cmd **cmd, uint64_t *occurrence, stet__fact_kind kind, const char *handler,
          stet_bytes input, const stet_start_options *options)
{
    stet__fact fact = { 0 }, child = { 0 };
    stet_id    id;
    int        err;

    if (handler == NULL)
        return stet__ctx_fail(c, STET_EINVAL, 0, "no handler named", NULL, 0);
    if ((err = stet__ctx_ask(c, kind, handler, 0, cmd, occurrence)) != STET_OK || *cmd != NULL)
        return err;
    if ((err = stet__ctx_catch_up(c)) != STET_OK ||
        (err = stet__ctx_stop_cmd(c, cmd, kind, handler, *occurrence)) != STET_OK || *cmd != NULL)
        return err;
    fact.kind = kind;
    fact.name = stet_text(handler);
    fact.occurrence = (int64_t)*occurrence;
    fact.revision = 0;
    if ((err = c->exec->host->child(c, &id, &child, handler, input, options, kind == STET__FACT_CALL)) != STET_OK)
        return call_refused(c, cmd, kind, handler, *occurrence, err);
    if (child.idempotency_key.data != NULL) {
        stet_id existing;

        if ((err = stet__ctx_barrier(c)) != STET_OK)
            return err;
        if ((err = c->exec->host->child_existing(c, &child, &existing)) != STET_OK)
            return stet__ctx_latch(c, err);
        if (!stet__id_is_zero(existing)) {
            id = existing;
            fact.number = 1; /* it was there; nothing is created */
        }
    }
    fact.run = stet__id_bytes(&id);
    fact.key = child.key;
    if ((err = stet__ctx_append(c, &fact, fact.number == 1 ? NULL : &child)) != STET_OK)
        return err;
    if ((*cmd = stet__journal_add(&c->journal, kind, handler, *occurrence, 0)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    if ((err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    /* Somebody may have used the key meanwhile, and then the unit is refused: it carries nothing else. */
    return child.idempotency_key.data != NULL ? stet__ctx_barrier(c) : STET_OK;
}

static int
call_future(stet_ctx *c, stet_future *f, const char *handler, stet_bytes input, const stet_start_options *options)
{
    memset(f, 0, sizeof *f);
    f->ctx = c;
    f->kind = STET__FUTURE_CMD;
    f->cmd_kind = STET__FACT_CALL;
    f->name = handler;
    if (options != NULL && options->idempotency_key != NULL)
        return stet__ctx_fail(c, STET_EINVAL, 0,
                              "stet_call takes no idempotency key: a call is made once anyway; use stet_send", NULL, 0);
    return call_make(c, &f->cmd, &f->occurrence, STET__FACT_CALL, handler, input, options);
}

int
stet_call(stet_ctx *c, stet_bytes *out, const char *handler, stet_bytes input, const stet_start_options *options)
{
    stet_future f;
    int         err;

    if (out != NULL)
        *out = (stet_bytes){ NULL, 0 };
    if ((err = stet__ctx_enter(c, "stet_call")) != STET_OK ||
        (err = call_future(c, &f, handler, input, options)) != STET_OK)
        return err;
    return stet_await(c, out, &f);
}

int
stet_call_start(stet_ctx *c, stet_future **future, const char *handler, stet_bytes input,
                const stet_start_options *options)
{
    stet_future *f;
    const char  *name;
    int          err;

    *future = NULL;
    if ((err = stet__ctx_enter(c, "stet_call_start")) != STET_OK)
        return err;
    if (handler == NULL)
        return stet__ctx_fail(c, STET_EINVAL, 0, "no handler named", NULL, 0);
    if ((f = stet__arena_get(&c->arena, sizeof *f)) == NULL || (name = stet__arena_str(&c->arena, handler)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a future"));
    if ((err = call_future(c, f, name, input, options)) != STET_OK)
        return err;
    if (f->cmd->code != 0 && stet__id_is_zero(f->cmd->run))
        return stet__ctx_outcome(c, NULL, f->cmd); /* refused, or told to stop here */
    *future = f;
    return STET_OK;
}

int
stet_send(stet_ctx *c, stet_run_id *run, const char *handler, stet_bytes input, const stet_start_options *options)
{
    stet__cmd *cmd;
    uint64_t   occurrence;
    int        err;

    if ((err = stet__ctx_enter(c, "stet_send")) != STET_OK ||
        (err = call_make(c, &cmd, &occurrence, STET__FACT_SEND, handler, input, options)) != STET_OK)
        return err;
    if (cmd->code != 0)
        return stet__ctx_outcome(c, NULL, cmd);
    if (run != NULL)
        stet__id_text(run->text, STET__ID_RUN, cmd->run);
    if (options != NULL && options->existed != NULL)
        *options->existed = cmd->number == 1;
    return STET_OK;
}

/* ---- awakeables --------------------------------------------------------------------------------- */

int
stet_awakeable(stet_ctx *c, stet_awakeable_id *id, stet_future **future, const char *name)
{
    stet_future *f;
    stet__fact   fact = { 0 };
    stet_id      made;
    uint8_t      random[10];
    int          err;

    *future = NULL;
    if ((err = stet__ctx_enter(c, "stet_awakeable")) != STET_OK)
        return err;
    if ((err = stet__name_check("awakeable", name)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if ((f = stet__arena_get0(&c->arena, sizeof *f)) == NULL || (name = stet__arena_str(&c->arena, name)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a future"));
    f->ctx = c;
    f->kind = STET__FUTURE_CMD;
    f->cmd_kind = STET__FACT_AWAKEABLE;
    f->name = name;
    if ((err = stet__ctx_ask(c, STET__FACT_AWAKEABLE, name, 0, &f->cmd, &f->occurrence)) != STET_OK)
        return err;
    if (f->cmd == NULL) {
        if ((err = stet__ctx_catch_up(c)) != STET_OK ||
            (err = stet__ctx_stop(c, STET__FACT_AWAKEABLE, name, f->occurrence)) != STET_OK)
            return err;
        c->exec->p->ops->random(c->exec->p, random, sizeof random);
        made = stet__id_make(c->exec->host->now_ms(c), random);
        fact.kind = STET__FACT_AWAKEABLE;
        fact.name = stet_text(name);
        fact.occurrence = (int64_t)f->occurrence;
        fact.run = stet__id_bytes(&made);
        if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
            return err;
        if ((f->cmd = stet__journal_add(&c->journal, STET__FACT_AWAKEABLE, name, f->occurrence, 0)) == NULL ||
            stet__journal_apply(&c->journal, &fact) != STET_OK)
            return stet__ctx_latch(c, STET_ENOMEM);
    } else if (f->cmd->code != 0 && stet__id_is_zero(f->cmd->run))
        return stet__ctx_outcome(c, NULL, f->cmd); /* told to stop here */
    if (id != NULL)
        stet__id_text(id->text, STET__ID_AWAKEABLE, f->cmd->run);
    *future = f;
    return STET_OK;
}

static int
call_settle(stet_ctx *c, const char *call, const char *awakeable, stet_bytes value, const char *error)
{
    stet__fact fact = { 0 };
    stet__cmd *cmd;
    stet_id    id;
    uint64_t   occurrence;
    int        err;

    if ((err = stet__ctx_enter(c, call)) != STET_OK)
        return err;
    if ((err = stet__id_parse(&id, STET__ID_AWAKEABLE, awakeable)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if ((err = stet__ctx_ask(c, STET__FACT_SETTLE, awakeable, 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd != NULL)
        return stet__ctx_outcome(c, NULL, cmd);
    if ((err = stet__ctx_catch_up(c)) != STET_OK ||
        (err = stet__ctx_stop(c, STET__FACT_SETTLE, awakeable, occurrence)) != STET_OK ||
        (err = stet__ctx_barrier(c)) != STET_OK)
        return err;
    fact.kind = STET__FACT_SETTLE;
    fact.name = stet_text(awakeable);
    fact.occurrence = (int64_t)occurrence;
    fact.run = stet__id_bytes(&id);
    if (error != NULL) {
        fact.flags = STET__FACT_REJECTED;
        fact.value = stet_text(error);
    } else
        fact.value = value.data != NULL ? value : stet_text("");
    if ((err = c->exec->host->tell(c, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    if ((err = stet__ctx_barrier(c)) != STET_OK) /* refused if somebody was faster: it carries nothing else */
        return err;
    if (fact.code != 0)
        return stet__ctx_fail(c, (int)fact.code, 0, fact.text.data, NULL, 0);
    return STET_OK;
}

int
stet_ctx_resolve(stet_ctx *c, const char *awakeable, stet_bytes value)
{
    return call_settle(c, "stet_ctx_resolve", awakeable, value, NULL);
}

int
stet_ctx_reject(stet_ctx *c, const char *awakeable, const char *error)
{
    return call_settle(c, "stet_ctx_reject", awakeable, (stet_bytes){ NULL, 0 }, error != NULL ? error : "rejected");
}
