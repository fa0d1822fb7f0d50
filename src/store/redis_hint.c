/* Hints: "somebody changed something" by publish and subscribe, "work was left for anybody" by a
 * stream with a consumer group. All of them may be lost, doubled or late: they only make the engine
 * look sooner.
 *
 * What is of use to others is published, and every handle that watches hears of it, so an answer
 * that is waited for elsewhere arrives at once. The commit publishes what most wait for by itself,
 * with its flush: runs that ended, work that is left. What else there is the engine tells if it
 * listens itself (`told`), and the thread publishes that; else the commit does, and says no more
 * than that something changed. What a subscriber misses while it is disconnected is gone.
 * Therefore a commit that leaves runs due also adds an entry to the stream (which is cut to a
 * thousand or so), and the group gives each entry to one of those that watch. One that dies with
 * an entry in hand does not take the hint with it: it was not acknowledged, and another one claims
 * it (XAUTOCLAIM). An entry of our own is left for the others in the same way, because we left
 * that work for them. A handle that executes nothing (is_client) stays out of the group and only
 * hears what is published.
 *
 * A message is the committer it comes from, as text, and then entries: two bytes of length, a
 * letter, and 'w' the ID of the stream's entry about work that is left, 'k' the same behind a run,
 * if it is only that one, which got something: whoever has it parked takes it by name. 'r' a run,
 * 't' what the engine tells. None: something changed. Work is heard of both ways and told once.
 *
 * Runs that end have a channel of their own, and who waits for none does not listen there: every
 * end would wake every worker. Waiting shows by load() of what has ended; from then on the handle
 * listens.
 *
 * Runs on: one thread a handle, with a connection each for the channel, the stream, and what it
 * publishes. It waits at all of them, and at an eventfd.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "store/redis.h"

#define HINT_GROUP    "workers"
#define HINT_BLOCK_MS 10000 /* then the stream is asked again, and what others left is looked at */
#define HINT_IDLE_MS  5000  /* an entry that was taken so long ago and not acknowledged */
#define HINT_RETRY_MS 250
#define HINT_ACK_MS   20
/* A server that says nothing at all for so long is gone: the wait for the stream ends before. Who
 * has no stream cannot tell, and subscribes anew. */
#define HINT_SILENT_MS (3 * HINT_BLOCK_MS)

static void
hint_key(const redis_store *st, char *out, size_t size, const char *kind)
{
    (void)snprintf(out, size, "%s%s", st->key, kind);
}

/* What this connection is for was refused: it is asked for again on a new one, not at once. */
static void
hint_put_off(redis_store *st, redis_conn *c)
{
    stet__redis_conn_close(c);
    c->retry_us = stet__mono_us(st->base.platform) + HINT_RETRY_MS * 1000;
}

/* ---- the channel ----------------------------------------------------------------------------- */

static int
hint_subscribe_to(redis_store *st, const char *kind)
{
    char        channel[sizeof st->key + 2];
    redis_words w = { 0 };
    redisReply *reply;
    int         err;

    hint_key(st, channel, sizeof channel, kind);
    stet__redis_word(&w, "SUBSCRIBE");
    stet__redis_word(&w, channel);
    if ((err = stet__redis_ask(st, &st->news, &w, &reply, "listen to others")) == STET_OK)
        freeReplyObject(reply);
    return err;
}

static int
hint_subscribe(redis_store *st)
{
    int err;

    st->hears_ends = st->base.is_client || st->base.wants_ends || st->base.told == NULL ||
                     atomic_load(&st->wants_ends);
    if ((err = stet__redis_conn_need(st, &st->news)) != STET_OK)
        return err;
    if ((err = hint_subscribe_to(st, "n")) == STET_OK && st->hears_ends)
        err = hint_subscribe_to(st, "e");
    if (err != STET_OK)
        hint_put_off(st, &st->news);
    return err;
}

/* Somebody waits now. When the server has said that we listen, they look again: what ended
 * before was not heard. */
static void
hint_subscribe_ends(redis_store *st)
{
    char        channel[sizeof st->key + 2];
    redis_words w = { 0 };

    if (st->news.ctx == NULL || st->hears_ends || !atomic_load(&st->wants_ends))
        return;
    hint_key(st, channel, sizeof channel, "e");
    stet__redis_word(&w, "SUBSCRIBE");
    stet__redis_word(&w, channel);
    if (!stet__redis_append(&st->news, &w))
        return; /* the next wait tries again */
    st->hears_ends = true;
    (void)stet__redis_send(st, &st->news, "listen to others");
}

