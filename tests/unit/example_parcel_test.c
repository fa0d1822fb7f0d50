/* examples/parcel.c, crashed everywhere: a parcel is diverted once, whoever dies meanwhile, and
 * says where it goes; the carrier is booked to the new place. */
#define main parcel_main
#include "../../examples/parcel.c"
#undef main

#include <stet/test.h>

#include "test.h"

/* Also of a run that has taken it in already. */
static int
parcel_diverts(stet_engine *engine, void *run)
{
    stet_bytes reply;
    int        err;

    STET_TRY(stet_update(engine, &reply, run, "divert", stet_text("\"Bonn\""),
                         STET_UPDATE_OPTIONS(.idempotency_key = "ticket")));
    err = reply.len == 22 && memcmp(reply.data, "{\"legs\":0,\"to\":\"Bonn\"}", 22) == 0
              ? STET_OK
              : STET_EPERMANENT;
    stet_free((void *)(uintptr_t)reply.data);
    return err;
}

static int
parcel_is_too_late(stet_engine *engine, void *run)
{
    int err = stet_update(engine, NULL, run, "divert", stet_text("\"Ulm\""), NULL);

    return err == STET_EPERMANENT && strstr(stet_last_error(), "on its way to \"Bonn\"") != NULL
               ? STET_OK
               : STET_ESTATE;
}

static int
parcel_is_asked(stet_engine *engine, void *run)
{
    stet_bytes reply;
    bool       is_right;

    STET_TRY(stet_query(engine, &reply, run, "where", stet_text(""), 0));
    is_right = strstr(reply.data, "\"to\":\"Bonn\"") != NULL;
    stet_free((void *)(uintptr_t)reply.data);
    return is_right ? STET_OK : STET_ESTATE;
}

static int
parcel_workflow(stet_test *kit, void *run)
{
    STET_TRY(stet_test_service(kit, "parcels", parcels));
    STET_TRY(stet_test_start(kit, run, "parcels.ship", stet_text("\"Bremen\""), NULL));
    STET_TRY(stet_test_do(kit, parcel_diverts, run));
    STET_TRY(stet_test_do(kit, parcel_is_asked, run));
    STET_TRY(stet_test_signal(kit, run, "leg", stet_text("")));
    STET_TRY(stet_test_do(kit, parcel_is_too_late, run));
    STET_TRY(stet_test_signal(kit, run, "leg", stet_text("")));
    return stet_test_advance(kit, "1h");
}

static int
parcel_check(stet_test *kit, void *run)
{
    STET_TRY(stet_test_expect(kit, run, "\"Bonn\""));
    return stet_test_do(kit, parcel_is_asked, run);
}

TEST(I12_a_parcel_is_diverted_once_wherever_the_engine_dies)
{
    stet_run_id      run;
    stet_test_report report;

    if (stet_test_crash_everywhere(NULL, parcel_workflow, parcel_check, &run, &report) != STET_OK)
        test_fail(__FILE__, __LINE__, "%s", report.text);
    CHECK(report.crashes > 8);
    test_note("%llu points, %llu crashes", (unsigned long long)report.points,
              (unsigned long long)report.crashes);
}
