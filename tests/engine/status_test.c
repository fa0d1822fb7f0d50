/* The statuses and how one follows another. Row C11. */
#include "fixture.h"

#include "core/run.h"

/* From (row) to (column), in the order of STET_STATUS_LIST:
 * pending running suspended retrying paused stuck cancelling compensating compensation-failed
 * completed failed cancelled expired. Written down again on purpose: a change of the table must be
 * meant. */
static const char *const c11_table[14] = {
    "x............", /* from nothing */
    ".x..xxx...xxx", /* pending */
    "xxxxxxxx.xxxx", /* running */
    "xx..x.x...xxx", /* suspended */
    "xx..x.x...xxx", /* retrying */
    "xx..xxxxx.xxx", /* paused */
    "xx...xxx..xxx", /* stuck */
    ".....xxx...xx", /* cancelling */
    ".x..xxxxx.xxx", /* compensating */
    ".......x..xxx", /* compensation-failed */
    ".............", /* completed */
    ".............", /* failed */
    ".............", /* cancelled */
    ".............", /* expired */
};

TEST(C11_every_pair_of_statuses)
{
    for (int from = 0; from <= STET_STATUS_EXPIRED; from++)
        for (int to = 1; to <= STET_STATUS_EXPIRED; to++)
            if (stet__status_can((stet_status)from, (stet_status)to) !=
                (c11_table[from][to - 1] == 'x'))
                test_fail(__FILE__, __LINE__, "from %s to %s",
                          from ? stet_status_name((stet_status)from) : "nothing",
                          stet_status_name((stet_status)to));
    CHECK(!stet__status_can((stet_status)14, STET_STATUS_PENDING));
}

TEST(C11_the_list_is_closed_and_its_names_are_read_back)
{
    for (int i = 1; i <= STET_STATUS_EXPIRED; i++) {
        CHECK_INT(stet_status_parse(stet_status_name((stet_status)i)), i);
        CHECK_INT(stet_status_is_terminal((stet_status)i), i >= STET_STATUS_COMPLETED);
    }
    CHECK_INT(stet_status_parse("sleeping"), 0);
    CHECK_INT(stet_status_parse(""), 0);
    CHECK_INT(stet_status_parse(NULL), 0);
    CHECK_STR(stet_status_name((stet_status)0), "unknown");
    CHECK_STR(stet_status_name((stet_status)14), "unknown");
}
