/* Planned times: each is dealt with once, in the unit that says so.
 *
 * A schedule of a name lives from its first edition until it is removed. The model follows each
 * life by the units the store applied, and judges each by the record before it:
 *   - editions follow each other, and only who saw the last writes the next;
 *   - a run of a schedule is started by a unit that counts it, has an entry for it in the ledger,
 *     and goes on to the next time; the same of what is skipped or waits;
 *   - what is dealt with is the next planned time, or the one that waited: none is left out, none
 *     comes twice, none before its time by the store's clock (the latest time it ever had);
 *   - what the policies say: a run that is open is in the way, or cancelled; times that were missed
 *     are skipped or fired as many as they may be; nothing is fired in a pause.
 * At the end `stet_schedule_get` and `stet_schedule_history` say the same. /
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/schedule.h"
#include "engine/engine.h"
#include "fleet.h"

/* What a unit does to one schedule. */
typedef struct planned_unit {
    fleet_schedule  *s;
    const stet_op   *put; /* of the record; NULL: it stays */
    bool             is_removed, is_retimed;
    size_t           n_logs, n_starts;
    fleet_occurrence entry;
    int64_t          time_ms; /* the entry's */
    stet__fact       started;
    stet_id          run;
} planned_unit;

/* ---- times ----------------------------------------------------------------------------------- */

static int64_t
planned_step_ms(const fleet_schedule *s)
{
    return s->minutes != 0 ? s->minutes * 60000 : s->f.every_ms;
}

static bool
planned_is_from_end(const fleet_schedule *s)
{
    return (s->f.flags & STET__SCHED_FROM_COMPLETION) != 0;
}

/* The first time after one that was dealt with then; STET_NEVER: there is none. */
static int64_t
planned_next(const fleet_schedule *s, int64_t after_ms, int64_t then_ms)
{
    if (planned_is_from_end(s)) /* one is planned, and no other until it is dealt with */
        return then_ms + s->f.every_ms;
    return planned_step_ms(s) != 0 ? after_ms + planned_step_ms(s) : STET_NEVER;
}

/* The first after any time, of a schedule whose time is new. */
static int64_t
planned_first(const fleet_schedule *s, int64_t now_ms)
{
    int64_t from_ms = now_ms > s->f.planned_ms ? now_ms : s->f.planned_ms;

    if (s->minutes != 0)
        return (from_ms / planned_step_ms(s) + 1) * planned_step_ms(s);
    if (s->f.every_ms == 0)
        return s->f.at_ms > s->f.planned_ms ? s->f.at_ms : STET_NEVER;
    if ((s->f.flags & STET__SCHED_FROM_COMPLETION) && (s->f.flags & STET__SCHED_RUNNING))
        return STET_NEVER;
    return from_ms + s->f.every_ms;
}

/* How many there are from this one on, up to then. */
static int64_t
planned_count(const fleet_schedule *s, int64_t from_ms, int64_t upto_ms)
{
    if (from_ms > upto_ms)
        return 0;
    if (planned_is_from_end(s) || planned_step_ms(s) == 0)
        return 1;
    return (upto_ms - from_ms) / planned_step_ms(s) + 1;
}

/* ---- records --------------------------------------------------------------------------------- */

/* The record, into what is known of the schedule. */
static void
planned_take(fleet_schedule *s, const stet__fact *f)
{
    char cron[24] = "";

    s->f = *f;
    s->run = stet__fact_id(f->run);
    (void)snprintf(s->input, sizeof s->input, "%.*s", (int)f->value.len,
                   f->value.data != NULL ? (const char *)f->value.data : "");
    (void)snprintf(cron, sizeof cron, "%.*s", (int)f->cron.len,
                   f->cron.data != NULL ? (const char *)f->cron.data : "");
    s->minutes = cron[0] != '\0' ? strtol(cron + 2, NULL, 10) : 0;
}

