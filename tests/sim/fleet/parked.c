/* What a parked execution takes for the record of its run.
 *
 * An execution that waits keeps the journal it has made while it went on; the next one may read it
 * from the store. Both must be the same picture, or what one of them does (a timer that a rewind
 * takes away) is not what the other expects. Asked between two events, of those that are parked at
 * the revision the store has; draws nothing and takes no virtual time.
 */
#include <string.h>

#include "engine/engine.h"
#include "engine/host.h"
#include "fleet.h"

typedef struct parked_picture {
    stet__arena   arena;
    stet__run     run;
    stet__journal journal;
} parked_picture;

static int
parked_take(parked_picture *p, const mem_run *row, uint64_t upto)
{
    const mem_node *n = stet__mem_tree_first(&row->inbox);
    stet__fact      fact;
    int             err = STET_OK;

    for (; err == STET_OK && n != NULL; n = stet__mem_tree_next(n)) {
        const mem_facts *f = MEM_OF(const mem_facts, node, n);
        stet_bytes       in = { f->data, f->len };

        if (f->first <= p->run.taken || f->first > upto)
            continue;
        if ((err = stet__fact_decode(&fact, &in)) != STET_OK)
            break;
        fact.revision = p->run.journal + 1;
        if ((err = stet__run_apply_inbox(&p->run, &fact)) == STET_OK)
            err = stet__journal_apply(&p->journal, &fact);
    }
    return err;
}

/* STET_OK; anything else: there are facts nobody can read. */
static int
parked_read(parked_picture *p, const mem_run *row)
{
    const mem_node *n = stet__mem_tree_first(&row->journal);
    stet__fact      fact;
    int             err = STET_OK;

    for (; err == STET_OK && n != NULL; n = stet__mem_tree_next(n)) {
        const mem_facts *f = MEM_OF(const mem_facts, node, n);
        stet_bytes       in = { f->data, f->len };

        for (uint64_t i = 0; err == STET_OK && i < f->count; i++) {
            if ((err = stet__fact_decode(&fact, &in)) != STET_OK)
                break;
            fact.revision = f->first + i;
            if (fact.kind == STET__FACT_TAKEN)
                err = parked_take(p, row, (uint64_t)fact.number);
            if (err == STET_OK)
                err = stet__run_apply(&p->run, &fact);
            if (err == STET_OK)
                err = stet__journal_apply(&p->journal, &fact);
        }
    }
    return err;
}

/* Of several under one name the last one counts. */
static const stet__cmd *
parked_last(const stet__journal *j, const stet__cmd *cmd)
{
    return stet__journal_find(j, cmd->kind, cmd->name, cmd->occurrence);
}

/* Whether a step is over that was tried before is its future's to know while it is executed. One that
 * is told to stop instead has a place of its own there. */
static bool
parked_same(const stet__cmd *a, const stet__cmd *b)
{
    if (a->kind == STET__FACT_STEP && a->is_settled && b->is_settled)
        return a->code == b->code && !a->has_timer && !b->has_timer;
    if (a->kind == STET__FACT_STEP && a->is_settled != b->is_settled)
        return a->revision == b->revision && !a->has_timer && !b->has_timer;
    return a->completion == b->completion && a->revision == b->revision &&
           a->is_settled == b->is_settled && a->is_inherited == b->is_inherited &&
           a->has_timer == b->has_timer && a->has_mark == b->has_mark &&
           (!a->has_timer || a->until_ms == b->until_ms) && a->code == b->code &&
           a->chosen_at == b->chosen_at;
}

/* All that `of` waits for is in `in`, too, and the same. */
static void
parked_compare(fleet *w, const fleet_run *run, const stet__journal *of, const stet__journal *in,
               const char *who)
{
    for (const stet__cmd *cmd = of->waiting; cmd != NULL && !w->is_failed; cmd = cmd->next) {
        const stet__cmd *other = parked_last(in, cmd);

        if (parked_last(of, cmd) != cmd)
            continue;
        if (other == NULL || !parked_same(cmd, other))
            fleet_fail(w, run,
                       "%s: %s %s#%llu (revision %llu, completion %llu, code %d%s%s%s%s) is %s "
                       "(revision %llu, completion %llu, code %d%s%s%s%s)",
                       who, stet__fact_kind_name(cmd->kind), cmd->name,
                       (unsigned long long)cmd->occurrence, (unsigned long long)cmd->revision,
                       (unsigned long long)cmd->completion, cmd->code,
                       cmd->is_settled ? ", settled" : "", cmd->has_timer ? ", timer" : "",
                       cmd->has_mark ? ", mark" : "", cmd->is_inherited ? ", inherited" : "",
                       other == NULL ? "not in the other" : "another one",
                       other ? (unsigned long long)other->revision : 0,
                       other ? (unsigned long long)other->completion : 0, other ? other->code : 0,
                       other && other->is_settled ? ", settled" : "",
                       other && other->has_timer ? ", timer" : "",
                       other && other->has_mark ? ", mark" : "",
                       other && other->is_inherited ? ", inherited" : "");
    }
}

