/* Beginning an incarnation: load what is recorded, judge whether the run may go on at all (it may have killed
 * its workers, or outlived its handler's code), and tell the context what it is.
 */
#include <stdio.h>
#include <string.h>

#include "engine/host.h"

void
stet__host_info(stet_ctx *c)
{
    const char *dot = strchr(c->run.handler, '.');

    stet__id_text(c->run_text, STET__ID_RUN, c->run.id);
    c->info.run = c->run_text;
    if (dot != NULL && (size_t)(dot - c->run.handler) < sizeof c->service) {
        memcpy(c->service, c->run.handler, (size_t)(dot - c->run.handler));
        c->service[dot - c->run.handler] = '\0';
        c->info.handler = dot + 1;
    } else
        c->info.handler = c->run.handler;
    c->info.service = c->service;
    c->info.key = c->run.key;
    c->info.group = c->run.group;
    if (!stet__id_is_zero(c->run.parent)) {
        stet__id_text(c->parent_text, STET__ID_RUN, c->run.parent);
        c->info.parent = c->parent_text;
    }
    c->info.parent_step = c->run.parent_step;
    c->info.child_key = c->run.child_key;
    if (c->run.traceparent != NULL) {
        stet__traceparent_of(c->trace_text, c->run.traceparent, c->run.id);
        c->info.traceparent = c->trace_text;
        c->info.tracestate = c->run.tracestate;
    }
    if (!stet__id_is_zero(c->run.retry_of)) {
        stet__id_text(c->retried_text, STET__ID_RUN, c->run.retry_of);
        c->retried = (stet_dependency){ c->retried_text, c->run.is_fork ? "fork" : "retry" };
        c->info.depended_on = &c->retried;
        c->info.n_depended_on = 1;
    }
    c->info.attempt = stet__run_attempt(&c->run);
    c->info.attempts_max = (uint32_t)c->run.retry.attempts;
    c->info.created_ms = c->run.created_ms;
    c->info.deadline_ms = c->run.deadline_ms;
    c->info.generation = c->run.generation;
    stet__rng_seed(&c->rng, stet__hash64(c->run.id.bytes, sizeof c->run.id.bytes,
                                         (STET__MUTANT(random_anew) ? 7 + c->run.epoch : 7) + c->run.generation * 0x10001));
}

