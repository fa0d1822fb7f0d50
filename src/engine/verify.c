/* Verify: does the store hold what the facts say, and can every open run go on? And set right what
 * does not.
 *
 * Everything that follows from facts is recomputed (expect.c) and compared: rows, timers, lanes,
 * values; state entries at the end, because any run of an object may have written them
 * (verify_state.c). The store may be in use: a run that looks wrong is looked at again, and
 * reported only if it did not change in between. What is wrong is written anew by repair.c, a run
 * at a time, and then looked at once more. By what a store finds its own records only the store
 * knows: it is asked first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/verify.h"

#define VERIFY_PAGE 256u
#define VERIFY_LOOKS 20
#define VERIFY_REPAIRS 3 /* of one run: each may bring to light the next thing */
#define VERIFY_SWEEP_MS 1000 /* how long a sweep itself may take */
#define VERIFY_LATE_MS 60000 /* a run that is let go may be due a little later */

/* Of a read: an absent thing is an answer, a failure is none. */
static void
verify_note(verify *v, int err)
{
    if (err != STET_OK && err != STET_END && err != STET_ENOTFOUND && err != STET_ECORRUPT &&
        v->err == STET_OK)
        v->err = err;
}

bool
stet__verify_bad(verify *v, const char *rule, uint64_t revision, const char *fmt, ...)
{
    va_list args;

    v->rule = rule;
    v->revision = revision;
    va_start(args, fmt);
    (void)vsnprintf(v->text, sizeof v->text, fmt, args);
    va_end(args);
    return false;
}

int
stet__verify_tell(verify *v, const stet_id *run, bool is_repaired)
{
    stet_finding finding = { 0 };
    char         text[STET_ID_TEXT_MAX];

    if (run != NULL) {
        stet__id_text(text, STET__ID_RUN, *run);
        finding.run = text;
    }
    finding.revision = v->revision;
    finding.rule = v->rule;
    finding.text = v->text;
    finding.is_repaired = is_repaired;
    return v->fn != NULL ? v->fn(v->arg, &finding) : STET_OK;
}

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct verify_seek {
    stet_id  run;
    int64_t  fire_ms;
    uint64_t completion;
    bool     found, is_first;
} verify_seek;

static int
verify_on_first(void *arg, stet_id run)
{
    verify_seek *s = arg;

    s->is_first = stet__id_equal(run, s->run);
    return STET_END;
}

typedef struct verify_timers {
    const stet__want_timer *wanted;
    uint64_t                found; /* bit by bit, of the first 64 */
    verify_seek             one;
} verify_timers;

static int
verify_on_timer(void *arg, const stet_timer *timer)
{
    verify_timers *t = arg;
    size_t         i = 0;

    if (timer->fire_ms == t->one.fire_ms && timer->completion == t->one.completion)
        t->one.found = true;
    for (const stet__want_timer *w = t->wanted; w != NULL && i < 64; w = w->next, i++)
        if (w->fire_ms == timer->fire_ms && w->completion == timer->completion)
            t->found |= (uint64_t)1 << i;
    return STET_OK;
}

static bool
verify_has_timer(verify *v, stet_id run, int64_t fire_ms, uint64_t completion)
{
    verify_timers t = { .one = { .fire_ms = fire_ms, .completion = completion } };

    verify_note(v, v->e->store->ops->timers_of(v->e->store, run, verify_on_timer, &t));
    return t.one.found;
}

static const char *
verify_timer_name(const stet__expect *x, uint64_t completion, char *out, size_t size)
{
    const stet__cmd *cmd =
        stet__map_find(&x->l.journal.completions, &completion, sizeof completion);

    if (completion == STET__TIMER_DEADLINE)
        return "its deadline";
    if (completion == STET__TIMER_VISIBLE)
        return "its delay";
    (void)snprintf(out, size, "%s %s", cmd != NULL ? stet__fact_kind_name(cmd->kind) : "a command",
                   cmd != NULL ? cmd->name : "");
    return out;
}

