/* Conditions and operations of the memory store.
 *
 * An operation changes the database as it goes and may stop in the middle: its own rule broken
 * (STET_ECONFLICT), bad input (STET_EINVAL), out of memory. Whoever called it walks the undo log back.
 *
 * Runs on: committer. Locks: db->mutex held.
 */
#include <string.h>

#include "store/memory.h"

/* ---- changing a run ------------------------------------------------------------------------- */

static bool
mem_note_columns(mem_tx *tx, mem_run *run)
{
    mem_undo *undo = stet__mem_note(tx, UNDO_COLUMNS);

    if (undo == NULL)
        return false;
    undo->run = run;
    undo->row = run->row;
    undo->ticket = run->ticket;
    return true;
}

/* Columns may be written between edit_begin and edit_end; nothing may fail there. */
static bool
mem_edit_begin(mem_tx *tx, mem_run *run)
{
    if (!mem_note_columns(tx, run))
        return false;
    stet__mem_run_displace(tx->db, run);
    return true;
}

static void
mem_edit_end(mem_tx *tx, mem_run *run)
{
    stet__mem_run_place(tx->db, run);
}

/* A copy of `data` that will replace `stale`. */
static int
mem_fresh_bytes(mem_tx *tx, stet_bytes *out, stet_bytes data, const void *stale)
{
    mem_undo *undo = stet__mem_note(tx, UNDO_MEMORY);

    if (undo == NULL || !stet__mem_copy(tx->db, out, data))
        return STET_ENOMEM;
    undo->fresh = out->data;
    undo->stale = stale;
    return STET_OK;
}

static int
mem_fresh_text(mem_tx *tx, const char **out, const char *text, const char *stale)
{
    stet_bytes copy = { NULL, 0 };
    int        err;

    err = mem_fresh_bytes(tx, &copy, (stet_bytes){ text, text != NULL ? strlen(text) + 1 : 0 },
                          stale);
    *out = copy.data;
    return err;
}

static bool
mem_serves(const stet_claimer *claimer, const char *handler)
{
    for (size_t i = 0; i < claimer->n_handlers; i++)
        if (strcmp(claimer->handlers[i], handler) == 0)
            return true;
    return false;
}

static bool
mem_may_grant(mem_tx *tx, const mem_run *run, const stet_claimer *claimer)
{
    return claimer != NULL && mem_serves(claimer, run->row.handler) &&
           stet__mem_is_alive(tx->db, stet__mem_session(tx->db, claimer->session));
}

/* Some statuses outlast a change of owner: see stet_store.sticky. */
static void
mem_status_write(mem_tx *tx, mem_run *run, uint32_t status)
{
    uint32_t old = run->row.status;

    if (old > 63 || !(tx->h->base.sticky >> old & 1u))
        run->row.status = status;
}

static int
mem_grant(mem_tx *tx, mem_run *run, const stet_claimer *claimer)
{
    stet__memory_db *db = tx->db;
    void            *items = db->grants;
    bool             has_room;

    has_room = stet__mem_room(db, &items, &db->cap_grants, db->n_grants, sizeof *db->grants);
    db->grants = items;
    if (!has_room || !mem_edit_begin(tx, run))
        return STET_ENOMEM;
    run->row.session = claimer->session;
    run->row.epoch += STET__MUTANT(epoch_kept) && run->row.epoch > 0 ? 0 : 1;
    mem_status_write(tx, run, claimer->running_status);
    mem_edit_end(tx, run);
    db->grants[db->n_grants++] = (stet_grant){ .run = run->row.id,
                                                .epoch = run->row.epoch,
                                                .inbox = run->row.inbox };
    return STET_OK;
}

static int
mem_make_due(mem_tx *tx, mem_run *run, uint32_t status)
{
    if (!mem_edit_begin(tx, run))
        return STET_ENOMEM;
    run->row.session = 0;
    run->row.due_ms = tx->now_ms;
    mem_status_write(tx, run, status);
    mem_edit_end(tx, run);
    return STET_OK;
}

