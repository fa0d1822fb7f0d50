/* Commits: a batch of units is one statement, which is one transaction and one flush.
 *
 * What can go wrong, and what is done:
 *   40001, 23505, 40P01  somebody else was quicker, or a deadlock: nothing of it was applied, the
 *                        batch is submitted again
 *   22…, 23…, 54…, XX…   something in the batch cannot be written: it is cut in half until the unit
 *                        is found
 *   no answer            the outcome is not known; the same units come again and are told from new
 *                        ones by their numbers
 *   anything else        nothing of it was applied
 * Isolation is READ COMMITTED: every row a decision rests on is locked before it is looked at
 * (docs/decisions/0017). conn_greet() says so of the session, postgres_query.c of each commit behind
 * a pooler, and the function refuses any other. Locks: commit_lock.
 */
#include <string.h>

#include "store/postgres.h"

#define COMMIT_TRIES 100

/* Columns of the answer. */
enum {
    OUT_NOW,
    OUT_LAST,
    OUT_NEWS,
    OUT_TURN,
    OUT_SEQ,
    OUT_RESULT,
    OUT_COND,
    OUT_INBOX,
    OUT_DUE,
    OUT_GSEQ,
    OUT_GRUN,
    OUT_GEPOCH,
    OUT_GINBOX
};

/* ---- the answer ------------------------------------------------------------------------------ */

typedef struct answer {
    pg_array seq, result, cond, inbox, due, gseq, grun, gepoch, ginbox;
} answer;

static bool
answer_read(const PGresult *res, answer *a)
{
    return PQntuples(res) == 1 && stet__pg_array_get(res, 0, OUT_SEQ, 8, &a->seq) &&
           stet__pg_array_get(res, 0, OUT_RESULT, 4, &a->result) &&
           stet__pg_array_get(res, 0, OUT_COND, 4, &a->cond) &&
           stet__pg_array_get(res, 0, OUT_INBOX, 8, &a->inbox) &&
           stet__pg_array_get(res, 0, OUT_DUE, 8, &a->due) &&
           stet__pg_array_get(res, 0, OUT_GSEQ, 8, &a->gseq) &&
           stet__pg_array_get(res, 0, OUT_GRUN, 16, &a->grun) &&
           stet__pg_array_get(res, 0, OUT_GEPOCH, 8, &a->gepoch) &&
           stet__pg_array_get(res, 0, OUT_GINBOX, 8, &a->ginbox);
}

/* Grants of a unit lie together, in the order of the units. */
static int
answer_grants(pg_store *st, const answer *a, size_t *at, uint64_t seq, stet_outcome *out)
{
    size_t n = 0;

    while (*at + n < a->gseq.n && stet__pg_array_int8(&a->gseq, *at + n) == seq)
        n++;
    if (n == 0)
        return STET_OK;
    if ((out->grants = stet__get0(st->base.alloc, n * sizeof *out->grants)) == NULL)
        return stet__fail(STET_EUNCERTAIN, "store %s: out of memory after a commit", st->name);
    for (size_t i = 0; i < n; i++) {
        out->grants[i].run = stet__pg_array_id(&a->grun, *at + i);
        out->grants[i].epoch = stet__pg_array_int8(&a->gepoch, *at + i);
        out->grants[i].inbox = stet__pg_array_int8(&a->ginbox, *at + i);
    }
    out->n_grants = n;
    *at += n;
    return STET_OK;
}

/* What is not named in the answer was applied and has nothing to tell. */
int
stet__pg_commit_answer(pg_store *st, const PGresult *res, const stet_unit *units, size_t n,
                       stet_outcome *outcomes)
{
    uint64_t last = (uint64_t)stet__pg_int8(res, 0, OUT_LAST);
    size_t   at = 0, grant = 0;
    answer   a;
    int      err = STET_OK;

    if (!answer_read(res, &a))
        return stet__fail(STET_EUNCERTAIN, "store %s: the server's function answered nonsense",
                          st->name);
    for (size_t i = 0; err == STET_OK && i < n; i++) {
        outcomes[i].is_repeat = units[i].seq <= last;
        if (at < a.seq.n && stet__pg_array_int8(&a.seq, at) == units[i].seq) {
            outcomes[i].result = stet__pg_array_int4(&a.result, at);
            outcomes[i].cond = (uint32_t)stet__pg_array_int4(&a.cond, at);
            outcomes[i].inbox = stet__pg_array_int8(&a.inbox, at);
            outcomes[i].next_due_ms = (int64_t)stet__pg_array_int8(&a.due, at);
            at++;
        }
        err = answer_grants(st, &a, &grant, units[i].seq, &outcomes[i]);
    }
    return err;
}

/* ---- one part -------------------------------------------------------------------------------- */

int
stet__pg_commit_send(pg_store *st, pg_link *c, const stet_id *committer, const stet_unit *units,
                     stet_outcome *outcomes, size_t from, size_t to, PGresult **res, char state[6])
{
    pg_batch batch;
    pg_args  args = { 0 };
    int      err;

    (void)memcpy(state, "08001", 6);
    stet__pg_batch_init(&batch, st);
    if ((err = stet__pg_batch_encode(&batch, units, outcomes, from, to)) == STET_OK) {
        stet__pg_arg_raw(&args, PG_UUID, committer != NULL ? committer->bytes : NULL, 16);
        stet__pg_arg_raw(&args, PG_BYTEA, st->token_hash, sizeof st->token_hash);
        stet__pg_arg_int8(&args, atomic_load(&st->advance_ms));
        stet__pg_arg_int8(&args, (int64_t)st->base.sticky);
        stet__pg_arg_int8(&args, (int64_t)st->base.quiet);
        stet__pg_arg_int4(&args, committer != NULL ? st->turn : 0);
        stet__pg_arg_int8(&args, (int64_t)units[0].seq);
        stet__pg_batch_args(&batch, &args);
        err = stet__pg_query_state(st, c, PG_SQL_COMMIT, &args, res, "commit", state);
    }
    stet__pg_batch_free(&batch);
    return err;
}