static bool
verify_check_timers(verify *v, const stet__expect *x)
{
    verify_timers t = { .wanted = x->timers };
    char          name[STET__NAME_MAX + 32];
    size_t        i = 0;

    if (x->timers == NULL)
        return true;
    verify_note(v, v->e->store->ops->timers_of(v->e->store, x->l.run.id, verify_on_timer, &t));
    for (const stet__want_timer *w = x->timers; w != NULL; w = w->next, i++) {
        bool found = i < 64 ? (t.found >> i & 1u) != 0
                            : verify_has_timer(v, x->l.run.id, w->fire_ms, w->completion);

        if (!found)
            return stet__verify_bad(v, "timer", w->completion > 1 ? w->completion : 1,
                                    "%s has no timer row",
                                    verify_timer_name(x, w->completion, name, sizeof name));
    }
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

/* A dead owner is in order for as long as the next sweeps may take to give its runs on, and if
 * nobody is there to sweep. */
static bool
verify_has_owner(verify *v, uint64_t session)
{
    verify_owner o = { .session = session, .swept_since_ms = STET_NEVER };
    int64_t      now_ms = stet__store_now(v->e), since_ms;
    char         ago[64];

    stet__arena_init(&o.arena, &v->e->p->alloc);
    verify_note(v, v->e->store->ops->sessions(v->e->store, verify_on_owner, &o));
    stet__arena_free(&o.arena);
    if (!o.is_known) {
        v->has_no_owner = true;
        return stet__verify_bad(
            v, "owner", 0,
            "it is claimed by session %llu, which does not exist: nobody takes it over",
            (unsigned long long)session);
    }
    if (!o.is_dead || o.swept_since_ms == STET_NEVER)
        return true;
    since_ms = o.lease_until_ms > o.swept_since_ms ? o.lease_until_ms : o.swept_since_ms;
    if (now_ms - since_ms < 2 * v->e->config.sweep_ms + VERIFY_SWEEP_MS)
        return true;
    return stet__verify_bad(v, "owner", 0,
                            "its worker is dead and for %s no other has taken it over",
                            stet_duration_text(ago, sizeof ago, now_ms - since_ms));
}

/* What the row may say, given what the facts say. A wake, a reap or a requeue changes the row
 * alone. */
static bool
verify_status(verify *v, const stet__expect *x)
{
    const stet_run_row *row = &x->l.row;
    stet_status         want = x->l.run.status, is = (stet_status)row->status;

    if (row->session != 0) {
        if (is != STET_STATUS_RUNNING && !(is == STET_STATUS_CANCELLING && x->stop != 0) &&
            !(is == STET_STATUS_COMPENSATING && x->l.run.rollback != 0))
            return stet__verify_bad(v, "projection", 0, "it is claimed, but its row says %s",
                                    stet_status_name(is));
        return true;
    }
    if (x->is_tried_again)
        want = STET_STATUS_COMPENSATING;
    if (x->stop != 0 && want != STET_STATUS_STUCK && x->l.run.rollback == 0)
        want = STET_STATUS_CANCELLING;
    if (x->stop != 0 && want == STET_STATUS_PAUSED) /* of a rollback: a stop lifts it */
        want = STET_STATUS_COMPENSATING;
    if (x->pause != 0 && x->stop == 0)
        want = x->status;
    if (is == want)
        return true;
    if (row->due_ms != STET_NEVER && (is == STET_STATUS_PENDING || is == STET_STATUS_RUNNING))
        return true; /* running: let go by a worker that could not even read its facts */
    if (row->due_ms != STET_NEVER && is == x->l.run.status)
        return true; /* stopped by its caller when it was due already: nothing was to be woken */
    if (row->lane != NULL && x->l.run.dispatch == STET__FACT_STARTED &&
        (is == STET_STATUS_PENDING || (is == STET_STATUS_PAUSED && x->pause > 0)))
        return true; /* stopped by its caller before its turn: it learns of it then */
    return stet__verify_bad(v, "projection", 0, "its row says %s, its facts say %s",
                            stet_status_name(is), stet_status_name(want));
}

/* It may be due earlier than its facts say, never much later. */
static bool
verify_due(verify *v, const stet__expect *x)
{
    const stet_run_row *row = &x->l.row;
    int64_t             limit_ms = stet__store_now(v->e) + VERIFY_LATE_MS;
    char                late[64];

    if (row->session != 0 || row->due_ms == STET_NEVER)
        return true;
    if (x->due == STET__DUE_AT && x->due_ms > limit_ms)
        limit_ms = x->due_ms;
    if (row->due_ms <= limit_ms)
        return true;
    return stet__verify_bad(v, "projection", 0, "its row has it wait %s longer than its facts",
                            stet_duration_text(late, sizeof late, row->due_ms - limit_ms));
}

static bool
verify_same(const char *a, const char *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

static bool
verify_same_bytes(stet_bytes a, stet_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static bool
verify_extra(verify *v, const stet__expect *x)
{
    const stet__fact *is = &x->l.extra, *want = &x->extra;

    if (is->deadline_ms != want->deadline_ms || is->attempts_max != want->attempts_max ||
        is->retention_ms != want->retention_ms || !verify_same_bytes(is->run, want->run) ||
        !verify_same_bytes(is->retry_of, want->retry_of))
        return stet__verify_bad(v, "projection", 1, "its row has other options than its start");
    if (!verify_same_bytes(is->retried_by, want->retried_by))
        return stet__verify_bad(
            v, "projection", 0,
            "its row and the mark on it do not agree on whether it was retried");
    if (is->flags != want->flags)
        return stet__verify_bad(
            v, "projection", 0,
            "its row and the mark on it do not agree on whether it was discarded");
    return true;
}

/* Of these the row gives the reason that lists and `why` tell, or, at the end, none. */
static bool
verify_has_reason(stet_status status)
{
    return status == STET_STATUS_SUSPENDED || status == STET_STATUS_RETRYING || status == STET_STATUS_STUCK ||
           status == STET_STATUS_COMPENSATION_FAILED || stet_status_is_terminal(status);
}

/* Who claims, wakes, pauses or gives back a run changes its status, and leaves what it waited for. */
static bool
verify_reason(verify *v, const stet__expect *x)
{
    const char *is = x->l.row.reason, *want = x->l.run.reason;

    if (x->l.row.session != 0 || (stet_status)x->l.row.status != x->l.run.status ||
        !verify_has_reason(x->l.run.status) || verify_same(is, want))
        return true;
    return stet__verify_bad(v, "projection", 0, "its row gives the reason \"%s\", its facts \"%s\"",
                            is != NULL ? is : "(none)", want != NULL ? want : "(none)");
}

static bool
verify_row(verify *v, const stet__expect *x)
{
    const stet_run_row *row = &x->l.row;
    const stet__run    *run = &x->l.run;

    if (row->journal != run->journal)
        return stet__verify_bad(v, "projection", run->journal,
                                "its row says revision %llu, its facts end at %llu",
                                (unsigned long long)row->journal, (unsigned long long)run->journal);
    if (row->inbox != x->inbox)
        return stet__verify_bad(v, "projection", 0,
                                "its row says inbox entry %llu, its inbox ends at %llu",
                                (unsigned long long)row->inbox, (unsigned long long)x->inbox);
    if (!verify_same(row->handler, run->handler) || !verify_same(row->key, run->key))
        return stet__verify_bad(v, "projection", 1, "its row names %s, its facts %s",
                                row->handler != NULL ? row->handler : "nothing", run->handler);
    if (row->created_ms != run->created_ms || row->priority != run->priority ||
        !verify_same(row->group, run->group))
        return stet__verify_bad(
            v, "projection", 1,
            "its row has another creation time, priority or group than its start");
    if ((row->is_terminal != 0) != stet__run_is_terminal(run))
        return stet__verify_bad(v, "projection", 0, "its row says %s, its facts say %s",
                                stet_status_name((stet_status)row->status),
                                stet_status_name(run->status));
    if (row->ended_ms != run->ended_ms)
        return stet__verify_bad(v, "projection", 0, "its row has another end time than its facts");
    if (!row->is_terminal && row->epoch < run->epoch)
        return stet__verify_bad(v, "projection", 0, "its row says epoch %llu, its facts %llu",
                                (unsigned long long)row->epoch, (unsigned long long)run->epoch);
    if (row->session == 0 && row->attempt != stet__run_attempt(run))
        return stet__verify_bad(v, "projection", 0, "its row says attempt %u, its facts %u",
                                row->attempt, stet__run_attempt(run));
    if (!verify_extra(v, x) || !verify_reason(v, x))
        return false;
    if (!row->is_terminal)
        return verify_status(v, x) && verify_due(v, x);
    if (row->status != run->status)
        return stet__verify_bad(v, "projection", 0, "its row says %s, its facts say %s",
                                stet_status_name((stet_status)row->status),
                                stet_status_name(run->status));
    return row->session == 0 ||
           stet__verify_bad(v, "owner", 0, "it has ended and is still claimed");
}

static bool
verify_lane(verify *v, const stet__expect *x, bool *waits, bool *is_passed)
{
    const stet_run_row *row = &x->l.row;
    verify_seek         s = { .run = x->l.run.id };
    const char         *lane = NULL;

    *waits = *is_passed = false;
    if (row->lane != NULL && row->is_terminal)
        return stet__verify_bad(v, "lane", 0, "it has ended and still stands in lane %s",
                                row->lane);
    if (row->lane == NULL && stet__run_has_lane(&x->l.run) && !row->is_terminal &&
        !verify_has_timer(v, x->l.run.id, x->l.run.visible_ms, STET__TIMER_VISIBLE))
        return stet__verify_bad(v, "lane", 0, "it has key %s and stands in no lane", x->l.run.key);
    if (row->lane == NULL)
        return true;
    if (!stet__run_has_lane(&x->l.run) || ((lane = stet__lane_name((stet__arena *)(uintptr_t)&x->l.arena,
                                                         x->l.run.handler, x->l.run.key)) != NULL &&
                                 strcmp(lane, row->lane) != 0))
        return stet__verify_bad(v, "lane", 0, "it stands in lane %s, which is not its own",
                                row->lane);
    verify_note(v, v->e->store->ops->lane(v->e->store, row->lane, 1, verify_on_first, &s));
    *waits = !s.is_first;
    if (s.is_first)
        return true;
    if (row->session != 0)
        return stet__verify_bad(v, "lane", 0, "it is being executed and is not first in lane %s",
                                row->lane);
    if (stet__run_has_begun(&x->l.run)) {
        verify_note(v, stet__repair_is_passed(v->e, x, is_passed));
        return *is_passed || stet__verify_bad(v, "lane", 0,
                                                "it has begun and is not first in lane %s",
                                                row->lane);
    }
    if (row->due_ms != STET_NEVER)
        return stet__verify_bad(v, "lane", 0, "it is due and is not first in lane %s", row->lane);
    return true;
}

/* As a parent whose child has a key (`child`), or NULL. */
static bool
verify_is_open_for(verify *v, stet_id run, const stet__run *child)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    bool         is_past;
    int          err;

    stet__arena_init(&arena, &v->e->p->alloc);
    err = stet__load_row(v->e, run, &arena, &row, &extra);
    verify_note(v, err);
    is_past = child != NULL && stet__child_is_past(child, &extra);
    stet__arena_free(&arena);
    return err == STET_OK && !row.is_terminal && !is_past;
}

static bool
verify_is_open(verify *v, stet_id run)
{
    return verify_is_open_for(v, run, NULL);
}

/* Something must make it go on. */
static bool
verify_wake(verify *v, const stet__expect *x, bool waits_in_lane)
{
    const stet_run_row *row = &x->l.row;
    bool                has_source = false;

    if (row->session != 0)
        return verify_has_owner(v, row->session);
    if (row->due_ms != STET_NEVER || waits_in_lane || row->status == STET_STATUS_STUCK ||
        row->status == STET_STATUS_PAUSED)
        return true;
    if (x->l.run.visible_ms > x->l.run.created_ms && !stet__run_has_begun(&x->l.run) &&
        verify_has_timer(v, x->l.run.id, x->l.run.visible_ms, STET__TIMER_VISIBLE))
        return true;
    for (const stet__cmd *cmd = x->l.journal.waiting; cmd != NULL && !has_source; cmd = cmd->next) {
        if (cmd->has_timer ||
            ((cmd->kind == STET__FACT_AWAKEABLE || cmd->kind == STET__FACT_SIGNAL ||
              cmd->kind == STET__FACT_TOPIC || cmd->kind == STET__FACT_BOUNDARY) && !cmd->is_settled))
            has_source = true;
        if (cmd->kind == STET__FACT_CALL && !cmd->is_settled && verify_is_open(v, cmd->run))
            has_source = true;
    }
    if (row->inbox > x->l.run.taken)
        return stet__verify_bad(v, "wake-up", 0,
                                "something waits in its inbox and nothing wakes it");
    return has_source ? true
                      : stet__verify_bad(v, "wake-up", 0, "it is %s and nothing can wake it",
                                         stet_status_name((stet_status)row->status));
}

static const char *
verify_value_name(const char *space)
{
    static const struct {
        const char *space, *name;
    } names[] = { { STET__SPACE_IDEM, "its idempotency key" },
                  { STET__SPACE_CHILD, "its child key" },
                  { STET__SPACE_AWAKEABLE, "the awakeable" },
                  { STET__SPACE_LABEL, "a label" },
                  { STET__SPACE_TOPIC, "the mark that it waits for an event" },
                  { STET__SPACE_BOUNDARY, "the mark that it waits for a person at " },
                  { STET__SPACE_UPDATE, "the answer to update " },
                  { STET__SPACE_RETRY, "the mark that it was retried" },
                  { STET__SPACE_DISCARD, "the mark that it was discarded" },
                  { STET__SPACE_BASE_DISCARD, "the record that it was discarded" },
                  { STET__SPACE_BASE_ONCE, "the key it was given once" } };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].space, space) == 0)
            return names[i].name;
    return space;
}

