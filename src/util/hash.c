/* A fast hash for maps and fingerprints inside one process; not for adversaries, see sha256.c.
 *
 * Eight bytes at a time: fold in, multiply by an odd constant, fold the high half down, so each
 * word has reached all bits before the next arrives. The last word overlaps the one before instead
 * of being padded; the length in the seed keeps that unambiguous. The same on every machine.
 */
#include "util/util.h"

#define HASH_K1 UINT64_C(0x9E3779B97F4A7C15)
#define HASH_K2 UINT64_C(0xD6E8FEB86659FD93)

static uint64_t
hash_step(uint64_t h, uint64_t word)
{
    h = (h ^ word) * HASH_K1;
    return h ^ h >> 32;
}

/* Zero to seven bytes as one number. */
static uint64_t
hash_short(const uint8_t *p, size_t len)
{
    uint64_t word = 0;

    if (len >= 4)
        return (uint64_t)stet__load_u32(p) << 32 | stet__load_u32(p + len - 4);
    if (len != 0)
        word = (uint64_t)p[0] << 16 | (uint64_t)p[len / 2] << 8 | p[len - 1];
    return word;
}

uint64_t
stet__hash64(const void *data, size_t len, uint64_t seed)
{
    const uint8_t *p = data;
    size_t         left = len;
    uint64_t       h = seed * HASH_K2 ^ (uint64_t)len * HASH_K1;

    if (len < 8) {
        h = hash_step(h, hash_short(p, len));
    } else {
        for (; left > 8; p += 8, left -= 8)
            h = hash_step(h, stet__load_u64(p));
        h = hash_step(h, stet__load_u64(p + left - 8));
    }
    h = (h ^ h >> 29) * HASH_K2;
    return h ^ h >> 32;
}
