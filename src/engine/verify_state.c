/* State entries: what all runs of an object wrote, one after the other, over what baselines keep of
 * runs that were removed.
 *
 * While the runs are looked at, the last write of each entry is remembered (its fact, not its
 * bytes); then the entries in the store are compared with that. The store goes on meanwhile, so an
 * entry that differs is looked at again by itself: baseline and runs of its object only, with the
 * entry read before and after.
 */
#include <string.h>

#include "engine/verify.h"

#define STATE_PAGE 256u
#define STATE_LOOKS 5

typedef struct verify_entry {
    stet__fact fact; /* run points to `run`, value is not kept */
    stet_id    run;
    uint64_t   hash;
    size_t     len;
    bool       is_seen, is_suspect;
} verify_entry;

void
stet__verify_state_init(verify *v)
{
    stet__arena_init(&v->arena, &v->e->p->alloc);
    stet__map_init(&v->entries, &v->e->p->alloc);
    stet__map_init(&v->timed, &v->e->p->alloc);
}

void
stet__verify_state_free(verify *v)
{
    stet__map_free(&v->entries);
    stet__map_free(&v->timed);
    stet__arena_free(&v->arena);
}

static int
state_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory while looking at state");
}

static uint64_t
state_hash(stet_bytes data)
{
    return stet__hash64(data.len > 0 ? data.data : "", data.len, 1);
}

/* One write; the latest stays. */
static int
state_fold(verify *v, stet_bytes key, const stet__fact *fact)
{
    verify_entry *entry = stet__map_find(&v->entries, key.data, key.len);

    if (entry != NULL && !stet__wrote_later(fact, &entry->fact))
        return STET_OK;
    if (entry == NULL) {
        if ((entry = stet__arena_get0(&v->arena, sizeof *entry)) == NULL ||
            stet__map_put(&v->entries, key.data, key.len, entry) != STET_OK)
            return state_no_memory();
    }
    entry->run = stet__fact_id(fact->run);
    entry->hash = state_hash(fact->value);
    entry->len = fact->value.len;
    entry->fact = *fact;
    entry->fact.run = stet__id_bytes(&entry->run);
    entry->fact.value = (stet_bytes){ NULL, 0 };
    return STET_OK;
}

int
stet__verify_wrote(verify *v, const stet__expect *x)
{
    int err = STET_OK;

    for (const stet__wrote *wrote = x->wrote; err == STET_OK && wrote != NULL;
         wrote = wrote->next) {
        stet__fact base = stet__wrote_base(wrote, &x->l.run.id);

        err = state_fold(v, wrote->key, &base);
    }
    return err;
}

/* ---- listings -------------------------------------------------------------------------------- */

typedef struct state_page {
    verify     *v;
    stet_bytes  after; /* in `arena` */
    stet__arena arena;
    size_t      n;
    int (*each)(verify *v, stet_bytes key, const stet_value *value);
} state_page;

static int
state_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    state_page *page = arg;

    page->n++;
    if (page->n == STATE_PAGE) {
        if ((page->after.data = stet__arena_copy(&page->arena, key.data, key.len)) == NULL)
            return state_no_memory();
        page->after.len = key.len;
    }
    return page->each(page->v, key, value);
}

static int
state_each(verify *v, const char *space,
           int (*each)(verify *v, stet_bytes key, const stet_value *value))
{
    state_page  page = { .v = v, .each = each };
    stet_store *store = v->e->store;
    stet_bytes  all = { NULL, 0 };
    bool        is_first = true;
    int         err;

    stet__arena_init(&page.arena, &v->e->p->alloc);
    do {
        page.n = 0;
        err = store->ops->values(store, space, all, is_first ? NULL : &page.after, STATE_PAGE,
                                 state_on_value, &page);
        is_first = false;
    } while (err == STET_OK && page.n == STATE_PAGE);
    stet__arena_free(&page.arena);
    return err;
}

/* ---- one entry ------------------------------------------------------------------------------- */

typedef struct state_look {
    verify     *v;
    stet__arena arena;
    stet_bytes  key;
    const char *service, *object, *name; /* as stet__value_key_parts() tells */
    stet__map   replaced;   /* writes that another says it replaced, by stet__fact_writer() */
    bool        is_written; /* `last` is, of the writes nobody replaced, the latest */
    bool        is_matched; /* one of those is what the store has */
    bool        is_unknown; /* facts of the object cannot be read: what they wrote is not known */
    stet__fact  last;
    stet_id     run;
    stet_id     ids[STATE_PAGE];
    size_t      n;
} state_look;

