/* JSON for programs: one document on one line, so that lists are JSON Lines. */
#include "cli/cli.h"

#include <string.h>

void
stet__cli_json_begin(cli_json *j, cli *c)
{
    stet__buf_init(&j->buf, c->alloc);
}

/* A comma belongs before everything but the first in a bracket. */
static void
json_name(cli_json *j, const char *name)
{
    char last = j->buf.len > 0 ? (char)j->buf.data[j->buf.len - 1] : '{';

    if (last != '{' && last != '[')
        stet__buf_byte(&j->buf, ',');
    if (name != NULL) {
        stet__json_quote(&j->buf, name, strlen(name));
        stet__buf_byte(&j->buf, ':');
    }
}

void
stet__cli_json_open(cli_json *j, const char *name, char bracket)
{
    if (j->buf.len > 0)
        json_name(j, name);
    stet__buf_byte(&j->buf, (uint8_t)bracket);
}

void
stet__cli_json_close(cli_json *j, char bracket)
{
    stet__buf_byte(&j->buf, (uint8_t)bracket);
}

void
stet__cli_json_text(cli_json *j, const char *name, const char *text)
{
    json_name(j, name);
    if (text == NULL)
        stet__buf_str(&j->buf, "null");
    else
        stet__json_quote(&j->buf, text, strlen(text));
}

void
stet__cli_json_lines(cli_json *j, const char *name, const char *lines)
{
    size_t len;

    stet__cli_json_open(j, name, '[');
    for (; *lines != '\0'; lines += len + (lines[len] == '\n')) {
        len = strcspn(lines, "\n");
        json_name(j, NULL);
        stet__json_quote(&j->buf, lines, len);
    }
    stet__cli_json_close(j, ']');
}

void
stet__cli_json_int(cli_json *j, const char *name, int64_t value)
{
    json_name(j, name);
    stet__buf_printf(&j->buf, "%lld", (long long)value);
}

void
stet__cli_json_bool(cli_json *j, const char *name, bool value)
{
    json_name(j, name);
    stet__buf_str(&j->buf, value ? "true" : "false");
}

void
stet__cli_json_time(cli_json *j, const char *name, int64_t ms)
{
    if (ms == 0)
        stet__cli_json_text(j, name, NULL);
    else
        stet__cli_json_int(j, name, ms);
}

static void
json_base64(stet__buf *b, stet_bytes in)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t    *p = in.data;

    for (size_t i = 0; i < in.len; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;

        if (i + 1 < in.len)
            v |= (uint32_t)p[i + 1] << 8;
        if (i + 2 < in.len)
            v |= p[i + 2];
        stet__buf_byte(b, (uint8_t)digits[v >> 18]);
        stet__buf_byte(b, (uint8_t)digits[(v >> 12) & 63]);
        stet__buf_byte(b, (uint8_t)(i + 1 < in.len ? digits[(v >> 6) & 63] : '='));
        stet__buf_byte(b, (uint8_t)(i + 2 < in.len ? digits[v & 63] : '='));
    }
}

void
stet__cli_json_payload(cli_json *j, const char *name, stet_bytes payload)
{
    const uint8_t *p = payload.data;
    size_t         at;

    json_name(j, name);
    if (payload.len == 0) {
        stet__buf_str(&j->buf, "null");
    } else if (stet__json_valid(payload, &at)) {
        /* A line break in JSON can only be space between tokens; the document stays one line. */
        for (size_t i = 0; i < payload.len; i++)
            stet__buf_byte(&j->buf, p[i] == '\n' || p[i] == '\r' ? ' ' : p[i]);
    } else if (stet__cli_is_utf8(payload)) {
        stet__json_quote(&j->buf, payload.data, payload.len);
    } else {
        stet__buf_str(&j->buf, "{\"base64\":\"");
        json_base64(&j->buf, payload);
        stet__buf_str(&j->buf, "\"}");
    }
}

void
stet__cli_json_end(cli_json *j, FILE *out)
{
    fwrite(j->buf.data, 1, j->buf.len, out);
    fputc('\n', out);
    stet__buf_free(&j->buf);
}
