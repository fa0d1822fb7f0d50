/* The Redis store from the inside: what its files share.
 *
 *   redis.c            the handle: open, close, reopen, the clock, the table of methods
 *   redis_url.c        its address
 *   redis_conn.c       connections: within a bounded time, again after they were lost; error texts;
 *                      scripts by SHA
 *   redis_doctor.c     what the server's settings can lose
 *   redis_pack.c       MessagePack, which Lua in the server reads and writes
 *   redis_encode.c     units as the argument of the commit script
 *   redis_commit.c     commits: parts in one round trip, what to do when one fails
 *   redis_quick.c      batches that a small script of their own may take
 *   redis_session.c    sessions, crumbs, upkeep
 *   redis_read.c       reads; redis_runs.c  rows and lists of runs
 *   redis_mend.c       are all records in their indexes? And set right what is not
 *   redis_hint.c       publish and subscribe, and a stream with a consumer group
 *   redis_*.lua        what the server executes; a commit: redis_state, redis_ops, redis_commit, or one of the
 *                      quick ones: redis_steps, redis_wake, redis_one, redis_starts
 *
 * Keys. All begin with "{PREFIX}:", so that one engine is in one slot of a cluster; a letter and,
 * behind ':', an ID (16 bytes) or a name as it is. A prefix has no brace and no colon, and a name
 * is always the whole rest of its key, so no name can be taken for another key. Order in sorted
 * sets is that of bytes (all scores 0), except in lanes.
 *
 *   m             hash    format, instance, session (the last number)
 *   r:ID          string  a run's row, packed: the columns of stet_run_row in their order
 *   j:ID  i:ID    list    journal (first, count, facts), inbox;  b:ID  string, how many entries of that are gone
 *   ids           zset    all runs
 *   q:HANDLER     zset    unclaimed and due: due time, ID
 *   w:STATUS:HANDLER zset unclaimed, open, due never, of statuses that may be asked for
 *   o:SESSION     zset    claimed
 *   l:LANE        zset    who waits there, by number
 *   t             zset    timers: time, run, completion;  k:ID  those of one run
 *   v:SPACE       hash    values, packed: version, run, revision, bytes;  x:SPACE  zset, their keys
 *   s  S          hash    sessions; what they tell
 *   c:COMMITTER   string  answers of its last commit; forgotten after a week
 *   n             channel "somebody changed something";  h  stream "work was left for anybody"
 *   e             channel "a run ended", for those of whom somebody waits for one
 *
 * Connections of a handle: `writer` (Locks: commit_lock), `side` (sessions and upkeep; Locks:
 * side_lock; its own so that a renewal never waits behind a commit), two of the hint thread, and up
 * to REDIS_READERS readers. No two of these locks are ever held together; clock_lock is
 * held inside them for a moment.
 */
#ifndef STET__REDIS_H
#define STET__REDIS_H

#include <hiredis/hiredis.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "store/crumbs.h"
#include "store/store.h"

#define REDIS_FORMAT      1       /* of the keys */
#define REDIS_SERVER_MIN  60200   /* XAUTOCLAIM */
#define REDIS_READERS     4
#define REDIS_CONNECT_MS  10000
#define REDIS_ANSWER_MS   30000
#define REDIS_PREFIX_MAX  64
#define REDIS_HOST_MAX    255
#define REDIS_DATA_MAX    (256u << 20) /* the server takes 512 MB in one piece */
#define REDIS_TOKEN_BYTES 32
#define REDIS_TELL_MAX    8000
#define REDIS_FACTS_HEAD  12 /* of an entry of a journal: number and count */
#define REDIS_DUE_BIAS    INT64_C(4503599627370496) /* redis_commit.lua: due_bytes */

typedef enum redis_script {
    REDIS_COMMIT,
    REDIS_READ,
    REDIS_SESSION,
    REDIS_MEND,
    REDIS_STEPS,
    REDIS_WAKE,
    REDIS_ONE,
    REDIS_STARTS,
    REDIS_SCRIPTS
} redis_script;

typedef struct redis_conn {
    redisContext *ctx;
    stet__buf     out;               /* commands to be sent */
    int64_t       retry_us, wait_us; /* after a failure: not before, and then wait so long */
    uint64_t      era;               /* in which it was made; 0: it is being made */
} redis_conn;

typedef struct redis_session {
    struct redis_session *next;
    uint64_t              session;
    void                 *crumbs; /* of store/crumbs.c, or NULL */
} redis_session;

/* What CONFIG GET or INFO tell; "" when neither may be asked. */
typedef struct redis_settings {
    char    appendonly[8], appendfsync[16], policy[32];
    int64_t maxmemory;
    bool    is_known, is_writing_badly; /* the last write of the log failed */
} redis_settings;

