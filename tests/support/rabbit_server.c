/* A private RabbitMQ broker for tests; see rabbit_server.h. Needs the server's package. */
#include "rabbit_server.h"

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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define SERVER_PROGRAM     "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"
#define SERVER_EPMD        "/usr/bin/epmd"
#define SERVER_OPENSSL     "/usr/bin/openssl"
#define SERVER_PATIENCE_MS 120000
#define SERVER_TRIES       3

/* What the tests ask the keeper for: a byte, answered with one (1: done). */
enum { ASK_START = 's', ASK_STOP = 't', ASK_KILL = 'k', ASK_ALARM = 'a', ASK_CALM = 'c' };

typedef struct keeper {
    char  dir[64], program[160];
    int   port, dist_port, epmd_port, tls_port;
    pid_t epmd, server; /* the leader of a group of its own; 0: down */
    bool  is_short;     /* of memory */
} keeper;

/* What the keeper says when the broker is up. */
typedef struct keeper_news {
    int  port, tls_port;
    char dir[64];
} keeper_news;

static char        server_reason[256] = "it was not asked for";
static keeper_news server;
static int         server_life = -1;

static int64_t
server_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool
server_answers(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_there = fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0;

    if (fd >= 0)
        close(fd);
    return is_there;
}

/* ---- the keeper: what it runs ---------------------------------------------------------------- */

/* Nothing of a test needs root. */
static const struct passwd *
keeper_user(void)
{
    const struct passwd *user;

    if (geteuid() != 0)
        return NULL;
    if ((user = getpwnam("rabbitmq")) == NULL)
        user = getpwnam("nobody");
    return user;
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

static void
keeper_env(const char *name, const char *fmt, const char *dir, int number)
{
    char value[256];

    if (strchr(fmt, '%') == NULL)
        (void)snprintf(value, sizeof value, "%s", fmt);
    else if (dir != NULL)
        (void)snprintf(value, sizeof value, "%s%s", dir, strchr(fmt, '%') + 2);
    else
        (void)snprintf(value, sizeof value, "%d", number);
    setenv(name, value, 1);
}

/* Nothing of the machine's own broker: all of it is in our directory. */
static void
keeper_environment(const keeper *k)
{
    char node[64];

    (void)snprintf(node, sizeof node, "stet-%d@localhost", k->port);
    setenv("RABBITMQ_NODENAME", node, 1);
    setenv("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1", 1);
    setenv("ERL_EPMD_ADDRESS", "127.0.0.1", 1);
    keeper_env("RABBITMQ_NODE_PORT", "%d", NULL, k->port);
    keeper_env("RABBITMQ_DIST_PORT", "%d", NULL, k->dist_port);
    keeper_env("ERL_EPMD_PORT", "%d", NULL, k->epmd_port);
    keeper_env("HOME", "%s", k->dir, 0);
    keeper_env("RABBITMQ_CONF_ENV_FILE", "%s/env.conf", k->dir, 0);
    keeper_env("RABBITMQ_CONFIG_FILE", "%s/rabbitmq.conf", k->dir, 0);
    keeper_env("RABBITMQ_ENABLED_PLUGINS_FILE", "%s/plugins", k->dir, 0);
    keeper_env("RABBITMQ_MNESIA_BASE", "%s/data", k->dir, 0);
    keeper_env("RABBITMQ_LOG_BASE", "%s/log", k->dir, 0);
    keeper_env("RABBITMQ_PID_FILE", "%s/pid", k->dir, 0);
    keeper_env("RABBITMQ_FEATURE_FLAGS_FILE", "%s/flags", k->dir, 0);
    setenv("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 1:1", 1);
    unsetenv("LD_PRELOAD"); /* clocks of a test are not the broker's */
}

static _Noreturn void
keeper_exec(const keeper *k, char *const argv[])
{
    const struct passwd *user = keeper_user();
    sigset_t             none;
    int                  fd, null = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    if ((geteuid() == 0 && user == NULL) ||
        (user != NULL &&
         (setgroups(0, NULL) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)))
        _exit(120);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(k->dir) != 0 || null < 0 ||
        (fd = open("out", O_WRONLY | O_CREAT | O_APPEND, 0600)) < 0)
        _exit(121);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    for (int i = 3; i < 256; i++)
        close(i);
    keeper_environment(k);
    execv(argv[0], argv);
    _exit(122);
}

static pid_t
keeper_spawn(const keeper *k, char *const argv[])
{
    pid_t child = fork();

    if (child == 0)
        keeper_exec(k, argv);
    if (child > 0)
        setpgid(child, child);
    return child;
}

static bool
keeper_write(const keeper *k, const char *name, const char *text)
{
    char  path[160];
    FILE *file;
    bool  is_ok;

    (void)snprintf(path, sizeof path, "%s/%s", k->dir, name);
    if ((file = fopen(path, "we")) == NULL)
        return false;
    is_ok = fputs(text, file) >= 0;
    return fclose(file) == 0 && is_ok && chmod(path, 0644) == 0;
}

