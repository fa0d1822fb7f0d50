/* The PostgreSQL store from the inside: what its files share.
 *
 *   postgres.c           the handle: open, close, reopen, the clock, the table of methods
 *   postgres_url.c       its address
 *   postgres_conn.c      connections: within a bounded time, again after a loss; error texts
 *   postgres_query.c     statements: arguments, waiting for the answer, columns of it
 *   postgres_schema.c    tables; whose they are; their version
 *   postgres_function.c  the commit, as the server executes it
 *   postgres_encode.c    units as the arrays that function takes
 *   postgres_quick*.c    a few kinds of batches that have functions of their own
 *   postgres_rules.c     what their operations need to find
 *   postgres_commit.c    commits: one statement, what to do when it fails
 *   postgres_tx.c        transactions that are lent to bodies, or are the application's
 *   postgres_session.c   sessions, upkeep
 *   postgres_crumbs.c    crumbs, in files of this machine (crumbs.c)
 *   postgres_read.c      reads
 *   postgres_mend.c      is the column right by which idle runs are found? And set right what is not
 *   postgres_hint.c      LISTEN and NOTIFY
 *   postgres_ends.c      ... of runs that end: which of them somebody waits for
 *
 * Connections of a handle: `writer` (Locks: commit_lock), `side` (sessions and upkeep; Locks:
 * side_lock; its own so that a renewal never waits behind a commit), `hint` (its thread's) and up
 * to PG_READERS readers. No two of these locks are ever held together. All texts are kept as bytes
 * (bytea): what is no valid text in the encoding of the database is kept all the same, and the
 * order is that of bytes.
 */
#ifndef STET__POSTGRES_H
#define STET__POSTGRES_H

#include <libpq-fe.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "store/store.h"

#define PG_FORMAT          1      /* of the tables */
#define PG_SERVER_MIN      120000 /* PostgreSQL 12 */
#define PG_READERS         4
#define PG_CONNECT_MS      10000
#define PG_ANSWER_MS       30000
#define PG_TELL_MAX 7900 /* a notification carries 8000 bytes */
#define PG_SCHEMA_MAX      48
#define PG_KEY_MAX         2400u /* an index entry has to fit into a third of a page */
#define PG_DATA_MAX        500000000u
#define PG_TOKEN_BYTES     32
#define PG_STATE_OLD       "25004" /* SQLSTATE: a transaction that does not see what others commit */
#define PG_LOCK_CLASS      "1937008500" /* "stet": of our advisory locks */
/* Runs that end, by their IDs; each bucket has a lock, below the number of the schema, and there is
 * one for all of them. */
#define PG_ENDS            64
#define PG_ENDS_KEY(bucket) ((bucket) + 1)
#define PG_ENDS_ASKED      16

/* Whatever a transaction is where nothing is said of it. */
#define PG_BEGIN "BEGIN ISOLATION LEVEL READ COMMITTED"

/* The server's clock. */
#define PG_NOW "floor(extract(epoch FROM clock_timestamp())*1000)::bigint"

#define PG_ROW "SELECT " PG_ROW_COLUMNS " FROM @runs r "
#define PG_ROW_COLUMNS                                                                             \
    "r.id,r.handler,r.key,r.lane,r.status,r.terminal,r.session,r.epoch,r.inbox,r.due,"      \
    "r.created,r.ended,r.priority,r.attempt,r.grp,r.reason,r.extra,(SELECT f.rev+f.count-1 FROM "  \
    "@facts f WHERE f.run=r.id ORDER BY f.rev DESC LIMIT 1)"
#define PG_ROW_FILTER                                                                              \
    "AND ($2::bytea IS NULL OR r.handler=$2) AND ($3::bytea IS NULL OR (r.handler>=$3 AND "        \
    "r.handler<$4)) AND ($5::bytea IS NULL OR r.key=$5) "                                          \
    "AND ($6::bigint=0 OR (r.status BETWEEN 0 AND 63 AND ($6>>r.status)&1=1)) "                    \
    "AND r.created>=$7 AND ($8::bigint=0 OR r.created<=$8) "
