/* A whole fleet in one process, on virtual time, from one seed.
 *
 * program.c      a random program from a seed: what one run does
 * handler.c      the one handler that interprets programs
 * clients.c      clients and operators: fibers that start, wait, cancel, settle, retry, look
 * faults.c       which faults a seed has, how often, and the fiber that crashes and pauses nodes
 * fault_store.c  the store every node sees: the memory store behind faults
 * ledger.c       what happened outside the engine: executions of bodies, what handlers saw
 * deeds.c        what operators did to runs: skip, edit, rewind, fork
 * whims.c        operators of some seeds, who do what hurts most just then
 * revival.c      workers that look dead, and are not yet
 * look.c         what runs saw of other runs
 * parked.c       what executions that wait take for the record, and what is recorded
 * live.c         updates and queries: what runs were told and what they say
 * audit.c        what the audit hooks of the nodes were told
 * hold.c         handlers and services that operators paused
 * schedule.c     schedules of some seeds: who makes and changes them, and that due ones are fired
 * order.c        in which order came what runs wait for
 * topic.c        who waits for events, and what became of each emission
 * planned.c      what became of each of their planned times, unit by unit, and at the end
 * model.c        what the store was told, fact by fact, and what must hold at each of them
 * checks.c       what must hold at the end
 * why.c          why those that have not ended have not, by `why` and by what is known
 * history.c      what the outside saw of the objects, and whether one order explains it
 * linear.c       the search for that order
 * image.c        copies of the store's state, and hashes over it
 * fate.c         what of a state every recovery must bring to the same end
 * recover.c      one state recovered several times: the same must come of it
 * trace.c        the history: its hash, and its last events when something is wrong
 * world.c        nodes and their lives, the phases of a seed
 *
 * How to add an operation: a row of FLEET_OP_LIST, its parameters in program.c, its case in
 * handler.c, and what its outcome may be in checks.c. How to add a fault: a row of
 * FLEET_FAULT_LIST, its rate in faults.c, and one fleet_fault() where it strikes.
 *
 * Nothing here is timed, threaded or random but by the seed. The world's own memory is outside of
 * all simulated nodes, so it outlives their crashes; it is what the engine is judged by, and never
 * asks the engine. /
 */
#ifndef STET_FLEET_H
#define STET_FLEET_H

#include <stet.h>

#include "core/fact.h"
#include "platform/platform.h"
#include "store/memory.h"

/* What lies further ahead does not happen in a seed. */
#define FLEET_FAR_MS ((int64_t)86400000)
#define FLEET_OWED_MAX 8u /* generations of one run */

#define FLEET_FAILED "enough of it" /* what an operator says who fails a run */
#define FLEET_MOTTO "as it was" /* of an object, before somebody writes another one */
#define FLEET_GIVEN "given " /* results operators give: this and the number of the deed */

enum {
    FLEET_NODES_MAX = 10,
    FLEET_OPS_MAX = 30,
    FLEET_PARTS_MAX = 3,  /* futures of one operation */
    FLEET_KEYS = 4,       /* object keys all runs share */
    FLEET_ENTRIES = 2,    /* of an object's state: account and scribble */
    FLEET_HOLDS = 5,      /* handlers and services that can be paused */
    FLEET_GLANCES = 4,    /* at other runs, before the first of them is recorded */
    FLEET_SIGNALS = 2,    /* names */
    FLEET_SIGNAL_PART = 2, /* … and one that only futures wait for */
    FLEET_SIGNAL_NAMES = 3,
    FLEET_ONCE = 8,       /* keys that are given out once */
    FLEET_EVENTS = 1024,
    FLEET_SIGNALS_MAX = 96, /* of one name to one run; more are not checked */
    FLEET_WRITES_MAX = 128,
    FLEET_UPDATES_MAX = 32, /* of one run, that are known by number */
    FLEET_INSIDE = 1000000, /* numbers from here on: of signals a run sends itself */
    FLEET_EVENTS_KEPT = 1 << 14, /* to be told when something is wrong */
    FLEET_DEPTH_IDLE = 9, /* of an order: it sleeps for many days, and that is all */
    FLEET_DEPTH_PLANNED = 8, /* … a schedule's: a small one, which ends without help */
    FLEET_SCHEDULES_MAX = 3,
    FLEET_NAMED = 64,     /* places for runs that were asked for by text */
    FLEET_DAMAGED_MAX = 3, /* rows of facts of one seed */
    FLEET_ROWS_BACK = 16, /* so many rows before the last one of a run may be damaged */
    FLEET_REFUSED_MS = 1500, /* so long takes an undo that fails for good */
    FLEET_ROUND_US = 500000, /* people who decide come at the same time */
    FLEET_CLIENTS = 2     /* fibers of each node that play clients; one more plays the operator */
};

typedef struct fleet fleet;
typedef struct fleet_run fleet_run;
typedef struct fleet_node fleet_node;
typedef struct fleet_due fleet_due;

/* ---- faults ---------------------------------------------------------------------------------- */

/* Name, one in how many at most (see fleet_plan_draw), text. */
#define FLEET_FAULT_LIST(X)                                                                        \
    X(CRASH, 0, "crashes at any point")                                                            \
    X(CRASH_BEFORE, 2000, "crashes before a store call")                                           \
    X(CRASH_AFTER, 2000, "crashes after a store call")                                             \
    X(STOP, 0, "orderly stops")                                                                    \
    X(PAUSE, 0, "pauses")                                                                          \
    X(COMMIT_REFUSED, 60, "commits refused")                                                       \
    X(REPLY_LOST, 60, "replies of commits lost")                                                   \
    X(POISONED, 150, "stores poisoned")                                                            \
    X(SLOW, 300, "slow answers")                                                                   \
    X(READ_FAILED, 100, "reads failed")                                                            \
    X(LEASE_FAILED, 20, "session calls failed or unanswered")                                      \
    X(LEASE_SLOW, 6,  "session calls answered after the lease")                                    \
    X(HINT_LOST, 4, "hints lost")                                                                  \
    X(HINT_TWICE, 4, "hints doubled")                                                              \
    X(HINT_LATE, 10, "hints late")                                                                 \
    X(SAME_NAME, 0, "workers of one name")                                                         \
    X(SKEW, 0, "clocks apart by hours")                                                            \
    X(JUMP, 0, "jumps of a clock")                                                                 \
    X(STORE_JUMP, 0, "jumps of the store's clock ahead")                                           \
    X(STORE_BACK, 0, "jumps of the store's clock back")                                            \
    X(NO_MEMORY, 4000, "allocations failed")                                                       \
    X(DAMAGE, 0, "facts damaged")                                                                  \
    X(AUDIT_REFUSED, 5, "audit entries refused")                                                   \
    X(READ_LATE, 150, "reads answered late")                                                       \
    X(TORN, 0, "rows of facts cut short")                                                          \
    X(INBOX_DAMAGE, 0, "inbox entries damaged or cut short")

typedef enum fleet_fault_kind {
#define FLEET_FAULT_ENUM(name, one_in, text) FLEET_##name,
    FLEET_FAULT_LIST(FLEET_FAULT_ENUM)
#undef FLEET_FAULT_ENUM
    FLEET_FAULTS
} fleet_fault_kind;

/* Those behind it came later: the plan draws them by themselves, or they go with DAMAGE. */
enum { FLEET_FAULTS_FIRST = FLEET_AUDIT_REFUSED + 1 };

extern const char *const fleet_fault_names[FLEET_FAULTS];

/* What kinds of faults this seed has and how often each strikes: one in so many chances; 0: never.
 */
