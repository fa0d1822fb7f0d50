/* The tables, in a schema of their own; whose they are, and their version.
 *
 * A schema is ours if its table meta says so; a missing one is made, in one transaction and under
 * an advisory lock, so that of several processes that open a new store one makes it and the others
 * find it. A schema that has tables and no meta is somebody else's and is left alone. Migrations go
 * from one version to the next in the same transaction. The functions are replaced when their
 * text differs from the one of this build (its hash is in meta).
 *
 * Who may execute a run is in its columns, and each case has an index of its own that holds only
 * those rows: due work by handler and time, claimed runs by session, idle ones by handler and
 * status (`idle` says which of them can be asked for). None of them has ended or suspended runs, so
 * they stay as small as the work at hand. Rows of runs have room on their page, so that changes of
 * other columns touch no index.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgres.h"

/* Hot tables are swept after so many dead rows, whatever their size. */
#define SCHEMA_HOT                                                                                 \
    "autovacuum_vacuum_scale_factor=0.02,autovacuum_vacuum_threshold=1000,"                        \
    "autovacuum_analyze_scale_factor=0.05,autovacuum_vacuum_cost_delay=1"

static const char *const schema_tables[] = {
    "CREATE TABLE IF NOT EXISTS @meta(k text PRIMARY KEY, v bytea NOT NULL);",
    "CREATE TABLE IF NOT EXISTS @runs(id uuid PRIMARY KEY, session bigint NOT NULL, epoch bigint "
    "NOT NULL,"
    " inbox bigint NOT NULL, due bigint, created bigint NOT NULL, ended bigint, lane_pos bigint,"
    " status int NOT NULL, priority int NOT NULL, attempt int NOT NULL, terminal boolean NOT NULL,"
    " idle boolean NOT NULL, handler bytea NOT NULL, lane bytea, key bytea, grp bytea, reason "
    "bytea, extra bytea NOT NULL)"
    " WITH (fillfactor=70," SCHEMA_HOT ");",
    "CREATE INDEX IF NOT EXISTS runs_due ON @runs(handler,due,id) WHERE session=0 AND due IS NOT "
    "NULL AND NOT "
    "terminal;",
    "CREATE INDEX IF NOT EXISTS runs_session ON @runs(session,id) WHERE session<>0;",
    "CREATE INDEX IF NOT EXISTS runs_idle ON @runs(handler,status) WHERE idle;",
    "CREATE INDEX IF NOT EXISTS runs_lane ON @runs(lane,lane_pos) WHERE lane IS NOT NULL;",
    "CREATE TABLE IF NOT EXISTS @facts(run uuid, rev bigint, count int NOT NULL, data bytea NOT "
    "NULL, PRIMARY "
    "KEY(run,rev));",
    "CREATE TABLE IF NOT EXISTS @inbox(run uuid, seq bigint, data bytea NOT NULL, PRIMARY "
    "KEY(run,seq));",
    "CREATE TABLE IF NOT EXISTS @timers(fire bigint, run uuid, completion bigint, PRIMARY "
    "KEY(fire,run,completion))"
    " WITH (" SCHEMA_HOT ");",
    "CREATE INDEX IF NOT EXISTS timers_run ON @timers(run);",
    "CREATE TABLE IF NOT EXISTS @vals(space bytea, key bytea, version bigint NOT NULL, data bytea "
    "NOT NULL, run "
    "uuid,"
    " rev bigint NOT NULL, PRIMARY KEY(space,key)) WITH (fillfactor=80," SCHEMA_HOT ");",
    "CREATE TABLE IF NOT EXISTS @base(space bytea, key bytea, version bigint NOT NULL, data bytea "
    "NOT NULL, run "
    "uuid,"
    " rev bigint NOT NULL, PRIMARY KEY(space,key));",
    "CREATE TABLE IF NOT EXISTS @sessions(session bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "id uuid NOT "
    "NULL,"
    " token bytea NOT NULL, started bigint NOT NULL, seen bigint NOT NULL, lease_until bigint NOT "
    "NULL,"
    " closed boolean NOT NULL, info bytea NOT NULL) WITH (fillfactor=50," SCHEMA_HOT ");",
    "CREATE TABLE IF NOT EXISTS @committers(id uuid PRIMARY KEY, last_seq bigint NOT NULL, "
    "first_seq bigint NOT "
    "NULL,"
    " at bigint NOT NULL, seqs bigint[], o_seq bigint[], o_result int[], o_cond int[], o_inbox "
    "bigint[],"
    " o_due bigint[], g_seq bigint[], g_run uuid[], g_epoch bigint[], g_inbox bigint[])"
    " WITH (fillfactor=50," SCHEMA_HOT ");",
    /* Random bytes do not become smaller, and a commit should not try. */
    "ALTER TABLE @committers ALTER COLUMN g_run SET STORAGE EXTERNAL,"
    " ALTER COLUMN g_epoch SET STORAGE EXTERNAL, ALTER COLUMN g_inbox SET STORAGE EXTERNAL,"
    " ALTER COLUMN g_seq SET STORAGE EXTERNAL;",
    NULL
};

