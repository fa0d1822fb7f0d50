/* Images: copies of the store's state, and hashes over it.
 *
 * An image is a database of the real platform that nobody has open. It has everything of the store
 * but what belongs to handles: which units a committer was answered about, and who writes crumbs.
 * Nobody repeats a unit of a process that is gone, and the crumbs of the dead are only read.
 *
 * Taken between two events of the simulator it is what the disk would hold if all nodes lost their
 * power at once: no fiber stands inside a critical section of the store (platform/sim.c, 4).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

/* ---- copies ---------------------------------------------------------------------------------- */

static void *
image_must(void *p)
{
    if (p == NULL)
        abort();
    return p;
}

static void
image_facts(stet__memory_db *to, mem_tree *into, const mem_tree *from)
{
    for (mem_node *n = stet__mem_tree_first(from); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_facts *f = MEM_OF(mem_facts, node, n);
        mem_facts       *copy = image_must(
                  stet__mem_facts_new(to, f->first, f->count, (stet_bytes){ f->data, f->len }));

        stet__mem_tree_add(into, &copy->node);
    }
}

static void
image_run(stet__memory_db *to, const mem_run *run)
{
    mem_run *copy = image_must(stet__mem_run_new(to, &run->row));

    copy->row.session = run->row.session;
    copy->row.epoch = run->row.epoch;
    copy->row.journal = run->row.journal;
    copy->row.inbox = run->row.inbox;
    if (run->row.lane != NULL)
        copy->row.lane = image_must(stet__strdup(to->alloc, run->row.lane));
    copy->ticket = run->ticket;
    image_facts(to, &copy->journal, &run->journal);
    image_facts(to, &copy->inbox, &run->inbox);
    stet__mem_run_link(to, copy);
}

static void
image_timer(stet__memory_db *to, const mem_timer *timer)
{
    mem_timer *copy = image_must(stet__get0(to->alloc, sizeof *copy));

    copy->fire_ms = timer->fire_ms;
    copy->run = timer->run;
    copy->completion = timer->completion;
    stet__mem_timer_link(to, copy);
}

static void
image_value(stet__memory_db *to, const mem_value *value)
{
    mem_value *copy =
        image_must(stet__mem_value_new(to, value->space, value->key, value->value.data));

    copy->value.version = value->value.version;
    copy->value.run = value->value.run;
    copy->value.revision = value->value.revision;
    stet__mem_tree_add(&to->values, &copy->node);
}

static void
image_session(stet__memory_db *to, const mem_session *session)
{
    mem_session *copy = image_must(stet__get0(to->alloc, sizeof *copy));

    *copy = *session;
    if (!stet__mem_copy(to, &copy->row.info, session->row.info))
        abort();
    stet__mem_tree_add(&to->sessions, &copy->node);
}

static void
image_crumbs(stet__memory_db *to, const mem_crumbs *crumbs)
{
    mem_crumbs *copy = image_must(stet__get0(to->alloc, sizeof *copy));

    copy->session = crumbs->session;
    copy->n = crumbs->n;
    copy->crumbs = image_must(stet__get(to->alloc, crumbs->n * sizeof *copy->crumbs));
    memcpy(copy->crumbs, crumbs->crumbs, crumbs->n * sizeof *copy->crumbs);
    stet__mem_tree_add(&to->crumbs, &copy->node);
}

void
fleet_image_copy(stet__memory_db *to, const stet__memory_db *from)
{
    mem_node *n;

    to->commits = from->commits;
    to->last_session = from->last_session;
    to->last_ticket = from->last_ticket;
    for (n = stet__mem_tree_first(&from->runs); n != NULL; n = stet__mem_tree_next(n))
        image_run(to, MEM_OF(mem_run, by_id, n));
    for (n = stet__mem_tree_first(&from->timers); n != NULL; n = stet__mem_tree_next(n))
        image_timer(to, MEM_OF(mem_timer, by_time, n));
    for (n = stet__mem_tree_first(&from->values); n != NULL; n = stet__mem_tree_next(n))
        image_value(to, MEM_OF(mem_value, node, n));
    for (n = stet__mem_tree_first(&from->sessions); n != NULL; n = stet__mem_tree_next(n))
        image_session(to, MEM_OF(mem_session, node, n));
    for (n = stet__mem_tree_first(&from->crumbs); n != NULL; n = stet__mem_tree_next(n))
        image_crumbs(to, MEM_OF(mem_crumbs, node, n));
}

/* ---- damage ---------------------------------------------------------------------------------- */

bool
fleet_facts_are_whole(const mem_facts *facts, uint32_t *readable)
{
    stet_bytes in = { facts->data, facts->len };
    stet__fact fact;
    uint32_t   n = 0;
    int        err;

    while ((err = stet__fact_decode(&fact, &in)) == STET_OK)
        n++;
    if (readable != NULL)
        *readable = n;
    return err == STET_END && n == facts->count;
}

static bool
image_is_whole(const mem_tree *rows)
{
    for (mem_node *n = stet__mem_tree_first(rows); n != NULL; n = stet__mem_tree_next(n))
        if (!fleet_facts_are_whole(MEM_OF(mem_facts, node, n), NULL))
            return false;
    return true;
}

