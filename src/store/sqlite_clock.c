/* The clock of a store: what leases, due times and timers are judged by.
 *
 * The machine's clock can be set at any time. If it were the store's, setting it forwards would end
 * every lease at once and fire every timer, and setting it back would keep timers waiting for as
 * long. So the store's clock counts on the steady clock of the machine, from an anchor in the live
 * file that all processes share, and follows the machine's clock gently: it gains or loses at most
 * one second in eight until both agree. It never goes back. A machine whose clock is found to
 * be wrong by more than CLOCK_STEP_US had none before, and is believed at once.
 *
 * Anchors are written under a lock, into the one of two places that is not in use; whoever reads
 * looks twice. After a boot the steady clock begins anew, and so does the anchor.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* F_OFD_SETLK */
#endif
#include <string.h>

#include "store/sqlite.h"

#define CLOCK_SLEW     8
#define CLOCK_SLACK_US 100000 /* the two clocks are not read in the same moment */
#define CLOCK_STEP_US  (7 * 86400000000LL)

typedef struct clock_anchor {
    int64_t mono_us;   /* when it was set */
    int64_t offset_us; /* of the store's clock against the steady one, at that time */
    int64_t target_us; /* … and of the machine's clock */
} clock_anchor;

static uint32_t
clock_read(sqlite_live_head *head, clock_anchor *anchor)
{
    uint32_t turn;

    do {
        sqlite_live_anchor *place = &head->anchors[(turn = atomic_load(&head->clock_turn)) % 2];

        anchor->mono_us = atomic_load(&place->mono_us);
        anchor->offset_us = atomic_load(&place->offset_us);
        anchor->target_us = atomic_load(&place->target_us);
    } while (atomic_load(&head->clock_turn) != turn);
    return turn;
}

static void
clock_write(sqlite_live_head *head, uint32_t turn, const clock_anchor *anchor)
{
    sqlite_live_anchor *place = &head->anchors[(turn + 1) % 2];

    atomic_store(&place->mono_us, anchor->mono_us);
    atomic_store(&place->offset_us, anchor->offset_us);
    atomic_store(&place->target_us, anchor->target_us);
    atomic_store(&head->clock_turn, turn + 1);
}

static int64_t
clock_offset(const clock_anchor *anchor, int64_t mono_us)
{
    int64_t most = (mono_us - anchor->mono_us) / CLOCK_SLEW;
    int64_t way = anchor->target_us - anchor->offset_us;

    if (most < 0) /* a platform of another test */
        most = 0;
    if (way > most)
        way = most;
    return anchor->offset_us + (way < -most ? -most : way);
}

static bool
clock_is_far(int64_t a, int64_t b, int64_t limit)
{
    return a - b > limit || b - a > limit;
}

/* The machine's clock was set. Whoever finds the lock taken leaves it to the other. */
static void
clock_set(sqlite_store *st, int64_t mono_us, int64_t target_us)
{
    sqlite_live_head *head = st->queue.head;
    clock_anchor      anchor;
    uint32_t          turn;

    if (atomic_exchange(&st->is_clock_busy, true))
        return; /* another thread of ours: the file's lock would not keep it out */
    if (stet__sqlite_clock_lock(st)) {
        turn = clock_read(head, &anchor);
        if (clock_is_far(target_us, anchor.target_us, CLOCK_SLACK_US)) {
            anchor.offset_us = clock_offset(&anchor, mono_us);
            if (clock_is_far(target_us, anchor.offset_us, CLOCK_STEP_US))
                anchor.offset_us = target_us;
            anchor.mono_us = mono_us;
            anchor.target_us = target_us;
            clock_write(head, turn, &anchor);
        }
        stet__sqlite_clock_unlock(st);
    }
    atomic_store(&st->is_clock_busy, false);
}

void
stet__sqlite_clock_open(sqlite_store *st, sqlite_live *live)
{
    stet__platform *p = st->base.platform;
    int64_t         mono_us = stet__mono_us(p);
    clock_anchor    anchor = { mono_us, stet__wall_us(p) - mono_us, 0 };

    if (atomic_load(&live->head->clock_turn) != 0 &&
        memcmp(live->head->boot, st->boot, LITE_BOOT_MAX) == 0)
        return;
    anchor.target_us = anchor.offset_us;
    memcpy(live->head->boot, st->boot, LITE_BOOT_MAX);
    clock_write(live->head, atomic_load(&live->head->clock_turn), &anchor);
}

int64_t
stet__sqlite_now(sqlite_store *st)
{
    stet__platform *p = st->base.platform;
    int64_t         wall_us = stet__wall_us(p), mono_us = stet__mono_us(p);
    clock_anchor    anchor;

    if (st->queue.head == NULL)
        return wall_us / 1000 + atomic_load(&st->advance_ms);
    (void)clock_read(st->queue.head, &anchor);
    if (clock_is_far(wall_us - mono_us, anchor.target_us, CLOCK_SLACK_US)) {
        clock_set(st, mono_us, wall_us - mono_us);
        (void)clock_read(st->queue.head, &anchor);
    }
    return (mono_us + clock_offset(&anchor, mono_us)) / 1000 + atomic_load(&st->advance_ms);
}
