/* A small world for the fault tests; see fault_world.h. */
#include "fault_world.h"

#include <stdarg.h>

#include "engine/engine.h"
#include "fixture.h"

#define WORLD_PATIENCE_US 60000000
#define WORLD_POLLS_MAX   4000 /* without threads that is a matter of turns, not of time */
#define WORLD_SKIP_MS     250

enum { /* runs */
       RUN_STEPS,
       RUN_PARENT,
       RUN_ADD_1,
       RUN_ADD_2,
       RUN_AWAKEABLE,
       RUN_FAILS,
       RUN_FOREVER,
       RUN_BOTH,
       RUN_LATE,
       RUN_RETRIED, /* made by dlq retry */
       RUN_COUNT
};

enum { /* bodies */
       BODY_A,
       BODY_B,
       BODY_C,
       BODY_HAND,
       BODY_FAILS,
       BODY_HAND_FOREVER,
       BODY_LEFT,
       BODY_RIGHT,
       BODY_ADD_1,
       BODY_ADD_2,
       BODY_LATE,
       BODY_RELEASE,
       BODY_COUNT
};

static const char *const world_body_names[BODY_COUNT] = { "a",   "b",    "c",    "hand",
                                                          "f",   "hand", "left", "right",
                                                          "add", "add",  "late", "release" };

/* Handlers have no argument of their own, so the world of this process is found here. */
static world *world_now;

_Noreturn static void
world_fail(const world *w, const char *fmt, ...)
{
    char    text[1024];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    test_fail(__FILE__, __LINE__, "round %s: %s", w->round, text);
}

/* ---- looking --------------------------------------------------------------------------------- */

typedef struct world_look {
    const char *step;
    int         recorded; /* how often this step was recorded as done */
    stet_status status;
    char        result[64];
    char        error[256];
    int         n;
} world_look;

static int
world_on_fact(void *arg, const stet_fact_info *f)
{
    world_look *look = arg;

    if (strcmp(f->kind, "step") == 0 && f->name != NULL && strcmp(f->name, look->step) == 0 &&
        f->code == 0)
        look->recorded++;
    return 0;
}

static int
world_on_info(void *arg, const stet_run_info *info)
{
    world_look *look = arg;

    look->n++;
    look->status = info->status;
    (void)snprintf(look->result, sizeof look->result, "%.*s", (int)info->result.len,
                   info->result.data != NULL ? (const char *)info->result.data : "");
    (void)snprintf(look->error, sizeof look->error, "%s", info->error != NULL ? info->error : "");
    return 0;
}

static world_look
world_look_at(world *w, const stet_run_id *run)
{
    world_look look = { 0 };
    int        err;

    fault_pause();
    err = stet_run_get(w->eye, run, world_on_info, &look);
    fault_resume();
    if (err != STET_OK)
        world_fail(w, "run %s, whose start was acknowledged: %s: %s", run->text,
                   stet_code_name(err), stet_last_error());
    return look;
}

static int
world_recorded(world *w, const char *run, const char *step)
{
    world_look  look = { .step = step };
    stet_run_id id;
    int         err;

    fault_pause();
    err = stet_run_id_parse(&id, run);
    if (err == STET_OK)
        err = stet_run_facts(w->eye, &id, false, world_on_fact, &look);
    fault_resume();
    if (err != STET_OK)
        world_fail(w, "facts of %s: %s: %s", run, stet_code_name(err), stet_last_error());
    return look.recorded;
}

/* ---- handlers -------------------------------------------------------------------------------- */

/* Every body tells that it ran; one that ran before must not have been recorded. */
static int
world_body(stet_attempt *a, size_t body)
{
    world *w = world_now;
    int    err;

    if (atomic_exchange(&w->has_run[body], false) && !stet_attempt_is_at_risk(a))
        (void)snprintf(w->untold, sizeof w->untold, "step %s of %s", world_body_names[body],
                       stet_attempt_run(a));
    if (atomic_fetch_add(&w->bodies[body], 1) > 0) {
        atomic_fetch_add(&w->bodies_in_vain, 1);
        if (world_recorded(w, stet_attempt_run(a), world_body_names[body]) > 0)
            (void)snprintf(w->repeated, sizeof w->repeated, "step %s of %s", world_body_names[body],
                           stet_attempt_run(a));
    }
    if ((err = stet_attempt_return(a, stet_text(world_body_names[body]))) == STET_OK)
        atomic_store(&w->has_run[body], true);
    return err;
}

