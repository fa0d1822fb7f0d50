/* Every public function while memory runs out: each allocation it makes, SQLite's included, fails
 * in turn, once and then for good, on the memory store and on SQLite. The call answers STET_ENOMEM
 * and has changed nothing, or it works; afterwards, with memory again, it works. Nothing is leaked
 * (the sanitized build looks for that) and verify finds nothing.
 *
 * And the same while the store is ill: each call of the store a function makes is answered with
 * STET_EIO.
 *
 * The table at the end has a row for every function the public headers declare. A new one without a
 * row fails the first test.
 *
 *   STET_FAULT_STRIDE=N  the first few allocations, which are the function's own as a rule, then
 *                        every Nth only (memory: 1, SQLite: 23; STET_TEST_SEED chooses which)
 *   STET_FAULT_FIRST=N   so many are the first few (4)
 *   STET_FAULT_THIN=N    strides that are longer than 1 are N times as long
 *   STET_FAULT_ROW=NAME  only this function
 */
#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stet.h>

#include "api_fault.h"
#include "engine/move.h"
#include "engine/schedule.h"
#include "fault_vfs.h"
#include "testkit/shim_store.h"
#include "test.h"

enum { API_POLLS_MAX = 2000, API_TEXT_MAX = 16384, API_ROUNDS_MAX = 20000 };

typedef struct api_row api_row;

/* One world: an engine without threads that this thread polls, with a run in every state. */
typedef struct api {
    const api_row *row;
    const char    *url;
    shim_script   *script; /* NULL: memory fails; else the calls of a memory store */
    bool           is_tight; /* memory is asked for thing by thing (util.h) */
    char           where[160];
    stet_engine   *e;
    stet_engine   *other; /* of rows about engines themselves */
    stet_run_id    done, waits, fails, bent, late, subject;
    int            bodies, exits;
    bool           is_bent;
    char           awakeable[STET_ID_TEXT_MAX];
} api;

/* Exactly one of the functions is there. All return what the call under test returned, or STET_OK.
 */
struct api_row {
    const char *name;
    int (*pure)(void);
    int (*engine)(api *t);
    int (*ctx)(stet_ctx *c);
    int (*body)(stet_attempt *a);
    int (*cli)(int argc, char **argv);
    void (*ready)(api *t); /* before an engine or ctx row: what it needs there */
    bool        is_alone; /* nothing fails in the processes it forks */
    bool        is_vague; /* an error may come after the work was done; a repeat finds it */
    long        stride;   /* it does so much that strides are so much longer */
    long        every;    /* … and so long is that of the memory store, which is 1 else */
    const char *result;   /* of the run of a ctx row, else "done" */
};

/* Handlers and bodies have no argument of their own. */
static api *api_now;

#define ARMED(call)      (api_fault_arm(), api_rc = (call), api_fault_disarm(), api_rc)
#define ARMED_VOID(call) (api_fault_arm(), (call), api_fault_disarm())
static _Thread_local int api_rc;

#define API_FAIL(t, ...)                                                                           \
    do {                                                                                           \
        char text_[1024];                                                                          \
                                                                                                   \
        api_fault_disarm();                                                                        \
        (void)snprintf(text_, sizeof text_, __VA_ARGS__);                                          \
        test_fail(__FILE__, __LINE__, "%s: %s", (t)->where, text_);                                \
    } while (0)

static long
api_next(long at, long first, long stride)
{
    long always = test_number("STET_FAULT_FIRST", 4);

    do
        at++;
    while (at >= always && at % stride != first);
    return at;
}

/* ---- handlers ---------------------------------------------------------------------------------
 */

static int
api_body(stet_attempt *a, void *arg)
{
    (void)arg;
    api_now->bodies++;
    return stet_attempt_return(a, stet_text("body"));
}

/* Under test is what a body can call. */
static int
api_row_body(stet_attempt *a, void *arg)
{
    (void)arg;
    api_now->bodies++;
    return api_now->row->body(a);
}

static int
api_ctx(stet_ctx *c, stet_bytes input)
{
    int rc;

    (void)input;
    if (api_now->row->body != NULL)
        rc = stet_step(c, NULL, "body", api_row_body, NULL, NULL);
    else
        rc = api_now->row->ctx(c);
    if (rc != STET_OK || api_now->row->result != NULL)
        return rc;
    return stet_return(c, stet_text("done"));
}

static int
api_done(stet_ctx *c, stet_bytes input)
{
    STET_TRY(stet_step(c, NULL, "one", api_body, NULL, NULL));
    return stet_return(c, input);
}

static int
api_waits(stet_ctx *c, stet_bytes input)
{
    stet_awakeable_id id;
    stet_future      *f;

    (void)input;
    STET_TRY(stet_awakeable(c, &id, &f, "never"));
    memcpy(api_now->awakeable, id.text, sizeof id.text);
    return stet_await(c, NULL, f);
}

static int
api_fails(stet_ctx *c, stet_bytes input)
{
    (void)input;
    return stet_fail(c, STET_EPERMANENT, "no way");
}

/* After a sleep its code is another one: stuck. */
static int
api_bent(stet_ctx *c, stet_bytes input)
{
    (void)input;
    if (!api_now->is_bent)
        STET_TRY(stet_step(c, NULL, "old", api_body, NULL, NULL));
    api_now->is_bent = true;
    STET_TRY(stet_sleep_ms(c, "nap", 1));
    return STET_OK;
}

