/* Reads: one or two commands each, on one of a few connections that are shared by all threads.
 *
 * What was read is handed out after the connection is free again. A connection that turns out to be
 * lost (the server was restarted) is made anew once before the read fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis.h"

#define READ_LIMIT_MAX 1000000000 /* Lua counts in doubles, Redis in 64 bits; nobody reads more */

/* ---- connections ----------------------------------------------------------------------------- */

static size_t
reader_free(const redis_store *st)
{
    size_t found = REDIS_READERS;

    for (size_t i = 0; i < REDIS_READERS; i++) {
        if (st->reader_busy[i])
            continue;
        if (st->readers[i].ctx != NULL)
            return i;
        if (found == REDIS_READERS)
            found = i;
    }
    return found;
}

redis_conn *
stet__redis_reader_get(redis_store *st, int *err)
{
    stet__platform *p = st->base.platform;
    size_t          i;

    if ((*err = stet__redis_enter(st)) != STET_OK)
        return NULL;
    __atomic_fetch_add(&st->base.reads, 1, __ATOMIC_RELAXED);
    stet__lock(p, &st->read_lock);
    while ((i = reader_free(st)) == REDIS_READERS)
        (void)stet__wait(p, &st->read_cond, &st->read_lock, STET__FOREVER);
    st->reader_busy[i] = true;
    stet__unlock(p, &st->read_lock);
    if ((*err = stet__redis_conn_need(st, &st->readers[i])) == STET_OK)
        return &st->readers[i];
    stet__redis_reader_put(st, &st->readers[i]);
    return NULL;
}

void
stet__redis_reader_put(redis_store *st, redis_conn *c)
{
    stet__lock(st->base.platform, &st->read_lock);
    st->reader_busy[c - st->readers] = false;
    stet__signal(st->base.platform, &st->read_cond);
    stet__unlock(st->base.platform, &st->read_lock);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int
read_try(redis_store *st, redis_conn *c, const redis_words *commands, size_t n,
         redisReply **replies, const char *what)
{
    int err = STET_OK;

    for (size_t i = 0; i < n; i++)
        if (!stet__redis_append(c, &commands[i])) {
            stet__buf_free(&c->out);
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
        }
    if ((err = stet__redis_send(st, c, what)) != STET_OK)
        return err;
    for (size_t i = 0; i < n; i++)
        if ((err = stet__redis_answer(st, c, &replies[i], what)) != STET_OK)
            return err;
    for (size_t i = 0; i < n; i++)
        if (replies[i]->type == REDIS_REPLY_ERROR)
            return stet__redis_fail(st, replies[i]->str, what);
    return STET_OK;
}

static void
read_free(redisReply **replies, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        freeReplyObject(replies[i]);
        replies[i] = NULL;
    }
}

/* Commands sent together, an answer to each; freed by read_free() also after a failure. */
int
stet__redis_read(redis_store *st, const redis_words *commands, size_t n, redisReply **replies,
                 const char *what)
{
    redis_conn *c;
    int         err;

    memset(replies, 0, n * sizeof *replies);
    if ((c = stet__redis_reader_get(st, &err)) == NULL)
        return err;
    if ((err = read_try(st, c, commands, n, replies, what)) != STET_OK &&
        stet__redis_is_lost(st, c)) {
        read_free(replies, n);
        if ((err = stet__redis_conn_need(st, c)) == STET_OK)
            err = read_try(st, c, commands, n, replies, what);
    }
    stet__redis_reader_put(st, c);
    return err;
}

/* The read script; w has its arguments. */
int
stet__redis_read_script(redis_store *st, const redis_words *w, redisReply **reply, const char *what)
{
    redis_conn *c;
    int         err;

    *reply = NULL;
    if ((c = stet__redis_reader_get(st, &err)) == NULL)
        return err;
    if ((err = stet__redis_run(st, c, REDIS_READ, w, reply, what)) != STET_OK &&
        stet__redis_is_lost(st, c) && (err = stet__redis_conn_need(st, c)) == STET_OK)
        err = stet__redis_run(st, c, REDIS_READ, w, reply, what);
    stet__redis_reader_put(st, c);
    return err;
}

/* "{prefix}:" LETTER NAME. False: out of memory. */
bool
stet__redis_key(redis_store *st, stet__buf *b, const char *kind, const void *name, size_t len)
{
    stet__buf_init(b, st->base.alloc);
    stet__buf_str(b, st->key);
    stet__buf_str(b, kind);
    stet__buf_add(b, name, len);
    if (b->failed)
        (void)stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    return !b->failed;
}

