/* The PostgreSQL store's handle: opening, closing, its clock, and the table of methods.
 *
 * Opening connects once, looks whose schema it is, and makes or migrates it; the other connections
 * are made when they are needed. A handle belongs to the process that opened it; in a forked child
 * every method says so, and close() there leaves the parent's connections alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "platform/peer.h"
#include "store/postgres.h"

int
stet__pg_enter(pg_store *st)
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

/* The server read its clock (to the millisecond) between our question and its answer, so how far
 * its clock is ahead of our steady one lies between two bounds, and what many answers say lies
 * between the narrowest. We take the lower one: late by a fraction of the quickest answer and never
 * early, so no timer fires before its time. What is judged in the end is judged by the server. An
 * answer that contradicts the bounds means that its clock was set. */
#define CLOCK_DRIFT 10000 /* one in so many: how far two clocks may run apart meanwhile */

int64_t
stet__pg_clock_ask(pg_store *st)
{
    return stet__mono_us(st->base.platform);
}

void
stet__pg_clock_seen(pg_store *st, int64_t asked_us, int64_t now_ms)
{
    stet__platform *p = st->base.platform;
    int64_t         mono_us = stet__mono_us(p), drift_us;
    int64_t         least = now_ms * 1000 - mono_us, most = now_ms * 1000 + 1000 - asked_us;

    stet__lock(p, &st->clock_lock);
    drift_us = (mono_us - st->clock_us) / CLOCK_DRIFT;
    if (st->clock_us != 0 && least <= st->clock_most + drift_us &&
        most >= st->clock_least - drift_us) {
        if (least < st->clock_least - drift_us)
            least = st->clock_least - drift_us;
        if (most > st->clock_most + drift_us)
            most = st->clock_most + drift_us;
    }
    st->clock_us = mono_us;
    st->clock_least = least;
    st->clock_most = most;
    atomic_store(&st->offset_us, least);
    stet__unlock(p, &st->clock_lock);
}

int
stet__pg_clock_read(pg_store *st, pg_link *c)
{
    int64_t   asked_us = stet__pg_clock_ask(st);
    PGresult *res = NULL;
    int       err;

    if ((err = stet__pg_query(st, c, PG_SQL_PING, NULL, &res, "read the clock")) == STET_OK &&
        PQntuples(res) == 1)
        stet__pg_clock_seen(st, asked_us, stet__pg_int8(res, 0, 0));
    PQclear(res);
    return err;
}

int64_t
stet__pg_now(pg_store *st)
{
    return (stet__mono_us(st->base.platform) + atomic_load(&st->offset_us)) / 1000 +
           atomic_load(&st->advance_ms);
}

static int64_t
pg_now_ms(stet_store *s)
{
    return stet__pg_now(pg_of(s));
}

void
stet__pg_test_advance(stet_store *s, int64_t ms)
{
    atomic_fetch_add(&pg_of(s)->advance_ms, ms);
}

/* ---- opening --------------------------------------------------------------------------------- */

static stet__locks
pg_locks(pg_store *st)
{
    return (stet__locks){ .mutexes = { &st->commit_lock, &st->side_lock, &st->read_lock,
                                       &st->hint_lock, &st->clock_lock, &st->tx_lock,
                                       &st->tell_lock },
                          .conds = { &st->read_cond } };
}

static int
pg_init_locks(pg_store *st)
{
    stet__locks locks = pg_locks(st);
    int         err = stet__locks_begin(st->base.platform, &locks);

    st->has_locks = err == STET_OK;
    return err;
}

static void
pg_destroy_locks(pg_store *st)
{
    stet__locks locks = pg_locks(st);

    if (st->has_locks)
        stet__locks_end(st->base.platform, &locks);
    st->has_locks = false;
}

/* Random, so that no other process can act for this handle's sessions; the server has the hash
 * only. */
static void
pg_make_token(pg_store *st)
{
    stet__platform *p = st->base.platform;

    p->ops->random(p, st->token, sizeof st->token);
    stet__sha256(st->token_hash, st->token, sizeof st->token);
    for (size_t i = 0; i < sizeof st->base.committer.bytes; i++)
        (void)snprintf(st->self + 2 * i, 3, "%02x", st->base.committer.bytes[i]);
}

static int
pg_make_sql(pg_store *st)
{
    static const char *const texts[] = {
#define PG_SQL_TEXT(name, text) text,
        PG_SQL_LIST(PG_SQL_TEXT)
#undef PG_SQL_TEXT
    };

    (void)snprintf(st->channel, sizeof st->channel, "stet_%s", st->schema);
    (void)snprintf(st->ends, sizeof st->ends, "stet_%s$e", st->schema); /* no schema has a '$' */
    for (int i = 0; i < PG_SQL_COUNT; i++) {
        const char *const parts[] = { texts[i], NULL };

        if ((st->sql[i] = stet__pg_expand(st, parts)) == NULL)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    }
    return STET_OK;
}

