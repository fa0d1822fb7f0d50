/* What the files of a move share: move.c has the marks and the order of things, move_copy.c writes
 * the target, move_check.c compares both sides. */
#ifndef STET__MOVE_H
#define STET__MOVE_H

#include <stet/move.h>

#include "engine/engine.h"

#define MOVE_PAGE 64u
#define MOVE_UNIT_BYTES (256u * 1024u)

typedef struct move {
    stet_engine       *from, *to;
    stet_id            id;     /* of this filling of this target: in the marks of both */
    stet_id            origin; /* of the move, whatever target is filled */
    const stet_move_options *options;
    stet_move_report   report;
    int64_t            from_ms; /* no fact of the source is younger, by its clock */
    uint64_t           total; /* runs of the source */
    uint64_t           done;  /* of them in this phase */
    /* A page of the source's runs, the last one's ID included. */
    stet__arena        arena;
    stet_run_row       rows[MOVE_PAGE];
    size_t             n_rows;
    stet_id            last;
    /* Units for the target that wait to be committed together. */
    stet__work        *works[MOVE_PAGE];
    size_t             n_works, bytes;
    size_t             unit_bytes; /* a unit ends when it has more, a flush at four times as much */
} move;

/* Tell the progress; what the caller said to it. */
int stet__move_tell(move *m, stet_move_phase phase);
/* The next page of the source's runs into m->rows, oldest first; m->arena holds it. None are left:
 * n_rows is 0. */
int stet__move_page(move *m);
/* Commit what waits. STET_ECONFLICT with a sentence: not as we left it. */
int stet__move_flush(move *m);
/* Takes the unit, also on failure. */
int stet__move_add(move *m, stet__work *w, size_t bytes);
int stet__move_no_memory(void);

int stet__move_copy(move *m);    /* facts, inboxes, baselines */
int stet__move_rebuild(move *m); /* what follows from them */
int stet__move_state(move *m);   /* what objects hold, as the source has it */
int stet__move_values(move *m);  /* keys, labels …: those of runs whose facts cannot be read */
int stet__move_compare(move *m); /* fills the report */
int stet__move_verify(move *m);

/* For tests: on handles of stores that may do strange things. Takes both, also on failure. */
int stet__move_on(stet_move_report *report, stet__platform *p, stet_store *from,
                  const char *from_url, stet_store *to, const char *to_url,
                  const stet_move_options *options);

#endif
