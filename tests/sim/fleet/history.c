/* What the outside saw of the objects, and whether one order explains it.
 *
 * An operation on a key is a run of an object. It is asked for when a client, an operator or the
 * code of another run first asks the engine for it, and answered when one of them is first told
 * that it completed or failed. What it did to the key's state is what its result says: the client
 * reads there what each of its operations read. A run that did not complete, or of which nobody was
 * told, may have done any beginning of its program, but not less than its own code was sure of when
 * it entered a body (ledger.c); a failure may say in which operation it was. That a stop was told is no answer: the run may
 * still clean up. A retried run begins anywhere: what its forerunner did is not done again.
 *
 * Nothing here asks the store or the model; times are those of the simulator, not of any node.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

/* Far more than histories of this size need. */
#define HISTORY_STATES_MAX 50000

/* ---- recording ------------------------------------------------------------------------------- */

uint64_t
fleet_nonce_of_retry(const char *run)
{
    return stet__hash64(run, strlen(run), 0x7265747279);
}

void
fleet_asked(fleet *w, uint64_t nonce)
{
    int64_t *asked_us;

    if (w->of != NULL || stet__map_find(&w->asked, &nonce, sizeof nonce) != NULL)
        return;
    if ((asked_us = stet__arena_get0(&w->arena, sizeof *asked_us)) == NULL)
        abort();
    *asked_us = stet__sim_now_us(w->sim);
    if (stet__map_put(&w->asked, &nonce, sizeof nonce, asked_us) != STET_OK)
        abort();
}

void
fleet_entered(fleet *w, const char *run)
{
    static char yes;
    stet_id     id;

    if (w->of != NULL || stet__id_parse(&id, STET__ID_RUN, run) != STET_OK ||
        stet__map_find(&w->entered, id.bytes, sizeof id.bytes) != NULL)
        return;
    if (stet__map_put(&w->entered, id.bytes, sizeof id.bytes, &yes) != STET_OK)
        abort();
}

void
fleet_answered(fleet *w, fleet_run *run)
{
    if (run != NULL && run->answered_us == 0)
        run->answered_us = stet__sim_now_us(w->sim);
}

void
fleet_answered_call(fleet *w, uint64_t nonce)
{
    if (w->of == NULL)
        fleet_answered(w, stet__map_find(&w->nonces, &nonce, sizeof nonce));
}

void
fleet_failed(fleet_run *run, const stet_result *result)
{
    size_t op;
    char   end;

    if (result->code == STET_EPERMANENT && result->error != NULL &&
        strcmp(result->error, "doomed") == 0) {
        run->is_exact = true;
        run->failed_in = run->program.n;
    } else if (result->code == STET_ESTEP && result->origin != NULL &&
               sscanf(result->origin, "step s%zu%c", &op, &end) == 2 && end == '#') {
        run->is_exact = true;
        run->failed_in = op;
    }
}

/* ---- what a run does to its key -------------------------------------------------------------- */

typedef struct history_walk {
    const fleet_run    *run;
    fleet_linear_state *out;
    size_t              n;
    bool               *is_cut;
} history_walk;

/* As the handler notes what it reads. */
static uint64_t
history_hash(const char *text)
{
    return stet__hash64(text, strlen(text), 3) | 1u;
}

static uint64_t
history_account(const fleet_linear_state *s)
{
    return s->writes << 32 | s->sum;
}

/* False: it cannot have seen that here. */
static bool
history_op(const fleet_op *op, fleet_linear_state *s, const fleet_seen *seen, bool is_written)
{
    char text[32];

    if (op->kind == FLEET_OP_DEPOSIT) {
        if (seen != NULL && seen->value != history_account(s))
            return false;
        if (is_written) {
            s->writes++;
            s->sum += op->seed % 100 + 1;
        }
    }
    if (op->kind == FLEET_OP_SCRIBBLE) {
        if (op->seed % 3 == 0)
            return seen == NULL || seen->value == s->scribble;
        (void)snprintf(text, sizeof text, "%" PRIx64, op->seed);
        s->scribble = op->seed % 3 == 1 ? 0 : history_hash(text);
    }
    return true;
}

static void
history_out(history_walk *h, const fleet_linear_state *s)
{
    for (size_t i = 0; i < h->n; i++)
        if (memcmp(&h->out[i], s, sizeof *s) == 0)
            return;
    if (h->n == FLEET_LINEAR_NEXT_MAX)
        *h->is_cut = true;
    else
        h->out[h->n++] = *s;
}

/* A result tells all of it. */
static void
history_known(history_walk *h, const fleet_linear_state *from, size_t first)
{
    const fleet_seen  *seen = (const fleet_seen *)(const void *)h->run->result;
    fleet_linear_state s = *from;

    for (size_t i = first; i < h->run->program.n; i++)
        if (!history_op(&h->run->program.ops[i], &s, &seen[i], seen[i].code == STET_OK))
            return;
    history_out(h, &s);
}

