/* SQLite refuses: every statement that is prepared, every step and every call on the files beside
 * the database fails in turn, with all the codes they have, while a store does what it does when
 * nobody looks as well: upkeep, files of an older version, tables that are rebuilt, transactions
 * that are lent. A call that failed works when it is made again, and what is in the file is right.
 *
 *   STET_FAULT_STRIDE=N  every Nth round only (5)
 */
#include "test.h"

#ifdef STET_WITH_SQLITE
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_platform.h"
#include "fault_vfs.h"
#include "fixture.h"
#include "store/sqlite.h"
#include "store_life.h"

/* ---- calls that fail to order ---------------------------------------------------------------- */

typedef enum refused { REFUSE_NONE, REFUSE_STEP, REFUSE_PREPARE, REFUSE_EXEC, REFUSE_FILE } refused;

static struct {
    _Atomic int  what;
    _Atomic long n, at;
    _Atomic bool is_hit;
    int          code; /* of SQLite; REFUSE_FILE: an errno */
} refusal;

static void
refuse(refused what, long at, int code)
{
    atomic_store(&refusal.what, REFUSE_NONE);
    atomic_store(&refusal.n, 0);
    atomic_store(&refusal.at, at);
    atomic_store(&refusal.is_hit, false);
    refusal.code = code;
    atomic_store(&refusal.what, (int)what);
}

/* Calls after this one work. */
static void
refuse_end(void)
{
    atomic_store(&refusal.what, REFUSE_NONE);
}

static bool
is_refused(refused what)
{
    if (atomic_load(&refusal.what) != (int)what ||
        atomic_fetch_add(&refusal.n, 1) != atomic_load(&refusal.at))
        return false;
    atomic_store(&refusal.is_hit, true);
    return true;
}

static bool
is_file_refused(void)
{
    bool is = is_refused(REFUSE_FILE);

    if (is)
        errno = refusal.code;
    return is;
}

/* The linker puts them between the library and SQLite, and between it and the system; what SQLite
 * itself asks of the system is not theirs. */
/* NOLINTBEGIN */
int     __real_sqlite3_step(sqlite3_stmt *stmt);
int     __wrap_sqlite3_step(sqlite3_stmt *stmt);
int     __real_sqlite3_prepare_v2(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
int     __wrap_sqlite3_prepare_v2(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
int     __real_sqlite3_prepare_v3(sqlite3 *, const char *, int, unsigned, sqlite3_stmt **,
                                  const char **);
int     __wrap_sqlite3_prepare_v3(sqlite3 *, const char *, int, unsigned, sqlite3_stmt **,
                                  const char **);
int     __real_sqlite3_exec(sqlite3 *, const char *, sqlite3_callback, void *, char **);
int     __wrap_sqlite3_exec(sqlite3 *, const char *, sqlite3_callback, void *, char **);
int     __real_open(const char *path, int flags, ...);
int     __wrap_open(const char *path, int flags, ...);
int     __real_fstat(int fd, struct stat *info);
int     __wrap_fstat(int fd, struct stat *info);
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __real_pwrite(int fd, const void *from, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t n, off_t at);
int     __real_ftruncate(int fd, off_t size);
int     __wrap_ftruncate(int fd, off_t size);
int     __real_posix_fallocate(int fd, off_t at, off_t size);
int     __wrap_posix_fallocate(int fd, off_t at, off_t size);
void   *__real_mmap(void *at, size_t size, int prot, int flags, int fd, off_t from);
void   *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t from);

int
__wrap_sqlite3_step(sqlite3_stmt *stmt)
{
    return is_refused(REFUSE_STEP) ? refusal.code : __real_sqlite3_step(stmt);
}

int
__wrap_sqlite3_prepare_v2(sqlite3 *db, const char *sql, int len, sqlite3_stmt **stmt,
                          const char **tail)
{
    *stmt = NULL;
    return is_refused(REFUSE_PREPARE) ? refusal.code
                                      : __real_sqlite3_prepare_v2(db, sql, len, stmt, tail);
}

int
__wrap_sqlite3_prepare_v3(sqlite3 *db, const char *sql, int len, unsigned flags,
                          sqlite3_stmt **stmt, const char **tail)
{
    *stmt = NULL;
    return is_refused(REFUSE_PREPARE) ? refusal.code
                                      : __real_sqlite3_prepare_v3(db, sql, len, flags, stmt, tail);
}

int
__wrap_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback fn, void *arg, char **error)
{
    return is_refused(REFUSE_EXEC) ? refusal.code : __real_sqlite3_exec(db, sql, fn, arg, error);
}

