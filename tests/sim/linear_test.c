/* The search for an order: histories that have one, and histories that have none. A check that
 * could not say no would prove nothing about the fleet. */
#include "fleet/fleet.h"
#include "test.h"

/* Deposits: reads how many writes there were (or does not say), adds one and an amount. An amount
 * of 0: only reads. */
typedef struct linear_deposit {
    int64_t  read; /* -1: does not say */
    uint64_t amount;
} linear_deposit;

static size_t
linear_step(void *arg, const void *what, const fleet_linear_state *from, fleet_linear_state *next,
            bool *is_cut)
{
    const linear_deposit *d = what;

    (void)arg;
    (void)is_cut;
    if (d->read >= 0 && (uint64_t)d->read != from->writes)
        return 0;
    next[0] = *from;
    next[0].writes += d->amount > 0;
    next[0].sum += d->amount;
    return 1;
}

static fleet_linear_op
linear_op(int64_t asked_us, int64_t answered_us, const linear_deposit *d)
{
    return (fleet_linear_op){ .asked_us = asked_us,
                              .answered_us = answered_us,
                              .writes_max = d->read >= 0 ? (uint64_t)d->read : UINT64_MAX,
                              .is_read = d->amount == 0,
                              .what = d };
}

static fleet_linear
linear_check(const fleet_linear_op *ops, size_t n)
{
    return fleet_linear_check(ops, n, &(fleet_linear_state){ 0 }, linear_step, NULL, 1000);
}

#define LINEAR(...)                                                                                \
    linear_check((const fleet_linear_op[]){ __VA_ARGS__ },                                         \
                 sizeof((const fleet_linear_op[]){ __VA_ARGS__ }) / sizeof(fleet_linear_op))
#define D(read, amount) (&(const linear_deposit){ (read), (amount) })

TEST(C6_a_history_with_an_order_has_one)
{
    CHECK_INT(linear_check(NULL, 0), FLEET_LINEAR_YES);
    CHECK_INT(LINEAR(linear_op(1, 2, D(0, 5)), linear_op(3, 4, D(1, 5)), linear_op(5, 6, D(2, 0))),
              FLEET_LINEAR_YES);
    /* At the same time: the second came first. */
    CHECK_INT(LINEAR(linear_op(1, 9, D(1, 5)), linear_op(2, 8, D(0, 5))), FLEET_LINEAR_YES);
    /* A read beside a write may be before or after it. */
    CHECK_INT(LINEAR(linear_op(1, 9, D(0, 5)), linear_op(2, 3, D(0, 0))), FLEET_LINEAR_YES);
    CHECK_INT(LINEAR(linear_op(1, 9, D(0, 5)), linear_op(2, 3, D(1, 0))), FLEET_LINEAR_YES);
}

TEST(C6_a_history_without_an_order_is_found)
{
    /* A lost update: both read nothing. */
    CHECK_INT(LINEAR(linear_op(1, 9, D(0, 5)), linear_op(2, 8, D(0, 5))), FLEET_LINEAR_NO);
    /* A stale read: asked for after the write was answered. */
    CHECK_INT(LINEAR(linear_op(1, 2, D(0, 5)), linear_op(3, 4, D(0, 0))), FLEET_LINEAR_NO);
    /* A read of what was never written. */
    CHECK_INT(LINEAR(linear_op(1, 2, D(0, 5)), linear_op(3, 4, D(2, 0))), FLEET_LINEAR_NO);
    /* An order there is, but not in real time. */
    CHECK_INT(LINEAR(linear_op(1, 2, D(1, 5)), linear_op(3, 4, D(0, 5))), FLEET_LINEAR_NO);
    /* Two reads beside one write: what was seen once cannot be unseen. */
    CHECK_INT(LINEAR(linear_op(1, 9, D(0, 5)), linear_op(2, 3, D(1, 0)), linear_op(4, 5, D(0, 0))),
              FLEET_LINEAR_NO);
}

