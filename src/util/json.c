/* JSON as text: is it valid, quoting, and printing (RFC 8259). Nothing is parsed into values.
 *
 * The check is one loop without recursion, since handlers run on small stacks: whether each open
 * bracket is an object's is one bit of a 64-bit number, which is also why the depth ends at 64.
 * Text is checked to be UTF-8, so what passed here is valid everywhere else.
 */
#include <stdio.h>

#include "util/util.h"

#define JSON_DEPTH_MAX 64

typedef struct json_scan {
    const uint8_t *p, *end;
    uint64_t       objects; /* bit 0: the innermost bracket is an object's */
    unsigned       depth;
} json_scan;

static void
json_skip_space(json_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

/* Is there anything among these eight bytes that needs a look: quote, backslash, control,
 * non-ASCII? May say yes without cause, never no. */
static bool
json_is_special(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t       quote = word ^ ones * '"', slash = word ^ ones * '\\';

    return (((quote - ones) | (slash - ones) | (word - ones * 0x20) | word) & tops) != 0;
}

/* Past bytes that stand for themselves in a string. */
static const uint8_t *
json_skip_plain(const uint8_t *p, const uint8_t *end)
{
    while (end - p >= 8 && !json_is_special(stet__load_u64(p)))
        p += 8;
    while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
        p++;
    return p;
}

static bool
json_is_hex(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

/* On a backslash. On false s->p is at the first byte that is wrong. */
static bool
json_skip_escape(json_scan *s)
{
    int i;

    s->p++;
    if (s->p == s->end || *s->p == '\0' || strchr("\"\\/bfnrtu", *s->p) == NULL)
        return false;
    if (*s->p++ != 'u')
        return true;
    for (i = 0; i < 4; i++, s->p++)
        if (s->p == s->end || !json_is_hex(*s->p))
            return false;
    return true;
}

/* On the opening quote. */
static bool
json_skip_string(json_scan *s)
{
    size_t len;

    s->p++;
    for (;;) {
        s->p = json_skip_plain(s->p, s->end);
        if (s->p == s->end || *s->p < 0x20)
            return false;
        if (*s->p == '"')
            break;
        if (*s->p == '\\') {
            if (!json_skip_escape(s))
                return false;
        } else {
            if ((len = stet__utf8_len(s->p, (size_t)(s->end - s->p))) == 0)
                return false;
            s->p += len;
        }
    }
    s->p++;
    return true;
}

static bool
json_skip_digits(json_scan *s)
{
    const uint8_t *start = s->p;

    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p != start;
}

static bool
json_skip_number(json_scan *s)
{
    if (*s->p == '-')
        s->p++;
    if (s->p < s->end && *s->p == '0')
        s->p++;
    else if (!json_skip_digits(s))
        return false;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!json_skip_digits(s))
            return false;
    }
    if (s->p < s->end && (*s->p | 32) == 'e') {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        return json_skip_digits(s);
    }
    return true;
}

static bool
json_skip_word(json_scan *s, const char *word)
{
    for (; *word != '\0'; word++, s->p++)
        if (s->p == s->end || *s->p != (uint8_t)*word)
            return false;
    return true;
}

static bool
json_skip_scalar(json_scan *s)
{
    switch (*s->p) {
    case '"': return json_skip_string(s);
    case 't': return json_skip_word(s, "true");
    case 'f': return json_skip_word(s, "false");
    case 'n': return json_skip_word(s, "null");
    default: return json_skip_number(s);
    }
}

/* A member's name and its colon. */
static bool
json_skip_name(json_scan *s)
{
    json_skip_space(s);
    if (s->p == s->end || *s->p != '"' || !json_skip_string(s))
        return false;
    json_skip_space(s);
    if (s->p == s->end || *s->p != ':')
        return false;
    s->p++;
    return true;
}

