/* Queries of a run: its handler is executed against its record, and asked.
 *
 * A process that has the handler answers by itself: it reads the run as a bundle, and a forked
 * child executes it (offline.c, errand.c). One that has not leaves a question in the store: a
 * value of STET__SPACE_ASK under an ID of its own, which is its asker's to wait for until a time.
 * A worker that serves the handler takes it, which removes it, so that one worker is at it; and
 * puts what came of it under the same ID into STET__SPACE_ANSWER. Whoever asked removes that. What
 * is left of those who did not wait to the end is removed by workers when its time is over.
 * Nothing of it is in any fact: both spaces may be lost at any time, and then a question is not
 * answered.
 *
 * Threads: questions of others are answered by a thread of their own, begun with the first one;
 * the keeper tells it to look. Locks: engine->lock for its state and for those who wait.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/offline.h"

#define QUERY_TIME_MS  5000  /* for executing one */
#define QUERY_WAIT_MS  10000 /* for an answer, unless said otherwise */
#define QUERY_WAIT_MAX 3600000
#define QUERY_WAITING  256u  /* so many questions wait at most */
#define QUERY_KEPT_MS  60000 /* an answer nobody fetched */
#define QUERY_PAGE     16u
#define QUERY_LOOK_US  100000 /* between looks that hints ask for */
#define QUERY_LEAST_US 10000  /* the same of one who waits */
#define QUERY_NEW_MAX  10000

/* ---- here ------------------------------------------------------------------------------------ */

typedef struct query_job {
    stet__errand   x; /* first */
    stet_engine   *e;
    stet__buf      bundle;
    stet__question question;
    stet__fact     answer; /* its bytes are in `out` */
    stet__buf      out;
    /* In the child. */
    stet__offline offline;
} query_job;

/* What came of it, as a fact; bytes point into the job. */
static void
query_answer_of(query_job *job, stet__fact *a)
{
    const stet_replay_report *r = &job->offline.report;
    const stet__question     *q = &job->question;

    memset(a, 0, sizeof *a);
    a->kind = STET__FACT_ANSWER;
    switch (r->end) {
    case STET_REPLAY_RECORD:
    case STET_REPLAY_RETURNED:
    case STET_REPLAY_FAILED:
        if (r->recorded == NULL && q->is_asked) {
            a->code = q->code;
            a->value = q->reply.value.len > 0 ? stet__buf_bytes(&q->reply.value) : stet_text("");
            if (q->code != STET_OK)
                a->text = stet_text(q->reply.text);
            return;
        }
        a->code = STET_EREPLAY;
        break;
    case STET_REPLAY_CORRUPT: a->code = STET_ECORRUPT; break;
    case STET_REPLAY_NO_HANDLER: a->code = STET_ENOHANDLER; break;
    default: a->code = STET_EREPLAY; break;
    }
    a->text = stet_text(r->text);
}

static int
query_execute(query_job *job, stet__buf *out, void *place)
{
    stet__arena arena;
    stet__tape  tape;
    stet__fact  answer;
    int         err;

    stet__arena_init(&arena, &job->e->p->alloc);
    if ((err = stet__offline_open(&job->offline, job->e)) != STET_OK)
        return err;
    stet__reply_init(&job->question.reply, &job->e->p->alloc, job->e->config.payload_bytes_max);
    job->offline.question = &job->question;
    job->offline.place = place;
    job->offline.new_max = QUERY_NEW_MAX;
    if ((err = stet__bundle_decode(&tape, &arena, stet__buf_bytes(&job->bundle))) == STET_OK) {
        tape.is_as_taken = true;
        err = stet__offline_run(&job->offline, &tape);
    }
    if (err == STET_OK) {
        query_answer_of(job, &answer);
        stet__fact_encode(out, &answer);
        err = out->failed ? stet__fail(STET_ENOMEM, "out of memory for an answer") : STET_OK;
    }
    stet__buf_free(&job->question.reply.value);
    stet__arena_free(&arena);
    stet__offline_close(&job->offline);
    return err;
}