static int
mem_wake(mem_tx *tx, mem_run *run, uint32_t flags, uint32_t status, const stet_claimer *claimer)
{
    if (run->row.session != 0 || run->row.is_terminal)
        return STET_OK;
    if (flags & STET_OP_DUE)
        return run->row.due_ms <= tx->now_ms && mem_may_grant(tx, run, claimer) ? mem_grant(tx, run, claimer)
                                                                                : STET_OK;
    if (run->row.due_ms != STET_NEVER && (run->row.due_ms <= tx->now_ms || !(flags & STET_OP_HASTEN)))
        return STET_OK;
    if (run->row.lane != NULL && stet__mem_lane_first(tx->db, run->row.lane) != run &&
        !STET__MUTANT(lane_shared))
        return STET_OK;
    if (mem_may_grant(tx, run, claimer))
        return mem_grant(tx, run, claimer);
    return mem_make_due(tx, run, status);
}

/* ---- conditions ----------------------------------------------------------------------------- */

static bool
mem_claim_holds(mem_tx *tx, const stet_cond *cond)
{
    mem_run     *run = stet__mem_run(tx->db, cond->run);
    mem_session *session;

    if (STET__MUTANT(fence_dropped) && run != NULL)
        return true;
    if (run == NULL || run->row.session != cond->session || run->row.epoch != cond->epoch)
        return false;
    if (cond->session == 0)
        return true;
    session = stet__mem_session(tx->db, cond->session);
    if (STET__MUTANT(lease_unjudged))
        return session != NULL && stet__mem_is_own(tx->h, session);
    return stet__mem_is_alive(tx->db, session) && stet__mem_is_own(tx->h, session);
}

static bool
mem_journal_holds(mem_tx *tx, const stet_cond *cond)
{
    mem_run *run = stet__mem_run(tx->db, cond->run);

    if (cond->number == 0)
        return run == NULL;
    return run != NULL && run->row.journal == cond->number;
}

static bool
mem_inbox_holds(mem_tx *tx, const stet_cond *cond)
{
    mem_run *run = stet__mem_run(tx->db, cond->run);

    return run != NULL && run->row.inbox == cond->number;
}

static bool
mem_value_holds(mem_tx *tx, const stet_cond *cond)
{
    mem_value *value = stet__mem_value(tx->db, cond->space, cond->key);

    return (value != NULL ? value->value.version : 0) == cond->number;
}

static bool
mem_writer_holds(mem_tx *tx, const stet_cond *cond)
{
    mem_value *value = stet__mem_value(tx->db, cond->space, cond->key);

    return value != NULL && value->value.version != 0 && stet__id_equal(value->value.run, cond->run) &&
           value->value.revision == cond->number;
}

static bool
mem_unit_holds(const mem_tx *tx, const stet_cond *cond)
{
    for (size_t i = tx->n_answers; i > 0; i--)
        if (tx->answers[i - 1].seq == cond->number)
            return tx->answers[i - 1].result == STET_OK;
    return true;
}

static bool
mem_parked_holds(mem_tx *tx, const stet_cond *cond)
{
    mem_run     *run = stet__mem_run(tx->db, cond->run);
    mem_session *session = stet__mem_session(tx->db, cond->session);

    if (STET__MUTANT(parked_unchecked))
        return run != NULL && !run->row.is_terminal && stet__mem_is_alive(tx->db, session);
    return run != NULL && !run->row.is_terminal && run->row.session == 0 && run->row.due_ms == STET_NEVER &&
           run->row.epoch == cond->epoch && run->row.inbox == cond->number &&
           stet__mem_is_alive(tx->db, session) && stet__mem_is_own(tx->h, session);
}

int
stet__mem_cond_check(mem_tx *tx, const stet_cond *cond)
{
    bool holds;

    switch (cond->kind) {
    case STET_COND_CLAIM: return mem_claim_holds(tx, cond) ? STET_OK : STET_EFENCED;
    case STET_COND_JOURNAL: holds = mem_journal_holds(tx, cond); break;
    case STET_COND_INBOX: holds = mem_inbox_holds(tx, cond); break;
    case STET_COND_VALUE:
        if (cond->space == NULL)
            return stet__fail(STET_EINVAL, "a condition on a value names no space");
        holds = mem_value_holds(tx, cond);
        break;
    case STET_COND_TIMER:
        holds = stet__mem_timer(tx->db, cond->fire_ms, cond->run, cond->number) != NULL;
        break;
    case STET_COND_SESSION_DEAD:
        holds = STET__MUTANT(reap_by_id) ||
                !stet__mem_is_alive(tx->db, stet__mem_session(tx->db, cond->session));
        break;
    case STET_COND_PARKED: holds = mem_parked_holds(tx, cond); break;
    case STET_COND_WRITER:
        if (cond->space == NULL)
            return stet__fail(STET_EINVAL, "a condition on a value names no space");
        holds = mem_writer_holds(tx, cond);
        break;
    case STET_COND_UNIT: holds = mem_unit_holds(tx, cond); break;
    default: return stet__fail(STET_EINVAL, "there is no condition of kind %d", (int)cond->kind);
    }
    return holds ? STET_OK : STET_ECONFLICT;
}

