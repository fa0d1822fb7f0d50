/* Recovery repeated: one state of the store, several recoveries, the same must come of it.
 *
 * A state is kept at a crash or at rest, if the seed says so, and at the end always (image.c). When
 * the history is over, engines are opened on copies of it, as after a power cut that took all nodes
 * at once, and work without faults until only the outside could make anything happen:
 *
 *   plain         two nodes; not of the end, which is compared with itself
 *   again         one time in eight: the same seed, and everything must be equal, times, claims and
 *                 sessions included: nothing of an engine depends on anything but its input
 *   interrupted   another order of everything, other settings, and all nodes are killed once or
 *                 twice in the middle
 *
 * What must be equal between the state, the plain and the interrupted recovery:
 *   - at the end: the whole state, runs, facts, inboxes, values, timers, lanes. Left out: session,
 *     epoch and due_ms of runs, and the sessions, which tell who executed what how often; and runs
 *     of which a fact was damaged with their timers: a timer may find out only now.
 *   - else, of runs that had ended: the same, each run. Of runs that were open: all facts and inbox
 *     entries they had stand in front of those that came, byte by byte.
 *   - of schedules, which go on firing for a while: a run and an entry of the ledger for each time
 *     that was planned since.
 *   - and between two recoveries, of runs that are bound (fate.c): status, code of the failure, and
 *     what they recorded: commands, attempts, outcomes. Left out: times and IDs of what is new; the
 *     order of facts, because futures run at once; claims, suspensions, inbox entries taken, waits
 *     and worker deaths, which tell of executions; what was read of a key's state, because the
 *     order in which runs come to a key is chance. The sum on an account is not: deposits commute.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fleet.h"

#define RECOVER_NODES    2
#define RECOVER_LIMIT_US ((int64_t)900 * 1000000)

/* ---- images ---------------------------------------------------------------------------------- */

void
fleet_image_take(fleet *w, bool is_end)
{
    fleet_image *image = &w->images[w->n_images];

    if (w->of != NULL || w->is_failed)
        return;
    /* At rest less is open than at a crash, so more rarely. */
    if (!is_end && (w->n_images > 0 || fleet_draw(&w->moments, w->has_faults ? 4 : 8) != 0))
        return;
    if ((image->db = stet__memory_db_new(stet__platform_real())) == NULL)
        abort();
    fleet_image_copy(image->db, w->db);
    image->now_ms = fleet_now_ms(w) + w->back_ms; /* what is hours late is not waited for */
    image->is_end = is_end;
    image->is_damaged = w->damaged > 0;
    w->n_images++;
}

void
fleet_images_free(fleet *w)
{
    while (w->n_images > 0)
        stet__memory_db_free(w->images[--w->n_images].db);
}

/* ---- one recovery ---------------------------------------------------------------------------- */

static int
recover_on_finding(void *arg, const stet_finding *finding)
{
    fleet         *r = arg;
    const mem_run *row = NULL;
    stet_id        id;

    if (finding->run != NULL && stet__id_parse(&id, STET__ID_RUN, finding->run) == STET_OK)
        row = stet__mem_run(r->db, id);
    if ((row == NULL || fleet_is_readable(row)) &&
        (strncmp(finding->text, "state ", 6) != 0 || fleet_knows_writes(r)))
        fleet_fail(r, NULL, "verify: %s: %s: %s", finding->run != NULL ? finding->run : "",
                   finding->rule, finding->text);
    return 0;
}

static void
recover_interrupt(fleet *r)
{
    fleet_nap(r->server, 1000 * (int64_t)fleet_draw(&r->draws, (uint64_t)r->plan.lease_ms * 2));
    for (size_t i = 0; i < r->n_nodes; i++) {
        if (r->nodes[i].is_up)
            fleet_crash(r, &r->nodes[i]);
        r->nodes[i].up_at_us = 0;
    }
    fleet_raise(r);
}

static bool
recover_is_open(const fleet *r)
{
    for (size_t i = 0; i < r->n_nodes; i++)
        if (r->nodes[i].engine == NULL)
            return false;
    return true;
}

