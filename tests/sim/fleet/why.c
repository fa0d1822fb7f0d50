/* Why those that have not ended have not: `why` must say it, and what it says must be true.
 *
 * When nothing happens any more by itself, a run may be open only because it waits for what comes
 * later or never: an awakeable nobody settles, a time far away, a worker for its handler, a run
 * that waits so itself, or itself being stuck. The reason `why` names is compared with the store's
 * records, read here without the engine, and with what the world knows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

#define WHY_LOST_MAX 5 /* the engine's default */

typedef struct why_said {
    char kind[32], text[800], help[160];
} why_said;

static void
why_on_verdict(void *arg, const stet_verdict *verdict)
{
    why_said *said = arg;

    (void)snprintf(said->kind, sizeof said->kind, "%s", verdict->kind);
    (void)snprintf(said->text, sizeof said->text, "%s", verdict->text);
    (void)snprintf(said->help, sizeof said->help, "%s", verdict->help != NULL ? verdict->help : "");
}

/* ---- reading records ------------------------------------------------------------------------- */

typedef bool (*why_fact_fn)(const stet__fact *fact, const void *arg);

/* How many facts there are of which it is true. */
static size_t
why_count(const mem_tree *facts, why_fact_fn is, const void *arg)
{
    size_t n = 0;

    for (mem_node *node = stet__mem_tree_first(facts); node != NULL;
         node = stet__mem_tree_next(node)) {
        const mem_facts *f = MEM_OF(mem_facts, node, node);
        stet_bytes       in = { f->data, f->len };
        stet__fact       fact;

        while (stet__fact_decode(&fact, &in) == STET_OK)
            n += is(&fact, arg);
    }
    return n;
}

/* Is one of these entries of the inbox damaged? */
static bool
why_is_bad_entry(const mem_run *row, uint64_t from, uint64_t upto)
{
    mem_node *node = stet__mem_tree_first(&row->inbox);

    for (; node != NULL; node = stet__mem_tree_next(node)) {
        const mem_facts *f = MEM_OF(mem_facts, node, node);

        if (f->first >= from && f->first <= upto && !fleet_facts_are_whole(f, NULL))
            return true;
    }
    return false;
}

/* The revision of the first fact that cannot be read, or takes an entry in that cannot be; 0: all can.
 * *taken: the last entry they take. */
static uint64_t
why_bad_fact(const mem_run *row, uint64_t *taken)
{
    *taken = 0;
    for (mem_node *node = stet__mem_tree_first(&row->journal); node != NULL;
         node = stet__mem_tree_next(node)) {
        const mem_facts *f = MEM_OF(mem_facts, node, node);
        stet_bytes       in = { f->data, f->len };
        stet__fact       fact;
        uint64_t         revision = f->first;

        for (; stet__fact_decode(&fact, &in) == STET_OK; revision++) {
            if (fact.kind == STET__FACT_STARTED)
                *taken = (uint64_t)fact.taken;
            if (fact.kind != STET__FACT_TAKEN)
                continue;
            if (why_is_bad_entry(row, *taken + 1, (uint64_t)fact.number))
                return revision;
            *taken = (uint64_t)fact.number;
        }
        if (!fleet_facts_are_whole(f, NULL))
            return revision;
    }
    return 0;
}

static bool
why_is_awakeable(const stet__fact *fact, const void *id)
{
    return fact->kind == STET__FACT_AWAKEABLE && fact->run.len == 16 &&
           memcmp(fact->run.data, id, 16) == 0;
}

static bool
why_is_settled(const stet__fact *fact, const void *id)
{
    return fact->kind == STET__FACT_SETTLED && fact->run.len == 16 &&
           memcmp(fact->run.data, id, 16) == 0;
}

static bool
why_is_wait(const stet__fact *fact, const void *signal)
{
    stet_bytes name = fact->topic.data != NULL ? fact->topic : fact->name;

    return fact->kind == STET__FACT_SIGNAL && fact->code == 0 && name.len == 2 &&
           memcmp(name.data, signal, 2) == 0;
}

static bool
why_is_call(const stet__fact *fact, const void *id)
{
    return fact->kind == STET__FACT_CALL && fact->run.len == 16 &&
           memcmp(fact->run.data, id, 16) == 0;
}

static bool
why_is_lost(const stet__fact *fact, const void *arg)
{
    (void)arg;
    return fact->kind == STET__FACT_LOST && (fact->flags & STET__FACT_EXECUTING) != 0;
}

