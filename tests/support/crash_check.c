/* That everything ended right in a crash test; see crash_flows.h. */
#include "crash_flows_parts.h"

typedef struct flow_look {
    const flow        *f;
    stet_engine       *e;
    const flow_ledger *ledger;
    const char        *where;
    size_t             runs, letters;
    size_t             rewinds; /* several, if two operators were at it */
    size_t             forks;   /* several, if an answer was lost or two were at it */
    /* of one run's facts */
    const flow_entry *entry;
    size_t            records, risks;
} flow_look;

#define FLOW_CHECK(look, cond, ...)                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            char text_[512];                                                                       \
                                                                                                   \
            (void)snprintf(text_, sizeof text_, __VA_ARGS__);                                      \
            flow_dump((look)->e, (look)->ledger);                                                  \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", (look)->f->name, (look)->where, text_);    \
        }                                                                                          \
    } while (0)

static int
flow_count_run(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(size_t *)arg;
    return STET_OK;
}

static int
flow_on_finding(void *arg, const stet_finding *finding)
{
    flow_look *look = arg;

    FLOW_CHECK(look, false, "verify: %s revision %llu: %s: %s", finding->run ? finding->run : "-",
               (unsigned long long)finding->revision, finding->rule, finding->text);
    return STET_OK;
}

static int
flow_on_fact(void *arg, const stet_fact_info *fact)
{
    flow_look *look = arg;
    char       step[64];

    if (fact->name == NULL)
        return STET_OK;
    (void)snprintf(step, sizeof step, "%s#%llu", fact->name, (unsigned long long)fact->occurrence);
    if (strcmp(step, look->entry->step) != 0)
        return STET_OK;
    look->records += strcmp(fact->kind, "step") == 0;
    look->risks += fact->is_at_risk;
    return STET_OK;
}

static size_t
flow_records(const flow_look *look, const char *step)
{
    if (flow_is(look->f, FLOW_OPERATORS))
        return strcmp(step, "again#1") == 0      ? 1 + look->rewinds
               : strcmp(step, "hopeless#1") == 0 ? 0
                                                 : 1;
    return strcmp(step, "break#1") == 0 || strcmp(step, "tear#1") == 0 ? 0 : 1;
}

/* A process that was stopped when it was about to enter a body may do so when it goes on, though
 * another one has the run: that is noted before the lease is looked at for the last time. Its claim
 * is older, so it counts as the one before. */
static bool
flow_is_late(const flow_entry *later, const flow_entry *entry)
{
    return later->is_lost && later->life < entry->life && later->fence < entry->fence;
}

/* One execution: its step is recorded once (or its run failed for lack of a policy); if it was lost
 * it was reported, and every later execution knew. */
static void
flow_check_entry(flow_look *look, size_t at)
{
    const flow_entry *entry = &look->ledger->entries[at];
    bool        is_past = strncmp(entry->step, "past-", 5) == 0; /* of a generation that is gone */
    stet_run_id run;
    bool        is_again; /* done once more, as another execution, when it was done */

    look->entry = entry;
    look->records = look->risks = 0;
    is_again = flow_records(look, entry->step) > 1;
    FLOW_CHECK(look, stet_run_id_parse(&run, entry->run) == STET_OK, "%s is no run", entry->run);
    FLOW_CHECK(look, stet_run_facts(look->e, &run, false, flow_on_fact, look) == STET_OK,
               "%s has no facts", entry->run);
    FLOW_CHECK(look, entry->is_settled != entry->is_lost, "execution %zu of %s is %s", at,
               entry->step,
               entry->is_settled ? "both settled and lost"
                                 : "neither settled nor lost: it ran for nothing");
    FLOW_CHECK(look, look->records == (is_past ? 0 : flow_records(look, entry->step)),
               "%s has %zu records", entry->step, look->records);
    FLOW_CHECK(look, !entry->is_lost || look->risks > 0 || is_past,
               "%s was lost and not reported at risk", entry->step);
    for (size_t i = at + 1; i < atomic_load(&look->ledger->n); i++) {
        const flow_entry *later = &look->ledger->entries[i];

        if (strcmp(later->run, entry->run) != 0 || strcmp(later->step, entry->step) != 0)
            continue;
        if (flow_is_late(later, entry)) {
            FLOW_CHECK(look, is_again || entry->is_at_risk,
                       "%s was entered late and lost, and another execution was not told",
                       entry->step);
            continue;
        }
        FLOW_CHECK(look,
                   (strcmp(later->token, entry->token) == 0) != (is_again && entry->is_settled),
                   "%s had %s", entry->step, is_again ? "one token" : "two tokens");
        FLOW_CHECK(look, !entry->is_lost || later->fence > entry->fence,
                   "%s: fence %llu after fence %llu", entry->step, (unsigned long long)later->fence,
                   (unsigned long long)entry->fence);
        FLOW_CHECK(look, !entry->is_lost || later->is_at_risk,
                   "%s was lost, and a later execution was not told", entry->step);
        if (later->is_settled)
            break; /* what follows is another attempt */
    }
}

