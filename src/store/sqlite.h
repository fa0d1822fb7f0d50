/* The SQLite store from the inside: what its files share.
 *
 *   sqlite.c             the handle: address, open, close, reopen, the table of methods
 *   sqlite_conn.c        connections, statements prepared once, error texts
 *   sqlite_schema.c      whose file is it; tables
 *   sqlite_commit.c      commits: one transaction, and the memory of what was answered
 *   sqlite_check.c       units, first pass: conditions and rules
 *   sqlite_apply.c       units, second pass: operations
 *   sqlite_runs.c        rows of runs in memory, written back once a commit
 *   sqlite_stretch.c     in which stretches of time there are runs of a handler, a status, a key
 *   sqlite_list.c        lists of runs by what they are asked for
 *   sqlite_mend.c        are all runs where they are looked for? And set right what is not
 *   sqlite_session.c     sessions, proofs of death, crumbs
 *   sqlite_read.c        reads, each on a connection of the pool
 *   sqlite_live.c        the sidecar file: writers' queue, hints, slots of sessions
 *   sqlite_clock.c       the clock, which is not the machine's
 *   sqlite_checkpoint.c  the thread that moves the log into the file
 *   sqlite_tx.c          transactions that are lent, and units inside somebody else's
 *
 * Connections of a handle: `writer` (commit; Locks: commit_lock), `side` (sessions and upkeep; Locks:
 * side_lock; its own so that a renewal never waits behind the committer's mutex, only in the fair
 * queue), `log` (checkpoints; Locks: log_lock) and up to LITE_READERS readers. No two of these
 * locks are ever held together.
 */
#ifndef STET__SQLITE_H
#define STET__SQLITE_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "store/store.h"

/* The journal's last revision is not a column: a step then writes one row, not two. */
#define LITE_JOURNAL                                                                               \
    "(SELECT f.rev+f.count-1 FROM $facts f WHERE f.run=r.id ORDER BY f.rev DESC LIMIT 1)"
#define LITE_ROW                                                                                   \
    "SELECT r.id,r.handler,r.key,r.lane,r.status,r.terminal,r.work,r.epoch,r.inbox,r.due,"         \
    "r.created,r.ended,r.priority,r.attempt,r.grp,r.reason,r.extra," LITE_JOURNAL " FROM $runs r "
/* Named, or the planner might walk all runs in the order of their IDs to spare the sorting. */
#define LITE_ROW_OF LITE_ROW "INDEXED BY $runs_work WHERE r.work=?10 "
#define LITE_ROW_FILTER                                                                            \
    "AND (?2 IS NULL OR r.handler=?2) AND (?3 IS NULL OR (r.handler>=?3 AND r.handler<?4)) "       \
    "AND (?5 IS NULL OR r.key=?5) "                                                                \
    "AND (?6=0 OR (r.status<64 AND ((?6>>r.status)&1))) "                                          \
    "AND r.created>=?7 AND (?8=0 OR r.created<=?8) "

/* Rows that are added at once: so often stands the row in the statement. */
#define LITE_LOT 8u
#define LITE_LOT_ROWS(row) row "," row "," row "," row "," row "," row "," row "," row

#define LITE_STRETCH_LOT      1024u
#define LITE_STRETCH_IS_SMALL "n<1024"

