/* Firing: what the keeper does when schedules are to be looked at.
 *
 * A look is one unit: the record anew, its place in the index, the entry that led to it removed,
 * the entry of the ledger and, if it fires, the run. It is refused when somebody else was faster,
 * and then nothing of it happened.
 *
 * Runs on: the keeper. Locks: engine->lock, given up around every store call.
 */
#include <stdio.h>
#include <string.h>

#include "engine/schedule.h"

#define FIRE_BATCH    64u
#define FIRE_AGAIN_MS 100   /* after a unit that was refused */
#define FIRE_FAIL_MS  60000 /* after a next time that could not be found */
#define FIRE_STORE_MS 1000  /* after a store that failed */

typedef struct fire_entry {
    const char *space;
    stet_bytes  key;
    int64_t     at_ms;
    const char *name; /* in the key */
} fire_entry;

typedef struct fire_page {
    stet__arena  arena;
    const char  *space;
    size_t       head; /* bytes of the key before the time */
    int64_t      now_ms, next_ms;
    fire_entry  *entries;
    size_t       n;
    bool         is_full, has_failed;
} fire_page;

static int
fire_on_entry(void *arg, stet_bytes key, const stet_value *value)
{
    fire_page  *page = arg;
    fire_entry *at = &page->entries[page->n];
    uint64_t    ms = 0;
    char       *copy;

    (void)value;
    if (key.len < page->head + 8)
        return STET_OK; /* nothing of ours */
    for (size_t i = 0; i < 8; i++)
        ms = ms << 8 | ((const uint8_t *)key.data)[page->head + i];
    if ((int64_t)ms > page->now_ms) {
        if ((int64_t)ms < page->next_ms)
            page->next_ms = (int64_t)ms;
        return STET_END;
    }
    if (page->n == FIRE_BATCH) {
        page->is_full = true;
        return STET_END;
    }
    if ((copy = stet__arena_copy(&page->arena, key.data, key.len)) == NULL)
        return STET_ENOMEM;
    *at = (fire_entry){ page->space, { copy, key.len }, (int64_t)ms, copy + page->head + 8 };
    page->n++;
    return STET_OK;
}

/* One value says when the next look is; more are read only if it is now. */
static int
fire_read(stet_engine *e, fire_page *page, const char *space, stet_bytes prefix)
{
    size_t had = page->n;
    int    err;

    page->space = space;
    page->head = prefix.len;
    err = e->store->ops->values(e->store, space, prefix, NULL, 1, fire_on_entry, page);
    if (err == STET_OK && page->n > had) {
        page->n = had;
        err = e->store->ops->values(e->store, space, prefix, NULL, FIRE_BATCH + 1, fire_on_entry,
                                    page);
    }
    return err == STET_END ? STET_OK : err;
}

static int
fire_read_all(stet_engine *e, fire_page *page)
{
    int err = fire_read(e, page, STET__SPACE_SCHED_DUE, (stet_bytes){ NULL, 0 });

    for (const stet__sched_function *f = e->sched_functions; err == STET_OK && f != NULL;
         f = f->next)
        err = fire_read(e, page, STET__SPACE_SCHED_FN,
                        (stet_bytes){ f->name, strlen(f->name) + 1 });
    return err;
}

/* ---- one look -------------------------------------------------------------------------------- */

typedef struct fire_unit { /* in the unit's arena */
    stet__loaded cancelled;
    bool         has_cancelled;
} fire_unit;

static void
fire_drop(void *arg)
{
    fire_unit *u = arg;

    if (u->has_cancelled)
        stet__loaded_free(&u->cancelled);
}

static bool
fire_done(stet_engine *e, stet__work *w, const stet_outcome *o)
{
    fire_unit *u = w->arg;

    if (--e->sched_firing == 0)
        stet__keeper_poke(e);
    if (o->result == STET_OK && u->has_cancelled)
        stet__answer(e, &u->cancelled.run);
    if (o->result == STET_ECONFLICT || o->result == STET_EFENCED)
        stet__keeper_sched(e, stet__store_now(e) + FIRE_AGAIN_MS);
    else if (o->result != STET_OK)
        stet__keeper_sched(e, stet__store_now(e) + FIRE_STORE_MS);
    return false;
}

