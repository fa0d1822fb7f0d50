/* PostgreSQL by hand: the same rows in the same commits as raw.h, on one connection, with prepared
 * statements in a pipeline: a commit is one round trip. Ends the program with the server's message
 * if anything fails. */
#ifndef STET_BENCH_RAW_POSTGRES_H
#define STET_BENCH_RAW_POSTGRES_H

#include <stdint.h>

typedef struct raw_pg raw_pg;

/* Makes its tables in the schema "raw". */
raw_pg *raw_pg_open(const char *conninfo);
void    raw_pg_close(raw_pg *r); /* accepts NULL */
/* As raw_steps3(): seconds of `total` workflows in lots of `batch`. */
double raw_pg_steps3(raw_pg *r, int64_t batch, int64_t total);
/* The same with three bodies of a millisecond: `total` runs that are ready, taken with SKIP LOCKED
 * by so many slots (at most 64), each with a connection and a thread; runs a second. A run is four
 * transactions. `conninfo` as for raw_pg_open(). */
double raw_pg_workers(raw_pg *r, const char *conninfo, int slots, int64_t total);
/* `n` commits one after the other, each of a fact and its run's row; seconds of each. */
void raw_pg_commits_each(raw_pg *r, int n, double *seconds);

#endif
