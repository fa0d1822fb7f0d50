/* The one handler of the fleet: interprets the program its input stands for.
 *
 * It notes what every operation gave back. Before a body begins all of that must be durable, so
 * from then on no execution of the run may see anything else (ledger.c). In the end it is the
 * run's result, so that the checks can judge each operation. /
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/host.h"
#include "exec/context.h"
#include "fleet.h"

fleet *fleet_here;

enum {
    HANDLER_REFUSED_ONE_IN = 2,
    HANDLER_UNLUCKY_ONE_IN = 8,
    HANDLER_UNDONE_ONE_IN = 3, /* … when it failed and is rolled back */
    HANDLER_LAST_ONE_IN = 4,   /* … in its last attempt, behind which it will be */
    HANDLER_CRASHES_ONE_IN = 6,
    HANDLER_BESIDE_ONE_IN = 2, /* … where it does not know yet what was done beside that */
    HANDLER_HEIR_ONE_IN = 2,   /* both of one that undoes what it inherited */
    HANDLER_SPOILT_ONE_IN = 2  /* … which has nothing of its own, because of this */
};

typedef struct handler_arg {
    fleet_execution  *x;
    size_t            seen; /* operations that were over when it was started */
    size_t            op;
    int               part; /* of its bodies */
    fleet_body        body;
    uint32_t          attempt;  /* of the run */
    stet_awakeable_id hand_out; /* to the outside; "" if nothing */
} handler_arg;

/* A code that was recorded and is the operation's outcome. Any other is no outcome: the execution
 * is over. */
static bool
handler_is_outcome(int code)
{
    return code == STET_OK || (stet_code_class(code) == STET_CLASS_PERMANENT &&
                               code != STET_EREPLAY && code != STET_ECORRUPT);
}

static uint64_t
handler_hash(stet_bytes value)
{
    return value.data == NULL ? 0 : stet__hash64(value.data, value.len, 3) | 1u;
}

static void
handler_name(char name[16], size_t op, int part)
{
    char *at = stet__text_add_number(stet__text_add(name, name + 16, "s"), name + 16, op);

    if (part >= 0)
        (void)stet__text_add_number(stet__text_add(at, name + 16, "-"), name + 16, (uint64_t)part);
}

/* ---- classifiers ----------------------------------------------------------------------------- */

static const struct {
    char letter;
    int  own, all, outcome;
} handler_verdicts[FLEET_VERDICTS] = {
#define HANDLER_VERDICT(name, letter, own, all, outcome) { letter, own, all, outcome },
    FLEET_VERDICT_LIST(HANDLER_VERDICT)
#undef HANDLER_VERDICT
};

/* Texts of failures that are the fleet's own end with the letter in brackets. */
fleet_verdict
fleet_verdict_of(const char *text, size_t len)
{
    for (int i = 1; len > 3 && text[len - 1] == ']' && text[len - 3] == '[' && i < FLEET_VERDICTS;
         i++)
        if (handler_verdicts[i].letter == text[len - 2])
            return (fleet_verdict)i;
    return FLEET_VERDICT_NONE;
}

int
fleet_verdict_outcome(fleet_verdict verdict)
{
    return handler_verdicts[verdict].outcome;
}

static int
handler_judge(const stet_failed *failed, int64_t *not_before_ms, bool is_own)
{
    fleet           *w = fleet_here;
    const fleet_run *run = fleet_run_named(w, failed->run);
    fleet_verdict    verdict = fleet_verdict_of(failed->text, strlen(failed->text));

    if (run != NULL && (failed->attempts_max != run->attempts_max || failed->attempt == 0 ||
                        (failed->attempt > run->attempts + 1 && run->rewinds == 0)))
        fleet_fail(w, run, "a classifier is told of attempt %u of %u, and %u have failed",
                   failed->attempt, failed->attempts_max, run->attempts);
    *not_before_ms = fleet_now_ms(w) + 40;
    return is_own ? handler_verdicts[verdict].own : handler_verdicts[verdict].all;
}

static int
handler_classify(void *arg, const stet_failed *failed, int64_t *not_before_ms)
{
    (void)arg;
    return handler_judge(failed, not_before_ms, true);
}

int
fleet_classify(void *arg, const stet_failed *failed, int64_t *not_before_ms)
{
    (void)arg;
    return handler_judge(failed, not_before_ms, false);
}