/* One command on one key. */
static int
read_key(redis_store *st, redis_words *w, const char *kind, const void *name, size_t len,
         redisReply **reply, const char *what)
{
    stet__buf key;
    int       err = STET_ENOMEM;

    *reply = NULL;
    if (stet__redis_key(st, &key, kind, name, len)) {
        redis_words full = { 0 };

        stet__redis_word_bytes(&full, w->at[0], w->len[0]);
        stet__redis_word_bytes(&full, key.data, key.len);
        for (int i = 1; i < w->n; i++)
            stet__redis_word_bytes(&full, w->at[i], w->len[i]);
        err = stet__redis_read(st, &full, 1, reply, what);
    }
    stet__buf_free(&key);
    return err;
}

static int64_t
read_limit(size_t limit)
{
    return limit < READ_LIMIT_MAX ? (int64_t)limit : READ_LIMIT_MAX;
}

static int
read_damaged(redis_store *st, const char *what)
{
    return stet__fail(STET_ECORRUPT, "store %s: %s is damaged", st->name, what);
}

/* ---- facts ----------------------------------------------------------------------------------- */

/* From the beginning they need not be looked for, and no script. */
static int
read_entries(redis_store *st, const stet_id *run, uint64_t from, size_t limit, redisReply **reply)
{
    redis_words w = { 0 };

    if (from <= 1) {
        stet__redis_word(&w, "LRANGE");
        stet__redis_word_int(&w, 0);
        stet__redis_word_int(&w, read_limit(limit) - 1);
        return read_key(st, &w, "j:", run->bytes, sizeof run->bytes, reply, "read a journal");
    }
    stet__redis_word_script(st, &w, REDIS_READ);
    stet__redis_word(&w, "journal");
    stet__redis_word_bytes(&w, run->bytes, sizeof run->bytes);
    stet__redis_word_int(&w, (int64_t)from);
    stet__redis_word_int(&w, read_limit(limit));
    return stet__redis_read_script(st, &w, reply, "read a journal");
}

int
stet__redis_journal_give(redis_store *st, const redisReply *reply, stet_facts_fn fn, void *arg)
{
    int err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < reply->elements; i++) {
        const redisReply *e = reply->element[i];

        if (e->type != REDIS_REPLY_STRING || e->len < 12)
            err = read_damaged(st, "a journal");
        else
            err = fn(arg, stet__redis_get_be64(e->str), stet__redis_get_be32(e->str + 8),
                     (stet_bytes){ e->str + 12, e->len - 12 });
    }
    return err;
}

int
stet__redis_read_journal(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                         void *arg)
{
    redis_store *st = redis_of(s);
    redisReply  *reply = NULL;
    int          err;

    if (limit == 0)
        return stet__redis_enter(st);
    if ((err = read_entries(st, &run, from, limit, &reply)) == STET_OK)
        err = stet__redis_journal_give(st, reply, fn, arg);
    freeReplyObject(reply);
    return err;
}

int
stet__redis_read_inbox(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                       void *arg)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    redisReply  *reply;
    uint64_t     before;
    int          err;

    if (limit == 0)
        return stet__redis_enter(st);
    stet__redis_word_script(st, &w, REDIS_READ);
    stet__redis_word(&w, "inbox");
    stet__redis_word_bytes(&w, run.bytes, sizeof run.bytes);
    stet__redis_word_int(&w, from > 0 ? (int64_t)from : 1);
    stet__redis_word_int(&w, read_limit(limit));
    if ((err = stet__redis_read_script(st, &w, &reply, "read an inbox")) != STET_OK)
        return err;
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            err = read_damaged(st, "an inbox");
    before = err == STET_OK && reply->elements > 0 ? strtoull(reply->element[0]->str, NULL, 10) : 0;
    for (size_t i = 1; err == STET_OK && i < reply->elements; i++)
        err =
            fn(arg, before + i, 1, (stet_bytes){ reply->element[i]->str, reply->element[i]->len });
    freeReplyObject(reply);
    return err;
}

/* ---- timers ---------------------------------------------------------------------------------- */

static int64_t
timer_fire(const char *member)
{
    return (int64_t)(stet__redis_get_be64(member) ^ (UINT64_C(1) << 63));
}

static bool
timer_is_whole(const redisReply *e)
{
    return e->type == REDIS_REPLY_STRING && e->len == REDIS_TIMER_BYTES;
}

static int
timer_give(redis_store *st, const redisReply *e, stet_timer_fn fn, void *arg)
{
    stet_timer timer;

    if (!timer_is_whole(e))
        return read_damaged(st, "a timer");
    timer = (stet_timer){ .fire_ms = timer_fire(e->str),
                          .completion = stet__redis_get_be64(e->str + 24) };
    memcpy(timer.run.bytes, e->str + 8, sizeof timer.run.bytes);
    return fn(arg, &timer);
}

