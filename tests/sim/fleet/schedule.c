/* Schedules of a fleet: one seed in six has some.
 *
 * Every node ensures them when it comes up, as programs do, all of them at once. Operators pause,
 * resume, change and remove them, and ensure them again. When faults are over all of them go on for
 * a while, and one that is due is fired within seconds; then they are paused, or nothing would ever
 * come to rest. What became of their planned times is judged in planned.c. /
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/schedule.h"
#include "engine/engine.h"
#include "fleet.h"

#define SCHEDULE_ONE_IN     6
#define SCHEDULE_LATE_US    ((int64_t)10 * 1000000) /* due, and nobody has looked */
#define SCHEDULE_REPLACE_MS 5000
#define SCHEDULE_NONCE      ((uint64_t)1 << 40) /* no task has so high a number */

/* ---- drawing --------------------------------------------------------------------------------- */

static void
schedule_draw_every(fleet *w, stet_schedule_options *o)
{
    o->every_ms = 500 + (int64_t)fleet_draw(&w->planner, (uint64_t)w->plan.last_us / 4000);
}

static void
schedule_draw_time(fleet *w, fleet_schedule *s, stet_schedule_options *o)
{
    static const int minutes[] = { 1, 1, 2, 5 };

    switch (fleet_draw(&w->planner, 8)) {
    case 0:
        (void)snprintf(s->cron, sizeof s->cron, "*/%d * * * *",
                       minutes[fleet_draw(&w->planner, 4)]);
        o->cron = s->cron;
        break;
    case 1:
        o->after_ms = 1 + (int64_t)fleet_draw(&w->planner, (uint64_t)w->plan.last_us / 1000);
        break;
    case 2:
    case 3:
    case 4: o->from_completion = true; /* fall through */
    default: schedule_draw_every(w, o); break;
    }
}

static void
schedule_draw_policies(fleet *w, stet_schedule_options *o)
{
    o->overlap = (stet_overlap)(STET_OVERLAP_SKIP + fleet_draw(&w->planner, 4));
    o->missed = (stet_missed)(STET_MISSED_ONCE + fleet_draw(&w->planner, 3));
    o->missed_max = o->missed == STET_MISSED_ALL ? 1 + (int)fleet_draw(&w->planner, 4) : 0;
    o->grace_ms = o->missed == STET_MISSED_SKIP ? 1 + (int64_t)fleet_draw(&w->planner, 3000) : 0;
}

static bool
schedule_is_quick(const fleet *w, const fleet_order *order)
{
    fleet_program p;

    fleet_program_make(&p, order, false, w->ops_max);
    for (size_t i = 0; i < p.n; i++)
        if (p.ops[i].kind == FLEET_OP_SLEEP || p.ops[i].kind == FLEET_OP_FUTURES ||
            p.ops[i].kind == FLEET_OP_DEFER || p.ops[i].body[0].takes_ms > 0 ||
            p.ops[i].body[0].fails > 0)
            return false;
    return p.turns == 0 && p.fails == 0;
}

/* Many are over within the millisecond in which they begin, while others still look. */
static uint64_t
schedule_draw_seed(fleet *w, fleet_order order)
{
    bool wants_quick = fleet_draw(&w->planner, 2) == 0;

    order.seed = stet__rng_next(&w->planner);
    for (int i = 0; wants_quick && i < 12 && !schedule_is_quick(w, &order); i++)
        order.seed = stet__rng_next(&w->planner);
    return order.seed;
}

void
fleet_schedules_draw(fleet *w)
{
    if (fleet_draw(&w->planner, SCHEDULE_ONE_IN) != 0)
        return;
    w->n_schedules = 1 + (size_t)fleet_draw(&w->planner, FLEET_SCHEDULES_MAX);
    for (size_t i = 0; i < w->n_schedules; i++) {
        fleet_schedule *s = &w->schedules[i];

        (void)snprintf(s->name, sizeof s->name, "sched%zu", i);
        stet_schedule_options_init(&s->options);
        schedule_draw_time(w, s, &s->options);
        schedule_draw_policies(w, &s->options);
        if (fleet_draw(&w->planner, 6) == 0)
            s->options.timeout_ms = 1 + (int64_t)fleet_draw(&w->planner, 20000);
        s->order =
            (fleet_order){ .nonce = SCHEDULE_NONCE + i, .depth = FLEET_DEPTH_PLANNED, .floor = -1 };
        s->order.seed = schedule_draw_seed(w, s->order);
    }
}

void
fleet_schedules_free(fleet *w)
{
    for (size_t i = 0; i < w->n_schedules; i++)
        free(w->schedules[i].log);
}

/* ---- callers --------------------------------------------------------------------------------- */

static bool
schedule_is_passing(int code)
{
    stet_class class_ = stet_code_class(code);

    return class_ == STET_CLASS_RETRY || class_ == STET_CLASS_UNKNOWN ||
           class_ == STET_CLASS_FENCED || code == STET_EPOISONED;
}

/* is_done: the store knows of it. Else somebody else must have done it before, or undone it since:
 * `puts` and `dels` tell. */