typedef struct fleet_plan {
    uint64_t one_in[FLEET_FAULTS];
    int64_t  chaos_us;     /* the fault fiber acts about this often */
    int64_t  last_us;      /* no faults from here on */
    unsigned crashes_max;
    int64_t  lease_ms, renew_ms;
    int64_t  retention_ms;
    bool     is_deaf;      /* the store gives no hints at all: everybody polls */
    bool     is_mirrored;  /* some nodes have an audit hook */
    bool     has_whims;    /* operators have some, and faults that suit them come more often */
    bool     has_revivals; /* workers look dead for a moment */
} fleet_plan;

void fleet_plan_draw(fleet *w);
/* Does it strike now? Counts it. One that the seed has: see fleet_fault(). */
bool fleet_fault_draw(fleet *w, fleet_fault_kind kind, const fleet_node *node);
/* The store's clock is set back. */
void fleet_store_back(fleet *w);
/* It is set ahead by so much, by mistake, and right again. */
void fleet_store_ahead(fleet *w, int64_t ms);
void fleet_store_right(fleet *w, int64_t ms);
/* The fiber that crashes, pauses, turns clocks and damages facts; on the server's node. */
void fleet_chaos(void *arg);

/* ---- programs -------------------------------------------------------------------------------- */

/* Name, weight for services, for objects, for shared handlers of objects, text. */
#define FLEET_OP_LIST(X)                                                                           \
    X(STEP, 30, 20, 12, "step")                                                                    \
    X(SLEEP, 12, 5, 12, "sleep")                                                                   \
    X(CALL, 10, 6, 4, "call")                                                                      \
    X(SEND, 6, 3, 3, "send")                                                                       \
    X(AWAKE, 6, 2, 2, "awakeable")                                                                 \
    X(SIGNAL, 6, 3, 3, "signal")                                                                   \
    X(DECIDE, 5, 3, 3, "decide")                                                                   \
    X(EVENT, 4, 2, 2, "event")                                                                     \
    X(APPROVE, 2, 1, 1, "approval")                                                                \
    X(PAUSE, 2, 1, 1, "pause")                                                                     \
    X(EMIT, 3, 1, 1, "emit")                                                                       \
    X(DEPOSIT, 0, 40, 0, "deposit")                                                                \
    X(SCRIBBLE, 0, 10, 0, "state")                                                                 \
    X(PEEK, 0, 0, 50, "peek")                                                                      \
    X(FUTURES, 12, 5, 5, "futures")                                                                \
    X(VERSION, 3, 2, 2, "version")                                                                 \
    X(NOW, 4, 2, 2, "now")                                                                         \
    X(RANDOM, 4, 2, 2, "random")                                                                   \
    X(DEFER, 3, 1, 2, "defer")                                                                     \
    X(SCOPE, 4, 2, 2, "scopes")                                                                    \
    X(SETTLE, 0, 0, 0, "settle")                                                                   \
    X(ROLLBACK, 0, 0, 0, "rollback")                                                               \
    X(MOTTO, 0, 0, 0, "initial state")                                                             \
    X(LOOK, 0, 0, 0, "look at a run")

typedef enum fleet_op_kind {
#define FLEET_OP_ENUM(name, service, object, shared, text) FLEET_OP_##name,
    FLEET_OP_LIST(FLEET_OP_ENUM)
#undef FLEET_OP_ENUM
    FLEET_OPS
} fleet_op_kind;

extern const char *const fleet_op_names[FLEET_OPS];

/* What classifiers make of a passing failure: a letter in its text tells them. Letter, what the
 * handler's own says, what that for all would say, what comes of it (0: it is retried as usual). */
#define FLEET_VERDICT_LIST(X)                                                                      \
    X(NONE, '-', STET_OK, STET_OK, 0)                                                              \
    X(OWN, 'o', STET_EPERMANENT, STET_ERETRY, STET_EPERMANENT)                                     \
    X(ALL, 'a', STET_OK, STET_EPERMANENT, STET_EPERMANENT)                                         \
    X(RETRY, 'r', STET_ERETRY, STET_EPERMANENT, 0)                                                 \
    X(BROKEN, 'b', 77, STET_EPERMANENT, 0)                                                         \
    X(DEFER, 'd', STET_EDEFER, STET_EPERMANENT, STET_EDEFER)

typedef enum fleet_verdict {
#define FLEET_VERDICT_ENUM(name, letter, own, all, outcome) FLEET_VERDICT_##name,
    FLEET_VERDICT_LIST(FLEET_VERDICT_ENUM)
#undef FLEET_VERDICT_ENUM
    FLEET_VERDICTS
} fleet_verdict;

/* A body: how it goes. */
typedef struct fleet_body {
    uint8_t fails;        /* its first executions that count fail passingly */
    uint8_t attempts;     /* of its own policy; 0: none, the run's attempts count */
    bool    is_permanent; /* then it fails for good */
    bool    is_late;      /* takes longer than its timeout, the first time */
    uint8_t verdict;      /* fleet_verdict, of its passing failures; DEFER: it has one, once */
    uint16_t takes_ms;
    uint16_t later_ms;    /* the first time it says not to be tried again before so long; 0: never */
    bool    has_print;    /* its step has a fingerprint */
} fleet_body;

typedef enum fleet_wait {
    FLEET_WAIT_ALL,
    FLEET_WAIT_ANY,
    FLEET_WAIT_ANY_FOR,
    FLEET_WAIT_EACH_FOR
} fleet_wait;

typedef struct fleet_op {
    fleet_op_kind kind;
    fleet_body    body[FLEET_PARTS_MAX];
    int64_t       ms;      /* sleep, delay, timeout */
    uint64_t      seed;    /* of a child, of what is written */
    int           key;     /* of a child that is an object; -1: a service */
    bool          is_shared; /* … and only looks at it */
    uint8_t       parts;   /* futures */
    uint8_t       part[FLEET_PARTS_MAX]; /* FLEET_OP_STEP, _SLEEP, _CALL, _SIGNAL or _AWAKE */
    fleet_wait    wait;
    bool          has_limit; /* awakeable, signal: with a timeout; send: with an idempotency key */
    bool          is_inside; /* awakeable: settled by a run we send; otherwise by the outside; signal: by itself */
    bool          is_reject;
    int64_t       child_ms;  /* call, send, futures: the deadline of who is started; 0: none */
    bool          is_at;     /* send: at a time, not after a while */
} fleet_op;

typedef struct fleet_program {
    size_t   n;
    fleet_op ops[FLEET_OPS_MAX];
    bool     is_stubborn;  /* goes on after a failed operation */
    bool     is_tidy;      /* after a stop: one more step, then it returns */
    uint8_t  fails;        /* its first attempts fail passingly at the end */
    uint8_t  verdict;      /* of that */
    bool     is_doomed;    /* fails for good at the end */
    bool     is_undone;    /* … and undoes its steps if it does */
    bool     has_undo;     /* its steps can be undone: because of that, or by an operation of its own: */
    size_t   rollback;     /* this one; 0: none */
    uint8_t  turns;        /* so often it begins anew before it does all that */
} fleet_program;

/* What a run is told: its input as text. */
typedef struct fleet_order {
    uint64_t seed;   /* of the program */
    uint64_t nonce;  /* who asked for it: a task, or a place in a run */
    unsigned depth;
    int      floor;  /* it calls only objects with keys above this one: nobody waits in a circle */
    bool     is_shared; /* of an object: it only reads, beside whoever holds the key */
    char     awakeable[STET_ID_TEXT_MAX]; /* to settle, or "" */
} fleet_order;

/* Bytes as a text, cut to fit. */
static inline void fleet_text(char *to, size_t size, const void *from, size_t len)
{
    if (len > size - 1)
        len = size - 1;
    if (len > 0)
        len = strnlen(from, len), memcpy(to, from, len);
    to[len] = '\0';
}