/* What is due and one more, and the first of what is not. */
int
stet__redis_read_timers(stet_store *s, int64_t until_ms, size_t limit, stet_timer_fn fn, void *arg,
                        int64_t *next_ms)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    redisReply  *reply;
    uint8_t      bound[8];
    size_t       n;
    bool         is_all = until_ms == INT64_MAX;
    int          err;

    stet__redis_put_be64(bound, (uint64_t)(is_all ? 0 : until_ms + 1) ^ (UINT64_C(1) << 63));
    stet__redis_word_script(st, &w, REDIS_READ);
    stet__redis_word(&w, "timers");
    stet__redis_word_bytes(&w, bound, is_all ? 0 : sizeof bound);
    stet__redis_word_int(&w, read_limit(limit));
    if ((err = stet__redis_read_script(st, &w, &reply, "read timers")) != STET_OK)
        return err;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        freeReplyObject(reply);
        return read_damaged(st, "the list of timers");
    }
    n = reply->elements - 1; /* the last is the next */
    if (reply->element[n]->len > 0 && !timer_is_whole(reply->element[n]))
        err = read_damaged(st, "a timer");
    else if (next_ms != NULL)
        *next_ms = reply->element[n]->len > 0 ? timer_fire(reply->element[n]->str) : STET_NEVER;
    for (size_t i = 0; err == STET_OK && i < n; i++)
        err = timer_give(st, reply->element[i], fn, arg);
    freeReplyObject(reply);
    return err;
}

int
stet__redis_read_timers_of(stet_store *s, stet_id run, stet_timer_fn fn, void *arg)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    redisReply  *reply;
    int          err;

    stet__redis_word(&w, "ZRANGE");
    stet__redis_word(&w, "0");
    stet__redis_word(&w, "-1");
    err = read_key(st, &w, "k:", run.bytes, sizeof run.bytes, &reply, "read timers");
    for (size_t i = 0; err == STET_OK && i < reply->elements; i++) {
        const redisReply *e = reply->element[i];
        stet_timer        timer = { .run = run };

        if (e->len != 16) {
            err = read_damaged(st, "a timer");
            break;
        }
        timer.fire_ms = timer_fire(e->str);
        timer.completion = stet__redis_get_be64(e->str + 8);
        err = fn(arg, &timer);
    }
    freeReplyObject(reply);
    return err;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool
value_decode(const redisReply *e, stet_value *v)
{
    stet_bytes in = { e->str, e->len }, revision;
    size_t     n;

    if (e->type != REDIS_REPLY_STRING || !stet__redis_take_array(&in, &n) || n != 4 ||
        !stet__redis_take_uint(&in, &v->version) || !stet__redis_take_id(&in, &v->run) ||
        !stet__redis_take_bytes(&in, &revision) || revision.len != 8 ||
        !stet__redis_take_bytes(&in, &v->data))
        return false;
    v->revision = stet__redis_get_be64(revision.data);
    return true;
}

int
stet__redis_read_value(stet_store *s, const char *space, stet_bytes key, stet_value *value)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    redisReply  *reply;
    void        *copy;
    int          err;

    memset(value, 0, sizeof *value);
    stet__redis_word(&w, "HGET");
    stet__redis_word_bytes(&w, key.data, key.len);
    if ((err = read_key(st, &w, "v:", space, strlen(space), &reply, "read a value")) != STET_OK)
        goto done;
    if (reply->type == REDIS_REPLY_NIL) {
        err = stet__fail(STET_ENOTFOUND, "value in space %s: %s", space,
                         stet_code_text(STET_ENOTFOUND));
    } else if (!value_decode(reply, value)) {
        memset(value, 0, sizeof *value);
        err = read_damaged(st, "a value");
    } else if ((copy = stet__get(s->alloc, value->data.len)) == NULL) {
        memset(value, 0, sizeof *value);
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    } else {
        if (value->data.len > 0)
            memcpy(copy, value->data.data, value->data.len);
        value->data.data = copy;
    }
done:
    freeReplyObject(reply);
    return err;
}

/* The smallest text that is greater than all that begin with the prefix; false: there is none. */
static bool
values_end(stet__buf *b)
{
    while (b->len > 1 && b->data[b->len - 1] == 0xff)
        b->len--;
    if (b->len <= 1)
        return false;
    b->data[b->len - 1]++;
    return true;
}

static bool
values_is_after(stet_bytes after, stet_bytes prefix)
{
    size_t len = after.len < prefix.len ? after.len : prefix.len;
    int    order = len == 0 ? 0 : memcmp(after.data, prefix.data, len);

    return order != 0 ? order > 0 : after.len >= prefix.len;
}

