/* shop: the program that examples/demo.sh kills.
 *
 * An order is reserved, paid after a pause, shipped by another handler and confirmed by mail. Every side
 * effect appends one line "ORDER EFFECT TOKEN" to a ledger file, which stands for the world outside: it
 * survives the program and can be audited without asking stet. An order with a slow bank stays inside
 * its charge, after the effect and before its record, until the file named by SHOP_BANK exists. That is
 * the worst moment for a crash.
 *
 *   SHOP_LEDGER=ledger SHOP_BANK=bank ./shop worker
 *   ./shop start orders.checkout '{"order":1,"pause_ms":50,"bank":"fast"}'
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#define BANK_PATIENCE_MS 60000

typedef struct order {
    int  number, pause_ms;
    char bank[8];
} order;

/* ---- side effects --------------------------------------------------------------------------- */

static int
ledger_add(stet_attempt *a, const order *o, const char *effect)
{
    const char *path = getenv("SHOP_LEDGER");
    char        line[160];
    int len = snprintf(line, sizeof line, "%d %s %s\n", o->number, effect, stet_attempt_token(a));
    int fd = open(path != NULL ? path : "shop.ledger", O_WRONLY | O_APPEND | O_CREAT, 0600);
    ssize_t written = fd < 0 ? -1 : write(fd, line, (size_t)len);

    if (fd >= 0)
        close(fd);
    if (written != len)
        return stet_attempt_fail(a, STET_EIO, "the ledger cannot be written");
    return stet_attempt_return_json(a, "{\"%s\":%d}", effect, o->number);
}

static int
reserve(stet_attempt *a, void *arg)
{
    return ledger_add(a, arg, "reserve");
}

static int
charge(stet_attempt *a, void *arg)
{
    const struct timespec moment = { 0, 20 * 1000000 };
    const char           *bank = getenv("SHOP_BANK");
    const order          *o = arg;
    int                   err = ledger_add(a, o, "charge");

    if (strcmp(o->bank, "slow") == 0 && bank != NULL)
        for (int i = 0; i < BANK_PATIENCE_MS / 20 && access(bank, F_OK) != 0; i++)
            nanosleep(&moment, NULL);
    return err;
}

static int
pack(stet_attempt *a, void *arg)
{
    return ledger_add(a, arg, "pack");
}

static int
label(stet_attempt *a, void *arg)
{
    return ledger_add(a, arg, "label");
}

static int
mail(stet_attempt *a, void *arg)
{
    return ledger_add(a, arg, "mail");
}

/* ---- handlers ------------------------------------------------------------------------------- */

static int
order_read(stet_ctx *ctx, order *o, stet_bytes input)
{
    const char *text = stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data);

    if (text == NULL)
        return STET_ENOMEM;
    if (sscanf(text, "{\"order\":%d,\"pause_ms\":%d,\"bank\":\"%7[^\"]\"}", &o->number,
               &o->pause_ms, o->bank) != 3)
        return stet_fail(ctx, STET_EPERMANENT, "not an order: %s", text);
    return STET_OK;
}

static int
ship(stet_ctx *ctx, stet_bytes input)
{
    order o;

    STET_TRY(order_read(ctx, &o, input));
    STET_TRY(stet_step(ctx, NULL, "pack", pack, &o, NULL));
    STET_TRY(stet_step(ctx, NULL, "label", label, &o, NULL));
    return stet_return_json(ctx, "{\"parcel\":\"P%d\"}", o.number);
}

static int
checkout(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes parcel;
    order      o;

    STET_TRY(order_read(ctx, &o, input));
    STET_TRY(stet_step(ctx, NULL, "reserve", reserve, &o, NULL));
    STET_TRY(stet_sleep_ms(ctx, "change of mind", o.pause_ms));
    STET_TRY(stet_step(ctx, NULL, "charge", charge, &o, NULL));
    STET_TRY(stet_call(ctx, &parcel, "shipping.ship", input, NULL));
    STET_TRY(stet_step(ctx, NULL, "mail", mail, &o, NULL));
    return stet_return_json(ctx, "{\"order\":%d,\"shipped\":%J}", o.number, parcel);
}

/* For `handlers` and `describe`, which executes no body: what stands for an order, and for results. */
#define ORDER "{\"order\":1,\"pause_ms\":50,\"bank\":\"fast\"}"
static const stet_sample parcel[] = { { .name = "shipping.ship", .value = "{\"parcel\":\"P1\"}" },
                                      { 0 } };
static const stet_handler_options buys = { .description = "takes an order to its parcel",
                                           .default_input = ORDER,
                                           .samples = parcel };
static const stet_handler_options ships = { .description = "packs an order and labels it",
                                            .default_input = ORDER };
static const stet_handler         orders[] = { { "checkout", checkout, &buys }, { 0 } };
static const stet_handler         shipping[] = { { "ship", ship, &ships }, { 0 } };

int
main(int argc, char **argv)
{
    stet_app *app = stet_app_new("shop");

    stet_app_service(app, "orders", orders);
    stet_app_service(app, "shipping", shipping);
    return stet_main(argc, argv, app);
}
