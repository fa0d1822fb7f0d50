/* Manual boundaries: a run waits for a person, who lets it go on, approves or rejects.
 *
 * One at a time, since the wait is not a future. Who decided, when and what they said is in the inbox entry that
 * ends the wait, and so the same on every replay.
 */
#include <string.h>

#include "exec/context.h"

#undef stet_approve
#undef stet_pause

typedef struct boundary {
    stet_future f; /* first: what is recorded for it finds the rest */
    uint32_t    flags;
    stet_bytes  metadata;
} boundary;

static int
boundary_record(stet_ctx *c, stet_future *f, int64_t until_ms, int code)
{
    boundary  *b = (boundary *)f;
    stet__fact fact = { .flags = b->flags, .until_ms = until_ms };

    if (code == 0)
        fact.value = b->metadata.data != NULL ? b->metadata : stet_text("");
    return stet__wait_record(c, f, &fact, code);
}

static int
boundary_wait(stet_ctx *c, stet_decision *decision, const char *call, const char *name, stet_bytes metadata, uint32_t flags)
{
    boundary     b = { .flags = flags, .metadata = metadata };
    stet_future *f = &b.f;
    int          err;

    if (decision != NULL)
        memset(decision, 0, sizeof *decision);
    if ((err = stet__ctx_enter(c, call)) != STET_OK)
        return err;
    if ((err = stet__name_check(flags != 0 ? "approval" : "pause", name)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if ((int64_t)metadata.len > c->exec->host->payload_max(c)) {
        (void)stet__fail(STET_ETOOBIG, "%s: %zu bytes of metadata; the limit is payload_bytes_max, %lld", name, metadata.len,
                         (long long)c->exec->host->payload_max(c));
        return stet__ctx_fail(c, STET_ETOOBIG, 0, stet_last_error(), NULL, 0);
    }
    f->ctx = c;
    f->kind = STET__FUTURE_CMD;
    f->cmd_kind = STET__FACT_BOUNDARY;
    f->name = name;
    if ((err = stet__ctx_ask(c, STET__FACT_BOUNDARY, name, 0, &f->cmd, &f->occurrence)) != STET_OK)
        return err;
    if (f->cmd == NULL && ((err = stet__ctx_catch_up(c)) != STET_OK ||
                           (err = stet__ctx_stop_cmd(c, &f->cmd, STET__FACT_BOUNDARY, name, f->occurrence)) != STET_OK))
        return err;
    if (f->cmd == NULL && (err = boundary_record(c, f, 0, 0)) != STET_OK)
        return err;
    if ((err = stet__wait_settled(c, f, boundary_record)) != STET_OK)
        return err;
    if (decision != NULL && (f->cmd->code == 0 || f->cmd->code == STET_EREJECTED)) {
        decision->is_approved = f->cmd->code == 0;
        decision->by = f->cmd->origin;
        decision->note = f->cmd->text;
        decision->time_ms = f->cmd->number;
    }
    return stet__ctx_outcome(c, NULL, f->cmd);
}

int
stet_approve(stet_ctx *c, stet_decision *decision, const char *name, stet_bytes metadata)
{
    return boundary_wait(c, decision, "stet_approve", name, metadata, STET__FACT_APPROVAL);
}

int
stet_pause(stet_ctx *c, stet_decision *decision, const char *name, stet_bytes metadata)
{
    return boundary_wait(c, decision, "stet_pause", name, metadata, 0);
}