void fleet_program_make(fleet_program *p, const fleet_order *order, bool is_object, size_t ops_max);
/* How many of its futures before this one wait for a signal? */
size_t fleet_signal_parts(const fleet_program *p, size_t op, size_t part);
size_t fleet_order_text(char *text, size_t size, const fleet_order *order);
bool fleet_order_parse(fleet_order *order, stet_bytes input);

/* ---- what handlers saw (handler.c, ledger.c) ------------------------------------------------- */

/* The outcome of one operation as the handler saw it. */
typedef struct fleet_seen {
    int32_t  code;
    uint16_t kind;    /* fleet_op_kind; for a reader of results */
    uint16_t updates; /* of the hash over those that were made by then */
    uint64_t value;   /* hash of what came back */
} fleet_seen;

/* One execution of a handler; in the memory of its context. */
typedef struct fleet_execution {
    fleet        *w;
    fleet_order   order;
    fleet_program program;
    size_t        n; /* operations that are over */
    fleet_seen    seen[FLEET_OPS_MAX + 1];
    int64_t       began_us;
    bool          is_asked; /* not to execute anything: a query goes by the record */
    int64_t       generation;
    uint64_t      chain;    /* hash over the updates that were made, in their order; 0: none */
    size_t        n_updates;
    uint32_t      updates[FLEET_UPDATES_MAX]; /* their numbers; of more the first */
    size_t        n_any;    /* how often it waited for the first of several */
} fleet_execution;

/* One execution of a body, whatever became of it. */
typedef struct fleet_entry {
    struct fleet_entry *next; /* older */
    char     step[32];
    uint32_t number;          /* of the attempt */
    uint64_t fence;
    unsigned node, life;
    int64_t  at_us;
    bool     is_at_risk, is_stale;
    bool     is_inside;       /* the body has not returned */
    bool     is_settled, is_lost;
    bool     is_unsure;       /* nobody can tell from outside whether what settled it knew of it */
    bool     is_forgotten;    /* a rewind went back behind it */
    uint64_t token;           /* hash of it */
    uint32_t repeats;         /* how often the step had been forgotten */
    bool     has_failed;      /* passingly or for good: what ends the attempt is its record, too */
} fleet_entry;

/* A step as far as the store knows. */
typedef struct fleet_step {
    struct fleet_step *next;
    char     step[32];
    bool     is_recorded;
    bool     is_undone;
    uint64_t met_in;   /* the last execution in which the handler came to it */
    bool     was_met;  /* … that recorded an end of its own, or the begin of a rollback */
    bool     is_late;  /* started before a rollback the handler asked for, and done behind it */
    bool     is_beside; /* done while the run was being rolled back because it failed */
    uint32_t attempts; /* recorded ones */
    uint32_t done;     /* the how many-th that was recorded, with a result; 0: it was not */
    uint32_t failed;   /* … as failed */
    bool     is_skipped;
    int      code;     /* recorded */
    uint64_t revision; /* of its first fact; 0: none */
    int64_t  recorded_us;
    uint32_t repeats;  /* how often it was forgotten */
    size_t   given;    /* the deed whose result it has; 0: its own */
    int64_t  until_ms; /* it is not entered again before; 0: at any time */
    char     picked[STET_ID_TEXT_MAX]; /* the run it chose to be looked at, or "" */
} fleet_step;

/* A write of an object's state. */
typedef struct fleet_write {
    struct fleet_write *next; /* later */
    uint64_t revision;
    bool     is_account;
    uint64_t amount;          /* or hash of the scribble; 0: cleared */
    bool     is_forgotten;    /* by a rewind to operation `at` */
    size_t   at;
} fleet_write;

/* An update that is recorded, and was not refused. */
typedef struct fleet_made {
    struct fleet_made *before;
    uint32_t number;
    uint64_t revision;
    uint64_t chain; /* over it and those before */
    bool     is_inherited;
    size_t   op;    /* in which it was made, if that is known: it slept; else FLEET_OPS_MAX */
} fleet_made;

/* A shared run is about to read an entry: when first, by this claim, and which state was the last then. */
typedef struct fleet_look {
    uint64_t epoch;
    size_t   from;
} fleet_look;

/* It is about to look at another run, by this claim: what that was then. */
typedef struct fleet_glance {
    uint64_t         epoch;
    stet_id          id;
    uint64_t         from;  /* its last revision */
    bool             was_there;
} fleet_glance;

/* An entry of its trail that a hook was told. */
typedef struct fleet_tale {
    uint64_t place; /* its revision, or its number in the inbox and the highest bit */
    uint64_t hash;  /* of all it says */
} fleet_tale;

/* What an operator did, and the run has not taken in yet. */
typedef struct fleet_news {
    struct fleet_news *next;
    uint64_t        entry; /* of its inbox */
    stet__fact_kind kind;
    size_t          deed;
    char            step[48];
    int64_t         occurrence, generation;
    uint64_t        from;  /* rewind: what is recorded from this revision on is forgotten */
} fleet_news;

