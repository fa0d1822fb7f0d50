/* What the files of the command line share.
 *
 * A verb is one row (cli_verb) in a verb_*.c file and one line in verbs.c: its name, help, options
 * and function. The function reads its options by name, opens the store when its arguments are
 * right, and returns an exit code of the one table below.
 *
 * The command line ends the process when memory is out (app.c): nothing it holds needs saving, so
 * no function here reports it. All texts a verb makes live in the arena until the command ends.
 *
 * Runs on: the thread that called stet_main().
 */
#ifndef STET__CLI_H
#define STET__CLI_H

#include <stdio.h>

#include <stet.h>

#include "util/util.h"

/* Every exit code, once: name, number, meaning. `help exit-codes` is made from it. */
#define CLI_EXIT_LIST(X)                                                                           \
    X(OK, 0, "done; the run completed")                                                            \
    X(NEGATIVE, 1, "the answer is no: verify or check found something, health is bad")             \
    X(USAGE, 2, "the command line is wrong; nothing was done")                                     \
    X(NOTFOUND, 3, "no such run, handler, awakeable or entry")                                     \
    X(FAILED, 4, "the run failed")                                                                 \
    X(CANCELLED, 5, "the run was cancelled")                                                       \
    X(EXPIRED, 6, "the run's deadline passed")                                                     \
    X(TIMEOUT, 7, "the time is up; the run (or a worker's step body) goes on")                     \
    X(STORE, 8, "the store cannot be opened or reached")                                           \
    X(STATE, 9, "refused in this state: ended, not ended, settled; or one of many was")            \
    X(OTHER, 10, "anything else")

typedef enum cli_exit {
#define CLI_EXIT_ENUM(name, number, text) CLI_##name = number,
    CLI_EXIT_LIST(CLI_EXIT_ENUM)
#undef CLI_EXIT_ENUM
} cli_exit;

typedef struct cli cli;

typedef struct cli_option {
    const char *name;  /* without the dashes; one of a single letter has one dash */
    const char *value; /* its stand-in for help; NULL: a flag; "[D]": a duration or nothing */
    const char *text;
} cli_option;

typedef struct cli_verb {
    const char       *name;    /* "ls"; "dlq ls" is two words */
    const char       *args;    /* "RUN", for the usage line */
    const char       *summary; /* one line */
    const char       *details; /* more for `help VERB`, or NULL */
    size_t            args_min, args_max;
    const cli_option *options;       /* ended by { 0 }; NULL: only the common ones */
    bool              creates_store; /* others refuse an address where no store is */
    bool              needs_handlers; /* the plain stet command has none, and refuses it */
    int (*fn)(cli *c);
} cli_verb;

typedef struct cli_given {
    const cli_option *option;
    const char       *value; /* NULL: a flag, or an optional value left out */
} cli_given;

typedef struct cli_service {
    const char         *name;
    const stet_handler *handlers; /* NULL: the program passed NULL, reported by stet_register() */
    const stet_entry   *initial;
    bool                is_object;
} cli_service;

typedef struct cli_schedule { /* of the program, ensured when a worker starts */
    const char            *name, *handler;
    stet_bytes             input;
    stet_schedule_options  options;
} cli_schedule;

typedef struct cli_function {
    const char      *name;
    stet_schedule_fn fn;
    void            *arg;
} cli_function;

struct stet_app {
    stet__alloc  alloc;
    stet__arena  arena;
    const char  *name; /* NULL: the plain stet command */
    cli_service *services;
    size_t       n_services;
    stet_options options;
    cli_schedule *schedules;
    size_t        n_schedules;
    cli_function *functions;
    size_t        n_functions;
};

void stet__app_free(stet_app *app);

typedef int (*cli_ask_fn)(cli *c, void *arg); /* a stet code */

struct cli {
    stet_app       *app;
    stet__alloc    *alloc;
    stet__arena    *arena;
    const char     *name;    /* "shop": before error messages */
    const char     *program; /* as it was called ("./shop"): for commands to copy */
    const cli_verb *verb;
    const char    **args;
    size_t          n_args;
    cli_given      *given;
    size_t          n_given;
    stet_engine    *engine;
    const char     *db;
    const char     *by; /* who acts, once stet__cli_by() was asked */
    bool            json, has_color, is_help, is_version;
    bool            has_repair; /* the store is opened to be repaired */
    bool            is_readonly; /* … to be read, if it can */
    cli_ask_fn      ask; /* what is tried before a store is made; or NULL */
    void           *ask_arg;
    const char     *about; /* the run that is waited for: errors for programs name it; or NULL */
    size_t          width; /* of the terminal; SIZE_MAX: do not cut */
};