/* Is the entry of the stream later than all that were told? Then it is told now. */
static bool
hint_is_later(redis_store *st, const char *id, size_t len)
{
    uint64_t ms, n;
    char     text[64];

    (void)snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : 0), id);
    if (sscanf(text, "%" SCNu64 "-%" SCNu64, &ms, &n) != 2)
        return true;
    if (ms < st->heard[0] || (ms == st->heard[0] && n <= st->heard[1]))
        return false;
    st->heard[0] = ms;
    st->heard[1] = n;
    return true;
}

/* Work was left, or this run was; told once. */
static void
hint_work(redis_store *st, const void *run, const char *entry, size_t len)
{
    uint8_t told[1 + 16] = { 'w' };

    if (st->base.is_client || !hint_is_later(st, entry, len))
        return;
    if (run != NULL)
        memcpy(told + 1, run, 16);
    st->base.told(st->base.told_arg, told, run != NULL ? sizeof told : 0);
}

/* What somebody else tells. True: something changed, and no more is said about it. */
static bool
hint_hear(redis_store *st, const uint8_t *at, size_t len)
{
    if (len == 0 || st->base.told == NULL)
        return true;
    for (size_t one; len > 0; at += 2 + one, len -= 2 + one) {
        const uint8_t *what = at + 3;

        if (len < 3 || (one = (size_t)at[0] << 8 | at[1]) == 0 || one > len - 2)
            return true; /* nonsense */
        if (at[2] == 't' || (at[2] == 'r' && one == 17))
            st->base.told(st->base.told_arg, what, one - 1);
        else if (at[2] == 'w')
            hint_work(st, NULL, (const char *)what, one - 1);
        else if (at[2] == 'k' && one > 17)
            hint_work(st, what, (const char *)what + 16, one - 17);
        else
            return true; /* of a newer stet */
    }
    return false;
}

/* Has anybody but us told that something changed? */
static bool
hint_is_news(redis_store *st, const redisReply *r)
{
    const redisReply *text;
    size_t            from = strlen(st->self);

    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3 ||
        r->element[0]->type != REDIS_REPLY_STRING)
        return false;
    if (strcmp(r->element[0]->str, "subscribe") == 0)
        return true; /* see hint_subscribe_ends() */
    if (strcmp(r->element[0]->str, "message") != 0 || r->element[2]->type != REDIS_REPLY_STRING)
        return false;
    text = r->element[2];
    if (text->len < from)
        return true;
    return memcmp(text->str, st->self, from) != 0 &&
           hint_hear(st, (const uint8_t *)text->str + from, text->len - from);
}

/* ---- what the engine tells ------------------------------------------------------------------- */

bool
stet__redis_is_told(redis_store *st)
{
    return atomic_load(&st->is_watching) && st->base.told != NULL;
}

static void
hint_wake(redis_store *st)
{
    uint64_t one = 1;
    ssize_t  done = write(st->hint_fd, &one, sizeof one);

    (void)done; /* it is full: then it wakes anyway */
}

void
stet__redis_waits(redis_store *st)
{
    if (atomic_load(&st->wants_ends) || !atomic_load(&st->is_watching))
        return;
    stet__lock(st->base.platform, &st->tell_lock);
    if (atomic_load(&st->is_watching) && !atomic_exchange(&st->wants_ends, true))
        hint_wake(st); /* with the lock: the eventfd is there */
    stet__unlock(st->base.platform, &st->tell_lock);
}

void
stet__redis_hint_renew(redis_store *st, const redis_conn *found)
{
    /* The thread knows what it found out itself, and would not wait before it tries again. */
    if (found == &st->news || found == &st->work || found == &st->voice)
        return;
    stet__lock(st->base.platform, &st->tell_lock);
    if (atomic_load(&st->is_watching)) /* with the lock: the eventfd is there */
        hint_wake(st);
    stet__unlock(st->base.platform, &st->tell_lock);
}

/* Told once is enough. With the lock. */
static bool
hint_is_told(const redis_store *st, const void *bytes, size_t len)
{
    for (size_t i = 0, one; i < st->n_telling; i += 2 + one) {
        one = (size_t)st->telling[i] << 8 | st->telling[i + 1];
        if (one == len + 1 && memcmp(st->telling + i + 3, bytes, len) == 0)
            return true;
    }
    return false;
}

