/* The mirror: tells the audit hook every entry of every run's trail, at least once, in order.
 *
 * What was told of a run is a value of its own (base.told: the run's last revision and inbox
 * entry), written after the hook has taken them. Whether there is more to tell is seen from the
 * run's row, which counts both; so no mark is left with what is recorded, other
 * processes need not know that there is a hook, and a worker without one pays nothing. Rows are
 * looked at in turn, the newest first and more often; of what this process commits it hears at
 * once. All that is only about when: what is not told stays in the rows.
 *
 * One engine tells at a time: the session in the value base.audit, as long as it lives. Whoever
 * comes too late with its progress is refused by its version. An entry may be told by both then,
 * but each tells what lies between the progress it has read and the entry before it, so its first
 * telling is never out of order.
 *
 * That this value is there is what retention goes by (purge.c): it waits until a run was told.
 *
 * Runs on: a thread of its own, or the one that polls. Locks: engine->lock for what is noted;
 * none is held while the store or the hook is called.
 */
#include <stdio.h>
#include <string.h>

#include "engine/audit.h"
#include "engine/offline.h"

#define MIRROR_PACE_US       50000   /* between rounds: units of one moment are told together */
#define MIRROR_HINT_US       1000000 /* between looks that hints ask for */
#define MIRROR_AWAY_US       1000000 /* between looks whether another engine still tells */
#define MIRROR_PAGE          200u
#define MIRROR_PAGES_MAX     20    /* of a round that finds nothing to tell */
#define MIRROR_NOTED_MAX     1024u /* more are found by looking */
#define MIRROR_BATCH         64u   /* runs whose progress is written together */
#define MIRROR_WAIT_FIRST_US 100000
#define MIRROR_WAIT_MAX_US   60000000
#define MIRROR_REFUSED_MAX   8u /* in a row: not this run is the matter but the hook */
#define MIRROR_SAY_US        60000000
#define MIRROR_PAST_MAX      16u /* generations that are told in one go */
#define MIRROR_KEPT_MAX      ((size_t)32 << 20) /* bytes of one */
#define MIRROR_CLOSING_US    1000000 /* what an engine that stops still tells */

typedef struct mirror_failed {
    int64_t next_us, wait_us;
    bool    is_unreadable; /* the run's facts are; not the hook's doing */
} mirror_failed;

struct stet__mirror {
    stet_engine  *e;
    stet__thread *thread;
    stet__cond    cond;
    /* Under the engine's lock. */
    bool      is_closing, has_hint;
    stet__map noted; /* runs this process has written to */
    /* Of the thread. */
    bool        is_off; /* somebody ended the mirroring */
    atomic_bool was_on; /* read by anybody */
    int64_t  away_us; /* another engine tells: it is not asked before this whether it still does */
    uint64_t version; /* of base.audit, which says that it is us */
    int64_t  round_us, look_us,
        pass_us;            /* the last round; the next look at the newest, and at all */
    stet_id        after;   /* where that look is; zero: at the oldest */
    stet__map      failing; /* run -> mirror_failed */
    _Atomic size_t n_failing;
    size_t         n_refused; /* in a row */
    int64_t        rest_us, rest_wait_us, said_us;
    int64_t        until_us; /* no entry is told after this */
    stet__work    *works[MIRROR_BATCH];
    size_t         n_works;
};

typedef struct mirror_told { /* as base.told has it */
    uint64_t version, revision, inbox;
} mirror_told;

/* Generations of one run that are over and were not told by then; see stet__mirror_keep(). */
typedef struct mirror_past {
    stet__arena arena;
    stet_bytes  keys[MIRROR_PAST_MAX]; /* of those that are told */
    size_t      n;
    stet_bytes  key, bundle; /* the next one; no key: there is none */
} mirror_past;

/* ---- values ---------------------------------------------------------------------------------- */

static stet_bytes
mirror_key(void)
{
    return stet_text("on");
}

static void
mirror_put64(uint8_t out[8], uint64_t n)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(n >> (56 - 8 * i));
}

static uint64_t
mirror_get64(const uint8_t *in)
{
    uint64_t n = 0;

    for (int i = 0; i < 8; i++)
        n = n << 8 | in[i];
    return n;
}

static mirror_told
mirror_decode(const stet_value *value)
{
    mirror_told told = { value->version, value->revision, 0 };

    if (value->data.len == 8)
        told.inbox = mirror_get64(value->data.data);
    return told;
}

static int
mirror_told_of(stet_engine *e, stet_id run, mirror_told *told)
{
    stet_value value = { 0 };
    int err = e->store->ops->value(e->store, STET__SPACE_BASE_TOLD, stet__id_bytes(&run), &value);

    *told = mirror_decode(&value);
    stet__free(e->store->alloc, (void *)(uintptr_t)value.data.data);
    return err == STET_ENOTFOUND ? STET_OK : err;
}

