/* Verify: does the store hold what the facts say, and can every open run go on?
 *
 * Rows, timers, lanes and state entries are recomputed from facts and compared. The store may be in use:
 * a run that looks wrong is looked at again, and reported only if it did not change in between.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define VERIFY_PAGE 256u
#define VERIFY_LOOKS 3
#define VERIFY_SWEEP_MS 1000 /* how long a sweep itself may take */

typedef struct verify {
    stet_engine    *e;
    stet_finding_fn fn;
    void           *arg;
    size_t          checked;
    /* Of the run under the glass. */
    const char *rule;
    char        text[512];
    uint64_t    revision;
    int         err; /* it could not be looked at, which says nothing about the run */
} verify;

/* Of a read: an absent thing is an answer, a failure is none. */
static void
verify_note(verify *v, int err)
{
    if (err != STET_OK && err != STET_END && err != STET_ENOTFOUND && err != STET_ECORRUPT && v->err == STET_OK)
        v->err = err;
}

static bool
verify_bad(verify *v, const char *rule, uint64_t revision, const char *fmt, ...) STET_PRINTF(4, 5);

static bool
verify_bad(verify *v, const char *rule, uint64_t revision, const char *fmt, ...)
{
    va_list args;

    v->rule = rule;
    v->revision = revision;
    va_start(args, fmt);
    (void)vsnprintf(v->text, sizeof v->text, fmt, args);
    va_end(args);
    return false;
}

/* ---- one run ------------------------------------------------------------------------------------------ */

typedef struct verify_seek {
    stet_id run;
    int64_t fire_ms;
    uint64_t completion;
    size_t  n;
    bool    found, is_first;
} verify_seek;

static int
verify_on_lane(void *arg, stet_id run)
{
    verify_seek *s = arg;

    if (stet__id_equal(run, s->run)) {
        s->found = true;
        s->is_first = s->n == 0;
        return STET_END;
    }
    s->n++;
    return STET_OK;
}

static int
verify_on_timer(void *arg, const stet_timer *timer)
{
    verify_seek *s = arg;

    s->n++;
    if (timer->fire_ms == s->fire_ms && timer->completion == s->completion)
        s->found = true;
    return STET_OK;
}

static bool
verify_has_timer(verify *v, stet_id run, int64_t fire_ms, uint64_t completion)
{
    verify_seek s = { .run = run, .fire_ms = fire_ms, .completion = completion };

    verify_note(v, v->e->store->ops->timers_of(v->e->store, run, verify_on_timer, &s));
    return s.found;
}

static int
verify_on_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    verify_seek *s = arg;
    stet__fact   fact;

    (void)first;
    (void)count;
    if (stet__fact_decode(&fact, &facts) == STET_OK && fact.kind == STET__FACT_TIMER &&
        (uint64_t)fact.completion == s->completion)
        s->found = true;
    return STET_OK;
}

/* It fired, and nobody has executed the run since. */
static bool
verify_has_fired(verify *v, const stet__loaded *l, uint64_t completion)
{
    verify_seek s = { .run = l->run.id, .completion = completion };

    if (l->row.inbox > l->run.taken)
        verify_note(v, v->e->store->ops->inbox(v->e->store, l->run.id, l->run.taken + 1, 1000000, verify_on_inbox, &s));
    return s.found;
}

static int
verify_stop(verify *v, const stet__loaded *l)
{
    int code;

    verify_note(v, stet__stop_asked(v->e, &l->run, &code));
    return code;
}

static bool
verify_timers(verify *v, const stet__loaded *l)
{
    for (const stet__cmd *cmd = l->journal.waiting; cmd != NULL; cmd = cmd->next)
        if (cmd->has_timer && !verify_has_timer(v, l->run.id, cmd->until_ms, cmd->completion) &&
            !verify_has_fired(v, l, cmd->completion))
            return verify_bad(v, "timer", cmd->completion, "%s %s has no timer row", stet__fact_kind_name(cmd->kind), cmd->name);
    if (l->run.deadline_ms != 0 && verify_stop(v, l) == 0 &&
        !verify_has_timer(v, l->run.id, l->run.deadline_ms, STET__TIMER_DEADLINE))
        return verify_bad(v, "timer", 1, "its deadline has no timer row");
    return true;
}

typedef struct verify_owner {
    stet__arena arena;
    uint64_t    session;
    bool        is_known, is_dead;
    int64_t     lease_until_ms;
    int64_t     swept_since_ms; /* somebody who lives sweeps since then; STET_NEVER: nobody does */
} verify_owner;

static int
verify_on_owner(void *arg, const stet_session_row *row)
{
    verify_owner    *o = arg;
    stet_worker_info info;

    if (row->session == o->session) {
        o->is_known = true;
        o->is_dead = row->is_dead;
        o->lease_until_ms = row->lease_until_ms;
    }
    stet__info_decode(&info, &o->arena, row);
    if (!row->is_dead && (info.roles & STET_ROLE_TIMERS) && row->started_ms < o->swept_since_ms)
        o->swept_since_ms = row->started_ms;
    return STET_OK;
}

