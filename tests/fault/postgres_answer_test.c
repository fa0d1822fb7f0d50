/* PostgreSQL that refuses, answers nonsense, or meets a process without memory: whatever happens to
 * one call, the same handle works again, and every unit is applied once. */
#include <unistd.h>

#include "fault_platform.h"
#include "proxy.h"
#include "store/postgres.h"
#include "store_life.h"
#include "test.h"

enum { MEMORY_MAX = 5000 };

__attribute__((constructor)) static void
answer_server(void)
{
    test_before(cluster_share);
}

static const char *
answer_schema(void)
{
    static char schema[32];

    (void)snprintf(schema, sizeof schema, "a_%s", test_unique());
    return schema;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* An error as the server tells it, and that it is ready again. */
static size_t
answer_error(uint8_t *out, const char *state)
{
    char  *text = (char *)out + 5;
    size_t n = 5;

    if (state != NULL)
        n += (size_t)snprintf(text, 64, "SERROR%cC%s%cMmade up by a test", 0, state, 0) + 1;
    out[n++] = '\0';
    out[0] = 'E';
    out[1] = out[2] = out[3] = 0;
    out[4] = (uint8_t)(n - 1);
    memcpy(out + n, "Z\0\0\0\5I", 6);
    return n + 6;
}

static bool
answer_is_short(const char *kind)
{
    static char names[2][16];

    (void)snprintf(names[0], sizeof names[0], "stet%d", (int)PG_SQL_COMMIT);
    (void)snprintf(names[1], sizeof names[1], "stet%d", (int)PG_SQL_RUN_GET);
    return strcmp(kind, names[0]) == 0 || strcmp(kind, names[1]) == 0 ||
           strncmp(kind, "BEGIN", 5) == 0;
}

/* The answer to the first request of each kind; or only to commits, looks at one run and the begin
 * of a transaction. */
static void
answer_everywhere(const uint8_t *answer, size_t len, const char *what, bool is_short,
                  bool has_prepare)
{
    static uint32_t   lives;
    static proxy_kind kinds[PROXY_KINDS_MAX];
    char              url[256], clean[256], where[160];
    proxy            *p = proxy_new();
    store_life        l = { .platform = stet__platform_real(), .url = url, .clean = clean,
                            .where = where };
    size_t            n_kinds, hits = 0;

    (void)snprintf(url, sizeof url, "%s", proxy_url(p, answer_schema(), ""));
    (void)snprintf(clean, sizeof clean, "%s", cluster_url(answer_schema()));
    (void)snprintf(where, sizeof where, "as it should be");
    for (int i = 0; i < 2; i++) { /* the first makes the schema */
        (void)proxy_census(p, kinds);
        l.n = ++lives;
        store_life_live(&l);
        CHECK_INT(l.failures, 0);
    }
    n_kinds = proxy_census(p, kinds);
    for (size_t k = 0; k < n_kinds; k++) {
        if (strcmp(kinds[k].name, "connect") == 0 ||
            (!has_prepare && strncmp(kinds[k].name, "prepare", 7) == 0) ||
            (is_short && !answer_is_short(kinds[k].name)))
            continue;
        (void)snprintf(where, sizeof where, "%s to \"%.47s\"", what, kinds[k].name);
        proxy_answer(p, answer, len);
        proxy_fault_at(p, PROXY_ANSWER, kinds[k].name, 1);
        l.n = ++lives;
        store_life_live(&l);
        hits += !proxy_calm(p);
    }
    CHECK(is_short ? hits == 3 : hits > 20);
    proxy_free(p);
}

TEST_LIMIT(G3_postgres_every_statement_is_refused_once, 120)
{
    uint8_t answer[256];

    answer_everywhere(answer, answer_error(answer, "53200"), "out of memory", false, true);
}

TEST_LIMIT(G3_postgres_statements_are_refused_for_every_reason, 120)
{
    static const char *const states[] = { "53100", "42501", "25006", "40001", "40P01", "55P03",
                                          "57014", "XX000", "42P01", "22P02", "23505", "54000",
                                          "3F000", "42883", NULL };
    uint8_t answer[256];

    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        answer_everywhere(answer, answer_error(answer, states[i]),
                          states[i] != NULL ? states[i] : "an error without words", true, true);
}

TEST_LIMIT(G3_postgres_every_statement_finds_nothing_once, 120)
{
    static const uint8_t none[] = "C\0\0\0\15SELECT 0\0Z\0\0\0\5I";

    answer_everywhere(none, sizeof none - 1, "no rows", false, false);
}

/* The tag that PostgreSQL really answers to COMMIT if the transaction had failed: no error, and
 * nothing was written. Any other leaves it open what became of it. */
TEST(I4_postgres_a_commit_that_is_answered_with_another_tag_is_not_believed)
{
    static const struct {
        const char *bytes;
        size_t      len;
        int         open_ends;
    } answers[] = {
        { "C\0\0\0\15ROLLBACK\0Z\0\0\0\5I", 20, 0 },
        { "C\0\0\0\15SELECT 0\0Z\0\0\0\5I", 20, 1 },
        { "C\0\0\0\14COMMITS\0Z\0\0\0\5I", 19, 1 },
    };
    char       url[256], clean[256], where[64];
    proxy     *p = proxy_new();
    store_life l = { .platform = stet__platform_real(), .url = url, .clean = clean,
                     .where = where };

    (void)snprintf(url, sizeof url, "%s", proxy_url(p, answer_schema(), ""));
    (void)snprintf(clean, sizeof clean, "%s", cluster_url(answer_schema()));
    for (uint32_t i = 0; i < 3; i++)
        for (size_t nth = 1; nth <= 2; nth++) { /* the very first one makes the tables */
            (void)snprintf(where, sizeof where, "%.8s", answers[i].bytes + 5);
            proxy_answer(p, answers[i].bytes, answers[i].len);
            proxy_fault_at(p, PROXY_ANSWER, "COMMIT", 1);
            l.n = 2 * i + (uint32_t)nth;
            store_life_live(&l);
            CHECK(!proxy_calm(p));
            CHECK(l.failures > 0);
            CHECK_INT(l.open_ends, i > 0 || nth > 1 ? answers[i].open_ends : 0);
        }
    proxy_free(p);
}

/* A column of the first row becomes empty, wherever the row is. */
static size_t
spoil_column(void *arg, uint8_t *bytes, size_t len)
{
    size_t column = *(size_t *)arg, at = 0, size, cut;

    while (at < len && bytes[at] != 'D')
        at += 1 + ((size_t)bytes[at + 3] << 8 | bytes[at + 4]);
    if (at >= len || column >= ((size_t)bytes[at + 5] << 8 | bytes[at + 6]))
        return len;
    size = (size_t)bytes[at + 2] << 16 | (size_t)bytes[at + 3] << 8 | bytes[at + 4];
    for (cut = at + 7; column > 0; column--)
        cut += 4 + ((size_t)bytes[cut + 2] << 8 | bytes[cut + 3]);
    column = (size_t)bytes[cut + 2] << 8 | bytes[cut + 3]; /* its length */
    size -= column;
    bytes[at + 2] = (uint8_t)(size >> 16);
    bytes[at + 3] = (uint8_t)(size >> 8);
    bytes[at + 4] = (uint8_t)size;
    bytes[cut + 2] = bytes[cut + 3] = 0;
    memmove(bytes + cut + 4, bytes + cut + 4 + column, len - (cut + 4 + column));
    return len - column;
}

TEST(G3_postgres_a_commit_that_is_answered_with_nonsense_is_applied_once)
{
    enum { COLUMNS = 16 };
    char       url[256], clean[256], where[64], name[16];
    proxy     *p = proxy_new();
    store_life l = { .platform = stet__platform_real(), .url = url, .clean = clean,
                     .where = where };
    int        failures = 0;

    (void)snprintf(url, sizeof url, "%s", proxy_url(p, answer_schema(), ""));
    (void)snprintf(clean, sizeof clean, "%s", cluster_url(answer_schema()));
    (void)snprintf(name, sizeof name, "stet%d", (int)PG_SQL_COMMIT);
    for (size_t column = 0; column < COLUMNS; column++) {
        (void)snprintf(where, sizeof where, "column %zu", column);
        proxy_spoil(p, spoil_column, &column);
        proxy_fault_at(p, PROXY_SPOIL, name, 1);
        l.n = (uint32_t)column + 1;
        store_life_live(&l);
        CHECK(!proxy_calm(p));
        failures += l.failures;
    }
    CHECK(failures >= 9); /* so many have to be there */
    proxy_free(p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool
memory_is_expected(int code)
{
    return code == STET_ENOMEM || code == STET_EUNCERTAIN;
}

/* STET_FAULT_STRIDE=1: all of them. */
static long
memory_stride(void)
{
    return test_count("STET_FAULT_STRIDE", 3);
}

TEST_LIMIT(G3_postgres_every_allocation_fails_once, 300)
{
    char           url[256], where[64];
    fault_platform f;
    store_life     l = { .url = url, .where = where, .is_expected = memory_is_expected };
    long           n = 0, failures = 0;
    bool           was_hit = true;

    (void)snprintf(url, sizeof url, "%s", cluster_url(answer_schema()));
    for (n = 0; was_hit && n < MEMORY_MAX; n += memory_stride()) {
        fault_platform_init(&f);
        f.base.alloc.is_tight = true;
        (void)snprintf(where, sizeof where, "allocation %ld", n);
        fault_platform_arm(&f, n, 1);
        l.platform = &f.base;
        l.n = (uint32_t)n + 1;
        store_life_live(&l);
        was_hit = atomic_load(&f.failed) > 0;
        failures += l.failures;
        CHECK_INT(atomic_load(&f.live), 0);
    }
    CHECK(n > 50 && n < MEMORY_MAX && failures * memory_stride() > 150);
    test_note("%ld allocations, every %ld. fails; %ld calls were made again", n,
              memory_stride(), failures);
}
