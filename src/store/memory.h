/* What the files of the memory store share.
 *
 * memory_tree.c   the ordered structure all records are kept in
 * memory_db.c     the database: records, their order, their life
 * memory_undo.c   taking changes back
 * memory_ops.c    conditions and operations
 * memory_commit.c units: all or nothing, answered once
 * memory.c        handles: sessions, crumbs, reads, watching
 *
 * The database has one mutex, of the platform that made it. It holds no pointer into a handle, so a
 * simulated node may vanish with its handles at any lock operation; and whoever changes it takes the
 * lock once, so a change is never seen half done. All its memory is the owner's.
 */
#ifndef STET__MEMORY_H
#define STET__MEMORY_H

#include <stdatomic.h>

#include "store/store.h"

/* ---- for tests and the simulator ------------------------------------------------------------ */

/* Move the clock by which the database judges leases, due times and timers. */
void stet__memory_db_advance(stet__memory_db *db, int64_t ms);
/* The node of `platform` is dead: what was kept because its handles might still write into it
 * (crumbs) is kept for its readers only. */
void stet__memory_db_forget(stet__memory_db *db, const stet__platform *platform);
/* Every session there is now is proven dead, as a free lock proves it on a file: its runs can be taken over
 * at once, whatever its lease says. */
void stet__memory_db_bury(stet__memory_db *db);
/* Turn a new store of stet__store_memory_ops.size bytes into a handle on `db`. */
void stet__memory_attach(stet_store *s, stet__memory_db *db);

/* ---- trees ---------------------------------------------------------------------------------- */

typedef struct mem_node {
    struct mem_node *left, *right, *parent;
    uint32_t         priority;
} mem_node;

typedef int (*mem_cmp_fn)(const mem_node *a, const mem_node *b);

typedef struct mem_tree {
    mem_node  *root;
    mem_cmp_fn cmp;
    uint64_t   drawn;
} mem_tree;

#define MEM_OF(type, member, node) ((type *)(void *)((char *)(node) - offsetof(type, member)))

/* A probe is a node inside a record of which only the compared fields are filled. */
void      stet__mem_tree_init(mem_tree *tree, mem_cmp_fn cmp);
void      stet__mem_tree_add(mem_tree *tree, mem_node *node);
void      stet__mem_tree_remove(mem_tree *tree, mem_node *node);
mem_node *stet__mem_tree_ge(const mem_tree *tree, const mem_node *probe); /* first not before it */
mem_node *stet__mem_tree_lt(const mem_tree *tree, const mem_node *probe); /* last before it */
mem_node *stet__mem_tree_find(const mem_tree *tree, const mem_node *probe);
mem_node *stet__mem_tree_first(const mem_tree *tree);
mem_node *stet__mem_tree_last(const mem_tree *tree);
mem_node *stet__mem_tree_next(const mem_node *node);
mem_node *stet__mem_tree_prev(const mem_node *node);

/* ---- records -------------------------------------------------------------------------------- */

/* A journal row or an inbox entry. */
typedef struct mem_facts {
    mem_node node; /* by first */
    uint64_t first;
    uint32_t count;
    size_t   len;
    uint8_t *data;
} mem_facts;

typedef struct mem_run {
    mem_node     by_id, by_place, by_lane;
    stet_run_row row;    /* its texts and extra are the run's own memory */
    uint64_t     ticket; /* its place in its lane */
    mem_tree    *place;  /* the one of ready, idle, owned it is in; NULL: ended and unclaimed */
    mem_tree     journal, inbox;
} mem_run;

typedef struct mem_timer {
    mem_node by_time, by_run;
    int64_t  fire_ms;
    stet_id  run;
    uint64_t completion;
} mem_timer;

typedef struct mem_value {
    mem_node    node; /* by space, key */
    const char *space;
    uint64_t    first; /* bytes of the space, in the order of texts: mostly all there is to compare */
    stet_bytes  key;
    stet_value  value;
} mem_value;

typedef struct mem_session {
    mem_node         node; /* by number */
    stet_session_row row;  /* is_dead here means closed; expiry is judged when asked */
    uint8_t          token_hash[32];
} mem_session;

