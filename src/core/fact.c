/* Encoding and decoding of facts; see fact.h for the format. */
#include "core/fact.h"

#include <string.h>

#define FACT_VERSION   1
#define FACT_CRC_BYTES 4u

typedef struct fact_field {
    uint16_t offset;
    uint8_t  is_bytes;
} fact_field;

/* Field number -> place in the struct. */
static const fact_field fact_fields[] = {
#define FACT_B(member, number) [number] = { offsetof(stet__fact, member), 1 },
#define FACT_V(member, number) [number] = { offsetof(stet__fact, member), 0 },
    STET__FACT_FIELDS(FACT_B, FACT_V)
#undef FACT_B
#undef FACT_V
};
enum { FACT_FIELD_MAX = sizeof fact_fields / sizeof fact_fields[0] - 1 };

const char *
stet__fact_kind_name(stet__fact_kind kind)
{
    switch (kind) {
#define FACT_NAME(name, number, text)                                                              \
    case STET__FACT_##name: return text;
        STET__FACT_LIST(FACT_NAME)
#undef FACT_NAME
    }
    return NULL;
}

static bool
fact_is_kind(uint8_t kind)
{
    static const uint8_t is_kind[UINT8_MAX + 1] = {
#define FACT_IS(name, number, text) [number] = 1,
        STET__FACT_LIST(FACT_IS)
#undef FACT_IS
    };

    return is_kind[kind];
}

stet_id
stet__fact_id(stet_bytes bytes)
{
    stet_id id = { { 0 } };

    if (bytes.len == sizeof id.bytes)
        memcpy(id.bytes, bytes.data, sizeof id.bytes);
    return id;
}

static uint64_t
fact_zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

static int64_t
fact_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static size_t
fact_varint_bytes(uint64_t v)
{
#if defined(__GNUC__)
    return ((size_t)(63 - __builtin_clzll(v | 1)) * 9 + 73) /
           64; /* one for every seven bits begun */
#else
    size_t n = 1;

    while (v >= 0x80) {
        v >>= 7;
        n++;
    }
    return n;
#endif
}

