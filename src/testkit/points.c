/* Where the engine can die, in numbers and in words; commits that fail to order; and what is known
 * of bodies and their records outside the engine.
 *
 * A point is counted when it is reached, on the way through a hook: before and after each body (the
 * executor's host is wrapped), and three times at each commit (the store is). Nothing else of the
 * engine moves when it is watched, so the nth point of one seed is always the same.
 */
#include "testkit/kit.h"

#include <stdio.h>
#include <string.h>

/* ---- words ----------------------------------------------------------------------------------- */

enum { POINTS_PHRASES_MAX = 3 };

typedef struct points_words {
    char   text[POINTS_PHRASES_MAX][96];
    size_t n; /* found; those beyond the most are only counted */
} points_words;

static void
points_phrase(points_words *w, const char *before, stet_bytes name, int64_t occurrence)
{
    char number[24] = "";

    if (w->n++ >= POINTS_PHRASES_MAX)
        return;
    if (occurrence > 0)
        (void)snprintf(number, sizeof number, "#%lld", (long long)occurrence);
    (void)snprintf(w->text[w->n - 1], sizeof w->text[0], "%s%s%.*s%s", before,
                   name.len > 0 ? " " : "", (int)name.len,
                   name.len > 0 ? (const char *)name.data : "", number);
}

static void
points_fact(points_words *w, const stet__fact *f)
{
    stet_bytes  none = { NULL, 0 };
    const char *name = stet__fact_kind_name(f->kind);
    char        text[64];

    switch (f->kind) {
    case STET__FACT_CLAIMED:
    case STET__FACT_TAKEN: break; /* they come with something that says more */
    case STET__FACT_STARTED:
        points_phrase(w, f->generation != 0 ? "the new beginning of" : "the start of", f->name, 0);
        break;
    case STET__FACT_STEP_RETRY:
        points_phrase(w, "the record of a failed attempt of step", f->name, f->occurrence);
        break;
    case STET__FACT_AT_RISK: points_phrase(w, "the risk of step", f->name, f->occurrence); break;
    case STET__FACT_ATTEMPT_FAILED:
        points_phrase(w, "the end of a failed attempt of the run", none, 0);
        break;
    case STET__FACT_COMPLETED:
    case STET__FACT_FAILED:
    case STET__FACT_CANCELLED:
    case STET__FACT_EXPIRED: points_phrase(w, "the end of the run", none, 0); break;
    case STET__FACT_SUSPENDED: points_phrase(w, "the suspension of the run", none, 0); break;
    case STET__FACT_TIMER: points_phrase(w, "the firing of a timer", none, 0); break;
    case STET__FACT_SIGNALLED: points_phrase(w, "the signal", f->name, 0); break;
    case STET__FACT_CHILD_DONE: points_phrase(w, "the answer of a called run", none, 0); break;
    case STET__FACT_SETTLED: points_phrase(w, "the answer to an awakeable", none, 0); break;
    case STET__FACT_LOST: points_phrase(w, "the loss of the worker", none, 0); break;
    default:
        (void)snprintf(text, sizeof text,
                       stet__fact_is_command(f->kind) ? "the record of %s" : "\"%s\"",
                       name != NULL ? name : "an unknown fact");
        points_phrase(w, text, f->name, f->occurrence);
    }
}

static void
points_op(points_words *w, const stet_op *op)
{
    stet_bytes none = { NULL, 0 }, in = op->data;
    stet__fact fact;

    switch (op->kind) {
    case STET_OP_FACTS:
    case STET_OP_INBOX:
        while (stet__fact_decode(&fact, &in) == STET_OK)
            points_fact(w, &fact);
        break;
    case STET_OP_CLAIM_DUE: points_phrase(w, "the claim of due runs", none, 0); break;
    case STET_OP_BURY: points_phrase(w, "the death of a worker", none, 0); break;
    case STET_OP_REAP: points_phrase(w, "the end of the dead worker's session", none, 0); break;
    case STET_OP_REQUEUE: points_phrase(w, "the engine's start", none, 0); break;
    default: break;
    }
}

/* "the record of step charge#1, the record of sleep nap#1 and 1 more" */
static bool
points_say(char *out, size_t size, const stet_unit *units, size_t n)
{
    points_words w = { .n = 0 };
    size_t       used = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < units[i].n_ops; k++)
            points_op(&w, &units[i].ops[k]);
    if (w.n == 0)
        points_phrase(&w, "a commit", (stet_bytes){ NULL, 0 }, 0);
    for (size_t i = 0; i < w.n && i < POINTS_PHRASES_MAX && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i == 0         ? ""
                                 : i + 1 == w.n ? " and "
                                                : ", ",
                                 w.text[i]);
    if (w.n > POINTS_PHRASES_MAX && used < size)
        (void)snprintf(out + used, size - used, " and %zu more", w.n - POINTS_PHRASES_MAX);
    return w.n > 1;
}

