/* Crumbs in files of this machine, for stores whose data are elsewhere: see crumbs.c. */
#ifndef STET__CRUMBS_H
#define STET__CRUMBS_H

#include <stet/sys/store.h>

#include "platform/platform.h"

/* Room for n crumbs of a session, zeroed; *map is kept for the calls below (NULL before the first).
 * NULL: stet_last_error() says why. */
stet_crumb *stet__crumbs_map(const uint8_t instance[16], uint64_t session, size_t n, void **map);
/* Nobody writes them any more; with is_ended nobody will ask for them either. */
void stet__crumbs_unmap(const uint8_t instance[16], uint64_t session, void **map, bool is_ended);
/* Those of a dead session. STET_ENOTFOUND: they are not on this machine. Freed by the caller. */
int stet__crumbs_load(stet__alloc *alloc, const uint8_t instance[16], uint64_t session,
                      stet_crumb **crumbs, size_t *n);
/* Remove those of sessions that are not known any more. */
void stet__crumbs_sweep(const uint8_t instance[16], const uint64_t *known, size_t n,
                        int64_t now_ms);

#endif
