/* Opening a Redis store: addresses that are wrong, servers that are not what they should be, and
 * servers whose settings can lose work. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stet.h>

#include "redis_server.h"
#include "store/redis.h"
#include "test.h"

#define SECRET "s3cret-of-the-tests"

/* ---- tools ----------------------------------------------------------------------------------- */

static redis_server *
server(const char *settings)
{
    redis_server *s = redis_server_new(settings);

    if (s == NULL)
        test_fail(__FILE__, __LINE__, "no server: %s", redis_server_why());
    return s;
}

/* No error ever tells a password. */
static int
open_code(const char *fmt, ...)
{
    stet_store *s = NULL;
    char        address[512];
    va_list     args;
    int         err;

    va_start(args, fmt);
    (void)vsnprintf(address, sizeof address, fmt, args);
    va_end(args);
    err = stet__store_open(&s, stet__platform_real(), address);
    stet__store_close(s);
    if (err != STET_OK) {
        CHECK(strstr(stet_last_error(), SECRET) == NULL);
        CHECK(strstr(stet_last_error(), "s3cret") == NULL);
    }
    return err;
}

/* A server that says the same to everybody, whatever it is asked; "" says nothing. */
typedef struct fake {
    int         fd, port;
    const char *answer;
    const char *instance; /* NULL, or: the answer to who looks whose data they are */
    pthread_t   thread;
} fake;

static void *
fake_main(void *arg)
{
    fake *f = arg;
    int   client;

    while ((client = accept(f->fd, NULL, NULL)) >= 0) {
        char    byte[512];
        ssize_t n;

        /* To each thing it is asked; the client gives up first. */
        while ((n = recv(client, byte, sizeof byte, 0)) > 0) {
            bool        is_look = f->instance != NULL && memmem(byte, (size_t)n, "HGET", 4) != NULL;
            const char *answer = is_look ? f->instance : f->answer;

            if (answer[0] != '\0' && send(client, answer, strlen(answer), MSG_NOSIGNAL) < 0)
                break;
        }
        close(client);
    }
    return NULL;
}

