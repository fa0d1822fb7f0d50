/* A Redis primary and its replica; see redis_pair.h. */
#include "redis_pair.h"

#ifdef STET_WITH_REDIS
#include <stdarg.h>

#include "fixture.h"
#include "store/redis.h"

const char *
redis_ask(int port, const char *fmt, ...)
{
    static char   text[16384];
    redisContext *c = redisConnect("127.0.0.1", port);
    redisReply   *reply;
    va_list       args;

    CHECK(c != NULL && c->err == 0);
    va_start(args, fmt);
    reply = redisvCommand(c, fmt, args);
    va_end(args);
    CHECK(reply != NULL);
    if (reply->type == REDIS_REPLY_ERROR)
        test_fail(__FILE__, __LINE__, "%s: %s", fmt, reply->str);
    if (reply->type == REDIS_REPLY_ARRAY)
        (void)snprintf(text, sizeof text, "%lld",
                       reply->elements > 1 ? reply->element[1]->integer : -1);
    else if (reply->type == REDIS_REPLY_INTEGER)
        (void)snprintf(text, sizeof text, "%lld", reply->integer);
    else
        (void)snprintf(text, sizeof text, "%s", reply->str);
    freeReplyObject(reply);
    redisFree(c);
    return text;
}

const char *
redis_field(int port, const char *section, const char *field)
{
    static char text[64];

    text[0] = '\0';
    (void)stet__redis_info(redis_ask(port, "INFO %s", section), field, text, sizeof text);
    return text;
}

long long
redis_number(int port, const char *section, const char *field)
{
    return strtoll(redis_field(port, section, field), NULL, 10);
}

redis_server *
redis_one(void)
{
    redis_server *s = redis_server_new("repl-diskless-sync-delay 0");

    if (s == NULL)
        test_fail(__FILE__, __LINE__, "no server: %s", redis_server_why());
    return s;
}

void
redis_pair(redis_server **primary, redis_server **replica)
{
    *primary = redis_one();
    *replica = redis_one();
    (void)redis_ask((*replica)->port, "REPLICAOF 127.0.0.1 %d", (*primary)->port);
    AWAIT(strcmp(redis_field((*replica)->port, "replication", "master_link_status"), "up") == 0);
}

void
redis_pair_swap(const redis_server *primary, const redis_server *replica)
{
    long long at = redis_number(primary->port, "replication", "master_repl_offset");

    AWAIT(redis_number(replica->port, "replication", "slave_repl_offset") >= at);
    (void)redis_ask(replica->port, "REPLICAOF NO ONE");
    (void)redis_ask(primary->port, "REPLICAOF 127.0.0.1 1");
    CHECK_STR(redis_field(replica->port, "replication", "role"), "master");
    CHECK_STR(redis_field(primary->port, "replication", "role"), "slave");
}
#endif
