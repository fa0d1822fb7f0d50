/* Loading a run: its row, its journal in pages, the inbox entries it took, into run and journal. */
#include <string.h>

#include "engine/engine.h"
#include "engine/offline.h"

#define LOAD_PAGE_ROWS 256u
#define LOAD_ENDED_ROWS 16u /* with the row of a run that may have ended: more would mostly be read in vain */
#define LOAD_TRIES_MAX 100

typedef struct load_row {
    stet__arena  *arena;
    stet_run_row *row;
    bool          failed;
    stet__page   *page; /* or NULL */
} load_row;

static const char *
load_text(load_row *l, const char *text)
{
    char *copy = text != NULL ? stet__arena_str(l->arena, text) : NULL;

    l->failed = l->failed || (text != NULL && copy == NULL);
    return copy;
}

static int
load_on_row(void *arg, const stet_run_row *row)
{
    load_row *l = arg;

    *l->row = *row;
    l->row->handler = load_text(l, row->handler);
    l->row->key = load_text(l, row->key);
    l->row->lane = load_text(l, row->lane);
    l->row->group = load_text(l, row->group);
    l->row->reason = load_text(l, row->reason);
    l->row->extra.data = stet__arena_copy(l->arena, row->extra.data, row->extra.len);
    return l->failed || l->row->extra.data == NULL ? STET_ENOMEM : STET_OK;
}

static int
load_on_page(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    load_row       *l = arg;
    stet__page     *page = l->page;
    stet__page_row *at;

    if (page->n == page->cap) {
        size_t          cap = stet__cap_next(l->arena->alloc, page->cap, 8);
        stet__page_row *grown = stet__arena_get(l->arena, cap * sizeof *grown);

        if (grown == NULL)
            return stet__fail(STET_ENOMEM, "out of memory while loading a run");
        if (page->n > 0)
            memcpy(grown, page->rows, page->n * sizeof *grown);
        page->rows = grown;
        page->cap = cap;
    }
    at = &page->rows[page->n++];
    *at = (stet__page_row){ first, count, { stet__arena_copy(l->arena, facts.data, facts.len), facts.len } };
    return at->facts.data != NULL ? STET_OK : stet__fail(STET_ENOMEM, "out of memory while loading a run");
}

static int
load_ask(stet_engine *e, stet_id id, load_row *l, bool if_ended)
{
    int err;

    if (l->page == NULL || e->store->ops->load == NULL)
        return e->store->ops->run(e->store, id, load_on_row, l);
    l->page->limit = if_ended ? LOAD_ENDED_ROWS : LOAD_PAGE_ROWS;
    err = e->store->ops->load(e->store, id, if_ended, l->page->limit, load_on_row, load_on_page, l);
    l->page->is_read = err == STET_OK && (l->row->is_terminal != 0 || !if_ended);
    return err;
}

int
stet__load_row(stet_engine *e, stet_id id, stet__arena *arena, stet_run_row *row, stet__fact *extra)
{
    return stet__load_row_page(e, id, arena, row, extra, false, NULL);
}

int
stet__load_row_page(stet_engine *e, stet_id id, stet__arena *arena, stet_run_row *row, stet__fact *extra, bool if_ended,
                    stet__page *page)
{
    load_row   l = { arena, row, false, page };
    stet_bytes in;
    int        err;

    memset(row, 0, sizeof *row);
    memset(extra, 0, sizeof *extra);
    if (page != NULL)
        memset(page, 0, sizeof *page);
    if ((err = load_ask(e, id, &l, if_ended)) != STET_OK) {
        char text[STET_ID_TEXT_MAX];

        stet__id_text(text, STET__ID_RUN, id);
        if (err == STET_ENOTFOUND)
            return stet__fail(err, "there is no run %s in %s; ended runs are removed after their retention", text, e->url);
        return err;
    }
    in = row->extra;
    return in.len > 0 ? stet__fact_decode(extra, &in) : STET_OK;
}

/* ---- facts --------------------------------------------------------------------------------------- */

