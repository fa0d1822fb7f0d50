/* Which names are legal (B21). */
#include "util_fault.h"

TEST(B21_names_legal_ones_pass)
{
    static const char *const good[] = { "a",         "charge", "charge-card_2",
                                        "v1.charge", "a:b/c",  "send the mail",
                                        "_x",        "-",      "rollback",
                                        "x__y",      "0" };
    size_t                   i;

    for (i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK_OK(stet__name_check("step", good[i]));
}

TEST(B21_names_reserved_beginnings_are_refused)
{
    CHECK_CODE(stet__name_check("step", "__charge"), STET_ENAME);
    CHECK_HAS(stet_last_error(), "step name \"__charge\"");
    CHECK_CODE(stet__name_check("signal", "rollback:charge"), STET_ENAME);
    CHECK_HAS(stet_last_error(), "reserved");
    CHECK_CODE(stet__part_check("handler", "__x"), STET_ENAME);
}

TEST(B21_names_empty_and_over_long_are_refused)
{
    char name[STET__NAME_MAX + 2];

    CHECK_CODE(stet__name_check("step", ""), STET_ENAME);
    CHECK_STR(stet_last_error(), "step name is empty");
    CHECK_CODE(stet__name_check("step", NULL), STET_ENAME);
    memset(name, 'n', sizeof name);
    name[STET__NAME_MAX] = '\0';
    CHECK_OK(stet__name_check("step", name));
    name[STET__NAME_MAX] = 'n';
    name[STET__NAME_MAX + 1] = '\0';
    CHECK_CODE(stet__name_check("step", name), STET_ENAME);
    CHECK_HAS(stet_last_error(), "longer than 128 bytes");
}

TEST(B21_names_other_characters_are_refused)
{
    static const char *const bad[] = { " a",   "a ",   " ",   "a\tb",  "a\nb",
                                       "a\"b", "a%b",  "a#1", "b\x7F", "gr\xC3\xBC\xC3\x9F",
                                       "\xFF", "a\\b", "a;b", "a,b",   "a@b" };
    size_t                   i;

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_CODE(stet__name_check("step", bad[i]), STET_ENAME);
    CHECK_CODE(stet__name_check("step", "gr\xC3\xBC\xC3\x9F"), STET_ENAME);
    CHECK_HAS(stet_last_error(), "'\xC3\xBC' at byte 2");
}

TEST(B21_names_parts_have_no_dot)
{
    CHECK_OK(stet__part_check("service", "orders"));
    CHECK_OK(stet__part_check("service", "orders v2"));
    CHECK_CODE(stet__part_check("service", "orders.checkout"), STET_ENAME);
    CHECK_HAS(stet_last_error(), "'.' at byte 6");
}
