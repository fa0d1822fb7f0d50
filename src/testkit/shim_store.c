/* The wrapping store; see shim_store.h.
 *
 * Invariant: nothing is between "applied by the inner store" and "told to the script" when crash()
 * runs. A gate sees to it: commits hold it from before the inner call until applied() was called,
 * and crash() is called with it held. So a test knows exactly which records were durable at the
 * crash. The other writes hold it too: a process that is only stopped must not take a lock of the
 * store with it, or nobody could go on.
 */
#include "testkit/shim_store.h"

#include <stdio.h>
#include <string.h>

typedef struct shim_store {
    stet_store     base;
    stet_store    *inner;
    shim_script   *script;
    stet__mutex    gate;
    stet_store_ops ops;
} shim_store;

static shim_store *
shim_of(stet_store *s)
{
    return (shim_store *)(void *)s;
}

static stet_store *
shim_inner(stet_store *s)
{
    return shim_of(s)->inner;
}

const char *
stet__shim_mode_name(shim_mode mode)
{
    switch (mode) {
    case SHIM_NONE: return "nothing";
    case SHIM_BEFORE: return "crash before";
    case SHIM_AFTER: return "crash after";
    case SHIM_LOSE: return "reply lost at";
    case SHIM_FAIL: return "failure of";
    case SHIM_ERROR: return "error of";
    }
    return "?";
}

/* Count a call. True: it is the one. */
static bool
shim_count(stet_store *s, bool is_write)
{
    shim_script *script = shim_of(s)->script;
    uint64_t     n, last = script->at + (script->count > 0 ? script->count - 1 : 0);

    if (!is_write)
        (void)__atomic_fetch_add(&s->reads, 1, __ATOMIC_RELAXED);
    if (script->is_asleep != NULL && script->is_asleep())
        return false;
    atomic_fetch_add(is_write ? &script->writes : &script->reads, 1);
    if (script->which == (is_write ? SHIM_READS : SHIM_WRITES))
        return false;
    n = atomic_fetch_add(&script->calls, 1) + 1;
    return n >= script->at && n <= last && script->mode != SHIM_NONE;
}

/* Nobody crashes between a commit and the note of it, or in a write. Without notes there is no
 * gate: a commit may wait for a transaction, whose end must not wait for the commit. */
static void
shim_gate(stet_store *s, bool is_closed)
{
    shim_store *shim = shim_of(s);

    if (shim->script->applied == NULL)
        return;
    if (is_closed)
        stet__lock(s->platform, &shim->gate);
    else
        stet__unlock(s->platform, &shim->gate);
}

void
stet__shim_hold(stet_store *shim)
{
    shim_gate(shim, true);
}

void
stet__shim_let_go(stet_store *shim)
{
    shim_gate(shim, false);
}

static void
shim_note(shim_script *script, const char *call)
{
    (void)snprintf(script->hit, sizeof script->hit, "%s", call);
    script->is_hit = true;
}

/* True: the call is not made and answered with the script's code. */
static bool
shim_errs(stet_store *s, bool is_it, const char *call)
{
    shim_script *script = shim_of(s)->script;

    if (!is_it || script->mode != SHIM_ERROR)
        return false;
    shim_note(script, call);
    (void)stet__fail(script->code, "%s: refused by the test", call);
    return true;
}

static void
shim_crash(stet_store *s, const char *call)
{
    shim_store  *shim = shim_of(s);
    shim_script *script = shim->script;

    shim_gate(s, true);
    shim_note(script, call);
    script->crash(script->arg);
    shim_gate(s, false);
}

static void
shim_before(stet_store *s, bool is_it, const char *call)
{
    if (is_it && shim_of(s)->script->mode == SHIM_BEFORE)
        shim_crash(s, call);
}

static void
shim_after(stet_store *s, bool is_it, const char *call)
{
    if (is_it && shim_of(s)->script->mode == SHIM_AFTER)
        shim_crash(s, call);
}

/* ---- commit ---------------------------------------------------------------------------------- */

static void
shim_tell(shim_script *script, const stet_unit *units, size_t n, const stet_outcome *outcomes)
{
    for (size_t i = 0; i < n && script->applied != NULL; i++)
        if (outcomes[i].result == STET_OK && !outcomes[i].is_repeat)
            script->applied(script->arg, &units[i]);
}

static int
shim_lose(stet_store *s, size_t n, stet_outcome *outcomes)
{
    for (size_t i = 0; i < n; i++)
        stet__free(s->alloc, outcomes[i].grants);
    memset(outcomes, 0, n * sizeof *outcomes);
    return stet__fail(STET_EUNCERTAIN, "the reply was lost by the test");
}

