/* Listening to topics from outside any run.
 *
 * Emissions leave a record for a minute (topic.c). A subscription looks through those that are younger than what it
 * saw last, minus a while for those that were on their way; it knows which ones it gave out already. Woken by what
 * this process emits and by hints, else by poll.
 */
#include <string.h>

#include "engine/engine.h"

#define SUBSCRIBE_OVERLAP_MS 2000
#define SUBSCRIBE_PAGE 256u
#define SUBSCRIBE_SEEN_MAX 1024u
#define SUBSCRIBE_LEAST_US 10000 /* hints come with every commit of others */

typedef struct subscribe_event {
    struct subscribe_event *next;
    stet_bytes              value;
    int64_t                 time_ms;
} subscribe_event;

struct stet_subscription {
    stet_subscription *next;
    stet_engine       *e;
    stet__cond         cond;
    bool               must_look;
    int64_t            looked_us;
    int64_t            from_ms;  /* emitted before: not for us */
    int64_t            last_ms;  /* the youngest that was seen */
    stet_id            seen[SUBSCRIBE_SEEN_MAX];
    size_t             n_seen;   /* ever */
    stet__arena        arena;    /* of those found and not given out yet, and of the one given out last */
    subscribe_event   *first, **end;
    /* A look. */
    stet_bytes         after;
    size_t             rows;
    char               topic[STET__NAME_MAX + 1];
};

void
stet__events_look(stet_engine *e)
{
    stet__askers_look(e);
    for (stet_subscription *s = e->subscriptions; s != NULL; s = s->next) {
        s->must_look = true;
        stet__broadcast(e->p, &s->cond);
    }
}