/* What the world knows of damage it may have learnt after the image was taken. */
bool
fleet_is_readable(const mem_run *run)
{
    return image_is_whole(&run->journal) && image_is_whole(&run->inbox);
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static uint64_t
hash_text(const char *text, uint64_t h)
{
    return text != NULL ? stet__hash64(text, strlen(text), h) : h * 31 + 1;
}

static uint64_t
hash_number(uint64_t number, uint64_t h)
{
    return stet__hash64(&number, sizeof number, h);
}

static uint64_t
hash_bytes(stet_bytes bytes, uint64_t h)
{
    return stet__hash64(bytes.data != NULL ? bytes.data : "", bytes.len, hash_number(bytes.len, h));
}

static uint64_t
hash_facts(const mem_tree *facts, uint64_t h)
{
    for (mem_node *n = stet__mem_tree_first(facts); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_facts *f = MEM_OF(mem_facts, node, n);

        h = hash_bytes((stet_bytes){ f->data, f->len }, hash_number(f->first, h));
    }
    return h;
}

bool
fleet_same_facts(const mem_tree *a, const mem_tree *b, uint64_t upto)
{
    mem_node *x = stet__mem_tree_first(a), *y = stet__mem_tree_first(b);

    for (; x != NULL && MEM_OF(mem_facts, node, x)->first <= upto;
         x = stet__mem_tree_next(x), y = stet__mem_tree_next(y)) {
        const mem_facts *f = MEM_OF(mem_facts, node, x),
                        *g = y != NULL ? MEM_OF(mem_facts, node, y) : NULL;

        if (g == NULL || f->first != g->first || f->len != g->len ||
            (f->len > 0 && memcmp(f->data, g->data, f->len) != 0))
            return false;
    }
    return y == NULL || MEM_OF(mem_facts, node, y)->first > upto;
}

/* Left out: who had the run, how often it changed hands and when it was due last (session, epoch,
 * due_ms). They tell of executions, and every recovery is some. */
uint64_t
fleet_hash_run(const mem_run *run)
{
    const stet_run_row *row = &run->row;
    uint64_t            h = stet__hash64(row->id.bytes, sizeof row->id.bytes, 1);

    h = hash_text(row->handler, h);
    h = hash_text(row->key, h);
    h = hash_text(row->lane, h);
    h = hash_text(row->group, h);
    h = hash_text(row->reason, h);
    h = hash_number((uint64_t)row->status << 1 | row->is_terminal, h);
    h = hash_number(row->journal, h);
    h = hash_number(row->inbox, h);
    h = hash_number((uint64_t)row->created_ms, h);
    h = hash_number((uint64_t)row->ended_ms, h);
    h = hash_number((uint64_t)row->priority, h);
    h = hash_number(row->attempt, h);
    h = hash_bytes(row->extra, h);
    h = hash_facts(&run->journal, h);
    return hash_facts(&run->inbox, h);
}

static uint64_t
hash_claims(const stet__memory_db *db, uint64_t h)
{
    mem_node *n;

    for (n = stet__mem_tree_first(&db->runs); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_run *run = MEM_OF(mem_run, by_id, n);

        h = hash_number(run->row.session, h);
        h = hash_number(run->row.epoch, h);
        h = hash_number((uint64_t)run->row.due_ms, h);
        h = hash_number(run->ticket, h);
    }
    for (n = stet__mem_tree_first(&db->sessions); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_session *s = MEM_OF(mem_session, node, n);

        h = hash_number(s->row.session, h);
        h = stet__hash64(s->row.id.bytes, sizeof s->row.id.bytes, h);
        h = hash_number((uint64_t)s->row.started_ms, h);
        h = hash_number((uint64_t)s->row.seen_ms, h);
        h = hash_number((uint64_t)s->row.lease_until_ms, h);
        h = hash_bytes(s->row.info, h);
    }
    return hash_number(db->commits, h);
}

static bool
hash_is_out(const fleet *w, stet_id id)
{
    const fleet_run *run = w != NULL ? fleet_run_of(w, id) : NULL;

    return run != NULL && run->is_damaged;
}

uint64_t
fleet_hash_db(const stet__memory_db *db, const fleet *w)
{
    uint64_t  h = 1;
    mem_node *n;

    for (n = stet__mem_tree_first(&db->runs); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_run *run = MEM_OF(mem_run, by_id, n);

        if (!hash_is_out(w, run->row.id))
            h = hash_number(fleet_hash_run(run), h);
    }
    for (n = stet__mem_tree_first(&db->lanes); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_run *run = MEM_OF(mem_run, by_lane, n);

        h = hash_text(run->row.lane, h);
        h = stet__hash64(run->row.id.bytes, sizeof run->row.id.bytes, h);
    }
    for (n = stet__mem_tree_first(&db->timers); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_timer *t = MEM_OF(mem_timer, by_time, n);

        if (hash_is_out(w, t->run))
            continue;
        h = stet__hash64(t->run.bytes, sizeof t->run.bytes, h);
        h = hash_number((uint64_t)t->fire_ms, hash_number(t->completion, h));
    }
    for (n = stet__mem_tree_first(&db->values); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_value *v = MEM_OF(mem_value, node, n);

        if (strcmp(v->space, STET__SPACE_BASE_EMIT) == 0)
            continue; /* goes with time, for whoever subscribes */
        if (strcmp(v->space, STET__SPACE_HANDLER) == 0)
            continue; /* the next worker writes what the last one could not */
        h = hash_bytes(v->key, hash_text(v->space, h));
        h = hash_bytes(v->value.data, hash_number(v->value.version, h));
        h = stet__hash64(v->value.run.bytes, sizeof v->value.run.bytes, h);
        h = hash_number(v->value.revision, h);
    }
    return w == NULL ? hash_claims(db, h) : h;
}
