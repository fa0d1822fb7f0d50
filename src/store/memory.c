/* The memory store's handles: sessions, crumbs, reads and watching, on a database of memory_db.c.
 *
 * Reads copy what they found while they hold the lock and call back after they let it go, so a
 * callback may wait, and a simulated node that dies in one leaves the database free. A handle that
 * watches has a thread of its own platform that waits for the database to change; the database
 * therefore knows no callback and nothing that could vanish with a node.
 *
 * Closing a handle leaves its sessions to expire, as a crash would.
 */
#include <string.h>

#include "store/memory.h"

#define MEM_FORGET_MS ((int64_t)24 * 60 * 60 * 1000)

#if defined(__GNUC__) || defined(__clang__)
#define MEM_COUNT(counter) ((void)__atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED))
#else
#define MEM_COUNT(counter) ((void)(counter)++)
#endif

/* ---- opening and closing -------------------------------------------------------------------- */

void
stet__memory_attach(stet_store *s, stet__memory_db *db)
{
    mem_handle(s)->db = db;
}

static int
mem_open(stet_store *s, const char *address)
{
    mem_store *h = mem_handle(s);

    (void)address;
    if ((h->db = stet__memory_db_new(s->platform)) == NULL)
        return stet__fail(STET_ENOMEM, "memory store: out of memory while opening");
    h->owns_db = true;
    return STET_OK;
}

static void mem_unwatch(stet_store *s);

/* Nothing of this handle writes into the crumbs of its sessions any more. */
static void
mem_crumbs_release(mem_store *h, uint64_t session)
{
    mem_crumbs *crumbs = stet__mem_crumbs(h->db, session);

    if (crumbs == NULL)
        return;
    crumbs->writer = NULL;
    stet__mem_crumbs_settle(h->db, crumbs);
}

static void
mem_close(stet_store *s)
{
    mem_store *h = mem_handle(s);

    if (h->db == NULL)
        return;
    mem_unwatch(s);
    mem_lock(h->db);
    for (size_t i = 0; i < h->n_tokens; i++)
        mem_crumbs_release(h, h->tokens[i].session);
    mem_unlock(h->db);
    stet__free(s->alloc, h->tokens);
    h->tokens = NULL;
    h->n_tokens = 0;
    if (h->owns_db)
        stet__memory_db_free(h->db);
    h->db = NULL;
}

static int
mem_reopen(stet_store *s)
{
    (void)s; /* nothing here can be poisoned */
    return STET_OK;
}

static int64_t
mem_now_ms(stet_store *s)
{
    return mem_now(mem_handle(s)->db);
}

static int
mem_ping(stet_store *s)
{
    (void)s;
    return STET_OK;
}

/* ---- sessions ------------------------------------------------------------------------------- */

static mem_session *
mem_session_new(mem_store *h, stet_id id, int64_t lease_ms, stet_bytes info, const uint8_t hash[32])
{
    stet__memory_db *db = h->db;
    mem_session     *session = stet__get0(db->alloc, sizeof *session);
    int64_t          now_ms = mem_now(db);

    if (session == NULL || !stet__mem_copy(db, &session->row.info, info)) {
        stet__free(db->alloc, session);
        return NULL;
    }
    session->row.id = id;
    session->row.started_ms = session->row.seen_ms = now_ms;
    session->row.lease_until_ms = now_ms + lease_ms;
    memcpy(session->token_hash, hash, sizeof session->token_hash);
    return session;
}

static int
mem_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms, stet_bytes info)
{
    mem_store   *h = mem_handle(s);
    mem_token    token = { 0 };
    mem_token   *grown;
    mem_session *made = NULL;

    if (lease_ms <= 0)
        return stet__fail(STET_EINVAL, "a session needs a lease longer than 0 ms");
    s->platform->ops->random(s->platform, token.token, sizeof token.token);
    stet__sha256(token.hash, token.token, sizeof token.token);
    mem_lock(h->db);
    grown = stet__grow(s->alloc, h->tokens, (h->n_tokens + 1) * sizeof *grown);
    if (grown != NULL)
        h->tokens = grown;
    if (grown != NULL && (made = mem_session_new(h, id, lease_ms, info, token.hash)) != NULL) {
        made->row.session = token.session = *session = ++h->db->last_session;
        h->tokens[h->n_tokens++] = token;
        stet__mem_tree_add(&h->db->sessions, &made->node);
    }
    mem_unlock(h->db);
    if (made == NULL)
        return stet__fail(STET_ENOMEM, "memory store: out of memory while opening a session");
    return STET_OK;
}

