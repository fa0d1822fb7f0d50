/* Steps: side effects that run once and are recorded.
 *
 * Order of events for one execution of a body:
 *   all earlier facts durable -> crumb written -> lease checked -> body -> record appended
 * and the crumb stays until the record is durable, so that a crash in between is known to the next
 * execution (at risk). What is recorded: a result; a permanent failure; with a policy, each failed
 * execution (STEP_RETRY, with the time of the next) and at last the exhaustion. Without a policy a
 * passing failure is not recorded: it ends the run's attempt.
 *
 * A transactional step begins a transaction of the store before its body and commits it with the record: there is
 * no gap between them, so it is never at risk.
 */
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

#define STEP_LONG_US 2000
#define STEP_TX_MS   2000

#undef stet_step
#undef stet_step_start

/* ---- the body's side ---------------------------------------------------------------------------- */

int
stet_attempt_return(stet_attempt *a, stet_bytes value)
{
    int64_t max = a->ctx->exec->host->payload_max(a->ctx);

    if ((int64_t)value.len > max)
        return stet_attempt_fail(a, STET_ETOOBIG, "a result of %zu bytes; the limit is payload_bytes_max, %lld",
                                 value.len, (long long)max);
    a->result.len = 0;
    stet__buf_add(&a->result, value.data, value.len);
    a->has_result = true;
    return a->result.failed ? stet_attempt_fail(a, STET_ENOMEM, "out of memory for a result") : STET_OK;
}

int
stet_attempt_return_json(stet_attempt *a, const char *fmt, ...)
{
    stet__buf b;
    va_list   args;
    int       err;

    stet__buf_init(&b, &a->ctx->exec->p->alloc);
    va_start(args, fmt);
    err = stet__json_vprintf(&b, fmt, args);
    va_end(args);
    err = err == STET_OK ? stet_attempt_return(a, stet__buf_bytes(&b))
                         : stet_attempt_fail(a, err, "%s", stet_last_error());
    stet__buf_free(&b);
    return err;
}

int
stet_attempt_fail(stet_attempt *a, int code, const char *fmt, ...)
{
    char    text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    a->text.len = 0;
    stet__buf_str(&a->text, text);
    return stet__fail(code, "%s", text);
}

int
stet_attempt_not_before(stet_attempt *a, int64_t time_ms, const char *why)
{
    a->not_before_ms = time_ms > STET__DEFER_MS_MAX ? STET__DEFER_MS_MAX : time_ms;
    return stet_attempt_fail(a, STET_EDEFER, "%s", why != NULL ? why : "not before a later time");
}

uint32_t    stet_attempt_number(const stet_attempt *a) { return a->number; }
bool        stet_attempt_is_at_risk(const stet_attempt *a) { return a->is_at_risk; }
const char *stet_attempt_token(const stet_attempt *a) { return a->token; }
uint64_t    stet_attempt_fence(const stet_attempt *a) { return a->fence; }
int64_t     stet_attempt_deadline_ms(const stet_attempt *a) { return a->deadline_ms; }
const char *stet_attempt_run(const stet_attempt *a) { return a->ctx->run_text; }
const char *stet_attempt_traceparent(const stet_attempt *a) { return a->ctx->info.traceparent; }
const char *stet_attempt_tracestate(const stet_attempt *a) { return a->ctx->info.tracestate; }

static void *
attempt_conn(const stet_attempt *a, stet_conn_kind kind)
{
    return a->tx != NULL && a->tx->conn.kind == kind ? a->tx->conn.handle : NULL;
}

struct sqlite3 *stet_attempt_sqlite(const stet_attempt *a) { return attempt_conn(a, STET_CONN_SQLITE); }
struct pg_conn *stet_attempt_postgres(const stet_attempt *a) { return attempt_conn(a, STET_CONN_POSTGRES); }

/* It would fail the same way again. */
static bool
attempt_is_final(const stet_attempt *a)
{
    stet_class class_ = stet_code_class(a->code);

    return (class_ == STET_CLASS_PERMANENT && a->code != STET_ETIMEOUT) || class_ == STET_CLASS_USAGE;
}