/* From the start of a value to behind its first scalar or empty bracket, opening on the way. */
static bool
json_descend(json_scan *s)
{
    uint64_t is_object;

    for (;;) {
        json_skip_space(s);
        if (s->p == s->end)
            return false;
        if (*s->p != '{' && *s->p != '[')
            return json_skip_scalar(s);
        if (s->depth == JSON_DEPTH_MAX)
            return false;
        is_object = *s->p == '{';
        s->objects = s->objects << 1 | is_object;
        s->depth++;
        s->p++;
        json_skip_space(s);
        if (s->p < s->end && *s->p == (is_object ? '}' : ']'))
            return true; /* json_ascend() closes it */
        if (is_object && !json_skip_name(s))
            return false;
    }
}

/* Behind a value: past closing brackets and, if one follows, the comma (*more) and the name of the
 * next member. */
static bool
json_ascend(json_scan *s, bool *more)
{
    bool is_object;

    *more = false;
    while (s->depth > 0) {
        is_object = s->objects & 1;
        json_skip_space(s);
        if (s->p == s->end)
            return false;
        if (*s->p == ',') {
            s->p++;
            *more = true;
            return !is_object || json_skip_name(s);
        }
        if (*s->p != (is_object ? '}' : ']'))
            return false;
        s->p++;
        s->depth--;
        s->objects >>= 1;
    }
    return true;
}

bool
stet__json_valid(stet_bytes text, size_t *at)
{
    static const uint8_t nothing[1] = { 0 };
    const uint8_t       *start = text.len != 0 ? text.data : nothing;
    json_scan            s = { start, start + text.len, 0, 0 };
    bool                 ok, more;

    do {
        ok = json_descend(&s) && json_ascend(&s, &more);
    } while (ok && more);
    if (ok) {
        json_skip_space(&s);
        ok = s.p == s.end;
    }
    if (!ok && at != NULL)
        *at = (size_t)(s.p - start);
    return ok;
}

/* ---- quoting -------------------------------------------------------------------------------- */

static void
json_quote_byte(stet__buf *b, uint8_t c)
{
    switch (c) {
    case '"': stet__buf_add(b, "\\\"", 2); break;
    case '\\': stet__buf_add(b, "\\\\", 2); break;
    case '\b': stet__buf_add(b, "\\b", 2); break;
    case '\f': stet__buf_add(b, "\\f", 2); break;
    case '\n': stet__buf_add(b, "\\n", 2); break;
    case '\r': stet__buf_add(b, "\\r", 2); break;
    case '\t': stet__buf_add(b, "\\t", 2); break;
    default: stet__buf_printf(b, "\\u%04x", c); break;
    }
}

void
stet__json_quote(stet__buf *b, const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    const uint8_t *end = len != 0 ? p + len : p;
    const uint8_t *plain;
    size_t         n;

    (void)stet__buf_reserve(b, len + 2);
    stet__buf_byte(b, '"');
    while (p < end) {
        plain = p;
        p = json_skip_plain(p, end);
        stet__buf_add(b, plain, (size_t)(p - plain));
        if (p == end)
            break;
        n = stet__utf8_len(p, (size_t)(end - p));
        if (n == 0)
            stet__buf_add(b, "\xEF\xBF\xBD", 3);
        else if (n == 1)
            json_quote_byte(b, *p);
        else
            stet__buf_add(b, p, n);
        p += n != 0 ? n : 1;
    }
    stet__buf_byte(b, '"');
}

/* ---- printing ------------------------------------------------------------------------------- */

typedef struct json_print {
    stet__buf  *b;
    va_list     args; /* in a struct, so that a pointer to it means the same on every machine */
    const char *fmt;  /* not yet printed */
    unsigned    nth;  /* which conversion, for error texts */
} json_print;

/* One conversion, taken apart. `spec` is what printf gets: '%', flags, width and precision with '*'
 * filled in, and in the end the length and letter of the type the argument was read as. */
typedef struct json_conversion {
    char   spec[48];
    size_t len;
    char   length; /* 0, 'h', 'H' for hh, 'l', 'L' for ll, 'z', 'j', 't' */
    char   letter;
} json_conversion;

