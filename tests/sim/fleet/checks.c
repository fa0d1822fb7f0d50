/* What must hold at the end, and once faults have stopped. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

/* How late a deadline may be when nothing goes wrong any more. */
#define CHECK_DEADLINE_MS 30000

size_t
fleet_open_runs(fleet *w)
{
    size_t n = 0;

    for (const fleet_run *run = w->first; run != NULL; run = run->next)
        n += run->end == 0;
    return n;
}

/* ---- results --------------------------------------------------------------------------------- */

static bool
check_is_stop(int code)
{
    return code == STET_ECANCELLED || code == STET_EEXPIRED;
}

static int
check_step_code(const fleet_body *b)
{
    if (b->attempts > 0 && b->fails >= b->attempts)
        return STET_ESTEP;
    return b->is_permanent ? STET_ESTEP : STET_OK;
}

/* How the child ended is what a call gave. */
static bool
check_child(const fleet_run *child, const fleet_seen *seen)
{
    if (seen->code == STET_OK)
        return child->end == STET__FACT_COMPLETED &&
               seen->value == (stet__hash64(child->result, child->result_len, 3) | 1u);
    return seen->code == STET_ECHILD &&
           (child->is_stopped ||
            child
                ->is_broken || /* its waiters were told; it may be damaged afterwards and not end */
            (child->end != 0 && child->end != STET__FACT_COMPLETED));
}

/* The child is this run's, or that of the run it retries, which it may have inherited. After a rewind there are
 * several of one reason, and a fork may have another one than the run has now. */
static bool
check_call(fleet *w, const fleet_run *run, size_t op, const fleet_seen *seen)
{
    for (; run != NULL; run = run->is_retry ? fleet_run_of(w, run->retry_of) : NULL) {
        uint64_t nonce = stet__hash64(run->text, strlen(run->text), op * 16);

        for (const fleet_run *child = w->first; child != NULL; child = child->next)
            if (child->order.nonce == nonce && !child->is_retry && check_child(child, seen))
                return true;
    }
    return false;
}

/* What an awakeable gave is what somebody gave it. */
static bool
check_awake(const fleet *w, const fleet_run *run, const fleet_op *op, const fleet_seen *seen)
{
    uint64_t helped = stet__hash64("helped", 6, 3) | 1u,
             inside = stet__hash64("by a run", 8, 3) | 1u;
    unsigned tried = 0;
    char     text[16];

    if (seen->code == STET_ETIMEOUT)
        return op->has_limit;
    if (seen->code == STET_EREJECTED)
        return op->is_inside || op->is_reject;
    if (seen->code != STET_OK)
        return false;
    if (seen->value == (op->is_inside ? inside : helped))
        return true;
    for (size_t i = 0; i < w->n_awakeables; i++)
        if (w->awakeables[i].tried > tried)
            tried = w->awakeables[i].tried;
    for (unsigned i = 1; i <= tried && !op->is_inside; i++) {
        int n = snprintf(text, sizeof text, "v%u", i);

        if (seen->value == (stet__hash64(text, (size_t)n, 3) | 1u))
            return true;
    }
    (void)run;
    return false;
}

/* A signal is one that was sent to it, or to the run it retries. */
static bool
check_signal(fleet *w, const fleet_run *run, const fleet_op *op, const fleet_seen *seen)
{
    int name = (int)(op->seed % FLEET_SIGNALS);

    if (seen->code == STET_ETIMEOUT)
        return op->has_limit;
    for (; seen->code == STET_OK && run != NULL;
         run = run->is_retry ? fleet_run_of(w, run->retry_of) : NULL)
        if (fleet_is_signalled(run, name, (uint32_t)seen->value) ||
            run->n_signals[name] == FLEET_SIGNALS_MAX)
            return true;
    return false;
}

/* The waits of a run that is no retry got the signals in the order they came in, none left out; of
 * a retry, each another one: what a wait missed that was not inherited is waited for anew. */
