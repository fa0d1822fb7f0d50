/* The audit hook: what it was told, kept outside of the engine.
 *
 * Some nodes of some seeds have one. It notes each entry under its run in the order of the first
 * tellings. Sometimes it fails, before it has noted the entry or after, and must be told again. An
 * entry is durable when it is told, and what is told again is the same to the last byte. At the end
 * the trail of every run is read: all of it was told, in this order. A run that was removed was told
 * to its last fact. Of a generation that is over nothing is left to compare with: its last fact was
 * told, if it ended when there was a hook for so long that who ended it must have known.
 */
#include <stdlib.h>
#include <string.h>

#include <stet/audit.h>

#include "engine/engine.h"
#include "fleet.h"

#define AUDIT_INBOX ((uint64_t)1 << 63)

static uint64_t
audit_text(const char *text, uint64_t h)
{
    return text != NULL ? stet__hash64(text, strlen(text), h) : h * 31 + 1;
}

static uint64_t
audit_hash(const stet_audit_entry *a)
{
    const char *const texts[] = { a->id,   a->run,  a->handler, a->key, a->topic, a->kind,
                                  a->name, a->text, a->who,     a->other, a->outcome };
    const uint64_t    numbers[] = { a->revision,
                                    a->inbox,
                                    (uint64_t)a->time_ms,
                                    a->occurrence,
                                    a->attempt,
                                    (uint64_t)a->status,
                                    a->is_transition,
                                    (uint64_t)a->duration_ms,
                                    (uint64_t)a->until_ms,
                                    (uint64_t)a->code,
                                    a->is_inherited,
                                    a->is_untaken,
                                    a->value.data != NULL };
    uint64_t          h = stet__hash64(numbers, sizeof numbers, 7);

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        h = audit_text(texts[i], h);
    return a->value.len > 0 ? stet__hash64(a->value.data, a->value.len, h) : h;
}

static uint64_t
audit_place(const stet_audit_entry *a)
{
    return a->inbox != 0 ? a->inbox | AUDIT_INBOX : a->revision;
}

/* Where it was told first, from there on; how many there are: it was not. */
static size_t
audit_find(const fleet_run *run, size_t from, uint64_t place)
{
    while (from < run->n_tales && run->tales[from].place != place)
        from++;
    return from;
}

/* ---- the hook -------------------------------------------------------------------------------- */

static void
audit_add(fleet *w, fleet_run *run, fleet_tale tale)
{
    if (run->n_tales == run->cap_tales) {
        size_t      cap = run->cap_tales > 0 ? run->cap_tales * 2 : 32;
        fleet_tale *grown = stet__arena_get(&w->arena, cap * sizeof *grown);

        if (grown == NULL)
            abort();
        if (run->n_tales > 0)
            memcpy(grown, run->tales, run->n_tales * sizeof *grown);
        run->tales = grown;
        run->cap_tales = cap;
    }
    run->tales[run->n_tales++] = tale;
}

static void
audit_note(fleet *w, fleet_run *run, const stet_audit_entry *a)
{
    fleet_tale tale = { audit_place(a), audit_hash(a) };
    size_t     at = audit_find(run, run->tale, tale.place);

    if (at == run->n_tales) /* somebody else may tell it from an earlier place */
        at = audit_find(run, 0, tale.place);
    if (at == run->n_tales)
        audit_add(w, run, tale);
    else {
        w->stats.retold++;
        if (run->tales[at].hash != tale.hash && !run->was_damaged)
            fleet_fail(w, run, "entry %s (%s) is told again, and is another one", a->id, a->kind);
    }
    run->tale = at + 1;
    w->stats.tales++;
}

int
fleet_audit(void *arg, const stet_audit_entry *entry)
{
    fleet_node *node = arg;
    fleet      *w = node->w;
    fleet_run  *run = fleet_run_named(w, entry->run);
    bool        is_refused = fleet_fault(w, FLEET_AUDIT_REFUSED, node);

    if (run == NULL || entry->revision > run->journal || entry->inbox > run->inbox) {
        fleet_fail(w, run, "entry %s is told before it is durable", entry->id);
        return STET_OK;
    }
    if (is_refused && fleet_draw(&w->faults, 2) == 0)
        return STET_EIO;
    audit_note(w, run, entry);
    if (w->audit_us == 0)
        w->audit_us = stet__sim_now_us(w->sim);
    if (is_refused && fleet_draw(&w->faults, 2) == 0)
        fleet_nap(node->p, 1000 * (int64_t)(1 + fleet_draw(&w->faults, 2000)));
    return is_refused ? STET_EIO : STET_OK;
}

