/* MessagePack as it comes from the server: every form of it, cut off anywhere, and what is none. */
#include <stet.h>

#include "store/redis.h"
#include "test.h"

typedef struct number {
    int64_t want;
    size_t  len;
    uint8_t bytes[10];
} number;

static stet_bytes
bytes_of(const uint8_t *at, size_t len)
{
    return (stet_bytes){ at, len };
}

TEST(G4_redis_numbers_of_every_form_are_read_and_none_that_is_cut_off)
{
    static const number numbers[] = {
        { 7, 1, { 0x07 } },
        { -1, 1, { 0xff } },
        { 1, 5, { 0xca, 0x3f, 0x80, 0, 0 } },
        { -2, 9, { 0xcb, 0xc0, 0, 0, 0, 0, 0, 0, 0 } },
        { 200, 2, { 0xcc, 200 } },
        { 0x1234, 3, { 0xcd, 0x12, 0x34 } },
        { 0x12345678, 5, { 0xce, 0x12, 0x34, 0x56, 0x78 } },
        { 0x1234567812345678, 9, { 0xcf, 0x12, 0x34, 0x56, 0x78, 0x12, 0x34, 0x56, 0x78 } },
        { -100, 2, { 0xd0, 0x9c } },
        { -2, 3, { 0xd1, 0xff, 0xfe } },
        { -2, 5, { 0xd2, 0xff, 0xff, 0xff, 0xfe } },
        { -2, 9, { 0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe } },
    };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (size_t len = 0; len <= numbers[i].len; len++) {
            stet_bytes in = bytes_of(numbers[i].bytes, len);
            int64_t    v = 0;

            CHECK_INT(stet__redis_take_int(&in, &v), len == numbers[i].len);
            if (len == numbers[i].len)
                CHECK(v == numbers[i].want && in.len == 0);
        }
    }
}

TEST(G4_redis_numbers_that_do_not_fit_are_refused)
{
    static const uint8_t large[] = { 0xcf, 0xff, 0, 0, 0, 0, 0, 0, 0 };
    static const uint8_t wide[] = { 0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0 }; /* infinite */
    static const uint8_t below[] = { 0xff };
    static const uint8_t over[] = { 0xcf, 0, 0, 0, 1, 0, 0, 0, 0 };
    stet_bytes           in;
    int64_t              v;
    uint64_t             u;
    uint32_t             half;

    in = bytes_of(large, sizeof large);
    CHECK(!stet__redis_take_int(&in, &v));
    in = bytes_of(wide, sizeof wide);
    CHECK(!stet__redis_take_int(&in, &v));
    in = bytes_of(below, sizeof below);
    CHECK(!stet__redis_take_uint(&in, &u));
    in = bytes_of(below, sizeof below);
    CHECK(!stet__redis_take_u32(&in, &half));
    in = bytes_of(over, sizeof over);
    CHECK(!stet__redis_take_u32(&in, &half));
    in = bytes_of(over, sizeof over);
    CHECK(stet__redis_take_uint(&in, &u) && u == UINT64_C(1) << 32);
}

static void
take_string(const uint8_t *head, size_t head_len, size_t len)
{
    uint8_t    text[128] = { 0 };
    stet_bytes in, out;

    memcpy(text, head, head_len);
    for (size_t n = 0; n < head_len + len; n++) {
        in = bytes_of(text, n);
        CHECK(!stet__redis_take_bytes(&in, &out));
    }
    in = bytes_of(text, head_len + len);
    CHECK(stet__redis_take_bytes(&in, &out) && out.len == len && in.len == 0);
}

TEST(G4_redis_strings_of_every_form_are_read_and_none_that_is_cut_off)
{
    take_string((const uint8_t[]){ 0xa3 }, 1, 3);
    take_string((const uint8_t[]){ 0xd9, 40 }, 2, 40);
    take_string((const uint8_t[]){ 0xda, 0, 40 }, 3, 40);
    take_string((const uint8_t[]){ 0xdb, 0, 0, 0, 40 }, 5, 40);
    take_string((const uint8_t[]){ 0xc4, 40 }, 2, 40);
    take_string((const uint8_t[]){ 0xc5, 0, 40 }, 3, 40);
    take_string((const uint8_t[]){ 0xc6, 0, 0, 0, 40 }, 5, 40);
}