/* One host is asked: of several nobody knows which answered so. */
static int
pg_judge(pg_store *st, int err)
{
    const char *host = stet__pg_url_option(st, "hostaddr"), *port = stet__pg_url_option(st, "port");
    stet__peer  peer = { "store",    st->name, "postgres", host, (int)strtol(port, NULL, 10),
                         STET_ENOTDB };

    if (peer.port == 0)
        peer.port = 5432;
    if (host[0] == '\0')
        peer.host = stet__pg_url_option(st, "host");
    if (strchr(peer.host, ',') != NULL)
        return err;
    return stet__peer_judge(&peer, err);
}

static int
pg_first_look(pg_store *st)
{
    int err;

    if ((err = stet__pg_conn_need(st, &st->side)) == STET_EIO || err == STET_ENOTDB)
        return pg_judge(st, err);
    if (err != STET_OK || (err = stet__pg_schema_prepare(st, &st->side)) != STET_OK)
        return err;
    /* The first prepares the statement. */
    for (int i = 0; err == STET_OK && i < 3; i++)
        err = stet__pg_clock_read(st, &st->side);
    return err;
}

static void pg_close(stet_store *s);

static int
pg_open(stet_store *s, const char *address)
{
    pg_store *st = pg_of(s);
    int       err;

    st->pid = getpid();
    st->hint_fd = -1;
    if ((err = pg_init_locks(st)) != STET_OK)
        return err;
    st->is_open = true;
    pg_make_token(st);
    if ((err = stet__pg_url_parse(st, address)) != STET_OK || (err = pg_make_sql(st)) != STET_OK ||
        (err = pg_first_look(st)) != STET_OK)
        pg_close(s);
    return err;
}

/* ---- closing and reopening ------------------------------------------------------------------- */

static void
pg_close(stet_store *s)
{
    pg_store *st = pg_of(s);

    if (!st->is_open)
        return;
    if (st->pid == getpid()) {
        stet__pg_unwatch(s);
        stet__pg_conn_close(&st->hint);
        for (size_t i = 0; i < PG_READERS; i++)
            stet__pg_conn_close(&st->readers[i]);
        stet__pg_conn_close(&st->writer);
        stet__pg_conn_close(&st->side);
        stet__pg_tx_close(st);
        stet__pg_sessions_free(st);
        pg_destroy_locks(st);
    }
    for (int i = 0; i < PG_SQL_COUNT; i++) {
        stet__free(s->alloc, st->sql[i]);
        st->sql[i] = NULL;
    }
    stet__pg_url_free(st);
    st->is_open = false;
}

/* Lost connections are made again by whoever needs them; here the first is asked for at once. */
static int
pg_reopen(stet_store *s)
{
    pg_store *st = pg_of(s);
    int       err = stet__pg_enter(st);

    if (err != STET_OK)
        return err;
    stet__lock(s->platform, &st->commit_lock);
    stet__pg_conn_close(&st->writer);
    err = stet__pg_conn_need(st, &st->writer);
    stet__unlock(s->platform, &st->commit_lock);
    return err;
}

static void
pg_hint(stet_store *s)
{
    pg_store *st = pg_of(s);

    if (stet__pg_enter(st) != STET_OK)
        return;
    stet__lock(s->platform, &st->commit_lock);
    stet__pg_hint(st);
    stet__unlock(s->platform, &st->commit_lock);
}

const stet_store_ops stet__store_postgres_ops = {
    .version = 1,
    .scheme = "postgres",
    .size = sizeof(pg_store),
    .open = pg_open,
    .close = pg_close,
    .reopen = pg_reopen,
    .now_ms = pg_now_ms,
    .commit = stet__pg_commit,
    .session_open = stet__pg_session_open,
    .session_renew = stet__pg_session_renew,
    .session_close = stet__pg_session_close,
    .sessions = stet__pg_sessions,
    .crumbs = stet__pg_crumbs,
    .crumbs_of = stet__pg_crumbs_of,
    .run = stet__pg_read_run,
    .runs = stet__pg_read_runs,
    .journal = stet__pg_read_journal,
    .inbox = stet__pg_read_inbox,
    .timers = stet__pg_read_timers,
    .timers_of = stet__pg_read_timers_of,
    .value = stet__pg_read_value,
    .values = stet__pg_read_values,
    .lane = stet__pg_read_lane,
    .watch = stet__pg_watch,
    .unwatch = stet__pg_unwatch,
    .maintain = stet__pg_maintain,
    .ping = stet__pg_ping,
    .due = stet__pg_read_due,
    .tx_begin = stet__pg_tx_begin,
    .tx_commit = stet__pg_tx_commit,
    .tx_rollback = stet__pg_tx_rollback,
    .apply_in = stet__pg_apply_in,
    .hint = pg_hint,
    .tell = stet__pg_tell,
    .load = stet__pg_read_load,
    .check = stet__pg_check,
};
