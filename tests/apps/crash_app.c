/* The worker the crash tests kill: crash_app STORE LEDGER [NAME=VALUE …], until SIGTERM.
 *
 * Every execution of a body is one line in LEDGER, "RUN STEP NONCE", written before anything else
 * happens; the nonce is the body's result. LEDGER.open lets the bodies of load.hold go on,
 * LEDGER.safe keeps those of load.bomb from killing the process. NAME=VALUE are the engine's
 * settings.
 */
#include <stet.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *path;
    int         fd;
    atomic_uint entries;
} ledger;

static int
enter(stet_attempt *a, const char *step)
{
    char nonce[64], line[256];
    int  len;

    (void)snprintf(nonce, sizeof nonce, "%d.%u", (int)getpid(),
                   atomic_fetch_add(&ledger.entries, 1));
    len = snprintf(line, sizeof line, "%s %s %s\n", stet_attempt_run(a), step, nonce);
    if (write(ledger.fd, line, (size_t)len) != len)
        abort();
    return stet_attempt_return(a, stet_text(nonce));
}

static bool
is_there(const char *suffix)
{
    char path[1024];

    (void)snprintf(path, sizeof path, "%s.%s", ledger.path, suffix);
    return access(path, F_OK) == 0;
}

/* The work takes a moment, so that deaths happen inside it. */
static int
work(stet_attempt *a, void *step)
{
    int err = enter(a, step);

    (void)poll(NULL, 0, 4);
    return err;
}

static int
hold_body(stet_attempt *a, void *step)
{
    int err = enter(a, step);

    for (int i = 0; i < 24000 && !is_there("open"); i++)
        (void)poll(NULL, 0, 5);
    return err;
}

static int
bomb_body(stet_attempt *a, void *step)
{
    int err = enter(a, step);

    if (!is_there("safe"))
        (void)kill(getpid(), SIGKILL);
    return err;
}

static int
step(stet_ctx *ctx, const char *name, stet_body_fn body)
{
    return stet_step(ctx, NULL, name, body, (void *)(uintptr_t)name, NULL);
}

static int
leaf(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(step(ctx, "leaf", work));
    return stet_return(ctx, input);
}

static int
flow(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes answer;

    STET_TRY(step(ctx, "one", work));
    STET_TRY(stet_sleep_ms(ctx, "nap", 3));
    STET_TRY(step(ctx, "two", work));
    STET_TRY(stet_call(ctx, &answer, "load.leaf", input, NULL));
    STET_TRY(step(ctx, "three", work));
    return stet_return(ctx, answer);
}

static int
hold(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(step(ctx, "hold", hold_body));
    STET_TRY(step(ctx, "held", work));
    return stet_return(ctx, input);
}

static int
bomb(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(step(ctx, "fuse", bomb_body));
    return stet_return(ctx, input);
}

static int
add(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;
    char      *text;

    (void)input;
    STET_TRY(stet_state_get(ctx, &value, "n"));
    text = stet_ctx_printf(ctx, "%d",
                           (value.data != NULL ? (int)strtol(value.data, NULL, 10) : 0) + 1);
    STET_TRY(step(ctx, "add", work));
    STET_TRY(stet_state_set(ctx, "n", stet_text(text)));
    return stet_return(ctx, stet_text(text));
}

static void
must(int code, const char *what)
{
    if (code == STET_OK)
        return;
    (void)fprintf(stderr, "%s: %s: %s\n", what, stet_code_name(code), stet_last_error());
    exit(1);
}

static void
settings(stet_options *options, char **argv)
{
    char name[64];

    for (; *argv != NULL; argv++) {
        const char *is = strchr(*argv, '=');

        if (is == NULL || (size_t)(is - *argv) >= sizeof name)
            exit(2);
        memcpy(name, *argv, (size_t)(is - *argv));
        name[is - *argv] = '\0';
        must(stet_options_set(options, name, is + 1), *argv);
    }
}

int
main(int argc, char **argv)
{
    static const stet_handler load[] = {
        { "flow", flow, NULL },
        { "leaf", leaf, NULL },
        { "hold", hold, NULL },
        { "bomb", bomb, NULL },
        { 0 },
    };
    static const stet_handler counter[] = { { "add", add, NULL }, { 0 } };
    stet_options options;
    stet_engine *e;
    sigset_t     end;
    int          got;

    if (argc < 3)
        return 2;
    ledger.path = argv[2];
    if ((ledger.fd = open(argv[2], O_WRONLY | O_APPEND | O_CREAT, 0600)) < 0)
        return 2;
    (void)sigemptyset(&end);
    (void)sigaddset(&end, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &end, NULL);
    stet_options_init(&options);
    settings(&options, argv + 3);
    must(stet_open(&e, argv[1], &options), "open");
    must(stet_register(e, "load", load), "register");
    must(stet_register_object(e, "counter", counter, NULL), "register");
    must(stet_engine_start(e), "start");
    (void)sigwait(&end, &got);
    stet_close(e);
    return 0;
}
