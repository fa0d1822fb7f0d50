/* Units as the argument of redis_commit.lua.
 *
 * [ committer, hash of the token, clock ahead, sticky statuses, quiet statuses, turn, seq of the
 * call's first unit,
 *   seq of the unit before this part (0: none), publish that something changed?, hints at all?,
 *   claimers, IDs of runs to fetch together, units ]
 * A unit is [ seq, conditions, operations ]; conditions and operations are [ kind, … ] with the
 * numbers of stet/sys/store.h. One that cannot be right is sent as OP_INVALID: it is refused by the
 * script, so that its answer is remembered like any other.
 */
#include <string.h>

#include "store/redis.h"

#define ENCODE_COND_INVALID 9
#define ENCODE_INVALID      16
#define ENCODE_TOOBIG       17
#define PART_UNITS          256
#define PART_BYTES          ((size_t)4 << 20)

/* Claimers are few and shared by many operations: each is sent once. */
typedef struct encode {
    redis_store *st;
    stet__buf   *b;
    stet__buf    claimers; /* pointers to those that differ */
} encode;

/* ---- parts ----------------------------------------------------------------------------------- */

static size_t
op_bytes(const stet_op *op)
{
    size_t bytes = op->data.len + op->key.len;

    if (op->row != NULL)
        bytes += op->row->extra.len;
    return bytes;
}

static size_t
unit_bytes(const stet_unit *unit)
{
    size_t bytes = 0;

    for (size_t i = 0; i < unit->n_ops; i++)
        bytes += op_bytes(&unit->ops[i]);
    return bytes;
}

/* A part is one call of the script; while it runs the server does nothing else. */
size_t
stet__redis_part(const stet_unit *units, size_t n, size_t from)
{
    size_t bytes = 0, to = from;

    while (to < n && to - from < PART_UNITS &&
           (to == from || bytes + unit_bytes(&units[to]) <= PART_BYTES))
        bytes += unit_bytes(&units[to++]);
    return to - from;
}

bool
stet__redis_is_part(const stet_unit *units, size_t n)
{
    return n <= PART_UNITS && stet__redis_part(units, n, 0) == n &&
           unit_bytes(&units[0]) <= PART_BYTES;
}

/* ---- claimers -------------------------------------------------------------------------------- */

static const stet_claimer *
claimer_at(const encode *e, size_t i)
{
    return ((const stet_claimer *const *)(const void *)e->claimers.data)[i];
}

static size_t
claimer_count(const encode *e)
{
    return e->claimers.len / sizeof(const stet_claimer *);
}

static bool
claimer_equal(const stet_claimer *a, const stet_claimer *b)
{
    return a == b || (a->session == b->session && a->running_status == b->running_status &&
                      a->handlers == b->handlers && a->n_handlers == b->n_handlers);
}

/* 0: none. */
static size_t
claimer_number(encode *e, const stet_claimer *claimer)
{
    if (claimer == NULL)
        return 0;
    for (size_t i = claimer_count(e); i > 0; i--)
        if (claimer_equal(claimer_at(e, i - 1), claimer))
            return i;
    stet__buf_add(&e->claimers, &claimer, sizeof claimer);
    return claimer_count(e);
}

static void
encode_claimer(encode *e, const stet_claimer *claimer)
{
    stet__redis_pack_array(e->b, 3);
    stet__redis_pack_uint(e->b, claimer->session);
    stet__redis_pack_uint(e->b, claimer->running_status);
    stet__redis_pack_array(e->b, claimer->n_handlers);
    for (size_t i = 0; i < claimer->n_handlers; i++)
        stet__redis_pack_text(e->b, claimer->handlers[i]);
}

static void
collect_claimers(encode *e, const stet_unit *units, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        for (size_t j = 0; j < units[i].n_ops; j++)
            (void)claimer_number(e, units[i].ops[j].claimer);
    stet__redis_pack_array(e->b, claimer_count(e));
    for (size_t i = 0; i < claimer_count(e); i++)
        encode_claimer(e, claimer_at(e, i));
}

/* ---- conditions ------------------------------------------------------------------------------ */

static void
encode_be64(stet__buf *b, uint64_t v)
{
    uint8_t raw[8];

    stet__redis_put_be64(raw, v);
    stet__redis_pack_bytes(b, raw, sizeof raw);
}