bool
stet__mirror_guard(stet__work *w, uint64_t version)
{
    stet_cond *cond = stet__work_cond(w, STET_COND_VALUE, (stet_id){ { 0 } });

    if (cond == NULL)
        return false;
    cond->space = STET__SPACE_BASE_AUDIT;
    cond->key = mirror_key();
    cond->number = version;
    return true;
}

int
stet__mirror_has_told(stet_engine *e, stet_id run, uint64_t journal, uint64_t inbox, bool *has_told)
{
    mirror_told told;
    int         err = mirror_told_of(e, run, &told);

    *has_told = err == STET_OK && told.revision >= journal && told.inbox >= inbox;
    return err;
}

/* ---- generations that are over --------------------------------------------------------------- */

#define MIRROR_PAST_KEY (sizeof(stet_id) + 8) /* run, generation */

static int
mirror_put_past(stet__work *w, const stet__run *run, stet_bytes bundle)
{
    stet_op *op = stet__work_op(w, STET_OP_VALUE_PUT, run->id);
    uint8_t  key[MIRROR_PAST_KEY];

    memcpy(key, run->id.bytes, sizeof run->id.bytes);
    mirror_put64(key + sizeof run->id.bytes, (uint64_t)run->generation);
    if (op == NULL || !stet__work_bytes(w, &op->key, (stet_bytes){ key, sizeof key }) ||
        !stet__work_bytes(w, &op->data, bundle))
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    op->space = STET__SPACE_BASE_UNTOLD;
    op->number = run->journal;
    return STET_OK;
}

int
stet__mirror_keep(stet_engine *e, stet__work *w, const stet__expect *x)
{
    const stet__run *run = &x->l.run;
    stet__buf        b;
    uint64_t         version;
    bool             has_told = true;
    int              err = stet__mirror_version(e, &version);

    if (err != STET_OK || version == 0 || STET__MUTANT(turn_untold) ||
        (err = stet__mirror_has_told(e, run->id, run->journal, 0, &has_told)) != STET_OK ||
        has_told)
        return err;
    stet__buf_init(&b, &e->p->alloc);
    err = stet__bundle_load(e, &b, &x->l.row);
    if (err == STET_ETOOBIG || (err == STET_OK && b.len > MIRROR_KEPT_MAX)) {
        stet__log(e, STET_LOG_WARN, &run->id, run->handler, NULL, STET_ETOOBIG,
                  "it begins anew, and what the audit hook was not told of the generation before "
                  "is too much to keep: %zu bytes",
                  b.len);
        err = STET_OK;
    } else if (err == STET_OK)
        err = mirror_put_past(w, run, stet__buf_bytes(&b));
    stet__buf_free(&b);
    return err;
}

/* ---- who tells ------------------------------------------------------------------------------- */

#define MIRROR_OFFICE_BYTES 24 /* worker, session */

static void
mirror_office(stet_engine *e, uint8_t out[MIRROR_OFFICE_BYTES])
{
    memcpy(out, e->worker_id.bytes, 16);
    mirror_put64(out + 16, e->session);
}

typedef struct mirror_alive {
    const uint8_t *office;
    bool           found;
} mirror_alive;

/* By both: numbers of sessions begin anew in a store that runs were moved to. */
static int
mirror_on_session(void *arg, const stet_session_row *row)
{
    mirror_alive *a = arg;

    a->found = a->found || (!row->is_dead && row->session == mirror_get64(a->office + 16) &&
                            memcmp(row->id.bytes, a->office, 16) == 0);
    return STET_OK;
}

/* Who tells, into `office`; STET_ENOTFOUND: nobody was to yet, or the mirroring has ended. */
static int
mirror_read_office(stet_engine *e, uint8_t office[MIRROR_OFFICE_BYTES], uint64_t *version)
{
    stet_value value = { 0 };
    int        err = e->store->ops->value(e->store, STET__SPACE_BASE_AUDIT, mirror_key(), &value);

    memset(office, 0, MIRROR_OFFICE_BYTES);
    if (value.data.len == MIRROR_OFFICE_BYTES)
        memcpy(office, value.data.data, MIRROR_OFFICE_BYTES);
    stet__free(e->store->alloc, (void *)(uintptr_t)value.data.data);
    *version = err == STET_OK ? value.version : 0;
    return err;
}

int
stet__mirror_version(stet_engine *e, uint64_t *version)
{
    uint8_t office[MIRROR_OFFICE_BYTES];
    int     err = mirror_read_office(e, office, version);

    return err == STET_ENOTFOUND ? STET_OK : err;
}

bool
stet__mirror_is_awaited(stet_engine *e)
{
    return e->mirror != NULL && !atomic_load(&e->mirror->was_on);
}

