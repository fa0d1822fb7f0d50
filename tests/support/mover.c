/* See mover.h. */
#include "mover.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/move.h"
#include "fixture.h"

static void
mover_crash(void *arg)
{
    (void)arg;
    _exit(MOVER_CRASHED);
}

int
mover_until(const char *from, const char *to, shim_mode mode, shim_which which, uint64_t at,
            size_t unit_bytes)
{
    shim_script script = { .mode = mode, .which = which, .at = at, .crash = mover_crash };
    stet_store *source = NULL, *target = NULL;
    int         status, err;
    pid_t       child = fork();

    CHECK(child >= 0);
    if (child > 0) {
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        return WEXITSTATUS(status);
    }
    if (stet__store_open(&source, stet__platform_real(), from) != STET_OK ||
        stet__store_open(&target, stet__platform_real(), to) != STET_OK ||
        stet__shim_store_new(&source, source, &script) != STET_OK ||
        stet__shim_store_new(&target, target, &script) != STET_OK)
        _exit(99);
    err = stet__move_on(NULL, stet__platform_real(), source, from, target, to,
                        STET_MOVE(.unit_bytes = unit_bytes));
    if (!script.is_hit && err != STET_OK)
        (void)fprintf(stderr, "%s\n", stet_last_error());
    _exit(!script.is_hit ? (err == STET_OK ? 0 : 98)
          : err == STET_OK ? MOVER_CRASHED
                           : MOVER_REFUSED);
}

void
mover_has_one_owner(const char *from, const char *to)
{
    const char *urls[] = { from, to };
    int         n = 0;

    for (int i = 0; i < 2; i++) {
        stet_engine *e = NULL;
        stet__stop   stop;
        int          err = stet_open(&e, urls[i], STET_OPTIONS(.log_level = STET_LOG_OFF));

        if (err == STET_OK)
            err = stet__stop_check(e, &stop);
        CHECK(err == STET_OK || err == STET_EMOVED);
        /* An empty one is nobody's: it has nothing that could be executed twice. */
        n += err == STET_OK && fixture_count(e, NULL) > 0;
        stet_close(e);
    }
    CHECK(n <= 1);
}
