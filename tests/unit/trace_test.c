/* Trace context: what is one, and what a run hands on. Row H7. */
#include <string.h>

#include "core/trace.h"
#include "test.h"

#define GIVEN "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

TEST(H7_a_traceparent_is_what_the_standard_says)
{
    static const char *const good[] = {
        GIVEN,
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-adds",
    };
    static const char *const bad[] = {
        "",
        "00",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902bx-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473x-00f067aa0ba902b7-01",
    };
    char long_one[400];

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!stet__traceparent_is_legal(good[i]))
            test_fail(__FILE__, __LINE__, "refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (stet__traceparent_is_legal(bad[i]))
            test_fail(__FILE__, __LINE__, "taken: %s", bad[i]);
    memset(long_one, '-', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = '\0';
    memcpy(long_one, good[2], strlen(good[2]));
    CHECK(!stet__traceparent_is_legal(long_one));
    long_one[256] = '\0';
    CHECK(stet__traceparent_is_legal(long_one));
}

TEST(H7_a_tracestate_fits_into_a_header)
{
    char much[514];

    memset(much, 'x', sizeof much - 1);
    much[sizeof much - 1] = '\0';
    CHECK(!stet__tracestate_is_legal(""));
    CHECK(!stet__tracestate_is_legal("a=1\r\nevil: 1"));
    CHECK(!stet__tracestate_is_legal("a=\x7f"));
    CHECK(!stet__tracestate_is_legal(much));
    CHECK(stet__tracestate_is_legal(much + 1));
    CHECK(stet__tracestate_is_legal("vendor=a b,other=1"));
}

TEST(H7_a_run_hands_its_trace_on_with_itself_as_the_parent)
{
    stet_id one = { { 1 } }, two = { { 2 } };
    char    of_one[STET__TRACEPARENT_LEN + 1], again[STET__TRACEPARENT_LEN + 1];
    char    of_two[STET__TRACEPARENT_LEN + 1];

    stet__traceparent_of(of_one, GIVEN, one);
    stet__traceparent_of(again, GIVEN, one);
    stet__traceparent_of(of_two, of_one, two);
    CHECK(stet__traceparent_is_legal(of_one) && stet__traceparent_is_legal(of_two));
    CHECK_STR(of_one, again);
    CHECK(strncmp(of_one, GIVEN, 36) == 0 && strncmp(of_two, GIVEN, 36) == 0);
    CHECK(strncmp(of_one + 36, &GIVEN[36], 16) != 0);
    CHECK(strncmp(of_one + 36, of_two + 36, 16) != 0);
    CHECK_STR(of_two + 52, "-01");
    stet__traceparent_of(of_one, "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", one);
    CHECK_STR(of_one, again); /* in the version we write */
}