/* Is it to be put off now? Once, as far as the world remembers. */
static bool
handler_is_put_off(fleet *w, const char *run_text, size_t op, int part, uint8_t verdict)
{
    fleet_run *run = verdict == FLEET_VERDICT_DEFER ? fleet_run_named(w, run_text) : NULL;

    if (run == NULL || (run->was_put_off[op] >> part & 1u) != 0)
        return false;
    run->was_put_off[op] |= (uint8_t)(1u << part);
    return true;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void
handler_hand_out(fleet *w, const stet_attempt *a, const handler_arg *arg)
{
    fleet_run *run = fleet_run_named(w, stet_attempt_run(a));

    if (run == NULL)
        return; /* told by fleet_enter() */
    for (size_t i = 0; i < w->n_awakeables; i++) {
        fleet_awakeable *known = &w->awakeables[i];

        if (known->run != run || known->op != arg->op ||
            (known->is_forgotten && strcmp(known->id, arg->hand_out.text) != 0))
            continue;
        if (strcmp(known->id, arg->hand_out.text) != 0)
            fleet_fail(w, run, "operation %zu hands out two awakeables: %s and %s", arg->op,
                       known->id, arg->hand_out.text);
        return;
    }
    fleet_awakeable_add(w, run, arg->op, arg->hand_out.text);
}

/* A node that polls renews no lease while a body of its runs. If all do, none would ever come to the end of a
 * long one. */
static void
handler_nap(fleet *w, stet__platform *p, int64_t ms)
{
    const fleet_node *node = fleet_node_of(w, p);

    if (node != NULL && node->is_polled && ms > w->plan.lease_ms / 2)
        ms = w->plan.lease_ms / 2;
    fleet_nap(p, ms * 1000);
}

/* It was told not to come before that time, or its policy says so; 0: at any time. */
static int64_t
handler_until(fleet *w, const stet_attempt *a)
{
    fleet_run *run = w->of == NULL ? fleet_run_named(w, stet_attempt_run(a)) : NULL;

    return run != NULL ? fleet_step_of(w, run, stet_text(a->step))->until_ms : 0;
}

/* Not before a later time, it says, once as far as the world remembers. */
static bool
handler_is_later(fleet *w, const stet_attempt *a, const handler_arg *b, int64_t *time_ms)
{
    fleet_run *run = b->body.later_ms > 0 ? fleet_run_named(w, stet_attempt_run(a)) : NULL;

    if (run == NULL || (run->was_later[b->op] >> b->part & 1u) != 0)
        return false;
    run->was_later[b->op] |= (uint8_t)(1u << b->part);
    *time_ms = run->later_ms[b->op] = fleet_now_ms(w) + b->body.later_ms;
    return true;
}

static int
handler_body(stet_attempt *a, void *arg)
{
    handler_arg     *b = arg;
    fleet_execution *x = b->x;
    fleet           *w = x->w;
    uint32_t         number = b->body.attempts > 0 ? stet_attempt_number(a) : b->attempt;
    int64_t until_ms = handler_until(w, a), now_ms = until_ms != 0 ? fleet_peak_ms(w) : 0, later_ms;

    if (fleet_enter(w, a, x, b->seen, b->op)) {
        if (now_ms < until_ms)
            fleet_fail(w, fleet_run_named(w, stet_attempt_run(a)),
                       "body %s is entered %lld ms early", a->step, (long long)(until_ms - now_ms));
        if (b->hand_out.text[0] != '\0')
            handler_hand_out(w, a, b);
    }
    if (b->body.takes_ms > 0 && (!b->body.is_late || stet_attempt_number(a) == 1))
        handler_nap(w, a->ctx->exec->p, b->body.takes_ms);
    fleet_leave(w, a);
    if (handler_is_later(w, a, b, &later_ms))
        return stet_attempt_not_before(a, later_ms, "come again");
    if (b->body.verdict == FLEET_VERDICT_DEFER
            ? handler_is_put_off(w, stet_attempt_run(a), b->op, b->part, b->body.verdict)
            : number <= b->body.fails) {
        fleet_body_failed(w, a);
        return stet_attempt_fail(a, STET_ERETRY, "no luck [%c]",
                                 handler_verdicts[b->body.verdict].letter);
    }
    if (b->body.is_permanent) {
        fleet_body_failed(w, a);
        return stet_attempt_fail(a, STET_EPERMANENT, "never");
    }
    return stet_attempt_return(a, stet_text(a->step));
}

static handler_arg *
handler_arg_new(stet_ctx *ctx, fleet_execution *x, size_t op, const fleet_body *body)
{
    handler_arg *arg = stet_ctx_alloc(ctx, sizeof *arg);

    if (arg != NULL)
        *arg = (handler_arg){
            .x = x, .seen = x->n, .op = op, .body = *body, .attempt = stet_info(ctx)->attempt
        };
    return arg;
}

/* Does the undo fail now, for good? In seeds with whims, of some steps, and once. */
static bool
handler_is_refused(fleet *w, fleet_run *run, size_t op)
{
    uint32_t bit = (uint32_t)1 << op;

    if (!w->plan.has_whims || !w->has_faults || w->of != NULL || run == NULL ||
        (run->refused & bit) != 0 || (run->order.seed >> op) % HANDLER_REFUSED_ONE_IN != 0)
        return false;
    run->refused |= bit;
    return true;
}

/* Gets what the step recorded, which is its name, or what an operator replaced it by. */
static int
handler_undo(stet_attempt *a, stet_bytes result)
{
    const handler_arg *b = stet_attempt_arg(a);
    fleet_run         *run = fleet_run_named(b->x->w, stet_attempt_run(a));
    char               name[32], want[32];
    bool               is_refused;

    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(a->step + 9, "#"), a->step + 9);
    (void)snprintf(want, sizeof want, "%s", name);
    if (run != NULL)
        fleet_step_text(want, run, name);
    if (fleet_enter(b->x->w, a, b->x, b->seen, b->op) && b->x->w->of == NULL &&
        (strlen(want) != result.len || memcmp(want, result.data, result.len) != 0))
        fleet_fail(b->x->w, run, "undo %s gets \"%.*s\", and the step gave \"%s\"", a->step,
                   (int)result.len, (const char *)result.data, want);
    if (fleet_whim_strikes(b->x->w, run != NULL && run->inherited > 1 ? HANDLER_HEIR_ONE_IN
                                                                      : HANDLER_CRASHES_ONE_IN) &&
        b->x->w->crashes < b->x->w->plan.crashes_max) { /* a rollback that is interrupted */
        b->x->w->crashes++;
        fleet_crash(b->x->w, fleet_node_of(b->x->w, a->ctx->exec->p));
    }
    is_refused = handler_is_refused(b->x->w, run, b->op);
    if (is_refused)
        handler_nap(b->x->w, a->ctx->exec->p, FLEET_REFUSED_MS);
    fleet_leave(b->x->w, a);
    return is_refused ? stet_attempt_fail(a, STET_EPERMANENT, "no refunds") : STET_OK;
}

static stet_step_options
handler_policy(const fleet_execution *x, const fleet_body *body)
{
    return (stet_step_options){ .size = sizeof(stet_step_options),
                                .undo = x->program.has_undo ? handler_undo : NULL,
                                .attempts = body->attempts,
                                .first_ms = body->attempts > 0 ? 20 : 0,
                                .max_ms = body->attempts > 0 ? 500 : 0,
                                .timeout = body->is_late ? "20ms" : NULL,
                                .fingerprint = { body->has_print ? "print" : NULL,
                                                 body->has_print ? 5 : 0 } };
}

/* Whoever lost the run meanwhile does not count, nor who guessed in vain that it would be granted. */
static bool
handler_is_owner(const fleet *w, const fleet_run *run, const stet__claim *claim)
{
    const mem_run *row = stet__mem_run(w->db, run->id);

    return row != NULL && (row->row.session == 0 || row->row.session == claim->session);
}

/* The handler came to it: what it inherits of it can be undone. */
static int
handler_met(stet_ctx *ctx, fleet_execution *x, const char *name, int rc)
{
    const stet__claim *claim = ctx->host;
    fleet_run         *run;
    fleet_step        *s;

    if (rc != STET_OK || !x->program.has_undo || x->is_asked ||
        (run = fleet_run_named(x->w, stet_info(ctx)->run)) == NULL)
        return rc;
    s = fleet_step_of(x->w, run, stet_text(name));
    if (s->met_in < claim->epoch && handler_is_owner(x->w, run, claim))
        s->met_in = claim->epoch;
    return rc;
}