int
stet__mirror_state(stet_engine *e, bool *is_on, bool *has_teller)
{
    uint8_t      office[MIRROR_OFFICE_BYTES];
    mirror_alive alive = { office, false };
    uint64_t     version;
    int          err = mirror_read_office(e, office, &version);

    *is_on = err == STET_OK;
    if (err == STET_OK)
        err = e->store->ops->sessions(e->store, mirror_on_session, &alive);
    *has_teller = alive.found;
    return err == STET_ENOTFOUND ? STET_OK : err;
}

static int
mirror_take_office(stet_engine *e, uint64_t version)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    stet_op    *op;
    uint8_t     office[MIRROR_OFFICE_BYTES];

    mirror_office(e, office);
    if (w == NULL || !stet__mirror_guard(w, version) ||
        (op = stet__work_op(w, STET_OP_VALUE_PUT, (stet_id){ { 0 } })) == NULL ||
        !stet__work_bytes(w, &op->data, (stet_bytes){ office, sizeof office })) {
        stet__work_free(w);
        return STET_ENOMEM;
    }
    op->space = STET__SPACE_BASE_AUDIT;
    op->key = mirror_key();
    return stet__commit_sync(e, w, NULL);
}

/* Is it us who tell, from now on if nobody else does? */
static bool
mirror_is_teller(stet_engine *e, stet__mirror *m)
{
    uint8_t      office[MIRROR_OFFICE_BYTES], other[MIRROR_OFFICE_BYTES];
    mirror_alive alive = { other, false };
    uint64_t     version;
    int          err = mirror_read_office(e, other, &version);

    if ((err != STET_OK && err != STET_ENOTFOUND) || e->session == 0)
        return false;
    if (err == STET_ENOTFOUND && atomic_load(&m->was_on)) {
        m->is_off = true;
        stet__log(e, STET_LOG_INFO, NULL, NULL, NULL, STET_OK,
                  "mirroring was turned off: the audit hook is not called any more");
        return false;
    }
    if (err == STET_OK)
        atomic_store(&m->was_on, true);
    mirror_office(e, office);
    if (err == STET_OK && memcmp(office, other, sizeof office) == 0) {
        m->version = version;
        return true;
    }
    if (err == STET_OK &&
        (e->store->ops->sessions(e->store, mirror_on_session, &alive) != STET_OK || alive.found))
        return false;
    if (mirror_take_office(e, version) != STET_OK)
        return false; /* somebody else was faster, or the store is away */
    atomic_store(&m->was_on, true);
    return stet__mirror_version(e, &m->version) == STET_OK && m->version != 0;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* What is refused or lost here is told again. */
static void
mirror_flush(stet_engine *e, stet__mirror *m)
{
    int results[MIRROR_BATCH];

    if (m->n_works > 0)
        (void)stet__commit_all(e, m->works, m->n_works, results, NULL);
    m->n_works = 0;
}

/* Bundles of generations that were told go with it. */
static bool
mirror_drop_past(stet__work *w, const mirror_past *past)
{
    for (size_t i = 0; i < past->n; i++) {
        stet_op *op = stet__work_op(w, STET_OP_VALUE_DEL, (stet_id){ { 0 } });

        if (op == NULL || !stet__work_bytes(w, &op->key, past->keys[i]))
            return false;
        op->space = STET__SPACE_BASE_UNTOLD;
    }
    return true;
}

static void
mirror_progress(stet_engine *e, stet__mirror *m, stet_id run, const mirror_told *told,
                const mirror_past *past)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    stet_cond  *cond;
    stet_op    *op;
    uint8_t     inbox[8];

    mirror_put64(inbox, told->inbox);
    if (w == NULL || !stet__mirror_guard(w, m->version) ||
        (cond = stet__work_cond(w, STET_COND_VALUE, run)) == NULL ||
        (op = stet__work_op(w, STET_OP_VALUE_PUT, run)) == NULL ||
        !stet__work_bytes(w, &cond->key, stet__id_bytes(&run)) ||
        !stet__work_bytes(w, &op->data, (stet_bytes){ inbox, sizeof inbox })) {
        stet__work_free(w);
        return;
    }
    cond->space = op->space = STET__SPACE_BASE_TOLD;
    cond->number = told->version;
    op->key = cond->key;
    op->number = told->revision;
    if (!mirror_drop_past(w, past)) {
        stet__work_free(w);
        return;
    }
    m->works[m->n_works++] = w;
    if (m->n_works == MIRROR_BATCH)
        mirror_flush(e, m);
}

/* ---- one run --------------------------------------------------------------------------------- */

static void
mirror_recovered(stet_engine *e, stet__mirror *m, stet_id run)
{
    mirror_failed *failed = stet__map_remove(&m->failing, run.bytes, sizeof run.bytes);

    if (failed != NULL && !failed->is_unreadable)
        atomic_fetch_sub(&m->n_failing, 1);
    stet__free(&e->p->alloc, failed);
}

