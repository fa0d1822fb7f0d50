/* examples/orders.c, crashed everywhere: whatever happens, the customer pays once for what is
 * shipped, and has nothing paid and nothing reserved if it is not. Counted outside the engine. */
#define main orders_main
#include "../../examples/orders.c"
#undef main

#include <stet/test.h>

#include "test.h"

typedef struct orders_flow {
    const char *input;
    bool        is_shipped;
    stet_run_id run;
} orders_flow;

static int
orders_workflow(stet_test *kit, void *arg)
{
    orders_flow *flow = arg;

    charged = refunded = reserved = released = shipped = 0;
    known.n = 0;
    STET_TRY(stet_test_service(kit, "orders", orders));
    STET_TRY(stet_test_service(kit, "shipping", shipping));
    STET_TRY(stet_test_start(kit, &flow->run, "orders.checkout", stet_text(flow->input), NULL));
    return stet_test_advance(kit, "1m");
}

static int
orders_check(stet_test *kit, void *arg)
{
    const orders_flow *flow = arg;
    stet_status        status = stet_test_status(kit, &flow->run);

    if (charged != 1 || reserved != 1)
        return stet_test_fail(kit, "charged %d times, reserved %d times", charged, reserved);
    if (shipped != flow->is_shipped || refunded == flow->is_shipped ||
        released == flow->is_shipped)
        return stet_test_fail(kit, "shipped %d, refunded %d, released %d", shipped, refunded,
                              released);
    if (status != (flow->is_shipped ? STET_STATUS_COMPLETED : STET_STATUS_FAILED))
        return stet_test_fail(kit, "it is %s", stet_status_name(status));
    return STET_OK;
}

static void
orders_everywhere(orders_flow flow)
{
    stet_test_report report;

    if (stet_test_crash_everywhere(NULL, orders_workflow, orders_check, &flow, &report) != STET_OK)
        test_fail(__FILE__, __LINE__, "%s", report.text);
    CHECK(report.crashes > 20);
    test_note("%llu points, %llu crashes", (unsigned long long)report.points,
              (unsigned long long)report.crashes);
}

TEST(I6_an_order_is_paid_once_and_shipped_once)
{
    orders_everywhere((orders_flow){ "{\"order\":1,\"to\":\"Rome\"}", true, { "" } });
}

TEST(I6_an_order_that_cannot_be_shipped_is_undone_once)
{
    orders_everywhere((orders_flow){ "{\"order\":2,\"to\":\"nowhere\"}", false, { "" } });
}

/* The carrier's line is busy the first time. */
TEST(H5_the_carrier_is_tried_again)
{
    orders_flow flow = { "{\"order\":3,\"to\":\"Oslo\"}", true, { "" } };
    stet_test  *kit = stet_test_new(NULL);

    CHECK(kit != NULL);
    CHECK_OK(orders_workflow(kit, &flow));
    CHECK_OK(stet_test_replay(kit, &flow.run));
    CHECK_INT(shipped, 1);
    stet_test_free(kit);
}
