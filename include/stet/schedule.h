/* When things are due: cron expressions and time zones.
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

#include <stet/base.h>

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

#ifdef __cplusplus
}
#endif
#endif
