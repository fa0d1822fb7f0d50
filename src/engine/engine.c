/* The engine's life: open, register, start, poll, stop, close; configuration.
 *
 * States: open -> started -> stopping -> stopped. A stop that finds a body which does not end stays
 * stopping and can be asked for again.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"

/* ---- configuration --------------------------------------------------------------------------------- */

static const struct {
    stet_config_item item;
    size_t           offset;
} engine_config[] = {
#define ENGINE_ITEM(name, normal, least, most, unit, text)                                         \
    { { #name, unit, text, normal, least, most }, offsetof(stet_options, name) },
    STET_CONFIG_LIST(ENGINE_ITEM)
#undef ENGINE_ITEM
};
#define ENGINE_CONFIG_N (sizeof engine_config / sizeof engine_config[0])

/* One for each claim, and some for the bodies of futures: those that run, and those whose record is on its
 * way. A body that finds none waits (host.c). */
#define ENGINE_CRUMBS(claims, slots) ((claims) + 4 * (slots) + 16)
#define ENGINE_MOST(name, normal, least, most, unit, text) ENGINE_MOST_##name = (most) < 1000000 ? (int)(most) : 0,
enum { STET_CONFIG_LIST(ENGINE_MOST) };
#undef ENGINE_MOST
_Static_assert(ENGINE_CRUMBS(ENGINE_MOST_in_flight_max, ENGINE_MOST_concurrency) <= STET_CRUMBS_MAX,
               "every store has a crumb for every claim the configuration allows");

const stet_config_item *
stet_config_at(size_t index)
{
    return index < ENGINE_CONFIG_N ? &engine_config[index].item : NULL;
}

void
stet_options_init(stet_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

static int64_t *
engine_value(stet_options *o, size_t i)
{
    return (int64_t *)(void *)((char *)o + engine_config[i].offset);
}

static int
engine_check(const stet_config_item *item, int64_t value)
{
    if (value < item->least || value > item->most)
        return stet__fail(STET_ECONFIG, "%s is %lld; it can be %lld to %lld%s%s (default %lld): %s",
                          item->name, (long long)value, (long long)item->least,
                          (long long)item->most, item->unit[0] != '\0' ? " " : "", item->unit,
                          (long long)item->normal, item->text);
    return STET_OK;
}

int
stet_options_set(stet_options *options, const char *name, const char *text)
{
    int64_t value = 0;
    int     err;

    for (size_t i = 0; i < ENGINE_CONFIG_N; i++) {
        if (strcmp(engine_config[i].item.name, name) != 0)
            continue;
        /* A plain number, or a duration for times; both are what the duration parser reads. */
        if ((err = stet_duration_parse(&value, text)) != STET_OK ||
            (strcmp(engine_config[i].item.unit, "ms") != 0 && text[strspn(text, "0123456789")] != '\0'))
            return stet__fail(STET_ECONFIG, "%s=%s: expected %s", name, text,
                              strcmp(engine_config[i].item.unit, "ms") == 0 ? "a duration like 30s" : "a number");
        if ((err = engine_check(&engine_config[i].item, value)) != STET_OK)
            return err;
        *engine_value(options, i) = value != 0 ? value : STET_NONE; /* 0 would be the default */
        return STET_OK;
    }
    return stet__fail(STET_ECONFIG, "there is no configuration value %s; `help config` lists them", name);
}

/* The options with what stands for 0. `config` is zeroed. */
static int
engine_configure(stet_options *config, const stet_options *options)
{
    int err;

    if (options != NULL && options->size != sizeof *options)
        return stet__fail(STET_ECONFIG, "stet_options.size is %zu; use STET_OPTIONS(…) or stet_options_init()", options->size);
    if (options != NULL)
        *config = *options;
    config->size = sizeof *config;
    for (size_t i = 0; i < ENGINE_CONFIG_N; i++) {
        int64_t *value = engine_value(config, i);

        if (*value == 0)
            *value = engine_config[i].item.normal;
        else if (*value == STET_NONE && engine_config[i].item.least == 0)
            *value = 0;
        if ((err = engine_check(&engine_config[i].item, *value)) != STET_OK)
            return err;
    }
    if (config->renew_ms >= config->lease_ms)
        return stet__fail(STET_ECONFIG, "renew_ms (%lld) must be below lease_ms (%lld)",
                          (long long)config->renew_ms, (long long)config->lease_ms);
    if (config->retry_max_ms < config->retry_first_ms)
        return stet__fail(STET_ECONFIG, "retry_max_ms (%lld) is below retry_first_ms (%lld)",
                          (long long)config->retry_max_ms, (long long)config->retry_first_ms);
    if (config->roles == 0)
        config->roles = STET_ROLE_WORKER | STET_ROLE_TIMERS;
    if (config->roles & ~(STET_ROLE_WORKER | STET_ROLE_TIMERS | STET_ROLE_CLIENT))
        return stet__fail(
            STET_ECONFIG,
            "roles is %#x; use STET_ROLE_WORKER, STET_ROLE_TIMERS or STET_ROLE_CLIENT",
            config->roles);
    if ((config->roles & STET_ROLE_CLIENT) &&
        (config->roles & (STET_ROLE_WORKER | STET_ROLE_TIMERS)))
        return stet__fail(STET_ECONFIG, "the client role excludes worker and timers");
    return STET_OK;
}

/* ---- handlers --------------------------------------------------------------------------------------- */

stet__handler *
stet__handler_find(stet_engine *e, const char *name)
{
    for (size_t i = 0; i < e->n_handlers; i++)
        if (strcmp(e->handlers[i].name, name) == 0)
            return &e->handlers[i];
    return NULL;
}

const stet_entry *
stet__initial_find(stet_engine *e, const char *service, const char *name)
{
    for (const stet__service *s = e->services; s != NULL; s = s->next)
        if (strcmp(s->name, service) == 0)
            for (const stet_entry *i = s->initial; i != NULL && i->name != NULL; i++)
                if (strcmp(i->name, name) == 0)
                    return i;
    return NULL;
}

/* What people and `describe` are told; no start looks at it. */
static int
engine_describe_handler(stet_engine *e, stet__handler *at, const stet_handler_options *o)
{
    stet__alloc *a = &e->p->alloc;
    size_t       n = 0;

    while (o->samples != NULL && o->samples[n].name != NULL)
        n++;
    if ((o->description != NULL && (at->description = stet__strdup(a, o->description)) == NULL) ||
        (o->category != NULL && (at->category = stet__strdup(a, o->category)) == NULL) ||
        (o->default_input != NULL && (at->default_input = stet__strdup(a, o->default_input)) == NULL) ||
        (n > 0 && (at->samples = stet__get0(a, (n + 1) * sizeof *at->samples)) == NULL))
        return stet__fail(STET_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const stet_sample *from = &o->samples[i];

        at->samples[i] = (stet_sample){ stet__strdup(a, from->name), NULL, from->code, from->occurrence };
        if (at->samples[i].name == NULL ||
            (from->value != NULL && (at->samples[i].value = stet__strdup(a, from->value)) == NULL))
            return stet__fail(STET_ENOMEM, "out of memory");
    }
    return STET_OK;
}

static void
engine_free_handler(stet_engine *e, stet__handler *h)
{
    stet__alloc *a = &e->p->alloc;

    for (stet_sample *s = h->samples; s != NULL && s->name != NULL; s++) {
        stet__free(a, (void *)(uintptr_t)s->name);
        stet__free(a, (void *)(uintptr_t)s->value);
    }
    stet__free(a, h->samples);
    stet__free(a, h->name);
    stet__free(a, h->description);
    stet__free(a, h->category);
    stet__free(a, h->default_input);
}

static int
engine_add_handler(stet_engine *e, stet__service *s, const stet_handler *h)
{
    stet__handler *at, *grown;
    stet__buf      name;
    int            err;

    if ((err = stet__part_check("handler", h->name)) != STET_OK)
        return err;
    if (h->fn == NULL)
        return stet__fail(STET_EINVAL, "handler %s.%s has no function", s->name, h->name);
    stet__buf_init(&name, &e->p->alloc);
    stet__buf_printf(&name, "%s.%s", s->name, h->name);
    if (name.failed) {
        stet__buf_free(&name);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    if (stet__handler_find(e, stet__buf_cstr(&name)) != NULL) {
        stet__buf_free(&name);
        return stet__fail(STET_EEXISTS, "service %s has two handlers %s", s->name, h->name);
    }
    if ((grown = stet__grow(&e->p->alloc, e->handlers, (e->n_handlers + 1) * sizeof *grown)) == NULL) {
        stet__buf_free(&name);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    e->handlers = grown;
    at = &grown[e->n_handlers];
    memset(at, 0, sizeof *at);
    at->name = stet__strdup(&e->p->alloc, stet__buf_cstr(&name));
    stet__buf_free(&name);
    at->fn = h->fn;
    at->is_object = s->is_object;
    atomic_init(&at->patience, 0);
    at->service = s;
    if (at->name == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    e->n_handlers++;
    if (h->options == NULL)
        return STET_OK;
    if ((err = stet__retry_check(at->name, &h->options->retry)) != STET_OK)
        return err;
    at->retry = h->options->retry;
    at->rolls_back = h->options->rollback;
    at->is_shared = h->options->shared;
    if (at->is_shared && !s->is_object)
        return stet__fail(STET_EINVAL, "%s: only a handler of an object can be shared", at->name);
    at->classify = h->options->classify;
    at->classify_arg = h->options->classify_arg;
    if (h->options->timeout != NULL &&
        (err = stet__span_parse(&at->timeout_ms, at->name, "timeout", h->options->timeout)) != STET_OK)
        return err;
    if (h->options->retention != NULL &&
        (err = stet__span_parse(&at->retention_ms, at->name, "retention", h->options->retention)) != STET_OK)
        return err;
    return engine_describe_handler(e, at, h->options);
}

static void
engine_drop_service(stet_engine *e, stet__service *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < e->n_handlers; i++)
        if (e->handlers[i].service == s)
            engine_free_handler(e, &e->handlers[i]);
        else
            e->handlers[kept++] = e->handlers[i];
    e->n_handlers = kept;
    for (stet_entry *i = s->initial; i != NULL && i->name != NULL; i++) {
        stet__free(&e->p->alloc, (void *)(uintptr_t)i->name);
        stet__free(&e->p->alloc, (void *)(uintptr_t)i->value.data);
    }
    stet__free(&e->p->alloc, s->initial);
    stet__free(&e->p->alloc, s->name);
    stet__free(&e->p->alloc, s);
}

static int
engine_copy_initial(stet_engine *e, stet__service *s, const stet_entry *initial)
{
    size_t n = 0;
    int    err;

    while (initial != NULL && initial[n].name != NULL)
        n++;
    if (n == 0)
        return STET_OK;
    if ((s->initial = stet__get0(&e->p->alloc, (n + 1) * sizeof *s->initial)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        char *data;

        if ((err = stet__name_check("state entry", initial[i].name)) != STET_OK)
            return err;
        if ((data = stet__get0(&e->p->alloc, initial[i].value.len + 1)) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        if (initial[i].value.len > 0)
            memcpy(data, initial[i].value.data, initial[i].value.len);
        s->initial[i].value = (stet_bytes){ data, initial[i].value.len };
        if ((s->initial[i].name = stet__strdup(&e->p->alloc, initial[i].name)) == NULL) {
            stet__free(&e->p->alloc, data);
            return stet__fail(STET_ENOMEM, "out of memory");
        }
    }
    return STET_OK;
}

static int
engine_register(stet_engine *e, const char *service, const stet_handler *handlers, const stet_entry *initial, bool is_object)
{
    stet__service *s;
    int            err;

    if ((err = stet__alive(e, is_object ? "stet_register_object" : "stet_register")) != STET_OK || (err = stet__part_check("service", service)) != STET_OK)
        return err;
    if (e->life != STET__LIFE_OPEN)
        return stet__fail(STET_ESTATE, "service %s: register everything before the engine is started", service);
    if (handlers == NULL || handlers[0].name == NULL)
        return stet__fail(STET_EINVAL, "service %s has no handlers", service);
    for (s = e->services; s != NULL; s = s->next)
        if (strcmp(s->name, service) == 0)
            return stet__fail(STET_EEXISTS, "service %s is registered already", service);
    if ((s = stet__get0(&e->p->alloc, sizeof *s)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    s->is_object = is_object;
    err = (s->name = stet__strdup(&e->p->alloc, service)) != NULL ? engine_copy_initial(e, s, initial)
                                                                 : stet__fail(STET_ENOMEM, "out of memory");
    for (size_t i = 0; err == STET_OK && handlers[i].name != NULL; i++)
        err = engine_add_handler(e, s, &handlers[i]);
    if (err != STET_OK) {
        engine_drop_service(e, s);
        return err;
    }
    s->next = e->services;
    e->services = s;
    return STET_OK;
}

int
stet_register(stet_engine *e, const char *service, const stet_handler *handlers)
{
    return engine_register(e, service, handlers, NULL, false);
}

int
stet_register_object(stet_engine *e, const char *service, const stet_handler *handlers, const stet_entry *initial)
{
    return engine_register(e, service, handlers, initial, true);
}

/* ---- small things ----------------------------------------------------------------------------------- */

stet_id
stet__new_id(stet_engine *e)
{
    uint8_t random[10];
    stet_id id;
    int64_t now_ms = stet__store_now(e);

    if (e->config.id != NULL) {
        e->config.id(e->config.id_arg, &id, now_ms);
        return id;
    }
    e->p->ops->random(e->p, random, sizeof random);
    return stet__id_make(now_ms, random);
}

int
stet__alive(stet_engine *e, const char *call)
{
    if (e == NULL)
        return stet__fail(STET_EINVAL, "%s: no engine", call);
    if (e->p == stet__platform_real() && e->process != (int64_t)getpid())
        return stet__fail(STET_EFORKED, "%s: this engine belongs to the parent process; open one after fork()", call);
    return STET_OK;
}

int
stet__not_in_handler(stet_engine *e, const char *call, const char *instead)
{
    const void *self = e->p->ops->thread_self(e->p);
    bool        is_inside = false;

    /* Only our own slot's fields are read beyond its identity, so no lock is needed. */
    for (size_t i = 0; i < e->exec.n_slots; i++) {
        stet__slot *slot = &e->exec.slots[i];

        if (atomic_load(&slot->self) == self && slot->current != NULL && atomic_load(&slot->current_body) == NULL)
            is_inside = true;
    }
    if (is_inside)
        return stet__fail(STET_EUSAGE, "%s cannot be called in a handler: use %s, which is recorded", call, instead);
    return STET_OK;
}

bool
stet__in_body(stet_engine *e)
{
    const void *self = e->p->ops->thread_self(e->p);

    for (size_t i = 0; i < e->exec.n_slots; i++)
        if (atomic_load(&e->exec.slots[i].self) == self && atomic_load(&e->exec.slots[i].current_body) != NULL)
            return true;
    return false;
}

bool
stet__in_transaction(stet_engine *e)
{
    const void *self = e->p->ops->thread_self(e->p);

    for (size_t i = 0; i < e->exec.n_slots; i++) {
        const stet__slot   *slot = &e->exec.slots[i];
        const stet_attempt *a = atomic_load(&slot->self) == self ? atomic_load(&slot->current_body) : NULL;

        if (a != NULL && a->tx != NULL)
            return true;
    }
    return false;
}

int64_t
stet_engine_now_ms(stet_engine *e)
{
    return stet__store_now(e);
}

uint64_t
stet_engine_reads(stet_engine *e)
{
    return __atomic_load_n(&e->store->reads, __ATOMIC_RELAXED);
}

/* ---- opening ---------------------------------------------------------------------------------------- */

static void
engine_free(stet_engine *e)
{
    stet__platform *p = e->p;

    stet__committer_close(e);
    stet__mirror_free(e);
    stet__exec_free(&e->exec);
    assert(atomic_load(&e->gathering) == 0); /* else every commit would have waited */
    stet__committer_free(e);
    stet__hint_close(e->hint); /* the last commits are told */
    stet__store_close(e->store);
    while (e->services != NULL) {
        stet__service *s = e->services;

        e->services = s->next;
        engine_drop_service(e, s);
    }
    while (e->sched_functions != NULL) {
        stet__sched_function *f = e->sched_functions;

        e->sched_functions = f->next;
        stet__free(&p->alloc, f->name);
        stet__free(&p->alloc, f);
    }
    for (size_t i = 0; e->recent != NULL && i < e->recent_n; i++)
        stet_result_free(&e->recent[i].result);
    stet__free(&p->alloc, e->recent);
    stet__free(&p->alloc, e->handlers);
    stet__hold_free(e);
    stet__free(&p->alloc, e->crumb_uses);
    stet__free(&p->alloc, e->url);
    stet__map_free(&e->claims);
    stet__map_free(&e->waiters);
    stet__map_free(&e->recent_by_run);
    stet__map_free(&e->orphans);
    stet__map_free(&e->fenced);
    stet__map_free(&e->unread);
    stet__map_free(&e->said);
    stet__map_free(&e->unserved);
    stet__map_free(&e->shared);
    stet__policies_free(e);
    stet__ahead_free(e);
    stet__works_free(e);
    p->ops->cond_destroy(p, &e->answer_cond);
    p->ops->cond_destroy(p, &e->store_cond);
    p->ops->cond_destroy(p, &e->keeper_cond);
    p->ops->cond_destroy(p, &e->renew_cond);
    p->ops->mutex_destroy(p, &e->lock);
    stet__free(&p->alloc, e);
}

/* Locks and conditions: the rest of the engine can be freed in one way from here on. */
static int
engine_locks(stet_engine *e)
{
    stet__platform *p = e->p;
    int             err;

    if ((err = p->ops->mutex_init(p, &e->lock)) != STET_OK)
        return err;
    if ((err = p->ops->cond_init(p, &e->renew_cond)) != STET_OK)
        goto no_renew;
    if ((err = p->ops->cond_init(p, &e->keeper_cond)) != STET_OK)
        goto no_keeper;
    if ((err = p->ops->cond_init(p, &e->store_cond)) != STET_OK)
        goto no_store;
    if ((err = p->ops->cond_init(p, &e->answer_cond)) != STET_OK)
        goto no_answer;
    if ((err = stet__works_init(e)) != STET_OK)
        goto no_works;
    return STET_OK;
no_works:
    p->ops->cond_destroy(p, &e->answer_cond);
no_answer:
    p->ops->cond_destroy(p, &e->store_cond);
no_store:
    p->ops->cond_destroy(p, &e->keeper_cond);
no_keeper:
    p->ops->cond_destroy(p, &e->renew_cond);
no_renew:
    p->ops->mutex_destroy(p, &e->lock);
    return err;
}

static void
engine_name(stet_engine *e)
{
    if (e->p == stet__platform_real()) {
        e->process = (int64_t)getpid();
        if (gethostname(e->host_name, sizeof e->host_name - 1) != 0)
            (void)snprintf(e->host_name, sizeof e->host_name, "localhost");
    } else
        (void)snprintf(e->host_name, sizeof e->host_name, "simulated");
    if (e->config.worker != NULL)
        (void)snprintf(e->worker, sizeof e->worker, "%s", e->config.worker);
    else
        (void)snprintf(e->worker, sizeof e->worker, "%.60s-%lld", e->host_name, (long long)e->process);
}

int
stet__open_on(stet_engine **out, stet__platform *p, stet_store *store, const char *url, const stet_options *options)
{
    /* How it was opened, by the command line mostly: not which store it is. */
    static const char *const how[] = { "create", "repair", "readonly" };
    stet_engine *e = stet__get0(&p->alloc, sizeof *e);
    char         shown[512];
    int          err;

    *out = NULL;
    if (e == NULL) {
        stet__store_close(store);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    e->p = p;
    if ((err = engine_configure(&e->config, options)) != STET_OK ||
        (err = engine_locks(e)) != STET_OK) {
        stet__store_close(store);
        stet__free(&p->alloc, e);
        return err;
    }
    e->store = store;
    stet__map_init(&e->claims, &p->alloc);
    stet__map_init(&e->waiters, &p->alloc);
    stet__map_init(&e->recent_by_run, &p->alloc);
    stet__map_init(&e->orphans, &p->alloc);
    stet__map_init(&e->fenced, &p->alloc);
    stet__map_init(&e->unread, &p->alloc);
    stet__map_init(&e->said, &p->alloc);
    stet__map_init(&e->unserved, &p->alloc);
    stet__map_init(&e->shared, &p->alloc);
    e->topic_lot = STET__TOPIC_LOT;
    stet__map_init(&e->policies, &p->alloc);
    stet__ahead_init(e);
    engine_name(e);
    store->sticky = 1ull << STET_STATUS_CANCELLING | 1ull << STET_STATUS_COMPENSATING | 1ull << STET_STATUS_COMPENSATION_FAILED;
    store->quiet = 1ull << STET_STATUS_SUSPENDED;
    store->is_client = (e->config.roles & STET_ROLE_CLIENT) != 0;
    store->looks_ms = e->config.wait_poll_ms;
    store->more = stet__committer_more;
    store->more_arg = &e->committer;
    e->n_crumbs = ENGINE_CRUMBS((size_t)e->config.in_flight_max, (size_t)e->config.concurrency);
    (void)stet__store_shown(shown, sizeof shown, url);
    for (size_t i = 0; i < sizeof how / sizeof *how; i++)
        stet__option_drop(shown, how[i]);
    e->url = stet__strdup(&p->alloc, shown);
    e->recent = stet__get(&p->alloc, STET__RECENT_MAX * sizeof *e->recent);
    e->crumb_uses = stet__get0(&p->alloc, e->n_crumbs * sizeof *e->crumb_uses);
    if (e->url == NULL || e->recent == NULL || e->crumb_uses == NULL)
        err = stet__fail(STET_ENOMEM, "out of memory");
    if (err == STET_OK)
        err = stet__exec_init(&e->exec, p, &stet__host, &e->lock, (size_t)e->config.concurrency, (size_t)e->config.stack_bytes);
    e->exec.host_arg = e;
    if (err == STET_OK)
        err = stet__committer_init(e);
    if (err == STET_OK)
        err = stet__hint_begin(e, e->config.queue);
    if (err == STET_OK)
        err = stet__mirror_open(e);
    e->config.queue = NULL; /* the caller's; it may have a password */
    if (err != STET_OK) {
        engine_free(e);
        return err;
    }
    e->worker_id = stet__new_id(e);
    *out = e;
    return STET_OK;
}

/* Hints by a way of their own need somebody to tell. */
static int
engine_check_queue(const char *store, const char *queue)
{
    if (queue == NULL || strcmp(queue, "store") == 0 || strcmp(queue, "none") == 0 || strncmp(store, "memory:", 7) != 0)
        return STET_OK;
    return stet__fail(STET_ECONFIG, "a memory: store is seen by its own engine alone, so there is nobody to tell: use it "
                                    "without queue=, or with queue=none");
}

static int
engine_open_url(stet_engine **engine, const char *url, const stet_options *options)
{
    stet__platform *p = stet__platform_real();
    stet_options    with, config = { 0 };
    stet_store     *store;
    char           *address, *queue;
    int             err;

    if ((err = stet__hint_split(p, url, &address, &queue)) != STET_OK)
        return err;
    stet_options_init(&with);
    if (options != NULL && options->size == sizeof with)
        with = *options;
    else if (options != NULL)
        with.size = options->size; /* refused below */
    if (queue != NULL && with.queue != NULL)
        err = stet__fail(STET_ECONFIG, "the queue is named twice, in the store's address and in stet_options.queue");
    else if (queue != NULL)
        with.queue = queue;
    if (err == STET_OK)
        err = engine_check_queue(address, with.queue);
    /* Options that are refused must not leave a new store behind. */
    if (err == STET_OK)
        err = engine_configure(&config, &with);
    if (err == STET_OK && (err = stet__store_open(&store, p, address)) == STET_OK)
        err = stet__open_on(engine, p, store, address, &with);
    stet__free(&p->alloc, address);
    stet__hint_wipe(p, queue);
    return err;
}

/* The source of a move can be read; its target is not the truth before it is complete. */
static int
engine_may_look(stet_engine **engine)
{
    stet_engine *e = *engine;
    stet__stop   stop;
    char         text[1024];
    int          err = stet__stop_check(e, &stop);

    if (err == STET_OK)
        return STET_OK;
    if (err == STET_EMOVED && stop.phase != STET__STOP_IN) {
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, STET_EMOVED, "%s", stet_last_error());
        return STET_OK;
    }
    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    *engine = NULL;
    engine_free(e);
    return stet__fail(err, "%s", text);
}

int
stet_open(stet_engine **engine, const char *url, const stet_options *options)
{
    int err;

    *engine = NULL;
    if (url == NULL || url[0] == '\0')
        return stet__fail(STET_EURL, "no store named; give a file like shop.db, or memory:");
    if ((err = engine_open_url(engine, url, options)) != STET_OK)
        return err;
    /* What was looked for and is not there, and may not be, is no failure of this call. */
    if ((err = engine_may_look(engine)) == STET_OK)
        stet__error_clear();
    return err;
}

/* ---- starting and stopping ---------------------------------------------------------------------------- */

static int
engine_prepare(stet_engine *e)
{
    return e->n_handlers > 0 && (e->config.roles & STET_ROLE_WORKER) ? stet__hold_look(e) : STET_OK;
}

static void
engine_set_life(stet_engine *e, stet__life life)
{
    stet__lock(e->p, &e->lock);
    e->life = life;
    e->is_drained = e->is_drained && life != STET__LIFE_STARTED;
    stet__keeper_poke(e);
    stet__events_look(e); /* nobody waits for them in an engine that goes */
    stet__unlock(e->p, &e->lock);
}

static int
engine_start_threads(stet_engine *e)
{
    int err;

    e->has_threads = true;
    if ((err = stet__committer_start(e)) != STET_OK || (err = stet__session_open(e)) != STET_OK)
        return err;
    stet__policies_tell(e);
    stet__requeue_stuck(e);
    engine_set_life(e, STET__LIFE_STARTED);
    if ((err = stet__exec_start(&e->exec)) != STET_OK || (err = stet__renewer_start(e)) != STET_OK)
        return err;
    if ((err = stet__keeper_start(e)) != STET_OK)
        return err;
    return stet__mirror_start(e);
}

/* Threads may run already though it does not count as started: they go, and it can be tried again. */
static int
engine_not_started(stet_engine *e, int err)
{
    char text[512];

    (void)snprintf(text, sizeof text, "%s", stet_last_error());
    engine_set_life(e, STET__LIFE_STOPPING);
    if (stet_engine_stop(e, STET_NONE) == STET_OK)
        engine_set_life(e, STET__LIFE_OPEN);
    return stet__fail(err, "%s", text);
}

int
stet_engine_start(stet_engine *e)
{
    int err;

    if ((err = stet__alive(e, "stet_engine_start")) != STET_OK)
        return err;
    if (e->life == STET__LIFE_STARTED && !e->is_polled)
        return STET_OK;
    if (e->life != STET__LIFE_OPEN)
        return stet__fail(STET_ESTATE, "an engine is started once; open another one");
    if ((err = engine_prepare(e)) != STET_OK)
        return err;
    if (e->config.roles & STET_ROLE_CLIENT) { /* only somebody who commits for the callers, and listens for those who wait */
        e->has_threads = true;
        if ((err = stet__committer_start(e)) != STET_OK) {
            e->has_threads = false;
            return err;
        }
        engine_set_life(e, STET__LIFE_STARTED);
        if ((err = stet__hint_watch(e)) != STET_OK)
            return engine_not_started(e, err);
        return STET_OK;
    }
    if ((err = engine_start_threads(e)) != STET_OK)
        return engine_not_started(e, err);
    return STET_OK;
}

/* Is this the thread that polls? If nobody has yet, it is from now on. */
static bool
engine_is_poller(stet_engine *e)
{
    const void *self = e->p->ops->thread_self(e->p), *nobody = NULL;

    return atomic_compare_exchange_strong(&e->poller, &nobody, self) || nobody == self || STET__MUTANT(poll_by_anybody);
}

/* Without threads: all that is ready, and what follows from its commits. False: nothing was. */
static bool
engine_execute(stet_engine *e)
{
    bool has_done = false;

    do
        has_done = stet__exec_run(&e->exec) || has_done;
    while (stet__committer_help(e));
    return has_done;
}

int
stet_engine_poll(stet_engine *e, int *did, int64_t wait_ms)
{
    int64_t  until_us, next_us, mirror_us;
    uint64_t n_pokes;
    int      err;

    if (did != NULL)
        *did = 0;
    if ((err = stet__alive(e, "stet_engine_poll")) != STET_OK)
        return err;
    if ((e->life == STET__LIFE_OPEN || e->is_polled) && !engine_is_poller(e))
        return stet__fail(STET_EUSAGE, "stet_engine_poll: another thread polls this engine, and the handlers it began are its; "
                                       "poll from one thread");
    if (e->life == STET__LIFE_OPEN && e->hint_tells)
        return stet__fail(STET_ECONFIG, "stet_engine_poll: this queue has a thread of its own, and an engine that is polled "
                                        "has none; use queue=store or queue=none");
    if (e->life == STET__LIFE_OPEN) {
        e->is_polled = true;
        if ((err = engine_prepare(e)) != STET_OK || (err = stet__session_open(e)) != STET_OK)
            return err;
        stet__policies_tell(e);
        stet__requeue_stuck(e);
        engine_set_life(e, STET__LIFE_STARTED);
        if ((err = stet__keeper_start(e)) != STET_OK)
            return err;
    }
    if (!e->is_polled || e->life != STET__LIFE_STARTED)
        return stet__fail(STET_ESTATE, "stet_engine_poll is for engines without threads of their own that are not stopped");
    until_us = stet__mono_in(e->p, wait_ms);
    stet__lock(e->p, &e->lock);
    e->wants_claim = true;
    stet__unlock(e->p, &e->lock);
    for (;;) {
        if (stet__mono_us(e->p) > atomic_load(&e->lease_us) - e->config.lease_ms * 1000 + e->config.renew_ms * 1000)
            stet__renew(e);
        (void)stet__committer_heal(e);
        stet__lock(e->p, &e->lock);
        n_pokes = e->n_pokes;
        stet__unlock(e->p, &e->lock);
        next_us = stet__keeper_round(e);
        while (stet__committer_help(e))
            ;
        mirror_us = stet__mirror_poll(e);
        if (mirror_us < next_us)
            next_us = mirror_us;
        if (engine_execute(e)) {
            if (did != NULL)
                *did = 1;
            return STET_OK;
        }
        if (stet__mono_us(e->p) >= until_us)
            return STET_OK;
        if (next_us > until_us)
            next_us = until_us;
        if (next_us > stet__mono_us(e->p) + e->config.poll_ms * 1000)
            next_us = stet__mono_us(e->p) + e->config.poll_ms * 1000;
        stet__lock(e->p, &e->lock);
        if (e->n_pokes == n_pokes)
            (void)stet__wait(e->p, &e->keeper_cond, &e->lock, next_us);
        stet__unlock(e->p, &e->lock);
    }
}

/* Let go of everything that waits; what executes reaches its next recorded point first. Lock held. */
static void
engine_drain(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    stet__parked_trim(e, stet__mono_us(e->p));
    (void)stet__end_again(e, stet__mono_us(e->p));
    while (stet__map_next(&e->claims, &at, &key, &len, &value)) {
        stet_ctx *c = value;

        if (!c->is_let_go && atomic_load(&c->park) == STET__PARK_NONE)
            stet__exec_let_go(&e->exec, c, STET_ESTOPPED);
    }
}

static int
engine_busy(stet_engine *e)
{
    char run[STET_ID_TEXT_MAX] = "";

    for (size_t i = 0; i < e->exec.n_slots; i++) {
        stet__slot   *slot = &e->exec.slots[i];
        stet_attempt *body = atomic_load(&slot->current_body);

        if (body != NULL) {
            stet__id_text(run, STET__ID_RUN, ((stet__claim *)body->ctx->host)->run);
            return stet__fail(STET_EBUSY, "step %s of run %s does not end; a body cannot be killed, stop again later", body->step,
                              run);
        }
        if (slot->current != NULL && slot->current->host != NULL) {
            stet__id_text(run, STET__ID_RUN, ((stet__claim *)slot->current->host)->run);
            return stet__fail(STET_EBUSY, "the handler of run %s does not reach its next recorded point; stop again later", run);
        }
    }
    return stet__fail(STET_EBUSY, "the store did not take the last records in time; stop again later");
}

/* Units made before the stop (up to that number) are on their way; one of them may still grant us a run. Those made since
 * are of callers who go on, and would keep us for ever. Lock held. */
static bool
engine_has_queued(stet_engine *e, uint64_t upto)
{
    stet__committer *m = &e->committer;
    bool             has;

    stet__lock(e->p, &m->lock);
    has = ((m->first != NULL && m->first->unit.seq <= upto) || (m->is_busy && m->busy_seq <= upto)) && !e->is_poisoned;
    stet__unlock(e->p, &m->lock);
    return has;
}

/* The same without threads. Lock held. */
static int
engine_drain_here(stet_engine *e, int64_t until_us, uint64_t upto)
{
    uint64_t n_pokes = e->n_pokes;
    bool     has_done;

    stet__unlock(e->p, &e->lock);
    (void)stet__committer_heal(e);
    has_done = engine_execute(e);
    stet__lock(e->p, &e->lock);
    if (e->exec.n_contexts > 0 && stet__mono_us(e->p) >= until_us)
        return engine_busy(e);
    /* A caller's own commit is with the store, and its end needs our lock; or the store is not well. */
    if ((e->is_poisoned || (!has_done && e->n_pokes == n_pokes)) &&
        (e->exec.n_contexts > 0 || engine_has_queued(e, upto)))
        (void)stet__wait(e->p, &e->keeper_cond, &e->lock,
                         stet__mono_us(e->p) + (e->exec.n_contexts > 0 ? 10000 : 1000));
    return STET_OK;
}

static int
engine_stop_drain(stet_engine *e, int64_t drain_ms)
{
    int64_t  until_us = stet__mono_in(e->p, drain_ms);
    uint64_t upto;
    int      err = STET_OK;

    stet__lock(e->p, &e->lock);
    stet__lock(e->p, &e->committer.lock);
    upto = e->committer.seq;
    stet__unlock(e->p, &e->committer.lock);
    while (e->exec.n_contexts > 0 || engine_has_queued(e, upto)) {
        bool is_only_queue = e->exec.n_contexts == 0;

        engine_drain(e);
        if (e->has_threads && e->exec.has_threads) {
            int64_t now_us = stet__mono_us(e->p), next_us = now_us + (is_only_queue ? 1000 : 20000);

            /* What is only queued has a second more: it needs no body to end, just the store. */
            if (now_us >= stet__time_add(until_us, is_only_queue ? 1000000 : 0)) {
                err = engine_busy(e);
                break;
            }
            /* New wakes come from units being answered; look again when a context ended, or soon. */
            (void)stet__wait(e->p, &e->exec.quiet, &e->lock, next_us < until_us || is_only_queue ? next_us : until_us);
        } else if ((err = engine_drain_here(e, until_us, upto)) != STET_OK)
            break;
    }
    e->is_drained = err == STET_OK; /* its threads go: nothing must begin any more */
    stet__unlock(e->p, &e->lock);
    return err;
}

int
stet_engine_stop(stet_engine *e, int64_t drain_ms)
{
    int err;

    if ((err = stet__alive(e, "stet_engine_stop")) != STET_OK)
        return err;
    if (e->life == STET__LIFE_OPEN || e->life == STET__LIFE_STOPPED)
        return STET_OK;
    engine_set_life(e, STET__LIFE_STOPPING);
    if (drain_ms == 0)
        drain_ms = e->config.drain_ms;
    if (drain_ms < 0)
        drain_ms = 0;
    stet__keeper_close(e);
    if ((err = engine_stop_drain(e, drain_ms)) != STET_OK)
        return err;
    if (e->exec.has_threads)
        stet__exec_close(&e->exec);
    stet__mirror_close(e);
    stet__renewer_close(e);
    stet__committer_close(e);
    stet__session_close(e);
    e->has_threads = false;
    engine_set_life(e, STET__LIFE_STOPPED);
    return STET_OK;
}

void
stet_close(stet_engine *e)
{
    if (e == NULL || stet__alive(e, "stet_close") != STET_OK)
        return;
    while (stet_engine_stop(e, 0) == STET_EBUSY)
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, STET_EBUSY, "closing waits: %s", stet_last_error());
    engine_free(e);
}
