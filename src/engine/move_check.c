/* A move's proof: the target holds what its facts say, and the same facts, inboxes, baselines and
 * state as the source.
 *
 * Both sides are read once more from the stores, all of it. What is compared is a SHA-256 over each
 * run, and the numbers of everything; a difference names the run.
 */
#include <string.h>

#include "engine/move.h"

#define CHECK_ROWS 64u

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct check_run {
    stet__sha256_sum sum;
    uint64_t         facts, inbox; /* last revision and sequence read */
    uint8_t          digest[32];
} check_run;

/* How a store cuts a journal into rows is its own business, so only the facts count. */
static int
check_on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    check_run *c = arg;

    stet__sha256_add(&c->sum, facts.data, facts.len);
    c->facts = first + count - 1;
    return STET_OK;
}

static int
check_on_inbox(void *arg, uint64_t first, uint32_t count, stet_bytes entry)
{
    check_run *c = arg;
    uint64_t   len = entry.len;

    (void)count;
    stet__sha256_add(&c->sum, &first, sizeof first);
    stet__sha256_add(&c->sum, &len, sizeof len);
    stet__sha256_add(&c->sum, entry.data, entry.len);
    c->inbox = first;
    return STET_OK;
}

static int
check_read(stet_store *s, stet_id id, check_run *c)
{
    uint64_t before;
    int      err;

    memset(c, 0, sizeof *c);
    stet__sha256_begin(&c->sum);
    do {
        before = c->facts;
        err = s->ops->journal(s, id, before + 1, CHECK_ROWS, check_on_facts, c);
    } while (err == STET_OK && c->facts > before);
    stet__sha256_add(&c->sum, &c->facts, sizeof c->facts);
    while (err == STET_OK) {
        before = c->inbox;
        if ((err = s->ops->inbox(s, id, before + 1, CHECK_ROWS, check_on_inbox, c)) != STET_OK ||
            c->inbox == before)
            break;
    }
    stet__sha256_end(&c->sum, c->digest);
    return err;
}

static int
check_on_row(void *arg, const stet_run_row *row)
{
    stet_run_row *to = arg;

    *to = *row; /* its texts are not looked at */
    return STET_OK;
}

static int
check_differs(move *m, stet_id id, const char *what)
{
    char run[STET_ID_TEXT_MAX];

    stet__id_text(run, STET__ID_RUN, id);
    return stet__fail(STET_ECORRUPT,
                      "run %s: %s in %s and %s; `stet move` again copies what is missing", run,
                      what, m->from->url, m->to->url);
}

static int
check_one(move *m, const stet_run_row *row, stet__sha256_sum *all)
{
    stet_store  *t = m->to->store;
    check_run    from, to;
    stet_run_row there = { 0 };
    int          err = t->ops->run(t, row->id, check_on_row, &there);

    if (err == STET_ENOTFOUND)
        return check_differs(m, row->id, "is not the same");
    if (err != STET_OK || (err = check_read(m->from->store, row->id, &from)) != STET_OK ||
        (err = check_read(t, row->id, &to)) != STET_OK)
        return err;
    if (from.facts != to.facts || from.inbox != to.inbox)
        return check_differs(m, row->id, "the numbers of facts or inbox entries are not the same");
    if (memcmp(from.digest, to.digest, sizeof to.digest) != 0)
        return check_differs(m, row->id, "facts or inbox entries are not the same");
    if (row->is_terminal != there.is_terminal ||
        (row->is_terminal && row->status != there.status)) {
        char run[STET_ID_TEXT_MAX];

        stet__id_text(run, STET__ID_RUN, row->id);
        return stet__fail(STET_ECORRUPT,
                          "run %s: its status in %s is not what its facts say; call the move off, "
                          "`stet verify --repair` there, then move",
                          run, m->from->url);
    }
    stet__sha256_add(all, row->id.bytes, sizeof row->id.bytes);
    stet__sha256_add(all, to.digest, sizeof to.digest);
    m->report.runs++;
    m->report.open_runs += !there.is_terminal;
    m->report.facts += to.facts;
    m->report.inbox += to.inbox;
    return STET_OK;
}

