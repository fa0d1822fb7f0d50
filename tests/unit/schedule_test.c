/* What is due, what was missed, what the policies say: the pure part of schedules. */
#include "core/schedule.h"
#include "test.h"

#include <stet/sys/store.h>

#define MINUTE INT64_C(60000)
#define DAY    (24 * 60 * MINUTE)

/* Every whole minute, as a cron or function would; the end is in *arg, 0: none. */
static int
minutely(void *arg, int64_t *next_ms, int64_t after_ms)
{
    int64_t *end_ms = arg;

    *next_ms = (after_ms / MINUTE + 1) * MINUTE;
    if (end_ms != NULL && *end_ms != 0 && *next_ms > *end_ms)
        return STET_END;
    return STET_OK;
}

static int
broken(void *arg, int64_t *next_ms, int64_t after_ms)
{
    (void)arg;
    (void)next_ms;
    (void)after_ms;
    return STET_EIO;
}

static stet__fact
sched(stet_overlap overlap, stet_missed missed)
{
    stet__fact s = { .kind = STET__FACT_SCHEDULE };

    s.name = stet_text("t.go");
    s.cron = stet_text("* * * * *");
    s.overlap = overlap;
    s.missed = missed;
    s.missed_max = missed == STET_MISSED_ALL ? 3 : 0;
    s.grace_ms = missed == STET_MISSED_SKIP ? 5000 : 0;
    return s;
}

static stet__fact
every(int64_t ms, stet_overlap overlap, stet_missed missed)
{
    stet__fact s = sched(overlap, missed);

    s.cron = (stet_bytes){ NULL, 0 };
    s.every_ms = ms;
    return s;
}

static stet__sched_act
step(stet__fact *s, int64_t now_ms, bool is_open)
{
    stet__sched_now now = { .now_ms = now_ms, .is_open = is_open, .next = minutely };
    stet__sched_act act;

    CHECK_OK(stet__sched_step(s, &now, &act));
    CHECK(stet__sched_is_sound(s));
    return act;
}

static void
plan(stet__fact *s, int64_t now_ms)
{
    stet__sched_now now = { .now_ms = now_ms, .next = minutely };

    CHECK_OK(stet__sched_plan(s, &now));
    CHECK(stet__sched_is_sound(s));
}

TEST(E3_a_firing_takes_its_time_and_plans_the_next)
{
    stet__fact      s = sched(STET_OVERLAP_ALLOW, STET_MISSED_ONCE);
    stet__sched_act act;

    plan(&s, 10 * MINUTE + 5);
    CHECK_INT(s.until_ms, 11 * MINUTE);
    CHECK_INT(s.look_ms, 11 * MINUTE);
    act = step(&s, 11 * MINUTE - 1, false);
    CHECK_INT(act.what, STET__SCHED_NOTHING);
    act = step(&s, 11 * MINUTE, false);
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(act.planned_ms, 11 * MINUTE);
    CHECK_INT(s.planned_ms, 11 * MINUTE);
    CHECK_INT(s.until_ms, 12 * MINUTE);
    CHECK_INT(s.look_ms, 12 * MINUTE);
    CHECK_INT(s.fired, 1);
    act = step(&s, 11 * MINUTE, true); /* the same moment again */
    CHECK_INT(act.what, STET__SCHED_NOTHING);
    CHECK_INT(s.fired, 1);
}

TEST(E4_of_a_day_missed_the_default_fires_once)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_act act;

    plan(&s, DAY);
    act = step(&s, 2 * DAY + 30000, false);
    CHECK_INT(act.what, STET__SCHED_SKIP);
    CHECK_INT(act.skip, STET_SKIP_MISSED);
    CHECK_INT(act.count, 1439);
    CHECK_INT(act.planned_ms, DAY + MINUTE);
    CHECK_INT(act.until_ms, 2 * DAY - MINUTE);
    CHECK_INT(s.until_ms, 2 * DAY);
    CHECK_INT(s.look_ms, 2 * DAY); /* there is more to do */
    act = step(&s, 2 * DAY + 30000, false);
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(act.planned_ms, 2 * DAY);
    CHECK_INT(s.until_ms, 2 * DAY + MINUTE);
    CHECK_INT(s.skipped, 1439);
}

