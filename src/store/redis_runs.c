/* Rows of runs and lists of them.
 *
 * A list walks the set of all runs, or of those a session owns, in the order of their IDs, page by
 * page; the filter is applied by the server (redis_read.lua). Runs that have facts and no row can
 * only be found by going through all keys (SCAN); that is done when such a listing begins, and the
 * pages that follow look at what was found then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis.h"

#define RUNS_PAGE 512

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct row_reader {
    redis_store *st;
    stet__arena  arena; /* texts of the row that is handed out */
    bool         failed;
} row_reader;

static bool
row_text(row_reader *r, stet_bytes *in, const char **out)
{
    stet_bytes text;
    bool       flag;

    *out = NULL;
    if (stet__redis_peek(*in) == REDIS_IS_FALSE)
        return stet__redis_take_flag(in, &flag);
    if (!stet__redis_take_bytes(in, &text))
        return false;
    *out = stet__arena_copy(&r->arena, text.data != NULL ? text.data : "", text.len);
    r->failed = r->failed || *out == NULL;
    return true;
}

static bool
row_decode(row_reader *r, stet_bytes in, stet_run_row *row)
{
    int64_t priority;
    size_t  n;

    if (!stet__redis_take_array(&in, &n) || n != 17 || !row_text(r, &in, &row->handler) ||
        !row_text(r, &in, &row->key) || !row_text(r, &in, &row->lane) ||
        !stet__redis_take_u32(&in, &row->status) || !stet__redis_take_u32(&in, &row->is_terminal) ||
        !stet__redis_take_uint(&in, &row->session) || !stet__redis_take_uint(&in, &row->epoch) ||
        !stet__redis_take_uint(&in, &row->journal) || !stet__redis_take_uint(&in, &row->inbox) ||
        !stet__redis_take_time(&in, &row->due_ms) || !stet__redis_take_int(&in, &row->created_ms) ||
        !stet__redis_take_time(&in, &row->ended_ms) || !stet__redis_take_int(&in, &priority) ||
        !stet__redis_take_u32(&in, &row->attempt) || !row_text(r, &in, &row->group) ||
        !row_text(r, &in, &row->reason) || !stet__redis_take_bytes(&in, &row->extra))
        return false;
    row->priority = (int32_t)priority;
    return true;
}

static int
row_give(row_reader *r, const void *id, stet_bytes in, stet_run_row_fn fn, void *arg)
{
    stet__arena_mark mark = stet__arena_mark_get(&r->arena);
    stet_run_row     row = { 0 };
    char             text[STET_ID_TEXT_MAX];
    int              err;

    memcpy(row.id.bytes, id, sizeof row.id.bytes);
    if (!row_decode(r, in, &row)) {
        stet__id_text(text, STET__ID_RUN, row.id);
        err =
            stet__fail(STET_ECORRUPT, "store %s: the row of run %s is damaged", r->st->name, text);
    } else if (r->failed) {
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", r->st->name);
    } else {
        err = fn(arg, &row);
    }
    stet__arena_release(&r->arena, mark);
    return err;
}

/* One row, and its journal if `limit` is not 0: replies[1]. */
static int
run_read(redis_store *st, const stet_id *run, size_t limit, redisReply *replies[2],
         stet_run_row_fn fn, void *arg)
{
    row_reader  r = { .st = st };
    redis_words w[2] = { { 0 } };
    stet__buf   key, journal;
    char        text[STET_ID_TEXT_MAX];
    bool        is_whole;
    int         err = STET_ENOMEM;

    stet__arena_init(&r.arena, st->base.alloc);
    is_whole = stet__redis_key(st, &key, "r:", run->bytes, sizeof run->bytes);
    if (!stet__redis_key(st, &journal, "j:", run->bytes, sizeof run->bytes) || !is_whole)
        goto done;
    stet__redis_word(&w[0], "GET");
    stet__redis_word_bytes(&w[0], key.data, key.len);
    stet__redis_word(&w[1], "LRANGE");
    stet__redis_word_bytes(&w[1], journal.data, journal.len);
    stet__redis_word_int(&w[1], 0);
    stet__redis_word_int(&w[1], (int64_t)limit - 1);
    if ((err = stet__redis_read(st, w, limit > 0 ? 2 : 1, replies, "read a run")) != STET_OK)
        goto done;
    if (replies[0]->type == REDIS_REPLY_STRING) {
        err = row_give(&r, run->bytes, (stet_bytes){ replies[0]->str, replies[0]->len }, fn, arg);
    } else {
        stet__id_text(text, STET__ID_RUN, *run);
        err = stet__fail(STET_ENOTFOUND, "store %s has no run %s", st->name, text);
    }
done:
    stet__buf_free(&key);
    stet__buf_free(&journal);
    stet__arena_free(&r.arena);
    return err;
}