void
stet__attempt_run(stet_attempt *a)
{
    /* From here on, not from when it was asked for: waiting for the store or a slot is not the body's time. */
    const stet__host_ops *host = a->ctx->exec->host;

    if (a->future->is_tx && (a->code = host->tx_begin(a->ctx, a, a->future->timeout_ms)) != STET_OK) {
        a->code = stet_attempt_fail(a, a->code, "%s", stet_last_error());
        a->is_skipped = !attempt_is_final(a);
        a->lacks = a->is_skipped ? a->code : 0;
        return;
    }
    if (a->future->timeout_ms > 0)
        a->deadline_ms = stet__time_add(host->now_ms(a->ctx), a->future->timeout_ms);
    if (a->future->timeout_ms > 0)
        atomic_store(&a->slot->limit_ms, a->deadline_ms);
    a->code = a->body(a, a->arg);
    if (a->future->timeout_ms > 0)
        atomic_store(&a->slot->limit_ms, 0);
    if (a->code > 0 || (a->code == STET_SUSPENDED) || (a->code == STET_END)) {
        int code = a->code;

        a->code = stet_attempt_fail(a, STET_EHANDLER, "the body of step %s returned %d, which is no stet code",
                                    a->step, code);
    }
    if (a->deadline_ms != INT64_MAX && host->now_ms(a->ctx) > a->deadline_ms)
        a->code = stet_attempt_fail(a, STET_ETIMEOUT, "step %s took longer than its timeout", a->step);
    if (a->tx != NULL && a->code != STET_OK)
        host->tx_rollback(a->ctx, a);
}

/* ---- recording ---------------------------------------------------------------------------------- */

static const char *
step_origin(stet_ctx *c, const stet_future *f, char *room, size_t size)
{
    (void)c;
    (void)snprintf(room, size, "step %s#%llu", f->name, (unsigned long long)f->occurrence);
    return room;
}

static void
step_fact(const stet_future *f, stet__fact *fact)
{
    fact->kind = STET__FACT_STEP;
    fact->name = stet_text(f->name);
    fact->occurrence = (int64_t)f->occurrence;
    fact->fingerprint = f->fingerprint;
}

/* A step that is waited for at once needs no place in the journal's index: nobody will ask again in
 * this execution, and its result belongs to the innermost scope. */