struct fleet_run {
    stet_id       id;
    char          text[STET_ID_TEXT_MAX];
    unsigned      number;   /* in order of appearance; what the trace calls it */
    bool          is_object;
    int           key;      /* -1: none */
    bool          is_shared; /* it looks at the key, and holds it never */
    char          handler[16];
    fleet_look    looks[FLEET_ENTRIES];
    fleet_glance  glances[FLEET_GLANCES]; /* the last ones */
    size_t        n_glances;
    size_t        looked;   /* the oldest state that what it read can be of; see fleet_object */
    size_t        first_state, last_state; /* those there were since it was asked for, until it ended */
    fleet_order   order;
    fleet_program program;
    stet_id       parent, retry_of;
    char          idem[64]; /* its idempotency key with its place; "" if it has none */
    bool          is_retry;
    bool          is_retried, is_discarded; /* as a dead letter */
    uint64_t      told[FLEET_OPS_MAX * 4]; /* completions a child or a settlement answered */
    size_t        n_told;
    uint32_t      signals[FLEET_SIGNAL_NAMES][FLEET_SIGNALS_MAX]; /* what its inbox got, by name, in order */
    size_t        n_signals[FLEET_SIGNAL_NAMES];
    int64_t       created_ms;
    /* What no replay may contradict any more. */
    fleet_seen    seen[FLEET_OPS_MAX + 1];
    bool          is_fixed[FLEET_OPS_MAX + 1];
    int64_t       asked_ms[FLEET_OPS_MAX]; /* when first asked for, by the store; 0: not yet */
    int64_t       asked_back_ms[FLEET_OPS_MAX]; /* by how much it had been set back then */
    bool          was_deferred[FLEET_OPS_MAX];
    uint8_t       was_put_off[FLEET_OPS_MAX + 1]; /* a bit for each body of an operation */
    int64_t       later_ms[FLEET_OPS_MAX + 1]; /* not before this, its body said last; 0: it did not */
    uint8_t       was_later[FLEET_OPS_MAX + 1]; /* a bit for each body that did */
    bool          is_judged;   /* a classifier has called its failure permanent */
    fleet_entry  *entries;
    fleet_step   *steps;
    uint32_t      n_done;   /* steps recorded with a result */
    int64_t       generation;
    /* What operators did. */
    fleet_news   *news;
    fleet_write  *writes, *last_write;
    bool          is_rewritten; /* anything at all */
    bool          is_astray;    /* a failure was replaced by a result: it takes another way, and may be stuck */
    unsigned      rewinds;
    bool          is_skipped;   /* a step of it, by somebody, perhaps */
    uint64_t      inherited;    /* its last fact that is */
    size_t        fork;         /* the deed that made it; 0: none */
    fleet_made   *made;         /* the last update */
    size_t        n_updates;
    uint64_t      chain;
    bool          has_inherited; /* updates, which it may never come to */
    unsigned      rewrites;     /* deeds it took in */
    bool          is_paused;    /* from the last pause until it is resumed, stopped or stuck */
    bool          is_held;      /* it was when it was granted last */
    unsigned      deaths;       /* of its workers, that it was told of */
    uint64_t      boundary;     /* the revision at which it asked people last */
    uint64_t      recorded_in; /* the last execution that recorded anything */
    bool          is_rolled_back; /* from the begin of a rollback to its end */
    bool          is_undone;      /* because it failed: its handler does nothing more */
    uint64_t      rolled_at; /* where a rollback that the handler asked for ended, with which it goes; 0: none did */
    bool          is_broken;    /* an undo failed for good, and its waiters were told */
    bool          awaits_help;  /* … and nobody has asked for another try since */
    char          undo[48];     /* the one that failed */
    char          broken[96];   /* … and what was recorded of it */
    uint32_t      refused;      /* undos that failed so, a bit for each operation */
    uint64_t      asked_at;     /* the revision of its parent that asked for it */
    bool          is_forgotten; /* its parent was rewound since */
    bool          is_answered;  /* its parent was told how it ended */
    bool          must_stop;
    uint64_t      forgets_from, forgets_before; /* what it called there, by the unit that is looked at */
    /* From its facts. */
    uint64_t      journal, inbox;
    fleet_tale   *tales;    /* in the order in which they were first told */
    size_t        n_tales, cap_tales;
    size_t        tale;     /* the next one, if it is told again */
    uint64_t      taken;     /* so much of its inbox is in its journal */
    uint64_t      turned_at; /* what was in the inbox when its generation began */
    uint64_t      spoken;   /* its last fact that a hook is told */
    uint64_t      owed[FLEET_OWED_MAX]; /* the last ones of generations that a hook must be told */
    size_t        n_owed;
    uint32_t      attempts; /* failed ones */
    uint32_t      attempts_max;
    uint64_t      terms;    /* hash of what it was started with, which every generation has again */
    uint64_t      kept;     /* … and of that what its retries and forks have, too */
    int64_t       limit_ms; /* from its start to its deadline; 0: none */
    stet__fact_kind end;    /* COMPLETED, FAILED, CANCELLED, EXPIRED; 0: open */
    int           code;
    uint8_t      *result;
    size_t        result_len;
    bool          is_stopped; /* a cancel or deadline was put into its inbox */
    bool          is_stop_taken;
    uint64_t      stop_entry; /* as which entry */
    bool          is_called;  /* somebody waits for it by a call */
    int64_t       not_before_ms; /* delay or backoff; 0: none, or a stop ended it */
    int64_t       deadline_ms;
    unsigned      grants;
    uint64_t      session, epoch; /* of the last one */
    int64_t       granted_us;
    int64_t       ended_ms;
    bool          is_purged;  /* removed after its retention */
    bool          is_idle;    /* it waits for what lies far ahead, or for a worker */
    bool          is_unserved; /* no node has its handler */
    bool          is_kept;    /* started with a retention of its own, longer than any seed */
    bool          is_planned; /* a schedule started it, also if it is a retry of such a one */
    bool          is_damaged;
    bool          was_damaged; /* ever; a generation that was is gone */
    bool          is_reported; /* by verify */
    fleet_due    *dues;       /* what it waits for, of this generation */
    uint8_t       any_ops[FLEET_OPS_MAX]; /* which operation, and one more, waits for the first of several, by their order */
    uint32_t      emits;      /* the number of its last event */
    uint64_t      answer;     /* hash of what a waiter was told; 0: nobody was */
    uint64_t      touched;    /* which run of all was it to touch its key's state first; 0: none */
    uint64_t      retry_nonce; /* if it is a retry: under which it was asked for */
    int64_t       answered_us; /* when somebody was first told that it completed or failed; 0 */
    bool          is_told;    /* somebody was told its result */
    bool          is_forced;  /* an operator wanted it failed */
    bool          is_exact;   /* somebody was told in which of its operations it failed: */
    size_t        failed_in;  /* in this one; behind the last: when it was through */
    fleet_run    *next;       /* in the order of their appearance */
};

typedef struct fleet_awakeable {
    char      id[STET_ID_TEXT_MAX];
    fleet_run *run;
    size_t    op;
    unsigned  tried; /* settlements somebody asked for: values 1 … tried */
    unsigned  acked; /* which one was answered OK; 0: none */
    bool      is_settled; /* in the store */
    bool      is_inside;
    bool      is_forgotten; /* its run was rewound since */
} fleet_awakeable;

void fleet_awakeable_add(fleet *w, fleet_run *run, size_t op, const char *id);
/* True: it may execute it; false: it had lost the run, and could not know. */
bool fleet_enter(fleet *w, stet_attempt *a, const fleet_execution *x, size_t seen, size_t op);
void fleet_leave(fleet *w, stet_attempt *a);
/* The node has crashed: what it was executing is lost. */
void fleet_ledger_crash(fleet *w, const fleet_node *node);
/* Was this body executed under this claim? */
bool fleet_is_executed(const fleet_run *run, uint64_t epoch, const stet__fact *fact);
void fleet_body_failed(fleet *w, const stet_attempt *a);
void fleet_settle_failed(fleet_run *run, uint64_t epoch);
void fleet_settle(fleet *w, fleet_run *run, uint64_t epoch, stet_bytes name);
/* Was this body entered under this claim, and is it on no record? */
bool fleet_is_at_risk(const fleet_run *run, uint64_t epoch, stet_bytes name);
/* The handler is about to return this. */
void fleet_seen_check(fleet *w, fleet_run *run, const fleet_seen *seen, size_t n, bool is_fixed);

/* A signal was put into the run's inbox. With a key it may come again, and counts once. */
void fleet_signalled(fleet *w, fleet_run *run, const stet__fact *fact);
/* Was it? */
bool fleet_is_signalled(const fleet_run *run, int name, uint32_t number);
/* Send it the next number; with a key, twice. */
void fleet_told(fleet *w, const stet__fact *event);
/* How many inboxes got the event with this number (of the last few). */
size_t fleet_told_of(const fleet *w, uint32_t number);
/* Emit an event: those who wait are told, and counted. */
void fleet_emit(fleet_node *node);
void fleet_signal(fleet_node *node, const fleet_run *run, int name, bool has_key);

/* What the text of a failure says of it: its verdict. */
fleet_verdict fleet_verdict_of(const char *text, size_t len);
/* What classifiers make of it: 0, STET_EPERMANENT or STET_EDEFER. */
int           fleet_verdict_outcome(fleet_verdict verdict);
/* The classifier for all handlers. */
int           fleet_classify(void *arg, const stet_failed *failed, int64_t *not_before_ms);
int fleet_handler(stet_ctx *ctx, stet_bytes input);
int fleet_register(stet_engine *e);

/* ---- the model (model.c) --------------------------------------------------------------------- */

/* An object's state as the facts tell it. */
typedef struct fleet_object {
    char     account[48]; /* "writes sum"; "" before the first */
    char     scribble[32];
    bool     has_scribble;
    char     motto[32];   /* "": FLEET_MOTTO, with which every key begins */
    bool     has_no_motto; /* it was cleared, and not written since */
    uint64_t writes, sum;
    uint64_t (*states)[FLEET_ENTRIES]; /* all it ever had, in order, as handlers note what they read */
    size_t   n_states, cap_states;     /* without the first, in which there was nothing */
    const fleet_run *writers[FLEET_WRITES_MAX]; /* of the account, by the number of the write; later ones are not known */
} fleet_object;