typedef struct load_facts {
    stet_engine   *e;
    stet__run     *run;
    stet__journal *journal;
    uint64_t       next;    /* revision expected next */
    uint64_t       upto;    /* what was there before the inbox was read; later facts may have taken later entries */
    uint64_t       bad;
    size_t         rows;
    bool           skips_inbox; /* what was taken is not looked at */
    bool           is_passed; /* the run began anew while it was read */
    /* Inbox entries, copied: they are applied where the journal took them. */
    stet__arena    scratch;
    stet_bytes    *inbox;
    size_t         n_inbox, cap_inbox;
    uint64_t       inbox_first;
    stet__fact_seen_fn fn; /* or NULL */
    void              *arg;
} load_facts;

static int
load_on_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    load_facts *l = arg;
    stet_bytes *entry;

    (void)count;
    if (l->n_inbox == l->cap_inbox) {
        size_t      cap = stet__cap_next(l->scratch.alloc, l->cap_inbox, 16);
        stet_bytes *grown = stet__arena_get(&l->scratch, cap * sizeof *grown);

        if (grown == NULL)
            return stet__fail(STET_ENOMEM, "out of memory while loading a run");
        if (l->n_inbox > 0)
            memcpy(grown, l->inbox, l->n_inbox * sizeof *grown);
        l->inbox = grown;
        l->cap_inbox = cap;
    }
    if (l->n_inbox == 0)
        l->inbox_first = first;
    entry = &l->inbox[l->n_inbox++];
    entry->len = facts.len;
    entry->data = stet__arena_copy(&l->scratch, facts.data, facts.len);
    l->rows++;
    return entry->data != NULL ? STET_OK : stet__fail(STET_ENOMEM, "out of memory while loading a run");
}

static int
load_take(load_facts *l, uint64_t from, uint64_t upto)
{
    stet__fact fact;
    int        err;

    for (uint64_t seq = from; seq <= upto && !l->skips_inbox; seq++) {
        stet_bytes in;

        if (seq < l->inbox_first || seq - l->inbox_first >= l->n_inbox)
            return stet__fail(STET_ECORRUPT, "inbox entry %llu was taken and is not there", (unsigned long long)seq);
        in = l->inbox[seq - l->inbox_first];
        if ((err = stet__fact_decode(&fact, &in)) != STET_OK)
            return err == STET_END ? stet__fail(STET_ECORRUPT, "an empty inbox entry") : err;
        if (l->fn != NULL && (err = l->fn(l->arg, &fact, seq, true)) != STET_OK)
            return err;
        fact.revision = l->run->journal + 1; /* of the fact that takes it */
        if ((err = stet__run_apply_inbox(l->run, &fact)) != STET_OK ||
            (l->journal != NULL && (err = stet__journal_apply(l->journal, &fact)) != STET_OK))
            return err;
    }
    return STET_OK;
}

/* Does a generation begin there? Else the journal lost its beginning, unless that cannot be told: then the fact is what is
 * damaged. */
static bool
load_may_be_anew(uint64_t first, stet_bytes facts)
{
    stet__fact fact;

    return stet__fact_decode(&fact, &facts) != STET_OK ||
           (fact.kind == STET__FACT_STARTED && fact.generation != 0 && (uint64_t)fact.since == first);
}