/* ---- verbs.c ------------------------------------------------------------------------------- */

/* NULL past the last. */
const cli_verb *stet__cli_verb_at(size_t index);
/* Of those, the ones this program can do: without handlers some are for others. */
const cli_verb *stet__cli_own_verb_at(const cli *c, size_t index);

extern const cli_verb stet__cli_worker, stet__cli_start, stet__cli_send, stet__cli_wait,
    stet__cli_ls, stet__cli_show, stet__cli_why, stet__cli_cancel, stet__cli_resolve,
    stet__cli_reject, stet__cli_signal, stet__cli_unstick, stet__cli_dlq_ls, stet__cli_dlq_retry,
    stet__cli_dlq_discard, stet__cli_state_get, stet__cli_handlers, stet__cli_workers,
    stet__cli_health, stet__cli_verify, stet__cli_check, stet__cli_describe, stet__cli_export,
    stet__cli_replay, stet__cli_move, stet__cli_schedule_ls, stet__cli_schedule_show,
    stet__cli_schedule_history, stet__cli_schedule_ensure, stet__cli_schedule_update,
    stet__cli_schedule_pause, stet__cli_schedule_resume, stet__cli_schedule_rm,
    stet__cli_schedule_preview, stet__cli_emit, stet__cli_rollback, stet__cli_approve,
    stet__cli_resume, stet__cli_pause, stet__cli_skip, stet__cli_edit, stet__cli_rewind,
    stet__cli_fail_verb, stet__cli_fork, stet__cli_retry, stet__cli_waits, stet__cli_notes,
    stet__cli_audit, stet__cli_completion, stet__cli_query, stet__cli_update, stet__cli_man,
    stet__cli_help;

/* ---- args.c: the command line --------------------------------------------------------------- */

/* Fills verb, args, given and the common settings. CLI_OK, or CLI_USAGE after saying why. */
int stet__cli_parse(cli *c, int argc, char **argv);
/* The options every verb has, ended by { 0 }. */
const cli_option *stet__cli_common_options(void);
const char       *stet__cli_dashes(const char *option); /* what stands before its name */

bool        stet__cli_offers(const cli *c, const char *option); /* the verb has it */
bool        stet__cli_has(const cli *c, const char *option);
const char *stet__cli_value(const cli *c, const char *option); /* the last; NULL: not given */
const char *stet__cli_value_at(const cli *c, const char *option, size_t i); /* of a repeated one */
/* The n-th argument behind the verb; NULL: there are fewer. */
const char *stet__cli_arg(const cli *c, size_t i);

/* Values read as what they are. CLI_OK with *out untouched if the option is absent; else CLI_USAGE
 * after saying what was expected. */
int stet__cli_number(cli *c, const char *option, int64_t *out, int64_t least, int64_t most);
int stet__cli_duration(cli *c, const char *option, int64_t *ms);
int stet__cli_time(cli *c, const char *option, int64_t *ms);
int stet__cli_run_id(cli *c, const char *text, stet_run_id *run);
/* Of the option --raw or not: text, "-" for standard input, "@FILE"; NULL is empty. Checked to be
 * JSON if it is not raw. */
int stet__cli_payload(cli *c, const char *text, stet_bytes *out);

/* An address as it may be told: what stands between ':' and '@' behind a "://" is left out. */
const char *stet__cli_shown(cli *c, const char *url);

/* The nearest of `n` names to a mistyped one, or NULL if none is near. `at` gives the names. */
const char *stet__cli_nearest(const char *typed, const char *(*at)(const void *arg, size_t i),
                              const void *arg);

/* ---- app.c: the store ----------------------------------------------------------------------- */

/* Which store is meant, into c->db: --db, STET_DB, the program's own. */
int stet__cli_address(cli *c);
/* Open the store for looking and asking: no handler executes here. */
int stet__cli_open(cli *c);
/* Open it with these options, and register the program's services. */
int stet__cli_open_with(cli *c, const stet_options *options);
/* Open it for what `ask` is about to ask of c->engine. If opening may make the store, an empty one
 * in memory is asked before, so that what is refused leaves nothing behind. */
int stet__cli_open_to(cli *c, cli_ask_fn ask, void *arg);
/* Make sure of the program's schedules. */
int stet__cli_ensure(cli *c);
/* The program's options, then the environment's. */
int stet__cli_options(cli *c, stet_options *options);
/* A command to copy: program, words, and --db if it was given. Arena. */
const char *stet__cli_command(cli *c, const char *words);