/* Something of all that a retry may inherit, then a failure. */
static int
api_sad(stet_ctx *c, stet_bytes input)
{
    stet_awakeable_id id;
    stet_run_id       self;
    stet_future      *f;
    stet_bytes        out;
    int64_t           now_ms;

    STET_TRY(stet_state_get(c, &out, "n"));
    STET_TRY(stet_state_set(c, "n", input));
    STET_TRY(stet_state_clear(c, "gone"));
    STET_TRY(stet_now(c, &now_ms));
    STET_TRY(stet_step(c, NULL, "one", api_body, NULL, NULL));
    STET_TRY(stet_sleep_ms(c, "nap", 1));
    STET_TRY(stet_call(c, &out, "t.done", input, NULL));
    STET_TRY(stet_awakeable(c, &id, &f, "a"));
    STET_TRY(stet_ctx_resolve(c, id.text, stet_text("v")));
    STET_TRY(stet_await_for(c, &out, f, "1h"));
    (void)snprintf(self.text, sizeof self.text, "%s", stet_info(c)->run);
    STET_TRY(stet_ctx_signal(c, &self, "go", stet_text("taken")));
    STET_TRY(stet_ctx_signal(c, &self, "go", stet_text("kept")));
    STET_TRY(stet_await_signal(c, &out, "go", NULL));
    return stet_fail(c, STET_EPERMANENT, "no way");
}

static int
api_listens(stet_ctx *c, stet_bytes input)
{
    (void)input;
    return stet_await_event(c, NULL, "news", "1d");
}

static int
api_asks(stet_ctx *c, stet_bytes input)
{
    int rc;

    if (input.len == 5)
        return stet_pause(c, NULL, "break", stet_text("{}"));
    rc = stet_approve(c, NULL, "boss", stet_text("{}"));
    return rc == STET_EREJECTED ? STET_OK : rc;
}

static int
api_get(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)input;
    return stet_reply_set(reply, stet_text(arg));
}

static int
api_change(void *arg, stet_bytes input, stet_reply *reply)
{
    memcpy(arg, "some", 5);
    return api_get(arg, input, reply);
}

static int
api_live(stet_ctx *c, stet_bytes input)
{
    char state[8] = "none";

    (void)input;
    STET_TRY(stet_on_query(c, "get", api_get, state));
    STET_TRY(stet_on_update(c, "set", api_get, api_change, state));
    return stet_await_signal(c, NULL, "end", NULL);
}

/* Its second life waits. */
static int
api_anew(stet_ctx *c, stet_bytes input)
{
    if (input.len == 0)
        return stet_continue(c, stet_text("second"));
    return stet_await_signal(c, NULL, "end", NULL);
}

static int
api_cannot_undo(stet_attempt *a, stet_bytes result)
{
    (void)result;
    return stet_attempt_fail(a, STET_EPERMANENT, "too late");
}

static int
api_regrets(stet_ctx *c, stet_bytes input)
{
    (void)input;
    STET_TRY(stet_step(c, NULL, "one", api_body, NULL, STET_STEP(.undo = api_cannot_undo)));
    return stet_rollback(c);
}

static int
api_calls(stet_ctx *c, stet_bytes input)
{
    return stet_call(c, NULL, "t.waits", input, NULL);
}

static int
api_set(stet_ctx *c, stet_bytes input)
{
    STET_TRY(stet_state_set(c, "n", input));
    return STET_OK;
}

static const stet_handler api_services[] = {
    { "done", api_done, NULL }, { "waits", api_waits, NULL }, { "fails", api_fails, NULL },
    { "bent", api_bent, NULL }, { "ctx", api_ctx, NULL },     { "calls", api_calls, NULL },
    { "listens", api_listens, NULL }, { "asks", api_asks, NULL }, { "regrets", api_regrets, NULL },
    { "live", api_live, NULL }, { "anew", api_anew, NULL }, { 0 },
};
static const stet_handler api_objects[] = { { "set", api_set, NULL },
                                            { "ctx", api_ctx, NULL },
                                            { "sad", api_sad, NULL },
                                            { "waits", api_waits, NULL },
                                            { 0 } };

static const stet_schedule_options api_hourly = { .size = sizeof api_hourly,
                                                  .cron = "0 * * * *",
                                                  .zone = "Europe/Berlin",
                                                  .overlap = STET_OVERLAP_CANCEL };

/* ---- looking ------------------------------------------------------------------------------------
 */

typedef struct api_dump {
    stet_engine *e;
    char         text[API_TEXT_MAX];
    size_t       len;
    size_t       n;
} api_dump;

static int
api_count_run(void *arg, const stet_run_info *info)
{
    CHECK(info->id != NULL && info->handler != NULL);
    ++*(size_t *)arg;
    return STET_OK;
}

static int
api_count_fact(void *arg, const stet_fact_info *fact)
{
    CHECK(fact->kind != NULL && (fact->occurrence == 0 || fact->name != NULL));
    ++*(size_t *)arg;
    return STET_OK;
}

static int
api_dump_run(void *arg, const stet_run_info *i)
{
    api_dump *d = arg;

    d->n++;
    d->len += (size_t)snprintf(d->text + d->len, sizeof d->text - d->len, "%s %s %s %llu %llu %d\n",
                               i->id, i->handler, stet_status_name(i->status),
                               (unsigned long long)i->facts, (unsigned long long)i->inbox, i->code);
    CHECK(d->len < sizeof d->text);
    return STET_OK;
}

static int
api_dump_entry(void *arg, const char *name, stet_bytes value)
{
    api_dump *d = arg;

    d->len += (size_t)snprintf(d->text + d->len, sizeof d->text - d->len, "%s=%.*s\n", name,
                               (int)value.len, (const char *)value.data);
    return STET_OK;
}

/* All a caller can see of what is stored. */
static void
api_look(stet_engine *e, api_dump *d)
{
    size_t letters = 0;

    d->e = e;
    d->len = d->n = 0;
    CHECK_OK(stet_run_list(e, NULL, api_dump_run, d));
    CHECK_OK(stet_dlq_list(e, NULL, api_count_run, &letters));
    CHECK_OK(stet_state_list(e, "o", "k", api_dump_entry, d));
    (void)snprintf(d->text + d->len, sizeof d->text - d->len, "%zu dead letters\n", letters);
}