/* ---- operations on runs --------------------------------------------------------------------- */

/* Facts belong to their run here, so the row is never missing; it can be replaced. */
static int
mem_op_run_restore(mem_tx *tx, const stet_op *op)
{
    const stet_run_row *row = op->row;
    mem_run            *run = stet__mem_run(tx->db, row->id);
    stet_run_row        fresh = *row;
    int                 err;

    if (run == NULL || run->row.session != 0 || run->row.journal == 0 ||
        run->row.journal != row->journal || run->row.inbox != row->inbox)
        return STET_ECONFLICT;
    if ((err = mem_fresh_text(tx, &fresh.handler, row->handler, run->row.handler)) != STET_OK ||
        (err = mem_fresh_text(tx, &fresh.key, row->key, run->row.key)) != STET_OK ||
        (err = mem_fresh_text(tx, &fresh.group, row->group, run->row.group)) != STET_OK ||
        (err = mem_fresh_text(tx, &fresh.reason, row->reason, run->row.reason)) != STET_OK ||
        (err = mem_fresh_bytes(tx, &fresh.extra, row->extra, run->row.extra.data)) != STET_OK)
        return err;
    fresh.lane = run->row.lane;
    fresh.session = 0;
    if (fresh.epoch < run->row.epoch)
        fresh.epoch = run->row.epoch;
    if (!mem_edit_begin(tx, run))
        return STET_ENOMEM;
    run->row = fresh;
    mem_edit_end(tx, run);
    return STET_OK;
}

static int
mem_op_run_put(mem_tx *tx, const stet_op *op)
{
    mem_run *run;

    if (op->row == NULL || op->row->handler == NULL)
        return stet__fail(STET_EINVAL, "a run to put has no row or no handler");
    if (op->flags & STET_OP_RESTORE)
        return mem_op_run_restore(tx, op);
    if (stet__mem_run(tx->db, op->row->id) != NULL)
        return STET_ECONFLICT;
    if ((run = stet__mem_run_new(tx->db, op->row)) == NULL)
        return STET_ENOMEM;
    if (!stet__mem_note_record(tx, UNDO_RUN_ADD, run, NULL)) {
        stet__mem_run_free(tx->db, run);
        return STET_ENOMEM;
    }
    stet__mem_run_link(tx->db, run);
    if (!run->row.is_terminal && run->row.due_ms <= tx->now_ms &&
        mem_may_grant(tx, run, op->claimer))
        return mem_grant(tx, run, op->claimer);
    return STET_OK;
}

static void
mem_run_write(mem_run *run, const stet_run_row *row, uint32_t mask, const char *reason,
              stet_bytes extra)
{
    if (mask & STET_RUN_STATUS) {
        run->row.status = row->status;
        run->row.is_terminal = row->is_terminal;
        run->row.ended_ms = row->ended_ms;
    }
    if (mask & STET_RUN_OWNER) {
        run->row.session = 0;
        run->row.due_ms = row->due_ms;
    }
    if ((mask & STET_RUN_DUE) && run->row.session == 0)
        run->row.due_ms = row->due_ms;
    if (mask & STET_RUN_ATTEMPT)
        run->row.attempt = row->attempt;
    if (mask & STET_RUN_REASON)
        run->row.reason = reason;
    if (mask & STET_RUN_EXTRA)
        run->row.extra = extra;
}