/* ---- exit.c: how it ends -------------------------------------------------------------------- */

/* Say what went wrong (and with --json say it again for programs); returns `exit`. */
int stet__cli_fail(cli *c, cli_exit exit, const char *fmt, ...) STET_PRINTF(3, 4);
/* The same for a failed stet call of this thread; returns the exit code that belongs to it. */
int      stet__cli_fail_code(cli *c, int code);
/* … that was about this file. */
int      stet__cli_fail_file(cli *c, int code, const char *path);
/* The store could not be opened: whatever the reason, a database or a password that is wrong is no
 * run that is not there. */
int      stet__cli_fail_open(cli *c, int code);
cli_exit stet__cli_exit_of(int code);
/* Who acts, for the run's journal: --by, else USER, LOGNAME, the name of the process's user, or
 * its number. */
const char *stet__cli_by(cli *c);
/* The end of a verb that acts on one thing: say that it was done, or why not (`err`). */
int stet__cli_done(cli *c, int err, const char *what, const char *id, const char *outcome);
/* A remark on standard error. */
void stet__cli_note(cli *c, const char *fmt, ...) STET_PRINTF(2, 3);
/* If neither a worker nor a run has this handler or service: say so. */
void stet__cli_note_unknown(cli *c, const char *what, const char *behind);
/* If no living worker serves this open run: say so and what to do. */
void stet__cli_note_unserved(cli *c, const stet_run_info *info);

/* ---- text.c: for people --------------------------------------------------------------------- */

/* One line without control characters and broken UTF-8, so that a payload cannot steer a
 * terminal. */
const char *stet__cli_clean(cli *c, stet_bytes text);
size_t      stet__cli_columns(const char *clean); /* how wide it is on a terminal */
const char *stet__cli_cut(cli *c, const char *clean, size_t columns);
/* A payload as text, or "<12 bytes>" if it is none. */
const char *stet__cli_payload_text(cli *c, stet_bytes payload);
bool        stet__cli_is_utf8(stet_bytes text);

const char *stet__cli_relative(cli *c, int64_t then_ms, int64_t now_ms); /* "3 min ago", "in 2 h" */
const char *stet__cli_span(cli *c, int64_t ms);                          /* "1.5 s", "2 h 5 min" */
const char *stet__cli_when(cli *c, int64_t ms, int64_t now_ms); /* "2026-01-01T…Z (3 min ago)" */
/* ISO 8601 ("2026-01-31", "2026-01-31T12:00:00Z", without a zone: local) or milliseconds. */
bool        stet__cli_time_parse(int64_t *ms, const char *text);
const char *stet__cli_printf(cli *c, const char *fmt, ...) STET_PRINTF(2, 3);

typedef enum cli_style { CLI_PLAIN, CLI_DIM, CLI_BOLD, CLI_GOOD, CLI_BAD, CLI_CARE } cli_style;
/* Print with colour if the terminal has it. */
void      stet__cli_paint(const cli *c, cli_style style, const char *text);
cli_style stet__cli_status_style(stet_status status);

/* ---- table.c -------------------------------------------------------------------------------- */

typedef enum cli_cell {
    CLI_CELL_FIXED, /* never cut: IDs */
    CLI_CELL_CUT,   /* cut when the terminal is too narrow */
    CLI_CELL_STATUS /* a status, coloured */
} cli_cell;
typedef struct cli_column {
    const char *title;
    cli_cell    cell;
} cli_column;
#define CLI_COLUMNS_MAX 12
typedef struct cli_table {
    cli              *c;
    const cli_column *columns;
    size_t            n_columns, n_rows;
    stet__buf         cells; /* of const char * */
} cli_table;

void stet__cli_table_begin(cli_table *t, cli *c, const cli_column *columns, size_t n);
/* One text a column; NULL is empty. Copied. */
void stet__cli_table_row(cli_table *t, const char *const *cells);
/* Print and free. Nothing is printed without rows. */
void stet__cli_table_end(cli_table *t);

/* ---- json.c: for programs ------------------------------------------------------------------- */

/* A document being written. Names are NULL inside arrays. */
typedef struct cli_json {
    stet__buf buf;
} cli_json;

