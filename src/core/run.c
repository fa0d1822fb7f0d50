/* The run state machine; see run.h for its invariants. */
#include "core/run.h"

#include <string.h>

#include <stet/sys/store.h>

#include "core/trace.h"

#define RUN_BIT(status) (1u << STET_STATUS_##status)
#define RUN_ENDS (RUN_BIT(COMPLETED) | RUN_BIT(FAILED) | RUN_BIT(CANCELLED) | RUN_BIT(EXPIRED))
#define RUN_STOPS (RUN_BIT(CANCELLING) | RUN_BIT(CANCELLED) | RUN_BIT(EXPIRED))

/* The one transition table: from -> allowed to. Row 0 is "does not exist yet". */
static const uint32_t run_transitions[14] = {
    [0] = RUN_BIT(PENDING),
    [STET_STATUS_PENDING] = RUN_BIT(RUNNING) | RUN_BIT(PAUSED) | RUN_BIT(STUCK) | RUN_BIT(FAILED) | RUN_STOPS,
    [STET_STATUS_RUNNING] = RUN_BIT(PENDING) | RUN_BIT(RUNNING) | RUN_BIT(SUSPENDED) | RUN_BIT(RETRYING) |
                            RUN_BIT(PAUSED) | RUN_BIT(STUCK) | RUN_BIT(CANCELLING) |
                            RUN_BIT(COMPENSATING) | RUN_ENDS,
    [STET_STATUS_SUSPENDED] = RUN_BIT(RUNNING) | RUN_BIT(PENDING) | RUN_BIT(PAUSED) | RUN_BIT(FAILED) | RUN_STOPS,
    /* to failed: the last attempt was used up */
    [STET_STATUS_RETRYING] = RUN_BIT(RUNNING) | RUN_BIT(PENDING) | RUN_BIT(PAUSED) | RUN_BIT(FAILED) | RUN_STOPS,
    /* to itself: it was executed to learn of that, or of something else */
    [STET_STATUS_PAUSED] = RUN_BIT(PAUSED) | RUN_BIT(PENDING) | RUN_BIT(RUNNING) | RUN_BIT(STUCK) | RUN_BIT(CANCELLING) |
                           RUN_BIT(COMPENSATING) | RUN_BIT(COMPENSATION_FAILED) | RUN_BIT(FAILED) | RUN_BIT(CANCELLED) |
                           RUN_BIT(EXPIRED),
    [STET_STATUS_STUCK] = RUN_BIT(PENDING) | RUN_BIT(RUNNING) | RUN_BIT(STUCK) | RUN_BIT(FAILED) |
                          RUN_BIT(COMPENSATING) | RUN_STOPS,
    [STET_STATUS_CANCELLING] = RUN_BIT(CANCELLING) | RUN_BIT(COMPENSATING) | RUN_BIT(STUCK) |
                               RUN_BIT(CANCELLED) | RUN_BIT(EXPIRED),
    /* back to running or cancelling: all is undone, and the handler goes on */
    [STET_STATUS_COMPENSATING] = RUN_BIT(COMPENSATING) | RUN_BIT(PAUSED) | RUN_BIT(COMPENSATION_FAILED) | RUN_BIT(STUCK) |
                                 RUN_BIT(RUNNING) | RUN_BIT(CANCELLING) | RUN_BIT(FAILED) | RUN_BIT(CANCELLED) |
                                 RUN_BIT(EXPIRED),
    [STET_STATUS_COMPENSATION_FAILED] = RUN_BIT(COMPENSATING) | RUN_BIT(FAILED) | RUN_BIT(CANCELLED) |
                                         RUN_BIT(EXPIRED),
};

static const char *const run_status_names[14] = {
#define RUN_NAME(name, number, text) [number] = text,
    STET_STATUS_LIST(RUN_NAME)
#undef RUN_NAME
};

const char *
stet_status_name(stet_status status)
{
    return status >= 1 && status <= STET_STATUS_EXPIRED ? run_status_names[status] : "unknown";
}

stet_status
stet_status_parse(const char *name)
{
    for (int i = 1; name != NULL && i <= STET_STATUS_EXPIRED; i++)
        if (strcmp(name, run_status_names[i]) == 0)
            return (stet_status)i;
    return (stet_status)0;
}

