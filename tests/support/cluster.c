/* A private PostgreSQL server for tests; see cluster.h. Needs the server's programs, not libpq. */
#include "cluster.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
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

#define CLUSTER_PATIENCE_MS 120000
#define CLUSTER_TRIES       3

static char cluster_reason[256];

const char *
cluster_why(void)
{
    return cluster_reason;
}

static int64_t
cluster_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the keeper: what it runs ---------------------------------------------------------------- */

/* Debian keeps the programs of each version apart; the newest one is taken. */
static bool
keeper_find(char *out, size_t size, const char *program)
{
    glob_t found;
    bool   is_found = false;

    if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0 && found.gl_pathc > 0) {
        int len = snprintf(out, size, "%s/%s", found.gl_pathv[found.gl_pathc - 1], program);

        is_found = len > 0 && (size_t)len < size && access(out, X_OK) == 0;
    }
    globfree(&found);
    return is_found;
}

/* PostgreSQL refuses to be run by root. */
static const struct passwd *
keeper_user(void)
{
    const struct passwd *user;

    if (geteuid() != 0)
        return NULL;
    if ((user = getpwnam("postgres")) == NULL)
        user = getpwnam("nobody");
    return user;
}

static _Noreturn void
keeper_exec(const char *dir, char *const argv[])
{
    const struct passwd *user = keeper_user();
    char                 log[160];
    sigset_t             none;
    int                  fd, null = open("/dev/null", O_RDONLY);

    (void)snprintf(log, sizeof log, "%s/log", dir);
    if ((geteuid() == 0 && user == NULL) ||
        (user != NULL &&
         (setgroups(0, NULL) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)))
        _exit(120);
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if ((fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600)) < 0 || null < 0 || chdir(dir) != 0)
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
keeper_spawn(const char *dir, char *const argv[])
{
    pid_t child = fork();

    if (child == 0)
        keeper_exec(dir, argv);
    return child;
}

static bool
keeper_initdb(const char *dir)
{
    char  program[192], data[160], pwfile[160], pw[176];
    char *argv[] = { program,
                     "-D",
                     data,
                     "-U",
                     (char *)(uintptr_t)CLUSTER_USER,
                     "-E",
                     "UTF8",
                     "--locale=C",
                     "--auth-local=trust",
                     "--auth-host=scram-sha-256",
                     pw,
                     "-N",
                     NULL };
    int   status = -1, fd;
    pid_t child;

    (void)snprintf(data, sizeof data, "%s/data", dir);
    (void)snprintf(pwfile, sizeof pwfile, "%s/pw", dir);
    (void)snprintf(pw, sizeof pw, "--pwfile=%s", pwfile);
    if ((fd = open(pwfile, O_WRONLY | O_CREAT, 0644)) < 0)
        return false;
    if (write(fd, CLUSTER_PASSWORD "\n", strlen(CLUSTER_PASSWORD) + 1) < 0)
        status = -1;
    close(fd);
    if (!keeper_find(program, sizeof program, "initdb") || (child = keeper_spawn(dir, argv)) < 0)
        return false;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0;
}

/* A copy of a server that runs, and what it takes to follow it. */
static bool
keeper_copy(const char *dir, const cluster *primary)
{
    char  program[192], data[160], host[128], port[32];
    char *argv[] = {
        program, "-D", data,     "-h", host,   "-p", port, "-U", (char *)(uintptr_t)CLUSTER_USER,
        "-R",    "-X", "stream", "-c", "fast", NULL
    };
    int   status = -1;
    pid_t child;

    (void)snprintf(data, sizeof data, "%s/data", dir);
    (void)snprintf(host, sizeof host, "%s", primary->dir);
    (void)snprintf(port, sizeof port, "%d", primary->port);
    if (!keeper_find(program, sizeof program, "pg_basebackup") ||
        (child = keeper_spawn(dir, argv)) < 0)
        return false;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0;
}

