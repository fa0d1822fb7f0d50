/* The store contract on the SQLite store: one file in the test's directory. */
#include "store_contract.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite.h"

#define STORE_PREFIX G2_sqlite

static void
stamp_begin(contract *c)
{
    c->data = NULL;
}

static stet_store *
stamp_open(contract *c)
{
    stet_store *store;

    CHECK_OK(stet__store_open(&store, c->platform, test_path("contract.db")));
    stet__sqlite_test_advance(store, c->advanced_ms);
    return store;
}

static void
stamp_advance(contract *c, int64_t ms)
{
    for (size_t i = 0; i < CONTRACT_HANDLES; i++)
        if (c->handles[i] != NULL)
            stet__sqlite_test_advance(c->handles[i], ms);
}

static void
stamp_end(contract *c)
{
    (void)c;
}

#include "store_suite.inc"

/* ==== only here: the live file ================================================================ */

static off_t
live_file_stamp(const char *magic)
{
    struct stat info;
    int         fd = open(test_path("contract.db-live"), O_RDWR);

    CHECK(fd >= 0);
    CHECK_INT(fstat(fd, &info), 0);
    CHECK_INT(pwrite(fd, magic, 8, 0), 8);
    close(fd);
    return info.st_size;
}

TEST(G2_sqlite_a_live_file_of_another_version_is_made_anew)
{
    contract    c;
    stet_store *late = NULL;

    contract_begin(&c);
    put_claimed(&c, 1, contract_session(c.store));
    CHECK(live_file_stamp("stetliv1") > LITE_SLOT_BYTES);
    /* In use: the other version could not follow. */
    CHECK_CODE(stet__store_open(&late, c.platform, test_path("contract.db")), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "another version");
    contract_restart(&c);
    CHECK(live_file_stamp("stetliv3") < LITE_SLOT_BYTES);
    CHECK_INT(see_run(&c, 1).session, 1);
    CHECK(c.store->ops->crumbs(c.store, contract_session(c.store), 3) != NULL);
    contract_end(&c);
}

TEST(G2_sqlite_room_is_taken_for_the_crumbs_asked_for)
{
    contract    c;
    struct stat info;
    uint64_t    session;

    contract_begin(&c);
    session = contract_session(c.store);
    CHECK(c.store->ops->crumbs(c.store, session, 8) != NULL);
    CHECK_INT(stat(test_path("contract.db-live"), &info), 0);
    CHECK_INT(info.st_size, 2 * LITE_SLOT_BYTES);
    CHECK(info.st_blocks * 512 < LITE_SLOT_BYTES / 2);
    contract_end(&c);
}
