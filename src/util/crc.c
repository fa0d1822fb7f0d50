/* CRC-32C (Castagnoli), the checksum of every fact: by the processor's instruction where it has
 * one, else from tables, eight bytes at a time. Both give the same numbers.
 *
 * A CRC is linear: the entry of a byte is the XOR of the entries of its bits. So each table is
 * written down as its eight one-bit entries and the compiler fills in the rest.
 */
#include "util/util.h"

#define CRC_BIT(i, bit, entry) (((i) >> (bit)&1u) ? (entry) : 0u)
#define CRC_1(i, a, b, c, d, e, f, g, h)                                                           \
    (CRC_BIT(i, 0, a) ^ CRC_BIT(i, 1, b) ^ CRC_BIT(i, 2, c) ^ CRC_BIT(i, 3, d) ^                   \
     CRC_BIT(i, 4, e) ^ CRC_BIT(i, 5, f) ^ CRC_BIT(i, 6, g) ^ CRC_BIT(i, 7, h))
#define CRC_4(i, ...)                                                                              \
    CRC_1((i) + 0u, __VA_ARGS__), CRC_1((i) + 1u, __VA_ARGS__), CRC_1((i) + 2u, __VA_ARGS__),      \
        CRC_1((i) + 3u, __VA_ARGS__)
#define CRC_16(i, ...)                                                                             \
    CRC_4((i) + 0u, __VA_ARGS__), CRC_4((i) + 4u, __VA_ARGS__), CRC_4((i) + 8u, __VA_ARGS__),      \
        CRC_4((i) + 12u, __VA_ARGS__)
#define CRC_64(i, ...)                                                                             \
    CRC_16((i) + 0u, __VA_ARGS__), CRC_16((i) + 16u, __VA_ARGS__), CRC_16((i) + 32u, __VA_ARGS__), \
        CRC_16((i) + 48u, __VA_ARGS__)
#define CRC_TABLE(...)                                                                             \
    {                                                                                              \
        CRC_64(0u, __VA_ARGS__), CRC_64(64u, __VA_ARGS__), CRC_64(128u, __VA_ARGS__),              \
            CRC_64(192u, __VA_ARGS__)                                                              \
    }

/* crc_table[k][byte]: what a byte does to the checksum k bytes later. */
static const uint32_t crc_table[8][256] = {
    CRC_TABLE(0xF26B8303u, 0xE13B70F7u, 0xC79A971Fu, 0x8AD958CFu, 0x105EC76Fu, 0x20BD8EDEu,
              0x417B1DBCu, 0x82F63B78u),
    CRC_TABLE(0x13A29877u, 0x274530EEu, 0x4E8A61DCu, 0x9D14C3B8u, 0x3FC5F181u, 0x7F8BE302u,
              0xFF17C604u, 0xFBC3FAF9u),
    CRC_TABLE(0xA541927Eu, 0x4F6F520Du, 0x9EDEA41Au, 0x38513EC5u, 0x70A27D8Au, 0xE144FB14u,
              0xC76580D9u, 0x8B277743u),
    CRC_TABLE(0xDD45AAB8u, 0xBF672381u, 0x7B2231F3u, 0xF64463E6u, 0xE964B13Du, 0xD725148Bu,
              0xABA65FE7u, 0x52A0C93Fu),
    CRC_TABLE(0x38116FACu, 0x7022DF58u, 0xE045BEB0u, 0xC5670B91u, 0x8F2261D3u, 0x1BA8B557u,
              0x37516AAEu, 0x6EA2D55Cu),
    CRC_TABLE(0xEF306B19u, 0xDB8CA0C3u, 0xB2F53777u, 0x6006181Fu, 0xC00C303Eu, 0x85F4168Du,
              0x0E045BEBu, 0x1C08B7D6u),
    CRC_TABLE(0x68032CC8u, 0xD0065990u, 0xA5E0C5D1u, 0x4E2DFD53u, 0x9C5BFAA6u, 0x3D5B83BDu,
              0x7AB7077Au, 0xF56E0EF4u),
    CRC_TABLE(0x493C7D27u, 0x9278FA4Eu, 0x211D826Du, 0x423B04DAu, 0x847609B4u, 0x0D006599u,
              0x1A00CB32u, 0x34019664u),
};

uint32_t
stet__crc32c_soft(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint32_t       a, b;

    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        a = crc ^ stet__load_u32(p);
        b = stet__load_u32(p + 4);
        crc = crc_table[7][a & 255] ^ crc_table[6][a >> 8 & 255] ^ crc_table[5][a >> 16 & 255] ^
              crc_table[4][a >> 24] ^ crc_table[3][b & 255] ^ crc_table[2][b >> 8 & 255] ^
              crc_table[1][b >> 16 & 255] ^ crc_table[0][b >> 24];
    }
    for (; len != 0; p++, len--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *p) & 255];
    return ~crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

__attribute__((target("sse4.2"))) static uint32_t
crc_hard(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t       wide = ~crc;

    for (; len >= 8; p += 8, len -= 8)
        wide = __builtin_ia32_crc32di(wide, stet__load_u64(p));
    crc = (uint32_t)wide;
    if (len & 4) {
        crc = __builtin_ia32_crc32si(crc, stet__load_u32(p));
        p += 4;
    }
    for (len &= 3; len != 0; p++, len--)
        crc = __builtin_ia32_crc32qi(crc, *p);
    return ~crc;
}

uint32_t
stet__crc32c(uint32_t crc, const void *data, size_t len)
{
    if (STET__LIKELY(__builtin_cpu_supports("sse4.2")))
        return crc_hard(crc, data, len);
    return stet__crc32c_soft(crc, data, len);
}

#else

uint32_t
stet__crc32c(uint32_t crc, const void *data, size_t len)
{
    return stet__crc32c_soft(crc, data, len);
}

#endif
