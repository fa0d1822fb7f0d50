/* Who starts the workflows of the crash tests and plays the outside until they are over; see
 * crash_flows.h. */
#include "crash_flows_parts.h"
#include "engine/engine.h"

#define FLOW_DOUBT_MS (INT64_C(20000) * test_slow())

static void
flow_print_verdict(void *arg, const stet_verdict *verdict)
{
    (void)fprintf(stderr, "    %s: %s\n", (const char *)arg, verdict->text);
}

static int
flow_print_fact(void *arg, const stet_fact_info *fact)
{
    (void)arg;
    (void)fprintf(stderr, "    %3llu %3llu %-18s %s#%llu code %d %s%s\n",
                  (unsigned long long)fact->revision, (unsigned long long)fact->inbox, fact->kind,
                  fact->name ? fact->name : "", (unsigned long long)fact->occurrence, fact->code,
                  fact->text ? fact->text : "", fact->is_at_risk ? " AT RISK" : "");
    return STET_OK;
}

static int
flow_print_run(void *arg, const stet_run_info *info)
{
    stet_engine *e = arg;
    stet_run_id  run;

    (void)fprintf(stderr, "  %s %s %s attempt %u lost %zu due %lld %s\n", info->id, info->handler,
                  stet_status_name(info->status), info->attempt, info->lost,
                  (long long)info->due_ms, info->error ? info->error : "");
    if (stet_run_id_parse(&run, info->id) == STET_OK) {
        (void)stet_why(e, &run, flow_print_verdict, run.text);
        (void)stet_run_facts(e, &run, false, flow_print_fact, NULL);
    }
    return STET_OK;
}

void
flow_dump(stet_engine *e, const flow_ledger *ledger)
{
    for (size_t i = 0; i < atomic_load(&ledger->n); i++) {
        const flow_entry *entry = &ledger->entries[i];

        (void)fprintf(stderr, "  life %u fence %llu %s %s%s%s%s\n", entry->life,
                      (unsigned long long)entry->fence, entry->run, entry->step,
                      entry->is_at_risk ? " at-risk" : "", entry->is_settled ? " settled" : "",
                      entry->is_lost ? " lost" : "");
    }
    (void)stet_run_list(e, STET_FILTER(.with_payloads = true), flow_print_run, e);
}

static void
flow_start_all(const flow *f, stet_engine *e, flow_ledger *ledger, stet_run_id *runs,
               const char *where)
{
    static const char *const keys[FLOW_STARTS_MAX] = { "first", "second" };

    for (size_t i = 0; i < f->n_starts; i++) {
        char before[STET_ID_TEXT_MAX];
        bool existed = false;
        int  tries = 0, rc;

        flow_lock();
        memcpy(before, ledger->answered[i], sizeof before);
        flow_unlock();

        /* A failed commit is reported to whoever starts; the same key makes the repeat harmless. */
        do
            rc = stet_start(e, &runs[i], f->starts[i].handler, stet_text("{}"),
                            STET_START(.key = f->starts[i].key, .idempotency_key = keys[i],
                                       .existed = &existed,
                                       .retry = { .attempts = 2,
                                                  .first_ms = 5,
                                                  .max_ms = 5,
                                                  .jitter_percent = STET_NONE }));
        while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
        if (rc != STET_OK)
            test_fail(__FILE__, __LINE__, "%s: %s: starting %s: %s: %s", f->name, where,
                      f->starts[i].handler, stet_code_name(rc), stet_last_error());
        if (before[0] != '\0' && (!existed || strcmp(before, runs[i].text) != 0))
            test_fail(__FILE__, __LINE__, "%s: %s: %s, whose start was acknowledged, is gone",
                      f->name, where, before);
        flow_lock();
        memcpy(ledger->answered[i], runs[i].text, sizeof ledger->answered[i]);
        flow_unlock();
    }
}

/* The outside settles the awakeable it was handed; a failed commit is reported, so again at the
 * next call. */
