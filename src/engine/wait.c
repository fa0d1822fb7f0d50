/* Waiting for runs: those that end in this process tell their waiters; others are looked at when a hint
 * arrives, and by poll. Answers are final, so the latest ones are kept to answer late waiters at once.
 */
#include <assert.h>
#include <string.h>

#include "engine/engine.h"

/* Hints come with every commit of others. A look may follow when four times as long as the last one took has passed:
 * at once from a store that is at leisure, seldom from one that many ask. */
#define WAIT_LOOK_SHARE 4
#define WAIT_LOOK_LEAST_US 200
#define WAIT_LOOK_MOST_US 20000
#define WAIT_LOOK_SLOW_US 250000 /* of one run, if hints about it go on and on, with growing pauses up to this */
#define WAIT_LOOK_CALM_US 1000000 /* after so long without a look the pauses begin anew */
#define WAIT_LOOK_HERE_US 50000 /* a run that executes here tells its end: a first look only if it takes long */

void
stet_result_free(stet_result *result)
{
    if (result == NULL)
        return;
    stet_free(result->owned);
    memset(result, 0, sizeof *result);
}

void
stet_free(void *p)
{
    stet__platform *real = stet__platform_real();

    stet__free(&real->alloc, p);
}

/* One block for value, error and origin, from the real allocator: the caller frees it without us. */
static int
wait_fill(stet_result *r, stet_status status, stet_bytes value, int code, int cause, uint32_t attempts,
          const char *error, const char *origin)
{
    size_t error_len = error != NULL ? strlen(error) + 1 : 0, origin_len = origin != NULL ? strlen(origin) + 1 : 0;
    char  *at = stet__get(&stet__platform_real()->alloc, value.len + error_len + origin_len + 2);

    memset(r, 0, sizeof *r);
    if (at == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for a result");
    r->owned = at;
    r->status = status;
    r->code = code;
    r->cause = cause;
    r->attempts = attempts;
    r->value.len = value.len;
    r->value.data = at;
    if (value.len > 0)
        memcpy(at, value.data, value.len);
    at += value.len;
    *at++ = '\0';
    if (error != NULL)
        r->error = memcpy(at, error, error_len);
    if (origin != NULL)
        r->origin = memcpy(at + error_len, origin, origin_len);
    return STET_OK;
}

static int
wait_fill_run(stet_result *r, const stet__run *run, int answer)
{
    stet_bytes none = { NULL, 0 };
    bool       is_stop = answer == STET_ECANCELLED || answer == STET_EEXPIRED;

    /* What else went wrong with it before is not why: it may be stuck, or between two attempts. */
    if (is_stop && (!stet__run_is_terminal(run) || run->error == NULL))
        return wait_fill(r, run->status, none, answer, 0, stet__run_attempt(run), run->stop_why, NULL);
    if (run->is_told && answer == STET_ERUN)
        return wait_fill(r, run->status, none, run->told.code, run->told.cause, stet__run_attempt(run), run->told.error,
                         run->told.origin);
    return wait_fill(r, run->status, answer == STET_OK ? run->result : none, is_stop ? answer : run->code, run->cause,
                     stet__run_attempt(run), answer == STET_OK ? NULL : run->error, run->origin);
}

static int
wait_copy(stet_result *to, const stet_result *from)
{
    return wait_fill(to, from->status, from->value, from->code, from->cause, from->attempts, from->error, from->origin);
}

/* ---- telling -------------------------------------------------------------------------------------- */

static void
wait_remember(stet_engine *e, const stet__run *run, int answer)
{
    stet__recent *slot = &e->recent[e->recent_next];

    if (e->recent_next == e->recent_n) {
        memset(slot, 0, sizeof *slot);
        e->recent_n++;
    }
    if (run->result.len > STET__RECENT_BYTES_MAX ||
        stet__map_find(&e->recent_by_run, run->id.bytes, sizeof run->id.bytes) != NULL)
        return;
    if (slot->result.owned != NULL) {
        (void)stet__map_remove(&e->recent_by_run, slot->run.bytes, sizeof slot->run.bytes);
        stet_result_free(&slot->result);
    }
    if (wait_fill_run(&slot->result, run, answer) != STET_OK)
        return;
    if (stet__map_put(&e->recent_by_run, run->id.bytes, sizeof run->id.bytes, slot) != STET_OK) {
        stet_result_free(&slot->result);
        return;
    }
    slot->run = run->id;
    slot->answer = answer;
    e->recent_next = (e->recent_next + 1) % STET__RECENT_MAX;
}

void
stet__answer(stet_engine *e, const stet__run *run)
{
    stet__waiter *w = stet__map_find(&e->waiters, run->id.bytes, sizeof run->id.bytes);
    int           answer = stet__run_answer(run);

    assert(answer != STET_EOPEN);
    if (e->life == STET__LIFE_STARTED || w != NULL)
        wait_remember(e, run, answer);
    for (; w != NULL; w = w->next) {
        if (w->is_done)
            continue;
        if (wait_fill_run(&w->result, run, answer) == STET_OK) {
            w->is_done = true;
            w->answer = answer;
        } else
            w->must_look = true;
        stet__signal(e->p, &w->cond);
    }
}

void
stet__waiters_look(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&e->waiters, &at, &key, &len, &value))
        for (stet__waiter *w = value; w != NULL; w = w->next) {
            w->must_look = true;
            stet__signal(e->p, &w->cond);
        }
    stet__events_look(e);
}