static int
body_plain(stet_attempt *a, void *arg)
{
    return world_body(a, (size_t) * (const int *)arg);
}

static int
body_hand(stet_attempt *a, void *arg)
{
    memcpy(world_now->awakeable[0], arg, sizeof world_now->awakeable[0]);
    return world_body(a, BODY_HAND);
}

static int
body_hand_forever(stet_attempt *a, void *arg)
{
    memcpy(world_now->awakeable[1], arg, sizeof world_now->awakeable[1]);
    return world_body(a, BODY_HAND_FOREVER);
}

static int
body_fails(stet_attempt *a, void *arg)
{
    int err;

    (void)arg;
    if (!atomic_load(&world_now->is_mended))
        return stet_attempt_fail(a, STET_EPERMANENT, "not mended yet");
    err = world_body(a, BODY_FAILS);
    return err;
}

static int
world_steps(stet_ctx *ctx, stet_bytes input)
{
    static const int a = BODY_A, b = BODY_B;
    stet_bytes       one, two;
    char            *text;

    (void)input;
    STET_TRY(stet_step(ctx, &one, "a", body_plain, (void *)(uintptr_t)&a, NULL));
    STET_TRY(stet_sleep_ms(ctx, "nap", 1));
    STET_TRY(stet_step(ctx, &two, "b", body_plain, (void *)(uintptr_t)&b, NULL));
    if ((text = stet_ctx_printf(ctx, "%.*s%.*s", (int)one.len, (const char *)one.data, (int)two.len,
                                (const char *)two.data)) == NULL)
        return STET_ENOMEM;
    return stet_return(ctx, stet_text(text));
}

static int
world_child(stet_ctx *ctx, stet_bytes input)
{
    static const int c = BODY_C;
    stet_bytes       out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "c", body_plain, (void *)(uintptr_t)&c, NULL));
    return stet_return(ctx, out);
}

static int
world_parent(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    STET_TRY(stet_call(ctx, &out, "t.child", input, NULL));
    return stet_return(ctx, out);
}

static int
world_awakeable(stet_ctx *ctx, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "w"));
    STET_TRY(stet_step(ctx, NULL, "hand", body_hand, id.text, NULL));
    STET_TRY(stet_await(ctx, &value, future));
    return stet_return(ctx, value);
}

/* On its second day the code has one step more in front of the wait that is told of the cancel: the
 * cancel is taken in with a unit that is durable by then, and the step stands in the next one. */
static int
world_forever(stet_ctx *ctx, stet_bytes input)
{
    static const int  release = BODY_RELEASE;
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        value;

    (void)input;
    STET_TRY(stet_awakeable(ctx, &id, &future, "w"));
    STET_TRY(stet_step(ctx, NULL, "hand", body_hand_forever, id.text, NULL));
    if (atomic_load(&world_now->is_second_day))
        STET_TRY(stet_step(ctx, NULL, "release", body_plain, (void *)(uintptr_t)&release, NULL));
    STET_TRY(stet_await_signal(ctx, &value, "go", "1h"));
    return stet_return(ctx, value);
}

static int
world_fails(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "f", body_fails, NULL, NULL));
    return stet_return(ctx, out);
}

static int
world_both(stet_ctx *ctx, stet_bytes input)
{
    static const int left = BODY_LEFT, right = BODY_RIGHT;
    stet_future     *futures[2];
    stet_bytes       out;

    (void)input;
    STET_TRY(stet_step_start(ctx, &futures[0], "left", body_plain, (void *)(uintptr_t)&left, NULL));
    STET_TRY(
        stet_step_start(ctx, &futures[1], "right", body_plain, (void *)(uintptr_t)&right, NULL));
    STET_TRY(stet_await_all(ctx, futures, 2));
    STET_TRY(stet_await(ctx, &out, futures[0]));
    STET_TRY(stet_await(ctx, &out, futures[1]));
    return stet_return(ctx, out);
}

