/* The test harness: tests register themselves, each runs in a forked child with a time limit, and
 * the program prints one line a test ("ok NAME" / "not ok NAME") and ends with the counts.
 *
 *     TEST(A11_text_durations_are_parsed) { CHECK_INT(parse("5s"), 5000); }
 *
 * Arguments of every test program: [--list] [--no-fork] [SUBSTRING …]. A failed check ends the
 * test.
 */
#ifndef STET_TEST_H
#define STET_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_case {
    const char       *name;
    void            (*fn)(void);
    int               limit_s; /* 0: 60; multiplied by test_slow() */
    struct test_case *next;
} test_case;

void test_register(test_case *test);
/* Called once in the runner, before the first test: for what all tests of a program share. */
void test_before(void (*fn)(void));
/* Print file, line and message, and end this test as failed. */
_Noreturn void test_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* End this test as skipped, with the reason. */
_Noreturn void test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A name no other process has, nor had: numbers of processes come again. [a-z0-9_] */
const char *test_unique(void);
/* What the environment says of this; as a count, which is 1 or more. */
long test_number(const char *name, long otherwise);
long test_count(const char *name, long otherwise);
/* How many times slower than a quiet machine and no sanitizer it may be: STET_TEST_SLOW, else
 * 1. Every limit that is there so that a test says what did not come is multiplied by it; it
 * costs nothing where all comes. */
int test_slow(void);
/* A fresh directory, removed after the test (also after a crash). The same one within a test. */
const char *test_dir(void);
/* test_dir() + "/" + name, in a static ring of buffers. */
const char *test_path(const char *name);
/* A line shown with the result ("tried 214 points"). */
void test_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define TEST_LIMIT(test, seconds)                                                                  \
    static void test_##test(void);                                                                 \
    static test_case test_case_##test = { #test, test_##test, seconds, NULL };                     \
    __attribute__((constructor)) static void test_register_##test(void)                            \
    {                                                                                              \
        test_register(&test_case_##test);                                                          \
    }                                                                                              \
    static void test_##test(void)
#define TEST(test) TEST_LIMIT(test, 0)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__FILE__, __LINE__, "not so: %s", #cond);                                    \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_)                                                                         \
            test_fail(__FILE__, __LINE__, "%s is %lld, expected %lld", #got, got_, want_);         \
    } while (0)
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (got_ == NULL || strcmp(got_, want_) != 0)                                              \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #got,                   \
                      got_ ? got_ : "(null)", want_);                                              \
    } while (0)
#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *text_ = (text);                                                                \
        if (text_ == NULL || strstr(text_, (part)) == NULL)                                        \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", which lacks \"%s\"", #text,               \
                      text_ ? text_ : "(null)", (part));                                           \
    } while (0)
/* A stet call that must succeed; prints the code and stet_last_error() otherwise. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != 0)                                                                            \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", #call, stet_code_name(code_),              \
                      stet_last_error());                                                          \
    } while (0)
#define CHECK_CODE(call, want)                                                                     \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != (want))                                                                       \
            test_fail(__FILE__, __LINE__, "%s: %s, expected %s: %s", #call,                        \
                      code_ ? stet_code_name(code_) : "STET_OK",                                   \
                      (want) ? stet_code_name(want) : "STET_OK", stet_last_error());               \
    } while (0)

#endif