bool
stet_status_is_terminal(stet_status status)
{
    return status >= STET_STATUS_COMPLETED;
}

bool
stet__status_can(stet_status from, stet_status to)
{
    return (unsigned)from < 14 && (run_transitions[from] >> to & 1u) != 0;
}

/* A run that is paused, being cancelled or rolled back stays so through dispatch. */
stet_status
stet__run_shown(const stet__run *run, stet_status status)
{
    uint32_t dispatch = RUN_BIT(PENDING) | RUN_BIT(RUNNING) | RUN_BIT(SUSPENDED) | RUN_BIT(RETRYING) | RUN_BIT(CANCELLING);

    if (!(dispatch >> status & 1u))
        return status;
    if (run->is_paused)
        return STET_STATUS_PAUSED;
    return run->rollback != 0 ? STET_STATUS_COMPENSATING : run->stop_code != 0 ? STET_STATUS_CANCELLING : status;
}

static int
run_move(stet__run *run, stet_status to)
{
    to = stet__run_shown(run, to);
    if (!stet__status_can(run->status, to))
        return stet__fail(STET_ECORRUPT, "a run cannot go from %s to %s", stet_status_name(run->status),
                          stet_status_name(to));
    run->status = to;
    return STET_OK;
}

void
stet__run_init(stet__run *run, stet__arena *arena, stet_id id)
{
    memset(run, 0, sizeof *run);
    run->arena = arena;
    run->id = id;
    run->ended_ms = STET_NEVER;
    run->due_ms = STET_NEVER;
}

