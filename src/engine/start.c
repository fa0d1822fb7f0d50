/* Starting runs: everything a caller can get wrong, then one unit.
 *
 * The run, its first fact, its idempotency key, labels, lane, deadline and, if this process has room,
 * its claim become durable together.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define START_LABELS_MAX 32
#define START_KEY_MAX 512
#define START_SAID_MAX 1000
#define START_SHARED_US 5000000 /* how long what others say of a handler is believed */
#define START_TIME_MAX_MS 253402300800000 /* the year 10000 */

void
stet_start_options_init(stet_start_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

const char *
stet__lane_name(stet__arena *arena, const char *handler, const char *key)
{
    const char *dot = strchr(handler, '.');

    return stet__arena_printf(arena, "%.*s/%s", (int)(dot != NULL ? dot - handler : (long)strlen(handler)), handler, key);
}

bool
stet__idem_key(stet__arena *arena, stet_bytes *out, stet_bytes handler, stet_bytes key, stet_bytes idem)
{
    size_t len = handler.len + 1 + key.len + 1 + idem.len;
    char  *at = stet__arena_get0(arena, len + 1);

    if (at == NULL)
        return false;
    memcpy(at, handler.data, handler.len);
    if (key.len > 0)
        memcpy(at + handler.len + 1, key.data, key.len);
    if (idem.len > 0)
        memcpy(at + handler.len + 1 + key.len + 1, idem.data, idem.len);
    out->data = at;
    out->len = len;
    return true;
}

/* ---- checking ------------------------------------------------------------------------------------ */

static int
start_list(stet_engine *e, const char *service, stet__buf *out)
{
    size_t len = strlen(service);

    for (size_t i = 0; i < e->n_handlers; i++)
        if (strncmp(e->handlers[i].name, service, len) == 0 && e->handlers[i].name[len] == '.')
            stet__buf_printf(out, "%s%s", out->len > 0 ? ", " : "", e->handlers[i].name);
    return (int)out->len;
}

/* A worker that starts runs it does not serve says so, once for each handler. */
static void
start_say_elsewhere(stet_engine *e, const char *name)
{
    bool is_new;

    stet__lock(e->p, &e->lock);
    is_new = e->life == STET__LIFE_STARTED && (e->config.roles & STET_ROLE_WORKER) && e->said.used < START_SAID_MAX &&
             stet__map_find(&e->said, name, strlen(name)) == NULL && stet__map_put(&e->said, name, strlen(name), e) == STET_OK;
    stet__unlock(e->p, &e->lock);
    if (is_new)
        stet__log(e, STET_LOG_INFO, NULL, name, NULL, 0, "this worker does not serve %s; a worker elsewhere has to", name);
}

/* "service.handler", and known if its service is served here; else what the store says of it counts. */
static int
start_handler(stet_engine *e, const char *name, stet__policy *policy)
{
    char           service[STET__NAME_MAX + 1];
    const char    *dot = name != NULL ? strchr(name, '.') : NULL;
    stet__service *s;
    stet__handler *h;
    stet__buf      list;
    int            err;

    if (dot == NULL || strlen(name) > 2 * STET__NAME_MAX + 1 || (size_t)(dot - name) >= sizeof service)
        return stet__fail(STET_ENAME, "\"%.140s\" is no handler: write service.handler, like orders.checkout",
                          name != NULL ? name : "");
    memcpy(service, name, (size_t)(dot - name));
    service[dot - name] = '\0';
    if ((err = stet__part_check("service", service)) != STET_OK || (err = stet__part_check("handler", dot + 1)) != STET_OK)
        return err;
    if ((h = stet__handler_find(e, name)) != NULL) {
        stet__policy_of(h, policy);
        return STET_OK;
    }
    for (s = e->services; s != NULL && strcmp(s->name, service) != 0; s = s->next)
        ;
    if (s == NULL) {
        start_say_elsewhere(e, name);
        return stet__policy_elsewhere(e, name, policy);
    }
    stet__buf_init(&list, &e->p->alloc);
    (void)start_list(e, service, &list);
    err = stet__fail(STET_ENOHANDLER, "service %s has no handler %s; it has %s", service, dot + 1, stet__buf_cstr(&list));
    stet__buf_free(&list);
    return err;
}

static int
start_key(const stet__policy *policy, const char *handler, const char *key)
{
    if (key != NULL && (key[0] == '\0' || strlen(key) > START_KEY_MAX))
        return stet__fail(STET_EKEY, "%s: a key has 1 to %d bytes", handler, START_KEY_MAX);
    if (policy->is_known && policy->is_object && key == NULL)
        return stet__fail(STET_EKEY, "%s belongs to an object: give the key of the object", handler);
    if (policy->is_known && !policy->is_object && key != NULL)
        return stet__fail(STET_EKEY, "%s belongs to a service, which has no keys; leave key away", handler);
    return STET_OK;
}

static int
start_span(const char *handler, const char *what, const char *text, int64_t ms, bool may_be_nothing, int64_t *out)
{
    *out = 0;
    if (text != NULL && (!may_be_nothing || stet_duration_parse(out, text) != STET_OK))
        return stet__span_parse(out, handler, what, text);
    if (text != NULL)
        return STET_OK;
    if (ms < 0)
        return stet__fail(STET_EDURATION, "%s: %s cannot be negative", handler, what);
    *out = ms;
    return STET_OK;
}

static int
start_times(stet__start *s, const stet__policy *policy, const char *handler, const stet_start_options *o, int64_t now_ms)
{
    int64_t delay_ms, timeout_ms, retention_ms;
    int     err;

    if ((err = start_span(handler, "delay", o->delay, o->delay_ms, true, &delay_ms)) != STET_OK ||
        (err = start_span(handler, "timeout", o->timeout, o->timeout_ms, false, &timeout_ms)) != STET_OK ||
        (err = start_span(handler, "retention", o->retention, 0, false, &retention_ms)) != STET_OK)
        return err;
    if (o->run_at_ms < 0 || o->deadline_ms < 0 || o->run_at_ms > START_TIME_MAX_MS ||
        o->deadline_ms > START_TIME_MAX_MS || delay_ms > START_TIME_MAX_MS || timeout_ms > START_TIME_MAX_MS)
        return stet__fail(STET_EINVAL, "%s: a time outside the years 1970 to 9999", handler);
    if (timeout_ms == 0)
        timeout_ms = policy->timeout_ms;
    if (retention_ms == 0)
        retention_ms = policy->retention_ms;
    s->due_ms = o->run_at_ms > 0 ? o->run_at_ms : stet__time_add(now_ms, delay_ms);
    if (s->due_ms < now_ms)
        s->due_ms = now_ms;
    s->fact.until_ms = s->due_ms > now_ms ? s->due_ms : 0;
    s->fact.deadline_ms = o->deadline_ms > 0 ? o->deadline_ms : timeout_ms > 0 ? stet__time_add(now_ms, timeout_ms) : 0;
    s->fact.retention_ms = retention_ms;
    return STET_OK;
}

static int64_t
start_pick(int64_t call, int64_t handler, int64_t config)
{
    return call > 0 ? call : handler > 0 ? handler : config;
}

int
stet__retry_check(const char *handler, const stet_retry *r)
{
    if (r->attempts < 0 || r->first_ms < 0 || r->max_ms < 0 || r->factor_percent < 0 ||
        r->jitter_percent < STET_NONE || r->jitter_percent > 100)
        return stet__fail(STET_EINVAL, "%s: a retry policy with a value out of range", handler);
    if (r->first_ms > STET__DURATION_MAX_MS || r->max_ms > STET__DURATION_MAX_MS)
        return stet__fail(STET_EINVAL, "%s: a retry policy that waits longer than 10,000 years", handler);
    return STET_OK;
}

static int
start_retry(stet_engine *e, stet__fact *f, const stet__policy *policy, const char *handler, const stet_retry *r)
{
    const stet_retry *hr = &policy->retry;
    int               err = stet__retry_check(handler, r);

    if (err != STET_OK)
        return err;
    f->attempts_max = start_pick(r->attempts, hr->attempts, e->config.run_attempts);
    f->retry_first_ms = start_pick(r->first_ms, hr->first_ms, e->config.retry_first_ms);
    f->retry_max_ms = start_pick(r->max_ms, hr->max_ms, e->config.retry_max_ms);
    f->retry_factor = start_pick(r->factor_percent, hr->factor_percent, e->config.retry_factor_percent);
    f->retry_jitter = r->jitter_percent == STET_NONE || (r->jitter_percent == 0 && hr->jitter_percent == STET_NONE)
                          ? 0
                          : start_pick(r->jitter_percent, hr->jitter_percent, e->config.retry_jitter_percent);
    if (f->retry_max_ms < f->retry_first_ms)
        f->retry_max_ms = f->retry_first_ms;
    return STET_OK;
}

static int
start_labels(stet__arena *arena, stet__fact *f, const char *handler, const char *const *labels)
{
    size_t total = 0, n = 0;
    char  *at;

    for (; labels != NULL && labels[n] != NULL; n++) {
        const char *equal = strchr(labels[n], '=');

        if (equal == NULL || equal == labels[n] || strlen(labels[n]) > 256 || n >= START_LABELS_MAX)
            return stet__fail(STET_ENAME, "%s: label \"%.64s\": write name=value, at most %d labels of 256 bytes", handler,
                              labels[n], START_LABELS_MAX);
        total += strlen(labels[n]) + 1;
    }
    if (n == 0)
        return STET_OK;
    if ((at = stet__arena_get(arena, total)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    f->labels.data = at;
    f->labels.len = total - 1;
    for (size_t i = 0; i < n; i++) {
        memcpy(at, labels[i], strlen(labels[i]) + 1);
        at += strlen(labels[i]) + 1;
    }
    return STET_OK;
}

static int
start_text(const char *handler, const char *what, const char *text)
{
    if (text != NULL && (text[0] == '\0' || strlen(text) > START_KEY_MAX))
        return stet__fail(STET_ENAME, "%s: %s has 1 to %d bytes", handler, what, START_KEY_MAX);
    return STET_OK;
}

static int
start_trace(stet__fact *f, const char *handler, const stet_start_options *o)
{
    if (o->traceparent != NULL && !stet__traceparent_is_legal(o->traceparent))
        return stet__fail(STET_EINVAL,
                          "%s: \"%.64s\" is no traceparent: write 00-(32 digits)-(16 digits)-(2 digits), "
                          "hexadecimal in lower case, as W3C Trace Context has it",
                          handler, o->traceparent);
    if (o->tracestate != NULL && (o->traceparent == NULL || !stet__tracestate_is_legal(o->tracestate)))
        return stet__fail(STET_EINVAL, "%s: a tracestate has 1 to %u printable characters and comes with a traceparent",
                          handler, STET__TRACESTATE_MAX);
    if (o->traceparent != NULL)
        f->traceparent = stet_text(o->traceparent);
    if (o->tracestate != NULL)
        f->tracestate = stet_text(o->tracestate);
    return STET_OK;
}

/* That of the parent, in the arena. */
static int
start_trace_inherit(stet__arena *arena, stet__fact *f, const stet__run *parent)
{
    char        text[STET__TRACEPARENT_LEN + 1];
    const char *copy, *state = NULL;

    if (f->traceparent.data != NULL || parent->traceparent == NULL)
        return STET_OK;
    stet__traceparent_of(text, parent->traceparent, parent->id);
    if ((copy = stet__arena_str(arena, text)) == NULL ||
        (parent->tracestate != NULL && (state = stet__arena_str(arena, parent->tracestate)) == NULL))
        return stet__fail(STET_ENOMEM, "out of memory");
    f->traceparent = stet_text(copy);
    if (state != NULL)
        f->tracestate = stet_text(state);
    return STET_OK;
}

typedef struct start_look {
    const char *handler;
    bool        is_shared;
} start_look;

static int
start_on_session(void *arg, const stet_session_row *row)
{
    start_look *l = arg;
    stet_bytes  in = row->info;
    stet__fact  info;
    size_t      len = strlen(l->handler);

    if (row->is_dead || stet__fact_decode(&info, &in) != STET_OK || info.labels.data == NULL)
        return STET_OK;
    for (const char *at = info.labels.data, *end = at + info.labels.len; at < end;) {
        size_t n = strnlen(at, (size_t)(end - at));

        l->is_shared = l->is_shared || (n == len && memcmp(at, l->handler, n) == 0);
        at += n + 1;
    }
    return STET_OK;
}

/* Of a handler that others serve and the store says nothing of: what the living say, asked for now and then. If nobody
 * lives who could say it, the run waits for its turn as any other: that is late, and never wrong. */
static bool
start_is_shared(stet_engine *e, const char *handler)
{
    start_look l = { .handler = handler };
    int64_t    now_us = stet__mono_us(e->p);
    uintptr_t  known;

    stet__lock(e->p, &e->lock);
    known = (uintptr_t)stet__map_find(&e->shared, handler, strlen(handler));
    stet__unlock(e->p, &e->lock);
    if ((int64_t)(known >> 1) > now_us)
        return (known & 1) != 0;
    if (e->store->ops->sessions(e->store, start_on_session, &l) != STET_OK)
        return false;
    known = (uintptr_t)(now_us + START_SHARED_US) << 1 | l.is_shared;
    stet__lock(e->p, &e->lock);
    if (e->shared.used < START_SAID_MAX || stet__map_find(&e->shared, handler, strlen(handler)) != NULL)
        (void)stet__map_put(&e->shared, handler, strlen(handler), (void *)known);
    stet__unlock(e->p, &e->lock);
    return l.is_shared;
}

int
stet__start_check(stet_engine *e, stet__arena *arena, stet__start *s, const char *handler, stet_bytes input,
                  const stet_start_options *options)
{
    static const stet_start_options none = { .size = sizeof none };
    const stet_start_options       *o = options != NULL ? options : &none;
    stet__policy                    policy;
    int                             err;

    if (o->size != sizeof *o)
        return stet__fail(STET_EINVAL, "stet_start_options.size is %zu; use STET_START(…) or stet_start_options_init()",
                          o->size);
    if ((err = start_handler(e, handler, &policy)) != STET_OK || (err = start_key(&policy, handler, o->key)) != STET_OK ||
        (err = stet__start_fill(e, arena, s, &policy, handler, input, o)) != STET_OK)
        return err;
    if (!policy.is_known && o->key != NULL && start_is_shared(e, handler))
        s->fact.flags |= STET__FACT_SHARED;
    return STET_OK;
}

int
stet__start_fill(stet_engine *e, stet__arena *arena, stet__start *s, const stet__policy *policy, const char *handler,
                 stet_bytes input, const stet_start_options *o)
{
    int64_t now_ms = stet__store_now(e);
    int     err;

    memset(s, 0, sizeof *s);
    if ((err = start_text(handler, "an idempotency key", o->idempotency_key)) != STET_OK ||
        (err = start_text(handler, "a fairness group", o->group)) != STET_OK ||
        (err = start_text(handler, "a child key", o->child_key)) != STET_OK ||
        (err = start_times(s, policy, handler, o, now_ms)) != STET_OK ||
        (err = start_retry(e, &s->fact, policy, handler, &o->retry)) != STET_OK ||
        (err = start_trace(&s->fact, handler, o)) != STET_OK ||
        (err = start_labels(arena, &s->fact, handler, o->labels)) != STET_OK)
        return err;
    if (input.data == NULL && input.len > 0)
        return stet__fail(STET_EINVAL, "%s: an input of %zu bytes at no address", handler, input.len);
    if ((int64_t)input.len > e->config.payload_bytes_max)
        return stet__fail(STET_ETOOBIG, "%s: an input of %zu bytes; the limit is payload_bytes_max, %lld", handler,
                          input.len, (long long)e->config.payload_bytes_max);
    s->run = stet__new_id(e);
    if (o->run != NULL && (err = stet__id_parse(&s->run, STET__ID_RUN, o->run->text)) != STET_OK)
        return err;
    s->fact.kind = STET__FACT_STARTED;
    s->fact.time_ms = now_ms;
    s->fact.number = stet__mono_us(e->p); /* orders starts of one millisecond, should their lane be rebuilt */
    s->fact.name = stet_text(handler);
    s->fact.value = input.data != NULL ? input : stet_text("");
    s->fact.priority = o->priority;
    if (o->key != NULL) {
        s->fact.key = stet_text(o->key);
        s->fact.flags |= STET__FACT_OBJECT;
        if (policy->is_shared)
            s->fact.flags |= STET__FACT_SHARED;
    }
    if (o->group != NULL)
        s->fact.group = stet_text(o->group);
    if (o->idempotency_key != NULL)
        s->fact.idempotency_key = stet_text(o->idempotency_key);
    return STET_OK;
}

/* ---- the unit ------------------------------------------------------------------------------------ */

static bool
start_op_labels(stet__work *w, const stet__fact *f, stet_id run)
{
    const char *at = f->labels.data, *end = at != NULL ? at + f->labels.len : NULL;

    while (at != NULL && at < end) {
        size_t   len = strnlen(at, (size_t)(end - at));
        stet_op *op = stet__work_op(w, STET_OP_VALUE_PUT, run);
        char    *key = stet__arena_get(&w->arena, len + 1 + sizeof run.bytes);

        if (op == NULL || key == NULL)
            return false;
        memcpy(key, at, len);
        key[len] = '\0';
        memcpy(key + len + 1, run.bytes, sizeof run.bytes);
        op->space = STET__SPACE_LABEL;
        op->key = (stet_bytes){ key, len + 1 + sizeof run.bytes };
        op->data = stet_text("");
        op->number = 1;
        at += len + 1;
    }
    return true;
}

static bool
start_row(stet__work *w, stet_run_row *row, const stet__fact *f, stet_id run)
{
    stet__fact extra = { 0 };

    row->id = run;
    row->handler = stet__arena_copy(&w->arena, f->name.data, f->name.len);
    if (f->key.data != NULL && (row->key = stet__arena_copy(&w->arena, f->key.data, f->key.len)) == NULL)
        return false;
    if (f->group.data != NULL && (row->group = stet__arena_copy(&w->arena, f->group.data, f->group.len)) == NULL)
        return false;
    row->status = STET_STATUS_PENDING;
    row->created_ms = f->time_ms;
    row->ended_ms = STET_NEVER;
    row->priority = (int32_t)f->priority;
    row->attempt = 1;
    extra.kind = STET__FACT_ROW;
    extra.deadline_ms = f->deadline_ms;
    extra.attempts_max = f->attempts_max;
    extra.retention_ms = f->retention_ms;
    extra.run = f->run;
    extra.retry_of = f->retry_of;
    extra.generation = f->generation;
    extra.time_ms = f->generation != 0 ? f->time_ms : 0;
    return row->handler != NULL && stet__work_fact(w, &row->extra, &extra);
}

bool
stet__start_ops(stet_engine *e, stet__work *w, const stet__fact *f, stet_id run, bool with_claim,
                const stet__buf *more_facts, uint32_t n_more)
{
    stet_run_row  *row = stet__arena_get0(&w->arena, sizeof *row);
    stet__started *started = stet__arena_get0(&w->arena, sizeof *started);
    stet_cond     *cond = stet__work_cond(w, STET_COND_JOURNAL, run);
    bool           is_delayed = f->until_ms != 0, has_lane = f->key.data != NULL && !(f->flags & STET__FACT_SHARED);
    stet__buf      facts;
    stet_op       *op;
    bool           ok;

    if (row == NULL || started == NULL || cond == NULL || !start_row(w, row, f, run))
        return false;
    stet__buf_init(&facts, w->arena.alloc);
    stet__fact_encode(&facts, f);
    if (more_facts != NULL)
        stet__buf_add(&facts, more_facts->data, more_facts->len);
    ok = !facts.failed && stet__work_bytes(w, &started->facts, stet__buf_bytes(&facts));
    stet__buf_free(&facts);
    if (!ok || (op = stet__work_op(w, STET_OP_RUN_PUT, run)) == NULL)
        return false;
    row->due_ms = has_lane ? STET_NEVER : is_delayed ? f->until_ms : f->time_ms;
    op->row = row;
    if (with_claim && !is_delayed && !has_lane)
        op->claimer = stet__work_claimer(e, w);
    if ((op = stet__work_op(w, STET_OP_FACTS, run)) == NULL)
        return false;
    op->number = 1;
    op->count = 1 + n_more;
    op->data = started->facts;
    started->run = run;
    started->next = w->started;
    w->started = started;
    if (is_delayed && f->until_ms < w->timer_ms)
        w->timer_ms = f->until_ms;
    if (has_lane && is_delayed && !stet__work_timer(w, run, f->until_ms, STET__TIMER_VISIBLE))
        return false;
    if (has_lane && !is_delayed) {
        if ((op = stet__work_op(w, STET_OP_LANE_ENTER, run)) == NULL ||
            (op->lane = stet__lane_name(&w->arena, row->handler, row->key)) == NULL)
            return false;
        op->status = STET_STATUS_PENDING;
        op->claimer = with_claim ? stet__work_claimer(e, w) : NULL;
    }
    if (f->deadline_ms != 0 && !stet__work_timer(w, run, f->deadline_ms, STET__TIMER_DEADLINE))
        return false;
    if (f->idempotency_key.data != NULL) {
        stet_bytes key;

        if (!stet__idem_key(&w->arena, &key, f->name, f->key, f->idempotency_key) ||
            (cond = stet__work_cond(w, STET_COND_VALUE, run)) == NULL ||
            (op = stet__work_op(w, STET_OP_VALUE_PUT, run)) == NULL)
            return false;
        cond->space = op->space = STET__SPACE_IDEM;
        cond->key = op->key = key;
        op->number = 1;
        if (STET__MUTANT(idem_unchecked))
            w->unit.n_conds--;
        if (!stet__work_bytes(w, &op->data, stet__id_bytes(&run)))
            return false;
    }
    return start_op_labels(w, f, run);
}

/* ---- lineage ------------------------------------------------------------------------------------- */

/* Parent, step NUL child key. */
bool
stet__child_key(stet__arena *arena, stet_bytes *out, stet_id parent, const char *step, const char *child_key)
{
    size_t len = sizeof parent.bytes + strlen(step) + 1 + strlen(child_key);
    char  *at = stet__arena_get(arena, len + 1);

    if (at == NULL)
        return false;
    memcpy(at, parent.bytes, sizeof parent.bytes);
    memcpy(at + sizeof parent.bytes, step, strlen(step) + 1);
    memcpy(at + sizeof parent.bytes + strlen(step) + 1, child_key, strlen(child_key));
    out->data = at;
    out->len = len;
    return true;
}

/* The parent must be open; the same parent, step and child key must mean the same handler. */
static int
start_lineage(stet_engine *e, stet__work *w, stet__start *s, const stet_start_options *o, stet_id *parent)
{
    stet__loaded l;
    stet_bytes   key;
    stet_cond   *cond;
    stet_op     *op;
    int          err;

    if ((err = stet__id_parse(parent, STET__ID_RUN, o->parent->text)) != STET_OK)
        return err;
    if ((err = stet__load(e, &l, *parent, false)) != STET_OK)
        return err;
    if (stet__run_is_terminal(&l.run))
        err = stet__fail(STET_EENDED, "parent %s has ended (%s) and takes no more children", o->parent->text,
                         stet_status_name(l.run.status));
    s->fact.attempt = stet__run_attempt(&l.run);
    if (err == STET_OK && (cond = stet__work_cond(w, STET_COND_JOURNAL, *parent)) == NULL)
        err = stet__fail(STET_ENOMEM, "out of memory");
    if (err == STET_OK) {
        cond->number = l.run.journal;
        err = start_trace_inherit(&w->arena, &s->fact, &l.run);
    }
    stet__loaded_free(&l);
    if (err != STET_OK)
        return err;
    s->fact.run = stet__id_bytes(parent);
    s->fact.parent_step = stet_text(o->parent_step != NULL ? o->parent_step : "");
    if (o->child_key == NULL)
        return STET_OK;
    s->fact.child_key = stet_text(o->child_key);
    if (!stet__child_key(&w->arena, &key, *parent, o->parent_step != NULL ? o->parent_step : "", o->child_key) ||
        (cond = stet__work_cond(w, STET_COND_VALUE, s->run)) == NULL ||
        (op = stet__work_op(w, STET_OP_VALUE_PUT, s->run)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    cond->space = op->space = STET__SPACE_CHILD;
    cond->key = op->key = key;
    op->number = 1;
    {
        char *data = stet__arena_get(&w->arena, sizeof s->run.bytes + s->fact.name.len);

        if (data == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        memcpy(data, s->run.bytes, sizeof s->run.bytes);
        memcpy(data + sizeof s->run.bytes, s->fact.name.data, s->fact.name.len);
        op->data = (stet_bytes){ data, sizeof s->run.bytes + s->fact.name.len };
    }
    return STET_OK;
}

/* ---- public -------------------------------------------------------------------------------------- */

/* The unit conflicted: find out what was there before. STET_ECONFLICT: nothing, try again. */
static int
start_existing(stet_engine *e, stet__arena *arena, const stet__start *s, const stet_start_options *o, stet_id *found)
{
    stet_value   v = { 0 };
    stet_bytes   key;
    stet_run_row row;
    stet__fact   extra;
    int          err = STET_ECONFLICT;

    if (s->fact.idempotency_key.data != NULL &&
        stet__idem_key(arena, &key, s->fact.name, s->fact.key, s->fact.idempotency_key) &&
        e->store->ops->value(e->store, STET__SPACE_IDEM, key, &v) == STET_OK) {
        *found = stet__fact_id(v.data);
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        return STET_OK;
    }
    if (s->fact.child_key.data != NULL &&
        stet__child_key(arena, &key, stet__fact_id(s->fact.run), (const char *)s->fact.parent_step.data,
                        (const char *)s->fact.child_key.data) &&
        e->store->ops->value(e->store, STET__SPACE_CHILD, key, &v) == STET_OK && v.data.len >= sizeof found->bytes) {
        memcpy(found->bytes, v.data.data, sizeof found->bytes);
        err = STET_OK;
        if (v.data.len - sizeof found->bytes != s->fact.name.len ||
            memcmp((const char *)v.data.data + sizeof found->bytes, s->fact.name.data, s->fact.name.len) != 0)
            err = stet__fail(STET_EMISMATCH, "child key %s of this parent and step belongs to a run of %.*s",
                             o->child_key, (int)(v.data.len - sizeof found->bytes),
                             (const char *)v.data.data + sizeof found->bytes);
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        return err;
    }
    if (o != NULL && o->run != NULL && stet__load_row(e, s->run, arena, &row, &extra) == STET_OK)
        return stet__fail(STET_EEXISTS, "run %s was started before", o->run->text);
    return STET_ECONFLICT;
}

/* Everything up to the unit. NULL: *err says why. */
static stet__work *
start_build(stet_engine *e, stet__start *s, stet_id *parent, const char *handler, stet_bytes input,
            const stet_start_options *o, bool with_claim, int *err)
{
    stet__work *w = stet__work_new(e, NULL, NULL);

    if (w == NULL) {
        *err = STET_ENOMEM;
        return NULL;
    }
    if ((*err = stet__start_check(e, &w->arena, s, handler, input, o)) == STET_OK && o != NULL && o->parent != NULL)
        *err = start_lineage(e, w, s, o, parent);
    if (*err == STET_OK) {
        stet__lock(e->p, &e->lock);
        *err = stet__start_ops(e, w, &s->fact, s->run, with_claim, NULL, 0) ? STET_OK : stet__fail(STET_ENOMEM, "out of memory");
        stet__unlock(e->p, &e->lock);
    }
    if (*err == STET_OK) {
        w->must_wait = o != NULL && o->run != NULL; /* an ID that may have been used */
        return w;
    }
    stet__work_free(w);
    return NULL;
}

static int
start_unknown(stet_engine *e, const stet__start *s)
{
    char id[STET_ID_TEXT_MAX];

    if (s->fact.idempotency_key.data != NULL)
        return stet__commit_unknown(e, "repeat with the same idempotency key to learn the outcome");
    stet__id_text(id, STET__ID_RUN, s->run);
    return stet__commit_unknown(e, "if the run was started it is %s (`show %s`); to be able to repeat a start, give it an "
                                   "idempotency key", id, id);
}

/* The unit was answered. STET_ECONFLICT: build it again. */
static int
start_finish(stet_engine *e, stet_run_id *run, const stet__start *s, const stet_start_options *o, int result)
{
    stet_id     found = s->run;
    stet__arena scratch;

    if (result == STET_ECONFLICT) {
        stet__arena_init(&scratch, &e->p->alloc);
        result = start_existing(e, &scratch, s, o, &found);
        stet__arena_free(&scratch);
        if (result == STET_OK && o->existed != NULL)
            *o->existed = true;
    }
    if (result == STET_EUNCERTAIN)
        return start_unknown(e, s);
    if (result == STET_OK && run != NULL)
        stet__id_text(run->text, STET__ID_RUN, found);
    return result;
}

static int
start_once(stet_engine *e, stet_run_id *run, const char *handler, stet_bytes input, const stet_start_options *o)
{
    stet__start s;
    stet_id     parent;
    int         err;
    stet__work *w = start_build(e, &s, &parent, handler, input, o, true, &err);

    if (w == NULL)
        return err;
    if (STET__MUTANT(idem_unchecked)) {
        stet_id found;

        if (start_existing(e, &w->arena, &s, o, &found) == STET_OK) {
            stet__work_free(w);
            return start_finish(e, run, &s, o, STET_ECONFLICT);
        }
    }
    if (STET__MUTANT(idem_apart) && s.fact.idempotency_key.data != NULL) {
        stet__work *apart = stet__work_new(e, NULL, NULL);
        stet_op    *op = apart != NULL ? stet__work_op(apart, STET_OP_VALUE_PUT, s.run) : NULL;

        if (op == NULL)
            return STET_ENOMEM;
        *op = w->ops[--w->unit.n_ops]; /* the last: no labels here */
        (void)stet__work_bytes(apart, &op->key, op->key);
        (void)stet__work_bytes(apart, &op->data, op->data);
        if ((err = stet__commit_sync(e, w, NULL)) != STET_OK) {
            stet__work_free(apart);
            return start_finish(e, run, &s, o, err);
        }
        (void)stet__commit_sync(e, apart, NULL);
        return start_finish(e, run, &s, o, STET_OK);
    }
    return start_finish(e, run, &s, o, stet__commit_sync(e, w, NULL));
}

static int
start_retrying(stet_engine *e, stet_run_id *run, const char *handler, stet_bytes input, const stet_start_options *o)
{
    int err;

    for (int i = 0; i < 100; i++)
        if ((err = start_once(e, run, handler, input, o)) != STET_ECONFLICT)
            return err;
    return stet__fail(STET_EBUSY, "%s: the parent or the key changed all the time; nothing was written", handler);
}

int
stet_start(stet_engine *e, stet_run_id *run, const char *handler, stet_bytes input, const stet_start_options *options)
{
    int err;

    if ((err = stet__alive(e, "stet_start")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_start", "stet_send")) != STET_OK)
        return err;
    if (options != NULL && options->existed != NULL)
        *options->existed = false;
    return start_retrying(e, run, handler, input, options);
}

typedef struct start_batch {
    stet__start *starts;
    stet_id     *parents;
    stet__work **works;
    int         *results;
} start_batch;

/* None of them was started. */
static int
start_none(stet_start_request *requests, size_t n, int code)
{
    for (size_t i = 0; i < n; i++)
        requests[i].code = code;
    return code;
}

int
stet_start_many(stet_engine *e, stet_start_request *requests, size_t n)
{
    stet__arena arena;
    start_batch b;
    int         err, first = STET_OK;

    if ((err = stet__alive(e, "stet_start_many")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_start_many", "stet_send")) != STET_OK)
        return start_none(requests, n, err);
    if (n > 100000) {
        err = stet__fail(STET_ETOOBIG, "stet_start_many takes at most 100000 requests");
        return start_none(requests, n, err);
    }
    stet__arena_init(&arena, &e->p->alloc);
    b.starts = stet__arena_get(&arena, n * sizeof *b.starts);
    b.parents = stet__arena_get(&arena, n * sizeof *b.parents);
    b.works = stet__arena_get(&arena, n * sizeof *b.works);
    b.results = stet__arena_get(&arena, n * sizeof *b.results);
    if (b.starts == NULL || b.parents == NULL || b.works == NULL || b.results == NULL) {
        stet__arena_free(&arena);
        return start_none(requests, n, stet__fail(STET_ENOMEM, "out of memory for %zu starts", n));
    }
    for (size_t i = 0; i < n; i++) {
        stet_start_request *r = &requests[i];

        if (r->options != NULL && r->options->existed != NULL)
            *r->options->existed = false;
        b.works[i] = start_build(e, &b.starts[i], &b.parents[i], r->handler, r->input, r->options, true, &r->code);
    }
    err = stet__commit_all(e, b.works, n, b.results, NULL);
    for (size_t i = 0; i < n; i++) {
        stet_start_request *r = &requests[i];

        if (b.works[i] != NULL) {
            r->code = err != STET_OK ? err
                                     : start_finish(e, &r->run, &b.starts[i], r->options, stet__commit_failed(e, b.results[i]));
            if (r->code == STET_ECONFLICT)
                r->code = start_retrying(e, &r->run, r->handler, r->input, r->options);
        }
        if (first == STET_OK)
            first = r->code;
    }
    stet__arena_free(&arena);
    return first;
}

/* ---- inside a transaction of the application ------------------------------------------------------- */

static int
start_in(stet_engine *e, stet_conn conn, stet_run_id *run, const char *handler, stet_bytes input,
         const stet_start_options *o)
{
    stet_outcome outcome = { 0 };
    stet__start  s;
    stet_id      parent;
    int          err;
    stet__work  *w = start_build(e, &s, &parent, handler, input, o, false, &err);

    if (w == NULL)
        return err;
    if (!stet__stop_guard(e, w)) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    stet__work_seal(w);
    if ((err = e->store->ops->apply_in(e->store, conn, &w->unit, &outcome)) == STET_OK &&
        (err = stet__stop_result(w, &outcome)) != STET_EMOVED)
        err = start_finish(e, run, &s, o, outcome.result);
    stet__work_free(w);
    if (err == STET_EMOVED)
        return stet__stop_refused(e);
    if (err == STET_ECONFLICT) /* used before, and not in what others can see */
        err = stet__fail(STET_ECONFLICT, "%s: its ID or idempotency key was used before in this transaction", handler);
    return err;
}

int
stet_start_in(stet_engine *e, stet_conn conn, stet_run_id *run, const char *handler, stet_bytes input,
              const stet_start_options *options)
{
    int err;

    if ((err = stet__alive(e, "stet_start_in")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_start_in", "stet_send")) != STET_OK)
        return err;
    if (options != NULL && options->existed != NULL)
        *options->existed = false;
    if (e->store->ops->apply_in == NULL)
        return stet__fail(STET_EUSAGE, "%s: this store has no transactions; use SQLite or PostgreSQL", handler);
    if (options != NULL && options->parent != NULL)
        return stet__fail(STET_EUSAGE, "%s: a run that is started in a transaction has no parent", handler);
    return start_in(e, conn, run, handler, input, options);
}

void
stet_engine_nudge(stet_engine *e)
{
    if (stet__alive(e, "stet_engine_nudge") != STET_OK)
        return;
    stet__hint_nudge(e);
    stet__lock(e->p, &e->lock); /* a hint is for the others */
    e->wants_claim = true;
    e->next_timer_ms = 0;
    e->next_sched_ms = 0;
    stet__keeper_poke(e);
    stet__unlock(e->p, &e->lock);
}

int
stet_run_id_make(stet_engine *e, stet_run_id *run)
{
    int err = stet__alive(e, "stet_run_id_make");

    if (err == STET_OK)
        stet__id_text(run->text, STET__ID_RUN, stet__new_id(e));
    return err;
}
