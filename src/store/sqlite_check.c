/* The first pass over a unit: do its conditions hold, and does every operation keep its rules?
 *
 * Rules are checked against the rows in memory as they will be after the operations before (the
 * `will_` fields), and nothing is written. What passes here cannot be refused later, so a unit needs
 * no savepoint. Locks: commit_lock.
 */
#include <string.h>

#include "store/sqlite.h"

#define CHECK_DATA_MAX 500000000u /* half of what SQLite can hold in a row */
#define CHECK_KEY_MAX  65536u

/* ---- sessions, as of this commit -------------------------------------------------------------- */

static int
check_session_load(sqlite_store *st, uint64_t session, sqlite_alive *out)
{
    int           err = STET_OK;
    int           rc;
    sqlite3_stmt *row = sqlite_writer_stmt(st, LITE_SQL_SESSION_GET, &err);

    if (row == NULL)
        return err;
    out->session = session;
    out->lease_until_ms = INT64_MIN;
    out->is_own = false;
    sqlite_bind_u64(row, 1, session);
    rc = sqlite3_step(row);
    if (rc == SQLITE_ROW) {
        if (sqlite3_column_int(row, 2) == 0) /* not closed */
            out->lease_until_ms = sqlite3_column_int64(row, 0);
        out->is_own = sqlite3_column_bytes(row, 1) == 32 &&
                      memcmp(sqlite3_column_blob(row, 1), st->token_hash, 32) == 0;
    } else if (rc != SQLITE_DONE) {
        err = stet__sqlite_fail(st, st->writer.db, rc, "read a session");
    }
    sqlite3_reset(row);
    return err;
}

int
stet__sqlite_alive(sqlite_store *st, uint64_t session, const sqlite_alive **out)
{
    sqlite_alive *found = NULL;
    size_t        i;
    int           err;

    for (i = 0; i < st->n_alive; i++)
        if (st->alive[i].session == session)
            found = &st->alive[i];
    if (found == NULL) {
        if (st->n_alive == LITE_ALIVE_MAX)
            st->n_alive = 0;
        found = &st->alive[st->n_alive];
        if ((err = check_session_load(st, session, found)) != STET_OK)
            return err;
        st->n_alive++;
    }
    found->is_alive = found->lease_until_ms > st->now_ms;
    *out = found;
    return STET_OK;
}

/* ---- conditions ------------------------------------------------------------------------------ */

int
stet__sqlite_ask(sqlite_store *st, sqlite3_stmt *stmt, bool *found, uint64_t *number)
{
    int rc = sqlite3_step(stmt);
    int err = STET_OK;

    *found = rc == SQLITE_ROW;
    *number = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(stmt, 0) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, st->writer.db, rc, "check a condition");
    sqlite3_reset(stmt);
    return err;
}

static int
check_cond_claim(sqlite_store *st, const stet_cond *cond, bool *holds)
{
    const sqlite_alive *session;
    sqlite_run         *run;
    int                 err;

    if ((err = stet__sqlite_run_find(st, &cond->run, &run)) != STET_OK)
        return err;
    *holds = run->exists && run->session == cond->session && run->epoch == cond->epoch;
    if (STET__MUTANT(file_fence_dropped))
        *holds = run->exists;
    if (!*holds || cond->session == 0 || STET__MUTANT(file_fence_dropped))
        return STET_OK;
    if ((err = stet__sqlite_alive(st, cond->session, &session)) != STET_OK)
        return err;
    *holds = session->is_alive && session->is_own;
    return STET_OK;
}

static int
check_cond_parked(sqlite_store *st, const stet_cond *cond, bool *holds)
{
    const sqlite_alive *session;
    sqlite_run         *run;
    int                 err;

    if ((err = stet__sqlite_run_find(st, &cond->run, &run)) != STET_OK ||
        (err = stet__sqlite_alive(st, cond->session, &session)) != STET_OK)
        return err;
    *holds = run->exists && !run->is_terminal && run->session == 0 && run->due_ms == STET_NEVER &&
             run->epoch == cond->epoch && run->inbox == cond->number && session->is_alive &&
             session->is_own;
    return STET_OK;
}

static int
check_cond_value(sqlite_store *st, const stet_cond *cond, bool *holds, int *verdict)
{
    stet_value value;
    int        err;

    if (cond->space == NULL) {
        *verdict = STET_EINVAL;
        return STET_OK;
    }
    err = stet__sqlite_value_look(st, cond->space, cond->key, &value);
    if (cond->kind == STET_COND_VALUE)
        *holds = value.version == cond->number;
    else
        *holds = value.version != 0 && memcmp(value.run.bytes, cond->run.bytes, 16) == 0 &&
                 value.revision == cond->number;
    return err;
}

static bool
check_cond_unit(const sqlite_store *st, const stet_cond *cond)
{
    size_t i;

    for (i = st->n_units; i > 0; i--)
        if (st->units[i - 1].seq == cond->number)
            return st->outcomes[i - 1].result == STET_OK;
    return true;
}