static void
check_signals(fleet *w, const fleet_run *run, const fleet_seen *seen, size_t n)
{
    size_t got[FLEET_SIGNALS] = { 0 };

    for (size_t i = 0; i < n && i < run->program.n; i++) {
        int    name = (int)(run->program.ops[i].seed % FLEET_SIGNALS);
        size_t at = got[name];

        if (run->program.ops[i].kind != FLEET_OP_SIGNAL || seen[i].code != STET_OK)
            continue;
        got[name]++;
        if (!run->is_retry && at < run->n_signals[name] && run->signals[name][at] != seen[i].value)
            fleet_fail(w, run, "operation %zu got signal %u, and the next was %u", i,
                       (unsigned)seen[i].value, run->signals[name][at]);
        for (size_t k = 0; k < i; k++)
            if (run->program.ops[k].kind == FLEET_OP_SIGNAL && seen[k].code == STET_OK &&
                (int)(run->program.ops[k].seed % FLEET_SIGNALS) == name &&
                seen[k].value == seen[i].value &&
                !(seen[i].value >= FLEET_INSIDE && (run->rewinds > 0 || run->is_retry)))
                fleet_fail(w, run, "operations %zu and %zu got the same signal %u", k, i,
                           (unsigned)seen[i].value);
    }
}

static bool
check_is_person(const fleet_seen *seen)
{
    return seen->kind == FLEET_OP_APPROVE || seen->kind == FLEET_OP_PAUSE;
}

/* A decision is for one wait. */
static void
check_decisions(fleet *w, const fleet_run *run, const fleet_seen *seen, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; check_is_person(&seen[i]) && k < i; k++)
            if (check_is_person(&seen[k]) && seen[k].value != 0 && seen[k].value == seen[i].value)
                fleet_fail(w, run, "operations %zu and %zu were decided at once", k, i);
}

/* Any attempt can be late if its node is paused, or find no memory for its result. */
static bool
check_is_unlucky(const fleet *w, const fleet_op *op, const fleet_seen *seen)
{
    return seen->code == STET_ESTEP && op->body[0].attempts > 0 &&
           (op->body[0].is_late || w->plan.one_in[FLEET_NO_MEMORY] != 0);
}

/* Of a step: what it recorded, or what an operator gave it. */
static bool
check_step(fleet *w, const fleet_run *run, size_t i, const fleet_seen *seen)
{
    const fleet_op *op = &run->program.ops[i];
    char            name[24], text[32];
    int             want = fleet_is_given(run, i) ? STET_OK : check_step_code(&op->body[0]);

    if (check_is_unlucky(w, op, seen))
        return true;
    if (seen->code != want || want != STET_OK || op->kind != FLEET_OP_STEP)
        return seen->code == want;
    (void)snprintf(name, sizeof name, "s%zu", i);
    fleet_step_text(text, run, name);
    return seen->value == (stet__hash64(text, strlen(text), 3) | 1u);
}

/* Of a look at a key: what it had at some time since the run was asked for. */
static bool
check_peek(const fleet *w, const fleet_run *run, const fleet_op *op, const fleet_seen *seen)
{
    uint64_t value = seen->value + (w->options.tampers == FLEET_TAMPER_PEEK);

    return seen->code == STET_OK &&
           fleet_state_find(w, run->key, op->seed % FLEET_ENTRIES, value, run->first_state,
                            run->last_state) <= run->last_state;
}

