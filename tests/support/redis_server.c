/* A private redis-server for tests; see redis_server.h. Needs the server's program, not hiredis. */
#include "redis_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SERVER_PROGRAM     "/usr/bin/redis-server"
#define SERVER_PATIENCE_MS 120000
#define SERVER_TRIES       3

static char server_reason[256];

const char *
redis_server_why(void)
{
    return server_reason;
}

static int64_t
server_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the keeper: what it runs ---------------------------------------------------------------- */

/* Nothing of a test needs root. */
static const struct passwd *
keeper_user(void)
{
    const struct passwd *user;

    if (geteuid() != 0)
        return NULL;
    if ((user = getpwnam("redis")) == NULL)
        user = getpwnam("nobody");
    return user;
}

static _Noreturn void
keeper_exec(const char *dir)
{
    const struct passwd *user = keeper_user();
    char                 program[] = SERVER_PROGRAM, config[] = "redis.conf";
    char                *argv[] = { program, config, NULL };
    sigset_t             none;
    int                  fd, null = open("/dev/null", O_RDONLY);

    if ((geteuid() == 0 && user == NULL) ||
        (user != NULL && (setgroups(0, NULL) != 0 || setgid(user->pw_gid) != 0 ||
                          setuid(user->pw_uid) != 0)))
        _exit(120);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(dir) != 0 || null < 0 ||
        (fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600)) < 0)
        _exit(121);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    for (int i = 3; i < 256; i++)
        close(i);
    unsetenv("LD_PRELOAD"); /* clocks of a test are not the server's */
    execv(argv[0], argv);
    _exit(122);
}

static pid_t
keeper_spawn(const char *dir)
{
    pid_t child = fork();

    if (child == 0)
        keeper_exec(dir);
    return child;
}

static bool
keeper_config(const char *dir, int port, const char *settings)
{
    char  path[160];
    FILE *file;
    bool  is_ok;

    (void)snprintf(path, sizeof path, "%s/redis.conf", dir);
    if ((file = fopen(path, "we")) == NULL)
        return false;
    fprintf(file,
            "bind 127.0.0.1\nport %d\ndir .\npidfile \"\"\ndaemonize no\nsave \"\"\n"
            "appendonly yes\nappendfsync always\nmaxmemory-policy noeviction\n%s\n",
            port, settings != NULL ? settings : "");
    is_ok = fclose(file) == 0;
    return is_ok && chmod(path, 0644) == 0;
}