/* ---- what must have been told ---------------------------------------------------------------- */

static bool
audit_is_on(fleet *w)
{
    return stet__mem_value(w->db, STET__SPACE_BASE_AUDIT, stet_text("on")) != NULL;
}

void
fleet_audit_turned(fleet *w, fleet_run *run)
{
    if (audit_is_on(w) && w->audit_us != 0 && !run->was_damaged && run->n_owed < FLEET_OWED_MAX &&
        stet__sim_now_us(w->sim) - w->audit_us > 4000 * w->plan.lease_ms)
        run->owed[run->n_owed++] = run->spoken;
}

static void
audit_check_owed(fleet *w, const fleet_run *run)
{
    for (size_t i = 0; i < run->n_owed && !run->was_damaged; i++) {
        w->stats.checks++;
        if (audit_find(run, 0, run->owed[i]) == run->n_tales)
            fleet_fail(w, run, "its fact %llu went with a generation and was never told",
                       (unsigned long long)run->owed[i]);
    }
}

void
fleet_audit_purged(fleet *w, const fleet_run *run)
{
    if (!audit_is_on(w) || run->was_damaged)
        return;
    audit_check_owed(w, run);
    if (audit_find(run, 0, run->journal) == run->n_tales ||
        (run->inbox > run->turned_at &&
         audit_find(run, 0, run->inbox | AUDIT_INBOX) == run->n_tales))
        fleet_fail(w, run, "it is removed, and its end was not told");
}

/* As mirror.c keeps it: the revision of the value, and 8 bytes of the inbox. */
static bool
audit_is_told(fleet *w, const mem_run *row)
{
    const mem_value *v =
        stet__mem_value(w->db, STET__SPACE_BASE_TOLD, stet__id_bytes(&row->row.id));
    uint64_t inbox = 0;

    if (v == NULL || v->value.revision != row->row.journal)
        return false;
    for (size_t i = 0; i < v->value.data.len; i++)
        inbox = inbox << 8 | ((const uint8_t *)v->value.data.data)[i];
    return !row->row.is_terminal || inbox >= row->row.inbox;
}

bool
fleet_audit_is_over(fleet *w)
{
    for (const fleet_run *run = w->plan.is_mirrored ? w->first : NULL; run != NULL;
         run = run->next) {
        const mem_run *row = run->was_damaged ? NULL : stet__mem_run(w->db, run->id);

        if (row != NULL && !audit_is_told(w, row))
            return false;
    }
    return true;
}

typedef struct audit_walk {
    fleet           *w;
    const fleet_run *run;
    size_t           at; /* behind the last that was found */
} audit_walk;

static int
audit_on_entry(void *arg, const stet_audit_entry *a)
{
    audit_walk *walk = arg;
    size_t      at = audit_find(walk->run, walk->at, audit_place(a));

    if (a->is_untaken && walk->run->end == 0)
        return STET_OK; /* it has no place yet */
    if (at == walk->run->n_tales)
        fleet_fail(walk->w, walk->run, "entry %s (%s) was %s", a->id, a->kind,
                   audit_find(walk->run, 0, audit_place(a)) < walk->at
                       ? "told before one that stands before it"
                       : "never told");
    else if (walk->run->tales[at].hash != audit_hash(a))
        fleet_fail(walk->w, walk->run, "entry %s (%s) was told as another one", a->id, a->kind);
    walk->at = at + 1;
    walk->w->stats.checks++;
    return walk->w->is_failed ? STET_EIO : STET_OK;
}

void
fleet_check_audit(fleet *w, stet_engine *e)
{
    for (const fleet_run *run = w->plan.is_mirrored ? w->first : NULL; run != NULL && !w->is_failed;
         run = run->next) {
        audit_walk  walk = { .w = w, .run = run };
        stet_run_id id;
        int         err;

        if (run->is_purged || run->was_damaged)
            continue;
        audit_check_owed(w, run);
        memcpy(id.text, run->text, sizeof id.text);
        if ((err = stet_audit_run(e, &id, audit_on_entry, &walk)) != STET_OK && !w->is_failed &&
            !run->is_purged)
            fleet_fail(w, run, "its trail gives %s: %s", stet_code_name(err), stet_last_error());
    }
}