static bool
planned_same_time(const fleet_schedule *a, const fleet_schedule *b)
{
    return a->minutes == b->minutes && a->f.every_ms == b->f.every_ms && a->f.at_ms == b->f.at_ms &&
           ((a->f.flags ^ b->f.flags) & STET__SCHED_FROM_COMPLETION) == 0;
}

static void
planned_log(fleet_schedule *s, const fleet_occurrence *entry)
{
    for (size_t i = 0; i < s->n_log; i++)
        if (s->log[i].planned_ms == entry->planned_ms) { /* it waited */
            s->log[i] = *entry;
            return;
        }
    if (s->n_log == s->cap_log) {
        size_t cap = s->cap_log > 0 ? s->cap_log * 2 : 16;
        void  *grown = realloc(s->log, cap * sizeof *s->log);

        if (grown == NULL)
            abort();
        s->log = grown;
        s->cap_log = cap;
    }
    s->log[s->n_log++] = *entry;
}

/* ---- what a unit says ------------------------------------------------------------------------ */

static planned_unit *
planned_of(planned_unit *all, fleet *w, stet_bytes name)
{
    for (size_t i = 0; i < w->n_schedules; i++)
        if (strlen(w->schedules[i].name) == name.len &&
            memcmp(w->schedules[i].name, name.data, name.len) == 0)
            return &all[i];
    fleet_fail(w, NULL, "a schedule %.*s, which nobody made", (int)name.len,
               (const char *)name.data);
    return NULL;
}

static void
planned_read_start(planned_unit *all, fleet *w, const stet_op *op)
{
    stet_bytes    in = op->data;
    stet__fact    fact;
    planned_unit *u;

    if (op->number != 1 || stet__fact_decode(&fact, &in) != STET_OK ||
        fact.kind != STET__FACT_STARTED || fact.schedule.data == NULL ||
        fact.retry_of.data != NULL || (u = planned_of(all, w, fact.schedule)) == NULL)
        return;
    u->n_starts++;
    u->started = fact;
    u->run = op->run;
}

static void
planned_read_entry(planned_unit *all, fleet *w, const stet_op *op)
{
    size_t        len = strnlen(op->key.data, op->key.len);
    stet_bytes    in = op->data;
    stet__fact    f;
    planned_unit *u = planned_of(all, w, (stet_bytes){ op->key.data, len });

    if (u == NULL || op->kind == STET_OP_VALUE_DEL)
        return;
    if (stet__fact_decode(&f, &in) != STET_OK || f.kind != STET__FACT_OCCURRENCE) {
        fleet_fail(w, NULL, "%s: an entry of its ledger that cannot be read", u->s->name);
        return;
    }
    u->n_logs++;
    u->time_ms = f.time_ms;
    u->entry = (fleet_occurrence){ f.planned_ms, f.until_ms,   (uint64_t)f.number,
                                   (int)f.code,  (int)f.cause, stet__fact_id(f.run) };
}

static void
planned_read(planned_unit *all, fleet *w, const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++) {
        const stet_op *op = &unit->ops[i];
        planned_unit  *u;

        if (op->kind == STET_OP_FACTS)
            planned_read_start(all, w, op);
        if (op->kind != STET_OP_VALUE_PUT && op->kind != STET_OP_VALUE_DEL)
            continue;
        if (strcmp(op->space, STET__SPACE_BASE_SCHED_LOG) == 0)
            planned_read_entry(all, w, op);
        if (strcmp(op->space, STET__SPACE_BASE_SCHED) != 0 ||
            (u = planned_of(all, w, op->key)) == NULL)
            continue;
        if (op->kind == STET_OP_VALUE_PUT)
            u->put = op;
        else
            u->is_removed = true;
    }
}

/* ---- the policies ---------------------------------------------------------------------------- */

