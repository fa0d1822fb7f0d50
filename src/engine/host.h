/* What the files of the host share: host.c (recording, and the table of what a context may ask for), host_begin.c,
 * host_inbox.c, host_park.c, host_state.c, host_child.c, host_tx.c, host_crumbs.c, and end.c, end_anew.c.
 */
#ifndef STET_ENGINE_HOST_H
#define STET_ENGINE_HOST_H

#include "engine/engine.h"

static inline stet__claim *
host_claim(stet_ctx *c)
{
    return c->host;
}

/* ---- host.c ------------------------------------------------------------------------------------ */

int  stet__host_append(stet_ctx *c, stet__fact *fact, const stet__fact *child);
bool stet__host_unit_done(stet_engine *e, stet__work *w, const stet_outcome *o);
/* A unit of it was applied. Lock held. */
void stet__host_stored(stet__claim *claim, const stet__work *w);
/* The answer to a unit of a run that was executed ahead of its claim. True: refused, and dropped. */
bool stet__host_is_dropped(stet_engine *e, stet__claim *claim, const stet_outcome *o);
bool stet__host_is_durable(stet_ctx *c);
void stet__host_commit(stet_ctx *c);
void stet__host_submit(stet__claim *claim); /* the open unit */
void stet__host_submit_locked(stet__claim *claim);
/* Remove the timers of what was settled before they fired, with the record of that. Every unit does when it is
 * submitted; to be called before a conditional tail, which may be cut off. */
int  stet__host_spare(stet_ctx *c);
/* Remember where the conditional tail of the open unit begins, and cut it off again. */
int  stet__host_mark(stet_ctx *c);
void stet__host_rollback(stet_ctx *c, stet__work *w);
int  stet__host_inbox_cond(stet_ctx *c);
/* Facts and operations that end this generation and begin the next, in the open unit; everything before them is
 * durable. Due now. */
int  stet__end_anew(stet_ctx *c);
bool stet__host_is_news(const stet__work *w, const stet_outcome *o);

/* ---- what a context may ask for, by file; see exec/context.h ------------------------------------ */

int  stet__host_begin(stet_ctx *c);
/* Tell the context what its loaded run is; also for executions without a claim (offline.c). */
void stet__host_info(stet_ctx *c);
void stet__host_suspend(stet_ctx *c);
int  stet__host_refresh(stet_ctx *c);
bool stet__host_end(stet_ctx *c);
int  stet__host_state_read(stet_ctx *c, const char *name, stet_bytes *value, int64_t *writer);
int  stet__host_child(stet_ctx *c, stet_id *id, stet__fact *started, const char *handler, stet_bytes input,
                      const stet_start_options *o, bool is_call);
int  stet__host_child_existing(stet_ctx *c, const stet__fact *started, stet_id *existing);
int64_t stet__host_tx_limit(stet_ctx *c);
int  stet__host_tx_begin(stet_ctx *c, stet_attempt *a, int64_t limit_ms);
int  stet__host_tx_record(stet_ctx *c, stet_attempt *a, stet__fact *fact);
void stet__host_tx_rollback(stet_ctx *c, stet_attempt *a);
bool stet__host_crumb_set(stet_ctx *c, stet_attempt *a);
void stet__host_crumb_rest(stet_ctx *c, stet_attempt *a);
void stet__host_crumb_spent(stet_ctx *c, stet_attempt *a);
/* Their records are durable, or they tell nothing. Lock held. */
void stet__host_crumbs_release(stet__claim *claim, stet_attempt **spent);
/* The context enters nothing any more: its crumbs are for others, unless they tell of a body that is not on record. With
 * the engine's lock. */
void stet__host_crumbs_leave(stet__claim *claim);
/* How the run failed was recorded, and with it the bodies that failed for now: none of them is executed again. */
void stet__host_crumbs_failed(stet__claim *claim);
/* What is not stored by now will not be: the bodies whose record was in there are on none. */
void stet__host_crumbs_lose(stet__claim *claim);
/* Does this crumb of the claim tell of a body that is on no record, and will be on none when the open unit is stored? All
 * its bodies have ended. Lock held. */
bool stet__host_crumb_is_risk(const stet__claim *claim, int at);

#endif