static int
state_look_replaced(state_look *look, const stet__fact *fact, const stet_value *is)
{
    (void)is;
    if (fact->replaces == 0)
        return STET_OK;
    return stet__map_put(&look->replaced, &fact->replaces, sizeof fact->replaces, look) == STET_OK
               ? STET_OK
               : state_no_memory();
}

static bool
state_is_it(const stet__fact *fact, const stet_value *value)
{
    return fact->kind == STET__FACT_STATE_SET && value->version > 0 &&
           value->data.len == fact->value.len &&
           (value->data.len == 0 ||
            memcmp(value->data.data, fact->value.data, value->data.len) == 0) &&
           stet__id_equal(value->run, stet__fact_id(fact->run)) &&
           value->revision == (uint64_t)fact->completion;
}

static int
state_look_fold(state_look *look, const stet__fact *fact, const stet_value *is)
{
    int64_t writer = stet__wrote_writer(fact);

    if (stet__map_find(&look->replaced, &writer, sizeof writer) != NULL)
        return STET_OK;
    look->is_matched = look->is_matched || state_is_it(fact, is);
    if (look->is_written && !stet__wrote_later(fact, &look->last))
        return STET_OK;
    look->is_written = true;
    look->run = stet__fact_id(fact->run);
    look->last = *fact;
    look->last.run = stet__id_bytes(&look->run);
    look->last.value.data = stet__arena_copy(&look->arena, fact->value.data, fact->value.len);
    return look->last.value.data != NULL ? STET_OK : state_no_memory();
}

typedef int (*state_look_fn)(state_look *look, const stet__fact *fact, const stet_value *is);

static int
state_look_base(state_look *look, state_look_fn each, const stet_value *is)
{
    stet_store *store = look->v->e->store;
    stet_value  value = { 0 };
    stet__fact  fact;
    stet_bytes  in;
    int         err = store->ops->value(store, STET__SPACE_BASE_STATE, look->key, &value);

    if (err != STET_OK)
        return err == STET_ENOTFOUND ? STET_OK : err;
    in = value.data;
    if ((err = stet__fact_decode(&fact, &in)) == STET_OK)
        err = each(look, &fact, is);
    stet__free(store->alloc, (void *)(uintptr_t)value.data.data);
    return err;
}

static int
state_on_run(void *arg, const stet_run_row *row)
{
    state_look *look = arg;

    look->ids[look->n++] = row->id;
    return STET_OK;
}

static int
state_look_run(state_look *look, stet_id id, state_look_fn each, const stet_value *is)
{
    stet__expect x;
    int          err = stet__expect_load(look->v->e, &x, id, NULL);

    if (err != STET_OK)
        return err == STET_ENOTFOUND ? STET_OK : err;
    look->is_unknown = look->is_unknown || x.is_unreadable;
    for (const stet__wrote *wrote = x.wrote; err == STET_OK && wrote != NULL; wrote = wrote->next)
        if (wrote->key.len == look->key.len &&
            memcmp(wrote->key.data, look->key.data, look->key.len) == 0) {
            stet__fact base = stet__wrote_base(wrote, &id);

            err = each(look, &base, is);
        }
    stet__expect_free(&x);
    return err;
}

static int
state_look_runs(state_look *look, state_look_fn each, const stet_value *is)
{
    stet_store    *store = look->v->e->store;
    stet_run_query query = { .oldest_first = true, .limit = STATE_PAGE };
    int            err;

    query.handler = look->service;
    query.key = look->object;
    do {
        look->n = 0;
        err = store->ops->runs(store, &query, state_on_run, look);
        for (size_t i = 0; err == STET_OK && i < look->n; i++)
            err = state_look_run(look, look->ids[i], each, is);
        if (look->n > 0)
            query.before = look->ids[look->n - 1];
    } while (err == STET_OK && look->n == STATE_PAGE);
    return err;
}

static bool
state_look_begin(state_look *look, verify *v, stet_bytes key)
{
    look->v = v;
    stet__arena_init(&look->arena, &v->e->p->alloc);
    stet__map_init(&look->replaced, &v->e->p->alloc);
    look->key.len = key.len;
    return (look->key.data = stet__arena_copy(&look->arena, key.data, key.len)) != NULL &&
           stet__value_key_parts(&look->arena, look->key, &look->service, &look->object,
                                 &look->name);
}

static bool
state_is_right(const state_look *look, const stet_value *value)
{
    if (!look->is_written || look->last.kind == STET__FACT_STATE_CLEAR)
        return value->version == 0 || look->is_matched;
    return look->is_matched;
}