static int
api_on_finding(void *arg, const stet_finding *f)
{
    API_FAIL((api *)arg, "verify: %s: %s: %s", f->run ? f->run : "-", f->rule, f->text);
    return STET_OK;
}

static int
api_note_status(void *arg, const stet_run_info *info)
{
    *(stet_status *)arg = info->status;
    return STET_OK;
}

static int
api_print_fact(void *arg, const stet_fact_info *f)
{
    (void)arg;
    (void)fprintf(stderr, "  %3llu %3llu %s %s#%llu %d %s\n", (unsigned long long)f->revision,
                  (unsigned long long)f->inbox, f->kind, f->name ? f->name : "",
                  (unsigned long long)f->occurrence, f->code, f->text ? f->text : "");
    return STET_OK;
}

static stet_status
api_status(stet_engine *e, const stet_run_id *run)
{
    stet_status status = 0;

    CHECK_OK(stet_run_get(e, run, api_note_status, &status));
    return status;
}

/* ---- the world
 * ------------------------------------------------------------------------------------ */

/* Lines are made, so that what they need is asked for. */
static void
api_sink(void *arg, const stet_log_record *record)
{
    (void)arg;
    CHECK(record->message != NULL);
}

static const stet_options *
api_options(void)
{
    static stet_options o;

    stet_options_init(&o);
    o.retry_first_ms = o.retry_max_ms = 1;
    o.retry_jitter_percent = STET_NONE;
    o.parked_max = STET_NONE;
    o.sweep_ms = o.poll_ms = 10;
    o.wait_poll_ms = 10;
    o.wait_ms = 5000;
    o.concurrency = 2;
    o.log = api_sink;
    o.run_attempts = 5;
    return &o;
}

static int
api_register(stet_engine *e)
{
    int err = stet_register(e, "t", api_services);

    return err == STET_OK ? stet_register_object(e, "o", api_objects, NULL) : err;
}

static void
api_forget(const char *url)
{
    static const char *const ends[] = { "", "-wal", "-shm", "-live", "-journal" };
    char                     name[600];

    for (size_t i = 0; strncmp(url, "sqlite:", 7) == 0 && i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(name, sizeof name, "%.*s%s", (int)strcspn(url + 7, "?"), url + 7, ends[i]);
        (void)unlink(name);
    }
}

/* By which the fault may show. */
static int
api_error(const api *t)
{
    return t->script != NULL ? STET_EIO : STET_ENOMEM;
}

/* Poll until the run is in this status; what is armed inside goes off at the end of each turn. */
static void
api_poll_at(api *t, stet_engine *e, const stet_run_id *run, stet_status status)
{
    for (int i = 0; i < API_POLLS_MAX; i++) {
        int rc = stet_engine_poll(e, NULL, 0);

        api_fault_disarm();
        api_fault_skip(10);
        if (rc != STET_OK && rc != api_error(t))
            API_FAIL(t, "poll: %s: %s", stet_code_name(rc), stet_last_error());
        if (api_status(e, run) == status)
            return;
    }
    (void)stet_run_facts(e, run, false, api_print_fact, NULL);
    API_FAIL(t, "%s never became %s, is %s", run->text, stet_status_name(status),
             stet_status_name(api_status(e, run)));
}

static void
api_poll_until(api *t, const stet_run_id *run, stet_status status)
{
    api_poll_at(t, t->e, run, status);
}

static bool
api_store_is_well(void)
{
    return !api_fault_store_fails();
}

/* Of all its engines and stores. */
static stet__platform *
api_platform(const api *t)
{
    static stet__platform p;

    p = *stet__platform_real();
    p.alloc.is_tight = t->is_tight;
    return &p;
}

static int
api_open_at(const api *t, stet_engine **e, const char *url, const stet_options *options)
{
    stet_store *store;

    if (t->script == NULL && !t->is_tight)
        return stet_open(e, url, options);
    CHECK_OK(stet__store_open(&store, api_platform(t), url));
    if (t->script != NULL)
        CHECK_OK(stet__shim_store_new(&store, store, t->script));
    return stet__open_on(e, api_platform(t), store, url, options);
}

static int
api_open(api *t)
{
    return api_open_at(t, &t->e, t->url, api_options());
}

static void
api_begin(api *t)
{
    api_fault_skip(0);
    t->bodies = t->exits = 0;
    t->is_bent = false;
    api_now = t;
    api_forget(t->url);
    CHECK_OK(api_open(t));
    CHECK_OK(api_register(t->e));
}

/* With a run in every state. */
static void
api_populate(api *t)
{
    stet_run_id set;

    CHECK_OK(stet_start(t->e, &t->done, "t.done", stet_text("x"), NULL));
    CHECK_OK(stet_start(t->e, &t->waits, "t.waits", stet_text(""), NULL));
    CHECK_OK(stet_start(t->e, &t->fails, "t.fails", stet_text(""), NULL));
    CHECK_OK(stet_start(t->e, &t->bent, "t.bent", stet_text(""), NULL));
    CHECK_OK(stet_start(t->e, &t->late, "t.done", stet_text(""), STET_START(.delay = "1h")));
    CHECK_OK(stet_start(t->e, &set, "o.set", stet_text("7"), STET_START(.key = "k")));
    api_poll_until(t, &t->done, STET_STATUS_COMPLETED);
    api_poll_until(t, &t->waits, STET_STATUS_SUSPENDED);
    api_poll_until(t, &t->fails, STET_STATUS_FAILED);
    api_poll_until(t, &set, STET_STATUS_COMPLETED);
    api_poll_until(t, &t->bent, STET_STATUS_STUCK);
}

static void
api_end(api *t)
{
    CHECK_OK(stet_verify(t->e, NULL, api_on_finding, t));
    stet_close(t->e);
    t->e = NULL;
}

#include "api_outside.inc"

#include "api_schedule.inc"
#include "api_operate.inc"
#include "api_damage.inc"
#include "api_look.inc"