/* Every statement, once. '$' stands for the table prefix. */
#define LITE_SQL_LIST(X)                                                                           \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(RUN_LOAD, "SELECT r.handler,r.lane,r.lane_pos,r.status,r.terminal,r.work,r.epoch,r.inbox,"   \
                "r.due,r.ended,r.attempt," LITE_JOURNAL " FROM $runs r WHERE r.id=?1")             \
    X(RUN_ADD, "INSERT INTO $runs(id,handler,key,lane,lane_pos,status,terminal,work,epoch,inbox,"  \
               "due,created,ended,priority,attempt,grp,reason,extra) "                             \
               "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)")           \
    /* OR FAIL: whatever fails takes the whole commit along, so a statement need not be undone alone. */ \
    X(RUN_ADD_LOT, "INSERT OR FAIL INTO $runs(id,handler,key,lane,lane_pos,status,terminal,work,"  \
                   "epoch,inbox,due,created,ended,priority,attempt,grp,reason,extra) VALUES"       \
                   LITE_LOT_ROWS("(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"))                         \
    X(RUN_INBOX, "UPDATE $runs SET inbox=?2 WHERE id=?1")                                          \
    X(RUN_CORE, "UPDATE $runs SET status=?2,terminal=?3,work=?4,epoch=?5,inbox=?6,due=?7,"         \
                "ended=?8,attempt=?9 WHERE id=?1")                                                 \
    /* The rows are there: each of them is a conflict, and several take little more than half the time. */         \
    X(RUN_CORE_LOT, "INSERT OR FAIL INTO $runs(id,status,terminal,work,epoch,inbox,due,ended,"     \
                    "attempt) VALUES" LITE_LOT_ROWS("(?,?,?,?,?,?,?,?,?)")                         \
                    " ON CONFLICT(id) DO UPDATE SET status=excluded.status,"                       \
                    "terminal=excluded.terminal,work=excluded.work,epoch=excluded.epoch,"          \
                    "inbox=excluded.inbox,due=excluded.due,ended=excluded.ended,"                  \
                    "attempt=excluded.attempt")                                                    \
    X(RUN_FULL, "UPDATE $runs SET status=?2,terminal=?3,work=?4,epoch=?5,inbox=?6,due=?7,"         \
                "ended=?8,attempt=?9,lane=?10,lane_pos=?11,"                                       \
                "reason=CASE WHEN ?12 THEN ?13 ELSE reason END,"                                   \
                "extra=CASE WHEN ?14 THEN ?15 ELSE extra END WHERE id=?1")                         \
    X(RUN_DEL, "DELETE FROM $runs WHERE id=?1")                                                    \
    X(WORK_DUE, "SELECT id FROM $runs WHERE work=0 AND handler=?1 AND due<=?2 "                    \
                "ORDER BY due,id LIMIT ?3")                                                        \
    X(WORK_NEXT, "SELECT due FROM $runs WHERE work=0 AND handler=?1 ORDER BY due LIMIT 1")         \
    X(WORK_OF, "SELECT id FROM $runs WHERE work=?1")                                               \
    X(WORK_IDLE, "SELECT id FROM $runs WHERE work=?1 AND handler=?2")                              \
    X(FACTS_ADD, "INSERT INTO $facts(run,rev,count,data) VALUES(?1,?2,?3,?4)")                     \
    X(FACTS_ADD_LOT, "INSERT OR FAIL INTO $facts(run,rev,count,data) VALUES"                       \
                     LITE_LOT_ROWS("(?,?,?,?)"))                                                   \
    X(FACTS_DEL, "DELETE FROM $facts WHERE run=?1")                                                \
    X(INBOX_ADD, "INSERT INTO $inbox(run,seq,data) VALUES(?1,?2,?3)")                              \
    X(INBOX_DEL, "DELETE FROM $inbox WHERE run=?1")                                                \
    X(INBOX_CUT, "DELETE FROM $inbox WHERE run=?1 AND seq<=?2")                                    \
    X(TIMER_HAS, "SELECT 1 FROM $timers WHERE fire=?1 AND run=?2 AND completion=?3")               \
    X(TIMER_ADD, "INSERT OR IGNORE INTO $timers(fire,run,completion) VALUES(?1,?2,?3)")            \
    X(TIMER_DEL, "DELETE FROM $timers WHERE fire=?1 AND run=?2 AND completion=?3")                 \
    X(TIMERS_DEL, "DELETE FROM $timers WHERE run=?1")                                              \
    X(VALUE_LOOK, "SELECT version,run,rev FROM $values_ WHERE space=?1 AND key=?2")                \
    X(VALUE_PUT, "INSERT INTO $values_(space,key,version,data,run,rev) VALUES(?1,?2,1,?3,?4,?5) "  \
                 "ON CONFLICT(space,key) DO UPDATE SET version=version+1,data=excluded.data,"      \
                 "run=excluded.run,rev=excluded.rev")                                              \
    X(VALUE_SET, "UPDATE $values_ SET version=?6,data=?3,run=?4,rev=?5 WHERE space=?1 AND key=?2") \
    X(VALUE_DEL, "DELETE FROM $values_ WHERE space=?1 AND key=?2")                                 \
    X(BASE_LOOK, "SELECT version,run,rev FROM $base WHERE space=?1 AND key=?2")                    \
    X(BASE_PUT, "INSERT INTO $base(space,key,version,data,run,rev) VALUES(?1,?2,1,?3,?4,?5) "      \
                "ON CONFLICT(space,key) DO UPDATE SET version=version+1,data=excluded.data,"       \
                "run=excluded.run,rev=excluded.rev")                                               \
    X(BASE_SET, "UPDATE $base SET version=?6,data=?3,run=?4,rev=?5 WHERE space=?1 AND key=?2")     \
    X(BASE_DEL, "DELETE FROM $base WHERE space=?1 AND key=?2")                                     \
    X(FACTS_LAST, "SELECT rev+count-1 FROM $facts WHERE run=?1 ORDER BY rev DESC LIMIT 1")         \
    X(INBOX_LAST, "SELECT seq FROM $inbox WHERE run=?1 ORDER BY seq DESC LIMIT 1")                 \
    X(LANE_LAST, "SELECT lane_pos FROM $runs WHERE lane=?1 ORDER BY lane_pos DESC LIMIT 1")        \
    X(COMMITTER_GET, "SELECT last_seq,outcomes FROM $committers WHERE id=?1")                      \
    X(COMMITTER_PUT, "INSERT INTO $committers(id,last_seq,at,outcomes) VALUES(?1,?2,?3,?4) "       \
                     "ON CONFLICT(id) DO UPDATE SET last_seq=excluded.last_seq,at=excluded.at,"    \
                     "outcomes=excluded.outcomes")                                                 \
    X(COMMITTER_OLD, "DELETE FROM $committers WHERE at<?1")                                        \
    X(SESSION_GET, "SELECT lease_until,token,closed FROM $sessions WHERE session=?1")              \
    X(SESSION_ADD, "INSERT INTO $sessions(id,token,started,seen,lease_until,closed,info) "         \
                   "VALUES(?1,?2,?3,?3,?4,0,?5)")                                                  \
    X(SESSION_RENEW, "UPDATE $sessions SET seen=?3,lease_until=?4 WHERE session=?1 AND token=?2 "  \
                     "AND closed=0 AND lease_until>?3")                                            \
    X(SESSION_CLOSE, "UPDATE $sessions SET closed=1 WHERE session=?1 AND token=?2")                \
    X(SESSION_BURY, "UPDATE $sessions SET closed=1 WHERE session=?1 AND closed=0")                 \
    X(SESSION_DEL, "DELETE FROM $sessions WHERE session=?1")                                       \
    X(SESSION_OLD, "DELETE FROM $sessions WHERE (closed=1 OR lease_until<?1) AND seen<?1 AND "     \
                   "NOT EXISTS(SELECT 1 FROM $runs WHERE work=$sessions.session)")                 \
    X(SESSIONS, "SELECT session,id,started,seen,lease_until,closed,info FROM $sessions "           \
                "ORDER BY session")                                                                \
    X(INSTANCE, "SELECT v FROM $meta WHERE k='instance'")                                          \
    X(RUN_GET, LITE_ROW "WHERE r.id=?1")                                                           \
    X(RUNS_NEWEST, LITE_ROW "WHERE r.id<?1 " LITE_ROW_FILTER "ORDER BY r.id DESC LIMIT ?9")        \
    X(RUNS_OLDEST, LITE_ROW "WHERE r.id>?1 " LITE_ROW_FILTER "ORDER BY r.id LIMIT ?9")             \
    X(RUNS_BETWEEN,                                                                                \
      LITE_ROW "WHERE r.id<?1 AND r.id>=?11 " LITE_ROW_FILTER "ORDER BY r.id DESC LIMIT ?9")       \
    X(RUNS_AT_HAND, "SELECT id,status FROM $runs INDEXED BY $runs_work WHERE work IS NOT NULL "    \
                    "LIMIT ?1")                                                                    \
    X(READ_BEGIN, "BEGIN")                                                                         \
    X(STRETCH_ADD, "INSERT OR IGNORE INTO $stretches(what,stretch) VALUES(?1,?2)")                 \
    X(STRETCH_DEL, "DELETE FROM $stretches WHERE what=?1 AND stretch=?2")                          \
    X(STRETCH_BEFORE, "SELECT stretch FROM $stretches WHERE what=?1 AND stretch<=?2 "              \
                      "ORDER BY stretch DESC LIMIT 1")                                             \
    X(STRETCH_AFTER, "SELECT what,stretch FROM $stretches WHERE (what,stretch)>(?1,?2) "           \
                     "ORDER BY what,stretch LIMIT 1")                                              \
    X(STRETCH_NAME, "SELECT what FROM $stretches WHERE what>?1 ORDER BY what LIMIT 1")             \
    X(STRETCH_HAS, "SELECT 1 FROM $stretches WHERE what=?1 AND stretch=?2")                        \
    X(MEND_PAGE, "SELECT id,handler,status,terminal,work,due,created,key FROM $runs "              \
                 "WHERE id>?1 ORDER BY id LIMIT ?2")                                               \
    X(MEND_ROW, "SELECT id,handler,status,terminal,work,due,created,key FROM $runs WHERE id=?1")   \
    X(MEND_WORK, "UPDATE $runs SET work=?2 WHERE id=?1")                                           \
    X(STRETCH_FILL, "SELECT id,handler,status,work,created,key FROM $runs")                        \
    X(STRETCH_HAS_HANDLER, "SELECT 1 FROM $runs WHERE id>=?1 AND id<=?2 AND handler=?3 LIMIT 1")   \
    X(STRETCH_HAS_STATUS, "SELECT 1 FROM $runs WHERE id>=?1 AND id<=?2 AND "                       \
                          "status=CAST(?3 AS INTEGER) AND work IS NULL LIMIT 1")                   \
    X(STRETCH_HAS_ANY, "SELECT 1 FROM $runs WHERE id>=?1 AND id<=?2 LIMIT 1")                      \
    X(STRETCH_KEYS_ADD, "INSERT INTO $stretch_keys(n,data) VALUES(?1,?2)")                         \
    X(STRETCH_KEYS_DEL, "DELETE FROM $stretch_keys WHERE lot=?1")                                  \
    X(STRETCH_KEYS_SMALL, "SELECT lot,data FROM $stretch_keys INDEXED BY $stretch_small WHERE "    \
                          LITE_STRETCH_IS_SMALL)                                                   \
    X(STRETCH_KEYS_AFTER, "SELECT lot,data FROM $stretch_keys WHERE lot>?1 AND n>=?2 "             \
                          "ORDER BY lot LIMIT 1")                                                  \
    X(STRETCH_KEYS, "SELECT data FROM $stretch_keys")                                              \
    X(RUNS_OF_NEWEST,                                                                              \
      LITE_ROW_OF "AND r.id<?1 " LITE_ROW_FILTER "ORDER BY r.id DESC LIMIT ?9")                    \
    X(RUNS_OF_OLDEST,                                                                              \
      LITE_ROW_OF "AND r.id>?1 " LITE_ROW_FILTER "ORDER BY r.id LIMIT ?9")                         \
    /* From one run to the next by the primary key, without touching their facts. */               \
    X(RUNS_LOST, "WITH RECURSIVE n(id) AS (SELECT min(run) FROM $facts WHERE run>?1 UNION ALL "    \
                 "SELECT (SELECT min(run) FROM $facts WHERE run>n.id) FROM n WHERE n.id<=?2) "     \
                 "SELECT n.id,(SELECT f.rev+f.count-1 FROM $facts f WHERE f.run=n.id ORDER BY "    \
                 "f.rev DESC LIMIT 1),(SELECT max(seq) FROM $inbox WHERE run=n.id) FROM n WHERE "  \
                 "n.id<=?2 AND NOT EXISTS(SELECT 1 FROM $runs WHERE id=n.id) LIMIT ?3")            \
    X(FACTS_GET, "SELECT rev,count,data FROM $facts WHERE run=?1 AND rev>=coalesce("               \
                 "(SELECT max(rev) FROM $facts WHERE run=?1 AND rev<=?2),?2) AND rev+count>?2 "    \
                 "ORDER BY rev LIMIT ?3")                                                          \
    X(INBOX_GET, "SELECT seq,1,data FROM $inbox WHERE run=?1 AND seq>=?2 ORDER BY seq LIMIT ?3")   \
    X(TIMERS, "SELECT fire,run,completion FROM $timers "                                           \
              "WHERE (fire,run,completion)>(?1,?2,?3) ORDER BY fire,run,completion")               \
    X(TIMERS_OF, "SELECT fire,run,completion FROM $timers WHERE run=?1 ORDER BY fire,completion")  \
    X(VALUE_GET, "SELECT key,version,data,run,rev FROM $values_ WHERE space=?1 AND key=?2")        \
    X(VALUES_FROM, "SELECT key,version,data,run,rev FROM $values_ WHERE space=?1 AND key>=?2 "     \
                   "ORDER BY key")                                                                 \
    X(VALUES_AFTER, "SELECT key,version,data,run,rev FROM $values_ WHERE space=?1 AND key>?2 "     \
                    "ORDER BY key")                                                                \
    X(BASE_GET, "SELECT key,version,data,run,rev FROM $base WHERE space=?1 AND key=?2")            \
    X(BASES_FROM, "SELECT key,version,data,run,rev FROM $base WHERE space=?1 AND key>=?2 "         \
                  "ORDER BY key")                                                                  \
    X(BASES_AFTER, "SELECT key,version,data,run,rev FROM $base WHERE space=?1 AND key>?2 "         \
                   "ORDER BY key")                                                                 \
    X(LANE, "SELECT id FROM $runs WHERE lane=?1 ORDER BY lane_pos LIMIT ?2")                       \
    X(PING, "SELECT 1 FROM $meta LIMIT 1")

