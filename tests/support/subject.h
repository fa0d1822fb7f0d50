/* A run and its journal in hand: facts are applied to them one by one, with no engine around. */
#ifndef SUBJECT_H
#define SUBJECT_H

#include "core/journal.h"
#include "core/run.h"
#include "platform/platform.h"
#include "test.h"

typedef struct subject {
    stet__arena   arena;
    stet__run     run;
    stet__journal journal;
} subject;

static inline void
subject_init(subject *s)
{
    stet__arena_init(&s->arena, &stet__platform_real()->alloc);
    stet__run_init(&s->run, &s->arena, (stet_id){ { 1 } });
    stet__journal_init(&s->journal, &s->arena, &stet__platform_real()->alloc);
}

static inline void
subject_free(subject *s)
{
    stet__journal_free(&s->journal);
    stet__arena_free(&s->arena);
}

static inline int
subject_apply(subject *s, stet__fact fact)
{
    int err;

    if (fact.revision == 0)
        fact.revision = s->run.journal + 1;
    if (fact.time_ms == 0)
        fact.time_ms = 1000 + (int64_t)fact.revision;
    if ((err = stet__run_apply(&s->run, &fact)) != STET_OK)
        return err;
    return stet__journal_apply(&s->journal, &fact);
}

#define FACT(k, ...) ((stet__fact){ .kind = STET__FACT_##k, __VA_ARGS__ })
#define TEXT(text) ((stet_bytes){ (text), sizeof(text) - 1 })
#define APPLY(s, ...) CHECK_OK(subject_apply((s), FACT(__VA_ARGS__)))
#define REFUSED(s, ...)                                                                            \
    do {                                                                                           \
        stet_status before_ = (s)->run.status;                                                     \
        uint64_t    journal_ = (s)->run.journal;                                                   \
        CHECK_CODE(subject_apply((s), FACT(__VA_ARGS__)), STET_ECORRUPT);                          \
        CHECK_INT((s)->run.status, before_);                                                       \
        CHECK_INT((s)->run.journal, journal_);                                                     \
    } while (0)

static inline void
subject_start(subject *s)
{
    subject_init(s);
    APPLY(s, STARTED, .name = TEXT("shop.order"), .value = TEXT("{}"), .attempts_max = 3,
          .retry_first_ms = 1000, .retry_max_ms = 30000, .retry_factor = 200, .retry_jitter = 25);
}

static inline void
subject_claim(subject *s)
{
    APPLY(s, CLAIMED, .number = (int64_t)s->run.epoch + 1);
}

static inline stet__cmd *
ask(subject *s, stet__fact_kind kind, const char *name)
{
    const stet__cmd *recorded;
    stet__cmd       *cmd;
    uint64_t         occurrence;

    CHECK_OK(stet__journal_ask(&s->journal, kind, name, 0, &cmd, &occurrence, &recorded));
    CHECK(cmd == NULL || cmd->occurrence == occurrence);
    return cmd;
}

static inline void
notify(subject *s, stet__fact fact)
{
    CHECK_OK(stet__run_apply_inbox(&s->run, &fact));
    CHECK_OK(stet__journal_apply(&s->journal, &fact));
}

static inline void
subject_roll_back(subject *s)
{
    APPLY(s, ROLLBACK, .name = TEXT("rollback"), .occurrence = 1, .code = STET_ESTEP,
          .text = TEXT("no stock"), .flags = STET__FACT_AUTO);
}

#endif
