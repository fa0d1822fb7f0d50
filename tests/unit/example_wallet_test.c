/* examples/wallet.c, crashed everywhere: no deposit is lost and none counts twice. */
#define main wallet_main
#include "../../examples/wallet.c"
#undef main

#include <stet/test.h>

#include "test.h"

/* What the people were told. */
typedef struct wallet_flow {
    stet_run_id runs[4];
} wallet_flow;

static int
wallet_workflow(stet_test *kit, void *arg)
{
    static const struct {
        const char *handler, *amount;
    } steps[] = { { "wallet.deposit", "70" },
                  { "wallet.withdraw", "30" },
                  { "wallet.withdraw", "50" }, /* refused */
                  { "wallet.deposit", "2" } };
    wallet_flow *flow = arg;

    STET_TRY(stet_test_object(kit, "wallet", wallet, empty));
    for (size_t i = 0; i < 4; i++)
        STET_TRY(stet_test_start(kit, &flow->runs[i], steps[i].handler, stet_text(steps[i].amount),
                                 STET_START(.key = "ann")));
    return stet_test_run_until_idle(kit);
}

static int
wallet_read(stet_engine *e, void *balance)
{
    stet_bytes value;
    int        err = stet_state_read(e, &value, "wallet", "ann", "balance");

    if (err != STET_OK)
        return err;
    *(long long *)balance = number_of(value);
    stet_free((void *)(uintptr_t)value.data);
    return STET_OK;
}

static int
wallet_check(stet_test *kit, void *arg)
{
    wallet_flow *flow = arg;
    long long    balance = -1;

    STET_TRY(stet_test_expect(kit, &flow->runs[0], "70"));
    STET_TRY(stet_test_expect(kit, &flow->runs[1], "40"));
    STET_TRY(stet_test_expect(kit, &flow->runs[3], "42"));
    if (stet_test_status(kit, &flow->runs[2]) != STET_STATUS_FAILED)
        return stet_test_fail(kit, "what is not there was paid out");
    STET_TRY(stet_test_do(kit, wallet_read, &balance));
    return balance == 42 ? STET_OK : stet_test_fail(kit, "ann has %lld", balance);
}

TEST(I6_no_deposit_is_lost_or_counted_twice)
{
    stet_test_report report;
    wallet_flow      flow;

    if (stet_test_crash_everywhere(NULL, wallet_workflow, wallet_check, &flow, &report) != STET_OK)
        test_fail(__FILE__, __LINE__, "%s", report.text);
    CHECK(report.crashes > 5);
    test_note("%llu points, %llu crashes", (unsigned long long)report.points,
              (unsigned long long)report.crashes);
}