/* A shared run is about to read the entry, under this claim. */
void       fleet_looks(fleet *w, fleet_run *run, size_t entry, uint64_t epoch);
/* Which of these states has the value? The first one; `upto` + 1: none. */
size_t     fleet_state_find(const fleet *w, int key, size_t entry, uint64_t value, size_t from,
                            size_t upto);

void       fleet_applied(fleet *w, const fleet_node *node, const stet_unit *unit,
                         const stet_outcome *outcome);
/* All units of a commit were, or were refused: the rows are as the facts say. */
void       fleet_committed(fleet *w, const stet_unit *units, const stet_outcome *outcomes,
                           size_t n);
fleet_run *fleet_run_of(const fleet *w, stet_id id);
fleet_run *fleet_run_named(const fleet *w, const char *text);

/* Else it waits for ever, if nobody emits. */
static inline bool
fleet_event_has_limit(const fleet_op *op)
{
    return op->seed % 4 != 0;
}

/* The step of that name, made if it is not known. */
fleet_step *fleet_step_of(fleet *w, fleet_run *run, stet_bytes name);
/* Which operation is it of? FLEET_OPS_MAX: of none. */
size_t      fleet_step_op(const fleet_step *s);
/* Was it done before the rollback that the handler asks for? */
bool        fleet_step_is_before(const fleet_run *run, const fleet_step *s);
/* The step that this one undoes is undone. */
void        fleet_step_undone(fleet *w, fleet_run *run, const char *undo, bool is_given);
/* Can it be undone? A retry or fork that is stopped, or fails, need not come to all it inherits. */
bool        fleet_step_is_undoable(const fleet_run *run, const fleet_step *s);

/* ---- the order of what came (order.c) -------------------------------------------------------- */

void   fleet_order_fact(fleet *w, fleet_run *run, const stet__fact *fact);
/* Its last entry is this. */
void   fleet_order_entry(fleet_run *run, const stet__fact *fact);
void   fleet_order_taken(fleet_run *run, uint64_t upto, uint64_t revision);
/* Its handler waits for the first of several for the nth time, from 0 on, and in this operation. */
void   fleet_order_any(fleet_run *run, size_t nth, size_t op);
/* A generation begins. */
void   fleet_order_forget(fleet_run *run);

/* ---- events (topic.c) ------------------------------------------------------------------------ */

/* The mark of a wait is put, or goes. */
void   fleet_topic_mark(fleet *w, const stet_unit *unit, const stet_op *op);
/* The record of an emission is. */
void   fleet_topic_emission(fleet *w, const stet_op *op);
/* A handler's emission is recorded; when all of that unit is known, is it what it says? */
void   fleet_topic_emits(fleet *w, fleet_run *run, const stet__fact *fact);
void   fleet_topic_counted(fleet *w);

/* ---- what operators did (deeds.c) ------------------------------------------------------------ */

typedef struct fleet_deed_of {
    fleet_run      *run;
    stet__fact_kind kind;     /* SKIP, EDIT, REWIND; STARTED: a fork; DECIDED */
    bool            is_approval; /* DECIDED: else a rejection, or */
    bool            is_resume;
    bool            is_plain;    /* … of what an operator had paused */
    char            step[48]; /* as the operator said it; "": none */
    unsigned        puts;     /* how often the store got it */
    int64_t         asked_us;
} fleet_deed_of;

/* Somebody is about to ask for it. Its number, from 1 on, is the reason to give. */
size_t fleet_deed(fleet *w, fleet_run *run, stet__fact_kind kind, const char *step);
void   fleet_deed_answered(fleet *w, size_t number, int err);
int    fleet_deed_kind(stet__fact_kind kind);
/* It was put into the run's inbox. */
void   fleet_deed_put(fleet *w, fleet_run *run, const stet__fact *fact);
/* The fact of this revision takes the inbox in up to that entry. */
void   fleet_deeds_taken(fleet *w, fleet_run *run, uint64_t upto, uint64_t revision);
/* A unit is over: did what was taken in reach those it has to? */
void   fleet_deeds_reach(fleet *w);
/* A person's decision was put into the run's inbox. */
void   fleet_decided(fleet *w, fleet_run *run, const stet__fact *fact);
/* It was resumed: that is no decision of what its handler waits for. */
void   fleet_resumed(fleet *w, fleet_run *run, const stet__fact *fact);
/* The calls, for an operator or helper. */
void   fleet_decide(fleet_node *node, fleet_run *run, bool is_approval);
void   fleet_resume(fleet_node *node, fleet_run *run);
/* May the run have been told this decision? */
bool   fleet_is_decided(fleet *w, const fleet_run *run, uint64_t deed, int code, bool is_resume);
void   fleet_deed_forked(fleet *w, fleet_run *run, const stet__fact *started);
void   fleet_deed_check_fork(fleet *w, fleet_run *run);
/* Has an operator given the result of a step of that operation? */
bool   fleet_is_given(const fleet_run *run, size_t op);
void   fleet_step_text(char text[32], const fleet_run *run, const char *name);

/* ---- looks at other runs (look.c) ------------------------------------------------------------ */

/* Whom to look at. */
void   fleet_look_pick(fleet *w, char text[STET_ID_TEXT_MAX]);
/* The run is about to, under this claim; what it saw is recorded. */
void   fleet_look_asked(fleet *w, fleet_run *run, const char *text, uint64_t epoch);
void   fleet_looked_at(fleet *w, fleet_run *run, uint64_t epoch, const stet__fact *fact);

/* ---- updates and queries (live.c) ------------------------------------------------------------ */

typedef struct fleet_update {
    fleet_run *run;
    uint64_t   entry;   /* of its inbox, the first; 0: it is not there */
    bool       is_made; /* recorded, and not rewound since */
    bool       is_answered;
    char       answer[48];
} fleet_update;

/* The handler begins: it can be asked and told. */
int    fleet_live(stet_ctx *ctx, fleet_execution *x);
void   fleet_update_asked(fleet *w, fleet_run *run, const stet__fact *fact);
void   fleet_update_made(fleet *w, fleet_run *run, const stet__fact *fact);
/* It enters a body behind the first `seen` operations: it knows those it inherits there. */
void   fleet_check_inherited(fleet *w, const fleet_run *run, const fleet_execution *x, size_t seen);
void   fleet_updates_rewound(fleet *w, fleet_run *run, uint64_t from);
void   fleet_updates_turned(fleet_run *run);
/* The calls, of an operator. */
void   fleet_ask_update(fleet_node *node, fleet_run *run);
void   fleet_ask_query(fleet_node *node, fleet_run *run);
/* It is at rest, for that reason; it has completed; everything is over. */
void   fleet_check_waiting(fleet *w, const fleet_run *run, const char *why);
void   fleet_check_updates(fleet *w, const fleet_run *run, const fleet_seen *last);
void   fleet_check_answers(fleet *w, stet_engine *e);

/* ---- executions that wait (parked.c) --------------------------------------------------------- */

void fleet_check_parked(fleet *w); /* between two events */

/* ---- paused handlers (hold.c) ---------------------------------------------------------------- */

typedef struct fleet_hold {
    int64_t  since_us;  /* 0: it goes on */
    int64_t  until_us;  /* no operator resumes it before */
    uint64_t puts, dels; /* how often it was paused and resumed, by the store */
} fleet_hold;

/* The calls, of an operator. */
void   fleet_hold_pause(fleet_node *node);
void   fleet_hold_resume(fleet_node *node);
/* A unit paused or resumed something. */
void   fleet_hold_applied(fleet *w, const fleet_node *node, const stet_op *op);
/* A body is entered: not if the node has paused its handler before it began with the run. */
void   fleet_hold_entered(fleet *w, const fleet_node *node, const fleet_run *run, int64_t began_us);
/* An operator pauses something for a moment, and lets it go on. */
void   fleet_hold_whim(fleet_node *node);
/* A node is given a run. */
void   fleet_hold_granted(fleet *w, const fleet_node *node, const fleet_run *run);
/* Is something paused, by the store? */
bool   fleet_is_held(fleet *w);
/* Resume everything; faults are over. On a fiber of its node. */
void   fleet_hold_end(stet_engine *e);

