/* A file that is opened to be read (readonly=1): what can be read is what workers wrote, all that
 * writes is refused, and neither the file nor its directory has changed. */
#include <dirent.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/sqlite.h"
#include "test.h"

static int
open_code(stet_store **s, const char *name, const char *options)
{
    char address[1024];

    snprintf(address, sizeof address, "%s?readonly=1%s", test_path(name), options);
    *s = NULL;
    return stet__store_open(s, stet__platform_real(), address);
}

static void
make(const char *name)
{
    stet_store *s;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), test_path(name)));
    stet__store_close(s);
}

static void
shell_sql(const char *name, const char *sql)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open(test_path(name), &db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static int
count_session(void *arg, const stet_session_row *row)
{
    CHECK(!row->is_dead);
    ++*(int *)arg;
    return STET_OK;
}

TEST(I3_reading_sees_what_others_write_meanwhile)
{
    stet_store *writer, *reader;
    uint64_t    session;
    int         n = 0;

    make("shop.db");
    CHECK_OK(open_code(&reader, "shop.db", ""));
    CHECK_OK(stet__store_open(&writer, stet__platform_real(), test_path("shop.db")));
    CHECK_OK(reader->ops->sessions(reader, count_session, &n));
    CHECK_INT(n, 0);
    CHECK_OK(
        writer->ops->session_open(writer, &session, (stet_id){ { 1 } }, 60000, stet_text("x")));
    CHECK_OK(reader->ops->sessions(reader, count_session, &n));
    CHECK_INT(n, 1);
    CHECK_OK(reader->ops->ping(reader));
    stet__store_close(writer);
    stet__store_close(reader);
}

TEST(I3_all_that_writes_is_refused)
{
    stet_store  *s;
    stet_unit    unit = { 0 };
    stet_outcome outcome;
    stet_crumb  *crumbs;
    uint64_t     session = 9;
    size_t       n = 9;

    make("shop.db");
    CHECK_OK(open_code(&s, "shop.db", ""));
    CHECK_CODE(s->ops->commit(s, &unit, 1, &outcome), STET_EREADONLY);
    CHECK_CODE(s->ops->session_open(s, &session, (stet_id){ { 1 } }, 60000, stet_text("")),
               STET_EREADONLY);
    CHECK_INT(session, 0);
    CHECK_CODE(s->ops->session_renew(s, 1, 60000), STET_EREADONLY);
    CHECK_CODE(s->ops->session_close(s, 1), STET_EREADONLY);
    CHECK(s->ops->crumbs(s, 1, 4) == NULL);
    CHECK_CODE(s->ops->crumbs_of(s, 1, &crumbs, &n), STET_ENOTFOUND);
    CHECK_INT(n, 0);
    CHECK_CODE(s->ops->apply_in(s, (stet_conn){ 0 }, &unit, &outcome), STET_EREADONLY);
    CHECK(s->ops->tx_begin == NULL && s->ops->watch == NULL && s->ops->hint == NULL);
    CHECK_OK(s->ops->reopen(s));
    CHECK_OK(s->ops->maintain(s));
    stet__store_close(s);
}

TEST(I3_a_file_that_is_not_there_is_not_made)
{
    stet_store *s;

    CHECK_CODE(open_code(&s, "nothing.db", ""), STET_EIO);
    CHECK(access(test_path("nothing.db"), F_OK) != 0);
}

TEST(I3_what_is_no_whole_store_is_refused)
{
    stet_store *s;

    shell_sql("other.db", "CREATE TABLE mine(a)");
    CHECK_CODE(open_code(&s, "other.db", ""), STET_ENOTDB);
    make("shop.db");
    CHECK_CODE(open_code(&s, "shop.db", "&prefix=north"), STET_ENOTDB);
    CHECK_HAS(stet_last_error(), "prefix");
    shell_sql("shop.db", "DROP TABLE timers");
    CHECK_CODE(open_code(&s, "shop.db", ""), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "timers");
    CHECK_CODE(open_code(&s, "shop.db", ""), STET_ECORRUPT); /* nor was it made again */
}

/* Root may write everywhere, so that right is given away for a while. */
static void
mind_permissions(bool on)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct   data[2];
    const uint32_t                  bits = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;

    CHECK_INT(syscall(SYS_capget, &header, data), 0);
    data[0].effective =
        on ? data[0].effective & ~bits : data[0].effective | (data[0].permitted & bits);
    CHECK_INT(syscall(SYS_capset, &header, data), 0);
}

TEST(I3_a_directory_that_cannot_be_written_is_read_beside_a_worker)
{
    stet_store *writer, *reader;

    CHECK_INT(mkdir(test_path("d"), 0755), 0);
    make("d/shop.db");
    CHECK_INT(chmod(test_path("d"), 0555), 0);
    mind_permissions(true);
    CHECK_CODE(open_code(&reader, "d/shop.db", ""), STET_EREADONLY);
    CHECK_HAS(stet_last_error(), "shop.db-shm");
    CHECK_HAS(stet_last_error(), "while a worker runs");
    mind_permissions(false);
    CHECK_INT(chmod(test_path("d"), 0755), 0);
    CHECK_OK(stet__store_open(&writer, stet__platform_real(), test_path("d/shop.db")));
    CHECK_INT(chmod(test_path("d"), 0555), 0);
    mind_permissions(true);
    CHECK_OK(open_code(&reader, "d/shop.db", ""));
    CHECK_OK(reader->ops->ping(reader));
    stet__store_close(reader);
    mind_permissions(false);
    CHECK_INT(chmod(test_path("d"), 0755), 0);
    stet__store_close(writer);
}

/* Not the live file: whoever holds that open is alive. */
TEST(I3_nothing_is_made_beside_it_but_by_sqlite_itself)
{
    stet_store    *s;
    DIR           *dir;
    struct dirent *entry;

    make("shop.db");
    CHECK(unlink(test_path("shop.db-live")) == 0);
    CHECK_OK(open_code(&s, "shop.db", ""));
    CHECK_OK(s->ops->ping(s));
    stet__store_close(s);
    CHECK((dir = opendir(test_dir())) != NULL);
    while ((entry = readdir(dir)) != NULL)
        CHECK(entry->d_name[0] == '.' || strcmp(entry->d_name, "shop.db") == 0 ||
              strcmp(entry->d_name, "shop.db-wal") == 0 ||
              strcmp(entry->d_name, "shop.db-shm") == 0);
    closedir(dir);
}
