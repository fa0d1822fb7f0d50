/* Batches that one of the quick functions may take (postgres_quick_functions.c says what they do):
 * which they are, their arguments, the answer.
 *
 * Such a function applies the whole batch or leaves it to the commit's own function, so what is
 * asked here is only whether it would understand everything. Not behind a pooler: the settings
 * below would be somebody else's. Locks: commit_lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgres.h"

/* Names are the system's, a small table is not read from end to end by a plan that outlives its
 * smallness, and nothing is compiled for a few rows. A server may be told to be quick rather than
 * safe; a commit here is one that lasts, also after the server's settings were changed. A path with
 * pg_temp in it costs a third more: it is worked out anew for every expression. */
#define QUICK_SETTINGS                                                                             \
    "SET search_path=pg_catalog; SET jit=off; SET enable_seqscan=off; "                            \
    "SELECT set_config('synchronous_commit',CASE s WHEN 'off' THEN 'on' ELSE s END,false) "        \
    "FROM current_setting('synchronous_commit') s"

#define QUICK_FACTS_MAX 4096 /* bytes of a run that come with its grant */

/* clang-format off */
/* Columns of steps, in the order of the function's arguments. */
enum {
    STEP_RUN, STEP_EPOCH, STEP_INBOX, STEP_SEQ, STEP_COND, STEP_REV, STEP_COUNT, STEP_DATA,
    SET_RUN, SET_MASK, SET_STATUS, SET_TERMINAL, SET_IDLE, SET_DUE, SET_ENDED, SET_ATTEMPT,
    SET_REASON, SET_EXTRA,
    VALUE_SPACE, VALUE_KEY, VALUE_DATA, VALUE_RUN, VALUE_REV,
    TIMER_FIRE, TIMER_RUN, TIMER_COMPLETION, STEP_COLS
};

static const struct {
    Oid array, element;
} step_types[STEP_COLS] = {
    [STEP_RUN] = { PG_UUIDS, PG_UUID },     [STEP_EPOCH] = { PG_INT8S, PG_INT8 },
    [STEP_INBOX] = { PG_INT8S, PG_INT8 },   [STEP_SEQ] = { PG_INT8S, PG_INT8 },
    [STEP_COND] = { PG_INT4S, PG_INT4 },    [STEP_REV] = { PG_INT8S, PG_INT8 },
    [STEP_COUNT] = { PG_INT4S, PG_INT4 },   [STEP_DATA] = { PG_BYTEAS, PG_BYTEA },
    [SET_RUN] = { PG_UUIDS, PG_UUID },      [SET_MASK] = { PG_INT4S, PG_INT4 },
    [SET_STATUS] = { PG_INT4S, PG_INT4 },   [SET_TERMINAL] = { PG_BOOLS, PG_BOOL },
    [SET_IDLE] = { PG_BOOLS, PG_BOOL },     [SET_DUE] = { PG_INT8S, PG_INT8 },
    [SET_ENDED] = { PG_INT8S, PG_INT8 },    [SET_ATTEMPT] = { PG_INT4S, PG_INT4 },
    [SET_REASON] = { PG_BYTEAS, PG_BYTEA }, [SET_EXTRA] = { PG_BYTEAS, PG_BYTEA },
    [VALUE_SPACE] = { PG_BYTEAS, PG_BYTEA },[VALUE_KEY] = { PG_BYTEAS, PG_BYTEA },
    [VALUE_DATA] = { PG_BYTEAS, PG_BYTEA }, [VALUE_RUN] = { PG_UUIDS, PG_UUID },
    [VALUE_REV] = { PG_INT8S, PG_INT8 },    [TIMER_FIRE] = { PG_INT8S, PG_INT8 },
    [TIMER_RUN] = { PG_UUIDS, PG_UUID },    [TIMER_COMPLETION] = { PG_INT8S, PG_INT8 },
};
/* clang-format on */

static bool
quick_is_small(const stet_op *op)
{
    return op->data.len <= PG_DATA_MAX && op->key.len <= PG_KEY_MAX;
}

/* A value that is no baseline and is simply written. */
static bool
quick_is_put(const stet_op *op)
{
    return op->kind == STET_OP_VALUE_PUT && op->space != NULL && !stet__pg_is_base(op->space) &&
           op->flags == 0 && quick_is_small(op);
}