/* May the operation have given this? */
static bool
check_seen(fleet *w, const fleet_run *run, size_t i, const fleet_seen *seen)
{
    const fleet_op *op = &run->program.ops[i];

    if (seen->kind != op->kind)
        return false;
    if (check_is_stop(seen->code))
        return run->is_stopped;
    switch (op->kind) {
    case FLEET_OP_STEP:
    case FLEET_OP_SCOPE: return check_step(w, run, i, seen);
    case FLEET_OP_DEPOSIT:
        return op->ms % 4 != 0 ? seen->code == STET_OK : check_step(w, run, i, seen);
    case FLEET_OP_PEEK: return check_peek(w, run, op, seen);
    case FLEET_OP_CALL: return check_call(w, run, i, seen);
    case FLEET_OP_AWAKE: return check_awake(w, run, op, seen);
    case FLEET_OP_SIGNAL: return check_signal(w, run, op, seen);
    case FLEET_OP_EVENT:
        return (seen->code == STET_ETIMEOUT && fleet_event_has_limit(op)) ||
               (seen->code == STET_OK && seen->value > 0 && seen->value <= w->emitted);
    case FLEET_OP_APPROVE:
    case FLEET_OP_PAUSE:
        return fleet_is_decided(w, run, seen->value, seen->code, op->kind == FLEET_OP_PAUSE);
    case FLEET_OP_DECIDE: return seen->code == STET_OK && seen->value >= 1 && seen->value <= 4;
    case FLEET_OP_FUTURES:
        return seen->code == STET_OK ||
               (seen->code == STET_ETIMEOUT && op->wait == FLEET_WAIT_ANY_FOR);
    case FLEET_OP_NOW:
        return seen->code == STET_OK &&
               (run->is_retry || w->peak_ms != 0 || (int64_t)seen->value >= run->created_ms);
    case FLEET_OP_VERSION: return seen->code == STET_OK && (seen->value == 3 || seen->value == 1);
    case FLEET_OP_SETTLE:
        return seen->code == STET_OK || seen->code == STET_ESETTLED || seen->code == STET_EENDED ||
               (seen->code == STET_ENOTFOUND && w->plan.retention_ms < 86400000);
    default: return seen->code == STET_OK;
    }
}

static void
check_result(fleet *w, fleet_run *run)
{
    const fleet_seen *seen = (const fleet_seen *)(const void *)run->result;
    size_t            n = run->result_len / sizeof *seen;

    if (n != run->program.n || run->result_len % sizeof *seen != 0)
        fleet_fail(w, run, "it completed after %zu operations of %zu", n, run->program.n);
    for (size_t i = 0; i < n && i < run->program.n; i++)
        if (!check_seen(w, run, i, &seen[i]))
            fleet_fail(w, run, "operation %zu (%s) cannot have given %s/%" PRIx64, i,
                       fleet_op_names[run->program.ops[i].kind], stet_code_name(seen[i].code),
                       seen[i].value);
    if (run->program.is_doomed)
        fleet_fail(w, run, "it completed, and was to fail");
    check_signals(w, run, seen, n);
    if (n > 0)
        fleet_check_updates(w, run, &seen[n - 1]);
    check_decisions(w, run, seen, n);
    w->stats.checks += n;
}

/* How a failed run may have failed. */
static void
check_failure(fleet *w, const fleet_run *run)
{
    bool is_plain = false;

    switch (run->code) {
    case STET_EATTEMPTS:
        if (run->attempts != run->attempts_max)
            fleet_fail(w, run, "it failed after %u attempts of %u", run->attempts,
                       run->attempts_max);
        return;
    case STET_EFORCED: is_plain = run->is_forced; break;
    case STET_EPERMANENT: is_plain = run->program.is_doomed || run->is_retry; break;
    case STET_ERETRY: is_plain = run->is_judged; break;
    case STET_ECOMPENSATION: is_plain = run->is_broken; break;
    case STET_ESTEP:
    case STET_ECHILD:
    case STET_EREJECTED:
    case STET_ETIMEOUT:
    case STET_ESETTLED:
    case STET_ENOTFOUND:
    case STET_EENDED: is_plain = !run->program.is_stubborn; break;
    default: break;
    }
    if (!is_plain)
        fleet_fail(w, run, "it cannot have failed with %s", stet_code_name(run->code));
}

/* One that failed has undone all, one that completed nothing, one that was stopped all or nothing:
 * its handler may have returned well. What stands before a rollback of its own is undone if the
 * handler came to that, and it did if it completed. Where an undo of that failed, it ends with it: all before
 * it is undone, and nothing behind. */
