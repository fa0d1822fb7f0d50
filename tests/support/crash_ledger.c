/* The ledger of the crash tests; see crash_flows.h. */
#include <sys/mman.h>

#include "core/fact.h"
#include "crash_flows_parts.h"
#include "exec/context.h"
#include "util/util.h"

flow_place flow_here = { NULL, 0, PTHREAD_MUTEX_INITIALIZER };

void
flow_lock(void)
{
    (void)pthread_mutex_lock(&flow_here.lock);
}

void
flow_unlock(void)
{
    (void)pthread_mutex_unlock(&flow_here.lock);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

flow_ledger *
flow_ledger_new(void)
{
    void *p =
        mmap(NULL, sizeof(flow_ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

void
flow_ledger_clear(flow_ledger *ledger)
{
    memset(ledger, 0, sizeof *ledger);
}

void
flow_ledger_begin(flow_ledger *ledger)
{
    flow_here.ledger = ledger;
    ledger->speaker = NULL;
    flow_here.life = ++ledger->life;
}

void
flow_ledger_stop(void)
{
    flow_lock();
}

void
flow_ledger_go_on(void)
{
    flow_unlock();
}

void
flow_ledger_crash(flow_ledger *ledger, const void *place)
{
    if (place == NULL || ledger->speaker == place)
        ledger->speaker = NULL;
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        flow_entry *entry = &ledger->entries[i];

        if (entry->life == flow_here.life && !entry->is_settled &&
            (place == NULL || entry->place == place))
            entry->is_lost = true;
    }
}

size_t
flow_ledger_lost(const flow_ledger *ledger)
{
    size_t lost = 0;

    for (size_t i = 0; i < atomic_load(&ledger->n); i++)
        lost += ledger->entries[i].is_lost;
    return lost;
}

void
flow_ledger_copy(flow_ledger *to, const flow_ledger *from)
{
    flow_lock();
    memcpy(to, from, sizeof *to);
    flow_unlock();
}

void
flow_enter(const stet_attempt *a, const char *step)
{
    flow_ledger *ledger = flow_here.ledger;
    flow_entry  *entry;
    size_t       at;

    flow_lock();
    at = atomic_fetch_add(&ledger->n, 1); /* another process may be at it, with a lock of its own */
    if (at >= FLOW_ENTRIES_MAX)
        atomic_store(&ledger->n, FLOW_ENTRIES_MAX);
    else {
        entry = &ledger->entries[at];
        (void)snprintf(entry->run, sizeof entry->run, "%s", stet_attempt_run(a));
        (void)snprintf(entry->step, sizeof entry->step, "%s", step);
        (void)snprintf(entry->token, sizeof entry->token, "%s", stet_attempt_token(a));
        entry->is_at_risk = stet_attempt_is_at_risk(a);
        entry->life = flow_here.life;
        entry->place = a->ctx->exec->p;
        entry->fence = stet_attempt_fence(a);
    }
    flow_unlock();
}

/* With `step` NULL: all of the run but its undos; the facts that end an attempt are the record of a
 * body that failed without a policy of its own. */
static void
flow_settle(flow_ledger *ledger, const char *run, uint64_t epoch, const char *step)
{
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        flow_entry *entry = &ledger->entries[i];

        if (entry->fence == epoch && strcmp(entry->run, run) == 0 &&
            (step == NULL ? strncmp(entry->step, FLOW_UNDO, strlen(FLOW_UNDO)) != 0
                          : strcmp(entry->step, step) == 0))
            entry->is_settled = true;
    }
}

/* The last one: those before it have their own records. */
static void
flow_settle_undo(flow_ledger *ledger, const char *run, uint64_t epoch)
{
    for (size_t i = atomic_load(&ledger->n); i-- > 0;) {
        flow_entry *entry = &ledger->entries[i];

        if (entry->fence == epoch && strcmp(entry->run, run) == 0 &&
            strncmp(entry->step, FLOW_UNDO, strlen(FLOW_UNDO)) == 0) {
            entry->is_settled = true;
            return;
        }
    }
}

static void
flow_settle_by(flow_ledger *ledger, const char *run, uint64_t epoch, const stet__fact *fact)
{
    char step[64];

    switch (fact->kind) {
    case STET__FACT_STEP:
    case STET__FACT_STEP_RETRY:
        (void)snprintf(step, sizeof step, "%.*s#%lld", (int)fact->name.len,
                       (const char *)fact->name.data, (long long)fact->occurrence);
        flow_settle(ledger, run, epoch, step);
        break;
    case STET__FACT_ROLLBACK: /* because it failed: this is the record of how */
        if (!(fact->flags & STET__FACT_AUTO))
            break;
        flow_settle(ledger, run, epoch, NULL);
        break;
    case STET__FACT_FAILED: /* without another attempt */
    case STET__FACT_ATTEMPT_FAILED: flow_settle(ledger, run, epoch, NULL); break;
    case STET__FACT_COMPENSATION_FAILED: flow_settle_undo(ledger, run, epoch); break;
    default: break;
    }
}

/* Under which claim a unit records for this run. */
static uint64_t
flow_epoch(const stet_unit *unit, stet_id run)
{
    for (size_t i = 0; i < unit->n_conds; i++)
        if (unit->conds[i].kind == STET_COND_CLAIM && stet__id_equal(unit->conds[i].run, run))
            return unit->conds[i].epoch;
    return 0;
}

void
flow_ledger_applied(void *arg, const stet_unit *unit)
{
    char run[STET_ID_TEXT_MAX];

    flow_lock();
    for (size_t i = 0; i < unit->n_ops; i++) {
        stet_bytes in = unit->ops[i].data;
        stet__fact fact;

        if (unit->ops[i].kind != STET_OP_FACTS)
            continue;
        stet__id_text(run, STET__ID_RUN, unit->ops[i].run);
        while (stet__fact_decode(&fact, &in) == STET_OK)
            flow_settle_by(arg, run, flow_epoch(unit, unit->ops[i].run), &fact);
    }
    flow_unlock();
}

/* ---- what a store has ------------------------------------------------------------------------ */

enum { FLOW_RUNS_MAX = 16 };

typedef struct flow_found {
    flow_ledger *ledger;
    const bool  *was_settled;
    stet_id      runs[FLOW_RUNS_MAX];
    size_t       n;
    char         run[STET_ID_TEXT_MAX]; /* the one being read */
    uint64_t     epoch;                 /* of its last claim so far */
} flow_found;

static int
flow_on_row(void *arg, const stet_run_row *row)
{
    flow_found *found = arg;

    CHECK(found->n < FLOW_RUNS_MAX);
    found->runs[found->n++] = row->id;
    return STET_OK;
}

/* The records of the generations before went with them: the claim that ended the last one had
 * recorded all it entered, and of those before it is known. */
static void
flow_settle_past(const flow_found *found, uint64_t epoch)
{
    for (size_t i = 0; i < atomic_load(&found->ledger->n); i++) {
        flow_entry *entry = &found->ledger->entries[i];

        if (entry->fence <= epoch && strcmp(entry->run, found->run) == 0)
            entry->is_settled = entry->fence == epoch || found->was_settled[i];
    }
}

static int
flow_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    flow_found *found = arg;
    stet__fact  fact;

    (void)first;
    (void)count;
    while (stet__fact_decode(&fact, &facts) == STET_OK)
        if (fact.kind == STET__FACT_CLAIMED)
            found->epoch = (uint64_t)fact.number;
        else if (fact.kind == STET__FACT_STARTED && fact.generation != 0)
            flow_settle_past(found, (uint64_t)fact.epoch);
        else
            flow_settle_by(found->ledger, found->run, found->epoch, &fact);
    return STET_OK;
}

void
flow_ledger_recover(flow_ledger *ledger, stet_store *store, const char *where)
{
    static bool    was_settled[FLOW_ENTRIES_MAX];
    flow_found     found = { .ledger = ledger, .was_settled = was_settled };
    stet_run_query all = { .limit = FLOW_RUNS_MAX };

    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        was_settled[i] = ledger->entries[i].is_settled;
        ledger->entries[i].is_settled = false;
    }
    CHECK_OK(store->ops->runs(store, &all, flow_on_row, &found));
    for (size_t i = 0; i < found.n; i++) {
        stet__id_text(found.run, STET__ID_RUN, found.runs[i]);
        found.epoch = 0;
        CHECK_OK(store->ops->journal(store, found.runs[i], 1, 1000, flow_on_facts, &found));
    }
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        flow_entry *entry = &ledger->entries[i];

        if (was_settled[i] && !entry->is_settled)
            test_fail(__FILE__, __LINE__, "%s: the record of %s of %s, which was durable, is gone",
                      where, entry->step, entry->run);
        entry->is_lost = !entry->is_settled;
    }
}
