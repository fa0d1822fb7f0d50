/* One sentence: why is this run where it is, and what helps. */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define WHY_CHAIN_MAX 32

typedef struct why {
    stet_engine *e;
    stet__arena  arena;
    stet__run    run;
    stet__journal journal;
    stet_run_row row;
    stet__fact   extra;
    int64_t      now_ms;
    char         id[STET_ID_TEXT_MAX];
    stet_verdict verdict;
    int          err; /* of a read that failed: then the verdict is none */
} why;

static void
why_say(why *y, const char *kind, const char *help, const char *fmt, ...) STET_PRINTF(4, 5);

static void
why_say(why *y, const char *kind, const char *help, const char *fmt, ...)
{
    char    text[768];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    y->verdict.kind = kind;
    y->verdict.text = stet__arena_str(&y->arena, text);
    y->verdict.help = help;
}

static const char *
why_in(why *y, int64_t ms)
{
    char text[48];

    return stet__arena_str(&y->arena, stet__time_relative(text, sizeof text, ms, y->now_ms));
}

static const char *
why_run(why *y, stet_id id)
{
    char text[STET_ID_TEXT_MAX];

    stet__id_text(text, STET__ID_RUN, id);
    return stet__arena_str(&y->arena, text);
}

static const char *
why_command(why *y, const char *verb, const char *what)
{
    return stet__arena_printf(&y->arena, "stet %s %s", verb, what);
}

/* A run that is gone is an answer; a read that failed is none. */
static bool
why_read(why *y, int err)
{
    if (err != STET_OK && err != STET_END && err != STET_ENOTFOUND && err != STET_ECORRUPT && y->err == STET_OK)
        y->err = err;
    return err == STET_OK || err == STET_END;
}

/* ---- who holds what ---------------------------------------------------------------------------------- */

typedef struct why_first {
    stet_id id;
    bool    has;
} why_first;

static int
why_on_lane(void *arg, stet_id run)
{
    why_first *f = arg;

    f->id = run;
    f->has = true;
    return STET_END;
}

static bool
why_holder(why *y, const char *lane, stet_id *holder)
{
    why_first f = { .has = false };

    (void)why_read(y, y->e->store->ops->lane(y->e->store, lane, 1, why_on_lane, &f));
    *holder = f.id;
    return f.has;
}

static bool
why_waits_in_lane(const stet_run_row *row)
{
    return row->lane != NULL && row->session == 0 && row->due_ms == STET_NEVER && row->epoch == 0;
}

/* What this run waits for among runs: the holder of its lane, or a child it called. */
static bool
why_next(why *y, stet_id run, stet_id *next)
{
    stet__loaded l;
    bool         found = false;

    if (!why_read(y, stet__load(y->e, &l, run, true)))
        return false;
    if (why_waits_in_lane(&l.row))
        found = why_holder(y, l.row.lane, next) && !stet__id_equal(*next, run);
    else if (!l.row.is_terminal && l.row.session == 0)
        for (const stet__cmd *cmd = l.journal.waiting; cmd != NULL && !found; cmd = cmd->next)
            if (cmd->kind == STET__FACT_CALL && !cmd->is_settled) {
                *next = cmd->run;
                found = true;
            }
    stet__loaded_free(&l);
    return found;
}

static bool
why_deadlock(why *y)
{
    stet_id   chain[WHY_CHAIN_MAX], next;
    size_t    n = 0;
    stet__buf text;

    chain[n++] = y->row.id;
    while (n < WHY_CHAIN_MAX && why_next(y, chain[n - 1], &next)) {
        for (size_t i = 0; i < n; i++) {
            if (!stet__id_equal(chain[i], next))
                continue;
            stet__buf_init(&text, &y->e->p->alloc);
            for (size_t k = i; k < n; k++)
                stet__buf_printf(&text, "%s -> ", why_run(y, chain[k]));
            stet__buf_printf(&text, "%s", why_run(y, next));
            why_say(y, "deadlock", why_command(y, "cancel", why_run(y, next)),
                    "is in a circle of runs that wait for each other: %s", stet__buf_cstr(&text));
            stet__buf_free(&text);
            return true;
        }
        chain[n++] = next;
    }
    return false;
}

/* ---- the cases ---------------------------------------------------------------------------------------- */