typedef struct redis_store {
    stet_store base;
    /* From the address. */
    char    host[REDIS_HOST_MAX + 1];
    int     port;
    int     db;
    char   *user, *password; /* NULL: none */
    char    prefix[REDIS_PREFIX_MAX + 1];
    bool    is_lossy_allowed, must_exist;
    int64_t connect_ms, answer_ms;
    char    name[REDIS_HOST_MAX + REDIS_PREFIX_MAX + 64]; /* for texts: no password */
    char    key[REDIS_PREFIX_MAX + 8];                    /* "{prefix}:" */
    pid_t   pid;
    bool    is_open, has_locks;
    /* A new one begins when the server of a connection of this one says that it is no longer the
     * one to write to: connections of the one before are left, also those that only read. */
    _Atomic uint64_t era;

    char    sha[REDIS_SCRIPTS][41];
    char    self[33]; /* the committer, as text: whose hints are our own */
    uint8_t token[REDIS_TOKEN_BYTES], token_hash[32]; /* the token never leaves this process */
    uint8_t instance[16];
    bool    has_instance;
    stet__mutex     clock_lock;
    int64_t         clock_us, clock_older_us, clock_began_us; /* offsets of two windows of time */
    _Atomic int64_t offset_us;  /* of the server's clock against our steady one, at most */
    _Atomic int64_t advance_ms; /* for tests */

    stet__mutex commit_lock;
    redis_conn  writer;
    uint64_t    turn;
    stet__buf   args; /* kept for its room */
    uint64_t    n_quick[REDIS_SCRIPTS]; /* commits each quick script took, for tests */

    stet__mutex    side_lock;
    redis_conn     side;
    redis_session *sessions;
    redis_settings settings;

    stet__mutex read_lock;
    stet__cond  read_cond;
    redis_conn  readers[REDIS_READERS];
    bool        reader_busy[REDIS_READERS];
    stet__buf   lost; /* redis_runs.c */
    bool        has_lost;

    stet__mutex   hint_lock; /* begin and end of watching */
    redis_conn    news, work, voice;
    stet__buf     acks; /* n_acks to be sent on `voice`, when it is quiet or at ack_us */
    size_t        n_acks;
    uint64_t      heard[2]; /* ID of the last entry of the stream that was told, by either way */
    int64_t       ack_us, left_us; /* when what others left was asked for */
    stet__thread *hint_thread;
    stet_hint_fn  on_hint;
    void         *hint_arg;
    stet__mutex   tell_lock; /* the innermost; for these three */
    uint8_t       telling[REDIS_TELL_MAX]; /* entries of a message; see redis_hint.c */
    size_t        n_telling;
    bool          tells_all; /* there was more */
    bool          hears_ends; /* the channel of runs that ended; Runs on: the hint thread */
    _Atomic bool  wants_ends; /* somebody here waits for a run */
    int           hint_fd; /* eventfd: something to tell, or the end; -1: no thread */
    _Atomic bool  is_watching;
} redis_store;

static inline redis_store *
redis_of(stet_store *s)
{
    return (redis_store *)s;
}
/* STET_OK, STET_ESTATE when it is not open, STET_EFORKED. First call of every method. */
int stet__redis_enter(redis_store *st);
/* The server said what time it is: what we took it for may be late, never early. */
void    stet__redis_clock_seen(redis_store *st, int64_t now_ms);
int64_t stet__redis_now(redis_store *st);
/* Test hook: moves this handle's clock. */
void stet__redis_test_advance(stet_store *s, int64_t ms);

/* ---- redis_url.c ---- */

int  stet__redis_url_parse(redis_store *st, const char *address);
void stet__redis_url_free(redis_store *st);

/* ---- redis_conn.c ---- */

extern const unsigned char *const stet__redis_scripts[REDIS_SCRIPTS];
extern const size_t               stet__redis_script_lengths[REDIS_SCRIPTS];

/* Connected and usable, made anew if it was lost. Not sooner after a failure than its time. */
int  stet__redis_conn_need(redis_store *st, redis_conn *c);
/* Not to be used any more: lost, or the server is no longer the one to write to. What was sent
 * together is answered all the same. */
bool stet__redis_is_lost(redis_store *st, const redis_conn *c);
void stet__redis_conn_close(redis_conn *c); /* safe twice */
/* The stet code and sentence for an error the server answered. */
int stet__redis_fail(redis_store *st, const char *said, const char *what);