static void
flow_check_starts(flow_look *look)
{
    static const char *const keys[FLOW_STARTS_MAX] = { "first", "second" };

    for (size_t i = 0; i < look->f->n_starts; i++) {
        const flow_start *start = &look->f->starts[i];
        stet_run_id       run;
        stet_result       result;
        bool              existed = false;
        int               rc;

        rc = stet_start(
            look->e, &run, start->handler, stet_text("{}"),
            STET_START(.key = start->key, .idempotency_key = keys[i], .existed = &existed));
        FLOW_CHECK(look, rc == STET_OK && existed, "the start of %s was lost (%d)", start->handler,
                   rc);
        rc = stet_result_get(look->e, &result, &run);
        FLOW_CHECK(look, result.status == start->status, "%s is %s (%d)", start->handler,
                   stet_status_name(result.status), rc);
        FLOW_CHECK(look, result.code == start->code, "%s: code %d, expected %d", start->handler,
                   result.code, start->code);
        FLOW_CHECK(look,
                   start->value == NULL ||
                       (result.value.len == strlen(start->value) &&
                        memcmp(result.value.data, start->value, result.value.len) == 0),
                   "%s: \"%.*s\", expected \"%s\"", start->handler, (int)result.value.len,
                   (const char *)result.value.data, start->value);
        stet_result_free(&result);
    }
}

static void
flow_count_rewinds(flow_look *look)
{
    flow_story  s = { 0 };
    stet_run_id run;

    if (!flow_is(look->f, FLOW_OPERATORS))
        return;
    FLOW_CHECK(look, stet_run_id_parse(&run, look->ledger->answered[0]) == STET_OK,
               "nothing was started");
    FLOW_CHECK(look, stet_run_facts(look->e, &run, false, flow_on_story, &s) == STET_OK,
               "it has no facts");
    FLOW_CHECK(look, s.rewinds > 0 && s.skips > 0 && s.pauses > 0, "it was not helped");
    look->rewinds = (size_t)s.rewinds;
}

/* No fork that nobody asked for, none lost that was acknowledged. */
static void
flow_count_forks(flow_look *look)
{
    const flow_ledger *ledger = look->ledger;
    flow_forks         forks = { .of = ledger->answered[0], .known = ledger->forked };

    if (!flow_is(look->f, FLOW_FORKS))
        return;
    FLOW_CHECK(look, stet_run_list(look->e, NULL, flow_on_fork, &forks) == STET_OK, "listing: %s",
               stet_last_error());
    FLOW_CHECK(look, forks.n > 0 && forks.n <= ledger->forks_asked, "%zu forks, %zu were asked for",
               forks.n, ledger->forks_asked);
    FLOW_CHECK(look, ledger->forked[0] == '\0' || forks.is_found,
               "fork %s was acknowledged and is gone", ledger->forked);
    FLOW_CHECK(look, forks.wrong == 0, "%zu forks did not complete", forks.wrong);
    look->forks = forks.n;
}

void
flow_check(const flow *f, stet_engine *e, const flow_ledger *ledger, const char *where)
{
    flow_look look = { .f = f, .e = e, .ledger = ledger, .where = where };

    flow_check_starts(&look);
    flow_count_forks(&look);
    (void)stet_run_list(e, NULL, flow_count_run, &look.runs);
    FLOW_CHECK(&look, look.runs == f->runs + look.forks, "%zu runs, expected %zu", look.runs,
               f->runs + look.forks);
    (void)stet_dlq_list(e, NULL, flow_count_run, &look.letters);
    FLOW_CHECK(&look, look.letters == f->letters, "%zu dead letters, expected %zu", look.letters,
               f->letters);
    FLOW_CHECK(&look, !ledger->is_contradicted,
               "two awakeables were handed out, or two decisions stand");
    for (size_t i = 0; i < FLOW_BOUNDARIES; i++)
        FLOW_CHECK(&look,
                   ledger->decided[i][0] == '\0' ||
                       strcmp(ledger->decided[i], ledger->heard[i]) == 0,
                   "decision %zu was acknowledged with \"%s\", and the run got \"%s\"", i + 1,
                   ledger->decided[i], ledger->heard[i]);
    FLOW_CHECK(&look, stet_verify(e, NULL, flow_on_finding, &look) == STET_OK, "verify: %s",
               stet_last_error());
    flow_count_rewinds(&look);
    for (size_t i = 0; i < FLOW_STEPS_MAX && f->steps[i].step != NULL; i++) {
        size_t executions = 0, lost = 0, expected = f->steps[i].executions;

        if (strcmp(f->steps[i].step, "again#1") == 0)
            expected = 1 + look.rewinds;
        else if (strcmp(f->steps[i].step, "branch#1") == 0)
            expected = 1 + look.forks;

        for (size_t k = 0; k < atomic_load(&ledger->n); k++)
            if (strcmp(ledger->entries[k].step, f->steps[i].step) == 0) {
                executions++;
                lost += ledger->entries[k].is_lost;
            }
        FLOW_CHECK(&look, executions == expected + lost,
                   "%s was executed %zu times, %zu of them lost; expected %zu + lost",
                   f->steps[i].step, executions, lost, expected);
    }
    for (size_t i = 0; i < atomic_load(&ledger->n); i++)
        flow_check_entry(&look, i);
}