static int
mem_op_run_set(mem_tx *tx, const stet_op *op)
{
    const stet_run_row *row = op->row;
    const char         *reason = NULL;
    stet_bytes          extra = { NULL, 0 };
    mem_run            *run;
    int                 err;

    if (row == NULL || ((op->mask & STET_RUN_OWNER) && row->session != 0))
        return stet__fail(STET_EINVAL, "a run to set has no row, or one with a session");
    if ((run = stet__mem_run(tx->db, row->id)) == NULL)
        return STET_ECONFLICT;
    if ((op->mask & STET_RUN_REASON) &&
        (err = mem_fresh_text(tx, &reason, row->reason, run->row.reason)) != STET_OK)
        return err;
    if ((op->mask & STET_RUN_EXTRA) &&
        (err = mem_fresh_bytes(tx, &extra, row->extra, run->row.extra.data)) != STET_OK)
        return err;
    if (!mem_edit_begin(tx, run))
        return STET_ENOMEM;
    mem_run_write(run, row, op->mask, reason, extra);
    mem_edit_end(tx, run);
    return STET_OK;
}

static int
mem_op_run_wake(mem_tx *tx, const stet_op *op)
{
    mem_run *run = stet__mem_run(tx->db, op->run);

    return run != NULL ? mem_wake(tx, run, op->flags, op->status, op->claimer) : STET_OK;
}

/* What begins up to `upto`. */
static int
mem_facts_remove(mem_tx *tx, mem_run *run, mem_tree *tree, mem_undo_kind kind, uint64_t upto)
{
    mem_node *node;

    while ((node = stet__mem_tree_first(tree)) != NULL && MEM_OF(mem_facts, node, node)->first <= upto) {
        if (!stet__mem_note_record(tx, kind, run, MEM_OF(mem_facts, node, node)))
            return STET_ENOMEM;
        stet__mem_tree_remove(tree, node);
    }
    return STET_OK;
}

static int
mem_facts_anew(mem_tx *tx, mem_run *run, const stet_op *op)
{
    int err = mem_facts_remove(tx, run, &run->journal, UNDO_JOURNAL_REMOVE, op->number - 1);

    if (err == STET_OK)
        err = mem_facts_remove(tx, run, &run->inbox, UNDO_INBOX_REMOVE, op->session);
    if (err == STET_OK && !mem_note_columns(tx, run))
        err = STET_ENOMEM;
    if (err != STET_OK)
        return err;
    run->row.journal = op->number - 1;
    if (run->row.inbox < op->session)
        run->row.inbox = op->session;
    return STET_OK;
}

static int
mem_op_facts(mem_tx *tx, const stet_op *op)
{
    mem_run   *run = stet__mem_run(tx->db, op->run);
    mem_facts *facts;
    int        err;

    if (op->count == 0)
        return stet__fail(STET_EINVAL, "an operation appends no facts");
    if (run == NULL || op->number <= run->row.journal ||
        (op->number != run->row.journal + 1 && !(op->flags & STET_OP_ANEW)))
        return STET_ECONFLICT;
    if ((op->flags & STET_OP_ANEW) && (err = mem_facts_anew(tx, run, op)) != STET_OK)
        return err;
    if (!mem_note_columns(tx, run))
        return STET_ENOMEM;
    run->row.journal += op->count;
    if ((facts = stet__mem_facts_new(tx->db, op->number, op->count, op->data)) == NULL)
        return STET_ENOMEM;
    if (!stet__mem_note_record(tx, UNDO_JOURNAL_ADD, run, facts)) {
        stet__mem_facts_free(tx->db, facts);
        return STET_ENOMEM;
    }
    stet__mem_tree_add(&run->journal, &facts->node);
    return STET_OK;
}

static int
mem_op_inbox(mem_tx *tx, const stet_op *op)
{
    mem_run   *run = stet__mem_run(tx->db, op->run);
    mem_facts *facts;

    if (run == NULL || run->row.is_terminal)
        return (op->flags & STET_OP_IF_OPEN) ? STET_OK : STET_ECONFLICT;
    if (!mem_note_columns(tx, run))
        return STET_ENOMEM;
    run->row.inbox++;
    if ((facts = stet__mem_facts_new(tx->db, run->row.inbox, 1, op->data)) == NULL)
        return STET_ENOMEM;
    if (!stet__mem_note_record(tx, UNDO_INBOX_ADD, run, facts)) {
        stet__mem_facts_free(tx->db, facts);
        return STET_ENOMEM;
    }
    stet__mem_tree_add(&run->inbox, &facts->node);
    return STET_OK;
}

/* ---- operations on timers and values -------------------------------------------------------- */

