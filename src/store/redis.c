/* The Redis store's handle: opening, closing, its clock, and the table of methods.
 *
 * Opening connects once, asks what the server can lose (redis_doctor.c), and marks the prefix as
 * stet's; the other connections are made when they are needed. A handle belongs to the process that
 * opened it; in a forked child every method says so, and close() there leaves the parent's
 * connections alone.
 */
#include "store/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "platform/peer.h"

int
stet__redis_enter(redis_store *st)
{
    if (!st->is_open)
        return stet__fail(STET_ESTATE, "the store is not open");
    if (st->pid != getpid())
        return stet__fail(
            STET_EFORKED,
            "store %s was opened by process %ld; open stores after fork(), not before", st->name,
            (long)st->pid);
    return STET_OK;
}

/* ---- the clock ------------------------------------------------------------------------------- */

/* The server read its clock before its answer reached us, so what we count from an answer is late
 * by that way and never early. The quickest answer knows best: the greatest offset of the last ten
 * seconds or so counts. Not of longer: two clocks drift apart, and then it would be early. A clock
 * that was set back is followed at once. What is judged in the end is judged by the server. */
#define CLOCK_WINDOW_US 5000000
#define CLOCK_SLACK_US  100000

void
stet__redis_clock_seen(redis_store *st, int64_t now_ms)
{
    int64_t mono_us = stet__mono_us(st->base.platform), offset_us, best_us;

    if (now_ms < 0 || now_ms >= REDIS_DUE_BIAS)
        return; /* nonsense */
    offset_us = now_ms * 1000 - mono_us;
    stet__lock(st->base.platform, &st->clock_lock);
    if (mono_us - st->clock_began_us > CLOCK_WINDOW_US) {
        st->clock_older_us =
            mono_us - st->clock_began_us > 2 * CLOCK_WINDOW_US ? INT64_MIN : st->clock_us;
        st->clock_us = offset_us;
        st->clock_began_us = mono_us;
    } else if (offset_us > st->clock_us) {
        st->clock_us = offset_us;
    }
    best_us = st->clock_us > st->clock_older_us ? st->clock_us : st->clock_older_us;
    if (best_us - CLOCK_SLACK_US > offset_us)
        best_us = st->clock_us = st->clock_older_us = offset_us;
    atomic_store(&st->offset_us, best_us);
    stet__unlock(st->base.platform, &st->clock_lock);
}

int64_t
stet__redis_now(redis_store *st)
{
    return (stet__mono_us(st->base.platform) + atomic_load(&st->offset_us)) / 1000 +
           atomic_load(&st->advance_ms);
}

static int64_t
redis_now_ms(stet_store *s)
{
    return stet__redis_now(redis_of(s));
}

void
stet__redis_test_advance(stet_store *s, int64_t ms)
{
    atomic_fetch_add(&redis_of(s)->advance_ms, ms);
}

/* ---- opening --------------------------------------------------------------------------------- */

static stet__locks
redis_locks(redis_store *st)
{
    return (stet__locks){ .mutexes = { &st->commit_lock, &st->side_lock, &st->read_lock,
                                       &st->hint_lock, &st->clock_lock, &st->tell_lock },
                          .conds = { &st->read_cond } };
}

static int
redis_init_locks(redis_store *st)
{
    stet__locks locks = redis_locks(st);
    int         err = stet__locks_begin(st->base.platform, &locks);

    st->has_locks = err == STET_OK;
    return err;
}

static void
redis_destroy_locks(redis_store *st)
{
    stet__locks locks = redis_locks(st);

    if (st->has_locks)
        stet__locks_end(st->base.platform, &locks);
    st->has_locks = false;
}

/* Random, so that no other process can act for this handle's sessions; the server has the hash. */
static void
redis_make_token(redis_store *st)
{
    stet__platform *p = st->base.platform;

    p->ops->random(p, st->token, sizeof st->token);
    stet__sha256(st->token_hash, st->token, sizeof st->token);
    for (size_t i = 0; i < sizeof st->base.committer.bytes; i++)
        (void)snprintf(st->self + 2 * i, 3, "%02x", st->base.committer.bytes[i]);
}

/* Whose keys are under the prefix, of which format; made by the first who comes. */
static const char redis_claim[] =
    "local m = KEYS[1] .. 'm' "
    "redis.call('HSETNX', m, 'format', ARGV[1]) "
    "redis.call('HSETNX', m, 'instance', ARGV[2]) "
    "local time = redis.call('TIME') "
    "return { redis.call('HGET', m, 'format'), redis.call('HGET', m, 'instance'), "
    "time[1] * 1000 + math.floor(time[2] / 1000) }";

static int
redis_take_claim(redis_store *st, const redisReply *r)
{
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3 ||
        r->element[0]->type != REDIS_REPLY_STRING || r->element[1]->type != REDIS_REPLY_STRING ||
        r->element[1]->len != sizeof st->instance || r->element[2]->type != REDIS_REPLY_INTEGER)
        return stet__fail(STET_ENOTDB, "store %s: the keys under this prefix are not stet's",
                          st->name);
    if (strtol(r->element[0]->str, NULL, 10) > REDIS_FORMAT)
        return stet__fail(STET_ENEWER,
                          "store %s has format %s, written by a newer stet; this one knows %d",
                          st->name, r->element[0]->str, REDIS_FORMAT);
    memcpy(st->instance, r->element[1]->str, sizeof st->instance);
    st->has_instance = true;
    stet__redis_clock_seen(st, r->element[2]->integer);
    return STET_OK;
}

