/* The program tests/e2e/offline_test.c runs: one handler whose code OFFLINE_APP chooses, and some
 * to be described. Bodies leave a file behind, so that a test sees whether one was entered. */
#include <stet.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
entered(stet_attempt *a, void *arg)
{
    int fd = open("entered", O_WRONLY | O_CREAT, 0600);

    (void)arg;
    if (fd >= 0)
        close(fd);
    return stet_attempt_return(a, stet_text("{\"receipt\":1}"));
}

static int
refund(stet_attempt *a, stet_bytes receipt)
{
    (void)receipt;
    return entered(a, NULL);
}

static bool
is_code(const char *name)
{
    const char *code = getenv("OFFLINE_APP");

    return code != NULL && strcmp(code, name) == 0;
}

static int
checkout(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes receipt, paid;

    if (is_code("sleeps"))
        STET_TRY(stet_sleep(ctx, "charge", "1h"));
    if (is_code("renames"))
        STET_TRY(stet_step(ctx, NULL, "charge card", entered, NULL, NULL));
    else
        STET_TRY(stet_step(ctx, &receipt, "charge", entered, &input,
                           STET_STEP(.attempts = 5, .timeout = "30s", .undo = refund)));
    if (is_code("crashes"))
        abort();
    STET_TRY(stet_sleep(ctx, "change of mind", "20ms"));
    STET_TRY(stet_await_signal(ctx, &paid, "paid", "3d"));
    STET_TRY(stet_step(ctx, NULL, "ship", entered, NULL, NULL));
    return stet_return(ctx, paid);
}

static int
is_large(void *size)
{
    return ((stet_bytes *)size)->len == 5;
}

static int
is_small(void *size)
{
    return ((stet_bytes *)size)->len == 2;
}

/* What the sample says leads another way. */
static int
choose(stet_ctx *ctx, stet_bytes input)
{
    static const stet_branch ways[] = {
        { "ship", is_large }, { "drive", is_small }, { "walk", NULL }, { 0 }
    };
    stet_bytes   size;
    stet_future *pack, *approval;
    size_t       way;

    STET_TRY(stet_step(ctx, &size, "measure", entered, &input, NULL));
    if (size.len == 5 && memcmp(size.data, "large", 5) == 0)
        STET_TRY(stet_call(ctx, NULL, "orders.checkout", input, NULL));
    STET_TRY(stet_step_start(ctx, &pack, "pack it", entered, NULL, NULL));
    STET_TRY(stet_awakeable(ctx, NULL, &approval, "approval"));
    STET_TRY(stet_await(ctx, NULL, pack));
    STET_TRY(stet_await_for(ctx, NULL, approval, "2h"));
    STET_TRY(stet_note(ctx, "packed %d bytes", (int)size.len));
    STET_TRY(stet_switch(ctx, &way, "way", ways, &size));
    STET_TRY(stet_await_event(ctx, NULL, "prices", "5m"));
    STET_TRY(stet_approve(ctx, NULL, "manager", input));
    STET_TRY(stet_ctx_emit(ctx, NULL, "packed", input));
    STET_TRY(stet_send(ctx, NULL, "wallet.book", input, STET_START(.key = "anna", .delay = "1d")));
    return stet_return(ctx, input);
}

static int
endless(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    for (;;)
        STET_TRY(stet_sleep(ctx, "tick", "1m"));
}

static int
broken(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "fine", entered, NULL, NULL));
    abort();
}

static int
picky(stet_ctx *ctx, stet_bytes input)
{
    return input.len == 0 ? stet_fail(ctx, STET_EPERMANENT, "nothing to work on")
                          : stet_return(ctx, input);
}

/* Its sample says that the step fails; the note has what drawings must not have as it is. */
static int
refused(stet_ctx *ctx, stet_bytes input)
{
    int err = stet_step(ctx, NULL, "pay", entered, NULL, NULL);

    STET_TRY(stet_note(ctx, "said \"no\" \\ %d", err));
    return stet_return(ctx, input);
}

static int
book(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes balance;
    int64_t    now_ms;

    STET_TRY(stet_now(ctx, &now_ms));
    STET_TRY(stet_state_get(ctx, &balance, "balance"));
    STET_TRY(stet_state_set(ctx, "balance", input));
    return stet_return(ctx, balance);
}

static const stet_sample          samples[] = { { .name = "measure", .value = "large" }, { 0 } };
static const stet_handler_options choose_options = { .description = "packs what it is given",
                                                     .category = "warehouse",
                                                     .default_input = "{\"item\":\"lamp\"}",
                                                     .samples = samples };

static const stet_sample no_cover[] = { { .name = "pay", .code = STET_EPERMANENT }, { 0 } };
static const stet_handler_options refused_options = { .samples = no_cover };

static const stet_handler orders[] = {
    { "checkout", checkout, NULL }, { "choose", choose, &choose_options },
    { "endless", endless, NULL },   { "broken", broken, NULL },
    { "picky", picky, NULL },       { "refused", refused, &refused_options },
    { 0 },
};
static const stet_handler wallet[] = { { "book", book, NULL }, { 0 } };

int
main(int argc, char **argv)
{
    stet_app *app = stet_app_new("offline_app");

    stet_app_service(app, "orders", orders);
    stet_app_object(app, "wallet", wallet, NULL);
    return stet_main(argc, argv, app);
}
