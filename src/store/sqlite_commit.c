/* Commits: one transaction and one flush for many units.
 *
 * A unit goes through two passes: sqlite_check.c finds whether it can be applied and writes nothing,
 * so a refused unit leaves no trace; sqlite_apply.c applies it and cannot refuse it any more. An
 * error of the store in either rolls the whole commit back.
 *
 * What a commit answered is kept in one row per handle: units that come again get the same answer.
 * Locks: commit_lock.
 */
#include <string.h>

#include "store/sqlite.h"

/* ---- units ----------------------------------------------------------------------------------- */

static int
commit_hand_out_grants(sqlite_store *st, stet_outcome *out)
{
    size_t bytes = st->n_grants * sizeof *out->grants;

    if (st->n_grants == 0)
        return STET_OK;
    if ((out->grants = stet__get(st->base.alloc, bytes)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    memcpy(out->grants, st->grants, bytes);
    out->n_grants = st->n_grants;
    return STET_OK;
}

static int
commit_inbox_after(sqlite_store *st, const stet_unit *unit, stet_outcome *out)
{
    sqlite_run *run;
    size_t      i;
    int         err;

    for (i = 0; i < unit->n_conds; i++)
        if (unit->conds[i].kind == STET_COND_CLAIM) {
            if ((err = stet__sqlite_run_find(st, &unit->conds[i].run, &run)) != STET_OK)
                return err;
            out->inbox = run->inbox;
            break;
        }
    return STET_OK;
}

static int
commit_unit(sqlite_store *st, const stet_unit *unit, stet_outcome *out)
{
    sqlite_verdict v = { STET_OK, 0 };
    size_t         i;
    int            err;

    st->n_grants = 0;
    if ((err = stet__sqlite_check(st, unit, &v)) != STET_OK)
        return err;
    for (i = 0; v.result == STET_OK && i < unit->n_ops; i++)
        if ((err = stet__sqlite_apply(st, &unit->ops[i], out)) != STET_OK)
            return err;
    out->result = v.result;
    out->cond = v.cond;
    if (v.result != STET_OK)
        return STET_OK;
    if ((err = commit_inbox_after(st, unit, out)) != STET_OK)
        return err;
    return commit_hand_out_grants(st, out);
}

int
stet__sqlite_apply_alone(sqlite_store *st, const stet_unit *unit, stet_outcome *out)
{
    int err;

    memset(out, 0, sizeof *out);
    out->next_due_ms = STET_NEVER;
    stet__sqlite_runs_clear(st); /* the rows in memory are those of another transaction */
    st->n_units = 0;
    if ((err = commit_unit(st, unit, out)) == STET_OK && out->result == STET_OK &&
        (err = stet__sqlite_runs_flush(st)) == STET_OK &&
        (err = stet__sqlite_stretch_flush(st)) == STET_OK)
        err = stet__sqlite_values_flush(st);
    stet__sqlite_runs_clear(st);
    return err;
}

/* ---- memory of outcomes ---------------------------------------------------------------------- */

#define COMMIT_HAS_INBOX  1u
#define COMMIT_HAS_DUE    2u
#define COMMIT_HAS_GRANTS 4u
#define COMMIT_REFUSED    8u
#define COMMIT_HAS_STEP   16u /* the sequence number is not the next */
#define COMMIT_FOREIGN    255u /* a granted run that no operation of the unit names */

/* The run an operation is about, or NULL. */
static const stet_id *
commit_run_of(const stet_op *op)
{
    switch (op->kind) {
    case STET_OP_RUN_PUT: return &op->row->id;
    case STET_OP_RUN_WAKE:
    case STET_OP_LANE_ENTER: return &op->run;
    default: return NULL;
    }
}

/* Most grants are of runs the unit names, and the unit is at hand when it comes again. */
static uint8_t
commit_op_of(const stet_unit *unit, const stet_id *run)
{
    const stet_id *of;
    size_t         i;

    for (i = 0; i < unit->n_ops && i < COMMIT_FOREIGN; i++)
        if ((of = commit_run_of(&unit->ops[i])) != NULL && memcmp(of->bytes, run->bytes, 16) == 0)
            return (uint8_t)i;
    return COMMIT_FOREIGN;
}

/* Flags and what they announce; one byte for a plain unit. */
static void
commit_remember(sqlite_store *st, uint64_t step, const stet_unit *unit, const stet_outcome *out)
{
    stet__buf *b = &st->remember;
    uint8_t    flags = 0, at;
    size_t     i;

    flags |= out->inbox != 0 ? COMMIT_HAS_INBOX : 0;
    flags |= out->next_due_ms != STET_NEVER ? COMMIT_HAS_DUE : 0;
    flags |= out->n_grants != 0 ? COMMIT_HAS_GRANTS : 0;
    flags |= out->result != STET_OK ? COMMIT_REFUSED : 0;
    flags |= step != 1 ? COMMIT_HAS_STEP : 0;
    stet__buf_byte(b, flags);
    if ((flags & COMMIT_HAS_STEP) != 0)
        stet__buf_varint(b, step);
    if ((flags & COMMIT_REFUSED) != 0) {
        stet__buf_varint(b, (uint64_t)-out->result);
        stet__buf_varint(b, out->cond);
    }
    if ((flags & COMMIT_HAS_INBOX) != 0)
        stet__buf_varint(b, out->inbox);
    if ((flags & COMMIT_HAS_DUE) != 0)
        stet__buf_u64(b, (uint64_t)out->next_due_ms);
    if ((flags & COMMIT_HAS_GRANTS) != 0)
        stet__buf_varint(b, out->n_grants);
    for (i = 0; i < out->n_grants; i++) {
        at = commit_op_of(unit, &out->grants[i].run);
        stet__buf_byte(b, at);
        if (at == COMMIT_FOREIGN)
            stet__buf_add(b, out->grants[i].run.bytes, 16);
        stet__buf_varint(b, out->grants[i].epoch);
        stet__buf_varint(b, out->grants[i].inbox);
    }
}

static bool
commit_recall_grant(stet_bytes *in, const stet_unit *unit, stet_grant *grant)
{
    const stet_id *of;
    stet_bytes     id;
    uint8_t        at;

    if (!stet__read_byte(in, &at))
        return false;
    if (at == COMMIT_FOREIGN) {
        if (!stet__read_bytes(in, 16, &id))
            return false;
        memcpy(grant->run.bytes, id.data, 16);
    } else if (unit != NULL) {
        if (at >= unit->n_ops || (of = commit_run_of(&unit->ops[at])) == NULL)
            return false;
        grant->run = *of;
    }
    return stet__read_varint(in, &grant->epoch) && stet__read_varint(in, &grant->inbox);
}

/* The next remembered answer; the runs of its grants are right only if `unit` is the one it was given to. */
static bool
commit_recall_next(sqlite_store *st, stet_bytes *in, const stet_unit *unit, uint64_t *seq,
                   stet_outcome *out, int *err)
{
    uint64_t step = 1, cond = 0, code = 0, due = (uint64_t)STET_NEVER, n = 0, i;
    uint8_t  flags;

    if (!stet__read_byte(in, &flags))
        return false;
    if ((flags & COMMIT_HAS_STEP) != 0 && !stet__read_varint(in, &step))
        return false;
    *seq += step;
    if ((flags & COMMIT_REFUSED) != 0 && (!stet__read_varint(in, &code) || !stet__read_varint(in, &cond)))
        return false;
    if ((flags & COMMIT_HAS_INBOX) != 0 && !stet__read_varint(in, &out->inbox))
        return false;
    if ((flags & COMMIT_HAS_DUE) != 0 && !stet__read_u64(in, &due))
        return false;
    out->result = -(int)code;
    out->cond = (uint32_t)cond;
    out->next_due_ms = (int64_t)due;
    if ((flags & COMMIT_HAS_GRANTS) == 0)
        return true;
    if (!stet__read_varint(in, &n) || n > in->len)
        return false;
    if ((out->grants = stet__get0(st->base.alloc, (size_t)n * sizeof *out->grants)) == NULL) {
        *err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
        return false;
    }
    for (i = 0; i < n; i++)
        if (!commit_recall_grant(in, *seq == unit->seq ? unit : NULL, &out->grants[i]))
            return false;
    out->n_grants = (size_t)n;
    return true;
}

static void
commit_outcome_clear(sqlite_store *st, stet_outcome *out)
{
    stet__free(st->base.alloc, out->grants);
    memset(out, 0, sizeof *out);
    out->next_due_ms = STET_NEVER;
}

/* The old answer of a unit that comes again. */
static int
commit_recall(sqlite_store *st, const stet_unit *unit, stet_outcome *out)
{
    stet_bytes in = stet__buf_bytes(&st->remembered);
    uint64_t   at = 0;
    int        err = STET_OK;

    while (in.len > 0) {
        commit_outcome_clear(st, out);
        if (!commit_recall_next(st, &in, unit, &at, out, &err)) {
            commit_outcome_clear(st, out);
            return err != STET_OK
                       ? err
                       : stet__fail(STET_ECORRUPT, "store %s: damaged outcomes", st->path);
        }
        if (at == unit->seq) {
            out->is_repeat = true;
            return STET_OK;
        }
    }
    commit_outcome_clear(st, out);
    out->result = STET_EINVAL; /* older than the last commit, or never seen: not to be applied */
    out->cond = (uint32_t)unit->n_conds;
    out->is_repeat = true;
    return STET_OK;
}

/* The last sequence number answered, and the answers if they may be needed. */
static int
commit_memory_load(sqlite_store *st, uint64_t first_seq, uint64_t *last_seq)
{
    stet_bytes    outcomes;
    int           err = STET_OK;
    int           rc;
    sqlite3_stmt *row = sqlite_writer_stmt(st, LITE_SQL_COMMITTER_GET, &err);

    *last_seq = 0;
    if (row == NULL)
        return err;
    if (st->has_seq && first_seq > st->last_seq) { /* nobody else writes it */
        *last_seq = st->last_seq;
        return STET_OK;
    }
    sqlite_bind_id(row, 1, &st->base.committer);
    rc = sqlite3_step(row);
    if (rc == SQLITE_ROW) {
        *last_seq = (uint64_t)sqlite3_column_int64(row, 0);
        if (first_seq <= *last_seq) {
            outcomes = stet__sqlite_column_bytes(row, 1);
            stet__buf_add(&st->remembered, outcomes.data, outcomes.len);
        }
        if (st->remembered.failed)
            err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    } else if (rc != SQLITE_DONE) {
        err = stet__sqlite_fail(st, st->writer.db, rc, "read the last commit");
    }
    sqlite3_reset(row);
    return err;
}

static int
commit_memory_save(sqlite_store *st, uint64_t last_seq)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = sqlite_writer_stmt(st, LITE_SQL_COMMITTER_PUT, &err);

    if (stmt == NULL)
        return err;
    if (st->remember.failed)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    sqlite_bind_id(stmt, 1, &st->base.committer);
    sqlite_bind_u64(stmt, 2, last_seq);
    sqlite3_bind_int64(stmt, 3, st->now_ms);
    sqlite_bind_bytes(stmt, 4, stet__buf_bytes(&st->remember));
    return stet__sqlite_run(st, &st->writer, stmt, "note the commit");
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* What a commit did, as far as anybody else cares. */
typedef struct commit_effect {
    bool must_write; /* something changed or was refused; else it was an idle look for work */
    bool is_news;    /* others may have something to do now */
} commit_effect;

static void
commit_note_effect(const stet_unit *unit, const stet_outcome *out, commit_effect *effect)
{
    size_t i;

    if (out->result != STET_OK || out->n_grants > 0)
        effect->must_write = true;
    for (i = 0; out->result == STET_OK && i < unit->n_ops; i++)
        if (unit->ops[i].kind != STET_OP_CLAIM_DUE) {
            effect->must_write = true;
            effect->is_news = true;
        }
}

/* A failed buffer stays so, which must not outlive the commit it failed in. */
static void
commit_buf_empty(stet__buf *b)
{
    stet__alloc *alloc = b->alloc;

    if (b->failed) {
        stet__buf_free(b);
        stet__buf_init(b, alloc);
    }
    b->len = 0;
}

static void
commit_outcomes_init(stet_outcome *outcomes, size_t from, size_t n)
{
    size_t i;

    for (i = from; i < n; i++) {
        memset(&outcomes[i], 0, sizeof outcomes[i]);
        outcomes[i].next_due_ms = STET_NEVER;
    }
}

/* Are there units behind the last one? While we applied those we had, others came; and while their runs are
 * executed, the rows of the first ones are written. */
static bool
commit_grows(sqlite_store *st, const stet_unit *units, size_t *n, stet_outcome *outcomes, int *err)
{
    size_t before = *n;

    if (st->base.more == NULL || (*err = stet__sqlite_runs_flush(st)) != STET_OK)
        return false;
    *n = st->base.more(st->base.more_arg, units, before);
    commit_outcomes_init(outcomes, before, *n);
    st->now_ms = stet__sqlite_now(st); /* they may be due later than those before */
    return *n > before;
}

/* Inside the transaction. */
static int
commit_units(sqlite_store *st, const stet_unit *units, size_t *n, stet_outcome *outcomes,
             commit_effect *effect)
{
    uint64_t last_seq, before = 0;
    int      changes = sqlite3_total_changes(st->writer.db);
    size_t   i;
    int      err;

    st->now_ms = stet__sqlite_now(st);
    commit_buf_empty(&st->remember);
    commit_buf_empty(&st->remembered);
    stet__sqlite_runs_begin(st);
    if ((err = commit_memory_load(st, units[0].seq, &last_seq)) != STET_OK)
        return err;
    st->units = units;
    st->outcomes = outcomes;
    for (i = 0; i < *n || commit_grows(st, units, n, outcomes, &err); i++) {
        st->n_units = i;
        err = units[i].seq <= last_seq && !STET__MUTANT(file_repeat_applied)
                  ? commit_recall(st, &units[i], &outcomes[i])
                  : commit_unit(st, &units[i], &outcomes[i]);
        if (err != STET_OK)
            return err;
        if (units[i].seq > last_seq)
            commit_note_effect(&units[i], &outcomes[i], effect);
        commit_remember(st, units[i].seq - before, &units[i], &outcomes[i]);
        before = units[i].seq;
    }
    if (err != STET_OK || !effect->must_write)
        return err; /* what is remembered of the last commit stays */
    if ((err = stet__sqlite_runs_flush(st)) != STET_OK || (err = stet__sqlite_stretch_flush(st)) != STET_OK ||
        (err = stet__sqlite_values_flush(st)) != STET_OK)
        return err;
    /* Waking what is awake and the like is no news; idle workers would else wake each other. */
    effect->is_news = effect->is_news && sqlite3_total_changes(st->writer.db) != changes;
    return commit_memory_save(st, units[*n - 1].seq);
}

static int
commit_locked(sqlite_store *st, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    commit_effect effect = { false, false };
    size_t        i;
    int           err;

    if (atomic_load(&st->is_poisoned) || st->writer.db == NULL)
        return stet__fail(STET_EPOISONED, "store %s: a flush failed before; reopen the store",
                          st->path);
    if ((err = stet__sqlite_begin(st, &st->writer)) != STET_OK)
        return err;
    /* Looking for work in vain writes nothing, or idle workers would flush all day. */
    if ((err = commit_units(st, units, &n, outcomes, &effect)) != STET_OK || !effect.must_write) {
        stet__sqlite_rollback(st, &st->writer);
        stet__sqlite_stretch_clear(st);
    } else {
        stet__sqlite_frames_gather(st);
        if ((err = stet__sqlite_end(st, &st->writer)) == STET_EPOISONED)
            atomic_store(&st->is_poisoned, true);
        stet__sqlite_frames_done(st);
    }
    st->has_seq = st->has_seq && err == STET_OK;
    if (err == STET_OK) {
        if (effect.must_write) {
            st->last_seq = units[n - 1].seq;
            st->has_seq = true;
        }
        stet__sqlite_runs_end(st);
        if (effect.is_news)
            stet__sqlite_hint(st);
        return STET_OK;
    }
    stet__sqlite_runs_clear(st);
    for (i = 0; i < n; i++)
        commit_outcome_clear(st, &outcomes[i]);
    return err;
}

int
stet__sqlite_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    sqlite_store *st = sqlite_of(s);
    int           err;

    commit_outcomes_init(outcomes, 0, n);
    if ((err = stet__sqlite_enter(st)) != STET_OK || n == 0)
        return err;
    stet__lock(s->platform, &st->commit_lock);
    stet__arena_init(&st->scratch, s->alloc);
    err = commit_locked(st, units, n, outcomes);
    stet__arena_free(&st->scratch);
    stet__unlock(s->platform, &st->commit_lock);
    return err;
}