static void
mirror_fails(stet_engine *e, stet__mirror *m, stet_id run, bool is_unreadable)
{
    mirror_failed *failed = stet__map_find(&m->failing, run.bytes, sizeof run.bytes);

    if (failed == NULL) {
        if ((failed = stet__get0(&e->p->alloc, sizeof *failed)) == NULL ||
            stet__map_put(&m->failing, run.bytes, sizeof run.bytes, failed) != STET_OK) {
            stet__free(&e->p->alloc, failed);
            return; /* then it is tried again with the next look */
        }
        failed->wait_us = is_unreadable ? MIRROR_WAIT_MAX_US : MIRROR_WAIT_FIRST_US;
        failed->is_unreadable = is_unreadable;
        if (!is_unreadable)
            atomic_fetch_add(&m->n_failing, 1);
        else
            stet__log(e, STET_LOG_WARN, &run, NULL, NULL, STET_ECORRUPT,
                      "the audit hook cannot be told what follows in this run: %s",
                      stet_last_error());
    }
    failed->next_us = stet__mono_us(e->p) + failed->wait_us;
    failed->wait_us =
        failed->wait_us * 2 > MIRROR_WAIT_MAX_US ? MIRROR_WAIT_MAX_US : failed->wait_us * 2;
}

static bool
mirror_must_wait(stet__mirror *m, stet_id run)
{
    const mirror_failed *failed = stet__map_find(&m->failing, run.bytes, sizeof run.bytes);

    return failed != NULL && failed->next_us > stet__mono_us(m->e->p);
}

/* The hook did not take an entry. The run waits; and if nothing else was taken for a while, so
 * does the hook. */
static void
mirror_refused(stet_engine *e, stet__mirror *m, stet_id run, const stet_audit_entry *a, int code)
{
    int64_t now_us = stet__mono_us(e->p);

    mirror_fails(e, m, run, false);
    if (m->said_us == 0 || now_us >= m->said_us + MIRROR_SAY_US) {
        m->said_us = now_us;
        stet__log(e, STET_LOG_WARN, &run, a->handler, NULL, code,
                  "the audit hook refused entry %s (%d); it is told again later, %zu runs wait",
                  a->id, code, atomic_load(&m->n_failing));
    }
    if (++m->n_refused < MIRROR_REFUSED_MAX)
        return;
    m->n_refused = 0;
    m->rest_us = now_us + m->rest_wait_us;
    m->rest_wait_us =
        m->rest_wait_us * 2 > MIRROR_WAIT_MAX_US ? MIRROR_WAIT_MAX_US : m->rest_wait_us * 2;
}

static bool
mirror_is_resting(const stet__mirror *m)
{
    int64_t now_us = stet__mono_us(m->e->p);

    return now_us < m->rest_us || now_us >= m->until_us;
}

/* Tell what the trail has. True: all of it. What came from outside and was not taken has no
 * place in the trail of an open run yet. */
static bool
mirror_tell_trail(stet_engine *e, stet__mirror *m, stet__trail *t, mirror_told *told)
{
    bool is_ended = stet__run_is_terminal(&t->l.run);

    for (size_t i = 0; i < t->n; i++) {
        const stet_audit_entry *a = &t->entries[i];
        int                     code;

        if (a->is_untaken && !is_ended)
            break;
        if (mirror_is_resting(m))
            return false;
        code = stet__trail_tell(t, i, e->config.audit, e->config.audit_arg);
        if (code != STET_OK && !STET__MUTANT(audit_refused)) {
            mirror_refused(e, m, t->l.run.id, a, code);
            return false;
        }
        m->n_refused = 0;
        m->rest_wait_us = MIRROR_WAIT_FIRST_US;
        if (a->inbox != 0)
            told->inbox = a->inbox;
        else
            told->revision = a->revision;
    }
    return true;
}

static int
mirror_on_past(void *arg, stet_bytes key, const stet_value *value)
{
    mirror_past *past = arg;

    past->key = (stet_bytes){ stet__arena_copy(&past->arena, key.data, key.len), key.len };
    past->bundle = (stet_bytes){ stet__arena_copy(&past->arena, value->data.data, value->data.len),
                                 value->data.len };
    return past->key.data != NULL && past->bundle.data != NULL
               ? STET_OK
               : stet__fail(STET_ENOMEM, "out of memory for a bundle");
}

static int
mirror_next_past(stet_engine *e, stet_id run, mirror_past *past)
{
    stet_bytes last = past->key;

    past->key = (stet_bytes){ NULL, 0 };
    return e->store->ops->values(e->store, STET__SPACE_BASE_UNTOLD, stet__id_bytes(&run),
                                 last.data != NULL ? &last : NULL, 1, mirror_on_past, past);
}

