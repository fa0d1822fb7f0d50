/* The engine: what connects handlers, the executor and a store.
 *
 * One lock, engine->lock, guards everything that several threads see: contexts and their states, the
 * map of claimed runs, waiters, counters. The committer has a lock of its own for its queue; it is taken
 * after engine->lock where both are needed. Results of units are delivered in batches with engine->lock
 * held, on the committer's thread, so their callbacks must be short and must not block.
 *
 * Threads: n slots (exec), one committer, one keeper (timers, dispatch, sweeps), one renewer (lease).
 */
#ifndef STET__ENGINE_H
#define STET__ENGINE_H

#include <stdatomic.h>

#include <stet/operate.h>
#include <stet/schedule.h>

#include "core/journal.h"
#include "core/run.h"
#include "exec/context.h"
#include "platform/platform.h"
#include "queue/queue.h"
#include "store/store.h"

/* Spaces of values. */
#define STET__SPACE_STATE "state"  /* service NUL key NUL entry -> bytes */
#define STET__SPACE_CLEARED "cleared" /* the same key: an entry of the initial state that was cleared */
#define STET__SPACE_IDEM "idem"    /* handler NUL key NUL idempotency key -> run */
#define STET__SPACE_CHILD "child"  /* parent, step NUL child key -> child, handler */
#define STET__SPACE_AWAKEABLE "awk" /* awakeable -> fact SETTLED: run, completion; settled: how, when */
#define STET__SPACE_LABEL "label"  /* "name=value" NUL run -> nothing */
#define STET__SPACE_RETRY "retry"  /* run -> the run that retries it */
#define STET__SPACE_DISCARD "discard" /* run -> who */
#define STET__SPACE_TOPIC "topic"  /* topic NUL run completion (8 bytes, big endian) -> fact TOPIC: who waits for events */
#define STET__SPACE_BOUNDARY "boundary" /* run -> fact BOUNDARY: waits for a person; DECIDED: what was decided last */
#define STET__SPACE_UPDATE "update" /* run, idempotency key of an update -> fact UPDATE: what came of it */
#define STET__SPACE_ASK "ask"      /* ID of a question -> fact QUESTION, until a worker takes it; follows from nothing */
#define STET__SPACE_ANSWER "answer" /* the same -> fact ANSWER, until who asked has it */
#define STET__SPACE_HANDLER "handler" /* "service.handler" -> HANDLER: what the worker that started last says of it; policy.c */
#define STET__SPACE_MEND "mend"    /* put by the store: projections it lost and the engine has to rebuild */

/* Baselines: what facts said that retention removed, and what is said about ended runs, which take no facts. */
#define STET__SPACE_BASE_STATE "base.state" /* as STATE -> the fact that wrote it last; run: writer, completion: revision */
#define STET__SPACE_BASE_CHILD "base.child" /* as CHILD, of children that were removed before their parent */
#define STET__SPACE_BASE_DISCARD "base.discard" /* as DISCARD */
#define STET__SPACE_BASE_UPDATE "base.update" /* as UPDATE, of generations that are over */
#define STET__SPACE_BASE_ONCE "base.once" /* key of stet_once() -> the run that was first */
#define STET__SPACE_BASE_EMIT "base.emit" /* ID of an emission -> fact EMIT: how far it came; topic.c */
#define STET__SPACE_BASE_PAUSED "base.paused" /* handler or service -> PAUSE: who and why */
#define STET__SPACE_BASE_SCHED "base.sched" /* name -> SCHEDULE; run: this one of that name, revision: its edition */
#define STET__SPACE_BASE_SCHED_LOG "base.sched.log" /* name NUL planned time, 8 bytes big endian -> OCCURRENCE */
#define STET__SPACE_BASE_AUDIT "base.audit" /* "on" -> which session tells the audit hook: worker, session; mirror.c */
#define STET__SPACE_BASE_TOLD "base.told" /* run -> the inbox entry up to which it was; revision: the same of its facts */
#define STET__SPACE_BASE_UNTOLD "base.untold" /* run, generation (8 bytes, big endian) -> a bundle of it: it is over, not told */
/* All that a run needs and its own facts do not say: what a move copies beside facts. A new space goes in here. */
#define STET__SPACES_BASE                                                                          \
    { STET__SPACE_BASE_STATE, STET__SPACE_BASE_CHILD, STET__SPACE_BASE_DISCARD, STET__SPACE_BASE_ONCE, \
      STET__SPACE_BASE_EMIT, STET__SPACE_BASE_SCHED, STET__SPACE_BASE_SCHED_LOG, STET__SPACE_BASE_PAUSED, \
      STET__SPACE_BASE_AUDIT, STET__SPACE_BASE_TOLD, STET__SPACE_BASE_UPDATE, STET__SPACE_BASE_UNTOLD }
/* When to look at which schedule; follows from those, and from runs of them that ended. See schedule.h. */
#define STET__SPACE_SCHED_DUE "sched.due" /* 8 bytes big endian, name -> nothing; of a run that ended: NUL and its ID behind it */
#define STET__SPACE_SCHED_FN "sched.fn"   /* function NUL, the same */
/* What follows from facts and is of one run. */
#define STET__SPACES_RUN                                                                           \
    { STET__SPACE_IDEM,  STET__SPACE_CHILD, STET__SPACE_AWAKEABLE,                                 \
      STET__SPACE_LABEL, STET__SPACE_RETRY, STET__SPACE_DISCARD, STET__SPACE_TOPIC, \
      STET__SPACE_BOUNDARY, STET__SPACE_UPDATE }
/* What a move takes over as it is, whatever facts say: what objects hold, and what workers said of their handlers. That
 * makes no store one in which there is something to move, or that cannot be moved into. */
#define STET__SPACES_STATE { STET__SPACE_STATE, STET__SPACE_CLEARED, STET__SPACE_HANDLER }
#define STET__SPACE_BASE_MOVE "base.move" /* "stop" -> the other store, see stop.c; "from" -> where it was moved from */

/* Completions of timers that answer no command; those of commands are revisions >= 2. */
#define STET__TIMER_DEADLINE 0u
#define STET__TIMER_VISIBLE 1u

/* When a run is due that must not be woken, claimed or requeued, whatever happens: the end of the year 9999. */
#define STET__HELD_MS 253402300799999

typedef struct stet__work stet__work;
typedef struct stet__claim stet__claim;
typedef struct stet__handler stet__handler;

/* ---- a unit being built, submitted, answered (work.c) --------------------------------------------- */

typedef struct stet__started { /* a run created by this unit */
    struct stet__started *next;
    stet_id               run;
    stet_bytes            facts; /* its first facts, in the unit's arena */
} stet__started;

/* Called once, on the committer's thread with engine->lock held. The unit is freed afterwards unless
 * it returns true (it took it back). */
typedef bool (*stet__work_fn)(stet_engine *e, stet__work *w, const stet_outcome *outcome);

