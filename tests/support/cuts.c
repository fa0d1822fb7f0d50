/* See cuts.h.
 *
 * A life: an order (steps, one flaky, one transactional where the store has transactions; a sleep;
 * a child; an object with state; an awakeable), a dead letter that is retried, a run that is
 * cancelled, one that is started inside a transaction, verify; then a second engine that finds
 * all of it too old and removes it. Timing decides which request is the nth of its kind, so a few
 * are not reached; how many is told.
 */
#include "cuts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <stet.h>

#include "fixture.h"
#include "test.h"

enum { CUTS_RUNS = 7 };

/* What was executed, in this life. */
static struct {
    _Atomic int  charged, flaky, worked, added, handed, begun, first, tried, inside;
    _Atomic bool is_mended;
    stet_body_fn pay; /* NULL: no transactions */
    char         awakeable[STET_ID_TEXT_MAX];
} books;

/* One life under a fault. */
typedef struct cuts_life {
    cuts         *c;
    stet_engine  *e;
    char          url[256], key[32], where[128];
    int64_t       until_ms;
} cuts_life;

/* ---- handlers -------------------------------------------------------------------------------- */

static int
body_count(stet_attempt *a, void *book)
{
    atomic_fetch_add((_Atomic int *)book, 1);
    return stet_attempt_return(a, stet_text("done"));
}

static int
body_flaky(stet_attempt *a, void *arg)
{
    (void)arg;
    if (atomic_fetch_add(&books.flaky, 1) == 0)
        return stet_attempt_fail(a, STET_ERETRY, "no luck");
    return stet_attempt_return(a, stet_text("done"));
}

static int
body_letter(stet_attempt *a, void *arg)
{
    (void)arg;
    atomic_fetch_add(&books.tried, 1);
    if (!atomic_load(&books.is_mended))
        return stet_attempt_fail(a, STET_EPERMANENT, "not yet");
    return stet_attempt_return(a, stet_text("done"));
}

static int
body_hand(stet_attempt *a, void *id)
{
    (void)a;
    memcpy(books.awakeable, ((stet_awakeable_id *)id)->text, sizeof books.awakeable);
    atomic_fetch_add(&books.handed, 1);
    return STET_OK;
}

static int
handler_order(stet_ctx *ctx, stet_bytes input)
{
    const char       *key = stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data);
    stet_awakeable_id id;
    stet_future      *opened;
    stet_bytes        answer, value;

    STET_TRY(stet_step(ctx, NULL, "charge", body_count, &books.charged, NULL));
    STET_TRY(stet_step(ctx, NULL, "flaky", body_flaky, NULL,
                       STET_STEP(.attempts = 3, .first_ms = 2, .max_ms = 2)));
    if (books.pay != NULL) /* what was rolled back is tried again: rows are counted, not bodies */
        STET_TRY(stet_step(ctx, NULL, "pay", books.pay, (void *)(uintptr_t)key,
                           STET_STEP(.transaction = true, .attempts = 9, .first_ms = 2,
                                     .max_ms = 2)));
    STET_TRY(stet_sleep_ms(ctx, "nap", 5));
    STET_TRY(stet_call(ctx, &answer, "cut.child", stet_text("7"), NULL));
    STET_TRY(stet_send(ctx, NULL, "till.add", input, STET_START(.key = key)));
    STET_TRY(stet_call(ctx, &answer, "till.add", input, STET_START(.key = key)));
    STET_TRY(stet_awakeable(ctx, &id, &opened, "opened"));
    STET_TRY(stet_step(ctx, NULL, "hand out", body_hand, &id, NULL));
    STET_TRY(stet_await(ctx, &value, opened));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%.*s, %.*s", (int)answer.len,
                                                      (const char *)answer.data, (int)value.len,
                                                      (const char *)value.data)));
}

static int
handler_child(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "work", body_count, &books.worked, NULL));
    return stet_return(ctx, input);
}