/* Nobody may execute it; and STET_OP_REQUEUE may ask for it, $2 are the statuses it never does. */
#define PG_IDLE      "(r.session=0 AND r.due IS NULL AND NOT r.terminal)"
#define PG_IDLE_WANT PG_IDLE " AND NOT (r.status BETWEEN 0 AND 63 AND ($2::bigint>>r.status)&1=1)"
/* Every statement but the commit, once. '@' stands for the schema. */
#define PG_SQL_LIST(X)                                                                             \
    X(COMMIT, "SELECT * FROM @commit($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,"  \
              "$18,$19,$20,$21,$22,$23,$24,$25,$26,$27,$28,$29,$30,$31,$32,$33,$34,$35,$36,$37,"   \
              "$38,$39,$40,$41,$42,$43,$44,$45,$46)")                                              \
    X(STEPS, "SELECT * FROM @steps($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,"   \
             "$18,$19,$20,$21,$22,$23,$24,$25,$26,$27,$28,$29,$30,$31,$32,$33,$34,$35,$36,$37,"    \
             "$38,$39,$40,$41)")                                                                   \
    X(WAKE, "SELECT * FROM @wake($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16)")         \
    /* With the entry that woke a run that was granted alone, if this statement sees it already.   \
     * That run's first record is flushed, so its claim need not be; see stet_grant. */            \
    X(CLAIM, "SELECT c.*,n.data,n.soft FROM @claim($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11) c LEFT "    \
             "JOIN LATERAL (SELECT i.data,set_config('synchronous_commit','off',true) AS soft "    \
             "FROM @inbox i WHERE i.run=c.x_run[1] AND i.seq=c.x_inbox[1] AND "                    \
             "cardinality(c.x_run)=1 AND length(i.data)<=4096) n ON true")                         \
    X(ONE, "SELECT o.*,CASE WHEN o.x_news IS NOT NULL THEN "                                       \
           "set_config('synchronous_commit','off',true) END FROM @one($1,$2,$3,$4,$5,$6,$7,$8) o") \
    X(SESSION_ADD, "INSERT INTO @sessions(id,token,started,seen,lease_until,closed,info) SELECT "  \
                   "$1,$2,n,n,n+$3,false,$4 FROM (SELECT " PG_NOW "+$5::bigint AS n) z "           \
                   "RETURNING session,started")                                                    \
    X(SESSION_RENEW, "UPDATE @sessions SET seen=n,lease_until=n+$3 FROM (SELECT " PG_NOW           \
                     "+$4::bigint AS n) z WHERE session=$1 AND token=$2 AND NOT closed AND "       \
                     "lease_until>n RETURNING n")                                                  \
    X(SESSION_CLOSE, "UPDATE @sessions SET closed=true WHERE session=$1 AND token=$2 "             \
                     "RETURNING session")                                                          \
    X(SESSION_GET, "SELECT closed OR lease_until<=" PG_NOW "+$2::bigint FROM @sessions "           \
                   "WHERE session=$1")                                                             \
    X(SESSIONS, "SELECT session,id,started,seen,lease_until,closed OR lease_until<=" PG_NOW        \
                "+$1::bigint,info FROM @sessions ORDER BY session")                                \
    X(SESSION_OLD, "DELETE FROM @sessions s WHERE (closed OR lease_until<$1) AND seen<$1 AND NOT " \
                   "EXISTS(SELECT 1 FROM @runs r WHERE r.session=s.session AND r.session<>0)")     \
    X(COMMITTER_OLD, "DELETE FROM @committers WHERE at<$1")                                        \
    X(RUN_GET, PG_ROW "WHERE r.id=$1")                                                             \
    /* Its journal beside it, a row of that in each. */                                            \
    X(LOAD, "SELECT " PG_ROW_COLUMNS ",j.rev,j.count,j.data FROM @runs r LEFT JOIN LATERAL "       \
            "(SELECT rev,count,data FROM @facts WHERE run=r.id AND (r.terminal OR NOT $2) ORDER "  \
            "BY rev LIMIT $3) j ON true WHERE r.id=$1 ORDER BY j.rev")                             \
    X(RUNS_NEWEST, PG_ROW "WHERE r.id<$1 " PG_ROW_FILTER "ORDER BY r.id DESC LIMIT $9")            \
    X(RUNS_OLDEST, PG_ROW "WHERE r.id>$1 " PG_ROW_FILTER "ORDER BY r.id LIMIT $9")                 \
    X(RUNS_OF_NEWEST, PG_ROW "WHERE r.id<$1 " PG_ROW_FILTER                                        \
                             "AND r.session=$10 AND r.session<>0 ORDER BY r.id DESC LIMIT $9")     \
    X(RUNS_OF_OLDEST, PG_ROW "WHERE r.id>$1 " PG_ROW_FILTER                                        \
                             "AND r.session=$10 AND r.session<>0 ORDER BY r.id LIMIT $9")          \
    /* From one run to the next by the index, without touching their facts. */                     \
    X(RUNS_LOST, "WITH RECURSIVE n(id) AS ((SELECT run FROM @facts WHERE run>$1 ORDER BY run "     \
                 "LIMIT 1) UNION ALL SELECT (SELECT run FROM @facts WHERE run>n.id ORDER BY run "  \
                 "LIMIT 1) FROM n WHERE n.id<=$2) SELECT n.id,(SELECT f.rev+f.count-1 FROM "       \
                 "@facts f WHERE f.run=n.id ORDER BY f.rev DESC LIMIT 1),(SELECT max(seq) FROM "   \
                 "@inbox WHERE run=n.id) FROM n WHERE n.id<=$2 AND NOT EXISTS(SELECT 1 FROM "      \
                 "@runs WHERE id=n.id) LIMIT $3")                                                  \
    X(FACTS_GET, "SELECT rev,count,data FROM @facts WHERE run=$1 AND rev>=coalesce((SELECT "       \
                 "max(rev) FROM @facts WHERE run=$1 AND rev<=$2),$2) AND rev+count>$2 "            \
                 "ORDER BY rev LIMIT $3")                                                          \
    X(INBOX_GET, "SELECT seq,1,data FROM @inbox WHERE run=$1 AND seq>=$2 ORDER BY seq LIMIT $3")   \
    X(TIMERS, "SELECT fire,run,completion FROM @timers ORDER BY fire,run,completion LIMIT $1")     \
    X(TIMERS_OF, "SELECT fire,run,completion FROM @timers WHERE run=$1 ORDER BY fire,completion")  \
    X(VALUE_GET, "SELECT key,version,data,run,rev FROM @vals WHERE space=$1 AND key=$2")           \
    X(VALUES_FROM, "SELECT key,version,data,run,rev FROM @vals WHERE space=$1 AND key>=$2 AND "    \
                   "($3::bytea IS NULL OR key<$3) ORDER BY key LIMIT $4")                          \
    X(VALUES_AFTER, "SELECT key,version,data,run,rev FROM @vals WHERE space=$1 AND key>$2 AND "    \
                    "($3::bytea IS NULL OR key<$3) ORDER BY key LIMIT $4")                         \
    X(BASE_GET, "SELECT key,version,data,run,rev FROM @base WHERE space=$1 AND key=$2")            \
    X(BASES_FROM, "SELECT key,version,data,run,rev FROM @base WHERE space=$1 AND key>=$2 AND "     \
                  "($3::bytea IS NULL OR key<$3) ORDER BY key LIMIT $4")                           \
    X(BASES_AFTER, "SELECT key,version,data,run,rev FROM @base WHERE space=$1 AND key>$2 AND "     \
                   "($3::bytea IS NULL OR key<$3) ORDER BY key LIMIT $4")                          \
    X(LANE, "SELECT id FROM @runs WHERE lane=$1 ORDER BY lane_pos LIMIT $2")                       \
    X(DUE, "SELECT min(d.due) FROM unnest($1::bytea[]) h,LATERAL (SELECT due FROM @runs WHERE "    \
           "handler=h AND session=0 AND due IS NOT NULL AND NOT terminal ORDER BY due LIMIT 1) d") \
    /* Those that are wrong, and the last of the page. To be found by a status nobody asks for is no harm. */ \
    X(IDLE_LOOK, "WITH p AS (SELECT r.id,r.idle,CASE WHEN r.idle THEN NOT " PG_IDLE " ELSE "       \
                 PG_IDLE_WANT " END AS bad FROM @runs r WHERE r.id>$1 ORDER BY r.id LIMIT $3) "    \
                 "SELECT * FROM p WHERE bad OR id=(SELECT id FROM p ORDER BY id DESC LIMIT 1) "    \
                 "ORDER BY id")                                                                    \
    X(IDLE_MEND, "UPDATE @runs r SET idle=" PG_IDLE_WANT " WHERE r.id IN (SELECT q.id FROM "       \
                 "@runs q WHERE q.id=ANY($1) ORDER BY q.id FOR NO KEY UPDATE) RETURNING CASE "     \
                 "current_setting('synchronous_commit') WHEN 'off' THEN "                          \
                 "set_config('synchronous_commit','on',true) END")                                 \
    X(PING, "SELECT " PG_NOW ",current_setting('transaction_read_only')='on' FROM @meta LIMIT 1")  \
    X(NOTIFY, "SELECT pg_notify($1,$2)")                                                           \
    /* If one of these locks is taken: somebody waits. */                                          \
    X(NOTIFY_ENDS, "SELECT pg_notify($1,$2) WHERE EXISTS(SELECT 1 FROM unnest($3::int[]) k WHERE " \
                   "CASE WHEN pg_try_advisory_lock(" PG_LOCK_CLASS ",@@-k) THEN NOT "              \
                   "pg_advisory_unlock(" PG_LOCK_CLASS ",@@-k) ELSE true END)")