struct stet__work {
    stet__work    *next;
    stet_engine   *engine;
    stet_unit      unit;
    stet__arena    arena;
    stet_cond     *conds;
    stet_op       *ops;
    size_t         cap_conds, cap_ops;
    stet__buf      facts;      /* journal facts of `run` */
    stet_id        run;
    uint64_t       first;      /* revision of the first fact */
    uint32_t       n_facts;
    stet_claimer   claimer;
    _Atomic size_t *room;      /* where the runs it may be granted are counted */
    size_t         asked;      /* how many they are */
    stet__started *started;
    stet_id        ahead;      /* a run that is executed already, in the belief that this unit grants it */
    bool           has_ahead;
    bool           must_wait;  /* its run is not to be begun ahead */
    bool           has_state;  /* it writes object state */
    bool           is_left;    /* a run it wakes is left to anybody: there was no room for it when the unit was made */
    bool           has_event;  /* those who subscribe may hear of it */
    bool           is_relying; /* its claim has seen what other units write; see ahead.c */
    uint32_t       gather_round; /* of its run, if a commit waits for it; else 0 */
    bool           has_read;   /* it holds only if what its claim has read ahead does */
    bool           is_resume;  /* it takes its own run, which is executed already; see stet__claim_resume() */
    int64_t        timer_ms;   /* earliest timer or due time it sets, or STET_NEVER */
    int64_t        sched_ms;   /* the earliest look at a schedule it asks for, or STET_NEVER */
    bool           is_sched_elsewhere; /* … and it goes by a function that is not here */
    bool           is_client;  /* somebody waits for it: report a failing store instead of trying on */
    bool           is_unknown; /* it was with the store and the outcome is not known: submit until it is */
    bool           is_sealed;
    void         (*drop)(void *arg); /* NULL, or called when the unit goes */
    void          *drop_arg;
    uint32_t       guard;      /* index + 1 of the condition that the store is open for work; 0: it has none */
    stet__work_fn  done;
    void          *arg;
};

typedef struct stet__works { /* units to be used again */
    stet__mutex lock;        /* the innermost */
    stet__work *first;
    size_t      n;
} stet__works;

int         stet__works_init(stet_engine *e);
void        stet__works_free(stet_engine *e);
stet__work *stet__work_new(stet_engine *e, stet__work_fn done, void *arg); /* NULL: out of memory */
void        stet__work_free(stet__work *w);
/* Those of a batch; some may be NULL. */
void        stet__work_free_all(stet_engine *e, stet__work **works, size_t n);
/* NULL: out of memory. The pointer is valid until the next one is added. */
stet_cond *stet__work_cond(stet__work *w, stet_cond_kind kind, stet_id run);
stet_op   *stet__work_op(stet__work *w, stet_op_kind kind, stet_id run);
/* Copies into the unit's arena. */
bool       stet__work_bytes(stet__work *w, stet_bytes *out, stet_bytes from);
/* Encode a fact into the unit's arena, for inboxes and values. */
bool       stet__work_fact(stet__work *w, stet_bytes *out, const stet__fact *fact);
/* A timer that fires at fire_ms, and the end of one. False: out of memory. */
bool       stet__work_timer(stet__work *w, stet_id run, int64_t fire_ms, uint64_t completion);
bool       stet__work_timer_gone(stet__work *w, stet_id run, int64_t fire_ms, uint64_t completion);
/* Wake the run (STET_OP_RUN_WAKE), for this engine if it has room. False: out of memory. */
bool       stet__work_wake(stet__work *w, stet_id run, stet_status status, uint32_t flags);
bool       stet__work_wake_locked(stet__work *w, stet_id run, stet_status status, uint32_t flags); /* lock held */
/* Fix the facts in place: the buffer does not move any more. */
void       stet__work_seal(stet__work *w);
/* Lock held: does this engine execute runs, and may it now? A worker that may begin nothing and claims all the same
 * would give each run back and be granted it again, without end. */
bool stet__may_claim(stet_engine *e);
/* Lock held: runs there is room for, beside those we have and those that units on their way may be granted. */
size_t stet__room(stet_engine *e);
/* The unit may be granted n runs more, or has got them (n < 0). */
void stet__work_ask(stet__work *w, int n);
/* Lock held. The claimer of this engine, if it wants one more run now; else NULL. */
/* Fill the unit's claimer: what this engine serves, for this session. */
const stet_claimer *stet__work_claims(stet__work *w, uint64_t session);
const stet_claimer *stet__work_claimer(stet_engine *e, stet__work *w);

/* ---- the committer (committer.c) ------------------------------------------------------------------ */

/* Rounds are a millisecond apart and a commit waits for one of them that long: more than two need not be told apart. */
#define STET__GATHER_ROUNDS 4

typedef struct stet__committer {
    stet_engine  *engine;
    stet__mutex   lock;
    stet__cond    cond;
    stet__thread *thread;
    atomic_bool   has_thread; /* it sees to the queue; helpers ask without a lock */
    stet__work   *first, *last;
    atomic_size_t n_queued;   /* between them; those who have nothing there ask without a lock */
    uint64_t      seq;
    bool          is_busy;    /* a batch is with the store */
    uint64_t      busy_seq;   /* of the first unit in it */
    bool          is_closing;
    bool          is_waiting; /* the thread sleeps */
    bool          is_patient; /* until what gathers is there; see committer_gathers() */
    bool          is_growing; /* what gathers is put behind the batch that is with the store … */
    uint32_t      grow_round; /* … if it was woken with it: those that are woken later have the next one … */
    int64_t       grow_until_us; /* … and no longer than this */
    size_t        n;          /* units with the store */
    stet_unit    *units;
    stet_outcome *outcomes;
    stet__work  **batch;
    size_t        cap;
} stet__committer;

int  stet__committer_init(stet_engine *e);
int  stet__committer_start(stet_engine *e);
void stet__committer_close(stet_engine *e); /* commits what is queued, then ends */
void stet__committer_free(stet_engine *e);
/* After a failed commit: may work be begun again? Asks the store, and reopens it if it must. */
bool stet__committer_heal(stet_engine *e);
/* stet_store.more. Runs on: the committer's thread, inside the store's commit. */
size_t stet__committer_more(void *arg, const stet_unit *units, size_t n);
/* A call to the store failed with this, and stet_last_error() says how. "FMT: SAID", about a run or not. */
void stet__log_store(stet_engine *e, const stet_id *run, const char *handler, int err, const char *fmt, ...) STET_PRINTF(5, 6);
void stet__store_back(stet_engine *e); /* it took something */
/* The store's own trouble, which passes: nothing was wrong with what was asked of it. */
bool stet__store_is_away(int err);
/* Queue a unit; follow with one of the next two. */
void stet__submit(stet_engine *e, stet__work *w);
/* Let the committer's thread see to the queue. */
void stet__committer_kick(stet_engine *e);
/* Commit what is queued here and now, unless somebody is at it. True: something was committed. */
bool stet__committer_help(stet_engine *e);
uint64_t stet__committer_count(stet_engine *e); /* of units there were */
/* Submit and wait for the outcome. STET_OK: applied; STET_ECONFLICT with *cond; or why not. */
int  stet__commit_sync(stet_engine *e, stet__work *w, uint32_t *cond);
/* The same for several (NULL ones are skipped), with a result for each. Takes the works, also on failure. */
int  stet__commit_all(stet_engine *e, stet__work **works, size_t n, int *results, uint32_t *conds);
/* Leave the sentence for a result that is neither applied nor a conflict; returns it. */
int  stet__commit_failed(stet_engine *e, int result);
/* STET_EUNCERTAIN, for who knows better than that what to do about it. */
int  stet__commit_unknown(stet_engine *e, const char *what_to_do, ...) STET_PRINTF(2, 3);