static bool
query_begin(stet__errand *x)
{
    (void)x;
    return true;
}

static bool
query_perform(stet__errand *x, size_t i, stet__buf *out)
{
    (void)i;
    return query_execute((query_job *)x, out, x->shared) == STET_OK;
}

static int
query_done(stet__errand *x, size_t i, stet_bytes out)
{
    query_job *job = (query_job *)x;

    (void)i;
    stet__buf_add(&job->out, out.data, out.len);
    return job->out.failed ? stet__fail(STET_ENOMEM, "out of memory for an answer") : STET_OK;
}

static int
query_lost(stet__errand *x, size_t i, bool is_late, const char *text)
{
    query_job         *job = (query_job *)x;
    stet_replay_report r = { 0 };
    stet__fact         answer = { .kind = STET__FACT_ANSWER };
    char               line[512];

    (void)i;
    stet__offline_lost(&r, x->shared, is_late, x->time_ms, text, line);
    answer.code = is_late ? STET_ETIMEOUT : STET_ELOST;
    answer.text = stet_text(line);
    stet__fact_encode(&job->out, &answer);
    return job->out.failed ? stet__fail(STET_ENOMEM, "out of memory for an answer") : STET_OK;
}

/* The encoded answer into *out; not STET_OK: it could not be executed. */
static int
query_here(stet_engine *e, const stet_run_row *row, const char *name, stet_bytes input,
           stet__buf *out)
{
    query_job *job = stet__get0(&e->p->alloc, sizeof *job);
    int        err;

    if (job == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    job->e = e;
    job->question.name = name;
    job->question.input = input;
    job->x = (stet__errand){ .p = e->p,
                             .n = 1,
                             .time_ms = QUERY_TIME_MS,
                             .shared_bytes = sizeof(stet__offline_place),
                             .begin = query_begin,
                             .perform = query_perform,
                             .done = query_done,
                             .lost = query_lost };
    stet__buf_init(&job->bundle, &e->p->alloc);
    stet__buf_init(&job->out, &e->p->alloc);
    if ((err = stet__bundle_load(e, &job->bundle, row)) == STET_OK)
        err = strcmp(e->p->ops->name, "sim") != 0 ? stet__errand_run(&job->x)
                                                  : query_execute(job, &job->out, NULL);
    if (err == STET_OK) {
        *out = job->out;
        memset(&job->out, 0, sizeof job->out);
    }
    stet__buf_free(&job->bundle);
    stet__buf_free(&job->out);
    stet__free(&e->p->alloc, job);
    return err;
}

/* ---- those who wait -------------------------------------------------------------------------- */

void
stet__askers_look(stet_engine *e)
{
    for (stet__asker *a = e->askers; a != NULL; a = a->next) {
        a->must_look = true;
        stet__signal(e->p, &a->cond);
    }
}

/* Lock held on entry and return. */
static void
ask_pause(stet_engine *e, stet__asker *a, int64_t looked_us, int64_t until_us)
{
    int64_t next_us;

    do {
        next_us = looked_us + (a->must_look ? QUERY_LEAST_US : e->config.wait_poll_ms * 1000);
        next_us = next_us < until_us ? next_us : until_us;
        if (stet__mono_us(e->p) >= next_us)
            return;
        (void)stet__wait(e->p, &a->cond, &e->lock, next_us);
    } while (true);
}

int
stet__ask_wait(stet_engine *e, int64_t until_us, int (*look)(stet_engine *e, void *arg), void *arg)
{
    stet__asker a = { 0 }, **at;
    bool        is_poller = e->is_polled && atomic_load(&e->poller) == e->p->ops->thread_self(e->p);
    int         err = e->p->ops->cond_init(e->p, &a.cond);

    if (err != STET_OK)
        return err;
    stet__lock(e->p, &e->lock);
    a.next = e->askers;
    e->askers = &a;
    for (;;) {
        int64_t looked_us = stet__mono_us(e->p);

        a.must_look = false;
        stet__unlock(e->p, &e->lock);
        err = look(e, arg);
        if (err == STET_EOPEN && looked_us < until_us && is_poller &&
            (err = stet_engine_poll(e, NULL, e->config.wait_poll_ms)) == STET_OK)
            err = STET_EOPEN;
        stet__lock(e->p, &e->lock);
        /* A store that passingly fails is asked again; never late without a last look. */
        if (looked_us >= until_us ||
            (err != STET_EOPEN &&
             (is_poller || err == STET_ENOMEM || stet_code_class(err) != STET_CLASS_RETRY)))
            break;
        if (!is_poller)
            ask_pause(e, &a, looked_us, until_us);
    }
    for (at = &e->askers; *at != &a; at = &(*at)->next)
        ;
    *at = a.next;
    stet__unlock(e->p, &e->lock);
    e->p->ops->cond_destroy(e->p, &a.cond);
    return err;
}

/* ---- elsewhere ------------------------------------------------------------------------------- */

static bool
query_op(stet__work *w, stet_op_kind kind, const char *space, stet_id id, const stet__fact *fact)
{
    stet_op *op = stet__work_op(w, kind, id);

    if (op == NULL || !stet__work_bytes(w, &op->key, stet__id_bytes(&id)) ||
        (fact != NULL && !stet__work_fact(w, &op->data, fact)))
        return false;
    op->space = space;
    return true;
}

/* Put (a fact) or remove (none). */
static int
query_write(stet_engine *e, const char *space, stet_id id, const stet__fact *fact)
{
    stet__work *w = stet__work_new(e, NULL, NULL);

    if (w == NULL ||
        !query_op(w, fact != NULL ? STET_OP_VALUE_PUT : STET_OP_VALUE_DEL, space, id, fact)) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory for a question");
    }
    return stet__commit_sync(e, w, NULL);
}

