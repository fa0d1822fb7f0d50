/* Replay matching: what was recorded, found by kind + name + occurrence, and what came of it.
 *
 * A *command* is one thing the handler asked for. Commands of one kind and name stand in a row in the
 * order of their occurrence; asking takes the next one of that row. So commands may be added or moved
 * between others under running runs, and only a contradiction stops a run.
 *
 * Pure. Memory is the arena's.
 */
#ifndef STET__JOURNAL_H
#define STET__JOURNAL_H

#include "core/fact.h"

typedef struct stet__cmd {
    stet__fact_kind kind;
    const char     *name;
    uint64_t        occurrence;
    uint64_t        completion;   /* revision that notifications answer; 0: none */
    uint64_t        revision;     /* of its first fact, where that is known */
    bool            is_recorded;  /* from the journal (else made by this execution) */
    bool            is_asked;     /* the handler asked for it in this execution */
    bool            is_inherited; /* nobody has to ask for it */
    bool            is_skipped;   /* STEP: its result is an operator's */
    bool            is_refused;   /* UPDATE: it changed nothing */
    bool            is_settled;
    bool            is_absent;    /* STATE_GET: there was no value */
    bool            is_approval;  /* BOUNDARY */
    bool            has_timer;    /* a timer at until_ms was put and has not fired */
    uint64_t        settled_at;   /* order among all settlements and firings of this run; 0: not yet */
    uint64_t        chosen_at;    /* AWAIT, ANY, ROLLBACK, or told to stop: the revision of what it came to; 0: not yet */
    uint64_t        fired_at;     /* order, too: of the timer of an AWAIT, ANY or a step's retry; where a ROLLBACK began */
    uint32_t        attempt;      /* STEP: executions that failed so far, or were used when settled */
    int             code, cause;
    uint32_t        inherited;    /* ROLLBACK: how many inherited steps had been asked for where it began */
    int64_t         until_ms;
    int64_t         number;
    int64_t         fingerprint;
    stet_id         run;          /* child; awakeable */
    stet_bytes      value;
    const char     *text, *origin;
    const char     *topic;        /* SIGNAL: which one */
    stet_bytes      signal_id;    /* SIGNAL: idempotency key of the one it got */
    struct stet__cmd *next;       /* all commands with a completion, newest first */
    struct stet__cmd *behind;     /* SIGNAL: the next wait for the same one */
    struct stet__cmd *spared;     /* in journal->spared or journal->orphans */
    bool            is_spared;    /* it is or was there */
    bool            had_timer;    /* … because of its timer */
    bool            has_mark;     /* TOPIC, BOUNDARY: others see in the store that it waits */
} stet__cmd;

/* A signal that came and that nobody waited for. */
typedef struct stet__letter {
    struct stet__letter *next;
    stet_bytes           value, id;
} stet__letter;

/* Signals of one name. At most one of the two lines is not empty, settled waits aside. */
typedef struct stet__letterbox {
    stet__letter *first, *last;
    stet__cmd    *waits, *waits_last; /* in their order; settled ones (time was up) are passed over */
} stet__letterbox;

/* A change of the handler's variables that somebody asked for. */
typedef struct stet__update {
    struct stet__update *next;
    stet__cmd           *cmd;      /* its record; NULL: it is not decided yet */
    const stet__cmd     *before;   /* the record a rewind forgot: what was answered stands */
    const char          *name, *wait; /* wait: where it was made */
    stet_bytes           input, key; /* key: none if it is inherited */
    uint64_t             revision; /* of the record */
    bool                 is_made;  /* in this execution; or there is nothing to make */
} stet__update;

typedef struct stet__row_of_cmds {
    uint64_t    asked;
    size_t      n, cap;
    stet__cmd **cmds; /* by occurrence - 1; NULL where not known */
} stet__row_of_cmds;