static void
schedule_called(fleet *w, const fleet_schedule *s, const char *call, int err, bool is_done)
{
    if (err == STET_OK && !is_done)
        fleet_fail(w, NULL, "%s: %s was answered, and the store knows nothing of it", s->name,
                   call);
    if (err != STET_OK && err != STET_ENOTFOUND && !schedule_is_passing(err))
        fleet_fail(w, NULL, "%s: %s gives %s: %s", s->name, call, stet_code_name(err),
                   stet_last_error());
    w->stats.schedules += err == STET_OK;
}

static int
schedule_ensure(fleet *w, stet_engine *e, fleet_schedule *s)
{
    uint64_t             puts = s->puts;
    bool                 was_there = s->edition != 0;
    stet_schedule_change change = STET_SCHEDULE_UNCHANGED;
    char                 input[160];
    int                  err;

    (void)fleet_order_text(input, sizeof input, &s->order);
    err = stet_schedule_ensure(e, &change, s->name, "svc.run", stet_text(input), &s->options);
    schedule_called(w, s, "ensure", err,
                    change == STET_SCHEDULE_UNCHANGED ? was_there || s->puts > puts
                                                      : s->puts > puts);
    if (err == STET_ENOTFOUND)
        fleet_fail(w, NULL, "%s: ensure gives %s", s->name, stet_last_error());
    return err;
}

void
fleet_schedules_ensure(fleet_node *node)
{
    fleet *w = node->w;

    for (size_t i = 0; i < w->n_schedules; i++)
        while (!node->is_leaving && stet__sim_now_us(w->sim) < w->plan.last_us &&
               schedule_ensure(w, node->engine, &w->schedules[i]) != STET_OK)
            fleet_nap(node->p, 1000 * (int64_t)(1 + fleet_draw(&w->planner, 400)));
}

static void
schedule_update(fleet_node *node, fleet_schedule *s, bool has_time)
{
    fleet                *w = node->w;
    fleet_order           order = s->order;
    stet_schedule_options o;
    uint64_t              puts = s->puts;
    char                  text[160], cron[24];
    stet_bytes            input;
    bool                  has_input = !has_time && fleet_draw(&w->planner, 3) == 0;
    stet_schedule_change  change = STET_SCHEDULE_UNCHANGED;
    int                   err;

    stet_schedule_options_init(&o);
    if (!has_time && fleet_draw(&w->planner, 2) == 0)
        schedule_draw_policies(w, &o);
    else if (!has_input && s->options.every_ms != 0) {
        schedule_draw_every(w, &o);
        o.from_completion = fleet_draw(&w->planner, 2) == 0;
    } else if (!has_input) {
        (void)snprintf(cron, sizeof cron, "*/%d * * * *", 1 + (int)fleet_draw(&w->planner, 2));
        o.cron = cron;
    }
    order.seed = schedule_draw_seed(w, order);
    (void)fleet_order_text(text, sizeof text, &order);
    input = stet_text(text);
    err = stet_schedule_update(node->engine, &change, s->name, has_input ? &input : NULL, &o);
    schedule_called(w, s, "update", err, change == STET_SCHEDULE_UNCHANGED || s->puts > puts);
}

void
fleet_schedule_whim(fleet_node *node)
{
    enum { LOOKS = 40, LOOK_US = 100000 };

    fleet          *w = node->w;
    fleet_schedule *s = &w->schedules[fleet_draw(&w->whims, w->n_schedules)];

    if (s->edition == 0 || fleet_schedule_is_over(w, s) ||
        stet_schedule_pause(node->engine, s->name, "operator") != STET_OK)
        return;
    for (int i = 0; i < LOOKS && !fleet_schedule_is_over(w, s) && !node->is_leaving; i++)
        fleet_nap(node->p, LOOK_US);
    fleet_nap(node->p, (int64_t)fleet_draw(&w->whims, 4 * LOOK_US));
    if (!node->is_leaving && stet_schedule_resume(node->engine, s->name) == STET_OK)
        schedule_update(node, s, true);
}

static void
schedule_remove(fleet_node *node, fleet_schedule *s)
{
    uint64_t dels = s->dels;
    int      err = stet_schedule_remove(node->engine, s->name);

    schedule_called(node->w, s, "remove", err, s->dels > dels);
}

/* Removed and made anew just when it is due, some times in a row: whoever looks at the old one must
 * not fire the new one. */
static void
schedule_replace(fleet_node *node, fleet_schedule *s)
{
    fleet *w = node->w;

    for (uint64_t i = 1 + fleet_draw(&w->planner, 3); i > 0 && !node->is_leaving; i--) {
        int64_t in_ms = s->edition != 0 ? s->f.until_ms - fleet_now_ms(w) : 0;

        if (in_ms > 0 && in_ms < SCHEDULE_REPLACE_MS)
            fleet_nap(node->p, in_ms * 1000 + (int64_t)fleet_draw(&w->planner, 20000));
        if (!w->has_faults)
            return; /* they are paused at the end, and stay so */
        schedule_remove(node, s);
        if (schedule_ensure(w, node->engine, s) != STET_OK)
            return;
    }
}

