/* orders: steps, a sleep, a call of another handler, and an undo written by hand.
 *
 * A checkout reserves the item, charges the card, leaves the customer a moment to change their mind,
 * then has the parcel shipped by another service. If shipping fails for good, what was done is undone
 * in the opposite order, also in steps: an undo that was recorded is not repeated either.
 *
 *   ./orders                      checks itself
 *   ./orders worker               serves the handlers on orders.db
 *   ./orders start orders.checkout '{"order":1,"to":"Rome"}' --wait
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stet.h>

typedef struct order {
    int  number;
    char to[64];
} order;

/* What a bank, a warehouse and a carrier would know; the self-check looks at it, and so does
 * tests/unit/example_orders_test.c, which crashes it everywhere. */
static _Atomic int charged, refunded, reserved, released, shipped;

/* They know each token once: a step that is executed again, because its process died before the record
 * was written, has the token it had, and changes nothing. */
static struct {
    pthread_mutex_t lock;
    char            tokens[64][64];
    size_t          n;
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool
is_new(const char *token)
{
    bool is_known = false;

    pthread_mutex_lock(&known.lock);
    for (size_t i = 0; i < known.n; i++)
        is_known = is_known || strcmp(known.tokens[i], token) == 0;
    if (!is_known && known.n < 64)
        snprintf(known.tokens[known.n++], sizeof known.tokens[0], "%s", token);
    pthread_mutex_unlock(&known.lock);
    return !is_known;
}

/* ---- side effects --------------------------------------------------------------------------- */

static int
reserve_item(stet_attempt *a, void *arg)
{
    reserved += is_new(stet_attempt_token(a));
    return stet_attempt_return_json(a, "{\"shelf\":%d}", ((order *)arg)->number % 7);
}

static int
charge_card(stet_attempt *a, void *arg)
{
    charged += is_new(stet_attempt_token(a));
    return stet_attempt_return_json(a, "{\"order\":%d,\"receipt\":%Q}", ((order *)arg)->number,
                                    stet_attempt_token(a));
}

static int
refund_card(stet_attempt *a, void *receipt)
{
    (void)receipt;
    refunded += is_new(stet_attempt_token(a));
    return stet_attempt_return_json(a, "true");
}

static int
release_item(stet_attempt *a, void *shelf)
{
    (void)shelf;
    released += is_new(stet_attempt_token(a));
    return stet_attempt_return_json(a, "true");
}

/* A passing failure is tried again; "nowhere" will never work, so it says so at once. */
static int
hand_to_carrier(stet_attempt *a, void *arg)
{
    const order *o = arg;

    if (strcmp(o->to, "nowhere") == 0)
        return stet_attempt_fail(a, STET_EPERMANENT, "no carrier goes to %s", o->to);
    if (stet_attempt_number(a) == 1)
        return stet_attempt_fail(a, STET_ERETRY, "the carrier's line is busy");
    shipped += is_new(stet_attempt_token(a));
    return stet_attempt_return_json(a, "{\"parcel\":\"P%d\"}", o->number);
}

/* ---- handlers ------------------------------------------------------------------------------- */

static int
order_read(stet_ctx *ctx, order *o, stet_bytes input)
{
    const char *text = stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data);

    if (text == NULL)
        return STET_ENOMEM;
    if (sscanf(text, "{\"order\":%d,\"to\":\"%63[^\"]\"}", &o->number, o->to) != 2)
        return stet_fail(ctx, STET_EPERMANENT, "not an order: %s", text);
    return STET_OK;
}

static int
ship(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes parcel;
    order      o;

    STET_TRY(order_read(ctx, &o, input));
    STET_TRY(stet_step(ctx, &parcel, "carrier", hand_to_carrier, &o,
                       STET_STEP(.attempts = 3, .first_ms = 20)));
    return stet_return(ctx, parcel);
}

static int
undo(stet_ctx *ctx, stet_bytes *receipt, stet_bytes *shelf)
{
    STET_TRY(stet_step(ctx, NULL, "refund", refund_card, receipt, NULL));
    STET_TRY(stet_step(ctx, NULL, "release", release_item, shelf, NULL));
    return STET_OK;
}