/* Commands: words by length, appended to be sent together, answered in their order. */
#define REDIS_WORDS_MAX 16
typedef struct redis_words {
    int         n;
    const char *at[REDIS_WORDS_MAX];
    size_t      len[REDIS_WORDS_MAX];
    char        own[REDIS_WORDS_MAX][24];
} redis_words;
void stet__redis_word(redis_words *w, const char *text);
void stet__redis_word_bytes(redis_words *w, const void *data, size_t len);
void stet__redis_word_int(redis_words *w, int64_t number);
/* EVALSHA SHA 1 KEY; the arguments follow. */
void stet__redis_word_script(redis_store *st, redis_words *w, redis_script script);

void stet__redis_words(stet__buf *b, const redis_words *w);
/* Put a command behind those to be sent together; false: out of memory, and all of them are
 * gone. */
bool stet__redis_append(redis_conn *c, const redis_words *w);
/* Send what was appended, then take one answer after the other. STET_EIO: lost, and closed. */
int stet__redis_send(redis_store *st, redis_conn *c, const char *what);
int stet__redis_answer(redis_store *st, redis_conn *c, redisReply **reply, const char *what);
/* The next of the answers that have come: NULL, no whole one. False: the connection is of no more
 * use. */
bool stet__redis_answer_here(redis_store *st, redis_conn *c, redisReply **reply);
/* One command and its answer. What the server refuses is an error here. *reply is freed by
 * freeReplyObject(). */
int stet__redis_ask(redis_store *st, redis_conn *c, const redis_words *w, redisReply **reply,
                    const char *what);
/* The same for a script, which is loaded if the server does not know it. */
int stet__redis_run(redis_store *st, redis_conn *c, redis_script script, const redis_words *w,
                    redisReply **reply,
                    const char *what);
int stet__redis_load(redis_store *st, redis_conn *c, redis_script script);

/* ---- redis_doctor.c ---- */

/* Reads the settings and refuses a server that can lose what it acknowledged, unless the address
 * allows it. */
int stet__redis_doctor_open(redis_store *st, redis_conn *c);
/* May this user do all that the scripts do? Nothing a script writes may be refused half way. */
int stet__redis_doctor_rights(redis_store *st, redis_conn *c);
int stet__redis_doctor(stet_store *s, stet_doctor_fn fn, void *arg);
/* "redis_version:7.0.15" -> the text behind the colon, up to the end of the line; false: not
 * there. */
bool stet__redis_info(const char *info, const char *field, char *out, size_t size);

/* ---- redis_mend.c ---- */

int stet__redis_check(stet_store *s, bool is_repairing, stet_check_fn fn, void *arg);

/* ---- redis_pack.c ---- */

void stet__redis_pack_array(stet__buf *b, size_t n);
void stet__redis_pack_uint(stet__buf *b, uint64_t v);
void stet__redis_pack_int(stet__buf *b, int64_t v);
void stet__redis_pack_bool(stet__buf *b, bool v);
void stet__redis_pack_head(stet__buf *b, size_t len); /* of so many bytes that follow */
void stet__redis_pack_bytes(stet__buf *b, const void *data, size_t len);
void stet__redis_pack_text(stet__buf *b, const char *text); /* NULL: false */
void stet__redis_pack_time(stet__buf *b, int64_t ms);       /* STET_NEVER: false */
void stet__redis_pack_id(stet__buf *b, stet_id id);

typedef enum redis_kind {
    REDIS_IS_BAD,
    REDIS_IS_FALSE,
    REDIS_IS_NUMBER,
    REDIS_IS_BYTES,
    REDIS_IS_ARRAY
} redis_kind;
/* Reading: moves on; false at anything unexpected. */
redis_kind stet__redis_peek(stet_bytes in);
bool       stet__redis_take_array(stet_bytes *in, size_t *n);
bool       stet__redis_take_int(stet_bytes *in, int64_t *v);
bool       stet__redis_take_uint(stet_bytes *in, uint64_t *v);
bool       stet__redis_take_u32(stet_bytes *in, uint32_t *v);
bool       stet__redis_take_bytes(stet_bytes *in, stet_bytes *v);
bool       stet__redis_take_id(stet_bytes *in, stet_id *v);
bool       stet__redis_take_flag(stet_bytes *in, bool *v);
bool       stet__redis_take_time(stet_bytes *in, int64_t *v); /* false: STET_NEVER */

/* 8 bytes whose order is that of the numbers. */
void     stet__redis_put_be64(uint8_t out[8], uint64_t v);
uint64_t stet__redis_get_be64(const void *in);
uint32_t stet__redis_get_be32(const void *in);

/* ---- redis_encode.c, redis_commit.c ---- */