static int
state_read(verify *v, const char *space, stet_bytes key, stet_value *value)
{
    int err = v->e->store->ops->value(v->e->store, space, key, value);

    return err == STET_ENOTFOUND ? STET_OK : err;
}

/* Does a cleared entry with an initial value say so? */
static int
state_is_marked(state_look *look, bool *is_marked)
{
    stet_value mark = { 0 };
    int        err;

    *is_marked = true;
    if (!look->is_written || look->last.kind != STET__FACT_STATE_CLEAR ||
        !(look->last.flags & STET__FACT_INITIAL))
        return STET_OK;
    err = state_read(look->v, STET__SPACE_CLEARED, look->key, &mark);
    *is_marked = mark.version > 0;
    stet__free(look->v->e->store->alloc, (void *)(uintptr_t)mark.data.data);
    return err;
}

/* The entry must be what we saw when the unit's turn comes: else a run wrote it, and that is
 * right. */
static int
state_repair(const state_look *look, uint64_t version, bool is_marked)
{
    bool        is_set = look->is_written && look->last.kind == STET__FACT_STATE_SET;
    stet__work *w = stet__work_new(look->v->e, NULL, NULL);
    stet_cond  *cond;
    stet_op    *op;
    bool        ok;

    if (w == NULL)
        return STET_ENOMEM;
    ok = (cond = stet__work_cond(w, STET_COND_VALUE, look->run)) != NULL &&
         (op = stet__work_op(w, is_set ? STET_OP_VALUE_PUT : STET_OP_VALUE_DEL, look->run)) !=
             NULL &&
         stet__work_bytes(w, &cond->key, look->key);
    if (ok) {
        cond->space = op->space = STET__SPACE_STATE;
        cond->number = version;
        op->key = cond->key;
        op->number = (uint64_t)look->last.completion;
        ok = !is_set || stet__work_bytes(w, &op->data, look->last.value);
    }
    if (ok && !is_marked && (ok = (op = stet__work_op(w, STET_OP_VALUE_PUT, look->run)) != NULL)) {
        op->space = STET__SPACE_CLEARED;
        op->key = cond->key;
        op->number = (uint64_t)look->last.completion;
        op->data = stet_text("");
    }
    if (!ok) {
        stet__work_free(w);
        return state_no_memory();
    }
    return stet__commit_sync(look->v->e, w, NULL);
}

static int
state_tell(state_look *look, const stet_value *value, bool is_repaired)
{
    verify *v = look->v;

    (void)stet__verify_bad(v, "value",
                           look->is_written ? (uint64_t)look->last.completion : value->revision,
                           "state %s of %s%s %s", look->name, look->service, look->object,
                           !look->is_written ? "is there, and nobody wrote it"
                           : look->last.kind == STET__FACT_STATE_CLEAR
                               ? (value->version > 0 ? "is there, and was cleared"
                                                     : "was cleared, which is not marked")
                           : value->version > 0 ? "is not what was written last"
                                                : "is missing");
    return stet__verify_tell(v, look->is_written                     ? &look->run
                                : !stet__id_is_zero(value->run) ? &value->run
                                                                     : NULL,
                             is_repaired);
}

/* One look. *is_still: nothing changed while we looked, so what we found counts. */
static int
state_look_once(state_look *look, stet_value *value, bool *is_right, bool *is_marked,
                bool *is_still)
{
    verify    *v = look->v;
    stet_value after = { 0 };
    int        err;

    look->is_written = look->is_matched = look->is_unknown = false;
    if ((err = state_read(v, STET__SPACE_STATE, look->key, value)) != STET_OK ||
        (err = state_look_base(look, state_look_replaced, value)) != STET_OK ||
        (err = state_look_runs(look, state_look_replaced, value)) != STET_OK ||
        (err = state_look_base(look, state_look_fold, value)) != STET_OK ||
        (err = state_look_runs(look, state_look_fold, value)) != STET_OK ||
        (err = state_is_marked(look, is_marked)) != STET_OK ||
        (err = state_read(v, STET__SPACE_STATE, look->key, &after)) != STET_OK)
        return err;
    stet__free(v->e->store->alloc, (void *)(uintptr_t)after.data.data);
    /* Where all state was lost, what is known is better than nothing. */
    *is_right =
        (state_is_right(look, value) && *is_marked) || (look->is_unknown && !v->has_lost_values);
    *is_still = after.version == value->version && stet__id_equal(after.run, value->run) &&
                after.revision == value->revision;
    return STET_OK;
}