/* Who wrote a state entry. */
typedef struct stet__seen {
    stet_id  run;      /* zero: nobody, it is absent */
    uint64_t revision;
    uint64_t seq;      /* of the unit that does, if that is still on its way */
} stet__seen;
#define STET__RELIED_MAX 4

/* ---- a claim: the engine's part of a context (host*.c) ---------------------------------------------- */

struct stet__claim {
    stet_engine     *engine;
    stet_ctx        *ctx;
    stet_id          run;
    uint64_t         session, epoch;
    bool             is_owned;      /* shared: the claim is ours as far as we know */
    bool             is_new;        /* the CLAIMED fact of this epoch is not written yet */
    int64_t          begun_ms;      /* … and tells this time; 0: when it is written */
    atomic_bool      is_guess;      /* executed ahead of the unit that gives it to us; see ahead.c */
    uint64_t         relied[STET__RELIED_MAX]; /* … units on their way whose writes it has seen */
    size_t           n_relied;
    atomic_bool      is_void;       /* … and one of them was refused: nothing of it may be applied */
    atomic_bool      is_resumed;    /* executed by its timer ahead of the unit that takes the run; see stet__claim_resume() */
    atomic_bool      is_soft;       /* the store may lose it: no body before a unit of it is durable; see stet_grant */
    bool             must_resume;   /* … and has not begun that unit yet */
    atomic_bool      is_gathered;   /* … and the next commit waits for it */
    uint32_t         gather_round;  /* … with those that were woken together */
    int64_t          timer_ms;      /* … the timer */
    uint64_t         timer_completion;
    stet__handler   *handler;
    atomic_bool      is_refused;    /* a unit of it was refused: our picture of the journal is not what is stored */
    bool             is_too_big;    /* … because it was more than the store takes: so would be the next */
    bool             is_detached;   /* another incarnation of the run took its place in the map */
    bool             has_lane;      /* it holds a lane that it must give back */
    stet__work      *open;          /* facts not yet submitted */
    _Atomic uint64_t submitted, answered;
    uint64_t         read_until;    /* units submitted up to the last one with has_read */
    stet_bytes       preload;       /* its facts, if it was started here; freed with the claim */
    stet_bytes       news;          /* the inbox entry that woke it, if that was put here; freed with the claim */
    uint64_t         news_seq;      /* its sequence */
    /* Undo of the tail of a conditional unit. */
    const stet__work *marked;       /* the unit the rest is about: another one is not cut by it */
    stet__run        run_before;
    size_t           mark_facts, mark_ops, mark_conds;
    uint32_t         mark_n;
    bool             mark_is_new;
    stet__work      *returned;      /* a conditional unit that was refused: to be used again */
    /* Ending. */
    enum { STET__END_NONE, STET__END_ASKED, STET__END_AGAIN, STET__END_DONE } end;
    bool             is_starved;    /* its end found no memory; stet__end_again() wakes it */
    stet__fact_kind  verdict;       /* decided before executing: STUCK, CANCELLED, EXPIRED; 0: none */
    int              crumb;         /* its own in `crumbs`, or -1 */
    stet_crumb      *crumbs;        /* of the session it was claimed in; the engine's change with a new one */
    stet_attempt    *spent;         /* recorded bodies of futures whose crumbs can go once that is durable */
    stet_attempt    *broken;        /* failed ones without a policy: recorded only by the end of the attempt */
    stet_attempt    *unrecorded;    /* bodies whose record could not be made */
    bool             is_unrecorded; /* the body in the claim's own crumb has ended and is on no record yet */
    uint64_t         revision;      /* … its record, if it has one, is not behind this */
    uint64_t         stored;        /* so far what it recorded is durable */
    bool             is_unsure;     /* … and nobody could say whether more is */
    bool             has_broken;    /* so is the body in the claim's own crumb, or one in `broken` */
    uint32_t         wanted;        /* it is parked and asked for by name: 1; 2, and again if that is in vain */
    uint32_t         parked_row;    /* position in the list of parked ones, 0: not in it */
    stet__claim     *newer, *older; /* parked, by age */
    int64_t          parked_us;
};

extern const stet__host_ops stet__host;
/* The claim's open unit, made if there is none. NULL: out of memory. */
stet__work *stet__host_open(stet__claim *claim);

/* Wake those whose end found no memory, if it is time; when it will be. Lock held. */
int64_t stet__end_again(stet_engine *e, int64_t now_us);

/* With the lock held: it is not parked any more. */
void stet__unpark(stet_engine *e, stet__claim *claim);

/* claim.c. With the lock held: the store gave us this run. */
void stet__grant(stet_engine *e, const stet_grant *grant, const stet__work *from);
/* With the lock held: a timer is due. If its run is parked here it goes on at once; what it records first also takes
 * the run and the timer, on condition that nothing has happened to the run since it was parked. Otherwise, and when
 * that unit is refused, the incarnation is dropped and the timer is fired as that of any other run. */
typedef enum stet__resume { STET__RESUME_NO, STET__RESUME_NOW, STET__RESUME_BEGUN } stet__resume;
stet__resume stet__claim_resume(stet_engine *e, const stet_timer *timer);
void         stet__claim_drop(stet_engine *e, stet__claim *claim);
void         stet__claim_gathered(stet__claim *claim); /* no commit has to wait for it any more */
/* With the lock held: the claim is not ours any more; counted out of in_flight once. */
void stet__disown(stet__claim *claim);
/* With the lock held: something was put into this run's inbox. */
void stet__poke(stet_engine *e, stet_id run);
/* With the lock held: let go what was parked too long, or is too much. */
void stet__parked_trim(stet_engine *e, int64_t now_us);
bool stet__replay_elsewhere(void *engine, stet_ctx *c);

/* Lock held: execute a run ahead of its first grant. Takes the preload if true. */
bool stet__claim_guess(stet_engine *e, stet_id run, stet_bytes preload);

/* ---- working ahead of the flush (ahead.c) ------------------------------------------------------------ */

void stet__ahead_init(stet_engine *e);
void stet__ahead_free(stet_engine *e);
/* Submit the unit of a start; if its run is likely to be given to us and to end quickly, begin it now: true. */
bool stet__submit_start(stet_engine *e, stet__work *w);
/* All that follow: lock held. The first facts of a run that waited for its key if we have them (now the caller's). */
stet_bytes stet__ahead_take(stet_engine *e, stet_id run);
/* A run that holds this key is about to submit its last unit: begin the next one, which that unit grants. */
void stet__ahead_end(stet_engine *e, stet__work *last, const char *lane, const char *handler);
/* A handler begun ahead has to wait for the store. */
void stet__ahead_in_vain(stet__handler *h);
/* A unit with has_state was submitted: what it writes. */
void stet__ahead_written(stet_engine *e, const stet__work *w);
/* A state entry as far as it is known here, and what that relies on. False: not known. */
bool stet__ahead_read(stet_engine *e, stet__arena *arena, stet_bytes key, stet__seen *seen, stet_bytes *value);
void stet__ahead_has_read(stet_engine *e, stet_bytes key, const stet__seen *seen, stet_bytes value);
/* What became of a unit. */
void stet__ahead_settled(stet_engine *e, stet__work *w, const stet_outcome *outcome);

/* ---- waiting for runs (wait.c) --------------------------------------------------------------------- */