void
stet__waiters_look_at(stet_engine *e, const stet_id *run)
{
    size_t      at = 0, len;
    const void *key;
    void       *value = NULL;

    if (run != NULL) {
        value = stet__map_find(&e->waiters, run->bytes, sizeof run->bytes);
        stet__askers_look(e);
    } else
        stet__events_look(e);
    while (run != NULL ? value != NULL : stet__map_next(&e->waiters, &at, &key, &len, &value)) {
        for (stet__waiter *w = value; w != NULL; w = w->next) {
            w->must_look = true;
            w->least_us = w->least_us == 0 ? WAIT_LOOK_LEAST_US : w->least_us * 2;
            if (w->least_us > WAIT_LOOK_SLOW_US)
                w->least_us = WAIT_LOOK_SLOW_US;
            stet__signal(e->p, &w->cond);
        }
        if (run != NULL)
            break;
    }
}

/* ---- looking -------------------------------------------------------------------------------------- */

static bool
wait_may_answer(const stet_run_row *row)
{
    return row->is_terminal || row->status == STET_STATUS_CANCELLING || row->status == STET_STATUS_STUCK ||
           row->status == STET_STATUS_COMPENSATING || row->status == STET_STATUS_COMPENSATION_FAILED;
}

/* STET_EOPEN: it goes on. Otherwise *result is filled and the answer returned. */
static int
wait_look(stet_engine *e, stet_result *result, stet_id run, bool *is_answer)
{
    stet__loaded l;
    int          err, answer;

    *is_answer = false;
    if ((err = stet__load_if(e, &l, run, wait_may_answer)) != STET_OK)
        return err == STET_END || (l.row.status == STET_STATUS_STUCK && err == STET_ECORRUPT) ? STET_EOPEN : err;
    if (!stet__run_is_terminal(&l.run) && (err = stet__stop_asked(e, &l.run, &l.run.stop_code)) != STET_OK) {
        stet__loaded_free(&l);
        return err;
    }
    answer = stet__run_answer(&l.run);
    if (answer != STET_EOPEN) {
        *is_answer = true;
        if ((err = wait_fill_run(result, &l.run, answer)) != STET_OK) {
            *is_answer = false;
            answer = err;
        }
    }
    stet__loaded_free(&l);
    return answer;
}

static int
wait_say(const stet_run_id *run, const stet_result *r, int answer)
{
    if (answer == STET_OK)
        return STET_OK;
    return stet__fail(answer, "run %s %s%s%s%s%s", run->text,
                      answer == STET_ECANCELLED  ? "was cancelled"
                      : answer == STET_EEXPIRED ? "expired: its deadline passed"
                                                : "failed",
                      r->error != NULL ? ": " : "", r->error != NULL ? r->error : "", r->origin != NULL ? ", in " : "",
                      r->origin != NULL ? r->origin : "");
}

/* ---- waiting -------------------------------------------------------------------------------------- */

static int
wait_join(stet_engine *e, stet__waiter *w)
{
    stet__waiter *first = stet__map_find(&e->waiters, w->run.bytes, sizeof w->run.bytes);

    if (first != NULL) {
        w->next = first->next;
        first->next = w;
        return STET_OK;
    }
    return stet__map_put(&e->waiters, w->run.bytes, sizeof w->run.bytes, w);
}

static void
wait_leave(stet_engine *e, stet__waiter *w)
{
    stet__waiter *at = stet__map_remove(&e->waiters, w->run.bytes, sizeof w->run.bytes);

    if (at == w)
        at = w->next;
    else
        for (stet__waiter *i = at; i != NULL; i = i->next)
            if (i->next == w)
                i->next = w->next;
    if (at != NULL) /* room for the key was there a moment ago */
        (void)stet__map_put(&e->waiters, w->run.bytes, sizeof w->run.bytes, at);
}

