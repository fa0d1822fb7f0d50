/* Where in time to look for runs of a handler, a status or a key: an index that costs next to
 * nothing.
 *
 * IDs of runs grow with time, and the table of runs is clustered on them. A stretch is all IDs of
 * 4 ms. The table stretches says of a handler or a status in which stretches there are such runs;
 * a list walks these and reads the runs in them (sqlite_list.c). An entry for each run would cost a
 * commit of many runs several per cent (a secondary index: 6 to 10 % of a short run). So each is
 * written once a stretch, not once a run, and a handle remembers the last ones it wrote.
 *
 * Invariants, in every state of the file that is committed:
 *   "hNAME"  has every stretch with a run of handler NAME
 *   "sN"     has every stretch with a run of status N that has no `work` (it has ended or is
 *            suspended; the others are found by the index over `work`)
 *   "o"      has every stretch with a run whose ID does not tell within a minute when it was
 *            created
 *   stretch_keys has a hash and the stretch of every run with a key, in lots: one row a commit,
 *            because keys are everywhere and would touch a page each; upkeep puts small lots
 *            together
 * Entries that are no longer true do no harm but time: a list finds nothing there. Upkeep removes
 * them.
 *
 * Locks: commit_lock for what is remembered. It is true as long as the rows in memory are, and
 * forgotten with them: upkeep, on another connection, may have removed an entry since.
 */
#include <stdio.h>
#include <string.h>

#include "store/sqlite.h"

#define STRETCH_ODD_MS    60000
#define STRETCH_LOT       LITE_STRETCH_LOT /* entries; a lot that has so many is left alone */
#define STRETCH_LOTS      256              /* put together at once */
#define STRETCH_SWEEP     100 /* looked at in a transaction: others wait to write meanwhile */
#define STRETCH_SWEEPS    40  /* of those in one go of the upkeep */
#define STRETCH_GATHERS   256 /* large lots that are made in one go, */
#define STRETCH_OLD_LOTS  16  /* and that are looked through */
#define STRETCH_KEY_BYTES 12u

/* ---- what an ID tells ------------------------------------------------------------------------ */

int64_t
stet__sqlite_stretch_of_ms(int64_t ms)
{
    return (ms < 0 ? 0 : ms > LITE_STRETCH_MS_MAX ? LITE_STRETCH_MS_MAX : ms) >> LITE_STRETCH_BITS;
}

static int64_t
stretch_ms(const stet_id *id)
{
    int64_t ms = 0;

    for (int i = 0; i < 6; i++)
        ms = ms << 8 | id->bytes[i];
    return ms;
}

int64_t
stet__sqlite_stretch_of(const stet_id *id)
{
    return stet__sqlite_stretch_of_ms(stretch_ms(id));
}

stet_id
stet__sqlite_stretch_first(int64_t stretch)
{
    stet_id  id = { { 0 } };
    uint64_t ms = (uint64_t)stretch << LITE_STRETCH_BITS;

    for (int i = 0; i < 6; i++)
        id.bytes[i] = (uint8_t)(ms >> (40 - 8 * i));
    return id;
}

stet_id
stet__sqlite_stretch_last(int64_t stretch)
{
    stet_id id;

    memset(id.bytes, 0xff, sizeof id.bytes);
    if (stretch < LITE_STRETCH_MAX) {
        uint64_t ms = ((uint64_t)(stretch + 1) << LITE_STRETCH_BITS) - 1;

        for (int i = 0; i < 6; i++)
            id.bytes[i] = (uint8_t)(ms >> (40 - 8 * i));
    }
    return id;
}

void
stet__sqlite_stretch_window(int64_t from_ms, int64_t to_ms, int64_t *first, int64_t *last)
{
    *first = from_ms > STRETCH_ODD_MS ? stet__sqlite_stretch_of_ms(from_ms - STRETCH_ODD_MS) : 0;
    *last = to_ms != 0 && to_ms < LITE_STRETCH_MS_MAX
                ? stet__sqlite_stretch_of_ms(to_ms + STRETCH_ODD_MS)
                : LITE_STRETCH_MAX;
}

