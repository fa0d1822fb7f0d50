/* The audit trail of a run: its facts and what came from outside, each as one entry.
 *
 * An entry is made of its fact and of what stands before it, and of nothing else: no clock, no
 * row, no setting. So it is the same on every reading, and its ID is its place, which a move
 * keeps as well. Entries are gathered first and told when the store is at rest: whoever hears
 * them may call stet.
 */
#include <stdio.h>
#include <string.h>

#include "engine/audit.h"
#include "engine/offline.h"

static int
audit_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory while reading the trail of a run");
}

/* ---- what a fact is about -------------------------------------------------------------------- */

#define AUDIT_OPERATOR_FIRST 80 /* kinds of what operators do … */
#define AUDIT_OPERATOR_LAST  89

/* What is in no list is the handler's business, or not known here. */
static const char *
audit_topic(stet__fact_kind kind)
{
    if ((int)kind >= AUDIT_OPERATOR_FIRST && (int)kind <= AUDIT_OPERATOR_LAST)
        return "operator";
    switch (kind) {
    case STET__FACT_STEP:
    case STET__FACT_STEP_RETRY:
    case STET__FACT_AT_RISK: return "step";
    case STET__FACT_SLEEP: return "sleep";
    case STET__FACT_SIGNAL:
    case STET__FACT_SIGNAL_SEND:
    case STET__FACT_SIGNALLED: return "signal";
    case STET__FACT_TOPIC:
    case STET__FACT_EMIT:
    case STET__FACT_EVENT: return "event";
    case STET__FACT_CALL:
    case STET__FACT_SEND:
    case STET__FACT_LOOK:
    case STET__FACT_CHILD_DONE: return "call";
    case STET__FACT_AWAKEABLE:
    case STET__FACT_SETTLE:
    case STET__FACT_SETTLED: return "awakeable";
    case STET__FACT_STATE_GET:
    case STET__FACT_STATE_SET:
    case STET__FACT_STATE_CLEAR:
    case STET__FACT_ONCE: return "state";
    case STET__FACT_AWAIT:
    case STET__FACT_ANY:
    case STET__FACT_CHOICE:
    case STET__FACT_SWITCH:
    case STET__FACT_VERSION: return "choice";
    case STET__FACT_BOUNDARY:
    case STET__FACT_DECIDED: return "decision";
    case STET__FACT_NOTE: return "note";
    case STET__FACT_CANCEL:
    case STET__FACT_UNSTICK:
    case STET__FACT_ROLLBACK_RETRY: return "operator";
    case STET__FACT_NOW:
    case STET__FACT_TIMER: return "other"; /* of a timer: what it is for, where that is known */
    default:
        return kind < STET__FACT_STEP || kind >= STET__FACT_TIMER || kind == STET__FACT_ROLLBACK
                   ? "run"
                   : "other";
    }
}

/* ---- what came of it ------------------------------------------------------------------------- */

static int64_t
audit_since(const stet__trail *t, uint64_t revision, int64_t now_ms)
{
    int64_t ms;

    if (revision < t->first || revision - t->first >= t->n_times)
        return -1;
    ms = now_ms - t->times[revision - t->first];
    return ms > 0 ? ms : 0;
}

/* Did it end a wait that was under way? What came from outside is looked at before it is
 * applied; a fact of the journal (a timer that resumed its run) after. */
static bool
audit_is_late(const stet__trail *t, const stet_audit_entry *a, const stet__fact *f,
              const stet__cmd *cmd)
{
    if (a->inbox == 0)
        return t->l.journal.order == t->order;
    return cmd->is_settled || (f->kind == STET__FACT_TIMER && !cmd->has_timer);
}

static void
audit_answer(const stet__trail *t, stet_audit_entry *a, const stet__fact *f)
{
    uint64_t         completion = (uint64_t)f->completion;
    const stet__cmd *cmd =
        stet__map_find(&t->l.journal.completions, &completion, sizeof completion);

    a->outcome = "late";
    if (cmd == NULL)
        return;
    a->name = cmd->name;
    a->occurrence = cmd->occurrence;
    if (f->kind == STET__FACT_TIMER)
        a->topic = audit_topic(cmd->kind);
    if (audit_is_late(t, a, f, cmd))
        return;
    a->duration_ms = audit_since(t, completion, f->time_ms);
    if (f->kind == STET__FACT_DECIDED)
        a->outcome = f->code != 0 ? "rejected" : cmd->is_approval ? "approved" : "resumed";
    else if (f->kind != STET__FACT_TIMER)
        a->outcome = f->code != 0                       ? "failed"
                     : f->kind == STET__FACT_CHILD_DONE ? "done"
                                                        : "delivered";
    else if (cmd->kind == STET__FACT_SLEEP)
        a->outcome = "done";
    else
        a->outcome = cmd->kind == STET__FACT_STEP ? "due" : "timed out";
}