TEST(C6_what_was_not_answered_may_have_happened_or_not)
{
    const linear_deposit write = { -1, 5 };

    CHECK_INT(LINEAR(linear_op(1, INT64_MAX, &write), linear_op(3, 4, D(0, 0))), FLEET_LINEAR_YES);
    CHECK_INT(LINEAR(linear_op(1, INT64_MAX, &write), linear_op(3, 4, D(1, 0))), FLEET_LINEAR_YES);
    CHECK_INT(
        LINEAR(linear_op(1, INT64_MAX, &write), linear_op(3, 4, D(1, 0)), linear_op(5, 6, D(0, 0))),
        FLEET_LINEAR_NO);
    /* Not before it was asked for. */
    CHECK_INT(LINEAR(linear_op(5, INT64_MAX, &write), linear_op(3, 4, D(1, 0))), FLEET_LINEAR_NO);
    /* Once. */
    CHECK_INT(LINEAR(linear_op(1, INT64_MAX, &write), linear_op(3, 4, D(2, 0))), FLEET_LINEAR_NO);
}

TEST(C6_a_search_that_gives_up_says_so)
{
    const linear_deposit  write = { -1, 5 }, read = { 9, 0 };
    const fleet_linear_op ops[] = { linear_op(1, INT64_MAX, &write), linear_op(1, 9, &read) };

    CHECK_INT(fleet_linear_check(ops, 2, &(fleet_linear_state){ 0 }, linear_step, NULL, 1),
              FLEET_LINEAR_UNDECIDED);
    CHECK_INT(linear_check(ops, 2), FLEET_LINEAR_NO);
}

/* ---- histories from a seed ------------------------------------------------------------------- */

enum { WILD_MAX = 1000 };

/* Reads or writes a scribble, then makes deposits of one amount, any number of them between `least`
 * and `most`. If nobody knows where it came, and that may be none, it may have done nothing. */
typedef struct wild_op {
    bool     is_placed;
    uint64_t writes, sum; /* what it read, if somebody knows */
    uint64_t least, most, amount;
    enum { WILD_NEITHER, WILD_READS, WILD_WRITES } scribbles;
    uint64_t scribble;
} wild_op;

typedef struct wild_history {
    wild_op         what[WILD_MAX];
    fleet_linear_op ops[WILD_MAX];
    size_t          n;
} wild_history;

static size_t
wild_step(void *arg, const void *what, const fleet_linear_state *from, fleet_linear_state *next,
          bool *is_cut)
{
    const wild_op     *op = what;
    fleet_linear_state s = *from;
    size_t             n = 0;

    (void)arg;
    (void)is_cut;
    if (!op->is_placed && op->least == 0)
        next[n++] = s;
    if ((op->is_placed && (op->writes != s.writes || op->sum != s.sum)) ||
        (op->scribbles == WILD_READS && op->scribble != s.scribble))
        return n;
    if (op->scribbles == WILD_WRITES)
        s.scribble = op->scribble;
    for (uint64_t k = op->least; k <= op->most; k++) {
        next[n] = s;
        next[n].writes += k;
        next[n++].sum += k * op->amount;
    }
    return n;
}

/* The definition, and nothing that makes it fast. */
static bool
wild_has_order(const wild_history *h, uint64_t done, fleet_linear_state state)
{
    fleet_linear_state next[FLEET_LINEAR_NEXT_MAX];
    bool               is_over = true, is_cut = false;

    for (size_t i = 0; i < h->n; i++)
        is_over = is_over && ((done >> i & 1u) != 0 || h->ops[i].answered_us == INT64_MAX);
    if (is_over)
        return true;
    for (size_t i = 0; i < h->n; i++) {
        bool   is_next = (done >> i & 1u) == 0;
        size_t n;

        for (size_t k = 0; k < h->n; k++)
            is_next =
                is_next && ((done >> k & 1u) != 0 || h->ops[k].answered_us >= h->ops[i].asked_us);
        n = is_next ? wild_step(NULL, &h->what[i], &state, next, &is_cut) : 0;
        for (size_t k = 0; k < n; k++)
            if (wild_has_order(h, done | (uint64_t)1 << i, next[k]))
                return true;
    }
    return false;
}