typedef enum sqlite_sql {
#define LITE_SQL_ENUM(name, text) LITE_SQL_##name,
    LITE_SQL_LIST(LITE_SQL_ENUM)
#undef LITE_SQL_ENUM
        LITE_SQL_COUNT
} sqlite_sql;

#define LITE_READERS     4
#define LITE_BUSY_MS     5000
#define LITE_PREFIX_MAX  32
#define LITE_TOKEN_BYTES 32

typedef struct sqlite_conn {
    sqlite3      *db;
    int           queue_fd; /* of this connection, because OFD locks belong to the open file */
    sqlite3_stmt *stmts[LITE_SQL_COUNT];
} sqlite_conn;

/* ---- pages on their way to the log (sqlite_frames.c) ---------------------------------------- */

typedef struct sqlite_frames {
    sqlite3_io_methods        methods; /* first: the file has a pointer to it */
    const sqlite3_io_methods *real;    /* NULL: no file has ours */
    bool                      is_gathering;
    char                     *data;
    size_t                    len;
    sqlite3_int64             at; /* in the file */
} sqlite_frames;

/* ---- the live file (sqlite_live.c) ---------------------------------------------------------- */

/* Slots are sparse: room on the disk is taken for the crumbs a session asked for, no more. */
#define LITE_CRUMBS_MAX STET_CRUMBS_MAX
#define LITE_SLOT_HEAD  128
#define LITE_SLOT_BYTES (35 * 65536) /* a multiple of any page size */
_Static_assert(LITE_SLOT_HEAD + LITE_CRUMBS_MAX * sizeof(stet_crumb) <= LITE_SLOT_BYTES,
               "a slot has room for its crumbs");