void
stet__redis_tell(stet_store *s, const void *bytes, size_t len)
{
    redis_store *st = redis_of(s);
    bool         is_first;

    stet__lock(s->platform, &st->tell_lock);
    is_first = st->n_telling == 0 && !st->tells_all;
    if (len == 0 || st->n_telling + 3 + len > sizeof st->telling) {
        st->tells_all = true;
    } else if (!hint_is_told(st, bytes, len)) {
        uint8_t *to = st->telling + st->n_telling;

        to[0] = (uint8_t)((len + 1) >> 8);
        to[1] = (uint8_t)(len + 1);
        to[2] = 't';
        memcpy(to + 3, bytes, len);
        st->n_telling += 3 + len;
    }
    if (is_first && atomic_load(&st->is_watching)) /* with the lock: the eventfd is there */
        hint_wake(st);
    stet__unlock(s->platform, &st->tell_lock);
}

static bool
hint_has_news(redis_store *st)
{
    bool has_news;

    stet__lock(st->base.platform, &st->tell_lock);
    has_news = st->tells_all || st->n_telling > 0;
    stet__unlock(st->base.platform, &st->tell_lock);
    return has_news;
}

/* Everything that is to be told, in one message. Its answer is read by hint_wait(). */
static void
hint_tell(redis_store *st)
{
    char        channel[sizeof st->key + 2];
    uint8_t     text[sizeof st->self + REDIS_TELL_MAX];
    size_t      len = strlen(st->self);
    redis_words w = { 0 };

    if (!hint_has_news(st) || stet__redis_conn_need(st, &st->voice) != STET_OK)
        return;
    memcpy(text, st->self, len);
    stet__lock(st->base.platform, &st->tell_lock);
    if (!st->tells_all) {
        memcpy(text + len, st->telling, st->n_telling);
        len += st->n_telling;
    }
    st->n_telling = 0;
    st->tells_all = false;
    stet__unlock(st->base.platform, &st->tell_lock);
    hint_key(st, channel, sizeof channel, "n");
    stet__redis_word(&w, "PUBLISH");
    stet__redis_word(&w, channel);
    stet__redis_word_bytes(&w, text, len);
    if (stet__redis_append(&st->voice, &w))
        (void)stet__redis_send(st, &st->voice, "tell the others");
}

/* ---- the stream ------------------------------------------------------------------------------ */

static void
hint_words_group(const redis_store *st, redis_words *w, const char *key)
{
    stet__redis_word(w, key);
    stet__redis_word(w, HINT_GROUP);
    stet__redis_word(w, st->self);
}

/* Send what is to be acknowledged, not where the stream is waited for: nothing else is heard
 * there until the wait is over. The answers are read by hint_wait(). It costs the server a
 * flush, for which whoever takes the work up would have to wait if it came at once: so it comes
 * when there is a pause, before anybody takes them for left. */
static void
hint_ack(redis_store *st)
{
    if (stet__redis_conn_need(st, &st->voice) != STET_OK) {
        st->ack_us = stet__mono_us(st->base.platform) + HINT_RETRY_MS * 1000;
        return;
    }
    stet__buf_add(&st->voice.out, st->acks.data, st->acks.len);
    stet__buf_free(&st->acks);
    st->n_acks = 0;
    if (st->voice.out.failed)
        stet__redis_conn_close(&st->voice);
    else
        (void)stet__redis_send(st, &st->voice, "acknowledge hints");
}

/* Wait for the next new entry, but first ask for those that others took and left, if that was not
 * asked a moment ago: the server goes through all that are not acknowledged. */
