/* Repair: write what the facts say into the rows of a run.
 *
 * Each repair is one unit. The store refuses it if the run's facts or inbox are not those it was
 * computed from, or if somebody has the run (STET_OP_RESTORE), so a fleet at work is not disturbed,
 * and a repair that is repeated after a crash finds nothing left to do.
 *
 * Due times are given by waking, never by writing "now": who is first in a lane may change until
 * the unit's turn comes, and a wake-up asks the store about that.
 */
#include <string.h>

#include "engine/engine.h"

/* So many claims of a run may have recorded nothing. The epoch of a row that was lost is not known;
 * it must be above all that were given, or a worker that still executes the run might hold the next
 * claim's epoch. */
#define REPAIR_EPOCHS 1000

/* ---- who may have been executing a run whose row was lost ------------------------------------ */

typedef struct repair_session {
    struct repair_session *next;
    uint64_t               session;
    stet_id                worker;
    bool                   is_dead;
    stet_crumb *crumbs; /* the store's memory; NULL: they did not survive, or are still written */
    size_t                 n;
} repair_session;

struct stet__crumbs_left {
    stet__arena     arena;
    repair_session *sessions;
};

static int
repair_on_session(void *arg, const stet_session_row *row)
{
    stet__crumbs_left *left = arg;
    repair_session    *s = stet__arena_get0(&left->arena, sizeof *s);

    if (s == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    s->session = row->session;
    s->worker = row->id;
    s->is_dead = row->is_dead;
    s->next = left->sessions;
    left->sessions = s;
    return STET_OK;
}

void
stet__crumbs_drop(stet_engine *e, stet__crumbs_left *left)
{
    if (left == NULL)
        return;
    for (repair_session *s = left->sessions; s != NULL; s = s->next)
        stet__free(e->store->alloc, s->crumbs);
    stet__arena_free(&left->arena);
    stet__free(&e->p->alloc, left);
}

int
stet__crumbs_gather(stet_engine *e, stet__crumbs_left **out)
{
    stet__crumbs_left *left = stet__get0(&e->p->alloc, sizeof *left);
    int                err;

    *out = NULL;
    if (left == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    stet__arena_init(&left->arena, &e->p->alloc);
    err = e->store->ops->sessions(e->store, repair_on_session, left);
    for (repair_session *s = left->sessions; err == STET_OK && s != NULL; s = s->next) {
        if (!s->is_dead)
            continue;
        err = e->store->ops->crumbs_of(e->store, s->session, &s->crumbs, &s->n);
        /* They did not survive, or it lives after all. A read that failed says neither. */
        if (err == STET_ENOTFOUND || err == STET_ESTATE)
            err = STET_OK;
    }
    if (err == STET_OK)
        *out = left;
    else
        stet__crumbs_drop(e, left);
    return err;
}

/* Could a worker have had it, by what is on record? */
static bool
repair_may_execute(stet_engine *e, const stet__expect *x)
{
    if (stet__run_is_terminal(&x->l.run) || x->status == STET_STATUS_STUCK)
        return false;
    return x->due == STET__DUE_NOW || (x->due == STET__DUE_AT && x->due_ms <= stet__store_now(e));
}

/* The next execution has to know which steps may have happened. *n: entries put into its inbox. */
static bool
repair_tell_lost(stet_engine *e, stet__work *w, const stet__expect *x,
                 const stet__crumbs_left *left, size_t *n)
{
    int64_t now_ms = stet__store_now(e);
    bool    is_unknown = false, is_counted = false;
    stet_id nobody = { { 0 } };

    *n = 0;
    if (!repair_may_execute(e, x))
        return true;
    for (const repair_session *s = left->sessions; s != NULL; s = s->next) {
        is_unknown = is_unknown || s->crumbs == NULL;
        is_counted = false;
        for (size_t i = 0; i < s->n; i++) {
            if (s->crumbs[i].is_busy == 0 || !stet__id_equal(s->crumbs[i].run, x->l.run.id))
                continue;
            if (!stet__tell_lost(w, now_ms, x->l.run.id, s->worker, &s->crumbs[i], &is_counted))
                return false;
            ++*n;
        }
    }
    if (!is_unknown || *n > 0)
        return true;
    ++*n;
    return stet__tell_lost(w, now_ms, x->l.run.id, nobody, NULL, &is_counted);
}

/* ---- the row --------------------------------------------------------------------------------- */

typedef struct repair_lane {
    stet__arena *arena;
    stet_id     *runs;
    size_t       n, cap;
} repair_lane;

static int
repair_on_lane(void *arg, stet_id run)
{
    repair_lane *lane = arg;

    if (lane->n == lane->cap) {
        size_t   cap = lane->cap * 2 + 8;
        stet_id *grown = stet__arena_get(lane->arena, cap * sizeof *grown);

        if (grown == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        if (lane->n > 0)
            memcpy(grown, lane->runs, lane->n * sizeof *grown);
        lane->runs = grown;
        lane->cap = cap;
    }
    lane->runs[lane->n++] = run;
    return STET_OK;
}

/* A due time in the future can be written only if nobody can be in front of it; a run that is first
 * stays so. */
static int
repair_is_first(stet_engine *e, stet__work *w, const stet__expect *x, bool *is_first)
{
    repair_lane lane = { .arena = &w->arena };
    int         err;

    *is_first = true;
    if (x->l.row.lane == NULL)
        return STET_OK;
    err = e->store->ops->lane(e->store, x->l.row.lane, 1, repair_on_lane, &lane);
    *is_first = lane.n > 0 && stet__id_equal(lane.runs[0], x->l.run.id);
    return err;
}

static bool
repair_set_due(stet__work *w, stet_id run, int64_t due_ms)
{
    stet_op      *op = stet__work_op(w, STET_OP_RUN_SET, run);
    stet_run_row *row = stet__arena_get0(&w->arena, sizeof *row);

    if (op == NULL || row == NULL)
        return false;
    row->id = run;
    row->due_ms = due_ms;
    op->row = row;
    op->mask = STET_RUN_DUE;
    return true;
}

/* Nobody has the run, and it is as we saw it when the unit's turn comes. STET_ECONFLICT: it is not so now. */
static int
repair_need_idle(stet_engine *e, stet__work *w, stet_id run)
{
    stet_run_row row;
    stet__fact   extra;
    stet_cond   *cond;
    int          err = stet__load_row(e, run, &w->arena, &row, &extra);

    if (err == STET_ENOTFOUND || (err == STET_OK && row.session != 0))
        return STET_ECONFLICT;
    if (err != STET_OK)
        return err;
    if ((cond = stet__work_cond(w, STET_COND_CLAIM, run)) == NULL)
        return STET_ENOMEM;
    cond->session = 0;
    cond->epoch = row.epoch;
    if ((cond = stet__work_cond(w, STET_COND_JOURNAL, run)) == NULL)
        return STET_ENOMEM;
    cond->number = row.journal;
    return STET_OK;
}

/* The others of the lane leave it, the last first so that none of them is woken, and enter it again behind
 * this one, as they stood. */
static int
repair_queue_up(stet_engine *e, stet__work *w, const stet__expect *x, const repair_lane *lane)
{
    stet_op *op;
    int      err = STET_OK;

    for (size_t i = lane->n; err == STET_OK && i-- > 0;) {
        if (stet__id_equal(lane->runs[i], x->l.run.id))
            continue;
        if ((err = repair_need_idle(e, w, lane->runs[i])) != STET_OK)
            break;
        if ((op = stet__work_op(w, STET_OP_LANE_LEAVE, lane->runs[i])) == NULL)
            return STET_ENOMEM;
        op->status = STET_STATUS_PENDING;
    }
    for (size_t i = 0; err == STET_OK && i < lane->n; i++) {
        if (stet__id_equal(lane->runs[i], x->l.run.id))
            continue;
        if ((op = stet__work_op(w, STET_OP_LANE_ENTER, lane->runs[i])) == NULL)
            return STET_ENOMEM;
        op->lane = x->l.row.lane;
        op->status = STET_STATUS_PENDING;
    }
    return err;
}

int
stet__repair_is_passed(stet_engine *e, const stet__expect *x, bool *is_passed)
{
    stet__arena  arena;
    repair_lane  lane = { .arena = &arena };
    stet__expect first;
    int          err;

    *is_passed = false;
    stet__arena_init(&arena, &e->p->alloc);
    err = e->store->ops->lane(e->store, x->l.row.lane, 1, repair_on_lane, &lane);
    if (err == STET_OK && lane.n > 0 && !stet__id_equal(lane.runs[0], x->l.run.id) &&
        (err = stet__expect_load(e, &first, lane.runs[0], NULL)) == STET_OK) {
        *is_passed = first.l.row.session != 0 || stet__run_has_begun(&first.l.run);
        stet__expect_free(&first);
    }
    stet__arena_free(&arena);
    return err == STET_ENOTFOUND ? STET_OK : err; /* it ended just now */
}

/* A run that has begun holds its key, so it belongs in front. It comes there in the unit that writes its row
 * anew. */
static int
repair_to_front(stet_engine *e, stet__work *w, const stet__expect *x, stet_run_row *row)
{
    repair_lane lane = { .arena = &w->arena };
    bool        sleeps = x->due != STET__DUE_AT; /* else its time is written with the row */
    int         err;

    if ((err = e->store->ops->lane(e->store, x->l.row.lane, INT32_MAX, repair_on_lane, &lane)) !=
        STET_OK)
        return err;
    /* Becoming the first wakes who sleeps for ever; whether it is to wake is decided afterwards. */
    if (sleeps)
        row->due_ms = STET_NEVER - 1;
    if ((err = repair_queue_up(e, w, x, &lane)) != STET_OK)
        return err;
    return !sleeps || repair_set_due(w, x->l.run.id, STET_NEVER) ? STET_OK : STET_ENOMEM;
}

/* Into its lane, out of it, or just awake. */
static bool
repair_place(stet_engine *e, stet__work *w, stet__expect *x, stet_run_row *row, bool is_first,
             bool has_news)
{
    const stet__run *run = &x->l.run;
    bool is_open = !row->is_terminal, has_lane = stet__run_has_lane(run), wants_lane = is_open && has_lane && x->is_visible;
    bool             is_due = x->due == STET__DUE_NOW || has_news;
    const char *lane = has_lane ? stet__lane_name(&w->arena, run->handler, run->key) : NULL;
    stet_op         *op;

    if (has_lane && lane == NULL)
        return false;
    if (x->l.row.lane != NULL && (!wants_lane || strcmp(x->l.row.lane, lane) != 0)) {
        if ((op = stet__work_op(w, STET_OP_LANE_LEAVE, run->id)) == NULL)
            return false;
        op->status = STET_STATUS_PENDING;
        x->l.row.lane = NULL;
    }
    if (is_open && x->due == STET__DUE_AT && !is_due && is_first &&
        (!has_lane || wants_lane)) {
        row->due_ms = x->due_ms;
        if (x->due_ms < w->timer_ms)
            w->timer_ms = x->due_ms;
    }
    if (wants_lane && x->l.row.lane == NULL) {
        bool sleeps = row->due_ms == STET_NEVER && !is_due;

        /* Entering as the first wakes only who sleeps for ever: one that must not be woken does
         * not, for now. */
        if (sleeps)
            row->due_ms = STET_NEVER - 1;
        if ((op = stet__work_op(w, STET_OP_LANE_ENTER, run->id)) == NULL)
            return false;
        op->lane = lane;
        op->status = x->status == STET_STATUS_SUSPENDED ? STET_STATUS_PENDING : x->status;
        if (sleeps && !repair_set_due(w, run->id, STET_NEVER))
            return false;
    } else if (is_open && is_due && (!has_lane || wants_lane)) {
        if ((op = stet__work_op(w, STET_OP_RUN_WAKE, run->id)) == NULL)
            return false;
        op->status = x->status == STET_STATUS_SUSPENDED ? STET_STATUS_PENDING : x->status;
    }
    if (is_open && is_due)
        w->timer_ms = stet__store_now(e);
    return true;
}

/* A run that is ready by its row stays ready: what made it so may not be in its facts (a stuck run
 * that is tried again, one that was let go). */
static void
repair_keep_ready(stet__expect *x)
{
    const stet_run_row *row = &x->l.row;

    if (x->has_row && !row->is_terminal && row->status == STET_STATUS_PENDING &&
        row->due_ms != STET_NEVER && !stet__run_is_terminal(&x->l.run) && !x->is_unreadable &&
        x->stop == 0 &&
        (x->due == STET__DUE_NEVER || (x->due == STET__DUE_AT && row->due_ms < x->due_ms))) {
        x->status = STET_STATUS_PENDING;
        x->due = STET__DUE_NOW;
    }
}

/* ---- timers and values ----------------------------------------------------------------------- */

/* Not a word about values that are as they should be: putting them again would change their
 * version. */
static int
repair_value(stet_engine *e, stet__work *w, stet_id run, const stet__want_value *want)
{
    stet_value v = { 0 };
    stet_cond *cond;
    stet_op   *op;
    bool       is_right, ok = true;
    int        err = e->store->ops->value(e->store, want->space, want->key, &v);

    if (err != STET_OK && err != STET_ENOTFOUND)
        return err;
    is_right = v.version > (want->is_twice ? 1u : 0u) && v.data.len == want->data.len &&
               (v.data.len == 0 || memcmp(v.data.data, want->data.data, v.data.len) == 0);
    if (strcmp(want->space, STET__SPACE_AWAKEABLE) == 0 && !want->is_twice)
        is_right = is_right && v.version == 1;
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    if (is_right)
        return STET_OK;
    if ((cond = stet__work_cond(w, STET_COND_VALUE, run)) == NULL)
        return STET_ENOMEM;
    cond->space = want->space;
    cond->number = v.version;
    ok = stet__work_bytes(w, &cond->key, want->key);
    if (ok && v.version > 0) {
        ok = (op = stet__work_op(w, STET_OP_VALUE_DEL, run)) != NULL;
        if (ok) {
            op->space = want->space;
            op->key = cond->key;
        }
    }
    for (int i = 0; ok && i < (want->is_twice ? 2 : 1); i++) {
        ok = (op = stet__work_op(w, STET_OP_VALUE_PUT, run)) != NULL;
        if (!ok)
            break;
        op->space = want->space;
        op->key = cond->key;
        op->number = want->revision;
        ok = stet__work_bytes(w, &op->data, want->data);
    }
    return ok ? STET_OK : STET_ENOMEM;
}

/* A child's key is of use to its parent only. */
static bool
repair_is_wanted(stet_engine *e, stet__work *w, const stet__expect *x, const stet__want_value *want)
{
    stet_run_row row;
    stet__fact   extra;

    return strcmp(want->space, STET__SPACE_CHILD) != 0 ||
           (stet__load_row(e, x->l.run.parent, &w->arena, &row, &extra) != STET_ENOTFOUND &&
            !stet__child_is_past(&x->l.run, &extra));
}

static int
repair_values(stet_engine *e, stet__work *w, const stet__expect *x)
{
    int err = STET_OK;

    for (const stet__want_value *want = x->values; err == STET_OK && want != NULL;
         want = want->next)
        if (repair_is_wanted(e, w, x, want))
            err = repair_value(e, w, x->l.run.id, want);
    return err;
}

static bool
repair_timers(stet__work *w, const stet__expect *x)
{
    bool ok = true;

    for (const stet__want_timer *t = x->timers; ok && t != NULL; t = t->next)
        ok = stet__work_timer(w, x->l.run.id, t->fire_ms, t->completion);
    return ok;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* The row says whether the run was retried, which is not in its facts: the mark must be as it was read. */
static bool
repair_by_mark(stet__work *w, const stet__expect *x)
{
    stet_cond *cond;

    if (!x->has_mark)
        return true;
    if ((cond = stet__work_cond(w, STET_COND_VALUE, x->l.run.id)) == NULL)
        return false;
    cond->space = STET__SPACE_RETRY;
    cond->number = x->mark_version;
    return stet__work_bytes(w, &cond->key, stet__id_bytes(&x->l.run.id));
}

static int
repair_build(stet_engine *e, stet__work *w, stet__expect *x, const stet__crumbs_left *left)
{
    stet_run_row *row = stet__arena_get0(&w->arena, sizeof *row);
    stet_op      *op = stet__work_op(w, STET_OP_RUN_PUT, x->l.run.id);
    size_t        n_lost = 0;
    bool          is_first, is_passed = true;
    int           err;

    if (row == NULL || op == NULL || !stet__expect_row(x, &w->arena, row) || !repair_by_mark(w, x))
        return STET_ENOMEM;
    op->row = row;
    op->flags = STET_OP_RESTORE;
    if (!x->has_row)
        row->epoch += REPAIR_EPOCHS;
    if (x->is_unreadable &&
        (row->reason = stet__arena_str(&w->arena, "its facts cannot be read")) == NULL)
        return STET_ENOMEM;
    if ((err = repair_is_first(e, w, x, &is_first)) != STET_OK ||
        (err = repair_values(e, w, x)) != STET_OK)
        return err;
    if (!x->has_row && left != NULL && !repair_tell_lost(e, w, x, left, &n_lost))
        return STET_ENOMEM;
    if (!is_first && stet__run_has_begun(&x->l.run) && !row->is_terminal && stet__run_has_lane(&x->l.run) &&
        (err = stet__repair_is_passed(e, x, &is_passed)) != STET_OK)
        return err;
    if (!is_passed) {
        if ((err = repair_to_front(e, w, x, row)) != STET_OK)
            return err;
        is_first = true;
    }
    return repair_timers(w, x) && repair_place(e, w, x, row, is_first, n_lost > 0) ? STET_OK
                                                                                   : STET_ENOMEM;
}

/* What the unit mentions lies with what was expected, which goes with the unit. */
static void
repair_drop(void *arg)
{
    stet__expect *x = arg;
    stet__alloc  *alloc = x->l.arena.alloc;

    stet__expect_free(x);
    stet__free(alloc, x);
}

static int
repair_work(stet_engine *e, stet__work **out, stet__expect *x, const stet__crumbs_left *left)
{
    stet__work *w;
    int         err;

    if (x->l.run.handler == NULL)
        return stet__fail(STET_ECORRUPT,
                          "its first fact cannot be read, so nothing is known of it");
    repair_keep_ready(x);
    if ((w = stet__work_new(e, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((err = repair_build(e, w, x, left)) != STET_OK) {
        stet__work_free(w);
        return err == STET_ENOMEM ? stet__fail(err, "out of memory") : err;
    }
    w->drop = repair_drop;
    w->drop_arg = x;
    *out = w;
    return STET_OK;
}

int
stet__repair_work(stet_engine *e, stet__work **out, stet_id id, const stet_run_row *lost,
                  const stet__crumbs_left *left)
{
    stet__expect *x = stet__get0(&e->p->alloc, sizeof *x);
    int           err;

    *out = NULL;
    if (x == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    if ((err = stet__expect_load(e, x, id, lost)) != STET_OK) {
        stet__free(&e->p->alloc, x);
        return err;
    }
    if ((err = repair_work(e, out, x, left)) != STET_OK)
        repair_drop(x);
    return err;
}

int
stet__repair_run(stet_engine *e, stet_id id, const stet_run_row *lost,
                 const stet__crumbs_left *left)
{
    stet__work *w;
    int         err = stet__repair_work(e, &w, id, lost, left);

    if (err == STET_OK)
        err = stet__commit_sync(e, w, NULL);
    return err == STET_EFENCED ? STET_ECONFLICT : err; /* somebody took one of its lane meanwhile */
}

/* What that worker did with the run is not known. */
int
stet__repair_owner(stet_engine *e, const stet_run_row *row, bool is_own)
{
    bool          is_counted = false;
    stet__work   *w = stet__work_new(e, NULL, NULL);
    stet_run_row *set;
    stet_cond    *owner, *journal, *inbox;
    stet_op      *op;
    stet_id       nobody = { { 0 } };

    if (w == NULL)
        return STET_ENOMEM;
    if ((owner = stet__work_cond(w, is_own ? STET_COND_CLAIM : STET_COND_SESSION_DEAD, row->id)) != NULL) {
        owner->session = row->session;
        owner->epoch = row->epoch;
    }
    if ((journal = stet__work_cond(w, STET_COND_JOURNAL, row->id)) != NULL)
        journal->number = row->journal;
    if ((inbox = stet__work_cond(w, STET_COND_INBOX, row->id)) != NULL)
        inbox->number = row->inbox;
    set = stet__arena_get0(&w->arena, sizeof *set);
    if (owner == NULL || journal == NULL || inbox == NULL || set == NULL ||
        (op = stet__work_op(w, STET_OP_RUN_SET, row->id)) == NULL) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    set->id = row->id;
    set->status = row->status == STET_STATUS_CANCELLING || row->status == STET_STATUS_COMPENSATING
                      ? row->status
                      : STET_STATUS_PENDING;
    set->ended_ms = STET_NEVER;
    set->due_ms = w->timer_ms = stet__store_now(e);
    op->row = set;
    op->mask = STET_RUN_STATUS | STET_RUN_OWNER;
    if (!stet__tell_lost(w, set->due_ms, row->id, nobody, NULL, &is_counted)) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    return stet__commit_sync(e, w, NULL);
}