#define LITE_BOOT_MAX   40

/* See sqlite_clock.c. */
typedef struct sqlite_live_anchor {
    _Atomic int64_t mono_us, offset_us, target_us;
} sqlite_live_anchor;

/* The first block of the live file, mapped by every handle. All of it is hints and may be lost. */
typedef struct sqlite_live_head {
    char             magic[8];
    _Atomic uint32_t queue_word[2]; /* futex per lock byte: bumped when it is let go */
    _Atomic uint32_t queue_waiters[2];
    _Atomic uint32_t hint; /* futex: bumped after each commit by anybody */
    _Atomic uint32_t watchers;
    _Atomic uint32_t clock_turn; /* which anchor counts; 0: none yet */
    sqlite_live_anchor anchors[2];
    char             boot[LITE_BOOT_MAX]; /* in which the anchors were set */
} sqlite_live_head;

typedef struct sqlite_live {
    char             *path;
    int               fd; /* also holds the lock that shows this handle is there */
    sqlite_live_head *head;
} sqlite_live;

/* Begins the slot of a session; its crumbs follow at LITE_SLOT_HEAD. Whoever changes this layout
 * changes LIVE_MAGIC. */
typedef struct sqlite_slot {
    uint64_t session;   /* 0: never used */
    uint8_t  store[16]; /* which database: a file may be replaced under its live file */
    char     boot[LITE_BOOT_MAX];
    uint64_t n_crumbs;
} sqlite_slot;

typedef struct sqlite_session {
    struct sqlite_session *next;
    uint64_t               session;
    size_t                 slot;
    int                    fd; /* holds the slot's lock; free means the owner is dead */
    uint8_t               *map;
} sqlite_session;

/* ---- rows of runs in memory (sqlite_runs.c) -------------------------------------------------- */

#define LITE_RUN_BUCKETS 8192u
#define LITE_RUNS_MAX    16384u

/* What of a row must be written at the end of the commit. */
#define LITE_DIRTY_INBOX 1u
#define LITE_DIRTY_CORE  2u
#define LITE_DIRTY_FULL  4u

typedef struct sqlite_run {
    struct sqlite_run *next; /* in its bucket, or free */
    struct sqlite_run *next_dirty;
    stet_id            id;
    bool               exists;
    bool               is_listed; /* among the dirty */
    uint8_t            dirty;
    uint32_t           status, is_terminal, attempt;
    uint64_t           session, epoch, journal, inbox;
    int64_t            due_ms, ended_ms;
    const char        *handler; /* interned */
    char              *lane;    /* own */
    int64_t            lane_pos;
    /* Waiting to be written; belongs to the caller of commit(). */
    const stet_run_row *put; /* row to be inserted */
    bool                has_reason, has_extra;
    const char         *reason;
    stet_bytes          extra;
    uint32_t            n_facts; /* the last ones of its journal */
    stet_bytes          facts;
    /* What it will be after the operations checked so far of unit `stamp`. */
    uint64_t    stamp;
    bool        will_exist, will_end;
    uint64_t    will_journal;
    const char *will_lane;
} sqlite_run;