typedef struct why_owner {
    uint64_t session;
    bool     is_there, is_dead;
    stet_id  id;
    int64_t  seen_ms;
} why_owner;

static int
why_on_session(void *arg, const stet_session_row *row)
{
    why_owner *o = arg;

    if (row->session == o->session) {
        o->is_there = true;
        o->is_dead = row->is_dead;
        o->id = row->id;
        o->seen_ms = row->seen_ms;
    }
    return STET_OK;
}

static size_t
why_served(why *y, bool *has_timers)
{
    size_t workers;

    (void)why_read(y, stet__served_by(y->e, y->row.handler, &workers, has_timers));
    return workers;
}

/* A body that is beyond its time limit. Only the process that executes it knows: nothing of a body is stored before it
 * returns, and its limit is in the code. */
static bool
why_overrun(why *y, const char *worker)
{
    stet_engine         *e = y->e;
    const stet__limited *found;
    stet__limited        l;
    int64_t              limit_ms, now_ms = stet__store_now(e);
    char                 timeout[64], over[64];

    if (y->row.session != atomic_load(&e->session))
        return false;
    stet__lock(e->p, &e->lock);
    if ((found = stet__exec_overrun(&e->exec, y->row.id, now_ms, &limit_ms)) != NULL)
        l = *found;
    stet__unlock(e->p, &e->lock);
    if (found == NULL)
        return false;
    (void)stet_duration_text(timeout, sizeof timeout, l.timeout_ms);
    (void)stet_duration_text(over, sizeof over, now_ms - limit_ms);
    why_say(y, "running", NULL,
            "is being executed by worker %s: step %s#%llu has overrun its time limit of %s by %s; a body cannot be killed, so it "
            "keeps its slot, and no new attempt begins until it returns",
            worker, l.step, (unsigned long long)l.occurrence, timeout, over);
    return true;
}

static void
why_claimed(why *y)
{
    why_owner o = { .session = y->row.session };
    char      worker[STET_ID_TEXT_MAX] = "?";
    bool      has_timers;

    (void)why_read(y, y->e->store->ops->sessions(y->e->store, why_on_session, &o));
    if (o.is_there)
        stet__id_text(worker, STET__ID_WORKER, o.id);
    if (o.is_there && !o.is_dead && why_overrun(y, worker))
        return;
    if (o.is_there && !o.is_dead)
        why_say(y, "running", NULL, "is being executed by worker %s (last sign of life %s)", worker, why_in(y, o.seen_ms));
    else if (why_served(y, &has_timers) > 0)
        why_say(y, "running", NULL, "its worker %s is dead; a living one takes it over within seconds", worker);
    else
        why_say(y, "no-worker", "start a worker that serves it", "its worker %s is dead, and no living worker serves %s", worker,
                y->row.handler);
}

static void
why_due(why *y)
{
    bool          has_timers;
    size_t        served = why_served(y, &has_timers);
    stet__held_by held = { .handler = y->row.handler };

    if (y->row.due_ms > y->now_ms && y->row.status == STET_STATUS_RETRYING && y->run.dispatch == STET__FACT_DEFERRED)
        why_say(y, "backoff", why_command(y, "cancel", y->id), "was deferred (%s); it is tried again %s",
                y->run.error != NULL ? y->run.error : "no text", why_in(y, y->row.due_ms));
    else if (y->row.due_ms > y->now_ms && y->row.status == STET_STATUS_RETRYING)
        why_say(y, "backoff", why_command(y, "cancel", y->id), "attempt %u of %lld failed (%s); it is retried %s", y->run.failed,
                (long long)y->run.retry.attempts, y->run.error != NULL ? y->run.error : "no text", why_in(y, y->row.due_ms));
    else if (y->row.due_ms > y->now_ms)
        why_say(y, "delay", why_command(y, "cancel", y->id), "is delayed; it can begin %s", why_in(y, y->row.due_ms));
    else if (why_read(y, stet__hold_find(y->e, &held)) && held.what[0] != '\0')
        why_say(y, "paused", stet__arena_printf(&y->arena, "stet resume --%s %s",
                                                strchr(held.what, '.') != NULL ? "handler" : "service", held.what),
                "could be executed, but %s (since %s)", held.text, why_in(y, held.since_ms));
    else if (served == 0)
        why_say(y, "no-worker", "start a worker that serves it", "could be executed, but no living worker serves %s", y->row.handler);
    else
        why_say(y, "ready", NULL, "waits for a free slot; %zu living worker%s serve%s %s", served, served == 1 ? "" : "s",
                served == 1 ? "s" : "", y->row.handler);
}