static int
load_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    load_facts *l = arg;
    stet__fact  fact;
    int         err;

    l->rows++;
    if (first > l->upto) {
        l->is_passed = l->next <= l->upto && l->upto != UINT64_MAX;
        return STET_END;
    }
    if (first != l->next && l->run->journal == 0 && load_may_be_anew(first, facts))
        l->next = first;
    if (first != l->next) {
        l->bad = l->next;
        return stet__fail(STET_ECORRUPT, "revision %llu is missing", (unsigned long long)l->next);
    }
    while ((err = stet__fact_decode(&fact, &facts)) == STET_OK) {
        fact.revision = l->next;
        if (fact.kind == STET__FACT_STARTED && l->run->journal != 0 && fact.generation != 0) {
            l->is_passed = true;
            return STET_END;
        }
        if (fact.kind == STET__FACT_TAKEN &&
            (err = load_take(l, l->run->taken + 1,
                             (uint64_t)fact.number - (STET__MUTANT(inbox_short) ? 1 : 0))) != STET_OK)
            break;
        if ((err = stet__run_apply(l->run, &fact)) != STET_OK)
            break;
        if (l->journal != NULL && (err = stet__journal_apply(l->journal, &fact)) != STET_OK)
            break;
        if (l->fn != NULL && (err = l->fn(l->arg, &fact, 0, false)) != STET_OK)
            break;
        l->next++;
    }
    if (err == STET_END && l->next != first + count)
        err = stet__fail(STET_ECORRUPT, "%u facts at revision %llu, found %llu", count, (unsigned long long)first,
                         (unsigned long long)(l->next - first));
    if (err == STET_END)
        return STET_OK;
    l->bad = l->next;
    return err;
}

static int
load_inbox(load_facts *l)
{
    uint64_t from = l->run->taken + 1;
    int      err;

    do {
        l->rows = 0;
        if ((err = l->e->store->ops->inbox(l->e->store, l->run->id, from, LOAD_PAGE_ROWS, load_on_inbox, l)) != STET_OK)
            return err;
        if (l->n_inbox > 0)
            from = l->inbox_first + l->n_inbox;
    } while (l->rows == LOAD_PAGE_ROWS);
    return STET_OK;
}

/* Entries behind those the journal took. */
static int
load_untaken(load_facts *l)
{
    uint64_t   end = l->n_inbox > 0 ? l->inbox_first + l->n_inbox - 1 : 0;
    stet__fact fact;
    stet_bytes in;
    int        err;

    for (uint64_t seq = l->run->taken + 1; l->fn != NULL && seq <= end; seq++) {
        in = l->inbox[seq - l->inbox_first];
        memset(&fact, 0, sizeof fact);
        if (stet__fact_decode(&fact, &in) != STET_OK)
            fact.kind = (stet__fact_kind)0; /* whoever takes it will be stuck on it */
        if ((err = l->fn(l->arg, &fact, seq, false)) != STET_OK)
            return err;
    }
    return STET_OK;
}

/* `page` may be NULL. */
static int
load_journal(load_facts *l, const stet__page *page)
{
    int err = STET_OK;

    l->rows = 0;
    for (size_t i = 0; page != NULL && page->is_read && err == STET_OK && i < page->n; i++)
        err = load_on_facts(l, page->rows[i].first, page->rows[i].count, page->rows[i].facts);
    if (page != NULL && page->is_read && (err != STET_OK || page->n < page->limit))
        return err;
    do {
        l->rows = 0;
        err = l->e->store->ops->journal(l->e->store, l->run->id, l->next, LOAD_PAGE_ROWS, load_on_facts, l);
    } while (err == STET_OK && l->rows == LOAD_PAGE_ROWS);
    return err;
}

static int
load_all(stet_engine *e, stet__run *run, stet__journal *journal, uint64_t upto, bool has_inbox, const stet__page *page,
         uint64_t *bad_revision, stet__fact_seen_fn fn, void *arg)
{
    load_facts l = { 0 };
    int        err = STET_OK;

    l.fn = fn;
    l.arg = arg;
    l.e = e;
    l.run = run;
    l.journal = journal;
    l.next = 1;
    l.upto = upto;
    stet__arena_init(&l.scratch, &e->p->alloc);
    if (has_inbox)
        err = load_inbox(&l);
    if (err == STET_OK)
        err = load_journal(&l, page);
    if (err == STET_END)
        err = STET_OK;
    if (l.is_passed)
        err = stet__fail(STET_ECONFLICT, "the run began anew while it was read; look again");
    if (err == STET_OK && run->journal == 0)
        err = stet__fail(STET_ECORRUPT, "the run has no facts");
    if (err == STET_OK)
        err = load_untaken(&l);
    stet__arena_free(&l.scratch);
    *bad_revision = l.bad;
    return err;
}

