/* Updates and queries: what a run's variables were told, and what they say.
 *
 * An update is a number, which is its input and, as "u7", its key. The handler keeps the numbers it was
 * told in their order. What it answers is told by the numbers before: so the record of an update says
 * whether it was made in the order of the inbox, once, and with what was there. A refused one changes
 * nothing.
 *
 * A query gives all the handler knows: what every operation gave, and which updates it had made by
 * then. It tells of the record: no later execution may contradict it, and it is not older than what was
 * known outside when it was asked. /
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/context.h"
#include "fleet.h"

enum { LIVE_FAILS = STET_EPERMANENT };

static bool
live_is_refused(uint32_t number)
{
    return number % 7 == 3;
}

/* It is made, and answers with a failure. */
static bool
live_is_failure(uint32_t number)
{
    return number % 7 == 5;
}

static uint64_t
live_chain(uint64_t chain, uint32_t number)
{
    return stet__hash64(&number, sizeof number, chain) | 1u;
}

static uint32_t
live_number(stet_bytes text, size_t skip)
{
    uint32_t number = 0;

    for (size_t i = skip; i < text.len; i++)
        number = number * 10 + (uint32_t)(((const char *)text.data)[i] - '0');
    return number;
}

/* Of what is recorded; behind it the handler says in which operation it was. */
static size_t
live_answer(char text[48], uint32_t number, uint64_t before)
{
    return (size_t)snprintf(text, 48, "%u after %llx in ", number, (unsigned long long)before);
}

/* ---- in the handler -------------------------------------------------------------------------- */

static int
live_validate(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)arg;
    return live_is_refused(live_number(input, 0)) ? stet_reply_fail(reply, LIVE_FAILS, "refused")
                                                  : STET_OK;
}

static int
live_apply(void *arg, stet_bytes input, stet_reply *reply)
{
    fleet_execution *x = arg;
    uint32_t         number = live_number(input, 0);
    size_t           at;
    char             text[48];

    at = live_answer(text, number, x->chain);
    (void)snprintf(text + at, sizeof text - at, "%zu", x->n);
    x->chain = live_chain(x->chain, number);
    if (x->n_updates < FLEET_UPDATES_MAX)
        x->updates[x->n_updates] = number;
    x->n_updates++;
    if (live_is_failure(number))
        return stet_reply_fail(reply, LIVE_FAILS, "%s", text);
    return stet_reply_set(reply, stet_text(text));
}

/* What it saw, and a last one that tells of its updates. */
static int
live_tell(void *arg, stet_bytes input, stet_reply *reply)
{
    fleet_execution *x = arg;

    (void)input;
    x->seen[x->n] = (fleet_seen){ .code = (int32_t)x->generation,
                                  .updates = (uint16_t)x->n_updates,
                                  .value = x->chain };
    return stet_reply_set(reply, (stet_bytes){ x->seen, (x->n + 1) * sizeof x->seen[0] });
}

int
fleet_live(stet_ctx *ctx, fleet_execution *x)
{
    int rc;

    x->generation = (int64_t)stet_info(ctx)->generation;
    if ((rc = stet_on_query(ctx, "state", live_tell, x)) != STET_OK)
        return rc;
    return stet_on_update(ctx, "add", live_validate, live_apply, x);
}

/* ---- in the store ---------------------------------------------------------------------------- */

static fleet_update *
live_find(fleet *w, const fleet_run *run, uint32_t number)
{
    fleet_update *u = number > 0 && number <= w->n_updates ? &w->updates[number - 1] : NULL;

    if (u == NULL || u->run != run) {
        fleet_fail(w, run, "update %u, and nobody asked it for that", number);
        return NULL;
    }
    return u;
}

/* It was put into the run's inbox; with its key it may be more than once. */
void
fleet_update_asked(fleet *w, fleet_run *run, const stet__fact *fact)
{
    uint32_t      number = live_number(fact->value, 0);
    fleet_update *u = live_find(w, run, number);

    if (u != NULL && u->entry == 0)
        u->entry = run->inbox;
}

/* Those that came before it are made, too. */
static void
live_check_order(fleet *w, const fleet_run *run, uint32_t number, const fleet_update *u)
{
    for (size_t i = 0; i < w->n_updates; i++)
        if (w->updates[i].run == run && w->updates[i].entry != 0 &&
            w->updates[i].entry < u->entry && !w->updates[i].is_made)
            fleet_fail(w, run, "update %u is made before %zu, which came first", number, i + 1);
}

