/* A database in which transactions begin as REPEATABLE READ unless they say otherwise: a store in
 * it works as in any other, by a connection of its own and behind a pooler, whose server
 * connections keep no setting of ours. The server is this program's own. */
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "cluster.h"
#include "platform/platform.h"
#include "pooler.h"
#include "store/postgres.h"
#include "test.h"

enum { PENDING = 1, RUNNING = 2, COMERS = 2 };

/* ---- tools ----------------------------------------------------------------------------------- */

static int
ask(PGconn *db, const char *sql)
{
    PGresult *res = PQexec(db, sql);
    int       answer = 0;

    if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    if (PQntuples(res) > 0)
        answer = (int)strtol(PQgetvalue(res, 0, 0), NULL, 10);
    PQclear(res);
    return answer;
}

static PGconn *
server_connect(void)
{
    PGconn *db = PQconnectdb(getenv(CLUSTER_ENV));

    CHECK_INT(PQstatus(db), CONNECTION_OK);
    return db;
}

static void
server_own(void)
{
    cluster *c = cluster_new();
    PGconn  *db;

    if (c == NULL) {
        unsetenv(CLUSTER_ENV); /* each test says so */
        return;
    }
    setenv(CLUSTER_ENV, cluster_url_of(c, NULL), 1);
    db = server_connect();
    (void)ask(db, "ALTER DATABASE postgres SET default_transaction_isolation='repeatable read'");
    PQfinish(db);
    free(c); /* not cluster_free(): the server lives as long as this process */
}

__attribute__((constructor)) static void
server_before(void)
{
    test_before(server_own);
}

static const char *
store_schema(void)
{
    static char schema[32];

    (void)snprintf(schema, sizeof schema, "i_%s", test_unique());
    return schema;
}

static const char *
store_url(const pooler *p)
{
    const char *direct = cluster_url(store_schema());

    return p != NULL ? pooler_url(p, store_schema()) : direct;
}

/* Until so many of this server wait for one of our locks. */
static void
await_waiting(PGconn *db, int n)
{
    struct timespec now;
    int64_t         until_s;

    clock_gettime(CLOCK_MONOTONIC, &now);
    until_s = now.tv_sec + 40 * test_slow();
    while (ask(db, "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND NOT granted") < n) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > until_s)
            test_fail(__FILE__, __LINE__, "nobody waits");
        (void)poll(NULL, 0, 5);
    }
}

/* ---- one holder ------------------------------------------------------------------------------ */

/* A run that enters the lane, in a transaction of somebody else or one of its own. */
typedef struct comer {
    stet_store  *store;
    uint8_t      number;
    PGconn      *db; /* NULL: its own */
    const char  *url;
    int          code;
    char         text[512];
    stet_outcome out;
} comer;

static void *
comer_main(void *arg)
{
    comer       *x = arg;
    stet_run_row row = { .id = { { x->number } },
                         .handler = "a.one",
                         .status = PENDING,
                         .due_ms = STET_NEVER,
                         .ended_ms = STET_NEVER };
    stet_op      ops[] = {
             { .kind = STET_OP_RUN_PUT, .run = row.id, .row = &row },
             { .kind = STET_OP_LANE_ENTER, .run = row.id, .lane = "a/k", .status = PENDING }
    };
    stet_unit unit = { .seq = x->number, .ops = ops, .n_ops = 2 };

    if (x->db != NULL)
        x->code = x->store->ops->apply_in(x->store, stet_conn_postgres(x->db), &unit, &x->out);
    else
        x->code = x->store->ops->commit(x->store, &unit, 1, &x->out);
    return NULL;
}

/* How many of them may be executed. */
static size_t
holders(stet_store *s, uint64_t seq)
{
    static const char *const handlers[] = { "a.one" };
    stet_claimer             claimer = { 0, RUNNING, handlers, 1 };
    stet_op                  look = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 9 };
    stet_unit                unit = { .seq = seq, .ops = &look, .n_ops = 1 };
    stet_outcome             out;

    CHECK_OK(s->ops->session_open(s, &claimer.session, (stet_id){ { 1 } }, 600000, stet_text("")));
    CHECK_OK(s->ops->commit(s, &unit, 1, &out));
    CHECK_INT(out.result, STET_OK);
    stet__free(s->alloc, out.grants);
    return out.n_grants;
}

/* The second one waits for the lane until the first one is in it. */
static void
one_holder(const pooler *p)
{
    PGconn     *db = server_connect();
    stet_store *s;
    pthread_t   thread;
    comer       first = { .number = 1, .db = db }, second = { .number = 2 };

    CHECK_OK(stet__store_open(&s, stet__platform_real(), store_url(p)));
    first.store = second.store = s;
    (void)ask(db, "BEGIN ISOLATION LEVEL READ COMMITTED");
    (void)comer_main(&first);
    CHECK_OK(first.code);
    CHECK_INT(pthread_create(&thread, NULL, comer_main, &second), 0);
    await_waiting(db, 1);
    (void)ask(db, "COMMIT");
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_OK(second.code);
    CHECK_INT(second.out.result, STET_OK);
    CHECK_INT(holders(s, 3), 1);
    stet__store_close(s);
    PQfinish(db);
}

