/* Dead letters: retrying a run that ended without success, and discarding it. And forking any run from a step.
 *
 * A retry or fork is a new run. It inherits what was recorded and still stands: results of steps, sends, calls
 * that completed, sleeps that ended, signals and what waited for them, state writes. What failed is not
 * inherited and is tried again. A read of state is inherited only together with a write of that entry:
 * without the write it would be a stale value.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define DLQ_TRIES_MAX 20

typedef struct dlq_journal {
    stet_engine *e;
    stet__arena  arena;
    stet__fact  *facts; /* journal facts, inbox entries where they were taken */
    size_t       n, cap;
    stet_bytes  *inbox;
    size_t       n_inbox, cap_inbox, taken; /* taken: so many of those that are left */
    uint64_t     inbox_first, next;
    uint64_t     upto; /* what was there before the inbox was read; later facts may have taken later entries */
    size_t       rows;
    bool         has_undo;
    stet__journal journal; /* what became of it all */
} dlq_journal;

static void *
dlq_grow(dlq_journal *d, void *old, size_t n, size_t *cap, size_t size)
{
    size_t more = stet__cap_next(d->arena.alloc, *cap, 32);
    void  *grown;

    if (n < *cap)
        return old;
    if ((grown = stet__arena_get(&d->arena, more * size)) == NULL)
        return NULL;
    if (n > 0)
        memcpy(grown, old, n * size);
    *cap = more;
    return grown;
}