typedef enum pg_sql {
#define PG_SQL_ENUM(name, text) PG_SQL_##name,
    PG_SQL_LIST(PG_SQL_ENUM)
#undef PG_SQL_ENUM
        PG_SQL_COUNT
} pg_sql;

typedef struct pg_link {
    PGconn *db;
    int64_t retry_us, wait_us; /* after a failure: not before, and then wait so long */
    int     era;               /* when it was made; see pg_store */
    char    reason[400];       /* of the last failure */
    bool    is_guest;          /* somebody else's: nothing is prepared, it is not closed */
    bool    is_set;            /* up for postgres_quick.c */
    bool    is_listening;      /* and holds locks: a new one would not, so its thread makes it */
    const char *behind;        /* a notification to be sent behind the next statement, or NULL */
    const char *behind_on;     /* ... and its channel */
    const char *behind_keys;   /* ... and whom it is for, as an array of PG_ENDS_KEY; NULL: all */
    bool    is_behind;         /* one was, and its answer was not read yet */
    bool    is_prepared[PG_SQL_COUNT];
} pg_link;

typedef struct pg_session {
    struct pg_session *next;
    uint64_t           session;
    void              *map; /* crumbs, or NULL */
} pg_session;

typedef struct pg_store {
    stet_store base;
    /* From the address. */
    PQconninfoOption *options;
    char             *name; /* for texts: no password */
    char              schema[PG_SCHEMA_MAX + 1];
    bool              may_mend; /* repair=1 */
    bool              must_exist; /* create=0 */
    int64_t           connect_ms, answer_ms;
    pid_t             pid;
    bool              is_open, has_locks;

    char    *sql[PG_SQL_COUNT];
    char     channel[PG_SCHEMA_MAX + 16];
    char     ends[PG_SCHEMA_MAX + 16]; /* the channel of runs that ended */
    char     self[40]; /* the committer, as text: whose hints are our own */
    uint8_t  token[PG_TOKEN_BYTES], token_hash[32]; /* the token never leaves this process */
    uint8_t  instance[16];
    _Atomic bool    is_pooled; /* a pooler stands before the server: nothing of a session lasts */
    /* A server that takes no writes is no use to us, and what it reads may be old: another one may
     * be the primary now. Whoever meets it begins a new era, and connections of the last are made
     * anew. */
    _Atomic int     era;
    _Atomic int64_t era_us; /* it began */
    _Atomic int64_t offset_us; /* of the server's clock against our steady one, at least */
    stet__mutex     clock_lock;
    int64_t         clock_us, clock_least, clock_most; /* see postgres.c */
    _Atomic int64_t advance_ms; /* for tests */

    stet__mutex commit_lock;
    pg_link     writer;
    int         turn;
    bool        is_alone; /* one handler had all the work that the last look found */
    uint64_t    tried_seq; /* the last one of the units that were submitted once */
    char        behind[40 + PG_TELL_MAX]; /* a notification that goes behind a commit; "": none */
    size_t      n_behind;
    const char *behind_on; /* its channel */
    char        behind_keys[16 + PG_TELL_MAX / 8]; /* of the runs in it that ended */
    size_t      n_behind_keys;

    stet__mutex side_lock;
    pg_link     side;
    pg_session *sessions;

    stet__mutex read_lock;
    stet__cond  read_cond;
    pg_link     readers[PG_READERS];
    bool        reader_busy[PG_READERS];

    stet__mutex   tx_lock;
    struct pg_tx *tx_free; /* connections to lend */

    stet__mutex   hint_lock; /* begin and end of watching */
    pg_link       hint;
    stet__thread *hint_thread;
    stet_hint_fn  on_hint;
    void         *hint_arg;
    stet__mutex   tell_lock; /* the innermost; for these three */
    char          telling[PG_TELL_MAX]; /* what is to be told: ":" and hexadecimal digits each, and a NUL */
    size_t        n_telling;
    bool          tells_all; /* there was more */
    int           hint_fd; /* eventfd: news of our own, or the end; -1: no thread */
    _Atomic bool  is_watching, has_news;
    bool          hears_ends; /* listens to that channel; Runs on: the hint thread */
    /* Those below by tell_lock, a bit for each bucket. */
    uint64_t ends_held;   /* somebody who ends such a run tells us */
    uint64_t ends_wanted; /* is to be held */
    bool     holds_all;   /* by the lock that stands for all; Runs on: the hint thread */
    int64_t  ends_until_us[PG_ENDS]; /* somebody may wait for one of them until then */
    stet_id  ends_asked[PG_ENDS_ASKED]; /* for these a lock is asked for */
    size_t   n_ends_asked; /* more than PG_ENDS_ASKED: not all are there */
} pg_store;

