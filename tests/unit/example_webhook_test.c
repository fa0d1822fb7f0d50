/* examples/webhook.c, crashed everywhere: the provider is asked with one ID for each invoice,
 * however often, and its answer reaches the run; and a month passes without one. */
#define main webhook_main
#include "../../examples/webhook.c"
#undef main

#include <stet/test.h>

#include "test.h"

typedef struct webhook_flow {
    const char *what; /* to do: "pay", "refuse"; NULL: nothing */
    const char *expected;
    stet_run_id run;
} webhook_flow;

static int
webhook_workflow(stet_test *kit, void *arg)
{
    webhook_flow *flow = arg;

    the_provider.n = 0;
    STET_TRY(stet_test_service(kit, "shop", shop));
    STET_TRY(stet_test_start(kit, &flow->run, "shop.invoice", stet_text("\"INV-1\""), NULL));
    STET_TRY(stet_test_advance(kit, "29d"));
    if (the_provider.n == 0)
        return stet_test_fail(kit, "the provider was not asked");
    if (flow->what != NULL && strcmp(flow->what, "pay") == 0)
        STET_TRY(stet_test_resolve(kit, the_provider.ids[0].text, stet_text("{\"paid\":true}")));
    else if (flow->what != NULL)
        STET_TRY(stet_test_reject(kit, the_provider.ids[0].text, "card expired"));
    return stet_test_advance(kit, "1d");
}

static int
webhook_check(stet_test *kit, void *arg)
{
    const webhook_flow *flow = arg;

    for (size_t i = 1; i < the_provider.n; i++)
        if (strcmp(the_provider.ids[i].text, the_provider.ids[0].text) != 0)
            return stet_test_fail(kit, "the provider was asked with two IDs");
    return stet_test_expect(kit, &flow->run, flow->expected);
}

static void
webhook_everywhere(const char *what, const char *expected)
{
    webhook_flow     flow = { .what = what, .expected = expected };
    stet_test_report report;

    if (stet_test_crash_everywhere(NULL, webhook_workflow, webhook_check, &flow, &report) !=
        STET_OK)
        test_fail(__FILE__, __LINE__, "%s", report.text);
    CHECK(report.crashes > 8);
    test_note("%llu points, %llu crashes", (unsigned long long)report.points,
              (unsigned long long)report.crashes);
}

TEST(I6_a_payment_reaches_its_invoice)
{
    webhook_everywhere("pay", "{\"invoice\":\"INV-1\",\"answer\":{\"paid\":true}}");
}

TEST(I6_a_refusal_reaches_its_invoice)
{
    webhook_everywhere("refuse", "{\"invoice\":\"INV-1\",\"refused\":\"card expired\"}");
}

TEST(I6_an_invoice_nobody_pays_is_overdue_after_a_month)
{
    webhook_everywhere(NULL, "{\"invoice\":\"INV-1\",\"overdue\":true}");
}
