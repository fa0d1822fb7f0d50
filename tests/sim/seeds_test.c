/* The simulator as a test: seeds in which everything must hold, and that one seed is one history.
 *
 * STET_TEST_SEEDS says how many (2000; with a sanitizer a twentieth), STET_TEST_SEED the first one.
 */
#include <inttypes.h>

#include "fleet/fleet.h"
#include "test.h"

#if defined(__SANITIZE_ADDRESS__)
#define SEEDS_SHARE 20
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SEEDS_SHARE 20
#endif
#endif
#ifndef SEEDS_SHARE
#define SEEDS_SHARE 1
#endif

/* Results of waits and answers are the caller's and come from malloc(); a node that crashes loses them. */
const char *__lsan_default_suppressions(void);
const char *
__lsan_default_suppressions(void)
{
    return "leak:wait_fill\nleak:stet__answer_give\n";
}

static uint64_t
seeds_number(const char *name, uint64_t normal)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : normal;
}

/* A quarter of the seeds, so that a failure names one of four tests and each has its time limit. */
static void
seeds_quarter(uint64_t quarter)
{
    uint64_t      n = seeds_number("STET_TEST_SEEDS", 2000 / SEEDS_SHARE) / 4;
    fleet_options options = { .seed = seeds_number("STET_TEST_SEED", 1) + quarter * n };
    fleet_stats   stats = { 0 };
    uint64_t      faults = 0;

    for (uint64_t i = 0; i < n; i++, options.seed++)
        if (!fleet_seed(&options, &stats, NULL))
            test_fail(__FILE__, __LINE__, "seed %" PRIu64 ": see above", options.seed);
    for (int i = 0; i < FLEET_FAULTS; i++)
        faults += stats.faults[i];
    test_note("%" PRIu64 " seeds, %" PRIu64 " runs, %" PRIu64 " bodies, %" PRIu64
              " faults, %" PRIu64 " outcomes checked",
              n, stats.runs, stats.bodies, faults, stats.checks);
}

TEST_LIMIT(C6_seeds_first_quarter, 60)
{
    seeds_quarter(0);
}
TEST_LIMIT(C6_seeds_second_quarter, 60)
{
    seeds_quarter(1);
}
TEST_LIMIT(C6_seeds_third_quarter, 60)
{
    seeds_quarter(2);
}
TEST_LIMIT(C6_seeds_fourth_quarter, 60)
{
    seeds_quarter(3);
}

/* Each fault and each operation happens in any few hundred seeds; a kind that does not is not
 * tested at all. */
TEST_LIMIT(C6_every_fault_strikes_and_every_operation_is_executed, 60)
{
    fleet_stats stats = { 0 };

    for (uint64_t seed = 1; seed <= 100; seed++)
        CHECK(fleet_seed(&(fleet_options){ .seed = seed }, &stats, NULL));
    for (int i = 0; i < FLEET_FAULTS; i++)
        if (stats.faults[i] == 0)
            test_fail(__FILE__, __LINE__, "no %s in 100 seeds", fleet_fault_names[i]);
    for (int i = 0; i < FLEET_OPS; i++)
        if (stats.ops[i] == 0)
            test_fail(__FILE__, __LINE__, "no %s in 100 seeds", fleet_op_names[i]);
    for (int i = 0; i < 3; i++)
        CHECK(stats.ways[i] > 0);
    CHECK(stats.polls > 0);
    CHECK(stats.exits > 0);
    CHECK(stats.reasons > 0);
    CHECK(stats.turns > 100);
    CHECK(stats.holds > 50);
    CHECK(stats.firings > 50 && stats.skips > 5 && stats.schedules > 50);
    CHECK(stats.judged > 10 && stats.deferred > 10);
    CHECK(stats.tales > 1000 && stats.retold > 5);
    CHECK(stats.updates > 50 && stats.answers > 200 && stats.queries > 100);
    CHECK(stats.orders == 400 && stats.undecided == 0);
    CHECK(stats.recoveries > 100 && stats.recovered > 10);
}

TEST(C6_one_seed_is_one_history)
{
    uint64_t histories[20];

    for (uint64_t i = 0; i < 20; i++) {
        uint64_t again = 0;

        CHECK(fleet_seed(&(fleet_options){ .seed = 1000 + i }, NULL, &histories[i]));
        CHECK(fleet_seed(&(fleet_options){ .seed = 1000 + i }, NULL, &again));
        if (histories[i] != again)
            test_fail(__FILE__, __LINE__, "seed %" PRIu64 " has two histories", 1000 + i);
        for (uint64_t k = 0; k < i; k++)
            CHECK(histories[k] != histories[i]);
    }
}