/* It begins: what another execution, which guessed that this claim would be its own, came to does not count. */
static void
handler_meets(stet_ctx *ctx, const fleet_execution *x)
{
    uint64_t   epoch = ((const stet__claim *)ctx->host)->epoch;
    fleet_run *run = x->is_asked ? NULL : fleet_run_named(x->w, stet_info(ctx)->run);

    for (fleet_step *s = run != NULL ? run->steps : NULL; s != NULL; s = s->next)
        if (s->met_in == epoch)
            s->met_in = 0;
}

static int
handler_step_with(stet_ctx *ctx, fleet_execution *x, size_t op, const fleet_body *body,
                  handler_arg *arg, stet_bytes *out)
{
    stet_step_options policy = handler_policy(x, body);
    char              name[16];

    handler_name(name, op, -1);
    return handler_met(ctx, x, name,
                       arg == NULL ? STET_ENOMEM
                                   : stet_step(ctx, out, name, handler_body, arg, &policy));
}

static int
handler_step(stet_ctx *ctx, fleet_execution *x, size_t op, const fleet_body *body, stet_bytes *out)
{
    return handler_step_with(ctx, x, op, body, handler_arg_new(ctx, x, op, body), out);
}

/* ---- children -------------------------------------------------------------------------------- */

static const char *const handler_keys[FLEET_KEYS] = { "k0", "k1", "k2", "k3" };

static uint64_t
handler_nonce(stet_ctx *ctx, size_t op, int part)
{
    const char *run = stet_info(ctx)->run;

    return stet__hash64(run, strlen(run), op * 16 + (uint64_t)(part + 1));
}

static const char *
handler_child(stet_ctx *ctx, const fleet_execution *x, size_t op, int part, bool is_call,
              const char *awakeable, stet_start_options *options)
{
    const fleet_op *o = &x->program.ops[op];
    fleet_order     child = { .depth = x->order.depth + 1 };
    char           *text = stet_ctx_alloc(ctx, 160);

    if (text == NULL)
        return NULL;
    child.seed = o->seed + (uint64_t)(part + 1);
    child.nonce = handler_nonce(ctx, op, part);
    if (!x->is_asked)
        fleet_asked(x->w, child.nonce);
    child.floor = is_call ? x->order.floor : -1;
    child.is_shared = o->is_shared && awakeable == NULL;
    if (o->key >= 0 && !o->is_shared)
        child.floor = o->key > child.floor ? o->key : child.floor;
    if (awakeable != NULL)
        (void)snprintf(child.awakeable, sizeof child.awakeable, "%s", awakeable);
    options->size = sizeof *options;
    options->timeout_ms = awakeable == NULL ? o->child_ms : 0;
    options->key = o->key >= 0 && awakeable == NULL ? handler_keys[o->key] : NULL;
    return fleet_order_text(text, 160, &child) > 0 ? text : NULL;
}

static const char *
handler_target(const stet_start_options *options, const fleet_op *o)
{
    if (options->key == NULL)
        return "svc.run";
    return o->is_shared ? "obj.peek" : "obj.run";
}

static int
handler_call(stet_ctx *ctx, fleet_execution *x, size_t op, stet_bytes *out)
{
    stet_start_options options = { 0 };
    const char        *input = handler_child(ctx, x, op, -1, true, NULL, &options);
    int                rc;

    if (input == NULL)
        return STET_ENOMEM;
    rc = stet_call(ctx, out, handler_target(&options, &x->program.ops[op]), stet_text(input),
                   &options);
    if (rc == STET_OK)
        fleet_answered_call(x->w, handler_nonce(ctx, op, -1), *out);
    return rc;
}

static int
handler_send(stet_ctx *ctx, fleet_execution *x, size_t op, const char *awakeable, uint64_t *value)
{
    stet_start_options options = { 0 };
    const fleet_op    *o = &x->program.ops[op];
    const char        *input = handler_child(ctx, x, op, -1, false, awakeable, &options);
    stet_run_id        run;
    int                rc;

    if (input == NULL)
        return STET_ENOMEM;
    if (awakeable == NULL) {
        if (o->is_at) /* whatever its node's clock says of it */
            options.run_at_ms = stet_info(ctx)->created_ms + o->ms;
        else
            options.delay_ms = o->ms;
        if (o->has_limit &&
            (options.idempotency_key = stet_ctx_printf(ctx, "send-%" PRIu64, o->seed % 64)) == NULL)
            return STET_ENOMEM;
    }
    if ((rc = stet_send(ctx, &run, handler_target(&options, o), stet_text(input), &options)) ==
        STET_OK)
        *value = handler_hash(stet_text(run.text));
    return rc;
}

/* ---- awakeables ------------------------------------------------------------------------------ */

static int
handler_awake(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op   *o = &x->program.ops[op];
    stet_awakeable_id id;
    stet_future      *future;
    handler_arg      *arg;
    stet_bytes        out = { NULL, 0 };
    uint64_t          sent;
    char              name[16];
    int               rc;

    handler_name(name, op, -1);
    if ((rc = stet_awakeable(ctx, &id, &future, name)) != STET_OK)
        return rc;
    if (o->is_inside) {
        if ((rc = handler_send(ctx, x, op, id.text, &sent)) != STET_OK)
            return rc;
    } else {
        if ((arg = handler_arg_new(ctx, x, op, &(fleet_body){ .attempts = 0 })) == NULL)
            return STET_ENOMEM;
        arg->hand_out = id;
        name[0] = 'h';
        if ((rc = stet_step(ctx, NULL, name, handler_body, arg, NULL)) != STET_OK)
            return rc;
    }
    if (o->has_limit)
        rc = stet_await_for(ctx, &out, future, stet_ctx_printf(ctx, "%" PRId64 "ms", o->ms + 1));
    else
        rc = stet_await(ctx, &out, future);
    *value = handler_hash(out);
    return rc;
}

/* ---- signals --------------------------------------------------------------------------------- */

static const char *const handler_signals[FLEET_SIGNALS] = { "g0", "g1" };

