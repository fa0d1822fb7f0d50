/* A store that wraps another one and makes one thing go wrong at the nth call: the end of the
 * process before or after it, a commit whose reply is lost, a commit that fails, a call of any kind
 * that is answered with an error. Our own crash and fault tests use it, and the test kit.
 *
 * The script is the caller's and lives outside what crashes (shared memory, or outside the
 * simulated node), so that it can be read afterwards.
 */
#ifndef STET_SHIM_STORE_H
#define STET_SHIM_STORE_H

#include <stdatomic.h>

#include "store/store.h"

typedef enum shim_mode {
    SHIM_NONE,   /* count only */
    SHIM_BEFORE, /* crash instead of the call */
    SHIM_AFTER,  /* crash when the call has done its work, before its answer is known */
    SHIM_LOSE,   /* commits only: applied, answered STET_EUNCERTAIN */
    SHIM_FAIL,   /* commits only: not applied, answered STET_EBUSY */
    SHIM_ERROR   /* any call: not made, answered with `code` */
} shim_mode;

/* Which calls are counted by `at`. */
typedef enum shim_which { SHIM_ANY, SHIM_WRITES, SHIM_READS } shim_which;

typedef struct shim_script {
    shim_mode        mode;
    shim_which       which;
    uint64_t         at;       /* 1: the first such call */
    uint64_t         count;    /* SHIM_ERROR: so many in a row; 0: one */
    int              code;     /* SHIM_ERROR */
    bool           (*is_asleep)(void); /* NULL, or: calls made now neither count nor fail */
    /* NULL, or: what happens at this commit, whatever mode, which and at say; *code: of SHIM_ERROR.
     * No other call goes wrong then. */
    shim_mode      (*choose)(void *arg, const stet_unit *units, size_t n, int *code);
    /* Does not return, unless the process was only stopped for a while. No write is on its way. */
    void           (*crash)(void *arg);
    /* A unit was applied for the first time. Never runs at the same time as crash(). */
    void           (*applied)(void *arg, const stet_unit *unit);
    void            *arg;
    _Atomic uint64_t calls;    /* counted ones so far */
    _Atomic uint64_t writes, reads;
    char             hit[24];  /* the call it went wrong at; "" if that many calls were not made */
    bool             is_hit;
} shim_script;

/* Takes `inner`, also on failure. The script stays the caller's. */
int stet__shim_store_new(stet_store **out, stet_store *inner, shim_script *script);

/* Until it is let go of, no write is on its way, and no commit between "applied" and "told to the
 * script": whoever ends or stops the process itself, or compares what is told with what happens
 * outside, holds it. For scripts that have applied(). */
void stet__shim_hold(stet_store *shim);
void stet__shim_let_go(stet_store *shim);

const char *stet__shim_mode_name(shim_mode mode);

#endif
