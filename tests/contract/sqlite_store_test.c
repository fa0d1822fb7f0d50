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

/* ==== only here: rows that are lost =========================================================== */

static void
lose_rows(const char *sql)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open(test_path("contract.db"), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000); /* the thread of the log may be at it */
    CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static int64_t
count_rows(const char *sql)
{
    sqlite3      *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t       n;

    CHECK_INT(sqlite3_open(test_path("contract.db"), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return n;
}

TEST(F2_sqlite_runs_that_have_facts_and_no_row_are_listed_and_restored)
{
    contract c;
    unit     fill = { 0 }, restore = { 0 }, twice = { 0 };
    seen    *lost;

    contract_begin(&c);
    for (uint32_t n = 1; n <= 5; n++)
        put_due(&c, n, "a.one", STET_NEVER);
    for (uint32_t n = 1; n <= 4; n++)
        unit_facts(&fill, n, 1, n, "facts");
    unit_inbox(&fill, 3, "n", 0);
    CHECK_CODE(decide(&c, &fill), STET_OK);
    lose_rows("DELETE FROM runs WHERE id IN (SELECT id FROM runs ORDER BY id LIMIT 3 OFFSET 1)");
    contract_restart(&c);
    lost = see_runs(&c, (stet_run_query){ .is_lost = true });
    CHECK_INT(lost->n, 3);
    CHECK(stet__id_equal(lost->ids[0], contract_id(2)) &&
          stet__id_equal(lost->ids[2], contract_id(4)));
    CHECK_INT(lost->row.journal, 4);
    lost = see_runs(
        &c, (stet_run_query){ .is_lost = true, .before = contract_id(2), .upto = contract_id(3) });
    CHECK_INT(lost->n, 1);
    CHECK_INT(lost->row.journal, 3);
    CHECK_INT(lost->row.inbox, 1);
    CHECK_INT(see_runs(&c, (stet_run_query){ .is_lost = true, .limit = 2 })->n, 2);
    unit_restore(&restore, restored_row(3, 3, 1));
    CHECK_CODE(decide(&c, &restore), STET_OK);
    CHECK_INT(see_run(&c, 3).journal, 3);
    CHECK_INT(see_run(&c, 3).inbox, 1);
    CHECK_INT(see_run(&c, 3).epoch, 3);
    CHECK_INT(see_runs(&c, (stet_run_query){ .is_lost = true })->n, 2);
    unit_restore(&twice, restored_row(2, 3, 0)); /* its facts end at 2 */
    CHECK_CODE(decide(&c, &twice), STET_ECONFLICT);
    contract_end(&c);
}

/* ==== only here: what finds them is lost ====================================================== */

/* Found by the first look, told again by the second, repaired by the third, sound in the fourth. A
 * handle that was open
 * all the time sees it, and one that is opened behind it. */
static void
check_lost(contract *c, const char *sql, int n)
{
    stet_store *other = contract_open(c);

    other->quiet = c->store->quiet;
    CHECK_INT(contract_check(c->store, false), 0);
    lose_rows(sql);
    CHECK_INT(contract_check(c->store, false), n);
    CHECK_INT(contract_check(other, false), n);
    CHECK_INT(contract_check(other, true), n);
    CHECK_INT(contract_check(c->store, false), 0);
    CHECK_INT(contract_check(other, true), 0);
    contract_close(c, other);
}

TEST(F2_sqlite_a_run_that_the_queue_lost_is_found_and_claimed_again)
{
    static const char *const handlers[] = { "a.one" };
    contract                 c;
    unit                     look = { 0 }, end = { 0 };
    uint64_t                 session;
    stet_claimer claimer = { .running_status = RUNNING, .handlers = handlers, .n_handlers = 1 };

    contract_begin(&c);
    c.store->quiet = 1u << SLEEPING;
    session = claimer.session = contract_session(c.store);
    put_due(&c, 1, "a.one", 5);
    put_due(&c, 2, "a.one", STET_NEVER);
    put_claimed(&c, 3, session);
    put_claimed(&c, 4, session);
    unit_release(&end, 3, SLEEPING, STET_NEVER);
    unit_finish(&end, 4);
    CHECK_CODE(decide(&c, &end), STET_OK);
    check_lost(&c, "UPDATE runs SET work=NULL", 2); /* 3 and 4 have none */
    check_lost(&c, "UPDATE runs SET work=0", 3);
    check_lost(&c, "UPDATE runs SET work='lies'", 4);
    CHECK_INT(count_rows("SELECT count(*) FROM runs WHERE work=0"), 1);
    unit_op(&look, (stet_op){ .kind = STET_OP_CLAIM_DUE, .count = 9, .claimer = &claimer });
    CHECK_CODE(decide(&c, &look), STET_OK);
    CHECK_INT(see_run(&c, 1).session, session);
    contract_end(&c);
}

TEST(F2_sqlite_runs_that_lists_lost_are_found_and_listed_again)
{
    static const char *const losses[] = { "DELETE FROM stretches WHERE what='hb.two'",
                                          "DELETE FROM stretches WHERE what LIKE 'h%'",
                                          "DELETE FROM stretches; DELETE FROM stretch_keys",
                                          "DELETE FROM stretch_keys",
                                          "UPDATE stretch_keys SET data=x'', n=0" };
    static const int         n[] = { 5, 10, 10, 5, 5 };
    contract                 c;
    unit                     end = { 0 };

    contract_begin(&c);
    put_ten(&c);
    unit_finish(&end, 5);
    unit_finish(&end, 6);
    CHECK_CODE(decide(&c, &end), STET_OK);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        check_lost(&c, losses[i], n[i]);
        CHECK_INT(see_runs(&c, (stet_run_query){ .handler = "b.two" })->n, 5);
        CHECK_INT(see_runs(&c, (stet_run_query){ .key = "k" })->n, 5);
        CHECK_INT(see_runs(&c, (stet_run_query){ .status_mask = 1u << DONE })->n, 2);
        CHECK_INT(see_runs(&c, (stet_run_query){ .created_from_ms = 1700000000008 })->n, 3);
        CHECK_OK(c.store->ops->maintain(c.store));
    }
    contract_end(&c);
}

/* Runs of several pages, their keys in a lot a commit. */
TEST(F2_sqlite_lost_entries_are_found_in_every_page)
{
    static char keys[700][8];
    contract    c;

    contract_begin(&c);
    for (uint32_t n = 0; n < 700;) {
        unit u = { 0 };

        for (int i = 0; i < 10; i++, n++) {
            stet_run_row row = contract_row(n + 1, "a.one", STET_NEVER);

            (void)snprintf(keys[n], sizeof keys[n], "k%u", n);
            row.key = keys[n];
            row.status = DONE;
            row.is_terminal = 1;
            unit_put(&u, row, NULL);
        }
        CHECK_CODE(decide(&c, &u), STET_OK);
    }
    CHECK_INT(count_rows("SELECT count(*) FROM stretch_keys"), 70);
    check_lost(&c, "DELETE FROM stretch_keys WHERE lot%2", 350);
    lose_rows("DELETE FROM stretches WHERE what LIKE 's%'");
    CHECK_INT(contract_check(c.store, false), 700);
    CHECK(contract_check(c.store, true) >
          690); /* what is repaired for a page may do for the next, too */
    for (int i = 0; i < 700; i += 50)
        CHECK_INT(see_runs(&c, (stet_run_query){ .key = keys[i] })->n, 1);
    contract_end(&c);
}

TEST(F2_sqlite_a_file_that_is_only_read_is_looked_at_and_not_repaired)
{
    contract    c;
    stet_store *s = NULL;
    char        url[512];
    int         told[2] = { 0, 0 };

    contract_begin(&c);
    put_ten(&c);
    lose_rows("DELETE FROM stretches WHERE what='ha.one'");
    (void)snprintf(url, sizeof url, "%s?readonly=1", test_path("contract.db"));
    CHECK_OK(stet__store_open(&s, c.platform, url));
    CHECK_INT(contract_check(s, false), 5);
    CHECK_CODE(s->ops->check(s, true, contract_on_check, told), STET_EREADONLY);
    stet__store_close(s);
    CHECK_INT(contract_check(c.store, true), 5);
    contract_end(&c);
}

/* ==== only here: stretches of time, which files of version 1 have not ========================= */

static const char version_1[] =
    "DROP TABLE stretches; DROP TABLE stretch_keys; PRAGMA user_version=1";

static void
check_ten(contract *c)
{
    seen *v = see_runs(c, (stet_run_query){ .handler = "b.two", .limit = 3 });

    CHECK_INT(v->n, 3);
    check_is(v->ids[0], 10);
    CHECK_INT(see_runs(c, (stet_run_query){ .key = "k" })->n, 5);
    CHECK_INT(see_runs(c, (stet_run_query){ .key = "k2" })->n, 0);
    CHECK_INT(see_runs(c, (stet_run_query){ .status_mask = 1u << DONE })->n, 2);
    CHECK_INT(see_runs(c, (stet_run_query){ .status_mask = 1u << STUCK })->n, 4);
    CHECK_INT(see_runs(c, (stet_run_query){ .created_from_ms = 1700000000008 })->n, 3);
}

TEST(G2_sqlite_a_file_of_version_1_is_brought_up_to_date_and_lists_its_runs)
{
    contract c;
    unit     end = { 0 };

    contract_begin(&c);
    put_ten(&c);
    unit_finish(&end, 5);
    unit_finish(&end, 6);
    CHECK_CODE(decide(&c, &end), STET_OK);
    check_ten(&c);
    lose_rows(version_1);
    contract_restart(&c);
    check_ten(&c);
    CHECK_OK(c.store->ops->maintain(c.store));
    check_ten(&c);
    contract_end(&c);
}

/* A stet of that version that has it open would go on writing runs without them. */
TEST(G2_sqlite_a_file_of_version_1_is_left_alone_while_others_have_it_open)
{
    contract    c;
    stet_store *late = NULL;

    contract_begin(&c);
    put_ten(&c);
    lose_rows(version_1);
    CHECK_CODE(stet__store_open(&late, c.platform, test_path("contract.db")), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "other processes have the file open");
    contract_restart(&c);
    CHECK_INT(see_runs(&c, (stet_run_query){ .handler = "b.two" })->n, 5);
    contract_end(&c);
}

TEST(G2_sqlite_a_file_of_version_1_can_be_listed_while_it_is_only_read)
{
    contract    c;
    stet_store *reader = NULL;
    char        address[512];

    contract_begin(&c);
    put_ten(&c);
    contract_close(&c, c.store);
    lose_rows(version_1);
    (void)snprintf(address, sizeof address, "%s?readonly=1", test_path("contract.db"));
    CHECK_OK(stet__store_open(&reader, c.platform, address));
    c.store = reader;
    CHECK_INT(see_runs(&c, (stet_run_query){ .handler = "b.two" })->n, 5);
    CHECK_INT(see_runs(&c, (stet_run_query){ .status_mask = 1u << STUCK })->n, 5);
    stet__store_close(reader);
    stamp_end(&c);
}

/* What is true no longer is removed, and what is true stays. */
TEST(C8_sqlite_upkeep_forgets_stretches_whose_runs_are_gone)
{
    contract c;
    unit     end = { 0 }, gone = { 0 };

    contract_begin(&c);
    put_ten(&c);
    for (uint32_t i = 1; i <= 10; i++)
        unit_finish(&end, i);
    CHECK_CODE(decide(&c, &end), STET_OK);
    for (uint32_t i = 1; i <= 9; i += 2)
        unit_run_del(&gone, i);
    CHECK_CODE(decide(&c, &gone), STET_OK);
    CHECK_OK(c.store->ops->maintain(c.store));
    CHECK_INT(see_runs(&c, (stet_run_query){ .handler = "b.two" })->n, 5);
    contract_close(&c, c.store);
    CHECK_INT(count_rows("SELECT count(*) FROM stretches WHERE what='ha.one'"), 0);
    CHECK_INT(count_rows("SELECT count(*)>0 FROM stretches WHERE what='hb.two'"), 1);
    CHECK_INT(count_rows("SELECT count(*)>0 FROM stretches WHERE what='s9'"), 1);
    stamp_end(&c);
}

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