static void
audit_name(const stet__trail *t, stet_audit_entry *a, const stet__fact *f)
{
    uint64_t         completion = (uint64_t)f->completion;
    const stet__cmd *cmd =
        stet__map_find(&t->l.journal.completions, &completion, sizeof completion);

    if (cmd == NULL || a->name != NULL)
        return;
    a->name = cmd->name;
    a->occurrence = cmd->occurrence;
}

static void
audit_signal(const stet__trail *t, stet_audit_entry *a, const stet__fact *f)
{
    const stet__letterbox *box = stet__map_find(&t->l.journal.letters, f->name.data, f->name.len);
    const stet__cmd       *wait = box != NULL ? box->waits : NULL;

    while (wait != NULL && wait->is_settled)
        wait = wait->behind;
    a->outcome = "kept";
    if (f->idempotency_key.data != NULL &&
        stet__map_find(&t->l.journal.signal_ids, f->idempotency_key.data, f->idempotency_key.len) !=
            NULL)
        a->outcome = "repeated";
    else if (wait != NULL) {
        a->outcome = "delivered";
        a->duration_ms = audit_since(t, wait->completion, f->time_ms);
    }
}

/* A command, after it was applied. */
static void
audit_command(const stet__trail *t, stet_audit_entry *a, const stet__fact *f)
{
    const stet__cmd *cmd;

    switch (f->kind) {
    case STET__FACT_STEP:
        a->outcome = f->code != 0 ? "failed" : "done";
        a->duration_ms = f->took_ms;
        break;
    case STET__FACT_STEP_RETRY:
        a->outcome = f->code == STET_EDEFER ? "deferred" : "retried";
        a->duration_ms = f->took_ms;
        break;
    case STET__FACT_SLEEP:
    case STET__FACT_CALL:
    case STET__FACT_AWAKEABLE:
    case STET__FACT_SIGNAL:
    case STET__FACT_TOPIC:
    case STET__FACT_BOUNDARY:
        cmd = f->code == 0 && a->name != NULL
                  ? stet__journal_find(&t->l.journal, f->kind, a->name, (uint64_t)f->occurrence)
                  : NULL;
        a->outcome = f->code != 0                     ? "refused"
                     : cmd != NULL && cmd->is_settled ? "delivered"
                                                      : "waiting";
        break;
    default:
        if (f->code != 0)
            a->outcome = "failed";
    }
}

static void
audit_outcome(const stet__trail *t, stet_audit_entry *a, const stet__fact *f)
{
    switch (f->kind) {
    case STET__FACT_TIMER:
    case STET__FACT_CHILD_DONE:
    case STET__FACT_SETTLED:
    case STET__FACT_EVENT:
    case STET__FACT_DECIDED: audit_answer(t, a, f); break;
    case STET__FACT_SIGNALLED: audit_signal(t, a, f); break;
    case STET__FACT_CHOICE:
    case STET__FACT_ROLLED_BACK: /* of the journal: applied before it is told */
        audit_name(t, a, f);
        a->duration_ms = audit_since(t, (uint64_t)f->completion, f->time_ms);
        break;
    case STET__FACT_COMPLETED:
    case STET__FACT_FAILED:
    case STET__FACT_CANCELLED:
    case STET__FACT_EXPIRED: a->duration_ms = audit_since(t, t->first, f->time_ms); break;
    default:
        if (stet__fact_is_command(f->kind))
            audit_command(t, a, f);
    }
}

/* ---- entries --------------------------------------------------------------------------------- */

static bool
audit_text(stet__trail *t, const char **out, stet_bytes from)
{
    *out = from.data != NULL ? stet__arena_copy(&t->l.arena, from.data, from.len) : NULL;
    return from.data == NULL || *out != NULL;
}