uint32_t
stet__sqlite_stretch_hash(const char *key)
{
    uint32_t hash = 2166136261u;

    for (; *key != '\0'; key++)
        hash = (hash ^ (uint8_t)*key) * 16777619u;
    return hash;
}

/* ---- writing --------------------------------------------------------------------------------- */

void
stet__sqlite_stretch_clear(sqlite_store *st)
{
    memset(st->stretches.known, 0, sizeof st->stretches.known);
    stet__buf_free(&st->stretches.keys);
}

/* True if it was not known; it is from now on. Tags are addresses of handlers' names, which are
 * even, or odd numbers; never 0. */
static bool
stretch_is_new(sqlite_store *st, uint64_t tag, int64_t stretch)
{
    uint64_t             mixed = (tag ^ (uint64_t)stretch << 7) * 0x9e3779b97f4a7c15u;
    sqlite_stretch_mark *at = &st->stretches.known[mixed >> (64 - LITE_STRETCH_KNOWN_BITS)];

    if (at->tag == tag && at->stretch == stretch)
        return false;
    at->tag = tag;
    at->stretch = stretch;
    return true;
}

static int
stretch_add(sqlite_store *st, sqlite_conn *c, char kind, const char *name, int64_t stretch)
{
    char          room[128], *what = room;
    size_t        len = strlen(name);
    int           err = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_ADD, &err);

    if (stmt == NULL)
        return err;
    if (len + 2 > sizeof room && (what = stet__get(st->base.alloc, len + 2)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    what[0] = kind;
    memcpy(what + 1, name, len + 1);
    sqlite_bind_text(stmt, 1, what);
    sqlite3_bind_int64(stmt, 2, stretch);
    err = stet__sqlite_run(st, c, stmt, "write where runs are");
    if (what != room)
        stet__free(st->base.alloc, what);
    return err;
}

static int
stretch_add_status(sqlite_store *st, sqlite_conn *c, uint32_t status, int64_t stretch)
{
    char name[16];

    (void)snprintf(name, sizeof name, "%u", status);
    return stretch_add(st, c, 's', name, stretch);
}

static bool
stretch_is_odd(const stet_id *id, int64_t created_ms)
{
    int64_t ms = stretch_ms(id);

    return created_ms > ms ? created_ms - ms > STRETCH_ODD_MS : ms - created_ms > STRETCH_ODD_MS;
}

static void
stretch_add_key(stet__buf *keys, const char *key, int64_t stretch)
{
    stet__buf_u32(keys, stet__sqlite_stretch_hash(key));
    stet__buf_u64(keys, (uint64_t)stretch);
}

int
stet__sqlite_stretch_put(sqlite_store *st, const sqlite_run *run, const stet_run_row *row)
{
    int64_t stretch = stet__sqlite_stretch_of(&run->id);
    int     err = STET_OK;

    if (stretch_is_new(st, (uint64_t)(uintptr_t)run->handler, stretch) &&
        (err = stretch_add(st, &st->writer, 'h', run->handler, stretch)) != STET_OK)
        return err;
    if (stretch_is_odd(&run->id, row->created_ms) && stretch_is_new(st, 3, stretch) &&
        (err = stretch_add(st, &st->writer, 'o', "", stretch)) != STET_OK)
        return err;
    if (row->key != NULL &&
        stretch_is_new(st, (uint64_t)stet__sqlite_stretch_hash(row->key) << 32 | 5, stretch))
        stretch_add_key(&st->stretches.keys, row->key, stretch);
    return STET_OK;
}

int
stet__sqlite_stretch_status(sqlite_store *st, const sqlite_run *run)
{
    int64_t stretch = stet__sqlite_stretch_of(&run->id);

    if (!stretch_is_new(st, (uint64_t)run->status << 32 | 7, stretch))
        return STET_OK;
    return stretch_add_status(st, &st->writer, run->status, stretch);
}

int
stet__sqlite_stretch_write_keys(sqlite_store *st, sqlite_conn *c, const stet__buf *keys)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt;

    if (keys->failed)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    if (keys->len == 0)
        return STET_OK;
    if ((stmt = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_KEYS_ADD, &err)) == NULL)
        return err;
    sqlite3_bind_int64(stmt, 1, (sqlite3_int64)(keys->len / STRETCH_KEY_BYTES));
    sqlite_bind_bytes(stmt, 2, stet__buf_bytes(keys));
    return stet__sqlite_run(st, c, stmt, "write where runs are");
}