static int
mem_op_timer_put(mem_tx *tx, const stet_op *op)
{
    mem_timer *timer;

    if (stet__mem_timer(tx->db, op->fire_ms, op->run, op->number) != NULL)
        return STET_OK;
    if ((timer = stet__get0(tx->db->alloc, sizeof *timer)) == NULL)
        return STET_ENOMEM;
    if (!stet__mem_note_record(tx, UNDO_TIMER_ADD, NULL, timer)) {
        stet__free(tx->db->alloc, timer);
        return STET_ENOMEM;
    }
    timer->fire_ms = op->fire_ms;
    timer->run = op->run;
    timer->completion = op->number;
    stet__mem_timer_link(tx->db, timer);
    return STET_OK;
}

static int
mem_timer_remove(mem_tx *tx, mem_timer *timer)
{
    if (!stet__mem_note_record(tx, UNDO_TIMER_REMOVE, NULL, timer))
        return STET_ENOMEM;
    stet__mem_timer_unlink(tx->db, timer);
    return STET_OK;
}

static int
mem_op_timer_del(mem_tx *tx, const stet_op *op)
{
    mem_timer *timer = stet__mem_timer(tx->db, op->fire_ms, op->run, op->number);

    return timer != NULL ? mem_timer_remove(tx, timer) : STET_OK;
}

static int
mem_value_remove(mem_tx *tx, mem_value *value)
{
    if (!stet__mem_note_record(tx, UNDO_VALUE_REMOVE, NULL, value))
        return STET_ENOMEM;
    stet__mem_tree_remove(&tx->db->values, &value->node);
    return STET_OK;
}

static int
mem_op_value_put(mem_tx *tx, const stet_op *op)
{
    mem_value *old, *value;
    int        err;

    if (op->space == NULL)
        return stet__fail(STET_EINVAL, "a value to put names no space");
    if ((value = stet__mem_value_new(tx->db, op->space, op->key, op->data)) == NULL)
        return STET_ENOMEM;
    value->value.run = op->run;
    value->value.revision = op->number;
    value->value.version = 1;
    if ((old = stet__mem_value(tx->db, op->space, op->key)) != NULL) {
        value->value.version = old->value.version + 1;
        if ((err = mem_value_remove(tx, old)) != STET_OK)
            goto failed;
    }
    if (!stet__mem_note_record(tx, UNDO_VALUE_ADD, NULL, value)) {
        err = STET_ENOMEM;
        goto failed;
    }
    stet__mem_tree_add(&tx->db->values, &value->node);
    return STET_OK;
failed:
    stet__mem_value_free(tx->db, value);
    return err;
}

static int
mem_op_value_del(mem_tx *tx, const stet_op *op)
{
    mem_value *value;

    if (op->space == NULL)
        return stet__fail(STET_EINVAL, "a value to remove names no space");
    value = stet__mem_value(tx->db, op->space, op->key);
    return value != NULL ? mem_value_remove(tx, value) : STET_OK;
}

/* ---- operations on lanes -------------------------------------------------------------------- */

static int
mem_op_lane_enter(mem_tx *tx, const stet_op *op)
{
    mem_run    *run = stet__mem_run(tx->db, op->run);
    const char *lane = NULL;
    bool        is_first;
    int         err;

    if (op->lane == NULL)
        return stet__fail(STET_EINVAL, "a run enters a lane without a name");
    if (run == NULL)
        return STET_ECONFLICT;
    if (run->row.lane != NULL && strcmp(run->row.lane, op->lane) == 0)
        return STET_OK;
    if (run->row.lane != NULL)
        return stet__fail(STET_EINVAL, "a run in lane %s enters lane %s; it must leave the first",
                          run->row.lane, op->lane);
    is_first = stet__mem_lane_first(tx->db, op->lane) == NULL || STET__MUTANT(lane_shared);
    if ((err = mem_fresh_text(tx, &lane, op->lane, NULL)) != STET_OK)
        return err;
    if (!mem_edit_begin(tx, run))
        return STET_ENOMEM;
    run->row.lane = lane;
    run->ticket = ++tx->db->last_ticket;
    if (!is_first)
        run->row.due_ms = STET_NEVER;
    mem_edit_end(tx, run);
    return is_first ? mem_wake(tx, run, op->flags, op->status, op->claimer) : STET_OK;
}