void stet__cli_json_begin(cli_json *j, cli *c);
void stet__cli_json_open(cli_json *j, const char *name, char bracket); /* '{' or '[' */
void stet__cli_json_close(cli_json *j, char bracket);
void stet__cli_json_text(cli_json *j, const char *name, const char *text); /* NULL is null */
void stet__cli_json_int(cli_json *j, const char *name, int64_t value);
void stet__cli_json_bool(cli_json *j, const char *name, bool value);
/* The lines of a text as an array of texts. */
void stet__cli_json_lines(cli_json *j, const char *name, const char *lines);
void stet__cli_json_time(cli_json *j, const char *name, int64_t ms); /* 0 is null */
/* JSON as it is, other text as a string, anything else as {"base64":"…"}. */
void stet__cli_json_payload(cli_json *j, const char *name, stet_bytes payload);
void stet__cli_json_end(cli_json *j, FILE *out); /* print as one line and free */

/* ---- bulk.c: the same on one run or on many -------------------------------------------------- */

typedef int (*cli_act_fn)(cli *c, const stet_run_id *run, void *arg); /* a stet code */
/* Without --all: the run in the first argument, which takes no filter; the store is opened. */
int stet__cli_act_one(cli *c, stet_run_id *run);
/* On the run in the first argument, or with --all on those the filter chooses. */
int stet__cli_act(cli *c, cli_act_fn fn, void *arg, const char *outcome);
/* The i-th argument behind RUN, which is not there with --all. */
const char *stet__cli_act_arg(const cli *c, size_t i);
bool        stet__cli_has_bar(const cli *c); /* on a terminal only: elsewhere it would be noise */
void        stet__cli_bar(const char *what, uint64_t done, uint64_t total);
void        stet__cli_bar_end(void);

/* ---- runs.c: what ls, dlq ls and show say of a run ------------------------------------------ */

/* What was not read is left out: a list reads facts only if it has payloads; `worker` and
 * `begun_ms` are of stet_run_get() only. */
void stet__cli_json_run(cli_json *j, const stet_run_info *info);
/* The options that choose runs, for a verb's table. */
/* clang-format off */
#define CLI_WHICH_OPTIONS                                                                          \
    { "handler", "HANDLER", "only of this handler (orders.checkout)" },                            \
    { "service", "SERVICE", "only of this service" },                                              \
    { "key", "KEY", "only of this object key" },                                                   \
    { "label", "NAME=VALUE", "only with this label" },                                             \
    { "text", "TEXT", "only with it in handler, keys, labels, input or error" }
#define CLI_WHEN_OPTIONS                                                                           \
    { "since", "WHEN", "only created since: 2h, or 2030-01-31T12:00:00Z" },                        \
    { "until", "WHEN", "only created until: 2h, or 2030-01-31T12:00:00Z" },                        \
    { "before", "RUN", "the next page: only runs older than this one" }
#define CLI_CHOICE_OPTIONS                                                                         \
    CLI_WHICH_OPTIONS,                                                                             \
    { "waits-for-signal", "NAME", "only those that wait for this signal" },                        \
    { "waits-for-topic", "NAME", "only those that wait for an event on this topic" },              \
    { "look", "N", "with --text, --waits-for-signal: look at so many runs at most (10000)" },      \
    CLI_WHEN_OPTIONS
#define CLI_FILTER_OPTIONS                                                                         \
    CLI_CHOICE_OPTIONS,                                                                            \
    { "limit", "N", "at most so many (50)" }
/* clang-format on */
/* Those of an action on many runs. */
#define CLI_BULK_OPTIONS                                                                           \
    { "all", NULL, "all runs that the options below choose, instead of RUN" },                     \
    { "dry-run", NULL, "with --all: only show which" },                                            \
    { "status", "A,B", "only in these statuses; \"open\" and \"ended\" stand for several" },       \
    { "limit", "N", "with --all: at most so many (all)" },                                         \
    CLI_CHOICE_OPTIONS
/* --since: how long ago (is_relative) or a time; *ms is untouched if it was not given. */
int stet__cli_since(cli *c, int64_t *ms, bool *is_relative);
/* Reads them into a filter, then opens the store. */
int stet__cli_filter_open(cli *c, stet_run_filter *filter);
/* Where the next page begins, if there is one; with --text and the like how far it was looked. */
void stet__cli_note_looked(cli *c, const stet_run_filter *filter);
int stet__cli_statuses(cli *c, uint32_t *statuses); /* --status as bits; 0: any */
/* Copies the fields of a run into the arena, to be used after the callback. */
stet_run_info *stet__cli_run_copy(cli *c, const stet_run_info *info);
/* What a run waits for, in one sentence, after the run was read. */
typedef struct cli_why {
    const char *text, *help, *kind;
} cli_why;
int stet__cli_why_get(cli *c, const stet_run_id *run, cli_why *why);
int stet__cli_run_read(cli *c, const stet_run_id *run, stet_run_info **info);

#endif
