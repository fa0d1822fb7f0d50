/* Schedules: is each readable, does each stand in the index where it says, is nothing in the index
 * or the ledger that belongs to none?
 *
 * Entries that are not in the future may be too many: runs that ended put them, and the next look
 * removes them. The store goes on meanwhile, so what looks wrong is read again, and counts only if
 * the schedule was the same before and after.
 */
#include <stdio.h>
#include <string.h>

#include "engine/schedule.h"
#include "engine/verify.h"

#define SCHED_PAGE 256u

typedef struct sched_item { /* a name, or an entry of the index */
    struct sched_item *next;
    const char        *space;
    stet_bytes         key;
    int64_t            at_ms;
    const char        *name;
} sched_item;

typedef struct sched_check {
    verify      *v;
    stet__arena  kept, pages[2]; /* of the index; of this page and the one before */
    stet__arena *at;     /* one of them */
    const char  *space;  /* that is read */
    sched_item  *page;   /* last key first */
    size_t       n;
    sched_item  *index;  /* all entries */
    stet__map    asked;  /* names that are to be looked at now */
    char         known[STET__NAME_MAX + 1]; /* of the ledger: the schedule is there */
} sched_check;

static int
sched_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory while looking at schedules");
}

/* ---- pages ----------------------------------------------------------------------------------- */

static int
sched_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    sched_check *c = arg;
    sched_item  *item = stet__arena_get0(c->at, sizeof *item);
    const char  *copy = stet__arena_copy(c->at, key.data, key.len);

    (void)value;
    if (item == NULL || copy == NULL)
        return sched_no_memory();
    item->space = c->space;
    item->key = (stet_bytes){ copy, key.len };
    item->name = copy;
    item->next = c->page;
    c->page = item;
    c->n++;
    return STET_OK;
}

/* All of a space, a page at a time; the items of the index are kept. */
static int
sched_each(sched_check *c, const char *space, bool is_kept,
           int (*fn)(sched_check *c, sched_item *item))
{
    stet_store *store = c->v->e->store;
    stet_bytes  none = { NULL, 0 }, after = none;
    int         err;

    c->space = space;
    do {
        sched_item *first;

        c->page = NULL;
        c->n = 0;
        c->at = is_kept ? &c->kept : c->at == &c->pages[0] ? &c->pages[1] : &c->pages[0];
        if (!is_kept)
            stet__arena_free(c->at); /* `after` is in the other one */
        err = store->ops->values(store, space, none, after.data != NULL ? &after : NULL, SCHED_PAGE,
                                 sched_on_value, c);
        if ((first = c->page) != NULL)
            after = first->key;
        for (sched_item *i = first, *next; err == STET_OK && i != NULL; i = next) {
            next = i->next;
            err = fn(c, i);
        }
    } while (err == STET_OK && c->n == SCHED_PAGE);
    return err;
}

static int
sched_is_there(sched_check *c, const char *space, stet_bytes key, bool *is_there)
{
    stet_store *store = c->v->e->store;
    stet_value  value = { 0 };
    int         err = store->ops->value(store, space, key, &value);

    *is_there = err == STET_OK;
    stet__free(store->alloc, (void *)(uintptr_t)value.data.data);
    return err == STET_ENOTFOUND ? STET_OK : err;
}

/* As it is now; not there: edition 0. */
static int
sched_read(sched_check *c, const char *name, stet__sched *s)
{
    int err = stet__sched_read(c->v->e, c->at, name, s);

    return err == STET_ENOTFOUND || err == STET_ECORRUPT ? STET_OK : err;
}

static int
sched_is_same(sched_check *c, const stet__sched *was, bool *is_same)
{
    stet__sched now;
    int         err = sched_read(c, was->name, &now);

    *is_same = err == STET_OK && now.edition == was->edition && stet__id_equal(now.id, was->id);
    return err;
}

/* ---- setting right --------------------------------------------------------------------------- */

/* Tell it; with a unit that sets it right, if it is to be. */
static int
sched_tell(sched_check *c, stet__work *w, bool is_built)
{
    int repaired = STET_ECONFLICT;

    if (c->v->is_repairing && w != NULL && is_built) {
        if ((repaired = stet__commit_sync(c->v->e, w, NULL)) != STET_OK &&
            repaired != STET_ECONFLICT)
            return repaired;
    } else {
        stet__work_free(w);
        if (c->v->is_repairing && !is_built)
            return sched_no_memory();
    }
    return stet__verify_tell(c->v, NULL, repaired == STET_OK);
}

