/* Crumbs in files of this machine (store/crumbs.c), which the stores on servers use: where they
 * are, what is not believed, and when they go. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <stet.h>

#include "store/crumbs.h"
#include "test.h"

static const uint8_t here[16] = { 1, 2, 3 };
static const uint8_t elsewhere[16] = { 9 };

/* The file of a session of `here`. */
static const char *
crumbs_name(uint64_t session)
{
    static char path[640];

    (void)snprintf(path, sizeof path, "%s/stet-%ld/01020300000000000000000000000000-%llu",
                   getenv("TMPDIR"), (long)getuid(), (unsigned long long)session);
    return path;
}

static int
load(uint64_t session, size_t *n)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;
    stet_crumb  *crumbs;
    int          err = stet__crumbs_load(alloc, here, session, &crumbs, n);

    CHECK((crumbs != NULL) == (err == STET_OK));
    stet__free(alloc, crumbs);
    return err;
}

TEST(I9_crumbs_are_found_by_who_takes_over)
{
    void       *map = NULL;
    stet_crumb *crumbs;
    size_t      n;

    CHECK_INT(setenv("TMPDIR", test_dir(), 1), 0);
    CHECK((crumbs = stet__crumbs_map(here, 7, 3, &map)) != NULL);
    crumbs[2].is_busy = 1;
    CHECK_OK(load(7, &n));
    CHECK_INT(n, 3);
    /* More room in the same place, and all of it empty. */
    CHECK(stet__crumbs_map(here, 7, 5, &map) == crumbs);
    CHECK_INT(crumbs[2].is_busy, 0);
    CHECK_OK(load(7, &n));
    CHECK_INT(n, 5);
    stet__crumbs_unmap(here, 7, &map, false);
    CHECK_OK(load(7, &n));
    stet__crumbs_unmap(here, 7, &map, true); /* twice is fine */
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
}

TEST(I9_there_is_room_for_a_sensible_number_of_crumbs_only)
{
    void *map = NULL;

    CHECK_INT(setenv("TMPDIR", test_dir(), 1), 0);
    CHECK(stet__crumbs_map(here, 7, 0, &map) == NULL);
    CHECK_HAS(stet_last_error(), "room for 1 to");
    CHECK(stet__crumbs_map(here, 7, STET_CRUMBS_MAX + 1, &map) == NULL);
    CHECK(stet__crumbs_map(here, 7, STET_CRUMBS_MAX, &map) != NULL);
    stet__crumbs_unmap(here, 7, &map, true);
}

TEST(I9_without_a_safe_directory_there_are_no_crumbs)
{
    char  dir[512], far[1024];
    void *map = NULL;
    size_t n;
    int   fd;

    (void)snprintf(dir, sizeof dir, "%s/stet-%ld", test_dir(), (long)getuid());
    CHECK_INT(setenv("TMPDIR", test_dir(), 1), 0);
    /* Others can write there. */
    CHECK(mkdir(dir, 0700) == 0 && chmod(dir, 0777) == 0);
    CHECK(stet__crumbs_map(here, 7, 1, &map) == NULL);
    CHECK_HAS(stet_last_error(), "TMPDIR");
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
    stet__crumbs_sweep(here, NULL, 0, 0);
    /* It is no directory. */
    CHECK_INT(rmdir(dir), 0);
    CHECK((fd = open(dir, O_CREAT | O_WRONLY, 0600)) >= 0);
    close(fd);
    CHECK(stet__crumbs_map(here, 7, 1, &map) == NULL);
    CHECK_INT(unlink(dir), 0);
    /* It is a link. */
    CHECK_INT(symlink("/tmp", dir), 0);
    CHECK(stet__crumbs_map(here, 7, 1, &map) == NULL);
    CHECK_INT(unlink(dir), 0);
    /* There is none, and its name is too long. */
    CHECK_INT(setenv("TMPDIR", "/nowhere/at/all", 1), 0);
    CHECK(stet__crumbs_map(here, 7, 1, &map) == NULL);
    memset(far, 'x', sizeof far);
    far[0] = '/';
    far[sizeof far - 1] = '\0';
    CHECK_INT(setenv("TMPDIR", far, 1), 0);
    CHECK(stet__crumbs_map(here, 7, 1, &map) == NULL);
    /* A file that is in the way. */
    CHECK_INT(setenv("TMPDIR", test_dir(), 1), 0);
    CHECK(mkdir(dir, 0700) == 0 && mkdir(crumbs_name(7), 0700) == 0);
    CHECK(stet__crumbs_map(here, 7, 1, &map) == NULL);
    CHECK_HAS(stet_last_error(), "directory");
    CHECK(map == NULL);
}

