/* The fixture of the engine's tests; see fixture.h.
 *
 * On memory the database belongs to the fixture, not to an engine, so it outlives engines as a file
 * does. Effects live in a file of the test's directory: they are outside the engine, and also
 * survive a process that is killed. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "cluster.h"
#include "engine/engine.h"
#include "redis_server.h"

/* ---- engines --------------------------------------------------------------------------------- */

static void
fixture_log(void *arg, const stet_log_record *record)
{
    fixture        *f = arg;
    fixture_record *at, *grown;

    pthread_mutex_lock(&f->log_lock);
    if ((grown = realloc(f->records, (f->n_records + 1) * sizeof *grown)) == NULL)
        test_fail(__FILE__, __LINE__, "out of memory");
    f->records = grown;
    at = &grown[f->n_records++];
    memset(at, 0, sizeof *at);
    at->level = record->level;
    at->code = record->code;
    (void)snprintf(at->message, sizeof at->message, "%s", record->message);
    (void)snprintf(at->run, sizeof at->run, "%s", record->run != NULL ? record->run : "");
    (void)snprintf(at->handler, sizeof at->handler, "%s",
                   record->handler != NULL ? record->handler : "");
    (void)snprintf(at->step, sizeof at->step, "%s", record->step != NULL ? record->step : "");
    (void)snprintf(at->fields, sizeof at->fields, "%s",
                   record->fields != NULL ? record->fields : "");
    at->n_own = record->n_own;
    pthread_mutex_unlock(&f->log_lock);
}

int
fixture_logged(fixture *f, const char *part)
{
    int n = 0;

    pthread_mutex_lock(&f->log_lock);
    for (size_t i = 0; i < f->n_records; i++)
        n += strstr(f->records[i].message, part) != NULL;
    pthread_mutex_unlock(&f->log_lock);
    return n;
}

static const char *
fixture_store(void)
{
    const char *store = getenv("STET_TEST_STORE");

    return store != NULL ? store : "memory";
}

__attribute__((constructor)) static void
fixture_server(void)
{
    if (strcmp(fixture_store(), "postgres") == 0)
        test_before(cluster_share);
    if (strcmp(fixture_store(), "redis") == 0)
        test_before(redis_server_share);
}

/* Where the data of this fixture is; nobody else's. */
static const char *
fixture_url(const fixture *f)
{
    static int n;
    char       name[48];

    (void)snprintf(name, sizeof name, "t_%s_%d", test_unique(), ++n);
    if (f->is_postgres)
        return cluster_url(name);
    if (f->is_redis)
        return redis_shared_url(name);
    return f->is_sqlite ? test_path("engine.db") : "memory:";
}

fixture *
fixture_begin(void)
{
    return fixture_begin_on(fixture_store());
}

fixture *
fixture_begin_on(const char *store)
{
    fixture *f = calloc(1, sizeof *f);

    if (f == NULL)
        test_fail(__FILE__, __LINE__, "out of memory");
    pthread_mutex_init(&f->log_lock, NULL);
    f->is_sqlite = strcmp(store, "sqlite") == 0;
    f->is_postgres = strcmp(store, "postgres") == 0;
    f->is_redis = strcmp(store, "redis") == 0;
    if (!f->is_sqlite && !f->is_postgres && !f->is_redis && strcmp(store, "memory") != 0)
        test_fail(__FILE__, __LINE__, "STET_TEST_STORE is none of memory, sqlite, postgres, redis");
    if ((f->url = strdup(fixture_url(f))) == NULL)
        test_fail(__FILE__, __LINE__, "out of memory");
    if (!f->is_sqlite && !f->is_postgres && !f->is_redis &&
        (f->db = stet__memory_db_new(stet__platform_real())) == NULL)
        test_fail(__FILE__, __LINE__, "out of memory");
    stet_options_init(&f->options);
    f->options.concurrency = 4;
    f->options.retry_first_ms = 5;
    f->options.retry_max_ms = 40;
    f->options.poll_ms = 100;
    f->options.wait_poll_ms = 50;
    f->options.wait_ms = fixture_patience_ms();
    f->options.drain_ms = fixture_patience_ms();
    f->options.log = fixture_log;
    f->options.log_arg = f;
    return f;
}

