/* The quick scripts of the Redis store against the memory store. */
#include <stdio.h>
#include <string.h>

#include "redis_server.h"
#include "store/redis.h"
#include "test.h"

#define QUICK_PREFIX G4_redis

__attribute__((constructor)) static void
quick_server(void)
{
    test_before(redis_server_share);
}

static const char *
quick_url(void)
{
    char prefix[48];

    (void)snprintf(prefix, sizeof prefix, "t%s", test_unique());
    return redis_shared_url(prefix);
}

static long long
by_hand(redisContext *c, const char *command, const char *key, const char *kind, const char *name)
{
    redisReply *reply = redisCommand(c, command, key, kind, name);
    long long   is = -1;

    CHECK(reply != NULL && reply->type != REDIS_REPLY_ERROR);
    if (reply->type == REDIS_REPLY_INTEGER)
        is = reply->integer;
    if (reply->type == REDIS_REPLY_ARRAY)
        is = (long long)reply->elements;
    freeReplyObject(reply);
    return is;
}

static int
index_row(void *arg, const stet_run_row *row)
{
    redis_store  *st = ((void **)arg)[0];
    redisContext *c = ((void **)arg)[1];
    long long    *expected = ((void **)arg)[2];
    char          name[64];
    const char   *kind = row->session != 0                           ? "o"
                         : row->is_terminal                          ? NULL
                         : row->due_ms != STET_NEVER                 ? "q"
                         : (st->base.quiet >> row->status & 1u) != 0 ? NULL
                                                                     : "w";
    uint8_t       member[24];
    size_t        len = 16;
    redisReply   *reply;

    if (kind == NULL)
        return 0;
    ++*expected;
    memcpy(member, row->id.bytes, 16);
    (void)snprintf(name, sizeof name, "%s", row->handler);
    if (kind[0] == 'o')
        (void)snprintf(name, sizeof name, "%llu", (unsigned long long)row->session);
    if (kind[0] == 'w')
        (void)snprintf(name, sizeof name, "%u:%s", row->status, row->handler);
    if (kind[0] == 'q') {
        stet__redis_put_be64(member, (uint64_t)(row->due_ms + REDIS_DUE_BIAS));
        memcpy(member + 8, row->id.bytes, 16);
        len = sizeof member;
    }
    reply = redisCommand(c, "ZSCORE %s%s:%s %b", st->key, kind, name, member, len);
    CHECK(reply != NULL && reply->type == REDIS_REPLY_STRING); /* it is where it should be */
    freeReplyObject(reply);
    return 0;
}

/* Each run is in the one sorted set its row says, and the sets have no others. */
static void
quick_check_indexes(stet_store *s)
{
    redis_store   *st = redis_of(s);
    redisContext  *c = redisConnect(st->host, st->port);
    long long      expected = 0, found = 0;
    void          *arg[] = { st, c, &expected };
    stet_run_query query = { .limit = 1000 };
    redisReply    *keys;

    CHECK(c != NULL && c->err == 0);
    CHECK_OK(s->ops->runs(s, &query, index_row, arg));
    keys = redisCommand(c, "KEYS %s[oqw]:*", st->key);
    CHECK(keys != NULL && keys->type == REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < keys->elements; i++)
        found += by_hand(c, "ZCARD %s%s%s", keys->element[i]->str, "", "");
    freeReplyObject(keys);
    CHECK_INT(found, expected);
    redisFree(c);
}

static bool
quick_was_used(stet_store *s)
{
    const uint64_t *n = redis_of(s)->n_quick;

    quick_check_indexes(s);

    test_note("%llu commits by steps, %llu by wake, %llu by one",
              (unsigned long long)n[REDIS_STEPS], (unsigned long long)n[REDIS_WAKE],
              (unsigned long long)n[REDIS_ONE]);
    return n[REDIS_STEPS] > 200 && n[REDIS_WAKE] > 50 && n[REDIS_ONE] > 50;
}

static bool
quick_starts_were_used(stet_store *s)
{
    quick_check_indexes(s);
    test_note("%llu commits by starts", (unsigned long long)redis_of(s)->n_quick[REDIS_STARTS]);
    return redis_of(s)->n_quick[REDIS_STARTS] > 30;
}

#include "quick_suite.inc"

/* A server that forgot its scripts is told them again; what was asked for meanwhile the other
 * script did. */
TEST(G4_redis_quick_scripts_that_were_forgotten_are_loaded_again)
{
    quick         *q = calloc(1, sizeof *q);
    quick_batch   *b = calloc(1, sizeof *b);
    redis_store   *st;
    redisContext  *c;
    const uint64_t want[] = { 1, 1, 2 };

    CHECK(q != NULL && b != NULL);
    quick_begin(q);
    st = redis_of(q->server.store);
    CHECK((c = redisConnect(st->host, st->port)) != NULL && c->err == 0);
    for (size_t i = 0; i < 3; i++) {
        if (i == 1)
            (void)by_hand(c, "SCRIPT FLUSH%s%s%s", "", "", "");
        almost_begin(q, b, (uint32_t)i);
        (void)quick_cond(b, STET_COND_JOURNAL);
        quick_put(q, b, (uint32_t)i);
        (void)almost_facts(q, b, (uint32_t)i, 0);
        almost_end(q, b);
        CHECK_INT(st->n_quick[REDIS_STARTS], want[i]);
    }
    redisFree(c);
    quick_end(q);
    free(q);
    free(b);
}