static int
host_load(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet_run_row row;
    stet__fact   extra;
    stet__page   page;
    uint64_t     bad;
    int          err;

    stet__run_init(&c->run, &c->arena, claim->run);
    if (claim->preload.data != NULL) {
        stet_bytes in = claim->preload;
        stet__fact fact;

        while ((err = stet__fact_decode(&fact, &in)) == STET_OK) {
            fact.revision = c->run.journal + 1;
            if ((err = stet__run_apply(&c->run, &fact)) != STET_OK || (err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
                return err;
        }
        claim->has_lane = stet__run_has_lane(&c->run);
        return err == STET_END ? STET_OK : err;
    }
    if ((err = stet__load_row_page(e, claim->run, &c->arena, &row, &extra, false, &page)) != STET_OK)
        return err;
    /* A grant may be old news: what the sweep took up was ours when it asked. Nothing of this claim would be with the
     * store before its first body, so nobody else would tell. */
    if (!claim->is_guess && (row.session != claim->session || row.epoch != claim->epoch))
        return stet__fail(STET_EFENCED, "another worker owns this run now");
    claim->has_lane = row.lane != NULL;
    atomic_store(&c->inbox_known, row.inbox);
    return stet__load_facts_page(e, &c->run, &c->journal, &row, &page, &bad);
}

/* Its handler was paused while the unit that asked for work was on its way, or while it was read. */
static bool
host_is_held(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);

    return stet__is_held(claim->engine, c->run.handler) && !STET__MUTANT(hold_passed);
}

/* Cases in which the handler is not entered: decided here, recorded by stet__host_end(). */
static void
host_judge(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    bool         was_executed = c->run.epoch > 1 || c->journal.rows.used > 0;

    c->was_stopped = c->run.stop_code != 0;
    if (c->run.lost >= (uint32_t)e->config.lost_max) {
        claim->verdict = STET__FACT_STUCK;
        c->stuck_code = STET_ELOST;
        c->stuck_text = stet__arena_printf(
            &c->arena, "%u worker%s died while executing it%s%s; `unstick` lets it try again",
            c->run.lost, c->run.lost == 1 ? "" : "s",
            c->run.risks != NULL && c->run.risks->step ? ", last in step " : "",
            c->run.risks != NULL && c->run.risks->step ? c->run.risks->step : "");
    } else if (c->run.stop_code != 0 && !was_executed)
        claim->verdict = c->run.stop_code == STET_EEXPIRED ? STET__FACT_EXPIRED : STET__FACT_CANCELLED;
    else if (c->run.deadline_ms != 0 && stet__store_now(e) >= c->run.deadline_ms && !was_executed)
        claim->verdict = STET__FACT_EXPIRED;
    else if (c->run.awaits_help && !STET__MUTANT(told_stopped)) /* a caller that did not know how it ended woke it to be stopped */
        claim->verdict = STET__FACT_COMPENSATION_FAILED;
    if (claim->verdict != 0 || (c->run.is_paused && !STET__MUTANT(pause_unheld)) || c->run.is_failed || host_is_held(c))
        c->latch = STET_SUSPENDED;
}

/* Who started it did not have the handler, so nobody could tell: without a key an object has no state, and with one
 * a service would write some. In place of the handler, before any body. */
static int
host_misplaced(stet_ctx *c, stet_bytes input)
{
    (void)input;
    if (c->run.is_object)
        return stet_fail(c, STET_EKEY, "%s belongs to a service, which has no keys; start it without one", c->run.handler);
    return stet_fail(c, STET_EKEY, "%s belongs to an object: start it with the key of the object", c->run.handler);
}

int
stet__host_begin(stet_ctx *c)
{
    stet__claim   *claim = host_claim(c);
    stet_engine   *e = claim->engine;
    stet__handler *h;
    int            err = host_load(c);

    /* Whoever took that in removed the timers and marks, and stopped the runs. Removed once more, by whatever this execution
     * records, the mark of a later wait would go: there is one for all decisions of a run. */
    c->journal.spared = c->journal.orphans = NULL;
    claim->begun_ms = stet__store_now(e);
    if (err != STET_OK)
        claim->is_refused = true; /* half a picture of the journal is none */
    if (err == STET_OK && (h = stet__handler_find(e, c->run.handler)) == NULL)
        err = stet__fail(STET_ENOHANDLER, "%s is not served here", c->run.handler);
    if (err == STET_OK && host_is_held(c)) { /* it is given back as it is */
        claim->is_refused = true;
        c->latch = STET_SUSPENDED;
        return STET_OK;
    }
    /* A unit that resumes a run has its claim and the timer that ended the wait; nobody has seen that. */
    c->passed = c->run.epoch == claim->epoch ? c->journal.known : c->journal.order;
    if (err == STET_OK) {
        claim->handler = h;
        c->fn = h->is_object == c->run.is_object ? h->fn : host_misplaced;
        c->rolls_back = h->rolls_back;
        c->is_shared = h->is_shared;
        stet__host_info(c);
        if (atomic_load(&c->inbox_known) > c->run.taken || atomic_load(&c->has_news))
            err = stet__host_refresh(c);
        c->info.attempt = stet__run_attempt(&c->run); /* a rewind lets it count anew */
    }
    if (err == STET_OK)
        host_judge(c);
    else {
        if (err == STET_ECORRUPT && c->stuck_code == 0) {
            c->stuck_code = STET_ECORRUPT;
            c->stuck_text = stet__arena_str(&c->arena, stet_last_error());
        }
        stet__log_store(e, &claim->run, c->run.handler, err, "cannot be executed");
        (void)stet__ctx_latch(c, err);
    }
    return STET_OK;
}
