/* webhook: a run that waits for somebody outside.
 *
 * An invoice hands an awakeable's ID to a payment provider in a step, then waits for it to be settled.
 * While it waits, for days if need be, it is a few rows in the store and no memory. Here the provider
 * is a thread of the self-check; in a real program it is whatever receives the provider's request and
 * calls stet_resolve() or stet_reject().
 *
 *   ./webhook                     checks itself
 *   ./webhook worker              serves the handlers on webhook.db
 *   ./webhook start shop.invoice '"INV-1"'      its journal (show) has the awakeable's ID
 *   ./webhook resolve ID '{"paid":true}'
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stet.h>

/* ---- a payment provider --------------------------------------------------------------------- */

/* What was asked of it: an invoice and where to send the answer. */
typedef struct provider {
    pthread_mutex_t   lock;
    pthread_cond_t    changed;
    size_t            n;
    stet_awakeable_id ids[8];
} provider;

static provider the_provider = { .lock = PTHREAD_MUTEX_INITIALIZER,
                                 .changed = PTHREAD_COND_INITIALIZER };

static void
provider_ask(provider *p, const stet_awakeable_id *id)
{
    pthread_mutex_lock(&p->lock);
    p->ids[p->n++ % 8] = *id;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the handler ---------------------------------------------------------------------------- */

static int
ask_for_payment(stet_attempt *a, void *arg)
{
    const stet_awakeable_id *id = arg;

    provider_ask(&the_provider, id);
    return stet_attempt_return_json(a, "%Q", id->text);
}

static int
invoice_within(stet_ctx *ctx, stet_bytes input, const char *limit)
{
    stet_awakeable_id id;
    stet_future      *payment;
    stet_bytes        answer;
    int               err;

    STET_TRY(stet_awakeable(ctx, &id, &payment, "payment"));
    STET_TRY(stet_step(ctx, NULL, "ask for payment", ask_for_payment, &id, NULL));
    err = stet_await_for(ctx, &answer, payment, limit);
    if (err == STET_ETIMEOUT)
        return stet_return_json(ctx, "{\"invoice\":%J,\"overdue\":true}", input);
    if (err == STET_EREJECTED)
        return stet_return_json(ctx, "{\"invoice\":%J,\"refused\":%Q}", input,
                                stet_failure_get(ctx)->text);
    STET_TRY(err);
    return stet_return_json(ctx, "{\"invoice\":%J,\"answer\":%J}", input, answer);
}

static int
invoice(stet_ctx *ctx, stet_bytes input)
{
    return invoice_within(ctx, input, "30d");
}

/* At the counter nobody waits for a month. */
static int
counter(stet_ctx *ctx, stet_bytes input)
{
    return invoice_within(ctx, input, "300ms");
}

/* For `handlers` and `describe`, which asks no provider. */
static const stet_sample paid[] = { { .name = "payment", .value = "{\"paid\":true}" }, { 0 } };
static const stet_handler_options month = { .description = "an invoice to be paid within a month",
                                            .default_input = "1",
                                            .samples = paid };
static const stet_handler_options moment = { .description = "the same at the counter",
                                             .default_input = "1",
                                             .samples = paid };
static const stet_handler         shop[] = { { "invoice", invoice, &month },
                                             { "counter", counter, &moment },
                                             { 0 } };

/* ---- self-check ----------------------------------------------------------------------------- */

static void
must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "webhook: not so: %s (%s)\n", what, stet_last_error());
    exit(1);
}
#define MUST(cond) must((cond), #cond)

static stet_awakeable_id
provider_next(provider *p, size_t n)
{
    stet_awakeable_id id;

    pthread_mutex_lock(&p->lock);
    while (p->n <= n)
        pthread_cond_wait(&p->changed, &p->lock);
    id = p->ids[n];
    pthread_mutex_unlock(&p->lock);
    return id;
}

static void
check_end(stet_engine *engine, const stet_run_id *run, const char *expected)
{
    stet_result result;

    MUST(stet_wait(engine, &result, run, 0) == STET_OK);
    printf("%.*s\n", (int)result.value.len, (const char *)result.value.data);
    MUST(result.value.len == strlen(expected) &&
         memcmp(result.value.data, expected, result.value.len) == 0);
    stet_result_free(&result);
}

static int
check(void)
{
    stet_engine      *engine;
    stet_run_id       run;
    stet_awakeable_id id;

    MUST(stet_open(&engine, "memory:", STET_OPTIONS(.log_level = STET_LOG_OFF)) == STET_OK);
    MUST(stet_register(engine, "shop", shop) == STET_OK);
    MUST(stet_engine_start(engine) == STET_OK);

    MUST(stet_start(engine, &run, "shop.invoice", stet_text("\"INV-1\""), NULL) == STET_OK);
    id = provider_next(&the_provider, 0);
    MUST(stet_resolve(engine, id.text, stet_text("{\"paid\":true}")) == STET_OK);
    check_end(engine, &run, "{\"invoice\":\"INV-1\",\"answer\":{\"paid\":true}}");
    /* Providers repeat themselves. The first answer stands. */
    MUST(stet_resolve(engine, id.text, stet_text("{\"paid\":false}")) != STET_OK);

    MUST(stet_start(engine, &run, "shop.invoice", stet_text("\"INV-2\""), NULL) == STET_OK);
    id = provider_next(&the_provider, 1);
    MUST(stet_reject(engine, id.text, "card expired") == STET_OK);
    check_end(engine, &run, "{\"invoice\":\"INV-2\",\"refused\":\"card expired\"}");

    MUST(stet_start(engine, &run, "shop.counter", stet_text("\"INV-3\""), NULL) == STET_OK);
    check_end(engine, &run, "{\"invoice\":\"INV-3\",\"overdue\":true}");

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
    app = stet_app_new("webhook");
    stet_app_service(app, "shop", shop);
    return stet_main(argc, argv, app);
}
