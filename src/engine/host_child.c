/* Children: checked and prepared here, started by the unit that records the call or send. */
#include <string.h>

#include "engine/host.h"

/* The keys this run and its callers hold, this run's own last. */
static int
host_held(stet_ctx *c, stet__fact *started)
{
    const char *own;
    size_t      len, own_len;
    char       *at;

    if (!stet__run_has_lane(&c->run)) {
        started->held = c->run.held;
        return STET_OK;
    }
    if ((own = stet__lane_name(&c->arena, c->run.handler, c->run.key)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    own_len = strlen(own);
    len = c->run.held.len + (c->run.held.len > 0 ? 1 : 0) + own_len;
    if ((at = stet__arena_get0(&c->arena, len + 1)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if (c->run.held.len > 0)
        memcpy(at, c->run.held.data, c->run.held.len);
    memcpy(at + len - own_len, own, own_len);
    started->held = (stet_bytes){ at, len };
    return STET_OK;
}

static int
host_check_deadlock(stet_ctx *c, const stet__fact *started, const char *handler)
{
    const char *lane, *at = started->held.data, *end = at != NULL ? at + started->held.len : NULL;
    stet__buf   chain;
    int         err = STET_OK;

    if (started->key.data == NULL || (started->flags & STET__FACT_SHARED) || at == NULL)
        return STET_OK;
    if ((lane = stet__lane_name(&c->arena, handler, started->key.data)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    stet__buf_init(&chain, &c->exec->p->alloc);
    for (; at < end; at += strnlen(at, (size_t)(end - at)) + 1) {
        stet__buf_printf(&chain, "%s%s", chain.len > 0 ? " -> " : "", at);
        if (strcmp(at, lane) == 0)
            err = STET_EDEADLOCK;
    }
    if (err != STET_OK)
        (void)stet__fail(err, "%s would wait for %s, which its own callers hold: %s -> %s; use stet_send", handler, lane,
                         stet__buf_cstr(&chain), lane);
    stet__buf_free(&chain);
    return err;
}

/* A misuse is the handler's to see. That the store could not say what the other handler asks for is not: nothing is recorded of
 * it, so a handler that went another way would not find it again in its next execution. No attempt is used. */
static int
host_child_refused(stet_ctx *c, int err)
{
    return stet_code_class(err) == STET_CLASS_USAGE || err == STET_EKIND || err == STET_ENOMEM
               ? err
               : stet__ctx_latch(c, STET_EIO);
}

int
stet__host_child(stet_ctx *c, stet_id *id, stet__fact *started, const char *handler, stet_bytes input, const stet_start_options *options,
           bool is_call)
{
    stet__claim *claim = host_claim(c);
    stet__start  s;
    stet_id     *parent;
    int          err;

    if ((err = stet__start_check(claim->engine, &c->arena, &s, handler, input, options)) != STET_OK)
        return host_child_refused(c, err);
    if (is_call && (err = host_held(c, &s.fact)) != STET_OK)
        return err;
    if (is_call && (err = host_check_deadlock(c, &s.fact, handler)) != STET_OK)
        return err;
    if ((parent = stet__arena_copy(&c->arena, &claim->run, sizeof claim->run)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if (s.fact.traceparent.data == NULL && c->info.traceparent != NULL) {
        s.fact.traceparent = stet_text(c->info.traceparent);
        if (c->info.tracestate != NULL)
            s.fact.tracestate = stet_text(c->info.tracestate);
    }
    *id = s.run;
    *started = s.fact;
    started->run = stet__id_bytes(parent);
    return STET_OK;
}

int
stet__host_child_existing(stet_ctx *c, const stet__fact *started, stet_id *existing)
{
    stet_engine *e = host_claim(c)->engine;
    stet_value   v = { 0 };
    stet_bytes   key;
    int          err;

    memset(existing, 0, sizeof *existing);
    if (!stet__idem_key(&c->arena, &key, started->name, started->key, started->idempotency_key))
        return stet__fail(STET_ENOMEM, "out of memory");
    err = e->store->ops->value(e->store, STET__SPACE_IDEM, key, &v);
    if (err == STET_ENOTFOUND)
        return STET_OK;
    if (err != STET_OK)
        return err;
    *existing = stet__fact_id(v.data);
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    return STET_OK;
}
