/* A run that can be asked where it is, and told to go elsewhere, while it waits.
 *
 *     ./parcel worker &
 *     run=$(./parcel start parcels.ship '"Bremen"')
 *     ./parcel query $run where
 *     ./parcel update $run divert '"Bonn"' --key ticket-81
 *     ./parcel signal $run leg; ./parcel signal $run leg
 *     ./parcel wait $run
 */
#include <stdio.h>
#include <string.h>

#include <stet.h>

typedef struct parcel {
    int  legs;
    char to[40]; /* a JSON string, with its quotes */
} parcel;

static int
is_city(stet_bytes input)
{
    const char *text = input.data;

    return input.len > 2 && input.len < sizeof((parcel *)0)->to && text[0] == '"';
}

static void
set_city(parcel *p, stet_bytes city)
{
    memcpy(p->to, city.data, city.len);
    p->to[city.len] = '\0';
}

static int
where(void *arg, stet_bytes input, stet_reply *reply)
{
    const parcel *p = arg;

    (void)input;
    return stet_reply_json(reply, "{\"legs\":%d,\"to\":%J}", p->legs, stet_text(p->to));
}

static int
may_divert(void *arg, stet_bytes input, stet_reply *reply)
{
    const parcel *p = arg;

    if (!is_city(input))
        return stet_reply_fail(reply, STET_EPERMANENT, "a city in quotes is needed");
    if (p->legs > 0)
        return stet_reply_fail(reply, STET_EPERMANENT, "it is on its way to %s", p->to);
    return STET_OK;
}

/* Only the variables: what is sent to the carrier goes into a step of the handler. */
static int
divert(void *arg, stet_bytes input, stet_reply *reply)
{
    set_city(arg, input);
    return where(arg, input, reply);
}

static int
book(stet_attempt *a, void *arg)
{
    const parcel *p = arg;

    printf("carrier booked to %s\n", p->to);
    return stet_attempt_return_json(a, "{\"to\":%J}", stet_text(p->to));
}

static int
ship(stet_ctx *ctx, stet_bytes input)
{
    parcel p = { 0, "" };

    if (!is_city(input))
        return stet_fail(ctx, STET_EPERMANENT, "a city in quotes is needed");
    set_city(&p, input);
    STET_TRY(stet_on_query(ctx, "where", where, &p));
    STET_TRY(stet_on_update(ctx, "divert", may_divert, divert, &p));
    STET_TRY(stet_await_signal(ctx, NULL, "leg", "14d"));
    p.legs = 1;
    STET_TRY(stet_step(ctx, NULL, "book", book, &p, STET_STEP(.attempts = 5)));
    STET_TRY(stet_await_signal(ctx, NULL, "leg", "14d"));
    p.legs = 2;
    return stet_return(ctx, stet_text(p.to));
}

static const stet_handler_options ships = { .description =
                                                "two legs, each when the carrier signals",
                                            .default_input = "\"Rome\"" };
static const stet_handler         parcels[] = { { "ship", ship, &ships }, { 0 } };

int
main(int argc, char **argv)
{
    stet_app *app = stet_app_new("parcel");

    stet_app_service(app, "parcels", parcels);
    return stet_main(argc, argv, app);
}