static inline pg_store *
pg_of(stet_store *s)
{
    return (pg_store *)s;
}
/* STET_OK, STET_ESTATE when it is not open, STET_EFORKED. First call of every method. */
int stet__pg_enter(pg_store *st);
/* The server said what time it is, asked at stet__pg_clock_ask(). */
int64_t stet__pg_clock_ask(pg_store *st);
void    stet__pg_clock_seen(pg_store *st, int64_t asked_us, int64_t now_ms);
int     stet__pg_clock_read(pg_store *st, pg_link *c);
int64_t stet__pg_now(pg_store *st);
/* Test hook: moves this handle's clock. */
void stet__pg_test_advance(stet_store *s, int64_t ms);

/* ---- postgres_url.c ---- */

int  stet__pg_url_parse(pg_store *st, const char *address);
void stet__pg_url_free(pg_store *st);
/* "" when it is not given. */
const char *stet__pg_url_option(const pg_store *st, const char *name);

/* ---- postgres_conn.c ---- */

/* Connected and usable, made anew if it was lost. Not sooner after a failure than its time. */
int  stet__pg_conn_need(pg_store *st, pg_link *c);
void stet__pg_conn_close(pg_link *c); /* safe twice */
/* The server took no write: connections are to be made anew, this one first. */
void stet__pg_conn_read_only(pg_store *st, pg_link *c);
/* Wait until the socket can be read (or written), by a deadline; false: the time is up. */
bool stet__pg_conn_wait(pg_store *st, PGconn *db, bool for_write, int64_t until_us);
/* One line of libpq's, without its line ends. */
void stet__pg_reason(char *out, size_t size, const char *text);
/* The stet code and sentence for a failed statement. */
int stet__pg_fail(pg_store *st, pg_link *c, const PGresult *res, const char *what);

