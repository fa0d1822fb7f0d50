/* Cron expressions: what they match, and the next time they fire in a zone. Pure.
 *
 * When an expression fires is a matter of the clock on the wall, which is set forward and back:
 *   - Is the hour restricted, it fires when the clock first reaches or passes a local time that
 *     matches. A time that is jumped over fires at the jump, several of them once together; a time
 *     that is shown twice fires the first time.
 *   - Is every hour allowed, it fires whenever the clock shows a local time that matches. So every
 *     15 minutes stays every 15 minutes: both passes of a repeated hour fire, a jump does not.
 * include/stet/schedule.h says it to users.
 */
#ifndef STET__CRON_H
#define STET__CRON_H

#include <stet/schedule.h>

#include "core/zone.h"

/* Bytes of an expression; a list of every minute, hour, day, month and weekday has 425. */
#define STET__CRON_TEXT_MAX 512

/* Bit n is value n. */
typedef struct stet__cron {
    uint64_t minutes;
    uint32_t hours, days, months;
    uint32_t weekdays;      /* 0 is Sunday, never 7 */
    bool     is_either_day; /* both day fields are restricted: one of them suffices */
} stet__cron;

/* STET_OK; STET_EINVAL with the column of what is wrong, *out untouched. */
int stet__cron_parse(stet__cron *out, const char *text);

/* The first firing after `after_s` (years 1 to 9999); `zone` NULL is UTC. Cannot fail: an
 * expression that was parsed fires within 41 years. */
void stet__cron_next(const stet__cron *cron, const stet__zone *zone, int64_t after_s,
                     stet_cron_time *out);

#endif