static int
handler_signal(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op *o = &x->program.ops[op];
    const char     *signal = handler_signals[o->seed % FLEET_SIGNALS];
    const char     *limit = NULL;
    stet_run_id     self;
    stet_future    *future;
    stet_bytes      out = { NULL, 0 };
    char            text[16];
    int             rc;

    if (o->is_inside) {
        (void)snprintf(self.text, sizeof self.text, "%s", stet_info(ctx)->run);
        (void)snprintf(text, sizeof text, "%u", FLEET_INSIDE + (unsigned)op);
        if ((rc = stet_ctx_signal(ctx, &self, signal, stet_text(text))) != STET_OK)
            return rc;
    }
    if (o->has_limit && (limit = stet_ctx_printf(ctx, "%" PRId64 "ms", o->ms + 1)) == NULL)
        return STET_ENOMEM;
    if (o->seed / FLEET_SIGNALS % 3 != 0)
        rc = stet_await_signal(ctx, &out, signal, limit);
    else {
        handler_name(text, op, -1);
        rc = stet_signal_start(ctx, &future, signal, STET_SIGNAL(.id = text, .timeout = limit));
        if (rc == STET_OK)
            rc = stet_await(ctx, &out, future);
    }
    if (rc == STET_OK && out.len < sizeof text) {
        fleet_text(text, sizeof text, out.data, out.len);
        *value = strtoul(text, NULL, 10);
    }
    return rc;
}

/* ---- topics, choices ------------------------------------------------------------------------- */

/* Mostly with a limit: nobody may emit. */
static int
handler_event(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op *o = &x->program.ops[op];
    const char     *limit = NULL;
    stet_bytes      out = { NULL, 0 };
    char            text[16];
    int             rc;

    if (fleet_event_has_limit(o) &&
        (limit = stet_ctx_printf(ctx, "%" PRId64 "ms", o->ms + 1)) == NULL)
        return STET_ENOMEM;
    rc = stet_await_event(ctx, &out, "news", limit);
    if (rc == STET_OK && out.len < sizeof text) {
        fleet_text(text, sizeof text, out.data, out.len);
        *value = strtoul(text, NULL, 10);
    }
    return rc;
}

static int
handler_emit(stet_ctx *ctx, fleet_execution *x, uint64_t *value)
{
    char   text[16];
    size_t resumed;
    int    rc;

    x->w->emitted += !x->is_asked;
    (void)snprintf(text, sizeof text, "%u", x->w->emitted);
    rc = stet_ctx_emit(ctx, &resumed, "news", stet_text(text));
    *value = resumed + 1;
    return rc;
}

/* A person says yes or no, or go on, and the number of that decision as a note. */
static int
handler_person(stet_ctx *ctx, size_t op, bool is_approval, uint64_t *value)
{
    stet_decision decision = { 0 };
    char          name[16];
    int           rc;

    handler_name(name, op, -1);
    name[0] = 'b';
    rc = is_approval ? stet_approve(ctx, &decision, name, stet_text("{}"))
                     : stet_pause(ctx, &decision, name, stet_text("{}"));
    if ((rc == STET_OK || rc == STET_EREJECTED) && decision.note != NULL &&
        decision.is_approved == (rc == STET_OK))
        *value = strtoul(decision.note, NULL, 10);
    return rc;
}

/* Another answer in every execution: only what is recorded is the same. */
static int
handler_matches(void *world)
{
    return (((fleet *)world)->stats.bodies + ((fleet *)world)->stats.checks) % 2 == 0;
}

/* A note, a choice, and a key that others want, too. */
static int
handler_decide(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    static const stet_branch branches[] = { { "even", handler_matches }, { "odd", NULL }, { 0 } };
    uint64_t                 key = x->program.ops[op].seed % FLEET_ONCE;
    fleet_run               *run = fleet_run_named(x->w, stet_info(ctx)->run);
    char                     name[16];
    size_t                   chosen = 0;
    bool                     is_first = false;
    int                      rc;

    if ((rc = stet_note(ctx, "operation %zu", op)) != STET_OK)
        return rc;
    handler_name(name, op, -1);
    if ((rc = stet_switch(ctx, &chosen, name, branches, x->w)) != STET_OK)
        return rc;
    name[0] = 'o';
    name[1] = (char)('0' + key);
    name[2] = '\0';
    if ((rc = stet_once(ctx, &is_first, name)) != STET_OK)
        return rc;
    *value = 1 + chosen * 2 + is_first;
    /* A retry inherits what its forerunner was given. */
    if (is_first && run != NULL && !run->is_retry && x->w->of == NULL) {
        if (!stet__id_is_zero(x->w->once[key]) && !stet__id_equal(x->w->once[key], run->id))
            fleet_fail(x->w, run, "key %s was given out before", name);
        x->w->once[key] = run->id;
    }
    return rc;
}

/* ---- futures --------------------------------------------------------------------------------- */

/* An awakeable, and a step that hands it out. */
static int
handler_part_awake(stet_ctx *ctx, fleet_execution *x, size_t op, const char *name,
                   stet_future **future)
{
    stet_awakeable_id id;
    handler_arg      *arg = handler_arg_new(ctx, x, op, &(fleet_body){ .attempts = 0 });
    char              hand_out[16];
    int               rc;

    if (arg == NULL)
        return STET_ENOMEM;
    if ((rc = stet_awakeable(ctx, &id, future, name)) != STET_OK)
        return rc;
    arg->hand_out = id;
    handler_name(hand_out, op, -1);
    hand_out[0] = 'h';
    return stet_step(ctx, NULL, hand_out, handler_body, arg, NULL);
}

/* The waits of futures have a name of their own, so the first of them has the first signal, and so on. */
static void
handler_check_part(stet_ctx *ctx, fleet_execution *x, size_t op, size_t part, stet_bytes out)
{
    fleet_run *run = x->w->of == NULL ? fleet_run_named(x->w, stet_info(ctx)->run) : NULL;
    size_t     at = fleet_signal_parts(&x->program, op, part);
    char       text[16];

    if (x->program.ops[op].part[part] != FLEET_OP_SIGNAL || run == NULL || run->is_retry ||
        run->is_rewritten || run->is_damaged || at >= FLEET_SIGNALS_MAX)
        return;
    fleet_text(text, sizeof text, out.data, out.len);
    if (at >= run->n_signals[FLEET_SIGNAL_PART] ||
        run->signals[FLEET_SIGNAL_PART][at] != strtoul(text, NULL, 10))
        fleet_fail(x->w, run, "part %zu of operation %zu got signal %s, and is wait %zu of %zu",
                   part, op, text, at + 1, run->n_signals[FLEET_SIGNAL_PART]);
    x->w->stats.checks++;
}