/* What was started last, and the next is started now. */
static void
planned_check_overlap(fleet *w, const planned_unit *u)
{
    const fleet_schedule *s = u->s;
    const fleet_run      *last = fleet_run_of(w, s->run), *run = fleet_run_of(w, u->run);

    if (last == NULL || last->end != 0 || s->f.overlap == STET_OVERLAP_ALLOW)
        return;
    if (s->f.overlap != STET_OVERLAP_CANCEL)
        fleet_fail(w, run, "%s: it is started, and run %u before it is open", s->name,
                   last->number);
    else if (!last->is_stopped && !last->is_broken &&
             !last->is_damaged) /* whom nobody can stop, or execute either */
        fleet_fail(w, run, "%s: it is started, and run %u before it is not cancelled", s->name,
                   last->number);
}

/* How many are due with it, and how late it is. */
static void
planned_check_missed(fleet *w, const planned_unit *u)
{
    const fleet_schedule *s = u->s;
    int64_t               keep = s->f.missed == STET_MISSED_ALL ? s->f.missed_max : 1;
    int64_t               due = planned_count(s, u->entry.planned_ms, u->time_ms);

    if (due > keep)
        fleet_fail(w, NULL, "%s: of %" PRId64 " that are due one is dealt with that was missed",
                   s->name, due);
    if (s->f.missed == STET_MISSED_SKIP && u->time_ms - u->entry.planned_ms > s->f.grace_ms)
        fleet_fail(w, NULL, "%s: one is dealt with that is %" PRId64 " ms late", s->name,
                   u->time_ms - u->entry.planned_ms);
}

/* Was there a reason? */
static bool
planned_may_skip(fleet *w, const planned_unit *u)
{
    const fleet_schedule *s = u->s;
    int64_t               left = planned_count(
        s, planned_next(s, u->entry.until_ms, u->time_ms), u->time_ms);
    const fleet_run      *last = fleet_run_of(w, s->run);

    switch ((stet_skip)u->entry.skip) {
    case STET_SKIP_MISSED: return s->f.missed != STET_MISSED_ALL && left == 1;
    case STET_SKIP_LIMIT: return s->f.missed == STET_MISSED_ALL && left == s->f.missed_max;
    case STET_SKIP_LATE:
        return s->f.missed == STET_MISSED_SKIP && u->entry.count == 1 &&
               u->time_ms - u->entry.planned_ms > s->f.grace_ms;
    case STET_SKIP_OVERLAP:
    case STET_SKIP_QUEUED:
        planned_check_missed(w, u);
        return u->entry.count == 1 && last != NULL && stet__id_equal(u->entry.run, s->run) &&
               (u->entry.skip == STET_SKIP_OVERLAP
                    ? s->f.overlap == STET_OVERLAP_SKIP
                    : s->f.overlap == STET_OVERLAP_QUEUE && s->f.waiting_ms != 0);
    case STET_SKIP_PAUSED: return (s->f.flags & STET__SCHED_PAUSED) != 0 && left == 0;
    case STET_SKIP_CHANGED: return (s->f.flags & STET__SCHED_PAUSED) == 0 && left == 0 && u->is_retimed;
    default: return false;
    }
}

/* ---- one planned time ------------------------------------------------------------------------ */

static void
planned_check_start(fleet *w, const planned_unit *u)
{
    const fleet_schedule *s = u->s;
    const fleet_run      *run = fleet_run_of(w, u->run);

    if (u->n_logs != 1 || u->entry.outcome != STET_OCCURRENCE_RAN ||
        !stet__id_equal(u->entry.run, u->run) || u->entry.planned_ms != u->started.planned_ms)
        fleet_fail(w, run, "%s: it is started, and the ledger does not say so", s->name);
    if (u->started.planned_ms > fleet_peak_ms(w))
        fleet_fail(w, run, "%s: it is started %" PRId64 " ms early", s->name,
                   u->started.planned_ms - fleet_peak_ms(w));
    for (size_t i = 0; i < s->n_log; i++)
        if (s->log[i].planned_ms == u->started.planned_ms &&
            s->log[i].outcome == STET_OCCURRENCE_RAN)
            fleet_fail(w, run, "%s: it is started for the same time as run %u", s->name,
                       fleet_run_of(w, s->log[i].run)->number);
    if (s->f.flags & STET__SCHED_PAUSED)
        fleet_fail(w, run, "%s: it is started in a pause", s->name);
    if (u->started.value.len != strlen(s->input) ||
        memcmp(u->started.value.data, s->input, u->started.value.len) != 0)
        fleet_fail(w, run, "%s: its input is another one", s->name);
    if (s->f.deadline_ms != 0 ? u->started.deadline_ms != u->started.time_ms + s->f.deadline_ms
                              : u->started.deadline_ms != 0)
        fleet_fail(w, run, "%s: its deadline is another one", s->name);
    planned_check_overlap(w, u);
}

