/* What the store has to hold of one run, recomputed from its facts and nothing else.
 *
 * Relies on: the journal, the inbox, and for what is said about ended runs the marks on them
 * (retried, discarded), which have no fact of their own run. Compared by verify.c, written by
 * repair.c, turned into baselines by purge.c.
 */
#include <string.h>

#include "engine/engine.h"

#define EXPECT_TRIES_MAX 100

/* ---- what the facts tell --------------------------------------------------------------------- */

typedef struct expect_scan {
    stet_engine  *e;
    stet__expect *x;
} expect_scan;

static int
expect_no_memory(void)
{
    return stet__fail(STET_ENOMEM, "out of memory while looking at a run");
}

static stet__want_value *
expect_value(stet__expect *x, const char *space, uint64_t revision)
{
    stet__want_value *value = stet__arena_get0(&x->l.arena, sizeof *value);

    if (value == NULL)
        return NULL;
    value->space = space;
    value->revision = revision;
    value->next = x->values;
    return x->values = value;
}

static bool
expect_copy(stet__expect *x, stet_bytes *out, stet_bytes from)
{
    out->data = from.data != NULL ? stet__arena_copy(&x->l.arena, from.data, from.len) : NULL;
    out->len = from.len;
    return from.data == NULL || out->data != NULL;
}

static bool
expect_encode(stet__expect *x, stet_bytes *out, const stet__fact *fact)
{
    stet__buf b;
    bool      ok;

    stet__buf_init(&b, x->l.arena.alloc);
    stet__fact_encode(&b, fact);
    ok = !b.failed && expect_copy(x, out, stet__buf_bytes(&b));
    stet__buf_free(&b);
    return ok;
}

static bool
expect_awakeable(stet__expect *x, const stet__fact *f)
{
    stet__want_value *value = expect_value(x, STET__SPACE_AWAKEABLE, f->revision);
    stet__fact        open = { 0 };

    if (value == NULL)
        return false;
    value->id = stet__fact_id(f->run);
    value->key = stet__id_bytes(&value->id);
    open.kind = STET__FACT_SETTLED;
    open.time_ms = f->time_ms;
    open.run = stet__id_bytes(&x->l.run.id);
    open.completion = (int64_t)f->revision;
    open.name = f->name;
    return expect_copy(x, &value->name, f->name) && expect_encode(x, &value->data, &open);
}

/* Only the first answer counts; the store's record of it refuses all others. */
static bool
expect_settled(stet__expect *x, const stet__fact *f)
{
    stet__fact settled = { 0 };

    for (stet__want_value *value = x->values; value != NULL; value = value->next) {
        if (strcmp(value->space, STET__SPACE_AWAKEABLE) != 0 || value->is_twice ||
            value->revision != (uint64_t)f->completion)
            continue;
        settled.kind = STET__FACT_SETTLED;
        settled.time_ms = f->time_ms;
        settled.completion = f->completion;
        settled.name = value->name;
        settled.run = stet__id_bytes(&x->l.run.id);
        settled.flags = f->flags & STET__FACT_REJECTED;
        value->is_twice = true;
        return expect_encode(x, &value->data, &settled);
    }
    return true;
}

/* Of every wait; those that ended are taken out when all is known. */
static bool
expect_topic(stet__expect *x, const stet__fact *f)
{
    stet__want_value *value = expect_value(x, STET__SPACE_TOPIC, f->revision);
    stet__fact        mark;

    if (value == NULL)
        return false;
    stet__topic_wait_mark(f, f->revision, &mark);
    return expect_encode(x, &value->data, &mark) &&
           stet__topic_wait_key(&x->l.arena, &value->key, f->name, x->l.run.id, f->revision);
}