static void
recover_story(void *arg)
{
    fleet  *r = arg;
    int64_t until_us = stet__sim_now_us(r->sim) + RECOVER_LIMIT_US;
    int     err;

    fleet_raise(r);
    for (unsigned i = r->crashes; i > 0; i--)
        recover_interrupt(r);
    while (!recover_is_open(r))
        fleet_nap(r->server, 100000);
    if (fleet_is_held(r))
        fleet_hold_end(r->nodes[0].engine);
    /* What is stuck is tried again, and the leases of the dead end. */
    fleet_nap(r->server, 2000 * r->plan.lease_ms);
    if (fleet_schedules_go_on(r)) /* until then they fired */
        fleet_schedules_pause(r, r->nodes[0].engine);
    while (!fleet_is_quiet(r) && stet__sim_now_us(r->sim) < until_us && !r->is_failed)
        fleet_nap(r->server, 500000);
    if (!fleet_is_quiet(r))
        fleet_fail(r, NULL, "it does not come to rest");
    if (r->is_verified &&
        (err = stet_verify(r->nodes[0].engine, NULL, recover_on_finding, r)) != STET_OK)
        fleet_fail(r, NULL, "verify gives %s: %s", stet_code_name(err), stet_last_error());
    r->is_over = true;
    stet__sim_stop(r->sim);
}

static void
recover_begin(fleet *r, fleet *w, const fleet_image *image, uint64_t seed, unsigned crashes)
{
    memset(r, 0, sizeof *r);
    r->of = w;
    r->options = w->options;
    r->options.seed = seed;
    r->n_nodes = RECOVER_NODES;
    r->ops_max = w->ops_max;
    r->crashes = crashes;
    /* The state at the end was verified, and no recovery changes it (recover_check()). */
    r->is_verified = crashes > 0 && !image->is_end;
    r->plan.lease_ms = w->plan.lease_ms;
    r->plan.renew_ms = w->plan.renew_ms;
    r->plan.retention_ms = 315360000000; /* what is removed when is chance */
    stet__arena_init(&r->arena, &stet__platform_real()->alloc);
    stet__map_init(&r->runs, &stet__platform_real()->alloc);
    stet__rng_seed(&r->draws, seed);
    stet__rng_seed(&r->faults, seed + 1);
    stet__rng_seed(&r->looks, seed + 2);
    r->n_schedules = w->n_schedules;
    for (size_t i = 0; i < w->n_schedules; i++)
        memcpy(r->schedules[i].name, w->schedules[i].name, sizeof r->schedules[i].name);
    if ((r->sim = fleet_sim_get(seed)) == NULL ||
        (r->server = stet__sim_node_new(r->sim)) == NULL ||
        (r->db = stet__memory_db_new(r->server)) == NULL)
        abort();
    fleet_image_copy(r->db, image->db);
    /* Not in the same millisecond: within one the steady clock of the machine tells which write of
     * an entry is the later (expect.c), and this one begins anew, as after a boot. No machine boots
     * in a millisecond. What can happen in one is that another machine goes on, with another
     * steady clock; nodes here share theirs, so that is not looked at. */
    stet__memory_db_advance(r->db, image->now_ms + 1 - mem_now(r->db));
    for (size_t i = 0; i < r->n_nodes; i++) {
        r->nodes[i].w = r;
        r->nodes[i].index = (unsigned)i;
    }
    if (stet__sim_spawn(r->sim, r->server, recover_story, r) != STET_OK)
        abort();
}

static void
recover_end(fleet *r)
{
    fleet_sim_put(r->sim);
    stet__map_free(&r->runs);
    stet__arena_free(&r->arena);
    free(r);
}