typedef struct stet__waiter {
    struct stet__waiter *next;
    stet__cond           cond;
    stet_id              run;
    bool                 is_done;
    bool                 must_look; /* something may have changed elsewhere */
    int64_t              least_us;  /* between looks that hints ask for; grows with them, 0: the least */
    bool                 needs_slot; /* a body waits for a run that this engine may have to execute */
    stet_result          result;
    int                  answer;
} stet__waiter;

typedef struct stet__recent {
    stet_id     run;
    stet_result result;
    int         answer;
} stet__recent;
#define STET__RECENT_MAX 2048u
#define STET__RECENT_BYTES_MAX 4096u

/* With the lock held: tell the waiters how it ended. */
void stet__answer(stet_engine *e, const stet__run *run);
/* With the lock held: waiters look again at runs they cannot hear about. */
void stet__waiters_look(stet_engine *e);
/* The same for those of one run (NULL: all), the less often the more often it is asked for. */
void stet__waiters_look_at(stet_engine *e, const stet_id *run);

/* ---- queries (query.c) ------------------------------------------------------------------------------ */

typedef struct stet__asker { /* waits for an answer that somebody puts into the store */
    struct stet__asker *next;
    stet__cond          cond;
    bool                must_look;
} stet__asker;
/* Call `look` until it gives something else than STET_EOPEN, or a passing failure, or it is time: then that. */
int  stet__ask_wait(stet_engine *e, int64_t until_us, int (*look)(stet_engine *e, void *arg), void *arg);
/* Give out what a fact has: its value (reply, or NULL), or its code with "RUN: WHAT NAME: text". */
int  stet__answer_give(stet_bytes *reply, const stet_run_id *run, const char *what, const char *name, const stet__fact *f);
void stet__askers_look(stet_engine *e); /* lock held: there may be answers */
void stet__query_sweep(stet_engine *e); /* forget what nobody waits for any more */
/* The thread that answers questions of other processes. Lock held: something changed, or it is time to look anyway; */
void stet__answerer_hint(stet_engine *e, int64_t now_us, bool is_hint);
void stet__answerer_look(stet_engine *e, int64_t now_us); /* … look now (at next_questions_us); */
void stet__answerer_close(stet_engine *e); /* … when the keeper is gone, lock not held. */

/* ---- handlers -------------------------------------------------------------------------------------- */

struct stet__handler {
    char           *name; /* "service.handler" */
    stet_handler_fn fn;
    bool            is_object;
    stet_retry      retry;
    int64_t         timeout_ms, retention_ms; /* 0: none set */
    bool            rolls_back;
    bool            is_shared;
    stet_classify_fn classify;
    void            *classify_arg;
    char           *description, *category, *default_input; /* or NULL */
    stet_sample    *samples;   /* or NULL; copied, ended by { 0 } */
    struct stet__service *service;
    atomic_int      patience; /* so many starts are not begun ahead: it had to wait for the store */
};

/* What a start has to know of a handler. Zeros: it says nothing about that. */
typedef struct stet__policy {
    bool       is_known; /* else nobody told of it, and the rest is zero */
    bool       is_object, is_shared;
    stet_retry retry;
    int64_t    timeout_ms, retention_ms;
} stet__policy;

typedef struct stet__service {
    struct stet__service *next;
    char                 *name;
    bool                  is_object;
    stet_entry           *initial; /* copied, ended by { 0 } */
} stet__service;

typedef struct stet__sched_function { /* a user's, for next times */
    struct stet__sched_function *next;
    char                        *name;
    stet_schedule_fn             fn;
    void                        *arg;
} stet__sched_function;

typedef enum stet__life { STET__LIFE_OPEN, STET__LIFE_STARTED, STET__LIFE_STOPPING, STET__LIFE_STOPPED } stet__life;

/* Whose a crumb is. The crumb itself belongs to the slot that writes it. */
typedef struct stet__crumb_use {
    bool     is_used;
    stet_id  run;
    uint64_t epoch;
} stet__crumb_use;

/* What an engine serves now: its handlers but for those that are paused. Never changed once it is published. */
typedef struct stet__served {
    struct stet__served *older;
    size_t               n;
    const char          *names[];
} stet__served;

#define STET__WANTED_MAX 16u

/* A wait for an event, by its run and the revision of its record. */
#define STET__LATE_WAITS 64u
#define STET__TOPIC_LOT  256u
typedef struct stet__late_wait {
    stet_id  run;
    uint64_t completion;
} stet__late_wait;

struct stet_engine {
    stet__platform *p;
    stet_store     *store;
    stet_options    config; /* every value resolved */
    char           *url;
    char            worker[128], host_name[64];
    int64_t         process;
    stet__mutex     lock;
    stet__life      life;
    bool            is_drained;      /* stopping: nothing executes any more, and nothing begins */
    atomic_bool     has_threads;
    bool            is_polled; /* driven by stet_engine_poll */
    _Atomic(const void *) poller; /* the thread that does: parked handlers are its */

    stet__service  *services;
    stet__handler  *handlers;
    size_t          n_handlers, cap_handlers;
    _Atomic(stet__served *) served; /* for the claimer */
    uint64_t        hold_begun, hold_heeded; /* looks at what is paused: the last one, and the last that counted */
    stet__sched_function *sched_functions; /* … as these are */

    stet__committer committer;
    stet__exec      exec;
    stet__map       claims;     /* run -> stet_ctx: at most one incarnation */
    _Atomic size_t  in_flight;  /* claims that are ours */
    _Atomic size_t  asked;      /* runs that units on their way may be granted */
    _Atomic size_t  gathering;  /* runs woken by timers whose first unit is still to come … */
    _Atomic size_t  gathering_of[STET__GATHER_ROUNDS]; /* … of each round of timers, modulo */
    _Atomic uint32_t gather_round; /* the last one */
    _Atomic int64_t gather_until_us; /* no commit waits for them beyond this */
    stet__claim    *parked_newest, *parked_oldest;
    size_t          n_parked;
    stet_subscription *subscriptions; /* all that listen; subscribe.c */
    stet__map       waiters;    /* run -> list of stet__waiter */
    stet__asker    *askers;     /* all that wait for answers */
    size_t          n_waiting_slots; /* slots whose bodies wait for runs that need one of them */
    stet__map       recent_by_run; /* run -> index + 1 in recent */
    stet__recent   *recent;
    size_t          recent_n, recent_next; /* how many were ever filled; the next one is the oldest, or one more */

    /* session */
    _Atomic uint64_t session;   /* 0: none */
    stet_id          worker_id;
    _Atomic int64_t  lease_us;  /* our lease surely holds until here, by our own clock */
    stet_crumb      *crumbs;
    size_t           n_crumbs, crumb_next;
    stet__crumb_use *crumb_uses;
    stet__thread    *renewer;
    stet__cond       renew_cond;
    bool             is_renewer_closing;