static uint8_t *
fact_put_varint(uint8_t *at, uint64_t v)
{
    while (v >= 0x80) {
        *at++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *at++ = (uint8_t)v;
    return at;
}

/* The fields that are there, as numbers, in their order. Without a branch for each: most are not there, and which ones is what
 * no processor guesses. */
static size_t
fact_fields_of(uint8_t list[], const stet__fact *fact)
{
    size_t n = 0;

#define FACT_B(member, number)                                                                     \
    list[n] = (number);                                                                            \
    n += fact->member.data != NULL;
#define FACT_V(member, number)                                                                     \
    list[n] = (number);                                                                            \
    n += fact->member != 0;
    STET__FACT_FIELDS(FACT_B, FACT_V)
#undef FACT_B
#undef FACT_V
    return n;
}

static stet_bytes
fact_bytes_of(const stet__fact *fact, uint8_t number)
{
    stet_bytes value;

    memcpy(&value, (const char *)fact + fact_fields[number].offset, sizeof value);
    return value;
}

static uint64_t
fact_number_of(const stet__fact *fact, uint8_t number)
{
    int64_t value;

    memcpy(&value, (const char *)fact + fact_fields[number].offset, sizeof value);
    return fact_zigzag(value);
}

static size_t
fact_body_bytes(const stet__fact *fact, const uint8_t list[], size_t n)
{
    size_t bytes = 2 + fact_varint_bytes(fact_zigzag(fact->time_ms)) + FACT_CRC_BYTES;

    for (size_t i = 0; i < n; i++) {
        if (fact_fields[list[i]].is_bytes) {
            size_t len = fact_bytes_of(fact, list[i]).len;

            bytes += 1 + fact_varint_bytes(len) + len;
        } else {
            bytes += 1 + fact_varint_bytes(fact_number_of(fact, list[i]));
        }
    }
    return bytes;
}

void
stet__fact_encode(stet__buf *b, const stet__fact *fact)
{
    uint8_t  list[FACT_FIELD_MAX + 1];
    size_t   n = fact_fields_of(list, fact);
    size_t   body = fact_body_bytes(fact, list, n);
    size_t   total = fact_varint_bytes(body) + body;
    uint8_t *start, *at;
    uint32_t crc;

    if (!stet__buf_reserve(b, total))
        return;
    start = at = b->data + b->len;
    at = fact_put_varint(at, body);
    *at++ = FACT_VERSION;
    *at++ = (uint8_t)fact->kind;
    at = fact_put_varint(at, fact_zigzag(fact->time_ms));
    for (size_t i = 0; i < n; i++) {
        if (fact_fields[list[i]].is_bytes) {
            stet_bytes value = fact_bytes_of(fact, list[i]);

            *at++ = (uint8_t)(list[i] * 2 + 1);
            at = fact_put_varint(at, value.len);
            if (value.len > 0)
                memcpy(at, value.data, value.len);
            at += value.len;
        } else {
            *at++ = (uint8_t)(list[i] * 2);
            at = fact_put_varint(at, fact_number_of(fact, list[i]));
        }
    }
    crc = stet__crc32c(0, start, (size_t)(at - start));
    for (int i = 0; i < 4; i++)
        *at++ = (uint8_t)(crc >> (8 * i));
    b->len += total;
}

/* The number at p, and where it ends; NULL: it does not fit. In registers from field to field: a fact has many, and decoding
 * them is most of what loading a run takes. */
static inline const uint8_t *
fact_read_varint(const uint8_t *p, const uint8_t *end, uint64_t *v)
{
    stet_bytes in;

    if (STET__LIKELY(p < end && *p < 0x80)) {
        *v = *p;
        return p + 1;
    }
#if defined(__GNUC__)
    size_t n;

    if (end - p >= 8 && (n = stet__varint_word(p, v)) > 0)
        return p + n;
#endif
    in = (stet_bytes){ p, (size_t)(end - p) };
    return stet__read_varint_long(&in, v) ? in.data : NULL;
}

static int
fact_decode_fields(stet__fact *fact, const uint8_t *p, const uint8_t *end)
{
    uint64_t v;

    while (p < end) {
        uint8_t    tag = *p++;
        fact_field f = { 0, 0 };

        if ((p = fact_read_varint(p, end, &v)) == NULL)
            return stet__fail(STET_ECORRUPT, "a fact's field is cut off");
        /* Numbers nobody uses have offset 0, where no field is. */
        if (tag / 2 <= FACT_FIELD_MAX)
            f = fact_fields[tag / 2];
        if (f.offset != 0 && f.is_bytes != (tag & 1))
            return stet__fail(STET_ECORRUPT, "field %d of a fact has the wrong type", tag / 2);
        if (tag & 1) {
            stet_bytes value = { p, (size_t)v };

            if (v > (size_t)(end - p))
                return stet__fail(STET_ECORRUPT, "field %d of a fact is cut off", tag / 2);
            if (f.offset != 0)
                memcpy((char *)fact + f.offset, &value, sizeof value);
            p += v;
        } else if (f.offset != 0) {
            int64_t value = fact_unzigzag(v);

            memcpy((char *)fact + f.offset, &value, sizeof value);
        }
    }
    return STET_OK;
}

/* Most of the time a decoding takes. Of a size it knows gcc makes string instructions, which take three times as long as the
 * C library's function for any size; so it does not know. */
static void
fact_clear(stet__fact *fact)
{
    size_t bytes = sizeof *fact;

#if defined(__GNUC__)
    __asm__("" : "+r"(bytes));
#endif
    memset(fact, 0, bytes);
}

int
stet__fact_decode(stet__fact *fact, stet_bytes *in)
{
    const uint8_t *start = in->data, *body, *p, *end;
    uint64_t       len, time;

    fact_clear(fact);
    if (in->len == 0)
        return STET_END;
    end = start + in->len;
    if ((body = fact_read_varint(start, end, &len)) == NULL || len > (size_t)(end - body) ||
        len < 3 + FACT_CRC_BYTES) {
        in->len = 0;
        return stet__fail(STET_ECORRUPT, "a fact's length is not believable");
    }
    *in = (stet_bytes){ body + len, (size_t)(end - body) - (size_t)len };
    end = body + len - FACT_CRC_BYTES;
    if (stet__load_u32(end) != stet__crc32c(0, start, (size_t)(end - start)))
        return stet__fail(STET_ECORRUPT, "a fact's checksum does not match");
    if ((p = fact_read_varint(body + 2, end, &time)) == NULL) /* three bytes are there */
        return stet__fail(STET_ECORRUPT, "a fact is cut off");
    if (body[0] != FACT_VERSION)
        return stet__fail(STET_ECORRUPT, "a fact has format %u, this stet reads format 1", body[0]);
    fact->kind = (stet__fact_kind)body[1];
    fact->time_ms = fact_unzigzag(time);
    if (!fact_is_kind(body[1]))
        return stet__fail(STET_ECORRUPT, "a fact of unknown kind %u", body[1]);
    return fact_decode_fields(fact, p, end);
}

/* An ID's last bytes are random, or one more than those of the one before: revisions are spread. */
int64_t
stet__fact_writer(stet_id run, uint64_t revision)
{
    const size_t n = sizeof run.bytes;
    uint64_t     tail = 0, writer;

    if (stet__id_is_zero(run))
        return 1;
    for (size_t i = n - 8; i < n; i++)
        tail = tail << 8 | run.bytes[i];
    writer = (tail ^ revision * UINT64_C(0x9E3779B97F4A7C15)) & ((UINT64_C(1) << 56) - 1);
    return (int64_t)(writer | 2);
}
