/* MessagePack: as much of it as cmsgpack in the server reads and writes.
 *
 * Numbers in Lua are doubles: exact up to 2^53, which is enough for revisions, epochs, sessions and
 * milliseconds. What uses all 64 bits (completions, revisions of values' writers) travels as bytes.
 * "Not at all" is `false`, for a nil would be a hole in a Lua table.
 */
#include <math.h>
#include <string.h>

#include "store/redis.h"

/* ---- writing --------------------------------------------------------------------------------- */

static void
pack_be(stet__buf *b, uint8_t tag, uint64_t v, size_t bytes)
{
    uint8_t raw[9] = { tag };

    for (size_t i = 0; i < bytes; i++)
        raw[1 + i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
    stet__buf_add(b, raw, 1 + bytes);
}

void
stet__redis_pack_array(stet__buf *b, size_t n)
{
    if (n < 16)
        stet__buf_byte(b, (uint8_t)(0x90 | n));
    else if (n < 65536)
        pack_be(b, 0xdc, n, 2);
    else
        pack_be(b, 0xdd, n, 4);
}

void
stet__redis_pack_uint(stet__buf *b, uint64_t v)
{
    if (v < 128)
        stet__buf_byte(b, (uint8_t)v);
    else if (v <= UINT16_MAX)
        pack_be(b, 0xcd, v, 2);
    else if (v <= UINT32_MAX)
        pack_be(b, 0xce, v, 4);
    else
        pack_be(b, 0xcf, v, 8);
}

void
stet__redis_pack_int(stet__buf *b, int64_t v)
{
    if (v >= 0)
        stet__redis_pack_uint(b, (uint64_t)v);
    else
        pack_be(b, 0xd3, (uint64_t)v, 8);
}

void
stet__redis_pack_bool(stet__buf *b, bool v)
{
    stet__buf_byte(b, v ? 0xc3 : 0xc2);
}

void
stet__redis_pack_head(stet__buf *b, size_t len)
{
    if (len < 32)
        stet__buf_byte(b, (uint8_t)(0xa0 | len));
    else if (len < 65536)
        pack_be(b, 0xda, len, 2);
    else
        pack_be(b, 0xdb, len, 4);
}

void
stet__redis_pack_bytes(stet__buf *b, const void *data, size_t len)
{
    stet__redis_pack_head(b, len);
    stet__buf_add(b, data, len);
}

void
stet__redis_pack_text(stet__buf *b, const char *text)
{
    if (text == NULL)
        stet__redis_pack_bool(b, false);
    else
        stet__redis_pack_bytes(b, text, strlen(text));
}

/* A time beyond the year 144,000, or before that many years, is that year: Lua has no more
 * digits. */
void
stet__redis_pack_time(stet__buf *b, int64_t ms)
{
    if (ms == STET_NEVER)
        stet__redis_pack_bool(b, false);
    else if (ms >= REDIS_DUE_BIAS)
        stet__redis_pack_int(b, REDIS_DUE_BIAS - 1);
    else
        stet__redis_pack_int(b, ms < -REDIS_DUE_BIAS ? -REDIS_DUE_BIAS : ms);
}

void
stet__redis_pack_id(stet__buf *b, stet_id id)
{
    stet__redis_pack_bytes(b, id.bytes, sizeof id.bytes);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool
take_be(stet_bytes *in, size_t bytes, uint64_t *v)
{
    stet_bytes raw;

    if (!stet__read_bytes(in, bytes, &raw))
        return false;
    *v = 0;
    for (size_t i = 0; i < bytes; i++)
        *v = *v << 8 | ((const uint8_t *)raw.data)[i];
    return true;
}

redis_kind
stet__redis_peek(stet_bytes in)
{
    uint8_t tag;

    if (!stet__read_byte(&in, &tag))
        return REDIS_IS_BAD;
    if (tag < 0x80 || tag >= 0xe0 || (tag >= 0xca && tag <= 0xd3))
        return REDIS_IS_NUMBER;
    if ((tag & 0xe0) == 0xa0 || (tag >= 0xd9 && tag <= 0xdb) || (tag >= 0xc4 && tag <= 0xc6))
        return REDIS_IS_BYTES;
    if ((tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd)
        return REDIS_IS_ARRAY;
    return tag == 0xc2 || tag == 0xc0 ? REDIS_IS_FALSE : REDIS_IS_BAD;
}

bool
stet__redis_take_array(stet_bytes *in, size_t *n)
{
    uint64_t v;
    uint8_t  tag;

    if (stet__redis_peek(*in) != REDIS_IS_ARRAY || !stet__read_byte(in, &tag))
        return false;
    if ((tag & 0xf0) == 0x90)
        v = tag & 0x0fu;
    else if (!take_be(in, tag == 0xdc ? 2 : 4, &v))
        return false;
    *n = (size_t)v;
    return *n <= in->len; /* an element has a byte at least */
}

static bool
take_double(uint64_t raw, size_t bytes, int64_t *v)
{
    double   wide;
    float    narrow;
    uint32_t half = (uint32_t)raw;

    if (bytes == 4) {
        memcpy(&narrow, &half, sizeof narrow);
        wide = (double)narrow;
    } else {
        memcpy(&wide, &raw, sizeof wide);
    }
    if (!(fabs(wide) < 9007199254740993.0))
        return false;
    *v = (int64_t)wide;
    return true;
}

bool
stet__redis_take_int(stet_bytes *in, int64_t *v)
{
    uint64_t raw = 0;
    uint8_t  tag;

    if (stet__redis_peek(*in) != REDIS_IS_NUMBER || !stet__read_byte(in, &tag))
        return false;
    if (tag < 0x80 || tag >= 0xe0) {
        *v = (int8_t)tag;
        return true;
    }
    switch (tag) {
    case 0xca: return take_be(in, 4, &raw) && take_double(raw, 4, v);
    case 0xcb: return take_be(in, 8, &raw) && take_double(raw, 8, v);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        if (!take_be(in, (size_t)1 << (tag - 0xcc), &raw) || raw > INT64_MAX)
            return false;
        *v = (int64_t)raw;
        return true;
    case 0xd0: return take_be(in, 1, &raw) && (*v = (int8_t)raw, true);
    case 0xd1: return take_be(in, 2, &raw) && (*v = (int16_t)raw, true);
    case 0xd2: return take_be(in, 4, &raw) && (*v = (int32_t)raw, true);
    default: return take_be(in, 8, &raw) && (*v = (int64_t)raw, true);
    }
}

bool
stet__redis_take_uint(stet_bytes *in, uint64_t *v)
{
    int64_t number;

    if (!stet__redis_take_int(in, &number) || number < 0)
        return false;
    *v = (uint64_t)number;
    return true;
}

bool
stet__redis_take_u32(stet_bytes *in, uint32_t *v)
{
    uint64_t number;

    if (!stet__redis_take_uint(in, &number) || number > UINT32_MAX)
        return false;
    *v = (uint32_t)number;
    return true;
}

bool
stet__redis_take_bytes(stet_bytes *in, stet_bytes *v)
{
    uint64_t len;
    uint8_t  tag;

    if (stet__redis_peek(*in) != REDIS_IS_BYTES || !stet__read_byte(in, &tag))
        return false;
    if ((tag & 0xe0) == 0xa0)
        len = tag & 0x1fu;
    else if (!take_be(in, (size_t)1 << (tag >= 0xd9 ? tag - 0xd9 : tag - 0xc4), &len))
        return false;
    return stet__read_bytes(in, (size_t)len, v);
}

bool
stet__redis_take_id(stet_bytes *in, stet_id *v)
{
    stet_bytes raw;

    if (!stet__redis_take_bytes(in, &raw) || raw.len != sizeof v->bytes)
        return false;
    memcpy(v->bytes, raw.data, sizeof v->bytes);
    return true;
}

bool
stet__redis_take_flag(stet_bytes *in, bool *v)
{
    uint8_t tag;

    if (!stet__read_byte(in, &tag) || (tag != 0xc2 && tag != 0xc3))
        return false;
    *v = tag == 0xc3;
    return true;
}

bool
stet__redis_take_time(stet_bytes *in, int64_t *v)
{
    bool flag;

    if (stet__redis_peek(*in) != REDIS_IS_FALSE)
        return stet__redis_take_int(in, v);
    *v = STET_NEVER;
    return stet__redis_take_flag(in, &flag);
}

/* ---- bytes in the order of numbers ----------------------------------------------------------- */

void
stet__redis_put_be64(uint8_t out[8], uint64_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> 8 * (7 - i));
}

uint64_t
stet__redis_get_be64(const void *in)
{
    const uint8_t *at = in;
    uint64_t       v = 0;

    for (int i = 0; i < 8; i++)
        v = v << 8 | at[i];
    return v;
}

uint32_t
stet__redis_get_be32(const void *in)
{
    const uint8_t *at = in;

    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

void
stet__redis_timer_member(uint8_t out[REDIS_TIMER_BYTES], int64_t fire_ms, stet_id run,
                         uint64_t completion)
{
    stet__redis_put_be64(out, (uint64_t)fire_ms ^ (UINT64_C(1) << 63));
    memcpy(out + 8, run.bytes, sizeof run.bytes);
    stet__redis_put_be64(out + 24, completion);
}