/* The next planned time. One that is counted from the end of a run is known when that has ended, to
 * the unit that sees it: which may deal with it as well. */
static int64_t
planned_until(const fleet *w, const fleet_schedule *s)
{
    const fleet_run *last = fleet_run_of(w, s->run);
    int64_t          from_ms;

    if (s->f.until_ms != STET_NEVER || (s->f.flags & STET__SCHED_FROM_COMPLETION) == 0 ||
        (s->f.flags & STET__SCHED_RUNNING) == 0 || last == NULL || last->end == 0)
        return s->f.until_ms;
    from_ms = last->ended_ms > s->f.planned_ms ? last->ended_ms : s->f.planned_ms;
    return from_ms + s->f.every_ms;
}

/* Retention has removed its last run: when that ended nobody can know. */
static bool
planned_is_forgotten(const fleet *w, const fleet_schedule *s)
{
    const fleet_run *last = fleet_run_of(w, s->run);

    return last != NULL && last->is_purged && (s->f.flags & STET__SCHED_FROM_COMPLETION) != 0;
}

/* An entry of the ledger: of the next planned time, or of several, if it is not of the one that waited. */
static void
planned_check_entry(fleet *w, const planned_unit *u, bool has_waited)
{
    const fleet_schedule   *s = u->s;
    const fleet_occurrence *o = &u->entry;

    if (u->time_ms > fleet_peak_ms(w) || o->until_ms > fleet_peak_ms(w))
        fleet_fail(w, NULL, "%s: a time is dealt with before it has come", s->name);
    if (has_waited)
        return;
    if (o->planned_ms != planned_until(w, s) &&
        !(s->f.until_ms == STET_NEVER && planned_is_forgotten(w, s)))
        fleet_fail(w, NULL, "%s: the time %" PRId64 " is dealt with, and the next one is %" PRId64,
                   s->name, o->planned_ms, planned_until(w, s));
    if ((int64_t)o->count != planned_count(s, o->planned_ms, o->until_ms))
        fleet_fail(w, NULL, "%s: %" PRIu64 " times are dealt with as %" PRId64, s->name, o->count,
                   planned_count(s, o->planned_ms, o->until_ms));
    if (o->outcome == STET_OCCURRENCE_SKIPPED) {
        if (!planned_may_skip(w, u))
            fleet_fail(w, NULL, "%s: a time is skipped as \"%s\", which is not so", s->name,
                       stet_skip_name((stet_skip)o->skip));
        return;
    }
    planned_check_missed(w, u);
    if (o->outcome == STET_OCCURRENCE_WAITS &&
        (s->f.overlap != STET_OVERLAP_QUEUE || s->f.waiting_ms != 0 ||
         !stet__id_equal(o->run, s->run)))
        fleet_fail(w, NULL, "%s: a time waits that need not", s->name);
}

/* ---- one edition ----------------------------------------------------------------------------- */

/* The next planned time: of the record as it is now, by that before. */
static int64_t
planned_expected(fleet *w, const planned_unit *u, const fleet_schedule *now, bool has_waited)
{
    const fleet_schedule *s = u->s;
    bool                  is_from_end = (now->f.flags & STET__SCHED_FROM_COMPLETION) != 0;

    if (!planned_same_time(s, now))
        return planned_first(now, now->f.updated_ms);
    if (is_from_end && u->n_starts > 0)
        return STET_NEVER;
    if (u->n_logs > 0 && !has_waited)
        return planned_next(s, u->entry.until_ms, u->time_ms);
    if ((s->f.flags & ~now->f.flags & STET__SCHED_RUNNING) != 0)
        return planned_is_forgotten(w, s) ? now->f.until_ms : planned_until(w, s);
    return s->f.until_ms;
}

