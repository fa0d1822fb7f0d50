/* The system's tz database: files by the names of zones.
 *
 * In $TZDIR, else /usr/share/zoneinfo. What is in the files is for core/zone.h to understand.
 */
#ifndef STET__TZDATA_H
#define STET__TZDATA_H

#include "util/util.h"

/* The bytes of a zone's file, appended to `out`. STET_OK; STET_EINVAL, no name of a zone;
 * STET_ENOTFOUND, none of that name, with those that are near; STET_EIO; STET_ECORRUPT, larger than
 * any; STET_ENOMEM. */
int stet__tzdata_read(stet__buf *out, const char *name);

#endif
