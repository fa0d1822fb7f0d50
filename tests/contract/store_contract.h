/* Between the store contract and its stamps.
 *
 * store_suite.inc is the definition of a correct store. A stamp is a test program that says how its
 * store is opened and includes the suite:
 *
 *     #include "store_contract.h"
 *     #define STORE_PREFIX G1_memory
 *     static void stamp_begin(contract *c) { … }          fresh, empty data
 *     static stet_store *stamp_open(contract *c) { … }    one more handle on that data
 *     static void stamp_advance(contract *c, int64_t ms)  move the store's clock, for all handles
 *     static void stamp_end(contract *c) { … }            after all handles are closed
 *     #include "store_suite.inc"
 *
 * The clock is moved, never waited for, so the suite sleeps nowhere.
 */
#ifndef STORE_CONTRACT_H
#define STORE_CONTRACT_H

#include "platform/platform.h"
#include "store/store.h"
#include "test.h"

#define CONTRACT_HANDLES 8

typedef struct contract {
    stet__platform *platform;
    void           *data;  /* the stamp's own */
    stet_store     *store; /* handles[0], opened by contract_begin() */
    stet_store     *handles[CONTRACT_HANDLES];
    int64_t         advanced_ms;
    uint64_t        seq;   /* last one used */
} contract;

#endif
