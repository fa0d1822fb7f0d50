/* Sessions of workers: a row with a lease, judged by the server's clock (redis_session.lua); their
 * crumbs; upkeep.
 *
 * Each call is one command on the side connection, repeated once on a new one if that was lost. To
 * renew or to close twice is harmless, and a session that was opened twice ends with its lease.
 * Locks: side_lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis.h"

#define SESSION_FORGET_MS (INT64_C(86400000))

static redis_session *
session_own(redis_store *st, uint64_t session)
{
    redis_session *own = st->sessions;

    while (own != NULL && own->session != session)
        own = own->next;
    return own;
}

static void
session_forget(redis_store *st, uint64_t session)
{
    redis_session **at = &st->sessions, *own;

    while (*at != NULL && (*at)->session != session)
        at = &(*at)->next;
    if ((own = *at) == NULL)
        return;
    *at = own->next;
    stet__crumbs_unmap(st->instance, own->session, &own->crumbs, true);
    stet__free(st->base.alloc, own);
}

void
stet__redis_sessions_free(redis_store *st)
{
    redis_session *own;

    while ((own = st->sessions) != NULL) {
        st->sessions = own->next;
        stet__crumbs_unmap(st->instance, own->session, &own->crumbs, false);
        stet__free(st->base.alloc, own);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void
session_words(redis_store *st, redis_words *w, const char *job)
{
    stet__redis_word_script(st, w, REDIS_SESSION);
    stet__redis_word(w, job);
    stet__redis_word_int(w, atomic_load(&st->advance_ms));
}

/* Answered with a number and the time. */
static int
session_ask(redis_store *st, const redis_words *w, int64_t *number, const char *what)
{
    redisReply *reply = NULL;
    int         err;

    if ((err = stet__redis_conn_need(st, &st->side)) != STET_OK)
        return err;
    if ((err = stet__redis_run(st, &st->side, REDIS_SESSION, w, &reply, what)) != STET_OK &&
        stet__redis_is_lost(st, &st->side) &&
        (err = stet__redis_conn_need(st, &st->side)) == STET_OK)
        err = stet__redis_run(st, &st->side, REDIS_SESSION, w, &reply, what);
    if (err != STET_OK)
        return err;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[1]->type != REDIS_REPLY_INTEGER) {
        err = stet__fail(STET_EIO, "store %s: the session script answered nonsense", st->name);
    } else {
        *number = reply->element[0]->integer;
        stet__redis_clock_seen(st, reply->element[1]->integer - atomic_load(&st->advance_ms));
    }
    freeReplyObject(reply);
    return err;
}

