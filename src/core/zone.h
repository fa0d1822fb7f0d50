/* Time zones: which offset from UTC a clock on the wall has at which instant.
 *
 * A zone is decoded from the bytes of a TZif file (RFC 9636, version 2 and later) and constant from
 * then on. It never asks the C library, whose zone is one for the process. Seconds since 1970 are int64_t
 * between STET__ZONE_FIRST_S and STET__ZONE_LAST_S, where offsets can be added without a look.
 *
 * Pure: who reads the file is in platform/tzdata.h.
 */
#ifndef STET__ZONE_H
#define STET__ZONE_H

#include "util/util.h"

#define STET__ZONE_LAST_S  (INT64_C(1) << 60)
#define STET__ZONE_FIRST_S (-STET__ZONE_LAST_S)
/* The farthest two offsets of one zone can be apart, by RFC 9636: -24:59:59 to +25:59:59. */
#define STET__ZONE_APART_MAX_S (INT64_C(51) * 3600)

typedef struct stet__zone stet__zone;

/* A time without a change: from_s is in it, until_s is not. The first begins at STET__ZONE_FIRST_S,
 * the last ends at STET__ZONE_LAST_S. */
typedef struct stet__zone_span {
    int64_t from_s, until_s;
    int32_t offset_s; /* east is positive: local is UTC + offset */
} stet__zone_span;

/* `name` is for error texts only. STET_OK; STET_ECORRUPT, what is wrong with the file;
 * STET_EINVAL, it counts leap seconds; STET_ENOMEM. */
int  stet__zone_decode(stet__zone **out, stet__alloc *alloc, const char *name, stet_bytes file);
void stet__zone_free(stet__zone *zone, stet__alloc *alloc); /* accepts NULL */

/* The span `at_s` lies in; `at_s` between the first and the last second. NULL is UTC. */
stet__zone_span stet__zone_span_at(const stet__zone *zone, int64_t at_s);

/* ---- the calendar: proleptic Gregorian, days since 1970-01-01 -------------------------------- */

typedef struct stet__date {
    int64_t year;
    int     month, day; /* from 1 */
} stet__date;

/* Towards the past; b is positive. */
static inline int64_t stet__floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

int64_t    stet__date_days(stet__date date);
stet__date stet__date_of(int64_t days);
int        stet__date_weekday(int64_t days); /* 0 is Sunday */
int        stet__date_month_days(int64_t year, int month);

#endif