void
fleet_schedule_edit(fleet_node *node)
{
    fleet          *w = node->w;
    fleet_schedule *s = &w->schedules[fleet_draw(&w->planner, w->n_schedules)];
    bool            was_paused = s->edition != 0 && (s->f.flags & STET__SCHED_PAUSED) != 0;
    uint64_t        dels = s->dels, pauses = s->pauses, resumes = s->resumes;
    int             err;

    switch (fleet_draw(&w->planner, 14)) {
    case 0:
    case 1:
        err = stet_schedule_pause(node->engine, s->name, "operator");
        schedule_called(w, s, "pause", err, was_paused || s->pauses > pauses);
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        err = stet_schedule_resume(node->engine, s->name);
        schedule_called(w, s, "resume", err, !was_paused || s->resumes > resumes || s->dels > dels);
        if (fleet_draw(&w->planner, 2) == 0 && !node->is_leaving)
            schedule_update(node, s, true); /* before anybody looks at it */
        break;
    case 6:
    case 7:
    case 8: schedule_update(node, s, false); break;
    case 9: schedule_remove(node, s); break;
    case 10:
    case 11: schedule_replace(node, s); break;
    default: (void)schedule_ensure(w, node->engine, s); break;
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Its record as it is in the store; false: it is not there. */
static bool
schedule_read(fleet *w, const fleet_schedule *s, stet__fact *f)
{
    const mem_value *v = stet__mem_value(w->db, STET__SPACE_BASE_SCHED, stet_text(s->name));
    stet_bytes       in = v != NULL ? v->value.data : (stet_bytes){ NULL, 0 };

    return v != NULL && stet__fact_decode(f, &in) == STET_OK;
}

static bool
schedule_goes_on(fleet *w, const fleet_schedule *s)
{
    stet__fact f;

    return schedule_read(w, s, &f) && (f.flags & STET__SCHED_PAUSED) == 0;
}

bool
fleet_schedules_go_on(fleet *w)
{
    for (size_t i = 0; i < w->n_schedules; i++)
        if (schedule_goes_on(w, &w->schedules[i]))
            return true;
    return false;
}

void
fleet_schedules_pause(fleet *w, stet_engine *e)
{
    for (size_t i = 0; i < w->n_schedules; i++)
        if (schedule_goes_on(w, &w->schedules[i]))
            (void)stet_schedule_pause(e, w->schedules[i].name, "helper");
}

void
fleet_schedules_resume(fleet *w, stet_engine *e)
{
    for (size_t i = 0; i < w->n_schedules; i++) {
        fleet_schedule *s = &w->schedules[i];

        (void)schedule_ensure(w, e, s);
        if (s->edition != 0 && (s->f.flags & STET__SCHED_PAUSED) != 0)
            (void)stet_schedule_resume(e, s->name);
    }
}

bool
fleet_schedules_asked(fleet *w)
{
    mem_value       probe = stet__mem_value_probe(STET__SPACE_SCHED_DUE, stet_text(""));
    const mem_node *n = w->n_schedules > 0 ? stet__mem_tree_ge(&w->db->values, &probe.node) : NULL;

    return n != NULL && strcmp(MEM_OF(const mem_value, node, n)->space, probe.space) == 0;
}

/* ---- what is due is fired -------------------------------------------------------------------- */

bool
fleet_schedule_is_over(const fleet *w, const fleet_schedule *s)
{
    const fleet_run *run = fleet_run_of(w, s->run);

    return run == NULL || run->end != 0;
}

bool
fleet_schedule_is_waited(const fleet *w, const fleet_schedule *s)
{
    bool is_from_end =
        (s->f.flags & STET__SCHED_FROM_COMPLETION) != 0 && s->f.until_ms == STET_NEVER;

    return (s->f.flags & STET__SCHED_RUNNING) != 0 && (s->f.waiting_ms != 0 || is_from_end) &&
           fleet_schedule_is_over(w, s);
}

static bool
schedule_is_due(fleet *w, const fleet_schedule *s)
{
    if (s->edition == 0 || (s->f.flags & STET__SCHED_PAUSED) != 0)
        return false;
    /* By a clock that went back, the run ends at a time that is to come. */
    return s->f.until_ms <= fleet_now_ms(w) ||
           (fleet_schedule_is_waited(w, s) && fleet_run_of(w, s->run)->ended_ms <= fleet_now_ms(w));
}

bool
fleet_schedules_watch(fleet *w)
{
    int64_t now_us = stet__sim_now_us(w->sim);
    bool    is_due = false;

    for (size_t i = 0; i < w->n_schedules; i++) {
        fleet_schedule *s = &w->schedules[i];

        if (!schedule_is_due(w, s)) {
            s->seen = 0;
            continue;
        }
        is_due = true;
        if (s->seen != s->edition) {
            s->seen = s->edition;
            s->due_us = now_us;
        }
        if (now_us - s->due_us > SCHEDULE_LATE_US)
            fleet_fail(w, NULL, "%s: due for %" PRId64 " ms, and nobody fires it", s->name,
                       (now_us - s->due_us) / 1000);
    }
    return is_due;
}
