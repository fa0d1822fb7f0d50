/* Runs that are due and that nobody serves: a worker names their handlers in its log, once each (A7).
 *
 * Which handlers the store has runs of is found by looking at some of its runs: the newest, and a few from the oldest
 * on, a bit further with every look, so that each is seen some day and no look costs more than another. What is found
 * and not served here is a suspect; whether it has a due run is asked of the store's index of work, and only if no
 * living worker serves it.
 *
 * Runs on: the keeper's thread, once a minute, which alone uses engine->unserved. An engine that is polled does not look.
 */
#include <string.h>

#include "engine/engine.h"

#define UNSERVED_PAGE 256u
#define UNSERVED_MAX  1000u /* handlers that are kept in mind */
#define UNSERVED_ASK  16u   /* of which the store is asked one by one in a look */

#define UNSERVED_SUSPECT ((void *)1)
#define UNSERVED_SAID    ((void *)2)

typedef struct unserved_page {
    stet_engine *e;
    stet_id      last;
    size_t       n;
} unserved_page;

static int
unserved_on_run(void *arg, const stet_run_row *row)
{
    unserved_page *page = arg;
    stet__map     *seen = &page->e->unserved;
    size_t         len = strlen(row->handler);

    page->last = row->id;
    page->n++;
    if (!row->is_terminal && row->session == 0 && seen->used < UNSERVED_MAX &&
        stet__handler_find(page->e, row->handler) == NULL &&
        stet__map_find(seen, row->handler, len) == NULL)
        (void)stet__map_put(seen, row->handler, len, UNSERVED_SUSPECT); /* or with the next look */
    return STET_OK;
}

static int
unserved_gather(stet_engine *e)
{
    stet_run_query newest = { .limit = UNSERVED_PAGE };
    stet_run_query oldest = { .limit = UNSERVED_PAGE, .oldest_first = true };
    unserved_page  page = { .e = e };
    int            err;

    if ((err = e->store->ops->runs(e->store, &newest, unserved_on_run, &page)) != STET_OK ||
        page.n < UNSERVED_PAGE) /* that were all there are */
        return err;
    page.n = 0;
    oldest.before = e->unserved_after;
    if ((err = e->store->ops->runs(e->store, &oldest, unserved_on_run, &page)) == STET_OK)
        e->unserved_after = page.n == UNSERVED_PAGE ? page.last : (stet_id){ { 0 } };
    return err;
}

/* Is a run of one of these due? */
static bool
unserved_is_due(stet_engine *e, const char *const *names, size_t n)
{
    int64_t due_ms = STET_NEVER;

    return n > 0 && e->store->ops->due(e->store, names, n, &due_ms) == STET_OK &&
           due_ms <= stet__store_now(e);
}

/* The names of the suspects that no living worker serves. NULL: out of memory. */
static const char **
unserved_names(stet_engine *e, stet__living *living, size_t *n)
{
    const char **names = stet__arena_get(&living->arena, e->unserved.used * sizeof *names);
    size_t       at = 0, len;
    const void  *key;
    void        *value;

    *n = 0;
    while (names != NULL && stet__map_next(&e->unserved, &at, &key, &len, &value)) {
        if (value != UNSERVED_SUSPECT || stet__map_find(&living->names, key, len) != NULL)
            continue;
        if ((names[*n] = stet__arena_copy(&living->arena, key, len)) == NULL)
            return NULL;
        ++*n;
    }
    return names;
}

void
stet__unserved_look(stet_engine *e)
{
    stet__living living;
    const char **names;
    size_t       n, asked = 0;

    if (!(e->config.roles & STET_ROLE_WORKER) || unserved_gather(e) != STET_OK ||
        e->unserved.used == 0)
        return;
    if (stet__living_open(e, &living) == STET_OK &&
        (names = unserved_names(e, &living, &n)) != NULL && unserved_is_due(e, names, n)) {
        for (size_t i = 0; i < n && asked < UNSERVED_ASK; i++) {
            const char *name = names[(e->unserved_next + i) % n];

            asked++;
            if (!unserved_is_due(e, &name, 1))
                continue;
            (void)stet__map_put(&e->unserved, name, strlen(name), UNSERVED_SAID);
            stet__log(e, STET_LOG_WARN, NULL, name, NULL, 0,
                      "runs of %s are due, and no living worker serves it: start one that does",
                      name);
        }
        e->unserved_next += asked;
    }
    stet__living_free(&living);
}
