/* A handler executed again from its journal, without effect.
 *
 * An executor of its own, without threads, whose host has the record and nothing else: what is
 * recorded comes back, and at the first thing that is not, the execution is let go. No store is
 * written, no body entered, nothing logged. The code is taken to be what recorded the run, so it
 * must ask for all of it in its order, and end as it did.
 *
 * Runs on: a fiber of the process under test.
 */
#include "testkit/kit.h"

#include <stdio.h>
#include <string.h>

#include "engine/host.h"

typedef struct replay {
    stet_engine         *engine;
    const stet__handler *handler;
    stet__loaded         whole; /* the run as it is; what is replayed stops before its end */
    int                  err;
    char                 text[1024]; /* the contradiction, or "" */
    char                 where[256];
} replay;

static replay *
replay_of(stet_ctx *c)
{
    return c->host;
}

/* ---- contradictions -------------------------------------------------------------------------- */

static void
replay_contradiction(stet_ctx *c, const char *recorded, const char *asked)
{
    replay *r = replay_of(c);

    if (r->text[0] != '\0')
        return;
    if (c->file != NULL)
        (void)snprintf(r->where, sizeof r->where, " at %s:%d", c->file, c->line);
    (void)snprintf(
        r->text, sizeof r->text,
        "%s of %.120s does something else when it is executed again: recorded was %.180s, but "
        "it %.180s%.180s. What a handler does may depend on its input and on what the context "
        "gave it, and on nothing else: no clock, no random number, no variable outside of it",
        c->run_text, c->run.handler, recorded, asked, r->where);
}

static void
replay_asked(char *out, size_t size, stet__fact_kind kind, stet_bytes name, int64_t occurrence)
{
    if (kind == STET__FACT_AT_RISK)
        kind = STET__FACT_STEP;
    (void)snprintf(out, size, "asked for %s %.*s#%lld", stet__fact_kind_name(kind), (int)name.len,
                   name.len > 0 ? (const char *)name.data : "", (long long)occurrence);
}

/* What of the record the code has not asked for; NULL: nothing. */
static const char *
replay_left(const stet_ctx *c, char *room, size_t size)
{
    const stet__cmd *left = stet__journal_unasked(&c->journal);

    if (left == NULL)
        return NULL;
    (void)snprintf(room, size, "%s %s#%llu", stet__fact_kind_name(left->kind), left->name,
                   (unsigned long long)left->occurrence);
    return room;
}

/* The code asks, or waits, for what is not recorded. That is where the record ends, unless more of
 * it is left or the run completed. */
static void
replay_beyond(stet_ctx *c, const char *left, const char *asked)
{
    if (left != NULL || replay_of(c)->whole.run.status == STET_STATUS_COMPLETED)
        replay_contradiction(c, left != NULL ? left : "the end of the run", asked);
}

/* In the coroutine, or before a body. What a future's body gives is recorded when it ends, so
 * others may be before it. */
static int
replay_ends(stet_ctx *c, const char *asked, bool is_future)
{
    char room[256];

    replay_beyond(c, is_future ? NULL : replay_left(c, room, sizeof room), asked);
    return stet__ctx_latch(c, STET_SUSPENDED);
}

/* ---- what the executor asks ------------------------------------------------------------------ */

static int
replay_on_fact(void *limit, const stet__fact *fact, uint64_t seq, bool is_taken)
{
    (void)is_taken;
    return seq == 0 && fact->revision >= *(const uint64_t *)limit ? STET_SUSPENDED : STET_OK;
}

/* The end is left out, so that the run is as it was when its last execution ended. */
static int
replay_begin(stet_ctx *c)
{
    replay             *r = replay_of(c);
    const stet_run_row *row = &r->whole.row;
    uint64_t            bad = 0, limit = row->is_terminal ? row->journal - 1 : UINT64_MAX;

    stet__run_init(&c->run, &c->arena, row->id);
    r->err = stet__load_facts_seen(r->engine, &c->run, &c->journal, row->journal, &bad,
                                   replay_on_fact, &limit);
    if (r->err == STET_SUSPENDED)
        r->err = STET_OK;
    if (r->err != STET_OK)
        return r->err;
    c->journal.spared = c->journal.orphans = NULL;
    c->rolls_back = r->handler->rolls_back;
    c->is_shared = r->handler->is_shared;
    c->was_stopped = c->run.stop_code != 0;
    stet__host_info(c);
    return STET_OK;
}

static int
replay_append(stet_ctx *c, stet__fact *fact, const stet__fact *child)
{
    char asked[256];

    (void)child;
    replay_asked(asked, sizeof asked, fact->kind, fact->name, fact->occurrence);
    return replay_ends(c, asked, false);
}