static int
load_on_last(void *arg, const stet_run_row *row)
{
    *(uint64_t *)arg = row->journal;
    return STET_OK;
}

int
stet__load_facts(stet_engine *e, stet__run *run, stet__journal *journal, const stet_run_row *row, uint64_t *bad_revision)
{
    return stet__load_facts_page(e, run, journal, row, NULL, bad_revision);
}

int
stet__load_facts_page(stet_engine *e, stet__run *run, stet__journal *journal, const stet_run_row *row,
                      const stet__page *page, uint64_t *bad_revision)
{
    uint64_t upto = row->journal - (STET__MUTANT(journal_short) && row->session != 0 ? 1 : 0);
    int      err = load_all(e, run, journal, upto, row->inbox > 0, page, bad_revision, NULL, NULL);

    /* A handler can begin anew for ever, faster than we read, but hardly so often. */
    for (int i = 0; err == STET_ECONFLICT && i < LOAD_TRIES_MAX; i++) {
        stet__run_init(run, run->arena, run->id);
        if (journal != NULL) {
            stet__journal_free(journal);
            stet__journal_init(journal, run->arena, &e->p->alloc);
        }
        if ((err = e->store->ops->run(e->store, run->id, load_on_last, &upto)) == STET_OK)
            err = load_all(e, run, journal, upto, true, NULL, bad_revision, NULL, NULL);
    }
    return err == STET_ECONFLICT ? stet__fail(STET_EBUSY, "the run began anew all the time it was read; try again") : err;
}

int
stet__load_facts_seen(stet_engine *e, stet__run *run, stet__journal *journal, uint64_t upto, uint64_t *bad_revision,
                      stet__fact_seen_fn fn, void *arg)
{
    return load_all(e, run, journal, upto, true, NULL, bad_revision, fn, arg);
}

/* Entries nobody took yet, as the next execution would take them first of all. */
static int
load_take_rest(load_facts *l)
{
    int err = STET_OK;

    if (l->n_inbox > 0 && !stet__run_is_terminal(l->run))
        err = load_take(l, l->run->taken + 1, l->inbox_first + l->n_inbox - 1);
    return err;
}

int
stet__load_tape(stet__alloc *alloc, stet__run *run, stet__journal *journal, const stet__tape *tape,
                uint64_t *bad_revision)
{
    return stet__load_tape_seen(alloc, run, journal, tape, bad_revision, NULL, NULL);
}

int
stet__load_tape_seen(stet__alloc *alloc, stet__run *run, stet__journal *journal, const stet__tape *tape,
                     uint64_t *bad_revision, stet__fact_seen_fn fn, void *arg)
{
    load_facts l = { .run = run, .journal = journal, .next = 1, .upto = UINT64_MAX, .fn = fn, .arg = arg };
    int        err = STET_OK;

    stet__arena_init(&l.scratch, alloc);
    for (size_t i = 0; err == STET_OK && i < tape->n_inbox; i++)
        err = load_on_inbox(&l, tape->inbox[i].first, 1, tape->inbox[i].facts);
    for (size_t i = 0; err == STET_OK && i < tape->n_journal; i++)
        err = load_on_facts(&l, tape->journal[i].first, tape->journal[i].count, tape->journal[i].facts);
    if (l.is_passed)
        err = stet__fail(STET_ECORRUPT, "a generation behind facts of the one before");
    if (err == STET_OK && run->journal < tape->revision) {
        l.bad = run->journal + 1;
        err = stet__fail(STET_ECORRUPT, "revision %llu is missing", (unsigned long long)l.bad);
    }
    if (err == STET_OK && !tape->is_as_taken)
        err = load_take_rest(&l);
    stet__arena_free(&l.scratch);
    *bad_revision = l.bad;
    return err;
}

static void
load_begin(stet_engine *e, stet__loaded *l, stet_id id)
{
    memset(l, 0, sizeof *l);
    stet__arena_init(&l->arena, &e->p->alloc);
    stet__journal_init(&l->journal, &l->arena, &e->p->alloc);
    stet__run_init(&l->run, &l->arena, id);
}