static int
handler_add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    char      *text;

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "n"));
    text = stet_ctx_printf(ctx, "%ld", fixture_number(value) + 1);
    STET_TRY(stet_step(ctx, NULL, "add", body_count, &books.added, NULL));
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

static int
handler_letter(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "first", body_count, &books.first, NULL));
    STET_TRY(stet_step(ctx, NULL, "try", body_letter, NULL, NULL));
    return stet_return(ctx, input);
}

static int
handler_inside(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "inside", body_count, &books.inside, NULL));
    return stet_return(ctx, input);
}

static int
handler_endless(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(ctx, NULL, "begin", body_count, &books.begun, NULL));
    return stet_sleep(ctx, "for ever", "24h");
}

static void
life_register(stet_engine *e)
{
    static const stet_handler services[] = {
        { "order", handler_order, NULL },     { "child", handler_child, NULL },
        { "letter", handler_letter, NULL },   { "endless", handler_endless, NULL },
        { "inside", handler_inside, NULL },   { 0 },
    };
    static const stet_handler objects[] = { { "add", handler_add, NULL }, { 0 } };

    CHECK_OK(stet_register(e, "cut", services));
    CHECK_OK(stet_register_object(e, "till", objects, NULL));
}

/* ---- again until it is answered -------------------------------------------------------------- */

static bool
life_is_cut(cuts_life *l, int err, const char *what)
{
    if (err != STET_EIO && err != STET_EUNCERTAIN && err != STET_EBUSY)
        return false;
    if (fixture_mono_ms() > l->until_ms)
        test_fail(__FILE__, __LINE__, "%s: %s: never answered: %s", l->where, what,
                  stet_last_error());
    fixture_breathe();
    return true;
}

