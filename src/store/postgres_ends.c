/* Which runs that end somebody waits for, so that no others are told: a notification wakes every
 * process of the server that listens to anything in that database.
 *
 * Who waits holds an advisory lock, shared, of the run's bucket (one of PG_ENDS), on the connection
 * that listens; who ended a run asks for the locks of its bucket behind the commit, in a transaction
 * of its own, and notifies if one is taken (PG_SQL_NOTIFY_ENDS). Nothing is missed: a lock that was
 * taken before that question is seen by it, and who takes one later looks at the run once more and
 * finds what was committed before the question. What was asked for is given back at once, so those
 * who end runs are not taken for waiting ones, but for a microsecond.
 *
 * A lock is kept until nobody has looked for a while whether a run of that bucket has ended: who
 * waits looks every `looks_ms`. Whoever waits for runs of many buckets, or for all, takes one lock
 * that stands for all of them: the server's table of locks is small. A connection that is lost loses
 * its locks; the next one takes them again before everybody looks. Locks: tell_lock.
 */
#include <stdio.h>
#include <string.h>

#include "store/postgres.h"

#define ENDS_MANY     8     /* buckets; more are all */
#define ENDS_SLACK_MS 500   /* a look may be that late */
#define ENDS_LOOKS_MS 30000 /* unless the engine says how often */
#define ENDS_ALL      UINT64_MAX

int
stet__pg_ends_bucket(const stet_id *run)
{
    uint32_t sum = 2166136261u;

    for (size_t i = 0; i < sizeof run->bytes; i++)
        sum = (sum ^ run->bytes[i]) * 16777619u;
    return (int)(sum % PG_ENDS);
}

static bool
ends_wants_all(const pg_store *st)
{
    return st->base.wants_ends || st->base.told == NULL;
}

/* ---- who waits --------------------------------------------------------------------------------- */

bool
stet__pg_ends_look(pg_store *st, const stet_id *run)
{
    int     bucket = stet__pg_ends_bucket(run);
    int64_t looks_ms = st->base.looks_ms > 0 ? st->base.looks_ms : ENDS_LOOKS_MS;
    int64_t until_us = stet__mono_us(st->base.platform) + (looks_ms + ENDS_SLACK_MS) * 1000;
    bool    is_heard;

    stet__lock(st->base.platform, &st->tell_lock);
    st->ends_until_us[bucket] = until_us;
    is_heard = (st->ends_held >> bucket & 1u) != 0;
    stet__unlock(st->base.platform, &st->tell_lock);
    return is_heard;
}

void
stet__pg_ends_await(pg_store *st, const stet_id *run)
{
    stet__lock(st->base.platform, &st->tell_lock);
    st->ends_wanted |= (uint64_t)1 << stet__pg_ends_bucket(run);
    if (st->n_ends_asked < PG_ENDS_ASKED)
        st->ends_asked[st->n_ends_asked] = *run;
    if (st->n_ends_asked <= PG_ENDS_ASKED)
        st->n_ends_asked++;
    stet__pg_hint_renew(st); /* with the lock: the eventfd is there */
    stet__unlock(st->base.platform, &st->tell_lock);
}

/* ---- the thread that listens ------------------------------------------------------------------- */