/* Child keys serve those who start children of an open parent, in the generation that started this one. */
static bool
verify_is_wanted(verify *v, const stet__expect *x, const stet__want_value *want)
{
    return strcmp(want->space, STET__SPACE_CHILD) != 0 || verify_is_open_for(v, x->l.run.parent, &x->l.run);
}

static bool
verify_values(verify *v, const stet__expect *x)
{
    for (const stet__want_value *want = x->values; want != NULL; want = want->next) {
        bool       is_awakeable = strcmp(want->space, STET__SPACE_AWAKEABLE) == 0;
        stet_value is = { 0 };
        bool       is_right;
        int        err = v->e->store->ops->value(v->e->store, want->space, want->key, &is);

        verify_note(v, err);
        is_right = err == STET_OK && verify_same_bytes(is.data, want->data) &&
                   (!is_awakeable || (is.version > 1) == want->is_twice);
        stet__free(v->e->store->alloc, (void *)(uintptr_t)is.data.data);
        if (!is_right && verify_is_wanted(v, x, want))
            return stet__verify_bad(v, "value", want->revision, "%s%s%.*s %s",
                                    verify_value_name(want->space), is_awakeable ? " " : "",
                                    (int)want->name.len,
                                    want->name.data != NULL ? (const char *)want->name.data : "",
                                    err == STET_OK ? "is not what its facts say" : "is missing");
    }
    return true;
}

