/* Retention: ended runs are removed when their time has come, with everything that points to them.
 *
 * What they wrote (object state) stays. The unit that removes the facts of its last writer turns
 * the fact itself into a baseline, so that state can be rebuilt from baselines and the facts that
 * are left. While there is an audit hook somewhere (mirror.c), a run stays until all of it was told,
 * for audit_hold_ms at most. Idempotency keys, labels and awakeables go with their run, in the same unit; keys of
 * children with their parent. What was given out once (stet_once) stays given out.
 */
#include <stddef.h>
#include <string.h>

#include "engine/engine.h"

#define PURGE_PAGE 200u
#define PURGE_PAGES_MAX 20
#define PURGE_PAGES_AGAIN 2 /* of those between two sweeps */
#define PURGE_CHILDREN_MAX 100000u
#define PURGE_LATE_SWEEPS 12  /* beyond that it is told that a run waits for the audit hook */
#define PURGE_BASES_MAX 1000u /* looked at in a round */

typedef struct purge_row {
    stet_id  id;
    uint64_t journal, inbox;
    int64_t  until_ms; /* the end of its retention */
} purge_row;

typedef struct purge_page {
    stet_engine *e;
    int64_t      now_ms;
    size_t       n, seen;
    uint64_t     mirror; /* stet__mirror_version() */
    size_t       lost;   /* runs the audit hook was not told of in time */
    stet_id      last;
    purge_row    found[PURGE_PAGE]; /* n of them */
} purge_page;

static int
purge_on_row(void *arg, const stet_run_row *row)
{
    purge_page *page = arg;
    stet_bytes  in = row->extra;
    stet__fact  extra;
    int64_t     keep_ms = page->e->config.retention_ms;

    page->seen++;
    page->last = row->id;
    if (row->created_ms < page->e->purge_oldest_ms)
        page->e->purge_oldest_ms = row->created_ms;
    if (!row->is_terminal)
        return STET_OK;
    if (in.len > 0 && stet__fact_decode(&extra, &in) == STET_OK && extra.retention_ms > 0 &&
        !STET__MUTANT(retention_forgotten))
        keep_ms = extra.retention_ms;
    keep_ms = stet__time_add(keep_ms, STET__MUTANT(purge_by_age) ? row->created_ms : row->ended_ms);
    if (keep_ms <= page->now_ms)
        page->found[page->n++] = (purge_row){ row->id, row->journal, row->inbox, keep_ms };
    return STET_OK;
}

static bool
purge_value(stet__work *w, const char *space, stet_bytes key)
{
    stet_op *op = stet__work_op(w, STET_OP_VALUE_DEL, (stet_id){ { 0 } });

    if (op == NULL)
        return false;
    op->space = space;
    return stet__work_bytes(w, &op->key, key);
}

/* ---- baselines ------------------------------------------------------------------------------- */

static int
purge_put_base(stet__work *w, const char *space, stet_bytes key, uint64_t version, stet_id run,
               uint64_t revision, stet_bytes data)
{
    stet_cond *cond = stet__work_cond(w, STET_COND_VALUE, run);
    stet_op   *op = stet__work_op(w, STET_OP_VALUE_PUT, run);

    if (cond == NULL || op == NULL || !stet__work_bytes(w, &cond->key, key) ||
        !stet__work_bytes(w, &op->data, data))
        return STET_ENOMEM;
    cond->space = op->space = space;
    cond->number = version;
    op->key = cond->key;
    op->number = revision;
    return STET_OK;
}

/* Is this write the last one of its entry, so that it must outlive its run? If another run is the
 * writer the store knows, that one's fact or its baseline is there. An entry that is absent was
 * cleared; by whom is not known. */
typedef enum purge_place { PURGE_PASSED, PURGE_MAYBE_LAST, PURGE_LAST } purge_place;

static int
purge_where(stet_engine *e, const stet__wrote *wrote, stet_id run, purge_place *where)
{
    stet_value v = { 0 };
    int        err = e->store->ops->value(e->store, STET__SPACE_STATE, wrote->key, &v);

    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    *where = PURGE_PASSED;
    if (err == STET_OK && stet__id_equal(v.run, run))
        *where = PURGE_LAST;
    else if (err == STET_ENOTFOUND && wrote->fact.kind == STET__FACT_STATE_CLEAR)
        *where = PURGE_MAYBE_LAST;
    return err == STET_ENOTFOUND ? STET_OK : err;
}

