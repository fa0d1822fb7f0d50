/* What is special to the SQLite store: files that are not ours, failing disks, several processes on
 * one file, forks, the live file beside it. Everything else is in the contract suite. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/sqlite.h"
#include "test.h"

/* ---- tools ----------------------------------------------------------------------------------- */

static stet_store *
open_ok(const char *address)
{
    stet_store *s = NULL;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), address));
    return s;
}

static int
open_code(const char *address)
{
    stet_store *s = NULL;
    int         err = stet__store_open(&s, stet__platform_real(), address);

    stet__store_close(s);
    return err;
}

static const char *
with_option(const char *name, const char *option)
{
    static char text[2][1024];
    static int  at;

    at = !at;
    snprintf(text[at], sizeof text[at], "%s?%s", test_path(name), option);
    return text[at];
}

static void
shell_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_INT(sqlite3_busy_timeout(db, 20000), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static stet_id
run_id(unsigned n)
{
    stet_id id = { { 0 } };

    id.bytes[0] = 1;
    id.bytes[14] = (uint8_t)(n >> 8);
    id.bytes[15] = (uint8_t)n;
    return id;
}

static int
commit_one(stet_store *s, uint64_t seq, const stet_cond *conds, size_t n_conds, const stet_op *ops,
           size_t n_ops, stet_outcome *out)
{
    stet_unit unit = { .seq = seq, .conds = conds, .n_conds = n_conds, .ops = ops, .n_ops = n_ops };
    int       err = s->ops->commit(s, &unit, 1, out);

    stet__free(s->alloc, out->grants);
    out->grants = NULL;
    return err;
}

static int
put_value(stet_store *s, uint64_t seq, const char *key, size_t bytes, stet_outcome *out)
{
    char   *data = calloc(1, bytes + 1);
    stet_op op = {
        .kind = STET_OP_VALUE_PUT, .space = "t", .key = stet_text(key), .data = { data, bytes }
    };
    int err = commit_one(s, seq, NULL, 0, &op, 1, out);

    free(data);
    return err;
}

static uint64_t
value_version(stet_store *s, const char *key)
{
    stet_value value;
    int        err = s->ops->value(s, "t", stet_text(key), &value);

    CHECK(err == STET_OK || err == STET_ENOTFOUND);
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    return value.version;
}

static void
put_claimed(stet_store *s, uint64_t seq, unsigned n, uint64_t session)
{
    const char  *handlers[] = { "a.b" };
    stet_claimer claimer = { session, 2, handlers, 1 };
    stet_run_row row = { .handler = "a.b", .ended_ms = STET_NEVER };
    stet_op      op = { .kind = STET_OP_RUN_PUT, .row = &row, .claimer = &claimer };
    stet_unit    unit = { .seq = seq, .ops = &op, .n_ops = 1 };
    stet_outcome out;

    row.id = run_id(n);
    CHECK_OK(s->ops->commit(s, &unit, 1, &out));
    CHECK_INT(out.n_grants, 1);
    stet__free(s->alloc, out.grants);
}

static uint64_t
open_session(stet_store *s)
{
    uint64_t session = 0;

    CHECK_OK(s->ops->session_open(s, &session, run_id(999), 60000, stet_text("me")));
    return session;
}

static int
is_dead_row(void *arg, const stet_session_row *row)
{
    *(bool *)arg = row->is_dead;
    return 0;
}

static off_t
file_size(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? info.st_size : -1;
}

/* ---- files that are not ours ----------------------------------------------------------------- */

TEST(G2_a_file_that_is_no_database_is_refused_and_left_alone)
{
    const char *path = test_path("notes.txt");
    FILE       *f = fopen(path, "w");

    for (int i = 0; i < 300; i++)
        fputs("these are my notes, not a database\n", f);
    fclose(f);
    CHECK_CODE(open_code(path), STET_ENOTDB);
    CHECK_HAS(stet_last_error(), "notes.txt");
    CHECK_INT(file_size(path), 300 * 35);
    CHECK_INT(file_size(test_path("notes.txt-live")), -1);
}

TEST(G2_a_database_of_something_else_is_refused_and_left_alone)
{
    const char *path = test_path("other.db");
    off_t       size;

    shell_sql(path, "CREATE TABLE customers(name)");
    size = file_size(path);
    CHECK_CODE(open_code(path), STET_ENOTDB);
    CHECK_HAS(stet_last_error(), "something else");
    CHECK_INT(file_size(path), size);
    CHECK_INT(file_size(test_path("other.db-live")), -1);
}

TEST(G2_a_newer_format_is_refused)
{
    const char *path = test_path("newer.db");

    CHECK_OK(open_code(path));
    shell_sql(path, "PRAGMA user_version=99");
    CHECK_CODE(open_code(path), STET_ENEWER);
    CHECK_HAS(stet_last_error(), "99");
}

TEST(G2_an_empty_file_becomes_a_store)
{
    const char *path = test_path("empty.db");
    FILE       *f = fopen(path, "w");

    fclose(f);
    CHECK_OK(open_code(path));
    CHECK_OK(open_code(path));
}

TEST(G2_a_missing_directory_is_named)
{
    CHECK_CODE(open_code(test_path("no/such/shop.db")), STET_EIO);
    CHECK_HAS(stet_last_error(), "no/such");
}

TEST(G2_places_that_cannot_be_written)
{
    const char *dir = test_path("locked");
    const char *path = test_path("readonly.db");

    if (geteuid() == 0)
        test_skip("root may write everywhere");
    CHECK_OK(open_code(path));
    CHECK_INT(chmod(path, 0444), 0);
    CHECK_CODE(open_code(path), STET_EREADONLY);
    CHECK_INT(mkdir(dir, 0555), 0);
    CHECK_CODE(open_code(test_path("locked/shop.db")), STET_EREADONLY);
}

TEST(G2_a_name_taken_beside_the_store_is_named)
{
    FILE *f = fopen(test_path("shop.db-live"), "w");

    fputs("somebody else's file", f);
    fclose(f);
    CHECK_CODE(open_code(test_path("shop.db")), STET_ENOTDB);
    CHECK_HAS(stet_last_error(), "shop.db-live");
}

/* ---- addresses ------------------------------------------------------------------------------- */

TEST(G7_options_of_the_address)
{
    CHECK_CODE(open_code(with_option("a.db", "speed=fast")), STET_EURL);
    CHECK_HAS(stet_last_error(), "\"speed\"");
    CHECK_CODE(open_code(with_option("a.db", "prefix=a-b")), STET_EURL);
    CHECK_CODE(open_code(with_option("a.db", "prefix=")), STET_EURL);
    CHECK_CODE(open_code(with_option("a.db", "prefix=sqlite_x")), STET_EURL);
    CHECK_HAS(stet_last_error(), "a prefix is at most");
    CHECK_CODE(open_code(with_option("a.db", "prefix=1a")), STET_EURL);
    CHECK_CODE(open_code(with_option("a.db", "prefix=a_prefix_that_is_longer_than_is_allowed")),
               STET_EURL);
    CHECK_HAS(stet_last_error(), "a prefix is at most");
    CHECK_CODE(open_code(with_option("a.db", "vfs=nosuch")), STET_EURL);
    CHECK_HAS(stet_last_error(), "no VFS named nosuch");
    CHECK_CODE(open_code(with_option("a.db", "vfs=")), STET_EURL);
    CHECK_CODE(open_code(with_option("a.db", "repair=2")), STET_EURL);
    CHECK_HAS(stet_last_error(), "\"repair\"");
    CHECK_CODE(open_code(with_option("a.db", "readonly=0")), STET_EURL);
    CHECK_CODE(open_code("sqlite:"), STET_EURL);
    CHECK_HAS(stet_last_error(), "sqlite:PATH");
    CHECK_CODE(open_code("sqlite::memory:"), STET_EURL);
    CHECK_CODE(open_code("sqlite:?prefix=a"), STET_EURL);
    CHECK_INT(file_size(test_path("a.db")), -1);
    CHECK_OK(open_code(with_option("a.db", "prefix=a_1&vfs=unix")));
}

TEST(G7_prefixes_are_apart)
{
    stet_store  *a = open_ok(with_option("shared.db", "prefix=one"));
    stet_store  *b = open_ok(with_option("shared.db", "prefix=two"));
    stet_outcome out;
    bool         is_dead = false;

    CHECK_OK(put_value(a, 1, "k", 1, &out));
    CHECK_INT(value_version(a, "k"), 1);
    CHECK_INT(value_version(b, "k"), 0);
    /* The same session number in both; only one of them dies. */
    CHECK_INT(open_session(a), 1);
    CHECK_INT(open_session(b), 1);
    stet__store_close(a);
    CHECK_OK(b->ops->sessions(b, is_dead_row, &is_dead));
    CHECK(!is_dead);
    a = open_ok(with_option("shared.db", "prefix=one"));
    CHECK_OK(a->ops->sessions(a, is_dead_row, &is_dead));
    CHECK(is_dead);
    stet__store_close(a);
    stet__store_close(b);
}

TEST(G2_a_relative_path_survives_chdir)
{
    stet_store  *s;
    stet_outcome out;

    CHECK_INT(chdir(test_dir()), 0);
    s = open_ok("relative.db");
    CHECK_INT(chdir("/"), 0);
    CHECK_OK(put_value(s, 1, "k", 1, &out));
    CHECK_INT(value_version(s, "k"), 1);
    CHECK_OK(s->ops->reopen(s));
    CHECK_OK(put_value(s, 2, "k", 1, &out));
    open_session(s);
    stet__store_close(s);
}

/* ---- processes ------------------------------------------------------------------------------- */

TEST(G2_a_forked_child_is_told)
{
    stet_store  *s = open_ok(test_path("fork.db"));
    uint64_t     session = open_session(s);
    stet_outcome out;
    stet_value   value;
    int          status = 0;
    pid_t        child;

    CHECK_OK(put_value(s, 1, "k", 1, &out));
    if ((child = fork()) == 0) {
        int ok = put_value(s, 2, "k", 1, &out) == STET_EFORKED &&
                 s->ops->value(s, "t", stet_text("k"), &value) == STET_EFORKED &&
                 s->ops->session_renew(s, session, 1000) == STET_EFORKED;

        s->ops->close(s);
        _exit(ok ? 0 : 1);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_OK(put_value(s, 2, "k", 1, &out));
    CHECK_INT(value_version(s, "k"), 2);
    CHECK_OK(s->ops->session_renew(s, session, 1000));
    stet__store_close(s);
}

/* A process that holds a session and a claim and writes a crumb, then waits to be killed. */
static pid_t
start_worker(const char *path)
{
    int   ready[2];
    char  byte;
    pid_t child;

    CHECK_INT(pipe(ready), 0);
    if ((child = fork()) == 0) {
        stet_store *s = open_ok(path);
        uint64_t    session = open_session(s);
        stet_crumb *crumbs = s->ops->crumbs(s, session, 3);

        put_claimed(s, 1, 7, session);
        crumbs[1].is_busy = 1;
        memcpy(crumbs[1].step, "charge", sizeof "charge");
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK_INT(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void
end_worker(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

TEST(F3_a_killed_worker_is_proven_dead_at_once)
{
    pid_t        child = start_worker(test_path("dead.db"));
    stet_store  *s = open_ok(test_path("dead.db"));
    stet_cond    dead = { .kind = STET_COND_SESSION_DEAD, .session = 1 };
    stet_op      reap = { .kind = STET_OP_REAP, .session = 1, .status = 4 };
    stet_outcome out;
    stet_crumb  *crumbs = NULL;
    size_t       n = 0;
    bool         is_dead = true;

    CHECK_OK(s->ops->sessions(s, is_dead_row, &is_dead));
    CHECK(!is_dead);
    CHECK_OK(commit_one(s, 1, &dead, 1, &reap, 1, &out));
    CHECK_INT(out.result, STET_ECONFLICT);
    CHECK_CODE(s->ops->crumbs_of(s, 1, &crumbs, &n), STET_ESTATE);

    end_worker(child);
    CHECK_OK(s->ops->sessions(s, is_dead_row, &is_dead));
    CHECK(is_dead);
    CHECK_OK(s->ops->crumbs_of(s, 1, &crumbs, &n));
    CHECK_INT(n, 3);
    CHECK_INT(crumbs[1].is_busy, 1);
    CHECK_STR(crumbs[1].step, "charge");
    stet__free(s->alloc, crumbs);
    CHECK_OK(commit_one(s, 2, &dead, 1, &reap, 1, &out));
    CHECK_INT(out.result, STET_OK);
    /* Its slot is used again, not a new one. */
    open_session(s);
    CHECK_INT(file_size(test_path("dead.db-live")), 2 * LITE_SLOT_BYTES);
    CHECK_CODE(s->ops->crumbs_of(s, 1, &crumbs, &n), STET_ENOTFOUND);
    stet__store_close(s);
}

TEST(F3_crumbs_of_another_boot_did_not_survive)
{
    const char *path = test_path("boot.db");
    stet_store *s = open_ok(path);
    uint64_t    session = open_session(s);
    stet_crumb *crumbs = s->ops->crumbs(s, session, 3);
    size_t      n = 1;
    bool        is_dead = false;
    int         fd;

    CHECK(crumbs != NULL);
    crumbs[0].is_busy = 1;
    fd = open(test_path("boot.db-live"), O_RDWR);
    CHECK_INT(pwrite(fd, "other", 5, LITE_SLOT_BYTES + (off_t)offsetof(sqlite_slot, boot)), 5);
    close(fd);
    CHECK_OK(s->ops->sessions(s, is_dead_row, &is_dead));
    CHECK(is_dead);
    CHECK_CODE(s->ops->crumbs_of(s, session, &crumbs, &n), STET_ENOTFOUND);
    CHECK_INT(n, 0);
    stet__store_close(s);
}

TEST(F3_without_the_live_file_the_lease_decides)
{
    const char *path = test_path("lost.db");
    stet_store *s = open_ok(path);
    bool        is_dead = true;

    open_session(s);
    stet__store_close(s);
    CHECK_INT(unlink(test_path("lost.db-live")), 0);
    s = open_ok(path);
    CHECK_OK(s->ops->sessions(s, is_dead_row, &is_dead));
    CHECK(!is_dead);
    stet__sqlite_test_advance(s, 60001);
    CHECK_OK(s->ops->sessions(s, is_dead_row, &is_dead));
    CHECK(is_dead);
    stet__store_close(s);
}

TEST(F3_a_replaced_database_does_not_inherit_deaths)
{
    const char *path = test_path("again.db");
    stet_store *s = open_ok(path);
    bool        is_dead = true;

    open_session(s);
    stet__store_close(s);
    CHECK_INT(unlink(path), 0); /* the live file stays, with a free slot of session 1 */
    s = open_ok(path);
    CHECK_INT(open_session(s), 1);
    CHECK_OK(s->ops->sessions(s, is_dead_row, &is_dead));
    CHECK(!is_dead);
    stet__store_close(s);
}

TEST(F3_crumbs_have_a_limit)
{
    stet_store *s = open_ok(test_path("crumbs.db"));
    uint64_t    session = open_session(s);

    CHECK(s->ops->crumbs(s, session, 128) != NULL);
    CHECK(s->ops->crumbs(s, session, LITE_CRUMBS_MAX) != NULL);
    CHECK(s->ops->crumbs(s, session, LITE_CRUMBS_MAX + 1) == NULL);
    CHECK(s->ops->crumbs(s, session + 1, 1) == NULL);
    stet__store_close(s);
}

/* Commits for `ms`, then tells how many it made. */
static void
write_for(const char *path, int64_t ms, int out_fd)
{
    stet_store  *s = open_ok(path);
    int64_t      until = stet__mono_ms(s->platform) + ms;
    uint64_t     n = 0;
    stet_outcome out;

    while (stet__mono_ms(s->platform) < until)
        CHECK_OK(put_value(s, ++n, "k", 100, &out));
    CHECK_INT(write(out_fd, &n, sizeof n), sizeof n);
    stet__store_close(s);
}

TEST(G2_writers_of_several_processes_take_turns)
{
    const char *path = test_path("turns.db");
    uint64_t    counts[3] = { 0 };
    int         fds[2];
    stet_store *s = open_ok(path);

    stet__store_close(s);
    CHECK_INT(pipe(fds), 0);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            write_for(path, 1500, fds[1]);
            _exit(0);
        }
    for (int i = 0; i < 3; i++) {
        CHECK_INT(read(fds[0], &counts[i], sizeof counts[i]), sizeof counts[i]);
        wait(NULL);
    }
    test_note("%llu, %llu, %llu commits", (unsigned long long)counts[0],
              (unsigned long long)counts[1], (unsigned long long)counts[2]);
    for (int i = 0; i < 3; i++)
        CHECK(counts[i] * 3 > counts[(i + 1) % 3]);
    s = open_ok(path);
    CHECK_INT(value_version(s, "k"), counts[0] + counts[1] + counts[2]);
    stet__store_close(s);
}

/* Commits for ever and acknowledges each commit with a byte. */
static void
write_until_killed(const char *path, int out_fd)
{
    stet_store  *s = open_ok(path);
    uint64_t     n = 0;
    stet_outcome out;

    for (;;) {
        CHECK_OK(put_value(s, ++n, "k", 20000, &out));
        if (write(out_fd, "x", 1) != 1)
            _exit(1);
    }
}

TEST(G2_a_writer_killed_anywhere_loses_nothing_and_blocks_nobody)
{
    const char  *path = test_path("kill.db");
    stet_store  *s;
    uint64_t     acknowledged = 0, version;
    stet_outcome out;
    char         byte;
    int          fds[2];
    pid_t        child;

    for (unsigned round = 1; round <= 10; round++) {
        CHECK_INT(pipe(fds), 0);
        if ((child = fork()) == 0)
            write_until_killed(path, fds[1]);
        close(fds[1]);
        for (unsigned i = 0; i < 5 * round; i++) {
            CHECK_INT(read(fds[0], &byte, 1), 1);
            acknowledged++;
        }
        end_worker(child);
        while (read(fds[0], &byte, 1) == 1)
            acknowledged++;
        close(fds[0]);
        s = open_ok(path); /* not before fork(): SQLite cannot stand that */
        CHECK_OK(put_value(s, round, "k", 1, &out));
        version = value_version(s, "k");
        CHECK(version > acknowledged); /* the parent's, and at most one unacknowledged a round */
        CHECK(version <= acknowledged + 2);
        acknowledged = version;
        stet__store_close(s);
    }
}

TEST(G2_a_foreign_write_lock_gives_busy)
{
    stet_store  *s = open_ok(test_path("busy.db"));
    sqlite3     *db = NULL;
    stet_outcome out;

    CHECK_INT(sqlite3_open(test_path("busy.db"), &db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    CHECK_CODE(put_value(s, 1, "k", 1, &out), STET_EBUSY);
    CHECK_INT(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    CHECK_OK(put_value(s, 1, "k", 1, &out));
    CHECK(!out.is_repeat);
    CHECK_INT(value_version(s, "k"), 1);
    stet__store_close(s);
}

/* What another connection did to a run is seen, though its row is kept in memory between
 * commits. */
TEST(F3_rows_in_memory_are_dropped_when_others_write)
{
    stet_store  *a = open_ok(test_path("two.db"));
    stet_store  *b = open_ok(test_path("two.db"));
    uint64_t     session = open_session(a);
    stet_cond    claim = { .kind = STET_COND_CLAIM, .session = session, .epoch = 1 };
    stet_op      inbox = { .kind = STET_OP_INBOX, .data = { "x", 1 } };
    stet_op      facts = { .kind = STET_OP_FACTS, .number = 1, .count = 1, .data = { "f", 1 } };
    stet_outcome out;

    claim.run = inbox.run = facts.run = run_id(1);
    put_claimed(a, 1, 1, session);
    CHECK_OK(commit_one(b, 1, NULL, 0, &inbox, 1, &out));
    CHECK_OK(commit_one(a, 2, &claim, 1, &facts, 1, &out));
    CHECK_INT(out.result, STET_OK);
    CHECK_INT(out.inbox, 1);
    stet__sqlite_test_advance(b, 60001);
    {
        stet_cond dead = { .kind = STET_COND_SESSION_DEAD, .session = session };
        stet_op   reap = { .kind = STET_OP_REAP, .session = session };

        CHECK_OK(commit_one(b, 2, &dead, 1, &reap, 1, &out));
        CHECK_INT(out.result, STET_OK);
    }
    facts.number = 2;
    CHECK_OK(commit_one(a, 3, &claim, 1, &facts, 1, &out));
    CHECK_INT(out.result, STET_EFENCED);
    stet__store_close(a);
    stet__store_close(b);
}

/* ---- a disk that fails ----------------------------------------------------------------------- */

/* A VFS over the real one that can refuse writes or flushes of the log. */
typedef struct bad_file {
    sqlite3_file  base;
    bool          is_log;
    sqlite3_file *real;
} bad_file;

static atomic_int bad_sync_code, bad_write_code;
static atomic_int log_headers,
    log_longest; /* writes of one page's header alone; the longest write */

#define BAD(file)  ((bad_file *)(void *)(file))
#define REAL(file) (BAD(file)->real)

static int
bad_close(sqlite3_file *f)
{
    return REAL(f)->pMethods->xClose(REAL(f));
}
static int
bad_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return REAL(f)->pMethods->xRead(REAL(f), p, n, at);
}
static int
bad_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    if (BAD(f)->is_log && atomic_load(&bad_write_code) != 0)
        return atomic_load(&bad_write_code);
    if (BAD(f)->is_log && n == 24)
        atomic_fetch_add(&log_headers, 1);
    if (BAD(f)->is_log && n > atomic_load(&log_longest))
        atomic_store(&log_longest, n);
    return REAL(f)->pMethods->xWrite(REAL(f), p, n, at);
}
static int
bad_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    return REAL(f)->pMethods->xTruncate(REAL(f), n);
}
static int
bad_sync(sqlite3_file *f, int flags)
{
    if (BAD(f)->is_log && atomic_load(&bad_sync_code) != 0)
        return atomic_load(&bad_sync_code);
    return REAL(f)->pMethods->xSync(REAL(f), flags);
}
static int
bad_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return REAL(f)->pMethods->xFileSize(REAL(f), n);
}
static int
bad_lock(sqlite3_file *f, int l)
{
    return REAL(f)->pMethods->xLock(REAL(f), l);
}
static int
bad_unlock(sqlite3_file *f, int l)
{
    return REAL(f)->pMethods->xUnlock(REAL(f), l);
}
static int
bad_reserved(sqlite3_file *f, int *l)
{
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), l);
}
static int
bad_control(sqlite3_file *f, int op, void *p)
{
    return REAL(f)->pMethods->xFileControl(REAL(f), op, p);
}
static int
bad_sector(sqlite3_file *f)
{
    return REAL(f)->pMethods->xSectorSize(REAL(f));
}
static int
bad_traits(sqlite3_file *f)
{
    return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}
static int
bad_shm_map(sqlite3_file *f, int i, int n, int e, void volatile **p)
{
    return REAL(f)->pMethods->xShmMap(REAL(f), i, n, e, p);
}
static int
bad_shm_lock(sqlite3_file *f, int o, int n, int l)
{
    return REAL(f)->pMethods->xShmLock(REAL(f), o, n, l);
}
static void
bad_shm_barrier(sqlite3_file *f)
{
    REAL(f)->pMethods->xShmBarrier(REAL(f));
}
static int
bad_shm_unmap(sqlite3_file *f, int d)
{
    return REAL(f)->pMethods->xShmUnmap(REAL(f), d);
}

static const sqlite3_io_methods bad_methods = {
    .iVersion = 2,
    .xClose = bad_close,
    .xRead = bad_read,
    .xWrite = bad_write,
    .xTruncate = bad_truncate,
    .xSync = bad_sync,
    .xFileSize = bad_size,
    .xLock = bad_lock,
    .xUnlock = bad_unlock,
    .xCheckReservedLock = bad_reserved,
    .xFileControl = bad_control,
    .xSectorSize = bad_sector,
    .xDeviceCharacteristics = bad_traits,
    .xShmMap = bad_shm_map,
    .xShmLock = bad_shm_lock,
    .xShmBarrier = bad_shm_barrier,
    .xShmUnmap = bad_shm_unmap,
};

static int
bad_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
    sqlite3_vfs *real = vfs->pAppData;
    bad_file    *bad = BAD(f);
    int          rc;

    bad->real = (sqlite3_file *)(void *)(bad + 1);
    bad->is_log = (flags & SQLITE_OPEN_WAL) != 0;
    rc = real->xOpen(real, name, bad->real, flags, out);
    bad->base.pMethods = rc == SQLITE_OK ? &bad_methods : NULL;
    return rc;
}

static void
bad_register(void)
{
    static sqlite3_vfs vfs;
    sqlite3_vfs       *real = sqlite3_vfs_find("unix");

    vfs = *real;
    vfs.zName = "bad";
    vfs.pNext = NULL;
    vfs.pAppData = real;
    vfs.szOsFile = (int)sizeof(bad_file) + real->szOsFile;
    vfs.xOpen = bad_open;
    CHECK_INT(sqlite3_vfs_register(&vfs, 0), SQLITE_OK);
}

static void
check_poison(stet_store *s, const char *part)
{
    stet_outcome out;

    CHECK_CODE(put_value(s, 2, "k", 100, &out), STET_EPOISONED);
    CHECK_HAS(stet_last_error(), part);
    atomic_store(&bad_sync_code, 0);
    atomic_store(&bad_write_code, 0);
    /* Poisoned until it is reopened, though the disk is well again. */
    CHECK_CODE(put_value(s, 2, "k", 100, &out), STET_EPOISONED);
    CHECK_CODE(s->ops->ping(s), STET_EPOISONED);
    CHECK_OK(s->ops->reopen(s));
    CHECK_OK(put_value(s, 2, "k", 100, &out));
    CHECK_INT(out.result, STET_OK);
    CHECK_INT(value_version(s, "k"), 2); /* once, whether it was a repeat or not */
    CHECK_OK(s->ops->ping(s));
}

TEST(G2_a_failed_flush_poisons_until_reopened)
{
    stet_store  *s;
    stet_outcome out;

    bad_register();
    s = open_ok(with_option("sync.db", "vfs=bad"));
    CHECK_OK(put_value(s, 1, "k", 100, &out));
    atomic_store(&bad_sync_code, SQLITE_IOERR_FSYNC);
    check_poison(s, "flush");
    stet__store_close(s);
}

/* Sizes around what is put together, so that a commit ends everywhere within the last piece. */
TEST(G2_the_pages_of_a_commit_are_written_in_few_pieces)
{
    stet_store  *s;
    stet_outcome out;
    stet_value   value;

    bad_register();
    s = open_ok(with_option("pieces.db", "vfs=bad"));
    CHECK_OK(put_value(s, 1, "k", 100, &out));
    atomic_store(&log_headers, 0);
    atomic_store(&log_longest, 0);
    for (size_t i = 1; i <= 100; i++) {
        CHECK_OK(put_value(s, 1 + i, "k", i * 4096, &out));
        CHECK_INT(out.result, STET_OK);
        CHECK_OK(s->ops->value(s, "t", stet_text("k"), &value));
        CHECK_INT(value.data.len, i * 4096);
        stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    }
    CHECK_INT(atomic_load(&log_headers), 0);
    CHECK(atomic_load(&log_longest) > 64 * 1024);
    CHECK(atomic_load(&log_longest) < 128 * 1024); /* SQLite's files take no more in one call */
    stet__store_close(s);
}

TEST(G2_a_full_disk_says_so)
{
    stet_store  *s;
    stet_outcome out;

    bad_register();
    s = open_ok(with_option("full.db", "vfs=bad"));
    CHECK_OK(put_value(s, 1, "k", 100, &out));
    atomic_store(&bad_write_code, SQLITE_FULL);
    check_poison(s, "space");
    stet__store_close(s);
}

TEST(G2_a_full_disk_before_the_commit_applies_nothing)
{
    stet_store  *s;
    stet_outcome out;

    bad_register();
    s = open_ok(with_option("spill.db", "vfs=bad"));
    CHECK_OK(put_value(s, 1, "k", 100, &out));
    atomic_store(&bad_write_code, SQLITE_FULL);
    /* So much that SQLite must write before the end. */
    CHECK_CODE(put_value(s, 2, "k", 64u << 20, &out), STET_EFULL);
    atomic_store(&bad_write_code, 0);
    CHECK_OK(put_value(s, 2, "k", 100, &out));
    CHECK(!out.is_repeat);
    CHECK_INT(value_version(s, "k"), 2);
    stet__store_close(s);
}

/* ---- repeats, the log, memory, threads ------------------------------------------------------- */

TEST(F6_a_repeat_behind_a_lost_reply_is_answered_with_its_grants)
{
    stet_store  *s = open_ok(test_path("repeat.db"));
    stet_store  *again;
    const char  *handlers[] = { "a.b" };
    stet_claimer claimer = { open_session(s), 2, handlers, 1 };
    stet_run_row row = { .id = run_id(5), .handler = "a.b", .ended_ms = STET_NEVER };
    stet_op      op = { .kind = STET_OP_RUN_PUT, .row = &row, .claimer = &claimer };
    stet_op      more = {
             .kind = STET_OP_FACTS, .run = run_id(5), .number = 1, .count = 2, .data = { "ff", 2 }
    };
    stet_unit    units[2] = { { .seq = 10, .ops = &op, .n_ops = 1 },
                              { .seq = 17, .ops = &more, .n_ops = 1 } };
    stet_outcome out[2];

    CHECK_OK(s->ops->commit(s, units, 1, out));
    stet__free(s->alloc, out[0].grants);
    again = open_ok(test_path("repeat.db"));
    again->committer = s->committer;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(again->ops->commit(again, units, 2, out));
        CHECK(out[0].is_repeat);
        CHECK_INT(out[0].n_grants, 1);
        CHECK_INT(out[0].grants[0].epoch, 1);
        CHECK_INT(out[1].is_repeat, i);
        CHECK_INT(out[1].result, STET_OK);
        stet__free(again->alloc, out[0].grants);
    }
    stet__store_close(again);
    stet__store_close(s);
}