/* ---- commits --------------------------------------------------------------------------------- */

static shim_mode
points_fail(stet_test *kit, int *code)
{
    kit_fault *first = &kit->faults[0];

    *code = first->code;
    if (--first->times == 0)
        memmove(first, first + 1, --kit->n_faults * sizeof *first);
    return *code == STET_EUNCERTAIN ? SHIM_LOSE : SHIM_ERROR;
}

shim_mode
stet__kit_choose(void *arg, const stet_unit *units, size_t n, int *code)
{
    stet_test *kit = arg;
    uint64_t   first = kit->points + 1;
    shim_mode  mode = SHIM_NONE;
    char       what[200];
    bool       are_many;

    kit->points += 3;
    if (kit->armed >= first && kit->armed < first + 3) {
        are_many = points_say(what, sizeof what, units, n);
        mode = kit->armed == first ? SHIM_BEFORE : kit->armed == first + 1 ? SHIM_AFTER : SHIM_LOSE;
        (void)snprintf(kit->where, sizeof kit->where, "%s%s %s%s",
                       mode == SHIM_BEFORE  ? "crash before "
                       : mode == SHIM_AFTER ? "crash after "
                                            : "",
                       what, are_many ? "were written" : "was written",
                       mode == SHIM_LOSE ? " and the answer was lost" : "");
        kit->armed = 0;
        kit->is_hit = true;
        kit->is_dead_hit = mode != SHIM_LOSE;
    } else if (kit->n_faults > 0)
        mode = points_fail(kit, code);
    return mode;
}

void
stet__kit_crash(void *kit)
{
    stet__kit_die(kit);
}

int
stet_test_fail_next(stet_test *kit, int code, unsigned times)
{
    static const int codes[] = { STET_EBUSY,  STET_EIO,        STET_EFULL,
                                 STET_ENOMEM, STET_EUNCERTAIN, STET_EPOISONED };
    kit_fault       *grown;
    bool             is_known = false;
    int              err = stet__kit_enter(kit, "stet_test_fail_next");

    if (err != STET_OK)
        return err;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        is_known = is_known || codes[i] == code;
    if (!is_known)
        return stet__fail(STET_EINVAL,
                          "a store never fails to commit with %s (%d); it can be STET_EBUSY, "
                          "STET_EIO, STET_EFULL, STET_ENOMEM, STET_EUNCERTAIN or "
                          "STET_EPOISONED",
                          stet_code_name(code) != NULL ? stet_code_name(code) : "that", code);
    if (times == 0)
        return STET_OK;
    if ((grown = stet__grow(kit->alloc, kit->faults, (kit->n_faults + 1) * sizeof *grown)) == NULL)
        return stet__fail(STET_ENOMEM, "the test kit: out of memory");
    kit->faults = grown;
    grown[kit->n_faults++] = (kit_fault){ code, times };
    return STET_OK;
}

/* ---- steps, from outside --------------------------------------------------------------------- */

/* NULL: out of memory. */
static kit_run *
points_run(stet_test *kit, const char *run)
{
    kit_run *found = stet__map_find(&kit->runs, run, strlen(run));

    if (found != NULL || (found = stet__get0(kit->alloc, sizeof *found)) == NULL)
        return found;
    if (stet__map_put(&kit->runs, run, strlen(run), found) != STET_OK) {
        stet__free(kit->alloc, found);
        return NULL;
    }
    found->next = kit->all_runs;
    return kit->all_runs = found;
}

/* NULL: out of memory. */
static kit_step *
points_step(stet_test *kit, const char *run, const char *name, size_t name_len, uint64_t occurrence)
{
    char      key[STET_ID_TEXT_MAX + STET__NAME_MAX + 32];
    kit_run  *of;
    kit_step *step;
    int       len = snprintf(key, sizeof key, "%s %.*s#%llu", run, (int)name_len, name,
                             (unsigned long long)occurrence);

    if (len <= 0 || (size_t)len >= sizeof key)
        return NULL;
    if ((step = stet__map_find(&kit->steps, key, (size_t)len)) != NULL)
        return step;
    if ((of = points_run(kit, run)) == NULL ||
        (step = stet__get0(kit->alloc, sizeof *step)) == NULL)
        return NULL;
    if (stet__map_put(&kit->steps, key, (size_t)len, step) != STET_OK) {
        stet__free(kit->alloc, step);
        return NULL;
    }
    step->next = of->steps;
    of->steps = step;
    return step;
}

/* What was recorded from this revision on does not count any more: it is another step now, with
 * another token. */