/* The baseline goes, if it is still that one. */
static int
purge_drop_base(stet__work *w, stet_bytes key, uint64_t version)
{
    stet_cond *cond = stet__work_cond(w, STET_COND_VALUE, (stet_id){ { 0 } });

    if (cond == NULL || !stet__work_bytes(w, &cond->key, key) ||
        !purge_value(w, STET__SPACE_BASE_STATE, key))
        return STET_ENOMEM;
    cond->space = STET__SPACE_BASE_STATE;
    cond->number = version;
    return STET_OK;
}

static int
purge_wrote(stet_engine *e, stet__work *w, const stet__wrote *wrote, const stet_id *run)
{
    stet__fact  fact = stet__wrote_base(wrote, run), older;
    stet_value  v = { 0 };
    stet_bytes  in, data;
    purge_place where;
    bool        is_over = false, is_newer = true;
    int         err;

    if ((err = purge_where(e, wrote, *run, &where)) != STET_OK)
        return err;
    if ((err = e->store->ops->value(e->store, STET__SPACE_BASE_STATE, wrote->key, &v)) != STET_OK &&
        err != STET_ENOTFOUND)
        return err;
    in = v.data;
    if (err == STET_OK && stet__fact_decode(&older, &in) == STET_OK) {
        is_over = fact.replaces != 0 && fact.replaces == stet__wrote_writer(&older);
        is_newer = where == PURGE_LAST || stet__wrote_later(&fact, &older);
    }
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    /* A baseline that this write replaced goes with it: nobody else would know that it was replaced. */
    if (where == PURGE_PASSED || !is_newer)
        return is_over && !STET__MUTANT(base_kept) ? purge_drop_base(w, wrote->key, v.version) : STET_OK;
    if (!stet__work_fact(w, &data, &fact))
        return STET_ENOMEM;
    return purge_put_base(w, STET__SPACE_BASE_STATE, wrote->key, v.version, *run,
                          wrote->fact.revision, data);
}

/* The key of a child goes with its parent, who may still start it again. That the parent is there is a condition:
 * it may be on its way out itself, and whoever removed it did not see this baseline, which would stay for ever. */
static int
purge_child_key(stet_engine *e, stet__work *w, const stet__expect *x, const stet__want_value *want)
{
    stet_run_row row;
    stet__fact   extra;
    stet_value   v = { 0 };
    stet_cond   *cond;
    int          err;

    /* A generation of its parent that came later may have used it again. */
    if ((err = e->store->ops->value(e->store, STET__SPACE_CHILD, want->key, &v)) != STET_OK)
        return err == STET_ENOTFOUND ? STET_OK : err;
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    if (!stet__id_equal(v.run, x->l.run.id))
        return STET_OK;
    v = (stet_value){ 0 };
    err = stet__load_row(e, x->l.run.parent, &w->arena, &row, &extra);
    if (err == STET_ENOTFOUND)
        return purge_value(w, STET__SPACE_CHILD, want->key) ? STET_OK : STET_ENOMEM;
    if (err != STET_OK)
        return err;
    if ((cond = stet__work_cond(w, STET_COND_JOURNAL, x->l.run.parent)) == NULL)
        return STET_ENOMEM;
    cond->number = row.journal;
    if ((err = e->store->ops->value(e->store, STET__SPACE_BASE_CHILD, want->key, &v)) != STET_OK &&
        err != STET_ENOTFOUND)
        return err;
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    return purge_put_base(w, STET__SPACE_BASE_CHILD, want->key, v.version, x->l.run.id, 1,
                          want->data);
}

/* ---- one run --------------------------------------------------------------------------------- */

/* In both spaces: the baseline may be in a unit that is on its way. */
static int
purge_on_key(void *work, stet_bytes key, const stet_value *value)
{
    (void)value;
    return purge_value(work, STET__SPACE_CHILD, key) && purge_value(work, STET__SPACE_BASE_CHILD, key)
               ? STET_OK
               : STET_ENOMEM;
}

/* All of a parent: its children's keys begin with its ID. */
static int
purge_children(stet_engine *e, stet__work *w, stet_id run)
{
    static const char *const spaces[] = { STET__SPACE_CHILD, STET__SPACE_BASE_CHILD };
    int                      err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < 2; i++)
        err = e->store->ops->values(e->store, spaces[i], stet__id_bytes(&run), NULL,
                                    PURGE_CHILDREN_MAX, purge_on_key, w);
    return err;
}

