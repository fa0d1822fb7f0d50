/* Steps and starts that commit together with SQL of your own.
 *
 * On a store that is a database (SQLite, PostgreSQL) the application's tables can live beside stet's. A step with
 * STET_STEP(.transaction = true) lends its body the connection of a transaction: what the body does with it and
 * the record of the step are committed together or not at all, so it happens exactly once, whatever crashes.
 * stet_start_in() is the other way round: it starts a run inside a transaction of yours.
 */
#ifndef STET_TRANSACTION_H
#define STET_TRANSACTION_H

#include <stet/base.h>
#include <stet/context.h>
#include <stet/run.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sqlite3; /* of <sqlite3.h> */
struct pg_conn; /* a PGconn of <libpq-fe.h> */

typedef enum stet_conn_kind {
    STET_CONN_SQLITE = 1, /* struct sqlite3 * */
    STET_CONN_POSTGRES    /* PGconn * */
} stet_conn_kind;

/** A connection of a client library. */
typedef struct stet_conn {
    stet_conn_kind kind;
    void          *handle;
} stet_conn;

static inline stet_conn
stet_conn_sqlite(struct sqlite3 *db)
{
    stet_conn conn = { STET_CONN_SQLITE, db };

    return conn;
}

static inline stet_conn
stet_conn_postgres(struct pg_conn *pg)
{
    stet_conn conn = { STET_CONN_POSTGRES, pg };

    return conn;
}

/** The connection a transactional step's body may use until it returns; NULL in other steps and on other stores.
 *
 * Its transaction has begun. The body must not end it (such statements are refused), keep the connection, use it from
 * another thread, or write to stet's own tables; it finalizes what it prepares. Anything but STET_OK, and a result
 * that comes later than the step's timeout, rolls the transaction back. On SQLite it holds the file's only write
 * lock: no other run of any process records anything until it is over, so do nothing slow in it. */
STET_API struct sqlite3 *stet_attempt_sqlite(const stet_attempt *a);
STET_API struct pg_conn *stet_attempt_postgres(const stet_attempt *a);

/**
 * Start a run inside a transaction of your own: it exists if, and as soon as, your transaction commits.
 *
 * @param conn     a connection of yours to the database the engine has open, in a transaction
 * @param[out] run its ID, to be believed only once the transaction has committed; may be NULL
 * @param options  as for stet_start(), but no parent. With an idempotency key that was used before *options->existed
 *                 is set and nothing is written
 * @return STET_OK; STET_EUSAGE, the store has no transactions, or the connection is of another kind; STET_ESTATE, no
 *         transaction has begun on it, or it is REPEATABLE READ or SERIALIZABLE on PostgreSQL and the run has a key;
 *         STET_EMISMATCH, it is open on another database; as stet_start() otherwise.
 *         After an error nothing of the start is in your transaction, which is still yours to end.
 *
 * Runs of one key execute one at a time, and a PostgreSQL transaction of those levels does not see who came to the key
 * since it began: begin it with BEGIN ISOLATION LEVEL READ COMMITTED, or start the run after its commit. Runs without
 * a key are started at every level. From the start of a run with a key to the end of your transaction other starts and
 * ends of that key, and of some others, wait for you.
 *
 * Workers find the run at their next look for work (option poll_ms); stet_engine_nudge() after the commit makes it
 * sooner.
 */
STET_API STET_MUST_USE int stet_start_in(stet_engine *engine, stet_conn conn, stet_run_id *run,
                                         const char *handler, stet_bytes input,
                                         const stet_start_options *options);

/** Something was committed behind the engine's back: let all workers look for work now. */
STET_API void stet_engine_nudge(stet_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
