/* What the server's settings can lose, and whether the user of the address may do what is needed.
 *
 * Redis answers a commit after it wrote its log, and flushed it if appendfsync is "always". With
 * any other setting, and if it may evict keys, work that was acknowledged can be lost without a
 * word. Such a server is refused unless the address says allow_lossy=1; then the doctor says what
 * can be lost. Settings are read by CONFIG GET, or from INFO where that is forbidden, again by
 * every maintain().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis.h"

/* ---- reading --------------------------------------------------------------------------------- */

bool
stet__redis_info(const char *info, const char *field, char *out, size_t size)
{
    size_t      len = strlen(field);
    const char *line = info;

    while (line != NULL && !(strncmp(line, field, len) == 0 && line[len] == ':')) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    if (line == NULL)
        return false;
    line += len + 1;
    (void)snprintf(out, size, "%.*s", (int)strcspn(line, "\r\n"), line);
    return true;
}

/* "" when the server does not tell; an error only if it is lost. */
static int
doctor_config(redis_store *st, redis_conn *c, const char *name, char *out, size_t size)
{
    redis_words w = { 0 };
    redisReply *reply;
    int         err;

    out[0] = '\0';
    stet__redis_word(&w, "CONFIG");
    stet__redis_word(&w, "GET");
    stet__redis_word(&w, name);
    if ((err = stet__redis_ask(st, c, &w, &reply, "read its settings")) != STET_OK)
        return stet__redis_is_lost(st, c) ? err : STET_OK;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        reply->element[1]->type == REDIS_REPLY_STRING)
        (void)snprintf(out, size, "%s", reply->element[1]->str);
    freeReplyObject(reply);
    return STET_OK;
}

static void
doctor_info_take(redis_settings *s, const char *info)
{
    char text[32];

    if (s->appendonly[0] == '\0' && stet__redis_info(info, "aof_enabled", text, sizeof text))
        (void)snprintf(s->appendonly, sizeof s->appendonly, "%s", text[0] == '1' ? "yes" : "no");
    if (s->policy[0] == '\0')
        (void)stet__redis_info(info, "maxmemory_policy", s->policy, sizeof s->policy);
    if (s->maxmemory < 0 && stet__redis_info(info, "maxmemory", text, sizeof text))
        s->maxmemory = strtoll(text, NULL, 10);
    s->is_writing_badly = stet__redis_info(info, "aof_last_write_status", text, sizeof text) &&
                          strcmp(text, "ok") != 0;
}

static int
doctor_info(redis_store *st, redis_conn *c, redis_settings *s)
{
    redis_words w = { 0 };
    redisReply *reply;
    int         err;

    stet__redis_word(&w, "INFO");
    if ((err = stet__redis_ask(st, c, &w, &reply, "read its settings")) != STET_OK)
        return err;
    if (reply->type == REDIS_REPLY_STRING)
        doctor_info_take(s, reply->str);
    freeReplyObject(reply);
    return STET_OK;
}

