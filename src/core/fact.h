/* Facts: what happened to a run, as small binary records.
 *
 * One record is
 *     varint length of the rest | version 1 | kind | zigzag varint time | fields … | crc32c, 4 bytes LE
 * where a field is a tag byte (field number * 2, + 1 for bytes) and a zigzag varint, or a varint length
 * and bytes. The checksum covers everything before it, length included. Unknown fields are skipped, so
 * older code reads newer facts of kinds it knows. A record that does not decode is never replayed.
 *
 * Pure: no I/O, no clock.
 */
#ifndef STET__FACT_H
#define STET__FACT_H

#include "util/util.h"

/* Kinds: number, name for people. Numbers are on disk and never change. */
#define STET__FACT_LIST(X)                                                                         \
    /* life and dispatch */                                                                        \
    X(STARTED, 1, "started")                                                                       \
    X(CLAIMED, 2, "claimed")                                                                       \
    X(ATTEMPT_FAILED, 3, "attempt failed")                                                         \
    X(DEFERRED, 4, "deferred")                                                                     \
    X(SUSPENDED, 5, "suspended")                                                                   \
    X(RELEASED, 6, "released")                                                                     \
    X(STUCK, 7, "stuck")                                                                           \
    X(TAKEN, 8, "taken")                                                                           \
    X(COMPLETED, 9, "completed")                                                                   \
    X(FAILED, 10, "failed")                                                                        \
    X(CANCELLED, 11, "cancelled")                                                                  \
    X(EXPIRED, 12, "expired")                                                                      \
    X(AT_RISK, 13, "at risk")                                                                      \
    X(COMPENSATION_FAILED, 14, "compensation failed")                                              \
    /* commands: what the handler asked for */                                                     \
    X(STEP, 20, "step")                                                                            \
    X(STEP_RETRY, 21, "step retry")                                                                \
    X(SLEEP, 22, "sleep")                                                                          \
    X(CALL, 23, "call")                                                                            \
    X(SEND, 24, "send")                                                                            \
    X(AWAKEABLE, 25, "awakeable")                                                                  \
    X(STATE_GET, 26, "state read")                                                                 \
    X(STATE_SET, 27, "state set")                                                                  \
    X(STATE_CLEAR, 28, "state cleared")                                                            \
    X(NOW, 29, "now")                                                                              \
    X(VERSION, 30, "version")                                                                      \
    X(AWAIT, 31, "await")                                                                          \
    X(ANY, 32, "await any")                                                                        \
    X(CHOICE, 33, "choice")                                                                        \
    X(SETTLE, 34, "settle awakeable")                                                              \
    X(SIGNAL, 35, "signal wait")                                                                   \
    X(SIGNAL_SEND, 36, "signal sent")                                                              \
    X(NOTE, 37, "note")                                                                            \
    X(SWITCH, 38, "switch")                                                                        \
    X(ONCE, 39, "once")                                                                            \
    X(LOOK, 40, "look at run")                                                                     \
    X(TOPIC, 41, "event wait")                                                                     \
    X(EMIT, 42, "emit")                                                                            \
    X(ROLLBACK, 43, "rollback")                                                                    \
    X(BOUNDARY, 44, "decision wait")                                                               \
    X(UPDATE, 45, "update") /* topic: the wait it came under; idempotency_key: of what asked for it; inherited: value: its input */ \
    /* notifications: what came from outside, through the inbox */                                 \
    X(TIMER, 60, "timer fired")                                                                    \
    X(CHILD_DONE, 61, "child ended")                                                               \
    X(SETTLED, 62, "awakeable settled")                                                            \
    X(CANCEL, 63, "cancel asked")                                                                  \
    X(DEADLINE, 64, "deadline passed")                                                             \
    X(LOST, 65, "worker lost")                                                                     \
    X(UNSTICK, 66, "unstuck")                                                                      \
    X(SIGNALLED, 67, "signal")                                                                     \
    X(EVENT, 68, "event")                                                                          \
    X(DECIDED, 69, "decision")                                                                     \
    X(ROLLBACK_RETRY, 70, "rollback tried again")                                                  \
    X(ROLLED_BACK, 71, "rolled back")                                                              \
    X(TOLD, 72, "waiters told")                                                                    \
    X(UPDATE_ASKED, 73, "update asked")                                                            \
    /* what operators do, through the inbox */                                                     \
    X(PAUSE, 80, "paused")                                                                         \
    X(RESUME, 81, "resumed")                                                                       \
    X(SKIP, 82, "step skipped")                                                                    \
    X(EDIT, 83, "result replaced")                                                                 \
    X(REWIND, 84, "rewound")                                                                       \
    X(FAIL, 85, "failed by hand")                                                                  \
    /* not a fact: the engine's part of a run's row, in the same encoding */                       \
    X(ROW, 90, "row")                                                                              \
    X(SCHEDULE, 91, "schedule")     /* base.sched; core/schedule.h */                              \
    X(OCCURRENCE, 92, "occurrence") /* base.sched.log */                                           \
    X(QUESTION, 95, "question") /* ask; engine/query.c */                                          \
    X(ANSWER, 96, "answer")     /* answer */                                                       \
    X(HANDLER, 97, "handler")   /* handler; flags OBJECT and SHARED, deadline_ms: its timeout; engine/policy.c */