/* Copies; an absent field gives NULL. */
static int
run_text(stet__run *run, const char **out, stet_bytes from)
{
    *out = NULL;
    if (from.data == NULL)
        return STET_OK;
    if ((*out = stet__arena_copy(run->arena, from.data, from.len)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a run");
    return STET_OK;
}

static int
run_bytes(stet__run *run, stet_bytes *out, stet_bytes from)
{
    const char *copy;
    int         err = run_text(run, &copy, from);

    out->data = copy;
    out->len = copy != NULL ? from.len : 0;
    return err;
}

static int
run_apply_started(stet__run *run, const stet__fact *f)
{
    int err;

    if ((err = run_text(run, &run->handler, f->name)) != STET_OK ||
        (err = run_text(run, &run->key, f->key)) != STET_OK ||
        (err = run_text(run, &run->group, f->group)) != STET_OK ||
        (err = run_text(run, &run->idempotency_key, f->idempotency_key)) != STET_OK ||
        (err = run_text(run, &run->parent_step, f->parent_step)) != STET_OK ||
        (err = run_text(run, &run->child_key, f->child_key)) != STET_OK ||
        (err = run_text(run, &run->traceparent, f->traceparent)) != STET_OK ||
        (err = run_text(run, &run->tracestate, f->tracestate)) != STET_OK ||
        (err = run_text(run, &run->schedule, f->schedule)) != STET_OK ||
        (err = run_bytes(run, &run->input, f->value)) != STET_OK ||
        (err = run_bytes(run, &run->labels, f->labels)) != STET_OK ||
        (err = run_bytes(run, &run->held, f->held)) != STET_OK)
        return err;
    if (run->handler == NULL)
        return stet__fail(STET_ECORRUPT, "a started fact without a handler");
    if (run->traceparent != NULL && !stet__traceparent_is_legal(run->traceparent))
        return stet__fail(STET_ECORRUPT, "a started fact with a traceparent that is none");
    run->created_ms = f->generation != 0 ? f->created_ms : f->time_ms;
    run->began_ms = f->time_ms;
    run->created_us = f->number;
    run->visible_ms = f->until_ms != 0 ? f->until_ms : run->created_ms;
    run->deadline_ms = f->deadline_ms;
    run->retention_ms = f->retention_ms;
    run->priority = (int32_t)f->priority;
    run->retry.attempts = f->attempts_max;
    run->retry.first_ms = f->retry_first_ms;
    run->retry.max_ms = f->retry_max_ms;
    run->retry.factor_percent = f->retry_factor;
    run->retry.jitter_percent = f->retry_jitter;
    run->parent = stet__fact_id(f->run);
    run->parent_completion = (uint64_t)f->completion;
    run->retry_of = stet__fact_id(f->retry_of);
    run->is_object = (f->flags & STET__FACT_OBJECT) != 0;
    run->is_shared = (f->flags & STET__FACT_SHARED) != 0;
    run->is_fork = (f->flags & STET__FACT_FORKED) != 0;
    run->planned_ms = f->planned_ms;
    return run_move(run, STET_STATUS_PENDING);
}

/* What the generation before knew is gone, and what it left to this one is in the fact. */
static int
run_apply_anew(stet__run *run, const stet__fact *f)
{
    stet__run next;
    int       err;

    if (run->rollback != 0 || run->is_paused || run->is_failed || stet__run_is_answered(run))
        return stet__fail(STET_ECORRUPT, "a run that is %s began anew", stet_status_name(run->status));
    if ((uint64_t)f->taken < run->taken || (uint64_t)f->epoch < run->epoch)
        return stet__fail(STET_ECORRUPT, "a generation that knows less than the one before");
    stet__run_init(&next, run->arena, run->id);
    if ((err = run_apply_started(&next, f)) != STET_OK)
        return err;
    next.generation = (uint64_t)f->generation;
    next.dispatch = f->kind;
    next.epoch = (uint64_t)f->epoch;
    next.taken = (uint64_t)f->taken;
    *run = next;
    return STET_OK;
}

void
stet__run_restart(const stet__run *run, stet__fact *f, stet_bytes input, uint64_t epoch)
{
    memset(f, 0, sizeof *f);
    f->kind = STET__FACT_STARTED;
    f->value = input;
    f->generation = (int64_t)run->generation + 1;
    f->since = (int64_t)run->journal + 1;
    f->taken = (int64_t)run->taken;
    f->epoch = (int64_t)epoch;
    f->created_ms = run->created_ms;
    f->number = run->created_us;
    f->until_ms = run->visible_ms;
#define RUN_SAME(member, from)                                                                     \
    if (run->from != NULL)                                                                         \
        f->member = stet_text(run->from);
    RUN_SAME(name, handler)
    RUN_SAME(key, key)
    RUN_SAME(group, group)
    RUN_SAME(idempotency_key, idempotency_key)
    RUN_SAME(parent_step, parent_step)
    RUN_SAME(child_key, child_key)
    RUN_SAME(traceparent, traceparent)
    RUN_SAME(tracestate, tracestate)
    RUN_SAME(schedule, schedule)
#undef RUN_SAME
    f->labels = run->labels;
    f->held = run->held;
    f->planned_ms = run->planned_ms;
    f->deadline_ms = run->deadline_ms;
    f->retention_ms = run->retention_ms;
    f->priority = run->priority;
    f->attempts_max = run->retry.attempts;
    f->retry_first_ms = run->retry.first_ms;
    f->retry_max_ms = run->retry.max_ms;
    f->retry_factor = run->retry.factor_percent;
    f->retry_jitter = run->retry.jitter_percent;
    f->completion = (int64_t)run->parent_completion;
    f->flags = (run->is_object ? STET__FACT_OBJECT : 0) | (run->is_fork ? STET__FACT_FORKED : 0) |
               (run->is_shared ? STET__FACT_SHARED : 0);
    if (STET__MUTANT(turn_held))
        f->held = (stet_bytes){ NULL, 0 };
    if (STET__MUTANT(turn_labels))
        f->labels = (stet_bytes){ NULL, 0 };
    if (STET__MUTANT(turn_priority))
        f->priority = 0;
    if (STET__MUTANT(turn_retention))
        f->retention_ms = 0;
    if (!stet__id_is_zero(run->parent))
        f->run = stet__id_bytes(&run->parent);
    if (!stet__id_is_zero(run->retry_of))
        f->retry_of = stet__id_bytes(&run->retry_of);
}

static int
run_keep_failure(stet__run *run, const stet__fact *f)
{
    int err;

    run->code = (int)f->code;
    run->cause = (int)f->cause;
    if ((err = run_text(run, &run->error, f->text)) != STET_OK)
        return err;
    return run_text(run, &run->origin, f->origin);
}

static int
run_end(stet__run *run, stet_status status, const stet__fact *f)
{
    int err;

    if ((err = run_move(run, status)) != STET_OK)
        return err;
    run->ended_ms = f->time_ms;
    run->reason = NULL;
    if (status == STET_STATUS_COMPLETED)
        return run_bytes(run, &run->result, f->value);
    if (!run->is_told || status != STET_STATUS_FAILED)
        return run_keep_failure(run, f);
    /* What was told stands, whatever it failed by afterwards; the fact says that. */
    run->code = run->told.code;
    run->cause = run->told.cause;
    run->error = run->told.error;
    run->origin = run->told.origin;
    return STET_OK;
}

static int
run_wait(stet__run *run, stet_status status, const stet__fact *f)
{
    int err;

    if ((err = run_move(run, status)) != STET_OK)
        return err;
    return run_text(run, &run->reason, f->text);
}

static int
run_apply_failed_attempt(stet__run *run, const stet__fact *f)
{
    int err;

    /* How its rollback failed was told, and is how it ends: no attempt to go on with it changes that. */
    if ((!run->is_told && (err = run_keep_failure(run, f)) != STET_OK) ||
        (err = run_wait(run, STET_STATUS_RETRYING, f)) != STET_OK)
        return err;
    run->due_ms = f->until_ms;
    if (f->kind == STET__FACT_ATTEMPT_FAILED && !(STET__MUTANT(attempt_uncounted) && run->failed == 1))
        run->failed++;
    return STET_OK;
}

static int
run_apply_stuck(stet__run *run, const stet__fact *f)
{
    int err;

    if ((err = run_keep_failure(run, f)) != STET_OK)
        return err;
    run->is_paused = false; /* it waits for help as it is */
    return run_wait(run, STET_STATUS_STUCK, f);
}

static int
run_apply_rollback(stet__run *run, const stet__fact *f)
{
    if (run->rollback != 0)
        return stet__fail(STET_ECORRUPT, "a rollback inside of a rollback");
    run->rollback = f->revision;
    run->is_auto = (f->flags & STET__FACT_AUTO) != 0;
    return run_move(run, STET_STATUS_RUNNING);
}

static int
run_apply_rolled_back(stet__run *run, const stet__fact *f)
{
    if (run->rollback == 0 || (uint64_t)f->completion != run->rollback)
        return stet__fail(STET_ECORRUPT, "the end of a rollback that did not begin");
    run->rollback = 0;
    run->is_auto = false;
    return run_move(run, STET_STATUS_RUNNING);
}

/* Its waiters are told with this fact: from here on it can only fail, or be what it was stopped as. */
static int
run_apply_compensation_failed(stet__run *run, const stet__fact *f)
{
    int err;

    if ((err = run_keep_failure(run, f)) != STET_OK || (err = run_wait(run, STET_STATUS_COMPENSATION_FAILED, f)) != STET_OK)
        return err;
    if (!run->is_told)
        run->told = (stet__told){ run->code, run->cause, run->error, run->origin };
    run->dispatch = f->kind;
    run->is_paused = false;
    run->is_told = run->awaits_help = true;
    run->undo = NULL;
    return run_text(run, &run->undo, f->name);
}

static int
run_apply_claimed(stet__run *run, const stet__fact *f)
{
    if ((uint64_t)f->number <= run->epoch)
        return stet__fail(STET_ECORRUPT, "claimed with epoch %lld after epoch %llu", (long long)f->number,
                          (unsigned long long)run->epoch);
    run->epoch = (uint64_t)f->number;
    run->due_ms = STET_NEVER;
    run->reason = NULL;
    return run_move(run, STET_STATUS_RUNNING);
}

/* ---- bodies that may have happened --------------------------------------------------------------- */

static bool
run_is_risk_of(const stet__risk *risk, const char *step, size_t len, uint64_t occurrence)
{
    size_t cut = len < STET_CRUMB_MAX - 1 ? len : STET_CRUMB_MAX - 1;

    return risk->step != NULL && risk->occurrence == occurrence && strlen(risk->step) == cut &&
           (cut == 0 || memcmp(risk->step, step, cut) == 0);
}

static int
run_add_risk(stet__run *run, stet_bytes step, uint64_t occurrence)
{
    stet__risk *risk = stet__arena_get0(run->arena, sizeof *risk);
    int         err;

    if (risk == NULL)
        return stet__fail(STET_ENOMEM, "out of memory while loading a run");
    if (step.len > STET_CRUMB_MAX - 1)
        step.len = STET_CRUMB_MAX - 1;
    if ((err = run_text(run, &risk->step, step)) != STET_OK)
        return err;
    risk->occurrence = occurrence;
    risk->next = run->risks;
    run->risks = risk;
    return STET_OK;
}

/* Told once, it is told with every execution until it has its result: one that was told may find out nothing, and ask to
 * be tried later. */
static int
run_apply_at_risk(stet__run *run, const stet__fact *f)
{
    for (const stet__risk *risk = run->risks; risk != NULL; risk = risk->next)
        if (run_is_risk_of(risk, f->name.data, f->name.len, (uint64_t)f->occurrence))
            return STET_OK;
    return run_add_risk(run, f->name, (uint64_t)f->occurrence);
}

static void
run_forget_risk(stet__run *run, const stet__fact *step)
{
    stet__risk **at = &run->risks;

    while (*at != NULL)
        if (run_is_risk_of(*at, step->name.data, step->name.len, (uint64_t)step->occurrence))
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

static int
run_apply_kind(stet__run *run, const stet__fact *f)
{
    if (f->kind <= STET__FACT_STUCK)
        run->dispatch = f->kind;
    switch (f->kind) {
    case STET__FACT_STARTED: return f->generation != 0 ? run_apply_anew(run, f) : run_apply_started(run, f);
    case STET__FACT_CLAIMED: return run_apply_claimed(run, f);
    case STET__FACT_ATTEMPT_FAILED:
    case STET__FACT_DEFERRED: return run_apply_failed_attempt(run, f);
    case STET__FACT_SUSPENDED:
        stet__run_settle_risks(run);
        return run_wait(run, STET_STATUS_SUSPENDED, f);
    case STET__FACT_RELEASED: return run_wait(run, STET_STATUS_PENDING, f);
    case STET__FACT_STUCK: return run_apply_stuck(run, f);
    case STET__FACT_COMPLETED: return run_end(run, STET_STATUS_COMPLETED, f);
    case STET__FACT_FAILED: return run_end(run, STET_STATUS_FAILED, f);
    case STET__FACT_CANCELLED: return run_end(run, STET_STATUS_CANCELLED, f);
    case STET__FACT_EXPIRED: return run_end(run, STET_STATUS_EXPIRED, f);
    case STET__FACT_COMPENSATION_FAILED: return run_apply_compensation_failed(run, f);
    case STET__FACT_ROLLBACK: return run_apply_rollback(run, f);
    case STET__FACT_ROLLED_BACK: return run_apply_rolled_back(run, f);
    case STET__FACT_AT_RISK:
        if (!STET__MUTANT(risk_once))
            return run_apply_at_risk(run, f);
        run_forget_risk(run, f);
        return STET_OK;
    default: /* commands and notifications: core/journal.c */
        /* The command by whose result the handler was told to stop. What its function says of an update is told to
         * whoever asked for that, and may be any code. */
        if (f->kind >= STET__FACT_STEP && f->kind < STET__FACT_TIMER && f->kind != STET__FACT_UPDATE && run->stop_code != 0 &&
            f->code == run->stop_code) {
            run->is_stop_told = true;
            run->stop_told_at = f->revision;
        }
        if (f->kind == STET__FACT_STEP)
            run_forget_risk(run, f);
        return STET_OK;
    }
}

int
stet__run_apply(stet__run *run, const stet__fact *fact)
{
    /* Where it stands tells a generation from a journal that lost its beginning. */
    bool is_anew = fact->kind == STET__FACT_STARTED && fact->generation > 0 && (uint64_t)fact->since == fact->revision &&
                   (run->journal == 0 || (uint64_t)fact->generation == run->generation + 1);
    int  err;

    if (fact->revision != run->journal + 1 && !(run->journal == 0 && is_anew))
        return stet__fail(STET_ECORRUPT, "revision %llu follows revision %llu",
                          (unsigned long long)fact->revision, (unsigned long long)run->journal);
    if ((fact->kind == STET__FACT_STARTED) != (run->journal == 0) && !is_anew)
        return stet__fail(STET_ECORRUPT, "%s fact at revision %llu", stet__fact_kind_name(fact->kind),
                          (unsigned long long)fact->revision);
    if (stet__run_is_terminal(run))
        return stet__fail(STET_ECORRUPT, "a fact after the run's end");
    if (fact->kind == STET__FACT_TAKEN && (uint64_t)fact->number <= run->taken)
        return stet__fail(STET_ECORRUPT, "inbox entries up to %lld taken twice", (long long)fact->number);
    if ((err = run_apply_kind(run, fact)) != STET_OK)
        return err;
    if (fact->kind == STET__FACT_TAKEN)
        run->taken = (uint64_t)fact->number;
    run->journal = fact->revision;
    return STET_OK;
}

static int
run_apply_lost(stet__run *run, const stet__fact *f)
{
    int err;

    if (f->flags & STET__FACT_EXECUTING)
        run->lost++;
    if (!(f->flags & (STET__FACT_IN_BODY | STET__FACT_UNKNOWN)))
        return STET_OK;
    if ((err = run_add_risk(run, f->name, (uint64_t)f->occurrence)) != STET_OK)
        return err;
    run->risks->is_lasting = run->rewound == run->journal + 1; /* taken together: the worker was still ahead of it */
    return STET_OK;
}

static int
run_apply_stop(stet__run *run, const stet__fact *f, int code)
{
    int err;

    if (STET__MUTANT(cancel_asleep) && run->status == STET_STATUS_SUSPENDED)
        return STET_OK;
    if (run->stop_code != 0 || run->is_told)
        return STET_OK; /* the first one counts; and what was told stands */
    if ((err = run_text(run, &run->stop_who, f->who)) != STET_OK ||
        (err = run_text(run, &run->stop_why, f->text)) != STET_OK)
        return err;
    run->stop_code = code;
    run->is_paused = false; /* it has to learn of it */
    run->is_answer_owed = (f->flags & STET__FACT_UNTOLD) != 0;
    return run->status == STET_STATUS_STUCK ? STET_OK : run_move(run, STET_STATUS_CANCELLING);
}

static int
run_said(stet__run *run, const stet__fact *f)
{
    int err;

    run->said_ms = f->time_ms;
    if ((err = run_text(run, &run->said_who, f->who)) != STET_OK)
        return err;
    return run_text(run, &run->said_why, f->text);
}

/* Only what could go on otherwise is paused: not what waits for help, or has to stop. */
static int
run_apply_pause(stet__run *run, const stet__fact *f)
{
    int err;

    if (run->stop_code != 0 || run->status == STET_STATUS_STUCK || run->status == STET_STATUS_COMPENSATION_FAILED)
        return STET_OK;
    if ((err = run_said(run, f)) != STET_OK)
        return err;
    run->is_paused = true;
    return run_move(run, STET_STATUS_PAUSED);
}

static int
run_apply_resume(stet__run *run)
{
    if (!run->is_paused)
        return STET_OK;
    run->is_paused = false;
    return run_move(run, run->dispatch == STET__FACT_CLAIMED ? STET_STATUS_RUNNING : STET_STATUS_PENDING);
}

bool
stet__run_helps_rollback(const stet__run *run, const stet__fact *f)
{
    if (f->kind != STET__FACT_SKIP)
        return f->kind == STET__FACT_REWIND;
    return run->undo != NULL ? f->name.len == strlen(run->undo) && memcmp(f->name.data, run->undo, f->name.len) == 0
                             : stet__name_is_undo(f->name);
}

/* What was recorded is another thing now: what waits for help can try again. */
static int
run_apply_rewrite(stet__run *run, const stet__fact *f)
{
    if (run->awaits_help && !stet__run_helps_rollback(run, f))
        return STET_OK;
    run->lost = 0;
    run->awaits_help = false;
    if (f->kind == STET__FACT_REWIND && run->rollback == 0) {
        run->failed = 0;
        run->rewound = run->journal + 1;
        if ((uint64_t)f->number <= run->stop_told_at)
            run->is_stop_told = false; /* forgotten with the rest: it would wait where it was stopped */
        for (stet__risk *risk = run->risks; risk != NULL; risk = risk->next)
            risk->is_lasting = !STET__MUTANT(rewind_riskless);
    }
    return run->status == STET_STATUS_STUCK || run->status == STET_STATUS_COMPENSATION_FAILED
               ? run_move(run, STET_STATUS_PENDING)
               : STET_OK;
}

int
stet__run_apply_inbox(stet__run *run, const stet__fact *fact)
{
    if (stet__run_is_terminal(run))
        return stet__fail(STET_ECORRUPT, "an inbox entry after the run's end");
    switch (fact->kind) {
    case STET__FACT_CANCEL: return run_apply_stop(run, fact, STET_ECANCELLED);
    case STET__FACT_DEADLINE: return run_apply_stop(run, fact, STET_EEXPIRED);
    case STET__FACT_LOST: return run_apply_lost(run, fact);
    case STET__FACT_UNSTICK:
        run->lost = STET__MUTANT(lost_kept) ? run->lost : 0;
        return run->status == STET_STATUS_STUCK ? run_move(run, STET_STATUS_PENDING) : STET_OK;
    case STET__FACT_ROLLBACK_RETRY:
        run->awaits_help = false;
        return run->status == STET_STATUS_COMPENSATION_FAILED ? run_move(run, STET_STATUS_PENDING) : STET_OK;
    case STET__FACT_PAUSE: return run_apply_pause(run, fact);
    case STET__FACT_RESUME: return run_apply_resume(run);
    case STET__FACT_FAIL: run->is_failed = true; return run_said(run, fact);
    case STET__FACT_SKIP:
    case STET__FACT_EDIT:
    case STET__FACT_REWIND: return run_apply_rewrite(run, fact);
    default: return STET_OK;
    }
}

bool
stet__run_has_lane(const stet__run *run)
{
    return run->key != NULL && !run->is_shared;
}

uint32_t
stet__run_attempt(const stet__run *run)
{
    return run->failed + (stet__run_is_terminal(run) && run->status != STET_STATUS_COMPLETED &&
                                  run->code == STET_EATTEMPTS
                              ? 0
                              : 1);
}

bool
stet__run_has_begun(const stet__run *run)
{
    return run->dispatch != STET__FACT_STARTED || run->epoch > 0; /* in a generation before */
}

bool
stet__run_is_terminal(const stet__run *run)
{
    return stet_status_is_terminal(run->status);
}

bool
stet__run_is_answered(const stet__run *run)
{
    return stet__run_is_terminal(run) || run->stop_code != 0 || run->is_told;
}

int
stet__run_answer(const stet__run *run)
{
    switch (run->status) {
    case STET_STATUS_COMPLETED: return STET_OK;
    case STET_STATUS_FAILED: return STET_ERUN;
    case STET_STATUS_CANCELLED: return STET_ECANCELLED;
    case STET_STATUS_EXPIRED: return STET_EEXPIRED;
    default: return run->stop_code != 0 ? run->stop_code : run->is_told ? STET_ERUN : STET_EOPEN;
    }
}

bool
stet__run_is_at_risk(const stet__run *run, const char *step, uint64_t occurrence, bool only_named)
{
    for (const stet__risk *risk = run->risks; risk != NULL; risk = risk->next)
        if (run_is_risk_of(risk, step, strlen(step), occurrence) ||
            (risk->step == NULL && !only_named)) /* futures may have had several bodies running */
            return true;
    return false;
}

void
stet__run_settle_risks(stet__run *run)
{
    stet__risk **at = &run->risks;

    while (*at != NULL)
        if ((*at)->step == NULL && !(*at)->is_lasting)
            *at = (*at)->next;
        else
            at = &(*at)->next;
}
