/* Running the real programs as their users do: on a fresh file in the test's directory, with a known
 * environment; what they print on both outputs, and how they end. Texts live until the test ends.
 */
#ifndef STET_COMMAND_H
#define STET_COMMAND_H

#include <stdio.h>
#include <sys/types.h>

#include "test.h"

typedef struct outcome {
    int   exit; /* or 1000 + signal */
    char *out, *err;
} outcome;

/* "stet" or a program of tests/apps; both lie beside the tests. */
const char *program(const char *name);
char       *keep(const char *text, size_t len);
char       *slurp(const char *path);
void        spill(const char *name, const char *text); /* into the test's directory */
/* In the child: become the program, in the test's directory, with a known environment. */
_Noreturn void become(const char *name, const char *const *args);
int            ended(pid_t pid);
void           redirect(int fd, const char *path, int flags); /* in the child */
outcome        run_program(const char *name, const char *input, const char *const *args);

#define ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define RUN(...)  run_program("cli_app", NULL, ARGS(__VA_ARGS__))
#define STET(...) run_program("stet", NULL, ARGS(__VA_ARGS__))

outcome check_exit(const char *file, int line, outcome o, int want);
#define CHECK_EXIT(o, want) check_exit(__FILE__, __LINE__, o, want)
#define OK(...)             CHECK_EXIT(RUN(__VA_ARGS__), 0)

/* Every line is a JSON value; returns how many. */
size_t json_lines(const char *text);
/* The first word that begins with this, up to a quote, space or line end. */
const char *word(const char *text, const char *begins);
#define START(...) word(OK("start", __VA_ARGS__).out, "run_")

/* A worker of cli_app, until there is nothing to do. */
void drain(void);

typedef struct worker {
    pid_t pid;
    FILE *out; /* both outputs */
    char  ready[1024];
} worker;
/* Reads the worker's lines up to one with this text. */
const char *worker_line(worker *w, const char *text);
/* Starts a worker of cli_app and waits for its line. */
worker worker_start(const char *const *args);
int    worker_stop(worker *w, int signal_number);

#endif
