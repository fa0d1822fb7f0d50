/* Are all runs where they are looked for: by workers through `work`, by lists through the stretches
 * of time? And set right what is not. sqlite_schema.c says what `work` means, sqlite_stretch.c which
 * entries a run must have.
 *
 * Both hold in every state of the file that is committed. So a page of runs is compared inside one
 * read transaction, and what differs there is damage, however busy the file is. Only the entries of
 * keys lie in lots that must all be read to find one: they are read once in the beginning, lot by
 * lot, and for runs whose entry is not among them once more inside the transaction of their page.
 *
 * A page is repaired by one transaction on `side`, which looks at each run again. The committers of
 * all handles see that somebody else wrote, and forget what they remember of the file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sqlite.h"

#define MEND_PAGE  256u /* runs that are compared in a read transaction */
#define MEND_LOTS  64   /* that are read before the connection is given back */
#define MEND_LISTS (LITE_LACKS_HANDLER | LITE_LACKS_STATUS | LITE_LACKS_TIME | LITE_LACKS_KEY)

typedef struct mend_run {
    stet_id  id;
    unsigned lacks;
    int64_t  work; /* what belongs there */
    bool     wants_work, is_gone;
    uint64_t print; /* of its key's entry */
} mend_run;

typedef struct mend {
    sqlite_store *st;
    uint64_t     *prints; /* of all keys, sorted. One in 2^64 may stand for another */
    size_t        n_prints, cap_prints;
    bool          is_out_of_memory;
    stet_id       last; /* run of the page */
    size_t        n_rows, n;
    mend_run      found[MEND_PAGE];
    uint64_t      wanted[MEND_PAGE]; /* prints that are looked for in this transaction */
    bool          is_there[MEND_PAGE];
    size_t        n_wanted;
} mend;

static int
mend_no_memory(const mend *m)
{
    return stet__fail(STET_ENOMEM, "store %s: out of memory", m->st->path);
}

static int
mend_order(const void *left, const void *right)
{
    uint64_t a, b;

    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return a < b ? -1 : a > b;
}