static int
keeper_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM, 0), port = 0;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &len) == 0)
        port = ntohs(at.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* Does anybody take connections there? */
static bool
server_answers(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool               is_there;

    is_there = fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    return is_there;
}

static bool
keeper_await(pid_t server, int port)
{
    int64_t until = server_now_ms() + SERVER_PATIENCE_MS;

    while (server_now_ms() < until) {
        if (waitpid(server, NULL, WNOHANG) != 0)
            return false;
        if (server_answers(port))
            return true;
        (void)poll(NULL, 0, 5);
    }
    return false;
}

/* ---- the keeper: its life -------------------------------------------------------------------- */

static int
keeper_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static _Noreturn void
keeper_end(const char *dir, pid_t server, int status)
{
    if (server > 0) {
        kill(server, SIGKILL); /* its files go too */
        while (waitpid(server, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    (void)nftw(dir, keeper_remove, 16, FTW_DEPTH | FTW_PHYS);
    _exit(status);
}

static void
keeper_tell(const char *dir, pid_t server)
{
    char  path[160];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/pid", dir);
    if ((file = fopen(path, "we")) == NULL)
        return;
    fprintf(file, "%ld\n", (long)server);
    fclose(file);
}

/* Until the other end of the pipe is closed. */
static _Noreturn void
keeper_watch(const char *dir, pid_t server, int life)
{
    struct pollfd at = { .fd = life, .events = POLLIN };
    char          byte;

    for (;;) {
        if (poll(&at, 1, 10) > 0 && read(life, &byte, 1) == 0)
            keeper_end(dir, server, 0);
        if (server > 0 && waitpid(server, NULL, WNOHANG) == server)
            server = 0;
        if (server <= 0) {
            server = keeper_spawn(dir);
            keeper_tell(dir, server);
        }
    }
}

static _Noreturn void
keeper_main(const char *dir, const char *settings, int life, int ready)
{
    pid_t server = -1;
    int   port = 0;

    setpgid(0, 0);
    prctl(PR_SET_NAME, "redis-keeper");
    for (int i = 0; i < SERVER_TRIES && server < 0; i++) {
        do /* somebody else may be quicker; a node of a cluster needs the one 10000 higher, too */
            port = keeper_port();
        while (port + 10000 > UINT16_MAX);
        if (!keeper_config(dir, port, settings))
            keeper_end(dir, -1, 1);
        if ((server = keeper_spawn(dir)) > 0 && !keeper_await(server, port))
            server = -1;
    }
    if (server < 0)
        keeper_end(dir, -1, 1);
    keeper_tell(dir, server);
    if (write(ready, &port, sizeof port) != (ssize_t)sizeof port)
        keeper_end(dir, server, 1);
    close(ready);
    keeper_watch(dir, server, life);
}

/* ---- who asks -------------------------------------------------------------------------------- */

static bool
server_dir(char *dir, size_t size)
{
    const struct passwd *user = keeper_user();

    if (access(SERVER_PROGRAM, X_OK) != 0) {
        (void)snprintf(server_reason, sizeof server_reason,
                       "no Redis server is installed (package redis-server)");
        return false;
    }
    (void)snprintf(dir, size, "/tmp/stet-redis-XXXXXX");
    if (mkdtemp(dir) == NULL || (user != NULL && chown(dir, user->pw_uid, user->pw_gid) != 0)) {
        (void)snprintf(server_reason, sizeof server_reason, "%s: %s", dir, strerror(errno));
        return false;
    }
    return true;
}

redis_server *
redis_server_new(const char *settings)
{
    redis_server *s = calloc(1, sizeof *s);
    int           life[2] = { -1, -1 }, ready[2] = { -1, -1 };

    if (s == NULL || !server_dir(s->dir, sizeof s->dir))
        goto failed;
    if (pipe2(life, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0)
        goto failed;
    fflush(NULL);
    if ((s->keeper = fork()) == 0) {
        close(life[1]);
        close(ready[0]);
        keeper_main(s->dir, settings, life[0], ready[1]);
    }
    close(life[0]);
    close(ready[1]);
    s->life = life[1];
    if (s->keeper < 0 || read(ready[0], &s->port, sizeof s->port) != (ssize_t)sizeof s->port) {
        (void)snprintf(server_reason, sizeof server_reason, "the server did not start");
        close(ready[0]);
        redis_server_free(s);
        return NULL;
    }
    close(ready[0]);
    return s;
failed:
    free(s);
    return NULL;
}

void
redis_server_free(redis_server *s)
{
    if (s == NULL)
        return;
    close(s->life);
    while (s->keeper > 0 && waitpid(s->keeper, NULL, 0) < 0 && errno == EINTR)
        continue;
    free(s);
}

pid_t
redis_server_pid(const redis_server *s)
{
    char  path[160];
    FILE *file;
    long  pid = 0;

    (void)snprintf(path, sizeof path, "%s/pid", s->dir);
    if ((file = fopen(path, "re")) == NULL)
        return 0;
    if (fscanf(file, "%ld", &pid) != 1)
        pid = 0;
    fclose(file);
    return (pid_t)pid;
}

const char *
redis_server_url_at(int port, const char *prefix)
{
    static char urls[4][256];
    static int  turn;
    char       *url = urls[turn++ % 4];

    (void)snprintf(url, sizeof urls[0], "redis://127.0.0.1:%d/0?prefix=%s", port, prefix);
    return url;
}

const char *
redis_server_url(const redis_server *s, const char *prefix)
{
    return redis_server_url_at(s->port, prefix);
}
