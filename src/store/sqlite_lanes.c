/* Lanes in memory: who is next for a key.
 *
 * Which run stands where is written in the rows of the runs and nowhere else; their index over lane and
 * position is the lane. What is kept here is the head of each lane that was used lately, so that entering
 * and leaving one reads nothing. It is true as long as the rows in memory are (see sqlite_runs.c) and
 * forgotten with them.
 *
 * Invariant: `ids` are the first runs of the lane in their order; is_complete: and there are no others.
 * Locks: commit_lock.
 */
#include <string.h>

#include "store/sqlite.h"

#define LANES_MAX   16384u
#ifdef STET_MUTANTS
#define LANE_AHEAD 2u /* the lanes of its tests are short */
#define LANE_KEPT  3u
#else
#define LANE_AHEAD  64u  /* read at once */
#define LANE_KEPT   256u /* at most, of one lane */
#endif

static int
lanes_no_memory(const sqlite_store *st)
{
    return stet__fail(STET_ENOMEM, "store %s: out of memory", st->path);
}

void
stet__sqlite_lanes_init(sqlite_store *st)
{
    stet__map_init(&st->lanes, st->base.alloc);
}

void
stet__sqlite_lanes_clear(sqlite_store *st)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&st->lanes, &at, &key, &len, &value)) {
        sqlite_lane *lane = value;

        stet__free(st->base.alloc, lane->ids);
        stet__free(st->base.alloc, lane);
    }
    stet__map_free(&st->lanes);
    stet__map_init(&st->lanes, st->base.alloc);
}

static bool
lane_push(sqlite_store *st, sqlite_lane *lane, const stet_id *id)
{
    stet_id *more;

    if (lane->head > 0 && lane->head + lane->n == lane->cap) {
        memmove(lane->ids, lane->ids + lane->head, lane->n * sizeof *lane->ids);
        lane->head = 0;
    }
    if (lane->n == lane->cap) {
        size_t cap = lane->cap * 2 + 4;

        if ((more = stet__grow(st->base.alloc, lane->ids, cap * sizeof *more)) == NULL)
            return false;
        lane->ids = more;
        lane->cap = cap;
    }
    lane->ids[lane->head + lane->n++] = *id;
    return true;
}

/* Read the head of the lane. The index knows only what is written. */
static int
lane_read(sqlite_store *st, sqlite_lane *lane, const char *name)
{
    sqlite3_stmt *stmt;
    bool          ok = true;
    int           err, rc;

    if ((err = stet__sqlite_runs_flush(st)) != STET_OK ||
        (stmt = sqlite_writer_stmt(st, LITE_SQL_LANE, &err)) == NULL)
        return err;
    lane->head = lane->n = 0;
    sqlite_bind_text(stmt, 1, name);
    sqlite3_bind_int64(stmt, 2, LANE_AHEAD);
    while (ok && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        stet_id id = stet__sqlite_column_id(stmt, 0);

        ok = lane_push(st, lane, &id);
    }
    if (!ok)
        err = lanes_no_memory(st);
    else if (rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, st->writer.db, rc, "read a lane");
    sqlite3_reset(stmt);
    lane->is_complete = lane->n < LANE_AHEAD;
    return err;
}

static int
lane_load(sqlite_store *st, sqlite_lane *lane, const char *name)
{
    sqlite3_stmt *stmt;
    uint64_t      last = 0;
    bool          found;
    int           err;

    if ((err = lane_read(st, lane, name)) != STET_OK || lane->n == 0)
        return err;
    if ((stmt = sqlite_writer_stmt(st, LITE_SQL_LANE_LAST, &err)) == NULL)
        return err;
    sqlite_bind_text(stmt, 1, name);
    err = stet__sqlite_ask(st, stmt, &found, &last);
    lane->last_pos = STET__MUTANT(file_lane_order) ? (int64_t)lane->n : (int64_t)last;
    return err;
}

static int
lane_find(sqlite_store *st, const char *name, sqlite_lane **out)
{
    size_t       len = strlen(name);
    sqlite_lane *lane = stet__map_find(&st->lanes, name, len);
    int          err;

    if ((*out = lane) != NULL)
        return STET_OK;
    if (st->lanes.used >= LANES_MAX)
        stet__sqlite_lanes_clear(st);
    if ((lane = stet__get0(st->base.alloc, sizeof *lane)) == NULL)
        return lanes_no_memory(st);
    err = lane_load(st, lane, name);
    if (err == STET_OK && stet__map_put(&st->lanes, name, len, lane) != STET_OK)
        err = lanes_no_memory(st);
    if (err != STET_OK) {
        stet__free(st->base.alloc, lane->ids);
        stet__free(st->base.alloc, lane);
        return err;
    }
    *out = lane;
    return STET_OK;
}

int
stet__sqlite_lane_first(sqlite_store *st, const char *name, stet_id *first, bool *found)
{
    sqlite_lane *lane;
    int          err;

    *found = false;
    if ((err = lane_find(st, name, &lane)) != STET_OK)
        return err;
    if (lane->n == 0 && !lane->is_complete && !STET__MUTANT(file_lane_end) &&
        (err = lane_read(st, lane, name)) != STET_OK)
        return err;
    *found = lane->n > 0;
    if (*found)
        *first = lane->ids[lane->head];
    return STET_OK;
}

int
stet__sqlite_lane_enter(sqlite_store *st, const char *name, const stet_id *run, int64_t *pos,
                        bool *is_first)
{
    sqlite_lane *lane;
    stet_id      first;
    bool         found;
    int          err;

    if ((err = stet__sqlite_lane_first(st, name, &first, &found)) != STET_OK ||
        (err = lane_find(st, name, &lane)) != STET_OK)
        return err;
    *is_first = !found;
    if (lane->n >= LANE_KEPT)
        lane->is_complete = false;
    if ((lane->is_complete || STET__MUTANT(file_lane_gap)) && !lane_push(st, lane, run))
        return lanes_no_memory(st);
    *pos = ++lane->last_pos;
    return STET_OK;
}

int
stet__sqlite_lane_leave(sqlite_store *st, const char *name, const stet_id *run, bool *was_first)
{
    sqlite_lane *lane;
    stet_id      first;
    bool         found;
    size_t       i;
    int          err;

    *was_first = false;
    if ((err = stet__sqlite_lane_first(st, name, &first, &found)) != STET_OK ||
        (err = lane_find(st, name, &lane)) != STET_OK)
        return err;
    for (i = 0; i < lane->n; i++)
        if (memcmp(lane->ids[lane->head + i].bytes, run->bytes, 16) == 0)
            break;
    if (i == lane->n || (i > 0 && STET__MUTANT(file_lane_middle)))
        return STET_OK; /* far behind: only its row says where it stood */
    *was_first = i == 0;
    if (i == 0)
        lane->head++;
    else
        memmove(&lane->ids[lane->head + i], &lane->ids[lane->head + i + 1],
                (lane->n - i - 1) * sizeof *lane->ids);
    if (--lane->n == 0)
        lane->head = 0;
    return STET_OK;
}