/* Those before this generation, the first one first. True: all of them are told. */
static bool
mirror_tell_past(stet_engine *e, stet__mirror *m, const stet__run *run, mirror_told *told,
                 mirror_past *past)
{
    bool is_told = true;

    while (is_told && past->n < MIRROR_PAST_MAX) {
        stet__trail t;
        int         err = mirror_next_past(e, run->id, past);

        if (err != STET_OK)
            return false;
        if (past->key.data == NULL || past->key.len != MIRROR_PAST_KEY ||
            mirror_get64((const uint8_t *)past->key.data + sizeof run->id.bytes) >= run->generation)
            return true;
        err = stet__trail_play(e, &t, run->id, past->bundle, told->revision, told->inbox);
        if (err == STET_ENOMEM)
            is_told = false;
        else if ((is_told = mirror_tell_trail(e, m, &t, told))) {
            if (err != STET_OK)
                stet__log(e, STET_LOG_WARN, &run->id, NULL, NULL, err,
                          "the audit hook cannot be told what follows in a generation: %s",
                          stet_last_error());
            else if (t.l.run.journal > told->revision)
                told->revision = t.l.run.journal;
            past->keys[past->n++] = past->key;
        }
        stet__trail_free(&t);
    }
    return false; /* refused, or there may be more */
}

static void
mirror_tell(stet_engine *e, stet__mirror *m, stet_id run)
{
    mirror_told told, before;
    mirror_past past = { .n = 0 };
    stet__trail t;
    int         err;

    if (mirror_must_wait(m, run) || mirror_told_of(e, run, &told) != STET_OK)
        return;
    before = told;
    stet__arena_init(&past.arena, &e->p->alloc);
    err = stet__trail_load(e, &t, run, told.revision, told.inbox);
    if (err == STET_OK &&
        t.l.run.journal < told.revision) { /* not of this run's facts: all of it once more */
        stet__trail_free(&t);
        told.revision = told.inbox = 0;
        err = stet__trail_load(e, &t, run, 0, 0);
    }
    if (err == STET_OK || err == STET_ECORRUPT) {
        bool is_told = (t.l.run.generation == 0 || told.revision >= t.first ||
                        mirror_tell_past(e, m, &t.l.run, &told, &past)) &&
                       mirror_tell_trail(e, m, &t, &told);

        if (is_told && err == STET_OK) {
            told.revision = t.l.run.journal;
            if (stet__run_is_terminal(&t.l.run))
                told.inbox = t.l.row.inbox; /* also what went with a generation */
            mirror_recovered(e, m, run);
        } else if (is_told)
            mirror_fails(e, m, run, true);
        if (told.revision != before.revision || told.inbox != before.inbox || past.n > 0)
            mirror_progress(e, m, run, &told, &past);
    } else if (err == STET_ENOTFOUND)
        mirror_recovered(e, m, run);
    stet__trail_free(&t);
    stet__arena_free(&past.arena);
}

/* ---- looking --------------------------------------------------------------------------------- */

typedef struct mirror_row {
    stet_id     id;
    uint64_t    journal, inbox;
    bool        is_terminal;
    mirror_told told;
} mirror_row;

typedef struct mirror_page {
    mirror_row rows[MIRROR_PAGE];
    size_t     n;
    bool       is_newest_first;
    /* Progress of runs that are not on the page, perhaps because they are nowhere. */
    stet_id  left[MIRROR_PAGE];
    uint64_t left_version[MIRROR_PAGE];
    size_t   n_left, n_values;
    stet_id  last;
} mirror_page;

static int
mirror_on_row(void *arg, const stet_run_row *row)
{
    mirror_page *page = arg;
    size_t       at = page->is_newest_first ? MIRROR_PAGE - 1 - page->n : page->n;

    page->rows[at] =
        (mirror_row){ row->id, row->journal, row->inbox, row->is_terminal != 0, { 0, 0, 0 } };
    return ++page->n < MIRROR_PAGE ? STET_OK : STET_END;
}

