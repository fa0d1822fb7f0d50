/* Lines of a batch: what postgres_encode.c and postgres_rules.c write and the server's function
 * reads. */
#ifndef STET__POSTGRES_LINES_H
#define STET__POSTGRES_LINES_H

#include "store/postgres.h"

/* Kinds of lines; the function knows them by number. */
enum {
    LINE_UNIT = 0,
    LINE_CLAIM = 1,
    LINE_JOURNAL = 2,
    LINE_INBOX = 3,
    LINE_PARKED = 4,
    RULE_EXISTS = 10,
    RULE_ABSENT = 11,
    RULE_JOURNAL = 12,
    RULE_OPEN = 13,
    RULE_LANE = 14,
    RULE_ENDED = 15,
    RULE_RESTORE = 16,
    LINE_VALUE = 20,
    LINE_WRITER = 21,
    LINE_TIMER = 22,
    LINE_DEAD = 23,
    LINE_RELIES = 24,
    LINE_FAIL = 25,
    DO_PUT = 32,
    DO_SET = 33,
    DO_WAKE = 34,
    DO_FACTS = 35,
    DO_INBOX = 36,
    DO_ENTER = 37,
    DO_LEAVE = 38,
    DO_DEL = 39,
    DO_RESTORE = 40,
    DO_TIMER_PUT = 50,
    DO_TIMER_DEL = 51,
    DO_VALUE_PUT = 52,
    DO_VALUE_DEL = 53,
    DO_CLAIM_DUE = 54,
    DO_REAP = 55,
    DO_REQUEUE = 56,
    DO_BURY = 57
};

/* Text of the functions. */
#define FN_NEVER "9223372036854775807"
#define FN_OLD                                                                                     \
    "RAISE EXCEPTION 'stet: the transaction is %',current_setting('transaction_isolation') USING " \
    "ERRCODE='" PG_STATE_OLD "';"
#define FN_RACED "RAISE EXCEPTION 'stet: raced' USING ERRCODE='40001';"
#define FN_STICKY(status) "(" status " BETWEEN 0 AND 63 AND (p_sticky>>" status ")&1=1)"
/* Numbers of lanes lie above @@, which is an odd multiple of 256. */
#define FN_GUARD "(" PG_LOCK_CLASS ",@@-256)"

typedef struct pg_line {
    int            kind;
    uint32_t       f, x, y;
    uint64_t       n, s, e;
    int64_t        t;
    const stet_id *run; /* NULL: none */
    const char    *a;
    bool           has_b, has_d;
    stet_bytes     b, d;
} pg_line;

void stet__pg_line(pg_batch *b, const pg_line *l);
/* The unit is refused with this code. */
void stet__pg_line_fail(pg_batch *b, int code);
/* The run is among those that are locked and read first. */
void stet__pg_lock_run(pg_batch *b, const stet_id *run);
/* Lines that ask what the unit's operations need to find. STET_ENOMEM, or why the unit is refused
 * in any case. */
int stet__pg_rules(pg_batch *b, const stet_unit *unit);

#endif