/* Does it follow from what the run did, not from its start? */
static bool
purge_is_of_facts(const char *space)
{
    return strcmp(space, STET__SPACE_AWAKEABLE) == 0 || strcmp(space, STET__SPACE_TOPIC) == 0 ||
           strcmp(space, STET__SPACE_BOUNDARY) == 0;
}

static int
purge_facts(stet_engine *e, stet__work *w, const stet__expect *x)
{
    stet_id run = x->l.run.id;
    int     err;

    for (const stet__want_value *want = x->values; want != NULL; want = want->next)
        if (purge_is_of_facts(want->space) && !purge_value(w, want->space, want->key))
            return STET_ENOMEM;
    for (const stet__wrote *wrote = x->wrote; wrote != NULL && !STET__MUTANT(turn_baseless); wrote = wrote->next)
        if ((err = purge_wrote(e, w, wrote, &run)) != STET_OK)
            return err;
    return purge_children(e, w, run);
}

/* What outlives the generation whose facts tell of it. */
static int
purge_keep_answer(stet__work *w, stet_id run, const stet__want_value *want)
{
    stet_op *op = stet__work_op(w, STET_OP_VALUE_PUT, run);

    if (op == NULL || !stet__work_bytes(w, &op->key, want->key) || !stet__work_bytes(w, &op->data, want->data))
        return STET_ENOMEM;
    op->space = STET__SPACE_BASE_UPDATE;
    op->number = want->revision;
    return purge_value(w, want->space, want->key) ? STET_OK : STET_ENOMEM;
}

int
stet__purge_generation(stet_engine *e, stet__work *w, const stet__expect *x)
{
    int err = purge_facts(e, w, x);

    for (const stet__want_value *want = x->values; err == STET_OK && want != NULL; want = want->next)
        if (strcmp(want->space, STET__SPACE_UPDATE) == 0)
            err = purge_keep_answer(w, x->l.run.id, want);
    return err;
}

typedef struct purge_past {
    stet__work *w;
    const char *space;
} purge_past;

static int
purge_on_past(void *arg, stet_bytes key, const stet_value *value)
{
    purge_past *past = arg;

    (void)value;
    return purge_value(past->w, past->space, key) ? STET_OK : STET_ENOMEM;
}

/* What is kept of the generations before; its keys begin with the run's ID. */
static int
purge_generations(stet_engine *e, stet__work *w, const stet__run *run)
{
    static const char *const spaces[] = { STET__SPACE_BASE_UPDATE, STET__SPACE_BASE_UNTOLD };
    int                      err = STET_OK;

    for (size_t i = 0; err == STET_OK && run->generation > 0 && i < sizeof spaces / sizeof spaces[0]; i++) {
        purge_past past = { w, spaces[i] };

        err = e->store->ops->values(e->store, past.space, stet__id_bytes(&run->id), NULL, PURGE_CHILDREN_MAX,
                                    purge_on_past, &past);
    }
    return err;
}

static int
purge_ops(stet_engine *e, stet__work *w, stet__expect *x)
{
    stet_id run = x->l.run.id;
    int     err;

    if ((err = purge_facts(e, w, x)) != STET_OK || (err = purge_generations(e, w, &x->l.run)) != STET_OK)
        return err;
    for (const stet__want_value *want = x->values; want != NULL; want = want->next) {
        if (strcmp(want->space, STET__SPACE_CHILD) == 0) {
            if ((err = purge_child_key(e, w, x, want)) != STET_OK)
                return err;
        } else if (strcmp(want->space, STET__SPACE_BASE_ONCE) != 0 && !purge_is_of_facts(want->space) &&
                   !purge_value(w, want->space, want->key))
            return STET_ENOMEM;
    }
    return purge_value(w, STET__SPACE_RETRY, stet__id_bytes(&run)) &&
                   purge_value(w, STET__SPACE_DISCARD, stet__id_bytes(&run)) &&
                   purge_value(w, STET__SPACE_BASE_DISCARD, stet__id_bytes(&run)) &&
                   purge_value(w, STET__SPACE_BASE_TOLD, stet__id_bytes(&run)) &&
                   stet__work_op(w, STET_OP_RUN_DEL, run) != NULL
               ? STET_OK
               : STET_ENOMEM;
}

/* That a run was retried is in the facts of the one that retries it, and nowhere else. */
static bool
purge_is_needed(stet_engine *e, stet__work *w, const stet__expect *x)
{
    stet_run_row row;
    stet__fact   extra;

    return !stet__id_is_zero(x->l.run.retry_of) && !x->l.run.is_fork &&
           stet__load_row(e, x->l.run.retry_of, &w->arena, &row, &extra) != STET_ENOTFOUND;
}

