/* When things are due: cron expressions and time zones; schedules that start runs.
 *
 * Five fields: minute (0-59), hour (0-23), day of month (1-31), month (1-12 or JAN-DEC), day of
 * week (0-7 or SUN-SAT; 0 and 7 are Sunday). A field is `*`, a value, a range `9-17`, or a list of
 * them `1,15,20-25`; behind `*` or a range a step may follow: `10-40/5`. Names in any case. A step
 * behind a single value (`5/15`) and a range that runs backwards (`22-2`) are refused, since cron
 * programs disagree about them. If both day fields are restricted (neither begins with `*`), a day
 * that matches one of them is enough. Or a word: @hourly, @daily, @midnight, @weekly, @monthly,
 * @yearly, @annually.
 *
 * Daylight saving, if not every hour is allowed: a local time that does not exist fires once at the
 * shift, a local time that exists twice fires the first time. If every hour is allowed, the
 * expression goes by the time that passes: `30 * * * *` fires in both passes of a repeated hour and
 * not at a shift forward. docs/semantics.md has a table.
 */
#ifndef STET_SCHEDULE_H
#define STET_SCHEDULE_H

#include <stet/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A cron expression in a time zone, ready to be asked. Constant once parsed. */
typedef struct stet_cron stet_cron;

/** What is special about the local time of a firing. */
typedef enum stet_cron_mark {
    STET_CRON_PLAIN,
    STET_CRON_MOVED,  /* the time asked for does not exist on this day: it fires at the shift */
    STET_CRON_FIRST,  /* the time exists twice, this is the first */
    STET_CRON_SECOND  /* the same, the second: only if every hour is allowed */
} stet_cron_mark;

/** A firing, as the clocks of its zone show it. */
typedef struct stet_cron_time {
    int64_t        at_ms;    /* milliseconds since 1970 */
    int32_t        offset_s; /* local time is UTC plus this */
    int32_t        shift_s;  /* how far clocks went forward since after_ms; back: negative */
    int32_t        year, month, day, hour, minute, second; /* local */
    int32_t        asked_hour, asked_minute; /* by the expression: differ only if moved */
    stet_cron_mark mark;
} stet_cron_time;

/**
 * Parse and check a cron expression and the name of a time zone. Any thread.
 *
 * The zone is read from the system's tz database ($TZDIR, by default /usr/share/zoneinfo) and kept
 * as it is now: parse anew to see an update of the database. TZ and the C library's zone play no
 * part and are left alone. UTC needs no database.
 *
 * @param[out] cron  to be freed; NULL: only check
 * @param zone       an IANA name such as "Europe/Berlin"; NULL or "": UTC
 * @return STET_OK; STET_EINVAL, the error text has the column of what is wrong, also for an
 *         expression that can never fire (`0 0 30 2 *`) and for what is no name of a zone;
 *         STET_ENOTFOUND, no such zone (names that are near are told) or no tz database;
 *         STET_ECORRUPT, the zone's file is damaged; STET_EIO, it cannot be read; STET_ENOMEM.
 *         *cron is NULL after a failure.
 */
STET_API int stet_cron_parse(stet_cron **cron, const char *expression, const char *zone);
/** Accepts NULL. */
STET_API void stet_cron_free(stet_cron *cron);

/**
 * The first firing strictly after a time. Any thread, several at once.
 * @param[out] next_ms  milliseconds since 1970; untouched on failure
 * @return STET_OK; STET_EINVAL, after_ms is not within the years 1 to 9999; STET_END, the next one
 *         is not before the year 10000.
 */
STET_API int stet_cron_next(const stet_cron *cron, int64_t *next_ms, int64_t after_ms);
/** The same with the local time and what daylight saving does to it, for people. */
STET_API int stet_cron_next_time(const stet_cron *cron, stet_cron_time *next, int64_t after_ms);

/* ---- schedules ------------------------------------------------------------------------------ */

/* A schedule starts a run of one handler again and again, or once: by a cron expression, at an
 * interval, at a time, or when a function of yours says. It is kept in the store. Every engine with
 * the role STET_ROLE_TIMERS that was started fires what is due, whether it serves the handler or
 * not; one firing is one run, however many of them look, and whenever they crash. */

#define STET_SCHEDULE_EVERY_MIN_MS 100            /* shortest interval */
#define STET_SCHEDULE_EVERY_MAX_MS INT64_C(315360000000) /* longest: ten years */
#define STET_SCHEDULE_MISSED_MAX   1000           /* most for `missed_max` */
#define STET_SCHEDULE_HISTORY_MAX  1000           /* occurrences kept of each schedule */

/** What if the run it started last is still open when the next one is due? */
typedef enum stet_overlap {
    STET_OVERLAP_DEFAULT, /* skip */
    STET_OVERLAP_SKIP,    /* no new run */
    STET_OVERLAP_ALLOW,   /* both are open */
    STET_OVERLAP_QUEUE,   /* one waits until the other has ended; if one waits already, skip */
    STET_OVERLAP_CANCEL   /* cancel the old one and start the new one at once */
} stet_overlap;

