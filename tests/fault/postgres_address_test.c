/* Addresses and servers that are wrong: each says what was tried and what to change, in a bounded
 * time, and no password appears. */
#include <arpa/inet.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster.h"
#include "platform/platform.h"
#include "store/store.h"
#include "test.h"

#include <stet.h>

__attribute__((constructor)) static void
address_server(void)
{
    test_before(cluster_share);
}

static int
address_port(void)
{
    const char *port = strstr(cluster_url("x"), "@:");

    CHECK(port != NULL);
    return (int)strtol(port + 2, NULL, 10);
}

/* It is refused with this code, and the sentence has these words and no secret. */
static void
expect_refused(const char *url, int code, const char *said, const char *advice)
{
    stet_store  *store = NULL;
    stet_engine *e = NULL;

    CHECK_CODE(stet__store_open(&store, stet__platform_real(), url), code);
    CHECK(store == NULL);
    CHECK_HAS(stet_last_error(), said);
    CHECK_HAS(stet_last_error(), advice);
    CHECK(strstr(stet_last_error(), "hush") == NULL);
    CHECK_CODE(stet_open(&e, url, NULL), code); /* as a program does it */
    CHECK(strstr(stet_last_error(), "hush") == NULL);
}

/* Statements of the owner of the server, one after the other. */
static void
as_owner(const char *sql)
{
    const char *url = cluster_url("x");
    char        plain[512];
    PGconn     *db;
    PGresult   *res;

    (void)snprintf(plain, sizeof plain, "%.*s", (int)(strstr(url, "&schema=") - url), url);
    db = PQconnectdb(plain);
    res = PQexec(db, sql);
    if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(db));
    PQclear(res);
    PQfinish(db);
}

static const char *
tcp(const char *who, int port, const char *rest)
{
    static char url[256];

    (void)snprintf(url, sizeof url, "postgres://%s@127.0.0.1:%d/%s", who, port, rest);
    return url;
}

TEST(G3_a_wrong_password_is_told_and_not_repeated)
{
    expect_refused(tcp(CLUSTER_USER ":hush", address_port(), "postgres"), STET_ECONFIG,
                   "password authentication failed", "check the user and the password");
    expect_refused(tcp(CLUSTER_USER, address_port(), "postgres"), STET_ECONFIG,
                   "no password supplied", "PGPASSWORD");
}

TEST(G3_the_right_password_opens)
{
    stet_store *store;

    CHECK_OK(stet__store_open(&store, stet__platform_real(),
                              tcp(CLUSTER_USER ":" CLUSTER_PASSWORD, address_port(),
                                  "postgres?schema=right")));
    stet__store_close(store);
}

TEST(G3_an_unknown_host_is_told)
{
    expect_refused("postgres://u:hush@no-such-host.invalid/db", STET_EIO, "no-such-host.invalid",
                   "check the host");
}

/* A port nobody listens at. */
static int
closed_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
          getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

TEST(G3_a_wrong_port_is_told)
{
    expect_refused(tcp("u:hush", closed_port(), "db"), STET_EIO, "Connection refused",
                   "is the port right?");
}

TEST(G3_an_unknown_database_is_told)
{
    expect_refused(tcp(CLUSTER_USER ":" CLUSTER_PASSWORD, address_port(), "nowhere"),
                   STET_ENOTFOUND, "\"nowhere\" does not exist", "createdb");
}

TEST(G3_tls_that_is_not_offered_is_told)
{
    expect_refused(tcp(CLUSTER_USER ":hush", address_port(), "postgres?sslmode=require"),
                   STET_ECONFIG, "does not support SSL", "sslmode");
}

/* ---- servers of another kind ----------------------------------------------------------------- */

typedef struct impostor {
    int         listener, port;
    const void *says; /* after the first bytes of the client; NULL: nothing */
    size_t      len;
    pthread_t   thread;
} impostor;

static void *
impostor_main(void *arg)
{
    impostor *i = arg;
    char      bytes[1024];
    int       fd;

    while ((fd = accept(i->listener, NULL, NULL)) >= 0) {
        if (read(fd, bytes, sizeof bytes) > 0 && i->says != NULL)
            (void)send(fd, i->says, i->len, MSG_NOSIGNAL);
        while (read(fd, bytes, sizeof bytes) > 0)
            continue;
        close(fd);
    }
    return NULL;
}

static void
impostor_begin(impostor *i, const void *says, size_t len)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          size = sizeof at;

    i->says = says;
    i->len = len;
    i->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(i->listener >= 0 && bind(i->listener, (struct sockaddr *)&at, size) == 0 &&
          listen(i->listener, 8) == 0 &&
          getsockname(i->listener, (struct sockaddr *)&at, &size) == 0);
    i->port = ntohs(at.sin_port);
    CHECK_INT(pthread_create(&i->thread, NULL, impostor_main, i), 0);
}