static const char *
fire_text(stet__arena *arena, stet_bytes from, bool *is_out)
{
    const char *copy = NULL;

    if (from.data != NULL && (copy = stet__arena_copy(arena, from.data, from.len)) == NULL)
        *is_out = true;
    return copy;
}

/* The run, whatever is known of its handler here: which of the workers looks first must not decide
 * whether it is started. What its handler asks for it gets from any of them. */
static int
fire_start(stet_engine *e, stet__work *w, const stet__sched *s, const stet__sched_act *act,
           stet_id *run)
{
    bool               is_out = false;
    const char        *handler = fire_text(&w->arena, s->f.name, &is_out);
    stet_start_options o = { .size = sizeof o };
    stet__start        start;
    stet__policy       policy;
    stet__handler     *h;
    int                err = STET_OK;

    o.key = fire_text(&w->arena, s->f.key, &is_out);
    o.group = fire_text(&w->arena, s->f.group, &is_out);
    o.priority = (int32_t)s->f.priority;
    o.timeout_ms = s->f.deadline_ms;
    if (is_out)
        return stet__fail(STET_ENOMEM, "out of memory");
    if ((h = stet__handler_find(e, handler)) != NULL)
        stet__policy_of(h, &policy);
    else
        err = stet__policy_elsewhere(e, handler, &policy);
    if (err != STET_OK ||
        (err = stet__start_fill(e, &w->arena, &start, &policy, handler, s->f.value, &o)) != STET_OK)
        return err;
    start.fact.schedule = stet_text(s->name);
    start.fact.planned_ms = act->planned_ms;
    *run = start.run;
    if (STET__MUTANT(sched_apart)) {
        stet__work *apart = stet__work_new(e, NULL, NULL);

        if (apart == NULL || !stet__start_ops(e, apart, &start.fact, start.run, false, NULL, 0))
            return stet__fail(STET_ENOMEM, "out of memory");
        stet__submit(e, apart);
        return STET_OK;
    }
    stet__lock(e->p, &e->lock);
    err = stet__start_ops(e, w, &start.fact, start.run, true, NULL, 0)
              ? STET_OK
              : stet__fail(STET_ENOMEM, "out of memory");
    stet__unlock(e->p, &e->lock);
    return err;
}

/* The last run, unless it has ended or was told to already. One that cannot be read nobody can
 * execute either: verify tells of it, and the schedule goes on. */
static int
fire_cancel(stet_engine *e, stet__work *w, fire_unit *u, const stet__sched *s)
{
    char *by = stet__arena_printf(&w->arena, "schedule %s", s->name);
    int   err, asked = 0;

    if (by == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    err = stet__load(e, &u->cancelled, stet__fact_id(s->f.run), false);
    if (err == STET_ECORRUPT)
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, err,
                  "schedule %s: the old run is not cancelled: %s", s->name, stet_last_error());
    if (err != STET_OK)
        return err == STET_ENOTFOUND || err == STET_ECORRUPT ? STET_OK : err;
    u->has_cancelled = true;
    if (stet__run_is_terminal(&u->cancelled.run) || u->cancelled.run.is_told ||
        (err = stet__stop_asked(e, &u->cancelled.run, &asked)) != STET_OK)
        return err;
    if ((u->cancelled.run.stop_code = asked) != 0) /* not by us, and that is what its waiters are told */
        return STET_OK;
    return stet__stop_ops(e, w, &u->cancelled, STET_ECANCELLED, by,
                          "its schedule fires again and cancels the old run");
}

/* Is the run it started last open? */
static int
fire_last_run(stet_engine *e, stet__arena *arena, const stet__sched *s, stet__sched_now *now)
{
    stet_run_row row;
    stet__fact   extra;
    int          err;

    now->is_open = false;
    now->ended_ms = 0;
    if (!(s->f.flags & STET__SCHED_RUNNING))
        return STET_OK;
    err = stet__load_row(e, stet__fact_id(s->f.run), arena, &row, &extra);
    if (err == STET_ENOTFOUND || err == STET_ECORRUPT)
        return STET_OK;
    now->is_open = err == STET_OK && !row.is_terminal;
    now->ended_ms = err == STET_OK && row.is_terminal ? row.ended_ms : 0;
    return err;
}