static mirror_row *
mirror_find(mirror_page *page, stet_id id)
{
    size_t low = 0, high = page->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int    order = memcmp(id.bytes, page->rows[mid].id.bytes, sizeof id.bytes);

        if (order == 0)
            return &page->rows[mid];
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

static int
mirror_on_told(void *arg, stet_bytes key, const stet_value *value)
{
    mirror_page *page = arg;
    mirror_row  *row;

    page->n_values++;
    if (key.len != sizeof page->last.bytes)
        return STET_OK;
    memcpy(page->last.bytes, key.data, key.len);
    if (memcmp(key.data, page->rows[page->n - 1].id.bytes, key.len) > 0)
        return STET_END;
    if ((row = mirror_find(page, page->last)) != NULL)
        row->told = mirror_decode(value);
    else if (page->n_left < MIRROR_PAGE) {
        page->left[page->n_left] = page->last;
        page->left_version[page->n_left++] = value->version;
    }
    return STET_OK;
}

static stet_id
mirror_before(stet_id id)
{
    for (size_t i = sizeof id.bytes; i > 0 && id.bytes[i - 1]-- == 0; i--)
        ;
    return id;
}

/* What was told of the runs on the page: keys and runs have the same order. In a pass from where the
 * page began, so that what was told of runs that are not there any more shows. */
static int
mirror_read_told(stet_engine *e, mirror_page *page, const stet_id *begin)
{
    stet_id after = begin != NULL ? *begin : mirror_before(page->rows[0].id);
    int     err;

    do {
        stet_bytes from = stet__id_bytes(&after);

        page->n_values = 0;
        err = e->store->ops->values(e->store, STET__SPACE_BASE_TOLD, (stet_bytes){ NULL, 0 }, &from,
                                    MIRROR_PAGE, mirror_on_told, page);
        after = page->last;
    } while (err == STET_OK && page->n_values == MIRROR_PAGE);
    return err == STET_END ? STET_OK : err;
}

/* Progress of a run that went while it was told. */
static void
mirror_forget(stet_engine *e, stet_id run, uint64_t version)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    stet_cond  *cond;
    stet_op    *op;

    if (w == NULL || stet__work_cond(w, STET_COND_JOURNAL, run) == NULL || /* no such run */
        (cond = stet__work_cond(w, STET_COND_VALUE, run)) == NULL ||
        (op = stet__work_op(w, STET_OP_VALUE_DEL, run)) == NULL ||
        !stet__work_bytes(w, &cond->key, stet__id_bytes(&run))) {
        stet__work_free(w);
        return;
    }
    cond->space = op->space = STET__SPACE_BASE_TOLD;
    cond->number = version;
    op->key = cond->key;
    (void)stet__commit_sync(e, w, NULL);
}

static bool
mirror_is_due(const mirror_row *row)
{
    return row->told.revision != row->journal || (row->is_terminal && row->told.inbox < row->inbox);
}

/* One page of runs. *n is how many are on it, *told how many there was something to tell of. */
static int
mirror_look(stet_engine *e, stet__mirror *m, mirror_page *page, const stet_id *after, size_t *told)
{
    stet_run_query query = { .limit = MIRROR_PAGE, .oldest_first = after != NULL };
    int            err;

    mirror_flush(e, m); /* what was told shows */
    page->n = page->n_left = 0;
    page->is_newest_first = after == NULL;
    if (after != NULL)
        query.before = *after;
    if ((err = e->store->ops->runs(e->store, &query, mirror_on_row, page)) != STET_OK &&
        err != STET_END)
        return err;
    if (page->is_newest_first)
        memmove(page->rows, page->rows + (MIRROR_PAGE - page->n), page->n * sizeof page->rows[0]);
    if (page->n == 0)
        return STET_OK;
    if ((err = mirror_read_told(e, page, after)) != STET_OK)
        return err;
    for (size_t i = 0; i < page->n && !mirror_is_resting(m); i++)
        if (mirror_is_due(&page->rows[i]) && !mirror_must_wait(m, page->rows[i].id)) {
            mirror_tell(e, m, page->rows[i].id);
            ++*told;
        }
    for (size_t i = 0; after != NULL && i < page->n_left; i++)
        mirror_forget(e, page->left[i], page->left_version[i]);
    return STET_OK;
}

/* All runs in turn, some pages at a time. */
static void
mirror_pass(stet_engine *e, stet__mirror *m, mirror_page *page)
{
    int64_t now_us = stet__mono_us(e->p);
    size_t  told = 0;

    m->pass_us = now_us + e->config.sweep_ms * 1000;
    for (int i = 0; i < MIRROR_PAGES_MAX; i++) {
        if (mirror_look(e, m, page, &m->after, &told) != STET_OK || mirror_is_resting(m))
            return;
        if (page->n < MIRROR_PAGE) {
            memset(&m->after, 0, sizeof m->after);
            return;
        }
        m->after = page->rows[page->n - 1].id;
    }
    if (told > 0)
        m->pass_us = now_us; /* there may be much more */
}

static void
mirror_retry(stet_engine *e, stet__mirror *m)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;
    stet_id     due[MIRROR_BATCH];
    size_t      n = 0;

    while (n < MIRROR_BATCH && stet__map_next(&m->failing, &at, &key, &len, &value))
        if (((mirror_failed *)value)->next_us <= stet__mono_us(e->p))
            memcpy(due[n++].bytes, key, sizeof due[0].bytes);
    if (n > 0)
        mirror_flush(e, m);
    for (size_t i = 0; i < n && !mirror_is_resting(m); i++)
        mirror_tell(e, m, due[i]);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void