/* Without the memory of what was answered a repeat would be applied a second time. */
TEST(F2_a_repeat_is_refused_while_nobody_knows_what_was_answered)
{
    const char  *path = test_path("forgotten.db");
    stet_store  *s = open_ok(path);
    stet_outcome out;

    CHECK_OK(put_value(s, 1, "k", 3, &out));
    shell_sql(path, "DROP TABLE committers");
    CHECK(put_value(s, 1, "k", 3, &out) != STET_OK);
    CHECK_CODE(open_code(path), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "committers");
    CHECK_OK(s->ops->reopen(s));
    CHECK(put_value(s, 1, "k", 3, &out) != STET_OK);
    CHECK_INT(value_version(s, "k"), 1);
    stet__store_close(s);
    s = open_ok(path);
    CHECK_INT(value_version(s, "k"), 1);
    CHECK_OK(put_value(s, 1, "k", 3, &out));
    CHECK_INT(value_version(s, "k"), 2);
    stet__store_close(s);
}

static int
count_dead(void *arg, const stet_session_row *row)
{
    CHECK(row->is_dead);
    ++*(int *)arg;
    return 0;
}

/* Numbers are not used again: who had a run by its old number must not have it by a new one. */
TEST(F2_lost_sessions_are_known_to_be_dead)
{
    const char *path = test_path("sessions.db");
    stet_store *s = open_ok(path);
    uint64_t    first = open_session(s), second;
    int         n = 0;

    put_claimed(s, 1, 1, first);
    for (int i = 0; i < 3; i++) {
        stet__store_close(s);
        shell_sql(path, "DROP TABLE sessions");
        s = open_ok(path);
        n = 0;
        CHECK_OK(s->ops->sessions(s, count_dead, &n));
        CHECK_INT(n, 1 + i);
        second = open_session(s);
        CHECK(second > first);
        first = second;
    }
    stet__store_close(s);
}

