/* Connections: made within a bounded time, made again after they were lost, not too often; commands
 * and answers; and what went wrong, in words that say what to change.
 *
 * hiredis connects and understands answers. Commands are put together and sent here, because it
 * would send them with write(), and a server that is gone would then end the process (SIGPIPE).
 * Errors never repeat what was sent: there is a password in it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "store/redis.h"

#define CONN_WAIT_FIRST_US 50000
#define CONN_WAIT_MAX_US   2000000
#define CONN_HOPS          5 /* of nodes of a cluster that each say it is another */

/* ---- commands -------------------------------------------------------------------------------- */

void
stet__redis_word_bytes(redis_words *w, const void *data, size_t len)
{
    w->at[w->n] = data;
    w->len[w->n++] = len;
}

void
stet__redis_word(redis_words *w, const char *text)
{
    stet__redis_word_bytes(w, text, strlen(text));
}

void
stet__redis_word_int(redis_words *w, int64_t number)
{
    int len = snprintf(w->own[w->n], sizeof w->own[w->n], "%lld", (long long)number);

    stet__redis_word_bytes(w, w->own[w->n], (size_t)len);
}

void
stet__redis_word_script(redis_store *st, redis_words *w, redis_script script)
{
    stet__redis_word(w, "EVALSHA");
    stet__redis_word_bytes(w, st->sha[script], 40);
    stet__redis_word(w, "1");
    stet__redis_word(w, st->key);
}

void
stet__redis_words(stet__buf *b, const redis_words *w)
{
    stet__buf_printf(b, "*%d\r\n", w->n);
    for (int i = 0; i < w->n; i++) {
        stet__buf_printf(b, "$%zu\r\n", w->len[i]);
        stet__buf_add(b, w->at[i], w->len[i]);
        stet__buf_add(b, "\r\n", 2);
    }
}

bool
stet__redis_append(redis_conn *c, const redis_words *w)
{
    stet__redis_words(&c->out, w);
    if (!c->out.failed)
        return true;
    stet__buf_free(&c->out); /* a failed buffer would stay so */
    return false;
}

/* ---- what went wrong ------------------------------------------------------------------------- */

typedef struct conn_advice {
    const char *said; /* how the answer begins */
    int         code;
    const char *advice;
} conn_advice;

static const conn_advice conn_advices[] = {
    { "WRONGPASS", STET_ECONFIG, "check the user and the password of the address" },
    { "ERR invalid password", STET_ECONFIG, "check the password of the address" },
    { "ERR AUTH <password> called without any password", STET_ECONFIG,
      "the server has no password: take it out of the address" },
    { "NOAUTH", STET_ECONFIG, "the server wants a password: redis://USER:PASSWORD@HOST" },
    { "NOPERM", STET_ECONFIG, "give the user of the address the right to do it (ACL SETUSER)" },
    { "ERR The user executing the script", STET_ECONFIG,
      "give the user of the address the right to do it (ACL SETUSER)" },
    { "ERR DB index", STET_ECONFIG, "the server has fewer databases: check the number behind '/'" },
    { "ERR SELECT is not allowed in cluster", STET_ECONFIG, "a cluster has only database 0" },
    { "DENIED", STET_ECONFIG, "the server is in protected mode: give it a password" },
    { "ERR max number of clients", STET_EBUSY, "raise maxclients of the server" },
    { "OOM", STET_EFULL, "the server's memory is full: raise its maxmemory, or remove old runs" },
    { "MISCONF", STET_EIO, "the server cannot write to its disk; see its log" },
    { "READONLY", STET_EREADONLY, "this server is a replica: name the primary" },
    { "NOREPLICAS", STET_EBUSY, "too few replicas are connected (min-replicas-to-write)" },
    { "LOADING", STET_EBUSY, "the server is starting; it is tried again" },
    { "BUSY", STET_EBUSY, "a script of somebody keeps the server busy; it is tried again" },
    { "CLUSTERDOWN", STET_EBUSY, "the cluster is down; it is tried again" },
    { "TRYAGAIN", STET_EBUSY, "the cluster is moving keys; it is tried again" },
    { "MASTERDOWN", STET_EREADONLY, "this server is a replica: name the primary" },
    { "MOVED", STET_EIO, "another node of the cluster has these keys; it is tried again" },
    { "ASK", STET_EIO, "another node of the cluster gets these keys; it is tried again" },
    { "WRONGTYPE", STET_ECORRUPT, "somebody else's keys are under this prefix: take another one" },
};