TEST(A2_postgres_a_lane_has_one_holder_whatever_the_isolation_of_the_database)
{
    one_holder(NULL);
}

TEST(A2_postgres_a_lane_has_one_holder_whatever_the_isolation_behind_a_pooler)
{
    pooler *p = pooler_new(3);

    one_holder(p);
    pooler_free(p);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* What the server refuses behind a pooler leaves no transaction open, on which the next would
 * fail. */
TEST(G3_postgres_what_is_refused_behind_a_pooler_is_over)
{
    pooler      *p = pooler_new(1);
    stet_store  *s;
    stet_op      put = { .kind = STET_OP_VALUE_PUT, .space = "s", .data = stet_text("v") };
    stet_op      bad = { .kind = STET_OP_RUN_PUT };
    stet_run_row row = { .handler = "a.one", .due_ms = STET_NEVER, .ended_ms = STET_NEVER };
    stet_unit    units[2] = { { .ops = &put, .n_ops = 1 }, { .ops = &bad, .n_ops = 1 } };
    stet_outcome out[2];
    char         sql[160];
    PGconn      *db = server_connect();

    CHECK_OK(stet__store_open(&s, stet__platform_real(), store_url(p)));
    (void)snprintf(sql, sizeof sql, "ALTER TABLE %s.runs ADD CHECK (status<>77)", store_schema());
    (void)ask(db, sql);
    row.id = bad.run = (stet_id){ { 5 } };
    row.status = 77;
    bad.row = &row;
    put.key = stet_text("k");
    for (uint64_t round = 0; round < 3; round++) {
        units[0].seq = 2 * round + 1;
        units[1].seq = 2 * round + 2;
        CHECK_OK(s->ops->commit(s, units, 2, out));
        CHECK_INT(out[0].result, STET_OK);
        CHECK_INT(out[1].result, STET_EINVAL);
    }
    CHECK_INT(ask(db, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in trans%'"),
              0);
    stet__store_close(s);
    PQfinish(db);
    /* And the server connection, which others get as well, is as it was. */
    (void)snprintf(sql, sizeof sql, "%s", pooler_url(p, ""));
    *strstr(sql, "&schema=") = '\0';
    db = PQconnectdb(sql);
    CHECK_INT(PQstatus(db), CONNECTION_OK);
    CHECK_INT(ask(db, "SELECT count(*) FROM pg_settings WHERE setting='repeatable read' AND "
                      "name='default_transaction_isolation'"),
              1);
    PQfinish(db);
    pooler_free(p);
}

/* ---- what is lent ---------------------------------------------------------------------------- */

TEST(I4_postgres_a_lent_transaction_is_read_committed_whatever_the_database_says)
{
    stet_store *s;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), store_url(NULL)));
    for (int round = 0; round < 2; round++) { /* the second gets the connection of the first */
        stet_tx *tx;

        CHECK_OK(s->ops->tx_begin(s, 60000, &tx));
        CHECK_INT(ask(tx->conn.handle,
                      "SELECT count(*) FROM pg_settings WHERE name='transaction_isolation' AND "
                      "setting='read committed'"),
                  1);
        s->ops->tx_rollback(s, tx);
    }
    stet__store_close(s);
}

/* ---- a new store ----------------------------------------------------------------------------- */

static void *
open_main(void *arg)
{
    comer *x = arg;

    x->code = stet__store_open(&x->store, stet__platform_real(), x->url);
    (void)snprintf(x->text, sizeof x->text, "%s", stet_last_error());
    return NULL;
}

/* The others wait until the first has made the tables, and see them. */
TEST(G3_postgres_a_new_store_is_opened_by_many_whatever_the_isolation_of_the_database)
{
    PGconn     *db = server_connect();
    const char *url = store_url(NULL);
    pthread_t   threads[COMERS];
    comer       comers[COMERS] = { 0 };

    (void)ask(db, "SELECT pg_advisory_lock(" PG_LOCK_CLASS ",0)");
    for (int i = 0; i < COMERS; i++) {
        comers[i].url = url;
        CHECK_INT(pthread_create(&threads[i], NULL, open_main, &comers[i]), 0);
    }
    await_waiting(db, COMERS);
    (void)ask(db, "SELECT pg_advisory_unlock(" PG_LOCK_CLASS ",0)");
    for (int i = 0; i < COMERS; i++) {
        CHECK_INT(pthread_join(threads[i], NULL), 0);
        if (comers[i].code != STET_OK)
            test_fail(__FILE__, __LINE__, "%s", comers[i].text);
        stet__store_close(comers[i].store);
    }
    PQfinish(db);
}