/* One call; *res is NULL when the function left it, or failed: the other one knows why. */
static int
quick_call(pg_store *st, pg_sql which, const pg_args *args, PGresult **res, pg_quick *out)
{
    pg_link *c = &st->writer;
    char     state[6];
    int      err;

    *res = NULL;
    if (!c->is_set) {
        if ((err = stet__pg_conn_need(st, c)) != STET_OK)
            return err;
        if (atomic_load(&st->is_pooled) ||
            stet__pg_exec(st, c, QUICK_SETTINGS, NULL, "set it up") != STET_OK)
            return STET_OK;
        c->is_set = true;
    }
    c->behind = st->n_behind > 0 ? st->behind : NULL;
    c->behind_on = st->behind_on;
    c->behind_keys = st->n_behind_keys > 0 ? st->behind_keys : NULL;
    err = stet__pg_query_state(st, c, which, args, res, "commit", state);
    c->behind = NULL;
    if (err != STET_OK) {
        out->is_lost = state[0] == '\0';
        return out->is_lost ? err : STET_OK;
    }
    if (PQntuples(*res) != 1 || PQgetisnull(*res, 0, 0)) {
        PQclear(*res);
        *res = NULL;
        return STET_OK;
    }
    out->now_ms = stet__pg_int8(*res, 0, 0);
    return STET_OK;
}

static void
quick_arg_some(pg_args *args, const stet_id *id)
{
    stet__pg_arg_raw(args, PG_UUID, id != NULL && !stet__id_is_zero(*id) ? id->bytes : NULL, 16);
}

/* ---- what is told ---------------------------------------------------------------------------- */

/* Those who watch are told with the commit, in the same round trip, if nothing but what the unit
 * does decides what. *is_told: then the engine need not. */
static void
quick_tell(pg_store *st, const char *channel, const void *bytes, size_t len, bool *is_told)
{
#ifdef LIBPQ_HAS_PIPELINING
    *is_told =
        stet__pg_is_told(st) && !st->base.is_mute && stet__pg_behind(st, channel, bytes, len);
#else
    (void)st;
    (void)channel;
    (void)bytes;
    (void)len;
    *is_told = false;
#endif
}

