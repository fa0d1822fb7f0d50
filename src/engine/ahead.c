/* Working ahead of the flush.
 *
 * A start, the end of a run and the begin of the next run of the same key would each cost a flush. But only
 * effects have to wait. So a run is executed as soon as its start is on its way, or, if it waits for a key,
 * as soon as the last unit of the run before it is on its way: in the belief that the store will give it to
 * us. Its own units queue behind and are conditional on that claim and, for every state entry it has read, on
 * who wrote it and, if that unit is still on its way, on that very unit; if the belief was wrong they are
 * refused and the execution is dropped. No body begins and nobody is answered before the claim is certain.
 *
 * Everything kept here is a hint. Who holds a key, who waits for it, and what an entry's value is may all be
 * wrong, and forgotten at any time: that costs an execution, never exactness.
 *
 * Guarded by engine->lock.
 */
#include <string.h>

#include "engine/engine.h"

#define AHEAD_LANES_MAX 4096u
#define AHEAD_ENTRIES_MAX 4096u /* runs that wait, and state entries: so many of each */
#define AHEAD_BYTES_MAX 4096u   /* first facts of a run, or the value of a state entry */
#define AHEAD_PATIENCE 64       /* starts of a handler that waited for the store, until it is tried again */

typedef struct ahead_entry ahead_entry;

typedef struct ahead_lane {
    bool         is_held; /* as far as we know */
    ahead_entry *first, *last;
} ahead_lane;

/* A run that was started here and waits for its key. */
struct ahead_entry {
    ahead_entry *next, *before;
    ahead_lane  *lane;
    stet_id      run;
    stet_bytes   facts;
};

/* A state entry as the last unit that wrote it leaves it, or as it was read. */
typedef struct ahead_value {
    stet__seen seen;
    stet_bytes data; /* NULL: absent */
} ahead_value;

/* ---- who waits for a key ------------------------------------------------------------------------------ */

static void
ahead_unlink(stet_engine *e, ahead_entry *entry)
{
    ahead_lane *lane = entry->lane;

    if (entry->before != NULL)
        entry->before->next = entry->next;
    else
        lane->first = entry->next;
    if (entry->next != NULL)
        entry->next->before = entry->before;
    else
        lane->last = entry->before;
    (void)stet__map_remove(&e->ahead_runs, entry->run.bytes, sizeof entry->run.bytes);
}

static void
ahead_forget_lanes(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&e->ahead_runs, &at, &key, &len, &value))
        stet__free(&e->p->alloc, value);
    at = 0;
    while (stet__map_next(&e->ahead_lanes, &at, &key, &len, &value))
        stet__free(&e->p->alloc, value);
    stet__map_free(&e->ahead_runs);
    stet__map_free(&e->ahead_lanes);
    stet__map_init(&e->ahead_runs, &e->p->alloc);
    stet__map_init(&e->ahead_lanes, &e->p->alloc);
}

/* NULL: out of memory. */
static ahead_lane *
ahead_lane_get(stet_engine *e, const char *name)
{
    size_t      len = strlen(name);
    ahead_lane *lane = stet__map_find(&e->ahead_lanes, name, len);

    if (lane != NULL)
        return lane;
    if (e->ahead_lanes.used >= AHEAD_LANES_MAX)
        ahead_forget_lanes(e);
    if ((lane = stet__get0(&e->p->alloc, sizeof *lane)) == NULL)
        return NULL;
    if (stet__map_put(&e->ahead_lanes, name, len, lane) != STET_OK) {
        stet__free(&e->p->alloc, lane);
        return NULL;
    }
    return lane;
}

static void
ahead_remember(stet_engine *e, ahead_lane *lane, stet_id run, stet_bytes facts)
{
    ahead_entry *entry;

    if (e->ahead_runs.used >= AHEAD_ENTRIES_MAX || facts.len > AHEAD_BYTES_MAX ||
        (entry = stet__get0(&e->p->alloc, sizeof *entry + facts.len)) == NULL)
        return;
    entry->run = run;
    entry->lane = lane;
    entry->facts.len = facts.len;
    entry->facts.data = memcpy(entry + 1, facts.data, facts.len);
    if (stet__map_put(&e->ahead_runs, run.bytes, sizeof run.bytes, entry) != STET_OK) {
        stet__free(&e->p->alloc, entry);
        return;
    }
    entry->before = lane->last;
    if (lane->last != NULL)
        lane->last->next = entry;
    else
        lane->first = entry;
    lane->last = entry;
}