/* ---- schedules (schedule.c, planned.c) ------------------------------------------------------- */

/* What became of one planned time of a schedule, or of several that were skipped together. */
typedef struct fleet_occurrence {
    int64_t  planned_ms, until_ms;
    uint64_t count;
    int      outcome, skip;
    stet_id  run; /* that was started, or was in the way */
} fleet_occurrence;

typedef struct fleet_schedule {
    char                  name[8];
    stet_schedule_options options; /* what every node ensures */
    char                  cron[24];
    fleet_order           order;
    /* By the store. */
    stet_id               id;      /* this life of it */
    uint64_t              edition; /* 0: it is not there */
    stet__fact            f;       /* its record; of the texts in it these: */
    char                  input[160];
    int64_t               minutes; /* a cron's: every so many; 0: it goes by none */
    stet_id               run;     /* the last one */
    fleet_occurrence     *log;     /* of this life, in order */
    size_t                n_log, cap_log;
    uint64_t              puts, dels, pauses, resumes;
    /* While it is watched. */
    uint64_t              seen;    /* the edition that was due: */
    int64_t               due_us;  /* since then */
} fleet_schedule;

/* Which ones this seed has. */
void   fleet_schedules_draw(fleet *w);
void   fleet_schedules_free(fleet *w);
/* The calls: of a node that comes up, of an operator. */
void   fleet_schedules_ensure(fleet_node *node);
void   fleet_schedule_edit(fleet_node *node);
/* Paused while its run goes on, and when that is over resumed and given another time at once. */
void   fleet_schedule_whim(fleet_node *node);
/* The run that was started last has ended, as far as the store knows; and something waits for it. */
bool   fleet_schedule_is_over(const fleet *w, const fleet_schedule *s);
bool   fleet_schedule_is_waited(const fleet *w, const fleet_schedule *s);
/* Is one of them not paused, by the store? Pause them all, or let all of them go on. */
bool   fleet_schedules_go_on(fleet *w);
void   fleet_schedules_pause(fleet *w, stet_engine *e);
void   fleet_schedules_resume(fleet *w, stet_engine *e);
/* Is somebody to look at one? */
bool   fleet_schedules_asked(fleet *w);
/* Is one due? Fails if it has been for too long. */
bool   fleet_schedules_watch(fleet *w);
/* A unit was applied; all units of a commit were. */
void   fleet_planned(fleet *w, const fleet_node *node, const stet_unit *unit);
void   fleet_check_index(fleet *w);
/* At the end; and of what a recovery made of a state. */
void   fleet_check_planned(fleet *w, stet_engine *e);
void   fleet_check_replanned(fleet *w, stet__memory_db *before, stet__memory_db *after);

/* ---- the audit hook (audit.c) ---------------------------------------------------------------- */

/* As stet_options.audit; its argument is the node. */
int    fleet_audit(void *arg, const stet_audit_entry *entry);
/* The store removes it: everything of it was told. */
void   fleet_audit_turned(fleet *w, fleet_run *run); /* before it begins anew */
void   fleet_audit_purged(fleet *w, const fleet_run *run);
/* Does the mirror say that everything was? */
bool   fleet_audit_is_over(fleet *w);
void   fleet_check_audit(fleet *w, stet_engine *e);

/* ---- clients (clients.c) --------------------------------------------------------------------- */

typedef enum fleet_way { FLEET_WAY_START, FLEET_WAY_MANY, FLEET_WAY_INVOKE } fleet_way;

typedef struct fleet_task {
    fleet_order order;
    int         key;           /* -1: a service */
    int64_t     at_us, delay_ms, timeout_ms;
    bool        has_idem, has_id, waits, cancels;
    bool        is_unserved;
    fleet_way   way;           /* how its client starts it */
    bool        is_done;       /* the client has nothing left to do for it */
    bool        is_acked;      /* somebody was told that it was started */
    bool        was_unclear;
    bool        is_given_up;   /* nothing to repeat it by, and nobody knows whether it was started */
    stet_run_id run;
} fleet_task;

void fleet_client(void *arg);
void fleet_operator(void *arg);
/* What an operator did was answered. */
void fleet_operated(fleet *w, const fleet_run *run, const char *call, int err, bool is_expected);
/* "": from its beginning. */
void fleet_rewind(fleet_node *node, fleet_run *run, const char *step);
/* Into *fresh; false: it was refused, or nobody knows. */
bool fleet_fork(fleet_node *node, fleet_run *run, const char *step, stet_run_id *fresh);
/* By a clock that went back, a write of state may be taken for later than one whose run retention removed
 * (docs/guarantees.md): no repair, and what verify says of it does not count. */
bool fleet_knows_writes(const fleet *w);
/* The first awakeable that nobody was told to have settled. */
void fleet_settle_first(fleet_node *node);
/* Does it wait for somebody to decide? The first that does, or NULL. */
bool       fleet_is_asked(const fleet *w, const fleet_run *run);
fleet_run *fleet_first_asked(const fleet *w);

/* ---- whims (whims.c) ------------------------------------------------------------------------- */

void fleet_whims_draw(fleet *w);
/* An operator has one. */
void fleet_whim(fleet_node *node);
/* One in so many, in seeds that have them while there are faults. */
bool fleet_whim_strikes(fleet *w, uint64_t one_in);
/* Somebody sends the run a signal; wait until it is there, or was refused, or for a while. */
void fleet_whim_greet(fleet *w, stet__platform *p, fleet_run *run);

/* ---- workers that look dead (revival.c) ------------------------------------------------------ */

/* The one it is about. */
typedef struct fleet_revival_of {
    uint64_t    session; /* 0: there is none */
    fleet_node *node;
    unsigned    life;
    int64_t     right_us;    /* since when the clock is right again */
    bool        is_seen;     /* another node has looked at its runs, and is about to give them back */
    bool        has_crashed; /* in a body of a run that it took since */
    bool        is_over;
} fleet_revival_of;

void fleet_revivals_draw(fleet *w);
/* Perhaps. On the fiber of faults. */
void fleet_revival(fleet *w);
/* A node is about to commit this. */
void fleet_revival_told(fleet *w, fleet_node *node, const stet_unit *unit);
/* A node has entered a body: it may not return. */
void fleet_revival_entered(fleet *w, fleet_node *node, const fleet_run *run);

/* ---- nodes and the world (world.c) ----------------------------------------------------------- */

typedef struct fleet_seat { /* of a client fiber */
    fleet_node *node;
    unsigned    index;
} fleet_seat;

struct fleet_node {
    fleet          *w;
    unsigned        index;
    stet__platform *p;      /* of this life */
    stet_engine    *engine; /* NULL: not open */
    unsigned        life;   /* 1, 2 … */
    bool            is_up;
    bool            is_leaving; /* it is stopped in an orderly way; its clients end soon */
    bool            is_polled;  /* it has no threads; a fiber polls */
    unsigned        clients;    /* fibers that use its engine */
    unsigned        exits;      /* hooks of handlers that are to be called */
    bool            is_poisoned; /* its store handle, until it is reopened */
    int64_t         up_at_us; /* when the next life begins */
    int64_t         born_us;  /* when this one began */
    int64_t         pause_end_us;
    int64_t         stall_end_us; /* when the answer of a late session call comes */
    int64_t         aloof_end_us; /* until then the store answers nothing about its session */
    int64_t         late_us;  /* when a commit of it was made to wait for long last */
    int64_t         skew_ms;
    int64_t         held_us[FLEET_HOLDS]; /* when its own pause was answered; 0: none is */
    fleet_seat      seats[FLEET_CLIENTS + 1];
};

