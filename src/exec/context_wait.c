/* Waiting: futures, sleeps, any, all, time limits.
 *
 * A wait looks at what is settled, in the order in which the journal saw it, and otherwise suspends. If
 * more than one thing could end it (several futures, a time limit, a cancel), what ended it is recorded
 * as a choice, so every replay goes the same way whatever has arrived since.
 */
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

#undef stet_sleep
#undef stet_sleep_ms
#undef stet_sleep_start
#undef stet_await
#undef stet_await_for
#undef stet_await_all
#undef stet_await_any

/* One wait: for which futures, until when, recorded under which name. */
typedef struct wait_set {
    stet_future *const *futures;
    size_t              n;
    bool                is_all;
    stet__fact_kind     kind;       /* STET__FACT_AWAIT or STET__FACT_ANY */
    const char         *name;
    uint64_t            occurrence;
    int64_t             timeout_ms; /* 0: none */
    bool                must_record; /* the choice matters */
    stet__cmd          *cmd;        /* its command, if recorded */
} wait_set;

/* What came behind a failure that is being rolled back the handler never knew. */
static bool
wait_is_settled(const stet_ctx *c, const stet__cmd *cmd)
{
    return cmd->is_settled && !stet__rollback_is_before(c, cmd->settled_at);
}

static bool
wait_is_ready(const stet_future *f)
{
    return f->is_broken || (f->cmd != NULL && wait_is_settled(f->ctx, f->cmd));
}

/* The one that settled first; n: none. A passing failure counts as the latest. */
static size_t
wait_first(const wait_set *w)
{
    size_t   best = w->n;
    uint64_t best_at = UINT64_MAX;

    for (size_t i = 0; i < w->n; i++) {
        const stet_future *f = w->futures[i];
        uint64_t           at;

        if (!wait_is_ready(f))
            continue;
        at = f->is_broken ? UINT64_MAX - 1 : STET__MUTANT(choice_unrecorded) ? i : f->cmd->settled_at;
        if (STET__MUTANT(settle_order) && !f->is_broken)
            at = i;
        if (at < best_at) {
            best = i;
            best_at = at;
        }
    }
    return best;
}

static bool
wait_is_over(const wait_set *w)
{
    size_t ready = 0;

    for (size_t i = 0; i < w->n; i++)
        ready += wait_is_ready(w->futures[i]);
    return w->is_all ? ready == w->n : ready > 0;
}

/* May an earlier execution have left it? */
static bool
wait_is_passed(const stet_ctx *c, const wait_set *w)
{
    size_t settled = 0;

    if (w->cmd != NULL && (w->cmd->is_settled || w->cmd->fired_at != 0))
        return (w->cmd->is_settled ? w->cmd->settled_at : w->cmd->fired_at) <= c->passed;
    for (size_t i = 0; i < w->n; i++) {
        const stet__cmd *cmd = w->futures[i]->cmd;

        settled += cmd != NULL && cmd->is_settled && cmd->settled_at <= c->passed;
    }
    return w->is_all ? settled == w->n : settled > 0;
}

