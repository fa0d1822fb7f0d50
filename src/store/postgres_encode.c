/* Units as the arrays that the server's function takes (postgres_function.c says what a line
 * means).
 *
 * A unit is the line that begins it, its conditions, what its operations need to find
 * (postgres_rules.c), and the operations.
 */
#include <stdlib.h>
#include <string.h>

#include "store/postgres_lines.h"

/* clang-format off */
/* Columns, in the order of the function's arguments. */
enum {
    COL_SESSIONS, COL_REAPS, COL_LANES, COL_LEAVES, COL_LOCKS, COL_SPACES, COL_KEYS,
    COL_K, COL_I, COL_F, COL_X, COL_Y, COL_N, COL_S, COL_E, COL_T, COL_RUN, COL_A, COL_B, COL_D,
    COL_HANDLER, COL_KEY, COL_GRP, COL_REASON, COL_EXTRA, COL_STATUS, COL_TERMINAL, COL_EPOCH,
    COL_INBOX, COL_DUE, COL_CREATED, COL_ENDED, COL_PRIORITY, COL_ATTEMPT,
    COL_CSESSION, COL_CSTATUS, COL_CFROM, COL_CTO, COL_CHANDLER, COL_COUNT
};
_Static_assert(COL_COUNT == PG_COLS, "a buffer for each column");

static const struct {
    Oid array, element;
} encode_types[COL_COUNT] = {
    [COL_SESSIONS] = { PG_INT8S, PG_INT8 }, [COL_REAPS] = { PG_INT8S, PG_INT8 },
    [COL_LANES] = { PG_BYTEAS, PG_BYTEA },  [COL_LEAVES] = { PG_UUIDS, PG_UUID },
    [COL_LOCKS] = { PG_UUIDS, PG_UUID },    [COL_SPACES] = { PG_BYTEAS, PG_BYTEA },
    [COL_KEYS] = { PG_BYTEAS, PG_BYTEA },   [COL_K] = { PG_INT4S, PG_INT4 },
    [COL_I] = { PG_INT4S, PG_INT4 },
    [COL_F] = { PG_INT4S, PG_INT4 },        [COL_X] = { PG_INT4S, PG_INT4 },
    [COL_Y] = { PG_INT4S, PG_INT4 },        [COL_N] = { PG_INT8S, PG_INT8 },
    [COL_S] = { PG_INT8S, PG_INT8 },        [COL_E] = { PG_INT8S, PG_INT8 },
    [COL_T] = { PG_INT8S, PG_INT8 },        [COL_RUN] = { PG_UUIDS, PG_UUID },
    [COL_A] = { PG_BYTEAS, PG_BYTEA },      [COL_B] = { PG_BYTEAS, PG_BYTEA },
    [COL_D] = { PG_BYTEAS, PG_BYTEA },      [COL_HANDLER] = { PG_BYTEAS, PG_BYTEA },
    [COL_KEY] = { PG_BYTEAS, PG_BYTEA },    [COL_GRP] = { PG_BYTEAS, PG_BYTEA },
    [COL_REASON] = { PG_BYTEAS, PG_BYTEA }, [COL_EXTRA] = { PG_BYTEAS, PG_BYTEA },
    [COL_STATUS] = { PG_INT4S, PG_INT4 },   [COL_TERMINAL] = { PG_BOOLS, PG_BOOL },
    [COL_EPOCH] = { PG_INT8S, PG_INT8 },    [COL_INBOX] = { PG_INT8S, PG_INT8 },
    [COL_DUE] = { PG_INT8S, PG_INT8 },      [COL_CREATED] = { PG_INT8S, PG_INT8 },
    [COL_ENDED] = { PG_INT8S, PG_INT8 },    [COL_PRIORITY] = { PG_INT4S, PG_INT4 },
    [COL_ATTEMPT] = { PG_INT4S, PG_INT4 },  [COL_CSESSION] = { PG_INT8S, PG_INT8 },
    [COL_CSTATUS] = { PG_INT4S, PG_INT4 },  [COL_CFROM] = { PG_INT4S, PG_INT4 },
    [COL_CTO] = { PG_INT4S, PG_INT4 },      [COL_CHANDLER] = { PG_BYTEAS, PG_BYTEA },
};