static int
handler_part(stet_ctx *ctx, fleet_execution *x, size_t op, int part, stet_future **future)
{
    const fleet_op    *o = &x->program.ops[op];
    stet_start_options options = { 0 };
    stet_step_options  policy = handler_policy(x, &o->body[part]);
    handler_arg       *arg;
    const char        *input, *duration;
    char               name[16];

    handler_name(name, op, part);
    switch ((fleet_op_kind)o->part[part]) {
    case FLEET_OP_STEP:
        if ((arg = handler_arg_new(ctx, x, op, &o->body[part])) == NULL)
            return STET_ENOMEM;
        arg->part = part;
        return handler_met(ctx, x, name,
                           stet_step_start(ctx, future, name, handler_body, arg, &policy));
    case FLEET_OP_SLEEP:
        duration = stet_ctx_printf(ctx, "%" PRId64 "ms", o->ms / (part + 1));
        return duration == NULL ? STET_ENOMEM : stet_sleep_start(ctx, future, name, duration);
    case FLEET_OP_SIGNAL: return stet_signal_start(ctx, future, "g2", STET_SIGNAL(.id = name));
    case FLEET_OP_AWAKE: return handler_part_awake(ctx, x, op, name, future);
    default:
        if ((input = handler_child(ctx, x, op, part, true, NULL, &options)) == NULL)
            return STET_ENOMEM;
        return stet_call_start(ctx, future, handler_target(&options, o), stet_text(input),
                               &options);
    }
}

static int
handler_await_part(stet_ctx *ctx, fleet_execution *x, size_t op, size_t part, stet_future *future,
                   const char *limit, uint64_t *value)
{
    stet_bytes out = { NULL, 0 };
    int        rc =
        limit != NULL ? stet_await_for(ctx, &out, future, limit) : stet_await(ctx, &out, future);

    if (handler_is_outcome(rc))
        *value = *value * 31 + handler_hash(out) + (uint64_t)-rc;
    if (rc == STET_OK)
        handler_check_part(ctx, x, op, part, out);
    return rc;
}

/* A part that failed is an answer, not a failure of the operation; a stop is one. */
static bool
handler_goes_on(int rc)
{
    return handler_is_outcome(rc) && rc != STET_ECANCELLED && rc != STET_EEXPIRED;
}