static int
check_cond_timer(sqlite_store *st, const stet_cond *cond, bool *holds)
{
    uint64_t      ignored;
    int           err = STET_OK;
    sqlite3_stmt *stmt = sqlite_writer_stmt(st, LITE_SQL_TIMER_HAS, &err);

    if (stmt == NULL)
        return err;
    sqlite3_bind_int64(stmt, 1, cond->fire_ms);
    sqlite_bind_id(stmt, 2, &cond->run);
    sqlite_bind_u64(stmt, 3, cond->number);
    return stet__sqlite_ask(st, stmt, holds, &ignored);
}

static int
check_cond(sqlite_store *st, const stet_cond *cond, bool *holds, int *verdict)
{
    const sqlite_alive *session;
    sqlite_run         *run;
    int                 err = STET_OK;

    switch (cond->kind) {
    case STET_COND_CLAIM: return check_cond_claim(st, cond, holds);
    case STET_COND_JOURNAL:
        if ((err = stet__sqlite_run_find(st, &cond->run, &run)) == STET_OK)
            *holds = cond->number == 0 ? !run->exists : run->exists && run->journal == cond->number;
        return err;
    case STET_COND_INBOX:
        if ((err = stet__sqlite_run_find(st, &cond->run, &run)) == STET_OK)
            *holds = run->exists && run->inbox == cond->number;
        return err;
    case STET_COND_VALUE:
    case STET_COND_WRITER: return check_cond_value(st, cond, holds, verdict);
    case STET_COND_TIMER: return check_cond_timer(st, cond, holds);
    case STET_COND_SESSION_DEAD:
        if ((err = stet__sqlite_alive(st, cond->session, &session)) == STET_OK)
            *holds = !session->is_alive || stet__sqlite_is_proven_dead(st, cond->session);
        return err;
    case STET_COND_PARKED: return check_cond_parked(st, cond, holds);
    case STET_COND_UNIT: *holds = check_cond_unit(st, cond); return STET_OK;
    }
    *verdict = STET_EINVAL;
    return STET_OK;
}

static int
check_conds(sqlite_store *st, const stet_unit *unit, sqlite_verdict *v)
{
    bool holds = true;
    int  err;

    for (v->cond = 0; v->cond < unit->n_conds; v->cond++) {
        const stet_cond *cond = &unit->conds[v->cond];

        if ((err = check_cond(st, cond, &holds, &v->result)) != STET_OK || v->result != STET_OK)
            return err;
        if (!holds) {
            v->result = cond->kind == STET_COND_CLAIM ? STET_EFENCED : STET_ECONFLICT;
            return STET_OK;
        }
    }
    return STET_OK;
}

/* ---- the rules of operations ----------------------------------------------------------------- */

/* The run, with its `will_` fields as of the operations of this unit checked before. */
static int
check_foresee(sqlite_store *st, const stet_id *id, sqlite_run **out)
{
    sqlite_run *run;
    int         err;

    if ((err = stet__sqlite_run_find(st, id, out)) != STET_OK)
        return err;
    run = *out;
    if (run->stamp != st->stamp) {
        run->stamp = st->stamp;
        run->will_exist = run->exists;
        run->will_end = run->is_terminal != 0;
        run->will_journal = run->journal;
        run->will_lane = run->lane;
    }
    return STET_OK;
}

/* The records of the run are those its row is to stand for, and nobody has it. */
static int
check_rule_restore(sqlite_store *st, sqlite_run *run, const stet_op *op, int *verdict)
{
    sqlite3_stmt *facts, *inbox;
    uint64_t      journal = run->journal, seq = 0;
    bool          found;
    int           err;

    if ((facts = sqlite_writer_stmt(st, LITE_SQL_FACTS_LAST, &err)) == NULL ||
        (inbox = sqlite_writer_stmt(st, LITE_SQL_INBOX_LAST, &err)) == NULL)
        return err;
    if (!run->exists) {
        sqlite_bind_id(facts, 1, &op->row->id);
        if ((err = stet__sqlite_ask(st, facts, &found, &journal)) != STET_OK)
            return err;
    }
    sqlite_bind_id(inbox, 1, &op->row->id);
    if ((err = stet__sqlite_ask(st, inbox, &found, &seq)) != STET_OK)
        return err;
    if (run->session != 0 || journal == 0 || journal != op->row->journal || seq != op->row->inbox)
        *verdict = STET_ECONFLICT;
    run->will_exist = true;
    run->will_end = op->row->is_terminal != 0;
    run->will_journal = journal;
    return STET_OK;
}