mirror_tell_noted(stet_engine *e, stet__mirror *m, const stet__map *noted)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;
    stet_id     run;

    while (!mirror_is_resting(m) && stet__map_next(noted, &at, &key, &len, &value)) {
        memcpy(run.bytes, key, sizeof run.bytes);
        mirror_tell(e, m, run);
    }
}

static void
mirror_round(stet_engine *e, stet__mirror *m, bool is_last)
{
    mirror_page *page = NULL;
    stet__map    noted;
    bool         has_hint;
    int64_t      now_us = stet__mono_us(e->p);

    m->round_us = now_us;
    m->until_us = is_last ? now_us + MIRROR_CLOSING_US : INT64_MAX;
    if (m->is_off || mirror_is_resting(m))
        return;
    stet__lock(e->p, &e->lock);
    noted = m->noted;
    stet__map_init(&m->noted, &e->p->alloc);
    has_hint = m->has_hint;
    m->has_hint = false;
    stet__unlock(e->p, &e->lock);
    if (has_hint && m->look_us > now_us + MIRROR_HINT_US)
        m->look_us = now_us + MIRROR_HINT_US;
    if (mirror_is_teller(e, m)) {
        mirror_tell_noted(e, m, &noted);
        if (!is_last)
            mirror_retry(e, m);
        if (!is_last && (now_us >= m->look_us || now_us >= m->pass_us) &&
            (page = stet__get(&e->p->alloc, sizeof *page)) != NULL) {
            size_t told = 0;

            m->look_us = now_us + e->config.sweep_ms * 1000;
            (void)mirror_look(e, m, page, NULL, &told);
            if (now_us >= m->pass_us)
                mirror_pass(e, m, page);
        }
        mirror_flush(e, m);
    } else { /* somebody else does; or it is asked again later */
        m->look_us = m->pass_us = now_us + e->config.sweep_ms * 1000;
        m->away_us = now_us + MIRROR_AWAY_US;
        if (m->away_us > m->look_us)
            m->away_us = m->look_us;
    }
    stet__free(&e->p->alloc, page);
    stet__map_free(&noted);
}

/* When the next round is due; lock held. */
static int64_t
mirror_next(stet__mirror *m)
{
    int64_t     next_us = m->look_us < m->pass_us ? m->look_us : m->pass_us;
    size_t      at = 0, len;
    const void *key;
    void       *value;

    if (m->is_off)
        return STET__FOREVER;
    if (m->noted.used > 0)
        next_us = m->round_us;
    if (m->has_hint && m->round_us + MIRROR_HINT_US < next_us)
        next_us = m->round_us + MIRROR_HINT_US;
    while (stet__map_next(&m->failing, &at, &key, &len, &value))
        if (((mirror_failed *)value)->next_us < next_us)
            next_us = ((mirror_failed *)value)->next_us;
    if (next_us < m->rest_us)
        next_us = m->rest_us;
    if (next_us < m->away_us)
        next_us = m->away_us;
    return next_us < m->round_us + MIRROR_PACE_US ? m->round_us + MIRROR_PACE_US : next_us;
}

static void
mirror_main(void *arg)
{
    stet__mirror *m = arg;
    stet_engine  *e = m->e;

    stet__lock(e->p, &e->lock);
    while (!m->is_closing) {
        int64_t next_us = mirror_next(m);

        if (stet__mono_us(e->p) < next_us) {
            (void)stet__wait(e->p, &m->cond, &e->lock, next_us);
            continue;
        }
        stet__unlock(e->p, &e->lock);
        mirror_round(e, m, false);
        stet__lock(e->p, &e->lock);
    }
    stet__unlock(e->p, &e->lock);
}

int64_t
stet__mirror_poll(stet_engine *e)
{
    stet__mirror *m = e->mirror;
    int64_t       next_us;

    if (m == NULL)
        return STET__FOREVER;
    stet__lock(e->p, &e->lock);
    next_us = mirror_next(m);
    stet__unlock(e->p, &e->lock);
    if (stet__mono_us(e->p) < next_us)
        return next_us;
    mirror_round(e, m, false);
    return m->round_us + MIRROR_PACE_US;
}

void
stet__mirror_note(stet_engine *e, const stet__work *w)
{
    stet__mirror *m = e->mirror;
    bool          was_empty = m->noted.used == 0;

    for (size_t i = 0; i < w->unit.n_ops && m->noted.used < MIRROR_NOTED_MAX; i++) {
        const stet_op *op = &w->ops[i];

        if (op->kind == STET_OP_FACTS || op->kind == STET_OP_INBOX)
            (void)stet__map_put(&m->noted, op->run.bytes, sizeof op->run.bytes, m);
    }
    if (was_empty && m->noted.used > 0)
        stet__signal(e->p, &m->cond);
}

