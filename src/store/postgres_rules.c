/* The rules of operations, as questions about the runs when their unit begins.
 *
 * What the operations before in the same unit make of a run is known, and so is what a condition
 * that holds says of it. What is left to be asked becomes lines between the conditions and the
 * operations, and no operation has to be undone.
 */
#include <string.h>

#include "store/postgres_lines.h"

static void
line_rule(pg_batch *b, int kind, const stet_id *run)
{
    stet__pg_lock_run(b, run);
    stet__pg_line(b, &(pg_line){ .kind = kind, .run = run });
}

/* What is known of a run after the operations of this unit so far. */
typedef struct foreseen {
    const stet_id *id;
    enum { MAYBE, YES, NO } exists, ended;
    bool        has_journal, has_lane;
    uint64_t    journal;
    const char *lane;
} foreseen;

typedef struct rules {
    pg_batch *b;
    foreseen *runs;
    size_t    n, cap;
} rules;

/* NULL: out of memory. */
static foreseen *
rules_of(rules *r, const stet_id *id)
{
    foreseen *more;
    size_t    cap = r->cap * 2 + 8;

    for (size_t i = r->n; i > 0; i--)
        if (memcmp(r->runs[i - 1].id->bytes, id->bytes, 16) == 0)
            return &r->runs[i - 1];
    if (r->n == r->cap) {
        if ((more = stet__grow(r->b->st->base.alloc, r->runs, cap * sizeof *more)) == NULL)
            return NULL;
        r->runs = more;
        r->cap = cap;
    }
    memset(&r->runs[r->n], 0, sizeof r->runs[r->n]);
    r->runs[r->n].id = id;
    return &r->runs[r->n++];
}

/* What a condition that holds says of its run. */
static int
rules_learn(rules *r, const stet_cond *c)
{
    foreseen *run;

    switch (c->kind) {
    case STET_COND_CLAIM:
    case STET_COND_JOURNAL:
    case STET_COND_INBOX:
    case STET_COND_PARKED: break;
    default: return STET_OK;
    }
    if ((run = rules_of(r, &c->run)) == NULL)
        return STET_ENOMEM;
    run->exists = c->kind == STET_COND_JOURNAL && c->number == 0 ? NO : YES;
    if (c->kind == STET_COND_JOURNAL && c->number > 0) {
        run->has_journal = true;
        run->journal = c->number;
    }
    return STET_OK;
}

static int
rule_must_exist(rules *r, foreseen *run)
{
    if (run->exists == NO)
        return STET_ECONFLICT;
    if (run->exists == MAYBE)
        line_rule(r->b, RULE_EXISTS, run->id);
    run->exists = YES;
    return STET_OK;
}

static int
rule_put(rules *r, foreseen *run, const stet_op *op)
{
    const stet_run_row *row = op->row;

    if ((op->flags & STET_OP_RESTORE) != 0) {
        stet__pg_lock_run(r->b, run->id);
        stet__pg_line(r->b, &(pg_line){ .kind = RULE_RESTORE,
                                        .run = run->id,
                                        .n = row->journal,
                                        .t = (int64_t)row->inbox });
        run->journal = row->journal;
    } else {
        if (run->exists == YES)
            return STET_ECONFLICT;
        if (run->exists == MAYBE)
            line_rule(r->b, RULE_ABSENT, run->id);
        run->journal = 0;
        run->has_lane = true;
        run->lane = NULL;
    }
    run->exists = YES;
    run->ended = row->is_terminal ? YES : NO;
    run->has_journal = true;
    return STET_OK;
}

static int
rule_set(rules *r, foreseen *run, const stet_op *op)
{
    int err = rule_must_exist(r, run);

    if (err == STET_OK && (op->mask & STET_RUN_STATUS) != 0)
        run->ended = op->row->is_terminal ? YES : NO;
    return err;
}

static int
rule_facts(rules *r, foreseen *run, const stet_op *op)
{
    int err;

    if (op->count == 0)
        return STET_EINVAL;
    if ((err = rule_must_exist(r, run)) != STET_OK)
        return err;
    if (!run->has_journal)
        stet__pg_line(r->b, &(pg_line){ .kind = RULE_JOURNAL,
                                        .run = run->id,
                                        .n = op->number - 1,
                                        .f = op->flags & STET_OP_ANEW });
    else if (op->number <= run->journal ||
             (op->number != run->journal + 1 && (op->flags & STET_OP_ANEW) == 0))
        return STET_ECONFLICT;
    run->has_journal = true;
    run->journal = op->number - 1 + op->count;
    return STET_OK;
}