/* The run it retries, while that is there, has to say so. */
static bool
verify_retried(verify *v, const stet__expect *x)
{
    stet_id      old = x->l.run.retry_of;
    stet_value   is = { 0 };
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    bool         ok;
    int          err;

    if (stet__id_is_zero(old) || x->l.run.is_fork)
        return true;
    stet__arena_init(&arena, &v->e->p->alloc);
    err = stet__load_row(v->e, old, &arena, &row, &extra);
    verify_note(v, err);
    if (err != STET_OK) {
        stet__arena_free(&arena);
        return true; /* removed, or something else to report */
    }
    err = v->e->store->ops->value(v->e->store, STET__SPACE_RETRY, stet__id_bytes(&old), &is);
    verify_note(v, err);
    ok = err == STET_OK && verify_same_bytes(is.data, stet__id_bytes(&x->l.run.id)) &&
         verify_same_bytes(extra.retried_by, stet__id_bytes(&x->l.run.id));
    stet__free(v->e->store->alloc, (void *)(uintptr_t)is.data.data);
    stet__arena_free(&arena);
    v->retry_of = old;
    v->has_no_mark = !ok;
    return ok || stet__verify_bad(v, "value", 1, "it retries a run that does not know of it");
}

static bool
verify_check(verify *v, const stet__expect *x)
{
    bool waits = false, is_passed = false;

    if (!verify_row(v, x) || !verify_lane(v, x, &waits, &is_passed))
        return false;
    if (!x->l.row.is_terminal && (!verify_check_timers(v, x) || !verify_wake(v, x, waits)))
        return false;
    if (!verify_values(v, x) || !verify_retried(v, x))
        return false;
    /* Last, because only this is not repaired: the first goes on, and this one when that has ended. */
    v->is_passed = is_passed;
    return !is_passed || stet__verify_bad(v, "lane", 0, "another began before it ended, in lane %s",
                                          x->l.row.lane);
}

