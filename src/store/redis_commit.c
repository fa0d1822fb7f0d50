/* Commits: parts of a few hundred units, sent together, answered in order.
 *
 * Each part is one call of redis_commit.lua. A part refuses to run before the part in front of it,
 * so parts that were sent together are applied in order or not at all, also if the server lost its
 * scripts between two of them. Redis answers after it wrote its log as it is told to
 * (redis_doctor.c), so what is answered is as durable as it gets.
 *
 * What comes often and mostly alone is one call of a smaller script, if that takes it
 * (redis_quick.c).
 *
 * What fails before anything was applied is told as such; what fails later leaves the outcome open,
 * and the repeat of the same units finds their answers.
 */
#include <string.h>

#include "store/redis.h"

#define COMMIT_PARTS 32 /* sent together at most */
#define COMMIT_TRIES 4

/* ---- the answer ------------------------------------------------------------------------------ */

static int
answer_code(uint32_t result)
{
    static const int codes[] = { STET_OK, STET_ECONFLICT, STET_EFENCED, STET_EINVAL, STET_ETOOBIG };

    return result < sizeof codes / sizeof *codes ? codes[result] : STET_EINVAL;
}

static int
answer_nonsense(redis_store *st)
{
    return stet__fail(STET_EUNCERTAIN, "store %s: the commit script answered nonsense", st->name);
}

/* What lies last in the inboxes of granted runs, or in their journals, in the order of the
 * grants; a unit that was granted one before says no more about it. *entry: of this run, or no
 * data. */
static bool
answer_entry(stet_bytes *in, const stet_id *run, stet_bytes *entry)
{
    stet_bytes at = *in;
    stet_id    of;

    *entry = (stet_bytes){ NULL, 0 };
    if (at.len == 0)
        return true;
    if (!stet__redis_take_id(&at, &of))
        return false;
    if (!stet__id_equal(of, *run))
        return true;
    if (!stet__redis_take_bytes(&at, entry))
        return false;
    *in = at;
    return true;
}

static uint8_t *
answer_copy(uint8_t *to, stet_bytes *entry)
{
    if (entry->data == NULL)
        return to;
    memcpy(to, entry->data, entry->len);
    entry->data = to;
    return to + entry->len;
}

/* The entries are copied behind the grants. */
static int
answer_keep(redis_store *st, stet_outcome *out)
{
    size_t      bytes = 0, n = out->n_grants;
    stet_grant *grants;
    uint8_t    *to;

    for (size_t i = 0; i < n; i++)
        bytes += out->grants[i].news.len + out->grants[i].facts.len;
    if (bytes == 0)
        return STET_OK;
    if ((grants = stet__get0(st->base.alloc, n * sizeof *grants + bytes)) == NULL)
        return stet__fail(STET_EUNCERTAIN, "store %s: out of memory after a commit", st->name);
    memcpy(grants, out->grants, n * sizeof *grants);
    to = (uint8_t *)(grants + n);
    for (size_t i = 0; i < n; i++)
        to = answer_copy(answer_copy(to, &grants[i].news), &grants[i].facts);
    stet__free(st->base.alloc, out->grants);
    out->grants = grants;
    return STET_OK;
}

int
stet__redis_grants(redis_store *st, stet_bytes *in, stet_bytes *news, stet_bytes *journals,
                   stet_outcome *out)
{
    size_t n;

    if (!stet__redis_take_array(in, &n) || n % 3 != 0)
        return answer_nonsense(st);
    if (n == 0)
        return STET_OK;
    if ((out->grants = stet__get0(st->base.alloc, n / 3 * sizeof *out->grants)) == NULL)
        return stet__fail(STET_EUNCERTAIN, "store %s: out of memory after a commit", st->name);
    for (size_t i = 0; i < n / 3; i++) {
        stet_grant *g = &out->grants[i];

        if (!stet__redis_take_id(in, &g->run) || !stet__redis_take_uint(in, &g->epoch) ||
            !stet__redis_take_uint(in, &g->inbox) || !answer_entry(news, &g->run, &g->news) ||
            !answer_entry(journals, &g->run, &g->facts))
            return answer_nonsense(st);
        if (g->facts.len > REDIS_FACTS_HEAD)
            g->facts = (stet_bytes){ (const uint8_t *)g->facts.data + REDIS_FACTS_HEAD,
                                     g->facts.len - REDIS_FACTS_HEAD };
        else
            g->facts = (stet_bytes){ NULL, 0 };
    }
    out->n_grants = n / 3;
    return answer_keep(st, out);
}