static stet_bytes
ahead_copy(stet_engine *e, stet_bytes from)
{
    stet_bytes copy = { NULL, 0 };
    void      *p = stet__get(&e->p->alloc, from.len > 0 ? from.len : 1);

    if (p != NULL) {
        copy.data = from.len > 0 ? memcpy(p, from.data, from.len) : p;
        copy.len = from.len;
    }
    return copy;
}

stet_bytes
stet__ahead_take(stet_engine *e, stet_id run)
{
    ahead_entry *entry = stet__map_find(&e->ahead_runs, run.bytes, sizeof run.bytes);
    stet_bytes   copy = { NULL, 0 };

    if (entry == NULL)
        return copy;
    copy = ahead_copy(e, entry->facts);
    entry->lane->is_held = true;
    ahead_unlink(e, entry);
    stet__free(&e->p->alloc, entry);
    return copy;
}

/* ---- what state entries are --------------------------------------------------------------------------- */

static void
ahead_value_forget(stet_engine *e, stet_bytes key)
{
    ahead_value *v = stet__map_remove(&e->ahead_state, key.data, key.len);

    stet__free(&e->p->alloc, v);
}

static void
ahead_forget_state(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&e->ahead_state, &at, &key, &len, &value))
        stet__free(&e->p->alloc, value);
    stet__map_free(&e->ahead_state);
    stet__map_init(&e->ahead_state, &e->p->alloc);
}

static void
ahead_value_put(stet_engine *e, stet_bytes key, const stet__seen *seen, stet_bytes data)
{
    ahead_value *v;

    ahead_value_forget(e, key);
    if (data.len > AHEAD_BYTES_MAX)
        return;
    if (e->ahead_state.used >= AHEAD_ENTRIES_MAX)
        ahead_forget_state(e);
    if ((v = stet__get0(&e->p->alloc, sizeof *v + data.len)) == NULL)
        return;
    v->seen = *seen;
    v->data.len = data.len;
    if (data.data != NULL)
        v->data.data = data.len > 0 ? memcpy(v + 1, data.data, data.len) : (void *)(v + 1);
    if (stet__map_put(&e->ahead_state, key.data, key.len, v) != STET_OK)
        stet__free(&e->p->alloc, v);
}

static bool
ahead_writes_state(const stet_op *op)
{
    return (op->kind == STET_OP_VALUE_PUT || op->kind == STET_OP_VALUE_DEL) && strcmp(op->space, STET__SPACE_STATE) == 0;
}

void
stet__ahead_written(stet_engine *e, const stet__work *w)
{
    for (size_t i = 0; i < w->unit.n_ops; i++) {
        const stet_op *op = &w->ops[i];
        stet__seen     seen = { .seq = w->unit.seq };

        if (!ahead_writes_state(op))
            continue;
        if (op->kind == STET_OP_VALUE_PUT) {
            seen.run = op->run;
            seen.revision = op->number;
        }
        ahead_value_put(e, op->key, &seen, op->kind == STET_OP_VALUE_PUT ? op->data : (stet_bytes){ NULL, 0 });
    }
}

bool
stet__ahead_read(stet_engine *e, stet__arena *arena, stet_bytes key, stet__seen *seen, stet_bytes *value)
{
    const ahead_value *v = stet__map_find(&e->ahead_state, key.data, key.len);

    if (v == NULL)
        return false;
    *seen = v->seen;
    *value = (stet_bytes){ NULL, 0 };
    if (v->data.data == NULL)
        return true;
    value->data = stet__arena_copy(arena, v->data.data, v->data.len);
    value->len = v->data.len;
    return value->data != NULL;
}

void
stet__ahead_has_read(stet_engine *e, stet_bytes key, const stet__seen *seen, stet_bytes value)
{
    /* What is there already is at least as new. */
    if (stet__map_find(&e->ahead_state, key.data, key.len) == NULL)
        ahead_value_put(e, key, seen, value);
}