static int
verify_timed(verify *v, const stet__expect *x)
{
    const stet_id *id = &x->l.run.id;

    if (x->timers == NULL)
        return STET_OK;
    return stet__map_put(&v->timed, id->bytes, sizeof id->bytes, v) == STET_OK
               ? STET_OK
               : stet__fail(STET_ENOMEM, "out of memory while looking at timers");
}

static bool
verify_look(verify *v, stet_id id, stet_run_row *row, bool is_first_look)
{
    stet__expect x;
    bool         ok;
    int          err = stet__expect_load(v->e, &x, id, NULL);

    memset(row, 0, sizeof *row);
    v->has_no_owner = v->has_no_mark = v->is_unreadable = v->is_passed = false;
    verify_note(v, err);
    if (err != STET_OK)
        return true; /* gone, or not to be looked at now */
    v->is_unreadable = x.is_unreadable || x.bad_entry != 0;
    if (x.is_unreadable)
        ok = stet__verify_bad(v, "facts", x.l.bad_revision, "%s", stet_last_error());
    else {
        if (is_first_look) {
            verify_note(v, stet__verify_wrote(v, &x));
            verify_note(v, verify_timed(v, &x));
        }
        /* What follows from such an entry is not known: a repair would take back, say, a settlement. */
        ok = x.bad_entry != 0 ? stet__verify_bad(v, "facts", 0, "inbox entry %llu is not readable",
                                                 (unsigned long long)x.bad_entry)
                              : verify_check(v, &x);
    }
    *row = x.l.row;
    row->handler = row->key = row->lane = row->group = row->reason = NULL;
    row->extra = (stet_bytes){ NULL, 0 };
    stet__expect_free(&x);
    return ok;
}

static bool
verify_is_same(const stet_run_row *a, const stet_run_row *b)
{
    return a->journal == b->journal && a->inbox == b->inbox && a->epoch == b->epoch &&
           a->session == b->session && a->due_ms == b->due_ms;
}

