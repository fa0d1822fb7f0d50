/* The second pass over a unit: its operations, which the first has found to be in order.
 *
 * Inbox entries and timers are written at once; rows of runs with their facts and lanes, and values, are
 * changed in memory and written before an operation that looks through their index, and before COMMIT.
 * Whatever fails here is the store's failure and fails the whole commit. Locks: commit_lock.
 */
#include <string.h>

#include "store/sqlite.h"

#define APPLY_ENTRY_MAX 1000000u /* facts of several units become one entry up to here */

/* ---- grants ---------------------------------------------------------------------------------- */

static int
apply_note_grant(sqlite_store *st, const sqlite_run *run)
{
    stet_grant *more;
    size_t      cap;

    if (st->n_grants == st->grants_cap) {
        cap = st->grants_cap * 2 + 16;
        if ((more = stet__grow(st->base.alloc, st->grants, cap * sizeof *more)) == NULL)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
        st->grants = more;
        st->grants_cap = cap;
    }
    st->grants[st->n_grants++] =
        (stet_grant){ .run = run->id, .epoch = run->epoch, .inbox = run->inbox };
    return STET_OK;
}

static bool
apply_serves(const stet_claimer *claimer, const char *handler)
{
    size_t i;

    for (i = 0; i < claimer->n_handlers; i++)
        if (strcmp(claimer->handlers[i], handler) == 0)
            return true;
    return false;
}

/* Some statuses outlast a change of owner: see stet_store.sticky. */
static void
apply_status(const sqlite_store *st, sqlite_run *run, uint32_t status)
{
    if (run->status > 63 || !(st->base.sticky >> run->status & 1u))
        run->status = status;
}

/* The caller has seen that the run is unclaimed and open. */
static int
apply_grant(sqlite_store *st, sqlite_run *run, const stet_claimer *claimer, bool *is_granted)
{
    const sqlite_alive *session;
    int                 err;

    *is_granted = false;
    if (claimer == NULL || claimer->session == 0 || !apply_serves(claimer, run->handler))
        return STET_OK;
    if ((err = stet__sqlite_alive(st, claimer->session, &session)) != STET_OK)
        return err;
    if (!session->is_alive)
        return STET_OK;
    run->session = claimer->session;
    run->epoch++;
    apply_status(st, run, claimer->running_status);
    stet__sqlite_run_touch(st, run, LITE_DIRTY_CORE);
    *is_granted = true;
    return apply_note_grant(st, run);
}

/* ---- lanes and waking ------------------------------------------------------------------------ */

static int
apply_wake(sqlite_store *st, sqlite_run *run, uint32_t flags, uint32_t status, const stet_claimer *claimer)
{
    stet_id first;
    bool    found = false, is_granted = false;
    int     err;

    if (!run->exists || run->session != 0 || run->is_terminal)
        return STET_OK;
    if (flags & STET_OP_DUE)
        return run->due_ms <= st->now_ms ? apply_grant(st, run, claimer, &is_granted) : STET_OK;
    if (run->due_ms != STET_NEVER && (run->due_ms <= st->now_ms || !(flags & STET_OP_HASTEN)))
        return STET_OK;
    if (run->lane != NULL && !STET__MUTANT(file_lane_shared)) {
        if ((err = stet__sqlite_lane_first(st, run->lane, &first, &found)) != STET_OK)
            return err;
        if (!found || memcmp(first.bytes, run->id.bytes, 16) != 0)
            return STET_OK;
    }
    if ((err = apply_grant(st, run, claimer, &is_granted)) != STET_OK || is_granted)
        return err;
    run->due_ms = st->now_ms;
    apply_status(st, run, status);
    stet__sqlite_run_touch(st, run, LITE_DIRTY_CORE);
    return STET_OK;
}

