/* Looks: what runs saw of other runs (stet_run_look_at()).
 *
 * Which run is looked at a step picks, so that every execution looks at the same. What is recorded must have been so
 * at some moment between the ask and the record: each status its facts gave it in that time may be told, none from
 * before, and none that never was. The statuses are those of core, applied to the rows in the store; what is judged
 * here is when they were read, and that nothing of one moment is mixed with what is of another. /
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/offline.h"
#include "fleet.h"

enum { LOOK_ROWS_MAX = 2048, LOOK_NOBODY_ONE_IN = 12, LOOK_LAST_ONE_IN = 3 };

/* ---- which ----------------------------------------------------------------------------------- */

/* Any run there is, one of the last as often as not; now and then one that nobody has started. */
void
fleet_look_pick(fleet *w, char text[STET_ID_TEXT_MAX])
{
    stet_id         id = { { 0 } };
    uint64_t        skip;
    const mem_node *n;

    stet__id_text(text, STET__ID_RUN, id);
    if (fleet_draw(&w->looks, LOOK_NOBODY_ONE_IN) == 0)
        return;
    skip = fleet_draw(&w->looks, w->n_runs + 1);
    if (w->last != NULL && fleet_draw(&w->looks, LOOK_LAST_ONE_IN) == 0)
        skip = w->n_runs - 1;
    if (w->of == NULL) { /* removed ones, too */
        for (const fleet_run *run = w->first; run != NULL; run = run->next)
            if (skip-- == 0)
                memcpy(text, run->text, sizeof run->text);
        return;
    }
    if ((n = stet__mem_tree_first(&w->db->runs)) != NULL)
        stet__id_text(text, STET__ID_RUN, MEM_OF(const mem_run, by_id, n)->row.id);
}

/* ---- when ------------------------------------------------------------------------------------ */

void
fleet_look_asked(fleet *w, fleet_run *run, const char *text, uint64_t epoch)
{
    const fleet_run *of = fleet_run_named(w, text);

    run->glances[run->n_glances++ % FLEET_GLANCES] =
        (fleet_glance){ .epoch = epoch,
                        .id = of != NULL ? of->id : (stet_id){ { 0 } },
                        .from = of != NULL ? of->journal : 0,
                        .was_there = of != NULL && !of->is_purged };
}

/* The oldest there is of that run: who asks twice before anything is recorded may see as much. */
static const fleet_glance *
look_glance(const fleet_run *run, stet_id id, uint64_t epoch)
{
    size_t n = run->n_glances, at = n > FLEET_GLANCES ? n - FLEET_GLANCES : 0;

    for (; at < n; at++)
        if (run->glances[at % FLEET_GLANCES].epoch == epoch &&
            stet__id_equal(run->glances[at % FLEET_GLANCES].id, id))
            return &run->glances[at % FLEET_GLANCES];
    return NULL;
}

/* ---- what ------------------------------------------------------------------------------------ */

typedef struct look_walk {
    stet__run       run;
    uint64_t        from;
    const mem_node *row;      /* of the journal, the one that is applied */
    uint32_t        statuses; /* bits */
} look_walk;

/* Is it the last fact of its unit? Nobody sees a run between two of one. */
static bool
look_is_last(look_walk *k, uint64_t revision)
{
    const mem_facts *f = MEM_OF(const mem_facts, node, k->row);

    while (f->first + f->count <= revision)
        f = MEM_OF(const mem_facts, node, k->row = stet__mem_tree_next(k->row));
    return f->first + f->count - 1 == revision;
}

static int
look_on_fact(void *arg, const stet__fact *fact, uint64_t seq, bool is_taken)
{
    look_walk *k = arg;

    (void)is_taken;
    if (seq == 0 && fact->revision >= k->from && look_is_last(k, fact->revision))
        k->statuses |= 1u << k->run.status;
    return STET_OK;
}

static size_t
look_rows(const mem_tree *tree, stet__tape_row *rows)
{
    size_t n = 0;

    for (mem_node *at = stet__mem_tree_first(tree); at != NULL; at = stet__mem_tree_next(at)) {
        const mem_facts *f = MEM_OF(mem_facts, node, at);

        if (n == LOOK_ROWS_MAX)
            abort();
        rows[n++] =
            (stet__tape_row){ .first = f->first, .count = f->count, .facts = { f->data, f->len } };
    }
    return n;
}