/* What a caller can say of it beforehand; if it is bare, nothing. */
static void
wild_describe(wild_history *h, bool is_bare)
{
    for (size_t i = 0; i < h->n; i++) {
        const wild_op   *w = &h->what[i];
        fleet_linear_op *op = &h->ops[i];

        op->what = w;
        op->writes_max = w->is_placed && !is_bare ? w->writes : UINT64_MAX;
        op->is_exact = w->is_placed && !is_bare;
        op->is_read = !is_bare && w->most == 0 && w->scribbles != WILD_WRITES;
        op->is_optional = !is_bare && !w->is_placed && w->least == 0;
        op->sum = w->sum;
        op->adds_min = w->least;
        op->adds_max = w->most;
        op->adds_sum = w->most * w->amount;
    }
}

/* Operations one after another, each within its time; of some nobody knows how they ended. */
static void
wild_draw(wild_history *h, stet__rng *r, size_t n, uint64_t amounts, int64_t span_us)
{
    fleet_linear_state s = { 0 };

    *h = (wild_history){ .n = n };
    for (size_t i = 0; i < n; i++) {
        wild_op         *w = &h->what[i];
        fleet_linear_op *op = &h->ops[i];
        int64_t          at_us = (int64_t)i * 10 + 1000;
        bool             is_told;
        uint64_t         k;

        op->asked_us = at_us - (int64_t)fleet_draw(r, (uint64_t)span_us);
        op->answered_us = at_us + (int64_t)fleet_draw(r, (uint64_t)span_us);
        op->hint = i;
        is_told = fleet_draw(r, 4) != 0;
        w->is_placed = is_told || fleet_draw(r, 3) == 0;
        w->writes = s.writes;
        w->sum = s.sum;
        w->amount = 1 + fleet_draw(r, amounts);
        w->most = fleet_draw(r, 3);
        k = w->least = is_told ? w->most : fleet_draw(r, w->most + 1);
        if (!is_told)
            k += fleet_draw(r, w->most - w->least + 1);
        if (fleet_draw(r, 3) == 0) {
            w->scribbles = fleet_draw(r, 2) == 0 ? WILD_READS : WILD_WRITES;
            w->scribble = w->scribbles == WILD_READS ? s.scribble : 1 + fleet_draw(r, amounts);
        }
        if (!is_told && fleet_draw(r, 2) == 0) {
            op->answered_us = INT64_MAX;
            if (fleet_draw(r, 2) == 0)
                continue; /* it never happened */
        }
        s.writes += k;
        s.sum += k * w->amount;
        if (w->scribbles == WILD_WRITES)
            s.scribble = w->scribble;
    }
}

static void
wild_distort(wild_history *h, stet__rng *r)
{
    size_t   i = (size_t)fleet_draw(r, h->n);
    wild_op *w = &h->what[i];
    int64_t  earlier_us = h->ops[i].asked_us - (int64_t)fleet_draw(r, 40);

    switch (fleet_draw(r, 6)) {
    case 0: w->writes++; break;
    case 1: w->writes -= w->writes > 0; break;
    case 2: w->sum++; break;
    case 3: w->scribble = fleet_draw(r, 4); break;
    case 4: h->ops[i].answered_us = h->ops[i].asked_us; break;
    default: h->ops[i].asked_us = h->ops[i].answered_us = earlier_us; break;
    }
}

/* In any order, and with hints that are right or not. */
static void
wild_shuffle(wild_history *h, stet__rng *r, bool has_hints)
{
    for (size_t i = h->n; i-- > 1;) {
        size_t          k = (size_t)fleet_draw(r, i + 1);
        wild_op         w = h->what[i];
        fleet_linear_op op = h->ops[i];

        h->what[i] = h->what[k];
        h->what[k] = w;
        h->ops[i] = h->ops[k];
        h->ops[k] = op;
    }
    for (size_t i = 0; i < h->n && !has_hints; i++)
        h->ops[i].hint = fleet_draw(r, h->n);
}

static fleet_linear
wild_check(wild_history *h, bool is_bare)
{
    wild_describe(h, is_bare);
    return fleet_linear_check(h->ops, h->n, &(fleet_linear_state){ 0 }, wild_step, NULL, 200000);
}

