/* The program tests/e2e/cli_test.c runs: one handler for each thing the command line can meet. */
#include <stet.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
count_bytes(stet_attempt *a, void *arg)
{
    return stet_attempt_return_json(a, "{\"bytes\":%zu}", ((stet_bytes *)arg)->len);
}

static int
echo(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "count", count_bytes, &input, NULL));
    return stet_return(ctx, input);
}

static int
speak_inside(stet_attempt *a, void *arg)
{
    (void)arg;
    stet_attempt_log(a, STET_LOG_DEBUG, NULL, "inside");
    return STET_OK;
}

static int
speak(stet_ctx *ctx, stet_bytes input)
{
    stet_log_set(ctx, "customer", "anna b");
    stet_log_with(ctx, STET_LOG_INFO, STET_FIELDS({ "amount", "12" }), "spoken");
    STET_TRY(stet_step(ctx, NULL, "inner", speak_inside, NULL, NULL));
    return stet_return(ctx, input);
}

/* The escape sequence must not reach a terminal. */
static int
fail(stet_ctx *ctx, stet_bytes input)
{
    return stet_fail(ctx, STET_EPERMANENT, "no stock \033[31mof %.*s", (int)input.len,
                     (const char *)input.data);
}

static int
nap(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_sleep(ctx, "cool-down", "1h");
}

static int
hand_out(stet_attempt *a, void *arg)
{
    return stet_attempt_return_json(a, "%Q", ((stet_awakeable_id *)arg)->text);
}

static int
gate(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "approval"));
    STET_TRY(stet_step(ctx, NULL, "hand-out", hand_out, &id, NULL));
    STET_TRY(stet_await(ctx, &value, future));
    return stet_return(ctx, value);
}

static int
post(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &value, "paid", "30d"));
    return stet_return(ctx, value);
}

static int
ask(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch ways[] = { { "by mail", NULL }, { 0 } };
    stet_decision            decision;
    size_t                   way;
    int                      err = stet_approve(ctx, &decision, "boss", input);

    if (err == STET_EREJECTED)
        return stet_fail(ctx, STET_EPERMANENT, "%s says %s", decision.by, decision.note);
    STET_TRY(err);
    STET_TRY(stet_switch(ctx, &way, "sent", ways, NULL));
    STET_TRY(stet_note(ctx, "approved by %s", decision.by));
    STET_TRY(stet_pause(ctx, NULL, "stocktaking", stet_text("")));
    return stet_return_json(ctx, "{\"by\":%Q}", decision.by);
}

static int
hear(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_await_event(ctx, &value, "news", "30d"));
    return stet_return(ctx, value);
}

typedef struct parcel {
    int  legs;
    char to[64];
} parcel;

static int
where(void *arg, stet_bytes input, stet_reply *reply)
{
    const parcel *p = arg;

    if (input.len == 5 && memcmp(input.data, "false", 5) == 0)
        return stet_reply_fail(reply, STET_EPERMANENT, "that cannot be known");
    return stet_reply_json(reply, "{\"legs\":%d,\"to\":%Q}", p->legs, p->to);
}

static int
may_divert(void *arg, stet_bytes input, stet_reply *reply)
{
    const parcel *p = arg;

    return p->legs > 0 || input.len < 3 || input.len > 60
               ? stet_reply_fail(reply, STET_EPERMANENT, "it is on its way to %s already", p->to)
               : STET_OK;
}

static int
divert(void *arg, stet_bytes input, stet_reply *reply)
{
    parcel *p = arg;

    (void)snprintf(p->to, sizeof p->to, "%.*s", (int)input.len - 2, (const char *)input.data + 1);
    return stet_reply_json(reply, "{\"to\":%Q}", p->to);
}

/* Goes on with each leg, and has arrived after two. */
static int
ship(stet_ctx *ctx, stet_bytes input)
{
    parcel p = { 0, "Bremen" };

    (void)input;
    STET_TRY(stet_on_query(ctx, "where", where, &p));
    STET_TRY(stet_on_update(ctx, "divert", may_divert, divert, &p));
    for (; p.legs < 2; p.legs++)
        STET_TRY(stet_await_signal(ctx, NULL, "leg", NULL));
    return stet_return_json(ctx, "%Q", p.to);
}

static int
charge(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, stet_text("7"));
}

/* Only the new code can. */
static int
refund(stet_attempt *a, stet_bytes charged)
{
    (void)charged;
    return getenv("CLI_APP_NEW") != NULL
               ? STET_OK
               : stet_attempt_fail(a, STET_EPERMANENT, "the bank is closed");
}

static int
regret(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "charge", charge, NULL, STET_STEP(.undo = refund)));
    STET_TRY(stet_rollback(ctx));
    return stet_return(ctx, stet_text("null"));
}

/* Tells the pipe in CLI_APP_FIFO that the body was entered, then never ends. */
static int
never_end(stet_attempt *a, void *arg)
{
    int fd = open(getenv("CLI_APP_FIFO"), O_WRONLY);

    (void)a;
    (void)arg;
    if (fd >= 0)
        close(fd);
    while (pause() != 0)
        continue;
    return STET_OK;
}

static int
hang(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "for ever", never_end, NULL, NULL);
}

/* Old code waits at the gate; new code (CLI_APP_NEW) contradicts what the old one recorded. */
static int
shape(stet_ctx *ctx, stet_bytes input)
{
    if (getenv("CLI_APP_NEW") != NULL)
        return stet_return(ctx, input);
    return gate(ctx, input);
}

static int
decline(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_fail(a, STET_EPERMANENT, "declined");
}

/* Begins anew once, and fails in a step. */
static int
again(stet_ctx *ctx, stet_bytes input)
{
    if (stet_info(ctx)->generation == 0)
        return stet_continue(ctx, input);
    return stet_step(ctx, NULL, "pay", decline, NULL, NULL);
}

static int
deposit(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "balance", input));
    return stet_return(ctx, input);
}

static int
odd(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EBUSY, "not now");
}

/* No verdict. */
static int
judge(void *arg, const stet_failed *failed, int64_t *not_before_ms)
{
    (void)arg;
    (void)failed;
    (void)not_before_ms;
    return 4711;
}

static int
refuse(void *arg, const stet_audit_entry *entry)
{
    (void)arg;
    (void)entry;
    return STET_EBUSY;
}

static const stet_handler_options odd_options = { .classify = judge, .retry = { .attempts = 1 } };
static const stet_handler_options echo_options = { .description = "gives back what it gets" };

static const stet_handler orders[] = {
    { "echo", echo, &echo_options }, { "fail", fail, NULL },       { "nap", nap, NULL },
    { "post", post, NULL },          { "ask", ask, NULL },         { "hear", hear, NULL },
    { "regret", regret, NULL },      { "gate", gate, NULL },       { "hang", hang, NULL },
    { "shape", shape, NULL },        { "speak", speak, NULL },     { "ship", ship, NULL },
    { "again", again, NULL },        { "odd", odd, &odd_options }, { 0 },
};
static const stet_handler wallet[] = { { "deposit", deposit, NULL }, { 0 } };

int
main(int argc, char **argv)
{
    stet_app *app = stet_app_new("cli_app");

    stet_app_service(app, "orders", orders);
    stet_app_object(app, "wallet", wallet, NULL);
    if (getenv("CLI_APP_AUDIT") != NULL)
        stet_app_options(app, STET_OPTIONS(.audit = refuse));
    return stet_main(argc, argv, app);
}
