/* Clients and operators: fibers of the nodes that use the public API as careful programs do.
 *
 * What they were told is kept outside of their node. A client whose node crashed goes on in the
 * next life of the node with what it had been told, and repeats what it has no answer to. /
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

enum { CLIENT_MANY = 3 }; /* starts at once */

/* May this answer come from a fault? Then nothing is known, and it is asked again later. */
static bool
client_is_passing(int code)
{
    stet_class class_ = stet_code_class(code);

    return class_ == STET_CLASS_RETRY || class_ == STET_CLASS_UNKNOWN ||
           class_ == STET_CLASS_FENCED || code == STET_EPOISONED;
}

static uint64_t
client_draw(fleet *w, uint64_t below)
{
    return fleet_draw(&w->draws, below);
}

/* ---- starting -------------------------------------------------------------------------------- */

static void
client_acked(fleet *w, const fleet_node *node, fleet_task *task, const stet_run_id *run)
{
    fleet_run *known = fleet_run_named(w, run->text);

    fleet_trace(w, node, known, "a start is acknowledged", NULL, task - w->tasks, 0);
    if (known == NULL)
        fleet_fail(w, NULL, "the start of %s was acknowledged and is not in the store", run->text);
    else if (known->order.nonce != task->order.nonce)
        fleet_fail(w, known, "a start was answered with another run");
    /* A key goes with its run: of two runs of one, the older was removed. Its answer may come later
     * than that of the younger. */
    if (task->is_acked && strcmp(task->run.text, run->text) != 0 &&
        !fleet_run_named(w, task->run.text)->is_purged && (known == NULL || !known->is_purged))
        fleet_fail(w, known, "one start was answered with two runs");
    task->is_acked = true;
    task->run = *run;
}

static const char *
client_handler(const fleet_task *task)
{
    if (task->is_unserved)
        return "nobody.run";
    if (task->key < 0)
        return "svc.run";
    return task->order.is_shared ? "obj.peek" : "obj.run";
}

/* What a start is asked with; lives as long as the call. */
typedef struct client_request {
    stet_start_options options;
    char               input[160], idem[32];
    bool               was_unclear;
} client_request;

/* STET_EUNCERTAIN: it must not be asked for again, and is given up. */
static int
client_prepare(fleet_node *node, fleet_task *task, client_request *q)
{
    static const char *const keys[FLEET_KEYS] = { "k0", "k1", "k2", "k3" };
    static const char *const labels[] = { "team=red", "by=client", NULL };
    fleet                   *w = node->w;
    int                      err;

    memset(q, 0, sizeof *q);
    if (!task->has_idem && !task->has_id && task->was_unclear) { /* a repeat may be a second run */
        task->is_given_up = true;
        return STET_EUNCERTAIN;
    }
    q->options.size = sizeof q->options;
    (void)fleet_order_text(q->input, sizeof q->input, &task->order);
    (void)snprintf(q->idem, sizeof q->idem, "task-%zu", (size_t)(task - w->tasks));
    q->options.key = task->key >= 0 ? keys[task->key] : NULL;
    q->options.delay_ms = task->delay_ms;
    q->options.timeout_ms = task->timeout_ms;
    if (task->has_idem)
        q->options.idempotency_key = q->idem;
    else if (task->order.nonce % 2 == 0) { /* what all its generations and retries have, too */
        q->options.labels = labels;
        q->options.priority = 1 + (int32_t)task->order.nonce;
    }
    if (task->has_id && task->run.text[0] == '\0' &&
        (err = stet_run_id_make(node->engine, &task->run)) != STET_OK)
        return err;
    if (task->has_id) {
        q->options.run = &task->run;
        q->options.retention = "3650d"; /* or a repeat might come after it was forgotten */
    }
    q->was_unclear = task->was_unclear;
    task->was_unclear = true; /* until it is answered; this node may crash first */
    fleet_asked(w, task->order.nonce);
    return STET_OK;
}

/* The start of it was answered. */
static int
client_started(fleet_node *node, fleet_task *task, const client_request *q, int err,
               const stet_run_id *run)
{
    fleet *w = node->w;

    if (err == STET_EEXISTS && task->has_id && q->was_unclear) {
        run = &task->run;
        err = STET_OK; /* an earlier try had worked */
    }
    if (stet_code_class(err) == STET_CLASS_RETRY)
        task->was_unclear = q->was_unclear; /* nothing was written */
    if (err == STET_OK)
        client_acked(w, node, task, run);
    else if (!client_is_passing(err))
        fleet_fail(w, NULL, "a start is refused: %s: %s", stet_code_name(err), stet_last_error());
    return err;
}

