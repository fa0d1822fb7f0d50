/* One small world in which everything an engine does happens once: runs with steps, a sleep, a
 * child, object state, an awakeable, bodies on other slots, a dead letter, a cancelled run, runs of
 * a dead worker, a restart in the middle. The fault tests live through it again and again, each
 * time with another allocation or another I/O failing, and then check with a second, healthy engine
 * that nothing was lost, repeated or made up.
 *
 * Faults are the caller's: it arms them and says by which codes they may show. A call that fails
 * with such a code is made again, as a careful program would. Everything else ends the test.
 */
#ifndef STET_FAULT_WORLD_H
#define STET_FAULT_WORLD_H

#include <stet.h>

#include "fault_platform.h"
#include "testkit/shim_store.h"
#include "store/store.h"
#include "test.h"

enum { WORLD_RUNS = 12, WORLD_BODIES = 16 };

typedef struct world {
    /* Chosen by the test. */
    fault_platform *p;          /* of the engine that suffers */
    const char     *url;        /* NULL: a memory store */
    bool            has_threads;
    shim_script    *script;     /* NULL, or: what the store of that engine does wrong */
    bool          (*is_expected)(int code);
    const char     *round;      /* told with every failure */
    /* The world's own. */
    stet__memory_db *db;
    stet_engine     *engine;
    stet_engine     *eye;       /* a healthy client that only looks */
    stet_run_id      runs[WORLD_RUNS];
    bool             is_known[WORLD_RUNS]; /* its start was acknowledged */
    _Atomic int      bodies[WORLD_BODIES];
    char             awakeable[2][STET_ID_TEXT_MAX];
    _Atomic bool     is_mended;
    _Atomic bool     is_second_day;
    _Atomic int      bodies_in_vain; /* executions beyond the first; none was recorded before */
    _Atomic bool     is_uncertain;   /* somebody was told so: repeats need an idempotency key */
    int              errors;         /* calls that failed as expected */
    char             repeated[128];  /* a body that ran though its record was there */
    _Atomic bool     has_run[WORLD_BODIES]; /* its last execution ended well */
    char             untold[128];    /* a body that ended well and ran again without being told */
} world;

/* Live through everything with faults armed; the engine is closed at the end. Ends the test when
 * something is wrong, and when nothing goes on for long. */
void world_live(world *w);
/* Without faults: open again, let everything end, check all facts, close, free. */
void world_check(world *w);

#endif
