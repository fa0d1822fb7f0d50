/* Rows of runs in memory: what the conditions of units are checked against.
 *
 * A unit reads and changes rows here; they are written back once, before COMMIT or before an operation
 * that looks through the index. So a run touched by ten units of a commit is read and written once, and
 * a step of a run that is in flight reads nothing at all.
 *
 * Invariants: outside a commit no row is dirty. The rows are true as long as nobody else wrote to the
 * file, which SQLite's data version tells at the begin of each transaction. After anything but a
 * successful COMMIT everything is forgotten. Locks: commit_lock.
 */
#include <string.h>

#include "store/sqlite.h"

#define LITE_NAMES_MAX 4096

static size_t
runs_bucket(const stet_id *id)
{
    uint64_t a, b;

    memcpy(&a, id->bytes, 8);
    memcpy(&b, id->bytes + 8, 8);
    a = (a ^ b) * 0x9e3779b97f4a7c15u;
    b = (a >> 32) ^ (b * 0xc2b2ae3d27d4eb4fu);
    return (size_t)((b ^ (b >> 29)) & (LITE_RUN_BUCKETS - 1));
}

int
stet__sqlite_runs_init(sqlite_store *st)
{
    sqlite_runs *runs = &st->runs;

    memset(runs, 0, sizeof *runs);
    runs->dirty_end = &runs->dirty;
    stet__sqlite_lanes_init(st);
    stet__sqlite_values_init(st);
    stet__map_init(&runs->names, st->base.alloc);
    stet__buf_init(&st->stretches.keys, st->base.alloc);
    runs->buckets = stet__get0(st->base.alloc, LITE_RUN_BUCKETS * sizeof *runs->buckets);
    return runs->buckets != NULL ? STET_OK
                                 : stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
}

static void
runs_release(sqlite_store *st, sqlite_run *run)
{
    stet__free(st->base.alloc, run->lane);
    run->lane = NULL;
    run->next = st->runs.free;
    st->runs.free = run;
    st->runs.count--;
}

void
stet__sqlite_runs_clear(sqlite_store *st)
{
    sqlite_runs *runs = &st->runs;
    sqlite_run  *run;
    size_t       i;

    if (!STET__MUTANT(file_lane_stale))
        stet__sqlite_lanes_clear(st);
    stet__sqlite_values_clear(st);
    stet__sqlite_stretch_clear(st);
    st->n_alive = 0;
    runs->is_known = false;
    runs->dirty = NULL;
    runs->dirty_end = &runs->dirty;
    for (i = 0; runs->count > 0 && i < LITE_RUN_BUCKETS; i++)
        while ((run = runs->buckets[i]) != NULL) {
            runs->buckets[i] = run->next;
            runs_release(st, run);
        }
}

static void
runs_forget_names(sqlite_store *st)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&st->runs.names, &at, &key, &len, &value))
        stet__free(st->base.alloc, value);
    stet__map_free(&st->runs.names);
    stet__map_init(&st->runs.names, st->base.alloc);
}

void
stet__sqlite_runs_free(sqlite_store *st)
{
    sqlite_runs      *runs = &st->runs;
    sqlite_run_chunk *chunk;

    if (runs->buckets == NULL)
        return;
    stet__sqlite_runs_clear(st);
    runs_forget_names(st);
    stet__map_free(&runs->names);
    while ((chunk = runs->chunks) != NULL) {
        runs->chunks = chunk->next;
        stet__free(st->base.alloc, chunk);
    }
    stet__free(st->base.alloc, runs->buckets);
    runs->buckets = NULL;
}

static sqlite_run *
runs_new(sqlite_store *st)
{
    sqlite_runs      *runs = &st->runs;
    sqlite_run_chunk *chunk;
    sqlite_run       *run;
    size_t            i;

    if (runs->free == NULL) {
        if ((chunk = stet__get(st->base.alloc, sizeof *chunk)) == NULL)
            return NULL;
        chunk->next = runs->chunks;
        runs->chunks = chunk;
        for (i = 0; i < sizeof chunk->runs / sizeof *chunk->runs; i++) {
            chunk->runs[i].next = runs->free;
            runs->free = &chunk->runs[i];
        }
    }
    run = runs->free;
    runs->free = run->next;
    memset(run, 0, sizeof *run);
    runs->count++;
    return run;
}

