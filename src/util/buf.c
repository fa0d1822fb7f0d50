/* Growing bytes, and reading numbers back from them. The hot halves are inline in util.h.
 *
 * Invariants: len <= cap; data has room for at least cap bytes; a failed buffer has cap == len, so
 * no append fits and what was ignored cannot be followed by something that was not.
 */
#include <stdio.h>

#include "util/util.h"

#define BUF_FIRST_BYTES 64

stet_bytes
stet_text(const char *text)
{
    stet_bytes bytes = { text, text != NULL ? strlen(text) : 0 };

    return bytes;
}

void
stet__buf_init(stet__buf *b, stet__alloc *alloc)
{
    memset(b, 0, sizeof *b);
    b->alloc = alloc;
}

void
stet__buf_free(stet__buf *b)
{
    if (b->data != NULL)
        stet__free(b->alloc, b->data);
    stet__buf_init(b, b->alloc);
}

bool
stet__buf_enlarge(stet__buf *b, size_t more)
{
    size_t   cap = b->cap < BUF_FIRST_BYTES ? BUF_FIRST_BYTES : b->cap;
    uint8_t *data;

    if (b->failed)
        return false;
    if (more > SIZE_MAX / 2 - b->len)
        goto failed;
    /* Doubling makes appending cheap on average; one large append gets just what it needs. */
    if (cap <= SIZE_MAX / 4)
        cap *= b->cap ? 2 : 1;
    if (cap < b->len + more)
        cap = b->len + more;
    if ((data = stet__grow(b->alloc, b->data, cap)) == NULL)
        goto failed;
    b->data = data;
    b->cap = cap;
    return true;
failed:
    b->failed = true;
    b->cap = b->len;
    return false;
}

/* Print into the room there is; only when that is too small, make room and print again. */
void
stet__buf_printf(stet__buf *b, const char *fmt, ...)
{
    va_list args;
    size_t  room = b->cap - b->len;
    int     printed;

    if (b->failed)
        return;
    va_start(args, fmt);
    printed = vsnprintf(room ? (char *)b->data + b->len : NULL, room, fmt, args);
    va_end(args);
    if (printed < 0) {
        b->failed = true;
        b->cap = b->len;
        return;
    }
    if ((size_t)printed >= room) {
        if (!stet__buf_reserve(b, (size_t)printed + 1))
            return;
        va_start(args, fmt);
        (void)vsnprintf((char *)b->data + b->len, (size_t)printed + 1, fmt, args);
        va_end(args);
    }
    b->len += (size_t)printed;
}

const char *
stet__buf_cstr(stet__buf *b)
{
    if (b->failed || b->len == 0 || !stet__buf_reserve(b, 1))
        return "";
    b->data[b->len] = '\0';
    return (const char *)b->data;
}

bool
stet__read_varint_long(stet_bytes *in, uint64_t *v)
{
    const uint8_t *p = in->data;
    uint64_t       value = 0;
    size_t         i;

#if defined(__GNUC__)
    if (in->len >= 8 && (i = stet__varint_word(p, v)) > 0) {
        in->data = p + i;
        in->len -= i;
        return true;
    }
#endif
    for (i = 0; i < in->len && i < 10; i++) {
        if (i == 9 && p[i] > 1)
            return false;
        value |= (uint64_t)(p[i] & 0x7F) << (7 * i);
        if (p[i] < 0x80) {
            *v = value;
            in->data = p + i + 1;
            in->len -= i + 1;
            return true;
        }
    }
    return false;
}