/* What follows the row; `err` is what came of reading that. */
static int
load_end(stet_engine *e, stet__loaded *l, stet_id id, bool with_journal, const stet__page *page, int err)
{
    int again;

    if (err == STET_OK)
        err = stet__load_facts_page(e, &l->run, with_journal ? &l->journal : NULL, &l->row, page, &l->bad_revision);
    /* Retention may have removed it between the two looks. */
    if (err == STET_ECORRUPT && l->run.journal == 0 && l->bad_revision == 0 &&
        (again = stet__load_row(e, id, &l->arena, &l->row, &l->extra)) != STET_OK)
        err = again;
    if (err != STET_OK)
        stet__loaded_free(l);
    else
        l->failed = l->run.failed;
    return err;
}

int
stet__load(stet_engine *e, stet__loaded *l, stet_id id, bool with_journal)
{
    stet__page page;
    int        err;

    load_begin(e, l, id);
    err = stet__load_row_page(e, id, &l->arena, &l->row, &l->extra, false, &page);
    return load_end(e, l, id, with_journal, &page, err);
}

/* A run that completed says so in its journal, whatever it took from its inbox: a page of that need not be asked for.
 * False: one that cannot be understood so, or not at all, or whose attempts somebody may have set back from outside. */
static bool
load_completed(stet_engine *e, stet__loaded *l, const stet__page *page)
{
    load_facts facts = { .e = e, .run = &l->run, .next = 1, .upto = l->row.journal, .skips_inbox = true };
    int        err;

    stet__arena_init(&facts.scratch, &e->p->alloc);
    err = load_journal(&facts, page);
    stet__arena_free(&facts.scratch);
    return (err == STET_OK || err == STET_END) && l->run.status == STET_STATUS_COMPLETED && l->run.failed == 0;
}

int
stet__load_if(stet_engine *e, stet__loaded *l, stet_id id, bool (*is_wanted)(const stet_run_row *row))
{
    stet__page page;
    int        err;

    load_begin(e, l, id);
    if ((err = stet__load_row_page(e, id, &l->arena, &l->row, &l->extra, true, &page)) == STET_OK &&
        !is_wanted(&l->row)) {
        stet__loaded_free(l);
        return STET_END;
    }
    if (err == STET_OK && l->row.status == STET_STATUS_COMPLETED && l->row.inbox > 0) {
        if (load_completed(e, l, &page))
            return STET_OK;
        stet__run_init(&l->run, &l->arena, id);
    }
    return load_end(e, l, id, false, &page, err);
}

static int
load_on_next(void *arg, const stet__fact *f, uint64_t seq, bool is_taken)
{
    stet__loaded *l = arg;
    stet__fact    fact = *f;
    int           err;

    if (seq == 0 || is_taken) {
        l->failed = l->run.failed;
        l->journal.orphans = NULL; /* stopped by who took the rewind */
        return STET_OK;
    }
    if (fact.kind == 0)
        return stet__fail(STET_ECORRUPT, "inbox entry %llu is not readable", (unsigned long long)seq);
    fact.revision = l->run.journal + 1;
    if (stet__run_is_terminal(&l->run))
        return STET_OK;
    if ((err = stet__run_apply_inbox(&l->run, &fact)) != STET_OK)
        return err;
    return stet__journal_apply(&l->journal, &fact);
}

int
stet__load_next(stet_engine *e, stet__loaded *l, stet_id id)
{
    uint64_t bad;
    int      err, tries = 0;

    do {
        load_begin(e, l, id);
        if ((err = stet__load_row(e, id, &l->arena, &l->row, &l->extra)) == STET_OK)
            err = stet__load_facts_seen(e, &l->run, &l->journal, l->row.journal, &bad, load_on_next, l);
        if (err != STET_OK)
            stet__loaded_free(l);
    } while (err == STET_ECONFLICT && ++tries < LOAD_TRIES_MAX);
    return err;
}

void
stet__loaded_free(stet__loaded *l)
{
    stet__journal_free(&l->journal);
    stet__arena_free(&l->arena);
}
