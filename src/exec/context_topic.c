/* Topics: waiting for an event, emitting one.
 *
 * A wait is ended by the event or by its own timer, whichever comes first into the run's inbox. Unlike a
 * signal an event is for those who wait when it is emitted: nothing is kept.
 */
#include <string.h>

#include "exec/context.h"

#undef stet_await_event
#undef stet_ctx_emit

static int
topic_record(stet_ctx *c, stet_future *f, int64_t until_ms, int code)
{
    stet__fact fact = { .until_ms = until_ms };

    return stet__wait_record(c, f, &fact, code);
}

static int
topic_check(stet_ctx *c, const char *topic)
{
    int err = stet__name_check("topic", topic);

    return err == STET_OK ? STET_OK : stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
}

static int
topic_ask(stet_ctx *c, stet_future *f, const char *topic, const char *timeout)
{
    int64_t timeout_ms = 0;
    int     err;

    memset(f, 0, sizeof *f);
    f->ctx = c;
    f->kind = STET__FUTURE_CMD;
    f->cmd_kind = STET__FACT_TOPIC;
    f->name = topic;
    if ((err = topic_check(c, topic)) != STET_OK ||
        (timeout != NULL && (err = stet__ctx_timeout(c, topic, timeout, &timeout_ms)) != STET_OK) ||
        (err = stet__ctx_ask(c, STET__FACT_TOPIC, topic, 0, &f->cmd, &f->occurrence)) != STET_OK || f->cmd != NULL)
        return err;
    if ((err = stet__ctx_catch_up(c)) != STET_OK ||
        (err = stet__ctx_stop_cmd(c, &f->cmd, STET__FACT_TOPIC, topic, f->occurrence)) != STET_OK || f->cmd != NULL)
        return err;
    return topic_record(c, f, timeout_ms > 0 ? stet__time_add(c->exec->host->now_ms(c), timeout_ms) : 0, 0);
}

int
stet_await_event(stet_ctx *c, stet_bytes *out, const char *topic, const char *timeout)
{
    stet_future f;
    int         err;

    if (out != NULL)
        *out = (stet_bytes){ NULL, 0 };
    if ((err = stet__ctx_enter(c, "stet_await_event")) != STET_OK || (err = topic_ask(c, &f, topic, timeout)) != STET_OK ||
        (err = stet__wait_settled(c, &f, topic_record)) != STET_OK)
        return err;
    return stet__ctx_outcome(c, out, f.cmd);
}

/* Those who wait are told in lots, each one unit with the record of how far it came: a crash goes on with the rest. */
static int
topic_emit(stet_ctx *c, stet__cmd **cmd, const char *topic, uint64_t occurrence, stet_bytes value)
{
    int err;

    do {
        stet__fact fact = { 0 };

        if ((err = stet__ctx_barrier(c)) != STET_OK)
            return err;
        fact.kind = STET__FACT_EMIT;
        fact.name = stet_text(topic);
        fact.occurrence = (int64_t)occurrence;
        fact.value = value;
        if (*cmd != NULL) {
            fact.number = (*cmd)->number;
            fact.until_ms = (*cmd)->until_ms;
            fact.run = stet__id_bytes(&(*cmd)->run);
        }
        if ((err = c->exec->host->tell(c, &fact)) != STET_OK)
            return stet__ctx_latch(c, err);
        if (*cmd == NULL && (*cmd = stet__journal_add(&c->journal, STET__FACT_EMIT, topic, occurrence, 0)) == NULL)
            return stet__ctx_latch(c, STET_ENOMEM);
        if ((err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
            return stet__ctx_latch(c, err);
        /* Refused if one of them does not wait any more: it carries nothing else. */
        if ((err = stet__ctx_barrier(c)) != STET_OK)
            return err;
    } while (!(*cmd)->is_settled);
    return STET_OK;
}

int
stet_ctx_emit(stet_ctx *c, size_t *resumed, const char *topic, stet_bytes value)
{
    stet__cmd *cmd;
    uint64_t   occurrence;
    int        err;

    if (resumed != NULL)
        *resumed = 0;
    if ((err = stet__ctx_enter(c, "stet_ctx_emit")) != STET_OK || (err = topic_check(c, topic)) != STET_OK)
        return err;
    if ((int64_t)value.len > c->exec->host->payload_max(c)) {
        (void)stet__fail(STET_ETOOBIG, "topic %s: %zu bytes; the limit is payload_bytes_max, %lld", topic, value.len,
                         (long long)c->exec->host->payload_max(c));
        return stet__ctx_fail(c, STET_ETOOBIG, 0, stet_last_error(), NULL, 0);
    }
    if ((err = stet__ctx_ask(c, STET__FACT_EMIT, topic, 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd == NULL && ((err = stet__ctx_catch_up(c)) != STET_OK ||
                        (err = stet__ctx_stop(c, STET__FACT_EMIT, topic, occurrence)) != STET_OK))
        return err;
    if ((cmd == NULL || !cmd->is_settled) &&
        (err = topic_emit(c, &cmd, topic, occurrence, cmd != NULL ? cmd->value : value.data != NULL ? value : stet_text(""))) != STET_OK)
        return err;
    if (cmd->code == 0 && resumed != NULL)
        *resumed = (size_t)cmd->number;
    return cmd->code == 0 ? STET_OK : stet__ctx_outcome(c, NULL, cmd);
}