static int
mem_session_renew(stet_store *s, uint64_t session, int64_t lease_ms)
{
    mem_store   *h = mem_handle(s);
    mem_session *found;
    int64_t      now_ms;
    bool         is_renewed = false;

    mem_lock(h->db);
    now_ms = mem_now(h->db);
    found = stet__mem_session(h->db, session);
    if (stet__mem_is_alive(h->db, found) && stet__mem_is_own(h, found)) {
        found->row.seen_ms = now_ms;
        found->row.lease_until_ms = now_ms + lease_ms;
        is_renewed = true;
    }
    mem_unlock(h->db);
    if (!is_renewed)
        return stet__fail(STET_EFENCED,
                          "session %llu has expired, is closed or is not this handle's",
                          (unsigned long long)session);
    return STET_OK;
}

static int
mem_session_close(stet_store *s, uint64_t session)
{
    mem_store   *h = mem_handle(s);
    mem_session *found;
    int          err = STET_OK;

    mem_lock(h->db);
    found = stet__mem_session(h->db, session);
    if (found != NULL && !stet__mem_is_own(h, found))
        err = STET_EFENCED;
    if (found != NULL && err == STET_OK)
        found->row.is_dead = true;
    if (err == STET_OK)
        mem_crumbs_release(h, session);
    mem_unlock(h->db);
    if (err != STET_OK)
        return stet__fail(err, "session %llu was opened by another handle",
                          (unsigned long long)session);
    return STET_OK;
}

static stet_crumb *
mem_crumbs_get(stet_store *s, uint64_t session, size_t n)
{
    mem_store   *h = mem_handle(s);
    mem_session *found;
    mem_crumbs  *crumbs;
    stet_crumb  *out = NULL;

    mem_lock(h->db);
    found = stet__mem_session(h->db, session);
    crumbs = stet__mem_crumbs(h->db, session);
    if (found == NULL || !stet__mem_is_own(h, found) || n == 0)
        goto done;
    if (crumbs != NULL) {
        out = crumbs->n >= n ? crumbs->crumbs : NULL;
        goto done;
    }
    if ((crumbs = stet__get0(h->db->alloc, sizeof *crumbs)) == NULL)
        goto done;
    if ((crumbs->crumbs = stet__get0(h->db->alloc, n * sizeof *crumbs->crumbs)) == NULL) {
        stet__mem_crumbs_free(h->db, crumbs);
        goto done;
    }
    crumbs->n = n;
    crumbs->session = session;
    crumbs->writer = s->platform;
    stet__mem_tree_add(&h->db->crumbs, &crumbs->node);
    out = crumbs->crumbs;
done:
    mem_unlock(h->db);
    if (out == NULL)
        (void)stet__fail(STET_EINVAL, "no room for %zu crumbs of session %llu", n,
                         (unsigned long long)session);
    return out;
}

static int
mem_crumbs_of(stet_store *s, uint64_t session, stet_crumb **out, size_t *n)
{
    mem_store  *h = mem_handle(s);
    mem_crumbs *crumbs;
    int         err = STET_ENOTFOUND;

    *out = NULL;
    *n = 0;
    mem_lock(h->db);
    crumbs = stet__mem_crumbs(h->db, session);
    if (stet__mem_is_alive(h->db, stet__mem_session(h->db, session)) && !STET__MUTANT(reap_by_id)) {
        err = STET_ESTATE; /* its owner is writing them */
    } else if (crumbs != NULL) {
        err = STET_ENOMEM;
        if ((*out = stet__get(s->alloc, crumbs->n * sizeof **out)) != NULL) {
            memcpy(*out, crumbs->crumbs, crumbs->n * sizeof **out);
            *n = crumbs->n;
            err = STET_OK;
        }
    }
    mem_unlock(h->db);
    if (err != STET_OK)
        return stet__fail(err, "crumbs of session %llu: %s", (unsigned long long)session,
                          stet_code_text(err));
    return STET_OK;
}