/* ---- postgres_query.c ---- */

#define PG_ARGS_MAX 48
typedef struct pg_args {
    int         n;
    Oid         types[PG_ARGS_MAX];
    const char *values[PG_ARGS_MAX];
    int         lengths[PG_ARGS_MAX], formats[PG_ARGS_MAX];
    uint8_t     own[PG_ARGS_MAX][8];
} pg_args;

enum { PG_BOOL = 16, PG_BYTEA = 17, PG_INT8 = 20, PG_INT4 = 23, PG_TEXT = 25, PG_UUID = 2950 };
enum { PG_BOOLS = 1000, PG_BYTEAS = 1001, PG_INT4S = 1007, PG_INT8S = 1016, PG_UUIDS = 2951 };

void stet__pg_arg_raw(pg_args *a, Oid type, const void *data, size_t len); /* NULL: NULL */
void stet__pg_arg_int8(pg_args *a, int64_t v);
void stet__pg_arg_int4(pg_args *a, int32_t v);
void stet__pg_arg_id(pg_args *a, const stet_id *id);
void stet__pg_arg_bytes(pg_args *a, stet_bytes b);
void stet__pg_arg_text(pg_args *a, const char *text); /* as bytes; NULL: NULL */

/* One statement and its whole answer. On an error *res is NULL and the connection is as good as it
 * can be: closed if it is lost or did not answer in time. */
