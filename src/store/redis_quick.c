/* Commits that one of the quick scripts may take (redis_steps.lua, redis_wake.lua, redis_one.lua
 * and redis_starts.lua say what they do): which they are, their arguments, the answer.
 *
 * Such a script applies the whole commit or does nothing, and then the commit script is asked; so
 * what is asked here is only whether it would understand everything. What it cannot do it never
 * answers, so a server that lost it, or refuses it, is the commit script's affair, too: it knows
 * what to say. Locks: commit_lock.
 */
#include <string.h>

#include "store/redis.h"

#define QUICK_STATUSES     64
#define QUICK_HANDLERS_MAX 512
#define QUICK_LOOK_MAX     256

/* ---- the call -------------------------------------------------------------------------------- */

/* One call; *reply is NULL when the script left it, or could not be called. */
static int
quick_call(redis_store *st, redis_script script, redisReply **reply)
{
    redis_conn *c = &st->writer;
    redis_words w = { 0 };
    bool        is_unknown, is_string;
    int         err;

    *reply = NULL;
    if (st->args.failed) {
        stet__buf_free(&st->args);
        return stet__fail(STET_ENOMEM, "store %s: out of memory before a commit", st->name);
    }
    if ((err = stet__redis_conn_need(st, c)) != STET_OK)
        return err;
    stet__redis_word_script(st, &w, script);
    stet__redis_word_bytes(&w, st->args.data, st->args.len);
    if (!stet__redis_append(c, &w))
        return stet__fail(STET_ENOMEM, "store %s: out of memory before a commit", st->name);
    if (stet__redis_send(st, c, "commit") != STET_OK ||
        stet__redis_answer(st, c, reply, "commit") != STET_OK)
        return STET_EUNCERTAIN;
    is_string = (*reply)->type == REDIS_REPLY_STRING;
    is_unknown = (*reply)->type == REDIS_REPLY_ERROR && strncmp((*reply)->str, "NOSCRIPT", 8) == 0;
    if (is_string) {
        st->n_quick[script]++;
        return STET_OK;
    }
    freeReplyObject(*reply);
    *reply = NULL;
    return is_unknown ? stet__redis_load(st, c, script) : STET_OK; /* for the next one */
}

static int
quick_nonsense(redis_store *st)
{
    return stet__fail(STET_EUNCERTAIN, "store %s: a commit script answered nonsense", st->name);
}

