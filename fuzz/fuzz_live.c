/* Any bytes as the live file beside a database (its slots are where the input says): the store
 * opens, or refuses with a sentence; its clock is sane, sessions open, lists of the dead and crumbs
 * are read.
 *
 * The input is laid over the head and the first slots of the file, 256 bytes each.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_PIECE = 256, FUZZ_SLOTS = 3 };

static void
fuzz_lay(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    if (fd < 0)
        abort();
    for (size_t i = 0; i <= FUZZ_SLOTS && i * FUZZ_PIECE < size; i++) {
        size_t left = size - i * FUZZ_PIECE;
        size_t len = left < FUZZ_PIECE ? left : FUZZ_PIECE;

        if (pwrite(fd, data + i * FUZZ_PIECE, len, (off_t)(i * LITE_SLOT_BYTES)) != (ssize_t)len)
            abort();
    }
    if (ftruncate(fd, (off_t)((FUZZ_SLOTS + 1) * LITE_SLOT_BYTES)) != 0)
        abort();
    (void)close(fd);
}

static int
fuzz_on_session(void *arg, const stet_session_row *row)
{
    (void)row;
    ++*(size_t *)arg;
    return 0;
}

static void
fuzz_use(stet_store *s)
{
    uint64_t    session;
    stet_crumb *crumbs = NULL;
    size_t      n = 0;

    if (s->ops->session_open(s, &session, (stet_id){ { 1 } }, 1000, (stet_bytes){ "i", 1 }) !=
        STET_OK)
        abort();
    if (s->ops->crumbs(s, session, 2) == NULL)
        abort();
    (void)s->ops->sessions(s, fuzz_on_session, &n);
    for (uint64_t other = 1; other < 4; other++) {
        if (s->ops->crumbs_of(s, other, &crumbs, &n) == STET_OK)
            stet__free(s->alloc, crumbs);
    }
    if (s->ops->session_close(s, session) != STET_OK)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64], live[80];
    stet_store *store = NULL;

    if (path[0] == '\0') {
        (void)snprintf(path, sizeof path, "fuzz-live-%ld.db", (long)getpid());
        (void)snprintf(live, sizeof live, "%s-live", path);
    }
    fuzz_lay(live, data, size);
    if (stet__store_open(&store, stet__platform_real(), path) == STET_OK)
        fuzz_use(store);
    else if (store != NULL || stet_last_error()[0] == '\0')
        abort();
    stet__store_close(store);
    return 0;
}
