/* Looking at schedules: one, all by name, what became of each planned time. Reads only. */
#include <stdio.h>
#include <string.h>

#include "engine/schedule.h"

#define LOOK_PAGE    50u
#define LOOK_LATE_MS 10000 /* due for so long, and nobody looked: something is wrong */

static const char *const skip_names[] = {
    [STET_SKIP_NONE] = "none",       [STET_SKIP_MISSED] = "missed",
    [STET_SKIP_LATE] = "late",       [STET_SKIP_LIMIT] = "limit",
    [STET_SKIP_OVERLAP] = "overlap", [STET_SKIP_QUEUED] = "queued",
    [STET_SKIP_PAUSED] = "paused",   [STET_SKIP_CHANGED] = "changed",
};

const char *
stet_skip_name(stet_skip skip)
{
    return (unsigned)skip <= STET_SKIP_CHANGED ? skip_names[skip] : NULL;
}

/* ---- who could fire it ----------------------------------------------------------------------- */

typedef struct look_workers {
    stet__arena *arena;
    const char  *function; /* NULL: any will do */
    size_t       n, n_able;
} look_workers;

static bool
look_has_line(const char *lines, const char *line)
{
    size_t len = strlen(line);

    for (const char *at = lines; *at != '\0'; at += at[strcspn(at, "\n")] != '\0') {
        size_t n = strcspn(at, "\n");

        if (n == len && strncmp(at, line, len) == 0)
            return true;
        at += n;
    }
    return false;
}

static int
look_on_session(void *arg, const stet_session_row *row)
{
    look_workers    *w = arg;
    stet_worker_info info;

    stet__info_decode(&info, w->arena, row);
    if (info.is_dead || !(info.roles & STET_ROLE_TIMERS))
        return STET_OK;
    w->n++;
    if (w->function == NULL || look_has_line(info.schedules, w->function))
        w->n_able++;
    return STET_OK;
}

/* ---- one ------------------------------------------------------------------------------------- */

typedef struct look {
    stet_engine *e;
    stet__arena  arena;
    bool         is_out;
} look;

static const char *
look_text(look *l, stet_bytes from)
{
    const char *copy = NULL;

    if (from.data != NULL && (copy = stet__arena_copy(&l->arena, from.data, from.len)) == NULL)
        l->is_out = true;
    return copy;
}

static const char *
look_id(look *l, stet_bytes bytes)
{
    char text[STET_ID_TEXT_MAX];

    if (bytes.data == NULL)
        return NULL;
    stet__id_text(text, STET__ID_RUN, stet__fact_id(bytes));
    return look_text(l, stet_text(text));
}

static int
look_is_running(look *l, const stet__sched *s, bool *is_running)
{
    stet_run_row row;
    stet__fact   extra;
    int          err;

    *is_running = false;
    if (!(s->f.flags & STET__SCHED_RUNNING))
        return STET_OK;
    err = stet__load_row(l->e, stet__fact_id(s->f.run), &l->arena, &row, &extra);
    *is_running = err == STET_OK && !row.is_terminal;
    return err == STET_ENOTFOUND || err == STET_ECORRUPT ? STET_OK : err;
}

/* Due, and nobody looks. NULL: all is well. */
static const char *
look_blocked(look *l, const stet__sched *s, const stet_schedule_info *info, int64_t now_ms)
{
    look_workers w = { .arena = &l->arena, .function = info->function };
    char         span[32];

    if (s->f.look_ms == STET_NEVER || l->e->store->ops->sessions(l->e->store, look_on_session, &w) != STET_OK)
        return NULL;
    if (w.n == 0)
        return "no worker is up that fires schedules";
    if (w.n_able == 0)
        return stet__arena_printf(&l->arena,
                                  "no worker has its function %s: register it with "
                                  "stet_register_schedule()",
                                  info->function);
    if (now_ms - s->f.look_ms < LOOK_LATE_MS)
        return NULL;
    return stet__arena_printf(&l->arena, "due for %s and not fired; `verify` looks for the reason",
                              stet_duration_text(span, sizeof span, now_ms - s->f.look_ms));
}

static const char *
look_sentence(look *l, const stet__sched *s, const stet_schedule_info *info)
{
    int64_t     now_ms = stet__store_now(l->e);
    const char *blocked;
    char        span[32];

    if (info->is_paused)
        return stet__arena_printf(&l->arena, "paused%s%s", info->paused_by != NULL ? " by " : "",
                                  info->paused_by != NULL ? info->paused_by : "");
    if (info->is_done)
        return info->fired > 0 ? "over: it has fired" : "over: it will not fire any more";
    if ((blocked = look_blocked(l, s, info, now_ms)) != NULL)
        return blocked;
    if (info->error != NULL)
        return stet__arena_printf(&l->arena, "its next time is not known: %s", info->error);
    if (info->waiting_ms != 0)
        return stet__arena_printf(&l->arena, "one waits for the end of %s", info->last_run);
    if (info->next_ms == 0)
        return info->is_running ? stet__arena_printf(&l->arena, "waits for the end of %s",
                                                     info->last_run)
                                : "its next time is being found";
    if (info->next_ms <= now_ms)
        return "due now";
    return stet__arena_printf(&l->arena, "fires in %s",
                              stet_duration_text(span, sizeof span, info->next_ms - now_ms));
}