TEST(E4_skip_fires_none_that_is_later_than_its_grace)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_SKIP);
    stet__sched_act act;

    plan(&s, DAY);
    act = step(&s, DAY + 3 * MINUTE + 5001, false);
    CHECK_INT(act.skip, STET_SKIP_MISSED);
    CHECK_INT(act.count, 2);
    act = step(&s, DAY + 3 * MINUTE + 5001, false);
    CHECK_INT(act.what, STET__SCHED_SKIP);
    CHECK_INT(act.skip, STET_SKIP_LATE);
    CHECK_INT(act.planned_ms, DAY + 3 * MINUTE);
    act = step(&s, DAY + 4 * MINUTE + 5000, false); /* just in time */
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(s.fired, 1);
    CHECK_INT(s.skipped, 3);
}

TEST(E4_all_fires_the_last_n_one_by_one)
{
    stet__fact      s = sched(STET_OVERLAP_ALLOW, STET_MISSED_ALL);
    stet__sched_act act;
    int64_t         now_ms = DAY + 10 * MINUTE;

    plan(&s, DAY);
    act = step(&s, now_ms, false);
    CHECK_INT(act.what, STET__SCHED_SKIP);
    CHECK_INT(act.skip, STET_SKIP_LIMIT);
    CHECK_INT(act.count, 7);
    CHECK_INT(act.until_ms, DAY + 7 * MINUTE);
    for (int i = 8; i <= 10; i++) {
        act = step(&s, now_ms, true);
        CHECK_INT(act.what, STET__SCHED_FIRE);
        CHECK_INT(act.planned_ms, DAY + i * MINUTE);
    }
    CHECK_INT(step(&s, now_ms, true).what, STET__SCHED_NOTHING);
    CHECK_INT(s.fired, 3);
    CHECK_INT(s.until_ms, DAY + 11 * MINUTE);
}

TEST(E4_more_missed_than_are_counted_at_once_is_skipped_in_parts)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_act act;
    int64_t         skipped = 0;
    int             steps = 0;

    plan(&s, 0);
    while ((act = step(&s, 30 * DAY, false)).what == STET__SCHED_SKIP) {
        CHECK_INT(act.planned_ms, (skipped + 1) * MINUTE); /* without a gap */
        skipped += act.count;
        steps++;
    }
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(act.planned_ms, 30 * DAY);
    CHECK_INT(skipped, 30 * 1440 - 1);
    CHECK_INT(steps, 5);
    CHECK_INT(s.skipped, skipped);
}

TEST(E1_an_interval_is_counted_from_the_planned_time_also_when_it_is_late)
{
    stet__fact      s = every(7000, STET_OVERLAP_ALLOW, STET_MISSED_ONCE);
    stet__sched_act act;

    plan(&s, 1000000);
    CHECK_INT(s.until_ms, 1007000);
    act = step(&s, 1009999, false);
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(s.until_ms, 1014000);
    act = step(&s, 1014000 + 3 * 7000 + 1, false);
    CHECK_INT(act.what, STET__SCHED_SKIP);
    CHECK_INT(act.count, 3);
    CHECK_INT(act.until_ms, 1028000);
    act = step(&s, 1014000 + 3 * 7000 + 1, false);
    CHECK_INT(act.planned_ms, 1035000);
    CHECK_INT(s.until_ms, 1042000);
}