static void
fake_begin(fake *f, const char *answer)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;

    f->answer = answer;
    CHECK((f->fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK_INT(bind(f->fd, (struct sockaddr *)&at, len), 0);
    CHECK_INT(getsockname(f->fd, (struct sockaddr *)&at, &len), 0);
    CHECK_INT(listen(f->fd, 8), 0);
    f->port = ntohs(at.sin_port);
    CHECK_INT(pthread_create(&f->thread, NULL, fake_main, f), 0);
}

static void
fake_end(fake *f)
{
    CHECK_INT(shutdown(f->fd, SHUT_RDWR), 0);
    CHECK_INT(pthread_join(f->thread, NULL), 0);
    close(f->fd);
}

/* ---- addresses ------------------------------------------------------------------------------- */

TEST(G4_a_mistyped_option_is_answered_with_the_nearest)
{
    CHECK_CODE(open_code("redis://u:" SECRET "@h:1/0?prefx=a"), STET_EURL);
    CHECK_HAS(stet_last_error(), "did you mean prefix?");
    CHECK_CODE(open_code("redis://h?alow_lossy=1"), STET_EURL);
    CHECK_HAS(stet_last_error(), "did you mean allow_lossy?");
    CHECK_CODE(open_code("redis://h?zzzzzz=1"), STET_EURL);
    CHECK_HAS(stet_last_error(), "unknown option \"zzzzzz\"");
    CHECK_CODE(open_code("redis://h?prefix"), STET_EURL);
    CHECK_HAS(stet_last_error(), "NAME=VALUE");
}

/* 100 of them */
#define OPEN_TEN "aaaaaaaaaa"
#define OPEN_LONG                                                                                  \
    OPEN_TEN OPEN_TEN OPEN_TEN OPEN_TEN OPEN_TEN OPEN_TEN OPEN_TEN OPEN_TEN OPEN_TEN OPEN_TEN

TEST(G4_addresses_that_cannot_be_right)
{
    static const struct {
        const char *address, *says;
    } bad[] = {
        { "redis:h:1", "redis://" },
        { "redis://h:x/0", "port" },
        { "redis://h:70000/0", "port" },
        { "redis://h/abc", "number of a database" },
        { "redis://h/-1", "number of a database" },
        { "redis://u" SECRET "@h", "USER:PASSWORD" },
        { "redis://u:" SECRET "%zz@h", "%XX" },
        { "redis://u:12?" SECRET "=1@h", "'@' behind the '?'" },
        { "redis://u:12?x&" SECRET "@h?prefix=a", "'@' behind the '?'" },
        { "rediss://u:p?" SECRET "@h", "TLS" },
        { "redis://[::1/0", "']'" },
        { "redis://h?prefix=a{b", "prefix is 1 to" },
        { "redis://h?prefix=a:b", "prefix is 1 to" },
        { "redis://h?prefix=", "prefix is 1 to" },
        { "redis://h?allow_lossy=yes", "0 or 1" },
        { "redis://h?connect_timeout=0", "1 to 3600" },
        { "redis://h?answer_timeout=1x", "1 to 3600" },
        { "rediss://u:" SECRET "@h:1/0", "TLS" },
        { "redis://u%4:" SECRET "@h", "%XX" },
        { "redis://u:" SECRET "%4g@h", "%XX" },
        { "redis://u:" SECRET "%@h", "%XX" },
        { "redis://h:/0", "port" },
        { "redis://h:12345678/0", "port" },
        { "redis://h:1x/0", "port" },
        { "redis://h/1x", "number of a database" },
        { "redis://" OPEN_LONG OPEN_LONG OPEN_LONG, "the host is too long" },
        { "redis://h?=1", "NAME=VALUE" },
        { "redis://h?prefix=" OPEN_LONG, "prefix is 1 to" },
        { "redis://h?connect_timeout=", "1 to 3600" },
        { "redis://h?connect_timeout=3601", "1 to 3600" },
        { "redis://h?connect_timeout=100000000000", "1 to 3600" },
        { "redis://h?repair=2", "0 or 1" },
        { "redis://h?" OPEN_LONG "=1", "unknown option \"aaaaaaaaaa" },
        { "redis://h?allow_lossyallow_lossyallow_lossyallow_lossy=1", "unknown option" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_CODE(open_code("%s", bad[i].address), STET_EURL);
        CHECK_HAS(stet_last_error(), bad[i].says);
    }
}

TEST(G4_user_password_host_and_database_are_understood)
{
    redis_store st = { .base = { .alloc = &stet__platform_real()->alloc } };

    CHECK_OK(stet__redis_url_parse(&st, "//us%65r:p%40s%3As@[::1]:7000/12?prefix=a.b-c_D"));
    CHECK_STR(st.user, "user");
    CHECK_STR(st.password, "p@s:s");
    CHECK_STR(st.host, "::1");
    CHECK_INT(st.port, 7000);
    CHECK_INT(st.db, 12);
    CHECK_STR(st.key, "{a.b-c_D}:");
    CHECK_STR(st.name, "redis://::1:7000/12?prefix=a.b-c_D");
    stet__redis_url_free(&st);
    st = (redis_store){ .base = { .alloc = &stet__platform_real()->alloc } };
    CHECK_OK(stet__redis_url_parse(&st, "//:p@w@host"));
    CHECK_STR(st.password, "p@w");
    CHECK_STR(st.host, "host");
    CHECK_INT(st.port, 6379);
    CHECK_STR(st.key, "{stet}:");
    CHECK(!st.is_lossy_allowed);
    stet__redis_url_free(&st);
    st = (redis_store){ .base = { .alloc = &stet__platform_real()->alloc } };
    CHECK_OK(stet__redis_url_parse(&st, "//[::1]?allow_lossy=0&repair=0"));
    CHECK_STR(st.host, "::1");
    CHECK_INT(st.port, 6379);
    CHECK(!st.is_lossy_allowed);
    stet__redis_url_free(&st);
    st = (redis_store){ .base = { .alloc = &stet__platform_real()->alloc } };
    CHECK_OK(stet__redis_url_parse(&st, "//:7000/3")); /* no host: this one */
    CHECK_STR(st.host, "localhost");
    CHECK_INT(st.port, 7000);
    stet__redis_url_free(&st);
}

/* ---- servers --------------------------------------------------------------------------------- */

TEST(G4_nobody_there_and_unknown_hosts)
{
    redis_server *s = server(NULL);
    int           port = s->port;

    redis_server_free(s);
    CHECK_CODE(open_code("redis://127.0.0.1:%d/0?connect_timeout=5", port), STET_EIO);
    CHECK_HAS(stet_last_error(), "is the server running");
    CHECK_CODE(open_code("redis://no-such-host.invalid:1/0?connect_timeout=5"), STET_EIO);
    CHECK_HAS(stet_last_error(), "check the host");
}

TEST(G4_passwords)
{
    redis_server *s = server("requirepass " SECRET "\n"
                             "user worker on >" SECRET "2 ~* &* +@all\n");

    CHECK_CODE(open_code("redis://127.0.0.1:%d", s->port), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "wants a password");
    CHECK_CODE(open_code("redis://:" SECRET "x@127.0.0.1:%d", s->port), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "check the user and the password");
    CHECK_CODE(open_code("redis://worker:" SECRET "@127.0.0.1:%d", s->port), STET_ECONFIG);
    CHECK_OK(open_code("redis://:" SECRET "@127.0.0.1:%d", s->port));
    CHECK_OK(open_code("redis://worker:" SECRET "2@127.0.0.1:%d/3", s->port));
    redis_server_free(s);
    s = server(NULL);
    CHECK_CODE(open_code("redis://:" SECRET "@127.0.0.1:%d", s->port), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "has no password");
    CHECK_CODE(open_code("redis://127.0.0.1:%d/99", s->port), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "fewer databases");
    redis_server_free(s);
}

/* A right that is missing is found when the store is opened, not in the middle of a commit. */
TEST(G4_a_user_without_rights_is_refused_at_once)
{
    redis_server *s = server("user poor on >p ~* &* +@all -rpush\n"
                             "user other on >p ~else:* &* +@all\n");

    CHECK_CODE(open_code("redis://poor:p@127.0.0.1:%d", s->port), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "the right to do it");
    CHECK_CODE(open_code("redis://other:p@127.0.0.1:%d", s->port), STET_ECONFIG);
    redis_server_free(s);
}

TEST(G4_a_server_of_another_kind)
{
    static const char *const answers[] = { "HTTP/1.1 400 Bad Request\r\n\r\n",
                                           "220 mail.example ESMTP\r\n", "E\0\0\0", "+HELLO\r\n" };
    fake f = { 0 };

    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        fake_begin(&f, answers[i]);
        CHECK_CODE(open_code("redis://127.0.0.1:%d/0?connect_timeout=5", f.port), STET_ENOTDB);
        CHECK_HAS(stet_last_error(), "no Redis server");
        fake_end(&f);
    }
}

TEST(G4_a_server_that_says_nothing_is_given_up)
{
    fake f = { 0 };

    fake_begin(&f, "");
    CHECK_CODE(open_code("redis://127.0.0.1:%d/0?connect_timeout=1", f.port), STET_EIO);
    CHECK_HAS(stet_last_error(), "no answer in time");
    fake_end(&f);
}

TEST(G4_a_server_that_is_too_old)
{
    fake f = { 0 };

    fake_begin(&f, "$21\r\nredis_version:5.0.14\n\r\n");
    CHECK_CODE(open_code("redis://127.0.0.1:%d/0?connect_timeout=5", f.port), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "Redis 5.0.14; stet needs 6.2");
    fake_end(&f);
}

TEST(G4_a_cluster_whose_nodes_send_us_round_in_circles_is_given_up)
{
    static const char *const hosts[] = { "127.0.0.1", "" }; /* none: the same */
    char                     moved[64];
    fake                     f = { .instance = moved };

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        moved[0] = '\0';
        fake_begin(&f, "$20\r\nredis_version:7.0.1\n\r\n");
        (void)snprintf(moved, sizeof moved, "-MOVED 7 %s:%d\r\n", hosts[i], f.port);
        CHECK_CODE(open_code("redis://127.0.0.1:%d/0?connect_timeout=5", f.port), STET_EIO);
        CHECK_HAS(stet_last_error(), "each node of the cluster says another one has the keys");
        fake_end(&f);
    }
    /* One that does not say where. */
    (void)snprintf(moved, sizeof moved, "-MOVED 7\r\n");
    fake_begin(&f, "$20\r\nredis_version:7.0.1\n\r\n");
    CHECK(open_code("redis://127.0.0.1:%d/0?connect_timeout=5", f.port) != STET_OK);
    CHECK_HAS(stet_last_error(), "MOVED 7");
    fake_end(&f);
}