/* clang-format on */

#define VALUE_BASE   1 /* flags of lines about values */
#define VALUE_NEW    2
#define VALUE_GUARD  4 /* a condition: relies on what is absent staying so until the commit */
#define VALUE_SETTLE 8 /* … and a put that waits for those who do */

/* ---- columns --------------------------------------------------------------------------------- */

#define COL_HEAD 20

static void
col_be32(uint8_t out[4], uint32_t v)
{
    out[0] = (uint8_t)(v >> 24);
    out[1] = (uint8_t)(v >> 16);
    out[2] = (uint8_t)(v >> 8);
    out[3] = (uint8_t)v;
}

/* One dimension from 1 on, with NULLs perhaps. */
static void
col_head(uint8_t *head, Oid element, uint32_t n)
{
    col_be32(head, 1);
    col_be32(head + 4, 1);
    col_be32(head + 8, element);
    col_be32(head + 12, n);
    col_be32(head + 16, 1);
}

void
stet__pg_col_begin(pg_col *c, pg_store *st)
{
    static const uint8_t none[COL_HEAD];

    c->n = 0;
    stet__buf_init(&c->buf, st->base.alloc);
    stet__buf_add(&c->buf, none, COL_HEAD);
}

bool
stet__pg_col_end(pg_col *c, Oid element)
{
    if (!c->buf.failed)
        col_head(c->buf.data, element, c->n);
    return !c->buf.failed;
}

void
stet__pg_col_raw(pg_col *c, const void *data, size_t len)
{
    uint8_t head[4];

    col_be32(head, (uint32_t)len);
    stet__buf_add(&c->buf, head, 4);
    stet__buf_add(&c->buf, data, len);
    c->n++;
}

void
stet__pg_col_null(pg_col *c)
{
    static const uint8_t none[4] = { 0xff, 0xff, 0xff, 0xff };

    stet__buf_add(&c->buf, none, 4);
    c->n++;
}

void
stet__pg_col_int4(pg_col *c, uint32_t v)
{
    uint8_t raw[4];

    col_be32(raw, v);
    stet__pg_col_raw(c, raw, 4);
}

void
stet__pg_col_int8(pg_col *c, uint64_t v)
{
    uint8_t raw[8];

    col_be32(raw, (uint32_t)(v >> 32));
    col_be32(raw + 4, (uint32_t)v);
    stet__pg_col_raw(c, raw, 8);
}

void
stet__pg_col_time(pg_col *c, int64_t ms)
{
    if (ms == STET_NEVER)
        stet__pg_col_null(c);
    else
        stet__pg_col_int8(c, (uint64_t)ms);
}

void
stet__pg_col_text(pg_col *c, const char *text)
{
    if (text == NULL)
        stet__pg_col_null(c);
    else
        stet__pg_col_raw(c, text, strlen(text));
}

static void
col_raw(pg_batch *b, int col, const void *data, size_t len)
{
    stet__pg_col_raw(&b->cols[col], data, len);
}

static void
col_null(pg_batch *b, int col)
{
    stet__pg_col_null(&b->cols[col]);
}

static void
col_int4(pg_batch *b, int col, uint32_t v)
{
    stet__pg_col_int4(&b->cols[col], v);
}

static void
col_int8(pg_batch *b, int col, uint64_t v)
{
    stet__pg_col_int8(&b->cols[col], v);
}

static void
col_time(pg_batch *b, int col, int64_t ms)
{
    stet__pg_col_time(&b->cols[col], ms);
}

static void
col_text(pg_batch *b, int col, const char *text)
{
    stet__pg_col_text(&b->cols[col], text);
}