int
__wrap_open(const char *path, int flags, ...)
{
    mode_t  mode;
    va_list args;

    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return is_file_refused() ? -1 : __real_open(path, flags, mode);
}

int
__wrap_fstat(int fd, struct stat *info)
{
    return is_file_refused() ? -1 : __real_fstat(fd, info);
}

ssize_t
__wrap_pread(int fd, void *to, size_t n, off_t at)
{
    return is_file_refused() ? -1 : __real_pread(fd, to, n, at);
}

ssize_t
__wrap_pwrite(int fd, const void *from, size_t n, off_t at)
{
    return is_file_refused() ? -1 : __real_pwrite(fd, from, n, at);
}

int
__wrap_ftruncate(int fd, off_t size)
{
    return is_file_refused() ? -1 : __real_ftruncate(fd, size);
}

int
__wrap_posix_fallocate(int fd, off_t at, off_t size)
{
    return is_file_refused() ? refusal.code : __real_posix_fallocate(fd, at, size);
}

void *
__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t from)
{
    return fd >= 0 && is_file_refused() ? MAP_FAILED : __real_mmap(at, size, prot, flags, fd, from);
}
/* NOLINTEND */

/* ---- a file with a past ---------------------------------------------------------------------- */

enum {
    PAST_RUNS = 1200, /* with a key, by one commit: a lot of keys of its own */
    PAST_GONE = 500,  /* of those */
    PAST_LATER = 270, /* a commit each: small lots, more than are put together at once */
    QUIET = 4,
    READY = 1,
    RUNNING = 2,
    DONE = 9,
    TRIES = 40,
};

static char past_long[200];

typedef struct past {
    stet__platform *platform;
    char            url[600];
    stet_store     *s;
    uint64_t        session, seq;
    const char     *where;
    int             failures;
} past;

static stet_id
past_id(uint32_t i)
{
    uint8_t random[10] = { 0 };

    random[8] = (uint8_t)(i >> 8);
    random[9] = (uint8_t)i;
    return stet__id_make(INT64_C(1700000000000) + (int64_t)i * 5, random);
}

static const char *
past_handler(uint32_t i)
{
    static const char *const all[] = { "a.one", "b.two", "b.three", past_long };

    return i % 50 == 0 ? all[3] : all[i % 3];
}

static bool
past_is_well(past *p, int line, int err, const char *what)
{
    if (err == STET_OK)
        return true;
    if (++p->failures > TRIES)
        test_fail(__FILE__, line, "%s: %s: %s: %s", p->where, what, stet_code_name(err),
                  stet_last_error());
    CHECK(err == STET_EBUSY || stet_last_error()[0] != '\0');
    if (p->s != NULL && (err == STET_EPOISONED || err == STET_EUNCERTAIN))
        (void)p->s->ops->reopen(p->s);
    return false;
}

