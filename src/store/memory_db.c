/* The database of the memory store: its records, the orders they are kept in, their birth and end.
 *
 * A run is in `runs` always, in one of `ready`, `idle`, `owned` or none of them according to its
 * columns, and in `lanes` while it is in a lane; who changes a column that decides this displaces
 * the run first and places it again. Everything here runs with the lock of the database held, except
 * making and freeing a database.
 */
#include <string.h>

#include "store/memory.h"

/* ---- orders --------------------------------------------------------------------------------- */

static int
mem_cmp_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int
mem_cmp_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int
mem_cmp_id(const stet_id *a, const stet_id *b)
{
    uint64_t x = stet__load_be64(a->bytes), y = stet__load_be64(b->bytes);

    if (x == y) {
        x = stet__load_be64(a->bytes + 8);
        y = stet__load_be64(b->bytes + 8);
    }
    return (x > y) - (x < y);
}

static int
mem_cmp_bytes(stet_bytes a, stet_bytes b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int    order = len == 0 ? 0 : memcmp(a.data, b.data, len);

    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int
mem_cmp_run(const mem_node *a, const mem_node *b)
{
    return mem_cmp_id(&MEM_OF(const mem_run, by_id, a)->row.id,
                      &MEM_OF(const mem_run, by_id, b)->row.id);
}

static int
mem_cmp_ready(const mem_node *a, const mem_node *b)
{
    const stet_run_row *x = &MEM_OF(const mem_run, by_place, a)->row;
    const stet_run_row *y = &MEM_OF(const mem_run, by_place, b)->row;
    int                 order = strcmp(x->handler, y->handler);

    if (order == 0)
        order = mem_cmp_i64(x->due_ms, y->due_ms);
    return order != 0 ? order : mem_cmp_id(&x->id, &y->id);
}

static int
mem_cmp_idle(const mem_node *a, const mem_node *b)
{
    const stet_run_row *x = &MEM_OF(const mem_run, by_place, a)->row;
    const stet_run_row *y = &MEM_OF(const mem_run, by_place, b)->row;
    int                 order = strcmp(x->handler, y->handler);

    if (order == 0)
        order = mem_cmp_u64(x->status, y->status);
    return order != 0 ? order : mem_cmp_id(&x->id, &y->id);
}

static int
mem_cmp_owned(const mem_node *a, const mem_node *b)
{
    const stet_run_row *x = &MEM_OF(const mem_run, by_place, a)->row;
    const stet_run_row *y = &MEM_OF(const mem_run, by_place, b)->row;
    int                 order = mem_cmp_u64(x->session, y->session);

    return order != 0 ? order : mem_cmp_id(&x->id, &y->id);
}

static int
mem_cmp_lane(const mem_node *a, const mem_node *b)
{
    const mem_run *x = MEM_OF(const mem_run, by_lane, a);
    const mem_run *y = MEM_OF(const mem_run, by_lane, b);
    int            order = strcmp(x->row.lane, y->row.lane);

    return order != 0 ? order : mem_cmp_u64(x->ticket, y->ticket);
}

static int
mem_cmp_facts(const mem_node *a, const mem_node *b)
{
    return mem_cmp_u64(MEM_OF(const mem_facts, node, a)->first,
                       MEM_OF(const mem_facts, node, b)->first);
}

static int
mem_cmp_timer(const mem_node *a, const mem_node *b)
{
    const mem_timer *x = MEM_OF(const mem_timer, by_time, a);
    const mem_timer *y = MEM_OF(const mem_timer, by_time, b);
    int              order = mem_cmp_i64(x->fire_ms, y->fire_ms);

    if (order == 0)
        order = mem_cmp_id(&x->run, &y->run);
    return order != 0 ? order : mem_cmp_u64(x->completion, y->completion);
}

static int
mem_cmp_timer_of(const mem_node *a, const mem_node *b)
{
    const mem_timer *x = MEM_OF(const mem_timer, by_run, a);
    const mem_timer *y = MEM_OF(const mem_timer, by_run, b);
    int              order = mem_cmp_id(&x->run, &y->run);

    if (order == 0)
        order = mem_cmp_i64(x->fire_ms, y->fire_ms);
    return order != 0 ? order : mem_cmp_u64(x->completion, y->completion);
}

static int
mem_cmp_value(const mem_node *a, const mem_node *b)
{
    const mem_value *x = MEM_OF(const mem_value, node, a);
    const mem_value *y = MEM_OF(const mem_value, node, b);
    int              order = mem_cmp_u64(x->first, y->first);

    if (order == 0 && (x->first & 0xff) != 0) /* there is more of it */
        order = strcmp(x->space + 8, y->space + 8);
    return order != 0 ? order : mem_cmp_bytes(x->key, y->key);
}

static int
mem_cmp_session(const mem_node *a, const mem_node *b)
{
    return mem_cmp_u64(MEM_OF(const mem_session, node, a)->row.session,
                       MEM_OF(const mem_session, node, b)->row.session);
}

static int
mem_cmp_crumbs(const mem_node *a, const mem_node *b)
{
    return mem_cmp_u64(MEM_OF(const mem_crumbs, node, a)->session,
                       MEM_OF(const mem_crumbs, node, b)->session);
}

static int
mem_cmp_committer(const mem_node *a, const mem_node *b)
{
    return mem_cmp_id(&MEM_OF(const mem_committer, node, a)->id,
                      &MEM_OF(const mem_committer, node, b)->id);
}

/* ---- finding -------------------------------------------------------------------------------- */

/* What is asked for most, so without a probe to fill and a function to call. */
mem_run *
stet__mem_run(stet__memory_db *db, stet_id id)
{
    uint64_t  high = stet__load_be64(id.bytes), low = stet__load_be64(id.bytes + 8);
    mem_node *at = db->runs.root;

    while (at != NULL) {
        mem_run *run = MEM_OF(mem_run, by_id, at);
        uint64_t its = stet__load_be64(run->row.id.bytes), mine = high;

        if (its == high) {
            its = stet__load_be64(run->row.id.bytes + 8);
            mine = low;
            if (its == low)
                return run;
        }
        at = its < mine ? at->right : at->left;
    }
    return NULL;
}

/* The first eight bytes as a number; 0 for those that are not there. */
static uint64_t
mem_space_first(const char *space)
{
    uint64_t first = 0;
    int      shift = 64;

    while (shift > 0 && *space != '\0')
        first |= (uint64_t)(uint8_t)*space++ << (shift -= 8);
    return first;
}

mem_value
stet__mem_value_probe(const char *space, stet_bytes key)
{
    return (mem_value){ .space = space, .first = mem_space_first(space), .key = key };
}

mem_value *
stet__mem_value(stet__memory_db *db, const char *space, stet_bytes key)
{
    mem_value probe = stet__mem_value_probe(space, key);
    mem_node *found = stet__mem_tree_find(&db->values, &probe.node);

    return found != NULL ? MEM_OF(mem_value, node, found) : NULL;
}

mem_timer *
stet__mem_timer(stet__memory_db *db, int64_t fire_ms, stet_id run, uint64_t completion)
{
    mem_timer probe = { .fire_ms = fire_ms, .run = run, .completion = completion };
    mem_node *found = stet__mem_tree_find(&db->timers, &probe.by_time);

    return found != NULL ? MEM_OF(mem_timer, by_time, found) : NULL;
}

mem_session *
stet__mem_session(stet__memory_db *db, uint64_t session)
{
    mem_session probe = { .row = { .session = session } };
    mem_node   *found = stet__mem_tree_find(&db->sessions, &probe.node);

    return found != NULL ? MEM_OF(mem_session, node, found) : NULL;
}

mem_crumbs *
stet__mem_crumbs(stet__memory_db *db, uint64_t session)
{
    mem_crumbs probe = { .session = session };
    mem_node  *found = stet__mem_tree_find(&db->crumbs, &probe.node);

    return found != NULL ? MEM_OF(mem_crumbs, node, found) : NULL;
}

mem_committer *
stet__mem_committer(stet__memory_db *db, stet_id id)
{
    mem_committer probe = { .id = id };
    mem_node     *found = stet__mem_tree_find(&db->committers, &probe.node);

    return found != NULL ? MEM_OF(mem_committer, node, found) : NULL;
}

mem_run *
stet__mem_lane_first(stet__memory_db *db, const char *lane)
{
    mem_run   probe = { .row = { .lane = lane } };
    mem_node *found = stet__mem_tree_ge(&db->lanes, &probe.by_lane);
    mem_run  *run = found != NULL ? MEM_OF(mem_run, by_lane, found) : NULL;

    return run != NULL && strcmp(run->row.lane, lane) == 0 ? run : NULL;
}

bool
stet__mem_is_alive(stet__memory_db *db, const mem_session *session)
{
    return session != NULL && !session->row.is_dead && session->row.lease_until_ms > mem_now(db);
}

bool
stet__mem_is_own(const mem_store *h, const mem_session *session)
{
    for (size_t i = 0; i < h->n_tokens; i++)
        if (h->tokens[i].session == session->row.session)
            return memcmp(h->tokens[i].hash, session->token_hash, sizeof session->token_hash) == 0;
    return false;
}

/* ---- runs ----------------------------------------------------------------------------------- */

void
stet__mem_run_place(stet__memory_db *db, mem_run *run)
{
    if (run->row.session != 0)
        run->place = &db->owned;
    else if (run->row.is_terminal)
        run->place = NULL;
    else
        run->place = run->row.due_ms == STET_NEVER ? &db->idle : &db->ready;
    if (run->place != NULL)
        stet__mem_tree_add(run->place, &run->by_place);
    if (run->row.lane != NULL)
        stet__mem_tree_add(&db->lanes, &run->by_lane);
}

void
stet__mem_run_displace(stet__memory_db *db, mem_run *run)
{
    if (run->place != NULL)
        stet__mem_tree_remove(run->place, &run->by_place);
    if (run->row.lane != NULL)
        stet__mem_tree_remove(&db->lanes, &run->by_lane);
    run->place = NULL;
}

/* Copies a text that may be NULL. */
static bool
mem_text_copy(stet__memory_db *db, const char **out, const char *text)
{
    *out = stet__strdup(db->alloc, text);
    return *out != NULL || text == NULL;
}

bool
stet__mem_copy(stet__memory_db *db, stet_bytes *out, stet_bytes data)
{
    void *copy = NULL;

    *out = (stet_bytes){ NULL, 0 };
    if (data.len == 0)
        return true;
    if ((copy = stet__get(db->alloc, data.len)) == NULL)
        return false;
    memcpy(copy, data.data, data.len);
    *out = (stet_bytes){ copy, data.len };
    return true;
}

static void
mem_drop(stet__memory_db *db, const void *p)
{
    stet__free(db->alloc, (void *)(uintptr_t)p);
}

mem_run *
stet__mem_run_new(stet__memory_db *db, const stet_run_row *row)
{
    mem_run *run = stet__get0(db->alloc, sizeof *run);

    if (run == NULL)
        return NULL;
    stet__mem_tree_init(&run->journal, mem_cmp_facts);
    stet__mem_tree_init(&run->inbox, mem_cmp_facts);
    run->row = *row;
    run->row.session = run->row.epoch = run->row.journal = run->row.inbox = 0;
    run->row.handler = run->row.key = run->row.lane = run->row.group = run->row.reason = NULL;
    run->row.extra = (stet_bytes){ NULL, 0 };
    if (!mem_text_copy(db, &run->row.handler, row->handler) ||
        !mem_text_copy(db, &run->row.key, row->key) ||
        !mem_text_copy(db, &run->row.group, row->group) ||
        !mem_text_copy(db, &run->row.reason, row->reason) ||
        !stet__mem_copy(db, &run->row.extra, row->extra)) {
        stet__mem_run_free(db, run);
        return NULL;
    }
    return run;
}

static void
mem_facts_clear(stet__memory_db *db, mem_tree *tree)
{
    mem_node *node;

    while ((node = tree->root) != NULL) {
        stet__mem_tree_remove(tree, node);
        stet__mem_facts_free(db, MEM_OF(mem_facts, node, node));
    }
}

void
stet__mem_run_free(stet__memory_db *db, mem_run *run)
{
    mem_facts_clear(db, &run->journal);
    mem_facts_clear(db, &run->inbox);
    mem_drop(db, run->row.handler);
    mem_drop(db, run->row.key);
    mem_drop(db, run->row.lane);
    mem_drop(db, run->row.group);
    mem_drop(db, run->row.reason);
    mem_drop(db, run->row.extra.data);
    stet__free(db->alloc, run);
}

/* ---- the other records ---------------------------------------------------------------------- */

mem_facts *
stet__mem_facts_new(stet__memory_db *db, uint64_t first, uint32_t count, stet_bytes data)
{
    mem_facts *facts = stet__get0(db->alloc, sizeof *facts);
    stet_bytes copy;

    if (facts == NULL)
        return NULL;
    if (!stet__mem_copy(db, &copy, data)) {
        stet__free(db->alloc, facts);
        return NULL;
    }
    facts->first = first;
    facts->count = count;
    facts->len = copy.len;
    facts->data = (uint8_t *)(uintptr_t)copy.data;
    return facts;
}

void
stet__mem_facts_free(stet__memory_db *db, mem_facts *facts)
{
    stet__free(db->alloc, facts->data);
    stet__free(db->alloc, facts);
}

mem_value *
stet__mem_value_new(stet__memory_db *db, const char *space, stet_bytes key, stet_bytes data)
{
    mem_value *value = stet__get0(db->alloc, sizeof *value);

    if (value == NULL)
        return NULL;
    if (!mem_text_copy(db, &value->space, space) || !stet__mem_copy(db, &value->key, key) ||
        !stet__mem_copy(db, &value->value.data, data)) {
        stet__mem_value_free(db, value);
        return NULL;
    }
    value->first = mem_space_first(space);
    return value;
}

void
stet__mem_value_free(stet__memory_db *db, mem_value *value)
{
    mem_drop(db, value->space);
    mem_drop(db, value->key.data);
    mem_drop(db, value->value.data.data);
    stet__free(db->alloc, value);
}

void
stet__mem_session_free(stet__memory_db *db, mem_session *session)
{
    mem_drop(db, session->row.info.data);
    stet__free(db->alloc, session);
}

void
stet__mem_crumbs_free(stet__memory_db *db, mem_crumbs *crumbs)
{
    stet__free(db->alloc, crumbs->crumbs);
    stet__free(db->alloc, crumbs);
}

void
stet__mem_crumbs_settle(stet__memory_db *db, mem_crumbs *crumbs)
{
    if (crumbs->writer != NULL || stet__mem_session(db, crumbs->session) != NULL)
        return;
    stet__mem_tree_remove(&db->crumbs, &crumbs->node);
    stet__mem_crumbs_free(db, crumbs);
}

void
stet__mem_committer_free(stet__memory_db *db, mem_committer *committer)
{
    stet__free(db->alloc, committer->answers);
    stet__free(db->alloc, committer->grants);
    stet__free(db->alloc, committer);
}

/* ---- the database --------------------------------------------------------------------------- */

static void
mem_db_trees(stet__memory_db *db)
{
    stet__mem_tree_init(&db->runs, mem_cmp_run);
    stet__mem_tree_init(&db->ready, mem_cmp_ready);
    stet__mem_tree_init(&db->idle, mem_cmp_idle);
    stet__mem_tree_init(&db->owned, mem_cmp_owned);
    stet__mem_tree_init(&db->lanes, mem_cmp_lane);
    stet__mem_tree_init(&db->timers, mem_cmp_timer);
    stet__mem_tree_init(&db->timers_of, mem_cmp_timer_of);
    stet__mem_tree_init(&db->values, mem_cmp_value);
    stet__mem_tree_init(&db->sessions, mem_cmp_session);
    stet__mem_tree_init(&db->crumbs, mem_cmp_crumbs);
    stet__mem_tree_init(&db->committers, mem_cmp_committer);
}

stet__memory_db *
stet__memory_db_new(stet__platform *owner)
{
    stet__memory_db *db = stet__get0(&owner->alloc, sizeof *db);

    if (db == NULL)
        return NULL;
    db->owner = owner;
    db->alloc = &owner->alloc;
    mem_db_trees(db);
    if (owner->ops->mutex_init(owner, &db->mutex) != STET_OK)
        goto no_mutex;
    if (owner->ops->cond_init(owner, &db->changed) != STET_OK)
        goto no_cond;
    return db;
no_cond:
    owner->ops->mutex_destroy(owner, &db->mutex);
no_mutex:
    stet__free(&owner->alloc, db);
    return NULL;
}

static void
mem_db_clear(stet__memory_db *db)
{
    mem_node *node;

    while ((node = db->runs.root) != NULL) {
        stet__mem_tree_remove(&db->runs, node);
        stet__mem_run_free(db, MEM_OF(mem_run, by_id, node));
    }
    while ((node = db->timers.root) != NULL) {
        stet__mem_tree_remove(&db->timers, node);
        stet__free(db->alloc, MEM_OF(mem_timer, by_time, node));
    }
    while ((node = db->values.root) != NULL) {
        stet__mem_tree_remove(&db->values, node);
        stet__mem_value_free(db, MEM_OF(mem_value, node, node));
    }
    while ((node = db->sessions.root) != NULL) {
        stet__mem_tree_remove(&db->sessions, node);
        stet__mem_session_free(db, MEM_OF(mem_session, node, node));
    }
    while ((node = db->crumbs.root) != NULL) {
        stet__mem_tree_remove(&db->crumbs, node);
        stet__mem_crumbs_free(db, MEM_OF(mem_crumbs, node, node));
    }
    while ((node = db->committers.root) != NULL) {
        stet__mem_tree_remove(&db->committers, node);
        stet__mem_committer_free(db, MEM_OF(mem_committer, node, node));
    }
}

void
stet__memory_db_free(stet__memory_db *db)
{
    if (db == NULL)
        return;
    mem_db_clear(db);
    db->owner->ops->cond_destroy(db->owner, &db->changed);
    db->owner->ops->mutex_destroy(db->owner, &db->mutex);
    stet__free(db->alloc, db->undo);
    stet__free(db->alloc, db->grants);
    stet__free(db->alloc, db);
}

void
stet__memory_db_advance(stet__memory_db *db, int64_t ms)
{
    atomic_fetch_add(&db->offset_ms, ms);
}

void
stet__memory_db_forget(stet__memory_db *db, const stet__platform *platform)
{
    mem_node *node, *next;

    mem_lock(db);
    for (node = stet__mem_tree_first(&db->crumbs); node != NULL; node = next) {
        mem_crumbs *crumbs = MEM_OF(mem_crumbs, node, node);

        next = stet__mem_tree_next(node);
        if (crumbs->writer == platform) {
            crumbs->writer = NULL;
            stet__mem_crumbs_settle(db, crumbs);
        }
    }
    mem_unlock(db);
}

void
stet__memory_db_bury(stet__memory_db *db)
{
    mem_node *node;

    mem_lock(db);
    for (node = stet__mem_tree_first(&db->sessions); node != NULL; node = stet__mem_tree_next(node))
        MEM_OF(mem_session, node, node)->row.is_dead = true;
    mem_unlock(db);
}
