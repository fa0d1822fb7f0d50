/* Any bytes into the decoder of facts: no crash, what it accepts survives writing and reading again, and a
 * byte changed in what was written is noticed.
 *
 * The first byte chooses: raw bytes as they would lie on disk; a body that gets the right length and
 * checksum (or no random bytes would ever get past them); or a fact made of the bytes, then damaged.
 * With FUZZ_PLANT it has a bug that tools/fuzz.sh must find.
 */
#include <stdlib.h>
#include <string.h>

#include "core/fact.h"
#include "platform/platform.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static stet__alloc *
fuzz_alloc(void)
{
    return &stet__platform_real()->alloc;
}

static bool
fuzz_equal(const stet__fact *a, const stet__fact *b)
{
    bool is_equal = a->kind == b->kind && a->time_ms == b->time_ms;

#define FUZZ_B(member, number)                                                                     \
    is_equal = is_equal && a->member.len == b->member.len &&                                       \
               (a->member.data == NULL) == (b->member.data == NULL) &&                             \
               (a->member.len == 0 || memcmp(a->member.data, b->member.data, a->member.len) == 0);
#define FUZZ_V(member, number) is_equal = is_equal && a->member == b->member;
    STET__FACT_FIELDS(FUZZ_B, FUZZ_V)
#undef FUZZ_B
#undef FUZZ_V
    return is_equal;
}

static void
fuzz_write_and_read(const stet__fact *fact)
{
    stet__buf  b;
    stet_bytes in;
    stet__fact again;

    stet__buf_init(&b, fuzz_alloc());
    stet__fact_encode(&b, fact);
    in = stet__buf_bytes(&b);
    if (b.failed || stet__fact_decode(&again, &in) != STET_OK || in.len != 0 || !fuzz_equal(fact, &again))
        abort();
    stet__buf_free(&b);
}

static void
fuzz_read(stet_bytes in)
{
    size_t     before = in.len;
    stet__fact fact;
    int        err;

    while ((err = stet__fact_decode(&fact, &in)) != STET_END) {
        if (err != STET_OK && (err != STET_ECORRUPT || stet_last_error()[0] == '\0'))
            abort();
        if (in.len >= before) /* it must move on */
            abort();
        before = in.len;
        if (err == STET_OK)
            fuzz_write_and_read(&fact);
    }
}

static void
fuzz_read_body(const uint8_t *data, size_t size)
{
    stet__buf b;

    stet__buf_init(&b, fuzz_alloc());
    stet__buf_varint(&b, size + 4);
    stet__buf_add(&b, data, size);
    stet__buf_u32(&b, stet__crc32c(0, b.data, b.len));
    fuzz_read(stet__buf_bytes(&b));
    stet__buf_free(&b);
}

/* A fact with fields from the bytes: a field number, then a number or a length and bytes. */
static void
fuzz_fill(stet__fact *fact, stet_bytes in)
{
    uint8_t    field;
    uint64_t   v;
    stet_bytes bytes;

    fact->kind = STET__FACT_STEP;
    while (stet__read_byte(&in, &field) && stet__read_varint(&in, &v)) {
        if (!stet__read_bytes(&in, (size_t)(v % 64 < in.len ? v % 64 : in.len), &bytes))
            return;
#define FUZZ_B(member, number)                                                                     \
    if (field % 36 == (number))                                                                    \
        fact->member = bytes;
#define FUZZ_V(member, number)                                                                     \
    if (field % 36 == (number))                                                                    \
        fact->member = (int64_t)v;
        STET__FACT_FIELDS(FUZZ_B, FUZZ_V)
#undef FUZZ_B
#undef FUZZ_V
    }
}

static void
fuzz_damage(const uint8_t *data, size_t size)
{
    stet__fact fact = { 0 }, got;
    stet__buf  b;
    stet_bytes in;
    size_t     at;

    if (size < 3 || data[2] == 0)
        return;
    fuzz_fill(&fact, (stet_bytes){ data + 3, size - 3 });
    fuzz_write_and_read(&fact);
    stet__buf_init(&b, fuzz_alloc());
    stet__fact_encode(&b, &fact);
    at = ((size_t)data[0] << 8 | data[1]) % b.len;
    b.data[at] ^= data[2];
    in = stet__buf_bytes(&b);
    if (stet__fact_decode(&got, &in) != STET_ECORRUPT)
        abort();
    stet__buf_free(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
#ifdef FUZZ_PLANT
    if (size > 4 && memcmp(data + 1, "PLNT", 4) == 0)
        abort();
#endif
    switch (data[0] % 3) {
    case 0: fuzz_read((stet_bytes){ data + 1, size - 1 }); break;
    case 1: fuzz_read_body(data + 1, size - 1); break;
    default: fuzz_damage(data + 1, size - 1); break;
    }
    return 0;
}