static int64_t
wait_pause_us(int64_t took_us)
{
    int64_t pause_us = took_us * WAIT_LOOK_SHARE;

    return pause_us < WAIT_LOOK_LEAST_US ? WAIT_LOOK_LEAST_US : pause_us > WAIT_LOOK_MOST_US ? WAIT_LOOK_MOST_US : pause_us;
}

/* Lock held on entry and return. */
static int
wait_run(stet_engine *e, stet__waiter *w, int64_t until_us)
{
    int64_t look_us = 0, pause_us = WAIT_LOOK_LEAST_US;
    int     err = STET_EOPEN;

    if (stet__map_find(&e->claims, w->run.bytes, sizeof w->run.bytes) != NULL)
        look_us = stet__mono_us(e->p) + WAIT_LOOK_HERE_US - e->config.wait_poll_ms * 1000;
    while (!w->is_done) {
        int64_t now_us = stet__mono_us(e->p), next_us;
        int64_t least_us = w->least_us > pause_us ? w->least_us : pause_us;
        bool    is_answer;

        if (look_us == 0 || (w->must_look && now_us >= look_us + least_us) ||
            now_us >= look_us + e->config.wait_poll_ms * 1000 ||
            (now_us >= until_us && look_us < until_us)) { /* never late without a last look */
            stet_result found = { 0 };

            w->must_look = false;
            if (now_us > look_us + WAIT_LOOK_CALM_US)
                w->least_us = 0;
            look_us = now_us;
            stet__unlock(e->p, &e->lock);
            err = wait_look(e, &found, w->run, &is_answer);
            stet__lock(e->p, &e->lock);
            if (w->is_done) {
                stet_result_free(&found);
                break;
            }
            if (is_answer) {
                w->result = found;
                w->answer = err;
                w->is_done = true;
                break;
            }
            if (err != STET_EOPEN && stet_code_class(err) != STET_CLASS_RETRY)
                return err;
            now_us = stet__mono_us(e->p);
            pause_us = wait_pause_us(now_us - look_us);
        }
        if (now_us >= until_us)
            return STET_ETIMEOUT;
        next_us = look_us + e->config.wait_poll_ms * 1000;
        least_us = w->least_us > pause_us ? w->least_us : pause_us;
        if (w->must_look && look_us + least_us < next_us)
            next_us = look_us + least_us;
        (void)stet__wait(e->p, &w->cond, &e->lock, next_us < until_us ? next_us : until_us);
    }
    return STET_OK;
}

/* Without stet threads nobody else would do the work we wait for. Runs on: the thread that polls; others just wait,
 * because the handlers it began are its. */
static int
wait_polled(stet_engine *e, stet__waiter *w, int64_t until_us)
{
    for (;;) {
        stet_result found = { 0 };
        bool        is_answer, is_done;
        int         err = wait_look(e, &found, w->run, &is_answer);

        stet__lock(e->p, &e->lock);
        if (is_answer && !w->is_done) {
            w->result = found;
            w->answer = err;
            w->is_done = true;
        } else
            stet_result_free(&found); /* its end has told us already */
        is_done = w->is_done;
        stet__unlock(e->p, &e->lock);
        if (is_done)
            return STET_OK;
        if (err != STET_EOPEN)
            return err;
        if (stet__mono_us(e->p) >= until_us)
            return STET_ETIMEOUT;
        if ((err = stet_engine_poll(e, NULL, e->config.wait_poll_ms)) != STET_OK)
            return err;
    }
}

/* May the run need a slot of this engine? One that is served here may be claimed here at any time, also when no
 * slot is free, and a body that waits for it keeps one from it. */
static bool
wait_needs_slot(stet_engine *e, stet_id run)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    bool         needs;

    stet__arena_init(&arena, &e->p->alloc);
    needs = stet__load_row(e, run, &arena, &row, &extra) == STET_OK && !row.is_terminal &&
            stet__handler_find(e, row.handler) != NULL;
    stet__arena_free(&arena);
    return needs;
}

static int
wait_busy(stet_engine *e, const stet_run_id *run)
{
    return stet__fail(STET_EBUSY,
                      "run %s goes on, but not while all %zu slots of this worker are bodies that wait for runs: call the "
                      "handler with stet_call() outside of the step, or raise concurrency",
                      run->text, e->is_polled ? (size_t)1 : e->exec.n_slots);
}

/* Lock held on entry and return. A body that took the last slot would wait for ever: it is told. */
static int
wait_in_body(stet_engine *e, stet__waiter *w, int64_t until_us)
{
    stet_result found = { 0 };
    bool        is_answer;
    int         err;

    if (!w->needs_slot)
        return wait_run(e, w, until_us);
    if (e->n_waiting_slots + 1 < e->exec.n_slots && !e->is_polled) {
        e->n_waiting_slots++;
        err = wait_run(e, w, until_us);
        e->n_waiting_slots--;
        return err;
    }
    stet__unlock(e->p, &e->lock);
    err = wait_look(e, &found, w->run, &is_answer);
    stet__lock(e->p, &e->lock);
    if (w->is_done || !is_answer) {
        stet_result_free(&found);
        return w->is_done ? STET_OK : STET_EBUSY;
    }
    w->result = found;
    w->answer = err;
    w->is_done = true;
    return STET_OK;
}