static void
check_undone(fleet *w, const fleet_run *run)
{
    const fleet_program *p = &run->program;
    size_t               undone[2] = { 0 }, left[2] = { 0 }; /* behind its own rollback, before */
    bool                 is_failed =
             p->is_undone && run->end == STET__FACT_FAILED && !(p->rollback && run->is_broken),
         is_kept = run->end == STET__FACT_COMPLETED || !p->is_undone;

    if (run->is_forced) /* in the middle of it */
        return;
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        if (fleet_step_is_undoable(run, s)) {
            undone[fleet_step_is_before(run, s)] += s->is_undone;
            left[fleet_step_is_before(run, s)] += !s->is_undone;
        }
    if (p->rollback > 0 && run->is_broken && run->end == STET__FACT_FAILED &&
        (left[1] > 0 || (undone[0] > 0 && left[0] > 0)))
        fleet_fail(w, run, "its rollback failed, and %zu and %zu steps are not undone", left[1],
                   left[0]);
    if (is_failed ? left[0] > 0 : is_kept ? undone[0] > 0 : undone[0] > 0 && left[0] > 0)
        fleet_fail(w, run, "%zu steps are undone, %zu are not", undone[0], left[0]);
    if (is_failed || run->end == STET__FACT_COMPLETED ? left[1] > 0 : undone[1] > 0 && left[1] > 0)
        fleet_fail(w, run, "before its rollback %zu steps are undone, %zu are not", undone[1],
                   left[1]);
}

/* While there are faults a deadline may be late; not for long after. */
static void
check_deadline(fleet *w, const fleet_run *run)
{
    int64_t until_ms = run->deadline_ms > w->healed_ms ? run->deadline_ms : w->healed_ms;

    if (run->deadline_ms != 0 && !run->is_stopped && !run->is_damaged && !run->is_broken &&
        (run->end == 0 ? fleet_now_ms(w) : run->ended_ms) > until_ms + CHECK_DEADLINE_MS)
        fleet_fail(w, run, "its deadline passed, and nothing stopped it");
}

