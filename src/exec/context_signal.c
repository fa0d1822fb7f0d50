/* Signals: waiting for one, sending one.
 *
 * A wait is ended by the signal or by its own timer, whichever comes first into the run's inbox: the
 * journal decides that (core/journal.c), so no choice has to be recorded. A signal that comes while
 * nobody waits is kept there, in order, and the next wait finds it.
 */
#include <string.h>

#include "exec/context.h"

#undef stet_await_signal
#undef stet_signal_start
#undef stet_ctx_signal

static int
signal_options(stet_ctx *c, const char *signal, const stet_signal_wait *o, const char **id, int64_t *timeout_ms)
{
    int err;

    *id = signal;
    *timeout_ms = 0;
    if ((err = stet__name_check("signal", signal)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if (o == NULL)
        return STET_OK;
    if (o->size != sizeof *o) {
        (void)stet__fail(STET_EINVAL, "signal %s: stet_signal_wait.size is %zu; use STET_SIGNAL(…)", signal, o->size);
        return stet__ctx_fail(c, STET_EINVAL, 0, stet_last_error(), NULL, 0);
    }
    if (o->id != NULL) {
        if ((err = stet__name_check("wait", o->id)) != STET_OK)
            return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
        *id = o->id;
    }
    if (o->timeout != NULL && (err = stet__ctx_timeout(c, signal, o->timeout, timeout_ms)) != STET_OK)
        return err;
    return STET_OK;
}

static int
signal_record(stet_ctx *c, stet_future *f, int64_t until_ms, int code)
{
    stet__fact fact = { .until_ms = until_ms };

    if (strcmp(f->name, f->topic) != 0)
        fact.topic = stet_text(f->topic);
    return stet__wait_record(c, f, &fact, code);
}

static int
signal_start(stet_ctx *c, stet_future *f, const char *signal, const stet_signal_wait *o)
{
    const char *id;
    int64_t     timeout_ms, until_ms = 0;
    int         err;

    memset(f, 0, sizeof *f);
    if ((err = signal_options(c, signal, o, &id, &timeout_ms)) != STET_OK)
        return err;
    f->ctx = c;
    f->kind = STET__FUTURE_CMD;
    f->cmd_kind = STET__FACT_SIGNAL;
    if ((f->name = stet__arena_str(&c->arena, id)) == NULL || (f->topic = stet__arena_str(&c->arena, signal)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a future"));
    if ((err = stet__ctx_ask(c, STET__FACT_SIGNAL, id, 0, &f->cmd, &f->occurrence)) != STET_OK || f->cmd != NULL)
        return err;
    if ((err = stet__ctx_catch_up(c)) != STET_OK ||
        (err = stet__ctx_stop_cmd(c, &f->cmd, STET__FACT_SIGNAL, id, f->occurrence)) != STET_OK || f->cmd != NULL)
        return err;
    /* One that is there already ends the wait at once: a timer for it would be left behind. */
    if (timeout_ms > 0 && !stet__journal_has_signal(&c->journal, signal))
        until_ms = stet__time_add(c->exec->host->now_ms(c), timeout_ms);
    return signal_record(c, f, until_ms, 0);
}

int
stet_await_signal(stet_ctx *c, stet_bytes *out, const char *signal, const char *timeout)
{
    stet_signal_wait   o = { .size = sizeof o, .timeout = timeout };
    stet_future        f;
    int                err;

    if (out != NULL)
        *out = (stet_bytes){ NULL, 0 };
    if ((err = stet__ctx_enter(c, "stet_await_signal")) != STET_OK || (err = signal_start(c, &f, signal, &o)) != STET_OK ||
        (err = stet__wait_settled(c, &f, signal_record)) != STET_OK)
        return err;
    return stet__ctx_outcome(c, out, f.cmd);
}

int
stet_signal_start(stet_ctx *c, stet_future **future, const char *signal, const stet_signal_wait *options)
{
    stet_future *f;
    int          err;

    *future = NULL;
    if ((err = stet__ctx_enter(c, "stet_signal_start")) != STET_OK)
        return err;
    if ((f = stet__arena_get(&c->arena, sizeof *f)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a future"));
    if ((err = signal_start(c, f, signal, options)) != STET_OK)
        return err;
    if (f->cmd->completion == 0 && f->cmd->code != 0)
        return stet__ctx_outcome(c, NULL, f->cmd); /* told to stop here */
    *future = f;
    return STET_OK;
}

int
stet_ctx_signal(stet_ctx *c, const stet_run_id *run, const char *signal, stet_bytes value)
{
    stet__fact fact = { 0 };
    stet__cmd *cmd;
    stet_id    id;
    uint64_t   occurrence;
    int        err;

    if ((err = stet__ctx_enter(c, "stet_ctx_signal")) != STET_OK)
        return err;
    if ((err = stet__name_check("signal", signal)) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if ((int64_t)value.len > c->exec->host->payload_max(c)) {
        (void)stet__fail(STET_ETOOBIG, "signal %s: %zu bytes; the limit is payload_bytes_max, %lld", signal, value.len,
                         (long long)c->exec->host->payload_max(c));
        return stet__ctx_fail(c, STET_ETOOBIG, 0, stet_last_error(), NULL, 0);
    }
    if ((err = stet__ctx_ask(c, STET__FACT_SIGNAL_SEND, signal, 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd != NULL)
        return stet__ctx_outcome(c, NULL, cmd);
    if ((err = stet__ctx_catch_up(c)) != STET_OK ||
        (err = stet__ctx_stop(c, STET__FACT_SIGNAL_SEND, signal, occurrence)) != STET_OK ||
        (err = stet__ctx_barrier(c)) != STET_OK)
        return err;
    fact.kind = STET__FACT_SIGNAL_SEND;
    fact.name = stet_text(signal);
    fact.occurrence = (int64_t)occurrence;
    fact.run = stet__id_bytes(&id);
    fact.value = value.data != NULL ? value : stet_text("");
    if ((err = c->exec->host->tell(c, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    if ((err = stet__ctx_barrier(c)) != STET_OK) /* refused if its run ended just now: it carries nothing else */
        return err;
    if (fact.code != 0)
        return stet__ctx_fail(c, (int)fact.code, 0, fact.text.data, NULL, 0);
    return STET_OK;
}