static int
wait_timed_out(stet_engine *e, const stet_run_id *run, stet_id id)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    int          err;

    stet__arena_init(&arena, &e->p->alloc);
    if (stet__load_row(e, id, &arena, &row, &extra) == STET_OK)
        err = stet__fail(STET_ETIMEOUT, "run %s has not ended in time and goes on: it is %s; `why` says more", run->text,
                         stet__row_state(&arena, &row));
    else
        err = stet__fail(STET_ETIMEOUT, "run %s has not ended in time and goes on", run->text);
    stet__arena_free(&arena);
    return err;
}

int
stet_wait(stet_engine *e, stet_result *result, const stet_run_id *run, int64_t timeout_ms)
{
    stet__waiter  w = { 0 };
    stet__recent *recent;
    int64_t       until_us;
    bool          is_body;
    int           err;

    if (result != NULL)
        memset(result, 0, sizeof *result);
    if ((err = stet__alive(e, "stet_wait")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_wait", "stet_call")) != STET_OK ||
        (err = stet__id_parse(&w.run, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    if (timeout_ms == 0)
        timeout_ms = e->config.wait_ms;
    until_us = timeout_ms < 0 ? STET__FOREVER : stet__mono_in(e->p, timeout_ms);
    is_body = stet__in_body(e);
    w.needs_slot = is_body && wait_needs_slot(e, w.run);
    if ((err = e->p->ops->cond_init(e->p, &w.cond)) != STET_OK)
        return err;
    stet__lock(e->p, &e->lock);
    if ((recent = stet__map_find(&e->recent_by_run, w.run.bytes, sizeof w.run.bytes)) != NULL) {
        if (result != NULL || recent->answer != STET_OK)
            err = wait_copy(&w.result, &recent->result);
        w.answer = recent->answer;
        w.is_done = err == STET_OK;
    } else if ((err = wait_join(e, &w)) == STET_OK) {
        if (is_body)
            err = wait_in_body(e, &w, until_us);
        else if (e->is_polled && e->committer.thread == NULL &&
                 (STET__MUTANT(poll_by_anybody) || atomic_load(&e->poller) == e->p->ops->thread_self(e->p))) {
            stet__unlock(e->p, &e->lock);
            err = wait_polled(e, &w, until_us);
            stet__lock(e->p, &e->lock);
        } else
            err = wait_run(e, &w, until_us);
        wait_leave(e, &w);
    }
    stet__unlock(e->p, &e->lock);
    e->p->ops->cond_destroy(e->p, &w.cond);
    if (err == STET_ETIMEOUT)
        return wait_timed_out(e, run, w.run);
    if (err == STET_EBUSY && w.needs_slot)
        return wait_busy(e, run);
    if (err != STET_OK)
        return err;
    err = wait_say(run, &w.result, w.answer);
    if (result != NULL)
        *result = w.result;
    else
        stet_result_free(&w.result);
    return err;
}

int
stet_result_get(stet_engine *e, stet_result *result, const stet_run_id *run)
{
    stet_result found = { 0 };
    stet_id     id;
    bool        is_answer;
    int         err;

    if (result != NULL)
        memset(result, 0, sizeof *result);
    if ((err = stet__alive(e, "stet_result_get")) != STET_OK || (err = stet__id_parse(&id, STET__ID_RUN, run->text)) != STET_OK)
        return err;
    if ((err = wait_look(e, &found, id, &is_answer)) == STET_EOPEN)
        return stet__fail(STET_EOPEN, "run %s has not ended; stet_wait() waits for it", run->text);
    if (!is_answer)
        return err;
    err = wait_say(run, &found, err);
    if (result != NULL)
        *result = found;
    else
        stet_result_free(&found);
    return err;
}

int
stet_invoke(stet_engine *e, stet_result *result, stet_run_id *run, const char *handler, stet_bytes input,
            const stet_start_options *options, int64_t timeout_ms)
{
    stet_run_id own;
    int         err;

    if ((err = stet__alive(e, "stet_invoke")) != STET_OK || (err = stet__not_in_handler(e, "stet_invoke", "stet_call")) != STET_OK)
        return err;
    if (run == NULL)
        run = &own;
    if ((err = stet_start(e, run, handler, input, options)) != STET_OK)
        return err;
    return stet_wait(e, result, run, timeout_ms);
}