static void
col_bytes(pg_batch *b, int col, stet_bytes bytes)
{
    col_raw(b, col, bytes.data, bytes.len);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Does it look at the row of its run? */
static bool
line_needs_row(const pg_line *l)
{
    return (l->kind > LINE_UNIT && l->kind < LINE_VALUE) ||
           (l->kind >= DO_PUT && l->kind < DO_TIMER_PUT);
}

void
stet__pg_line(pg_batch *b, const pg_line *l)
{
    static const stet_id none;

    stet__buf_add(&b->places, line_needs_row(l) ? l->run->bytes : none.bytes, 16);
    col_int4(b, COL_K, (uint32_t)l->kind);
    col_int4(b, COL_F, l->f);
    col_int4(b, COL_X, l->x);
    col_int4(b, COL_Y, l->y);
    col_int8(b, COL_N, l->n);
    col_int8(b, COL_S, l->s);
    col_int8(b, COL_E, l->e);
    col_int8(b, COL_T, (uint64_t)l->t);
    if (l->run == NULL)
        col_null(b, COL_RUN);
    else
        col_raw(b, COL_RUN, l->run->bytes, 16);
    col_text(b, COL_A, l->a);
    if (l->has_b)
        col_bytes(b, COL_B, l->b);
    else
        col_null(b, COL_B);
    if (l->has_d)
        col_bytes(b, COL_D, l->d);
    else
        col_null(b, COL_D);
}

void
stet__pg_line_fail(pg_batch *b, int code)
{
    stet__pg_line(b, &(pg_line){ .kind = LINE_FAIL, .x = (uint32_t)code });
}

bool
stet__pg_is_base(const char *space)
{
    return strncmp(space, "base.", 5) == 0;
}

/* ---- what is locked first -------------------------------------------------------------------- */

void
stet__pg_lock_run(pg_batch *b, const stet_id *run)
{
    stet__buf_add(&b->locks, run->bytes, 16);
}

static int
lock_compare(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

/* The runs in one order, each once; and the place of its run for each line. */
static void
lock_order(pg_batch *b)
{
    uint8_t *ids = b->locks.data;
    size_t   n = b->locks.len / 16, unique = 0;
    uint32_t place = 0;

    if (n > 0)
        qsort(ids, n, 16, lock_compare);
    for (size_t i = 0; i < n; i++)
        if (unique == 0 || memcmp(ids + 16 * (unique - 1), ids + 16 * i, 16) != 0)
            memmove(ids + 16 * unique++, ids + 16 * i, 16);
    for (size_t i = 0; i < unique; i++)
        col_raw(b, COL_LOCKS, ids + 16 * i, 16);
    for (size_t i = 0; i < b->places.len; i += 16) {
        const uint8_t *id = b->places.data + i;

        if (i == 0 || memcmp(id, id - 16, 16) != 0) {
            const uint8_t *at = unique > 0 ? bsearch(id, ids, unique, 16, lock_compare) : NULL;

            place = at != NULL ? (uint32_t)((size_t)(at - ids) / 16 + 1) : 0;
        }
        col_int4(b, COL_I, place);
    }
}

static void
lock_value(pg_batch *b, const char *space, stet_bytes key)
{
    if (stet__pg_is_base(space))
        return;
    col_text(b, COL_SPACES, space);
    col_bytes(b, COL_KEYS, key);
}

/* Its number, from 1; 0: none. Most units of a batch have the same. */
static uint32_t
encode_claimer(pg_batch *b, const stet_claimer *claimer, bool is_look)
{
    uint32_t n;

    if (claimer == NULL)
        return 0;
    if (!is_look && claimer->session != 0 && claimer->session != b->locked) {
        col_int8(b, COL_SESSIONS, claimer->session);
        b->locked = claimer->session;
    }
    if (b->claimer != NULL && b->claimer->session == claimer->session &&
        b->claimer->handlers == claimer->handlers &&
        b->claimer->n_handlers == claimer->n_handlers &&
        b->claimer->running_status == claimer->running_status)
        return b->cols[COL_CSESSION].n;
    b->claimer = claimer;
    col_int8(b, COL_CSESSION, claimer->session);
    col_int4(b, COL_CSTATUS, claimer->running_status);
    n = b->cols[COL_CHANDLER].n;
    col_int4(b, COL_CFROM, n + 1);
    for (size_t i = 0; i < claimer->n_handlers; i++)
        col_text(b, COL_CHANDLER, claimer->handlers[i]);
    col_int4(b, COL_CTO, b->cols[COL_CHANDLER].n);
    return b->cols[COL_CSESSION].n;
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* A unit of this call, but of a part that was submitted before, has its answer. */
static void
encode_relies(pg_batch *b, const stet_unit *units, const stet_outcome *outcomes, size_t from,
              size_t at, uint64_t seq)
{
    uint32_t place = 0;

    for (size_t i = at; i > 0; i--) {
        if (units[i - 1].seq != seq)
            continue;
        if (i - 1 >= from)
            place = (uint32_t)(i - from);
        else if (outcomes[i - 1].result != STET_OK) {
            stet__pg_line_fail(b, STET_ECONFLICT);
            return;
        }
        break;
    }
    stet__pg_line(b, &(pg_line){ .kind = LINE_RELIES, .x = place });
}

static const stet_id *
encode_some(const stet_id *id)
{
    return stet__id_is_zero(*id) ? NULL : id;
}

static bool
encode_is_same(const char *space, stet_bytes key, const char *other_space, stet_bytes other)
{
    return key.len == other.len && strcmp(space, other_space) == 0 &&
           (key.len == 0 || memcmp(key.data, other.data, key.len) == 0);
}

/* Is it absent, and does the unit leave it so? No row can be locked then. Who puts it himself finds
 * out about others when he does. */
static bool
encode_is_guard(const stet_unit *u, const stet_cond *c)
{
    if (c->kind != STET_COND_VALUE || c->number != 0 || !stet__pg_is_base(c->space))
        return false;
    for (size_t i = 0; i < u->n_ops; i++)
        if (u->ops[i].kind == STET_OP_VALUE_PUT && u->ops[i].space != NULL &&
            encode_is_same(u->ops[i].space, u->ops[i].key, c->space, c->key))
            return false;
    return true;
}

static void
encode_cond(pg_batch *b, const stet_unit *u, const stet_cond *c)
{
    pg_line l = { .run = &c->run, .n = c->number, .s = c->session, .e = c->epoch };

    if (STET__MUTANT(postgres_fence_dropped) && c->kind == STET_COND_CLAIM)
        return;
    switch (c->kind) {
    case STET_COND_CLAIM: l.kind = LINE_CLAIM; break;
    case STET_COND_JOURNAL: l.kind = LINE_JOURNAL; break;
    case STET_COND_INBOX: l.kind = LINE_INBOX; break;
    case STET_COND_PARKED: l.kind = LINE_PARKED; break;
    case STET_COND_VALUE:
    case STET_COND_WRITER:
        if (c->space == NULL) {
            stet__pg_line_fail(b, STET_EINVAL);
            return;
        }
        l.kind = c->kind == STET_COND_VALUE ? LINE_VALUE : LINE_WRITER;
        l.f = stet__pg_is_base(c->space) ? VALUE_BASE : 0;
        if (encode_is_guard(u, c))
            l.f |= VALUE_GUARD;
        l.a = c->space;
        l.b = c->key;
        l.has_b = true;
        l.run = encode_some(&c->run);
        lock_value(b, c->space, c->key);
        break;
    case STET_COND_TIMER:
        l.kind = LINE_TIMER;
        l.t = c->fire_ms;
        break;
    case STET_COND_SESSION_DEAD: l.kind = LINE_DEAD; break;
    default: stet__pg_line_fail(b, STET_EINVAL); return;
    }
    if (l.kind < RULE_EXISTS || l.kind == LINE_TIMER)
        stet__pg_lock_run(b, &c->run);
    stet__pg_line(b, &l);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Its number, from 1. */
static uint32_t
encode_row(pg_batch *b, const stet_run_row *row)
{
    col_text(b, COL_HANDLER, row->handler);
    col_text(b, COL_KEY, row->key);
    col_text(b, COL_GRP, row->group);
    col_text(b, COL_REASON, row->reason);
    col_bytes(b, COL_EXTRA, row->extra);
    col_int4(b, COL_STATUS, row->status);
    col_raw(b, COL_TERMINAL, row->is_terminal ? "\1" : "\0", 1);
    col_int8(b, COL_EPOCH, row->epoch);
    col_int8(b, COL_INBOX, row->inbox);
    col_time(b, COL_DUE, row->due_ms);
    col_int8(b, COL_CREATED, (uint64_t)row->created_ms);
    col_time(b, COL_ENDED, row->ended_ms);
    col_int4(b, COL_PRIORITY, (uint32_t)row->priority);
    col_int4(b, COL_ATTEMPT, row->attempt);
    return b->cols[COL_STATUS].n;
}

/* Was it found absent by a condition, and not written since? */
static bool
encode_is_new(const stet_unit *u, const stet_op *op)
{
    bool is_new = false;

    for (size_t i = 0; i < u->n_conds; i++) {
        const stet_cond *c = &u->conds[i];

        if (c->kind == STET_COND_VALUE && c->number == 0 &&
            encode_is_same(c->space, c->key, op->space, op->key))
            is_new = true;
    }
    for (const stet_op *before = u->ops; is_new && before < op; before++)
        if ((before->kind == STET_OP_VALUE_PUT || before->kind == STET_OP_VALUE_DEL) &&
            encode_is_same(before->space, before->key, op->space, op->key))
            return false;
    return is_new;
}

static void
encode_value_op(pg_batch *b, const stet_unit *u, const stet_op *op)
{
    pg_line l = { .kind = op->kind == STET_OP_VALUE_PUT ? DO_VALUE_PUT : DO_VALUE_DEL,
                  .f = stet__pg_is_base(op->space) ? VALUE_BASE : 0,
                  .a = op->space,
                  .b = op->key,
                  .has_b = true,
                  .d = op->data,
                  .has_d = op->kind == STET_OP_VALUE_PUT,
                  .run = encode_some(&op->run),
                  .n = op->number };

    if (l.has_d && encode_is_new(u, op))
        l.f |= VALUE_NEW;
    if (l.has_d && (op->flags & STET_OP_SETTLE) != 0)
        l.f |= VALUE_SETTLE;
    lock_value(b, op->space, op->key);
    stet__pg_line(b, &l);
}

static void
encode_row_op(pg_batch *b, const stet_op *op)
{
    pg_line l = { .run = &op->row->id, .f = op->mask };

    l.y = encode_row(b, op->row);
    if (op->kind == STET_OP_RUN_SET)
        l.kind = DO_SET;
    else if ((op->flags & STET_OP_RESTORE) != 0)
        l.kind = DO_RESTORE;
    else {
        l.kind = DO_PUT;
        l.x = encode_claimer(b, op->claimer, false);
    }
    stet__pg_lock_run(b, &op->row->id);
    stet__pg_line(b, &l);
}

static void
encode_run_op(pg_batch *b, const stet_op *op)
{
    pg_line l = { .run = &op->run, .f = op->flags, .x = op->status };

    switch (op->kind) {
    case STET_OP_FACTS:
        l.kind = DO_FACTS;
        l.n = op->number;
        l.s = op->session;
        l.x = op->count;
        l.d = op->data;
        l.has_d = true;
        break;
    case STET_OP_INBOX:
        l.kind = DO_INBOX;
        l.d = op->data;
        l.has_d = true;
        break;
    case STET_OP_LANE_ENTER:
        l.kind = DO_ENTER;
        l.a = op->lane;
        col_text(b, COL_LANES, op->lane);
        break;
    case STET_OP_LANE_LEAVE: l.kind = DO_LEAVE; break;
    case STET_OP_RUN_DEL: l.kind = DO_DEL; break;
    default: l.kind = DO_WAKE; break;
    }
    if (l.kind == DO_LEAVE || l.kind == DO_DEL)
        col_raw(b, COL_LEAVES, op->run.bytes, 16);
    l.y = encode_claimer(b, op->claimer, false);
    stet__pg_lock_run(b, &op->run);
    stet__pg_line(b, &l);
}

static void
encode_op(pg_batch *b, const stet_unit *u, const stet_op *op)
{
    pg_line l = {
        .run = &op->run, .n = op->number, .t = op->fire_ms, .x = op->status, .s = op->session
    };

    switch (op->kind) {
    case STET_OP_RUN_PUT:
    case STET_OP_RUN_SET: encode_row_op(b, op); return;
    case STET_OP_VALUE_PUT:
    case STET_OP_VALUE_DEL: encode_value_op(b, u, op); return;
    case STET_OP_TIMER_PUT: l.kind = DO_TIMER_PUT; break;
    case STET_OP_TIMER_DEL: l.kind = DO_TIMER_DEL; break;
    case STET_OP_CLAIM_DUE:
        l.kind = DO_CLAIM_DUE;
        l.x = op->count;
        l.y = encode_claimer(b, op->claimer, !b->has_more);
        break;
    case STET_OP_REAP:
    case STET_OP_BURY:
        l.kind = op->kind == STET_OP_REAP ? DO_REAP : DO_BURY;
        col_int8(b, COL_REAPS, op->session);
        break;
    case STET_OP_REQUEUE:
        l.kind = DO_REQUEUE;
        l.y = encode_claimer(b, op->claimer, false);
        break;
    default: encode_run_op(b, op); return;
    }
    stet__pg_line(b, &l);
}

/* ---- the batch ------------------------------------------------------------------------------- */

static int
encode_unit(pg_batch *b, const stet_unit *units, const stet_outcome *outcomes, size_t from,
            size_t at)
{
    const stet_unit *u = &units[at];
    int              err;

    stet__pg_line(b, &(pg_line){ .kind = LINE_UNIT, .n = u->seq, .x = (uint32_t)u->n_conds });
    for (size_t i = 0; i < u->n_conds; i++)
        if (u->conds[i].kind == STET_COND_UNIT)
            encode_relies(b, units, outcomes, from, at, u->conds[i].number);
        else
            encode_cond(b, u, &u->conds[i]);
    err = stet__pg_rules(b, u);
    if (err == STET_ENOMEM)
        return err;
    if (err != STET_OK)
        stet__pg_line_fail(
            b, err); /* after the questions of the operations before: they may refuse it first */
    for (size_t i = 0; err == STET_OK && i < u->n_ops; i++)
        encode_op(b, u, &u->ops[i]);
    return STET_OK;
}

static bool
encode_has_more(const stet_unit *units, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (units[i].n_conds > 0)
            return true;
        for (size_t j = 0; j < units[i].n_ops; j++)
            if (units[i].ops[j].kind != STET_OP_CLAIM_DUE)
                return true;
    }
    return false;
}

void
stet__pg_batch_init(pg_batch *b, pg_store *st)
{
    memset(b, 0, sizeof *b);
    b->st = st;
    for (int i = 0; i < PG_COLS; i++)
        stet__pg_col_begin(&b->cols[i], st);
    stet__buf_init(&b->locks, st->base.alloc);
    stet__buf_init(&b->places, st->base.alloc);
}

void
stet__pg_batch_free(pg_batch *b)
{
    for (int i = 0; i < PG_COLS; i++)
        stet__buf_free(&b->cols[i].buf);
    stet__buf_free(&b->locks);
    stet__buf_free(&b->places);
}

int
stet__pg_batch_encode(pg_batch *b, const stet_unit *units, const stet_outcome *outcomes,
                      size_t from, size_t to)
{
    b->has_more = encode_has_more(units, from, to);
    for (size_t i = from; i < to; i++)
        if (encode_unit(b, units, outcomes, from, i) != STET_OK)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", b->st->name);
    if (b->locks.failed || b->places.failed)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", b->st->name);
    lock_order(b);
    for (int i = 0; i < PG_COLS; i++)
        if (!stet__pg_col_end(&b->cols[i], encode_types[i].element))
            return stet__fail(STET_ENOMEM, "store %s: out of memory", b->st->name);
    return STET_OK;
}

void
stet__pg_batch_args(pg_batch *b, pg_args *args)
{
    for (int i = 0; i < PG_COLS; i++)
        stet__pg_arg_raw(args, encode_types[i].array, b->cols[i].buf.data, b->cols[i].buf.len);
}

int
stet__pg_col_texts(pg_store *st, pg_col *col, const char *const *texts, size_t n)
{
    uint8_t head[COL_HEAD];

    stet__buf_init(&col->buf, st->base.alloc);
    col->n = (uint32_t)n;
    col_head(head, PG_BYTEA, col->n);
    stet__buf_add(&col->buf, head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        col_be32(head, (uint32_t)strlen(texts[i]));
        stet__buf_add(&col->buf, head, 4);
        stet__buf_str(&col->buf, texts[i]);
    }
    if (!col->buf.failed)
        return STET_OK;
    stet__buf_free(&col->buf);
    return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
}