typedef struct query_found {
    stet_id    id;
    uint64_t   version;
    stet__fact fact;
} query_found;

typedef struct query_page {
    stet__arena arena;
    size_t      rows, n, most;
    stet_id     last;
    query_found found[QUERY_PAGE]; /* n of them */
} query_page;

static int
query_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    query_page  *page = arg;
    query_found *f = &page->found[page->n];
    stet_bytes   in = { stet__arena_copy(&page->arena, value->data.data, value->data.len),
                        value->data.len };

    if (in.data == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for questions");
    page->rows++;
    f->id = page->last = stet__fact_id(key);
    f->version = value->version;
    if (stet__fact_decode(&f->fact, &in) != STET_OK)
        memset(&f->fact, 0, sizeof f->fact); /* its time is over: it is of no use to anybody */
    page->n++;
    return STET_OK;
}

/* The next ones, oldest first; n 0: there are none. */
static int
query_page_read(stet_engine *e, const char *space, query_page *page)
{
    stet_bytes all = { NULL, 0 }, after = stet__id_bytes(&page->last);

    stet__arena_free(&page->arena);
    page->n = 0;
    return e->store->ops->values(e->store, space, all, stet__id_is_zero(page->last) ? NULL : &after,
                                 QUERY_PAGE, query_on_value, page);
}

