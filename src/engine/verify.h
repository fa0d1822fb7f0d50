/* What the files of verify share: verify.c looks at runs, verify_state.c at what belongs to no run
 * alone, verify_orphans.c at what belongs to runs that are gone, verify_schedules.c at schedules. */
#ifndef STET__VERIFY_H
#define STET__VERIFY_H

#include "engine/engine.h"

typedef struct verify {
    stet_engine    *e;
    stet_finding_fn fn;
    void           *arg;
    size_t          checked;
    bool            is_repairing, has_lost_values, has_mended;
    /* Of what is under the glass. */
    const char *rule;
    char        text[512];
    uint64_t    revision;
    bool        is_unreadable, has_no_owner, has_no_mark, is_passed;
    stet_id     retry_of;
    int         err; /* it could not be looked at, which says nothing about the run */
    /* State entries as all facts together leave them: key -> verify_entry. */
    stet__arena arena;
    stet__map   entries;
    stet__map   timed; /* runs that were seen and have timers: their IDs */
} verify;

/* Remember what is wrong; false. */
bool stet__verify_bad(verify *v, const char *rule, uint64_t revision, const char *fmt, ...) STET_PRINTF(4, 5);
/* Tell the caller about it. */
int stet__verify_tell(verify *v, const stet_id *run, bool is_repaired);

void stet__verify_state_init(verify *v);
void stet__verify_state_free(verify *v);
int  stet__verify_wrote(verify *v, const stet__expect *x); /* take in what a run wrote */
int  stet__verify_state(verify *v);                        /* after all runs: compare */
int  stet__verify_children(verify *v);                     /* keys of children that were removed */
int  stet__verify_owned(verify *v);                        /* values of runs that are gone */
int  stet__verify_timers_left(verify *v);                  /* timers of runs that are gone */
int  stet__verify_schedules(verify *v);                    /* records, index and ledger */
int  stet__verify_mending(verify *v);                      /* what has the store lost? */
int  stet__verify_mended(verify *v);                       /* what the store had lost is there again */

#endif
