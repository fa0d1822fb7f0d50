/* Replay matching; see journal.h. */
#include "core/journal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_KEY_MAX (2 * STET__NAME_MAX + 64)

void
stet__journal_init(stet__journal *j, stet__arena *arena, stet__alloc *alloc)
{
    memset(j, 0, sizeof *j);
    j->arena = arena;
    stet__map_init(&j->rows, alloc);
    stet__map_init(&j->completions, alloc);
    stet__map_init(&j->letters, alloc);
    stet__map_init(&j->signal_ids, alloc);
    stet__map_init(&j->update_keys, alloc);
    stet__map_init(&j->repeats, alloc);
}

void
stet__journal_free(stet__journal *j)
{
    stet__map_free(&j->rows);
    stet__map_free(&j->completions);
    stet__map_free(&j->letters);
    stet__map_free(&j->signal_ids);
    stet__map_free(&j->update_keys);
    stet__map_free(&j->repeats);
    j->waiting = j->spared = j->orphans = NULL;
}

/* Reads, notes and choices do no harm when the code no longer asks for them. */
bool
stet__journal_is_binding(stet__fact_kind kind)
{
    switch (kind) {
    case STET__FACT_STATE_GET:
    case STET__FACT_NOW:
    case STET__FACT_VERSION:
    case STET__FACT_NOTE:
    case STET__FACT_LOOK:
    case STET__FACT_AWAIT:
    case STET__FACT_ANY: return false;
    default: return true;
    }
}

/* Of a recorded one. */
static bool
journal_must_be_asked(const stet__cmd *cmd)
{
    return !cmd->is_inherited && stet__journal_is_binding(cmd->kind);
}

/* … but the first execution went past them, so a stop is told behind them. Of a command nobody has asked for
 * yet, so it is a recorded one. Who inherited them may not have come to them yet. */
static void
journal_count_choice(stet__journal *j, const stet__cmd *cmd, uint64_t n)
{
    if (cmd->kind == STET__FACT_AWAIT || cmd->kind == STET__FACT_ANY)
        *(cmd->is_inherited ? &j->inherited_choices : &j->choices) += n;
}

static size_t
journal_key(uint8_t key[JOURNAL_KEY_MAX], stet__fact_kind kind, const char *name, size_t len)
{
    if (len > JOURNAL_KEY_MAX - 1)
        len = JOURNAL_KEY_MAX - 1;
    key[0] = (uint8_t)kind;
    memcpy(key + 1, name, len);
    return len + 1;
}

static stet__row_of_cmds *
journal_row(stet__journal *j, stet__fact_kind kind, const char *name, size_t len)
{
    uint8_t            key[JOURNAL_KEY_MAX];
    size_t             key_len = journal_key(key, kind, name, len);
    stet__row_of_cmds *row = stet__map_find(&j->rows, key, key_len);

    if (row != NULL)
        return row;
    if ((row = stet__arena_get0(j->arena, sizeof *row)) == NULL ||
        stet__map_put(&j->rows, key, key_len, row) != STET_OK)
        return NULL;
    return row;
}