/* For the test that all this is able to fail: what a recovery that went wrong would leave. */
static void
recover_tamper(fleet *r, const fleet_image *image)
{
    mem_node *first = stet__mem_tree_first(&r->db->runs), *facts;
    mem_node *value = stet__mem_tree_first(&r->db->values);

    while (value != NULL &&
           strcmp(MEM_OF(mem_value, node, value)->space, STET__SPACE_BASE_EMIT) == 0)
        value = stet__mem_tree_next(value);

    if (first == NULL || value == NULL)
        return;
    switch (r->of->options.tampers) {
    case FLEET_TAMPER_STATUS: MEM_OF(mem_run, by_id, first)->row.status ^= 1u; break;
    case FLEET_TAMPER_FACT:
        facts = stet__mem_tree_first(&MEM_OF(mem_run, by_id, first)->journal);
        MEM_OF(mem_facts, node, facts)->data[5] ^= 1u;
        break;
    case FLEET_TAMPER_VALUE: MEM_OF(mem_value, node, value)->value.version++; break;
    case FLEET_TAMPER_OPEN: /* of one recovery only */
        for (; first != NULL && r->crashes > 0; first = stet__mem_tree_next(first)) {
            mem_run       *run = MEM_OF(mem_run, by_id, first);
            const mem_run *before = stet__mem_run(image->db, run->row.id);

            if (before == NULL || !before->row.is_terminal)
                run->row.attempt++;
        }
        break;
    default: break;
    }
}

static fleet *
recover_once(fleet *w, const fleet_image *image, uint64_t seed, unsigned crashes)
{
    fleet *r = malloc(sizeof *r);

    if (r == NULL)
        abort();
    recover_begin(r, w, image, seed, crashes);
    fleet_here = r;
    if (!stet__sim_run(r->sim, RECOVER_LIMIT_US * 2) && !r->is_over && !r->is_failed)
        fleet_fail(r, NULL, "nothing can go on, or time is up");
    fleet_here = w;
    if (r->is_failed)
        fleet_fail(w, NULL, "recovering the state of %" PRId64 " ms: %s", image->now_ms,
                   r->failure);
    recover_tamper(r, image);
    w->stats.recoveries++;
    return r;
}

/* ---- what was recorded stands ---------------------------------------------------------------- */

/* Has it begun anew since? Then what was recorded went with its generation. */
static bool
recover_is_anew(const mem_run *before, const mem_run *after)
{
    const mem_node *first = stet__mem_tree_first(&after->journal);

    return first != NULL && MEM_OF(const mem_facts, node, first)->first > before->row.journal;
}

static void
recover_check_run(fleet *w, const mem_run *before, const mem_run *after)
{
    const fleet_run *run = fleet_run_of(w, before->row.id);

    if (after == NULL)
        fleet_fail(w, run, "a recovery loses it");
    else if (before->row.is_terminal && fleet_hash_run(before) != fleet_hash_run(after))
        fleet_fail(w, run, "it had ended, and a recovery changes what was recorded of it");
    else if (recover_is_anew(before, after))
        return;
    else if (!fleet_same_facts(&before->journal, &after->journal, before->row.journal) ||
             !fleet_same_facts(&before->inbox, &after->inbox, before->row.inbox))
        fleet_fail(w, run, "a recovery changes a fact that was recorded");
}

/* Whoever starts lets one try again that is stuck because it took another way, in vain. */
static bool
recover_is_astray(const fleet *w)
{
    for (const fleet_run *run = w->first; run != NULL; run = run->next)
        if (run->is_astray)
            return true;
    return false;
}

static void
recover_check(fleet *w, const fleet_image *image, const fleet *r)
{
    if (w->is_failed)
        return;
    for (mem_node *n = stet__mem_tree_first(&image->db->runs); n != NULL;
         n = stet__mem_tree_next(n)) {
        const mem_run *run = MEM_OF(mem_run, by_id, n);

        recover_check_run(w, run, stet__mem_run(r->db, run->row.id));
    }
    fleet_check_replanned(w, image->db, r->db);
    if (image->is_end && !w->is_failed && !recover_is_astray(w) &&
        fleet_hash_db(image->db, w) != fleet_hash_db(r->db, w))
        fleet_fail(w, NULL, "everything was over, and a recovery changes the state");
}

/* ---- bound runs come to the same end --------------------------------------------------------- */

static uint64_t
recover_mix(uint64_t a, uint64_t b, uint64_t h)
{
    uint64_t numbers[2] = { a, b };

    return stet__hash64(numbers, sizeof numbers, h);
}

/* The outcome of each operation; of those whose value is the program's own, the value as well. */
static uint64_t
recover_result(stet_bytes value)
{
    uint64_t   h = 1;
    fleet_seen seen;

    for (size_t at = 0; at + sizeof seen <= value.len; at += sizeof seen) {
        memcpy(&seen, (const char *)value.data + at, sizeof seen);
        if (seen.kind != FLEET_OP_STEP && seen.kind != FLEET_OP_VERSION)
            seen.value = 0;
        h = recover_mix((uint64_t)seen.code << 8 | seen.kind, seen.value, h);
    }
    return h;
}