static void
points_forget(kit_run *run, uint64_t from)
{
    for (kit_step *step = run->steps; step != NULL; step = step->next)
        if (step->revision >= from) {
            step->is_recorded = false;
            step->revision = 0;
            step->entered = 0;
        }
}

/* The run has taken its inbox in up to there. A rewind among that holds from now on, for the
 * generation it was meant for. What operators say that a step gave needs no look: it makes nothing
 * be executed again. */
static void
points_taken(stet_test *kit, kit_run *run, stet_id id, uint64_t upto)
{
    const mem_facts probe = { .first = run->taken + 1 };
    const mem_run  *row = stet__mem_run(kit->db, id);
    const mem_node *node = row != NULL ? stet__mem_tree_ge(&row->inbox, &probe.node) : NULL;

    run->taken = upto;
    for (; node != NULL; node = stet__mem_tree_next(node)) {
        const mem_facts *entry = MEM_OF(const mem_facts, node, node);
        stet_bytes       in = { entry->data, entry->len };
        stet__fact       fact;

        if (entry->first > upto)
            return;
        if (stet__fact_decode(&fact, &in) == STET_OK && fact.kind == STET__FACT_REWIND &&
            fact.generation == run->generation && !run->is_undoing)
            points_forget(run, (uint64_t)fact.number);
    }
}

static void
points_began_anew(kit_run *run, const stet__fact *fact)
{
    run->generation = fact->generation;
    run->is_undoing = false;
    for (kit_step *step = run->steps; step != NULL; step = step->next) {
        step->is_recorded = false;
        step->revision = 0;
        step->entered = 0;
    }
}

/* The end of an attempt is the record of all that failed in it, and so are that of a rollback and
 * the beginning of one because of a failure. */
static void
points_settle(kit_run *run)
{
    for (kit_step *step = run->steps; step != NULL; step = step->next)
        step->entered = 0;
}

static void
points_recorded(stet_test *kit, const char *run, const stet__fact *fact)
{
    kit_step *step =
        points_step(kit, run, fact->name.data, fact->name.len, (uint64_t)fact->occurrence);

    if (step == NULL)
        return;
    step->entered = 0;
    step->is_recorded = step->is_recorded || fact->kind == STET__FACT_STEP;
    if (step->revision == 0)
        step->revision = fact->revision;
}

/* A fact of a journal is durable. */
static void
points_durable(stet_test *kit, stet_id id, const stet__fact *fact)
{
    char     text[STET_ID_TEXT_MAX];
    kit_run *run;

    stet__id_text(text, STET__ID_RUN, id);
    if ((run = points_run(kit, text)) == NULL)
        return;
    switch (fact->kind) {
    case STET__FACT_STEP:
    case STET__FACT_STEP_RETRY: points_recorded(kit, text, fact); break;
    case STET__FACT_TAKEN: points_taken(kit, run, id, (uint64_t)fact->number); break;
    case STET__FACT_STARTED:
        if (fact->generation != 0)
            points_began_anew(run, fact);
        break;
    case STET__FACT_ROLLBACK:
        run->is_undoing = true;
        if ((fact->flags & STET__FACT_AUTO) != 0)
            points_settle(run);
        break;
    case STET__FACT_ATTEMPT_FAILED:
    case STET__FACT_DEFERRED:
    case STET__FACT_COMPENSATION_FAILED: points_settle(run); break;
    case STET__FACT_ROLLED_BACK: run->is_undoing = false; break;
    default: break;
    }
}

/* Among facts a signal is one that came before, to another generation or run. */
static void
points_put(stet_test *kit, const stet__fact *fact)
{
    if (fact->kind == STET__FACT_SIGNALLED)
        (void)snprintf(
            kit->signal_key, sizeof kit->signal_key, "%.*s", (int)fact->idempotency_key.len,
            fact->idempotency_key.len > 0 ? (const char *)fact->idempotency_key.data : "");
}

void
stet__kit_applied(void *arg, const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        const stet_op *op = &unit->ops[i];
        stet_bytes     in = op->data;
        stet__fact     fact;

        if (op->kind != STET_OP_FACTS && op->kind != STET_OP_INBOX)
            continue;
        for (uint64_t revision = op->number; stet__fact_decode(&fact, &in) == STET_OK; revision++) {
            fact.revision = revision;
            if (op->kind == STET_OP_INBOX)
                points_put(arg, &fact);
            else
                points_durable(arg, op->run, &fact);
        }
    }
}