int
stet__sqlite_stretch_flush(sqlite_store *st)
{
    int err = stet__sqlite_stretch_write_keys(st, &st->writer, &st->stretches.keys);

    stet__buf_cut(&st->stretches.keys, 0);
    return err;
}

/* ---- a file that has none -------------------------------------------------------------------- */

static int
stretch_fill_row(sqlite_store *st, sqlite_conn *c, sqlite3_stmt *row, stet__buf *keys)
{
    stet_id     id = stet__sqlite_column_id(row, 0);
    int64_t     stretch = stet__sqlite_stretch_of(&id);
    const char *handler = stet__sqlite_column_text(row, 1), *key = stet__sqlite_column_text(row, 5);
    int         err;

    if ((err = stretch_add(st, c, 'h', handler != NULL ? handler : "", stretch)) != STET_OK)
        return err;
    if (sqlite3_column_type(row, 3) == SQLITE_NULL &&
        (err = stretch_add_status(st, c, (uint32_t)sqlite3_column_int64(row, 2), stretch)) !=
            STET_OK)
        return err;
    if (stretch_is_odd(&id, sqlite3_column_int64(row, 4)) &&
        (err = stretch_add(st, c, 'o', "", stretch)) != STET_OK)
        return err;
    if (key != NULL)
        stretch_add_key(keys, key, stretch);
    if (keys->len < STRETCH_LOT * STRETCH_KEY_BYTES)
        return STET_OK;
    err = stet__sqlite_stretch_write_keys(st, c, keys);
    stet__buf_cut(keys, 0);
    return err;
}

int
stet__sqlite_stretch_fill(sqlite_store *st, sqlite_conn *c)
{
    stet__buf     keys;
    sqlite3_stmt *row;
    int           err = STET_OK, rc;

    if ((row = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_FILL, &err)) == NULL)
        return err;
    stet__buf_init(&keys, st->base.alloc);
    while ((rc = sqlite3_step(row)) == SQLITE_ROW &&
           (err = stretch_fill_row(st, c, row, &keys)) == STET_OK)
        ;
    if (err == STET_OK && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, c->db, rc, "read it");
    sqlite3_reset(row);
    if (err == STET_OK)
        err = stet__sqlite_stretch_write_keys(st, c, &keys);
    stet__buf_free(&keys);
    return err;
}

/* ---- entries that were lost ------------------------------------------------------------------ */

uint64_t
stet__sqlite_stretch_print(uint32_t hash, int64_t stretch)
{
    uint64_t mixed = (uint64_t)stretch * 0x9e3779b97f4a7c15u ^ hash * 0xc2b2ae3d27d4eb4fu;

    return mixed ^ mixed >> 29;
}

void
stet__sqlite_stretch_prints(stet_bytes lot, sqlite_print_fn fn, void *arg)
{
    for (size_t at = 0; at + STRETCH_KEY_BYTES <= lot.len; at += STRETCH_KEY_BYTES) {
        const uint8_t *entry = (const uint8_t *)lot.data + at;

        fn(arg,
           stet__sqlite_stretch_print(stet__load_u32(entry), (int64_t)stet__load_u64(entry + 4)));
    }
}