int
stet__redis_read_run(stet_store *s, stet_id run, stet_run_row_fn fn, void *arg)
{
    redisReply *replies[2] = { NULL, NULL };
    int         err = run_read(redis_of(s), &run, 0, replies, fn, arg);

    freeReplyObject(replies[0]);
    return err;
}

typedef struct run_load {
    stet_run_row_fn fn;
    void           *arg;
    bool            is_ended;
} run_load;

static int
run_on_load(void *arg, const stet_run_row *row)
{
    run_load *l = arg;

    l->is_ended = row->is_terminal != 0;
    return l->fn(l->arg, row);
}

int
stet__redis_read_load(stet_store *s, stet_id run, bool if_ended, size_t limit,
                      stet_run_row_fn row_fn, stet_facts_fn facts_fn, void *arg)
{
    redisReply *replies[2] = { NULL, NULL };
    run_load    l = { row_fn, arg, false };
    int         err;

    if (if_ended)
        stet__redis_waits(redis_of(s));
    err = run_read(redis_of(s), &run, limit, replies, run_on_load, &l);
    if (err == STET_OK && limit > 0 && (l.is_ended || !if_ended))
        err = stet__redis_journal_give(redis_of(s), replies[1], facts_fn, arg);
    freeReplyObject(replies[0]);
    freeReplyObject(replies[1]);
    return err;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* [ handler, service, key, statuses, created from, created to, session ] */
static void
runs_filter(stet__buf *b, const stet_run_query *q)
{
    size_t len = q->handler != NULL ? strlen(q->handler) : 0;
    bool   is_service = len > 0 && q->handler[len - 1] == '.';

    stet__redis_pack_array(b, 7);
    stet__redis_pack_text(b, is_service ? NULL : q->handler);
    stet__redis_pack_text(b, is_service ? q->handler : NULL);
    stet__redis_pack_text(b, q->key);
    if (q->status_mask == 0)
        stet__redis_pack_bool(b, false);
    else
        stet__redis_pack_array(b, 64);
    for (unsigned i = 0; q->status_mask != 0 && i < 64; i++)
        stet__redis_pack_bool(b, q->status_mask >> i & 1u);
    stet__redis_pack_int(b, q->created_from_ms);
    stet__redis_pack_int(b, q->created_to_ms);
    stet__redis_pack_uint(b, q->session);
}

static bool
runs_is_filtered(const stet_run_query *q)
{
    return q->handler != NULL || q->key != NULL || q->status_mask != 0 || q->created_from_ms != 0 ||
           q->created_to_ms != 0 || q->session != 0;
}

/* One page from `from` on, which is moved to where it ended; its length becomes 0 at the end. */
static int
runs_page(row_reader *r, const stet_run_query *q, const stet__buf *set, const stet__buf *filter,
          stet__buf *from, size_t *left, stet_run_row_fn fn, void *arg)
{
    redis_words w = { 0 };
    redisReply *reply;
    int         err;

    stet__redis_word_script(r->st, &w, REDIS_READ);
    stet__redis_word(&w, "runs");
    stet__redis_word_bytes(&w, set->data, set->len);
    stet__redis_word_bytes(&w, from->data, from->len);
    stet__redis_word(&w, q->oldest_first ? "0" : "1");
    stet__redis_word_int(&w, RUNS_PAGE);
    stet__redis_word_int(&w, (int64_t)(*left < RUNS_PAGE ? *left : RUNS_PAGE));
    stet__redis_word_bytes(&w, filter->data, filter->len);
    if ((err = stet__redis_read_script(r->st, &w, &reply, "list runs")) != STET_OK)
        return err;
    stet__buf_cut(from, 0);
    for (size_t i = 1; err == STET_OK && i + 1 < reply->elements; i += 2, --*left) {
        const redisReply *id = reply->element[i], *row = reply->element[i + 1];

        if (id->type != REDIS_REPLY_STRING || id->len != sizeof(stet_id))
            err = stet__fail(STET_ECORRUPT, "store %s: a list of runs is damaged", r->st->name);
        else
            err = row_give(r, id->str, (stet_bytes){ row->str, row->len }, fn, arg);
    }
    if (err == STET_OK && reply->elements > 0)
        stet__buf_add(from, reply->element[0]->str, reply->element[0]->len);
    if (from->failed)
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", r->st->name);
    freeReplyObject(reply);
    return err;
}

static int runs_lost(redis_store *st, const stet_run_query *q, stet_run_row_fn fn, void *arg);

int
stet__redis_read_runs(stet_store *s, const stet_run_query *query, stet_run_row_fn fn, void *arg)
{
    redis_store *st = redis_of(s);
    row_reader   r = { .st = st };
    size_t       left = query->limit;
    stet__buf    set, filter, from;
    int          err;

    if ((err = stet__redis_enter(st)) != STET_OK)
        return err;
    if (query->is_lost)
        return runs_lost(st, query, fn, arg);
    stet__arena_init(&r.arena, s->alloc);
    stet__buf_init(&filter, s->alloc);
    stet__buf_init(&from, s->alloc);
    (void)stet__redis_key(st, &set, query->session != 0 ? "o:" : "ids", NULL, 0);
    if (query->session != 0)
        stet__buf_printf(&set, "%llu", (unsigned long long)query->session);
    if (runs_is_filtered(query))
        runs_filter(&filter, query);
    if (!stet__id_is_zero(query->before))
        stet__buf_add(&from, query->before.bytes, sizeof query->before.bytes);
    if (set.failed || filter.failed || from.failed)
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    while (err == STET_OK && left > 0) {
        err = runs_page(&r, query, &set, &filter, &from, &left, fn, arg);
        if (from.len == 0)
            break;
    }
    stet__buf_free(&set);
    stet__buf_free(&filter);
    stet__buf_free(&from);
    stet__arena_free(&r.arena);
    return err;
}

/* ---- the lost -------------------------------------------------------------------------------- */

static int
lost_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(stet_id));
}

