/* See store_life.h. */
#include "store_life.h"

#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "test.h"

enum { LIFE_RUNS = 3 };

static const char *const life_handlers[] = { "h.a", "h.b" };

static stet_id
life_id(const store_life *l, uint32_t i)
{
    uint8_t random[10] = { 0 };

    random[9] = (uint8_t)i;
    return stet__id_make((int64_t)1700000000000 + l->n, random);
}

/* ---- again until it works -------------------------------------------------------------------- */

static bool
life_is_well(store_life *l, int line, int err, const char *what)
{
    if (err == STET_OK)
        return true;
    l->failures++;
    if ((l->is_expected != NULL && !l->is_expected(err)) || fixture_mono_ms() > l->until_ms)
        test_fail(__FILE__, line, "%s: %s: %s: %s", l->where, what, stet_code_name(err),
                  stet_last_error());
    if (l->s != NULL && err == STET_EPOISONED)
        (void)l->s->ops->reopen(l->s);
    fixture_breathe();
    return false;
}

#define AGAIN(l, call)                                                                             \
    do {                                                                                           \
    } while (!life_is_well(l, __LINE__, call, #call))

static void
life_number(store_life *l, stet_unit *units, size_t n)
{
    for (size_t i = 0; i < n; i++)
        units[i].seq = ++l->seq;
}

/* A unit the store would not have, because of what was answered to it, is decided again. So are
 * all after a failure that says that nothing was done: under other numbers, so that a store that
 * did it nevertheless does it twice. */
static void
life_commit(store_life *l, stet_unit *units, size_t n)
{
    stet_outcome outs[LIFE_RUNS] = { { 0 } };
    bool         is_done = false;
    int          err;

    CHECK(n <= LIFE_RUNS);
    while (!is_done) {
        life_number(l, units, n);
        while (!life_is_well(l, __LINE__, err = l->s->ops->commit(l->s, units, n, outs), "commit"))
            if (err != STET_EUNCERTAIN && err != STET_EPOISONED)
                life_number(l, units, n);
        is_done = true;
        for (size_t i = 0; i < n; i++) {
            stet__free(l->s->alloc, outs[i].grants);
            is_done = is_done && (outs[i].result == STET_OK || outs[i].result == STET_ECONFLICT);
        }
        if (!is_done)
            (void)life_is_well(l, __LINE__, STET_EUNCERTAIN, "a unit was refused");
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Runs with all a run can have; the first is claimed. */
static void
life_make(store_life *l)
{
    stet_claimer claimer = { l->session, 2, life_handlers, 1 };
    stet_run_row rows[LIFE_RUNS];
    stet_op      ops[LIFE_RUNS][8];
    stet_unit    units[LIFE_RUNS];
    char         lane[32], key[32];

    (void)snprintf(lane, sizeof lane, "lane %u", (unsigned)l->n);
    (void)snprintf(key, sizeof key, "key %u", (unsigned)l->n);
    memset(ops, 0, sizeof ops);
    for (uint32_t i = 0; i < LIFE_RUNS; i++) {
        rows[i] = (stet_run_row){ .id = life_id(l, i),
                                  .handler = life_handlers[i % 2],
                                  .key = i > 0 ? "k" : NULL,
                                  .status = 1,
                                  .group = "g",
                                  .reason = i > 0 ? "waits" : NULL,
                                  .extra = stet_text("extra"),
                                  .due_ms = i == 1 ? 5 : STET_NEVER,
                                  .created_ms = 1700000000000,
                                  .ended_ms = STET_NEVER };
        ops[i][0] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &rows[i], .run = rows[i].id,
                               .claimer = i == 0 ? &claimer : NULL };
        ops[i][1] = (stet_op){ .kind = STET_OP_FACTS, .run = rows[i].id, .number = 1, .count = 2,
                               .data = stet_text("facts") };
        ops[i][2] = (stet_op){ .kind = STET_OP_INBOX, .run = rows[i].id,
                               .data = stet_text("letter") };
        ops[i][3] = (stet_op){ .kind = STET_OP_TIMER_PUT, .run = rows[i].id, .number = 7,
                               .fire_ms = 1000 + i };
        ops[i][4] = (stet_op){ .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text(key),
                               .data = stet_text("v"), .run = rows[i].id, .number = 1 };
        ops[i][5] = (stet_op){ .kind = STET_OP_VALUE_PUT, .space = "base.s", .key = stet_text(key),
                               .data = stet_text("b"), .run = rows[i].id, .number = 1 };
        ops[i][6] = (stet_op){ .kind = STET_OP_LANE_ENTER, .run = rows[i].id, .lane = lane,
                               .status = 1 };
        units[i] = (stet_unit){ .ops = ops[i], .n_ops = 7 };
    }
    life_commit(l, units, LIFE_RUNS);
}

/* Nothing but these refuses it: what is applied twice is seen. */
static void
life_append(store_life *l)
{
    char      key[32];
    stet_op   ops[] = { { .kind = STET_OP_VALUE_PUT, .space = "n", .data = stet_text("v") },
                        { .kind = STET_OP_INBOX, .run = life_id(l, 1),
                          .data = stet_text("second letter") } };
    stet_unit unit = { .ops = ops, .n_ops = 2 };

    (void)snprintf(key, sizeof key, "key %u", (unsigned)l->n);
    ops[0].key = stet_text(key);
    life_commit(l, &unit, 1);
}

/* The last goes as retention would have it; one more is claimed. */
static void
life_end(store_life *l)
{
    stet_claimer claimer = { l->session, 2, life_handlers, 2 };
    stet_run_row row = { .id = life_id(l, 2), .status = 9, .is_terminal = 1, .ended_ms = 5 };
    stet_op      ops[] = {
        { .kind = STET_OP_LANE_LEAVE, .run = row.id, .status = 1 },
        { .kind = STET_OP_RUN_SET, .row = &row, .run = row.id, .mask = STET_RUN_STATUS },
        { .kind = STET_OP_RUN_DEL, .run = row.id },
        { .kind = STET_OP_CLAIM_DUE, .count = 2, .claimer = &claimer, .status = 1 },
    };
    stet_cond cond = { .kind = STET_COND_JOURNAL, .run = row.id, .number = 2 };
    stet_unit unit = { .conds = &cond, .n_conds = 1, .ops = ops, .n_ops = 4 };

    life_commit(l, &unit, 1);
}

static void
life_transaction(store_life *l)
{
    char         key[32] = "";
    stet_op      op = { .kind = STET_OP_VALUE_PUT, .space = "t", .data = stet_text("v") };
    stet_unit    unit = { .seq = 1, .ops = &op, .n_ops = 1 };
    stet_outcome out = { 0 };
    stet_tx     *tx;
    int          err;

    if (l->s->ops->tx_begin == NULL)
        return;
    (void)snprintf(key, sizeof key, "key %u", (unsigned)l->n);
    op.key = stet_text(key);
    AGAIN(l, l->s->ops->tx_begin(l->s, 10000, &tx));
    l->s->ops->tx_rollback(l->s, tx);
    do {
        AGAIN(l, l->s->ops->tx_begin(l->s, 10000, &tx));
        err = l->s->ops->tx_commit(l->s, tx, &unit, &out);
        stet__free(l->s->alloc, out.grants);
        l->open_ends += err == STET_EUNCERTAIN || err == STET_EPOISONED;
    } while (!life_is_well(l, __LINE__, err == STET_OK ? out.result : err, "a transaction"));
}

/* ---- reading --------------------------------------------------------------------------------- */

static int
on_run(void *arg, const stet_run_row *row)
{
    (void)row;
    ++*(int *)arg;
    return STET_OK;
}

static int
on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    (void)first, (void)count, (void)facts;
    ++*(int *)arg;
    return STET_OK;
}

static int
on_timer(void *arg, const stet_timer *timer)
{
    (void)timer;
    ++*(int *)arg;
    return STET_OK;
}

static int
on_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key, (void)value;
    ++*(int *)arg;
    return STET_OK;
}

static int
on_lane(void *arg, stet_id run)
{
    (void)run;
    ++*(int *)arg;
    return STET_OK;
}

static int
on_session(void *arg, const stet_session_row *row)
{
    (void)row;
    ++*(int *)arg;
    return STET_OK;
}

static int
on_sentence(void *arg, const char *sentence)
{
    (void)sentence;
    ++*(int *)arg;
    return STET_OK;
}

static void
on_hint(void *arg)
{
    (void)arg;
}

/* What is not there because of a wrong answer is asked for again, too. */
static int
life_value(store_life *l, const char *space)
{
    char       key[32];
    stet_value value;
    int        err;

    (void)snprintf(key, sizeof key, "key %u", (unsigned)l->n);
    if ((err = l->s->ops->value(l->s, space, stet_text(key), &value)) == STET_OK)
        stet__free(l->s->alloc, (void *)(uintptr_t)value.data.data);
    return err;
}

static void
life_look(store_life *l)
{
    const stet_store_ops *ops = l->s->ops;
    stet_run_query newest = { .limit = 2 }, oldest = { .limit = 100, .oldest_first = true },
                   own = { .limit = 100, .session = l->session, .handler = "h.", .status_mask = 6 },
                   lost = { .limit = 100, .is_lost = true };
    stet_bytes     first = stet_text("k");
    char           lane[32];
    int64_t        next;
    int            n = 0;

    (void)snprintf(lane, sizeof lane, "lane %u", (unsigned)l->n);
    AGAIN(l, ops->run(l->s, life_id(l, 0), on_run, &n));
    AGAIN(l, ops->runs(l->s, &newest, on_run, &n));
    AGAIN(l, ops->runs(l->s, &oldest, on_run, &n));
    AGAIN(l, ops->runs(l->s, &own, on_run, &n));
    AGAIN(l, ops->runs(l->s, &lost, on_run, &n));
    AGAIN(l, ops->journal(l->s, life_id(l, 0), 1, 9, on_facts, &n));
    AGAIN(l, ops->inbox(l->s, life_id(l, 0), 1, 9, on_facts, &n));
    AGAIN(l, ops->timers(l->s, 1001, 9, on_timer, &n, &next));
    AGAIN(l, ops->timers_of(l->s, life_id(l, 0), on_timer, &n));
    AGAIN(l, life_value(l, "s"));
    AGAIN(l, life_value(l, "base.s"));
    AGAIN(l, ops->values(l->s, "s", first, NULL, 9, on_value, &n));
    AGAIN(l, ops->values(l->s, "base.s", first, &first, 9, on_value, &n));
    AGAIN(l, ops->lane(l->s, lane, 9, on_lane, &n));
    AGAIN(l, ops->due(l->s, life_handlers, 2, &next));
    AGAIN(l, ops->ping(l->s));
    AGAIN(l, ops->sessions(l->s, on_session, &n));
    if (ops->doctor != NULL)
        AGAIN(l, ops->doctor(l->s, on_sentence, &n));
}

/* A second session, which ends; its crumbs are asked for. */
static int
life_crumbs(store_life *l, uint64_t *session)
{
    stet_crumb *crumbs;
    size_t      n;
    int         err;

    AGAIN(l, l->s->ops->session_open(l->s, session, life_id(l, 8), 600000, stet_text("i")));
    if (l->s->ops->crumbs(l->s, *session, 3) == NULL)
        return STET_ENOMEM;
    AGAIN(l, l->s->ops->session_close(l->s, *session));
    err = l->s->ops->crumbs_of(l->s, *session, &crumbs, &n);
    stet__free(l->s->alloc, crumbs);
    return err == STET_ENOTFOUND ? STET_OK : err;
}

/* A session the store does not know was made up by a wrong answer. */
static int
life_renew(store_life *l)
{
    int err = l->s->ops->session_renew(l->s, l->session, 600000);

    if (err == STET_EFENCED)
        AGAIN(l, l->s->ops->session_open(l->s, &l->session, life_id(l, 9), 600000, stet_text("i")));
    return err;
}

/* Behind a pooler, or what looks like one, there are no hints. */
static int
life_watch(store_life *l)
{
    int err = l->s->ops->watch(l->s, on_hint, NULL);

    return err == STET_ESTATE ? STET_OK : err;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void
life_check_value(const store_life *l, stet_store *s, const char *space, int least, int most)
{
    stet_value value;
    char       key[32];

    (void)snprintf(key, sizeof key, "key %u", (unsigned)l->n);
    CHECK_OK(s->ops->value(s, space, stet_text(key), &value));
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    if (value.version < (uint64_t)least || value.version > (uint64_t)most)
        test_fail(__FILE__, __LINE__, "%s: the value in %s has version %llu, expected %d to %d",
                  l->where, space, (unsigned long long)value.version, least, most);
}

/* What the clean handle sees: each unit was applied, and once; a transaction whose end is not known
 * may have been. */
static void
life_check(store_life *l)
{
    stet_store *s;
    int         runs = 0, letters = 0;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), l->clean != NULL ? l->clean : l->url));
    life_check_value(l, s, "s", LIFE_RUNS, LIFE_RUNS);
    life_check_value(l, s, "n", 1, 1);
    if (s->ops->tx_begin != NULL)
        life_check_value(l, s, "t", 1, 1 + l->open_ends);
    CHECK_OK(s->ops->inbox(s, life_id(l, 1), 1, 9, on_facts, &letters));
    if (letters != 2)
        test_fail(__FILE__, __LINE__, "%s: %d letters, expected 2", l->where, letters);
    CHECK_OK(s->ops->run(s, life_id(l, 0), on_run, &runs));
    CHECK_OK(s->ops->run(s, life_id(l, 1), on_run, &runs));
    CHECK_CODE(s->ops->run(s, life_id(l, 2), on_run, &runs), STET_ENOTFOUND);
    stet__store_close(s);
}

void
store_life_live(store_life *l)
{
    uint64_t other;

    l->until_ms = fixture_mono_ms() + fixture_patience_ms();
    l->s = NULL;
    l->seq = 0;
    l->failures = 0;
    l->open_ends = 0;
    AGAIN(l, stet__store_open(&l->s, l->platform, l->url));
    AGAIN(l, l->s->ops->session_open(l->s, &l->session, life_id(l, 9), 600000, stet_text("i")));
    if (l->s->ops->watch != NULL)
        AGAIN(l, life_watch(l));
    life_make(l);
    life_append(l);
    AGAIN(l, life_renew(l));
    life_look(l);
    life_transaction(l);
    AGAIN(l, life_crumbs(l, &other));
    AGAIN(l, l->s->ops->maintain(l->s));
    life_end(l);
    if (l->s->ops->watch != NULL)
        l->s->ops->unwatch(l->s);
    AGAIN(l, l->s->ops->session_close(l->s, l->session));
    stet__store_close(l->s);
    l->s = NULL;
    if (l->calm != NULL)
        l->calm();
    life_check(l);
}