/* The end of a run: to those who wait for it. */
static void
quick_tell_end(pg_store *st, const stet_id *run, bool *is_told)
{
    int bucket = PG_ENDS_KEY(stet__pg_ends_bucket(run));

    quick_tell(st, st->ends, run->bytes, sizeof run->bytes, is_told);
    if (!*is_told)
        return;
    if (st->n_behind_keys == 0)
        st->n_behind_keys =
            (size_t)snprintf(st->behind_keys, sizeof st->behind_keys, "{%d}", PG_ENDS_KEY(PG_ENDS));
    st->n_behind_keys +=
        (size_t)snprintf(st->behind_keys + st->n_behind_keys - 1,
                         sizeof st->behind_keys - st->n_behind_keys + 1, ",%d}", bucket) -
        1;
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct quick_step {
    const stet_unit *unit;
    size_t           at; /* its place in the batch */
    const stet_cond *claim, *inbox;
    const stet_op   *facts, *set;
    bool             is_told;
} quick_step;

typedef struct quick_steps {
    quick_step      *steps; /* by ID of the run */
    const stet_op  **puts;  /* by space and key */
    size_t           n, n_puts;
    pg_col           cols[STEP_COLS], seqs, names;
    const stet_unit *look;    /* for due work, or NULL */
    size_t           look_at; /* its place in the batch */
} quick_steps;

/* It sets the run aside, or ends it, and that is all it does to it. */
static bool
step_is_set(const stet_op *op, const stet_id *run)
{
    const uint32_t least = STET_RUN_STATUS | STET_RUN_OWNER,
                   most = least | STET_RUN_ATTEMPT | STET_RUN_REASON | STET_RUN_EXTRA;

    return op->kind == STET_OP_RUN_SET && op->row != NULL && op->row->session == 0 &&
           op->row->is_terminal <= 1 && op->row->extra.len <= PG_DATA_MAX &&
           (op->mask & least) == least && (op->mask & ~most) == 0 &&
           stet__id_equal(op->row->id, *run);
}

static bool
step_has_conds(quick_step *s)
{
    const stet_unit *u = s->unit;

    if (u->n_conds < 1 || u->n_conds > 2 || u->conds[0].kind != STET_COND_CLAIM ||
        u->conds[0].session == 0)
        return false;
    s->claim = &u->conds[0];
    s->inbox = u->n_conds == 2 ? &u->conds[1] : NULL;
    return s->inbox == NULL ||
           (s->inbox->kind == STET_COND_INBOX && stet__id_equal(s->inbox->run, s->claim->run));
}

static bool
step_fits(quick_step *s, quick_steps *q)
{
    const stet_unit *u = s->unit;

    if (!step_has_conds(s))
        return false;
    for (size_t i = 0; i < u->n_ops; i++) {
        const stet_op *op = &u->ops[i];

        if (op->kind == STET_OP_FACTS && s->facts == NULL && s->set == NULL && op->count > 0 &&
            op->flags == 0 && quick_is_small(op) && stet__id_equal(op->run, s->claim->run))
            s->facts = op;
        else if (s->set == NULL && step_is_set(op, &s->claim->run))
            s->set = op;
        else if (quick_is_put(op))
            q->puts[q->n_puts++] = op;
        else if (op->kind != STET_OP_TIMER_PUT)
            return false;
    }
    return s->facts != NULL;
}

static int
step_compare(const void *a, const void *b)
{
    return memcmp(((const quick_step *)a)->claim->run.bytes,
                  ((const quick_step *)b)->claim->run.bytes, 16);
}

static int
step_bytes_compare(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t least = a_len < b_len ? a_len : b_len;
    int    is = least > 0 ? memcmp(a, b, least) : 0;

    return is != 0 ? is : (a_len > b_len) - (a_len < b_len);
}

static int
step_put_compare(const void *a, const void *b)
{
    const stet_op *x = *(const stet_op *const *)a, *y = *(const stet_op *const *)b;
    int            is = strcmp(x->space, y->space);

    return is != 0 ? is : step_bytes_compare(x->key.data, x->key.len, y->key.data, y->key.len);
}

/* A run, and a value, is written by one unit only. */
static bool
steps_are_apart(quick_steps *q)
{
    qsort(q->steps, q->n, sizeof *q->steps, step_compare);
    for (size_t i = 1; i < q->n; i++)
        if (step_compare(&q->steps[i - 1], &q->steps[i]) == 0 ||
            q->steps[i - 1].claim->session != q->steps[i].claim->session)
            return false;
    if (q->n_puts > 1)
        qsort(q->puts, q->n_puts, sizeof *q->puts, step_put_compare);
    for (size_t i = 1; i < q->n_puts; i++)
        if (step_put_compare(&q->puts[i - 1], &q->puts[i]) == 0)
            return false;
    return true;
}

static bool
quick_is_look(const stet_unit *u)
{
    const stet_op *op = u->ops;

    return u->n_conds == 0 && u->n_ops == 1 && op->kind == STET_OP_CLAIM_DUE &&
           op->claimer != NULL && op->claimer->session != 0 && op->claimer->n_handlers > 0 &&
           op->count > 0;
}

/* The look is made behind all steps: what those behind it make due must not be found by it. */
static bool
steps_fit(quick_steps *q, const stet_unit *units, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        quick_step *s = &q->steps[q->n];

        if (q->look == NULL && quick_is_look(&units[i])) {
            q->look = &units[i];
            q->look_at = i;
            continue;
        }
        s->unit = &units[i];
        s->at = i;
        if (!step_fits(s, q) ||
            (q->look != NULL && s->set != NULL && s->set->row->due_ms != STET_NEVER))
            return false;
        q->n++;
    }
    return q->n > 0 && steps_are_apart(q) &&
           (q->look == NULL || q->look->ops->claimer->session == q->steps[0].claim->session);
}