/* Remove those whose time is over; how many are left, of the first `most`. */
static int
query_sweep(stet_engine *e, const char *space, size_t most, size_t *left)
{
    query_page *page = stet__get_head(&e->p->alloc, sizeof *page, offsetof(query_page, found));
    int64_t     now_ms = stet__store_now(e);
    int         err;

    *left = 0;
    if (page == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for questions");
    stet__arena_init(&page->arena, &e->p->alloc);
    do {
        err = query_page_read(e, space, page);
        for (size_t i = 0; err == STET_OK && i < page->n; i++) {
            if (page->found[i].fact.until_ms < now_ms)
                err = query_write(e, space, page->found[i].id, NULL);
            else
                (*left)++;
        }
    } while (err == STET_OK && page->n == QUERY_PAGE && *left < most);
    stet__arena_free(&page->arena);
    stet__free(&e->p->alloc, page);
    return err;
}

void
stet__query_sweep(stet_engine *e)
{
    size_t left;

    (void)query_sweep(e, STET__SPACE_ASK, QUERY_WAITING, &left);
    (void)query_sweep(e, STET__SPACE_ANSWER, QUERY_WAITING, &left);
}

typedef struct query_wait {
    stet_id   id;
    stet__buf out;
} query_wait;

static int
query_look(stet_engine *e, void *arg)
{
    query_wait *w = arg;
    stet_value  v = { 0 };
    int err = e->store->ops->value(e->store, STET__SPACE_ANSWER, stet__id_bytes(&w->id), &v);

    if (err == STET_ENOTFOUND)
        return STET_EOPEN;
    if (err != STET_OK)
        return err;
    stet__buf_add(&w->out, v.data.data, v.data.len);
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    return w->out.failed ? stet__fail(STET_ENOMEM, "out of memory for an answer") : STET_OK;
}

static int
query_unserved(stet_engine *e, const stet_run_id *run, const char *handler)
{
    size_t workers;
    bool   has_timers;
    int    err = stet__served_by(e, handler, &workers, &has_timers);

    if (err != STET_OK || workers > 0)
        return err;
    return stet__fail(
        STET_EUNSERVED,
        "%s is of %s, which is not in this program, and no worker serves it: start one, or "
        "ask with the program that has it",
        run->text, handler);
}

static int
query_elsewhere(stet_engine *e, const stet_run_id *run, const stet_run_row *row, const char *name,
                stet_bytes input, int64_t timeout_ms, stet__buf *out)
{
    stet__fact question = { .kind = STET__FACT_QUESTION };
    query_wait wait = { .id = stet__new_id(e) };
    size_t     left;
    int        err;

    if (input.len > STET_QUERY_INPUT_MAX)
        return stet__fail(STET_ETOOBIG,
                          "query %s: %zu bytes; a question for another process has at most %d",
                          name, input.len, STET_QUERY_INPUT_MAX);
    if ((err = query_unserved(e, run, row->handler)) != STET_OK ||
        (err = query_sweep(e, STET__SPACE_ASK, QUERY_WAITING, &left)) != STET_OK)
        return err;
    if (left >= QUERY_WAITING)
        return stet__fail(STET_EBUSY, "%zu questions wait for workers already; try again", left);
    question.time_ms = stet__store_now(e);
    question.until_ms = stet__time_add(question.time_ms, timeout_ms);
    question.name = stet_text(name);
    question.key = stet_text(row->handler);
    question.run = stet__id_bytes(&row->id);
    question.value = input.data != NULL ? input : stet_text("");
    if ((err = query_write(e, STET__SPACE_ASK, wait.id, &question)) != STET_OK)
        return err;
    stet__hint_nudge(e);
    stet__buf_init(&wait.out, &e->p->alloc);
    err = stet__ask_wait(e, stet__mono_in(e->p, timeout_ms), query_look, &wait);
    if (err == STET_OK) {
        *out = wait.out;
        (void)query_write(e, STET__SPACE_ANSWER, wait.id, NULL); /* else when its time is over */
        return STET_OK;
    }
    stet__buf_free(&wait.out);
    if (err != STET_EOPEN)
        return err;
    (void)query_write(e, STET__SPACE_ASK, wait.id, NULL);
    return stet__fail(STET_ETIMEOUT, "%s: no worker that serves %s answered query %s in %lld ms",
                      run->text, row->handler, name, (long long)timeout_ms);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int
stet__answer_give(stet_bytes *reply, const stet_run_id *run, const char *what, const char *name,
                  const stet__fact *f)
{
    void *copy;

    if (f->code != STET_OK)
        return stet__fail((int)f->code, "%s: %s %s: %.*s", run->text, what, name, (int)f->text.len,
                          f->text.len > 0 ? (const char *)f->text.data : "");
    if (reply == NULL)
        return STET_OK;
    /* stet_free() is of that one */
    if ((copy = stet__get(&stet__platform_real()->alloc, f->value.len + 1)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for an answer");
    if (f->value.len > 0)
        memcpy(copy, f->value.data, f->value.len);
    ((char *)copy)[f->value.len] = '\0';
    *reply = (stet_bytes){ copy, f->value.len };
    return STET_OK;
}

static int
query_give(stet_bytes *reply, const stet_run_id *run, const char *name, stet__buf *out)
{
    stet_bytes in = stet__buf_bytes(out);
    stet__fact answer;
    int        err = stet__fact_decode(&answer, &in);

    if (err != STET_OK || answer.kind != STET__FACT_ANSWER)
        return stet__fail(STET_ECORRUPT, "%s: the answer to query %s cannot be read", run->text,
                          name);
    return stet__answer_give(reply, run, "query", name, &answer);
}

int
stet_query(stet_engine *e, stet_bytes *reply, const stet_run_id *run, const char *name,
           stet_bytes input, int64_t timeout_ms)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    stet__buf    out;
    stet_id      id;
    int          err;

    if (reply != NULL)
        *reply = (stet_bytes){ NULL, 0 };
    if ((err = stet__alive(e, "stet_query")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_query", "it in a step's body")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK ||
        (err = stet__name_check("query", name)) != STET_OK)
        return err;
    if (timeout_ms < 0 || timeout_ms > QUERY_WAIT_MAX)
        return stet__fail(STET_EINVAL, "query %s: an answer is waited for between 1 ms and 1 h",
                          name);
    if ((int64_t)input.len > e->config.payload_bytes_max)
        return stet__fail(STET_ETOOBIG, "query %s: %zu bytes; the limit is payload_bytes_max, %lld",
                          name, input.len, (long long)e->config.payload_bytes_max);
    stet__buf_init(&out, &e->p->alloc);
    stet__arena_init(&arena, &e->p->alloc);
    if ((err = stet__load_row(e, id, &arena, &row, &extra)) == STET_OK)
        err = stet__handler_find(e, row.handler) != NULL
                  ? query_here(e, &row, name, input, &out)
                  : query_elsewhere(e, run, &row, name, input,
                                    timeout_ms > 0 ? timeout_ms : QUERY_WAIT_MS, &out);
    if (err == STET_OK)
        err = query_give(reply, run, name, &out);
    stet__arena_free(&arena);
    stet__buf_free(&out);
    return err;
}

/* ---- answering others ------------------------------------------------------------------------ */

/* The question is ours alone from here on; STET_ECONFLICT: another worker's. */
static int
answer_take(stet_engine *e, const query_found *q)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    stet_cond  *cond = w != NULL ? stet__work_cond(w, STET_COND_VALUE, q->id) : NULL;

    if (cond == NULL || !query_op(w, STET_OP_VALUE_DEL, STET__SPACE_ASK, q->id, NULL)) {
        stet__work_free(w);
        return STET_ENOMEM;
    }
    cond->space = STET__SPACE_ASK;
    cond->key = w->ops[0].key;
    cond->number = q->version;
    return stet__commit_sync(e, w, NULL);
}

static void
answer_give(stet_engine *e, const query_found *q, const char *name)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra, answer = { .kind = STET__FACT_ANSWER };
    stet__buf    out;
    stet_bytes   in;
    int          err;

    stet__buf_init(&out, &e->p->alloc);
    stet__arena_init(&arena, &e->p->alloc);
    if ((err = stet__load_row(e, stet__fact_id(q->fact.run), &arena, &row, &extra)) == STET_OK)
        err = query_here(e, &row, name, q->fact.value, &out);
    in = stet__buf_bytes(&out);
    if (err == STET_OK)
        err = stet__fact_decode(&answer, &in);
    if (err != STET_OK) {
        answer.kind = STET__FACT_ANSWER;
        answer.code = err;
        answer.text = stet_text(stet_last_error());
    }
    answer.until_ms = stet__store_now(e) + QUERY_KEPT_MS;
    if (query_write(e, STET__SPACE_ANSWER, q->id, &answer) == STET_OK)
        stet__hint_nudge(e);
    stet__arena_free(&arena);
    stet__buf_free(&out);
}

/* Is its handler here? */
static bool
answer_is_ours(stet_engine *e, const stet__fact *question)
{
    char handler[2 * STET__NAME_MAX + 2];

    if (question->kind != STET__FACT_QUESTION || question->key.len >= sizeof handler)
        return false;
    (void)snprintf(handler, sizeof handler, "%.*s", (int)question->key.len,
                   (const char *)question->key.data);
    return stet__handler_find(e, handler) != NULL;
}

/* All there are; *is_some: there are some for us. With answers, or only looking. */
static void
answer_all(stet_engine *e, bool *is_some, bool must_answer)
{
    query_page *page = stet__get_head(&e->p->alloc, sizeof *page, offsetof(query_page, found));
    char        name[STET__NAME_MAX + 1];
    bool        is_ours;

    *is_some = false;
    if (page == NULL)
        return;
    stet__arena_init(&page->arena, &e->p->alloc);
    do {
        if (query_page_read(e, STET__SPACE_ASK, page) != STET_OK)
            break;
        for (size_t i = 0; i < page->n; i++) {
            const query_found *q = &page->found[i];

            is_ours = q->fact.until_ms >= stet__store_now(e) && answer_is_ours(e, &q->fact);
            *is_some = *is_some || is_ours;
            if (!is_ours || !must_answer || q->fact.name.len >= sizeof name ||
                answer_take(e, q) != STET_OK)
                continue;
            (void)snprintf(name, sizeof name, "%.*s", (int)q->fact.name.len,
                           (const char *)q->fact.name.data);
            answer_give(e, q, name);
        }
    } while (page->n == QUERY_PAGE && (must_answer || !*is_some));
    stet__arena_free(&page->arena);
    stet__free(&e->p->alloc, page);
}

static void
answer_main(void *arg)
{
    stet_engine *e = arg;
    bool         is_some;

    stet__lock(e->p, &e->lock);
    while (!e->is_answerer_closing) {
        if (!e->has_questions) {
            (void)stet__wait(e->p, &e->answer_cond, &e->lock, STET__FOREVER);
            continue;
        }
        e->has_questions = false;
        stet__unlock(e->p, &e->lock);
        answer_all(e, &is_some, true);
        stet__lock(e->p, &e->lock);
    }
    stet__unlock(e->p, &e->lock);
}

void
stet__answerer_hint(stet_engine *e, int64_t now_us, bool is_hint)
{
    int64_t when_us = is_hint ? e->questions_looked_us + QUERY_LOOK_US : now_us;

    if (e->n_handlers == 0 || !(e->config.roles & STET_ROLE_WORKER))
        return;
    when_us = when_us < now_us ? now_us : when_us;
    if (e->next_questions_us > when_us)
        e->next_questions_us = when_us;
}

void
stet__answerer_look(stet_engine *e, int64_t now_us)
{
    bool is_some;

    e->next_questions_us = STET__FOREVER;
    e->questions_looked_us = now_us;
    stet__unlock(e->p, &e->lock);
    answer_all(e, &is_some, e->is_polled);
    stet__lock(e->p, &e->lock);
    if (!is_some || e->is_polled)
        return;
    if (e->answerer == NULL && !e->is_keeper_closing &&
        e->p->ops->thread_start(e->p, &e->answerer, "stet-answer", answer_main, e) != STET_OK)
        return; /* the next look tries again */
    e->has_questions = true;
    stet__signal(e->p, &e->answer_cond);
}

void
stet__answerer_close(stet_engine *e)
{
    stet__thread *thread;

    stet__lock(e->p, &e->lock);
    e->is_answerer_closing = true;
    thread = e->answerer;
    stet__signal(e->p, &e->answer_cond);
    stet__unlock(e->p, &e->lock);
    if (thread != NULL)
        e->p->ops->thread_join(e->p, thread);
    e->answerer = NULL;
}