static int
apply_lane_enter(sqlite_store *st, sqlite_run *run, const stet_op *op)
{
    bool is_first;
    int  err;

    if (run->lane != NULL)
        return STET_OK;
    if ((err = stet__sqlite_lane_enter(st, op->lane, &run->id, &run->lane_pos, &is_first)) != STET_OK)
        return err;
    if ((run->lane = stet__strdup(st->base.alloc, op->lane)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    stet__sqlite_run_touch(st, run, LITE_DIRTY_FULL);
    if (is_first)
        return apply_wake(st, run, op->flags, op->status, op->claimer);
    run->due_ms = STET_NEVER;
    return STET_OK;
}

static int
apply_lane_leave(sqlite_store *st, sqlite_run *run, const stet_op *op)
{
    char       *lane = run->lane;
    sqlite_run *next;
    stet_id     first;
    bool        was_first, found = false;
    int         err;

    if (!run->exists || lane == NULL)
        return STET_OK;
    if ((err = stet__sqlite_lane_leave(st, lane, &run->id, &was_first)) != STET_OK)
        return err;
    run->lane = NULL;
    stet__sqlite_run_touch(st, run, LITE_DIRTY_FULL);
    /* Only a change at the front wakes: the first one may be suspended for a reason of its own. */
    if (was_first)
        err = stet__sqlite_lane_first(st, lane, &first, &found);
    stet__free(st->base.alloc, lane);
    if (err != STET_OK || !found)
        return err;
    if ((err = stet__sqlite_run_find(st, &first, &next)) != STET_OK)
        return err;
    return STET__MUTANT(file_lane_asleep) ? STET_OK : apply_wake(st, next, 0, op->status, op->claimer);
}

/* ---- operations on one run ------------------------------------------------------------------- */

/* The row that is there gives way to the new one; it keeps its place in its lane. */
static int
apply_restore(sqlite_store *st, sqlite_run *run, const stet_op *op)
{
    uint64_t      epoch = run->exists && run->epoch > op->row->epoch ? run->epoch : op->row->epoch;
    sqlite3_stmt *stmt;
    int           err;

    if ((err = stet__sqlite_runs_flush(st)) != STET_OK ||
        (stmt = sqlite_writer_stmt(st, LITE_SQL_RUN_DEL, &err)) == NULL)
        return err;
    sqlite_bind_id(stmt, 1, &run->id);
    if ((err = stet__sqlite_run(st, &st->writer, stmt, "replace a run")) != STET_OK ||
        (err = stet__sqlite_run_put(st, run, op->row)) != STET_OK)
        return err;
    run->epoch = epoch;
    run->journal = op->row->journal;
    run->inbox = op->row->inbox;
    return STET_OK;
}

static int
apply_put(sqlite_store *st, const stet_op *op)
{
    sqlite_run *run;
    bool        is_granted;
    int         err;

    if ((op->flags & STET_OP_RESTORE) != 0) {
        if ((err = stet__sqlite_run_find(st, &op->row->id, &run)) != STET_OK)
            return err;
        return apply_restore(st, run, op);
    }

    if ((err = stet__sqlite_run_find(st, &op->row->id, &run)) != STET_OK ||
        (err = stet__sqlite_run_put(st, run, op->row)) != STET_OK)
        return err;
    if (run->is_terminal || run->due_ms > st->now_ms)
        return STET_OK;
    return apply_grant(st, run, op->claimer, &is_granted);
}

static int
apply_set(sqlite_store *st, const stet_op *op)
{
    const stet_run_row *row = op->row;
    sqlite_run         *run;
    int                 err;

    if ((err = stet__sqlite_run_find(st, &row->id, &run)) != STET_OK)
        return err;
    if ((op->mask & STET_RUN_STATUS) != 0) {
        run->status = row->status;
        run->is_terminal = row->is_terminal;
        run->ended_ms = row->ended_ms;
    }
    if ((op->mask & STET_RUN_OWNER) != 0)
        run->session = 0;
    if ((op->mask & (STET_RUN_OWNER | STET_RUN_DUE)) != 0 && run->session == 0)
        run->due_ms = row->due_ms;
    if ((op->mask & STET_RUN_ATTEMPT) != 0)
        run->attempt = row->attempt;
    if ((op->mask & STET_RUN_REASON) != 0) {
        run->has_reason = true;
        run->reason = row->reason;
    }
    if ((op->mask & STET_RUN_EXTRA) != 0) {
        run->has_extra = true;
        run->extra = row->extra;
    }
    stet__sqlite_run_touch(st, run,
                           (op->mask & (STET_RUN_REASON | STET_RUN_EXTRA)) != 0 ? LITE_DIRTY_FULL
                                                                                : LITE_DIRTY_CORE);
    return STET_OK;
}

/* What was recorded so far goes; what follows counts on from there. */
static int
apply_anew(sqlite_store *st, sqlite_run *run, const stet_op *op)
{
    sqlite3_stmt *facts, *inbox;
    int           err;

    if ((err = stet__sqlite_runs_flush(st)) != STET_OK ||
        (facts = sqlite_writer_stmt(st, LITE_SQL_FACTS_DEL, &err)) == NULL ||
        (inbox = sqlite_writer_stmt(st, LITE_SQL_INBOX_CUT, &err)) == NULL)
        return err;
    sqlite_bind_id(facts, 1, &run->id);
    sqlite_bind_id(inbox, 1, &run->id);
    sqlite_bind_u64(inbox, 2, op->session);
    if ((err = stet__sqlite_run(st, &st->writer, facts, "remove facts")) != STET_OK ||
        (err = stet__sqlite_run(st, &st->writer, inbox, "remove inbox entries")) != STET_OK)
        return err;
    run->journal = op->number - 1;
    if (run->inbox < op->session) {
        run->inbox = op->session;
        stet__sqlite_run_touch(st, run, LITE_DIRTY_INBOX);
    }
    return STET_OK;
}

/* Facts are written with the row: all that a run records in one commit is one entry. */
static int
apply_facts(sqlite_store *st, sqlite_run *run, const stet_op *op)
{
    char *both;
    int   err;

    if ((op->flags & STET_OP_ANEW) != 0 && (err = apply_anew(st, run, op)) != STET_OK)
        return err;
    if (run->n_facts > 0 && run->facts.len + op->data.len > APPLY_ENTRY_MAX &&
        (err = stet__sqlite_runs_flush(st)) != STET_OK)
        return err;
    if (run->n_facts == 0)
        run->facts = op->data;
    else {
        if ((both = stet__arena_get(&st->scratch, run->facts.len + op->data.len + 1)) == NULL)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
        memcpy(both, run->facts.data, run->facts.len);
        memcpy(both + run->facts.len, op->data.data, op->data.len);
        run->facts.data = both;
        run->facts.len += op->data.len;
    }
    run->n_facts += op->count;
    run->journal += op->count;
    stet__sqlite_run_touch(st, run, 0);
    return STET_OK;
}

static int
apply_inbox(sqlite_store *st, sqlite_run *run, const stet_op *op)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = sqlite_writer_stmt(st, LITE_SQL_INBOX_ADD, &err);

    if (stmt == NULL)
        return err;
    if (!run->exists || run->is_terminal) /* STET_OP_IF_OPEN */
        return STET_OK;
    run->inbox++;
    sqlite_bind_id(stmt, 1, &run->id);
    sqlite_bind_u64(stmt, 2, run->inbox);
    sqlite_bind_bytes(stmt, 3, op->data);
    stet__sqlite_run_touch(st, run, (uint8_t)(STET__MUTANT(file_inbox_row) ? 0 : LITE_DIRTY_INBOX));
    return stet__sqlite_run(st, &st->writer, stmt, "write an inbox entry");
}

static int
apply_del(sqlite_store *st, sqlite_run *run, const stet_op *op)
{
    static const sqlite_sql which[] = { LITE_SQL_FACTS_DEL, LITE_SQL_INBOX_DEL, LITE_SQL_TIMERS_DEL,
                                        LITE_SQL_RUN_DEL };
    sqlite3_stmt           *stmt;
    size_t                  i;
    int                     err;

    if ((err = apply_lane_leave(st, run, op)) != STET_OK)
        return err;
    for (i = 0; i < sizeof which / sizeof *which; i++) {
        if ((stmt = sqlite_writer_stmt(st, which[i], &err)) == NULL)
            return err;
        sqlite_bind_id(stmt, 1, &run->id);
        if ((err = stet__sqlite_run(st, &st->writer, stmt, "remove a run")) != STET_OK)
            return err;
    }
    run->exists = false;
    run->is_terminal = 0;
    run->session = run->epoch = run->journal = run->inbox = 0;
    run->put = NULL;
    run->has_reason = run->has_extra = false;
    run->n_facts = 0;
    run->dirty = 0;
    stet__sqlite_run_touch(st, run, 0);
    return STET_OK;
}

/* ---- timers ---------------------------------------------------------------------------------- */

static int
apply_timer(sqlite_store *st, const stet_op *op)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = sqlite_writer_stmt(
        st, op->kind == STET_OP_TIMER_PUT ? LITE_SQL_TIMER_ADD : LITE_SQL_TIMER_DEL, &err);

    if (stmt == NULL)
        return err;
    sqlite3_bind_int64(stmt, 1, op->fire_ms);
    sqlite_bind_id(stmt, 2, &op->run);
    sqlite_bind_u64(stmt, 3, op->number);
    return stet__sqlite_run(st, &st->writer, stmt, "write a timer");
}