/* A certificate for localhost that is its own authority: cert.pem and key.pem. */
static bool
keeper_certificate(const keeper *k)
{
    char shell[] = "/bin/sh", flag[] = "-c";
    char command[] = SERVER_OPENSSL " req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
                                    " -addext subjectAltName=DNS:localhost"
                                    " -keyout key.pem -out cert.pem";
    char *argv[] = { shell, flag, command, NULL };
    pid_t child;
    int   status = -1;

    if (access(SERVER_OPENSSL, X_OK) != 0)
        return false;
    child = keeper_spawn(k, argv);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0;
}

static bool
keeper_files(keeper *k)
{
    char   config[1024];
    size_t len;

    len = (size_t)snprintf(
        config, sizeof config,
        "listeners.tcp.default = 127.0.0.1:%d\ndefault_user = %s\ndefault_pass = %s\n"
        "vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 1MB\n"
        "raft.wal_max_size_bytes = 4194304\nlog.file.level = warning\n",
        k->port, RABBIT_USER, RABBIT_PASSWORD);
    k->tls_port = keeper_certificate(k) ? keeper_port() : 0;
    if (k->tls_port != 0)
        (void)snprintf(config + len, sizeof config - len,
                       "listeners.ssl.default = 127.0.0.1:%d\nssl_options.certfile = %s/cert.pem\n"
                       "ssl_options.keyfile = %s/key.pem\nssl_options.cacertfile = %s/cert.pem\n",
                       k->tls_port, k->dir, k->dir, k->dir);
    return keeper_write(k, "rabbitmq.conf", config) && keeper_write(k, "plugins", "[].\n") &&
           keeper_write(k, "env.conf", "");
}

/* Until the broker answers, or has ended. */
static bool
keeper_await(keeper *k)
{
    int64_t until = server_now_ms() + SERVER_PATIENCE_MS;

    while (server_now_ms() < until) {
        if (waitpid(k->server, NULL, WNOHANG) == k->server) {
            k->server = 0;
            return false;
        }
        if (server_answers(k->port))
            return true;
        (void)poll(NULL, 0, 20);
    }
    return false;
}

/* The port mapper goes into the background by itself if nobody has begun one: then it would
 * stay. */
static bool
keeper_up(keeper *k)
{
    char  epmd[] = SERVER_EPMD, flag[] = "-port", number[16];
    char *mapper[] = { epmd, flag, number, NULL }, *broker[] = { k->program, NULL };

    (void)snprintf(number, sizeof number, "%d", k->epmd_port);
    if (k->epmd <= 0)
        k->epmd = keeper_spawn(k, mapper);
    for (int i = 0; i < 500 && !server_answers(k->epmd_port); i++)
        (void)poll(NULL, 0, 10);
    k->server = keeper_spawn(k, broker);
    return k->server > 0 && keeper_await(k);
}

static bool
keeper_has_group(pid_t leader)
{
    return leader > 0 && (kill(-leader, 0) == 0 || errno != ESRCH);
}

/* The script and what it started; what those leave behind is ours to reap. */
static void
keeper_down(keeper *k, int signal)
{
    int64_t until = server_now_ms() + (signal == SIGKILL ? SERVER_PATIENCE_MS : 30000);

    while (k->server > 0 && keeper_has_group(k->server)) {
        kill(-k->server, server_now_ms() > until ? SIGKILL : signal);
        if (signal == SIGTERM)
            signal = 0; /* asked once */
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        (void)poll(NULL, 0, 10);
    }
    k->server = 0;
    k->is_short = false;
}

/* rabbitmqctl lies beside the server. */
static bool
keeper_memory(keeper *k, bool is_short)
{
    char  program[sizeof k->program], verb[] = "set_vm_memory_high_watermark";
    char  how[] = "absolute", little[] = "1", much[] = "1GB";
    char *argv[] = { program, verb, how, is_short ? little : much, NULL };
    char *slash;
    pid_t child;
    int   status = -1;

    memcpy(program, k->program, sizeof program);
    slash = strrchr(program, '/');
    (void)snprintf(slash, sizeof program - (size_t)(slash - program), "/rabbitmqctl");
    child = keeper_spawn(k, argv);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    k->is_short = is_short;
    return status == 0;
}

/* ---- the keeper: its life -------------------------------------------------------------------- */

static int
keeper_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static _Noreturn void
keeper_end(keeper *k, int status)
{
    keeper_down(k, SIGKILL);
    if (k->epmd > 0)
        kill(k->epmd, SIGKILL);
    /* Helpers of the broker end when it is gone; they are our children then. */
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        continue;
    (void)nftw(k->dir, keeper_remove, 16, FTW_DEPTH | FTW_PHYS);
    _exit(status);
}