int
stet__redis_session_open(stet_store *s, uint64_t *session, stet_id id, int64_t lease_ms,
                         stet_bytes info)
{
    redis_store   *st = redis_of(s);
    redis_session *own;
    redis_words    w = { 0 };
    int64_t        number = 0;
    int            err;

    *session = 0;
    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    if (lease_ms <= 0)
        return stet__fail(STET_EINVAL, "a session needs a lease longer than 0 ms");
    if ((own = stet__get0(s->alloc, sizeof *own)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    session_words(st, &w, "open");
    stet__redis_word_bytes(&w, id.bytes, sizeof id.bytes);
    stet__redis_word_bytes(&w, st->token_hash, sizeof st->token_hash);
    stet__redis_word_int(&w, lease_ms);
    stet__redis_word_bytes(&w, info.data, info.len);
    stet__lock(s->platform, &st->side_lock);
    if ((err = session_ask(st, &w, &number, "open a session")) == STET_OK) {
        *session = own->session = (uint64_t)number;
        own->next = st->sessions;
        st->sessions = own;
        own = NULL;
    }
    stet__unlock(s->platform, &st->side_lock);
    stet__free(s->alloc, own);
    return err;
}

int
stet__redis_session_renew(stet_store *s, uint64_t session, int64_t lease_ms)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    int64_t      is_renewed = 0;
    int          err;

    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    session_words(st, &w, "renew");
    stet__redis_word_int(&w, (int64_t)session);
    stet__redis_word_bytes(&w, st->token_hash, sizeof st->token_hash);
    stet__redis_word_int(&w, lease_ms);
    stet__lock(s->platform, &st->side_lock);
    err = session_ask(st, &w, &is_renewed, "renew a session");
    stet__unlock(s->platform, &st->side_lock);
    if (err == STET_OK && is_renewed != 1)
        return stet__fail(STET_EFENCED,
                          "session %llu has expired or is not of this handle; open a new one",
                          (unsigned long long)session);
    return err;
}

int
stet__redis_session_close(stet_store *s, uint64_t session)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    int64_t      result = 0;
    int          err;

    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    session_words(st, &w, "close");
    stet__redis_word_int(&w, (int64_t)session);
    stet__redis_word_bytes(&w, st->token_hash, sizeof st->token_hash);
    stet__redis_word(&w, st->self);
    stet__lock(s->platform, &st->side_lock);
    err = session_ask(st, &w, &result, "close a session");
    if (err == STET_OK && result < 0)
        err = stet__fail(STET_EFENCED, "session %llu was opened by another handle",
                         (unsigned long long)session);
    session_forget(st, session);
    stet__unlock(s->platform, &st->side_lock);
    return err;
}

/* ---- listing --------------------------------------------------------------------------------- */

static int
session_row(redis_store *st, redisReply *const *at, int64_t now_ms, stet_session_row *row)
{
    stet_bytes in = { at[1]->str, at[1]->len }, token;
    bool       is_closed;
    size_t     n;

    *row = (stet_session_row){ .session = strtoull(at[0]->str, NULL, 10),
                               .info = { at[2]->str, at[2]->len } };
    if (!stet__redis_take_array(&in, &n) || n != 6 || !stet__redis_take_id(&in, &row->id) ||
        !stet__redis_take_bytes(&in, &token) || !stet__redis_take_int(&in, &row->started_ms) ||
        !stet__redis_take_int(&in, &row->seen_ms) ||
        !stet__redis_take_int(&in, &row->lease_until_ms) || !stet__redis_take_flag(&in, &is_closed))
        return stet__fail(STET_ECORRUPT, "store %s: session %llu is damaged", st->name,
                          (unsigned long long)row->session);
    row->is_dead = is_closed || row->lease_until_ms <= now_ms;
    return STET_OK;
}

static int
session_order(const void *a, const void *b)
{
    const stet_session_row *x = a, *y = b;

    return (x->session > y->session) - (x->session < y->session);
}