static void
why_pending(why *y)
{
    stet_id holder;

    if (y->row.lane == NULL) {
        why_say(y, "delay", why_command(y, "cancel", y->id), "is delayed; it takes its place for key %s %s",
                y->row.key != NULL ? y->row.key : "?", why_in(y, y->run.visible_ms));
        return;
    }
    if (why_deadlock(y))
        return;
    if (why_holder(y, y->row.lane, &holder) && !stet__id_equal(holder, y->row.id))
        why_say(y, "lane", why_command(y, "why", why_run(y, holder)), "waits for %s, which is held by %s", y->row.lane,
                why_run(y, holder));
    else
        why_say(y, "ready", NULL, "is first for %s and is about to begin", y->row.lane);
}

static void
why_suspended(why *y)
{
    const stet__cmd *timer = NULL, *call = NULL, *awakeable = NULL, *signal = NULL, *topic = NULL,
                    *boundary = NULL;
    char             text[STET_ID_TEXT_MAX];
    bool             has_timers;
    const char      *reason = y->row.reason != NULL ? y->row.reason : "something";

    if (why_deadlock(y))
        return;
    for (const stet__cmd *cmd = y->journal.waiting; cmd != NULL; cmd = cmd->next) {
        if (cmd->has_timer && (timer == NULL || cmd->until_ms < timer->until_ms))
            timer = cmd;
        if (cmd->kind == STET__FACT_CALL && !cmd->is_settled)
            call = cmd;
        if (cmd->kind == STET__FACT_AWAKEABLE && !cmd->is_settled)
            awakeable = cmd;
        if (cmd->kind == STET__FACT_SIGNAL && !cmd->is_settled)
            signal = cmd;
        if (cmd->kind == STET__FACT_TOPIC && !cmd->is_settled)
            topic = cmd;
        if (cmd->kind == STET__FACT_BOUNDARY && !cmd->is_settled)
            boundary = cmd;
    }
    (void)why_served(y, &has_timers);
    if (timer != NULL && timer->until_ms <= y->now_ms && !has_timers)
        why_say(y, "no-timers", "start a worker", "waits for %s, due %s, but no living node serves timers", reason,
                why_in(y, timer->until_ms));
    else if (awakeable != NULL && strstr(reason, "awakeable") != NULL) {
        stet__id_text(text, STET__ID_AWAKEABLE, awakeable->run);
        why_say(y, "awakeable", why_command(y, "resolve", text), "waits for awakeable %s (%s) to be settled%s%s", awakeable->name,
                text, timer != NULL ? ", at most until its limit " : "", timer != NULL ? why_in(y, timer->until_ms) : "");
    } else if (signal != NULL && strstr(reason, "signal") != NULL)
        why_say(y, "signal", stet__arena_printf(&y->arena, "stet signal %s %s", y->id, signal->topic),
                "waits for signal %s%s%s", signal->topic, timer != NULL ? ", at most until its limit " : "",
                timer != NULL ? why_in(y, timer->until_ms) : "");
    else if (topic != NULL && strstr(reason, "event") != NULL)
        why_say(y, "event", stet__arena_printf(&y->arena, "stet emit %s", topic->name), "waits for an event on topic %s%s%s",
                topic->name, timer != NULL ? ", at most until its limit " : "", timer != NULL ? why_in(y, timer->until_ms) : "");
    else if (boundary != NULL && strstr(reason, "decision") != NULL)
        why_say(y, "decision", why_command(y, boundary->is_approval ? "approve" : "resume", y->id), "waits for %s %s",
                boundary->is_approval ? "somebody to approve or reject" : "somebody to resume it behind", boundary->name);
    else if (call != NULL && strstr(reason, "call") != NULL)
        why_say(y, "child", why_command(y, "why", why_run(y, call->run)), "waits for %s, which it called: %s", call->name,
                why_run(y, call->run));
    else if (timer != NULL)
        why_say(y, "timer", why_command(y, "cancel", y->id), "waits for %s, which fires %s", reason, why_in(y, timer->until_ms));
    else
        why_say(y, "suspended", why_command(y, "show", y->id), "waits for %s", reason);
}