/* ---- beginning ------------------------------------------------------------------------------------------ */

static bool
ahead_may(stet_engine *e, const stet__work *w, const char *handler)
{
    stet__handler *h;
    int            patience;

    if (!e->config.work_ahead || !stet__may_claim(e) || e->is_polled ||
        w->asked == 0 || (h = stet__handler_find(e, handler)) == NULL)
        return false;
    if ((patience = atomic_load(&h->patience)) > 0)
        atomic_store(&h->patience, patience - 1);
    return patience <= 0;
}

/* The handler waits for the store anyway: what is gained by beginning it ahead is not worth a unit of its own. */
void
stet__ahead_in_vain(stet__handler *h)
{
    if (h != NULL)
        atomic_store(&h->patience, AHEAD_PATIENCE);
}

static bool
ahead_begin(stet_engine *e, stet__work *w, stet_id run, stet_bytes facts)
{
    stet_bytes preload = { NULL, 0 };

    if (facts.len > AHEAD_BYTES_MAX || (preload = ahead_copy(e, facts)).data == NULL)
        return false;
    if (stet__claim_guess(e, run, preload)) {
        w->ahead = run;
        w->has_ahead = true;
        stet__work_ask(w, -1); /* counted as ours from here on */
        return true;
    }
    stet__free(&e->p->alloc, (void *)(uintptr_t)preload.data);
    return false;
}

void
stet__ahead_end(stet_engine *e, stet__work *w, const char *lane_name, const char *handler)
{
    ahead_lane  *lane = stet__map_find(&e->ahead_lanes, lane_name, strlen(lane_name));
    ahead_entry *next = lane != NULL ? lane->first : NULL;

    if (lane == NULL)
        return;
    if (next == NULL) {
        stet__free(&e->p->alloc, stet__map_remove(&e->ahead_lanes, lane_name, strlen(lane_name)));
        return;
    }
    lane->is_held = true; /* by the next one, now or when it is granted */
    if (ahead_may(e, w, handler) && ahead_begin(e, w, next->run, next->facts)) {
        ahead_unlink(e, next);
        stet__free(&e->p->alloc, next);
    }
}

/* A run that may well be refused (an idempotency key, an ID or child key used before) is not begun: the handler
 * of a run that never was would have been entered. */
bool
stet__submit_start(stet_engine *e, stet__work *w)
{
    const stet_op       *put = NULL, *enter = NULL;
    const stet__started *s = w->started;
    ahead_lane          *lane = NULL;
    bool                 is_begun = false;

    for (size_t i = 0; i < w->unit.n_ops; i++)
        if (w->ops[i].kind == STET_OP_RUN_PUT)
            put = &w->ops[i];
        else if (w->ops[i].kind == STET_OP_LANE_ENTER)
            enter = &w->ops[i];
    stet__lock(e->p, &e->lock);
    if (put != NULL && s->next == NULL && w->unit.n_conds - (w->guard > 0) == 1 && !w->must_wait &&
        (enter != NULL ? enter : put)->claimer != NULL) {
        if (enter != NULL)
            lane = ahead_lane_get(e, enter->lane);
        if (lane != NULL && lane->is_held)
            ahead_remember(e, lane, s->run, s->facts);
        else if ((enter == NULL || lane != NULL) && ahead_may(e, w, put->row->handler))
            is_begun = ahead_begin(e, w, s->run, s->facts);
        if (lane != NULL)
            lane->is_held = true;
    }
    stet__submit(e, w); /* under the lock: the run's own units must come behind it */
    stet__unlock(e->p, &e->lock);
    return is_begun;
}

/* ---- what became of a unit ----------------------------------------------------------------------------- */

