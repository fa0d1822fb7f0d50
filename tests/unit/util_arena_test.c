/* Arenas: alignment, marks, large pieces, running out of memory. */
#include "util_fault.h"

TEST(util_arena_pieces_are_aligned_and_apart)
{
    fault_alloc f = fault_new(0);
    stet__arena a;
    uint8_t    *pieces[500];
    size_t      i, k;

    stet__arena_init(&a, &f.base);
    for (i = 0; i < 500; i++) {
        pieces[i] = stet__arena_get(&a, i * 7 % 300);
        CHECK(pieces[i] != NULL);
        CHECK_INT((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)(i & 255), i * 7 % 300);
    }
    for (i = 0; i < 500; i++)
        for (k = 0; k < i * 7 % 300; k++)
            CHECK_INT(pieces[i][k], i & 255);
    CHECK(f.calls < 20);
    stet__arena_free(&a);
    CHECK_INT(f.held, 0);
    CHECK(stet__arena_get(&a, 1) != NULL);
    stet__arena_free(&a);
    CHECK_INT(f.held, 0);
}

TEST(util_arena_text_and_copies)
{
    fault_alloc f = fault_new(0);
    stet__arena a;
    char        large[5000];
    char       *copy;
    int         i;

    stet__arena_init(&a, &f.base);
    memset(large, 'y', sizeof large);
    CHECK_STR(stet__arena_str(&a, "name"), "name");
    CHECK(stet__arena_str(&a, NULL) == NULL);
    copy = stet__arena_copy(&a, NULL, 0);
    CHECK_STR(copy, "");
    copy = stet__arena_copy(&a, large, sizeof large);
    CHECK(memcmp(copy, large, sizeof large) == 0 && copy[sizeof large] == '\0');
    copy = stet__arena_get0(&a, 100);
    for (i = 0; i < 100; i++)
        CHECK_INT(copy[i], 0);
    for (i = 0; i < 200; i++) {
        copy = stet__arena_printf(&a, "%0*d", i + 1, i);
        CHECK_INT(strlen(copy), i + 1);
        CHECK_INT(strtol(copy, NULL, 10), i);
    }
    stet__arena_free(&a);
    CHECK_INT(f.held, 0);
}

TEST(util_arena_release_goes_back_to_the_mark)
{
    fault_alloc      f = fault_new(0);
    stet__arena      a;
    stet__arena_mark start, mark;
    char            *kept;
    void            *next, *again;
    int              i;

    stet__arena_init(&a, &f.base);
    start = stet__arena_mark_get(&a);
    kept = stet__arena_str(&a, "kept");
    mark = stet__arena_mark_get(&a);
    next = stet__arena_get(&a, 32);
    for (i = 0; i < 100; i++)
        CHECK(stet__arena_get(&a, 1000) != NULL);
    stet__arena_release(&a, mark);
    CHECK_INT(f.held, 1);
    CHECK_STR(kept, "kept");
    again = stet__arena_get(&a, 32);
    CHECK(again == next);
    stet__arena_release(&a, start);
    CHECK_INT(f.held, 0);
}

TEST(util_arena_survives_failing_allocations)
{
    stet__arena a;
    long        n;
    int         i, got;

    for (n = 1; n < 12; n++) {
        fault_alloc f = fault_new(n);

        stet__arena_init(&a, &f.base);
        for (i = got = 0; i < 200; i++) {
            got += stet__arena_get(&a, 100) != NULL;
            got += stet__arena_printf(&a, "%200d", i) != NULL;
            got += stet__arena_str(&a, "text") != NULL;
        }
        CHECK((got == 600) == !fault_was_hit(&f));
        CHECK(stet__arena_get(&a, SIZE_MAX) == NULL);
        CHECK(stet__arena_get(&a, SIZE_MAX - 20) == NULL);
        CHECK(stet__arena_copy(&a, "", SIZE_MAX) == NULL);
        stet__arena_free(&a);
        CHECK_INT(f.held, 0);
    }
}