static int
redis_claim_prefix(redis_store *st)
{
    redis_words w = { 0 };
    redisReply *reply;
    uint8_t     instance[16];
    int         err;

    st->base.platform->ops->random(st->base.platform, instance, sizeof instance);
    stet__redis_word(&w, "EVAL");
    stet__redis_word(&w, redis_claim);
    stet__redis_word(&w, "1");
    stet__redis_word(&w, st->key);
    stet__redis_word_int(&w, REDIS_FORMAT);
    stet__redis_word_bytes(&w, instance, sizeof instance);
    if ((err = stet__redis_ask(st, &st->side, &w, &reply, "open it")) != STET_OK)
        return err;
    err = redis_take_claim(st, reply);
    freeReplyObject(reply);
    return err;
}

/* create=0: whoever only looks makes no store where none is. */
static int
redis_look_for(redis_store *st)
{
    redis_words w = { 0 };
    redisReply *reply;
    char        key[sizeof st->key + 1];
    bool        is_there;
    int         err;

    if (!st->must_exist)
        return STET_OK;
    (void)snprintf(key, sizeof key, "%sm", st->key);
    stet__redis_word(&w, "EXISTS");
    stet__redis_word(&w, key);
    if ((err = stet__redis_ask(st, &st->side, &w, &reply, "look for it")) != STET_OK)
        return err;
    is_there = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    freeReplyObject(reply);
    return is_there ? STET_OK
                    : stet__fail(STET_ENOTFOUND,
                                 "there is no store at %s; a worker or a start makes it", st->name);
}

static int
redis_judge(redis_store *st, int err)
{
    stet__peer peer = { "store", st->name, "redis", st->host, st->port, STET_ENOTDB };

    return stet__peer_judge(&peer, err);
}

static int
redis_first_look(redis_store *st)
{
    int err;

    if ((err = stet__redis_conn_need(st, &st->side)) == STET_EIO || err == STET_ENOTDB)
        return redis_judge(st, err);
    if (err != STET_OK || (err = redis_look_for(st)) != STET_OK ||
        (err = stet__redis_doctor_open(st, &st->side)) != STET_OK ||
        (err = stet__redis_doctor_rights(st, &st->side)) != STET_OK ||
        (err = redis_claim_prefix(st)) != STET_OK)
        return err;
    for (int i = 0; err == STET_OK && i < REDIS_SCRIPTS; i++)
        err = stet__redis_load(st, &st->side, (redis_script)i);
    return err;
}

static void redis_close(stet_store *s);

static int
redis_open(stet_store *s, const char *address)
{
    redis_store *st = redis_of(s);
    int          err;

    st->pid = getpid();
    st->hint_fd = -1;
    atomic_init(&st->era, 1);
    st->clock_us = st->clock_older_us = INT64_MIN;
    st->clock_began_us = stet__mono_us(s->platform);
    if ((err = redis_init_locks(st)) != STET_OK)
        return err;
    stet__buf_init(&st->args, s->alloc);
    stet__buf_init(&st->lost, s->alloc);
    stet__buf_init(&st->acks, s->alloc);
    st->is_open = true;
    s->tells_commits = true;
    redis_make_token(st);
    if ((err = stet__redis_url_parse(st, address)) != STET_OK ||
        (err = redis_first_look(st)) != STET_OK)
        redis_close(s);
    return err;
}

/* ---- closing and reopening ------------------------------------------------------------------- */

static void
redis_close(stet_store *s)
{
    redis_store *st = redis_of(s);

    if (!st->is_open)
        return;
    if (st->pid == getpid()) {
        stet__redis_unwatch(s);
        for (size_t i = 0; i < REDIS_READERS; i++)
            stet__redis_conn_close(&st->readers[i]);
        stet__redis_conn_close(&st->writer);
        stet__redis_conn_close(&st->side);
        stet__redis_sessions_free(st);
        redis_destroy_locks(st);
    }
    stet__buf_free(&st->args);
    stet__buf_free(&st->lost);
    stet__redis_url_free(st);
    st->is_open = false;
}

/* Lost connections are made again by whoever needs them; here the first is asked for at once. */
static int
redis_reopen(stet_store *s)
{
    redis_store *st = redis_of(s);
    int          err = stet__redis_enter(st);

    if (err != STET_OK)
        return err;
    stet__lock(s->platform, &st->commit_lock);
    stet__redis_conn_close(&st->writer);
    err = stet__redis_conn_need(st, &st->writer);
    stet__unlock(s->platform, &st->commit_lock);
    return err;
}

const stet_store_ops stet__store_redis_ops = {
    .version = 1,
    .scheme = "redis",
    .size = sizeof(redis_store),
    .open = redis_open,
    .close = redis_close,
    .reopen = redis_reopen,
    .now_ms = redis_now_ms,
    .commit = stet__redis_commit,
    .session_open = stet__redis_session_open,
    .session_renew = stet__redis_session_renew,
    .session_close = stet__redis_session_close,
    .sessions = stet__redis_sessions,
    .crumbs = stet__redis_crumbs,
    .crumbs_of = stet__redis_crumbs_of,
    .run = stet__redis_read_run,
    .runs = stet__redis_read_runs,
    .journal = stet__redis_read_journal,
    .inbox = stet__redis_read_inbox,
    .timers = stet__redis_read_timers,
    .timers_of = stet__redis_read_timers_of,
    .value = stet__redis_read_value,
    .values = stet__redis_read_values,
    .lane = stet__redis_read_lane,
    .watch = stet__redis_watch,
    .unwatch = stet__redis_unwatch,
    .maintain = stet__redis_maintain,
    .ping = stet__redis_ping,
    .due = stet__redis_read_due,
    .doctor = stet__redis_doctor,
    .tell = stet__redis_tell,
    .load = stet__redis_read_load,
    .check = stet__redis_check,
};
