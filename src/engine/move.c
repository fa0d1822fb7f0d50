/* Moving all runs from one store to another; docs/decisions/0019-moving.md tells why it is done
 * like this.
 *
 * Who may work where is in the stop marks of the two stores (stop.c), written in this order:
 *
 *     source      target      what
 *     -           -           before
 *     OUT(id)     -           no new work; workers are looked for, the dead are reaped
 *     OUT(id)     IN(id)      the target is filled, rebuilt, verified, compared
 *     GONE(id)    IN(id)      the target is right; from here on the source never works again
 *     GONE(id)    -           the target is open; it remembers the id, so a repeat knows it is done
 *
 * At every moment at most one of them can be opened for work. `id` names one filling of one target.
 * Each target that is begun has its own, and the source's mark says which one is meant; only that
 * one can become the home of the runs. Another one that was begun in the same move can be taken up
 * again until then.
 *
 * Invariants: every unit for the target carries IN(id) as a condition, every one for the source
 * OUT(id); the marks are changed only from what the table says they are.
 */
#include <stdio.h>
#include <string.h>

#include "engine/move.h"

/* In the target when all is done; its run: the id, its data: the source. */
static const char move_from_key[] = "from";

#define MOVE_CLOCK_MS 60000 /* so much may the target's clock be behind; it is waited for */

static const char *const move_phases[] = { "counting", "copying", "rebuilding", "verifying",
                                           "comparing" };

const char *
stet_move_phase_name(stet_move_phase phase)
{
    return (size_t)phase < sizeof move_phases / sizeof *move_phases ? move_phases[phase] : "";
}