static int
client_start(fleet_node *node, fleet_task *task)
{
    client_request q;
    stet_run_id    run = task->run;
    int            err;

    if ((err = client_prepare(node, task, &q)) != STET_OK)
        return err;
    err = stet_start(node->engine, &run, client_handler(task), stet_text(q.input), &q.options);
    return client_started(node, task, &q, err, &run);
}

/* Several with one wait: this one and those this client would start next. Each is answered on its
 * own. */
static int
client_start_many(fleet_node *node, fleet_task *task)
{
    fleet             *w = node->w;
    size_t             stride = w->n_nodes * FLEET_CLIENTS, n = 0;
    fleet_task        *tasks[CLIENT_MANY];
    client_request     q[CLIENT_MANY];
    stet_start_request requests[CLIENT_MANY];
    int                err = STET_OK, first = STET_OK;

    for (size_t i = (size_t)(task - w->tasks); i < w->n_tasks && n < CLIENT_MANY; i += stride) {
        fleet_task *t = &w->tasks[i];

        if (t->is_acked || t->is_given_up)
            continue;
        if ((err = client_prepare(node, t, &q[n])) != STET_OK) {
            if (t == task)
                return err;
            continue;
        }
        tasks[n] = t;
        requests[n] = (stet_start_request){ .handler = client_handler(t),
                                            .input = stet_text(q[n].input),
                                            .options = &q[n].options };
        n++;
    }
    err = stet_start_many(node->engine, requests, n);
    for (size_t i = 0; i < n; i++)
        if (first == STET_OK)
            first = requests[i].code;
    if (err != first)
        fleet_fail(w, NULL, "many starts give %s, the first that failed %s", stet_code_name(err),
                   stet_code_name(first));
    for (size_t i = 0; i < n; i++)
        (void)client_started(node, tasks[i], &q[i], requests[i].code, &requests[i].run);
    return requests[0].code;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static uint64_t
client_hash(const stet_result *r, int answer)
{
    uint64_t h = stet__hash64(r->value.data, r->value.len, (uint64_t)r->status);

    return (h * 31 + (uint64_t)-answer) | 1u;
}

static uint64_t
client_hash_failure(const stet_result *r)
{
    uint64_t h =
        stet__hash64(r->error, r->error != NULL ? strlen(r->error) : 0, (uint64_t)-r->code);

    return (h * 31 + (uint64_t)-r->cause) | (uint64_t)1 << 32; /* no stop's answer */
}

/* Answers are final: everybody is told the same, and a completed run's is its result. */
static void
client_answered(fleet *w, const fleet_node *node, const stet_run_id *id, const stet_result *r,
                int answer)
{
    fleet_run *run = fleet_run_named(w, id->text);
    uint64_t   hash = client_hash(r, answer);

    fleet_trace(w, node, run, "an answer is given", NULL, answer, (int64_t)r->status);
    if (run == NULL) {
        fleet_fail(w, NULL, "an answer for a run nobody started");
        return;
    }
    if (answer == STET_OK && (run->end != STET__FACT_COMPLETED || r->value.len != run->result_len ||
                              memcmp(r->value.data, run->result, r->value.len) != 0))
        fleet_fail(w, run, "a waiter is given a result that is not recorded");
    if (answer == STET_ERUN && run->end != STET__FACT_FAILED && !run->is_broken)
        fleet_fail(w, run, "a waiter is told of a failure that is not recorded");
    if ((answer == STET_ECANCELLED || answer == STET_EEXPIRED) && !run->is_stopped &&
        run->end != STET__FACT_CANCELLED && run->end != STET__FACT_EXPIRED)
        fleet_fail(w, run, "a waiter is told of a stop that is not recorded");
    if (answer == STET_OK || answer == STET_ERUN)
        fleet_answered(w, run);
    run->is_told = run->is_told || answer == STET_OK;
    if (answer == STET_ERUN)
        fleet_failed(run, r);
    /* A run that was stopped has answered; its row may say cancelling first and cancelled later. */
    if (answer == STET_ERUN)
        hash = client_hash_failure(r);
    else if (answer != STET_OK)
        hash = (uint64_t)-answer;
    if (run->answer != 0 && run->answer != hash)
        fleet_fail(w, run, "an answer changed: %s now", stet_code_name(answer));
    run->answer = hash;
}

static void
client_wait(fleet_node *node, const stet_run_id *which, int64_t timeout_ms)
{
    stet_run_id copy = *which, *run = &copy; /* a task may get another run while we wait */
    stet_result result = { 0 };
    int         err = stet_wait(node->engine, &result, run, timeout_ms);

    if (err == STET_OK || err == STET_ERUN || err == STET_ECANCELLED || err == STET_EEXPIRED)
        client_answered(node->w, node, run, &result, err);
    else if (err == STET_ENOTFOUND && fleet_run_named(node->w, run->text)->is_purged)
        fleet_trace(node->w, node, NULL, "waits for a run that was removed", NULL, 0, 0);
    else if (err != STET_ETIMEOUT && err != STET_ECORRUPT && !client_is_passing(err))
        fleet_fail(node->w, fleet_run_named(node->w, run->text), "waiting gives %s: %s",
                   stet_code_name(err), stet_last_error());
    stet_result_free(&result);
}

/* ---- starting and waiting -------------------------------------------------------------------- */

/* The wait may fail when the run is there: only an end or a timeout says that it was started. */
static int
client_invoke(fleet_node *node, fleet_task *task)
{
    fleet         *w = node->w;
    client_request q;
    stet_run_id    run = { { 0 } };
    stet_result    result = { 0 };
    fleet_run     *known;
    int            err;

    if ((err = client_prepare(node, task, &q)) != STET_OK)
        return err;
    err = stet_invoke(node->engine, &result, &run, client_handler(task), stet_text(q.input),
                      &q.options, 1 + (int64_t)client_draw(w, 20000));
    if (err == STET_OK || err == STET_ERUN || err == STET_ECANCELLED || err == STET_EEXPIRED) {
        client_acked(w, node, task, &run);
        client_answered(w, node, &run, &result, err);
    } else if (err == STET_ETIMEOUT || (err == STET_EEXISTS && task->has_id && q.was_unclear)) {
        client_acked(w, node, task, err == STET_ETIMEOUT ? &run : &task->run);
    } else if ((known = fleet_run_named(w, run.text)) != NULL &&
               ((err == STET_ENOTFOUND && known->is_purged) ||
                (err == STET_ECORRUPT && known->is_damaged))) {
        client_acked(w, node, task, &run); /* it is there, or was; only its end cannot be told */
    } else if (!client_is_passing(err))
        fleet_fail(w, NULL, "invoking gives %s: %s", stet_code_name(err), stet_last_error());
    stet_result_free(&result);
    return task->is_acked ? STET_OK : err;
}

static int
client_begin(fleet_node *node, fleet_task *task)
{
    node->w->stats.ways[task->way]++;
    switch (task->way) {
    case FLEET_WAY_MANY: return client_start_many(node, task);
    case FLEET_WAY_INVOKE: return client_invoke(node, task);
    default: return client_start(node, task);
    }
}

/* ---- a client -------------------------------------------------------------------------------- */

static void
client_task(fleet_node *node, fleet_task *task)
{
    fleet *w = node->w;

    if (stet__sim_now_us(w->sim) < task->at_us)
        fleet_nap(node->p, task->at_us - stet__sim_now_us(w->sim));
    while (!node->is_leaving && !task->is_acked && !task->is_given_up &&
           client_begin(node, task) != STET_OK)
        fleet_nap(node->p, 1000 * (int64_t)(1 + client_draw(w, 400)));
    if (node->is_leaving || !task->is_acked)
        return; /* in the node's next life, or never */
    if (task->cancels)
        (void)stet_cancel(node->engine, &task->run, "client", "changed its mind");
    if (task->waits)
        client_wait(node, &task->run, 1 + (int64_t)client_draw(w, 20000));
    task->is_done = true;
}

void
fleet_client(void *arg)
{
    fleet_seat *seat = arg;
    fleet      *w = seat->node->w;
    size_t      stride = w->n_nodes * FLEET_CLIENTS;

    for (size_t i = seat->node->index * FLEET_CLIENTS + seat->index; i < w->n_tasks; i += stride)
        if (!w->tasks[i].is_done && !seat->node->is_leaving)
            client_task(seat->node, &w->tasks[i]);
    seat->node->clients--;
}

/* ---- an operator ----------------------------------------------------------------------------- */

static fleet_run *
operator_pick(fleet *w)
{
    uint64_t   skip = w->n_runs > 0 ? client_draw(w, w->n_runs) : 0;
    fleet_run *run = w->first;

    while (run != NULL && skip-- > 0)
        run = run->next;
    return run;
}

void
fleet_operated(fleet *w, const fleet_run *run, const char *call, int err, bool is_expected)
{
    if (err == STET_ENOTFOUND && run->is_purged)
        return;
    if (err != STET_OK && !is_expected && !client_is_passing(err) && !run->is_damaged)
        fleet_fail(w, run, "%s gives %s: %s", call, stet_code_name(err), stet_last_error());
}

static void
operator_settle_at(fleet_node *node, size_t at)
{
    fleet           *w = node->w;
    fleet_awakeable *a;
    unsigned         nth;
    char             id[STET_ID_TEXT_MAX], value[16];
    bool             is_reject;
    int              err;

    a = &w->awakeables[at];
    nth = ++a->tried;
    is_reject = a->run->program.ops[a->op].is_reject;
    memcpy(id, a->id, sizeof id);
    (void)snprintf(value, sizeof value, "v%u", nth);
    err = is_reject ? stet_reject(node->engine, id, value)
                    : stet_resolve(node->engine, id, stet_text(value));
    a = &w->awakeables[at]; /* the table may have grown */
    if (err == STET_OK && a->acked != 0)
        fleet_fail(w, a->run, "awakeable of operation %zu is settled twice", a->op);
    if (err == STET_OK)
        a->acked = nth;
    fleet_operated(w, a->run, "settling", err,
                   err == STET_ESETTLED || err == STET_EENDED || err == STET_ECORRUPT ||
                       (err == STET_ENOTFOUND && a->run->is_retry)); /* with whom it is from */
}

static void
operator_settle(fleet_node *node)
{
    if (node->w->n_awakeables > 0)
        operator_settle_at(node, client_draw(node->w, node->w->n_awakeables));
}

void
fleet_settle_first(fleet_node *node)
{
    fleet *w = node->w;
    size_t at = 0;

    while (at < w->n_awakeables &&
           (w->awakeables[at].acked != 0 || w->awakeables[at].run->end != 0))
        at++;
    if (at < w->n_awakeables)
        operator_settle_at(node, at);
}

void
fleet_signal(fleet_node *node, const fleet_run *run, int name, bool has_key)
{
    static const char *const names[FLEET_SIGNAL_NAMES] = { "g0", "g1", "g2" };
    fleet                   *w = node->w;
    uint32_t                 number = ++w->signals;
    stet_signal_options      options = { .size = sizeof options };
    stet_run_id              id;
    char                     text[16];
    int                      err;

    memcpy(id.text, run->text, sizeof id.text);
    (void)snprintf(text, sizeof text, "%u", number);
    options.idempotency_key = has_key ? text : NULL;
    for (int i = 0; i < (has_key ? 2 : 1); i++) {
        err = stet_signal(node->engine, &id, names[name], stet_text(text), &options);
        fleet_operated(w, run, "signal", err, err == STET_EENDED);
        if (err == STET_OK && run->n_signals[name] < FLEET_SIGNALS_MAX &&
            !fleet_is_signalled(run, name, number))
            fleet_fail(w, run, "signal %u was accepted, and is not in its inbox", number);
    }
}

void
fleet_emit(fleet_node *node)
{
    fleet   *w = node->w;
    char     text[16];
    uint32_t number = ++w->emitted;
    size_t   resumed = 0;
    int      err;

    (void)snprintf(text, sizeof text, "%u", number);
    w->emits[number % FLEET_EVENTS] = w->stats.commits + 1;
    err = stet_emit(node->engine, &resumed, "news", stet_text(text));
    if (err != STET_OK && !client_is_passing(err))
        fleet_fail(w, NULL, "emit gives %s: %s", stet_code_name(err), stet_last_error());
    if (err == STET_OK && w->emits[number % FLEET_EVENTS] != 0)
        fleet_fail(w, NULL, "event %u was accepted, and is not over", number);
    if (err == STET_OK && resumed != fleet_told_of(w, number))
        fleet_fail(w, NULL, "event %u resumed %zu runs, and %zu were told", number, resumed,
                   fleet_told_of(w, number));
}

static int
operator_on_run(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(size_t *)arg;
    return 0;
}

static int
operator_on_fact(void *arg, const stet_fact_info *fact)
{
    (void)fact;
    ++*(size_t *)arg;
    return 0;
}

static void
operator_on_verdict(void *arg, const stet_verdict *verdict)
{
    *(const char **)arg = verdict->kind != NULL ? "said" : NULL;
}

/* A repair of a fleet at work finds nothing but what was damaged, and workers that died while all
 * the others were paused; and, by a clock that went back, runs that were due at a time that now
 * lies ahead. */
static int
operator_on_finding(void *arg, const stet_finding *finding)
{
    fleet           *w = arg;
    const fleet_run *run = finding->run != NULL ? fleet_run_named(w, finding->run) : NULL;
    bool is_late = w->peak_ms != 0 && strstr(finding->text, "longer than its facts") != NULL;

    if ((run == NULL || !run->is_damaged) && strcmp(finding->rule, "owner") != 0 && !is_late)
        fleet_fail(w, run, "repair at work: %s: %s", finding->rule, finding->text);
    return STET_OK;
}

bool
fleet_knows_writes(const fleet *w)
{
    if (w->of != NULL)
        w = w->of;
    return w->peak_ms == 0 || w->plan.retention_ms > FLEET_FAR_MS;
}

static void
operator_look(fleet_node *node, const fleet_run *run, const stet_run_id *id)
{
    fleet      *w = node->w;
    size_t      n = 0;
    const char *said = NULL;
    int         err;

    switch (client_draw(w, 5)) {
    case 0:
        err = stet_run_list(node->engine, STET_FILTER(.limit = 1000), operator_on_run, &n);
        fleet_operated(w, run, "listing", err, err == STET_ECORRUPT);
        break;
    case 1:
        err = stet_run_facts(node->engine, id, true, operator_on_fact, &n);
        fleet_operated(w, run, "reading facts", err, err == STET_ECORRUPT);
        break;
    case 2:
        err = stet_run_get(node->engine, id, operator_on_run, &n);
        fleet_operated(w, run, "show", err, err == STET_ECORRUPT);
        break;
    case 3:
        if (fleet_knows_writes(w)) {
            err = stet_repair(node->engine, &n, operator_on_finding, w);
            fleet_operated(w, run, "repair", err, true);
        }
        break;
    default:
        err = stet_why(node->engine, id, operator_on_verdict, (void *)&said);
        fleet_operated(w, run, "why", err, err == STET_ECORRUPT);
        if (err == STET_OK && said == NULL)
            fleet_fail(w, run, "why says nothing");
        break;
    }
}

/* One that has not ended, if there are some. */
static fleet_run *
operator_pick_open(fleet *w)
{
    fleet_run *run = operator_pick(w);

    for (int i = 0; i < 6 && run != NULL && run->end != 0; i++)
        run = operator_pick(w);
    return run;
}

/* A step of its program, as "s3", "h3" or "s3-1"; is_whole: one that is an operation of its own. */
static void
operator_step(fleet *w, const fleet_run *run, bool is_whole, char step[32])
{
    size_t          op = (size_t)client_draw(w, run->program.n);
    const fleet_op *o = &run->program.ops[op];

    if (o->kind == FLEET_OP_FUTURES && !is_whole)
        (void)snprintf(step, 32, "s%zu-%u", op, (unsigned)client_draw(w, o->parts));
    else
        (void)snprintf(step, 32, "%c%zu",
                       o->kind == FLEET_OP_APPROVE || o->kind == FLEET_OP_PAUSE ? 'b'
                       : o->kind == FLEET_OP_AWAKE && op % 2 == 0               ? 'h'
                                                                                : 's',
                       op);
}

/* One that is recorded, if there is one. */
static void
operator_recorded(fleet *w, const fleet_run *run, char step[32])
{
    size_t n = 0, at;

    operator_step(w, run, false, step);
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        n += s->is_recorded && s->code == 0 && s->step[0] != 'r';
    at = n > 0 ? client_draw(w, n) : 0;
    for (const fleet_step *s = run->steps; n > 0 && s != NULL; s = s->next)
        if (s->is_recorded && s->code == 0 && s->step[0] != 'r' && at-- == 0)
            (void)snprintf(step, 32, "%s", s->step);
}

/* One whose body runs just now, beside its handler if there is such a one. */
static fleet_run *
operator_running(fleet *w, char step[32])
{
    fleet_run *found = NULL;

    for (fleet_run *run = w->first; run != NULL; run = run->next)
        for (const fleet_entry *e = run->end == 0 ? run->entries : NULL; e != NULL; e = e->next)
            if (e->is_inside && e->step[0] == 's' &&
                (found == NULL || strchr(e->step, '-') != NULL)) {
                (void)snprintf(step, 32, "%s", e->step);
                found = run;
            }
    return found;
}

/* What was given where a step had failed takes another way, and that is not judged here. */
static bool
operator_has_failed(const fleet_run *run, const char *step)
{
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        if (s->code != 0 && strcmp(s->step, step) == 0)
            return true;
    return false;
}

/* What it wrote before the step it reads as it wrote it then, and what it wrote behind it stays all the same:
 * who goes back to between the two gets what is not in the store. A step beside the handler may be recorded behind any. */
static bool
operator_is_behind_state(const fleet_run *run, const char *step)
{
    size_t op = strtoul(step + 1, NULL, 10);

    for (size_t i = 0; i <= op; i++)
        if (run->program.ops[i].kind == FLEET_OP_DEPOSIT ||
            run->program.ops[i].kind == FLEET_OP_SCRIBBLE ||
            run->program.ops[i].kind == FLEET_OP_MOTTO)
            return true;
    return run->is_skipped || run->is_retry || strchr(step, '-') != NULL;
}

/* Of that step; a rewind without one goes back to the beginning. */
static void
operator_rewrite_step(fleet_node *node, fleet_run *run, stet__fact_kind kind, const char *step)
{
    fleet      *w = node->w;
    size_t      deed = fleet_deed(w, run, kind, step);
    char        why[24], value[32];
    stet_run_id id;
    int         err;

    memcpy(id.text, run->text, sizeof id.text);
    (void)snprintf(why, sizeof why, "%zu", deed);
    (void)snprintf(value, sizeof value, FLEET_GIVEN "%zu", deed);
    if (kind == STET__FACT_SKIP)
        err = stet_run_skip(node->engine, &id, step, stet_text(value), "operator", why);
    else if (kind == STET__FACT_EDIT)
        err = stet_run_edit(node->engine, &id, step, stet_text(value), "operator", why);
    else
        err = stet_run_rewind(node->engine, &id, step[0] != '\0' ? step : NULL, "operator", why);
    fleet_operated(w, run, stet__fact_kind_name(kind), err,
                   err == STET_EENDED || err == STET_ESTATE || err == STET_ECORRUPT ||
                       err == STET_ENOTFOUND || (err == STET_EKIND && kind == STET__FACT_EDIT) ||
                       ((err == STET_ESETTLED || (err == STET_ENAME && step[0] == 'r')) &&
                        kind == STET__FACT_SKIP));
    fleet_deed_answered(w, deed, err);
}

void
fleet_rewind(fleet_node *node, fleet_run *run, const char *step)
{
    bool is_behind = step[0] != '\0' && run->is_object && operator_is_behind_state(run, step);

    operator_rewrite_step(node, run, STET__FACT_REWIND, is_behind ? "" : step);
}

static void
operator_rewrite(fleet_node *node, stet__fact_kind kind)
{
    fleet     *w = node->w;
    fleet_run *run = operator_pick_open(w), *running;
    char       step[48], undo[48];

    if (kind == STET__FACT_SKIP && client_draw(w, 2) == 0 &&
        (running = operator_running(w, step)) != NULL)
        run = running;
    else if (kind == STET__FACT_EDIT)
        operator_recorded(w, run, step);
    else
        operator_step(w, run, kind == STET__FACT_REWIND && run->is_object, step);
    if (kind == STET__FACT_EDIT && operator_has_failed(run, step))
        return;
    if (kind == STET__FACT_REWIND && run->is_object && operator_is_behind_state(run, step))
        step[0] = '\0';
    if (kind == STET__FACT_REWIND && client_draw(w, 8) == 0)
        step[0] = '\0';
    if (kind == STET__FACT_SKIP && client_draw(w, 6) == 0) {
        (void)snprintf(undo, sizeof undo, "rollback:%.30s#1", step);
        (void)snprintf(step, sizeof step, "%s", undo);
    } else if (kind == STET__FACT_SKIP)
        (void)snprintf(step + strlen(step), sizeof step - strlen(step), "#1");
    operator_rewrite_step(node, run, kind, step);
}

bool
fleet_fork(fleet_node *node, fleet_run *run, const char *step, stet_run_id *fresh)
{
    fleet      *w = node->w;
    size_t      deed = fleet_deed(w, run, STET__FACT_STARTED, step);
    stet_run_id id;
    char        why[24];
    int         err;

    memcpy(id.text, run->text, sizeof id.text);
    (void)snprintf(why, sizeof why, "%zu", deed);
    fleet_asked(w, fleet_nonce_of_retry(id.text));
    err = stet_run_fork(node->engine, fresh, &id, step[0] != '\0' ? step : NULL, "operator", why);
    fleet_operated(w, run, "fork", err, err == STET_ENOTFOUND || err == STET_ECORRUPT);
    fleet_deed_answered(w, deed, err);
    if (err == STET_OK &&
        (fleet_run_named(w, fresh->text) == NULL || fleet_run_named(w, fresh->text)->fork != deed))
        fleet_fail(w, run, "a fork was answered with another run");
    return err == STET_OK;
}

static void
operator_fork(fleet_node *node, fleet_run *run)
{
    stet_run_id fresh;
    char        step[32] = "";

    if (client_draw(node->w, 4) != 0)
        operator_recorded(node->w, run, step);
    (void)fleet_fork(node, run, step, &fresh);
}

bool
fleet_is_asked(const fleet *w, const fleet_run *run)
{
    return run->end == 0 &&
           stet__mem_value(w->db, STET__SPACE_BOUNDARY, stet__id_bytes(&run->id)) != NULL;
}

fleet_run *
fleet_first_asked(const fleet *w)
{
    fleet_run *run = w->first;

    while (run != NULL && !fleet_is_asked(w, run))
        run = run->next;
    return run;
}

/* … and to resume it? */
static bool
operator_is_pause(const fleet *w, const fleet_run *run)
{
    const mem_value *v = stet__mem_value(w->db, STET__SPACE_BOUNDARY, stet__id_bytes(&run->id));
    stet_bytes       in = v != NULL ? v->value.data : (stet_bytes){ NULL, 0 };
    stet__fact       mark;

    return v != NULL && stet__fact_decode(&mark, &in) == STET_OK &&
           (mark.flags & STET__FACT_APPROVAL) == 0;
}

/* Most look at the one that waits for the longest time, at the same time as others do. */
static void
operator_decide(fleet_node *node)
{
    fleet     *w = node->w;
    fleet_run *run = operator_pick_open(w), *first = w->first;

    if (client_draw(w, 4) != 0) {
        fleet_nap(node->p, FLEET_ROUND_US - stet__sim_now_us(w->sim) % FLEET_ROUND_US);
        first = fleet_first_asked(w);
    }
    run = first != NULL ? first : run;
    if (node->is_leaving)
        return;
    if (operator_is_pause(w, run) != (client_draw(w, 6) == 0))
        fleet_resume(node, run);
    else
        fleet_decide(node, run, client_draw(w, 3) != 0);
}

/* Most take the oldest one that nobody has dealt with, at the same time as others do. */
static void
operator_letter(fleet_node *node, bool is_retry)
{
    fleet      *w = node->w;
    fleet_run  *run = operator_pick(w), *first = w->first;
    stet_run_id id, fresh;
    int         err;

    if (client_draw(w, 4) != 0) {
        fleet_nap(node->p, FLEET_ROUND_US - stet__sim_now_us(w->sim) % FLEET_ROUND_US);
        while (first != NULL && (first->end == 0 || first->end == STET__FACT_COMPLETED ||
                                 first->is_retried || first->is_discarded || first->is_purged))
            first = first->next;
        run = first != NULL ? first : run;
    }
    if (node->is_leaving)
        return;
    memcpy(id.text, run->text, sizeof id.text);
    if (is_retry) {
        fleet_asked(w, fleet_nonce_of_retry(id.text));
        err = stet_dlq_retry(node->engine, &fresh, &id);
    } else
        err = stet_dlq_discard(node->engine, &id);
    fleet_operated(w, run, is_retry ? "dlq retry" : "dlq discard", err,
                   err == STET_EOPEN || err == STET_EENDED || err == STET_EEXISTS);
}

static void
operator_act(fleet_node *node)
{
    fleet      *w = node->w;
    fleet_run  *run = operator_pick(w);
    stet_run_id id;
    int         signal, err;

    if (run == NULL)
        return;
    memcpy(id.text, run->text, sizeof id.text);
    switch (client_draw(w, 41)) {
    case 38: fleet_hold_pause(node); break;
    case 39:
    case 40: fleet_hold_resume(node); break;
    case 33:
    case 34:
    case 35: fleet_ask_update(node, operator_pick_open(w)); break;
    case 36:
    case 37: fleet_ask_query(node, operator_pick_open(w)); break;
    case 30:
    case 31:
    case 32: operator_decide(node); break;
    case 23:
    case 24: operator_rewrite(node, STET__FACT_SKIP); break;
    case 25:
    case 26: operator_rewrite(node, STET__FACT_EDIT); break;
    case 27:
    case 28: operator_rewrite(node, STET__FACT_REWIND); break;
    case 29: operator_fork(node, run); break;
    case 18:
    case 19:
        err = stet_run_pause(node->engine, &id, "operator", "a whim");
        fleet_operated(w, run, "pause", err,
                       err == STET_EENDED || err == STET_ESTATE || err == STET_ESETTLED ||
                           err == STET_ECORRUPT);
        break;
    case 20:
    case 21: fleet_resume(node, run); break;
    case 22:
        if (client_draw(w, 4) != 0)
            break;
        run->is_forced = true;
        err = stet_run_fail(node->engine, &id, "operator", FLEET_FAILED);
        fleet_operated(w, run, "fail", err, err == STET_EENDED || err == STET_ECORRUPT);
        break;
    case 15:
    case 16:
    case 17: fleet_emit(node); break;
    case 0:
        err = stet_cancel(node->engine, &id, "operator", "a whim");
        fleet_operated(w, run, "cancel", err,
                       err == STET_EENDED || (err == STET_ESTATE && run->is_broken));
        break;
    case 1:
    case 2: operator_letter(node, client_draw(w, 2) == 0); break;
    case 3:
        err = stet_unstick(node->engine, &id, "operator");
        fleet_operated(w, run, "unstick", err, err == STET_ESTATE || err == STET_EENDED);
        break;
    case 12:
    case 13:
    case 14:
        if (client_draw(w, 2) == 0) /* one that is about to begin */
            while (run->next != NULL)
                run = run->next;
        signal = (int)client_draw(w, FLEET_SIGNALS);
        if (fleet_signal_parts(&run->program, run->program.n, 0) > 0 &&
            fleet_draw(&w->calls, 2) == 0)
            signal = FLEET_SIGNAL_PART;
        fleet_signal(node, run, signal, client_draw(w, 2) == 0);
        break;
    case 4:
    case 5: client_wait(node, &id, 1 + (int64_t)client_draw(w, 5000)); break;
    case 6:
    case 7: operator_look(node, run, &id); break;
    case 8: { /* a second start of what was started */
        fleet_task *task = &w->tasks[client_draw(w, w->n_tasks)];

        /* Or of what its client is about to start. */
        if (task->has_idem && (task->is_acked || stet__sim_now_us(w->sim) >= task->at_us))
            (void)client_start(node, task);
        break;
    }
    default: operator_settle(node); break;
    }
}

void
fleet_operator(void *arg)
{
    fleet_seat *seat = arg;
    fleet      *w = seat->node->w;

    fleet_schedules_ensure(seat->node);
    while (stet__sim_now_us(w->sim) < w->plan.last_us && !seat->node->is_leaving) {
        fleet_nap(seat->node->p, 1000 * (int64_t)(50 + client_draw(w, 1500)));
        if (seat->node->is_leaving)
            break;
        if (w->n_schedules > 0 && fleet_draw(&w->planner, 8) == 0)
            fleet_schedule_edit(seat->node);
        else if (fleet_whim_strikes(w, 2))
            fleet_whim(seat->node);
        else
            operator_act(seat->node);
    }
    seat->node->clients--;
}