static void
why_ended(why *y)
{
    if (y->row.status == STET_STATUS_FAILED)
        why_say(y, "ended", y->extra.retried_by.data == NULL ? why_command(y, "dlq retry", y->id) : NULL, "failed %s: %s%s%s",
                why_in(y, y->row.ended_ms), y->run.error != NULL ? y->run.error : stet_code_text(y->run.code),
                y->run.origin != NULL ? ", in " : "", y->run.origin != NULL ? y->run.origin : "");
    else
        why_say(y, "ended", NULL, "%s %s", stet_status_name((stet_status)y->row.status), why_in(y, y->row.ended_ms));
}

static void
why_paused(why *y)
{
    stet__loaded l;
    int          err = stet__load_next(y->e, &l, y->row.id);

    if (!why_read(y, err)) {
        if (err == STET_ECORRUPT) /* who paused it, or what came behind that, is not known */
            why_say(y, "paused", "stet verify", "is paused, and will be stuck: %s", stet_last_error());
        return;
    }
    if (!l.run.is_paused && y->row.lane != NULL && y->row.due_ms == STET_NEVER) { /* its caller's stop lifts it in its turn */
        why_pending(y);
        stet__loaded_free(&l);
        return;
    }
    why_say(y, "paused", why_command(y, "resume", y->id), "was paused%s%s %s%s%s", l.run.said_who != NULL ? " by " : "",
            l.run.said_who != NULL ? l.run.said_who : "", why_in(y, l.run.said_ms), l.run.said_why != NULL ? ": " : "",
            l.run.said_why != NULL ? l.run.said_why : "");
    stet__loaded_free(&l);
}

static void
why_judge(why *y)
{
    if (y->row.is_terminal)
        why_ended(y);
    else if (y->row.status == STET_STATUS_STUCK && (y->row.due_ms == STET_NEVER || y->row.due_ms == STET__HELD_MS))
        why_say(y, "stuck", why_command(y, "unstick", y->id), "is stuck: %s", y->row.reason != NULL ? y->row.reason : "no reason recorded");
    else if (y->row.status == STET_STATUS_COMPENSATION_FAILED)
        why_say(y, "compensation-failed", why_command(y, "rollback", y->id), "could not be rolled back: %s%s%s",
                y->run.origin != NULL ? y->run.origin : "", y->run.origin != NULL ? ": " : "",
                y->run.error != NULL ? y->run.error : "no reason recorded");
    else if (y->row.status == STET_STATUS_PAUSED)
        why_paused(y);
    else if (y->row.session != 0)
        why_claimed(y);
    else if (y->row.due_ms != STET_NEVER)
        why_due(y);
    else if (y->row.status == STET_STATUS_PENDING)
        why_pending(y);
    else
        why_suspended(y);
}

int
stet_why(stet_engine *e, const stet_run_id *run, stet_verdict_fn fn, void *arg)
{
    why      y;
    stet_id  id;
    uint64_t bad;
    int      err;

    if ((err = stet__alive(e, "stet_why")) != STET_OK || (err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    memset(&y, 0, sizeof y);
    y.e = e;
    y.now_ms = stet__store_now(e);
    stet__id_text(y.id, STET__ID_RUN, id);
    stet__arena_init(&y.arena, &e->p->alloc);
    stet__journal_init(&y.journal, &y.arena, &e->p->alloc);
    stet__run_init(&y.run, &y.arena, id);
    if ((err = stet__load_row(e, id, &y.arena, &y.row, &y.extra)) == STET_OK) {
        err = stet__load_facts(e, &y.run, &y.journal, &y.row, &bad);
        if (err == STET_ECORRUPT) {
            why_say(&y, "stuck", "stet verify", "fact %llu is not readable: %s", (unsigned long long)bad, stet_last_error());
            err = STET_OK;
        } else if (err == STET_OK)
            why_judge(&y);
    }
    if (err == STET_OK)
        err = y.err;
    if (err == STET_OK && y.verdict.text == NULL)
        err = stet__fail(STET_ENOMEM, "out of memory");
    if (err == STET_OK)
        fn(arg, &y.verdict);
    stet__journal_free(&y.journal);
    stet__arena_free(&y.arena);
    return err;
}
