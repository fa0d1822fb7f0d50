/* See damage.h. */
#include "damage.h"

#include "engine/engine.h"

#ifdef STET_WITH_SQLITE
#include <sqlite3.h>
#endif

stet_store *
damage_open(fixture *f)
{
    stet_store *s;

    if (f->db == NULL)
        CHECK_OK(stet__store_open(&s, stet__platform_real(), f->url));
    else
        CHECK_OK(stet__memory_open(&s, stet__platform_real(), f->db));
    return s;
}

stet_outcome
damage_try(stet_store *s, const stet_cond *conds, size_t n_conds, const stet_op *ops, size_t n_ops)
{
    static _Atomic uint64_t seq = 1;
    stet_unit               unit = { atomic_fetch_add(&seq, 1), conds, n_conds, ops, n_ops };
    stet_outcome            outcome;

    memset(&outcome, 0, sizeof outcome);
    CHECK_OK(s->ops->commit(s, &unit, 1, &outcome));
    stet__free(s->alloc, outcome.grants);
    outcome.grants = NULL;
    return outcome;
}

void
damage_do(fixture *f, const stet_op *ops, size_t n_ops)
{
    stet_store  *s = damage_open(f);
    stet_outcome outcome = damage_try(s, NULL, 0, ops, n_ops);

    CHECK_INT(outcome.result, STET_OK);
    stet__store_close(s);
}

stet_id
damage_id(const stet_run_id *run)
{
    stet_id id;

    CHECK_OK(stet__id_parse(&id, STET__ID_RUN, run->text));
    return id;
}

void
damage_end(fixture *f)
{
    fixture_down(f);
    fixture_end(f);
}

stet_store_ops *
damage_ops(stet_engine *e)
{
    static stet_store_ops tables[16];
    static size_t         n;
    stet_store_ops       *ops;

    CHECK(n < 16);
    ops = &tables[n++];
    *ops = *e->store->ops;
    e->store->ops = ops;
    return ops;
}

static int
damage_renew_fails(stet_store *s, uint64_t session, int64_t lease_ms)
{
    (void)s;
    (void)session;
    (void)lease_ms;
    return stet__fail(STET_EIO, "the network is down");
}

void
damage_mortal(stet_engine *e)
{
    damage_ops(e)->session_renew = damage_renew_fails;
}

void
damage_die(fixture *f, stet_engine *e)
{
    const stet_store_ops *real = &stet__store_memory_ops;

#ifdef STET_WITH_SQLITE
    if (f->is_sqlite)
        real = &stet__store_sqlite_ops;
#endif
#ifdef STET_WITH_POSTGRES
    if (f->is_postgres)
        real = &stet__store_postgres_ops;
#endif
#ifdef STET_WITH_REDIS
    if (f->is_redis)
        real = &stet__store_redis_ops;
#endif
    (void)f;
    CHECK_OK(real->session_renew(e->store, e->session, 1));
}

#ifdef STET_WITH_SQLITE

static sqlite3_stmt *
damage_prepare(fixture *f, sqlite3 **db, const char *sql, const stet_run_id *run, stet_bytes bytes)
{
    sqlite3_stmt *stmt = NULL;
    stet_id       id;

    CHECK(f->is_sqlite);
    CHECK_INT(sqlite3_open_v2(f->url, db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_busy_timeout(*db, 20000), SQLITE_OK);
    if (sqlite3_prepare_v2(*db, sql, -1, &stmt, NULL) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, sqlite3_errmsg(*db));
    if (run != NULL && sqlite3_bind_parameter_count(stmt) >= 1) {
        id = damage_id(run);
        CHECK_INT(sqlite3_bind_blob(stmt, 1, id.bytes, sizeof id.bytes, SQLITE_TRANSIENT),
                  SQLITE_OK);
    }
    if (bytes.data != NULL)
        CHECK_INT(sqlite3_bind_blob(stmt, 2, bytes.data, (int)bytes.len, SQLITE_TRANSIENT),
                  SQLITE_OK);
    return stmt;
}

void
damage_sql(fixture *f, const char *sql, const stet_run_id *run, stet_bytes bytes)
{
    sqlite3      *db;
    sqlite3_stmt *stmt = damage_prepare(f, &db, sql, run, bytes);

    if (sqlite3_step(stmt) != SQLITE_DONE)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, sqlite3_errmsg(db));
    CHECK(sqlite3_changes(db) >= 1);
    (void)sqlite3_finalize(stmt);
    CHECK_INT(sqlite3_close(db), SQLITE_OK);
}

bool
damage_sql_get(fixture *f, const char *sql, const stet_run_id *run, uint8_t *bytes, size_t size,
               size_t *len)
{
    sqlite3      *db;
    sqlite3_stmt *stmt = damage_prepare(f, &db, sql, run, (stet_bytes){ NULL, 0 });
    bool          found = sqlite3_step(stmt) == SQLITE_ROW;

    if (found) {
        const void *blob = sqlite3_column_blob(stmt, 0);

        *len = (size_t)sqlite3_column_bytes(stmt, 0);
        CHECK(*len <= size);
        if (*len > 0)
            memcpy(bytes, blob, *len);
    }
    (void)sqlite3_finalize(stmt);
    CHECK_INT(sqlite3_close(db), SQLITE_OK);
    return found;
}

#else

void
damage_sql(fixture *f, const char *sql, const stet_run_id *run, stet_bytes bytes)
{
    (void)f;
    (void)run;
    (void)bytes;
    test_skip("this build has no SQLite: %s", sql);
}

bool
damage_sql_get(fixture *f, const char *sql, const stet_run_id *run, uint8_t *bytes, size_t size,
               size_t *len)
{
    (void)f;
    (void)run;
    (void)bytes;
    (void)size;
    (void)len;
    test_skip("this build has no SQLite: %s", sql);
}

#endif

void
damage_stop_called(stet_engine *e, const stet_run_id *run)
{
    stet__work *w = stet__work_new(e, NULL, NULL);

    CHECK(w != NULL);
    CHECK(stet__stop_called(e, w, damage_id(run), NULL, "caller", "it was rewound"));
    CHECK_OK(stet__commit_sync(e, w, NULL));
}