TEST(G2_the_log_stays_bounded)
{
    stet_store  *s = open_ok(test_path("log.db"));
    off_t        largest = 0, size;
    stet_outcome out;
    char         key[16];

    for (unsigned i = 1; i <= 600; i++) {
        snprintf(key, sizeof key, "%u", i % 50);
        CHECK_OK(put_value(s, i, key, 256 * 1024, &out));
        size = file_size(test_path("log.db-wal"));
        largest = size > largest ? size : largest;
    }
    test_note("150 MiB written, log at most %lld KiB", (long long)largest / 1024);
    CHECK(largest < (off_t)(72 << 20));
    stet__store_close(s);
}

static void
copy_file(const char *from, const char *to)
{
    char   block[4096];
    FILE  *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;

    CHECK(in != NULL && out != NULL);
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        CHECK(fwrite(block, 1, n, out) == n);
    CHECK_INT(fclose(in) | fclose(out), 0);
}

/* Commits overwrite what is there already; and what is behind the log's end is not taken for a part
 * of it by whoever opens the file after a crash. */
TEST(G2_the_log_has_room_ahead_that_means_nothing)
{
    stet_store  *s = open_ok(test_path("room.db")), *copy;
    int64_t      until_us = stet__mono_us(s->platform) + 30 * 1000000;
    stet_outcome out;
    off_t        used;

    for (unsigned i = 1; i <= 20; i++)
        CHECK_OK(put_value(s, i, "k", 3000, &out));
    used = (off_t)sqlite_of(s)->log_pages * 4120 + 32;
    while (file_size(test_path("room.db-wal")) < used + 32 * 4120) {
        CHECK(stet__mono_us(s->platform) < until_us);
        sched_yield();
    }
    copy_file(test_path("room.db"), test_path("copy.db"));
    copy_file(test_path("room.db-wal"), test_path("copy.db-wal"));
    copy = open_ok(test_path("copy.db"));
    CHECK_INT(value_version(copy, "k"), 20);
    stet__store_close(copy);
    stet__store_close(s);
}

