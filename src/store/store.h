/* How the engine gets a store: the list of backends and the opening by address.
 *
 * A new backend is one file that defines its ops, one line in store.c, one stamp in
 * tests/contract. */
#ifndef STET__STORE_H
#define STET__STORE_H

#include <stet/sys/store.h>

#include "platform/platform.h"

extern const stet_store_ops stet__store_memory_ops;
#ifdef STET_WITH_SQLITE
extern const stet_store_ops stet__store_sqlite_ops;
#endif
#ifdef STET_WITH_POSTGRES
extern const stet_store_ops stet__store_postgres_ops;
#endif
#ifdef STET_WITH_REDIS
extern const stet_store_ops stet__store_redis_ops;
#endif

/* Allocates and opens. Addresses: "memory:" (private to this handle), a path or "sqlite:PATH" (may
 * have ?prefix=… options later), "postgres://…",
 * "redis://…". STET_EURL lists what this build can open. */
int  stet__store_open(stet_store **out, stet__platform *p, const char *address);
/* For those who must not make one: STET_OK if opening would not create a file; else STET_ENOTFOUND. */
int  stet__store_exists(stet__platform *p, const char *address);
/* The address as it may be told: without its password. Returns out. */
const char *stet__store_shown(char *out, size_t size, const char *address);
void stet__store_close(stet_store *s); /* closes and frees; accepts NULL */

/* May anybody else have something to do because of this unit? Not for facts of a run that goes on,
 * for runs that were claimed, for one that is set aside: those who wait and those who look for work
 * would find nothing new. */
bool stet__unit_is_news(const stet_unit *unit);

/* Memory stores that outlive a handle, for tests and the simulator: `db` is shared by all handles
 * opened on it and is guarded for use by several platforms. */
typedef struct stet__memory_db stet__memory_db;
stet__memory_db *stet__memory_db_new(stet__platform *owner);
void             stet__memory_db_free(stet__memory_db *db);
int  stet__memory_open(stet_store **out, stet__platform *p, stet__memory_db *db);

#endif
