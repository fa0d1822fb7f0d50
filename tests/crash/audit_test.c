/* The audit hook in a process that is killed before and after each write of its store, or loses the
 * reply of a commit (H6). Retention is a millisecond: what is removed was told, or the file outside
 * would lack it for ever.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stet.h>

#include "engine/engine.h"
#include "test.h"
#include "testkit/shim_store.h"

enum { RUNS = 2, IDS_MAX = 512 };

static void
die(void *arg)
{
    (void)arg;
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

/* ---- a life ---------------------------------------------------------------------------------- */

static int
body(stet_attempt *a, void *arg)
{
    (void)arg;
    return stet_attempt_return(a, stet_text("1"));
}

static int
steps(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "one", body, NULL, NULL));
    STET_TRY(stet_sleep(ctx, "nap", "5ms"));
    STET_TRY(stet_step(ctx, NULL, "two", body, NULL, NULL));
    return stet_return(ctx, input);
}

static const stet_handler handlers[] = { { "steps", steps, NULL }, { 0 } };

static void
no_log(void *arg, const stet_log_record *record)
{
    (void)arg;
    (void)record;
}

static int
keep(void *fd, const stet_audit_entry *a)
{
    char line[128];
    int  len = snprintf(line, sizeof line, "%s %s\n", a->id, a->kind);

    CHECK_INT(write(*(int *)fd, line, (size_t)len), len);
    return STET_OK;
}

static int
count_run(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(size_t *)arg;
    return STET_OK;
}

