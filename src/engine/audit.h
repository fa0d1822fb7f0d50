/* The audit trail: audit.c makes its entries, mirror.c tells them to the hook. */
#ifndef STET__AUDIT_H
#define STET__AUDIT_H

#include <stet/audit.h>

#include "engine/engine.h"

/* Entries of one run behind a place in its trail. Their memory is the trail's. */
typedef struct stet__trail {
    stet__loaded      l;
    char              id[STET_ID_TEXT_MAX];
    uint64_t          revision, inbox; /* the place: what is up to there is left out */
    stet_audit_entry *entries;
    size_t            n, cap;
    uint64_t          first;       /* revision of the first fact: where its generation begins */
    int64_t          *times;       /* of the facts from there on */
    size_t            n_times, cap_times;
    uint64_t          order;       /* settlements before this fact, as the journal counts them */
    stet_status       status;      /* with the last entry */
    bool              has_pending; /* … whose own is not known yet */
} stet__trail;

/* In every case stet__trail_free() must follow. STET_ECORRUPT: the entries are those before the
 * bad fact. */
int  stet__trail_load(stet_engine *e, stet__trail *t, stet_id id, uint64_t revision,
                      uint64_t inbox);
/* The same of a generation that is over, from its bundle, whose bytes must outlive the trail. */
int  stet__trail_play(stet_engine *e, stet__trail *t, stet_id id, stet_bytes bundle,
                      uint64_t revision, uint64_t inbox);
int  stet__trail_tell(stet__trail *t, size_t i, stet_audit_fn fn, void *arg);
void stet__trail_free(stet__trail *t);

#endif