static void
live_check_answer(fleet *w, const fleet_run *run, uint32_t number, fleet_update *u,
                  const stet__fact *fact)
{
    bool       is_refused = live_is_refused(number);
    stet_bytes text = fact->code == 0 ? fact->value : fact->text;
    char       want[48] = "refused", got[48];

    if (!is_refused) {
        (void)live_answer(want, number, run->chain);
        if (run->has_inherited) /* it may come to those later */
            *(strstr(want, "after ") + 6) = '\0';
    }
    (void)snprintf(got, sizeof got, "%.*s", (int)text.len, (const char *)text.data);
    if (is_refused != ((fact->flags & STET__FACT_REJECTED) != 0) ||
        (is_refused || live_is_failure(number) ? LIVE_FAILS : STET_OK) != (int)fact->code)
        fleet_fail(w, run, "update %u is recorded with %s", number,
                   stet_code_name((int)fact->code));
    /* Made again, after a rewind: what was answered stands. */
    if (u->is_answered ? strcmp(got, u->answer) != 0 : strncmp(got, want, strlen(want)) != 0)
        fleet_fail(w, run, "update %u is answered with \"%s\", and it was \"%s\"", number, got,
                   u->is_answered ? u->answer : want);
    (void)snprintf(u->answer, sizeof u->answer, "%s", got);
}

/* In which operation it was made; only behind a sleep or a decision everybody has waited for it. */
static size_t
live_op(const fleet_run *run, stet_bytes wait)
{
    static const char *const waits[] = { "await sleep s", "decision wait b" };

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        size_t n = strlen(waits[i]), op = 0;

        if (wait.len <= n || memcmp(wait.data, waits[i], n) != 0)
            continue;
        for (const char *at = wait.data; n < wait.len && at[n] >= '0' && at[n] <= '9'; n++)
            op = op * 10 + (size_t)(at[n] - '0');
        return op < run->program.n && run->program.ops[op].kind != FLEET_OP_FUTURES ? op
                                                                                    : FLEET_OPS_MAX;
    }
    return FLEET_OPS_MAX;
}

static void
live_made(fleet *w, fleet_run *run, uint32_t number, const stet__fact *fact)
{
    fleet_made *made = stet__arena_get0(&w->arena, sizeof *made);

    if (made == NULL)
        abort();
    run->chain = live_chain(run->chain, number);
    run->n_updates++;
    *made = (fleet_made){ .number = number,
                          .revision = fact->revision,
                          .chain = run->chain,
                          .is_inherited = (fact->flags & STET__FACT_INHERITED) != 0,
                          .op = live_op(run, fact->topic),
                          .before = run->made };
    run->made = made;
}

void
fleet_update_made(fleet *w, fleet_run *run, const stet__fact *fact)
{
    bool     is_inherited = (fact->flags & STET__FACT_INHERITED) != 0;
    uint32_t number =
        is_inherited ? live_number(fact->value, 0) : live_number(fact->idempotency_key, 1);
    fleet_update *u;

    if (is_inherited) {
        run->has_inherited = true;
        live_made(w, run, number, fact);
        return;
    }
    if ((u = live_find(w, run, number)) == NULL)
        return;
    if (u->entry == 0)
        fleet_fail(w, run, "update %u is made, and was never in its inbox", number);
    if (u->is_made)
        fleet_fail(w, run, "update %u is made twice", number);
    live_check_order(w, run, number, u);
    live_check_answer(w, run, number, u, fact);
    u->is_made = u->is_answered = true;
    w->stats.updates++;
    if (!live_is_refused(number))
        live_made(w, run, number, fact);
}

/* Those it made since are to be made again. What was refused stays so. */
void
fleet_updates_rewound(fleet *w, fleet_run *run, uint64_t from)
{
    while (run->made != NULL && run->made->revision >= from) {
        if (!run->made->is_inherited)
            w->updates[run->made->number - 1].is_made = false;
        run->made = run->made->before;
        run->n_updates--;
    }
    run->chain = run->made != NULL ? run->made->chain : 0;
}

static bool
live_knows(const fleet_execution *x, uint32_t number)
{
    for (size_t i = 0; i < x->n_updates && i < FLEET_UPDATES_MAX; i++)
        if (x->updates[i] == number)
            return true;
    return x->n_updates > FLEET_UPDATES_MAX;
}