static bool
verify_is_still(verify *v, const stet_run_row *row)
{
    stet__arena  arena;
    stet_run_row after = { 0 };
    stet__fact   extra;
    int          err;

    stet__arena_init(&arena, &v->e->p->alloc);
    err = stet__load_row(v->e, row->id, &arena, &after, &extra);
    stet__arena_free(&arena);
    /* Options that cannot be read do not say that it moved: the rest of the row is there. */
    return (err == STET_OK || err == STET_ECORRUPT) && verify_is_same(row, &after);
}

/* A finding counts if the run stands still: the same revision, inbox and owner before two looks and after the second.
 * Of one that moves on all the time nothing can be said; a repair of it is tried, and refused if it
 * moves on. */
static bool
verify_stands(verify *v, stet_id id, stet_run_row *row, bool is_first)
{
    stet_run_row before = { 0 };

    for (int i = 0; i < VERIFY_LOOKS; i++) {
        if (verify_look(v, id, row, is_first && i == 0) || v->err != STET_OK)
            return true;
        if (i > 0 && verify_is_same(&before, row) && (v->is_unreadable || verify_is_still(v, row)))
            return false;
        before = *row;
    }
    return !v->is_repairing;
}

static int
verify_repair_mark(verify *v, stet_id id)
{
    stet__work *w = stet__work_new(v->e, NULL, NULL);
    stet_op    *op = w != NULL ? stet__work_op(w, STET_OP_VALUE_PUT, v->retry_of) : NULL;
    int         err;

    if (op == NULL || !stet__work_bytes(w, &op->key, stet__id_bytes(&v->retry_of)) ||
        !stet__work_bytes(w, &op->data, stet__id_bytes(&id))) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    op->space = STET__SPACE_RETRY;
    if ((err = stet__commit_sync(v->e, w, NULL)) != STET_OK)
        return err;
    return stet__repair_run(v->e, v->retry_of, NULL, NULL);
}

/* STET_ECONFLICT: it is in use; facts that cannot be read stay what they are. */
static int
verify_repair(verify *v, stet_id id, const stet_run_row *row)
{
    if (v->is_unreadable)
        return STET_ECORRUPT;
    if (v->has_no_owner)
        return stet__repair_owner(v->e, row, false);
    if (row->session != 0 || v->is_passed)
        return STET_ECONFLICT;
    return v->has_no_mark ? verify_repair_mark(v, id) : stet__repair_run(v->e, id, NULL, NULL);
}

static int
verify_run(verify *v, stet_id id)
{
    stet_run_row row = { 0 };
    int          err = STET_OK, repaired;

    v->checked++;
    for (int i = 0; err == STET_OK && i < VERIFY_REPAIRS; i++) {
        char rule[32];

        if (verify_stands(v, id, &row, i == 0) || v->err != STET_OK)
            return v->err;
        if (!v->is_repairing)
            return stet__verify_tell(v, &id, false);
        (void)snprintf(rule, sizeof rule, "%s", v->rule);
        repaired = verify_repair(v, id, &row);
        if (repaired != STET_OK && repaired != STET_ECONFLICT && repaired != STET_ECORRUPT &&
            repaired != STET_ENOTFOUND)
            return repaired;
        err = stet__verify_tell(v, &id, repaired == STET_OK);
        if (repaired != STET_OK)
            return err;
    }
    if (err == STET_OK && !verify_stands(v, id, &row, false) && v->err == STET_OK)
        err = stet__verify_tell(v, &id, false);
    return err != STET_OK ? err : v->err;
}

/* ---- runs without a row ---------------------------------------------------------------------- */

typedef struct verify_lost { /* of a run that stood in a lane */
    stet_run_row row;
    char        *lane;
    bool         has_begun;
    int64_t      visible_ms, created_us;
} verify_lost;

typedef struct verify_rows {
    stet_run_row rows[VERIFY_PAGE];
    size_t       n;
} verify_rows;

static int
verify_on_lost(void *arg, const stet_run_row *row)
{
    verify_rows *page = arg;

    page->rows[page->n++] = *row;
    return STET_OK;
}

/* Who has begun holds the lane; the others stand as they became visible. */
static int
verify_by_lane(const void *left, const void *right)
{
    const verify_lost *a = left, *b = right;
    int                order = strcmp(a->lane, b->lane);

    if (order != 0)
        return order;
    if (a->has_begun != b->has_begun)
        return a->has_begun ? -1 : 1;
    if (a->visible_ms != b->visible_ms)
        return a->visible_ms < b->visible_ms ? -1 : 1;
    if (a->created_us != b->created_us)
        return a->created_us < b->created_us ? -1 : 1;
    return memcmp(a->row.id.bytes, b->row.id.bytes, sizeof a->row.id.bytes);
}

typedef struct verify_lanes {
    stet__arena  arena;
    verify_lost *lost;
    size_t       n, cap;
} verify_lanes;