/* Timers as a member of "t": time, run, completion. */
#define REDIS_TIMER_BYTES 32
void stet__redis_timer_member(uint8_t out[REDIS_TIMER_BYTES], int64_t fire_ms, stet_id run,
                              uint64_t completion);
/* How many units from `from` on make the next part of a commit. */
size_t stet__redis_part(const stet_unit *units, size_t n, size_t from);
/* The argument of the script for units [from, to). false: out of memory. */
bool stet__redis_encode(redis_store *st, stet__buf *b, const stet_unit *units, size_t from,
                        size_t to);
/* The columns of a row as they are kept, but for lane and session, which are none. */
void stet__redis_row(stet__buf *b, const stet_run_row *r);
/* So few and small that they are one part. */
bool stet__redis_is_part(const stet_unit *units, size_t n);
/* Somebody else can use what the units do, and the engine does not tell them itself. */
bool stet__redis_publishes(redis_store *st, const stet_unit *units, size_t n);
/* Grants { run, epoch, inbox, … } of an answer; of `news` what lies last in their inboxes, of `journals` the only entry
 * of their journals. */
int  stet__redis_grants(redis_store *st, stet_bytes *in, stet_bytes *news, stet_bytes *journals,
                        stet_outcome *out);
int  stet__redis_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes);

/* ---- redis_quick.c ---- */

/* A whole commit by a quick script, if there is one for it and it finds all as it should be; else
 * *is_done is false, nothing was done, and the commit script is to be asked. STET_EUNCERTAIN: it is not
 * known. Locks: commit_lock. */
int stet__redis_quick(redis_store *st, const stet_unit *units, size_t n, stet_outcome *outcomes,
                      bool *is_done);

/* ---- redis_session.c ---- */

int  stet__redis_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms,
                              stet_bytes info);
int  stet__redis_session_renew(stet_store *s, uint64_t session, int64_t lease_ms);
int  stet__redis_session_close(stet_store *s, uint64_t session);
int  stet__redis_sessions(stet_store *s, stet_session_fn fn, void *arg);
void stet__redis_sessions_free(redis_store *st);
stet_crumb *stet__redis_crumbs(stet_store *s, uint64_t session, size_t n);
int  stet__redis_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n);
int  stet__redis_maintain(stet_store *s);

/* ---- redis_read.c ---- */

/* A free reader for a while, connected. NULL: *err and stet_last_error() say why. */
redis_conn *stet__redis_reader_get(redis_store *st, int *err);
void        stet__redis_reader_put(redis_store *st, redis_conn *c);

/* Commands sent together, an answer to each; answers are to be freed also after a failure. */
int  stet__redis_read(redis_store *st, const redis_words *commands, size_t n, redisReply **replies,
                      const char *what);
int  stet__redis_read_script(redis_store *st, const redis_words *w, redisReply **reply,
                             const char *what);
/* "{prefix}:" KIND NAME; false: out of memory, and said so. To be freed in any case. */
bool stet__redis_key(redis_store *st, stet__buf *b, const char *kind, const void *name, size_t len);

int stet__redis_read_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg);
int stet__redis_read_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn,
                          void *arg);
int stet__redis_journal_give(redis_store *st, const redisReply *reply, stet_facts_fn fn, void *arg);
int stet__redis_read_load(stet_store *s, stet_id run, bool if_ended, size_t limit,
                          stet_run_row_fn row_fn, stet_facts_fn facts_fn, void *arg);
int stet__redis_read_journal(stet_store *s, stet_id run, uint64_t from, size_t limit,
                             stet_facts_fn fn, void *arg);
int stet__redis_read_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit,
                           stet_facts_fn fn, void *arg);
int stet__redis_read_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn,
                            void *arg,
                            int64_t *next_ms);
int stet__redis_read_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg);
int stet__redis_read_value(stet_store *s, const char *space, stet_bytes key, stet_value *value);
int stet__redis_read_values(stet_store *s, const char *space, stet_bytes prefix,
                            const stet_bytes *after, size_t limit,
                            stet_value_fn fn, void *arg);
int stet__redis_read_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn,
                          void *arg);
int stet__redis_read_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms);
int stet__redis_ping(stet_store *s);

/* ---- redis_hint.c ---- */

int  stet__redis_watch(stet_store *s, stet_hint_fn on_hint, void *arg);
void stet__redis_unwatch(stet_store *s);
bool stet__redis_is_told(redis_store *st); /* commits need not publish: the engine tells */
void stet__redis_waits(redis_store *st); /* somebody is about to look whether a run has ended */
void stet__redis_tell(stet_store *s, const void *bytes, size_t len);
/* A new era has begun, as this connection found out: who watches connects anew. */
void stet__redis_hint_renew(redis_store *st, const redis_conn *found);

#endif