static int
sched_remove(sched_check *c, const stet__sched *s, const sched_item *item)
{
    stet__work *w = stet__work_new(c->v->e, NULL, NULL);

    return sched_tell(c, w,
                      w != NULL && stet__sched_is_as_read(w, s) &&
                          stet__sched_unask(w, item->space, item->key));
}

/* It waits for a run that is over: let somebody look. */
static int
sched_ask(sched_check *c, const stet__sched *s)
{
    stet__work *w = stet__work_new(c->v->e, NULL, NULL);

    return sched_tell(c, w,
                      w != NULL && stet__sched_is_as_read(w, s) &&
                          stet__sched_ask(w, s->name, stet__store_now(c->v->e),
                                          stet__fact_id(s->f.run)));
}

/* Into the index. The record stays as it is: a move compares it. */
static int
sched_put(sched_check *c, const stet__sched *s)
{
    stet__work *w = stet__work_new(c->v->e, NULL, NULL);

    return sched_tell(c, w,
                      w != NULL && stet__sched_is_as_read(w, s) &&
                          stet__sched_place(w, s, &s->f));
}

/* ---- the index ------------------------------------------------------------------------------- */

static int
sched_gather(sched_check *c, sched_item *item)
{
    const uint8_t *at = item->key.data;
    size_t         head = 0;
    uint64_t       ms = 0;

    if (strcmp(item->space, STET__SPACE_SCHED_FN) == 0)
        head = strnlen((const char *)at, item->key.len) + 1;
    item->name = "";
    if (item->key.len >= head + 8) {
        for (size_t i = 0; i < 8; i++)
            ms = ms << 8 | at[head + i];
        item->name = (const char *)at + head + 8;
    }
    item->at_ms = (int64_t)ms;
    item->next = c->index;
    c->index = item;
    if (item->at_ms <= stet__store_now(c->v->e) &&
        stet__map_put(&c->asked, item->name, strlen(item->name), c) != STET_OK)
        return sched_no_memory();
    return STET_OK;
}

static int
sched_is_own(sched_check *c, const stet__sched *s, const sched_item *item, bool *is_own)
{
    stet_bytes  key;
    const char *space;

    *is_own = false;
    if (s->edition == 0 || s->f.look_ms == STET_NEVER)
        return STET_OK;
    if ((space = stet__sched_index(c->at, s, &s->f, &key)) == NULL)
        return sched_no_memory();
    *is_own = strcmp(space, item->space) == 0 && key.len == item->key.len &&
              memcmp(key.data, item->key.data, key.len) == 0;
    return STET_OK;
}

/* Of a run that ended: it has its ID behind the name. By a clock that was set back since, that is to
 * come. */
static bool
sched_is_asked(const sched_item *item)
{
    const char *end = (const char *)item->key.data + item->key.len;

    return item->name[0] != '\0' && item->name + strlen(item->name) < end;
}