static shim_mode
shim_choose(stet_store *s, const stet_unit *units, size_t n, int *code)
{
    shim_script *script = shim_of(s)->script;

    if (script->choose != NULL)
        return script->choose(script->arg, units, n, code);
    return shim_count(s, true) ? script->mode : SHIM_NONE;
}

static int
shim_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    shim_store  *shim = shim_of(s);
    shim_script *script = shim->script;
    int          err, code = script->code;
    shim_mode    mode = shim_choose(s, units, n, &code);

    if (mode == SHIM_BEFORE)
        shim_crash(s, "commit");
    if (mode == SHIM_ERROR || mode == SHIM_FAIL) {
        shim_note(script, "commit");
        return stet__fail(mode == SHIM_ERROR ? code : STET_EBUSY, "commit: refused by the test");
    }
    shim->inner->sticky = s->sticky;
    shim->inner->quiet = s->quiet;
    shim_gate(s, true);
    if ((err = shim->inner->ops->commit(shim->inner, units, n, outcomes)) == STET_OK)
        shim_tell(script, units, n, outcomes);
    shim_gate(s, false);
    if (mode == SHIM_AFTER)
        shim_crash(s, "commit");
    if (mode == SHIM_LOSE && err == STET_OK) {
        shim_note(script, "commit");
        return shim_lose(s, n, outcomes);
    }
    return err;
}

/* ---- the others ------------------------------------------------------------------------------ */

#define SHIM_CALL(type, error, is_write, is_gated, call, ...)                                      \
    bool is_it = shim_count(s, is_write);                                                          \
    type answer;                                                                                   \
                                                                                                   \
    shim_before(s, is_it, #call);                                                                  \
    if (shim_errs(s, is_it, #call))                                                                \
        return error;                                                                              \
    if (is_gated)                                                                                  \
        shim_gate(s, true);                                                                        \
    answer = shim_inner(s)->ops->call(__VA_ARGS__);                                                \
    if (is_gated)                                                                                  \
        shim_gate(s, false);                                                                       \
    shim_after(s, is_it, #call);                                                                   \
    return answer

#define SHIM_INT(is_write, call, ...)                                                              \
    SHIM_CALL(int, shim_of(s)->script->code, is_write, is_write, call, shim_inner(s), __VA_ARGS__)

#define SHIM_PLAIN(is_write, call)                                                                 \
    SHIM_CALL(int, shim_of(s)->script->code, is_write, is_write, call, shim_inner(s))

static int
shim_open(stet_store *s, const char *address)
{
    (void)s;
    (void)address;
    return STET_OK;
}

static void
shim_close(stet_store *s)
{
    shim_store *shim = shim_of(s);

    if (shim->inner == NULL)
        return;
    stet__store_close(shim->inner);
    shim->inner = NULL;
    s->platform->ops->mutex_destroy(s->platform, &shim->gate);
}

static int64_t
shim_now_ms(stet_store *s)
{
    return shim_inner(s)->ops->now_ms(shim_inner(s));
}

static int
shim_reopen(stet_store *s)
{
    SHIM_PLAIN(true, reopen);
}
static int
shim_maintain(stet_store *s)
{
    SHIM_PLAIN(true, maintain);
}
static int
shim_ping(stet_store *s)
{
    SHIM_PLAIN(false, ping);
}

static int
shim_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms, stet_bytes info)
{
    SHIM_INT(true, session_open, session, id, lease_ms, info);
}

static int
shim_session_renew(stet_store *s, uint64_t session, int64_t lease_ms)
{
    SHIM_INT(true, session_renew, session, lease_ms);
}

static int
shim_session_close(stet_store *s, uint64_t session)
{
    SHIM_INT(true, session_close, session);
}

static int
shim_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    SHIM_INT(false, sessions, fn, arg);
}

static stet_crumb *
shim_crumbs(stet_store *s, uint64_t session, size_t n)
{
    SHIM_CALL(stet_crumb *, NULL, true, true, crumbs, shim_inner(s), session, n);
}

static int
shim_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    SHIM_INT(false, crumbs_of, session, crumbs, n);
}

static int
shim_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    SHIM_INT(false, run, run, fn, arg);
}

static int
shim_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    SHIM_INT(false, runs, query, fn, arg);
}

static int
shim_journal(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    SHIM_INT(false, journal, run, from, limit, fn, arg);
}

static int
shim_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    SHIM_INT(false, inbox, run, from, limit, fn, arg);
}

static int
shim_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
            int64_t *next_ms)
{
    SHIM_INT(false, timers, until_ms, limit, fn, arg, next_ms);
}

static int
shim_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg)
{
    SHIM_INT(false, timers_of, run, fn, arg);
}

static int
shim_value(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    SHIM_INT(false, value, space, key, value);
}

