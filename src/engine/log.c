/* Log lines: filtered by level, given their fields, handed to the program's sink or to standard error.
 *
 * A line never fails: without memory for its fields it goes out without them. Runs on: any thread,
 * sometimes with engine->lock held, so a sink must not call stet.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define LOG_CUT "…"

static bool
log_is_wanted(const stet_engine *e, stet_level level)
{
    stet_level least = e->config.log_level;

    if (least == 0 && e->config.log == NULL)
        least = STET_LOG_INFO;
    return level >= least && level < STET_LOG_OFF;
}

static void
log_emit(stet_engine *e, stet_log_record *r, const stet_id *run)
{
    char id[STET_ID_TEXT_MAX];

    r->time_ms = stet__wall_ms(e->p);
    if (run != NULL) {
        stet__id_text(id, STET__ID_RUN, *run);
        r->run = id;
    }
    if (e->config.log != NULL)
        e->config.log(e->config.log_arg, r);
    else
        stet__log_print(r);
    r->run = NULL;
}

void
stet__log(stet_engine *e, stet_level level, const stet_id *run, const char *handler, const char *step, int code,
          const char *fmt, ...)
{
    stet_log_record record = { 0 };
    char            message[1024];
    va_list         args;

    if (!log_is_wanted(e, level))
        return;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    record.level = level;
    record.message = message;
    record.handler = handler;
    record.step = step;
    record.code = code;
    log_emit(e, &record, run);
}

/* ---- fields of the user ---------------------------------------------------------------------------- */

static const char *
log_name(stet__arena *arena, const char *name)
{
    size_t len = strnlen(name, STET_LOG_NAME_MAX);
    char  *copy = stet__arena_get(arena, len + 1);

    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool is_legal = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                        c == '-' || c == '.';

        copy[i] = is_legal ? c : '_';
    }
    copy[len] = '\0';
    return len > 0 ? copy : "_";
}

/* Cut in front of a character, never inside one. */
static const char *
log_value(stet__arena *arena, const char *value)
{
    size_t len = strnlen(value, STET_LOG_VALUE_MAX + 1);
    bool   is_cut = len > STET_LOG_VALUE_MAX;
    char  *copy;

    if (!is_cut)
        return stet__arena_str(arena, value);
    len = STET_LOG_VALUE_MAX - strlen(LOG_CUT);
    while (len > 0 && ((unsigned char)value[len] & 0xC0) == 0x80)
        len--;
    if ((copy = stet__arena_get(arena, len + sizeof LOG_CUT)) == NULL)
        return NULL;
    memcpy(copy, value, len);
    memcpy(copy + len, LOG_CUT, sizeof LOG_CUT);
    return copy;
}

/* A word stands as it is; anything a reader could take for the end of it is quoted as in JSON. */
static void
log_text(stet__buf *out, const stet_log_field *f)
{
    bool is_word = f->value[0] != '\0';

    for (const char *p = f->value; *p != '\0'; p++)
        is_word = is_word && (unsigned char)*p > ' ' && (unsigned char)*p < 0x7F && strchr("\"=\\", *p) == NULL;
    stet__buf_printf(out, "%s%s=", out->len > 0 ? " " : "", f->name);
    if (is_word)
        stet__buf_str(out, f->value);
    else
        stet__json_quote(out, f->value, strlen(f->value));
}

void
stet__log_with(stet_engine *e, const stet_log_record *line, const stet_id *run, const stet_log_field *fields, size_t n)
{
    stet_log_record record = *line;
    stet_log_field  own[STET_LOG_FIELDS_MAX];
    stet__arena     arena;
    stet__buf       text;

    if (!log_is_wanted(e, line->level))
        return;
    stet__arena_init(&arena, &e->p->alloc);
    stet__buf_init(&text, &e->p->alloc);
    for (size_t i = 0; i < n && i < STET_LOG_FIELDS_MAX; i++) {
        own[i].name = log_name(&arena, fields[i].name);
        own[i].value = log_value(&arena, fields[i].value);
        if (own[i].name == NULL || own[i].value == NULL)
            break;
        log_text(&text, &own[i]);
        record.n_own = i + 1;
    }
    if (record.n_own > 0) {
        record.own = own;
        record.fields = text.failed ? NULL : stet__buf_cstr(&text);
    }
    log_emit(e, &record, run);
    stet__buf_free(&text);
    stet__arena_free(&arena);
}
