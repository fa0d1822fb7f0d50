/* The allocator wrappers: 0 bytes, zeroing, and what NULL means. */
#include "util_fault.h"

TEST(util_alloc_zero_bytes_is_no_failure)
{
    fault_alloc f = fault_new(0);
    void       *a = stet__get(&f.base, 0), *b = stet__get0(&f.base, 0);

    CHECK(a != NULL && b != NULL && a != b);
    a = stet__grow(&f.base, a, 0);
    CHECK(a != NULL);
    stet__free(&f.base, a);
    stet__free(&f.base, b);
    stet__free(&f.base, NULL);
    CHECK_INT(f.held, 0);
}

TEST(util_alloc_zeroes_and_copies)
{
    fault_alloc f = fault_new(0);
    uint8_t    *p = stet__get0(&f.base, 100);
    char       *copy = stet__strdup(&f.base, "stet");
    int         i;

    for (i = 0; i < 100; i++)
        CHECK_INT(p[i], 0);
    CHECK_STR(copy, "stet");
    CHECK(stet__strdup(&f.base, NULL) == NULL);
    stet__free(&f.base, p);
    stet__free(&f.base, copy);
    CHECK_INT(f.held, 0);
}

TEST(util_alloc_failure_is_null_and_keeps_the_old)
{
    fault_alloc f = fault_new(2);
    uint8_t    *p = stet__get(&f.base, 4);

    memcpy(p, "abcd", 4);
    CHECK(stet__grow(&f.base, p, 4000) == NULL);
    CHECK(memcmp(p, "abcd", 4) == 0);
    CHECK(stet__get0(&f.base, 8) == NULL);
    CHECK(stet__strdup(&f.base, "x") == NULL);
    stet__free(&f.base, p);
    CHECK_INT(f.held, 0);
}