/* The await's own command: holds the time limit and answers with the choice. */
static int
wait_open(stet_ctx *c, wait_set *w, int code)
{
    stet__fact fact = { 0 };
    int        err;

    fact.kind = w->kind;
    fact.name = stet_text(w->name);
    fact.occurrence = (int64_t)w->occurrence;
    fact.code = code;
    if (code == 0 && w->timeout_ms > 0)
        fact.until_ms = stet__time_add(c->exec->host->now_ms(c), w->timeout_ms);
    if (code != 0)
        fact.text = stet_text(stet__ctx_stop_text(c));
    if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
        return err;
    if ((w->cmd = stet__journal_add(&c->journal, w->kind, w->name, w->occurrence, 0)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    if ((err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    return STET_OK;
}

static int
wait_choose(stet_ctx *c, wait_set *w, int code, size_t chosen)
{
    stet__fact fact = { 0 };
    int        err;

    fact.kind = STET__FACT_CHOICE;
    fact.name = stet_text(w->name);
    fact.occurrence = (int64_t)w->occurrence;
    fact.completion = (int64_t)w->cmd->completion;
    fact.number = (int64_t)chosen;
    fact.code = code;
    fact.until_ms = w->cmd->until_ms; /* so the host can remove the timer */
    if (code == STET_ETIMEOUT)
        fact.text = stet_text("the time was up first");
    else if (code != 0)
        fact.text = stet_text(stet__ctx_stop_text(c));
    if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
        return err;
    if ((err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    return STET_OK;
}

/* Step futures whose next execution has become due. */
static int
wait_restart_steps(stet_ctx *c, const wait_set *w)
{
    int err;

    for (size_t i = 0; i < w->n; i++) {
        stet_future *f = w->futures[i];

        if (f->kind == STET__FUTURE_STEP && f->running == NULL && !wait_is_ready(f) && f->cmd != NULL &&
            f->cmd->completion != 0 && f->cmd->fired_at != 0 && (err = stet__step_begin(c, f)) != STET_OK)
            return err;
    }
    return STET_OK;
}

int
stet__wait_for_news(stet_ctx *c, stet_future *const *futures, size_t n, bool is_all)
{
    const stet_future *f = futures[0];
    char               id[STET_ID_TEXT_MAX] = "";
    char              *at = c->waits_for;
    const char        *end = at + sizeof c->waits_for;

    for (size_t i = 0; i < n; i++)
        if (!wait_is_ready(futures[i])) {
            f = futures[i];
            break;
        }
    if (f->cmd != NULL && f->cmd_kind == STET__FACT_CALL)
        stet__id_text(id, STET__ID_RUN, f->cmd->run);
    if (f->cmd != NULL && f->cmd_kind == STET__FACT_AWAKEABLE)
        stet__id_text(id, STET__ID_AWAKEABLE, f->cmd->run);
    at = stet__text_add(at, end, n > 1 ? (is_all ? "all of " : "any of ") : "");
    at = stet__text_add(at, end, stet__fact_kind_name(f->cmd_kind));
    at = stet__text_add(at, end, " ");
    at = stet__text_add(at, end, f->name);
    at = stet__text_add(at, end, id[0] != '\0' ? " " : "");
    (void)stet__text_add(at, end, id);
    stet__run_settle_risks(&c->run);
    return stet__ctx_await_news(c);
}

int
stet__wait_record(stet_ctx *c, stet_future *f, stet__fact *fact, int code)
{
    int err;

    fact->kind = f->cmd_kind;
    fact->name = stet_text(f->name);
    fact->occurrence = (int64_t)f->occurrence;
    fact->code = code;
    if (code != 0)
        fact->text = stet_text(stet__ctx_stop_text(c));
    if ((err = stet__ctx_append(c, fact, NULL)) != STET_OK)
        return err;
    if (f->cmd == NULL && (f->cmd = stet__journal_add(&c->journal, f->cmd_kind, f->name, f->occurrence, 0)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    if ((err = stet__journal_apply(&c->journal, fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    return STET_OK;
}

int
stet__wait_settled(stet_ctx *c, stet_future *f, int (*record)(stet_ctx *c, stet_future *f, int64_t until_ms, int code))
{
    stet_future *const set[1] = { f };
    int                err;

    while (!wait_is_settled(c, f->cmd)) {
        if ((err = stet__ctx_catch_up(c)) != STET_OK ||
            (err = stet__updates_here(c, f->cmd_kind, f->name, f->occurrence, false)) != STET_OK)
            return err;
        if (wait_is_settled(c, f->cmd))
            break;
        if (stet__ctx_is_undone(c))
            return c->latch;
        if (c->run.stop_code != 0 && !c->run.is_stop_told)
            err = record(c, f, 0, c->run.stop_code);
        else
            err = stet__wait_for_news(c, set, 1, false);
        if (err != STET_OK)
            return err;
    }
    return stet__updates_here(c, f->cmd_kind, f->name, f->occurrence, f->cmd->settled_at <= c->passed);
}

/* A retry inherits the choice and not the future, if that had failed: it is tried again, and chosen anew. */
static bool
wait_is_void(const wait_set *w)
{
    if (w->cmd == NULL || !w->cmd->is_settled || !w->cmd->is_inherited || w->cmd->code != 0)
        return false;
    if (w->is_all)
        return !wait_is_over(w);
    return (size_t)w->cmd->number >= w->n || !wait_is_ready(w->futures[w->cmd->number]);
}

/* Returns STET_OK (ready; *chosen), STET_ETIMEOUT, or the code of a stop. */
static int
wait_run(stet_ctx *c, wait_set *w, size_t *chosen)
{
    int err;

    if ((err = stet__updates_here(c, w->kind, w->name, w->occurrence, wait_is_passed(c, w))) != STET_OK)
        return err;
    if (wait_is_void(w))
        w->cmd = NULL;
    if (w->cmd != NULL && w->cmd->is_settled) {
        *chosen = (size_t)w->cmd->number;
        return w->cmd->code == 0 ? STET_OK : stet__ctx_fail(c, w->cmd->code, 0, w->cmd->text, NULL, 0);
    }
    for (;;) {
        bool     is_over;
        uint64_t first_at, order;

        if ((err = stet__ctx_catch_up(c)) != STET_OK ||
            (err = stet__updates_here(c, w->kind, w->name, w->occurrence, wait_is_passed(c, w))) != STET_OK)
            return err;
        order = c->journal.order;
        if ((err = wait_restart_steps(c, w)) != STET_OK)
            return err;
        if (c->journal.order != order)
            continue; /* starting one took news in, by which another may have become due */
        *chosen = wait_first(w);
        is_over = wait_is_over(w);
        /* Nothing new is recorded in a rollback that was taken up: the handler ends where it ended before. A wait for
         * all may have been left with some that had failed passingly, and left no record. */
        if (!is_over && w->is_all && stet__rollback_has_more(c))
            return STET_OK;
        if ((!is_over || w->must_record || w->cmd != NULL) && !STET__MUTANT(undone_goes_on) && stet__ctx_is_undone(c))
            return c->latch;
        first_at = is_over && !w->futures[*chosen]->is_broken ? w->futures[*chosen]->cmd->settled_at : UINT64_MAX;
        if (w->cmd != NULL && w->cmd->fired_at != 0 && (!is_over || w->cmd->fired_at < first_at)) {
            if ((err = wait_choose(c, w, STET_ETIMEOUT, 0)) != STET_OK)
                return err;
            return stet__ctx_fail(c, STET_ETIMEOUT, 0, "the time was up first", NULL, 0);
        }
        if (is_over) {
            if ((w->must_record || w->cmd != NULL) && !w->futures[*chosen]->is_broken &&
                !(STET__MUTANT(choice_unrecorded) && w->cmd == NULL)) {
                if (w->cmd == NULL && (err = wait_open(c, w, 0)) != STET_OK)
                    return err;
                return wait_choose(c, w, 0, *chosen);
            }
            return STET_OK;
        }
        if (c->run.stop_code != 0 && !c->run.is_stop_told) {
            int code = c->run.stop_code;

            err = w->cmd == NULL ? wait_open(c, w, code) : wait_choose(c, w, code, 0);
            if (err != STET_OK)
                return err;
            return stet__ctx_fail(c, code, 0, stet__ctx_stop_text(c), NULL, 0);
        }
        if (w->cmd == NULL && w->timeout_ms > 0) {
            if ((err = wait_open(c, w, 0)) != STET_OK)
                return err;
        }
        if ((err = stet__wait_for_news(c, w->futures, w->n, w->is_all)) != STET_OK)
            return err;
    }
}

static int
wait_result(stet_ctx *c, stet_bytes *out, const stet_future *f)
{
    if (f->is_broken) {
        (void)stet__ctx_fail(c, STET_ERETRY, f->broken_cause, f->broken_text, f->name, 0);
        return stet__ctx_latch(c, STET_ERETRY);
    }
    return stet__ctx_outcome(c, out, f->cmd);
}

/* The nth wait for one future is found again by the future's own name. */
static int
wait_name(stet_ctx *c, stet_future *f, wait_set *w)
{
    char              name[STET__NAME_MAX + 64], *at = name;
    const char       *end = name + sizeof name;
    const char       *kind = stet__fact_kind_name(f->cmd_kind);
    const stet__cmd  *recorded;
    uint64_t          occurrence;

    at = stet__text_add(at, end, kind);
    at = stet__text_add(at, end, " ");
    at = stet__text_add(at, end, f->name);
    at = stet__text_add(at, end, "#");
    (void)stet__text_add_number(at, end, f->occurrence);
    f->awaits++;
    w->kind = STET__FACT_AWAIT;
    if ((w->name = stet__arena_str(&c->arena, name)) == NULL ||
        stet__journal_ask(&c->journal, STET__FACT_AWAIT, w->name, 0, &w->cmd, &occurrence, &recorded) != STET_OK)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a wait"));
    w->occurrence = occurrence;
    return STET_OK;
}

static int
wait_one(stet_ctx *c, stet_bytes *out, stet_future *f, int64_t timeout_ms)
{
    stet_future *const set[1] = { f };
    wait_set           w = { 0 };
    size_t             chosen;
    int                err;

    if (out != NULL)
        *out = (stet_bytes){ NULL, 0 };
    if (f == NULL || f->ctx != c)
        return stet__ctx_fail(c, STET_EINVAL, 0, "a future of another run, or none", NULL, 0);
    if ((err = wait_name(c, f, &w)) != STET_OK)
        return err;
    w.futures = set;
    w.n = 1;
    w.timeout_ms = timeout_ms;
    w.must_record = timeout_ms > 0;
    if ((err = wait_run(c, &w, &chosen)) != STET_OK)
        return err;
    return wait_result(c, out, f);
}

int
stet_await(stet_ctx *c, stet_bytes *out, stet_future *future)
{
    int err = stet__ctx_enter(c, "stet_await");

    return err != STET_OK ? err : wait_one(c, out, future, 0);
}

int
stet__ctx_timeout(stet_ctx *c, const char *call, const char *text, int64_t *ms)
{
    int err;

    if ((err = stet_duration_parse(ms, text)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), call, 0);
    if (*ms == 0)
        *ms = 1;
    return STET_OK;
}

int
stet_await_for(stet_ctx *c, stet_bytes *out, stet_future *future, const char *timeout)
{
    int64_t timeout_ms;
    int     err;

    if ((err = stet__ctx_enter(c, "stet_await_for")) != STET_OK ||
        (err = stet__ctx_timeout(c, "stet_await_for", timeout, &timeout_ms)) != STET_OK)
        return err;
    return wait_one(c, out, future, timeout_ms);
}

static int
wait_check(stet_ctx *c, stet_future *const *futures, size_t n)
{
    if (futures == NULL || n == 0 || n > 10000)
        return stet__ctx_fail(c, STET_EINVAL, 0, "a wait needs 1 to 10000 futures", NULL, 0);
    for (size_t i = 0; i < n; i++)
        if (futures[i] == NULL || futures[i]->ctx != c)
            return stet__ctx_fail(c, STET_EINVAL, 0, "a future of another run, or none", NULL, 0);
    return STET_OK;
}

int
stet_await_all(stet_ctx *c, stet_future *const *futures, size_t n)
{
    wait_set w = { 0 };
    size_t   chosen;
    int      err;

    if ((err = stet__ctx_enter(c, "stet_await_all")) != STET_OK || (err = wait_check(c, futures, n)) != STET_OK)
        return err;
    w.futures = futures;
    w.n = n;
    w.is_all = true;
    w.kind = STET__FACT_ANY;
    w.name = "all";
    if ((err = stet__ctx_ask(c, STET__FACT_ANY, "all", 0, &w.cmd, &w.occurrence)) != STET_OK)
        return err;
    return wait_run(c, &w, &chosen);
}

/* What was chosen is not among them any more. A run cannot go on without it, and must not fail for it either. */
static int
wait_is_gone(stet_ctx *c, const wait_set *w, size_t chosen)
{
    stet__cmd recorded = *w->cmd;

    if ((recorded.name = stet__arena_printf(&c->arena, "%s: future %zu of more than %zu", w->name, chosen + 1, w->n)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory"));
    return stet__ctx_stuck(c, &recorded, w->kind, w->name, w->occurrence);
}

int
stet_await_any(stet_ctx *c, size_t *chosen, stet_future *const *futures, size_t n, const char *timeout)
{
    wait_set w = { 0 };
    size_t   first;
    int      err;

    if ((err = stet__ctx_enter(c, "stet_await_any")) != STET_OK || (err = wait_check(c, futures, n)) != STET_OK)
        return err;
    if (timeout != NULL && (err = stet__ctx_timeout(c, "stet_await_any", timeout, &w.timeout_ms)) != STET_OK)
        return err;
    w.futures = futures;
    w.n = n;
    w.kind = STET__FACT_ANY;
    w.name = "any";
    w.must_record = true;
    if ((err = stet__ctx_ask(c, STET__FACT_ANY, "any", 0, &w.cmd, &w.occurrence)) != STET_OK ||
        (err = wait_run(c, &w, &first)) != STET_OK)
        return err;
    if (first >= n)
        return wait_is_gone(c, &w, first);
    /* That it came first is not on record, and its next execution may come last: nobody may go on from it. */
    if (futures[first]->is_broken)
        return wait_result(c, NULL, futures[first]);
    if (chosen != NULL)
        *chosen = first;
    return STET_OK;
}

/* ---- sleep ------------------------------------------------------------------------------------- */

static int
sleep_start(stet_ctx *c, stet_future *f, const char *name, int64_t ms)
{
    stet__fact fact = { 0 };
    int        err;

    memset(f, 0, sizeof *f);
    f->ctx = c;
    f->kind = STET__FUTURE_CMD;
    f->cmd_kind = STET__FACT_SLEEP;
    f->name = name;
    if ((err = stet__name_check("sleep", name)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if (ms < 0 || ms > STET__DURATION_MAX_MS)
        return stet__ctx_fail(c, STET_EDURATION, 0, "a sleep cannot be negative or longer than 10,000 years", NULL, 0);
    if ((err = stet__ctx_ask(c, STET__FACT_SLEEP, name, 0, &f->cmd, &f->occurrence)) != STET_OK || f->cmd != NULL)
        return err;
    if ((err = stet__ctx_catch_up(c)) != STET_OK ||
        (err = stet__ctx_stop_cmd(c, &f->cmd, STET__FACT_SLEEP, name, f->occurrence)) != STET_OK || f->cmd != NULL)
        return err;
    fact.kind = STET__FACT_SLEEP;
    fact.name = stet_text(name);
    fact.occurrence = (int64_t)f->occurrence;
    fact.until_ms = stet__time_add(c->exec->host->now_ms(c), ms);
    if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
        return err;
    if ((f->cmd = stet__journal_add(&c->journal, STET__FACT_SLEEP, name, f->occurrence, 0)) == NULL)
        return stet__ctx_latch(c, STET_ENOMEM);
    if ((err = stet__journal_apply(&c->journal, &fact)) != STET_OK)
        return stet__ctx_latch(c, err);
    return STET_OK;
}

int
stet_sleep_ms(stet_ctx *c, const char *name, int64_t ms)
{
    stet_future f;
    int         err;

    if ((err = stet__ctx_enter(c, "stet_sleep")) != STET_OK || (err = sleep_start(c, &f, name, ms)) != STET_OK)
        return err;
    return wait_one(c, NULL, &f, 0);
}

int
stet_sleep(stet_ctx *c, const char *name, const char *duration)
{
    int64_t ms;
    int     err;

    if ((err = stet__ctx_enter(c, "stet_sleep")) != STET_OK)
        return err;
    if ((err = stet_duration_parse(&ms, duration)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), name, 0);
    return stet_sleep_ms(c, name, ms);
}

int
stet_sleep_start(stet_ctx *c, stet_future **future, const char *name, const char *duration)
{
    stet_future *f;
    int64_t      ms;
    int          err;

    *future = NULL;
    if ((err = stet__ctx_enter(c, "stet_sleep_start")) != STET_OK)
        return err;
    if ((err = stet_duration_parse(&ms, duration)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), name, 0);
    if ((f = stet__arena_get(&c->arena, sizeof *f)) == NULL || (name = stet__arena_str(&c->arena, name)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a future"));
    if ((err = sleep_start(c, f, name, ms)) != STET_OK)
        return err;
    if (f->cmd->code != 0)
        return stet__ctx_outcome(c, NULL, f->cmd); /* told to stop here */
    *future = f;
    return STET_OK;
}