/* Apart from its session, because a worker that lost its session may go on writing into it. */
typedef struct mem_crumbs {
    mem_node              node; /* by session */
    uint64_t              session;
    const stet__platform *writer; /* NULL: nobody writes any more */
    size_t                n;
    stet_crumb           *crumbs;
} mem_crumbs;

/* What is remembered of one unit of the last batch of a committer. */
typedef struct mem_answer {
    uint64_t seq;
    int      result;
    bool     is_repeat;
    uint32_t cond;
    uint64_t inbox;
    int64_t  next_due_ms;
    size_t   first_grant, n_grants;
} mem_answer;

typedef struct mem_committer {
    mem_node    node; /* by id */
    stet_id     id;
    uint64_t    last_seq;
    int64_t     seen_ms;
    mem_answer *answers; /* in the order of their seq */
    size_t      n_answers;
    stet_grant *grants;
} mem_committer;

/* What is needed to take one change back. */
typedef enum mem_undo_kind {
    UNDO_COLUMNS, /* run: had the columns `row` and `ticket` */
    UNDO_MEMORY,  /* fresh replaced stale */
    UNDO_RUN_ADD,
    UNDO_RUN_REMOVE,
    UNDO_JOURNAL_ADD, /* run, record */
    UNDO_INBOX_ADD,
    UNDO_JOURNAL_REMOVE,
    UNDO_INBOX_REMOVE,
    UNDO_TIMER_ADD,
    UNDO_TIMER_REMOVE,
    UNDO_VALUE_ADD,
    UNDO_VALUE_REMOVE,
    UNDO_SESSION_REMOVE,
    UNDO_SESSION_CLOSE
} mem_undo_kind;

typedef struct mem_undo {
    mem_undo_kind kind;
    mem_run      *run;
    void         *record;
    const void   *fresh, *stale;
    stet_run_row  row;
    uint64_t      ticket;
} mem_undo;

struct stet__memory_db {
    stet__platform  *owner;
    stet__alloc     *alloc;
    stet__mutex      mutex;
    stet__cond       changed; /* commits grew, or a watcher shall end */
    _Atomic int64_t  offset_ms;
    uint64_t         commits; /* how many changed something */
    uint64_t         last_session;
    uint64_t         last_ticket;
    mem_tree         runs;     /* by id */
    mem_tree         ready;    /* unclaimed and due some time: handler, due_ms, id */
    mem_tree         idle;     /* unclaimed, open, due never: handler, status, id */
    mem_tree         owned;    /* claimed: session, id */
    mem_tree         lanes;    /* in a lane: lane, ticket */
    mem_tree         timers;   /* fire_ms, run, completion */
    mem_tree         timers_of; /* run, fire_ms, completion */
    mem_tree         values, sessions, crumbs, committers;
    mem_undo        *undo; /* of the commit under way; kept for its room */
    size_t           n_undo, cap_undo;
    stet_grant      *grants; /* made by the commit under way */
    size_t           n_grants, cap_grants;
};

/* A session this handle opened. The token never leaves the handle. */
typedef struct mem_token {
    uint64_t session;
    uint8_t  token[32];
    uint8_t  hash[32]; /* of the token; proving it anew at each commit would only cost time */
} mem_token;

typedef struct mem_store {
    stet_store       base;
    stet__memory_db *db;
    bool             owns_db;
    mem_token       *tokens; /* guarded by the lock of the db, as all below */
    size_t           n_tokens;
    uint64_t         commits;       /* how many of db->commits were this handle's */
    size_t           turn;          /* the handler STET_OP_CLAIM_DUE begins with */
    stet__thread    *watcher;
    bool             is_unwatching;
    uint64_t         seen; /* how many commits of other handles were hinted */
    stet_hint_fn     on_hint;
    void            *hint_arg;
} mem_store;

static inline mem_store *mem_handle(stet_store *s) { return (mem_store *)(void *)s; }
static inline void mem_lock(stet__memory_db *db) { stet__lock(db->owner, &db->mutex); }
static inline void mem_unlock(stet__memory_db *db) { stet__unlock(db->owner, &db->mutex); }
static inline int64_t mem_now(stet__memory_db *db)
{
    return stet__wall_ms(db->owner) + atomic_load(&db->offset_ms);
}
/* The ops' commit. Takes the lock; everything below needs it held. */
int stet__mem_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);