/* One call of a function of the server for each bucket. */
static int
ends_call(pg_store *st, const char *function, uint64_t buckets, bool is_all)
{
    char        text[128 + (PG_ENDS + 1) * 64];
    const char *parts[] = { text, NULL };
    size_t      n = 0;
    char       *sql;
    int         err;

    for (int i = 0; i <= PG_ENDS; i++)
        if (i == PG_ENDS ? is_all : (buckets >> i & 1u) != 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s(" PG_LOCK_CLASS ",@@-%d)",
                                  n > 0 ? "," : "SELECT ", function, PG_ENDS_KEY(i));
    if (n == 0)
        return STET_OK;
    if ((sql = stet__pg_expand(st, parts)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    err = stet__pg_exec(st, &st->hint, sql, NULL, "say what it waits for");
    stet__free(st->base.alloc, sql);
    return err;
}

/* Those whose time is over, and are not held any more from here on. All at once, if it holds all. */
static uint64_t
ends_drop(pg_store *st)
{
    int64_t  now_us = stet__mono_us(st->base.platform);
    uint64_t old = 0;

    if (ends_wants_all(st))
        return 0;
    for (int i = 0; i < PG_ENDS; i++)
        if (st->ends_until_us[i] <= now_us)
            old |= (uint64_t)1 << i;
    if (st->holds_all && old != ENDS_ALL)
        return 0;
    old &= st->ends_held;
    st->ends_held &= ~old;
    return old;
}

static bool
ends_are_many(uint64_t buckets)
{
    int n = 0;

    for (; buckets != 0; buckets &= buckets - 1)
        n++;
    return n > ENDS_MANY;
}

/* They look again: what ended before was not heard. */
static void
ends_tell(pg_store *st, const stet_id *asked, size_t n)
{
    if (n > PG_ENDS_ASKED || (n > 0 && st->base.told == NULL)) {
        st->on_hint(st->hint_arg);
        return;
    }
    for (size_t i = 0; i < n; i++)
        st->base.told(st->base.told_arg, asked[i].bytes, sizeof asked[i].bytes);
}

int
stet__pg_ends_listen(pg_store *st, bool is_new)
{
    stet_id  asked[PG_ENDS_ASKED];
    uint64_t old, wanted;
    size_t   n_asked;
    bool     all;
    int      err = STET_OK;

    stet__lock(st->base.platform, &st->tell_lock);
    if (is_new) {
        st->ends_wanted |= st->ends_held;
        st->ends_held = 0;
        st->holds_all = false;
    }
    old = ends_drop(st);
    wanted = st->ends_wanted & ~st->ends_held;
    all = !st->holds_all && (ends_wants_all(st) || ends_are_many(st->ends_held | wanted));
    n_asked = st->n_ends_asked;
    memcpy(asked, st->ends_asked, sizeof asked);
    st->n_ends_asked = 0;
    st->ends_wanted = 0;
    stet__unlock(st->base.platform, &st->tell_lock);
    if (st->holds_all && old != 0) {
        st->holds_all = false;
        err = stet__pg_exec(st, &st->hint, "SELECT pg_advisory_unlock_all()", NULL, "forget");
    } else {
        err = ends_call(st, "pg_advisory_unlock_shared", old, false);
    }
    if (err == STET_OK)
        err = ends_call(st, "pg_advisory_lock_shared", all ? 0 : wanted, all);
    stet__lock(st->base.platform, &st->tell_lock);
    if (err != STET_OK)
        st->ends_wanted |= wanted; /* for the next connection */
    else {
        st->holds_all = st->holds_all || all;
        st->ends_held |= all ? ENDS_ALL : wanted;
    }
    stet__unlock(st->base.platform, &st->tell_lock);
    if (!is_new && err == STET_OK)
        ends_tell(st, asked, n_asked);
    return err;
}

int
stet__pg_ends_wait_ms(pg_store *st, int most_ms)
{
    int64_t now_us = stet__mono_us(st->base.platform), until_us = INT64_MAX, last_us = 0;

    stet__lock(st->base.platform, &st->tell_lock);
    for (int i = 0; i < PG_ENDS; i++)
        if ((st->ends_held >> i & 1u) != 0) {
            if (st->ends_until_us[i] < until_us)
                until_us = st->ends_until_us[i];
            if (st->ends_until_us[i] > last_us)
                last_us = st->ends_until_us[i];
        }
    if (st->holds_all)
        until_us = last_us;
    stet__unlock(st->base.platform, &st->tell_lock);
    if (ends_wants_all(st) || until_us >= now_us + (int64_t)most_ms * 1000)
        return most_ms;
    return until_us <= now_us ? 1 : (int)((until_us - now_us) / 1000) + 1;
}
