/* The handlers the figures run. Their bodies do nothing: what is measured is the engine. */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HANDLER_RESULT "{\"charge\":\"ch_0123456789\"}"

static int
body_result(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, stet_text(HANDLER_RESULT));
}

static int
handle_steps3(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "reserve", body_result, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "charge", body_result, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "ship", body_result, NULL, NULL));
    return stet_return(ctx, stet_text(HANDLER_RESULT));
}

static int
handle_run0(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_return(ctx, stet_text(HANDLER_RESULT));
}

static int
handle_add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    char       text[32] = "";

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "n"));
    if (value.data != NULL && value.len < sizeof text)
        memcpy(text, value.data, value.len);
    snprintf(text, sizeof text, "%lld", strtoll(text, NULL, 10) + 1);
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

static int
handle_nap(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_sleep(ctx, "nap", "100ms"));
    return stet_return(ctx, stet_text(HANDLER_RESULT));
}

static int
handle_parked(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_sleep(ctx, "month", "30d"));
    return stet_return(ctx, stet_text(HANDLER_RESULT));
}

/* ---- the awakeable --------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    bool            is_there;
    char            id[STET_ID_TEXT_MAX], taken[STET_ID_TEXT_MAX];
} told = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int
body_tell(stet_attempt *a, void *arg)
{
    const stet_awakeable_id *id = arg;

    (void)a;
    pthread_mutex_lock(&told.lock);
    memcpy(told.id, id->text, sizeof told.id);
    told.is_there = true;
    pthread_mutex_unlock(&told.lock);
    return STET_OK;
}

const char *
bench_awakeable_taken(void)
{
    bool was_there;

    pthread_mutex_lock(&told.lock);
    if ((was_there = told.is_there))
        memcpy(told.taken, told.id, sizeof told.taken);
    told.is_there = false;
    pthread_mutex_unlock(&told.lock);
    return was_there ? told.taken : NULL;
}

static int
handle_awaits(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "approval"));
    STET_TRY(stet_step(ctx, NULL, "tell", body_tell, &id, NULL));
    STET_TRY(stet_await(ctx, &value, future));
    return stet_return(ctx, value);
}

static int
handle_listens(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &value, "go", NULL));
    return stet_return(ctx, value);
}

/* Of every event it waits for the next. */
static int
handle_hears(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    for (;;)
        STET_TRY(stet_await_event(ctx, NULL, "tick", NULL));
}

/* ---- for other processes --------------------------------------------------------------------- */

static int
body_ms(stet_attempt *a, void *arg)
{
    struct timespec work = { 0, 1000000 };

    (void)arg;
    nanosleep(&work, NULL);
    return stet_attempt_return(a, stet_text(HANDLER_RESULT));
}

/* Three bodies that take a millisecond each. */
static int
handle_busy3(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "reserve", body_ms, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "charge", body_ms, NULL, NULL));
    STET_TRY(stet_step(ctx, NULL, "ship", body_ms, NULL, NULL));
    return stet_return(ctx, stet_text(HANDLER_RESULT));
}

static int
body_say(stet_attempt *a, void *arg)
{
    const stet_awakeable_id *id = arg;

    return stet_attempt_return(a, stet_text(id->text));
}

/* The result of step "say" is the awakeable; returns when it went on. */
static int
handle_resumed(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;
    char              text[32];

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "approval"));
    STET_TRY(stet_step(ctx, NULL, "say", body_say, &id, NULL));
    STET_TRY(stet_await(ctx, &value, future));
    /* The steady clock is the same for all processes of a machine. */
    snprintf(text, sizeof text, "%.9f", bench_now_s());
    return stet_return(ctx, stet_text(text));
}

/* ---- the long one ---------------------------------------------------------------------------- */

bench_long bench_long_hooks;

static int
body_timed(stet_attempt *a, void *arg)
{
    (void)a;
    bench_long_hooks.on_step(*(const size_t *)arg);
    return STET_OK;
}

static int
body_last(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    bench_long_hooks.on_last();
    return STET_OK;
}

static int
handle_long(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    for (size_t i = 0; i < BENCH_STEPS100K; i++)
        STET_TRY(stet_step(ctx, NULL, "work", body_timed, &i, NULL));
    STET_TRY(stet_step(ctx, NULL, "last", body_last, NULL, NULL));
    return stet_return(ctx, stet_text(HANDLER_RESULT));
}

/* ---- much to replay -------------------------------------------------------------------------- */

static int
body_receipt(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, stet_text("{\"receipt\":\"4711\"}"));
}

static int
handle_replayed(stet_ctx *ctx, stet_bytes input)
{
    int64_t now_ms;

    (void)input;
    for (int i = 0; i < 2500; i++) {
        STET_TRY(stet_step(ctx, NULL, "reserve", body_receipt, NULL, NULL));
        STET_TRY(stet_step(ctx, NULL, "charge", body_receipt, NULL, NULL));
        STET_TRY(stet_step(ctx, NULL, "ship", body_receipt, NULL, NULL));
        STET_TRY(stet_now(ctx, &now_ms));
    }
    return stet_return(ctx, stet_text(HANDLER_RESULT));
}

const stet_handler bench_handlers[] = {
    { "steps3", handle_steps3, NULL },   { "run0", handle_run0, NULL },
    { "nap", handle_nap, NULL },         { "parked", handle_parked, NULL },
    { "listens", handle_listens, NULL }, { "hears", handle_hears, NULL },
    { "awaits", handle_awaits, NULL },   { "long", handle_long, NULL },
    { "busy3", handle_busy3, NULL },     { "resumed", handle_resumed, NULL },
    { "replayed", handle_replayed, NULL },
    { NULL, NULL, NULL }
};

const stet_handler bench_counters[] = { { "add", handle_add, NULL }, { NULL, NULL, NULL } };