/* ---- the reasons ----------------------------------------------------------------------------- */

/* What stands behind the verb in the command it recommends. */
static const char *
why_named(const why_said *said, const char *verb)
{
    size_t n = strlen(verb);

    return strncmp(said->help, verb, n) == 0 ? said->help + n : "";
}

/* NULL: it is so. */
static const char *
why_awakeable(fleet *w, const fleet_run *run, const mem_run *row, const why_said *said)
{
    const char      *name = why_named(said, "stet resolve ");
    const mem_value *value;
    stet_id          id;
    stet_bytes       in;
    stet__fact       fact;

    if (stet__id_parse(&id, STET__ID_AWAKEABLE, name) != STET_OK ||
        strstr(said->text, name) == NULL)
        return "it does not name the awakeable";
    if (why_count(&row->journal, why_is_awakeable, id.bytes) != 1)
        return "the awakeable is not the run's";
    if (why_count(&row->inbox, why_is_settled, id.bytes) != 0)
        return "the awakeable is settled, by the run's inbox";
    value = stet__mem_value(w->db, STET__SPACE_AWAKEABLE, stet__id_bytes(&id));
    if (value == NULL)
        return "there is no such awakeable";
    in = value->value.data;
    if (stet__fact_decode(&fact, &in) != STET_OK || memcmp(fact.run.data, &run->id, 16) != 0 ||
        fact.text.data != NULL || fact.value.data != NULL || fact.code != 0)
        return "the awakeable is settled, or another run's";
    for (size_t i = 0; i < w->n_awakeables; i++)
        if (strcmp(w->awakeables[i].id, name) == 0 && w->awakeables[i].acked != 0)
            return "somebody settled it, and was told so";
    return strstr(said->text, "at most until") != NULL ? "its limit has no timer" : NULL;
}

static const char *
why_signal(const fleet_run *run, const mem_run *row, const why_said *said)
{
    const char *names = why_named(said, "stet signal ");
    size_t      len = strlen(run->text), waits;
    const char *signal = names + len + 1;

    if (strncmp(names, run->text, len) != 0 || strlen(names) != len + 3 ||
        strstr(said->text, signal) == NULL)
        return "it does not name the signal";
    if ((waits = why_count(&row->journal, why_is_wait, signal)) == 0)
        return "it never waited for that signal";
    if (!run->is_retry && run->n_signals[signal[1] - '0'] >= waits)
        return "there is a signal for every wait";
    return strstr(said->text, "at most until") != NULL ? "its limit has no timer" : NULL;
}

static const char *
why_event(const fleet *w, const fleet_run *run, const why_said *said)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    if (strcmp(why_named(said, "stet emit "), "news") != 0 || strstr(said->text, "news") == NULL)
        return "it does not name the topic";
    if (strstr(said->text, "at most until") != NULL)
        return "its limit has no timer";
    while (stet__map_next(&w->marks, &at, &key, &len, &value))
        if (len == strlen("news") + 1 + sizeof run->id.bytes + 8 &&
            memcmp((const char *)key + strlen("news") + 1, run->id.bytes, sizeof run->id.bytes) ==
                0)
            return NULL;
    return "it has no mark";
}

static const char *
why_child(fleet *w, const fleet_run *run, const mem_run *row, const why_said *said)
{
    const char      *name = why_named(said, "stet why ");
    const fleet_run *child = fleet_run_named(w, name);

    if (child == NULL || strstr(said->text, name) == NULL)
        return "it does not name the child";
    if (why_count(&row->journal, why_is_call, child->id.bytes) != 1 || !child->is_called ||
        !stet__id_equal(child->parent, run->id))
        return "it did not call that run";
    return child->end != 0 || child->is_stopped ? "the child has answered" : NULL;
}

static const char *
why_lane(fleet *w, const fleet_run *run, const mem_run *row, const why_said *said)
{
    const fleet_run *holder = fleet_run_named(w, why_named(said, "stet why "));
    const mem_run   *first =
        row->row.lane != NULL ? stet__mem_lane_first(w->db, row->row.lane) : NULL;

    if (run->is_shared)
        return "it waits for no key";
    if (holder == NULL || strstr(said->text, holder->text) == NULL)
        return "it does not name the holder";
    if (first == NULL || !stet__id_equal(first->row.id, holder->id))
        return "that run does not hold the key";
    if (holder == run || holder->key != run->key || strstr(said->text, row->row.lane) == NULL)
        return "it names another key";
    return holder->end != 0 ? "the holder has ended" : NULL;
}

