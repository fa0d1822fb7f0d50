/* Executing handlers against a record; docs/decisions/0023-offline.md tells why it is built like
 * this.
 *
 *   bundle.c    a run as one file: a tape, encoded
 *   offline.c   the second host of the executor: feeds a context from a tape, commits nothing
 *   errand.c    work done in a forked child, one piece after the other, which may die of it
 *   check.c     stet_check(), stet_replay(), stet_run_export()
 *   describe.c  stet_describe()
 *   query.c     stet_query()
 */
#ifndef STET_ENGINE_OFFLINE_H
#define STET_ENGINE_OFFLINE_H

#include <stet/replay.h>

#include "engine/engine.h"

/* ---- what is recorded of one run ------------------------------------------------------------- */

typedef struct stet__tape_row {
    uint64_t   first; /* revision, or inbox sequence */
    uint32_t   count;
    stet_bytes facts;
} stet__tape_row;

typedef struct stet__tape {
    stet_id         run;
    stet_status     status;
    uint64_t        revision;
    int64_t         exported_ms;
    stet_bytes      version, build; /* texts */
    stet__tape_row *journal, *inbox;
    size_t          n_journal, n_inbox;
    bool            is_as_taken; /* without the entries of the inbox nobody took */
} stet__tape;

/* load.c: the tape into run and journal, and behind it the inbox entries nobody took yet.
 * STET_ECORRUPT with
 * *bad_revision; STET_ENOMEM. */
int stet__load_tape(stet__alloc *alloc, stet__run *run, stet__journal *journal,
                    const stet__tape *tape, uint64_t *bad_revision);
int stet__load_tape_seen(stet__alloc *alloc, stet__run *run, stet__journal *journal,
                         const stet__tape *tape, uint64_t *bad_revision, stet__fact_seen_fn fn,
                         void *arg);

/* ---- bundle.c -------------------------------------------------------------------------------- */

/* Begin, then rows of the journal in order and entries of the inbox in order, then end. */
void stet__bundle_begin(stet__buf *b, stet_id run, stet_status status, uint64_t revision,
                        int64_t exported_ms);
void stet__bundle_journal(stet__buf *b, uint64_t first, uint32_t count, stet_bytes facts);
void stet__bundle_inbox(stet__buf *b, uint64_t seq, stet_bytes fact);
void stet__bundle_end(stet__buf *b, size_t from); /* the bundle began at this place of the buffer */
/* The rows are in the arena and point into `in`. STET_ECORRUPT, STET_ENEWER, STET_ENOMEM. */
int stet__bundle_decode(stet__tape *tape, stet__arena *arena, stet_bytes in);
/* Append a run as the store has it. `row` was read before: facts up to its journal are taken.
 * STET_ETOOBIG; STET_ENOTFOUND, it was removed since. */
int stet__bundle_load(stet_engine *e, stet__buf *b, const stet_run_row *row);
/* The linker's ID of the program this is, in hex; "" if it has none. */
void stet__build_id(char *text, size_t size);

/* ---- offline.c ------------------------------------------------------------------------------- */

/* Where an execution is, in memory that its parent reads when it has died. */
typedef struct stet__offline_place {
    char     asked[192], where[256];
    uint64_t operations;
} stet__offline_place;
/* The report of one that died (`text` says how) or did not end; its texts are in place and line. */
void stet__offline_lost(stet_replay_report *r, const stet__offline_place *place, bool is_late,
                        int64_t time_ms, const char *text, char line[512]);

typedef struct stet__offline_node stet__offline_node;

/* What is asked of the handler when it has come to the end of the record. Then the record is all it
 * goes by: nothing is assumed. */
typedef struct stet__question {
    const char *name;
    stet_bytes  input;
    bool        is_asked; /* there was a point to ask at */
    int         code;     /* of the answer */
    stet_reply  reply;    /* the value, or the text to the code */
} stet__question;

typedef struct stet__offline {
    stet_engine         *e;      /* lends handlers and initial state, never its store */
    stet__platform      *p;
    stet__mutex          lock;
    stet__exec           exec;
    stet_tx              tx;     /* what a transactional step is lent: nothing */
    /* Set before a run. */
    bool                 follows;  /* goes on behind the record, to the handler's end, and keeps
                                      all operations */
    uint64_t             new_max;  /* operations that are not recorded */
    const stet__journal *from;     /* results for what is not recorded; NULL: samples only */
    stet__offline_place *place;    /* or NULL */
    stet__question      *question; /* or NULL */
    stet_operation_fn    fn;       /* or NULL; each as it is asked for; if it follows, at the end */
    void                *arg;
    /* Of the run under way. */
    const stet__tape    *tape;
    const stet__handler *handler;
    stet__arena          arena;    /* texts of the report, operations that are kept */
    int                  err;      /* could not be executed, or fn said so */
    stet_replay_report   report;
    const char          *strange, *strange_where; /* the first new one though more is recorded */
    int64_t              now_ms;
    uint64_t             news;
    stet__offline_node  *first, *last;
} stet__offline;

int  stet__offline_open(stet__offline *o, stet_engine *e);
void stet__offline_close(stet__offline *o);
/* Execute; o->report tells what came of it, until the next one. STET_OK; STET_ENOMEM; what o->fn
 * said. */
int  stet__offline_run(stet__offline *o, const stet__tape *tape);
/* Is this the run of a service that is not registered here? */
bool stet__offline_is_elsewhere(const stet_engine *e, const char *handler);
const char *stet__operation_shape(stet__fact_kind kind);

/* ---- errand.c -------------------------------------------------------------------------------- */

/* A child does piece after piece and tells what came of each. */
typedef struct stet__errand {
    stet__platform *p;
    size_t          n;
    int64_t         time_ms; /* for each */
    size_t          shared_bytes;
    void           *shared;  /* out: zeroed memory that both see, while it lasts */
    void           *arg;
    /* In the child. False: it has no memory. */
    bool (*begin)(struct stet__errand *x);
    bool (*perform)(struct stet__errand *x, size_t i, stet__buf *out);
    /* In the parent. Not STET_OK: stop, and return it. */
    int (*done)(struct stet__errand *x, size_t i, stet_bytes out);
    int (*lost)(struct stet__errand *x, size_t i, bool is_late, const char *text);
} stet__errand;
int stet__errand_run(stet__errand *x);

/* A report as bytes and back, for the way out of the child (texts point into `in`). */
void stet__report_encode(stet__buf *b, const stet_replay_report *r);
int  stet__report_decode(stet_replay_report *r, stet__arena *arena, stet_bytes *in);
void stet__operation_encode(stet__buf *b, const stet_operation *op);
int  stet__operation_decode(stet_operation *op, stet__arena *arena, stet_bytes *in);

#endif