TEST_LIMIT(C6_small_histories_are_judged_as_by_the_definition, 60)
{
    static wild_history h;
    stet__rng           r;
    size_t              found[2] = { 0, 0 };

    stet__rng_seed(&r, 7);
    for (int i = 0; i < 100000; i++) {
        fleet_linear want;

        wild_draw(&h, &r, 1 + (size_t)fleet_draw(&r, 6), 3, 40);
        for (uint64_t k = fleet_draw(&r, 3); k > 0; k--)
            wild_distort(&h, &r);
        wild_shuffle(&h, &r, fleet_draw(&r, 2) == 0);
        want =
            wild_has_order(&h, 0, (fleet_linear_state){ 0 }) ? FLEET_LINEAR_YES : FLEET_LINEAR_NO;
        found[want]++;
        if (wild_check(&h, false) != want || wild_check(&h, true) != want)
            test_fail(__FILE__, __LINE__, "history %d", i);
    }
    CHECK(found[FLEET_LINEAR_YES] > 25000 && found[FLEET_LINEAR_NO] > 25000);
    test_note("%zu with an order, %zu without", found[FLEET_LINEAR_YES], found[FLEET_LINEAR_NO]);
}

/* ---- large ones ------------------------------------------------------------------------------ */

typedef enum wild_crime {
    WILD_NONE,
    WILD_LOST,     /* a write is not there for those that come later */
    WILD_REPEATED, /* a write is there twice */
    WILD_STALE,    /* a read does not see what was answered before it was asked for */
    WILD_TIME,     /* one order there is, but it contradicts real time */
    WILD_CRIMES
} wild_crime;

/* A thousand operations, a dozen of them at a time; of one in ten nobody knows what became of it.
 * In the middle the crime. What is told adds more than all others together could. */
static void
wild_draw_large(wild_history *h, stet__rng *r, wild_crime crime)
{
    fleet_linear_state s = { 0 };

    *h = (wild_history){ .n = WILD_MAX };
    for (size_t i = 0; i < WILD_MAX; i++) {
        wild_op         *w = &h->what[i];
        fleet_linear_op *op = &h->ops[i];
        int64_t          at_us = (int64_t)i * 10 + 1000;
        bool             is_scene = i == WILD_MAX / 2, is_before = i + 1 == WILD_MAX / 2;

        op->asked_us = at_us - (int64_t)fleet_draw(r, 60);
        op->answered_us = at_us + (int64_t)fleet_draw(r, 60);
        op->hint = i;
        w->is_placed = is_scene || is_before || i + 1 == WILD_MAX || fleet_draw(r, 10) != 0;
        w->writes = s.writes;
        w->sum = s.sum;
        w->amount = w->is_placed ? 10000 : 1 + fleet_draw(r, 100);
        w->most = w->is_placed && fleet_draw(r, 3) == 0 ? 0 : 1;
        w->least = w->is_placed ? w->most : 0;
        if (is_scene || is_before) {
            w->most = w->least = is_before || crime != WILD_STALE;
            op->asked_us = at_us - 2;
            op->answered_us = at_us + 2;
        }
        if (is_scene && crime == WILD_STALE) {
            w->writes--;
            w->sum -= 10000;
        }
        if (is_scene && crime == WILD_TIME)
            op->asked_us = op->answered_us = at_us - 200;
        if (!w->is_placed && fleet_draw(r, 2) == 0)
            op->answered_us = INT64_MAX;
        if ((!w->is_placed && fleet_draw(r, 2) == 0) || (is_scene && crime == WILD_LOST))
            continue;
        s.writes += w->most * (is_scene && crime == WILD_REPEATED ? 2 : 1);
        s.sum += w->most * w->amount * (is_scene && crime == WILD_REPEATED ? 2 : 1);
    }
}

TEST_LIMIT(C6_large_histories_are_decided, 60)
{
    static wild_history h;
    stet__rng           r;

    stet__rng_seed(&r, 11);
    for (int i = 0; i < 8; i++)
        for (wild_crime crime = WILD_NONE; crime < WILD_CRIMES; crime++)
            for (int has_hints = 0; has_hints < 2; has_hints++) {
                fleet_linear want = crime == WILD_NONE ? FLEET_LINEAR_YES : FLEET_LINEAR_NO, is;

                wild_draw_large(&h, &r, crime);
                wild_shuffle(&h, &r, has_hints != 0);
                if ((is = wild_check(&h, false)) != want)
                    test_fail(__FILE__, __LINE__, "history %d with crime %d: %d", i, (int)crime,
                              (int)is);
            }
}