/* *rows belong to the caller; their info is in *reply, which is too. */
static int
session_list(redis_store *st, redis_conn *c, redisReply **reply, stet_session_row **rows, size_t *n)
{
    redis_words w = { 0 };
    redisReply *list;
    int         err;

    *rows = NULL;
    *n = 0;
    session_words(st, &w, "list");
    if ((err = stet__redis_run(st, c, REDIS_SESSION, &w, reply, "list sessions")) != STET_OK)
        return err;
    if ((*reply)->type != REDIS_REPLY_ARRAY || (*reply)->elements != 2 ||
        (*reply)->element[1]->type != REDIS_REPLY_ARRAY || (*reply)->element[1]->elements % 3 != 0)
        return stet__fail(STET_EIO, "store %s: the session script answered nonsense", st->name);
    list = (*reply)->element[1];
    if ((*rows = stet__get(st->base.alloc, (list->elements / 3 + 1) * sizeof **rows)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    for (; err == STET_OK && *n < list->elements / 3; ++*n)
        err = session_row(st, list->element + 3 * *n, (*reply)->element[0]->integer, &(*rows)[*n]);
    if (err == STET_OK)
        qsort(*rows, *n, sizeof **rows, session_order);
    return err;
}

int
stet__redis_sessions(stet_store *s, stet_session_fn fn, void *arg)
{
    redis_store      *st = redis_of(s);
    stet_session_row *rows = NULL;
    redisReply       *reply = NULL;
    redis_conn       *c;
    size_t            n = 0;
    int               err;

    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    if ((c = stet__redis_reader_get(st, &err)) == NULL)
        return err;
    err = session_list(st, c, &reply, &rows, &n);
    stet__redis_reader_put(st, c);
    for (size_t i = 0; err == STET_OK && i < n; i++)
        err = fn(arg, &rows[i]);
    stet__free(s->alloc, rows);
    freeReplyObject(reply);
    return err;
}

/* ---- crumbs ---------------------------------------------------------------------------------- */

stet_crumb *
stet__redis_crumbs(stet_store *s, uint64_t session, size_t n)
{
    redis_store   *st = redis_of(s);
    redis_session *own;
    stet_crumb    *crumbs = NULL;

    if (stet__redis_enter(st) != STET_OK)
        return NULL;
    stet__lock(s->platform, &st->side_lock);
    if ((own = session_own(st, session)) == NULL)
        (void)stet__fail(STET_ENOTFOUND, "store %s: session %llu is not of this handle", st->name,
                         (unsigned long long)session);
    else
        crumbs = stet__crumbs_map(st->instance, session, n, &own->crumbs);
    stet__unlock(s->platform, &st->side_lock);
    return crumbs;
}

typedef struct session_look {
    uint64_t session;
    bool     is_alive;
} session_look;

static int
session_look_fn(void *arg, const stet_session_row *row)
{
    session_look *look = arg;

    if (row->session == look->session)
        look->is_alive = !row->is_dead;
    return 0;
}

/* The owner of a living session is writing its crumbs. */
int
stet__redis_crumbs_of(stet_store *s, uint64_t session, stet_crumb **crumbs, size_t *n)
{
    redis_store *st = redis_of(s);
    session_look look = { .session = session };
    int          err;

    *crumbs = NULL;
    *n = 0;
    if ((err = stet__redis_sessions(s, session_look_fn, &look)) != STET_OK)
        return err;
    if (look.is_alive)
        return stet__fail(STET_ESTATE,
                          "session %llu is alive; only a dead one's crumbs can be read",
                          (unsigned long long)session);
    return stet__crumbs_load(s->alloc, st->instance, session, crumbs, n);
}

/* ---- upkeep ---------------------------------------------------------------------------------- */

static int
maintain_crumbs(redis_store *st)
{
    stet_session_row *rows = NULL;
    redisReply       *reply = NULL;
    uint64_t         *known = NULL;
    size_t            n = 0;
    int               err;

    if ((err = session_list(st, &st->side, &reply, &rows, &n)) == STET_OK &&
        (known = stet__get(st->base.alloc, (n + 1) * sizeof *known)) != NULL) {
        for (size_t i = 0; i < n; i++)
            known[i] = rows[i].session;
        stet__crumbs_sweep(st->instance, known, n, stet__wall_ms(st->base.platform));
    }
    stet__free(st->base.alloc, known);
    stet__free(st->base.alloc, rows);
    freeReplyObject(reply);
    return err;
}

/* Committers are forgotten by the server itself (redis_commit.lua), old hints are cut off when new
 * ones come. */
int
stet__redis_maintain(stet_store *s)
{
    redis_store *st = redis_of(s);
    redis_words  w = { 0 };
    int64_t      left;
    int          err;

    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    session_words(st, &w, "forget");
    stet__redis_word_int(&w, SESSION_FORGET_MS);
    stet__lock(s->platform, &st->side_lock);
    if ((err = session_ask(st, &w, &left, "forget old sessions")) == STET_OK)
        err = maintain_crumbs(st);
    stet__unlock(s->platform, &st->side_lock);
    return err;
}
