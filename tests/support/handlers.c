/* Bodies and handlers many tests use; see fixture.h. Each does one thing, so that a test that uses
 * one says with its name what its run does. */
#include "fixture.h"

char handed_out[STET_ID_TEXT_MAX];

int
body_effect(stet_attempt *a, void *line)
{
    effect("%s", (const char *)line);
    return stet_attempt_return(a, stet_text(line));
}

int
body_gate(stet_attempt *a, void *door)
{
    (void)a;
    gate_pass(door);
    return STET_OK;
}

int
body_hand_out(stet_attempt *a, void *id)
{
    (void)a;
    (void)snprintf(handed_out, sizeof handed_out, "%s", (const char *)id);
    effect("handed out");
    return STET_OK;
}

int
fixture_hand_out(stet_ctx *ctx, stet_future **future)
{
    stet_awakeable_id id;

    STET_TRY(stet_awakeable(ctx, &id, future, "approval"));
    return stet_step(ctx, NULL, "hand out", body_hand_out, id.text, NULL);
}

int
h_approval(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;
    stet_bytes   out;

    (void)input;
    STET_TRY(fixture_hand_out(ctx, &future));
    STET_TRY(stet_await(ctx, &out, future));
    return stet_return(ctx, out);
}

int
h_echo(stet_ctx *ctx, stet_bytes input)
{
    return stet_return(ctx, input);
}

int
h_quick(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, (void *)"quick", NULL));
    return stet_return(ctx, input);
}

int
h_hour(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "cool down", "1h"));
    return stet_return(ctx, input);
}

int
h_short_nap(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_sleep(ctx, "nap", "1s"));
    return stet_return(ctx, stet_text("woke"));
}

int
h_pauses(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(fixture_pause(ctx));
    return stet_return(ctx, input);
}

int
h_unlucky(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("entered");
    STET_TRY(stet_step(ctx, NULL, "first", body_effect, (void *)"first", NULL));
    return stet_fail(ctx, STET_ERETRY, "no luck");
}

int
h_bank_closed(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_ERETRY, "the bank is closed");
}

int
h_no_account(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "no such account");
}

int
h_caller(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_call(ctx, &out, "t.nap", stet_text("child"), NULL));
    return stet_return(ctx, out);
}

gate common_door = GATE_INIT;

int
h_door(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "door", body_gate, &common_door, NULL));
    return stet_return(ctx, input);
}

static const stet_handler common_handlers[] = {
    { "quick", h_echo, NULL },        { "nap", h_hour, NULL },
    { "approval", h_approval, NULL }, { "caller", h_caller, NULL },
    { "fails", h_bank_closed, NULL }, { "permanent", h_no_account, NULL },
    { "door", h_door, NULL },         { 0 },
};

const fixture_service common_services[] = { { "t", common_handlers, false, NULL },
                                            { "o", common_handlers, true, NULL },
                                            { 0 } };