size_t
stet_test_bodies(const stet_test *kit, const stet_run_id *run, const char *step)
{
    char            key[STET_ID_TEXT_MAX + STET__NAME_MAX + 32];
    const kit_step *found;
    int             len = snprintf(key, sizeof key, "%s %s", run->text, step);

    if (len <= 0 || (size_t)len >= sizeof key)
        return 0;
    found = stet__map_find(&kit->steps, key, (size_t)len);
    return found != NULL ? found->bodies : 0;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* The body this fiber is about to enter. */
static stet_attempt *
points_attempt(const stet_ctx *c)
{
    const void *self = c->exec->p->ops->thread_self(c->exec->p);

    for (size_t i = 0; i < c->exec->n_slots; i++)
        if (atomic_load(&c->exec->slots[i].self) == self)
            return atomic_load(&c->exec->slots[i].current_body);
    return NULL;
}

static void
points_at_body(stet_test *kit, const stet_attempt *a, const char *before, const char *after)
{
    if (++kit->points != kit->armed)
        return;
    (void)snprintf(kit->where, sizeof kit->where, "crash %s the body of step %s#%llu %s", before,
                   a->step, (unsigned long long)a->occurrence, after);
    kit->armed = 0;
    kit->is_hit = kit->is_dead_hit = true;
    stet__kit_die(kit);
}

/* A promise that is broken is a bug of stet; the first one is kept. */
static void
points_broken(stet_test *kit, const stet_ctx *c, const stet_attempt *a, const char *what)
{
    if (kit->broken[0] == '\0')
        (void)snprintf(kit->broken, sizeof kit->broken,
                       "the body of step %s#%llu of %s %s; this is a bug of stet", a->step,
                       (unsigned long long)a->occurrence, c->run_text, what);
}

static void
points_entered(stet_test *kit, const stet_ctx *c, const stet_attempt *a)
{
    kit_step *step;

    points_at_body(kit, a, "before", "was entered");
    if ((step = points_step(kit, c->run_text, a->step, strlen(a->step), a->occurrence)) == NULL)
        return;
    if (step->is_recorded)
        points_broken(kit, c, a, "was executed again though its record was durable");
    if (step->entered != 0 && step->entered != kit->life && !a->is_at_risk)
        points_broken(kit, c, a,
                      "ran before a crash, was not recorded, and is not told that it may have");
    step->bodies++;
    step->entered = kit->life;
}

/* What is judged here, and what dies here, must find the kit knowing all that is durable. A commit
 * of another fiber may have been applied and not yet told: it is waited for. */
static bool
points_may_execute(stet_ctx *c)
{
    const kit_host     *host = (const kit_host *)(const void *)c->exec->host;
    const stet_attempt *a = points_attempt(c);

    if (!host->inner->may_execute(c))
        return false;
    if (a == NULL)
        return true;
    stet__shim_hold(host->kit->engine->store);
    points_entered(host->kit, c, a);
    stet__shim_let_go(host->kit->engine->store);
    return true;
}

static void
points_crumb_rest(stet_ctx *c, stet_attempt *a)
{
    const kit_host *host = (const kit_host *)(const void *)c->exec->host;

    if (a != NULL && !a->is_skipped) {
        stet__shim_hold(host->kit->engine->store);
        points_at_body(host->kit, a, "after", "ran, before its record was written");
        stet__shim_let_go(host->kit->engine->store);
    }
    host->inner->crumb_rest(c, a);
}

void
stet__kit_watch(stet_test *kit)
{
    kit->host.inner = kit->engine->exec.host;
    kit->host.ops = *kit->host.inner;
    kit->host.ops.may_execute = points_may_execute;
    kit->host.ops.crumb_rest = points_crumb_rest;
    kit->host.kit = kit;
    kit->engine->exec.host = &kit->host.ops;
}

/* ---- public ---------------------------------------------------------------------------------- */

void
stet_test_crash_at(stet_test *kit, uint64_t n)
{
    kit->armed = n;
    kit->is_hit = false;
    kit->where[0] = '\0';
}

uint64_t
stet_test_points(const stet_test *kit)
{
    return kit->points;
}

const char *
stet_test_crashed(const stet_test *kit)
{
    return kit->is_hit ? kit->where : NULL;
}

void
stet__kit_points_free(stet_test *kit)
{
    while (kit->all_runs != NULL) {
        kit_run *run = kit->all_runs;

        while (run->steps != NULL) {
            kit_step *step = run->steps;

            run->steps = step->next;
            stet__free(kit->alloc, step);
        }
        kit->all_runs = run->next;
        stet__free(kit->alloc, run);
    }
    stet__map_free(&kit->steps);
    stet__map_free(&kit->runs);
    stet__free(kit->alloc, kit->faults);
    kit->faults = NULL;
    kit->n_faults = 0;
    kit->points = kit->armed = 0;
    kit->is_hit = kit->is_dead_hit = false;
    kit->where[0] = '\0';
}
