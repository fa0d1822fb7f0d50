/* SQLite by hand: the least a durable workflow must write, with none of the engine.
 *
 * This is the fixed limit the engine is measured against. One connection, WAL, synchronous=FULL,
 * prepared statements, and the same facts in the same number of commits as the engine's. One
 * thread. Functions that measure return seconds and exit the program with SQLite's message if
 * anything fails: a benchmark that goes on after an error measures nothing.
 */
#ifndef STET_BENCH_RAW_H
#define STET_BENCH_RAW_H

#include <stddef.h>
#include <stdint.h>

typedef struct raw_db raw_db;

/* Makes a new file; one that is there already is removed first, with its -wal and -shm. */
raw_db *raw_open(const char *path);
/* Removes nothing. Accepts NULL. */
void raw_close(raw_db *r);

/* `total` workflows of three steps, in lots of `batch` (1..total). A lot is four commits: started;
 * taken and step 1; step 2; step 3 and completed. */
double raw_steps3(raw_db *r, int64_t batch, int64_t total);
/* `total` runs without a step. A lot is two commits: started; taken and completed. */
double raw_run0(raw_db *r, int64_t batch, int64_t total);
/* `n` small commits (a journal entry and the run's update), one at a time. seconds[i] is the time
 * of each one; the return value the time of all. */
double raw_commits_each(raw_db *r, size_t n, double *seconds);
/* `total` runs that wait are told something, `batch` in one commit: a journal entry, the run's
 * update, ready again. Making them is not timed. */
double raw_wake(raw_db *r, int64_t batch, int64_t total);
/* `total` increments of `keys` counters in turn, `batch` in one commit: the counter's state, a
 * journal entry, a run. */
double raw_increments(raw_db *r, int64_t keys, int64_t batch, int64_t total);

#endif