static bool
audit_other(stet__trail *t, stet_audit_entry *a, const stet__fact *f)
{
    bool is_awakeable = f->kind == STET__FACT_AWAKEABLE || f->kind == STET__FACT_SETTLE ||
                        f->kind == STET__FACT_SETTLED;
    stet_id id = stet__fact_id(f->run);
    char    text[STET_ID_TEXT_MAX];

    if (stet__id_is_zero(id))
        return true;
    stet__id_text(text, is_awakeable ? STET__ID_AWAKEABLE : STET__ID_RUN, id);
    return (a->other = stet__arena_str(&t->l.arena, text)) != NULL;
}

static bool
audit_fill(stet__trail *t, stet_audit_entry *a, const stet__fact *f)
{
    stet__arena *arena = &t->l.arena;

    a->id = a->inbox == 0
                ? stet__arena_printf(arena, "%s/%llu", t->id, (unsigned long long)f->revision)
                : stet__arena_printf(arena, "%s/in.%llu", t->id, (unsigned long long)a->inbox);
    a->kind = stet__fact_kind_name(f->kind);
    if (f->kind == 0)
        a->kind = "unreadable";
    else if (a->kind == NULL)
        a->kind = stet__arena_printf(arena, "fact %d", (int)f->kind);
    if (a->id == NULL || a->kind == NULL || !audit_text(t, &a->name, f->name) ||
        !audit_text(t, &a->text, f->text) || !audit_text(t, &a->who, f->who) ||
        !audit_other(t, a, f))
        return false;
    if (f->kind == STET__FACT_NOTE && a->text != NULL) { /* its name is the format, for replays */
        a->name = a->text;
        a->text = NULL;
    }
    a->value.len = f->value.len;
    return f->value.data == NULL ||
           (a->value.data = stet__arena_copy(arena, f->value.data, f->value.len)) != NULL;
}

static stet_audit_entry *
audit_next(stet__trail *t)
{
    if (t->n == t->cap) {
        size_t            cap = stet__cap_next(t->l.arena.alloc, t->cap, 16);
        stet_audit_entry *grown = stet__arena_get(&t->l.arena, cap * sizeof *grown);

        if (grown == NULL)
            return NULL;
        if (t->n > 0)
            memcpy(grown, t->entries, t->n * sizeof *grown);
        t->entries = grown;
        t->cap = cap;
    }
    return memset(&t->entries[t->n++], 0, sizeof *t->entries);
}

static bool
audit_keep_time(stet__trail *t, const stet__fact *fact)
{
    if (t->n_times == 0)
        t->first = fact->revision;
    if (t->n_times == t->cap_times) {
        size_t   cap = stet__cap_next(t->l.arena.alloc, t->cap_times, 64);
        int64_t *grown = stet__arena_get(&t->l.arena, cap * sizeof *grown);

        if (grown == NULL)
            return false;
        if (t->n_times > 0)
            memcpy(grown, t->times, t->n_times * sizeof *grown);
        t->times = grown;
        t->cap_times = cap;
    }
    t->times[t->n_times++] = fact->time_ms;
    return true;
}

/* What came from outside is told before it is applied: which status it made is seen with the
 * next one. */
static void
audit_status(stet__trail *t)
{
    stet_status status = t->l.run.status;

    if (t->has_pending) {
        stet_audit_entry *a = &t->entries[t->n - 1];

        a->status = status;
        a->is_transition = status != t->status;
        t->status = status;
        t->has_pending = false;
    }
}