#include "api_inside.inc"

/* ---- rows: a program of its own
 * ------------------------------------------------------------------------ */

static stet_app *
api_app(const char *armed)
{
    stet_app *app;

    if (strcmp(armed, "new") == 0)
        api_fault_arm();
    app = stet_app_new("api");
    api_fault_disarm();
    if (strcmp(armed, "service") == 0)
        api_fault_arm();
    stet_app_service(app, "t", api_services);
    api_fault_disarm();
    if (strcmp(armed, "object") == 0)
        api_fault_arm();
    stet_app_object(app, "o", api_objects, NULL);
    api_fault_disarm();
    if (strcmp(armed, "options") == 0)
        api_fault_arm();
    stet_app_options(app, api_options());
    api_fault_disarm();
    if (strcmp(armed, "schedule") == 0)
        api_fault_arm();
    stet_app_schedule(app, "hourly", "t.done", stet_text("x"), &api_hourly);
    api_fault_disarm();
    if (strcmp(armed, "schedule_fn") == 0)
        api_fault_arm();
    stet_app_schedule_fn(app, "never", api_never, NULL);
    api_fault_disarm();
    return app;
}

#define API_CLI(what)                                                                              \
    static int cli_##what(int argc, char **argv)                                                   \
    {                                                                                              \
        stet_app *app = api_app(#what);                                                            \
                                                                                                   \
        if (strcmp(#what, "main") == 0)                                                            \
            api_fault_arm();                                                                       \
        return stet_main(argc, argv, app);                                                         \
    }
API_CLI(new)
API_CLI(service)
API_CLI(object)
API_CLI(options)
API_CLI(schedule)
API_CLI(schedule_fn)
API_CLI(main)

/* ---- the table
 * ----------------------------------------------------------------------------------------- */

static const api_row api_rows[] = {
    { .name = "stet_text", .pure = pure_text },
    { .name = "stet_code_name", .pure = pure_code_name },
    { .name = "stet_code_text", .pure = pure_code_text },
    { .name = "stet_code_class", .pure = pure_code_class },
    { .name = "stet_last_error", .pure = pure_last_error },
    { .name = "stet_run_id_parse", .pure = pure_run_id_parse },
    { .name = "stet_duration_parse", .pure = pure_duration_parse },
    { .name = "stet_duration_text", .pure = pure_duration_text },
    { .name = "stet_cron_parse", .pure = pure_cron_parse },
    { .name = "stet_cron_free", .pure = pure_cron_free },
    { .name = "stet_cron_next", .pure = pure_cron_next },
    { .name = "stet_cron_next_time", .pure = pure_cron_next_time },
    { .name = "stet_options_init", .pure = pure_options_init },
    { .name = "stet_config_at", .pure = pure_config_at },
    { .name = "stet_options_set", .pure = pure_options_set },
    { .name = "stet_status_name", .pure = pure_status_name },
    { .name = "stet_status_parse", .pure = pure_status_parse },
    { .name = "stet_status_is_terminal", .pure = pure_status_is_terminal },
    { .name = "stet_start_options_init", .pure = pure_start_options_init },
    { .name = "stet_schedule_options_init", .pure = pure_schedule_options_init },
    { .name = "stet_overlap_name", .pure = pure_schedule_names },
    { .name = "stet_missed_name", .pure = pure_schedule_names },
    { .name = "stet_skip_name", .pure = pure_schedule_names },
    { .name = "stet_overlap_parse", .pure = pure_schedule_names },
    { .name = "stet_missed_parse", .pure = pure_schedule_names },
    { .name = "stet_register_schedule", .engine = engine_register_schedule },
    { .name = "stet_schedule_ensure", .engine = engine_schedule_ensure },
    { .name = "stet_schedule_ensure", .engine = engine_schedule_ensure, .ready = ready_schedule },
    { .name = "stet_schedule_update", .engine = engine_schedule_update, .ready = ready_schedule },
    { .name = "stet_schedule_pause", .engine = engine_schedule_pause, .ready = ready_schedule },
    { .name = "stet_schedule_resume", .engine = engine_schedule_resume, .ready = ready_paused },
    { .name = "stet_schedule_remove", .engine = engine_schedule_remove, .ready = ready_due },
    { .name = "stet_schedule_get", .engine = engine_schedule_get, .ready = ready_due },
    { .name = "stet_schedule_list", .engine = engine_schedule_list, .ready = ready_due },
    { .name = "stet_schedule_history", .engine = engine_schedule_history, .ready = ready_due },
    { .name = "stet_open", .engine = engine_open },
    { .name = "stet_open", .engine = engine_open_readonly },
    { .name = "stet_register", .engine = engine_register },
    { .name = "stet_register_object", .engine = engine_register_object },
    { .name = "stet_engine_start", .engine = engine_start },
    { .name = "stet_engine_stop", .engine = engine_stop },
    { .name = "stet_close", .engine = engine_close },
    { .name = "stet_engine_poll", .engine = engine_poll, .is_vague = true },
    { .name = "stet_engine_poll",
      .engine = engine_poll_retention,
      .ready = ready_old,
      .is_vague = true },
    { .name = "stet_engine_poll",
      .engine = engine_poll_baselines,
      .ready = ready_old,
      .is_vague = true,
      .stride = 12 },
    { .name = "stet_engine_poll",
      .engine = engine_poll_schedule,
      .ready = ready_due,
      .is_vague = true },
    { .name = "stet_engine_poll", .engine = engine_poll_audit, .is_vague = true },
    { .name = "stet_engine_poll",
      .engine = engine_poll_question,
      .ready = ready_live,
      .is_alone = true,
      .is_vague = true,
      .stride = 4 },
    { .name = "stet_engine_now_ms", .engine = engine_now_ms },
    { .name = "stet_engine_reads", .engine = engine_reads },
    { .name = "stet_health_get", .engine = engine_health_get },
    { .name = "stet_worker_list", .engine = engine_worker_list },
    { .name = "stet_handler_list", .engine = engine_handler_list },
    { .name = "stet_run_id_make", .engine = engine_run_id_make },
    { .name = "stet_start", .engine = engine_run_start },
    { .name = "stet_start", .engine = engine_run_start_delayed },
    { .name = "stet_start", .engine = engine_run_start_child },
    { .name = "stet_start_many", .engine = engine_start_many, .is_vague = true },
    { .name = "stet_start_in", .engine = engine_start_in },
    { .name = "stet_engine_nudge", .engine = engine_nudge },
    { .name = "stet_wait", .engine = engine_wait },
    { .name = "stet_result_get", .engine = engine_result_get },
    { .name = "stet_result_free", .engine = engine_result_free },
    { .name = "stet_invoke", .engine = engine_invoke },
    { .name = "stet_cancel", .engine = engine_cancel },
    { .name = "stet_cancel", .engine = engine_cancel_late },
    { .name = "stet_cancel", .engine = engine_cancel_subject, .ready = ready_delayed },
    { .name = "stet_cancel", .engine = engine_cancel_stuck },
    { .name = "stet_cancel", .engine = engine_cancel_subject, .ready = ready_child },
    { .name = "stet_resolve", .engine = engine_resolve },
    { .name = "stet_reject", .engine = engine_reject },
    { .name = "stet_signal", .engine = engine_signal },
    { .name = "stet_query", .engine = engine_query, .ready = ready_live },
    { .name = "stet_query", .engine = engine_query, .ready = ready_live, .is_alone = true },
    { .name = "stet_query", .engine = engine_query_unserved, .ready = ready_unserved },
    { .name = "stet_update", .engine = engine_update, .ready = ready_live, .is_vague = true },
    { .name = "stet_reply_set", .pure = pure_reply_set },
    { .name = "stet_reply_json", .pure = pure_reply_json },
    { .name = "stet_reply_fail", .pure = pure_reply_fail },
    { .name = "stet_emit", .engine = engine_emit, .ready = ready_listener },
    { .name = "stet_subscribe", .engine = engine_subscribe },
    { .name = "stet_unsubscribe", .engine = engine_subscribe },
    { .name = "stet_event_next", .engine = engine_event_next, .is_vague = true },
    { .name = "stet_run_approve", .engine = engine_run_approve, .ready = ready_asks },
    { .name = "stet_run_decide", .engine = engine_run_decide, .ready = ready_asks },
    { .name = "stet_run_reject", .engine = engine_run_reject, .ready = ready_asks },
    { .name = "stet_run_resume", .engine = engine_run_resume, .ready = ready_pauses },
    { .name = "stet_run_resume", .engine = engine_run_go_on, .ready = ready_held },
    { .name = "stet_run_pause", .engine = engine_run_pause, .ready = ready_pauses },
    { .name = "stet_run_skip", .engine = engine_run_skip, .ready = ready_pauses },
    { .name = "stet_run_edit", .engine = engine_run_edit, .ready = ready_regrets },
    { .name = "stet_run_rewind", .engine = engine_run_rewind, .ready = ready_pauses },
    { .name = "stet_run_fail", .engine = engine_run_fail, .ready = ready_child },
    { .name = "stet_run_fork", .engine = engine_run_fork, .ready = ready_pauses },
    { .name = "stet_handler_pause", .engine = engine_handler_pause },
    { .name = "stet_handler_resume", .engine = engine_handler_resume, .ready = ready_closed },
    { .name = "stet_paused_list", .engine = engine_paused_list, .ready = ready_closed },
    { .name = "stet_boundary_list", .engine = engine_boundary_list, .ready = ready_asks },
    { .name = "stet_rollback_retry", .engine = engine_rollback_retry, .ready = ready_regrets },
    { .name = "stet_state_read", .engine = engine_state_read },
    { .name = "stet_state_list", .engine = engine_state_list },
    { .name = "stet_free", .engine = engine_free },
    { .name = "stet_run_get", .engine = engine_run_get },
    { .name = "stet_run_list", .engine = engine_run_list },
    { .name = "stet_run_list", .engine = engine_run_list_filtered, .ready = ready_labelled },
    { .name = "stet_run_list",
      .engine = engine_run_list_many,
      .ready = ready_search,
      .stride = 4 },
    { .name = "stet_run_facts", .engine = engine_run_facts_sad, .ready = ready_sad },
    { .name = "stet_run_facts", .engine = engine_run_facts },
    { .name = "stet_audit_run", .engine = engine_audit_run },
    { .name = "stet_audit_run", .engine = engine_audit_run_sad, .ready = ready_sad },
    { .name = "stet_audit_off", .engine = engine_audit_off, .ready = ready_told },
    { .name = "stet_why", .engine = engine_why },
    { .name = "stet_why", .engine = engine_why_many, .ready = ready_lane },
    { .name = "stet_verify", .engine = engine_verify_sad, .ready = ready_sad },
    { .name = "stet_verify", .engine = engine_verify },
    { .name = "stet_verify",
      .engine = engine_verify_damaged,
      .ready = ready_damaged,
      .is_vague = true,
      .stride = 4 },
    { .name = "stet_repair", .engine = engine_repair },
    { .name = "stet_repair",
      .engine = engine_repair_damaged,
      .ready = ready_damaged,
      .is_vague = true,
      .stride = 4 },
    { .name = "stet_replay_end_name", .pure = pure_replay_end_name },
    { .name = "stet_check", .engine = engine_check },
    { .name = "stet_check", .engine = engine_check, .is_alone = true },
    { .name = "stet_run_export", .engine = engine_run_export },
    { .name = "stet_run_export", .engine = engine_run_export_sad, .ready = ready_sad },
    { .name = "stet_bundle_read", .engine = engine_bundle_read },
    { .name = "stet_bundle_read", .engine = engine_bundle_read_sad, .ready = ready_sad },
    { .name = "stet_replay", .engine = engine_replay },
    { .name = "stet_replay", .engine = engine_replay, .is_alone = true },
    { .name = "stet_replay", .engine = engine_replay_sad, .ready = ready_sad },
    { .name = "stet_describe", .engine = engine_describe },
    { .name = "stet_describe", .engine = engine_describe_from },
    { .name = "stet_describe", .engine = engine_describe_from, .is_alone = true },
    { .name = "stet_move_options_init", .pure = pure_move_options_init },
    { .name = "stet_move_phase_name", .pure = pure_move_phase_name },
    { .name = "stet_move", .engine = engine_move, .stride = 8 },
    { .name = "stet_move", .engine = engine_move_all, .is_vague = true, .every = 3 },
    { .name = "stet_move_undo", .engine = engine_move_undo },
    { .name = "stet_dlq_list", .engine = engine_dlq_list },
    { .name = "stet_dlq_retry", .engine = engine_dlq_retry },
    { .name = "stet_dlq_retry", .engine = engine_dlq_retry_sad, .ready = ready_sad },
    { .name = "stet_run_retry", .engine = engine_run_retry },
    { .name = "stet_dlq_discard", .engine = engine_dlq_discard },
    { .name = "stet_unstick", .engine = engine_unstick },
    { .name = "stet_at", .ctx = ctx_at },
    { .name = "stet_step", .ctx = ctx_step },
    { .name = "stet_step", .ctx = ctx_step_tx },
    { .name = "stet_sleep", .ctx = ctx_sleep },
    { .name = "stet_sleep_ms", .ctx = ctx_sleep_ms },
    { .name = "stet_call", .ctx = ctx_call },
    { .name = "stet_send", .ctx = ctx_send },
    { .name = "stet_awakeable", .ctx = ctx_awakeable },
    { .name = "stet_ctx_resolve", .ctx = ctx_resolve },
    { .name = "stet_ctx_signal", .ctx = ctx_signal },
    { .name = "stet_await_signal", .ctx = ctx_await_signal },
    { .name = "stet_signal_start", .ctx = ctx_signal_start },
    { .name = "stet_await_event", .ctx = ctx_await_event },
    { .name = "stet_ctx_emit", .ctx = ctx_emit, .ready = ready_listener },
    { .name = "stet_approve", .ctx = ctx_approve },
    { .name = "stet_on_query", .ctx = ctx_on_query },
    { .name = "stet_on_update", .ctx = ctx_on_update },
    { .name = "stet_pause", .ctx = ctx_pause },
    { .name = "stet_switch", .ctx = ctx_switch },
    { .name = "stet_note", .ctx = ctx_note },
    { .name = "stet_once", .ctx = ctx_once },
    { .name = "stet_run_look_at", .ctx = ctx_run_look_at },
    { .name = "stet_rollback", .ctx = ctx_rollback },
    { .name = "stet_rollback_on_failure", .ctx = ctx_rollback_on_failure },
    { .name = "stet_ctx_reject", .ctx = ctx_reject },
    { .name = "stet_step_start", .ctx = ctx_step_start },
    { .name = "stet_sleep_start", .ctx = ctx_sleep_start },
    { .name = "stet_call_start", .ctx = ctx_call_start },
    { .name = "stet_await", .ctx = ctx_await },
    { .name = "stet_await_for", .ctx = ctx_await_for },
    { .name = "stet_await_all", .ctx = ctx_await_all },
    { .name = "stet_await_any", .ctx = ctx_await_any },
    { .name = "stet_state_get", .ctx = ctx_state_get },
    { .name = "stet_state_set", .ctx = ctx_state_set },
    { .name = "stet_state_clear", .ctx = ctx_state_clear },
    { .name = "stet_now", .ctx = ctx_now },
    { .name = "stet_random", .ctx = ctx_random },
    { .name = "stet_uuid", .ctx = ctx_uuid },
    { .name = "stet_version", .ctx = ctx_version },
    { .name = "stet_return", .ctx = ctx_return, .result = "returned" },
    { .name = "stet_return_json",
      .ctx = ctx_return_json,
      .result = "{\"a\":\"x\\\"y\",\"b\":[1]}" },
    { .name = "stet_continue", .ctx = ctx_continue, .result = "anew" },
    { .name = "stet_fail", .ctx = ctx_fail },
    { .name = "stet_defer_until", .ctx = ctx_defer_until },
    { .name = "stet_failure_get", .ctx = ctx_failure_get },
    { .name = "stet_info", .ctx = ctx_info },
    { .name = "stet_log", .ctx = ctx_log },
    { .name = "stet_log_with", .ctx = ctx_log_with },
    { .name = "stet_log_set", .ctx = ctx_log_set },
    { .name = "stet_scope_begin", .ctx = ctx_scope_begin },
    { .name = "stet_scope_end", .ctx = ctx_scope_end },
    { .name = "stet_ctx_alloc", .ctx = ctx_ctx_alloc },
    { .name = "stet_ctx_printf", .ctx = ctx_ctx_printf },
    { .name = "stet_on_exit", .ctx = ctx_on_exit },
    { .name = "stet_attempt_return", .body = body_return },
    { .name = "stet_attempt_return_json", .body = body_return_json },
    { .name = "stet_attempt_fail", .body = body_fail },
    { .name = "stet_attempt_not_before", .body = body_not_before },
    { .name = "stet_attempt_number", .body = body_number },
    { .name = "stet_attempt_is_at_risk", .body = body_is_at_risk },
    { .name = "stet_attempt_token", .body = body_token },
    { .name = "stet_attempt_traceparent", .body = body_traceparent },
    { .name = "stet_attempt_tracestate", .body = body_tracestate },
    { .name = "stet_attempt_sqlite", .body = body_sqlite },
    { .name = "stet_attempt_postgres", .body = body_postgres },
    { .name = "stet_attempt_fence", .body = body_fence },
    { .name = "stet_attempt_deadline_ms", .body = body_deadline_ms },
    { .name = "stet_attempt_run", .body = body_run },
    { .name = "stet_attempt_arg", .body = body_arg },
    { .name = "stet_attempt_log", .body = body_log },
    { .name = "stet_app_new", .cli = cli_new },
    { .name = "stet_app_service", .cli = cli_service },
    { .name = "stet_app_object", .cli = cli_object },
    { .name = "stet_app_options", .cli = cli_options },
    { .name = "stet_app_schedule", .cli = cli_schedule },
    { .name = "stet_app_schedule_fn", .cli = cli_schedule_fn },
    { .name = "stet_main", .cli = cli_main },
};
enum { API_ROWS = sizeof api_rows / sizeof api_rows[0] };

/* ---- rounds
 * ---------------------------------------------------------------------------------------------- */

static bool
api_is_clean(const api *t, int rc)
{
    return rc == STET_OK || (rc == api_error(t) && stet_last_error()[0] != '\0');
}

static void
api_round_engine(api *t)
{
    static api_dump before, after;
    int             rc;

    api_begin(t);
    api_populate(t);
    if (t->row->ready != NULL)
        t->row->ready(t);
    api_look(t->e, &before);
    rc = t->row->engine(t);
    if (!api_is_clean(t, rc))
        API_FAIL(t, "%s: %s", rc == api_error(t) ? "no text" : stet_code_name(rc),
                 stet_last_error());
    if (rc != STET_OK && api_fault_failed() == 0)
        API_FAIL(t, "failed though nothing was wrong: %s", stet_last_error());
    if (rc != STET_OK && !t->row->is_vague) {
        api_look(t->e, &after);
        if (strcmp(before.text, after.text) != 0)
            API_FAIL(t, "it failed and changed something:\n%.400s\nto\n%.400s", before.text,
                     after.text);
        rc = t->row->engine(t);
        if (rc != STET_OK)
            API_FAIL(t, "again, when all is well: %s: %s", stet_code_name(rc), stet_last_error());
    }
    api_end(t);
}

static void
api_round_ctx(api *t)
{
    const char *want = t->row->result != NULL ? t->row->result : "done";
    stet_run_id set;
    stet_result r;

    api_begin(t);
    CHECK_OK(stet_start(t->e, &set, "o.set", stet_text("7"), STET_START(.key = "k")));
    api_poll_until(t, &set, STET_STATUS_COMPLETED);
    t->done = set;
    if (t->row->ready != NULL)
        t->row->ready(t);
    CHECK_OK(stet_start(t->e, &t->subject, "o.ctx", stet_text(""), STET_START(.key = "k")));
    api_poll_until(t, &t->subject, STET_STATUS_COMPLETED);
    CHECK_OK(stet_result_get(t->e, &r, &t->subject));
    if (r.value.len != strlen(want) || memcmp(r.value.data, want, r.value.len) != 0)
        API_FAIL(t, "the result is \"%.*s\"", (int)r.value.len, (const char *)r.value.data);
    stet_result_free(&r);
    if (t->bodies > 2)
        API_FAIL(t, "a body ran %d times", t->bodies);
    api_end(t);
}

static void
api_silence(void)
{
    int fd = open("/dev/null", O_RDWR);

    CHECK(fd >= 0);
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    (void)close(fd);
}

/* In a child, because the command line ends the process when memory is out. False: nothing failed.
 */
static bool
api_cli_child(api *t, long at, bool is_for_good, int *status)
{
    char  url[600];
    char *argv[] = {
        "api", "--db", url, "start", "t.done", "{}", "--idempotency-key", "one", NULL
    };
    int   fds[2];
    char  has_failed = 0;
    pid_t child;

    (void)snprintf(url, sizeof url, "%s", t->url);
    CHECK_INT(pipe(fds), 0);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        int rc;

        api_silence();
        api_fault_plan(at, is_for_good);
        rc = t->row->cli(8, argv);
        api_fault_disarm();
        has_failed = api_fault_failed() > 0;
        CHECK(write(fds[1], &has_failed, 1) == 1);
        _exit(rc);
    }
    (void)close(fds[1]);
    CHECK_INT(waitpid(child, status, 0), child);
    /* Nothing to read: it ended the process itself, for lack of memory. */
    if (read(fds[0], &has_failed, 1) != 1)
        has_failed = 1;
    (void)close(fds[0]);
    return has_failed;
}

static bool
api_round_cli(api *t, long at, bool is_for_good)
{
    size_t runs = 0;
    bool   has_failed;
    int    status;

    api_forget(t->url);
    has_failed = api_cli_child(t, at, is_for_good, &status);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && !has_failed))
        API_FAIL(t, "ended with %x", status);
    (void)api_cli_child(t, -1, false, &status);
    if (status != 0)
        API_FAIL(t, "again, with memory: ended with %x", status);
    CHECK_OK(stet_open(&t->e, t->url, api_options()));
    CHECK_OK(stet_run_list(t->e, NULL, api_count_run, &runs));
    CHECK_INT(runs, 1);
    api_end(t);
    return has_failed;
}