/* ---- operations that look through the index ---------------------------------------------------- */

/* Due runs of one handler. */
typedef struct apply_due {
    stet__buf ids;
    size_t    used;
} apply_due;

static size_t
apply_due_count(const apply_due *due)
{
    return due->ids.len / sizeof(stet_id);
}

static int
apply_due_load(sqlite_store *st, apply_due *due, const char *handler, size_t limit)
{
    int           err = STET_OK;
    int           rc;
    sqlite3_stmt *stmt = sqlite_writer_stmt(st, LITE_SQL_WORK_DUE, &err);

    if (stmt == NULL)
        return err;
    due->ids.len = 0;
    sqlite_bind_text(stmt, 1, handler);
    sqlite3_bind_int64(stmt, 2, st->now_ms);
    sqlite3_bind_int64(stmt, 3, (sqlite3_int64)limit);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        stet_id id = stet__sqlite_column_id(stmt, 0);

        stet__buf_add(&due->ids, &id, sizeof id);
    }
    if (rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, st->writer.db, rc, "look for due runs");
    else if (due->ids.failed)
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    sqlite3_reset(stmt);
    return err;
}

/* A fair share of each handler first; only if some have less, all that the others have. */
static int
apply_due_gather(sqlite_store *st, apply_due *due, const stet_claimer *claimer, size_t count)
{
    size_t n = claimer->n_handlers;
    size_t share = (count + n - 1) / n;
    size_t total = 0, i;
    int    err;

    for (i = 0; i < n; i++) {
        if ((err = apply_due_load(st, &due[i], claimer->handlers[i], share)) != STET_OK)
            return err;
        total += apply_due_count(&due[i]);
    }
    if (total >= count)
        return STET_OK;
    for (i = 0; i < n; i++)
        if (apply_due_count(&due[i]) == share && share < count &&
            (err = apply_due_load(st, &due[i], claimer->handlers[i], count)) != STET_OK)
            return err;
    return STET_OK;
}