static const char *
runs_intern(sqlite_store *st, const char *name)
{
    size_t len = strlen(name);
    char  *copy = stet__map_find(&st->runs.names, name, len);

    if (copy != NULL)
        return copy;
    if ((copy = stet__strdup(st->base.alloc, name)) == NULL)
        return NULL;
    if (stet__map_put(&st->runs.names, name, len, copy) != STET_OK) {
        stet__free(st->base.alloc, copy);
        return NULL;
    }
    return copy;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int
runs_decode(sqlite_store *st, sqlite_run *run, sqlite3_stmt *row)
{
    const char *handler = stet__sqlite_column_text(row, 0);
    const char *lane = stet__sqlite_column_text(row, 1);
    int64_t     work = sqlite3_column_int64(row, 5);

    run->handler = runs_intern(st, handler != NULL ? handler : "");
    run->lane = stet__strdup(st->base.alloc, lane);
    if (run->handler == NULL || (lane != NULL && run->lane == NULL))
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    run->lane_pos = sqlite3_column_int64(row, 2);
    run->status = (uint32_t)sqlite3_column_int64(row, 3);
    run->is_terminal = (uint32_t)sqlite3_column_int64(row, 4);
    run->session = work > 0 ? (uint64_t)work : 0;
    run->epoch = (uint64_t)sqlite3_column_int64(row, 6);
    run->inbox = (uint64_t)sqlite3_column_int64(row, 7);
    run->due_ms = stet__sqlite_column_time(row, 8);
    run->ended_ms = stet__sqlite_column_ended(row, 9);
    run->attempt = (uint32_t)sqlite3_column_int64(row, 10);
    run->journal = (uint64_t)sqlite3_column_int64(row, 11);
    run->exists = true;
    return STET_OK;
}

static int
runs_load(sqlite_store *st, sqlite_run *run)
{
    int           err = STET_OK;
    int           rc;
    sqlite3_stmt *row = stet__sqlite_stmt(st, &st->writer, LITE_SQL_RUN_LOAD, &err);

    if (row == NULL)
        return err;
    sqlite_bind_id(row, 1, &run->id);
    rc = sqlite3_step(row);
    if (rc == SQLITE_ROW)
        err = runs_decode(st, run, row);
    else if (rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, st->writer.db, rc, "read a run");
    sqlite3_reset(row);
    return err;
}

int
stet__sqlite_run_find(sqlite_store *st, const stet_id *id, sqlite_run **out)
{
    sqlite_run **bucket = &st->runs.buckets[runs_bucket(id)];
    sqlite_run  *run;
    int          err;

    for (run = *bucket; run != NULL; run = run->next)
        if (memcmp(run->id.bytes, id->bytes, 16) == 0) {
            *out = run;
            return STET_OK;
        }
    *out = NULL;
    if ((run = runs_new(st)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    run->id = *id;
    if ((err = runs_load(st, run)) != STET_OK) {
        runs_release(st, run);
        return err;
    }
    run->next = *bucket;
    *bucket = run;
    *out = run;
    return STET_OK;
}

/* ---- changing -------------------------------------------------------------------------------- */

void
stet__sqlite_run_touch(sqlite_store *st, sqlite_run *run, uint8_t dirty)
{
    run->dirty |= dirty;
    if (run->is_listed)
        return;
    run->is_listed = true;
    run->next_dirty = NULL;
    *st->runs.dirty_end = run;
    st->runs.dirty_end = &run->next_dirty;
}

int
stet__sqlite_run_put(sqlite_store *st, sqlite_run *run, const stet_run_row *row)
{
    if ((run->handler = runs_intern(st, row->handler)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    run->exists = true;
    run->put = row;
    run->status = row->status;
    run->is_terminal = row->is_terminal;
    run->attempt = row->attempt;
    run->session = run->epoch = run->journal = run->inbox = 0;
    run->due_ms = row->due_ms;
    run->ended_ms = row->ended_ms;
    stet__sqlite_run_touch(st, run, LITE_DIRTY_CORE);
    return STET_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool
runs_has_work(const sqlite_store *st, const sqlite_run *run)
{
    bool is_quiet = run->status < 64 && (st->base.quiet >> run->status & 1u) != 0;

    return run->session != 0 || !(run->is_terminal || (run->due_ms == STET_NEVER && is_quiet));
}

bool
stet__sqlite_run_work(const sqlite_store *st, const sqlite_run *run, int64_t *work)
{
    *work = 0;
    if (run->session != 0)
        *work = (int64_t)run->session;
    else if (!runs_has_work(st, run))
        return false;
    else if (run->due_ms == STET_NEVER)
        *work = -1 - (int64_t)run->status;
    return true;
}

static void
runs_bind_work(const sqlite_store *st, sqlite3_stmt *stmt, int at, const sqlite_run *run)
{
    int64_t work;

    if (stet__sqlite_run_work(st, run, &work))
        sqlite3_bind_int64(stmt, at, work);
    else
        sqlite3_bind_null(stmt, at);
}

/* Rows are written several at a time: most of what a statement costs for a row is its begin and its end, and behind
 * the row before a tree need not be searched from its root. Rows that are left over go one by one. */
typedef struct runs_lot {
    sqlite_run *of[LITE_LOT];
    size_t      n;
} runs_lot;

static void
runs_bind_row(const sqlite_store *st, sqlite3_stmt *stmt, int at, const sqlite_run *run)
{
    const stet_run_row *row = run->put;

    sqlite_bind_id(stmt, at + 1, &run->id);
    sqlite_bind_text(stmt, at + 2, run->handler);
    sqlite_bind_text(stmt, at + 3, row->key);
    sqlite_bind_text(stmt, at + 4, run->lane);
    if (run->lane != NULL)
        sqlite3_bind_int64(stmt, at + 5, run->lane_pos);
    else
        sqlite3_bind_null(stmt, at + 5);
    sqlite3_bind_int64(stmt, at + 6, run->status);
    sqlite3_bind_int64(stmt, at + 7, run->is_terminal);
    runs_bind_work(st, stmt, at + 8, run);
    sqlite_bind_u64(stmt, at + 9, run->epoch);
    sqlite_bind_u64(stmt, at + 10, run->inbox);
    sqlite_bind_time(stmt, at + 11, run->due_ms);
    sqlite3_bind_int64(stmt, at + 12, row->created_ms);
    sqlite_bind_ended(stmt, at + 13, run->ended_ms);
    sqlite3_bind_int64(stmt, at + 14, row->priority);
    sqlite3_bind_int64(stmt, at + 15, run->attempt);
    sqlite_bind_text(stmt, at + 16, row->group);
    sqlite_bind_text(stmt, at + 17, run->has_reason ? run->reason : row->reason);
    sqlite_bind_bytes(stmt, at + 18, run->has_extra ? run->extra : row->extra);
}

static void
runs_bind_facts(const sqlite_store *st, sqlite3_stmt *stmt, int at, const sqlite_run *run)
{
    (void)st;
    sqlite_bind_id(stmt, at + 1, &run->id);
    sqlite_bind_u64(stmt, at + 2, run->journal - run->n_facts + 1);
    sqlite3_bind_int64(stmt, at + 3, run->n_facts);
    sqlite_bind_bytes(stmt, at + 4, run->facts);
}

static void
runs_bind_core(const sqlite_store *st, sqlite3_stmt *stmt, int at, const sqlite_run *run)
{
    sqlite_bind_id(stmt, at + 1, &run->id);
    sqlite3_bind_int64(stmt, at + 2, run->status);
    sqlite3_bind_int64(stmt, at + 3, run->is_terminal);
    runs_bind_work(st, stmt, at + 4, run);
    sqlite_bind_u64(stmt, at + 5, run->epoch);
    sqlite_bind_u64(stmt, at + 6, run->inbox);
    sqlite_bind_time(stmt, at + 7, run->due_ms);
    sqlite_bind_ended(stmt, at + 8, run->ended_ms);
    sqlite3_bind_int64(stmt, at + 9, run->attempt);
}

typedef struct runs_kind {
    sqlite_sql  one, many;
    int         columns;
    const char *what;
    void (*bind)(const sqlite_store *st, sqlite3_stmt *stmt, int at, const sqlite_run *run);
} runs_kind;

static const runs_kind runs_rows = { LITE_SQL_RUN_ADD, LITE_SQL_RUN_ADD_LOT, 18, "write a run", runs_bind_row };
static const runs_kind runs_cores = { LITE_SQL_RUN_CORE, LITE_SQL_RUN_CORE_LOT, 9, "write a run", runs_bind_core };
static const runs_kind runs_facts = { LITE_SQL_FACTS_ADD, LITE_SQL_FACTS_ADD_LOT, 4, "write facts", runs_bind_facts };

/* What is in the lot; all of it at once if it is full. */
static int
runs_lot_write(sqlite_store *st, const runs_kind *kind, runs_lot *lot)
{
    bool          is_full = lot->n == LITE_LOT;
    int           err = STET_OK;
    sqlite3_stmt *stmt;

    if (lot->n == 0)
        return STET_OK;
    if ((stmt = stet__sqlite_stmt(st, &st->writer, is_full ? kind->many : kind->one, &err)) == NULL)
        return err;
    for (size_t i = 0; i < lot->n && err == STET_OK; i++) {
        kind->bind(st, stmt, is_full ? (int)i * kind->columns : 0, lot->of[i]);
        if (!is_full)
            err = stet__sqlite_run(st, &st->writer, stmt, kind->what);
    }
    lot->n = 0;
    return is_full ? stet__sqlite_run(st, &st->writer, stmt, kind->what) : err;
}

static int
runs_lot_add(sqlite_store *st, const runs_kind *kind, runs_lot *lot, sqlite_run *run)
{
    lot->of[lot->n++] = run;
    return lot->n == LITE_LOT ? runs_lot_write(st, kind, lot) : STET_OK;
}

static int
runs_update_full(sqlite_store *st, const sqlite_run *run)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, &st->writer, LITE_SQL_RUN_FULL, &err);

    if (stmt == NULL)
        return err;
    runs_bind_core(st, stmt, 0, run);
    sqlite_bind_text(stmt, 10, run->lane);
    if (run->lane != NULL)
        sqlite3_bind_int64(stmt, 11, run->lane_pos);
    else
        sqlite3_bind_null(stmt, 11);
    sqlite3_bind_int(stmt, 12, run->has_reason);
    sqlite_bind_text(stmt, 13, run->reason);
    sqlite3_bind_int(stmt, 14, run->has_extra);
    sqlite_bind_bytes(stmt, 15, run->extra);
    return stet__sqlite_run(st, &st->writer, stmt, "write a run");
}

/* The most frequent change of a run that executes elsewhere; it spares the index. */
static int
runs_update_inbox(sqlite_store *st, const sqlite_run *run)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, &st->writer, LITE_SQL_RUN_INBOX, &err);

    if (stmt == NULL)
        return err;
    sqlite_bind_id(stmt, 1, &run->id);
    sqlite_bind_u64(stmt, 2, run->inbox);
    return stet__sqlite_run(st, &st->writer, stmt, "write a run");
}

static bool
runs_is_due(const sqlite_run *run)
{
    return run->dirty != 0 || run->put != NULL || run->n_facts > 0;
}

typedef struct runs_lots {
    runs_lot rows, cores, facts;
} runs_lots;

static int
runs_write(sqlite_store *st, runs_lots *lots, sqlite_run *run)
{
    int err = STET_OK;

    if (!run->exists)
        return STET_OK; /* put and removed, or removed: its rows are gone already */
    if (run->put != NULL && (err = stet__sqlite_stretch_put(st, run, run->put)) != STET_OK)
        return err;
    if ((run->put != NULL || (run->dirty & ~LITE_DIRTY_INBOX) != 0) && !runs_has_work(st, run) &&
        (err = stet__sqlite_stretch_status(st, run)) != STET_OK)
        return err;
    if (run->put != NULL)
        return runs_lot_add(st, &runs_rows, &lots->rows, run);
    if (run->dirty == LITE_DIRTY_INBOX)
        return runs_update_inbox(st, run);
    if ((run->dirty & LITE_DIRTY_FULL) != 0)
        return runs_update_full(st, run);
    return run->dirty != 0 ? runs_lot_add(st, &runs_cores, &lots->cores, run) : STET_OK;
}

static void
runs_written(sqlite_run *run)
{
    run->put = NULL;
    run->has_reason = run->has_extra = false;
    run->reason = NULL;
    run->extra.data = NULL;
    run->extra.len = 0;
    run->dirty = 0;
    run->n_facts = 0;
}

/* Rows stay in the list until the end of the commit, which looks at them once more. */
int
stet__sqlite_runs_flush(sqlite_store *st)
{
    runs_lots   lots = { .rows.n = 0, .cores.n = 0, .facts.n = 0 };
    sqlite_run *run;
    int         err = STET_OK;

    for (run = st->runs.dirty; run != NULL && err == STET_OK; run = run->next_dirty) {
        if (!runs_is_due(run))
            continue;
        if (run->n_facts > 0)
            err = runs_lot_add(st, &runs_facts, &lots.facts, run);
        if (err == STET_OK)
            err = runs_write(st, &lots, run);
    }
    if (err != STET_OK || (err = runs_lot_write(st, &runs_facts, &lots.facts)) != STET_OK ||
        (err = runs_lot_write(st, &runs_cores, &lots.cores)) != STET_OK ||
        (err = runs_lot_write(st, &runs_rows, &lots.rows)) != STET_OK)
        return err;
    for (run = st->runs.dirty; run != NULL; run = run->next_dirty)
        runs_written(run);
    return STET_OK;
}

/* ---- across commits -------------------------------------------------------------------------- */

static unsigned
runs_version(sqlite_store *st)
{
    unsigned version = 0;

    sqlite3_file_control(st->writer.db, "main", SQLITE_FCNTL_DATA_VERSION, &version);
    return version;
}

void
stet__sqlite_runs_begin(sqlite_store *st)
{
    bool has_many_names = st->runs.names.used > LITE_NAMES_MAX;

    if (!st->runs.is_known || st->runs.version != runs_version(st) || has_many_names)
        stet__sqlite_runs_clear(st);
    if (has_many_names)
        runs_forget_names(st);
}

static void
runs_drop(sqlite_store *st, sqlite_run *run)
{
    sqlite_run **at = &st->runs.buckets[runs_bucket(&run->id)];

    while (*at != run)
        at = &(*at)->next;
    *at = run->next;
    runs_release(st, run);
}

void
stet__sqlite_runs_end(sqlite_store *st)
{
    sqlite_runs *runs = &st->runs;
    sqlite_run  *run, *next;

    for (run = runs->dirty; run != NULL; run = next) {
        next = run->next_dirty;
        run->is_listed = false;
        if (!run->exists || (run->is_terminal && run->session == 0))
            runs_drop(st, run);
    }
    runs->dirty = NULL;
    runs->dirty_end = &runs->dirty;
    if (runs->count > LITE_RUNS_MAX)
        stet__sqlite_runs_clear(st);
    runs->version = runs_version(st);
    runs->is_known = true;
}
