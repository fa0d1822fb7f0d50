/* stet: durable functions in C. One header for programs; see docs/guide.md.
 *
 *   stet/base.h      bytes, codes, IDs, durations
 *   stet/engine.h    open, register, start and stop; configuration; logs; workers; health
 *   stet/run.h       start runs, wait for them, look at them, cancel, dead letters
 *   stet/operate.h   help a run: pause, skip, edit, rewind, fail, fork
 *   stet/context.h   what a handler can do
 *   stet/live.h      queries and updates of a run that is under way
 *   stet/move.h      move all runs from one store to another
 *   stet/replay.h    execute handlers against a record: deploy gate, bundles, descriptions
 *   stet/schedule.h  when things are due: cron expressions, time zones
 *   stet/app.h       a program with the whole command line in two calls
 *
 * Not in it: stet/test.h, the test kit, which your tests include and link; see docs/testing.md.
 */
#ifndef STET_H
#define STET_H

#include <stet/app.h>
#include <stet/base.h>
#include <stet/context.h>
#include <stet/engine.h>
#include <stet/live.h>
#include <stet/move.h>
#include <stet/operate.h>
#include <stet/replay.h>
#include <stet/run.h>
#include <stet/schedule.h>
#include <stet/transaction.h>

#endif