/* One run of each handler in turn; the next call goes on with the handler after the last. */
static int
apply_due_grant(sqlite_store *st, apply_due *due, const stet_claimer *claimer, size_t count)
{
    size_t      n = claimer->n_handlers;
    size_t      idle = 0;
    sqlite_run *run;
    stet_id     id;
    bool        is_granted;
    int         err;

    while (count > 0 && idle < n) {
        apply_due *of = &due[st->turn % n];

        st->turn = (st->turn + 1) % n;
        if (of->used == apply_due_count(of)) {
            idle++;
            continue;
        }
        idle = 0;
        memcpy(&id, of->ids.data + of->used++ * sizeof id, sizeof id);
        if ((err = stet__sqlite_run_find(st, &id, &run)) != STET_OK)
            return err;
        if (run->session != 0 || run->is_terminal)
            continue; /* a handler named twice */
        if ((err = apply_grant(st, run, claimer, &is_granted)) != STET_OK)
            return err;
        count -= is_granted ? 1 : 0;
    }
    return STET_OK;
}

static int
apply_next_due(sqlite_store *st, const stet_claimer *claimer, int64_t *next_ms)
{
    sqlite3_stmt *stmt;
    uint64_t      due;
    size_t        i;
    bool          found;
    int           err = STET_OK;

    *next_ms = STET_NEVER;
    if ((err = stet__sqlite_runs_flush(st)) != STET_OK ||
        (stmt = sqlite_writer_stmt(st, LITE_SQL_WORK_NEXT, &err)) == NULL)
        return err;
    for (i = 0; i < claimer->n_handlers; i++) {
        sqlite_bind_text(stmt, 1, claimer->handlers[i]);
        if ((err = stet__sqlite_ask(st, stmt, &found, &due)) != STET_OK)
            return err;
        if (found && (int64_t)due < *next_ms)
            *next_ms = (int64_t)due;
    }
    return STET_OK;
}

static int
apply_claim_due(sqlite_store *st, const stet_op *op, stet_outcome *out)
{
    const stet_claimer *claimer = op->claimer;
    const sqlite_alive *session;
    apply_due          *due = NULL;
    size_t              n = claimer->n_handlers, i;
    int                 err;

    if (n == 0)
        return STET_OK;
    if ((err = stet__sqlite_runs_flush(st)) != STET_OK ||
        (err = stet__sqlite_alive(st, claimer->session, &session)) != STET_OK)
        return err;
    if (op->count > 0 && session->is_alive) {
        if ((due = stet__get0(st->base.alloc, n * sizeof *due)) == NULL)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
        for (i = 0; i < n; i++)
            stet__buf_init(&due[i].ids, st->base.alloc);
        if ((err = apply_due_gather(st, due, claimer, op->count)) == STET_OK)
            err = apply_due_grant(st, due, claimer, op->count);
        for (i = 0; i < n; i++)
            stet__buf_free(&due[i].ids);
        stet__free(st->base.alloc, due);
    }
    return err != STET_OK ? err : apply_next_due(st, claimer, &out->next_due_ms);
}