int stet__pg_query(pg_store *st, pg_link *c, pg_sql which, const pg_args *args, PGresult **res,
                   const char *what);
/* The same with any text (for statements that are used once; no arguments), and what failed in the
 * server's words. */
int stet__pg_exec(pg_store *st, pg_link *c, const char *sql, PGresult **res, const char *what);
/* COMMIT, and believe it only if the server says so: it answers ROLLBACK, and no error, if the
 * transaction had failed. STET_EUNCERTAIN: it is not known; any other failure: rolled back. */
int stet__pg_exec_commit(pg_store *st, pg_link *c, const char *what);
/* For commits: `state` gets the SQLSTATE of a refusal, "" when the connection was lost and the
 * outcome is not known. */
int stet__pg_query_state(pg_store *st, pg_link *c, pg_sql which, const pg_args *args,
                         PGresult **res,
                         const char *what, char state[6]);

/* Read what is left of a notification that was sent behind the last statement. False: the connection
 * is of no more use. */
bool stet__pg_query_rest(pg_store *st, pg_link *c);

/* Has the answer its one row? */
int stet__pg_one(pg_store *st, const PGresult *res, const char *what);

int64_t     stet__pg_int8(const PGresult *res, int row, int col);
int32_t     stet__pg_int4(const PGresult *res, int row, int col);
bool        stet__pg_bool(const PGresult *res, int row, int col);
int64_t     stet__pg_time(const PGresult *res, int row, int col); /* NULL: STET_NEVER */
stet_id     stet__pg_id(const PGresult *res, int row, int col);   /* NULL: zero */
stet_bytes  stet__pg_bytes(const PGresult *res, int row, int col);
const char *stet__pg_text(const PGresult *res, int row, int col); /* NULL: NULL */

