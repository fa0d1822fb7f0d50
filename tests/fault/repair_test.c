/* A repair while things go wrong: a file that lost its projections, or holds wrong ones, is rebuilt
 * while each call of the store, then each allocation, fails once. The repair works or says so;
 * nothing is leaked; the next one, when all is well, finishes it, and everything is as it was. Rows
 * F2, I2.
 *
 *   STET_FAULT_STRIDE=N  every Nth round only
 *   STET_FAULT_THIN=N    only every Nth of the rounds there would be
 *   STET_FAULT_AT=N      only the round in which the Nth call or allocation fails
 */
#include "lost.h"

#ifdef STET_WITH_SQLITE

#include <unistd.h>

#include "engine/engine.h"
#include "fault_platform.h"
#include "testkit/shim_store.h"

/* Tables are gone; rows that are there say something else. */
#define ALL_LOST "DROP TABLE runs; DROP TABLE timers; DROP TABLE values_"
#define ALL_WRONG                                                                                  \
    "DELETE FROM timers; UPDATE runs SET attempt=77;"                                              \
    "UPDATE values_ SET data=x'00' WHERE space<>'cleared';"                                        \
    "DELETE FROM values_ WHERE rev%2=0; UPDATE runs SET status=1 WHERE terminal=0"

static void
repair_copy(const char *from, const char *to)
{
    static const char *const beside[] = { "", "-live", "-wal", "-shm" };
    char                     path[1024], block[65536];
    FILE                    *in, *out;
    size_t                   n;

    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", to, beside[i]);
        (void)unlink(path);
        if (i > 1)
            continue; /* the last to close it emptied the log */
        CHECK((out = fopen(path, "wb")) != NULL);
        (void)snprintf(path, sizeof path, "%s%s", from, beside[i]);
        CHECK((in = fopen(path, "rb")) != NULL);
        while ((n = fread(block, 1, sizeof block, in)) > 0)
            CHECK(fwrite(block, 1, n, out) == n);
        (void)fclose(in);
        CHECK_INT(fclose(out), 0);
    }
}

static int
repair_count(void *arg, const stet_finding *finding)
{
    ++*(int *)arg;
    CHECK(finding->text[0] != '\0');
    return STET_OK;
}

/* One repair, opened and closed; the code of whatever failed first. */
static int
repair_once(const char *path, fault_platform *p, shim_script *script, bool is_dry, int *n)
{
    stet_store  *store = NULL;
    stet_engine *e = NULL;
    char         url[1024];
    int          err;

    (void)snprintf(url, sizeof url, "%s?repair=1", path);
    if ((err = stet__store_open(&store, &p->base, url)) != STET_OK)
        return err;
    if (script != NULL && (err = stet__shim_store_new(&store, store, script)) != STET_OK)
        return err;
    if ((err = stet__open_on(&e, &p->base, store, url, STET_OPTIONS(.log_level = STET_LOG_OFF))) !=
        STET_OK)
        return err;
    err = is_dry ? stet_verify(e, NULL, repair_count, n) : stet_repair(e, NULL, repair_count, n);
    stet_close(e);
    return err;
}

typedef struct repair_world {
    fixture    *f;
    lost_story  story;
    char       *before;
    const char *copy;
    bool        is_dry;   /* verify: it looks and changes nothing */
    int         findings; /* verify: of the first round; -1: not known yet */
} repair_world;

static void
repair_begin(repair_world *w, const char *sql)
{
    CHECK_INT(setenv("STET_TEST_STORE", "sqlite", 1), 0);
    w->f = fixture_begin();
    lost_fill(w->f, &w->story);
    w->before = lost_text(w->f->url);
    w->copy = strdup(test_path("copy.db"));
    lost_sql(w->f->url, sql);
}

/* Without faults it becomes what it was; then everything goes on. */
static void
repair_end(repair_world *w)
{
    repair_copy(w->copy, w->f->url);
    lost_goes_on(w->f, &w->story);
    free(w->before);
    free((void *)(uintptr_t)w->copy);
    fixture_end(w->f);
}