static void
purge_run(stet_engine *e, stet_id run, uint64_t mirror)
{
    stet__expect x;
    stet__work  *w;

    if (stet__expect_load(e, &x, run, NULL) != STET_OK)
        return;
    /* Unreadable ones are kept for who looks into it. */
    if (!x.is_unreadable && (w = stet__work_new(e, NULL, NULL)) != NULL) {
        if (!purge_is_needed(e, w, &x) && purge_ops(e, w, &x) == STET_OK && stet__mirror_guard(w, mirror) &&
            stet__stop_guard(e, w))
            stet__submit(e, w);
        else
            stet__work_free(w);
    }
    stet__expect_free(&x);
}

/* Must it stay for the audit hook? An ended run does not change, so once it was told all of it was. */
static bool
purge_is_held(stet_engine *e, purge_page *page, const purge_row *row)
{
    int64_t over_ms = page->now_ms - row->until_ms;
    bool    has_told = true;

    if (page->mirror == 0 || STET__MUTANT(audit_purged))
        return false;
    if (stet__mirror_has_told(e, row->id, row->journal, row->inbox, &has_told) != STET_OK)
        return true;
    if (has_told)
        return false;
    if (over_ms >= e->config.audit_hold_ms) {
        page->lost++;
        return false;
    }
    if (over_ms > e->config.sweep_ms * PURGE_LATE_SWEEPS)
        e->purge_holds++; /* the hook may just be at it */
    return true;
}

/* ---- baselines that are of no use any more --------------------------------------------------- */

typedef struct purge_cleared {
    stet__arena arena;
    int64_t     oldest_ms;
    stet__work *w;
    stet_bytes  last;
    size_t      n, n_found, n_old;
    struct {
        stet_bytes key;
        uint64_t   version;
    } found[PURGE_PAGE];
} purge_cleared;

static int
purge_on_base(void *arg, stet_bytes key, const stet_value *value)
{
    purge_cleared *c = arg;
    stet_bytes     in = value->data;
    stet__fact     fact;

    c->n++;
    if ((c->last.data = stet__arena_copy(&c->arena, key.data, key.len)) == NULL)
        return STET_ENOMEM;
    c->last.len = key.len;
    if (stet__fact_decode(&fact, &in) != STET_OK || fact.kind != STET__FACT_STATE_CLEAR ||
        (fact.flags & STET__FACT_INITIAL) || fact.time_ms >= c->oldest_ms)
        return STET_OK;
    c->found[c->n_found].key = c->last;
    c->found[c->n_found++].version = value->version;
    return STET_OK;
}

static int
purge_on_any(void *arg, const stet_run_row *row)
{
    (void)row;
    *(bool *)arg = true;
    return STET_END;
}

/* Is there a run of the object whose entry it is? */
static int
purge_has_runs(stet_engine *e, stet__arena *arena, stet_bytes key, bool *has_runs)
{
    stet_run_query query = { .limit = 1 };
    const char    *service, *object, *name;
    int            err;

    *has_runs = false;
    if (!stet__value_key_parts(arena, key, &service, &object, &name))
        return STET_ENOMEM;
    if (name == NULL)
        return STET_OK;
    query.handler = service;
    query.key = object;
    err = e->store->ops->runs(e->store, &query, purge_on_any, has_runs);
    return err == STET_END ? STET_OK : err;
}

static int
purge_clear_page(stet_engine *e, purge_cleared *c)
{
    for (size_t i = 0; i < c->n_found; i++) {
        bool has_runs;
        int  err;

        c->n_old++;
        if (c->n_old <= e->purge_bases || c->n_old > e->purge_bases + PURGE_BASES_MAX)
            continue;
        if ((err = purge_has_runs(e, &c->arena, c->found[i].key, &has_runs)) != STET_OK)
            return err;
        if (!has_runs && (err = purge_drop_base(c->w, c->found[i].key, c->found[i].version)) != STET_OK)
            return err;
    }
    return STET_OK;
}

/* "It was cleared" contradicts writes that are older; they are facts of runs of its object. The time only spares most of
 * the looks: a clock may have been set back. One that has an initial value stays: it must not come back. */
