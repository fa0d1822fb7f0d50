/* Values in memory: versions of entries that are written again and again.
 *
 * Object state is read, changed and written by one run after the other, often by several of one commit.
 * For entries whose version or writer was asked for, both are kept, and writes are put off to the end of the
 * commit, where the last one counts. True as long as the rows in memory are (see sqlite_runs.c), and
 * forgotten with them. That a baseline is absent is kept as well (version 0): every caller's unit asks for the same
 * one. Of other values it is not, because each new idempotency key is asked for once and never again.
 *
 * Invariant: outside a commit no entry is dirty. Locks: commit_lock.
 */
#include <string.h>

#include "store/sqlite.h"

#define VALUES_MAX     8192u
#define VALUES_KEY_MAX 512u

typedef struct sqlite_value {
    struct sqlite_value *next_dirty;
    uint64_t             version; /* 0: it is known to be absent */
    stet_id              run; /* who wrote it last */
    uint64_t             revision;
    bool                 is_dirty;
    const stet_op       *put; /* of the caller of commit() */
} sqlite_value;

static bool
values_is_base(const char *space)
{
    return strncmp(space, "base.", 5) == 0;
}

/* Baselines have a table of their own: it must not be lost with the projections. */
sqlite_sql
stet__sqlite_of_space(const char *space, sqlite_sql which)
{
    if (!values_is_base(space))
        return which;
    switch (which) {
    case LITE_SQL_VALUE_LOOK: return LITE_SQL_BASE_LOOK;
    case LITE_SQL_VALUE_PUT: return LITE_SQL_BASE_PUT;
    case LITE_SQL_VALUE_SET: return LITE_SQL_BASE_SET;
    case LITE_SQL_VALUE_DEL: return LITE_SQL_BASE_DEL;
    case LITE_SQL_VALUE_GET: return LITE_SQL_BASE_GET;
    case LITE_SQL_VALUES_FROM: return LITE_SQL_BASES_FROM;
    case LITE_SQL_VALUES_AFTER: return LITE_SQL_BASES_AFTER;
    default: return which;
    }
}

void
stet__sqlite_values_init(sqlite_store *st)
{
    stet__map_init(&st->values, st->base.alloc);
    st->dirty_values = NULL;
}

void
stet__sqlite_values_clear(sqlite_store *st)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;

    while (stet__map_next(&st->values, &at, &key, &len, &value))
        stet__free(st->base.alloc, value);
    stet__map_free(&st->values);
    stet__sqlite_values_init(st);
}

/* space NUL key; 0: too long to be kept. */
static size_t
values_key(uint8_t out[VALUES_KEY_MAX], const char *space, stet_bytes key)
{
    size_t len = strlen(space) + 1;

    if (len + key.len > VALUES_KEY_MAX)
        return 0;
    memcpy(out, space, len);
    if (key.len > 0)
        memcpy(out + len, key.data, key.len);
    return len + key.len;
}

static void
values_forget(sqlite_store *st, const char *space, stet_bytes key)
{
    uint8_t name[VALUES_KEY_MAX];
    size_t  len = values_key(name, space, key);

    if (len > 0)
        stet__free(st->base.alloc, stet__map_remove(&st->values, name, len));
}

static sqlite_value *
values_find(sqlite_store *st, const char *space, stet_bytes key)
{
    uint8_t name[VALUES_KEY_MAX];
    size_t  len = values_key(name, space, key);

    return len > 0 ? stet__map_find(&st->values, name, len) : NULL;
}

/* It is only kept to be faster: no memory, no harm. */
static void
values_keep(sqlite_store *st, const char *space, stet_bytes key, const stet_value *value)
{
    uint8_t       name[VALUES_KEY_MAX];
    size_t        len = values_key(name, space, key);
    sqlite_value *v;

    if (len == 0 || (st->values.used >= VALUES_MAX && st->dirty_values != NULL))
        return;
    if (st->values.used >= VALUES_MAX)
        stet__sqlite_values_clear(st);
    if ((v = stet__get0(st->base.alloc, sizeof *v)) == NULL)
        return;
    v->version = value->version;
    v->run = value->run;
    v->revision = value->revision;
    if (stet__map_put(&st->values, name, len, v) != STET_OK)
        stet__free(st->base.alloc, v);
}

