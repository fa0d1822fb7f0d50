/* A store with something of everything in it, half of it past its retention, and what its
 * projections say as text: for tests that lose tables and rebuild them. SQLite for the text and the
 * losing.
 */
#ifndef STET_LOST_H
#define STET_LOST_H

#include "fixture.h"

typedef struct lost_story {
    stet_run_id hold;     /* holds lane o/l; three wait behind it, one is delayed */
    stet_run_id napping;  /* idempotency key "once", label, deadline */
    stet_run_id approval; /* waits for `awakeable` */
    char        awakeable[STET_ID_TEXT_MAX];
    stet_run_id settled;  /* ended; its awakeable is `spent` */
    char        spent[STET_ID_TEXT_MAX];
    stet_run_id caller, retrying, letter, discarded, retried;
    stet_run_id told;     /* waits for signal "end"; update "k" was answered */
    stet_run_id parent;   /* of child keys c1 (there) and c2 (removed) */
    stet_run_id turns;    /* in its third generation, with a signal of the first that nobody took */
    size_t      runs;     /* that are there at the end */
} lost_story;

extern const fixture_service lost_services[];

/* Fill the store of `f`, which is left closed. Child keys of the parent are "c1" and "c2". */
void lost_fill(fixture *f, lost_story *story);
/* The engine (closed) is started on the store again, and everything goes on as the story says. */
void lost_goes_on(fixture *f, const lost_story *story);

/* All that a reader of the projections can see, but for epochs and due times that have passed;
 * free(). */
char *lost_text(const char *path);
void  lost_sql(const char *path, const char *sql);
/* Repair with an engine of its own: how many findings, how many of them were repaired. */
void lost_repair(const char *path, int *findings, int *repaired);

#endif