typedef struct fleet_event {
    int64_t     at_us;
    int         node; /* -1: the server */
    unsigned    run;  /* 0: none */
    const char *what; /* a literal */
    char        name[20];
    int64_t     a, b;
} fleet_event;

typedef struct fleet_stats {
    uint64_t faults[FLEET_FAULTS];
    uint64_t ops[FLEET_OPS];
    uint64_t runs, bodies, commits, facts, checks;
    uint64_t ways[3], polls, exits; /* of starting; rounds of polled engines; exit hooks called */
    uint64_t deeds[5]; /* skips, edits, rewinds, forks, decisions that were answered */
    uint64_t updates, answers, queries; /* that were recorded, that somebody got */
    uint64_t turns;   /* generations that ended, also in vain */
    uint64_t tales, retold; /* audit entries, and those that were told again */
    uint64_t holds; /* handlers and services that were paused */
    uint64_t firings, skips, schedules; /* of schedules; how often one was made or changed */
    uint64_t judged, deferred; /* failures that classifiers called permanent, or put off */
    uint64_t reasons; /* why a run has not ended */
    uint64_t parked;  /* executions that wait, compared with the records */
    uint64_t doubts[2]; /* histories, most of them distorted, that were judged twice: no, yes */
    uint64_t orders, undecided; /* histories of keys for which an order was looked for */
    uint64_t recoveries, left, recovered; /* runs that were open or new, and those compared */
    int64_t  virtual_us;
} fleet_stats;

/* What a test does to what is judged, to see whether it is noticed (recover.c, history.c,
 * why.c, checks.c, planned.c). */
typedef enum fleet_tamper {
    FLEET_TAMPER_NOT,
    FLEET_TAMPER_STATUS,
    FLEET_TAMPER_FACT,
    FLEET_TAMPER_VALUE,
    FLEET_TAMPER_OPEN,
    FLEET_TAMPER_READ, /* an object's state at the end */
    FLEET_TAMPER_WHY,   /* the names and times in its sentence */
    FLEET_TAMPER_ANSWER, /* a run that wrote was answered before anybody wrote */
    FLEET_TAMPER_PEEK, /* a shared run says to have seen a sum nobody wrote */
    FLEET_TAMPER_LEDGER, /* an occurrence of a schedule is for another time */
    FLEET_TAMPER_FIRED, /* a recovery starts a run more */
    FLEET_TAMPER_LOOK, /* a run that is looked at gave more than it did */
    FLEET_TAMPER_REASON /* a row says that its run waits for another thing */
} fleet_tamper;

typedef struct fleet_options {
    uint64_t seed;
    fleet_tamper tampers;
    unsigned doubts;     /* so many distortions of each key's history are judged twice */
    char    *failure;    /* 512 bytes: told here, not on standard error; or NULL */
    bool     is_large;
    bool     is_verbose; /* print events as they come */
} fleet_options;

/* An object's state as the outside can know it. */
typedef struct fleet_linear_state {
    uint64_t writes, sum; /* of the account */
    uint64_t scribble;    /* hash of it; 0: none */
} fleet_linear_state;

/* A state of the store that is recovered several times when the history is over. */
typedef struct fleet_image {
    stet__memory_db *db;
    int64_t          now_ms; /* by the store */
    bool             is_end;
    bool             is_damaged;
} fleet_image;

enum { FLEET_IMAGES_MAX = 2 }; /* one of the history and its end */

/* An event, by its number. */
typedef struct fleet_event_of {
    uint32_t number;
    int64_t  as_of_ms; /* it is for those who waited then */
} fleet_event_of;

struct fleet {
    fleet_options    options;
    const fleet     *of; /* a recovery: of this world's state; else NULL */
    size_t           n_nodes, n_tasks, ops_max;
    stet__sim       *sim;
    stet__platform  *server; /* the node the store lives on; never crashes */
    stet__memory_db *db;
    stet__mutex      gate;   /* held around commits: what was applied is always told to the model */
    stet__rng        draws, faults, moments; /* moments: at which an image is taken */
    stet__rng        planner; /* of schedules: seeds that have none are what they were without */
    stet__rng        hiccups; /* … of the store's clock */
    stet__rng        torn;    /* … of which facts are damaged, and how */
    stet__rng        late;    /* … of reads that are answered late */
    stet__rng        calls;   /* … of signals that futures wait for */
    stet__rng        looks;   /* … of runs that are looked at */
    stet__rng        whims;   /* … and of those that have none of these */
    stet__rng        revivals; /* … of workers that look dead */
    fleet_revival_of revival;
    fleet_plan       plan;
    bool             has_faults; /* now */
    int64_t          jumped_us;  /* when the store's clock jumped last */
    int64_t          back_ms;    /* by how much it was set back, and is behind therefore */
    int64_t          set_back_ms; /* the same in all */
    int64_t        audit_us; /* when a hook heard something first; 0: none did */
    int64_t          peak_ms;    /* the latest time it had when it was */
    int64_t          healed_ms;  /* when they ended, by the store */
    bool             is_over;
    bool             is_helped;  /* the helper has done what it can */
    unsigned         crashes;
    unsigned         damaged;   /* rows of facts */
    bool             is_verified; /* a recovery: at its end */
    int              same_name; /* nodes below this index share a worker's name */
    fleet_node       nodes[FLEET_NODES_MAX];
    fleet_task      *tasks;
    fleet_run       *first, *last;
    unsigned         n_runs;
    stet__map        runs;      /* ID -> fleet_run */
    fleet_run      **named;     /* some that were asked for by text, each at a place its text gives; NULL: a recovery */
    stet__map        idems;     /* idempotency key -> fleet_run */
    stet__map        nonces;    /* nonce -> fleet_run */
    stet__map        entered;   /* IDs of runs whose code was entered */
    stet__map        asked;     /* nonce -> when somebody first asked for it */
    stet__map        marks;     /* of runs that wait for an event, by their keys */
    uint32_t         signals; /* numbers of those that were sent */
    uint32_t         emitted; /* numbers of events, also of those that were only begun */
    uint32_t         told[FLEET_EVENTS]; /* inboxes that got an event, by its number; of the last few */
    uint32_t         told_of[FLEET_EVENTS];
    fleet_event_of   events_of[FLEET_EVENTS];
    stet__map        emissions; /* from outside, that go on, by their IDs */
    const fleet_run *emitter;   /* whose emission ends with the unit that is looked at, and its count: */
    uint64_t         counted;
    uint64_t         emits[FLEET_EVENTS]; /* by whom is not in a run: at which commit they were begun; 0: all are told */
    stet_id          once[FLEET_ONCE]; /* to whom each key was given out; zero: to nobody */
    fleet_awakeable *awakeables;
    size_t           n_awakeables, cap_awakeables;
    fleet_update    *updates; /* by number, from 1 on */
    size_t           n_updates, cap_updates;
    fleet_deed_of   *deeds;
    size_t           n_deeds, cap_deeds;
    bool             has_children; /* the unit that is looked at starts some */
    bool             has_orphans; /* somebody must be stopped by the unit that is looked at */
    fleet_object     objects[FLEET_KEYS];
    fleet_hold       holds[FLEET_HOLDS];
    fleet_schedule   schedules[FLEET_SCHEDULES_MAX];
    size_t           n_schedules;
    uint64_t         touches; /* runs that touched one */
    stet__arena      arena;
    fleet_linear_state last_read[FLEET_KEYS]; /* of the objects, when everything was over */
    fleet_image      images[FLEET_IMAGES_MAX];
    size_t           n_images;
    /* trace */
    uint64_t         hash;
    fleet_event     *events; /* a ring */
    size_t           n_events;
    bool             is_failed;
    char             failure[512];
    unsigned         failed_run;
    fleet_stats      stats;
};