/* What refused a command, which Redis 6 wraps up if a script gave it: "ERR Error running script (…):
 * …: -READONLY …". */
static const char *
conn_reason(const char *said)
{
    const char *inner =
        strncmp(said, "ERR Error running script", 24) == 0 ? strstr(said, ": -") : NULL;

    return inner != NULL ? inner + 3 : said;
}

int
stet__redis_fail(redis_store *st, const char *said, const char *what)
{
    said = conn_reason(said);
    for (size_t i = 0; i < sizeof conn_advices / sizeof *conn_advices; i++)
        if (strncmp(said, conn_advices[i].said, strlen(conn_advices[i].said)) == 0)
            return stet__fail(conn_advices[i].code, "store %s: cannot %s: %.200s; %s", st->name,
                              what, said, conn_advices[i].advice);
    return stet__fail(STET_EIO, "store %s: cannot %s: %.300s", st->name, what, said);
}

/* The connection is lost or silent: closes it and says so. */
static int
conn_lost(redis_store *st, redis_conn *c, int error, const char *what)
{
    bool is_protocol = c->ctx != NULL && c->ctx->err == REDIS_ERR_PROTOCOL;
    bool is_end = c->ctx != NULL && c->ctx->err == REDIS_ERR_EOF;

    stet__redis_conn_close(c);
    if (is_protocol)
        return stet__fail(STET_ENOTDB,
                          "store %s: what answers there is no Redis server: check host and port",
                          st->name);
    if (is_end)
        return stet__fail(STET_EIO, "store %s: cannot %s: the server closed the connection",
                          st->name, what);
    if (error == EAGAIN || error == EWOULDBLOCK)
        return stet__fail(STET_EIO,
                          "store %s: cannot %s: no answer in time; check host and port, or raise "
                          "answer_timeout",
                          st->name, what);
    return stet__fail(STET_EIO, "store %s: cannot %s: %s", st->name, what, strerror(error));
}

/* ---- sending and receiving ------------------------------------------------------------------- */

