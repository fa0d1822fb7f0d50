/* The stop mark: a value in a store that keeps work and input out of it while it is moved (move.c),
 * and afterwards.
 *
 * It holds because everybody asks for it on his own road:
 *   workers   open their session first and look for the mark then; the mover puts the mark first
 *             and looks for sessions then. One of the two sees the other, and without a session
 *             nothing is claimed or recorded. It goes on when there is no session at all, not even
 *             a dead one: one that had expired when it was looked at may have been renewed by a
 *             write that was on its way, but not one that was removed.
 *   callers   (starts, resolves, cancels, repairs …) carry the mark's absence as a condition of
 *             their unit. So do timers that fire and retention, which need no session either.
 *   opening   a target that is not complete is refused, because what can be read there is not the
 *             truth yet.
 * It is a baseline, so a store keeps it as safe as facts. Who put it, and why, is in its writer:
 * the move's ID, and the phase as revision; the mover's own units carry that as their condition.
 */
#include <string.h>

#include "engine/engine.h"

static const char stop_key[] = "stop";

stet_bytes
stet__stop_key(void)
{
    return stet_text(stop_key);
}

int
stet__stop_read(stet_store *store, stet__arena *arena, stet__stop *stop)
{
    stet_value value = { 0 };
    int        err = store->ops->value(store, STET__SPACE_BASE_MOVE, stet__stop_key(), &value);

    memset(stop, 0, sizeof *stop);
    if (err != STET_OK)
        return err == STET_ENOTFOUND ? STET_OK : err;
    stop->phase = (stet__stop_phase)value.revision;
    stop->move = value.run;
    if (value.data.len >= sizeof stop->origin.bytes) {
        memcpy(stop->origin.bytes, value.data.data, sizeof stop->origin.bytes);
        stop->peer =
            stet__arena_copy(arena, (const char *)value.data.data + sizeof stop->origin.bytes,
                             value.data.len - sizeof stop->origin.bytes);
    } else
        stop->peer = "";
    stet__free(store->alloc, (void *)(uintptr_t)value.data.data);
    return stop->peer != NULL ? STET_OK : stet__fail(STET_ENOMEM, "out of memory");
}

static int
stop_say(const char *url, const stet__stop *stop)
{
    switch (stop->phase) {
    case STET__STOP_NONE: return STET_OK;
    case STET__STOP_OUT:
        return stet__fail(
            STET_EMOVED,
            "%s is being moved to %s and takes no work; run `stet move` again to finish it, or "
            "with --undo to call it off",
            url, stop->peer);
    case STET__STOP_GONE:
        return stet__fail(STET_EMOVED, "%s was moved to %s; use that, this one can only be read",
                          url, stop->peer);
    case STET__STOP_IN: break;
    }
    return stet__fail(
        STET_EMOVED,
        "%s is being filled from %s and is not complete; run `stet move` again to finish it", url,
        stop->peer);
}

int
stet__stop_check(stet_engine *e, stet__stop *stop)
{
    stet__arena arena;
    int         err;

    stet__arena_init(&arena, &e->p->alloc);
    if ((err = stet__stop_read(e->store, &arena, stop)) == STET_OK)
        err = stop_say(e->url, stop);
    stet__arena_free(&arena);
    stop->peer = NULL;
    return err;
}

bool
stet__stop_guard(stet_engine *e, stet__work *w)
{
    bool       is_ours = e->stop_phase != STET__STOP_NONE;
    stet_cond *cond =
        stet__work_cond(w, is_ours ? STET_COND_WRITER : STET_COND_VALUE, e->stop_move);

    if (cond == NULL)
        return false;
    cond->space = STET__SPACE_BASE_MOVE;
    cond->key = stet__stop_key();
    cond->number = is_ours ? e->stop_phase : 0;
    w->guard = (uint32_t)w->unit.n_conds;
    return true;
}

int
stet__stop_result(const stet__work *w, const stet_outcome *outcome)
{
    if (outcome->result == STET_ECONFLICT && w->guard > 0 && outcome->cond == w->guard - 1)
        return STET_EMOVED;
    return outcome->result;
}

int
stet__stop_refused(stet_engine *e)
{
    stet__stop stop;

    if (e->stop_phase == STET__STOP_NONE && stet__stop_check(e, &stop) == STET_EMOVED)
        return STET_EMOVED;
    /* Gone again meanwhile, or not to be read now: nothing was written all the same. */
    return stet__fail(STET_EMOVED, "%s is being moved; nothing was changed", e->url);
}