void
fleet_check_inherited(fleet *w, const fleet_run *run, const fleet_execution *x, size_t seen)
{
    for (const fleet_made *made = run->made; made != NULL; made = made->before)
        if (made->is_inherited && made->op < seen && !live_knows(x, made->number))
            fleet_fail(
                w, run,
                "it is behind operation %zu, and does not know update %u, which it inherits there",
                made->op, made->number);
}

/* Another generation has variables of its own. */
void
fleet_updates_turned(fleet_run *run)
{
    run->made = NULL;
    run->n_updates = 0;
    run->chain = 0;
}

/* One that waits has made all it was asked for. */
void
fleet_check_waiting(fleet *w, const fleet_run *run, const char *why)
{
    static const char *const waits[] = { "awakeable", "signal", "decision", "child", "timer" };

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++)
        for (size_t k = 0; strcmp(why, waits[i]) == 0 && k < w->n_updates; k++)
            if (w->updates[k].run == run && w->updates[k].entry != 0 && !w->updates[k].is_made &&
                !run->is_damaged)
                fleet_fail(w, run, "it waits (%s), and has not made update %zu", why, k + 1);
}

/* What its result knows is what is recorded. */
void
fleet_check_updates(fleet *w, const fleet_run *run, const fleet_seen *last)
{
    if (!run->has_inherited && last->updates != (uint16_t)run->chain)
        fleet_fail(w, run, "its result knows other updates than the %zu that are recorded",
                   run->n_updates);
}

/* ---- asking for updates ---------------------------------------------------------------------- */

static uint32_t
live_new(fleet *w, fleet_run *run)
{
    if (w->n_updates == w->cap_updates) {
        size_t cap = w->cap_updates > 0 ? w->cap_updates * 2 : 64;
        void  *grown = realloc(w->updates, cap * sizeof *w->updates);

        if (grown == NULL)
            abort();
        w->updates = grown;
        w->cap_updates = cap;
    }
    w->updates[w->n_updates++] = (fleet_update){ .run = run };
    return (uint32_t)w->n_updates;
}

static bool
live_is_passing(int code)
{
    stet_class class_ = stet_code_class(code);

    return class_ == STET_CLASS_RETRY || class_ == STET_CLASS_UNKNOWN ||
           class_ == STET_CLASS_FENCED || code == STET_EPOISONED;
}

/* An answer is that of the record, however often it is asked for. */
static void
live_answered(fleet *w, uint32_t number, int err, stet_bytes reply)
{
    const fleet_update *u = &w->updates[number - 1];
    const fleet_run    *run = u->run;

    if (err == STET_OK || err == LIVE_FAILS) {
        if (!u->is_answered)
            fleet_fail(w, run, "update %u is answered, and not recorded", number);
        else if ((err != STET_OK) != (live_is_refused(number) || live_is_failure(number)) ||
                 (err == STET_OK && (reply.len != strlen(u->answer) ||
                                     memcmp(reply.data, u->answer, reply.len) != 0)) ||
                 (err != STET_OK && strstr(stet_last_error(), u->answer) == NULL))
            fleet_fail(w, run, "update %u is answered %s \"%.*s\", and it was \"%s\"", number,
                       stet_code_name(err), (int)reply.len, (const char *)reply.data, u->answer);
    } else if (err == STET_ETIMEOUT) {
        if (u->entry == 0)
            fleet_fail(w, run, "update %u was accepted, and is not in its inbox", number);
    } else if (err == STET_EENDED) {
        if (run->end == 0 || u->is_answered)
            fleet_fail(w, run, "update %u: its run is said to have ended without it", number);
    } else if (!(err == STET_ENOTFOUND && run->is_purged) &&
               !(err == STET_ECORRUPT && run->is_damaged) && !live_is_passing(err))
        fleet_fail(w, run, "update %u gives %s: %s", number, stet_code_name(err),
                   stet_last_error());
    if (err != STET_ENOTFOUND)
        w->stats.answers++;
}

static void
live_ask(fleet *w, stet_engine *e, uint32_t number, int64_t timeout_ms)
{
    stet_bytes  reply = { NULL, 0 };
    stet_run_id id;
    char        key[16];
    int         err;

    memcpy(id.text, w->updates[number - 1].run->text, sizeof id.text);
    (void)snprintf(key, sizeof key, "u%u", number);
    err = stet_update(e, &reply, &id, "add", stet_text(key + 1),
                      STET_UPDATE_OPTIONS(.idempotency_key = key, .timeout_ms = timeout_ms));
    live_answered(w, number, err, reply);
    stet_free((void *)(uintptr_t)reply.data);
}