int
stet_subscribe(stet_engine *e, stet_subscription **out, const char *topic)
{
    stet_subscription *s;
    int                err;

    *out = NULL;
    if ((err = stet__alive(e, "stet_subscribe")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_subscribe", "stet_await_event")) != STET_OK ||
        (err = stet__name_check("topic", topic)) != STET_OK)
        return err;
    if ((s = stet__get0(&e->p->alloc, sizeof *s)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for a subscription");
    if ((err = e->p->ops->cond_init(e->p, &s->cond)) != STET_OK) {
        stet__free(&e->p->alloc, s);
        return err;
    }
    s->e = e;
    s->must_look = true;
    s->end = &s->first;
    s->from_ms = s->last_ms = stet__store_now(e);
    stet__arena_init(&s->arena, &e->p->alloc);
    memcpy(s->topic, topic, strlen(topic) + 1);
    stet__lock(e->p, &e->lock);
    s->next = e->subscriptions;
    e->subscriptions = s;
    stet__unlock(e->p, &e->lock);
    *out = s;
    return STET_OK;
}

void
stet_unsubscribe(stet_subscription *s)
{
    stet_engine *e;

    if (s == NULL)
        return;
    e = s->e;
    stet__lock(e->p, &e->lock);
    for (stet_subscription **at = &e->subscriptions; *at != NULL; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    stet__unlock(e->p, &e->lock);
    e->p->ops->cond_destroy(e->p, &s->cond);
    stet__arena_free(&s->arena);
    stet__free(&e->p->alloc, s);
}

static bool
subscribe_has_seen(const stet_subscription *s, stet_id id)
{
    size_t n = s->n_seen < SUBSCRIBE_SEEN_MAX ? s->n_seen : SUBSCRIBE_SEEN_MAX;

    for (size_t i = 0; i < n; i++)
        if (stet__id_equal(s->seen[i], id))
            return true;
    return false;
}

static int
subscribe_on_record(void *arg, stet_bytes key, const stet_value *value)
{
    stet_subscription *s = arg;
    subscribe_event   *event;
    stet_bytes         in = value->data;
    stet__fact         record;
    stet_id            id = stet__fact_id(key);
    void              *copy = stet__arena_copy(&s->arena, key.data, key.len);

    if (copy == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    s->after = (stet_bytes){ copy, key.len };
    s->rows++;
    if (stet__fact_decode(&record, &in) != STET_OK || record.time_ms < s->from_ms)
        return STET_OK;
    if (record.time_ms > s->last_ms)
        s->last_ms = record.time_ms;
    if (record.name.len != strlen(s->topic) || memcmp(record.name.data, s->topic, record.name.len) != 0 ||
        subscribe_has_seen(s, id))
        return STET_OK;
    if ((event = stet__arena_get0(&s->arena, sizeof *event)) == NULL ||
        (event->value.data = stet__arena_copy(&s->arena, record.value.data, record.value.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for an event");
    event->value.len = record.value.len;
    event->time_ms = record.time_ms;
    s->seen[s->n_seen++ % SUBSCRIBE_SEEN_MAX] = id;
    *s->end = event;
    s->end = &event->next;
    return STET_OK;
}

/* Nothing is left to give out: look for more. */
static int
subscribe_look(stet_subscription *s)
{
    stet_store   *store = s->e->store;
    const uint8_t least[10] = { 0 };
    stet_bytes    all = { NULL, 0 };
    stet_id       from;
    int64_t       from_ms = s->last_ms - SUBSCRIBE_OVERLAP_MS;
    int           err;

    stet__lock(s->e->p, &s->e->lock);
    s->must_look = false;
    s->looked_us = stet__mono_us(s->e->p);
    stet__unlock(s->e->p, &s->e->lock);
    stet__arena_free(&s->arena);
    s->first = NULL;
    s->end = &s->first;
    from = stet__id_make(from_ms > s->from_ms ? from_ms : s->from_ms - 1, least);
    s->after = stet__id_bytes(&from);
    do {
        stet_bytes after = s->after;

        s->rows = 0;
        if ((err = store->ops->values(store, STET__SPACE_BASE_EMIT, all, &after, SUBSCRIBE_PAGE, subscribe_on_record, s)) != STET_OK)
            return err;
    } while (s->rows == SUBSCRIBE_PAGE);
    return STET_OK;
}

/* Until there may be something, or it is time. False: the engine is going. */
static bool
subscribe_wait(stet_subscription *s, int64_t until_us)
{
    stet_engine *e = s->e;
    bool         goes_on;

    if (e->is_polled)
        return stet_engine_poll(e, NULL, e->config.wait_poll_ms) == STET_OK;
    stet__lock(e->p, &e->lock);
    while ((goes_on = e->life < STET__LIFE_STOPPING)) {
        int64_t look_us = s->looked_us + (s->must_look ? SUBSCRIBE_LEAST_US : e->config.wait_poll_ms * 1000);

        if (look_us > until_us)
            look_us = until_us;
        if (stet__mono_us(e->p) >= look_us)
            break;
        (void)stet__wait(e->p, &s->cond, &e->lock, look_us);
    }
    stet__unlock(e->p, &e->lock);
    return goes_on;
}

int
stet_event_next(stet_subscription *s, stet_event *event, int64_t timeout_ms)
{
    stet_engine *e = s->e;
    int64_t      until_us;
    int          err;

    memset(event, 0, sizeof *event);
    if ((err = stet__alive(e, "stet_event_next")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_event_next", "stet_await_event")) != STET_OK)
        return err;
    if (timeout_ms == 0)
        timeout_ms = e->config.wait_ms;
    until_us = timeout_ms == STET_NONE ? STET__FOREVER : stet__mono_in(e->p, timeout_ms);
    while (s->first == NULL) {
        if ((err = subscribe_look(s)) != STET_OK)
            return err;
        if (s->first != NULL)
            break;
        if (stet__mono_us(e->p) >= until_us)
            return stet__fail(STET_ETIMEOUT, "no event on topic %s in %lld ms", s->topic, (long long)timeout_ms);
        if (!subscribe_wait(s, until_us))
            return stet__fail(STET_ESTOPPED, "the engine is stopping; no event on topic %s", s->topic);
    }
    event->topic = s->topic;
    event->value = s->first->value;
    event->time_ms = s->first->time_ms;
    s->first = s->first->next;
    if (s->first == NULL)
        s->end = &s->first;
    return STET_OK;
}