static int
check_rule_put(sqlite_store *st, const stet_op *op, int *verdict)
{
    sqlite_run *run;
    int         err;

    if (op->row == NULL || op->row->handler == NULL || op->row->is_terminal > 1) {
        *verdict = STET_EINVAL;
        return STET_OK;
    }
    if ((err = check_foresee(st, &op->row->id, &run)) != STET_OK)
        return err;
    if ((op->flags & STET_OP_RESTORE) != 0)
        return check_rule_restore(st, run, op, verdict);
    if (run->will_exist)
        *verdict = STET_ECONFLICT;
    run->will_exist = true;
    run->will_end = op->row->is_terminal != 0;
    run->will_journal = 0;
    run->will_lane = NULL;
    return STET_OK;
}

static int
check_rule_set(sqlite_store *st, const stet_op *op, int *verdict)
{
    sqlite_run *run;
    int         err;

    if (op->row == NULL || ((op->mask & STET_RUN_OWNER) != 0 && op->row->session != 0) ||
        ((op->mask & STET_RUN_STATUS) != 0 && op->row->is_terminal > 1)) {
        *verdict = STET_EINVAL;
        return STET_OK;
    }
    if ((err = check_foresee(st, &op->row->id, &run)) != STET_OK)
        return err;
    if (!run->will_exist)
        *verdict = STET_ECONFLICT;
    if ((op->mask & STET_RUN_STATUS) != 0)
        run->will_end = op->row->is_terminal != 0;
    return STET_OK;
}

static int
check_rule_lane_enter(sqlite_run *run, const stet_op *op)
{
    if (op->lane == NULL)
        return STET_EINVAL;
    if (!run->will_exist)
        return STET_ECONFLICT;
    if (run->will_lane != NULL && strcmp(run->will_lane, op->lane) != 0)
        return STET_EINVAL; /* it must leave the first */
    run->will_lane = op->lane;
    return STET_OK;
}

/* Rules that look at the run of the operation only. */
static int
check_rule_run(sqlite_run *run, const stet_op *op)
{
    switch (op->kind) {
    case STET_OP_FACTS:
        if (op->count == 0)
            return STET_EINVAL;
        if (!run->will_exist || op->number <= run->will_journal ||
            (op->number != run->will_journal + 1 && (op->flags & STET_OP_ANEW) == 0))
            return STET_ECONFLICT;
        run->will_journal = op->number - 1 + op->count;
        return STET_OK;
    case STET_OP_INBOX:
        if ((op->flags & STET_OP_IF_OPEN) != 0 || (run->will_exist && !run->will_end))
            return STET_OK;
        return STET_ECONFLICT;
    case STET_OP_LANE_ENTER: return check_rule_lane_enter(run, op);
    case STET_OP_LANE_LEAVE: run->will_lane = NULL; return STET_OK;
    case STET_OP_RUN_DEL:
        if (!run->will_exist || !run->will_end)
            return STET_ECONFLICT;
        run->will_exist = false;
        return STET_OK;
    default: return STET_OK;
    }
}

static int
check_rule(sqlite_store *st, const stet_op *op, int *verdict)
{
    sqlite_run *run;
    int         err = STET_OK;

    if (op->data.len > CHECK_DATA_MAX || op->key.len > CHECK_KEY_MAX ||
        (op->row != NULL && op->row->extra.len > CHECK_DATA_MAX)) {
        *verdict = STET_ETOOBIG;
        return STET_OK;
    }
    switch (op->kind) {
    case STET_OP_RUN_PUT: return check_rule_put(st, op, verdict);
    case STET_OP_RUN_SET: return check_rule_set(st, op, verdict);
    case STET_OP_FACTS:
    case STET_OP_INBOX:
    case STET_OP_LANE_ENTER:
    case STET_OP_LANE_LEAVE:
    case STET_OP_RUN_DEL:
        if ((err = check_foresee(st, &op->run, &run)) == STET_OK)
            *verdict = check_rule_run(run, op);
        return err;
    case STET_OP_VALUE_PUT:
    case STET_OP_VALUE_DEL:
        if (op->space == NULL)
            *verdict = STET_EINVAL;
        return STET_OK;
    case STET_OP_CLAIM_DUE:
    case STET_OP_REQUEUE:
        if (op->claimer == NULL)
            *verdict = STET_EINVAL;
        return STET_OK;
    case STET_OP_RUN_WAKE:
    case STET_OP_TIMER_PUT:
    case STET_OP_TIMER_DEL:
    case STET_OP_REAP:
    case STET_OP_BURY: return STET_OK;
    }
    *verdict = STET_EINVAL;
    return STET_OK;
}

static int
check_ops(sqlite_store *st, const stet_unit *unit, sqlite_verdict *v)
{
    size_t i;
    int    err;

    st->stamp++;
    for (i = 0; i < unit->n_ops; i++) {
        if ((err = check_rule(st, &unit->ops[i], &v->result)) != STET_OK)
            return err;
        if (v->result != STET_OK)
            return STET_OK;
    }
    return STET_OK;
}

int
stet__sqlite_check(sqlite_store *st, const stet_unit *unit, sqlite_verdict *v)
{
    int err = check_conds(st, unit, v);

    if (err != STET_OK || v->result != STET_OK)
        return err;
    return check_ops(st, unit, v);
}
