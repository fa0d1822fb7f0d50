/* Log lines of handlers and bodies, with fields of their own.
 *
 * Nothing here is recorded. A handler's line is silent while recorded commands remain to be asked for:
 * it was said when they were first asked. A body is not entered in a replay, so its lines need no rule.
 */
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

#define LOG_TEXT_MAX 1024

static bool
log_has(const stet_log_field *fields, const char *name)
{
    for (; fields != NULL && fields->name != NULL; fields++)
        if (strcmp(fields->name, name) == 0)
            return true;
    return false;
}

/* The fields that were set, then the line's own, which win. */
static size_t
log_gather(stet_log_field all[STET_LOG_FIELDS_MAX], const stet__log_fields *set, const stet_log_field *own)
{
    size_t n = 0;

    for (size_t i = 0; set != NULL && i < set->n; i++)
        if (!log_has(own, set->at[i].name))
            all[n++] = set->at[i];
    for (; own != NULL && own->name != NULL && n < STET_LOG_FIELDS_MAX; own++)
        if (own->value != NULL)
            all[n++] = *own;
    return n;
}

static void
log_say(stet_ctx *c, stet_level level, const char *step, const stet__log_fields *set, const stet_log_field *own,
        const char *fmt, va_list args)
{
    stet_log_field all[STET_LOG_FIELDS_MAX];
    char           text[LOG_TEXT_MAX];
    size_t         n = log_gather(all, set, own);

    (void)vsnprintf(text, sizeof text, fmt, args);
    c->exec->host->log(c, level, step, 0, all, n, text);
}

/* What was said before a crash is not said again, nor what is said by an execution that may be dropped. */
static bool
log_is_due(stet_ctx *c, const char *call)
{
    return stet__ctx_enter(c, call) == STET_OK && c->journal.unasked == 0 &&
           (!c->exec->host->is_ahead(c) || stet__ctx_barrier(c) == STET_OK);
}

void
stet_log(stet_ctx *c, stet_level level, const char *fmt, ...)
{
    va_list args;

    if (!log_is_due(c, "stet_log"))
        return;
    va_start(args, fmt);
    log_say(c, level, NULL, c->log_fields, NULL, fmt, args);
    va_end(args);
}

void
stet_log_with(stet_ctx *c, stet_level level, const stet_log_field *fields, const char *fmt, ...)
{
    va_list args;

    if (!log_is_due(c, "stet_log_with"))
        return;
    va_start(args, fmt);
    log_say(c, level, NULL, c->log_fields, fields, fmt, args);
    va_end(args);
}

void
stet_attempt_log(stet_attempt *a, stet_level level, const stet_log_field *fields, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    log_say(a->ctx, level, a->step, a->log_fields, fields, fmt, args);
    va_end(args);
}

/* ---- fields that stay ----------------------------------------------------------------------------- */

static int
log_name_check(const char *name)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

    if (name == NULL || name[0] == '\0' || strlen(name) > STET_LOG_NAME_MAX || name[strspn(name, legal)] != '\0')
        return stet__fail(STET_ENAME, "log field \"%.80s\": a name has 1 to %d letters, digits, _ - .",
                          name != NULL ? name : "", STET_LOG_NAME_MAX);
    return STET_OK;
}

/* Lines cut values anyway; one byte more is kept, so that they know it was cut. */
static const char *
log_value_copy(stet_ctx *c, const char *value)
{
    size_t len = strnlen(value, STET_LOG_VALUE_MAX + 1);
    char  *copy = stet__arena_get(&c->arena, len + 1);

    if (copy == NULL)
        return NULL;
    memcpy(copy, value, len);
    copy[len] = '\0';
    return copy;
}

int
stet_log_set(stet_ctx *c, const char *name, const char *value)
{
    stet__log_fields *next;
    size_t            at = 0;
    int               err;

    if ((err = stet__ctx_enter(c, "stet_log_set")) != STET_OK || (err = log_name_check(name)) != STET_OK)
        return err;
    if ((next = stet__arena_get0(&c->arena, sizeof *next)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for log field %s", name);
    if (c->log_fields != NULL)
        *next = *c->log_fields;
    while (at < next->n && strcmp(next->at[at].name, name) != 0)
        at++;
    if (value == NULL) {
        if (at == next->n)
            return STET_OK;
        memmove(&next->at[at], &next->at[at + 1], (next->n - at - 1) * sizeof next->at[0]);
        next->n--;
    } else {
        if (at == STET_LOG_FIELDS_MAX)
            return stet__fail(STET_ETOOBIG, "log field %s: %d are set already", name, STET_LOG_FIELDS_MAX);
        if ((at == next->n && (next->at[at].name = stet__arena_str(&c->arena, name)) == NULL) ||
            (next->at[at].value = log_value_copy(c, value)) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory for log field %s", name);
        if (at == next->n)
            next->n++;
    }
    c->log_fields = next;
    return STET_OK;
}