static void
planned_check_record(fleet *w, const planned_unit *u, const fleet_schedule *now)
{
    const fleet_schedule *s = u->s;
    bool                  has_waited = u->n_starts > 0 && u->started.planned_ms == s->f.waiting_ms;
    int64_t  waits_ms = has_waited ? 0 : s->f.waiting_ms, until_ms, planned_ms = s->f.planned_ms;
    uint64_t skipped = 0;

    if (u->n_logs > 1 || u->n_starts > 1)
        fleet_fail(w, NULL, "%s: one unit deals with two times", s->name);
    if (u->n_logs > 0)
        planned_check_entry(w, u, has_waited);
    if (u->n_starts > 0)
        planned_check_start(w, u);
    else if (u->n_logs > 0 && u->entry.outcome == STET_OCCURRENCE_RAN)
        fleet_fail(w, NULL, "%s: the ledger has a run that is not started", s->name);
    if (u->n_logs > 0 && u->entry.outcome == STET_OCCURRENCE_WAITS)
        waits_ms = u->entry.planned_ms;
    if (u->n_logs > 0 && u->entry.outcome == STET_OCCURRENCE_SKIPPED)
        skipped = u->entry.count;
    if (u->n_logs > 0 && !has_waited)
        planned_ms = u->entry.until_ms;
    until_ms = planned_expected(w, u, now, has_waited);
    if (now->f.fired != s->f.fired + (int64_t)u->n_starts ||
        now->f.skipped != s->f.skipped + (int64_t)skipped)
        fleet_fail(w, NULL, "%s: %zu runs are started, and it counts %" PRId64 " for %" PRId64,
                   s->name, u->n_starts, now->f.fired, s->f.fired);
    if (!stet__id_equal(now->run, u->n_starts > 0 ? u->run : s->run))
        fleet_fail(w, NULL, "%s: another run is its last", s->name);
    if (now->f.planned_ms != planned_ms || now->f.until_ms != until_ms)
        fleet_fail(w, NULL,
                   "%s: %" PRId64 " and then %" PRId64 " are its times, not %" PRId64
                   " and %" PRId64,
                   s->name, now->f.planned_ms, now->f.until_ms, planned_ms, until_ms);
    if (now->f.waiting_ms != waits_ms)
        fleet_fail(w, NULL, "%s: %" PRId64 " waits, and not %" PRId64, s->name, now->f.waiting_ms,
                   waits_ms);
    if (u->n_starts == 0 && (s->f.flags & ~now->f.flags & STET__SCHED_RUNNING) != 0 &&
        !fleet_schedule_is_over(w, s))
        fleet_fail(w, fleet_run_of(w, s->run), "%s: it is taken for over, and is open", s->name);
}

static void
planned_put(fleet *w, planned_unit *u)
{
    fleet_schedule *s = u->s, now = *s;
    stet_bytes      in = u->put->data;
    stet__fact      f;

    if (stet__fact_decode(&f, &in) != STET_OK) {
        fleet_fail(w, NULL, "%s: a record that cannot be read", s->name);
        return;
    }
    if (s->edition != 0 ? u->put->number != s->edition + 1 || !stet__id_equal(u->put->run, s->id)
                        : u->put->number != 1)
        fleet_fail(w, NULL, "%s: edition %" PRIu64 " is written over edition %" PRIu64 "%s",
                   s->name, u->put->number, s->edition,
                   s->edition != 0 && !stet__id_equal(u->put->run, s->id) ? " of another one" : "");
    planned_take(&now, &f);
    u->is_retimed = !planned_same_time(s, &now);
    if (s->edition != 0)
        planned_check_record(w, u, &now);
    else if (u->n_starts + u->n_logs > 0 || f.fired != 0 || f.skipped != 0 ||
             f.time_ms > fleet_peak_ms(w) || f.until_ms != planned_first(&now, f.time_ms))
        fleet_fail(w, NULL, "%s: it is new, and its first time is %" PRId64, s->name, f.until_ms);
    if (u->n_logs > 0)
        planned_log(&now, &u->entry);
    if (s->edition == 0)
        now.n_log = 0;
    now.id = u->put->run;
    now.edition = u->put->number;
    now.puts++;
    now.pauses += (f.flags & STET__SCHED_PAUSED) != 0 && (s->f.flags & STET__SCHED_PAUSED) == 0;
    now.resumes += (f.flags & STET__SCHED_PAUSED) == 0 && (s->f.flags & STET__SCHED_PAUSED) != 0;
    w->stats.firings += u->n_starts;
    w->stats.skips += u->n_logs > 0 && u->entry.outcome == STET_OCCURRENCE_SKIPPED;
    *s = now;
}

