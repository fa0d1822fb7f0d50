/* What answers at a port, by the first bytes it says. See peer.h. */
#include "platform/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/util.h"

#define PEER_WAIT_MS 1000

/* Redis: an answer, be it that a password is missing. RabbitMQ: eight bytes are a header, and it
 * names its own. PostgreSQL: no packet that begins so can be meant, it hangs up. */
static const char peer_ping[] = "PING\r\n\r\n";
/* "Do you speak TLS?": one byte, S or N. */
static const char peer_tls[] = "\0\0\0\10\4\322\26\57";

static int
peer_dial(const stet__peer *peer)
{
    struct addrinfo  wanted = { .ai_socktype = SOCK_STREAM }, *all = NULL;
    struct addrinfo *at;
    char             port[12];
    int              fd = -1;

    (void)snprintf(port, sizeof port, "%d", peer->port);
    if (getaddrinfo(peer->host, port, &wanted, &all) != 0)
        return -1;
    for (at = all; at != NULL && fd < 0; at = at->ai_next) {
        struct pollfd wait = { .events = POLLOUT };
        int           error = 0;
        socklen_t     size = sizeof error;

        if ((wait.fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
            continue;
        if ((connect(wait.fd, at->ai_addr, at->ai_addrlen) == 0 || errno == EINPROGRESS) &&
            poll(&wait, 1, PEER_WAIT_MS) == 1 &&
            getsockopt(wait.fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
            fd = wait.fd;
        else
            close(wait.fd);
    }
    freeaddrinfo(all);
    return fd;
}

/* How many bytes it answered; 0: it hung up; negative: nothing is known. */
static ssize_t
peer_ask(const stet__peer *peer, const char *question, char answer[8])
{
    struct pollfd wait = { .fd = peer_dial(peer), .events = POLLIN };
    ssize_t       n = -1;

    if (wait.fd < 0)
        return -1;
    if (send(wait.fd, question, 8, MSG_NOSIGNAL) == 8 && poll(&wait, 1, PEER_WAIT_MS) == 1 &&
        (n = recv(wait.fd, answer, 8, 0)) < 0 && errno == ECONNRESET)
        n = 0;
    close(wait.fd);
    return n;
}

/* Its scheme; NULL: it cannot be told. */
static const char *
peer_scheme(const stet__peer *peer)
{
    char    answer[8];
    ssize_t n = peer_ask(peer, peer_ping, answer);

    if (n >= 4 && memcmp(answer, "AMQP", 4) == 0)
        return "amqp";
    if (n >= 5 && (memcmp(answer, "+PONG", 5) == 0 || memcmp(answer, "-NOAU", 5) == 0 ||
                   memcmp(answer, "-NOPE", 5) == 0 || memcmp(answer, "-DENI", 5) == 0 ||
                   memcmp(answer, "-LOAD", 5) == 0))
        return "redis";
    if (n == 0 && peer_ask(peer, peer_tls, answer) == 1 && (answer[0] == 'S' || answer[0] == 'N'))
        return "postgres";
    return NULL;
}

int
stet__peer_judge(const stet__peer *peer, int err)
{
    static const char *const names[][2] = { { "postgres", "PostgreSQL" },
                                            { "redis", "Redis" },
                                            { "amqp", "RabbitMQ" } };
    const char              *found, *name = "", *looked_for = "";

    if (peer->host[0] == '\0' || peer->host[0] == '/' || (found = peer_scheme(peer)) == NULL ||
        strcmp(found, peer->scheme) == 0)
        return err;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        name = strcmp(names[i][0], found) == 0 ? names[i][1] : name;
        looked_for = strcmp(names[i][0], peer->scheme) == 0 ? names[i][1] : looked_for;
    }
    return stet__fail(
        peer->code,
        "%s %s: what answers there is no %s server, it seems to be %s: check host and "
        "port, or%s write %s://",
        peer->what, peer->name, looked_for, name,
        strcmp(found, "amqp") == 0          ? ", for hints (queue),"
        : strcmp(peer->scheme, "amqp") == 0 ? ", for the store and not the queue,"
                                            : "",
        found);
}
