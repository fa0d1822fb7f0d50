/* Signals to a run: put into its inbox, where the journal gives each to one wait or keeps it for the next.
 *
 * A signal that was accepted is in the inbox of a run that was open then: the store refuses to put anything into
 * that of one that has ended. One with an idempotency key may be put there more than once; the journal takes the
 * first.
 *
 * A run that has not begun, or is stuck, is not woken: it waits for its time, its turn or for help, and looks into its
 * inbox when it is executed. The unit is conditional on that, or a run that began just now and waits would sleep on.
 */
#include <string.h>

#include "engine/engine.h"

#define SIGNAL_TRIES_MAX 100
#define SIGNAL_KEY_MAX   256u

/* What of a run decides how it is told. */
typedef struct signal_target {
    stet_id  run;
    bool     is_left; /* where it is, nobody's, until this epoch ends */
    uint64_t epoch;
} signal_target;

static bool
signal_ops(stet__work *w, const signal_target *to, const stet__fact *signal)
{
    stet_id    run = to->run;
    stet_op   *op = stet__work_op(w, STET_OP_INBOX, run);
    stet_cond *cond;

    if (op == NULL || !stet__work_fact(w, &op->data, signal))
        return false;
    if (STET__MUTANT(update_unwoken) && signal->kind == STET__FACT_UPDATE_ASKED)
        return true;
    if (to->is_left) {
        if (STET__MUTANT(signal_unwoken))
            return true;
        if ((cond = stet__work_cond(w, STET_COND_CLAIM, run)) != NULL)
            cond->epoch = to->epoch;
        return cond != NULL;
    }
    return stet__work_wake(w, run, STET_STATUS_PENDING, 0);
}

/* May it be told? STET_OK: it is open. */
static int
signal_look(stet_engine *e, stet_id run, const stet__fact *signal, signal_target *to)
{
    stet__arena  arena;
    stet_run_row row = { 0 };
    stet__fact   extra;
    char         text[STET_ID_TEXT_MAX];
    int          err;

    stet__arena_init(&arena, &e->p->alloc);
    stet__id_text(text, STET__ID_RUN, run);
    err = stet__load_row(e, run, &arena, &row, &extra);
    *to = (signal_target){ run,
                           row.session == 0 && (row.epoch == 0 || row.status == STET_STATUS_STUCK),
                           row.epoch };
    if (err == STET_OK && row.is_terminal)
        err = stet__fail(STET_EENDED,
                         "%s has ended (%s): nothing waits for %s %.*s any more; `fork` starts a "
                         "new run from any of its steps",
                         text, stet_status_name((stet_status)row.status),
                         signal->kind == STET__FACT_UPDATE_ASKED ? "update" : "signal",
                         (int)signal->name.len, (const char *)signal->name.data);
    stet__arena_free(&arena);
    return err;
}