typedef enum stet__fact_kind {
#define STET__FACT_ENUM(name, number, text) STET__FACT_##name = number,
    STET__FACT_LIST(STET__FACT_ENUM)
#undef STET__FACT_ENUM
} stet__fact_kind;

/* Flags of a fact. */
#define STET__FACT_INHERITED 1u /* copied from the run this one retries */
#define STET__FACT_ABSENT 2u    /* STATE_GET: there was no value */
#define STET__FACT_EXECUTING 4u /* LOST: the worker died while executing this run's code */
#define STET__FACT_IN_BODY 8u   /* LOST: a body had been entered and not recorded */
#define STET__FACT_UNKNOWN 16u  /* LOST: what it was doing did not survive */
#define STET__FACT_DISCARDED 32u /* ROW: taken out of the dead letters */
#define STET__FACT_OBJECT 64u   /* STARTED: of an object */
#define STET__FACT_REJECTED 128u /* SETTLE: with an error; UPDATE: refused, nothing was changed */
#define STET__FACT_INITIAL 512u /* STATE_CLEAR: the entry has an initial value, which must not come back */
#define STET__FACT_SHARED 32768u /* STARTED: beside whoever holds the key; it writes no state */
#define STET__FACT_FORKED 16384u /* STARTED: from a step of `retry_of`, which need not know of it */
#define STET__FACT_SKIPPED 8192u /* STEP: an operator gave its result */
#define STET__FACT_APPROVAL 4096u /* BOUNDARY: approve or reject; else resume */
#define STET__FACT_AUTO 2048u   /* ROLLBACK: because the run failed; the handler does nothing new from here on */
#define STET__FACT_MORE 1024u   /* EMIT: there are waiters it has not come to */
#define STET__FACT_SEEN 65536u  /* SIGNALLED, UPDATE_ASKED: one the generation before had; only its idempotency key counts */
#define STET__FACT_UNTOLD 256u  /* CANCEL: by the caller, who is answered at the end */

