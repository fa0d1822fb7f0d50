/* A store that is away: said once when it goes and once when it is back, whoever meets it.
 *
 * A server that restarts fails every commit, lease and run that is under way, so each of them would
 * tell the same. The first failure tells, at the level of an error, what failed and what is done about it;
 * all others of the outage are told at debug level. What the commit path or the lease gets through ends it.
 * Each connection finds its own way back: a straggler shortly after that opens no new outage.
 *
 * Runs on: any thread, sometimes with engine->lock held.
 */
#include <stdarg.h>
#include <stdio.h>

#include "engine/engine.h"

#define AWAY_STRAGGLERS_US 5000000

/* Of the store as a whole: not of a unit, a run or the memory of this process. */
bool
stet__store_is_away(int err)
{
    return err == STET_EIO || err == STET_EPOISONED || err == STET_EUNCERTAIN ||
           err == STET_EBUSY || err == STET_EREADONLY || err == STET_EFULL;
}

static bool
away_is_straggler(stet_engine *e, int64_t now_us)
{
    int64_t back_us = atomic_load(&e->back_us);

    return back_us != 0 && now_us < back_us + AWAY_STRAGGLERS_US;
}

void
stet__log_store(stet_engine *e, const stet_id *run, const char *handler, int err, const char *fmt,
                ...)
{
    char       text[512], said[700];
    int64_t    here = 0, now_us = stet__mono_us(e->p);
    stet_level level = STET_LOG_ERROR;
    va_list    args;

    (void)snprintf(said, sizeof said, "%s", stet_last_error());
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (stet__store_is_away(err)) {
        level = STET_LOG_DEBUG;
        if (!away_is_straggler(e, now_us) &&
            atomic_compare_exchange_strong(&e->away_us, &here, now_us > 0 ? now_us : 1))
            stet__log(e, STET_LOG_ERROR, NULL, NULL, NULL, err,
                      "the store is away from now on: %s; it is tried again until it is back, "
                      "nothing new is begun, what is "
                      "under way is kept, and this is not said for each run",
                      said);
    }
    stet__log(e, level, run, handler, NULL, err, "%s: %s", text, said);
}

void
stet__store_back(stet_engine *e)
{
    int64_t away_us, now_us;

    if (atomic_load_explicit(&e->away_us, memory_order_relaxed) == 0)
        return;
    now_us = stet__mono_us(e->p);
    atomic_store(&e->back_us, now_us);
    if ((away_us = atomic_exchange(&e->away_us, 0)) != 0)
        stet__log(e, STET_LOG_INFO, NULL, NULL, NULL, STET_OK,
                  "the store is back; it was away for %lld.%lld s",
                  (long long)((now_us - away_us) / 1000000),
                  (long long)((now_us - away_us) / 100000 % 10));
}