/* Live one seed. True: everything held. *stats is added to; *hash tells histories apart. */
bool fleet_seed(const fleet_options *options, fleet_stats *stats, uint64_t *hash);

/* Does it strike now? Asked so often that the seed's plan is looked at here. */
static inline bool
fleet_fault(fleet *w, fleet_fault_kind kind, const fleet_node *node)
{
    return w->has_faults && w->plan.one_in[kind] != 0 && fleet_fault_draw(w, kind, node);
}

uint64_t fleet_draw(stet__rng *r, uint64_t below);
fleet_node *fleet_node_of(fleet *w, const stet__platform *p);
int64_t  fleet_now_ms(fleet *w); /* the store's clock */
/* The latest time it ever had: what was due then may happen, also if it is behind again. */
int64_t  fleet_peak_ms(fleet *w);
/* Simulators are used again: to map their stacks takes as long as a small simulation. */
stet__sim *fleet_sim_get(uint64_t seed);
void       fleet_sim_put(stet__sim *sim);
/* Wait on this platform's node; virtual time. */
void     fleet_nap(stet__platform *p, int64_t us);
/* … with a commit, as long as there are faults: what the node does meanwhile comes late. */
void     fleet_nap_long(fleet_node *node, int64_t us);
int      fleet_store_new(stet_store **out, stet_store *inner, fleet_node *node);
/* One more fiber that uses its engine: at its end it counts node->clients down. */
void     fleet_spawn(fleet_node *node, void (*fn)(void *arg), void *arg);
/* Ask it to stop and close; it comes back later. */
void     fleet_leave_node(fleet *w, fleet_node *node);
/* Does not return if called on a fiber of the node. */
void     fleet_crash(fleet *w, fleet_node *node);
/* Begin the next life of every node whose time has come. */
void     fleet_raise(fleet *w);
/* Nobody executes anything, nothing is due, now or later: only the outside can make anything
 * happen. */
bool     fleet_is_quiet(fleet *w);
/* The handlers read the world here: they have no argument of their own. */
extern fleet *fleet_here;

/* ---- the end (checks.c) ---------------------------------------------------------------------- */

size_t   fleet_open_runs(fleet *w);
void     fleet_check_end(fleet *w, stet_engine *e);
/* Why those that have not ended have not (why.c). */
void     fleet_check_open(fleet *w, stet_engine *e, bool is_helped);

/* ---- one order for every key (linear.c, history.c) ------------------------------------------- */

typedef struct fleet_linear_op {
    int64_t     asked_us, answered_us; /* INT64_MAX: nobody was answered */
    uint64_t    writes_max;  /* it cannot come after more writes than these */
    bool        is_read;     /* where it changes nothing it may as well come */
    bool        is_optional; /* from every state it may lead to the same: it need not come */
    bool        is_exact;    /* it came after exactly writes_max writes, and they made this sum: */
    uint64_t    sum;
    uint64_t    adds_min, adds_max; /* how many writes it is */
    uint64_t    adds_sum;    /* what it adds to the sum, if they are equal */
    uint64_t    hint;        /* the order to try first; a wrong one costs time, no more */
    const void *what;
} fleet_linear_op;

typedef enum fleet_linear {
    FLEET_LINEAR_YES,
    FLEET_LINEAR_NO,
    FLEET_LINEAR_UNDECIDED /* too many states, or too many operations */
} fleet_linear;

enum { FLEET_LINEAR_NEXT_MAX = 1024 };

/* The states the operation may lead to from this one, none if it cannot have seen what it saw.
 * *is_cut: there are more than fit. */
typedef size_t (*fleet_linear_fn)(void *arg, const void *what, const fleet_linear_state *from,
                                  fleet_linear_state *next, bool *is_cut);

/* Is there an order of the operations that respects real time and that the step function allows? */
fleet_linear fleet_linear_check(const fleet_linear_op *ops, size_t n,
                                const fleet_linear_state *first, fleet_linear_fn step, void *arg,
                                size_t states_max);

/* Somebody outside is about to ask for the run of that nonce. */
void     fleet_asked(fleet *w, uint64_t nonce);
uint64_t fleet_nonce_of_retry(const char *run);
/* The code of a run is entered. */
void     fleet_entered(fleet *w, const char *run);
/* Somebody outside was told that it completed or failed. */
void     fleet_answered(fleet *w, fleet_run *run);
void     fleet_answered_call(fleet *w, uint64_t nonce, stet_bytes result);
/* Somebody was told how it failed. */
void     fleet_failed(fleet_run *run, const stet_result *result);
/* Tell everybody the rest, and read the objects. */
void     fleet_history_end(fleet *w, stet_engine *e);
/* Look for an order. Not on a fiber: its stack is too small for long histories. */
void     fleet_check_history(fleet *w);

/* ---- recovery repeated (image.c, fate.c, recover.c) ------------------------------------------ */

void     fleet_image_copy(stet__memory_db *to, const stet__memory_db *from); /* `to` is empty */
/* Is no fact of it, and no entry of its inbox, damaged? */
bool     fleet_is_readable(const mem_run *run);
/* Can all facts of this row be read, and are they all there? How many can, in *readable (may be NULL). */
bool     fleet_facts_are_whole(const mem_facts *facts, uint32_t *readable);
/* Are they the same, of those that begin not after revision `upto`? */
bool     fleet_same_facts(const mem_tree *a, const mem_tree *b, uint64_t upto);
/* A run's row and facts, but for session, epoch and due_ms. */
uint64_t fleet_hash_run(const mem_run *run);
/* Runs, lanes, timers, values. NULL: also what fleet_hash_run() leaves out, and sessions; else but
 * for runs that are damaged in that world. */
uint64_t fleet_hash_db(const stet__memory_db *db, const fleet *w);

typedef struct fleet_fate {
    const mem_run *run; /* as it was when the recovery began; if it is new, as it is now */
    const mem_run *now;
    fleet_order    order;
    stet_id        parent;
    int            key;
    bool           is_new, is_called, is_stoppable, has_idem;
    bool           is_rewound; /* what it called may be forgotten, and stopped therefore */
    bool           is_chance; /* how it ends depends on order or time */
} fleet_fate;

typedef struct fleet_fates {
    fleet_fate *fates; /* by ID */
    size_t      n;
    unsigned    keys;  /* whose state depends on order or time, a bit each */
} fleet_fates;

void     fleet_fates_make(fleet_fates *all, const stet__memory_db *image,
                          const stet__memory_db *db, size_t ops_max, unsigned keys);
void     fleet_fates_free(fleet_fates *all);
uint64_t fleet_fate_lineage(fleet_fates *all, const fleet_fate *fate);

/* Keep the state of the store as it is now, if the seed says so; the end always. */
void fleet_image_take(fleet *w, bool is_end);
/* Recover every image, when the history is over. */
void fleet_recover(fleet *w);
void fleet_images_free(fleet *w);

/* ---- the history (trace.c) ------------------------------------------------------------------- */

/* `what` is a literal; `name` (may be NULL) is copied. They are printed as "what name a b". */
void fleet_trace(fleet *w, const fleet_node *node, const fleet_run *run, const char *what,
                 const char *name, int64_t a, int64_t b);
/* Something does not hold. The first one counts; the world stops soon. */
void fleet_fail(fleet *w, const fleet_run *run, const char *fmt, ...) STET_PRINTF(3, 4);
void fleet_tell(fleet *w, FILE *out);

#endif