static int
sched_check_entry(sched_check *c, const sched_item *item)
{
    stet__sched s;
    bool        is_own, is_there, is_same;
    int         err = sched_read(c, item->name, &s);

    if (err != STET_OK || item->at_ms <= stet__store_now(c->v->e) || sched_is_asked(item))
        return err;
    if (s.edition != 0 && !stet__sched_is_sound(&s.f))
        return STET_OK; /* told as that; nobody knows its own time */
    if ((err = sched_is_own(c, &s, item, &is_own)) != STET_OK || is_own)
        return err;
    if ((err = sched_is_there(c, item->space, item->key, &is_there)) != STET_OK || !is_there ||
        (err = sched_is_same(c, &s, &is_same)) != STET_OK || !is_same)
        return err;
    if (s.edition == 0)
        (void)stet__verify_bad(c->v, "schedule", 0,
                               "the index has an entry for schedule %s, which is not there",
                               item->name);
    else
        (void)stet__verify_bad(c->v, "schedule", 0,
                               "the index has an entry for schedule %s at another time than its "
                               "own",
                               item->name);
    return sched_remove(c, &s, item);
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* Does something wait for the end of its run? */
static bool
sched_waits(const stet__sched *s)
{
    bool is_from_end = (s->f.flags & STET__SCHED_FROM_COMPLETION) && s->f.until_ms == STET_NEVER;

    return (s->f.flags & STET__SCHED_RUNNING) && !(s->f.flags & STET__SCHED_PAUSED) &&
           (s->f.waiting_ms != 0 || is_from_end);
}

/* That run has ended, and neither it nor anything else asked for a look. */
static int
sched_is_forgotten(sched_check *c, const stet__sched *s, bool *is_forgotten)
{
    stet_run_row row;
    stet__fact   extra;
    stet_bytes   key;
    bool         is_there = false;
    int          err;

    *is_forgotten = false;
    if (!sched_waits(s) || stet__map_find(&c->asked, s->name, strlen(s->name)) != NULL)
        return STET_OK;
    if (s->f.look_ms < s->f.until_ms) /* because of that; in a while, by a clock that was set back since */
        return STET_OK;
    err = stet__load_row(c->v->e, stet__fact_id(s->f.run), c->at, &row, &extra);
    if (err != STET_ENOTFOUND && (err != STET_OK || !row.is_terminal))
        return err;
    if (err == STET_OK) { /* perhaps after the index was read: then its entry is there now */
        key = stet__sched_asked(c->at, s->name, row.ended_ms, stet__fact_id(s->f.run));
        if (key.data == NULL)
            return sched_no_memory();
        if ((err = sched_is_there(c, STET__SPACE_SCHED_DUE, key, &is_there)) != STET_OK)
            return err;
    }
    if (is_there)
        return STET_OK;
    return sched_is_same(c, s, is_forgotten);
}

static int
sched_check_waiting(sched_check *c, const stet__sched *s)
{
    bool is_forgotten;
    int  err = sched_is_forgotten(c, s, &is_forgotten);

    if (err != STET_OK || !is_forgotten)
        return err;
    (void)stet__verify_bad(c->v, "schedule", 0,
                           "schedule %s waits for a run that has ended, and is not looked at",
                           s->name);
    return sched_ask(c, s);
}

static int
sched_check_one(sched_check *c, sched_item *item)
{
    stet__sched s;
    const char *space;
    stet_bytes  key;
    bool        is_there, is_same;
    int         err;

    c->v->rule = NULL;
    if ((err = sched_read(c, item->name, &s)) != STET_OK || s.edition == 0)
        return err;
    if (!stet__sched_is_sound(&s.f)) {
        (void)stet__verify_bad(c->v, "schedule", 0, "schedule %s cannot be read", item->name);
        return stet__verify_tell(c->v, NULL, false);
    }
    if (s.f.look_ms == STET_NEVER)
        return sched_check_waiting(c, &s);
    if ((space = stet__sched_index(c->at, &s, &s.f, &key)) == NULL)
        return sched_no_memory();
    if ((err = sched_is_there(c, space, key, &is_there)) != STET_OK)
        return err;
    if (is_there)
        return sched_check_waiting(c, &s);
    if ((err = sched_is_same(c, &s, &is_same)) != STET_OK || !is_same)
        return err;
    (void)stet__verify_bad(c->v, "schedule", 0,
                           "schedule %s is not in the index: nobody would fire it", s.name);
    return sched_put(c, &s);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static int
sched_check_log(sched_check *c, sched_item *item)
{
    const char *name = item->key.data;
    stet__sched s;
    bool        is_there, is_same;
    int         err;

    if (strnlen(name, item->key.len) == item->key.len || strcmp(name, c->known) == 0)
        return STET_OK;
    if ((err = sched_read(c, name, &s)) != STET_OK)
        return err;
    if (s.edition > 0) {
        (void)snprintf(c->known, sizeof c->known, "%s", name);
        return STET_OK;
    }
    if ((err = sched_is_there(c, item->space, item->key, &is_there)) != STET_OK || !is_there ||
        (err = sched_is_same(c, &s, &is_same)) != STET_OK || !is_same)
        return err;
    (void)stet__verify_bad(c->v, "schedule", 0,
                           "the ledger has an entry of schedule %s, which is not there", name);
    return sched_remove(c, &s, item);
}

int
stet__verify_schedules(verify *v)
{
    sched_check c = { .v = v };
    int         err;

    stet__arena_init(&c.kept, &v->e->p->alloc);
    stet__arena_init(&c.pages[0], &v->e->p->alloc);
    stet__arena_init(&c.pages[1], &v->e->p->alloc);
    stet__map_init(&c.asked, &v->e->p->alloc);
    if ((err = sched_each(&c, STET__SPACE_SCHED_DUE, true, sched_gather)) == STET_OK &&
        (err = sched_each(&c, STET__SPACE_SCHED_FN, true, sched_gather)) == STET_OK &&
        (err = sched_each(&c, STET__SPACE_BASE_SCHED, false, sched_check_one)) == STET_OK)
        err = sched_each(&c, STET__SPACE_BASE_SCHED_LOG, false, sched_check_log);
    c.at = &c.pages[0];
    for (const sched_item *i = c.index; err == STET_OK && i != NULL; i = i->next) {
        stet__arena_free(c.at);
        err = sched_check_entry(&c, i);
    }
    stet__map_free(&c.asked);
    stet__arena_free(&c.kept);
    stet__arena_free(&c.pages[0]);
    stet__arena_free(&c.pages[1]);
    return err;
}