mem_run       *stet__mem_run(stet__memory_db *db, stet_id id);
mem_value     *stet__mem_value(stet__memory_db *db, const char *space, stet_bytes key);
/* To look for values: the tree's own order needs more than space and key. */
mem_value      stet__mem_value_probe(const char *space, stet_bytes key);
mem_timer     *stet__mem_timer(stet__memory_db *db, int64_t fire_ms, stet_id run,
                               uint64_t completion);
mem_session   *stet__mem_session(stet__memory_db *db, uint64_t session);
mem_crumbs    *stet__mem_crumbs(stet__memory_db *db, uint64_t session);
mem_committer *stet__mem_committer(stet__memory_db *db, stet_id id);
mem_run       *stet__mem_lane_first(stet__memory_db *db, const char *lane);
/* When the first unclaimed run of these handlers is due; STET_NEVER. */
int64_t        stet__mem_next_due(stet__memory_db *db, const char *const *handlers, size_t n);
bool           stet__mem_is_alive(stet__memory_db *db, const mem_session *session);
/* Did this handle open it? */
bool stet__mem_is_own(const mem_store *h, const mem_session *session);

/* Put the run where its columns say it belongs, and take it from there. */
void stet__mem_run_place(stet__memory_db *db, mem_run *run);
void stet__mem_run_displace(stet__memory_db *db, mem_run *run);

/* New records, in no tree. NULL: out of memory. */
mem_run     *stet__mem_run_new(stet__memory_db *db, const stet_run_row *row);
mem_facts   *stet__mem_facts_new(stet__memory_db *db, uint64_t first, uint32_t count,
                                 stet_bytes data);
mem_value   *stet__mem_value_new(stet__memory_db *db, const char *space, stet_bytes key,
                                 stet_bytes data);
bool         stet__mem_copy(stet__memory_db *db, stet_bytes *out, stet_bytes data);
void         stet__mem_run_free(stet__memory_db *db, mem_run *run); /* with its facts */
void         stet__mem_facts_free(stet__memory_db *db, mem_facts *facts);
void         stet__mem_value_free(stet__memory_db *db, mem_value *value);
void         stet__mem_session_free(stet__memory_db *db, mem_session *session);
void         stet__mem_crumbs_free(stet__memory_db *db, mem_crumbs *crumbs);
void         stet__mem_committer_free(stet__memory_db *db, mem_committer *committer);
/* Free the crumbs if neither a writer nor a session is left. */
void stet__mem_crumbs_settle(stet__memory_db *db, mem_crumbs *crumbs);

/* ---- a commit under way --------------------------------------------------------------------- */

typedef struct mem_tx {
    stet__memory_db *db;
    mem_store       *h;
    int64_t          now_ms;
    int64_t          next_due_ms; /* of the unit under way */
    const mem_answer *answers;    /* of the units before it in this call */
    size_t            n_answers;
} mem_tx;

/* Room for one more element of `size` bytes behind `used`. */
bool stet__mem_room(stet__memory_db *db, void **items, size_t *cap, size_t used, size_t size);
/* Note a change that is about to be made. NULL, false: out of memory, do not make it. */
mem_undo *stet__mem_note(mem_tx *tx, mem_undo_kind kind);
bool      stet__mem_note_record(mem_tx *tx, mem_undo_kind kind, mem_run *run, void *record);
void      stet__mem_timer_link(stet__memory_db *db, mem_timer *timer);
void      stet__mem_timer_unlink(stet__memory_db *db, mem_timer *timer);
void      stet__mem_run_link(stet__memory_db *db, mem_run *run);
void      stet__mem_run_unlink(stet__memory_db *db, mem_run *run);
/* Take back what was noted behind `mark`, and the grants behind `grants`. */
void stet__mem_roll_back(stet__memory_db *db, size_t mark, size_t grants);
/* The batch stands: free what it replaced and removed. */
void stet__mem_settle(stet__memory_db *db);

/* STET_OK: it holds. */
int stet__mem_cond_check(mem_tx *tx, const stet_cond *cond);
int stet__mem_op_apply(mem_tx *tx, const stet_op *op);

#endif