int
stet__sqlite_value_look(sqlite_store *st, const char *space, stet_bytes key, stet_value *value)
{
    const sqlite_value *v = values_find(st, space, key);
    sqlite3_stmt       *stmt;
    int                 err = STET_OK;
    int                 rc;

    memset(value, 0, sizeof *value);
    if (v != NULL) {
        value->version = v->version;
        value->run = v->run;
        value->revision = v->revision;
        return STET_OK;
    }
    if ((stmt = sqlite_writer_stmt(st, stet__sqlite_of_space(space, LITE_SQL_VALUE_LOOK), &err)) == NULL)
        return err;
    sqlite_bind_text(stmt, 1, space);
    sqlite_bind_bytes(stmt, 2, key);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        value->version = (uint64_t)sqlite3_column_int64(stmt, 0);
        value->run = stet__sqlite_column_id(stmt, 1);
        value->revision = (uint64_t)sqlite3_column_int64(stmt, 2);
    } else if (rc != SQLITE_DONE)
        err = stet__sqlite_fail(st, st->writer.db, rc, "check a condition");
    sqlite3_reset(stmt);
    if (err == STET_OK && (value->version > 0 || values_is_base(space)))
        values_keep(st, space, key, value);
    return err;
}

static void
values_bind(sqlite3_stmt *stmt, const stet_op *op)
{
    sqlite_bind_text(stmt, 1, op->space);
    sqlite_bind_bytes(stmt, 2, op->key);
    sqlite_bind_bytes(stmt, 3, op->data);
    if (stet__id_is_zero(op->run))
        sqlite3_bind_null(stmt, 4);
    else
        sqlite_bind_id(stmt, 4, &op->run);
    sqlite_bind_u64(stmt, 5, op->number);
}

int
stet__sqlite_value_put(sqlite_store *st, const stet_op *op)
{
    sqlite_value *v = values_find(st, op->space, op->key);
    sqlite3_stmt *stmt;
    int           err = STET_OK;

    if (v != NULL && v->version == 0) {
        values_forget(st, op->space, op->key); /* there is no row to change: it is made below */
        v = NULL;
    }
    if (v != NULL) {
        v->version++;
        v->run = op->run;
        v->revision = op->number;
        v->put = op;
        if (!v->is_dirty) {
            v->is_dirty = true;
            v->next_dirty = st->dirty_values;
            st->dirty_values = v;
        }
        return STET_OK;
    }
    if ((stmt = sqlite_writer_stmt(st, stet__sqlite_of_space(op->space, LITE_SQL_VALUE_PUT), &err)) == NULL)
        return err;
    values_bind(stmt, op);
    return stet__sqlite_run(st, &st->writer, stmt, "write a value");
}

int
stet__sqlite_value_del(sqlite_store *st, const stet_op *op)
{
    sqlite3_stmt *stmt;
    int           err;

    if ((err = stet__sqlite_values_flush(st)) != STET_OK ||
        (stmt = sqlite_writer_stmt(st, stet__sqlite_of_space(op->space, LITE_SQL_VALUE_DEL), &err)) == NULL)
        return err;
    values_forget(st, op->space, op->key);
    sqlite_bind_text(stmt, 1, op->space);
    sqlite_bind_bytes(stmt, 2, op->key);
    return stet__sqlite_run(st, &st->writer, stmt, "remove a value");
}

int
stet__sqlite_values_flush(sqlite_store *st)
{
    sqlite3_stmt *stmt;
    sqlite_value *v;
    int           err = STET_OK;

    while ((v = st->dirty_values) != NULL) {
        if ((stmt = sqlite_writer_stmt(st, stet__sqlite_of_space(v->put->space, LITE_SQL_VALUE_SET), &err)) == NULL)
            return err;
        values_bind(stmt, v->put);
        sqlite_bind_u64(stmt, 6, v->version);
        if ((err = stet__sqlite_run(st, &st->writer, stmt, "write a value")) != STET_OK)
            return err;
        st->dirty_values = v->next_dirty;
        v->is_dirty = false;
        v->put = NULL;
    }
    return STET_OK;
}