static uint64_t *
mend_find(uint64_t print, uint64_t *in, size_t n)
{
    return n > 0 ? bsearch(&print, in, n, sizeof *in, mend_order) : NULL;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void
mend_on_print(void *arg, uint64_t print)
{
    mend     *m = arg;
    uint64_t *grown;

    if (m->n_prints == m->cap_prints && !m->is_out_of_memory) {
        size_t cap = stet__cap_next(m->st->base.alloc, m->cap_prints, 1024);

        if ((grown = stet__grow(m->st->base.alloc, m->prints, cap * sizeof *grown)) != NULL) {
            m->prints = grown;
            m->cap_prints = cap;
        }
        m->is_out_of_memory = grown == NULL;
    }
    if (!m->is_out_of_memory)
        m->prints[m->n_prints++] = print;
}

/* The lots behind *lot, which is moved on. */
static int
mend_read_lots(mend *m, int64_t *lot, bool *is_end)
{
    sqlite_conn  *c;
    sqlite3_stmt *row;
    int           err, rc = SQLITE_ROW;

    if ((err = stet__sqlite_reader_take(m->st, &c)) != STET_OK)
        return err;
    row = stet__sqlite_stmt(m->st, c, LITE_SQL_STRETCH_KEYS_AFTER, &err);
    for (int i = 0; row != NULL && rc == SQLITE_ROW && i < MEND_LOTS; i++) {
        sqlite3_bind_int64(row, 1, *lot);
        sqlite3_bind_int64(row, 2, 0);
        if ((rc = sqlite3_step(row)) == SQLITE_ROW) {
            *lot = sqlite3_column_int64(row, 0);
            stet__sqlite_stretch_prints(stet__sqlite_column_bytes(row, 1), mend_on_print, m);
        } else if (rc != SQLITE_DONE)
            err = stet__sqlite_fail(m->st, c->db, rc, "look for keys");
        sqlite3_reset(row);
    }
    stet__sqlite_reader_give(m->st, c);
    *is_end = rc != SQLITE_ROW;
    return err == STET_OK && m->is_out_of_memory ? mend_no_memory(m) : err;
}

static int
mend_read_keys(mend *m)
{
    int64_t lot = INT64_MIN;
    bool    is_end = !m->st->has_stretches;
    int     err = STET_OK;

    while (err == STET_OK && !is_end)
        err = mend_read_lots(m, &lot, &is_end);
    if (m->n_prints > 0)
        qsort(m->prints, m->n_prints, sizeof *m->prints, mend_order);
    return err;
}

static void
mend_on_wanted(void *arg, uint64_t print)
{
    mend     *m = arg;
    uint64_t *at = mend_find(print, m->wanted, m->n_wanted);

    if (at != NULL)
        m->is_there[at - m->wanted] = true;
}

/* Lots are put together and runs begin while pages are read: is the entry really in none of them? */
static int
mend_look_for_keys(mend *m, sqlite_conn *c)
{
    sqlite3_stmt *row;
    int           err = STET_OK, rc;

    m->n_wanted = 0;
    for (size_t i = 0; i < m->n; i++)
        if ((m->found[i].lacks & LITE_LACKS_KEY) != 0)
            m->wanted[m->n_wanted++] = m->found[i].print;
    if (m->n_wanted == 0)
        return STET_OK;
    qsort(m->wanted, m->n_wanted, sizeof *m->wanted, mend_order);
    memset(m->is_there, 0, sizeof m->is_there);
    if ((row = stet__sqlite_stmt(m->st, c, LITE_SQL_STRETCH_KEYS, &err)) == NULL)
        return err;
    while ((rc = sqlite3_step(row)) == SQLITE_ROW)
        stet__sqlite_stretch_prints(stet__sqlite_column_bytes(row, 0), mend_on_wanted, m);
    if (rc != SQLITE_DONE)
        err = stet__sqlite_fail(m->st, c->db, rc, "look for keys");
    sqlite3_reset(row);
    for (size_t i = 0; i < m->n; i++)
        if ((m->found[i].lacks & LITE_LACKS_KEY) != 0)
            /* Which of several equal ones is found is the same each time. */
            if (m->is_there[mend_find(m->found[i].print, m->wanted, m->n_wanted) - m->wanted])
                m->found[i].lacks &= ~(unsigned)LITE_LACKS_KEY;
    return err;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* An idle run that some other handle wants to find by its status does no harm there. */
static bool
mend_is_work_right(const mend_run *found, const sqlite_run *run, sqlite3_stmt *row)
{
    int     type = sqlite3_column_type(row, 4);
    int64_t work = sqlite3_column_int64(row, 4);

    if (type == SQLITE_NULL)
        return !found->wants_work;
    if (type != SQLITE_INTEGER)
        return false;
    return found->wants_work ? work == found->work
                             : !run->is_terminal && work == -1 - (int64_t)run->status;
}

/* All but the key's entry; `listed` lives as long as the row. */
static int
mend_look(mend *m, sqlite_conn *c, sqlite3_stmt *row, mend_run *found, sqlite_listed *listed)
{
    sqlite_run  run = { 0 };
    int64_t     work = sqlite3_column_int64(row, 4);
    const char *handler = stet__sqlite_column_text(row, 1);

    run.id = stet__sqlite_column_id(row, 0);
    run.status = (uint32_t)sqlite3_column_int64(row, 2);
    run.is_terminal = (uint32_t)sqlite3_column_int64(row, 3);
    run.session = work > 0 ? (uint64_t)work : 0;
    run.due_ms = stet__sqlite_column_time(row, 5);
    memset(found, 0, sizeof *found);
    found->id = run.id;
    found->wants_work = stet__sqlite_run_work(m->st, &run, &found->work);
    *listed = (sqlite_listed){ .id = run.id,
                               .handler = handler != NULL ? handler : "",
                               .key = stet__sqlite_column_text(row, 7),
                               .status = run.status,
                               .has_work = sqlite3_column_type(row, 4) != SQLITE_NULL,
                               .created_ms = sqlite3_column_int64(row, 6) };
    if (!mend_is_work_right(found, &run, row)) {
        found->lacks = LITE_LACKS_WORK;
        listed->has_work = found->wants_work;
    }
    return m->st->has_stretches ? stet__sqlite_stretch_lacks(m->st, c, listed, &found->lacks)
                                : STET_OK;
}

static int
mend_look_at_page(mend *m, sqlite_conn *c)
{
    stet_id       last = m->last;
    sqlite3_stmt *row;
    int           err = STET_OK, rc = SQLITE_DONE;

    if ((row = stet__sqlite_stmt(m->st, c, LITE_SQL_MEND_PAGE, &err)) == NULL)
        return err;
    m->n = m->n_rows = 0;
    sqlite_bind_id(row, 1, &m->last);
    sqlite3_bind_int64(row, 2, MEND_PAGE);
    while (err == STET_OK && (rc = sqlite3_step(row)) == SQLITE_ROW) {
        mend_run     *found = &m->found[m->n];
        sqlite_listed listed;

        err = mend_look(m, c, row, found, &listed);
        if (listed.key != NULL && m->st->has_stretches) {
            found->print = stet__sqlite_stretch_print(stet__sqlite_stretch_hash(listed.key),
                                                      stet__sqlite_stretch_of(&found->id));
            if (mend_find(found->print, m->prints, m->n_prints) == NULL)
                found->lacks |= LITE_LACKS_KEY;
        }
        m->n_rows++;
        if (memcmp(found->id.bytes, last.bytes, sizeof last.bytes) > 0)
            last = found->id;
        m->n += found->lacks != 0;
    }
    if (err == STET_OK && rc != SQLITE_DONE)
        err = stet__sqlite_fail(m->st, c->db, rc, "look for runs");
    sqlite3_reset(row);
    if (stet__id_equal(last, m->last))
        m->n_rows = 0; /* the end; or IDs that are none, behind which nothing would be found */
    m->last = last;
    return err == STET_OK ? mend_look_for_keys(m, c) : err;
}

/* One read transaction. */
static int
mend_page(mend *m)
{
    sqlite_conn  *c;
    sqlite3_stmt *begin, *end;
    int           err;

    if ((err = stet__sqlite_reader_take(m->st, &c)) != STET_OK)
        return err;
    if ((end = stet__sqlite_stmt(m->st, c, LITE_SQL_COMMIT, &err)) != NULL &&
        (begin = stet__sqlite_stmt(m->st, c, LITE_SQL_READ_BEGIN, &err)) != NULL &&
        (err = stet__sqlite_run(m->st, c, begin, "look for runs")) == STET_OK) {
        err = mend_look_at_page(m, c);
        (void)sqlite3_step(end);
        sqlite3_reset(end);
        if (!sqlite3_get_autocommit(c->db)) /* it would keep the log from being emptied */
            stet__sqlite_conn_close(c);
    }
    stet__sqlite_reader_give(m->st, c);
    return err;
}

/* ---- repairing ------------------------------------------------------------------------------- */

static int
mend_write_work(mend *m, sqlite_conn *c, const mend_run *run)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(m->st, c, LITE_SQL_MEND_WORK, &err);

    if (stmt == NULL)
        return err;
    sqlite_bind_id(stmt, 1, &run->id);
    if (run->wants_work)
        sqlite3_bind_int64(stmt, 2, run->work);
    else
        sqlite3_bind_null(stmt, 2);
    return stet__sqlite_run(m->st, c, stmt, "put a run into the queue");
}

/* As it is now; it may have moved on, or be gone. */
static int
mend_repair_run(mend *m, sqlite_conn *c, mend_run *found, stet__buf *keys)
{
    mend_run      now = { .lacks = 0 };
    sqlite_listed listed;
    int           err = STET_OK, rc;
    sqlite3_stmt *row = stet__sqlite_stmt(m->st, c, LITE_SQL_MEND_ROW, &err);

    if (row == NULL)
        return err;
    sqlite_bind_id(row, 1, &found->id);
    rc = sqlite3_step(row);
    found->is_gone = rc == SQLITE_DONE;
    if (rc == SQLITE_ROW) {
        /* A second entry of a key does no harm. */
        if ((err = mend_look(m, c, row, &now, &listed)) == STET_OK)
            err = stet__sqlite_stretch_mend(m->st, c, &listed,
                                            now.lacks | (found->lacks & LITE_LACKS_KEY), keys);
    } else if (rc != SQLITE_DONE)
        err = stet__sqlite_fail(m->st, c->db, rc, "look for runs");
    sqlite3_reset(row);
    return err == STET_OK && (now.lacks & LITE_LACKS_WORK) != 0 ? mend_write_work(m, c, &now) : err;
}

static int
mend_repair_all(mend *m, sqlite_conn *c)
{
    stet__buf keys;
    int       err;

    if ((err = stet__sqlite_begin(m->st, c)) != STET_OK)
        return err;
    stet__buf_init(&keys, m->st->base.alloc);
    for (size_t i = 0; err == STET_OK && i < m->n; i++)
        if (m->found[i].lacks != 0)
            err = mend_repair_run(m, c, &m->found[i], &keys);
    if (err == STET_OK)
        err = stet__sqlite_stretch_write_keys(m->st, c, &keys);
    stet__buf_free(&keys);
    if (err == STET_OK)
        return stet__sqlite_end(m->st, c);
    stet__sqlite_rollback(m->st, c);
    return err;
}

/* What is told as repaired is on the disk; leases, which the connection writes otherwise, need not be. */
static int
mend_repair(mend *m)
{
    sqlite_conn *c = &m->st->side;
    int          err;

    stet__lock(m->st->base.platform, &m->st->side_lock);
    if ((err = stet__sqlite_exec(m->st, c, "PRAGMA synchronous=FULL", "set it up")) == STET_OK) {
        err = mend_repair_all(m, c);
        (void)sqlite3_exec(c->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    }
    stet__unlock(m->st->base.platform, &m->st->side_lock);
    return err;
}

/* ---- telling --------------------------------------------------------------------------------- */

static const char *
mend_work_text(const mend_run *run)
{
    if (!run->wants_work)
        return "it stands in the queue, where it does not belong";
    return run->work == 0
               ? "the queue does not have it: no worker finds it when it is due"
               : "it is not found by its status: a worker that has new code leaves it as it is";
}

static int
mend_tell(const mend_run *run, bool is_repaired, stet_check_fn fn, void *arg)
{
    static const struct {
        unsigned    bit;
        const char *name;
    } lists[] = { { LITE_LACKS_HANDLER, "handler" },
                  { LITE_LACKS_STATUS, "status" },
                  { LITE_LACKS_TIME, "time" },
                  { LITE_LACKS_KEY, "key" } };
    char   text[256];
    size_t len = 0;
    bool   is_first = true;

    if ((run->lacks & LITE_LACKS_WORK) != 0)
        len = (size_t)snprintf(text, sizeof text, "%s", mend_work_text(run));
    if ((run->lacks & MEND_LISTS) != 0)
        len += (size_t)snprintf(text + len, sizeof text - len, "%slists by ", len > 0 ? "; " : "");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if ((run->lacks & lists[i].bit) != 0) {
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", is_first ? "" : ", ",
                                    lists[i].name);
            is_first = false;
        }
    if (!is_first)
        (void)snprintf(text + len, sizeof text - len, " leave it out");
    return fn(arg, &run->id, text, is_repaired);
}

static int
mend_all(mend *m, bool is_repairing, stet_check_fn fn, void *arg)
{
    int err = mend_read_keys(m);

    do {
        size_t n_lacking = 0;

        if (err != STET_OK || (err = mend_page(m)) != STET_OK)
            return err;
        for (size_t i = 0; i < m->n; i++)
            n_lacking += m->found[i].lacks != 0;
        if (is_repairing && n_lacking > 0)
            err = mend_repair(m);
        for (size_t i = 0; err == STET_OK && i < m->n; i++)
            if (m->found[i].lacks != 0 && !m->found[i].is_gone)
                err = mend_tell(&m->found[i], is_repairing, fn, arg);
    } while (err == STET_OK && m->n_rows == MEND_PAGE);
    return err;
}

int
stet__sqlite_check_indexes(stet_store *s, bool is_repairing, stet_check_fn fn, void *arg)
{
    sqlite_store *st = sqlite_of(s);
    mend         *m;
    int           err;

    if ((err = stet__sqlite_enter(st)) != STET_OK)
        return err;
    if (is_repairing && st->is_readonly)
        return stet__fail(STET_EREADONLY, "store %s was opened with readonly=1; open it without",
                          st->path);
    if ((m = stet__get0(s->alloc, sizeof *m)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    m->st = st;
    err = mend_all(m, is_repairing, fn, arg);
    stet__free(s->alloc, m->prints);
    stet__free(s->alloc, m);
    return err;
}
