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

static int
fact_decode_fields(stet__fact *fact, stet_bytes in)
{
    uint8_t  tag = 0;
    uint64_t v;

    while (in.len > 0) {
        fact_field f = { 0, 0 };
        bool       is_known;

        (void)stet__read_byte(&in, &tag);
        if (!stet__read_varint(&in, &v))
            return stet__fail(STET_ECORRUPT, "a fact's field is cut off");
        /* Numbers nobody uses have offset 0, where no field is. */
        is_known = tag / 2 <= FACT_FIELD_MAX && fact_fields[tag / 2].offset != 0;
        if (is_known) {
            f = fact_fields[tag / 2];
            if (f.is_bytes != (tag & 1))
                return stet__fail(STET_ECORRUPT, "field %d of a fact has the wrong type", tag / 2);
        }
        if (tag & 1) {
            stet_bytes value = { NULL, 0 };

            if (v > in.len)
                return stet__fail(STET_ECORRUPT, "field %d of a fact is cut off", tag / 2);
            (void)stet__read_bytes(&in, (size_t)v, &value);
            if (is_known)
                memcpy((char *)fact + f.offset, &value, sizeof value);
        } else if (is_known) {
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
    const uint8_t *start = in->data;
    stet_bytes     rest = *in, body = { NULL, 0 }, sum = { NULL, 0 };
    uint64_t       len, time;
    uint32_t       crc = 0;
    uint8_t        version = 0, kind = 0;

    fact_clear(fact);
    if (in->len == 0)
        return STET_END;
    if (!stet__read_varint(&rest, &len) || len > rest.len || len < 3 + FACT_CRC_BYTES) {
        in->len = 0;
        return stet__fail(STET_ECORRUPT, "a fact's length is not believable");
    }
    (void)stet__read_bytes(&rest, (size_t)len - FACT_CRC_BYTES, &body);
    (void)stet__read_bytes(&rest, FACT_CRC_BYTES, &sum);
    *in = rest;
    (void)stet__read_u32(&sum, &crc);
    if (crc != stet__crc32c(0, start, (size_t)((const uint8_t *)body.data + body.len - start)))
        return stet__fail(STET_ECORRUPT, "a fact's checksum does not match");
    (void)stet__read_byte(&body, &version); /* three bytes are there */
    (void)stet__read_byte(&body, &kind);
    if (!stet__read_varint(&body, &time))
        return stet__fail(STET_ECORRUPT, "a fact is cut off");
    if (version != FACT_VERSION)
        return stet__fail(STET_ECORRUPT, "a fact has format %u, this stet reads format 1", version);
    fact->kind = (stet__fact_kind)kind;
    fact->time_ms = fact_unzigzag(time);
    if (stet__fact_kind_name(fact->kind) == NULL)
        return stet__fail(STET_ECORRUPT, "a fact of unknown kind %u", kind);
    return fact_decode_fields(fact, body);
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
