/* What handlers are and ask for, also where they are not registered.
 *
 * The unit that starts a run fixes its attempts, deadline and retention, and whether it needs a key; and it may be made
 * anywhere: by the plain command, an API node, a timer node, a worker of other handlers. So each worker leaves in the
 * store what it knows of its handlers, a value each (STET__SPACE_HANDLER), and who starts a run of a handler it does not
 * have goes by that.
 *
 * Invariants:
 *   1. An engine's own handlers come first: what the store says of them is not asked for.
 *   2. Only workers write, and only what is not there as they would write it. If two of them say different things, the
 *      one that was started last is heard.
 *   3. The values follow from no facts and no run needs them: one that cannot be read counts as absent, and the next
 *      worker that starts writes it anew.
 *
 * Locks: what is remembered is under engine->lock.
 */
#include <string.h>

#include "engine/engine.h"

#define POLICY_PAGE      256u
#define POLICY_TRIES     3
#define POLICY_NAMES_MAX 1000u
#define POLICY_KNOWN_US                                                                            \
    10000000 /* how long what the store says is believed: an API node starts thousands of runs a second */
#define POLICY_UNKNOWN_US                                                                          \
    1000000 /* … and that it says nothing: the first worker may just be starting */

void
stet__policy_of(const stet__handler *h, stet__policy *policy)
{
    *policy = (stet__policy){ .is_known = true,
                              .is_object = h->is_object,
                              .is_shared = h->is_shared,
                              .retry = h->retry,
                              .timeout_ms = h->timeout_ms,
                              .retention_ms = h->retention_ms };
}

/* ---- the value ------------------------------------------------------------------------------------ */

/* Without a time: a worker that starts again has nothing to write. */
static void
policy_encode(stet__buf *out, const stet__policy *p)
{
    stet__fact f = { .kind = STET__FACT_HANDLER };

    f.flags = (p->is_object ? STET__FACT_OBJECT : 0) | (p->is_shared ? STET__FACT_SHARED : 0);
    f.attempts_max = p->retry.attempts;
    f.retry_first_ms = p->retry.first_ms;
    f.retry_max_ms = p->retry.max_ms;
    f.retry_factor = p->retry.factor_percent;
    f.retry_jitter = p->retry.jitter_percent;
    f.deadline_ms = p->timeout_ms;
    f.retention_ms = p->retention_ms;
    stet__fact_encode(out, &f);
}

/* STET_ECORRUPT: nothing is known from it. */
static int
policy_decode(stet__policy *p, const char *handler, stet_bytes in)
{
    stet__fact f;
    int        err = stet__fact_decode(&f, &in);

    if (err == STET_OK && (f.kind != STET__FACT_HANDLER || in.len > 0))
        err = stet__fail(STET_ECORRUPT, "another record is in its place");
    if (err != STET_OK)
        return STET_ECORRUPT;
    *p = (stet__policy){ .is_known = true,
                         .is_object = (f.flags & STET__FACT_OBJECT) != 0,
                         .is_shared = (f.flags & STET__FACT_SHARED) != 0,
                         .retry = { (int)f.attempts_max, f.retry_first_ms, f.retry_max_ms,
                                    (int)f.retry_factor, (int)f.retry_jitter },
                         .timeout_ms = f.deadline_ms,
                         .retention_ms = f.retention_ms };
    if (p->timeout_ms >= 0 && p->retention_ms >= 0 &&
        stet__retry_check(handler, &p->retry) == STET_OK)
        return STET_OK;
    *p = (stet__policy){ 0 };
    return stet__fail(STET_ECORRUPT, "a value is out of range");
}

/* ---- what a worker tells -------------------------------------------------------------------------- */

typedef struct policy_own { /* of a handler that is registered here */
    stet_bytes data;        /* what it should be */
    uint64_t   version;     /* of what is there; 0: nothing */
    bool       is_same;
} policy_own;

typedef struct policy_look {
    stet_engine *e;
    stet__arena  arena;
    policy_own  *own; /* as e->handlers */
    size_t       rows;
    stet_bytes   after;
} policy_look;

static int
policy_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory");
}