/* One at a time for all stores of the database: schemas are not made all day. */
#define SCHEMA_LOCK "SELECT pg_advisory_xact_lock(" PG_LOCK_CLASS ",0)"

char *
stet__pg_expand(pg_store *st, const char *const *parts)
{
    stet__buf b;
    char     *out = NULL;
    uint8_t   hash[32];

    stet__sha256(hash, (const uint8_t *)st->schema, strlen(st->schema));
    stet__buf_init(&b, st->base.alloc);
    for (; *parts != NULL; parts++)
        for (const char *at = *parts; *at != '\0'; at++) {
            if (*at != '@')
                stet__buf_byte(&b, (uint8_t)*at);
            else if (at[1] != '@')
                stet__buf_printf(&b, "\"%s\".", st->schema);
            else {
                /* 256 numbers for the lanes of this schema, above 0. */
                stet__buf_printf(&b, "%u", ((stet__load_u32(hash) & 0x7fffffu) | 1u) << 8);
                at++;
            }
        }
    if (!b.failed)
        out = stet__strdup(st->base.alloc, stet__buf_cstr(&b));
    stet__buf_free(&b);
    return out;
}

static int
schema_run(pg_store *st, pg_link *c, const char *const *parts, const char *what)
{
    char *sql = stet__pg_expand(st, parts);
    int   err;

    if (sql == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    err = stet__pg_exec(st, c, sql, NULL, what);
    stet__free(st->base.alloc, sql);
    return err;
}

/* ---- what is there --------------------------------------------------------------------------- */

typedef struct schema_part {
    const char *name;
    enum { PART_SOURCE, PART_PROJECTION, PART_INDEX, PART_LIFE } kind;
} schema_part;

static const schema_part schema_parts[] = {
    { "meta", PART_SOURCE },     { "facts", PART_SOURCE },    { "inbox", PART_SOURCE },
    { "base", PART_SOURCE },     { "runs", PART_PROJECTION }, { "timers", PART_PROJECTION },
    { "vals", PART_PROJECTION }, { "runs_due", PART_INDEX },  { "runs_session", PART_INDEX },
    { "runs_idle", PART_INDEX }, { "runs_lane", PART_INDEX }, { "timers_run", PART_INDEX },
    { "committers", PART_LIFE }, { "sessions", PART_LIFE },
};
#define SCHEMA_PARTS    (sizeof schema_parts / sizeof *schema_parts)
#define SCHEMA_ALL      ((1u << SCHEMA_PARTS) - 1)
#define SCHEMA_META     0
#define SCHEMA_VALS     6
#define SCHEMA_SESSIONS 13

typedef struct schema_found {
    bool     has_schema, has_tables;
    uint32_t parts; /* bit by bit */
    int      version;
    char     function[65], instance[33]; /* hex */
} schema_found;

static bool
schema_has(const schema_found *found, size_t part)
{
    return (found->parts >> part & 1u) != 0;
}

/* Tables and indexes by their names. */
static int
schema_look_parts(pg_store *st, pg_link *c, schema_found *found)
{
    char      sql[512];
    PGresult *res;
    int       err;

    (void)snprintf(sql, sizeof sql,
                   "SELECT c.relname,c.relkind FROM pg_namespace n LEFT JOIN pg_class c ON "
                   "c.relnamespace=n.oid AND c.relkind IN ('r','p','v','i') WHERE n.nspname='%s'",
                   st->schema);
    if ((err = stet__pg_exec(st, c, sql, &res, "look at its schema")) != STET_OK)
        return err;
    found->has_schema = PQntuples(res) > 0;
    for (int i = 0; i < PQntuples(res); i++) {
        found->has_tables = found->has_tables || !PQgetisnull(res, i, 0);
        for (size_t part = 0; part < SCHEMA_PARTS; part++)
            if (strcmp(PQgetvalue(res, i, 0), schema_parts[part].name) == 0)
                found->parts |= 1u << part;
    }
    PQclear(res);
    return STET_OK;
}

static int
schema_look(pg_store *st, pg_link *c, schema_found *found)
{
    char      sql[512];
    PGresult *res;
    int       err;

    memset(found, 0, sizeof *found);
    if ((err = schema_look_parts(st, c, found)) != STET_OK || !schema_has(found, SCHEMA_META))
        return err;
    (void)snprintf(sql, sizeof sql, "SELECT k,convert_from(v,'SQL_ASCII') FROM \"%s\".meta",
                   st->schema);
    if ((err = stet__pg_exec(st, c, sql, &res, "read its version")) != STET_OK)
        return err;
    for (int i = 0; i < PQntuples(res); i++) {
        const char *k = PQgetvalue(res, i, 0), *v = PQgetvalue(res, i, 1);

        if (strcmp(k, "format") == 0)
            found->version = (int)strtol(v, NULL, 10);
        if (strcmp(k, "function") == 0)
            (void)snprintf(found->function, sizeof found->function, "%s", v);
        if (strcmp(k, "instance") == 0)
            (void)snprintf(found->instance, sizeof found->instance, "%s", v);
    }
    PQclear(res);
    return STET_OK;
}

static int
schema_judge(pg_store *st, const schema_found *found)
{
    if (!schema_has(found, SCHEMA_META) && schema_has(found, SCHEMA_SESSIONS))
        return stet__fail(
            STET_ECORRUPT,
            "store %s: its table meta is missing and cannot be rebuilt; restore a backup",
            st->name);
    if ((!schema_has(found, SCHEMA_META) && found->has_tables) ||
        (schema_has(found, SCHEMA_META) && found->version == 0))
        return stet__fail(
            STET_ENOTDB,
            "store %s: the schema %s is used by something else; give stet one of its own "
            "(schema=NAME)",
            st->name, st->schema);
    if (found->version > PG_FORMAT)
        return stet__fail(STET_ENEWER,
                          "store %s has format %d and this stet knows up to %d; use the newer stet",
                          st->name, found->version, PG_FORMAT);
    return STET_OK;
}

/* How many rows a statement about our own tables counts. */
static int
schema_count(pg_store *st, pg_link *c, const char *const *parts, long *n)
{
    char     *sql = stet__pg_expand(st, parts);
    PGresult *res = NULL;
    int       err;

    if (sql == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if ((err = stet__pg_exec(st, c, sql, &res, "look at its tables")) == STET_OK &&
        (err = stet__pg_one(st, res, "look at its tables")) == STET_OK)
        *n = strtol(PQgetvalue(res, 0, 0), NULL, 10);
    PQclear(res);
    stet__free(st->base.alloc, sql);
    return err;
}

/* A store that lost a projection, or was not rebuilt to the end: only who mends it may open it,
 * alone. */
static int
schema_lost(pg_store *st, pg_link *c, const schema_found *found, const char *what)
{
    static const char *const living[] = { "SELECT count(*) FROM @sessions WHERE NOT closed AND "
                                          "lease_until>" PG_NOW,
                                          NULL };
    long                     n = 0;
    int                      err;

    if (!st->may_mend)
        return stet__fail(
            STET_ECORRUPT,
            "store %s: %s; stop all workers and run `stet verify --repair`, which rebuilds "
            "it from the facts",
            st->name, what);
    if (schema_has(found, SCHEMA_SESSIONS) && (err = schema_count(st, c, living, &n)) != STET_OK)
        return err;
    if (n > 0)
        return stet__fail(STET_EBUSY,
                          "store %s: %s, and %ld workers live; stop them before it is rebuilt",
                          st->name, what, n);
    return STET_OK;
}

/* May a store with these parts be opened? It is ours. */
static int
schema_check_parts(pg_store *st, pg_link *c, const schema_found *found)
{
    static const char *const marks[] = { "SELECT count(*) FROM @vals WHERE space='mend'", NULL };
    char                     what[96];
    long                     n = 0;
    int                      err;

    for (size_t i = 0; i < SCHEMA_PARTS; i++)
        if (!schema_has(found, i) && schema_parts[i].kind == PART_SOURCE)
            return stet__fail(
                STET_ECORRUPT,
                "store %s: its table %s is missing and cannot be rebuilt; restore a backup",
                st->name, schema_parts[i].name);
    for (size_t i = 0; i < SCHEMA_PARTS; i++)
        if (!schema_has(found, i) && schema_parts[i].kind == PART_PROJECTION) {
            (void)snprintf(what, sizeof what, "its table %s is missing", schema_parts[i].name);
            return schema_lost(st, c, found, what);
        }
    if ((err = schema_count(st, c, marks, &n)) != STET_OK || n == 0)
        return err;
    return schema_lost(st, c, found, "rebuilding its tables was interrupted");
}

/* ---- making it ------------------------------------------------------------------------------- */

static void
schema_hex(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Lost projections are made again, empty, and marked: the engine knows how to fill them. */
static int
schema_mark(pg_store *st, pg_link *c, const schema_found *found)
{
    int err = STET_OK;

    for (size_t i = 0; err == STET_OK && i < SCHEMA_PARTS; i++) {
        const char *const mark[] = {
            "INSERT INTO @vals(space,key,version,data,rev) VALUES('mend','",
            i == SCHEMA_VALS ? "values_" : schema_parts[i].name, "',1,'',0) ON CONFLICT DO NOTHING",
            NULL
        };

        if (!schema_has(found, i) && schema_parts[i].kind == PART_PROJECTION)
            err = schema_run(st, c, mark, "mark a lost table");
    }
    return err;
}

/* Numbers of sessions are never used twice, so they go on above all that may have been. */
static int
schema_number_sessions(pg_store *st, pg_link *c)
{
    static const char *const sql[] = {
        "SELECT setval(pg_get_serial_sequence('@sessions','session'),"
        "greatest((SELECT max(session) FROM @runs)," PG_NOW "/1000))",
        NULL
    };

    return schema_run(st, c, sql, "number its sessions");
}

/* Inside the transaction, with the lock. */
static int
schema_make(pg_store *st, pg_link *c, const schema_found *found, const char *hash)
{
    const char *const create[] = { "CREATE SCHEMA \"", st->schema, "\"", NULL };
    bool              is_new = !schema_has(found, SCHEMA_META);
    uint8_t           random[16];
    char              instance[33], sql[512];
    int               err = STET_OK;

    if (!found->has_schema)
        err = schema_run(st, c, create, "make its schema");
    if (err == STET_OK && found->parts != SCHEMA_ALL)
        err = schema_run(st, c, schema_tables, "make its tables");
    if (err == STET_OK && !is_new)
        err = schema_mark(st, c, found);
    if (err == STET_OK && !is_new && !schema_has(found, SCHEMA_SESSIONS))
        err = schema_number_sessions(st, c);
    if (err == STET_OK)
        err = schema_run(st, c, stet__pg_function, "make its function");
    if (err == STET_OK)
        err = schema_run(st, c, stet__pg_quick_functions, "make its quick functions");
    if (err != STET_OK)
        return err;
    st->base.platform->ops->random(st->base.platform, random, sizeof random);
    schema_hex(instance, random, sizeof random);
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO \"%s\".meta(k,v) "
                   "VALUES('format','%d'),('function','%s'),('instance','%s') ON "
                   "CONFLICT(k) DO UPDATE SET v=excluded.v WHERE meta.k<>'instance'",
                   st->schema, PG_FORMAT, hash, instance);
    return stet__pg_exec(st, c, sql, NULL, "mark it as a store");
}

static bool
schema_is_whole(const schema_found *found, const char *hash)
{
    return found->version == PG_FORMAT && found->parts == SCHEMA_ALL &&
           strcmp(found->function, hash) == 0;
}

static int
schema_rights(pg_store *st, int err)
{
    if (err != STET_EREADONLY)
        return err;
    return stet__fail(
        STET_EREADONLY,
        "%s; the user needs the right to make the schema %s (GRANT CREATE ON DATABASE), or "
        "to own it",
        stet_last_error(), st->schema);
}

static int
schema_create(pg_store *st, pg_link *c, schema_found *found, const char *hash)
{
    int err;

    if ((err = stet__pg_exec(st, c, PG_BEGIN, NULL, "begin to write")) != STET_OK)
        return err;
    /* Asked again: another process may have made it since. */
    if ((err = stet__pg_exec(st, c, SCHEMA_LOCK, NULL, "wait for its turn")) == STET_OK &&
        (err = schema_look(st, c, found)) == STET_OK &&
        (err = schema_judge(st, found)) == STET_OK && !schema_is_whole(found, hash))
        err = schema_make(st, c, found, hash);
    /* Not known: opening it anew finds the tables, or makes them. */
    if (err == STET_OK && (err = stet__pg_exec_commit(st, c, "make its tables")) == STET_EUNCERTAIN)
        err = STET_EIO;
    if (err != STET_OK && c->db != NULL) {
        char text[1024]; /* the rollback must not change what went wrong */

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        (void)stet__pg_exec(st, c, "ROLLBACK", NULL, "give it up");
        err = schema_rights(st, stet__fail(err, "%s", text));
    }
    if (err == STET_OK)
        err = schema_look(st, c, found);
    return err;
}

/* Of the texts of all functions: a hash of theirs. */
static int
schema_hash(pg_store *st, char hash[65])
{
    const char *const *const texts[] = { stet__pg_function, stet__pg_quick_functions };
    uint8_t                  digests[2][32], digest[32];

    for (size_t i = 0; i < 2; i++) {
        char *text = stet__pg_expand(st, texts[i]);

        if (text == NULL)
            return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
        stet__sha256(digests[i], (const uint8_t *)text, strlen(text));
        stet__free(st->base.alloc, text);
    }
    stet__sha256(digest, digests[0], sizeof digests);
    schema_hex(hash, digest, sizeof digest);
    return STET_OK;
}

int
stet__pg_schema_prepare(pg_store *st, pg_link *c)
{
    schema_found found;
    char         hash[65];
    int          err;

    if ((err = schema_hash(st, hash)) != STET_OK)
        return err;
    if ((err = schema_look(st, c, &found)) != STET_OK)
        return schema_rights(st, err);
    if ((err = schema_judge(st, &found)) != STET_OK)
        return err;
    if (st->must_exist && !schema_has(&found, SCHEMA_META))
        return stet__fail(STET_ENOTFOUND, "there is no store at %s; a worker or a start makes it",
                          st->name);
    if ((schema_has(&found, SCHEMA_META) && (err = schema_check_parts(st, c, &found)) != STET_OK) ||
        (!schema_is_whole(&found, hash) && (err = schema_create(st, c, &found, hash)) != STET_OK))
        return err;
    for (size_t i = 0; i < sizeof st->instance; i++) {
        unsigned byte = 0;

        if (sscanf(found.instance + 2 * i, "%2x", &byte) != 1)
            return stet__fail(STET_ECORRUPT,
                              "store %s: its table meta is damaged; restore a backup", st->name);
        st->instance[i] = (uint8_t)byte;
    }
    return STET_OK;
}