static int
look_tell(look *l, const stet__sched *s, stet_schedule_info_fn fn, void *arg)
{
    const stet__fact  *f = &s->f;
    stet_schedule_info info = { 0 };
    int                err;

    info.name = s->name;
    info.handler = look_text(l, f->name);
    info.key = look_text(l, f->key);
    info.group = look_text(l, f->group);
    if (f->flags & STET__SCHED_FUNCTION)
        info.function = look_text(l, f->cron);
    else
        info.cron = look_text(l, f->cron);
    if (info.cron != NULL)
        info.zone = f->zone.len > 0 ? look_text(l, f->zone) : "UTC";
    info.every_ms = f->every_ms;
    info.at_ms = f->at_ms;
    info.after_ms = f->after_ms;
    info.grace_ms = f->grace_ms;
    info.timeout_ms = f->deadline_ms;
    info.from_completion = (f->flags & STET__SCHED_FROM_COMPLETION) != 0;
    info.overlap = (stet_overlap)f->overlap;
    info.missed = (stet_missed)f->missed;
    info.missed_max = (int)f->missed_max;
    info.priority = (int32_t)f->priority;
    info.input = f->value;
    info.created_ms = f->time_ms;
    info.updated_ms = f->updated_ms;
    info.is_paused = (f->flags & STET__SCHED_PAUSED) != 0;
    info.paused_by = look_text(l, f->who);
    info.next_ms = f->until_ms != STET_NEVER ? f->until_ms : 0;
    info.last_ms = f->planned_ms;
    info.fired_ms = f->fired_ms;
    info.last_run = look_id(l, f->run);
    info.waiting_ms = f->waiting_ms;
    info.fired = (uint64_t)f->fired;
    info.skipped = (uint64_t)f->skipped;
    info.error = look_text(l, f->text);
    if ((err = look_is_running(l, s, &info.is_running)) != STET_OK)
        return err;
    info.is_done = f->until_ms == STET_NEVER && f->waiting_ms == 0 &&
                   !(f->flags & STET__SCHED_FROM_COMPLETION);
    info.text = look_sentence(l, s, &info);
    if (l->is_out || info.text == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    return fn(arg, &info);
}

int
stet_schedule_get(stet_engine *e, const char *name, stet_schedule_info_fn fn, void *arg)
{
    look        l = { .e = e };
    stet__sched s;
    int         err;

    if ((err = stet__alive(e, "stet_schedule_get")) != STET_OK ||
        (err = stet__name_check("schedule", name)) != STET_OK)
        return err;
    stet__arena_init(&l.arena, &e->p->alloc);
    if ((err = stet__sched_read(e, &l.arena, name, &s)) == STET_ENOTFOUND)
        err = stet__sched_no_such(e, name);
    else if (err == STET_OK)
        err = look_tell(&l, &s, fn, arg);
    stet__arena_free(&l.arena);
    return err;
}

/* ---- all ------------------------------------------------------------------------------------- */

typedef struct look_item {
    struct look_item *next;
    const char       *name;
    stet_value        value;
    stet_bytes        key;
} look_item;

typedef struct look_items {
    stet__arena *arena;
    look_item   *first, **end;
} look_items;

static int
look_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    look_items *items = arg;
    look_item  *item = stet__arena_get0(items->arena, sizeof *item);

    if (item == NULL || (item->name = stet__arena_copy(items->arena, key.data, key.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    item->value = *value;
    item->key = (stet_bytes){ item->name, key.len };
    item->value.data.data = stet__arena_copy(items->arena, value->data.data, value->data.len);
    if (item->value.data.data == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    *items->end = item;
    items->end = &item->next;
    return STET_OK;
}

int
stet_schedule_list(stet_engine *e, const char *after, size_t limit, stet_schedule_info_fn fn,
                   void *arg)
{
    look       l = { .e = e };
    look_items items = { .arena = &l.arena, .end = &items.first };
    stet_bytes from = { NULL, 0 };
    int        err;

    if ((err = stet__alive(e, "stet_schedule_list")) != STET_OK)
        return err;
    if (after != NULL)
        from = stet_text(after);
    stet__arena_init(&l.arena, &e->p->alloc);
    err = e->store->ops->values(e->store, STET__SPACE_BASE_SCHED, (stet_bytes){ NULL, 0 },
                                after != NULL ? &from : NULL, limit > 0 ? limit : LOOK_PAGE,
                                look_on_value, &items);
    for (const look_item *i = items.first; err == STET_OK && i != NULL; i = i->next) {
        stet__sched s;

        if ((err = stet__sched_decode(&l.arena, i->name, &i->value, &s)) == STET_OK)
            err = look_tell(&l, &s, fn, arg);
        else if (err == STET_ECORRUPT) { /* the others are to be seen all the same */
            stet_schedule_info info = { .name = i->name, .handler = "",
                                        .text = "damaged: remove it and make it anew" };

            info.error = info.text;
            err = fn(arg, &info);
        }
    }
    stet__arena_free(&l.arena);
    return err;
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static const char *
look_skip(look *l, const stet__fact *f, const char *run)
{
    static const char *const texts[] = {
        [STET_SKIP_NONE] = "skipped",
        [STET_SKIP_MISSED] = "missed: nobody could fire in time",
        [STET_SKIP_LATE] = "missed: later than its grace",
        [STET_SKIP_LIMIT] = "missed: more than missed_max",
        [STET_SKIP_PAUSED] = "the schedule was paused",
        [STET_SKIP_CHANGED] = "missed: the schedule was given another time before anybody fired",
    };

    switch ((stet_skip)f->cause) {
    case STET_SKIP_OVERLAP:
        return stet__arena_printf(&l->arena, "%s was still open", run != NULL ? run : "a run");
    case STET_SKIP_QUEUED:
        return stet__arena_printf(&l->arena, "%s was still open, and one waited already",
                                  run != NULL ? run : "a run");
    case STET_SKIP_NONE:
    case STET_SKIP_MISSED:
    case STET_SKIP_LATE:
    case STET_SKIP_LIMIT:
    case STET_SKIP_PAUSED:
    case STET_SKIP_CHANGED: return texts[f->cause];
    }
    return texts[STET_SKIP_NONE];
}

static int
look_tell_occurrence(look *l, const look_item *item, stet_occurrence_fn fn, void *arg)
{
    stet_occurrence_info info = { 0 };
    stet__fact           f;
    stet_bytes           in = item->value.data;
    int                  err = stet__fact_decode(&f, &in);

    if (err != STET_OK || f.kind != STET__FACT_OCCURRENCE)
        return stet__fail(STET_ECORRUPT, "an entry of the ledger of %s is damaged", item->name);
    info.planned_ms = f.planned_ms;
    info.until_ms = f.until_ms;
    info.count = (uint64_t)f.number;
    info.time_ms = f.time_ms;
    info.outcome = (stet_occurrence_outcome)f.code;
    info.skip = (stet_skip)f.cause;
    info.run = look_id(l, f.run);
    if (f.code == STET_OCCURRENCE_RAN)
        info.text = "started";
    else if (f.code == STET_OCCURRENCE_WAITS)
        info.text = stet__arena_printf(&l->arena, "waits for the end of %s",
                                       info.run != NULL ? info.run : "a run");
    else
        info.text = look_skip(l, &f, info.run);
    if (l->is_out || info.text == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    return fn(arg, &info);
}

int
stet_schedule_history(stet_engine *e, const char *name, size_t limit, stet_occurrence_fn fn,
                      void *arg)
{
    look             l = { .e = e };
    look_items       items = { .arena = &l.arena, .end = &items.first };
    const look_item *all[STET_SCHEDULE_HISTORY_MAX + 1];
    size_t           n = 0;
    stet__sched      s;
    stet_bytes       key;
    int              err;

    if ((err = stet__alive(e, "stet_schedule_history")) != STET_OK ||
        (err = stet__name_check("schedule", name)) != STET_OK)
        return err;
    stet__arena_init(&l.arena, &e->p->alloc);
    if ((err = stet__sched_read(e, &l.arena, name, &s)) == STET_ENOTFOUND)
        err = stet__sched_no_such(e, name);
    if (err == STET_OK || err == STET_ECORRUPT) {
        key = stet__sched_log_key(&l.arena, name, 0);
        err = key.data == NULL
                  ? stet__fail(STET_ENOMEM, "out of memory")
                  : e->store->ops->values(e->store, STET__SPACE_BASE_SCHED_LOG,
                                          (stet_bytes){ key.data, strlen(name) + 1 }, NULL,
                                          STET_SCHEDULE_HISTORY_MAX + 1, look_on_value, &items);
    }
    for (const look_item *i = items.first; i != NULL && n <= STET_SCHEDULE_HISTORY_MAX; i = i->next)
        all[n++] = i;
    limit = limit > 0 ? limit : LOOK_PAGE;
    for (; err == STET_OK && n > 0 && limit > 0; limit--)
        err = look_tell_occurrence(&l, all[--n], fn, arg);
    stet__arena_free(&l.arena);
    return err;
}
