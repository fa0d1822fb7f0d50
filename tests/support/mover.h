/* Moves in processes of their own that end when a script says so: for crash everywhere through a
 * move. Everything here ends the test when it fails. */
#ifndef STET_MOVER_H
#define STET_MOVER_H

#include "testkit/shim_store.h"

#define MOVER_CRASHED 77 /* it ended where the script said */
#define MOVER_REFUSED 78 /* a call failed as the script said, and the move gave up */

/* Move in a child; its exit code: 0, all is done and the script had no say. The counting goes over
 * the calls of both stores. With unit_bytes 1 each entry is a commit of its own, so that every
 * half-done run is seen. */
int mover_until(const char *from, const char *to, shim_mode mode, shim_which which, uint64_t at,
                size_t unit_bytes);

/* At most one of the two may be worked in, whatever happened. */
void mover_has_one_owner(const char *from, const char *to);

#endif
