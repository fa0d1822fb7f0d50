/* repair=1 in the address: indexes that were lost are made again from what they are indexes of,
 * before the store is used. What they are indexes of (rows, values, timers) the engine's repair
 * makes again from facts.
 *
 * Goes through all keys by SCAN, three times; SCAN tells every key that was there all the time. */
#include <stdio.h>
#include <string.h>

#include "store/redis.h"

/* Of these keys the parts behind "{prefix}:" KIND ":", each behind its length. */
static bool
mend_names(redis_store *st, const redisReply *keys, stet__buf *names)
{
    size_t head = strlen(st->key) + 2;

    for (size_t i = 0; i < keys->elements; i++) {
        const redisReply *e = keys->element[i];
        size_t            len = e->len > head ? e->len - head : 0;
        uint8_t raw[4] = { (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                           (uint8_t)len };

        stet__buf_add(names, raw, sizeof raw);
        stet__buf_add(names, e->str + head, len);
    }
    return !names->failed;
}

static int
mend_page(redis_store *st, const char *kind, const redisReply *keys)
{
    redis_words w = { 0 };
    redisReply *reply = NULL;
    stet__buf   names;
    int         err;

    stet__buf_init(&names, st->base.alloc);
    stet__redis_word_script(st, &w, REDIS_MEND);
    stet__redis_word(&w, kind);
    if (!mend_names(st, keys, &names)) {
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    } else {
        stet__redis_word_bytes(&w, names.data, names.len);
        err = stet__redis_run(st, &st->side, REDIS_MEND, &w, &reply, "repair an index");
    }
    freeReplyObject(reply);
    stet__buf_free(&names);
    return err;
}

static int
mend_kind(redis_store *st, const char *kind)
{
    char        cursor[32] = "0", pattern[sizeof st->key + 8];
    redisReply *reply;
    int         err;

    (void)snprintf(pattern, sizeof pattern, "%s%s:*", st->key, kind);
    do {
        redis_words w = { 0 };

        stet__redis_word(&w, "SCAN");
        stet__redis_word(&w, cursor);
        stet__redis_word(&w, "MATCH");
        stet__redis_word(&w, pattern);
        stet__redis_word(&w, "COUNT");
        stet__redis_word(&w, "500");
        if ((err = stet__redis_ask(st, &st->side, &w, &reply, "look for keys")) != STET_OK)
            return err;
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
            reply->element[0]->type != REDIS_REPLY_STRING ||
            reply->element[1]->type != REDIS_REPLY_ARRAY) {
            err = stet__fail(STET_EIO, "store %s: SCAN was answered with nonsense", st->name);
        } else {
            (void)snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
            err = mend_page(st, kind, reply->element[1]);
        }
        freeReplyObject(reply);
    } while (err == STET_OK && strcmp(cursor, "0") != 0);
    return err;
}

int
stet__redis_mend(redis_store *st)
{
    int err;

    if ((err = mend_kind(st, "r")) != STET_OK || (err = mend_kind(st, "v")) != STET_OK)
        return err;
    return mend_kind(st, "k");
}