static int
mem_lane_leave(mem_tx *tx, mem_run *run, const stet_op *op)
{
    const char *lane = run->row.lane;
    mem_run    *next;
    bool        was_first;
    mem_undo   *undo;

    if (lane == NULL)
        return STET_OK;
    was_first = stet__mem_lane_first(tx->db, lane) == run;
    if ((undo = stet__mem_note(tx, UNDO_MEMORY)) == NULL)
        return STET_ENOMEM;
    undo->stale = lane;
    if (!mem_edit_begin(tx, run))
        return STET_ENOMEM;
    run->row.lane = NULL;
    mem_edit_end(tx, run);
    /* Only a new first is woken: one that was first and suspended itself sleeps on. */
    if (!was_first || (next = stet__mem_lane_first(tx->db, lane)) == NULL)
        return STET_OK;
    return STET__MUTANT(lane_asleep) ? STET_OK : mem_wake(tx, next, 0, op->status, op->claimer);
}

static int
mem_op_lane_leave(mem_tx *tx, const stet_op *op)
{
    mem_run *run = stet__mem_run(tx->db, op->run);

    return run != NULL ? mem_lane_leave(tx, run, op) : STET_OK;
}

/* ---- operations on many runs ---------------------------------------------------------------- */

/* The run of the handler that is due first, if it is due at all. */
static mem_run *
mem_ready_first(stet__memory_db *db, const char *handler)
{
    mem_run   probe = { .row = { .handler = handler, .due_ms = INT64_MIN } };
    mem_node *node = stet__mem_tree_ge(&db->ready, &probe.by_place);
    mem_run  *run = node != NULL ? MEM_OF(mem_run, by_place, node) : NULL;

    return run != NULL && strcmp(run->row.handler, handler) == 0 ? run : NULL;
}

int64_t
stet__mem_next_due(stet__memory_db *db, const char *const *handlers, size_t n)
{
    int64_t next_ms = STET_NEVER;

    for (size_t i = 0; i < n; i++) {
        const mem_run *run = mem_ready_first(db, handlers[i]);

        if (run != NULL && run->row.due_ms < next_ms)
            next_ms = run->row.due_ms;
    }
    return next_ms;
}

/* One run of the next handler that has one; *left becomes 0 when none has. */
static int
mem_claim_one(mem_tx *tx, const stet_claimer *claimer, uint32_t *left)
{
    for (size_t i = 0; i < claimer->n_handlers; i++) {
        size_t   at = (tx->h->turn + i) % claimer->n_handlers;
        mem_run *run = mem_ready_first(tx->db, claimer->handlers[at]);

        if (run != NULL && (run->row.due_ms <= tx->now_ms || STET__MUTANT(due_early))) {
            tx->h->turn = at + 1; /* so that no handler starves when one is asked for at a time */
            (*left)--;
            return mem_grant(tx, run, claimer);
        }
    }
    *left = 0;
    return STET_OK;
}

static int
mem_op_claim_due(mem_tx *tx, const stet_op *op)
{
    uint32_t left = op->count;
    int      err;

    if (op->claimer == NULL)
        return stet__fail(STET_EINVAL, "due runs are to be claimed by nobody");
    if (!stet__mem_is_alive(tx->db, stet__mem_session(tx->db, op->claimer->session)))
        left = 0;
    while (left > 0)
        if ((err = mem_claim_one(tx, op->claimer, &left)) != STET_OK)
            return err;
    tx->next_due_ms = stet__mem_next_due(tx->db, op->claimer->handlers, op->claimer->n_handlers);
    return STET_OK;
}

/* An ended run that its worker had not let go keeps its status and is due for nobody. */
static int
mem_let_go(mem_tx *tx, mem_run *run)
{
    if (!mem_edit_begin(tx, run))
        return STET_ENOMEM;
    run->row.session = 0;
    run->row.due_ms = STET_NEVER;
    mem_edit_end(tx, run);
    return STET_OK;
}