static int
rule_inbox(rules *r, foreseen *run, const stet_op *op)
{
    int err;

    if ((op->flags & STET_OP_IF_OPEN) != 0)
        return STET_OK;
    if ((err = rule_must_exist(r, run)) != STET_OK || run->ended == YES)
        return STET_ECONFLICT;
    if (run->ended == MAYBE)
        line_rule(r->b, RULE_OPEN, run->id);
    run->ended = NO;
    return STET_OK;
}

static int
rule_enter(rules *r, foreseen *run, const stet_op *op)
{
    int err;

    if (op->lane == NULL)
        return STET_EINVAL;
    if ((err = rule_must_exist(r, run)) != STET_OK)
        return err;
    if (!run->has_lane)
        stet__pg_line(r->b, &(pg_line){ .kind = RULE_LANE, .run = run->id, .a = op->lane });
    else if (run->lane != NULL && strcmp(run->lane, op->lane) != 0)
        return STET_EINVAL; /* it must leave the first */
    run->has_lane = true;
    run->lane = op->lane;
    return STET_OK;
}

static int
rule_del(rules *r, foreseen *run)
{
    int err;

    if ((err = rule_must_exist(r, run)) != STET_OK || run->ended == NO)
        return STET_ECONFLICT;
    if (run->ended == MAYBE)
        line_rule(r->b, RULE_ENDED, run->id);
    run->ended = YES;
    run->exists = NO;
    return STET_OK;
}

static bool
rule_is_too_big(const stet_op *op)
{
    return op->data.len > PG_DATA_MAX || op->key.len > PG_KEY_MAX ||
           (op->row != NULL && op->row->extra.len > PG_DATA_MAX) ||
           (op->lane != NULL && strlen(op->lane) > PG_KEY_MAX);
}

static bool
rule_is_wrong(const stet_op *op)
{
    switch (op->kind) {
    case STET_OP_RUN_PUT:
        return op->row == NULL || op->row->handler == NULL || op->row->is_terminal > 1;
    case STET_OP_RUN_SET:
        return op->row == NULL || ((op->mask & STET_RUN_OWNER) != 0 && op->row->session != 0) ||
               ((op->mask & STET_RUN_STATUS) != 0 && op->row->is_terminal > 1);
    case STET_OP_VALUE_PUT:
    case STET_OP_VALUE_DEL: return op->space == NULL;
    case STET_OP_CLAIM_DUE:
    case STET_OP_REQUEUE: return op->claimer == NULL;
    default: return op->kind < STET_OP_RUN_PUT || op->kind > STET_OP_BURY;
    }
}

static int
rule_check(rules *r, const stet_op *op)
{
    foreseen *run;

    if (rule_is_too_big(op))
        return STET_ETOOBIG;
    if (rule_is_wrong(op))
        return STET_EINVAL;
    switch (op->kind) {
    case STET_OP_RUN_PUT:
    case STET_OP_RUN_SET:
    case STET_OP_FACTS:
    case STET_OP_INBOX:
    case STET_OP_LANE_ENTER:
    case STET_OP_LANE_LEAVE:
    case STET_OP_RUN_DEL: break;
    default: return STET_OK;
    }
    if ((run = rules_of(r, op->row != NULL ? &op->row->id : &op->run)) == NULL)
        return STET_ENOMEM;
    switch (op->kind) {
    case STET_OP_RUN_PUT: return rule_put(r, run, op);
    case STET_OP_RUN_SET: return rule_set(r, run, op);
    case STET_OP_FACTS: return rule_facts(r, run, op);
    case STET_OP_INBOX: return rule_inbox(r, run, op);
    case STET_OP_LANE_ENTER: return rule_enter(r, run, op);
    case STET_OP_RUN_DEL: return rule_del(r, run);
    default: break;
    }
    run->has_lane = true; /* left */
    run->lane = NULL;
    return STET_OK;
}

int
stet__pg_rules(pg_batch *b, const stet_unit *unit)
{
    rules r = { .b = b };
    int   err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < unit->n_conds; i++)
        err = rules_learn(&r, &unit->conds[i]);
    for (size_t i = 0; err == STET_OK && i < unit->n_ops; i++)
        err = rule_check(&r, &unit->ops[i]);
    stet__free(b->st->base.alloc, r.runs);
    return err;
}