static int
policy_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    policy_look *l = arg;

    l->rows++;
    l->after.len = key.len;
    if ((l->after.data = stet__arena_copy(&l->arena, key.data, key.len)) == NULL)
        return policy_no_memory();
    for (size_t i = 0; i < l->e->n_handlers; i++)
        if (strcmp(l->e->handlers[i].name, l->after.data) == 0) {
            l->own[i].version = value->version;
            l->own[i].is_same = value->data.len == l->own[i].data.len &&
                                memcmp(value->data.data, l->own[i].data.data, value->data.len) == 0;
        }
    return STET_OK;
}

static int
policy_look_at_all(policy_look *l)
{
    stet_store *store = l->e->store;
    int         err;

    do {
        stet_bytes after = l->after;

        l->rows = 0;
        err =
            store->ops->values(store, STET__SPACE_HANDLER, (stet_bytes){ NULL, 0 },
                               after.data != NULL ? &after : NULL, POLICY_PAGE, policy_on_value, l);
    } while (err == STET_OK && l->rows == POLICY_PAGE);
    return err;
}

static bool
policy_is_put(stet__work *w, const char *handler, const policy_own *own)
{
    stet_cond *cond = stet__work_cond(w, STET_COND_VALUE, (stet_id){ { 0 } });
    stet_op   *op = stet__work_op(w, STET_OP_VALUE_PUT, (stet_id){ { 0 } });

    if (cond == NULL || op == NULL || !stet__work_bytes(w, &op->key, stet_text(handler)) ||
        !stet__work_bytes(w, &op->data, own->data))
        return false;
    cond->space = op->space = STET__SPACE_HANDLER;
    cond->key = op->key;
    cond->number = own->version;
    return true;
}

/* One unit for all that is not there as it should be. STET_ECONFLICT: another worker was at it. */
static int
policy_write(policy_look *l)
{
    stet_engine *e = l->e;
    stet__work  *w = NULL;

    for (size_t i = 0; i < e->n_handlers; i++) {
        if (l->own[i].is_same)
            continue;
        if ((w == NULL && (w = stet__work_new(e, NULL, NULL)) == NULL) ||
            !policy_is_put(w, e->handlers[i].name, &l->own[i])) {
            stet__work_free(w);
            return policy_no_memory();
        }
    }
    return w != NULL ? stet__commit_sync(e, w, NULL) : STET_OK;
}

static int
policy_tell_once(stet_engine *e)
{
    policy_look l = { .e = e };
    int         err = STET_OK;

    stet__arena_init(&l.arena, &e->p->alloc);
    if ((l.own = stet__arena_get0(&l.arena, e->n_handlers * sizeof *l.own)) == NULL)
        err = policy_no_memory();
    for (size_t i = 0; err == STET_OK && i < e->n_handlers; i++) {
        stet__policy policy;
        stet__buf    data;

        stet__policy_of(&e->handlers[i], &policy);
        stet__buf_init(&data, &e->p->alloc);
        policy_encode(&data, &policy);
        l.own[i].data.len = data.len;
        if (data.failed ||
            (l.own[i].data.data = stet__arena_copy(&l.arena, data.data, data.len)) == NULL)
            err = policy_no_memory();
        stet__buf_free(&data);
    }
    if (err == STET_OK && (err = policy_look_at_all(&l)) == STET_OK)
        err = policy_write(&l);
    stet__arena_free(&l.arena);
    return err;
}

void
stet__policies_tell(stet_engine *e)
{
    int err = STET_ECONFLICT;

    if (e->n_handlers == 0 || !(e->config.roles & STET_ROLE_WORKER))
        return;
    for (int i = 0; i < POLICY_TRIES && err == STET_ECONFLICT; i++)
        err = policy_tell_once(e);
    if (err != STET_OK)
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, err,
                  "what this worker's handlers ask for could not be written, so runs that are "
                  "started elsewhere may not "
                  "get it until a worker is started again: %s",
                  err == STET_ECONFLICT ? "other workers write it all the time"
                                        : stet_last_error());
}

/* ---- what a starter knows -------------------------------------------------------------------------- */

typedef struct policy_known {
    int64_t      until_us; /* by our own clock */
    stet__policy policy;
    bool         is_bad; /* it cannot be read, and that was said */
} policy_known;

/* Lock held. */
static void
policy_forget_all(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *known;

    while (stet__map_next(&e->policies, &at, &key, &len, &known))
        stet__free(&e->p->alloc, known);
    stet__map_free(&e->policies);
    stet__map_init(&e->policies, &e->p->alloc);
}

void
stet__policies_free(stet_engine *e)
{
    policy_forget_all(e);
    stet__map_free(&e->policies);
}