static int
hint_ask_work(redis_store *st)
{
    char        key[sizeof st->key + 2];
    redis_words left = { 0 }, next = { 0 };
    int64_t     now_us = stet__mono_us(st->base.platform);
    bool        is_time = now_us - st->left_us >= HINT_IDLE_MS * 500;

    hint_key(st, key, sizeof key, "h");
    stet__redis_word(&left, "XAUTOCLAIM");
    hint_words_group(st, &left, key);
    stet__redis_word_int(&left, HINT_IDLE_MS);
    stet__redis_word(&left, "0");
    stet__redis_word(&left, "COUNT");
    stet__redis_word(&left, "100");
    stet__redis_word(&next, "XREADGROUP");
    stet__redis_word(&next, "GROUP");
    stet__redis_word(&next, HINT_GROUP);
    stet__redis_word(&next, st->self);
    stet__redis_word(&next, "COUNT");
    stet__redis_word(&next, "100");
    stet__redis_word(&next, "BLOCK");
    stet__redis_word_int(&next, HINT_BLOCK_MS);
    stet__redis_word(&next, "STREAMS");
    stet__redis_word(&next, key);
    stet__redis_word(&next, ">");
    if (is_time)
        st->left_us = now_us;
    if ((is_time && !stet__redis_append(&st->work, &left)) || !stet__redis_append(&st->work, &next))
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    return stet__redis_send(st, &st->work, "ask for work");
}

static int
hint_make_group(redis_store *st)
{
    char        key[sizeof st->key + 2];
    redis_words w = { 0 };
    redisReply *reply = NULL;
    int         err;

    hint_key(st, key, sizeof key, "h");
    stet__redis_word(&w, "XGROUP");
    stet__redis_word(&w, "CREATE");
    stet__redis_word(&w, key);
    stet__redis_word(&w, HINT_GROUP);
    stet__redis_word(&w, "$");
    stet__redis_word(&w, "MKSTREAM");
    if (!stet__redis_append(&st->work, &w))
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if ((err = stet__redis_send(st, &st->work, "join the group")) != STET_OK ||
        (err = stet__redis_answer(st, &st->work, &reply, "join the group")) != STET_OK)
        return err;
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSYGROUP", 9) != 0)
        err = stet__redis_fail(st, reply->str, "join the group");
    freeReplyObject(reply);
    return err;
}

static int
hint_join(redis_store *st)
{
    int err;

    if ((err = stet__redis_conn_need(st, &st->work)) != STET_OK)
        return err;
    if ((err = hint_make_group(st)) != STET_OK || (err = hint_ask_work(st)) != STET_OK)
        hint_put_off(st, &st->work);
    return err;
}

typedef struct hint_got {
    bool    is_news; /* something changed */
    bool    is_work; /* work was left for anybody, */
    uint8_t run[16]; /* if has_run this run and no other */
    bool    has_run;
    bool    is_over; /* the wait for the stream has ended */
} hint_got;

/* The value behind a name of an entry { ID, { "c", committer, "r", run } }, of which the last
 * two may be missing; NULL: not there. */
