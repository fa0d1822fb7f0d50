/* Retention: ended runs are removed when their time has come, with everything that points to them.
 *
 * What they wrote (object state) stays; a value whose writer is gone is a baseline. Idempotency keys,
 * labels and awakeables go with their run, in the same unit; so do the keys its children were started with.
 */
#include <string.h>

#include "engine/engine.h"

#define PURGE_PAGE 200u
#define PURGE_PAGES_MAX 20
#define PURGE_KEYS_MAX 1000u /* keys of children a unit */

typedef struct purge_page {
    stet_engine *e;
    int64_t      now_ms;
    stet_id      found[PURGE_PAGE];
    size_t       n, seen;
    stet_id      last;
} purge_page;

static int
purge_on_row(void *arg, const stet_run_row *row)
{
    purge_page *page = arg;
    stet_bytes  in = row->extra;
    stet__fact  extra = { 0 };
    int64_t     keep_ms = page->e->config.retention_ms;

    page->seen++;
    page->last = row->id;
    if (!row->is_terminal)
        return STET_OK;
    if (in.len > 0 && stet__fact_decode(&extra, &in) == STET_OK && extra.retention_ms > 0)
        keep_ms = extra.retention_ms;
    if (row->ended_ms + keep_ms <= page->now_ms)
        page->found[page->n++] = row->id;
    return STET_OK;
}

static bool
purge_value(stet__work *w, const char *space, stet_bytes key)
{
    stet_op *op = stet__work_op(w, STET_OP_VALUE_DEL, (stet_id){ { 0 } });

    if (op == NULL)
        return false;
    op->space = space;
    return stet__work_bytes(w, &op->key, key);
}

static bool
purge_labels(stet__work *w, const stet__run *run)
{
    const char *at = run->labels.data, *end = at != NULL ? at + run->labels.len : NULL;

    while (at != NULL && at < end) {
        size_t len = strlen(at);
        char  *key = stet__arena_get(&w->arena, len + 1 + sizeof run->id.bytes);

        if (key == NULL)
            return false;
        memcpy(key, at, len + 1);
        memcpy(key + len + 1, run->id.bytes, sizeof run->id.bytes);
        if (!purge_value(w, STET__SPACE_LABEL, (stet_bytes){ key, len + 1 + sizeof run->id.bytes }))
            return false;
        at += len + 1;
    }
    return true;
}

typedef struct purge_keys {
    stet__work *w;
    size_t      n;
} purge_keys;

static int
purge_on_key(void *arg, stet_bytes key, const stet_value *value)
{
    purge_keys *keys = arg;

    (void)value;
    keys->n++;
    return purge_value(keys->w, STET__SPACE_CHILD, key) ? STET_OK : STET_ENOMEM;
}

static bool
purge_ops(stet__work *w, stet__loaded *l)
{
    stet_bytes key;

    for (const stet__cmd *cmd = l->journal.waiting; cmd != NULL; cmd = cmd->next)
        if (cmd->kind == STET__FACT_AWAKEABLE && !purge_value(w, STET__SPACE_AWAKEABLE, stet__id_bytes(&cmd->run)))
            return false;
    if (l->run.idempotency_key != NULL &&
        (!stet__idem_key(&w->arena, &key, stet_text(l->run.handler),
                         l->run.key != NULL ? stet_text(l->run.key) : (stet_bytes){ NULL, 0 },
                         stet_text(l->run.idempotency_key)) ||
         !purge_value(w, STET__SPACE_IDEM, key)))
        return false;
    return purge_value(w, STET__SPACE_RETRY, stet__id_bytes(&l->run.id)) &&
           purge_value(w, STET__SPACE_DISCARD, stet__id_bytes(&l->run.id)) && purge_labels(w, &l->run) &&
           stet__work_op(w, STET_OP_RUN_DEL, l->run.id) != NULL;
}

static void
purge_run(stet_engine *e, stet_id run)
{
    purge_keys   keys = { NULL, 0 };
    stet__loaded l;
    stet__work  *w;

    if (stet__load(e, &l, run, true) != STET_OK)
        return; /* unreadable ones are kept for who looks into it */
    if ((w = keys.w = stet__work_new(e, NULL, NULL)) != NULL) {
        /* It has ended, so no child comes any more. One with very many goes with a later sweep. */
        if (e->store->ops->values(e->store, STET__SPACE_CHILD, stet__id_bytes(&run), NULL, PURGE_KEYS_MAX, purge_on_key,
                                  &keys) == STET_OK &&
            (keys.n == PURGE_KEYS_MAX || purge_ops(w, &l)))
            stet__submit(e, w);
        else
            stet__work_free(w);
    }
    stet__loaded_free(&l);
}

/* One page from the cursor on. True: something was removed and more may be. */
static bool
purge_page_round(stet_engine *e, purge_page *page)
{
    stet_run_query query = { 0 };

    page->n = page->seen = 0;
    query.oldest_first = true;
    query.before = e->purge_after;
    query.limit = PURGE_PAGE;
    query.created_to_ms = page->now_ms;
    if (e->store->ops->runs(e->store, &query, purge_on_row, page) != STET_OK)
        return false;
    for (size_t i = 0; i < page->n; i++)
        purge_run(e, page->found[i]);
    (void)stet__committer_help(e);
    /* Past the last page it begins again at the oldest, with the next sweep. */
    if (page->seen == PURGE_PAGE && stet__id_time_ms(page->last) < page->now_ms - 1000)
        e->purge_after = page->last;
    else
        memset(&e->purge_after, 0, sizeof e->purge_after);
    return page->n > 0 && page->seen == PURGE_PAGE;
}

/* An idle sweep reads one page; one that finds old runs goes on, within bounds, so that the keeper is not
 * kept from its timers. */
void
stet__purge(stet_engine *e)
{
    purge_page *page = stet__get0(&e->p->alloc, sizeof *page);

    if (page == NULL)
        return;
    page->e = e;
    page->now_ms = stet__store_now(e);
    for (int i = 0; i < PURGE_PAGES_MAX && purge_page_round(e, page); i++)
        ;
    stet__free(&e->p->alloc, page);
}
