/* Crumbs of bodies: written before a body is entered, cleared when its record is durable. Whoever takes the run
 * of a dead worker over reads in them which steps are at risk.
 */
#include <string.h>

#include "engine/host.h"

/* From the wish to suspend until the run is ours again the crumb is the committer's, who gives it back: a
 * context that is woken for nothing in between must not write into what may be another run's by now. */
static bool
host_is_parking(stet_ctx *c)
{
    stet__park park = atomic_load(&c->park);

    return park == STET__PARK_ASKED || park == STET__PARK_PARKED;
}

bool
stet__host_crumb_set(stet_ctx *c, stet_attempt *a)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet_crumb  *crumb;
    int          at = a == NULL && host_is_parking(c) ? -1 : claim->crumb;

    if (a != NULL)
        a->fence = claim->epoch; /* the run learns of its epoch only with the first fact of this claim */
    if (a != NULL && a->future != NULL && !a->future->is_sync) {
        stet__lock(e->p, &e->lock);
        a->crumb = stet__crumb_get(claim);
        stet__unlock(e->p, &e->lock);
        at = a->crumb;
    }
    if (at < 0 && a != NULL && claim->session == atomic_load(&e->session))
        stet__log(e, STET_LOG_WARN, &claim->run, NULL, a->step, STET_EBUSY,
                  "too many bodies are not on record yet; this one is not begun and the run is let go");
    if (at < 0)
        return a == NULL;
    crumb = &claim->crumbs[at];
    crumb->run = claim->run;
    crumb->epoch = claim->epoch;
    if (a != NULL) {
        size_t len = strlen(a->step);

        if (len >= sizeof crumb->step)
            len = sizeof crumb->step - 1;
        memcpy(crumb->step, a->step, len);
        crumb->step[len] = '\0';
        crumb->occurrence = a->occurrence;
    }
    atomic_signal_fence(memory_order_seq_cst);
    if (a != NULL && !a->future->is_tx) /* that one has happened if, and only if, it is recorded */
        crumb->is_body = 1;
    crumb->is_busy = 1;
    return true;
}

/* Out of user code: after a body until its record is durable, the crumb says "entered" (2); the record
 * is durable when the handler code of this context runs again behind its barrier. */
void
stet__host_crumb_rest(stet_ctx *c, stet_attempt *a)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    int          at = -1;

    if (a != NULL && a->future != NULL && !a->future->is_sync)
        at = a->crumb; /* -1: there was none left; the claim's own is its slot's */
    else if (a != NULL || !host_is_parking(c))
        at = claim->crumb;
    if (at < 0)
        return;
    if (a != NULL && a->future->is_tx)
        claim->crumbs[at].is_busy = 0;
    else if (a != NULL) {
        claim->crumbs[at].is_busy = STET__MUTANT(crumb_early) ? 0 : 2;
        if (at == claim->crumb)
            claim->is_unrecorded = true;
    } else if (claim->crumbs[at].is_body &&
               (claim->is_unrecorded || claim->has_broken || claim->is_refused || !stet__host_is_durable(c)))
        claim->crumbs[at].is_busy = 2;
    else {
        claim->crumbs[at].is_busy = 0;
        claim->crumbs[at].is_body = 0;
        if (claim->spent != NULL && !claim->is_refused && stet__host_is_durable(c)) {
            stet__lock(e->p, &e->lock);
            stet__host_crumbs_release(claim, &claim->spent);
            stet__unlock(e->p, &e->lock);
        }
    }
}

void
stet__host_crumbs_release(stet__claim *claim, stet_attempt **spent)
{
    while (*spent != NULL) {
        stet_attempt *a = *spent;

        *spent = a->next;
        stet__crumb_put(claim, a->crumb);
        a->crumb = -1;
    }
}

/* ---- gone ------------------------------------------------------------------------------------------ */

/* Refused and never given back by us: whoever takes the run over reads in our crumbs that a body was entered,
 * so they stay as they are until the session ends. One that entered no body has nothing to tell, and a crumb that
 * is kept for nothing is one less. */
static bool
crumbs_are_evidence(const stet__claim *claim)
{
    bool has_body = (claim->crumb >= 0 && claim->crumbs[claim->crumb].is_body != 0) || claim->spent != NULL ||
                    claim->broken != NULL || claim->unrecorded != NULL;

    return has_body && claim->end != STET__END_DONE &&
           (claim->is_refused || claim->has_broken || claim->is_unrecorded || claim->unrecorded != NULL);
}

void
stet__host_crumbs_leave(stet__claim *claim)
{
    if (crumbs_are_evidence(claim))
        return;
    stet__crumb_put(claim, claim->crumb);
    claim->crumb = -1;
    stet__host_crumbs_release(claim, &claim->spent);
    stet__host_crumbs_release(claim, &claim->broken);
    stet__host_crumbs_release(claim, &claim->unrecorded);
}

void
stet__host_crumb_spent(stet_ctx *c, stet_attempt *a)
{
    stet__claim   *claim = host_claim(c);
    bool           is_broken = a->future->is_broken;
    stet_attempt **list = a->is_unrecorded ? &claim->unrecorded : is_broken ? &claim->broken : &claim->spent;

    claim->has_broken = claim->has_broken || is_broken;
    /* What was recorded last is this body. One that was not entered needs no record. */
    a->revision = a->is_skipped || a->future->is_tx ? 0 : c->run.journal;
    if (a->crumb < 0 && !a->is_unrecorded) {
        if (a->future->is_sync) { /* another one has no crumb: it was not begun, and the claim's own is somebody else's */
            claim->is_unrecorded = is_broken;
            claim->revision = a->revision;
        }
        return;
    }
    a->next = *list;
    *list = a;
}

void
stet__host_crumbs_failed(stet__claim *claim)
{
    uint64_t revision = claim->ctx->run.journal;

    if (claim->is_unrecorded) /* else it was recorded before, by itself */
        claim->revision = revision;
    claim->is_unrecorded = false;
    claim->has_broken = false;
    while (claim->broken != NULL) {
        stet_attempt *a = claim->broken;

        claim->broken = a->next;
        a->revision = revision;
        a->next = claim->spent;
        claim->spent = a;
    }
}

/* ---- at risk -------------------------------------------------------------------------------------- */

void
stet__host_crumbs_lose(stet__claim *claim)
{
    stet_attempt **at = &claim->spent;

    claim->is_unrecorded = claim->is_unrecorded || claim->revision > claim->stored;
    while (*at != NULL) {
        stet_attempt *a = *at;

        if (a->revision <= claim->stored) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        a->next = claim->unrecorded;
        claim->unrecorded = a;
    }
}

bool
stet__host_crumb_is_risk(const stet__claim *claim, int at)
{
    const stet_crumb *crumb = &claim->crumbs[at];

    if (crumb->is_busy == 0 || !crumb->is_body)
        return false;
    if (at == claim->crumb)
        return claim->is_unrecorded || STET__MUTANT(risk_recorded);
    for (const stet_attempt *a = claim->spent; a != NULL && !STET__MUTANT(risk_recorded); a = a->next)
        if (a->crumb == at)
            return false;
    return true;
}