/* An allocator that fails once, at a given call. */
static atomic_long alloc_left;

static void *
alloc_fail(stet__alloc *a, void *old, size_t size)
{
    (void)a;
    if (size == 0) {
        free(old);
        return NULL;
    }
    if (atomic_fetch_sub(&alloc_left, 1) == 1)
        return NULL;
    return realloc(old, size);
}

static int
memory_story(stet__platform *p, const char *path)
{
    const char  *handlers[] = { "a.b" };
    stet_claimer claimer = { 0, 2, handlers, 1 };
    stet_run_row row = { .id = run_id(1), .handler = "a.b", .ended_ms = STET_NEVER };
    stet_op      ops[] = { { .kind = STET_OP_RUN_PUT, .row = &row },
                           { .kind = STET_OP_LANE_ENTER, .run = run_id(1), .lane = "l" },
                           { .kind = STET_OP_CLAIM_DUE, .count = 5, .claimer = &claimer } };
    stet_unit    unit = { .seq = 1, .ops = ops, .n_ops = 3 };
    stet_outcome out = { 0 };
    stet_store  *s = NULL;
    int          err, again;

    if ((err = stet__store_open(&s, p, path)) != STET_OK)
        return err;
    again = err = s->ops->session_open(s, &claimer.session, run_id(9), 60000, stet_text("x"));
    if (err == STET_ENOMEM)
        again = s->ops->session_open(s, &claimer.session, run_id(9), 60000, stet_text("x"));
    CHECK_OK(again);
    again = s->ops->commit(s, &unit, 1, &out);
    if (again == STET_ENOMEM) {
        err = again;
        again = s->ops->commit(s, &unit, 1, &out);
    }
    CHECK_OK(again);
    CHECK(!out.is_repeat); /* nothing of what failed was applied */
    CHECK_INT(out.result, STET_OK);
    CHECK_INT(out.n_grants, 1);
    stet__free(s->alloc, out.grants);
    stet__store_close(s);
    return err;
}