/* ---- reads ---------------------------------------------------------------------------------- */

/* What a read found, in the order it is handed out; as long as what it is needs. */
typedef struct mem_item {
    struct mem_item *next;
    union {
        stet_run_row     run;
        stet_session_row session;
        stet_timer       timer;
        stet_id          id;
        struct {
            stet_bytes key;
            stet_value value;
        } entry;
        struct {
            uint64_t   first;
            uint32_t   count;
            stet_bytes bytes;
        } facts;
    } is;
} mem_item;

#define MEM_ITEM_BYTES(kind) (offsetof(mem_item, is) + sizeof(((mem_item *)0)->is.kind))

typedef struct mem_read {
    mem_store  *h;
    stet__arena arena;
    mem_item   *first;
    mem_item  **last;
    size_t      n;
    bool        failed; /* out of memory */
} mem_read;

static void
mem_read_begin(mem_read *read, stet_store *s)
{
    *read = (mem_read){ .h = mem_handle(s) };
    read->last = &read->first;
    stet__arena_init(&read->arena, s->alloc);
    MEM_COUNT(s->reads);
    mem_lock(read->h->db);
}

/* Lets the lock go; the items can be handed out then. */
static int
mem_read_found(mem_read *read)
{
    mem_unlock(read->h->db);
    if (read->failed)
        return stet__fail(STET_ENOMEM, "memory store: out of memory while reading");
    return STET_OK;
}

static int
mem_read_end(mem_read *read, int err)
{
    stet__arena_free(&read->arena);
    return err;
}

/* Nothing of it is set. NULL: out of memory, the read is failed. */
static mem_item *
mem_read_add(mem_read *read, size_t bytes)
{
    mem_item *item = stet__arena_get(&read->arena, bytes);

    if (item == NULL) {
        read->failed = true;
        return NULL;
    }
    item->next = NULL;
    *read->last = item;
    read->last = &item->next;
    read->n++;
    return item;
}

static stet_bytes
mem_read_bytes(mem_read *read, stet_bytes data)
{
    void *copy;

    if (data.len == 0)
        return (stet_bytes){ NULL, 0 };
    if ((copy = stet__arena_copy(&read->arena, data.data, data.len)) == NULL) {
        read->failed = true;
        return (stet_bytes){ NULL, 0 };
    }
    return (stet_bytes){ copy, data.len };
}

/* Copies what *text points to, `bytes` of it or nothing, to *to. */
static void
mem_read_text(const char **text, size_t bytes, char **to)
{
    if (bytes == 0)
        return;
    *text = memcpy(*to, *text, bytes);
    *to += bytes;
}

