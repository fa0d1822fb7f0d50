/* A worker is stopped and started again. Row C6. tsan: yes */
#include "fixture.h"

static int
h_c6_awaits(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;
    stet_bytes   out;

    (void)input;
    STET_TRY(fixture_hand_out(ctx, &future));
    STET_TRY(stet_await(ctx, &out, future));
    STET_TRY(stet_step(ctx, NULL, "after", body_effect, (void *)"after", NULL));
    return stet_return(ctx, out);
}

static int
h_c6_calls(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_call(ctx, &out, "t.nap", stet_text(""), NULL));
    return stet_return(ctx, out);
}

static int
h_c6_retries(stet_ctx *ctx, stet_bytes input)
{
    effect("tried");
    if (effects("tried") < 2)
        return stet_fail(ctx, STET_ERETRY, "not yet");
    return stet_return(ctx, input);
}

TEST(C6_every_incomplete_run_goes_on_after_a_restart)
{
    static const stet_handler handlers[] = {
        { "awaits", h_c6_awaits, NULL }, { "calls", h_c6_calls, NULL },
        { "nap", h_short_nap, NULL },    { "retries", h_c6_retries, NULL },
        { "quick", h_quick, NULL },      { 0 }
    };
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  awaits, calls, nap, retries, delayed, fresh;

    fixture_up_with(f, handlers);
    awaits = fixture_start(f->engine, "t.awaits", "", NULL);
    calls = fixture_start(f->engine, "t.calls", "", NULL);
    nap = fixture_start(f->engine, "t.nap", "", NULL);
    retries = fixture_start(f->engine, "t.retries", "r",
                            STET_START(.retry = { .first_ms = 200, .max_ms = 200 }));
    delayed = fixture_start(f->engine, "t.quick", "d", STET_START(.delay_ms = 200));
    effects_await("handed out", 1);
    effects_await("tried", 1);
    fixture_down(f);

    client = fixture_open(f); /* nobody executes: what comes now is only written down */
    fresh = fixture_start(client, "t.quick", "f", NULL);
    CHECK_OK(stet_resolve(client, handed_out, stet_text("yes")));
    stet_close(client);

    fixture_up_with(f, handlers);
    EXPECT_RESULT(f->engine, &awaits, "yes");
    EXPECT_RESULT(f->engine, &calls, "woke");
    EXPECT_RESULT(f->engine, &nap, "woke");
    EXPECT_RESULT(f->engine, &retries, "r");
    EXPECT_RESULT(f->engine, &delayed, "d");
    EXPECT_RESULT(f->engine, &fresh, "f");
    CHECK_INT(effects("handed out"), 1);
    CHECK_INT(effects("after"), 1);
    fixture_end(f);
}