static _Noreturn void
keeper_serve(keeper *k, int life)
{
    struct pollfd at = { .fd = life, .events = POLLIN };
    char          ask, is_done;

    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0) /* what the broker's scripts left behind */
            continue;
        if (poll(&at, 1, 100) <= 0)
            continue;
        if (read(life, &ask, 1) != 1)
            keeper_end(k, 0);
        is_done = 1;
        if (ask == ASK_START && !(k->server > 0 && keeper_has_group(k->server)))
            is_done = keeper_up(k);
        else if (ask == ASK_START && k->is_short) /* a test that failed has left it so */
            is_done = keeper_memory(k, false);
        else if (ask == ASK_STOP || ask == ASK_KILL)
            keeper_down(k, ask == ASK_STOP ? SIGTERM : SIGKILL);
        else if (ask == ASK_ALARM || ask == ASK_CALM)
            is_done = keeper_memory(k, ask == ASK_ALARM);
        if (write(life, &is_done, 1) != 1)
            keeper_end(k, 1);
    }
}

static _Noreturn void
keeper_main(keeper *k, int life)
{
    keeper_news news = { .port = 0 };
    bool        is_up = false;

    setpgid(0, 0);
    prctl(PR_SET_NAME, "rabbit-keeper");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < SERVER_TRIES && !is_up; i++) {
        k->port = keeper_port(); /* somebody else may be quicker */
        k->dist_port = keeper_port();
        k->epmd_port = keeper_port();
        if (!keeper_files(k))
            keeper_end(k, 1);
        if (!(is_up = keeper_up(k))) {
            keeper_down(k, SIGKILL);
            if (k->epmd > 0)
                kill(k->epmd, SIGKILL);
            k->epmd = 0;
        }
    }
    news.port = k->port;
    news.tls_port = k->tls_port;
    memcpy(news.dir, k->dir, sizeof news.dir);
    if (!is_up || write(life, &news, sizeof news) != (ssize_t)sizeof news)
        keeper_end(k, 1);
    keeper_serve(k, life);
}

/* ---- who asks -------------------------------------------------------------------------------- */

static bool
server_place(keeper *k)
{
    const struct passwd *user = keeper_user();
    glob_t               found;

    if (glob(SERVER_PROGRAM, 0, NULL, &found) != 0 || access(SERVER_EPMD, X_OK) != 0) {
        (void)snprintf(server_reason, sizeof server_reason,
                       "no RabbitMQ server is installed (package rabbitmq-server)");
        return false;
    }
    (void)snprintf(k->program, sizeof k->program, "%s", found.gl_pathv[0]);
    globfree(&found);
    (void)snprintf(k->dir, sizeof k->dir, "/tmp/stet-rabbit-XXXXXX");
    if (mkdtemp(k->dir) == NULL ||
        (user != NULL && chown(k->dir, user->pw_uid, user->pw_gid) != 0)) {
        (void)snprintf(server_reason, sizeof server_reason, "%s: %s", k->dir, strerror(errno));
        return false;
    }
    return true;
}

void
rabbit_server_share(void)
{
    keeper k = { .port = 0 };
    int    pair[2];

    if (server.port != 0 || !server_place(&k) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    fflush(NULL);
    if (fork() == 0) {
        close(pair[0]);
        keeper_main(&k, pair[1]);
    }
    close(pair[1]);
    if (read(pair[0], &server, sizeof server) != (ssize_t)sizeof server) {
        server.port = 0;
        (void)snprintf(server_reason, sizeof server_reason, "the broker did not start");
        close(pair[0]);
        return;
    }
    server_life = pair[0];
}

static bool
server_ask(char ask)
{
    char is_done = 0;

    return write(server_life, &ask, 1) == 1 && read(server_life, &is_done, 1) == 1 && is_done == 1;
}

void
rabbit_server_need(void)
{
    if (server.port == 0)
        test_skip("there is no RabbitMQ: %s", server_reason);
    rabbit_server_start();
}

void
rabbit_server_stop(bool by_force)
{
    if (!server_ask(by_force ? ASK_KILL : ASK_STOP))
        test_fail(__FILE__, __LINE__, "the broker cannot be stopped");
}

void
rabbit_server_start(void)
{
    if (!server_ask(ASK_START))
        test_fail(__FILE__, __LINE__, "the broker does not start again");
}

void
rabbit_server_alarm(bool is_short)
{
    if (!server_ask(is_short ? ASK_ALARM : ASK_CALM))
        test_fail(__FILE__, __LINE__, "rabbitmqctl failed");
}

int
rabbit_server_port(void)
{
    return server.port;
}

int
rabbit_server_tls_port(void)
{
    return server.tls_port;
}

const char *
rabbit_server_cacert(void)
{
    static char path[80];

    (void)snprintf(path, sizeof path, "%s/cert.pem", server.dir);
    return path;
}

const char *
rabbit_url(int port, const char *prefix)
{
    static char urls[4][256];
    static int  turn;
    char       *url = urls[turn++ % 4];

    (void)snprintf(url, sizeof urls[0], "amqp://%s:%s@127.0.0.1:%d/?prefix=%s&heartbeat=1",
                   RABBIT_USER, RABBIT_PASSWORD, port != 0 ? port : server.port, prefix);
    return url;
}