static int
end_finding(void *arg, const stet_finding *finding)
{
    (void)snprintf(arg, 512, "%s: run %s revision %llu: %s", finding->rule,
                   finding->run != NULL ? finding->run : "-", (unsigned long long)finding->revision,
                   finding->text);
    return 0;
}

size_t
fixture_sound(stet_engine *e)
{
    char   found[512] = "";
    size_t checked = 0;

    CHECK_OK(stet_verify(e, &checked, end_finding, found));
    if (found[0] != '\0')
        test_fail(__FILE__, __LINE__, "verify: %s", found);
    return checked;
}

/* Runs go on while verify looks, so what it finds must still be there at a second look. */
static void
end_verify(stet_engine *e)
{
    char    found[512] = "";
    int64_t until = fixture_mono_ms() + fixture_patience_ms();

    do {
        found[0] = '\0';
        CHECK_OK(stet_verify(e, NULL, end_finding, found));
        if (found[0] != '\0')
            fixture_breathe();
    } while (found[0] != '\0' && fixture_mono_ms() < until);
    if (found[0] != '\0')
        test_fail(__FILE__, __LINE__, "verify: %s", found);
}

void
fixture_end(fixture *f)
{
    if (f->engine != NULL)
        end_verify(f->engine);
    fixture_down(f);
    if (f->db != NULL)
        stet__memory_db_free(f->db);
    pthread_mutex_destroy(&f->log_lock);
    free(f->records);
    free((void *)(uintptr_t)f->url);
    free(f);
}

stet_engine *
fixture_open(fixture *f)
{
    stet_engine *e;
    stet_store  *store;

    if (f->db == NULL) {
        CHECK_OK(stet_open(&e, f->url, &f->options));
        return e;
    }
    CHECK_OK(stet__memory_open(&store, stet__platform_real(), f->db));
    CHECK_OK(stet__open_on(&e, stet__platform_real(), store, f->url, &f->options));
    return e;
}

void
fixture_register(stet_engine *e, const fixture_service *services)
{
    for (const fixture_service *s = services; s->name != NULL; s++) {
        if (s->is_object)
            CHECK_OK(stet_register_object(e, s->name, s->handlers, s->initial));
        else
            CHECK_OK(stet_register(e, s->name, s->handlers));
    }
}

stet_engine *
fixture_open_with(fixture *f, const fixture_service *services)
{
    stet_engine *e = fixture_open(f);

    fixture_register(e, services);
    return e;
}

void
fixture_close(fixture *f)
{
    stet_close(f->engine);
    f->engine = NULL;
}

void
fixture_wipe(void)
{
    static const char *const names[] = { "engine.db", "engine.db-wal", "engine.db-shm",
                                         "engine.db-live" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)remove(test_path(names[i]));
}

void
fixture_up(fixture *f, const fixture_service *services)
{
    CHECK(f->engine == NULL);
    f->engine = fixture_open_with(f, services);
    CHECK_OK(stet_engine_start(f->engine));
}

void
fixture_up_with(fixture *f, const stet_handler *handlers)
{
    const fixture_service services[] = { { "t", handlers, false, NULL }, { 0 } };

    fixture_up(f, services);
}

void
fixture_down(fixture *f)
{
    if (f->engine == NULL)
        return;
    CHECK_OK(stet_engine_stop(f->engine, 0));
    fixture_close(f);
}

/* ---- effects --------------------------------------------------------------------------------- */