TEST(E1_an_interval_from_completion_waits_for_the_end)
{
    stet__fact      s = every(7000, STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 1020000, .ended_ms = 1019000 };
    stet__sched_act act;

    s.flags = STET__SCHED_FROM_COMPLETION;
    plan(&s, 1000000);
    CHECK_INT(step(&s, 1007000, false).what, STET__SCHED_FIRE);
    CHECK(s.until_ms == STET_NEVER);
    CHECK(s.look_ms == STET_NEVER);
    CHECK_INT(step(&s, 1019000, true).what, STET__SCHED_NOTHING);
    CHECK_OK(stet__sched_step(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_CHANGED);
    CHECK_INT(s.until_ms, 1026000);
    CHECK_INT(s.look_ms, 1026000);
}

TEST(E1_one_time_fires_once)
{
    stet__fact      s = every(0, STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_act act;

    s.at_ms = 5000000;
    plan(&s, 1000);
    CHECK_INT(s.look_ms, 5000000);
    act = step(&s, 9000000, false);
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(act.planned_ms, 5000000);
    CHECK(s.until_ms == STET_NEVER);
    CHECK(s.look_ms == STET_NEVER);
    CHECK_INT(step(&s, 9999999, false).what, STET__SCHED_CHANGED); /* its run ended */
    CHECK_INT(step(&s, 99999999, false).what, STET__SCHED_NOTHING);
    CHECK_INT(s.fired, 1);
}

TEST(E4_overlap_skip_leaves_the_open_run_alone)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_act act;

    plan(&s, 0);
    CHECK_INT(step(&s, MINUTE, false).what, STET__SCHED_FIRE);
    act = step(&s, 2 * MINUTE, true);
    CHECK_INT(act.what, STET__SCHED_SKIP);
    CHECK_INT(act.skip, STET_SKIP_OVERLAP);
    CHECK_INT(s.until_ms, 3 * MINUTE);
    CHECK_INT(step(&s, 3 * MINUTE, false).what, STET__SCHED_FIRE);
}

TEST(E4_overlap_queue_lets_one_wait_and_skips_the_others)
{
    stet__fact      s = sched(STET_OVERLAP_QUEUE, STET_MISSED_ONCE);
    stet__sched_act act;

    plan(&s, 0);
    CHECK_INT(step(&s, MINUTE, false).what, STET__SCHED_FIRE);
    act = step(&s, 2 * MINUTE, true);
    CHECK_INT(act.what, STET__SCHED_WAIT);
    CHECK_INT(s.waiting_ms, 2 * MINUTE);
    act = step(&s, 3 * MINUTE, true);
    CHECK_INT(act.what, STET__SCHED_SKIP);
    CHECK_INT(act.skip, STET_SKIP_QUEUED);
    act = step(&s, 3 * MINUTE + 1, false); /* the first has ended */
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(act.planned_ms, 2 * MINUTE);
    CHECK(act.has_waited);
    CHECK_INT(s.waiting_ms, 0);
    CHECK_INT(s.until_ms, 4 * MINUTE);
    CHECK_INT(s.fired, 2);
}

TEST(E4_overlap_cancel_says_that_the_old_one_goes)
{
    stet__fact      s = sched(STET_OVERLAP_CANCEL, STET_MISSED_ONCE);
    stet__sched_act act;

    plan(&s, 0);
    CHECK(!step(&s, MINUTE, false).cancels);
    act = step(&s, 2 * MINUTE, true);
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK(act.cancels);
    CHECK(!step(&s, 3 * MINUTE, false).cancels); /* it has ended by itself */
}

TEST(E2_a_paused_one_does_nothing_and_its_pause_is_one_skip)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ALL);
    stet__sched_now now = { .now_ms = 10 * MINUTE + 1, .next = minutely };
    stet__sched_act act;

    plan(&s, 0);
    s.flags |= STET__SCHED_PAUSED;
    s.look_ms = STET_NEVER;
    CHECK_INT(step(&s, 10 * MINUTE, false).what, STET__SCHED_NOTHING);
    CHECK_OK(stet__sched_resume(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_SKIP);
    CHECK_INT(act.skip, STET_SKIP_PAUSED);
    CHECK_INT(act.count, 10);
    CHECK_INT(act.planned_ms, MINUTE);
    CHECK_INT(act.until_ms, 10 * MINUTE);
    CHECK_INT(s.until_ms, 11 * MINUTE);
    CHECK_INT(s.look_ms, 11 * MINUTE);
}

TEST(E2_after_a_pause_of_many_years_the_next_time_is_after_now)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 3650 * DAY, .next = minutely };
    stet__sched_act act;

    plan(&s, 0);
    s.flags |= STET__SCHED_PAUSED;
    CHECK_OK(stet__sched_resume(&s, &now, &act));
    CHECK_INT(act.count, STET__SCHED_COUNT_MAX);
    CHECK_INT(s.until_ms, 3650 * DAY + MINUTE);
}