/* What the step decided, as operations. */
static int
fire_ops(stet_engine *e, stet__work *w, fire_unit *u, const stet__sched *s, stet__fact *f,
         const stet__sched_act *act, int64_t now_ms)
{
    stet_id last = stet__fact_id(s->f.run), run = last;
    bool    has_way = act->what == STET__SCHED_WAIT || act->skip == STET_SKIP_OVERLAP ||
                   act->skip == STET_SKIP_QUEUED;
    int     err;

    switch (act->what) {
    case STET__SCHED_NOTHING:
        /* The entry that led here may be its own: the clock may have been set back since it was
         * read. */
        return stet__sched_is_as_read(w, s) &&
                       (STET__MUTANT(sched_unplaced) || stet__sched_place(w, s, &s->f))
                   ? STET_OK
                   : stet__fail(STET_ENOMEM, "out of memory");
    case STET__SCHED_FIRE:
        if ((act->cancels && !STET__MUTANT(sched_uncancelled) && (err = fire_cancel(e, w, u, s)) != STET_OK) ||
            (err = fire_start(e, w, s, act, &run)) != STET_OK)
            return err;
        has_way = true;
        f->fired_ms = now_ms;
        f->run = stet__id_bytes(&run);
        break;
    case STET__SCHED_CHANGED:
    case STET__SCHED_WAIT:
    case STET__SCHED_SKIP: break;
    }
    if (act->what != STET__SCHED_CHANGED &&
        (err = stet__sched_log(e, w, s, f, act, has_way ? &run : NULL, now_ms)) != STET_OK)
        return err;
    return stet__sched_write(w, s, f) ? STET_OK : stet__fail(STET_ENOMEM, "out of memory");
}

/* Its next time could not be found: it says so, and is asked again later. */
static void
fire_failed(stet_engine *e, stet__work *w, const stet__sched *s, stet__fact *f, int64_t now_ms)
{
    const char *text = stet__arena_str(&w->arena, stet_last_error());

    stet__log(e, STET_LOG_ERROR, NULL, NULL, NULL, STET_EINVAL, "schedule %s: %s", s->name,
              stet_last_error());
    f->text = text != NULL ? stet_text(text) : (stet_bytes){ NULL, 0 };
    f->look_ms = now_ms + FIRE_FAIL_MS;
}

static int
fire_build(stet_engine *e, stet__work *w, fire_unit *u, const fire_entry *entry)
{
    stet__sched       s;
    stet__sched_clock clock = { 0 };
    stet__sched_now   now = { .now_ms = stet__store_now(e) };
    stet__sched_act   act = { .what = STET__SCHED_NOTHING };
    stet__fact        f;
    int               err = stet__sched_read(e, &w->arena, entry->name, &s), failed;

    if (err != STET_OK && err != STET_ENOTFOUND && err != STET_ECORRUPT)
        return err;
    if (STET__MUTANT(sched_own_clock))
        now.now_ms = stet__wall_ms(e->p);
    if (!stet__sched_unask(w, entry->space, entry->key))
        return stet__fail(STET_ENOMEM, "out of memory");
    if (err == STET_ECORRUPT) { /* verify tells; nobody else can do anything about it */
        stet__log(e, STET_LOG_ERROR, NULL, NULL, NULL, err, "%s", stet_last_error());
        return STET_OK;
    }
    if (err == STET_ENOTFOUND)
        return stet__sched_is_as_read(w, &s) ? STET_OK : stet__fail(STET_ENOMEM, "out of memory");
    if ((err = fire_last_run(e, &w->arena, &s, &now)) != STET_OK)
        return err;
    f = s.f;
    f.text = (stet_bytes){ NULL, 0 };
    if ((failed = stet__sched_clock_open(e, &clock, &s, &now)) == STET_OK)
        failed = stet__sched_step(&f, &now, &act);
    if (failed != STET_OK) {
        act.what = STET__SCHED_CHANGED;
        fire_failed(e, w, &s, &f, now.now_ms);
    } else if (s.f.text.data != NULL && act.what == STET__SCHED_NOTHING)
        act.what = STET__SCHED_CHANGED;
    stet__sched_clock_close(&clock);
    return failed == STET_ENOMEM ? failed : fire_ops(e, w, u, &s, &f, &act, now.now_ms);
}