static void
encode_timer(stet__buf *b, int64_t fire_ms, stet_id run, uint64_t completion)
{
    uint8_t member[REDIS_TIMER_BYTES];

    stet__redis_timer_member(member, fire_ms, run, completion);
    stet__redis_pack_bytes(b, member, sizeof member);
}

static bool
cond_is_valid(const stet_cond *c)
{
    if (c->kind == STET_COND_VALUE || c->kind == STET_COND_WRITER)
        return c->space != NULL;
    return (unsigned)c->kind <= STET_COND_UNIT;
}

static void
encode_head(stet__buf *b, size_t n, int kind)
{
    stet__redis_pack_array(b, n);
    stet__redis_pack_uint(b, (uint64_t)kind);
}

static void
encode_cond(stet__buf *b, const stet_cond *c)
{
    static const uint8_t sizes[] = { 4, 3, 3, 4, 2, 2, 5, 5, 2 };

    if (!cond_is_valid(c)) {
        encode_head(b, 1, ENCODE_COND_INVALID);
        return;
    }
    if (STET__MUTANT(redis_fence_dropped) && c->kind == STET_COND_CLAIM) {
        encode_head(b, 2, (int)STET_COND_UNIT); /* of an earlier call: always fine */
        stet__redis_pack_uint(b, 0);
        return;
    }
    encode_head(b, sizes[c->kind], (int)c->kind);
    switch (c->kind) {
    case STET_COND_CLAIM:
        stet__redis_pack_id(b, c->run);
        stet__redis_pack_uint(b, c->session);
        stet__redis_pack_uint(b, c->epoch);
        break;
    case STET_COND_JOURNAL:
    case STET_COND_INBOX:
        stet__redis_pack_id(b, c->run);
        stet__redis_pack_uint(b, c->number);
        break;
    case STET_COND_VALUE:
        stet__redis_pack_text(b, c->space);
        stet__redis_pack_bytes(b, c->key.data, c->key.len);
        stet__redis_pack_uint(b, c->number);
        break;
    case STET_COND_TIMER: encode_timer(b, c->fire_ms, c->run, c->number); break;
    case STET_COND_SESSION_DEAD: stet__redis_pack_uint(b, c->session); break;
    case STET_COND_PARKED:
        stet__redis_pack_id(b, c->run);
        stet__redis_pack_uint(b, c->session);
        stet__redis_pack_uint(b, c->epoch);
        stet__redis_pack_uint(b, c->number);
        break;
    case STET_COND_WRITER:
        stet__redis_pack_text(b, c->space);
        stet__redis_pack_bytes(b, c->key.data, c->key.len);
        stet__redis_pack_id(b, c->run);
        encode_be64(b, c->number);
        break;
    case STET_COND_UNIT: stet__redis_pack_uint(b, c->number); break;
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

static bool
op_is_valid(const stet_op *o)
{
    switch (o->kind) {
    case STET_OP_RUN_PUT:
        if (o->row == NULL || o->row->handler == NULL)
            return stet__fail(STET_EINVAL, "a run to put has no row or no handler"), false;
        return true;
    case STET_OP_RUN_SET:
        if (o->row == NULL || ((o->mask & STET_RUN_OWNER) && o->row->session != 0))
            return stet__fail(STET_EINVAL, "a run to set has no row, or one with a session"), false;
        return true;
    case STET_OP_FACTS:
        if (o->count == 0)
            return stet__fail(STET_EINVAL, "an operation appends no facts"), false;
        return true;
    case STET_OP_VALUE_PUT:
    case STET_OP_VALUE_DEL:
        if (o->space == NULL)
            return stet__fail(STET_EINVAL, "a value to put or remove names no space"), false;
        return true;
    case STET_OP_LANE_ENTER:
        if (o->lane == NULL)
            return stet__fail(STET_EINVAL, "a run enters a lane without a name"), false;
        return true;
    case STET_OP_CLAIM_DUE:
    case STET_OP_REQUEUE:
        if (o->claimer == NULL)
            return stet__fail(STET_EINVAL,
                              "due runs are to be claimed, or queued again, for nobody"),
                   false;
        return true;
    case STET_OP_REAP:
        if (o->session == 0)
            return stet__fail(STET_EINVAL, "session 0 cannot be reaped"), false;
        return true;
    default: break;
    }
    if ((unsigned)o->kind > STET_OP_BURY)
        return stet__fail(STET_EINVAL, "there is no operation of kind %d", (int)o->kind), false;
    return true;
}

/* redis_read.c reads them in this order. */
void
stet__redis_row(stet__buf *b, const stet_run_row *r)
{
    stet__redis_pack_array(b, 17);
    stet__redis_pack_text(b, r->handler);
    stet__redis_pack_text(b, r->key);
    stet__redis_pack_bool(b, false); /* lane */
    stet__redis_pack_uint(b, r->status);
    stet__redis_pack_uint(b, r->is_terminal != 0);
    stet__redis_pack_uint(b, 0); /* session */
    stet__redis_pack_uint(b, r->epoch);
    stet__redis_pack_uint(b, r->journal);
    stet__redis_pack_uint(b, r->inbox);
    stet__redis_pack_time(b, r->due_ms);
    stet__redis_pack_int(b, r->created_ms);
    stet__redis_pack_time(b, r->ended_ms);
    stet__redis_pack_int(b, r->priority);
    stet__redis_pack_uint(b, r->attempt);
    stet__redis_pack_text(b, r->group);
    stet__redis_pack_text(b, r->reason);
    stet__redis_pack_bytes(b, r->extra.data, r->extra.len);
}

static void
encode_set(stet__buf *b, const stet_op *o)
{
    const stet_run_row *r = o->row;

    encode_head(b, 10, STET_OP_RUN_SET);
    stet__redis_pack_id(b, r->id);
    stet__redis_pack_uint(b, o->mask);
    stet__redis_pack_uint(b, r->status);
    stet__redis_pack_uint(b, r->is_terminal != 0);
    stet__redis_pack_time(b, r->ended_ms);
    stet__redis_pack_time(b, r->due_ms);
    stet__redis_pack_uint(b, r->attempt);
    stet__redis_pack_text(b, (o->mask & STET_RUN_REASON) ? r->reason : NULL);
    stet__redis_pack_bytes(b, r->extra.data, (o->mask & STET_RUN_EXTRA) ? r->extra.len : 0);
}

static void
encode_put(encode *e, const stet_op *o)
{
    encode_head(e->b, 5, STET_OP_RUN_PUT);
    stet__redis_pack_uint(e->b, o->flags & STET_OP_RESTORE);
    stet__redis_pack_id(e->b, o->row->id);
    stet__redis_row(e->b, o->row);
    stet__redis_pack_uint(e->b, claimer_number(e, o->claimer));
}

static void
encode_lane(encode *e, const stet_op *o)
{
    encode_head(e->b, 6, STET_OP_LANE_ENTER);
    stet__redis_pack_id(e->b, o->run);
    stet__redis_pack_text(e->b, o->lane);
    stet__redis_pack_uint(e->b, o->flags & STET_OP_HASTEN);
    stet__redis_pack_uint(e->b, o->status);
    stet__redis_pack_uint(e->b, claimer_number(e, o->claimer));
}

/* The entry as it is kept: number, count, facts. */
static void
encode_facts(stet__buf *b, const stet_op *o)
{
    uint8_t head[12];

    encode_head(b, 6, STET_OP_FACTS);
    stet__redis_pack_id(b, o->run);
    stet__redis_pack_uint(b, o->number);
    stet__redis_pack_uint(b, o->count);
    if (o->flags & STET_OP_ANEW)
        stet__redis_pack_uint(b, o->session);
    else
        stet__redis_pack_bool(b, false);
    stet__redis_put_be64(head, o->number);
    for (int i = 0; i < 4; i++)
        head[8 + i] = (uint8_t)(o->count >> 8 * (3 - i));
    stet__redis_pack_head(b, sizeof head + o->data.len);
    stet__buf_add(b, head, sizeof head);
    stet__buf_add(b, o->data.data, o->data.len);
}

static void
encode_value(stet__buf *b, const stet_op *o)
{
    encode_head(b, o->kind == STET_OP_VALUE_PUT ? 6 : 3, (int)o->kind);
    stet__redis_pack_text(b, o->space);
    stet__redis_pack_bytes(b, o->key.data, o->key.len);
    if (o->kind == STET_OP_VALUE_DEL)
        return;
    stet__redis_pack_bytes(b, o->data.data, o->data.len);
    stet__redis_pack_id(b, o->run);
    encode_be64(b, o->number);
}

static void
encode_op(encode *e, const stet_op *o)
{
    stet__buf *b = e->b;

    if (!op_is_valid(o)) {
        encode_head(b, 1, ENCODE_INVALID);
        return;
    }
    switch (o->kind) {
    case STET_OP_RUN_PUT: encode_put(e, o); break;
    case STET_OP_RUN_SET: encode_set(b, o); break;
    case STET_OP_RUN_WAKE:
        encode_head(b, 5, STET_OP_RUN_WAKE);
        stet__redis_pack_id(b, o->run);
        stet__redis_pack_uint(b, o->flags & STET_OP_DUE ? STET_OP_DUE : o->flags & STET_OP_HASTEN);
        stet__redis_pack_uint(b, o->status);
        stet__redis_pack_uint(b, claimer_number(e, o->claimer));
        break;
    case STET_OP_FACTS: encode_facts(b, o); break;
    case STET_OP_INBOX:
        encode_head(b, 4, STET_OP_INBOX);
        stet__redis_pack_id(b, o->run);
        stet__redis_pack_uint(b, o->flags & STET_OP_IF_OPEN);
        stet__redis_pack_bytes(b, o->data.data, o->data.len);
        break;
    case STET_OP_TIMER_PUT:
    case STET_OP_TIMER_DEL:
        encode_head(b, 2, (int)o->kind);
        encode_timer(b, o->fire_ms, o->run, o->number);
        break;
    case STET_OP_VALUE_PUT:
    case STET_OP_VALUE_DEL: encode_value(b, o); break;
    case STET_OP_LANE_ENTER: encode_lane(e, o); break;
    case STET_OP_LANE_LEAVE:
    case STET_OP_RUN_DEL:
        encode_head(b, 4, (int)o->kind);
        stet__redis_pack_id(b, o->run);
        stet__redis_pack_uint(b, o->status);
        stet__redis_pack_uint(b, claimer_number(e, o->claimer));
        break;
    case STET_OP_CLAIM_DUE:
        encode_head(b, 3, STET_OP_CLAIM_DUE);
        stet__redis_pack_uint(b, o->count);
        stet__redis_pack_uint(b, claimer_number(e, o->claimer));
        break;
    case STET_OP_REAP:
        encode_head(b, 3, STET_OP_REAP);
        stet__redis_pack_uint(b, o->session);
        stet__redis_pack_uint(b, o->status);
        break;
    case STET_OP_REQUEUE:
        encode_head(b, 4, STET_OP_REQUEUE);
        stet__redis_pack_uint(b, o->status);
        stet__redis_pack_uint(b, o->number);
        stet__redis_pack_uint(b, claimer_number(e, o->claimer));
        break;
    case STET_OP_BURY:
        encode_head(b, 2, STET_OP_BURY);
        stet__redis_pack_uint(b, o->session);
        break;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void
encode_unit(encode *e, const stet_unit *u)
{
    stet__redis_pack_array(e->b, 3);
    stet__redis_pack_uint(e->b, u->seq);
    stet__redis_pack_array(e->b, u->n_conds);
    for (size_t i = 0; i < u->n_conds; i++)
        encode_cond(e->b, &u->conds[i]);
    if (unit_bytes(u) > REDIS_DATA_MAX) {
        (void)stet__fail(STET_ETOOBIG, "a unit has more than %u bytes", REDIS_DATA_MAX);
        stet__redis_pack_array(e->b, 1);
        encode_head(e->b, 1, ENCODE_TOOBIG);
        return;
    }
    stet__redis_pack_array(e->b, u->n_ops);
    for (size_t i = 0; i < u->n_ops; i++)
        encode_op(e, &u->ops[i]);
}

static const stet_id *
op_run(const stet_op *o)
{
    switch (o->kind) {
    case STET_OP_RUN_PUT:
    case STET_OP_RUN_SET: return o->row != NULL ? &o->row->id : NULL;
    case STET_OP_RUN_WAKE:
    case STET_OP_FACTS:
    case STET_OP_INBOX:
    case STET_OP_LANE_ENTER:
    case STET_OP_LANE_LEAVE:
    case STET_OP_RUN_DEL: return &o->run;
    default: return NULL;
    }
}

static void
collect_id(stet__buf *list, const stet_id *id)
{
    size_t size = sizeof id->bytes;

    /* Mostly the same run several times in turn; the script drops the other repeats. */
    if (list->len >= size && memcmp(list->data + list->len - size, id->bytes, size) == 0)
        return;
    stet__buf_add(list, id->bytes, size);
}

/* Rows that will be needed, fetched by the script with one command. */
static bool
collect_ids(encode *e, const stet_unit *units, size_t from, size_t to)
{
    stet__buf list;
    bool      is_ok;

    stet__buf_init(&list, e->st->base.alloc);
    for (size_t i = from; i < to; i++) {
        for (size_t j = 0; j < units[i].n_conds; j++)
            if (units[i].conds[j].kind == STET_COND_CLAIM ||
                units[i].conds[j].kind == STET_COND_PARKED)
                collect_id(&list, &units[i].conds[j].run);
        for (size_t j = 0; j < units[i].n_ops; j++)
            if (op_run(&units[i].ops[j]) != NULL)
                collect_id(&list, op_run(&units[i].ops[j]));
    }
    is_ok = !list.failed;
    stet__redis_pack_array(e->b, list.len / sizeof(stet_id));
    for (size_t at = 0; at < list.len; at += sizeof(stet_id))
        stet__redis_pack_bytes(e->b, list.data + at, sizeof(stet_id));
    stet__buf_free(&list);
    return is_ok;
}

static bool
unit_is_look(const stet_unit *u)
{
    for (size_t i = 0; i < u->n_ops; i++)
        if (u->ops[i].kind != STET_OP_CLAIM_DUE)
            return false;
    return u->n_ops > 0;
}

static void
encode_statuses(stet__buf *b, uint64_t mask)
{
    size_t n = 0;

    for (unsigned i = 0; i < 64; i++)
        n += mask >> i & 1u;
    stet__redis_pack_array(b, n);
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1u)
            stet__redis_pack_uint(b, i);
}

/* What must have been applied before; the script does not remember a look for work. */
static uint64_t
encode_seq_before(const stet_unit *units, size_t from)
{
    while (from > 0 && unit_is_look(&units[from - 1]))
        from--;
    return from > 0 ? units[from - 1].seq : 0;
}

bool
stet__redis_publishes(redis_store *st, const stet_unit *units, size_t n)
{
    size_t i = 0;

    if (st->base.is_mute || stet__redis_is_told(st))
        return false;
    while (i < n && !stet__unit_is_news(&units[i]))
        i++;
    return i < n;
}

bool
stet__redis_encode(redis_store *st, stet__buf *b, const stet_unit *units, size_t from, size_t to)
{
    encode e = { .st = st, .b = b };
    bool   is_ok;

    stet__buf_init(&e.claimers, st->base.alloc);
    stet__redis_pack_array(b, 13);
    stet__redis_pack_text(b, st->self);
    stet__redis_pack_bytes(b, st->token_hash, sizeof st->token_hash);
    stet__redis_pack_int(b, atomic_load(&st->advance_ms));
    encode_statuses(b, st->base.sticky);
    encode_statuses(b, st->base.quiet);
    stet__redis_pack_uint(b, st->turn);
    stet__redis_pack_uint(b, units[0].seq);
    stet__redis_pack_uint(b, encode_seq_before(units, from));
    stet__redis_pack_bool(b, stet__redis_publishes(st, units + from, to - from));
    stet__redis_pack_bool(b, !st->base.is_mute);
    collect_claimers(&e, units, from, to);
    is_ok = collect_ids(&e, units, from, to);
    stet__redis_pack_array(b, to - from);
    for (size_t i = from; i < to; i++)
        encode_unit(&e, &units[i]);
    is_ok = is_ok && !e.claimers.failed && !b->failed;
    stet__buf_free(&e.claimers);
    return is_ok;
}
