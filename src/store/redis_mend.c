/* Are rows, values and timers in the indexes they are found by? And set right what is not. What they
 * are indexes of (rows, values, timers) the engine compares with the facts.
 *
 * Goes through all keys by SCAN, three times; SCAN tells every key that was there all the time, and
 * some of them twice. Each page is looked at by one call of a script, so a record and its entries are
 * seen together, however busy the store is. What is missing is told by a call that writes nothing and
 * added by another: both can be repeated if the connection is lost. */
#include <stdio.h>
#include <string.h>

#include "store/redis.h"

#define MEND_STATUSES 64

typedef struct mend {
    redis_store  *st;
    bool          is_repairing;
    stet_check_fn fn;
    void         *arg;
    stet__map     told; /* what and name, because SCAN may tell a key twice */
    char          quiet[MEND_STATUSES + 1];
} mend;

static int
mend_no_memory(const mend *m)
{
    return stet__fail(STET_ENOMEM, "store %s: out of memory", m->st->name);
}

static int
mend_nonsense(const mend *m)
{
    return stet__fail(STET_EIO, "store %s: a look at its indexes was answered with nonsense",
                      m->st->name);
}

/* A name behind its length. */
static void
mend_name(stet__buf *names, const char *name, size_t len)
{
    uint8_t raw[4] = { (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                       (uint8_t)len };

    stet__buf_add(names, raw, sizeof raw);
    stet__buf_add(names, name, len);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Again on a new connection if it was lost: nothing of it is done twice. */
static int
mend_run(mend *m, const redis_words *w, redisReply **reply)
{
    redis_conn *c;
    int         err;

    *reply = NULL;
    if ((c = stet__redis_reader_get(m->st, &err)) == NULL)
        return err;
    if ((err = stet__redis_run(m->st, c, REDIS_MEND, w, reply, "look at an index")) != STET_OK &&
        stet__redis_is_lost(m->st, c) && (err = stet__redis_conn_need(m->st, c)) == STET_OK)
        err = stet__redis_run(m->st, c, REDIS_MEND, w, reply, "look at an index");
    stet__redis_reader_put(m->st, c);
    if (err != STET_OK)
        return err;
    for (size_t i = 0;
         err == STET_OK && (*reply)->type == REDIS_REPLY_ARRAY && i < (*reply)->elements; i++)
        if ((*reply)->element[i]->type != REDIS_REPLY_STRING)
            err = mend_nonsense(m);
    if (err == STET_OK && (*reply)->type != REDIS_REPLY_ARRAY)
        err = mend_nonsense(m);
    if (err != STET_OK) {
        freeReplyObject(*reply);
        *reply = NULL;
    }
    return err;
}

/* first: names, or the space they are of; second: NULL, a cursor, or names. */
static int
mend_ask(mend *m, const char *what, bool adds, stet_bytes first, const stet_bytes *second,
         redisReply **reply)
{
    redis_words w = { 0 };

    stet__redis_word_script(m->st, &w, REDIS_MEND);
    stet__redis_word(&w, what);
    stet__redis_word(&w, adds ? "1" : "0");
    stet__redis_word(&w, m->quiet);
    stet__redis_word_bytes(&w, first.data, first.len);
    if (second != NULL)
        stet__redis_word_bytes(&w, second->data, second->len);
    return mend_run(m, &w, reply);
}

/* ---- telling --------------------------------------------------------------------------------- */

static int
mend_tell(mend *m, char what, stet_bytes name, const stet_id *run, const char *sentence)
{
    stet__buf key;
    bool      is_new;
    int       err = STET_OK;

    stet__buf_init(&key, m->st->base.alloc);
    stet__buf_byte(&key, (uint8_t)what);
    stet__buf_add(&key, name.data, name.len);
    is_new = !key.failed && stet__map_find(&m->told, key.data, key.len) == NULL;
    if (key.failed || (is_new && stet__map_put(&m->told, key.data, key.len, m) != STET_OK))
        err = mend_no_memory(m);
    stet__buf_free(&key);
    return err == STET_OK && is_new ? m->fn(m->arg, run, sentence, m->is_repairing) : err;
}

static const char *
mend_sentence(char what)
{
    switch (what) {
    case 'a': return "the list of all runs leaves it out";
    case 'q': return "the queue does not have it: no worker finds it when it is due";
    case 'o':
        return "the list of its session leaves it out: nobody takes it over when that has ended";
    case 't': return "a timer of it is not among those that fire";
    default: return "it is not found by its status: a worker that has new code leaves it as it is";
    }
}

/* Of runs: ID and letters in turn. */
static int
mend_tell_runs(mend *m, const redisReply *found)
{
    int err = STET_OK;

    for (size_t i = 0; err == STET_OK && i + 1 < found->elements; i += 2) {
        const redisReply *name = found->element[i], *what = found->element[i + 1];
        stet_id           run;

        if (name->len != sizeof run.bytes)
            continue; /* no ID: nobody would look for it */
        memcpy(run.bytes, name->str, sizeof run.bytes);
        for (size_t k = 0; err == STET_OK && k < what->len; k++)
            err = mend_tell(m, what->str[k], (stet_bytes){ name->str, name->len }, &run,
                            mend_sentence(what->str[k]));
    }
    return err;
}

/* ---- runs and timers ------------------------------------------------------------------------- */

static int
mend_runs(mend *m, const char *kind, const stet__buf *names)
{
    redisReply *found, *done = NULL;
    int         err = mend_ask(m, kind, false, stet__buf_bytes(names), NULL, &found);

    if (err == STET_OK && m->is_repairing && found->elements > 0)
        err = mend_ask(m, kind, true, stet__buf_bytes(names), NULL, &done);
    if (err == STET_OK)
        err = mend_tell_runs(m, found);
    freeReplyObject(done);
    freeReplyObject(found);
    return err;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Key and the run that wrote it in turn, behind the cursor. */
static int
mend_tell_values(mend *m, stet_bytes space, const redisReply *found)
{
    char      text[256];
    stet__buf name;
    int       err = STET_OK;

    (void)snprintf(text, sizeof text, "a value is left out of the list of space %.*s",
                   space.len > 128 ? 128 : (int)space.len, (const char *)space.data);
    stet__buf_init(&name, m->st->base.alloc);
    for (size_t i = 1; err == STET_OK && i + 1 < found->elements; i += 2) {
        const redisReply *key = found->element[i], *by = found->element[i + 1];
        stet_id           run = { { 0 } };

        if (by->len == sizeof run.bytes)
            memcpy(run.bytes, by->str, sizeof run.bytes);
        stet__buf_cut(&name, 0);
        mend_name(&name, space.data, space.len);
        stet__buf_add(&name, key->str, key->len);
        err = name.failed ? mend_no_memory(m)
                          : mend_tell(m, 'v', stet__buf_bytes(&name),
                                      stet__id_is_zero(run) ? NULL : &run, text);
    }
    stet__buf_free(&name);
    return err;
}

static int
mend_add_values(mend *m, stet_bytes space, const redisReply *found)
{
    redisReply *done = NULL;
    stet__buf   names;
    stet_bytes  keys;
    int         err;

    stet__buf_init(&names, m->st->base.alloc);
    for (size_t i = 1; i + 1 < found->elements; i += 2)
        mend_name(&names, found->element[i]->str, found->element[i]->len);
    keys = stet__buf_bytes(&names);
    err = names.failed ? mend_no_memory(m) : mend_ask(m, "x", true, space, &keys, &done);
    freeReplyObject(done);
    stet__buf_free(&names);
    return err;
}

static int
mend_space(mend *m, stet_bytes space)
{
    char        cursor[32] = "0";
    redisReply *found;
    int         err;

    do {
        stet_bytes at = stet_text(cursor);

        if ((err = mend_ask(m, "v", false, space, &at, &found)) != STET_OK)
            return err;
        if (found->elements == 0)
            err = mend_nonsense(m);
        else
            (void)snprintf(cursor, sizeof cursor, "%s", found->element[0]->str);
        if (err == STET_OK && m->is_repairing && found->elements > 1)
            err = mend_add_values(m, space, found);
        if (err == STET_OK)
            err = mend_tell_values(m, space, found);
        freeReplyObject(found);
    } while (err == STET_OK && strcmp(cursor, "0") != 0);
    return err;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Of these keys the parts behind "{prefix}:" KIND ":". */
static int
mend_page(mend *m, const char *kind, const redisReply *keys)
{
    size_t    head = strlen(m->st->key) + 2;
    stet__buf names;
    int       err = STET_OK;

    stet__buf_init(&names, m->st->base.alloc);
    for (size_t i = 0; err == STET_OK && i < keys->elements; i++) {
        const redisReply *e = keys->element[i];

        if (e->type != REDIS_REPLY_STRING || e->len < head)
            err = mend_nonsense(m);
        else if (kind[0] == 'v')
            err = mend_space(m, (stet_bytes){ e->str + head, e->len - head });
        else
            mend_name(&names, e->str + head, e->len - head);
    }
    if (err == STET_OK && names.failed)
        err = mend_no_memory(m);
    if (err == STET_OK && names.len > 0)
        err = mend_runs(m, kind, &names);
    stet__buf_free(&names);
    return err;
}

static int
mend_kind(mend *m, const char *kind)
{
    char        cursor[32] = "0", pattern[sizeof m->st->key + 8];
    redisReply *reply;
    int         err;

    (void)snprintf(pattern, sizeof pattern, "%s%s:*", m->st->key, kind);
    do {
        redis_words w = { 0 };

        stet__redis_word(&w, "SCAN");
        stet__redis_word(&w, cursor);
        stet__redis_word(&w, "MATCH");
        stet__redis_word(&w, pattern);
        stet__redis_word(&w, "COUNT");
        stet__redis_word(&w, "500");
        if ((err = stet__redis_read(m->st, &w, 1, &reply, "look for keys")) == STET_OK) {
            if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
                reply->element[0]->type != REDIS_REPLY_STRING ||
                reply->element[1]->type != REDIS_REPLY_ARRAY) {
                err = mend_nonsense(m);
            } else {
                (void)snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
                err = mend_page(m, kind, reply->element[1]);
            }
        }
        freeReplyObject(reply);
    } while (err == STET_OK && strcmp(cursor, "0") != 0);
    return err;
}

int
stet__redis_check(stet_store *s, bool is_repairing, stet_check_fn fn, void *arg)
{
    mend m = { .st = redis_of(s), .is_repairing = is_repairing, .fn = fn, .arg = arg };
    int  err;

    if ((err = stet__redis_enter(m.st)) != STET_OK)
        return err;
    for (unsigned i = 0; i < MEND_STATUSES; i++)
        m.quiet[i] = s->quiet >> i & 1u ? '1' : '0';
    stet__map_init(&m.told, s->alloc);
    if ((err = mend_kind(&m, "r")) == STET_OK && (err = mend_kind(&m, "v")) == STET_OK)
        err = mend_kind(&m, "k");
    stet__map_free(&m.told);
    return err;
}
