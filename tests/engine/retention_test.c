/* What is removed after a while. Row C10. tsan: yes */
#include "fixture.h"

static int
h_c10_put(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "entry", input));
    return stet_return(ctx, input);
}

TEST(C10_finished_runs_are_removed_and_nothing_else)
{
    static const stet_handler plain[] = {
        { "quick", h_quick, NULL }, { "nap", h_hour, NULL }, { "fails", h_unlucky, NULL }, { 0 }
    };
    static const stet_handler object[] = { { "put", h_c10_put, NULL }, { 0 } };
    const fixture_service     services[] = { { "t", plain, false, NULL },
                                             { "o", object, true, NULL },
                                             { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               quick, kept, put, failed, cancelled, again, nap, delayed, retrying;
    stet_bytes                value;
    bool                      existed = true;

    f->options.retention_ms = 1;
    f->options.sweep_ms = 20;
    fixture_up(f, services);
    nap = fixture_start(f->engine, "t.nap", "", NULL);
    delayed = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    retrying = fixture_start(f->engine, "t.fails", "",
                             STET_START(.retry = { .first_ms = 3600000, .max_ms = 3600000 }));
    quick = fixture_start(
        f->engine, "t.quick", "q",
        STET_START(.idempotency_key = "once", .labels = (const char *[]){ "a=b", NULL }));
    kept = fixture_start(f->engine, "t.quick", "k", STET_START(.retention = "1h"));
    put = fixture_start(f->engine, "o.put", "kept", STET_START(.key = "k"));
    failed = fixture_start(f->engine, "t.fails", "", STET_START(.retry = { .attempts = 1 }));
    cancelled = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &cancelled, NULL, NULL));
    EXPECT_RESULT(f->engine, &kept, "k");
    AWAIT(fixture_is_gone(f->engine, &quick) && fixture_is_gone(f->engine, &put) &&
          fixture_is_gone(f->engine, &failed) && fixture_is_gone(f->engine, &cancelled));
    fixture_await_status(f->engine, &nap, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &delayed, STET_STATUS_PENDING);
    fixture_await_status(f->engine, &retrying, STET_STATUS_RETRYING);
    CHECK_INT(fixture_look(f->engine, &kept).status, STET_STATUS_COMPLETED);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "a=b")), 0);
    CHECK_OK(stet_state_read(f->engine, &value, "o", "k", "entry"));
    CHECK(fixture_is(value, "kept"));
    stet_free((void *)(uintptr_t)value.data);
    again = fixture_start(f->engine, "t.quick", "again",
                          STET_START(.idempotency_key = "once", .existed = &existed));
    CHECK(!existed);
    CHECK(strcmp(again.text, quick.text) != 0);
    EXPECT_ANSWER(f->engine, &again, STET_OK);
    CHECK(fixture_sound(f->engine) >= 4);
    fixture_end(f);
}

TEST(C10_an_idempotency_key_lives_as_long_as_its_run)
{
    static const stet_handler handlers[] = { { "quick", h_quick, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               first, second, other;
    bool                      existed = false;

    f->options.retention_ms = 3600000;
    f->options.sweep_ms = 10;
    fixture_up_with(f, handlers);
    first = fixture_start(f->engine, "t.quick", "1", STET_START(.idempotency_key = "once"));
    EXPECT_RESULT(f->engine, &first, "1");
    other = fixture_start(f->engine, "t.quick", "x", STET_START(.retention = "1ms"));
    AWAIT(fixture_is_gone(f->engine, &other)); /* so the sweep has been there */
    second = fixture_start(f->engine, "t.quick", "2",
                           STET_START(.idempotency_key = "once", .existed = &existed));
    CHECK(existed);
    CHECK_STR(second.text, first.text);
    EXPECT_RESULT(f->engine, &second, "1");
    fixture_end(f);
}