static bool
json_spec_add(json_conversion *c, const char *text, size_t len)
{
    if (len > sizeof c->spec - 4 - c->len) /* "lld" and NUL always fit behind */
        return false;
    memcpy(c->spec + c->len, text, len);
    c->len += len;
    return true;
}

static const char *
json_spec_end(json_conversion *c, const char *length, char letter)
{
    (void)snprintf(c->spec + c->len, sizeof c->spec - c->len, "%s%c", length, letter);
    return c->spec;
}

/* A width or precision: digits, or the argument that '*' stands for. */
static bool
json_read_size(json_print *j, json_conversion *c, const char *before)
{
    size_t digits = strspn(j->fmt, "0123456789");
    char   text[16];
    int    value;

    if (*j->fmt == '*') {
        j->fmt++;
        value = va_arg(j->args, int);
        if (*before == '.' && value < 0) /* as if there was none */
            return true;
        (void)snprintf(text, sizeof text, "%s%d", before, value);
        return json_spec_add(c, text, strlen(text));
    }
    j->fmt += digits;
    return json_spec_add(c, before, strlen(before)) && json_spec_add(c, j->fmt - digits, digits);
}

static char
json_read_length(json_print *j)
{
    char length = *j->fmt;

    if (length == '\0' || strchr("hlzjt", length) == NULL)
        return 0;
    j->fmt++;
    if ((length == 'h' || length == 'l') && *j->fmt == length) {
        j->fmt++;
        return length == 'h' ? 'H' : 'L';
    }
    return length;
}

/* Behind the '%'. */
static bool
json_read_conversion(json_print *j, json_conversion *c)
{
    size_t flags = strspn(j->fmt, "-+ #0");

    c->len = 0;
    j->nth++;
    j->fmt += flags;
    if (!json_spec_add(c, "%", 1) || !json_spec_add(c, j->fmt - flags, flags) ||
        !json_read_size(j, c, ""))
        return false;
    if (*j->fmt == '.') {
        j->fmt++;
        if (!json_read_size(j, c, "."))
            return false;
    }
    c->length = json_read_length(j);
    c->letter = *j->fmt;
    if (c->letter == '\0')
        return false;
    j->fmt++;
    return true;
}

static long long
json_take_signed(json_print *j, char length)
{
    switch (length) {
    case 'H': return (signed char)va_arg(j->args, int);
    case 'h': return (short)va_arg(j->args, int);
    case 'l': return va_arg(j->args, long);
    case 'L': return va_arg(j->args, long long);
    case 'j': return (long long)va_arg(j->args, intmax_t);
    case 'z':
    case 't': return (long long)va_arg(j->args, ptrdiff_t);
    default: return va_arg(j->args, int);
    }
}

static unsigned long long
json_take_unsigned(json_print *j, char length)
{
    switch (length) {
    case 'H': return (unsigned char)va_arg(j->args, unsigned);
    case 'h': return (unsigned short)va_arg(j->args, unsigned);
    case 'l': return va_arg(j->args, unsigned long);
    case 'L': return va_arg(j->args, unsigned long long);
    case 'j': return (unsigned long long)va_arg(j->args, uintmax_t);
    case 'z':
    case 't': return va_arg(j->args, size_t);
    default: return va_arg(j->args, unsigned);
    }
}

/* In a locale with a decimal comma, "[%g]" would print a list of two: whatever stands where the
 * point belongs becomes a point. */
static void
json_print_double(stet__buf *b, const char *spec, double value)
{
    size_t start = b->len, to, from;

    stet__buf_printf(b, spec, value);
    for (to = from = start; from < b->len; from++) {
        if (b->data[from] != '\0' && strchr("0123456789+-eEinfatyINFATY ", b->data[from]) != NULL)
            b->data[to++] = b->data[from];
        else if (to == start || b->data[to - 1] != '.')
            b->data[to++] = '.';
    }
    stet__buf_cut(b, to);
}