/* Arrays in a result: elements of a fixed size, none of them NULL. */
typedef struct pg_array {
    size_t         n;
    const uint8_t *at;
    size_t         step; /* bytes from one element to the next */
} pg_array;
bool     stet__pg_array_get(const PGresult *res, int row, int col, size_t size, pg_array *out);
uint64_t stet__pg_array_int8(const pg_array *a, size_t i);
int32_t  stet__pg_array_int4(const pg_array *a, size_t i);
stet_id  stet__pg_array_id(const pg_array *a, size_t i);
/* One of bytes, of which some may be NULL: `n` of them, read in turn; NULL: no data. */
typedef struct pg_array_reader {
    const uint8_t *at, *end;
} pg_array_reader;
bool stet__pg_array_read(const PGresult *res, int row, int col, size_t n, pg_array_reader *out);
bool stet__pg_array_next(pg_array_reader *a, stet_bytes *out);

/* ---- postgres_schema.c, postgres_function.c ---- */

extern const char *const stet__pg_function[]; /* NULL at the end */
extern const char *const stet__pg_quick_functions[];
/* '@' becomes the schema, "@@" its number. Freed by the caller. */
char *stet__pg_expand(pg_store *st, const char *const *parts);
/* Make or migrate what is missing; read the instance. */
int stet__pg_schema_prepare(pg_store *st, pg_link *c);

/* ---- postgres_encode.c ---- */

/* A column of a batch: a one-dimensional array in PostgreSQL's binary form. */
typedef struct pg_col {
    stet__buf buf;
    uint32_t  n;
} pg_col;

#define PG_COLS 39
typedef struct pg_batch {
    pg_store *st;
    pg_col    cols[PG_COLS];
    bool      has_more; /* than looks for due work */
    const stet_claimer *claimer; /* the last one written */
    uint64_t            locked;  /* the last session asked for */
    stet__buf           locks;   /* runs, 16 bytes each */
    stet__buf           places;  /* of each line: its run, or zeros */
} pg_batch;

void stet__pg_batch_init(pg_batch *b, pg_store *st);
void stet__pg_batch_free(pg_batch *b);
/* Units `from` … `to` - 1 of a call; the outcomes of those before are known. */
int stet__pg_batch_encode(pg_batch *b, const stet_unit *units, const stet_outcome *outcomes,
                          size_t from,
                          size_t to);
void stet__pg_batch_args(pg_batch *b, pg_args *args);
/* Columns by themselves. The end writes their head; false: out of memory. */
void stet__pg_col_begin(pg_col *c, pg_store *st);
bool stet__pg_col_end(pg_col *c, Oid element);
void stet__pg_col_raw(pg_col *c, const void *data, size_t len);
void stet__pg_col_null(pg_col *c);
void stet__pg_col_int4(pg_col *c, uint32_t v);
void stet__pg_col_int8(pg_col *c, uint64_t v);
void stet__pg_col_time(pg_col *c, int64_t ms);
void stet__pg_col_text(pg_col *c, const char *text);
bool stet__pg_is_base(const char *space);
/* One column of texts, by itself. Its buffer is freed by the caller. */
int stet__pg_col_texts(pg_store *st, pg_col *col, const char *const *texts, size_t n);

/* ---- postgres_quick.c ---- */

/* What the commit of a batch came to that one of the quick functions may take. */
typedef struct pg_quick {
    bool    is_done;  /* applied, and the outcomes are filled; else nothing of it was */
    bool    is_lost;  /* ... or that is not known */
    bool    has_news;
    int64_t now_ms;
} pg_quick;
int stet__pg_quick(pg_store *st, const stet_unit *units, size_t n, stet_outcome *outcomes,
                   pg_quick *out);

/* ---- postgres_commit.c, postgres_session.c, postgres_crumbs.c, postgres_hint.c ---- */

/* One call of the function; `committer` NULL: nothing is remembered. */
int stet__pg_commit_send(pg_store *st, pg_link *c, const stet_id *committer, const stet_unit *units,
                         stet_outcome *outcomes, size_t from, size_t to, PGresult **res,
                         char state[6]);
int stet__pg_commit_answer(pg_store *st, const PGresult *res, const stet_unit *units, size_t n,
                           stet_outcome *outcomes);
int stet__pg_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);

pg_session *stet__pg_session_own(pg_store *st, uint64_t session); /* NULL: not ours */
int  stet__pg_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms,
                           stet_bytes info);