int
stet__redis_read_values(stet_store *s, const char *space, stet_bytes prefix,
                        const stet_bytes *after, size_t limit, stet_value_fn fn, void *arg)
{
    redis_store *st = redis_of(s);
    bool         is_after = after != NULL && values_is_after(*after, prefix);
    redis_words  w = { 0 };
    redisReply  *reply = NULL;
    stet__buf    low, high;
    int          err;

    stet__buf_init(&low, s->alloc);
    stet__buf_init(&high, s->alloc);
    stet__buf_byte(&low, is_after ? '(' : '[');
    stet__buf_add(&low, is_after ? after->data : prefix.data, is_after ? after->len : prefix.len);
    stet__buf_byte(&high, '(');
    stet__buf_add(&high, prefix.data, prefix.len);
    err = low.failed || high.failed ? stet__fail(STET_ENOMEM, "store %s: out of memory", st->name)
                                    : stet__redis_enter(st);
    if (err != STET_OK || limit == 0)
        goto done;
    stet__redis_word_script(st, &w, REDIS_READ);
    stet__redis_word(&w, "values");
    stet__redis_word(&w, space);
    stet__redis_word_bytes(&w, low.data, low.len);
    if (values_end(&high))
        stet__redis_word_bytes(&w, high.data, high.len);
    else
        stet__redis_word(&w, "+");
    stet__redis_word_int(&w, read_limit(limit));
    err = stet__redis_read_script(st, &w, &reply, "read values");
    for (size_t i = 0; err == STET_OK && i + 1 < reply->elements; i += 2) {
        stet_value value;

        if (!value_decode(reply->element[i + 1], &value))
            err = read_damaged(st, "a value");
        else
            err = fn(arg, (stet_bytes){ reply->element[i]->str, reply->element[i]->len }, &value);
    }
done:
    freeReplyObject(reply);
    stet__buf_free(&low);
    stet__buf_free(&high);
    return err;
}

/* ---- lanes, due times, life ------------------------------------------------------------------ */

int
stet__redis_read_lane(stet_store *s, const char *lane, size_t limit, stet_lane_fn fn, void *arg)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    redisReply  *reply;
    int          err;

    if (limit == 0)
        return stet__redis_enter(st);
    stet__redis_word(&w, "ZRANGE");
    stet__redis_word(&w, "0");
    stet__redis_word_int(&w, read_limit(limit) - 1);
    err = read_key(st, &w, "l:", lane, strlen(lane), &reply, "read a lane");
    for (size_t i = 0; err == STET_OK && i < reply->elements; i++) {
        stet_id id;

        if (reply->element[i]->len != sizeof id.bytes) {
            err = read_damaged(st, "a lane");
            break;
        }
        memcpy(id.bytes, reply->element[i]->str, sizeof id.bytes);
        err = fn(arg, id);
    }
    freeReplyObject(reply);
    return err;
}

/* The first of each handler, so many handlers a round trip. */
int
stet__redis_read_due(stet_store *s, const char *const *handlers, size_t n, int64_t *due_ms)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    redisReply  *reply = NULL;
    stet__buf    names;
    int          err;

    *due_ms = STET_NEVER;
    stet__buf_init(&names, s->alloc);
    for (size_t i = 0; i < n; i++)
        stet__buf_add(&names, handlers[i], strlen(handlers[i]) + 1);
    stet__redis_word_script(st, &w, REDIS_READ);
    stet__redis_word(&w, "due");
    stet__redis_word_bytes(&w, names.data, names.len);
    err = names.failed ? stet__fail(STET_ENOMEM, "store %s: out of memory", st->name)
                       : stet__redis_read_script(st, &w, &reply, "ask for due runs");
    if (err == STET_OK && reply->type == REDIS_REPLY_STRING && reply->len == 24)
        *due_ms = (int64_t)((uint64_t)stet__redis_get_be64(reply->str) - (uint64_t)REDIS_DUE_BIAS);
    freeReplyObject(reply);
    stet__buf_free(&names);
    return err;
}

/* Seconds, and microseconds of the next one. */
static void
read_time(redis_store *st, const redisReply *reply)
{
    int64_t part[2];

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        return;
    for (int i = 0; i < 2; i++) {
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            return;
        part[i] = strtoll(reply->element[i]->str, NULL, 10);
    }
    if (part[0] > 0 && part[0] < REDIS_DUE_BIAS / 1000)
        stet__redis_clock_seen(st, part[0] * 1000 + part[1] / 1000);
}

int
stet__redis_ping(stet_store *s)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    redisReply  *reply;
    int          err;

    stet__redis_word(&w, "TIME");
    err = stet__redis_read(st, &w, 1, &reply, "ask the server for its time");
    if (err == STET_OK)
        read_time(st, reply);
    freeReplyObject(reply);
    return err;
}