static void
step_encode_set(pg_store *st, pg_col *cols, const stet_op *op)
{
    const stet_run_row *row = op->row;
    bool                is_quiet = row->status < 64 && (st->base.quiet >> row->status & 1u) != 0;
    bool                is_idle = row->due_ms == STET_NEVER && row->is_terminal == 0 && !is_quiet;

    stet__pg_col_raw(&cols[SET_RUN], row->id.bytes, 16);
    stet__pg_col_int4(&cols[SET_MASK], op->mask);
    stet__pg_col_int4(&cols[SET_STATUS], row->status);
    stet__pg_col_raw(&cols[SET_TERMINAL], row->is_terminal != 0 ? "\1" : "\0", 1);
    stet__pg_col_raw(&cols[SET_IDLE], is_idle ? "\1" : "\0", 1);
    stet__pg_col_time(&cols[SET_DUE], row->due_ms);
    stet__pg_col_time(&cols[SET_ENDED], row->ended_ms);
    stet__pg_col_int4(&cols[SET_ATTEMPT], row->attempt);
    stet__pg_col_text(&cols[SET_REASON], row->reason);
    stet__pg_col_raw(&cols[SET_EXTRA], row->extra.data, row->extra.len);
}

static void
step_encode(pg_store *st, pg_col *cols, const quick_step *s)
{
    stet__pg_col_raw(&cols[STEP_RUN], s->claim->run.bytes, 16);
    stet__pg_col_int8(&cols[STEP_EPOCH], s->claim->epoch);
    if (s->inbox == NULL)
        stet__pg_col_null(&cols[STEP_INBOX]);
    else
        stet__pg_col_int8(&cols[STEP_INBOX], s->inbox->number);
    stet__pg_col_int8(&cols[STEP_SEQ], s->unit->seq);
    stet__pg_col_int4(&cols[STEP_COND], (uint32_t)s->unit->n_conds);
    stet__pg_col_int8(&cols[STEP_REV], s->facts->number);
    stet__pg_col_int4(&cols[STEP_COUNT], s->facts->count);
    stet__pg_col_raw(&cols[STEP_DATA], s->facts->data.data, s->facts->data.len);
    if (s->set != NULL)
        step_encode_set(st, cols, s->set);
    for (size_t i = 0; i < s->unit->n_ops; i++) {
        const stet_op *op = &s->unit->ops[i];

        if (op->kind != STET_OP_TIMER_PUT)
            continue;
        stet__pg_col_int8(&cols[TIMER_FIRE], (uint64_t)op->fire_ms);
        stet__pg_col_raw(&cols[TIMER_RUN], op->run.bytes, 16);
        stet__pg_col_int8(&cols[TIMER_COMPLETION], op->number);
    }
}

static void
step_encode_put(pg_col *cols, const stet_op *op)
{
    stet__pg_col_text(&cols[VALUE_SPACE], op->space);
    stet__pg_col_raw(&cols[VALUE_KEY], op->key.data, op->key.len);
    stet__pg_col_raw(&cols[VALUE_DATA], op->data.data, op->data.len);
    if (stet__id_is_zero(op->run))
        stet__pg_col_null(&cols[VALUE_RUN]);
    else
        stet__pg_col_raw(&cols[VALUE_RUN], op->run.bytes, 16);
    stet__pg_col_int8(&cols[VALUE_REV], op->number);
}

static void
steps_encode_look(pg_store *st, quick_steps *q, pg_args *args)
{
    const stet_op *op = q->look != NULL ? q->look->ops : NULL;

    stet__pg_arg_int8(args, (int64_t)st->base.sticky);
    stet__pg_arg_int4(args, st->turn);
    stet__pg_arg_int8(args, op != NULL ? (int64_t)q->look->seq : 0);
    stet__pg_arg_int4(args, op != NULL ? (int32_t)op->claimer->running_status : 0);
    stet__pg_arg_int4(args, op != NULL ? (int32_t)op->count : 0);
    stet__pg_arg_raw(args, PG_BYTEAS, op != NULL ? q->names.buf.data : NULL, q->names.buf.len);
    stet__pg_arg_int4(args, QUICK_FACTS_MAX);
    stet__pg_arg_raw(args, PG_BOOL, st->is_alone ? "\1" : "\0", 1);
}

