/* What the outside saw of the objects, and whether one order explains it.
 *
 * An operation on a key is a run of an object. It is asked for when a client, an operator or the
 * code of another run first asks the engine for it, and answered when one of them is first told
 * that it completed or failed. What it did to the key's state is what its result says: the client
 * reads there what each of its operations read. A run that did not complete, or of which nobody was
 * told, may have done any beginning of its program, but not less than its own code was sure of when
 * it entered a body (ledger.c); a failure may say in which operation it was. That a stop was told
 * is no answer: the run may still clean up. A retried run begins anywhere: what its forerunner did
 * is not done again.
 *
 * Nothing here asks the store, and times are those of the simulator, not of any node. The model is
 * asked for one thing: in which order the runs first touched their key. It is the order that is
 * tried first, and what is found must hold without it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

/* Far more than histories of these sizes need. */
#define HISTORY_STATES_MAX 200000
/* In place of the hash of a scribble that nobody says to have read: hashes are odd. */
#define HISTORY_UNREAD 2

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

/* After a rewind there are several of one reason: the oldest with that result. */
void
fleet_answered_call(fleet *w, uint64_t nonce, stet_bytes result)
{
    fleet_run *run = w->of == NULL ? w->first : NULL;

    for (; run != NULL; run = run->next)
        if (run->order.nonce == nonce && !run->is_retry && run->end == STET__FACT_COMPLETED &&
            run->result_len == result.len &&
            (result.len == 0 || memcmp(run->result, result.data, result.len) == 0)) {
            fleet_answered(w, run);
            return;
        }
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

/* The history of one key. */
typedef struct history {
    const fleet              *w;
    const fleet_linear_state *last; /* what was read at the end: an operation of its own */
    uint64_t                 *read; /* scribbles somebody says to have read */
    size_t                    n_read;
    bool                      is_plain;   /* nothing is done to make it shorter */
    bool                      is_account; /* scribbles are not looked at */
} history;

typedef struct history_walk {
    const history      *of;
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

/* What nobody says to have read cannot be told apart: fewer states. */
static uint64_t
history_noted(const history *of, uint64_t hash)
{
    if (hash == 0)
        return 0;
    for (size_t i = 0; i < of->n_read; i++)
        if (of->read[i] == hash)
            return hash;
    return of->is_plain ? hash : HISTORY_UNREAD;
}

static uint64_t
history_scribble(const history *of, const fleet_op *op)
{
    char text[32];

    if (op->seed % 3 == 1)
        return 0;
    (void)snprintf(text, sizeof text, "%" PRIx64, op->seed);
    return history_noted(of, history_hash(text));
}

/* False: it cannot have seen that here. */
static bool
history_op(const history *of, const fleet_op *op, fleet_linear_state *s, const fleet_seen *seen,
           bool is_written)
{
    if (op->kind == FLEET_OP_DEPOSIT) {
        if (seen != NULL && seen->value != history_account(s))
            return false;
        if (is_written) {
            s->writes++;
            s->sum += op->seed % 100 + 1;
        }
    }
    if (op->kind == FLEET_OP_SCRIBBLE && !of->is_account) {
        if (op->seed % 3 == 0)
            return seen == NULL || seen->value == s->scribble;
        s->scribble = history_scribble(of, op);
    }
    return true;
}

/* Of two that differ in the scribble, one that nobody reads has nothing ahead of it that the other
 * has not. */
static bool
history_covers(const history_walk *h, const fleet_linear_state *a, const fleet_linear_state *b)
{
    return a->writes == b->writes && a->sum == b->sum &&
           (a->scribble == b->scribble || (b->scribble == HISTORY_UNREAD && !h->of->is_plain));
}

static void
history_out(history_walk *h, const fleet_linear_state *s)
{
    for (size_t i = 0; i < h->n; i++) {
        if (history_covers(h, &h->out[i], s))
            return;
        if (history_covers(h, s, &h->out[i])) {
            h->out[i] = *s;
            return;
        }
    }
    if (h->n == FLEET_LINEAR_NEXT_MAX)
        *h->is_cut = true;
    else
        h->out[h->n++] = *s;
}

/* What was written and then forgotten by a rewind to one of these operations: it stands all the same. */
static void
history_forgotten(const history *of, const fleet_run *run, size_t from, size_t upto,
                  fleet_linear_state *s)
{
    for (const fleet_write *write = run->writes; write != NULL; write = write->next) {
        if (!write->is_forgotten || write->at < from || write->at > upto)
            continue;
        if (write->is_account) {
            s->writes++;
            s->sum += write->amount;
        } else if (!of->is_account)
            s->scribble = history_noted(of, write->amount);
    }
}

/* The last operation a rewind went back to with something written. */
static size_t
history_last_rewind(const fleet_run *run)
{
    size_t at = 0;

    for (const fleet_write *write = run->writes; write != NULL; write = write->next)
        if (write->is_forgotten && write->at > at)
            at = write->at;
    return at;
}

static bool
history_has_forgotten(const fleet_run *run)
{
    for (const fleet_write *write = run->writes; write != NULL; write = write->next)
        if (write->is_forgotten)
            return true;
    return false;
}

/* A result tells all of it. */
static void
history_known(history_walk *h, const fleet_linear_state *from, size_t first)
{
    const fleet_seen  *seen = (const fleet_seen *)(const void *)h->run->result;
    fleet_linear_state s = *from;

    for (size_t i = first; i < h->run->program.n; i++) {
        history_forgotten(h->of, h->run, i == first ? 0 : i, i, &s);
        if (!history_op(h->of, &h->run->program.ops[i], &s, &seen[i], seen[i].code == STET_OK))
            return;
    }
    history_forgotten(h->of, h->run, h->run->program.n, SIZE_MAX, &s);
    history_out(h, &s);
}

/* Or its rollback had begun before it was executed again. */
static bool
history_is_stop(int code)
{
    return code == STET_ECANCELLED || code == STET_EEXPIRED || code == STET_EROLLBACK;
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

/* Behind the last operation it can have executed. */
static size_t
history_end(const fleet_run *run)
{
    return !run->is_told && run->is_exact ? run->failed_in : run->program.n;
}

/* It ended somewhere. */
static void
history_unknown(history_walk *h, const fleet_linear_state *from, size_t at, bool is_begun)
{
    fleet_linear_state s = *from;
    const fleet_op    *op;
    bool               is_written;
    size_t             last = history_last_rewind(h->run);

    for (; at < history_end(h->run); at++) {
        const fleet_seen *seen = history_seen(h->run, at);

        history_forgotten(h->of, h->run, is_begun ? at : 0, at, &s);
        is_begun = true;
        op = &h->run->program.ops[at];
        if (op->kind != FLEET_OP_DEPOSIT && op->kind != FLEET_OP_SCRIBBLE)
            continue;
        is_written = seen != NULL ? seen->code == STET_OK
                                  : !history_fails(op) || fleet_is_given(h->run, at);
        if (seen == NULL && !h->run->is_exact && at >= last)
            history_out(h, &s);
        if (seen == NULL && op->kind == FLEET_OP_DEPOSIT &&
            (history_may_fail(h->of->w, op) || fleet_is_given(h->run, at)))
            history_unknown(h, &s, at + 1, true);
        if (seen != NULL && history_is_stop(seen->code))
            break; /* it did nothing more to its key */
        if (!history_op(h->of, op, &s, seen, is_written))
            return;
    }
    history_forgotten(h->of, h->run, is_begun ? at + (at < history_end(h->run)) : 0, SIZE_MAX, &s);
    history_out(h, &s);
}

static size_t
history_step(void *arg, const void *what, const fleet_linear_state *from, fleet_linear_state *next,
             bool *is_cut)
{
    const history   *of = arg;
    const fleet_run *run = what;
    history_walk     h = { .of = of, .run = run, .out = next, .is_cut = is_cut };
    size_t           firsts;

    if (what == of->last) {
        next[0] = *from;
        return from->writes == of->last->writes && from->sum == of->last->sum &&
               (of->is_account || from->scribble == of->last->scribble);
    }
    firsts = run->is_retry ? run->program.n + 1 : 1;
    for (size_t first = 0; first < firsts; first++)
        if (run->is_told)
            history_known(&h, from, first);
        else
            history_unknown(&h, from, first, false);
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

static bool
history_touches(const fleet_op *op)
{
    return op->kind == FLEET_OP_DEPOSIT || op->kind == FLEET_OP_SCRIBBLE;
}

/* Does it touch the state at all? Nothing does but the code of a run. */
static bool
history_is_concerned(const fleet *w, const fleet_run *run)
{
    if (stet__map_find(&w->entered, run->id.bytes, sizeof run->id.bytes) == NULL)
        return false;
    for (size_t i = 0; i < run->program.n; i++)
        if (history_touches(&run->program.ops[i]))
            return true;
    return false;
}

/* What the outside knows of one of its operations; NULL: nothing. */
static const fleet_seen *
history_told(const fleet_run *run, size_t op)
{
    return run->is_told ? (const fleet_seen *)(const void *)run->result + op
                        : history_seen(run, op);
}

/* It changes nothing but a scribble that nobody reads, and says so. */
static bool
history_is_read(const history *of, const fleet_run *run)
{
    if (history_has_forgotten(run))
        return false;
    for (size_t i = 0; run->is_told && i < run->program.n; i++) {
        const fleet_op *op = &run->program.ops[i];

        if (op->kind == FLEET_OP_DEPOSIT && history_told(run, i)->code == STET_OK)
            return false;
        if (op->kind == FLEET_OP_SCRIBBLE && op->seed % 3 != 0 && !of->is_account &&
            history_scribble(of, op) != HISTORY_UNREAD)
            return false;
    }
    return run->is_told;
}

/* May it have done nothing at all, whenever it came? */
static bool
history_is_optional(const fleet_run *run)
{
    if (history_has_forgotten(run))
        return false;
    if (run->is_retry)
        return true;
    if (run->is_told)
        return false;
    for (size_t i = 0; i < history_end(run); i++)
        if (history_touches(&run->program.ops[i]))
            return !run->is_exact && history_seen(run, i) == NULL;
    return true;
}

/* After how many writes it came, and how many more it made, as far as it says so. */
static void
history_count(fleet_linear_op *out, const fleet_run *run)
{
    bool               is_first = true, is_stopped = false;
    const history      none = { .is_account = true };
    fleet_linear_state before = { 0 };

    history_forgotten(&none, run, 0, SIZE_MAX, &before);
    out->adds_min = out->adds_max = before.writes;
    out->adds_sum = before.sum;
    for (size_t i = 0; i < history_end(run) && !is_stopped; i++) {
        const fleet_op   *op = &run->program.ops[i];
        const fleet_seen *seen = run->is_retry ? NULL : history_told(run, i);

        if (op->kind != FLEET_OP_DEPOSIT)
            continue;
        is_stopped = seen != NULL && history_is_stop(seen->code);
        if (is_first && seen != NULL && !is_stopped) {
            before = (fleet_linear_state){ 0 };
            history_forgotten(&none, run, 0, i, &before);
            out->is_exact = true;
            out->writes_max = (seen->value >> 32) - before.writes;
            out->sum = (seen->value & UINT32_MAX) - before.sum;
        }
        is_first = false;
        if (seen != NULL && seen->code == STET_OK) {
            out->adds_min++;
            out->adds_sum += op->seed % 100 + 1;
        }
        out->adds_max += seen == NULL || seen->code == STET_OK;
    }
}

static fleet_linear_op
history_linear(const history *of, const fleet_run *run, int64_t asked_us)
{
    fleet_linear_op op = { .asked_us = asked_us,
                           .answered_us = run->answered_us != 0 ? run->answered_us : INT64_MAX,
                           .writes_max = UINT64_MAX,
                           .adds_max = FLEET_OPS_MAX,
                           .hint = run->touched,
                           .what = run };

    if (of->is_plain)
        return op;
    op.adds_max = 0;
    op.is_read = history_is_read(of, run);
    op.is_optional = history_is_optional(run);
    history_count(&op, run);
    return op;
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

/* What the runs of the key say to have read of its scribble. */
static void
history_find_read(history *of, int key)
{
    size_t cap = 0;

    for (const fleet_run *run = of->w->first; run != NULL; run = run->next)
        for (size_t i = 0; run->key == key && i < run->program.n; i++) {
            const fleet_op   *op = &run->program.ops[i];
            const fleet_seen *seen = history_told(run, i);

            if (op->kind != FLEET_OP_SCRIBBLE || op->seed % 3 != 0 || seen == NULL)
                continue;
            if (of->n_read + 1 >= cap &&
                (of->read = realloc(of->read, (cap = cap * 2 + 16) * sizeof *of->read)) == NULL)
                abort();
            of->read[of->n_read++] = seen->value;
        }
    if (of->read == NULL && (of->read = malloc(sizeof *of->read)) == NULL)
        abort();
    of->read[of->n_read++] = of->last->scribble;
}

static fleet_linear
history_judge(fleet *w, int key, bool is_plain, bool is_account, size_t *n)
{
    const fleet_linear_state none = { 0 }, *last = &w->last_read[key];
    history          of = { .w = w, .last = last, .is_plain = is_plain, .is_account = is_account };
    fleet_linear_op *ops = malloc((w->n_runs + 1) * sizeof *ops);
    int64_t          now_us = stet__sim_now_us(w->sim);
    fleet_linear     verdict = FLEET_LINEAR_UNDECIDED;

    *n = 0;
    if (ops == NULL)
        abort();
    history_find_read(&of, key);
    for (const fleet_run *run = w->first; run != NULL; run = run->next) {
        uint64_t nonce = run->is_retry ? run->retry_nonce : run->order.nonce;
        int64_t *asked_us = stet__map_find(&w->asked, &nonce, sizeof nonce);

        if (run->key != key || !history_is_concerned(w, run))
            continue;
        if (asked_us == NULL) {
            fleet_fail(w, run, "nobody asked for it");
            goto done;
        }
        ops[(*n)++] = history_linear(&of, run, *asked_us);
    }
    ops[*n] = (fleet_linear_op){ .asked_us = now_us,
                                 .answered_us = now_us,
                                 .writes_max = is_plain ? UINT64_MAX : last->writes,
                                 .is_read = !is_plain,
                                 .is_exact = !is_plain,
                                 .sum = last->sum,
                                 .hint = UINT64_MAX,
                                 .what = last };
    qsort(ops, *n + 1, sizeof *ops, history_by_answer);
    verdict = fleet_linear_check(ops, *n + 1, &none, history_step, &of, HISTORY_STATES_MAX);
done:
    free(ops);
    free(of.read);
    return verdict;
}

/* What scribbles were read takes most of the search where there is no order. If there is none for
 * the account alone, there is none. */
static fleet_linear
history_verdict(fleet *w, int key, size_t *n)
{
    fleet_linear verdict = history_judge(w, key, false, false, n);

    if (verdict == FLEET_LINEAR_UNDECIDED && !w->is_failed &&
        history_judge(w, key, false, true, n) == FLEET_LINEAR_NO)
        return FLEET_LINEAR_NO;
    return verdict;
}

static void
history_key(fleet *w, int key)
{
    const fleet_linear_state *last = &w->last_read[key];
    size_t                    n;

    w->stats.orders++;
    switch (history_verdict(w, key, &n)) {
    case FLEET_LINEAR_YES: break;
    case FLEET_LINEAR_NO:
        fleet_fail(w, NULL,
                   "key %d: no order of its %zu runs explains what they read, and \"%" PRIu64
                   " %" PRIu64 "\" at the end",
                   key, n, last->writes, last->sum);
        break;
    case FLEET_LINEAR_UNDECIDED: w->stats.undecided++; break;
    }
}

/* After how many writes it came; UINT64_MAX: it does not say. */
static uint64_t
history_writes(const fleet_run *run)
{
    fleet_linear_op op = { .writes_max = UINT64_MAX };

    history_count(&op, run);
    return op.writes_max;
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

/* ---- is what makes it shorter right? --------------------------------------------------------- */

enum { DOUBT_RUNS = 3 };

/* Something was seen otherwise than it was; how it was before is kept. */
typedef struct history_doubt {
    fleet_run         *run[DOUBT_RUNS];
    fleet_run          was[DOUBT_RUNS];
    fleet_seen         result[DOUBT_RUNS][FLEET_OPS_MAX];
    size_t             n;
    fleet_linear_state last;
} history_doubt;

static void
history_distort_seen(stet__rng *r, const fleet_run *run, fleet_seen *seen)
{
    size_t i = (size_t)fleet_draw(r, run->program.n);

    if (run->program.ops[i].kind == FLEET_OP_DEPOSIT)
        seen[i].value += fleet_draw(r, 2) == 0 ? (uint64_t)1 << 32 : 1;
    else if (run->program.ops[i].kind == FLEET_OP_SCRIBBLE)
        seen[i].value = fleet_draw(r, 2) == 0 ? 0 : 77;
}

static void
history_distort_run(fleet *w, stet__rng *r, fleet_run *run)
{
    switch (fleet_draw(r, 5)) {
    case 0: run->answered_us = 0; break;
    case 1: run->is_told = false; break;
    case 2: memset(run->is_fixed, 0, sizeof run->is_fixed); break;
    case 3:
        if (run->is_told)
            history_distort_seen(r, run, (fleet_seen *)(void *)run->result);
        else
            history_distort_seen(r, run, run->seen);
        break;
    default:
        run->answered_us = 1 + (int64_t)fleet_draw(r, (uint64_t)stet__sim_now_us(w->sim));
        break;
    }
}

static void
history_distort(fleet *w, int key, stet__rng *r, history_doubt *d)
{
    size_t of_key = 0;

    d->n = 0;
    d->last = w->last_read[key];
    for (const fleet_run *run = w->first; run != NULL; run = run->next)
        of_key += run->key == key && history_is_concerned(w, run);
    if (of_key == 0 || fleet_draw(r, 8) == 0)
        w->last_read[key].sum++;
    else if (fleet_draw(r, 8) == 0)
        w->last_read[key].writes++;
    for (size_t n = of_key > 0 ? 1 + (size_t)fleet_draw(r, DOUBT_RUNS) : 0; n > 0; n--) {
        size_t     at = (size_t)fleet_draw(r, of_key);
        fleet_run *run = w->first;

        for (; run->key != key || !history_is_concerned(w, run) || at-- > 0; run = run->next)
            continue;
        d->run[d->n] = run;
        d->was[d->n] = *run;
        if (run->result_len > 0)
            memcpy(d->result[d->n], run->result, run->result_len);
        d->n++;
        history_distort_run(w, r, run);
    }
}

static void
history_undistort(fleet *w, int key, history_doubt *d)
{
    w->last_read[key] = d->last;
    while (d->n-- > 0) {
        *d->run[d->n] = d->was[d->n];
        if (d->run[d->n]->result_len > 0)
            memcpy(d->run[d->n]->result, d->result[d->n], d->run[d->n]->result_len);
    }
}

/* Judged by the bare search, too: it must come to the same. */
static void
history_compare(fleet *w, int key)
{
    size_t       n;
    fleet_linear is = history_verdict(w, key, &n), was = history_judge(w, key, true, false, &n);

    if (is == FLEET_LINEAR_UNDECIDED || was == FLEET_LINEAR_UNDECIDED)
        return;
    w->stats.doubts[is == FLEET_LINEAR_YES]++;
    if (is != was)
        fleet_fail(w, NULL, "key %d: with hints there is %s order, without there is %s", key,
                   is == FLEET_LINEAR_YES ? "an" : "no", was == FLEET_LINEAR_YES ? "one" : "none");
}

static void
history_doubt_key(fleet *w, int key)
{
    history_doubt d;
    stet__rng     r;

    stet__rng_seed(&r, w->options.seed * FLEET_KEYS + (uint64_t)key);
    history_compare(w, key);
    for (unsigned i = 0; i < w->options.doubts && !w->is_failed; i++) {
        history_distort(w, key, &r, &d);
        history_compare(w, key);
        history_undistort(w, key, &d);
    }
}

void
fleet_check_history(fleet *w)
{
    history_tamper(w);
    for (int key = 0; key < FLEET_KEYS && !w->is_failed; key++)
        history_key(w, key);
    for (int key = 0; key < FLEET_KEYS && !w->is_failed && w->options.doubts > 0; key++)
        history_doubt_key(w, key);
}
