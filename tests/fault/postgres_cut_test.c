/* PostgreSQL with the connection cut at each request in turn: an engine (see cuts.h), a store by
 * itself, and the making of a schema. */
#include <libpq-fe.h>
#include <unistd.h>

#include "cuts.h"
#include "fixture.h"
#include "store/store.h"
#include "store_life.h"
#include "test.h"

enum { OPEN_REQUESTS_MAX = 200, STORE_REQUESTS_MAX = 400 };

__attribute__((constructor)) static void
cut_server(void)
{
    test_before(cluster_share);
}

/* One schema for all lives: making one is slow, and has tests of its own. */
static const char *
cut_url(cuts *c, size_t n)
{
    char schema[32];

    (void)n;
    (void)snprintf(schema, sizeof schema, "cut_%s", test_unique());
    return proxy_url(c->proxy, schema, "");
}

/* ---- a store by itself ----------------------------------------------------------------------- */

static bool
store_is_cut(int code)
{
    return code == STET_EIO || code == STET_EUNCERTAIN;
}

/* At each request in turn, until none is left; thinned as the engine's lives are. */
static void
store_everywhere(proxy_fault fault)
{
    proxy *p = proxy_new();
    char   url[256], clean[512], schema[32], where[64];
    size_t n = 0, cut = 0, step = cuts_stride(9) / 9 + (cuts_stride(9) < 9);
    bool   was_cut;

    (void)snprintf(schema, sizeof schema, "bare_%s", test_unique());
    (void)snprintf(url, sizeof url, "%s", proxy_url(p, schema, ""));
    (void)snprintf(clean, sizeof clean, "%s", cluster_url(schema));
    do {
        store_life l = { .platform = stet__platform_real(), .url = url, .clean = clean,
                         .n = (uint32_t)n, .where = where, .is_expected = store_is_cut };

        (void)snprintf(where, sizeof where, "cut %s request %zu",
                       fault == PROXY_LOSE_REQUEST ? "before" : "after", n);
        if (n > 0) /* the first life makes the schema, which has tests of its own */
            proxy_fault_at(p, fault, NULL, n);
        store_life_live(&l);
        was_cut = n == 0 || !proxy_calm(p);
        n += n == 0 ? 1 : step;
        cut += was_cut;
    } while (was_cut && n < STORE_REQUESTS_MAX);
    CHECK(n > 30 && n < STORE_REQUESTS_MAX);
    test_note("cut at %zu requests", cut - 1);
    proxy_free(p);
}

TEST_LIMIT(F6_postgres_a_store_whose_connection_is_cut_before_each_request, 300)
{
    store_everywhere(PROXY_LOSE_REQUEST);
}

TEST_LIMIT(F6_postgres_a_store_whose_connection_is_cut_before_each_answer, 300)
{
    store_everywhere(PROXY_LOSE_ANSWER);
}

/* ---- transactions ---------------------------------------------------------------------------- */

/* $$ is the schema of this test. The key is a parameter, so that the statement is called the same
 * in every life. */