/* Columns without elements are NULL. False: out of memory. */
static bool
steps_encode(pg_store *st, quick_steps *q, const stet_unit *units, pg_args *args)
{
    size_t   n = q->n + (q->look != NULL ? 1 : 0);
    uint64_t first = units[0].seq, last = units[n - 1].seq;
    bool     is_whole = true;

    for (size_t i = 0; i < n; i++)
        stet__pg_col_int8(&q->seqs, units[i].seq);
    for (size_t i = 0; i < q->n; i++) {
        step_encode(st, q->cols, &q->steps[i]);
        if (q->steps[i].set != NULL && q->steps[i].set->row->is_terminal != 0)
            quick_tell_end(st, &q->steps[i].claim->run, &q->steps[i].is_told);
    }
    for (size_t i = 0; i < q->n_puts; i++)
        step_encode_put(q->cols, q->puts[i]);
    stet__pg_arg_raw(args, PG_UUID, st->base.committer.bytes, 16);
    stet__pg_arg_raw(args, PG_BYTEA, st->token_hash, sizeof st->token_hash);
    stet__pg_arg_int8(args, atomic_load(&st->advance_ms));
    stet__pg_arg_int8(args, (int64_t)q->steps[0].claim->session);
    stet__pg_arg_int8(args, (int64_t)first);
    stet__pg_arg_int8(args, (int64_t)last);
    is_whole = stet__pg_col_end(&q->seqs, PG_INT8);
    stet__pg_arg_raw(args, PG_INT8S, last - first + 1 != n ? q->seqs.buf.data : NULL,
                     q->seqs.buf.len);
    for (int i = 0; i < STEP_COLS; i++) {
        is_whole = stet__pg_col_end(&q->cols[i], step_types[i].element) && is_whole;
        stet__pg_arg_raw(args, step_types[i].array, q->cols[i].n > 0 ? q->cols[i].buf.data : NULL,
                         q->cols[i].buf.len);
    }
    steps_encode_look(st, q, args);
    return is_whole;
}

static int
look_nonsense(pg_store *st)
{
    return stet__fail(STET_EUNCERTAIN, "store %s: the server's function answered nonsense",
                      st->name);
}

/* Facts of the runs that were granted, copied to where the grants are. */
static int
look_facts(pg_store *st, pg_array_reader *facts, uint8_t *to, stet_outcome *outcome)
{
    for (size_t i = 0; i < outcome->n_grants; i++) {
        stet_bytes of;

        if (!stet__pg_array_next(facts, &of))
            return look_nonsense(st);
        if (of.len == 0)
            continue;
        outcome->grants[i].facts = (stet_bytes){ memcpy(to, of.data, of.len), of.len };
        to += of.len;
    }
    return STET_OK;
}

/* Seven columns from `col` on: turn, next due, the grants (run, epoch, inbox, facts), and whether all
 * are of one handler. No array: nothing was granted. `extra` bytes behind the grants are the
 * caller's. */
static int
look_answer(pg_store *st, const PGresult *res, int col, size_t extra, stet_outcome *outcome)
{
    pg_array        runs, epochs, inboxes;
    pg_array_reader facts;
    size_t          bytes;

    st->turn = stet__pg_int4(res, 0, col);
    outcome->next_due_ms = stet__pg_int8(res, 0, col + 1);
    if (PQgetisnull(res, 0, col + 2))
        return STET_OK;
    if (!stet__pg_array_get(res, 0, col + 2, 16, &runs) ||
        !stet__pg_array_get(res, 0, col + 3, 8, &epochs) ||
        !stet__pg_array_get(res, 0, col + 4, 8, &inboxes) || epochs.n != runs.n ||
        inboxes.n != runs.n || !stet__pg_array_read(res, 0, col + 5, runs.n, &facts))
        return look_nonsense(st);
    st->is_alone = stet__pg_bool(res, 0, col + 6);
    bytes = runs.n * sizeof *outcome->grants + extra;
    if ((outcome->grants = stet__get0(st->base.alloc, bytes + (size_t)(facts.end - facts.at))) ==
        NULL)
        return stet__fail(STET_EUNCERTAIN, "store %s: out of memory after a commit", st->name);
    for (size_t i = 0; i < runs.n; i++) {
        outcome->grants[i].run = stet__pg_array_id(&runs, i);
        outcome->grants[i].epoch = stet__pg_array_int8(&epochs, i);
        outcome->grants[i].inbox = stet__pg_array_int8(&inboxes, i);
    }
    outcome->n_grants = runs.n;
    return look_facts(st, &facts, (uint8_t *)outcome->grants + bytes, outcome);
}