/* A dead owner is in order for as long as the next sweeps may take to give its runs on, and if nobody is there to
 * sweep. */
static bool
verify_has_owner(verify *v, uint64_t session)
{
    verify_owner o = { .session = session, .swept_since_ms = STET_NEVER };
    int64_t      now_ms = stet__store_now(v->e), since_ms;
    char         ago[64];

    stet__arena_init(&o.arena, &v->e->p->alloc);
    verify_note(v, v->e->store->ops->sessions(v->e->store, verify_on_owner, &o));
    stet__arena_free(&o.arena);
    if (!o.is_known)
        return verify_bad(v, "owner", 0, "it is claimed by session %llu, which does not exist: nobody takes it over",
                          (unsigned long long)session);
    if (!o.is_dead || o.swept_since_ms == STET_NEVER)
        return true;
    since_ms = o.lease_until_ms > o.swept_since_ms ? o.lease_until_ms : o.swept_since_ms;
    if (now_ms - since_ms < 2 * v->e->config.sweep_ms + VERIFY_SWEEP_MS)
        return true;
    return verify_bad(v, "owner", 0, "its worker is dead and for %s no other has taken it over",
                      stet_duration_text(ago, sizeof ago, now_ms - since_ms));
}

/* What the row may say, given what the facts say. A wake, a reap or a requeue changes the row alone. */
static bool
verify_status(verify *v, const stet__loaded *l)
{
    stet_status want = l->run.status, is = (stet_status)l->row.status;
    int         stop = verify_stop(v, l);

    if (l->row.session != 0) {
        if (is != STET_STATUS_RUNNING && !(is == STET_STATUS_CANCELLING && stop != 0))
            return verify_bad(v, "projection", 0, "it is claimed, but its row says %s", stet_status_name(is));
        return true;
    }
    if (stop != 0 && want != STET_STATUS_STUCK)
        want = STET_STATUS_CANCELLING;
    if (is == want)
        return true;
    if (l->row.due_ms != STET_NEVER && is == STET_STATUS_PENDING)
        return true;
    if (l->row.lane != NULL && l->row.epoch == 0 && is == STET_STATUS_PENDING)
        return true; /* stopped by its caller before its turn: it learns of it then */
    return verify_bad(v, "projection", 0, "its row says %s, its facts say %s", stet_status_name(is), stet_status_name(want));
}

static bool
verify_row(verify *v, const stet__loaded *l)
{
    if (l->row.journal != l->run.journal)
        return verify_bad(v, "projection", l->run.journal, "its row says revision %llu, its facts end at %llu",
                          (unsigned long long)l->row.journal, (unsigned long long)l->run.journal);
    if (strcmp(l->row.handler, l->run.handler) != 0 ||
        (l->row.key == NULL) != (l->run.key == NULL) || (l->run.key != NULL && strcmp(l->row.key, l->run.key) != 0))
        return verify_bad(v, "projection", 1, "its row names %s, its facts %s", l->row.handler, l->run.handler);
    if ((l->row.is_terminal != 0) != stet__run_is_terminal(&l->run))
        return verify_bad(v, "projection", 0, "its row says %s, its facts say %s", stet_status_name((stet_status)l->row.status),
                          stet_status_name(l->run.status));
    if (l->row.ended_ms != l->run.ended_ms)
        return verify_bad(v, "projection", 0, "its row has another end time than its facts");
    return l->row.is_terminal ? true : verify_status(v, l);
}

static bool
verify_lane(verify *v, const stet__loaded *l, bool *waits)
{
    verify_seek s = { .run = l->run.id };

    *waits = false;
    if (l->row.lane != NULL && l->row.is_terminal)
        return verify_bad(v, "lane", 0, "it has ended and still stands in lane %s", l->row.lane);
    if (l->row.lane == NULL && l->run.key != NULL && !l->row.is_terminal &&
        !verify_has_timer(v, l->run.id, l->run.visible_ms, STET__TIMER_VISIBLE))
        return verify_bad(v, "lane", 0, "it has key %s and stands in no lane", l->run.key);
    if (l->row.lane == NULL)
        return true;
    verify_note(v, v->e->store->ops->lane(v->e->store, l->row.lane, 1000000, verify_on_lane, &s));
    if (!s.found)
        return verify_bad(v, "lane", 0, "its row says it is in lane %s, which does not know it", l->row.lane);
    if (!s.is_first && l->row.session != 0)
        return verify_bad(v, "lane", 0, "it is being executed and is not first in lane %s", l->row.lane);
    *waits = !s.is_first;
    return true;
}

static bool
verify_child_open(verify *v, stet_id child)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    int          err;

    stet__arena_init(&arena, &v->e->p->alloc);
    err = stet__load_row(v->e, child, &arena, &row, &extra);
    verify_note(v, err);
    stet__arena_free(&arena);
    return err == STET_OK && !row.is_terminal;
}

