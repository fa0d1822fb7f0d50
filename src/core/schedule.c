/* Schedules: what is due, what was missed, what the policies say; see schedule.h. */
#include "core/schedule.h"

#include <stet/sys/store.h>

#include <string.h>

stet__sched_kind
stet__sched_kind_of(const stet__fact *s)
{
    if (s->every_ms != 0)
        return STET__SCHED_EVERY;
    if (s->at_ms != 0)
        return STET__SCHED_AT;
    return s->flags & STET__SCHED_FUNCTION ? STET__SCHED_USER : STET__SCHED_CRON;
}

bool
stet__sched_is_sound(const stet__fact *s)
{
    int kinds = (s->cron.len > 0) + (s->every_ms > 0) + (s->at_ms > 0);

    return s->kind == STET__FACT_SCHEDULE && s->name.len > 0 && kinds == 1 && s->every_ms >= 0 &&
           s->at_ms >= 0 && s->until_ms >= 0 && s->look_ms >= 0 &&
           (s->until_ms == 0 || s->until_ms > s->planned_ms) &&
           (s->waiting_ms == 0 || (s->flags & STET__SCHED_RUNNING)) &&
           s->overlap >= STET_OVERLAP_SKIP && s->overlap <= STET_OVERLAP_CANCEL &&
           s->missed >= STET_MISSED_ONCE && s->missed <= STET_MISSED_ALL &&
           s->missed_max >= 0 && s->missed_max <= STET_SCHEDULE_MISSED_MAX;
}

