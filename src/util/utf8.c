/* UTF-8, as RFC 3629 defines it: what is well-formed, character by character. */
#include "util/util.h"

static bool
utf8_is_tail(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* The second byte alone tells overlong forms, surrogates and what lies beyond U+10FFFF. */
static bool
utf8_is_second(uint8_t first, uint8_t second)
{
    switch (first) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return utf8_is_tail(second);
    }
}

size_t
stet__utf8_len(const uint8_t *p, size_t left)
{
    size_t len, i;

    if (left == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    len = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (len > left || !utf8_is_second(p[0], p[1]))
        return 0;
    for (i = 2; i < len; i++)
        if (!utf8_is_tail(p[i]))
            return 0;
    return len;
}
