/* See pooler.h. */
#include "pooler.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cluster.h"
#include "test.h"

#define POOLER_PROGRAM     "/usr/sbin/pgbouncer"
#define POOLER_PATIENCE_MS 120000

static int64_t
pooler_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct sockaddr_in
pooler_address(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int
pooler_port(void)
{
    struct sockaddr_in at = pooler_address(0);
    socklen_t          len = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
          getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

static bool
pooler_answers(int port)
{
    struct sockaddr_in at = pooler_address(port);
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool               is_there = connect(fd, (struct sockaddr *)&at, sizeof at) == 0;

    close(fd);
    return is_there;
}

/* It refuses to be run by root. */
static _Noreturn void
pooler_exec(const char *file, pid_t parent)
{
    const struct passwd *user = geteuid() == 0 ? getpwnam("postgres") : NULL;
    char                 program[] = POOLER_PROGRAM, quiet[] = "-q", path[160];
    char                *argv[] = { program, quiet, path, NULL };
    int                  null = open("/dev/null", O_RDWR);

    (void)snprintf(path, sizeof path, "%s", file);
    if (user != NULL &&
        (setgroups(0, NULL) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0))
        _exit(120);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    for (int i = 3; i < 256; i++)
        close(i);
    execv(argv[0], argv);
    _exit(122);
}

static void
pooler_write(const pooler *p, const char *host, int host_len, int port, int connections)
{
    FILE *file = fopen(p->file, "we");

    CHECK(file != NULL);
    fprintf(file,
            "[databases]\npostgres = host=%.*s port=%d dbname=postgres user=%s\n"
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 300\n"
            "default_pool_size = %d\nlogfile = %s.log\npidfile =\n",
            host_len, host, port, CLUSTER_USER, p->port, connections, p->file);
    CHECK_INT(fclose(file), 0);
    CHECK_INT(chmod(p->file, 0644), 0);
}

pooler *
pooler_new(int server_connections)
{
    return pooler_new_at(pooler_port(), server_connections);
}

pooler *
pooler_new_at(int own_port, int server_connections)
{
    const char *server = cluster_url("x");
    const char *host = strstr(server, "host="), *port = strstr(server, "@:");
    pooler     *p = calloc(1, sizeof *p);
    pid_t       self = getpid();
    int64_t     until_ms = pooler_now_ms() + POOLER_PATIENCE_MS;

    CHECK(p != NULL && host != NULL && port != NULL);
    if (access(POOLER_PROGRAM, X_OK) != 0)
        test_fail(__FILE__, __LINE__, "PgBouncer is not installed (package pgbouncer)");
    p->port = own_port;
    host += strlen("host=");
    (void)snprintf(p->file, sizeof p->file, "%.*s/pool-%ld-%d.ini", (int)strcspn(host, "&"), host,
                   (long)self, p->port);
    pooler_write(p, host, (int)strcspn(host, "&"), (int)strtol(port + 2, NULL, 10),
                 server_connections);
    if ((p->process = fork()) == 0)
        pooler_exec(p->file, self);
    while (!pooler_answers(p->port)) {
        if (pooler_now_ms() > until_ms || waitpid(p->process, NULL, WNOHANG) != 0)
            test_fail(__FILE__, __LINE__, "PgBouncer did not start; see %s.log", p->file);
        (void)poll(NULL, 0, 5);
    }
    return p;
}

void
pooler_free(pooler *p)
{
    kill(p->process, SIGKILL);
    while (waitpid(p->process, NULL, 0) < 0 && errno == EINTR)
        continue;
    free(p);
}

const char *
pooler_url(const pooler *p, const char *schema)
{
    static char url[256];

    (void)snprintf(url, sizeof url, "postgres://%s@127.0.0.1:%d/postgres?sslmode=disable&schema=%s",
                   CLUSTER_USER, p->port, schema);
    return url;
}