static void
quick_now(redis_store *st, int64_t now_ms)
{
    stet__redis_clock_seen(st, now_ms - atomic_load(&st->advance_ms));
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* A digit for each status: is it in the mask? */
static void
quick_statuses(stet__buf *b, uint64_t mask)
{
    char digits[QUICK_STATUSES];

    for (unsigned i = 0; i < QUICK_STATUSES; i++)
        digits[i] = mask >> i & 1u ? '1' : '0';
    stet__redis_pack_bytes(b, digits, sizeof digits);
}

/* Values one behind the other, in no array: that would be a table. */
static void
quick_begin(redis_store *st)
{
    stet__buf_cut(&st->args, 0);
    stet__redis_pack_text(&st->args, st->self);
}

static void
quick_be64(stet__buf *b, uint64_t v)
{
    uint8_t raw[8];

    stet__redis_put_be64(raw, v);
    stet__redis_pack_bytes(b, raw, sizeof raw);
}

/* Five places: space, key, run, revision, bytes. */
static void
quick_put(stet__buf *b, const stet_op *op)
{
    stet__redis_pack_text(b, op->space);
    stet__redis_pack_bytes(b, op->key.data, op->key.len);
    stet__redis_pack_id(b, op->run);
    quick_be64(b, op->number);
    stet__redis_pack_bytes(b, op->data.data, op->data.len);
}

static bool
quick_is_put(const stet_op *op)
{
    return op->kind == STET_OP_VALUE_PUT && op->space != NULL;
}

static size_t
quick_count(const stet_unit *u, stet_op_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < u->n_ops; i++)
        n += u->ops[i].kind == kind;
    return n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct quick_step {
    const stet_cond *claim, *inbox;
    const stet_op   *facts, *set;
} quick_step;

/* It sets the run aside, or ends it, and that is all it does to it. */
static bool
step_is_set(const stet_op *op, const stet_id *run)
{
    const uint32_t least = STET_RUN_STATUS | STET_RUN_OWNER,
                   most = least | STET_RUN_ATTEMPT | STET_RUN_REASON | STET_RUN_EXTRA;

    return op->kind == STET_OP_RUN_SET && op->row != NULL && op->row->session == 0 &&
           (op->mask & least) == least && (op->mask & ~most) == 0 &&
           stet__id_equal(op->row->id, *run);
}

static bool
step_has_conds(quick_step *s, const stet_unit *u)
{
    if (u->n_conds < 1 || u->n_conds > 2 || u->conds[0].kind != STET_COND_CLAIM ||
        u->conds[0].session == 0)
        return false;
    s->claim = &u->conds[0];
    s->inbox = u->n_conds == 2 ? &u->conds[1] : NULL;
    return s->inbox == NULL ||
           (s->inbox->kind == STET_COND_INBOX && stet__id_equal(s->inbox->run, s->claim->run));
}

static bool
step_fits(quick_step *s, const stet_unit *u)
{
    memset(s, 0, sizeof *s);
    if (!step_has_conds(s, u))
        return false;
    for (size_t i = 0; i < u->n_ops; i++) {
        const stet_op *op = &u->ops[i];

        if (op->kind == STET_OP_FACTS && s->facts == NULL && s->set == NULL && op->count > 0 &&
            op->flags == 0 && stet__id_equal(op->run, s->claim->run))
            s->facts = op;
        else if (s->set == NULL && step_is_set(op, &s->claim->run))
            s->set = op;
        else if (!quick_is_put(op) && op->kind != STET_OP_TIMER_PUT)
            return false;
    }
    return s->facts != NULL;
}

static bool
quick_is_look(const stet_unit *u)
{
    const stet_op *op = u->ops;

    return u->n_conds == 0 && u->n_ops == 1 && op->kind == STET_OP_CLAIM_DUE &&
           op->claimer != NULL && op->claimer->session != 0 && op->claimer->n_handlers > 0 &&
           op->claimer->n_handlers <= QUICK_HANDLERS_MAX && op->count > 0 &&
           op->count <= QUICK_LOOK_MAX;
}

/* All of one session. The look is made behind all steps: what those behind it make due must not
 * be found by it. */
static bool
steps_fit(const stet_unit *units, size_t n, const stet_unit **look, uint64_t *session)
{
    bool leaves_due = false;

    *look = NULL;
    *session = 0;
    for (size_t i = 0; i < n; i++) {
        quick_step s = { 0 };
        uint64_t   of;

        if (*look == NULL && quick_is_look(&units[i])) {
            *look = &units[i];
            of = units[i].ops->claimer->session;
        } else {
            if (!step_fits(&s, &units[i]))
                return false;
            leaves_due = leaves_due || (s.set != NULL && s.set->row->due_ms != STET_NEVER);
            of = s.claim->session;
        }
        if (*session != 0 && *session != of)
            return false;
        *session = of;
    }
    return *look == NULL || !leaves_due;
}

/* Nine values: status, is terminal, ended, due, is to be found, mask, attempt, reason, extra. */
static void
step_encode_set(redis_store *st, const stet_op *op)
{
    const stet_run_row *r = op->row;
    stet__buf          *b = &st->args;

    stet__redis_pack_uint(b, r->status);
    stet__redis_pack_uint(b, r->is_terminal != 0);
    stet__redis_pack_time(b, r->ended_ms);
    stet__redis_pack_time(b, r->due_ms);
    stet__redis_pack_bool(b,
                          r->status >= QUICK_STATUSES || (st->base.quiet >> r->status & 1u) == 0);
    stet__redis_pack_uint(b, op->mask);
    stet__redis_pack_uint(b, r->attempt);
    stet__redis_pack_text(b, (op->mask & STET_RUN_REASON) ? r->reason : NULL);
    stet__redis_pack_bytes(b, r->extra.data, (op->mask & STET_RUN_EXTRA) ? r->extra.len : 0);
}

/* The entry of the journal as it is kept: number, count, facts. */
static void
quick_facts(stet__buf *b, const stet_op *op)
{
    uint8_t head[REDIS_FACTS_HEAD];

    stet__redis_put_be64(head, op->number);
    for (int i = 0; i < 4; i++)
        head[8 + i] = (uint8_t)(op->count >> 8 * (3 - i));
    stet__redis_pack_head(b, sizeof head + op->data.len);
    stet__buf_add(b, head, sizeof head);
    stet__buf_add(b, op->data.data, op->data.len);
}

static void
quick_timers(stet__buf *b, const stet_unit *u)
{
    size_t  n_timers = quick_count(u, STET_OP_TIMER_PUT);
    uint8_t member[REDIS_TIMER_BYTES];

    if (n_timers == 0)
        stet__redis_pack_bool(b, false);
    else
        stet__redis_pack_array(b, n_timers);
    for (size_t i = 0; n_timers > 0 && i < u->n_ops; i++) {
        const stet_op *op = &u->ops[i];

        if (op->kind != STET_OP_TIMER_PUT)
            continue;
        stet__redis_timer_member(member, op->fire_ms, op->run, op->number);
        stet__redis_pack_bytes(b, member, sizeof member);
    }
}

static void
step_encode_puts(stet__buf *b, const stet_unit *u)
{
    size_t n = quick_count(u, STET_OP_VALUE_PUT);

    if (n == 0)
        stet__redis_pack_bool(b, false);
    else
        stet__redis_pack_array(b, 5 * n);
    for (size_t i = 0; n > 0 && i < u->n_ops; i++)
        if (u->ops[i].kind == STET_OP_VALUE_PUT)
            quick_put(b, &u->ops[i]);
}

/* Nine values: epoch, inbox or false, seq, number, count, entry, is anything set, values, timers;
 * each false if there is none. What is set follows, in no array either. */
static void
step_encode(redis_store *st, const stet_unit *u)
{
    stet__buf *b = &st->args;
    quick_step s;

    (void)step_fits(&s, u);
    stet__redis_pack_uint(b, s.claim->epoch);
    if (s.inbox != NULL)
        stet__redis_pack_uint(b, s.inbox->number);
    else
        stet__redis_pack_bool(b, false);
    stet__redis_pack_uint(b, u->seq);
    stet__redis_pack_uint(b, s.facts->number);
    stet__redis_pack_uint(b, s.facts->count);
    quick_facts(b, s.facts);
    stet__redis_pack_bool(b, s.set != NULL);
    step_encode_puts(b, u);
    quick_timers(b, u);
    if (s.set != NULL)
        step_encode_set(st, s.set);
}

/* Seq, count, status, turn, keys of the handlers' ready sets. */
static void
steps_encode_look(redis_store *st, const stet_unit *look)
{
    const stet_op *op = look->ops;
    stet__buf     *b = &st->args;

    stet__redis_pack_array(b, 5);
    stet__redis_pack_uint(b, look->seq);
    stet__redis_pack_uint(b, op->count);
    stet__redis_pack_uint(b, op->claimer->running_status);
    stet__redis_pack_uint(b, st->turn);
    stet__redis_pack_array(b, op->claimer->n_handlers);
    for (size_t i = 0; i < op->claimer->n_handlers; i++) {
        const char *name = op->claimer->handlers[i];
        size_t      len = strlen(st->key), name_len = strlen(name);

        stet__redis_pack_head(b, len + 2 + name_len);
        stet__buf_add(b, st->key, len);
        stet__buf_add(b, "q:", 2);
        stet__buf_add(b, name, name_len);
    }
}

/* Committer, hash of the token, clock ahead, session,
 * first seq, last seq, publish that something changed?, hints at all?, sticky statuses, look or
 * false, IDs of the steps' runs as one string; then the steps. */
static void
steps_encode(redis_store *st, const stet_unit *units, size_t n, const stet_unit *look,
             uint64_t session)
{
    stet__buf *b = &st->args;

    quick_begin(st);
    stet__redis_pack_bytes(b, st->token_hash, sizeof st->token_hash);
    stet__redis_pack_int(b, atomic_load(&st->advance_ms));
    stet__redis_pack_uint(b, session);
    stet__redis_pack_uint(b, units[0].seq);
    stet__redis_pack_uint(b, units[n - 1].seq);
    stet__redis_pack_bool(b, stet__redis_publishes(st, units, n));
    stet__redis_pack_bool(b, !st->base.is_mute);
    quick_statuses(b, st->base.sticky);
    if (look != NULL)
        steps_encode_look(st, look);
    else
        stet__redis_pack_bool(b, false);
    stet__redis_pack_head(b, sizeof(stet_id) * (n - (look != NULL ? 1 : 0)));
    for (size_t i = 0; i < n; i++)
        if (&units[i] != look)
            stet__buf_add(b, units[i].conds[0].run.bytes, sizeof(stet_id));
    for (size_t i = 0; i < n; i++)
        if (&units[i] != look)
            step_encode(st, &units[i]);
}

/* News and journals, packed on their own, and the grants they belong to. */
static int
quick_take_grants(redis_store *st, stet_bytes *in, stet_outcome *out)
{
    stet_bytes news, journals;
    size_t     n;

    if (!stet__redis_take_bytes(in, &news) || !stet__redis_take_array(&news, &n) ||
        !stet__redis_take_bytes(in, &journals) || !stet__redis_take_array(&journals, &n))
        return quick_nonsense(st);
    return stet__redis_grants(st, in, &news, &journals, out);
}

/* [ now, turn, seq and inbox in turn, next due, news, journals, grants ] */
static int
steps_answer(redis_store *st, const redisReply *reply, const stet_unit *units, size_t n,
             const stet_unit *look, stet_outcome *outcomes)
{
    stet_bytes in = { reply->str, reply->len };
    uint64_t   turn, seq;
    int64_t    now_ms, next_due_ms;
    size_t     count, n_steps = n - (look != NULL ? 1 : 0);

    if (!stet__redis_take_array(&in, &count) || count != 7 || !stet__redis_take_int(&in, &now_ms) ||
        !stet__redis_take_uint(&in, &turn) || !stet__redis_take_array(&in, &count) ||
        count != 2 * n_steps)
        return quick_nonsense(st);
    for (size_t i = 0; i < n; i++)
        if (&units[i] != look && (!stet__redis_take_uint(&in, &seq) || seq != units[i].seq ||
                                  !stet__redis_take_uint(&in, &outcomes[i].inbox)))
            return quick_nonsense(st);
    if (!stet__redis_take_time(&in, &next_due_ms))
        return quick_nonsense(st);
    quick_now(st, now_ms);
    if (look == NULL)
        return STET_OK;
    st->turn = turn;
    outcomes[look - units].next_due_ms = next_due_ms;
    return quick_take_grants(st, &in, &outcomes[look - units]);
}

static int
quick_steps(redis_store *st, const stet_unit *units, size_t n, stet_outcome *outcomes,
            bool *is_done)
{
    const stet_unit *look;
    redisReply      *reply = NULL;
    uint64_t         session;
    int              err;

    if (!steps_fit(units, n, &look, &session))
        return STET_OK;
    steps_encode(st, units, n, look, session);
    if ((err = quick_call(st, REDIS_STEPS, &reply)) != STET_OK || reply == NULL)
        return err;
    err = steps_answer(st, reply, units, n, look, outcomes);
    freeReplyObject(reply);
    *is_done = err == STET_OK;
    return err;
}

/* ---- wake ------------------------------------------------------------------------------------ */

typedef struct quick_wake {
    const stet_op *inbox, *wake;
} quick_wake;

static bool
wake_is_twice(const stet_unit *u, size_t at)
{
    const stet_op *op = &u->ops[at];

    for (size_t i = 0; i < at; i++)
        if (u->ops[i].kind == STET_OP_VALUE_PUT && strcmp(u->ops[i].space, op->space) == 0 &&
            u->ops[i].key.len == op->key.len &&
            (op->key.len == 0 || memcmp(u->ops[i].key.data, op->key.data, op->key.len) == 0))
            return true;
    return false;
}

static bool
wake_fits(quick_wake *w, const stet_unit *u)
{
    for (size_t i = 0; i < u->n_conds; i++)
        if (u->conds[i].kind != STET_COND_VALUE || u->conds[i].space == NULL)
            return false;
    for (size_t i = 0; i < u->n_ops; i++) {
        const stet_op *op = &u->ops[i];

        if (op->kind == STET_OP_INBOX && w->inbox == NULL && w->wake == NULL)
            w->inbox = op;
        else if (op->kind == STET_OP_RUN_WAKE && w->wake == NULL && op->claimer == NULL &&
                 (op->flags & STET_OP_DUE) == 0)
            w->wake = op;
        else if (!quick_is_put(op) || wake_is_twice(u, i))
            return false;
    }
    return w->inbox != NULL && w->wake != NULL && stet__id_equal(w->inbox->run, w->wake->run);
}

/* Committer, hash of the token, clock ahead, seq, publish that something changed?, hints at all?,
 * sticky statuses, quiet statuses, run, entry, status, hasten?, values asked for, values. */
static void
wake_encode(redis_store *st, const stet_unit *u, const quick_wake *w)
{
    stet__buf *b = &st->args;

    quick_begin(st);
    stet__redis_pack_bytes(b, st->token_hash, sizeof st->token_hash);
    stet__redis_pack_int(b, atomic_load(&st->advance_ms));
    stet__redis_pack_uint(b, u->seq);
    stet__redis_pack_bool(b, stet__redis_publishes(st, u, 1));
    stet__redis_pack_bool(b, !st->base.is_mute);
    quick_statuses(b, st->base.sticky);
    quick_statuses(b, st->base.quiet);
    stet__redis_pack_id(b, w->inbox->run);
    stet__redis_pack_bytes(b, w->inbox->data.data, w->inbox->data.len);
    stet__redis_pack_uint(b, w->wake->status);
    stet__redis_pack_bool(b, (w->wake->flags & STET_OP_HASTEN) != 0);
    stet__redis_pack_array(b, 3 * u->n_conds);
    for (size_t i = 0; i < u->n_conds; i++) {
        stet__redis_pack_text(b, u->conds[i].space);
        stet__redis_pack_bytes(b, u->conds[i].key.data, u->conds[i].key.len);
        stet__redis_pack_uint(b, u->conds[i].number);
    }
    stet__redis_pack_array(b, 5 * quick_count(u, STET_OP_VALUE_PUT));
    for (size_t i = 0; i < u->n_ops; i++)
        if (u->ops[i].kind == STET_OP_VALUE_PUT)
            quick_put(b, &u->ops[i]);
}

/* [ now ] */
static int
quick_take_now(redis_store *st, const redisReply *reply)
{
    stet_bytes in = { reply->str, reply->len };
    int64_t    now_ms;
    size_t     n;

    if (!stet__redis_take_array(&in, &n) || n != 1 || !stet__redis_take_int(&in, &now_ms))
        return quick_nonsense(st);
    quick_now(st, now_ms);
    return STET_OK;
}

static int
quick_wake_commit(redis_store *st, const stet_unit *u, bool *is_done)
{
    redisReply *reply = NULL;
    quick_wake  w = { 0 };
    int         err;

    if (!wake_fits(&w, u))
        return STET_OK;
    wake_encode(st, u, &w);
    if ((err = quick_call(st, REDIS_WAKE, &reply)) != STET_OK || reply == NULL)
        return err;
    err = quick_take_now(st, reply);
    freeReplyObject(reply);
    *is_done = err == STET_OK;
    return err;
}

/* ---- starts ---------------------------------------------------------------------------------- */

static bool
value_is(const stet_cond *c, const char *space, stet_bytes key)
{
    return strcmp(c->space, space) == 0 && c->key.len == key.len &&
           (key.len == 0 || memcmp(c->key.data, key.data, key.len) == 0);
}

/* Does the unit want this value to be absent? */
static bool
start_wants_absent(const stet_unit *u, const stet_op *put)
{
    for (size_t i = 1; i < u->n_conds; i++)
        if (value_is(&u->conds[i], put->space, put->key))
            return true;
    return false;
}

static bool
start_puts(const stet_unit *u, const stet_cond *c)
{
    for (size_t i = 2; i < u->n_ops; i++)
        if (u->ops[i].kind == STET_OP_VALUE_PUT && value_is(c, u->ops[i].space, u->ops[i].key))
            return true;
    return false;
}

/* There is no such run yet, and what else is to be absent is put, or is a mark that all units
 * ask for alike, and none of them puts. */
static bool
start_has_conds(const stet_unit *u, const stet_unit *first)
{
    const stet_id *run = &u->ops[0].row->id;

    if (u->n_conds == 0 || u->conds[0].kind != STET_COND_JOURNAL || u->conds[0].number != 0 ||
        !stet__id_equal(u->conds[0].run, *run))
        return false;
    for (size_t i = 1; i < u->n_conds; i++) {
        const stet_cond *c = &u->conds[i];
        bool             is_mark = false;

        if (c->kind != STET_COND_VALUE || c->space == NULL || c->number != 0)
            return false;
        if (start_puts(u, c))
            continue;
        for (size_t k = 1; k < first->n_conds && !is_mark; k++)
            is_mark = value_is(&first->conds[k], c->space, c->key);
        if (strncmp(c->space, "base.", 5) != 0 || !is_mark)
            return false;
    }
    return true;
}

static bool
start_fits(const stet_unit *u, const stet_unit *first)
{
    const stet_op *put = u->ops, *facts = u->ops + 1;

    if (u->n_ops < 2 || put->kind != STET_OP_RUN_PUT || put->claimer != NULL || put->flags != 0 ||
        put->row == NULL || put->row->handler == NULL || put->row->is_terminal != 0 ||
        facts->kind != STET_OP_FACTS || facts->flags != 0 || facts->number != 1 ||
        facts->count == 0 || !stet__id_equal(facts->run, put->row->id))
        return false;
    for (size_t i = 2; i < u->n_ops; i++)
        if (!(quick_is_put(&u->ops[i]) && strncmp(u->ops[i].space, "base.", 5) != 0) &&
            u->ops[i].kind != STET_OP_TIMER_PUT)
            return false;
    return start_has_conds(u, first);
}

/* Eight values: seq, row, handler, due or false, the status it is to be found by or false,
 * entry, values, timers. */
static void
start_encode(redis_store *st, const stet_unit *u, stet__buf *scratch)
{
    stet__buf   *b = &st->args;
    stet_run_row row = *u->ops[0].row;
    size_t       n = quick_count(u, STET_OP_VALUE_PUT);

    row.epoch = row.inbox = 0;
    row.journal = u->ops[1].count;
    stet__buf_cut(scratch, 0);
    stet__redis_row(scratch, &row);
    stet__redis_pack_uint(b, u->seq);
    stet__redis_pack_bytes(b, scratch->data, scratch->len);
    stet__redis_pack_text(b, row.handler);
    stet__redis_pack_time(b, row.due_ms);
    if (row.status < QUICK_STATUSES && (st->base.quiet >> row.status & 1u) != 0)
        stet__redis_pack_bool(b, false);
    else
        stet__redis_pack_uint(b, row.status);
    quick_facts(b, &u->ops[1]);
    if (n == 0)
        stet__redis_pack_bool(b, false);
    else
        stet__redis_pack_array(b, 6 * n);
    for (size_t i = 2; n > 0 && i < u->n_ops; i++)
        if (u->ops[i].kind == STET_OP_VALUE_PUT) {
            quick_put(b, &u->ops[i]);
            stet__redis_pack_bool(b, start_wants_absent(u, &u->ops[i]));
        }
    quick_timers(b, u);
}

/* Committer, clock ahead, first seq, last seq,
 * publish that something changed?, hints at all?, marks that must not be there, IDs as one
 * string; then the units. */
static void
starts_encode(redis_store *st, const stet_unit *units, size_t n, stet__buf *scratch)
{
    stet__buf *b = &st->args;
    size_t     n_marks = 0;

    quick_begin(st);
    stet__redis_pack_int(b, atomic_load(&st->advance_ms));
    stet__redis_pack_uint(b, units[0].seq);
    stet__redis_pack_uint(b, units[n - 1].seq);
    stet__redis_pack_bool(b, stet__redis_publishes(st, units, n));
    stet__redis_pack_bool(b, !st->base.is_mute);
    for (size_t i = 1; i < units[0].n_conds; i++)
        n_marks += start_puts(&units[0], &units[0].conds[i]) ? 0 : 1;
    stet__redis_pack_array(b, 2 * n_marks);
    for (size_t i = 1; i < units[0].n_conds; i++)
        if (!start_puts(&units[0], &units[0].conds[i])) {
            stet__redis_pack_text(b, units[0].conds[i].space);
            stet__redis_pack_bytes(b, units[0].conds[i].key.data, units[0].conds[i].key.len);
        }
    stet__redis_pack_head(b, sizeof(stet_id) * n);
    for (size_t i = 0; i < n; i++)
        stet__buf_add(b, units[i].ops[0].row->id.bytes, sizeof(stet_id));
    for (size_t i = 0; i < n; i++)
        start_encode(st, &units[i], scratch);
    b->failed = b->failed || scratch->failed;
}

static int
quick_starts(redis_store *st, const stet_unit *units, size_t n, bool *is_done)
{
    redisReply *reply = NULL;
    stet__buf   scratch;
    int         err;

    for (size_t i = 0; i < n; i++)
        if (!start_fits(&units[i], &units[0]))
            return STET_OK;
    stet__buf_init(&scratch, st->base.alloc);
    starts_encode(st, units, n, &scratch);
    stet__buf_free(&scratch);
    if ((err = quick_call(st, REDIS_STARTS, &reply)) != STET_OK || reply == NULL)
        return err;
    err = quick_take_now(st, reply);
    freeReplyObject(reply);
    *is_done = err == STET_OK;
    return err;
}

/* ---- one run by its name --------------------------------------------------------------------- */

/* Committer, clock ahead, seq, publish that something changed?, sticky statuses, run, session,
 * status, handlers with a NUL before and behind each. */
static void
one_encode(redis_store *st, const stet_unit *u)
{
    const stet_op *op = u->ops;
    stet__buf     *b = &st->args;
    size_t         len = 1;

    quick_begin(st);
    stet__redis_pack_int(b, atomic_load(&st->advance_ms));
    stet__redis_pack_uint(b, u->seq);
    stet__redis_pack_bool(b, stet__redis_publishes(st, u, 1));
    quick_statuses(b, st->base.sticky);
    stet__redis_pack_id(b, op->run);
    stet__redis_pack_uint(b, op->claimer->session);
    stet__redis_pack_uint(b, op->claimer->running_status);
    for (size_t i = 0; i < op->claimer->n_handlers; i++)
        len += strlen(op->claimer->handlers[i]) + 1;
    stet__redis_pack_head(b, len);
    stet__buf_add(b, "", 1);
    for (size_t i = 0; i < op->claimer->n_handlers; i++)
        stet__buf_add(b, op->claimer->handlers[i], strlen(op->claimer->handlers[i]) + 1);
}

/* [ now ], or [ now, news, journals, grants ] */
static int
one_answer(redis_store *st, const redisReply *reply, stet_outcome *outcome)
{
    stet_bytes in = { reply->str, reply->len };
    int64_t    now_ms;
    size_t     n;

    if (!stet__redis_take_array(&in, &n) || (n != 1 && n != 4) ||
        !stet__redis_take_int(&in, &now_ms))
        return quick_nonsense(st);
    quick_now(st, now_ms);
    return n == 1 ? STET_OK : quick_take_grants(st, &in, outcome);
}

static int
quick_one(redis_store *st, const stet_unit *u, stet_outcome *outcome, bool *is_done)
{
    redisReply *reply = NULL;
    int         err;

    if (u->n_conds != 0 || u->n_ops != 1 || u->ops->claimer == NULL ||
        u->ops->claimer->session == 0)
        return STET_OK;
    one_encode(st, u);
    if ((err = quick_call(st, REDIS_ONE, &reply)) != STET_OK || reply == NULL)
        return err;
    err = one_answer(st, reply, outcome);
    freeReplyObject(reply);
    *is_done = err == STET_OK;
    return err;
}

/* ---- which one ------------------------------------------------------------------------------- */

int
stet__redis_quick(redis_store *st, const stet_unit *units, size_t n, stet_outcome *outcomes,
                  bool *is_done)
{
    const stet_unit *u = &units[0];

    *is_done = false;
    if (u->n_ops == 0 || STET__MUTANT(redis_fence_dropped) || !stet__redis_is_part(units, n))
        return STET_OK;
    if (u->ops[0].kind == STET_OP_RUN_PUT)
        return quick_starts(st, units, n, is_done);
    if (n > 1 || (u->n_conds > 0 && u->conds[0].kind == STET_COND_CLAIM) ||
        u->ops[0].kind == STET_OP_CLAIM_DUE)
        return quick_steps(st, units, n, outcomes, is_done);
    if (u->ops[0].kind == STET_OP_RUN_WAKE && (u->ops[0].flags & STET_OP_DUE) != 0)
        return quick_one(st, u, &outcomes[0], is_done);
    return quick_wake_commit(st, u, is_done);
}