static int
signal_check(stet_engine *e, const stet_run_id *run, const char *signal, stet_bytes value,
             const stet_signal_options *o, stet_id *id)
{
    int err;

    if ((err = stet__alive(e, "stet_signal")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_signal", "stet_ctx_signal")) != STET_OK ||
        (err = stet__id_parse(id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK ||
        (err = stet__name_check("signal", signal)) != STET_OK)
        return err;
    if ((int64_t)value.len > e->config.payload_bytes_max)
        return stet__fail(STET_ETOOBIG,
                          "signal %s: %zu bytes; the limit is payload_bytes_max, %lld", signal,
                          value.len, (long long)e->config.payload_bytes_max);
    if (o == NULL)
        return STET_OK;
    if (o->size != sizeof *o)
        return stet__fail(STET_EINVAL,
                          "signal %s: stet_signal_options.size is %zu; use STET_SIGNAL_OPTIONS(…)",
                          signal, o->size);
    if ((o->idempotency_key != NULL &&
         (o->idempotency_key[0] == '\0' || strlen(o->idempotency_key) > SIGNAL_KEY_MAX)) ||
        (o->by != NULL && strlen(o->by) > SIGNAL_KEY_MAX))
        return stet__fail(
            STET_ETOOBIG,
            "signal %s: an idempotency key has 1 to %u bytes, who sent it at most as many", signal,
            SIGNAL_KEY_MAX);
    return STET_OK;
}

/* An update that a generation which is over has answered is not made again, also if it was on its way for so long that
 * nobody knows its key any more. */
static bool
signal_guard(stet__work *w, stet_id id, const stet__fact *fact)
{
    stet_cond *cond;

    if (fact->kind != STET__FACT_UPDATE_ASKED)
        return true;
    if ((cond = stet__work_cond(w, STET_COND_VALUE, id)) == NULL)
        return false;
    cond->space = STET__SPACE_BASE_UPDATE;
    return stet__update_key(&w->arena, &cond->key, id, fact->idempotency_key);
}

int
stet__signal_put(stet_engine *e, const stet_run_id *run, stet_id id, stet__fact *fact)
{
    signal_target to;
    int           err = STET_ECONFLICT;

    for (int i = 0; i < SIGNAL_TRIES_MAX && err == STET_ECONFLICT; i++) {
        stet__work *w = stet__work_new(e, NULL, NULL);

        fact->time_ms = stet__store_now(e);
        if ((err = w == NULL ? stet__fail(STET_ENOMEM, "out of memory")
                             : signal_look(e, id, fact, &to)) != STET_OK ||
            (err = signal_ops(w, &to, fact) && signal_guard(w, id, fact)
                       ? STET_OK
                       : stet__fail(STET_ENOMEM, "out of memory")) != STET_OK) {
            stet__work_free(w);
            return err;
        }
        err = stet__commit_sync(e, w, NULL);
    }
    if (err == STET_EUNCERTAIN)
        return fact->idempotency_key.data != NULL
                   ? stet__commit_unknown(e, "repeat with the idempotency key %.*s: it counts once",
                                          (int)fact->idempotency_key.len,
                                          (const char *)fact->idempotency_key.data)
                   : stet__commit_unknown(e,
                                          "`show %s` tells whether it came; to be able to repeat a "
                                          "signal, give it an idempotency key",
                                          run->text);
    return err == STET_ECONFLICT
               ? stet__fail(STET_EBUSY, "%s changed all the time; nothing was written, try again",
                            run->text)
               : err;
}

int
stet_signal(stet_engine *e, const stet_run_id *run, const char *signal, stet_bytes value,
            const stet_signal_options *options)
{
    stet__fact fact = { 0 };
    stet_id    id;
    int        err;

    if ((err = signal_check(e, run, signal, value, options, &id)) != STET_OK)
        return err;
    fact.kind = STET__FACT_SIGNALLED;
    fact.name = stet_text(signal);
    fact.value = value.data != NULL ? value : stet_text("");
    if (options != NULL && options->idempotency_key != NULL)
        fact.idempotency_key = stet_text(options->idempotency_key);
    if (options != NULL && options->by != NULL)
        fact.who = stet_text(options->by);
    return stet__signal_put(e, run, id, &fact);
}

int
stet__signal_in(stet_ctx *c, stet__work *w, stet__fact *fact)
{
    stet__claim  *claim = c->host;
    stet_engine  *e = claim->engine;
    stet__fact    signal = { 0 };
    stet_id       run = stet__fact_id(fact->run);
    const char   *text;
    signal_target to;
    int           refusal = signal_look(e, run, fact, &to);

    if (refusal == STET_OK) {
        signal.kind = STET__FACT_SIGNALLED;
        signal.time_ms = stet__store_now(e);
        signal.name = fact->name;
        signal.value = fact->value;
        signal.run = stet__id_bytes(&claim->run);
        if (!signal_ops(w, &to, &signal))
            return stet__fail(STET_ENOMEM, "out of memory");
    } else if (refusal != STET_EENDED && refusal != STET_ENOTFOUND)
        return refusal;
    else { /* recorded too: the same on every replay */
        if ((text = stet__arena_str(&c->arena, stet_last_error())) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        fact->code = refusal;
        fact->text = stet_text(text);
    }
    return stet__host.append(c, fact, NULL);
}
