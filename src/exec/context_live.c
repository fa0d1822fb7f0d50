/* What can be asked of a run under way: functions a handler registers, over variables of its own.
 *
 * A registered function runs while its handler stands in a call of the context, so the variables
 * are there. It must not call the context: what it asked for would be recorded, or would wait, in
 * the middle of that call. Registering leaves no record: a replay comes to it again.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

#undef stet_on_query
#undef stet_on_update

/* ---- replies --------------------------------------------------------------------------------- */

void
stet__reply_init(stet_reply *reply, stet__alloc *alloc, int64_t most)
{
    memset(reply, 0, sizeof *reply);
    stet__buf_init(&reply->value, alloc);
    reply->most = most;
}

static int
reply_check(stet_reply *r)
{
    if (r->value.failed) {
        r->value.failed = false;
        r->value.len = 0;
        return stet_reply_fail(r, STET_ENOMEM, "out of memory for an answer");
    }
    if ((int64_t)r->value.len > r->most)
        return stet_reply_fail(r, STET_ETOOBIG,
                               "an answer of %zu bytes; the limit is payload_bytes_max, %lld",
                               r->value.len, (long long)r->most);
    return STET_OK;
}

int
stet_reply_set(stet_reply *r, stet_bytes value)
{
    if ((int64_t)value.len > r->most)
        return stet_reply_fail(r, STET_ETOOBIG,
                               "an answer of %zu bytes; the limit is payload_bytes_max, %lld",
                               value.len, (long long)r->most);
    r->value.len = 0;
    stet__buf_add(&r->value, value.data, value.len);
    return reply_check(r);
}

int
stet_reply_json(stet_reply *r, const char *fmt, ...)
{
    va_list args;
    int     err;

    r->value.len = 0;
    va_start(args, fmt);
    err = stet__json_vprintf(&r->value, fmt, args);
    va_end(args);
    return err == STET_OK ? reply_check(r) : stet_reply_fail(r, err, "%s", stet_last_error());
}

int
stet_reply_fail(stet_reply *r, int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
    return stet__fail(code, "%s", r->text);
}

/* ---- registering ----------------------------------------------------------------------------- */

stet__live *
stet__live_find(stet__live *first, const char *name)
{
    while (first != NULL && strcmp(first->name, name) != 0)
        first = first->next;
    return first;
}

/* In the order they were registered in; NULL: it was refused, and that is the context's failure. */
static stet__live *
live_register(stet_ctx *c, stet__live **first, const char *kind, const char *name, stet_reply_fn fn)
{
    stet__live *live, **end = first;
    size_t      n = 0;
    int         err;

    if ((err = stet__name_check(kind, name)) != STET_OK) {
        (void)stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
        return NULL;
    }
    if (fn == NULL) {
        (void)stet__ctx_fail(c, STET_EINVAL, 0, "there is no function to register", name, 0);
        return NULL;
    }
    if ((live = stet__live_find(*first, name)) != NULL)
        return live;
    for (; *end != NULL; end = &(*end)->next)
        n++;
    if (n == STET_LIVE_MAX) {
        (void)stet__ctx_fail(c, STET_ETOOBIG, 0,
                             "a run has at most 64 queries, and as many updates", name, 0);
        return NULL;
    }
    if ((live = stet__arena_get0(&c->arena, sizeof *live)) == NULL ||
        (live->name = stet__arena_str(&c->arena, name)) == NULL) {
        (void)stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for %s %s", kind, name));
        return NULL;
    }
    return *end = live;
}

static int
live_registered(stet_ctx *c)
{
    if (c->is_watched && c->exec->host->entered != NULL)
        c->exec->host->entered(c);
    return STET_OK;
}

int
stet_on_query(stet_ctx *c, const char *name, stet_reply_fn fn, void *arg)
{
    stet__live *live;
    int         err = stet__ctx_enter(c, "stet_on_query");

    if (err != STET_OK)
        return err;
    if ((live = live_register(c, &c->queries, "query", name, fn)) == NULL)
        return c->latch != 0 ? c->latch : c->failure.code;
    live->fn = fn;
    live->arg = arg;
    return live_registered(c);
}

int
stet_on_update(stet_ctx *c, const char *name, stet_reply_fn validate, stet_reply_fn apply,
               void *arg)
{
    stet__live *live;
    int         err = stet__ctx_enter(c, "stet_on_update");

    if (err != STET_OK)
        return err;
    if ((live = live_register(c, &c->updates, "update", name, apply)) == NULL)
        return c->latch != 0 ? c->latch : c->failure.code;
    live->validate = validate;
    live->fn = apply;
    live->arg = arg;
    return STET_OK;
}

/* ---- asking ---------------------------------------------------------------------------------- */

int
stet__live_enter(stet_ctx *c, const char *call)
{
    const char *callback = c->callback;

    if (callback != NULL)
        return stet__fail(STET_EUSAGE,
                          "%s: the function of %s cannot use the context; it sees the handler's "
                          "variables and answers with stet_reply_set()",
                          call, callback);
    if (c->exec->host->entered != NULL)
        c->exec->host->entered(c);
    return STET_OK;
}

void
stet__live_over(stet_ctx *c)
{
    c->queries = c->updates = NULL;
    c->is_watched = false;
}

int
stet__live_unknown(const stet__live *first, const char *kind, const char *name, stet_reply *reply)
{
    int len = snprintf(reply->text, sizeof reply->text, "this run has no %s %s%s", kind, name,
                       first != NULL ? "; it has " : "; its handler has declared none so far");

    for (; first != NULL && len > 0 && (size_t)len < sizeof reply->text; first = first->next)
        len += snprintf(reply->text + len, sizeof reply->text - (size_t)len, "%s%s", first->name,
                        first->next != NULL ? ", " : "");
    return STET_ENOTFOUND;
}

int
stet__live_call(stet_ctx *c, const char *kind, stet_reply_fn fn, void *arg, stet_bytes input,
                stet_reply *reply)
{
    bool was_watched = c->is_watched, was_inside = c->is_inside;
    int  rc;

    reply->value.len = 0;
    reply->text[0] = '\0';
    c->callback = kind;
    c->is_watched = true;
    c->is_inside =
        true; /* as handler code, also where the host calls it: that is how calls are refused */
    rc = fn(arg, input, reply);
    c->callback = NULL;
    c->is_inside = was_inside;
    c->is_watched = was_watched;
    if (rc == STET_OK)
        return STET_OK;
    if (rc > 0 || rc == STET_SUSPENDED || rc == STET_END)
        return stet_reply_fail(reply, STET_EHANDLER,
                               "the function of %s returned %d, which is no stet code", kind, rc);
    if (reply->text[0] == '\0')
        (void)stet_reply_fail(reply, rc, "%s", stet_code_text(rc));
    return rc;
}
