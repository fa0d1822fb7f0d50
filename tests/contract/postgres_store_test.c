/* The store contract on PostgreSQL: a schema for each test on a server of the tests' own. */
#include "store_contract.h"

#include <unistd.h>

#include "cluster.h"
#include "store/postgres.h"

#define STORE_PREFIX G3_postgres

__attribute__((constructor)) static void
stamp_server(void)
{
    test_before(cluster_share);
}

static const char *
stamp_url(void)
{
    char schema[48];

    (void)snprintf(schema, sizeof schema, "t_%s", test_unique());
    return cluster_url(schema);
}

static void
stamp_begin(contract *c)
{
    c->data = NULL;
}

static stet_store *
stamp_open(contract *c)
{
    stet_store *store;

    CHECK_OK(stet__store_open(&store, c->platform, stamp_url()));
    stet__pg_test_advance(store, c->advanced_ms);
    return store;
}

static void
stamp_advance(contract *c, int64_t ms)
{
    for (size_t i = 0; i < CONTRACT_HANDLES; i++)
        if (c->handles[i] != NULL)
            stet__pg_test_advance(c->handles[i], ms);
}

static void
stamp_end(contract *c)
{
    (void)c;
}

#include "store_suite.inc"

/* ==== only here: a unit the server cannot write =============================================== */

/* More than an index takes, and nothing to compress. */
static const char *
unwritable_name(void)
{
    static char name[9001];
    uint32_t    random = 7;

    for (size_t i = 0; i + 1 < sizeof name; i++) {
        random = random * 1664525u + 1013904223u;
        name[i] = (char)(1 + (random >> 16) % 127);
    }
    return name;
}

/* As if the answers so far had been half a second on their way. */
TEST(G6_postgres_a_handle_that_is_behind_asks_for_the_time)
{
    contract    c;
    stet_store *behind;
    pg_store   *st;
    int64_t     before;

    contract_begin(&c);
    behind = contract_open(&c);
    st = (pg_store *)(void *)behind;
    stet__pg_clock_seen(st, stet__pg_clock_ask(st), contract_now(&c) - 500);
    before = contract_now(&c);
    CHECK(behind->ops->now_ms(behind) < before);
    CHECK_OK(behind->ops->ping(behind));
    CHECK(behind->ops->now_ms(behind) >= before);
    contract_end(&c);
}

TEST(F1_postgres_a_unit_the_server_refuses_does_not_spoil_its_neighbours)
{
    contract    c;
    unit        batch[7] = { { 0 } };
    const char *keys[] = { "a", "b", "c", "d", "e", "f", "g" };

    contract_begin(&c);
    for (size_t i = 0; i < 7; i++)
        unit_value(&batch[i], "s", keys[i], "v");
    unit_put(&batch[4], contract_row(1, unwritable_name(), 1), NULL);
    unit_cond(&batch[5], (stet_cond){ .kind = STET_COND_UNIT, .number = 5 }); /* relies on it */
    unit_cond(&batch[6], (stet_cond){ .kind = STET_COND_UNIT, .number = 1 });
    for (int round = 0; round < 2; round++) { /* the second time all come again */
        submit(&c, c.store, batch, 7);
        for (size_t i = 0; i < 7; i++) {
            CHECK_INT(batch[i].out.result == STET_OK, i != 4 && i != 5);
            CHECK_INT(batch[i].out.is_repeat, round == 1);
            CHECK_INT(see_version(&c, "s", keys[i]), i != 4 && i != 5);
        }
        if (round == 0)
            CHECK_INT(batch[4].out.result, STET_ETOOBIG);
        CHECK_INT(batch[5].out.result, STET_ECONFLICT);
    }
    CHECK(!has_run(&c, 1));
    contract_end(&c);
}

/* ==== only here: the column idle runs are found by ============================================ */

static void
by_sql(const char *sql)
{
    const char *address = stamp_url(), *schema = strstr(address, "&schema=");
    char        url[512], text[256];
    PGconn     *db;
    PGresult   *res;

    CHECK(schema != NULL);
    (void)snprintf(url, sizeof url, "%.*s", (int)(schema - address), address);
    (void)snprintf(text, sizeof text, "SET search_path=%s; %s", schema + 8, sql);
    db = PQconnectdb(url);
    CHECK(PQstatus(db) == CONNECTION_OK);
    res = PQexec(db, text);
    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    PQclear(res);
    PQfinish(db);
}

TEST(F2_postgres_a_run_that_is_not_found_by_its_status_is_found_and_requeued_again)
{
    static const char *const handlers[] = { "a.one" };
    stet_claimer claimer = { .running_status = RUNNING, .handlers = handlers, .n_handlers = 1 };
    contract     c;
    unit         end = { 0 }, requeue = { 0 };

    contract_begin(&c);
    c.store->quiet = 1u << SLEEPING;
    claimer.session = contract_session(c.store);
    put_ten(&c); /* odd ones a.one; 1 … 5 stuck, the others pending; due never */
    put_due(&c, 11, "a.one", 5);
    put_claimed(&c, 12, claimer.session);
    put_claimed(&c, 13, claimer.session);
    unit_release(&end, 12, SLEEPING, STET_NEVER);
    unit_finish(&end, 10);
    CHECK_CODE(decide(&c, &end), STET_OK);
    CHECK_INT(contract_check(c.store, false), 0);
    by_sql("UPDATE runs SET idle=NOT idle");
    /* 12 is quiet: to be found is no harm. */
    CHECK_INT(contract_check(c.store, false), 9 + 3);
    CHECK_INT(contract_check(c.store, true), 12);
    CHECK_INT(contract_check(c.store, false), 0);
    unit_op(&requeue,
            (stet_op){
                .kind = STET_OP_REQUEUE, .status = STUCK, .number = PENDING, .claimer = &claimer });
    CHECK_CODE(decide(&c, &requeue), STET_OK);
    CHECK(see_run(&c, 1).due_ms != STET_NEVER);
    CHECK(see_run(&c, 5).due_ms != STET_NEVER);
    CHECK(see_run(&c, 7).due_ms == STET_NEVER);
    contract_end(&c);
}