/* Of the keys of journals on this page, the IDs that have no row. */
static int
lost_take(redis_store *st, const redisReply *keys, stet__buf *found)
{
    size_t      head = strlen(st->key) + 2;
    redis_words w = { 0 };
    redisReply *reply;
    stet__buf   ids;
    int         err;

    stet__buf_init(&ids, st->base.alloc);
    for (size_t i = 0; i < keys->elements; i++)
        if (keys->element[i]->len == head + sizeof(stet_id))
            stet__buf_add(&ids, keys->element[i]->str + head, sizeof(stet_id));
    stet__redis_word_script(st, &w, REDIS_READ);
    stet__redis_word(&w, "missing");
    stet__redis_word_bytes(&w, ids.data, ids.len);
    err = ids.failed ? stet__fail(STET_ENOMEM, "store %s: out of memory", st->name)
                     : stet__redis_read_script(st, &w, &reply, "look for lost runs");
    if (err == STET_OK) {
        if (reply->len % sizeof(stet_id) == 0)
            stet__buf_add(found, reply->str, reply->len);
        else
            err = stet__fail(STET_ECORRUPT, "store %s: a list of lost runs is damaged", st->name);
        freeReplyObject(reply);
    }
    stet__buf_free(&ids);
    return err;
}

static int
lost_scan(redis_store *st, stet__buf *found)
{
    char        cursor[32] = "0", pattern[sizeof st->key + 4];
    redisReply *reply;
    int         err;

    (void)snprintf(pattern, sizeof pattern, "%sj:*", st->key);
    do {
        redis_words w = { 0 };

        stet__redis_word(&w, "SCAN");
        stet__redis_word(&w, cursor);
        stet__redis_word(&w, "MATCH");
        stet__redis_word(&w, pattern);
        stet__redis_word(&w, "COUNT");
        stet__redis_word(&w, "1000");
        err = stet__redis_read(st, &w, 1, &reply, "look for lost runs");
        if (err == STET_OK &&
            (reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING)) {
            err = stet__fail(STET_ECORRUPT, "store %s: a list of keys is damaged", st->name);
        } else if (err == STET_OK) {
            (void)snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
            err = lost_take(st, reply->element[1], found);
        }
        freeReplyObject(reply);
    } while (err == STET_OK && strcmp(cursor, "0") != 0);
    if (err == STET_OK && found->failed)
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if (err == STET_OK && found->len > 0)
        qsort(found->data, found->len / sizeof(stet_id), sizeof(stet_id), lost_order);
    return err;
}