static int
doctor_read(redis_store *st, redis_conn *c, redis_settings *s)
{
    char memory[32];
    int  err;

    memset(s, 0, sizeof *s);
    if ((err = doctor_config(st, c, "appendonly", s->appendonly, sizeof s->appendonly)) !=
            STET_OK ||
        (err = doctor_config(st, c, "appendfsync", s->appendfsync, sizeof s->appendfsync)) !=
            STET_OK ||
        (err = doctor_config(st, c, "maxmemory-policy", s->policy, sizeof s->policy)) != STET_OK ||
        (err = doctor_config(st, c, "maxmemory", memory, sizeof memory)) != STET_OK)
        return err;
    s->maxmemory = memory[0] != '\0' ? strtoll(memory, NULL, 10) : -1;
    if ((err = doctor_info(st, c, s)) != STET_OK)
        return err;
    s->is_known = true;
    return STET_OK;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* What can be lost, as the end of a sentence; NULL: nothing that was acknowledged. */
static const char *
doctor_log_risk(const redis_settings *s)
{
    if (s->appendonly[0] == '\0')
        return "the server does not tell whether it keeps a log (appendonly), so everything since "
               "its last snapshot may be lost when it stops";
    if (strcmp(s->appendonly, "yes") != 0)
        return "the server keeps no log (appendonly no): when it stops, everything since its last "
               "snapshot is lost, or everything";
    if (s->appendfsync[0] == '\0')
        return "the server does not tell how it flushes its log (CONFIG is forbidden), so what it "
               "acknowledged may be lost when its machine stops";
    if (strcmp(s->appendfsync, "everysec") == 0)
        return "the server flushes its log once a second (appendfsync everysec): when its machine "
               "stops, up to two seconds of acknowledged work are lost; a killed server loses "
               "nothing";
    if (strcmp(s->appendfsync, "always") != 0)
        return "the server leaves flushing its log to the system (appendfsync no): when its "
               "machine "
               "stops, half a minute of acknowledged work or more is lost";
    return NULL;
}

static bool
doctor_evicts(const redis_settings *s)
{
    return s->maxmemory != 0 && strcmp(s->policy, "noeviction") != 0;
}

#define DOCTOR_EVICTS                                                                              \
    "the server removes keys when its memory is full (maxmemory-policy %s): runs and facts would " \
    "vanish without a word"

int
stet__redis_doctor_open(redis_store *st, redis_conn *c)
{
    redis_settings *s = &st->settings;
    const char     *risk;
    int             err;

    if ((err = doctor_read(st, c, s)) != STET_OK)
        return err;
    if (st->is_lossy_allowed)
        return STET_OK;
    if ((risk = doctor_log_risk(s)) != NULL)
        return stet__fail(STET_ECONFIG,
                          "store %s: %s. Set appendonly yes and appendfsync always, or put "
                          "allow_lossy=1 into the address",
                          st->name, risk);
    if (doctor_evicts(s))
        return stet__fail(STET_ECONFIG,
                          "store %s: " DOCTOR_EVICTS ". Set maxmemory-policy noeviction, or put "
                          "allow_lossy=1 into the address",
                          st->name, s->policy[0] != '\0' ? s->policy : "unknown");
    return STET_OK;
}

int
stet__redis_doctor(stet_store *s, stet_doctor_fn fn, void *arg)
{
    redis_store   *st = redis_of(s);
    redis_settings now;
    const char    *risk;
    char           text[400];
    int            err;

    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    stet__lock(s->platform, &st->side_lock);
    if ((err = stet__redis_conn_need(st, &st->side)) == STET_OK)
        err = doctor_read(st, &st->side, &now);
    stet__unlock(s->platform, &st->side_lock);
    if (err == STET_OK && (risk = doctor_log_risk(&now)) != NULL)
        err = fn(arg, risk);
    if (err == STET_OK && doctor_evicts(&now)) {
        (void)snprintf(text, sizeof text, DOCTOR_EVICTS,
                       now.policy[0] != '\0' ? now.policy : "unknown");
        err = fn(arg, text);
    }
    if (err == STET_OK && now.is_writing_badly)
        err = fn(arg, "the server could not write its log (aof_last_write_status): it refuses "
                      "commits until it can; see its disk and its own log");
    return err;
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* Every command the scripts write with, on keys of its own that are gone afterwards. */
static const char doctor_probe[] =
    "local a, b = KEYS[1] .. 'probe', KEYS[1] .. 'probe2' "
    "local call = redis.call "
    "call('DEL', a, b) call('SET', a, 1, 'PX', 1000) call('GET', a) call('MSET', a, 1) "
    "call('MGET', a) call('DEL', a) "
    "call('RPUSH', a, 1) call('LRANGE', a, 0, 0) call('LINDEX', a, 0) call('LLEN', a) call('DEL', "
    "a) "
    "call('ZADD', a, 0, 1) call('ZRANGE', a, 0, 0) call('ZRANGEBYLEX', a, '-', '+') "
    "call('ZREVRANGEBYLEX', a, '+', '-') call('ZSCORE', a, 1) call('ZREM', a, 1) "
    "call('HSET', a, 1, 1) call('HGET', a, 1) call('HGETALL', a) call('HLEN', a) "
    "call('HINCRBY', a, 1, 1) call('HSCAN', a, 0) call('HDEL', a, 1) call('EXISTS', a) "
    "call('HEXISTS', a, 1) call('TIME') "
    "return 1";

int
stet__redis_doctor_rights(redis_store *st, redis_conn *c)
{
    redis_words w = { 0 };
    redisReply *reply;
    int         err;

    stet__redis_word(&w, "EVAL");
    stet__redis_word(&w, doctor_probe);
    stet__redis_word(&w, "1");
    stet__redis_word(&w, st->key);
    if ((err = stet__redis_ask(st, c, &w, &reply, "use the commands stet needs")) == STET_OK)
        freeReplyObject(reply);
    return err;
}