static int
answer_unit(redis_store *st, stet_bytes *in, stet_bytes *news, const stet_unit *unit, uint64_t last,
            stet_outcome *out)
{
    stet_bytes none = { NULL, 0 };
    uint64_t   seq;
    uint32_t   result;
    size_t     n;

    if (!stet__redis_take_array(in, &n) || n != 6 || !stet__redis_take_uint(in, &seq) ||
        seq != unit->seq || !stet__redis_take_u32(in, &result) ||
        !stet__redis_take_u32(in, &out->cond) || !stet__redis_take_uint(in, &out->inbox) ||
        !stet__redis_take_time(in, &out->next_due_ms))
        return answer_nonsense(st);
    out->result = answer_code(result);
    out->is_repeat = seq <= last;
    return stet__redis_grants(st, in, news, &none, out);
}

static int
answer_part(redis_store *st, const redisReply *reply, const stet_unit *units, size_t n,
            stet_outcome *outcomes)
{
    stet_bytes in = { reply->str, reply->len }, answers, news;
    int64_t    now_ms;
    uint64_t   last;
    size_t     count;
    int        err = STET_OK;

    if (reply->type != REDIS_REPLY_STRING || !stet__redis_take_array(&in, &count) || count != 5 ||
        !stet__redis_take_int(&in, &now_ms) || !stet__redis_take_uint(&in, &last) ||
        !stet__redis_take_uint(&in, &st->turn) || !stet__redis_take_bytes(&in, &answers) ||
        !stet__redis_take_bytes(&in, &news) || !stet__redis_take_array(&news, &count) ||
        !stet__redis_take_array(&answers, &count) || count != n)
        return answer_nonsense(st);
    stet__redis_clock_seen(st, now_ms - atomic_load(&st->advance_ms));
    for (size_t i = 0; err == STET_OK && i < n; i++)
        err = answer_unit(st, &answers, &news, &units[i], last, &outcomes[i]);
    return err;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int
part_append(redis_store *st, const stet_unit *units, size_t from, size_t to)
{
    redis_words w = { 0 };

    stet__buf_cut(&st->args, 0);
    if (!stet__redis_encode(st, &st->args, units, from, to)) {
        stet__buf_free(&st->args);
        return stet__fail(STET_ENOMEM, "store %s: out of memory before a commit", st->name);
    }
    stet__redis_word_script(st, &w, REDIS_COMMIT);
    stet__redis_word_bytes(&w, st->args.data, st->args.len);
    if (!stet__redis_append(&st->writer, &w))
        return stet__fail(STET_ENOMEM, "store %s: out of memory before a commit", st->name);
    return STET_OK;
}

typedef struct commit_state {
    const stet_unit *units;
    stet_outcome    *outcomes;
    size_t           n, done; /* units whose answer is here */
} commit_state;

/* Send as many parts as go together; sizes[] says how many units each has. */
static int
commit_send(redis_store *st, commit_state *c, size_t sizes[COMMIT_PARTS], size_t *n_parts)
{
    size_t from = c->done;
    int    err = STET_OK;

    for (*n_parts = 0; err == STET_OK && from < c->n && *n_parts < COMMIT_PARTS;
         from += sizes[(*n_parts)++]) {
        sizes[*n_parts] = stet__redis_part(c->units, c->n, from);
        if ((err = part_append(st, c->units, from, from + sizes[*n_parts])) != STET_OK)
            break;
    }
    if (err != STET_OK) {
        stet__buf_free(&st->writer.out); /* nothing of it was sent */
        return err;
    }
    return stet__redis_send(st, &st->writer, "commit") == STET_OK ? STET_OK : STET_EUNCERTAIN;
}

/* The answers of what was sent. *must_load: the server had lost the script. */
static int
commit_receive(redis_store *st, commit_state *c, const size_t *sizes, size_t n_parts,
               bool *must_load)
{
    int err = STET_OK;

    *must_load = false;
    for (size_t i = 0; i < n_parts; i++) {
        redisReply *reply = NULL;

        if (stet__redis_answer(st, &st->writer, &reply, "commit") != STET_OK)
            return STET_EUNCERTAIN;
        if (reply->type == REDIS_REPLY_ERROR) {
            if (strncmp(reply->str, "NOSCRIPT", 8) == 0)
                *must_load = true;
            else if (strncmp(reply->str, "STETORDER", 9) != 0 && err == STET_OK)
                err = stet__redis_fail(st, reply->str, "commit");
        } else if (err == STET_OK && !*must_load) {
            err = answer_part(st, reply, c->units + c->done, sizes[i], c->outcomes + c->done);
            if (err == STET_OK)
                c->done += sizes[i];
        }
        freeReplyObject(reply);
    }
    return err;
}

/* What the port knows of a failed commit. */
static int
commit_code(redis_store *st, const commit_state *c, int err)
{
    (void)st; /* a mutant's */
    if (STET__MUTANT(redis_repeat_applied) && err == STET_EUNCERTAIN)
        st->self[0] = (char)(st->self[0] ^ 1);
    if (STET__MUTANT(redis_lost_failed) && err == STET_EUNCERTAIN)
        return STET_EIO;
    if (err == STET_EUNCERTAIN || c->done > 0)
        return stet__fail(STET_EUNCERTAIN, "%s; what became of the commit is not known",
                          stet_last_error());
    switch (err) {
    case STET_EBUSY:
    case STET_EFULL:
    case STET_ENOMEM:
    case STET_EIO: return err;
    default: return stet__fail(STET_EIO, "%s", stet_last_error());
    }
}

static int
commit_all(redis_store *st, commit_state *c)
{
    size_t sizes[COMMIT_PARTS], n_parts, tries = 0, before;
    bool   must_load = false;
    int    err;

    while (c->done < c->n) {
        before = c->done;
        if ((err = stet__redis_conn_need(st, &st->writer)) != STET_OK ||
            (must_load && (err = stet__redis_load(st, &st->writer, REDIS_COMMIT)) != STET_OK) ||
            (err = commit_send(st, c, sizes, &n_parts)) != STET_OK ||
            (err = commit_receive(st, c, sizes, n_parts, &must_load)) != STET_OK)
            return commit_code(st, c, err);
        if (c->done == before && ++tries == COMMIT_TRIES)
            return commit_code(
                st, c,
                stet__fail(STET_EIO,
                           "store %s: the server forgets its scripts as soon as they are loaded",
                           st->name));
    }
    return STET_OK;
}

/* ---- commit ---------------------------------------------------------------------------------- */

static void
commit_outcomes_clear(redis_store *st, stet_outcome *outcomes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        stet__free(st->base.alloc, outcomes[i].grants);
        memset(&outcomes[i], 0, sizeof outcomes[i]);
        outcomes[i].next_due_ms = STET_NEVER;
    }
}

int
stet__redis_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    redis_store *st = redis_of(s);
    commit_state c = { .units = units, .outcomes = outcomes, .n = n };
    bool         is_quick = false;
    int          err;

    memset(outcomes, 0, n * sizeof *outcomes);
    commit_outcomes_clear(st, outcomes, n);
    if ((err = stet__redis_enter(st)) != STET_OK || n == 0)
        return err;
    stet__lock(s->platform, &st->commit_lock);
    err = stet__redis_quick(st, units, n, outcomes, &is_quick);
    if (err != STET_OK)
        err = commit_code(st, &c, err);
    else if (!is_quick)
        err = commit_all(st, &c);
    stet__unlock(s->platform, &st->commit_lock);
    if (err != STET_OK)
        commit_outcomes_clear(st, outcomes, n);
    return err;
}