static int
mem_op_reap(mem_tx *tx, const stet_op *op)
{
    mem_session *session = stet__mem_session(tx->db, op->session);
    mem_run      probe = { .row = { .session = op->session } };
    mem_node    *node;
    int          err;

    if (op->session == 0)
        return stet__fail(STET_EINVAL, "session 0 cannot be reaped");
    while ((node = stet__mem_tree_ge(&tx->db->owned, &probe.by_place)) != NULL) {
        mem_run *run = MEM_OF(mem_run, by_place, node);

        if (run->row.session != op->session)
            break;
        err = run->row.is_terminal ? mem_let_go(tx, run) : mem_make_due(tx, run, op->status);
        if (err != STET_OK)
            return err;
    }
    if (session == NULL)
        return STET_OK;
    if (!stet__mem_note_record(tx, UNDO_SESSION_REMOVE, NULL, session))
        return STET_ENOMEM;
    stet__mem_tree_remove(&tx->db->sessions, &session->node);
    return STET_OK;
}

static int
mem_op_bury(mem_tx *tx, const stet_op *op)
{
    mem_session *session = stet__mem_session(tx->db, op->session);

    if (session == NULL || session->row.is_dead)
        return STET_OK;
    if (!stet__mem_note_record(tx, UNDO_SESSION_CLOSE, NULL, session))
        return STET_ENOMEM;
    session->row.is_dead = true;
    return STET_OK;
}

static int
mem_op_run_del(mem_tx *tx, const stet_op *op)
{
    mem_run  *run = stet__mem_run(tx->db, op->run);
    mem_timer probe = { .fire_ms = INT64_MIN, .run = op->run };
    mem_node *node;
    int       err;

    if (run == NULL || !run->row.is_terminal)
        return STET_ECONFLICT;
    if ((err = mem_lane_leave(tx, run, op)) != STET_OK)
        return err;
    while ((node = stet__mem_tree_ge(&tx->db->timers_of, &probe.by_run)) != NULL) {
        mem_timer *timer = MEM_OF(mem_timer, by_run, node);

        if (!stet__id_equal(timer->run, op->run))
            break;
        if ((err = mem_timer_remove(tx, timer)) != STET_OK)
            return err;
    }
    if (!stet__mem_note_record(tx, UNDO_RUN_REMOVE, run, NULL))
        return STET_ENOMEM;
    stet__mem_run_unlink(tx->db, run);
    return STET_OK;
}

static int
mem_op_requeue(mem_tx *tx, const stet_op *op)
{
    mem_node *node;
    int       err;

    if (op->claimer == NULL)
        return stet__fail(STET_EINVAL, "runs of no handlers are to be queued again");
    for (size_t i = 0; i < op->claimer->n_handlers; i++) {
        const char *handler = op->claimer->handlers[i];
        mem_run     probe = { .row = { .handler = handler, .status = op->status } };

        while ((node = stet__mem_tree_ge(&tx->db->idle, &probe.by_place)) != NULL) {
            mem_run *run = MEM_OF(mem_run, by_place, node);

            if (run->row.status != op->status || strcmp(run->row.handler, handler) != 0)
                break;
            if ((err = mem_make_due(tx, run, (uint32_t)op->number)) != STET_OK)
                return err;
        }
    }
    return STET_OK;
}

int
stet__mem_op_apply(mem_tx *tx, const stet_op *op)
{
    switch (op->kind) {
    case STET_OP_RUN_PUT: return mem_op_run_put(tx, op);
    case STET_OP_RUN_SET: return mem_op_run_set(tx, op);
    case STET_OP_RUN_WAKE: return mem_op_run_wake(tx, op);
    case STET_OP_FACTS: return mem_op_facts(tx, op);
    case STET_OP_INBOX: return mem_op_inbox(tx, op);
    case STET_OP_TIMER_PUT: return mem_op_timer_put(tx, op);
    case STET_OP_TIMER_DEL: return mem_op_timer_del(tx, op);
    case STET_OP_VALUE_PUT: return mem_op_value_put(tx, op);
    case STET_OP_VALUE_DEL: return mem_op_value_del(tx, op);
    case STET_OP_LANE_ENTER: return mem_op_lane_enter(tx, op);
    case STET_OP_LANE_LEAVE: return mem_op_lane_leave(tx, op);
    case STET_OP_CLAIM_DUE: return mem_op_claim_due(tx, op);
    case STET_OP_REAP: return mem_op_reap(tx, op);
    case STET_OP_RUN_DEL: return mem_op_run_del(tx, op);
    case STET_OP_REQUEUE: return mem_op_requeue(tx, op);
    case STET_OP_BURY: return mem_op_bury(tx, op);
    }
    return stet__fail(STET_EINVAL, "there is no operation of kind %d", (int)op->kind);
}
