/* Events: who waits for them, and what becomes of each emission, lot by lot.
 *
 * An emission tells those who waited when it began, by the time it says itself, each of them once, and counts them. One
 * from outside has a record, which says how far it came until it is over; one of a handler has facts. /
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

/* Of a wait, by its key. */
typedef struct topic_mark {
    uint64_t put; /* at which commit */
    int64_t  time_ms;
} topic_mark;

static uint32_t
topic_number(stet_bytes value)
{
    char text[16];

    fleet_text(text, sizeof text, value.data, value.len);
    return (uint32_t)strtoul(text, NULL, 10);
}

static void
topic_put(stet__map *map, stet_bytes key, void *value)
{
    if (stet__map_put(map, key.data, key.len, value) != STET_OK)
        abort();
}

/* ---- who waits ------------------------------------------------------------------------------- */

/* The event that the unit tells the run; false: none. */
static bool
topic_told(const stet_unit *unit, stet_id run, stet__fact *event)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        stet_bytes in = unit->ops[i].data;

        if (unit->ops[i].kind == STET_OP_INBOX && stet__id_equal(unit->ops[i].run, run) &&
            stet__fact_decode(event, &in) == STET_OK && event->kind == STET__FACT_EVENT)
            return true;
    }
    return false;
}

/* Whoever is told of an event waits for it: its mark was there, and goes with that. And it did so when that began. */
static void
topic_mark_gone(fleet *w, const stet_unit *unit, const stet_op *op)
{
    const topic_mark *mark = stet__map_remove(&w->marks, op->key.data, op->key.len);
    stet__fact        event;
    fleet_event_of   *e;

    if (!topic_told(unit, op->run, &event))
        return;
    if (mark == NULL) {
        fleet_fail(w, fleet_run_of(w, op->run), "it is told of an event, and waits for none");
        return;
    }
    e = &w->events_of[topic_number(event.value) % FLEET_EVENTS];
    if (e->number == topic_number(event.value) && mark->time_ms > e->as_of_ms)
        fleet_fail(w, fleet_run_of(w, op->run),
                   "it is told of event %u, which began %lld ms before it waited", e->number,
                   (long long)(mark->time_ms - e->as_of_ms));
    w->stats.checks++;
}

void
fleet_topic_mark(fleet *w, const stet_unit *unit, const stet_op *op)
{
    stet_bytes  in = op->data;
    topic_mark *mark;
    stet__fact  fact;

    if (op->kind != STET_OP_VALUE_PUT) {
        topic_mark_gone(w, unit, op);
        return;
    }
    if ((mark = stet__arena_get0(&w->arena, sizeof *mark)) == NULL)
        abort();
    mark->put = w->stats.commits + 1;
    if (stet__fact_decode(&fact, &in) == STET_OK)
        mark->time_ms = fact.time_ms;
    topic_put(&w->marks, op->key, mark);
}

/* ---- emissions ------------------------------------------------------------------------------- */

/* An event from outside is over: nobody waits for it any more who did when it was begun. But for those whose time is up, by
 * the store's clock or because their timer has fired. */
static void
topic_over(fleet *w, const stet__fact *record, uint64_t begun)
{
    uint32_t    number = topic_number(record->value);
    stet__fact  mark;
    size_t      at = 0, len;
    const void *key;
    void       *put;

    while (stet__map_next(&w->marks, &at, &key, &len, &put)) {
        const mem_value *v =
            ((const topic_mark *)put)->put < begun
                ? stet__mem_value(w->db, STET__SPACE_TOPIC, (stet_bytes){ key, len })
                : NULL;
        stet_bytes in = v != NULL ? v->value.data : (stet_bytes){ NULL, 0 };

        if (v != NULL && stet__fact_decode(&mark, &in) == STET_OK &&
            mark.time_ms <= record->time_ms &&
            (mark.until_ms == 0 || (mark.until_ms > fleet_peak_ms(w) &&
                                    stet__mem_timer(w->db, mark.until_ms, v->value.run,
                                                    (uint64_t)mark.completion) != NULL)))
            fleet_fail(w, fleet_run_of(w, v->value.run), "event %u is over, and it waits", number);
    }
}

void
fleet_topic_emission(fleet *w, const stet_op *op)
{
    stet_bytes      in = op->data;
    stet__fact      record;
    uint32_t        number;
    fleet_event_of *e;

    if (op->kind != STET_OP_VALUE_PUT) {
        if (stet__map_remove(&w->emissions, op->key.data, op->key.len) != NULL)
            fleet_fail(w, NULL, "an event is forgotten, and was not told to all");
        return;
    }
    if (stet__fact_decode(&record, &in) != STET_OK)
        return;
    number = topic_number(record.value);
    e = &w->events_of[number % FLEET_EVENTS];
    if (e->number != number)
        *e = (fleet_event_of){ number, record.time_ms };
    if (record.flags & STET__FACT_MORE) {
        topic_put(&w->emissions, op->key, w);
        return;
    }
    (void)stet__map_remove(&w->emissions, op->key.data, op->key.len);
    if (w->emits[number % FLEET_EVENTS] != 0)
        topic_over(w, &record, w->emits[number % FLEET_EVENTS]);
    w->emits[number % FLEET_EVENTS] = 0;
}

/* ---- … of handlers --------------------------------------------------------------------------- */

void
fleet_topic_emits(fleet *w, fleet_run *run, const stet__fact *fact)
{
    if (fact->flags & STET__FACT_INHERITED || fact->code != 0)
        return;
    if (fact->value.data != NULL) /* the first lot has it */
        run->emits = topic_number(fact->value);
    if ((fact->flags & STET__FACT_MORE) == 0) {
        w->emitter = run;
        w->counted = (uint64_t)fact->number;
    }
}

/* The unit that ends an emission has told the last lot. */
void
fleet_topic_counted(fleet *w)
{
    const fleet_run *run = w->emitter;

    w->emitter = NULL;
    if (run != NULL && w->counted != fleet_told_of(w, run->emits))
        fleet_fail(w, run, "its event %u resumed %llu runs, and %zu were told", run->emits,
                   (unsigned long long)w->counted, fleet_told_of(w, run->emits));
}
