/* SHA-256 (FIPS 180-4), of one piece of memory or of many: session tokens are stored only as this,
 * and two stores are compared by it. */
#include "util/util.h"

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t
sha256_rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* The 64 words of the message schedule of one block. */
static void
sha256_schedule(uint32_t w[64], const uint8_t *block)
{
    uint32_t s0, s1;
    int      i;

    for (i = 0; i < 16; i++, block += 4)
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
    for (; i < 64; i++) {
        s0 = sha256_rotate(w[i - 15], 7) ^ sha256_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        s1 = sha256_rotate(w[i - 2], 17) ^ sha256_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

/* One round. Instead of moving all eight variables on by one place, the next round is called with
 * their names moved; only v[d] and v[h] change. */
static inline void
sha256_round(uint32_t v[8], int i, uint32_t kw)
{
    uint32_t a = v[-i & 7], b = v[(1 - i) & 7], c = v[(2 - i) & 7];
    uint32_t e = v[(4 - i) & 7], f = v[(5 - i) & 7], g = v[(6 - i) & 7];
    uint32_t t1, t2;

    t1 = v[(7 - i) & 7] + kw + ((e & f) ^ (~e & g)) +
         (sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25));
    t2 = ((a & b) ^ (a & c) ^ (b & c)) +
         (sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22));
    v[(3 - i) & 7] += t1;
    v[(7 - i) & 7] = t1 + t2;
}

static void
sha256_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], v[8];
    int      i;

    sha256_schedule(w, block);
    memcpy(v, state, sizeof v);
    for (i = 0; i < 64; i += 8) {
        sha256_round(v, 0, sha256_k[i] + w[i]);
        sha256_round(v, 1, sha256_k[i + 1] + w[i + 1]);
        sha256_round(v, 2, sha256_k[i + 2] + w[i + 2]);
        sha256_round(v, 3, sha256_k[i + 3] + w[i + 3]);
        sha256_round(v, 4, sha256_k[i + 4] + w[i + 4]);
        sha256_round(v, 5, sha256_k[i + 5] + w[i + 5]);
        sha256_round(v, 6, sha256_k[i + 6] + w[i + 6]);
        sha256_round(v, 7, sha256_k[i + 7] + w[i + 7]);
    }
    for (i = 0; i < 8; i++)
        state[i] += v[i];
}

/* What is left over, the end mark and the length in bits: one block, or two if that is too much. */
static void
sha256_finish(uint32_t state[8], const uint8_t *rest, size_t rest_len, uint64_t len)
{
    uint8_t tail[128] = { 0 };
    size_t  tail_len = rest_len < 56 ? 64 : 128;
    size_t  i;

    if (rest_len != 0)
        memcpy(tail, rest, rest_len);
    tail[rest_len] = 0x80;
    for (i = 0; i < 8; i++)
        tail[tail_len - 1 - i] = (uint8_t)(len * 8 >> (8 * i));
    for (i = 0; i < tail_len; i += 64)
        sha256_block(state, tail + i);
}

void
stet__sha256_begin(stet__sha256_sum *sum)
{
    static const uint32_t first[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

    memcpy(sum->state, first, sizeof first);
    sum->len = 0;
}

void
stet__sha256_add(stet__sha256_sum *sum, const void *data, size_t len)
{
    const uint8_t *p = data;
    size_t         n = (size_t)(sum->len % 64), room = 64 - n;

    sum->len += len;
    if (n > 0 && len >= room) {
        memcpy(sum->rest + n, p, room);
        sha256_block(sum->state, sum->rest);
        p += room;
        len -= room;
        n = 0;
    }
    for (; n == 0 && len >= 64; p += 64, len -= 64)
        sha256_block(sum->state, p);
    if (len > 0)
        memcpy(sum->rest + n, p, len);
}

void
stet__sha256_end(stet__sha256_sum *sum, uint8_t out[32])
{
    sha256_finish(sum->state, sum->rest, (size_t)(sum->len % 64), sum->len);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(sum->state[i / 4] >> (24 - 8 * (i % 4)));
}

void
stet__sha256(uint8_t out[32], const void *data, size_t len)
{
    stet__sha256_sum sum;

    stet__sha256_begin(&sum);
    stet__sha256_add(&sum, data, len);
    stet__sha256_end(&sum, out);
}
