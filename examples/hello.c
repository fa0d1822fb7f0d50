/* hello: kill it while it sleeps and start it again; it goes on where it was. */
#include <stdio.h>
#include <stet.h>

static int
say(stet_attempt *attempt, void *word)
{
    (void)attempt;
    return puts(word) < 0 ? STET_EIO : STET_OK;
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
main(void)
{
    stet_engine *engine = NULL;
    stet_result  result = { 0 };
    int          err;

    if ((err = stet_open(&engine, "hello.db", NULL)) == STET_OK &&
        (err = stet_register(engine, "greeter", greeter)) == STET_OK &&
        (err = stet_engine_start(engine)) == STET_OK &&
        (err = stet_invoke(engine, &result, NULL, "greeter.greet", stet_text("\"world\""),
                           STET_START(.idempotency_key = "first"), 0)) == STET_OK)
        printf("%.*s\n", (int)result.value.len, (const char *)result.value.data);
    else
        fprintf(stderr, "hello: %s\n", stet_last_error());
    stet_result_free(&result);
    stet_close(engine);
    return err == STET_OK ? 0 : 1;
}