void
stet_move_options_init(stet_move_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

int
stet__move_tell(move *m, stet_move_phase phase)
{
    const stet_move_options *o = m->options;

    return o != NULL && o->progress != NULL
               ? o->progress(o->arg, phase, m->done, phase == STET_MOVE_COUNTING ? 0 : m->total)
               : STET_OK;
}

/* ---- the source's runs, page by page --------------------------------------------------------- */

static int
move_on_row(void *arg, const stet_run_row *from)
{
    move         *m = arg;
    stet_run_row *row = &m->rows[m->n_rows];

    *row = *from;
    row->handler = stet__arena_str(&m->arena, from->handler);
    row->key = stet__arena_str(&m->arena, from->key);
    row->lane = stet__arena_str(&m->arena, from->lane);
    row->group = stet__arena_str(&m->arena, from->group);
    row->reason = stet__arena_str(&m->arena, from->reason);
    row->extra.data = stet__arena_copy(&m->arena, from->extra.data, from->extra.len);
    if (row->handler == NULL || (from->key != NULL) != (row->key != NULL) ||
        (from->lane != NULL) != (row->lane != NULL) ||
        (from->group != NULL) != (row->group != NULL) ||
        (from->reason != NULL) != (row->reason != NULL) || row->extra.data == NULL)
        return stet__move_no_memory();
    m->n_rows++;
    m->last = row->id;
    return STET_OK;
}

int
stet__move_page(move *m)
{
    stet_store    *s = m->from->store;
    stet_run_query query = { .oldest_first = true, .before = m->last, .limit = MOVE_PAGE };

    stet__arena_free(&m->arena);
    m->n_rows = 0;
    return s->ops->runs(s, &query, move_on_row, m);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* From the mark this engine stands on to the next one; NONE takes it away. */
static int
move_mark(const move *m, stet_engine *e, stet__stop_phase phase, const char *peer)
{
    stet_id     move_id = m->id;
    char       *data;
    stet__work *w = stet__work_new(e, NULL, NULL);
    bool        is_done = phase == STET__STOP_NONE && e->stop_phase == STET__STOP_IN;
    stet_op    *op;
    int         err;

    if (w == NULL)
        return STET_ENOMEM;
    op =
        stet__work_op(w, phase == STET__STOP_NONE ? STET_OP_VALUE_DEL : STET_OP_VALUE_PUT, move_id);
    if (op != NULL) {
        op->space = STET__SPACE_BASE_MOVE;
        op->key = stet__stop_key();
        op->number = (uint64_t)phase;
        if (phase != STET__STOP_NONE)
            op->flags = STET_OP_SETTLE; /* who was not refused is to be seen from now on */
    }
    if (op == NULL ||
        (data = stet__arena_get(&w->arena, sizeof m->origin.bytes + strlen(peer))) == NULL)
        goto failed;
    memcpy(data, m->origin.bytes, sizeof m->origin.bytes);
    memcpy(data + sizeof m->origin.bytes, peer, strlen(peer));
    op->data = (stet_bytes){ data, sizeof m->origin.bytes + strlen(peer) };
    if (is_done && peer[0] != '\0') {
        if ((op = stet__work_op(w, STET_OP_VALUE_PUT, move_id)) == NULL ||
            !stet__work_bytes(w, &op->data, stet_text(peer)))
            goto failed;
        op->space = STET__SPACE_BASE_MOVE;
        op->key = stet_text(move_from_key);
        op->number = 1;
    }
    if ((err = stet__commit_sync(e, w, NULL)) == STET_OK) {
        e->stop_move = move_id;
        e->stop_phase = phase;
    } else if (err == STET_EMOVED)
        err = stet__fail(STET_ECONFLICT,
                         "%s: this move was called off, or finished by somebody else", e->url);
    return err;
failed:
    stet__work_free(w);
    return stet__move_no_memory();
}

/* Take over the mark that is there. */
static void
move_adopt(stet_engine *e, const stet__stop *stop)
{
    e->stop_move = stop->move;
    e->stop_phase = stop->phase;
}

/* ---- may it begin? --------------------------------------------------------------------------- */

typedef struct move_worker {
    stet_engine *e;
    stet__arena *arena;
    size_t       dead;
} move_worker;

static int
move_on_session(void *arg, const stet_session_row *row)
{
    move_worker     *w = arg;
    stet_worker_info info;

    if (row->is_dead) {
        w->dead++;
        return STET_OK;
    }
    stet__info_decode(&info, w->arena, row);
    return stet__fail(STET_EBUSY,
                      "worker %s on %s is at work in %s; stop it first (one that was killed is "
                      "gone when its lease ends)",
                      info.name[0] != '\0' ? info.name : info.id, info.host, w->e->url);
}

/* STET_EBUSY, named: one is alive. `dead` (or NULL): how many are dead and not put away. */
static int
move_no_workers(stet_engine *e, size_t *dead)
{
    stet__arena arena;
    move_worker w = { .e = e, .arena = &arena };
    int         err;

    stet__arena_init(&arena, &e->p->alloc);
    err = e->store->ops->sessions(e->store, move_on_session, &w);
    stet__arena_free(&arena);
    if (dead != NULL)
        *dead = w.dead;
    return err;
}

static int
move_on_any_run(void *arg, const stet_run_row *row)
{
    *(stet_id *)arg = row->id;
    return STET_OK;
}

static int
move_on_any_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    *(bool *)arg = true;
    return STET_OK;
}

static int
move_is_empty(stet_engine *e, bool *is_empty)
{
    static const char *const spaces[] = STET__SPACES_BASE;
    stet_store              *s = e->store;
    stet_run_query           query = { .limit = 1 }, lost = { .is_lost = true, .limit = 1 };
    stet_id                  found = { { 0 } };
    bool                     has_base = false;
    int                      err;

    if ((err = s->ops->runs(s, &query, move_on_any_run, &found)) != STET_OK ||
        (err = s->ops->runs(s, &lost, move_on_any_run, &found)) != STET_OK)
        return err;
    for (size_t i = 0; err == STET_OK && i < sizeof spaces / sizeof *spaces; i++)
        err = s->ops->values(s, spaces[i], (stet_bytes){ NULL, 0 }, NULL, 1, move_on_any_value,
                             &has_base);
    *is_empty = stet__id_is_zero(found) && !has_base;
    return err;
}

/* What the dead were doing is told to their runs, where the next execution finds it. In the end
 * there is no session any more, and behind the mark none is made: nobody can claim anything. */
static int
move_reap(stet_engine *e)
{
    size_t before = SIZE_MAX, dead;
    int    err;

    for (;;) {
        if ((err = move_no_workers(e, &dead)) != STET_OK || dead == 0)
            return err;
        if (dead >= before)
            return stet__fail(STET_EBUSY,
                              "a worker that died in %s cannot be put away yet; try again", e->url);
        before = dead;
        if ((err = stet__reap(e)) != STET_OK)
            return err;
    }
}

/* Nobody has a run, and every run has a row. */
static int
move_count(move *m)
{
    stet_store    *s = m->from->store;
    stet_run_query lost = { .is_lost = true, .limit = 1 };
    stet_id        found = { { 0 } };
    char           run[STET_ID_TEXT_MAX];
    int            err;

    if ((err = move_reap(m->from)) != STET_OK ||
        (err = s->ops->runs(s, &lost, move_on_any_run, &found)) != STET_OK)
        return err;
    if (!stet__id_is_zero(found)) {
        stet__id_text(run, STET__ID_RUN, found);
        return stet__fail(STET_ECORRUPT,
                          "run %s of %s has facts and no row; `stet verify --repair` first", run,
                          m->from->url);
    }
    memset(&m->last, 0, sizeof m->last);
    do {
        if ((err = stet__move_page(m)) != STET_OK)
            return err;
        for (size_t i = 0; i < m->n_rows; i++)
            if (m->rows[i].session != 0) {
                stet__id_text(run, STET__ID_RUN, m->rows[i].id);
                return stet__fail(
                    STET_EBUSY, "run %s of %s is still claimed by a worker that is gone; try again",
                    run, m->from->url);
            }
        m->done = m->total += m->n_rows;
        if (m->n_rows > 0)
            err = stet__move_tell(m, STET_MOVE_COUNTING);
    } while (err == STET_OK && m->n_rows > 0);
    return err;
}

/* ---- the order of things --------------------------------------------------------------------- */

static int
move_same(const move *m)
{
    return stet__fail(STET_EINVAL, "%s and %s are the same store", m->from->url, m->to->url);
}

/* The target is not empty. The same store under another name is not empty either. */
static int
move_in_use(move *m)
{
    stet_store    *s = m->from->store, *t = m->to->store;
    stet_run_query query = { .limit = 1 };
    stet_id        id = { { 0 } };
    int            err;

    if ((err = t->ops->runs(t, &query, move_on_any_run, &id)) != STET_OK)
        return err;
    if (!stet__id_is_zero(id) && s->ops->run(s, id, move_on_any_run, &id) == STET_OK)
        return stet__fail(STET_EINVAL,
                          "%s has the runs of %s: it is the same store, or a copy of it",
                          m->to->url, m->from->url);
    return stet__fail(STET_EEXISTS, "%s has runs of its own; give an empty one", m->to->url);
}

/* The target remembers this move. */
static int
move_is_finished(move *m, stet_id id, bool *is_finished)
{
    stet_store *t = m->to->store;
    stet_value  value = { 0 };
    int         err = t->ops->value(t, STET__SPACE_BASE_MOVE, stet_text(move_from_key), &value);

    *is_finished = err == STET_OK && stet__id_equal(value.run, id);
    stet__free(t->alloc, (void *)(uintptr_t)value.data.data);
    return err == STET_ENOTFOUND ? STET_OK : err;
}

/* The source was moved. Into this target? */
static int
move_repeat(move *m, const stet__stop *source, const stet__stop *target)
{
    bool is_finished = false;
    int  err;

    if (target->phase == STET__STOP_IN && stet__id_equal(source->move, target->move)) {
        move_adopt(m->from, source);
        move_adopt(m->to, target);
        m->id = source->move;
        m->origin = source->origin;
        m->report.is_continued = true;
        if ((err = move_count(m)) != STET_OK || (err = stet__move_compare(m)) != STET_OK)
            return err;
        return move_mark(m, m->to, STET__STOP_NONE, m->from->url);
    }
    if ((err = move_is_finished(m, source->move, &is_finished)) != STET_OK)
        return err;
    if (!is_finished)
        return stet__fail(STET_EMOVED, "%s was moved to %s", m->from->url, source->peer);
    m->report.was_done = true;
    memset(&m->last, 0, sizeof m->last);
    do {
        if ((err = stet__move_page(m)) != STET_OK)
            return err;
        for (size_t i = 0; i < m->n_rows; i++) {
            m->report.runs++;
            m->report.open_runs += !m->rows[i].is_terminal;
            m->report.facts += m->rows[i].journal;
            m->report.inbox += m->rows[i].inbox;
        }
    } while (m->n_rows > 0);
    return STET_OK;
}

/* Close the source for work. On failure it is as it was. */
static int
move_close_source(move *m, const stet__stop *source)
{
    bool is_new = source->phase == STET__STOP_NONE;
    int  err;

    if (!is_new)
        move_adopt(m->from, source);
    /* Before the mark, too: a fleet at work is not to be stopped for a moment by a mistake. */
    if ((err = move_no_workers(m->from, NULL)) != STET_OK ||
        (err = move_mark(m, m->from, STET__STOP_OUT, m->to->url)) != STET_OK ||
        (err = move_reap(m->from)) == STET_OK || !is_new)
        return err;
    {
        char text[1024];

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        (void)move_mark(m, m->from, STET__STOP_NONE, "");
        return stet__fail(err, "%s", text);
    }
}

/* The same for a target that is new. */
static int
move_close_target(move *m)
{
    stet__stop  target;
    stet__arena arena;
    bool        is_empty;
    int         err;

    stet__arena_init(&arena, &m->to->p->alloc);
    err = stet__stop_read(m->to->store, &arena, &target);
    stet__arena_free(&arena);
    if (err == STET_OK && target.phase == STET__STOP_OUT && stet__id_equal(target.move, m->id))
        err = move_same(m);
    if (err != STET_OK || (err = move_mark(m, m->to, STET__STOP_IN, m->from->url)) != STET_OK)
        return err;
    /* Behind the mark nobody can add to it any more. */
    if ((err = move_reap(m->to)) == STET_OK &&
        (err = move_is_empty(m->to, &is_empty)) == STET_OK && !is_empty)
        err = move_in_use(m);
    if (err != STET_OK) {
        char text[1024];

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        (void)move_mark(m, m->to, STET__STOP_NONE, "");
        return stet__fail(err, "%s", text);
    }
    return STET_OK;
}

/* Clocks go at one pace: what is too much at the beginning is so in the end. */
static int
move_check_clock(const move *m)
{
    int64_t behind_ms = stet__store_now(m->from) - stet__store_now(m->to);

    return behind_ms <= MOVE_CLOCK_MS
               ? STET_OK
               : stet__fail(STET_EBUSY,
                            "the clock of %s is %lld s behind that of %s; set it right first",
                            m->to->url, (long long)(behind_ms / 1000), m->from->url);
}

/* Both marks, or none where there were none. */
static int
move_begin(move *m, const stet__stop *source, const stet__stop *target)
{
    bool is_empty;
    int  err;

    if (target->phase == STET__STOP_IN && source->phase == STET__STOP_OUT &&
        stet__id_equal(source->origin, target->origin)) {
        m->id = target->move;
        m->origin = source->origin;
        m->report.is_continued = true;
        move_adopt(m->from, source);
        move_adopt(m->to, target);
        /* Another target was begun meanwhile, or begun to be: this one is meant now. */
        if (!stet__id_equal(source->move, target->move) &&
            (err = move_mark(m, m->from, STET__STOP_OUT, m->to->url)) != STET_OK)
            return err;
        return (err = move_reap(m->from)) == STET_OK ? move_reap(m->to) : err;
    }
    if (target->phase == STET__STOP_IN)
        return stet__fail(STET_EEXISTS,
                          "%s was begun to be filled by another move, from %s; give an empty one",
                          m->to->url, target->peer);
    if (target->phase != STET__STOP_NONE)
        return stet__id_equal(source->move, target->move)
                   ? move_same(m)
                   : stet__fail(STET_EEXISTS, "%s was moved itself, to %s; give an empty one",
                                m->to->url, target->peer);
    if ((err = move_is_empty(m->to, &is_empty)) == STET_OK && !is_empty)
        err = move_in_use(m);
    if (err == STET_OK && (err = move_is_empty(m->from, &is_empty)) == STET_OK && is_empty)
        err = stet__fail(STET_ENOTFOUND, "there is nothing to move in %s", m->from->url);
    if (err != STET_OK || (err = move_check_clock(m)) != STET_OK ||
        (err = move_no_workers(m->to, NULL)) != STET_OK)
        return err;
    m->id = stet__new_id(m->from);
    m->origin = source->phase == STET__STOP_OUT ? source->origin : m->id;
    if ((err = move_close_source(m, source)) != STET_OK)
        return err;
    if ((err = move_close_target(m)) != STET_OK && source->phase == STET__STOP_NONE) {
        char text[1024];

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        (void)move_mark(m, m->from, STET__STOP_NONE, "");
        return stet__fail(err, "%s", text);
    }
    return err;
}

/* Which of two writes of a state entry is the later is told by the times of their facts. So the
 * target's clock must be past all that the source's has told. */
static int
move_await_clock(move *m)
{
    stet_engine *e = m->to;
    int          err;

    if ((err = move_check_clock(m)) != STET_OK)
        return err;
    stet__lock(e->p, &e->lock);
    while (stet__store_now(e) <= m->from_ms)
        (void)stet__wait(e->p, &e->renew_cond, &e->lock, stet__mono_us(e->p) + 10000);
    stet__unlock(e->p, &e->lock);
    return STET_OK;
}

static int
move_all(move *m)
{
    int err;

    m->from_ms = stet__store_now(m->from);
    if ((err = move_await_clock(m)) != STET_OK)
        return err;
    if ((err = move_count(m)) != STET_OK || (err = stet__move_copy(m)) != STET_OK ||
        (err = stet__move_rebuild(m)) != STET_OK)
        return err;
    m->done = 0;
    if ((err = stet__move_tell(m, STET_MOVE_VERIFYING)) != STET_OK ||
        (err = stet__move_verify(m)) != STET_OK)
        return err;
    m->done = m->total;
    if ((err = stet__move_tell(m, STET_MOVE_VERIFYING)) != STET_OK)
        return err;
    if ((err = stet__move_compare(m)) != STET_OK)
        return err;
    if ((err = move_mark(m, m->from, STET__STOP_GONE, m->to->url)) != STET_OK)
        return err;
    return move_mark(m, m->to, STET__STOP_NONE, m->from->url);
}

static int
move_run(move *m, stet__arena *arena)
{
    stet__stop source, target;
    int        err;

    if ((err = stet__stop_read(m->from->store, arena, &source)) != STET_OK ||
        (err = stet__stop_read(m->to->store, arena, &target)) != STET_OK)
        return err;
    if (source.phase == STET__STOP_IN)
        return stet__fail(STET_EMOVED, "%s is itself being filled from %s; finish that move first",
                          m->from->url, source.peer);
    if (source.phase == STET__STOP_GONE)
        return move_repeat(m, &source, &target);
    if ((err = move_begin(m, &source, &target)) != STET_OK)
        return err;
    return move_all(m);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The two engines execute nothing and tell errors by their codes. Started, because their committers
 * then submit a commit of unknown outcome again until it is known. */
static int
move_open(stet_engine **out, stet__platform *p, stet_store *store, const char *url)
{
    int err = stet__open_on(out, p, store, url,
                            STET_OPTIONS(.roles = STET_ROLE_CLIENT, .log_level = STET_LOG_OFF));

    return err == STET_OK ? stet_engine_start(*out) : err;
}

int
stet__move_on(stet_move_report *report, stet__platform *p, stet_store *from, const char *from_url,
              stet_store *to, const char *to_url, const stet_move_options *options)
{
    move       *m = stet__get0(&p->alloc, sizeof *m);
    char        text[1024];
    stet__arena arena;
    int         err;

    if (m == NULL) {
        stet__store_close(from);
        stet__store_close(to);
        return stet__move_no_memory();
    }
    m->options = options;
    m->unit_bytes =
        options != NULL && options->unit_bytes > 0 ? options->unit_bytes : MOVE_UNIT_BYTES;
    stet__arena_init(&m->arena, &p->alloc);
    stet__arena_init(&arena, &p->alloc);
    if ((err = move_open(&m->from, p, from, from_url)) != STET_OK)
        stet__store_close(to);
    else if ((err = move_open(&m->to, p, to, to_url)) == STET_OK)
        err = move_run(m, &arena);
    if (err != STET_OK)
        (void)snprintf(text, sizeof text, "%s", stet_last_error());
    for (size_t i = 0; i < m->n_works; i++)
        stet__work_free(m->works[i]);
    if (report != NULL)
        *report = m->report;
    stet_close(m->from);
    stet_close(m->to);
    stet__arena_free(&arena);
    stet__arena_free(&m->arena);
    stet__free(&p->alloc, m);
    return err != STET_OK ? stet__fail(err, "%s", text) : STET_OK;
}

static int
move_check_url(const char *what, const char *url)
{
    if (url == NULL || url[0] == '\0')
        return stet__fail(STET_EURL, "no %s named; give a file like shop.db", what);
    if (strcmp(url, "memory:") == 0)
        return stet__fail(STET_EURL,
                          "memory: is gone when it is closed; it cannot be the %s of a move", what);
    return STET_OK;
}

static int
move_between(stet_move_report *report, stet__platform *p, const char *from, const char *to,
             const stet_move_options *options)
{
    stet_store *source, *target;
    int         err;

    if ((err = move_check_url("source", from)) != STET_OK ||
        (err = move_check_url("target", to)) != STET_OK)
        return err;
    if (strcmp(from, to) == 0)
        return stet__fail(STET_EINVAL, "a store cannot be moved to itself: --from and --to are the same address");
    if ((err = stet__store_exists(p, from)) != STET_OK ||
        (err = stet__store_open(&source, p, from)) != STET_OK)
        return err;
    if ((err = stet__store_open(&target, p, to)) != STET_OK) {
        char text[1024];

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        stet__store_close(source);
        return stet__fail(err, "%s", text);
    }
    return stet__move_on(report, p, source, from, target, to, options);
}

/* An address may name a queue, as it does elsewhere; a move tells nobody. */
static int
move_address(stet__platform *p, const char *url, char **store)
{
    char *queue;
    int   err = stet__hint_split(p, url != NULL ? url : "", store, &queue);

    if (err == STET_OK)
        stet__hint_wipe(p, queue);
    return err;
}

int
stet_move(stet_move_report *report, const char *from, const char *to,
          const stet_move_options *options)
{
    stet__platform *p = stet__platform_real();
    char           *source = NULL, *target = NULL;
    int             err;

    if (report != NULL)
        memset(report, 0, sizeof *report);
    if (options != NULL && options->size != sizeof *options)
        return stet__fail(
            STET_ECONFIG,
            "stet_move_options.size is %zu; use STET_MOVE(…) or stet_move_options_init()",
            options->size);
    if ((err = move_address(p, from, &source)) == STET_OK &&
        (err = move_address(p, to, &target)) == STET_OK)
        err = move_between(report, p, source, target, options);
    stet__free(&p->alloc, source);
    stet__free(&p->alloc, target);
    return err;
}

/* ---- calling it off -------------------------------------------------------------------------- */

static int
move_undo(stet_engine *e)
{
    stet__arena arena;
    stet__stop  stop;
    int         err;

    stet__arena_init(&arena, &e->p->alloc);
    err = stet__stop_read(e->store, &arena, &stop);
    if (err == STET_OK && stop.phase == STET__STOP_GONE)
        err = stet__fail(STET_EMOVED,
                         "%s was moved to %s and its runs live there; move them from there", e->url,
                         stop.peer);
    else if (err == STET_OK && stop.phase == STET__STOP_IN)
        err = stet__fail(STET_EMOVED, "%s is the target of a move; call it off at its source, %s",
                         e->url, stop.peer);
    else if (err == STET_OK && stop.phase == STET__STOP_OUT) {
        move m = { .id = stop.move, .origin = stop.origin };

        move_adopt(e, &stop);
        err = move_mark(&m, e, STET__STOP_NONE, "");
    }
    stet__arena_free(&arena);
    return err;
}

static int
move_undo_at(stet__platform *p, const char *from)
{
    stet_store  *store;
    stet_engine *e;
    char         text[1024];
    int          err;

    if ((err = move_check_url("source", from)) != STET_OK ||
        (err = stet__store_exists(p, from)) != STET_OK ||
        (err = stet__store_open(&store, p, from)) != STET_OK)
        return err;
    if ((err = move_open(&e, p, store, from)) != STET_OK || (err = move_undo(e)) != STET_OK)
        (void)snprintf(text, sizeof text, "%s", stet_last_error());
    stet_close(e);
    return err != STET_OK ? stet__fail(err, "%s", text) : STET_OK;
}

int
stet_move_undo(const char *from)
{
    stet__platform *p = stet__platform_real();
    char           *store;
    int             err = move_address(p, from, &store);

    if (err != STET_OK)
        return err;
    err = move_undo_at(p, store);
    stet__free(&p->alloc, store);
    return err;
}