static int
steps_send(pg_store *st, quick_steps *q, const stet_unit *units, stet_outcome *outcomes,
           pg_quick *out)
{
    PGresult *res = NULL;
    pg_array  inboxes;
    pg_args   args = { 0 };
    int       err;

    if (!steps_encode(st, q, units, &args))
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if ((err = quick_call(st, PG_SQL_STEPS, &args, &res, out)) != STET_OK || res == NULL)
        return err;
    if (!stet__pg_array_get(res, 0, 1, 8, &inboxes) || inboxes.n != q->n) {
        out->is_lost = true;
        err = stet__fail(STET_EUNCERTAIN, "store %s: the server's function answered nonsense",
                         st->name);
    }
    for (size_t i = 0; err == STET_OK && i < q->n; i++) {
        stet_outcome *outcome = &outcomes[q->steps[i].at];

        outcome->is_told = q->steps[i].is_told;
        outcome->inbox = stet__pg_array_int8(&inboxes, i);
        outcome->cond = outcome->inbox != 0 ? (uint32_t)q->steps[i].unit->n_conds : 0;
    }
    if (err == STET_OK && q->look != NULL &&
        (err = look_answer(st, res, 2, 0, &outcomes[q->look_at])) != STET_OK)
        out->is_lost = true;
    out->is_done = out->has_news = err == STET_OK;
    PQclear(res);
    return err;
}

static int
quick_steps_commit(pg_store *st, const stet_unit *units, size_t n, stet_outcome *outcomes,
                   pg_quick *out)
{
    stet__alloc *alloc = st->base.alloc;
    quick_steps  q = { 0 };
    size_t       n_ops = 0;
    int          err = STET_OK;

    for (size_t i = 0; i < n; i++)
        n_ops += units[i].n_ops;
    for (int i = 0; i < STEP_COLS; i++)
        stet__pg_col_begin(&q.cols[i], st);
    stet__pg_col_begin(&q.seqs, st);
    stet__buf_init(&q.names.buf, alloc);
    q.steps = stet__get0(alloc, n * sizeof *q.steps);
    q.puts = stet__get0(alloc, (n_ops + 1) * sizeof *q.puts);
    if (q.steps == NULL || q.puts == NULL)
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    else if (steps_fit(&q, units, n) &&
             (q.look == NULL ||
              (err = stet__pg_col_texts(st, &q.names, q.look->ops->claimer->handlers,
                                        q.look->ops->claimer->n_handlers)) == STET_OK))
        err = steps_send(st, &q, units, outcomes, out);
    for (int i = 0; i < STEP_COLS; i++)
        stet__buf_free(&q.cols[i].buf);
    stet__buf_free(&q.seqs.buf);
    stet__buf_free(&q.names.buf);
    stet__free(alloc, q.steps);
    stet__free(alloc, q.puts);
    return err;
}

/* ---- wake ------------------------------------------------------------------------------------ */

typedef struct quick_wake {
    const stet_cond *value, *guard;
    const stet_op   *put, *inbox, *wake;
} quick_wake;

static bool
wake_has_conds(quick_wake *w, const stet_unit *u)
{
    for (size_t i = 0; i < u->n_conds; i++) {
        const stet_cond *c = &u->conds[i];

        if (c->kind != STET_COND_VALUE || c->space == NULL || c->key.len > PG_KEY_MAX)
            return false;
        if (stet__pg_is_base(c->space) && c->number == 0 && w->guard == NULL)
            w->guard = c;
        else if (!stet__pg_is_base(c->space) && c->number > 0 && w->value == NULL)
            w->value = c;
        else
            return false;
    }
    return true;
}

static bool
wake_fits(quick_wake *w, const stet_unit *u)
{
    if (!wake_has_conds(w, u))
        return false;
    for (size_t i = 0; i < u->n_ops; i++) {
        const stet_op *op = &u->ops[i];

        if (quick_is_put(op) && w->put == NULL)
            w->put = op;
        else if (op->kind == STET_OP_INBOX && w->inbox == NULL && w->wake == NULL &&
                 quick_is_small(op))
            w->inbox = op;
        else if (op->kind == STET_OP_RUN_WAKE && w->wake == NULL && op->claimer == NULL &&
                 (op->flags & STET_OP_DUE) == 0)
            w->wake = op;
        else
            return false;
    }
    if (w->inbox == NULL || w->wake == NULL || !stet__id_equal(w->inbox->run, w->wake->run) ||
        (w->value == NULL) != (w->put == NULL))
        return false;
    return w->put == NULL || (strcmp(w->put->space, w->value->space) == 0 &&
                              step_bytes_compare(w->put->key.data, w->put->key.len,
                                                 w->value->key.data, w->value->key.len) == 0);
}