TEST(G2_every_allocation_may_fail)
{
    stet__platform p = *stet__platform_real();
    long           n;
    int            err = STET_ENOMEM;

    p.alloc.get = alloc_fail;
    for (n = 1; n < 2000 && err != STET_OK; n++) {
        char name[32];

        snprintf(name, sizeof name, "oom%ld.db", n);
        atomic_store(&alloc_left, n);
        err = memory_story(&p, test_path(name));
        CHECK(err == STET_OK || err == STET_ENOMEM);
    }
    CHECK_OK(err);
    test_note("failed each of %ld allocations", n - 2);
}

typedef struct crowd {
    stet_store *s;
    uint64_t    session;
    atomic_bool stop;
    atomic_int  hints;
} crowd;

static int
ignore_run(void *arg, const stet_run_row *row)
{
    (void)arg;
    CHECK(row->handler != NULL);
    return 0;
}

static void
crowd_read(void *arg)
{
    crowd         *c = arg;
    stet_run_query all = { .limit = 50 };

    while (!atomic_load(&c->stop)) {
        CHECK_OK(c->s->ops->runs(c->s, &all, ignore_run, NULL));
        value_version(c->s, "k");
    }
}

static void
crowd_renew(void *arg)
{
    crowd *c = arg;

    while (!atomic_load(&c->stop)) {
        CHECK_OK(c->s->ops->session_renew(c->s, c->session, 60000));
        CHECK_OK(c->s->ops->maintain(c->s));
    }
}

