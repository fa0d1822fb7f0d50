/* Updates: changes of a handler's variables that somebody asked for from outside.
 *
 * They are taken in where the handler waits, one after the other, and each leaves a record that
 * names that wait. A replay makes them when the handler comes to the same wait, in the same order,
 * before the wait gives its outcome: so the variables are what they were. What was refused changed
 * nothing and is not made again.
 *
 * New ones are decided only when nothing that is recorded is left to be asked for, and not at a wait
 * that was over before this execution began: what the handler did behind an earlier wait, it did
 * without them, also if that was a body of which nothing is recorded. Not while a step is tried
 * again: its body may look at those variables.
 */
#include <string.h>

#include "exec/context.h"

static const char *
update_wait(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    const char *wait = stet__arena_printf(&c->arena, "%s %s#%llu", stet__fact_kind_name(kind), name,
                                          (unsigned long long)occurrence);

    if (wait == NULL)
        (void)stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for an update"));
    return wait;
}

/* ---- again ----------------------------------------------------------------------------------- */

/* Make a recorded one. Its answer was given, whatever it says now. */
static int
update_again(stet_ctx *c, stet__update *u, stet__fact_kind kind, const char *name,
             uint64_t occurrence)
{
    const stet__live *live = stet__live_find(c->updates, u->name);
    stet_reply        reply;

    if (live == NULL)
        return stet__ctx_stuck(c, u->cmd, kind, name, occurrence);
    u->is_made = true;
    stet__journal_asked(&c->journal, u->cmd);
    stet__reply_init(&reply, &c->exec->p->alloc, c->exec->host->payload_max(c));
    (void)stet__live_call(c, "an update", live->fn, live->arg, u->input, &reply);
    stet__buf_free(&reply.value);
    /* Not before: it may be the last of the record, behind which a query looks. */
    if (c->exec->host->asked != NULL)
        c->exec->host->asked(c, STET__FACT_UPDATE, u->name, u->cmd->occurrence, u->cmd);
    return c->latch;
}

/* One that was made before those recorded here has to come before them again; an inherited one may
 * never come. */
static int
update_replay(stet_ctx *c, const char *wait, stet__fact_kind kind, const char *name,
              uint64_t occurrence)
{
    const stet__update *missed = NULL;
    int                 err;

    for (stet__update *u = c->journal.updates; u != NULL; u = u->next) {
        if (u->is_made)
            continue;
        if (strcmp(u->wait, wait) != 0) {
            if (missed == NULL && !u->cmd->is_inherited)
                missed = u;
            continue;
        }
        if (missed != NULL && !u->cmd->is_inherited)
            return stet__ctx_stuck(c, missed->cmd, kind, name, occurrence);
        if ((err = update_again(c, u, kind, name, occurrence)) != STET_OK)
            return err;
    }
    return STET_OK;
}

/* ---- for the first time ---------------------------------------------------------------------- */

/* Its outcome into fact and reply. */
static void
update_try(stet_ctx *c, const stet__update *u, stet__fact *fact, stet_reply *reply)
{
    const stet__live *live = stet__live_find(c->updates, u->name);

    fact->flags = STET__FACT_REJECTED;
    if (live == NULL)
        fact->code = stet__live_unknown(c->updates, "update", u->name, reply);
    else if (live->validate != NULL)
        fact->code = stet__live_call(c, "an update's validation", live->validate, live->arg,
                                     u->input, reply);
    if (fact->code != STET_OK)
        return;
    fact->flags = 0;
    fact->code = stet__live_call(c, "an update", live->fn, live->arg, u->input, reply);
}

/* One whose record was rewound: it was accepted, and what was answered stands. */
static int
update_retry(stet_ctx *c, const stet__update *u, stet__fact *fact, stet_reply *reply)
{
    const stet__live *live = stet__live_find(c->updates, u->name);

    if (live == NULL)
        return STET_EREPLAY;
    (void)stet__live_call(c, "an update", live->fn, live->arg, u->input, reply);
    fact->code = u->before->code;
    if (u->before->code == STET_OK)
        fact->value = u->before->value.data != NULL ? u->before->value : stet_text("");
    if (u->before->text != NULL)
        fact->text = stet_text(u->before->text);
    if (u->key.data == NULL) {
        fact->flags = STET__FACT_INHERITED;
        fact->value = u->input;
    }
    return STET_OK;
}

static int
update_decide(stet_ctx *c, const stet__update *u, const char *wait, stet__fact_kind kind,
              const char *name, uint64_t occurrence)
{
    stet__fact fact = { .kind = STET__FACT_UPDATE };
    stet_reply reply;
    int        err;

    stet__reply_init(&reply, &c->exec->p->alloc, c->exec->host->payload_max(c));
    if (u->before == NULL || (STET__MUTANT(update_anew) && u->key.data != NULL)) {
        update_try(c, u, &fact, &reply);
        if (fact.code != STET_OK)
            fact.text = stet_text(reply.text);
        else
            fact.value = reply.value.len > 0 ? stet__buf_bytes(&reply.value) : stet_text("");
    } else if (update_retry(c, u, &fact, &reply) != STET_OK) {
        stet__buf_free(&reply.value);
        return stet__ctx_stuck(c, u->before, kind, name, occurrence);
    }
    fact.name = stet_text(u->name);
    fact.occurrence = (int64_t)stet__journal_count(&c->journal, STET__FACT_UPDATE, u->name) + 1;
    fact.idempotency_key = u->key;
    fact.topic = stet_text(wait);
    /* That is not how it ends: the run is let go, and it is decided again. */
    if (fact.code == STET_ENOMEM && u->before == NULL)
        err = stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for an update"));
    else if ((err = stet__ctx_append(c, &fact, NULL)) == STET_OK &&
             (stet__journal_add(&c->journal, STET__FACT_UPDATE, u->name, (uint64_t)fact.occurrence,
                                0) == NULL ||
              stet__journal_apply(&c->journal, &fact) != STET_OK))
        err = stet__ctx_latch(c, STET_ENOMEM);
    stet__buf_free(&reply.value);
    return err;
}

int
stet__updates_make(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence,
                   bool is_passed)
{
    const char *wait;
    int         err;

    if (c->latch != 0 || (wait = update_wait(c, kind, name, occurrence)) == NULL ||
        (err = update_replay(c, wait, kind, name, occurrence)) != STET_OK)
        return c->latch;
    /* A recorded wait nobody came to is one the code has no more: or this one would have been passed. */
    if ((is_passed && !STET__MUTANT(update_passed)) || !c->exec->host->takes_updates || c->run.is_auto || c->journal.unasked > 0)
        return STET_OK;
    while (c->journal.asked != NULL)
        if ((err = update_decide(c, c->journal.asked, wait, kind, name, occurrence)) != STET_OK)
            return err;
    return STET_OK;
}