TEST(G4_redis_lists_of_every_form_are_read_and_none_that_is_cut_off)
{
    static const uint8_t lists[][8] = { { 0x92, 1, 2 },
                                        { 0xdc, 0, 2, 1, 2 },
                                        { 0xdd, 0, 0, 0, 2, 1, 2 } };
    static const size_t  lens[] = { 3, 5, 7 };

    for (size_t i = 0; i < 3; i++)
        for (size_t len = 0; len <= lens[i]; len++) {
            stet_bytes in = bytes_of(lists[i], len);
            size_t     n = 0;

            CHECK_INT(stet__redis_take_array(&in, &n), len == lens[i]);
            if (len == lens[i])
                CHECK_INT(n, 2);
        }
}

TEST(G4_redis_what_is_of_another_kind_is_refused)
{
    static const uint8_t    kinds[][2] = { { 0x01 }, { 0xa1, 'x' }, { 0x91, 1 }, { 0xc2 },
                                           { 0xc1 }, { 0x81 },      { 0xc0 },    { 0xc3 } };
    static const size_t     lens[] = { 1, 2, 2, 1, 1, 1, 1, 1 };
    static const redis_kind want[] = { REDIS_IS_NUMBER, REDIS_IS_BYTES, REDIS_IS_ARRAY,
                                       REDIS_IS_FALSE,  REDIS_IS_BAD,   REDIS_IS_BAD,
                                       REDIS_IS_FALSE,  REDIS_IS_BAD };

    for (size_t i = 0; i < 8; i++) {
        stet_bytes in = bytes_of(kinds[i], lens[i]), at, text;
        int64_t    v;
        size_t     n;
        bool       flag;
        stet_id    id;

        CHECK_INT(stet__redis_peek(in), want[i]);
        at = in;
        CHECK_INT(stet__redis_take_int(&at, &v), i == 0);
        at = in;
        CHECK_INT(stet__redis_take_bytes(&at, &text), i == 1);
        at = in;
        CHECK(!stet__redis_take_id(&at, &id)); /* not 16 bytes */
        at = in;
        CHECK_INT(stet__redis_take_array(&at, &n), i == 2);
        at = in;
        CHECK_INT(stet__redis_take_flag(&at, &flag), i == 3 || i == 7);
        at = in;
        CHECK_INT(stet__redis_take_time(&at, &v), i == 0 || i == 3);
    }
    {
        stet_bytes none = { NULL, 0 };
        bool       flag;

        CHECK_INT(stet__redis_peek(none), REDIS_IS_BAD);
        CHECK(!stet__redis_take_flag(&none, &flag));
    }
}

TEST(G4_redis_times_beyond_what_Lua_can_count_are_the_last_it_can)
{
    static const int64_t times[] = { 0, -5, STET_NEVER - 1, INT64_MIN, STET_NEVER };
    stet__buf            b;
    stet_bytes           in;
    int64_t              v;

    for (size_t i = 0; i < 5; i++) {
        stet__buf_init(&b, &stet__platform_real()->alloc);
        stet__redis_pack_time(&b, times[i]);
        in = bytes_of(b.data, b.len);
        CHECK(stet__redis_take_time(&in, &v));
        CHECK(i < 2 || i == 4 ? v == times[i]
              : i == 2        ? v == REDIS_DUE_BIAS - 1
                              : v == -REDIS_DUE_BIAS);
        stet__buf_free(&b);
    }
}

/* Long ones need longer heads. */
TEST(G4_redis_what_is_packed_is_read_again)
{
    static const size_t lens[] = { 0, 31, 32, 255, 256, 65535, 65536 };
    static uint8_t      text[65536];

    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        stet__buf  b;
        stet_bytes in, out;
        size_t     n;

        stet__buf_init(&b, &stet__platform_real()->alloc);
        stet__redis_pack_bytes(&b, text, lens[i]);
        in = bytes_of(b.data, b.len);
        CHECK(stet__redis_take_bytes(&in, &out) && out.len == lens[i] && in.len == 0);
        stet__buf_cut(&b, 0);
        stet__redis_pack_array(&b, lens[i]);
        stet__buf_add(&b, text, lens[i]);
        in = bytes_of(b.data, b.len);
        CHECK(stet__redis_take_array(&in, &n) && n == lens[i] && in.len == n);
        stet__buf_free(&b);
    }
}