static void
crowd_hint(void *arg)
{
    atomic_fetch_add(&((crowd *)arg)->hints, 1);
}

TEST(G2_looking_for_work_in_vain_writes_nothing_and_hints_nobody)
{
    crowd        c = { .s = open_ok(test_path("idle.db")) };
    stet_store  *other = open_ok(test_path("idle.db"));
    const char  *handlers[] = { "a.b" };
    stet_claimer claimer = { open_session(other), 2, handlers, 1 };
    stet_op      op = { .kind = STET_OP_CLAIM_DUE, .count = 5, .claimer = &claimer };
    int          pages;
    stet_outcome out;

    CHECK_OK(put_value(other, 1, "k", 1, &out));
    CHECK_OK(c.s->ops->watch(c.s, crowd_hint, &c));
    pages = sqlite_of(other)->log_pages;
    for (unsigned i = 2; i < 100; i++) {
        CHECK_OK(commit_one(other, i, NULL, 0, &op, 1, &out));
        CHECK_INT(out.result, STET_OK);
        CHECK(out.next_due_ms == STET_NEVER);
    }
    CHECK_INT(sqlite_of(other)->log_pages, pages);
    c.s->ops->unwatch(c.s);
    CHECK_INT(atomic_load(&c.hints), 0);
    stet__store_close(other);
    stet__store_close(c.s);
}

TEST(G2_many_threads_on_one_handle)
{
    crowd         c = { .s = open_ok(test_path("crowd.db")) };
    stet_store   *other = open_ok(test_path("crowd.db"));
    stet_store   *s = c.s;
    stet__thread *threads[7] = { NULL };
    stet_outcome  out;

    c.session = open_session(s);
    CHECK_OK(s->ops->watch(s, crowd_hint, &c));
    for (int i = 0; i < 6; i++)
        CHECK_OK(s->platform->ops->thread_start(s->platform, &threads[i], "read", crowd_read, &c));
    CHECK_OK(s->platform->ops->thread_start(s->platform, &threads[6], "renew", crowd_renew, &c));
    for (unsigned i = 1; i <= 100; i++) {
        put_claimed(s, 2 * i, i, c.session);
        CHECK_OK(put_value(s, 2 * i + 1, "k", 10, &out));
        if (i % 10 == 0)
            CHECK_OK(put_value(other, i, "k", 10, &out));
    }
    atomic_store(&c.stop, true);
    for (int i = 0; i < 7; i++)
        s->platform->ops->thread_join(s->platform, threads[i]);
    s->ops->unwatch(s);
    CHECK(atomic_load(&c.hints) > 0);
    CHECK_INT(value_version(s, "k"), 110);
    stet__store_close(other);
    stet__store_close(s);
}

/* ---- lent transactions ----------------------------------------------------------------------- */

static int
count_row(void *arg, const stet_run_row *row)
{
    (void)row;
    ++*(int *)arg;
    return 0;
}

static int
count_runs(stet_store *s, stet_run_query query)
{
    int n = 0;

    query.limit = 10;
    CHECK_OK(s->ops->runs(s, &query, count_row, &n));
    return n;
}

static int
lend_and_put(stet_store *s, uint64_t seq, unsigned n, const char *sql)
{
    stet_run_row row = { .handler = "a.b", .status = STET_STATUS_COMPLETED, .key = "k" };
    stet_op      op = { .kind = STET_OP_RUN_PUT, .row = &row };
    stet_unit    unit = { .seq = seq, .ops = &op, .n_ops = 1 };
    stet_tx     *tx = NULL;
    stet_outcome out;

    row.id = run_id(n);
    CHECK_OK(s->ops->tx_begin(s, 20000, &tx));
    CHECK_INT(sqlite3_exec(tx->conn.handle, sql, NULL, NULL, NULL), SQLITE_OK);
    return s->ops->tx_commit(s, tx, &unit, &out);
}

/* What the first put remembered of where runs are went with its transaction; the second has it. */
TEST(C8_a_run_is_listed_whose_transaction_failed_at_its_commit_before)
{
    const char *path = test_path("lent.db");
    stet_store *s = open_ok(path);
    stet_tx    *tx = NULL;

    shell_sql(path, "CREATE TABLE parent(id INTEGER PRIMARY KEY);"
                    "CREATE TABLE child(of REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED)");
    CHECK_OK(s->ops->tx_begin(s, 20000, &tx));
    s->ops->tx_rollback(s, tx);
    CHECK_INT(sqlite3_exec(tx->conn.handle, "PRAGMA foreign_keys = ON", NULL, NULL, NULL),
              SQLITE_OK);
    CHECK_INT(lend_and_put(s, 1, 1, "INSERT INTO child VALUES(7)"), STET_ERETRY);
    CHECK_INT(count_runs(s, (stet_run_query){ .handler = "a.b" }), 0);
    CHECK_OK(lend_and_put(s, 2, 1, "INSERT INTO parent VALUES(7)"));
    CHECK_INT(count_runs(s, (stet_run_query){ .handler = "a.b" }), 1);
    CHECK_INT(count_runs(s, (stet_run_query){ .key = "k" }), 1);
    CHECK_INT(count_runs(s, (stet_run_query){ .status_mask = 1u << STET_STATUS_COMPLETED }), 1);
    stet__store_close(s);
}