static void
impostor_end(impostor *i)
{
    shutdown(i->listener, SHUT_RDWR);
    pthread_join(i->thread, NULL);
    close(i->listener);
}

TEST(G3_a_server_of_another_kind_is_told)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    impostor          i;

    impostor_begin(&i, http, sizeof http - 1);
    expect_refused(tcp("u:hush", i.port, "db?sslmode=disable"), STET_ENOTDB, "cannot connect",
                   "no PostgreSQL server");
    expect_refused(tcp("u:hush", i.port, "db"), STET_ENOTDB, "cannot connect",
                   "no PostgreSQL server");
    impostor_end(&i);
}

TEST(G3_a_server_that_says_nothing_is_given_up)
{
    impostor i;

    impostor_begin(&i, NULL, 0);
    expect_refused(tcp("u:hush", i.port, "db?connect_timeout=1"), STET_EIO, "did not answer",
                   "check host and port");
    impostor_end(&i);
}

TEST(G3_a_server_that_is_too_old_is_told)
{
    /* Authentication is fine, the version is 9.6.24, a key, ready for a query. */
    static const char old[] = "R\0\0\0\10\0\0\0\0"
                              "S\0\0\0\32server_version\0009.6.24\0"
                              "K\0\0\0\14\0\0\0\1\0\0\0\1"
                              "Z\0\0\0\5I";
    impostor i;

    impostor_begin(&i, old, sizeof old - 1);
    expect_refused(tcp("u:hush", i.port, "db?sslmode=disable"), STET_ECONFIG, "9.6.24", "needs 12");
    impostor_end(&i);
}

/* ---- rights and schemas ---------------------------------------------------------------------- */

TEST(G3_a_database_without_rights_is_told)
{
    as_owner("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD 'hush'");
    expect_refused(tcp("guest:hush", address_port(), "postgres?schema=theirs"), STET_EREADONLY,
                   "permission denied", "GRANT CREATE");
}

TEST(G7_a_schema_of_something_else_is_left_alone)
{
    as_owner(
        "DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop; CREATE TABLE shop.orders(id int)");
    expect_refused(cluster_url("shop"), STET_ENOTDB, "used by something else", "schema=NAME");
    as_owner("SELECT * FROM shop.orders; DROP SCHEMA shop CASCADE");
}

TEST(G7_a_newer_format_is_refused)
{
    stet_store *store;

    CHECK_OK(stet__store_open(&store, stet__platform_real(), cluster_url("newer")));
    stet__store_close(store);
    as_owner("UPDATE newer.meta SET v='99' WHERE k='format'");
    expect_refused(cluster_url("newer"), STET_ENEWER, "format 99", "use the newer stet");
    as_owner("DROP SCHEMA newer CASCADE");
}

/* One unit: the value "k" is put. */
static void
older_put(stet_store *store)
{
    stet_op      op = { .kind = STET_OP_VALUE_PUT, .space = "t" };
    stet_unit    unit = { .seq = 1, .ops = &op, .n_ops = 1 };
    stet_outcome out;

    op.key = stet_text("k");
    op.data = stet_text("kept");
    CHECK_OK(store->ops->commit(store, &unit, 1, &out));
    CHECK_INT(out.result, STET_OK);
}

/* An older stet had fewer indexes and functions, and another commit. A handle that is open while
 * the next one makes what is new goes on with it. */
TEST(G7_a_database_of_an_older_stet_gets_what_is_new)
{
    stet_store *old, *store;
    stet_value  value;

    as_owner("DROP SCHEMA IF EXISTS older CASCADE");
    CHECK_OK(stet__store_open(&old, stet__platform_real(), cluster_url("older")));
    as_owner("DROP INDEX older.runs_idle; DROP INDEX older.timers_run;"
             "DO $$ DECLARE f record; BEGIN FOR f IN SELECT p.oid::regprocedure AS name FROM "
             "pg_proc p JOIN pg_namespace n ON n.oid=p.pronamespace WHERE n.nspname='older' AND "
             "p.proname IN ('steps','wake','claim') LOOP EXECUTE 'DROP FUNCTION '||f.name; "
             "END LOOP; END $$;"
             "UPDATE older.meta SET v='of an older stet' WHERE k='function'");
    CHECK_OK(stet__store_open(&store, stet__platform_real(), cluster_url("older")));
    as_owner("SELECT 1/(count(*)=2)::int FROM pg_class c JOIN pg_namespace n ON "
             "n.oid=c.relnamespace WHERE n.nspname='older' AND relname IN "
             "('runs_idle','timers_run')");
    as_owner("SELECT 1/(count(*)=4)::int FROM pg_proc p JOIN pg_namespace n ON "
             "n.oid=p.pronamespace WHERE n.nspname='older' AND p.proname IN "
             "('commit','steps','wake','claim')");
    as_owner("SELECT 1/(v<>'of an older stet')::int FROM older.meta WHERE k='function'");
    older_put(old);
    CHECK_OK(store->ops->value(store, "t", stet_text("k"), &value));
    CHECK_INT(value.version, 1);
    CHECK(value.data.len == 4 && memcmp(value.data.data, "kept", 4) == 0);
    stet__free(store->alloc, (void *)(uintptr_t)value.data.data);
    stet__store_close(old);
    stet__store_close(store);
    as_owner("DROP SCHEMA older CASCADE");
}

