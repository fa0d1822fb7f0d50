/* Going behind the engine's back: a second handle on the data of a fixture, units written by hand,
 * and on SQLite the file itself. For tests of what the engine does when the store holds what it
 * should not.
 *
 * Everything here ends the test when it fails. Runs on: the test's thread.
 */
#ifndef STET_DAMAGE_H
#define STET_DAMAGE_H

#include "fixture.h"

/* A handle of its own on f's data; stet__store_close(). */
stet_store *damage_open(fixture *f);
/* One unit; its outcome, without grants. */
stet_outcome damage_try(stet_store *s, const stet_cond *conds, size_t n_conds, const stet_op *ops,
                        size_t n_ops);
/* One unit without conditions that must apply. */
void damage_do(fixture *f, const stet_op *ops, size_t n_ops);
/* A run's ID as the store knows it. */
stet_id damage_id(const stet_run_id *run);
/* SQLite only: one statement on the file; ?1 is the run's ID, ?2 the bytes (both may be absent). */
void damage_sql(fixture *f, const char *sql, const stet_run_id *run, stet_bytes bytes);
/* SQLite only: a blob or number as bytes; false: no row. */
bool damage_sql_get(fixture *f, const char *sql, const stet_run_id *run, uint8_t *bytes,
                    size_t size, size_t *len);

/* fixture_end() of a store that was broken on purpose: without its look whether everything is in
 * order. */
void damage_end(fixture *f);

/* An engine that can be declared dead while it lives: damage_mortal() before its start,
 * damage_die() ends its lease. It goes on believing that it has one. */
void damage_mortal(stet_engine *e);
void damage_die(fixture *f, stet_engine *e);

/* The stop of a run by its caller, as one records it that could not look at the run. */
void damage_stop_called(stet_engine *e, const stet_run_id *run);

/* Methods of an engine's store replaced by the test: a copy of the table that lives as long as the
 * test. */
stet_store_ops *damage_ops(stet_engine *e);

#endif