/* How many entries of its ledger there are in a store, of an outcome. */
static size_t
planned_entries(stet__memory_db *db, const char *name, int outcome)
{
    mem_value probe = stet__mem_value_probe(STET__SPACE_BASE_SCHED_LOG, stet_text(name));
    size_t    n = 0;

    for (const mem_node *at = stet__mem_tree_ge(&db->values, &probe.node); at != NULL;
         at = stet__mem_tree_next(at)) {
        const mem_value *v = MEM_OF(const mem_value, node, at);
        stet_bytes       in = v->value.data;
        stet__fact       f;

        if (strcmp(v->space, probe.space) != 0 || v->key.len <= strlen(name) ||
            memcmp(v->key.data, name, strlen(name) + 1) != 0)
            break;
        n += outcome == 0 || (stet__fact_decode(&f, &in) == STET_OK && f.code == outcome);
    }
    return n;
}

static void
planned_removed(fleet *w, const planned_unit *u)
{
    fleet_schedule *s = u->s;

    if (u->put != NULL || u->n_starts + u->n_logs > 0)
        fleet_fail(w, NULL, "%s: it is removed, and goes on", s->name);
    if (planned_entries(w->db, s->name, 0) > 0)
        fleet_fail(w, NULL, "%s: it is removed, and its ledger is not", s->name);
    s->dels += s->edition != 0;
    s->edition = 0;
    s->n_log = 0;
    memset(&s->f, 0, sizeof s->f);
    s->run = (stet_id){ { 0 } };
    s->minutes = 0;
}

void
fleet_planned(fleet *w, const fleet_node *node, const stet_unit *unit)
{
    planned_unit all[FLEET_SCHEDULES_MAX] = { { .s = NULL } };

    for (size_t i = 0; i < w->n_schedules; i++)
        all[i].s = &w->schedules[i];
    planned_read(all, w, unit);
    for (size_t i = 0; i < w->n_schedules; i++) {
        planned_unit *u = &all[i];

        if (u->put != NULL)
            fleet_trace(w, node, fleet_run_of(w, u->run), u->n_starts > 0 ? "fires" : "changes",
                        u->s->name, (int64_t)u->put->number,
                        u->n_logs > 0 ? u->entry.planned_ms : 0);
        if (u->is_removed) {
            fleet_trace(w, node, NULL, "removed:", u->s->name, 0, 0);
            planned_removed(w, u);
        } else if (u->put != NULL)
            planned_put(w, u);
        else if (u->n_starts + u->n_logs > 0)
            fleet_fail(w, fleet_run_of(w, u->run),
                       "%s: a time is dealt with, and it stays as it is", u->s->name);
    }
}