static int
step_settle_local(stet_ctx *c, stet_future *f, const stet__fact *fact)
{
    stet__cmd *local = &f->local;

    memset(local, 0, sizeof *local);
    local->is_settled = true;
    local->settled_at = ++c->journal.order;
    local->code = (int)fact->code;
    local->cause = (int)fact->cause;
    local->attempt = (uint32_t)fact->attempt;
    if (fact->text.data != NULL && (local->text = stet__arena_str(&c->arena, fact->text.data)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    if (fact->origin.data != NULL && (local->origin = stet__arena_str(&c->arena, fact->origin.data)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    f->cmd = local;
    return stet__ctx_out(c, &local->value, fact->value);
}

/* The record of an attempt. That the journal grew does not tell: the first fact of a claim is another one. */
static int
step_append(stet_ctx *c, stet_attempt *a, stet__fact *fact)
{
    int err = stet__ctx_append(c, fact, NULL);

    a->is_unrecorded = err != STET_OK;
    return err;
}

static int
step_settle(stet_ctx *c, stet_future *f, stet_attempt *a, stet__fact *fact)
{
    int err;

    step_fact(f, fact);
    if ((err = step_append(c, a, fact)) != STET_OK)
        return err;
    if (f->is_sync)
        return step_settle_local(c, f, fact);
    if (f->cmd == NULL && (f->cmd = stet__journal_add(&c->journal, STET__FACT_STEP, f->name, f->occurrence, 0)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    if ((err = stet__journal_apply(&c->journal, fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    return STET_OK;
}

static stet__fact
step_result(const stet_attempt *a)
{
    stet__fact fact = { 0 };

    if (a->has_result)
        fact.value = a->result.len > 0 ? stet__buf_bytes(&a->result) : stet_text("");
    fact.attempt = a->number;
    fact.took_ms = a->took_us / 1000;
    return fact;
}

static int
step_record_result(stet_ctx *c, stet_future *f, stet_attempt *a)
{
    stet__fact fact = step_result(a);

    return step_settle(c, f, a, &fact);
}

/* The record of a transactional step: its body's SQL is committed with it. True: what became of it is known, *err
 * says what; false: all was rolled back, and the attempt has failed. */
static bool
step_record_tx(stet_ctx *c, stet_future *f, stet_attempt *a, int *err)
{
    stet__fact fact = step_result(a);

    step_fact(f, &fact);
    if ((*err = c->exec->host->tx_record(c, a, &fact)) == STET_OK)
        *err = step_settle_local(c, f, &fact);
    else if (*err == STET_SUSPENDED)
        *err = stet__ctx_latch(c, STET_SUSPENDED);
    else {
        a->code = stet_attempt_fail(a, *err, "%s", stet_last_error());
        *err = STET_OK;
        return false;
    }
    return true;
}

static int
step_record_failure(stet_ctx *c, stet_future *f, stet_attempt *a, const char *text)
{
    stet__fact fact = { 0 };
    char       origin[STET__NAME_MAX + 32];

    fact.code = STET_ESTEP;
    fact.cause = a->code;
    fact.attempt = a->number;
    fact.took_ms = a->took_us / 1000;
    fact.text = stet_text(text);
    fact.origin = stet_text(step_origin(c, f, origin, sizeof origin));
    return step_settle(c, f, a, &fact);
}

static int
step_record_retry(stet_ctx *c, stet_future *f, stet_attempt *a, const char *text)
{
    stet__fact fact = { 0 };
    int64_t    now_ms = c->exec->host->now_ms(c);
    uint64_t   random = stet__hash64(a->token, strlen(a->token), a->number);
    int        err;

    fact.kind = STET__FACT_STEP_RETRY;
    fact.name = stet_text(f->name);
    fact.occurrence = (int64_t)f->occurrence;
    fact.fingerprint = f->fingerprint;
    fact.code = a->code;
    fact.took_ms = a->took_us / 1000;
    fact.text = stet_text(text);
    fact.attempt = a->number - (STET__MUTANT(retry_uncounted) ? 1u : 0u);
    fact.until_ms = stet__time_add(now_ms, stet__backoff_ms(&f->retry, a->number, random));
    if (a->code == STET_EDEFER) {
        /* "Not before T" uses no attempt. */
        fact.attempt = a->number - 1;
        fact.until_ms = stet__deferred_ms(&f->retry, a->not_before_ms, now_ms, random);
    }
    if ((err = step_append(c, a, &fact)) != STET_OK)
        return err;
    if (f->cmd == NULL && (f->cmd = stet__journal_add(&c->journal, STET__FACT_STEP, f->name, f->occurrence, 0)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    if ((err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    return STET_OK;
}

/* What the body said. Where there was no memory for that, the text of its code would pass for it. */
static const char *
step_text(stet_attempt *a)
{
    const char *text = a->text.len > 0 ? stet__buf_cstr(&a->text) : stet_code_text(a->code);

    return a->text.failed ? "what it said is lost: out of memory" : text;
}

int
stet__step_record(stet_ctx *c, stet_attempt *a)
{
    stet_future *f = a->future;
    const char  *text;
    int          err = STET_OK;
    bool         is_done = false, is_over = c->latch != 0 || c->is_rewritten;

    f->running = NULL;
    a->is_unrecorded = is_over && !a->is_skipped && !f->is_tx;
    if (a->tx != NULL && is_over)
        c->exec->host->tx_rollback(c, a);
    else if (a->tx != NULL)
        is_done = step_record_tx(c, f, a, &err);
    text = step_text(a);
    if (!is_over && c->latch == 0 && !a->is_skipped && !is_done) {
        if (a->code == STET_OK)
            err = step_record_result(c, f, a);
        else if (a->code == STET_EDEFER && a->not_before_ms != 0)
            err = step_record_retry(c, f, a, text);
        else if (!attempt_is_final(a) && f->retry.attempts > 0 && a->number < f->retry.attempts + STET__MUTANT(step_once_more))
            err = step_record_retry(c, f, a, text);
        else if ((attempt_is_final(a) || f->retry.attempts > 0) && !f->is_undo)
            err = step_record_failure(c, f, a, text);
        else {
            f->is_broken = true;
            f->broken_cause = a->code;
            f->broken_text = stet__arena_str(&c->arena, text);
        }
    }
    /* A body that took its time is worth a flush of its own: nothing the handler does next shall cost it. */
    if (err == STET_OK && c->latch == 0 && a->took_us > STEP_LONG_US)
        c->exec->host->commit_now(c);
    if (a->is_skipped && a->lacks != 0 && c->lacks == 0) {
        c->lacks = a->lacks;
        c->lacks_text = stet__arena_str(&c->arena, text);
    }
    stet__buf_free(&a->result);
    stet__buf_free(&a->text);
    c->exec->host->crumb_spent(c, a);
    return err;
}

/* ---- running ------------------------------------------------------------------------------------ */

void
stet__attempt_init(stet_attempt *a, stet_future *f)
{
    stet_ctx   *c = f->ctx;
    uint64_t    seed = f->occurrence + (stet__journal_repeats(&c->journal, f->name, f->occurrence) << 48);
    char       *at = a->token;
    const char *end = at + sizeof a->token;

    memset(a, 0, sizeof *a);
    a->ctx = c;
    a->future = f;
    a->step = f->name;
    a->occurrence = f->occurrence;
    a->number = (f->cmd != NULL ? f->cmd->attempt : 0) + 1;
    a->body = f->body;
    a->arg = f->arg;
    a->crumb = -1;
    a->log_fields = c->log_fields;
    a->fence = c->run.epoch;
    a->deadline_ms = INT64_MAX;
    stet__buf_init(&a->result, &c->exec->p->alloc);
    stet__buf_init(&a->text, &c->exec->p->alloc);
    if (c->run.generation != 0) /* the same step of another generation is another one */
        seed = stet__hash64(&c->run.generation, sizeof c->run.generation, seed);
    at = stet__text_add(at, end, c->run_text);
    at = stet__text_add(at, end, "-");
    (void)stet__text_add_hex(at, end, stet__hash64(f->name, strlen(f->name), seed));
}

/* A stop is told by what the handler asks for, and an undo is not. */
static int
step_stop(stet_ctx *c, const stet_future *f)
{
    return f->is_undo ? STET_OK : stet__ctx_stop(c, STET__FACT_STEP, f->name, f->occurrence);
}

/* Everything before is durable, and the risk is known. */
static int
step_prepare(stet_ctx *c, stet_future *f, stet_attempt *a)
{
    stet__fact fact = { 0 };
    int        err;

    if (!f->is_undo && stet__ctx_is_undone(c))
        return c->latch;
    if (stet__run_is_at_risk(&c->run, f->name, f->occurrence, f->is_tx)) {
        fact.kind = STET__FACT_AT_RISK;
        fact.name = stet_text(f->name);
        fact.occurrence = (int64_t)f->occurrence;
        if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
            return err;
        c->exec->host->log(c, STET_LOG_WARN, f->name, 0, c->log_fields != NULL ? c->log_fields->at : NULL,
                           c->log_fields != NULL ? c->log_fields->n : 0,
                           "this step was entered before and not recorded: it may happen twice");
        a->is_at_risk = true;
    }
    /* The answer to the last record brings news; a cancel among it comes before this body. */
    do {
        if ((!STET__MUTANT(effect_first) && (err = stet__ctx_barrier(c)) != STET_OK) ||
            (err = stet__ctx_catch_up(c)) != STET_OK || (err = step_stop(c, f)) != STET_OK)
            return err;
        if (STET__MUTANT(effect_first))
            break;
    } while (!c->exec->host->is_durable(c));
    return STET_OK;
}

static int
step_run_here(stet_ctx *c, stet_future *f)
{
    stet_attempt *a = stet__arena_get(&c->arena, sizeof *a);
    int           err;

    if (a == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a step"));
    stet__attempt_init(a, f);
    if ((err = step_prepare(c, f, a)) != STET_OK)
        return err;
    if (STET__MUTANT(step_before) &&
        ((err = step_record_result(c, f, a)) != STET_OK || (err = stet__ctx_barrier(c)) != STET_OK))
        return err;
    c->job = a;
    stet__ctx_yield(c, STET__YIELD_BODY);
    c->job = NULL;
    /* What a dead worker was in, if nobody knows, was no later body than this one. Unless it is an undo: one of a step that was
     * done since comes before those that worker had come to. */
    if (!f->is_undo)
        stet__run_settle_risks(&c->run);
    if (STET__MUTANT(step_before)) {
        stet__buf_free(&a->result);
        stet__buf_free(&a->text);
        return STET_OK;
    }
    err = stet__step_record(c, a);
    return a->is_skipped ? stet__ctx_skipped(c) : err;
}

/* A step that had begun before (its retry is recorded) and is stopped: the future settles, because that is
 * what a replay finds. One that had not is told by the call that starts it. */
static int
step_told(stet_ctx *c, stet_future *f, int code)
{
    if (f->cmd == NULL || c->latch != 0)
        return code;
    stet__journal_settle(&c->journal, f->cmd);
    f->cmd->code = code;
    f->cmd->cause = 0;
    f->cmd->text = c->failure.text;
    f->cmd->origin = NULL;
    return STET_OK;
}

int
stet__step_begin(stet_ctx *c, stet_future *f)
{
    stet__exec   *x = c->exec;
    stet_attempt *a = stet__arena_get(&c->arena, sizeof *a);
    int           err;

    if (a == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a step"));
    stet__attempt_init(a, f);
    if ((err = step_prepare(c, f, a)) != STET_OK)
        return step_told(c, f, err);
    f->running = a;
    stet__lock(x->p, x->lock);
    c->jobs++;
    a->next = NULL;
    if (x->last_body != NULL)
        x->last_body->next = a;
    else
        x->first_body = a;
    x->last_body = a;
    atomic_fetch_add(&x->n_queued, 1);
    stet__exec_call_any(x);
    stet__unlock(x->p, x->lock);
    return STET_OK;
}

static int
step_options(stet_ctx *c, stet_future *f, const stet_step_options *o)
{
    int64_t timeout_ms = 0;
    int     err;

    f->retry = c->run.retry;
    f->retry.attempts = 0; /* no policy of its own */
    if (o == NULL)
        return STET_OK;
    if (o->size != sizeof *o)
        return stet__fail(STET_EINVAL, "step %s: stet_step_options.size is %zu; use STET_STEP(…)", f->name, o->size);
    if (o->timeout != NULL && (err = stet__span_parse(&timeout_ms, f->name, "timeout", o->timeout)) != STET_OK)
        return stet__fail(err, "step %s", stet_last_error());
    if (o->attempts < 0 || o->first_ms < 0 || o->max_ms < 0 || o->factor_percent < 0 ||
        o->jitter_percent < STET_NONE || o->jitter_percent > 100)
        return stet__fail(STET_EINVAL, "step %s: a retry policy with a value out of range", f->name);
    if (o->first_ms > STET__DURATION_MAX_MS || o->max_ms > STET__DURATION_MAX_MS)
        return stet__fail(STET_EINVAL, "step %s: a retry policy that waits longer than 10,000 years", f->name);
    f->timeout_ms = timeout_ms;
    f->retry.attempts = o->attempts;
    if (o->first_ms > 0)
        f->retry.first_ms = o->first_ms;
    if (o->max_ms > 0)
        f->retry.max_ms = o->max_ms;
    if (o->factor_percent > 0)
        f->retry.factor_percent = o->factor_percent;
    if (o->jitter_percent != 0)
        f->retry.jitter_percent = o->jitter_percent == STET_NONE ? 0 : o->jitter_percent;
    if (f->retry.max_ms < f->retry.first_ms)
        f->retry.max_ms = f->retry.first_ms;
    if (o->transaction) {
        int64_t limit_ms = c->exec->host->tx_limit(c);

        if (!f->is_sync)
            return stet__fail(STET_EUSAGE, "step %s: a transactional step is waited for at once: use stet_step()", f->name);
        if (limit_ms == 0)
            return stet__fail(STET_EUSAGE, "step %s: this store has no transactions; use SQLite or PostgreSQL", f->name);
        if (timeout_ms > limit_ms)
            return stet__fail(STET_EINVAL, "step %s: a transactional step may take a third of lease_ms, %lld ms, not %s",
                              f->name, (long long)limit_ms, o->timeout);
        f->is_tx = true;
        f->timeout_ms = timeout_ms > 0 ? timeout_ms : limit_ms < STEP_TX_MS ? limit_ms : STEP_TX_MS;
    }
    f->undo = o->undo;
    if (o->fingerprint.data != NULL)
        f->fingerprint = (int64_t)(stet__hash64(o->fingerprint.data, o->fingerprint.len, 1) >> 1 | 1u);
    return STET_OK;
}

/* In a rollback that was taken up nothing new is done. A step that has no result, in front of others that have, was
 * running or between two attempts when its run failed: the handler must come to those others, and whoever waits for
 * this one ends there. */
static bool
step_was_running(const stet_ctx *c, const char *name)
{
    const stet__cmd *cmd;

    if (!c->run.is_auto || c->is_undoing || (c->journal.unasked == 0 && c->journal.choices == 0))
        return false;
    cmd = stet__journal_peek(&c->journal, STET__FACT_STEP, name);
    return cmd == NULL || !cmd->is_settled;
}

/* The future of a step: recorded, or new. Usage errors change nothing. */
static int
step_future(stet_ctx *c, stet_future *f, bool is_sync, const char *name, stet_body_fn body, void *arg,
            const stet_step_options *options)
{
    int err;

    if ((err = stet__ctx_enter(c, is_sync ? "stet_step" : "stet_step_start")) != STET_OK)
        return err;
    if ((err = stet__name_check("step", name)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if (body == NULL)
        return stet__ctx_fail(c, STET_EINVAL, 0, "a step without a body", NULL, 0);
    memset(f, 0, sizeof *f);
    f->ctx = c;
    f->kind = STET__FUTURE_STEP;
    f->cmd_kind = STET__FACT_STEP;
    f->is_sync = is_sync;
    f->body = body;
    f->arg = arg;
    f->name = name;
    if ((err = step_options(c, f, options)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if (!is_sync && step_was_running(c, name)) {
        const stet__cmd *recorded;

        return stet__journal_ask(&c->journal, STET__FACT_STEP, name, f->fingerprint, &f->cmd, &f->occurrence, &recorded) ==
                       STET_OK
                   ? STET_OK
                   : stet__ctx_latch(c, STET_ENOMEM);
    }
    return stet__ctx_ask(c, STET__FACT_STEP, name, f->fingerprint, &f->cmd, &f->occurrence);
}

static int
step_broken(stet_ctx *c, const stet_future *f)
{
    char origin[STET__NAME_MAX + 32];

    (void)stet__ctx_fail(c, STET_ERETRY, f->broken_cause, f->broken_text, step_origin(c, f, origin, sizeof origin), 0);
    return stet__ctx_latch(c, STET_ERETRY);
}

int
stet__step_run(stet_ctx *c, stet_future *f, stet_bytes *out)
{
    int err;

    for (;;) {
        if (f->cmd != NULL && f->cmd->is_settled)
            return stet__ctx_outcome(c, out, f->cmd);
        if ((err = stet__ctx_catch_up(c)) != STET_OK)
            return err;
        if ((err = step_stop(c, f)) != STET_OK) {
            if (f->cmd != NULL && c->latch == 0)
                stet__journal_settle(&c->journal, f->cmd); /* its next attempt does not come: nor need its timer */
            return err;
        }
        if (f->cmd != NULL && f->cmd->completion != 0 && f->cmd->fired_at == 0) {
            (void)snprintf(c->waits_for, sizeof c->waits_for, "next attempt of step %s", f->name);
            if ((err = stet__ctx_await_news(c)) != STET_OK)
                return err;
            continue;
        }
        if ((err = step_run_here(c, f)) != STET_OK || f->is_broken)
            return err;
    }
}

int
stet_step(stet_ctx *c, stet_bytes *out, const char *name, stet_body_fn body, void *arg,
          const stet_step_options *options)
{
    stet_bytes  value;
    stet_future f;
    int         err;

    if (out != NULL)
        *out = (stet_bytes){ NULL, 0 };
    if ((err = step_future(c, &f, true, name, body, arg, options)) != STET_OK ||
        (err = stet__step_run(c, &f, &value)) != STET_OK)
        return err;
    if (f.is_broken)
        return step_broken(c, &f);
    if (out != NULL)
        *out = value;
    return f.undo != NULL ? stet__undo_note(c, &f) : STET_OK;
}

int
stet_step_start(stet_ctx *c, stet_future **future, const char *name, stet_body_fn body, void *arg,
                const stet_step_options *options)
{
    stet_future *f, probe;
    bool         was_running;
    int          err;

    *future = NULL;
    was_running = step_was_running(c, name);
    if ((err = step_future(c, &probe, false, name, body, arg, options)) != STET_OK)
        return err;
    if ((f = stet__arena_copy(&c->arena, &probe, sizeof probe)) == NULL ||
        (f->name = stet__arena_str(&c->arena, name)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a future"));
    if (f->cmd != NULL && f->cmd->is_settled && f->cmd->completion == 0 &&
        (f->cmd->code == STET_ECANCELLED || f->cmd->code == STET_EEXPIRED))
        return stet__ctx_outcome(c, NULL, f->cmd); /* told to stop here */
    if (!was_running && (f->cmd == NULL || !f->cmd->is_settled)) {
        if ((err = stet__ctx_catch_up(c)) != STET_OK ||
            (f->cmd == NULL && (err = stet__ctx_stop(c, STET__FACT_STEP, name, f->occurrence)) != STET_OK))
            return err;
        if ((f->cmd == NULL || f->cmd->completion == 0 || f->cmd->fired_at != 0) &&
            (err = stet__step_begin(c, f)) != STET_OK)
            return err;
    }
    f->next = c->steps;
    c->steps = f;
    *future = f;
    return STET_OK;
}