/* Something must make it go on. */
static bool
verify_wake(verify *v, const stet__loaded *l, bool waits_in_lane)
{
    bool has_source = false;

    if (l->row.session != 0)
        return verify_has_owner(v, l->row.session);
    if (l->row.due_ms != STET_NEVER || waits_in_lane || l->row.status == STET_STATUS_STUCK || l->row.status == STET_STATUS_PAUSED)
        return true;
    if (l->run.visible_ms > l->run.created_ms && l->row.epoch == 0 &&
        verify_has_timer(v, l->run.id, l->run.visible_ms, STET__TIMER_VISIBLE))
        return true;
    for (const stet__cmd *cmd = l->journal.waiting; cmd != NULL && !has_source; cmd = cmd->next) {
        if (cmd->has_timer || (cmd->kind == STET__FACT_AWAKEABLE && !cmd->is_settled))
            has_source = true;
        if (cmd->kind == STET__FACT_CALL && !cmd->is_settled && verify_child_open(v, cmd->run))
            has_source = true;
    }
    if (l->row.inbox > l->run.taken)
        return verify_bad(v, "wake-up", 0, "something waits in its inbox and nothing wakes it");
    return has_source ? true : verify_bad(v, "wake-up", 0, "it is %s and nothing can wake it", stet_status_name((stet_status)l->row.status));
}

static bool
verify_look(verify *v, stet_id id, stet_run_row *row)
{
    stet__loaded l;
    bool         waits = false, ok;
    int          err = stet__load(v->e, &l, id, true);

    memset(row, 0, sizeof *row);
    verify_note(v, err);
    if (err == STET_ENOTFOUND || v->err != STET_OK)
        return true;
    if (err != STET_OK) {
        stet__arena arena;
        stet__fact  extra;
        stet__run   run;
        uint64_t    bad = 0;

        stet__arena_init(&arena, &v->e->p->alloc);
        if (stet__load_row(v->e, id, &arena, row, &extra) == STET_OK) {
            stet__run_init(&run, &arena, id);
            (void)stet__load_facts(v->e, &run, NULL, row->journal, &bad);
        }
        stet__arena_free(&arena);
        return verify_bad(v, "facts", bad, "%s", stet_last_error());
    }
    *row = l.row;
    ok = verify_row(v, &l) && verify_lane(v, &l, &waits) && (l.row.is_terminal || (verify_timers(v, &l) && verify_wake(v, &l, waits)));
    stet__loaded_free(&l);
    return ok;
}

/* A finding counts if the run stands still: the same revision, inbox and owner in two looks. */
static int
verify_run(verify *v, stet_id id)
{
    stet_run_row before = { 0 }, now = { 0 };
    stet_finding finding = { 0 };
    char         text[STET_ID_TEXT_MAX];

    v->checked++;
    for (int i = 0; i < VERIFY_LOOKS; i++) {
        if (verify_look(v, id, &now) || v->err != STET_OK)
            return v->err;
        if (i > 0 && before.journal == now.journal && before.inbox == now.inbox && before.epoch == now.epoch &&
            before.session == now.session && before.due_ms == now.due_ms)
            break;
        before = now;
    }
    stet__id_text(text, STET__ID_RUN, id);
    finding.run = text;
    finding.revision = v->revision;
    finding.rule = v->rule;
    finding.text = v->text;
    return v->fn(v->arg, &finding);
}

/* ---- all ---------------------------------------------------------------------------------------------- */

typedef struct verify_page {
    stet_id ids[VERIFY_PAGE];
    size_t  n;
} verify_page;

static int
verify_on_row(void *arg, const stet_run_row *row)
{
    verify_page *page = arg;

    page->ids[page->n++] = row->id;
    return STET_OK;
}

int
stet_verify(stet_engine *e, size_t *checked, stet_finding_fn fn, void *arg)
{
    verify        *v;
    verify_page   *page;
    stet_run_query query = { 0 };
    int            err;

    if (checked != NULL)
        *checked = 0;
    if ((err = stet__alive(e, "stet_verify")) != STET_OK)
        return err;
    v = stet__get0(&e->p->alloc, sizeof *v);
    page = stet__get0(&e->p->alloc, sizeof *page);
    if (v == NULL || page == NULL) {
        stet__free(&e->p->alloc, v);
        stet__free(&e->p->alloc, page);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    v->e = e;
    v->fn = fn;
    v->arg = arg;
    query.oldest_first = true;
    query.limit = VERIFY_PAGE;
    do {
        page->n = 0;
        if (err == STET_OK)
            err = e->store->ops->runs(e->store, &query, verify_on_row, page);
        for (size_t i = 0; err == STET_OK && i < page->n; i++)
            err = verify_run(v, page->ids[i]);
        if (page->n > 0)
            query.before = page->ids[page->n - 1];
    } while (err == STET_OK && page->n == VERIFY_PAGE);
    if (checked != NULL)
        *checked = v->checked;
    stet__free(&e->p->alloc, v);
    stet__free(&e->p->alloc, page);
    return err;
}