/* Is it still lost, and what does it have? */
static int
lost_look(redis_store *st, const stet_id *id, stet_run_row *row, bool *is_lost)
{
    static const struct {
        const char *kind, *ask;
    } asks[] = { { "r:", "EXISTS" }, { "j:", "LINDEX" }, { "i:", "LLEN" }, { "b:", "GET" } };
    redis_words w[4] = { { 0 } };
    redisReply *replies[4] = { NULL };
    stet__buf   keys[4];
    bool        has_room = true;
    int         err = STET_ENOMEM;

    for (int i = 0; i < 4; i++) {
        has_room =
            stet__redis_key(st, &keys[i], asks[i].kind, id->bytes, sizeof id->bytes) && has_room;
        stet__redis_word(&w[i], asks[i].ask);
        stet__redis_word_bytes(&w[i], keys[i].data, keys[i].len);
    }
    stet__redis_word(&w[1], "-1");
    if (has_room)
        err = stet__redis_read(st, w, 4, replies, "look for lost runs");
    *is_lost = err == STET_OK && replies[0]->integer == 0 &&
               replies[1]->type == REDIS_REPLY_STRING && replies[1]->len >= 12;
    if (*is_lost) {
        *row = (stet_run_row){ .id = *id, .ended_ms = STET_NEVER, .due_ms = STET_NEVER };
        row->journal =
            stet__redis_get_be64(replies[1]->str) + stet__redis_get_be32(replies[1]->str + 8) - 1;
        row->inbox = (uint64_t)replies[2]->integer;
        if (replies[3]->type == REDIS_REPLY_STRING)
            row->inbox += strtoull(replies[3]->str, NULL, 10);
    }
    for (int i = 0; i < 4; i++) {
        freeReplyObject(replies[i]);
        stet__buf_free(&keys[i]);
    }
    return err;
}

/* What was found when the listing began; scanned now if it begins. */
static int
lost_list(redis_store *st, bool is_first, stet__buf *out)
{
    stet__platform *p = st->base.platform;
    stet__buf       found;
    bool            is_known;
    int             err;

    stet__lock(p, &st->read_lock);
    is_known = st->has_lost && !is_first;
    if (is_known)
        stet__buf_add(out, st->lost.data, st->lost.len);
    stet__unlock(p, &st->read_lock);
    if (is_known)
        return out->failed ? stet__fail(STET_ENOMEM, "store %s: out of memory", st->name) : STET_OK;
    stet__buf_init(&found, st->base.alloc);
    if ((err = lost_scan(st, &found)) == STET_OK) {
        stet__buf_add(out, found.data, found.len);
        stet__lock(p, &st->read_lock);
        stet__buf_free(&st->lost);
        st->lost = found;
        st->has_lost = true;
        stet__unlock(p, &st->read_lock);
        return out->failed ? stet__fail(STET_ENOMEM, "store %s: out of memory", st->name) : STET_OK;
    }
    stet__buf_free(&found);
    return err;
}

static int
runs_lost(redis_store *st, const stet_run_query *q, stet_run_row_fn fn, void *arg)
{
    size_t    left = q->limit;
    stet__buf ids;
    int       err;

    stet__buf_init(&ids, st->base.alloc);
    err = lost_list(st, stet__id_is_zero(q->before), &ids);
    for (size_t at = 0; err == STET_OK && left > 0 && at < ids.len; at += sizeof(stet_id)) {
        stet_run_row row;
        stet_id      id;
        bool         is_lost;

        memcpy(id.bytes, ids.data + at, sizeof id.bytes);
        if (lost_order(&id, &q->before) <= 0 ||
            (at > 0 && memcmp(ids.data + at - sizeof id, id.bytes, sizeof id) == 0))
            continue; /* SCAN may tell a key twice */
        if (!stet__id_is_zero(q->upto) && lost_order(&id, &q->upto) > 0)
            break;
        if ((err = lost_look(st, &id, &row, &is_lost)) == STET_OK && is_lost) {
            left--;
            err = fn(arg, &row);
        }
    }
    stet__buf_free(&ids);
    return err;
}
