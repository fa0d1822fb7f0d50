/* What a client does. Each call is a function in the process under test; if that dies in it, the
 * call is made again, in such a way that it counts once: a run has its ID before it is started, a
 * signal has a key, an awakeable can be settled once anyway.
 */
#include "testkit/kit.h"

#include <stdio.h>
#include <string.h>

typedef struct client_call {
    stet_test                *kit;
    stet_run_id               run;
    const char               *name; /* handler, signal, awakeable */
    stet_bytes                value;
    const stet_start_options *options;
    const char               *text;
    char                      key[32];
    stet_result              *result;
    int                       tries;
} client_call;

/* ---- start ----------------------------------------------------------------------------------- */

static stet_run_id
client_run_id(stet_test *kit)
{
    uint64_t    hi = stet__sim_random(kit->sim), lo = stet__sim_random(kit->sim);
    uint8_t     random[10];
    stet_run_id run;

    for (size_t i = 0; i < sizeof random; i++)
        random[i] = (uint8_t)(i < 8 ? hi >> (8 * i) : lo >> (8 * (i - 8)));
    stet__id_text(run.text, STET__ID_RUN, stet__id_make(stet_test_now(kit), random));
    return run;
}

static int
client_start(stet_engine *e, void *arg)
{
    client_call       *call = arg;
    stet_start_options o;
    int                err;

    stet_start_options_init(&o);
    if (call->options != NULL)
        o = *call->options;
    if (o.idempotency_key == NULL && o.child_key == NULL && o.run == NULL)
        o.run = &call->run;
    err = stet_start(e, &call->run, call->name, call->value, &o);
    if (err == STET_EEXISTS && call->tries > 1) { /* it was durable before we died */
        if (o.run != &call->run)
            call->run = *o.run;
        return STET_OK;
    }
    return err;
}

static int
client_note(stet_test *kit, const stet_run_id *run)
{
    stet_run_id *grown = stet__grow(kit->alloc, kit->started, (kit->n_started + 1) * sizeof *grown);

    if (grown == NULL)
        return stet__fail(STET_ENOMEM, "the test kit: out of memory");
    kit->started = grown;
    grown[kit->n_started++] = *run;
    return STET_OK;
}

int
stet_test_start(stet_test *kit, stet_run_id *run, const char *handler, stet_bytes input,
                const stet_start_options *options)
{
    client_call call = { .kit = kit, .name = handler, .value = input, .options = options };
    int         err = stet__kit_enter(kit, "stet_test_start");

    if (err != STET_OK)
        return err;
    if (options != NULL && options->size != sizeof *options)
        return stet__fail(STET_EINVAL,
                          "stet_start_options.size is %zu; use STET_START(…) or "
                          "stet_start_options_init()",
                          options->size);
    call.run = client_run_id(kit);
    if ((err = stet__kit_do(kit, client_start, &call, &call.tries)) != STET_OK)
        return err;
    if (run != NULL)
        *run = call.run;
    return client_note(kit, &call.run);
}

/* ---- the others ------------------------------------------------------------------------------ */

static int
client_signal(stet_engine *e, void *arg)
{
    client_call *call = arg;
    int          err = stet_signal(e, &call->run, call->name, call->value,
                                   STET_SIGNAL_OPTIONS(.idempotency_key = call->key, .by = "test"));

    /* The run got it before we died, and has ended since. */
    return err == STET_EENDED && strcmp(call->kit->signal_key, call->key) == 0 ? STET_OK : err;
}

int
stet_test_signal(stet_test *kit, const stet_run_id *run, const char *signal, stet_bytes value)
{
    client_call call = { .kit = kit, .run = *run, .name = signal, .value = value };
    int         err = stet__kit_enter(kit, "stet_test_signal");

    if (err != STET_OK)
        return err;
    (void)snprintf(call.key, sizeof call.key, "test-%llu", (unsigned long long)++kit->calls);
    return stet__kit_do(kit, client_signal, &call, &call.tries);
}

static int
client_settle(stet_engine *e, void *arg)
{
    client_call *call = arg;
    int          err = call->text != NULL ? stet_reject(e, call->name, call->text)
                                          : stet_resolve(e, call->name, call->value);

    return err == STET_ESETTLED && call->tries > 1 ? STET_OK : err;
}