TEST(G4_a_version_that_is_none_is_too_old)
{
    fake f = { 0 };

    fake_begin(&f, "$20\r\nredis_version:newer\n\r\n");
    CHECK_CODE(open_code("redis://127.0.0.1:%d/0?connect_timeout=5", f.port), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "the server is Redis newer; stet needs 6.2");
    fake_end(&f);
}

TEST(G4_data_of_a_newer_stet_are_refused)
{
    redis_server *s = server(NULL);
    redisContext *c = redisConnect("127.0.0.1", s->port);

    CHECK(c != NULL && c->err == 0);
    freeReplyObject(redisCommand(c, "HSET {new}:m format 2 instance 0123456789abcdef"));
    freeReplyObject(redisCommand(c, "SET {foreign}:m text"));
    redisFree(c);
    CHECK_CODE(open_code("%s", redis_server_url(s, "new")), STET_ENEWER);
    CHECK_HAS(stet_last_error(), "newer stet");
    CHECK_CODE(open_code("%s", redis_server_url(s, "foreign")), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "take another one");
    redis_server_free(s);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void
check_refused(const char *settings, const char *says)
{
    redis_server *s = server(settings);

    CHECK_CODE(open_code("%s", redis_server_url(s, "a")), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), says);
    CHECK_HAS(stet_last_error(), "allow_lossy=1");
    CHECK_OK(open_code("%s&allow_lossy=1", redis_server_url(s, "a")));
    redis_server_free(s);
}