#define AGAIN(p, call)                                                                             \
    do {                                                                                           \
    } while (!past_is_well(p, __LINE__, call, #call))

static void
past_open(past *p, const char *name, const char *options)
{
    (void)snprintf(p->url, sizeof p->url, "sqlite:%s?vfs=fault%s", test_path(name), options);
    p->s = NULL;
    p->seq = 0;
    AGAIN(p, stet__store_open(&p->s, p->platform, p->url));
    p->s->quiet = 1u << QUIET;
}

static void
past_close(past *p)
{
    stet__store_close(p->s);
    p->s = NULL;
}

/* One unit; a conflict is what a repeat may find. */
static void
past_commit(past *p, const stet_op *ops, size_t n)
{
    stet_unit    unit = { .seq = ++p->seq, .ops = ops, .n_ops = n };
    stet_outcome out = { 0 };

    AGAIN(p, p->s->ops->commit(p->s, &unit, 1, &out));
    stet__free(p->s->alloc, out.grants);
    CHECK(out.result == STET_OK || out.result == STET_ECONFLICT);
}

static stet_run_row
past_row(uint32_t i)
{
    return (stet_run_row){ .id = past_id(i),
                           .handler = past_handler(i),
                           .key = i % 4 != 3 ? "k" : "other",
                           .status = i % 5 == 0 ? QUIET : READY,
                           .due_ms = i % 5 == 0 ? STET_NEVER : 5,
                           /* some do not say in their ID when they were made */
                           .created_ms = INT64_C(1700000000000) + (i % 7 == 0 ? 900000000 : 0),
                           .ended_ms = STET_NEVER };
}

static void
past_make(past *p)
{
    static stet_run_row rows[PAST_RUNS];
    static stet_op      ops[PAST_RUNS];

    memset(past_long, 'x', sizeof past_long - 1);
    past_long[1] = '.';
    past_open(p, "past.db", "");
    AGAIN(p, p->s->ops->session_open(p->s, &p->session, past_id(9999), 600000, stet_text("i")));
    for (uint32_t i = 0; i < PAST_RUNS; i++) {
        rows[i] = past_row(i);
        if (i < PAST_GONE) {
            rows[i].status = DONE;
            rows[i].is_terminal = 1;
            rows[i].due_ms = STET_NEVER;
            rows[i].ended_ms = 5;
        }
        ops[i] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &rows[i], .run = rows[i].id };
    }
    past_commit(p, ops, PAST_RUNS);
    for (uint32_t i = 0; i < PAST_LATER; i++) {
        rows[i] = past_row(PAST_RUNS + i);
        ops[i] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &rows[i], .run = rows[i].id };
        past_commit(p, &ops[i], 1);
    }
    for (uint32_t i = 0; i < PAST_GONE; i++)
        ops[i] = (stet_op){ .kind = STET_OP_RUN_DEL, .run = past_id(i) };
    past_commit(p, ops, PAST_GONE);
    past_close(p);
}

static sqlite3 *
past_db(const char *name)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open_v2(test_path(name), &db, SQLITE_OPEN_READWRITE, "fault"), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    return db;
}

static void
past_sql(const char *name, const char *sql)
{
    sqlite3 *db = NULL;
    char    *error = NULL;

    db = past_db(name);
    if (__real_sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, error);
    sqlite3_close(db);
}

static void
past_copy(const char *from, const char *to)
{
    static char              bytes[1 << 20];
    static const char *const beside[] = { "-wal", "-shm", "-live" };
    char                     name[64];
    FILE                    *in = fopen(test_path(from), "rb"), *out = fopen(test_path(to), "wb");
    size_t                   n;

    CHECK(in != NULL && out != NULL);
    while ((n = fread(bytes, 1, sizeof bytes, in)) > 0)
        CHECK_INT(fwrite(bytes, 1, n, out), n);
    CHECK_INT(fclose(out), 0);
    fclose(in);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        (void)snprintf(name, sizeof name, "%s%s", to, beside[i]);
        (void)unlink(test_path(name));
    }
}

static int
on_run(void *arg, const stet_run_row *row)
{
    (void)row;
    ++*(int *)arg;
    return STET_OK;
}

