/* Every call of the store is answered with an error in turn, once and several times in a row, while
 * everything an engine does is done (see fault_world.h): reads that fail, commits that were not
 * made, sessions that cannot be opened. Every call works or says so and works later; the engine
 * goes on by itself when the store is well again; nothing is lost, repeated or leaked.
 *
 *   STET_FAULT_AT=N      only the round in which the Nth call fails
 *   STET_FAULT_STRIDE=N  every Nth round only
 *   STET_FAULT_VERBOSE=1 the engine's log
 */
#include "fault_world.h"

/* No crumbs have no code of their own: that is told as STET_ENOMEM. */
static bool
store_is_expected(int code)
{
    return code == STET_EIO || code == STET_EBUSY || code == STET_EUNCERTAIN || code == STET_ENOMEM;
}

/* True: the fault came. */
static bool
store_round(shim_which which, int code, long at, long count)
{
    fault_platform p;
    shim_script    script = { .mode = SHIM_ERROR,
                              .which = which,
                              .at = (uint64_t)at,
                              .count = (uint64_t)count,
                              .code = code,
                              .is_asleep = fault_is_paused };
    world          w = { .p = &p, .script = &script, .is_expected = store_is_expected };
    char           round[80];
    bool           is_hit;

    (void)snprintf(round, sizeof round, "at %ld, %ld fail with %s", at, count,
                   stet_code_name(code));
    w.round = round;
    if (getenv("STET_FAULT_VERBOSE") != NULL)
        (void)fprintf(stderr, "round %s\n", round);
    fault_platform_init(&p);
    world_live(&w);
    is_hit = script.is_hit;
    script.mode = SHIM_NONE;
    world_check(&w);
    return is_hit;
}

static void
store_rounds(shim_which which, int code, long count, long stride)
{
    long only = test_number("STET_FAULT_AT", -1), rounds = 0;

    stride = test_number("STET_FAULT_STRIDE", stride);
    for (long at = only >= 0 ? only : 1;; at += stride) {
        bool is_hit = store_round(which, code, at, count);

        rounds++;
        if (!is_hit || only >= 0)
            break;
    }
    test_note("%ld rounds", rounds);
}

TEST_LIMIT(G2_every_read_of_the_store_fails_once, 200)
{
    store_rounds(SHIM_READS, STET_EIO, 1, 1);
}

TEST_LIMIT(G2_several_reads_of_the_store_in_a_row_fail, 200)
{
    store_rounds(SHIM_READS, STET_EIO, 7, 3);
}

TEST_LIMIT(G2_every_write_of_the_store_fails_once, 200)
{
    store_rounds(SHIM_WRITES, STET_EIO, 1, 1);
}

TEST_LIMIT(G2_several_writes_of_the_store_in_a_row_fail, 200)
{
    store_rounds(SHIM_WRITES, STET_EBUSY, 5, 1);
}