TEST(I8_a_redis_that_can_lose_what_it_acknowledged_is_refused)
{
    check_refused("appendonly no\n", "keeps no log");
    check_refused("appendfsync everysec\n", "two seconds of acknowledged work");
    check_refused("appendfsync no\n", "leaves flushing its log to the system");
    check_refused("maxmemory 100mb\nmaxmemory-policy allkeys-lru\n",
                  "maxmemory-policy allkeys-lru");
    check_refused("maxmemory 100mb\nmaxmemory-policy volatile-ttl\n", "would vanish");
}

/* INFO tells whether there is a log, not how it is flushed. */
TEST(I8_a_redis_that_hides_its_settings_is_taken_at_its_worst)
{
    check_refused("rename-command CONFIG \"\"\n", "CONFIG is forbidden");
    check_refused("rename-command CONFIG \"\"\nappendonly no\n", "keeps no log");
}

TEST(I8_a_redis_without_a_limit_of_memory_evicts_nothing)
{
    redis_server *s = server("maxmemory 0\nmaxmemory-policy allkeys-lru\n");

    CHECK_OK(open_code("%s", redis_server_url(s, "a")));
    redis_server_free(s);
    s = server("maxmemory 100mb\n");
    CHECK_OK(open_code("%s", redis_server_url(s, "a")));
    redis_server_free(s);
}

typedef struct said {
    int  n;
    char text[4][400];
} said;

static int
on_sentence(void *arg, const char *sentence)
{
    said *v = arg;

    CHECK(v->n < 4);
    (void)snprintf(v->text[v->n++], sizeof v->text[0], "%s", sentence);
    return 0;
}

TEST(I8_the_doctor_says_what_can_be_lost_also_while_running)
{
    redis_server *s = server(NULL);
    redisContext *c = redisConnect("127.0.0.1", s->port);
    stet_store   *store;
    said          v = { 0 };

    CHECK(c != NULL && c->err == 0);
    CHECK_OK(stet__store_open(&store, stet__platform_real(), redis_server_url(s, "a")));
    CHECK_OK(store->ops->doctor(store, on_sentence, &v));
    CHECK_INT(v.n, 0);
    freeReplyObject(redisCommand(c, "CONFIG SET appendfsync everysec"));
    freeReplyObject(redisCommand(c, "CONFIG SET maxmemory-policy allkeys-lru"));
    freeReplyObject(redisCommand(c, "CONFIG SET maxmemory 1gb"));
    CHECK_OK(store->ops->doctor(store, on_sentence, &v));
    CHECK_INT(v.n, 2);
    CHECK_HAS(v.text[0], "once a second");
    CHECK_HAS(v.text[1], "removes keys");
    stet__store_close(store);
    redisFree(c);
    redis_server_free(s);
}

static void
on_log(void *arg, const stet_log_record *r)
{
    if (strstr(r->message, "half a minute of acknowledged work") != NULL)
        atomic_fetch_add((_Atomic int *)arg, 1);
    CHECK(strstr(r->message, SECRET) == NULL);
}

TEST(I8_an_engine_tells_in_its_log_what_can_be_lost)
{
    redis_server *s = server("appendfsync no\nrequirepass " SECRET "\n");
    _Atomic int   told = 0;
    stet_engine  *e;
    char          url[256];

    (void)snprintf(url, sizeof url, "redis://:" SECRET "@127.0.0.1:%d/0?allow_lossy=1", s->port);
    CHECK_OK(stet_open(&e, url, STET_OPTIONS(.log = on_log, .log_arg = &told)));
    CHECK_OK(stet_engine_start(e));
    CHECK_INT(atomic_load(&told), 1);
    stet_close(e);
    redis_server_free(s);
}
