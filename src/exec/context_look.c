/* What needs the store's word: whether a key was taken, what became of another run.
 *
 * Asked when everything before is durable, and recorded; a replay gets the recorded answer.
 */
#include <string.h>

#include "exec/context.h"

#undef stet_once
#undef stet_run_look_at

#define ONCE_KEY_MAX 256u

/* Ask for the command; a new one is due to be told, with all before it durable. */
static int
look_ask(stet_ctx *c, stet__fact *fact, stet__fact_kind kind, const char *name, stet__cmd **cmd)
{
    uint64_t occurrence;
    int      err = stet__ctx_ask(c, kind, name, 0, cmd, &occurrence);

    if (err != STET_OK || *cmd != NULL)
        return err;
    fact->kind = kind;
    fact->name = stet_text(name);
    fact->occurrence = (int64_t)occurrence;
    if ((err = stet__ctx_catch_up(c)) != STET_OK || (err = stet__ctx_stop(c, kind, name, occurrence)) != STET_OK)
        return err;
    return stet__ctx_barrier(c);
}

int
stet_once(stet_ctx *c, bool *is_first, const char *key)
{
    stet__fact fact = { 0 };
    stet__cmd *cmd;
    int        err;

    *is_first = false;
    if ((err = stet__ctx_enter(c, "stet_once")) != STET_OK)
        return err;
    if (key == NULL || key[0] == '\0')
        return stet__ctx_fail(c, STET_EINVAL, 0, "stet_once: the key is empty", NULL, 0);
    if (strlen(key) > ONCE_KEY_MAX)
        return stet__ctx_fail(c, STET_ETOOBIG, 0, "stet_once: a key has at most 256 bytes", NULL, 0);
    if ((err = look_ask(c, &fact, STET__FACT_ONCE, key, &cmd)) != STET_OK)
        return err;
    if (cmd != NULL) {
        *is_first = cmd->code == 0 && cmd->number == 1;
        return stet__ctx_outcome(c, NULL, cmd);
    }
    if ((err = c->exec->host->tell(c, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    if ((err = stet__ctx_barrier(c)) != STET_OK) /* refused if somebody was faster: it carries nothing else */
        return err;
    *is_first = fact.number == 1;
    return STET_OK;
}

int
stet_run_look_at(stet_ctx *c, stet_run_look *look, const stet_run_id *run)
{
    stet__fact fact = { 0 };
    stet__cmd *cmd, told = { 0 };
    stet_id    id;
    int        err;

    memset(look, 0, sizeof *look);
    if ((err = stet__ctx_enter(c, "stet_run_look_at")) != STET_OK)
        return err;
    if ((err = stet__id_parse(&id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if ((err = look_ask(c, &fact, STET__FACT_LOOK, run->text, &cmd)) != STET_OK)
        return err;
    if (cmd == NULL) {
        fact.run = stet__id_bytes(&id);
        if ((err = c->exec->host->tell(c, &fact)) != STET_OK)
            return stet__ctx_latch(c, err);
        told.code = (int)fact.code;
        told.cause = (int)fact.cause;
        told.number = fact.number;
        told.value = fact.value;
        told.text = fact.text.data;
        cmd = &told;
    }
    if (cmd->code != 0)
        return stet__ctx_outcome(c, NULL, cmd);
    look->status = (stet_status)cmd->number;
    look->code = cmd->cause;
    look->value = cmd->value;
    look->error = cmd->text;
    return STET_OK;
}
