/* Updates in the journal: what was asked for, what came of it, what a rewind makes of it. I12. */
#include "core/journal.h"
#include "platform/platform.h"
#include "test.h"

typedef struct world {
    stet__arena   arena;
    stet__journal j;
    uint64_t      revision;
} world;

static void
world_begin(world *w)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;

    stet__arena_init(&w->arena, alloc);
    stet__journal_init(&w->j, &w->arena, alloc);
    w->revision = 1;
}

static void
world_end(world *w)
{
    stet__journal_free(&w->j);
    stet__arena_free(&w->arena);
}

static int
asked(world *w, const char *name, const char *key)
{
    stet__fact f = { .kind = STET__FACT_UPDATE_ASKED };

    f.name = stet_text(name);
    f.value = stet_text(key);
    f.idempotency_key = stet_text(key);
    return stet__journal_apply(&w->j, &f);
}

static int
decided(world *w, const char *name, int occurrence, const char *key, int64_t flags)
{
    stet__fact f = { .kind = STET__FACT_UPDATE, .occurrence = occurrence, .flags = flags };

    f.revision = ++w->revision;
    f.name = stet_text(name);
    f.topic = stet_text("sleep nap#1");
    f.value = stet_text("answer");
    if (key != NULL)
        f.idempotency_key = stet_text(key);
    return stet__journal_apply(&w->j, &f);
}

TEST(I12_a_key_is_asked_for_once_and_leaves_the_line_when_it_is_decided)
{
    world w;

    world_begin(&w);
    CHECK_OK(asked(&w, "set", "a"));
    CHECK_OK(asked(&w, "set", "b"));
    CHECK_OK(asked(&w, "set", "a"));
    CHECK_INT(w.j.anomalies, 1);
    CHECK_STR(w.j.asked->key.data, "a");
    CHECK_OK(decided(&w, "set", 1, "b", 0));
    CHECK(w.j.asked->next == NULL && w.j.asked_last == w.j.asked);
    CHECK_INT(w.j.unasked, 1);
    CHECK_STR(w.j.updates->wait, "sleep nap#1");
    CHECK_OK(asked(&w, "set", "c"));
    CHECK_STR(w.j.asked_last->key.data, "c");
    /* Not twice, and nothing that nobody asked for. */
    CHECK_CODE(decided(&w, "set", 2, "b", 0), STET_ECORRUPT);
    CHECK_CODE(decided(&w, "set", 3, "never", 0), STET_ECORRUPT);
    world_end(&w);
}

TEST(I12_an_update_that_was_refused_or_inherited_binds_nobody)
{
    world w;

    world_begin(&w);
    CHECK_OK(asked(&w, "set", "a"));
    CHECK_OK(decided(&w, "set", 1, "a", STET__FACT_REJECTED));
    CHECK_INT(w.j.unasked, 0);
    CHECK(w.j.updates->is_made);
    CHECK_OK(decided(&w, "set", 2, NULL, STET__FACT_INHERITED));
    CHECK_INT(w.j.unasked, 0);
    CHECK(!w.j.updates_last->is_made);
    CHECK_INT(w.j.updates_last->input.len, strlen("answer"));
    CHECK(stet__journal_unasked(&w.j) == NULL);
    world_end(&w);
}

TEST(I12_a_rewind_puts_what_was_made_in_front_of_the_line)
{
    world w;

    world_begin(&w);
    CHECK_OK(asked(&w, "set", "a"));
    CHECK_OK(asked(&w, "set", "b"));
    CHECK_OK(asked(&w, "set", "c"));
    CHECK_OK(asked(&w, "set", "d"));
    CHECK_OK(decided(&w, "set", 1, "a", 0)); /* revision 2 */
    CHECK_OK(decided(&w, "set", 2, "b", 0));
    CHECK_OK(decided(&w, "set", 3, "c", STET__FACT_REJECTED));
    CHECK_INT(w.j.unasked, 2);
    CHECK_OK(stet__journal_rewind(&w.j, 3));
    CHECK_INT(w.j.unasked, 1);
    CHECK_STR(w.j.asked->key.data, "b");
    CHECK(w.j.asked->before != NULL && w.j.asked->cmd == NULL);
    CHECK_STR(w.j.asked->next->key.data, "d");
    CHECK(w.j.asked_last == w.j.asked->next);
    CHECK_STR(w.j.updates->key.data, "a");
    CHECK_STR(w.j.updates_last->key.data, "c");
    CHECK_OK(decided(&w, "set", 2, "b", 0));
    CHECK_STR(w.j.updates_last->key.data, "b");
    CHECK_STR(w.j.asked->key.data, "d");
    world_end(&w);
}