static void
purge_clear_bases(stet_engine *e, int64_t oldest_ms)
{
    purge_cleared *c = stet__get_head(&e->p->alloc, sizeof *c, offsetof(purge_cleared, found));
    stet_bytes     all = { NULL, 0 };
    int            err = STET_OK;

    if (c == NULL)
        return;
    c->oldest_ms = oldest_ms;
    stet__arena_init(&c->arena, &e->p->alloc);
    do {
        stet_bytes after = c->last;
        bool       is_first = after.data == NULL;

        c->n = c->n_found = 0;
        if ((c->w = stet__work_new(e, NULL, NULL)) == NULL)
            break;
        err = e->store->ops->values(e->store, STET__SPACE_BASE_STATE, all,
                                    is_first ? NULL : &after, PURGE_PAGE, purge_on_base, c);
        if (err == STET_OK)
            err = purge_clear_page(e, c);
        if (err == STET_OK && c->w->unit.n_ops > 0 && stet__stop_guard(e, c->w))
            stet__submit(e, c->w);
        else
            stet__work_free(c->w);
    } while (err == STET_OK && c->n == PURGE_PAGE);
    e->purge_bases = c->n_old > e->purge_bases + PURGE_BASES_MAX ? e->purge_bases + PURGE_BASES_MAX : 0;
    stet__arena_free(&c->arena);
    stet__free(&e->p->alloc, c);
    (void)stet__committer_help(e);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* A round goes over all runs. What was there when it began was seen by it, or has been removed. */
static void
purge_round_done(stet_engine *e, int64_t now_ms)
{
    if (e->purge_has_removed && e->purge_began_ms != 0)
        purge_clear_bases(e, e->purge_oldest_ms < e->purge_began_ms ? e->purge_oldest_ms
                                                                    : e->purge_began_ms);
    if (e->purge_holds > 0 && atomic_load(&e->purge_held) == 0)
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, STET_OK,
                  "%zu ended runs are kept beyond their retention until the audit hook was told of them", e->purge_holds);
    atomic_store(&e->purge_held, e->purge_holds);
    e->purge_holds = 0;
    /* What was removed in this round may leave its baselines to the next. */
    e->purge_has_removed = e->purge_removes;
    e->purge_removes = false;
    e->purge_began_ms = now_ms;
    e->purge_oldest_ms = STET_NEVER;
}

/* One page from the cursor on. True: something was removed and more may be. */
static bool
purge_page_round(stet_engine *e, purge_page *page)
{
    stet_run_query query = { 0 };

    page->n = page->seen = page->lost = 0;
    query.oldest_first = true;
    query.before = e->purge_after;
    query.limit = PURGE_PAGE;
    query.created_to_ms = page->now_ms;
    if (e->store->ops->runs(e->store, &query, purge_on_row, page) != STET_OK)
        return false;
    if (page->n > 0 && stet__mirror_version(e, &page->mirror) != STET_OK)
        return false;
    for (size_t i = 0; i < page->n; i++)
        if (!purge_is_held(e, page, &page->found[i]))
            purge_run(e, page->found[i].id, page->mirror);
    (void)stet__committer_help(e);
    if (page->lost > 0)
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, STET_OK,
                  "%zu runs are removed whose trail the audit hook was not told: audit_hold_ms is over", page->lost);
    e->purge_removes = e->purge_removes || page->n > 0;
    /* Past the last page it begins again at the oldest, with the next sweep. */
    if (page->seen == PURGE_PAGE && stet__id_time_ms(page->last) < page->now_ms - 1000)
        e->purge_after = page->last;
    else {
        memset(&e->purge_after, 0, sizeof e->purge_after);
        purge_round_done(e, page->now_ms);
    }
    return page->n > 0 && page->seen == PURGE_PAGE;
}

/* An idle sweep reads one page; one that finds old runs goes on, within bounds, so that the keeper
 * is not kept from its timers. */
bool
stet__purge(stet_engine *e, bool is_again)
{
    purge_page *page;
    bool        has_more = true;

    if (stet__mirror_is_awaited(e)) /* it is to hear of all that ends here */
        return false;
    if ((page = stet__get_head(&e->p->alloc, sizeof *page, offsetof(purge_page, found))) == NULL)
        return false;
    page->e = e;
    page->now_ms = stet__store_now(e);
    for (int i = 0; i < (is_again ? PURGE_PAGES_AGAIN : PURGE_PAGES_MAX) && has_more; i++)
        has_more = purge_page_round(e, page);
    stet__free(&e->p->alloc, page);
    return has_more;
}