/* Make due now what the statement finds. Nothing is written while it is read. */
static int
apply_release_all(sqlite_store *st, sqlite3_stmt *stmt, uint32_t status)
{
    sqlite_run *run;
    stet_id     id;
    int         err = STET_OK;
    int         rc;

    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        id = stet__sqlite_column_id(stmt, 0);
        if ((err = stet__sqlite_run_find(st, &id, &run)) != STET_OK)
            break;
        run->session = 0;
        run->due_ms = run->is_terminal ? STET_NEVER : st->now_ms;
        if (!run->is_terminal)
            apply_status(st, run, status);
        stet__sqlite_run_touch(st, run, LITE_DIRTY_CORE);
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, st->writer.db, rc, "look for runs");
    sqlite3_reset(stmt);
    return err;
}

static int
apply_reap(sqlite_store *st, const stet_op *op)
{
    sqlite3_stmt *runs, *del;
    int           err;

    if ((err = stet__sqlite_runs_flush(st)) != STET_OK ||
        (runs = sqlite_writer_stmt(st, LITE_SQL_WORK_OF, &err)) == NULL ||
        (del = sqlite_writer_stmt(st, LITE_SQL_SESSION_DEL, &err)) == NULL)
        return err;
    if (op->session == 0) /* no session has this number, but claimable runs do */
        return STET_OK;
    sqlite_bind_u64(runs, 1, op->session);
    if ((err = apply_release_all(st, runs, op->status)) != STET_OK)
        return err;
    st->n_alive = 0;
    sqlite_bind_u64(del, 1, op->session);
    return stet__sqlite_run(st, &st->writer, del, "remove a session");
}

static int
apply_bury(sqlite_store *st, const stet_op *op)
{
    int           err;
    sqlite3_stmt *bury = sqlite_writer_stmt(st, LITE_SQL_SESSION_BURY, &err);

    if (bury == NULL)
        return err;
    st->n_alive = 0;
    sqlite_bind_u64(bury, 1, op->session);
    return stet__sqlite_run(st, &st->writer, bury, "close a dead session");
}

static int
apply_requeue(sqlite_store *st, const stet_op *op)
{
    sqlite3_stmt *stmt;
    size_t        i;
    int           err;

    if ((err = stet__sqlite_runs_flush(st)) != STET_OK ||
        (stmt = sqlite_writer_stmt(st, LITE_SQL_WORK_IDLE, &err)) == NULL)
        return err;
    for (i = 0; i < op->claimer->n_handlers; i++) {
        sqlite3_bind_int64(stmt, 1, -1 - (int64_t)op->status);
        sqlite_bind_text(stmt, 2, op->claimer->handlers[i]);
        if ((err = apply_release_all(st, stmt, (uint32_t)op->number)) != STET_OK)
            return err;
    }
    return STET_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int
apply_op_run(sqlite_store *st, const stet_op *op)
{
    sqlite_run *run;
    int         err;

    if ((err = stet__sqlite_run_find(st, &op->run, &run)) != STET_OK)
        return err;
    switch (op->kind) {
    case STET_OP_FACTS: return apply_facts(st, run, op);
    case STET_OP_INBOX: return apply_inbox(st, run, op);
    case STET_OP_LANE_ENTER: return apply_lane_enter(st, run, op);
    case STET_OP_LANE_LEAVE: return apply_lane_leave(st, run, op);
    case STET_OP_RUN_DEL: return apply_del(st, run, op);
    default: return apply_wake(st, run, op->flags, op->status, op->claimer);
    }
}

int
stet__sqlite_apply(sqlite_store *st, const stet_op *op, stet_outcome *out)
{
    switch (op->kind) {
    case STET_OP_RUN_PUT: return apply_put(st, op);
    case STET_OP_RUN_SET: return apply_set(st, op);
    case STET_OP_TIMER_PUT:
    case STET_OP_TIMER_DEL: return apply_timer(st, op);
    case STET_OP_VALUE_PUT: return stet__sqlite_value_put(st, op);
    case STET_OP_VALUE_DEL: return stet__sqlite_value_del(st, op);
    case STET_OP_CLAIM_DUE: return apply_claim_due(st, op, out);
    case STET_OP_REAP: return apply_reap(st, op);
    case STET_OP_REQUEUE: return apply_requeue(st, op);
    case STET_OP_BURY: return apply_bury(st, op);
    default: return apply_op_run(st, op);
    }
}