    /* keeper */
    stet__thread    *keeper;
    stet__cond       keeper_cond;
    uint64_t         n_pokes;   /* who polls waits only if there was none since it looked */
    bool             is_keeper_closing;
    bool             has_hint;       /* another process committed */
    bool             wants_claim;    /* look for due runs */
    stet_id          wanted[STET__WANTED_MAX]; /* runs that are parked here and were woken elsewhere */
    size_t           n_wanted;
    bool             is_claiming;
    bool             has_backlog;    /* due runs were left because we were full */
    int64_t          next_timer_ms, next_due_ms; /* by the store's clock; STET_NEVER: none known */
    int64_t          behind_ms;      /* how long until the next claim after one in vain; grows */
    size_t           firing;         /* timers on their way to the store */
    stet__map        unread;         /* runs whose timers cannot be fired because they cannot be read; the keeper's own */
    int64_t          unread_until_us;
    int64_t          next_sched_ms;  /* when to look at schedules, by the store's clock */
    int64_t          sched_looked_us; /* when they were looked at last, by ours */
    size_t           sched_firing;   /* their units on the way */
    int64_t          next_poll_us, next_sweep_us, next_purge_us, next_maintain_us, poll_us;
    bool             is_stirred;     /* another process committed since the last sweep */
    uint64_t         stirred_seen;   /* units of our own until the last sweep */
    int64_t          quiet_left, quiet_every; /* sweeps until one that looks for all, and how many there were before it */
    stet__thread    *answerer;       /* NULL: nobody asked yet; query.c for these */
    stet__cond       answer_cond;
    bool             is_answerer_closing, has_questions;
    int64_t          next_questions_us, questions_looked_us;
    uint64_t         doctor_hash;    /* of what the store's doctor said last; doctor.c */
    int64_t          end_again_us; /* when ends that found no memory are tried again; 0: there are none */
    stet_id          purge_after;    /* retention: cursor over old runs */
    stet_id          emit_after;     /* cursor over records of emissions; zero: from the oldest on */
    int64_t          purge_began_ms, purge_oldest_ms; /* its round: when, and the oldest run seen */
    bool             purge_removes, purge_has_removed; /* this round something, the one before */
    _Atomic size_t   purge_held;     /* ended runs that only wait for the audit hook, seen by the last round */
    size_t           purge_holds;    /* … by this one, so far */
    struct stet__mirror *mirror;     /* NULL: no audit hook; mirror.c */
    size_t           purge_bases;    /* of those that may go, how many earlier rounds looked at */
    stet__cond       store_cond;     /* signalled when a unit was answered, for the keeper and stop */
    bool             is_watching;
    stet_hint_port  *hint;           /* hint.c for these three */
    bool             hint_tells;     /* it has to be told after commits: the store does not do it by itself */
    int64_t          hint_paid_us;   /* looks for nothing are paid for until here */
    atomic_bool      is_poisoned;    /* the store does not take commits; nothing new is begun */
    char             trouble[256];   /* … and this is what it said last; lock */
    _Atomic int64_t  away_us, back_us; /* since when it is away, 0: it is not; when it came back last; away.c */
    stet__map        ahead_runs;     /* run -> its first facts; see ahead.c for these three */
    stet__map        ahead_lanes;    /* lane -> who waits */
    stet__map        ahead_state;    /* state key -> version and value */
    stet__map        shared;         /* handlers not served here -> until when (mono us) it is known, * 2, + 1 if shared */
    stet__map        policies;       /* handlers not served here -> what the store said of them; policy.c */
    stet__map        said;           /* handlers not served here about which a line was logged */
    /* Waits for events whose timers were found gone while their marks stood, the last ones in a ring; topic.c */
    stet__late_wait  late_waits[STET__LATE_WAITS];
    size_t           n_late_waits;
    size_t           topic_lot;      /* so many of those who wait for an event one unit tells; few in the simulator */
    stet__map        unserved;       /* … of which there are runs; unserved.c for these three */
    stet_id          unserved_after;
    size_t           unserved_next;
    stet__works      works;
    stet__map        orphans;        /* own claims nobody executes, seen in the last sweep: run -> epoch */
    stet__map        fenced;         /* of this session, the claims whose records the store refused: run -> epoch */

    /* of an engine that moves: the stop mark it put itself, see stop.c */
    stet_id          stop_move;
    uint32_t         stop_phase;     /* stet__stop_phase */
};

/* log.c */
void stet__log(stet_engine *e, stet_level level, const stet_id *run, const char *handler, const char *step,
               int code, const char *fmt, ...) STET_PRINTF(7, 8);
/* The same with the user's own fields. */
void stet__log_with(stet_engine *e, const stet_log_record *line, const stet_id *run,
                    const stet_log_field *fields, size_t n);

/* engine.c */
int  stet__open_on(stet_engine **out, stet__platform *p, stet_store *store, const char *url,
                   const stet_options *options); /* takes the store, also on failure */
stet__handler *stet__handler_find(stet_engine *e, const char *name);
/* The initial value of an entry, as far as it is known here; NULL: none. */
const stet_entry *stet__initial_find(stet_engine *e, const char *service, const char *name);
stet_id        stet__new_id(stet_engine *e);
int            stet__alive(stet_engine *e, const char *call); /* STET_OK; STET_EFORKED; STET_EINVAL */
/* Not from handler code of this engine: STET_EUSAGE naming the right call. */
int            stet__not_in_handler(stet_engine *e, const char *call, const char *instead);
bool           stet__in_body(stet_engine *e); /* of this engine, on this thread */
bool           stet__in_transaction(stet_engine *e); /* the same, of a transactional step */
static inline int64_t
stet__store_now(stet_engine *e)
{
    return e->store->ops->now_ms(e->store);
}

/* stop.c: the mark that keeps work out of a store. */
typedef enum stet__stop_phase { /* on disk */
    STET__STOP_NONE,
    STET__STOP_OUT,  /* the source of a move */
    STET__STOP_GONE, /* … that is finished */
    STET__STOP_IN    /* the target of one that is not */
} stet__stop_phase;
typedef struct stet__stop {
    stet__stop_phase phase;
    stet_id          move;   /* this filling of this target */
    stet_id          origin; /* this move of this source: all its fillings have it */
    const char      *peer;   /* the other store, without passwords */
} stet__stop;
stet_bytes stet__stop_key(void);
int        stet__stop_read(stet_store *store, stet__arena *arena, stet__stop *stop);
/* STET_OK; STET_EMOVED with the sentence for it; or why it could not be read. `stop->peer` is not kept. */
int        stet__stop_check(stet_engine *e, stet__stop *stop);
/* The unit applies only if there is no mark, or for the mover its own. False: out of memory. */
bool       stet__stop_guard(stet_engine *e, stet__work *w);
/* The unit's result; STET_EMOVED if that condition did not hold. */
int        stet__stop_result(const stet__work *w, const stet_outcome *outcome);
int        stet__stop_refused(stet_engine *e); /* leaves the sentence; STET_EMOVED */

/* load.c: a run as its facts say. */
typedef struct stet__loaded {
    stet__arena   arena;
    stet__run     run;
    stet__journal journal;
    stet_run_row  row;      /* texts in the arena */
    stet__fact    extra;    /* the row's extra, decoded (bytes in the arena) */
    uint64_t      inbox;    /* last inbox sequence seen */
    uint64_t      bad_revision; /* of a fact that does not decode; 0: none */
    uint32_t      failed;   /* run.failed without entries that nobody took */
} stet__loaded;
/* "suspended, waits for signal go"; "stuck: recorded step pay#1, but …". In the arena. */
const char *stet__row_state(stet__arena *arena, const stet_run_row *row);
int  stet__load_row(stet_engine *e, stet_id id, stet__arena *arena, stet_run_row *row, stet__fact *extra);
/* Facts up to the last one a row knows that was read before, and the inbox entries they took, into run and
 * journal (which may be NULL). STET_ECORRUPT with *bad_revision. */