static size_t
mem_text_bytes(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

/* The row and, behind it, what it points to. */
static void
mem_read_run(mem_read *read, const mem_run *run)
{
    const stet_run_row *row = &run->row;
    size_t              handler = mem_text_bytes(row->handler), key = mem_text_bytes(row->key),
           lane = mem_text_bytes(row->lane);
    size_t    group = mem_text_bytes(row->group), reason = mem_text_bytes(row->reason);
    mem_item *item = mem_read_add(read, MEM_ITEM_BYTES(run) + handler + key + lane + group +
                                            reason + row->extra.len);
    char     *to;

    if (item == NULL)
        return;
    item->is.run = *row;
    to = (char *)item + MEM_ITEM_BYTES(run);
    mem_read_text(&item->is.run.handler, handler, &to);
    mem_read_text(&item->is.run.key, key, &to);
    mem_read_text(&item->is.run.lane, lane, &to);
    mem_read_text(&item->is.run.group, group, &to);
    mem_read_text(&item->is.run.reason, reason, &to);
    item->is.run.extra.data =
        row->extra.len > 0 ? memcpy(to, row->extra.data, row->extra.len) : NULL;
}

static int
mem_run_get(stet_store *s, stet_id id, stet_run_row_fn fn, void *arg)
{
    mem_read read;
    mem_run *run;
    int      err;

    mem_read_begin(&read, s);
    if ((run = stet__mem_run(read.h->db, id)) != NULL)
        mem_read_run(&read, run);
    if ((err = mem_read_found(&read)) == STET_OK)
        err = read.first != NULL ? fn(arg, &read.first->is.run)
                                 : stet__fail(STET_ENOTFOUND, "there is no such run");
    return mem_read_end(&read, err);
}

static bool
mem_handler_matches(const char *handler, const char *wanted)
{
    size_t len = strlen(wanted);

    if (len > 0 && wanted[len - 1] == '.')
        return strncmp(handler, wanted, len) == 0;
    return strcmp(handler, wanted) == 0;
}

static bool
mem_run_matches(const stet_run_row *row, const stet_run_query *q)
{
    if (q->handler != NULL && !mem_handler_matches(row->handler, q->handler))
        return false;
    if (q->key != NULL && (row->key == NULL || strcmp(row->key, q->key) != 0))
        return false;
    if (q->status_mask != 0 && (row->status > 63 || !(q->status_mask >> row->status & 1u)))
        return false;
    if (q->created_from_ms != 0 && row->created_ms < q->created_from_ms)
        return false;
    if (q->created_to_ms != 0 && row->created_ms > q->created_to_ms)
        return false;
    return q->session == 0 || row->session == q->session;
}

/* Where a listing begins in the tree by ID. */
static mem_node *
mem_runs_start(const mem_tree *runs, const stet_run_query *q)
{
    mem_run   probe = { .row = { .id = q->before } };
    mem_node *node;

    if (stet__id_is_zero(q->before))
        return q->oldest_first ? stet__mem_tree_first(runs) : stet__mem_tree_last(runs);
    if (!q->oldest_first)
        return stet__mem_tree_lt(runs, &probe.by_id);
    node = stet__mem_tree_ge(runs, &probe.by_id);
    if (node != NULL && stet__id_equal(MEM_OF(mem_run, by_id, node)->row.id, q->before))
        node = stet__mem_tree_next(node);
    return node;
}

static int
mem_runs(stet_store *s, const stet_run_query *q, stet_run_row_fn fn, void *arg)
{
    mem_read  read;
    mem_node *node;
    int       err;

    mem_read_begin(&read, s);
    node = q->is_lost ? NULL : mem_runs_start(&read.h->db->runs, q); /* no row, no facts */
    while (node != NULL && read.n < q->limit && !read.failed) {
        const mem_run *run = MEM_OF(const mem_run, by_id, node);

        if (mem_run_matches(&run->row, q))
            mem_read_run(&read, run);
        node = q->oldest_first ? stet__mem_tree_next(node) : stet__mem_tree_prev(node);
    }
    err = mem_read_found(&read);
    for (mem_item *item = read.first; err == STET_OK && item != NULL; item = item->next)
        err = fn(arg, &item->is.run);
    return mem_read_end(&read, err);
}

/* From the row that has the fact `from` on, or the first one behind it. */
static void
mem_facts_read(mem_read *read, const mem_tree *tree, uint64_t from, size_t limit)
{
    mem_facts probe = { .first = from + 1 };
    mem_node *node =
        from < UINT64_MAX ? stet__mem_tree_lt(tree, &probe.node) : stet__mem_tree_last(tree);

    if (node == NULL)
        node = stet__mem_tree_first(tree);
    else if (MEM_OF(const mem_facts, node, node)->first +
                 MEM_OF(const mem_facts, node, node)->count <=
             from)
        node = stet__mem_tree_next(node);
    for (; node != NULL && read->n < limit && !read->failed; node = stet__mem_tree_next(node)) {
        const mem_facts *facts = MEM_OF(const mem_facts, node, node);
        mem_item        *item = mem_read_add(read, MEM_ITEM_BYTES(facts) + facts->len);
        uint8_t         *copy;

        if (item == NULL)
            return;
        copy = (uint8_t *)item + MEM_ITEM_BYTES(facts);
        if (facts->len > 0)
            memcpy(copy, facts->data, facts->len);
        item->is.facts.first = facts->first;
        item->is.facts.count = facts->count;
        item->is.facts.bytes = (stet_bytes){ facts->len > 0 ? copy : NULL, facts->len };
    }
}

static int
mem_facts_list(stet_store *s, stet_id id, bool is_inbox, uint64_t from, size_t limit,
               stet_facts_fn fn, void *arg)
{
    mem_read read;
    mem_run *run;
    int      err;

    mem_read_begin(&read, s);
    if ((run = stet__mem_run(read.h->db, id)) != NULL)
        mem_facts_read(&read, is_inbox ? &run->inbox : &run->journal, from, limit);
    err = mem_read_found(&read);
    for (mem_item *item = read.first; err == STET_OK && item != NULL; item = item->next)
        err = fn(arg, item->is.facts.first, item->is.facts.count, item->is.facts.bytes);
    return mem_read_end(&read, err);
}

static int
mem_journal(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    return mem_facts_list(s, run, false, from, limit, fn, arg);
}

static int
mem_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn, void *arg)
{
    return mem_facts_list(s, run, true, from, limit, fn, arg);
}