static bool
history_is_stop(int code)
{
    return code == STET_ECANCELLED || code == STET_EEXPIRED;
}

/* What the code of a run that did not complete knows: before a body began, all before it stood. */
static const fleet_seen *
history_seen(const fleet_run *run, size_t op)
{
    return run->is_fixed[op] ? &run->seen[op] : NULL;
}

/* Of a deposit with a step: does the step fail for good, can it? */
static bool
history_fails(const fleet_op *op)
{
    return op->ms % 4 == 0 &&
           (op->body[0].is_permanent ||
            (op->body[0].attempts > 0 && op->body[0].fails >= op->body[0].attempts));
}

static bool
history_may_fail(const fleet *w, const fleet_op *op)
{
    return op->ms % 4 == 0 && op->body[0].attempts > 0 &&
           (op->body[0].is_late || w->plan.one_in[FLEET_NO_MEMORY] != 0);
}

/* It ended somewhere. */
static void
history_unknown(history_walk *h, const fleet_linear_state *from, size_t at)
{
    fleet_linear_state s = *from;
    const fleet_op    *op;
    bool               is_written;

    for (; at < (h->run->is_exact ? h->run->failed_in : h->run->program.n); at++) {
        const fleet_seen *seen = history_seen(h->run, at);

        op = &h->run->program.ops[at];
        if (op->kind != FLEET_OP_DEPOSIT && op->kind != FLEET_OP_SCRIBBLE)
            continue;
        is_written = seen != NULL ? seen->code == STET_OK : !history_fails(op);
        if (seen == NULL && !h->run->is_exact)
            history_out(h, &s);
        if (seen == NULL && op->kind == FLEET_OP_DEPOSIT && history_may_fail(fleet_here, op))
            history_unknown(h, &s, at + 1);
        if (seen != NULL && history_is_stop(seen->code))
            break; /* it did nothing more to its key */
        if (!history_op(op, &s, seen, is_written))
            return;
    }
    history_out(h, &s);
}