/* ---- what may be too much in the target ------------------------------------------------------ */

typedef struct check_count {
    uint64_t n, page;
    stet_id  last;
} check_count;

static int
check_on_count(void *arg, const stet_run_row *row)
{
    check_count *c = arg;

    c->n++;
    c->page++;
    c->last = row->id;
    return STET_OK;
}

static int
check_count_runs(move *m)
{
    stet_store    *t = m->to->store;
    check_count    c = { .n = 0 };
    stet_run_query query = { .oldest_first = true, .limit = 1000 };
    int            err;

    do {
        c.page = 0;
        err = t->ops->runs(t, &query, check_on_count, &c);
        query.before = c.last;
    } while (err == STET_OK && c.page == query.limit);
    if (err == STET_OK && c.n != m->report.runs)
        err = stet__fail(STET_ECORRUPT, "%s has %llu runs, %s has %llu", m->from->url,
                         (unsigned long long)m->report.runs, m->to->url, (unsigned long long)c.n);
    return err;
}

/* ---- baselines ------------------------------------------------------------------------------- */

typedef struct check_bases {
    stet__sha256_sum sum;
    uint64_t         n;
    size_t           page;
    stet__buf        at;
} check_bases;

static int
check_on_base(void *arg, stet_bytes key, const stet_value *value)
{
    check_bases *b = arg;
    uint64_t     lens[3] = { key.len, value->data.len, value->revision };

    stet__sha256_add(&b->sum, lens, sizeof lens);
    stet__sha256_add(&b->sum, value->run.bytes, sizeof value->run.bytes);
    stet__sha256_add(&b->sum, key.data, key.len);
    stet__sha256_add(&b->sum, value->data.data, value->data.len);
    b->at.len = 0;
    stet__buf_add(&b->at, key.data, key.len);
    b->n++;
    b->page++;
    return b->at.failed ? stet__move_no_memory() : STET_OK;
}

static int
check_space(stet_engine *e, const char *space, check_bases *b)
{
    stet_store *s = e->store;
    stet_bytes  none = { NULL, 0 }, after;
    int         err;

    b->page = 0;
    stet__buf_init(&b->at, &e->p->alloc);
    do {
        bool is_first = b->page == 0;

        after = stet__buf_bytes(&b->at);
        b->page = 0;
        /* What it stands at is copied before the next key comes, which reuses the buffer. */
        if (is_first)
            err = s->ops->values(s, space, none, NULL, CHECK_ROWS, check_on_base, b);
        else {
            stet__buf key;

            stet__buf_init(&key, &e->p->alloc);
            stet__buf_add(&key, after.data, after.len);
            after = stet__buf_bytes(&key);
            err = key.failed ? stet__move_no_memory()
                             : s->ops->values(s, space, none, &after, CHECK_ROWS, check_on_base, b);
            stet__buf_free(&key);
        }
    } while (err == STET_OK && b->page == CHECK_ROWS);
    stet__buf_free(&b->at);
    return err;
}

/* One space on both sides; `n`: how many. */
static int
check_both(move *m, const char *space, const char *what, stet__sha256_sum *all, uint64_t *n)
{
    check_bases from, to;
    uint8_t     a[32], b[32];
    int         err;

    from.n = to.n = 0;
    stet__sha256_begin(&from.sum);
    stet__sha256_begin(&to.sum);
    if ((err = check_space(m->from, space, &from)) != STET_OK ||
        (err = check_space(m->to, space, &to)) != STET_OK)
        return err;
    stet__sha256_end(&from.sum, a);
    stet__sha256_end(&to.sum, b);
    if (from.n != to.n || memcmp(a, b, sizeof a) != 0)
        return stet__fail(STET_ECORRUPT, "%s %s: %llu in %s, %llu in %s, and they are not the same",
                          what, space, (unsigned long long)from.n, m->from->url,
                          (unsigned long long)to.n, m->to->url);
    stet__sha256_add(all, b, sizeof b);
    *n += to.n;
    return STET_OK;
}

