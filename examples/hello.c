/* hello: kill it while it sleeps and start it again; it goes on where it was. */
#include <stdio.h>
#include <stet.h>

static int
say(stet_attempt *attempt, void *word)
{
    (void)attempt;
    return puts(word) < 0 || fflush(stdout) != 0 ? STET_EIO : STET_OK;
}

static int
greet(stet_ctx *ctx, stet_bytes name)
{
    STET_TRY(stet_step(ctx, NULL, "hello", say, "Hello.", NULL));
    STET_TRY(stet_sleep(ctx, "pause", "3s"));
    STET_TRY(stet_step(ctx, NULL, "bye", say, "Goodbye.", NULL));
    return stet_return_json(ctx, "{\"greeted\":%J}", name);
}

static const stet_handler greeter[] = { { "greet", greet, NULL }, { 0 } };

int
main(int argc, char **argv)
{
    stet_app *app = stet_app_new("hello");

    stet_app_service(app, "greeter", greeter);
    return stet_main(argc, argv, app);
}
