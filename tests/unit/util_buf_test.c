/* Buffers, numbers in them, and running out of memory while appending. */
#include "util_fault.h"

TEST(util_buf_appends_and_terminates)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;
    int         i;

    stet__buf_init(&b, &f.base);
    CHECK_STR(stet__buf_cstr(&b), "");
    stet__buf_add(&b, NULL, 0);
    stet__buf_str(&b, "one ");
    stet__buf_byte(&b, '2');
    stet__buf_printf(&b, " %s %d", "three", 4);
    CHECK_STR(stet__buf_cstr(&b), "one 2 three 4");
    CHECK_INT(stet__buf_bytes(&b).len, 13);
    for (i = 0; i < 1000; i++)
        stet__buf_printf(&b, "%d,", i);
    CHECK_INT(b.len, 13 + 10 * 2 + 90 * 3 + 900 * 4);
    stet__buf_cut(&b, 3);
    CHECK_STR(stet__buf_cstr(&b), "one");
    CHECK(!b.failed);
    stet__buf_free(&b);
    stet__buf_free(&b);
    CHECK_INT(f.held, 0);
}

/* The printed text and its NUL just fit, just do not fit, and every length around. */
TEST(util_buf_printf_at_every_fill)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;
    int         fill;

    for (fill = 40; fill < 140; fill++) {
        stet__buf_init(&b, &f.base);
        stet__buf_printf(&b, "%*s", fill, "");
        stet__buf_printf(&b, "%s", "abcdefgh");
        CHECK_INT(b.len, fill + 8);
        CHECK_STR(stet__buf_cstr(&b) + fill, "abcdefgh");
        stet__buf_free(&b);
    }
    CHECK_INT(f.held, 0);
}

TEST(util_buf_numbers_come_back)
{
    static const uint64_t numbers[] = { 0,          1,          127,        128,
                                        16383,      16384,      UINT32_MAX, UINT64_MAX,
                                        1ull << 63, 1ull << 56, 300 };
    fault_alloc           f = fault_new(0);
    stet__buf             b;
    stet_bytes            in;
    uint64_t              v;
    uint32_t              v32;
    uint8_t               byte;
    size_t                i;

    stet__buf_init(&b, &f.base);
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        stet__buf_varint(&b, numbers[i]);
        stet__buf_u32(&b, (uint32_t)numbers[i]);
        stet__buf_u64(&b, numbers[i]);
        stet__buf_byte(&b, (uint8_t)numbers[i]);
    }
    in = stet__buf_bytes(&b);
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        CHECK(stet__read_varint(&in, &v) && v == numbers[i]);
        CHECK(stet__read_u32(&in, &v32) && v32 == (uint32_t)numbers[i]);
        CHECK(stet__read_u64(&in, &v) && v == numbers[i]);
        CHECK(stet__read_byte(&in, &byte) && byte == (uint8_t)numbers[i]);
    }
    CHECK_INT(in.len, 0);
    stet__buf_free(&b);
}

TEST(util_buf_numbers_have_the_documented_bytes)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;

    stet__buf_init(&b, &f.base);
    stet__buf_varint(&b, 300);
    stet__buf_u32(&b, 0x01020304);
    stet__buf_u64(&b, UINT64_C(0x0102030405060708));
    CHECK_INT(b.len, 14);
    CHECK(memcmp(b.data, "\xAC\x02\x04\x03\x02\x01\x08\x07\x06\x05\x04\x03\x02\x01", 14) == 0);
    stet__buf_free(&b);
}

static void
buf_check_untouched(const char *raw, size_t len)
{
    uint8_t   *copy = malloc(len ? len : 1); /* exact size: the sanitizer sees reading beyond */
    stet_bytes in = { copy, len }, out;
    uint64_t   v;
    uint32_t   v32;

    memcpy(copy, raw, len);
    CHECK(!stet__read_varint(&in, &v));
    CHECK(in.data == copy && in.len == len);
    if (len < 4)
        CHECK(!stet__read_u32(&in, &v32));
    if (len < 8)
        CHECK(!stet__read_u64(&in, &v));
    CHECK(!stet__read_bytes(&in, len + 1, &out));
    CHECK(!stet__read_bytes(&in, SIZE_MAX, &out));
    CHECK(in.data == copy && in.len == len);
    free(copy);
}

TEST(util_buf_reads_refuse_what_does_not_fit)
{
    stet_bytes none = { NULL, 0 }, out;
    uint64_t   v;
    uint8_t    byte;

    buf_check_untouched("", 0);
    buf_check_untouched("\x80", 1);
    buf_check_untouched("\xFF\xFF\xFF", 3);
    buf_check_untouched("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 9);
    buf_check_untouched("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 10);
    buf_check_untouched("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11);
    CHECK(!stet__read_varint(&none, &v));
    CHECK(!stet__read_byte(&none, &byte));
    CHECK(stet__read_bytes(&none, 0, &out) && out.len == 0);
}

/* Some of everything, over and over; returns how much was asked for. */
static void
buf_fill(stet__buf *b)
{
    int i;

    for (i = 0; i < 40; i++) {
        stet__buf_str(b, "0123456789");
        stet__buf_varint(b, UINT64_MAX);
        stet__buf_printf(b, "%050d", i);
        stet__buf_u64(b, 1);
        stet__buf_byte(b, 'x');
    }
}

TEST(util_buf_survives_every_failing_allocation)
{
    fault_alloc f = fault_new(0);
    stet__buf   whole, b;
    long        n;

    stet__buf_init(&whole, &f.base);
    buf_fill(&whole);
    for (n = 1;; n++) {
        fault_alloc g = fault_new(n);

        stet__buf_init(&b, &g.base);
        buf_fill(&b);
        CHECK_INT(b.failed, fault_was_hit(&g));
        CHECK(b.len <= whole.len && (b.len == 0 || memcmp(b.data, whole.data, b.len) == 0));
        if (b.failed) {
            size_t len = b.len;

            g.fail_at = 0; /* memory is back: still nothing may follow the gap */
            buf_fill(&b);
            CHECK_INT(b.len, len);
            CHECK_STR(stet__buf_cstr(&b), "");
            CHECK(!stet__buf_reserve(&b, 1));
            stet__buf_cut(&b, 0);
            stet__buf_byte(&b, 'x');
            CHECK_INT(b.len, 0);
        }
        stet__buf_free(&b);
        CHECK_INT(g.held, 0);
        if (!fault_was_hit(&g) && g.fail_at != 0)
            break;
    }
    test_note("failed at %ld points", n - 1);
    CHECK(n > 3);
    stet__buf_free(&whole);
}

TEST(util_buf_absurd_sizes_fail)
{
    fault_alloc f = fault_new(0);
    stet__buf   b;

    stet__buf_init(&b, &f.base);
    stet__buf_str(&b, "abc");
    CHECK(!stet__buf_reserve(&b, SIZE_MAX));
    CHECK(b.failed);
    stet__buf_free(&b);
    stet__buf_str(&b, "again");
    CHECK_STR(stet__buf_cstr(&b), "again");
    stet__buf_free(&b);
    CHECK_INT(f.held, 0);
}

TEST(util_text_is_bytes_without_the_nul)
{
    CHECK_INT(stet_text("abc").len, 3);
    CHECK_INT(stet_text("").len, 0);
    CHECK_INT(stet_text(NULL).len, 0);
}