typedef struct sqlite_run_chunk {
    struct sqlite_run_chunk *next;
    sqlite_run               runs[128];
} sqlite_run_chunk;

typedef struct sqlite_runs {
    sqlite_run      **buckets;
    sqlite_run_chunk *chunks;
    sqlite_run       *free;
    sqlite_run       *dirty, **dirty_end;
    size_t            count;
    stet__map         names;    /* handlers, interned */
    unsigned          version;  /* of the file, after the last commit of this handle */
    bool              is_known; /* `version` is valid */
} sqlite_runs;

/* ---- stretches of time (sqlite_stretch.c) ----------------------------------------------------- */

#define LITE_STRETCH_BITS       2 /* milliseconds */
#define LITE_STRETCH_MS_MAX     ((int64_t)0xffffffffffff)
#define LITE_STRETCH_MAX        (LITE_STRETCH_MS_MAX >> LITE_STRETCH_BITS)
#define LITE_STRETCH_KNOWN_BITS 8
#define LITE_STRETCH_WHAT_MAX   (2 * STET__NAME_MAX + 4)

typedef struct sqlite_stretch_mark {
    uint64_t tag; /* 0: none */
    int64_t  stretch;
} sqlite_stretch_mark;

typedef struct sqlite_stretch_place {
    char    what[LITE_STRETCH_WHAT_MAX];
    int64_t stretch;
} sqlite_stretch_place;

typedef struct sqlite_stretches {
    sqlite_stretch_mark  known[1u << LITE_STRETCH_KNOWN_BITS]; /* that are in the file */
    stet__buf            keys;  /* of the commit under way */
    sqlite_stretch_place swept; /* how far upkeep came; Locks: side_lock */
    int64_t              swept_lot;
} sqlite_stretches;

/* ---- heads of lanes in memory (sqlite_lanes.c) ------------------------------------------------ */

typedef struct sqlite_lane {
    stet_id *ids;
    size_t   head, n, cap;
    bool     is_complete;
    int64_t  last_pos; /* the highest position given */
} sqlite_lane;

/* A session, as found earlier; true as long as the rows in memory are. */
typedef struct sqlite_alive {
    uint64_t session;
    int64_t  lease_until_ms;
    bool     is_alive, is_own;
} sqlite_alive;
#define LITE_ALIVE_MAX 8

/* ---- the handle ------------------------------------------------------------------------------ */

typedef struct sqlite_store {
    stet_store base;
    /* From the address. */
    char *path;      /* as given */
    char *full_path; /* as SQLite resolved it, so that a later chdir() changes nothing */
    char *vfs;
    char  prefix[LITE_PREFIX_MAX + 2]; /* "" or "NAME_" */
    pid_t pid;
    bool  is_open, has_locks;
    bool  may_mend; /* repair=1: open it even if a projection is lost */
    bool  is_readonly; /* readonly=1: only readers and the side connection are open, all to read */

    uint8_t         token[LITE_TOKEN_BYTES]; /* never leaves this process */
    uint8_t         token_hash[32];
    uint8_t         instance[16]; /* of the database */
    char            boot[LITE_BOOT_MAX];
    _Atomic int64_t advance_ms; /* for tests */
    _Atomic bool    is_clock_busy;

    sqlite_live queue; /* PATH-live: who writes next */
    sqlite_live own;   /* PATH-live-PREFIX: hints and slots; with no prefix the same file */

    stet__mutex  commit_lock;
    sqlite_conn  writer;
    sqlite_frames frames; /* of the writer's log */
    _Atomic bool is_poisoned;
    sqlite_runs  runs;
    stet__map    lanes; /* name -> sqlite_lane */
    sqlite_stretches stretches;
    bool         has_stretches; /* a file of an older stet that is only read has none */
    stet__map    values; /* space NUL key -> sqlite_value */
    struct sqlite_value *dirty_values;
    /* During a commit. */
    int64_t      now_ms;
    uint64_t     stamp;
    stet__arena  scratch; /* until its end */
    const stet_unit    *units; /* before the one under way, */
    const stet_outcome *outcomes;
    size_t              n_units; /* so many */
    sqlite_alive alive[LITE_ALIVE_MAX];
    size_t       n_alive;
    stet_grant  *grants;
    size_t       n_grants, grants_cap;
    uint64_t     last_seq;   /* of the last commit, if has_seq; otherwise its row knows */
    bool         has_seq;
    stet__buf    remember;   /* outcomes of this commit, encoded */
    stet__buf    remembered; /* those of the one before, when units of it come again */
    size_t       turn;       /* whose handler's turn it is */

    stet__mutex     side_lock;
    sqlite_conn     side;
    sqlite_session *sessions;

    stet__mutex       tx_lock;
    stet__cond        tx_cond;
    struct sqlite_tx *tx; /* the one transaction that is lent, or could be; NULL: never yet */
    bool              is_lent;

    stet__mutex read_lock;
    stet__cond  read_cond;
    sqlite_conn readers[LITE_READERS];
    bool        reader_busy[LITE_READERS];

    stet__mutex   log_lock;
    stet__cond    log_cond;
    sqlite_conn   log;
    stet__thread *log_thread;
    bool          log_stop;
    _Atomic int   log_pages; /* in the log, after the last commit */
    _Atomic int   log_mark;  /* from how many on the thread is wanted */
    _Atomic int   log_room_mark; /* from how many on its file is lengthened */

    stet__mutex      watch_lock;
    stet__thread    *watch_thread;
    stet_hint_fn     on_hint;
    void            *hint_arg;
    _Atomic bool     is_watching;
    _Atomic bool     watch_stop;
    uint32_t         watch_seen; /* hints of others before the watching began */
    _Atomic uint32_t own_hints;
} sqlite_store;