static int
world_late(stet_ctx *ctx, stet_bytes input)
{
    static const int late = BODY_LATE;
    stet_bytes       out;

    (void)input;
    STET_TRY(stet_step(ctx, &out, "late", body_plain, (void *)(uintptr_t)&late, NULL));
    return stet_return(ctx, out);
}

/* The second one in its second generation. */
static int
world_add(stet_ctx *ctx, stet_bytes input)
{
    static const int bodies[2] = { BODY_ADD_1, BODY_ADD_2 };
    bool             is_second = input.len == 1 && *(const char *)input.data == '2';
    stet_bytes       v;
    char            *text;
    long             n;

    if (is_second && stet_info(ctx)->generation == 0) {
        STET_TRY(stet_state_set(ctx, "turn", input));
        return stet_continue(ctx, input);
    }
    STET_TRY(stet_state_get(ctx, &v, "n"));
    n = v.data != NULL ? strtol(v.data, NULL, 10) : -100;
    STET_TRY(stet_step(ctx, NULL, "add", body_plain, (void *)(uintptr_t)&bodies[is_second], NULL));
    if ((text = stet_ctx_printf(ctx, "%ld", n + 1)) == NULL)
        return STET_ENOMEM;
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text("added"));
}

static const stet_handler_options world_described = { .description = "lives through faults",
                                                      .retention = "30d" };
static const stet_handler         world_service[] = {
            { "steps", world_steps, &world_described },
            { "child", world_child, NULL },
            { "parent", world_parent, NULL },
            { "awakeable", world_awakeable, NULL },
            { "forever", world_forever, NULL },
            { "fails", world_fails, NULL },
            { "both", world_both, NULL },
            { "late", world_late, NULL },
            { 0 },
};
static const stet_handler world_object[] = { { "add", world_add, NULL }, { 0 } };
static const char *const  world_handlers[RUN_COUNT] = { "t.steps",   "t.parent",    "o.add",
                                                        "o.add",     "t.awakeable", "t.fails",
                                                        "t.forever", "t.both",      "t.late",
                                                        "t.fails" };

/* ---- going on in spite of faults ------------------------------------------------------------- */

static int64_t
world_us(void)
{
    return stet__mono_us(stet__platform_real());
}

static void
world_failed(world *w, const char *call, int code)
{
    if (!w->is_expected(code))
        world_fail(w, "%s: %s: %s", call, stet_code_name(code), stet_last_error());
    if (code == STET_EUNCERTAIN)
        atomic_store(&w->is_uncertain, true);
    w->errors++;
}

