/* The pure core when memory runs out at any place: a history with every kind of fact is applied to
 * a run and its journal, each time with a little less room. A fact is applied or refused with
 * STET_ENOMEM, and a refused one has not moved the run.
 */
#include "core/journal.h"
#include "core/run.h"
#include "util_fault.h"

#define FACT(k, ...)                                                                               \
    {                                                                                              \
        .kind = STET__FACT_##k, __VA_ARGS__                                                        \
    }
#define TEXT(text)                                                                                 \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

enum { MEMORY_STEP = 16, MEMORY_ROOM_MAX = 4096 };

static const uint8_t memory_id[16] = { 7 };
#define ID                                                                                         \
    {                                                                                              \
        memory_id, sizeof memory_id                                                                \
    }

/* Notifications come through the inbox: is_inbox. */
static const struct {
    bool       is_inbox;
    stet__fact fact;
} memory_history[] = {
    { false, FACT(STARTED, .name = TEXT("shop.order"), .key = TEXT("k"), .group = TEXT("g"),
                  .idempotency_key = TEXT("once"), .parent_step = TEXT("s"), .child_key = TEXT("c"),
                  .traceparent = TEXT("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
                  .tracestate = TEXT("vendor=1"), .schedule = TEXT("nightly"), .value = TEXT("{}"),
                  .labels = TEXT("a=1"), .held = TEXT("shop/k"), .run = ID, .attempts_max = 5,
                  .until_ms = 2000) },
    { false, FACT(CLAIMED, .number = 1) },
    { false, FACT(STEP, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("ok")) },
    { false, FACT(STEP_RETRY, .name = TEXT("flaky"), .occurrence = 1, .code = -1, .attempt = 1,
                  .text = TEXT("no luck"), .origin = TEXT("step flaky#1"), .until_ms = 5000) },
    { true, FACT(TIMER, .completion = 4) },
    { false, FACT(TAKEN, .number = 1) },
    { false, FACT(STEP, .name = TEXT("flaky"), .occurrence = 1, .code = -2, .text = TEXT("never"),
                  .origin = TEXT("step flaky#1")) },
    { false, FACT(SLEEP, .name = TEXT("nap"), .occurrence = 1, .until_ms = 9000) },
    { false, FACT(CALL, .name = TEXT("shop.pay"), .occurrence = 1, .run = ID) },
    { false, FACT(SEND, .name = TEXT("shop.mail"), .occurrence = 1, .run = ID) },
    { false, FACT(AWAKEABLE, .name = TEXT("approved"), .occurrence = 1, .run = ID) },
    { true, FACT(CHILD_DONE, .completion = 8, .value = TEXT("paid")) },
    { true,
      FACT(SETTLED, .completion = 10, .code = -3, .text = TEXT("no"), .origin = TEXT("awk")) },
    { false, FACT(TAKEN, .number = 3) },
    { false, FACT(STATE_GET, .name = TEXT("n"), .occurrence = 1, .value = TEXT("1")) },
    { false, FACT(STATE_SET, .name = TEXT("n"), .occurrence = 1, .value = TEXT("2")) },
    { false, FACT(STATE_CLEAR, .name = TEXT("n"), .occurrence = 1) },
    { false, FACT(NOW, .name = TEXT("now"), .occurrence = 1, .number = 5) },
    { false, FACT(VERSION, .name = TEXT("v"), .occurrence = 1, .number = 2) },
    { false, FACT(AWAIT, .name = TEXT("sleep nap#1"), .occurrence = 1, .until_ms = 9500) },
    { false, FACT(ANY, .name = TEXT("any"), .occurrence = 1, .until_ms = 9500) },
    { false, FACT(CHOICE, .name = TEXT("any"), .occurrence = 1, .completion = 18, .number = 1,
                  .code = -25, .text = TEXT("the time was up first")) },
    { false, FACT(SETTLE, .name = TEXT("awk_x"), .occurrence = 1, .run = ID, .value = TEXT("v")) },
    { true, FACT(LOST, .who = TEXT("wrk_1"), .name = TEXT("charge"), .occurrence = 2,
                 .flags = STET__FACT_EXECUTING | STET__FACT_IN_BODY) },
    { true, FACT(LOST, .who = TEXT("wrk_1"), .flags = STET__FACT_UNKNOWN) },
    { false, FACT(TAKEN, .number = 5) },
    { false, FACT(AT_RISK, .name = TEXT("charge"), .occurrence = 2) },
    { false, FACT(SUSPENDED, .text = TEXT("sleep nap")) },
    { false, FACT(CLAIMED, .number = 2) },
    { false, FACT(ATTEMPT_FAILED, .code = -1, .text = TEXT("no"), .origin = TEXT("handler"),
                  .until_ms = 10000) },
    { false, FACT(CLAIMED, .number = 3) },
    { false, FACT(DEFERRED, .code = -4, .text = TEXT("later"), .until_ms = 11000) },
    { false, FACT(CLAIMED, .number = 4) },
    { false,
      FACT(STUCK, .code = -5, .text = TEXT("bent"), .recorded = TEXT("a"), .asked = TEXT("b")) },
    { true, FACT(UNSTICK, .who = TEXT("me")) },
    { true, FACT(CANCEL, .who = TEXT("me"), .text = TEXT("enough")) },
    { false, FACT(TAKEN, .number = 7) },
    { false, FACT(CLAIMED, .number = 5) },
    { false, FACT(SIGNAL, .name = TEXT("go"), .occurrence = 1, .until_ms = 9000) },
    { true,
      FACT(SIGNALLED, .name = TEXT("go"), .value = TEXT("a"), .idempotency_key = TEXT("k1")) },
    { true,
      FACT(SIGNALLED, .name = TEXT("go"), .value = TEXT("b"), .idempotency_key = TEXT("k2")) },
    { true, FACT(SIGNALLED, .name = TEXT("go"), .value = TEXT("c")) },
    { true, FACT(SIGNALLED, .name = TEXT("stop"), .value = TEXT("d")) },
    { false, FACT(TAKEN, .number = 11) },
    { false, FACT(SIGNAL, .name = TEXT("go"), .occurrence = 2) },
    { false, FACT(SIGNAL, .name = TEXT("mine"), .topic = TEXT("go"), .occurrence = 1) },
    { false, FACT(SIGNAL, .name = TEXT("go"), .occurrence = 3) },
    { false, FACT(SIGNAL, .name = TEXT("go"), .occurrence = 4) },
    { false,
      FACT(SIGNAL_SEND, .name = TEXT("go"), .occurrence = 1, .run = ID, .value = TEXT("v")) },
    { false, FACT(NOTE, .name = TEXT("paid %d"), .occurrence = 1, .text = TEXT("paid 7")) },
    { false, FACT(SWITCH, .name = TEXT("which"), .occurrence = 1, .text = TEXT("small")) },
    { false, FACT(ONCE, .name = TEXT("first"), .occurrence = 1, .number = 1) },
    { false, FACT(LOOK, .name = TEXT("run_x"), .occurrence = 1, .value = TEXT("seen")) },
    { false, FACT(EMIT, .name = TEXT("news"), .occurrence = 1, .value = TEXT("e"), .number = 1,
                  .flags = STET__FACT_MORE) },
    { false, FACT(EMIT, .name = TEXT("news"), .occurrence = 1, .value = TEXT("e"), .number = 2) },
    { false, FACT(TOPIC, .name = TEXT("news"), .occurrence = 1, .until_ms = 9000) }, /* 45 */
    { true, FACT(EVENT, .completion = 45, .value = TEXT("e")) },
    { false, FACT(BOUNDARY, .name = TEXT("look"), .occurrence = 1, .value = TEXT("{}"),
                  .flags = STET__FACT_APPROVAL) }, /* 46 */
    { true, FACT(DECIDED, .completion = 46, .who = TEXT("me"), .text = TEXT("fine"),
                 .value = TEXT("yes")) },
    { false, FACT(TAKEN, .number = 13) },
    { false, FACT(ROLLBACK, .name = TEXT("rollback"), .occurrence = 1, .code = -7,
                  .text = TEXT("no"), .origin = TEXT("step charge#1")) }, /* 48 */
    { false, FACT(STEP_RETRY, .name = TEXT("rollback:charge#1"), .occurrence = 1, .code = -1,
                  .attempt = 1, .text = TEXT("no luck"), .until_ms = 9000) },
    { false, FACT(COMPENSATION_FAILED, .code = -8, .text = TEXT("a text that needs some room"),
                  .origin = TEXT("step rollback:charge#1")) },
    { true, FACT(ROLLBACK_RETRY, .who = TEXT("me")) },
    { false, FACT(TAKEN, .number = 14) },
    { false, FACT(CLAIMED, .number = 6) },
    { false, FACT(STEP, .name = TEXT("rollback:charge#1"), .occurrence = 1) },
    { false, FACT(ROLLED_BACK, .completion = 48) },
    { true,
      FACT(UPDATE_ASKED, .name = TEXT("set"), .value = TEXT("1"), .idempotency_key = TEXT("k3")) },
    { true, FACT(SKIP, .name = TEXT("later"), .occurrence = 1, .value = TEXT("a result"),
                 .who = TEXT("me"), .text = TEXT("by hand")) },
    { true, FACT(EDIT, .name = TEXT("charge"), .occurrence = 1, .value = TEXT("another result"),
                 .who = TEXT("me")) },
    { false, FACT(TAKEN, .number = 17) },
    { false, FACT(UPDATE, .name = TEXT("set"), .occurrence = 1, .idempotency_key = TEXT("k3"),
                  .value = TEXT("done"), .topic = TEXT("sleep nap#1")) },
    { false, FACT(UPDATE, .name = TEXT("put"), .occurrence = 1, .value = TEXT("done"),
                  .topic = TEXT("sleep nap#1"), .flags = STET__FACT_INHERITED) },
    { true, FACT(REWIND, .number = 3, .who = TEXT("me")) },
    { false, FACT(TAKEN, .number = 18) },
    { false, FACT(SLEEP, .name = TEXT("nap"), .occurrence = 1, .until_ms = 9000) },
    { false, FACT(RELEASED, .text = TEXT("stop")) },
    { false, FACT(CLAIMED, .number = 7) },
    { false, FACT(CANCELLED, .code = -6, .text = TEXT("enough"), .origin = TEXT("me")) },
};
enum {
    MEMORY_FACTS = sizeof memory_history / sizeof memory_history[0],
    MEMORY_WAITS = 1 /* the nap that was taken again */
};

typedef struct memory_world {
    fault_alloc   alloc; /* of the arena */
    fault_alloc   heap;  /* of the journal's maps */
    stet__arena   arena;
    stet__run     run;
    stet__journal journal;
} memory_world;

static int
memory_apply(memory_world *w, size_t i)
{
    stet__fact fact = memory_history[i].fact;
    int        err;

    fact.time_ms = 1000 + (int64_t)i;
    if (memory_history[i].is_inbox) {
        if ((err = stet__run_apply_inbox(&w->run, &fact)) != STET_OK)
            return err;
    } else {
        fact.revision = w->run.journal + 1;
        if ((err = stet__run_apply(&w->run, &fact)) != STET_OK)
            return err;
    }
    return stet__journal_apply(&w->journal, &fact);
}

static void
memory_begin(memory_world *w)
{
    *w = (memory_world){ .alloc = fault_new(0), .heap = fault_new(0) };
    stet__arena_init(&w->arena, &w->alloc.base);
    stet__run_init(&w->run, &w->arena, (stet_id){ { 1 } });
    stet__journal_init(&w->journal, &w->arena, &w->heap.base);
}

static void
memory_end(memory_world *w)
{
    stet__journal_free(&w->journal);
    stet__arena_free(&w->arena);
    CHECK_INT(w->alloc.held, 0);
    CHECK_INT(w->heap.held, 0);
}

/* From here on there are `room` bytes in the arena, and nothing else, or the heap besides. */
static void
memory_leave(memory_world *w, size_t room, bool has_heap)
{
    CHECK(stet__arena_get(&w->arena, MEMORY_ROOM_MAX) != NULL);
    CHECK(w->arena.chunks->size >= room);
    w->arena.chunks->used = w->arena.chunks->size - room;
    w->alloc.fail_at = w->alloc.calls + 1;
    w->heap.fail_at = has_heap ? 0 : w->heap.calls + 1;
}

/* True: the fact numbered `at`, and all after it, found the memory they need in so much room. */
static bool
memory_is_enough(size_t at, size_t room, bool has_heap)
{
    memory_world w;
    int          err = STET_OK;

    memory_begin(&w);
    for (size_t i = 0; i < at; i++)
        CHECK_OK(memory_apply(&w, i));
    memory_leave(&w, room, has_heap);
    for (size_t i = at; i < MEMORY_FACTS && err == STET_OK; i++) {
        uint64_t journal = w.run.journal;

        if ((err = memory_apply(&w, i)) != STET_OK) {
            CHECK_CODE(err, STET_ENOMEM);
            CHECK(stet_last_error()[0] != '\0');
            CHECK(w.run.journal - journal <= 1);
        }
    }
    if (err == STET_OK)
        CHECK_INT(w.run.status, STET_STATUS_CANCELLED);
    memory_end(&w);
    return err == STET_OK;
}

/* With memory the history is a good one, or nothing would be proved. */
TEST(G1_a_history_with_every_kind_of_fact_is_applied)
{
    memory_world w;
    int          waits = 0;

    memory_begin(&w);
    for (size_t i = 0; i < MEMORY_FACTS; i++)
        CHECK_OK(memory_apply(&w, i));
    CHECK_INT(w.run.status, STET_STATUS_CANCELLED);
    CHECK_INT(w.journal.anomalies, 0); /* every answer found what it answers */
    for (const stet__cmd *cmd = w.journal.waiting; cmd != NULL; cmd = cmd->next)
        waits += !cmd->is_settled;
    CHECK_INT(waits, MEMORY_WAITS);
    memory_end(&w);
}

TEST(G1_facts_without_memory_are_refused_and_nothing_else)
{
    long rounds = 0;

    for (size_t at = 0; at < 2 * MEMORY_FACTS; at++)
        for (size_t room = 0; room <= MEMORY_ROOM_MAX; room += MEMORY_STEP) {
            if (memory_is_enough(at / 2, room, at % 2 == 0))
                break;
            rounds++;
        }
    CHECK(rounds > MEMORY_FACTS);
    test_note("%d facts, %ld times without memory", (int)MEMORY_FACTS, rounds);
}

/* Asking and adding commands needs memory too. */
static void
memory_command(size_t room, bool has_heap)
{
    const stet__cmd *recorded = NULL;
    stet__cmd       *cmd = NULL;
    uint64_t         occurrence = 0;
    memory_world     w;
    int              err;

    memory_begin(&w);
    CHECK_OK(memory_apply(&w, 0));
    CHECK_OK(
        stet__journal_ask(&w.journal, STET__FACT_SLEEP, "known", 0, &cmd, &occurrence, &recorded));
    memory_leave(&w, room, has_heap);
    err = stet__journal_ask(&w.journal, STET__FACT_STEP, "new", 0, &cmd, &occurrence, &recorded);
    CHECK(err == STET_OK || err == STET_ENOMEM);
    cmd = stet__journal_add(&w.journal, STET__FACT_SLEEP, "known", 1, 9);
    CHECK(cmd == NULL || (cmd->occurrence == 1 && cmd->completion == 9));
    cmd = stet__journal_add(&w.journal, STET__FACT_SLEEP, "never asked for", 1, 0);
    CHECK(cmd == NULL || cmd->is_asked);
    memory_end(&w);
}

TEST(G1_commands_without_memory_are_refused)
{
    for (size_t room = 0; room <= MEMORY_ROOM_MAX; room += MEMORY_STEP) {
        memory_command(room, false);
        memory_command(room, true);
    }
}

TEST(G1_a_fact_that_finds_no_memory_is_not_half_encoded)
{
    fault_alloc none = fault_new(1);
    stet__buf   b;

    stet__buf_init(&b, &none.base);
    stet__fact_encode(&b, &memory_history[0].fact);
    CHECK(b.failed);
    CHECK_INT(b.len, 0);
    stet__buf_free(&b);
}