/* ---- transactions that are lent ------------------------------------------------------------ */

static const stet_op lent_op = {
    .kind = STET_OP_VALUE_PUT,
    .space = "s",
    .key = { "k", 1 },
    .data = { "v", 1 },
};
static const stet_unit lent_unit = { .seq = 1, .ops = &lent_op, .n_ops = 1 };

static int
lent_exec(stet_tx *tx, const char *sql)
{
    return sqlite3_exec(tx->conn.handle, sql, NULL, NULL, NULL);
}

TEST(I4_a_body_may_do_what_does_not_touch_the_store)
{
    static const char *const denied[] = {
        "COMMIT",
        "ROLLBACK",
        "ATTACH ':memory:' AS m",
        "DETACH main",
        "PRAGMA user_version=7",
        "INSERT INTO app_runs(id) VALUES(x'00')",
        "UPDATE app_runs SET status=1",
        "DELETE FROM app_facts",
        "DROP TABLE app_values_",
        "ALTER TABLE app_runs RENAME TO mine",
        "CREATE INDEX app_mine ON app_runs(status)",
        "CREATE TRIGGER t AFTER INSERT ON app_runs BEGIN SELECT 1; END",
    };
    static const char *const allowed[] = {
        "PRAGMA user_version",
        "CREATE TABLE IF NOT EXISTS orders(id INTEGER, note TEXT)",
        "CREATE INDEX orders_id ON orders(id)",
        "DROP INDEX orders_id",
        "ALTER TABLE orders ADD COLUMN price INTEGER",
        "CREATE TRIGGER orders_new AFTER INSERT ON orders BEGIN DELETE FROM orders WHERE id<0; END",
        "INSERT INTO orders(id) VALUES(1)",
        "SELECT count(*) FROM app_runs",
        "CREATE TABLE runs(id INTEGER)", /* the store's begin with app_ */
    };
    stet_store  *s = open_ok(with_option("lent.db", "prefix=app"));
    stet_outcome out = { 0 };
    stet_tx     *tx;

    CHECK_OK(s->ops->tx_begin(s, 60000, &tx));
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++)
        if (lent_exec(tx, denied[i]) == SQLITE_OK)
            test_fail(__FILE__, __LINE__, "not denied: %s", denied[i]);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (lent_exec(tx, allowed[i]) != SQLITE_OK)
            test_fail(__FILE__, __LINE__, "%s: %s", allowed[i], sqlite3_errmsg(tx->conn.handle));
    CHECK_OK(s->ops->tx_commit(s, tx, &lent_unit, &out));
    CHECK_INT(out.result, STET_OK);
    stet__store_close(s);
}

TEST(I4_a_lent_transaction_that_ended_itself_or_took_too_long_writes_nothing)
{
    stet_store  *s = open_ok(test_path("late.db"));
    stet_outcome out = { 0 };
    stet_tx     *tx, *second;
    stet_value   value;

    CHECK_OK(s->ops->tx_begin(s, 60000, &tx));
    /* Nobody else gets it meanwhile. */
    CHECK_CODE(s->ops->tx_begin(s, 1, &second), STET_EBUSY);
    CHECK_INT(lent_exec(tx, "CREATE TABLE mine(id INTEGER PRIMARY KEY);INSERT INTO mine VALUES(1)"),
              SQLITE_OK);
    CHECK(lent_exec(tx, "INSERT OR ROLLBACK INTO mine VALUES(1)") != SQLITE_OK);
    CHECK_CODE(s->ops->tx_commit(s, tx, &lent_unit, &out), STET_ERETRY);
    CHECK_HAS(stet_last_error(), "rolled its transaction back");
    CHECK_OK(s->ops->tx_begin(s, 1, &tx));
    while (lent_exec(tx, "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n LIMIT "
                         "100000) SELECT count(*) FROM n") == SQLITE_OK)
        ; /* the limit ends a statement */
    CHECK_CODE(s->ops->tx_commit(s, tx, &lent_unit, &out), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), "longer than its limit");
    CHECK_CODE(s->ops->value(s, "s", stet_text("k"), &value), STET_ENOTFOUND);
    stet__store_close(s);
}