/** What of times that went by while nobody could fire? The last of them is not missed if it can
 * still be fired: see `grace`. With from_completion there is one time at most: "once" and "all" fire
 * it however late, "skip" (and a pause) plan the next one an interval after it was skipped. */
typedef enum stet_missed {
    STET_MISSED_DEFAULT, /* once */
    STET_MISSED_ONCE,    /* one run for all of them, however late */
    STET_MISSED_SKIP,    /* none; the last one if it is at most `grace` late */
    STET_MISSED_ALL      /* a run for each, but at most for the last `missed_max` */
} stet_missed;

/** When, and how. Exactly one of cron, every, at_ms, after, function. */
typedef struct stet_schedule_options {
    size_t       size;
    const char  *cron;     /* "0 9 * * MON-FRI" */
    const char  *zone;     /* of cron, "Europe/Berlin"; NULL: UTC */
    const char  *every;    /* "15m", counted from the planned time, so that it does not drift */
    int64_t      every_ms; /* the same in milliseconds */
    bool         from_completion; /* `every` is counted from the end of the run instead: one time
                                   * is planned, the next when its run has ended */
    int64_t      at_ms;    /* once, at this time */
    const char  *after;    /* once, so long after the schedule was made: "30d" */
    int64_t      after_ms;
    const char  *function; /* as stet_register_schedule() named it */
    stet_overlap overlap;
    stet_missed  missed;
    int          missed_max; /* with STET_MISSED_ALL; 0: 10 */
    const char  *grace;      /* with STET_MISSED_SKIP: how late is not missed; NULL: 1m */
    int64_t      grace_ms;
    /* Of the runs it starts. */
    const char  *key;
    const char  *group;
    int32_t      priority;
    const char  *timeout;
    int64_t      timeout_ms;
} stet_schedule_options;
#define STET_SCHEDULE(...)                                                                         \
    (&(stet_schedule_options){ .size = sizeof(stet_schedule_options), __VA_ARGS__ })
STET_API void stet_schedule_options_init(stet_schedule_options *options);

/** What ensure and update did. */
typedef enum stet_schedule_change {
    STET_SCHEDULE_UNCHANGED,
    STET_SCHEDULE_CREATED,
    STET_SCHEDULE_UPDATED
} stet_schedule_change;

/**
 * The next time of a schedule that goes by a function of yours: the first after `after_ms`.
 *
 * Called on the keeper's thread, which fires timers too: be quick, do not call stet. May be called
 * several times for one firing; the same question must have the same answer.
 * @param[out] next_ms  later than after_ms, before the year 10000
 * @return STET_OK; STET_END, there is none any more; another code: it failed and is asked again a
 *         minute later (the schedule shows it).
 */
typedef int (*stet_schedule_fn)(void *arg, int64_t *next_ms, const char *schedule,
                                int64_t after_ms);
/** Give a function for next times a name. Before stet_engine_start() only. Schedules that go by it
 * are fired by engines that have it. @return STET_OK; STET_ENAME; STET_EINVAL, no function;
 * STET_EEXISTS; STET_ESTATE, already started; STET_ENOMEM. */
STET_API int stet_register_schedule(stet_engine *engine, const char *function, stet_schedule_fn fn,
                                    void *arg);

/**
 * Make sure that there is such a schedule: for every boot, from as many processes as you like.
 *
 * None of that name: it is made, and fires first at its first time after now. One that differs is
 * changed to this; if its time differs, its next time is computed anew, from now: what was due by
 * the old one and nobody fired is skipped (STET_SKIP_CHANGED). One that is the
 * same is only read. A pause stays. Durable on return. Any thread; not inside a handler.
 *
 * @param[out] change  what was done; may be NULL
 * @param name         as names of steps are
 * @param handler      "orders.report"; need not be served here
 * @param input        of every run; copied
 * @return STET_OK; STET_EINVAL, not exactly one kind of time, cron text that is wrong (with its
 *         column), a policy or number out of range, an option that does not go with the others;
 *         STET_ENOTFOUND, no such time zone; STET_ENAME; STET_EDURATION; STET_EKEY;
 *         STET_ENOHANDLER; STET_ETOOBIG; STET_EUSAGE, called in a handler; STET_EBUSY, others
 *         change it all the time; STET_EUNCERTAIN: repeat it.
 */
STET_API int stet_schedule_ensure(stet_engine *engine, stet_schedule_change *change,
                                  const char *name, const char *handler, stet_bytes input,
                                  const stet_schedule_options *options);

/**
 * Change a schedule. What is not given stays as it is: a time that is given replaces the old one.
 * @param input    NULL: as it is
 * @param options  NULL: as they are
 * @return as stet_schedule_ensure(); STET_ENOTFOUND, there is none (near names are told).
 */
