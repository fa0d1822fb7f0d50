/* PostgreSQL with the connection cut at each request in turn: an engine (see cuts.h), and the
 * making of a schema. */
#include <unistd.h>

#include "cuts.h"
#include "fixture.h"
#include "store/store.h"
#include "test.h"

enum { OPEN_PATIENCE_MS = 30000, OPEN_REQUESTS_MAX = 200 };

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

static void
cut_everywhere(proxy_fault fault)
{
    cuts c = { .proxy = proxy_new(), .url = cut_url, .stride = cuts_stride(9) };

    cuts_everywhere(&c, fault);
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
    int64_t      until_ms = fixture_mono_ms() + OPEN_PATIENCE_MS;

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
