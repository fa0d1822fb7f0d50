/* xoroshiro128++ seeded through splitmix64: the numbers of one seed are the same for ever, because
 * runs replay what they drew. Never change them; not for secrets.
 */
#include "util/util.h"

static uint64_t
rng_split(uint64_t *x)
{
    uint64_t z = *x += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint64_t
rng_rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

/* Two outputs of splitmix64 are never both 0, the one state the generator could not leave. */
void
stet__rng_seed(stet__rng *r, uint64_t seed)
{
    r->s[0] = rng_split(&seed);
    r->s[1] = rng_split(&seed);
}

uint64_t
stet__rng_next(stet__rng *r)
{
    uint64_t s0 = r->s[0], s1 = r->s[1];
    uint64_t result = rng_rotate(s0 + s1, 17) + s0;

    s1 ^= s0;
    r->s[0] = rng_rotate(s0, 49) ^ s1 ^ s1 << 21;
    r->s[1] = rng_rotate(s1, 28);
    return result;
}