TEST(I9_the_usual_place_is_used_where_none_is_named)
{
    static const uint8_t own[16] = { 0xfe, 0xdc };
    uint64_t             session = (uint64_t)getpid();
    void                *map = NULL;

    CHECK_INT(setenv("TMPDIR", "", 1), 0);
    CHECK(stet__crumbs_map(own, session, 1, &map) != NULL);
    stet__crumbs_unmap(own, session, &map, true);
    CHECK_INT(unsetenv("TMPDIR"), 0);
    CHECK(stet__crumbs_map(own, session, 1, &map) != NULL);
    stet__crumbs_unmap(own, session, &map, true);
}

static void
spoil(uint64_t session, const void *bytes, size_t len, off_t at, off_t size)
{
    int fd = open(crumbs_name(session), O_WRONLY);

    CHECK(fd >= 0 && pwrite(fd, bytes, len, at) == (ssize_t)len);
    CHECK(size < 0 || ftruncate(fd, size) == 0);
    close(fd);
}

TEST(I9_crumbs_that_are_damaged_are_not_believed)
{
    static const uint64_t none = 0, many = STET_CRUMBS_MAX + 1, two = 2;
    void                 *map = NULL;
    size_t                n;

    CHECK_INT(setenv("TMPDIR", test_dir(), 1), 0);
    CHECK(stet__crumbs_map(here, 7, 2, &map) != NULL);
    stet__crumbs_unmap(here, 7, &map, false);
    spoil(7, &none, sizeof none, 8, -1);
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
    spoil(7, &many, sizeof many, 8, -1);
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
    spoil(7, &two, sizeof two, 8, 20);
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
    spoil(7, "x", 1, 0, -1);
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
    spoil(7, "x", 1, 0, 4);
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
}

static void
age(uint64_t session, time_t by_s)
{
    struct timespec old[2] = { { time(NULL) - by_s, 0 }, { time(NULL) - by_s, 0 } };

    CHECK_INT(utimensat(AT_FDCWD, crumbs_name(session), old, 0), 0);
}

TEST(I9_crumbs_of_sessions_nobody_knows_go_when_they_are_old)
{
    static const uint64_t known[] = { 5, 6 };
    int64_t               now_ms = (int64_t)time(NULL) * 1000;
    void                 *map = NULL;
    size_t                n;

    CHECK_INT(setenv("TMPDIR", test_dir(), 1), 0);
    for (uint64_t session = 6; session <= 8; session++) {
        CHECK(stet__crumbs_map(here, session, 1, &map) != NULL);
        stet__crumbs_unmap(here, session, &map, false);
    }
    CHECK(stet__crumbs_map(elsewhere, 7, 1, &map) != NULL);
    stet__crumbs_unmap(elsewhere, 7, &map, false);
    age(6, 7200);
    age(7, 7200);
    stet__crumbs_sweep(here, known, 2, now_ms);
    CHECK_OK(load(6, &n)); /* known */
    CHECK_CODE(load(7, &n), STET_ENOTFOUND);
    CHECK_OK(load(8, &n)); /* its session may be younger than the list */
    stet__crumbs_sweep(elsewhere, NULL, 0, now_ms);
    CHECK_OK(load(6, &n)); /* another store's */
}