static int
stretch_lacks(sqlite_store *st, sqlite_conn *c, char kind, const char *name, int64_t stretch,
              unsigned bit, unsigned *lacks)
{
    int           err = STET_OK, rc;
    char          room[128], *what = room;
    size_t        len = strlen(name);
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_HAS, &err);

    if (stmt == NULL)
        return err;
    if (len + 2 > sizeof room && (what = stet__get(st->base.alloc, len + 2)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    what[0] = kind;
    memcpy(what + 1, name, len + 1);
    sqlite_bind_text(stmt, 1, what);
    sqlite3_bind_int64(stmt, 2, stretch);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE)
        *lacks |= bit;
    else if (rc != SQLITE_ROW)
        err = stet__sqlite_fail(st, c->db, rc, "look for runs");
    sqlite3_reset(stmt);
    if (what != room)
        stet__free(st->base.alloc, what);
    return err;
}

int
stet__sqlite_stretch_lacks(sqlite_store *st, sqlite_conn *c, const sqlite_listed *run,
                           unsigned *lacks)
{
    int64_t stretch = stet__sqlite_stretch_of(&run->id);
    char    status[16];
    int     err;

    (void)snprintf(status, sizeof status, "%u", run->status);
    if ((err = stretch_lacks(st, c, 'h', run->handler, stretch, LITE_LACKS_HANDLER, lacks)) ==
            STET_OK &&
        !run->has_work)
        err = stretch_lacks(st, c, 's', status, stretch, LITE_LACKS_STATUS, lacks);
    if (err == STET_OK && stretch_is_odd(&run->id, run->created_ms))
        err = stretch_lacks(st, c, 'o', "", stretch, LITE_LACKS_TIME, lacks);
    return err;
}

int
stet__sqlite_stretch_mend(sqlite_store *st, sqlite_conn *c, const sqlite_listed *run,
                          unsigned lacks, stet__buf *keys)
{
    int64_t stretch = stet__sqlite_stretch_of(&run->id);
    int     err = STET_OK;

    if ((lacks & LITE_LACKS_HANDLER) != 0)
        err = stretch_add(st, c, 'h', run->handler, stretch);
    if (err == STET_OK && (lacks & LITE_LACKS_STATUS) != 0)
        err = stretch_add_status(st, c, run->status, stretch);
    if (err == STET_OK && (lacks & LITE_LACKS_TIME) != 0)
        err = stretch_add(st, c, 'o', "", stretch);
    if ((lacks & LITE_LACKS_KEY) != 0 && run->key != NULL)
        stretch_add_key(keys, run->key, stretch);
    return err;
}

/* ---- upkeep ---------------------------------------------------------------------------------- */

/* Is there still such a run in this stretch? */
static int
stretch_holds(sqlite_store *st, sqlite_conn *c, const char *what, int64_t stretch, bool *holds)
{
    static const struct {
        char       kind;
        sqlite_sql which;
    } looks[] = { { 'h', LITE_SQL_STRETCH_HAS_HANDLER },
                  { 's', LITE_SQL_STRETCH_HAS_STATUS },
                  { 'o', LITE_SQL_STRETCH_HAS_ANY } };
    stet_id first = stet__sqlite_stretch_first(stretch), last = stet__sqlite_stretch_last(stretch);
    sqlite3_stmt *stmt = NULL;
    int           err = STET_OK, rc;

    *holds = false;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (looks[i].kind == what[0] &&
            (stmt = stet__sqlite_stmt(st, c, looks[i].which, &err)) == NULL)
            return err;
    if (stmt == NULL)
        return STET_OK; /* nobody reads such an entry */
    sqlite_bind_id(stmt, 1, &first);
    sqlite_bind_id(stmt, 2, &last);
    if (what[0] != 'o')
        sqlite_bind_text(stmt, 3, what + 1);
    rc = sqlite3_step(stmt);
    *holds = rc == SQLITE_ROW;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, c->db, rc, "look for runs");
    sqlite3_reset(stmt);
    return err;
}

static int
stretch_remove(sqlite_store *st, sqlite_conn *c, const char *what, int64_t stretch)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_DEL, &err);

    if (stmt == NULL)
        return err;
    sqlite_bind_text(stmt, 1, what);
    sqlite3_bind_int64(stmt, 2, stretch);
    return stet__sqlite_run(st, c, stmt, "remove what is not true any more");
}