static void
parked_compare_run(fleet *w, const fleet_run *run, const stet__run *live, const stet__run *read)
{
#define SAME(field)                                                                                \
    if (live->field != read->field)                                                                \
    fleet_fail(w, run, "parked with %s %lld, and by its facts it is %lld", #field,                 \
               (long long)live->field, (long long)read->field)
    SAME(taken);
    SAME(failed);
    SAME(epoch);
    SAME(stop_code);
    SAME(is_stop_told);
    SAME(rollback);
    SAME(is_told);
    SAME(awaits_help);
    SAME(is_paused);
    SAME(is_failed);
    SAME(generation);
#undef SAME
}

static int
parked_on_letter(void *arg, stet_bytes signal, const stet__letter *letter)
{
    uint64_t hash = stet__hash64(signal.data, signal.len, letter->next == NULL);

    hash = stet__hash64(letter->id.data, letter->id.len, hash);
    /* Names come in any order. */
    *(uint64_t *)arg += stet__hash64(letter->value.data, letter->value.len, hash);
    return STET_OK;
}

static uint64_t
parked_updates(const stet__update *u)
{
    uint64_t hash = 0;

    for (; u != NULL; u = u->next)
        hash = stet__hash64(u->name, strlen(u->name), hash + u->revision);
    return hash;
}

/* Signals nobody took, and updates: those to be made, and those that were. */
static void
parked_compare_mail(fleet *w, const fleet_run *run, const stet__journal *live,
                    const stet__journal *read)
{
    uint64_t has = 0, should = 0;

    (void)stet__journal_letters(live, parked_on_letter, &has);
    (void)stet__journal_letters(read, parked_on_letter, &should);
    if (has != should)
        fleet_fail(w, run, "parked with other signals than those that nobody took by its facts");
    if (parked_updates(live->asked) != parked_updates(read->asked) ||
        parked_updates(live->updates) != parked_updates(read->updates))
        fleet_fail(w, run, "parked with other updates than by its facts");
}

/* Nothing has come since, so each timer it relies on is there. */
static void
parked_timers(fleet *w, const fleet_run *run, const stet__journal *j, stet_id id)
{
    for (const stet__cmd *cmd = j->waiting; cmd != NULL && !w->is_failed; cmd = cmd->next)
        if (cmd->has_timer && !cmd->is_settled && parked_last(j, cmd) == cmd &&
            stet__mem_timer(w->db, cmd->until_ms, id, cmd->completion) == NULL)
            fleet_fail(w, run, "parked with %s %s#%llu, whose timer is not there",
                       stet__fact_kind_name(cmd->kind), cmd->name,
                       (unsigned long long)cmd->occurrence);
}

static void
parked_check(fleet *w, const stet__claim *claim)
{
    const stet_ctx  *c = claim->ctx;
    const mem_run   *row = stet__mem_run(w->db, claim->run);
    const fleet_run *run = fleet_run_of(w, claim->run);
    parked_picture   p;

    if (row == NULL || run == NULL || claim->is_refused || row->row.journal != c->run.journal ||
        row->row.epoch != claim->epoch)
        return;
    stet__arena_init(&p.arena, &stet__platform_real()->alloc);
    stet__run_init(&p.run, &p.arena, claim->run);
    stet__journal_init(&p.journal, &p.arena, &stet__platform_real()->alloc);
    if (parked_read(&p, row) == STET_OK && p.run.journal == c->run.journal) {
        w->stats.parked++;
        parked_compare_run(w, run, &c->run, &p.run);
        parked_compare(w, run, &c->journal, &p.journal, "parked");
        parked_compare(w, run, &p.journal, &c->journal, "recorded");
        parked_compare_mail(w, run, &c->journal, &p.journal);
        if (row->row.inbox == c->run.taken)
            parked_timers(w, run, &c->journal, claim->run);
    }
    stet__journal_free(&p.journal);
    stet__arena_free(&p.arena);
}

void
fleet_check_parked(fleet *w)
{
    for (size_t i = 0; i < w->n_nodes; i++) {
        const stet_engine *e = w->nodes[i].engine;

        for (const stet__claim *claim = e != NULL ? e->parked_newest : NULL;
             claim != NULL && !w->is_failed; claim = claim->older)
            parked_check(w, claim);
    }
}
