/* Hunting planted bugs: `stet-mutants [--seeds N] [--crash DIRECTORY] [NAME …]`.
 *
 * For each mutant of src/util/mutant.h, or those named: the standard seeds of the simulator, 1 to
 * N (2000), until one fails; if none does, the crash programs in DIRECTORY, until one fails. Those
 * of a store on a server (postgres_…, redis_…) are hunted by crash everywhere on that server and by
 * that store's own programs instead. Last come tests that show one thing each. First all seeds
 * without any mutant: what fails then is no catch. Prints what found which and of what kind that
 * is, and fails if one survived.
 *
 * Each hunt is a process of its own: a mutant may crash it, or never come to an end.
 */
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fleet/fleet.h"
#include "util/mutant.h"

enum {
    HUNT_SEED_S = 60, /* as long as the tests give a quarter of all seeds */
    HUNT_TEXT = 200,
    HUNT_RANKS = 6
};

/* What found one. "Other" are tests that show what it breaks, and contracts of stores. */
typedef enum hunt_kind { HUNT_SEED, HUNT_CRASH, HUNT_CUT, HUNT_OTHER, HUNT_KINDS } hunt_kind;

static const char *const hunt_kinds[HUNT_KINDS] = { "seed", "crash", "cut", "other" };

typedef struct hunt {
    uint64_t           seeds;
    const char        *crash; /* a directory, or NULL */
    volatile uint64_t *seed;  /* the one that is lived now; shared with the process that does */
    uint64_t           done;  /* seeds of this mutant */
    hunt_kind          kind;
    int                found[HUNT_KINDS];
    char               by[64];
    char               what[HUNT_TEXT];
} hunt;

static const char *const hunt_names[STET__MUTANTS] = { "none",
#define HUNT_NAME(name, text) #name,
                                                       STET__MUTANT_LIST(HUNT_NAME)
#undef HUNT_NAME
};

static const char *const hunt_texts[STET__MUTANTS] = { "the code as it is",
#define HUNT_DESCRIPTION(name, text) text,
                                                       STET__MUTANT_LIST(HUNT_DESCRIPTION)
#undef HUNT_DESCRIPTION
};

static double
hunt_now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a process ------------------------------------------------------------------------------- */

/* The process of a hunt: what it says goes to the file. */
static pid_t
hunt_fork(int log)
{
    pid_t pid;

    fflush(stdout);
    if ((pid = fork()) < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0 && (dup2(log, 1) < 0 || dup2(log, 2) < 0))
        _exit(2);
    return pid;
}

static int
hunt_wait(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        ;
    return status;
}