static void
flow_outside(const flow *f, stet_engine *e, flow_ledger *ledger, const char *where)
{
    int rc;

    if (ledger->awakeable[0] == '\0' || ledger->is_resolved)
        return;
    rc = stet_resolve(e, ledger->awakeable, stet_text("open"));
    if (rc != STET_OK && rc != STET_ESETTLED && rc != STET_EENDED && rc != STET_EBUSY &&
        rc != STET_EUNCERTAIN)
        test_fail(__FILE__, __LINE__, "%s: %s: resolving: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
    flow_lock();
    ledger->is_resolved = rc == STET_OK || rc == STET_ESETTLED;
    flow_unlock();
}

int
flow_on_story(void *arg, const stet_fact_info *fact)
{
    flow_story *s = arg;

    s->retries += strcmp(fact->kind, "step retry") == 0;
    s->pauses += strcmp(fact->kind, "paused") == 0;
    s->skips += strcmp(fact->kind, "step skipped") == 0;
    s->is_paused =
        strcmp(fact->kind, "paused") == 0 || (s->is_paused && strcmp(fact->kind, "resumed") != 0);
    s->waits += strcmp(fact->kind, "signal wait") == 0;
    s->edits += strcmp(fact->kind, "result replaced") == 0;
    s->rewinds += strcmp(fact->kind, "rewound") == 0;
    s->is_lost = s->is_lost || (fact->name != NULL && strcmp(fact->name, "flow.lost") == 0);
    return STET_OK;
}

/* Does what the run's story says comes next; what was not answered is found there at the next
 * call. */
static void
flow_operate(const flow *f, stet_engine *e, const stet_run_id *run, const char *where)
{
    flow_story s = { 0 };
    int        rc = STET_OK;

    if (!flow_is(f, FLOW_OPERATORS) ||
        stet_run_facts(e, run, false, flow_on_story, &s) != STET_OK ||
        (s.is_lost ? s.waits : s.retries) == 0)
        return;
    if (s.is_lost)
        rc = stet_run_fail(e, run, "flow", NULL);
    else if (s.pauses == 0)
        rc = stet_run_pause(e, run, "flow", NULL);
    else if (s.skips == 0)
        rc = stet_run_skip(e, run, "hopeless", stet_text("by hand"), "flow", NULL);
    else if (s.is_paused) /* by one of us who stood still, perhaps, long after it was resumed */
        rc = stet_run_resume(e, run, "flow", NULL);
    else if (s.waits > 0 && s.edits == 0)
        rc = stet_run_edit(e, run, "first", stet_text("mended"), "flow", NULL);
    else if (s.waits > 0 && s.rewinds == 0)
        rc = stet_run_rewind(e, run, "again", "flow", NULL);
    else if (s.waits > 1)
        rc = stet_signal(e, run, "go", stet_text(""), STET_SIGNAL_OPTIONS(.idempotency_key = "go"));
    /* Not found, not paused: another one was first. */
    if (rc != STET_OK && rc != STET_EBUSY && rc != STET_EUNCERTAIN && rc != STET_ESETTLED &&
        rc != STET_EENDED && rc != STET_ENOTFOUND && rc != STET_ESTATE)
        test_fail(__FILE__, __LINE__, "%s: %s: helping it: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
}

typedef struct flow_asked {
    stet_run_id run;
    size_t      at;
} flow_asked;

static int
flow_on_boundary(void *arg, const stet_boundary *b)
{
    static const char *const names[FLOW_BOUNDARIES] = { "pay", "look", "ship" };
    flow_asked              *asked = arg;

    for (asked->at = 0; asked->at < FLOW_BOUNDARIES; asked->at++)
        if (strcmp(names[asked->at], b->name) == 0)
            return stet_run_id_parse(&asked->run, b->run) == STET_OK ? STET_END : STET_OK;
    return STET_OK;
}

/* Decides what is asked for: yes, go on, no. Whoever decides has a note of their own. */
static void
flow_decide(const flow *f, stet_engine *e, flow_ledger *ledger, const char *where)
{
    static int (*const verbs[FLOW_BOUNDARIES])(stet_engine *, const stet_run_id *, const char *,
                                               const char *) = { stet_run_approve, stet_run_resume,
                                                                 stet_run_reject };
    flow_asked asked;
    char       note[24];
    int        rc;

    if (!flow_is(f, FLOW_PEOPLE) || stet_boundary_list(e, flow_on_boundary, &asked) != STET_END)
        return;
    flow_lock();
    (void)snprintf(note, sizeof note, "note %d", ++ledger->notes);
    flow_unlock();
    rc = verbs[asked.at](e, &asked.run, "flow", note);
    /* Settled, ended, of another kind: another one was first. */
    if (rc != STET_OK && rc != STET_EBUSY && rc != STET_EUNCERTAIN && rc != STET_ESETTLED &&
        rc != STET_EENDED && rc != STET_ESTATE)
        test_fail(__FILE__, __LINE__, "%s: %s: deciding: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
    if (rc != STET_OK)
        return;
    flow_lock();
    if (ledger->decided[asked.at][0] != '\0')
        ledger->is_contradicted = true;
    memcpy(ledger->decided[asked.at], note, sizeof note);
    flow_unlock();
}

/* Let time pass, real or not. */
static void
flow_pass_ms(stet_engine *e, int64_t ms)
{
    stet__cond  cond;
    stet__mutex lock;

    CHECK_OK(e->p->ops->cond_init(e->p, &cond));
    CHECK_OK(e->p->ops->mutex_init(e->p, &lock));
    stet__lock(e->p, &lock);
    (void)stet__wait(e->p, &cond, &lock, stet__mono_us(e->p) + ms * 1000);
    stet__unlock(e->p, &lock);
    e->p->ops->mutex_destroy(e->p, &lock);
    e->p->ops->cond_destroy(e->p, &cond);
}

static int
flow_on_schedule(void *arg, const stet_schedule_info *info)
{
    *(bool *)arg = info->is_done;
    return STET_OK;
}

/* Everybody ensures it, as at a boot, and waits until it is over. */
static void
flow_drive_schedule(const flow *f, stet_engine *e, flow_ledger *ledger, int64_t until_ms,
                    const char *where)
{
    bool is_done = false;
    bool is_new;
    int  tries = 0, rc;

    if (!flow_is(f, FLOW_SCHEDULE))
        return;
    is_new = stet_schedule_get(e, "planned", flow_on_schedule, &is_done) == STET_ENOTFOUND;
    flow_lock();
    if (is_new && ledger->planned_life != ledger->life) {
        ledger->planned_ms = 0; /* it is said when it is asked for */
        ledger->planned_life = ledger->life;
    }
    flow_unlock();
    do {
        rc = stet_schedule_ensure(e, NULL, "planned", "flow.job", stet_text("{}"),
                                  STET_SCHEDULE(.function = "times", .overlap = STET_OVERLAP_QUEUE,
                                                .missed = STET_MISSED_ALL));
        /* Nothing was written; the next try may come too late for what was said. */
        if (rc == STET_EBUSY && is_new &&
            stet_schedule_get(e, "planned", flow_on_schedule, &is_done) == STET_ENOTFOUND) {
            flow_lock();
            ledger->planned_ms = 0;
            flow_unlock();
        }
    } while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
    while (rc == STET_OK && !is_done) {
        if ((rc = stet_schedule_get(e, "planned", flow_on_schedule, &is_done)) == STET_OK &&
            !is_done)
            flow_pass_ms(e, 20);
        if (stet_engine_now_ms(e) > until_ms)
            test_fail(__FILE__, __LINE__, "%s: %s: its schedule is not over", f->name, where);
    }
    if (rc != STET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s: its schedule: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
}

static int
flow_count_update(void *arg, const stet_fact_info *fact)
{
    *(int *)arg += strcmp(fact->kind, "update") == 0;
    return STET_OK;
}

/* What was answered is recorded, before anybody asks for it again. */
static void
flow_check_updates(const flow *f, stet_engine *e, const flow_ledger *ledger, const stet_run_id *run,
                   const char *where)
{
    int n = 0, answered = ledger->is_updated[0] + ledger->is_updated[1];

    if (stet_run_facts(e, run, false, flow_count_update, &n) == STET_OK && n < answered)
        test_fail(__FILE__, __LINE__, "%s: %s: %d updates were answered, %d are recorded", f->name,
                  where, answered, n);
}

/* One word, with a key: the same answer as often as it is asked for, and for good once it was
 * given. */
static void
flow_update(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *run, int i,
            int64_t until_ms, const char *where)
{
    static const char *const words[] = { "a", "b" }, *const answers[] = { "a ", "a b " };
    stet_bytes reply = { NULL, 0 };
    int        rc;

    do {
        rc = stet_update(e, &reply, run, "word", stet_text(words[i]),
                         STET_UPDATE_OPTIONS(.idempotency_key = words[i], .timeout_ms = 1000));
        if (rc == STET_EBUSY)
            flow_pass_ms(e, 5);
    } while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN || rc == STET_ETIMEOUT) &&
             stet_engine_now_ms(e) < until_ms);
    if (rc != STET_OK || reply.len != strlen(answers[i]) ||
        memcmp(reply.data, answers[i], reply.len) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s: update %s%s: %s: %s: \"%.*s\"", f->name, where,
                  words[i], ledger->is_updated[i] ? ", which was answered before" : "",
                  stet_code_name(rc), rc != STET_OK ? stet_last_error() : "", (int)reply.len,
                  reply.data != NULL ? (const char *)reply.data : "");
    stet_free((void *)(uintptr_t)reply.data);
    flow_lock();
    ledger->is_updated[i] = true;
    flow_unlock();
}

static void
flow_drive_updates(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *run,
                   int64_t until_ms, const char *where)
{
    stet_bytes reply = { NULL, 0 };
    int        tries = 0, rc;

    if (!flow_is(f, FLOW_UPDATES))
        return;
    flow_check_updates(f, e, ledger, run, where);
    for (int i = 0; i < 2; i++)
        flow_update(f, e, ledger, run, i, until_ms, where);
    /* What was answered is recorded: whoever asks sees it. A child process for it would be in the
     * way of crashes. */
    if (e->p != stet__platform_real() &&
        (rc = stet_query(e, &reply, run, "words", stet_text(""), 0)) != STET_EBUSY &&
        (rc != STET_OK || reply.len != 4 || memcmp(reply.data, "a b ", 4) != 0))
        test_fail(__FILE__, __LINE__, "%s: %s: query: %s: %s: \"%.*s\"", f->name, where,
                  stet_code_name(rc), rc != STET_OK ? stet_last_error() : "", (int)reply.len,
                  reply.data != NULL ? (const char *)reply.data : "");
    stet_free((void *)(uintptr_t)reply.data);
    do
        rc = stet_signal(e, run, "go", stet_text(""), STET_SIGNAL_OPTIONS(.idempotency_key = "go"));
    while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
    if (rc != STET_OK && rc != STET_EENDED)
        test_fail(__FILE__, __LINE__, "%s: %s: signal: %s: %s", f->name, where, stet_code_name(rc),
                  stet_last_error());
}

/* One of them says the word, when the run has not begun; the others only look. */
static void
flow_say(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *run,
         const char *where)
{
    bool is_mine;
    int  rc;

    if (!flow_is(f, FLOW_LATE))
        return;
    flow_lock();
    if (ledger->speaker == NULL)
        ledger->speaker = e->p;
    is_mine = ledger->speaker == e->p && !ledger->is_said;
    flow_unlock();
    if (!is_mine)
        return;
    rc = stet_signal(e, run, "word", stet_text("word"),
                     STET_SIGNAL_OPTIONS(.idempotency_key = "word"));
    if (rc != STET_OK && rc != STET_EBUSY && rc != STET_EUNCERTAIN && rc != STET_EENDED)
        test_fail(__FILE__, __LINE__, "%s: %s: saying it: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
    flow_lock();
    ledger->is_said = ledger->is_said || rc == STET_OK || rc == STET_EENDED;
    flow_unlock();
}

/* One of them pauses it in its body, and resumes it at once: that may come when it was given back.
 * */
static void
flow_resume_late(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *run,
                 const char *where)
{
    bool is_mine;
    int  rc;

    if (!flow_is(f, FLOW_RESUME))
        return;
    while (atomic_load(&ledger->n) == 0)
        flow_pass_ms(e, 5); /* until its body is entered, elsewhere if there is another worker */
    for (int i = 0; i < 8 && ledger->speaker == NULL && ledger->entries[0].place == e->p; i++)
        flow_pass_ms(e, 5);
    flow_lock();
    if (ledger->speaker == NULL)
        ledger->speaker = e->p;
    is_mine = ledger->speaker == e->p && !ledger->is_said;
    flow_unlock();
    if (!is_mine)
        return;
    rc = stet_run_pause(e, run, "flow", NULL);
    if (rc == STET_OK || rc == STET_ESETTLED)
        rc = stet_run_resume(e, run, "flow", NULL);
    if (rc != STET_OK && rc != STET_EBUSY && rc != STET_EUNCERTAIN && rc != STET_EENDED &&
        rc != STET_ESTATE)
        test_fail(__FILE__, __LINE__, "%s: %s: resuming: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
    flow_lock();
    ledger->is_said = ledger->is_said || rc == STET_OK || rc == STET_EENDED;
    flow_unlock();
}

/* Retried once, by whoever is first. */
static void
flow_drive_letters(const flow *f, stet_engine *e, const stet_run_id *letter, int64_t until_ms,
                   const char *where)
{
    stet_run_id again;
    int         rc;

    if (!flow_is(f, FLOW_LETTERS))
        return;
    do {
        if ((rc = stet_dlq_retry(e, &again, letter)) == STET_EOPEN)
            (void)stet_wait(e, NULL, letter, 20);
    } while ((rc == STET_EOPEN || rc == STET_EBUSY || rc == STET_EUNCERTAIN) &&
             stet_engine_now_ms(e) < until_ms);
    if (rc != STET_OK && rc != STET_EEXISTS)
        test_fail(__FILE__, __LINE__, "%s: %s: retrying: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
}

int
flow_on_fork(void *arg, const stet_run_info *info)
{
    flow_forks *forks = arg;

    if (info->retry_of == NULL || strcmp(info->retry_of, forks->of) != 0)
        return STET_OK;
    forks->n++;
    forks->wrong += stet_status_is_terminal(info->status) && info->status != STET_STATUS_COMPLETED;
    forks->is_found = forks->is_found || strcmp(info->id, forks->known) == 0;
    return STET_OK;
}

/* Forked when there is no fork. One whose answer was lost is found, or there will be another. */
static void
flow_drive_forks(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *of,
                 int64_t until_ms, const char *where)
{
    flow_forks  forks = { .of = of->text, .known = "" };
    stet_run_id fresh;
    int         rc;

    if (!flow_is(f, FLOW_FORKS))
        return;
    while ((rc = stet_wait(e, NULL, of, 20)) == STET_ETIMEOUT && stet_engine_now_ms(e) < until_ms)
        ;
    do {
        forks.n = 0;
        if ((rc = stet_run_list(e, NULL, flow_on_fork, &forks)) != STET_OK || forks.n > 0)
            break;
        flow_lock();
        ledger->forks_asked++;
        flow_unlock();
        if ((rc = stet_run_fork(e, &fresh, of, "branch", "flow", "to see")) == STET_OK) {
            flow_lock();
            memcpy(ledger->forked, fresh.text, sizeof ledger->forked);
            flow_unlock();
        }
    } while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && stet_engine_now_ms(e) < until_ms);
    if (rc != STET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s: forking: %s: %s", f->name, where, stet_code_name(rc),
                  stet_last_error());
}

static int
flow_on_status(void *arg, const stet_run_info *info)
{
    *(stet_status *)arg = info->status;
    return STET_OK;
}

/* The cause is mended when its rollback has failed, and it is told to go on. */
static void
flow_mend(const flow *f, stet_engine *e, flow_ledger *ledger, const stet_run_id *run,
          const char *where)
{
    stet_status status = STET_STATUS_SUSPENDED;
    int         rc;

    if (!flow_is(f, FLOW_MENDING))
        return;
    rc = stet_run_get(e, run, flow_on_status, &status);
    if (rc != STET_OK || status != STET_STATUS_COMPENSATION_FAILED) {
        flow_pass_ms(e, 5); /* who waits for it is answered */
        return;
    }
    flow_lock();
    ledger->is_mended = true;
    flow_unlock();
    rc = stet_rollback_retry(e, run, "flow", NULL);
    /* Not in that state: another one was first. */
    if (rc != STET_OK && rc != STET_EBUSY && rc != STET_EUNCERTAIN && rc != STET_ESTATE &&
        rc != STET_EENDED)
        test_fail(__FILE__, __LINE__, "%s: %s: mending: %s: %s", f->name, where, stet_code_name(rc),
                  stet_last_error());
}

static int
flow_on_paused(void *arg, const stet_paused *paused)
{
    *(bool *)arg = *(bool *)arg || strcmp(paused->what, "flow.halting") == 0;
    return STET_OK;
}

/* That it is paused was acknowledged, and nobody asked for the end of it. */
static void
flow_check_halted(const flow *f, stet_engine *e, const flow_ledger *ledger, const char *where)
{
    bool is_acknowledged, is_paused = false;
    int  rc;

    flow_lock();
    is_acknowledged = ledger->halted_at != NULL;
    flow_unlock();
    rc = stet_paused_list(e, flow_on_paused, &is_paused);
    flow_lock();
    if (is_acknowledged && rc == STET_OK && !is_paused && ledger->resumes_asked == 0)
        test_fail(__FILE__, __LINE__,
                  "%s: %s: that its handler is paused was acknowledged, and is gone", f->name,
                  where);
    flow_unlock();
}

/* Paused before it is started. */
static void
flow_halt(const flow *f, stet_engine *e, flow_ledger *ledger, const char *where)
{
    int tries = 0, rc;

    if (!flow_is(f, FLOW_HALTED))
        return;
    flow_check_halted(f, e, ledger, where);
    if (ledger->resumes_asked > 0)
        return;
    do
        rc = stet_handler_pause(e, "flow.halting", "flow", NULL);
    while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
    if (rc != STET_OK && rc != STET_ESETTLED)
        test_fail(__FILE__, __LINE__, "%s: %s: pausing: %s: %s", f->name, where, stet_code_name(rc),
                  stet_last_error());
    flow_lock();
    ledger->halted_at = e->p;
    flow_unlock();
    flow_check_halted(f, e, ledger, where);
}

static void
flow_drive_halted(const flow *f, stet_engine *e, flow_ledger *ledger, const char *where)
{
    int tries = 0, rc;

    if (!flow_is(f, FLOW_HALTED))
        return;
    flow_pass_ms(e, 20);
    flow_lock();
    ledger->resumes_asked++;
    flow_unlock();
    do
        rc = stet_handler_resume(e, "flow.halting", "flow", NULL);
    while ((rc == STET_EBUSY || rc == STET_EUNCERTAIN) && ++tries < 100);
    if (rc != STET_OK && rc != STET_ENOTFOUND)
        test_fail(__FILE__, __LINE__, "%s: %s: resuming: %s: %s", f->name, where,
                  stet_code_name(rc), stet_last_error());
}

static int
flow_find_open(void *arg, const stet_run_info *info)
{
    if (stet_status_is_terminal(info->status))
        return STET_OK;
    return stet_run_id_parse(arg, info->id) == STET_OK ? STET_END : STET_OK;
}

static bool
flow_is_in_doubt(flow_ledger *ledger)
{
    bool is_in_doubt = false;

    flow_lock();
    for (size_t i = 0; i < atomic_load(&ledger->n); i++)
        is_in_doubt =
            is_in_doubt || (!ledger->entries[i].is_settled && !ledger->entries[i].is_lost);
    flow_unlock();
    return is_in_doubt;
}

/* Also where only the clock is another one, as after a power cut. */
static bool
flow_has_threads(const stet_engine *e)
{
    return e->p->ops->thread_start == stet__platform_real()->ops->thread_start;
}

void
flow_drive(const flow *f, stet_engine *e, flow_ledger *ledger, int64_t limit_ms, const char *where)
{
    stet_run_id runs[FLOW_STARTS_MAX], open;
    int64_t     until_ms = stet_engine_now_ms(e) + limit_ms;
    int         rc;

    flow_halt(f, e, ledger, where);
    flow_start_all(f, e, ledger, runs, where);
    flow_drive_halted(f, e, ledger, where);
    flow_say(f, e, ledger, &runs[1], where);
    flow_resume_late(f, e, ledger, &runs[0], where);
    flow_drive_schedule(f, e, ledger, until_ms, where);
    flow_drive_updates(f, e, ledger, &runs[0], until_ms, where);
    flow_drive_letters(f, e, &runs[0], until_ms, where);
    flow_drive_forks(f, e, ledger, &runs[0], until_ms, where);
    /* Also those that were sent and nobody waits for. */
    while ((rc = stet_run_list(e, NULL, flow_find_open, &open)) == STET_END) {
        flow_mend(f, e, ledger, &open, where);
        if (stet_wait(e, NULL, &open, 20) == STET_ETIMEOUT) {
            flow_outside(f, e, ledger, where);
            flow_operate(f, e, &open, where);
            flow_decide(f, e, ledger, where);
            flow_say(f, e, ledger, &runs[1], where);
            flow_resume_late(f, e, ledger, &runs[0], where);
        }
        if (stet_engine_now_ms(e) > until_ms) {
            flow_dump(e, ledger);
            test_fail(__FILE__, __LINE__, "%s: %s: not over after %lld ms", f->name, where,
                      (long long)limit_ms);
        }
    }
    /* What is stored can be seen a moment before the ledger hears of it, where threads are real. */
    until_ms = stet_engine_now_ms(e) + FLOW_DOUBT_MS;
    while (rc == STET_OK && flow_has_threads(e) && flow_is_in_doubt(ledger) &&
           stet_engine_now_ms(e) <= until_ms)
        rc = stet_run_list(e, NULL, flow_find_open, &open);
    if (rc != STET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s: listing: %s: %s", f->name, where, stet_code_name(rc),
                  stet_last_error());
}

void
flow_log(void *arg, const stet_log_record *record)
{
    (void)arg;
    if (record->level >= STET_LOG_WARN)
        (void)fprintf(stderr, "    %lld [%s] %s %s\n", (long long)(record->time_ms % 1000000),
                      record->handler ? record->handler : "-", record->run ? record->run : "-",
                      record->message);
}