static const redisReply *
hint_field(const redisReply *e, const char *name)
{
    const redisReply *fields = e->element[1];

    if (fields->type != REDIS_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (fields->element[i]->type == REDIS_REPLY_STRING &&
            strcmp(fields->element[i]->str, name) == 0 &&
            fields->element[i + 1]->type == REDIS_REPLY_STRING)
            return fields->element[i + 1];
    return NULL;
}

static void
hint_got_work(hint_got *now, const redisReply *run)
{
    now->has_run = run != NULL && run->len == sizeof now->run && !now->is_work;
    if (now->has_run)
        memcpy(now->run, run->str, sizeof now->run);
    now->is_work = true;
}

static void
hint_entry(redis_store *st, const redisReply *e, bool is_second_hand, hint_got *now)
{
    char              key[sizeof st->key + 2];
    redis_words       w = { 0 };
    const redisReply *from;

    if (e->type != REDIS_REPLY_ARRAY || e->elements != 2 ||
        e->element[0]->type != REDIS_REPLY_STRING)
        return;
    from = hint_field(e, "c");
    if (from != NULL && strcmp(from->str, st->self) == 0 && !is_second_hand)
        return;
    hint_key(st, key, sizeof key, "h");
    stet__redis_word(&w, "XACK");
    stet__redis_word(&w, key);
    stet__redis_word(&w, HINT_GROUP);
    stet__redis_word_bytes(&w, e->element[0]->str, e->element[0]->len);
    if (st->acks.len == 0)
        st->ack_us = stet__mono_us(st->base.platform) + HINT_IDLE_MS * 200; /* at the latest */
    stet__redis_words(&st->acks, &w);
    st->n_acks++;
    if (st->acks.failed) {
        stet__buf_free(&st->acks); /* somebody claims them again: a look for nothing */
        st->n_acks = 0;
    }
    if (is_second_hand)
        hint_got_work(now, NULL);
    else if (hint_is_later(st, e->element[0]->str, e->element[0]->len))
        hint_got_work(now, hint_field(e, "r"));
}

/* An answer of the stream's connection. */
static void
hint_take_work(redis_store *st, const redisReply *r, hint_got *now)
{
    const redisReply *list = NULL;
    bool              is_claimed = false;

    if (r->type == REDIS_REPLY_ARRAY && r->elements >= 2 &&
        r->element[0]->type == REDIS_REPLY_STRING) { /* XAUTOCLAIM: cursor, entries, … */
        list = r->element[1];
        is_claimed = true;
    } else {
        now->is_over = true;
        if (r->type == REDIS_REPLY_ARRAY && r->elements == 1 && r->element[0]->elements == 2)
            list = r->element[0]->element[1]; /* [[ stream, entries ]] */
    }
    for (size_t i = 0; list != NULL && i < list->elements; i++)
        hint_entry(st, list->element[i], is_claimed, now);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Read what has come; false: the connection is of no more use. */
static bool
hint_read(redis_store *st, redis_conn *c, hint_got *now)
{
    redisReply *reply;

    if (redisBufferRead(c->ctx) != REDIS_OK)
        return false;
    for (;;) {
        if (!stet__redis_answer_here(st, c, &reply))
            return false;
        if (reply == NULL)
            return true;
        if (c == &st->voice)
            ; /* how many heard it */
        else if (c == &st->news)
            now->is_news = hint_is_news(st, reply) || now->is_news;
        else if (reply->type == REDIS_REPLY_ERROR) /* NOGROUP: somebody removed it */
            c->ctx->err = REDIS_ERR_OTHER;
        else
            hint_take_work(st, reply, now);
        freeReplyObject(reply);
    }
}

static void
hint_give(redis_store *st, const hint_got *now)
{
    uint8_t told[1 + sizeof now->run] = { 'w' };

    if (!atomic_load(&st->is_watching))
        return;
    if (now->is_news || (now->is_work && st->base.told == NULL))
        st->on_hint(st->hint_arg);
    else if (now->is_work) {
        memcpy(told + 1, now->run, sizeof now->run);
        st->base.told(st->base.told_arg, told, now->has_run ? sizeof told : 0);
    }
}

static bool
hint_is_idle(redis_store *st)
{
    return !st->base.is_client && stet__redis_is_lost(st, &st->work);
}

static int
hint_patience_ms(redis_store *st)
{
    if (st->acks.len > 0)
        return HINT_ACK_MS;
    if (hint_is_idle(st) || stet__redis_is_lost(st, &st->news))
        return HINT_RETRY_MS;
    return HINT_SILENT_MS;
}

/* Wait for hints, or for the end. */
static void
hint_wait(redis_store *st)
{
    redis_conn   *conns[] = { NULL, &st->news, &st->work, &st->voice };
    struct pollfd at[4] = { { .fd = st->hint_fd, .events = POLLIN } };
    hint_got      now = { 0 };
    uint64_t      count;
    int           patience_ms = hint_patience_ms(st);
    bool          is_quiet;

    for (int i = 1; i < 4; i++)
        at[i] = (struct pollfd){ .fd = conns[i]->ctx != NULL ? conns[i]->ctx->fd : -1,
                                 .events = POLLIN };
    is_quiet = poll(at, 4, patience_ms) == 0;
    if (is_quiet && patience_ms == HINT_SILENT_MS)
        stet__redis_conn_close(st->base.is_client ? &st->news : &st->work);
    if (st->acks.len > 0 && (is_quiet || stet__mono_us(st->base.platform) >= st->ack_us))
        hint_ack(st);
    if ((at[0].revents & POLLIN) != 0 && read(st->hint_fd, &count, sizeof count) < 0)
        return; /* somebody else cannot have read it */
    for (int i = 1; i < 4; i++)
        if (at[i].revents != 0 && conns[i]->ctx != NULL &&
            (!hint_read(st, conns[i], &now) || stet__redis_is_lost(st, conns[i])))
            stet__redis_conn_close(conns[i]);
    hint_give(st, &now); /* before the next question, which whoever takes it up would wait for */
    if (st->work.ctx != NULL && now.is_over && hint_ask_work(st) != STET_OK)
        stet__redis_conn_close(&st->work);
}

/* One of the channel and the stream does not wait until the other is to be had. */
static void
hint_main(void *arg)
{
    redis_store *st = arg;

    while (atomic_load(&st->is_watching)) {
        bool listens = stet__redis_is_lost(st, &st->news) && hint_subscribe(st) == STET_OK;
        bool waits = hint_is_idle(st) && hint_join(st) == STET_OK;

        if (listens || waits)
            st->on_hint(st->hint_arg); /* what was told meanwhile is lost */
        hint_tell(st);
        hint_subscribe_ends(st);
        hint_wait(st);
    }
}

static int
hint_start(redis_store *st)
{
    stet__platform *p = st->base.platform;
    int             err;

    if ((err = hint_subscribe(st)) != STET_OK ||
        (!st->base.is_client && (err = hint_join(st)) != STET_OK))
        return err;
    if ((st->hint_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return stet__fail(STET_EIO, "store %s: %s", st->name, strerror(errno));
    atomic_store(&st->is_watching, true);
    if ((err = p->ops->thread_start(p, &st->hint_thread, "stet-hint", hint_main, st)) != STET_OK)
        atomic_store(&st->is_watching, false);
    return err;
}

static void
hint_close(redis_store *st)
{
    stet__redis_conn_close(&st->news);
    stet__redis_conn_close(&st->work);
    stet__redis_conn_close(&st->voice);
    stet__buf_free(&st->acks);
    st->n_acks = 0;
    if (st->hint_fd >= 0)
        close(st->hint_fd);
    st->hint_fd = -1;
}

int
stet__redis_watch(stet_store *s, stet_hint_fn on_hint, void *arg)
{
    redis_store *st = redis_of(s);
    int          err;

    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    stet__lock(s->platform, &st->hint_lock);
    if (st->hint_thread != NULL) {
        err = stet__fail(STET_ESTATE, "store %s is watched already", st->name);
    } else {
        st->on_hint = on_hint;
        st->hint_arg = arg;
        if ((err = hint_start(st)) != STET_OK)
            hint_close(st);
    }
    stet__unlock(s->platform, &st->hint_lock);
    return err;
}

/* All at once, with their answers. */
static void
hint_ack_now(redis_store *st)
{
    size_t      n = st->n_acks;
    redisReply *reply;

    stet__redis_conn_close(&st->voice); /* it may wait for answers */
    if (n > 0)
        hint_ack(st);
    for (; n > 0 && st->voice.ctx != NULL; n--)
        if (stet__redis_answer(st, &st->voice, &reply, "acknowledge hints") == STET_OK)
            freeReplyObject(reply);
}

/* The group forgets us, unless we hold entries: those are for others to claim. */
static void
hint_leave(redis_store *st)
{
    char        key[sizeof st->key + 2];
    redis_words left = { 0 };
    redisReply *reply;

    stet__redis_conn_close(&st->work); /* it is waiting for an answer */
    hint_ack_now(st);
    hint_key(st, key, sizeof key, "h");
    stet__redis_word(&left, "XPENDING");
    hint_words_group(st, &left, key);
    left.n--;
    stet__redis_word(&left, "-");
    stet__redis_word(&left, "+");
    stet__redis_word(&left, "1");
    stet__redis_word(&left, st->self);
    if (stet__redis_conn_need(st, &st->work) != STET_OK ||
        stet__redis_ask(st, &st->work, &left, &reply, "leave the group") != STET_OK)
        return;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 0) {
        redis_words w = { 0 };

        freeReplyObject(reply);
        stet__redis_word(&w, "XGROUP");
        stet__redis_word(&w, "DELCONSUMER");
        hint_words_group(st, &w, key);
        if (stet__redis_ask(st, &st->work, &w, &reply, "leave the group") != STET_OK)
            return;
    }
    freeReplyObject(reply);
}

void
stet__redis_unwatch(stet_store *s)
{
    redis_store *st = redis_of(s);

    if (!st->is_open || st->pid != getpid())
        return;
    stet__lock(s->platform, &st->hint_lock);
    if (st->hint_thread != NULL) {
        stet__lock(s->platform, &st->tell_lock); /* nobody is about to write to hint_fd */
        atomic_store(&st->is_watching, false);
        stet__unlock(s->platform, &st->tell_lock);
        hint_wake(st);
        s->platform->ops->thread_join(s->platform, st->hint_thread);
        st->hint_thread = NULL;
        hint_tell(st); /* the last news */
        if (!st->base.is_client)
            hint_leave(st);
        hint_close(st);
    }
    stet__unlock(s->platform, &st->hint_lock);
}