int  stet__load_facts(stet_engine *e, stet__run *run, stet__journal *journal, const stet_run_row *row,
                      uint64_t *bad_revision);
/* The same up to revision `upto` and with the whole inbox, whatever its row says, telling `fn` each fact when it was
 * applied (seq 0), and each inbox entry with its sequence where it was taken, or at the end. Of an entry that does not decode the kind is 0. Non-zero stops it. */
typedef int (*stet__fact_seen_fn)(void *arg, const stet__fact *fact, uint64_t seq, bool is_taken);
/* STET_ECONFLICT: the run began anew meanwhile, and it is to be read from its row on. */
int  stet__load_facts_seen(stet_engine *e, stet__run *run, stet__journal *journal, uint64_t upto,
                           uint64_t *bad_revision, stet__fact_seen_fn fn, void *arg);
int  stet__load(stet_engine *e, stet__loaded *l, stet_id id, bool with_journal);
/* The first rows of a journal, read with the run's row by a store that can; else nothing. In the row's arena. */
typedef struct stet__page_row {
    uint64_t   first;
    uint32_t   count;
    stet_bytes facts;
} stet__page_row;
typedef struct stet__page {
    bool            is_read;
    stet__page_row *rows;
    size_t          n, cap, limit; /* n == limit: there may be more */
} stet__page;
int  stet__load_row_page(stet_engine *e, stet_id id, stet__arena *arena, stet_run_row *row, stet__fact *extra,
                         bool if_ended, stet__page *page);
int  stet__load_facts_page(stet_engine *e, stet__run *run, stet__journal *journal, const stet_run_row *row,
                           const stet__page *page, uint64_t *bad_revision);
/* Without journal, and only a run whose row is wanted; else STET_END and nothing more is read. */
int  stet__load_if(stet_engine *e, stet__loaded *l, stet_id id, bool (*is_wanted)(const stet_run_row *row));
/* With its journal, as its next execution would find it: entries that nobody took yet are taken. The journal's orphans are
 * those of these entries alone. */
int  stet__load_next(stet_engine *e, stet__loaded *l, stet_id id);
void stet__loaded_free(stet__loaded *l);
/* Has the parent begun anew since it started this child? Then the child's key is gone. */
bool stet__child_is_past(const stet__run *child, const stet__fact *parent_extra);
/* The row's extra of a run. */
void stet__extra_of(const stet__run *run, stet__fact *extra);

/* start.c */
typedef struct stet__start {
    stet__fact  fact;       /* STARTED */
    stet_id     run;
    int64_t     due_ms;
    char       *lane;       /* or NULL */
} stet__start;
/* Check everything a caller can get wrong and fill the STARTED fact; texts live in `arena`. */
int stet__start_check(stet_engine *e, stet__arena *arena, stet__start *s, const char *handler, stet_bytes input,
                      const stet_start_options *options);
/* The same for a handler that need not exist here: of a schedule, which was checked when it was made. */
int stet__start_fill(stet_engine *e, stet__arena *arena, stet__start *s, const stet__policy *policy, const char *handler,
                     stet_bytes input, const stet_start_options *o);
/* STET_OK; STET_EINVAL, naming the handler. */
int stet__retry_check(const char *handler, const stet_retry *r);
/* Conditions and operations that create the run. False: out of memory. */
bool stet__start_ops(stet_engine *e, stet__work *w, const stet__fact *fact, stet_id run, bool with_claim,
                     const stet__buf *more_facts, uint32_t n_more);
const char *stet__lane_name(stet__arena *arena, const char *handler, const char *key);
bool        stet__idem_key(stet__arena *arena, stet_bytes *out, stet_bytes handler, stet_bytes key, stet_bytes idem);

/* policy.c */
void stet__policy_of(const stet__handler *h, stet__policy *policy);
/* Of a handler that is not registered here: what a worker said of it, asked for now and then. STET_OK, also if nobody
 * did; else why it could not be read. Lock not held. */
int  stet__policy_elsewhere(stet_engine *e, const char *handler, stet__policy *policy);
/* Whether a service is registered here or a worker of this store ever told of it, and whether it has keys. STET_OK, or why
 * the store could not be read. Lock not held. */
int  stet__policy_service(stet_engine *e, const char *service, bool *is_known, bool *is_object);
/* Say it of one's own, if this is a worker and the store does not say so yet. A failure is logged: runs are executed
 * all the same. */
void stet__policies_tell(stet_engine *e);
void stet__policies_free(stet_engine *e);

/* project.c: the rows and timers a fact of a run implies. False: out of memory. */
bool stet__project(stet_engine *e, stet__work *w, const stet__run *run, const stet__fact *fact,
                   const stet__fact *child);
/* The operations that end a run or change its row after its last fact. */
bool stet__project_row(stet__work *w, const stet__run *run, uint32_t mask, int64_t due_ms);
bool stet__project_end(stet_engine *e, stet__work *w, const stet__run *run, const stet__journal *journal,
                       bool has_lane, bool tell_parent);
/* The mark of a wait that others see. */
bool stet__project_mark_gone(stet__work *w, stet_id run, const stet__cmd *cmd);
bool stet__tell_parent(stet_engine *e, stet__work *w, const stet__run *run, int code);
bool stet__value_key_state(stet__arena *arena, stet_bytes *out, const char *handler, const char *key,
                           const char *name);
/* Its parts: the service with its dot (for queries), the object's key, the entry. All NULL: no such key. */
bool stet__value_key_parts(stet__arena *arena, stet_bytes key, const char **service, const char **object,
                           const char **name);

/* expect.c: what the store has to hold of one run, by its facts. */
typedef struct stet__want_timer {
    struct stet__want_timer *next;
    int64_t                  fire_ms;
    uint64_t                 completion;
} stet__want_timer;

typedef struct stet__want_value {
    struct stet__want_value *next;
    const char              *space;
    stet_bytes               key, data;
    stet_id                  id;       /* of an awakeable, */
    stet_bytes               name;     /* … and its name */
    uint64_t                 revision;
    bool                     is_twice; /* put a second time: an awakeable that was settled */
    uint32_t                 flags;    /* of a boundary */
} stet__want_value;

typedef struct stet__wrote { /* the last thing the run did to a state entry */
    struct stet__wrote *next;
    stet_bytes          key; /* as in STET__SPACE_STATE */
    stet__fact          fact;
} stet__wrote;

typedef enum stet__due { STET__DUE_NEVER, STET__DUE_NOW, STET__DUE_AT } stet__due;

typedef struct stet__expect {
    stet__loaded      l;
    bool              has_row;
    bool              is_unreadable; /* `run` is as of the last readable fact; stet_last_error() says why */
    uint64_t          inbox;         /* last sequence there is */
    uint64_t          bad_entry;     /* the first entry that is not taken and cannot be read; 0: none */
    int               stop;          /* asked for, taken or not, if it means anything */
    bool              is_unstuck, is_visible; /* asked for, not taken; its time has come or it has begun */
    bool              is_tried_again; /* the rollback; asked for, not taken */
    bool              is_hastened;   /* it has to learn that its journal is another one */
    int               pause;         /* asked for, not taken: 1 to be paused, -1 to be resumed */
    uint64_t          event;         /* which wait an event that is not taken ends; 0: there is none */
    stet_status       status;        /* of a run that is not claimed */
    stet__due         due;
    int64_t           due_ms;        /* STET__DUE_AT */
    stet__fact        extra;
    stet__want_timer *timers;
    stet__want_value *values;
    stet__wrote      *wrote;
    bool              has_mark;      /* whether it was retried was asked for ... */
    uint64_t          mark_version;  /* ... and this is the version of the mark; 0: none */
    uint64_t         *fired;         /* timers that are in the inbox and not taken */
    size_t            n_fired, cap_fired;
} stet__expect;
/* STET_OK, also if facts cannot be read; STET_ENOTFOUND; or why it could not be looked at. `lost` is what the store
 * says of a run without a row, else NULL. After STET_OK stet__expect_free() must follow. */
