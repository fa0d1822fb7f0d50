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