/* Fields: type, member, number, default. B is bytes, V a signed number. */
#define STET__FACT_FIELDS(B, V)                                                                    \
    B(name, 1)           /* of the step, sleep, entry …; handler of STARTED, CALL, SEND */         \
    V(occurrence, 2)     /* 1, 2 … among equal kind and name */                                    \
    V(completion, 3)     /* which command a notification answers */                                \
    V(until_ms, 4)       /* fires at, retried at, not before */                                    \
    V(code, 5)                                                                                     \
    V(cause, 6)                                                                                    \
    V(attempt, 7)                                                                                  \
    B(text, 8)                                                                                     \
    B(origin, 9)                                                                                   \
    B(value, 10)                                                                                   \
    B(run, 11)           /* 16 bytes: the other run; the awakeable of AWAKEABLE, SETTLE */         \
    V(number, 12)        /* epoch, inbox sequence, chosen index, version; orders starts, writes of one ms */                        \
    V(flags, 13)                                                                                   \
    B(key, 14)           /* object key */                                                          \
    V(fingerprint, 15)                                                                             \
    B(who, 16)                                                                                     \
    B(group, 17)                                                                                   \
    B(labels, 18)        /* NUL-separated */                                                       \
    B(idempotency_key, 19)                                                                         \
    V(deadline_ms, 20)                                                                             \
    V(attempts_max, 21)                                                                            \
    V(retry_first_ms, 22)                                                                          \
    V(retry_max_ms, 23)                                                                            \
    V(retry_factor, 24)                                                                            \
    V(retry_jitter, 25)                                                                            \
    V(priority, 26)                                                                                \
    V(retention_ms, 27)                                                                            \
    B(parent_step, 28)                                                                             \
    B(child_key, 29)                                                                               \
    B(held, 30)          /* NUL-separated "service/key" this run and its callers hold */           \
    B(retry_of, 31)      /* 16 bytes */                                                            \
    B(retried_by, 32)    /* 16 bytes */                                                            \
    B(where, 33)         /* file:line */                                                           \
    B(recorded, 34)      /* STUCK: what was recorded … */                                          \
    B(asked, 35)         /* … and what the code asked for */                                       \
    B(traceparent, 36)   /* STARTED: as W3C Trace Context writes it … */                           \
    B(tracestate, 37)    /* … and this */                                                          \
    V(replaces, 38)      /* STATE_SET, STATE_CLEAR: stet__fact_writer() of what was there before this run wrote */ \
    B(topic, 39)         /* SIGNAL: the signal, if the wait has a name of its own */               \
    V(took_ms, 59)       /* STEP, STEP_RETRY: how long the body ran */                             \
    V(generation, 40)    /* STARTED: how often it began anew before; ROW: the same … */            \
    V(since, 46)         /* … STARTED: the revision it stands at */                                \
    V(taken, 47)         /* … how far the inbox was taken by then */                               \
    V(epoch, 48)         /* … and of the claim that ended the generation before */                 \
    V(created_ms, 49)    /* … when the run itself began */                                         \
    B(schedule, 60)      /* STARTED: the schedule that did … */                                    \
    V(planned_ms, 61)    /* … and for which time; SCHEDULE, OCCURRENCE: see core/schedule.h */     \
    B(cron, 62)                                                                                    \
    B(zone, 63)                                                                                    \
    V(every_ms, 64)                                                                                \
    V(at_ms, 65)                                                                                   \
    V(after_ms, 66)                                                                                \
    V(overlap, 67)                                                                                 \
    V(missed, 68)                                                                                  \
    V(missed_max, 69)                                                                              \
    V(grace_ms, 70)                                                                                \
    V(look_ms, 71)                                                                                 \
    V(waiting_ms, 72)                                                                              \
    V(fired, 73)                                                                                   \
    V(skipped, 74)                                                                                 \
    V(logged, 75)                                                                                  \
    V(updated_ms, 76)                                                                              \
    V(fired_ms, 77)                                                                                \
    V(inherited, 78)     /* ATTEMPT_FAILED, ROLLBACK (AUTO): how many inherited steps the handler had come to */

typedef struct stet__fact {
    uint64_t        revision; /* set by who reads or appends it, not encoded */
    stet__fact_kind kind;
    int64_t         time_ms;
#define STET__FACT_B(member, number) stet_bytes member;
#define STET__FACT_V(member, number) int64_t member;
    STET__FACT_FIELDS(STET__FACT_B, STET__FACT_V)
#undef STET__FACT_B
#undef STET__FACT_V
} stet__fact;

/* Is it something a handler asked for? */
static inline bool
stet__fact_is_command(stet__fact_kind kind)
{
    return kind >= STET__FACT_STEP && kind < STET__FACT_TIMER && kind != STET__FACT_CHOICE;
}

/* Does it change what is recorded, so that an execution that has seen it must begin anew? */
static inline bool
stet__fact_is_rewrite(stet__fact_kind kind)
{
    return kind == STET__FACT_SKIP || kind == STET__FACT_EDIT || kind == STET__FACT_REWIND;
}

/* "step" for STET__FACT_STEP; NULL for a number nobody defined. */
const char *stet__fact_kind_name(stet__fact_kind kind);

/* Append the record to b (b->failed when out of memory). Empty bytes with NULL data and zero numbers
 * take no room; empty bytes with non-NULL data are kept. */
void stet__fact_encode(stet__buf *b, const stet__fact *fact);

/* Decode the record at the front of *in and move *in behind it. Bytes point into *in.
 * STET_END, *in is empty; STET_ECORRUPT (with text): bad length, checksum, version or field; *in is then
 * moved behind the record if its length can be believed, else emptied. */
int stet__fact_decode(stet__fact *fact, stet_bytes *in);

stet_id stet__fact_id(stet_bytes bytes); /* zero unless 16 bytes */

/* Which write of a state entry, in 55 bits: the fact `revision` of `run`. Never 0, which says that it is not known. A
 * zero run: nobody, there is no entry. */
int64_t stet__fact_writer(stet_id run, uint64_t revision);

static inline stet_bytes
stet__id_bytes(const stet_id *id)
{
    stet_bytes b = { id->bytes, sizeof id->bytes };

    return b;
}

#endif