typedef struct stet__journal {
    stet__arena *arena;
    stet__map    rows;        /* kind byte + name -> stet__row_of_cmds */
    stet__map    completions; /* revision, 8 bytes -> stet__cmd */
    stet__cmd   *waiting;     /* list of all commands with a completion */
    stet__map    letters;     /* signal -> stet__letterbox */
    stet__map    update_keys; /* of the updates that were asked for -> stet__update */
    stet__update *asked, *asked_last;     /* not decided yet, in the order they came */
    stet__update *updates, *updates_last; /* decided, in that order */
    stet__map    signal_ids;  /* idempotency keys of the signals that came -> stet__journal_came(), or another */
    stet__cmd   *spared;      /* settled, and the host removes what was put for them: timers, marks of waits */
    stet__cmd   *orphans;     /* CALLs that were forgotten by a rewind before they were answered */
    stet__map    repeats;     /* STEP, as in rows, + occurrence -> how often it was forgotten */
    uint64_t     unasked;     /* recorded commands the handler must still ask for */
    uint64_t     inherited;   /* steps the run this one retries has done that the handler has asked for */
    uint64_t     inherited_max; /* … that an attempt before this one had */
    uint64_t     choices;     /* recorded waits the handler has not come to yet */
    uint64_t     inherited_choices; /* … that the run this one retries recorded */
    uint64_t     order;       /* counts settlements */
    uint64_t     known;       /* it when the last fact was applied that is no timer's */
    int64_t      generation;  /* of the run */
    uint64_t     anomalies;   /* notifications that answered nothing; kept, never replayed */
} stet__journal;

void stet__journal_init(stet__journal *j, stet__arena *arena, stet__alloc *alloc);
void stet__journal_free(stet__journal *j);

/* A fact of the journal, or an inbox entry as it is taken. STET_ENOMEM; STET_ECORRUPT. */
int stet__journal_apply(stet__journal *j, const stet__fact *fact);

/* How often this step was forgotten by a rewind: it is another execution then, with another token. */
uint64_t stet__journal_repeats(const stet__journal *j, const char *step, uint64_t occurrence);

/* The first step that stands before this revision and was undone behind it, or NULL: forgetting that would leave the step
 * as done. */
const stet__cmd *stet__journal_undone(const stet__journal *j, uint64_t from);

/* Forget what was recorded from this revision on. Signals that were consumed since are there again. */
int stet__journal_rewind(stet__journal *j, uint64_t from);

/* The handler asks for the next command of this kind and name. *cmd is the recorded one, or NULL: it is
 * new, with *occurrence. STET_EREPLAY: a contradiction; *recorded is then the command it collides with. */
int stet__journal_ask(stet__journal *j, stet__fact_kind kind, const char *name, int64_t fingerprint,
                      stet__cmd **cmd, uint64_t *occurrence, const stet__cmd **recorded);
/* Remember a command this execution made, so that notifications find it by `completion`. NULL: ENOMEM. */
stet__cmd *stet__journal_add(stet__journal *j, stet__fact_kind kind, const char *name,
                             uint64_t occurrence, uint64_t completion);
/* It has its outcome. */
void stet__journal_settle(stet__journal *j, stet__cmd *cmd);
/* Let notifications of `completion` find this command too (a step's retry timer). */
int stet__journal_index(stet__journal *j, stet__cmd *cmd, uint64_t completion);
/* The step that undoes the step `name`#occurrence. */
#define STET__UNDO_NAME_MAX (STET__NAME_MAX + 40)
const char *stet__undo_name(char room[STET__UNDO_NAME_MAX], const char *name, size_t len, uint64_t occurrence);
/* Is it a rollback, or one of its undos: not the handler's own? */
bool stet__journal_is_rollback(const stet__cmd *cmd);
/* The first recorded command nobody asked for, or NULL. What the handler asks for comes before what a rollback does. */
const stet__cmd *stet__journal_unasked(const stet__journal *j);
/* A recorded command is made out of the order of its row. */
void stet__journal_asked(stet__journal *j, stet__cmd *cmd);
/* What signal_ids has for a key that came with this generation; another pointer: the one before had it. */
static inline void *
stet__journal_came(stet__journal *j)
{
    return j;
}
/* Signals that came and that nobody waited for, those of one name in their order. Non-zero stops it. */
typedef int (*stet__letter_fn)(void *arg, stet_bytes signal, const stet__letter *letter);
int stet__journal_letters(const stet__journal *j, stet__letter_fn fn, void *arg);
/* Has a signal come that nobody waited for? */
bool stet__journal_has_signal(const stet__journal *j, const char *signal);
/* The one command of this kind, name and occurrence, or NULL. Does not ask. */
stet__cmd *stet__journal_find(const stet__journal *j, stet__fact_kind kind, const char *name, uint64_t occurrence);
/* How many there are of this kind and name, those in between that are not known included. */
uint64_t stet__journal_count(const stet__journal *j, stet__fact_kind kind, const char *name);
/* Is there something of a step to be replaced by another result? */
bool stet__cmd_has_result(const stet__cmd *cmd);
/* Must the handler ask for commands of this kind when they are recorded? */
bool stet__journal_is_binding(stet__fact_kind kind);
/* Is there a command of this kind with this name in the row's next place? Does not ask. */
stet__cmd *stet__journal_peek(const stet__journal *j, stet__fact_kind kind, const char *name);

#endif