static int
checkout(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes shelf, receipt, parcel;
    order      o;
    int        err;

    STET_TRY(order_read(ctx, &o, input));
    STET_TRY(stet_step(ctx, &shelf, "reserve", reserve_item, &o, NULL));
    STET_TRY(stet_step(ctx, &receipt, "charge", charge_card, &o, STET_STEP(.attempts = 5)));
    STET_TRY(stet_sleep(ctx, "change of mind", "100ms"));
    err = stet_call(ctx, &parcel, "shipping.ship", input, NULL);
    if (err == STET_ECHILD) {
        const char *why = stet_ctx_printf(ctx, "%s", stet_failure_get(ctx)->text);

        STET_TRY(undo(ctx, &receipt, &shelf));
        return stet_fail(ctx, STET_EPERMANENT, "order %d was undone: %s", o.number,
                         why != NULL ? why : "?");
    }
    STET_TRY(err);
    return stet_return_json(ctx, "{\"order\":%d,\"charge\":%J,\"shipping\":%J}", o.number, receipt,
                            parcel);
}

/* For `handlers` and `describe`, which executes no body: what stands for an order, and for results. */
#define ORDER  "{\"order\":1,\"to\":\"Rome\"}"
#define PARCEL "{\"parcel\":\"P1\"}"
static const stet_sample          bought[] = { { .name = "charge", .value = "{\"order\":1}" },
                                               { .name = "shipping.ship", .value = PARCEL },
                                               { 0 } };
static const stet_sample          shipped_off[] = { { .name = "carrier", .value = PARCEL }, { 0 } };
static const stet_handler_options buys = { .description =
                                               "takes an order to its parcel, or undoes it",
                                           .default_input = ORDER,
                                           .samples = bought };
static const stet_handler_options ships = { .description = "hands an order to a carrier",
                                            .default_input = ORDER,
                                            .samples = shipped_off };
static const stet_handler         orders[] = { { "checkout", checkout, &buys }, { 0 } };
static const stet_handler         shipping[] = { { "ship", ship, &ships }, { 0 } };

/* ---- self-check ----------------------------------------------------------------------------- */

static void
must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "orders: not so: %s (%s)\n", what, stet_last_error());
    exit(1);
}
#define MUST(cond) must((cond), #cond)

static int
check(void)
{
    stet_engine *engine;
    stet_result  result;

    MUST(stet_open(&engine, "memory:", STET_OPTIONS(.log_level = STET_LOG_OFF)) == STET_OK);
    MUST(stet_register(engine, "orders", orders) == STET_OK);
    MUST(stet_register(engine, "shipping", shipping) == STET_OK);
    MUST(stet_engine_start(engine) == STET_OK);

    MUST(stet_invoke(engine, &result, NULL, "orders.checkout",
                     stet_text("{\"order\":1,\"to\":\"Rome\"}"), NULL, 0) == STET_OK);
    printf("shipped: %.*s\n", (int)result.value.len, (const char *)result.value.data);
    stet_result_free(&result);
    MUST(reserved == 1 && charged == 1 && shipped == 1 && refunded == 0 && released == 0);

    MUST(stet_invoke(engine, &result, NULL, "orders.checkout",
                     stet_text("{\"order\":2,\"to\":\"nowhere\"}"), NULL, 0) == STET_ERUN);
    printf("failed: %s\n", result.error);
    MUST(strstr(result.error, "no carrier goes to nowhere") != NULL);
    stet_result_free(&result);
    MUST(reserved == 2 && charged == 2 && shipped == 1 && refunded == 1 && released == 1);

    stet_close(engine);
    puts("ok");
    return 0;
}

int
main(int argc, char **argv)
{
    stet_app *app;

    if (argc < 2 || strcmp(argv[1], "--check") == 0)
        return check();
    app = stet_app_new("orders");
    stet_app_service(app, "orders", orders);
    stet_app_service(app, "shipping", shipping);
    return stet_main(argc, argv, app);
}