static int
state_suspect(verify *v, stet_bytes key)
{
    state_look *look = stet__get0(&v->e->p->alloc, sizeof *look);
    stet_value  value = { 0 };
    bool        is_right = false, is_marked = true, is_still = false;
    int         err;

    if (look == NULL)
        return state_no_memory();
    err = state_look_begin(look, v, key) ? STET_OK : state_no_memory();
    if (err == STET_OK && look->name == NULL)
        is_right = true;
    /* Twice, because a baseline and the run it stands for change places between two of our
     * reads. */
    for (int i = 0, n_wrong = 0; err == STET_OK && !is_right && n_wrong < 2 && i < STATE_LOOKS;
         i++) {
        stet__free(v->e->store->alloc, (void *)(uintptr_t)value.data.data);
        value = (stet_value){ 0 };
        err = state_look_once(look, &value, &is_right, &is_marked, &is_still);
        n_wrong += err == STET_OK && is_still && !is_right;
    }
    if (err == STET_OK && !is_right && is_still) {
        int repaired =
            v->is_repairing ? state_repair(look, value.version, is_marked) : STET_ECONFLICT;

        err = repaired != STET_OK && repaired != STET_ECONFLICT
                  ? repaired
                  : state_tell(look, &value, repaired == STET_OK);
    }
    stet__free(v->e->store->alloc, (void *)(uintptr_t)value.data.data);
    stet__map_free(&look->replaced);
    stet__arena_free(&look->arena);
    stet__free(&v->e->p->alloc, look);
    return err;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int
state_on_base(verify *v, stet_bytes key, const stet_value *value)
{
    stet__fact fact;
    stet_bytes in = value->data;

    if (stet__fact_decode(&fact, &in) != STET_OK)
        return STET_OK; /* told when its entry is looked at */
    return state_fold(v, key, &fact);
}

static int
state_on_entry(verify *v, stet_bytes key, const stet_value *value)
{
    verify_entry *entry = stet__map_find(&v->entries, key.data, key.len);

    if (entry == NULL) {
        if ((entry = stet__arena_get0(&v->arena, sizeof *entry)) == NULL ||
            stet__map_put(&v->entries, key.data, key.len, entry) != STET_OK)
            return state_no_memory();
        entry->is_suspect = true;
        return STET_OK;
    }
    entry->is_seen = true;
    entry->is_suspect = entry->fact.kind != STET__FACT_STATE_SET ||
                        !stet__id_equal(entry->run, value->run) ||
                        (uint64_t)entry->fact.completion != value->revision ||
                        entry->len != value->data.len || entry->hash != state_hash(value->data);
    return STET_OK;
}

int
stet__verify_state(verify *v)
{
    size_t      at = 0, len;
    const void *key;
    void       *found;
    int         err;

    if ((err = state_each(v, STET__SPACE_BASE_STATE, state_on_base)) != STET_OK ||
        (err = state_each(v, STET__SPACE_STATE, state_on_entry)) != STET_OK)
        return err;
    while (err == STET_OK && stet__map_next(&v->entries, &at, &key, &len, &found)) {
        const verify_entry *entry = found;
        bool                is_hidden =
            entry->fact.kind == STET__FACT_STATE_CLEAR && (entry->fact.flags & STET__FACT_INITIAL);

        if (entry->is_suspect || is_hidden ||
            (entry->fact.kind == STET__FACT_STATE_SET && !entry->is_seen))
            err = state_suspect(v, (stet_bytes){ key, len });
    }
    return err;
}

/* ---- keys of children that were removed before their parent ---------------------------------- */

typedef struct children {
    stet__arena arena;
    struct child {
        struct child *next;
        stet_bytes    key, data;
    } *first;
} children;

static int
children_on_base(void *arg, stet_bytes key, const stet_value *value)
{
    children     *c = arg;
    struct child *child = stet__arena_get0(&c->arena, sizeof *child);

    if (child == NULL ||
        (child->key.data = stet__arena_copy(&c->arena, key.data, key.len)) == NULL ||
        (child->data.data = stet__arena_copy(&c->arena, value->data.data, value->data.len)) == NULL)
        return state_no_memory();
    child->key.len = key.len;
    child->data.len = value->data.len;
    child->next = c->first;
    c->first = child;
    return STET_OK;
}

/* One unit; refused if the key or its baseline is not what was looked at. */
static int
children_put(verify *v, const struct child *child, stet_id run, uint64_t version, uint64_t base)
{
    stet__work *w = stet__work_new(v->e, NULL, NULL);
    stet_cond  *is, *stands;
    stet_op    *op;

    if (w == NULL)
        return STET_ENOMEM;
    /* Behind each other: the second may move the first. */
    if (stet__work_cond(w, STET_COND_VALUE, run) == NULL ||
        (stands = stet__work_cond(w, STET_COND_VALUE, run)) == NULL ||
        (op = stet__work_op(w, STET_OP_VALUE_PUT, run)) == NULL ||
        !stet__work_bytes(w, &op->key, child->key) || !stet__work_bytes(w, &op->data, child->data)) {
        stet__work_free(w);
        return state_no_memory();
    }
    is = stands - 1;
    is->space = op->space = STET__SPACE_CHILD;
    stands->space = STET__SPACE_BASE_CHILD;
    is->key = stands->key = op->key;
    is->number = version;
    stands->number = base;
    op->number = 1;
    return stet__commit_sync(v->e, w, NULL);
}

static int
children_check(verify *v, const struct child *child)
{
    stet_value is = { 0 }, base = { 0 };
    stet_id    run = stet__fact_id((stet_bytes){ child->data.data, sizeof run.bytes });
    bool       is_right;
    int        err = state_read(v, STET__SPACE_CHILD, child->key, &is);

    is_right = is.version > 0 && is.data.len == child->data.len &&
               memcmp(is.data.data, child->data.data, is.data.len) == 0;
    stet__free(v->e->store->alloc, (void *)(uintptr_t)is.data.data);
    if (err != STET_OK || is_right)
        return err;
    /* Its parent may have been removed since the baselines were read, and both with it. */
    err = state_read(v, STET__SPACE_BASE_CHILD, child->key, &base);
    stet__free(v->e->store->alloc, (void *)(uintptr_t)base.data.data);
    if (err != STET_OK || base.version == 0)
        return err;
    if (v->is_repairing && (err = children_put(v, child, run, is.version, base.version)) != STET_OK &&
        err != STET_ECONFLICT)
        return err;
    (void)stet__verify_bad(v, "value", 0, "the key of a child that was removed is %s",
                           is.version > 0 ? "not what it was" : "missing");
    return stet__verify_tell(v, &run, v->is_repairing && err == STET_OK);
}

int
stet__verify_children(verify *v)
{
    children    c = { .first = NULL };
    stet_store *store = v->e->store;
    int         err;

    stet__arena_init(&c.arena, &v->e->p->alloc);
    err = store->ops->values(store, STET__SPACE_BASE_CHILD, (stet_bytes){ NULL, 0 }, NULL, 1000000,
                             children_on_base, &c);
    for (const struct child *child = c.first; err == STET_OK && child != NULL; child = child->next)
        err = children_check(v, child);
    stet__arena_free(&c.arena);
    return err;
}

/* ---- the store is whole again ---------------------------------------------------------------- */

static int
mend_on_mark(void *arg, stet_bytes key, const stet_value *value)
{
    bool *has_lost_values = arg;

    (void)value;
    *has_lost_values = *has_lost_values || (key.len == 7 && memcmp(key.data, "values_", 7) == 0);
    return STET_OK;
}

int
stet__verify_mending(verify *v)
{
    stet_store *store = v->e->store;

    return store->ops->values(store, STET__SPACE_MEND, (stet_bytes){ NULL, 0 }, NULL, 1000,
                              mend_on_mark, &v->has_lost_values);
}

int
stet__verify_mended(verify *v)
{
    children    c = { .first = NULL };
    stet_store *store = v->e->store;
    stet__work *w = NULL;
    stet_op    *op;
    int         err;

    stet__arena_init(&c.arena, &v->e->p->alloc);
    err = store->ops->values(store, STET__SPACE_MEND, (stet_bytes){ NULL, 0 }, NULL, 1000,
                             children_on_base, &c);
    if (err == STET_OK && c.first != NULL && (w = stet__work_new(v->e, NULL, NULL)) == NULL)
        err = STET_ENOMEM;
    for (const struct child *mark = c.first; err == STET_OK && mark != NULL; mark = mark->next) {
        if ((op = stet__work_op(w, STET_OP_VALUE_DEL, (stet_id){ { 0 } })) == NULL ||
            !stet__work_bytes(w, &op->key, mark->key))
            err = state_no_memory();
        else
            op->space = STET__SPACE_MEND;
    }
    if (err == STET_OK && w != NULL)
        err = stet__commit_sync(v->e, w, NULL);
    else
        stet__work_free(w);
    stet__arena_free(&c.arena);
    return err;
}
