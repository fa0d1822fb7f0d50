/* Units of the memory store: what makes them all or nothing, and answered once.
 *
 * A unit is applied as it is read. When a condition, an operation's own rule or an allocation fails,
 * the undo log is walked back: to the unit's beginning if the unit is refused, to the batch's if
 * memory ran out.
 *
 * Repeats: of each committer the answers of its last call are kept, those of repeats in it too, for
 * the reply of that call may be lost again.
 *
 * Runs on: committer. Locks: db->mutex, once for a whole call.
 */
#include <string.h>

#include "store/memory.h"

/* ---- units ---------------------------------------------------------------------------------- */

static uint64_t
mem_unit_inbox(mem_tx *tx, const stet_unit *unit)
{
    mem_run *run = NULL;

    for (size_t i = 0; i < unit->n_conds && run == NULL; i++)
        if (unit->conds[i].kind == STET_COND_CLAIM)
            run = stet__mem_run(tx->db, unit->conds[i].run);
    return run != NULL ? run->row.inbox : 0;
}

static int
mem_unit_try(mem_tx *tx, const stet_unit *unit, uint32_t *cond)
{
    int err = STET_OK;

    for (size_t i = 0; i < unit->n_conds; i++) {
        *cond = (uint32_t)i;
        if ((err = stet__mem_cond_check(tx, &unit->conds[i])) != STET_OK)
            return err;
    }
    *cond = (uint32_t)unit->n_conds;
    for (size_t i = 0; i < unit->n_ops; i++)
        if ((err = stet__mem_op_apply(tx, &unit->ops[i])) != STET_OK)
            return err;
    return STET_OK;
}

static void
mem_unit_apply(mem_tx *tx, const stet_unit *unit, mem_answer *answer)
{
    size_t mark = tx->db->n_undo;
    size_t grants = tx->db->n_grants;

    tx->next_due_ms = STET_NEVER;
    *answer = (mem_answer){ .seq = unit->seq, .first_grant = grants };
    answer->result = mem_unit_try(tx, unit, &answer->cond);
    if (answer->result != STET_OK) {
        if (!STET__MUTANT(unit_torn))
            stet__mem_roll_back(tx->db, mark, grants);
        answer->next_due_ms = STET_NEVER;
        return;
    }
    answer->inbox = mem_unit_inbox(tx, unit);
    answer->next_due_ms = tx->next_due_ms;
    answer->n_grants = tx->db->n_grants - grants;
}

/* ---- repeats -------------------------------------------------------------------------------- */

static const mem_answer *
mem_answer_find(const mem_committer *committer, uint64_t seq)
{
    size_t low = 0, high = committer->n_answers;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (committer->answers[mid].seq < seq)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < committer->n_answers && committer->answers[low].seq == seq)
        return &committer->answers[low];
    return NULL;
}

/* Answer as before; its grants are gathered with those of the units behind it. */
static int
mem_unit_repeat(mem_tx *tx, const mem_committer *committer, const stet_unit *unit,
                mem_answer *answer)
{
    const mem_answer *old = mem_answer_find(committer, unit->seq);
    stet__memory_db  *db = tx->db;

    if (old == NULL) {
        *answer = (mem_answer){ .seq = unit->seq,
                                .result = STET_EINVAL,
                                .is_repeat = true,
                                .cond = (uint32_t)unit->n_conds,
                                .next_due_ms = STET_NEVER };
        (void)stet__fail(STET_EINVAL, "unit %llu is older than the last batch of its committer",
                         (unsigned long long)unit->seq);
        return STET_OK;
    }
    *answer = *old;
    answer->is_repeat = true;
    answer->first_grant = db->n_grants;
    for (size_t i = 0; i < old->n_grants; i++) {
        void *items = db->grants;
        bool  has_room =
            stet__mem_room(db, &items, &db->cap_grants, db->n_grants, sizeof *db->grants);

        db->grants = items;
        if (!has_room)
            return STET_ENOMEM;
        db->grants[db->n_grants++] = committer->grants[old->first_grant + i];
    }
    return STET_OK;
}

/* The committer of this handle, made when it commits for the first time. */
static mem_committer *
mem_committer_get(mem_tx *tx)
{
    stet_id        id = tx->h->base.committer;
    mem_committer *committer = stet__mem_committer(tx->db, id);

    if (committer != NULL)
        return committer;
    if ((committer = stet__get0(tx->db->alloc, sizeof *committer)) == NULL)
        return NULL;
    committer->id = id;
    stet__mem_tree_add(&tx->db->committers, &committer->node);
    return committer;
}