/* The run cannot be started here, and trying again at once does not change that. */
static int
fire_refused(stet_engine *e, stet__work *w, const fire_entry *entry)
{
    const char *text = stet__arena_str(&w->arena, stet_last_error());
    stet__sched s;
    stet__fact  f;
    int         err = stet__sched_read(e, &w->arena, entry->name, &s);

    if (err != STET_OK)
        return err;
    f = s.f;
    (void)stet__fail(STET_EINVAL, "%s", text != NULL ? text : "");
    fire_failed(e, w, &s, &f, stet__store_now(e));
    return stet__sched_unask(w, entry->space, entry->key) && stet__sched_write(w, &s, &f)
               ? STET_OK
               : stet__fail(STET_ENOMEM, "out of memory");
}

static stet__work *
fire_new(stet_engine *e, fire_unit **u)
{
    stet__work *w = stet__work_new(e, fire_done, NULL);

    if (w == NULL)
        return NULL;
    if ((*u = stet__arena_get0(&w->arena, sizeof **u)) == NULL) {
        stet__work_free(w);
        return NULL;
    }
    w->arg = w->drop_arg = *u;
    w->drop = fire_drop;
    return w;
}

/* False: nothing was submitted. */
static bool
fire_look(stet_engine *e, const fire_entry *entry)
{
    fire_unit  *u;
    stet__work *w = fire_new(e, &u);
    int         err;

    if (w == NULL)
        return false;
    err = fire_build(e, w, u, entry);
    if (err != STET_OK && stet_code_class(err) == STET_CLASS_USAGE) {
        stet__work_free(w);
        if ((w = fire_new(e, &u)) == NULL)
            return false;
        err = fire_refused(e, w, entry);
    }
    if (err != STET_OK || !stet__stop_guard(e, w)) {
        if (err != STET_OK)
            stet__log_store(e, NULL, NULL, err, "schedule %s", entry->name);
        stet__work_free(w);
        return false;
    }
    stet__lock(e->p, &e->lock);
    e->sched_firing++;
    stet__unlock(e->p, &e->lock);
    stet__submit(e, w);
    return true;
}

/* ---- the round ------------------------------------------------------------------------------- */

/* Two looks at one schedule in one batch: the second would be refused. */
static bool
fire_is_first(const fire_page *page, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(page->entries[i].name, page->entries[at].name) == 0)
            return false;
    return true;
}

void
stet__sched_round(stet_engine *e)
{
    fire_page page = { .now_ms = stet__store_now(e), .next_ms = STET_NEVER };
    int       err;

    e->next_sched_ms = STET_NEVER; /* units applied from here on lower it again */
    e->sched_looked_us = stet__mono_us(e->p);
    stet__unlock(e->p, &e->lock);
    stet__arena_init(&page.arena, &e->p->alloc);
    page.entries = stet__arena_get(&page.arena, FIRE_BATCH * sizeof *page.entries);
    err = page.entries != NULL ? fire_read_all(e, &page) : STET_ENOMEM;
    for (size_t i = 0; err == STET_OK && i < page.n; i++)
        if (!fire_is_first(&page, i))
            page.is_full = true;
        else if (!fire_look(e, &page.entries[i]))
            page.has_failed = true;
    stet__arena_free(&page.arena);
    if (page.n > 0 && e->has_threads)
        stet__committer_kick(e);
    else if (page.n > 0)
        (void)stet__committer_help(e);
    stet__lock(e->p, &e->lock);
    if (err != STET_OK || page.has_failed)
        stet__keeper_sched(e, page.now_ms + FIRE_STORE_MS);
    if (page.is_full)
        page.next_ms = page.now_ms; /* there are more */
    stet__keeper_sched(e, page.next_ms);
}