static void
mem_timer_read(mem_read *read, const mem_timer *timer)
{
    mem_item *item = mem_read_add(read, MEM_ITEM_BYTES(timer));

    if (item != NULL)
        item->is.timer = (stet_timer){ .fire_ms = timer->fire_ms,
                                       .run = timer->run,
                                       .completion = timer->completion };
}

static int
mem_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
           int64_t *next_ms)
{
    mem_read  read;
    mem_node *node;
    int64_t   next = STET_NEVER;
    int       err;

    mem_read_begin(&read, s);
    for (node = stet__mem_tree_first(&read.h->db->timers); node != NULL && !read.failed;
         node = stet__mem_tree_next(node)) {
        const mem_timer *timer = MEM_OF(const mem_timer, by_time, node);

        if (timer->fire_ms > until_ms || read.n == limit) {
            next = timer->fire_ms;
            break;
        }
        mem_timer_read(&read, timer);
    }
    if ((err = mem_read_found(&read)) == STET_OK && next_ms != NULL)
        *next_ms = next;
    for (mem_item *item = read.first; err == STET_OK && item != NULL; item = item->next)
        err = fn(arg, &item->is.timer);
    return mem_read_end(&read, err);
}

static int
mem_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg)
{
    mem_timer probe = { .fire_ms = INT64_MIN, .run = run };
    mem_read  read;
    mem_node *node;
    int       err;

    mem_read_begin(&read, s);
    for (node = stet__mem_tree_ge(&read.h->db->timers_of, &probe.by_run);
         node != NULL && !read.failed; node = stet__mem_tree_next(node)) {
        const mem_timer *timer = MEM_OF(const mem_timer, by_run, node);

        if (!stet__id_equal(timer->run, run))
            break;
        mem_timer_read(&read, timer);
    }
    err = mem_read_found(&read);
    for (mem_item *item = read.first; err == STET_OK && item != NULL; item = item->next)
        err = fn(arg, &item->is.timer);
    return mem_read_end(&read, err);
}

static int
mem_value_get(stet_store *s, const char *space, stet_bytes key, stet_value *out)
{
    mem_store *h = mem_handle(s);
    mem_value *value;
    void      *copy = NULL;
    int        err = STET_OK;

    *out = (stet_value){ 0 };
    MEM_COUNT(s->reads);
    mem_lock(h->db);
    if ((value = stet__mem_value(h->db, space, key)) == NULL)
        err = STET_ENOTFOUND;
    else if (value->value.data.len > 0 &&
             (copy = stet__get(s->alloc, value->value.data.len)) == NULL)
        err = STET_ENOMEM;
    else
        *out = value->value;
    if (copy != NULL)
        memcpy(copy, value->value.data.data, value->value.data.len);
    out->data.data = copy;
    mem_unlock(h->db);
    if (err != STET_OK)
        return stet__fail(err, err == STET_ENOTFOUND ? "there is no such value"
                                                     : "out of memory for a value");
    return STET_OK;
}

static bool
mem_has_prefix(stet_bytes key, stet_bytes prefix)
{
    return key.len >= prefix.len &&
           (prefix.len == 0 || memcmp(key.data, prefix.data, prefix.len) == 0);
}

static bool
mem_is_after(stet_bytes key, stet_bytes after)
{
    size_t len = key.len < after.len ? key.len : after.len;
    int    order = len == 0 ? 0 : memcmp(key.data, after.data, len);

    return order != 0 ? order > 0 : key.len > after.len;
}