/* It names the fact that cannot be read; of an entry that is still to be taken in, its row has the reason. */
static const char *
why_damaged(const mem_run *row, const why_said *said)
{
    uint64_t taken, bad = why_bad_fact(row, &taken);
    char     text[64];

    (void)snprintf(text, sizeof text, "fact %" PRIu64 " is not readable", bad);
    if (bad != 0)
        return strstr(said->text, text) != NULL ? NULL : "it names another fact";
    if (row->row.status != STET_STATUS_STUCK || row->row.due_ms != STET_NEVER)
        return "it is not stuck";
    if (row->row.reason == NULL || strstr(said->text, row->row.reason) == NULL)
        return "it does not give the recorded reason";
    return why_is_bad_entry(row, taken + 1, UINT64_MAX) ? NULL : "all it has can be read";
}

/* Is what is damaged an entry that it has not come to? Then it waits as others do. */
static bool
why_is_ahead(const mem_run *row)
{
    uint64_t taken;

    return why_bad_fact(row, &taken) == 0 && row->row.status != STET_STATUS_STUCK;
}

static const char *
why_stuck(const mem_run *row, const why_said *said)
{
    char text[64];

    if (row->row.status != STET_STATUS_STUCK || row->row.due_ms != STET__HELD_MS)
        return "it is not stuck";
    if (row->row.reason == NULL || strstr(said->text, row->row.reason) == NULL)
        return "it does not give the recorded reason";
    (void)snprintf(text, sizeof text, "%d workers died while executing it", WHY_LOST_MAX);
    if (strstr(said->text, text) == NULL ||
        why_count(&row->inbox, why_is_lost, NULL) < WHY_LOST_MAX)
        return "its workers did not die so often";
    return NULL;
}

/* Without a delay at once, which is to come again where the store's clock was set back. */
static int64_t
why_begins_ms(const fleet_run *run)
{
    return run->not_before_ms > run->created_ms ? run->not_before_ms : run->created_ms;
}

/* Does the text end with the time from now to then? The clock may have moved since it was asked. */
static const char *
why_time(fleet *w, int64_t when_ms, const why_said *said)
{
    int64_t now_ms = fleet_now_ms(w);
    char    in[64], text[72];

    for (int64_t ago_ms = 0; ago_ms <= 20; ago_ms++) {
        (void)snprintf(text, sizeof text, " %s",
                       stet__time_relative(in, sizeof in, when_ms, now_ms - ago_ms));
        if (strlen(said->text) > strlen(text) &&
            strcmp(said->text + strlen(said->text) - strlen(text), text) == 0)
            return NULL;
    }
    return "it names another time";
}

static const char *
why_timer(fleet *w, const fleet_run *run, const mem_run *row, const why_said *said)
{
    for (mem_node *n = stet__mem_tree_first(&w->db->timers); n != NULL;
         n = stet__mem_tree_next(n)) {
        const mem_timer *timer = MEM_OF(mem_timer, by_time, n);

        if (stet__id_equal(timer->run, run->id) && why_time(w, timer->fire_ms, said) == NULL)
            return row->row.reason != NULL && strstr(said->text, row->row.reason) != NULL
                       ? NULL
                       : "it does not name the sleep";
    }
    return "there is no timer of that time";
}

static const char *
why_no_worker(const fleet_run *run, const mem_run *row, const why_said *said)
{
    if (!run->is_unserved)
        return "every node serves it";
    return strstr(said->text, row->row.handler) != NULL ? NULL : "it does not name the handler";
}

static const char *
why_decision(fleet *w, const fleet_run *run, const why_said *said)
{
    const mem_value *value = stet__mem_value(w->db, STET__SPACE_BOUNDARY, stet__id_bytes(&run->id));
    stet_bytes       in;
    stet__fact       mark;
    char             name[32];

    if (value == NULL)
        return "it waits for nobody";
    in = value->value.data;
    if (stet__fact_decode(&mark, &in) != STET_OK || mark.kind == STET__FACT_DECIDED)
        return "somebody has decided";
    if (strcmp(why_named(said, (mark.flags & STET__FACT_APPROVAL) != 0 ? "stet approve "
                                                                       : "stet resume "),
               run->text) != 0)
        return "it does not say how to decide";
    (void)snprintf(name, sizeof name, " %.*s", (int)mark.name.len, (const char *)mark.name.data);
    return strstr(said->text, name) != NULL ? NULL : "it names another wait";
}