/* Test hook: moves this handle's clock. */
void stet__sqlite_test_advance(stet_store *s, int64_t ms);

static inline sqlite_store *
sqlite_of(stet_store *s)
{
    return (sqlite_store *)s;
}
/* STET_OK, STET_ESTATE when it is not open, STET_EFORKED. First call of every method. */
int stet__sqlite_enter(sqlite_store *st);
int     stet__sqlite_open(stet_store *s, const char *address);
void    stet__sqlite_close(stet_store *s);
int64_t stet__sqlite_now_ms(stet_store *s);
char   *stet__sqlite_dir(const sqlite_store *st); /* where the file is; free it; NULL: no memory */
/* sqlite_readonly.c: open it to be read. */
int stet__sqlite_open_readonly(sqlite_store *st);

/* ---- sqlite_conn.c ---- */

typedef enum sqlite_role { LITE_WRITER, LITE_SIDE, LITE_LOG, LITE_READER } sqlite_role;
int  stet__sqlite_conn_open(sqlite_store *st, sqlite_conn *c, sqlite_role role);
void stet__sqlite_conn_close(sqlite_conn *c); /* safe twice */
/* Prepared at first use; NULL leaves the error text, and *err. */
sqlite3_stmt *stet__sqlite_stmt(sqlite_store *st, sqlite_conn *c, sqlite_sql which, int *err);
/* Step a statement that returns no rows, and reset it. */
int stet__sqlite_run(sqlite_store *st, sqlite_conn *c, sqlite3_stmt *stmt, const char *what);
int stet__sqlite_exec(sqlite_store *st, sqlite_conn *c, const char *sql, const char *what);
/* The stet code and sentence for an SQLite result. */
int stet__sqlite_fail(const sqlite_store *st, sqlite3 *db, int rc, const char *what);
/* Queue up, then BEGIN IMMEDIATE. */
int  stet__sqlite_begin(sqlite_store *st, sqlite_conn *c);
int  stet__sqlite_end(sqlite_store *st, sqlite_conn *c); /* COMMIT, leave the queue */
void stet__sqlite_rollback(sqlite_store *st, sqlite_conn *c);

static inline void
sqlite_bind_id(sqlite3_stmt *stmt, int at, const stet_id *id)
{
    sqlite3_bind_blob(stmt, at, id->bytes, 16, SQLITE_STATIC);
}
static inline void
sqlite_bind_u64(sqlite3_stmt *stmt, int at, uint64_t v)
{
    sqlite3_bind_int64(stmt, at, (sqlite3_int64)v);
}
/* STET_NEVER is NULL: a byte in a row instead of nine. */
static inline void
sqlite_bind_time(sqlite3_stmt *stmt, int at, int64_t ms)
{
    if (ms == STET_NEVER)
        sqlite3_bind_null(stmt, at);
    else
        sqlite3_bind_int64(stmt, at, ms);
}
/* But not in the row of a run that has not ended: it would be longer when it does, and the pages of runs that were
 * started together are full. So each would be split, and a commit have more of them to write. */
#define LITE_NOT_ENDED INT64_C(0x3fffffffffff)
static inline void
sqlite_bind_ended(sqlite3_stmt *stmt, int at, int64_t ms)
{
    sqlite3_bind_int64(stmt, at, ms == STET_NEVER ? LITE_NOT_ENDED : ms);
}
static inline void
sqlite_bind_bytes(sqlite3_stmt *stmt, int at, stet_bytes b)
{
    sqlite3_bind_blob64(stmt, at, b.len > 0 ? b.data : "", b.len, SQLITE_STATIC);
}
static inline void
sqlite_bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
    sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC); /* NULL binds NULL */
}
stet_id     stet__sqlite_column_id(sqlite3_stmt *stmt, int at);
int64_t     stet__sqlite_column_time(sqlite3_stmt *stmt, int at);
int64_t     stet__sqlite_column_ended(sqlite3_stmt *stmt, int at);
stet_bytes  stet__sqlite_column_bytes(sqlite3_stmt *stmt, int at);
const char *stet__sqlite_column_text(sqlite3_stmt *stmt, int at);

/* ---- sqlite_schema.c ---- */

/* May this file be ours? Writes nothing. */
int stet__sqlite_identify(sqlite_store *st, sqlite_conn *c);
/* Make what is missing, and read the instance. Inside the queue, outside a transaction. */
int stet__sqlite_prepare_file(sqlite_store *st, sqlite_conn *c);
/* Are all its tables there? Changes nothing. */
int stet__sqlite_is_whole(sqlite_store *st, sqlite_conn *c);

/* ---- sqlite_live.c ---- */

sqlite_sql stet__sqlite_of_space(const char *space, sqlite_sql which);
/* Nobody else has the file open, as far as the live file tells. */
bool stet__sqlite_live_is_alone(sqlite_live *live);
int  stet__sqlite_live_open(sqlite_store *st, sqlite_live *live, const char *suffix);
void stet__sqlite_live_close(sqlite_store *st, sqlite_live *live); /* safe twice */
int  stet__sqlite_fd(const char *path); /* another open file, for locks of its own; -1 */
/* Take one's turn among the writers of all processes; STET_EBUSY after LITE_BUSY_MS. */
int  stet__sqlite_queue_enter(sqlite_store *st, int fd);
void stet__sqlite_queue_leave(sqlite_store *st, int fd);
void stet__sqlite_hint(sqlite_store *st);
int  stet__sqlite_watch(stet_store *s, stet_hint_fn on_hint, void *arg);
void stet__sqlite_unwatch(stet_store *s);
/* Slots. false: somebody holds it. */
bool   stet__sqlite_slot_lock(int fd, size_t slot);
void   stet__sqlite_slot_unlock(int fd, size_t slot);
bool   stet__sqlite_slot_is_held(int fd, size_t slot);
size_t stet__sqlite_slot_count(int fd);
bool   stet__sqlite_slot_read(int fd, size_t slot, sqlite_slot *head);
void   stet__sqlite_boot_id(char boot[LITE_BOOT_MAX]);