/* How many there are; a list that failed is begun anew. */
static int
past_count(past *p, stet_run_query q)
{
    int n, err;

    q.limit = q.limit != 0 ? q.limit : 10000;
    do {
        n = 0;
        err = p->s->ops->runs(p->s, &q, on_run, &n);
    } while (!past_is_well(p, __LINE__, err, "a list"));
    return n;
}

static int
past_expect(const char *handler, const char *key, int status)
{
    int n = 0;

    for (uint32_t i = PAST_GONE; i < PAST_RUNS + PAST_LATER; i++) {
        stet_run_row row = past_row(i);

        n += (handler == NULL || strncmp(row.handler, handler, strlen(handler)) == 0) &&
             (key == NULL || strcmp(row.key, key) == 0) &&
             (status < 0 || row.status == (uint32_t)status);
    }
    return n;
}

static void
past_lists(past *p)
{
    CHECK_INT(past_count(p, (stet_run_query){ .handler = "b.two" }),
              past_expect("b.two", NULL, -1));
    CHECK_INT(past_count(p, (stet_run_query){ .handler = "b." }), past_expect("b.", NULL, -1));
    CHECK_INT(past_count(p, (stet_run_query){ .handler = past_long }),
              past_expect(past_long, NULL, -1));
    CHECK_INT(past_count(p, (stet_run_query){ .handler = "a.one", .key = "other" }),
              past_expect("a.one", "other", -1));
    CHECK_INT(past_count(p, (stet_run_query){ .key = "k", .before = past_id(PAST_RUNS + 4000) }),
              past_expect(NULL, "k", -1));
    CHECK_INT(past_count(p, (stet_run_query){ .status_mask = 1u << QUIET }),
              past_expect(NULL, NULL, QUIET));
    CHECK_INT(past_count(p, (stet_run_query){ .status_mask = 1u << DONE }), 0);
    CHECK_INT(past_count(p, (stet_run_query){ .created_from_ms = INT64_C(1700500000000) }),
              (PAST_RUNS + PAST_LATER + 6) / 7 - (PAST_GONE + 6) / 7);
    CHECK_INT(past_count(p, (stet_run_query){ .created_to_ms = INT64_C(1700500000000),
                                              .handler = "b.two",
                                              .limit = 5 }),
              5);
    CHECK_INT(past_count(p, (stet_run_query){ .created_to_ms = INT64_MAX, .limit = 7 }), 7);
}