TEST(I4_a_start_inside_a_transaction_needs_one_on_this_file)
{
    stet_store  *s = open_ok(test_path("own.db"));
    stet_outcome out = { 0 };
    stet_conn    conn = { STET_CONN_SQLITE, NULL };
    sqlite3     *db = NULL, *memory = NULL, *other = NULL;

    CHECK_CODE(s->ops->apply_in(s, conn, &lent_unit, &out), STET_EUSAGE);
    conn.kind = 0;
    CHECK_CODE(s->ops->apply_in(s, conn, &lent_unit, &out), STET_EUSAGE);
    CHECK_HAS(stet_last_error(), "give a connection of SQLite");
    conn.kind = STET_CONN_SQLITE;
    CHECK_INT(sqlite3_open(":memory:", &memory), SQLITE_OK);
    conn.handle = memory;
    CHECK_CODE(s->ops->apply_in(s, conn, &lent_unit, &out), STET_EMISMATCH);
    CHECK_HAS(stet_last_error(), "open on no file");
    CHECK_INT(sqlite3_open(test_path("other.db"), &other), SQLITE_OK);
    CHECK_INT(sqlite3_exec(other, "CREATE TABLE t(x); BEGIN", NULL, NULL, NULL), SQLITE_OK);
    conn.handle = other;
    CHECK_CODE(s->ops->apply_in(s, conn, &lent_unit, &out), STET_EMISMATCH);
    CHECK_HAS(stet_last_error(), "other.db, not on");
    CHECK_INT(sqlite3_open(test_path("own.db"), &db), SQLITE_OK);
    conn.handle = db;
    CHECK_CODE(s->ops->apply_in(s, conn, &lent_unit, &out), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "no transaction has begun");
    CHECK_INT(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    CHECK_OK(s->ops->apply_in(s, conn, &lent_unit, &out));
    CHECK_INT(out.result, STET_OK);
    CHECK_INT(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    sqlite3_close(memory);
    sqlite3_close(other);
    stet__store_close(s);
}

/* ---- damage -------------------------------------------------------------------------------- */

static void
damage_sql(const char *name, const char *sql)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open(test_path(name), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000); /* the thread of the log may be at it */
    CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

TEST(G2_a_store_without_its_own_name_is_damaged)
{
    CHECK_OK(open_code(test_path("a.db")));
    damage_sql("a.db", "UPDATE meta SET v=x'0102'");
    CHECK_CODE(open_code(test_path("a.db")), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "meta is damaged");
    damage_sql("a.db", "DELETE FROM meta");
    CHECK_CODE(open_code(test_path("a.db")), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "meta is damaged");
}

TEST(G7_an_empty_file_of_another_application_is_left_alone)
{
    damage_sql("b.db", "PRAGMA application_id=7");
    CHECK_CODE(open_code(test_path("b.db")), STET_ENOTDB);
    CHECK_HAS(stet_last_error(), "something else");
}

/* ---- a system without locks ---------------------------------------------------------------- */

static stet__platform_ops lockless_ops;
static int                lockless_left;

static int
lockless_mutex(stet__platform *p, stet__mutex *m)
{
    return lockless_left-- == 0 ? stet__fail(STET_ENOMEM, "no more locks")
                                : stet__platform_real()->ops->mutex_init(p, m);
}

static int
lockless_cond(stet__platform *p, stet__cond *c)
{
    return lockless_left-- == 0 ? stet__fail(STET_ENOMEM, "no more locks")
                                : stet__platform_real()->ops->cond_init(p, c);
}

TEST(G1_a_store_for_which_the_system_has_no_locks_is_not_opened)
{
    stet__platform p = *stet__platform_real();
    stet_store    *s = NULL;
    int            n = 0;

    lockless_ops = *p.ops;
    lockless_ops.mutex_init = lockless_mutex;
    lockless_ops.cond_init = lockless_cond;
    p.ops = &lockless_ops;
    for (;; n++) {
        lockless_left = n;
        if (stet__store_open(&s, &p, test_path("locks.db")) == STET_OK)
            break;
        CHECK(s == NULL);
    }
    CHECK(n > 5); /* so many it needs at least */
    stet__store_close(s);
    CHECK_OK(open_code(test_path("locks.db")));
}

/* ---- answers that are damaged -------------------------------------------------------------- */

enum { RECALL_UNITS = 4 };

/* One that is refused, one that makes a run and gets it, one that gets another, a plain one. */
typedef struct recall {
    stet_claimer claimer;
    stet_run_row rows[2];
    stet_cond    cond, claim;
    stet_op      ops[RECALL_UNITS][2];
    stet_unit    units[RECALL_UNITS];
} recall;

static void
recall_begin(recall *r, uint64_t session)
{
    static const char *const handlers[] = { "a.one" };

    memset(r, 0, sizeof *r);
    r->claimer = (stet_claimer){ session, 2, handlers, 1 };
    for (int i = 0; i < 2; i++)
        r->rows[i] = (stet_run_row){ .id = stet__id_make(1700000000000 + i, (uint8_t[10]){ 1 }),
                                     .handler = "a.one",
                                     .status = 1,
                                     .due_ms = 5,
                                     .ended_ms = STET_NEVER };
    r->cond =
        (stet_cond){ .kind = STET_COND_VALUE, .space = "s", .key = stet_text("none"), .number = 7 };
    r->claim = (stet_cond){
        .kind = STET_COND_CLAIM, .run = r->rows[0].id, .session = session, .epoch = 1
    };
    r->ops[0][0] = lent_op;
    r->ops[1][0] = (stet_op){
        .kind = STET_OP_RUN_PUT, .row = &r->rows[0], .run = r->rows[0].id, .claimer = &r->claimer
    };
    r->ops[1][1] = (stet_op){ .kind = STET_OP_RUN_PUT, .row = &r->rows[1], .run = r->rows[1].id };
    r->ops[2][0] = (stet_op){ .kind = STET_OP_CLAIM_DUE, .count = 5, .claimer = &r->claimer };
    r->ops[3][0] =
        (stet_op){ .kind = STET_OP_INBOX, .run = r->rows[0].id, .data = stet_text("letter") };
    for (size_t i = 0; i < RECALL_UNITS; i++)
        r->units[i] = (stet_unit){ .seq = 3 * i + 2, .ops = r->ops[i], .n_ops = i == 1 ? 2 : 1 };
    r->units[0].conds = &r->cond;
    r->units[0].n_conds = 1;
    r->units[3].conds = &r->claim;
    r->units[3].n_conds = 1;
}

static void
recall_free(stet_store *s, stet_outcome *outs)
{
    for (size_t i = 0; i < RECALL_UNITS; i++)
        stet__free(s->alloc, outs[i].grants);
    memset(outs, 0, RECALL_UNITS * sizeof *outs);
}

/* A commit that comes again gets its old answers, or is told that they are damaged. */
TEST(F6_old_answers_that_are_cut_are_damage)
{
    static recall r;
    stet_outcome  outs[RECALL_UNITS] = { { 0 } }, again[RECALL_UNITS] = { { 0 } };
    stet_store   *s = open_ok(test_path("recall.db"));
    int           cut, damaged = 0;
    uint64_t      session;
    char          sql[160];

    CHECK_OK(s->ops->session_open(s, &session, (stet_id){ { 1 } }, 600000, stet_text("i")));
    recall_begin(&r, session);
    CHECK_OK(s->ops->commit(s, r.units, RECALL_UNITS, outs));
    CHECK_INT(outs[0].result, STET_ECONFLICT);
    CHECK_INT(outs[1].n_grants, 1);
    CHECK_INT(outs[2].n_grants, 1);
    CHECK_INT(outs[3].inbox, 1);
    damage_sql("recall.db", "CREATE TABLE saved AS SELECT outcomes AS o FROM committers");
    for (cut = 1; cut < 100; cut++) {
        int err;

        (void)snprintf(sql, sizeof sql,
                       "UPDATE committers SET outcomes=(SELECT substr(o,1,%d) FROM saved)", cut);
        damage_sql("recall.db", sql);
        err = s->ops->commit(s, r.units, RECALL_UNITS, again);
        CHECK(err == STET_OK || err == STET_ECORRUPT);
        damaged += err == STET_ECORRUPT;
        for (size_t i = 0; i < RECALL_UNITS && err == STET_OK; i++) {
            CHECK(again[i].is_repeat);
            CHECK(again[i].result == outs[i].result || again[i].result == STET_EINVAL);
            if (again[i].result != STET_EINVAL) {
                CHECK_INT(again[i].n_grants, outs[i].n_grants);
                CHECK_INT(again[i].inbox, outs[i].inbox);
            }
        }
        recall_free(s, again);
    }
    CHECK(damaged > 5);
    /* Whatever a byte has become: an answer or damage, and nothing beyond the record is read. */
    for (cut = 1; cut <= 60; cut++) {
        (void)snprintf(sql, sizeof sql,
                       "UPDATE committers SET outcomes=(SELECT substr(o,1,%d)||x'ff'||"
                       "substr(o,%d) FROM saved)",
                       cut - 1, cut + 1);
        damage_sql("recall.db", sql);
        CHECK_CODE(s->ops->ping(s), STET_OK);
        if (s->ops->commit(s, r.units, RECALL_UNITS, again) == STET_OK)
            for (size_t i = 0; i < RECALL_UNITS; i++)
                CHECK(again[i].is_repeat);
        recall_free(s, again);
    }
    recall_free(s, outs);
    stet__store_close(s);
}