/* The lock of the clock; false: somebody else has it. */
bool stet__sqlite_clock_lock(sqlite_store *st);
void stet__sqlite_clock_unlock(sqlite_store *st);

/* ---- sqlite_clock.c ---- */

/* With the INIT lock of the live file. */
void    stet__sqlite_clock_open(sqlite_store *st, sqlite_live *live);
int64_t stet__sqlite_now(sqlite_store *st);

/* ---- sqlite_runs.c ---- */

int  stet__sqlite_runs_init(sqlite_store *st);
void stet__sqlite_runs_free(sqlite_store *st);
void stet__sqlite_runs_clear(sqlite_store *st);
/* The row, loaded if it is not in memory; ->exists tells whether there is one. */
int  stet__sqlite_run_find(sqlite_store *st, const stet_id *id, sqlite_run **out);
void stet__sqlite_run_touch(sqlite_store *st, sqlite_run *run, uint8_t dirty);
int  stet__sqlite_run_put(sqlite_store *st, sqlite_run *run, const stet_run_row *row);
int  stet__sqlite_runs_flush(sqlite_store *st);
/* What its column `work` has to say, by its session, status and due time; false: NULL. */
bool stet__sqlite_run_work(const sqlite_store *st, const sqlite_run *run, int64_t *work);
/* At the begin of a transaction: forget everything if another connection wrote. */
void stet__sqlite_runs_begin(sqlite_store *st);
/* After COMMIT: forget what needs no remembering. */
void stet__sqlite_runs_end(sqlite_store *st);

/* ---- sqlite_stretch.c ---- */

int64_t stet__sqlite_stretch_of(const stet_id *id);
int64_t stet__sqlite_stretch_of_ms(int64_t ms);
/* The least and the greatest ID in it. */
stet_id stet__sqlite_stretch_first(int64_t stretch);
stet_id stet__sqlite_stretch_last(int64_t stretch);
/* Runs created in this time are in these stretches, or in one of "o". 0: no limit. */
void     stet__sqlite_stretch_window(int64_t from_ms, int64_t to_ms, int64_t *first, int64_t *last);
uint32_t stet__sqlite_stretch_hash(const char *key);
/* A row is about to be inserted; a row without `work` is about to be written. Before COMMIT: flush. */
int  stet__sqlite_stretch_put(sqlite_store *st, const sqlite_run *run, const stet_run_row *row);
int  stet__sqlite_stretch_status(sqlite_store *st, const sqlite_run *run);
int  stet__sqlite_stretch_flush(sqlite_store *st);
void stet__sqlite_stretch_clear(sqlite_store *st);
/* Of all runs there are, inside a transaction. */
int stet__sqlite_stretch_fill(sqlite_store *st, sqlite_conn *c);
/* What a run must have entries for. */
typedef struct sqlite_listed {
    stet_id     id;
    const char *handler, *key; /* no key: NULL */
    uint32_t    status;
    bool        has_work;
    int64_t     created_ms;
} sqlite_listed;
enum {
    LITE_LACKS_WORK = 1, /* its column `work` is wrong */
    LITE_LACKS_HANDLER = 2,
    LITE_LACKS_STATUS = 4,
    LITE_LACKS_TIME = 8,
    LITE_LACKS_KEY = 16
};
/* Which entries are missing but for its key's: to find that, all lots must be read. */
int stet__sqlite_stretch_lacks(sqlite_store *st, sqlite_conn *c, const sqlite_listed *run,
                               unsigned *lacks);
/* Write them, inside a transaction; its key's goes to `keys`, which are written behind all others. */
int stet__sqlite_stretch_mend(sqlite_store *st, sqlite_conn *c, const sqlite_listed *run,
                              unsigned lacks, stet__buf *keys);
int stet__sqlite_stretch_write_keys(sqlite_store *st, sqlite_conn *c, const stet__buf *keys);
/* An entry of a lot in 64 bits, and those of a lot. */
uint64_t stet__sqlite_stretch_print(uint32_t hash, int64_t stretch);
typedef void (*sqlite_print_fn)(void *arg, uint64_t print);
void stet__sqlite_stretch_prints(stet_bytes lot, sqlite_print_fn fn, void *arg);
/* Upkeep, in small transactions on `side`. Locks: takes side_lock. */
int stet__sqlite_stretch_tend(sqlite_store *st);

/* ---- sqlite_list.c ---- */

/* Newest first, on a connection of the pool; *is_done false: it has nothing to go by, walk all runs. */
int stet__sqlite_list(sqlite_store *st, const stet_run_query *query, stet_run_row_fn fn, void *arg,
                      bool *is_done);

/* ---- sqlite_mend.c ---- */

int stet__sqlite_check_indexes(stet_store *s, bool is_repairing, stet_check_fn fn, void *arg);

/* ---- sqlite_lanes.c ---- */

void stet__sqlite_lanes_init(sqlite_store *st);
void stet__sqlite_lanes_clear(sqlite_store *st);
int  stet__sqlite_lane_first(sqlite_store *st, const char *name, stet_id *first, bool *found);
/* The caller writes the position, or that there is none any more, into the run's row. */
int stet__sqlite_lane_enter(sqlite_store *st, const char *name, const stet_id *run, int64_t *pos,
                            bool *is_first);