static bool
api_round(api *t, long at, bool is_for_good)
{
    (void)snprintf(t->where, sizeof t->where, "%s, %s %ld fails %s, %s", t->row->name,
                   t->script != NULL ? "store call" : "allocation", at,
                   is_for_good ? "for good" : "once", t->url);
    if (getenv("STET_FAULT_VERBOSE") != NULL)
        (void)fprintf(stderr, "%s\n", t->where);
    api_fault_spare_children(t->row->is_alone);
    api_fault_plan(at, is_for_good);
    if (t->row->pure != NULL) {
        int rc = t->row->pure();

        if (!api_is_clean(t, rc))
            API_FAIL(t, "%s: %s", stet_code_name(rc), stet_last_error());
    } else if (t->row->engine != NULL)
        api_round_engine(t);
    else if (t->row->cli != NULL)
        return api_round_cli(t, at, is_for_good);
    else
        api_round_ctx(t);
    return api_fault_failed() > 0;
}

/* Some have several rows, which stand together. */
static size_t
api_functions(void)
{
    size_t n = 0;

    for (size_t i = 0; i < API_ROWS; i++)
        n += i == 0 || strcmp(api_rows[i].name, api_rows[i - 1].name) != 0;
    return n;
}

static void
api_all_in(api t, bool is_for_good, long stride)
{
    const char *only = getenv("STET_FAULT_ROW");
    bool        is_all = getenv("STET_FAULT_STRIDE") != NULL;
    long        rounds = 0, first, step;

    api_fault_init();
    fault_vfs_register();
    stride = test_number("STET_FAULT_STRIDE", stride);
    if (stride > 1)
        stride *= test_number("STET_FAULT_THIN", 1);
    first = test_number("STET_TEST_SEED", 0);
    for (size_t i = 0; i < API_ROWS; i++) {
        t.row = &api_rows[i];
        /* A program's store must outlive the process. */
        if ((t.row->cli != NULL && strcmp(t.url, "memory:") == 0) ||
            (only != NULL && strcmp(only, t.row->name) != 0))
            continue;
        step = stride == 1 && t.row->every > 0 && !is_all ? t.row->every
               : stride > 1 && t.row->stride > 0 ? stride * t.row->stride
                                                 : stride;
        for (long at = 0; at < API_ROUNDS_MAX && api_round(&t, at, is_for_good);
             at = api_next(at, first % step, step))
            rounds++;
    }
    test_note("%zu functions, %ld failed %s", api_functions(), rounds,
              t.script != NULL ? "store calls" : "allocations");
}