/* The answer to a call that is not a cut. */
#define ANSWER(l, err, call)                                                                       \
    do {                                                                                           \
        (err) = (call);                                                                            \
    } while (life_is_cut(l, err, #call))

static void
life_expect(cuts_life *l, int line, int got, int want, const char *what)
{
    if (got != want)
        test_fail(__FILE__, line, "%s: %s: %s, expected %s: %s", l->where, what,
                  got != 0 ? stet_code_name(got) : "STET_OK",
                  want != 0 ? stet_code_name(want) : "STET_OK", stet_last_error());
}

#define EXPECT(l, call, want)                                                                      \
    do {                                                                                           \
        int err_;                                                                                  \
        ANSWER(l, err_, call);                                                                     \
        life_expect(l, __LINE__, err_, want, #call);                                               \
    } while (0)

#define SAME(l, got, want)                                                                         \
    do {                                                                                           \
        long long got_ = (long long)(got);                                                         \
        if (got_ != (want))                                                                        \
            test_fail(__FILE__, __LINE__, "%s: %s is %lld, expected %d", (l)->where, #got, got_,   \
                      (int)(want));                                                                \
    } while (0)

/* Wait until a body has been there. */
static void
life_await(cuts_life *l, const _Atomic int *book, const char *what)
{
    while (atomic_load(book) == 0) {
        if (fixture_mono_ms() > l->until_ms)
            test_fail(__FILE__, __LINE__, "%s: %s never came", l->where, what);
        fixture_breathe();
    }
}

/* ---- a life ---------------------------------------------------------------------------------- */

static void
life_open(cuts_life *l, stet_options *options)
{
    options->size = sizeof *options;
    options->concurrency = 4;
    options->poll_ms = 50;
    options->wait_poll_ms = 20;
    options->log_level = getenv("STET_TEST_LOG") != NULL ? STET_LOG_INFO : STET_LOG_OFF;
    EXPECT(l, stet_open(&l->e, l->url, options), STET_OK);
    life_register(l->e);
    EXPECT(l, stet_engine_start(l->e), STET_OK);
}

static int
life_finding(void *arg, const stet_finding *finding)
{
    cuts_life *l = arg;

    test_fail(__FILE__, __LINE__, "%s: verify: %s revision %" PRIu64 ": %s: %s", l->where,
              finding->run != NULL ? finding->run : "-", finding->revision, finding->rule,
              finding->text);
    return STET_OK;
}

static int
life_count(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(int *)arg;
    return STET_OK;
}

static int
life_runs(cuts_life *l)
{
    int n, err;

    do {
        n = 0;
        err = stet_run_list(l->e, NULL, life_count, &n);
    } while (life_is_cut(l, err, "list"));
    life_expect(l, __LINE__, err, STET_OK, "list");
    return n;
}

static stet_run_id
life_start(cuts_life *l, const char *handler)
{
    stet_run_id run;
    char        key[64];

    (void)snprintf(key, sizeof key, "%s %s", l->key, handler);
    EXPECT(l, stet_start(l->e, &run, handler, stet_text(l->key),
                         STET_START(.idempotency_key = key)),
           STET_OK);
    return run;
}

/* The outside opens the gate; after a cut it may have been opened by the call before. */
static void
life_resolve(cuts_life *l)
{
    int err;

    life_await(l, &books.handed, "the awakeable");
    ANSWER(l, err, stet_resolve(l->e, books.awakeable, stet_text("open")));
    if (err != STET_ESETTLED)
        life_expect(l, __LINE__, err, STET_OK, "resolve");
}

static int
life_retried_by(void *arg, const stet_run_info *info)
{
    CHECK(info->retried_by != NULL);
    return stet_run_id_parse(arg, info->retried_by);
}

/* The same: what the call before did is found. */
static void
life_retry(cuts_life *l, const stet_run_id *letter)
{
    stet_run_id again;
    stet_result result;
    int         err;

    EXPECT(l, stet_wait(l->e, NULL, letter, fixture_patience_ms()), STET_ERUN);
    atomic_store(&books.is_mended, true);
    ANSWER(l, err, stet_dlq_retry(l->e, &again, letter));
    if (err == STET_EEXISTS)
        EXPECT(l, stet_run_get(l->e, letter, life_retried_by, &again), STET_OK);
    else
        life_expect(l, __LINE__, err, STET_OK, "retry");
    EXPECT(l, stet_wait(l->e, &result, &again, fixture_patience_ms()), STET_OK);
    stet_result_free(&result);
}

/* Its ID was to be believed once the transaction had committed, which a cut may have hidden; its
 * key finds it. */
static void
life_wait_inside(cuts_life *l)
{
    stet_run_id run;
    bool        existed = false;
    char        key[64];

    (void)snprintf(key, sizeof key, "%s inside", l->key);
    EXPECT(l, stet_start(l->e, &run, "cut.inside", stet_text(l->key),
                         STET_START(.idempotency_key = key, .existed = &existed)),
           STET_OK);
    SAME(l, existed, true);
    EXPECT(l, stet_wait(l->e, NULL, &run, fixture_patience_ms()), STET_OK);
}

static void
life_work(cuts_life *l)
{
    stet_run_id order = life_start(l, "cut.order"), letter = life_start(l, "cut.letter"),
                endless = life_start(l, "cut.endless");
    stet_result result;

    if (l->c->start_in != NULL)
        EXPECT(l, l->c->start_in(l->c, l->e, l->key), STET_OK);
    life_retry(l, &letter);
    life_await(l, &books.begun, "the endless run");
    EXPECT(l, stet_cancel(l->e, &endless, "the test", "enough"), STET_OK);
    life_resolve(l);
    EXPECT(l, stet_wait(l->e, &result, &order, fixture_patience_ms()), STET_OK);
    if (!fixture_is(result.value, "2, open"))
        test_fail(__FILE__, __LINE__, "%s: the order says \"%.*s\"", l->where,
                  (int)result.value.len, (const char *)result.value.data);
    stet_result_free(&result);
    EXPECT(l, stet_wait(l->e, NULL, &endless, fixture_patience_ms()), STET_ECANCELLED);
    if (l->c->start_in != NULL)
        life_wait_inside(l);
}

static void
life_check(cuts_life *l)
{
    stet_bytes value;

    SAME(l, books.charged, 1);
    SAME(l, books.flaky, 2);
    SAME(l, books.worked, 1);
    SAME(l, books.added, 2);
    SAME(l, books.handed, 1);
    SAME(l, books.begun, 1);
    SAME(l, books.first, 1);
    SAME(l, books.tried, 2);
    EXPECT(l, stet_state_read(l->e, &value, "till", l->key, "n"), STET_OK);
    SAME(l, fixture_number(value), 2);
    stet_free((void *)(uintptr_t)value.data);
    if (l->c->count != NULL) {
        int paid = 0, asked = 0;

        l->c->count(l->c, l->key, &paid, &asked);
        SAME(l, paid, 1);
        SAME(l, asked, 1);
        SAME(l, books.inside, 1);
    }
    SAME(l, life_runs(l), CUTS_RUNS + (l->c->start_in != NULL));
    EXPECT(l, stet_verify(l->e, NULL, life_finding, l), STET_OK);
}

static void
life_live(cuts_life *l)
{
    l->until_ms = fixture_mono_ms() + fixture_patience_ms();
    memset(&books, 0, sizeof books);
    books.pay = l->c->pay;
    life_open(l, &(stet_options){ .sweep_ms = 1000 });
    life_work(l);
    life_check(l);
    stet_close(l->e);

    life_open(l, &(stet_options){ .sweep_ms = 20, .retention_ms = 1 });
    while (life_runs(l) > 0) {
        if (fixture_mono_ms() > l->until_ms)
            test_fail(__FILE__, __LINE__, "%s: %d runs are not removed", l->where, life_runs(l));
        fixture_breathe();
    }
    EXPECT(l, stet_verify(l->e, NULL, life_finding, l), STET_OK);
    stet_close(l->e);
}

/* ---- everywhere ------------------------------------------------------------------------------ */

size_t
cuts_stride(size_t otherwise)
{
    return (size_t)test_count("STET_CUT_STRIDE", (long)otherwise);
}

static void
cuts_live(cuts *c, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void
cuts_live(cuts *c, size_t n, const char *fmt, ...)
{
    cuts_life l = { .c = c };
    va_list   args;

    va_start(args, fmt);
    (void)vsnprintf(l.where, sizeof l.where, fmt, args);
    va_end(args);
    (void)snprintf(l.url, sizeof l.url, "%s", c->url(c, n));
    (void)snprintf(l.key, sizeof l.key, "k%zu", n);
    life_live(&l);
}

void
cuts_everywhere(cuts *c, proxy_fault fault)
{
    static proxy_kind kinds[PROXY_KINDS_MAX];
    size_t            every = (size_t)test_count("STET_CUT_KINDS", 1);
    size_t            n_kinds, requests = 0, lives = 0, hits = 0, late = 0;

    cuts_live(c, lives++, "the first life"); /* makes what is made once */
    (void)proxy_census(c->proxy, kinds);
    cuts_live(c, lives++, "a life without cuts");
    n_kinds = proxy_census(c->proxy, kinds);
    for (size_t k = 0; k < n_kinds; k++) {
        requests += kinds[k].requests;
        if (k % every != 0)
            continue;
        for (size_t at = 1; at <= kinds[k].requests; at += c->stride) {
            proxy_fault_at(c->proxy, fault, kinds[k].name, at);
            cuts_live(c, lives++, "cut %s request %zu \"%s\"",
                      fault == PROXY_LOSE_REQUEST ? "before" : "after", at, kinds[k].name);
            if (proxy_calm(c->proxy))
                late++;
            else
                hits++;
        }
    }
    test_note("%zu requests of %zu kinds; cut at %zu, %zu were not reached", requests, n_kinds,
              hits, late);
    CHECK(n_kinds < PROXY_KINDS_MAX && hits > n_kinds / every / 2 && hits > late);
}