/* True: it need not be asked for. Of those who find it old one asks, and the others go on with it meanwhile. */
static bool
policy_recall(stet_engine *e, const char *handler, stet__policy *policy, bool *has_old)
{
    int64_t       now_us = stet__mono_us(e->p);
    policy_known *known;
    bool          is_fresh = false;

    stet__lock(e->p, &e->lock);
    if ((known = stet__map_find(&e->policies, handler, strlen(handler))) != NULL) {
        *policy = known->policy;
        is_fresh = known->until_us > now_us;
        if (!is_fresh)
            known->until_us = now_us + POLICY_UNKNOWN_US;
    }
    *has_old = known != NULL;
    stet__unlock(e->p, &e->lock);
    return is_fresh;
}

/* True: that it is bad was not said yet. Without memory it is asked for again with the next start. */
static bool
policy_remember(stet_engine *e, const char *handler, const stet__policy *policy, bool is_bad)
{
    int64_t       now_us = stet__mono_us(e->p);
    policy_known *known;
    bool          was_bad = false;

    stet__lock(e->p, &e->lock);
    if ((known = stet__map_find(&e->policies, handler, strlen(handler))) == NULL) {
        if (e->policies.used >= POLICY_NAMES_MAX)
            policy_forget_all(e);
        if ((known = stet__get0(&e->p->alloc, sizeof *known)) != NULL &&
            stet__map_put(&e->policies, handler, strlen(handler), known) != STET_OK) {
            stet__free(&e->p->alloc, known);
            known = NULL;
        }
    }
    if (known != NULL) {
        was_bad = known->is_bad;
        *known = (policy_known){ now_us + (policy->is_known ? POLICY_KNOWN_US : POLICY_UNKNOWN_US),
                                 *policy, is_bad };
    }
    stet__unlock(e->p, &e->lock);
    return is_bad && !was_bad;
}

int
stet__policy_elsewhere(stet_engine *e, const char *handler, stet__policy *policy)
{
    stet_value v = { 0 };
    bool       has_old, is_bad = false;
    int        err;

    *policy = (stet__policy){ 0 };
    if (policy_recall(e, handler, policy, &has_old))
        return STET_OK;
    err = e->store->ops->value(e->store, STET__SPACE_HANDLER, stet_text(handler), &v);
    if (err != STET_OK && err != STET_ENOTFOUND)
        return has_old ? STET_OK
                       : err; /* what held ten seconds ago is nearer to the truth than nothing */
    *policy = (stet__policy){ 0 };
    if (err == STET_OK)
        is_bad = policy_decode(policy, handler, v.data) != STET_OK;
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    if (policy_remember(e, handler, policy, is_bad))
        stet__log(e, STET_LOG_WARN, NULL, handler, NULL, STET_ECORRUPT,
                  "what the store says of %s cannot be read (%s); its runs are started as if no "
                  "worker had told of it, "
                  "until one that has it is started again",
                  handler, stet_last_error());
    return STET_OK;
}

typedef struct policy_service {
    bool is_known, is_object;
} policy_service;

static int
policy_on_service(void *arg, stet_bytes key, const stet_value *value)
{
    policy_service *s = arg;
    stet__policy    policy;

    (void)key;
    s->is_known = true;
    /* One that cannot be read may be an object's: nothing is denied because of it. */
    s->is_object |= policy_decode(&policy, "a handler", value->data) != STET_OK || policy.is_object;
    return STET_OK;
}

int
stet__policy_service(stet_engine *e, const char *service, bool *is_known, bool *is_object)
{
    policy_service s = { 0 };
    stet__buf      prefix;
    int            err;

    for (size_t i = 0; i < e->n_handlers; i++)
        if (strcmp(e->handlers[i].service->name, service) == 0) {
            *is_known = true;
            *is_object = e->handlers[i].is_object;
            return STET_OK;
        }
    stet__buf_init(&prefix, &e->p->alloc);
    stet__buf_printf(&prefix, "%s.", service);
    err = prefix.failed ? policy_no_memory()
                        : e->store->ops->values(e->store, STET__SPACE_HANDLER,
                                                (stet_bytes){ prefix.data, prefix.len }, NULL,
                                                POLICY_PAGE, policy_on_service, &s);
    stet__buf_free(&prefix);
    *is_known = s.is_known;
    *is_object = s.is_object;
    return err;
}