/* A new one, or one that was asked for before, perhaps by somebody who still waits. */
void
fleet_ask_update(fleet_node *node, fleet_run *run)
{
    fleet   *w = node->w;
    uint64_t draw = fleet_draw(&w->draws, 3);
    int64_t  timeout_ms =
        1 + (int64_t)fleet_draw(&w->draws, fleet_draw(&w->draws, 2) == 0 ? 50 : 3000);
    uint32_t number;

    if (w->n_updates == 0 || draw > 1)
        number = live_new(w, run);
    else if (draw == 1)
        number = (uint32_t)w->n_updates;
    else
        number = 1 + (uint32_t)fleet_draw(&w->draws, w->n_updates);
    live_ask(w, node->engine, number, timeout_ms);
}

/* Everything is over: who asks again gets what was answered. */
void
fleet_check_answers(fleet *w, stet_engine *e)
{
    for (uint32_t i = 1; i <= w->n_updates && !w->is_failed; i++)
        if (w->updates[i - 1].is_answered && !w->updates[i - 1].run->is_damaged)
            live_ask(w, e, i, 1);
}

/* ---- asking queries -------------------------------------------------------------------------- */

/* What is known outside of a run. */
typedef struct live_known {
    int64_t  generation;
    size_t   n; /* operations whose outcome is fixed */
    size_t   n_updates;
    unsigned rewrites;
} live_known;

static live_known
live_known_of(const fleet_run *run)
{
    live_known k = { .generation = run->generation,
                     .n_updates = run->n_updates,
                     .rewrites = run->rewrites };

    while (k.n < run->program.n && run->is_fixed[k.n])
        k.n++;
    return k;
}

static void
live_judge(fleet *w, fleet_run *run, const live_known *known, stet_bytes reply)
{
    fleet_seen        seen[FLEET_OPS_MAX + 1];
    const fleet_seen *last;
    const fleet_made *made = run->made;
    size_t            n = reply.len / sizeof seen[0];

    if (n == 0 || n > FLEET_OPS_MAX + 1 || reply.len % sizeof seen[0] != 0) {
        fleet_fail(w, run, "a query gives %zu bytes", reply.len);
        return;
    }
    memcpy(seen, reply.data, reply.len);
    last = &seen[--n];
    w->stats.queries++;
    if (run->rewrites != known->rewrites || run->generation != known->generation)
        return; /* it may tell of what was before, or after */
    if (last->code != (int32_t)run->generation)
        fleet_fail(w, run, "a query tells of generation %d, and it is %lld", last->code,
                   (long long)run->generation);
    fleet_seen_check(w, run, seen, n, true);
    if (run->is_retry)
        return; /* it may never come to what it inherited */
    if (n < known->n)
        fleet_fail(w, run, "a query knows %zu operations, and %zu were recorded before", n,
                   known->n);
    if (last->updates < known->n_updates || last->updates > run->n_updates) {
        fleet_fail(w, run, "a query knows %u updates, of %zu that are recorded and were %zu before",
                   (unsigned)last->updates, run->n_updates, known->n_updates);
        return;
    }
    for (size_t i = run->n_updates; i > last->updates; i--)
        made = made->before;
    if (last->value != (made != NULL ? made->chain : 0))
        fleet_fail(w, run, "a query knows other updates than are recorded");
}

void
fleet_ask_query(fleet_node *node, fleet_run *run)
{
    fleet      *w = node->w;
    live_known  known = live_known_of(run);
    stet_bytes  reply = { NULL, 0 };
    stet_run_id id;
    int         err;

    memcpy(id.text, run->text, sizeof id.text);
    err = stet_query(node->engine, &reply, &id, "state", stet_text(""), 1000);
    if (err == STET_OK)
        live_judge(w, run, &known, reply);
    else if (!(err == STET_ENOTFOUND && run->is_purged) &&
             !(err == STET_ECORRUPT && run->is_damaged) &&
             !(err == STET_EUNSERVED && run->is_unserved) &&
             !live_is_passing(err))
        fleet_fail(w, run, "a query gives %s: %s", stet_code_name(err), stet_last_error());
    stet_free((void *)(uintptr_t)reply.data);
}