/* 0: it tells of an execution. */
static uint64_t
recover_fact(const stet__fact *fact)
{
    uint64_t h = recover_mix((uint64_t)fact->kind, (uint64_t)fact->occurrence, 1);

    if (fact->name.data != NULL)
        h = stet__hash64(fact->name.data, fact->name.len, h);
    switch (fact->kind) {
    case STET__FACT_STEP:
        if (fact->name.len > 0 && ((const char *)fact->name.data)[0] == 'l')
            return h; /* whom to look at is chance */
        h = recover_mix((uint64_t)fact->code, fact->value.len, h);
        return fact->value.data != NULL ? stet__hash64(fact->value.data, fact->value.len, h) : h;
    case STET__FACT_STEP_RETRY:
    case STET__FACT_ATTEMPT_FAILED:
        return recover_mix((uint64_t)fact->code, (uint64_t)fact->attempt, h);
    case STET__FACT_VERSION: return recover_mix((uint64_t)fact->number, 0, h);
    case STET__FACT_COMPLETED: return recover_mix(recover_result(fact->value), 0, h);
    case STET__FACT_FAILED:
    case STET__FACT_CANCELLED:
    case STET__FACT_EXPIRED: return recover_mix((uint64_t)fact->code, 0, h);
    case STET__FACT_SLEEP:
    case STET__FACT_CALL:
    case STET__FACT_SEND:
    case STET__FACT_AWAKEABLE:
    case STET__FACT_SIGNAL:
    case STET__FACT_SIGNAL_SEND:
    case STET__FACT_NOTE:
    case STET__FACT_SWITCH:
    case STET__FACT_ONCE:
    case STET__FACT_TOPIC:
    case STET__FACT_BOUNDARY:
    case STET__FACT_STATE_GET:
    case STET__FACT_STATE_SET:
    case STET__FACT_STATE_CLEAR:
    case STET__FACT_NOW: return h;
    default: return 0;
    }
}

static uint64_t
recover_digest(const mem_run *run)
{
    uint64_t sum = recover_mix(run->row.status, run->row.attempt, 1);

    for (mem_node *n = stet__mem_tree_first(&run->journal); n != NULL; n = stet__mem_tree_next(n)) {
        const mem_facts *f = MEM_OF(mem_facts, node, n);
        stet_bytes       in = { f->data, f->len };
        stet__fact       fact;

        while (stet__fact_decode(&fact, &in) == STET_OK)
            sum += recover_fact(&fact);
    }
    return sum;
}

typedef struct recover_name {
    uint64_t          lineage;
    const fleet_fate *fate;
} recover_name;

static int
recover_by_lineage(const void *a, const void *b)
{
    uint64_t x = ((const recover_name *)a)->lineage, y = ((const recover_name *)b)->lineage;

    return (x > y) - (x < y);
}

static recover_name *
recover_names(fleet_fates *all)
{
    recover_name *names = calloc(all->n + 1, sizeof *names);

    if (names == NULL)
        abort();
    for (size_t i = 0; i < all->n; i++)
        names[i] = (recover_name){ fleet_fate_lineage(all, &all->fates[i]), &all->fates[i] };
    qsort(names, all->n, sizeof *names, recover_by_lineage);
    return names;
}

static void
recover_compare_run(fleet *w, const fleet_fate *a, const fleet_fate *b)
{
    const fleet_fate *known = a != NULL ? a : b;
    const fleet_run  *run = fleet_run_of(w, known->is_new ? known->parent : known->run->row.id);
    const char       *what = known->is_new ? "a run it starts" : "it";

    w->stats.left += known->is_new || !known->run->row.is_terminal;
    if (known->is_chance || (b != NULL && b->is_chance))
        return;
    if (a == NULL || b == NULL)
        fleet_fail(w, run, "%s is there after one recovery, and not after another", what);
    else if (recover_digest(a->now) != recover_digest(b->now))
        fleet_fail(w, run,
                   "%s is %s (%" PRIu64 " facts) after one recovery, %s (%" PRIu64
                   " facts) after another",
                   what, stet_status_name((stet_status)a->now->row.status), a->now->row.journal,
                   stet_status_name((stet_status)b->now->row.status), b->now->row.journal);
    w->stats.recovered += known->is_new || !known->run->row.is_terminal;
}