static int
replay_tell(stet_ctx *c, stet__fact *fact)
{
    return replay_append(c, fact, NULL);
}

static void
replay_commit(stet_ctx *c)
{
    (void)c;
}

static bool
replay_is_durable(stet_ctx *c)
{
    (void)c;
    return true;
}

static bool
replay_is_ahead(stet_ctx *c)
{
    (void)c;
    return false;
}

/* Runs on: the slot, not the coroutine. */
static void
replay_suspend(stet_ctx *c)
{
    char room[256], asked[256];

    (void)snprintf(asked, sizeof asked, "waits for %s", c->waits_for);
    replay_beyond(c, replay_left(c, room, sizeof room), asked);
    stet__lock(c->exec->p, c->exec->lock);
    stet__exec_let_go(c->exec, c, STET_SUSPENDED);
    stet__unlock(c->exec->p, c->exec->lock);
}

static int
replay_refresh(stet_ctx *c)
{
    return c->latch;
}

static bool
replay_is_equal(stet_bytes a, stet_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void
replay_quote(char *out, size_t size, const char *before, stet_bytes value)
{
    (void)snprintf(out, size, "%s \"%.*s\"", before, (int)(value.len < 100 ? value.len : 100),
                   value.len > 0 ? (const char *)value.data : "");
}

/* The handler returned, as it did. */
static void
replay_compare(stet_ctx *c)
{
    const stet__run *end = &replay_of(c)->whole.run;
    char             recorded[256], asked[256];
    const char      *left = replay_left(c, recorded, sizeof recorded);

    if (left != NULL && (stet_code_class(c->rc) != STET_CLASS_RETRY || c->rc == STET_CONTINUED))
        replay_contradiction(c, left, "returned");
    else if (end->status == STET_STATUS_COMPLETED && c->rc != STET_OK) {
        (void)snprintf(asked, sizeof asked, "failed with %s (%s)",
                       stet_code_name(c->rc) != NULL ? stet_code_name(c->rc) : "a code of its own",
                       c->failure.text != NULL ? c->failure.text : "no text");
        replay_contradiction(c, "that it completed", asked);
    } else if (end->status == STET_STATUS_COMPLETED && !replay_is_equal(c->result, end->result)) {
        replay_quote(recorded, sizeof recorded, "the result", end->result);
        replay_quote(asked, sizeof asked, "returned", c->result);
        c->file = NULL; /* the last call is not where it went wrong */
        replay_contradiction(c, recorded, asked);
    } else if (end->status == STET_STATUS_FAILED && (c->rc == STET_OK || c->rc == STET_CONTINUED) &&
               !end->is_told)
        replay_contradiction(c, "that it failed", "returned without a failure");
}

static bool
replay_end(stet_ctx *c)
{
    replay *r = replay_of(c);
    size_t  jobs;

    stet__lock(c->exec->p, c->exec->lock);
    jobs = c->jobs;
    stet__unlock(c->exec->p, c->exec->lock);
    if (jobs > 0)
        return true;
    if (c->stuck_code != 0 && r->text[0] == '\0') {
        char asked[256];

        (void)snprintf(asked, sizeof asked, "asked for %s",
                       c->stuck_asked != NULL ? c->stuck_asked : "?");
        replay_contradiction(c, c->stuck_recorded != NULL ? c->stuck_recorded : "something else",
                             asked);
    } else if (c->latch == 0)
        replay_compare(c);
    if (c->latch == 0)
        c->latch = STET_SUSPENDED;
    (void)stet__ctx_catch_up(c); /* frees what bodies that were not entered had */
    return false;
}

static void
replay_gone(stet_ctx *c)
{
    (void)c;
}

static void
replay_after_turn(stet__exec *x, bool is_free)
{
    (void)x;
    (void)is_free;
}

static void
replay_look_soon(stet__exec *x)
{
    (void)x;
}

static bool
replay_may_execute(stet_ctx *c)
{
    (void)c;
    return false;
}

static bool
replay_crumb_set(stet_ctx *c, stet_attempt *a)
{
    char asked[256];

    if (a == NULL)
        return true;
    replay_asked(asked, sizeof asked, STET__FACT_STEP, stet_text(a->step), (int64_t)a->occurrence);
    (void)replay_ends(c, asked, !a->future->is_sync);
    return false;
}

static void
replay_crumb(stet_ctx *c, stet_attempt *a)
{
    (void)c;
    (void)a;
}

static int
replay_state_read(stet_ctx *c, const char *name, stet_bytes *value, int64_t *writer)
{
    char asked[256];

    (void)value;
    (void)writer;
    replay_asked(asked, sizeof asked, STET__FACT_STATE_GET, stet_text(name), 1);
    return replay_ends(c, asked, false);
}

static int
replay_child(stet_ctx *c, stet_id *id, stet__fact *started, const char *handler, stet_bytes input,
             const stet_start_options *options, bool is_call)
{
    char asked[256];

    (void)id;
    (void)started;
    (void)input;
    (void)options;
    (void)snprintf(asked, sizeof asked, "asked to %s %s", is_call ? "call" : "send to", handler);
    return replay_ends(c, asked, false);
}

static int
replay_child_existing(stet_ctx *c, const stet__fact *started, stet_id *existing)
{
    (void)started;
    (void)existing;
    return replay_ends(c, "asked for another run", false);
}

static int64_t
replay_tx_limit(stet_ctx *c)
{
    return replay_of(c)->engine->config.lease_ms / 3;
}

static int
replay_tx_begin(stet_ctx *c, stet_attempt *a, int64_t limit_ms)
{
    (void)c;
    (void)a;
    (void)limit_ms;
    return STET_EUSAGE; /* no body is entered */
}

static int
replay_tx_record(stet_ctx *c, stet_attempt *a, stet__fact *fact)
{
    (void)a;
    return replay_append(c, fact, NULL);
}

static int64_t
replay_now_ms(stet_ctx *c)
{
    return stet__store_now(replay_of(c)->engine);
}

static int64_t
replay_payload_max(stet_ctx *c)
{
    return replay_of(c)->engine->config.payload_bytes_max;
}

static void
replay_log(stet_ctx *c, stet_level level, const char *step, int code, const stet_log_field *fields,
           size_t n, const char *message)
{
    (void)c;
    (void)level;
    (void)step;
    (void)code;
    (void)fields;
    (void)n;
    (void)message;
}

static const stet__host_ops replay_host = {
    .begin = replay_begin,
    .append = replay_append,
    .commit = replay_commit,
    .commit_now = replay_commit,
    .is_durable = replay_is_durable,
    .is_ahead = replay_is_ahead,
    .suspend = replay_suspend,
    .refresh = replay_refresh,
    .end = replay_end,
    .gone = replay_gone,
    .after_turn = replay_after_turn,
    .look_soon = replay_look_soon,
    .may_execute = replay_may_execute,
    .crumb_set = replay_crumb_set,
    .crumb_rest = replay_crumb,
    .crumb_spent = replay_crumb,
    .state_read = replay_state_read,
    .tell = replay_tell,
    .child = replay_child,
    .child_existing = replay_child_existing,
    .tx_limit = replay_tx_limit,
    .tx_begin = replay_tx_begin,
    .tx_record = replay_tx_record,
    .tx_rollback = replay_crumb,
    .now_ms = replay_now_ms,
    .payload_max = replay_payload_max,
    .log = replay_log,
};

/* ---- the replay ------------------------------------------------------------------------------ */

static int
replay_execute(replay *r)
{
    stet__platform *p = r->engine->p;
    stet__mutex     lock;
    stet__exec      x;
    stet_ctx       *c;
    int             err;

    if ((err = p->ops->mutex_init(p, &lock)) != STET_OK)
        return err;
    if ((err = stet__exec_init(&x, p, &replay_host, &lock, 1,
                               (size_t)r->engine->config.stack_bytes)) == STET_OK) {
        stet__lock(p, &lock);
        if ((c = stet__exec_new(&x, r->handler->fn, r)) == NULL)
            err = stet__fail(STET_ENOMEM, "out of memory for a replay");
        else
            stet__exec_submit(&x, c);
        stet__unlock(p, &lock);
        if (c != NULL)
            stet__exec_run(&x);
        stet__exec_free(&x);
    }
    p->ops->mutex_destroy(p, &lock);
    if (err == STET_OK && r->err != STET_OK)
        return r->err;
    return err != STET_OK || r->text[0] == '\0' ? err : stet__fail(STET_EREPLAY, "%s", r->text);
}

int
stet__kit_replay(stet_engine *e, stet_id run)
{
    replay r = { .engine = e };
    int    err = stet__load(e, &r.whole, run, false);

    if (err != STET_OK)
        return err;
    if ((r.handler = stet__handler_find(e, r.whole.row.handler)) == NULL)
        err = stet__fail(STET_ENOHANDLER, "%s is not registered in this kit", r.whole.row.handler);
    else
        err = replay_execute(&r);
    stet__loaded_free(&r.whole);
    return err;
}

static int
replay_main(stet_engine *e, void *arg)
{
    return stet__kit_replay(e, *(const stet_id *)arg);
}

int
stet_test_replay(stet_test *kit, const stet_run_id *run)
{
    stet_id id;
    int     err;

    if ((err = stet__kit_enter(kit, "stet_test_replay")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK ||
        (err = stet_test_run_until_idle(kit)) != STET_OK)
        return err;
    return stet__kit_do(kit, replay_main, &id, NULL);
}