static void
mem_values_read(mem_read *read, const char *space, stet_bytes prefix, const stet_bytes *after,
                size_t limit)
{
    mem_value probe = stet__mem_value_probe(space, prefix);
    mem_node *node;

    if (after != NULL && mem_is_after(*after, prefix))
        probe.key = *after;
    for (node = stet__mem_tree_ge(&read->h->db->values, &probe.node);
         node != NULL && read->n < limit && !read->failed; node = stet__mem_tree_next(node)) {
        const mem_value *value = MEM_OF(const mem_value, node, node);
        mem_item        *item;

        if (strcmp(value->space, space) != 0 || !mem_has_prefix(value->key, prefix))
            return;
        if (after != NULL && !mem_is_after(value->key, *after))
            continue;
        if ((item = mem_read_add(read, MEM_ITEM_BYTES(entry))) == NULL)
            return;
        item->is.entry.value = value->value;
        item->is.entry.key = mem_read_bytes(read, value->key);
        item->is.entry.value.data = mem_read_bytes(read, value->value.data);
    }
}

static int
mem_values(stet_store *s, const char *space, stet_bytes prefix, const stet_bytes *after,
           size_t limit, stet_value_fn fn, void *arg)
{
    mem_read read;
    int      err;

    mem_read_begin(&read, s);
    mem_values_read(&read, space, prefix, after, limit);
    err = mem_read_found(&read);
    for (mem_item *item = read.first; err == STET_OK && item != NULL; item = item->next)
        err = fn(arg, item->is.entry.key, &item->is.entry.value);
    return mem_read_end(&read, err);
}

static int
mem_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg)
{
    mem_read  read;
    mem_run  *first;
    mem_node *node;
    int       err;

    mem_read_begin(&read, s);
    first = stet__mem_lane_first(read.h->db, lane);
    for (node = first != NULL ? &first->by_lane : NULL;
         node != NULL && read.n < limit && !read.failed; node = stet__mem_tree_next(node)) {
        const mem_run *run = MEM_OF(const mem_run, by_lane, node);
        mem_item      *item;

        if (strcmp(run->row.lane, lane) != 0)
            break;
        if ((item = mem_read_add(&read, MEM_ITEM_BYTES(id))) != NULL)
            item->is.id = run->row.id;
    }
    err = mem_read_found(&read);
    for (mem_item *item = read.first; err == STET_OK && item != NULL; item = item->next)
        err = fn(arg, item->is.id);
    return mem_read_end(&read, err);
}

static int
mem_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms)
{
    stet__memory_db *db = mem_handle(s)->db;

    MEM_COUNT(s->reads);
    mem_lock(db);
    *due_ms = stet__mem_next_due(db, handlers, n);
    mem_unlock(db);
    return STET_OK;
}

static int
mem_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    mem_read  read;
    mem_node *node;
    int       err;

    mem_read_begin(&read, s);
    for (node = stet__mem_tree_first(&read.h->db->sessions); node != NULL && !read.failed;
         node = stet__mem_tree_next(node)) {
        const mem_session *session = MEM_OF(const mem_session, node, node);
        mem_item          *item = mem_read_add(&read, MEM_ITEM_BYTES(session));

        if (item == NULL)
            break;
        item->is.session = session->row;
        item->is.session.is_dead = !stet__mem_is_alive(read.h->db, session);
        if (STET__MUTANT(reap_by_id))
            item->is.session.is_dead = session->row.lease_until_ms <= mem_now(read.h->db) + 1000;
        item->is.session.info = mem_read_bytes(&read, session->row.info);
    }
    err = mem_read_found(&read);
    for (mem_item *item = read.first; err == STET_OK && item != NULL; item = item->next)
        err = fn(arg, &item->is.session);
    return mem_read_end(&read, err);
}

/* ---- watching ------------------------------------------------------------------------------- */

/* Runs on: the watcher. */
static void
mem_watcher(void *arg)
{
    mem_store       *h = arg;
    stet__memory_db *db = h->db;

    mem_lock(db);
    while (!h->is_unwatching) {
        if (db->commits - h->commits == h->seen) {
            (void)stet__wait(db->owner, &db->changed, &db->mutex, STET__FOREVER);
            continue;
        }
        h->seen = db->commits - h->commits;
        mem_unlock(db);
        h->on_hint(h->hint_arg);
        mem_lock(db);
    }
    mem_unlock(db);
}