int  stet__pg_session_renew(stet_store *s, uint64_t session, int64_t lease_ms);
int  stet__pg_session_close(stet_store *s, uint64_t session);
int  stet__pg_sessions(stet_store *s, stet_session_fn fn, void *arg);
void stet__pg_sessions_free(pg_store *st);
int  stet__pg_maintain(stet_store *s);

stet_crumb *stet__pg_crumbs(stet_store *s, uint64_t session, size_t n);
int         stet__pg_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n);
void        stet__pg_crumbs_close(pg_store *st, pg_session *own);

void stet__pg_hint_renew(pg_store *st); /* the thread that listens looks at its connection */
void stet__pg_hint(pg_store *st); /* with the commit lock: tell the others that something changed */
bool stet__pg_is_told(pg_store *st); /* ... which the engine does instead */
/* A notification behind the next commit, made of what told() gets, all of one channel; false: it
 * cannot go with what is there. With the commit's lock. */
bool stet__pg_behind(pg_store *st, const char *channel, const void *bytes, size_t len);
/* Somebody is about to look whether a run has ended. False: and if it has not, stet__pg_ends_await()
 * is called afterwards; its end is heard after told() named it, or on_hint() was called. */
bool stet__pg_ends_look(pg_store *st, const stet_id *run);
void stet__pg_ends_await(pg_store *st, const stet_id *run);
int  stet__pg_ends_bucket(const stet_id *run);
/* Hold the locks that are wanted, and no others. Runs on: the hint thread. is_new: its connection
 * has none yet, and everybody is about to look. */
int stet__pg_ends_listen(pg_store *st, bool is_new);
int stet__pg_ends_wait_ms(pg_store *st, int most_ms); /* until it is to be called again */
void stet__pg_tell(stet_store *s, const void *bytes, size_t len);
int  stet__pg_watch(stet_store *s, stet_hint_fn on_hint, void *arg);
void stet__pg_unwatch(stet_store *s);

/* ---- postgres_tx.c ---- */

struct pg_tx;
int  stet__pg_tx_begin(stet_store *s, int64_t limit_ms, stet_tx **out);
int  stet__pg_tx_commit(stet_store *s, stet_tx *tx, const stet_unit *unit, stet_outcome *outcome);
void stet__pg_tx_rollback(stet_store *s, stet_tx *tx);
int  stet__pg_apply_in(stet_store *s, stet_conn conn, const stet_unit *unit, stet_outcome *outcome);
void stet__pg_tx_close(pg_store *st); /* all that are not lent */

/* ---- postgres_read.c ---- */

int stet__pg_check(stet_store *s, bool is_repairing, stet_check_fn fn, void *arg); /* postgres_mend.c */

int  stet__pg_reader_take(pg_store *st, pg_link **out);
void stet__pg_reader_give(pg_store *st, pg_link *c);
/* One statement on a reader, which is free again when it returns. */
int stet__pg_read(pg_store *st, pg_sql which, const pg_args *args, PGresult **res,
                  const char *what);
int stet__pg_read_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg);
int stet__pg_read_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg);
int stet__pg_read_journal(stet_store *s, stet_id run, uint64_t from, size_t limit,
                          stet_facts_fn fn, void *arg);
int stet__pg_read_load(stet_store *s, stet_id run, bool if_ended, size_t limit,
                       stet_run_row_fn row_fn, stet_facts_fn facts_fn, void *arg);
int stet__pg_read_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit,
                        stet_facts_fn fn, void *arg);
int stet__pg_read_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
                         int64_t *next_ms);
int stet__pg_read_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg);
int stet__pg_read_value(stet_store *s, const char *space, stet_bytes key, stet_value *value);
int stet__pg_read_values(stet_store *s, const char *space, stet_bytes prefix,
                         const stet_bytes *after, size_t limit,
                         stet_value_fn fn, void *arg);
int stet__pg_read_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg);
int stet__pg_read_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms);
int stet__pg_ping(stet_store *s);

#endif