/* Runs that were started here and have to wait for their key are likely to be executed here. */
static void
ahead_applied(stet_engine *e, const stet__work *w)
{
    for (size_t i = 0; w->started != NULL && i < w->unit.n_ops; i++)
        for (const stet__started *s = w->started; w->ops[i].kind == STET_OP_LANE_ENTER && s != NULL; s = s->next) {
            ahead_lane *lane;

            if (!stet__id_equal(s->run, w->ops[i].run) || w->ops[i].claimer == NULL ||
                stet__map_find(&e->claims, s->run.bytes, sizeof s->run.bytes) != NULL ||
                stet__map_find(&e->ahead_runs, s->run.bytes, sizeof s->run.bytes) != NULL ||
                (lane = ahead_lane_get(e, w->ops[i].lane)) == NULL)
                continue;
            lane->is_held = true;
            ahead_remember(e, lane, s->run, s->facts);
        }
}

/* The unit did not grant it. If a unit of its own is on its way that one will tell, and may even hold: the run can
 * have been granted by another unit in between. Otherwise it would wait for ever. */
static void
ahead_doubt(stet_engine *e, stet__work *w)
{
    stet_ctx    *c = w->has_ahead ? stet__map_find(&e->claims, w->ahead.bytes, sizeof w->ahead.bytes) : NULL;
    stet__claim *claim = c != NULL ? c->host : NULL;

    w->has_ahead = false;
    if (claim != NULL && claim->is_guess && atomic_load(&claim->submitted) == atomic_load(&claim->answered))
        stet__claim_drop(e, claim);
}

/* What the unit wrote is durable, and no longer its own. */
static void
ahead_is_written(stet_engine *e, const stet__work *w)
{
    for (size_t i = 0; i < w->unit.n_ops; i++) {
        ahead_value *v = NULL;

        if (ahead_writes_state(&w->ops[i]))
            v = stet__map_find(&e->ahead_state, w->ops[i].key.data, w->ops[i].key.len);
        if (v != NULL && v->seen.seq == w->unit.seq)
            v->seen.seq = 0;
    }
}

static bool
ahead_relies_on(const stet__claim *claim, uint64_t seq)
{
    for (size_t i = 0; i < claim->n_relied; i++)
        if (claim->relied[i] == seq)
            return !claim->is_void;
    return false;
}

/* Who has seen what this unit would have written has seen what never was. Units of theirs that are in the same commit
 * are refused by the store, later ones by the committer. */
static void
ahead_void(stet_engine *e, const stet__work *w)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&e->claims, &at, &key, &len, &value)) {
        stet_ctx    *c = value;
        stet__claim *claim = c->host;

        if (!ahead_relies_on(claim, w->unit.seq))
            continue;
        claim->is_void = true;
        if (claim->is_guess)
            stet__claim_drop(e, claim);
        else {
            claim->is_refused = true;
            stet__exec_let_go(&e->exec, c, STET_ECONFLICT);
        }
        at = 0; /* the map may have changed */
    }
}

static void
ahead_refused(stet_engine *e, const stet__work *w)
{
    for (size_t i = 0; w->has_state && i < w->unit.n_ops; i++)
        if (ahead_writes_state(&w->ops[i]))
            ahead_value_forget(e, w->ops[i].key);
    for (size_t i = 0; i < w->unit.n_conds; i++)
        if ((w->conds[i].kind == STET_COND_VALUE || w->conds[i].kind == STET_COND_WRITER) &&
            strcmp(w->conds[i].space, STET__SPACE_STATE) == 0)
            ahead_value_forget(e, w->conds[i].key);
    for (const stet__started *s = w->started; s != NULL; s = s->next) {
        ahead_entry *entry = stet__map_find(&e->ahead_runs, s->run.bytes, sizeof s->run.bytes);

        if (entry != NULL) {
            ahead_unlink(e, entry);
            stet__free(&e->p->alloc, entry);
        }
    }
    if (w->has_state)
        ahead_void(e, w);
}

void
stet__ahead_settled(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    ahead_doubt(e, w);
    if (o->result != STET_OK)
        ahead_refused(e, w);
    else {
        ahead_applied(e, w);
        if (w->has_state)
            ahead_is_written(e, w);
    }
}

void
stet__ahead_init(stet_engine *e)
{
    stet__map_init(&e->ahead_runs, &e->p->alloc);
    stet__map_init(&e->ahead_lanes, &e->p->alloc);
    stet__map_init(&e->ahead_state, &e->p->alloc);
}

void
stet__ahead_free(stet_engine *e)
{
    ahead_forget_lanes(e);
    ahead_forget_state(e);
}