static int
handler_futures(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op *o = &x->program.ops[op];
    stet_future    *futures[FLEET_PARTS_MAX];
    size_t          parts[FLEET_PARTS_MAX], n = 0, chosen = 0;
    const char     *limit = NULL;
    fleet_run      *run;
    int             rc = STET_OK;

    for (int i = 0; i < o->parts; i++) {
        parts[n] = (size_t)i;
        rc = handler_part(ctx, x, op, i, &futures[n]);
        if (rc == STET_OK)
            n++;
        else if (!handler_goes_on(rc))
            return rc;
    }
    if (n == 0)
        return rc;
    if (o->wait == FLEET_WAIT_ANY_FOR || o->wait == FLEET_WAIT_EACH_FOR)
        if ((limit = stet_ctx_printf(ctx, "%" PRId64 "ms", o->ms / 2 + 1)) == NULL)
            return STET_ENOMEM;
    if (o->wait == FLEET_WAIT_ANY || o->wait == FLEET_WAIT_ANY_FOR) {
        if (!x->is_asked && (run = fleet_run_named(x->w, stet_info(ctx)->run)) != NULL)
            fleet_order_any(run, x->n_any++, op);
        if ((rc = stet_await_any(ctx, &chosen, futures, n, limit)) != STET_OK)
            return rc;
        *value = chosen + 1;
        rc = handler_await_part(ctx, x, op, parts[chosen], futures[chosen], NULL, value);
        return handler_goes_on(rc) ? STET_OK : rc;
    }
    if (o->wait == FLEET_WAIT_ALL && (rc = stet_await_all(ctx, futures, n)) != STET_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (!handler_goes_on(
                rc = handler_await_part(ctx, x, op, parts[i], futures[i], limit, value)))
            return rc;
    return STET_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

/* "writes sum" */
static void
handler_account(stet_bytes value, uint64_t *writes, uint64_t *sum)
{
    char text[48];

    *writes = *sum = 0;
    if (value.data != NULL && value.len < sizeof text) {
        memcpy(text, value.data, value.len);
        text[value.len] = '\0';
        (void)sscanf(text, "%" SCNu64 " %" SCNu64, writes, sum);
    }
}

/* Reads "writes sum", writes "writes+1 sum+amount"; the model knows what it must find (model.c). */
static int
handler_deposit(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op *o = &x->program.ops[op];
    stet_bytes      out;
    uint64_t        writes, sum;
    char            text[48];
    int             rc;

    if ((rc = stet_state_get(ctx, &out, "account")) != STET_OK)
        return rc;
    handler_account(out, &writes, &sum);
    *value = writes << 32 | sum;
    if (o->ms % 4 == 0 && (rc = handler_step(ctx, x, op, &o->body[0], NULL)) != STET_OK)
        return rc;
    (void)snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, writes + 1, sum + o->seed % 100 + 1);
    return stet_state_set(ctx, "account", stet_text(text));
}

static int
handler_scribble(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op *o = &x->program.ops[op];
    stet_bytes      out;
    char            text[32];
    int             rc;

    switch (o->seed % 3) {
    case 0:
        if ((rc = stet_state_get(ctx, &out, "scribble")) == STET_OK)
            *value = handler_hash(out);
        return rc;
    case 1: return stet_state_clear(ctx, "scribble");
    default:
        (void)snprintf(text, sizeof text, "%" PRIx64, o->seed);
        return stet_state_set(ctx, "scribble", stet_text(text));
    }
}

/* What every key begins with, until it is written or cleared. */
static int
handler_motto(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op *o = &x->program.ops[op];
    stet_bytes      out;
    char            text[32];
    int             rc;

    switch (o->seed % 4) {
    case 0: return stet_state_clear(ctx, "motto");
    case 1:
        (void)snprintf(text, sizeof text, "%" PRIx64, o->seed);
        return stet_state_set(ctx, "motto", stet_text(text));
    default:
        if ((rc = stet_state_get(ctx, &out, "motto")) == STET_OK)
            *value = handler_hash(out);
        return rc;
    }
}

static int
handler_random(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    char text[37];

    if (x->program.ops[op].seed % 2 == 0) {
        *value = stet_random(ctx);
        return STET_OK;
    }
    *value = handler_hash(stet_text(stet_uuid(ctx, text)));
    if (strlen(text) != 36 || text[14] != '4' || strchr("89ab", text[19]) == NULL)
        fleet_fail(x->w, NULL, "%s is no UUID", text);
    return STET_OK;
}

/* A shared handler reads an entry, beside who writes it. Now and then it tries to write, and is refused. */
static int
handler_peek(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    const fleet_op *o = &x->program.ops[op];
    fleet_run      *run = fleet_run_named(x->w, stet_info(ctx)->run);
    size_t          entry = o->seed % FLEET_ENTRIES;
    const char     *name = entry == 0 ? "account" : "scribble";
    stet_bytes      out = { NULL, 0 };
    uint64_t        writes, sum;
    int             rc;

    if (o->seed / FLEET_ENTRIES % 4 == 0) {
        rc = stet_state_set(ctx, name, stet_text("1 1"));
        if (rc == STET_OK)
            fleet_fail(x->w, run, "a shared handler may write %s", name);
        if (rc != STET_EUSAGE)
            return rc;
    }
    if (run != NULL && !x->is_asked)
        fleet_looks(x->w, run, entry, host_claim(ctx)->epoch);
    if ((rc = stet_state_get(ctx, &out, name)) != STET_OK)
        return rc;
    handler_account(out, &writes, &sum);
    *value = entry == 0 ? writes << 32 | sum : handler_hash(out);
    return STET_OK;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Once, as far as the world remembers; nothing is recorded but the end of the attempt. */
static int
handler_defer(stet_ctx *ctx, fleet_execution *x, size_t op)
{
    fleet_run *run = fleet_run_named(x->w, stet_info(ctx)->run);

    /* Executed ahead of its start it was not known, and not deferred: once it is rolled back it had passed here. */
    if (run == NULL || run->was_deferred[op] || run->is_rolled_back ||
        (x->is_asked && (stet_info(ctx)->is_replaying || run->is_fixed[op])))
        return STET_OK;
    run->was_deferred[op] = !x->is_asked;
    return stet_defer_until(ctx, fleet_now_ms(x->w) + x->program.ops[op].ms, "not now");
}

static int
handler_settle(stet_ctx *ctx, fleet_execution *x, size_t op)
{
    const char *id = x->order.awakeable;

    return x->program.ops[op].is_reject ? stet_ctx_reject(ctx, id, "refused by a run")
                                        : stet_ctx_resolve(ctx, id, stet_text("by a run"));
}

static int
handler_sleep(stet_ctx *ctx, fleet_execution *x, size_t op)
{
    fleet_run *run = fleet_run_named(x->w, stet_info(ctx)->run);
    int64_t    ms = x->program.ops[op].ms;
    char       name[16];
    int        rc;

    /* It sleeps again after a rewind, and the store's clock may have been set back meanwhile. */
    if (run != NULL && !stet_info(ctx)->is_replaying && !x->is_asked &&
        (run->asked_ms[op] == 0 || fleet_now_ms(x->w) < run->asked_ms[op])) {
        run->asked_back_ms[op] = x->w->set_back_ms;
        run->asked_ms[op] = fleet_now_ms(x->w);
    }
    handler_name(name, op, -1);
    if ((rc = stet_sleep_ms(ctx, name, ms)) != STET_OK)
        return rc;
    run = fleet_run_named(x->w, stet_info(ctx)->run);
    /* It may have been set back between this look at it and the engine's. */
    if (run != NULL && !run->is_retry &&
        fleet_peak_ms(x->w) < run->asked_ms[op] + ms - (x->w->set_back_ms - run->asked_back_ms[op]))
        fleet_fail(x->w, run, "operation %zu slept less than its %" PRId64 " ms", op, ms);
    return STET_OK;
}

/* ---- other runs ------------------------------------------------------------------------------ */

static int
handler_pick(stet_attempt *a, void *arg)
{
    handler_arg *b = arg;
    char         text[STET_ID_TEXT_MAX];

    (void)fleet_enter(b->x->w, a, b->x, b->seen, b->op);
    fleet_look_pick(b->x->w, text);
    fleet_leave(b->x->w, a);
    return stet_attempt_return(a, stet_text(text));
}

/* That there is none, or that it is damaged, is an answer like others. */
static int
handler_look(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    handler_arg  *arg = handler_arg_new(ctx, x, op, &(fleet_body){ .attempts = 0 });
    fleet_run    *run;
    stet_bytes    out = { NULL, 0 };
    stet_run_id   id;
    stet_run_look look;
    char          name[16];
    int           rc;

    if (arg == NULL)
        return STET_ENOMEM;
    handler_name(name, op, -1);
    name[0] = 'l';
    if ((rc = stet_step(ctx, &out, name, handler_pick, arg, NULL)) != STET_OK)
        return rc;
    fleet_text(id.text, sizeof id.text, out.data, out.len);
    if (strncmp(id.text, "run_", 4) != 0)
        return STET_OK; /* an operator gave another result */
    run = x->w->of == NULL && !x->is_asked ? fleet_run_named(x->w, stet_info(ctx)->run) : NULL;
    if (run != NULL)
        fleet_look_asked(x->w, run, id.text, host_claim(ctx)->epoch);
    rc = stet_run_look_at(ctx, &look, &id);
    *value = rc == STET_ENOTFOUND ? 1 : rc == STET_ECORRUPT ? 2 : 0;
    if (rc == STET_OK)
        *value = (handler_hash(look.value) * 31 + (uint64_t)-look.code) * 31 +
                 (uint64_t)look.status +
                 (look.error != NULL ? handler_hash(stet_text(look.error)) : 0);
    return rc == STET_ENOTFOUND || rc == STET_ECORRUPT ? STET_OK : rc;
}

/* ---- scopes and exits ------------------------------------------------------------------------ */

/* Results inside of a scope go with it; those outside of it stay. */
static int
handler_scope(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    fleet_body   body = x->program.ops[op].body[0];
    handler_arg *arg =
        handler_arg_new(ctx, x, op, &body); /* its undo comes when the scope is gone */
    const char *outside = stet_ctx_printf(ctx, "outside %zu", op), *inside;
    stet_bytes  out = { NULL, 0 };
    char        want[32];
    int         rc;

    if (outside == NULL)
        return STET_ENOMEM;
    stet_scope_begin(ctx);
    stet_scope_begin(ctx);
    rc = handler_step_with(ctx, x, op, &body, arg, &out);
    stet_scope_end(ctx);
    inside = stet_ctx_printf(ctx, "inside %zu", op);
    (void)snprintf(want, sizeof want, "inside %zu", op);
    if (inside != NULL && strcmp(inside, want) != 0)
        fleet_fail(x->w, NULL, "memory of a scope that goes on is lost");
    stet_scope_end(ctx);
    (void)snprintf(want, sizeof want, "outside %zu", op);
    if (strcmp(outside, want) != 0)
        fleet_fail(x->w, NULL, "memory outside of a scope is lost");
    *value = 0;
    return rc;
}

typedef struct handler_exit {
    fleet      *w;
    fleet_node *node;
    unsigned   *calls; /* how many of this execution's were called */
    unsigned    turn;  /* the last is the first */
} handler_exit;

static void
handler_on_exit(void *arg)
{
    handler_exit *e = arg;

    if (++*e->calls != e->turn)
        fleet_fail(e->w, NULL, "exit hook %u is called as number %u", e->turn, *e->calls);
    e->node->exits--;
    e->w->stats.exits++;
}

/* Two hooks that must be called whatever becomes of this execution, unless its node dies. The
 * structs are the context's: they must live until then. */
static void
handler_exits(stet_ctx *ctx, fleet *w)
{
    handler_exit *e = stet_ctx_alloc(ctx, 2 * sizeof *e);
    unsigned     *calls = stet_ctx_alloc(ctx, sizeof *calls);
    fleet_node   *node = fleet_node_of(w, ctx->exec->p);

    if (e == NULL || calls == NULL || node == NULL)
        return;
    *calls = 0;
    e[0] = (handler_exit){ w, node, calls, 1 };
    e[1] = (handler_exit){ w, node, calls, 1 };
    if (stet_on_exit(ctx, handler_on_exit, &e[0]) != STET_OK)
        return;
    node->exits++;
    if (stet_on_exit(ctx, handler_on_exit, &e[1]) != STET_OK)
        return;
    node->exits++;
    e[0].turn = 2;
}

static int
handler_op(stet_ctx *ctx, fleet_execution *x, size_t op, uint64_t *value)
{
    stet_bytes out = { NULL, 0 };
    int64_t    now_ms = 0;
    int        version = 0, rc;
    char       name[16];

    switch (x->program.ops[op].kind) {
    case FLEET_OP_STEP: rc = handler_step(ctx, x, op, &x->program.ops[op].body[0], &out); break;
    case FLEET_OP_SLEEP: rc = handler_sleep(ctx, x, op); break;
    case FLEET_OP_CALL: rc = handler_call(ctx, x, op, &out); break;
    case FLEET_OP_SEND: return handler_send(ctx, x, op, NULL, value);
    case FLEET_OP_AWAKE: return handler_awake(ctx, x, op, value);
    case FLEET_OP_SIGNAL: return handler_signal(ctx, x, op, value);
    case FLEET_OP_DECIDE: return handler_decide(ctx, x, op, value);
    case FLEET_OP_EVENT: return handler_event(ctx, x, op, value);
    case FLEET_OP_APPROVE: return handler_person(ctx, op, true, value);
    case FLEET_OP_PAUSE: return handler_person(ctx, op, false, value);
    case FLEET_OP_EMIT: return handler_emit(ctx, x, value);
    case FLEET_OP_DEPOSIT: return handler_deposit(ctx, x, op, value);
    case FLEET_OP_SCRIBBLE: return handler_scribble(ctx, x, op, value);
    case FLEET_OP_PEEK: return handler_peek(ctx, x, op, value);
    case FLEET_OP_FUTURES: return handler_futures(ctx, x, op, value);
    case FLEET_OP_VERSION:
        handler_name(name, op, -1);
        rc = stet_version(ctx, &version, name, 1, 3);
        *value = (uint64_t)version;
        return rc;
    case FLEET_OP_NOW:
        rc = stet_now(ctx, &now_ms);
        *value = (uint64_t)now_ms;
        return rc;
    case FLEET_OP_RANDOM: return handler_random(ctx, x, op, value);
    case FLEET_OP_ROLLBACK: return stet_rollback(ctx);
    case FLEET_OP_MOTTO: return handler_motto(ctx, x, op, value);
    case FLEET_OP_LOOK: return handler_look(ctx, x, op, value);
    case FLEET_OP_DEFER: return handler_defer(ctx, x, op);
    case FLEET_OP_SCOPE: return handler_scope(ctx, x, op, value);
    default: return handler_settle(ctx, x, op);
    }
    *value = handler_hash(out);
    return rc;
}

/* It was told to stop: clean up with one more step, if it is of that kind. */
static int
handler_stopped(stet_ctx *ctx, fleet_execution *x, int code)
{
    int rc;

    if (!x->program.is_tidy)
        return code;
    rc = handler_step(ctx, x, FLEET_OPS_MAX, &(fleet_body){ .takes_ms = 5 }, NULL);
    return rc == STET_OK ? code : rc;
}

static int
handler_return(stet_ctx *ctx, fleet_execution *x)
{
    if (x->program.verdict == FLEET_VERDICT_DEFER
            ? !x->is_asked && handler_is_put_off(x->w, stet_info(ctx)->run, FLEET_OPS_MAX, 1,
                                                 x->program.verdict)
            : stet_info(ctx)->attempt <= x->program.fails)
        return stet_fail(ctx, STET_ERETRY, "not this time [%c]",
                         handler_verdicts[x->program.verdict].letter);
    if (x->program.is_doomed)
        return stet_fail(ctx, STET_EPERMANENT, "doomed");
    return stet_return(ctx, (stet_bytes){ x->seen, x->n * sizeof x->seen[0] });
}

/* A generation that leaves everything to the next: signals that come meanwhile, and a wait. */
static int
handler_turn(stet_ctx *ctx, fleet_execution *x, stet_bytes input)
{
    stet_future *left;
    int          rc;

    if ((rc = stet_sleep_start(ctx, &left, "left", "30d")) != STET_OK)
        return rc;
    if (x->order.seed % 3 != 0 && (rc = stet_sleep_ms(ctx, "turn", 20)) != STET_OK)
        return rc;
    x->w->stats.turns += !x->is_asked;
    return stet_continue(ctx, input);
}

static void
handler_saw(stet_ctx *ctx, const fleet_execution *x, size_t op, int rc)
{
    fleet        *w = x->w;
    fleet_op_kind kind = x->program.ops[op].kind;

    w->stats.ops[kind]++;
    fleet_trace(w, fleet_node_of(w, ctx->exec->p), fleet_run_named(w, stet_info(ctx)->run), "saw",
                fleet_op_names[kind], (int64_t)op, rc);
}

/* How often it finds no memory of its own on the way to where its rollback goes on, or has to begin; 0: never. */
static uint64_t
handler_unlucky_one_in(const fleet_run *run)
{
    if (run->is_rolled_back)
        return !run->is_undone      ? HANDLER_UNLUCKY_ONE_IN
               : run->inherited > 1 ? HANDLER_HEIR_ONE_IN
                                    : HANDLER_UNDONE_ONE_IN;
    return run->program.is_undone && run->attempts + 1 >= run->attempts_max ? HANDLER_LAST_ONE_IN
                                                                            : 0;
}

/* Was one of the futures of this operation done beside its rollback? Only who comes so far knows of it. */
static bool
handler_has_beside(const fleet_run *run, size_t op)
{
    char   name[16];
    size_t len;

    handler_name(name, op, -1);
    len = strlen(name);
    for (const fleet_step *s = run->steps; s != NULL; s = s->next)
        if (s->is_beside && strncmp(s->step, name, len) == 0 && s->step[len] == '-')
            return true;
    return false;
}

static bool
handler_is_unlucky(stet_ctx *ctx, const fleet_execution *x, size_t op)
{
    const fleet_run *run;
    uint64_t         one_in;

    return x->w->plan.has_whims && !x->is_asked && x->w->of == NULL &&
           (run = fleet_run_named(x->w, stet_info(ctx)->run)) != NULL &&
           (one_in = run->is_rolled_back && handler_has_beside(run, op)
                         ? HANDLER_BESIDE_ONE_IN
                         : handler_unlucky_one_in(run)) != 0 &&
           fleet_whim_strikes(x->w, one_in);
}

/* Some that inherit steps fail for good just behind them: all they ever undo is another run's. */
static bool
handler_is_spoilt(const stet_ctx *ctx, const fleet_execution *x, size_t op)
{
    const fleet *w = x->w->of != NULL ? x->w->of : x->w;
    char         name[16];

    handler_name(name, op, -1);
    return w->plan.has_whims && x->program.is_undone && ctx->journal.inherited > 0 &&
           !stet__id_is_zero(ctx->run.retry_of) &&
           ctx->run.id.bytes[15] % HANDLER_SPOILT_ONE_IN == 0 &&
           stet__journal_find(&ctx->journal, STET__FACT_STEP, name, 1) == NULL;
}

/* What is to be undone is, also if there is no memory for anything else. */
static int
handler_asks_early(stet_ctx *ctx, stet_bytes input)
{
    static fleet_program program; /* nothing else is executed meanwhile */
    fleet_order          order;

    if (!fleet_order_parse(&order, input))
        return STET_ENOMEM;
    fleet_program_make(&program, &order, stet_info(ctx)->key != NULL, fleet_here->ops_max);
    return program.is_undone ? stet_rollback_on_failure(ctx, true) : STET_OK;
}

int
fleet_handler(stet_ctx *ctx, stet_bytes input)
{
    fleet           *w = fleet_here;
    fleet_execution *x = stet_ctx_alloc(ctx, sizeof *x);
    int              rc;

    if (x == NULL) {
        rc = handler_asks_early(ctx, input);
        return rc == STET_OK ? STET_ENOMEM : rc;
    }
    memset(x, 0, sizeof *x);
    x->w = w;
    x->began_us = stet__sim_now_us(w->sim);
    x->is_asked = !ctx->exec->host->takes_updates;
    if (!x->is_asked)
        fleet_entered(w, stet_info(ctx)->run);
    handler_meets(ctx, x);
    handler_exits(ctx, w);
    if (!fleet_order_parse(&x->order, input))
        return stet_fail(ctx, STET_EPERMANENT, "an input nobody sent");
    fleet_program_make(&x->program, &x->order, stet_info(ctx)->key != NULL, w->ops_max);
    if (x->program.is_undone && (rc = stet_rollback_on_failure(ctx, true)) != STET_OK)
        return rc;
    if ((rc = fleet_live(ctx, x)) != STET_OK)
        return rc;
    if (stet_info(ctx)->generation < x->program.turns)
        return handler_turn(ctx, x, input);
    for (size_t op = 0; op < x->program.n; op++) {
        uint64_t value = 0;

        if (handler_is_unlucky(ctx, x, op))
            return STET_ENOMEM;
        if (handler_is_spoilt(ctx, x, op))
            return stet_fail(ctx, STET_EPERMANENT, "spoilt");
        rc = handler_op(ctx, x, op, &value);
        if (!handler_is_outcome(rc) || rc == STET_ECOMPENSATION)
            return rc;
        x->seen[x->n++] = (fleet_seen){ .code = rc,
                                        .kind = (uint16_t)x->program.ops[op].kind,
                                        .updates = (uint16_t)x->chain,
                                        .value = value };
        if (!x->is_asked)
            handler_saw(ctx, x, op, rc);
        if (rc == STET_ECANCELLED || rc == STET_EEXPIRED)
            return handler_stopped(ctx, x, rc);
        if (rc != STET_OK && !x->program.is_stubborn)
            return rc;
    }
    return handler_return(ctx, x);
}

int
fleet_register(stet_engine *e)
{
    static const stet_handler_options options = {
        .retry = { .attempts = 4, .first_ms = 50, .max_ms = 2000 }, .classify = handler_classify
    };
    static const stet_handler_options shared = {
        .retry = { .attempts = 4, .first_ms = 50, .max_ms = 2000 },
        .classify = handler_classify,
        .shared = true
    };
    static const stet_handler of_service[] = { { "run", fleet_handler, &options },
                                               { NULL, NULL, NULL } };
    static const stet_handler of_object[] = { { "run", fleet_handler, &options },
                                              { "peek", fleet_handler, &shared },
                                              { NULL, NULL, NULL } };
    static const stet_entry   initial[] = { { "motto", { FLEET_MOTTO, sizeof FLEET_MOTTO - 1 } },
                                            { NULL, { NULL, 0 } } };
    int                       err;

    if ((err = stet_register(e, "svc", of_service)) != STET_OK)
        return err;
    return stet_register_object(e, "obj", of_object, initial);
}