int
stet__redis_send(redis_store *st, redis_conn *c, const char *what)
{
    size_t at = 0;

    while (at < c->out.len) {
        ssize_t n = send(c->ctx->fd, c->out.data + at, c->out.len - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return conn_lost(st, c, errno, what);
        at += n > 0 ? (size_t)n : 0;
    }
    if (c->out.cap > 1u << 20)
        stet__buf_free(&c->out); /* one large commit does not keep its room for ever */
    else
        stet__buf_cut(&c->out, 0);
    return STET_OK;
}

/* After these the connection is with the wrong server. It was greeted by one that had its data and
 * was nobody's replica, so one that loads data now gets them from the server that took over.
 * UNBLOCKED is told to who waits for the stream when it becomes one. */
static bool
conn_is_misplaced(const char *said)
{
    static const char *const words[] = { "READONLY", "MOVED", "MASTERDOWN", "LOADING",
                                         "UNBLOCKED" };

    said = conn_reason(said);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(said, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

/* A server of this era is not the one to write to. */
static void
conn_end_era(redis_store *st, const redis_conn *c, uint64_t era)
{
    if (atomic_compare_exchange_strong(&st->era, &era, era + 1))
        stet__redis_hint_renew(st, c);
}

/* Every answer comes by here. The connection is not closed at once, since others may be under way
 * behind this one, but it counts as lost, and so do all that were made before (redis.h: era). */
static void
conn_heed(redis_store *st, const redis_conn *c, const redisReply *reply)
{
    if (c->era != 0 && reply->type == REDIS_REPLY_ERROR && conn_is_misplaced(reply->str))
        conn_end_era(st, c, c->era);
}

int
stet__redis_answer(redis_store *st, redis_conn *c, redisReply **reply, const char *what)
{
    void *got = NULL;

    *reply = NULL;
    errno = 0;
    if (redisGetReply(c->ctx, &got) != REDIS_OK || got == NULL)
        return conn_lost(st, c, errno, what);
    *reply = got;
    conn_heed(st, c, *reply);
    return STET_OK;
}

bool
stet__redis_answer_here(redis_store *st, redis_conn *c, redisReply **reply)
{
    void *got = NULL;

    *reply = NULL;
    if (redisReaderGetReply(c->ctx->reader, &got) != REDIS_OK)
        return false;
    if ((*reply = got) != NULL)
        conn_heed(st, c, *reply);
    return true;
}

int
stet__redis_ask(redis_store *st, redis_conn *c, const redis_words *w, redisReply **reply,
                const char *what)
{
    int err;

    *reply = NULL;
    if (!stet__redis_append(c, w))
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if ((err = stet__redis_send(st, c, what)) != STET_OK ||
        (err = stet__redis_answer(st, c, reply, what)) != STET_OK)
        return err;
    if ((*reply)->type != REDIS_REPLY_ERROR)
        return STET_OK;
    err = stet__redis_fail(st, (*reply)->str, what);
    freeReplyObject(*reply);
    *reply = NULL;
    return err;
}

/* ---- scripts --------------------------------------------------------------------------------- */

int
stet__redis_load(redis_store *st, redis_conn *c, redis_script script)
{
    redis_words w = { 0 };
    redisReply *reply;
    int         err;

    stet__redis_word(&w, "SCRIPT");
    stet__redis_word(&w, "LOAD");
    stet__redis_word_bytes(&w, stet__redis_scripts[script], stet__redis_script_lengths[script]);
    if ((err = stet__redis_ask(st, c, &w, &reply, "load a script")) != STET_OK)
        return err;
    /* The same text has the same SHA: many threads may write the same bytes, so they do not. */
    if (reply->type != REDIS_REPLY_STRING || reply->len != 40)
        err = stet__fail(STET_ENOTDB, "store %s: the server cannot load scripts", st->name);
    else if (st->sha[script][0] == '\0')
        memcpy(st->sha[script], reply->str, 40);
    freeReplyObject(reply);
    return err;
}

int
stet__redis_run(redis_store *st, redis_conn *c, redis_script script, const redis_words *w,
                redisReply **reply, const char *what)
{
    int err;

    for (int tries = 0;; tries++) {
        *reply = NULL;
        if (!stet__redis_append(c, w))
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
        if ((err = stet__redis_send(st, c, what)) != STET_OK ||
            (err = stet__redis_answer(st, c, reply, what)) != STET_OK)
            return err;
        if ((*reply)->type != REDIS_REPLY_ERROR)
            return STET_OK;
        if (strncmp((*reply)->str, "NOSCRIPT", 8) != 0 || tries == 3)
            break;
        freeReplyObject(*reply); /* SCRIPT FLUSH, or a restart */
        *reply = NULL;
        if ((err = stet__redis_load(st, c, script)) != STET_OK)
            return err;
    }
    err = stet__redis_fail(st, (*reply)->str, what);
    freeReplyObject(*reply);
    *reply = NULL;
    return err;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static struct timeval
conn_timeval(int64_t ms)
{
    return (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
}

static int
conn_refused(redis_store *st, redis_conn *c, const char *host, int port)
{
    char        reason[160];
    const char *advice = "";

    (void)snprintf(reason, sizeof reason, "%.150s", c->ctx->errstr);
    if (strstr(reason, "refused") != NULL)
        advice = "; is the server running, and is the port right?";
    else if (c->ctx->err == REDIS_ERR_OTHER)
        advice = "; check the host of the address";
    else if (strstr(reason, "timed out") != NULL || strstr(reason, "in progress") != NULL)
        advice = "; check host and port, or raise connect_timeout";
    stet__redis_conn_close(c);
    return stet__fail(STET_EIO, "store %s: cannot connect to %s:%d: %s%s", st->name, host, port,
                      reason, advice);
}

static int
conn_dial(redis_store *st, redis_conn *c, const char *host, int port)
{
    c->out.alloc = st->base.alloc;
    c->ctx = redisConnectWithTimeout(host, port, conn_timeval(st->connect_ms));
    if (c->ctx == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if (c->ctx->err != 0)
        return conn_refused(st, c, host, port);
    (void)redisSetTimeout(c->ctx, conn_timeval(st->connect_ms));
    (void)redisEnableKeepAlive(c->ctx);
    return STET_OK;
}

static int
conn_login(redis_store *st, redis_conn *c)
{
    redis_words auth = { 0 }, select = { 0 };
    redisReply *reply;
    int         err;

    stet__redis_word(&auth, "AUTH");
    if (st->user != NULL && st->user[0] != '\0')
        stet__redis_word(&auth, st->user);
    stet__redis_word(&auth, st->password != NULL ? st->password : "");
    if (st->password != NULL) {
        if ((err = stet__redis_ask(st, c, &auth, &reply, "log in")) != STET_OK)
            return err;
        freeReplyObject(reply);
    }
    stet__redis_word(&select, "SELECT");
    stet__redis_word_int(&select, st->db);
    if (st->db != 0) {
        if ((err = stet__redis_ask(st, c, &select, &reply, "select its database")) != STET_OK)
            return err;
        freeReplyObject(reply);
    }
    return STET_OK;
}

static int
conn_version(redis_store *st, redis_conn *c)
{
    redis_words w = { 0 };
    redisReply *reply;
    char        text[32];
    int         a = 0, b = 0, err;

    stet__redis_word(&w, "INFO");
    stet__redis_word(&w, "server");
    if ((err = stet__redis_ask(st, c, &w, &reply, "greet the server")) != STET_OK)
        return err;
    if (reply->type != REDIS_REPLY_STRING ||
        !stet__redis_info(reply->str, "redis_version", text, sizeof text))
        err = stet__fail(STET_ENOTDB,
                         "store %s: what answers there is no Redis server: check host "
                         "and port",
                         st->name);
    else if (sscanf(text, "%d.%d", &a, &b) < 1 || a * 10000 + b * 100 < REDIS_SERVER_MIN)
        err =
            stet__fail(STET_ECONFIG, "store %s: the server is Redis %s; stet needs %d.%d or newer",
                       st->name, text, REDIS_SERVER_MIN / 10000, REDIS_SERVER_MIN / 100 % 100);
    freeReplyObject(reply);
    return err;
}

/* Are the data that were there still there? *moved: "HOST:PORT" of the node that has them. */
static int
conn_instance(redis_store *st, redis_conn *c, char *moved, size_t size)
{
    redis_words w = { 0 };
    redisReply *reply = NULL;
    char        key[sizeof st->key + 2];
    int         err;

    (void)snprintf(key, sizeof key, "%sm", st->key);
    stet__redis_word(&w, "HGET");
    stet__redis_word(&w, key);
    stet__redis_word(&w, "instance");
    if (!stet__redis_append(c, &w))
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if ((err = stet__redis_send(st, c, "greet the server")) != STET_OK ||
        (err = stet__redis_answer(st, c, &reply, "greet the server")) != STET_OK)
        return err;
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "MOVED ", 6) == 0 &&
        strchr(reply->str + 6, ' ') != NULL)
        (void)snprintf(moved, size, "%s", strchr(reply->str + 6, ' ') + 1);
    else if (reply->type == REDIS_REPLY_ERROR)
        err = stet__redis_fail(st, reply->str, "greet the server");
    else if (st->has_instance &&
             (reply->type != REDIS_REPLY_STRING || reply->len != sizeof st->instance ||
              memcmp(reply->str, st->instance, sizeof st->instance) != 0))
        err = stet__fail(STET_EIO,
                         "store %s: the server does not have the data any more that were "
                         "there when this store was opened",
                         st->name);
    freeReplyObject(reply);
    return err;
}

/* A replica refuses nothing to who reads or listens there, and what it has may be old. */
static int
conn_role(redis_store *st, redis_conn *c)
{
    redis_words w = { 0 };
    redisReply *reply;
    char        role[16] = "";
    int         err;

    stet__redis_word(&w, "INFO");
    stet__redis_word(&w, "replication");
    if ((err = stet__redis_ask(st, c, &w, &reply, "greet the server")) != STET_OK)
        return err;
    if (reply->type == REDIS_REPLY_STRING)
        (void)stet__redis_info(reply->str, "role", role, sizeof role);
    freeReplyObject(reply);
    return strcmp(role, "slave") != 0
               ? STET_OK
               : stet__fail(STET_EREADONLY, "store %s: this server is a replica; name the primary",
                            st->name);
}

static int
conn_make(redis_store *st, redis_conn *c)
{
    char host[REDIS_HOST_MAX + 1], moved[REDIS_HOST_MAX + 16], *colon;
    int  port = st->port, err;

    (void)snprintf(host, sizeof host, "%s", st->host);
    for (int hop = 0; hop < CONN_HOPS; hop++) {
        moved[0] = '\0';
        if ((err = conn_dial(st, c, host, port)) != STET_OK ||
            (err = conn_login(st, c)) != STET_OK || (err = conn_version(st, c)) != STET_OK ||
            (err = conn_instance(st, c, moved, sizeof moved)) != STET_OK)
            return err;
        if ((colon = strrchr(moved, ':')) == NULL) {
            if ((err = conn_role(st, c)) != STET_OK)
                return err;
            (void)redisSetTimeout(c->ctx, conn_timeval(st->answer_ms));
            return STET_OK;
        }
        *colon = '\0';
        if (moved[0] != '\0') /* else the same host */
            (void)snprintf(host, sizeof host, "%.*s", REDIS_HOST_MAX, moved);
        port = (int)strtol(colon + 1, NULL, 10);
        stet__redis_conn_close(c);
    }
    return stet__fail(STET_EIO, "store %s: each node of the cluster says another one has the keys",
                      st->name);
}

void
stet__redis_conn_close(redis_conn *c)
{
    if (c->ctx != NULL)
        redisFree(c->ctx);
    c->ctx = NULL;
    if (c->out.alloc != NULL)
        stet__buf_free(&c->out);
}

bool
stet__redis_is_lost(redis_store *st, const redis_conn *c)
{
    return c->ctx == NULL || c->ctx->err != 0 || c->era != atomic_load(&st->era);
}

int
stet__redis_conn_need(redis_store *st, redis_conn *c)
{
    int64_t  now_us = stet__mono_us(st->base.platform);
    uint64_t era = atomic_load(&st->era);
    int      err;

    if (!stet__redis_is_lost(st, c))
        return STET_OK;
    stet__redis_conn_close(c);
    if (now_us < c->retry_us)
        return stet__fail(STET_EIO,
                          "store %s: the connection was lost and is tried again in %lld ms",
                          st->name, (long long)(c->retry_us - now_us) / 1000 + 1);
    c->era = 0;
    if ((err = conn_make(st, c)) == STET_OK) {
        c->wait_us = 0;
        c->era = era;
        return STET_OK;
    }
    stet__redis_conn_close(c);
    if (err == STET_ENOMEM)
        return err;            /* it is not the server's fault */
    if (err == STET_EREADONLY) /* and others may still be with that replica */
        conn_end_era(st, c, era);
    /* Each waits a bit longer than the last, and not all the same time: a server that comes back is
     * not run over. */
    c->wait_us = c->wait_us == 0 ? CONN_WAIT_FIRST_US : c->wait_us * 2;
    if (c->wait_us > CONN_WAIT_MAX_US)
        c->wait_us = CONN_WAIT_MAX_US;
    now_us = stet__mono_us(st->base.platform);
    c->retry_us = now_us + c->wait_us / 2 + now_us % (c->wait_us / 2);
    return err;
}
