/* Schedules: what is due, what was missed, what the policies say. Pure.
 *
 * A schedule is a record of kind STET__FACT_SCHEDULE:
 *   name, key, group, priority, value   of the runs it starts: handler … input; deadline_ms: timeout
 *   cron                                the expression, or the function (STET__SCHED_FUNCTION); zone
 *   every_ms | at_ms | after_ms         the other kinds; with after_ms, at_ms is what came of it
 *   overlap, missed, missed_max, grace_ms
 *   time_ms, updated_ms                 when it was made, and changed last by somebody
 *   until_ms     the next planned time; 0: not known yet; STET_NEVER: none (for now, if it counts
 *                from the end of a run that is open)
 *   planned_ms   the last one that was dealt with
 *   look_ms      where it stands in the index: when to look at it; STET_NEVER: nowhere
 *   run, fired_ms                       the run it started last, and when
 *   waiting_ms   planned time of the occurrence that waits behind that run; 0: none
 *   fired, skipped                      occurrences so far; logged: entries in the ledger
 *   who          who paused it; text: why its next time is not known
 * An occurrence, STET__FACT_OCCURRENCE: planned_ms … until_ms, number (how many), code (outcome),
 * cause (why skipped), run, time_ms (decided).
 *
 * Invariants (stet__sched_is_sound): exactly one kind of time; a planned time is dealt with once,
 * in order: until_ms > planned_ms; something waits only behind a run (STET__SCHED_RUNNING).
 */
#ifndef STET__SCHEDULE_H
#define STET__SCHEDULE_H

#include <stet/schedule.h>

#include "core/fact.h"

#define STET__SCHED_PAUSED          1
#define STET__SCHED_RUNNING         2 /* the last run was open when we looked */
#define STET__SCHED_FUNCTION        4
#define STET__SCHED_FROM_COMPLETION 8

/* Most occurrences that are counted, and so skipped, at one time; of a user's function fewer. */
#define STET__SCHED_COUNT_MAX    10000
#define STET__SCHED_FUNCTION_MAX 1000

typedef enum stet__sched_kind {
    STET__SCHED_CRON,
    STET__SCHED_EVERY,
    STET__SCHED_AT,
    STET__SCHED_USER
} stet__sched_kind;

/* The first time after `after_ms` by cron or function. STET_END: none. */
typedef int (*stet__sched_next_fn)(void *arg, int64_t *next_ms, int64_t after_ms);

typedef struct stet__sched_now {
    int64_t             now_ms;
    bool                is_open;  /* the last run is */
    int64_t             ended_ms; /* … else when it ended, if that is known */
    stet__sched_next_fn next;     /* NULL: not known here; only what needs no next time is done */
    void               *arg;
} stet__sched_now;

typedef enum stet__sched_what {
    STET__SCHED_NOTHING,
    STET__SCHED_CHANGED, /* the record, and nothing is to be told */
    STET__SCHED_FIRE,
    STET__SCHED_WAIT,
    STET__SCHED_SKIP
} stet__sched_what;

typedef struct stet__sched_act {
    stet__sched_what what;
    int64_t          planned_ms, until_ms; /* equal but for skips of several */
    int64_t          count;
    stet_skip        skip;
    bool             has_waited; /* FIRE: its entry in the ledger is there */
    bool             cancels;    /* FIRE: the last run goes */
} stet__sched_act;

stet__sched_kind stet__sched_kind_of(const stet__fact *s);
bool             stet__sched_is_sound(const stet__fact *s);
/* The same time and the same of everything a caller gives. */
bool stet__sched_same_time(const stet__fact *a, const stet__fact *b);
bool stet__sched_same(const stet__fact *a, const stet__fact *b);

/* Its time is new: the first one after now, and where it stands in the index. Errors of `next`. */
int stet__sched_plan(stet__fact *s, const stet__sched_now *now);
/* One thing that is to be done now, and the record as it is then (without run and fired_ms, which
 * the caller makes). There may be more: look_ms is not in the future then. Errors of `next`: the
 * record is as it was. */
int stet__sched_step(stet__fact *s, const stet__sched_now *now, stet__sched_act *act);
/* The pause is over: what was due in it is skipped. */
int stet__sched_resume(stet__fact *s, const stet__sched_now *now, stet__sched_act *act);

#endif