/* ---- addresses ------------------------------------------------------------------------------- */

TEST(G3_a_mistyped_option_suggests_the_nearest)
{
    expect_refused("postgres://u:hush@h/db?shcema=x", STET_EURL, "\"shcema\"",
                   "did you mean schema?");
    expect_refused("postgres://u:hush@h/db?sslmod=require", STET_EURL, "\"sslmod\"",
                   "did you mean sslmode?");
    expect_refused("postgres://u:hush@h/db?repare=1", STET_EURL, "\"repare\"",
                   "did you mean repair?");
    expect_refused("postgres://u:hush@h/db?quux=1", STET_EURL, "unknown option", "\"quux\"");
}

TEST(G3_an_address_that_is_none_does_not_show_its_password)
{
    expect_refused("postgres://u:hush%ZZhush@h/db", STET_EURL, "no PostgreSQL URL", "%XX");
    expect_refused("postgres://u:hush@h:port/db", STET_EIO, "store postgres://", "port");
    expect_refused("postgres:u:hush@h", STET_EURL, "begins with", "postgres://");
    expect_refused("postgres://u:hush@h/db?schema=Big", STET_EURL, "a schema is", "small letters");
    expect_refused("postgres://u:hush@h/db?schema=pg_mine", STET_EURL, "a schema is", "not with");
    expect_refused("postgres://u:hush@h/db?answer_timeout=soon", STET_EURL, "answer_timeout",
                   "seconds");
    expect_refused("postgres://u:hush@h/db?schema", STET_EURL, "NAME=VALUE", "option");
    expect_refused("postgres://u:hush@h/db?=x", STET_EURL, "NAME=VALUE", "option");
    expect_refused("postgres://u:hush@h/db?schema=", STET_EURL, "a schema is", "at most");
    expect_refused("postgres://u:hush@h/db?schema=1a", STET_EURL, "a schema is", "no digit");
    expect_refused("postgres://u:hush@h/db?schema=public", STET_EURL, "a schema is", "not public");
    expect_refused("postgres://u:hush@h/db?schema=information_schema", STET_EURL, "a schema is",
                   "stet's own");
    expect_refused("postgres://u:hush@h/db?schema=a_name_that_is_longer_than_what_names_may_have_"
                   "postgresql_itself",
                   STET_EURL, "a schema is", "at most");
    expect_refused("postgres://u:hush@h/db?answer_timeout=", STET_EURL, "answer_timeout", "1 to");
    expect_refused("postgres://u:hush@h/db?answer_timeout=0", STET_EURL, "answer_timeout", "1 to");
    expect_refused("postgres://u:hush@h/db?answer_timeout=3601", STET_EURL, "3600", "seconds");
    expect_refused("postgres://u:hush@h/db?answer_timeout=100000000000", STET_EURL, "3600",
                   "seconds");
    expect_refused("postgres://u:hush@h/db?connect_timeout=soon", STET_EURL, "connect_timeout",
                   "seconds");
    expect_refused("postgres://u:hush@h/db?repair=2", STET_EURL, "unknown option", "\"repair\"");
    expect_refused("postgres://u:hush@h/db?an_option_with_a_name_that_nobody_would_ever_type_in=1",
                   STET_EURL, "unknown option", "an_option_with");
    expect_refused("postgre://u:hush@h/db", STET_EURL, "no store for", "postgres://");
}

/* libpq would take parts of such a password for a host, a port, a database or an option, and those
 * are told. */
TEST(G3_a_password_with_characters_that_were_not_written_as_xx_is_not_shown)
{
    expect_refused("postgres://u:p@hush@h/db", STET_EURL, "'@'", "%XX");
    expect_refused("postgres://u:p/hush@h/db", STET_EURL, "'@'", "%XX");
    expect_refused("postgres://u:p?hush=1@h/db", STET_EURL, "'@'", "%XX");
    expect_refused("postgres://u:p?x&hush@h/db?schema=s", STET_EURL, "'@'", "%XX");
    expect_refused("postgres://u:p@h?host=hush@h/db", STET_EURL, "'@'", "%XX");
    expect_refused("postgre://u:p?hush@h/db", STET_EURL, "no store for", "postgres://");
}