static void
past_integrity(const char *name)
{
    sqlite3      *db = NULL;
    sqlite3_stmt *stmt = NULL;

    db = past_db(name);
    CHECK_INT(__real_sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(__real_sqlite3_step(stmt), SQLITE_ROW);
    CHECK_STR((const char *)sqlite3_column_text(stmt, 0), "ok");
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

/* ---- what is done to it ---------------------------------------------------------------------- */

/* Upkeep: what is true no longer is swept, small lots become large ones. */
static void
life_upkeep(past *p)
{
    past_open(p, "life.db", "");
    AGAIN(p, p->s->ops->maintain(p->s));
    past_lists(p);
    AGAIN(p, p->s->ops->maintain(p->s));
    past_close(p);
}

/* A file of version 1 has no stretches. */
static void
life_fill(past *p)
{
    past_open(p, "life.db", "");
    past_lists(p);
    past_close(p);
}

static void
life_rebuild(past *p)
{
    past_open(p, "life.db", "&repair=1");
    CHECK_INT(past_count(p, (stet_run_query){ .handler = "a.one" }),
              past_expect("a.one", NULL, -1));
    past_close(p);
}

/* Claims, a session that is reaped, runs that are queued again, facts written anew. */
static void
life_work(past *p)
{
    static const char *const handlers[] = { "a.one", "b.two", "b.three" };
    static char              past_facts[600000];
    stet_claimer             claimer, nobody;
    stet_run_row             row = past_row(PAST_RUNS + 1);
    stet_op                  ops[8] = { { 0 } };
    uint64_t                 other;

    past_open(p, "life.db", "");
    AGAIN(p, p->s->ops->session_open(p->s, &p->session, past_id(9999), 600000, stet_text("i")));
    claimer = (stet_claimer){ p->session, RUNNING, handlers, 3 };
    nobody = (stet_claimer){ 0, RUNNING, handlers, 3 };
    /* Before each: something that is not written yet when it begins. */
    ops[0] = (stet_op){ .kind = STET_OP_INBOX, .run = row.id, .data = stet_text("letter") };
    ops[1] =
        (stet_op){ .kind = STET_OP_CLAIM_DUE, .count = 40, .claimer = &claimer, .status = READY };
    past_commit(p, ops, 2);
    ops[1] =
        (stet_op){ .kind = STET_OP_CLAIM_DUE, .count = 5, .claimer = &nobody, .status = READY };
    past_commit(p, ops, 2);
    ops[1] =
        (stet_op){ .kind = STET_OP_CLAIM_DUE, .count = 0, .claimer = &claimer, .status = READY };
    past_commit(p, ops, 2);
    ops[1] =
        (stet_op){ .kind = STET_OP_REQUEUE, .claimer = &claimer, .status = QUIET, .number = READY };
    past_commit(p, ops, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ops[1] = (stet_op){ .kind = STET_OP_LANE_ENTER,
                            .run = past_id(PAST_GONE + 5 + 5 * i),
                            .lane = "lane",
                            .status = READY };
        past_commit(p, ops, 2);
    }
    ops[1] = (stet_op){
        .kind = STET_OP_FACTS, .run = row.id, .number = 1, .count = 1, .data = stet_text("f")
    };
    ops[2] = (stet_op){ .kind = STET_OP_FACTS,
                        .run = row.id,
                        .number = 2,
                        .count = 1,
                        .data = { past_facts, sizeof past_facts } };
    ops[3] = ops[2];
    ops[3].number = 3;
    past_commit(p, ops, 4);
    ops[1] = (stet_op){ .kind = STET_OP_FACTS,
                        .flags = STET_OP_ANEW,
                        .run = row.id,
                        .number = 7,
                        .count = 1,
                        .session = 1,
                        .data = stet_text("anew") };
    ops[2] =
        (stet_op){ .kind = STET_OP_LANE_LEAVE, .run = past_id(PAST_GONE + 5), .status = READY };
    past_commit(p, ops, 3);
    AGAIN(p, p->s->ops->session_close(p->s, p->session));
    AGAIN(p, p->s->ops->session_open(p->s, &other, past_id(9998), 600000, stet_text("i")));
    ops[1] = (stet_op){ .kind = STET_OP_REAP, .session = 0, .status = READY };
    ops[2] = (stet_op){ .kind = STET_OP_REAP, .session = p->session, .status = READY };
    past_commit(p, ops, 3);
    CHECK_INT(past_count(p, (stet_run_query){ .session = p->session }), 0);
    AGAIN(p, p->s->ops->reopen(p->s));
    past_close(p);
}

/* A lent transaction, and a start inside it and inside one of somebody else. */
static void
life_lend(past *p)
{
    stet_op op = {
        .kind = STET_OP_VALUE_PUT, .space = "t", .key = stet_text("k"), .data = stet_text("v")
    };
    stet_unit    unit = { .seq = 1, .ops = &op, .n_ops = 1 };
    stet_outcome out = { 0 };
    stet_tx     *tx;
    sqlite3     *db = NULL;
    int          err;

    past_open(p, "life.db", "");
    do {
        AGAIN(p, p->s->ops->tx_begin(p->s, 10000, &tx));
        if ((err = p->s->ops->apply_in(p->s, tx->conn, &unit, &out)) == STET_OK)
            err = p->s->ops->tx_commit(p->s, tx, &unit, &out);
        else
            p->s->ops->tx_rollback(p->s, tx);
    } while (!past_is_well(p, __LINE__, err == STET_OK ? out.result : err, "a transaction"));
    AGAIN(p, p->s->ops->tx_begin(p->s, 10000, &tx));
    p->s->ops->tx_rollback(p->s, tx);
    db = past_db("life.db");
    do {
        CHECK_INT(__real_sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        err = p->s->ops->apply_in(p->s, (stet_conn){ STET_CONN_SQLITE, db }, &unit, &out);
        if (!sqlite3_get_autocommit(db))
            CHECK_INT(
                __real_sqlite3_exec(db, err == STET_OK ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL),
                SQLITE_OK);
    } while (!past_is_well(p, __LINE__, err, "a start in a transaction"));
    sqlite3_close(db);
    past_close(p);
}

static void
check_lent(past *p)
{
    stet_value value;

    past_open(p, "life.db", "");
    CHECK_OK(p->s->ops->value(p->s, "t", stet_text("k"), &value));
    CHECK(value.version >= 3); /* every one that was told is there */
    stet__free(p->s->alloc, (void *)(uintptr_t)value.data.data);
    past_close(p);
}

static void
check_lists(past *p)
{
    past_open(p, "life.db", "");
    past_lists(p);
    past_close(p);
}

static void
check_work(past *p)
{
    int n = 0;

    past_open(p, "life.db", "");
    CHECK_INT(past_count(p, (stet_run_query){ .handler = "b." }), past_expect("b.", NULL, -1));
    CHECK_INT(past_count(p, (stet_run_query){ .status_mask = 1u << RUNNING }), 0);
    CHECK_OK(p->s->ops->run(p->s, past_id(PAST_RUNS + 1), on_run, &n));
    past_close(p);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static const struct {
    const char *what, *sql; /* done to the file before */
    void (*live)(past *p), (*check)(past *p);
    long strides[5]; /* by what is refused; 0: not at all */
} lives[] = {
    { "upkeep", NULL, life_upkeep, check_lists, { 0, 151, 1, 1, 1 } },
    { "an old file",
      "DROP TABLE stretches; DROP TABLE stretch_keys; PRAGMA user_version=1",
      life_fill,
      check_lists,
      { 0, 331, 1, 1, 0 } },
    { "a lost table", "DROP TABLE sessions", life_rebuild, check_lists, { 0, 5, 1, 1, 1 } },
    { "work", NULL, life_work, check_work, { 0, 3, 1, 1, 1 } },
    { "lent", NULL, life_lend, check_lent, { 0, 1, 1, 1, 1 } },
};

static long
stride_of(long each)
{
    return each * test_count("STET_FAULT_STRIDE", 5);
}

static void
refuse_everywhere(refused what, long first, const int *codes, size_t n_codes)
{
    past p = { .platform = stet__platform_real(), .where = "as it should be" };
    long rounds = 0;

    fault_vfs_register();
    past_make(&p);
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        if (lives[i].strides[what] == 0)
            continue;
        for (long at = first;; at += stride_of(lives[i].strides[what]), rounds++) {
            char where[80];
            bool is_hit;

            (void)snprintf(where, sizeof where, "%s, call %ld", lives[i].what, at);
            p.where = where;
            p.failures = 0;
            past_copy("past.db", "life.db");
            if (lives[i].sql != NULL)
                past_sql("life.db", lives[i].sql);
            refuse(what, at, codes[(size_t)rounds % n_codes]);
            lives[i].live(&p);
            is_hit = atomic_load(&refusal.is_hit);
            refuse_end();
            p.failures = TRIES; /* nothing may fail now */
            lives[i].check(&p);
            past_integrity("life.db");
            if (!is_hit)
                break;
        }
    }
    test_note("%ld rounds", rounds);
}

TEST_LIMIT(G2_sqlite_every_step_is_refused_once, 200)
{
    static const int codes[] = { SQLITE_IOERR, SQLITE_NOMEM, SQLITE_FULL, SQLITE_IOERR_NOMEM };

    refuse_everywhere(REFUSE_STEP, 0, codes, sizeof codes / sizeof *codes);
}

TEST_LIMIT(G2_sqlite_every_statement_cannot_be_prepared_once, 200)
{
    static const int codes[] = { SQLITE_NOMEM, SQLITE_IOERR, SQLITE_LOCKED, SQLITE_CORRUPT };

    refuse_everywhere(REFUSE_PREPARE, 0, codes, sizeof codes / sizeof *codes);
}

TEST_LIMIT(G2_sqlite_every_order_to_the_file_is_refused_once, 200)
{
    static const int codes[] = { SQLITE_IOERR, SQLITE_NOMEM, SQLITE_READONLY, SQLITE_PERM,
                                 SQLITE_TOOBIG };

    refuse_everywhere(REFUSE_EXEC, 0, codes, sizeof codes / sizeof *codes);
}

TEST_LIMIT(G2_sqlite_every_call_on_the_files_beside_it_fails_once, 200)
{
    static const int codes[] = { ENOSPC, EACCES, EIO, EDQUOT, EROFS, EPERM };

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        refuse_everywhere(REFUSE_FILE, (long)i, codes + i, 1);
}

/* ---- everything the port has ----------------------------------------------------------------- */

static void
refuse_life(refused what, const int *codes, size_t n_codes, long stride)
{
    char       url[600], name[32], where[64];
    store_life l = {
        .platform = stet__platform_real(), .url = url, .where = where, .calm = refuse_end
    };
    bool is_hit = true;
    long at;

    fault_vfs_register();
    for (at = 0; is_hit; at += stride_of(stride)) {
        (void)snprintf(name, sizeof name, "port-%d-%ld.db", (int)what, at);
        (void)snprintf(url, sizeof url, "sqlite:%s?vfs=fault", test_path(name));
        (void)snprintf(where, sizeof where, "call %ld", at);
        refuse(what, at, codes[(size_t)(at / stride_of(stride)) % n_codes]);
        l.n = (uint32_t)at + 1;
        store_life_live(&l);
        is_hit = atomic_load(&refusal.is_hit);
        past_integrity(name);
    }
    test_note("%ld calls", at);
}

TEST_LIMIT(G2_sqlite_every_method_meets_a_step_that_is_refused, 200)
{
    static const int codes[] = { SQLITE_IOERR, SQLITE_NOMEM, SQLITE_FULL };

    refuse_life(REFUSE_STEP, codes, sizeof codes / sizeof *codes, 1);
}

TEST_LIMIT(G2_sqlite_every_method_meets_a_statement_that_is_refused, 200)
{
    static const int codes[] = { SQLITE_NOMEM, SQLITE_IOERR };

    refuse_life(REFUSE_PREPARE, codes, sizeof codes / sizeof *codes, 1);
}

TEST_LIMIT(G1_sqlite_upkeep_and_rebuilding_without_memory, 200)
{
    fault_platform f;
    past           p = { .platform = stet__platform_real(), .where = "as it should be" };
    long           rounds = 0;

    fault_vfs_register();
    past_make(&p);
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++)
        for (long at = 0;; at += stride_of(2), rounds++) {
            char where[80];

            (void)snprintf(where, sizeof where, "%s, allocation %ld", lives[i].what, at);
            p.where = where;
            p.failures = 0;
            past_copy("past.db", "life.db");
            if (lives[i].sql != NULL)
                past_sql("life.db", lives[i].sql);
            fault_platform_init(&f);
            fault_platform_arm(&f, at, 1);
            p.platform = &f.base;
            lives[i].live(&p);
            fault_platform_disarm(&f);
            CHECK_INT(atomic_load(&f.live), 0); /* nothing leaks */
            p.platform = stet__platform_real();
            p.failures = TRIES;
            lives[i].check(&p);
            if (atomic_load(&f.failed) == 0)
                break;
        }
    test_note("%ld rounds", rounds);
}
#else
TEST(G2_sqlite_refusals)
{
    test_skip("built without SQLite");
}
#endif