static int
mem_watch(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    mem_store *h = mem_handle(s);

    if (h->watcher != NULL)
        return stet__fail(STET_ESTATE, "memory store: this handle watches already");
    if (h->owns_db)
        return STET_OK; /* no other handle can ever commit */
    h->on_hint = on_hint;
    h->hint_arg = arg;
    mem_lock(h->db); /* a commit after this call is hinted, though the thread may begin later */
    h->is_unwatching = false;
    h->seen = h->db->commits - h->commits;
    mem_unlock(h->db);
    return s->platform->ops->thread_start(s->platform, &h->watcher, "stet-watch", mem_watcher, h);
}

/* Not from the hint itself: it waits for the hint to return. */
static void
mem_unwatch(stet_store *s)
{
    mem_store *h = mem_handle(s);

    if (h->watcher == NULL)
        return;
    mem_lock(h->db);
    h->is_unwatching = true;
    stet__broadcast(h->db->owner, &h->db->changed);
    mem_unlock(h->db);
    s->platform->ops->thread_join(s->platform, h->watcher);
    h->watcher = NULL;
}

/* ---- upkeep --------------------------------------------------------------------------------- */

static bool
mem_has_claims(stet__memory_db *db, uint64_t session)
{
    mem_run   probe = { .row = { .session = session } };
    mem_node *node = stet__mem_tree_ge(&db->owned, &probe.by_place);

    return node != NULL && MEM_OF(const mem_run, by_place, node)->row.session == session;
}

static void
mem_forget_committers(stet__memory_db *db, int64_t before_ms)
{
    mem_node *node, *next;

    for (node = stet__mem_tree_first(&db->committers); node != NULL; node = next) {
        mem_committer *committer = MEM_OF(mem_committer, node, node);

        next = stet__mem_tree_next(node);
        if (committer->seen_ms < before_ms) {
            stet__mem_tree_remove(&db->committers, node);
            stet__mem_committer_free(db, committer);
        }
    }
}

static void
mem_forget_sessions(stet__memory_db *db, int64_t before_ms)
{
    mem_node *node, *next;

    for (node = stet__mem_tree_first(&db->sessions); node != NULL; node = next) {
        mem_session *session = MEM_OF(mem_session, node, node);
        mem_crumbs  *crumbs = stet__mem_crumbs(db, session->row.session);

        next = stet__mem_tree_next(node);
        if (session->row.lease_until_ms >= before_ms || mem_has_claims(db, session->row.session))
            continue;
        stet__mem_tree_remove(&db->sessions, node);
        stet__mem_session_free(db, session);
        if (crumbs != NULL)
            stet__mem_crumbs_settle(db, crumbs);
    }
}

static int
mem_maintain(stet_store *s)
{
    stet__memory_db *db = mem_handle(s)->db;
    int64_t          before_ms;

    mem_lock(db);
    before_ms = mem_now(db) - MEM_FORGET_MS;
    mem_forget_committers(db, before_ms);
    mem_forget_sessions(db, before_ms);
    mem_unlock(db);
    return STET_OK;
}

const stet_store_ops stet__store_memory_ops = {
    .version = 1,
    .scheme = "memory",
    .size = sizeof(mem_store),
    .open = mem_open,
    .close = mem_close,
    .reopen = mem_reopen,
    .now_ms = mem_now_ms,
    .commit = stet__mem_commit,
    .session_open = mem_session_open,
    .session_renew = mem_session_renew,
    .session_close = mem_session_close,
    .sessions = mem_sessions,
    .crumbs = mem_crumbs_get,
    .crumbs_of = mem_crumbs_of,
    .run = mem_run_get,
    .runs = mem_runs,
    .journal = mem_journal,
    .inbox = mem_inbox,
    .timers = mem_timers,
    .timers_of = mem_timers_of,
    .value = mem_value_get,
    .values = mem_values,
    .lane = mem_lane,
    .watch = mem_watch,
    .unwatch = mem_unwatch,
    .maintain = mem_maintain,
    .ping = mem_ping,
    .due = mem_due,
};