int stet__sqlite_lane_leave(sqlite_store *st, const char *name, const stet_id *run, bool *was_first);

/* ---- sqlite_values.c ---- */

void stet__sqlite_values_init(sqlite_store *st);
void stet__sqlite_values_clear(sqlite_store *st);
/* Without its data; version 0: absent. */
int  stet__sqlite_value_look(sqlite_store *st, const char *space, stet_bytes key, stet_value *value);
int  stet__sqlite_value_put(sqlite_store *st, const stet_op *op);
int  stet__sqlite_value_del(sqlite_store *st, const stet_op *op);
int  stet__sqlite_values_flush(sqlite_store *st); /* before COMMIT */

/* ---- sqlite_check.c, sqlite_apply.c ---- */

typedef struct sqlite_verdict {
    int      result;
    uint32_t cond;
} sqlite_verdict;

/* May the unit be applied? An error is the store's; a refusal is in the verdict. */
int stet__sqlite_check(sqlite_store *st, const stet_unit *unit, sqlite_verdict *v);
/* Is a session alive and of this handle? Asked once a commit. */
int stet__sqlite_alive(sqlite_store *st, uint64_t session, const sqlite_alive **out);
/* Does this statement, all bound, find a row? Its first column goes to *number. */
int stet__sqlite_ask(sqlite_store *st, sqlite3_stmt *stmt, bool *found, uint64_t *number);
int stet__sqlite_apply(sqlite_store *st, const stet_op *op, stet_outcome *out);

static inline sqlite3_stmt *
sqlite_writer_stmt(sqlite_store *st, sqlite_sql which, int *err)
{
    return stet__sqlite_stmt(st, &st->writer, which, err);
}

/* ---- sqlite_tx.c ---- */

int  stet__sqlite_tx_begin(stet_store *s, int64_t limit_ms, stet_tx **tx);
int  stet__sqlite_tx_commit(stet_store *s, stet_tx *tx, const stet_unit *unit, stet_outcome *outcome);
void stet__sqlite_tx_rollback(stet_store *s, stet_tx *tx);
int  stet__sqlite_apply_in(stet_store *s, stet_conn conn, const stet_unit *unit, stet_outcome *outcome);
void stet__sqlite_tx_close(sqlite_store *st);
/* One of our tables? */
bool stet__sqlite_is_part(const sqlite_store *st, const char *name);

/* ---- sqlite_commit.c, sqlite_session.c, sqlite_read.c, sqlite_checkpoint.c ---- */

/* Apply a unit in the transaction that is under way on st->writer; no flush, no memory of the outcome. */
int stet__sqlite_apply_alone(sqlite_store *st, const stet_unit *unit, stet_outcome *out);

int stet__sqlite_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);

int stet__sqlite_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms,
                              stet_bytes info);
int stet__sqlite_session_renew(stet_store *s, uint64_t session, int64_t lease_ms);
int stet__sqlite_session_close(stet_store *s, uint64_t session);
int stet__sqlite_sessions(stet_store *s, stet_session_fn fn, void *arg);
stet_crumb *stet__sqlite_crumbs(stet_store *s, uint64_t session, size_t n);
int         stet__sqlite_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n);
void        stet__sqlite_sessions_free(sqlite_store *st);
/* Does the live file prove that nobody holds this session any more? */
bool stet__sqlite_is_proven_dead(sqlite_store *st, uint64_t session);

int  stet__sqlite_reader_take(sqlite_store *st, sqlite_conn **out);
void stet__sqlite_reader_give(sqlite_store *st, sqlite_conn *c);
int  stet__sqlite_read_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg);
int  stet__sqlite_read_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn,
                            void *arg);
/* "orders." means from "orders." up to "orders/": '/' follows '.' in ASCII. That text is in `end`, which
 * must live until the statement was reset: SQLite may find no memory for a copy, and nothing is before
 * NULL. */
#define LITE_END_MAX (2 * STET__NAME_MAX + 4)
void stet__sqlite_bind_query(sqlite3_stmt *stmt, const stet_run_query *query, const stet_id *from,
                             size_t limit, char end[LITE_END_MAX]);
/* Hands out rows until there are no more or fn says so; *rc: the last result of SQLite. */
int stet__sqlite_read_rows(sqlite3_stmt *stmt, stet_run_row_fn fn, void *arg, int *rc, size_t *n);
int  stet__sqlite_read_journal(stet_store *s, stet_id run, uint64_t from, size_t limit,
                               stet_facts_fn fn, void *arg);
int  stet__sqlite_read_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit,
                             stet_facts_fn fn, void *arg);
int  stet__sqlite_read_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn,
                              void *arg, int64_t *next_ms);
int  stet__sqlite_read_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg);
int  stet__sqlite_read_value(stet_store *s, const char *space, stet_bytes key, stet_value *value);
int  stet__sqlite_read_values(stet_store *s, const char *space, stet_bytes prefix,
                              const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg);
int  stet__sqlite_read_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn,
                            void *arg);
int  stet__sqlite_read_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms);
int  stet__sqlite_ping(stet_store *s);

/* Around COMMIT on st->writer: what it writes to the log goes there in one piece. */
void stet__sqlite_frames_gather(sqlite_store *st);
void stet__sqlite_frames_done(sqlite_store *st);
void stet__sqlite_frames_free(sqlite_store *st); /* its file is closed */

int  stet__sqlite_log_start(sqlite_store *st);
void stet__sqlite_log_stop(sqlite_store *st);
void stet__sqlite_log_watch(sqlite_store *st, sqlite_conn *c); /* count what it writes */
int  stet__sqlite_maintain(stet_store *s);

#endif