static int
journal_place(stet__journal *j, stet__row_of_cmds *row, stet__cmd *cmd)
{
    size_t at = (size_t)cmd->occurrence - 1;

    if (at >= row->cap) {
        size_t      cap = stet__cap_next(j->arena->alloc, row->cap, 4);
        stet__cmd **grown;

        while (cap <= at)
            cap *= 2;
        if ((grown = stet__arena_get0(j->arena, cap * sizeof *grown)) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
        if (row->n > 0)
            memcpy(grown, row->cmds, row->n * sizeof *grown);
        row->cmds = grown;
        row->cap = cap;
    }
    row->cmds[at] = cmd;
    if (at + 1 > row->n)
        row->n = at + 1;
    return STET_OK;
}

static stet__cmd *
journal_new(stet__journal *j, stet__fact_kind kind, const char *name, size_t len, uint64_t occurrence)
{
    stet__row_of_cmds *row = journal_row(j, kind, name, len);
    stet__cmd         *cmd;

    if (row == NULL || (cmd = stet__arena_get0(j->arena, sizeof *cmd)) == NULL ||
        (cmd->name = stet__arena_copy(j->arena, name, len)) == NULL) {
        (void)stet__fail(STET_ENOMEM, "out of memory while loading a journal");
        return NULL;
    }
    cmd->kind = kind;
    cmd->occurrence = occurrence;
    return journal_place(j, row, cmd) == STET_OK ? cmd : NULL;
}

int
stet__journal_index(stet__journal *j, stet__cmd *cmd, uint64_t completion)
{
    if (cmd->completion == 0) {
        cmd->next = j->waiting;
        j->waiting = cmd;
    }
    if (cmd->revision == 0)
        cmd->revision = completion;
    cmd->completion = completion;
    if (stet__map_put(&j->completions, &completion, sizeof completion, cmd) != STET_OK)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    return STET_OK;
}

stet__cmd *
stet__journal_add(stet__journal *j, stet__fact_kind kind, const char *name, uint64_t occurrence,
                  uint64_t completion)
{
    stet__cmd *cmd = journal_new(j, kind, name, strlen(name), occurrence);

    if (cmd == NULL)
        return NULL;
    cmd->is_asked = true;
    if (completion != 0 && stet__journal_index(j, cmd, completion) != STET_OK)
        return NULL;
    return cmd;
}

/* ---- applying --------------------------------------------------------------------------------- */

static int
journal_copy_outcome(stet__journal *j, stet__cmd *cmd, const stet__fact *f)
{
    bool ok = true;

    cmd->code = (int)f->code;
    cmd->cause = (int)f->cause;
    if (f->value.data != NULL) {
        ok = (cmd->value.data = stet__arena_copy(j->arena, f->value.data, f->value.len)) != NULL;
        cmd->value.len = f->value.len;
    }
    if (ok && f->text.data != NULL)
        ok = (cmd->text = stet__arena_copy(j->arena, f->text.data, f->text.len)) != NULL;
    if (ok && f->kind == STET__FACT_DECIDED && f->who.data != NULL)
        ok = (cmd->origin = stet__arena_copy(j->arena, f->who.data, f->who.len)) != NULL;
    else if (ok && f->origin.data != NULL)
        ok = (cmd->origin = stet__arena_copy(j->arena, f->origin.data, f->origin.len)) != NULL;
    return ok ? STET_OK : stet__fail(STET_ENOMEM, "out of memory while loading a journal");
}

static void
journal_spare(stet__journal *j, stet__cmd *cmd)
{
    if (cmd->is_spared)
        return;
    cmd->is_spared = true;
    cmd->had_timer = cmd->has_timer;
    cmd->spared = j->spared;
    j->spared = cmd;
}

void
stet__journal_settle(stet__journal *j, stet__cmd *cmd)
{
    if (cmd->has_timer || cmd->has_mark)
        journal_spare(j, cmd);
    cmd->is_settled = true;
    cmd->has_timer = false;
    cmd->settled_at = ++j->order;
}

static int
journal_record(stet__journal *j, stet__fact_kind kind, const stet__fact *f, stet__cmd **out)
{
    stet__row_of_cmds *row = journal_row(j, kind, f->name.data ? f->name.data : "", f->name.len);
    stet__cmd         *cmd = NULL;

    if (row == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    if (f->occurrence < 1 || f->occurrence > (int64_t)row->n + 1000000)
        return stet__fail(STET_ECORRUPT, "%s with occurrence %lld", stet__fact_kind_name(f->kind),
                          (long long)f->occurrence);
    if ((size_t)f->occurrence <= row->n)
        cmd = row->cmds[f->occurrence - 1];
    if (cmd == NULL) {
        if ((cmd = journal_new(j, kind, f->name.data ? f->name.data : "", f->name.len,
                               (uint64_t)f->occurrence)) == NULL)
            return STET_ENOMEM;
        cmd->is_recorded = true;
        cmd->revision = f->revision;
        cmd->is_inherited = (f->flags & STET__FACT_INHERITED) != 0;
        if (journal_must_be_asked(cmd))
            j->unasked++;
        journal_count_choice(j, cmd, 1);
    }
    if (!cmd->has_timer || f->until_ms != 0) /* else it is settled, and its timer still has to go */
        cmd->until_ms = f->until_ms;
    cmd->number = f->number;
    cmd->fingerprint = f->fingerprint;
    cmd->run = stet__fact_id(f->run);
    cmd->attempt = (uint32_t)f->attempt;
    cmd->inherited = (uint32_t)f->inherited;
    cmd->is_absent = (f->flags & STET__FACT_ABSENT) != 0;
    cmd->is_skipped = (f->flags & STET__FACT_SKIPPED) != 0;
    cmd->is_approval = (f->flags & STET__FACT_APPROVAL) != 0;
    *out = cmd;
    return STET_OK;
}

/* ---- signals ---------------------------------------------------------------------------------- */

static stet__letterbox *
journal_letterbox(stet__journal *j, stet_bytes signal)
{
    stet__letterbox *box = stet__map_find(&j->letters, signal.data, signal.len);

    if (box == NULL && ((box = stet__arena_get0(j->arena, sizeof *box)) == NULL ||
                        stet__map_put(&j->letters, signal.data, signal.len, box) != STET_OK)) {
        (void)stet__fail(STET_ENOMEM, "out of memory while loading a journal");
        return NULL;
    }
    return box;
}

bool
stet__journal_has_signal(const stet__journal *j, const char *signal)
{
    const stet__letterbox *box = stet__map_find(&j->letters, signal, strlen(signal));

    return box != NULL && box->first != NULL;
}

int
stet__journal_letters(const stet__journal *j, stet__letter_fn fn, void *arg)
{
    size_t      at = 0, len;
    const void *name;
    void       *value;
    int         err = STET_OK;

    while (err == STET_OK && stet__map_next(&j->letters, &at, &name, &len, &value))
        for (const stet__letter *l = ((stet__letterbox *)value)->first; err == STET_OK && l != NULL; l = l->next)
            err = fn(arg, (stet_bytes){ name, len }, l);
    return err;
}

/* A wait for a signal takes the oldest one nobody took, or stands in line. */
static int
journal_apply_wait(stet__journal *j, stet__cmd *cmd, const stet__fact *f)
{
    stet_bytes       signal = f->topic.data != NULL ? f->topic : f->name;
    stet__letterbox *box = journal_letterbox(j, signal);

    if (box == NULL)
        return STET_ENOMEM;
    if ((cmd->topic = stet__arena_copy(j->arena, signal.data, signal.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    if (box->first != NULL) {
        cmd->value = box->first->value;
        cmd->signal_id = box->first->id;
        if ((box->first = box->first->next) == NULL)
            box->last = NULL;
        stet__journal_settle(j, cmd);
        return STET_OK;
    }
    if (box->waits == NULL)
        box->waits = cmd;
    else
        box->waits_last->behind = cmd;
    box->waits_last = cmd;
    return STET_OK;
}

/* The first wait of the line, without those that ended otherwise. */
static stet__cmd *
journal_first_wait(stet__letterbox *box)
{
    while (box->waits != NULL && box->waits->is_settled && !(STET__MUTANT(signal_late) && box->waits->code != 0))
        box->waits = box->waits->behind;
    return box->waits;
}

static int
journal_apply_signal(stet__journal *j, const stet__fact *f)
{
    stet__letterbox *box;
    stet__letter    *letter;
    stet__cmd       *cmd;
    stet_bytes       value = { NULL, f->value.len }, id = { NULL, f->idempotency_key.len };

    if (f->idempotency_key.data != NULL) {
        if (stet__map_find(&j->signal_ids, f->idempotency_key.data, f->idempotency_key.len) != NULL &&
            !STET__MUTANT(signal_repeated)) {
            j->anomalies++; /* it was sent again */
            return STET_OK;
        }
        if ((id.data = stet__arena_copy(j->arena, f->idempotency_key.data, f->idempotency_key.len)) == NULL ||
            stet__map_put(&j->signal_ids, id.data, id.len,
                          f->flags & STET__FACT_SEEN ? (void *)&j->signal_ids : stet__journal_came(j)) != STET_OK)
            return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    }
    if (f->flags & STET__FACT_SEEN)
        return STET_OK;
    if ((box = journal_letterbox(j, f->name)) == NULL)
        return STET_ENOMEM;
    if ((value.data = stet__arena_copy(j->arena, f->value.data, f->value.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    if ((cmd = journal_first_wait(box)) != NULL) {
        cmd->value = value;
        cmd->signal_id = id;
        stet__journal_settle(j, cmd);
        return STET_OK;
    }
    if (STET__MUTANT(signal_unheard))
        return STET_OK;
    if ((letter = stet__arena_get0(j->arena, sizeof *letter)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    letter->value = value;
    letter->id = id;
    if (box->first == NULL)
        box->first = letter;
    else
        box->last->next = letter;
    box->last = letter;
    return STET_OK;
}

/* ---- updates --------------------------------------------------------------------------------- */

static bool
journal_copy(stet__journal *j, stet_bytes *out, stet_bytes from)
{
    out->len = from.len;
    return (out->data = stet__arena_copy(j->arena, from.data, from.len)) != NULL;
}

static void
journal_push(stet__update **first, stet__update **last, stet__update *u)
{
    u->next = NULL;
    if (*first == NULL)
        *first = u;
    else
        (*last)->next = u;
    *last = u;
}

static stet__update *
journal_update_new(stet__journal *j, stet_bytes name, stet_bytes input)
{
    stet__update *u = stet__arena_get0(j->arena, sizeof *u);

    if (u == NULL || (u->name = stet__arena_copy(j->arena, name.data, name.len)) == NULL || !journal_copy(j, &u->input, input)) {
        (void)stet__fail(STET_ENOMEM, "out of memory while loading a journal");
        return NULL;
    }
    return u;
}

/* One key, one update: of repeats the first one counts. */
static int
journal_apply_asked(stet__journal *j, const stet__fact *f)
{
    stet__update *u;

    if (stet__map_find(&j->update_keys, f->idempotency_key.data, f->idempotency_key.len) != NULL &&
        !STET__MUTANT(update_repeated)) {
        j->anomalies++;
        return STET_OK;
    }
    if ((u = journal_update_new(j, f->name, f->value)) == NULL)
        return STET_ENOMEM;
    if (!journal_copy(j, &u->key, f->idempotency_key) ||
        stet__map_put(&j->update_keys, u->key.data, u->key.len, u) != STET_OK)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    if (f->flags & STET__FACT_SEEN)
        return STET_OK;
    journal_push(&j->asked, &j->asked_last, u);
    return STET_OK;
}

/* It leaves those that wait to be decided, wherever it stands. */
static void
journal_take_asked(stet__journal *j, stet__update *u)
{
    stet__update *before = NULL;

    for (stet__update *at = j->asked; at != u; at = at->next)
        before = at;
    if (before == NULL)
        j->asked = u->next;
    else
        before->next = u->next;
    if (j->asked_last == u)
        j->asked_last = before;
}

/* The one an inherited record was rewound to, if that is what it is. */
static stet__update *
journal_inherited(const stet__journal *j, stet_bytes name)
{
    stet__update *u = j->asked;

    while (u != NULL && (u->key.data != NULL || strlen(u->name) != name.len || memcmp(u->name, name.data, name.len) != 0))
        u = u->next;
    return u;
}

/* What came of one. One that was refused changed nothing, so nobody has to come there again. */
static int
journal_apply_update(stet__journal *j, stet__cmd *cmd, const stet__fact *f)
{
    bool          is_inherited = (f->flags & STET__FACT_INHERITED) != 0, is_asked;
    stet__update *u = is_inherited ? journal_inherited(j, f->name)
                                   : stet__map_find(&j->update_keys, f->idempotency_key.data, f->idempotency_key.len);

    is_asked = u != NULL;
    if (u == NULL && is_inherited && (u = journal_update_new(j, f->name, f->value)) == NULL)
        return STET_ENOMEM;
    if (u == NULL || u->cmd != NULL)
        return stet__fail(STET_ECORRUPT, "an update that was decided and that nobody asked for");
    if (is_asked)
        journal_take_asked(j, u);
    u->is_made = cmd->is_asked;
    cmd->is_refused = (f->flags & STET__FACT_REJECTED) != 0;
    if (cmd->is_refused && !cmd->is_asked) {
        stet__journal_asked(j, cmd);
        u->is_made = true;
    }
    if ((u->wait = stet__arena_copy(j->arena, f->topic.data, f->topic.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    u->cmd = cmd;
    u->revision = f->revision;
    journal_push(&j->updates, &j->updates_last, u);
    return STET_OK;
}

/* Those that were made since are to be made again, before all that came later; what was refused stays so. */
static void
journal_rewind_updates(stet__journal *j, uint64_t from)
{
    stet__update *later = j->asked, *later_last = j->asked_last, *next;

    j->asked = j->asked_last = NULL;
    next = j->updates;
    j->updates = j->updates_last = NULL;
    for (stet__update *u = next; u != NULL; u = next) {
        next = u->next;
        if (u->revision < from || u->cmd->is_refused) {
            journal_push(&j->updates, &j->updates_last, u);
            continue;
        }
        u->before = u->before != NULL ? u->before : u->cmd;
        u->cmd = NULL;
        u->is_made = false;
        journal_push(&j->asked, &j->asked_last, u);
    }
    if (j->asked == NULL)
        j->asked = later;
    else
        j->asked_last->next = later;
    j->asked_last = later != NULL ? later_last : j->asked_last;
}

void
stet__journal_asked(stet__journal *j, stet__cmd *cmd)
{
    if (!cmd->is_asked && journal_must_be_asked(cmd))
        j->unasked--;
    /* One that was skipped need not be asked for either; nobody did it. */
    j->inherited += !cmd->is_asked && cmd->is_inherited && cmd->kind == STET__FACT_STEP && !cmd->is_skipped;
    cmd->is_asked = true;
}

/* ---- commands -------------------------------------------------------------------------------- */

static int
journal_apply_command(stet__journal *j, const stet__fact *f)
{
    stet__cmd *cmd;
    int        err;

    switch (f->kind) {
    case STET__FACT_STEP_RETRY:
        if ((err = journal_record(j, STET__FACT_STEP, f, &cmd)) != STET_OK ||
            (err = journal_copy_outcome(j, cmd, f)) != STET_OK)
            return err;
        cmd->fired_at = STET__MUTANT(retry_hasty) && !cmd->is_asked;
        cmd->has_timer = true;
        return stet__journal_index(j, cmd, f->revision);
    case STET__FACT_SLEEP:
    case STET__FACT_CALL:
    case STET__FACT_AWAKEABLE:
    case STET__FACT_AWAIT:
    case STET__FACT_ANY:
    case STET__FACT_SIGNAL:
    case STET__FACT_TOPIC:
    case STET__FACT_BOUNDARY:
        if ((err = journal_record(j, f->kind, f, &cmd)) != STET_OK)
            return err;
        /* An inherited choice was void and made anew; a retry of that retry inherits both. */
        if (cmd->is_inherited && (cmd->is_settled || !(f->flags & STET__FACT_INHERITED))) {
            if (!cmd->is_asked)
                journal_count_choice(j, cmd, -UINT64_C(1));
            cmd->is_inherited = (f->flags & STET__FACT_INHERITED) != 0;
            cmd->is_settled = false;
            if (!STET__MUTANT(wait_misplaced))
                cmd->revision = f->revision; /* where a rewind looks for it, as in the execution that made it */
            cmd->chosen_at = 0;
            if (!cmd->is_asked)
                journal_count_choice(j, cmd, 1);
            j->unasked += !cmd->is_asked && journal_must_be_asked(cmd);
            cmd->fired_at = 0;
        }
        if (f->code == 0) {
            cmd->has_timer = f->until_ms != 0;
            cmd->has_mark = f->kind == STET__FACT_TOPIC || f->kind == STET__FACT_BOUNDARY;
        }
        if (f->code != 0) { /* refused or interrupted before anything was created, or while it waited */
            cmd->chosen_at = f->revision;
            stet__journal_settle(j, cmd);
            return journal_copy_outcome(j, cmd, f);
        }
        if ((err = stet__journal_index(j, cmd, f->revision)) != STET_OK || f->kind != STET__FACT_SIGNAL)
            return err;
        return journal_apply_wait(j, cmd, f);
    case STET__FACT_ROLLBACK:
        if ((err = journal_record(j, f->kind, f, &cmd)) != STET_OK ||
            (err = journal_copy_outcome(j, cmd, f)) != STET_OK)
            return err;
        cmd->fired_at = ++j->order;
        return stet__journal_index(j, cmd, f->revision);
    case STET__FACT_UPDATE:
        if ((err = journal_record(j, f->kind, f, &cmd)) != STET_OK ||
            (err = journal_copy_outcome(j, cmd, f)) != STET_OK)
            return err;
        stet__journal_settle(j, cmd);
        return journal_apply_update(j, cmd, f);
    default:
        if ((err = journal_record(j, f->kind, f, &cmd)) != STET_OK ||
            (err = journal_copy_outcome(j, cmd, f)) != STET_OK)
            return err;
        if (f->code == STET_ECANCELLED || f->code == STET_EEXPIRED) /* a step that had been tried, and was told to stop */
            cmd->chosen_at = f->revision;
        if (!(f->flags & STET__FACT_MORE))
            stet__journal_settle(j, cmd);
        return STET_OK;
    }
}

/* ---- answers ---------------------------------------------------------------------------------- */

/* An undo that used up its attempts has them anew. */
static void
journal_apply_retry(stet__journal *j)
{
    for (stet__cmd *cmd = j->waiting; cmd != NULL; cmd = cmd->next)
        if (cmd->kind == STET__FACT_STEP && !cmd->is_settled && stet__name_is_undo(stet_text(cmd->name)))
            cmd->attempt = 0;
}

/* A repeat of what was settled changes nothing; an answer to nothing is an anomaly. */
static int
journal_apply_answer(stet__journal *j, const stet__fact *f)
{
    uint64_t   completion = (uint64_t)f->completion;
    stet__cmd *cmd = stet__map_find(&j->completions, &completion, sizeof completion);

    if (cmd == NULL || cmd->is_settled || (f->kind == STET__FACT_TIMER && !cmd->has_timer)) {
        j->anomalies++;
        return STET_OK;
    }
    if (f->kind == STET__FACT_TIMER && (cmd->kind == STET__FACT_SIGNAL || cmd->kind == STET__FACT_TOPIC)) {
        cmd->has_timer = false;
        stet__journal_settle(j, cmd);
        cmd->code = STET_ETIMEOUT;
        cmd->text = "the time was up first";
        return STET_OK;
    }
    if (f->kind == STET__FACT_TIMER && cmd->kind != STET__FACT_SLEEP) {
        if (cmd->completion == completion) {
            cmd->fired_at = ++j->order;
            cmd->has_timer = false;
        }
        return STET_OK;
    }
    if (f->kind == STET__FACT_EVENT || f->kind == STET__FACT_DECIDED)
        cmd->has_mark = false; /* the event removed it; the decision stands in it */
    if (f->kind == STET__FACT_CHOICE || f->kind == STET__FACT_DECIDED)
        cmd->number = f->kind == STET__FACT_DECIDED ? f->time_ms : f->number;
    if (f->kind == STET__FACT_CHOICE || f->kind == STET__FACT_TIMER)
        cmd->has_timer = false; /* a choice removes it with its record */
    if (f->kind == STET__FACT_CHOICE || f->kind == STET__FACT_ROLLED_BACK)
        cmd->chosen_at = f->revision;
    stet__journal_settle(j, cmd);
    if (STET__MUTANT(decision_yes) && f->kind == STET__FACT_DECIDED)
        return STET_OK;
    return journal_copy_outcome(j, cmd, f);
}

/* ---- what operators do --------------------------------------------------------------------------- */

static stet__cmd *
journal_named(const stet__journal *j, const stet__fact *f)
{
    uint8_t                  key[JOURNAL_KEY_MAX];
    size_t                   len = journal_key(key, STET__FACT_STEP, f->name.data != NULL ? f->name.data : "", f->name.len);
    const stet__row_of_cmds *row = stet__map_find(&j->rows, key, len);

    return row != NULL && f->occurrence > 0 && (uint64_t)f->occurrence <= row->n ? row->cmds[f->occurrence - 1] : NULL;
}

/* The step is settled with the given result, and its body never entered again. It came too late for one that is. */
static int
journal_apply_skip(stet__journal *j, const stet__fact *f)
{
    stet__fact step = *f;
    stet__cmd *cmd = journal_named(j, f);
    int        err;

    if ((cmd != NULL && cmd->is_settled) || (cmd != NULL && STET__MUTANT(skip_executed))) {
        j->anomalies++;
        return STET_OK;
    }
    step.flags = STET__FACT_INHERITED | STET__FACT_SKIPPED;
    step.text = (stet_bytes){ NULL, 0 };
    if ((err = journal_record(j, STET__FACT_STEP, &step, &cmd)) != STET_OK ||
        (err = journal_copy_outcome(j, cmd, &step)) != STET_OK)
        return err;
    cmd->text = NULL; /* of an attempt that failed */
    stet__journal_settle(j, cmd);
    return STET_OK;
}

/* The stop it was told is none: it was told once, and the handler went on by that. */
bool
stet__cmd_has_result(const stet__cmd *cmd)
{
    return cmd->is_settled && cmd->code != STET_ECANCELLED && cmd->code != STET_EEXPIRED;
}

static int
journal_apply_edit(stet__journal *j, const stet__fact *f)
{
    stet__fact step = *f;
    stet__cmd *cmd = journal_named(j, f);

    if (cmd == NULL || !stet__cmd_has_result(cmd) || (STET__MUTANT(edit_dropped) && cmd->attempt > 1)) {
        j->anomalies++;
        return STET_OK;
    }
    step.text = (stet_bytes){ NULL, 0 };
    cmd->text = cmd->origin = NULL;
    cmd->value = (stet_bytes){ NULL, 0 };
    return journal_copy_outcome(j, cmd, &step);
}

static size_t
journal_repeat_key(uint8_t key[JOURNAL_KEY_MAX + 8], const char *name, size_t len, uint64_t occurrence)
{
    size_t n = journal_key(key, STET__FACT_STEP, name, len);

    memcpy(key + n, &occurrence, sizeof occurrence);
    return n + sizeof occurrence;
}

uint64_t
stet__journal_repeats(const stet__journal *j, const char *step, uint64_t occurrence)
{
    uint8_t key[JOURNAL_KEY_MAX + 8];
    size_t  len = journal_repeat_key(key, step, strlen(step), occurrence);

    return j->repeats.used == 0 || STET__MUTANT(rewind_token) ? 0 : (uint64_t)(uintptr_t)stet__map_find(&j->repeats, key, len);
}

/* A signal that a forgotten wait had got is there again, before all that came later. */
static int
journal_return_letter(stet__journal *j, const stet__cmd *wait)
{
    stet__letterbox *box = stet__map_find(&j->letters, wait->topic, strlen(wait->topic));
    stet__letter    *letter = stet__arena_get0(j->arena, sizeof *letter);

    assert(box != NULL); /* it took it out of there */
    if (letter == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    letter->value = wait->value;
    letter->id = wait->signal_id;
    if ((letter->next = box->first) == NULL)
        box->last = letter;
    box->first = letter;
    return STET_OK;
}

static bool
journal_took_letter(const stet__cmd *cmd, uint64_t from)
{
    return cmd->kind == STET__FACT_SIGNAL && !STET__MUTANT(rewind_deaf) && cmd->revision >= from && cmd->is_settled &&
           cmd->code == 0;
}

static int
journal_newest_first(const void *a, const void *b)
{
    const stet__cmd *one = *(const stet__cmd *const *)a, *other = *(const stet__cmd *const *)b;

    return one->settled_at < other->settled_at ? 1 : -1; /* no two are the same */
}

/* Newest first, so that the oldest is in front in the end. */
static int
journal_return_letters(stet__journal *j, uint64_t from)
{
    const stet__cmd **took;
    size_t            n = 0, at = 0;
    int               err = STET_OK;

    for (const stet__cmd *cmd = j->waiting; cmd != NULL; cmd = cmd->next)
        n += journal_took_letter(cmd, from);
    if (n == 0)
        return STET_OK;
    if ((took = stet__arena_get(j->arena, n * sizeof *took)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    for (const stet__cmd *cmd = j->waiting; cmd != NULL; cmd = cmd->next)
        if (journal_took_letter(cmd, from))
            took[at++] = cmd;
    qsort(took, n, sizeof *took, journal_newest_first);
    for (at = 0; at < n && err == STET_OK; at++)
        err = journal_return_letter(j, took[at]);
    return err;
}

/* What others see of it, or wait for because of it, has to go. */
static void
journal_orphan(stet__journal *j, stet__cmd *cmd)
{
    if (cmd->kind == STET__FACT_CALL && !cmd->is_settled) {
        cmd->spared = j->orphans;
        j->orphans = cmd;
    } else if (cmd->kind == STET__FACT_BOUNDARY) { /* also what was decided */
        cmd->has_mark = true;
        journal_spare(j, cmd);
    } else if (!cmd->is_settled && (cmd->has_timer || cmd->has_mark))
        journal_spare(j, cmd);
    cmd->has_timer = false;
}

static int
journal_forget(stet__journal *j, stet__cmd *cmd)
{
    uint8_t key[JOURNAL_KEY_MAX + 8];
    size_t  len = journal_repeat_key(key, cmd->name, strlen(cmd->name), cmd->occurrence);

    if (!cmd->is_asked && journal_must_be_asked(cmd))
        j->unasked--;
    if (!cmd->is_asked)
        journal_count_choice(j, cmd, -UINT64_C(1));
    cmd->is_settled = true; /* nobody waits by it any more */
    if (cmd->kind == STET__FACT_STEP &&
        stet__map_put(&j->repeats, key, len,
                      (void *)((uintptr_t)stet__map_find(&j->repeats, key, len) + 1)) != STET_OK)
        return stet__fail(STET_ENOMEM, "out of memory while loading a journal");
    return STET_OK;
}

/* A wait goes with what it came to: the one that came first may be forgotten. A rollback goes with its end. */
static bool
journal_is_behind(const stet__cmd *cmd, uint64_t from)
{
    return cmd->revision >= from + STET__MUTANT(rewind_half) ||
           (cmd->chosen_at >= from && !STET__MUTANT(rewind_choice));
}

int
stet__journal_rewind(stet__journal *j, uint64_t from)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;
    int         err;

    if ((err = journal_return_letters(j, from)) != STET_OK)
        return err;
    journal_rewind_updates(j, from);
    j->inherited = j->inherited_max = 0; /* it may go another way now, and do it anew */
    for (stet__cmd **link = &j->waiting; *link != NULL;) {
        stet__cmd *cmd = *link;

        if (!journal_is_behind(cmd, from)) {
            link = &cmd->next;
            continue;
        }
        *link = cmd->next;
        journal_orphan(j, cmd);
        (void)stet__map_remove(&j->completions, &cmd->completion, sizeof cmd->completion);
    }
    while (stet__map_next(&j->rows, &at, &key, &len, &value)) {
        stet__row_of_cmds *row = value;

        for (size_t i = 0; i < row->n; i++) {
            if (row->cmds[i] == NULL || !journal_is_behind(row->cmds[i], from))
                continue;
            if ((err = journal_forget(j, row->cmds[i])) != STET_OK)
                return err;
            row->cmds[i] = NULL;
        }
        while (row->n > 0 && row->cmds[row->n - 1] == NULL)
            row->n--;
    }
    return STET_OK;
}

static bool
journal_is_done(const stet__cmd *step)
{
    return step != NULL && step->kind == STET__FACT_STEP && step->is_settled && step->code == 0;
}

const stet__cmd *
stet__journal_undone(const stet__journal *j, uint64_t from)
{
    const stet__cmd *first = NULL;
    size_t           at = 0, len;
    const void      *key;
    void            *value;

    while (stet__map_next(&j->rows, &at, &key, &len, &value)) {
        const stet__row_of_cmds *row = value;

        for (size_t i = 0; i < row->n; i++) {
            const stet__cmd *step = row->cmds[i], *undo;
            char             name[STET__UNDO_NAME_MAX];

            if (!journal_is_done(step) || journal_is_behind(step, from) || (first != NULL && first->revision < step->revision))
                continue;
            undo = stet__journal_find(j, STET__FACT_STEP, stet__undo_name(name, step->name, strlen(step->name), step->occurrence), 1);
            if (journal_is_done(undo) && journal_is_behind(undo, from))
                first = step;
        }
    }
    return first;
}

/* What came too late: what it did is being undone, or was. */
static int
journal_apply_rewind(stet__journal *j, const stet__fact *f)
{
    bool is_late = stet__journal_undone(j, (uint64_t)f->number) != NULL;

    for (const stet__cmd *cmd = j->waiting; cmd != NULL; cmd = cmd->next)
        is_late = is_late || (cmd->kind == STET__FACT_ROLLBACK && !cmd->is_settled);
    if (!is_late)
        return stet__journal_rewind(j, (uint64_t)f->number);
    j->anomalies++;
    return STET_OK;
}

static int
journal_apply(stet__journal *j, const stet__fact *fact)
{
    if (stet__fact_is_rewrite(fact->kind) && fact->generation != j->generation) {
        j->anomalies++; /* it was meant for another record */
        return STET_OK;
    }
    switch (fact->kind) {
    case STET__FACT_SIGNALLED: return journal_apply_signal(j, fact);
    case STET__FACT_UPDATE_ASKED: return journal_apply_asked(j, fact);
    case STET__FACT_TIMER:
    case STET__FACT_CHILD_DONE:
    case STET__FACT_SETTLED:
    case STET__FACT_EVENT:
    case STET__FACT_DECIDED:
    case STET__FACT_ROLLED_BACK:
    case STET__FACT_CHOICE: return journal_apply_answer(j, fact);
    case STET__FACT_ROLLBACK_RETRY: journal_apply_retry(j); return STET_OK;
    case STET__FACT_STARTED: j->generation = fact->generation; return STET_OK;
    case STET__FACT_ATTEMPT_FAILED:
        if ((uint64_t)fact->inherited > j->inherited_max)
            j->inherited_max = (uint64_t)fact->inherited;
        return STET_OK;
    case STET__FACT_SKIP: return journal_apply_skip(j, fact);
    case STET__FACT_EDIT: return journal_apply_edit(j, fact);
    case STET__FACT_REWIND: return journal_apply_rewind(j, fact);
    default: return stet__fact_is_command(fact->kind) ? journal_apply_command(j, fact) : STET_OK;
    }
}

int
stet__journal_apply(stet__journal *j, const stet__fact *fact)
{
    int err = journal_apply(j, fact);

    if (fact->kind != STET__FACT_TIMER)
        j->known = j->order;
    return err;
}

const char *
stet__undo_name(char room[STET__UNDO_NAME_MAX], const char *name, size_t len, uint64_t occurrence)
{
    (void)snprintf(room, STET__UNDO_NAME_MAX, STET__UNDO_PREFIX "%.*s#%llu", (int)len, name, (unsigned long long)occurrence);
    return room;
}

/* ---- asking ------------------------------------------------------------------------------------ */

static stet__cmd *
journal_at(const stet__journal *j, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    uint8_t                  key[JOURNAL_KEY_MAX];
    size_t                   len = journal_key(key, kind, name, strlen(name));
    const stet__row_of_cmds *row = stet__map_find(&j->rows, key, len);

    return row != NULL && occurrence <= row->n ? row->cmds[occurrence - 1] : NULL;
}

stet__cmd *
stet__journal_find(const stet__journal *j, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    return occurrence > 0 ? journal_at(j, kind, name, occurrence) : NULL;
}

stet__cmd *
stet__journal_peek(const stet__journal *j, stet__fact_kind kind, const char *name)
{
    uint8_t                  key[JOURNAL_KEY_MAX];
    size_t                   len = journal_key(key, kind, name, strlen(name));
    const stet__row_of_cmds *row = stet__map_find(&j->rows, key, len);

    return row != NULL && row->asked < row->n ? row->cmds[row->asked] : NULL;
}

uint64_t
stet__journal_count(const stet__journal *j, stet__fact_kind kind, const char *name)
{
    uint8_t                  key[JOURNAL_KEY_MAX];
    size_t                   len = journal_key(key, kind, name, strlen(name));
    const stet__row_of_cmds *row = stet__map_find(&j->rows, key, len);

    return row != NULL ? row->n : 0;
}

/* The same name and occurrence recorded as something else, which nobody asked for yet. */
static const stet__cmd *
journal_collision(const stet__journal *j, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    static const stet__fact_kind kinds[] = { STET__FACT_STEP, STET__FACT_SLEEP, STET__FACT_CALL,
                                             STET__FACT_SEND, STET__FACT_AWAKEABLE, STET__FACT_SIGNAL };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const stet__cmd *other = kinds[i] != kind ? journal_at(j, kinds[i], name, occurrence) : NULL;

        if (other != NULL && other->is_recorded && !other->is_asked && !other->is_inherited)
            return other;
    }
    return NULL;
}

int
stet__journal_ask(stet__journal *j, stet__fact_kind kind, const char *name, int64_t fingerprint,
                  stet__cmd **out, uint64_t *occurrence, const stet__cmd **recorded)
{
    stet__row_of_cmds *row = journal_row(j, kind, name, strlen(name));
    stet__cmd         *cmd = NULL;

    *out = NULL;
    *recorded = NULL;
    if (row == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while matching %s", name);
    *occurrence = ++row->asked;
    if (*occurrence <= row->n)
        cmd = row->cmds[*occurrence - 1];
    if (cmd == NULL) {
        if (j->unasked > 0)
            *recorded = journal_collision(j, kind, name, *occurrence);
        return *recorded != NULL ? STET_EREPLAY : STET_OK;
    }
    if (cmd->fingerprint != 0 && fingerprint != 0 && cmd->fingerprint != fingerprint) {
        *recorded = cmd;
        return STET_EREPLAY;
    }
    if (!cmd->is_asked)
        journal_count_choice(j, cmd, -UINT64_C(1));
    stet__journal_asked(j, cmd);
    *out = cmd;
    return STET_OK;
}

bool
stet__journal_is_rollback(const stet__cmd *cmd)
{
    return cmd->kind == STET__FACT_ROLLBACK || (cmd->kind == STET__FACT_STEP && stet__name_is_undo(stet_text(cmd->name)));
}

static bool
journal_is_before(const stet__cmd *a, const stet__cmd *b)
{
    bool is_rollback = stet__journal_is_rollback(a);

    return is_rollback != stet__journal_is_rollback(b) ? !is_rollback : a->revision < b->revision;
}

const stet__cmd *
stet__journal_unasked(const stet__journal *j)
{
    const stet__cmd *first = NULL;
    size_t           at = 0, len;
    const void      *key;
    void            *value;

    while (j->unasked > 0 && stet__map_next(&j->rows, &at, &key, &len, &value)) {
        const stet__row_of_cmds *row = value;

        /* Asked for in their order: none behind the last one was. */
        for (size_t i = (size_t)row->asked; i < row->n; i++)
            if (row->cmds[i] != NULL && !row->cmds[i]->is_asked && journal_must_be_asked(row->cmds[i]) &&
                (first == NULL || journal_is_before(row->cmds[i], first)))
                first = row->cmds[i];
    }
    assert((first != NULL) == (j->unasked > 0)); /* what is counted is in a row */
    return first;
}
