/* A life of a store, from its opening to its end, in which every method of the port is called. For
 * tests in which something goes wrong on the way: a call that fails is made again, as the engine
 * does, until it works. What must be there in the end is looked at by another handle.
 */
#ifndef STET_STORE_LIFE_H
#define STET_STORE_LIFE_H

#include "store/store.h"

typedef struct store_life {
    stet__platform *platform;
    const char     *url;
    const char     *clean; /* where the other handle looks; NULL: the same */
    uint32_t        n;     /* lives on one store have different numbers */
    const char     *where; /* told when something is wrong */
    /* Codes by which the fault may show; NULL: all. */
    bool (*is_expected)(int code);
    void (*calm)(void); /* NULL, or: called before the other handle looks */
    /* The life's own. */
    stet_store *s;
    uint64_t    session, seq;
    int64_t     until_ms;
    int         failures; /* calls that had to be made again */
    int         open_ends; /* transactions of which it is not known whether they were committed */
} store_life;

void store_life_live(store_life *l);

#endif
