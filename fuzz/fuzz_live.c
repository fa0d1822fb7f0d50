/* Any bytes as the live file beside a database (its slots are where the input says): the store
 * opens, or refuses with a sentence; its clock is sane, sessions open, lists of the dead and crumbs
 * are read. If the input ends with an odd byte the table of sessions is lost, and comes from the
 * slots.
 *
 * The input is laid over the head and the first slots of the file, 256 bytes each. Nobody guesses
 * whose slot it is: a store field that begins with 'S' becomes the database's, a boot field that
 * begins with 'B' that of this start of the machine.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite.h"

static uint8_t fuzz_instance[16];
static char    fuzz_boot[LITE_BOOT_MAX];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_PIECE = 256, FUZZ_SLOTS = 3 };

/* One piece; the fields of a slot that cannot be guessed are filled in. */
static void
fuzz_piece(uint8_t piece[FUZZ_PIECE], const uint8_t *data, size_t len, bool is_slot)
{
    sqlite_slot head;

    memset(piece, 0, FUZZ_PIECE);
    memcpy(piece, data, len);
    if (!is_slot)
        return;
    memcpy(&head, piece, sizeof head);
    if (head.store[0] == 'S')
        memcpy(head.store, fuzz_instance, sizeof head.store);
    if (head.boot[0] == 'B')
        memcpy(head.boot, fuzz_boot, sizeof head.boot);
    memcpy(piece, &head, sizeof head);
}

static void
fuzz_lay(const char *path, const uint8_t *data, size_t size)
{
    uint8_t piece[FUZZ_PIECE];
    int     fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    if (fd < 0)
        abort();
    for (size_t i = 0; i <= FUZZ_SLOTS && i * FUZZ_PIECE < size; i++) {
        size_t left = size - i * FUZZ_PIECE;
        size_t len = left < FUZZ_PIECE ? left : FUZZ_PIECE;

        fuzz_piece(piece, data + i * FUZZ_PIECE, len, i > 0);
        if (i > 0)
            len = FUZZ_PIECE;
        if (pwrite(fd, piece, len, (off_t)(i * LITE_SLOT_BYTES)) != (ssize_t)len)
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

/* The connection stays open, so that closing the store does not empty and flush the log each
 * time. */
static sqlite3 *
fuzz_begin(const char *path)
{
    stet_store *store = NULL;
    sqlite3    *db = NULL;

    if (stet__store_open(&store, stet__platform_real(), path) != STET_OK)
        abort();
    memcpy(fuzz_instance, sqlite_of(store)->instance, sizeof fuzz_instance);
    memcpy(fuzz_boot, sqlite_of(store)->boot, sizeof fuzz_boot);
    if (sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_exec(db, "PRAGMA synchronous=OFF;SELECT count(*) FROM runs", NULL, NULL, NULL) !=
            SQLITE_OK)
        abort();
    stet__store_close(store);
    return db;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char     path[64], live[80];
    static sqlite3 *db;
    stet_store     *store = NULL;

    if (path[0] == '\0') {
        (void)snprintf(path, sizeof path, "fuzz-live-%ld.db", (long)getpid());
        (void)snprintf(live, sizeof live, "%s-live", path);
        db = fuzz_begin(path);
    }
    fuzz_lay(live, data, size);
    /* A file that was refused has its table still missing. */
    if (size > 0 && data[size - 1] % 2 != 0 &&
        sqlite3_exec(db, "DROP TABLE IF EXISTS sessions", NULL, NULL, NULL) != SQLITE_OK)
        abort();
    if (stet__store_open(&store, stet__platform_real(), path) == STET_OK)
        fuzz_use(store);
    else if (store != NULL || stet_last_error()[0] == '\0')
        abort();
    stet__store_close(store);
    return 0;
}