static pid_t
keeper_server(const char *dir, int port)
{
    char  program[192], data[160], sockets[192], text[32];
    char *argv[] = { program,
                     "-D",
                     data,
                     "-p",
                     text,
                     "-c",
                     "listen_addresses=127.0.0.1",
                     "-c",
                     sockets,
                     "-c",
                     "max_connections=200",
                     NULL };

    (void)snprintf(data, sizeof data, "%s/data", dir);
    (void)snprintf(text, sizeof text, "%d", port);
    (void)snprintf(sockets, sizeof sockets, "unix_socket_directories=%s", dir);
    if (!keeper_find(program, sizeof program, "postgres"))
        return -1;
    return keeper_spawn(dir, argv);
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

/* The first and the eighth line of postmaster.pid: the process, and whether it answers. */
static pid_t
cluster_look(const char *dir, bool *is_ready)
{
    char  path[160], line[128];
    FILE *file;
    long  pid = 0;

    *is_ready = false;
    (void)snprintf(path, sizeof path, "%s/data/postmaster.pid", dir);
    if ((file = fopen(path, "re")) == NULL)
        return 0;
    for (int i = 1; fgets(line, sizeof line, file) != NULL; i++) {
        if (i == 1)
            pid = strtol(line, NULL, 10);
        if (i == 8)
            *is_ready = strncmp(line, "ready", 5) == 0 || strncmp(line, "standby", 7) == 0;
    }
    fclose(file);
    return (pid_t)pid;
}

static bool
keeper_await(const char *dir, pid_t server)
{
    int64_t until = cluster_now_ms() + CLUSTER_PATIENCE_MS;
    bool    is_ready = false;

    while (cluster_now_ms() < until) {
        if (cluster_look(dir, &is_ready) == server && is_ready)
            return true;
        if (waitpid(server, NULL, WNOHANG) != 0)
            return false;
        (void)poll(NULL, 0, 10);
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
        kill(server, SIGQUIT);
        while (waitpid(server, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    (void)nftw(dir, keeper_remove, 16, FTW_DEPTH | FTW_PHYS);
    _exit(status);
}

/* Until the other end of the pipe is closed. */
static _Noreturn void
keeper_watch(const char *dir, int port, pid_t server, int life)
{
    struct pollfd at = { .fd = life, .events = POLLIN };
    char          byte;

    for (;;) {
        if (poll(&at, 1, 20) > 0 && read(life, &byte, 1) == 0)
            keeper_end(dir, server, 0);
        if (server > 0 && waitpid(server, NULL, WNOHANG) == server)
            server = 0;
        if (server <= 0)
            server = keeper_server(dir, port);
    }
}

static _Noreturn void
keeper_main(const char *dir, const cluster *primary, int life, int ready)
{
    pid_t server = -1;
    int   port = 0;

    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    prctl(PR_SET_NAME, "pg-keeper");
    if (!(primary != NULL ? keeper_copy(dir, primary) : keeper_initdb(dir)))
        keeper_end(dir, -1, 1);
    for (int i = 0; i < CLUSTER_TRIES && server < 0; i++) {
        port = keeper_port(); /* somebody else may be quicker */
        if ((server = keeper_server(dir, port)) > 0 && !keeper_await(dir, server))
            server = -1;
    }
    if (server < 0)
        keeper_end(dir, -1, 1);
    if (write(ready, &port, sizeof port) != (ssize_t)sizeof port)
        keeper_end(dir, server, 1);
    close(ready);
    keeper_watch(dir, port, server, life);
}

/* ---- who asks -------------------------------------------------------------------------------- */

static bool
cluster_dir(char *dir, size_t size)
{
    const struct passwd *user = keeper_user();
    char                 program[192];

    if (!keeper_find(program, sizeof program, "initdb")) {
        (void)snprintf(cluster_reason, sizeof cluster_reason,
                       "no PostgreSQL server is installed (package postgresql)");
        return false;
    }
    (void)snprintf(dir, size, "/tmp/stet-pg-XXXXXX"); /* short: the path of a socket has a limit */
    if (mkdtemp(dir) == NULL || (user != NULL && chown(dir, user->pw_uid, user->pw_gid) != 0)) {
        (void)snprintf(cluster_reason, sizeof cluster_reason, "%s: %s", dir, strerror(errno));
        return false;
    }
    return true;
}

static cluster *
cluster_make(const cluster *primary)
{
    cluster *c = calloc(1, sizeof *c);
    int      life[2] = { -1, -1 }, ready[2] = { -1, -1 };

    if (c == NULL || !cluster_dir(c->dir, sizeof c->dir))
        goto failed;
    if (pipe2(life, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0)
        goto failed;
    fflush(NULL);
    if ((c->keeper = fork()) == 0) {
        close(life[1]);
        close(ready[0]);
        if (primary != NULL)
            close(primary->life); /* or that one would not see its end while we are there */
        keeper_main(c->dir, primary, life[0], ready[1]);
    }
    close(life[0]);
    close(ready[1]);
    c->life = life[1];
    if (c->keeper < 0 || read(ready[0], &c->port, sizeof c->port) != (ssize_t)sizeof c->port) {
        (void)snprintf(cluster_reason, sizeof cluster_reason, "initdb or the server failed");
        close(ready[0]);
        cluster_free(c);
        return NULL;
    }
    close(ready[0]);
    return c;
failed:
    free(c);
    return NULL;
}

cluster *
cluster_new(void)
{
    return cluster_make(NULL);
}

cluster *
cluster_standby(const cluster *primary)
{
    return cluster_make(primary);
}

void
cluster_free(cluster *c)
{
    if (c == NULL)
        return;
    close(c->life);
    while (c->keeper > 0 && waitpid(c->keeper, NULL, 0) < 0 && errno == EINTR)
        continue;
    free(c);
}

pid_t
cluster_server(const cluster *c)
{
    bool is_ready;

    return cluster_look(c->dir, &is_ready);
}

bool
cluster_await(const cluster *c)
{
    int64_t until = cluster_now_ms() + CLUSTER_PATIENCE_MS;
    bool    is_ready = false;

    while (cluster_look(c->dir, &is_ready) >= 0 && !is_ready && cluster_now_ms() < until)
        (void)poll(NULL, 0, 5);
    return is_ready;
}

const char *
cluster_url_of(const cluster *c, const char *schema)
{
    static char url[512];

    /* By the socket: no password, so a connection costs no key derivation. */
    (void)snprintf(url, sizeof url, "postgres://%s@:%d/postgres?host=%s%s%s", CLUSTER_USER, c->port,
                   c->dir, schema != NULL ? "&schema=" : "", schema != NULL ? schema : "");
    return url;
}