static void
recover_compare_runs(fleet *w, fleet_fates *a, fleet_fates *b)
{
    recover_name *in_a = recover_names(a), *in_b = recover_names(b);
    size_t        i = 0, k = 0;

    while (i < a->n || k < b->n) {
        bool has_a = i < a->n && (k == b->n || in_a[i].lineage <= in_b[k].lineage);
        bool has_b = k < b->n && (i == a->n || in_b[k].lineage <= in_a[i].lineage);

        recover_compare_run(w, has_a ? in_a[i].fate : NULL, has_b ? in_b[k].fate : NULL);
        i += has_a;
        k += has_b;
    }
    free(in_a);
    free(in_b);
}

static void
recover_compare_keys(fleet *w, const fleet *a, const fleet *b, unsigned chance)
{
    for (int key = 0; key < FLEET_KEYS; key++) {
        char             text[32];
        int              n = snprintf(text, sizeof text, "obj%ck%d%caccount", 0, key, 0);
        stet_bytes       name = { text, (size_t)n };
        const mem_value *x = stet__mem_value(a->db, STET__SPACE_STATE, name);
        const mem_value *y = stet__mem_value(b->db, STET__SPACE_STATE, name);

        if ((chance & 1u << key) != 0 || (x == NULL && y == NULL))
            continue;
        if (x == NULL || y == NULL || x->value.data.len != y->value.data.len ||
            memcmp(x->value.data.data, y->value.data.data, x->value.data.len) != 0)
            fleet_fail(w, NULL, "key %d: another account after another recovery", key);
        w->stats.checks++;
    }
}

static void
recover_compare(fleet *w, const fleet_image *image, const fleet *a, const fleet *b)
{
    fleet_fates of_a, of_b;
    unsigned    keys = 0;

    if (w->is_failed || image->is_damaged || recover_is_astray(w))
        return;
    for (int i = 0;; i++) { /* what is chance in one is chance */
        fleet_fates_make(&of_a, image->db, a->db, w->ops_max, keys);
        fleet_fates_make(&of_b, image->db, b->db, w->ops_max, of_a.keys);
        if (of_a.keys == of_b.keys)
            break;
        keys = of_b.keys;
        fleet_fates_free(&of_a);
        fleet_fates_free(&of_b);
    }
    recover_compare_runs(w, &of_a, &of_b);
    recover_compare_keys(w, a, b, of_b.keys);
    fleet_fates_free(&of_a);
    fleet_fates_free(&of_b);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The end needs one recovery: it is compared with what was there before. */
static void
recover_from_end(fleet *w, const fleet_image *image)
{
    fleet *r = recover_once(w, image, stet__rng_next(&w->moments), 1);

    recover_check(w, image, r);
    recover_end(r);
}

static void
recover_from(fleet *w, const fleet_image *image)
{
    uint64_t seed = stet__rng_next(&w->moments);
    unsigned crashes = 1 + (unsigned)fleet_draw(&w->moments, 2);
    bool     is_twice = fleet_draw(&w->moments, 8) == 0;
    fleet   *plain = recover_once(w, image, seed, 0), *other;

    recover_check(w, image, plain);
    if (!w->is_failed) {
        other = recover_once(w, image, seed + 1, crashes);
        recover_check(w, image, other);
        recover_compare(w, image, plain, other);
        recover_end(other);
    }
    if (!w->is_failed && is_twice) {
        other = recover_once(w, image, seed, 0);
        if (!w->is_failed && fleet_hash_db(plain->db, NULL) != fleet_hash_db(other->db, NULL))
            fleet_fail(w, NULL, "one seed, one state, two recoveries: two states");
        recover_end(other);
    }
    recover_end(plain);
}

void
fleet_recover(fleet *w)
{
    for (size_t i = 0; i < w->n_images && !w->is_failed; i++)
        if (w->images[i].is_end)
            recover_from_end(w, &w->images[i]);
        else
            recover_from(w, &w->images[i]);
}