static bool
bank_do(PGconn *db, const char *sql, const char *key, int *answer)
{
    const char    *at = strstr(sql, "$$");
    char           text[128];
    PGresult      *res;
    ExecStatusType status;

    if (at != NULL)
        (void)snprintf(text, sizeof text, "%.*sbank_%s%s", (int)(at - sql), sql, test_unique(),
                       at + 2);
    res = PQexecParams(db, at != NULL ? text : sql, key != NULL, NULL, &key, NULL, NULL, 0);
    status = PQresultStatus(res);

    if (status == PGRES_TUPLES_OK && answer != NULL)
        *answer = (int)strtol(PQgetvalue(res, 0, 0), NULL, 10);
    PQclear(res);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* Not by way of the proxy. */
static PGconn *
bank_open(void)
{
    const char *url = cluster_url("x");
    char        own[512];
    PGconn     *db;

    (void)snprintf(own, sizeof own, "%.*s", (int)(strstr(url, "&schema=") - url), url);
    db = PQconnectdb(own);
    CHECK(PQstatus(db) == CONNECTION_OK);
    return db;
}

static void
bank_make(void)
{
    PGconn *db = bank_open();

    CHECK(bank_do(db, "CREATE SCHEMA $$", NULL, NULL) &&
          bank_do(db, "CREATE TABLE $$.paid(key text)", NULL, NULL) &&
          bank_do(db, "CREATE TABLE $$.asked(key text)", NULL, NULL));
    PQfinish(db);
}

static void
bank_drop(void)
{
    PGconn *db = bank_open();

    CHECK(bank_do(db, "DROP SCHEMA $$ CASCADE", NULL, NULL));
    PQfinish(db);
}

static int
bank_pay(stet_attempt *a, void *key)
{
    PGconn *db = stet_attempt_postgres(a);

    if (!bank_do(db, "INSERT INTO $$.paid VALUES($1)", key, NULL))
        return stet_attempt_fail(a, STET_ERETRY, "%s", PQerrorMessage(db));
    return STET_OK;
}

/* The row and the run are there together, or neither: if the answer to COMMIT is lost the key tells
 * whether they are. */
static int
bank_start_in(cuts *c, stet_engine *e, const char *key)
{
    char    url[128], idempotency[64];
    bool    existed = false;
    PGconn *db;
    int     err = STET_EIO;

    (void)snprintf(url, sizeof url, "postgres://%s@127.0.0.1:%d/postgres?sslmode=disable",
                   CLUSTER_USER, proxy_port(c->proxy));
    (void)snprintf(idempotency, sizeof idempotency, "%s inside", key);
    db = PQconnectdb(url);
    if (PQstatus(db) == CONNECTION_OK && bank_do(db, "BEGIN", NULL, NULL)) {
        err = stet_start_in(e, stet_conn_postgres(db), NULL, "cut.inside", stet_text(key),
                            STET_START(.idempotency_key = idempotency, .existed = &existed));
        if (err == STET_OK && !existed &&
            !bank_do(db, "INSERT INTO $$.asked VALUES($1)", key, NULL))
            err = STET_EIO;
        if (err == STET_OK && !bank_do(db, "COMMIT", NULL, NULL))
            err = STET_EIO;
    }
    PQfinish(db);
    if (err == STET_OK)
        stet_engine_nudge(e);
    return err;
}

static void
bank_count(cuts *c, const char *key, int *paid, int *asked)
{
    PGconn *db = bank_open();

    (void)c;
    CHECK(bank_do(db, "SELECT count(*) FROM $$.paid WHERE key=$1", key, paid) &&
          bank_do(db, "SELECT count(*) FROM $$.asked WHERE key=$1", key, asked));
    PQfinish(db);
}

/* ---- an engine ------------------------------------------------------------------------------- */

static void
cut_everywhere(proxy_fault fault)
{
    cuts c = { .proxy = proxy_new(),
               .url = cut_url,
               .stride = cuts_stride(9),
               .pay = bank_pay,
               .start_in = bank_start_in,
               .count = bank_count };

    bank_make();
    cuts_everywhere(&c, fault);
    bank_drop();
    proxy_free(c.proxy);
}

TEST_LIMIT(F6_postgres_an_engine_whose_connection_is_cut_before_each_request, 900)
{
    cut_everywhere(PROXY_LOSE_REQUEST);
}

TEST_LIMIT(F6_postgres_an_engine_whose_connection_is_cut_before_each_answer, 900)
{
    cut_everywhere(PROXY_LOSE_ANSWER);
}

/* ---- a schema that is being made ------------------------------------------------------------- */

/* Again until it is answered. */
static bool
open_is_cut(int err, int64_t until_ms, size_t n)
{
    if (err == STET_OK)
        return false;
    if ((err != STET_EIO && err != STET_EUNCERTAIN) || fixture_mono_ms() > until_ms)
        test_fail(__FILE__, __LINE__, "cut at request %zu: %s: %s", n, stet_code_name(err),
                  stet_last_error());
    fixture_breathe();
    return true;
}

/* Opened, used and looked at by somebody else. */
static void
open_live(proxy *p, size_t n)
{
    stet_op op = {
        .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"), .data = stet_text("v")
    };
    stet_unit    unit = { .seq = 1, .ops = &op, .n_ops = 1 };
    stet_outcome out;
    stet_value   value;
    stet_store  *s;
    char         schema[32];
    int64_t      until_ms = fixture_mono_ms() + fixture_patience_ms();

    (void)snprintf(schema, sizeof schema, "made_%s_%zu", test_unique(), n);
    while (open_is_cut(stet__store_open(&s, stet__platform_real(), proxy_url(p, schema, "")),
                       until_ms, n))
        continue;
    while (open_is_cut(s->ops->commit(s, &unit, 1, &out), until_ms, n))
        continue;
    CHECK_INT(out.result, STET_OK);
    stet__store_close(s);
    CHECK_OK(stet__store_open(&s, stet__platform_real(), cluster_url(schema)));
    CHECK_OK(s->ops->value(s, "s", stet_text("k"), &value));
    CHECK_INT(value.version, 1);
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    stet__store_close(s);
}

static void
open_everywhere(proxy_fault fault)
{
    proxy *p = proxy_new();
    size_t n = 0;

    do {
        proxy_fault_at(p, fault, NULL, ++n);
        open_live(p, (size_t)fault * OPEN_REQUESTS_MAX + n);
    } while (!proxy_calm(p) && n < OPEN_REQUESTS_MAX);
    CHECK(n > 10 && n < OPEN_REQUESTS_MAX);
    test_note("cut at %zu requests", n - 1);
    proxy_free(p);
}

TEST_LIMIT(F6_postgres_a_schema_is_made_although_it_is_cut_before_each_request, 120)
{
    open_everywhere(PROXY_LOSE_REQUEST);
}

TEST_LIMIT(F6_postgres_a_schema_is_made_although_it_is_cut_before_each_answer, 120)
{
    open_everywhere(PROXY_LOSE_ANSWER);
}