/* Does somebody look at it at that time? STET_NEVER: now. */
static bool
planned_is_asked(fleet *w, const fleet_schedule *s, int64_t at_ms)
{
    mem_value probe = stet__mem_value_probe(STET__SPACE_SCHED_DUE, stet_text(""));

    for (const mem_node *at = stet__mem_tree_ge(&w->db->values, &probe.node); at != NULL;
         at = stet__mem_tree_next(at)) {
        const mem_value *v = MEM_OF(const mem_value, node, at);
        const uint8_t   *key = v->key.data;
        uint64_t         ms = 0;

        if (strcmp(v->space, probe.space) != 0)
            break;
        for (int i = 0; i < 8; i++)
            ms = ms << 8 | key[i];
        if (v->key.len >= 8 + strlen(s->name) && memcmp(key + 8, s->name, strlen(s->name)) == 0 &&
            (at_ms == STET_NEVER ? (int64_t)ms <= fleet_peak_ms(w) : (int64_t)ms == at_ms))
            return true;
    }
    return false;
}

/* Each stands in the index, with the time at which to look at it; and if its run was waited for and
 * has ended, that is now. */
void
fleet_check_index(fleet *w)
{
    for (size_t i = 0; i < w->n_schedules; i++) {
        const fleet_schedule *s = &w->schedules[i];

        if (s->edition == 0 || (s->f.flags & STET__SCHED_PAUSED) != 0)
            continue;
        if (s->f.look_ms != STET_NEVER && !planned_is_asked(w, s, s->f.look_ms))
            fleet_fail(w, NULL, "%s: nobody would look at it at %" PRId64, s->name, s->f.look_ms);
        if (fleet_schedule_is_waited(w, s) && !planned_is_asked(w, s, STET_NEVER))
            fleet_fail(w, fleet_run_of(w, s->run),
                       "%s: it has ended, and nobody would look at what waits for that", s->name);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

typedef struct planned_end {
    fleet          *w;
    fleet_schedule *s;
    size_t          n; /* entries of the ledger, the last first */
} planned_end;

static int
planned_on_schedule(void *arg, const stet_schedule_info *i)
{
    planned_end          *end = arg;
    const fleet_schedule *s = end->s;
    char                  run[STET_ID_TEXT_MAX];

    stet__id_text(run, STET__ID_RUN, s->run);
    if ((int64_t)i->fired != s->f.fired || (int64_t)i->skipped != s->f.skipped ||
        i->last_ms != s->f.planned_ms || i->waiting_ms != s->f.waiting_ms ||
        i->next_ms != (s->f.until_ms != STET_NEVER ? s->f.until_ms : 0) ||
        i->is_paused != ((s->f.flags & STET__SCHED_PAUSED) != 0) ||
        (s->f.fired > 0 && strcmp(i->last_run, run) != 0))
        fleet_fail(end->w, NULL, "%s: it is not what was written", s->name);
    return STET_OK;
}

static int
planned_on_occurrence(void *arg, const stet_occurrence_info *i)
{
    planned_end            *end = arg;
    const fleet_schedule   *s = end->s;
    const fleet_occurrence *o = end->n < s->n_log ? &s->log[s->n_log - 1 - end->n] : NULL;
    const fleet_run        *run = i->run != NULL ? fleet_run_named(end->w, i->run) : NULL;

    end->n++;
    if (o == NULL ||
        o->planned_ms != i->planned_ms + (end->w->options.tampers == FLEET_TAMPER_LEDGER) ||
        o->until_ms != i->until_ms || o->count != i->count || o->outcome != (int)i->outcome ||
        o->skip != (int)i->skip ||
        (run != NULL ? !stet__id_equal(run->id, o->run) : i->run != NULL))
        fleet_fail(end->w, run, "%s: entry %zu of its ledger is not what was written", s->name,
                   end->n);
    return STET_OK;
}

/* So many runs, entries of the ledger and firings. */
static void
planned_check_count(fleet *w, const fleet_schedule *s)
{
    uint64_t ran = 0, skipped = 0;
    size_t   waits = 0;

    for (size_t i = 0; i < s->n_log; i++) {
        const fleet_occurrence *o = &s->log[i];

        ran += o->outcome == STET_OCCURRENCE_RAN;
        skipped += o->outcome == STET_OCCURRENCE_SKIPPED ? o->count : 0;
        waits += o->outcome == STET_OCCURRENCE_WAITS;
    }
    if (ran != (uint64_t)s->f.fired || skipped != (uint64_t)s->f.skipped ||
        waits != (s->f.waiting_ms != 0))
        fleet_fail(w, NULL, "%s: its ledger has %" PRIu64 " runs, and %" PRId64 " were started",
                   s->name, ran, s->f.fired);
    w->stats.checks += s->n_log;
}

void
fleet_check_planned(fleet *w, stet_engine *e)
{
    for (size_t i = 0; i < w->n_schedules; i++) {
        planned_end end = { w, &w->schedules[i], 0 };
        const char *name = end.s->name;
        int         err = stet_schedule_get(e, name, planned_on_schedule, &end);

        if (err != (end.s->edition != 0 ? STET_OK : STET_ENOTFOUND))
            fleet_fail(w, NULL, "%s: looking at it gives %s: %s", name, stet_code_name(err),
                       stet_last_error());
        if (end.s->edition == 0)
            continue;
        err =
            stet_schedule_history(e, name, STET_SCHEDULE_HISTORY_MAX, planned_on_occurrence, &end);
        if (err != STET_OK || (end.n != end.s->n_log && end.n != STET_SCHEDULE_HISTORY_MAX))
            fleet_fail(w, NULL, "%s: its ledger has %zu entries, and not %zu", name, end.n,
                       end.s->n_log);
        planned_check_count(w, end.s);
    }
}

/* ---- recoveries ------------------------------------------------------------------------------ */

static bool
planned_record(stet__memory_db *db, const char *name, stet__fact *f)
{
    const mem_value *v = stet__mem_value(db, STET__SPACE_BASE_SCHED, stet_text(name));
    stet_bytes       in = v != NULL ? v->value.data : (stet_bytes){ NULL, 0 };

    return v != NULL && stet__fact_decode(f, &in) == STET_OK;
}

/* Runs that were started since, and for which times. */
static size_t
planned_since(fleet *w, stet__memory_db *before, stet__memory_db *after, const char *name,
              const stet__fact *was)
{
    size_t n = 0;

    for (mem_node *at = stet__mem_tree_first(&after->runs); at != NULL;
         at = stet__mem_tree_next(at)) {
        const mem_run  *run = MEM_OF(mem_run, by_id, at);
        const mem_node *first = stet__mem_tree_first(&run->journal);
        stet_bytes      in = { NULL, 0 };
        stet__fact      f;

        if (first == NULL || stet__mem_run(before, run->row.id) != NULL)
            continue;
        in = (stet_bytes){ MEM_OF(const mem_facts, node, first)->data,
                           MEM_OF(const mem_facts, node, first)->len };
        if (stet__fact_decode(&f, &in) != STET_OK || f.schedule.len != strlen(name) ||
            memcmp(f.schedule.data, name, f.schedule.len) != 0)
            continue;
        n++;
        if (f.planned_ms <= was->planned_ms && f.planned_ms != was->waiting_ms)
            fleet_fail(w, NULL, "%s: a recovery fires what was dealt with before", name);
    }
    return n;
}

void
fleet_check_replanned(fleet *w, stet__memory_db *before, stet__memory_db *after)
{
    for (size_t i = 0; i < w->n_schedules; i++) {
        const char *name = w->schedules[i].name;
        stet__fact  was, is;
        size_t      since;

        if (planned_record(before, name, &was) != planned_record(after, name, &is)) {
            fleet_fail(w, NULL, "%s: a recovery makes or loses it", name);
            continue;
        }
        if (!planned_record(before, name, &was))
            continue;
        since = planned_since(w, before, after, name, &was) +
                (w->options.tampers == FLEET_TAMPER_FIRED);
        if (is.fired != was.fired + (int64_t)since ||
            (is.logged < STET_SCHEDULE_HISTORY_MAX &&
             planned_entries(after, name, STET_OCCURRENCE_RAN) != (size_t)is.fired))
            fleet_fail(w, NULL,
                       "%s: after a recovery it has fired %" PRId64 " times, before %" PRId64
                       ", and %zu runs are new",
                       name, is.fired, was.fired, since);
        w->stats.checks++;
    }
}