static int
quick_wake_commit(pg_store *st, const stet_unit *u, stet_outcome *outcome, pg_quick *out)
{
    PGresult  *res = NULL;
    quick_wake w = { 0 };
    pg_args    args = { 0 };
    uint8_t    told[17] = { 'w' };
    bool       is_told;
    int        err;

    if (!wake_fits(&w, u))
        return STET_OK;
    memcpy(told + 1, w.wake->run.bytes, 16);
    quick_tell(st, st->channel, told, sizeof told, &is_told);
    stet__pg_arg_raw(&args, PG_UUID, st->base.committer.bytes, 16);
    stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
    stet__pg_arg_int8(&args, (int64_t)st->base.sticky);
    stet__pg_arg_int8(&args, (int64_t)u->seq);
    stet__pg_arg_id(&args, &w.inbox->run);
    stet__pg_arg_bytes(&args, w.inbox->data);
    stet__pg_arg_int4(&args, (int32_t)w.wake->status);
    stet__pg_arg_raw(&args, PG_BOOL, (w.wake->flags & STET_OP_HASTEN) != 0 ? "\1" : "\0", 1);
    stet__pg_arg_text(&args, w.put != NULL ? w.put->space : NULL);
    stet__pg_arg_bytes(&args, w.put != NULL ? w.put->key : (stet_bytes){ NULL, 0 });
    stet__pg_arg_int8(&args, w.value != NULL ? (int64_t)w.value->number : 0);
    stet__pg_arg_bytes(&args, w.put != NULL ? w.put->data : (stet_bytes){ NULL, 0 });
    quick_arg_some(&args, w.put != NULL ? &w.put->run : NULL);
    stet__pg_arg_int8(&args, w.put != NULL ? (int64_t)w.put->number : 0);
    stet__pg_arg_text(&args, w.guard != NULL ? w.guard->space : NULL);
    stet__pg_arg_bytes(&args, w.guard != NULL ? w.guard->key : (stet_bytes){ NULL, 0 });
    if ((err = quick_call(st, PG_SQL_WAKE, &args, &res, out)) != STET_OK || res == NULL)
        return err;
    outcome->is_told = is_told;
    out->is_done = out->has_news = true;
    PQclear(res);
    return STET_OK;
}

/* ---- claim ----------------------------------------------------------------------------------- */

enum { CLAIM_TURN = 1, CLAIM_NEWS = 8 };

static int
claim_answer(pg_store *st, const PGresult *res, stet_outcome *outcome)
{
    stet_bytes news = stet__pg_bytes(res, 0, CLAIM_NEWS);
    int        err = look_answer(st, res, CLAIM_TURN, news.len, outcome);

    if (err == STET_OK && outcome->n_grants == 1 && !PQgetisnull(res, 0, CLAIM_NEWS)) {
        outcome->grants[0].news =
            (stet_bytes){ memcpy(outcome->grants + 1, news.data, news.len), news.len };
        outcome->grants[0].is_soft = true;
    }
    return err;
}

static int
quick_claim_commit(pg_store *st, const stet_unit *u, stet_outcome *outcome, pg_quick *out)
{
    const stet_op *op = u->ops;
    PGresult      *res = NULL;
    pg_args        args = { 0 };
    pg_col         names;
    int            err;

    if (!quick_is_look(u))
        return STET_OK;
    if ((err = stet__pg_col_texts(st, &names, op->claimer->handlers, op->claimer->n_handlers)) !=
        STET_OK)
        return err;
    stet__pg_arg_raw(&args, PG_UUID, st->base.committer.bytes, 16);
    stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
    stet__pg_arg_int8(&args, (int64_t)st->base.sticky);
    stet__pg_arg_int4(&args, st->turn);
    stet__pg_arg_int8(&args, (int64_t)u->seq);
    stet__pg_arg_int8(&args, (int64_t)op->claimer->session);
    stet__pg_arg_int4(&args, (int32_t)op->claimer->running_status);
    stet__pg_arg_int4(&args, (int32_t)op->count);
    stet__pg_arg_raw(&args, PG_BYTEAS, names.buf.data, names.buf.len);
    stet__pg_arg_int4(&args, QUICK_FACTS_MAX);
    stet__pg_arg_raw(&args, PG_BOOL, st->is_alone ? "\1" : "\0", 1);
    err = quick_call(st, PG_SQL_CLAIM, &args, &res, out);
    stet__buf_free(&names.buf);
    if (err != STET_OK || res == NULL)
        return err;
    err = claim_answer(st, res, outcome);
    out->is_done = err == STET_OK;
    out->is_lost = err != STET_OK;
    PQclear(res);
    return err;
}