/* True: its turn comes when all that stood in lanes are known, so that they enter in their
 * order. */
static int
verify_put_off(verify *v, verify_lanes *lanes, const stet_run_row *row, bool *is_put_off)
{
    stet__expect x;
    verify_lost *lost, *grown;
    int          err = stet__expect_load(v->e, &x, row->id, row);

    *is_put_off = false;
    if (err != STET_OK)
        return err;
    if (stet__run_has_lane(&x.l.run) &&
        (x.is_unreadable || (!stet__run_is_terminal(&x.l.run) && x.is_visible))) {
        if (lanes->n == lanes->cap) {
            size_t cap = stet__cap_next(&v->e->p->alloc, lanes->cap, 64);

            grown = stet__grow(&v->e->p->alloc, lanes->lost, cap * sizeof *grown);
            if (grown == NULL) {
                stet__expect_free(&x);
                return stet__fail(STET_ENOMEM, "out of memory");
            }
            lanes->lost = grown;
            lanes->cap = cap;
        }
        lost = &lanes->lost[lanes->n];
        lost->row = *row;
        lost->has_begun = stet__run_has_begun(&x.l.run);
        lost->visible_ms = x.l.run.visible_ms;
        lost->created_us = x.l.run.created_us;
        lost->lane =
            (char *)(uintptr_t)stet__lane_name(&lanes->arena, x.l.run.handler, x.l.run.key);
        if (lost->lane == NULL)
            err = stet__fail(STET_ENOMEM, "out of memory");
        else {
            lanes->n++;
            *is_put_off = true;
        }
    }
    stet__expect_free(&x);
    return err;
}

static int
verify_restore(verify *v, const stet_run_row *row, const stet__crumbs_left *left)
{
    int err = stet__repair_run(v->e, row->id, row, left);

    if (err != STET_OK && err != STET_ECONFLICT && err != STET_ECORRUPT)
        return err;
    (void)stet__verify_bad(v, "projection", row->journal, "it has facts and no row");
    if (err == STET_ECORRUPT)
        v->checked++; /* it is looked at only here */
    return stet__verify_tell(v, &row->id, err == STET_OK);
}

static int
verify_restore_all(verify *v, verify_rows *page, verify_lanes *lanes, const stet__crumbs_left *left)
{
    stet_run_query query = { .is_lost = true, .limit = VERIFY_PAGE };
    bool           is_put_off;
    int            err;

    do {
        page->n = 0;
        err = v->e->store->ops->runs(v->e->store, &query, verify_on_lost, page);
        for (size_t i = 0; err == STET_OK && i < page->n; i++) {
            err = verify_put_off(v, lanes, &page->rows[i], &is_put_off);
            if (err == STET_OK && !is_put_off)
                err = verify_restore(v, &page->rows[i], left);
        }
        if (page->n > 0)
            query.before = page->rows[page->n - 1].id;
    } while (err == STET_OK && page->n == VERIFY_PAGE);
    if (lanes->n > 0)
        qsort(lanes->lost, lanes->n, sizeof *lanes->lost, verify_by_lane);
    for (size_t i = 0; err == STET_OK && i < lanes->n; i++)
        err = verify_restore(v, &lanes->lost[i].row, left);
    return err;
}

/* Before the dead are reaped: what they were executing is told to runs whose rows do not say who
 * had them. */
static int
verify_restore_lost(verify *v, verify_rows *page)
{
    stet__crumbs_left *left;
    verify_lanes       lanes = { .n = 0 };
    int                err;

    if ((err = stet__crumbs_gather(v->e, &left)) != STET_OK)
        return err;
    stet__arena_init(&lanes.arena, &v->e->p->alloc);
    err = verify_restore_all(v, page, &lanes, left);
    stet__free(&v->e->p->alloc, lanes.lost);
    stet__arena_free(&lanes.arena);
    stet__crumbs_drop(v->e, left);
    return err;
}

/* ---- what the store made of its records ------------------------------------------------------ */

static int
verify_on_index(void *arg, const stet_id *run, const char *sentence, bool is_repaired)
{
    verify *v = arg;

    v->has_mended = v->has_mended || is_repaired;
    (void)stet__verify_bad(v, "index", 0, "%s", sentence);
    return stet__verify_tell(v, run, is_repaired);
}

/* First of all: by these the runs, values and timers are found that the rest looks at. */
static int
verify_indexes(verify *v)
{
    const stet_store_ops *ops = v->e->store->ops;
    int                   err;

    if (ops->check == NULL)
        return STET_OK;
    err = ops->check(v->e->store, v->is_repairing, verify_on_index, v);
    if (v->has_mended && ops->hint != NULL)
        ops->hint(v->e->store); /* workers look for what they could not find */
    return err;
}