STET_API int stet_schedule_update(stet_engine *engine, stet_schedule_change *change,
                                  const char *name, const stet_bytes *input,
                                  const stet_schedule_options *options);

/** Fire no more until it is resumed. Runs it started go on. Twice is harmless.
 * @param by  who, may be NULL @return STET_OK; STET_ENOTFOUND; STET_ETOOBIG; as ensure. */
STET_API int stet_schedule_pause(stet_engine *engine, const char *name, const char *by);
/** Fire again, from the next time after now on: times in the pause are skipped, and are in the
 * history as such. What waited behind a run (STET_OVERLAP_QUEUE) still does. Twice is harmless. */
STET_API int stet_schedule_resume(stet_engine *engine, const char *name);
/** Remove it and its history. Runs it started go on. @return STET_OK; STET_ENOTFOUND … */
STET_API int stet_schedule_remove(stet_engine *engine, const char *name);

/** A schedule as it is. Times are milliseconds since 1970; 0: none. Texts are NULL if absent. */
typedef struct stet_schedule_info {
    const char  *name, *handler, *key, *group;
    const char  *cron, *zone, *function; /* zone: of a cron, never NULL there */
    int64_t      every_ms, at_ms, after_ms, grace_ms, timeout_ms;
    bool         from_completion;
    stet_overlap overlap;
    stet_missed  missed;
    int          missed_max; /* with STET_MISSED_ALL */
    int32_t      priority;
    stet_bytes   input;
    int64_t      created_ms, updated_ms;
    bool         is_paused;
    const char  *paused_by;
    bool         is_done;     /* will not fire any more */
    int64_t      next_ms;     /* planned; also while paused */
    int64_t      last_ms;     /* planned time of the last occurrence, skipped or not */
    int64_t      fired_ms;    /* when it started a run last */
    const char  *last_run;
    bool         is_running;  /* that run is open */
    int64_t      waiting_ms;  /* planned time of the one that waits behind it */
    uint64_t     fired, skipped; /* occurrences so far */
    const char  *error;       /* why its next time is not known */
    const char  *text;        /* one sentence: what it does now, or what keeps it */
} stet_schedule_info;
typedef int (*stet_schedule_info_fn)(void *arg, const stet_schedule_info *schedule);

/** One schedule, handed to fn. @return what fn does; STET_ENOTFOUND (near names are told);
 * STET_ECORRUPT, it is damaged. */
STET_API int stet_schedule_get(stet_engine *engine, const char *name, stet_schedule_info_fn fn,
                               void *arg);
/** Schedules in the order of their names. @param after  only names behind this one; NULL: all
 * @param limit  0: 50 */
STET_API int stet_schedule_list(stet_engine *engine, const char *after, size_t limit,
                                stet_schedule_info_fn fn, void *arg);

typedef enum stet_occurrence_outcome {
    STET_OCCURRENCE_RAN = 1,
    STET_OCCURRENCE_WAITS,  /* for the end of the run before it */
    STET_OCCURRENCE_SKIPPED
} stet_occurrence_outcome;

typedef enum stet_skip {
    STET_SKIP_NONE,
    STET_SKIP_MISSED,  /* nobody could fire in time, and a later one is due */
    STET_SKIP_LATE,    /* … and it is later than `grace` */
    STET_SKIP_LIMIT,   /* more were missed than `missed_max` */
    STET_SKIP_OVERLAP, /* the run before it was open */
    STET_SKIP_QUEUED,  /* … and another one waited already */
    STET_SKIP_PAUSED,
    STET_SKIP_CHANGED  /* nobody could fire in time, and then its time was changed */
} stet_skip;

/** What became of one planned time, or of several that were skipped together. */
typedef struct stet_occurrence_info {
    int64_t                 planned_ms;
    int64_t                 until_ms; /* of several the last; else planned_ms */
    uint64_t                count;    /* how many; at least so many if it is 10000 */
    int64_t                 time_ms;  /* when it was decided */
    stet_occurrence_outcome outcome;
    stet_skip               skip;
    const char             *run;      /* that was started, or that was in the way; or NULL */
    const char             *text;     /* the outcome in words */
} stet_occurrence_info;
typedef int (*stet_occurrence_fn)(void *arg, const stet_occurrence_info *occurrence);
/** The last STET_SCHEDULE_HISTORY_MAX occurrences, newest first. @param limit  0: 50 */
STET_API int stet_schedule_history(stet_engine *engine, const char *name, size_t limit,
                                   stet_occurrence_fn fn, void *arg);

/** "skip", "once", "missed" … as the command line writes them; NULL: no such value. */
STET_API const char *stet_overlap_name(stet_overlap overlap);
STET_API const char *stet_missed_name(stet_missed missed);
STET_API const char *stet_skip_name(stet_skip skip);
/** The policy of that name, or its default value 0 for a name nobody has. */
STET_API stet_overlap stet_overlap_parse(const char *name);
STET_API stet_missed  stet_missed_parse(const char *name);

#ifdef __cplusplus
}
#endif
#endif