static int
shim_values(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
            size_t limit, stet_value_fn fn, void *arg)
{
    SHIM_INT(false, values, space, prefix, after, limit, fn, arg);
}

static int
shim_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg)
{
    SHIM_INT(false, lane, lane, limit, fn, arg);
}

static int
shim_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms)
{
    SHIM_INT(false, due, handlers, n, due_ms);
}

static int
shim_watch(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    stet_store *inner = shim_inner(s);

    return inner->ops->watch != NULL ? inner->ops->watch(inner, on_hint, arg) : STET_EINVAL;
}

static void
shim_unwatch(stet_store *s)
{
    stet_store *inner = shim_inner(s);

    if (inner->ops->unwatch != NULL)
        inner->ops->unwatch(inner);
}

/* ---- transactions: only if the inner store has them ------------------------------------------ */

/* Without the gate: it may wait for another transaction, whose end needs it. */
#define SHIM_LENT(call, ...)                                                                       \
    SHIM_CALL(int, shim_of(s)->script->code, true, false, call, shim_inner(s), __VA_ARGS__)

static int
shim_tx_begin(stet_store *s, int64_t limit_ms, stet_tx **tx)
{
    SHIM_LENT(tx_begin, limit_ms, tx);
}

static int
shim_tx_commit(stet_store *s, stet_tx *tx, const stet_unit *unit, stet_outcome *outcome)
{
    shim_store  *shim = shim_of(s);
    shim_script *script = shim->script;
    bool         is_it = shim_count(s, true);
    int          err;

    shim_before(s, is_it, "tx_commit");
    shim->inner->sticky = s->sticky;
    shim->inner->quiet = s->quiet;
    shim_gate(s, true);
    if ((err = shim->inner->ops->tx_commit(shim->inner, tx, unit, outcome)) == STET_OK)
        shim_tell(script, unit, 1, outcome);
    shim_gate(s, false);
    shim_after(s, is_it, "tx_commit");
    if (is_it && script->mode == SHIM_LOSE && err == STET_OK) {
        script->is_hit = true;
        (void)snprintf(script->hit, sizeof script->hit, "tx_commit");
        return shim_lose(s, 1, outcome);
    }
    return err;
}

static void
shim_tx_rollback(stet_store *s, stet_tx *tx)
{
    bool is_it = shim_count(s, true);

    shim_before(s, is_it, "tx_rollback");
    shim_inner(s)->ops->tx_rollback(shim_inner(s), tx);
    shim_after(s, is_it, "tx_rollback");
}

static int
shim_apply_in(stet_store *s, stet_conn conn, const stet_unit *unit, stet_outcome *outcome)
{
    SHIM_LENT(apply_in, conn, unit, outcome);
}

static void
shim_hint(stet_store *s)
{
    if (shim_inner(s)->ops->hint != NULL)
        shim_inner(s)->ops->hint(shim_inner(s));
}

static const stet_store_ops shim_ops = {
    .version = 1,
    .scheme = "shim",
    .size = sizeof(shim_store),
    .open = shim_open,
    .close = shim_close,
    .reopen = shim_reopen,
    .now_ms = shim_now_ms,
    .commit = shim_commit,
    .session_open = shim_session_open,
    .session_renew = shim_session_renew,
    .session_close = shim_session_close,
    .sessions = shim_sessions,
    .crumbs = shim_crumbs,
    .crumbs_of = shim_crumbs_of,
    .run = shim_run,
    .runs = shim_runs,
    .journal = shim_journal,
    .inbox = shim_inbox,
    .timers = shim_timers,
    .timers_of = shim_timers_of,
    .value = shim_value,
    .values = shim_values,
    .lane = shim_lane,
    .watch = shim_watch,
    .unwatch = shim_unwatch,
    .maintain = shim_maintain,
    .ping = shim_ping,
    .due = shim_due,
    .hint = shim_hint,
};

int
stet__shim_store_new(stet_store **out, stet_store *inner, shim_script *script)
{
    shim_store *shim = stet__get0(inner->alloc, sizeof *shim);

    *out = NULL;
    if (shim == NULL || inner->platform->ops->mutex_init(inner->platform, &shim->gate) != STET_OK) {
        stet__free(inner->alloc, shim);
        stet__store_close(inner);
        return STET_ENOMEM;
    }
    shim->base = *inner;
    shim->ops = shim_ops;
    if (inner->ops->tx_begin != NULL) {
        shim->ops.tx_begin = shim_tx_begin;
        shim->ops.tx_commit = shim_tx_commit;
        shim->ops.tx_rollback = shim_tx_rollback;
        shim->ops.apply_in = shim_apply_in;
    }
    shim->base.ops = &shim->ops;
    shim->inner = inner;
    shim->script = script;
    *out = &shim->base;
    return STET_OK;
}