/* Recoveries of one state that differ are found: in what had ended, in values, in what was open. */
static size_t
seeds_tampered(fleet_tamper tampers, const char *found)
{
    size_t n = 0;

    for (uint64_t seed = 1; seed <= 30; seed++) {
        char          failure[512] = "";
        fleet_options options = { .seed = seed, .tampers = tampers, .failure = failure };

        n += !fleet_seed(&options, NULL, NULL) && strstr(failure, found) != NULL;
    }
    return n;
}

TEST_LIMIT(C6_a_recovery_that_comes_to_another_state_is_found, 60)
{
    CHECK_INT(seeds_tampered(FLEET_TAMPER_NOT, ""), 0);
    CHECK(seeds_tampered(FLEET_TAMPER_STATUS, "changes what was recorded") > 20);
    CHECK(seeds_tampered(FLEET_TAMPER_FACT, "recorded") > 20);
    CHECK(seeds_tampered(FLEET_TAMPER_VALUE, "changes the state") > 20);
    CHECK(seeds_tampered(FLEET_TAMPER_OPEN, "after one recovery") > 0);
}

TEST_LIMIT(C6_an_object_without_an_order_of_its_runs_is_found, 60)
{
    CHECK(seeds_tampered(FLEET_TAMPER_READ, "no order") > 20);
    CHECK(seeds_tampered(FLEET_TAMPER_ANSWER, "no order") > 20);
}

/* Of large seeds, too; that a run was answered too early is found among hundreds of others. */
TEST_LIMIT(C6_the_history_of_every_key_of_a_large_seed_is_decided, 60)
{
    const uint64_t seeds = SEEDS_SHARE > 1 ? 1 : 4;
    fleet_options  options = { .is_large = true };
    fleet_stats    stats = { 0 };
    char           failure[512] = "";

    for (options.seed = 1; options.seed <= seeds; options.seed++)
        CHECK(fleet_seed(&options, &stats, NULL));
    CHECK(stats.orders == seeds * FLEET_KEYS && stats.undecided == 0);
    options = (fleet_options){
        .seed = 1, .is_large = true, .tampers = FLEET_TAMPER_ANSWER, .failure = failure
    };
    CHECK(!fleet_seed(&options, NULL, NULL) && strstr(failure, "no order") != NULL);
}

/* Hints, counts and what need not be searched make the judgement of a history shorter, and must not
 * change it: histories as they were and thousands that were distorted, against the bare search. */
TEST_LIMIT(C6_histories_are_judged_as_the_bare_search_judges_them, 120)
{
    fleet_stats stats = { 0 };

    for (uint64_t seed = 1; seed <= 100 / SEEDS_SHARE; seed++)
        CHECK(fleet_seed(&(fleet_options){ .seed = seed, .doubts = 20 }, &stats, NULL));
    CHECK(stats.doubts[0] > 2000 / SEEDS_SHARE && stats.doubts[1] > 2000 / SEEDS_SHARE);
    test_note("%" PRIu64 " with an order, %" PRIu64 " without", stats.doubts[1], stats.doubts[0]);
}

TEST_LIMIT(A3_what_a_shared_handler_cannot_have_seen_is_found, 60)
{
    CHECK(seeds_tampered(FLEET_TAMPER_PEEK, "peek") > 20);
}

TEST_LIMIT(B17_what_a_run_cannot_have_seen_of_another_is_found, 60)
{
    CHECK(seeds_tampered(FLEET_TAMPER_LOOK, "it sees of run") > 10);
}

TEST_LIMIT(C6_a_reason_that_is_not_true_is_found, 60)
{
    CHECK(seeds_tampered(FLEET_TAMPER_WHY, "and why says") > 15);
}

TEST_LIMIT(I2_a_row_that_gives_another_reason_is_found, 60)
{
    CHECK(seeds_tampered(FLEET_TAMPER_REASON, "its row gives the reason \"for nothing\"") > 20);
}

/* One seed in six has schedules. */
TEST_LIMIT(E3_a_firing_that_is_not_what_was_written_is_found, 60)
{
    CHECK(seeds_tampered(FLEET_TAMPER_LEDGER, "of its ledger is not what was written") > 0);
    CHECK(seeds_tampered(FLEET_TAMPER_FIRED, "after a recovery it has fired") > 0);
}