static bool
commit_is_race(const char *state)
{
    return strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0 ||
           strcmp(state, "23505") == 0;
}

/* The fault of something in the batch, as far as the code tells. */
static bool
commit_is_content(const char *state)
{
    return strncmp(state, "22", 2) == 0 || strncmp(state, "23", 2) == 0 ||
           strncmp(state, "54", 2) == 0 || strncmp(state, "XX", 2) == 0;
}

/* What the port knows of a failed commit. */
static int
commit_code(pg_store *st, int err, const char *state)
{
    (void)st; /* a mutant's */
    if (STET__MUTANT(postgres_repeat_applied) && state[0] == '\0')
        st->base.committer.bytes[0] ^= 1;
    if ((state[0] == '\0' && !STET__MUTANT(postgres_lost_failed)) || err == STET_EUNCERTAIN)
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

static bool
commit_is_news(const stet_unit *units, const stet_outcome *outcomes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (outcomes[i].result == STET_OK && stet__unit_is_news(&units[i]))
            return true;
    return false;
}

static int
commit_part(pg_store *st, const stet_unit *units, stet_outcome *outcomes, size_t from, size_t to,
            bool *is_news)
{
    PGresult *res = NULL;
    size_t    middle = from + (to - from) / 2;
    int64_t   asked_us;
    char      state[6];
    int       err, tries = 0;

    do {
        asked_us = stet__pg_clock_ask(st);
        err = stet__pg_commit_send(st, &st->writer, &st->base.committer, units, outcomes, from, to,
                                   &res, state);
    } while (err != STET_OK && commit_is_race(state) && ++tries < COMMIT_TRIES);
    if (err == STET_OK) {
        err = stet__pg_commit_answer(st, res, units + from, to - from, outcomes + from);
        *is_news = *is_news || (stet__pg_bool(res, 0, OUT_NEWS) &&
                                commit_is_news(units + from, outcomes + from, to - from));
        st->turn = stet__pg_int4(res, 0, OUT_TURN);
        stet__pg_clock_seen(st, asked_us,
                            stet__pg_int8(res, 0, OUT_NOW) - atomic_load(&st->advance_ms));
        PQclear(res);
        return err;
    }
    if (!commit_is_content(state))
        return commit_code(st, err, state);
    if (to - from == 1) {
        outcomes[from].result = strncmp(state, "54", 2) == 0 ? STET_ETOOBIG : STET_EINVAL;
        outcomes[from].cond = (uint32_t)units[from].n_conds;
        return STET_OK;
    }
    if ((err = commit_part(st, units, outcomes, from, middle, is_news)) != STET_OK)
        return err;
    /* The first half is durable: what fails now leaves the whole unknown, and the repeat finds
     * it. */
    if ((err = commit_part(st, units, outcomes, middle, to, is_news)) != STET_OK)
        return stet__fail(STET_EUNCERTAIN, "%s", stet_last_error());
    return STET_OK;
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* A quick function first, if there is one for it. They do not know units that come again. */
static int
commit_all(pg_store *st, const stet_unit *units, stet_outcome *outcomes, size_t n, bool *is_news)
{
    int64_t  asked_us = stet__pg_clock_ask(st);
    bool     is_repeat = units[0].seq <= st->tried_seq;
    pg_quick quick = { 0 };
    int      err = STET_OK;

    if (units[n - 1].seq > st->tried_seq)
        st->tried_seq = units[n - 1].seq;
    if (!is_repeat)
        err = stet__pg_quick(st, units, n, outcomes, &quick);
    if (quick.is_done) {
        *is_news = quick.has_news && commit_is_news(units, outcomes, n);
        stet__pg_clock_seen(st, asked_us, quick.now_ms - atomic_load(&st->advance_ms));
        return STET_OK;
    }
    if (err != STET_OK)
        return commit_code(st, err, quick.is_lost ? "" : "08001");
    return commit_part(st, units, outcomes, 0, n, is_news);
}

static void
commit_outcomes_clear(pg_store *st, stet_outcome *outcomes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        stet__free(st->base.alloc, outcomes[i].grants);
        memset(&outcomes[i], 0, sizeof outcomes[i]);
        outcomes[i].next_due_ms = STET_NEVER;
    }
}

int
stet__pg_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    pg_store *st = pg_of(s);
    bool      is_news = false;
    int       err;

    memset(outcomes, 0, n * sizeof *outcomes);
    commit_outcomes_clear(st, outcomes, n);
    if ((err = stet__pg_enter(st)) != STET_OK || n == 0)
        return err;
    stet__lock(s->platform, &st->commit_lock);
    err = commit_all(st, units, outcomes, n, &is_news);
    if (is_news && !stet__pg_is_told(st))
        stet__pg_hint(st);
    stet__unlock(s->platform, &st->commit_lock);
    if (err != STET_OK)
        commit_outcomes_clear(st, outcomes, n);
    return err;
}