static const char *
why_broken(const fleet_run *run, const mem_run *row, const why_said *said)
{
    if (row->row.status != STET_STATUS_COMPENSATION_FAILED || !run->is_broken)
        return "none of its undos failed";
    if (strcmp(why_named(said, "stet rollback "), run->text) != 0)
        return "it does not say how to try again";
    return run->broken[0] != '\0' && strstr(said->text, run->broken) != NULL
               ? NULL
               : "it does not say what failed";
}

static const char *
why_paused(const fleet_run *run, const mem_run *row, const why_said *said)
{
    if (row->row.status != STET_STATUS_PAUSED || row->row.session != 0)
        return "it is not paused";
    if (!run->is_paused)
        return "nobody paused it";
    if (run->is_damaged) /* who did it may be what cannot be read */
        return strstr(said->text, "paused") != NULL ? NULL : "it does not say so";
    return strstr(said->text, "was paused by operator") != NULL ? NULL : "it does not say by whom";
}

/* NULL: it may wait so, and it is true. */
static const char *
why_judge(fleet *w, const fleet_run *run, const why_said *said, bool is_helped)
{
    const mem_run *row = stet__mem_run(w->db, run->id);

    if (row == NULL)
        return "it is not in the store";
    if (run->is_damaged && !why_is_ahead(row))
        return strcmp(said->kind, "stuck") == 0 ? why_damaged(row, said) : "it is damaged";
    if (strcmp(said->kind, "awakeable") == 0)
        return why_awakeable(w, run, row, said);
    if (strcmp(said->kind, "signal") == 0)
        return why_signal(run, row, said);
    if (strcmp(said->kind, "event") == 0)
        return why_event(w, run, said);
    if (strcmp(said->kind, "decision") == 0)
        return why_decision(w, run, said);
    if (strcmp(said->kind, "child") == 0)
        return why_child(w, run, row, said);
    if (strcmp(said->kind, "lane") == 0)
        return why_lane(w, run, row, said);
    if (run->is_astray && strcmp(said->kind, "stuck") == 0)
        return strstr(said->text, "recorded") != NULL ? NULL : "it does not say what is recorded";
    if (is_helped && !run->is_damaged)
        return "it was helped";
    if (strcmp(said->kind, "stuck") == 0)
        return why_stuck(row, said);
    if (strcmp(said->kind, "compensation-failed") == 0)
        return why_broken(run, row, said);
    if (strcmp(said->kind, "paused") == 0)
        return why_paused(run, row, said);
    if (strcmp(said->kind, "timer") == 0)
        return run->is_idle ? why_timer(w, run, row, said) : "no timer of its is far away";
    if (strcmp(said->kind, "delay") == 0)
        return run->is_idle ? why_time(w, why_begins_ms(run), said) : "it is not delayed so long";
    if (strcmp(said->kind, "no-worker") == 0)
        return why_no_worker(run, row, said);
    return "that is no reason now";
}

/* For the test that this is able to fail: other numbers, other IDs, another handler. */
static void
why_tamper(why_said *said)
{
    for (char *at = said->text; *at != '\0'; at++)
        if (*at >= '0' && *at <= '9')
            *at = (char)('0' + ('9' - *at));
    if (strcmp(said->kind, "no-worker") == 0)
        (void)snprintf(said->text, sizeof said->text, "no living worker serves svc.run");
}

void
fleet_check_open(fleet *w, stet_engine *e, bool is_helped)
{
    for (fleet_run *run = w->first; run != NULL && !w->is_failed; run = run->next) {
        const char *wrong;
        stet_run_id id;
        why_said    said = { 0 };
        int         err;

        if (run->end != 0)
            continue;
        memcpy(id.text, run->text, sizeof id.text);
        err = stet_why(e, &id, why_on_verdict, &said);
        if (w->options.tampers == FLEET_TAMPER_WHY)
            why_tamper(&said);
        if (err != STET_OK)
            fleet_fail(w, run, "why gives %s: %s", stet_code_name(err), stet_last_error());
        else if ((wrong = why_judge(w, run, &said, is_helped)) != NULL)
            fleet_fail(w, run, "it does not end, and why says (%s) \"%s\" (%s): %s", said.kind,
                       said.text, said.help, wrong);
        else
            fleet_check_waiting(w, run, said.kind);
        fleet_trace(w, NULL, run, "does not end:", said.kind, 0, 0);
        w->stats.reasons++;
    }
}