/* ---- all ------------------------------------------------------------------------------------- */

typedef struct verify_page {
    stet_id     ids[VERIFY_PAGE];
    size_t      n;
    verify_rows lost;
} verify_page;

static int
verify_on_row(void *arg, const stet_run_row *row)
{
    verify_page *page = arg;

    page->ids[page->n++] = row->id;
    return STET_OK;
}

/* Those without a row between the last page and this one. */
static int
verify_tell_lost(verify *v, verify_page *page, stet_id after, stet_id upto)
{
    stet_run_query query = { .is_lost = true, .before = after, .upto = upto, .limit = VERIFY_PAGE };
    int            err;

    do {
        page->lost.n = 0;
        err = v->e->store->ops->runs(v->e->store, &query, verify_on_lost, &page->lost);
        for (size_t i = 0; err == STET_OK && i < page->lost.n; i++) {
            stet__expect x;

            v->checked++;
            if ((err = stet__expect_load(v->e, &x, page->lost.rows[i].id, &page->lost.rows[i])) !=
                STET_OK)
                break;
            err = stet__verify_wrote(v, &x);
            stet__expect_free(&x);
            (void)stet__verify_bad(v, "projection", page->lost.rows[i].journal,
                                   "it has facts and no row");
            if (err == STET_OK)
                err = stet__verify_tell(v, &page->lost.rows[i].id, false);
        }
        if (page->lost.n > 0)
            query.before = page->lost.rows[page->lost.n - 1].id;
    } while (err == STET_OK && page->lost.n == VERIFY_PAGE);
    return err;
}

static int
verify_runs(verify *v, verify_page *page)
{
    stet_run_query query = { .oldest_first = true, .limit = VERIFY_PAGE };
    stet_id        none = { { 0 } };
    int            err;

    do {
        page->n = 0;
        err = v->e->store->ops->runs(v->e->store, &query, verify_on_row, page);
        if (err == STET_OK && !v->is_repairing)
            err = verify_tell_lost(v, page, query.before,
                                   page->n == VERIFY_PAGE ? page->ids[page->n - 1] : none);
        for (size_t i = 0; err == STET_OK && i < page->n; i++)
            err = verify_run(v, page->ids[i]);
        if (page->n > 0)
            query.before = page->ids[page->n - 1];
    } while (err == STET_OK && page->n == VERIFY_PAGE);
    return err;
}

static int
verify_all(verify *v, verify_page *page)
{
    int err = verify_indexes(v);

    if (err != STET_OK)
        return err;
    if (v->is_repairing) {
        if ((err = stet__verify_mending(v)) != STET_OK ||
            (err = verify_restore_lost(v, &page->lost)) != STET_OK)
            return err;
        (void)stet__reap(v->e);
    }
    if ((err = verify_runs(v, page)) != STET_OK || (err = stet__verify_state(v)) != STET_OK ||
        (err = stet__verify_children(v)) != STET_OK ||
        (err = stet__verify_owned(v)) != STET_OK ||
        (err = stet__verify_timers_left(v)) != STET_OK ||
        (err = stet__verify_schedules(v)) != STET_OK || !v->is_repairing)
        return err;
    return stet__verify_mended(v);
}

static int
verify_begin(stet_engine *e, const char *call, bool is_repairing, size_t *checked,
             stet_finding_fn fn, void *arg)
{
    verify      *v;
    verify_page *page;
    int          err;

    if (checked != NULL)
        *checked = 0;
    if ((err = stet__alive(e, call)) != STET_OK)
        return err;
    v = stet__get0(&e->p->alloc, sizeof *v);
    page = stet__get(&e->p->alloc, sizeof *page);
    if (v == NULL || page == NULL) {
        stet__free(&e->p->alloc, v);
        stet__free(&e->p->alloc, page);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    v->e = e;
    v->fn = fn;
    v->arg = arg;
    v->is_repairing = is_repairing;
    stet__verify_state_init(v);
    err = verify_all(v, page);
    if (checked != NULL)
        *checked = v->checked;
    stet__verify_state_free(v);
    stet__free(&e->p->alloc, v);
    stet__free(&e->p->alloc, page);
    return err;
}

int
stet_verify(stet_engine *e, size_t *checked, stet_finding_fn fn, void *arg)
{
    return verify_begin(e, "stet_verify", false, checked, fn, arg);
}

int
stet_repair(stet_engine *e, size_t *checked, stet_finding_fn fn, void *arg)
{
    int err;

    if (checked != NULL)
        *checked = 0;
    if ((err = stet__alive(e, "stet_repair")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_repair", "the command line")) != STET_OK)
        return err;
    return verify_begin(e, "stet_repair", true, checked, fn, arg);
}