int  stet__expect_load(stet_engine *e, stet__expect *x, stet_id id, const stet_run_row *lost);
void stet__expect_free(stet__expect *x);
/* The row; `due_ms` and lane are the caller's. False: out of memory. */
bool stet__expect_row(stet__expect *x, stet__arena *arena, stet_run_row *row);
/* stet__fact_writer() of such a fact. */
int64_t stet__wrote_writer(const stet__fact *f);
/* Which of two facts wrote a state entry later; run and completion as in STET__SPACE_BASE_STATE. */
bool stet__wrote_later(const stet__fact *a, const stet__fact *b);
/* The fact as a baseline of STET__SPACE_BASE_STATE. */
stet__fact stet__wrote_base(const stet__wrote *wrote, const stet_id *run);
bool stet__child_key(stet__arena *arena, stet_bytes *out, stet_id parent, const char *step, const char *child_key);

/* repair.c */
typedef struct stet__crumbs_left stet__crumbs_left;
int  stet__crumbs_gather(stet_engine *e, stet__crumbs_left **out);
void stet__crumbs_drop(stet_engine *e, stet__crumbs_left *left);
/* Write the rows of one run anew: one unit, refused if the run changed or is claimed. STET_ECONFLICT then. */
int stet__repair_run(stet_engine *e, stet_id id, const stet_run_row *lost, const stet__crumbs_left *left);
/* The same without committing it: the unit is the caller's. */
int stet__repair_work(stet_engine *e, stet__work **out, stet_id id, const stet_run_row *lost,
                      const stet__crumbs_left *left);
/* Is the first in its lane another that is being executed or has begun? */
int stet__repair_is_passed(stet_engine *e, const stet__expect *x, bool *is_passed);
/* Take it from a session that does not exist, or give it back if that is our own. */
int stet__repair_owner(stet_engine *e, const stet_run_row *row, bool is_own);

/* session.c */
/* What a worker that is gone was doing with the run; NULL: not known. It may have been executing several bodies of it, and
 * died once: *is_counted says whether this was told. */
bool stet__tell_lost(stet__work *w, int64_t now_ms, stet_id run, stet_id worker, const stet_crumb *crumb, bool *is_counted);
int  stet__session_open(stet_engine *e);
/* May something be begun? A tenth of the lease is kept in hand for the time between this look and the body. */
bool stet__lease_holds(stet_engine *e);
void stet__session_close(stet_engine *e);
int  stet__renewer_start(stet_engine *e);
void stet__renewer_close(stet_engine *e);
void stet__renew(stet_engine *e);
/* Find dead sessions and give their runs back. */
int  stet__reap(stet_engine *e); /* the last failure; a conflict is none, the next look knows better */
/* Lock held. A crumb of the claim's session: -1, none is free or the session is over. */
int  stet__crumb_get(stet__claim *claim);
void stet__crumb_put(stet__claim *claim, int crumb); /* nothing if the session is over */
/* What a session serves, by its record: one handler after the other, from *at = 0 on; false: no more. The name is no
 * text, it points into the record. Of what an older build wrote the kind is not known. */
typedef enum stet__serves {
    STET__SERVES_UNKNOWN,
    STET__SERVES_SERVICE,
    STET__SERVES_OBJECT,
    STET__SERVES_SHARED
} stet__serves;
bool stet__serves_next(const stet__fact *info, size_t *at, stet_bytes *name, stet__serves *kind);
void stet__info_decode(stet_worker_info *info, stet__arena *arena, const stet_session_row *row);

/* hint.c */
/* The store's address without queue=…, and what that is (NULL: none). Both are freed by the caller, the queue with
 * stet__hint_wipe(): it may have a password. */
int  stet__hint_split(stet__platform *p, const char *url, char **store, char **queue);
void stet__hint_wipe(stet__platform *p, char *queue);
int  stet__hint_begin(stet_engine *e, const char *queue); /* NULL: the store's own */
/* Begin to listen, until stet__keeper_close(). STET_ECONFIG: the queue refuses us. */
int  stet__hint_watch(stet_engine *e);
void stet__hint_unwatch(stet_engine *e);
void stet__hint_nudge(stet_engine *e); /* something changed; lock not held */
/* Lock held, hint_tells: the unit was applied. */
void stet__hint_unit(stet_engine *e, const stet__work *w, const stet_outcome *outcome);
void stet__hint_was_useful(stet_engine *e); /* lock held: a look found work */
/* Lock held: it is parked now, and was told of before that was known. */
void stet__hint_parked(stet_engine *e, const stet_id *run);

/* keeper.c */
void stet__keeper_on_hint(void *engine); /* another process committed something */
/* Tell what is wrong with the store, if it is not what was told last. No lock held. */
void stet__doctor_ask(stet_engine *e);
/* unserved.c: name the handlers in the log that have due runs and no living worker, once each. No lock held. */
void stet__unserved_look(stet_engine *e);
int  stet__keeper_start(stet_engine *e);
/* Runs that are stuck may go on: this may be the fixed code they wait for. Before the engine takes its first run, or
 * it would free one it has just found stuck itself. */
void stet__requeue_stuck(stet_engine *e);
void stet__keeper_close(stet_engine *e);
void stet__keeper_poke(stet_engine *e); /* lock held */
/* Lock held: a unit with this timer or due time was applied. */
void stet__keeper_timer(stet_engine *e, int64_t ms);
/* Lock held: a schedule is to be looked at then. */
void stet__keeper_sched(stet_engine *e, int64_t ms);
/* Lock held: a run may be claimed from then on. */
void stet__keeper_due(stet_engine *e, int64_t ms);
/* One round without a thread; returns the time of the next one (mono us). Lock not held. */
int64_t stet__keeper_round(stet_engine *e);

/* inspect.c: how many living workers serve a handler, and whether anybody serves timers. */
int stet__served_by(stet_engine *e, const char *handler, size_t *workers, bool *has_timers);
/* Which handlers have living workers. To be freed also after a failure. */
typedef struct stet__living {
    stet__arena arena;
    stet__map   names; /* handler -> count of workers * 4 + stet__serves, of the one whose kind is known */
    bool        failed;
} stet__living;
int  stet__living_open(stet_engine *e, stet__living *served);
void stet__living_free(stet__living *served);
int  stet__info_from_row(stet__arena *arena, stet_run_info *info, const stet_run_row *row, const stet__fact *extra);
int  stet__info_from_facts(stet__arena *arena, stet_run_info *info, const stet__run *run);