/* The entry behind a place; *is_end: there is none, of `only` if that is not NULL. */
static int
stretch_step(sqlite_store *st, sqlite_conn *c, sqlite_stretch_place *at, const char *only,
             bool *is_end)
{
    int           err = STET_OK, rc;
    sqlite3_stmt *next = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_AFTER, &err);

    if (next == NULL)
        return err;
    sqlite_bind_text(next, 1, at->what);
    sqlite3_bind_int64(next, 2, at->stretch);
    rc = sqlite3_step(next);
    if (rc == SQLITE_ROW) {
        const char *what = stet__sqlite_column_text(next, 0);

        *is_end = what == NULL || (only != NULL && strcmp(what, only) != 0);
        if (!*is_end) {
            at->stretch = sqlite3_column_int64(next, 1);
            sqlite3_clear_bindings(next);
            (void)snprintf(at->what, sizeof at->what, "%s", what);
        }
    } else
        *is_end = true;
    sqlite3_reset(next);
    return rc == SQLITE_ROW || rc == SQLITE_DONE
               ? STET_OK
               : stet__sqlite_fail(st, c->db, rc, "look for runs");
}

/* The next entries behind the place the last sweep came to; those that are true stay. */
static int
stretch_sweep(sqlite_store *st, sqlite_conn *c, sqlite_stretch_place *at, const char *only,
              bool *is_end)
{
    bool holds;
    int  err;

    for (int i = 0; i < STRETCH_SWEEP; i++) {
        if ((err = stretch_step(st, c, at, only, is_end)) != STET_OK || *is_end)
            return err;
        if ((err = stretch_holds(st, c, at->what, at->stretch, &holds)) != STET_OK ||
            (!holds && (err = stretch_remove(st, c, at->what, at->stretch)) != STET_OK))
            return err;
    }
    return STET_OK;
}

/* Of a lot, the entries with any run in their stretch. */
static int
stretch_keep_keys(sqlite_store *st, sqlite_conn *c, stet_bytes lot, stet__buf *keys)
{
    int64_t last = -1;
    bool    holds = false;
    int     err;

    for (size_t at = 0; at + STRETCH_KEY_BYTES <= lot.len; at += STRETCH_KEY_BYTES) {
        const uint8_t *entry = (const uint8_t *)lot.data + at;
        int64_t        stretch = (int64_t)stet__load_u64(entry + 4);

        if (stretch != last && (err = stretch_holds(st, c, "o", stretch, &holds)) != STET_OK)
            return err;
        last = stretch;
        if (holds)
            stet__buf_add(keys, entry, STRETCH_KEY_BYTES);
    }
    return STET_OK;
}

static int
stretch_remove_lot(sqlite_store *st, sqlite_conn *c, int64_t lot)
{
    int           err = STET_OK;
    sqlite3_stmt *stmt = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_KEYS_DEL, &err);

    if (stmt == NULL)
        return err;
    sqlite3_bind_int64(stmt, 1, lot);
    return stet__sqlite_run(st, c, stmt, "put lots of keys together");
}

/* Small lots become a large one. */
static int
stretch_gather(sqlite_store *st, sqlite_conn *c, bool *is_end)
{
    int64_t       lots[STRETCH_LOTS];
    size_t        n = 0;
    stet__buf     keys;
    int           err = STET_OK, rc = SQLITE_DONE;
    sqlite3_stmt *row = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_KEYS_SMALL, &err);

    if (row == NULL)
        return err;
    stet__buf_init(&keys, st->base.alloc);
    while (n < STRETCH_LOTS && keys.len < STRETCH_LOT * STRETCH_KEY_BYTES &&
           (rc = sqlite3_step(row)) == SQLITE_ROW) {
        stet_bytes lot = stet__sqlite_column_bytes(row, 1);

        lots[n++] = sqlite3_column_int64(row, 0);
        stet__buf_add(&keys, lot.data, lot.len);
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, c->db, rc, "put lots of keys together");
    sqlite3_reset(row);
    *is_end = n < 2;
    for (size_t i = 0; err == STET_OK && n > 1 && i < n; i++)
        err = stretch_remove_lot(st, c, lots[i]);
    if (err == STET_OK && n > 1)
        err = stet__sqlite_stretch_write_keys(st, c, &keys);
    stet__buf_free(&keys);
    return err;
}

