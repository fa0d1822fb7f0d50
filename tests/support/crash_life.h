/* Lives of workers in processes of their own, for crash everywhere: on SQLite, or on the server
 * that STET_TEST_STORE names (postgres, redis).
 */
#ifndef STET_CRASH_LIFE_H
#define STET_CRASH_LIFE_H

#include <sys/types.h>

#include "crash_flows.h"

#define CRASH_LIMIT_MS (INT64_C(60000) * test_slow()) /* for a flow to end */

bool crash_is_on(const char *store);
/* A worker's death is not proven by a lock; only its lease ends. */
bool crash_is_on_server(void);
/* Call it in a constructor of the test program: the server is there before the first test. */
void crash_server(void);
/* Memory that children share, zeroed. */
void *crash_shared(size_t size);
/* The address of a store nobody has used, to `db`; on SQLite the files of that path are removed
 * first, or of a new one if it is "". */
void crash_fresh(char *db, size_t size);

typedef struct crash_worker {
    const char  *db;
    flow_ledger *ledger;
    shim_script *script;
    int64_t      lease_ms;
    stet_log_fn  log;
    stet_level   level;
    stet_store  *real, *store; /* the one that follows the script is above the real one */
    stet_engine *e;
} crash_worker;

/* In a child: a new life of the ledger, a worker that has begun to work. */
void crash_worker_start(crash_worker *w);
/* The process stands still (SIGSTOP) until it is told to go on, and so do all its bodies. Only in a
 * callback of the script, or while the shim is held; then it has no lock of the store. If it loses
 * its lease by that, what it has entered and not recorded is lost. */
void crash_worker_stand_still(crash_worker *w, bool is_lost);
/* A child with this life, which ends with 0. */
pid_t crash_fork(void (*life)(void *arg), void *arg);

#endif