/* control.c */
/* *code: of a cancel or deadline that was asked for, taken or not; 0: none. Else why it is not known. */
int stet__stop_asked(stet_engine *e, const stet__run *run, int *code);
/* Who acts and why, as a caller gave them (either may be NULL). STET_OK; STET_ETOOBIG. */
int stet__said_check(const char *by, const char *why);
/* End a run that was never executed and is not claimed, at once, also while it waits in a lane. False: it is no
 * such run (any more), or could not be: tell it through its inbox. */
bool stet__stop_unstarted(stet_engine *e, stet_id run, const char *by, const char *why);
/* Operations that tell a run, which may have begun, that its caller is of no use any more. Row: as far as it is known, or
 * NULL. False: out of memory. Lock not held. */
bool stet__stop_called(stet_engine *e, stet__work *w, stet_id run, const stet_run_row *row, const char *by, const char *why);
/* Operations that end a run nobody has, with this fact. Lock not held. */
int stet__end_unclaimed(stet_engine *e, stet__work *w, stet__loaded *l, stet__fact *fact);
int stet__host_tell(stet_ctx *c, stet__fact *fact);
/* Operations that signal another run from a handler, and the record of it (its code says why not). */
int stet__signal_in(stet_ctx *c, stet__work *w, stet__fact *fact);

/* Put what somebody sends (SIGNALLED, UPDATE_ASKED) into an open run's inbox, and wake it. STET_EENDED; … */
int stet__signal_put(stet_engine *e, const stet_run_id *run, stet_id id, stet__fact *fact);

/* update.c. What came of an update, where its asker finds it. False: out of memory. */
bool stet__update_key(stet__arena *arena, stet_bytes *out, stet_id run, stet_bytes key);
void stet__update_mark(const stet__fact *update, stet__fact *mark);
bool stet__update_put(stet__work *w, stet_id run, const stet__fact *update);

/* hold.c: read which handlers are paused, and serve the others. Lock not held. */
int  stet__hold_look(stet_engine *e);
bool stet__is_served(stet_engine *e, const char *handler);
/* Of one that is registered here: is it paused, as far as is known? */
bool stet__is_held(stet_engine *e, const char *handler);
void stet__hold_free(stet_engine *e);
typedef struct stet__held_by {
    const char *handler; /* in; the rest is empty if nothing holds it */
    char        text[512], what[STET__NAME_MAX + 1];
    int64_t     since_ms;
} stet__held_by;
int  stet__hold_find(stet_engine *e, stet__held_by *by);

/* operate.c */
/* The fact that ends a run which was failed by hand; `stop` is 0 or what its waiters were told. */
void stet__failed_fact(const stet__run *run, int stop, stet__fact *fact);
/* Which recorded command "charge" or "charge#2" is, of whatever kind; without a number the last one. STET_ENOTFOUND,
 * naming what there is: for whom waits are of no use, its steps. */
int stet__operate_find(const stet__journal *j, const char *run, const char *text, bool only_steps, const stet__cmd **cmd);
/* STET_ESTATE: it is not paused. */
int stet__operate_resume(stet_engine *e, const stet_run_id *run, const char *by, const char *why);

/* topic.c. The mark of a wait for events: put with its record, gone with its end. False: out of memory. */
bool stet__topic_wait_key(stet__arena *arena, stet_bytes *out, stet_bytes topic, stet_id run, uint64_t completion);
void stet__topic_wait_mark(const stet__fact *wait, uint64_t completion, stet__fact *mark);
bool stet__topic_wait_put(stet__work *w, stet_id run, const stet__fact *wait);
bool stet__topic_wait_gone(stet__work *w, stet_id run, const char *topic, uint64_t completion);
int  stet__emit_in(stet_ctx *c, stet__work *w, stet__fact *fact);
/* Finish emissions whose process is gone, forget old ones. */
/* Lock held: a unit that tells of an event was refused by this condition. */
void stet__emit_refused(stet_engine *e, const stet__work *w, const stet_outcome *outcome);
bool stet__emit_sweep(stet_engine *e); /* true: an event is on its way, or was; look again */
/* subscribe.c: there may be events. Lock held. */
void stet__events_look(stet_engine *e);

/* boundary.c: the mark of a run that waits for a person; the facts it consists of. False: out of memory. */
void stet__boundary_mark(const stet__fact *fact, uint64_t completion, stet_bytes name, uint32_t flags, stet__fact *mark);
bool stet__boundary_put(stet__work *w, stet_id run, const stet__fact *boundary);
bool stet__boundary_gone(stet__work *w, stet_id run);

int stet__once_in(stet_ctx *c, stet__work *w, stet__fact *fact);
int stet__look_in(stet_ctx *c, stet__fact *fact);
int stet__stop_run(stet_engine *e, stet_id run, int code, const char *by, const char *why,
                   const stet_timer *timer);

/* Operations that cancel the run `l` was loaded from; stet__answer() it when they are applied. Lock not held. */
int stet__stop_ops(stet_engine *e, stet__work *w, stet__loaded *l, int code, const char *by, const char *why);

/* schedule_fire.c: look at the schedules that are to be looked at now. Lock held on entry and return. */
void stet__sched_round(stet_engine *e);
/* schedule.c: the operation that asks for a look at a schedule, because that run of its has ended. False: out of memory. */
bool stet__sched_ask(stet__work *w, const char *name, int64_t at_ms, stet_id run);

/* mirror.c: the audit hook. An engine without one has no mirror, and only the next four are for it. */
typedef struct stet__mirror stet__mirror;
/* *version: of the value that says that there is a hook somewhere; 0: none. */
int  stet__mirror_version(stet_engine *e, uint64_t *version);
/* There is a hook here, and the store does not say yet that there is one somewhere. */
bool stet__mirror_is_awaited(stet_engine *e);
/* The run begins anew with this unit: what the hook was not told of it is kept as a bundle until it was. */
int  stet__mirror_keep(stet_engine *e, stet__work *w, const stet__expect *x);
/* Is there a hook somewhere, and is there a living engine that tells it? */
int  stet__mirror_state(stet_engine *e, bool *is_on, bool *has_teller);
/* The unit applies only while that is so. False: out of memory. */
bool stet__mirror_guard(stet__work *w, uint64_t version);
/* Was all of this run told? */
int  stet__mirror_has_told(stet_engine *e, stet_id run, uint64_t journal, uint64_t inbox, bool *has_told);
int  stet__mirror_open(stet_engine *e);
int  stet__mirror_start(stet_engine *e);
/* The last things are told, within bounds. No handler executes any more. */
void stet__mirror_close(stet_engine *e);
void stet__mirror_free(stet_engine *e);
/* Without a thread; returns the time of the next round. Lock not held. */
int64_t stet__mirror_poll(stet_engine *e);
/* Lock held, there is a mirror: a unit was applied. */
void stet__mirror_note(stet_engine *e, const stet__work *w);
/* Lock held: another process committed. */
void   stet__mirror_hint(stet_engine *e);
size_t stet__mirror_failing(stet_engine *e);

/* purge.c */
/* Operations that remove what follows from the facts of a run's generation, which go with the same unit; what it wrote
 * and answered becomes a baseline. STET_ENOMEM, or what the store said. */
int  stet__purge_generation(stet_engine *e, stet__work *w, const stet__expect *x);
/* Remove runs whose retention is over. True: there are more. is_again: only a few now, between two sweeps. */
bool stet__purge(stet_engine *e, bool is_again);

#endif