static void
api_all(const char *url, bool is_for_good, long stride)
{
    api_all_in((api){ .url = url }, is_for_good, stride);
}

static void
api_all_ill(bool is_for_good)
{
    shim_script script = { .mode = SHIM_ERROR,
                           .at = 1,
                           .count = INT64_MAX,
                           .code = STET_EIO,
                           .is_asleep = api_store_is_well };

    api_fault_of_store(true);
    api_all_in((api){ .url = "memory:", .script = &script }, is_for_good, 1);
}

static const char *
api_sqlite(void)
{
    static char url[600];

    (void)snprintf(url, sizeof url, "sqlite:%s?vfs=fault", test_path("api.db"));
    return url;
}

TEST_LIMIT(G1_every_public_function_without_memory_once_on_the_memory_store, 300)
{
    api_all("memory:", false, 1);
}

TEST_LIMIT(G1_every_public_function_without_memory_for_good_on_the_memory_store, 300)
{
    api_all("memory:", true, 1);
}

TEST_LIMIT(G1_every_public_function_where_each_thing_finds_no_memory_once, 300)
{
    api_all_in((api){ .url = "memory:", .is_tight = true }, false, 1);
}

TEST_LIMIT(G1_every_public_function_where_each_thing_finds_no_memory_for_good, 300)
{
    api_all_in((api){ .url = "memory:", .is_tight = true }, true, 1);
}