static int
dlq_keep(dlq_journal *d, const stet__fact *fact)
{
    void *grown = dlq_grow(d, d->facts, d->n, &d->cap, sizeof *d->facts);

    if (grown == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    d->facts = grown;
    d->facts[d->n++] = *fact;
    return STET_OK;
}

static int
dlq_on_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    dlq_journal *d = arg;
    void        *grown = dlq_grow(d, d->inbox, d->n_inbox, &d->cap_inbox, sizeof *d->inbox);

    (void)count;
    if (grown == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if (d->n_inbox == 0)
        d->inbox_first = first;
    d->inbox = grown;
    d->inbox[d->n_inbox].len = facts.len;
    if ((d->inbox[d->n_inbox].data = stet__arena_copy(&d->arena, facts.data, facts.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    d->n_inbox++;
    d->rows++;
    return STET_OK;
}

static int
dlq_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    dlq_journal *d = arg;
    stet_bytes   in;
    stet__fact   fact;
    int          err;

    d->rows++;
    if (first > d->upto)
        return STET_END;
    in.len = facts.len;
    if ((in.data = stet__arena_copy(&d->arena, facts.data, facts.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        if ((err = stet__fact_decode(&fact, &in)) != STET_OK)
            return err == STET_END ? STET_ECORRUPT : err;
        fact.revision = first + i;
        if ((err = dlq_keep(d, &fact)) != STET_OK)
            return err;
        /* What a generation before this one took is no part of it. */
        while (fact.kind == STET__FACT_STARTED && d->taken < d->n_inbox && d->inbox_first + d->taken <= (uint64_t)fact.taken &&
               !STET__MUTANT(retry_old_inbox))
            d->taken++;
        for (; fact.kind == STET__FACT_TAKEN && d->taken < d->n_inbox && d->inbox_first + d->taken <= (uint64_t)fact.number;
             d->taken++) {
            stet__fact entry;
            stet_bytes entry_in = d->inbox[d->taken];

            if ((err = stet__fact_decode(&entry, &entry_in)) != STET_OK)
                return err;
            entry.revision = fact.revision; /* of the fact that takes it */
            if ((err = dlq_keep(d, &entry)) != STET_OK)
                return err;
        }
    }
    d->next = first + count;
    return STET_OK;
}

/* An operator who skips an undo says that it is done. */
static bool
dlq_is_undoing(const stet__fact *f)
{
    return ((f->kind == STET__FACT_STEP && f->code == 0) || f->kind == STET__FACT_SKIP) && stet__name_is_undo(f->name);
}

/* Which wait got which signal, as the run itself found it. Those it did not come to take are there for whoever retries
 * it. */
static int
dlq_replay(dlq_journal *d)
{
    int err;

    for (size_t i = 0; i < d->n; i++) {
        d->has_undo = d->has_undo || dlq_is_undoing(&d->facts[i]);
        if ((err = stet__journal_apply(&d->journal, &d->facts[i])) != STET_OK)
            return err;
    }
    for (size_t i = STET__MUTANT(retry_untaken) ? d->n_inbox : d->taken; i < d->n_inbox; i++) {
        stet__fact entry;
        stet_bytes in = d->inbox[i];

        if (stet__fact_decode(&entry, &in) == STET_OK && entry.kind == STET__FACT_SIGNALLED &&
            (err = stet__journal_apply(&d->journal, &entry)) != STET_OK)
            return err;
    }
    return STET_OK;
}

/* As its row says that it is; what comes meanwhile is left out. */
static int
dlq_load(dlq_journal *d, stet_engine *e, const stet_run_row *row)
{
    stet_id run = row->id;
    int     err;

    stet__journal_init(&d->journal, &d->arena, &e->p->alloc);
    d->next = d->inbox_first = 1;
    d->upto = row->journal;
    do {
        d->rows = 0;
        if ((err = e->store->ops->inbox(e->store, run, d->inbox_first + d->n_inbox, 256, dlq_on_inbox, d)) != STET_OK)
            return err;
    } while (d->rows == 256);
    do {
        d->rows = 0;
        err = e->store->ops->journal(e->store, run, d->next, 256, dlq_on_facts, d);
    } while (err == STET_OK && d->rows == 256);
    return err == STET_OK || err == STET_END ? dlq_replay(d) : err;
}

/* One that is not over may begin anew while it is read: then there are no facts, or not all, up to what its row said. */
static int
dlq_load_live(dlq_journal *d, stet_engine *e, stet_id run, stet_run_row *row, stet__fact *extra)
{
    uint64_t was;
    int      err;

    if ((err = stet__load_row(e, run, &d->arena, row, extra)) != STET_OK)
        return err;
    for (int i = 0; i < DLQ_TRIES_MAX; i++) {
        was = row->journal;
        if ((err = dlq_load(d, e, row)) != STET_OK || d->next > d->upto)
            return err;
        if ((err = stet__load_row(e, run, &d->arena, row, extra)) != STET_OK || row->journal == was)
            return err; /* it was removed; or that is all there is */
        stet__journal_free(&d->journal);
        d->n = d->n_inbox = d->taken = 0;
        d->has_undo = false;
    }
    return stet__fail(STET_EBUSY, "the run began anew all the time while it was read; nothing was started, try again");
}

static void
dlq_free(dlq_journal *d)
{
    stet__journal_free(&d->journal);
    stet__arena_free(&d->arena);
}

/* ---- what is inherited ------------------------------------------------------------------------------ */

static bool
dlq_same_name(const stet__fact *a, const stet__fact *b)
{
    return a->name.len == b->name.len && (a->name.len == 0 || memcmp(a->name.data, b->name.data, a->name.len) == 0);
}

/* The answer that settled a command well, or NULL. */
static const stet__fact *
dlq_answer(const dlq_journal *d, const stet__fact *cmd)
{
    for (size_t i = 0; i < d->n; i++) {
        const stet__fact *f = &d->facts[i];
        bool              fits = (cmd->kind == STET__FACT_SLEEP && f->kind == STET__FACT_TIMER) ||
                    (cmd->kind == STET__FACT_CALL && f->kind == STET__FACT_CHILD_DONE) ||
                    (cmd->kind == STET__FACT_AWAKEABLE && f->kind == STET__FACT_SETTLED) ||
                    (cmd->kind == STET__FACT_TOPIC && f->kind == STET__FACT_EVENT) ||
                    (cmd->kind == STET__FACT_BOUNDARY && f->kind == STET__FACT_DECIDED) ||
                    ((cmd->kind == STET__FACT_AWAIT || cmd->kind == STET__FACT_ANY) && f->kind == STET__FACT_CHOICE);

        if (fits && (uint64_t)f->completion == cmd->revision)
            return f->code == 0 ? f : NULL;
    }
    return NULL;
}

/* The wait, if a signal ended it; else NULL. */
static const stet__cmd *
dlq_signal(const dlq_journal *d, const stet__fact *wait)
{
    const stet__cmd *cmd = stet__map_find(&d->journal.completions, &wait->revision, sizeof wait->revision);

    return cmd != NULL && cmd->is_settled && cmd->code == 0 ? cmd : NULL;
}

/* What the update got, as the run itself found it. NULL: there is none. */
static const stet__update *
dlq_update(const dlq_journal *d, const stet__fact *update)
{
    const stet__update *u = d->journal.updates;

    while (u != NULL && u->revision != update->revision)
        u = u->next;
    return u;
}

static void
dlq_put_signal(stet__buf *out, stet_bytes signal, stet_bytes value, stet_bytes id, int64_t now_ms)
{
    stet__fact f = { 0 };

    f.kind = STET__FACT_SIGNALLED;
    f.time_ms = now_ms;
    f.name = signal;
    f.value = value;
    f.idempotency_key = id;
    stet__fact_encode(out, &f);
}

typedef struct dlq_letters {
    stet__buf *out;
    uint64_t   n;
    int64_t    now_ms;
} dlq_letters;

static int
dlq_on_letter(void *arg, stet_bytes signal, const stet__letter *letter)
{
    dlq_letters *l = arg;

    l->n++;
    dlq_put_signal(l->out, signal, letter->value, letter->id, l->now_ms);
    return STET_OK;
}

/* The command as it stands in the end: operators may have replaced its result, or had the run forget it. NULL: it
 * was forgotten. */
static const stet__cmd *
dlq_stands(const dlq_journal *d, const stet__fact *f)
{
    char             name[STET__UNDO_NAME_MAX];
    const stet__cmd *cmd;

    (void)snprintf(name, sizeof name, "%.*s", (int)f->name.len, f->name.data != NULL ? (const char *)f->name.data : "");
    cmd = stet__journal_find(&d->journal, f->kind, name, (uint64_t)f->occurrence);
    return cmd != NULL && cmd->revision <= f->revision ? cmd : NULL;
}

/* Behind the read: one in front of it says nothing about what was made of the value. */
static bool
dlq_is_written(const dlq_journal *d, const stet__fact *get)
{
    for (const stet__fact *f = get + 1; f < d->facts + d->n; f++)
        if ((f->kind == STET__FACT_STATE_SET || f->kind == STET__FACT_STATE_CLEAR) && dlq_same_name(f, get) &&
            (dlq_stands(d, f) != NULL || STET__MUTANT(fork_stale)))
            return true;
    return false;
}

/* A wait whose inherited choice was void is recorded once more, under the same name; only the last one counts. */
static bool
dlq_is_made_anew(const dlq_journal *d, const stet__fact *wait)
{
    for (const stet__fact *f = wait + 1; f < d->facts + d->n; f++)
        if (f->kind == wait->kind && f->occurrence == wait->occurrence && dlq_same_name(f, wait))
            return true;
    return false;
}

/* A step that was undone has to be done again; the undo itself belongs to the run that failed. */
static bool
dlq_is_undone(const dlq_journal *d, const stet__fact *step)
{
    char name[STET__UNDO_NAME_MAX];

    if (stet__name_is_undo(step->name))
        return true;
    (void)stet__undo_name(name, (const char *)step->name.data, step->name.len, (uint64_t)step->occurrence);
    /* By the facts: a fork has forgotten what came behind its step, and yet it happened. */
    for (const stet__fact *f = step + 1; d->has_undo && f < d->facts + d->n; f++)
        if (dlq_is_undoing(f) && f->name.len == strlen(name) && memcmp(f->name.data, name, f->name.len) == 0)
            return true;
    return false;
}

static bool
dlq_is_inherited(const dlq_journal *d, const stet__fact *f)
{
    if (stet__fact_is_command(f->kind) && f->kind != STET__FACT_STEP_RETRY && dlq_stands(d, f) == NULL)
        return false;
    switch (f->kind) {
    case STET__FACT_STEP:
        if (dlq_is_undone(d, f) && !STET__MUTANT(undone_inherited))
            return false;
        if (f->flags & STET__FACT_SKIPPED)
            return false; /* dlq_skipped() has them all */
        return dlq_stands(d, f)->code == 0 || STET__MUTANT(failure_inherited);
    case STET__FACT_SEND:
    case STET__FACT_STATE_SET:
    case STET__FACT_STATE_CLEAR:
    case STET__FACT_NOW:
    case STET__FACT_VERSION:
    case STET__FACT_SETTLE:
    case STET__FACT_NOTE:
    case STET__FACT_SWITCH:
    case STET__FACT_ONCE:
    case STET__FACT_SIGNAL_SEND: return f->code == 0;
    case STET__FACT_STATE_GET: return dlq_is_written(d, f);
    case STET__FACT_AWAIT:
    case STET__FACT_ANY: return f->code == 0 && !dlq_is_made_anew(d, f) && dlq_answer(d, f) != NULL;
    case STET__FACT_SLEEP:
    case STET__FACT_CALL:
    case STET__FACT_TOPIC:
    case STET__FACT_BOUNDARY:
    case STET__FACT_AWAKEABLE: return f->code == 0 && dlq_answer(d, f) != NULL;
    case STET__FACT_EMIT: return f->code == 0 && !(f->flags & STET__FACT_MORE);
    case STET__FACT_SIGNAL: return f->code == 0 && dlq_signal(d, f) != NULL;
    case STET__FACT_UPDATE: return !(f->flags & STET__FACT_REJECTED) && dlq_update(d, f) != NULL;
    default: return false;
    }
}

/* Steps whose results operators gave; not undos, which belong to the run that failed. */
static uint32_t
dlq_skipped(const dlq_journal *d, stet__buf *out, int64_t now_ms)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;
    uint32_t    n = 0;

    while (stet__map_next(&d->journal.rows, &at, &key, &len, &value)) {
        const stet__row_of_cmds *row = value;

        for (size_t i = 0; i < row->n; i++) {
            const stet__cmd *cmd = row->cmds[i];
            stet__fact       f = { .kind = STET__FACT_STEP, .time_ms = now_ms, .flags = STET__FACT_INHERITED | STET__FACT_SKIPPED };

            if (cmd == NULL || !cmd->is_skipped || stet__name_is_undo(stet_text(cmd->name)))
                continue;
            f.name = stet_text(cmd->name);
            f.occurrence = (int64_t)cmd->occurrence;
            f.value = cmd->value;
            stet__fact_encode(out, &f);
            n++;
        }
    }
    return n;
}

/* An operator may have given a result to a step that had failed, too. */
static void
dlq_as_it_stands(stet__fact *step, const stet__cmd *cmd)
{
    step->value = cmd->value;
    step->code = cmd->code;
    if (cmd->code == 0) {
        step->cause = 0;
        step->text = step->origin = (stet_bytes){ NULL, 0 };
    }
}

/* Facts from revision 2 on; a command's answer follows it at once. Signals nobody waited for come last. */
static uint32_t
dlq_inherit(const dlq_journal *d, stet__buf *out, int64_t now_ms)
{
    uint64_t    revision = 2 + dlq_skipped(d, out, now_ms);
    dlq_letters letters = { out, 0, now_ms };

    for (size_t i = 0; i < d->n; i++) {
        stet__fact        f = d->facts[i];
        const stet__fact *answer;

        if (!dlq_is_inherited(d, &d->facts[i]))
            continue;
        answer = f.kind >= STET__FACT_SLEEP ? dlq_answer(d, &d->facts[i]) : NULL;
        f.time_ms = now_ms;
        f.flags |= STET__FACT_INHERITED;
        if (f.kind == STET__FACT_UPDATE) { /* its answer is the old run's */
            f.value = dlq_update(d, &d->facts[i])->input;
            f.idempotency_key = (stet_bytes){ NULL, 0 };
        }
        if (f.kind == STET__FACT_STEP)
            dlq_as_it_stands(&f, dlq_stands(d, &f));
        stet__fact_encode(out, &f);
        if (f.kind == STET__FACT_SIGNAL) {
            const stet__cmd *cmd = dlq_signal(d, &d->facts[i]);

            dlq_put_signal(out, stet_text(cmd->topic), cmd->value, cmd->signal_id, now_ms);
            revision++;
        } else if (answer != NULL) {
            stet__fact a = *answer;

            a.completion = (int64_t)revision;
            a.time_ms = now_ms;
            stet__fact_encode(out, &a);
            revision++;
        }
        revision++;
    }
    (void)stet__journal_letters(&d->journal, dlq_on_letter, &letters);
    return (uint32_t)(revision - 2 + letters.n);
}

/* ---- retry ------------------------------------------------------------------------------------------ */

static int
dlq_extra(stet__work *w, const stet_run_row *row, const stet__fact *extra)
{
    stet_op      *op = stet__work_op(w, STET_OP_RUN_SET, row->id);
    stet_run_row *set = stet__arena_get0(&w->arena, sizeof *set);

    if (op == NULL || set == NULL || !stet__work_fact(w, &set->extra, extra))
        return stet__fail(STET_ENOMEM, "out of memory");
    set->id = row->id;
    op->row = set;
    op->mask = STET_RUN_EXTRA;
    return STET_OK;
}

/* A value that must not be there yet, put together with the rest. */
static int
dlq_mark(stet__work *w, const char *space, stet_id run, stet_bytes data)
{
    stet_cond *cond = stet__work_cond(w, STET_COND_VALUE, run);
    stet_op   *op = cond != NULL ? stet__work_op(w, STET_OP_VALUE_PUT, run) : NULL;

    if (op == NULL || !stet__work_bytes(w, &op->key, stet__id_bytes(&run)) || !stet__work_bytes(w, &op->data, data))
        return stet__fail(STET_ENOMEM, "out of memory");
    cond->space = op->space = space;
    cond->key = op->key;
    if (STET__MUTANT(retry_unchecked))
        w->unit.n_conds--;
    return STET_OK;
}

/* A retry and a discard at the same time: both write the row's extra, so one of them must be refused. */
static int
dlq_not_marked(stet__work *w, const char *space, stet_id run)
{
    stet_cond *cond = stet__work_cond(w, STET_COND_VALUE, run);

    if (cond == NULL || !stet__work_bytes(w, &cond->key, stet__id_bytes(&run)))
        return stet__fail(STET_ENOMEM, "out of memory");
    cond->space = space;
    if (STET__MUTANT(discard_unchecked))
        w->unit.n_conds--;
    return STET_OK;
}

static int
dlq_check(stet_engine *e, const char *call, const stet_run_id *run, stet_id *id, stet__arena *arena, stet_run_row *row,
          stet__fact *extra)
{
    int err;

    if ((err = stet__alive(e, call)) != STET_OK || (err = stet__id_parse(id, STET__ID_RUN, run->text)) != STET_OK ||
        (err = stet__load_row(e, *id, arena, row, extra)) != STET_OK)
        return err;
    if (!row->is_terminal)
        return stet__fail(STET_EOPEN, "%s has not ended, it is %s", run->text, stet_status_name((stet_status)row->status));
    if (row->status == STET_STATUS_COMPLETED)
        return stet__fail(STET_EENDED, "%s completed; there is nothing to retry or discard, `fork` starts it anew from any of its steps", run->text);
    if (extra->retried_by.data != NULL) {
        char by[STET_ID_TEXT_MAX];

        stet__id_text(by, STET__ID_RUN, stet__fact_id(extra->retried_by));
        return stet__fail(STET_EEXISTS, "%s was retried as %s", run->text, by);
    }
    if (extra->flags & STET__FACT_DISCARDED)
        return stet__fail(STET_EENDED, "%s was discarded", run->text);
    return STET_OK;
}

/* The new run, with what it inherits. */
static int
dlq_start(stet_engine *e, stet__work *w, dlq_journal *d, stet_id old, stet_id fresh, uint32_t flags, const char *by,
          const char *why)
{
    stet__fact started = d->facts[0];
    int64_t    now_ms = stet__store_now(e);
    stet__buf  more;
    uint32_t   n;
    int        err;

    if (started.deadline_ms != 0 && !STET__MUTANT(retry_deadline))
        started.deadline_ms = stet__time_add(
            now_ms, started.deadline_ms - (started.generation != 0 ? started.created_ms : started.time_ms));
    started.time_ms = now_ms;
    if (started.generation != 0) { /* what is inherited was recorded by that one, which the handler may ask for */
        started.since = 1;
        started.taken = started.epoch = 0;
        started.created_ms = started.time_ms;
    }
    if (STET__MUTANT(retry_labels))
        started.labels = (stet_bytes){ NULL, 0 };
    if (STET__MUTANT(retry_priority))
        started.priority = 0;
    started.until_ms = 0;
    started.number = stet__mono_us(e->p);
    started.completion = 0;
    started.idempotency_key = (stet_bytes){ NULL, 0 };
    started.child_key = (stet_bytes){ NULL, 0 };
    started.retry_of = stet__id_bytes(&old);
    started.flags = (started.flags & ~(int64_t)STET__FACT_FORKED) | flags;
    /* Who started the old one by hand, and why, is not the story of this one. */
    started.who = by != NULL ? stet_text(by) : (stet_bytes){ NULL, 0 };
    started.text = why != NULL ? stet_text(why) : (stet_bytes){ NULL, 0 };
    stet__buf_init(&more, &e->p->alloc);
    n = dlq_inherit(d, &more, started.time_ms);
    err = more.failed ? STET_ENOMEM : STET_OK;
    if (err == STET_OK) {
        stet__lock(e->p, &e->lock);
        err = stet__start_ops(e, w, &started, fresh, true, &more, n) ? STET_OK : STET_ENOMEM;
        stet__unlock(e->p, &e->lock);
    }
    stet__buf_free(&more);
    return err == STET_OK ? STET_OK : stet__fail(err, "out of memory");
}

static int
dlq_build(stet_engine *e, stet__work *w, dlq_journal *d, const stet_run_row *row, stet__fact extra, stet_id fresh,
          const char *by, const char *why)
{
    stet_id old = row->id;
    int     err = STET_OK;

    if (STET__MUTANT(retry_apart)) {
        stet__work *apart = stet__work_new(e, NULL, NULL);

        if (apart == NULL || dlq_start(e, apart, d, old, fresh, 0, by, why) != STET_OK ||
            stet__commit_sync(e, apart, NULL) != STET_OK)
            return stet__fail(STET_EBUSY, "it is not started");
    } else
        err = dlq_start(e, w, d, old, fresh, 0, by, why);
    if (err != STET_OK)
        return err;
    if (!STET__MUTANT(retry_unlisted))
        extra.retried_by = stet__id_bytes(&fresh);
    if ((err = dlq_extra(w, row, &extra)) != STET_OK || (err = dlq_not_marked(w, STET__SPACE_DISCARD, old)) != STET_OK)
        return err;
    return dlq_mark(w, STET__SPACE_RETRY, old, stet__id_bytes(&fresh));
}

static int
dlq_retry(stet_engine *e, const char *call, stet_run_id *retried, const stet_run_id *run, const char *by, const char *why)
{
    dlq_journal  d = { 0 };
    stet__work  *w = NULL;
    stet_run_row row;
    stet__fact   extra;
    stet_id      id, fresh;
    int          err;

    if ((err = stet__alive(e, call)) != STET_OK || (err = stet__not_in_handler(e, call, "stet_send")) != STET_OK ||
        (err = stet__said_check(by, why)) != STET_OK)
        return err;
    stet__arena_init(&d.arena, &e->p->alloc);
    if ((err = dlq_check(e, call, run, &id, &d.arena, &row, &extra)) != STET_OK || (err = dlq_load(&d, e, &row)) != STET_OK)
        goto done;
    /* Retention may have removed it between the two looks. */
    if (d.n == 0 && (err = stet__load_row(e, id, &d.arena, &row, &extra)) == STET_ENOTFOUND)
        goto done;
    if (d.n == 0 || d.facts[0].kind != STET__FACT_STARTED) {
        err = stet__fail(STET_ECORRUPT, "%s cannot be retried: its first fact is not readable", run->text);
        goto done;
    }
    fresh = stet__new_id(e);
    if ((w = stet__work_new(e, NULL, NULL)) == NULL) {
        err = STET_ENOMEM;
        goto done;
    }
    if ((err = dlq_build(e, w, &d, &row, extra, fresh, by, why)) != STET_OK) {
        stet__work_free(w);
        goto done;
    }
    if ((err = stet__commit_sync(e, w, NULL)) == STET_ECONFLICT)
        err = stet__fail(STET_EEXISTS, "%s was retried or discarded just now", run->text);
    if (err == STET_OK && retried != NULL)
        stet__id_text(retried->text, STET__ID_RUN, fresh);
done:
    dlq_free(&d);
    return err;
}

int
stet_dlq_retry(stet_engine *e, stet_run_id *retried, const stet_run_id *run)
{
    return dlq_retry(e, "stet_dlq_retry", retried, run, NULL, NULL);
}

int
stet_run_retry(stet_engine *e, stet_run_id *retried, const stet_run_id *run, const char *by, const char *why)
{
    return dlq_retry(e, "stet_run_retry", retried, run, by, why);
}

/* ---- fork ------------------------------------------------------------------------------------------ */

/* What was recorded before the step, whatever became of the run. */
static int
dlq_fork(stet_engine *e, dlq_journal *d, stet_id run, const char *text, const char *step, stet_id fresh, const char *by,
         const char *why)
{
    const stet__cmd *cmd;
    stet_run_row     row;
    stet__fact       extra;
    stet__work      *w;
    int              err;

    if ((err = dlq_load_live(d, e, run, &row, &extra)) != STET_OK)
        return err;
    if (d->n == 0 || d->facts[0].kind != STET__FACT_STARTED)
        return stet__fail(STET_ECORRUPT, "%s cannot be forked: its first fact is not readable", text);
    if ((step != NULL && (err = stet__operate_find(&d->journal, text, step, false, &cmd)) != STET_OK) ||
        (err = stet__journal_rewind(&d->journal, step != NULL ? cmd->revision + STET__MUTANT(fork_behind) : 2)) != STET_OK)
        return err;
    if ((w = stet__work_new(e, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((err = dlq_start(e, w, d, run, fresh, STET__FACT_FORKED, by, why)) != STET_OK) {
        stet__work_free(w);
        return err;
    }
    return stet__commit_sync(e, w, NULL);
}

int
stet_run_fork(stet_engine *e, stet_run_id *forked, const stet_run_id *run, const char *step, const char *by, const char *why)
{
    dlq_journal d = { 0 };
    stet_id     id, fresh;
    int         err;

    if ((err = stet__alive(e, "stet_run_fork")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_run_fork", "stet_send")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK)
        return err;
    if ((err = stet__said_check(by, why)) != STET_OK)
        return err;
    fresh = stet__new_id(e);
    stet__arena_init(&d.arena, &e->p->alloc);
    err = dlq_fork(e, &d, id, run->text, step, fresh, by, why);
    if (err == STET_OK && forked != NULL)
        stet__id_text(forked->text, STET__ID_RUN, fresh);
    dlq_free(&d);
    return err;
}

int
stet_dlq_discard(stet_engine *e, const stet_run_id *run)
{
    stet__work  *w;
    stet_run_row row;
    stet__fact   extra;
    stet_id      id;
    int          err;

    if ((err = stet__alive(e, "stet_dlq_discard")) != STET_OK)
        return err;
    if ((w = stet__work_new(e, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((err = dlq_check(e, "stet_dlq_discard", run, &id, &w->arena, &row, &extra)) == STET_OK) {
        extra.flags |= STET__FACT_DISCARDED;
        if ((err = dlq_extra(w, &row, &extra)) == STET_OK && (err = dlq_not_marked(w, STET__SPACE_RETRY, id)) == STET_OK &&
            (err = dlq_mark(w, STET__SPACE_DISCARD, id, stet_text("1"))) == STET_OK &&
            (err = dlq_mark(w, STET__SPACE_BASE_DISCARD, id, stet_text("1"))) == STET_OK) {
            if ((err = stet__commit_sync(e, w, NULL)) == STET_ECONFLICT)
                err = stet__fail(STET_EENDED, "%s was retried or discarded just now", run->text);
            return err;
        }
    }
    stet__work_free(w);
    return err;
}