int
stet_test_resolve(stet_test *kit, const char *awakeable, stet_bytes value)
{
    client_call call = { .kit = kit, .name = awakeable, .value = value };
    int         err = stet__kit_enter(kit, "stet_test_resolve");

    return err == STET_OK ? stet__kit_do(kit, client_settle, &call, &call.tries) : err;
}

int
stet_test_reject(stet_test *kit, const char *awakeable, const char *error)
{
    client_call call = { .kit = kit, .name = awakeable, .text = error != NULL ? error : "" };
    int         err = stet__kit_enter(kit, "stet_test_reject");

    return err == STET_OK ? stet__kit_do(kit, client_settle, &call, &call.tries) : err;
}

static int
client_cancel(stet_engine *e, void *arg)
{
    client_call *call = arg;

    return stet_cancel(e, &call->run, "test", call->text);
}

int
stet_test_cancel(stet_test *kit, const stet_run_id *run, const char *why)
{
    client_call call = { .kit = kit, .run = *run, .text = why };
    int         err = stet__kit_enter(kit, "stet_test_cancel");

    return err == STET_OK ? stet__kit_do(kit, client_cancel, &call, &call.tries) : err;
}

/* ---- looking --------------------------------------------------------------------------------- */

static int
client_result(stet_engine *e, void *arg)
{
    client_call *call = arg;

    return stet_result_get(e, call->result, &call->run);
}

int
stet_test_result(stet_test *kit, stet_result *result, const stet_run_id *run)
{
    client_call call = { .kit = kit, .run = *run, .result = result };
    int         err;

    memset(result, 0, sizeof *result);
    if ((err = stet__kit_enter(kit, "stet_test_result")) != STET_OK ||
        (err = stet_test_run_until_idle(kit)) != STET_OK)
        return err;
    return stet__kit_do(kit, client_result, &call, &call.tries);
}

typedef struct client_seen {
    stet_run_id run;
    stet_status status;
    char        text[768];
} client_seen;

static void
client_on_verdict(void *arg, const stet_verdict *verdict)
{
    client_seen *seen = arg;

    (void)snprintf(seen->text, sizeof seen->text, "%s", verdict->text);
}

static int
client_on_run(void *arg, const stet_run_info *info)
{
    client_seen *seen = arg;

    seen->status = info->status;
    if (info->error != NULL)
        (void)snprintf(seen->text, sizeof seen->text, "%s", info->error);
    return STET_OK;
}

static int
client_look(stet_engine *e, void *arg)
{
    client_seen *seen = arg;
    int          err;

    seen->text[0] = '\0';
    if ((err = stet_run_get(e, &seen->run, client_on_run, seen)) == STET_OK &&
        !stet_status_is_terminal(seen->status))
        err = stet_why(e, &seen->run, client_on_verdict, seen);
    return err;
}

stet_status
stet_test_status(stet_test *kit, const stet_run_id *run)
{
    client_seen seen = { .run = *run };

    if (stet__kit_enter(kit, "stet_test_status") != STET_OK ||
        stet_test_run_until_idle(kit) != STET_OK ||
        stet__kit_do(kit, client_look, &seen, NULL) != STET_OK)
        return (stet_status)0;
    return seen.status;
}

int
stet_test_expect(stet_test *kit, const stet_run_id *run, const char *value)
{
    stet_result result;
    client_seen seen = { .run = *run };
    int         err = stet_test_result(kit, &result, run);
    bool        is_it = err == STET_OK && result.value.len == strlen(value) &&
                 memcmp(result.value.data, value, result.value.len) == 0;

    if (err == STET_OK && !is_it)
        err = stet__fail(STET_EMISMATCH, "%s completed with \"%.*s\", and \"%s\" was expected",
                         run->text, (int)result.value.len, (const char *)result.value.data, value);
    stet_result_free(&result);
    if (err == STET_OK || err == STET_EMISMATCH || err == STET_EUSAGE)
        return err;
    if (stet__kit_do(kit, client_look, &seen, NULL) != STET_OK)
        return stet__fail(STET_EMISMATCH, "%s, of which \"%s\" was expected: %s", run->text, value,
                          stet_last_error());
    return stet__fail(STET_EMISMATCH, "%s is %s, and \"%s\" was expected: %s", run->text,
                      stet_status_name(seen.status), value, seen.text);
}