static void
repair_finish(repair_world *w, const char *round)
{
    int   findings, repaired;
    char *after;

    lost_repair(w->copy, &findings, &repaired);
    if (repaired != findings)
        test_fail(__FILE__, __LINE__, "%s: %d of %d repaired", round, repaired, findings);
    after = lost_text(w->copy);
    if (strcmp(after, w->before) != 0)
        test_note("%s", round);
    CHECK_STR(after, w->before);
    free(after);
}

/* True: the fault came. */
static bool
repair_round(repair_world *w, bool is_store, long at)
{
    fault_platform p;
    shim_script    script = { .mode = SHIM_ERROR, .at = (uint64_t)at, .code = STET_EIO };
    char           round[96];
    bool           is_hit;
    int            err, n = 0;

    (void)snprintf(round, sizeof round, "%s %ld fails", is_store ? "store call" : "allocation",
                   at);
    repair_copy(w->f->url, w->copy);
    fault_platform_init(&p);
    p.base.alloc.is_tight = true;
    if (!is_store)
        fault_platform_arm(&p, at - 1, 1);
    err = repair_once(w->copy, &p, is_store ? &script : NULL, w->is_dry, &n);
    is_hit = is_store ? script.is_hit : atomic_load(&p.failed) > 0;
    fault_platform_disarm(&p);
    if (err != STET_OK && (!is_hit || err != (is_store ? STET_EIO : STET_ENOMEM)))
        test_fail(__FILE__, __LINE__, "%s: %s: %s", round, stet_code_name(err), stet_last_error());
    if (atomic_load(&p.live) != 0)
        test_fail(__FILE__, __LINE__, "%s: %ld pieces of memory were not given back", round,
                  atomic_load(&p.live));
    if (!w->is_dry)
        repair_finish(w, round);
    else if (err == STET_OK && w->findings >= 0 && n != w->findings)
        test_fail(__FILE__, __LINE__, "%s: %d findings instead of %d", round, n, w->findings);
    if (w->findings < 0)
        w->findings = n;
    return is_hit;
}

static void
repair_rounds(const char *sql, bool is_store, bool is_dry, long stride)
{
    repair_world w = { .is_dry = is_dry, .findings = -1 };
    long         only = test_number("STET_FAULT_AT", -1), rounds = 0;
    bool         is_hit;

    stride = test_number("STET_FAULT_STRIDE", stride) * test_number("STET_FAULT_THIN", 1);
    repair_begin(&w, sql);
    if (is_dry)
        CHECK(!repair_round(&w, is_store, 1000000) && w.findings > 20);
    for (long at = only > 0 ? only : 1;; at += stride) {
        is_hit = repair_round(&w, is_store, at);
        rounds++;
        if (!is_hit || only > 0)
            break;
    }
    test_note("%ld rounds", rounds);
    if (is_dry)
        repair_finish(&w, "at the end");
    repair_end(&w);
}

TEST_LIMIT(F2_a_repair_whose_store_calls_fail_can_be_repeated, 240)
{
    repair_rounds(ALL_LOST, true, false, 3);
}

TEST_LIMIT(F2_a_repair_without_memory_can_be_repeated, 240)
{
    repair_rounds(ALL_LOST, false, false, 17);
}

TEST_LIMIT(I2_a_repair_of_wrong_rows_whose_store_calls_fail_can_be_repeated, 240)
{
    repair_rounds(ALL_WRONG, true, false, 3);
}

TEST_LIMIT(I2_a_repair_of_wrong_rows_without_memory_can_be_repeated, 240)
{
    repair_rounds(ALL_WRONG, false, false, 17);
}

TEST_LIMIT(I2_a_verify_whose_store_calls_fail_says_so, 240)
{
    repair_rounds(ALL_WRONG, true, true, 1);
}

TEST_LIMIT(I2_a_verify_without_memory_says_so, 240)
{
    repair_rounds(ALL_WRONG, false, true, 3);
}

#endif