static int
audit_on_fact(void *arg, const stet__fact *fact, uint64_t seq, bool is_taken)
{
    stet__trail      *t = arg;
    stet_audit_entry *a;

    if (seq != 0) {
        audit_status(t);
        if (!STET__MUTANT(audit_midway))
            t->status = t->l.run.status; /* also with the one before, if that is left out */
    }
    if (seq == 0 && !audit_keep_time(t, fact))
        return audit_no_memory();
    if (seq != 0 ? seq <= t->inbox
                 : fact->revision <= t->revision || fact->kind == STET__FACT_TAKEN) {
        if (seq == 0) /* of an entry that is told, this is the place where it was taken */
            audit_status(t);
        t->status = t->l.run.status;
        t->order = t->l.journal.order;
        return STET_OK;
    }
    if ((a = audit_next(t)) == NULL)
        return audit_no_memory();
    a->revision = seq == 0 ? fact->revision : 0;
    a->inbox = seq;
    a->topic = audit_topic(fact->kind);
    a->time_ms = fact->time_ms;
    a->occurrence = (uint64_t)fact->occurrence;
    a->attempt = (uint32_t)fact->attempt;
    a->until_ms = fact->until_ms;
    a->code = (int)fact->code;
    a->duration_ms = -1;
    a->is_inherited = (fact->flags & STET__FACT_INHERITED) != 0;
    a->is_untaken = seq != 0 && !is_taken;
    if (!audit_fill(t, a, fact))
        return audit_no_memory();
    audit_outcome(t, a, fact);
    t->has_pending = true;
    if (seq == 0)
        audit_status(t);
    t->order = t->l.journal.order;
    return STET_OK;
}

/* ---- a trail --------------------------------------------------------------------------------- */

void
stet__trail_free(stet__trail *t)
{
    stet__loaded_free(&t->l);
}

static void
trail_begin(stet_engine *e, stet__trail *t, stet_id id, uint64_t revision, uint64_t inbox)
{
    stet__loaded *l = &t->l;

    memset(t, 0, sizeof *t);
    stet__arena_init(&l->arena, &e->p->alloc);
    stet__journal_init(&l->journal, &l->arena, &e->p->alloc);
    stet__run_init(&l->run, &l->arena, id);
    stet__id_text(t->id, STET__ID_RUN, id);
    t->revision = revision;
    t->inbox = inbox;
}

int
stet__trail_play(stet_engine *e, stet__trail *t, stet_id id, stet_bytes bundle, uint64_t revision,
                 uint64_t inbox)
{
    stet__loaded *l = &t->l;
    stet__tape    tape = { 0 };
    int           err;

    trail_begin(e, t, id, revision, inbox);
    if ((err = stet__bundle_decode(&tape, &l->arena, bundle)) == STET_OK)
        err = stet__load_tape_seen(&e->p->alloc, &l->run, &l->journal, &tape, &l->bad_revision,
                                   audit_on_fact, t);
    audit_status(t);
    return err;
}

int
stet__trail_load(stet_engine *e, stet__trail *t, stet_id id, uint64_t revision, uint64_t inbox)
{
    stet__loaded *l = &t->l;
    int           err;

    trail_begin(e, t, id, revision, inbox);
    if ((err = stet__load_row(e, id, &l->arena, &l->row, &l->extra)) == STET_OK)
        err = stet__load_facts_seen(e, &l->run, &l->journal, l->row.journal, &l->bad_revision,
                                    audit_on_fact, t);
    audit_status(t);
    if (err == STET_ECORRUPT && l->run.journal == 0 &&
        l->bad_revision == 0) { /* removed between the two looks? */
        stet_run_row row;
        stet__fact   extra;
        char         text[256];
        int          again;

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        if ((again = stet__load_row(e, id, &l->arena, &row, &extra)) != STET_OK)
            return again;
        return stet__fail(err, "%s", text);
    }
    return err;
}

/* The run's own texts are known when all is read. */
static void
audit_complete(const stet__trail *t, stet_audit_entry *a)
{
    a->run = t->id;
    a->handler = t->l.run.handler;
    a->key = t->l.run.key;
}

int
stet__trail_tell(stet__trail *t, size_t i, stet_audit_fn fn, void *arg)
{
    audit_complete(t, &t->entries[i]);
    return fn(arg, &t->entries[i]);
}

int
stet_audit_run(stet_engine *e, const stet_run_id *run, stet_audit_fn fn, void *arg)
{
    stet__trail t;
    stet_id     id;
    char        text[512] = "";
    int         err, told = STET_OK;

    if ((err = stet__alive(e, "stet_audit_run")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    if ((err = stet__trail_load(e, &t, id, 0, 0)) != STET_OK)
        (void)snprintf(text, sizeof text, "%s", stet_last_error());
    for (size_t i = 0; (err == STET_OK || err == STET_ECORRUPT) && told == STET_OK && i < t.n; i++)
        told = stet__trail_tell(&t, i, fn, arg);
    stet__trail_free(&t);
    if (told != STET_OK || err == STET_OK)
        return told;
    return stet__fail(err, "%s", text);
}