/* The next large lot is written anew if something of it is gone. */
static int
stretch_sweep_lot(sqlite_store *st, sqlite_conn *c)
{
    int64_t       lot = 0;
    size_t        len = 0;
    stet__buf     keys;
    int           err = STET_OK, rc;
    sqlite3_stmt *row = stet__sqlite_stmt(st, c, LITE_SQL_STRETCH_KEYS_AFTER, &err);

    if (row == NULL)
        return err;
    stet__buf_init(&keys, st->base.alloc);
    sqlite3_bind_int64(row, 1, st->stretches.swept_lot);
    sqlite3_bind_int64(row, 2, STRETCH_LOT);
    if ((rc = sqlite3_step(row)) == SQLITE_ROW) {
        stet_bytes data = stet__sqlite_column_bytes(row, 1);

        lot = sqlite3_column_int64(row, 0);
        len = data.len;
        err = stretch_keep_keys(st, c, data, &keys);
    } else if (rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, c->db, rc, "look through a lot of keys");
    sqlite3_reset(row);
    st->stretches.swept_lot = lot; /* 0: from the first again */
    if (err == STET_OK && keys.failed)
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
    if (err == STET_OK && keys.len < len && (err = stretch_remove_lot(st, c, lot)) == STET_OK)
        err = stet__sqlite_stretch_write_keys(st, c, &keys);
    stet__buf_free(&keys);
    return err;
}

/* A transaction's worth of it, of the keys if `at` is NULL. Locks: takes side_lock, for no longer
 * than that, because sessions are renewed under it. */
static int
stretch_tend(sqlite_store *st, const char *only, sqlite_stretch_place *at, bool *is_end)
{
    sqlite_conn *c = &st->side;
    int          err;

    *is_end = true;
    stet__lock(st->base.platform, &st->side_lock);
    if ((err = stet__sqlite_begin(st, c)) == STET_OK) {
        if ((err = at != NULL ? stretch_sweep(st, c, at, only, is_end)
                              : stretch_gather(st, c, is_end)) == STET_OK &&
            (at != NULL || (err = stretch_sweep_lot(st, c)) == STET_OK))
            err = stet__sqlite_end(st, c);
        else
            stet__sqlite_rollback(st, c);
    }
    if (only == NULL && at != NULL && *is_end)
        memset(at, 0, sizeof *at);
    stet__unlock(st->base.platform, &st->side_lock);
    return err;
}

/* Statuses that runs leave again (the quiet ones) are swept each time, the others in turn. */
int
stet__sqlite_stretch_tend(sqlite_store *st)
{
    bool is_end;
    int  err = STET_OK;

    for (unsigned status = 0; status < 64 && err == STET_OK; status++) {
        sqlite_stretch_place at = { .stretch = -1 };
        char                 what[16];

        (void)snprintf(what, sizeof what, "s%u", status);
        memcpy(at.what, what, sizeof what);
        is_end = (st->base.quiet >> status & 1u) == 0;
        for (int i = 0; err == STET_OK && !is_end && i < STRETCH_SWEEPS; i++)
            err = stretch_tend(st, what, &at, &is_end);
    }
    is_end = false;
    for (int i = 0; err == STET_OK && !is_end && i < STRETCH_SWEEPS; i++)
        err = stretch_tend(st, NULL, &st->stretches.swept, &is_end);
    is_end = false;
    for (int i = 0; err == STET_OK && (!is_end || i < STRETCH_OLD_LOTS) && i < STRETCH_GATHERS; i++)
        err = stretch_tend(st, NULL, NULL, &is_end);
    return err;
}