static void
check_ends(fleet *w)
{
    for (fleet_run *run = w->first; run != NULL; run = run->next) {
        const mem_run *row = stet__mem_run(w->db, run->id);

        if (row == NULL && !run->is_purged)
            fleet_fail(w, run, "it is lost");
        if (row != NULL && row->row.journal != run->journal)
            fleet_fail(w, run, "its row and its facts disagree");
        check_deadline(w, run);
        if (run->end != 0 && !run->is_damaged)
            check_undone(w, run);
        if (run->end == STET__FACT_COMPLETED)
            check_result(w, run);
        if (run->end == STET__FACT_FAILED)
            check_failure(w, run);
        if ((run->end == STET__FACT_CANCELLED || run->end == STET__FACT_EXPIRED) &&
            run->answer != 0 && run->answer != (uint64_t)-STET_ECANCELLED &&
            run->answer != (uint64_t)-STET_EEXPIRED)
            fleet_fail(w, run, "it was cancelled after another answer");
    }
    for (size_t i = 0; i < w->n_tasks; i++)
        if (w->tasks[i].is_acked && fleet_run_named(w, w->tasks[i].run.text) == NULL)
            fleet_fail(w, NULL, "task %zu was acknowledged and is lost", i);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void
check_entry(fleet *w, int key, const char *name, const char *want)
{
    char             text[64];
    int              n = snprintf(text, sizeof text, "obj%ck%d%c%s", 0, key, 0, name);
    const mem_value *v = stet__mem_value(w->db, STET__SPACE_STATE, (stet_bytes){ text, (size_t)n });

    if ((v == NULL) != (want == NULL) ||
        (v != NULL && (v->value.data.len != strlen(want) ||
                       memcmp(v->value.data.data, want, v->value.data.len) != 0)))
        fleet_fail(w, NULL, "key %d: %s is \"%.*s\", the facts say \"%s\"", key, name,
                   v != NULL ? (int)v->value.data.len : 6,
                   v != NULL ? (const char *)v->value.data.data : "(none)",
                   want != NULL ? want : "(none)");
}

/* A baseline goes with the run whose write replaced it: by their times alone, and a clock may be set back, nobody
 * could tell which was later. */
static void
check_base(fleet *w, int key)
{
    char             text[64], account[48];
    int              n = snprintf(text, sizeof text, "obj%ck%d%caccount", 0, key, 0);
    const mem_value *v =
        stet__mem_value(w->db, STET__SPACE_BASE_STATE, (stet_bytes){ text, (size_t)n });
    stet_bytes       in = v != NULL ? v->value.data : (stet_bytes){ NULL, 0 };
    stet__fact       base;
    uint64_t         write;
    const fleet_run *next;

    if (v == NULL || stet__fact_decode(&base, &in) != STET_OK || base.value.data == NULL)
        return;
    fleet_text(account, sizeof account, base.value.data, base.value.len);
    write = strtoull(account, NULL, 10);
    next = write + 1 < FLEET_WRITES_MAX ? w->objects[key].writers[write + 1] : NULL;
    if (next != NULL && next->is_purged)
        fleet_fail(
            w, next,
            "key %d: it replaced write %llu and is removed, and the baseline of that is left", key,
            (unsigned long long)write);
}

static void
check_objects(fleet *w)
{
    for (int i = 0; i < FLEET_KEYS; i++) {
        const fleet_object *o = &w->objects[i];

        check_entry(w, i, "account", o->writes > 0 ? o->account : NULL);
        check_entry(w, i, "scribble", o->has_scribble ? o->scribble : NULL);
        check_base(w, i);
    }
}

/* ---- verify ---------------------------------------------------------------------------------- */

static int
check_on_finding(void *arg, const stet_finding *finding)
{
    fleet     *w = arg;
    fleet_run *run = finding->run != NULL ? fleet_run_named(w, finding->run) : NULL;

    if (run != NULL && run->is_damaged) {
        run->is_reported = true;
        return 0;
    }
    if (strncmp(finding->text, "state ", 6) == 0 && !fleet_knows_writes(w))
        return 0;
    fleet_fail(w, run, "verify: %s: %s", finding->rule, finding->text);
    return 0;
}

/* The row of one says that it waits for something else. It, and what it said; or NULL. */
static mem_run *
check_tamper(fleet *w, const char **said)
{
    for (const fleet_run *run = w->first; run != NULL; run = run->next) {
        mem_run *row = stet__mem_run(w->db, run->id);

        if (row == NULL || run->was_damaged ||
            (row->row.status != STET_STATUS_SUSPENDED && run->end == 0))
            continue;
        *said = row->row.reason;
        row->row.reason = "for nothing";
        return row;
    }
    return NULL;
}

void
fleet_check_end(fleet *w, stet_engine *e)
{
    const char *said = NULL;
    mem_run    *lies = w->options.tampers == FLEET_TAMPER_REASON ? check_tamper(w, &said) : NULL;
    size_t      checked = 0, kept = 0;
    int         err;

    check_ends(w);
    check_objects(w);
    fleet_check_answers(w, e);
    fleet_check_audit(w, e);
    fleet_check_planned(w, e);
    if ((err = stet_verify(e, &checked, check_on_finding, w)) != STET_OK)
        fleet_fail(w, NULL, "verify gives %s: %s", stet_code_name(err), stet_last_error());
    if (lies != NULL)
        lies->row.reason = said;
    for (const fleet_run *run = w->first; run != NULL; run = run->next)
        if (run->is_damaged && !run->is_reported && !run->is_purged)
            fleet_fail(w, run, "a fact of it is damaged, and verify does not say so");
    for (const fleet_run *run = w->first; run != NULL; run = run->next)
        kept += !run->is_purged;
    if (checked < kept) /* some may be removed while it looks */
        fleet_fail(w, NULL, "verify checked %zu runs of %zu", checked, kept);
}