/* The first line that begins with, or has in it, what is looked for; without its beginning. */
static bool
hunt_line(FILE *log, const char *wanted, char *out)
{
    char line[1024];

    rewind(log);
    while (fgets(line, sizeof line, log) != NULL) {
        const char *at = strstr(line, wanted);

        if (at == NULL)
            continue;
        (void)snprintf(out, HUNT_TEXT, "%s", at + strlen(wanted));
        out[strcspn(out, "\n")] = '\0';
        return true;
    }
    return false;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void
hunt_live(const hunt *h, int mutant)
{
    fleet_options options = { .seed = 1 };

    stet__mutant = (stet__mutant_name)mutant;
    (void)setvbuf(stderr, NULL, _IOFBF, 1 << 16); /* the story is flushed when it is told */
    for (; options.seed <= h->seeds; options.seed++) {
        *h->seed = options.seed;
        (void)alarm(HUNT_SEED_S);
        if (!fleet_seed(&options, NULL, NULL))
            _exit(1);
    }
    _exit(0);
}

/* True: found. */
static bool
hunt_seeds(hunt *h, int mutant)
{
    FILE *log = tmpfile();
    pid_t pid;
    int   status;
    bool  is_found;

    if (log == NULL) {
        perror("tmpfile");
        exit(2);
    }
    *h->seed = 0;
    if ((pid = hunt_fork(fileno(log))) == 0)
        hunt_live(h, mutant);
    status = hunt_wait(pid);
    is_found = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    h->done = *h->seed;
    (void)snprintf(h->by, sizeof h->by, "seed %" PRIu64, h->done);
    h->kind = HUNT_SEED;
    if (is_found && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        (void)snprintf(h->what, sizeof h->what, "no end after %d s", HUNT_SEED_S);
    else if (is_found && !hunt_line(log, " failed: ", h->what) &&
             !hunt_line(log, "Assertion ", h->what))
        (void)snprintf(h->what, sizeof h->what, "signal %d",
                       WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    (void)fclose(log);
    return is_found;
}

/* ---- crash everywhere ------------------------------------------------------------------------ */

/* The server whose store has the mutant, or NULL. */
static const char *
hunt_server(int mutant)
{
    static const char *const servers[] = { "postgres", "redis" };

    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++)
        if (strncmp(hunt_names[mutant], servers[i], strlen(servers[i])) == 0)
            return servers[i];
    return NULL;
}

static hunt_kind
hunt_kind_of(const char *program)
{
    const char *name = strrchr(program, '/') + 1;

    return strncmp(name, "crash_", 6) == 0                                   ? HUNT_CRASH
           : strstr(name, "_cut_") != NULL || strstr(name, "_lost_") != NULL ? HUNT_CUT
                                                                             : HUNT_OTHER;
}

/* Until the first test that fails; then the runner is asked to end, and ends what it has begun. */
static bool
hunt_program(hunt *h, int mutant, char *program)
{
    char *const argv[] = { program, NULL };
    const char *server = hunt_server(mutant);
    int         ends[2], status;
    char        line[1024];
    FILE       *log;
    pid_t       pid;

    if (pipe(ends) != 0 || (log = fdopen(ends[0], "r")) == NULL) {
        perror("pipe");
        exit(2);
    }
    if ((pid = hunt_fork(ends[1])) == 0) {
        (void)setenv("STET_MUTANT", hunt_names[mutant], 1);
        if (server != NULL)
            (void)setenv("STET_TEST_STORE", server, 1);
        (void)execv(program, argv);
        _exit(2);
    }
    (void)close(ends[1]);
    h->what[0] = '\0';
    while (fgets(line, sizeof line, log) != NULL)
        if (strncmp(line, "not ok ", 7) == 0 && h->what[0] == '\0') {
            (void)snprintf(h->what, sizeof h->what, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
            (void)kill(pid, SIGTERM);
        }
    status = hunt_wait(pid);
    (void)fclose(log);
    (void)snprintf(h->by, sizeof h->by, "%s", strrchr(program, '/') + 1);
    h->kind = hunt_kind_of(program);
    if (status != 0 && h->what[0] == '\0')
        (void)snprintf(h->what, sizeof h->what, "it did not end well");
    return h->what[0] != '\0';
}

static bool
hunt_is_file(int mutant)
{
    return strncmp(hunt_names[mutant], "file_", 5) == 0;
}

/* What finds a bug of a store in seconds comes first: workers that stand still a missing fence,
 * lost replies a repeat, cuts what a server's answer was taken for, a power cut and its contract
 * that a file is not what it should be. Those that take minutes come last, but for those about
 * files when the store in a file has the bug; and behind all of them the tests that show one thing
 * each, or the table would hide whether crash everywhere finds it. */
static int
hunt_rank(const char *program, int mutant)
{
    const char *name = hunt_names[mutant], *base = strrchr(program, '/') + 1;
    bool        is_file = hunt_is_file(mutant), is_store = is_file || hunt_server(mutant) != NULL;

    switch (hunt_kind_of(program)) {
    case HUNT_CUT: return 1;
    case HUNT_OTHER: return is_file && strncmp(base, "contract", 8) == 0 ? 2 : HUNT_RANKS - 1;
    default: break;
    }
    if (strstr(program, "crash_stopped") != NULL)
        return is_store && strstr(name, "fence") != NULL ? 0 : 3;
    if (strstr(program, "crash_processes") != NULL)
        return is_file && strstr(name, "repeat") != NULL ? 0 : 2;
    if (strstr(program, "crash_power") != NULL)
        return is_file ? 1 : 3;
    if (strstr(program, "crash_pairs") != NULL)
        return is_file ? 4 : 1;
    return strstr(program, "crash_kill") != NULL ? 4 : 3;
}

static bool
hunt_crashes(hunt *h, int mutant)
{
    const char *server = hunt_server(mutant);
    glob_t      programs;
    char        pattern[1024];
    bool        is_found = false;

    if (h->crash == NULL)
        return false;
    if (server == NULL)
        (void)snprintf(pattern, sizeof pattern,
                       "%s/{crash_*,%s,engine_{clock,signal,note,topic,rollback,boundary,operate,"
                       "letters,update,review,schedule,found,audit,classify,risk}}_test",
                       h->crash, hunt_is_file(mutant) ? "contract_sqlite_store" : "unit_run");
    else
        (void)snprintf(pattern, sizeof pattern,
                       "%s/{*_%s_{store,lost,cut},crash_stopped,crash_processes}_test", h->crash,
                       server);
    if (glob(pattern, GLOB_BRACE, NULL, &programs) != 0) {
        fprintf(stderr, "no programs for %s in %s\n", hunt_names[mutant], h->crash);
        exit(2);
    }
    for (int rank = 0; rank < HUNT_RANKS; rank++)
        for (size_t i = 0; i < programs.gl_pathc && !is_found; i++)
            if (hunt_rank(programs.gl_pathv[i], mutant) == rank)
                is_found = hunt_program(h, mutant, programs.gl_pathv[i]);
    globfree(&programs);
    return is_found;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int
hunt_one(hunt *h, int mutant)
{
    double start_s = hunt_now_s();
    bool has_seeds = hunt_server(mutant) == NULL && !hunt_is_file(mutant); /* theirs is in memory */
    bool is_found = (has_seeds && hunt_seeds(h, mutant)) || hunt_crashes(h, mutant);

    if (is_found)
        printf("%-23s %-5s %-26s %6.1f s  %s\n%57s %s\n", hunt_names[mutant], hunt_kinds[h->kind],
               h->by, hunt_now_s() - start_s, hunt_texts[mutant], "found:", h->what);
    else
        printf("%-23s %-5s %-26s %6.1f s  %s\n", hunt_names[mutant], "-", "SURVIVED",
               hunt_now_s() - start_s, hunt_texts[mutant]);
    h->found[h->kind] += is_found;
    return is_found ? 1 : 0;
}

static int
hunt_named(const char *name)
{
    for (int i = 1; i < STET__MUTANTS; i++)
        if (strcmp(name, hunt_names[i]) == 0)
            return i;
    fprintf(stderr, "there is no mutant \"%s\"\n", name);
    exit(2);
}

static bool
hunt_control(hunt *h)
{
    double start_s = hunt_now_s();

    if (hunt_seeds(h, 0)) {
        printf("without any mutant %s fails: %s\n", h->by, h->what);
        return false;
    }
    printf("without any mutant %" PRIu64 " seeds hold, in %.1f s\n", h->done,
           hunt_now_s() - start_s);
    return true;
}

int
main(int argc, char **argv)
{
    hunt h = { .seeds = 2000 };
    int  chosen[STET__MUTANTS], n = 0, found = 0;

    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* it takes long: a file shows how far it is */
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            h.seeds = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--crash") == 0 && i + 1 < argc)
            h.crash = argv[++i];
        else if (n < STET__MUTANTS)
            chosen[n++] = hunt_named(argv[i]);
    h.seed = mmap(NULL, sizeof *h.seed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h.seed == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    if (n == 0) {
        if (!hunt_control(&h))
            return 1;
        for (n = 0; n < STET__MUTANTS - 1; n++)
            chosen[n] = n + 1;
    }
    for (int i = 0; i < n; i++)
        found += hunt_one(&h, chosen[i]);
    printf("%d of %d mutants found: %d by seeds, %d by crash everywhere, %d by cuts and lost "
           "replies of a server, %d by other tests\n",
           found, n, h.found[HUNT_SEED], h.found[HUNT_CRASH], h.found[HUNT_CUT],
           h.found[HUNT_OTHER]);
    return found < n;
}