static int
check_all_values(move *m, stet__sha256_sum *all)
{
    static const char *const bases[] = STET__SPACES_BASE, *const states[] = STET__SPACES_STATE;
    uint64_t                 entries = 0;
    int                      err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < sizeof bases / sizeof *bases; i++)
        err = check_both(m, bases[i], "baselines", all, &m->report.baselines);
    for (size_t i = 0; err == STET_OK && i < sizeof states / sizeof *states; i++)
        err = check_both(m, states[i], "entries of", all, &entries);
    return err;
}

int
stet__move_compare(move *m)
{
    stet__sha256_sum all;
    uint8_t          digest[32];
    int              err = STET_OK;

    memset(&m->last, 0, sizeof m->last);
    m->done = 0;
    stet__sha256_begin(&all);
    do {
        if ((err = stet__move_page(m)) != STET_OK)
            return err;
        for (size_t i = 0; err == STET_OK && i < m->n_rows; i++)
            err = check_one(m, &m->rows[i], &all);
        m->done += m->n_rows;
        if (err == STET_OK)
            err = stet__move_tell(m, STET_MOVE_COMPARING);
    } while (err == STET_OK && m->n_rows > 0);
    if (err != STET_OK || (err = check_count_runs(m)) != STET_OK ||
        (err = check_all_values(m, &all)) != STET_OK)
        return err;
    stet__sha256_end(&all, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        (void)snprintf(m->report.digest + 2 * i, 3, "%02x", digest[i]);
    return STET_OK;
}

/* ---- verify ---------------------------------------------------------------------------------- */

typedef struct check_findings {
    move     *m;
    stet__map known; /* in the source: run NUL rule */
    bool      is_source;
    uint64_t  n;
    char      text[512]; /* of the first that is in the target only */
} check_findings;

/* Of the repair: what was wrong is right now. Facts that cannot be read stay so. */
static int
check_on_repaired(void *arg, const stet_finding *finding)
{
    if (strcmp(finding->rule, "facts") == 0)
        *(bool *)arg = true;
    return STET_OK;
}

static int
check_on_finding(void *arg, const stet_finding *finding)
{
    check_findings *f = arg;
    char            key[STET_ID_TEXT_MAX + 64];
    int len = snprintf(key, sizeof key, "%s %s", finding->run != NULL ? finding->run : "-",
                       finding->rule);

    f->n++;
    if (f->is_source)
        return stet__map_put(&f->known, key, (size_t)len, f) == STET_OK ? STET_OK
                                                                        : stet__move_no_memory();
    if (stet__map_find(&f->known, key, (size_t)len) == NULL && f->text[0] == '\0')
        (void)snprintf(f->text, sizeof f->text, "%s: %s: %s",
                       finding->run != NULL ? finding->run : "store", finding->rule, finding->text);
    return STET_OK;
}

/* What cannot be repaired (facts that nobody can read) moves as it is. Anything else that is wrong
 * in the target was made by us, so it does not become one. */
int
stet__move_verify(move *m)
{
    check_findings f = { .m = m };
    bool           is_unreadable = false;
    size_t         checked;
    int            err;

    if ((err = stet_repair(m->to, &checked, check_on_repaired, &is_unreadable)) != STET_OK ||
        (err = stet__move_state(m)) != STET_OK ||
        (is_unreadable && (err = stet__move_values(m)) != STET_OK))
        return err;
    stet__map_init(&f.known, &m->to->p->alloc);
    if ((err = stet_verify(m->to, &checked, check_on_finding, &f)) == STET_OK && f.n > 0) {
        f.is_source = true;
        err = stet_verify(m->from, &checked, check_on_finding, &f);
        f.is_source = false;
        f.n = 0;
        f.text[0] = '\0';
        if (err == STET_OK)
            err = stet_verify(m->to, &checked, check_on_finding, &f);
        if (err == STET_OK && f.text[0] != '\0')
            err = stet__fail(STET_ECORRUPT, "%s: %s", m->to->url, f.text);
    }
    m->report.findings = f.n;
    stet__map_free(&f.known);
    return err;
}