/* Keep the answers of this call in place of the last one's. Cannot fail: takes what was allocated. */
static void
mem_remember(mem_tx *tx, mem_committer *committer, mem_answer **answers, size_t n,
             stet_grant **grants)
{
    size_t kept = 0;

    /* Units that were too old have no answer worth keeping, and would spoil the order. */
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || (*answers)[i].seq > (*answers)[kept - 1].seq)
            if (!(*answers)[i].is_repeat || mem_answer_find(committer, (*answers)[i].seq) != NULL)
                (*answers)[kept++] = (*answers)[i];
    stet__free(tx->db->alloc, committer->answers);
    stet__free(tx->db->alloc, committer->grants);
    committer->answers = *answers;
    committer->n_answers = kept;
    committer->grants = *grants;
    committer->last_seq = (*answers)[kept - 1].seq;
    *answers = NULL;
    *grants = NULL;
}

/* ---- commit --------------------------------------------------------------------------------- */

static int
mem_answers_out(mem_tx *tx, const mem_answer *answers, size_t n, stet_outcome *outcomes)
{
    for (size_t i = 0; i < n; i++) {
        const mem_answer *a = &answers[i];
        stet_grant       *grants = NULL;

        if (a->n_grants > 0) {
            if ((grants = stet__get(tx->h->base.alloc, a->n_grants * sizeof *grants)) == NULL)
                return STET_ENOMEM;
            memcpy(grants, tx->db->grants + a->first_grant, a->n_grants * sizeof *grants);
        }
        outcomes[i] = (stet_outcome){ .result = a->result,
                                      .is_repeat = a->is_repeat,
                                      .cond = a->cond,
                                      .inbox = a->inbox,
                                      .next_due_ms = a->next_due_ms,
                                      .grants = grants,
                                      .n_grants = a->n_grants };
    }
    return STET_OK;
}

static void
mem_outcomes_clear(mem_store *h, stet_outcome *outcomes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        stet__free(h->base.alloc, outcomes[i].grants);
        outcomes[i] = (stet_outcome){ .next_due_ms = STET_NEVER };
    }
}

/* Apply or answer again each unit. *n_new: how many were not repeats. */
static int
mem_units_run(mem_tx *tx, const mem_committer *committer, const stet_unit *units, size_t n,
              mem_answer *answers, size_t *n_new)
{
    uint64_t last = committer->last_seq;
    int      err = STET_OK;

    tx->answers = answers;
    for (size_t i = 0; i < n; i++) {
        tx->n_answers = i;
        if (units[i].seq <= last && !STET__MUTANT(repeat_applied)) {
            if ((err = mem_unit_repeat(tx, committer, &units[i], &answers[i])) != STET_OK)
                return err;
            continue;
        }
        last = units[i].seq;
        mem_unit_apply(tx, &units[i], &answers[i]);
        if (answers[i].result == STET_ENOMEM)
            return STET_ENOMEM;
        ++*n_new;
    }
    return STET_OK;
}

static int
mem_commit_locked(mem_tx *tx, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    stet__memory_db *db = tx->db;
    mem_committer   *committer = mem_committer_get(tx);
    mem_answer      *answers = stet__get0(db->alloc, n * sizeof *answers);
    stet_grant      *grants = NULL;
    size_t           n_new = 0;
    bool             has_change;
    int              err = STET_ENOMEM;

    if (committer == NULL || answers == NULL)
        goto done;
    if ((err = mem_units_run(tx, committer, units, n, answers, &n_new)) != STET_OK)
        goto done;
    if ((err = mem_answers_out(tx, answers, n, outcomes)) != STET_OK)
        goto done;
    err = STET_ENOMEM;
    if (db->n_grants > 0 && (grants = stet__get(db->alloc, db->n_grants * sizeof *grants)) == NULL)
        goto done;
    if (db->n_grants > 0)
        memcpy(grants, db->grants, db->n_grants * sizeof *grants);

    committer->seen_ms = tx->now_ms;
    if (n_new > 0)
        mem_remember(tx, committer, &answers, n, &grants);
    /* Every change is noted. Without one nobody is woken: two idle workers that look for work in vain
     * would else wake each other for ever. */
    has_change = db->n_undo > 0;
    stet__mem_settle(db);
    if (has_change) {
        db->commits++;
        tx->h->commits++;
        stet__broadcast(db->owner, &db->changed);
    }
    err = STET_OK;
done:
    if (err != STET_OK) {
        stet__mem_roll_back(db, 0, 0);
        mem_outcomes_clear(tx->h, outcomes, n);
    }
    db->n_grants = 0;
    stet__free(db->alloc, answers);
    stet__free(db->alloc, grants);
    return err;
}

int
stet__mem_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    mem_store *h = mem_handle(s);
    mem_tx     tx = { .db = h->db, .h = h };
    int        err;

    if (n == 0)
        return STET_OK;
    for (size_t i = 0; i < n; i++)
        outcomes[i] = (stet_outcome){ .next_due_ms = STET_NEVER };
    mem_lock(h->db);
    tx.now_ms = mem_now(h->db);
    err = mem_commit_locked(&tx, units, n, outcomes);
    mem_unlock(h->db);
    if (err == STET_ENOMEM)
        return stet__fail(STET_ENOMEM,
                          "memory store: out of memory; nothing of the batch was applied");
    return err;
}