/* Start some runs and go when all runs there are were removed. */
static void
live(const char *db, shim_script *script, bool starts)
{
    stet_store  *real, *store;
    stet_engine *e;
    stet_run_id  run;
    size_t       n = 1;
    int          fd = open(test_path("mirror"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    int64_t      until_ms;

    CHECK(fd >= 0);
    CHECK_OK(stet__store_open(&real, stet__platform_real(), db));
    CHECK_OK(stet__shim_store_new(&store, real, script));
    CHECK_OK(stet__open_on(&e, stet__platform_real(), store, db,
                           STET_OPTIONS(.concurrency = 2, .lease_ms = 600000, .renew_ms = 30,
                                        .sweep_ms = 10, .poll_ms = 50, .retention_ms = 1,
                                        .audit = keep, .audit_arg = &fd, .log = no_log)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    for (int i = 0; starts && i < RUNS; i++)
        CHECK_OK(stet_start(e, &run, "t.steps", stet_text("1"), NULL));
    until_ms = stet__mono_ms(stet__platform_real()) + INT64_C(60000) * test_slow();
    while (n > 0) {
        n = 0;
        CHECK_OK(stet_run_list(e, NULL, count_run, &n));
        CHECK(stet__mono_ms(stet__platform_real()) < until_ms);
        (void)poll(NULL, 0, 1);
    }
    stet_close(e);
    close(fd);
}

static int
fork_life(const char *db, shim_script *script, bool starts)
{
    pid_t child;
    int   status = 0;

    fflush(NULL);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        live(db, script, starts);
        _exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    return status;
}

/* ---- what stands outside --------------------------------------------------------------------- */

typedef struct told {
    char run[STET_ID_TEXT_MAX];
    long next;     /* the revision that has to come */
    bool may_skip; /* what came from outside was told: the fact that took it is no entry */
    bool is_ended;
} told;

typedef struct file {
    told   runs[IDS_MAX];
    size_t n;
    char   ids[IDS_MAX][128];
    size_t n_ids, repeats;
} file;

static bool
file_is_repeat(file *f, const char *id)
{
    for (size_t i = 0; i < f->n_ids; i++)
        if (strcmp(f->ids[i], id) == 0)
            return true;
    CHECK(f->n_ids < IDS_MAX);
    (void)snprintf(f->ids[f->n_ids++], sizeof f->ids[0], "%s", id);
    return false;
}

static told *
file_run(file *f, const char *id, size_t len)
{
    for (size_t i = 0; i < f->n; i++)
        if (strncmp(f->runs[i].run, id, len) == 0 && f->runs[i].run[len] == '\0')
            return &f->runs[i];
    CHECK(f->n < IDS_MAX);
    (void)snprintf(f->runs[f->n].run, sizeof f->runs[0].run, "%.*s", (int)len, id);
    f->runs[f->n].next = 1;
    return &f->runs[f->n++];
}

/* Each run from its first entry to its end, in order, nothing left out. */
static size_t
file_check(const char *where)
{
    static file f;
    FILE       *in = fopen(test_path("mirror"), "rb");
    char        line[128];

    memset(&f, 0, sizeof f);
    CHECK(in != NULL);
    while (fgets(line, sizeof line, in) != NULL) {
        char *kind = strchr(line, ' '), *place = strchr(line, '/');
        told *run;
        long  revision;

        CHECK(kind != NULL && place != NULL);
        *kind++ = '\0';
        if (file_is_repeat(&f, line)) {
            f.repeats++;
            continue;
        }
        run = file_run(&f, line, (size_t)(place - line));
        if (strncmp(place, "/in.", 4) == 0) {
            run->may_skip = true;
            continue;
        }
        revision = strtol(place + 1, NULL, 10);
        if (run->is_ended ||
            (revision != run->next && !(run->may_skip && revision == run->next + 1)))
            test_fail(__FILE__, __LINE__, "%s: entry %s came, expected %ld", where, line,
                      run->next);
        run->may_skip = false;
        run->next = revision + 1;
        run->is_ended = strncmp(kind, "completed", 9) == 0;
    }
    fclose(in);
    for (size_t i = 0; i < f.n; i++)
        if (!f.runs[i].is_ended)
            test_fail(__FILE__, __LINE__,
                      "%s: %s is gone, and its entries from %ld on were not "
                      "told",
                      where, f.runs[i].run, f.runs[i].next);
    CHECK(f.n >= 1);
    return f.repeats;
}

/* ---- everywhere ------------------------------------------------------------------------------ */

static void
fresh(const char *db)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-live" };
    char                     path[700];

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", db, suffixes[i]);
        (void)unlink(path);
    }
    (void)unlink(test_path("mirror"));
}

TEST_LIMIT(H6_no_entry_is_lost_wherever_the_process_is_killed, 300)
{
    static const shim_mode modes[] = { SHIM_BEFORE, SHIM_AFTER, SHIM_LOSE };
    shim_script           *script =
        mmap(NULL, sizeof *script, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char   db[600], where[64];
    size_t points = 0, repeats = 0;
    bool   is_hit = true;

    CHECK(script != MAP_FAILED);
    (void)snprintf(db, sizeof db, "%s", test_path("audit.db"));
    for (uint64_t at = 1; is_hit; at++) {
        is_hit = false;
        for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
            int  status;
            bool was_hit;

            (void)snprintf(where, sizeof where, "%s write %llu", stet__shim_mode_name(modes[i]),
                           (unsigned long long)at);
            fresh(db);
            memset(script, 0, sizeof *script);
            script->mode = modes[i];
            script->which = SHIM_WRITES;
            script->at = at;
            script->crash = die;
            status = fork_life(db, script, true);
            was_hit = script->is_hit;
            if (was_hit && modes[i] != SHIM_LOSE ? !WIFSIGNALED(status) : status != 0)
                test_fail(__FILE__, __LINE__, "%s: the process ended with %x", where, status);
            memset(script, 0, sizeof *script);
            if ((status = fork_life(db, script, true)) != 0)
                test_fail(__FILE__, __LINE__, "%s: the recovery ended with %x", where, status);
            repeats += file_check(where);
            points += was_hit;
            is_hit = is_hit || (was_hit && modes[i] != SHIM_LOSE);
        }
    }
    CHECK(points > 12); /* how many units share a commit is up to the machine */
    test_note("%zu points, %zu entries were told again", points, repeats);
    CHECK_INT(munmap(script, sizeof *script), 0);
}
