/* Codes, and the sentence of the last failure. */
#include <pthread.h>

#include "util_fault.h"

TEST(util_error_every_code_has_name_text_and_class)
{
#define CHECK_ENTRY(name, number, class_, text)                                                    \
    CHECK_STR(stet_code_name(STET_##name), "STET_" #name);                                         \
    CHECK_STR(stet_code_text(number), text);                                                       \
    CHECK_INT(stet_code_class(number), STET_CLASS_##class_);
    STET_ERROR_LIST(CHECK_ENTRY)
#undef CHECK_ENTRY
    CHECK_STR(stet_code_name(STET_OK), "STET_OK");
    CHECK_INT(stet_code_class(STET_OK), STET_CLASS_OK);
}

TEST(util_error_undefined_codes_are_of_class_retry)
{
    static const int codes[] = { 1, 4711, -19, -999, -1000, -123456 };
    size_t           i;

    for (i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        CHECK(stet_code_name(codes[i]) == NULL);
        CHECK(stet_code_text(codes[i]) != NULL);
        CHECK_INT(stet_code_class(codes[i]), STET_CLASS_RETRY);
    }
}

TEST(util_error_text_is_kept_and_cleared)
{
    CHECK_STR(stet_last_error(), "");
    CHECK_CODE(stet__fail(STET_EIO, "cannot write %s: %d", "x.db", 5), STET_EIO);
    CHECK_STR(stet_last_error(), "cannot write x.db: 5");
    stet__error_clear();
    CHECK_STR(stet_last_error(), "");
}

TEST(util_error_may_quote_the_error_before)
{
    (void)stet__fail(STET_EIO, "the disk is gone");
    (void)stet__fail(STET_EBUSY, "run 7: %s (and again: %s)", stet_last_error(), stet_last_error());
    CHECK_STR(stet_last_error(), "run 7: the disk is gone (and again: the disk is gone)");
}

static bool
error_is_utf8(const char *text)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t         left = strlen(text), n;

    for (; left != 0; p += n, left -= n)
        if ((n = stet__utf8_len(p, left)) == 0)
            return false;
    return true;
}

/* Every alignment of a multi-byte character to the end of the buffer. */
TEST(util_error_long_text_is_cut_between_characters)
{
    char   text[3000];
    size_t pad, i, len;

    for (pad = 0; pad < 8; pad++) {
        memset(text, 'x', pad);
        for (i = pad; i + 4 < sizeof text - 1; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 4);
        text[i] = '\0';
        (void)stet__fail(STET_EIO, "%s", text);
        len = strlen(stet_last_error());
        CHECK(len <= 1023 && len >= 1016);
        CHECK(error_is_utf8(stet_last_error()));
        CHECK_STR(stet_last_error() + len - 3, "\xE2\x80\xA6");
    }
}

TEST(util_error_longest_text_is_not_cut)
{
    char text[1025];

    memset(text, 'x', sizeof text);
    text[1023] = '\0';
    (void)stet__fail(STET_EIO, "%s", text);
    CHECK_STR(stet_last_error(), text);
    text[1023] = 'x';
    text[1024] = '\0';
    (void)stet__fail(STET_EIO, "%s", text);
    CHECK_INT(strlen(stet_last_error()), 1023);
    CHECK_STR(stet_last_error() + 1020, "\xE2\x80\xA6");
}

TEST(util_error_bad_utf8_is_replaced)
{
    (void)stet__fail(STET_EIO, "a\xFF%.1s\xC0\x80z", "\xC3\xA4");
    CHECK_STR(stet_last_error(), "a????z");
}

TEST(util_utf8_accepts_exactly_rfc_3629)
{
    static const struct {
        const char *text;
        size_t      len;
    } cases[] = {
        { "a", 1 },
        { "\x7F", 1 },
        { "\xC2\x80", 2 },
        { "\xDF\xBF", 2 },
        { "\xE0\xA0\x80", 3 },
        { "\xED\x9F\xBF", 3 },
        { "\xEE\x80\x80", 3 },
        { "\xF0\x90\x80\x80", 4 },
        { "\xF4\x8F\xBF\xBF", 4 },
        { "\x80", 0 },
        { "\xC0\x80", 0 },
        { "\xC1\xBF", 0 },
        { "\xE0\x9F\xBF", 0 },
        { "\xED\xA0\x80", 0 },
        { "\xF0\x8F\xBF\xBF", 0 },
        { "\xF4\x90\x80\x80", 0 },
        { "\xF5\x80\x80\x80", 0 },
        { "\xC3", 0 },
        { "\xE2\x80", 0 },
        { "\xE2\x80z", 0 },
        { "\xF0\x9F\x98", 0 },
        { "\xFF", 0 },
        { "", 0 },
    };
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_INT(stet__utf8_len((const uint8_t *)cases[i].text, strlen(cases[i].text)),
                  cases[i].len);
}

static void *
error_other_thread(void *arg)
{
    int i;

    (void)arg;
    if (stet_last_error()[0] != '\0')
        return (void *)"saw another thread's error";
    for (i = 0; i < 1000; i++)
        (void)stet__fail(STET_EIO, "other %d", i);
    return NULL;
}

TEST(util_error_text_belongs_to_the_thread)
{
    pthread_t other;
    void     *complaint;
    int       i;

    (void)stet__fail(STET_EIO, "mine");
    CHECK_INT(pthread_create(&other, NULL, error_other_thread, NULL), 0);
    for (i = 0; i < 1000; i++)
        (void)stet__fail(STET_EIO, "mine");
    CHECK_INT(pthread_join(other, &complaint), 0);
    CHECK(complaint == NULL);
    CHECK_STR(stet_last_error(), "mine");
}