/* The statuses it had since that revision, a bit each. */
static uint32_t
look_statuses(const mem_run *row, uint64_t from)
{
    static stet__tape_row journal[LOOK_ROWS_MAX], inbox[LOOK_ROWS_MAX];
    stet__tape            tape = { .journal = journal, .inbox = inbox, .is_as_taken = true };
    stet__arena           arena;
    look_walk             k = { .from = from, .row = stet__mem_tree_first(&row->journal) };
    uint64_t              bad;

    stet__arena_init(&arena, &stet__platform_real()->alloc);
    stet__run_init(&k.run, &arena, row->row.id);
    tape.n_journal = look_rows(&row->journal, journal);
    tape.n_inbox = look_rows(&row->inbox, inbox);
    if (stet__load_tape_seen(&stet__platform_real()->alloc, &k.run, NULL, &tape, &bad, look_on_fact,
                             &k) != STET_OK)
        k.statuses = UINT32_MAX;
    stet__arena_free(&arena);
    return k.statuses;
}

/* Has it begun anew since that revision? Others of the commit that is looked at may have done it. */
static bool
look_is_anew(const mem_run *row, uint64_t from)
{
    return MEM_OF(const mem_facts, node, stet__mem_tree_first(&row->journal))->first > from;
}

static stet_status
look_end(const fleet_run *of)
{
    switch (of->end) {
    case STET__FACT_COMPLETED: return STET_STATUS_COMPLETED;
    case STET__FACT_FAILED: return STET_STATUS_FAILED;
    case STET__FACT_CANCELLED: return STET_STATUS_CANCELLED;
    default: return STET_STATUS_EXPIRED;
    }
}

/* What is told besides the status is of an end, and of that one. */
static const char *
look_rest(const fleet *w, const fleet_run *of, const stet__fact *fact)
{
    size_t len = fact->value.len + (w->options.tampers == FLEET_TAMPER_LOOK);

    if (fact->number == STET_STATUS_COMPLETED)
        return len == of->result_len && (len == 0 || memcmp(fact->value.data, of->result, len) == 0)
                   ? NULL
                   : "another result than it has";
    if (fact->value.len > 0)
        return "a result, and it has not completed";
    /* How its rollback failed was told, and stands whatever it fails by afterwards. */
    if (fact->number == STET_STATUS_FAILED &&
        (int)fact->cause != (of->is_broken ? STET_ECOMPENSATION : of->code))
        return "another failure than it had";
    return NULL;
}

void
fleet_looked_at(fleet *w, fleet_run *run, uint64_t epoch, const stet__fact *fact)
{
    const fleet_run    *of = fleet_run_of(w, stet__fact_id(fact->run));
    const mem_run      *row = of != NULL ? stet__mem_run(w->db, of->id) : NULL;
    const fleet_glance  ahead = { 0 };
    const fleet_glance *g = look_glance(run, stet__fact_id(fact->run), epoch);
    const char         *wrong;

    if (fact->code == STET_ECANCELLED || fact->code == STET_EEXPIRED)
        return; /* it is told of a stop there */
    /* Executed ahead of its start it was not known here. */
    g = g == NULL && run->grants <= 1 && run->is_retry ? &ahead : g;
    if (g == NULL) {
        fleet_fail(w, run, "what became of another run is recorded, and nobody asked");
        return;
    }
    w->stats.checks++;
    if (fact->code == STET_ENOTFOUND) {
        if (g->was_there && !of->is_purged)
            fleet_fail(w, run, "it looks at run %u, which is there, and does not find it",
                       of->number);
        return;
    }
    if (fact->code == STET_ECORRUPT && of != NULL && of->was_damaged)
        return;
    if (of == NULL || fact->code != 0) {
        fleet_fail(w, run, "it looks at a run and sees %s",
                   fact->code != 0 ? "an error" : "nobody");
        return;
    }
    if (of->was_damaged)
        return;
    /* One that was removed since: where it was before its end is not known any more. */
    if (row == NULL ? of->end == 0 || (stet_status_is_terminal((stet_status)fact->number) &&
                                       look_end(of) != (stet_status)fact->number)
                    : !look_is_anew(row, g->from) &&
                          (look_statuses(row, g->from) >> fact->number & 1u) == 0)
        fleet_fail(w, run, "it sees run %u %s, which it was not since it looked", of->number,
                   stet_status_name((stet_status)fact->number));
    if ((wrong = look_rest(w, of, fact)) != NULL)
        fleet_fail(w, run, "it sees of run %u %s", of->number, wrong);
}