/* The mark of a wait that began or was left behind this: the journal knows it no more, or forgets it now. */
static bool
expect_is_forgotten(const stet__expect *x, const stet__want_value *value, uint64_t from)
{
    uint64_t         revision = value->revision;
    const stet__cmd *cmd = stet__map_find(&x->l.journal.completions, &revision, sizeof revision);

    return (strcmp(value->space, STET__SPACE_TOPIC) == 0 || strcmp(value->space, STET__SPACE_BOUNDARY) == 0) &&
           (revision >= from || cmd == NULL || cmd->chosen_at >= from);
}

/* What was put since is gone: waits with their marks, and the mark of whatever people decided. */
static void
expect_rewound(stet__expect *x, const stet__fact *f)
{
    if (x->l.run.rollback != 0 || (uint64_t)f->generation != x->l.run.generation)
        return; /* it came too late */
    for (stet__want_value **at = &x->values; *at != NULL;)
        if (expect_is_forgotten(x, *at, (uint64_t)f->number))
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

/* One mark for all of them: the last one counts. */
static bool
expect_boundary(stet__expect *x, const stet__fact *f, uint64_t completion, stet_bytes name, uint32_t flags)
{
    stet__want_value *value = x->values;
    stet__fact        mark;

    while (value != NULL && strcmp(value->space, STET__SPACE_BOUNDARY) != 0)
        value = value->next;
    if (value == NULL && (value = expect_value(x, STET__SPACE_BOUNDARY, completion)) == NULL)
        return false;
    value->revision = completion;
    value->flags = flags;
    value->key = stet__id_bytes(&x->l.run.id);
    stet__boundary_mark(f, completion, name, flags, &mark);
    return expect_copy(x, &value->name, name) && expect_encode(x, &value->data, &mark);
}

/* The decision that answers the one that is open. */
static bool
expect_decided(stet__expect *x, const stet__fact *f)
{
    for (const stet__want_value *value = x->values; value != NULL; value = value->next)
        if (strcmp(value->space, STET__SPACE_BOUNDARY) == 0 && value->revision == (uint64_t)f->completion)
            return expect_boundary(x, f, value->revision, value->name, value->flags);
    return true;
}

static bool
expect_update(stet__expect *x, const stet__fact *f)
{
    stet__want_value *value = expect_value(x, STET__SPACE_UPDATE, f->revision);
    stet__fact        mark;

    if (value == NULL)
        return false;
    stet__update_mark(f, &mark);
    return expect_encode(x, &value->data, &mark) && expect_copy(x, &value->name, f->name) &&
           stet__update_key(&x->l.arena, &value->key, x->l.run.id, f->idempotency_key);
}

static bool
expect_once(stet__expect *x, const stet__fact *f)
{
    stet__want_value *value = expect_value(x, STET__SPACE_BASE_ONCE, f->revision);

    if (value == NULL)
        return false;
    value->data = stet__id_bytes(&x->l.run.id);
    return expect_copy(x, &value->key, f->name);
}

static bool
expect_wrote(stet__expect *x, const stet__fact *f)
{
    char         name[STET__NAME_MAX + 1];
    stet__wrote *wrote;
    stet_bytes   key;
    int64_t      replaces;

    if (x->l.run.key == NULL || f->name.len >= sizeof name)
        return true;
    memcpy(name, f->name.data, f->name.len);
    name[f->name.len] = '\0';
    if (!stet__value_key_state(&x->l.arena, &key, x->l.run.handler, x->l.run.key, name))
        return false;
    for (wrote = x->wrote; wrote != NULL; wrote = wrote->next)
        if (wrote->key.len == key.len && memcmp(wrote->key.data, key.data, key.len) == 0)
            break;
    if (wrote == NULL) {
        if ((wrote = stet__arena_get0(&x->l.arena, sizeof *wrote)) == NULL)
            return false;
        wrote->key = key;
        wrote->next = x->wrote;
        x->wrote = wrote;
    }
    replaces = wrote->fact.kind != 0 ? wrote->fact.replaces : f->replaces; /* the first one's: what others wrote */
    memset(&wrote->fact, 0, sizeof wrote->fact);
    wrote->fact.replaces = replaces;
    wrote->fact.kind = f->kind;
    wrote->fact.revision = f->revision;
    wrote->fact.time_ms = f->time_ms;
    wrote->fact.number = f->number;
    wrote->fact.flags = f->flags;
    return expect_copy(x, &wrote->fact.value, f->value);
}

/* As the project.c of the run that recorded it did. */
static bool
expect_fact(stet__expect *x, const stet__fact *f)
{
    if (f->flags & STET__FACT_INHERITED)
        return true; /* what followed from it belongs to the run it was copied from */
    switch (f->kind) {
    case STET__FACT_AWAKEABLE: return f->code != 0 || expect_awakeable(x, f);
    case STET__FACT_TOPIC: return f->code != 0 || expect_topic(x, f);
    case STET__FACT_BOUNDARY:
        return f->code != 0 || expect_boundary(x, f, f->revision, f->name, (uint32_t)f->flags);
    case STET__FACT_UPDATE: return expect_update(x, f);
    case STET__FACT_ONCE: return f->number != 1 || expect_once(x, f);
    case STET__FACT_STATE_SET:
    case STET__FACT_STATE_CLEAR: return expect_wrote(x, f);
    default: return true;
    }
}

static bool
expect_fired(stet__expect *x, uint64_t completion)
{
    uint64_t *grown;

    if (x->n_fired == x->cap_fired) {
        size_t cap = stet__cap_next(x->l.arena.alloc, x->cap_fired, 8);

        if ((grown = stet__arena_get(&x->l.arena, cap * sizeof *grown)) == NULL)
            return false;
        if (x->n_fired > 0)
            memcpy(grown, x->fired, x->n_fired * sizeof *grown);
        x->fired = grown;
        x->cap_fired = cap;
    }
    x->fired[x->n_fired++] = completion;
    return true;
}

static bool
expect_untaken(stet__expect *x, const stet__fact *f)
{
    switch (f->kind) {
    case STET__FACT_TIMER: return expect_fired(x, (uint64_t)f->completion);
    case STET__FACT_CANCEL:
    case STET__FACT_DEADLINE:
        if (x->stop == 0)
            x->stop = f->kind == STET__FACT_CANCEL ? STET_ECANCELLED : STET_EEXPIRED;
        return true;
    case STET__FACT_UNSTICK: x->is_unstuck = true; return true;
    case STET__FACT_SKIP:
    case STET__FACT_EDIT:
    case STET__FACT_REWIND:
        x->is_unstuck = x->is_hastened = true;
        if (x->l.run.status == STET_STATUS_COMPENSATION_FAILED && stet__run_helps_rollback(&x->l.run, f))
            x->is_tried_again = true;
        return true;
    case STET__FACT_PAUSE:
        if ((x->l.run.status != STET_STATUS_COMPENSATION_FAILED || x->is_tried_again) &&
            (x->l.run.status != STET_STATUS_STUCK || x->is_unstuck) && x->l.run.stop_code == 0)
            x->pause = 1;
        return true;
    case STET__FACT_RESUME: x->pause = -1; return true;
    case STET__FACT_ROLLBACK_RETRY: x->is_tried_again = x->l.run.status == STET_STATUS_COMPENSATION_FAILED; return true;
    case STET__FACT_EVENT: x->event = (uint64_t)f->completion; return true; /* a run waits for one at a time */
    default: return true;
    }
}

static int
expect_on_fact(void *arg, const stet__fact *f, uint64_t seq, bool is_taken)
{
    expect_scan  *scan = arg;
    stet__expect *x = scan->x;
    bool          ok;

    if (seq == 0) {
        if (f->kind == STET__FACT_STARTED) /* entries that were taken before this generation need not be there */
            x->inbox = (uint64_t)f->taken;
        ok = expect_fact(x, f);
    } else {
        x->inbox = seq > x->inbox ? seq : x->inbox;
        if (f->kind == 0 && x->bad_entry == 0)
            x->bad_entry = seq;
        ok = (f->kind != STET__FACT_SETTLED || expect_settled(x, f)) &&
             (f->kind != STET__FACT_DECIDED || expect_decided(x, f)) &&
             (is_taken || expect_untaken(x, f));
        if (f->kind == STET__FACT_REWIND && is_taken)
            expect_rewound(x, f);
    }
    return ok ? STET_OK : expect_no_memory();
}

/* ---- what follows ---------------------------------------------------------------------------- */

static bool
expect_timer(stet__expect *x, int64_t fire_ms, uint64_t completion)
{
    stet__want_timer *timer = stet__arena_get(&x->l.arena, sizeof *timer);

    if (timer == NULL)
        return false;
    *timer = (stet__want_timer){ x->timers, fire_ms, completion };
    x->timers = timer;
    return true;
}

static bool
expect_has_fired(const stet__expect *x, uint64_t completion)
{
    for (size_t i = 0; i < x->n_fired; i++)
        if (x->fired[i] == completion)
            return true;
    return false;
}

/* A deadline's timer is of no use once a stop was asked for or an undo failed, and may be there or not. */
static bool
expect_timers(stet__expect *x)
{
    const stet__run *run = &x->l.run;

    if (stet__run_is_terminal(run) || x->is_unreadable)
        return true;
    for (const stet__cmd *cmd = x->l.journal.waiting; cmd != NULL; cmd = cmd->next)
        if (cmd->has_timer && !expect_has_fired(x, cmd->completion) &&
            !expect_timer(x, cmd->until_ms, cmd->completion))
            return false;
    if (run->deadline_ms != 0 && x->stop == 0 && !run->is_told &&
        !expect_timer(x, run->deadline_ms, STET__TIMER_DEADLINE))
        return false;
    return !stet__run_has_lane(run) || x->is_visible ||
           expect_timer(x, run->visible_ms, STET__TIMER_VISIBLE);
}

static bool
expect_labels(stet__expect *x)
{
    const stet__run *run = &x->l.run;
    const char      *at = run->labels.data, *end = at != NULL ? at + run->labels.len : NULL;

    while (at != NULL && at < end) {
        size_t            len = strnlen(at, (size_t)(end - at));
        char             *key = stet__arena_get(&x->l.arena, len + 1 + sizeof run->id.bytes);
        stet__want_value *value = expect_value(x, STET__SPACE_LABEL, 1);

        if (key == NULL || value == NULL)
            return false;
        memcpy(key, at, len);
        key[len] = '\0';
        memcpy(key + len + 1, run->id.bytes, sizeof run->id.bytes);
        value->key = (stet_bytes){ key, len + 1 + sizeof run->id.bytes };
        value->data = stet_text("");
        at += len + 1;
    }
    return true;
}

static bool
expect_child(stet__expect *x)
{
    const stet__run  *run = &x->l.run;
    size_t            len = strlen(run->handler);
    char             *data = stet__arena_get(&x->l.arena, sizeof run->id.bytes + len);
    stet__want_value *value = expect_value(x, STET__SPACE_CHILD, 1);

    if (data == NULL || value == NULL)
        return false;
    memcpy(data, run->id.bytes, sizeof run->id.bytes);
    memcpy(data + sizeof run->id.bytes, run->handler, len);
    value->data = (stet_bytes){ data, sizeof run->id.bytes + len };
    return stet__child_key(&x->l.arena, &value->key, run->parent,
                           run->parent_step != NULL ? run->parent_step : "", run->child_key);
}

/* A wait that goes on has its mark; an event removes it before it is taken in. */
static void
expect_waits_only(stet__expect *x)
{
    for (stet__want_value **at = &x->values; *at != NULL;) {
        uint64_t         revision = (*at)->revision;
        bool             is_topic = strcmp((*at)->space, STET__SPACE_TOPIC) == 0;
        bool             is_boundary = strcmp((*at)->space, STET__SPACE_BOUNDARY) == 0;
        const stet__cmd *cmd = is_topic || is_boundary
                                   ? stet__map_find(&x->l.journal.completions, &revision, sizeof revision)
                                   : NULL;

        /* One that was stopped has no mark; of a boundary, what was decided stays in it. */
        if (cmd != NULL && (stet__run_is_terminal(&x->l.run) || (is_topic && (cmd->is_settled || revision == x->event)) ||
                            (is_boundary && cmd->is_settled && cmd->has_mark)))
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

/* Values that the run's start put. */
static bool
expect_values(stet__expect *x)
{
    const stet__run  *run = &x->l.run;
    stet__want_value *value;

    if (run->idempotency_key != NULL) {
        if ((value = expect_value(x, STET__SPACE_IDEM, 1)) == NULL ||
            !stet__idem_key(&x->l.arena, &value->key, stet_text(run->handler),
                            run->key != NULL ? stet_text(run->key) : (stet_bytes){ NULL, 0 },
                            stet_text(run->idempotency_key)))
            return false;
        value->data = stet__id_bytes(&run->id);
    }
    if (run->child_key != NULL && !stet__id_is_zero(run->parent) && !expect_child(x))
        return false;
    return expect_labels(x);
}

static void
expect_waits(stet__expect *x, stet_status status, stet__due due, int64_t due_ms)
{
    x->status = status;
    x->due = due;
    x->due_ms = due_ms;
}

/* Status and due time of a run nobody has: what its last execution, and what came since, leave it
 * with. */
static void
expect_status(stet_engine *e, stet__expect *x)
{
    const stet__run *run = &x->l.run;
    bool             has_news = x->inbox > run->taken;
    int64_t          now_ms = stet__store_now(e);

    if (x->is_unreadable) {
        expect_waits(x, STET_STATUS_STUCK, STET__DUE_NEVER, 0);
        return;
    }
    if (stet__run_is_terminal(run)) {
        expect_waits(x, run->status, STET__DUE_NEVER, 0);
        return;
    }
    switch (run->dispatch) {
    case STET__FACT_SUSPENDED:
        expect_waits(x, has_news ? STET_STATUS_PENDING : STET_STATUS_SUSPENDED,
                     has_news ? STET__DUE_NOW : STET__DUE_NEVER, 0);
        break;
    case STET__FACT_ATTEMPT_FAILED:
    case STET__FACT_DEFERRED:
        expect_waits(x, STET_STATUS_RETRYING, STET__DUE_AT, run->due_ms);
        break;
    case STET__FACT_STARTED:
        expect_waits(x, STET_STATUS_PENDING,
                     run->visible_ms > now_ms ? STET__DUE_AT : STET__DUE_NOW, run->visible_ms);
        break;
    default: expect_waits(x, STET_STATUS_PENDING, STET__DUE_NOW, 0); break;
    }
    if (run->status == STET_STATUS_STUCK && !x->is_unstuck)
        expect_waits(x, STET_STATUS_STUCK, run->code == STET_ELOST ? STET__DUE_AT : STET__DUE_NEVER, STET__HELD_MS);
    else if (run->status == STET_STATUS_COMPENSATION_FAILED && !x->is_tried_again)
        expect_waits(x, STET_STATUS_COMPENSATION_FAILED, STET__DUE_AT, STET__HELD_MS);
    else if ((x->pause != 0 ? x->pause > 0 : run->is_paused) && x->stop == 0)
        expect_waits(x, STET_STATUS_PAUSED, STET__DUE_AT, STET__HELD_MS);
    else {
        if ((x->stop != 0 && run->stop_code == 0) || (x->is_hastened && stet__run_has_begun(run))) /* it has to learn of it */
            x->due = STET__DUE_NOW;
        x->status = run->rollback != 0 ? STET_STATUS_COMPENSATING : x->stop != 0 ? STET_STATUS_CANCELLING : x->status;
    }
}

/* What is said about an ended run is not in its facts. */
static int
expect_marks(stet_engine *e, stet__expect *x)
{
    static const char *const discards[] = { STET__SPACE_BASE_DISCARD, STET__SPACE_DISCARD };
    const stet__run         *run = &x->l.run;
    stet_bytes               key = stet__id_bytes(&run->id);
    stet__want_value        *value;
    stet_value               v;
    int                      err;

    stet__extra_of(run, &x->extra);
    if (!stet__run_is_terminal(run) || run->status == STET_STATUS_COMPLETED)
        return STET_OK;
    err = e->store->ops->value(e->store, STET__SPACE_RETRY, key, &v);
    x->has_mark = err == STET_OK || err == STET_ENOTFOUND;
    if (err == STET_OK) {
        bool ok = expect_copy(x, &x->extra.retried_by, v.data);

        x->mark_version = v.version;
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        if (!ok)
            return expect_no_memory();
    } else if (err != STET_ENOTFOUND)
        return err;
    for (size_t i = 0; i < 2 && !(x->extra.flags & STET__FACT_DISCARDED); i++) {
        if ((err = e->store->ops->value(e->store, discards[i], key, &v)) == STET_OK) {
            x->extra.flags |= STET__FACT_DISCARDED;
            stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
        } else if (err != STET_ENOTFOUND)
            return err;
    }
    if (x->has_row && (x->l.extra.flags & STET__FACT_DISCARDED))
        x->extra.flags |= STET__FACT_DISCARDED;
    for (size_t i = 0; i < 2 && (x->extra.flags & STET__FACT_DISCARDED); i++) {
        if ((value = expect_value(x, discards[i], 0)) == NULL)
            return expect_no_memory();
        value->key = key;
        value->data = stet_text("1");
    }
    return STET_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int
expect_row_load(stet_engine *e, stet__expect *x, stet_id id, const stet_run_row *lost)
{
    int err;

    if (lost != NULL) {
        x->l.row = *lost;
        x->l.row.handler = x->l.row.key = x->l.row.lane = x->l.row.group = x->l.row.reason = NULL;
        x->l.row.extra = (stet_bytes){ NULL, 0 };
        return STET_OK;
    }
    x->has_row = true;
    err = stet__load_row(e, id, &x->l.arena, &x->l.row, &x->l.extra);
    if (err == STET_ECORRUPT || err == STET_END) { /* its extra: rebuilt like all else */
        memset(&x->l.extra, 0, sizeof x->l.extra);
        return STET_OK;
    }
    return err;
}

static int
expect_load(stet_engine *e, stet__expect *x, stet_id id, const stet_run_row *lost)
{
    expect_scan scan = { e, x };
    int         err;

    memset(x, 0, sizeof *x);
    stet__arena_init(&x->l.arena, &e->p->alloc);
    stet__journal_init(&x->l.journal, &x->l.arena, &e->p->alloc);
    stet__run_init(&x->l.run, &x->l.arena, id);
    if ((err = expect_row_load(e, x, id, lost)) != STET_OK)
        goto failed;
    err = stet__load_facts_seen(e, &x->l.run, &x->l.journal, x->l.row.journal, &x->l.bad_revision,
                                expect_on_fact, &scan);
    /* Retention may have removed it between the two looks. */
    if (err == STET_ECORRUPT && x->has_row && x->l.run.journal == 0 && x->l.bad_revision == 0) {
        err = expect_row_load(e, x, id, NULL);
        if (err == STET_OK)
            err = stet__fail(STET_ECORRUPT, "the run has no facts");
    }
    if (err == STET_ECORRUPT) { /* nothing is asked of the store from here on: its error is the caller's */
        x->is_unreadable = true;
        x->inbox = x->l.row.inbox;
        expect_status(e, x);
        stet__extra_of(&x->l.run, &x->extra);
        return STET_OK;
    }
    if (err != STET_OK)
        goto failed;
    if (x->l.run.stop_code != 0 || x->l.run.is_told) /* what was told stands: a stop behind that is none */
        x->stop = x->l.run.stop_code;
    /* One that is in its lane was visible, also if the clock was set back since. */
    x->is_visible = stet__run_has_begun(&x->l.run) || x->l.row.lane != NULL ||
                    x->l.run.visible_ms <= stet__store_now(e);
    expect_status(e, x);
    if ((err = expect_marks(e, x)) != STET_OK)
        goto failed;
    expect_waits_only(x);
    if (expect_timers(x) && expect_values(x))
        return STET_OK;
    err = expect_no_memory();
failed:
    stet__expect_free(x);
    return err;
}

int
stet__expect_load(stet_engine *e, stet__expect *x, stet_id id, const stet_run_row *lost)
{
    int err = STET_ECONFLICT;

    for (int i = 0; err == STET_ECONFLICT && i < EXPECT_TRIES_MAX; i++)
        err = expect_load(e, x, id, lost);
    return err == STET_ECONFLICT ? stet__fail(STET_EBUSY, "the run began anew all the time it was read; try again") : err;
}

void
stet__expect_free(stet__expect *x)
{
    stet__loaded_free(&x->l);
}

bool
stet__expect_row(stet__expect *x, stet__arena *arena, stet_run_row *row)
{
    const stet__run *run = &x->l.run;
    stet__buf        extra;
    bool             ok;

    memset(row, 0, sizeof *row);
    row->id = run->id;
    row->handler = run->handler != NULL ? stet__arena_str(arena, run->handler) : NULL;
    row->key = run->key != NULL ? stet__arena_str(arena, run->key) : NULL;
    row->group = run->group != NULL ? stet__arena_str(arena, run->group) : NULL;
    row->reason = run->reason != NULL ? stet__arena_str(arena, run->reason) : NULL;
    row->status = x->status;
    row->is_terminal = stet_status_is_terminal(x->status);
    row->journal = x->l.row.journal;
    row->inbox = x->inbox;
    row->due_ms = STET_NEVER;
    row->created_ms = run->created_ms;
    row->ended_ms = run->ended_ms;
    row->priority = run->priority;
    row->attempt = stet__run_attempt(run);
    row->epoch = run->epoch;
    stet__buf_init(&extra, arena->alloc);
    stet__fact_encode(&extra, &x->extra);
    row->extra.len = extra.len;
    row->extra.data = extra.failed ? NULL : stet__arena_copy(arena, extra.data, extra.len);
    ok = row->handler != NULL && row->extra.data != NULL &&
         (run->key == NULL || row->key != NULL) && (run->group == NULL || row->group != NULL) &&
         (run->reason == NULL || row->reason != NULL);
    stet__buf_free(&extra);
    return ok;
}

/* ---- state ----------------------------------------------------------------------------------- */

int64_t
stet__wrote_writer(const stet__fact *f)
{
    return stet__fact_writer(stet__fact_id(f->run), (uint64_t)f->completion);
}

/* A write that says which one it replaced is later than that one. Where retention took what was between them: runs of
 * one key execute one after the other, so the time of the fact decides, and within a millisecond the machine's steady
 * clock. */
bool
stet__wrote_later(const stet__fact *a, const stet__fact *b)
{
    int order;

    if (a->replaces != 0 && a->replaces == stet__wrote_writer(b))
        return true;
    if (b->replaces != 0 && b->replaces == stet__wrote_writer(a))
        return false;
    if (a->time_ms != b->time_ms)
        return a->time_ms > b->time_ms;
    if (a->run.len == b->run.len && a->run.len > 0 &&
        (order = memcmp(a->run.data, b->run.data, a->run.len)) == 0)
        return a->completion > b->completion;
    if (a->number != b->number)
        return a->number > b->number;
    return a->run.len == b->run.len && a->run.len > 0 &&
           memcmp(a->run.data, b->run.data, a->run.len) > 0;
}

stet__fact
stet__wrote_base(const stet__wrote *wrote, const stet_id *run)
{
    stet__fact base = wrote->fact;

    base.run = stet__id_bytes(run);
    base.completion = (int64_t)wrote->fact.revision;
    return base;
}