static int
json_print_value(json_print *j)
{
    stet_bytes value = va_arg(j->args, stet_bytes);
    size_t     at = 0;

    if (!stet__json_valid(value, &at))
        return stet__fail(
            STET_EJSON,
            "conversion %u, %%J: not one JSON value, wrong at byte %zu of %zu; use %%Q "
            "for text",
            j->nth, at, value.len);
    stet__buf_add(j->b, value.data, value.len);
    return STET_OK;
}

static void
json_print_quoted(json_print *j)
{
    const char *text = va_arg(j->args, const char *);

    if (text != NULL)
        stet__json_quote(j->b, text, strlen(text));
    else
        stet__buf_str(j->b, "null");
}

static void
json_print_string(json_print *j, json_conversion *c)
{
    const char *text = va_arg(j->args, const char *);

    stet__buf_printf(j->b, json_spec_end(c, "", 's'), text != NULL ? text : "null");
}

static int
json_print_one(json_print *j)
{
    json_conversion c;

    if (!json_read_conversion(j, &c))
        return stet__fail(STET_EJSON, "conversion %u of the format is incomplete or too long",
                          j->nth);
    switch (c.letter) {
    case '%': stet__buf_byte(j->b, '%'); break;
    case 'J': return json_print_value(j);
    case 'Q': json_print_quoted(j); break;
    case 's': json_print_string(j, &c); break;
    case 'c': stet__buf_printf(j->b, json_spec_end(&c, "", 'c'), va_arg(j->args, int)); break;
    case 'd':
    case 'i':
        stet__buf_printf(j->b, json_spec_end(&c, "ll", 'd'), json_take_signed(j, c.length));
        break;
    case 'u':
    case 'x':
    case 'X':
        stet__buf_printf(j->b, json_spec_end(&c, "ll", c.letter), json_take_unsigned(j, c.length));
        break;
    case 'e':
    case 'f':
    case 'g':
        json_print_double(j->b, json_spec_end(&c, "", c.letter), va_arg(j->args, double));
        break;
    default:
        return stet__fail(STET_EJSON, "conversion %u of the format, %%%c, is none of QJdiuxscfge",
                          j->nth, c.letter);
    }
    return STET_OK;
}

static int
json_print_all(json_print *j)
{
    size_t plain;
    int    err;

    while (*j->fmt != '\0') {
        plain = strcspn(j->fmt, "%");
        stet__buf_add(j->b, j->fmt, plain);
        j->fmt += plain;
        if (*j->fmt == '\0')
            break;
        j->fmt++;
        if ((err = json_print_one(j)) != STET_OK)
            return err;
    }
    return STET_OK;
}

/* What this call printed, from `start` on, must be one value; the buffer may hold more before. */
static int
json_check_printed(const stet__buf *b, size_t start)
{
    stet_bytes whole = { b->data, b->len };
    stet_bytes before;
    size_t     at = 0;

    if (b->failed)
        return stet__fail(STET_ENOMEM, "out of memory while printing JSON");
    (void)stet__read_bytes(&whole, start, &before);
    if (stet__json_valid(whole, &at))
        return STET_OK;
    return stet__fail(STET_EJSON, "what was printed is not one JSON value, wrong at byte %zu: %.*s",
                      at, whole.len < 200 ? (int)whole.len : 200,
                      whole.len != 0 ? (const char *)whole.data : "");
}

int
stet__json_vprintf(stet__buf *b, const char *fmt, va_list args)
{
    json_print j = { .b = b, .fmt = fmt };
    size_t     start = b->len;
    int        err;

    va_copy(j.args, args);
    if ((err = json_print_all(&j)) == STET_OK)
        err = json_check_printed(b, start);
    va_end(j.args);
    if (err != STET_OK)
        stet__buf_cut(b, start);
    return err;
}

int
stet__json_printf(stet__buf *b, const char *fmt, ...)
{
    va_list args;
    int     err;

    va_start(args, fmt);
    err = stet__json_vprintf(b, fmt, args);
    va_end(args);
    return err;
}