void
stet__mirror_hint(stet_engine *e)
{
    if (e->mirror == NULL || e->mirror->has_hint)
        return;
    e->mirror->has_hint = true;
    stet__signal(e->p, &e->mirror->cond);
}

size_t
stet__mirror_failing(stet_engine *e)
{
    return e->mirror != NULL ? atomic_load(&e->mirror->n_failing) : 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

int
stet__mirror_open(stet_engine *e)
{
    stet__mirror *m;
    int           err;

    if (e->config.audit == NULL || (e->config.roles & STET_ROLE_CLIENT))
        return STET_OK;
    if ((m = stet__get0(&e->p->alloc, sizeof *m)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for the audit hook");
    if ((err = e->p->ops->cond_init(e->p, &m->cond)) != STET_OK) {
        stet__free(&e->p->alloc, m);
        return err;
    }
    m->e = e;
    m->rest_wait_us = MIRROR_WAIT_FIRST_US;
    stet__map_init(&m->noted, &e->p->alloc);
    stet__map_init(&m->failing, &e->p->alloc);
    e->mirror = m;
    return STET_OK;
}

int
stet__mirror_start(stet_engine *e)
{
    stet__mirror *m = e->mirror;

    if (m == NULL)
        return STET_OK;
    m->is_closing = false;
    return e->p->ops->thread_start(e->p, &m->thread, "stet-audit", mirror_main, m);
}

void
stet__mirror_close(stet_engine *e)
{
    stet__mirror *m = e->mirror;

    if (m == NULL)
        return;
    if (m->thread != NULL) {
        stet__lock(e->p, &e->lock);
        m->is_closing = true;
        stet__signal(e->p, &m->cond);
        stet__unlock(e->p, &e->lock);
        e->p->ops->thread_join(e->p, m->thread);
        m->thread = NULL;
    }
    if (!e->is_poisoned)
        mirror_round(e, m, true);
}

void
stet__mirror_free(stet_engine *e)
{
    stet__mirror *m = e->mirror;
    size_t        at = 0, len;
    const void   *key;
    void         *value;

    if (m == NULL)
        return;
    while (stet__map_next(&m->failing, &at, &key, &len, &value))
        stet__free(&e->p->alloc, value);
    stet__map_free(&m->failing);
    stet__map_free(&m->noted);
    e->p->ops->cond_destroy(e->p, &m->cond);
    stet__free(&e->p->alloc, m);
    e->mirror = NULL;
}

/* ---- the end of it --------------------------------------------------------------------------- */

typedef struct mirror_emptied {
    stet__work *w;
    const char *space;
} mirror_emptied;

static int
mirror_on_any(void *arg, stet_bytes key, const stet_value *value)
{
    mirror_emptied *of = arg;
    stet_op        *op = stet__work_op(of->w, STET_OP_VALUE_DEL, (stet_id){ { 0 } });

    (void)value;
    if (op == NULL || !stet__work_bytes(of->w, &op->key, key))
        return stet__fail(STET_ENOMEM, "out of memory");
    op->space = of->space;
    return STET_OK;
}

static int
mirror_empty(stet_engine *e, const char *space)
{
    mirror_emptied of = { .space = space };
    size_t         n;
    int            err;

    do {
        n = 0;
        if ((of.w = stet__work_new(e, NULL, NULL)) == NULL)
            return STET_ENOMEM;
        if ((err = e->store->ops->values(e->store, space, (stet_bytes){ NULL, 0 }, NULL,
                                         MIRROR_PAGE, mirror_on_any, &of)) != STET_OK ||
            (n = of.w->unit.n_ops) == 0)
            stet__work_free(of.w);
        else
            err = stet__commit_sync(e, of.w, NULL);
    } while (err == STET_OK && n == MIRROR_PAGE);
    return err;
}

/* The switch first: a progress that comes later is refused by it. */
int
stet_audit_off(stet_engine *e)
{
    stet__work *w;
    stet_op    *op;
    int         err;

    if ((err = stet__alive(e, "stet_audit_off")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_audit_off", "a program of its own")) != STET_OK)
        return err;
    if ((w = stet__work_new(e, NULL, NULL)) == NULL)
        return STET_ENOMEM;
    if ((op = stet__work_op(w, STET_OP_VALUE_DEL, (stet_id){ { 0 } })) == NULL) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory");
    }
    op->space = STET__SPACE_BASE_AUDIT;
    op->key = mirror_key();
    if ((err = stet__commit_sync(e, w, NULL)) != STET_OK ||
        (err = mirror_empty(e, STET__SPACE_BASE_TOLD)) != STET_OK)
        return err;
    return mirror_empty(e, STET__SPACE_BASE_UNTOLD);
}