/* Again and again until it works; failing for good is failing to recover. */
#define WORLD_DO(w, call)                                                                          \
    do {                                                                                           \
        int64_t until_ = world_us() + WORLD_PATIENCE_US;                                           \
        int     got_;                                                                              \
        while ((got_ = (call)) != STET_OK) {                                                       \
            world_failed((w), #call, got_);                                                        \
            if (world_us() > until_)                                                               \
                world_fail((w), "%s never worked again: %s", #call, stet_last_error());            \
            world_breathe(w);                                                                      \
        }                                                                                          \
    } while (0)

static void
world_breathe(world *w)
{
    fault_platform_skip(w->p, WORLD_SKIP_MS);
    if (w->has_threads)
        fixture_breathe();
    else if (w->engine != NULL) {
        int err, did;

        if ((err = stet_engine_poll(w->engine, &did, 0)) != STET_OK)
            world_failed(w, "stet_engine_poll", err);
    }
}

static void
world_log(void *arg, const stet_log_record *r)
{
    (void)arg;
    if (getenv("STET_FAULT_VERBOSE") != NULL)
        (void)fprintf(stderr, "    %d %s run=%s step=%s code=%s\n", (int)r->level, r->message,
                      r->run ? r->run : "", r->step ? r->step : "",
                      r->code ? stet_code_name(r->code) : "");
}

static stet_options
world_options(uint32_t roles)
{
    /* Leases are long since time is skipped; attempts are many since no fault may use up a run. */
    return (stet_options){ .size = sizeof(stet_options),
                           .concurrency = 2,
                           .in_flight_max = 32,
                           .run_attempts = 100000,
                           .retry_first_ms = 1,
                           .retry_max_ms = 1,
                           .lease_ms = 3600000,
                           .renew_ms = 1800000,
                           .poll_ms = 10,
                           .sweep_ms = 100,
                           .wait_ms = 60000,
                           .drain_ms = 60000,
                           .roles = roles,
                           .log = world_log };
}

static int
world_store(world *w, stet_store **out, stet__platform *p, const char *url)
{
    int err;

    if (w->url == NULL)
        err = stet__memory_open(out, p, w->db);
    else
        err = stet__store_open(out, p, url);
    if (err != STET_OK || w->script == NULL || fault_is_paused())
        return err;
    return stet__shim_store_new(out, *out, w->script);
}

static int
world_open(world *w, stet_engine **out, stet__platform *p, const char *url, uint32_t roles)
{
    stet_options options = world_options(roles);
    stet_store  *store;
    int          err;

    *out = NULL;
    if ((err = world_store(w, &store, p, url)) != STET_OK)
        return err;
    return stet__open_on(out, p, store, url != NULL ? url : "memory:", &options);
}

/* An engine that works, whatever it takes; a start that failed leaves one that cannot be
 * started. */
static void
world_up(world *w)
{
    static const stet_entry initial[] = { { "n", { "0", 1 } }, { 0 } };
    int64_t                 until_us = world_us() + WORLD_PATIENCE_US;
    int                     err;

    for (;;) {
        WORLD_DO(w, world_open(w, &w->engine, &w->p->base, w->url, 0));
        while ((err = stet_register(w->engine, "t", world_service)) != STET_OK)
            world_failed(w, "stet_register", err);
        while ((err = stet_register_object(w->engine, "o", world_object, initial)) != STET_OK)
            world_failed(w, "stet_register_object", err);
        if (!w->has_threads || (err = stet_engine_start(w->engine)) == STET_OK)
            return;
        world_failed(w, "stet_engine_start", err);
        stet_close(w->engine);
        w->engine = NULL;
        if (world_us() > until_us)
            world_fail(w, "the engine never started again");
    }
}

static void
world_down(world *w)
{
    WORLD_DO(w, stet_engine_stop(w->engine, 0));
    stet_close(w->engine);
    w->engine = NULL;
}

static void
world_await(world *w, const char *what, bool (*is_so)(world *w))
{
    int64_t until_us = world_us() + WORLD_PATIENCE_US;
    int     turns = 0;

    while (!is_so(w)) {
        if (world_us() > until_us || (!w->has_threads && turns++ > WORLD_POLLS_MAX)) {
            for (int i = 0; i < RUN_COUNT; i++)
                if (w->is_known[i]) {
                    world_look look = world_look_at(w, &w->runs[i]);

                    (void)fprintf(stderr, "    %s %s: %s %s\n", world_handlers[i], w->runs[i].text,
                                  stet_status_name(look.status), look.error);
                }
            world_fail(w, "never came, though the faults were over: %s", what);
        }
        world_breathe(w);
    }
}

static bool
world_is_quiet(world *w)
{
    return world_look_at(w, &w->runs[RUN_STEPS]).status == STET_STATUS_COMPLETED &&
           world_look_at(w, &w->runs[RUN_AWAKEABLE]).status == STET_STATUS_SUSPENDED &&
           world_look_at(w, &w->runs[RUN_FOREVER]).status == STET_STATUS_SUSPENDED &&
           world_look_at(w, &w->runs[RUN_FAILS]).status == STET_STATUS_FAILED;
}

static bool
world_has_ended(world *w)
{
    for (int i = 0; i < RUN_COUNT; i++)
        if (w->is_known[i] && !stet_status_is_terminal(world_look_at(w, &w->runs[i]).status))
            return false;
    return true;
}

/* ---- the life -------------------------------------------------------------------------------- */

static void
world_start(world *w, int run)
{
    char               key[16];
    stet_start_options options = { .size = sizeof options };

    (void)snprintf(key, sizeof key, "start-%d", run);
    if (run % 2 == 0 || w->url != NULL) /* without one a failed start must not have happened */
        options.idempotency_key = key;
    if (run == RUN_ADD_1 || run == RUN_ADD_2)
        options.key = "k";
    options.labels = (const char *const[]){ "kind=fault", NULL };
    WORLD_DO(w, stet_start(w->engine, &w->runs[run], world_handlers[run],
                           stet_text(run == RUN_ADD_2 ? "2" : "1"), &options));
    w->is_known[run] = true;
}

/* A worker that claims a run and is never heard of again. */
static void
world_ghost(world *w)
{
    const char  *handlers[] = { "t.late" };
    stet_claimer claimer = { 0, STET_STATUS_RUNNING, handlers, 1 };
    stet_op      op = { .kind = STET_OP_CLAIM_DUE, .count = 1, .claimer = &claimer };
    stet_unit    unit = { .seq = 1, .ops = &op, .n_ops = 1 };
    stet_outcome out = { 0 };
    stet_id      id = { { 7 } };
    stet_store  *store;

    fault_pause();
    if (world_store(w, &store, &w->p->base, w->url) != STET_OK ||
        store->ops->session_open(store, &claimer.session, id, 1, (stet_bytes){ NULL, 0 }) !=
            STET_OK ||
        store->ops->commit(store, &unit, 1, &out) != STET_OK)
        world_fail(w, "ghost: %s", stet_last_error());
    stet__free(store->alloc, out.grants);
    stet__store_close(store);
    fault_platform_skip(w->p, 2);
    fault_resume();
}

static int
world_on_run(void *arg, const stet_run_info *info)
{
    (void)info;
    (*(int *)arg)++;
    return 0;
}

static int
world_on_any_fact(void *arg, const stet_fact_info *fact)
{
    (void)fact;
    (*(int *)arg)++;
    return 0;
}

static int
world_on_finding(void *arg, const stet_finding *f)
{
    (void)snprintf(arg, 256, "%s: %s", f->run != NULL ? f->run : "-", f->text);
    return 0;
}

static void
world_on_verdict(void *arg, const stet_verdict *v)
{
    (void)snprintf(arg, 256, "%s", v->kind);
}

static int
world_list(world *w, int want)
{
    int n = 0,
        err = stet_run_list(w->engine, STET_FILTER(.label = "kind=fault", .with_payloads = true),
                            world_on_run, &n);

    if (err == STET_OK && n != want)
        world_fail(w, "the list has %d runs, not %d", n, want);
    return err;
}

static int
world_facts(world *w, const stet_run_id *run)
{
    int n = 0, err = stet_run_facts(w->engine, run, true, world_on_any_fact, &n);

    if (err == STET_OK && n < 5)
        world_fail(w, "%d facts of %s", n, run->text);
    return err;
}

static int
world_why(world *w, const stet_run_id *run, const char *kind)
{
    char text[256] = "";
    int  err = stet_why(w->engine, run, world_on_verdict, text);

    if (err == STET_OK && strcmp(text, kind) != 0)
        world_fail(w, "why says %s, not %s", text, kind);
    return err;
}

static int
world_verify(world *w, stet_engine *e)
{
    char   text[256] = "";
    size_t checked = 0;
    int    err = stet_verify(e, &checked, world_on_finding, text);

    if (err == STET_OK && text[0] != '\0')
        world_fail(w, "verify: %s", text);
    return err;
}

static int
world_dead_letters(world *w)
{
    int n = 0, err = stet_dlq_list(w->engine, NULL, world_on_run, &n);

    if (err == STET_OK && n != 1)
        world_fail(w, "%d dead letters", n);
    return err;
}

static int
world_state(world *w, const char *want)
{
    stet_bytes value;
    int        err = stet_state_read(w->engine, &value, "o", "k", "n");

    if (err != STET_OK)
        return err;
    if (value.len != strlen(want) || memcmp(value.data, want, value.len) != 0)
        world_fail(w, "the state is %.*s, not %s", (int)value.len, (const char *)value.data, want);
    stet_free((void *)(uintptr_t)value.data);
    return STET_OK;
}

static int
world_health(world *w)
{
    stet_health health;

    return stet_health_get(w->engine, &health);
}

/* A repeat is told so: the call may have worked though its answer was an error. */
static int
world_settle(world *w)
{
    int err = stet_resolve(w->engine, w->awakeable[0], stet_text("settled"));

    return err == STET_ESETTLED && w->is_uncertain ? STET_OK : err;
}

static int
world_retry(world *w)
{
    int err = stet_dlq_retry(w->engine, &w->runs[RUN_RETRIED], &w->runs[RUN_FAILS]);

    if (err == STET_EEXISTS && w->is_uncertain) {
        const char *at = strstr(stet_last_error(), "run_");

        /* Which one the text names last is the newer one. */
        for (const char *next; at != NULL && (next = strstr(at + 1, "run_")) != NULL;)
            at = next;
        if (at == NULL)
            world_fail(w, "%s names no run", stet_last_error());
        (void)snprintf(
            w->runs[RUN_RETRIED].text, sizeof w->runs[0].text, "%.*s",
            (int)strspn(at, "run_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
            at);
        return STET_OK;
    }
    return err;
}

static void
world_first_day(world *w)
{
    for (int i = 0; i < RUN_RETRIED; i++)
        world_start(w, i);
    world_await(w, "everything has ended or waits", world_is_quiet);
    WORLD_DO(w, world_list(w, RUN_RETRIED));
    WORLD_DO(w, world_facts(w, &w->runs[RUN_STEPS]));
    WORLD_DO(w, world_why(w, &w->runs[RUN_FOREVER], "signal"));
    WORLD_DO(w, world_dead_letters(w));
    WORLD_DO(w, world_health(w));
}

static void
world_second_day(world *w)
{
    WORLD_DO(w, world_settle(w));
    WORLD_DO(w, stet_cancel(w->engine, &w->runs[RUN_FOREVER], "tester", "enough"));
    atomic_store(&w->is_mended, true);
    WORLD_DO(w, world_retry(w));
    w->is_known[RUN_RETRIED] = true;
    world_await(w, "everything has ended", world_has_ended);
    WORLD_DO(w, world_state(w, "2"));
    WORLD_DO(w, world_verify(w, w->engine));
}

void
world_live(world *w)
{
    world_now = w;
    fault_pause();
    if (w->url == NULL && (w->db = stet__memory_db_new(&w->p->base)) == NULL)
        world_fail(w, "no memory for the test itself");
    if (world_open(w, &w->eye, stet__platform_real(), w->url, STET_ROLE_CLIENT) != STET_OK)
        world_fail(w, "eye: %s", stet_last_error());
    fault_resume();
    /* Started before anybody works, and claimed by somebody who dies. */
    world_up(w);
    if (!w->has_threads) {
        world_start(w, RUN_LATE);
        world_ghost(w);
    }
    world_first_day(w);
    world_down(w);
    atomic_store(&w->is_second_day, true);
    world_up(w);
    world_second_day(w);
    world_down(w);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static void
world_check_run(world *w, int run, stet_status status, const char *result)
{
    world_look look = world_look_at(w, &w->runs[run]);

    if (look.status != status || strcmp(look.result, result) != 0)
        world_fail(w, "run of %s is %s with \"%s\" (%s), expected %s with \"%s\"",
                   world_handlers[run], stet_status_name(look.status), look.result, look.error,
                   stet_status_name(status), result);
}

static void
world_check_step(world *w, int run, const char *step, int body)
{
    int n = world_recorded(w, w->runs[run].text, step);

    if (n != 1)
        world_fail(w, "step %s of %s was recorded %d times", step, world_handlers[run], n);
    if (atomic_load(&w->bodies[body]) < 1)
        world_fail(w, "step %s of %s never ran", step, world_handlers[run]);
}

static void
world_check_facts(world *w)
{
    static const struct {
        int         run;
        const char *step;
        int         body;
    } steps[] = { { RUN_STEPS, "a", BODY_A },           { RUN_STEPS, "b", BODY_B },
                  { RUN_AWAKEABLE, "hand", BODY_HAND }, { RUN_FOREVER, "hand", BODY_HAND_FOREVER },
                  { RUN_BOTH, "left", BODY_LEFT },      { RUN_BOTH, "right", BODY_RIGHT },
                  { RUN_ADD_1, "add", BODY_ADD_1 },     { RUN_ADD_2, "add", BODY_ADD_2 },
                  { RUN_LATE, "late", BODY_LATE },      { RUN_RETRIED, "f", BODY_FAILS } };

    world_check_run(w, RUN_STEPS, STET_STATUS_COMPLETED, "ab");
    world_check_run(w, RUN_PARENT, STET_STATUS_COMPLETED, "c");
    world_check_run(w, RUN_ADD_1, STET_STATUS_COMPLETED, "added");
    world_check_run(w, RUN_ADD_2, STET_STATUS_COMPLETED, "added");
    world_check_run(w, RUN_AWAKEABLE, STET_STATUS_COMPLETED, "settled");
    world_check_run(w, RUN_FAILS, STET_STATUS_FAILED, "");
    world_check_run(w, RUN_FOREVER, STET_STATUS_CANCELLED, "");
    world_check_run(w, RUN_BOTH, STET_STATUS_COMPLETED, "right");
    world_check_run(w, RUN_LATE, STET_STATUS_COMPLETED, "late");
    world_check_run(w, RUN_RETRIED, STET_STATUS_COMPLETED, "f");
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        world_check_step(w, steps[i].run, steps[i].step, steps[i].body);
    /* It may find no memory in front of that, and is cancelled then. */
    if (world_recorded(w, w->runs[RUN_FOREVER].text, "release") > 1)
        world_fail(w, "step release was recorded more than once");
    if (w->repeated[0] != '\0')
        world_fail(w, "%s ran again after it was recorded", w->repeated);
    if (w->untold[0] != '\0')
        world_fail(w, "%s had run well, ran again and was not told that it is at risk", w->untold);
}

static void
world_check_count(world *w)
{
    int n = 0, err = stet_run_list(w->eye, STET_FILTER(.limit = 100), world_on_run, &n);

    if (err != STET_OK || n != RUN_COUNT + 1) /* and the child */
        world_fail(w, "there are %d runs instead of %d: %s", n, RUN_COUNT + 1, stet_code_name(err));
}

void
world_check(world *w)
{
    int before[WORLD_BODIES];

    for (int i = 0; i < WORLD_BODIES; i++)
        before[i] = atomic_load(&w->bodies[i]);
    world_up(w);
    if (!w->has_threads)
        world_breathe(w);
    world_await(w, "everything has ended", world_has_ended);
    WORLD_DO(w, world_verify(w, w->engine));
    WORLD_DO(w, world_state(w, "2"));
    world_down(w);
    for (int i = 0; i < WORLD_BODIES; i++)
        if (before[i] != atomic_load(&w->bodies[i]))
            world_fail(w, "a body ran again after everything had ended");
    fault_pause();
    world_check_facts(w);
    world_check_count(w);
    stet_close(w->eye);
    if (w->url == NULL)
        stet__memory_db_free(w->db);
    fault_resume();
    if (atomic_load(&w->p->live) != 0)
        world_fail(w, "%ld pieces of memory were not given back", atomic_load(&w->p->live));
}
