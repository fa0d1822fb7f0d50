/* How near names are: edits, and the nearest of several. */
#include "test.h"
#include "util/util.h"

static size_t
edits(const char *typed, const char *name)
{
    return stet__near_edits(typed, strlen(typed), name);
}

TEST(near_edits_are_counted)
{
    CHECK_INT(edits("prefix", "prefix"), 0);
    CHECK_INT(edits("", "abc"), 3);
    CHECK_INT(edits("abc", ""), 3);
    CHECK_INT(edits("prefx", "prefix"), 1);   /* one more */
    CHECK_INT(edits("prefixx", "prefix"), 1); /* one less */
    CHECK_INT(edits("prefox", "prefix"), 1);  /* another */
    CHECK_INT(edits("prefxi", "prefix"), 1);  /* two swapped */
    CHECK_INT(edits("kitten", "sitting"), 3);
    CHECK_INT(stet__near_edits("prefix=1", 6, "prefix"), 0);
}

TEST(near_names_have_a_longest)
{
    char name[41];

    memset(name, 'a', sizeof name);
    name[40] = '\0';
    CHECK(edits(name, "a") == SIZE_MAX);
    CHECK(edits("a", name) == SIZE_MAX);
    name[39] = '\0';
    CHECK_INT(edits(name, name), 0);
}

TEST(near_the_nearest_is_told_if_it_is_near_at_all)
{
    stet__near near;

    stet__near_begin(&near, "conect_timeot", strlen("conect_timeot"));
    stet__near_offer(&near, "prefix");
    CHECK(near.name == NULL);
    stet__near_offer(&near, "answer_timeout");
    CHECK(near.name == NULL);
    stet__near_offer(&near, "connect_timeout");
    CHECK_STR(near.name, "connect_timeout");
    CHECK_INT(near.edits, 2);
    stet__near_begin(&near, "x", 1);
    stet__near_offer(&near, "prefix");
    CHECK(near.name == NULL);
}