static size_t
history_step(const void *what, const fleet_linear_state *from, fleet_linear_state *next,
             bool *is_cut)
{
    const fleet_run *run = what;
    history_walk     h = { .run = run, .out = next, .is_cut = is_cut };
    size_t           firsts = run->is_retry ? run->program.n + 1 : 1;

    for (size_t first = 0; first < firsts; first++)
        if (run->is_told)
            history_known(&h, from, first);
        else
            history_unknown(&h, from, first);
    return h.n;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Everybody who asked is told how it ended, as far as anybody knows. */
static void
history_tell(fleet *w, stet_engine *e, fleet_run *run)
{
    stet_result result = { 0 };
    stet_run_id id;
    int         err;

    memcpy(id.text, run->text, sizeof id.text);
    err = stet_result_get(e, &result, &id);
    if (err == STET_OK && (result.value.len != run->result_len ||
                           memcmp(result.value.data, run->result, run->result_len) != 0))
        fleet_fail(w, run, "its result is not what was recorded");
    run->is_told = run->is_told || err == STET_OK;
    if (err == STET_OK || err == STET_ERUN)
        fleet_answered(w, run);
    if (err == STET_ERUN)
        fleet_failed(run, &result);
    stet_result_free(&result);
}

static void
history_read(fleet *w, stet_engine *e, int key, const char *name, char text[64])
{
    stet_bytes value = { NULL, 0 };
    char       which[4];
    int        err;

    (void)snprintf(which, sizeof which, "k%d", key);
    text[0] = '\0';
    err = stet_state_read(e, &value, "obj", which, name);
    if (err == STET_OK && value.len < 64) {
        memcpy(text, value.data, value.len);
        text[value.len] = '\0';
    } else if (err != STET_ENOTFOUND)
        fleet_fail(w, NULL, "key %d cannot be read: %s", key, stet_last_error());
    stet_free((void *)(uintptr_t)value.data);
}

/* The last operation of all: somebody reads the state. */
void
fleet_history_end(fleet *w, stet_engine *e)
{
    for (fleet_run *run = w->first; run != NULL; run = run->next)
        if (run->key >= 0 && !run->is_purged && !run->is_damaged)
            history_tell(w, e, run);
    for (int key = 0; key < FLEET_KEYS; key++) {
        fleet_linear_state *last = &w->last_read[key];
        char                account[64], scribble[64];

        history_read(w, e, key, "account", account);
        history_read(w, e, key, "scribble", scribble);
        (void)sscanf(account, "%" SCNu64 " %" SCNu64, &last->writes, &last->sum);
        last->scribble = scribble[0] != '\0' ? history_hash(scribble) : 0;
    }
}

/* ---- an order -------------------------------------------------------------------------------- */

static size_t
history_any(void *arg, const void *what, const fleet_linear_state *from, fleet_linear_state *next,
            bool *is_cut)
{
    if (what != arg)
        return history_step(what, from, next, is_cut);
    if (memcmp(from, arg, sizeof *from) != 0)
        return 0;
    next[0] = *from;
    return 1;
}

/* Does it touch the state at all? Nothing does but the code of a run. */
static bool
history_is_concerned(const fleet *w, const fleet_run *run)
{
    if (stet__map_find(&w->entered, run->id.bytes, sizeof run->id.bytes) == NULL)
        return false;
    for (size_t i = 0; i < run->program.n; i++)
        if (run->program.ops[i].kind == FLEET_OP_DEPOSIT ||
            run->program.ops[i].kind == FLEET_OP_SCRIBBLE)
            return true;
    return false;
}

static bool
history_is_read(const fleet_run *run)
{
    const fleet_seen *seen = (const fleet_seen *)(const void *)run->result;

    for (size_t i = 0; run->is_told && i < run->program.n; i++)
        if ((seen[i].kind == FLEET_OP_DEPOSIT && seen[i].code == STET_OK) ||
            (seen[i].kind == FLEET_OP_SCRIBBLE && run->program.ops[i].seed % 3 != 0))
            return false;
    return run->is_told;
}

/* How many writes there were when it came, if it says so. */
static uint64_t
history_writes(const fleet_run *run)
{
    const fleet_seen *result = (const fleet_seen *)(const void *)run->result;

    for (size_t i = 0; !run->is_retry && i < run->program.n; i++) {
        const fleet_seen *seen = run->is_told ? &result[i] : history_seen(run, i);

        if (run->program.ops[i].kind == FLEET_OP_DEPOSIT)
            return seen != NULL && !history_is_stop(seen->code) ? seen->value >> 32 : UINT64_MAX;
    }
    return UINT64_MAX;
}

/* Those that say when they came in that order, then those that were answered: so the first try is
 * nearly right. */
static int
history_by_answer(const void *a, const void *b)
{
    const fleet_linear_op *x = a, *y = b;

    if (x->writes_max != y->writes_max)
        return x->writes_max < y->writes_max ? -1 : 1;
    if (x->answered_us != y->answered_us)
        return x->answered_us < y->answered_us ? -1 : 1;
    return (x->asked_us > y->asked_us) - (x->asked_us < y->asked_us);
}

static void
history_key(fleet *w, int key)
{
    fleet_linear_op         *ops = malloc((w->n_runs + 1) * sizeof *ops);
    const fleet_linear_state none = { 0 };
    fleet_linear_state      *last = &w->last_read[key];
    int64_t                  now_us = stet__sim_now_us(w->sim);
    size_t                   n = 0;

    if (ops == NULL)
        abort();
    for (const fleet_run *run = w->first; run != NULL; run = run->next) {
        uint64_t nonce = run->is_retry ? run->retry_nonce : run->order.nonce;
        int64_t *asked_us = stet__map_find(&w->asked, &nonce, sizeof nonce);

        if (run->key != key || !history_is_concerned(w, run))
            continue;
        if (asked_us == NULL) {
            fleet_fail(w, run, "nobody asked for it");
            goto done;
        }
        ops[n++] =
            (fleet_linear_op){ *asked_us, run->answered_us != 0 ? run->answered_us : INT64_MAX,
                               history_writes(run), history_is_read(run), run };
    }
    ops[n++] = (fleet_linear_op){ now_us, now_us, last->writes, true, last };
    qsort(ops, n, sizeof *ops, history_by_answer);
    w->stats.orders++;
    switch (fleet_linear_check(ops, n, &none, history_any, last, HISTORY_STATES_MAX)) {
    case FLEET_LINEAR_YES: break;
    case FLEET_LINEAR_NO:
        fleet_fail(w, NULL,
                   "key %d: no order of its %zu runs explains what they read, and \"%" PRIu64
                   " %" PRIu64 "\" at the end",
                   key, n - 1, last->writes, last->sum);
        break;
    case FLEET_LINEAR_UNDECIDED: w->stats.undecided++; break;
    }
done:
    free(ops);
}

/* For the test that this is able to fail. */
static void
history_tamper(fleet *w)
{
    for (fleet_run *run = w->first; run != NULL; run = run->next)
        if (w->options.tampers == FLEET_TAMPER_ANSWER && history_writes(run) != UINT64_MAX &&
            history_writes(run) > 0)
            run->answered_us = 1;
    if (w->options.tampers == FLEET_TAMPER_READ)
        w->last_read[0].sum++;
}

void
fleet_check_history(fleet *w)
{
    history_tamper(w);
    for (int key = 0; key < FLEET_KEYS && !w->is_failed; key++)
        history_key(w, key);
}
