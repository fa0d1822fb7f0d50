/* Schedules for callers: make, change, pause, resume, remove. Everything a caller can get wrong,
 * then one unit, which is built again when somebody else was faster. */
#include <stdio.h>
#include <string.h>

#include "engine/schedule.h"

#define EDIT_TRIES_MAX  100
#define EDIT_BY_MAX     256u
#define EDIT_LAST_MS    INT64_C(253402300799999) /* of the year 9999 */
#define EDIT_MISSED     10
#define EDIT_GRACE_MS   60000
#define EDIT_LOG_MAX    100000u

static const char *const overlap_names[] = {
    [STET_OVERLAP_DEFAULT] = "default", [STET_OVERLAP_SKIP] = "skip",
    [STET_OVERLAP_ALLOW] = "allow",     [STET_OVERLAP_QUEUE] = "queue",
    [STET_OVERLAP_CANCEL] = "cancel",
};
static const char *const missed_names[] = {
    [STET_MISSED_DEFAULT] = "default",
    [STET_MISSED_ONCE] = "once",
    [STET_MISSED_SKIP] = "skip",
    [STET_MISSED_ALL] = "all",
};

void
stet_schedule_options_init(stet_schedule_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

const char *
stet_overlap_name(stet_overlap overlap)
{
    return (unsigned)overlap <= STET_OVERLAP_CANCEL ? overlap_names[overlap] : NULL;
}

const char *
stet_missed_name(stet_missed missed)
{
    return (unsigned)missed <= STET_MISSED_ALL ? missed_names[missed] : NULL;
}

stet_overlap
stet_overlap_parse(const char *name)
{
    for (int i = STET_OVERLAP_SKIP; name != NULL && i <= STET_OVERLAP_CANCEL; i++)
        if (strcmp(name, overlap_names[i]) == 0)
            return (stet_overlap)i;
    return STET_OVERLAP_DEFAULT;
}

stet_missed
stet_missed_parse(const char *name)
{
    for (int i = STET_MISSED_ONCE; name != NULL && i <= STET_MISSED_ALL; i++)
        if (strcmp(name, missed_names[i]) == 0)
            return (stet_missed)i;
    return STET_MISSED_DEFAULT;
}

int
stet_register_schedule(stet_engine *e, const char *function, stet_schedule_fn fn, void *arg)
{
    stet__sched_function *f;
    int                   err;

    if ((err = stet__alive(e, "stet_register_schedule")) != STET_OK ||
        (err = stet__name_check("function", function)) != STET_OK)
        return err;
    if (fn == NULL)
        return stet__fail(STET_EINVAL, "schedule function %s: there is none", function);
    if (e->life != STET__LIFE_OPEN)
        return stet__fail(STET_ESTATE,
                          "schedule function %s: register everything before the engine is started",
                          function);
    if (stet__sched_function_find(e, function) != NULL)
        return stet__fail(STET_EEXISTS, "schedule function %s is registered already", function);
    if ((f = stet__get0(&e->p->alloc, sizeof *f)) == NULL ||
        (f->name = stet__strdup(&e->p->alloc, function)) == NULL) {
        stet__free(&e->p->alloc, f);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    f->fn = fn;
    f->arg = arg;
    f->next = e->sched_functions;
    e->sched_functions = f;
    return STET_OK;
}

/* ---- what a caller gives --------------------------------------------------------------------- */

/* A text goes before a number. */
static int
edit_span(const char *name, const char *what, const char *text, int64_t ms, int64_t *out)
{
    int err;

    if (text != NULL && (err = stet_duration_parse(&ms, text)) != STET_OK)
        return stet__fail(err, "schedule %s: %s: %s", name, what, stet_last_error());
    if (ms < 0)
        return stet__fail(STET_EDURATION, "schedule %s: %s cannot be negative", name, what);
    *out = ms;
    return STET_OK;
}

static int
edit_kinds(const char *name, const stet_schedule_options *o, int *n)
{
    const char *given[6] = { NULL };

    *n = 0;
    if (o->cron != NULL)
        given[(*n)++] = "cron";
    if (o->every != NULL || o->every_ms != 0)
        given[(*n)++] = "every";
    if (o->at_ms != 0)
        given[(*n)++] = "at";
    if (o->after != NULL || o->after_ms != 0)
        given[(*n)++] = "after";
    if (o->function != NULL)
        given[(*n)++] = "function";
    if (*n > 1)
        return stet__fail(STET_EINVAL,
                          "schedule %s has both %s and %s; give exactly one of cron, every, at, "
                          "after, function",
                          name, given[0], given[1]);
    if (o->zone != NULL && o->cron == NULL)
        return stet__fail(STET_EINVAL, "schedule %s: a time zone goes with cron only", name);
    if (o->from_completion && o->every == NULL && o->every_ms == 0)
        return stet__fail(STET_EINVAL, "schedule %s: from_completion goes with every only", name);
    return STET_OK;
}

static int
edit_time(const char *name, stet__fact *f, const stet_schedule_options *o, int64_t now_ms)
{
    int err;

    f->cron = f->zone = (stet_bytes){ NULL, 0 };
    f->every_ms = f->at_ms = f->after_ms = 0;
    f->flags &= ~(int64_t)(STET__SCHED_FUNCTION | STET__SCHED_FROM_COMPLETION);
    if (o->cron != NULL) {
        if ((err = stet_cron_parse(NULL, o->cron, o->zone)) != STET_OK)
            return stet__fail(err, "schedule %s: %s", name, stet_last_error());
        f->cron = stet_text(o->cron);
        if (o->zone != NULL && o->zone[0] != '\0')
            f->zone = stet_text(o->zone);
        return STET_OK;
    }
    if (o->function != NULL) {
        if ((err = stet__name_check("function", o->function)) != STET_OK)
            return err;
        f->cron = stet_text(o->function);
        f->flags |= STET__SCHED_FUNCTION;
        return STET_OK;
    }
    if (o->at_ms != 0) {
        f->at_ms = o->at_ms;
    } else if (o->after != NULL || o->after_ms != 0) {
        if ((err = edit_span(name, "after", o->after, o->after_ms, &f->after_ms)) != STET_OK)
            return err;
        f->after_ms = f->after_ms > 0 ? f->after_ms : 1;
        f->at_ms = stet__time_add(now_ms, f->after_ms);
    } else {
        if ((err = edit_span(name, "every", o->every, o->every_ms, &f->every_ms)) != STET_OK)
            return err;
        if (f->every_ms < STET_SCHEDULE_EVERY_MIN_MS || f->every_ms > STET_SCHEDULE_EVERY_MAX_MS)
            return stet__fail(STET_EINVAL,
                              "schedule %s: every %lld ms; an interval is 100 ms to 3650 days", name,
                              (long long)f->every_ms);
        if (o->from_completion)
            f->flags |= STET__SCHED_FROM_COMPLETION;
        return STET_OK;
    }
    if (f->at_ms < 0 || f->at_ms > EDIT_LAST_MS)
        return stet__fail(STET_EINVAL, "schedule %s: a time outside the years 1970 to 9999", name);
    return STET_OK;
}

static int
edit_policies(const char *name, stet__fact *f, const stet_schedule_options *o)
{
    int64_t grace_ms;
    int     err;

    if (stet_overlap_name(o->overlap) == NULL)
        return stet__fail(STET_EINVAL,
                          "schedule %s: %d is no overlap policy; there are skip, allow, queue, "
                          "cancel",
                          name, (int)o->overlap);
    if (stet_missed_name(o->missed) == NULL)
        return stet__fail(
            STET_EINVAL,
            "schedule %s: %d is no policy for missed firings; there are once, skip, all", name,
            (int)o->missed);
    if (o->overlap != STET_OVERLAP_DEFAULT || f->overlap == 0)
        f->overlap = o->overlap != STET_OVERLAP_DEFAULT ? o->overlap : STET_OVERLAP_SKIP;
    if (o->missed != STET_MISSED_DEFAULT || f->missed == 0) {
        f->missed = o->missed != STET_MISSED_DEFAULT ? o->missed : STET_MISSED_ONCE;
        f->missed_max = f->missed == STET_MISSED_ALL ? EDIT_MISSED : 0;
        f->grace_ms = f->missed == STET_MISSED_SKIP ? EDIT_GRACE_MS : 0;
    }
    if (o->missed_max != 0 && f->missed != STET_MISSED_ALL)
        return stet__fail(STET_EINVAL,
                          "schedule %s: missed_max goes with the policy all for missed firings "
                          "only",
                          name);
    if ((o->grace != NULL || o->grace_ms != 0) && f->missed != STET_MISSED_SKIP)
        return stet__fail(
            STET_EINVAL,
            "schedule %s: grace goes with the policy skip for missed firings only", name);
    if (o->missed_max < 0 || o->missed_max > STET_SCHEDULE_MISSED_MAX)
        return stet__fail(STET_EINVAL, "schedule %s: missed_max is %d; it is 1 to %d", name,
                          o->missed_max, STET_SCHEDULE_MISSED_MAX);
    if (o->missed_max != 0)
        f->missed_max = o->missed_max;
    if ((err = edit_span(name, "grace", o->grace, o->grace_ms, &grace_ms)) != STET_OK)
        return err;
    if (o->grace != NULL || o->grace_ms != 0)
        f->grace_ms = grace_ms;
    return STET_OK;
}

/* Of the runs; checked as if one were started now. */
static int
edit_runs(stet_engine *e, stet__arena *arena, const char *name, stet__fact *f,
          const stet_schedule_options *o)
{
    stet_start_options start = { .size = sizeof start };
    stet__start        ignored;
    const char        *handler, *key = NULL, *group = NULL;
    int                err;

    if ((err = edit_span(name, "timeout", o->timeout, o->timeout_ms, &start.timeout_ms)) != STET_OK)
        return err;
    if (o->key != NULL)
        f->key = stet_text(o->key);
    if (o->group != NULL)
        f->group = stet_text(o->group);
    if (o->priority != 0)
        f->priority = o->priority;
    if (start.timeout_ms != 0)
        f->deadline_ms = start.timeout_ms;
    handler = stet__arena_copy(arena, f->name.data, f->name.len);
    if (handler == NULL ||
        (f->key.data != NULL &&
         (key = stet__arena_copy(arena, f->key.data, f->key.len)) == NULL) ||
        (f->group.data != NULL &&
         (group = stet__arena_copy(arena, f->group.data, f->group.len)) == NULL))
        return stet__fail(STET_ENOMEM, "out of memory");
    start.key = key;
    start.group = group;
    start.timeout_ms = f->deadline_ms;
    if ((err = stet__start_check(e, arena, &ignored, handler, f->value, &start)) != STET_OK)
        return stet__fail(err, "schedule %s: %s", name, stet_last_error());
    return STET_OK;
}

/* Into a record that is empty or that of a schedule; what is not given stays. */
static int
edit_apply(stet_engine *e, stet__arena *arena, const char *name, stet__fact *f,
           const stet_schedule_options *o, int64_t now_ms)
{
    int n, err;

    if ((err = edit_kinds(name, o, &n)) != STET_OK)
        return err;
    if (n == 0 && f->cron.data == NULL && f->every_ms == 0 && f->at_ms == 0)
        return stet__fail(STET_EINVAL,
                          "schedule %s has no time: give one of cron, every, at, after, function",
                          name);
    if ((n > 0 && (err = edit_time(name, f, o, now_ms)) != STET_OK) ||
        (err = edit_policies(name, f, o)) != STET_OK)
        return err;
    return edit_runs(e, arena, name, f, o);
}

/* ---- one try --------------------------------------------------------------------------------- */

typedef struct edit {
    stet_engine                 *e;
    const char                  *name, *handler, *by;
    const stet_bytes            *input;
    const stet_schedule_options *options;
    stet_schedule_change         change;
} edit;

/* Builds the unit: STET_OK; STET_END, there is nothing to do. */
typedef int (*edit_fn)(edit *x, stet__work *w, stet__sched *s, int64_t now_ms);

static int
edit_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory");
}

static int
edit_begin(stet_engine *e, const char *call, const char *name)
{
    int err;

    if ((err = stet__alive(e, call)) != STET_OK ||
        (err = stet__not_in_handler(e, call, "the same inside a step")) != STET_OK)
        return err;
    return stet__name_check("schedule", name);
}

static int
edit_commit(edit *x, bool must_exist, bool may_be_damaged, edit_fn build)
{
    int err = STET_ECONFLICT;

    for (int i = 0; i < EDIT_TRIES_MAX && err == STET_ECONFLICT; i++) {
        stet__work *w = stet__work_new(x->e, NULL, NULL);
        stet__sched s;

        if (w == NULL)
            return STET_ENOMEM;
        err = stet__sched_read(x->e, &w->arena, x->name, &s);
        if (err == STET_ENOTFOUND)
            err = must_exist ? stet__sched_no_such(x->e, x->name) : STET_OK;
        else if (err == STET_ECORRUPT && may_be_damaged)
            err = STET_OK;
        if (err == STET_OK)
            err = build(x, w, &s, stet__store_now(x->e));
        if (err != STET_OK) {
            stet__work_free(w);
            return err == STET_END ? STET_OK : err;
        }
        err = stet__commit_sync(x->e, w, NULL);
    }
    return err == STET_ECONFLICT
               ? stet__fail(STET_EBUSY,
                            "schedule %s changed all the time; nothing was written, try again",
                            x->name)
               : err;
}

/* The first time of a schedule that is new, or whose time is. */
static int
edit_plan(edit *x, const stet__sched *s, stet__fact *f, int64_t now_ms)
{
    stet__sched       planned = { s->name, s->id, s->edition, *f };
    stet__sched_clock clock;
    stet__sched_now   now = { .now_ms = now_ms };
    int               err = stet__sched_clock_open(x->e, &clock, &planned, &now);

    if (err == STET_OK)
        err = stet__sched_plan(f, &now);
    stet__sched_clock_close(&clock);
    f->text = (stet_bytes){ NULL, 0 };
    return err == STET_OK ? STET_OK
                          : stet__fail(err, "schedule %s: %s", s->name, stet_last_error());
}

/* ---- ensure and update ----------------------------------------------------------------------- */

/* What a caller gave, into the record of the schedule that is there. */
static void
edit_merge(stet__fact *f, const stet__fact *want)
{
    const int64_t own = STET__SCHED_PAUSED | STET__SCHED_RUNNING;

    if (!stet__sched_same_time(f, want)) {
        f->cron = want->cron;
        f->zone = want->zone;
        f->every_ms = want->every_ms;
        f->at_ms = want->at_ms;
        f->after_ms = want->after_ms;
        f->flags = (f->flags & own) | (want->flags & ~own);
    }
    f->name = want->name;
    f->key = want->key;
    f->group = want->group;
    f->value = want->value;
    f->priority = want->priority;
    f->deadline_ms = want->deadline_ms;
    f->overlap = want->overlap;
    f->missed = want->missed;
    f->missed_max = want->missed_max;
    f->grace_ms = want->grace_ms;
}

/* Its time is changed: what was due by the old one was skipped in a pause, or missed, if nobody could fire it until now.
 * One time that was missed and is set right to an earlier one is late, and is no other. */
static int
edit_tell_due(edit *x, stet__work *w, const stet__sched *s, stet__fact *f, int64_t now_ms)
{
    stet__fact        old = s->f;
    stet__sched_clock clock;
    stet__sched_now   now = { .now_ms = now_ms };
    stet__sched_act   act;
    bool              is_paused = (old.flags & STET__SCHED_PAUSED) != 0;
    int               err;

    if (!is_paused && f->at_ms != 0 && f->at_ms <= old.until_ms)
        return STET_OK;
    if ((err = stet__sched_clock_open(x->e, &clock, s, &now)) == STET_OK)
        err = stet__sched_resume(&old, &now, &act);
    stet__sched_clock_close(&clock);
    if (err != STET_OK || act.what != STET__SCHED_SKIP)
        return STET_OK; /* it has no times any more that could be told */
    act.skip = is_paused ? STET_SKIP_PAUSED : STET_SKIP_CHANGED;
    f->planned_ms = old.planned_ms;
    f->skipped = old.skipped;
    return stet__sched_log(x->e, w, s, f, &act, NULL, now_ms);
}

static int
edit_put(edit *x, stet__work *w, const stet__sched *s, const stet__fact *want, int64_t now_ms)
{
    stet__fact f = s->f;
    int        err;

    if (s->edition > 0 && stet__sched_same(&s->f, want)) {
        x->change = STET_SCHEDULE_UNCHANGED;
        return STET_END;
    }
    edit_merge(&f, want);
    if (s->edition == 0) {
        f.kind = STET__FACT_SCHEDULE;
        f.time_ms = now_ms;
    }
    f.updated_ms = now_ms;
    if ((s->edition == 0 || !stet__sched_same_time(&s->f, want)) &&
        ((err = edit_tell_due(x, w, s, &f, now_ms)) != STET_OK ||
         (err = edit_plan(x, s, &f, now_ms)) != STET_OK))
        return err;
    x->change = s->edition == 0 ? STET_SCHEDULE_CREATED : STET_SCHEDULE_UPDATED;
    return stet__sched_write(w, s, &f) ? STET_OK : edit_no_memory();
}

static int
edit_ensure(edit *x, stet__work *w, stet__sched *s, int64_t now_ms)
{
    stet__fact want = { .kind = STET__FACT_SCHEDULE };
    int        err;

    want.name = stet_text(x->handler);
    want.value = x->input->data != NULL ? *x->input : stet_text("");
    if ((err = edit_apply(x->e, &w->arena, x->name, &want, x->options, now_ms)) != STET_OK)
        return err;
    if (s->edition == 0)
        s->id = stet__new_id(x->e);
    return edit_put(x, w, s, &want, now_ms);
}

static int
edit_update(edit *x, stet__work *w, stet__sched *s, int64_t now_ms)
{
    static const stet_schedule_options none = { .size = sizeof none };
    stet__fact                         want = s->f;
    int                                err;

    if (x->input != NULL)
        want.value = x->input->data != NULL ? *x->input : stet_text("");
    if ((err = edit_apply(x->e, &w->arena, x->name, &want,
                          x->options != NULL ? x->options : &none, now_ms)) != STET_OK)
        return err;
    return edit_put(x, w, s, &want, now_ms);
}

static int
edit_size(const char *name, const stet_schedule_options *o)
{
    if (o->size == sizeof *o)
        return STET_OK;
    return stet__fail(STET_EINVAL,
                      "schedule %s: stet_schedule_options.size is %zu; use STET_SCHEDULE(…) or "
                      "stet_schedule_options_init()",
                      name, o->size);
}

int
stet_schedule_ensure(stet_engine *e, stet_schedule_change *change, const char *name,
                     const char *handler, stet_bytes input, const stet_schedule_options *options)
{
    edit x = { .e = e, .name = name, .handler = handler, .input = &input, .options = options };
    int  err = edit_begin(e, "stet_schedule_ensure", name);

    if (err != STET_OK)
        return err;
    if (options == NULL)
        return stet__fail(STET_EINVAL,
                          "schedule %s has no time: give one of cron, every, at, after, function",
                          name);
    if (handler == NULL)
        return stet__fail(STET_ENAME, "schedule %s has no handler", name);
    if ((err = edit_size(name, options)) != STET_OK ||
        (err = edit_commit(&x, false, false, edit_ensure)) != STET_OK)
        return err;
    if (change != NULL)
        *change = x.change;
    return STET_OK;
}

int
stet_schedule_update(stet_engine *e, stet_schedule_change *change, const char *name,
                     const stet_bytes *input, const stet_schedule_options *options)
{
    edit x = { .e = e, .name = name, .input = input, .options = options };
    int  err = edit_begin(e, "stet_schedule_update", name);

    if (err != STET_OK || (options != NULL && (err = edit_size(name, options)) != STET_OK) ||
        (err = edit_commit(&x, true, false, edit_update)) != STET_OK)
        return err;
    if (change != NULL)
        *change = x.change;
    return STET_OK;
}

/* ---- pause, resume, remove ------------------------------------------------------------------- */

static int
edit_pause(edit *x, stet__work *w, stet__sched *s, int64_t now_ms)
{
    stet__fact f = s->f;

    if (f.flags & STET__SCHED_PAUSED)
        return STET_END;
    f.flags |= STET__SCHED_PAUSED;
    f.look_ms = STET_NEVER;
    f.updated_ms = now_ms;
    f.who = x->by != NULL ? stet_text(x->by) : (stet_bytes){ NULL, 0 };
    return stet__sched_write(w, s, &f) ? STET_OK : edit_no_memory();
}

int
stet_schedule_pause(stet_engine *e, const char *name, const char *by)
{
    edit x = { .e = e, .name = name, .by = by };
    int  err = edit_begin(e, "stet_schedule_pause", name);

    if (err != STET_OK)
        return err;
    if (by != NULL && strlen(by) > EDIT_BY_MAX)
        return stet__fail(STET_ETOOBIG, "schedule %s: who has at most %u bytes", name, EDIT_BY_MAX);
    return edit_commit(&x, true, false, edit_pause);
}

static int
edit_resume(edit *x, stet__work *w, stet__sched *s, int64_t now_ms)
{
    stet__fact        f = s->f;
    stet__sched_clock clock;
    stet__sched_now   now = { .now_ms = now_ms };
    stet__sched_act   act;
    int               err;

    if (!(f.flags & STET__SCHED_PAUSED))
        return STET_END;
    if ((err = stet__sched_clock_open(x->e, &clock, s, &now)) == STET_OK)
        err = stet__sched_resume(&f, &now, &act);
    stet__sched_clock_close(&clock);
    if (err != STET_OK)
        return stet__fail(err, "schedule %s: %s", s->name, stet_last_error());
    f.who = f.text = (stet_bytes){ NULL, 0 };
    f.updated_ms = now_ms;
    if (act.what == STET__SCHED_SKIP &&
        (err = stet__sched_log(x->e, w, s, &f, &act, NULL, now_ms)) != STET_OK)
        return err;
    return stet__sched_write(w, s, &f) ? STET_OK : edit_no_memory();
}

int
stet_schedule_resume(stet_engine *e, const char *name)
{
    edit x = { .e = e, .name = name };
    int  err = edit_begin(e, "stet_schedule_resume", name);

    return err != STET_OK ? err : edit_commit(&x, true, false, edit_resume);
}

static int
edit_on_log(void *arg, stet_bytes key, const stet_value *value)
{
    (void)value;
    return stet__sched_unask(arg, STET__SPACE_BASE_SCHED_LOG, key) ? STET_OK : STET_ENOMEM;
}

static int
edit_remove(edit *x, stet__work *w, stet__sched *s, int64_t now_ms)
{
    stet_store *store = x->e->store;
    const char *space;
    stet_bytes  key = stet__sched_log_key(&w->arena, s->name, 0), index;
    int         err;

    (void)now_ms;
    if (key.data == NULL || !stet__sched_is_as_read(w, s) ||
        !stet__sched_unask(w, STET__SPACE_BASE_SCHED, stet_text(s->name)))
        return edit_no_memory();
    /* Of one that is damaged it is not known where it stands; a look removes the entry. */
    if (stet__sched_is_sound(&s->f) && s->f.look_ms != STET_NEVER &&
        ((space = stet__sched_index(&w->arena, s, &s->f, &index)) == NULL ||
         !stet__sched_unask(w, space, index)))
        return edit_no_memory();
    err = store->ops->values(store, STET__SPACE_BASE_SCHED_LOG,
                             (stet_bytes){ key.data, strlen(s->name) + 1 }, NULL, EDIT_LOG_MAX,
                             edit_on_log, w);
    return err == STET_ENOMEM ? edit_no_memory() : err;
}

int
stet_schedule_remove(stet_engine *e, const char *name)
{
    edit x = { .e = e, .name = name };
    int  err = edit_begin(e, "stet_schedule_remove", name);

    return err != STET_OK ? err : edit_commit(&x, true, true, edit_remove);
}