void
effect(const char *fmt, ...)
{
    char    line[256];
    va_list args;
    int     len, fd;

    va_start(args, fmt);
    len = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof line - 1)
        test_fail(__FILE__, __LINE__, "an effect that is too long");
    line[len++] = '\n';
    if ((fd = open(test_path("effects"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0 ||
        write(fd, line, (size_t)len) != len || close(fd) != 0)
        test_fail(__FILE__, __LINE__, "effect %s: %s", line, strerror(errno));
}

char *
effects_text(void)
{
    size_t  len = 0, cap = 4096;
    char   *text = malloc(cap);
    int     fd = open(test_path("effects"), O_RDONLY | O_CLOEXEC);
    ssize_t got = 0;

    while (text != NULL && fd >= 0 && (got = read(fd, text + len, cap - len - 1)) > 0) {
        len += (size_t)got;
        if (cap - len < 1024)
            text = realloc(text, cap *= 2);
    }
    if (text == NULL || got < 0 || (fd < 0 && errno != ENOENT))
        test_fail(__FILE__, __LINE__, "effects cannot be read: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    text[len] = '\0';
    return text;
}

int
effects(const char *line)
{
    char *text = effects_text(), *save = NULL;
    int   n = 0;

    for (char *at = strtok_r(text, "\n", &save); at != NULL; at = strtok_r(NULL, "\n", &save))
        n += strcmp(at, line) == 0;
    free(text);
    return n;
}

void
effects_await(const char *line, int n)
{
    int64_t until = fixture_mono_ms() + fixture_patience_ms();

    while (effects(line) < n) {
        if (fixture_mono_ms() > until)
            test_fail(__FILE__, __LINE__, "effect \"%s\" happened %d times, expected %d", line,
                      effects(line), n);
        fixture_breathe();
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

int64_t
fixture_patience_ms(void)
{
    /* Below the time limit of a test, so that a test says itself what did not come. */
    return INT64_C(40000) * test_slow();
}

int64_t
fixture_mono_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void
fixture_breathe(void)
{
    (void)poll(NULL, 0, 2);
}

static void
gate_deadline(struct timespec *until)
{
    clock_gettime(CLOCK_REALTIME, until);
    until->tv_sec += fixture_patience_ms() / 1000;
}

void
gate_pass(gate *g)
{
    struct timespec until;

    gate_deadline(&until);
    pthread_mutex_lock(&g->lock);
    g->arrived++;
    pthread_cond_broadcast(&g->cond);
    while (!g->is_open)
        if (pthread_cond_timedwait(&g->cond, &g->lock, &until) == ETIMEDOUT)
            test_fail(__FILE__, __LINE__, "nobody opened the gate");
    pthread_mutex_unlock(&g->lock);
}

void
gate_await(gate *g, int n)
{
    struct timespec until;

    gate_deadline(&until);
    pthread_mutex_lock(&g->lock);
    while (g->arrived < n)
        if (pthread_cond_timedwait(&g->cond, &g->lock, &until) == ETIMEDOUT)
            test_fail(__FILE__, __LINE__, "%d arrived at the gate, expected %d", g->arrived, n);
    pthread_mutex_unlock(&g->lock);
}

void
gate_open(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->is_open = true;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

int
gate_arrived(gate *g)
{
    int n;

    pthread_mutex_lock(&g->lock);
    n = g->arrived;
    pthread_mutex_unlock(&g->lock);
    return n;
}

void
gate_shut(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->is_open = false;
    g->arrived = 0;
    pthread_mutex_unlock(&g->lock);
}

typedef struct racer {
    void (*fn)(void *arg, int i);
    void              *arg;
    int                i;
    pthread_barrier_t *line;
    pthread_t          thread;
} racer;

static void *
racer_main(void *arg)
{
    racer *r = arg;

    pthread_barrier_wait(r->line);
    r->fn(r->arg, r->i);
    return NULL;
}

void
fixture_race(int n, void (*fn)(void *arg, int i), void *arg)
{
    pthread_barrier_t line;
    racer            *racers = calloc((size_t)n, sizeof *racers);

    if (racers == NULL || pthread_barrier_init(&line, NULL, (unsigned)n) != 0)
        test_fail(__FILE__, __LINE__, "out of memory");
    for (int i = 0; i < n; i++) {
        racers[i] = (racer){ fn, arg, i, &line, 0 };
        if (pthread_create(&racers[i].thread, NULL, racer_main, &racers[i]) != 0)
            test_fail(__FILE__, __LINE__, "no thread");
    }
    for (int i = 0; i < n; i++)
        pthread_join(racers[i].thread, NULL);
    pthread_barrier_destroy(&line);
    free(racers);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void
look_copy(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from != NULL ? from : "");
}

static void
look_bytes(char *to, size_t size, stet_bytes from)
{
    (void)snprintf(to, size, "%.*s", (int)from.len,
                   from.data != NULL ? (const char *)from.data : "");
}

static int
look_at(void *arg, const stet_run_info *i)
{
    fixture_run *r = arg;

    r->status = i->status;
    r->attempt = i->attempt;
    r->attempts_max = i->attempts_max;
    r->code = i->code;
    r->cause = i->cause;
    r->priority = i->priority;
    r->created_ms = i->created_ms;
    r->due_ms = i->due_ms;
    r->ended_ms = i->ended_ms;
    r->deadline_ms = i->deadline_ms;
    r->facts = i->facts;
    r->is_served = i->is_served;
    look_copy(r->handler, sizeof r->handler, i->handler);
    look_copy(r->key, sizeof r->key, i->key);
    look_copy(r->reason, sizeof r->reason, i->reason);
    look_copy(r->group, sizeof r->group, i->group);
    look_copy(r->parent, sizeof r->parent, i->parent);
    look_copy(r->labels, sizeof r->labels, i->labels);
    look_copy(r->error, sizeof r->error, i->error);
    look_copy(r->origin, sizeof r->origin, i->origin);
    look_copy(r->idempotency_key, sizeof r->idempotency_key, i->idempotency_key);
    look_copy(r->worker, sizeof r->worker, i->worker);
    look_bytes(r->input, sizeof r->input, i->input);
    look_bytes(r->result, sizeof r->result, i->result);
    return 0;
}

fixture_run
fixture_look(stet_engine *e, const stet_run_id *run)
{
    fixture_run r;

    memset(&r, 0, sizeof r);
    CHECK_OK(stet_run_get(e, run, look_at, &r));
    return r;
}

static void
why_at(void *arg, const stet_verdict *v)
{
    fixture_verdict *to = arg;

    look_copy(to->kind, sizeof to->kind, v->kind);
    look_copy(to->text, sizeof to->text, v->text);
    look_copy(to->help, sizeof to->help, v->help);
}

fixture_verdict
fixture_why(stet_engine *e, const stet_run_id *run)
{
    fixture_verdict v = { "", "", "" };

    CHECK_OK(stet_why(e, run, why_at, &v));
    CHECK(v.text[0] != '\0');
    CHECK(strchr(v.text, '\n') == NULL);
    return v;
}

static int
gone_at(void *arg, const stet_run_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

bool
fixture_is_gone(stet_engine *e, const stet_run_id *run)
{
    return stet_run_get(e, run, gone_at, NULL) == STET_ENOTFOUND;
}

void
fixture_await_status(stet_engine *e, const stet_run_id *run, stet_status status)
{
    int64_t     until = fixture_mono_ms() + fixture_patience_ms();
    fixture_run r = fixture_look(e, run);

    while (r.status != status) {
        if (fixture_mono_ms() > until || (stet_status_is_terminal(r.status) && r.status != status))
            test_fail(__FILE__, __LINE__, "run %s of %s is %s (%s%s%s), expected %s", run->text,
                      r.handler, stet_status_name(r.status), r.reason,
                      r.error[0] != '\0' ? ": " : "", r.error, stet_status_name(status));
        fixture_breathe();
        r = fixture_look(e, run);
    }
}

static int
count_one(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

int
fixture_count(stet_engine *e, const stet_run_filter *filter)
{
    stet_run_filter all = { .size = sizeof all };
    int             n = 0;

    if (filter != NULL)
        all = *filter;
    if (all.limit == 0)
        all.limit = 10000;
    CHECK_OK(stet_run_list(e, &all, count_one, &n));
    return n;
}

typedef struct fact_count {
    const char *kind, *name;
    int         n;
} fact_count;

static int
count_fact(void *arg, const stet_fact_info *fact)
{
    fact_count *c = arg;

    c->n += strcmp(fact->kind, c->kind) == 0 &&
            (c->name == NULL || (fact->name != NULL && strcmp(fact->name, c->name) == 0));
    return 0;
}

int
fixture_facts(stet_engine *e, const stet_run_id *run, const char *kind, const char *name)
{
    fact_count c = { kind, name, 0 };

    CHECK_OK(stet_run_facts(e, run, false, count_fact, &c));
    return c.n;
}

stet_run_id
fixture_start(stet_engine *e, const char *handler, const char *input,
              const stet_start_options *options)
{
    stet_run_id run = { "" };

    CHECK_OK(stet_start(e, &run, handler, stet_text(input), options));
    return run;
}

stet_result
fixture_ended(const char *file, int line, stet_engine *e, const stet_run_id *run, int answer)
{
    stet_result result = { 0 };
    int         got = stet_wait(e, &result, run, 0);

    if (got != answer)
        test_fail(file, line, "run %s ended with %s, expected %s: %s", run->text,
                  got != STET_OK ? stet_code_name(got) : "STET_OK",
                  answer != STET_OK ? stet_code_name(answer) : "STET_OK",
                  got != STET_OK ? stet_last_error() : "");
    return result;
}

void
fixture_answer(const char *file, int line, stet_engine *e, const stet_run_id *run, int answer)
{
    stet_result r = fixture_ended(file, line, e, run, answer);

    stet_result_free(&r);
}

void
fixture_expect(const char *file, int line, stet_engine *e, const stet_run_id *run, const char *want)
{
    stet_result result = fixture_ended(file, line, e, run, STET_OK);

    if (!fixture_is(result.value, want))
        test_fail(file, line, "run %s gave \"%.*s\", expected \"%s\"", run->text,
                  (int)result.value.len,
                  result.value.data != NULL ? (const char *)result.value.data : "", want);
    stet_result_free(&result);
}

/* ---- pausing --------------------------------------------------------------------------------- */

static int
pause_tell(stet_attempt *a, void *id)
{
    effect("paused %s %s", stet_attempt_run(a), ((stet_awakeable_id *)id)->text);
    return STET_OK;
}

int
fixture_pause(stet_ctx *ctx)
{
    stet_awakeable_id id;
    stet_future      *future;

    STET_TRY(stet_awakeable(ctx, &id, &future, "go on"));
    STET_TRY(stet_step(ctx, NULL, "tell the test", pause_tell, &id, NULL));
    return stet_await(ctx, NULL, future);
}

/* The awakeable the run told last; false: none yet. */
static bool
pause_find(const stet_run_id *run, char id[STET_ID_TEXT_MAX])
{
    char *text = effects_text(), *at = text, prefix[80];
    bool  is_found = false;

    (void)snprintf(prefix, sizeof prefix, "paused %s ", run->text);
    while ((at = strstr(at, prefix)) != NULL) {
        at += strlen(prefix);
        (void)snprintf(id, STET_ID_TEXT_MAX, "%.*s", (int)strcspn(at, "\n"), at);
        is_found = true;
    }
    free(text);
    return is_found;
}

void
fixture_paused(stet_engine *e, const stet_run_id *run)
{
    char id[STET_ID_TEXT_MAX];

    AWAIT(pause_find(run, id));
    fixture_await_status(e, run, STET_STATUS_SUSPENDED);
}

void
fixture_go_on(stet_engine *e, const stet_run_id *run)
{
    char id[STET_ID_TEXT_MAX];

    AWAIT(pause_find(run, id));
    CHECK_OK(stet_resolve(e, id, stet_text("")));
}

void
fixture_replay(fixture *f, const stet_run_id *run, const fixture_service *services)
{
    fixture_paused(f->engine, run);
    fixture_down(f);
    fixture_up(f, services);
    fixture_go_on(f->engine, run);
}

void
fixture_replay_with(fixture *f, const stet_run_id *run, const stet_handler *handlers)
{
    const fixture_service services[] = { { "t", handlers, false, NULL }, { 0 } };

    fixture_replay(f, run, services);
}

/* ---- values ---------------------------------------------------------------------------------- */

long
fixture_number(stet_bytes bytes)
{
    char text[32];

    look_bytes(text, sizeof text, bytes);
    return strtol(text, NULL, 10);
}

bool
fixture_is(stet_bytes bytes, const char *text)
{
    return bytes.len == strlen(text) &&
           (bytes.len == 0 || memcmp(bytes.data, text, bytes.len) == 0);
}
