/* The undo log of the memory store.
 *
 * Every change of a commit is noted here first. Walking back never allocates, because the trees sit
 * inside the records; and what a change replaced or removed is freed only when the whole batch
 * stands, so it is still there to be put back.
 *
 * Invariants: a change follows its log entry, and nothing that can fail comes between the two; log
 * entries are undone in the reverse order, so each finds the records as they were just after it.
 *
 * Runs on: committer. Locks: db->mutex held.
 */
#include "store/memory.h"

bool
stet__mem_room(stet__memory_db *db, void **items, size_t *cap, size_t used, size_t size)
{
    size_t fresh = stet__cap_next(db->alloc, *cap, 32);
    void  *grown;

    if (used < *cap)
        return true;
    if ((grown = stet__grow(db->alloc, *items, fresh * size)) == NULL)
        return false;
    *items = grown;
    *cap = fresh;
    return true;
}

mem_undo *
stet__mem_note(mem_tx *tx, mem_undo_kind kind)
{
    stet__memory_db *db = tx->db;
    void            *items = db->undo;
    bool      has_room = stet__mem_room(db, &items, &db->cap_undo, db->n_undo, sizeof *db->undo);
    mem_undo *undo;

    db->undo = items;
    if (!has_room)
        return NULL;
    undo = &db->undo[db->n_undo++];
    undo->kind = kind;
    undo->run = NULL;
    undo->record = NULL;
    undo->fresh = undo->stale = NULL;
    return undo;
}

bool
stet__mem_note_record(mem_tx *tx, mem_undo_kind kind, mem_run *run, void *record)
{
    mem_undo *undo = stet__mem_note(tx, kind);

    if (undo == NULL)
        return false;
    undo->run = run;
    undo->record = record;
    return true;
}

void
stet__mem_timer_link(stet__memory_db *db, mem_timer *timer)
{
    stet__mem_tree_add(&db->timers, &timer->by_time);
    stet__mem_tree_add(&db->timers_of, &timer->by_run);
}

void
stet__mem_timer_unlink(stet__memory_db *db, mem_timer *timer)
{
    stet__mem_tree_remove(&db->timers, &timer->by_time);
    stet__mem_tree_remove(&db->timers_of, &timer->by_run);
}

static void
mem_facts_undo(stet__memory_db *db, mem_tree *tree, mem_facts *facts)
{
    stet__mem_tree_remove(tree, &facts->node);
    stet__mem_facts_free(db, facts);
}

void
stet__mem_run_link(stet__memory_db *db, mem_run *run)
{
    stet__mem_tree_add(&db->runs, &run->by_id);
    stet__mem_run_place(db, run);
}

void
stet__mem_run_unlink(stet__memory_db *db, mem_run *run)
{
    stet__mem_run_displace(db, run);
    stet__mem_tree_remove(&db->runs, &run->by_id);
}

static void
mem_columns_undo(stet__memory_db *db, const mem_undo *undo)
{
    stet__mem_run_displace(db, undo->run);
    undo->run->row = undo->row;
    undo->run->ticket = undo->ticket;
    stet__mem_run_place(db, undo->run);
}

static void
mem_undo_one(stet__memory_db *db, const mem_undo *undo)
{
    mem_value *value = undo->record;

    switch (undo->kind) {
    case UNDO_COLUMNS: mem_columns_undo(db, undo); break;
    case UNDO_MEMORY: stet__free(db->alloc, (void *)(uintptr_t)undo->fresh); break;
    case UNDO_RUN_ADD:
        stet__mem_run_unlink(db, undo->run);
        stet__mem_run_free(db, undo->run);
        break;
    case UNDO_RUN_REMOVE: stet__mem_run_link(db, undo->run); break;
    case UNDO_JOURNAL_ADD: mem_facts_undo(db, &undo->run->journal, undo->record); break;
    case UNDO_INBOX_ADD: mem_facts_undo(db, &undo->run->inbox, undo->record); break;
    case UNDO_JOURNAL_REMOVE:
        stet__mem_tree_add(&undo->run->journal, &((mem_facts *)undo->record)->node);
        break;
    case UNDO_INBOX_REMOVE:
        stet__mem_tree_add(&undo->run->inbox, &((mem_facts *)undo->record)->node);
        break;
    case UNDO_TIMER_ADD:
        stet__mem_timer_unlink(db, undo->record);
        stet__free(db->alloc, undo->record);
        break;
    case UNDO_TIMER_REMOVE: stet__mem_timer_link(db, undo->record); break;
    case UNDO_VALUE_ADD:
        stet__mem_tree_remove(&db->values, &value->node);
        stet__mem_value_free(db, value);
        break;
    case UNDO_VALUE_REMOVE: stet__mem_tree_add(&db->values, &value->node); break;
    case UNDO_SESSION_REMOVE:
        stet__mem_tree_add(&db->sessions, &((mem_session *)undo->record)->node);
        break;
    case UNDO_SESSION_CLOSE: ((mem_session *)undo->record)->row.is_dead = false; break;
    }
}

void
stet__mem_roll_back(stet__memory_db *db, size_t mark, size_t grants)
{
    while (db->n_undo > mark)
        mem_undo_one(db, &db->undo[--db->n_undo]);
    db->n_grants = grants;
}

static void
mem_session_end(stet__memory_db *db, mem_session *session)
{
    mem_crumbs *crumbs = stet__mem_crumbs(db, session->row.session);

    stet__mem_session_free(db, session);
    if (crumbs != NULL)
        stet__mem_crumbs_settle(db, crumbs);
}

void
stet__mem_settle(stet__memory_db *db)
{
    for (size_t i = 0; i < db->n_undo; i++) {
        const mem_undo *undo = &db->undo[i];

        if (undo->kind == UNDO_MEMORY)
            stet__free(db->alloc, (void *)(uintptr_t)undo->stale);
        else if (undo->kind == UNDO_RUN_REMOVE)
            stet__mem_run_free(db, undo->run);
        else if (undo->kind == UNDO_JOURNAL_REMOVE || undo->kind == UNDO_INBOX_REMOVE)
            stet__mem_facts_free(db, undo->record);
        else if (undo->kind == UNDO_TIMER_REMOVE)
            stet__free(db->alloc, undo->record);
        else if (undo->kind == UNDO_VALUE_REMOVE)
            stet__mem_value_free(db, undo->record);
        else if (undo->kind == UNDO_SESSION_REMOVE)
            mem_session_end(db, undo->record);
    }
    db->n_undo = 0;
}