enum { ONE_NOW, ONE_EPOCH, ONE_INBOX, ONE_NEWS };

static int
one_answer(pg_store *st, const PGresult *res, const stet_id *run, stet_outcome *outcome)
{
    stet_bytes  news = stet__pg_bytes(res, 0, ONE_NEWS);
    stet_grant *grant;

    if (PQgetisnull(res, 0, ONE_EPOCH))
        return STET_OK;
    if ((grant = stet__get0(st->base.alloc, sizeof *grant + news.len)) == NULL)
        return stet__fail(STET_EUNCERTAIN, "store %s: out of memory after a commit", st->name);
    grant->run = *run;
    grant->epoch = (uint64_t)stet__pg_int8(res, 0, ONE_EPOCH);
    grant->inbox = (uint64_t)stet__pg_int8(res, 0, ONE_INBOX);
    if ((grant->is_soft = !PQgetisnull(res, 0, ONE_NEWS)))
        grant->news = (stet_bytes){ memcpy(grant + 1, news.data, news.len), news.len };
    outcome->grants = grant;
    outcome->n_grants = 1;
    return STET_OK;
}

static int
quick_one_commit(pg_store *st, const stet_unit *u, stet_outcome *outcome, pg_quick *out)
{
    const stet_op *op = u->ops;
    PGresult      *res = NULL;
    pg_args        args = { 0 };
    pg_col         names;
    int            err;

    if (u->n_conds != 0 || u->n_ops != 1 || op->claimer == NULL || op->claimer->session == 0 ||
        op->claimer->n_handlers == 0)
        return STET_OK;
    if ((err = stet__pg_col_texts(st, &names, op->claimer->handlers, op->claimer->n_handlers)) !=
        STET_OK)
        return err;
    stet__pg_arg_raw(&args, PG_UUID, st->base.committer.bytes, 16);
    stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
    stet__pg_arg_int8(&args, (int64_t)st->base.sticky);
    stet__pg_arg_int8(&args, (int64_t)u->seq);
    stet__pg_arg_int8(&args, (int64_t)op->claimer->session);
    stet__pg_arg_int4(&args, (int32_t)op->claimer->running_status);
    stet__pg_arg_id(&args, &op->run);
    stet__pg_arg_raw(&args, PG_BYTEAS, names.buf.data, names.buf.len);
    err = quick_call(st, PG_SQL_ONE, &args, &res, out);
    stet__buf_free(&names.buf);
    if (err != STET_OK || res == NULL)
        return err;
    err = one_answer(st, res, &op->run, outcome);
    out->is_done = err == STET_OK;
    out->is_lost = err != STET_OK;
    PQclear(res);
    return err;
}

/* ---- which one ------------------------------------------------------------------------------- */

int
stet__pg_quick(pg_store *st, const stet_unit *units, size_t n, stet_outcome *outcomes,
               pg_quick *out)
{
    memset(out, 0, sizeof *out);
    st->n_behind = st->n_behind_keys = 0;
    if (atomic_load(&st->is_pooled) || STET__MUTANT(postgres_fence_dropped))
        return STET_OK;
    if (n > 1 || (units[0].n_conds > 0 && units[0].conds[0].kind == STET_COND_CLAIM))
        return quick_steps_commit(st, units, n, outcomes, out);
    if (units[0].n_ops == 0)
        return STET_OK;
    if (units[0].ops[0].kind == STET_OP_CLAIM_DUE)
        return quick_claim_commit(st, units, outcomes, out);
    if (units[0].ops[0].kind == STET_OP_RUN_WAKE && (units[0].ops[0].flags & STET_OP_DUE) != 0)
        return quick_one_commit(st, units, outcomes, out);
    return quick_wake_commit(st, units, outcomes, out);
}