TEST(E5_without_its_function_only_what_needs_no_time_is_done)
{
    stet__fact      s = sched(STET_OVERLAP_QUEUE, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 10 * MINUTE };
    stet__sched_act act;

    s.flags = STET__SCHED_FUNCTION;
    CHECK_OK(stet__sched_plan(&s, &now));
    CHECK_INT(s.until_ms, 0);
    CHECK_INT(s.look_ms, 10 * MINUTE); /* somebody who has it */
    CHECK_OK(stet__sched_step(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_NOTHING);
    now.next = minutely;
    CHECK_OK(stet__sched_step(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_CHANGED);
    CHECK_INT(s.until_ms, 11 * MINUTE);
    s.flags |= STET__SCHED_RUNNING;
    s.waiting_ms = 5 * MINUTE;
    now.next = NULL;
    CHECK_OK(stet__sched_step(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(act.planned_ms, 5 * MINUTE);
}

TEST(E5_a_function_that_ends_or_fails)
{
    stet__fact      s = sched(STET_OVERLAP_ALLOW, STET_MISSED_ALL), before;
    int64_t         end_ms = 2 * MINUTE;
    stet__sched_now now = { .now_ms = 0, .next = minutely, .arg = &end_ms };
    stet__sched_act act;

    s.flags = STET__SCHED_FUNCTION;
    CHECK_OK(stet__sched_plan(&s, &now));
    now.now_ms = 5 * MINUTE;
    now.next = broken;
    before = s;
    CHECK_CODE(stet__sched_step(&s, &now, &act), STET_EIO);
    CHECK(memcmp(&before, &s, sizeof s) == 0);
    now.next = minutely;
    for (int i = 1; i <= 2; i++) {
        CHECK_OK(stet__sched_step(&s, &now, &act));
        CHECK_INT(act.what, STET__SCHED_FIRE);
        CHECK_INT(act.planned_ms, i * MINUTE);
    }
    CHECK(s.until_ms == STET_NEVER);
    now.is_open = true;
    CHECK_OK(stet__sched_step(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_NOTHING);
}

TEST(E2_what_differs_is_seen_and_what_happened_is_no_difference)
{
    stet__fact a = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE), b = a;

    plan(&b, 5 * MINUTE);
    b.fired = 7;
    b.flags |= STET__SCHED_PAUSED | STET__SCHED_RUNNING;
    CHECK(stet__sched_same(&a, &b));
    b.overlap = STET_OVERLAP_QUEUE;
    CHECK(!stet__sched_same(&a, &b));
    CHECK(stet__sched_same_time(&a, &b));
    b.zone = stet_text("Europe/Berlin");
    CHECK(!stet__sched_same_time(&a, &b));
    a = b = every(0, STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    a.after_ms = b.after_ms = 1000; /* made at different times */
    a.at_ms = 5000;
    b.at_ms = 9000;
    CHECK(stet__sched_same(&a, &b));
}

/* ---- what a record may say ------------------------------------------------------------------- */

#define UNSOUND(good, change)                                                                      \
    do {                                                                                           \
        stet__fact bad_ = (good);                                                                  \
        bad_.change;                                                                               \
        if (stet__sched_is_sound(&bad_))                                                           \
            test_fail(__FILE__, __LINE__, "sound with %s", #change);                               \
    } while (0)

/* A record comes from a store that anybody may have damaged. */
TEST(E1_a_record_that_contradicts_itself_is_not_sound)
{
    stet__fact good = sched(STET_OVERLAP_QUEUE, STET_MISSED_ALL);

    CHECK(stet__sched_is_sound(&good)); /* not planned yet */
    plan(&good, 5 * MINUTE);
    good.planned_ms = 5 * MINUTE;
    CHECK(stet__sched_is_sound(&good));
    UNSOUND(good, kind = STET__FACT_OCCURRENCE);
    UNSOUND(good, name.len = 0);
    UNSOUND(good, cron.len = 0);      /* no time at all */
    UNSOUND(good, every_ms = MINUTE); /* two kinds of it */
    UNSOUND(good, at_ms = MINUTE);
    UNSOUND(good, every_ms = -1);
    UNSOUND(good, at_ms = -1);
    UNSOUND(good, until_ms = -1);
    UNSOUND(good, look_ms = -1);
    UNSOUND(good, planned_ms = 6 * MINUTE); /* would be dealt with twice */
    UNSOUND(good, waiting_ms = 4 * MINUTE); /* behind no run */
    UNSOUND(good, overlap = STET_OVERLAP_DEFAULT);
    UNSOUND(good, overlap = STET_OVERLAP_CANCEL + 1);
    UNSOUND(good, missed = STET_MISSED_DEFAULT);
    UNSOUND(good, missed = STET_MISSED_ALL + 1);
    UNSOUND(good, missed_max = -1);
    UNSOUND(good, missed_max = STET_SCHEDULE_MISSED_MAX + 1);
    good.missed_max = STET_SCHEDULE_MISSED_MAX;
    good.flags |= STET__SCHED_RUNNING;
    good.waiting_ms = 4 * MINUTE;
    CHECK(stet__sched_is_sound(&good));
}

/* `is_time`: the difference is one of its time, which is planned anew then. */
#define DIFFERS(good, is_time, change)                                                             \
    do {                                                                                           \
        stet__fact other_ = (good);                                                                \
        other_.change;                                                                             \
        if (stet__sched_same(&(good), &other_) || stet__sched_same(&other_, &(good)))              \
            test_fail(__FILE__, __LINE__, "the same with %s", #change);                            \
        CHECK_INT(stet__sched_same_time(&(good), &other_), !(is_time));                            \
    } while (0)

TEST(E2_each_thing_a_caller_gives_is_compared)
{
    stet__fact good = sched(STET_OVERLAP_SKIP, STET_MISSED_ALL), same;

    good.key = stet_text("k");
    good.group = stet_text("g");
    good.value = stet_text("{}");
    good.zone = stet_text("UTC");
    same = good;
    CHECK(stet__sched_same(&good, &same));
    DIFFERS(good, true, cron = stet_text("1 * * * *")); /* as long */
    DIFFERS(good, true, zone = stet_text("Asia/Tokyo"));
    DIFFERS(good, true, every_ms = 1);
    DIFFERS(good, true, after_ms = 1);
    DIFFERS(good, true, at_ms = 1);
    DIFFERS(good, true, flags = STET__SCHED_FUNCTION);
    DIFFERS(good, true, flags = STET__SCHED_FROM_COMPLETION);
    DIFFERS(good, false, name = stet_text("t.ho"));
    DIFFERS(good, false, key = stet_text("l"));
    DIFFERS(good, false, group = stet_text(""));
    DIFFERS(good, false, value = stet_text("[]"));
    DIFFERS(good, false, priority = 1);
    DIFFERS(good, false, deadline_ms = 1);
    DIFFERS(good, false, overlap = STET_OVERLAP_ALLOW);
    DIFFERS(good, false, missed = STET_MISSED_ONCE);
    DIFFERS(good, false, missed_max = 4);
    DIFFERS(good, false, grace_ms = 1);
}

/* ---- planning anew --------------------------------------------------------------------------- */

TEST(E1_one_time_that_was_dealt_with_is_not_planned_again)
{
    stet__fact s = every(0, STET_OVERLAP_SKIP, STET_MISSED_ONCE);

    s.at_ms = 5000000;
    plan(&s, 1000);
    CHECK_INT(step(&s, 5000000, false).what, STET__SCHED_FIRE);
    plan(&s, 6000000); /* as after a pause, or when something else was changed */
    CHECK(s.until_ms == STET_NEVER);
    CHECK(s.look_ms == STET_NEVER);
}

TEST(E1_one_time_needs_no_function_to_fire)
{
    stet__fact      s = every(0, STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 5000000 };
    stet__sched_act act;

    s.at_ms = 5000000;
    plan(&s, 1000);
    CHECK_OK(stet__sched_step(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_FIRE);
    CHECK_INT(act.planned_ms, 5000000);
}

/* An occurrence waits for the open run: somebody looks whether it still is, though the next time is
 * far. */
TEST(E4_a_new_time_while_an_occurrence_waits_is_looked_at_at_once)
{
    stet__fact s = every(9000, STET_OVERLAP_QUEUE, STET_MISSED_ONCE);

    s.flags = STET__SCHED_RUNNING;
    plan(&s, 1000000);
    CHECK_INT(s.look_ms, 1009000);
    s.waiting_ms = 999000;
    plan(&s, 1000000);
    CHECK_INT(s.until_ms, 1009000);
    CHECK_INT(s.look_ms, 1000000);
}

TEST(E1_an_interval_from_completion_planned_under_an_open_run_waits_for_its_end)
{
    stet__fact s = every(7000, STET_OVERLAP_SKIP, STET_MISSED_ONCE);

    s.flags = STET__SCHED_FROM_COMPLETION | STET__SCHED_RUNNING;
    plan(&s, 1000000);
    CHECK(s.until_ms == STET_NEVER);
    CHECK_INT(s.look_ms, 1000000);                                 /* whether it still is open */
    CHECK_INT(step(&s, 1002000, false).what, STET__SCHED_CHANGED); /* its end was not noted */
    CHECK_INT(s.until_ms, 1009000);
    CHECK_INT(s.look_ms, 1009000);
}

TEST(E1_an_interval_from_completion_does_not_follow_a_clock_backwards)
{
    stet__fact      s = every(7000, STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 1006000, .ended_ms = 1005000 };
    stet__sched_act act;

    s.flags = STET__SCHED_FROM_COMPLETION;
    plan(&s, 1000000);
    CHECK_INT(step(&s, 1007000, false).what, STET__SCHED_FIRE);
    CHECK_OK(stet__sched_step(&s, &now, &act)); /* ended before it was planned */
    CHECK_INT(s.until_ms, 1014000);
    CHECK(stet__sched_is_sound(&s));
}

/* While nothing ended nothing more was planned: one time at most is missed. */
TEST(E4_an_interval_from_completion_has_one_time_to_miss)
{
    static const stet_missed policies[] = { STET_MISSED_ONCE, STET_MISSED_ALL };

    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        stet__fact      s = every(7000, STET_OVERLAP_SKIP, policies[i]);
        stet__sched_act act;

        s.flags = STET__SCHED_FROM_COMPLETION;
        plan(&s, 1000000);
        act = step(&s, 1007000 + 10 * 7000, false);
        CHECK_INT(act.what, STET__SCHED_FIRE);
        CHECK_INT(act.planned_ms, 1007000);
        CHECK_INT(s.skipped, 0);
        CHECK(s.until_ms == STET_NEVER);
        CHECK_INT(step(&s, 1080000, false).what, STET__SCHED_CHANGED);
        CHECK_INT(s.until_ms, 1087000);
    }
}

TEST(E4_an_interval_from_completion_that_is_skipped_goes_on_from_then)
{
    stet__fact      s = every(7000, STET_OVERLAP_SKIP, STET_MISSED_SKIP);
    stet__sched_now now = { .now_ms = 1500000 };
    stet__sched_act act;

    s.flags = STET__SCHED_FROM_COMPLETION;
    plan(&s, 1000000);
    act = step(&s, 1100000, false);
    CHECK_INT(act.skip, STET_SKIP_LATE);
    CHECK_INT(act.count, 1);
    CHECK_INT(s.planned_ms, 1007000);
    CHECK_INT(s.until_ms, 1107000);
    s.flags |= STET__SCHED_PAUSED;
    CHECK_OK(stet__sched_resume(&s, &now, &act));
    CHECK_INT(act.skip, STET_SKIP_PAUSED);
    CHECK_INT(act.count, 1);
    CHECK_INT(s.until_ms, 1507000);
    CHECK_INT(s.skipped, 2);
}

/* Updated from the planned time to completion while a run was open: the time it had stays. */
TEST(E1_the_end_of_a_run_leaves_a_time_that_is_known)
{
    stet__fact s = every(7000, STET_OVERLAP_SKIP, STET_MISSED_ONCE);

    plan(&s, 1000000);
    CHECK_INT(step(&s, 1007000, false).what, STET__SCHED_FIRE);
    s.flags |= STET__SCHED_FROM_COMPLETION;
    CHECK_INT(step(&s, 1008000, false).what, STET__SCHED_CHANGED);
    CHECK(!(s.flags & STET__SCHED_RUNNING));
    CHECK_INT(s.until_ms, 1014000);
}

TEST(E2_a_paused_one_is_planned_and_stands_nowhere)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 5 * MINUTE };

    s.flags = STET__SCHED_PAUSED;
    plan(&s, 5 * MINUTE);
    CHECK_INT(s.until_ms, 6 * MINUTE);
    CHECK(s.look_ms == STET_NEVER);
    s.flags |= STET__SCHED_FUNCTION; /* which is not known here */
    CHECK_OK(stet__sched_plan(&s, &now));
    CHECK_INT(s.until_ms, 0);
    CHECK(s.look_ms == STET_NEVER);
}

/* ---- after a failure ------------------------------------------------------------------------- */

TEST(E5_a_function_that_fails_at_its_first_time_leaves_the_record)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE), before;
    stet__sched_now now = { .now_ms = 5 * MINUTE, .next = broken };
    stet__sched_act act;

    s.flags = STET__SCHED_FUNCTION;
    before = s;
    CHECK_CODE(stet__sched_step(&s, &now, &act), STET_EIO);
    CHECK(memcmp(&before, &s, sizeof s) == 0);
}

/* Whoever met the failure put it where it is looked at again. */
TEST(E5_after_a_failure_it_stands_at_its_time_again)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_act act;

    plan(&s, 5 * MINUTE);
    s.look_ms = 5 * MINUTE + 10;
    act = step(&s, 5 * MINUTE + 10, false); /* nothing is due */
    CHECK_INT(act.what, STET__SCHED_CHANGED);
    CHECK_INT(s.look_ms, 6 * MINUTE);
    s.look_ms = 5 * MINUTE + 20;
    s.flags |= STET__SCHED_RUNNING;
    act = step(&s, 5 * MINUTE + 20, false); /* its run has ended besides */
    CHECK_INT(act.what, STET__SCHED_CHANGED);
    CHECK_INT(s.look_ms, 6 * MINUTE);
    CHECK_INT(step(&s, 5 * MINUTE + 30, false).what, STET__SCHED_NOTHING);
}

/* ---- the end of a pause ---------------------------------------------------------------------- */

static stet__fact
paused(stet__fact s, int64_t now_ms)
{
    plan(&s, now_ms);
    s.flags |= STET__SCHED_PAUSED;
    s.look_ms = STET_NEVER;
    return s;
}

TEST(E2_a_pause_in_which_nothing_was_due_skips_nothing)
{
    stet__fact      s = paused(sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE), 5 * MINUTE);
    stet__sched_now now = { .now_ms = 6 * MINUTE - 1, .next = minutely };
    stet__sched_act act;

    CHECK_OK(stet__sched_resume(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_CHANGED);
    CHECK_INT(s.skipped, 0);
    CHECK_INT(s.until_ms, 6 * MINUTE);
    CHECK_INT(s.look_ms, 6 * MINUTE);
    CHECK(!(s.flags & STET__SCHED_PAUSED));
}

TEST(E2_resumed_before_it_was_ever_planned_it_is_planned)
{
    stet__fact      s = sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 5 * MINUTE, .next = minutely };
    stet__sched_act act;

    s.flags = STET__SCHED_PAUSED;
    CHECK_OK(stet__sched_resume(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_CHANGED);
    CHECK_INT(s.until_ms, 6 * MINUTE);
    CHECK_INT(s.look_ms, 6 * MINUTE);
}

TEST(E2_resumed_where_its_function_is_not_known_somebody_else_looks_at_once)
{
    stet__fact      s = paused(sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE), 5 * MINUTE);
    stet__sched_now now = { .now_ms = 9 * MINUTE };
    stet__sched_act act;

    CHECK_OK(stet__sched_resume(&s, &now, &act));
    CHECK_INT(act.what, STET__SCHED_CHANGED);
    CHECK_INT(s.until_ms, 0);
    CHECK_INT(s.look_ms, 9 * MINUTE);
    CHECK_INT(step(&s, 9 * MINUTE, false).what, STET__SCHED_CHANGED); /* by one who knows it */
    CHECK_INT(s.until_ms, 10 * MINUTE);
    CHECK_INT(s.look_ms, 10 * MINUTE);
}

TEST(E2_resumed_with_a_run_that_was_open_somebody_looks_whether_it_ended)
{
    stet__fact      s = sched(STET_OVERLAP_QUEUE, STET_MISSED_ONCE);
    stet__sched_now now = { .now_ms = 2 * MINUTE + 30000, .next = minutely };
    stet__sched_act act;

    plan(&s, 0);
    CHECK_INT(step(&s, MINUTE, false).what, STET__SCHED_FIRE);
    CHECK_INT(step(&s, 2 * MINUTE, true).what, STET__SCHED_WAIT);
    s.flags |= STET__SCHED_PAUSED;
    s.look_ms = STET_NEVER;
    CHECK_OK(stet__sched_resume(&s, &now, &act));
    CHECK_INT(s.until_ms, 3 * MINUTE);
    CHECK_INT(s.look_ms, now.now_ms);
    CHECK_INT(step(&s, now.now_ms, false).what, STET__SCHED_FIRE); /* what waited */
}

TEST(E2_a_pause_does_not_end_by_a_function_that_fails)
{
    stet__fact      s = paused(sched(STET_OVERLAP_SKIP, STET_MISSED_ONCE), 5 * MINUTE), before = s;
    stet__sched_now now = { .now_ms = 9 * MINUTE, .next = broken };
    stet__sched_act act;

    CHECK_CODE(stet__sched_resume(&s, &now, &act), STET_EIO);
    CHECK(memcmp(&before, &s, sizeof s) == 0);
}