TEST_LIMIT(G2_every_public_function_while_the_store_is_ill_once, 300)
{
    api_all_ill(false);
}

TEST_LIMIT(G2_every_public_function_while_the_store_is_ill_for_good, 300)
{
    api_all_ill(true);
}

#ifdef STET_WITH_SQLITE
TEST_LIMIT(G1_every_public_function_without_memory_once_on_sqlite, 300)
{
    api_all(api_sqlite(), false, 23);
}

TEST_LIMIT(G1_every_public_function_without_memory_for_good_on_sqlite, 300)
{
    api_all(api_sqlite(), true, 29);
}
#endif

/* ---- the table is complete
 * ------------------------------------------------------------------------------- */

static bool
api_has_row(const char *name, size_t len)
{
    for (size_t i = 0; i < API_ROWS; i++)
        if (strlen(api_rows[i].name) == len && memcmp(api_rows[i].name, name, len) == 0)
            return true;
    return false;
}

static const char *
api_word_before(const char *text, const char *end, size_t *len)
{
    const char *begin = end;

    while (begin > text && (begin[-1] == '_' || (begin[-1] >= 'a' && begin[-1] <= 'z') ||
                            (begin[-1] >= '0' && begin[-1] <= '9')))
        begin--;
    *len = (size_t)(end - begin);
    return begin;
}

/* Every declaration is "STET_API … name(". */
static size_t
api_check_header(const char *path)
{
    static char text[65536];
    FILE       *f = fopen(path, "r");
    size_t      n = 0, len;

    CHECK(f != NULL);
    len = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    CHECK(len < sizeof text - 1);
    text[len] = '\0';
    for (const char *at = text; (at = strstr(at, "\nSTET_API ")) != NULL; n++) {
        const char *open = strchr(at += 10, '(');
        const char *name = api_word_before(text, open, &len);

        if (!api_has_row(name, len))
            test_fail(__FILE__, __LINE__, "%s: %.*s has no row in api_rows", path, (int)len, name);
    }
    return n;
}

TEST(G1_every_public_function_has_a_row)
{
    DIR           *dir = opendir(STET_TEST_SOURCE_DIR "/include/stet");
    struct dirent *entry;
    char           path[600];
    size_t         n = 0;

    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        /* The test kit is another library, which no program links. */
        if (strstr(entry->d_name, ".h") == NULL || strcmp(entry->d_name, "test.h") == 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/include/stet/%.255s", STET_TEST_SOURCE_DIR,
                       entry->d_name);
        n += api_check_header(path);
    }
    (void)closedir(dir);
    CHECK_INT(n, api_functions());
}