static bool
sched_equal(stet_bytes a, stet_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool
stet__sched_same_time(const stet__fact *a, const stet__fact *b)
{
    const int64_t kind = STET__SCHED_FUNCTION | STET__SCHED_FROM_COMPLETION;

    return sched_equal(a->cron, b->cron) && sched_equal(a->zone, b->zone) &&
           a->every_ms == b->every_ms && a->after_ms == b->after_ms &&
           (a->after_ms != 0 || a->at_ms == b->at_ms) && (a->flags & kind) == (b->flags & kind);
}

bool
stet__sched_same(const stet__fact *a, const stet__fact *b)
{
    return stet__sched_same_time(a, b) && sched_equal(a->name, b->name) &&
           sched_equal(a->key, b->key) && sched_equal(a->group, b->group) &&
           sched_equal(a->value, b->value) && a->priority == b->priority &&
           a->deadline_ms == b->deadline_ms && a->overlap == b->overlap &&
           a->missed == b->missed && a->missed_max == b->missed_max && a->grace_ms == b->grace_ms;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* The first one after `after_ms`, which is one itself; STET_NEVER: there is none. Not of intervals,
 * which are counted (sched_due_every). */
static int
sched_next(const stet__fact *s, const stet__sched_now *now, int64_t after_ms, int64_t *next_ms)
{
    int err;

    if (stet__sched_kind_of(s) == STET__SCHED_AT) {
        *next_ms = STET_NEVER;
        return STET_OK;
    }
    if ((err = now->next(now->arg, next_ms, after_ms)) != STET_END)
        return err;
    *next_ms = STET_NEVER;
    return STET_OK;
}

static bool
sched_is_told(const stet__fact *s, const stet__sched_now *now)
{
    return now->next != NULL || stet__sched_kind_of(s) == STET__SCHED_EVERY ||
           stet__sched_kind_of(s) == STET__SCHED_AT;
}

/* What is due, but for the last `keep` of it. */
typedef struct sched_due {
    int64_t count;    /* how many those are; 0: none */
    int64_t until_ms; /* the last of them */
    int64_t next_ms;  /* the first that is left; count 0: the one after the first that is due */
} sched_due;

/* Counted from the end of a run, one time is planned and no other: while nothing ended there was
 * nothing to miss. If that one is skipped, what comes next is counted from now. */
static void
sched_due_from_end(const stet__fact *s, int64_t now_ms, int64_t keep, sched_due *due)
{
    due->count = keep == 0;
    due->until_ms = s->until_ms;
    due->next_ms = now_ms + s->every_ms;
}

static void
sched_due_every(const stet__fact *s, int64_t now_ms, int64_t keep, sched_due *due)
{
    int64_t n = (now_ms - s->until_ms) / s->every_ms + 1;

    due->count = n > keep ? n - keep : 0;
    due->until_ms = s->until_ms + (due->count - 1) * s->every_ms;
    due->next_ms = due->until_ms + s->every_ms;
    if (due->count == 0)
        due->next_ms = s->until_ms + s->every_ms;
}

/* In one pass, with the last `keep` + 1 in a ring: a function that gives another answer the second
 * time does not get what was skipped and what comes next apart. */
static int
sched_due_find(const stet__fact *s, const stet__sched_now *now, int64_t keep, sched_due *due)
{
    int64_t ring[STET_SCHEDULE_MISSED_MAX + 2], size = keep + 2, n = 0, at_ms = s->until_ms;
    int64_t most = keep + (stet__sched_kind_of(s) == STET__SCHED_USER ? STET__SCHED_FUNCTION_MAX
                                                                      : STET__SCHED_COUNT_MAX);
    int     err;

    if (s->flags & STET__SCHED_FROM_COMPLETION) {
        sched_due_from_end(s, now->now_ms, keep, due);
        return STET_OK;
    }
    if (stet__sched_kind_of(s) == STET__SCHED_EVERY) {
        sched_due_every(s, now->now_ms, keep, due);
        return STET_OK;
    }
    for (; at_ms <= now->now_ms && n < most; n++) {
        ring[n % size] = at_ms;
        if ((err = sched_next(s, now, at_ms, &at_ms)) != STET_OK)
            return err;
    }
    ring[n % size] = at_ms;
    due->count = n > keep ? n - keep : 0;
    due->until_ms = due->count > 0 ? ring[(due->count - 1) % size] : 0;
    due->next_ms = ring[(due->count > 0 ? due->count : 1) % size];
    return STET_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void
sched_stand(stet__fact *s)
{
    s->look_ms = s->flags & STET__SCHED_PAUSED ? STET_NEVER : s->until_ms;
}

/* Does something wait for the end of its run? */
static bool
sched_waits(const stet__fact *s)
{
    return (s->flags & STET__SCHED_RUNNING) &&
           (s->waiting_ms != 0 || (s->flags & STET__SCHED_FROM_COMPLETION));
}

int
stet__sched_plan(stet__fact *s, const stet__sched_now *now)
{
    int64_t from_ms = now->now_ms > s->planned_ms ? now->now_ms : s->planned_ms;
    int     err = STET_OK;

    switch (stet__sched_kind_of(s)) {
    case STET__SCHED_AT: s->until_ms = s->at_ms > s->planned_ms ? s->at_ms : STET_NEVER; break;
    case STET__SCHED_EVERY:
        s->until_ms = from_ms + s->every_ms;
        if ((s->flags & STET__SCHED_FROM_COMPLETION) && (s->flags & STET__SCHED_RUNNING))
            s->until_ms = STET_NEVER;
        break;
    default: /* cron, function */
        s->until_ms = 0;
        if (now->next != NULL)
            err = sched_next(s, now, from_ms, &s->until_ms);
        break;
    }
    sched_stand(s);
    /* Not known here. Or something waits for the last run, which may be over: who was asked to look
     * at that, at a time that is not the schedule's any more, may not have come yet. */
    if ((s->until_ms == 0 || (sched_waits(s) && !STET__MUTANT(sched_unlooked))) &&
        !(s->flags & STET__SCHED_PAUSED))
        s->look_ms = now->now_ms;
    return err;
}

static void
sched_skip(stet__fact *s, stet__sched_act *act, const sched_due *due, stet_skip why)
{
    act->what = STET__SCHED_SKIP;
    act->planned_ms = s->until_ms;
    act->until_ms = due->until_ms;
    act->count = due->count;
    act->skip = why;
    s->planned_ms = due->until_ms;
    s->until_ms = due->next_ms;
    s->skipped += due->count;
    sched_stand(s);
}

static void
sched_fire(stet__fact *s, stet__sched_act *act, int64_t planned_ms)
{
    act->what = STET__SCHED_FIRE;
    act->planned_ms = act->until_ms = planned_ms;
    act->count = 1;
    s->fired++;
    s->flags |= STET__SCHED_RUNNING;
    if (s->flags & STET__SCHED_FROM_COMPLETION)
        s->until_ms = STET_NEVER;
    sched_stand(s);
}

/* The one that is due, and in time. */
static void
sched_occur(stet__fact *s, stet__sched_act *act, const sched_due *due)
{
    int64_t   planned_ms = s->until_ms;
    bool      is_running = (s->flags & STET__SCHED_RUNNING) != 0;
    sched_due one = { 1, planned_ms, due->next_ms };

    if (is_running && s->overlap == STET_OVERLAP_SKIP) {
        sched_skip(s, act, &one, STET_SKIP_OVERLAP);
        return;
    }
    if (is_running && s->overlap == STET_OVERLAP_QUEUE && s->waiting_ms != 0) {
        sched_skip(s, act, &one, STET_SKIP_QUEUED);
        return;
    }
    s->planned_ms = planned_ms;
    s->until_ms = due->next_ms;
    if (is_running && s->overlap == STET_OVERLAP_QUEUE) {
        act->what = STET__SCHED_WAIT;
        act->planned_ms = act->until_ms = s->waiting_ms = planned_ms;
        act->count = 1;
        sched_stand(s);
        return;
    }
    act->cancels = is_running && s->overlap == STET_OVERLAP_CANCEL;
    sched_fire(s, act, planned_ms);
}

/* Something is due. */
static int
sched_fall_due(stet__fact *s, const stet__sched_now *now, stet__sched_act *act)
{
    int64_t   keep = (s->missed == STET_MISSED_ALL ? s->missed_max : 1) +
                   STET__MUTANT(sched_too_many);
    sched_due due = { 0, 0, 0 };
    int       err = sched_due_find(s, now, keep, &due);

    if (err != STET_OK)
        return err;
    if (due.count > 0)
        sched_skip(s, act, &due,
                   s->missed == STET_MISSED_ALL ? STET_SKIP_LIMIT : STET_SKIP_MISSED);
    else if (s->missed == STET_MISSED_SKIP && now->now_ms - s->until_ms > s->grace_ms) {
        sched_due late = { 1, s->until_ms, due.next_ms };

        sched_skip(s, act, &late, STET_SKIP_LATE);
    } else
        sched_occur(s, act, &due);
    return STET_OK;
}

/* The last run has ended. */
static void
sched_ended(stet__fact *s, const stet__sched_now *now)
{
    int64_t ended_ms = now->ended_ms > 0 ? now->ended_ms : now->now_ms;

    s->flags &= ~(int64_t)STET__SCHED_RUNNING;
    if ((s->flags & STET__SCHED_FROM_COMPLETION) && s->until_ms == STET_NEVER) {
        s->until_ms = (ended_ms > s->planned_ms ? ended_ms : s->planned_ms) + s->every_ms;
        sched_stand(s);
    }
}

int
stet__sched_step(stet__fact *s, const stet__sched_now *now, stet__sched_act *act)
{
    stet__fact before = *s;
    int        err = STET_OK;

    memset(act, 0, sizeof *act);
    if ((s->flags & STET__SCHED_PAUSED) && !STET__MUTANT(sched_in_pause))
        return STET_OK;
    if ((s->flags & STET__SCHED_RUNNING) && !now->is_open) {
        sched_ended(s, now);
        act->what = STET__SCHED_CHANGED;
    }
    if (s->waiting_ms != 0 && !(s->flags & STET__SCHED_RUNNING)) {
        int64_t waited_ms = s->waiting_ms;

        s->waiting_ms = 0;
        act->has_waited = true;
        sched_fire(s, act, waited_ms);
        return STET_OK;
    }
    if (!sched_is_told(s, now))
        return STET_OK;
    if (s->until_ms == 0) {
        err = stet__sched_plan(s, now);
        act->what = STET__SCHED_CHANGED;
    }
    if (err == STET_OK && s->until_ms <= now->now_ms)
        err = sched_fall_due(s, now, act);
    if (err == STET_OK && s->look_ms != s->until_ms) { /* after a failure it stood elsewhere */
        sched_stand(s);
        act->what = act->what == STET__SCHED_NOTHING ? STET__SCHED_CHANGED : act->what;
    }
    if (err != STET_OK)
        *s = before;
    return err;
}

int
stet__sched_resume(stet__fact *s, const stet__sched_now *now, stet__sched_act *act)
{
    sched_due  due = { 0, 0, 0 };
    stet__fact before = *s;
    int        err = STET_OK;

    memset(act, 0, sizeof *act);
    act->what = STET__SCHED_CHANGED;
    s->flags &= ~(int64_t)STET__SCHED_PAUSED;
    if (s->until_ms != 0 && s->until_ms <= now->now_ms && sched_is_told(s, now) &&
        !STET__MUTANT(sched_pause_untold)) {
        if ((err = sched_due_find(s, now, 0, &due)) == STET_OK) {
            sched_skip(s, act, &due, STET_SKIP_PAUSED);
            if (s->until_ms <= now->now_ms) /* more than are counted */
                err = stet__sched_plan(s, now);
        }
    } else if (s->until_ms == 0 || s->until_ms <= now->now_ms)
        err = stet__sched_plan(s, now);
    sched_stand(s);
    /* Not known here, or something was to be done when the last run ended: let somebody look. */
    if (s->until_ms == 0 || (s->flags & STET__SCHED_RUNNING))
        s->look_ms = now->now_ms;
    if (err != STET_OK)
        *s = before;
    return err;
}
